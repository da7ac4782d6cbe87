use super::{Kernel, LadderElement, LadderOp, Pass, first_element, fold};
use cuda_std::{shared_array, thread};

/// Sequential addressing: the block's second half folds onto its first, then the same again with what is
/// left.
///
/// ```text
/// partials[t] = element t of the block
/// barrier
/// for stride in half of the block's size, a quarter, … 1:
///     if t < stride: partials[t] += partials[t + stride]
///     barrier
/// thread 0 stores partials[0]
/// ```
///
/// - From 001 (`reduce3`) and 002 (reduction 2).
/// - Fixes: bank conflicts: the lanes of a warp read neighbouring elements.
/// - Wrong with it: half of the threads do nothing but load, so that a block has twice the threads that it
///   needs.
#[derive(Clone, Copy, Debug)]
pub enum Sequential {}

impl Kernel for Sequential {
    const NAME: &'static str = "sequential";

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let partials = shared_array![O::Accumulator; BLOCK as usize];
        // SAFETY: a barrier ends each step, and in a step no two threads access the same element.
        unsafe {
            partials.write(thread, pass.load::<O>(first_element::<Self>(threads)));
            thread::sync_threads();
            let mut stride = threads / 2;
            while stride > 0 {
                if thread < stride {
                    fold::<O, T>(partials, thread, thread + stride);
                }
                thread::sync_threads();
                stride /= 2;
            }
            if thread == 0 {
                pass.store(partials.read(0));
            }
        }
    }
}
