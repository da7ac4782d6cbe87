use crate::element::{Element, Wide};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The sum of the elements that are not NaN, in the types of [`Sum`](crate::Sum). Where there are none it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NanSum;

impl<T: Element> Op<T> for NanSum {
    const NAME: &'static str = "nansum";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> T::Wide {
        T::Wide::NOTHING
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Wide {
        let wide = element.widen();
        if wide.is_nan() { T::Wide::NOTHING } else { wide }
    }

    #[inline(always)]
    fn combine(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        a.plus(b)
    }

    #[inline(always)]
    fn finish(&self, all: T::Wide, _: u64) -> Option<T::Wide> {
        Some(all.canonical().plus(T::Wide::ZERO))
    }
}
