//! NumPy, which makes the results.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// What is called of NumPy.
pub struct NumPy {
    pub module: Py<PyModule>,
    pub ndarray: Py<PyType>,
    pub generic: Py<PyType>,
    /// The types of scalars, in the order of [`SCALARS`].
    scalars: Vec<Py<PyAny>>,
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
        let place = SCALARS.iter().position(|&(of_rust, _)| of_rust == name)?;
        Some(self.scalars[place].bind(py))
    }
}

/// NumPy, imported at the first call.
pub fn numpy(py: Python<'_>) -> PyResult<&NumPy> {
    static NUMPY: PyOnceLock<NumPy> = PyOnceLock::new();
    NUMPY.get_or_try_init(py, || {
        let module = py.import("numpy")?;
        let scalars = SCALARS.iter().map(|(_, name)| Ok(module.getattr(*name)?.unbind()));
        Ok(NumPy {
            ndarray: module.getattr("ndarray")?.cast_into()?.unbind(),
            generic: module.getattr("generic")?.cast_into()?.unbind(),
            scalars: scalars.collect::<PyResult<_>>()?,
            module: module.unbind(),
        })
    })
}
