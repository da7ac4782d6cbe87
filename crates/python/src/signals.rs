//! Work without Python's lock, which signals interrupt.

use std::sync::{Mutex, PoisonError};

use gpu_reduce_dynamic::Error;
use pyo3::prelude::*;

use crate::error::exception;

/// Runs work without Python's lock. Whenever the work calls its argument, to ask whether to go on, handlers
/// of signals run if this is the main thread; it stops if one raises an exception, as Ctrl-C does.
pub fn detached<R: Send>(
    py: Python,
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<R, Error> + Send,
) -> PyResult<R> {
    let raised = Mutex::new(None);
    let go_on = || match Python::attach(|py| py.check_signals()) {
        Ok(()) => true,
        Err(exception) => {
            raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(exception);
            false
        }
    };
    let result = py.detach(|| work(&go_on));
    match raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(raised) => Err(raised),
        None => result.map_err(exception),
    }
}
