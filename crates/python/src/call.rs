//! A call of a function: its arguments, by NumPy's names.

use std::slice::from_ref;

use bytemuck::cast_slice;
use gpu_reduce::Element;
use gpu_reduce_dynamic::{Number, Operator, Values, with_type};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::array::Array;
use crate::copies;
use crate::error::of_library;
use crate::kind::Kind;
use crate::lanes::{self, By, Choice};
use crate::numpy::numpy;
use crate::on_gpu::{self, Place};
use crate::output::{Shape, at_home, into_out, numpy_name, to_python, type_of};

/// The arguments of a function of one array.
#[derive(Default)]
pub struct Call<'a, 'py> {
    pub axis: Option<&'a Bound<'py, PyAny>>,
    pub dtype: Option<&'a Bound<'py, PyAny>>,
    pub out: Option<&'a Bound<'py, PyAny>>,
    pub keepdims: bool,
    pub initial: Option<&'a Bound<'py, PyAny>>,
    pub mask: Option<&'a Bound<'py, PyAny>>,
    /// The degrees of freedom of a variance or standard deviation.
    pub ddof: f64,
    /// Whether the call makes a copy if it cannot reduce the elements where they lie.
    pub copy: bool,
}

impl<'py> Call<'_, 'py> {
    /// Reduces `x` by an operator.
    pub fn run(&self, x: &Bound<'py, PyAny>, operator: Operator) -> PyResult<Bound<'py, PyAny>> {
        let result = self.run_all(x, &[operator])?.swap_remove(0);
        match self.out {
            None => Ok(result),
            Some(out) => into_out(&result, out),
        }
    }

    /// Reduces `x` by each operator.
    pub fn run_all(&self, x: &Bound<'py, PyAny>, operators: &[Operator]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let py = x.py();
        let axes_of = |x| numpy(py)?.module.bind(py).call_method1("ndim", (x,))?.extract::<usize>();
        if self.initial.map(axes_of).transpose()?.is_some_and(|axes| axes > 0) {
            return Err(PyValueError::new_err("initial is one number"));
        }
        let converted;
        let x = match self.dtype {
            None => x,
            Some(dtype) => {
                converted = as_type(x, dtype)?;
                &converted
            }
        };
        let array = self.array(x, operators)?;
        let is_tensor = array.home.is_some();
        let mut results = if array.kind.is_complex {
            self.reduce_complex(x, array, operators)?
        } else {
            let are_reduced = self.are_reduced(array.shape.len())?;
            with_type!(array.kind.dtype, T => self.reduce::<T>(py, &array, &are_reduced, operators)?)
        };
        for (result, &operator) in results.iter_mut().zip(operators) {
            if let (Some(initial), false) = (self.initial, is_extreme(operator)) {
                *result = with_initial(result, initial, operator, is_tensor)?;
            }
            if let Some(dtype) = self.dtype {
                *result = as_type(result, dtype)?;
            }
        }
        Ok(results)
    }

    /// The elements of `x`: a copy if that is needed and allowed.
    fn array(&self, x: &Bound<'py, PyAny>, operators: &[Operator]) -> PyResult<Array<'py>> {
        let array = Array::of_any(x);
        if !self.copy {
            return array;
        }
        if array.is_err() && copies::is_elsewhere(x)? {
            return copies::array_on_host(x);
        }
        let array = array?;
        let are_reduced = self.are_reduced(array.shape.len())?;
        let initial_takes_part = self.initial.is_some() && operators.iter().copied().any(is_extreme);
        let is_taken_on_host =
            initial_takes_part || array.kind.is_complex && operators.contains(&Operator::Prod);
        let mask = self.mask.filter(|mask| !is_true(mask));
        match array.device.is_cpu() {
            true => Ok(array),
            false if is_taken_on_host => copies::array_on_host(x),
            false if selects_there(&array, mask)? => Ok(array),
            false if mask.is_some() => copies::array_on_host(x),
            false if lanes::lie_in_order(&array, &are_reduced) => Ok(array),
            false => copies::in_order(x, &are_reduced),
        }
    }

    /// Reduces an array by each operator, over axes.
    pub fn reduce<T: Number>(
        &self,
        py: Python<'py>,
        array: &Array<'py>,
        are_reduced: &[bool],
        operators: &[Operator],
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let takes_ddof = |operator: &Operator| {
            matches!(operator, Operator::Var | Operator::Std | Operator::NanVar | Operator::NanStd)
        };
        let is_whole = self.ddof >= 0.0 && self.ddof.fract() == 0.0;
        if !is_whole && operators.iter().any(takes_ddof) {
            let one = |operator: &Operator| match takes_ddof(operator) {
                true => self.with_correction(py, array, are_reduced, *operator),
                false => Ok(self.reduce::<T>(py, array, are_reduced, &[*operator])?.swap_remove(0)),
            };
            return operators.iter().map(one).collect();
        }
        let (mask, flags);
        let given = self.mask.filter(|given| !is_true(given));
        let mut choice = Choice::ALL;
        if let Some(valid) = &array.valid {
            if self.mask.is_some() {
                return Err(PyTypeError::new_err("a mask cannot be given for an Arrow array with nulls"));
            }
            choice.mask = Some((valid, vec![1]));
        } else if let (Some(given), true, Some(place)) = (given, self.copy, Place::of(array)?) {
            let mask = Array::of(given)?;
            check_mask(mask.kind)?;
            broadcast(&mask.shape, &array.shape)?;
            choice.selected = Some(place.select(given, are_reduced)?);
        } else if let Some(given) = given {
            mask = self.mask_of(given, array)?;
            let mut copy = Vec::new();
            let view = lanes::contiguous::<u8>(&mask, &mut copy).map_err(of_library)?;
            flags = view.to_vec().map_err(of_library)?.iter().map(|&flag| flag != 0).collect::<Vec<_>>();
            // The parts of a complex number have one flag.
            let mut strides = broadcast(&mask.shape, array.shape_of_numbers())?;
            strides.resize(array.shape.len(), 0);
            choice.mask = Some((&flags, strides));
        }
        if let Some(initial) = self.initial.filter(|_| operators.iter().copied().any(is_extreme)) {
            choice.initial = Some(element::<T>(initial)?);
        }
        let by = By { operators, ddof: self.ddof as u64 };
        if let (None, None, None) = (&choice.mask, &choice.selected, &choice.initial) {
            let shape = |order: &[usize]| self.shape(array, are_reduced, order);
            if let Some(results) = on_gpu::reduce::<T>(py, array, are_reduced, by, shape)? {
                return Ok(vec![results]);
            }
        }
        let reduced = lanes::reduce(py, array, are_reduced, &choice, by)?;
        let may_be_of_nans = |(values, operator): (&Values, &Operator)| {
            matches!(operator, Operator::NanArgMin | Operator::NanArgMax) && has_zeros(values)
        };
        if !T::IS_INTEGER && reduced.values.iter().zip(operators).any(may_be_of_nans) {
            let by = By { operators: &[Operator::NanMin], ddof: 0 };
            let smallest = lanes::reduce(py, array, are_reduced, &choice, by)?;
            if has_nans::<T>(&smallest.values[0]) {
                return Err(PyValueError::new_err("All-NaN slice encountered"));
            }
        }
        let shape = self.shape(array, are_reduced, &reduced.order);
        let returned = |(values, &operator): (&Values, &Operator)| {
            let name = type_of(operator, array.kind, values.type_name());
            let result = to_python(py, values, name, &shape, array.home.as_ref())?;
            match &array.valid {
                Some(valid) if tells_place(operator) => {
                    let among: usize = result.extract()?;
                    let place = (0..valid.len()).filter(|&place| valid[place]).nth(among).unwrap_or(0);
                    numpy(py)?.scalar(py, "i64").map_or(Ok(result), |scalar| scalar.call1((place,)))
                }
                _ => Ok(result),
            }
        };
        reduced.values.iter().zip(operators).map(returned).collect()
    }

    /// A variance or standard deviation whose correction is no whole number of degrees of freedom.
    fn with_correction(
        &self,
        py: Python<'py>,
        array: &Array<'py>,
        are_reduced: &[bool],
        operator: Operator,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Call { axis, keepdims, mask, copy, .. } = *self;
        let whole = Call { axis, keepdims, mask, copy, ..Call::default() };
        let reduce = |operator| -> PyResult<Bound<'py, PyAny>> {
            with_type!(array.kind.dtype, T => {
                Ok(whole.reduce::<T>(py, array, are_reduced, &[operator])?.swap_remove(0))
            })
        };
        let of_population = reduce(operator)?;
        let module = numpy(py)?.module.bind(py);
        let number = |count: f64| count.into_pyobject(py).map(Bound::into_any);
        let mut count = match (mask.filter(|mask| !is_true(mask)), &array.valid) {
            (None, None) => {
                let lengths = (0..are_reduced.len()).filter(|&axis| are_reduced[axis]);
                number(lengths.map(|axis| array.shape[axis]).product::<usize>() as f64)?
            }
            (None, Some(valid)) => number(valid.iter().filter(|&&valid| valid).count() as f64)?,
            (Some(mask), _) => {
                let mask = copies::numpy_of(mask)?;
                let shape = PyTuple::new(py, array.shape_of_numbers())?;
                let flags = module.call_method1("broadcast_to", (mask, shape))?;
                let count = Call { axis, keepdims, ..Call::default() }.run(&flags, Operator::CountNonzero)?;
                // The parts of a complex number have one count.
                if array.kind.is_complex { module.call_method1("expand_dims", (count, -1))? } else { count }
            }
        };
        if matches!(operator, Operator::NanVar | Operator::NanStd) {
            count = count.sub(copies::numpy_of(&reduce(Operator::CountNan)?)?)?;
        }
        let has_freedom = module.call_method1("greater", (&count, self.ddof))?;
        let freedom = module.call_method1("where", (has_freedom, count.sub(self.ddof)?, f64::NAN))?;
        let mut factor = module.call_method1("divide", (count, freedom))?;
        if matches!(operator, Operator::Std | Operator::NanStd) {
            factor = module.call_method1("sqrt", (factor,))?;
        }
        let factor = match &array.home {
            None => factor,
            Some(home) => at_home(&module.call_method1("asarray", (factor,))?, home, "f64")?,
        };
        as_type(&of_population.mul(factor)?, &of_population.getattr("dtype")?)
    }

    /// Whether each axis is reduced.
    pub fn are_reduced(&self, axes: usize) -> PyResult<Vec<bool>> {
        let Some(given) = self.axis else { return Ok(vec![true; axes]) };
        let mut are_reduced = vec![false; axes];
        let mut reduce = |axis: Bound<'py, PyAny>| {
            let place = index_of(&axis, axes)?;
            if are_reduced[place] {
                return Err(PyValueError::new_err("duplicate value in 'axis'"));
            }
            are_reduced[place] = true;
            Ok(())
        };
        match given.cast::<PyTuple>() {
            Ok(several) => several.iter().try_for_each(&mut reduce)?,
            Err(_) => reduce(given.clone())?,
        }
        Ok(are_reduced)
    }

    /// The shape of the results, whose axes are `order`.
    fn shape(&self, array: &Array, are_reduced: &[bool], order: &[usize]) -> Shape {
        let returned: Vec<usize> = (0..are_reduced.len())
            .filter(|&axis| self.keepdims || !are_reduced[axis])
            .map(|axis| if are_reduced[axis] { 1 } else { array.shape[axis] })
            .collect();
        let mut places: Vec<usize> = (0..order.len()).collect();
        places.sort_by_key(|&place| order[place]);
        Shape {
            lengths: order.iter().map(|&axis| array.shape[axis]).collect(),
            places,
            returned: (!returned.is_empty()).then_some(returned),
        }
    }

    fn mask_of(&self, given: &Bound<'py, PyAny>, array: &Array<'py>) -> PyResult<Array<'py>> {
        let mut mask = Array::of(given)?;
        if self.copy && !mask.device.is_cpu() {
            mask = copies::array_on_host(given)?;
        }
        check_mask(mask.kind)?;
        if mask.device.is_cpu() && array.device.is_cpu() {
            return Ok(mask);
        }
        let why =
            "arrays on a GPU are reduced without a mask only: copy=True copies the elements that it selects";
        Err(PyTypeError::new_err(why))
    }
}

fn check_mask(kind: Kind) -> PyResult<()> {
    match kind {
        Kind::BOOL => Ok(()),
        _ => Err(PyTypeError::new_err("a mask is an array of booleans")),
    }
}

/// Whether the library of an array on a GPU selects its elements by a mask of the library there.
fn selects_there(array: &Array, mask: Option<&Bound<PyAny>>) -> PyResult<bool> {
    let (Some(mask), Some(place), false) = (mask, Place::of(array)?, array.kind.is_complex) else {
        return Ok(false);
    };
    let mask = Array::of(mask)?;
    Ok(Place::of(&mask)?.is_some_and(|of_mask| place.is_that_of(&of_mask)))
}

/// The results of an operator with one more element. Tensors are combined by their library.
fn with_initial<'py>(
    results: &Bound<'py, PyAny>,
    initial: &Bound<'py, PyAny>,
    operator: Operator,
    are_tensors: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if are_tensors {
        return match operator {
            Operator::Prod => results.mul(initial),
            Operator::BitAnd => results.bitand(initial),
            Operator::BitOr => results.bitor(initial),
            Operator::BitXor => results.bitxor(initial),
            _ => results.add(initial),
        };
    }
    let with = match operator {
        Operator::Prod => "multiply",
        Operator::BitAnd => "bitwise_and",
        Operator::BitOr => "bitwise_or",
        Operator::BitXor => "bitwise_xor",
        _ => "add",
    };
    numpy(results.py())?.module.bind(results.py()).call_method1(with, (results, initial))
}

/// The operators whose `initial` takes part as one more element.
fn is_extreme(operator: Operator) -> bool {
    matches!(operator, Operator::Min | Operator::Max | Operator::NanMin | Operator::NanMax)
}

/// The operators whose results are indices.
pub fn tells_place(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::ArgMin | Operator::ArgMax | Operator::ArgMinMax | Operator::NanArgMin | Operator::NanArgMax
    )
}

/// Whether an index is 0, as where all elements are NaN.
fn has_zeros(indices: &Values) -> bool {
    indices.bytes().chunks_exact(size_of::<u64>()).any(|index| index == [0; size_of::<u64>()])
}

fn has_nans<T: Element>(elements: &Values) -> bool {
    #[expect(clippy::eq_op, reason = "only a NaN differs from itself")]
    cast_slice::<u8, T>(elements.bytes()).iter().any(|element| element != element)
}

fn is_true(object: &Bound<PyAny>) -> bool {
    object.is_exact_instance_of::<pyo3::types::PyBool>() && object.is_truthy().unwrap_or(false)
}

/// The distances of an array's elements along the axes of a larger shape, to which it is repeated.
fn broadcast(from: &[usize], to: &[usize]) -> PyResult<Vec<isize>> {
    let refused =
        || PyValueError::new_err(format!("a mask of shape {from:?} does not fit an array of shape {to:?}"));
    let more = to.len().checked_sub(from.len()).ok_or_else(refused)?;
    let mut strides = vec![0; to.len()];
    let mut next = 1;
    for (axis, &length) in from.iter().enumerate().rev() {
        if length != 1 {
            strides[more + axis] = next;
            if length != to[more + axis] {
                return Err(refused());
            }
        }
        next *= length as isize;
    }
    Ok(strides)
}

/// The axis with this number, which counts from the end if it is negative.
pub fn index_of(axis: &Bound<PyAny>, axes: usize) -> PyResult<usize> {
    let py = axis.py();
    let number: isize =
        axis.extract().map_err(|_| PyTypeError::new_err("axis is an integer or a tuple of integers"))?;
    let place = if number < 0 { number + axes as isize } else { number };
    if (0..axes as isize).contains(&place) {
        return Ok(place as usize);
    }
    let error = py.import("numpy.exceptions")?.getattr("AxisError")?.call1((number, axes))?;
    Err(PyErr::from_value(error))
}

/// An array or a scalar with elements of another type of its library.
fn as_type<'py>(x: &Bound<'py, PyAny>, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    if x.hasattr("astype")? {
        return x.call_method1("astype", (dtype,));
    }
    if x.hasattr("__dlpack__")? {
        return x.call_method1("to", (dtype,));
    }
    numpy(py)?.module.bind(py).call_method1("asarray", (x, dtype))
}

/// A number of Python or NumPy as an element.
fn element<T: Number + Element>(number: &Bound<PyAny>) -> PyResult<T> {
    let py = number.py();
    let scalar = numpy(py)?.module.bind(py).call_method1("asarray", (number, numpy_name(T::TYPE.name())))?;
    let array = Array::of(&scalar)?;
    let items = array.view::<T>().and_then(|view| view.to_vec()).map_err(of_library)?;
    items.first().copied().ok_or_else(|| PyValueError::new_err("initial is one number"))
}

/// The operators that names say: one, or several in a list or tuple.
pub enum Operators {
    One(Operator),
    Several(Vec<Operator>),
}

impl Operators {
    pub fn of(names: &Bound<PyAny>) -> PyResult<Operators> {
        let one = |name: &Bound<PyAny>| -> PyResult<Operator> {
            let name: String = name.extract()?;
            name.parse().map_err(|_| {
                let names =
                    Operator::ALL.iter().map(|operator| operator.name()).collect::<Vec<_>>().join(", ");
                PyValueError::new_err(format!("there is no operator {name:?}; there are {names}"))
            })
        };
        if names.is_instance_of::<PyString>() {
            return Ok(Operators::One(one(names)?));
        }
        let several = names.try_iter()?.map(|name| one(&name?)).collect::<PyResult<_>>()?;
        Ok(Operators::Several(several))
    }

    /// All operators.
    pub fn all(&self) -> &[Operator] {
        match self {
            Operators::One(operator) => from_ref(operator),
            Operators::Several(several) => several,
        }
    }

    /// What `run` returns for the operator, or a list of it for several.
    pub fn map<'py>(
        &self,
        py: Python<'py>,
        run: impl FnOnce(&[Operator]) -> PyResult<Vec<Bound<'py, PyAny>>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut results = run(self.all())?;
        match self {
            Operators::One(_) => Ok(results.swap_remove(0)),
            Operators::Several(_) => Ok(PyList::new(py, results)?.into_any()),
        }
    }
}
