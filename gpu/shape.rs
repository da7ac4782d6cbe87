//! What the kernels of many reductions at once, [`segments`](crate::segments) and [`columns`](crate::columns), are launched with.

pub(crate) mod chunk;
pub mod columns;
pub mod rows;
pub mod runs;
pub mod segments;
pub mod whole;

use crate::Op;
use crate::input::Input;
use crate::kernels::{self, Parameters};
use bytemuck::Pod;
use core::ffi::c_void;
use core::marker::PhantomData;

/// Where the items of many reductions lie.
pub trait Shape: Copy + 'static {
    /// How the kernel cuts them up.
    type Cut: Copy;
}

/// What a launch is given. The kernel's arguments are the fields in this order, the input's pointers one by one; those of an
/// operator without parameters end before it.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<S: Shape, P, O, V> {
    /// The items, aligned to their type.
    pub input: P,
    /// Where those of each reduction lie.
    pub shape: S,
    /// How they are cut up.
    pub cut: S::Cut,
    /// A place for each result.
    pub results: *mut V,
    /// The result of what has no value.
    pub default: V,
    /// The operator.
    pub op: O,
}

impl<S: Shape, P: Input, O: Copy, V: Copy> kernels::Arguments for Arguments<S, P, O, V> {
    fn parameters(&self, parameters: &mut Parameters) {
        let Self { input, shape, cut, results, default, op } = self;
        input.parameters(parameters);
        let (default, op) = ((&raw const *default).cast(), (&raw const *op).cast());
        push_rest(parameters, (shape, cut, &results.cast()), default, op);
    }
}

/// Adds the parameters that follow the input's, as [`whole::push_rest`].
pub fn push_rest<S: Shape>(
    parameters: &mut Parameters,
    (shape, cut, results): (&S, &S::Cut, &*mut c_void),
    default: *const c_void,
    op: *const c_void,
) {
    parameters.push(shape);
    parameters.push(cut);
    parameters.push(results);
    parameters.push_address(default);
    parameters.push_address(op);
}

/// The kernel as a type.
pub struct Kernel<S, O, P>(PhantomData<(S, O, P)>);

impl<S: Shape, O: Op<P::Item> + Pod, P: Input> kernels::Kernel for Kernel<S, O, P> {
    type Arguments = Arguments<S, P, O, O::Output>;
}
