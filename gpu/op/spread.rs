//! Variance and standard deviation.

use crate::element::{Dtype, Element};
use bytemuck::{Pod, Zeroable};

macro_rules! spread {
    ($(#[$doc:meta])* $op:ident $name:literal: $variance:ident => $value:expr;) => {
        use crate::element::Element;
        use crate::op::spread::Spread;
        use crate::op::{OnCpu, Op};
        use crate::table;
        use bytemuck::{Pod, Zeroable};

        $(#[$doc])*
        ///
        /// It is an `f64` for integers and `f64`, else an `f32`; NaN where the count is not above the degrees of freedom taken off it
        /// (where NumPy may divide by zero), and where an element is not finite. It is computed in `f64`, by the distances from the
        /// first element; of 64-bit integers those of the nearest `f64`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $op {
            ddof: u64,
            /// The first element.
            origin: f64,
        }

        impl $op {
            /// With `ddof` degrees of freedom taken off the count, as in NumPy: 0 for a whole population, 1 for a sample.
            pub const fn new(ddof: u64) -> Self {
                Self { ddof, origin: 0.0 }
            }

            /// Degrees of freedom taken off the count.
            pub const fn ddof(&self) -> u64 {
                self.ddof
            }
        }

        impl<T: Element> Op<T> for $op {
            const NAME: &'static str = $name;
            type Accumulator = Spread;
            type Output = T::Real;
            const EXACT: bool = false;
            const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu();

            #[inline(always)]
            fn begin(&self, first: T) -> Self {
                Self { ddof: self.ddof, origin: first.to_f64() }
            }

            #[inline(always)]
            fn identity(&self) -> Spread {
                Spread::NONE
            }

            #[inline(always)]
            fn lift(&self, element: T, _: u64) -> Spread {
                Spread::of(element, self.origin)
            }

            #[inline(always)]
            fn combine(&self, a: Spread, b: Spread) -> Spread {
                a.plus(b)
            }

            #[inline(always)]
            fn finish(&self, all: Spread, count: u64) -> Option<T::Real> {
                let $variance = all.variance::<T>(count, self.ddof);
                Some(T::real($value))
            }
        }
    };
}

/// Items by their distances from the first, in `f64`.
///
/// Differences of neighbours in value lose nothing, and there is nothing to divide by before the end. The first of n items is not
/// far: its squared distance from the mean is at most n times the variance, so that the rounding errors of the squares' sum, E of it,
/// become no more than 1 + n times E of the variance; of items of which the first is no outlier, a few times E. (T. F. Chan,
/// G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", 1983, on shifted data.)
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Spread {
    /// The sum of the distances.
    sum: f64,
    /// The sum of their squares.
    squares: f64,
}

impl Spread {
    pub(super) const NONE: Self = Self { sum: -0.0, squares: -0.0 };

    /// That of one item.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "0, or NaN of what is not finite")]
    pub(super) fn of<T: Element>(item: T, origin: f64) -> Self {
        let value = item.to_f64();
        // Of `f64` alone a distance may overflow, which is not to be taken for an infinite item.
        let distance = match T::DTYPE {
            Dtype::F64 => (value - origin) + (value - value),
            _ => value - origin,
        };
        Self { sum: distance, squares: distance * distance }
    }

    /// That of both.
    #[inline(always)]
    pub(super) fn plus(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, squares: self.squares + other.squares }
    }

    /// The sum of the squares of the distances from the mean, over the count less `ddof`.
    #[inline(always)]
    pub(super) fn variance<T: Element>(self, count: u64, ddof: u64) -> f64 {
        if count <= ddof {
            return f64::NAN;
        }
        let around_mean = self.squares - self.sum * (self.sum / count as f64);
        if around_mean.is_finite() {
            // Rounding may leave less than nothing.
            let around_mean = if around_mean < 0.0 { 0.0 } else { around_mean };
            around_mean / (count - ddof) as f64
        } else if matches!(T::DTYPE, Dtype::F64) && !self.squares.is_nan() {
            f64::INFINITY
        } else {
            f64::NAN
        }
    }
}
