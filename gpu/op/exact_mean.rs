use crate::input::Input;
use crate::op::shared::{Member, Shared};
use crate::op::{ExactSum, ExactSumTwofold};
use crate::reduce::Arguments;
use crate::segments::Arguments as SegmentArguments;

exact_operator! {
    /// The mean, rounded once: the number nearest to the exact mean.
    ///
    /// For `f64` and integers it is an `f64`, for other floats an `f32`. NaN and infinities follow IEEE 754,
    /// and overflow on the way does not matter, as for an [`ExactSum`](crate::ExactSum). Of no elements it is
    /// NaN.
    ExactMean "exact_mean" over T, T: ExactElement, Sums;
    T::Real, |sum, count| T::mean(sum, count),
    tally counts true, |sum, low, count| T::mean_from(sum, low, count)
}

serves! {
    ExactMean, ExactElement: |_op| ExactSum = ExactSum, ExactSumTwofold = ExactSumTwofold;

    #[inline(always)]
    unsafe fn reduce_on_gpu<P: Input<Item = T>, const BLOCK: u32, const WIDTH: usize>(
        arguments: Arguments<P, Shared<Self>, T::Real>,
        is_row: bool,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { T::Sums::reduce_on_gpu::<Shared<Self>, P, BLOCK, WIDTH>(arguments, is_row) }
    }

    #[inline(always)]
    unsafe fn sum_segments<P: Input<Item = T>, const WIDTH: usize>(
        arguments: SegmentArguments<P, Shared<Self>, T::Real>,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { T::Sums::sum_segments::<Shared<Self>, P, WIDTH>(arguments) }
    }
}

impl<T: ExactElement> OfExactSum<T> for Shared<ExactMean> {
    #[inline(always)]
    fn of_sum(&self, sum: impl Exact, count: u64) -> T::Real {
        OfExactSum::<T>::of_sum(&self.op, sum, count)
    }

    #[inline(always)]
    unsafe fn store_sum(&self, sum: impl Exact, count: u64, results: *mut T::Real, index: usize) {
        // SAFETY: as the caller vouches.
        unsafe {
            match self.member {
                ExactSum::MEMBER => OfExactSum::<T>::store_sum(&ExactSum, sum, count, results.cast(), index),
                ExactSumTwofold::MEMBER => {
                    OfExactSum::<T>::store_sum(&ExactSumTwofold, sum, count, results.cast(), index)
                }
                _ => OfExactSum::<T>::store_sum(&self.op, sum, count, results, index),
            }
        }
    }
}
