//! Results that stay on a GPU. A call enqueues its work on the current stream of the array's library, which allocates
//! the results, and returns at once.

use std::ffi::c_void;
use std::ptr::with_exposed_provenance_mut;

use gpu_reduce::{Device, Error, Reduce, Stream};
use gpu_reduce_dynamic::{Described, Dtype, Error as Failure, Number, Operator, Target};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PySlice, PyTuple, PyType};

use crate::array::Array;
use crate::cuda_interface::compact;
use crate::enqueue::{Indexed, Memory, On, enqueue, stream_of};
use crate::error::{exception, of_library};
use crate::kind::Kind;
use crate::lanes::{By, three_axes};
use crate::numpy::numpy;
use crate::output::{Shape, has_bits_of, library_of, type_of};

/// A library that has a current stream, and allocates memory in the order of that stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Library {
    Torch,
    CuPy,
}

/// The current stream of a library on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Current {
    /// None if it is a library whose memory is not allocated here.
    pub library: Option<Library>,
    /// The number of the GPU.
    pub index: usize,
    /// The stream's handle.
    pub stream: usize,
}

impl Current {
    /// Waits for the work that the stream has so far.
    pub fn wait(self) -> Result<(), Error> {
        // SAFETY: the library has the stream, which is one of the GPU.
        let stream = unsafe { stream_of(self.index, self.on())? };
        // The work may have to call functions of Python.
        Python::attach(|py| py.detach(|| stream.synchronize()))
    }

    /// The stream, as a call runs on it.
    pub fn on(self) -> On {
        // The legacy default stream has two handles, and is never destroyed. CuPy destroys its other streams.
        let is_kept = self.library == Some(Library::Torch) || self.stream < 2;
        On { device: self.index as isize, stream: self.stream, is_kept }
    }
}

/// What is called of CuPy.
pub struct CuPy {
    ndarray: Py<PyType>,
    get_current_stream: Py<PyAny>,
    get_device: Py<PyAny>,
    device: Py<PyAny>,
}

impl CuPy {
    /// Returns CuPy, on CUDA, if an object is one of its arrays.
    pub fn of(object: &Bound<PyAny>) -> PyResult<Option<&'static CuPy>> {
        static CUPY: PyOnceLock<Option<CuPy>> = PyOnceLock::new();
        let py = object.py();
        if CUPY.get(py).is_none() && library_of(object)? != "cupy" {
            return Ok(None);
        }
        let cupy = CUPY.get_or_try_init(py, || -> PyResult<_> {
            let module = py.import("cupy")?;
            let cuda = module.getattr("cuda")?;
            let runtime = cuda.getattr("runtime")?;
            if runtime.getattr("is_hip")?.is_truthy()? {
                return Ok(None);
            }
            Ok(Some(CuPy {
                ndarray: module.getattr("ndarray")?.cast_into()?.unbind(),
                get_current_stream: cuda.getattr("get_current_stream")?.unbind(),
                get_device: runtime.getattr("getDevice")?.unbind(),
                device: cuda.getattr("Device")?.unbind(),
            }))
        })?;
        Ok(cupy.as_ref().filter(|cupy| object.is_exact_instance(cupy.ndarray.bind(py))))
    }

    /// The handle of the current stream on a GPU.
    pub fn stream(&self, py: Python, index: usize) -> PyResult<usize> {
        self.get_current_stream.bind(py).call1((index,))?.getattr(intern!(py, "ptr"))?.extract()
    }

    /// Runs work with a GPU as CuPy's current device, on which it allocates.
    pub fn on_device<R>(&self, py: Python, index: usize, work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
        if self.get_device.bind(py).call0()?.extract::<usize>()? == index {
            return work();
        }
        let device = self.device.bind(py).call1((index,))?;
        device.call_method0("__enter__")?;
        let done = work();
        device.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
        done
    }
}

/// Reduces the elements of an array over axes by one operator, without waiting. Returns none if the call has to wait: of
/// several operators, if the array's library is not one that allocates here, and if the results have to be looked at or
/// are converted on the CPU.
pub fn reduce<'py, T: Number>(
    py: Python<'py>,
    array: &Array<'py>,
    are_reduced: &[bool],
    By { operators, ddof }: By,
    shape: impl FnOnce(&[usize]) -> Shape,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let &[operator] = operators else { return Ok(None) };
    // These may find that all elements are NaN, which is an error.
    let looks_at_results = !T::IS_INTEGER && matches!(operator, Operator::NanArgMin | Operator::NanArgMax);
    let (Some(place), false) = (Place::of(array)?, looks_at_results) else { return Ok(None) };
    let Some((order, lengths)) = three_axes(array, are_reduced) else { return Ok(None) };
    let items = array.view_in_order::<T>().map_err(of_library)?;
    let target = match lengths {
        [1, _, 1] => Target::All(items),
        lengths => Target::Each(items.reshape(&lengths).and_then(|items| items.axis(1)).map_err(of_library)?),
    };
    let results = target.describe(operator, ddof).map_err(exception)?;
    let call = |stream: &Stream, first: usize| {
        // SAFETY: the library has allocated a place for each result. It frees places and elements in the order of its
        // current stream, which this is.
        unsafe { target.enqueue(operator, ddof, stream, with_exposed_provenance_mut::<c_void>(first)) }
    };
    place.results(py, operator, results, &shape(&order), &call)
}

/// The elements of lanes that a mask selects, one lane after the other.
pub struct Selected<'py> {
    pub items: Array<'py>,
    /// The offsets of the lanes, integers of 64 bits that are not negative, on the same GPU.
    pub offsets: Array<'py>,
}

/// Where results go.
pub struct Place<'a, 'py> {
    home: &'a Bound<'py, PyAny>,
    kind: Kind,
    library: Library,
    current: Current,
    cupy: Option<&'static CuPy>,
}

impl<'a, 'py> Place<'a, 'py> {
    /// The place of an array on a GPU, if it has a library that allocates there.
    pub fn of(array: &'a Array<'py>) -> PyResult<Option<Self>> {
        let (Some(current), Some(home)) = (array.current, &array.home) else { return Ok(None) };
        let Some(library) = current.library else { return Ok(None) };
        let cupy = if library == Library::CuPy { CuPy::of(home)? } else { None };
        Ok(Some(Self { home, kind: array.kind, library, current, cupy }))
    }

    /// Runs work that allocates on this GPU. (CuPy allocates on its current device, PyTorch on a tensor's.)
    pub fn on_device<R>(&self, work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
        match self.cupy {
            Some(cupy) => cupy.on_device(self.home.py(), self.current.index, work),
            None => work(),
        }
    }

    /// Enqueues a call that writes results, and returns them. None if the library has no such type.
    fn results(
        &self,
        py: Python<'py>,
        operator: Operator,
        Described { type_name: held, width, scratch_bytes }: Described,
        shape: &Shape,
        call: &(dyn Fn(&Stream, usize) -> Result<(), Failure> + Sync),
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if held == "i128" {
            return Ok(None);
        }
        let name = type_of(operator, self.kind, held);
        let has_bits = has_bits_of(held, name);
        let returned = shape.returned.as_deref().unwrap_or_default();
        let is_in_order = shape.places.is_sorted();
        let mut lengths = if is_in_order { returned.to_vec() } else { shape.lengths.clone() };
        if width > 1 {
            lengths.push(width);
        }
        self.on_device(|| {
            let written = self.allocate(py, if has_bits { name } else { held }, &lengths)?;
            let first = self.address(&written)?;
            self.with_scratch(py, |scratch| {
                let call = |_: &Device, stream: Option<&Stream>| match stream {
                    Some(stream) => call(stream, first).map(|()| 0),
                    None => Ok(scratch_bytes),
                };
                // SAFETY: the stream is the library's on this GPU. The library frees memory in the order of the stream.
                unsafe { enqueue(py, self.current.on(), 0, scratch, &call) }.map_err(exception)
            })?;
            let number = |place: usize| {
                let mut numbers = written.clone();
                if width > 1 {
                    numbers = match self.library {
                        Library::Torch => {
                            numbers.call_method1("select", (-1, place))?.call_method0("contiguous")?
                        }
                        Library::CuPy => numbers.get_item((py.Ellipsis(), place))?.call_method0("copy")?,
                    };
                }
                if !has_bits {
                    numbers = self.as_type(&numbers, name)?;
                }
                if !is_in_order {
                    let permute = if self.library == Library::Torch { "permute" } else { "transpose" };
                    numbers = numbers.call_method1(permute, (PyTuple::new(py, &shape.places)?,))?;
                    numbers = numbers.call_method1("reshape", (PyTuple::new(py, returned)?,))?;
                }
                Ok(numbers)
            };
            match width {
                1 => number(0),
                _ => {
                    let numbers = (0..width).map(number).collect::<PyResult<Vec<_>>>()?;
                    Ok(PyTuple::new(py, numbers)?.into_any())
                }
            }
        })
        .map(Some)
    }

    /// Adds elements to sums of the library, in the order of its current stream.
    pub fn index_add(&self, py: Python<'py>, dtype: Dtype, indexed: &Indexed) -> PyResult<()> {
        self.with_scratch(py, |scratch| indexed.add_to(py, dtype.name(), self.current.on(), scratch))
    }

    /// Tells PyTorch that elements of a tensor are written, so that it refuses a gradient that needs the old ones.
    pub fn has_written(&self, array: &Bound<'py, PyAny>) -> PyResult<()> {
        if self.library == Library::Torch && !array.call_method0("is_inference")?.is_truthy()? {
            array.py().import("torch.autograd.graph")?.call_method1("increment_version", (array,))?;
        }
        Ok(())
    }

    /// Calls what [enqueues](enqueue) work on the current stream. Work that is captured in a CUDA graph gets scratch
    /// memory of PyTorch, which keeps it for the graph.
    fn with_scratch(
        &self,
        py: Python<'py>,
        call: impl Fn(Option<Memory>) -> PyResult<Option<usize>>,
    ) -> PyResult<()> {
        let Some(bytes) = call(None)? else { return Ok(()) };
        if self.library == Library::CuPy {
            return Err(PyRuntimeError::new_err(
                "CuPy's stream is captured in a CUDA graph, but CuPy keeps no memory for a graph: call gpu_reduce outside \
                 of it",
            ));
        }
        let scratch = self.allocate(py, "u8", &[bytes.max(1)])?;
        call(Some((self.address(&scratch)?, bytes))).map(drop)
    }

    /// Copies the elements for which a mask is true, one lane after the other, on the GPU. Waits for their number.
    pub fn select(&self, mask: &Bound<'py, PyAny>, are_reduced: &[bool]) -> PyResult<Selected<'py>> {
        let py = self.home.py();
        let (module, permute) = match self.library {
            Library::Torch => ("torch", "permute"),
            Library::CuPy => ("cupy", "transpose"),
        };
        let shape: Vec<usize> = self.home.getattr("shape")?.extract()?;
        let axes = |reduced| (0..shape.len()).filter(move |&axis| are_reduced[axis] == reduced);
        let order = PyTuple::new(py, axes(false).chain(axes(true)).collect::<Vec<_>>())?;
        let lanes: usize = axes(false).map(|axis| shape[axis]).product();
        self.on_device(|| {
            let mask =
                py.import(module)?.call_method1("broadcast_to", (mask, self.home.getattr("shape")?))?;
            let mask = mask.call_method1(permute, (&order,))?;
            let items = self.home.call_method1(permute, (&order,))?.get_item(&mask)?;
            let counts = mask.call_method1("reshape", (lanes, -1))?.call_method1("sum", (1,))?;
            let offsets = self.allocate(py, "i64", &[lanes + 1])?;
            offsets.set_item(0, 0)?;
            offsets.set_item(PySlice::new(py, 1, isize::MAX, 1), counts.call_method1("cumsum", (0,))?)?;
            Ok(Selected { items: Array::of(&items)?, offsets: Array::of(&offsets)? })
        })
    }

    /// Whether another array is of the same library, on the same GPU.
    pub fn is_that_of(&self, other: &Self) -> bool {
        (self.library, self.current.index) == (other.library, other.current.index)
    }

    /// A row-major array whose elements are undefined.
    fn allocate(&self, py: Python<'py>, name: &str, lengths: &[usize]) -> PyResult<Bound<'py, PyAny>> {
        let shape = PyTuple::new(py, lengths)?;
        match self.library {
            Library::Torch => {
                // `record_stream` does nothing for a tensor that DLPack hands over: its memory could be used again while
                // another stream reads it.
                let strides = PyTuple::new(py, compact(lengths, 1))?;
                // Without a type it takes less time.
                let options = match name == self.kind.rust_name() {
                    true => None,
                    false => Some([(intern!(py, "dtype"), self.dtype(name)?)].into_py_dict(py)?),
                };
                self.home.call_method(intern!(py, "new_empty_strided"), (shape, strides), options.as_ref())
            }
            Library::CuPy => self.home.get_type().call1((shape, self.dtype(name)?)),
        }
    }

    /// The library's type with this name in Rust.
    fn dtype(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let py = self.home.py();
        match self.library {
            _ if name == self.kind.rust_name() => self.home.getattr(intern!(py, "dtype")),
            Library::Torch => py.import(intern!(py, "torch"))?.getattr(torch_name(name)),
            Library::CuPy => {
                let dtype = numpy(py)?.dtype(py, name);
                dtype.cloned().ok_or_else(|| PyRuntimeError::new_err(format!("CuPy has no type for {name}")))
            }
        }
    }

    /// The array with elements of the type with this name in Rust.
    pub fn as_type(&self, array: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let convert = if self.library == Library::Torch { "to" } else { "astype" };
        array.call_method1(convert, (self.dtype(name)?,))
    }

    /// A copy of an array.
    pub fn copy(&self, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        array.call_method0(if self.library == Library::Torch { "clone" } else { "copy" })
    }

    /// The integers of 64 bits below a number.
    pub fn range(&self, end: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = self.home.py();
        match self.library {
            Library::Torch => {
                let device = [("device", self.home.getattr("device")?)].into_py_dict(py)?;
                py.import("torch")?.call_method("arange", (end,), Some(&device))
            }
            Library::CuPy => py.import("cupy")?.call_method1("arange", (end,)),
        }
    }

    /// The address of an array's first element.
    pub fn address(&self, array: &Bound<'py, PyAny>) -> PyResult<usize> {
        let py = array.py();
        match self.library {
            Library::Torch => array.call_method0(intern!(py, "data_ptr"))?.extract(),
            Library::CuPy => array.getattr(intern!(py, "data"))?.getattr(intern!(py, "ptr"))?.extract(),
        }
    }
}

/// PyTorch's name of a type.
fn torch_name(name: &str) -> &str {
    match name {
        "bool" => "bool",
        name => crate::output::numpy_name(name),
    }
}
