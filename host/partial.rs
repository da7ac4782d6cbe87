//! Parts of one reduction, made apart: by other processes, on other machines, at other times.

mod form;
#[cfg(feature = "serde")]
mod of_serde;

#[cfg(feature = "mpi")]
pub(crate) use form::checksum;

use crate::place::Place::{Cpu, Gpu};
use crate::sharded::partials_on_gpu;
use crate::{Error, Item, Op, Plan, Reduce, View, cpu};
use bytemuck::bytes_of;
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::{fold_alike, width};
use gpu_reduce_kernels::plan::assert_block;
use std::any::type_name;
use std::fmt::{self, Write};
use std::ops::Range;

/// A part of a reduction: the partial results of some [chunks](Plan) of the whole. Whoever has some of the elements reduces them, and sends
/// what comes of it, as [bytes](Self::to_bytes); whoever gathers them [merges](Self::merge) them, in any order and any grouping. When
/// all are there, the result has the bits of [`reduce`](Reduce::reduce) with all elements in one slice: each chunk is folded by
/// itself, whoever does it, and then chunks are, in their order.
///
/// Parts begin and end where chunks do, and [`Plan::part`] says where that is. Everyone has to know the whole's length, and its first element, which some
/// operators (`Var`, `LogSumExp`) take distances from.
///
/// What carries this to where it is merged, a queue, a file, or an engine such as Spark, Ray or Dask, is none of its business:
///
/// ```
/// use gpu_reduce::{Partial, Reduce, Var};
///
/// let x: Vec<f32> = (0..100_000).map(|i| (i as f32).sqrt()).collect();
/// let (len, first) = (x.len() as u64, x[0]);
///
/// // Three workers, of which each has a third of x, or a little more or less.
/// let plan = Partial::<Var, f32, 256>::plan(len);
/// let work = |worker: u32| {
///     let range = plan.part(worker, 3);
///     let elements = &x[range.start as usize..range.end as usize];
///     let mut part = Partial::<_, _, 256>::new(Var::new(1), len, first);
///     part.add(range.start, elements)?;
///     Ok::<_, gpu_reduce::Error>(part.to_bytes())
/// };
/// let [first_third, second_third, last_third] = [work(0)?, work(1)?, work(2)?];
///
/// // Who gathers them gets them in another order.
/// let mut all = Partial::<_, f32, 256>::from_bytes(Var::new(1), &last_third)?;
/// all.merge(Partial::from_bytes(Var::new(1), &first_third)?)?;
/// assert_eq!(all.missing(), Some(plan.part(1, 3)));
/// all.merge(Partial::from_bytes(Var::new(1), &second_third)?)?;
/// assert_eq!(all.finish()?, x.by(Var::new(1)).block::<256>().run()?);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// A tuple of operators takes part as with a [`Reducer`](crate::Reducer). An operator of a program's own that carries something says so in
/// [`Op::parameters`].
///
#[doc = include_str!("partial/form.md")]
#[derive(Clone)]
pub struct Partial<O: Op<T>, T: Item, const BLOCK: u32> {
    op: O,
    plan: Plan,
    /// The first element of the whole; zero if it has none.
    first: T,
    /// Chunks and their partial results, in order.
    chunks: Vec<(u32, O::Accumulator)>,
}

impl<O: Op<T>, T: Item, const BLOCK: u32> Partial<O, T, BLOCK> {
    /// The plan of a whole of so many elements: [`Plan::part`] says where parts of it lie.
    pub fn plan(len: u64) -> Plan {
        const {
            assert_block(BLOCK);
            assert!(
                fold_alike::<O, T>(<*const T as Input>::BYTES),
                "these operators fold different numbers of items side by side: reduce by each alone"
            );
        }
        Plan::new(len, const { width::<O, T>(<*const T as Input>::BYTES) }, BLOCK)
    }

    /// Nothing yet of a whole of `len` elements, which begins with `first`. Of a whole of none, `first` may be anything.
    pub fn new(op: O, len: u64, first: T) -> Self {
        let first = if len == 0 { T::zeroed() } else { first };
        Self { op, plan: Self::plan(len), first, chunks: Vec::new() }
    }

    /// Reduces elements where they lie, the first of which has the index `start` in the whole.
    ///
    /// # Errors
    ///
    /// And then it is as it was: [`Error::OutOfBounds`] of the whole; [`Error::Unchunked`] where they do not begin and end where chunks do;
    /// [`Error::Twice`]; [`Error::ReductionMismatch`] where they begin with another element than `first`, and it is theirs; and of elements on
    /// a GPU [`Error::OutOfMemory`] and [`Error::Driver`].
    pub fn add<'a, D>(&mut self, start: u64, elements: &'a D) -> Result<(), Error>
    where
        D: Reduce<Item = T, Data<'a> = View<'a, T>> + ?Sized,
    {
        let elements = elements.data();
        let chunks = self.chunks_of(start, elements.len() as u64)?;
        if chunks.is_empty() {
            return Ok(());
        }
        self.none_of(chunks.clone())?;
        if start == 0 {
            same("first element", &hex(bytes_of(&first_of(elements)?)), &hex(bytes_of(&self.first)))?;
        }
        let partials = partials_of(&self.op, elements, &self.plan, chunks.clone(), self.first)?;
        self.take(chunks.zip(partials));
        Ok(())
    }

    /// Takes what another has.
    ///
    /// # Errors
    ///
    /// And then it is as it was: [`Error::ReductionMismatch`] where the other is of another whole, or by an operator with other parameters, and
    /// [`Error::Twice`] where they have elements in common.
    pub fn merge(&mut self, other: Self) -> Result<(), Error> {
        same("operator's parameters", &parameters(&other.op), &parameters(&self.op))?;
        same("length", &other.plan.len.to_string(), &self.plan.len.to_string())?;
        same("first element", &hex(bytes_of(&other.first)), &hex(bytes_of(&self.first)))?;
        self.none_of(other.chunks.iter().map(|&(chunk, _)| chunk))?;
        self.take(other.chunks);
        Ok(())
    }

    /// The first elements that are missing, all that lie side by side; none when it is complete.
    pub fn missing(&self) -> Option<Range<u64>> {
        let all = if self.plan.len == 0 { 0 } else { self.plan.chunks };
        self.neighbours((0..all).filter(|&chunk| !self.has(chunk)))
    }

    /// The result.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] where it is not complete, and [`Error::EmptyInput`] where the operator has no value for no elements.
    pub fn finish(&self) -> Result<O::Output, Error> {
        let Self { op, plan, first, .. } = self;
        if let Some(Range { start, end }) = self.missing() {
            return Err(Error::Missing { start, end, len: plan.len });
        }
        let partials: Vec<_> = self.chunks.iter().map(|&(_, partial)| partial).collect();
        finished(op, *first, plan.len, &partials)
    }

    /// The chunks of elements from `start` on.
    fn chunks_of(&self, start: u64, count: u64) -> Result<Range<u32>, Error> {
        let Plan { len, chunk, .. } = self.plan;
        let end = start.saturating_add(count);
        if end > len {
            let [start, end, len] = [start, end, len].map(|index| index as usize);
            return Err(Error::OutOfBounds { start, end, len });
        }
        if count == 0 {
            return Ok(0..0);
        }
        if !start.is_multiple_of(chunk) || !(end.is_multiple_of(chunk) || end == len) {
            return Err(Error::Unchunked { start, end, chunk, len });
        }
        Ok((start / chunk) as u32..end.div_ceil(chunk) as u32)
    }

    /// An error where it has any of some chunks, which are in order.
    fn none_of(&self, chunks: impl Iterator<Item = u32>) -> Result<(), Error> {
        match self.neighbours(chunks.filter(|&chunk| self.has(chunk))) {
            Some(Range { start, end }) => Err(Error::Twice { start, end, len: self.plan.len }),
            None => Ok(()),
        }
    }

    fn has(&self, chunk: u32) -> bool {
        self.chunks.binary_search_by_key(&chunk, |&(chunk, _)| chunk).is_ok()
    }

    /// The elements of the first chunks that lie side by side, of some in order.
    fn neighbours(&self, mut chunks: impl Iterator<Item = u32>) -> Option<Range<u64>> {
        let start = chunks.next()?;
        let mut end = start + 1;
        while chunks.next() == Some(end) {
            end += 1;
        }
        Some(self.plan.elements(start..end))
    }

    fn take(&mut self, chunks: impl IntoIterator<Item = (u32, O::Accumulator)>) {
        self.chunks.extend(chunks);
        self.chunks.sort_unstable_by_key(|&(chunk, _)| chunk);
    }
}

/// `Partial { op: "sum", len: 100000, chunks: 7, of: 49 }`.
impl<O: Op<T>, T: Item, const BLOCK: u32> fmt::Debug for Partial<O, T, BLOCK> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Partial")
            .field("op", &name(&self.op))
            .field("len", &self.plan.len)
            .field("chunks", &self.chunks.len())
            .field("of", &self.plan.chunks)
            .finish()
    }
}

/// The partial results of some chunks, from their elements, where the whole begins with `first`.
pub(crate) fn partials_of<O: Op<T>, T: Item>(
    op: &O,
    elements: View<T>,
    plan: &Plan,
    chunks: Range<u32>,
    first: T,
) -> Result<Vec<O::Accumulator>, Error> {
    if let Some(partials) = partials_on_gpu(op, elements, plan, chunks.clone(), &first)? {
        return Ok(partials);
    }
    let op = op.begin(first);
    if let Cpu(elements) = elements.0 {
        return Ok(cpu::partials(&op, elements, plan, chunks));
    }
    // Of an operator that has no kernel.
    let start = plan.elements(chunks.clone()).start;
    let mut partials = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let Range { start: from, end } = plan.range(chunk);
        let copy = elements.slice((from - start) as usize..(end - start) as usize)?.to_vec()?;
        partials.extend(cpu::partials(&op, &copy[..], plan, chunk..chunk + 1));
    }
    Ok(partials)
}

/// The result of a whole that begins with `first`, from the partial results of all its chunks.
pub(crate) fn finished<O: Op<T>, T: Item>(
    op: &O,
    first: T,
    len: u64,
    partials: &[O::Accumulator],
) -> Result<O::Output, Error> {
    let output = if len == 0 {
        op.finish(op.identity(), 0)
    } else {
        let op = op.begin(first);
        op.finish(op.end(cpu::of_partials::<O, &[T]>(&op, partials), len), len)
    };
    output.ok_or_else(|| Error::empty(op))
}

/// The first of some elements.
pub(crate) fn first_of<T: Item>(elements: View<T>) -> Result<T, Error> {
    Ok(match elements.0 {
        Cpu(elements) => elements[0],
        Gpu(_) => elements.slice(..1)?.to_vec()?[0],
    })
}

/// The operator's name; of several, their names.
pub(crate) fn name<O: Op<T>, T: Item>(op: &O) -> String {
    let mut names = Vec::new();
    op.each_part(&mut |name, _| names.push(name));
    names.join(", ")
}

/// What the operator carries.
fn parameters_of<O: Op<T>, T: Item>(op: &O) -> Vec<u8> {
    let mut all = Vec::new();
    op.each_part(&mut |_, bytes| all.extend(bytes));
    all
}

/// The same in words.
pub(crate) fn parameters<O: Op<T>, T: Item>(op: &O) -> String {
    hex(&parameters_of(op))
}

/// A type's name without the modules it lies in, as `f16` or `Point`.
fn name_of_type<T>() -> String {
    let parts = type_name::<T>().split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    parts.filter_map(|part| part.rsplit("::").next()).collect()
}

/// Bytes in words.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in bytes {
        // A string takes all that is written.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// An error unless both have the same.
fn same(what: &'static str, found: &str, expected: &str) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::ReductionMismatch { what, found: found.into(), expected: expected.into() })
}
