//! Kernels for `tests/rust.rs`, which runs their PTX, `kernels.ptx`.
//!
//! `cargo test -p gpu_reduce_cuda_builder --test build` compiles this file, compares the PTX with
//! `kernels.ptx`, and says where the new PTX is if they differ.
#![no_std]

use cuda_std::{kernel, shared_array, thread, warp};

/// Threads per block.
pub const BLOCK: u32 = 256;

/// Reverses each BLOCK elements; threads past the end exit before the barrier.
///
/// # Safety
///
/// The launch has BLOCK threads per block, and `from` and `to` have `len` elements.
#[kernel]
pub unsafe fn reverse(from: *const u32, to: *mut u32, len: u64) {
    let values = shared_array![u32; BLOCK as usize];
    let i = thread::index_1d();
    if u64::from(i) >= len {
        return;
    }
    let first = thread::block_idx_x() * BLOCK;
    let count = (len as u32 - first).min(BLOCK);
    // SAFETY: in bounds, as the caller vouches; a barrier lies between each write and the reads by other
    // threads.
    unsafe {
        values.write(thread::thread_idx_x(), *from.add(i as usize));
        thread::sync_threads();
        *to.add(i as usize) = values.read(count - 1 - thread::thread_idx_x());
    }
}

/// Replaces each element with the sum of its 16 elements, one half-warp each. Odd half-warps take another
/// path.
///
/// # Safety
///
/// The launch has BLOCK threads per block, and `from` and `to` have one element per thread.
#[kernel]
pub unsafe fn half_sums(from: *const u32, to: *mut u32) {
    let values = shared_array![u32; BLOCK as usize];
    let thread = thread::thread_idx_x();
    let i = thread::index_1d() as usize;
    let half = warp::lane_id() / 16;
    let mask = 0xffff << (16 * half);
    // SAFETY: in bounds, as the caller vouches; all lanes of a mask reach the same warp instructions, and a
    // warp barrier lies between each write and the reads by other lanes.
    unsafe {
        let mut sum = *from.add(i);
        values.write(thread, sum);
        warp::sync_warp(mask);
        sum += values.read(thread ^ 8);
        if half == 0 {
            let mut lanes = 4;
            while lanes > 0 {
                sum += warp::warp_shuffle_xor(mask, sum, lanes, 32).0;
                lanes /= 2;
            }
        } else {
            warp::sync_warp(mask);
            values.write(thread, sum);
            warp::sync_warp(mask);
            let first = thread & !7;
            sum = 0;
            let mut other = 0;
            while other < 8 {
                sum += values.read(first + other);
                other += 1;
            }
        }
        *to.add(i) = sum;
    }
}
