//! The exceptions for errors of the library.

use gpu_reduce::Error;
use gpu_reduce_dynamic::PartialError;
use pyo3::PyErr;
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};

/// The exception of the type that NumPy has for such an error.
pub fn exception(error: gpu_reduce_dynamic::Error) -> PyErr {
    match error {
        gpu_reduce_dynamic::Error::Reduce(error) => of_library(error),
        error @ gpu_reduce_dynamic::Error::Grouped => PyValueError::new_err(error.to_string()),
        error @ gpu_reduce_dynamic::Error::NotIntegers { .. } => PyTypeError::new_err(error.to_string()),
        // (What stopped it has raised an exception of its own.)
        error @ gpu_reduce_dynamic::Error::Stopped => PyRuntimeError::new_err(error.to_string()),
    }
}

/// As [`exception`].
pub fn of_partial(error: PartialError) -> PyErr {
    match error {
        PartialError::Reduce(error) => exception(error),
        error @ PartialError::InOrder { .. } => PyTypeError::new_err(error.to_string()),
        error @ PartialError::Other { .. } => PyValueError::new_err(error.to_string()),
    }
}

/// As [`exception`].
pub fn of_library(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::EmptyInput { op } | Error::EmptySegment { op, .. } => PyValueError::new_err(format!(
            "zero-size array to reduction operation {op} which has no identity"
        )),
        Error::OutOfMemory { .. } => PyMemoryError::new_err(text),
        Error::BadIndex { .. } => PyIndexError::new_err(text),
        Error::BadOffset { .. }
        | Error::NoOffsets
        | Error::LengthMismatch { .. }
        | Error::Shape { .. }
        | Error::DeviceMismatch { .. }
        | Error::BadArray(_)
        | Error::NotContiguous { .. }
        | Error::OutOfBounds { .. }
        | Error::Incomplete { .. }
        | Error::TooManyGroups { .. } => PyValueError::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}

/// As [`exception`], of an error that `copy=True` avoids.
pub fn needs_copy(error: Error) -> PyErr {
    PyValueError::new_err(format!("{error}, or pass copy=True"))
}
