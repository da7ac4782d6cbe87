//! The kernels of gpu_reduce, and what host and device share, each once:
//!
//! - [`op`]: what an operator is, [`Op`], and the operators, a file each;
//! - [`element`]: the number types that they reduce, [`Element`], and in what they accumulate;
//! - [`math`]: functions of floats with the same bits everywhere, for operators;
//! - [`plan`]: how an input is cut into chunks, a function of its length, the types and BLOCK alone;
//! - [`input`]: how a block reads one array, or two together;
//! - `tree`: every tree on a device: in a thread, in a warp, in a block;
//! - `exchange`: how blocks hand over values ([`slot`]) and partial results;
//! - [`shape`]: the kernels, a shape a file: [`whole`](shape::whole) inputs, [`segments`], rows,
//!   [`columns`], [`runs`];
//! - [`mod@kernels`]: a kernel's identity, and the table of those that a crate has compiled;
//! - [`table`]: the library's own;
//! - `ladder` (with the feature of that name): the classic kernels, each in a file of its own.
//!
//! A new operator is a file in `op/` and a row of the table; a new type is a row of the table in [`element`].
#![no_std]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

#[doc(hidden)]
pub mod agent;
pub mod element;
mod exchange;
#[cfg(not(target_arch = "nvptx64"))]
pub mod host_simd;
pub mod input;
pub mod kernels;
#[cfg(feature = "ladder")]
pub mod ladder;
pub mod math;
pub mod op;
pub mod plan;
/// The PTX of the library's kernels, a static for each operator's.
#[cfg(all(feature = "ptx", target_os = "linux"))]
#[doc(hidden)]
pub mod ptx {
    pub mod kernels;
    #[cfg(feature = "ladder")]
    pub mod ladder;
}
pub mod shape;
pub mod table;
mod tree;

// The paths that the rest of the repository uses.
pub use exchange::slot;
pub use shape::whole as reduce;
pub use shape::{center, chunks, columns, deal, index, indices, keys, order, runs, segments, terms, words};
pub(crate) use tree as fold;
pub(crate) mod stage {
    pub(crate) use crate::shape::chunk;
}

#[doc(hidden)]
pub use cuda_std;
pub use element::Element;
pub use half::{bf16, f16};
#[cfg(not(target_arch = "nvptx64"))]
pub use host_simd as cpu;
pub use kernels::Kernels;
pub use op::Op;
pub use op::every::*;
pub use plan::Plan;
