//! Tensors of PyTorch: `gpu_reduce.torch` reduces them in less time than through DLPack and NumPy, and does
//! not wait for a GPU.

use gpu_reduce_dynamic::Operator;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::call::Call;
use crate::numpy::numpy;

/// Reduces a tensor of PyTorch. Returns none for what `gpu_reduce.torch` does not do as this call has to.
pub fn reduce<'py>(
    call: &Call<'_, 'py>,
    x: &Bound<'py, PyAny>,
    operator: Operator,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let name = match operator {
        Operator::Sum => "sum",
        Operator::Mean => "mean",
        Operator::LogSumExp => "logsumexp",
        Operator::ExactSum => "exact_sum",
        _ => return Ok(None),
    };
    let has_more =
        call.dtype.is_some() || call.out.is_some() || call.initial.is_some() || call.mask.is_some();
    if has_more || !is_tensor(x)? {
        return Ok(None);
    }
    let Some(reduce) = module_function(x.py()) else { return Ok(None) };
    let result = reduce.call1((name, x, call.axis, call.keepdims))?;
    Ok((!result.is_none()).then_some(result))
}

/// Whether an object is exactly a `torch.Tensor`. Does not import PyTorch.
fn is_tensor(x: &Bound<PyAny>) -> PyResult<bool> {
    static TENSOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = x.py();
    let class = x.get_type();
    if class.is(&numpy(py)?.ndarray) {
        return Ok(false);
    }
    if let Some(tensor) = TENSOR.get(py) {
        return Ok(class.is(tensor));
    }
    let is_tensor = class.name()? == "Tensor" && class.module()? == "torch";
    if is_tensor {
        // Another thread may have set it.
        _ = TENSOR.set(py, class.unbind());
    }
    Ok(is_tensor)
}

/// The function of `gpu_reduce.torch` for such calls; none if this PyTorch is too old for it.
fn module_function<'py>(py: Python<'py>) -> Option<&'py Bound<'py, PyAny>> {
    static FUNCTION: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let function = FUNCTION.get_or_init(py, || {
        let module = py.import("gpu_reduce.torch").ok()?;
        Some(module.getattr(intern!(py, "_reduce")).ok()?.unbind())
    });
    function.as_ref().map(|function| function.bind(py))
}
