//! Complex numbers, reduced as pairs of floats.

use gpu_reduce_dynamic::{Dtype, Operator, with_type};
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::call::Call;
use crate::numpy::numpy;
use crate::output::at_home;

impl<'py> Call<'_, 'py> {
    /// Reduces complex numbers, the elements of `x`.
    pub fn reduce_complex(
        &self,
        x: &Bound<'py, PyAny>,
        mut array: Array<'py>,
        operators: &[Operator],
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = x.py();
        let mut are_reduced = self.are_reduced(array.shape.len())?;
        // The parts are an axis of their own, the last.
        array.shape.push(2);
        array.strides.push(1);
        are_reduced.push(false);
        let home = array.home.take();
        let parts = |operator, are_reduced: &[bool]| -> PyResult<Bound<'py, PyAny>> {
            with_type!(array.kind.dtype, T => Ok(self.reduce::<T>(py, &array, are_reduced, &[operator])?.swap_remove(0)))
        };
        let one = |&operator: &Operator| match operator {
            Operator::Sum
            | Operator::Mean
            | Operator::ExactSum
            | Operator::ExactMean
            | Operator::CompensatedSum => {
                let complex = if array.kind.dtype == Dtype::f32 { "c8" } else { "c16" };
                let pairs = parts(operator, &are_reduced)?;
                let pairs = numpy(py)?.module.bind(py).call_method1("ascontiguousarray", (pairs,))?;
                let results = pairs.call_method1("view", (complex,))?.get_item((py.Ellipsis(), 0))?;
                match &home {
                    Some(home) => at_home(&results, home, complex),
                    None => results.get_item(()),
                }
            }
            // The norm of all parts.
            Operator::NormL2 => {
                let all: Vec<bool> =
                    are_reduced[..are_reduced.len() - 1].iter().copied().chain([true]).collect();
                let norms = parts(operator, &all)?;
                let norms = if self.keepdims { norms.get_item((py.Ellipsis(), 0))? } else { norms };
                match &home {
                    Some(home) => {
                        let norms = numpy(py)?.module.bind(py).call_method1("asarray", (norms,))?;
                        at_home(&norms, home, array.kind.dtype.name())
                    }
                    None => Ok(norms),
                }
            }
            Operator::CountNonzero | Operator::Any | Operator::All => {
                let flags = match &home {
                    Some(tensor) => tensor.rich_compare(0, CompareOp::Ne)?,
                    None => numpy(py)?.module.bind(py).call_method1("not_equal", (x, 0))?,
                };
                Call {
                    axis: self.axis,
                    keepdims: self.keepdims,
                    mask: self.mask,
                    copy: self.copy,
                    ..Call::default()
                }
                .run(&flags, operator)
            }
            other => Err(PyTypeError::new_err(format!(
                "{other} of complex numbers is not had: sum, mean, exact_sum, exact_mean, compensated_sum, vector_norm, \
                 count_nonzero, any and all are"
            ))),
        };
        operators.iter().map(one).collect()
    }
}
