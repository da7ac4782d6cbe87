use super::{Kernel, LadderElement, LadderOp, Pass, first_element, fold};
use cuda_std::{shared_array, thread};

/// Two elements a thread in shared memory, the halves onto each other: 000's reversed loop.
///
/// ```text
/// partials[t], partials[t + the block's size] = elements t and t + the block's size
/// for stride in the block's size, half of it, … 1:
///     barrier
///     if t < stride: partials[t] += partials[t + stride]
/// thread 0 stores partials[0]
/// ```
///
/// - From 000 (second loop) and 003 (its loop).
/// - Fixes, over the original loop: divergence, `%`, bank conflicts.
/// - Wrong with it: one step more, and twice the shared memory, than first addition during the load, which
///   adds the two elements before they go to shared memory.
#[derive(Clone, Copy, Debug)]
pub enum PairsReversed {}

impl Kernel for PairsReversed {
    const NAME: &'static str = "pairs_reversed";
    const LOADS: u64 = 2;

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        // SAFETY: every thread of the block calls it, and one stores.
        unsafe {
            if let Some(partial) = fold_block::<O, T, BLOCK>(pass) {
                pass.store(partial);
            }
        }
    }
}

/// Folds the block's elements; thread 0 gets the result.
///
/// # Safety
///
/// Every thread of the block calls it; the input is as [`Pass`] says.
#[inline(always)]
pub(super) unsafe fn fold_block<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
    pass: Pass<T, O::Accumulator>,
) -> Option<O::Accumulator> {
    let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let partials = shared_array![O::Accumulator; 2 * BLOCK as usize];
    let first = first_element::<PairsReversed>(threads);
    // SAFETY: a barrier begins each step, and in a step no two threads access the same element.
    unsafe {
        partials.write(thread, pass.load::<O>(first));
        partials.write(thread + threads, pass.load::<O>(first + u64::from(threads)));
        let mut stride = threads;
        while stride > 0 {
            thread::sync_threads();
            if thread < stride {
                fold::<O, T>(partials, thread, thread + stride);
            }
            stride /= 2;
        }
        (thread == 0).then(|| partials.read(0))
    }
}
