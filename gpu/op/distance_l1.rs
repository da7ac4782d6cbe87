use crate::op::prelude::*;

/// The L1 distance of two arrays: the sum of the magnitudes of the differences of their elements.
///
/// Integers sum exactly, in 128 bits, and the result is an `f64`. Floats sum as in [`Sum`](crate::Sum), and
/// the result is an `f64` for `f64`, else an `f32`. For no elements it is 0. A NaN makes it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DistanceL1;

impl<T: Element> Op<(T, T)> for DistanceL1 {
    const NAME: &'static str = "distance_l1";
    type Accumulator = T::Total;
    type Output = T::Real;
    const EXACT: bool = T::Total::EXACT;

    fn agent() -> impl Agent<Self, (T, T)> {
        Listed
    }

    accumulators_add_up! { T::Total }

    #[inline(always)]
    fn lift(&self, (a, b): (T, T), _: u64) -> T::Total {
        (a.total() - b.total()).abs()
    }

    #[inline(always)]
    fn finish(&self, all: T::Total, count: u64) -> Option<T::Real> {
        Some(T::real(if count == 0 { 0.0 } else { all.to_f64() }))
    }
}
