//! The operators that count elements.

use crate::element::Element;
use crate::op::Op;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::comparison::Range;

/// A condition on an element.
pub trait Predicate<T: Element>: Copy + Send + Sync + 'static {
    /// Whether the condition holds.
    fn holds(self, element: T) -> bool;

    /// The condition as a range of keys.
    #[cfg(not(target_arch = "nvptx64"))]
    fn range(self) -> Range<T>;
}

/// The number of elements for which a condition holds.
#[derive(Clone, Copy, Debug)]
pub struct Count<P>(pub P);

impl<T: Element, P: Predicate<T>> Op<T> for Count<P> {
    const NAME: &'static str = "count";
    type Accumulator = u64;
    type Output = u64;
    const EXACT: bool = true;

    #[inline(always)]
    fn identity(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> u64 {
        self.0.holds(element).into()
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> u64 {
        load.into_iter().fold(0u32, |count, element| count + u32::from(self.0.holds(element))).into()
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
