//! A C library that sums an array on the GPU in place, on the caller's stream. The array may be PyTorch's or
//! of any library with `__cuda_array_interface__`. `sum.py` in this folder calls it.

use gpu_reduce::{CudaArray, Device, Reduce, Sum};
use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null;
use std::slice;

/// An array's `__cuda_array_interface__` in C.
#[repr(C)]
pub struct Array {
    /// The lengths of the axes, and their strides in bytes or null.
    shape: *const usize,
    strides: *const isize,
    axes: usize,
    typestr: *const c_char,
    data: usize,
    is_read_only: bool,
    /// The stream, or 0 for none.
    stream: usize,
}

impl Array {
    /// # Safety
    ///
    /// The pointers are valid.
    unsafe fn described(&self) -> Result<CudaArray<'_>, Box<dyn Error>> {
        let Self { shape, strides, axes, typestr, data, is_read_only, stream } = *self;
        // SAFETY: as the caller vouches.
        Ok(unsafe {
            CudaArray {
                shape: if axes == 0 { &[] } else { slice::from_raw_parts(shape, axes) },
                typestr: CStr::from_ptr(typestr).to_str()?,
                data: (data, is_read_only),
                strides: (!strides.is_null()).then(|| slice::from_raw_parts(strides, axes)),
                stream: (stream != 0).then_some(stream),
            }
        })
    }
}

/// Enqueues the sum of an array's elements on a stream; the result goes to the first element of another
/// array.
///
/// The result is `float32` or `float64`, or `int64` for integers. Returns null, or an error message that
/// stays valid until the thread's next call.
///
/// # Safety
///
/// The descriptions of the arrays are true, and the stream is one of the driver's. Other accesses to the
/// elements and the result are ordered with this one by the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpu_reduce_sum(
    array: &Array,
    result: &Array,
    device: usize,
    stream: *mut c_void,
) -> *const c_char {
    thread_local! {
        static WHY: RefCell<CString> = RefCell::default();
    }
    // SAFETY: as the caller vouches.
    match unsafe { sum(array, result, device, stream) } {
        Ok(()) => null(),
        Err(why) => WHY.with_borrow_mut(|text| {
            *text = CString::new(why.to_string()).unwrap_or_default();
            text.as_ptr()
        }),
    }
}

unsafe fn sum(
    array: &Array,
    result: &Array,
    device: usize,
    stream: *mut c_void,
) -> Result<(), Box<dyn Error>> {
    let device = Device::cuda(device)?;
    // SAFETY: as the caller vouches.
    unsafe {
        let stream = device.stream_from_raw(stream)?;
        let (array, result) = (array.described()?, result.described()?);
        macro_rules! of_types {
            ($($typestr:literal: $type:ident;)*) => {
                match array.typestr {
                    $($typestr => {
                        let items = array.view::<$type>(&stream)?;
                        items.reduce_into::<Sum, 512>(&stream, result.view_mut(&stream)?)?;
                    })*
                    other => {
                        let why = format!("{other} is not supported: give float32, float64, int32 or int64");
                        return Err(why.into());
                    }
                }
            };
        }
        of_types! {
            "<f4": f32;
            "<f8": f64;
            "<i4": i32;
            "<i8": i64;
        }
    }
    Ok(())
}
