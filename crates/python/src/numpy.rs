//! NumPy, which makes the results.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// What is called of NumPy.
pub struct NumPy {
    pub module: Py<PyModule>,
    pub ndarray: Py<PyType>,
    pub generic: Py<PyType>,
    /// The types of scalars and those of arrays, in the order of [`SCALARS`].
    types: Vec<[Py<PyAny>; 2]>,
}

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
        Some(self.types_of(name)?[0].bind(py))
    }

    /// The type of arrays, as [`scalar`](Self::scalar).
    pub fn dtype<'py>(&self, py: Python<'py>, name: &str) -> Option<&Bound<'py, PyAny>> {
        Some(self.types_of(name)?[1].bind(py))
    }

    fn types_of(&self, name: &str) -> Option<&[Py<PyAny>; 2]> {
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
            Ok([scalar.unbind(), dtype.unbind()])
        });
        Ok(NumPy {
            ndarray: module.getattr("ndarray")?.cast_into()?.unbind(),
            generic: module.getattr("generic")?.cast_into()?.unbind(),
            types: types.collect::<PyResult<_>>()?,
            module: module.unbind(),
        })
    })
}
