//! Thread and block indices, block-wide barriers, and memory fences.

use crate::on_device;
#[cfg(target_arch = "nvptx64")]
use core::arch::{asm, nvptx};

macro_rules! index_functions {
    ($($(#[$doc:meta])* $name:ident = $intrinsic:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: reads a special register.
            on_device!(unsafe { nvptx::$intrinsic() })
        }
    )*};
}

index_functions! {
    /// The thread's index in its block, along x.
    thread_idx_x = _thread_idx_x;
    /// The thread's index in its block, along y.
    thread_idx_y = _thread_idx_y;
    /// The thread's index in its block, along z.
    thread_idx_z = _thread_idx_z;
    /// The block's index in the grid, along x.
    block_idx_x = _block_idx_x;
    /// The block's index in the grid, along y.
    block_idx_y = _block_idx_y;
    /// The block's index in the grid, along z.
    block_idx_z = _block_idx_z;
    /// The number of threads in a block, along x.
    block_dim_x = _block_dim_x;
    /// The number of threads in a block, along y.
    block_dim_y = _block_dim_y;
    /// The number of threads in a block, along z.
    block_dim_z = _block_dim_z;
    /// The number of blocks in the grid, along x.
    grid_dim_x = _grid_dim_x;
    /// The number of blocks in the grid, along y.
    grid_dim_y = _grid_dim_y;
    /// The number of blocks in the grid, along z.
    grid_dim_z = _grid_dim_z;
}

/// The thread's index in a one-dimensional grid: `block_idx_x() * block_dim_x() + thread_idx_x()`.
#[inline(always)]
pub fn index_1d() -> u32 {
    block_idx_x() * block_dim_x() + thread_idx_x()
}

/// Waits until every thread of the block has reached the call (`bar.sync 0`).
///
/// Then each thread sees what the others wrote to shared and global memory before the call. Every thread of
/// the block that has not exited must reach the same call.
#[inline(always)]
pub fn sync_threads() {
    // SAFETY: a barrier accesses no memory; a thread that never arrives causes a hang, not undefined
    // behaviour.
    on_device!(unsafe { nvptx::_syncthreads() })
}

/// Orders this thread's earlier memory accesses before its later ones, as seen by its block
/// (`fence.acq_rel.cta`; CUDA's `__threadfence_block`).
#[inline(always)]
pub fn block_fence() {
    // SAFETY: a fence accesses no memory.
    on_device!(unsafe { asm!("fence.acq_rel.cta;", options(nostack)) })
}

/// As [`block_fence`], as seen by the device (`fence.acq_rel.gpu`; CUDA's `__threadfence`).
#[inline(always)]
pub fn device_fence() {
    // SAFETY: a fence accesses no memory.
    on_device!(unsafe { asm!("fence.acq_rel.gpu;", options(nostack)) })
}

/// As [`block_fence`], as seen by the whole system: the host and all devices (`fence.acq_rel.sys`; CUDA's
/// `__threadfence_system`).
#[inline(always)]
pub fn system_fence() {
    // SAFETY: a fence accesses no memory.
    on_device!(unsafe { asm!("fence.acq_rel.sys;", options(nostack)) })
}
