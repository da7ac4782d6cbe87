use super::{Kernel, LadderElement, LadderOp, Pass, first_element, fold};
use cuda_std::shared::Shared;
use cuda_std::{shared_array, thread, warp};

/// The last warp unrolled: when 64 partial results are left, one warp folds them alone, with no loop and no
/// block barrier.
///
/// ```text
/// partials[t] = element t of the block + element t + the block's size
/// barrier
/// for stride in half of the block's size, a quarter, … 64:
///     if t < stride: partials[t] += partials[t + stride]
///     barrier
/// if t < 32:
///     for stride in 32 (if the block has two warps), 16, 8, 4, 2, 1:
///         read both, warp barrier, write the sum, warp barrier
/// thread 0 stores partials[0]
/// ```
///
/// - From 001 (`reduce5`) and 002 (reduction 4).
/// - Fixes: barriers of all warps, and idle warps, in the last six steps.
/// - Wrong with it: the steps before are still a loop.
/// - Not copied: 001's first `warpReduce` is not volatile, and no version has a warp barrier. Since Volta the
///   lanes of a warp need not run in lockstep, so that one may read an element before or after another has
///   written it. Lane t also reads element t + 32, past a block of 32, and elements past the warp; here
///   indices below 32 wrap around in the warp.
#[derive(Clone, Copy, Debug)]
pub enum UnrolledLastWarp {}

impl Kernel for UnrolledLastWarp {
    const NAME: &'static str = "unrolled_last_warp";
    const LOADS: u64 = 2;

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        let threads = thread::block_dim_x();
        // SAFETY: every thread of the block calls it.
        unsafe {
            let value = pass.load_two::<O>(first_element::<Self>(threads), threads);
            fold_and_store::<O, T, BLOCK>(pass, value, threads);
        }
    }
}

/// Folds a value from each of the block's `threads` threads, and stores the result.
///
/// # Safety
///
/// Every thread of the block calls it; `threads` is BLOCK.
#[inline(always)]
pub(super) unsafe fn fold_and_store<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
    pass: Pass<T, O::Accumulator>,
    value: O::Accumulator,
    threads: u32,
) {
    let thread = thread::thread_idx_x();
    let partials = shared_array![O::Accumulator; BLOCK as usize];
    // SAFETY: a barrier ends each step, and in a step no two threads access the same element; the first warp
    // is whole.
    unsafe {
        partials.write(thread, value);
        thread::sync_threads();
        let mut stride = threads / 2;
        while stride > warp::WARP_SIZE {
            if thread < stride {
                fold::<O, T>(partials, thread, thread + stride);
            }
            thread::sync_threads();
            stride /= 2;
        }
        if thread < warp::WARP_SIZE {
            fold_last_warp::<O, T, BLOCK>(partials, thread);
        }
        if thread == 0 {
            pass.store(partials.read(0));
        }
    }
}

/// Folds the first 64 elements, or the 32 of a block of one warp, into element 0.
///
/// # Safety
///
/// All lanes of the first warp call it; the elements are written, and no other warp accesses them.
#[inline(always)]
unsafe fn fold_last_warp<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
    partials: Shared<O::Accumulator>,
    lane: u32,
) {
    let step = |from: u32| {
        // SAFETY: in bounds; warp barriers stand between the reads and the writes of the lanes.
        unsafe {
            let sum = O::default().combine(partials.read_volatile(lane), partials.read_volatile(from));
            warp::sync_warp(warp::ALL);
            partials.write_volatile(lane, sum);
            warp::sync_warp(warp::ALL);
        }
    };
    if BLOCK > warp::WARP_SIZE {
        step(lane + warp::WARP_SIZE);
    }
    for stride in [16, 8, 4, 2, 1] {
        step((lane + stride) % warp::WARP_SIZE);
    }
}
