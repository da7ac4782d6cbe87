//! [`Any`](crate::Any) and [`All`](crate::All).

use crate::element::Element;
use crate::op::Op;
use num_traits::ConstZero;

/// Whether all elements are not zero if `ALL`, else whether any is not.
#[derive(Clone, Copy, Debug)]
pub struct Quantifier<const ALL: bool>;

impl<T: Element, const ALL: bool> Op<T> for Quantifier<ALL> {
    const NAME: &'static str = if ALL { "all" } else { "any" };
    type Accumulator = u32;
    type Output = bool;
    const EXACT: bool = true;

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
pub(crate) fn is_nonzero<T: Element>(element: T) -> bool {
    element.widen() != T::Wide::ZERO
}
