//! Arrays of other libraries, in and out: `__cuda_array_interface__` and DLPack.

use cust::memory::{DeviceBuffer, LockedBuffer, UnifiedBuffer, mem_get_info};
use cust::stream::{Stream as CustStream, StreamFlags};
use cust::sys::{self, cudaError_enum::CUDA_SUCCESS};
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLTensor,
};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase, legacy, versioned};
use gpu_reduce::{
    ArrayItem, Buffer, CudaArray, Device, Error, Max, Reduce, Stream, Sum, View, ViewMut, bf16, f16,
};
use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use support::{Sample, devices, process, samples};

/// The device under test that is not the CPU, with its primary context current on this thread.
fn gpu() -> Option<(Device, cust::context::Context)> {
    let device = devices().pop().filter(|device| !device.is_cpu())?;
    let context = cust::context::Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    Some((device, context))
}

/// A buffer's elements from `start` on, as a library describes them that writes on no stream.
fn array_of<'v, T: ArrayItem>(
    buffer: &Buffer<T>,
    start: usize,
    typestr: &'v str,
    shape: &'v [usize],
) -> CudaArray<'v> {
    let address = buffer.slice(start..).unwrap().as_ptr().addr();
    CudaArray { shape, typestr, data: (address, false), strides: None, stream: None }
}

/// Panics unless the device still reduces after a refusal.
fn goes_on(device: &Device) {
    let x = device.upload(&[1i32, 2, 3]).unwrap();
    assert_eq!(x.reduce_async::<Sum, 32>(&device.stream().unwrap()).wait(), Ok(6), "{device}");
}

/// How another library describes a tensor.
#[derive(Clone)]
struct Described {
    data: *mut c_void,
    device: DLDevice,
    dtype: DLDataType,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    byte_offset: u64,
    flags: DlpackFlags,
}

/// Dropped by a tensor's deleter; counts its calls.
struct Owner {
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    deleted: Arc<AtomicUsize>,
}

impl Described {
    fn new<T>(first: *const T, len: usize, device: DLDevice, dtype: DLDataType) -> Self {
        let (shape, flags) = (vec![len as i64], DlpackFlags::empty());
        Self { data: first.cast_mut().cast(), device, dtype, shape, strides: None, byte_offset: 0, flags }
    }

    /// A tensor over a buffer's elements.
    fn of<T: ArrayItem>(buffer: &Buffer<T>, dtype: DLDataType) -> Self {
        let device = if buffer.device().is_cpu() { DLDevice::CPU } else { DLDevice::cuda(0) };
        Self::new(buffer.view().as_ptr(), buffer.len(), device, dtype)
    }

    /// A tensor, and the count of its deleter's calls.
    fn tensor<M: ManagedTensorBase>(&self) -> (Managed<M>, Arc<AtomicUsize>) {
        unsafe extern "C" fn delete<M: ManagedTensorBase>(tensor: *mut M) {
            // SAFETY: both pointers are from `Box::into_raw` below.
            let (tensor, owner) = unsafe {
                let owner: *mut Owner = (*tensor).manager_ctx().cast();
                (Box::from_raw(tensor), Box::from_raw(owner))
            };
            owner.deleted.fetch_add(1, Ordering::Relaxed);
            drop((tensor, owner));
        }
        let deleted = Arc::<AtomicUsize>::default();
        let (shape, strides) = (self.shape.clone(), self.strides.clone());
        let owner = Box::leak(Box::new(Owner { shape, strides, deleted: deleted.clone() }));
        let tensor = DLTensor {
            data: self.data,
            device: self.device,
            ndim: owner.shape.len() as i32,
            dtype: self.dtype,
            shape: owner.shape.as_mut_ptr(),
            strides: owner.strides.as_mut().map_or(null_mut(), |strides| strides.as_mut_ptr()),
            byte_offset: self.byte_offset,
        };
        let mut tensor = M::from_parts(tensor, (&raw mut *owner).cast(), Some(delete::<M>));
        // SAFETY: no flag marks a copy, and the tensor is owned here.
        let tensor = unsafe {
            tensor.set_flags_unchecked(self.flags);
            Managed::from_raw(Box::into_raw(Box::new(tensor))).unwrap()
        };
        (tensor, deleted)
    }

    /// The elements of a view of it, for each ABI.
    fn read<T: ArrayItem + PartialEq + std::fmt::Debug>(&self) -> Result<Vec<T>, Error> {
        let (versioned, deleted) = self.tensor::<DLManagedTensorVersioned>();
        let (legacy, _) = self.tensor::<DLManagedTensor>();
        // SAFETY: the test owns the described memory; other descriptions are rejected.
        let read = unsafe { View::<T>::from_dlpack(&versioned).and_then(View::to_vec) };
        // SAFETY: as above.
        assert_eq!(read, unsafe { View::<T>::from_dlpack(&legacy).and_then(View::to_vec) });
        assert_eq!(deleted.load(Ordering::Relaxed), 0, "it was borrowed");
        drop(versioned);
        assert_eq!(deleted.load(Ordering::Relaxed), 1);
        read
    }
}

const I32: DLDataType = DLDataType::I32;

/// Both protocols, over elements of each type, by the protocol's name of the type.
fn reduces_where_it_lies<T: Sample + ArrayItem>(typestrs: &[&str], dtype: DLDataType)
where
    Sum: gpu_reduce::Op<T, Output: PartialEq + std::fmt::Debug + gpu_reduce::Item> + Default,
{
    let data = samples(1000, T::any);
    for device in devices() {
        let stream = device.stream().unwrap();
        let x = device.upload(&data).unwrap();
        for start in [0, 1, 3, 999, 1000] {
            let data = &data[start..];
            let expected = data.reduce::<Sum, 64>();
            let offset = (start * size_of::<T>()) as u64;
            let shape = vec![data.len() as i64];
            let described = Described { byte_offset: offset, shape, ..Described::of(&x, dtype) };
            assert_eq!(described.read::<T>().as_deref(), Ok(data), "{device}");
            let (tensor, _) = described.tensor::<DLManagedTensorVersioned>();
            // SAFETY: the array outlives the view, and nothing writes to it.
            let view = unsafe { View::<T>::from_dlpack(&tensor) }.unwrap();
            assert_eq!((view.reduce::<Sum, 64>(), view.device()), (expected, device.clone()));
            for typestr in typestrs.iter().filter(|_| !device.is_cpu()) {
                let expected = data.reduce::<Sum, 64>();
                let shape = [data.len()];
                let array = array_of(&x, start, typestr, &shape);
                // SAFETY: as above.
                let view = unsafe { array.view::<T>(&stream) }.unwrap();
                assert_eq!(
                    view.reduce_async::<Sum, 64>(&stream).wait(),
                    expected,
                    "{typestr} from {start} on {device}"
                );
            }
        }
    }
}

#[test]
fn arrays_of_all_types_reduce_where_they_lie() {
    let dtype = |code, bits| DLDataType { code: DLDataTypeCode(code), bits, lanes: 1 };
    reduces_where_it_lies::<i8>(&["|i1", "<i1", "=i1"], dtype(0, 8));
    reduces_where_it_lies::<i16>(&["<i2"], dtype(0, 16));
    reduces_where_it_lies::<i32>(&["<i4"], dtype(0, 32));
    reduces_where_it_lies::<i64>(&["<i8"], dtype(0, 64));
    reduces_where_it_lies::<u8>(&["|u1", "<u1"], dtype(1, 8));
    reduces_where_it_lies::<u16>(&["<u2"], dtype(1, 16));
    reduces_where_it_lies::<u32>(&["<u4"], dtype(1, 32));
    reduces_where_it_lies::<u64>(&["<u8"], dtype(1, 64));
    reduces_where_it_lies::<f16>(&["<f2"], dtype(2, 16));
    reduces_where_it_lies::<bf16>(&["<V2"], dtype(4, 16));
    reduces_where_it_lies::<f32>(&["<f4"], dtype(2, 32));
    reduces_where_it_lies::<f64>(&["<f8"], dtype(2, 64));
    reduces_where_it_lies::<usize>(&["<u8"], dtype(1, 64));
    reduces_where_it_lies::<isize>(&["<i8"], dtype(0, 64));
}

#[test]
fn booleans_are_read() {
    let data = [true, false, true, true];
    for device in devices() {
        let x = device.upload(&data).unwrap();
        assert_eq!(Described::of(&x, DLDataType::BOOL).read::<bool>().as_deref(), Ok(&data[..]));
        if !device.is_cpu() {
            let array = array_of(&x, 1, "|b1", &[3]);
            // SAFETY: the array outlives the view, and nothing writes to it.
            let view = unsafe { array.view::<bool>(&device.stream().unwrap()) }.unwrap();
            assert_eq!(view.to_vec().as_deref(), Ok(&data[1..]));
        }
    }
}

/// The outcome of a view of an array: a number of elements, or an error.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Elements(usize),
    NotContiguous,
    Bad,
}

use Outcome::{Bad, Elements, NotContiguous};

type Layout = (&'static [i64], Option<&'static [i64]>, Outcome);

/// Shapes and strides, in elements, over a memory of six elements, with the outcome of each.
const LAYOUTS: &[Layout] = &[
    (&[], None, Elements(1)),
    (&[], Some(&[]), Elements(1)),
    (&[6], None, Elements(6)),
    (&[6], Some(&[1]), Elements(6)),
    (&[2, 3], Some(&[3, 1]), Elements(6)),
    (&[1, 6], Some(&[999, 1]), Elements(6)),
    (&[6, 1], Some(&[1, -7]), Elements(6)),
    (&[2, 1, 3], Some(&[3, 0, 1]), Elements(6)),
    (&[1, 1], Some(&[i64::MAX, i64::MIN]), Elements(1)),
    (&[0], None, Elements(0)),
    (&[2, 0, 3], Some(&[-5, 7, 0]), Elements(0)),
    (&[i64::MAX, i64::MAX, 0], None, Elements(0)),
    (&[3], Some(&[2]), NotContiguous),
    (&[6], Some(&[-1]), NotContiguous),
    (&[2, 3], Some(&[1, 2]), NotContiguous),
    (&[3, 2], Some(&[3, 1]), NotContiguous),
    (&[2, 3], Some(&[2, 1]), NotContiguous),
    (&[2, 3], Some(&[0, 1]), NotContiguous),
    (&[6], Some(&[0]), NotContiguous),
    (&[2, 3], Some(&[-3, 1]), NotContiguous),
    (&[2, 3], Some(&[1]), Bad),
    (&[], Some(&[1]), Bad),
    (&[1 << 40, 1 << 40], None, Bad),
    (&[i64::MAX], None, Bad),
    (&[2, i64::MAX, i64::MAX, i64::MAX], None, Bad),
    (&[1 << 61], None, Bad),
];

fn outcome(read: &Result<Vec<i32>, Error>, data: &[i32]) -> Outcome {
    match read {
        Ok(elements) => {
            assert_eq!(elements, &data[..elements.len()]);
            Elements(elements.len())
        }
        Err(Error::NotContiguous { .. }) => NotContiguous,
        Err(Error::BadArray(_)) => Bad,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_is_contiguous_is_taken_and_nothing_else() {
    let data = [3, 1, 4, 1, 5, 9];
    for device in devices() {
        let x = device.upload(&data).unwrap();
        for &(shape, strides, expected) in LAYOUTS {
            // DLPack cannot have a wrong number of strides.
            if strides.is_none_or(|strides| strides.len() == shape.len()) {
                let strides = strides.map(<[i64]>::to_vec);
                let mut described = Described { shape: shape.to_vec(), strides, ..Described::of(&x, I32) };
                if expected == Elements(0) {
                    (described.data, described.byte_offset) = (null_mut(), 3);
                }
                assert_eq!(outcome(&described.read(), &data), expected, "{shape:?} on {device}");
            }
        }
        let negative = Described { shape: vec![2, -3], ..Described::of(&x, I32) };
        assert_eq!(outcome(&negative.read(), &data), Bad, "{device}");
        goes_on(&device);
    }
}

#[test]
fn arrays_by_the_interface_that_are_contiguous_are_taken_and_nothing_else() {
    let Some((device, _context)) = gpu() else { return };
    let data = [3, 1, 4, 1, 5, 9];
    let x = device.upload(&data).unwrap();
    let stream = device.stream().unwrap();
    for &(shape, strides, expected) in LAYOUTS {
        let shape: Vec<_> = shape.iter().map(|&length| length as usize).collect();
        let strides: Option<Vec<_>> =
            strides.map(|strides| strides.iter().map(|&stride| (stride as isize).wrapping_mul(4)).collect());
        let mut array = CudaArray { strides: strides.as_deref(), ..array_of(&x, 0, "<i4", &shape) };
        if expected == Elements(0) {
            array.data.0 = 3;
        }
        // SAFETY: the array outlives the view, and nothing writes to it; otherwise the call is rejected.
        let read = unsafe { array.view(&stream) }.and_then(View::to_vec);
        assert_eq!(outcome(&read, &data), expected, "{array:?}");
    }
    goes_on(&device);
}

#[test]
fn errors_say_what_to_do() {
    let Some((device, _context)) = gpu() else { return };
    let x = device.upload(&[1i32, 2, 3, 4, 5, 6]).unwrap();
    let stream = device.stream().unwrap();
    // SAFETY: the call is rejected.
    let refused = |array: CudaArray| unsafe { array.view::<i32>(&stream) }.unwrap_err().to_string();
    let array = array_of(&x, 0, "<i4", &[3, 2]);
    assert_eq!(
        refused(CudaArray { strides: Some(&[4, 12]), ..array }),
        "an array of shape [3, 2] with strides of [4, 12] bytes is not C-contiguous: copy it first \
         (PyTorch: x.contiguous(), CuPy: cupy.ascontiguousarray(x))"
    );
    assert_eq!(
        refused(CudaArray { typestr: "<f4", ..array }),
        "the array's elements are <f4, not i32 (<i4): use their own type, or convert them"
    );
    assert_eq!(
        refused(CudaArray { shape: &[1 << 40, 1 << 40], ..array }),
        "the array's description is invalid: its shape [1099511627776, 1099511627776] has more bytes than an address space"
    );
    assert!(refused(CudaArray { stream: Some(0), ..array }).contains("its stream is 0"));
    let described = Described::of(&x, I32);
    let refused = |described: Described| described.read::<i32>().unwrap_err().to_string();
    assert_eq!(
        refused(Described { shape: vec![3, 2], strides: Some(vec![1, 3]), ..described.clone() }),
        "an array of shape [3, 2] with strides of [1, 3] elements is not C-contiguous: copy it first \
         (PyTorch: x.contiguous(), CuPy: cupy.ascontiguousarray(x))"
    );
    assert_eq!(
        refused(Described { dtype: DLDataType { lanes: 4, ..I32 }, ..described.clone() }),
        "the array's elements are int32 x 4, not i32 (int32): use their own type, or convert them"
    );
    assert_eq!(
        refused(Described { device: DLDevice::metal(7), ..described }),
        "the array is on Metal (type 8, number 7): copy it to the CPU or to a CUDA GPU"
    );
}

#[test]
fn other_types_are_refused() {
    for device in devices() {
        let x = device.upload(&[0u8; 64]).unwrap();
        let stream = device.stream().unwrap();
        let typestrs = [
            ">i4", "|i4", "=i4", "i4", "<u4", "<i8", "<f4", "<i", "", "<", "<i44", "<i4 ", "<c8", "|b1", "ü",
            "<V4",
        ];
        for typestr in typestrs.into_iter().filter(|_| !device.is_cpu()) {
            let array = array_of(&x, 0, typestr, &[4]);
            // SAFETY: the call is rejected.
            let refused = unsafe { array.view::<i32>(&stream) }.map(|_| ());
            let expected = "i32 (<i4)".to_owned();
            assert_eq!(refused, Err(Error::OtherType { found: typestr.to_owned(), expected }));
            // SAFETY: the call is rejected.
            let single = unsafe { array.view::<bool>(&stream) };
            assert_eq!(single.is_ok(), typestr == "|b1", "{typestr}");
        }
        let other = |dtype| Described::of(&x, dtype).read::<i32>();
        for dtype in [
            DLDataType::U32,
            DLDataType::I16,
            DLDataType::F32,
            DLDataType::BOOL,
            DLDataType::C64,
            DLDataType { lanes: 2, ..I32 },
            DLDataType { lanes: 0, ..I32 },
            DLDataType { bits: 0, ..I32 },
            DLDataType { code: DLDataTypeCode(99), ..I32 },
        ] {
            let refused = other(dtype);
            assert!(matches!(refused, Err(Error::OtherType { .. })), "{dtype:?}: {refused:?}");
        }
        // A type with as many bits, but another type.
        let half = Described::of(&x, DLDataType::F16);
        assert!(matches!(half.read::<bf16>(), Err(Error::OtherType { .. })));
        assert!(matches!(half.read::<i16>(), Err(Error::OtherType { .. })));
        goes_on(&device);
    }
}

#[test]
fn other_devices_are_refused() {
    let cpu = Device::cpu();
    let host = [1i32, 2, 3];
    let array = CudaArray {
        shape: &[3],
        typestr: "<i4",
        data: (host.as_ptr().addr(), false),
        strides: None,
        stream: None,
    };
    // SAFETY: the call is rejected.
    let refused = unsafe { array.view::<i32>(&cpu.stream().unwrap()) }.map(|_| ());
    assert_eq!(refused, Err(Error::DeviceMismatch { buffer: "a GPU".to_owned(), device: cpu.to_string() }));
    let on = |device_type, device_id| {
        let device = DLDevice { device_type, device_id };
        Described::new(host.as_ptr(), host.len(), device, I32).read::<i32>()
    };
    for device_type in [0, 4, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 99].map(DLDeviceType) {
        let refused = on(device_type, 0);
        assert!(matches!(refused, Err(Error::ForeignDevice { .. })), "{device_type:?}: {refused:?}");
    }
    assert_eq!(on(DLDeviceType::CUDAHOST, 0).as_deref(), Ok(&host[..]));
    let Some((device, _context)) = gpu() else { return };
    assert!(matches!(on(DLDeviceType::CUDA, 99), Err(Error::NoSuchDevice { index: 99, .. })));
    assert!(matches!(on(DLDeviceType::CUDA, -1), Err(Error::BadArray(_))));
    // Addresses unknown to the driver.
    assert!(matches!(on(DLDeviceType::CUDA, 0), Err(Error::Driver { .. })));
    let stream = device.stream().unwrap();
    // SAFETY: the call is rejected.
    let unknown = unsafe { array.view::<i32>(&stream) }.map(|_| ());
    assert!(matches!(unknown, Err(Error::Driver { .. })), "{unknown:?}");
    // SAFETY: the call is rejected.
    let null = unsafe { CudaArray { data: (0, false), ..array }.view::<i32>(&stream) }.map(|_| ());
    assert!(matches!(null, Err(Error::Driver { .. })), "{null:?}");
    goes_on(&device);
}

#[test]
fn addresses_that_cannot_be_are_refused() {
    for device in devices() {
        let x = device.upload(&[1i32, 2, 3, 4]).unwrap();
        let described = Described::of(&x, I32);
        let unaligned = Described { byte_offset: 2, shape: vec![2], ..described.clone() };
        let address = x.view().as_ptr().addr() as u64 + 2;
        assert_eq!(unaligned.read::<i32>(), Err(Error::Unaligned { address, align: 4 }), "{device}");
        let null = Described { data: null_mut(), byte_offset: 4, ..described.clone() };
        assert!(matches!(null.read::<i32>(), Err(Error::BadArray(_))));
        let past = Described { byte_offset: u64::MAX - 3, ..described.clone() };
        assert!(matches!(past.read::<i32>(), Err(Error::BadArray(_))));
        if device.is_cpu() {
            continue;
        }
        let long = Described { shape: vec![1 << 20], ..described };
        assert!(matches!(long.read::<i32>(), Err(Error::OutOfBounds { start: 0, .. })));
        let stream = device.stream().unwrap();
        let array = array_of(&x, 0, "<i4", &[2]);
        let at = |address| CudaArray { data: (address, false), ..array };
        // SAFETY: the call is rejected.
        let unaligned = unsafe { at(address as usize).view::<i32>(&stream) }.map(|_| ());
        assert_eq!(unaligned, Err(Error::Unaligned { address, align: 4 }));
        // SAFETY: the call is rejected.
        let long = unsafe { CudaArray { shape: &[1 << 20], ..array }.view::<i32>(&stream) }.map(|_| ());
        assert!(matches!(long, Err(Error::OutOfBounds { start: 0, .. })), "{long:?}");
        goes_on(&device);
    }
}

/// A stream waits for the earlier work of the array's stream, whichever two streams they are.
#[test]
fn arrays_come_after_their_stream() {
    unsafe extern "C" fn sleep(_: *mut c_void) {
        thread::sleep(Duration::from_millis(20));
    }
    let Some((device, _context)) = gpu() else { return };
    let data = samples(100_000, |hash| hash as i32);
    let expected = data.reduce::<Sum, 256>();
    let pinned = LockedBuffer::from_slice(&data).unwrap();
    let (first, second) = (
        CustStream::new(StreamFlags::NON_BLOCKING, None).unwrap(),
        CustStream::new(StreamFlags::NON_BLOCKING, None).unwrap(),
    );
    let handles = [first.as_inner().addr(), 1, 2, second.as_inner().addr()];
    for own in handles {
        for reduced in handles.into_iter().chain([0]) {
            let x = DeviceBuffer::<i32>::zeroed(data.len()).unwrap();
            let address = x.as_device_ptr().as_raw();
            let stream: sys::CUstream = without_provenance_mut(own);
            // SAFETY: the copied memory lives until the stream has been waited for.
            unsafe {
                assert_eq!(sys::cuLaunchHostFunc(stream, Some(sleep), null_mut()), CUDA_SUCCESS);
                let bytes = size_of_val(&data[..]);
                let copied = sys::cuMemcpyHtoDAsync_v2(address, pinned.as_ptr().cast(), bytes, stream);
                assert_eq!(copied, CUDA_SUCCESS);
            }
            let array = CudaArray {
                shape: &[1000, 100],
                typestr: "<i4",
                data: (address as usize, true),
                strides: Some(&[400, 4]),
                stream: Some(own),
            };
            // SAFETY: the streams and elements outlive their use, and nothing else writes to them.
            let (stream, view) = unsafe {
                let stream = device.stream_from_raw(without_provenance_mut(reduced)).unwrap();
                let view = array.view::<i32>(&stream).unwrap();
                (stream, view)
            };
            assert_eq!(view.reduce_async::<Sum, 256>(&stream).wait(), expected, "{own} before {reduced}");
            // The array has no stream, because the stream has been waited for.
            stream.synchronize().unwrap();
            assert_eq!(view.reduce::<Sum, 256>(), expected);
        }
    }
}

#[test]
fn streams_of_another_context_are_refused() {
    use cust::context::legacy::{Context, ContextFlags, ContextStack};
    let Some((device, _context)) = gpu() else { return };
    let x = device.upload(&[1i32, 2, 3]).unwrap();
    let stream = device.stream().unwrap();
    let raw = cust::device::Device::get_device(0).unwrap();
    let other = Context::create_and_push(ContextFlags::SCHED_AUTO, raw).unwrap();
    let of_other = CustStream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let array = CudaArray { stream: Some(of_other.as_inner().addr()), ..array_of(&x, 0, "<i4", &[3]) };
    // SAFETY: the call is rejected.
    let refused = unsafe { array.view::<i32>(&stream) }.map(|_| ());
    assert!(matches!(refused, Err(Error::ContextMismatch { what: "the stream", .. })), "{refused:?}");
    drop(of_other);
    ContextStack::pop().unwrap();
    drop(other);
    goes_on(&device);
}

#[test]
fn results_are_written_where_others_have_room() {
    for device in devices() {
        let x = device.upload(&[3i32, 1, 2]).unwrap();
        let stream = device.stream().unwrap();
        let mut results = device.zeros::<i32>(2).unwrap();
        let described = Described { byte_offset: 4, shape: vec![1], ..Described::of(&results, I32) };
        let read_only = Described { flags: DlpackFlags::READ_ONLY, ..described.clone() };
        let address = results.view().as_ptr().addr();
        let refused = Err(Error::ReadOnly { address: address as u64 + 4 });
        let (mut tensor, _) = read_only.tensor::<DLManagedTensorVersioned>();
        assert_eq!(read_only.read::<i32>(), Ok(vec![0]), "it is to be read");
        let first = results.view_mut().as_mut_ptr();
        // SAFETY: the call is rejected.
        assert_eq!(unsafe { ViewMut::<i32>::from_dlpack(&mut tensor) }.map(|_| ()), refused, "{device}");
        let (mut tensor, _) =
            Described { data: first.cast(), ..described }.tensor::<DLManagedTensorVersioned>();
        // SAFETY: the memory lives, unused otherwise, until the stream has been waited for.
        unsafe {
            let place = ViewMut::<i32>::from_dlpack(&mut tensor).unwrap();
            x.reduce_into::<Max, 64>(&stream, place).unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(results.to_vec().unwrap(), [0, 3]);
        if device.is_cpu() {
            continue;
        }
        let array = array_of(&results, 0, "<i4", &[1]);
        let read_only = CudaArray { data: (address, true), ..array };
        // SAFETY: the call is rejected.
        let refused = unsafe { read_only.view_mut::<i32>(&stream) }.map(|_| ());
        assert_eq!(refused, Err(Error::ReadOnly { address: address as u64 }));
        // SAFETY: as above.
        unsafe { x.reduce_into::<Max, 64>(&stream, array.view_mut(&stream).unwrap()).unwrap() };
        stream.synchronize().unwrap();
        assert_eq!(results.to_vec().unwrap(), [3, 3]);
    }
}

#[test]
fn pinned_and_managed_memory_lie_where_dlpack_says() {
    let Some((device, _context)) = gpu() else { return };
    let data = samples(10_001, |hash| hash as i32);
    let (pinned, managed) =
        (LockedBuffer::from_slice(&data).unwrap(), UnifiedBuffer::from_slice(&data).unwrap());
    let cases = [
        (pinned.as_ptr(), DLDeviceType::CUDAHOST, Device::cpu()),
        (managed.as_ptr(), DLDeviceType::CUDAMANAGED, device),
    ];
    for (first, device_type, device) in cases {
        let described = Described::new(first, data.len(), DLDevice { device_type, device_id: 0 }, I32);
        let (tensor, _) = described.tensor::<DLManagedTensor>();
        // SAFETY: the array outlives the view, and nothing writes to it.
        let view = unsafe { View::<i32>::from_dlpack(&tensor) }.unwrap();
        assert_eq!((view.device(), view.reduce::<Sum, 128>()), (device, data.reduce::<Sum, 128>()));
    }
}

/// A buffer that was given away comes back the same, on its device.
fn round_trip<M: ManagedTensorBase + 'static>(device: &Device) {
    let data = samples(12_345, f32::any);
    let expected = data.reduce::<Sum, 256>();
    let buffer = device.upload(&data).unwrap();
    let first = buffer.view().as_ptr();
    let tensor: Managed<M> = buffer.into_dlpack();
    let described = tensor.validate_export().unwrap();
    assert_eq!((described.shape(), described.strides()), (&[12_345][..], Some(&[1][..])));
    assert_eq!(described.data_ptr(), first.cast());
    let expected_device = if device.is_cpu() { DLDevice::CPU } else { DLDevice::cuda(0) };
    assert_eq!((described.device(), described.dtype()), (expected_device, DLDataType::F32));
    // Through the pointer, as another library holds it, and on another thread.
    let raw = tensor.into_raw() as usize;
    let sum = thread::spawn(move || {
        // SAFETY: the pointer is the tensor's, and this thread owns it.
        let tensor = unsafe { Managed::<M>::from_raw(raw as *mut M) }.unwrap();
        // SAFETY: nothing writes to the elements.
        unsafe { View::<f32>::from_dlpack(&tensor) }.unwrap().reduce::<Sum, 256>()
    });
    assert_eq!(sum.join().unwrap(), expected, "{device}");
}

#[test]
fn buffers_go_and_come_back() {
    for device in devices() {
        round_trip::<DLManagedTensorVersioned>(&device);
        round_trip::<DLManagedTensor>(&device);
        let none: versioned::Dlpack = device.zeros::<u16>(0).unwrap().into_dlpack();
        assert!(none.validate_export().unwrap().data_ptr().is_null());
        // SAFETY: the array is empty.
        assert_eq!(unsafe { View::<u16>::from_dlpack(&none) }.unwrap().reduce::<Sum, 32>(), Ok(0));
        let mut tensor: legacy::Dlpack = device.upload(&[false; 3]).unwrap().into_dlpack();
        // SAFETY: nothing else uses the elements.
        unsafe {
            ViewMut::<bool>::from_dlpack(&mut tensor).unwrap().write(&[true, false]).unwrap();
            let view = View::<bool>::from_dlpack(&tensor).unwrap();
            assert_eq!(view.to_vec().unwrap(), [true, false, false]);
        }
    }
}

/// By the driver's count of free memory, in a process of its own, because other tests allocate too.
#[test]
fn what_was_given_away_is_freed_once() {
    const BYTES: usize = 256 << 20;
    if !process::is_own("foreign::what_was_given_away_is_freed_once", |_| {}) {
        return;
    }
    let Some((device, _context)) = gpu() else { return };
    let free = || mem_get_info().unwrap().0 as i64;
    let before = free();
    for _ in 0..3 {
        let tensor: versioned::Dlpack = device.zeros::<u8>(BYTES).unwrap().into_dlpack();
        assert!(before - free() > BYTES as i64 / 2, "it stays as long as the tensor");
        drop(tensor);
        assert!(before - free() < BYTES as i64 / 2);
    }
    goes_on(&device);
}

/// The types allow it: views borrow a tensor, and any stream may read it.
#[test]
fn a_view_reads_on_any_stream() {
    for device in devices() {
        let tensor: versioned::Dlpack = device.upload(&[1i64, 2, 3]).unwrap().into_dlpack();
        let streams: [Stream; 2] = [device.stream().unwrap(), device.stream().unwrap()];
        // SAFETY: nothing writes to the elements.
        let view = unsafe { View::<i64>::from_dlpack(&tensor) }.unwrap();
        let sums = streams.each_ref().map(|stream| view.reduce_async::<Sum, 32>(stream));
        assert_eq!(sums.map(|sum| sum.wait()), [Ok(6), Ok(6)]);
    }
}
