//! Norms of vectors.

use gpu_reduce_dynamic::{Dtype, Operator};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::call::Call;
use crate::numpy::numpy;
use crate::output::library_of;
use crate::{Any, Given};

/// The norm of vectors over axes, as numpy.linalg.vector_norm. If ord is another number than 2, 1, 0 and infinity,
/// or the elements are complex numbers and ord is not 2 or 0, the magnitudes and their powers are computed first: of
/// elements on a GPU with copy=True only.
///
/// >>> import numpy as np
/// >>> vector_norm(np.array([3.0, -4.0]))
/// np.float64(5.0)
#[pyfunction]
#[pyo3(signature = (x, axis=None, keepdims=false, ord=2.0, *, copy=false))]
pub fn vector_norm<'py>(
    x: &Any<'py>,
    axis: Given<'_, 'py>,
    keepdims: bool,
    ord: f64,
    copy: bool,
) -> PyResult<Any<'py>> {
    let call = Call { axis, keepdims, copy, ..Call::default() };
    if ord == 2.0 {
        return call.run(x, Operator::NormL2);
    }
    let array = Array::of_any(x);
    let is_complex = array.as_ref().is_ok_and(|array| array.kind.is_complex);
    match ord {
        1.0 if !is_complex => return call.run(x, Operator::NormL1),
        f64::INFINITY if !is_complex => return call.run(x, Operator::NormMax),
        _ => {}
    }
    let array = array?;
    let is_float = matches!(array.kind.dtype, Dtype::f16 | Dtype::bf16 | Dtype::f32 | Dtype::f64);
    let dtype = if is_float { array.kind.dtype } else { Dtype::f64 };
    if ord == 0.0 {
        return as_floats(&call.run(x, Operator::CountNonzero)?, dtype);
    }
    if array.valid.is_some() {
        return Err(PyTypeError::new_err("of an Arrow array with nulls, ord is 2, 1, 0 or inf"));
    }
    if !(copy || array.device.is_cpu()) {
        let why = format!(
            "a norm of order {ord} needs a copy of elements on a GPU, their magnitudes: pass copy=True"
        );
        return Err(PyTypeError::new_err(why));
    }
    let x = match array.home {
        Some(_) => x.clone(),
        None => numpy(x.py())?.module.bind(x.py()).call_method1("asarray", (x,))?,
    };
    let x = if is_float { x } else { as_floats(&x, dtype)? };
    let magnitudes = x.call_method0("__abs__")?;
    match ord {
        f64::INFINITY => call.run(&magnitudes, Operator::Max),
        f64::NEG_INFINITY => call.run(&magnitudes, Operator::Min),
        1.0 => call.run(&magnitudes, Operator::Sum),
        power => {
            let powers = magnitudes.pow(power, x.py().None())?;
            call.run(&powers, Operator::Sum)?.pow(power.recip(), x.py().None())
        }
    }
}

/// An array, a scalar or a tensor with elements of a type of floats.
fn as_floats<'py>(x: &Any<'py>, dtype: Dtype) -> PyResult<Any<'py>> {
    match (&library_of(x)?[..], dtype) {
        ("torch", Dtype::f16) => x.call_method0("half"),
        ("torch", Dtype::bf16) => x.call_method0("bfloat16"),
        ("torch", Dtype::f32) => x.call_method0("float"),
        ("torch", _) => x.call_method0("double"),
        _ => x.call_method1("astype", (dtype.aliases()[0],)),
    }
}
