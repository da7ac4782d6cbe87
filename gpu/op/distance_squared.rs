use crate::op::prelude::*;

/// The square of the Euclidean distance of two arrays: the sum of the squared differences of their elements.
///
/// The result has the type of [`Sum`](crate::Sum)'s: integers subtract, square and sum in 64 bits, which
/// wrap, `f16` and `bf16` in `f32`. For no elements it is 0. A NaN makes it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DistanceSquared;

impl<T: Element> Op<(T, T)> for DistanceSquared {
    const NAME: &'static str = "distance_squared";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;

    fn agent() -> impl Agent<Self, (T, T)> {
        Listed
    }

    accumulators_add_up! { T::Wide }

    #[inline(always)]
    fn lift(&self, (a, b): (T, T), _: u64) -> T::Wide {
        let difference = a.widen().minus(b.widen());
        difference.times(difference)
    }

    #[inline(always)]
    fn finish(&self, all: T::Wide, count: u64) -> Option<T::Wide> {
        Some(if count == 0 { T::Wide::ZERO } else { all.canonical() })
    }
}
