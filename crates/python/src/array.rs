//! Arrays of other libraries: their elements where they lie.

use std::ptr::{null_mut, with_exposed_provenance, without_provenance};
use std::slice::from_raw_parts;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array as _, ArrayRef, BooleanArray, make_array};
use bytemuck::cast_slice_mut;
use dlpark::TensorRef;
use dlpark::ffi::DLDeviceType;
use dlpark::python::{DlpackStream, ImportRequest, ImportedDlpack, StreamArg};
use gpu_reduce::{Device, Element, Error, Stream, View};
use gpu_reduce_dynamic::Dtype;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyString, PyTuple};

use crate::cuda_interface::{self, strides_in_elements};
use crate::error::of_library;
use crate::exchange::Exchange;
use crate::kind::Kind;
use crate::numpy::numpy;
use crate::on_gpu::{CuPy, Current, Library};
use crate::tensor::first_of;

/// An array, whose owner keeps its elements.
pub struct Array<'py> {
    pub kind: Kind,
    pub shape: Vec<usize>,
    /// The distance of two neighbours of each axis, in elements.
    pub strides: Vec<isize>,
    first: *const u8,
    pub device: Device,
    /// Which elements are there, if some are null: of Arrow's arrays, which have one axis.
    pub valid: Option<Vec<bool>>,
    /// The tensor to whose library the results go; NumPy's if none.
    pub home: Option<Bound<'py, PyAny>>,
    /// The stream of the tensor's library on which the elements are written. None if they are there.
    pub current: Option<Current>,
    /// Whether `current` was waited for.
    is_there: AtomicBool,
    _owner: Owner,
}

/// What keeps the elements until it is dropped.
#[expect(dead_code, reason = "they are dropped")]
enum Owner {
    Buffer(PyUntypedBuffer),
    Tensor(ImportedDlpack),
    Arrow(ArrayRef),
    Object(Py<PyAny>),
    Items(Vec<u64>),
}

impl<'py> Array<'py> {
    /// The array of a Python object: a NumPy array or another buffer, an Arrow array, a tensor, or what NumPy
    /// makes an array of. Complex numbers are refused.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        match Self::of_any(object)? {
            array if array.kind.is_complex => {
                let why = "arrays of complex numbers are not reduced by this function";
                Err(PyTypeError::new_err(why))
            }
            array => Ok(array),
        }
    }

    /// As [`of`](Self::of), of complex numbers too: their strides count floats.
    pub fn of_any(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if object.is_exact_instance(numpy(py)?.ndarray.bind(py)) {
            return Self::of_numpy(object);
        }
        if Exchange::found(object).is_some() {
            return Self::of_tensor(object);
        }
        if let Some(cupy) = CuPy::of(object)? {
            return Self::of_cupy(object, cupy);
        }
        if object.is_instance(numpy(py)?.ndarray.bind(py))? {
            if object.hasattr("mask")? {
                let why = "a masked array is not reduced: pass x.data, with where=~numpy.ma.getmaskarray(x)";
                return Err(PyTypeError::new_err(why));
            }
            return Self::of_numpy(object);
        }
        for (protocol, import) in [
            ("__arrow_c_array__", Self::of_arrow as fn(&Bound<'py, PyAny>) -> PyResult<Self>),
            ("__arrow_c_stream__", Self::of_arrow_stream),
            ("__dlpack__", Self::of_tensor),
            ("__cuda_array_interface__", cuda_interface::import),
        ] {
            if object.hasattr(protocol)? && !object.is_instance(numpy(py)?.generic.bind(py))? {
                // A data frame: NumPy makes an array of its columns.
                if protocol.starts_with("__arrow") && object.hasattr("columns")? {
                    break;
                }
                return import(object);
            }
        }
        Self::of_numpy(&numpy(py)?.module.bind(py).call_method1("asarray", (object,))?)
    }

    /// As [`of`](Self::of), of an array without nulls.
    pub fn without_nulls(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        let array = Self::of(object)?;
        match array.valid {
            None => Ok(array),
            Some(_) => Err(PyValueError::new_err(format!("{name} has nulls: fill them, or leave them out"))),
        }
    }

    /// As [`of`](Self::of), of an array with one axis and without nulls.
    pub fn of_one_axis(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Self> {
        let array = Self::without_nulls(object, name)?;
        match array.shape.len() {
            1 => Ok(array),
            axes => Err(PyValueError::new_err(format!("{name} has {axes} axes, not one"))),
        }
    }

    fn of_numpy(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let refused = || -> PyResult<Self> {
            if object.getattr("ndim")?.extract::<usize>()? == 0 {
                let mut one = Self::of_numpy(&object.call_method1("reshape", (1,))?)?;
                (one.shape, one.strides) = (Vec::new(), Vec::new());
                return Ok(one);
            }
            let dtype = object.getattr("dtype")?;
            // Another byte order.
            if "iufbc".contains(&dtype.getattr("kind")?.extract::<String>()?)
                && !dtype.getattr("isnative")?.extract::<bool>()?
            {
                let native = dtype.call_method1("newbyteorder", ("=",))?;
                return Self::of_numpy(&object.call_method1("astype", (native,))?);
            }
            if let Some(float) = match dtype.getattr("name")?.extract::<&str>()? {
                "complex64" => Some("f4"),
                "complex128" => Some("f8"),
                _ => None,
            } {
                // An axis of pairs.
                let pairs = object.get_item((py.Ellipsis(), py.None()))?.call_method1("view", (float,))?;
                let mut complex = Self::of_numpy(&pairs)?;
                complex.kind.is_complex = true;
                complex.shape.pop();
                complex.strides.pop();
                return Ok(complex);
            }
            if dtype.getattr("name")?.extract::<String>()? == "bfloat16" {
                let mut bits = Self::of_numpy(&object.call_method1("view", ("uint16",))?)?;
                bits.kind = Dtype::bf16.into();
                return Ok(bits);
            }
            Err(PyTypeError::new_err(format!(
                "arrays of {dtype} are not reduced: only numbers and booleans are"
            )))
        };
        let Ok(buffer) = PyUntypedBuffer::get(object) else { return refused() };
        let Some(kind) = Kind::of_buffer(buffer.format()) else { return refused() };
        let size = kind.dtype.size();
        let is_whole = |stride: &isize| stride % size as isize == 0;
        if !buffer.strides().iter().all(is_whole) || buffer.buf_ptr().addr() % size != 0 {
            return Self::of_numpy(&numpy(py)?.module.bind(py).call_method1("array", (object,))?);
        }
        Ok(Self {
            kind,
            shape: buffer.shape().to_vec(),
            strides: buffer.strides().iter().map(|stride| stride / size as isize).collect(),
            first: buffer.buf_ptr().cast(),
            device: Device::cpu(),
            valid: None,
            home: None,
            current: None,
            is_there: AtomicBool::new(true),
            _owner: Owner::Buffer(buffer),
        })
    }

    fn of_tensor(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        // PyTorch's, whose gradient would be lost without a word.
        let requires = object.getattr_opt(intern!(object.py(), "requires_grad"))?;
        if requires.is_some_and(|requires| requires.is_truthy().unwrap_or(false)) {
            return Err(PyTypeError::new_err(
                "the tensor requires a gradient, which is not computed: use x.detach()",
            ));
        }
        let described =
            Exchange::of(object).map(|exchange| Self::of_exchange(object, exchange)).transpose()?;
        let array = match described.flatten() {
            Some(array) => array,
            None => Self::of_capsule(object)?,
        };
        // PyTorch's views that negate or conjugate elements when these are read: DLPack describes none.
        let is = |name| -> PyResult<bool> {
            object.getattr_opt(name)?.map_or(Ok(false), |is: Bound<'py, PyAny>| is.call0()?.is_truthy())
        };
        let py = object.py();
        if is(intern!(py, "is_neg"))? || array.kind.is_complex && is(intern!(py, "is_conj"))? {
            let copy = object.call_method0("resolve_conj")?.call_method0("resolve_neg")?;
            return Ok(Self { home: array.home, ..Self::of_tensor(&copy)? });
        }
        Ok(array)
    }

    /// The array of a tensor by `__dlpack__`.
    fn of_capsule(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let request = ImportRequest::new(object.as_borrowed())?;
        let at = request.device()?;
        let (device, tensor) = match at.device_type {
            DLDeviceType::CPU | DLDeviceType::CUDAHOST => (Device::cpu(), request.import(None, None)?),
            DLDeviceType::CUDA | DLDeviceType::CUDAMANAGED => {
                let index = at.device_id.try_into().unwrap_or(usize::MAX);
                let device = Device::cuda(index).map_err(of_library)?;
                let stream = match spare(index) {
                    Some(stream) => stream,
                    None => device.stream().map_err(of_library)?,
                };
                let tensor = request.import(Some(&Waiting(&stream)), None)?;
                // The import made this stream wait for the work that writes the elements: wait until it is
                // done.
                stream.synchronize().map_err(of_library)?;
                spares().push((index, stream));
                (device, tensor)
            }
            other => {
                let why = format!(
                    "a tensor on a device of DLPack's type {} cannot be reduced where it lies: copy=True copies it \
                     to the CPU",
                    other.0
                );
                return Err(PyTypeError::new_err(why));
            }
        };
        let described = tensor.validate().map_err(|why| PyValueError::new_err(why.to_string()))?;
        let mut array = Self::described(object, &described, device, None)?;
        array._owner = Owner::Tensor(tensor);
        Ok(array)
    }

    /// The array of a tensor that its library's C functions describe; none if they do not.
    fn of_exchange(object: &Bound<'py, PyAny>, exchange: &Exchange) -> PyResult<Option<Self>> {
        let py = object.py();
        let described = exchange.describe(object, |tensor| {
            let at = tensor.device();
            let (device, current) = match at.device_type {
                DLDeviceType::CPU | DLDeviceType::CUDAHOST => (Ok(Device::cpu()), None),
                DLDeviceType::CUDA => {
                    let stream = exchange.current_stream(py, at)?.expose_provenance();
                    let index = at.device_id.try_into().ok()?;
                    let library = exchange.is_torch.then_some(Library::Torch);
                    (Device::cuda(index), Some(Current { library, index, stream }))
                }
                _ => return None,
            };
            let device = device.map_err(of_library);
            Some(device.and_then(|device| Self::described(object, &tensor, device, current)))
        });
        described.transpose()
    }

    /// The array of CuPy: its attributes take less time than a capsule of DLPack.
    fn of_cupy(object: &Bound<'py, PyAny>, cupy: &CuPy) -> PyResult<Self> {
        let py = object.py();
        let dtype = object.getattr(intern!(py, "dtype"))?;
        let typestr = dtype.getattr(intern!(py, "str"))?;
        let kind = Kind::of_typestr(typestr.cast::<PyString>()?.to_str()?)
            .ok_or_else(|| PyTypeError::new_err(format!("arrays of {dtype} are not reduced")))?;
        let shape: Vec<usize> = object.getattr(intern!(py, "shape"))?.extract()?;
        let strides: Vec<isize> = object.getattr(intern!(py, "strides"))?.extract()?;
        let strides = strides_in_elements(&strides, kind, &shape)?;
        let memory = object.getattr(intern!(py, "data"))?;
        let address: usize = memory.getattr(intern!(py, "ptr"))?.extract()?;
        let index: usize = memory.getattr(intern!(py, "device_id"))?.extract()?;
        let current = Current { library: Some(Library::CuPy), index, stream: cupy.stream(py, index)? };
        let device = Device::cuda(index).map_err(of_library)?;
        // SAFETY: the array has the elements that it describes, on this GPU.
        let array = unsafe {
            Self::on_device(object, device, kind, (shape, strides), with_exposed_provenance(address))
        };
        Ok(Self { home: Some(object.clone()), ..array }.written_on(Some(current)))
    }

    /// The array, whose elements are written on a stream. An array without elements is one on the CPU: nothing of it
    /// is read, whatever its strides and address are.
    fn written_on(mut self, current: Option<Current>) -> Self {
        if self.len() == 0 {
            self.device = Device::cpu();
            return self;
        }
        self.is_there = AtomicBool::new(current.is_none());
        Self { current, ..self }
    }

    /// The array of a tensor's description. The tensor keeps the elements.
    fn described(
        object: &Bound<'py, PyAny>,
        tensor: &TensorRef,
        device: Device,
        current: Option<Current>,
    ) -> PyResult<Self> {
        let kind = Kind::of_tensor(tensor.dtype()).ok_or_else(|| {
            let dtype = tensor.dtype();
            PyTypeError::new_err(format!(
                "tensors of type code {} with {} bits and {} lanes are not reduced",
                dtype.code.0, dtype.bits, dtype.lanes
            ))
        })?;
        let floats = if kind.is_complex { 2 } else { 1 };
        let strides = tensor.strides_or_compact().map_err(|why| PyValueError::new_err(why.to_string()))?;
        let shape = tensor.shape().iter().map(|&length| length as usize).collect();
        let strides = strides.iter().map(|&stride| stride as isize * floats).collect();
        // SAFETY: the device has the elements that the tensor describes.
        let array = unsafe { Self::on_device(object, device, kind, (shape, strides), first_of(tensor)) };
        Ok(Self { home: Some(object.clone()), ..array }.written_on(current))
    }

    /// An array that an object keeps, on a device.
    ///
    /// # Safety
    ///
    /// The device has the elements that this describes, as long as the object lives.
    pub unsafe fn on_device(
        object: &Bound<'py, PyAny>,
        device: Device,
        kind: Kind,
        (shape, strides): (Vec<usize>, Vec<isize>),
        first: *const u8,
    ) -> Self {
        Self {
            kind,
            shape,
            strides,
            first,
            device,
            valid: None,
            home: None,
            current: None,
            is_there: AtomicBool::new(true),
            _owner: Owner::Object(object.clone().unbind()),
        }
    }

    fn of_arrow(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let capsules: Bound<PyTuple> = object.call_method0("__arrow_c_array__")?.cast_into()?;
        let capsule =
            |index: usize| -> PyResult<Bound<PyCapsule>> { Ok(capsules.get_item(index)?.cast_into()?) };
        let schema = capsule(0)?.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
        let array = capsule(1)?.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
        // SAFETY: capsules of these names hold these structs; moving out leaves them released.
        let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) };
        Self::of_chunk(make_array(data.map_err(|error| PyValueError::new_err(error.to_string()))?))
    }

    fn of_arrow_stream(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let capsule: Bound<PyCapsule> = object.call_method0("__arrow_c_stream__")?.cast_into()?;
        let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
        let wrong = |error: arrow_schema::ArrowError| PyValueError::new_err(error.to_string());
        // SAFETY: a capsule of this name holds this struct; moving out leaves it released.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
        let chunks: Result<Vec<ArrayRef>, _> = ArrayStreamReader::try_new(stream).map_err(wrong)?.collect();
        let chunks = chunks.map_err(wrong)?.into_iter().map(Self::of_chunk);
        Self::concatenated(chunks.collect::<PyResult<_>>()?)
    }

    /// The elements of Arrow arrays of one type, copied if there are several.
    fn concatenated(mut chunks: Vec<Self>) -> PyResult<Self> {
        if chunks.len() <= 1 {
            return chunks.pop().ok_or_else(|| PyValueError::new_err("the stream has no arrays"));
        }
        let (kind, len) = (chunks[0].kind, chunks.iter().map(Self::len).sum::<usize>());
        let size = kind.dtype.size();
        let mut items = vec![0u64; (len * size).div_ceil(size_of::<u64>())];
        let mut rest: &mut [u8] = cast_slice_mut(&mut items);
        for chunk in chunks.iter().filter(|chunk| chunk.len() > 0) {
            if chunk.kind != kind {
                return Err(PyTypeError::new_err("the arrays of the stream differ in their type"));
            }
            let (place, others) = rest.split_at_mut(chunk.len() * size);
            // SAFETY: the chunk has this many elements side by side.
            place.copy_from_slice(unsafe { from_raw_parts(chunk.first, chunk.len() * size) });
            rest = others;
        }
        let has_nulls = chunks.iter().any(|chunk| chunk.valid.is_some());
        let valid = |chunk: &Self| chunk.valid.clone().unwrap_or_else(|| vec![true; chunk.len()]);
        Ok(Self {
            kind,
            shape: vec![len],
            strides: vec![1],
            first: items.as_ptr().cast(),
            device: Device::cpu(),
            valid: has_nulls.then(|| chunks.iter().flat_map(valid).collect()),
            home: None,
            current: None,
            is_there: AtomicBool::new(true),
            _owner: Owner::Items(items),
        })
    }

    fn of_chunk(array: ArrayRef) -> PyResult<Self> {
        let len = array.len();
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let (kind, first, owner) = match array.as_any().downcast_ref::<BooleanArray>() {
            // Arrow has a bit for each.
            Some(flags) => {
                let mut items = vec![0u64; len.div_ceil(size_of::<u64>())];
                let bytes: &mut [u8] = cast_slice_mut(&mut items);
                bytes.iter_mut().zip(flags.values()).for_each(|(byte, flag)| *byte = flag.into());
                (Kind::BOOL, items.as_ptr().cast(), Owner::Items(items))
            }
            None => {
                let kind = Kind::of_arrow(array.data_type()).ok_or_else(|| {
                    PyTypeError::new_err(format!("Arrow arrays of {} are not reduced", array.data_type()))
                })?;
                let data = array.to_data();
                let first = data.buffers()[0].as_ptr().wrapping_add(data.offset() * kind.dtype.size());
                (kind, first, Owner::Arrow(array))
            }
        };
        Ok(Self {
            kind,
            shape: vec![len],
            strides: vec![1],
            first,
            device: Device::cpu(),
            valid: nulls.map(|nulls| nulls.iter().collect()),
            home: None,
            current: None,
            is_there: AtomicBool::new(true),
            _owner: owner,
        })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the elements lie side by side in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut next = 1;
        self.len() == 0
            || self.shape.iter().zip(&self.strides).rev().all(|(&length, &stride)| {
                let is_next = length == 1 || stride == next;
                next *= length as isize;
                is_next
            })
    }

    /// The error of an array whose elements do not lie side by side.
    pub fn gaps(&self) -> Error {
        Error::NotContiguous {
            shape: format!("{:?}", self.shape),
            strides: format!("{:?} elements", self.strides),
        }
    }

    /// The shape without the axis of the parts of complex numbers.
    pub fn shape_of_numbers(&self) -> &[usize] {
        &self.shape[..self.shape.len() - usize::from(self.kind.is_complex)]
    }

    /// The first element.
    pub fn first<T: Element>(&self) -> *const T {
        self.first.cast()
    }

    /// The elements, which lie side by side from the first on, and have been waited for. `T` is the type that `kind`
    /// names.
    pub fn view<T: Element>(&self) -> Result<View<'_, T>, Error> {
        if let (Some(current), false) = (self.current, self.is_there.load(Ordering::Relaxed)) {
            current.wait()?;
            self.is_there.store(true, Ordering::Relaxed);
        }
        self.view_in_order()
    }

    /// As [`view`](Self::view), for work in the order of the stream that writes the elements.
    pub fn view_in_order<T: Element>(&self) -> Result<View<'_, T>, Error> {
        let (first, len) = match self.len() {
            0 => (without_provenance(align_of::<T>()), 0),
            len => (self.first(), len),
        };
        // SAFETY: the owner keeps the elements.
        unsafe { self.device.view(first, len) }
    }
}

/// Streams that calls have waited by, and their GPUs, for later calls: to make one takes longer than a
/// reduction.
static SPARES: Mutex<Vec<(usize, Stream<'static>)>> = Mutex::new(Vec::new());

pub fn spares() -> MutexGuard<'static, Vec<(usize, Stream<'static>)>> {
    SPARES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a stream of a GPU, if there is one.
pub fn spare(index: usize) -> Option<Stream<'static>> {
    let mut spares = spares();
    let place = spares.iter().position(|&(of, _)| of == index)?;
    Some(spares.swap_remove(place).1)
}

/// The stream that reads a tensor's elements.
struct Waiting<'a>(&'a Stream<'a>);

// SAFETY: it is a stream of the device, and lives.
unsafe impl DlpackStream for Waiting<'_> {
    fn as_python_arg(&self, _: Python, _: dlpark::ffi::DLDevice) -> PyResult<StreamArg> {
        Ok(dlpark::python::consumer::stream::cuda(self.0.as_raw().unwrap_or(null_mut())))
    }
}
