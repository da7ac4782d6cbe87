use super::unrolled_last_warp::fold_and_store;
use super::{Kernel, LadderElement, LadderOp, Pass, first_element};

/// Completely unrolled: the kernel of the unrolled last warp, with a block size that the compiler knows.
///
/// ```text
/// as `unrolled_last_warp`, with BLOCK in place of the block's size that is read at run time
/// ```
///
/// - From 001 (`reduce6`).
/// - Fixes: the loop. BLOCK is a const parameter, so that the compiler writes out the steps of each BLOCK.
/// - Wrong with it: a thread loads two elements and then waits, so that few loads are in flight; most of the
///   work is starting blocks and folding them.
/// - Not copied: 001 writes the steps by hand and begins with those of 512 threads, but runs 1,024: half of
///   the partial results would be lost. Here no step can be forgotten.
#[derive(Clone, Copy, Debug)]
pub enum Unrolled {}

impl Kernel for Unrolled {
    const NAME: &'static str = "unrolled";
    const LOADS: u64 = 2;

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        // SAFETY: every thread of the block calls it.
        unsafe {
            let value = pass.load_two::<O>(first_element::<Self>(BLOCK), BLOCK);
            fold_and_store::<O, T, BLOCK>(pass, value, BLOCK);
        }
    }
}
