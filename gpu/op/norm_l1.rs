use crate::op::by_value::{ByValue, by_value, cast, is_signed};
use crate::op::prelude::*;
use crate::op::{DistanceL1, Sum};

/// The L1 norm: the sum of the magnitudes of the elements.
///
/// Integers sum exactly, in 128 bits, and the result is an `f64`. Floats sum as in [`Sum`](crate::Sum), and
/// the result is an `f64` for `f64`, else an `f32`. For no elements it is 0. A NaN makes it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NormL1;

impl<T: Element> ByValue<T> for NormL1 {
    #[inline(always)]
    fn lift_twin(&self, item: T, index: u64, is_second: bool) -> T::Total {
        DistanceL1.lift_twin((item, T::zeroed()), index, is_second)
    }

    /// A GPU adds several unsigned integers in one instruction.
    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [T; N], index: u64, is_second: bool) -> T::Total {
        let distances = DistanceL1.lift_load_twin(items.map(|item| (item, T::zeroed())), index, is_second);
        if const { T::Total::EXACT && size_of::<T>() <= 2 } {
            let sum: i64 = cast(Sum.lift_load_twin(items, index, false));
            return if is_signed::<T>(is_second) { distances } else { cast(i128::from(sum)) };
        }
        distances
    }
}

impl<T: Element> Op<T> for NormL1 {
    const NAME: &'static str = "norm_l1";
    type Accumulator = T::Total;
    type Output = T::Real;
    const EXACT: bool = T::Total::EXACT;

    fn agent() -> impl Agent<Self, T> {
        Listed
    }

    accumulators_add_up! { T::Total }

    by_value! { T }

    #[inline(always)]
    fn finish(&self, all: T::Total, count: u64) -> Option<T::Real> {
        Some(T::real(if count == 0 { 0.0 } else { all.to_f64() }))
    }
}
