//! Moments, by the powers of the distances from the first element.

use crate::element::Element;
use bytemuck::{Pod, Zeroable};

macro_rules! of_powers {
    ($(#[$doc:meta])* $op:ident $name:literal -> $output:ty: |$moments:ident| $value:expr $(, folded as $other:ident)?;) => {
        use crate::element::Element;
        use crate::op::powers::Powers;
        use crate::op::{OnCpu, Op};
        use crate::table;
        use bytemuck::{Pod, Zeroable};

        $(#[$doc])*
        ///
        /// Computed in `f64`, by the powers of the distances from the first element: a few times n of their roundings may be in it where that
        /// one lies far from all others, of n elements. NaN of no elements, where one is not finite, and where a fourth power overflows; of
        /// 64-bit integers those of the nearest `f64`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $op {
            /// The first element.
            pub(in crate::op) origin: f64,
        }

        impl<T: Element> Op<T> for $op {
            const NAME: &'static str = $name;
            type Accumulator = Powers;
            type Output = $output;
            const EXACT: bool = false;
            const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

            fn parameters(&self) -> &[u8] {
                bytemuck::bytes_of(self)
            }

            #[inline(always)]
            fn begin(&self, first: T) -> Self {
                Self { origin: first.to_f64() }
            }

            #[inline(always)]
            fn end(&self, all: Powers, count: u64) -> Powers {
                all.moments(self.origin, count)
            }

            #[inline(always)]
            fn identity(&self) -> Powers {
                Powers::NONE
            }

            #[inline(always)]
            fn lift(&self, element: T, _: u64) -> Powers {
                Powers::of(element.to_f64() - self.origin)
            }

            $( folded_as! { |op| crate::op::$other { origin: op.origin } } )?

            #[inline(always)]
            fn combine(&self, a: Powers, b: Powers) -> Powers {
                a.plus(b)
            }

            #[inline(always)]
            fn finish(&self, Powers($moments): Powers, count: u64) -> Option<$output> {
                let $moments = if count == 0 { [f64::NAN; 4] } else { $moments };
                Some($value)
            }
        }
    };
}

/// The sums of the first to the fourth power of distances from one element; at the end, the moments.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Powers(pub(super) [f64; 4]);

impl Powers {
    pub(super) const NONE: Self = Self([-0.0; 4]);

    /// Those of one distance.
    #[inline(always)]
    pub(super) fn of(distance: f64) -> Self {
        let square = distance * distance;
        Self([distance, square, square * distance, square * square])
    }

    /// Those of both.
    #[inline(always)]
    pub(super) fn plus(self, Self([a, b, c, d]): Self) -> Self {
        let Self([first, second, third, fourth]) = self;
        Self([first + a, second + b, third + c, fourth + d])
    }

    /// The mean, and the second to the fourth central moment, by the binomial theorem. All NaN where any is.
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
            // Rounding may leave less than nothing of what is not negative.
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

/// The moment of this degree in units of the standard deviation; NaN where that is nothing but rounding, as in SciPy.
#[inline(always)]
pub(super) fn standardized<T: Element>([mean, second, third, fourth]: [f64; 4], degree: u32) -> T::Real {
    let noise = f64::EPSILON * mean;
    let value = if second <= noise * noise {
        f64::NAN
    } else if degree == 3 {
        third / (second * super::sqrt(second))
    } else {
        fourth / (second * second) - 3.0
    };
    T::real(value)
}
