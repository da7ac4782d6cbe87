//! The kernels of gpu_reduce, and what host and device share, each once:
//!
//! - [`op`]: the operators, [`Op`] and [`Sum`], [`Prod`], [`Min`], [`Max`];
//! - [`element`]: the types that reduce, [`Element`], and in what they accumulate;
//! - [`plan`]: how an input is cut into chunks, a function of its length, element type and BLOCK alone;
//! - [`reduce`]: the production kernel, and the order in which every backend folds;
//! - [`slot`]: how a block hands its partial result over;
//! - [`kernels`]: the table of kernels that are compiled, operator by type by BLOCK;
//! - `ladder` (with the feature of that name): the classic kernels, each in a file of its own.
//!
//! A new operator is an `impl Op` in [`op`] and its name in the table of [`kernels`]; a new type is one line of the table
//! in [`element`].
#![no_std]

pub mod element;
pub mod kernels;
#[cfg(feature = "ladder")]
pub mod ladder;
pub mod op;
pub mod plan;
pub mod reduce;
pub mod slot;

pub use element::Element;
pub use half::{bf16, f16};
pub use op::{Max, Min, Op, Prod, Sum};
pub use plan::Plan;
