//! The Python package `gpu_reduce`.

mod array;
mod call;
mod complex;
mod copies;
mod cuda_interface;
mod dot;
mod enqueue;
mod error;
mod exchange;
mod kind;
mod lanes;
mod norm;
mod numpy;
mod on_gpu;
mod output;
mod partial;
mod parts;
mod reducer;
mod signals;
mod tensor;

use call::{Call, Operators};
use gpu_reduce::Device;
use gpu_reduce_dynamic::{Dtype, Operator};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

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
    module.add_function(wrap_pyfunction!(norm::vector_norm, module)?)?;
    module.add_function(wrap_pyfunction!(dot::vecdot, module)?)?;
    module.add_function(wrap_pyfunction!(dot::exact_dot, module)?)?;
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
