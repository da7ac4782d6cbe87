use crate::op::prelude::*;

/// The maximum norm: the largest magnitude of an element.
///
/// The result is an `f64` for integers and `f64`, else an `f32`. A NaN makes it NaN. Empty input is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NormMax;

impl<T: Element> Op<T> for NormMax {
    const NAME: &'static str = "norm_max";
    type Accumulator = u64;
    type Output = T::Real;
    const EXACT: bool = true;

    fn agent() -> impl Agent<Self, T> {
        Listed
    }

    #[inline(always)]
    fn identity(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> u64 {
        element.magnitude()
    }

    #[inline(always)]
    fn combine(&self, a: u64, b: u64) -> u64 {
        a.max(b)
    }

    #[inline(always)]
    fn finish(&self, all: u64, count: u64) -> Option<T::Real> {
        (count > 0).then(|| T::real(T::of_magnitude(all)))
    }
}
