//! Reductions of elements at an address to places at another one, in the order of a stream. `gpu_reduce.torch`
//! describes tensors by numbers, which is faster than a capsule of DLPack.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Deref;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Mutex, PoisonError};

use gpu_reduce::{
    Device, Element, Error, ExactSum, Item, LogSumExp, Mean, Op, Parameterless, Reduce, Stream, Sum, bf16,
    f16,
};
use gpu_reduce_dynamic::Error as Failure;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::error::exception;
use crate::lanes::LARGE;

/// Where a call runs.
#[derive(Clone, Copy)]
pub struct On {
    /// The number of a GPU, or -1 for the CPU.
    pub device: isize,
    /// The handle of a stream.
    pub stream: usize,
    /// Whether the stream lives as long as the process, as PyTorch's do.
    pub is_kept: bool,
}

impl On {
    /// A stream of PyTorch.
    pub fn torch(device: isize, stream: usize) -> Self {
        Self { device, stream, is_kept: true }
    }
}

/// Address and bytes of memory.
pub type Memory = (usize, usize);

/// Reduces a row-major array of three axes over the second one. `x` is the array's address, and `out` the
/// address of the results.
///
/// If the stream is being captured in a CUDA graph, the call needs scratch memory of the caller. Without it,
/// nothing is done, and the bytes that are needed are returned.
#[pyfunction]
#[pyo3(signature = (op, dtype, device, stream, x, outer, len, inner, out, scratch=None))]
#[allow(clippy::too_many_arguments, reason = "making a tuple of them would take longer")]
pub fn reduce_into(
    py: Python,
    op: &str,
    dtype: &str,
    device: isize,
    stream: usize,
    x: usize,
    outer: usize,
    len: usize,
    inner: usize,
    out: usize,
    scratch: Option<Memory>,
) -> PyResult<Option<usize>> {
    let lanes = Lanes { x, shape: [outer, len, inner], out };
    lanes.reduce_by(py, op, dtype, On::torch(device, stream), scratch)
}

/// Adds each of `len` elements at the address `x` to the one of `count` sums that its index, an integer of 64
/// bits, names. Sums have the type of sums of such elements. For `scratch` see [`reduce_into`].
#[pyfunction]
#[pyo3(signature = (dtype, device, stream, x, index, len, sums, count, scratch=None))]
#[allow(clippy::too_many_arguments, reason = "as above")]
pub fn index_add_into(
    py: Python,
    dtype: &str,
    device: isize,
    stream: usize,
    x: usize,
    index: usize,
    len: usize,
    sums: usize,
    count: usize,
    scratch: Option<Memory>,
) -> PyResult<Option<usize>> {
    Indexed { x, index, len, sums, count }.add_to(py, dtype, On::torch(device, stream), scratch)
}

/// The address of a row-major array of three axes, of which the second one is reduced, and the address of the
/// results.
pub struct Lanes {
    pub x: usize,
    pub shape: [usize; 3],
    pub out: usize,
}

impl Lanes {
    /// Reduces by the operator and elements of the type with these names. For `scratch` see [`reduce_into`].
    pub fn reduce_by(
        &self,
        py: Python,
        op: &str,
        dtype: &str,
        on: On,
        scratch: Option<Memory>,
    ) -> PyResult<Option<usize>> {
        macro_rules! reduce {
            ($($dtype:literal $T:ident [$($op:literal $Op:ident)*])*) => {
                match (op, dtype) {
                    $($(($op, $dtype) => self.reduce::<$T, $Op>(py, on, scratch),)*)*
                    _ => return Err(PyTypeError::new_err(format!("{op} does not take {dtype}"))),
                }
            };
        }
        let reduced = reduce! {
            "f16" f16 ["sum" Sum "mean" Mean "logsumexp" LogSumExp "exact_sum" ExactSum]
            "bf16" bf16 ["sum" Sum "mean" Mean "logsumexp" LogSumExp "exact_sum" ExactSum]
            "f32" f32 ["sum" Sum "mean" Mean "logsumexp" LogSumExp "exact_sum" ExactSum]
            "f64" f64 ["sum" Sum "mean" Mean "logsumexp" LogSumExp "exact_sum" ExactSum]
            "u8" u8 ["sum" Sum]
            "i8" i8 ["sum" Sum]
            "i16" i16 ["sum" Sum]
            "i32" i32 ["sum" Sum]
            "i64" i64 ["sum" Sum]
        };
        reduced.map_err(exception)
    }

    fn reduce<T: Item, O: Op<T, Output: Item> + Parameterless>(
        &self,
        py: Python,
        on: On,
        scratch: Option<Memory>,
    ) -> Result<Option<usize>, Failure> {
        let [outer, len, inner] = self.shape;
        let count = outer * inner;
        // SAFETY: the caller has these elements and places. It frees them in the order of the stream.
        unsafe {
            let call = |device: &Device, stream: Option<&Stream>| {
                let items = device.view(with_exposed_provenance::<T>(self.x), count * len)?;
                let out = device.view_mut(with_exposed_provenance_mut::<O::Output>(self.out), count)?;
                macro_rules! run {
                    ($reduction:expr) => {
                        match stream {
                            Some(stream) => Ok($reduction.run_into(stream, out).map(|()| 0)?),
                            None => Ok($reduction.scratch_bytes()),
                        }
                    };
                }
                if count == 1 {
                    return run!(items.by(O::default()).block::<256>());
                }
                run!(items.reshape(&self.shape)?.axis(1)?.by(O::default()).block::<256>())
            };
            enqueue(py, on, count * len * size_of::<T>(), scratch, &call)
        }
    }
}

/// The addresses of elements, of an index of each, an integer of 64 bits, and of sums.
pub struct Indexed {
    pub x: usize,
    pub index: usize,
    pub len: usize,
    pub sums: usize,
    pub count: usize,
}

impl Indexed {
    /// Adds elements of the type with this name to the sums. For `scratch` see [`reduce_into`].
    pub fn add_to(
        &self,
        py: Python,
        dtype: &str,
        on: On,
        scratch: Option<Memory>,
    ) -> PyResult<Option<usize>> {
        macro_rules! add {
            ($($dtype:literal $T:ident)*) => {
                match dtype {
                    $($dtype => self.add::<$T>(py, on, scratch),)*
                    _ => return Err(PyTypeError::new_err(format!("index_add does not take {dtype}"))),
                }
            };
        }
        let added = add! {
            "f16" f16 "bf16" bf16 "f32" f32 "f64" f64 "u8" u8 "u16" u16 "u32" u32 "u64" u64
            "i8" i8 "i16" i16 "i32" i32 "i64" i64
        };
        added.map_err(exception)
    }

    fn add<T: Element>(&self, py: Python, on: On, scratch: Option<Memory>) -> Result<Option<usize>, Failure> {
        let &Self { x, index, len, sums, count } = self;
        // SAFETY: the caller has these elements, indices and sums. It frees them in the order of the stream.
        unsafe {
            let call = |device: &Device, stream: Option<&Stream>| {
                let items = device.view(with_exposed_provenance::<T>(x), len)?;
                let index = device.view(with_exposed_provenance::<i64>(index), len)?;
                let sums = device.view_mut(with_exposed_provenance_mut(sums), count)?;
                let items = items.by_index(index, count)?;
                match stream {
                    Some(stream) => Ok(items.add_into(stream, sums).map(|()| 0)?),
                    None => Ok(items.add_scratch_bytes()),
                }
            };
            enqueue(py, on, len * size_of::<T>(), scratch, &call)
        }
    }
}

/// What enqueues a call on a stream of a device. Without a stream it returns the bytes of scratch memory that
/// the call needs.
pub type Enqueued<'a> = dyn Fn(&Device, Option<&Stream>) -> Result<usize, Failure> + Sync + 'a;

/// Enqueues a call on a stream; on the CPU, runs it, without Python's lock if its input is large.
///
/// If the stream is being captured in a CUDA graph, the call needs scratch memory. Without it, nothing is done, and
/// the bytes that are needed are returned.
///
/// # Safety
///
/// The stream is one of the device. Nothing else uses `scratch`, except in the order of the stream.
pub unsafe fn enqueue(
    py: Python,
    on: On,
    bytes: usize,
    scratch: Option<Memory>,
    call: &Enqueued,
) -> Result<Option<usize>, Failure> {
    let Ok(index) = usize::try_from(on.device) else {
        let cpu = Device::cpu();
        let stream = cpu.stream()?;
        let run = || call(&cpu, Some(&stream)).map(|_| None);
        return if bytes >= LARGE { py.detach(run) } else { run() };
    };
    // SAFETY: as the caller vouches.
    let own = unsafe { stream_of(index, on)? };
    let device = own.device();
    if !own.is_capturing()? {
        // Work that is enqueued before may wait for a function of Python.
        return py.detach(|| call(&device, Some(&own))).map(|_| None);
    }
    // The graph may run when the stream's own scratch memory is used by what is enqueued then.
    let Some((address, bytes)) = scratch else { return call(&device, None).map(Some) };
    // SAFETY: as the caller vouches.
    let lent = unsafe {
        let scratch =
            device.view_mut(with_exposed_provenance_mut::<u64>(address), bytes / size_of::<u64>())?;
        device.stream_from_raw(with_exposed_provenance_mut::<c_void>(on.stream))?.with_scratch(scratch)?
    };
    py.detach(|| call(&device, Some(&lent))).map(|_| None)
}

/// A stream of another library.
pub enum Foreign {
    /// One that lives as long as the process, with scratch memory that is kept for later calls.
    Kept(&'static Stream<'static>),
    Other(Stream<'static>),
}

impl Deref for Foreign {
    type Target = Stream<'static>;

    fn deref(&self) -> &Stream<'static> {
        match self {
            Self::Kept(stream) => stream,
            Self::Other(stream) => stream,
        }
    }
}

/// Returns a stream of another library by its handle.
///
/// # Safety
///
/// The stream is one of the device, and lives as long as the value.
pub unsafe fn stream_of(index: usize, on: On) -> Result<Foreign, Error> {
    static STREAMS: Mutex<Option<HashMap<(usize, usize), &'static Stream<'static>>>> = Mutex::new(None);
    let new = || {
        let device = Device::cuda(index)?;
        // SAFETY: as the caller vouches.
        unsafe { device.stream_from_raw(with_exposed_provenance_mut::<c_void>(on.stream)) }
    };
    if !on.is_kept {
        return new().map(Foreign::Other);
    }
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let streams = streams.get_or_insert_default();
    if let Some(stream) = streams.get(&(index, on.stream)) {
        return Ok(Foreign::Kept(stream));
    }
    let stream = Box::leak(Box::new(new()?));
    Ok(Foreign::Kept(streams.entry((index, on.stream)).or_insert(stream)))
}
