//! Error codes, their names and texts, and each thread's last error.
//!
//! Codes of the driver are also codes of the runtime with the same number.

use cust_raw::CUresult;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_uint};
use std::ptr;

/// `cudaError_t`; 0 for success.
pub type Code = c_uint;
/// The result of a runtime function; `Err` is never 0.
pub type Answer<T = ()> = Result<T, Code>;

pub const INVALID_VALUE: Code = 1;
pub const INVALID_CONFIGURATION: Code = 9;
pub const INVALID_PITCH: Code = 12;
pub const INVALID_SYMBOL: Code = 13;
pub const INVALID_DIRECTION: Code = 21;
pub const INSUFFICIENT_DRIVER: Code = 35;
pub const MISSING_CONFIGURATION: Code = 52;
pub const INVALID_FUNCTION: Code = 98;
pub const INVALID_DEVICE: Code = 101;
pub const NOT_FOUND: Code = 500;
pub const NOT_SUPPORTED: Code = 801;

/// The codes that the driver does not have, with the name and the text of each.
const RUNTIME: &[(Code, &CStr, &CStr)] = &[
    (INVALID_CONFIGURATION, c"cudaErrorInvalidConfiguration", c"invalid configuration argument"),
    (INVALID_PITCH, c"cudaErrorInvalidPitchValue", c"invalid pitch argument"),
    (INVALID_SYMBOL, c"cudaErrorInvalidSymbol", c"invalid device symbol"),
    (INVALID_DIRECTION, c"cudaErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy"),
    (
        INSUFFICIENT_DRIVER,
        c"cudaErrorInsufficientDriver",
        c"CUDA driver version is insufficient for CUDA runtime version",
    ),
    (MISSING_CONFIGURATION, c"cudaErrorMissingConfiguration", c"__global__ function call is not configured"),
    (INVALID_FUNCTION, c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
];

macro_rules! names {
    ($($code:ident $name:literal)*) => {
        /// The codes of the driver that the emulator returns, with the runtime's names for them.
        const NAMES: &[(CUresult, &CStr)] = &[$((CUresult::$code, $name)),*];
    };
}

names! {
    CUDA_SUCCESS c"cudaSuccess"
    CUDA_ERROR_INVALID_VALUE c"cudaErrorInvalidValue"
    CUDA_ERROR_OUT_OF_MEMORY c"cudaErrorMemoryAllocation"
    CUDA_ERROR_NOT_INITIALIZED c"cudaErrorInitializationError"
    CUDA_ERROR_DEINITIALIZED c"cudaErrorCudartUnloading"
    CUDA_ERROR_NO_DEVICE c"cudaErrorNoDevice"
    CUDA_ERROR_INVALID_DEVICE c"cudaErrorInvalidDevice"
    CUDA_ERROR_INVALID_IMAGE c"cudaErrorInvalidKernelImage"
    CUDA_ERROR_INVALID_CONTEXT c"cudaErrorDeviceUninitialized"
    CUDA_ERROR_NO_BINARY_FOR_GPU c"cudaErrorNoKernelImageForDevice"
    CUDA_ERROR_UNSUPPORTED_LIMIT c"cudaErrorUnsupportedLimit"
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED c"cudaErrorPeerAccessUnsupported"
    CUDA_ERROR_INVALID_PTX c"cudaErrorInvalidPtx"
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION c"cudaErrorUnsupportedPtxVersion"
    CUDA_ERROR_INVALID_HANDLE c"cudaErrorInvalidResourceHandle"
    CUDA_ERROR_ILLEGAL_STATE c"cudaErrorIllegalState"
    CUDA_ERROR_NOT_FOUND c"cudaErrorSymbolNotFound"
    CUDA_ERROR_NOT_READY c"cudaErrorNotReady"
    CUDA_ERROR_ILLEGAL_ADDRESS c"cudaErrorIllegalAddress"
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES c"cudaErrorLaunchOutOfResources"
    CUDA_ERROR_LAUNCH_TIMEOUT c"cudaErrorLaunchTimeout"
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED c"cudaErrorPeerAccessAlreadyEnabled"
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED c"cudaErrorPeerAccessNotEnabled"
    CUDA_ERROR_CONTEXT_IS_DESTROYED c"cudaErrorContextIsDestroyed"
    CUDA_ERROR_ASSERT c"cudaErrorAssert"
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED c"cudaErrorHostMemoryAlreadyRegistered"
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED c"cudaErrorHostMemoryNotRegistered"
    CUDA_ERROR_ILLEGAL_INSTRUCTION c"cudaErrorIllegalInstruction"
    CUDA_ERROR_MISALIGNED_ADDRESS c"cudaErrorMisalignedAddress"
    CUDA_ERROR_INVALID_ADDRESS_SPACE c"cudaErrorInvalidAddressSpace"
    CUDA_ERROR_LAUNCH_FAILED c"cudaErrorLaunchFailure"
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE c"cudaErrorCooperativeLaunchTooLarge"
    CUDA_ERROR_NOT_PERMITTED c"cudaErrorNotPermitted"
    CUDA_ERROR_NOT_SUPPORTED c"cudaErrorNotSupported"
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED c"cudaErrorStreamCaptureUnsupported"
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED c"cudaErrorStreamCaptureInvalidated"
    CUDA_ERROR_STREAM_CAPTURE_MERGE c"cudaErrorStreamCaptureMerge"
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED c"cudaErrorStreamCaptureUnmatched"
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED c"cudaErrorStreamCaptureUnjoined"
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION c"cudaErrorStreamCaptureIsolation"
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT c"cudaErrorStreamCaptureImplicit"
    CUDA_ERROR_CAPTURED_EVENT c"cudaErrorCapturedEvent"
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD c"cudaErrorStreamCaptureWrongThread"
    CUDA_ERROR_UNKNOWN c"cudaErrorUnknown"
}

const UNKNOWN: &CStr = c"unrecognized error code";

thread_local! {
    static LAST: Cell<Code> = const { Cell::new(0) };
}

/// Returns the runtime's answer for the driver's.
pub fn check(code: CUresult) -> Answer {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(code as Code) }
}

/// Fails with `cudaErrorInvalidValue` unless `valid`.
pub fn require(valid: bool) -> Answer {
    if valid { Ok(()) } else { Err(INVALID_VALUE) }
}

/// Writes a result to the caller's pointer; fails if it is null.
///
/// # Safety
///
/// `place` is null or valid for writes.
pub unsafe fn put<T>(place: *mut T, value: T) -> Answer {
    require(!place.is_null())?;
    // SAFETY: not null, so valid for writes by the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Keeps an error as the thread's last one, and returns its code.
pub fn keep(answer: Answer) -> Code {
    let code = answer.err().unwrap_or(0);
    if code != 0 {
        LAST.set(code);
    }
    code
}

/// Defines functions of the runtime, which first make the context of the thread's device current.
///
/// `as NAME(STREAM)` also defines the function for files that nvcc compiles with `--default-stream per-thread`:
/// there, a null stream is the thread's own.
///
/// Callers keep CUDA's contract: each pointer is null or points to as many bytes as the call says.
macro_rules! api {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident $arguments:tt $(as $per_thread:ident($stream:ident))? $body:block
    )*) => {$(
        $crate::error::function! { $(#[$attribute])* $name $arguments $body }
        $($crate::error::function! {
            $per_thread $arguments {
                let $stream = $crate::stream::of_thread($stream);
                $body
            }
        })?
    )*};
}
pub(crate) use api;

/// Defines one function for [`api`].
macro_rules! function {
    (
        $(#[$attribute:meta])*
        $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block
    ) => {
        $(#[$attribute])*
        #[allow(non_snake_case, clippy::too_many_arguments, unused_unsafe)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $crate::error::Code {
            // SAFETY: by the runtime's contract, the caller passes pointers that are null or valid; those
            // that this library follows itself, and does not only hand to the driver, each body checks for
            // null.
            $crate::error::keep($crate::runtime::enter().and_then(|_| unsafe { $body }))
        }
    };
}
pub(crate) use function;

fn find(code: Code) -> Option<(&'static CStr, &'static CStr)> {
    if let Some(&(_, name, text)) = RUNTIME.iter().find(|row| row.0 == code) {
        return Some((name, text));
    }
    let &(code, name) = NAMES.iter().find(|row| row.0 as Code == code)?;
    let mut text = ptr::null();
    // SAFETY: `text` is valid for writes; the driver's texts are constants.
    unsafe {
        let _ = cust_raw::cuGetErrorString(code, &mut text);
        (!text.is_null()).then(|| (name, CStr::from_ptr(text)))
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: Code) -> *const c_char {
    find(code).map_or(UNKNOWN, |(name, _)| name).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: Code) -> *const c_char {
    // The texts of the driver's codes are the driver's, also before the first call of another function.
    let _ = crate::runtime::enter();
    find(code).map_or(UNKNOWN, |(_, text)| text).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> Code {
    LAST.replace(0)
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> Code {
    LAST.get()
}
