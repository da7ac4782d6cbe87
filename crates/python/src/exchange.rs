//! DLPack's C exchange API, which PyTorch has from 2.10 on: functions of a library that describe its tensors,
//! name its current stream and make new tensors, without a capsule or another object of Python.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{PoisonError, RwLock};

use dlpark::ffi::{
    DLDataType, DLDevice, DLDeviceType, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPackExchangeAPI,
    DLTensor,
};
use dlpark::{Managed, TensorRef};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyType};

use crate::output::library_of;

/// A library's function that allocates a tensor like a prototype.
type Allocate = unsafe extern "C" fn(
    *mut DLTensor,
    *mut *mut DLManagedTensorVersioned,
    *mut c_void,
    Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char)>,
) -> c_int;

/// The functions for the tensors of one type.
pub struct Exchange {
    /// Keeps the type, which is found by its address.
    of: Py<PyType>,
    /// Whether the library is PyTorch.
    pub is_torch: bool,
    describe: unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> c_int,
    current_stream: unsafe extern "C" fn(DLDeviceType, i32, *mut *mut c_void) -> c_int,
    allocate: Allocate,
    to_object: unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut c_void) -> c_int,
}

/// The functions that were found. They are few: each of their types defines the attribute itself.
static FOUND: RwLock<Vec<&'static Exchange>> = RwLock::new(Vec::new());

impl Exchange {
    /// Returns the functions of an object's type if an earlier call of [`of`](Self::of) found them.
    pub fn found(object: &Bound<PyAny>) -> Option<&'static Exchange> {
        let of = object.get_type_ptr();
        let found = FOUND.read().unwrap_or_else(PoisonError::into_inner);
        found.iter().copied().find(|exchange| exchange.of.as_ptr() == of.cast())
    }

    /// Returns the functions of an object's type.
    ///
    /// A type that inherits them has none here: its objects may be tensors of another kind, as PyTorch's
    /// fake tensors are, or behave differently.
    pub fn of(object: &Bound<PyAny>) -> Option<&'static Exchange> {
        Self::found(object).or_else(|| Self::look_up(object).ok().flatten())
    }

    fn look_up(object: &Bound<PyAny>) -> PyResult<Option<&'static Exchange>> {
        let (py, of) = (object.py(), object.get_type());
        let capsule = of.getattr(intern!(py, "__dict__"))?.get_item("__dlpack_c_exchange_api__")?;
        let api = capsule.cast::<PyCapsule>()?.pointer_checked(Some(c"dlpack_exchange_api"))?;
        // SAFETY: a capsule of this name holds this struct, or at least its header, as long as the process.
        let version = unsafe { (*api.cast::<DLPackExchangeAPI>().as_ptr()).header.version };
        if version.major != DLPACK_MAJOR_VERSION {
            return Ok(None);
        }
        // SAFETY: the version has these fields.
        let api = unsafe { api.cast::<DLPackExchangeAPI>().as_ref() };
        let (Some(describe), Some(current_stream), Some(allocate), Some(to_object)) = (
            api.dltensor_from_py_object_no_sync,
            api.current_work_stream,
            api.managed_tensor_allocator,
            api.managed_tensor_to_py_object_no_sync,
        ) else {
            return Ok(None);
        };
        let is_torch = library_of(object)? == "torch";
        let of = of.unbind();
        let exchange = Exchange { of, is_torch, describe, current_stream, allocate, to_object };
        let mut found = FOUND.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been faster.
        if let Some(exchange) = found.iter().copied().find(|other| other.of.as_ptr() == exchange.of.as_ptr())
        {
            return Ok(Some(exchange));
        }
        let exchange: &'static Exchange = Box::leak(Box::new(exchange));
        found.push(exchange);
        Ok(Some(exchange))
    }

    /// Calls `read` with the description of a tensor of the type. Returns none if the library does not
    /// describe the tensor, as of one without memory.
    pub fn describe<R>(&self, tensor: &Bound<PyAny>, read: impl FnOnce(TensorRef) -> Option<R>) -> Option<R> {
        let mut described = DLTensor::default();
        // SAFETY: the tensor has the type whose function this is, and the description has room.
        let code = unsafe { (self.describe)(tensor.as_ptr().cast(), &mut described) };
        if code != 0 {
            drop(PyErr::take(tensor.py()));
            return None;
        }
        // SAFETY: the tensor keeps what the description points to, and nothing changes it meanwhile.
        unsafe { TensorRef::from_raw(&described) }.ok().and_then(read)
    }

    /// Returns the library's current stream on a GPU. It is null for the legacy default stream.
    pub fn current_stream(&self, py: Python, device: DLDevice) -> Option<*mut c_void> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the function writes a stream's handle.
        let code = unsafe { (self.current_stream)(device.device_type, device.device_id, &mut stream) };
        if code != 0 {
            drop(PyErr::take(py));
            return None;
        }
        Some(stream)
    }

    /// Allocates a row-major tensor, whose elements are undefined. Returns none if the library refuses.
    pub fn allocate(&self, py: Python, dtype: DLDataType, device: DLDevice, shape: &[usize]) -> Option<New> {
        let mut lengths: Vec<i64> = shape.iter().map(|&length| length as i64).collect();
        let mut prototype = DLTensor {
            dtype,
            device,
            ndim: lengths.len() as i32,
            shape: lengths.as_mut_ptr(),
            ..DLTensor::default()
        };
        let mut tensor = std::ptr::null_mut();
        // SAFETY: the prototype has what the function reads, and stays until it returns.
        let code =
            unsafe { (self.allocate)(&mut prototype, &mut tensor, std::ptr::null_mut(), Some(ignore)) };
        if code != 0 {
            drop(PyErr::take(py));
            return None;
        }
        // SAFETY: the function has made a tensor, which is the caller's.
        unsafe { Managed::from_raw(tensor) }.ok().map(New)
    }

    /// Makes an object of Python of a tensor that [`allocate`](Self::allocate) made.
    pub fn object<'py>(&self, py: Python<'py>, New(tensor): New) -> Option<Bound<'py, PyAny>> {
        let mut object = std::ptr::null_mut();
        // SAFETY: the function takes the tensor, also if it fails.
        let code = unsafe { (self.to_object)(tensor.into_raw(), &mut object) };
        if code != 0 {
            drop(PyErr::take(py));
            return None;
        }
        // SAFETY: the function has made an object, which is the caller's.
        unsafe { Bound::from_owned_ptr_or_opt(py, object.cast()) }
    }
}

/// A tensor that is no object of Python yet. Its library frees it if it is dropped.
pub struct New(Managed<DLManagedTensorVersioned>);

impl New {
    /// The address of its first element.
    pub fn first(&self) -> *mut u8 {
        // SAFETY: the tensor owns its description, which nobody changes.
        let tensor = unsafe { self.0.tensor() };
        tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize)
    }
}

/// Drops what a library tells of an allocation that failed: the caller takes another way, which reports errors.
unsafe extern "C" fn ignore(_: *mut c_void, _kind: *const c_char, _message: *const c_char) {}
