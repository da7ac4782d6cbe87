//! A pairwise fold of accumulators that come one after another.

use crate::op::Op;
use core::mem::MaybeUninit;

/// Folds accumulators that come one after another pairwise, neighbours first.
///
/// It is the tree of a power of two of accumulators, whose missing ones are identities.
#[derive(Clone, Debug)]
pub struct Pairwise<A: Copy> {
    /// Whole trees that wait for their neighbours, the longest first: one for each bit of `count`.
    waiting: [MaybeUninit<A>; 32],
    depth: usize,
    count: usize,
}

impl<A: Copy> Pairwise<A> {
    /// A tree of no accumulators.
    #[inline(always)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { waiting: [const { MaybeUninit::uninit() }; 32], depth: 0, count: 0 }
    }

    /// Adds the next accumulator, at most 2^32 − 1 in all.
    #[inline(always)]
    pub fn push<O: Op<I, Accumulator = A>, I: Copy + 'static>(&mut self, op: &O, mut tree: A) {
        let mut pairs = self.count;
        while pairs % 2 == 1 {
            self.depth -= 1;
            // SAFETY: below the depth all have been written.
            tree = op.combine(unsafe { self.waiting[self.depth].assume_init() }, tree);
            pairs /= 2;
        }
        self.waiting[self.depth].write(tree);
        self.depth += 1;
        self.count += 1;
    }

    /// The fold of all accumulators; the identity if there are none.
    #[inline(always)]
    pub fn finish<O: Op<I, Accumulator = A>, I: Copy + 'static>(mut self, op: &O) -> A {
        let mut all = op.identity();
        while self.depth > 0 {
            self.depth -= 1;
            // SAFETY: below the depth all have been written.
            all = op.combine(unsafe { self.waiting[self.depth].assume_init() }, all);
        }
        all
    }
}
