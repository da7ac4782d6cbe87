//! Segments, groups, bins, and sums by index.

use gpu_reduce::{Device, Groups, Reduce, histogram, scatter_add};
use gpu_reduce_dynamic::{Dtype, Number, Operator, Target, Values, with_type};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::array::Array;
use crate::call::Operators;
use crate::copies;
use crate::enqueue::Indexed;
use crate::error::{needs_copy, of_library};
use crate::lanes::{contiguous, items_of};
use crate::numpy::numpy;
use crate::on_gpu::Place;
use crate::output::{Shape, at_home, to_python, type_of};
use crate::signals::detached;

/// Evaluates an expression with the elements of an array of integers as `$view`.
macro_rules! with_integers {
    ($array:expr, $what:literal, $view:ident => $value:expr) => {{
        let array = $array;
        macro_rules! with {
            ($T:ty) => {{
                let mut copy = Vec::<$T>::new();
                let $view = contiguous::<$T>(array, &mut copy).map_err(of_library)?;
                $value
            }};
        }
        match array.kind.dtype {
            Dtype::i32 => with!(i32),
            Dtype::i64 => with!(i64),
            Dtype::u32 => with!(u32),
            Dtype::u64 => with!(u64),
            other => {
                return Err(PyTypeError::new_err(format!(
                    "{} are integers of 32 or 64 bits, not {other}",
                    $what
                )));
            }
        }
    }};
}

/// Reduces each segment of an array: the elements from one offset to the next.
///
/// There is one more offset than there are segments. Each result has the bits of reducing the segment alone.
/// `ops` is the name of an operator, or a list of names.
///
/// >>> import numpy as np
/// >>> segment_reduce(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 3]), "sum")
/// array([3., 4.])
#[pyfunction]
#[pyo3(signature = (x, offsets, ops, *, ddof=0, copy=false))]
pub fn segment_reduce<'py>(
    x: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    ops: &Bound<'py, PyAny>,
    ddof: u64,
    copy: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let (array, operators) = (Array::of_one_axis(x, "x")?, Operators::of(ops)?);
    let array = without_gaps(x, array, copy)?;
    let offsets = offsets_of(&Array::of_one_axis(offsets, "offsets")?)?;
    with_type!(array.kind.dtype, T => {
        let mut copy = Vec::<T>::new();
        let items = contiguous(&array, &mut copy).map_err(of_library)?;
        let target = Target::Each(items.segments(&offsets).map_err(of_library)?);
        reduced(x.py(), &array, &target, &operators, ddof)
    })
}

/// The array of `x`, which has one axis. If it lies on a GPU with gaps: of a copy, if that is allowed.
fn without_gaps<'py>(x: &Bound<'py, PyAny>, array: Array<'py>, copy: bool) -> PyResult<Array<'py>> {
    match array.device.is_cpu() || array.is_contiguous() {
        true => Ok(array),
        false if copy => copies::in_order(x, &[true]),
        false => Err(needs_copy(array.gaps())),
    }
}

/// The results of each part by each operator.
fn reduced<'py, T: Number>(
    py: Python<'py>,
    array: &Array<'py>,
    target: &Target<T>,
    operators: &Operators,
    ddof: u64,
) -> PyResult<Bound<'py, PyAny>> {
    operators.map(py, |operators| {
        let results = detached(py, |go_on| target.reduce_all(operators, ddof, go_on))?;
        let returned = |(values, &operator): (&Values, &Operator)| {
            let name = type_of(operator, array.kind, values.type_name());
            to_python(py, values, name, &Shape::of_len(values.len()), array.home.as_ref())
        };
        results.iter().zip(operators).map(returned).collect()
    })
}

/// The indices of elements, in row-major order.
pub fn indices_of(array: &Array) -> PyResult<Vec<i64>> {
    with_integers!(array, "indices", view => {
        let indices = view.to_vec().map_err(of_library)?.into_iter();
        indices.map(|index| i64::try_from(index).map_err(|_| PyValueError::new_err("an index is too large"))).collect()
    })
}

fn offsets_of(array: &Array) -> PyResult<Vec<u64>> {
    with_integers!(array, "offsets", view => {
        let offsets = view.to_vec().map_err(of_library)?.into_iter();
        offsets
            .map(|offset| u64::try_from(offset).map_err(|_| PyValueError::new_err("an offset is negative")))
            .collect()
    })
}

/// Groups elements by their keys, and reduces each group.
///
/// `keys` is an array, or a tuple or list of arrays, of numbers or texts, in any order. Returns the key of
/// each group in ascending order (of several columns, a tuple), arrays of the library of the keys, and the results of
/// `ops`, which is the name of an operator or a list of names. Sums and means of floats are correctly rounded, so that
/// the order of the rows does not matter. Nulls of Arrow arrays are left out of x, and refused in keys.
///
/// >>> import numpy as np
/// >>> group_by(np.array([7, 3, 7]), np.array([1.0, 2.0, 4.0]), ["sum", "max"])
/// (array([3, 7]), [array([2., 5.]), array([2., 4.])])
#[pyfunction]
#[pyo3(signature = (keys, x, ops, *, ddof=0, copy=false))]
pub fn group_by<'py>(
    keys: &Bound<'py, PyAny>,
    x: &Bound<'py, PyAny>,
    ops: &Bound<'py, PyAny>,
    ddof: u64,
    copy: bool,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = x.py();
    let (array, operators) = (Array::of(x)?, Operators::of(ops)?);
    if array.shape.len() != 1 {
        return Err(PyValueError::new_err(format!("x has {} axes, not one", array.shape.len())));
    }
    let array = without_gaps(x, array, copy)?;
    let mut groups = Grouped::of(keys)?;
    if groups.numbers.len() != array.len() {
        let (keys, items) = (groups.numbers.len(), array.len());
        return Err(PyValueError::new_err(format!("there are {items} elements and {keys} keys")));
    }
    if let Some(valid) = &array.valid {
        let mut valid = valid.iter();
        groups.numbers.retain(|_| valid.next() == Some(&true));
    }
    let results = with_type!(array.kind.dtype, T => {
        let mut copy = Vec::<T>::new();
        let items = items_of(&array, &mut copy).map_err(of_library)?;
        // The groups' numbers lie where the elements do.
        let numbers = match array.device.is_cpu() {
            true => None,
            false => Some(array.device.upload(&groups.numbers).map_err(of_library)?),
        };
        let numbers = numbers.as_ref().map_or(groups.numbers.data(), |numbers| numbers.data());
        let target = Target::ByIndex(items.by_index(numbers, groups.count).map_err(of_library)?);
        reduced(py, &array, &target, &operators, ddof)?
    });
    Ok((groups.keys.returned(py)?, results))
}

/// The keys of groups.
enum Keys<'py> {
    Column(Column<'py>),
    Columns(Vec<Column<'py>>),
}

/// The keys of groups in one column, as an array of NumPy.
struct Column<'py> {
    keys: Bound<'py, PyAny>,
    /// The tensor to whose library they go, and the name of their type in Rust; of texts none.
    home: Option<(Bound<'py, PyAny>, &'static str)>,
}

impl<'py> Column<'py> {
    fn returned(self) -> PyResult<Bound<'py, PyAny>> {
        match &self.home {
            None => Ok(self.keys),
            Some((home, "bf16")) => at_home(&self.keys.call_method1("astype", ("f4",))?, home, "bf16"),
            Some((home, name)) => at_home(&self.keys, home, name),
        }
    }
}

impl<'py> Keys<'py> {
    fn returned(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Keys::Column(column) => column.returned(),
            Keys::Columns(columns) => {
                let columns = columns.into_iter().map(Column::returned).collect::<PyResult<Vec<_>>>()?;
                Ok(PyTuple::new(py, columns)?.into_any())
            }
        }
    }
}

/// Rows that are grouped by keys.
struct Grouped<K> {
    keys: K,
    numbers: Vec<u32>,
    count: usize,
}

impl<'py> Grouped<Keys<'py>> {
    fn of(keys: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = keys.py();
        let columns: Vec<Bound<PyAny>> = match (keys.cast::<PyTuple>(), keys.cast::<PyList>()) {
            (Ok(columns), _) => columns.iter().collect(),
            (_, Ok(columns)) => columns.iter().collect(),
            _ => return Ok(Grouped::of_column(keys)?.alone()),
        };
        // A list of numbers or texts is a column itself.
        if let Some(first) = columns.first()
            && (first.is_instance_of::<PyString>() || !first.hasattr("__len__")?)
        {
            return Ok(Grouped::of_column(keys)?.alone());
        }
        let columns = columns.iter().map(Grouped::of_column).collect::<PyResult<Vec<_>>>()?;
        let Some((first, rest)) = columns.split_first() else {
            return Err(PyValueError::new_err("there are no columns of keys"));
        };
        let len = first.numbers.len();
        if let Some(other) = rest.iter().find(|column| column.numbers.len() != len) {
            let other = other.numbers.len();
            return Err(PyValueError::new_err(format!("columns of keys have {len} and {other} elements")));
        }
        // Groups of some columns are numbered together with the next column.
        let mut numbers = first.numbers.clone();
        let mut of_groups: Vec<Vec<u32>> = vec![(0..first.count as u32).collect()];
        for column in rest {
            let both = numbers.iter().zip(&column.numbers);
            let both: Vec<u64> = both.map(|(&a, &b)| u64::from(a) << 32 | u64::from(b)).collect();
            let groups = Groups::of(&both).map_err(of_library)?;
            let keys = groups.keys().to_vec().map_err(of_library)?;
            let high = |column: &Vec<u32>| keys.iter().map(|key| column[(key >> 32) as usize]).collect();
            of_groups = of_groups.iter().map(high).collect();
            of_groups.push(keys.iter().map(|&key| key as u32).collect());
            numbers = groups.numbers().to_vec().map_err(of_library)?;
        }
        let count = of_groups[0].len();
        let keys = columns.into_iter().zip(of_groups).map(|(column, places)| {
            let places = numpy(py)?.module.bind(py).call_method1("array", (places, "i8"))?;
            Ok(Column { keys: column.keys.keys.get_item(places)?, ..column.keys })
        });
        Ok(Self { keys: Keys::Columns(keys.collect::<PyResult<_>>()?), numbers, count })
    }
}

impl<'py> Grouped<Column<'py>> {
    fn alone(self) -> Grouped<Keys<'py>> {
        Grouped { keys: Keys::Column(self.keys), numbers: self.numbers, count: self.count }
    }

    fn of_column(keys: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = keys.py();
        let array = match Array::of_one_axis(keys, "keys") {
            Ok(array) => array,
            // Texts.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                let module = numpy(py)?.module.bind(py);
                let flags = (keys, false, true);
                let unique: (Bound<PyAny>, Bound<PyAny>) = module.call_method1("unique", flags)?.extract()?;
                let numbers = unique.1.call_method1("astype", ("u4",))?;
                let numbers =
                    Array::of(&numbers)?.view::<u32>().and_then(|view| view.to_vec()).map_err(of_library)?;
                let count = unique.0.len()?;
                return Ok(Self { keys: Column { keys: unique.0, home: None }, numbers, count });
            }
            Err(error) => return Err(error),
        };
        with_type!(array.kind.dtype, T => {
            let mut copy = Vec::<T>::new();
            let view = contiguous(&array, &mut copy).map_err(of_library)?;
            let groups = py.detach(|| Groups::of(&view)).map_err(of_library)?;
            let numbers = groups.numbers().to_vec().map_err(of_library)?;
            let values = Values::of(groups.keys().to_vec().map_err(of_library)?);
            let (name, count) = (array.kind.rust_name(), groups.len());
            let keys = to_python(py, &values, name, &Shape::of_len(count), None)?;
            let home = array.home.as_ref().map(|home| (home.clone(), name));
            Ok(Self { keys: Column { keys, home }, numbers, count })
        })
    }
}

/// Counts how often each index occurs, or sums the weights of each, as numpy.bincount. Sums are correctly
/// rounded.
///
/// >>> import numpy as np
/// >>> bincount(np.array([2, 0, 2]), minlength=4)
/// array([1, 0, 2, 0])
#[pyfunction]
#[pyo3(signature = (x, weights=None, minlength=0))]
pub fn bincount<'py>(
    x: &Bound<'py, PyAny>,
    weights: Option<&Bound<'py, PyAny>>,
    minlength: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let array = Array::of_one_axis(&integers(x)?, "x")?;
    with_integers!(&array, "indices", view => {
        let largest = if view.is_empty() { None } else { Some(view.reduce::<gpu_reduce::Max, 256>().map_err(of_library)?) };
        let count = match largest.map(usize::try_from) {
            None => minlength,
            Some(Ok(largest)) => minlength.max(largest + 1),
            Some(Err(_)) => return Err(PyValueError::new_err("an index is negative")),
        };
        let negative = |error| match error {
            gpu_reduce::Error::BadIndex { .. } => PyValueError::new_err("an index is negative"),
            error => of_library(error),
        };
        let shape = Shape::of_len(count);
        let Some(weights) = weights else {
            let counts = gpu_reduce::bincount(view, count).and_then(|counts| counts.to_vec()).map_err(negative)?;
            return to_python(py, &Values::of(counts), "i64", &shape, array.home.as_ref());
        };
        let weights = Array::of_one_axis(&floats(weights)?, "weights")?;
        let mut copy = Vec::<f64>::new();
        let weights = contiguous(&weights, &mut copy).map_err(of_library)?;
        let sums = gpu_reduce::bincount_weighted(view, &weights, count).and_then(|sums| sums.to_vec());
        to_python(py, &Values::of(sums.map_err(negative)?), "f64", &shape, array.home.as_ref())
    })
}

/// Counts the elements in bins, or sums their weights, as numpy.histogram: returns the counts and the edges.
///
/// Edges and sums of weights are float64. NumPy rounds the edges of narrower floats to their type, and its sums have the
/// type of the weights.
///
/// >>> import numpy as np
/// >>> histogram(np.array([0.5, 1.5, 1.75]), bins=2, range=(0.0, 2.0))
/// (array([1, 2]), array([0., 1., 2.]))
#[pyfunction(name = "histogram")]
#[pyo3(signature = (x, bins=None, range=None, weights=None))]
pub fn histogram_of<'py>(
    x: &Bound<'py, PyAny>,
    bins: Option<&Bound<'py, PyAny>>,
    range: Option<(f64, f64)>,
    weights: Option<&Bound<'py, PyAny>>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = x.py();
    let array = Array::without_nulls(x, "x")?;
    let given;
    let count = bins.map_or(Ok(10), |bins| bins.extract::<usize>());
    let bins = match (count, range, bins) {
        (Ok(count), None, _) => gpu_reduce::Bins::from(count),
        (Ok(count), Some((first, last)), _) => gpu_reduce::Bins::from((count, first..=last)),
        (Err(_), _, Some(edges)) if edges.hasattr("__len__")? => {
            let edges = Array::of_one_axis(&floats(edges)?, "bins")?;
            given = contiguous::<f64>(&edges, &mut Vec::new())
                .and_then(|view| view.to_vec())
                .map_err(of_library)?;
            gpu_reduce::Bins::from(&given)
        }
        (Err(error), ..) => return Err(error),
    };
    let bad = |error: gpu_reduce::Error| match error {
        gpu_reduce::Error::BadBins { .. } => PyValueError::new_err(error.to_string()),
        error => of_library(error),
    };
    let result = |counts: Values, name, edges: &[f64]| -> PyResult<_> {
        let counts_of = Shape::of_len(counts.len());
        let counts = to_python(py, &counts, name, &counts_of, array.home.as_ref())?;
        let edges = Values::of(edges.to_vec());
        Ok((counts, to_python(py, &edges, "f64", &Shape::of_len(edges.len()), array.home.as_ref())?))
    };
    with_type!(array.kind.dtype, T => {
        let mut copy = Vec::<T>::new();
        let items = contiguous(&array, &mut copy).map_err(of_library)?;
        let Some(weights) = weights else {
            let counted = histogram(&items, bins).map_err(bad)?;
            return result(Values::of(counted.counts().to_vec().map_err(bad)?), "i64", counted.edges());
        };
        let weights = Array::of(&floats(weights)?)?;
        let mut copy = Vec::<f64>::new();
        let weights = contiguous(&weights, &mut copy).map_err(of_library)?;
        let summed = gpu_reduce::histogram_weighted(&items, bins, &weights).map_err(bad)?;
        result(Values::of(summed.counts().to_vec().map_err(bad)?), "f64", summed.edges())
    })
}

/// Adds each element of x to the element of out that its index names, in place, as torch.Tensor.index_add_:
/// out[index[i]] += x[i]. Of two axes, rows are added to rows. Returns out.
///
/// Each sum, with what was there, is computed exactly and rounded once (16-bit floats to `float32` first): the order of
/// the elements does not matter. After an error out is unchanged. Arrays of PyTorch or CuPy on a GPU, without gaps, are
/// not waited for, and a wrong index is not reported: then out is unchanged.
///
/// >>> import numpy as np
/// >>> index_add(np.zeros(3), np.array([2, 0, 2]), np.array([1.0, 2.0, 4.0]))
/// array([2., 0., 5.])
#[pyfunction]
pub fn index_add<'py>(
    out: &Bound<'py, PyAny>,
    index: &Bound<'py, PyAny>,
    x: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let (sums, array) = (Array::without_nulls(out, "out")?, Array::without_nulls(x, "x")?);
    let at = Array::of_one_axis(index, "index")?;
    if sums.kind != array.kind || sums.shape.is_empty() || sums.shape.len() > 2 {
        return Err(PyTypeError::new_err("out and x are arrays of one type with one or two axes"));
    }
    let columns: usize = sums.shape[1..].iter().product();
    if array.shape.get(1..) != sums.shape.get(1..) || array.shape.first() != at.shape.first() {
        return Err(PyValueError::new_err(format!(
            "x of shape {:?} does not have a row for each of {} indices into out of shape {:?}",
            array.shape, at.shape[0], sums.shape
        )));
    }
    // Without sums, a GPU finds that all indices are wrong.
    if array.len() == 0 || sums.len() == 0 && !array.device.is_cpu() {
        return Ok(out.clone());
    }
    if [&sums, &array, &at].iter().any(|array| !array.device.is_cpu()) {
        index_add_on_gpu(out, &sums, (index, &at), &array, columns)?;
        return Ok(out.clone());
    }
    let added: Values = with_type!(array.kind.dtype, T => {
        let (mut items, mut before) = (Vec::<T>::new(), Vec::<T>::new());
        let items = contiguous(&array, &mut items).map_err(of_library)?;
        let before = contiguous(&sums, &mut before).map_err(of_library)?.to_vec().map_err(of_library)?;
        let wide: Vec<_> = before.into_iter().map(gpu_reduce::Element::widen).collect();
        let mut wide = Device::cpu().upload(&wide).map_err(of_library)?;
        with_integers!(&at, "indices", view => {
            let rows = gpu_reduce::row_indices(view, columns, sums.shape[0]).map_err(of_library)?;
            py.detach(|| scatter_add(&items, &rows, &mut wide)).map_err(of_library)?;
        });
        Values::of(wide.to_vec().map_err(of_library)?)
    });
    let name = added.type_name();
    let shape = Shape { lengths: vec![added.len()], places: vec![0], returned: Some(sums.shape.clone()) };
    let results = to_python(py, &added, name, &shape, sums.home.as_ref())?;
    out.set_item(py.Ellipsis(), results)?;
    Ok(out.clone())
}

/// Enqueues that the elements of `array` are added to `sums`, the array of `out`, in place.
fn index_add_on_gpu<'py>(
    out: &Bound<'py, PyAny>,
    sums: &Array<'py>,
    (index, at): (&Bound<'py, PyAny>, &Array<'py>),
    array: &Array<'py>,
    columns: usize,
) -> PyResult<()> {
    let py = out.py();
    let places = [Place::of(sums)?, Place::of(at)?, Place::of(array)?];
    let [Some(place), Some(of_index), Some(of_x)] = &places else {
        return Err(PyTypeError::new_err(
            "out, index and x are arrays on the CPU, or all of PyTorch or all of CuPy on one GPU",
        ));
    };
    if !(place.is_that_of(of_index) && place.is_that_of(of_x)) {
        return Err(PyTypeError::new_err("out, index and x are arrays of one library on one GPU"));
    }
    if let Some(array) = [sums, at, array].into_iter().find(|array| !array.is_contiguous()) {
        return Err(of_library(array.gaps()));
    }
    if !matches!(at.kind.dtype, Dtype::i32 | Dtype::i64 | Dtype::u32 | Dtype::u64) || at.kind.is_complex {
        let why = format!("indices are integers of 32 or 64 bits, not {}", at.kind.name());
        return Err(PyTypeError::new_err(why));
    }
    let kind = sums.kind;
    // The type in which such elements are summed.
    let wide = match kind.dtype {
        Dtype::f16 | Dtype::bf16 => "f32",
        Dtype::f32 | Dtype::f64 | Dtype::u64 => kind.dtype.name(),
        // Sums of narrow integers that are not negative have the same bits in both types of 64 bits.
        _ => "i64",
    };
    let bytes = |array: &Array| {
        let first = array.first::<u8>().addr();
        first..first + array.len() * array.kind.dtype.size()
    };
    let overlaps = |other: &Array| {
        let (a, b) = (bytes(sums), bytes(other));
        a.start < b.end && b.start < a.end
    };
    let is_wide = wide == kind.rust_name();
    let is_in_place = is_wide && !overlaps(array) && !overlaps(at);
    place.on_device(|| {
        // The indices of the elements of rows.
        let mut index = match at.kind.dtype {
            Dtype::i64 => index.clone(),
            _ => place.as_type(index, "i64")?,
        };
        if columns != 1 {
            let range = place.range(columns)?;
            // A wrong index stays wrong.
            index = index.call_method1("clip", (-1, sums.shape[0]))?.call_method1("reshape", (-1, 1))?;
            index = index.mul(columns)?.add(range)?;
        }
        let added = match (is_in_place, is_wide) {
            (true, _) => out.clone(),
            (false, true) => place.copy(out)?,
            (false, false) => place.as_type(out, wide)?,
        };
        let indexed = Indexed {
            x: array.first::<u8>().expose_provenance(),
            index: place.address(&index)?,
            len: array.len(),
            sums: place.address(&added)?,
            count: sums.len(),
        };
        place.index_add(py, kind.dtype, &indexed)?;
        match is_in_place {
            true => place.has_written(out),
            false => out.set_item(py.Ellipsis(), place.as_type(&added, kind.rust_name())?),
        }
    })
}

/// The array, or an integer array of a list.
fn integers<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let array = Array::of(x)?;
    match array.kind.dtype {
        Dtype::i32 | Dtype::i64 | Dtype::u32 | Dtype::u64 => Ok(x.clone()),
        Dtype::i8 | Dtype::i16 | Dtype::u8 | Dtype::u16 => x.call_method1("astype", ("int64",)),
        _ if array.len() == 0 => {
            Ok(numpy(x.py())?.module.bind(x.py()).call_method1("zeros", (0, "int64"))?)
        }
        other => Err(PyTypeError::new_err(format!("indices are integers, not {other}"))),
    }
}

/// The array with elements of type f64.
fn floats<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    numpy(x.py())?.module.bind(x.py()).call_method1("asarray", (x, "float64"))
}
