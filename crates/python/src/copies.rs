//! Copies of arrays, which a call makes with `copy=True` if it cannot reduce them where they lie.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::Array;
use crate::numpy::numpy;
use crate::output::library_of;

/// DLPack's types of devices whose arrays are reduced where they lie: CPUs and CUDA's GPUs.
const REACHED: [i32; 4] = [1, 2, 3, 13];

/// Whether a tensor is on a device that is neither a CPU nor one of CUDA's GPUs.
pub fn is_elsewhere(x: &Bound<PyAny>) -> PyResult<bool> {
    if !x.hasattr("__dlpack_device__")? {
        return Ok(false);
    }
    let (device, _): (i32, i32) = x.call_method0("__dlpack_device__")?.extract()?;
    Ok(!REACHED.contains(&device))
}

/// A copy of a tensor on the CPU.
pub fn on_host<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    match &library_of(x)?[..] {
        "torch" => x.call_method0("cpu"),
        "cupy" => x.call_method0("get"),
        _ => {
            let options = PyDict::new(py);
            options.set_item("device", "cpu")?;
            options.set_item("copy", true)?;
            numpy(py)?.module.bind(py).call_method("from_dlpack", (x,), Some(&options))
        }
    }
}

/// An array or a tensor as one of NumPy.
pub fn numpy_of<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let x = match x.hasattr("__dlpack_device__")? {
        true if !x.is_instance(numpy(x.py())?.ndarray.bind(x.py()))? => on_host(x)?,
        _ => x.clone(),
    };
    numpy(x.py())?.module.bind(x.py()).call_method1("asarray", (x,))
}

/// The array of a copy on the CPU, whose results go to the library and the device of the tensor.
pub fn array_on_host<'py>(x: &Bound<'py, PyAny>) -> PyResult<Array<'py>> {
    let mut array = Array::of_any(&on_host(x)?)?;
    array.home = Some(x.clone());
    Ok(array)
}

/// The array of a copy on the same device, in which the axes that are reduced lie side by side.
pub fn in_order<'py>(x: &Bound<'py, PyAny>, are_reduced: &[bool]) -> PyResult<Array<'py>> {
    let py = x.py();
    let axes = |reduced: bool| (0..are_reduced.len()).filter(move |&axis| are_reduced[axis] == reduced);
    let order: Vec<usize> = axes(false).chain(axes(true)).collect();
    let places = PyTuple::new(py, &order)?;
    let copy = match &library_of(x)?[..] {
        "torch" => x.call_method1("permute", (places,))?.call_method0("contiguous")?,
        _ => x.call_method1("transpose", (places,))?.call_method0("copy")?,
    };
    let mut array = Array::of_any(&copy)?;
    let (shape, strides) = (array.shape.clone(), array.strides.clone());
    for (place, &axis) in order.iter().enumerate() {
        (array.shape[axis], array.strides[axis]) = (shape[place], strides[place]);
    }
    array.home = Some(x.clone());
    Ok(array)
}
