//! Page-locked host memory.

use crate::buffer::{check_aligned, describe, zeroed};
use crate::cuda::Pinned;
use crate::place::Place::{self, Cpu, Gpu};
use crate::{Device, Error, Item};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;

/// An array in page-locked host memory, which a GPU copies from and to while the program continues.
///
/// [`Device::pinned`] allocates it. It dereferences to a slice and is reduced as one. Dropping it frees the
/// memory.
pub struct PinnedBuffer<T: Item>(Place<Vec<T>, Pinned>);

impl<T: Item> PinnedBuffer<T> {
    pub(crate) fn zeros(device: &Device, len: usize) -> Result<Self, Error> {
        Ok(Self(match device.0 {
            Cpu(()) => Cpu(zeroed(len)?),
            Gpu(gpu) => {
                let memory = Pinned::new(gpu, len.saturating_mul(size_of::<T>()))?;
                let first = memory.as_ptr().cast::<T>();
                if memory.bytes() > 0 {
                    check_aligned(first)?;
                }
                Gpu(memory)
            }
        }))
    }
}

/// The number of `T`s in `bytes` bytes.
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
                // SAFETY: the memory holds `len` aligned `T`s, which were zeros or were written since.
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

/// As for a [`Buffer`](crate::Buffer), with the device that copies from and to it.
impl<T: Item> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let device = Device(match &self.0 {
            Cpu(_) => Cpu(()),
            Gpu(memory) => Gpu(memory.gpu()),
        });
        describe("PinnedBuffer", self.len(), &device, f)
    }
}
