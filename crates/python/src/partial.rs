//! Reductions in parts, which merge in any order.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gpu_reduce::Reduce;
use gpu_reduce_dynamic::{Operator, Partial, Target, with_type};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::array::Array;
use crate::error::{exception, of_partial};
use crate::kind::Kind;
use crate::lanes::bytes_of;
use crate::output::{Shape, to_python, type_of};
use crate::parts::indices_of;

/// A reduction in parts: of pieces of the data, by threads, processes or machines, that merge in any order.
///
/// The result does not depend on how the data are cut, who reduces which piece, and in what order the parts
/// merge. `op` is the name of an operator for which the order of the elements does not matter: sums and
/// means, which are correctly rounded, extremes, counts, bits, exact operators. With `size`, there are
/// results for the indices 0 to size - 1, and `add` takes an index of each element. Parts pickle.
///
/// >>> import numpy as np
/// >>> here, there = Partial("sum", "float64"), Partial("sum", "float64")
/// >>> here.add(np.array([1e300, 1.0]))
/// >>> there.add(np.array([-1e300]))
/// >>> here.merge(there)
/// >>> here.finish()
/// np.float64(1.0)
#[pyclass(module = "gpu_reduce", name = "Partial", frozen)]
pub struct Parts {
    part: Mutex<Partial>,
    kind: Kind,
    size: Option<usize>,
}

impl Parts {
    fn part(&self) -> MutexGuard<'_, Partial> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(op: &str, dtype: &Bound<PyAny>, size: Option<usize>, bytes: Option<&[u8]>) -> PyResult<Self> {
        let operator: Operator =
            op.parse().map_err(|_| PyValueError::new_err(format!("there is no operator {op:?}")))?;
        let kind = Kind::of_dtype(dtype)?;
        let part = match bytes {
            None => Partial::new(operator, kind.dtype),
            Some(bytes) => Partial::from_bytes(operator, kind.dtype, bytes),
        };
        Ok(Self { part: Mutex::new(part.map_err(of_partial)?), kind, size })
    }
}

#[pymethods]
impl Parts {
    #[new]
    #[pyo3(signature = (op, dtype, size=None))]
    fn new(op: &str, dtype: &Bound<PyAny>, size: Option<usize>) -> PyResult<Self> {
        Self::of(op, dtype, size, None)
    }

    /// Adds the elements of an array, of any axes; with `size`, each to the result of its index.
    #[pyo3(signature = (x, index=None))]
    fn add(&self, x: &Bound<PyAny>, index: Option<&Bound<PyAny>>) -> PyResult<()> {
        let array = Array::of(x)?;
        if array.kind != self.kind {
            let why = format!("the elements are not {}: convert them", self.kind.name());
            return Err(PyTypeError::new_err(why));
        }
        let mut indices = match (index, self.size) {
            (None, None) => vec![0; array.len()],
            (Some(index), Some(_)) => indices_of(&Array::of(index)?)?,
            (None, Some(_)) => {
                return Err(PyValueError::new_err("with a size, add takes an index of each element"));
            }
            (Some(_), None) => return Err(PyValueError::new_err("without a size, add takes no index")),
        };
        if indices.len() != array.len() {
            let why = format!("there are {} elements and {} indices", array.len(), indices.len());
            return Err(PyValueError::new_err(why));
        }
        if let Some(valid) = &array.valid {
            let mut valid = valid.iter();
            indices.retain(|_| valid.next() == Some(&true));
        }
        with_type!(self.kind.dtype, T => {
            let mut copy = Vec::<T>::new();
            let items = bytes_of(&array, &mut copy).map_err(crate::error::of_library)?;
            x.py().detach(|| self.part().add(&indices, items)).map_err(exception)
        })
    }

    /// Adds what another part has, which stays as it is.
    fn merge(&self, other: &Self) -> PyResult<()> {
        let (operator, dtype, bytes) = {
            let other = other.part();
            (other.operator(), other.dtype(), other.to_bytes())
        };
        if (other.kind, other.size) != (self.kind, self.size) {
            return Err(PyValueError::new_err("the parts differ in their type or size"));
        }
        let other = Partial::from_bytes(operator, dtype, &bytes).map_err(of_partial)?;
        self.part().merge(other).map_err(of_partial)
    }

    /// The result, or with `size` an array of results. More elements may be added after it.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // The part is not held while Python runs, for another thread may wait for it with Python's lock.
        let (operator, finished) = {
            let part = self.part();
            (part.operator(), part.finish(self.size.unwrap_or(1)))
        };
        let values = match (finished, self.size) {
            (Ok(values), _) => values,
            // Nothing was added: the value of no elements, or that there is none.
            (Err(_), None) => with_type!(self.kind.dtype, T => {
                Target::All(<[T]>::data(&[])).reduce(operator, 0)
            })
            .map_err(exception)?,
            (Err(error), Some(_)) => return Err(exception(error)),
        };
        let name = type_of(operator, self.kind, values.type_name());
        let shape = self.size.map_or(Shape::scalar(), Shape::of_len);
        to_python(py, &values, name, &shape, None)
    }

    /// The part with the bytes that pickling has made.
    #[classmethod]
    fn _of_bytes(
        _: &Bound<PyType>,
        op: &str,
        dtype: &Bound<PyAny>,
        size: Option<usize>,
        bytes: &[u8],
    ) -> PyResult<Self> {
        Self::of(op, dtype, size, Some(bytes))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let (name, bytes) = {
            let part = self.part();
            (part.operator().name(), part.to_bytes())
        };
        let of_bytes = PyType::new::<Self>(py).getattr("_of_bytes")?;
        let arguments = (name, self.kind.name(), self.size, PyBytes::new(py, &bytes));
        (of_bytes, arguments).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        let size = self.size.map_or(String::new(), |size| format!(", size={size}"));
        format!("Partial({:?}, {:?}{size})", self.part().operator().name(), self.kind.name())
    }
}
