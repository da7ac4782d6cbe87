//! Conversions between cust's memory and streams and this library's views and streams.

use super::driver::check_fork;
use super::{Cause, Entered, Gpu};
use crate::place::Place;
use crate::{Device, Error, Item, Stream, View, ViewMut};
use cust::memory::{DeviceBuffer, DeviceCopy, DevicePointer, DeviceSlice};
use cust::stream::Stream as CustStream;
use cust::sys::{self, CUcontext, CUpointer_attribute_enum as Attribute, CUresult, CUstream};
use std::marker::PhantomData;
use std::ptr::null_mut;

/// The name of a GPU in errors before the driver has told which one it is.
const SOME_GPU: &str = "a GPU";

/// Converts a driver function's return code before the GPU is known.
fn answered(call: &'static str, answer: CUresult) -> Result<(), Error> {
    match answer {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(Error::Driver { call, device: SOME_GPU.to_owned(), reason: error.reason() }),
    }
}

impl Gpu {
    /// The GPU of a context; the first GPU if it is null.
    fn of_context(context: CUcontext) -> Result<&'static Self, Error> {
        let mut index = 0;
        if !context.is_null() {
            // SAFETY: the driver returned the context, and `Entered` pops it.
            unsafe {
                answered("entering a context", sys::cuCtxPushCurrent_v2(context))?;
                let _entered = Entered(PhantomData);
                answered("asking for a context's device", sys::cuCtxGetDevice(&mut index))?;
            }
        }
        Self::open(index as usize)
    }

    /// The GPU of memory; the first GPU if `len` is 0.
    fn of_memory(address: u64, len: usize) -> Result<&'static Self, Error> {
        check_fork(SOME_GPU)?;
        let mut index = 0i32;
        if len > 0 {
            let ordinal = Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
            // SAFETY: `index` receives the answer.
            let asked = unsafe { sys::cuPointerGetAttribute((&raw mut index).cast(), ordinal, address) };
            answered("asking where memory lies", asked)?;
        }
        Self::open(index as usize)
    }
}

/// Borrows cust's memory.
///
/// Returns [`Error::ContextMismatch`] unless it belongs to the device's primary context, which
/// `cust::context::Context` and `cust::quick_init` use.
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
        // SAFETY: the slice is borrowed, and freeing it waits for the device.
        unsafe { device.view(std::ptr::without_provenance(pointer.as_raw() as usize), slice.len()) }
    }
}

/// As for a `DeviceSlice`.
impl<'a, T: Item + DeviceCopy> TryFrom<&'a DeviceBuffer<T>> for View<'a, T> {
    type Error = Error;

    fn try_from(buffer: &'a DeviceBuffer<T>) -> Result<Self, Error> {
        let slice: &DeviceSlice<T> = buffer;
        slice.try_into()
    }
}

/// As for a [`View`].
impl<'a, T: Item + DeviceCopy> TryFrom<&'a mut DeviceSlice<T>> for ViewMut<'a, T> {
    type Error = Error;

    fn try_from(slice: &'a mut DeviceSlice<T>) -> Result<Self, Error> {
        let pointer = slice.as_device_ptr();
        let device = Device(Place::Gpu(Gpu::of_memory(pointer.as_raw(), slice.len())?));
        // SAFETY: the slice is borrowed, and freeing it waits for the device.
        unsafe { device.view_mut(std::ptr::without_provenance_mut(pointer.as_raw() as usize), slice.len()) }
    }
}

/// As for a `DeviceSlice`.
impl<'a, T: Item + DeviceCopy> TryFrom<&'a mut DeviceBuffer<T>> for ViewMut<'a, T> {
    type Error = Error;

    fn try_from(buffer: &'a mut DeviceBuffer<T>) -> Result<Self, Error> {
        let slice: &mut DeviceSlice<T> = buffer;
        slice.try_into()
    }
}

impl<T: Item + DeviceCopy> View<'_, T> {
    /// Returns the elements as cust's memory, for its copies and for kernel arguments.
    ///
    /// ```
    /// use cust::memory::CopyDestination;
    /// use gpu_reduce::Device;
    ///
    /// # if Device::cuda(0).is_err() { return Ok(()) }
    /// let _context = cust::quick_init()?;
    /// let x = Device::cuda(0)?.upload(&[1.5f32, 2.5])?;
    /// // SAFETY: `x` outlives the slice and is only read.
    /// let slice = unsafe { x.view().as_cust()? };
    /// let mut copy = [0.0; 2];
    /// slice.copy_to(&mut copy)?;
    /// assert_eq!(copy, [1.5, 2.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The result and its copies are not used after the elements are freed. They are not written to, unless
    /// the view is borrowed from a [`ViewMut`] that is not used meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceMismatch`] if the elements are on the CPU.
    pub unsafe fn as_cust(self) -> Result<DeviceSlice<T>, Error> {
        match self.0 {
            Place::Cpu(_) => {
                Err(Error::DeviceMismatch { buffer: self.device().to_string(), device: SOME_GPU.to_owned() })
            }
            Place::Gpu(part) => {
                part.gpu.expose();
                let first = DevicePointer::from_raw(part.address);
                // SAFETY: the view has `len` elements; the caller vouches for their lifetime.
                Ok(unsafe { DeviceSlice::from_raw_parts(first, part.len) })
            }
        }
    }
}

/// Borrows a stream of cust. Returns [`Error::ContextMismatch`] unless it belongs to the device's primary
/// context.
impl<'a> TryFrom<&'a CustStream> for Stream<'a> {
    type Error = Error;

    fn try_from(stream: &'a CustStream) -> Result<Self, Error> {
        check_fork(SOME_GPU)?;
        let raw: CUstream = stream.as_inner();
        let mut context = null_mut();
        // SAFETY: the stream is borrowed.
        answered("asking for a stream's context", unsafe { sys::cuStreamGetCtx(raw, &mut context) })?;
        let device = Device(Place::Gpu(Gpu::of_context(context)?));
        // SAFETY: the stream is borrowed for `'a`.
        unsafe { device.stream_from_raw(raw.cast()) }
    }
}
