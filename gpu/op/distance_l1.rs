use crate::element::{Element, Total};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The sum of the magnitudes of two arrays' differences. Integers sum exactly, in 128 bits, and the distance is an `f64`; floats sum as in
/// [`Sum`](crate::Sum), and the distance is an `f64` of `f64`, else an `f32`. Of no elements it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DistanceL1;

impl<T: Element> Op<(T, T)> for DistanceL1 {
    const NAME: &'static str = "distance_l1";
    type Accumulator = T::Total;
    type Output = T::Real;
    const EXACT: bool = T::Total::EXACT;
    const ON_CPU: Option<OnCpu<Self, (T, T)>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> T::Total {
        T::Total::NOTHING
    }

    #[inline(always)]
    fn lift(&self, (a, b): (T, T), _: u64) -> T::Total {
        a.total().minus(b.total()).abs()
    }

    #[inline(always)]
    fn combine(&self, a: T::Total, b: T::Total) -> T::Total {
        a.plus(b)
    }

    #[inline(always)]
    fn finish(&self, all: T::Total, count: u64) -> Option<T::Real> {
        Some(T::real(if count == 0 { 0.0 } else { all.to_f64() }))
    }
}
