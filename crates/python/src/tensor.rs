//! Tensors of libraries that have DLPack's C exchange API: reductions as `gpu_reduce.torch` calls them, and
//! results as tensors.

use std::mem::replace;
use std::ptr::copy_nonoverlapping;

use dlpark::TensorRef;
use dlpark::ffi::{DLDataType, DLDevice, DLDeviceType};
use gpu_reduce::{bf16, f16};
use gpu_reduce_dynamic::{Dtype, Values};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyInt, PyTuple};

use crate::cuda_interface::compact;
use crate::enqueue::{Lanes, On};
use crate::exchange::Exchange;
use crate::kind::Kind;
use crate::lanes::in_memory_order;
use crate::output::{Shape, has_bits_of, numbers_at};

/// Reduces a tensor of PyTorch by the operator whose name is `op` over the axes in `dim`, all of them without
/// `dim`. The results have the type `wide`, in which sums of such elements are computed.
///
/// Returns none if PyTorch has no C exchange API or it does not describe the tensor, if the axes have to be
/// copied into another order, if there is nothing to reduce, for a stream that is being captured, and for
/// arguments that are errors. Then nothing is done, and [`reduce_into`](crate::enqueue::reduce_into) can be
/// called.
#[pyfunction]
pub fn reduce_tensor<'py>(
    op: &str,
    x: &Bound<'py, PyAny>,
    dim: Option<&Bound<'py, PyAny>>,
    keepdim: bool,
    wide: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = x.py();
    let Some(exchange) = Exchange::of(x) else { return Ok(None) };
    let Some(tensor) = exchange.describe(x, |tensor| Tensor::of(py, exchange, &tensor)) else {
        return Ok(None);
    };
    let Some((shape, lengths)) = tensor.plan(dim, keepdim) else { return Ok(None) };
    let reduce_to = |out: *const u8| {
        let lanes =
            Lanes { x: tensor.first.expose_provenance(), shape: lengths, out: out.expose_provenance() };
        lanes.reduce_by(py, op, tensor.dtype.name(), tensor.on, None)
    };
    if tensor.at.device_type == DLDeviceType::CPU {
        let Some(out) = exchange.allocate(py, tensor.wide, tensor.at, &shape) else { return Ok(None) };
        reduce_to(out.first())?;
        return Ok(exchange.object(py, out));
    }
    // `record_stream` does nothing for a tensor that DLPack hands over: its memory could be used again while
    // another stream reads it.
    let strides = compact(&shape, 1);
    let shape_and_strides = (PyTuple::new(py, shape)?, PyTuple::new(py, strides)?);
    // Without a type it takes less time.
    let options = match tensor.is_wide {
        true => None,
        false => Some([(intern!(py, "dtype"), wide)].into_py_dict(py)?),
    };
    let out = x.call_method(intern!(py, "new_empty_strided"), shape_and_strides, options.as_ref())?;
    let Some(first) = exchange.describe(&out, |out| Some(first_of(&out))) else { return Ok(None) };
    Ok(reduce_to(first)?.is_none().then_some(out))
}

/// The address of a tensor's first element.
pub fn first_of(tensor: &TensorRef) -> *const u8 {
    tensor.data_ptr().cast::<u8>().wrapping_add(tensor.byte_offset() as usize)
}

/// A tensor on the CPU or a GPU, with elements of a type that is reduced.
struct Tensor {
    first: *const u8,
    shape: Vec<usize>,
    strides: Vec<isize>,
    dtype: Dtype,
    at: DLDevice,
    on: On,
    /// The type in which its sums are computed.
    wide: DLDataType,
    /// Whether that is the type of its elements.
    is_wide: bool,
}

impl Tensor {
    fn of(py: Python, exchange: &Exchange, tensor: &TensorRef) -> Option<Tensor> {
        let at = tensor.device();
        let on = match at.device_type {
            DLDeviceType::CPU => On::torch(-1, 0),
            DLDeviceType::CUDA => {
                let stream = exchange.current_stream(py, at)?;
                On::torch(at.device_id.try_into().ok()?, stream.expose_provenance())
            }
            _ => return None,
        };
        let kind = Kind::of_tensor(tensor.dtype()).filter(|kind| !kind.is_complex)?;
        let wide = match kind.dtype {
            Dtype::f16 | Dtype::bf16 | Dtype::f32 => DLDataType::of::<f32>(),
            Dtype::f64 => DLDataType::of::<f64>(),
            _ => DLDataType::of::<i64>(),
        };
        Some(Tensor {
            first: first_of(tensor),
            shape: tensor.shape().iter().map(|&length| length as usize).collect(),
            strides: tensor.strides_or_compact().ok()?.iter().map(|&stride| stride as isize).collect(),
            dtype: kind.dtype,
            at,
            on,
            wide,
            is_wide: tensor.dtype() == wide,
        })
    }

    /// The shape of the results over the axes in `dim`, and the lengths of the three axes of which the second
    /// one is reduced. None if the axes do not lie like that.
    fn plan(&self, dim: Option<&Bound<PyAny>>, keepdim: bool) -> Option<(Vec<usize>, [usize; 3])> {
        let Tensor { shape, strides, .. } = self;
        let are_reduced = reduced(dim, shape.len())?;
        let (order, range) = in_memory_order(shape, strides, &are_reduced)?;
        let end = range.end.min(order.len());
        let parts = [&order[..range.start], &order[range.start..end], &order[end..]];
        if !parts[0].iter().chain(parts[2]).is_sorted() {
            return None;
        }
        let returned = (0..shape.len())
            .filter(|&axis| keepdim || !are_reduced[axis])
            .map(|axis| if are_reduced[axis] { 1 } else { shape[axis] });
        Some((returned.collect(), parts.map(|axes| axes.iter().map(|&axis| shape[axis]).product())))
    }
}

/// Whether each axis is reduced, as PyTorch reads `dim`: no axis means all. None if `dim` is an error.
fn reduced(dim: Option<&Bound<PyAny>>, axes: usize) -> Option<Vec<bool>> {
    let given: Vec<isize> = match dim {
        None => return Some(vec![true; axes]),
        Some(dim) if dim.is_instance_of::<PyInt>() => vec![dim.extract().ok()?],
        Some(dim) => dim.extract().ok()?,
    };
    let mut are_reduced = vec![given.is_empty(); axes.max(1)];
    for axis in given {
        let place = if axis < 0 { axis + are_reduced.len() as isize } else { axis };
        let is_reduced = are_reduced.get_mut(usize::try_from(place).ok()?)?;
        if replace(is_reduced, true) {
            return None;
        }
    }
    // A tensor without axes has the axis 0 or -1 here.
    are_reduced.truncate(axes);
    Some(are_reduced)
}

/// Number `place` of each result as a tensor of the library of `home`, on the device of `home`. Returns none if
/// the library has no C exchange API or no such type, and if the results lie in another order than they are
/// returned.
pub fn of_results<'py>(
    values: &Values,
    place: usize,
    name: &str,
    shape: &Shape,
    home: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyAny>> {
    let py = home.py();
    let exchange = Exchange::found(home).filter(|_| shape.places.is_sorted())?;
    let dtype = Kind::in_tensor(name)?;
    let bytes = numbers_at(values, place);
    let floats = || bytes.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes));
    let bytes = match (values.type_name(), name) {
        (held, name) if has_bits_of(held, name) => bytes,
        ("f32", "f16") => floats().flat_map(|float| f16::from_f32(float).to_ne_bytes()).collect(),
        ("f32", "bf16") => floats().flat_map(|float| bf16::from_f32(float).to_ne_bytes()).collect(),
        _ => return None,
    };
    let new = exchange.allocate(py, dtype, DLDevice::CPU, shape.returned.as_deref().unwrap_or_default())?;
    // SAFETY: a tensor on the CPU of this shape and type has these bytes, and nobody else has the tensor yet.
    unsafe { copy_nonoverlapping(bytes.as_ptr(), new.first(), bytes.len()) };
    let tensor = exchange.object(py, new)?;
    match exchange.describe(home, |home| Some(home.device().device_type))? {
        DLDeviceType::CPU => Some(tensor),
        _ => {
            let device = home.getattr(intern!(py, "device")).ok()?;
            tensor.call_method1(intern!(py, "to"), (device,)).ok()
        }
    }
}
