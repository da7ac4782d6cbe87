use super::{Kernel, LadderElement, LadderOp, Pass, first_element, fold};
use cuda_std::{shared_array, thread};

/// First addition during the load: a thread loads two elements, one block's size apart, and adds them.
///
/// ```text
/// partials[t] = element t of the block + element t + the block's size
/// for stride in half of the block's size, a quarter, … 1:
///     barrier
///     if t < stride: partials[t] += partials[t + stride]
/// thread 0 stores partials[0]
/// ```
///
/// - From 000 (third loop), 001 (`reduce4`) and 002 (reduction 3).
/// - Fixes: threads that only load; there are half as many blocks. As in 000, the barrier stands before each
///   step, so there is one fewer: no barrier follows the last step, whose sum thread 0 stores itself.
/// - Wrong with it: in the last six steps one warp works, and all warps wait at the barriers; the loop
///   itself.
/// - Not copied: 001 and 002 read the second element without a bound.
#[derive(Clone, Copy, Debug)]
pub enum FirstAdd {}

impl Kernel for FirstAdd {
    const NAME: &'static str = "first_add";
    const LOADS: u64 = 2;

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let partials = shared_array![O::Accumulator; BLOCK as usize];
        // SAFETY: a barrier begins each step, and in a step no two threads access the same element.
        unsafe {
            partials.write(thread, pass.load_two::<O>(first_element::<Self>(threads), threads));
            let mut stride = threads / 2;
            while stride > 0 {
                thread::sync_threads();
                if thread < stride {
                    fold::<O, T>(partials, thread, thread + stride);
                }
                stride /= 2;
            }
            if thread == 0 {
                pass.store(partials.read(0));
            }
        }
    }
}
