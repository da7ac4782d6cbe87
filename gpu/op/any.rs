#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{Source, for_each_block};
use crate::element::{Element, Wide};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// Whether any element is not zero; a NaN is not. Of no elements: no.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Any;

impl<T: Element> Op<T> for Any {
    const NAME: &'static str = "any";
    type Accumulator = u32;
    type Output = bool;
    const EXACT: bool = true;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> u32 {
        0
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> u32 {
        (element.widen() != T::Wide::ZERO).into()
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> u32 {
        load.into_iter().fold(0, |any, element| any | self.lift(element, 0))
    }

    /// To the first block that says it.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = T>>(&self, items: S, _: u64) -> u32 {
        let mut any = false;
        for_each_block::<1024, S>(items, |block, _| {
            for i in 0..block.len() {
                // SAFETY: `i` is in bounds.
                any |= unsafe { block.get(i) }.widen() != T::Wide::ZERO;
            }
            !any
        });
        any.into()
    }

    #[inline(always)]
    fn combine(&self, a: u32, b: u32) -> u32 {
        a | b
    }

    #[inline(always)]
    fn finish(&self, all: u32, _: u64) -> Option<bool> {
        Some(all != 0)
    }
}
