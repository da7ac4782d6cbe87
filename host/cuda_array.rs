//! `__cuda_array_interface__`: arrays of Numba, CuPy, PyTorch and others, where they lie.

use crate::foreign::{ArrayItem, contiguous_len};
use crate::{Error, Stream, View, ViewMut};
use std::ptr::{without_provenance, without_provenance_mut};

/// An array in a GPU's memory, as the entries of `__cuda_array_interface__` describe it ([versions 2 and 3][protocol]). Nothing here knows of Python:
/// whatever reads the dictionary fills this in. An array with a `mask` is not supported; refuse it there.
///
/// ```
/// use gpu_reduce::{CudaArray, Device, Reduce, Sum};
///
/// # if Device::cuda(0).is_err() { return Ok(()) }
/// let device = Device::cuda(0)?;
/// let x = device.upload(&[1.5f32, 2.5, 3.0, 4.0])?; // in place of another library's
/// let array = CudaArray {
///     shape: &[2, 2],
///     typestr: "<f4",
///     data: (x.view().as_ptr().addr(), false),
///     strides: None,
///     stream: Some(1),
/// };
/// let stream = device.stream()?;
/// // SAFETY: the elements stay, and nothing writes to them.
/// let view = unsafe { array.view::<f32>(&stream)? };
/// assert_eq!(view.reduce_async::<Sum, 256>(&stream).wait()?, 11.0);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// [protocol]: https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CudaArray<'v> {
    /// The axes' lengths. Of none, it is an array of one element.
    pub shape: &'v [usize],
    /// What an element is, as `<f4`: the order of bytes, the kind, the number of bytes. [`bf16`](crate::bf16) is `<V2`; but some versions of PyTorch have
    /// said `<f2` of it, as of [`f16`](crate::f16), and nobody can tell then.
    pub typestr: &'v str,
    /// Where the first element is, and whether the array is read-only.
    pub data: (usize, bool),
    /// The bytes from an element to the next, by axis. None for a C array's.
    pub strides: Option<&'v [isize]>,
    /// The stream on which the array is written: 1 for the legacy default one, 2 for that of the thread, or its handle. None where there is nothing to
    /// come after; so PyTorch says, which leaves it to you to reduce on its current stream.
    pub stream: Option<usize>,
}

impl CudaArray<'_> {
    /// The array's elements, in row-major order, where they lie: nothing is copied, and the host waits for nothing.
    ///
    /// What is enqueued or launched on `stream` from now on comes after what the array's own stream was given so far. Before a reduction on no
    /// stream, as a call of [`reduce`](crate::Reduce::reduce), wait for it ([`Stream::wait`]). A stream that is being captured waits only for one that is
    /// captured with it: otherwise say None.
    ///
    /// # Safety
    ///
    /// The description is true, and its stream one of this driver's that is there; and as of [`Device::view`](crate::Device::view).
    ///
    /// # Errors
    ///
    /// [`Error::OtherType`]; [`Error::NotContiguous`]; [`Error::BadArray`] where the protocol does not allow what the description says;
    /// [`Error::DeviceMismatch`] where the stream is not of the GPU on which the array lies; [`Error::ContextMismatch`], also of the array's stream; and as of
    /// [`Device::view`](crate::Device::view).
    pub unsafe fn view<'a, T: ArrayItem>(&self, stream: &Stream) -> Result<View<'a, T>, Error> {
        let (address, len) = self.elements::<T>(stream)?;
        // SAFETY: as the caller vouches.
        let view = unsafe { stream.device().view(without_provenance(address), len)? };
        // SAFETY: as the caller vouches.
        unsafe { self.come_before(stream)? };
        Ok(view)
    }

    /// As [`view`](Self::view), to write results to.
    ///
    /// # Safety
    ///
    /// As there; and as of [`Device::view_mut`](crate::Device::view_mut).
    ///
    /// # Errors
    ///
    /// As there; and [`Error::ReadOnly`].
    pub unsafe fn view_mut<'a, T: ArrayItem>(&self, stream: &Stream) -> Result<ViewMut<'a, T>, Error> {
        let (address, len) = self.elements::<T>(stream)?;
        if self.data.1 {
            return Err(Error::ReadOnly { address: self.data.0 as u64 });
        }
        // SAFETY: as the caller vouches.
        let view = unsafe { stream.device().view_mut(without_provenance_mut(address), len)? };
        // SAFETY: as the caller vouches.
        unsafe { self.come_before(stream)? };
        Ok(view)
    }

    /// Where the first is, and how many there are.
    fn elements<T: ArrayItem>(&self, stream: &Stream) -> Result<(usize, usize), Error> {
        let device = stream.device();
        if device.is_cpu() {
            return Err(Error::DeviceMismatch { buffer: "a GPU".to_owned(), device: device.to_string() });
        }
        if !is_typestr_of::<T>(self.typestr) {
            let expected = format!("{} ({})", T::NAME, T::TYPESTR);
            return Err(Error::OtherType { found: self.typestr.to_owned(), expected });
        }
        if self.stream == Some(0) {
            let why = "its stream is 0, which could mean any: say 1 for the legacy default stream, 2 for the thread's, or None";
            return Err(Error::BadArray(why.to_owned()));
        }
        let len = contiguous_len::<T, _, _>(self.shape, self.strides, (size_of::<T>(), "bytes"))?;
        // Of what is empty, the address may be any.
        Ok((if len == 0 { 0 } else { self.data.0 }, len))
    }

    /// Has what `stream` is given from now on come after what the array's was given.
    ///
    /// # Safety
    ///
    /// The array's stream is one.
    unsafe fn come_before(&self, stream: &Stream) -> Result<(), Error> {
        match self.stream {
            // SAFETY: as the caller vouches.
            Some(own) => unsafe { stream.come_after(without_provenance_mut(own)) },
            None => Ok(()),
        }
    }
}

/// Whether elements of this `typestr` are `T`s. A single byte has no order, whatever is said of it.
fn is_typestr_of<T: ArrayItem>(typestr: &str) -> bool {
    fn without_order(typestr: &str) -> Option<&str> {
        typestr.strip_prefix(['<', '|', '='])
    }
    typestr == T::TYPESTR || size_of::<T>() == 1 && without_order(typestr) == without_order(T::TYPESTR)
}
