//! Copies and memsets. Ranges on the device are checked; host pointers are the caller's promise.

use super::state::state;
use super::{Answer, MEMORY, api, require, running};
use cust_raw::{CUdeviceptr, CUresult, CUstream};
use std::ffi::{c_uchar, c_uint, c_ushort, c_void};
use std::ptr;
use std::slice;

/// One end of a copy.
#[derive(Clone, Copy)]
enum End {
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

    /// The address, and whether the device's memory holds it.
    fn locate(self) -> Answer<(u64, bool)> {
        let (Device(address) | Any(address)) = self;
        let known = MEMORY.range(address).is_some();
        require(address != 0 && (known || matches!(self, Any(_))))?;
        Ok((address, known))
    }
}

/// # Safety
///
/// An end in host memory has that many bytes, and nobody else uses them meanwhile.
unsafe fn transfer(to: End, from: End, bytes: usize) -> Answer {
    if bytes == 0 {
        return Ok(());
    }
    let _running = running();
    let (to, to_device) = to.locate()?;
    let (from, from_device) = from.locate()?;
    let source: *const u8 = ptr::with_exposed_provenance(from as usize);
    let target: *mut u8 = ptr::with_exposed_provenance_mut(to as usize);
    // SAFETY: the caller's promise for the ends that are in host memory.
    let copied = unsafe {
        match (to_device, from_device) {
            (true, true) => MEMORY.copy(to, from, bytes as u64),
            (true, false) => MEMORY.write(to, slice::from_raw_parts(source, bytes)),
            (false, true) => MEMORY.read(from, slice::from_raw_parts_mut(target, bytes)),
            (false, false) => {
                ptr::copy(source, target, bytes);
                Ok(())
            }
        }
    };
    copied.map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn fill(device: CUdeviceptr, pattern: &[u8], count: usize) -> Answer {
    if count == 0 {
        return Ok(());
    }
    let _running = running();
    require(device.is_multiple_of(pattern.len() as u64))?;
    MEMORY.fill(device, pattern, count as u64).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn in_current() -> Answer {
    state()?.current().map(drop)
}

fn in_stream(stream: CUstream) -> Answer {
    state()?.stream_context(stream).map(drop)
}

api! {
    fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        in_current()?;
        transfer(Any(to), Any(from), bytes)
    }

    fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        in_stream(stream)?;
        transfer(Any(to), Any(from), bytes)
    }

    fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) {
        in_current()?;
        transfer(Device(to), End::host(from), bytes)
    }

    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) {
        in_stream(stream)?;
        transfer(Device(to), End::host(from), bytes)
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) {
        in_current()?;
        transfer(End::host(to), Device(from), bytes)
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        in_stream(stream)?;
        transfer(End::host(to), Device(from), bytes)
    }

    fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        in_current()?;
        transfer(Device(to), Device(from), bytes)
    }

    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        in_stream(stream)?;
        transfer(Device(to), Device(from), bytes)
    }

    fn cuMemsetD8_v2(device: CUdeviceptr, value: c_uchar, count: usize) {
        in_current()?;
        fill(device, &value.to_ne_bytes(), count)
    }

    fn cuMemsetD8Async(device: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) {
        in_stream(stream)?;
        fill(device, &value.to_ne_bytes(), count)
    }

    fn cuMemsetD16_v2(device: CUdeviceptr, value: c_ushort, count: usize) {
        in_current()?;
        fill(device, &value.to_ne_bytes(), count)
    }

    fn cuMemsetD16Async(device: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) {
        in_stream(stream)?;
        fill(device, &value.to_ne_bytes(), count)
    }

    fn cuMemsetD32_v2(device: CUdeviceptr, value: c_uint, count: usize) {
        in_current()?;
        fill(device, &value.to_ne_bytes(), count)
    }

    fn cuMemsetD32Async(device: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) {
        in_stream(stream)?;
        fill(device, &value.to_ne_bytes(), count)
    }
}
