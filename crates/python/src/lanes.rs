//! Reductions over some axes of an array. A lane is the elements that are reduced to one result.

use std::ops::Range;
use std::slice::from_raw_parts;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use bytemuck::cast_slice;
use gpu_reduce::{Element, Error, Reduce, View};
use gpu_reduce_dynamic::{Error as Failure, Number, Operator, PairOperator, Pairs, Target, Values};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::complex::products;
use crate::error::{exception, needs_copy, of_library};
use crate::on_gpu::Selected;
use crate::signals::detached;

/// Inputs from this size in bytes on are reduced without Python's lock.
pub const LARGE: usize = 1 << 16;

/// Which elements take part, and what takes part in each lane besides.
pub struct Choice<'a, T> {
    /// Booleans, and their distances along the array's axes.
    pub mask: Option<(&'a [bool], Vec<isize>)>,
    /// The elements that a mask on a GPU has selected.
    pub selected: Option<Selected<'a>>,
    pub initial: Option<T>,
}

impl<T> Choice<'_, T> {
    /// All elements, and nothing besides.
    pub const ALL: Self = Self { mask: None, selected: None, initial: None };
}

/// Results of lanes.
pub struct Reduced {
    /// The results by each operator.
    pub values: Vec<Values>,
    /// The axes of the results in their order. Axes of length 1 may be left out.
    pub order: Vec<usize>,
}

/// Operators, and the degrees of freedom of those that take them.
#[derive(Clone, Copy)]
pub struct By<'a> {
    pub operators: &'a [Operator],
    pub ddof: u64,
}

impl By<'_> {
    /// Reduces by each operator: a large input without Python's lock.
    fn run<T: Number>(self, py: Python, target: &Target<T>, is_large: bool) -> PyResult<Vec<Values>> {
        let Self { operators, ddof } = self;
        match operators {
            _ if is_large => detached(py, |go_on| target.reduce_all(operators, ddof, go_on)),
            &[operator] => target.reduce(operator, ddof).map(|values| vec![values]).map_err(exception),
            _ => target.reduce_all(operators, ddof, &|| true).map_err(exception),
        }
    }
}

/// Whether an array is reduced over these axes where it lies, without a copy.
pub fn lie_in_order(array: &Array, are_reduced: &[bool]) -> bool {
    are_reduced.iter().all(|&is_reduced| is_reduced) && array.is_contiguous()
        || in_memory_order(&array.shape, &array.strides, are_reduced).is_some()
}

/// Reduces over axes, where `are_reduced` says so. Each result has the bits of reducing its lane alone, in
/// the row-major order of the lane's axes.
pub fn reduce<T: Number>(
    py: Python,
    array: &Array,
    are_reduced: &[bool],
    choice: &Choice<T>,
    by: By,
) -> PyResult<Reduced> {
    let kept: Vec<usize> = (0..are_reduced.len()).filter(|&axis| !are_reduced[axis]).collect();
    let is_large = array.len() * size_of::<T>() >= LARGE;
    if let Some(Selected { items, offsets }) = &choice.selected {
        let none = vec![0u64; offsets.len()];
        let items = items.view::<T>().map_err(of_library)?;
        let segments = || match items.is_empty() {
            true => items.segments(&none),
            false => items.segments(offsets.view::<u64>()?),
        };
        let target = match kept.is_empty() {
            true => Target::All(items),
            false => Target::Each(segments().map_err(of_library)?),
        };
        return Ok(Reduced { values: by.run(py, &target, is_large)?, order: kept });
    }
    // For the other operators, the parts of complex numbers are elements.
    let is_complex_product = array.kind.is_complex && by.operators == [Operator::Prod];
    if (is_complex_product || choice.initial.is_some()) && !array.device.is_cpu() {
        let why = "an initial for extremes, and products of complex numbers, take elements on the CPU: copy=True copies \
                   them there";
        return Err(PyValueError::new_err(why));
    }
    if is_complex_product {
        let lanes = Lanes::of(array, are_reduced, choice);
        let dtype = array.kind.dtype;
        let products = || products(dtype, cast_slice(&lanes.items), &lanes.offsets);
        return Ok(Reduced { values: vec![py.detach(products).map_err(exception)?], order: kept });
    }
    if choice.mask.is_none() && choice.initial.is_none() {
        if kept.is_empty() && array.is_contiguous() {
            let target = Target::All(array.view::<T>().map_err(of_library)?);
            return Ok(Reduced { values: by.run(py, &target, is_large)?, order: kept });
        }
        if let Some((order, lengths)) = three_axes(array, are_reduced) {
            let values = matrices(py, array.view::<T>().map_err(of_library)?, lengths, by)?;
            return Ok(Reduced { values, order });
        }
    }
    check_on_host(array).map_err(needs_copy)?;
    if array.len() == 0
        && choice.initial.is_none()
        && (0..kept.len()).any(|place| array.shape[kept[place]] == 0)
    {
        // Without lanes there is no result, but the operator may refuse an axis without elements, as NumPy's
        // do.
        let is_empty = (0..are_reduced.len()).any(|axis| are_reduced[axis] && array.shape[axis] == 0);
        if is_empty {
            by.run(py, &Target::All(<[T]>::data(&[])), false)?;
        }
    }
    let lanes = Lanes::of(array, are_reduced, choice);
    let target = match kept.is_empty() {
        true => Target::All(lanes.items.data()),
        false => Target::Each(lanes.items.segments(&lanes.offsets).map_err(of_library)?),
    };
    Ok(Reduced { values: by.run(py, &target, is_large)?, order: kept })
}

/// Bytes that one operator reduces before signals are handled.
const BETWEEN_SIGNALS: usize = 1 << 25;

/// Bytes that several operators reduce one after another: they fit in a large cache.
const IN_CACHE: usize = 1 << 23;

/// Bytes that are reduced at a time by so many operators: with enough of them for each thread.
pub fn bytes_at_once(operators: usize) -> usize {
    // Linux reads files to tell, which takes longer than a small reduction.
    static THREADS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, Into::into));
    let bytes = if operators > 1 { IN_CACHE } else { BETWEEN_SIGNALS };
    bytes.max(*THREADS << 20)
}

/// Reduces the columns of row-major matrices, one after the other in memory: so many, with so many rows and
/// columns. On the CPU, some at a time.
fn matrices<T: Number>(
    py: Python,
    items: View<T>,
    [count, rows, columns]: [usize; 3],
    by: By,
) -> PyResult<Vec<Values>> {
    let By { operators, ddof } = by;
    let bytes = rows * columns * size_of::<T>();
    let most = bytes_at_once(operators.len());
    let at_once = if items.device().is_cpu() { (most / bytes.max(1)).max(1) } else { count };
    if count <= at_once {
        let columns = items.reshape(&[count, rows, columns]).and_then(|matrices| matrices.axis(1));
        return by.run(py, &Target::Each(columns.map_err(of_library)?), count * bytes >= LARGE);
    }
    detached(py, |go_on| {
        let mut all = Vec::<Values>::new();
        for first in (0..count).step_by(at_once) {
            if first > 0 && !go_on() {
                return Err(Failure::Stopped);
            }
            let end = count.min(first + at_once);
            let part = items.slice(first * rows * columns..end * rows * columns)?;
            let columns = part.reshape(&[end - first, rows, columns])?.axis(1)?;
            let values = Target::Each(columns).reduce_all(operators, ddof, go_on)?;
            match all.is_empty() {
                true => all = values,
                false => all.iter_mut().zip(values).for_each(|(all, values)| all.append(values)),
            }
        }
        Ok(all)
    })
}

/// The dot products over the last axis of two arrays with the same shape.
pub fn dot<T: Number>(py: Python, arrays: [&Array; 2], operator: PairOperator) -> Result<Values, Failure> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let (a, b) = (contiguous::<T>(arrays[0], &mut a)?, contiguous::<T>(arrays[1], &mut b)?);
    let Some((&len, rows)) = arrays[0].shape.split_last().filter(|(_, rows)| !rows.is_empty()) else {
        return py.detach(|| Pairs::All(a, b).reduce(operator));
    };
    let rows: usize = rows.iter().product();
    let offsets: Vec<u64> = (0..=rows as u64).map(|row| row * len as u64).collect();
    let pairs = (a, b);
    let segments = pairs.segments(&offsets)?;
    py.detach(|| Pairs::Each(segments).reduce(operator))
}

/// The elements in row-major order; `copy` holds them if they lie otherwise.
pub fn contiguous<'a, T: Element>(array: &'a Array, copy: &'a mut Vec<T>) -> Result<View<'a, T>, Error> {
    if array.is_contiguous() {
        return array.view();
    }
    check_on_host(array)?;
    *copy = Lanes::of(array, &vec![true; array.shape.len()], &Choice::ALL).items;
    Ok(copy.data())
}

/// The elements that are there, in row-major order; `copy` holds them if they lie otherwise.
pub fn items_of<'a, T: Element>(array: &'a Array, copy: &'a mut Vec<T>) -> Result<View<'a, T>, Error> {
    match &array.valid {
        None => contiguous(array, copy),
        Some(valid) => {
            *copy = Lanes::of(array, &[true], &Choice { mask: Some((valid, vec![1])), ..Choice::ALL }).items;
            Ok(copy.data())
        }
    }
}

/// The bytes of the elements that are there, in row-major order; `copy` holds them if they lie otherwise or
/// on a GPU.
pub fn bytes_of<'a, T: Element>(array: &'a Array, copy: &'a mut Vec<T>) -> Result<&'a [u8], Error> {
    if !array.device.is_cpu() {
        *copy = contiguous(array, &mut Vec::new())?.to_vec()?;
    } else if array.valid.is_some() || !array.is_contiguous() {
        items_of(array, copy)?;
    } else if array.len() > 0 {
        // SAFETY: the array has this many elements side by side, and keeps them.
        return Ok(unsafe { from_raw_parts(array.first::<u8>(), array.len() * size_of::<T>()) });
    }
    Ok(cast_slice(copy))
}

fn check_on_host(array: &Array) -> Result<(), Error> {
    match array.device.is_cpu() {
        true => Ok(()),
        false => Err(array.gaps()),
    }
}

/// The axes of several elements, those with the largest strides first, and the range of these that is
/// reduced: if the elements lie without gaps, and the reduced axes are neighbours in the order of their
/// numbers.
pub fn in_memory_order(
    shape: &[usize],
    strides: &[isize],
    are_reduced: &[bool],
) -> Option<(Vec<usize>, Range<usize>)> {
    let mut order: Vec<usize> = (0..shape.len()).filter(|&axis| shape[axis] != 1).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(strides[axis]));
    let mut next = 1;
    for &axis in order.iter().rev() {
        if strides[axis] != next || shape[axis] == 0 {
            return None;
        }
        next *= shape[axis] as isize;
    }
    let places: Vec<usize> = (0..order.len()).filter(|&place| are_reduced[order[place]]).collect();
    let start = places.first().copied().unwrap_or(order.len());
    let are_neighbours = places.iter().copied().eq(start..start + places.len());
    let ascend = places.is_sorted_by_key(|&place| order[place]);
    (are_neighbours && ascend).then(|| (order, start..start + places.len().max(1)))
}

/// The axes of the results in their order in memory, and the lengths of the three axes of which the second one is
/// reduced; none if the elements do not lie like this.
pub fn three_axes(array: &Array, are_reduced: &[bool]) -> Option<(Vec<usize>, [usize; 3])> {
    let (mut order, range) = in_memory_order(&array.shape, &array.strides, are_reduced)?;
    let end = range.end.min(order.len());
    let product = |axes: &[usize]| axes.iter().map(|&axis| array.shape[axis]).product();
    let lengths = [&order[..range.start], &order[range.start..end], &order[end..]].map(product);
    order.drain(range.start..end);
    Some((order, lengths))
}

/// Copies of the elements that take part, one lane after the other.
struct Lanes<T> {
    items: Vec<T>,
    offsets: Vec<u64>,
}

impl<T: Element> Lanes<T> {
    fn of(array: &Array, are_reduced: &[bool], Choice { mask, initial, .. }: &Choice<T>) -> Self {
        let axes = |reduced| (0..are_reduced.len()).filter(move |&axis| are_reduced[axis] == reduced);
        let of_mask = |axis: usize| mask.as_ref().map_or(0, |(_, strides)| strides[axis]);
        let axis = |axis: usize| (array.shape[axis], [array.strides[axis], of_mask(axis)]);
        let kept: Vec<_> = axes(false).map(axis).collect();
        let mut reduced: Vec<_> = axes(true).map(axis).collect();
        let (len, strides) = reduced.pop().unwrap_or((1, [0, 0]));

        let lanes = kept.iter().map(|(length, _)| length).product::<usize>();
        let mut items = Vec::with_capacity(array.len() + initial.map_or(0, |_| lanes));
        let mut offsets = Vec::with_capacity(lanes + 1);
        offsets.push(0);
        each_place(&kept, [0, 0], &mut |place| {
            items.extend(*initial);
            each_place(&reduced, place, &mut |[mut at, mut at_mask]| {
                for _ in 0..len {
                    if mask.as_ref().is_none_or(|(mask, _)| mask[at_mask as usize]) {
                        // SAFETY: the array has an element there.
                        items.push(unsafe { array.first::<T>().offset(at).read() });
                    }
                    at += strides[0];
                    at_mask += strides[1];
                }
            });
            offsets.push(items.len() as u64);
        });
        Self { items, offsets }
    }
}

/// Calls `visit` with each place of two arrays with these axes, in row-major order. An axis is its length and
/// the distances of its neighbours in both.
fn each_place(axes: &[(usize, [isize; 2])], at: [isize; 2], visit: &mut impl FnMut([isize; 2])) {
    let Some((&(length, [a, b]), inner)) = axes.split_first() else { return visit(at) };
    for index in 0..length as isize {
        each_place(inner, [at[0] + index * a, at[1] + index * b], visit);
    }
}
