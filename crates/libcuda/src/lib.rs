//! The CUDA driver API's functions, found when the program runs instead of when it is linked.
//!
//! [cust](https://docs.rs/cust) calls the driver through `cu…` functions: cust_raw declares 353, and
//! `libcuda.so.1`, which belongs to the NVIDIA driver, exports them. A program linked to that library builds
//! only beside a CUDA toolkit and starts only beside a driver. This crate defines the 353 functions itself, so a
//! program that uses cust builds, links and starts on any machine, and finds out when it runs whether there is
//! a driver.
//!
//! # How a function works
//!
//! Each function is a single jump through its slot of one table. The jump touches no argument register and no
//! stack, so the function behind the slot receives the caller's arguments and returns to the caller, whatever its
//! signature. A slot holds
//! - from the program's start, a function that returns `CUDA_ERROR_NO_DEVICE` (but `cuGetErrorString` gives a
//!   text, which cust needs to display that error);
//! - after [`load`], the driver's function of that name, or after [`install`], another implementation's;
//! - where that implementation has no such function, one that returns `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! # What a dependent package does
//!
//! It calls [`load`] before its first use of cust; the call also makes rustc link this crate. To build, cust's
//! build script must find a folder with a `lib64` in it, or it panics ("Could not find a cuda installation"):
//! set the environment variable `CUDA_LIBRARY_PATH` to such a folder, for instance `/usr` on most Linux systems.
//! The program takes nothing from it, and has these functions also where a toolkit or driver is installed.
//!
//! ```
//! match libcuda::load() {
//!     Ok(()) => println!("CUDA {}", cust::CudaApiVersion::get()?.major()),
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), cust::error::CudaError>(())
//! ```

mod functions;

use std::{
    ffi::c_void,
    sync::{OnceLock, atomic::Ordering::Relaxed},
};

use libloading::Library;

/// The NVIDIA driver's library, by the name that all of its versions share.
pub const DRIVER: &str = "libcuda.so.1";

/// Who fills the table.
static INSTALLED: OnceLock<&str> = OnceLock::new();

/// Why the driver API could not be taken from where it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The NVIDIA driver's library could not be opened.
    #[error("no CUDA driver ({message}): install the NVIDIA driver, or use the CPU backend")]
    NoDriver {
        /// What the system's loader said; it names the library.
        message: String,
    },
    /// The driver API is already served from elsewhere, and stays so as long as the program runs.
    #[error("{installed} serves the CUDA driver API already: use {refused} in a program of its own")]
    AlreadyInstalled {
        /// Who serves it.
        installed: &'static str,
        /// Who was asked to.
        refused: &'static str,
    },
}

/// Makes the driver API's functions those of the NVIDIA driver, `libcuda.so.1`.
///
/// The first call opens the library, which stays open; each later call, from any thread, returns the same answer.
/// Until a first call has returned, the driver API may still answer that there is no device.
///
/// # Errors
///
/// [`LoadError::NoDriver`] where the library cannot be opened; [`install`] can follow.
/// [`LoadError::AlreadyInstalled`] where [`install`] came first.
pub fn load() -> Result<(), LoadError> {
    static ANSWER: OnceLock<Result<(), LoadError>> = OnceLock::new();
    ANSWER.get_or_init(open_driver).clone()
}

fn open_driver() -> Result<(), LoadError> {
    if let Some(&installed) = INSTALLED.get() {
        return Err(LoadError::AlreadyInstalled { installed, refused: DRIVER });
    }
    // SAFETY: the library of this name is the NVIDIA driver's, which may be opened at any time, from any thread.
    let library = unsafe { Library::new(DRIVER) }.map_err(|error| LoadError::NoDriver {
        message: match error {
            libloading::Error::DlOpen { source } => source.to_string(),
            other => other.to_string(),
        },
    })?;
    let resolve = |name: &str| {
        // SAFETY: the symbol's address is only copied; what it points to is `install`'s contract.
        let function = unsafe { library.get::<*const c_void>(name) }.ok()?;
        Some(*function).filter(|function| !function.is_null())
    };
    // SAFETY: cust_raw's declarations are generated from NVIDIA's header, so the driver's functions have these
    // signatures; they stay loaded, because the library is never closed once it is installed.
    unsafe { install(DRIVER, &resolve) }?;
    std::mem::forget(library);
    Ok(())
}

/// Who serves the driver API's functions: [`DRIVER`] after [`load`], the name given to [`install`], or nobody yet.
pub fn installed() -> Option<&'static str> {
    INSTALLED.get().copied()
}

/// Makes the driver API's functions those of another implementation, such as an emulator.
///
/// `driver` names the implementation in errors; a second call with the same name changes nothing. `resolve` gives
/// the address of a function by its name, such as `"cuInit"` or `"cuMemAlloc_v2"`; it is called once for each, and
/// must not call this crate, which would wait for itself. A function for which it gives `None` returns
/// `CUDA_ERROR_NOT_SUPPORTED`. cust's `Display` for errors needs `cuGetErrorString`.
///
/// # Errors
///
/// [`LoadError::AlreadyInstalled`] where [`load`] succeeded before, or an implementation of another name is
/// installed.
///
/// # Safety
///
/// Each address must be that of a function with the signature that cust_raw declares under its name, callable from
/// any thread until the program ends.
pub unsafe fn install(
    driver: &'static str,
    resolve: &dyn Fn(&str) -> Option<*const c_void>,
) -> Result<(), LoadError> {
    // `resolve` is no type parameter: a Rust dylib exports the statics of generic functions, and the linker refuses
    // jumps through an exported table.
    let installed = *INSTALLED.get_or_init(|| {
        for (slot, name) in functions::TABLE.iter().zip(functions::NAMES) {
            let function = resolve(name).unwrap_or(functions::not_supported as *const c_void);
            // Relaxed is enough: `INSTALLED` orders the table before what its callers do next.
            slot.store(function.cast_mut(), Relaxed);
        }
        driver
    });
    if installed == driver { Ok(()) } else { Err(LoadError::AlreadyInstalled { installed, refused: driver }) }
}
