//! Reductions of large arrays on NVIDIA GPUs, and on CPUs with the same bits.
//!
//! Every kernel is written in Rust and compiled to PTX that ships with the crate. Running it needs only the
//! GPU's driver. Without a GPU the same calls run on the CPU's threads.
//!
//! ```
//! // Host data, in one line.
//! let samples = vec![0.25f32; 1 << 20];
//! assert_eq!(gpu_reduce::sum(&samples)?, 262144.0);
//!
//! // Data on a device, with a chosen operator and number of threads per block.
//! use gpu_reduce::{Device, Max, Reduce, Sum};
//! let device = Device::default_device();
//! let x = device.upload(&samples)?;
//! assert_eq!(x.reduce::<Sum, 256>()?, 262144.0);
//! assert_eq!(x.slice(1..100)?.reduce::<Max, 1024>()?, 0.25);
//! # Ok::<(), gpu_reduce::Error>(())
//! ```
//!
//! # By task
//!
//! The same calls take data in host memory and on a device.
//!
//! ```
//! use gpu_reduce::{ArgMax, ExactSum, Max, Mean, Min, Reduce, Reducer, Sum, Var, check_op};
//!
//! let x = [1.0f32, 2.0, 3.0, 10.0, 0.5, 1.5];
//!
//! // Several operators in one pass; an operator with a parameter (the `ddof` of NumPy).
//! assert_eq!(x.by((Min, ArgMax, Mean)).run()?, (0.5, 3, 3.0));
//! assert_eq!(gpu_reduce::reduce(&[1.0f32, 2.0, 6.0], Var::new(1))?, 7.0);
//!
//! // Rows and columns of a matrix, an axis of an array with several, segments between offsets.
//! assert_eq!(x.rows(3)?.reduce::<Sum, 256>()?.to_vec()?, [6.0, 12.0]);
//! assert_eq!(x.columns(3)?.reduce::<Max, 256>()?.to_vec()?, [10.0, 2.0, 3.0]);
//! assert_eq!(x.reshape(&[3, 2, 1])?.axis(0)?.reduce::<Sum, 256>()?.to_vec()?, [4.5, 13.5]);
//! assert_eq!(x.segments(&[0u32, 1, 4, 6])?.reduce::<Sum, 256>()?.to_vec()?, [1.0, 15.0, 2.0]);
//!
//! // Keys in any order, as `GROUP BY`; runs of equal keys; indices of the results, as `scatter_add`.
//! let groups = x.group_by(&[7u8, 2, 7, 2, 7, 2])?;
//! assert_eq!(groups.keys().to_vec()?, [2, 7]);
//! assert_eq!(groups.reduce::<Sum, 256>()?.to_vec()?, [13.5, 4.5]);
//! assert_eq!(x.segments(&[7u8, 7, 2, 2, 2, 7].runs()?)?.reduce::<Max, 256>()?.to_vec()?, [2.0, 10.0, 1.5]);
//! assert_eq!(x.by_index(&[1u32, 0, 1, 0, 1, 0], 2)?.reduce::<Sum, 256>()?.to_vec()?, [13.5, 4.5]);
//!
//! // The correctly rounded sum, whatever the order; two arrays; data that come in pieces.
//! assert_eq!([1e30f32, 1.0, -1e30].reduce::<ExactSum, 256>()?, 1.0);
//! assert_eq!(gpu_reduce::dot(&x[..3], &[1.0, 0.5, 2.0])?, 8.0);
//! let mut pieces = Reducer::<Sum, f32, 256>::new(Sum);
//! pieces.push(&x[..4])?;
//! assert_eq!(pieces.finish()?, 16.0);
//!
//! // An operator of your own is an `impl` of `Op`; in its tests, `check_op` tries the laws.
//! check_op(&Sum, &x)?;
//! # Ok::<(), gpu_reduce::Error>(())
//! ```
//!
//! # The types
//!
//! - A [`Device`] runs reductions, a [`Buffer`] holds data on it, and a [`View`] borrows a range of a buffer.
//! - [`Reduce`] is the typed call, `reduce::<Op, BLOCK>()`. [`sum`], [`min`], [`mean()`] and so on are
//!   one-line forms. [`Reduce::by`] takes operators with parameters, and several at once.
//!   [`Reduce::reduce_async`] returns at once, and [`Reduce::reduce_into`] leaves the result on the device,
//!   in order with other work on a [`Stream`], such as copies from and to a [`PinnedBuffer`].
//! - [`Sum`], [`Min`], [`Mean`] and so on are operators over every [`Element`] type. An operator of your own
//!   is an `impl` of [`Op`].
//! - A [`Reducer`] takes elements piece by piece. A [`Partial`] is a partial result, which can be sent as
//!   bytes. [`PartialGroups`] are both for groups by key.
//!
//! The result's bits depend only on the elements, their number, the operator and BLOCK, as [`Plan`]
//! describes.
//!
//! # Platforms
//!
//! GPUs work on Linux on x86-64 and aarch64. Elsewhere the same API runs on the CPU. Tests run on Linux on
//! x86-64 only; for aarch64 Linux, Windows, macOS and wasm32, CI checks that the library compiles.
//!
//! Calls on the CPU use rayon's threads: those of the caller's pool within
//! [`ThreadPool::install`](rayon::ThreadPool::install), else of the global pool. Calls block their thread
//! until the result is there; in a program with tokio, call them by `spawn_blocking`, or await what
//! [`Reduce::reduce_async`] returns. A library that is loaded at run time (a plugin) can use GPUs; it finds
//! the driver when it opens a device.
//!
//! # After `fork`
//!
//! A child of `fork` (Python's `multiprocessing` with the start method `fork`, a server that forks) has none
//! of its parent's threads and cannot use its parent's GPU driver. On Linux and Apple's systems:
//!
//! - On the CPU a child reduces on a thread pool of its own, with the same bits. The pool is made when the
//!   child first reduces on several threads, and has the size of rayon's default pool (`RAYON_NUM_THREADS`).
//!   The program may also make a pool in the child and use it by `ThreadPool::install`. Work that the program
//!   itself gives to a pool made before the fork, or to rayon's global pool, hangs; the library gives them
//!   none in a child. (Rust's standard library holds a lock for a moment when a thread starts or ends. A
//!   child that is forked at that moment hangs when it starts threads. It happened in one fork of 12,000,
//!   beside three threads that only started others.)
//! - On a GPU and on the emulator, each call that needs the device returns [`Error::Forked`] at once if the
//!   library had started the driver before the fork. Dropping buffers and streams has no effect in such a
//!   child: they belong to the parent. Do not use the elements of a [`PinnedBuffer`] there: the driver may
//!   not share that memory. [`Device::default_device`] returns the CPU. If the parent had opened no device,
//!   the child may open one.
//!
//! # Without a CUDA toolkit
//!
//! GPU support uses the crate `cust`. Its build looks for a CUDA toolkit and panics with "Could not find a
//! cuda installation" if there is none. No file of a toolkit is needed: name any folder that contains `lib64`
//! in the program's `.cargo/config.toml`.
//!
//! ```toml
//! [env]
//! CUDA_LIBRARY_PATH = "/usr"
//! ```
//!
//! # Features
//!
//! - `cuda` (on by default): GPU support, on Linux on x86-64 and aarch64. On other platforms, and without the
//!   feature, the same API runs on the CPU, and [`Device::cuda`] returns an error that says why there is no
//!   GPU.
//! - `emulator`: [`Device::emulator`], a GPU in software that checks kernels as it runs them, and the module
//!   `emulator` with its counters, settings and faults.
//! - `arrow`: `interop::ReduceArray` reduces arrays of the crate `arrow-array`, and skips and counts nulls.
//! - `ndarray`: `interop::ReduceAxis`, `sum_axis`, `mean_axis` and so on reduce arrays and views of the crate
//!   `ndarray`, with any strides, over an axis.
//! - `dlpack`: DLPack 1 with the crate `dlpark`. `View::from_dlpack` and `ViewMut::from_dlpack` borrow
//!   tensors of other libraries, and `Buffer::into_dlpack` gives a buffer to them.
//!   ([`interop::CudaArray`] for `__cuda_array_interface__` needs no feature.)
//! - `serde`: serialises a [`Partial`] and [`PartialGroups`] as their bytes.
//! - `mpi`: `multi::ReduceRanks` reduces data spread over the ranks of a communicator of the crate `mpi`, and
//!   `multi::MergeRanks` merges groups by key. It needs an MPI library and libclang.
//! - `ladder`: the classic kernels beside the production one, for study: `Buffer::reduce_with`,
//!   `Buffer::time_with` and `study::merge_sorted`.

#[cfg(feature = "arrow")]
mod arrow;
#[cfg(feature = "ndarray")]
mod axes;
mod block;
mod buffer;
mod by_index;
mod check;
mod cpu;
#[cfg_attr(not(gpu), path = "cuda/absent.rs")]
mod cuda;
mod cuda_array;
mod data;
mod device;
#[cfg(feature = "dlpack")]
mod dlpack;
mod error;
mod foreign;
mod group_by;
mod histogram;
#[cfg(feature = "ladder")]
mod ladder;
#[cfg(feature = "ladder")]
mod merge;
mod operators;
mod pages;
#[cfg(target_endian = "little")]
mod partial;
#[cfg(target_endian = "little")]
mod partial_groups;
mod parts;
mod pending;
mod pinned;
mod place;
#[cfg(all(feature = "mpi", target_endian = "little"))]
mod ranks;
mod reduce;
mod reducer;
mod reduction;
mod request;
mod reshape;
mod runs;
mod segments;
mod sharded;
mod shares;
mod simd;
#[doc(hidden)] // for `gpu_reduce_dynamic`
pub mod steps;
mod stream;
mod threads;

#[cfg(all(gpu, feature = "emulator"))]
#[doc(no_inline)]
pub use emulator;

pub use block::{Block, Parameterless, Threads};
pub use buffer::{Buffer, Item, View, ViewMut};
pub use by_index::{bincount, bincount_weighted, row_indices, scatter_add};
pub use check::{check_op, check_pair_op};
pub use data::Data;
pub use device::Device;
pub use error::Error;
pub use gpu_reduce_kernels::op::every::*;
pub use gpu_reduce_kernels::{Element, Kernels, Op, Plan, bf16, f16, math, op::Both, op::width};
pub use histogram::{histogram, histogram_weighted};
#[cfg(target_endian = "little")]
pub use partial::Partial;
#[cfg(target_endian = "little")]
pub use partial_groups::{GroupKey, IndexKey, PartialGroups};
pub use pending::Pending;
pub use pinned::PinnedBuffer;
pub use reduce::*;
pub use reducer::Reducer;
pub use reduction::Reduction;
pub use runs::reduce_by_key;
pub use stream::Stream;

/// Segments, rows, columns, runs of keys and items by index: the types that [`Reduce`]'s methods for them
/// return.
pub mod shapes {
    pub use crate::by_index::{ByIndex, IndexReduction, Indices};
    pub use crate::group_by::{GroupBy, Groups, Keys};
    pub use crate::histogram::{Bins, Histogram};
    pub use crate::operators::{One, Operators, Several};
    pub use crate::reshape::{Axes, Reshaped};
    pub use crate::runs::Runs;
    pub use crate::segments::{Offsets, SegmentReduction, Segments};
}

/// Data on several GPUs, and on the ranks of an MPI communicator.
pub mod multi {
    #[cfg(all(feature = "mpi", target_endian = "little"))]
    pub use crate::ranks::{MergeRanks, ReduceRanks};
    pub use crate::sharded::{Devices, Sharded, Shards};
}

/// Arrays of other libraries: `__cuda_array_interface__`, and with their features Arrow and `ndarray`.
/// (DLPack tensors are taken by [`View::from_dlpack`](crate::View) and given by
/// [`Buffer::into_dlpack`](crate::Buffer).)
pub mod interop {
    #[cfg(feature = "arrow")]
    pub use crate::arrow::{Nullable, ReduceArray};
    #[cfg(feature = "ndarray")]
    pub use crate::axes::*;
    pub use crate::cuda_array::CudaArray;
    pub use crate::foreign::ArrayItem;
}

/// The classic kernels beside the production one, for study, and merging of sorted lists.
#[cfg(feature = "ladder")]
pub mod study {
    pub use crate::ladder::{Variant, variant};
    pub use crate::merge::{Merged, merge_sorted};
    pub use gpu_reduce_kernels::ladder::{LadderElement, LadderOp};
}

pub use gpu_reduce_kernels::op::exact::{ExactElement, ExactFactor};

// The paths that these items had before the modules above.
#[cfg(feature = "ladder")]
#[doc(hidden)]
pub use study::*;
#[doc(hidden)]
pub use {interop::*, multi::*, shapes::*};

// For the library's own crates, tests and benchmarks.
#[cfg(feature = "ladder")]
#[doc(hidden)]
pub use gpu_reduce_kernels::for_each_rung;
#[doc(hidden)]
pub use gpu_reduce_kernels::{
    for_each_alias, for_each_block, for_each_comparison, for_each_element, for_each_integer,
    for_each_integer_operator, for_each_operator, for_each_pair_operator, op::default_block, plan::BLOCKS,
    plan::max_chunks,
};

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
