use crate::op::exact::{Exact, ExactElement, Summing};
use crate::op::prelude::*;
use crate::op::tally::{OfTally, Tallied};
use crate::op::{ExactMean, ExactSum, ExactSumTwofold};

/// The arithmetic mean.
///
/// Integers sum exactly, in 128 bits, and the result is an `f64`. Floats sum as in [`Sum`](crate::Sum), and
/// the result is an `f64` for `f64`, else an `f32`. For no elements it is NaN, as in NumPy. A NaN makes it
/// NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Mean;

impl<T: Element> Op<T> for Mean {
    const NAME: &'static str = "mean";
    type Accumulator = T::Total;
    type Output = T::Real;
    const EXACT: bool = T::Total::EXACT;

    fn agent() -> impl Agent<Self, T> {
        Tally
    }

    accumulators_add_up! { T::Total }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Total {
        element.total()
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> T::Total {
        load.into_iter().fold(T::Total::NOTHING, |all, element| all.plus(element.total()))
    }

    #[inline(always)]
    fn finish(&self, all: T::Total, count: u64) -> Option<T::Real> {
        Some(T::real(all.to_f64() / count as f64))
    }
}

impl<T: Element> OfTally<T> for Mean {
    const COUNTS: bool = true;

    #[inline(always)]
    fn of_tally(sum: &impl Exact, low: i32, count: u64) -> T::Real {
        if count == 0 {
            return T::real(f64::NAN);
        }
        if T::Total::EXACT {
            return T::real(sum.lowest().to_f64() / count as f64);
        }
        T::real(T::Wide::mean_of(sum, low, count))
    }
}

// Of integers, whose sums are exact.
serves! {
    Mean, ExactElement<Sums: Summing<T, State = <T as Element>::Total>>: |_op|
        ExactSum = ExactSum,
        ExactSumTwofold = ExactSumTwofold,
        ExactMean = ExactMean
}
