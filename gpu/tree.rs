//! The tree, in one place: pairs of neighbours fold, then pairs of those, in a thread, in a warp, in a block.

use crate::Op;
use crate::plan::ANY_BLOCK;
use crate::shape::columns::THREADS;
use core::mem::MaybeUninit;
use cuda_std::{intrinsics, shared_array, thread, warp};

/// Folds a thread's accumulators pairwise, neighbours first.
#[inline(always)]
pub(crate) fn fold_thread<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(
    op: &O,
    mut values: [O::Accumulator; WIDTH],
) -> O::Accumulator {
    let mut stride = 1;
    while stride < WIDTH {
        let mut lane = 0;
        while lane < WIDTH {
            values[lane] = op.combine(values[lane], values[lane + stride]);
            lane += 2 * stride;
        }
        stride *= 2;
    }
    values[0]
}

/// Folds the first `lanes` lanes of a warp pairwise, neighbours first; lane 0 gets the result.
///
/// # Safety
///
/// All 32 lanes call it together.
#[inline(always)]
pub(crate) unsafe fn fold_warp<O: Op<I>, I: Copy + 'static>(
    op: &O,
    mut value: O::Accumulator,
    lanes: u32,
) -> O::Accumulator {
    let mut stride = 1;
    while stride < lanes {
        // SAFETY: as the caller vouches.
        let (above, _) = unsafe { warp::warp_shuffle_down(warp::ALL, value, stride, warp::WARP_SIZE) };
        value = op.combine(value, above);
        stride *= 2;
    }
    value
}

/// Threads in the block: BLOCK, or what the launch says where that is any.
#[inline(always)]
pub(crate) fn block_dim<const BLOCK: u32>() -> u32 {
    if BLOCK == ANY_BLOCK { thread::block_dim_x() } else { BLOCK }
}

/// Folds one value a thread pairwise, neighbours first: across the lanes of each warp by shuffles, then across warps
/// through shared memory, again by shuffles. Thread 0 gets the result, the others something of no use.
///
/// # Safety
///
/// Every thread of the block calls it.
#[inline(always)]
pub(crate) unsafe fn fold_block<O: Op<I>, I: Copy + 'static, const BLOCK: u32>(
    op: &O,
    value: O::Accumulator,
) -> O::Accumulator {
    // SAFETY: all lanes of the warp are here.
    let value = unsafe { fold_warp(op, value, warp::WARP_SIZE) };
    let warps = block_dim::<BLOCK>() / warp::WARP_SIZE;
    if warps == 1 {
        return value;
    }
    let partials = shared_array![O::Accumulator; 32];
    let thread = thread::thread_idx_x();
    if thread.is_multiple_of(warp::WARP_SIZE) {
        // SAFETY: each warp has a place of its own.
        unsafe { partials.write(thread / warp::WARP_SIZE, value) };
    }
    thread::sync_threads();
    if thread >= warp::WARP_SIZE {
        return value;
    }
    // SAFETY: written before the barrier, and all lanes of the first warp are here.
    unsafe {
        let value = if thread < warps { partials.read(thread) } else { op.identity() };
        // Places beyond the last hold the identity.
        fold_warp(op, value, if BLOCK == ANY_BLOCK { warp::WARP_SIZE } else { warps })
    }
}

/// Folds a thread's accumulators, as they are folded into.
#[inline(always)]
pub(crate) fn of_thread<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(
    op: &O,
    values: [O::Accumulator; WIDTH],
) -> O::Accumulator {
    if O::EXACT { values[0] } else { fold_thread::<O, I, WIDTH>(op, values) }
}

/// Folds the accumulators of neighbouring leaves.
#[inline(always)]
pub(crate) fn of_leaves<O: Op<I>, I: Copy + 'static, const WIDTH: usize, const SLOTS: usize>(
    op: &O,
    values: [[O::Accumulator; WIDTH]; SLOTS],
) -> O::Accumulator {
    let mut leaves = [op.identity(); SLOTS];
    unrolled::<SLOTS>(|slot| leaves[slot] = of_thread::<O, I, WIDTH>(op, values[slot]));
    fold_thread::<O, I, SLOTS>(op, leaves)
}

/// Folds the values of 2^`lanes` neighbouring lanes, whose first gets the result.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
pub(crate) unsafe fn fold_lanes<O: Op<I>, I: Copy + 'static>(
    op: &O,
    mut value: O::Accumulator,
    lanes: u32,
) -> O::Accumulator {
    let mut stride = 1;
    let lanes = intrinsics::opaque(lanes);
    while stride >> lanes == 0 {
        intrinsics::no_unroll();
        // SAFETY: as the caller vouches.
        let (above, _) = unsafe { warp::warp_shuffle_down(warp::ALL, value, stride, 32) };
        value = op.combine(value, above);
        stride *= 2;
    }
    value
}

/// Folds the leaves of a warp, of which lane i has leaf 32 k + i at place k; the first lane gets the result. Neighbours exchange half of what they
/// have, so that each has as many fewer, instead of all leaves of a place moving at once.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
pub(crate) unsafe fn fold_leaves_of_warp<O: Op<I>, I: Copy + 'static>(
    op: &O,
    leaves: [O::Accumulator; 4],
) -> O::Accumulator {
    let lane = warp::lane_id();
    // SAFETY: as the caller vouches.
    unsafe {
        let exchange = |[first, second]: [O::Accumulator; 2], stride: u32| {
            // Asked anew after the shuffle, of which the compiler would else make one for each answer.
            let is_upper = || intrinsics::opaque(lane & stride) != 0;
            let (keep, give) = if is_upper() { (second, first) } else { (first, second) };
            let (take, _) = warp::warp_shuffle_xor(warp::ALL, give, stride, 32);
            if is_upper() { op.combine(take, keep) } else { op.combine(keep, take) }
        };
        let [a, b, c, d] = leaves;
        let mut value = exchange([exchange([a, b], 1), exchange([c, d], 1)], 2);
        // Then lane i has, of place i modulo 4, a part.
        for stride in [4, 8, 16, 1, 2] {
            let (above, _) = warp::warp_shuffle_down(warp::ALL, value, stride, 32);
            value = op.combine(value, above);
        }
        value
    }
}

/// Accumulators of so many bytes that a block exchanges at once, at most: 2 to some power.
pub(crate) const fn most_at_once(bytes: usize) -> usize {
    match (32 << 10) / if bytes == 0 { 1 } else { bytes } {
        0 => 1,
        places if places >= THREADS as usize => THREADS as usize,
        places => 1 << places.ilog2(),
    }
}

/// Folds the values of each column's threads pairwise, neighbours first; the first of them gets the result.
///
/// # Safety
///
/// Every thread of the block calls it.
#[inline(always)]
pub(crate) unsafe fn fold_panel<O: Op<I>, I: Copy + 'static>(
    op: &O,
    mut value: O::Accumulator,
    panel: u32,
    threads: u32,
) -> O::Accumulator {
    let places = shared_array![O::Accumulator; most_at_once(size_of::<O::Accumulator>())];
    let thread = thread::thread_idx_x();
    let number = thread >> panel;
    let has_place = number >> threads == 0;
    if threads > 0 && has_place {
        // SAFETY: each thread has a place of its own.
        unsafe { places.write(thread, value) };
    }
    for level in 0..threads {
        intrinsics::no_unroll();
        thread::sync_threads();
        if has_place && number & ((2 << level) - 1) == 0 {
            // SAFETY: written before the barrier, and by nobody since; the thread's own place is read after the next.
            unsafe {
                value = op.combine(value, places.read(thread + (1 << (level + panel))));
                places.write(thread, value);
            }
        }
    }
    value
}

/// Levels of a tree: the longest rows have 2^12 leaves that a thread folds in turn, or 2^13 that it folds side by side.
pub(crate) const LEVELS: usize = 14;

/// A tree of accumulators that come one after another, pairwise, neighbours first; what is missing of it are
/// identities. Of an exact operator it is one accumulator.
pub(crate) struct Pairwise<'a, A> {
    /// The trees that wait for their neighbours, at the place of their height: one for each bit of the number of
    /// leaves.
    waiting: &'a mut Waiting<A>,
    leaves: u32,
    all: A,
}

pub(crate) type Waiting<A> = [MaybeUninit<A>; LEVELS];

impl<'a, A: Copy> Pairwise<'a, A> {
    #[inline(always)]
    pub(crate) fn new<O: Op<I, Accumulator = A>, I: Copy + 'static>(
        op: &O,
        waiting: &'a mut Waiting<A>,
    ) -> Self {
        Self { waiting, leaves: 0, all: op.identity() }
    }

    #[inline(always)]
    pub(crate) fn push<O: Op<I, Accumulator = A>, I: Copy + 'static>(&mut self, op: &O, mut tree: A) {
        if O::EXACT {
            self.all = op.combine(self.all, tree);
            return;
        }
        let mut level = 0;
        // SAFETY: what is there has been written, and there are not so many leaves.
        unsafe {
            while self.leaves >> level & 1 == 1 {
                intrinsics::no_unroll();
                tree = op.combine(self.waiting.get_unchecked(level).assume_init(), tree);
                level += 1;
            }
            self.waiting.get_unchecked_mut(level).write(tree);
        }
        self.leaves += 1;
    }

    #[inline(always)]
    pub(crate) fn finish<O: Op<I, Accumulator = A>, I: Copy + 'static>(&self, op: &O) -> A {
        let mut all = self.all;
        if O::EXACT {
            return all;
        }
        let mut leaves = self.leaves;
        while leaves > 0 {
            intrinsics::no_unroll();
            // SAFETY: what is there has been written.
            all = unsafe {
                op.combine(self.waiting.get_unchecked(leaves.trailing_zeros() as usize).assume_init(), all)
            };
            leaves &= leaves - 1;
        }
        all
    }
}

/// Calls `each` for each of up to eight: a loop over much stays one, and takes what it indexes to memory.
#[inline(always)]
pub(crate) fn unrolled<const COUNT: usize>(mut each: impl FnMut(usize)) {
    each(0);
    if COUNT > 1 {
        each(1);
    }
    if COUNT > 2 {
        each(2);
    }
    if COUNT > 3 {
        each(3);
    }
    const { assert!(COUNT <= 4 || COUNT == 8) };
    if COUNT > 4 {
        each(4);
        each(5);
        each(6);
        each(7);
    }
}
