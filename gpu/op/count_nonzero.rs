use crate::element::{Element, Wide};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// How many elements are not zero; a NaN is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CountNonzero;

impl<T: Element> Op<T> for CountNonzero {
    const NAME: &'static str = "count_nonzero";
    type Accumulator = u64;
    type Output = u64;
    const EXACT: bool = true;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> u64 {
        (element.widen() != T::Wide::ZERO).into()
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> u64 {
        load.into_iter().fold(0u32, |count, element| count + u32::from(element.widen() != T::Wide::ZERO)).into()
    }

    #[inline(always)]
    fn combine(&self, a: u64, b: u64) -> u64 {
        a + b
    }

    #[inline(always)]
    fn finish(&self, all: u64, _: u64) -> Option<u64> {
        Some(all)
    }
}
