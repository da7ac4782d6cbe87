use crate::op::Op;
use core::mem::MaybeUninit;

/// A tree of accumulators that come one after another, pairwise, neighbours first; what is missing of it are identities.
#[derive(Clone, Debug)]
pub struct Pairwise<A: Copy> {
    /// The trees that wait for their neighbours: the longest first, one for each bit of their number.
    waiting: [MaybeUninit<A>; 32],
    depth: usize,
    count: usize,
}

impl<A: Copy> Pairwise<A> {
    /// One of none.
    #[inline(always)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { waiting: [const { MaybeUninit::uninit() }; 32], depth: 0, count: 0 }
    }

    /// Adds the next, of which there are fewer than 2^32.
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

    /// The accumulator of all.
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
