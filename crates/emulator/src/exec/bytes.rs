//! Moves the values of lanes to and from memory.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::{
    access::{Request, Values},
    lanes::lanes,
};

/// # Safety
///
/// The bytes of each lane in the mask must be readable and aligned to the size of one element.
pub unsafe fn read_global(request: &Request, values: &mut Values) {
    for (element, values) in values.iter_mut().enumerate() {
        let offset = element as u64 * u64::from(request.size);
        macro_rules! read {
            ($atomic:ident) => {
                for lane in lanes(request.mask) {
                    let address = (request.addresses[lane] + offset) as *mut _;
                    // SAFETY: as the caller vouches.
                    values[lane] = u64::from(unsafe { $atomic::from_ptr(address) }.load(Ordering::Acquire));
                }
            };
        }
        match request.size {
            1 => read!(AtomicU8),
            2 => read!(AtomicU16),
            4 => read!(AtomicU32),
            _ => read!(AtomicU64),
        }
    }
}

/// Returns the lanes whose bytes differ from these values.
///
/// # Safety
///
/// As for [`read_global`].
pub unsafe fn changed_global(request: &Request, values: &Values) -> u32 {
    let mut changed = 0;
    for (element, values) in values.iter().enumerate() {
        let offset = element as u64 * u64::from(request.size);
        macro_rules! compare {
            ($atomic:ident, $int:ident) => {
                for lane in lanes(request.mask) {
                    let address = (request.addresses[lane] + offset) as *mut _;
                    // SAFETY: as the caller vouches.
                    let old = unsafe { $atomic::from_ptr(address) }.load(Ordering::Relaxed);
                    changed |= u32::from(old != values[lane] as $int) << lane;
                }
            };
        }
        match request.size {
            1 => compare!(AtomicU8, u8),
            2 => compare!(AtomicU16, u16),
            4 => compare!(AtomicU32, u32),
            _ => compare!(AtomicU64, u64),
        }
    }
    changed
}

/// # Safety
///
/// The bytes of each lane in the mask must be writable and aligned to the size of one element.
pub unsafe fn write_global(request: &Request, values: &Values) {
    for (element, values) in values.iter().enumerate() {
        let offset = element as u64 * u64::from(request.size);
        macro_rules! write {
            ($atomic:ident, $int:ident) => {
                for lane in lanes(request.mask) {
                    let address = (request.addresses[lane] + offset) as *mut _;
                    // SAFETY: as the caller vouches.
                    unsafe { $atomic::from_ptr(address) }.store(values[lane] as $int, Ordering::Release);
                }
            };
        }
        match request.size {
            1 => write!(AtomicU8, u8),
            2 => write!(AtomicU16, u16),
            4 => write!(AtomicU32, u32),
            _ => write!(AtomicU64, u64),
        }
    }
}

/// Atomically replaces a value with `update` of it. Returns the old value.
///
/// # Safety
///
/// The bytes must be writable and aligned to `size`.
pub unsafe fn update_global(address: u64, size: u32, update: impl Fn(u64) -> u64) -> u64 {
    macro_rules! update {
        ($atomic:ident, $int:ident) => {{
            // SAFETY: as the caller vouches.
            let place = unsafe { $atomic::from_ptr(address as *mut _) };
            let mut old = place.load(Ordering::SeqCst);
            loop {
                let new = update(u64::from(old)) as $int;
                match place.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) => break u64::from(old),
                    Err(now) => old = now,
                }
            }
        }};
    }
    match size {
        1 => update!(AtomicU8, u8),
        2 => update!(AtomicU16, u16),
        4 => update!(AtomicU32, u32),
        _ => update!(AtomicU64, u64),
    }
}

/// Reads the values of each lane. The addresses must be in range.
pub fn copy_out(memory: &[u8], request: &Request, values: &mut Values) {
    for (element, values) in values.iter_mut().enumerate() {
        let offset = element * request.size as usize;
        macro_rules! read {
            ($int:ident) => {
                for lane in lanes(request.mask) {
                    let at = request.addresses[lane] as usize + offset;
                    let mut bytes = [0; size_of::<$int>()];
                    bytes.copy_from_slice(&memory[at..at + size_of::<$int>()]);
                    values[lane] = u64::from($int::from_le_bytes(bytes));
                }
            };
        }
        match request.size {
            1 => read!(u8),
            2 => read!(u16),
            4 => read!(u32),
            _ => read!(u64),
        }
    }
}

/// Writes the values of each lane. The addresses must be in range.
pub fn copy_in(memory: &mut [u8], request: &Request, values: &Values) {
    for (element, values) in values.iter().enumerate() {
        let offset = element * request.size as usize;
        macro_rules! write {
            ($int:ident) => {
                for lane in lanes(request.mask) {
                    let at = request.addresses[lane] as usize + offset;
                    memory[at..at + size_of::<$int>()].copy_from_slice(&(values[lane] as $int).to_le_bytes());
                }
            };
        }
        match request.size {
            1 => write!(u8),
            2 => write!(u16),
            4 => write!(u32),
            _ => write!(u64),
        }
    }
}
