//! Every tree on a device, each once.
//!
//! All of them combine neighbours first, then neighbouring results, and so on:
//!
//! ```text
//! level 0:  a0  a1  a2  a3  a4  a5  a6  a7
//! level 1:  a0+a1   a2+a3   a4+a5   a6+a7
//! level 2:  (a0+a1)+(a2+a3) (a4+a5)+(a6+a7)
//! level 3:  the result
//! ```
//!
//! They differ in where the values lie: in a thread ([`fold_thread`], [`fold_in_order`], [`of_thread`], [`of_leaves`]), in the
//! lanes of a warp ([`fold_warp`], [`fold_lanes`], [`fold_leaves_of_lanes`]), in a block ([`fold_block`]), or
//! one after another ([`Pairwise`]).

use crate::Op;
use crate::plan::ANY_BLOCK;
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

/// As [`fold_thread`], for values that `fold` makes one after another: it folds value `index` into an identity. A value of more than
/// 4 bytes is combined as soon as its neighbour is there, so that a thread has registers for one of each level.
#[inline(always)]
pub(crate) fn fold_in_order<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(
    op: &O,
    fold: impl Fn(usize, &mut O::Accumulator),
) -> O::Accumulator {
    if const { size_of::<O::Accumulator>() <= 4 } {
        let mut values = [op.identity(); WIDTH];
        unrolled::<WIDTH>(|index| fold(index, &mut values[index]));
        return fold_thread::<O, I, WIDTH>(op, values);
    }
    // Element k is a subtree of 2^k values that waits for its neighbour.
    let mut waiting = [op.identity(); 5];
    unrolled::<WIDTH>(|index| {
        let (mut tree, mut level) = (op.identity(), 0);
        fold(index, &mut tree);
        while index >> level & 1 == 1 {
            tree = op.combine(waiting[level], tree);
            level += 1;
        }
        waiting[level] = tree;
    });
    waiting[WIDTH.ilog2() as usize]
}

/// Folds the first `lanes` lanes of a warp pairwise, neighbours first. Lane 0 gets the result.
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
        // SAFETY: as the caller promises.
        let (above, _) = unsafe { warp::warp_shuffle_down(warp::ALL, value, stride, warp::WARP_SIZE) };
        value = op.combine(value, above);
        stride *= 2;
    }
    value
}

/// Returns the number of threads in the block: BLOCK, or what the launch says if BLOCK is [`ANY_BLOCK`].
#[inline(always)]
pub(crate) fn block_dim<const BLOCK: u32>() -> u32 {
    if BLOCK == ANY_BLOCK { thread::block_dim_x() } else { BLOCK }
}

/// Folds one value a thread pairwise, neighbours first: the lanes of each warp by shuffles, then the warps
/// through shared memory and shuffles again. Thread 0 gets the result; the other threads' values are
/// unspecified.
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
        // SAFETY: each warp writes an element of its own.
        unsafe { partials.write(thread / warp::WARP_SIZE, value) };
    }
    thread::sync_threads();
    if thread >= warp::WARP_SIZE {
        return value;
    }
    // SAFETY: written before the barrier, and all lanes of the first warp are here.
    unsafe {
        let value = if thread < warps { partials.read(thread) } else { op.identity() };
        // Elements beyond the last warp's hold the identity.
        fold_warp(op, value, if BLOCK == ANY_BLOCK { warp::WARP_SIZE } else { warps })
    }
}

/// Folds a thread's accumulators. An exact operator uses the first one only.
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

/// Folds the values of groups of 2^`lanes` neighbouring lanes pairwise. The first lane of a group gets its
/// result.
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
        // SAFETY: as the caller promises.
        let (above, _) = unsafe { warp::warp_shuffle_down(warp::ALL, value, stride, 32) };
        value = op.combine(value, above);
        stride *= 2;
    }
    value
}

/// Folds the leaves of groups of 2^`lanes` neighbouring lanes, four at least: element k of lane i of a group is leaf 2^`lanes` · k + i. The
/// first lane of a group gets its result.
///
/// Neighbouring lanes exchange half of their leaves, so that each lane has half as many to fold at the next
/// level. (To shuffle all leaves at each level would take more shuffles.)
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
pub(crate) unsafe fn fold_leaves_of_lanes<O: Op<I>, I: Copy + 'static>(
    op: &O,
    leaves: [O::Accumulator; 4],
    lanes: u32,
) -> O::Accumulator {
    let lane = warp::lane_id();
    // SAFETY: as the caller promises.
    unsafe {
        let exchange = |[first, second]: [O::Accumulator; 2], stride: u32| {
            // Asked again after the shuffle: else the compiler makes a shuffle for each answer.
            let is_upper = || intrinsics::opaque(lane & stride) != 0;
            let (keep, give) = if is_upper() { (second, first) } else { (first, second) };
            let (take, _) = warp::warp_shuffle_xor(warp::ALL, give, stride, 32);
            if is_upper() { op.combine(take, keep) } else { op.combine(keep, take) }
        };
        let [a, b, c, d] = leaves;
        let mut value = exchange([exchange([a, b], 1), exchange([c, d], 1)], 2);
        // Now lane i has a part of leaf group i modulo 4.
        for stride in [4, 8, 16, 1, 2] {
            if stride >> lanes == 0 {
                let (above, _) = warp::warp_shuffle_down(warp::ALL, value, stride, 32);
                value = op.combine(value, above);
            }
        }
        value
    }
}

/// Folds four values a lane, each over groups of 2^`lanes` neighbouring lanes, four at least, and by an operator of
/// its own. Lane k of a group gets the result of value k and its operator, for k below 4.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
pub(crate) unsafe fn fold_slots<O: Op<I>, I: Copy + 'static>(
    ops: [O; 4],
    values: [O::Accumulator; 4],
    lanes: u32,
) -> (O, O::Accumulator) {
    let lane = warp::lane_id();
    // SAFETY: as the caller promises.
    unsafe {
        let exchange = |ops: [O; 2], [first, second]: [O::Accumulator; 2], stride: u32| {
            let is_upper = || intrinsics::opaque(lane & stride) != 0;
            let (keep, give) = if is_upper() { (second, first) } else { (first, second) };
            let (take, _) = warp::warp_shuffle_xor(warp::ALL, give, stride, 32);
            let op = if is_upper() { ops[1] } else { ops[0] };
            (op, if is_upper() { op.combine(take, keep) } else { op.combine(keep, take) })
        };
        let ([a, b, c, d], [e, f, g, h]) = (values, ops);
        let (first, a) = exchange([e, f], [a, b], 1);
        let (second, c) = exchange([g, h], [c, d], 1);
        let (op, mut value) = exchange([first, second], [a, c], 2);
        for stride in [4, 8, 16] {
            if stride >> lanes == 0 {
                let (above, _) = warp::warp_shuffle_down(warp::ALL, value, stride, 32);
                value = op.combine(value, above);
            }
        }
        (op, value)
    }
}

/// The most levels of a [`Pairwise`] tree: the longest rows have 2^12 leaves that a thread folds in turn, or
/// 2^13 that it folds side by side.
pub(crate) const LEVELS: usize = 14;

/// A tree of accumulators that come one after another. Missing leaves are the identity. An exact operator has
/// one accumulator instead. Registers hold what waits at the lowest `levels`, at most two, memory the rest.
pub(crate) struct Pairwise<'a, A> {
    /// As `waiting`, of the lowest levels, which stay in registers.
    low: [A; 2],
    /// How many these are: a constant.
    levels: usize,
    /// Element k is a complete subtree of 2^k leaves that waits for its neighbour. It is initialised if bit k
    /// of `leaves` is 1. It lies in memory, because it is indexed.
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
        levels: usize,
    ) -> Self {
        Self { low: [op.identity(); 2], levels, waiting, leaves: 0, all: op.identity() }
    }

    #[inline(always)]
    pub(crate) fn push<O: Op<I, Accumulator = A>, I: Copy + 'static>(&mut self, op: &O, mut tree: A) {
        if O::EXACT {
            self.all = op.combine(self.all, tree);
            return;
        }
        let leaves = self.leaves;
        self.leaves += 1;
        if self.levels > 0 {
            if leaves & 1 == 0 {
                self.low[0] = tree;
                return;
            }
            tree = op.combine(self.low[0], tree);
        }
        if self.levels > 1 {
            if leaves & 2 == 0 {
                self.low[1] = tree;
                return;
            }
            tree = op.combine(self.low[1], tree);
        }
        let mut level = self.levels;
        // SAFETY: bit `level` of `leaves` says that the subtree is there; there are fewer than 2^LEVELS
        // leaves.
        unsafe {
            while leaves >> level & 1 == 1 {
                intrinsics::no_unroll();
                tree = op.combine(self.waiting.get_unchecked(level).assume_init(), tree);
                level += 1;
            }
            self.waiting.get_unchecked_mut(level).write(tree);
        }
    }

    /// Returns the value of all that has come, and begins anew.
    #[inline(always)]
    pub(crate) fn take<O: Op<I, Accumulator = A>, I: Copy + 'static>(&mut self, op: &O) -> A {
        let all = self.finish(op);
        (self.leaves, self.all) = (0, op.identity());
        all
    }

    #[inline(always)]
    pub(crate) fn finish<O: Op<I, Accumulator = A>, I: Copy + 'static>(&self, op: &O) -> A {
        let mut all = self.all;
        if O::EXACT {
            return all;
        }
        let mut leaves = self.leaves;
        if self.levels > 0 && leaves & 1 == 1 {
            all = op.combine(self.low[0], all);
        }
        if self.levels > 1 && leaves & 2 == 2 {
            all = op.combine(self.low[1], all);
        }
        leaves = leaves >> self.levels << self.levels;
        while leaves > 0 {
            intrinsics::no_unroll();
            // SAFETY: that bit of `leaves` says that the subtree is there.
            all = unsafe {
                op.combine(self.waiting.get_unchecked(leaves.trailing_zeros() as usize).assume_init(), all)
            };
            leaves &= leaves - 1;
        }
        all
    }
}

/// Calls `each` for 0, 1 … COUNT - 1. The compiler may keep a loop over a large body, and then moves the
/// arrays that it indexes to memory.
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
    const { assert!(COUNT <= 4 || COUNT == 8 || COUNT == 16) };
    if COUNT > 4 {
        each(4);
        each(5);
        each(6);
        each(7);
    }
    if COUNT > 8 {
        each(8);
        each(9);
        each(10);
        each(11);
        each(12);
        each(13);
        each(14);
        each(15);
    }
}
