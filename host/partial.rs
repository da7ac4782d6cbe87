//! Parts of one reduction, made apart: by other processes, on other machines, at other times.

pub(crate) mod form;
#[cfg(feature = "serde")]
mod of_serde;

use crate::{Block, Error, Item, Op, Plan, Reduce, Threads, View, parts};
use bytemuck::bytes_of;
use gpu_reduce_kernels::agent::{Agent, fold_alike};
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::width;
use std::any::type_name;
use std::fmt::{self, Write};
use std::ops::Range;

/// A part of a reduction: the partial results of some [chunks](Plan) of the whole array.
///
/// Each worker reduces the elements that it has, and sends the partial results as [bytes](Self::to_bytes).
/// Whoever gathers them [merges](Self::merge) them, in any order and any grouping. When all are there, the
/// result has the bits of [`reduce`](Reduce::reduce) with all elements in one slice, because each chunk is
/// folded alone, and the partial results are then merged in the order of the chunks.
///
/// Parts begin and end where chunks do; [`Plan::part`] says where that is. Every worker has to know the
/// length of the whole array, and its first element: some operators (`Var`, `LogSumExp`) take distances from
/// it.
///
/// How the bytes travel is up to the program: a queue, a file, or an engine such as Spark, Ray or Dask.
///
/// ```
/// use gpu_reduce::{Partial, Reduce, Var};
///
/// let x: Vec<f32> = (0..100_000).map(|i| (i as f32).sqrt()).collect();
/// let (len, first) = (x.len() as u64, x[0]);
///
/// // Three workers, each with about a third of x.
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
/// // The parts arrive in another order.
/// let mut all = Partial::<_, f32, 256>::from_bytes(Var::new(1), &last_third)?;
/// all.merge(Partial::from_bytes(Var::new(1), &first_third)?)?;
/// assert_eq!(all.missing(), Some(plan.part(1, 3)));
/// all.merge(Partial::from_bytes(Var::new(1), &second_third)?)?;
/// assert_eq!(all.finish()?, x.by(Var::new(1)).block::<256>().run()?);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// Groups by key, whose parts may have any items, are [`PartialGroups`](crate::PartialGroups).
///
/// A tuple of operators is allowed as with a [`Reducer`](crate::Reducer). An operator of your own that has
/// fields returns them from [`Op::parameters`].
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

impl<O: Op<T>, T: Item, const BLOCK: u32> Partial<O, T, BLOCK>
where
    Threads<BLOCK>: Block,
{
    /// Returns the plan of a whole array of `len` elements. [`Plan::part`] cuts it into parts.
    pub fn plan(len: u64) -> Plan {
        const {
            assert!(
                fold_alike::<O, T>(<*const T as Input>::BYTES),
                "these operators fold different numbers of items side by side: reduce by each alone"
            );
        }
        Plan::new(len, const { width::<O, T>(<*const T as Input>::BYTES) }, BLOCK)
    }

    /// Returns a part without chunks, of a whole array of `len` elements that begins with `first`.
    ///
    /// If `len` is 0, `first` may be anything.
    pub fn new(op: O, len: u64, first: T) -> Self {
        let first = if len == 0 { T::zeroed() } else { first };
        Self { op, plan: Self::plan(len), first, chunks: Vec::new() }
    }

    /// Reduces elements where they lie; the first of them has the index `start` in the whole array.
    ///
    /// Elements on a GPU are reduced there. By a tuple of operators they are reduced in one pass if a kernel
    /// of the tuple is compiled, else in one pass for each operator. An operator for which no kernel is
    /// compiled reduces on the CPU: then the elements are copied there, a chunk at a time.
    ///
    /// # Errors
    ///
    /// If there is an error, the part stays as it was. [`Error::OutOfBounds`] if the elements end after the
    /// whole array; [`Error::Unchunked`] if they do not begin and end where chunks do; [`Error::Twice`] if
    /// the part has some of them already; [`Error::ReductionMismatch`] if they begin the whole array with
    /// another element than `first`; on a GPU also [`Error::OutOfMemory`] and [`Error::Driver`].
    pub fn add<'a, D>(&mut self, start: u64, elements: &'a D) -> Result<(), Error>
    where
        D: Reduce<Item = T, Data<'a> = View<'a, T>> + ?Sized,
    {
        let elements = elements.data();
        let chunks = self.chunks_of(start, elements.len() as u64)?;
        if chunks.is_empty() {
            return Ok(());
        }
        self.check_new(chunks.clone())?;
        if start == 0 {
            let first = parts::first_of(elements)?;
            same("first element", &hex(bytes_of(&first)), &hex(bytes_of(&self.first)))?;
        }
        let partials = parts::fold(&self.op, elements, &self.plan, chunks.clone(), self.first)?;
        self.insert(chunks.zip(partials));
        Ok(())
    }

    /// Adds the chunks of another part.
    ///
    /// # Errors
    ///
    /// If there is an error, the part stays as it was. [`Error::ReductionMismatch`] if the other part is of
    /// another whole array, or by an operator with other parameters; [`Error::Twice`] if both have some
    /// chunks.
    pub fn merge(&mut self, other: Self) -> Result<(), Error> {
        same("operator's parameters", &parameters(&other.op), &parameters(&self.op))?;
        same("length", &other.plan.len.to_string(), &self.plan.len.to_string())?;
        same("first element", &hex(bytes_of(&other.first)), &hex(bytes_of(&self.first)))?;
        self.check_new(other.chunks.iter().map(|&(chunk, _)| chunk))?;
        self.insert(other.chunks);
        Ok(())
    }

    /// Returns the first range of elements that are missing, or `None` if the part is complete.
    pub fn missing(&self) -> Option<Range<u64>> {
        let all = if self.plan.len == 0 { 0 } else { self.plan.chunks };
        // The chunks are in order: up to the first missing one, each has its number's place.
        let start = (0..).zip(&self.chunks).take_while(|&(place, &(chunk, _))| chunk == place).count();
        let end = self.chunks.get(start).map_or(all, |&(chunk, _)| chunk);
        (start < end as usize).then(|| self.plan.elements(start as u32..end))
    }

    /// Returns the result.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] if the part is not complete; [`Error::EmptyInput`] if the whole array has no
    /// elements and the operator has no value for none.
    pub fn finish(&self) -> Result<O::Output, Error> {
        let Self { op, plan, first, .. } = self;
        if let Some(Range { start, end }) = self.missing() {
            return Err(Error::Missing { start, end, len: plan.len });
        }
        let partials: Vec<_> = self.chunks.iter().map(|&(_, partial)| partial).collect();
        finish(op, *first, plan.len, &partials)
    }

    /// Returns the chunks of `count` elements from `start` on.
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

    /// Fails if the part has any of these chunks, which are in order.
    fn check_new(&self, chunks: impl Iterator<Item = u32>) -> Result<(), Error> {
        let last = self.chunks.last().map(|&(chunk, _)| chunk);
        let mut chunks = chunks.peekable();
        // Parts mostly come in order.
        if last < chunks.peek().copied() {
            return Ok(());
        }
        match self.first_run(chunks.filter(|&chunk| self.has(chunk))) {
            Some(Range { start, end }) => Err(Error::Twice { start, end, len: self.plan.len }),
            None => Ok(()),
        }
    }

    fn has(&self, chunk: u32) -> bool {
        self.chunks.binary_search_by_key(&chunk, |&(chunk, _)| chunk).is_ok()
    }

    /// Returns the elements of the first consecutive chunks among these, which are in order.
    fn first_run(&self, mut chunks: impl Iterator<Item = u32>) -> Option<Range<u64>> {
        let start = chunks.next()?;
        let mut end = start + 1;
        while chunks.next() == Some(end) {
            end += 1;
        }
        Some(self.plan.elements(start..end))
    }

    fn insert(&mut self, chunks: impl IntoIterator<Item = (u32, O::Accumulator)>) {
        let before = self.chunks.len();
        self.chunks.extend(chunks);
        if before > 0 && self.chunks.get(before).is_some_and(|&(chunk, _)| chunk < self.chunks[before - 1].0)
        {
            // Two runs in order. (Merged by hand: a sort of its own for each operator compiles to much code.)
            let second = self.chunks.split_off(before);
            let first = std::mem::replace(&mut self.chunks, Vec::with_capacity(before + second.len()));
            let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
            while let (Some(a), Some(b)) = (first.peek(), second.peek()) {
                let least = if a.0 <= b.0 { first.next() } else { second.next() };
                self.chunks.extend(least);
            }
            self.chunks.extend(first.chain(second));
        }
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

/// Returns the result of a whole array from the partial results of all its chunks.
pub(crate) fn finish<O: Op<T>, T: Item>(
    op: &O,
    first: T,
    len: u64,
    partials: &[O::Accumulator],
) -> Result<O::Output, Error> {
    let output = match len {
        0 => op.finish(op.identity(), 0),
        _ => parts::finish::<O, &[T]>(&op.begin(first), partials, len),
    };
    output.ok_or_else(|| Error::empty(op))
}

/// Returns the operator's name; of several operators, all names.
pub(crate) fn name<O: Op<T>, T: Copy + 'static>(op: &O) -> String {
    let mut names = Vec::new();
    O::agent().each_part(op, &mut |name, _| names.push(name));
    names.join(", ")
}

/// Returns the operator's parameters as bytes.
pub(crate) fn parameters_of<O: Op<T>, T: Copy + 'static>(op: &O) -> Vec<u8> {
    let mut all = Vec::new();
    O::agent().each_part(op, &mut |_, bytes| all.extend(bytes));
    all
}

/// Returns the operator's parameters as text.
pub(crate) fn parameters<O: Op<T>, T: Copy + 'static>(op: &O) -> String {
    hex(&parameters_of(op))
}

/// Returns a type's name without its modules, as `f16` or `Point`.
pub(crate) fn name_of_type<T>() -> String {
    without_modules(type_name::<T>())
}

fn without_modules(name: &str) -> String {
    let parts = name.split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    parts.filter_map(|part| part.rsplit("::").next()).collect()
}

/// Returns bytes as text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in bytes {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Fails unless both are the same.
pub(crate) fn same(what: &'static str, found: &str, expected: &str) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::ReductionMismatch { what, found: found.into(), expected: expected.into() })
}
