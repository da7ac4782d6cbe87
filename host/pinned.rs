//! Page-locked host memory.

use crate::buffer::{describe, zeroed};
use crate::cuda::Pinned;
use crate::place::Place::{self, Cpu, Gpu};
use crate::{Device, Error, Item};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;

/// Elements in host memory that is page-locked: a GPU copies from and to it by itself, while the program goes on. See [`Device::pinned`]. It is used as a
/// slice, and reduces as one. Dropping it frees it.
pub struct PinnedBuffer<T: Item>(Place<Vec<T>, Pinned>);

impl<T: Item> PinnedBuffer<T> {
    pub(crate) fn zeros(device: &Device, len: usize) -> Result<Self, Error> {
        Ok(Self(match device.0 {
            Cpu(()) => Cpu(zeroed(len)?),
            Gpu(gpu) => {
                let memory = Pinned::new(gpu, len.saturating_mul(size_of::<T>()))?;
                let first = memory.as_ptr().cast::<T>();
                if memory.bytes() > 0 && !first.is_aligned() {
                    return Err(Error::Unaligned { address: first.addr() as u64, align: align_of::<T>() });
                }
                Gpu(memory)
            }
        }))
    }
}

/// Elements in so many bytes.
fn elements<T>(bytes: usize) -> usize {
    bytes.checked_div(size_of::<T>()).unwrap_or(0)
}

impl<T: Item> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Cpu(data) => data,
            Gpu(memory) => match elements::<T>(memory.bytes()) {
                0 => &[],
                // SAFETY: it has so many, aligned; they were zeros, and what is written to them since are `T`s.
                len => unsafe { slice::from_raw_parts(memory.as_ptr().cast(), len) },
            },
        }
    }
}

impl<T: Item> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Cpu(data) => data,
            Gpu(memory) => match elements::<T>(memory.bytes()) {
                0 => &mut [],
                // SAFETY: as above.
                len => unsafe { slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), len) },
            },
        }
    }
}

/// As that of a [`Buffer`](crate::Buffer), with the device whose copies it is for.
impl<T: Item> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let device = Device(match &self.0 {
            Cpu(_) => Cpu(()),
            Gpu(memory) => Gpu(memory.gpu()),
        });
        describe("PinnedBuffer", self.len(), &device, f)
    }
}
