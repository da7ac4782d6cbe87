//! Results as Python's objects.

use std::borrow::Cow;

use gpu_reduce_dynamic::{Dtype, Operator, Values};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyTuple};

use crate::kind::Kind;
use crate::numpy::numpy;
use crate::on_gpu::CuPy;
use crate::tensor;

/// The shape of results: as they lie, and as they are returned.
pub struct Shape {
    /// The lengths of the axes in their order in memory.
    pub lengths: Vec<usize>,
    /// The place in `lengths` of each of these axes in ascending order.
    pub places: Vec<usize>,
    /// The lengths of all axes that are returned; none for a scalar.
    pub returned: Option<Vec<usize>>,
}

impl Shape {
    pub fn scalar() -> Shape {
        Shape { lengths: Vec::new(), places: Vec::new(), returned: None }
    }

    /// One axis.
    pub fn of_len(len: usize) -> Shape {
        Shape { lengths: vec![len], places: vec![0], returned: Some(vec![len]) }
    }
}

/// The name in Rust of the type of an operator's results, which are `name` in the library, in Python: counts
/// and indices are i64, sums of booleans too; statistics of floats of 16 bits have their type, except exact
/// ones.
pub fn type_of(operator: Operator, kind: Kind, name: &'static str) -> &'static str {
    use Operator::*;
    match (operator, name) {
        (ExactSum | ExactMean | ExactSumTwofold, "u64") if kind.is_bool => "i64",
        (ExactSum | ExactMean | ExactSumTwofold, name) => name,
        (ArgMin | ArgMax | ArgMinMax | NanArgMin | NanArgMax | CountNonzero | CountNan, _) => "i64",
        (_, "u8") if kind.is_bool => "bool",
        (_, "u64") if kind.is_bool => "i64",
        (_, "f32") if kind.is_half() => kind.dtype.name(),
        (_, name) => name,
    }
}

/// The results as a NumPy scalar or array, or of the home's library; several numbers each as a tuple.
pub fn to_python<'py>(
    py: Python<'py>,
    values: &Values,
    name: &str,
    shape: &Shape,
    home: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let width = values.width();
    let number = |place| match home.and_then(|home| tensor::of_results(values, place, name, shape, home)) {
        Some(tensor) => Ok(tensor),
        None => one(py, values, place, name, shape, home),
    };
    match width {
        1 => number(0),
        _ => Ok(PyTuple::new(py, (0..width).map(number).collect::<PyResult<Vec<_>>>()?)?.into_any()),
    }
}

/// Number `place` of each result.
fn one<'py>(
    py: Python<'py>,
    values: &Values,
    place: usize,
    name: &str,
    shape: &Shape,
    home: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let numpy = numpy(py)?;
    let held = values.type_name();
    if let (None, None, true) = (&shape.returned, home, has_bits_of(held, name))
        && let Some(scalar) = numpy.scalar_of(py, name, &numbers_at(values, place))
    {
        return scalar;
    }
    // NumPy's scalars refuse integers that do not fit, where its arrays wrap around.
    let may_wrap = matches!(held, "i64" | "u64") && !matches!(name, "i64" | "u64");
    if let (None, None, Some(scalar), false) = (&shape.returned, home, numpy.scalar(py, name), may_wrap) {
        return scalar.call1((number(py, values, place)?,));
    }
    let module = numpy.module.bind(py);
    // NumPy makes the array of the results' bytes at once, with its type and shape.
    if home.is_none()
        && has_bits_of(held, name)
        && shape.places.is_sorted()
        && let (Some(lengths), Some(dtype)) = (&shape.returned, numpy.dtype(py, name))
    {
        return new_array(py, values, place, dtype, lengths);
    }
    let array = if held == "i128" {
        let numbers = (0..values.len()).map(|result| number(py, values, result * values.width() + place));
        let numbers = numbers.collect::<PyResult<Vec<_>>>()?;
        if let (None, None) = (&shape.returned, home) {
            return Ok(numbers[0].clone());
        }
        module.call_method1("array", (numbers, "O"))?
    } else {
        // `bf16` has no type in NumPy: its bits have.
        let dtype = numpy.dtype(py, held).or_else(|| numpy.dtype(py, "u16"));
        let dtype = dtype.ok_or_else(|| PyValueError::new_err(format!("NumPy has no type for {held}")))?;
        let array = new_array(py, values, place, dtype, &[values.len()])?;
        match (held, name) {
            ("bf16", _) => of_bfloat16(&array, home)?,
            _ if held == name => array,
            (_, "bf16") if home.is_some() => array,
            (_, "bf16") => array.call_method1("astype", (py.import("ml_dtypes")?.getattr("bfloat16")?,))?,
            (_, name) => array.call_method1("astype", (numpy_name(name),))?,
        }
    };
    let array = match &shape.returned {
        None => array.call_method1("reshape", ((),))?,
        Some(returned) => {
            let mut array = array;
            if !shape.places.is_sorted() {
                array = array.call_method1("reshape", (PyTuple::new(py, &shape.lengths)?,))?;
                array = array.call_method1("transpose", (PyTuple::new(py, &shape.places)?,))?;
            }
            array.call_method1("reshape", (PyTuple::new(py, returned)?,))?
        }
    };
    match home {
        None if shape.returned.is_none() => array.get_item(()),
        None => Ok(array),
        // Tensors have no objects.
        Some(home) if held == "i128" => {
            let array = array.call_method1("astype", ("i8",)).map_err(|_| {
                PyOverflowError::new_err("an exact sum does not fit int64, the widest type of tensors")
            })?;
            at_home(&array, home, "i64")
        }
        Some(home) => at_home(&array, home, name),
    }
}

/// A NumPy array of number `place` of each result, whose bytes are of this type.
fn new_array<'py>(
    py: Python<'py>,
    values: &Values,
    place: usize,
    dtype: &Bound<'py, PyAny>,
    lengths: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyByteArray::new(py, &numbers_at(values, place));
    numpy(py)?.ndarray.bind(py).call1((PyTuple::new(py, lengths)?, dtype, bytes))
}

/// Whether numbers of the type `held` in Rust have the bits of the type `name` as it is.
pub fn has_bits_of(held: &str, name: &str) -> bool {
    held == name || matches!((held, name), ("u64", "i64") | ("u8", "bool"))
}

/// The bytes of number `place` of each result.
pub fn numbers_at(values: &Values, place: usize) -> Cow<'_, [u8]> {
    let (bytes, width) = (values.bytes(), values.width());
    if width == 1 {
        return bytes.into();
    }
    // (Without results, any size does.)
    let size = (bytes.len() / (values.len() * width).max(1)).max(1);
    bytes.chunks_exact(size).skip(place).step_by(width).flatten().copied().collect()
}

/// A number as Python's float, int or bool.
fn number<'py>(py: Python<'py>, values: &Values, place: usize) -> PyResult<Bound<'py, PyAny>> {
    macro_rules! read {
        ($T:ty) => {{
            let size = size_of::<$T>();
            let bytes = values.bytes()[place * size..].first_chunk();
            <$T>::from_ne_bytes(*bytes.ok_or_else(|| PyValueError::new_err("no result"))?)
        }};
    }
    Ok(match values.type_name() {
        "f64" => read!(f64).into_pyobject(py)?.into_any(),
        "f32" => f64::from(read!(f32)).into_pyobject(py)?.into_any(),
        "f16" => f64::from(gpu_reduce::f16::from_bits(read!(u16))).into_pyobject(py)?.into_any(),
        "bf16" => f64::from(gpu_reduce::bf16::from_bits(read!(u16))).into_pyobject(py)?.into_any(),
        "bool" => (read!(u8) != 0).into_pyobject(py)?.to_owned().into_any(),
        "i8" => read!(i8).into_pyobject(py)?.into_any(),
        "i16" => read!(i16).into_pyobject(py)?.into_any(),
        "i32" => read!(i32).into_pyobject(py)?.into_any(),
        "i64" => read!(i64).into_pyobject(py)?.into_any(),
        "u8" => read!(u8).into_pyobject(py)?.into_any(),
        "u16" => read!(u16).into_pyobject(py)?.into_any(),
        "u32" => read!(u32).into_pyobject(py)?.into_any(),
        "u64" => read!(u64).into_pyobject(py)?.into_any(),
        _ => read!(i128).into_pyobject(py)?.into_any(),
    })
}

/// NumPy's name of a type that it has.
pub fn numpy_name(name: &str) -> &str {
    match name {
        "i128" => "O",
        "bool" => "?",
        name => name.parse::<Dtype>().map_or(name, |dtype| dtype.aliases()[0]),
    }
}

/// An array of bits as `bfloat16` of the package ml_dtypes, which has the type for NumPy.
fn of_bfloat16<'py>(
    bits: &Bound<'py, PyAny>,
    home: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = bits.py();
    if home.is_none() {
        return bits.call_method1("view", (py.import("ml_dtypes")?.getattr("bfloat16")?,));
    }
    // A float of 32 bits with these as its upper half.
    let wide = bits.call_method1("astype", ("u4",))?.call_method1("__lshift__", (16,))?;
    wide.call_method1("astype", ("u4",))?.call_method1("view", ("f4",))
}

/// The name of an object's library.
pub fn library_of(object: &Bound<PyAny>) -> PyResult<String> {
    let module: String = object.get_type().getattr("__module__")?.extract()?;
    Ok(module.split('.').next().unwrap_or_default().to_owned())
}

/// An array as one of the library that `home` is of, on the same device.
pub fn at_home<'py>(
    array: &Bound<'py, PyAny>,
    home: &Bound<'py, PyAny>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    match &library_of(home)?[..] {
        "torch" => {
            let torch = py.import("torch")?;
            let tensor =
                torch.call_method1("from_numpy", (array,))?.call_method1("to", (home.getattr("device")?,))?;
            match name {
                "bf16" => tensor.call_method1("to", (torch.getattr("bfloat16")?,)),
                _ => Ok(tensor),
            }
        }
        "cupy" => {
            let new = || {
                let new = py.import("cupy")?.call_method1("asarray", (array,))?;
                if name == "bf16" { new.call_method1("astype", (home.getattr("dtype")?,)) } else { Ok(new) }
            };
            match CuPy::of(home)? {
                Some(cupy) => {
                    let index = home.getattr("data")?.getattr("device_id")?.extract()?;
                    cupy.on_device(py, index, new)
                }
                None => new(),
            }
        }
        "jax" | "jaxlib" => {
            let new = py.import("jax.numpy")?.call_method1("asarray", (array,))?;
            let new = if name == "bf16" { new.call_method1("astype", ("bfloat16",))? } else { new };
            // JAX makes an array on its default device.
            let there = home.call_method0("devices")?;
            if new.call_method0("devices")?.eq(&there)? {
                return Ok(new);
            }
            match there.try_iter()?.next() {
                Some(device) => py.import("jax")?.call_method1("device_put", (new, device?)),
                None => Ok(new),
            }
        }
        _ if home.hasattr("__array_namespace__")? => {
            home.call_method0("__array_namespace__")?.call_method1("asarray", (array,))
        }
        _ => Ok(array.clone()),
    }
}

/// Writes results to the caller's array, which has their shape, and returns it.
pub fn into_out<'py>(results: &Bound<'py, PyAny>, out: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = results.py();
    let library = library_of(results)?;
    let is_on_gpu = match &library[..] {
        "torch" => results.getattr("is_cuda")?.is_truthy()?,
        library => library == "cupy",
    };
    let of_out = library_of(out)?;
    if is_on_gpu && of_out != library {
        let why = format!(
            "out is an object of {of_out}, but the results are of {library} on a GPU: out has to be an array of {library} \
             on that GPU"
        );
        return Err(PyTypeError::new_err(why));
    }
    let module = numpy(py)?.module.bind(py);
    let shape = |of: &Bound<'py, PyAny>| module.call_method1("shape", (of,));
    let (has, needed) = (shape(out)?, shape(results)?);
    if !has.eq(&needed)? {
        return Err(PyValueError::new_err(format!("out has the shape {has}, but the results have {needed}")));
    }
    match out.is_instance(numpy(py)?.ndarray.bind(py))? {
        true => _ = module.call_method1("copyto", (out, results, "same_kind"))?,
        false => out.set_item(py.Ellipsis(), results)?,
    }
    Ok(out.clone())
}
