//! DLPack: tensors of other libraries, where they lie, and buffers that are given to them. With the feature `dlpack`.

use crate::foreign::{ArrayItem, contiguous_len};
use crate::{Buffer, Device, Error, View, ViewMut};
use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor};
use dlpark::metadata::Fixed;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use std::ptr::null_mut;

impl<'a, T: ArrayItem> View<'a, T> {
    /// A tensor's elements, in row-major order, where they lie: nothing is copied. The tensor is of either ABI, `dlpark::versioned::Dlpack` or
    /// `dlpark::legacy::Dlpack`, on the CPU or on a CUDA GPU; of pinned memory (`kDLCUDAHost`) it is the CPU's view. With the feature `dlpack`.
    ///
    /// Whoever calls a producer's `__dlpack__(stream=…)` passes the stream on which the elements will be reduced,
    /// [`Stream::as_raw`](crate::Stream::as_raw), and 1 where that is null: by the protocol the producer has that stream wait for what writes to them, and
    /// nothing else is to be done. Before a reduction on no stream, as a call of [`reduce`](crate::Reduce::reduce), wait for that one
    /// ([`Stream::wait`](crate::Stream::wait)).
    ///
    /// # Safety
    ///
    /// The tensor's description is true; and as of [`Device::view`], the stream being as above.
    ///
    /// # Errors
    ///
    /// [`Error::OtherType`]; [`Error::NotContiguous`]; [`Error::ForeignDevice`]; [`Error::BadArray`] where DLPack does not allow what the description says;
    /// and as of [`Device::cuda`] and [`Device::view`].
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum, View};
    /// use dlpark::versioned::Dlpack;
    ///
    /// let tensor: Dlpack = Device::cpu().upload(&[1.5f32, 2.5])?.into_dlpack(); // in place of another library's
    /// // SAFETY: nothing writes to the elements.
    /// let view = unsafe { View::<f32>::from_dlpack(&tensor)? };
    /// assert_eq!(view.reduce::<Sum, 256>()?, 4.0);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    pub unsafe fn from_dlpack<M: ManagedTensorBase>(tensor: &'a Managed<M>) -> Result<Self, Error> {
        // SAFETY: as the caller vouches.
        unsafe {
            let (device, first, len) = elements(tensor.tensor())?;
            device.view(first, len)
        }
    }
}

impl<'a, T: ArrayItem> ViewMut<'a, T> {
    /// As [`View::from_dlpack`], to write results to.
    ///
    /// # Safety
    ///
    /// As there; and as of [`Device::view_mut`].
    ///
    /// # Errors
    ///
    /// As there; and [`Error::ReadOnly`].
    pub unsafe fn from_dlpack<M: ManagedTensorBase>(tensor: &'a mut Managed<M>) -> Result<Self, Error> {
        // SAFETY: as the caller vouches.
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
    /// The elements as a tensor of one axis, of either ABI, where they lie: nothing is copied. It owns them, and its deleter, which any thread may call at
    /// any time, frees them; `into_raw` gives it to another library. With the feature `dlpack`.
    ///
    /// What was enqueued to write to them, the caller has to order with what the other library does, by their streams.
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
        // SAFETY: the data are the buffer's, which lives until the deleter drops it, on whatever thread; shape and strides are in the same allocation as the
        // tensor. Nothing else has the buffer.
        unsafe { tensor.finish() }
    }
}

/// What DLPack calls a type.
fn dtype_of<T: ArrayItem>() -> DLDataType {
    DLDataType::scalar(DLDataTypeCode(T::CODE), 8 * size_of::<T>() as u8)
}

/// Where a tensor's elements are, and how many.
///
/// # Safety
///
/// The pointers to shape and strides are good.
unsafe fn elements<T: ArrayItem>(tensor: &DLTensor) -> Result<(Device, *mut T, usize), Error> {
    let wrong = |why: dlpark::tensor::Error| Error::BadArray(why.to_string());
    let expected = dtype_of::<T>();
    if tensor.dtype != expected {
        let expected = format!("{} ({})", T::NAME, name_of(expected));
        return Err(Error::OtherType { found: name_of(tensor.dtype), expected });
    }
    // SAFETY: as the caller vouches.
    let (shape, strides) = unsafe { (tensor.shape().map_err(wrong)?, tensor.strides().map_err(wrong)?) };
    let len = contiguous_len::<T, _, _>(shape, strides, (1, "elements"))?;
    let device = device_of(tensor.device)?;
    let (data, offset) = (tensor.data, tensor.byte_offset);
    if len == 0 {
        return Ok((device, null_mut(), 0));
    }
    if data.is_null() {
        return Err(Error::BadArray(format!("its data are at null, and its shape is {shape:?}")));
    }
    let fits = |offset: &usize| data.addr().checked_add(*offset).is_some();
    let offset = usize::try_from(offset).ok().filter(fits).ok_or_else(|| {
        Error::BadArray(format!("its byte_offset {offset} from {data:p} is past the last address"))
    })?;
    Ok((device, data.wrapping_byte_add(offset).cast(), len))
}

/// The device that DLPack means.
fn device_of(device: DLDevice) -> Result<Device, Error> {
    match device.device_type {
        DLDeviceType::CPU | DLDeviceType::CUDAHOST => Ok(Device::cpu()),
        DLDeviceType::CUDA | DLDeviceType::CUDAMANAGED => {
            let bad = |_| Error::BadArray(format!("its device is number {}", device.device_id));
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
                _ => "a device that is not known",
            };
            Err(Error::ForeignDevice {
                device: format!("{name} (type {}, number {})", other.0, device.device_id),
            })
        }
    }
}

/// As `float32`, and with several lanes as `float32 x 4`.
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
