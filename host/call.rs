//! A reduction whose types are left behind: what launches it is compiled once, with the library, and not for each operator and
//! element type in the programs that use them.

use crate::{Element, Kernels, Op};
use gpu_reduce_kernels::columns::{self, Columns};
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::op::width;
use gpu_reduce_kernels::reduce::{Kernel, RowKernel};
use gpu_reduce_kernels::runs;
use gpu_reduce_kernels::segments::{self, SegmentBounds as Segments, rows};
use gpu_reduce_kernels::slot;
use std::any::{TypeId, type_name};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a launch asks of an operator's and an input's type.
pub struct Types {
    pub kernel: TypeId,
    pub row_kernel: TypeId,
    pub segments_kernel: TypeId,
    pub rows_kernel: TypeId,
    pub columns_kernel: TypeId,
    /// The kernel's type in words, for errors.
    pub name: fn() -> &'static str,
    /// What the operator's crate has compiled.
    pub own: Kernels,
    pub width: usize,
    /// Leaves that a lane has in flight, in the kernel of segments.
    pub slots: usize,
    /// Bytes of an element, of the wider where there are two.
    pub bytes: usize,
    /// Words of an accumulator's slot.
    pub words: usize,
    /// Whether these are all that somebody puts into one.
    pub is_full: fn(&[AtomicU64]) -> bool,
    /// Whether the operator may know of the first item: it carries something.
    pub looks_at_first: bool,
}

impl Types {
    /// Those of operator `O` and input `P`: a constant.
    pub const fn of<O: Op<P::Item>, P: Input>() -> &'static Self {
        const {
            &Self {
                kernel: TypeId::of::<Kernel<O, P>>(),
                row_kernel: TypeId::of::<RowKernel<O, P>>(),
                segments_kernel: TypeId::of::<segments::Kernel<O, P>>(),
                rows_kernel: TypeId::of::<rows::Kernel<O, P>>(),
                columns_kernel: TypeId::of::<columns::Kernel<O, P>>(),
                name: type_name::<Kernel<O, P>>,
                own: O::KERNELS,
                width: width::<O, P::Item>(P::BYTES),
                slots: segments::slots::<O, P::Item>(width::<O, P::Item>(P::BYTES)),
                bytes: P::BYTES,
                words: slot::words::<O::Accumulator>(),
                is_full: |words| O::of_slot(|index| words[index].load(Ordering::Relaxed)).is_some(),
                looks_at_first: size_of::<O>() > 0,
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

/// Many reductions of one input: of each of some segments, or of each column.
pub struct ShapeCall<'a, S> {
    pub of: &'static Types,
    pub input: Parameters,
    pub shape: S,
    pub block: u32,
    pub op: *const c_void,
    /// The result of what has no value, and whether what has no items may have none.
    pub default: *const c_void,
    pub has_default: bool,
    pub results: *mut c_void,
    borrowed: PhantomData<&'a ()>,
}

pub type SegmentsCall<'a> = ShapeCall<'a, Segments>;
pub type ColumnsCall<'a> = ShapeCall<'a, Columns>;

impl<'a> ShapeCall<'a, ()> {
    /// Those by an operator, of what is yet to be said.
    pub fn new<O: Op<P::Item>, P: Input>(
        op: &'a O,
        (default, has_default): (&'a O::Output, bool),
        block: u32,
    ) -> Self {
        Self {
            of: Types::of::<O, P>(),
            input: Parameters::NONE,
            shape: (),
            block,
            op: (&raw const *op).cast(),
            default: (&raw const *default).cast(),
            has_default,
            results: null_mut(),
            borrowed: PhantomData,
        }
    }

    /// Those of an input, of which there are some, to places for the results. It is for what has the types of the
    /// operator.
    pub fn with<S, V>(self, input: &'a impl Input, shape: S, results: *mut V) -> ShapeCall<'a, S> {
        let mut parameters = Parameters::NONE;
        input.parameters(&mut parameters);
        self.with_parameters(parameters, shape, results.cast())
    }

    /// As [`with`](Self::with), of an input whose parameters are these.
    pub fn with_parameters<S>(self, input: Parameters, shape: S, results: *mut c_void) -> ShapeCall<'a, S> {
        let Self { of, block, op, default, has_default, borrowed, .. } = self;
        ShapeCall { of, input, shape, block, op, default, has_default, results, borrowed }
    }
}

/// The runs of some keys.
pub struct RunsCall {
    pub kernel: TypeId,
    /// Bytes of a key.
    pub size: usize,
    /// The kernel's arguments, but for what launches have in common.
    pub arguments: runs::Arguments<u8>,
}

impl RunsCall {
    /// Those of keys, of which there are some.
    pub fn new<K: Element>(arguments: runs::Arguments<K>) -> Self {
        let runs::Arguments { keys, len, heads, offsets, words, capacity, number, state, area } = arguments;
        let (keys, heads) = (keys.cast(), heads.cast());
        Self {
            kernel: TypeId::of::<runs::Kernel<K>>(),
            size: size_of::<K>(),
            arguments: runs::Arguments { keys, len, heads, offsets, words, capacity, number, state, area },
        }
    }
}
