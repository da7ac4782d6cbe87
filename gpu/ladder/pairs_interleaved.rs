use super::{Kernel, LadderElement, LadderOp, Pass, first_element, fold, remainder};
use cuda_std::{shared_array, thread};

/// Two elements a thread in shared memory, neighbours first: 000's original loop.
///
/// ```text
/// partials[t], partials[t + the block's size] = elements t and t + the block's size
/// for stride in 1, 2, 4, … up to the block's size:
///     barrier
///     if t % stride == 0: partials[2 · t] += partials[2 · t + stride]
/// thread 0 stores partials[0]
/// ```
///
/// - From 000 (first loop).
/// - Compared with interleaved addressing with one element a thread: every thread works in the first step.
/// - Wrong with it: the same, divergence and `%`; and twice the shared memory.
/// - Not copied: 000 does not say that its array needs two elements a thread. Its other loops need two, and
///   one.
#[derive(Clone, Copy, Debug)]
pub enum PairsInterleaved {}

impl Kernel for PairsInterleaved {
    const NAME: &'static str = "pairs_interleaved";
    const LOADS: u64 = 2;

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let partials = shared_array![O::Accumulator; 2 * BLOCK as usize];
        let first = first_element::<Self>(threads);
        // SAFETY: a barrier begins each step, and in a step no two threads access the same element.
        unsafe {
            partials.write(thread, pass.load::<O>(first));
            partials.write(thread + threads, pass.load::<O>(first + u64::from(threads)));
            let mut stride = 1;
            while stride <= threads {
                thread::sync_threads();
                if remainder(thread, stride) == 0 {
                    fold::<O, T>(partials, 2 * thread, 2 * thread + stride);
                }
                stride *= 2;
            }
            if thread == 0 {
                pass.store(partials.read(0));
            }
        }
    }
}
