//! Device functions for CUDA kernels in Rust, beyond what `core` has.
//!
//! Thread indices, barriers, warp shuffles and votes, shared memory, fences, atomics with memory orders and
//! scopes, 16-byte loads, and single instructions.
//!
//! Names and meanings are those of rust-cuda's `cuda_std`, so that kernels can move between the two. The
//! compiler is rustc with its own NVPTX backend (`--target nvptx64-nvidia-cuda`), which needs neither a CUDA
//! toolkit nor a patched compiler. `cuda_builder` compiles a kernel crate and enables the unstable features
//! that it needs.
//!
//! The crate also builds for other targets, so that host code can share a kernel crate. There, functions that
//! need a GPU panic.
//!
//! ```
//! # #![allow(unused)]
//! use cuda_std::{kernel, shared_array, thread};
//!
//! /// Reverses each block's 64 values.
//! #[kernel]
//! pub unsafe fn reverse(values: *mut u32) {
//!     let tile = shared_array![u32; 64];
//!     let i = thread::thread_idx_x();
//!     // SAFETY: the launch has 64 threads a block and a value for each thread.
//!     unsafe {
//!         let mine = values.add(thread::index_1d() as usize);
//!         tile.write(i, *mine);
//!         thread::sync_threads();
//!         *mine = tile.read(63 - i);
//!     }
//! }
//! ```
#![no_std]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]
#![cfg_attr(target_arch = "nvptx64", feature(link_llvm_intrinsics))]
#![cfg_attr(not(target_arch = "nvptx64"), allow(dead_code, unused_variables))]

#[cfg(target_arch = "nvptx64")]
use core::ffi::c_char;

pub mod atomic;
pub mod intrinsics;
pub mod mem;
pub mod shared;
pub mod thread;
pub mod warp;

pub use cuda_std_macros::kernel;

/// The body of a function that runs only on a GPU; on other targets it panics.
macro_rules! on_device {
    ($($body:tt)*) => {{
        #[cfg(target_arch = "nvptx64")]
        { $($body)* }
        #[cfg(not(target_arch = "nvptx64"))]
        unimplemented!("this function of cuda_std runs on a GPU only")
    }};
}
pub(crate) use on_device;

/// A panic in a kernel is a failed assertion: it prints the file and the line that panicked, and ends the launch with
/// `CUDA_ERROR_ASSERT`. (To format its message would take calls through registers, and a stack whose size no compiler
/// knows.)
#[cfg(target_arch = "nvptx64")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    unsafe extern "C" {
        /// (PTX Writer's Guide to Interoperability, "System Calls".)
        fn __assertfail(
            message: *const c_char,
            file: *const c_char,
            line: u32,
            function: *const c_char,
            char_bytes: usize,
        );
    }
    let (file, line) = info.location().map_or((c"", 0), |place| (place.file_as_c_str(), place.line()));
    // SAFETY: the texts are constants that end in a zero; `trap` has no precondition.
    unsafe {
        __assertfail(c"no panic".as_ptr(), file.as_ptr(), line, c"kernel".as_ptr(), 1);
        core::arch::nvptx::trap()
    }
}
