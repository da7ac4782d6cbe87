//! temporary
use crate::Op;
use core::ops::Range;
use std::vec::Vec;

/// What is folded on a CPU: items at indices.
pub trait Source: Copy + Send + Sync {
    /// What is there: an array's element, or a pair of elements.
    type Item: Copy + 'static;
    /// Items.
    fn len(self) -> usize;
    /// Whether there are no items.
    fn is_empty(self) -> bool {
        self.len() == 0
    }
    /// The items of a range, which is in bounds.
    fn slice(self, range: Range<usize>) -> Self;
    /// # Safety
    /// `index` is below the length.
    unsafe fn get(self, index: usize) -> Self::Item;
}

impl<T: Copy + Send + Sync + 'static> Source for &[T] {
    type Item = T;
    #[inline(always)]
    fn len(self) -> usize {
        <[T]>::len(self)
    }
    #[inline(always)]
    fn slice(self, range: Range<usize>) -> Self {
        &self[range]
    }
    #[inline(always)]
    unsafe fn get(self, index: usize) -> T {
        // SAFETY: as the caller vouches.
        unsafe { *self.get_unchecked(index) }
    }
}

impl<A: Source, B: Source> Source for (A, B) {
    type Item = (A::Item, B::Item);
    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }
    #[inline(always)]
    fn slice(self, range: Range<usize>) -> Self {
        (self.0.slice(range.clone()), self.1.slice(range))
    }
    #[inline(always)]
    unsafe fn get(self, index: usize) -> Self::Item {
        // SAFETY: as the caller vouches.
        unsafe { (self.0.get(index), self.1.get(index)) }
    }
}

/// Folds a chunk.
pub fn fold_chunk<O: Op<S::Item>, S: Source>(op: &O, chunk: S, first: u64, row: usize) -> O::Accumulator {
    let width = row.min(chunk.len().next_power_of_two());
    let mut accumulators: Vec<O::Accumulator> = std::vec![op.identity(); width];
    for index in 0..chunk.len() {
        let accumulator = &mut accumulators[index % row];
        // SAFETY: in bounds.
        *accumulator = op.combine(*accumulator, op.lift(unsafe { chunk.get(index) }, first + index as u64));
    }
    fold_pairs::<O, S::Item>(op, &mut accumulators)
}

/// Folds accumulators, a power of two of them, pairwise, neighbours first.
pub fn fold_pairs<O: Op<I>, I: Copy + 'static>(
    op: &O,
    accumulators: &mut [O::Accumulator],
) -> O::Accumulator {
    let mut len = accumulators.len() / 2;
    while len > 0 {
        for index in 0..len {
            accumulators[index] = op.combine(accumulators[2 * index], accumulators[2 * index + 1]);
        }
        len /= 2;
    }
    accumulators[0]
}

/// The instruction set.
pub fn simd() -> &'static str {
    "?"
}
