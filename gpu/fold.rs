//! The tree, in one place: pairs of neighbours fold, then pairs of those, in a thread, in a warp, in a block.

use crate::Op;
use crate::plan::ANY_BLOCK;
use cuda_std::{shared_array, thread, warp};

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
