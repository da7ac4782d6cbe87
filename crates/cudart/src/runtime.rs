//! The emulator as the driver, and each thread's device with its primary context.

use crate::error::{Answer, INSUFFICIENT_DRIVER, INVALID_DEVICE, check};
use crate::module;
use cust_raw::{
    CUcontext, cuCtxSetCurrent, cuDeviceGetCount, cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxRetain,
    cuInit,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

thread_local! {
    /// The device that `cudaSetDevice` chose.
    static DEVICE: Cell<c_int> = const { Cell::new(0) };
    /// The device whose context is current in the driver.
    static CURRENT: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// The primary context of each device that was used, by address; retained until the program ends.
static CONTEXTS: Mutex<BTreeMap<c_int, usize>> = Mutex::new(BTreeMap::new());

/// Makes the emulator serve the driver's functions.
fn initialise() -> Answer {
    static ANSWER: OnceLock<Answer> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        emulator::install().map_err(|_| INSUFFICIENT_DRIVER)?;
        // SAFETY: takes no pointers.
        check(unsafe { cuInit(0) })
    })
}

/// Returns the primary context of a device.
pub fn context(device: c_int) -> Answer<CUcontext> {
    let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&context) = contexts.get(&device) {
        return Ok(ptr::without_provenance_mut(context));
    }
    let context = retain(device)?;
    contexts.insert(device, context.addr());
    Ok(context)
}

/// Returns the device of a primary context.
pub fn device_of(context: CUcontext) -> Answer<c_int> {
    let contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = contexts.iter().find(|&(_, &known)| known == context.addr());
    known.map(|(&device, _)| device).ok_or(INVALID_DEVICE)
}

fn retain(device: c_int) -> Answer<CUcontext> {
    let mut context = ptr::null_mut();
    // SAFETY: `context` is valid for writes.
    check(unsafe { cuDevicePrimaryCtxRetain(&mut context, device) })?;
    Ok(context)
}

/// Returns the thread's device, whose context is then current in the driver.
pub fn enter() -> Answer<c_int> {
    initialise()?;
    let device = DEVICE.get();
    if CURRENT.get() != Some(device) {
        // SAFETY: the context is live until the program ends.
        check(unsafe { cuCtxSetCurrent(context(device)?) })?;
        CURRENT.set(Some(device));
    }
    Ok(device)
}

/// Returns the number of devices.
pub fn devices() -> Answer<c_int> {
    let mut count = 0;
    // SAFETY: `count` is valid for writes.
    check(unsafe { cuDeviceGetCount(&mut count) })?;
    Ok(count)
}

/// Makes this the thread's device.
pub fn set_device(device: c_int) -> Answer {
    if !(0..devices()?).contains(&device) {
        return Err(INVALID_DEVICE);
    }
    DEVICE.set(device);
    enter().map(drop)
}

/// Frees all that the thread's device has.
pub fn reset() -> Answer {
    let device = enter()?;
    module::forget(device);
    // SAFETY: takes no pointers.
    check(unsafe { cuDevicePrimaryCtxReset_v2(device) })?;
    // Makes the context live again, with the same handle, for all threads that have it as their current one.
    retain(device).map(drop)
}
