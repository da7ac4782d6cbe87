//! Reductions of elements at an address to places at another one, in the order of a stream: what
//! `gpu_reduce.torch` calls. It describes tensors by numbers, which is faster than a capsule of DLPack.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Mutex, PoisonError};

use gpu_reduce::{
    Device, Element, Error, ExactSum, Item, LogSumExp, Mean, Op, Parameterless, Reduce, Stream, Sum, bf16,
    f16,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::error::of_library;
use crate::lanes::LARGE;

/// The number of a GPU, or -1 for the CPU, and the handle of a stream.
pub type On = (isize, usize);

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
    lanes.reduce_by(py, op, dtype, (device, stream), scratch)
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
    let rows = Indexed { x, index, len, sums, count };
    macro_rules! add {
        ($($dtype:literal $T:ident)*) => {
            match dtype {
                $($dtype => rows.add::<$T>(py, (device, stream), scratch),)*
                _ => return Err(PyTypeError::new_err(format!("index_add does not take {dtype}"))),
            }
        };
    }
    let added = add! {
        "f16" f16 "bf16" bf16 "f32" f32 "f64" f64 "u8" u8 "i8" i8 "i16" i16 "i32" i32 "i64" i64
    };
    added.map_err(of_library)
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
        reduced.map_err(of_library)
    }

    fn reduce<T: Item, O: Op<T, Output: Item> + Parameterless>(
        &self,
        py: Python,
        on: On,
        scratch: Option<Memory>,
    ) -> Result<Option<usize>, Error> {
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
                            Some(stream) => $reduction.run_into(stream, out).map(|()| 0),
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

struct Indexed {
    x: usize,
    index: usize,
    len: usize,
    sums: usize,
    count: usize,
}

impl Indexed {
    fn add<T: Element>(&self, py: Python, on: On, scratch: Option<Memory>) -> Result<Option<usize>, Error> {
        let &Self { x, index, len, sums, count } = self;
        // SAFETY: the caller has these elements, indices and sums. It frees them in the order of the stream.
        unsafe {
            let call = |device: &Device, stream: Option<&Stream>| {
                let items = device.view(with_exposed_provenance::<T>(x), len)?;
                let index = device.view(with_exposed_provenance::<i64>(index), len)?;
                let sums = device.view_mut(with_exposed_provenance_mut(sums), count)?;
                let items = items.by_index(index, count)?;
                match stream {
                    Some(stream) => items.add_into(stream, sums).map(|()| 0),
                    None => Ok(items.add_scratch_bytes()),
                }
            };
            enqueue(py, on, len * size_of::<T>(), scratch, &call)
        }
    }
}

/// What enqueues a call on a stream of a device. Without a stream it returns the bytes of scratch memory that
/// the call needs.
type Enqueued<'a> = dyn Fn(&Device, Option<&Stream>) -> Result<usize, Error> + Sync + 'a;

/// Enqueues a call on a stream; on the CPU, runs it, without Python's lock if its input is large.
///
/// # Safety
///
/// The stream is one of the device, and lives as long as the process. Nothing else uses `scratch`, except in
/// the order of the stream.
unsafe fn enqueue(
    py: Python,
    (device, stream): On,
    bytes: usize,
    scratch: Option<Memory>,
    call: &Enqueued,
) -> Result<Option<usize>, Error> {
    let Ok(index) = usize::try_from(device) else {
        let cpu = Device::cpu();
        let stream = cpu.stream()?;
        let run = || call(&cpu, Some(&stream)).map(|_| None);
        return if bytes >= LARGE { py.detach(run) } else { run() };
    };
    // SAFETY: as the caller vouches.
    let own = unsafe { stream_of(index, stream)? };
    let device = own.device();
    if !own.is_capturing()? {
        return call(&device, Some(own)).map(|_| None);
    }
    // The graph may run when the stream's own scratch memory is used by what is enqueued then.
    let Some((address, bytes)) = scratch else { return call(&device, None).map(Some) };
    // SAFETY: as the caller vouches.
    let lent = unsafe {
        let scratch =
            device.view_mut(with_exposed_provenance_mut::<u64>(address), bytes / size_of::<u64>())?;
        device.stream_from_raw(with_exposed_provenance_mut::<c_void>(stream))?.with_scratch(scratch)?
    };
    call(&device, Some(&lent)).map(|_| None)
}

/// Returns a stream of another library by its handle, with scratch memory that is kept for later calls.
///
/// # Safety
///
/// The stream is one of the device, and lives as long as the process, as PyTorch's do.
unsafe fn stream_of(index: usize, raw: usize) -> Result<&'static Stream<'static>, Error> {
    static STREAMS: Mutex<Option<HashMap<(usize, usize), &'static Stream<'static>>>> = Mutex::new(None);
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let streams = streams.get_or_insert_default();
    if let Some(stream) = streams.get(&(index, raw)) {
        return Ok(stream);
    }
    let device = Device::cuda(index)?;
    // SAFETY: as the caller vouches.
    let stream = unsafe { device.stream_from_raw(with_exposed_provenance_mut::<c_void>(raw))? };
    Ok(*streams.entry((index, raw)).or_insert(Box::leak(Box::new(stream))))
}
