use super::{Cascaded, Kernel, LadderElement, LadderOp, Pass, cascaded};
use crate::tree::fold_block;
use cuda_std::thread;

/// Warp shuffles: lanes hand their values to each other through registers.
///
/// ```text
/// value = as the cascaded kernel
/// fold each warp by shuffles; its lane 0 writes the warp's partial to shared memory
/// barrier
/// the first warp folds the partials by shuffles
/// thread 0 stores the result
/// ```
///
/// - After the documents: `shfl` came with Kepler, the GPUs of 001's measurements; `shfl.sync` with Volta.
/// - Fixes: shared memory and barriers: one barrier a block, and none where the block is one warp.
/// - Wrong with it: what the production kernel, [`reduce`](crate::reduce), does better: 16-byte loads, four in flight a thread,
///   and one launch.
#[derive(Clone, Copy, Debug)]
pub enum Shuffle {}

impl Kernel for Shuffle {
    const NAME: &'static str = "shuffle";

    fn blocks(len: u64, block: u32) -> u32 {
        Cascaded::blocks(len, block)
    }

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        // SAFETY: every thread of the block calls each function, and one stores.
        unsafe {
            let partial = fold_block::<O, T, BLOCK>(&O::default(), cascaded::load_many::<O, T, BLOCK>(pass));
            if thread::thread_idx_x() == 0 {
                pass.store(partial);
            }
        }
    }
}
