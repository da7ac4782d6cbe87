//! A reduction whose types are left behind: what launches it is compiled once, with the library, and not for each operator and
//! element type in the programs that use them.

use crate::{Kernels, Op};
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::op::width;
use gpu_reduce_kernels::reduce::{Kernel, RowKernel};
use gpu_reduce_kernels::slot;
use std::any::{TypeId, type_name};
use std::ffi::c_void;
use std::marker::PhantomData;

/// What a launch asks of an operator's and an input's type.
pub struct Types {
    pub kernel: TypeId,
    pub row_kernel: TypeId,
    /// The kernel's type in words, for errors.
    pub name: fn() -> &'static str,
    /// What the operator's crate has compiled.
    pub own: Kernels,
    pub width: usize,
    /// Words of an accumulator's slot.
    pub words: usize,
}

impl Types {
    /// Those of operator `O` and input `P`: a constant.
    pub const fn of<O: Op<P::Item>, P: Input>() -> &'static Self {
        const {
            &Self {
                kernel: TypeId::of::<Kernel<O, P>>(),
                row_kernel: TypeId::of::<RowKernel<O, P>>(),
                name: type_name::<Kernel<O, P>>,
                own: O::KERNELS,
                width: width::<O, P::Item>(P::BYTES),
                words: slot::words::<O::Accumulator>(),
            }
        }
    }
}

/// A reduction of some items.
pub struct Call<'a> {
    pub of: &'static Types,
    pub input: Parameters,
    /// The input's [`head`](Input::head).
    pub head: Option<u32>,
    pub len: u64,
    pub block: u32,
    pub op: *const c_void,
    borrowed: PhantomData<&'a ()>,
}

impl<'a> Call<'a> {
    /// A reduction of `len` items, of which there are some.
    ///
    /// # Safety
    ///
    /// `of` has the types of what lies at `op`, which stays as long as the call, and of the input.
    pub unsafe fn new(
        of: &'static Types,
        op: *const c_void,
        input: &'a impl Input,
        len: u64,
        block: u32,
    ) -> Self {
        let mut parameters = Parameters::NONE;
        input.parameters(&mut parameters);
        Self { of, input: parameters, head: input.head(), len, block, op, borrowed: PhantomData }
    }
}
