//! Reductions of arrays that come in pieces.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gpu_reduce_dynamic::{Reducer, with_type};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::call::{Operators, tells_place};
use crate::error::{exception, of_library};
use crate::kind::Kind;
use crate::lanes::{bytes_at_once, bytes_of};
use crate::output::{Shape, to_python, type_of};

/// A reduction of an array that comes in pieces, one after the other, by any operator.
///
/// `op` is the name of an operator, or a list of names. The result does not depend on how the array is cut
/// into pieces. With `len`, the number of all elements, it has the bits of the operator's function for the
/// whole array. Pieces by several threads or machines, in any order, are added by Partial.
///
/// >>> import numpy as np
/// >>> pieces = Reducer(["mean", "argmax"], "float64")
/// >>> pieces.push(np.array([1.0, 6.0]))
/// >>> pieces.push(np.array([2.0]))
/// >>> pieces.finish()
/// [np.float64(3.0), np.int64(1)]
#[pyclass(module = "gpu_reduce", name = "Reducer", frozen)]
pub struct Pieces {
    operators: Operators,
    /// One for each operator.
    reducers: Mutex<Vec<Reducer>>,
    kind: Kind,
}

impl Pieces {
    fn reducers(&self) -> MutexGuard<'_, Vec<Reducer>> {
        self.reducers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Pieces {
    #[new]
    #[pyo3(signature = (op, dtype, len=None, *, ddof=0))]
    fn new(op: &Bound<PyAny>, dtype: &Bound<PyAny>, len: Option<u64>, ddof: u64) -> PyResult<Self> {
        let (operators, kind) = (Operators::of(op)?, Kind::of_dtype(dtype)?);
        let reducer = |&operator| Reducer::new(operator, kind.dtype, ddof, len).map_err(exception);
        let reducers = operators.all().iter().map(reducer).collect::<PyResult<_>>()?;
        Ok(Self { operators, reducers: Mutex::new(reducers), kind })
    }

    /// Takes the next elements: an array of any axes, in row-major order. Nulls are left out.
    fn push(&self, x: &Bound<PyAny>) -> PyResult<()> {
        let array = Array::of(x)?;
        if array.kind != self.kind {
            let why = format!("the elements are not {}: convert them", self.kind.name());
            return Err(PyTypeError::new_err(why));
        }
        if array.valid.is_some() && self.operators.all().iter().copied().any(tells_place) {
            return Err(PyTypeError::new_err("an array with nulls has no places for argmin and the like"));
        }
        with_type!(self.kind.dtype, T => {
            let mut copy = Vec::<T>::new();
            let items = bytes_of(&array, &mut copy).map_err(of_library)?;
            let count = items.len() / size_of::<T>();
            x.py().detach(|| {
                let mut reducers = self.reducers();
                // Parts fit in a cache, for several operators. If there is no room for all, none is taken.
                let fits = reducers.iter().all(|reducer| reducer.room().is_none_or(|room| room >= count as u64));
                let part = if fits { bytes_at_once(reducers.len()) } else { items.len().max(1) };
                items.chunks(part).try_for_each(|part| {
                    reducers.iter_mut().try_for_each(|reducer| reducer.push(part))
                })
            })
            .map_err(exception)
        })
    }

    /// The number of elements so far.
    #[getter]
    fn count(&self) -> u64 {
        self.reducers().first().map_or(0, Reducer::count)
    }

    /// The result of the elements so far, or a list of results. More elements may be pushed after it.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // The reducers are not held while Python runs, for another thread may wait for them with Python's
        // lock.
        let finished = self.reducers().iter().map(Reducer::finish).collect::<Result<Vec<_>, _>>();
        let finished = finished.map_err(exception)?;
        self.operators.map(py, |operators| {
            let results = finished.iter().zip(operators).map(|(values, &operator)| {
                let name = type_of(operator, self.kind, values.type_name());
                to_python(py, values, name, &Shape::scalar(), None)
            });
            results.collect()
        })
    }

    fn __repr__(&self) -> String {
        let names: Vec<_> = self.operators.all().iter().map(|operator| operator.name()).collect();
        let names = match &self.operators {
            Operators::One(_) => format!("{:?}", names[0]),
            Operators::Several(_) => format!("{names:?}"),
        };
        format!("Reducer({names}, {:?}): {} elements", self.kind.name(), self.count())
    }
}
