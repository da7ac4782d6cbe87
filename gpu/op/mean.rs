use crate::op::by_value::{ByValue, Summed, by_value, cast, lift_each, taken};
use crate::op::exact::{Exact, ExactElement, Summing};
use crate::op::prelude::*;
use crate::op::tally::{OfTally, Tallied};
use crate::op::{ExactMean, ExactSum, ExactSumTwofold, Sum};

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

    by_value! { T }

    #[inline(always)]
    fn finish(&self, all: T::Total, count: u64) -> Option<T::Real> {
        Some(T::real(all.to_f64() / count as f64))
    }
}

impl<T: Element> ByValue<T> for Mean {
    #[inline(always)]
    fn lift_twin(&self, item: T, _: u64, is_second: bool) -> T::Total {
        taken(Summed, item, is_second)
    }

    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [T; N], index: u64, is_second: bool) -> T::Total {
        if const { T::Total::EXACT && size_of::<T>() <= 4 } {
            // The sum of a load has 64 bits at most.
            let sum: i64 = cast(Sum.lift_load_twin(items, index, is_second));
            return cast(i128::from(sum));
        }
        lift_each(self, items, index, is_second)
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
