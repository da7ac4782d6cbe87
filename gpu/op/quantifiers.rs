//! [`Any`](crate::Any) and [`All`](crate::All).

#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{Source, for_each_block};
use crate::element::Element;
use crate::op::Op;
use num_traits::ConstZero;

/// Whether all elements are not zero if `ALL`, else whether any is not.
#[derive(Clone, Copy)]
pub struct Quantifier<const ALL: bool>;

impl<T: Element, const ALL: bool> Op<T> for Quantifier<ALL> {
    const NAME: &'static str = if ALL { "all" } else { "any" };
    type Accumulator = u32;
    type Output = bool;
    const EXACT: bool = true;
    const LARGE_BLOCK: u32 = 1024;

    #[inline(always)]
    fn identity(&self) -> u32 {
        ALL.into()
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> u32 {
        is_nonzero(element).into()
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> u32 {
        load.into_iter()
            .fold(ALL.into(), |all, element| Op::<T>::combine(self, all, is_nonzero(element).into()))
    }

    /// Stops after the first block that decides the result.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = T>>(&self, items: S, _: u64) -> u32 {
        let mut all = ALL;
        for_each_block::<1024, S>(items, |block, _| {
            for i in 0..block.len() {
                // SAFETY: `i` is in bounds.
                let is_nonzero = is_nonzero(unsafe { block.get(i) });
                all = if ALL { all & is_nonzero } else { all | is_nonzero };
            }
            all == ALL
        });
        all.into()
    }

    #[inline(always)]
    fn combine(&self, a: u32, b: u32) -> u32 {
        if ALL { a & b } else { a | b }
    }

    #[inline(always)]
    fn finish(&self, all: u32, _: u64) -> Option<bool> {
        Some(all != 0)
    }
}

/// Whether an element is not zero; a NaN is not.
#[inline(always)]
pub(super) fn is_nonzero<T: Element>(element: T) -> bool {
    element.widen() != T::Wide::ZERO
}
