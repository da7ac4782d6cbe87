//! Memory on a GPU, and copies to and from it.

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

/// Memory on a GPU. Copies are by the stream of a workspace and have ended when a call returns.
pub struct Memory {
    gpu: &'static Gpu,
    bytes: ManuallyDrop<DeviceBuffer<u8>>,
}

/// Page-locked memory of the host, which a GPU copies from and to by itself.
pub struct Pinned {
    gpu: &'static Gpu,
    bytes: ManuallyDrop<LockedBuffer<u8>>,
}

impl Gpu {
    pub(super) fn allocate<V: DeviceCopy>(&self, len: usize) -> Result<DeviceBuffer<V>, Error> {
        // SAFETY: memory from a `Memory` is written before it is handed out; that of others is their matter.
        unsafe { DeviceBuffer::uninitialized(len) }.map_err(|error| match error {
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
    /// There is memory for it at the address, which nothing else uses meanwhile.
    pub unsafe fn write(&self, address: u64, data: &[u8]) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        let mut target = unsafe { bytes_at(address, data.len()) };
        if data.len() >= STAGED_BYTES {
            return self.upload(data, target);
        }
        self.on_stream("copying to the device", |stream| {
            // SAFETY: the stream is waited for before `data` or the memory can go.
            if data.is_empty() { Ok(()) } else { unsafe { target.async_copy_from(data, stream) } }
        })
    }

    /// Copies from the device to `data`.
    ///
    /// # Safety
    ///
    /// There is so much at the address, which nothing writes to meanwhile.
    pub unsafe fn read(&self, address: u64, data: &mut [u8]) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        let source = unsafe { bytes_at(address, data.len()) };
        self.on_stream("copying from the device", |stream| {
            // SAFETY: the stream is waited for before `data` or the memory can go.
            if data.is_empty() { Ok(()) } else { unsafe { source.async_copy_to(data, stream) } }
        })
    }
}

impl Gpu {
    /// An error unless the driver knows memory at this address, of so many bytes, as one that the device reads in its primary context. Memory that
    /// streams allocate (`cuMemAllocAsync`) is of no context.
    pub fn check_memory(&self, address: u64, bytes: usize) -> Result<(), Error> {
        let _entered = self.enter()?;
        let ask = |attribute, place: *mut c_void| {
            // SAFETY: the place has the attribute's type.
            unsafe { sys::cuPointerGetAttribute(place, attribute, address) }
        };
        let (mut kind, mut ordinal, mut context) = (0u32, 0i32, null_mut::<c_void>());
        self.done(
            "asking what an address is",
            ask(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut kind).cast()),
        )?;
        let is_managed = {
            let mut is_managed = 0u32;
            ask(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut is_managed).cast())
                == CUresult::CUDA_SUCCESS
                && is_managed & 0xff != 0
        };
        let of_device = kind == sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE as u32 && !is_managed;
        if of_device {
            let asked = ask(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut ordinal).cast());
            self.done("asking what an address is", asked)?;
            if ordinal as usize != self.index {
                return Err(Error::DeviceMismatch {
                    buffer: format!("cuda:{ordinal}"),
                    device: self.to_string(),
                });
            }
            let asked = ask(Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, (&raw mut context).cast());
            let context: CUcontext = context.cast();
            if asked == CUresult::CUDA_SUCCESS && !context.is_null() && context != self.raw_context() {
                return Err(self.other_context("the memory", context));
            }
        }
        let (mut base, mut size) = (0, 0);
        // SAFETY: there are places for both.
        let known = unsafe { sys::cuMemGetAddressRange_v2(&mut base, &mut size, address) };
        let end = address.checked_add(bytes as u64);
        if known == CUresult::CUDA_SUCCESS && end.is_none_or(|end| end > base + size as u64) {
            let len = (base + size as u64 - address) as usize;
            return Err(Error::OutOfBounds { start: 0, end: bytes, len });
        }
        Ok(())
    }
}

/// Bytes on a device.
///
/// # Safety
///
/// There are so many.
pub(super) unsafe fn bytes_at(address: u64, len: usize) -> DeviceSlice<u8> {
    // SAFETY: as the caller vouches.
    unsafe { DeviceSlice::from_raw_parts(DevicePointer::from_raw(address), len) }
}

impl Memory {
    /// Uninitialised memory: write or clear it before it is read.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self, Error> {
        let _entered = gpu.enter()?;
        Ok(Self { gpu, bytes: ManuallyDrop::new(gpu.allocate(bytes)?) })
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
            // SAFETY: the stream is waited for below, before the memory can be freed or used otherwise.
            if bytes.is_empty() { Ok(()) } else { unsafe { bytes.set_zero_async(stream) } }
        })
    }

    /// Copies `data` to the bytes from `start` on.
    ///
    /// # Panics
    ///
    /// Unless they are in bounds.
    pub fn write(&mut self, start: usize, data: &[u8]) -> Result<(), Error> {
        assert!(start + data.len() <= self.bytes());
        // SAFETY: they are this memory's.
        unsafe { self.gpu.write(self.address(start), data) }
    }

    /// Copies the bytes from `start` on to `data`.
    ///
    /// # Panics
    ///
    /// Unless they are in bounds.
    #[cfg(feature = "ladder")]
    pub fn read(&self, start: usize, data: &mut [u8]) -> Result<(), Error> {
        assert!(start + data.len() <= self.bytes());
        // SAFETY: they are this memory's.
        unsafe { self.gpu.read(self.address(start), data) }
    }

    /// Where byte `start` lies on the device.
    pub fn address(&self, start: usize) -> u64 {
        self.bytes.as_device_ptr().as_raw() + start as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Freeing needs a current context; where there is none to be had, the process is ending.
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.bytes) }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} bytes on {}", self.bytes(), self.gpu)
    }
}

impl Pinned {
    /// Zeros.
    pub fn new(gpu: &'static Gpu, bytes: usize) -> Result<Self, Error> {
        let _entered = gpu.enter()?;
        // No slice has more (`std::slice::from_raw_parts`).
        if isize::try_from(bytes).is_err() {
            return Err(host_out_of_memory::<u8>(bytes));
        }
        // SAFETY: it is written below, before it is read.
        let memory = unsafe { LockedBuffer::<u8>::uninitialized(bytes) };
        let mut memory = memory.map_err(|error| match error {
            CudaError::OutOfMemory => host_out_of_memory::<u8>(bytes),
            error => gpu.failed("allocating pinned memory", error),
        })?;
        // SAFETY: it has so many bytes.
        unsafe { memory.as_mut_ptr().write_bytes(0, bytes) };
        Ok(Self { gpu, bytes: ManuallyDrop::new(memory) })
    }

    /// The GPU whose context it is of.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The first byte, if there is one.
    pub fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// As [`as_ptr`](Self::as_ptr), to write to.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // As of a `Memory`.
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.bytes) }
        }
    }
}
