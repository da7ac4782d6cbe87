//! What cust has, where it lies: its memory as views, its streams; and views as its memory.

use super::driver::check_fork;
use super::{Cause, Entered, Gpu};
use crate::place::Place;
use crate::{Device, Error, Item, Stream, View, ViewMut};
use cust::memory::{DeviceBuffer, DeviceCopy, DevicePointer, DeviceSlice};
use cust::stream::Stream as CustStream;
use cust::sys::{self, CUcontext, CUpointer_attribute_enum as Attribute, CUresult, CUstream};
use std::marker::PhantomData;
use std::ptr::null_mut;

/// A GPU that is not known yet, in errors.
const SOME_GPU: &str = "a GPU";

/// What the driver says, asked for what is of a GPU that is not known yet.
fn answered(call: &'static str, answer: CUresult) -> Result<(), Error> {
    match answer {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(Error::Driver { call, device: SOME_GPU.to_owned(), reason: error.reason() }),
    }
}

impl Gpu {
    /// The GPU of a context; of none, the first.
    fn of_context(context: CUcontext) -> Result<&'static Self, Error> {
        let mut index = 0;
        if !context.is_null() {
            // SAFETY: it is a context, as the driver says; what is pushed is popped again, by `Entered`.
            unsafe {
                answered("entering a context", sys::cuCtxPushCurrent_v2(context))?;
                let _entered = Entered(PhantomData);
                answered("asking for a context's device", sys::cuCtxGetDevice(&mut index))?;
            }
        }
        Self::open(index as usize)
    }

    /// The GPU where memory lies; of what is empty, the first.
    fn of_memory(address: u64, len: usize) -> Result<&'static Self, Error> {
        check_fork(SOME_GPU)?;
        let mut index = 0i32;
        if len > 0 {
            // SAFETY: there is a place for the answer.
            let asked = unsafe {
                sys::cuPointerGetAttribute(
                    (&raw mut index).cast(),
                    Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                    address,
                )
            };
            answered("asking where memory lies", asked)?;
        }
        Self::open(index as usize)
    }
}

/// cust's memory, where it lies. [`Error::ContextMismatch`] where it is of another context than the device's primary one, in which `cust::context::Context`
/// works, and `cust::quick_init`.
///
/// ```
/// use cust::memory::DeviceBuffer;
/// use gpu_reduce::{Device, Reduce, Sum, View};
///
/// # if Device::cuda(0).is_err() { return Ok(()) }
/// let _context = cust::quick_init()?;
/// let x = DeviceBuffer::from_slice(&[1.5f32, 2.5])?;
/// assert_eq!(View::try_from(&x)?.reduce::<Sum, 256>()?, 4.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<'a, T: Item + DeviceCopy> TryFrom<&'a DeviceSlice<T>> for View<'a, T> {
    type Error = Error;

    fn try_from(slice: &'a DeviceSlice<T>) -> Result<Self, Error> {
        let pointer = slice.as_device_ptr();
        let device = Device(Place::Gpu(Gpu::of_memory(pointer.as_raw(), slice.len())?));
        // SAFETY: it is borrowed, and to free it waits for the device.
        unsafe { device.view(std::ptr::without_provenance(pointer.as_raw() as usize), slice.len()) }
    }
}

/// As that of a slice.
impl<'a, T: Item + DeviceCopy> TryFrom<&'a DeviceBuffer<T>> for View<'a, T> {
    type Error = Error;

    fn try_from(buffer: &'a DeviceBuffer<T>) -> Result<Self, Error> {
        let slice: &DeviceSlice<T> = buffer;
        slice.try_into()
    }
}

/// As that of a [`View`].
impl<'a, T: Item + DeviceCopy> TryFrom<&'a mut DeviceSlice<T>> for ViewMut<'a, T> {
    type Error = Error;

    fn try_from(slice: &'a mut DeviceSlice<T>) -> Result<Self, Error> {
        let pointer = slice.as_device_ptr();
        let device = Device(Place::Gpu(Gpu::of_memory(pointer.as_raw(), slice.len())?));
        // SAFETY: it is borrowed, and to free it waits for the device.
        unsafe { device.view_mut(std::ptr::without_provenance_mut(pointer.as_raw() as usize), slice.len()) }
    }
}

/// As that of a slice.
impl<'a, T: Item + DeviceCopy> TryFrom<&'a mut DeviceBuffer<T>> for ViewMut<'a, T> {
    type Error = Error;

    fn try_from(buffer: &'a mut DeviceBuffer<T>) -> Result<Self, Error> {
        let slice: &mut DeviceSlice<T> = buffer;
        slice.try_into()
    }
}

impl<T: Item + DeviceCopy> View<'_, T> {
    /// The elements as cust's, for its copies and for arguments of kernels.
    ///
    /// ```
    /// use cust::memory::CopyDestination;
    /// use gpu_reduce::Device;
    ///
    /// # if Device::cuda(0).is_err() { return Ok(()) }
    /// let _context = cust::quick_init()?;
    /// let x = Device::cuda(0)?.upload(&[1.5f32, 2.5])?;
    /// // SAFETY: the buffer stays, and is only read.
    /// let slice = unsafe { x.view().as_cust()? };
    /// let mut copy = [0.0; 2];
    /// slice.copy_to(&mut copy)?;
    /// assert_eq!(copy, [1.5, 2.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    ///
    /// What is returned, and whatever is copied from it, is used no longer than the elements stay. It is not written to, unless the view is of a
    /// [`ViewMut`], of which nothing else is used meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceMismatch`] of elements on the CPU.
    pub unsafe fn as_cust(self) -> Result<DeviceSlice<T>, Error> {
        match self.0 {
            Place::Cpu(_) => {
                let device = "a GPU, where cust's memory is".to_owned();
                Err(Error::DeviceMismatch { buffer: self.device().to_string(), device })
            }
            Place::Gpu(part) => {
                let first = DevicePointer::from_raw(part.address);
                // SAFETY: there are so many elements, as long as the caller vouches.
                Ok(unsafe { DeviceSlice::from_raw_parts(first, part.len) })
            }
        }
    }
}

/// A stream of cust's; [`Error::ContextMismatch`] where it is not of the device's primary context.
impl<'a> TryFrom<&'a CustStream> for Stream<'a> {
    type Error = Error;

    fn try_from(stream: &'a CustStream) -> Result<Self, Error> {
        check_fork(SOME_GPU)?;
        let raw: CUstream = stream.as_inner();
        let mut context = null_mut();
        // SAFETY: the stream is borrowed.
        answered("asking for a stream's context", unsafe { sys::cuStreamGetCtx(raw, &mut context) })?;
        let device = Device(Place::Gpu(Gpu::of_context(context)?));
        // SAFETY: it is borrowed.
        unsafe { device.stream_from_raw(raw.cast()) }
    }
}
