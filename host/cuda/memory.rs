//! GPU memory, pinned host memory, and copies.

use super::Gpu;
use super::staging::STAGED_BYTES;
use crate::Error;
use crate::buffer::host_out_of_memory;
use cust::error::{CudaError, CudaResult};
use cust::memory::{
    AsyncCopyDestination, DeviceBuffer, DeviceCopy, DevicePointer, DeviceSlice, LockedBuffer,
};
use cust::stream::Stream;
use cust::sys::{self, CUcontext, CUpointer_attribute_enum as Attribute, CUresult};
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;

/// Memory on a GPU. Its copies have ended when a call returns.
pub struct Memory {
    gpu: &'static Gpu,
    bytes: ManuallyDrop<DeviceBuffer<u8>>,
}

/// Page-locked host memory, which a GPU can copy from and to asynchronously.
pub struct Pinned {
    gpu: &'static Gpu,
    bytes: ManuallyDrop<LockedBuffer<u8>>,
}

impl Gpu {
    pub(super) fn allocate<V: DeviceCopy>(&self, len: usize) -> Result<DeviceBuffer<V>, Error> {
        // SAFETY: the callers write the memory before they read it.
        let allocated = self.with_all_memory(|| unsafe { DeviceBuffer::uninitialized(len) });
        allocated.map_err(|error| match error {
            CudaError::OutOfMemory => {
                let free = cust::memory::mem_get_info().ok().map(|(free, _)| free);
                let requested = len.saturating_mul(size_of::<V>());
                Error::OutOfMemory { device: self.to_string(), requested, free }
            }
            error => self.failed("allocating", error),
        })
    }

    /// Runs `work` on a stream and waits for the stream.
    fn on_stream(
        &self,
        call: &'static str,
        work: impl FnOnce(&Stream) -> CudaResult<()>,
    ) -> Result<(), Error> {
        self.with_workspace(|workspace| {
            work(&workspace.queue.stream)
                .and_then(|()| workspace.queue.stream.synchronize())
                .map_err(|error| self.failed(call, error))
        })
    }

    /// Copies `data` to the device.
    ///
    /// # Safety
    ///
    /// At `address` is memory for `data`, which nothing else uses meanwhile.
    pub unsafe fn write(&self, address: u64, data: &[u8]) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        let mut target = unsafe { bytes_at(address, data.len()) };
        if data.len() >= STAGED_BYTES {
            return self.upload(data, target);
        }
        self.on_stream("copying to the device", |stream| {
            // SAFETY: the stream is waited for before `data` or the memory can be freed.
            if data.is_empty() { Ok(()) } else { unsafe { target.async_copy_from(data, stream) } }
        })
    }

    /// Copies from the device to `data`.
    ///
    /// # Safety
    ///
    /// At `address` are `data.len()` bytes, which nothing writes to meanwhile.
    pub unsafe fn read(&self, address: u64, data: &mut [u8]) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        let source = unsafe { bytes_at(address, data.len()) };
        self.on_stream("copying from the device", |stream| {
            // SAFETY: the stream is waited for before `data` or the memory can be freed.
            if data.is_empty() { Ok(()) } else { unsafe { source.async_copy_to(data, stream) } }
        })
    }

    /// Returns an error unless the driver knows `bytes` bytes at `address` that the device can read in its
    /// primary context. Memory that streams allocate (`cuMemAllocAsync`) belongs to no context.
    pub fn check_memory(&self, address: u64, bytes: usize) -> Result<(), Error> {
        let _entered = self.enter()?;
        let ask = |attribute, place: *mut c_void| {
            // SAFETY: `place` has the attribute's type.
            unsafe { sys::cuPointerGetAttribute(place, attribute, address) }
        };
        let (mut kind, mut ordinal, mut context) = (0u32, 0i32, null_mut::<c_void>());
        let asked = ask(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut kind).cast());
        self.done("asking what an address is", asked)?;
        let mut managed = 0u32;
        let asked = ask(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut managed).cast());
        let is_managed = asked == CUresult::CUDA_SUCCESS && managed & 0xff != 0;
        if kind == sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE as u32 && !is_managed {
            let asked = ask(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut ordinal).cast());
            self.done("asking what an address is", asked)?;
            if ordinal as usize != self.index {
                let buffer = format!("cuda:{ordinal}");
                return Err(Error::DeviceMismatch { buffer, device: self.to_string() });
            }
            let asked = ask(Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, (&raw mut context).cast());
            let context: CUcontext = context.cast();
            if asked == CUresult::CUDA_SUCCESS && !context.is_null() && context != self.raw_context() {
                return Err(self.other_context("the memory", context));
            }
        }
        let (mut base, mut size) = (0, 0);
        // SAFETY: `base` and `size` receive the results.
        let known = unsafe { sys::cuMemGetAddressRange_v2(&mut base, &mut size, address) };
        let end = address.checked_add(bytes as u64);
        if known != CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        let mut after = base + size as u64;
        let is_beyond = |after| end.is_none_or(|end| end > after);
        if is_beyond(after) {
            let mut is_allocated_whole = 1u32;
            let place = (&raw mut is_allocated_whole).cast();
            // Memory of `cuMemMap` may be in pieces, each with a range of its own: PyTorch's expandable segments are.
            let asked = ask(Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, place);
            let may_be_in_pieces = asked == CUresult::CUDA_SUCCESS && is_allocated_whole & 0xff == 0;
            while may_be_in_pieces && end.is_some() && is_beyond(after) {
                // SAFETY: `base` and `size` receive the results.
                let known = unsafe { sys::cuMemGetAddressRange_v2(&mut base, &mut size, after) };
                if known != CUresult::CUDA_SUCCESS || base + size as u64 <= after {
                    break;
                }
                after = base + size as u64;
            }
        }
        if is_beyond(after) {
            return Err(Error::OutOfBounds { start: 0, end: bytes, len: (after - address) as usize });
        }
        Ok(())
    }
}

/// # Safety
///
/// At `address` are `len` bytes of device memory.
pub(super) unsafe fn bytes_at(address: u64, len: usize) -> DeviceSlice<u8> {
    // SAFETY: the caller's contract.
    unsafe { DeviceSlice::from_raw_parts(DevicePointer::from_raw(address), len) }
}

impl Memory {
    /// Allocates uninitialised memory. Write or clear it before it is read.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self, Error> {
        let _entered = gpu.enter()?;
        let kept = gpu.keeper.take(bytes);
        Ok(Self { gpu, bytes: ManuallyDrop::new(kept.map_or_else(|| gpu.allocate(bytes), Ok)?) })
    }

    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Sets every byte to 0.
    pub fn clear(&mut self) -> Result<(), Error> {
        let bytes = &mut self.bytes;
        self.gpu.on_stream("clearing memory", |stream| {
            // SAFETY: the stream is waited for before the memory can be freed or used.
            if bytes.is_empty() { Ok(()) } else { unsafe { bytes.set_zero_async(stream) } }
        })
    }

    /// Copies `data` to the bytes that begin at `start`.
    ///
    /// # Panics
    ///
    /// If they are out of bounds.
    pub fn write(&mut self, start: usize, data: &[u8]) -> Result<(), Error> {
        assert!(start + data.len() <= self.bytes());
        // SAFETY: the range is within this memory.
        unsafe { self.gpu.write(self.address(start), data) }
    }

    /// Copies the bytes that begin at `start` to `data`.
    ///
    /// # Panics
    ///
    /// If they are out of bounds.
    #[cfg(feature = "ladder")]
    pub fn read(&self, start: usize, data: &mut [u8]) -> Result<(), Error> {
        assert!(start + data.len() <= self.bytes());
        // SAFETY: the range is within this memory.
        unsafe { self.gpu.read(self.address(start), data) }
    }

    /// The device address of byte `start`.
    pub fn address(&self, start: usize) -> u64 {
        self.bytes.as_device_ptr().as_raw() + start as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Freeing needs a current context. If that fails, the process is ending (or was forked).
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: taken only here.
            self.gpu.keep_memory(unsafe { ManuallyDrop::take(&mut self.bytes) });
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} bytes on {}", self.bytes(), self.gpu)
    }
}

impl Pinned {
    /// Allocates `bytes` zeros.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self, Error> {
        let _entered = gpu.enter()?;
        // The limit of a slice (`std::slice::from_raw_parts`).
        if isize::try_from(bytes).is_err() {
            return Err(host_out_of_memory::<u8>(bytes));
        }
        // SAFETY: it is zeroed below, before it is read.
        let memory = unsafe { LockedBuffer::<u8>::uninitialized(bytes) };
        let mut memory = memory.map_err(|error| match error {
            CudaError::OutOfMemory => host_out_of_memory::<u8>(bytes),
            error => gpu.failed("allocating pinned memory", error),
        })?;
        // SAFETY: the buffer has `bytes` bytes.
        unsafe { memory.as_mut_ptr().write_bytes(0, bytes) };
        Ok(Self { gpu, bytes: ManuallyDrop::new(memory) })
    }

    /// The GPU in whose context it is allocated.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // As for `Memory`.
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.bytes) }
        }
    }
}
