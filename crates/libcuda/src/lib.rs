//! The CUDA driver API's functions, resolved when the program runs instead of when it is linked.
//!
//! [cust](https://docs.rs/cust) calls the driver through `cu…` functions: cust_raw declares 353, and
//! `libcuda.so.1`, a part of the NVIDIA driver, exports them. A program linked to that library needs a CUDA
//! toolkit to build and a driver to start. This crate defines the 353 functions itself. So a program that
//! uses cust builds, links and starts on any machine, and checks at run time whether there is a driver.
//!
//! # How a function works
//!
//! Each function is a single jump through its slot in a table. The jump changes no argument register and no
//! stack, so the function in the slot receives the caller's arguments and returns to the caller, whatever its
//! signature. A slot holds one of these:
//! - at the start of the program, a function that returns `CUDA_ERROR_NO_DEVICE` (except that
//!   `cuGetErrorString` returns a text, which cust needs to display that error);
//! - after [`load`], the driver's function with that name; after [`install`], another implementation's;
//! - if that implementation lacks the function, one that returns `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! # How to depend on this crate
//!
//! Call [`load`] before the first use of cust; the call also makes rustc link this crate. To build, cust's
//! build script must find a folder with a `lib64` in it, or it panics ("Could not find a cuda installation").
//! Set the environment variable `CUDA_LIBRARY_PATH` to such a folder, for instance `/usr` on most Linux
//! systems. The program links nothing from it, and uses this crate's functions even if a toolkit or driver is
//! installed.
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

/// The file name of the NVIDIA driver's library, the same for all of its versions.
pub const DRIVER: &str = "libcuda.so.1";

/// The name of the implementation whose functions are in the table.
static INSTALLED: OnceLock<&str> = OnceLock::new();

/// An error of [`load`] or [`install`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The NVIDIA driver's library could not be opened.
    #[error("no CUDA driver ({message}): install the NVIDIA driver, or use the CPU backend")]
    NoDriver {
        /// The message of the system's loader, which names the library.
        message: String,
    },
    /// Another implementation already serves the driver API, until the program ends.
    #[error("{installed} already serves the CUDA driver API: use {refused} in a program of its own")]
    AlreadyInstalled {
        /// The implementation that serves it.
        installed: &'static str,
        /// The implementation that was refused.
        refused: &'static str,
    },
}

/// Makes the NVIDIA driver, `libcuda.so.1`, serve the driver API.
///
/// The first call opens the library, which stays open. Every later call, from any thread, returns the same
/// result. Until the first call has returned, the driver API may still report that there is no device.
///
/// # Errors
///
/// [`LoadError::NoDriver`] if the library cannot be opened; [`install`] can still succeed.
/// [`LoadError::AlreadyInstalled`] if [`install`] succeeded before.
pub fn load() -> Result<(), LoadError> {
    static ANSWER: OnceLock<Result<(), LoadError>> = OnceLock::new();
    ANSWER.get_or_init(open_driver).clone()
}

fn open_driver() -> Result<(), LoadError> {
    if let Some(&installed) = INSTALLED.get() {
        return Err(LoadError::AlreadyInstalled { installed, refused: DRIVER });
    }
    // SAFETY: the library with this name is the NVIDIA driver's, which any thread may open at any time.
    let library = unsafe { Library::new(DRIVER) }.map_err(|error| LoadError::NoDriver {
        message: match error {
            libloading::Error::DlOpen { source } => source.to_string(),
            other => other.to_string(),
        },
    })?;
    let resolve = |name: &str| {
        // SAFETY: the symbol's address is only copied; `install` below vouches for the function.
        let function = unsafe { library.get::<*const c_void>(name) }.ok()?;
        Some(*function).filter(|function| !function.is_null())
    };
    // SAFETY: cust_raw's declarations are generated from NVIDIA's header, so the driver's functions have
    // these signatures. They stay loaded, because the library is never closed once it is installed.
    unsafe { install(DRIVER, &resolve) }?;
    std::mem::forget(library);
    Ok(())
}

/// Returns the implementation that serves the driver API: [`DRIVER`] after [`load`], or the name given to
/// [`install`].
pub fn installed() -> Option<&'static str> {
    INSTALLED.get().copied()
}

/// Makes another implementation, such as an emulator, serve the driver API.
///
/// `driver` names the implementation in errors; a second call with the same name changes nothing. `resolve`
/// returns the address of a function by its name, such as `"cuInit"` or `"cuMemAlloc_v2"`. It is called once
/// per function, and must not call this crate, which would deadlock. A function for which it returns `None`
/// returns `CUDA_ERROR_NOT_SUPPORTED`. cust's `Display` for errors needs `cuGetErrorString`.
///
/// # Errors
///
/// [`LoadError::AlreadyInstalled`] if [`load`] succeeded before, or if an implementation with another name is
/// installed.
///
/// # Safety
///
/// Each address must be that of a function with the signature that cust_raw declares for its name, callable
/// from any thread until the program ends.
pub unsafe fn install(
    driver: &'static str,
    resolve: &dyn Fn(&str) -> Option<*const c_void>,
) -> Result<(), LoadError> {
    // `resolve` is not a type parameter: a Rust dylib exports the statics of generic functions, and the
    // linker refuses jumps through an exported table.
    let installed = *INSTALLED.get_or_init(|| {
        for (slot, name) in functions::TABLE.iter().zip(functions::NAMES) {
            let function = resolve(name).unwrap_or(functions::not_supported as *const c_void);
            // Relaxed is enough: `INSTALLED` orders these stores before all that its readers do next.
            slot.store(function.cast_mut(), Relaxed);
        }
        driver
    });
    if installed == driver { Ok(()) } else { Err(LoadError::AlreadyInstalled { installed, refused: driver }) }
}
