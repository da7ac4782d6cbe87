//! Dot products of vectors.

use gpu_reduce_dynamic::{PairOperator, with_type};
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::Any;
use crate::array::Array;
use crate::complex::{dots, of_parts};
use crate::copies::on_host;
use crate::error::exception;
use crate::lanes;
use crate::numpy::numpy;
use crate::output::{Shape, to_python};

/// The dot products of vectors along an axis, as numpy.vecdot: of complex numbers with the first ones conjugated.
///
/// >>> import numpy as np
/// >>> vecdot(np.array([[1, 2], [3, 4]]), np.array([10, 1]))
/// array([12, 34])
#[pyfunction]
#[pyo3(signature = (x1, x2, axis=-1, *, copy=false), text_signature = "(x1, x2, axis=-1, *, copy=False)")]
pub fn vecdot<'py>(x1: &Any<'py>, x2: &Any<'py>, axis: isize, copy: bool) -> PyResult<Any<'py>> {
    dot(x1, x2, axis, copy, PairOperator::Dot)
}

/// The exact dot products of vectors along an axis, each rounded once to the nearest number.
///
/// >>> import numpy as np
/// >>> exact_dot(np.array([1e200, 1.0, -1e200]), np.array([1e100, 2.0, 1e100]))
/// np.float64(2.0)
#[pyfunction]
#[pyo3(signature = (x1, x2, axis=-1, *, copy=false), text_signature = "(x1, x2, axis=-1, *, copy=False)")]
pub fn exact_dot<'py>(x1: &Any<'py>, x2: &Any<'py>, axis: isize, copy: bool) -> PyResult<Any<'py>> {
    dot(x1, x2, axis, copy, PairOperator::ExactDot)
}

fn dot<'py>(
    x1: &Any<'py>,
    x2: &Any<'py>,
    axis: isize,
    copy: bool,
    operator: PairOperator,
) -> PyResult<Any<'py>> {
    let array = |x: &Any<'py>| match operator {
        PairOperator::Dot => Array::of_any(x),
        _ => Array::of(x),
    };
    let (a, b) = (array(x1)?, array(x2)?);
    let are_on_host = a.device.is_cpu() && b.device.is_cpu();
    if copy && !are_on_host && !(fit(&a, &b, axis) && a.is_contiguous() && b.is_contiguous()) {
        let (x1, x2) = (on_host(x1)?, on_host(x2)?);
        let mut of_copy = array(&x1)?;
        of_copy.home = a.home;
        let (a, b) = (of_copy, array(&x2)?);
        return dot_of([&x1, &x2], a, b, axis, operator);
    }
    dot_of([x1, x2], a, b, axis, operator)
}

/// Whether the last axis of arrays of one shape and type is reduced, and where they lie.
fn fit(a: &Array, b: &Array, axis: isize) -> bool {
    let is_taken = !a.kind.is_complex || a.device.is_cpu() && b.device.is_cpu();
    is_taken && a.shape == b.shape && a.kind == b.kind && (axis == -1 || axis + 1 == a.shape.len() as isize)
}

/// The dot products of two objects, of which `a` and `b` are the arrays. The results are tensors like `a.home`, if there
/// is one.
fn dot_of<'py>(
    [x1, x2]: [&Any<'py>; 2],
    mut a: Array<'py>,
    mut b: Array<'py>,
    axis: isize,
    operator: PairOperator,
) -> PyResult<Any<'py>> {
    let py = x1.py();
    let home = a.home.take();
    if !fit(&a, &b, axis) {
        if !(a.device.is_cpu() && b.device.is_cpu()) {
            let why = "arrays on a GPU have one shape and type of real numbers, and their last axis is reduced: \
                       copy=True copies them to the CPU";
            return Err(PyTypeError::new_err(why));
        }
        // NumPy makes one type and shape of them, and moves the axis.
        let module = numpy(py)?.module.bind(py);
        let [x1, x2] = [module.call_method1("asarray", (x1,))?, module.call_method1("asarray", (x2,))?];
        let dtype = module.call_method1("result_type", (&x1, &x2))?;
        let moved = |x: Any<'py>| -> PyResult<Any<'py>> {
            let x = module.call_method1("asarray", (x, &dtype))?;
            if x.getattr("ndim")?.extract::<usize>()? == 0 {
                return Err(PyValueError::new_err("vecdot takes arrays with at least one axis"));
            }
            module.call_method1("moveaxis", (x, axis, -1))
        };
        let (x1, x2) = (moved(x1)?, moved(x2)?);
        let last = |x: &Any<'py>| x.getattr("shape")?.get_item(-1)?.extract::<usize>();
        if last(&x1)? != last(&x2)? {
            return Err(PyValueError::new_err(format!(
                "vectors have {} and {} elements",
                last(&x1)?,
                last(&x2)?
            )));
        }
        let both = module.call_method1("broadcast_arrays", (x1, x2))?;
        (a, b) = (Array::of_any(&both.get_item(0)?)?, Array::of_any(&both.get_item(1)?)?);
    }
    if a.shape.is_empty() {
        return Err(PyValueError::new_err("vecdot takes arrays with at least one axis"));
    }
    let kept = a.shape[..a.shape.len() - 1].to_vec();
    let shape = |count| match kept.is_empty() {
        true => Shape::scalar(),
        false => Shape { lengths: vec![count], places: vec![0], returned: Some(kept) },
    };
    if a.kind.is_complex {
        let dtype = a.kind.dtype;
        let values = dots([&mut a, &mut b]).map_err(exception)?;
        let parts = to_python(py, &values, dtype.name(), &shape(values.len()), None)?;
        return of_parts(&parts, dtype, home.as_ref());
    }
    let values = with_type!(a.kind.dtype, T => lanes::dot::<T>(py, [&a, &b], operator)).map_err(exception)?;
    let held = values.type_name();
    let name = match held {
        "f32" if a.kind.is_half() && operator == PairOperator::Dot => a.kind.dtype.name(),
        // NumPy keeps the type of integers.
        "i64" | "u64" if operator == PairOperator::Dot && !a.kind.is_bool => a.kind.dtype.name(),
        held => held,
    };
    let dots = to_python(py, &values, name, &shape(values.len()), home.as_ref())?;
    // NumPy's are booleans: whether both elements are true at any place.
    if a.kind.is_bool && operator == PairOperator::Dot {
        dots.rich_compare(0, CompareOp::Ne)
    } else {
        Ok(dots)
    }
}
