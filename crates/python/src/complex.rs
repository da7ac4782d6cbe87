//! Complex numbers, reduced as pairs of floats.

use bytemuck::cast_slice;
use gpu_reduce::{Element, Op, Reduce};
use gpu_reduce_dynamic::{Dtype, Error as Failure, Number, Operator, Values, with_type};
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::call::Call;
use crate::lanes::bytes_of;
use crate::numpy::numpy;
use crate::output::at_home;

/// The product of complex numbers, which are pairs of parts.
#[derive(Clone, Copy)]
struct Product;

/// The sum of products of complex numbers, of which the first is conjugated.
#[derive(Clone, Copy)]
struct Dot;

impl<T: Element> Op<[T; 2]> for Product {
    const NAME: &'static str = "product";
    type Accumulator = [T; 2];
    type Output = [T; 2];
    const EXACT: bool = false;

    fn identity(&self) -> [T; 2] {
        [T::one(), T::zero()]
    }

    fn lift(&self, item: [T; 2], _: u64) -> [T; 2] {
        item
    }

    fn combine(&self, [a, b]: [T; 2], [c, d]: [T; 2]) -> [T; 2] {
        [a * c - b * d, a * d + b * c]
    }

    fn finish(&self, all: [T; 2], _: u64) -> Option<[T; 2]> {
        Some(all)
    }
}

impl<T: Element> Op<([T; 2], [T; 2])> for Dot {
    const NAME: &'static str = "dot product";
    type Accumulator = [T; 2];
    type Output = [T; 2];
    const EXACT: bool = false;

    fn identity(&self) -> [T; 2] {
        [T::zero(); 2]
    }

    fn lift(&self, ([a, b], [c, d]): ([T; 2], [T; 2]), _: u64) -> [T; 2] {
        [a * c + b * d, a * d - b * c]
    }

    fn combine(&self, [a, b]: [T; 2], [c, d]: [T; 2]) -> [T; 2] {
        [a + c, b + d]
    }

    fn finish(&self, all: [T; 2], _: u64) -> Option<[T; 2]> {
        Some(all)
    }
}

/// The products of complex numbers, whose parts have this type, between offsets that count parts.
pub fn products(dtype: Dtype, parts: &[u8], offsets: &[u64]) -> Result<Values, Failure> {
    fn of<T: Number>(parts: &[u8], offsets: &[u64]) -> Result<Values, Failure> {
        let numbers: &[[T; 2]] = cast_slice(parts);
        let offsets: Vec<u64> = offsets.iter().map(|offset| offset / 2).collect();
        let products = numbers.segments(&offsets)?.by(Product).block::<256>().run()?;
        Ok(Values::of(products.to_vec()?))
    }
    match dtype {
        Dtype::f32 => of::<f32>(parts, offsets),
        _ => of::<f64>(parts, offsets),
    }
}

/// The dot products over the last axis of two arrays of complex numbers on the CPU, which have one shape and type.
pub fn dots([a, b]: [&mut Array; 2]) -> Result<Values, Failure> {
    fn of<T: Number>([a, b]: [&Array; 2], offsets: &[u64]) -> Result<Values, Failure> {
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        let (a, b) = (bytes_of::<T>(a, &mut of_a)?, bytes_of::<T>(b, &mut of_b)?);
        let (a, b): (&[[T; 2]], &[[T; 2]]) = (cast_slice(a), cast_slice(b));
        let dots = (a, b).segments(offsets)?.by(Dot).block::<256>().run()?;
        Ok(Values::of(dots.to_vec()?))
    }
    let (rows, len) = match &a.shape[..] {
        [rows @ .., len] => (rows.iter().product(), *len),
        [] => (1, 1),
    };
    let offsets: Vec<u64> = (0..=rows).map(|row: usize| (row * len) as u64).collect();
    let dtype = a.kind.dtype;
    let parts = [a, b].map(|array| {
        with_axis_of_parts(array);
        &*array
    });
    match dtype {
        Dtype::f32 => of::<f32>(parts, &offsets),
        _ => of::<f64>(parts, &offsets),
    }
}

/// Makes the parts of each number an axis of their own, the last.
fn with_axis_of_parts(array: &mut Array) {
    array.shape.push(2);
    array.strides.push(1);
}

/// An array without its last axis, which has length 1: a scalar if it has no other one.
fn without_parts<'py>(results: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    results.get_item((results.py().Ellipsis(), 0))?.get_item(())
}

/// NumPy's name of the complex numbers with parts of this type.
fn name_of(dtype: Dtype) -> &'static str {
    if dtype == Dtype::f32 { "c8" } else { "c16" }
}

/// Complex numbers, made of a tuple of their real parts and their imaginary parts: an array of NumPy, or a tensor like
/// `home`.
pub fn of_parts<'py>(
    parts: &Bound<'py, PyAny>,
    dtype: Dtype,
    home: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (real, imaginary) = parts.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
    let module = numpy(parts.py())?.module.bind(parts.py());
    let numbers = module.call_method1("empty", (module.call_method1("shape", (&real,))?, name_of(dtype)))?;
    numbers.setattr("real", real)?;
    numbers.setattr("imag", imaginary)?;
    match home {
        Some(home) => at_home(&numbers, home, name_of(dtype)),
        None => numbers.get_item(()),
    }
}

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
        with_axis_of_parts(&mut array);
        are_reduced.push(false);
        let with_parts: Vec<bool> =
            are_reduced[..are_reduced.len() - 1].iter().copied().chain([true]).collect();
        let home = array.home.take();
        let parts = |operator, are_reduced: &[bool]| -> PyResult<Bound<'py, PyAny>> {
            with_type!(array.kind.dtype, T => Ok(self.reduce::<T>(py, &array, are_reduced, &[operator])?.swap_remove(0)))
        };
        let real = |results: Bound<'py, PyAny>| match &home {
            Some(home) => {
                let results = numpy(py)?.module.bind(py).call_method1("asarray", (results,))?;
                at_home(&results, home, array.kind.dtype.name())
            }
            None => Ok(results),
        };
        let one = |&operator: &Operator| match operator {
            Operator::Sum
            | Operator::Mean
            | Operator::ExactSum
            | Operator::ExactMean
            | Operator::CompensatedSum => {
                let complex = name_of(array.kind.dtype);
                let pairs = parts(operator, &are_reduced)?;
                let pairs = numpy(py)?.module.bind(py).call_method1("ascontiguousarray", (pairs,))?;
                let pairs = pairs.call_method1("view", (complex,))?;
                match &home {
                    Some(home) => at_home(&pairs.get_item((py.Ellipsis(), 0))?, home, complex),
                    None => without_parts(&pairs),
                }
            }
            Operator::Prod => {
                let pairs = of_parts(&parts(operator, &with_parts)?, array.kind.dtype, home.as_ref())?;
                if self.keepdims { without_parts(&pairs) } else { Ok(pairs) }
            }
            // The norm of all parts.
            Operator::NormL2 => {
                let norms = parts(operator, &with_parts)?;
                real(if self.keepdims { without_parts(&norms)? } else { norms })
            }
            Operator::Var | Operator::Std => {
                let of_parts = parts(Operator::Var, &are_reduced)?;
                let variances = of_parts.call_method1("sum", (-1,))?;
                match operator {
                    Operator::Std => real(numpy(py)?.module.bind(py).call_method1("sqrt", (variances,))?),
                    _ => real(variances),
                }
            }
            Operator::NanSum | Operator::NanMean | Operator::NanVar | Operator::NanStd => {
                if !(self.copy || array.device.is_cpu()) {
                    return Err(PyTypeError::new_err(format!(
                        "{operator} of complex numbers on a GPU takes a copy on the CPU, of which the numbers with a NaN \
                         are left out: pass copy=True"
                    )));
                }
                let module = numpy(py)?.module.bind(py);
                let of_rest = match operator {
                    Operator::NanSum => Operator::Sum,
                    Operator::NanMean => Operator::Mean,
                    Operator::NanVar => Operator::Var,
                    _ => Operator::Std,
                };
                // A number is NaN if either part is.
                let mut mask = match &home {
                    Some(tensor) => tensor.rich_compare(tensor, CompareOp::Eq)?,
                    None => module.call_method1("equal", (x, x))?,
                };
                if let Some(given) = self.mask {
                    mask = mask.bitand(given)?;
                }
                Call {
                    axis: self.axis,
                    keepdims: self.keepdims,
                    mask: Some(&mask),
                    ddof: self.ddof,
                    copy: self.copy,
                    ..Call::default()
                }
                .run(x, of_rest)
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
                "{other} of complex numbers is not had: sum, prod, mean, var, std, those without NaNs, exact_sum, \
                 exact_mean, compensated_sum, vector_norm, count_nonzero, any and all are"
            ))),
        };
        operators.iter().map(one).collect()
    }
}
