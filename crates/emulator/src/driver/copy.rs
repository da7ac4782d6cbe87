//! Copies and memsets. Ranges on the device are checked; host pointers are the caller's promise.

use super::graph::Work;
use super::memory::check_range;
use super::state::state;
use super::{Answer, MEMORY, Running, api, require, running};
use crate::memory::OutOfBounds;
use cust_raw::{CUdeviceptr, CUresult, CUstream};
use std::ffi::{c_uchar, c_uint, c_ushort, c_void};
use std::{fmt, ptr, slice};

/// One end of a copy.
#[derive(Clone, Copy)]
pub enum End {
    /// Memory of the device, or pinned.
    Device(u64),
    /// Any memory.
    Any(u64),
}
use End::{Any, Device};

impl End {
    fn host(pointer: *const c_void) -> Self {
        Any(pointer.addr() as u64)
    }

    /// The end as it is now, if all its bytes are there.
    fn held(self, bytes: usize) -> Answer<Self> {
        let (address, known) = self.locate()?;
        if known {
            check_range(address, bytes)?;
        }
        Ok(if known { Device(address) } else { Any(address) })
    }

    /// The address, and whether the device's memory holds it.
    fn locate(self) -> Answer<(u64, bool)> {
        let (Device(address) | Any(address)) = self;
        let known = MEMORY.range(address).is_some();
        require(address != 0 && (known || matches!(self, Any(_))))?;
        Ok((address, known))
    }
}

/// A copy or a memset.
#[derive(Clone, Copy)]
pub enum MemoryWork {
    Transfer { to: End, from: End, bytes: usize },
    Fill { to: CUdeviceptr, pattern: Pattern, count: usize },
}
use MemoryWork::{Fill, Transfer};

/// What a memset writes, again and again: the first bytes of four, so many.
#[derive(Clone, Copy)]
pub struct Pattern([u8; 4], usize);

impl Pattern {
    fn new<const BYTES: usize>(bytes: [u8; BYTES]) -> Self {
        Self(std::array::from_fn(|index| bytes[index % BYTES]), BYTES)
    }

    fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl fmt::Display for MemoryWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Transfer { to: Device(to) | Any(to), from: Device(from) | Any(from), bytes } => {
                write!(f, "a copy of {bytes} bytes from {from:#x} to {to:#x}")
            }
            Fill { to, pattern, count } => {
                write!(f, "a memset of {count} times {} bytes at {to:#x}", pattern.1)
            }
        }
    }
}

impl MemoryWork {
    /// # Safety
    ///
    /// An end in host memory has that many bytes, and nobody else uses them meanwhile.
    pub unsafe fn run(self, _device: &Running) -> Answer {
        let done = match self {
            Transfer { bytes: 0, .. } | Fill { count: 0, .. } => return Ok(()),
            Transfer { to, from, bytes } => {
                let (to, from) = (to.locate()?, from.locate()?);
                // SAFETY: the caller's promise.
                unsafe { transfer(to, from, bytes) }
            }
            Fill { to, pattern, count } => {
                require(to.is_multiple_of(pattern.1 as u64))?;
                MEMORY.fill(to, pattern.bytes(), count as u64)
            }
        };
        done.map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// The same for later, if it could run now. What is the device's memory must still be so then: once it is freed, it is
    /// not to be taken for the host's.
    fn captured(self) -> Answer<Self> {
        Ok(match self {
            Transfer { bytes: 0, .. } | Fill { count: 0, .. } => self,
            Transfer { to, from, bytes } => Transfer { to: to.held(bytes)?, from: from.held(bytes)?, bytes },
            Fill { to, pattern, count } => {
                require(to.is_multiple_of(pattern.1 as u64))?;
                Device(to).held(count.saturating_mul(pattern.1))?;
                self
            }
        })
    }
}

/// Copies between addresses, each with whether the device's memory holds it.
///
/// # Safety
///
/// That of [`MemoryWork::run`].
unsafe fn transfer(to: (u64, bool), from: (u64, bool), bytes: usize) -> Result<(), OutOfBounds> {
    let ((to, to_device), (from, from_device)) = (to, from);
    let source: *const u8 = ptr::with_exposed_provenance(from as usize);
    let target: *mut u8 = ptr::with_exposed_provenance_mut(to as usize);
    // SAFETY: the caller's promise for the ends that are in host memory.
    unsafe {
        match (to_device, from_device) {
            (true, true) => MEMORY.copy(to, from, bytes as u64),
            (true, false) => MEMORY.write(to, slice::from_raw_parts(source, bytes)),
            (false, true) => MEMORY.read(from, slice::from_raw_parts_mut(target, bytes)),
            (false, false) => {
                ptr::copy(source, target, bytes);
                Ok(())
            }
        }
    }
}

/// Copies at once, in the legacy stream.
///
/// # Safety
///
/// That of [`MemoryWork::run`].
unsafe fn now(work: MemoryWork) -> Answer {
    state()?.in_legacy_stream()?;
    // SAFETY: the caller's promise.
    unsafe { work.run(&running()) }
}

/// Copies in a stream, or lets it capture the copy.
///
/// # Safety
///
/// That of [`MemoryWork::run`], also for the replays of what is captured.
unsafe fn enqueue(stream: CUstream, work: MemoryWork) -> Answer {
    if state()?.capture(stream, || Ok(Work::Memory(work.captured()?)))? {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { work.run(&running()) }
}

api! {
    fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        now(Transfer { to: Any(to), from: Any(from), bytes })
    }

    fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        enqueue(stream, Transfer { to: Any(to), from: Any(from), bytes })
    }

    fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) {
        now(Transfer { to: Device(to), from: End::host(from), bytes })
    }

    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) {
        enqueue(stream, Transfer { to: Device(to), from: End::host(from), bytes })
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) {
        now(Transfer { to: End::host(to), from: Device(from), bytes })
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        enqueue(stream, Transfer { to: End::host(to), from: Device(from), bytes })
    }

    fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        now(Transfer { to: Device(to), from: Device(from), bytes })
    }

    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        enqueue(stream, Transfer { to: Device(to), from: Device(from), bytes })
    }

    fn cuMemsetD8_v2(device: CUdeviceptr, value: c_uchar, count: usize) {
        now(Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }

    fn cuMemsetD8Async(device: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) {
        enqueue(stream, Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }

    fn cuMemsetD16_v2(device: CUdeviceptr, value: c_ushort, count: usize) {
        now(Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }

    fn cuMemsetD16Async(device: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) {
        enqueue(stream, Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }

    fn cuMemsetD32_v2(device: CUdeviceptr, value: c_uint, count: usize) {
        now(Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }

    fn cuMemsetD32Async(device: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) {
        enqueue(stream, Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }
}
