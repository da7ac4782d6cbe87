//! Memory on a GPU, and copies to and from it.

use super::Gpu;
use super::staging::STAGED_BYTES;
use crate::Error;
use cust::error::{CudaError, CudaResult};
use cust::memory::{AsyncCopyDestination, DeviceBuffer, DeviceCopy};
use cust::stream::Stream;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Memory on a GPU. Copies are by the stream of a workspace and have ended when a call returns.
pub struct Memory {
    gpu: Arc<Gpu>,
    bytes: ManuallyDrop<DeviceBuffer<u8>>,
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
}

impl Memory {
    /// Uninitialised memory: write or clear it before it is read.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, Error> {
        let _entered = gpu.enter()?;
        Ok(Self { gpu: gpu.clone(), bytes: ManuallyDrop::new(gpu.allocate(bytes)?) })
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
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

    /// Copies `data` to the bytes from `start` on, which must be in bounds.
    pub fn write(&mut self, start: usize, data: &[u8]) -> Result<(), Error> {
        let mut target = self.bytes.index(start..start + data.len());
        if data.len() >= STAGED_BYTES {
            return self.gpu.upload(data, target);
        }
        self.gpu.on_stream("copying to the device", |stream| {
            // SAFETY: the stream is waited for before `data` or the memory can go.
            if data.is_empty() { Ok(()) } else { unsafe { target.async_copy_from(data, stream) } }
        })
    }

    /// Copies the bytes from `start` on to `data`; they must be in bounds.
    pub fn read(&self, start: usize, data: &mut [u8]) -> Result<(), Error> {
        let source = self.bytes.index(start..start + data.len());
        self.gpu.on_stream("copying from the device", |stream| {
            // SAFETY: the stream is waited for before `data` or the memory can go.
            if data.is_empty() { Ok(()) } else { unsafe { source.async_copy_to(data, stream) } }
        })
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
