//! Arrays on a device: buffers that own their elements, and views that borrow them.

use crate::cuda::{self, Memory};
use crate::place::Place::{self, Cpu, Gpu};
use crate::{Device, Error};
use bytemuck::{CheckedBitPattern, NoUninit, Zeroable};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

/// A type that buffers hold.
///
/// It is any plain value, such as a number, a `bool`, or a `#[repr(C)]` struct that derives
/// [`Pod`](bytemuck::Pod).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an item: it is not plain bytes",
    note = "numbers, `bool`, arrays of these, and structs with `#[repr(C)]` and `#[derive(Clone, Copy, Pod, Zeroable)]` (of bytemuck) are"
)]
pub trait Item: NoUninit + CheckedBitPattern + Zeroable + Send + Sync {}

#[diagnostic::do_not_recommend]
impl<T: NoUninit + CheckedBitPattern + Zeroable + Send + Sync> Item for T {}

/// An array on a device.
///
/// Dropping it frees the memory. Memory of a GPU may be kept for later buffers and results instead, up to a
/// 32nd of the GPU's memory in all.
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

/// An array in a GPU's memory.
struct OnGpu {
    memory: Memory,
    /// The number of elements, which the memory's size does not tell if `T` has no size.
    len: usize,
}

/// A borrowed range of a [`Buffer`]'s elements.
#[derive(Clone, Copy)]
pub struct View<'a, T: Item>(pub(crate) Place<&'a [T], Part<'a, T>>);

/// A mutably borrowed range of a [`Buffer`]'s elements, for example the destination of an enqueued result.
pub struct ViewMut<'a, T: Item>(Place<&'a mut [T], Part<'a, T>>);

/// A range of elements in a GPU's memory.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a, T> {
    pub gpu: &'static cuda::Gpu,
    /// The first element's address.
    pub address: u64,
    pub len: usize,
    elements: PhantomData<&'a T>,
}

impl<T> Part<'_, T> {
    fn of(&OnGpu { ref memory, len }: &OnGpu) -> Self {
        Self { gpu: memory.gpu(), address: memory.address(0), len, elements: PhantomData }
    }

    /// The elements in `range`, which must be in bounds.
    fn slice(self, range: Range<usize>) -> Self {
        let address = self.address + (range.start * size_of::<T>()) as u64;
        Self { address, len: range.len(), ..self }
    }

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

    /// A buffer on the CPU of these elements.
    pub(crate) fn of_host(data: Vec<T>) -> Self {
        Self(Cpu(data))
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

    /// A buffer on a GPU whose elements have any bits until they are written.
    pub(crate) fn room(gpu: &'static cuda::Gpu, len: usize) -> Result<Self, Error> {
        Ok(Self(Gpu(OnGpu { memory: Memory::new(gpu, len.saturating_mul(size_of::<T>()))?, len })))
    }

    /// A buffer for results that are all written before anybody reads one: zeros on the CPU, any bits on a
    /// GPU.
    pub(crate) fn for_results(device: &Device, len: usize) -> Result<Self, Error> {
        match device.0 {
            Cpu(()) => Self::zeros(device, len),
            Gpu(gpu) => Self::room(gpu, len),
        }
    }

    /// Drops the elements from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Cpu(elements) => elements.truncate(len),
            Gpu(buffer) => buffer.len = buffer.len.min(len),
        }
    }

    /// The GPU that holds the elements; none on the CPU.
    pub(crate) fn gpu(&self) -> Option<&'static cuda::Gpu> {
        self.view().gpu()
    }

    /// The whole buffer, for kernels and folds that write to it.
    pub(crate) fn whole_mut(&mut self) -> Place<&mut [T], *mut T> {
        self.view_mut().into_places()
    }

    /// Borrows the whole buffer mutably.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut(match &mut self.0 {
            Cpu(data) => Cpu(data),
            Gpu(buffer) => Gpu(Part::of(buffer)),
        })
    }

    /// Borrows the elements in `range` mutably.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>, Error> {
        self.view_mut().slice_mut(range)
    }

    /// Borrows the whole buffer.
    pub fn view(&self) -> View<'_, T> {
        View(match &self.0 {
            Cpu(data) => Cpu(data),
            Gpu(buffer) => Gpu(Part::of(buffer)),
        })
    }

    /// Borrows the elements in `range`. Nothing is copied.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>, Error> {
        self.view().slice(range)
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the device that holds the elements.
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

    /// Moves the elements to the host, or copies them from a GPU.
    #[cfg(feature = "ndarray")]
    pub(crate) fn into_vec(self) -> Result<Vec<T>, Error> {
        match self.0 {
            Cpu(data) => Ok(data),
            Gpu(_) => self.to_vec(),
        }
    }

    /// Overwrites the elements that begin at `start` with `data`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], in which case nothing is written; [`Error::Driver`].
    pub fn write(&mut self, start: usize, data: &[T]) -> Result<(), Error> {
        self.slice_mut(start..start.saturating_add(data.len()))?.write(data)
    }
}

impl<'a, T: Item> ViewMut<'a, T> {
    /// See [`Device::view_mut`].
    ///
    /// # Safety
    ///
    /// As for [`Device::view_mut`].
    pub(crate) unsafe fn of(device: &Device, first: *mut T, len: usize) -> Result<Self, Error> {
        Ok(Self(match device.0 {
            Cpu(()) if len == 0 => Cpu(&mut []),
            Cpu(()) => {
                check_aligned(first)?;
                // SAFETY: the caller's contract.
                Cpu(unsafe { std::slice::from_raw_parts_mut(first, len) })
            }
            // SAFETY: the caller's contract.
            Gpu(gpu) => Gpu(unsafe { part_of(gpu, first, len)? }),
        }))
    }

    /// Narrows this view to the elements in `range`.
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

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the device that holds the elements.
    pub fn device(&self) -> Device {
        self.view().device()
    }

    /// Borrows the same elements for reading.
    pub fn view(&self) -> View<'_, T> {
        View(match &self.0 {
            Cpu(data) => Cpu(data),
            Gpu(part) => Gpu(*part),
        })
    }

    /// Overwrites the first elements with `data`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] if `data` is longer than the view, in which case nothing is written;
    /// [`Error::Driver`].
    pub fn write(self, data: &[T]) -> Result<(), Error> {
        match self.slice_mut(..data.len())?.0 {
            Cpu(elements) => elements.copy_from_slice(data),
            // SAFETY: the view borrows the elements exclusively.
            Gpu(part) => unsafe { part.gpu.write(part.address, bytemuck::cast_slice(data)) }?,
        }
        Ok(())
    }

    /// Returns the first element's address on the device, for other libraries and for the caller's own
    /// kernels.
    ///
    /// Their streams must order what they enqueue with the work of this library.
    pub fn as_mut_ptr(self) -> *mut T {
        match self.0 {
            Cpu(data) => data.as_mut_ptr(),
            Gpu(part) => {
                part.gpu.expose();
                part.pointer().cast_mut()
            }
        }
    }

    /// The GPU that holds the elements; none on the CPU.
    pub(crate) fn gpu(&self) -> Option<&'static cuda::Gpu> {
        self.view().gpu()
    }

    /// The elements, for kernels and folds that write to them.
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

/// Checks and borrows elements that the caller has in a GPU's memory.
///
/// # Safety
///
/// As for [`Device::view`], and for [`Device::view_mut`] if they are written to.
unsafe fn part_of<'a, T: Item>(
    gpu: &'static cuda::Gpu,
    first: *const T,
    len: usize,
) -> Result<Part<'a, T>, Error> {
    check_aligned(first)?;
    let (address, bytes) = (first.addr() as u64, len.saturating_mul(size_of::<T>()));
    if bytes > 0 {
        gpu.check_memory(address, bytes)?;
    }
    Ok(Part { gpu, address, len, elements: PhantomData })
}

pub(crate) fn check_aligned<T>(first: *const T) -> Result<(), Error> {
    if first.is_aligned() {
        return Ok(());
    }
    Err(Error::Unaligned { address: first.addr() as u64, align: align_of::<T>() })
}

impl<'a, T: Item> View<'a, T> {
    /// See [`Device::view`].
    ///
    /// # Safety
    ///
    /// As for [`Device::view`].
    pub(crate) unsafe fn of(device: &Device, first: *const T, len: usize) -> Result<Self, Error> {
        Ok(Self(match device.0 {
            Cpu(()) if len == 0 => Cpu(&[]),
            Cpu(()) => {
                check_aligned(first)?;
                // SAFETY: the caller's contract.
                Cpu(unsafe { std::slice::from_raw_parts(first, len) })
            }
            // SAFETY: the caller's contract.
            Gpu(gpu) => Gpu(unsafe { part_of(gpu, first, len)? }),
        }))
    }

    /// A view of a slice in host memory.
    pub(crate) fn host(data: &'a [T]) -> Self {
        Self(Cpu(data))
    }

    /// Narrows this view to the elements in `range`.
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

    /// Returns the number of elements.
    pub fn len(self) -> usize {
        match self.0 {
            Cpu(data) => data.len(),
            Gpu(part) => part.len,
        }
    }

    /// Returns whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the device that holds the elements.
    pub fn device(self) -> Device {
        Device(self.gpu().map_or(Cpu(()), Gpu))
    }

    /// The GPU that holds the elements; none on the CPU.
    fn gpu(self) -> Option<&'static cuda::Gpu> {
        match self.0 {
            Cpu(_) => None,
            Gpu(part) => Some(part.gpu),
        }
    }

    /// Returns the first element's address on the device, for other libraries and for the caller's own
    /// kernels.
    pub fn as_ptr(self) -> *const T {
        match self.0 {
            Cpu(data) => data.as_ptr(),
            Gpu(part) => {
                part.gpu.expose();
                part.pointer()
            }
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
                // SAFETY: these are the bytes of `data`. They are overwritten with valid `T`s: zeros,
                // uploaded elements, or elements that a kernel stored.
                let bytes = unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast::<u8>(), bytes) };
                // SAFETY: the view borrows the elements.
                unsafe { part.gpu.read(part.address, bytes)? };
                Ok(data)
            }
        }
    }
}

/// `Buffer { len: 3, device: cuda:0 (NVIDIA H200) }`, without the elements.
impl<T: Item> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        describe("Buffer", self.len(), &self.device(), f)
    }
}

/// As for a [`Buffer`].
impl<T: Item> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        describe("View", self.len(), &self.device(), f)
    }
}

/// As for a [`Buffer`].
impl<T: Item> fmt::Debug for ViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        describe("ViewMut", self.len(), &self.device(), f)
    }
}

/// Formats an array without its elements.
pub(crate) fn describe(name: &str, len: usize, device: &Device, f: &mut fmt::Formatter) -> fmt::Result {
    f.debug_struct(name).field("len", &len).field("device", &format_args!("{device}")).finish()
}

/// Allocates `len` zeros in host memory.
pub(crate) fn zeroed<T: Item>(len: usize) -> Result<Vec<T>, Error> {
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| host_out_of_memory::<T>(len))
}

/// Copies a slice into new host memory.
fn copied<T: Item>(data: &[T]) -> Result<Vec<T>, Error> {
    let mut copy = with_room(data.len())?;
    copy.extend_from_slice(data);
    Ok(copy)
}

/// An empty vector with capacity for `len` elements.
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

/// Converts a range of any form to `start..end`, if it lies in `0..len`.
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

    /// Reserves two thirds of a process's addresses on x86-64, so that a copy does not fit.
    #[test]
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn what_the_host_has_no_room_for_is_an_error() {
        let bytes = 96 << 40;
        let reserved = memmap2::MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
        let huge = match reserved {
            Ok(huge) => huge,
            Err(why) => return eprintln!("skipped: cannot reserve 96 TiB of addresses: {why}"),
        };
        let out_of_memory =
            Err(Error::OutOfMemory { device: Device::cpu().to_string(), requested: bytes, free: None });
        assert_eq!(Device::cpu().upload(&huge).map(|_| ()), out_of_memory);
        assert_eq!(View::host(&huge).to_vec().map(|_| ()), out_of_memory);
        assert_eq!(Device::cpu().upload(&huge[..5]).unwrap().to_vec(), Ok(vec![0; 5]));
    }
}
