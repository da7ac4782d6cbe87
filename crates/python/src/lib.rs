//! The Python package `gpu_reduce`.

mod array;
mod call;
mod complex;
mod copies;
mod cuda_interface;
mod enqueue;
mod error;
mod exchange;
mod kind;
mod lanes;
mod numpy;
mod output;
mod partial;
mod parts;
mod reducer;
mod signals;
mod tensor;

use call::{Call, Operators};
use gpu_reduce::Device;
use gpu_reduce_dynamic::{Dtype, Operator, PairOperator, with_type};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use array::Array;
use complex::{dots, of_parts};
use copies::on_host;
use error::exception;
use numpy::numpy;
use output::{Shape, library_of, to_python};

type Any<'py> = Bound<'py, PyAny>;
type Given<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// Defines functions of one array, by the group of their arguments.
macro_rules! functions {
    ($($group:ident $(($named:literal))? $name:ident $op:ident $doc:literal $example:literal;)*) => {
        $(functions! { @$group $(($named))? $name $op concat!($doc, "\n\n", $example) })*

        fn add_functions(module: &Bound<PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            Ok(())
        }
    };
    (@sum $name:ident $op:ident $doc:expr) => {
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, axis=None, dtype=None, out=None, keepdims=false, initial=None, r#where=None, *, copy=false))]
        #[allow(clippy::too_many_arguments, reason = "NumPy has them")]
        fn $name<'py>(
            x: &Any<'py>,
            axis: Given<'_, 'py>,
            dtype: Given<'_, 'py>,
            out: Given<'_, 'py>,
            keepdims: bool,
            initial: Given<'_, 'py>,
            r#where: Given<'_, 'py>,
            copy: bool,
        ) -> PyResult<Any<'py>> {
            Call { axis, dtype, out, keepdims, initial, mask: r#where, ddof: 0.0, copy }.run(x, Operator::$op)
        }
    };
    (@extreme $name:ident $op:ident $doc:expr) => {
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, axis=None, out=None, keepdims=false, initial=None, r#where=None, *, copy=false))]
        fn $name<'py>(
            x: &Any<'py>,
            axis: Given<'_, 'py>,
            out: Given<'_, 'py>,
            keepdims: bool,
            initial: Given<'_, 'py>,
            r#where: Given<'_, 'py>,
            copy: bool,
        ) -> PyResult<Any<'py>> {
            let call = Call { axis, out, keepdims, initial, mask: r#where, copy, ..Call::default() };
            call.run(x, Operator::$op)
        }
    };
    (@mean $name:ident $op:ident $doc:expr) => {
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, axis=None, dtype=None, out=None, keepdims=false, *, r#where=None, copy=false))]
        fn $name<'py>(
            x: &Any<'py>,
            axis: Given<'_, 'py>,
            dtype: Given<'_, 'py>,
            out: Given<'_, 'py>,
            keepdims: bool,
            r#where: Given<'_, 'py>,
            copy: bool,
        ) -> PyResult<Any<'py>> {
            let call = Call { axis, dtype, out, keepdims, mask: r#where, copy, ..Call::default() };
            call.run(x, Operator::$op)
        }
    };
    (@spread ($named:literal) $name:ident $op:ident $doc:expr) => {
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(name = $named, signature = (
            x, axis=None, dtype=None, out=None, ddof=0.0, keepdims=false, *, r#where=None, correction=None, copy=false
        ))]
        #[allow(clippy::too_many_arguments, reason = "NumPy has them")]
        fn $name<'py>(
            x: &Any<'py>,
            axis: Given<'_, 'py>,
            dtype: Given<'_, 'py>,
            out: Given<'_, 'py>,
            ddof: f64,
            keepdims: bool,
            r#where: Given<'_, 'py>,
            correction: Option<f64>,
            copy: bool,
        ) -> PyResult<Any<'py>> {
            if correction.is_some() && ddof != 0.0 {
                return Err(PyValueError::new_err("ddof and correction can't be provided simultaneously."));
            }
            let ddof = correction.unwrap_or(ddof);
            Call { axis, dtype, out, keepdims, initial: None, mask: r#where, ddof, copy }.run(x, Operator::$op)
        }
    };
    (@place $name:ident $op:ident $doc:expr) => {
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, axis=None, out=None, *, keepdims=false, copy=false))]
        fn $name<'py>(
            x: &Any<'py>,
            axis: Given<'_, 'py>,
            out: Given<'_, 'py>,
            keepdims: bool,
            copy: bool,
        ) -> PyResult<Any<'py>> {
            Call { axis, out, keepdims, copy, ..Call::default() }.run(x, Operator::$op)
        }
    };
    (@truth $name:ident $op:ident $doc:expr) => {
        #[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = (x, axis=None, out=None, keepdims=false, *, r#where=None, copy=false))]
        fn $name<'py>(
            x: &Any<'py>,
            axis: Given<'_, 'py>,
            out: Given<'_, 'py>,
            keepdims: bool,
            r#where: Given<'_, 'py>,
            copy: bool,
        ) -> PyResult<Any<'py>> {
            Call { axis, out, keepdims, mask: r#where, copy, ..Call::default() }.run(x, Operator::$op)
        }
    };
}

functions! {
    sum sum Sum
        "The sum over axes, in NumPy's type: 64 bits for integers and booleans."
        ">>> import numpy as np\n>>> sum(np.array([[1, 2], [3, 4]]), axis=0)\narray([4, 6])";
    sum prod Prod
        "The product over axes, in NumPy's type: 64 bits for integers and booleans."
        ">>> import numpy as np\n>>> prod(np.array([1.5, 4.0]))\nnp.float64(6.0)";
    sum sumsq SumSq
        "The sum of the squares over axes."
        ">>> import numpy as np\n>>> sumsq(np.array([3, -4]))\nnp.int64(25)";
    sum nansum NanSum
        "The sum over axes of the elements that are not NaN."
        ">>> import numpy as np\n>>> nansum(np.array([1.0, np.nan]))\nnp.float64(1.0)";
    sum compensated_sum CompensatedSum
        "The sum over axes, with compensated rounding errors."
        ">>> import numpy as np\n>>> compensated_sum(np.array([1e16, 1.0, -1e16]))\nnp.float64(1.0)";
    mean exact_sum ExactSum
        "The exact sum over axes, rounded once to the nearest number; of integers of 64 bits, Python's integers."
        ">>> import numpy as np\n>>> exact_sum(np.array([1e30, 1.0, -1e30]))\nnp.float64(1.0)";
    extreme min Min
        "The smallest element over axes; NaN if there is a NaN."
        ">>> import numpy as np\n>>> min(np.array([[3, 1], [2, 4]]), axis=1)\narray([1, 2])";
    extreme max Max
        "The largest element over axes; NaN if there is a NaN."
        ">>> import numpy as np\n>>> max(np.array([3.0, 1.0]), initial=5.0)\nnp.float64(5.0)";
    extreme nanmin NanMin
        "The smallest element over axes that is not NaN; NaN if all are."
        ">>> import numpy as np\n>>> nanmin(np.array([3.0, np.nan]))\nnp.float64(3.0)";
    extreme nanmax NanMax
        "The largest element over axes that is not NaN; NaN if all are."
        ">>> import numpy as np\n>>> nanmax(np.array([3.0, np.nan]))\nnp.float64(3.0)";
    truth minmax MinMax
        "The smallest and the largest element over axes, as a tuple."
        ">>> import numpy as np\n>>> minmax(np.array([3, 1, 2]))\n(np.int64(1), np.int64(3))";
    place argmin ArgMin
        "The index of the smallest element, the first of several, or of the first NaN."
        ">>> import numpy as np\n>>> argmin(np.array([3, 1, 1]))\nnp.int64(1)";
    place argmax ArgMax
        "The index of the largest element, the first of several, or of the first NaN."
        ">>> import numpy as np\n>>> argmax(np.array([[3, 1], [1, 2]]), axis=1)\narray([0, 1])";
    place nanargmin NanArgMin
        "The index of the smallest element that is not NaN."
        ">>> import numpy as np\n>>> nanargmin(np.array([np.nan, 2.0]))\nnp.int64(1)";
    place nanargmax NanArgMax
        "The index of the largest element that is not NaN."
        ">>> import numpy as np\n>>> nanargmax(np.array([np.nan, 2.0]))\nnp.int64(1)";
    mean mean Mean
        "The arithmetic mean over axes; NaN of no elements."
        ">>> import numpy as np\n>>> mean(np.array([1, 2]))\nnp.float64(1.5)";
    mean nanmean NanMean
        "The mean over axes of the elements that are not NaN; NaN if all are."
        ">>> import numpy as np\n>>> nanmean(np.array([1.0, np.nan]))\nnp.float64(1.0)";
    mean exact_mean ExactMean
        "The exact mean over axes, rounded once to the nearest number."
        ">>> import numpy as np\n>>> exact_mean(np.array([1e308, 1e308]))\nnp.float64(1e+308)";
    spread("var") var Var
        "The variance over axes: the divisor is the count minus ddof, or minus correction."
        ">>> import numpy as np\n>>> var(np.array([1.0, 3.0]), correction=1)\nnp.float64(2.0)";
    spread("std") std_of Std
        "The standard deviation over axes: the divisor is the count minus ddof, or minus correction."
        ">>> import numpy as np\n>>> std(np.array([1.0, 3.0]))\nnp.float64(1.0)";
    spread("nanvar") nanvar NanVar
        "The variance over axes of the elements that are not NaN."
        ">>> import numpy as np\n>>> nanvar(np.array([1.0, 3.0, np.nan]))\nnp.float64(1.0)";
    spread("nanstd") nanstd NanStd
        "The standard deviation over axes of the elements that are not NaN."
        ">>> import numpy as np\n>>> nanstd(np.array([1.0, 3.0, np.nan]))\nnp.float64(1.0)";
    mean moments Moments
        "The mean and the second, third and fourth central moments over axes, as a tuple."
        ">>> import numpy as np\n>>> [float(m) for m in moments(np.array([1, 2, 3, 6]))]\n[3.0, 3.5, 4.5, 24.5]";
    mean skewness Skewness
        "The skewness over axes, as scipy.stats.skew."
        ">>> import numpy as np\n>>> skewness(np.array([-1.0, 0.0, 1.0]))\nnp.float64(0.0)";
    mean kurtosis Kurtosis
        "The excess kurtosis over axes, as scipy.stats.kurtosis."
        ">>> import numpy as np\n>>> kurtosis(np.array([-1.0, 1.0, -1.0, 1.0]))\nnp.float64(-2.0)";
    mean logsumexp LogSumExp
        "The logarithm of the sum of exponentials over axes, without overflow."
        ">>> import numpy as np\n>>> logsumexp(np.array([1000.0, 1000.0]))\nnp.float64(1000.6931471805599)";
    truth any Any
        "Whether any element over axes is nonzero. A NaN is nonzero."
        ">>> import numpy as np\n>>> any(np.array([0, 2]))\nnp.True_";
    truth all All
        "Whether all elements over axes are nonzero. A NaN is nonzero."
        ">>> import numpy as np\n>>> all(np.array([0, 2]))\nnp.False_";
    truth count_nonzero CountNonzero
        "The number of nonzero elements over axes. A NaN is nonzero."
        ">>> import numpy as np\n>>> count_nonzero(np.array([0, 2]))\nnp.int64(1)";
    truth count_nan CountNan
        "The number of elements over axes that are NaN."
        ">>> import numpy as np\n>>> count_nan(np.array([0.0, np.nan]))\nnp.int64(1)";
    sum bitwise_and BitAnd
        "The bits that are set in all integers over axes."
        ">>> import numpy as np\n>>> bitwise_and(np.array([6, 3]))\nnp.int64(2)";
    sum bitwise_or BitOr
        "The bits that are set in any integer over axes."
        ">>> import numpy as np\n>>> bitwise_or(np.array([6, 3]))\nnp.int64(7)";
    sum bitwise_xor BitXor
        "The bits that are set in an odd number of integers over axes."
        ">>> import numpy as np\n>>> bitwise_xor(np.array([6, 3]))\nnp.int64(5)";
}

/// Reduces by several operators, whose names are in a list: returns a list. With one name, as its function.
///
/// Each result has the bits of its function. On the CPU the elements are read from memory once: parts that
/// fit in a cache are reduced by every operator. On a GPU there is a pass for each operator, but only one for min and
/// max, for argmin and argmax, and over all axes for sum, min and max, and for mean with var or std.
///
/// >>> import numpy as np
/// >>> reduce(np.array([1.0, 2.0]), ["sum", "max"])
/// [np.float64(3.0), np.float64(2.0)]
#[pyfunction]
#[pyo3(signature = (x, ops, axis=None, keepdims=false, *, ddof=0.0, r#where=None, copy=false))]
fn reduce<'py>(
    x: &Any<'py>,
    ops: &Any<'py>,
    axis: Given<'_, 'py>,
    keepdims: bool,
    ddof: f64,
    r#where: Given<'_, 'py>,
    copy: bool,
) -> PyResult<Any<'py>> {
    let call = Call { axis, keepdims, ddof, mask: r#where, copy, ..Call::default() };
    Operators::of(ops)?.map(x.py(), |operators| call.run_all(x, operators))
}

/// The norm of vectors over axes, as numpy.linalg.vector_norm. If ord is another number than 2, 1, 0 and infinity,
/// or the elements are complex numbers and ord is not 2 or 0, the magnitudes and their powers are computed first: of
/// elements on a GPU with copy=True only.
///
/// >>> import numpy as np
/// >>> vector_norm(np.array([3.0, -4.0]))
/// np.float64(5.0)
#[pyfunction]
#[pyo3(signature = (x, axis=None, keepdims=false, ord=2.0, *, copy=false))]
fn vector_norm<'py>(
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

/// The dot products of vectors along an axis, as numpy.vecdot: of complex numbers with the first ones conjugated.
///
/// >>> import numpy as np
/// >>> vecdot(np.array([[1, 2], [3, 4]]), np.array([10, 1]))
/// array([12, 34])
#[pyfunction]
#[pyo3(signature = (x1, x2, axis=-1, *, copy=false), text_signature = "(x1, x2, axis=-1, *, copy=False)")]
fn vecdot<'py>(x1: &Any<'py>, x2: &Any<'py>, axis: isize, copy: bool) -> PyResult<Any<'py>> {
    dot(x1, x2, axis, copy, PairOperator::Dot)
}

/// The exact dot products of vectors along an axis, each rounded once to the nearest number.
///
/// >>> import numpy as np
/// >>> exact_dot(np.array([1e200, 1.0, -1e200]), np.array([1e100, 2.0, 1e100]))
/// np.float64(2.0)
#[pyfunction]
#[pyo3(signature = (x1, x2, axis=-1, *, copy=false), text_signature = "(x1, x2, axis=-1, *, copy=False)")]
fn exact_dot<'py>(x1: &Any<'py>, x2: &Any<'py>, axis: isize, copy: bool) -> PyResult<Any<'py>> {
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

/// The dot products of objects, whose arrays are given too. The results go home with those of `a`.
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
        "i64" | "u64" if operator == PairOperator::Dot => a.kind.dtype.name(),
        held => held,
    };
    to_python(py, &values, name, &shape(values.len()), home.as_ref())
}

/// The names of the devices that reduce: the CPU, and the GPUs that the driver has.
///
/// >>> devices()[0].startswith("cpu (")
/// True
#[pyfunction]
fn devices() -> Vec<String> {
    let gpus = (0..).map_while(|index| Device::cuda(index).ok());
    [Device::cpu()].into_iter().chain(gpus).map(|device| device.to_string()).collect()
}

/// What this package is made of and what it finds: its version, the types and operators, the CPU, and the
/// GPUs or why there are none.
///
/// >>> sorted(show_config())
/// ['cpu', 'dtypes', 'gpus', 'operators', 'version']
#[pyfunction]
fn show_config(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let config = PyDict::new(py);
    config.set_item("version", env!("CARGO_PKG_VERSION"))?;
    config.set_item("dtypes", Dtype::ALL.iter().map(|dtype| dtype.aliases()[0]).collect::<Vec<_>>())?;
    config.set_item("operators", Operator::ALL.iter().map(|operator| operator.name()).collect::<Vec<_>>())?;
    config.set_item("cpu", Device::cpu().to_string())?;
    let gpus = match Device::all() {
        Ok(_) => devices().split_off(1),
        Err(error) => vec![error.to_string()],
    };
    config.set_item("gpus", gpus)?;
    Ok(config)
}

/// Reductions of NumPy arrays, tensors and Arrow arrays.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<PyModule>) -> PyResult<()> {
    add_functions(module)?;
    module.add_function(wrap_pyfunction!(reduce, module)?)?;
    module.add_function(wrap_pyfunction!(vector_norm, module)?)?;
    module.add_function(wrap_pyfunction!(vecdot, module)?)?;
    module.add_function(wrap_pyfunction!(exact_dot, module)?)?;
    module.add_function(wrap_pyfunction!(parts::segment_reduce, module)?)?;
    module.add_function(wrap_pyfunction!(parts::group_by, module)?)?;
    module.add_function(wrap_pyfunction!(parts::bincount, module)?)?;
    module.add_function(wrap_pyfunction!(parts::histogram_of, module)?)?;
    module.add_function(wrap_pyfunction!(parts::index_add, module)?)?;
    module.add_class::<partial::Parts>()?;
    module.add_class::<reducer::Pieces>()?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(show_config, module)?)?;
    // Not in `__all__`: for `gpu_reduce.torch` alone.
    module.setattr("reduce_into", wrap_pyfunction!(enqueue::reduce_into, module)?)?;
    module.setattr("reduce_tensor", wrap_pyfunction!(tensor::reduce_tensor, module)?)?;
    module.setattr("index_add_into", wrap_pyfunction!(enqueue::index_add_into, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
