use super::{Cascaded, Kernel, LadderElement, LadderOp, Pass, cascaded};
use crate::tree::fold_block;
use cuda_std::thread;

/// Warp shuffles: lanes exchange their values through registers.
///
/// ```text
/// value = as `cascaded`
/// fold each warp by shuffles; its lane 0 writes the warp's partial result to shared memory
/// barrier
/// the first warp folds the partial results by shuffles
/// thread 0 stores the result
/// ```
///
/// - After the documents: `shfl` came with Kepler, the GPUs of 001's measurements; `shfl.sync` with Volta.
/// - Fixes: shared memory and barriers: one barrier a block, and none if the block is one warp.
/// - Wrong with it: the production kernel, [`reduce`](crate::reduce), loads 16 bytes at a time, has four
///   loads in flight a thread, and is one launch.
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
