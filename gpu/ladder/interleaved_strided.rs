use super::{Kernel, LadderElement, LadderOp, Pass, first_element, fold};
use cuda_std::{shared_array, thread};

/// Interleaved addressing, with the same sums by the first threads of the block: thread t folds element 2 ·
/// stride · t.
///
/// ```text
/// partials[t] = element t of the block
/// barrier
/// for stride in 1, 2, 4, … below the block's size:
///     i = 2 · stride · t
///     if i < the block's size: partials[i] += partials[i + stride]
///     barrier
/// thread 0 stores partials[0]
/// ```
///
/// - From 001 (`reduce2`) and 002 (reduction 1).
/// - Fixes: `%`, and divergence: whole warps work or do not, until less than a warp works.
/// - Wrong with it: the lanes of a warp are 2 · stride elements apart, so that several of them access the
///   same bank of shared memory and wait for each other.
#[derive(Clone, Copy, Debug)]
pub enum InterleavedStrided {}

impl Kernel for InterleavedStrided {
    const NAME: &'static str = "interleaved_strided";

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
                let index = 2 * stride * thread;
                if index < threads {
                    fold::<O, T>(partials, index, index + stride);
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
