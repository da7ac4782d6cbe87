use crate::element::{Accumulator, Element, Wide};
use crate::op::{OnCpu, Op, two_sum};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The sum, in the types of [`Sum`](crate::Sum), with little error: other floats than `f64` sum in `f64`, and these in two, the second of
/// which holds what the first one's roundings lose. The error is a unit in the last place of the result, and 2^-53 times (2^-100 times, of
/// `f64`) the plan's depth of the sum of magnitudes. An empty sum is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CompensatedSum;

type Sums<T> = <<T as Element>::Wide as Wide>::Compensated;

impl<T: Element> Op<T> for CompensatedSum {
    const NAME: &'static str = "compensated_sum";
    type Accumulator = Sums<T>;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> Sums<T> {
        Sums::<T>::NOTHING
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> Sums<T> {
        Sums::<T>::of(element.widen())
    }

    #[inline(always)]
    fn combine(&self, a: Sums<T>, b: Sums<T>) -> Sums<T> {
        a.plus(b)
    }

    #[inline(always)]
    fn finish(&self, all: Sums<T>, count: u64) -> Option<T::Wide> {
        Some(if count == 0 { T::Wide::ZERO } else { all.value().canonical() })
    }
}

/// Sums of values of type `V`.
pub trait Compensated<V>: Accumulator {
    /// Added to any sum it leaves that one's bits.
    const NOTHING: Self;
    /// That of one value.
    fn of(value: V) -> Self;
    /// The sum of both.
    fn plus(self, other: Self) -> Self;
    /// The nearest value.
    fn value(self) -> V;
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl Compensated<$type> for $type {
            const NOTHING: Self = 0;
            #[inline(always)]
            fn of(value: $type) -> Self {
                value
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                Wide::plus(self, other)
            }
            #[inline(always)]
            fn value(self) -> $type {
                self
            }
        }
    )*};
}

integers! { i64 u64 }

impl Compensated<f32> for f64 {
    const NOTHING: Self = -0.0;

    #[inline(always)]
    fn of(value: f32) -> Self {
        value.into()
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }

    #[inline(always)]
    fn value(self) -> f32 {
        self as f32
    }
}

/// A sum, and the sum of its roundings' errors.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Twofold {
    sum: f64,
    error: f64,
}

impl Compensated<f64> for Twofold {
    const NOTHING: Self = Self { sum: -0.0, error: 0.0 };

    #[inline(always)]
    fn of(value: f64) -> Self {
        Self { sum: value, error: 0.0 }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        let [sum, error] = two_sum(self.sum, other.sum);
        Self { sum, error: self.error + (other.error + error) }
    }

    /// Of an infinite sum the errors are NaN, and of no account.
    #[inline(always)]
    fn value(self) -> f64 {
        let value = self.sum + self.error;
        if self.sum.is_finite() && self.error != 0.0 { value } else { self.sum }
    }
}
