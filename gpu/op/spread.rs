//! Variance and standard deviation.

use crate::element::{Dtype, Element};
use bytemuck::{Pod, Zeroable};

macro_rules! spread {
    ($(#[$doc:meta])* $op:ident $name:literal: $variance:ident => $value:expr, by $spread:ident $(, folded as $other:ident)?;) => {
        use crate::element::Element;
        use crate::op::spread::$spread;
        use crate::op::{OnCpu, Op};
        use crate::table;
        use bytemuck::{Pod, Zeroable};

        $(#[$doc])*
        ///
        /// It is an `f64` for integers and `f64`, else an `f32`; NaN where the count is not above the degrees of freedom taken off it
        /// (where NumPy may divide by zero), and where an element that counts is not finite. It is computed in `f64`, by the distances
        /// from one element; of 64-bit integers those of the nearest `f64`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $op {
            pub(in crate::op) ddof: u64,
            /// The first element.
            pub(in crate::op) origin: f64,
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
            type Accumulator = $spread;
            type Output = T::Real;
            const EXACT: bool = false;
            const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

            fn parameters(&self) -> &[u8] {
                bytemuck::bytes_of(self)
            }

            #[inline(always)]
            fn begin(&self, first: T) -> Self {
                Self { ddof: self.ddof, origin: first.to_f64() }
            }

            #[inline(always)]
            fn identity(&self) -> $spread {
                $spread::NONE
            }

            #[inline(always)]
            fn lift(&self, element: T, _: u64) -> $spread {
                $spread::of(element, self.origin)
            }

            $( folded_as! { |op| crate::op::$other { ddof: op.ddof, origin: op.origin } } )?

            #[inline(always)]
            fn combine(&self, a: $spread, b: $spread) -> $spread {
                a.plus(b)
            }

            #[inline(always)]
            fn finish(&self, all: $spread, count: u64) -> Option<T::Real> {
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
        let overflows = matches!(T::DTYPE, Dtype::F64) && !self.squares.is_nan();
        variance(self.sum, self.squares, count, ddof, self.squares.is_finite() || overflows)
    }
}

/// The sum of the squares of the distances from the mean, over the count less `ddof`; infinite where distances overflow, and NaN
/// where not all items are `finite`.
#[inline(always)]
fn variance(sum: f64, squares: f64, count: u64, ddof: u64, finite: bool) -> f64 {
    if count <= ddof || !finite {
        return f64::NAN;
    }
    let around_mean = squares - sum * (sum / count as f64);
    if around_mean.is_finite() {
        // Rounding may leave less than nothing.
        let around_mean = if around_mean > 0.0 { around_mean } else { 0.0 };
        around_mean / (count - ddof) as f64
    } else {
        f64::INFINITY
    }
}

/// The items that are not NaN, by their distances from one of them: the first of all may not be among them.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct NanSpread {
    /// How many.
    count: u64,
    /// One of them; NaN where any is infinite.
    origin: f64,
    /// The sum of the distances from it.
    sum: f64,
    /// The sum of their squares.
    squares: f64,
}

impl NanSpread {
    pub(super) const NONE: Self = Self { count: 0, origin: 0.0, sum: -0.0, squares: -0.0 };

    /// That of one item.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "0, or NaN of what is infinite")]
    pub(super) fn of<T: Element>(item: T, _: f64) -> Self {
        let value = item.to_f64();
        if value.is_nan() {
            return Self::NONE;
        }
        Self { count: 1, origin: value + (value - value), sum: -0.0, squares: -0.0 }
    }

    /// That of both, around the origin of the first that has items.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "0, or NaN of a NaN")]
    pub(super) fn plus(self, other: Self) -> Self {
        if self.count == 0 {
            return other;
        }
        if other.count == 0 {
            return self;
        }
        let apart = other.origin - self.origin;
        let shift = other.count as f64 * apart;
        Self {
            count: self.count + other.count,
            origin: self.origin + (other.origin - other.origin),
            sum: self.sum + (other.sum + shift),
            squares: self.squares + (other.squares + (other.sum + other.sum + shift) * apart),
        }
    }

    /// As [`Spread::variance`], of those that count.
    #[inline(always)]
    #[expect(clippy::extra_unused_type_parameters, reason = "as of the other")]
    pub(super) fn variance<T: Element>(self, _: u64, ddof: u64) -> f64 {
        variance(self.sum, self.squares, self.count, ddof, !self.origin.is_nan())
    }
}
