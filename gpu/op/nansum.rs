use crate::agent::terms::Picked;
use crate::op::prelude::*;

/// The sum of the elements that are not NaN.
///
/// The result has the type of [`Sum`](crate::Sum)'s. It is 0 if there are no such elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NanSum;

impl<T: Element> Op<T> for NanSum {
    const NAME: &'static str = "nansum";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;

    fn agent() -> impl Agent<Self, T> {
        Picked
    }

    accumulators_add_up! { T::Wide }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Wide {
        let wide = element.widen();
        if wide.is_nan() { T::Wide::NOTHING } else { wide }
    }

    #[inline(always)]
    fn finish(&self, all: T::Wide, _: u64) -> Option<T::Wide> {
        Some(all.canonical().plus(T::Wide::ZERO))
    }
}
