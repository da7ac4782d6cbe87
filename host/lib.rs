//! Reductions of large arrays on NVIDIA GPUs, and on CPUs with the same bits.
//!
//! Every kernel is written in Rust and compiled to PTX that ships with the crate; nothing but the GPU's driver is needed
//! to run it, and without a GPU the same calls run on the CPU's threads.
//!
//! ```
//! // Host data, in one line.
//! let samples = vec![0.25f32; 1 << 20];
//! assert_eq!(gpu_reduce::sum(&samples)?, 262144.0);
//!
//! // Data on a device, with the operator and the threads a block chosen.
//! use gpu_reduce::{Device, Max, Reduce, Sum};
//! let device = Device::default_device();
//! let x = device.upload(&samples)?;
//! assert_eq!(x.reduce::<Sum, 256>()?, 262144.0);
//! assert_eq!(x.slice(1..100)?.reduce::<Max, 1024>()?, 0.25);
//! # Ok::<(), gpu_reduce::Error>(())
//! ```
//!
//! - [`Device`] is where reductions run, [`Buffer`] is data on it, [`View`] a range of a buffer.
//! - [`Reduce`] is the typed call, `reduce::<Op, BLOCK>()`; [`sum`], [`min`], [`mean()`] and the other functions are one-line forms;
//!   `Reduce::enqueue` leaves the result on the device, in order with other work on a [`Stream`], such as copies from and to a [`PinnedBuffer`].
//! - [`Sum`], [`Min`], [`Mean`] and so on are the operators, over every [`Element`] type. A program's own is an `impl` of
//!   [`Op`].
//! - [`Reducer`] takes elements piece by piece; [`Partial`] is a part of a reduction that is made elsewhere, as bytes.
//!
//! The result's bits depend on the elements, their number, the operator and BLOCK alone: [`Plan`] says how.
//!
//! # After `fork`
//!
//! A child of `fork` (Python's `multiprocessing` with its start method `fork`, a server that forks) has none
//! of its parent's threads, and cannot use what its parent has of a GPU's driver. On Linux and Apple's
//! systems:
//!
//! - On the CPU a child reduces on a thread pool of its own, with the same bits, whatever its parent's
//!   threads were doing. It is made when the child first reduces on several threads, with as many as rayon's
//!   global pool has by default (`RAYON_NUM_THREADS`). A pool that the program makes in the child is used as
//!   in any process, by `ThreadPool::install`. What the program itself gives to a pool that was made before
//!   the fork, or to rayon's global pool, hangs; the library gives them nothing in a child.
//!   (Rust's standard library holds a lock for a moment when a thread starts or ends. A child of a Rust program
//!   that is forked just then hangs when it starts threads itself: it was one fork in 12,000 beside three
//!   threads that did nothing but start others.)
//! - On a GPU, and on the emulator, each call that needs the device is [`Error::Forked`] at once if the
//!   library had started the driver before the fork. Such a child drops buffers and streams without effect:
//!   they are the parent's. It does not use the elements of a [`PinnedBuffer`], which the driver may keep
//!   from it. [`Device::default_device`] is the CPU there. If the parent had opened no device, the child may
//!   open one.
//!
//! # Without a CUDA toolkit
//!
//! GPU support drives the GPU through the crate `cust`, whose build looks for a CUDA toolkit and panics where there is none, with "Could not find a cuda installation".
//! Nothing of a toolkit is needed: any folder with a `lib64` in it will do, named in the `.cargo/config.toml` of the program.
//!
//! ```toml
//! [env]
//! CUDA_LIBRARY_PATH = "/usr"
//! ```
//!
//! # Features
//!
//! - `cuda` (on by default): GPU support, on Linux on x86-64 and aarch64. Elsewhere, and without it, the same API runs on
//!   the CPU, and [`Device::cuda`] says why there is no GPU.
//! - `emulator`: [`Device::emulator`], a GPU in software that checks kernels as it runs them, and the module `emulator`
//!   with its counters, settings and faults.
//! - `arrow`: `ReduceArray`, which reduces arrays of the crate `arrow-array`, nulls left out and counted.
//! - `ndarray`: `ReduceAxis`, and `sum_axis`, `mean_axis` and so on, which reduce arrays and views of the crate `ndarray` over an axis,
//!   of any strides, where they lie.
//! - `dlpack`: tensors of other libraries by DLPack 1, with the crate `dlpark`: `View::from_dlpack` and `ViewMut::from_dlpack` borrow
//!   them where they lie, and `Buffer::into_dlpack` gives one away. ([`CudaArray`], by `__cuda_array_interface__`, needs no feature.)
//! - `serde`: a [`Partial`] is serialised, as its bytes.
//! - `mpi`: `ReduceRanks`, which reduces what is spread over the ranks of a communicator of the crate `mpi`. It needs an MPI, and libclang.
//! - `ladder`: the classic kernels beside the production one, for study: `Buffer::reduce_with`, `Buffer::time_with` and
//!   `merge_sorted`.

#[cfg(feature = "arrow")]
mod arrow;
#[cfg(feature = "ndarray")]
mod axes;
mod buffer;
mod call;
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
#[cfg(feature = "ladder")]
mod ladder;
#[cfg(feature = "ladder")]
mod merge;
#[cfg(target_endian = "little")]
mod partial;
mod parts;
mod pending;
mod pinned;
mod place;
#[cfg(all(feature = "mpi", target_endian = "little"))]
mod ranks;
mod reduce;
mod reducer;
mod runs;
mod segments;
mod shaped;
mod sharded;
mod shares;
mod stream;
mod threads;
mod tuples;

#[cfg(all(gpu, feature = "emulator"))]
#[doc(no_inline)]
pub use emulator;

#[cfg(feature = "arrow")]
pub use arrow::{Nullable, ReduceArray};
#[cfg(feature = "ndarray")]
pub use axes::*;
pub use buffer::{Buffer, Item, View, ViewMut};
pub use cuda_array::CudaArray;
pub use data::Data;
pub use device::Device;
pub use error::Error;
pub use foreign::ArrayItem;
pub use gpu_reduce_kernels::op::every::*;
pub use gpu_reduce_kernels::{
    Element, Kernels, Op, Plan, bf16, f16, for_each_alias, for_each_block, for_each_comparison,
    for_each_element, for_each_integer, for_each_integer_operator, for_each_operator, for_each_pair_operator,
};
pub use gpu_reduce_kernels::{
    op::Both, op::default_block, op::exact::ExactElement, op::exact::ExactFactor, op::width, plan::BLOCKS,
    plan::max_chunks,
};
#[cfg(target_endian = "little")]
pub use partial::Partial;
pub use pending::Pending;
pub use pinned::PinnedBuffer;
#[cfg(all(feature = "mpi", target_endian = "little"))]
pub use ranks::ReduceRanks;
pub use reduce::*;
pub use reducer::Reducer;
pub use runs::{Runs, reduce_by_key};
pub use segments::{Offsets, Segments};
pub use shaped::{Axes, Shaped};
pub use sharded::{Devices, Sharded, Shards};
pub use stream::Stream;
pub use tuples::Operators;
#[cfg(feature = "ladder")]
pub use {
    gpu_reduce_kernels::for_each_rung,
    gpu_reduce_kernels::ladder::{LadderElement, LadderOp},
    ladder::{Variant, variant},
    merge::{Merged, merge_sorted},
};

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
