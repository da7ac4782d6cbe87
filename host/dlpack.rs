//! DLPack: borrows tensors of other libraries, and gives buffers to them.

use crate::foreign::{ArrayItem, contiguous_len};
use crate::{Buffer, Device, Error, View, ViewMut};
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor};
use dlpark::metadata::Fixed;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use std::ptr::null_mut;

impl<'a, T: ArrayItem> View<'a, T> {
    /// Borrows the elements of a DLPack tensor in row-major order. Nothing is copied.
    ///
    /// The tensor has either ABI, `dlpark::versioned::Dlpack` or `dlpark::legacy::Dlpack`, and is on the CPU
    /// or on a CUDA GPU. Pinned memory (`kDLCUDAHost`) becomes a view on the CPU. Needs the feature `dlpack`.
    ///
    /// A caller of a producer's `__dlpack__(stream=…)` passes the stream that will reduce the elements,
    /// [`Stream::as_raw`](crate::Stream::as_raw), or 1 if that is null. By the protocol the producer then
    /// makes this stream wait for its own writes. Before a reduction without a stream, such as
    /// [`reduce`](crate::Reduce::reduce), wait for that stream
    /// ([`Stream::synchronize`](crate::Stream::synchronize)).
    ///
    /// # Safety
    ///
    /// The tensor's description is true, its writes are ordered as above, and as for [`Device::view`].
    ///
    /// # Errors
    ///
    /// [`Error::OtherType`]; [`Error::NotContiguous`]; [`Error::ForeignDevice`]; [`Error::BadArray`] if
    /// DLPack does not allow the description; and as for [`Device::cuda`] and [`Device::view`].
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum, View};
    /// use dlpark::versioned::Dlpack;
    ///
    /// // Stands in for another library's tensor.
    /// let tensor: Dlpack = Device::cpu().upload(&[1.5f32, 2.5])?.into_dlpack();
    /// // SAFETY: nothing writes to the elements.
    /// let view = unsafe { View::<f32>::from_dlpack(&tensor)? };
    /// assert_eq!(view.reduce::<Sum, 256>()?, 4.0);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    pub unsafe fn from_dlpack<M: ManagedTensorBase>(tensor: &'a Managed<M>) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        unsafe {
            let (device, first, len) = elements(tensor.tensor())?;
            device.view(first, len)
        }
    }
}

impl<'a, T: ArrayItem> ViewMut<'a, T> {
    /// Mutably borrows the elements of a DLPack tensor, to write results to.
    ///
    /// # Safety
    ///
    /// As for [`View::from_dlpack`] and [`Device::view_mut`].
    ///
    /// # Errors
    ///
    /// As for [`View::from_dlpack`]; and [`Error::ReadOnly`].
    pub unsafe fn from_dlpack<M: ManagedTensorBase>(tensor: &'a mut Managed<M>) -> Result<Self, Error> {
        // SAFETY: the caller's contract.
        unsafe {
            let (device, first, len) = elements::<T>(tensor.tensor())?;
            if tensor.flags().contains(DlpackFlags::READ_ONLY) {
                return Err(Error::ReadOnly { address: first.addr() as u64 });
            }
            device.view_mut(first, len)
        }
    }
}

impl<T: ArrayItem> Buffer<T> {
    /// Converts the buffer to a DLPack tensor with one axis, of either ABI. Nothing is copied.
    ///
    /// The tensor owns the elements. Its deleter frees them, and may be called by any thread at any time.
    /// `into_raw` gives the tensor to another library. Needs the feature `dlpack`.
    ///
    /// The caller orders enqueued writes to the elements with the work of the other library, by their
    /// streams.
    ///
    /// ```
    /// use gpu_reduce::Device;
    /// use dlpark::versioned::Dlpack;
    ///
    /// let tensor: Dlpack = Device::cpu().upload(&[3u8, 1, 4])?.into_dlpack();
    /// let described = tensor.validate().unwrap();
    /// assert_eq!((described.shape(), described.dtype().bits), (&[3][..], 8));
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    pub fn into_dlpack<M: ManagedTensorBase>(mut self) -> Managed<M> {
        let metadata = Fixed::new([self.len()], [1i64]).prepare_as::<M>();
        let metadata = metadata.unwrap_or_else(|_| unreachable!("a memory's length is an i64"));
        let device = self.gpu().map_or(DLDevice::CPU, |gpu| DLDevice::cuda(gpu.index() as i32));
        let data = if self.is_empty() { null_mut() } else { self.view_mut().as_mut_ptr() };
        let mut tensor = metadata.initialize(Box::new(self));
        tensor.set_data(data.cast()).set_device(device).set_dtype(dtype_of::<T>());
        // SAFETY: the tensor owns the buffer with the data until the deleter drops it, on any thread. Shape
        // and strides are in the tensor's own allocation.
        unsafe { tensor.finish() }
    }
}

/// DLPack's name of a type.
fn dtype_of<T: ArrayItem>() -> DLDataType {
    DLDataType::scalar(DLDataTypeCode(T::CODE), 8 * size_of::<T>() as u8)
}

/// A tensor's device, first element and number of elements.
///
/// # Safety
///
/// The tensor's pointers to shape and strides are valid.
unsafe fn elements<T: ArrayItem>(tensor: &DLTensor) -> Result<(Device, *mut T, usize), Error> {
    let wrong = |why: dlpark::tensor::Error| Error::BadArray(why.to_string());
    let expected = dtype_of::<T>();
    if tensor.dtype != expected {
        let expected = format!("{} ({})", T::NAME, name_of(expected));
        return Err(Error::OtherType { found: name_of(tensor.dtype), expected });
    }
    // SAFETY: the caller's contract.
    let (shape, strides) = unsafe { (tensor.shape().map_err(wrong)?, tensor.strides().map_err(wrong)?) };
    let len = contiguous_len::<T, _, _>(shape, strides, (1, "elements"))?;
    let device = device_of(tensor.device)?;
    let (data, offset) = (tensor.data, tensor.byte_offset);
    if len == 0 {
        return Ok((device, null_mut(), 0));
    }
    if data.is_null() {
        return Err(Error::BadArray(format!("its data pointer is null, but its shape is {shape:?}")));
    }
    let fits = |offset: &usize| data.addr().checked_add(*offset).is_some();
    let offset = usize::try_from(offset).ok().filter(fits).ok_or_else(|| {
        Error::BadArray(format!("its byte_offset {offset} from {data:p} is past the last address"))
    })?;
    Ok((device, data.wrapping_byte_add(offset).cast(), len))
}

/// Opens the device of a tensor.
fn device_of(device: DLDevice) -> Result<Device, Error> {
    match device.device_type {
        DLDeviceType::CPU | DLDeviceType::CUDAHOST => Ok(Device::cpu()),
        DLDeviceType::CUDA | DLDeviceType::CUDAMANAGED => {
            let bad = |_| Error::BadArray(format!("its device has number {}", device.device_id));
            Device::cuda(usize::try_from(device.device_id).map_err(bad)?)
        }
        other => {
            let name = match other {
                DLDeviceType::OPENCL => "OpenCL",
                DLDeviceType::VULKAN => "Vulkan",
                DLDeviceType::METAL => "Metal",
                DLDeviceType::VPI => "VPI",
                DLDeviceType::ROCM => "ROCm",
                DLDeviceType::ROCMHOST => "ROCm's host memory",
                DLDeviceType::EXTDEV => "an extension device",
                DLDeviceType::ONEAPI => "oneAPI",
                DLDeviceType::WEBGPU => "WebGPU",
                DLDeviceType::HEXAGON => "Hexagon",
                DLDeviceType::MAIA => "MAIA",
                DLDeviceType::TRN => "Trainium",
                _ => "an unknown device",
            };
            Err(Error::ForeignDevice {
                device: format!("{name} (type {}, number {})", other.0, device.device_id),
            })
        }
    }
}

/// For example `float32`, or `float32 x 4` with several lanes.
fn name_of(dtype: DLDataType) -> String {
    let DLDataType { code, bits, lanes } = dtype;
    let kind = match code {
        DLDataTypeCode::INT => "int",
        DLDataTypeCode::UINT => "uint",
        DLDataTypeCode::FLOAT => "float",
        DLDataTypeCode::BFLOAT => "bfloat",
        DLDataTypeCode::COMPLEX => "complex",
        DLDataTypeCode::BOOL => "bool",
        DLDataTypeCode(code) => return format!("of type code {code} with {bits} bits and {lanes} lanes"),
    };
    if lanes == 1 { format!("{kind}{bits}") } else { format!("{kind}{bits} x {lanes}") }
}
