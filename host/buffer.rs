//! Data on a device.

use crate::cuda::{self, Memory};
use crate::place::Place::{self, Cpu, Gpu};
use crate::{Device, Error};
use bytemuck::{CheckedBitPattern, NoUninit, Zeroable};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

/// What a buffer holds: any plain value, such as a number, a `bool`, or a `#[repr(C)]` struct that derives [`Pod`](bytemuck::Pod).
pub trait Item: NoUninit + CheckedBitPattern + Zeroable + Send + Sync {}

impl<T: NoUninit + CheckedBitPattern + Zeroable + Send + Sync> Item for T {}

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
pub struct Buffer<T: Item>(Place<Vec<T>, OnGpu>);

/// A buffer in a GPU's memory.
struct OnGpu {
    memory: Memory,
    /// Elements. (Of those of no size the memory does not tell how many they are.)
    len: usize,
}

/// A range of a [`Buffer`]'s elements, borrowed where they lie.
#[derive(Clone, Copy)]
pub struct View<'a, T: Item>(pub(crate) Place<&'a [T], Part<'a, T>>);

/// A range of elements, borrowed where they lie to be written to, such as the place of a result that is enqueued.
pub struct ViewMut<'a, T: Item>(Place<&'a mut [T], Part<'a, T>>);

/// Elements in a GPU's memory.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a, T> {
    pub gpu: &'static cuda::Gpu,
    /// Where the first is.
    pub address: u64,
    pub len: usize,
    elements: PhantomData<&'a T>,
}

impl<T> Part<'_, T> {
    /// All of a buffer.
    fn of(&OnGpu { ref memory, len }: &OnGpu) -> Self {
        Self { gpu: memory.gpu(), address: memory.address(0), len, elements: PhantomData }
    }

    /// Those in a range, which is in bounds.
    fn slice(self, range: Range<usize>) -> Self {
        let address = self.address + (range.start * size_of::<T>()) as u64;
        Self { address, len: range.len(), ..self }
    }

    /// Where they lie on the device.
    pub fn pointer(self) -> *const T {
        std::ptr::without_provenance(self.address as usize)
    }
}

impl<T: Item> Buffer<T> {
    pub(crate) fn upload(device: &Device, data: &[T]) -> Result<Self, Error> {
        Ok(Self(match &device.0 {
            Cpu(()) => Cpu(copied(data)?),
            Gpu(gpu) => {
                let mut memory = Memory::new(gpu, size_of_val(data))?;
                memory.write(0, bytemuck::cast_slice(data))?;
                Gpu(OnGpu { memory, len: data.len() })
            }
        }))
    }

    pub(crate) fn zeros(device: &Device, len: usize) -> Result<Self, Error> {
        Ok(Self(match &device.0 {
            Cpu(()) => Cpu(zeroed(len)?),
            Gpu(gpu) => {
                let mut memory = Memory::new(gpu, len.saturating_mul(size_of::<T>()))?;
                memory.clear()?;
                Gpu(OnGpu { memory, len })
            }
        }))
    }

    /// The GPU where the elements lie; on the CPU, none.
    pub(crate) fn gpu(&self) -> Option<&'static cuda::Gpu> {
        match &self.0 {
            Cpu(_) => None,
            Gpu(buffer) => Some(buffer.memory.gpu()),
        }
    }

    /// All places, to write to.
    pub(crate) fn whole_mut(&mut self) -> Place<&mut [T], *mut T> {
        self.view_mut().into_places()
    }

    /// The whole buffer as a view to write to.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut(match &mut self.0 {
            Cpu(data) => Cpu(data),
            Gpu(buffer) => Gpu(Part::of(buffer)),
        })
    }

    /// The places of the elements in `range`, to write to.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>, Error> {
        self.view_mut().slice_mut(range)
    }

    /// The whole buffer as a view.
    pub fn view(&self) -> View<'_, T> {
        View(match &self.0 {
            Cpu(data) => Cpu(data),
            Gpu(buffer) => Gpu(Part::of(buffer)),
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

    /// The elements on the host, where they are moved or copied to.
    #[cfg(feature = "ndarray")]
    pub(crate) fn into_vec(self) -> Result<Vec<T>, Error> {
        match self.0 {
            Cpu(data) => Ok(data),
            Gpu(_) => self.to_vec(),
        }
    }

    /// Overwrites the elements from `start` on with `data`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], and then nothing is written; [`Error::Driver`].
    pub fn write(&mut self, start: usize, data: &[T]) -> Result<(), Error> {
        self.slice_mut(start..start.saturating_add(data.len()))?.write(data)
    }
}

impl<'a, T: Item> ViewMut<'a, T> {
    /// As [`Device::view_mut`].
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn of(device: &Device, first: *mut T, len: usize) -> Result<Self, Error> {
        Ok(Self(match device.0 {
            Cpu(()) if len == 0 => Cpu(&mut []),
            Cpu(()) if !first.is_aligned() => {
                return Err(Error::Unaligned { address: first.addr() as u64, align: align_of::<T>() });
            }
            // SAFETY: as the caller vouches.
            Cpu(()) => Cpu(unsafe { std::slice::from_raw_parts_mut(first, len) }),
            // SAFETY: as the caller vouches.
            Gpu(gpu) => Gpu(unsafe { part_of(gpu, first, len)? }),
        }))
    }

    /// The places of the elements in `range` of this view.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    pub fn slice_mut(self, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        let range = resolve(range, self.len())?;
        Ok(Self(match self.0 {
            Cpu(data) => Cpu(&mut data[range]),
            Gpu(part) => Gpu(part.slice(range)),
        }))
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

    /// The same elements, to read.
    pub fn view(&self) -> View<'_, T> {
        View(match &self.0 {
            Cpu(data) => Cpu(data),
            Gpu(part) => Gpu(*part),
        })
    }

    /// Overwrites the elements, from the first on, with `data`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] where there are more of them, and then nothing is written; [`Error::Driver`].
    pub fn write(self, data: &[T]) -> Result<(), Error> {
        match self.slice_mut(..data.len())?.0 {
            Cpu(elements) => elements.copy_from_slice(data),
            // SAFETY: they are borrowed for this alone.
            Gpu(part) => unsafe { part.gpu.write(part.address, bytemuck::cast_slice(data)) }?,
        }
        Ok(())
    }

    /// Where the first element is, on the device: for other libraries, and for kernels of the caller's. What they enqueue has to be ordered with what is
    /// done here, by their stream.
    pub fn as_mut_ptr(self) -> *mut T {
        match self.0 {
            Cpu(data) => data.as_mut_ptr(),
            Gpu(part) => part.pointer().cast_mut(),
        }
    }

    /// The GPU where the elements lie; on the CPU, none.
    pub(crate) fn gpu(&self) -> Option<&'static cuda::Gpu> {
        match &self.0 {
            Cpu(_) => None,
            Gpu(part) => Some(part.gpu),
        }
    }

    /// The places.
    pub(crate) fn into_places(self) -> Place<&'a mut [T], *mut T> {
        match self.0 {
            Cpu(data) => Cpu(data),
            Gpu(part) => Gpu(part.pointer().cast_mut()),
        }
    }
}

impl<'a, T: Item> From<&'a mut Buffer<T>> for ViewMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        buffer.view_mut()
    }
}

/// Elements that the caller has in a GPU's memory.
///
/// # Safety
///
/// As of [`Device::view`], and of [`Device::view_mut`] where they are written to.
unsafe fn part_of<'a, T: Item>(
    gpu: &'static cuda::Gpu,
    first: *const T,
    len: usize,
) -> Result<Part<'a, T>, Error> {
    let address = first.addr() as u64;
    if !first.is_aligned() {
        return Err(Error::Unaligned { address, align: align_of::<T>() });
    }
    let bytes = len.saturating_mul(size_of::<T>());
    if bytes > 0 {
        gpu.check_memory(address, bytes)?;
    }
    Ok(Part { gpu, address, len, elements: PhantomData })
}

impl<'a, T: Item> View<'a, T> {
    /// As [`Device::view`].
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn of(device: &Device, first: *const T, len: usize) -> Result<Self, Error> {
        Ok(Self(match device.0 {
            Cpu(()) if len == 0 => Cpu(&[]),
            Cpu(()) if !first.is_aligned() => {
                return Err(Error::Unaligned { address: first.addr() as u64, align: align_of::<T>() });
            }
            // SAFETY: as the caller vouches.
            Cpu(()) => Cpu(unsafe { std::slice::from_raw_parts(first, len) }),
            // SAFETY: as the caller vouches.
            Gpu(gpu) => Gpu(unsafe { part_of(gpu, first, len)? }),
        }))
    }

    /// Elements in host memory.
    pub(crate) fn host(data: &'a [T]) -> Self {
        Self(Cpu(data))
    }

    /// The elements in `range` of this view.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<View<'a, T>, Error> {
        let range = resolve(range, self.len())?;
        Ok(View(match self.0 {
            Cpu(data) => Cpu(&data[range]),
            Gpu(part) => Gpu(part.slice(range)),
        }))
    }

    /// The number of elements.
    pub fn len(self) -> usize {
        match self.0 {
            Cpu(data) => data.len(),
            Gpu(part) => part.len,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The device the elements lie on.
    pub fn device(self) -> Device {
        Device(match self.0 {
            Cpu(_) => Cpu(()),
            Gpu(part) => Gpu(part.gpu),
        })
    }

    /// Where the first element is, on the device: for other libraries, and for kernels of the caller's.
    pub fn as_ptr(self) -> *const T {
        match self.0 {
            Cpu(data) => data.as_ptr(),
            Gpu(part) => part.pointer(),
        }
    }

    /// Copies the elements to the host.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn to_vec(self) -> Result<Vec<T>, Error> {
        match self.0 {
            Cpu(data) => copied(data),
            Gpu(part) => {
                let mut data = zeroed::<T>(self.len())?;
                let bytes = size_of_val(&data[..]);
                // SAFETY: the bytes of the elements. What is read into them was elements' bytes, or zeros: `T`s were uploaded, or
                // a kernel has stored them.
                let bytes = unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast::<u8>(), bytes) };
                // SAFETY: they are borrowed.
                unsafe { part.gpu.read(part.address, bytes)? };
                Ok(data)
            }
        }
    }
}

/// `Buffer { len: 3, device: cuda:0 (NVIDIA H200) }`: not the elements, which may be many and far away.
impl<T: Item> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.view().describe("Buffer", f)
    }
}

/// As that of a [`Buffer`].
impl<T: Item> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.describe("View", f)
    }
}

impl<T: Item> View<'_, T> {
    fn describe(self, name: &str, f: &mut fmt::Formatter) -> fmt::Result {
        describe(name, self.len(), &self.device(), f)
    }
}

/// Elements, but for what they are.
pub(crate) fn describe(name: &str, len: usize, device: &Device, f: &mut fmt::Formatter) -> fmt::Result {
    f.debug_struct(name).field("len", &len).field("device", &format_args!("{device}")).finish()
}

/// Zeros in host memory.
pub(crate) fn zeroed<T: Item>(len: usize) -> Result<Vec<T>, Error> {
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| host_out_of_memory::<T>(len))
}

/// A copy in host memory.
fn copied<T: Item>(data: &[T]) -> Result<Vec<T>, Error> {
    let mut copy = with_room(data.len())?;
    copy.extend_from_slice(data);
    Ok(copy)
}

/// No elements yet, and room for so many, in host memory.
pub(crate) fn with_room<T: Item>(len: usize) -> Result<Vec<T>, Error> {
    let mut data = Vec::new();
    data.try_reserve_exact(len).map_err(|_| host_out_of_memory::<T>(len))?;
    Ok(data)
}

pub(crate) fn host_out_of_memory<T: Item>(len: usize) -> Error {
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
        assert_eq!(View::host(&huge).to_vec().map(|_| ()), out_of_memory);
        assert_eq!(Device::cpu().upload(&huge[..5]).unwrap().to_vec(), Ok(vec![0; 5]));
    }
}
