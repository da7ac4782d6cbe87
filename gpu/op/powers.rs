//! Moments, by the powers of the distances from the first element.

use crate::element::{Element, Summand};
use crate::op::{Moments, Op, sqrt};
use bytemuck::{Pod, Zeroable};

/// The central moment of degree 3 or 4 in units of the standard deviation; of degree 4, less 3.
#[derive(Clone, Copy, Debug)]
pub struct Standardized<const DEGREE: u32>(pub Moments);

impl<T: Element, const DEGREE: u32> Op<T> for Standardized<DEGREE> {
    const NAME: &'static str = if DEGREE == 3 { "skewness" } else { "kurtosis" };
    type Accumulator = Powers;
    type Output = T::Real;
    const EXACT: bool = false;

    accumulators_add_up! { Powers }

    #[inline(always)]
    fn end(&self, all: Powers, count: u64) -> Powers {
        Op::<T>::end(&self.0, all, count)
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> Powers {
        self.0.lift(element, 0)
    }

    #[inline(always)]
    fn finish(&self, all: Powers, count: u64) -> Option<T::Real> {
        Some(standardized::<T>(all.finished(count), DEGREE))
    }
}

/// Returns the moment of this degree in units of the standard deviation; NaN if that is rounding error alone, as
/// in SciPy.
#[inline(always)]
fn standardized<T: Element>([mean, second, third, fourth]: [f64; 4], degree: u32) -> T::Real {
    let noise = f64::EPSILON * mean;
    let value = if second <= noise * noise {
        f64::NAN
    } else if degree == 3 {
        third / (second * sqrt(second))
    } else {
        fourth / (second * second) - 3.0
    };
    T::real(value)
}

/// The sums of the first to the fourth powers of distances from one element; after `end`, the moments.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Powers(pub(super) [f64; 4]);

impl Summand for Powers {
    const NOTHING: Self = Self([-0.0; 4]);

    #[inline(always)]
    fn plus(self, Self([a, b, c, d]): Self) -> Self {
        let Self([first, second, third, fourth]) = self;
        Self([first + a, second + b, third + c, fourth + d])
    }
}

impl Powers {
    /// Returns the powers of one distance.
    #[inline(always)]
    pub(super) fn of_distance(distance: f64) -> Self {
        let square = distance * distance;
        Self([distance, square, square * distance, square * square])
    }

    /// Returns the moments of `count` elements, which are NaN for none.
    #[inline(always)]
    pub(super) fn finished(self, count: u64) -> [f64; 4] {
        if count == 0 { [f64::NAN; 4] } else { self.0 }
    }

    /// Computes the mean and the second to fourth central moments, by the binomial theorem. All are NaN if
    /// any is.
    #[inline(always)]
    pub(super) fn moments(self, origin: f64, count: u64) -> Self {
        let [mean, second, third, fourth] = self.0.map(|sum| sum / count as f64);
        let square = mean * mean;
        let moments = [
            origin + mean,
            second - square,
            third - mean * (3.0 * second - 2.0 * square),
            fourth - mean * (4.0 * third - mean * (6.0 * second - 3.0 * square)),
        ];
        if moments.iter().all(|moment| moment.is_finite()) {
            // Rounding may make even moments negative.
            let [mean, second, third, fourth] = moments;
            Self([
                mean,
                if second > 0.0 { second } else { 0.0 },
                third,
                if fourth > 0.0 { fourth } else { 0.0 },
            ])
        } else {
            Self([f64::NAN; 4])
        }
    }
}
