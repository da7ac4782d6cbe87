//! Variance and standard deviation.

use crate::element::{Dtype, Element, Summand, Wide};
use crate::op::{Op, sqrt};
use bytemuck::{Pod, Zeroable};
use core::marker::PhantomData;

/// The struct of an operator by the generic operator [`Variance`].
macro_rules! spread {
    ($(#[$doc:meta])* $op:ident $name:literal: $spread:ty, root $root:literal, agent $agent:expr) => {
        use crate::op::spread::Variance;
        use bytemuck::{Pod, Zeroable};

        $(#[$doc])*
        ///
        /// The result is an `f64` for integers and `f64`, else an `f32`. It is NaN if the number of elements
        /// is not above `ddof` (NumPy may divide by zero then), or if an element that counts is not finite.
        /// It is computed in `f64` from the distances to one element. 64-bit integers are first converted to
        /// the nearest `f64`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $op {
            pub(in crate::op) ddof: u64,
            /// The first element.
            pub(in crate::op) origin: f64,
        }

        impl $op {
            /// Divides by the number of elements less `ddof`, as NumPy: 0 for a whole population, 1 for a
            /// sample.
            pub const fn new(ddof: u64) -> Self {
                Self { ddof, origin: 0.0 }
            }

            /// Returns the degrees of freedom that are subtracted from the number of elements.
            pub const fn ddof(&self) -> u64 {
                self.ddof
            }
        }

        by_name! { $op { ddof: 0, origin: 0.0 } }

        forward! {
            $op, $name: |op| Variance<$spread, $root> = Variance::<$spread, $root>::new(op.ddof, op.origin),
            begin |first| crate::op::by_value::ByValue::begin_twin(op, first, false),
            agent $agent
        }

        impl<T: crate::Element> crate::op::by_value::ByValue<T> for $op {
            #[inline(always)]
            fn begin_twin(&self, first: T, is_second: bool) -> Self {
                use crate::op::by_value::{Value, taken};
                Self { origin: taken(Value, first, is_second), ..*self }
            }

            #[inline(always)]
            fn lift_twin(&self, item: T, _: u64, is_second: bool) -> <Self as crate::Op<T>>::Accumulator {
                use crate::op::by_value::{Value, taken};
                crate::op::spread::Distances::of::<T>(taken(Value, item, is_second), self.origin)
            }
        }
    };
}

/// The variance, or if `ROOT` the standard deviation, of the items that `S` counts.
#[derive(Clone, Copy, Debug)]
pub struct Variance<S, const ROOT: bool> {
    ddof: u64,
    origin: f64,
    of: PhantomData<S>,
}

impl<S, const ROOT: bool> Variance<S, ROOT> {
    #[inline(always)]
    pub(super) fn new(ddof: u64, origin: f64) -> Self {
        Self { ddof, origin, of: PhantomData }
    }
}

impl<T: Element, S: Distances, const ROOT: bool> Op<T> for Variance<S, ROOT> {
    const NAME: &'static str = if ROOT { "std" } else { "var" };
    type Accumulator = S;
    type Output = T::Real;
    const EXACT: bool = false;

    accumulators_add_up! { S }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> S {
        S::of::<T>(element.as_f64(), self.origin)
    }

    #[inline(always)]
    fn finish(&self, all: S, count: u64) -> Option<T::Real> {
        let variance = all.variance::<T>(count, self.ddof);
        Some(T::real(if ROOT { sqrt(variance) } else { variance }))
    }
}

/// Items by their distances from one of them.
pub trait Distances: Summand {
    /// Returns the distances of the value of an item of type `T`. The first value is `origin`.
    fn of<T: Element>(value: f64, origin: f64) -> Self;

    /// Returns the sum of the squared distances from the mean, divided by the count less `ddof`.
    fn variance<T: Element>(self, count: u64, ddof: u64) -> f64;
}

/// Items by their distances from the first, in `f64`.
///
/// Subtracting values near each other loses no bits, and there is no division before the end. The first of n
/// items is not far from the mean: its squared distance is at most n times the variance. So if the relative
/// rounding error of the sum of squares is E, that of the variance is at most (1 + n) · E; if the first item
/// is no outlier, it is a few times E. (T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the
/// sample variance", 1983, on shifted data.)
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Spread {
    /// The sum of the distances.
    sum: f64,
    /// The sum of their squares.
    squares: f64,
}

impl Summand for Spread {
    const NOTHING: Self = Self { sum: -0.0, squares: -0.0 };

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, squares: self.squares + other.squares }
    }
}

impl Distances for Spread {
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "0, or NaN if the value is not finite")]
    fn of<T: Element>(value: f64, origin: f64) -> Self {
        // The distance of two finite `f64` may overflow; the second term makes only distances of values that
        // are not finite NaN.
        let distance = match T::DTYPE {
            Dtype::F64 => (value - origin) + (value - value),
            _ => value - origin,
        };
        Self { sum: distance, squares: distance * distance }
    }

    #[inline(always)]
    fn variance<T: Element>(self, count: u64, ddof: u64) -> f64 {
        let overflows = matches!(T::DTYPE, Dtype::F64) && !self.squares.is_nan();
        variance(self.sum, self.squares, count, ddof, self.squares.is_finite() || overflows)
    }
}

/// Returns the sum of the squared distances from the mean, divided by the count less `ddof`; infinite if
/// distances overflow, NaN if not all items are `finite`.
#[inline(always)]
fn variance(sum: f64, squares: f64, count: u64, ddof: u64, finite: bool) -> f64 {
    if count <= ddof || !finite {
        return f64::NAN;
    }
    let around_mean = squares - sum * (sum / count as f64);
    if around_mean.is_finite() {
        // Rounding may make it negative.
        let around_mean = if around_mean > 0.0 { around_mean } else { 0.0 };
        around_mean / (count - ddof) as f64
    } else {
        f64::INFINITY
    }
}

/// The distances of the items that are not NaN: of all items, if they are integers.
pub type NanSpread<T> = <<T as Element>::Wide as Wide>::NanSpread;

/// The items that are not NaN, by their distances from one of them, because the first of all items may be a
/// NaN.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct SpreadOfNumbers {
    /// The number of items.
    count: u64,
    /// One of the items; NaN if any is infinite.
    origin: f64,
    /// The sum of the distances from `origin`.
    sum: f64,
    /// The sum of their squares.
    squares: f64,
}

impl Summand for SpreadOfNumbers {
    const NOTHING: Self = Self { count: 0, origin: 0.0, sum: -0.0, squares: -0.0 };

    /// Adds around the origin of the first operand that has items.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "0, or NaN of a NaN")]
    fn plus(self, other: Self) -> Self {
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
}

impl Distances for SpreadOfNumbers {
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "0, or NaN if the value is infinite")]
    fn of<T: Element>(value: f64, _: f64) -> Self {
        if value.is_nan() {
            return Self::NOTHING;
        }
        Self { count: 1, origin: value + (value - value), sum: -0.0, squares: -0.0 }
    }

    #[inline(always)]
    fn variance<T: Element>(self, _: u64, ddof: u64) -> f64 {
        variance(self.sum, self.squares, self.count, ddof, !self.origin.is_nan())
    }
}
