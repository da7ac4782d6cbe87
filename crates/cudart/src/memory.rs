//! Memory: allocations, copies, memsets, variables, and what a program asks about addresses.

use crate::error::{Answer, INVALID_DIRECTION, INVALID_PITCH, INVALID_VALUE, api, check, put, require};
use crate::stream::of_thread;
use crate::{driver, module, runtime};
use cust_raw::{
    CUdevice, CUdeviceptr, CUpointer_attribute, CUstream, cuMemAdvise, cuMemAlloc_v2, cuMemAllocAsync,
    cuMemAllocManaged, cuMemAllocPitch_v2, cuMemFree_v2, cuMemFreeAsync, cuMemFreeHost, cuMemGetInfo_v2,
    cuMemHostAlloc, cuMemHostGetDevicePointer_v2, cuMemHostGetFlags, cuMemHostRegister_v2,
    cuMemHostUnregister, cuMemPrefetchAsync, cuMemcpy, cuMemcpyAsync, cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2,
    cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, cuMemcpyPeer,
    cuMemcpyPeerAsync, cuMemsetD8_v2, cuMemsetD8Async, cuPointerGetAttribute, cuStreamGetFlags,
    cuStreamSynchronize,
};
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::ptr;

/// `cudaMemcpyKind`
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// The addresses say which memory each is in.
    Any,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
}

fn direction(kind: c_int) -> Answer<Direction> {
    match kind {
        // From host to host, and the default.
        0 | 4 => Ok(Direction::Any),
        1 => Ok(Direction::HostToDevice),
        2 => Ok(Direction::DeviceToHost),
        3 => Ok(Direction::DeviceToDevice),
        _ => Err(INVALID_DIRECTION),
    }
}

/// Copies at once, or in a stream.
///
/// # Safety
///
/// Both ends are valid for all bytes, until the stream has done the copy.
unsafe fn copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    direction: Direction,
    stream: Option<CUstream>,
) -> Answer {
    let (target, source) = (to.expose_provenance() as CUdeviceptr, from.expose_provenance() as CUdeviceptr);
    use Direction::*;
    // SAFETY: the caller's promise.
    check(unsafe {
        match (direction, stream) {
            (Any, None) => cuMemcpy(target, source, bytes),
            (HostToDevice, None) => cuMemcpyHtoD_v2(target, from, bytes),
            (DeviceToHost, None) => cuMemcpyDtoH_v2(to, source, bytes),
            (DeviceToDevice, None) => cuMemcpyDtoD_v2(target, source, bytes),
            (Any, Some(stream)) => cuMemcpyAsync(target, source, bytes, stream),
            (HostToDevice, Some(stream)) => cuMemcpyHtoDAsync_v2(target, from, bytes, stream),
            (DeviceToHost, Some(stream)) => cuMemcpyDtoHAsync_v2(to, source, bytes, stream),
            (DeviceToDevice, Some(stream)) => cuMemcpyDtoDAsync_v2(target, source, bytes, stream),
        }
    })
}

/// Rows of memory: the address of the first, and the distance of one row's start from the next one's.
pub struct Rows<P> {
    pub first: P,
    pub pitch: usize,
}

/// Copies rows, each by a copy of its own.
///
/// # Safety
///
/// Each row meets the requirements of [`copy`].
pub unsafe fn copy_rows(
    to: Rows<*mut c_void>,
    from: Rows<*const c_void>,
    width: usize,
    height: usize,
    kind: c_int,
    stream: Option<CUstream>,
) -> Answer {
    if width > to.pitch || width > from.pitch {
        return Err(INVALID_PITCH);
    }
    let direction = direction(kind)?;
    for row in 0..height {
        let (to, from) =
            (to.first.wrapping_byte_add(row * to.pitch), from.first.wrapping_byte_add(row * from.pitch));
        // SAFETY: the caller's promise.
        unsafe { copy(to, from, width, direction, stream)? };
    }
    Ok(())
}

/// Sets bytes at once, or in a stream.
///
/// # Safety
///
/// The memory is valid for all bytes, until the stream has set them.
unsafe fn set(to: CUdeviceptr, value: c_int, bytes: usize, stream: Option<CUstream>) -> Answer {
    let value = value as u8;
    // SAFETY: the caller's promise.
    check(unsafe {
        match stream {
            None => cuMemsetD8_v2(to, value, bytes),
            Some(stream) => cuMemsetD8Async(to, value, bytes, stream),
        }
    })
}

/// Sets rows of bytes, each by a memset of its own.
///
/// # Safety
///
/// Each row meets the requirements of [`set`].
pub unsafe fn set_rows(
    to: CUdeviceptr,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: Option<CUstream>,
) -> Answer {
    if width > pitch {
        return Err(INVALID_PITCH);
    }
    for row in 0..height {
        // SAFETY: the caller's promise.
        unsafe { set(to.wrapping_add((row * pitch) as u64), value, width, stream)? };
    }
    Ok(())
}

/// Returns the address of `bytes` bytes of a variable; fails if it does not have them.
fn part(variable: *const c_void, bytes: usize, offset: usize) -> Answer<usize> {
    let (address, size) = module::symbol(variable)?;
    require(offset.checked_add(bytes).is_some_and(|end| end <= size))?;
    Ok(address as usize + offset)
}

/// Copies to a variable.
///
/// # Safety
///
/// `from` meets the requirements of [`copy`].
unsafe fn copy_to_symbol(
    variable: *const c_void,
    from: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: Option<CUstream>,
) -> Answer {
    let to = ptr::with_exposed_provenance_mut(part(variable, bytes, offset)?);
    let direction = direction(kind)?;
    if !matches!(kind, 1 | 3 | 4) {
        return Err(INVALID_DIRECTION);
    }
    // SAFETY: the caller's promise.
    unsafe { copy(to, from, bytes, direction, stream) }
}

/// Copies from a variable.
///
/// # Safety
///
/// `to` meets the requirements of [`copy`].
unsafe fn copy_from_symbol(
    to: *mut c_void,
    variable: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: Option<CUstream>,
) -> Answer {
    let from = ptr::with_exposed_provenance(part(variable, bytes, offset)?);
    let direction = direction(kind)?;
    if !matches!(kind, 2..=4) {
        return Err(INVALID_DIRECTION);
    }
    // SAFETY: the caller's promise.
    unsafe { copy(to, from, bytes, direction, stream) }
}

/// Does work in the thread's own default stream, and waits for it.
pub fn in_own_stream(work: impl FnOnce(CUstream) -> Answer) -> Answer {
    let own = of_thread(ptr::null_mut());
    work(own)?;
    // SAFETY: takes no pointers.
    check(unsafe { cuStreamSynchronize(own) })
}

/// `cudaMemLocation`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub kind: c_uint,
    pub id: c_int,
}

impl Location {
    /// Returns the device, or `CU_DEVICE_CPU` for the host.
    fn device(self) -> Answer<CUdevice> {
        match self.kind {
            1 => Ok(self.id),
            2..=4 => Ok(-1),
            _ => Err(INVALID_VALUE),
        }
    }
}

/// `cudaPointerAttributes`
#[repr(C)]
struct PointerAttributes {
    /// 0: memory that CUDA does not know, 1: pinned, 2: of a device, 3: managed.
    kind: c_uint,
    device: c_int,
    device_pointer: *mut c_void,
    host_pointer: *mut c_void,
    reserved: [c_long; 8],
}

api! {
    /// Nothing is allocated for 0 bytes.
    fn cudaMalloc(address: *mut CUdeviceptr, bytes: usize) {
        if bytes == 0 { put(address, 0) } else { check(cuMemAlloc_v2(address, bytes)) }
    }

    fn cudaMallocPitch(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize) {
        check(cuMemAllocPitch_v2(address, pitch, width, height, 4))
    }

    fn cudaMallocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) {
        check(cuMemAllocManaged(address, bytes, flags))
    }

    fn cudaMallocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) as cudaMallocAsync_ptsz(stream) {
        check(cuMemAllocAsync(address, bytes, stream))
    }

    fn cudaMallocHost(address: *mut *mut c_void, bytes: usize) {
        check(cuMemHostAlloc(address, bytes, 0))
    }

    fn cudaHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) {
        check(cuMemHostAlloc(address, bytes, flags))
    }

    fn cudaFree(address: CUdeviceptr) {
        check(cuMemFree_v2(address))
    }

    fn cudaFreeAsync(address: CUdeviceptr, stream: CUstream) as cudaFreeAsync_ptsz(stream) {
        check(cuMemFreeAsync(address, stream))
    }

    fn cudaFreeHost(address: *mut c_void) {
        check(cuMemFreeHost(address))
    }

    fn cudaHostRegister(address: *mut c_void, bytes: usize, flags: c_uint) {
        check(cuMemHostRegister_v2(address, bytes, flags))
    }

    fn cudaHostUnregister(address: *mut c_void) {
        check(cuMemHostUnregister(address))
    }

    fn cudaHostGetDevicePointer(device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint) {
        check(cuMemHostGetDevicePointer_v2(device, host, flags))
    }

    fn cudaHostGetFlags(flags: *mut c_uint, host: *mut c_void) {
        check(cuMemHostGetFlags(flags, host))
    }

    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        check(cuMemGetInfo_v2(free, total))
    }

    fn cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) {
        copy(to, from, bytes, direction(kind)?, None)
    }

    fn cudaMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: CUstream) as cudaMemcpyAsync_ptsz(stream) {
        copy(to, from, bytes, direction(kind)?, Some(stream))
    }

    fn cudaMemcpyPeer(
        to: CUdeviceptr,
        to_device: c_int,
        from: CUdeviceptr,
        from_device: c_int,
        bytes: usize,
    ) {
        let (to_context, from_context) = (runtime::context(to_device)?, runtime::context(from_device)?);
        check(cuMemcpyPeer(to, to_context, from, from_context, bytes))
    }

    fn cudaMemcpyPeerAsync(
        to: CUdeviceptr,
        to_device: c_int,
        from: CUdeviceptr,
        from_device: c_int,
        bytes: usize,
        stream: CUstream,
    ) {
        let (to_context, from_context) = (runtime::context(to_device)?, runtime::context(from_device)?);
        check(cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream))
    }

    fn cudaMemcpy2D(
        to: *mut c_void,
        to_pitch: usize,
        from: *const c_void,
        from_pitch: usize,
        width: usize,
        height: usize,
        kind: c_int,
    ) {
        let (to, from) = (Rows { first: to, pitch: to_pitch }, Rows { first: from, pitch: from_pitch });
        copy_rows(to, from, width, height, kind, None)
    }

    fn cudaMemcpy2DAsync(
        to: *mut c_void,
        to_pitch: usize,
        from: *const c_void,
        from_pitch: usize,
        width: usize,
        height: usize,
        kind: c_int,
        stream: CUstream,
    ) as cudaMemcpy2DAsync_ptsz(stream) {
        let (to, from) = (Rows { first: to, pitch: to_pitch }, Rows { first: from, pitch: from_pitch });
        copy_rows(to, from, width, height, kind, Some(stream))
    }

    fn cudaMemcpyToSymbol(
        variable: *const c_void,
        from: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
    ) {
        copy_to_symbol(variable, from, bytes, offset, kind, None)
    }

    fn cudaMemcpyToSymbolAsync(
        variable: *const c_void,
        from: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
        stream: CUstream,
    ) as cudaMemcpyToSymbolAsync_ptsz(stream) {
        copy_to_symbol(variable, from, bytes, offset, kind, Some(stream))
    }

    fn cudaMemcpyFromSymbol(
        to: *mut c_void,
        variable: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
    ) {
        copy_from_symbol(to, variable, bytes, offset, kind, None)
    }

    fn cudaMemcpyFromSymbolAsync(
        to: *mut c_void,
        variable: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
        stream: CUstream,
    ) as cudaMemcpyFromSymbolAsync_ptsz(stream) {
        copy_from_symbol(to, variable, bytes, offset, kind, Some(stream))
    }

    fn cudaMemset(to: CUdeviceptr, value: c_int, bytes: usize) {
        set(to, value, bytes, None)
    }

    fn cudaMemsetAsync(to: CUdeviceptr, value: c_int, bytes: usize, stream: CUstream) as cudaMemsetAsync_ptsz(stream) {
        set(to, value, bytes, Some(stream))
    }

    fn cudaMemset2D(to: CUdeviceptr, pitch: usize, value: c_int, width: usize, height: usize) {
        set_rows(to, pitch, value, width, height, None)
    }

    fn cudaMemset2DAsync(
        to: CUdeviceptr,
        pitch: usize,
        value: c_int,
        width: usize,
        height: usize,
        stream: CUstream,
    ) as cudaMemset2DAsync_ptsz(stream) {
        set_rows(to, pitch, value, width, height, Some(stream))
    }

    fn cudaMemPrefetchAsync(
        address: CUdeviceptr,
        bytes: usize,
        location: Location,
        _flags: c_uint,
        stream: CUstream,
    ) as cudaMemPrefetchAsync_ptsz(stream) {
        check(cuMemPrefetchAsync(address, bytes, location.device()?, stream))
    }

    fn cudaMemAdvise(address: CUdeviceptr, bytes: usize, advice: c_int, location: Location) {
        check(cuMemAdvise(address, bytes, driver::advice(advice)?, location.device()?))
    }

    /// Only checks the stream: the host may use managed memory at any time.
    fn cudaStreamAttachMemAsync(stream: CUstream, _address: CUdeviceptr, _bytes: usize, _flags: c_uint) as cudaStreamAttachMemAsync_ptsz(stream) {
        let mut flags = 0;
        check(cuStreamGetFlags(stream, &mut flags))
    }

    fn cudaPointerGetAttributes(attributes: *mut PointerAttributes, address: *mut c_void) {
        use CUpointer_attribute::*;
        let (mut on_device, mut device, mut managed): (c_uint, c_int, c_uint) = (0, -2, 0);
        let known = |place: *mut c_void, attribute| {
            check(cuPointerGetAttribute(place, attribute, address.addr() as CUdeviceptr)).is_ok()
        };
        let kind = if known((&raw mut on_device).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            known((&raw mut device).cast(), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
            known((&raw mut managed).cast(), CU_POINTER_ATTRIBUTE_IS_MANAGED);
            if managed != 0 { 3 } else { on_device }
        } else {
            0
        };
        let reached = |reached| if reached { address } else { ptr::null_mut() };
        put(attributes, PointerAttributes {
            kind,
            device,
            device_pointer: reached(kind != 0),
            host_pointer: reached(kind != 2),
            reserved: [0; 8],
        })
    }

    fn cudaMemcpy_ptds(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) {
        in_own_stream(|own| copy(to, from, bytes, direction(kind)?, Some(own)))
    }

    fn cudaMemcpy2D_ptds(to: *mut c_void,
        to_pitch: usize,
        from: *const c_void,
        from_pitch: usize,
        width: usize,
        height: usize,
        kind: c_int) {
        in_own_stream(|own| {
            let (to, from) = (Rows { first: to, pitch: to_pitch }, Rows { first: from, pitch: from_pitch });
            copy_rows(to, from, width, height, kind, Some(own))
        })
    }

    fn cudaMemcpyToSymbol_ptds(variable: *const c_void,
        from: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int) {
        in_own_stream(|own| copy_to_symbol(variable, from, bytes, offset, kind, Some(own)))
    }

    fn cudaMemcpyFromSymbol_ptds(to: *mut c_void,
        variable: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int) {
        in_own_stream(|own| copy_from_symbol(to, variable, bytes, offset, kind, Some(own)))
    }

    fn cudaMemset_ptds(to: CUdeviceptr, value: c_int, bytes: usize) {
        in_own_stream(|own| set(to, value, bytes, Some(own)))
    }

    fn cudaMemset2D_ptds(to: CUdeviceptr, pitch: usize, value: c_int, width: usize, height: usize) {
        in_own_stream(|own| set_rows(to, pitch, value, width, height, Some(own)))
    }
}
