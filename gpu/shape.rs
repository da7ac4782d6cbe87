//! The shapes of reductions, a kernel each, and the arguments that the kernels of many reductions share.
//!
//! - [`whole`]: one input, one result; `chunk` is what a block does with its part.
//! - [`segments`]: many short segments; [`spans`]: segments that blocks fold; [`larger`]: other segments.
//! - [`short_rows`]: short rows, several a warp; [`whole_rows`]: other rows that warps fold; [`lines`]: rows that blocks fold by
//!   four loads a thread; [`chunks`]: other rows that blocks fold, and segments of gigabytes.
//! - [`columns`]: the columns of an array.
//! - [`index`]: sums by index; [`deal`]: items dealt to buckets for it; [`order`]: items sorted by index.
//! - [`center`]: variances by index, from sums by index.
//! - [`words`]: extremes, places, bits, tests and counts by index.
//! - [`terms`]: the terms of sums by index of picked items and of products.
//! - [`indices`]: indices of elements of rows, and of bins.
//! - [`keys`]: keys of any value, which get numbers.
//! - [`runs`]: the runs of equal neighbouring keys; [`heads`]: where they begin, as bits.

pub(crate) mod beside;
pub mod center;
pub(crate) mod chunk;
pub mod chunks;
pub mod columns;
pub mod deal;
pub mod heads;
pub mod index;
pub mod indices;
pub mod keys;
pub mod larger;
pub mod lines;
pub mod order;
pub mod runs;
pub mod segments;
pub mod short_rows;
pub mod spans;
pub mod terms;
pub mod whole;
pub mod whole_rows;
pub mod words;

use crate::Op;
use crate::input::Input;
use crate::kernels::{self, Named, Operator, Parameters};
use core::ffi::c_void;

/// Where the items of many reductions lie.
pub trait Shape: Copy + 'static {
    /// How the kernel cuts the work up.
    type Cut: Copy;

    /// Adds both to a kernel's parameters.
    fn push(&self, cut: &Self::Cut, parameters: &mut Parameters) {
        parameters.push(self);
        parameters.push(cut);
    }
}

/// The arguments of a launch. The kernel's parameters are the fields in this order, the input's pointers one
/// by one. For an operator of size 0 they end before it.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<S: Shape, P, O, V> {
    /// The items, aligned to their type.
    pub input: P,
    /// Where the items of each reduction lie.
    pub shape: S,
    /// How the work is cut up.
    pub cut: S::Cut,
    /// An element for each result.
    pub results: *mut V,
    /// The result of a reduction that has no value.
    pub default: V,
    /// The operator.
    pub op: O,
}

impl<S: Shape, P: Input, O: Op<P::Item>, V: Copy> kernels::Arguments for Arguments<S, P, O, V> {
    fn parameters(&self, parameters: &mut Parameters) {
        let Self { input, shape, cut, results, default, op } = self;
        input.parameters(parameters);
        let default = (&raw const *default).cast();
        push_rest(parameters, (shape, cut, &results.cast()), default, Operator::of(op));
    }
}

/// Adds the parameters that follow the input's pointers, as [`whole::push_rest`] does.
pub fn push_rest<S: Shape>(
    parameters: &mut Parameters,
    (shape, cut, results): (&S, &S::Cut, &*mut c_void),
    default: *const c_void,
    op: Operator,
) {
    shape.push(cut, parameters);
    parameters.push(results);
    parameters.push_address(default);
    parameters.push_operator(op);
}

/// A kernel of shape `S` as a type.
pub type Kernel<S, K, O, P> = Named<K, Arguments<S, P, O, <O as Op<<P as Input>::Item>>::Output>>;
