use super::{Kernel, LadderElement, LadderOp, PairsReversed, Pass, pairs_reversed};

/// One atomic a block: the block folds in shared memory, and adds its partial result to the one accumulator.
///
/// ```text
/// partial = as `pairs_reversed`
/// thread 0: result += partial, atomically
/// ```
///
/// - From 003 (reduction).
/// - Fixes: one atomic for 2 · BLOCK elements; one launch, when the other kernels need two or more.
/// - Wrong with it: the block's loop (see `pairs_reversed`), and the order of the additions, as with one
///   atomic an element.
#[derive(Clone, Copy, Debug)]
pub enum BlockAtomic {}

impl Kernel for BlockAtomic {
    const NAME: &'static str = "block_atomic";
    const LOADS: u64 = PairsReversed::LOADS;
    const ATOMIC: bool = true;

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        // SAFETY: every thread of the block calls it, and every access to the output is atomic.
        unsafe {
            if let Some(partial) = pairs_reversed::fold_block::<O, T, BLOCK>(pass) {
                O::combine_atomically(pass.output, partial);
            }
        }
    }
}
