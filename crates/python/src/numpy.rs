//! NumPy, which makes the results.

use std::ffi::c_void;
use std::mem::transmute;

use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyType};

/// What is called of NumPy.
pub struct NumPy {
    pub module: Py<PyModule>,
    pub ndarray: Py<PyType>,
    pub generic: Py<PyType>,
    /// The types in the order of [`SCALARS`].
    types: Vec<Type>,
    make_scalar: MakeScalar,
}

/// A type of NumPy's.
struct Type {
    scalar: Py<PyAny>,
    dtype: Py<PyAny>,
    /// The bytes of an element.
    size: usize,
}

/// `PyArray_Scalar` of NumPy's C interface: makes a scalar of a copy of an element, which has a type of arrays.
type MakeScalar = unsafe extern "C" fn(*const c_void, *mut PyObject, *mut PyObject) -> *mut PyObject;

/// Its number in the interface, of all versions of NumPy (`numpy/_core/code_generators/numpy_api.py`).
const MAKE_SCALAR: usize = 60;

const SCALARS: [(&str, &str); 12] = [
    ("bool", "bool_"),
    ("i8", "int8"),
    ("i16", "int16"),
    ("i32", "int32"),
    ("i64", "int64"),
    ("u8", "uint8"),
    ("u16", "uint16"),
    ("u32", "uint32"),
    ("u64", "uint64"),
    ("f16", "float16"),
    ("f32", "float32"),
    ("f64", "float64"),
];

impl NumPy {
    /// The type of scalars, by the name of the type in Rust; NumPy has none for `bf16` and `i128`.
    pub fn scalar<'py>(&self, py: Python<'py>, name: &str) -> Option<&Bound<'py, PyAny>> {
        Some(self.type_of(name)?.scalar.bind(py))
    }

    /// The type of arrays, as [`scalar`](Self::scalar).
    pub fn dtype<'py>(&self, py: Python<'py>, name: &str) -> Option<&Bound<'py, PyAny>> {
        Some(self.type_of(name)?.dtype.bind(py))
    }

    /// The scalar with these bytes, as [`scalar`](Self::scalar); none also if these are not the bytes of one. (To call the type
    /// of scalars takes 0.3 µs longer for most types.)
    pub fn scalar_of<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        bytes: &[u8],
    ) -> Option<PyResult<Bound<'py, PyAny>>> {
        let of = self.type_of(name).filter(|of| of.size == bytes.len())?;
        // SAFETY: the function copies an element of this type, which these bytes are, and returns a new object.
        Some(unsafe {
            let made = (self.make_scalar)(bytes.as_ptr().cast(), of.dtype.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, made)
        })
    }

    fn type_of(&self, name: &str) -> Option<&Type> {
        let place = SCALARS.iter().position(|&(of_rust, _)| of_rust == name)?;
        Some(&self.types[place])
    }
}

/// NumPy, imported at the first call.
pub fn numpy(py: Python<'_>) -> PyResult<&NumPy> {
    static NUMPY: PyOnceLock<NumPy> = PyOnceLock::new();
    NUMPY.get_or_try_init(py, || {
        let module = py.import("numpy")?;
        let dtype = module.getattr("dtype")?;
        let types = SCALARS.iter().map(|(_, name)| {
            let scalar = module.getattr(*name)?;
            let dtype = dtype.call1((&scalar,))?;
            let size = dtype.getattr("itemsize")?.extract()?;
            Ok(Type { scalar: scalar.unbind(), dtype: dtype.unbind(), size })
        });
        let multiarray =
            py.import("numpy._core.multiarray").or_else(|_| py.import("numpy.core.multiarray"))?;
        let functions = multiarray.getattr("_ARRAY_API")?.cast_into::<PyCapsule>()?.pointer_checked(None)?;
        // SAFETY: the capsule holds the addresses of the interface's functions, of which this is one.
        let make_scalar = unsafe {
            transmute::<*const c_void, MakeScalar>(functions.cast::<*const c_void>().add(MAKE_SCALAR).read())
        };
        Ok(NumPy {
            ndarray: module.getattr("ndarray")?.cast_into()?.unbind(),
            generic: module.getattr("generic")?.cast_into()?.unbind(),
            types: types.collect::<PyResult<_>>()?,
            module: module.unbind(),
            make_scalar,
        })
    })
}
