//! Streams: what is enqueued on one runs in order, while the program goes on.

use crate::cuda::OwnStream;
use crate::data::Data;
use crate::place::Place::{self, Cpu, Gpu};
use crate::{Buffer, Device, Error, Item, Op, cpu};
use std::ffi::c_void;

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
        let device = self.device();
        let elsewhere = |buffer: &Device| {
            Err(Error::OtherDevice { buffer: buffer.to_string(), device: device.to_string() })
        };
        if results.device() != device {
            return elsewhere(&results.device());
        }
        let none = || op.finish(op.identity(), 0).ok_or(Error::EmptyInput { op: O::NAME });
        match (data.place()?, results.place_mut(index)?, &mut self.0) {
            (Cpu(items), Cpu(result), Cpu(())) => {
                *result = match data.len() {
                    0 => none()?,
                    _ => cpu::reduce::<O, D::Slices, D::Pointers>(op, items, block)
                        .unwrap_or(bytemuck::Zeroable::zeroed()),
                };
                Ok(())
            }
            (Gpu((gpu, items)), Gpu((_, result)), Gpu(stream)) if gpu == stream.gpu() => match data.len() {
                0 => stream.fill(result, none()?),
                // SAFETY: as the caller vouches; the result's place is in bounds.
                len => unsafe { stream.enqueue(*op, (items, len as u64), block, result) },
            },
            (Cpu(_), ..) => elsewhere(&Device::cpu()),
            (Gpu((gpu, _)), ..) => elsewhere(&Device(Gpu(gpu.clone()))),
        }
    }
}
