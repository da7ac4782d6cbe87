use crate::element::{Element, Wide};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The sum of the squares of two arrays' differences, in the types of [`Sum`](crate::Sum): integers subtract, square and sum in 64 bits,
/// wrapping; `f16` and `bf16` in `f32`. Of no elements it is 0. Its root is the Euclidean distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DistanceSquared;

impl<T: Element> Op<(T, T)> for DistanceSquared {
    const NAME: &'static str = "distance_squared";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;
    const ON_CPU: Option<OnCpu<Self, (T, T)>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> T::Wide {
        T::Wide::NOTHING
    }

    #[inline(always)]
    fn lift(&self, (a, b): (T, T), _: u64) -> T::Wide {
        let difference = a.widen().minus(b.widen());
        difference.times(difference)
    }

    #[inline(always)]
    fn combine(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        a.plus(b)
    }

    #[inline(always)]
    fn finish(&self, all: T::Wide, count: u64) -> Option<T::Wide> {
        Some(if count == 0 { T::Wide::ZERO } else { all.canonical() })
    }
}
