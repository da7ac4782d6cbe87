//! Arrays on a GPU that have `__cuda_array_interface__` only.

use std::ptr::without_provenance;

use gpu_reduce::interop::CudaArray;
use gpu_reduce::{Device, Error};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Array, spare, spares};
use crate::error::of_library;
use crate::kind::Kind;

/// The array of an object with `__cuda_array_interface__`, version 2 or 3. Waits for the work that its stream
/// has so far.
pub fn import<'py>(object: &Bound<'py, PyAny>) -> PyResult<Array<'py>> {
    let described: Bound<PyDict> = object.getattr("__cuda_array_interface__")?.cast_into()?;
    let entry = |name: &str| Ok::<_, PyErr>(described.get_item(name)?.filter(|value| !value.is_none()));
    let needed = |name: &str| {
        entry(name)?.ok_or_else(|| PyValueError::new_err(format!("__cuda_array_interface__ has no {name:?}")))
    };
    let version: i64 = needed("version")?.extract()?;
    if !(2..=3).contains(&version) {
        let why = format!("version {version} of __cuda_array_interface__ is not read: only 2 and 3 are");
        return Err(PyTypeError::new_err(why));
    }
    if entry("mask")?.is_some() {
        return Err(PyTypeError::new_err("an array on a GPU is not reduced with a mask"));
    }
    let typestr: String = needed("typestr")?.extract()?;
    let kind = Kind::of_typestr(&typestr)
        .ok_or_else(|| PyTypeError::new_err(format!("arrays of {typestr:?} are not reduced")))?;
    let shape: Vec<usize> = needed("shape")?.extract()?;
    let strides = match entry("strides")? {
        None => compact(&shape, if kind.is_complex { 2 } else { 1 }),
        Some(strides) => strides_in_elements(&strides.extract::<Vec<_>>()?, kind, &shape)?,
    };
    let (address, _): (usize, bool) = needed("data")?.extract()?;
    let stream: Option<usize> = entry("stream")?.map(|stream| stream.extract()).transpose()?;
    if stream == Some(0) {
        let why = "stream 0 is ambiguous: 1 is the legacy default stream, 2 the one of the thread";
        return Err(PyValueError::new_err(why));
    }
    // An empty array may have any address.
    let device = match shape.contains(&0) {
        true => Device::cpu(),
        false => device_of(address, stream)?,
    };
    // SAFETY: as the object describes.
    Ok(unsafe { Array::on_device(object, device, kind, (shape, strides), without_provenance(address)) })
}

/// Strides that are given in bytes, in elements; of complex numbers in floats.
pub fn strides_in_elements(strides: &[isize], kind: Kind, shape: &[usize]) -> PyResult<Vec<isize>> {
    let size = kind.dtype.size() as isize;
    if strides.len() != shape.len() || strides.iter().any(|stride| stride % size != 0) {
        let why = format!("strides {strides:?} do not fit shape {shape:?} of {}", kind.name());
        return Err(PyValueError::new_err(why));
    }
    Ok(strides.iter().map(|stride| stride / size).collect())
}

/// The strides of a row-major array without gaps.
pub fn compact(shape: &[usize], of_element: isize) -> Vec<isize> {
    let mut next = of_element;
    let mut strides: Vec<_> = shape
        .iter()
        .rev()
        .map(|&length| {
            let stride = next;
            next *= length as isize;
            stride
        })
        .collect();
    strides.reverse();
    strides
}

/// The GPU that has an address, after it has done the work that a stream has so far.
fn device_of(address: usize, of_array: Option<usize>) -> PyResult<Device> {
    let byte =
        CudaArray { shape: &[1], typestr: "|u1", data: (address, true), strides: None, stream: of_array };
    for index in 0.. {
        let device = Device::cuda(index).map_err(of_library)?;
        let stream = match spare(index) {
            Some(stream) => stream,
            None => device.stream().map_err(of_library)?,
        };
        // SAFETY: the address is an array's, and its stream lives, as the object describes.
        match unsafe { byte.view::<u8>(&stream) } {
            Ok(_) => {
                stream.synchronize().map_err(of_library)?;
                spares().push((index, stream));
                return Ok(device);
            }
            Err(Error::DeviceMismatch { .. }) => spares().push((index, stream)),
            Err(error) => return Err(of_library(error)),
        }
    }
    Err(PyValueError::new_err("no GPU has the array's address"))
}
