use super::unrolled_last_warp::fold_and_store;
use super::{Kernel, LadderElement, LadderOp, Pass, first_element};
use crate::plan;
use cuda_std::thread;

/// Cascaded: the grid is limited, and a thread adds up many elements before the block folds.
///
/// ```text
/// value = identity
/// for i in the thread's first element, and on by twice the threads of the grid, below the length:
///     value += element i + element i + BLOCK
/// as `unrolled`
/// ```
///
/// - From 001 (`reduce7`).
/// - Fixes: the work a thread: few blocks to start and to fold, for any length, and at most 2,048 partial
///   results for the next launch.
/// - Wrong with it: a load fetches 4 or 8 bytes, when it could fetch 16; the fold goes through shared memory,
///   with barriers.
/// - Not copied: 001 reads the second element of each pair without a bound.
#[derive(Clone, Copy, Debug)]
pub enum Cascaded {}

impl Kernel for Cascaded {
    const NAME: &'static str = "cascaded";
    const LOADS: u64 = 2;

    /// Limited like the production kernel's chunks, so that the result's bits do not depend on the device.
    fn blocks(len: u64, block: u32) -> u32 {
        len.div_ceil(Self::LOADS * u64::from(block)).min(plan::max_chunks(block)) as u32
    }

    #[inline(always)]
    unsafe fn run<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(pass: Pass<T, O::Accumulator>) {
        // SAFETY: every thread of the block calls it.
        unsafe { fold_and_store::<O, T, BLOCK>(pass, load_many::<O, T, BLOCK>(pass), BLOCK) }
    }
}

/// Combines the thread's elements of the whole input.
///
/// # Safety
///
/// The input is valid as [`Pass`] says.
#[inline(always)]
pub(super) unsafe fn load_many<O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
    pass: Pass<T, O::Accumulator>,
) -> O::Accumulator {
    let grid = Cascaded::LOADS * u64::from(BLOCK) * u64::from(thread::grid_dim_x());
    let mut value = O::default().identity();
    let mut index = first_element::<Cascaded>(BLOCK);
    while index < pass.len {
        // SAFETY: as the caller promises.
        value = O::default().combine(value, unsafe { pass.load_two::<O>(index, BLOCK) });
        index += grid;
    }
    value
}
