//! Streams: what is enqueued on one runs in order, while the program goes on.

use crate::call::{Call, Types};
use crate::cuda::{self, OwnStream};
use crate::data::{Data, gpu_of, other_device};
use crate::place::Place::{self, Cpu, Gpu};
use crate::{Buffer, Device, Error, Item, Op, cpu};
use std::ffi::c_void;
use std::sync::Arc;

/// A queue of a device's work. On the CPU it is always empty: what is enqueued is done at once.
///
/// See [`Reduce::enqueue`](crate::Reduce::enqueue).
pub struct Stream(Place<(), OwnStream>);

impl Stream {
    pub(crate) fn new(device: &Device) -> Result<Self, Error> {
        Ok(Self(match &device.0 {
            Cpu(()) => Cpu(()),
            Gpu(gpu) => Gpu(OwnStream::new(gpu)?),
        }))
    }

    /// The device that it is of.
    pub fn device(&self) -> Device {
        Device(match &self.0 {
            Cpu(()) => Cpu(()),
            Gpu(stream) => Gpu(stream.gpu().clone()),
        })
    }

    /// Waits for all that is enqueued.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], also for a launch that failed since.
    pub fn wait(&mut self) -> Result<(), Error> {
        match &self.0 {
            Cpu(()) => Ok(()),
            Gpu(stream) => stream.wait(),
        }
    }

    /// The `CUstream`, for the driver's own functions, such as those that capture a graph; none on the CPU. It lives as long as
    /// the stream.
    pub fn as_raw(&self) -> Option<*mut c_void> {
        match &self.0 {
            Cpu(()) => None,
            Gpu(stream) => Some(stream.as_raw()),
        }
    }

    /// As [`Reduce::enqueue`](crate::Reduce::enqueue).
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn enqueue<'a, D: Data<'a>, O: Op<D::Item>>(
        &mut self,
        data: D,
        op: &O,
        block: u32,
        results: &mut Buffer<O::Output>,
        index: usize,
    ) -> Result<(), Error>
    where
        O::Output: Item,
    {
        let none = || op.finish(op.identity(), 0).ok_or(Error::EmptyInput { op: O::NAME });
        self.has(results.gpu())?;
        match (data.place()?, results.place_mut(index)?, &mut self.0) {
            (Cpu(items), Cpu(result), Cpu(())) => {
                *result = match data.len() {
                    0 => none()?,
                    _ => cpu::reduce::<O, D::Slices, D::Pointers>(op, items, block)
                        .unwrap_or(bytemuck::Zeroable::zeroed()),
                };
                Ok(())
            }
            // SAFETY: as the caller vouches; the result's place is in bounds.
            (Gpu((gpu, items)), Gpu(result), Gpu(stream)) if gpu == stream.gpu() => unsafe {
                match data.len() {
                    0 => stream.fill(result.cast(), bytemuck::bytes_of(&none()?)),
                    len => {
                        let types = Types::of::<O, D::Pointers>();
                        let call = Call::new(types, (&raw const *op).cast(), &items, len as u64, block);
                        stream.enqueue(&call, result.cast())
                    }
                }
            },
            (place, ..) => Err(other_device(gpu_of(&place), &self.device())),
        }
    }

    /// The stream, of a GPU; an error unless the data are on its device.
    pub(crate) fn on(&mut self, gpu: Option<&Arc<cuda::Gpu>>) -> Result<Option<&mut OwnStream>, Error> {
        self.has(gpu)?;
        Ok(match &mut self.0 {
            Cpu(()) => None,
            Gpu(stream) => Some(stream),
        })
    }

    /// An error unless what lies on this GPU, or on the CPU, is on the stream's device.
    fn has(&self, gpu: Option<&Arc<cuda::Gpu>>) -> Result<(), Error> {
        match (gpu, &self.0) {
            (None, Cpu(())) => Ok(()),
            (Some(gpu), Gpu(stream)) if gpu == stream.gpu() => Ok(()),
            _ => Err(other_device(gpu, &self.device())),
        }
    }
}
