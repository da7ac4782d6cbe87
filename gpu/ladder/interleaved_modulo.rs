use super::{Kernel, LadderElement, LadderOp, Pass, first_element, fold, remainder};
use cuda_std::{shared_array, thread};

/// Interleaved addressing: neighbours fold first, and `%` picks the threads that work.
///
/// ```text
/// partials[t] = element t of the block
/// barrier
/// for stride in 1, 2, 4, … below the block's size:
///     if t % (2 · stride) == 0: partials[t] += partials[t + stride]
///     barrier
/// thread 0 stores partials[0]
/// ```
///
/// - From 001 (`reduce1`) and 002 (naive).
/// - Wrong with it: the threads that work are spread over all warps, so that every warp diverges, and issues
///   each step for one lane in two, then in four, then in eight; `%`; half of the threads do nothing but
///   load.
#[derive(Clone, Copy, Debug)]
pub enum InterleavedModulo {}

impl Kernel for InterleavedModulo {
    const NAME: &'static str = "interleaved_modulo";

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let partials = shared_array![O::Accumulator; BLOCK as usize];
        // SAFETY: a barrier ends each step, and in a step no two threads access the same element.
        unsafe {
            partials.write(thread, pass.load::<O>(first_element::<Self>(threads)));
            thread::sync_threads();
            let mut stride = 1;
            while stride < threads {
                if remainder(thread, 2 * stride) == 0 {
                    fold::<O, T>(partials, thread, thread + stride);
                }
                thread::sync_threads();
                stride *= 2;
            }
            if thread == 0 {
                pass.store(partials.read(0));
            }
        }
    }
}
