//! `__cuda_array_interface__`: borrows arrays of Numba, CuPy, PyTorch and others.

use crate::foreign::{ArrayItem, contiguous_len};
use crate::{Error, Stream, View, ViewMut};
use std::ptr::{without_provenance, without_provenance_mut};

/// An array in a GPU's memory, described by `__cuda_array_interface__` ([versions 2 and 3][protocol]).
///
/// This type does not depend on Python: the caller reads the dictionary and fills in the fields. Arrays with
/// a `mask` are not supported; the caller must reject them.
///
/// ```
/// use gpu_reduce::{CudaArray, Device, Reduce, Sum};
///
/// # if Device::cuda(0).is_err() { return Ok(()) }
/// let device = Device::cuda(0)?;
/// let x = device.upload(&[1.5f32, 2.5, 3.0, 4.0])?; // stands in for another library's array
/// let array = CudaArray {
///     shape: &[2, 2],
///     typestr: "<f4",
///     data: (x.view().as_ptr().addr(), false),
///     strides: None,
///     stream: Some(1),
/// };
/// let stream = device.stream()?;
/// // SAFETY: `x` outlives the reduction and is not written to.
/// let view = unsafe { array.view::<f32>(&stream)? };
/// assert_eq!(view.reduce_async::<Sum, 256>(&stream).wait()?, 11.0);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// [protocol]: https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CudaArray<'v> {
    /// The lengths of the axes. Without axes the array has one element.
    pub shape: &'v [usize],
    /// The element type: byte order, kind and number of bytes, for example `<f4`.
    ///
    /// [`bf16`](crate::bf16) is `<V2`. Some versions of PyTorch give `<f2` for it, which cannot be told from
    /// [`f16`](crate::f16).
    pub typestr: &'v str,
    /// The first element's address, and whether the array is read-only.
    pub data: (usize, bool),
    /// The strides in bytes, by axis. None for a C-contiguous array.
    pub strides: Option<&'v [isize]>,
    /// The stream that writes the array: 1 for the legacy default stream, 2 for the per-thread one, or a
    /// handle.
    ///
    /// None if there is no stream to wait for. PyTorch gives None: reduce its arrays on its current stream.
    pub stream: Option<usize>,
}

impl CudaArray<'_> {
    /// Borrows the array's elements in row-major order. Nothing is copied, and the host does not wait.
    ///
    /// Work that is enqueued on `stream` after this call waits for the work that the array's own stream has
    /// so far. Before a reduction without a stream, such as [`reduce`](crate::Reduce::reduce), wait for
    /// `stream` ([`Stream::synchronize`]). A stream that is being captured can wait only for a stream of the
    /// same capture: otherwise set [`CudaArray::stream`] to None.
    ///
    /// # Safety
    ///
    /// The description is true, the array's stream is a valid stream of this driver, and as for
    /// [`Device::view`](crate::Device::view).
    ///
    /// # Errors
    ///
    /// [`Error::OtherType`]; [`Error::NotContiguous`]; [`Error::BadArray`] if the protocol does not allow the
    /// description; [`Error::DeviceMismatch`] if `stream` is not on the array's GPU;
    /// [`Error::ContextMismatch`], also for the array's stream; and as for
    /// [`Device::view`](crate::Device::view).
    pub unsafe fn view<'a, T: ArrayItem>(&self, stream: &Stream) -> Result<View<'a, T>, Error> {
        let (address, len) = self.elements::<T>(stream)?;
        // SAFETY: the caller's contract.
        let view = unsafe { stream.device().view(without_provenance(address), len)? };
        // SAFETY: the caller's contract.
        unsafe { self.come_before(stream)? };
        Ok(view)
    }

    /// Mutably borrows the array's elements, to write results to.
    ///
    /// # Safety
    ///
    /// As for [`view`](Self::view) and [`Device::view_mut`](crate::Device::view_mut).
    ///
    /// # Errors
    ///
    /// As for [`view`](Self::view); and [`Error::ReadOnly`].
    pub unsafe fn view_mut<'a, T: ArrayItem>(&self, stream: &Stream) -> Result<ViewMut<'a, T>, Error> {
        let (address, len) = self.elements::<T>(stream)?;
        if self.data.1 {
            return Err(Error::ReadOnly { address: self.data.0 as u64 });
        }
        // SAFETY: the caller's contract.
        let view = unsafe { stream.device().view_mut(without_provenance_mut(address), len)? };
        // SAFETY: the caller's contract.
        unsafe { self.come_before(stream)? };
        Ok(view)
    }

    /// The first element's address and the number of elements.
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
            let why = "its stream is 0, which is ambiguous: give 1 for the legacy default stream, \
                       2 for the per-thread one, or None";
            return Err(Error::BadArray(why.to_owned()));
        }
        let len = contiguous_len::<T, _, _>(self.shape, self.strides, (size_of::<T>(), "bytes"))?;
        // An empty array may have any address.
        Ok((if len == 0 { 0 } else { self.data.0 }, len))
    }

    /// Makes `stream` wait for the work that the array's stream has so far.
    ///
    /// # Safety
    ///
    /// The array's stream is valid.
    unsafe fn come_before(&self, stream: &Stream) -> Result<(), Error> {
        match self.stream {
            // SAFETY: the caller's contract.
            Some(own) => unsafe { stream.come_after(without_provenance_mut(own)) },
            None => Ok(()),
        }
    }
}

/// Whether `typestr` describes `T`. The byte order of a single byte is ignored.
fn is_typestr_of<T: ArrayItem>(typestr: &str) -> bool {
    fn without_order(typestr: &str) -> Option<&str> {
        typestr.strip_prefix(['<', '|', '='])
    }
    typestr == T::TYPESTR || size_of::<T>() == 1 && without_order(typestr) == without_order(T::TYPESTR)
}
