use crate::op::prelude::*;
use crate::op::two_sum;

/// The sum, with compensated rounding errors.
///
/// The result has the type of [`Sum`](crate::Sum)'s. `f16`, `bf16` and `f32` sum in `f64`; `f64` sums in two
/// `f64`, the second of which holds the rounding errors of the first. The error is at most a unit in the last
/// place of the result plus 2^-53 (for `f64`, 2^-100) times the depth of the [plan](crate::plan) times the
/// sum of the magnitudes. For no elements it is 0. A NaN makes it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CompensatedSum;

type Sums<T> = <<T as Element>::Wide as Wide>::Compensated;

impl<T: Element> Op<T> for CompensatedSum {
    const NAME: &'static str = "compensated_sum";
    type Accumulator = Sums<T>;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;

    fn agent() -> impl Agent<Self, T> {
        Listed
    }

    accumulators_add_up! { Sums<T> }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> Sums<T> {
        Sums::<T>::of(element.widen())
    }

    #[inline(always)]
    fn finish(&self, all: Sums<T>, count: u64) -> Option<T::Wide> {
        Some(if count == 0 { T::Wide::ZERO } else { all.value().canonical() })
    }
}

/// A sum of values of type `V`, of higher precision.
pub trait Compensated<V>: Summand {
    /// Converts one value.
    fn of(value: V) -> Self;
    /// Converts to the nearest value.
    fn value(self) -> V;
}

impl<V: Summand> Compensated<V> for V {
    #[inline(always)]
    fn of(value: V) -> Self {
        value
    }

    #[inline(always)]
    fn value(self) -> V {
        self
    }
}

impl Compensated<f32> for f64 {
    #[inline(always)]
    fn of(value: f32) -> Self {
        value.into()
    }

    #[inline(always)]
    fn value(self) -> f32 {
        self as f32
    }
}

/// A sum, and the sum of its rounding errors.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Twofold {
    sum: f64,
    error: f64,
}

impl Summand for Twofold {
    const NOTHING: Self = Self { sum: -0.0, error: 0.0 };

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        let [sum, error] = two_sum(self.sum, other.sum);
        Self { sum, error: self.error + (other.error + error) }
    }
}

impl Compensated<f64> for Twofold {
    #[inline(always)]
    fn of(value: f64) -> Self {
        Self { sum: value, error: 0.0 }
    }

    /// Ignores the errors of an infinite sum, which are NaN.
    #[inline(always)]
    fn value(self) -> f64 {
        let value = self.sum + self.error;
        if self.sum.is_finite() && self.error != 0.0 { value } else { self.sum }
    }
}
