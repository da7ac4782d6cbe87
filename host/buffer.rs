//! Data on a device.

use crate::device::Kind;
use crate::{Device, Element, Error};
use std::ops::{Bound, Range, RangeBounds};
#[cfg(gpu)]
use {crate::gpu::Memory, std::marker::PhantomData};

/// Elements on a device. Dropping it frees them.
///
/// ```
/// use gpu_reduce::{Device, Max, Reduce};
///
/// let mut x = Device::cpu().upload(&[3i32, 1, 4, 1, 5])?;
/// assert_eq!(x.slice(..3)?.reduce::<Max, 256>()?, 4);
/// x.write(0, &[9, 2])?;
/// assert_eq!(x.to_vec()?, [9, 2, 4, 1, 5]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Debug)]
pub struct Buffer<T: Element>(Storage<T>);

#[derive(Debug)]
enum Storage<T: Element> {
    Host(Vec<T>),
    #[cfg(gpu)]
    Gpu(Memory, PhantomData<T>),
}

/// A range of a [`Buffer`]'s elements, borrowed where they lie.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T: Element>(pub(crate) Elements<'a, T>);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Elements<'a, T: Element> {
    Host(&'a [T]),
    /// Memory and the range of its bytes.
    #[cfg(gpu)]
    Gpu(&'a Memory, usize, usize, PhantomData<T>),
}

impl<T: Element> Buffer<T> {
    pub(crate) fn upload(device: &Device, data: &[T]) -> Result<Self, Error> {
        Ok(Self(match &device.0 {
            Kind::Cpu => Storage::Host(copied(data)?),
            #[cfg(gpu)]
            Kind::Gpu(gpu) => {
                let mut memory = Memory::new(gpu, size_of_val(data))?;
                memory.write(0, bytemuck::cast_slice(data))?;
                Storage::Gpu(memory, PhantomData)
            }
        }))
    }

    pub(crate) fn zeros(device: &Device, len: usize) -> Result<Self, Error> {
        Ok(Self(match &device.0 {
            Kind::Cpu => Storage::Host(zeroed(len)?),
            #[cfg(gpu)]
            Kind::Gpu(gpu) => {
                let mut memory = Memory::new(gpu, len.saturating_mul(size_of::<T>()))?;
                memory.clear()?;
                Storage::Gpu(memory, PhantomData)
            }
        }))
    }

    /// The whole buffer as a view.
    pub fn view(&self) -> View<'_, T> {
        View(match &self.0 {
            Storage::Host(data) => Elements::Host(data),
            #[cfg(gpu)]
            Storage::Gpu(memory, _) => Elements::Gpu(memory, 0, memory.bytes(), PhantomData),
        })
    }

    /// The elements in `range`, where they lie: nothing is copied.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>, Error> {
        self.view().slice(range)
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device the elements lie on.
    pub fn device(&self) -> Device {
        self.view().device()
    }

    /// Copies the elements to the host.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        self.view().to_vec()
    }

    /// Overwrites the elements from `start` on with `data`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], and then nothing is written; [`Error::Driver`].
    pub fn write(&mut self, start: usize, data: &[T]) -> Result<(), Error> {
        let range = resolve(start..start.saturating_add(data.len()), self.len())?;
        match &mut self.0 {
            Storage::Host(elements) => elements[range].copy_from_slice(data),
            #[cfg(gpu)]
            Storage::Gpu(memory, _) => memory.write(start * size_of::<T>(), bytemuck::cast_slice(data))?,
        }
        Ok(())
    }
}

impl<'a, T: Element> View<'a, T> {
    /// The elements in `range` of this view.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<View<'a, T>, Error> {
        let range = resolve(range, self.len())?;
        Ok(View(match self.0 {
            Elements::Host(data) => Elements::Host(&data[range]),
            #[cfg(gpu)]
            Elements::Gpu(memory, start, _, _) => {
                let at = |index| start + index * size_of::<T>();
                Elements::Gpu(memory, at(range.start), at(range.end), PhantomData)
            }
        }))
    }

    /// The number of elements.
    pub fn len(self) -> usize {
        match self.0 {
            Elements::Host(data) => data.len(),
            #[cfg(gpu)]
            Elements::Gpu(_, start, end, _) => (end - start) / size_of::<T>(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The device the elements lie on.
    pub fn device(self) -> Device {
        Device(match self.0 {
            Elements::Host(_) => Kind::Cpu,
            #[cfg(gpu)]
            Elements::Gpu(memory, ..) => Kind::Gpu(memory.gpu().clone()),
        })
    }

    /// Copies the elements to the host.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn to_vec(self) -> Result<Vec<T>, Error> {
        match self.0 {
            Elements::Host(data) => copied(data),
            #[cfg(gpu)]
            Elements::Gpu(memory, start, ..) => {
                let mut data = zeroed(self.len())?;
                memory.read(start, bytemuck::cast_slice_mut(&mut data))?;
                Ok(data)
            }
        }
    }
}

/// Zeros in host memory.
fn zeroed<T: Element>(len: usize) -> Result<Vec<T>, Error> {
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| host_out_of_memory::<T>(len))
}

/// A copy in host memory.
fn copied<T: Element>(data: &[T]) -> Result<Vec<T>, Error> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(data.len()).map_err(|_| host_out_of_memory::<T>(data.len()))?;
    copy.extend_from_slice(data);
    Ok(copy)
}

fn host_out_of_memory<T: Element>(len: usize) -> Error {
    Error::OutOfMemory {
        device: Device::cpu().to_string(),
        requested: len.saturating_mul(size_of::<T>()),
        free: None,
    }
}

/// The range meant, if it lies in `0..len`.
fn resolve(range: impl RangeBounds<usize>, len: usize) -> Result<Range<usize>, Error> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    if start <= end && end <= len { Ok(start..end) } else { Err(Error::OutOfBounds { start, end, len }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two thirds of the addresses that a process has on x86-64: there is no room for them twice.
    #[test]
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn what_the_host_has_no_room_for_is_an_error() {
        let bytes = 96 << 40;
        let reserved = memmap2::MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
        let huge = match reserved {
            Ok(huge) => huge,
            Err(why) => return eprintln!("skipped: 96 TiB of addresses are not to be had: {why}"),
        };
        let out_of_memory =
            Err(Error::OutOfMemory { device: Device::cpu().to_string(), requested: bytes, free: None });
        assert_eq!(Device::cpu().upload(&huge).map(|_| ()), out_of_memory);
        assert_eq!(View(Elements::Host(&huge)).to_vec().map(|_| ()), out_of_memory);
        assert_eq!(Device::cpu().upload(&huge[..5]).unwrap().to_vec(), Ok(vec![0; 5]));
    }
}
