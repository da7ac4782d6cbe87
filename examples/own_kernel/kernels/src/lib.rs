//! The kernels.
#![no_std]

use cuda_std::{kernel, shared_array, thread};

/// Threads per block.
pub const BLOCK: u32 = 256;

/// Computes the dot product of two arrays; each block writes the sum of its BLOCK products to its slot in
/// `partials`.
///
/// # Safety
///
/// The launch has BLOCK threads per block, `x` and `y` have `len` elements, and `partials` has one element
/// per block.
#[kernel]
pub unsafe fn dot(x: *const f32, y: *const f32, len: u64, partials: *mut f32) {
    let sums = shared_array![f32; BLOCK as usize];
    let thread = thread::thread_idx_x();
    let i = thread::index_1d() as usize;
    // SAFETY: indices are in bounds, as the caller vouches; a barrier separates each write from reads by
    // other threads.
    unsafe {
        sums.write(thread, if i < len as usize { *x.add(i) * *y.add(i) } else { 0.0 });
        thread::sync_threads();
        let mut stride = BLOCK / 2;
        while stride > 0 {
            if thread < stride {
                sums.write(thread, sums.read(thread) + sums.read(thread + stride));
            }
            thread::sync_threads();
            stride /= 2;
        }
        if thread == 0 {
            *partials.add(thread::block_idx_x() as usize) = sums.read(0);
        }
    }
}

/// Writes the value at each index into the thread's slot. Panics if an index is out of bounds.
///
/// # Safety
///
/// There are `len` values. `indices` and `gathered` have an element for each thread of the launch.
#[kernel]
pub unsafe fn gather(values: *const f32, len: u64, indices: *const u32, gathered: *mut f32) {
    let i = thread::index_1d() as usize;
    // SAFETY: as the caller vouches.
    unsafe {
        let values = core::slice::from_raw_parts(values, len as usize);
        *gathered.add(i) = values[*indices.add(i) as usize];
    }
}
