use crate::op::by_value::{ByValue, Short, Widened, by_value, cast, lift_each, short_sum, taken};
use crate::op::prelude::*;

/// The square of the Euclidean distance of two arrays: the sum of the squared differences of their elements.
///
/// The result has the type of [`Sum`](crate::Sum)'s: integers subtract, square and sum in 64 bits, which
/// wrap, `f16` and `bf16` in `f32`. For no elements it is 0. A NaN makes it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DistanceSquared;

impl<T: Element> ByValue<(T, T)> for DistanceSquared {
    #[inline(always)]
    fn lift_twin(&self, (a, b): (T, T), _: u64, is_second: bool) -> T::Wide {
        let difference = taken(Widened, a, is_second).minus(taken(Widened, b, is_second));
        difference.times(difference)
    }

    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [(T, T); N], index: u64, is_second: bool) -> T::Wide {
        if const { T::Wide::EXACT && size_of::<T>() == 1 } {
            let difference = |(a, b): (T, T)| taken(Short, a, is_second) - taken(Short, b, is_second);
            let square = |pair| difference(pair) * difference(pair);
            return cast(short_sum(items, square));
        }
        lift_each(self, items, index, is_second)
    }
}

impl<T: Element> Op<(T, T)> for DistanceSquared {
    const NAME: &'static str = "distance_squared";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;

    fn agent() -> impl Agent<Self, (T, T)> {
        Listed
    }

    accumulators_add_up! { T::Wide }

    by_value! { (T, T) }

    #[inline(always)]
    fn finish(&self, all: T::Wide, count: u64) -> Option<T::Wide> {
        Some(if count == 0 { T::Wide::ZERO } else { all.canonical() })
    }
}
