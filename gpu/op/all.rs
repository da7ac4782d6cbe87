#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{Source, for_each_block};
use crate::element::{Element, Wide};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// Whether all elements are not zero; a NaN is not. Of no elements: yes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct All;

impl<T: Element> Op<T> for All {
    const NAME: &'static str = "all";
    type Accumulator = u32;
    type Output = bool;
    const EXACT: bool = true;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> u32 {
        1
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> u32 {
        (element.widen() != T::Wide::ZERO).into()
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> u32 {
        load.into_iter().fold(1, |all, element| all & self.lift(element, 0))
    }

    /// To the first block that says it.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = T>>(&self, items: S, _: u64) -> u32 {
        let mut all = true;
        for_each_block::<1024, S>(items, |block, _| {
            for i in 0..block.len() {
                // SAFETY: `i` is in bounds.
                all &= unsafe { block.get(i) }.widen() != T::Wide::ZERO;
            }
            all
        });
        all.into()
    }

    #[inline(always)]
    fn combine(&self, a: u32, b: u32) -> u32 {
        a & b
    }

    #[inline(always)]
    fn finish(&self, all: u32, _: u64) -> Option<bool> {
        Some(all != 0)
    }
}
