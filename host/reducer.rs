//! Reductions of items that come piece by piece.

use crate::{Error, Item, Op, Plan, cpu, threads};
use gpu_reduce_kernels::cpu::Pairwise;
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::{fold_alike, width};
use gpu_reduce_kernels::plan::assert_block;
use rayon::prelude::*;
use std::fmt;

/// A reduction on the CPU of items that come piece by piece, such as those of a file that memory has no room for. It keeps a row of accumulators, and no
/// items.
///
/// The result's bits do not depend on how the items come. Where their number is given beforehand, they are those of
/// [`reduce`](crate::Reduce::reduce) with all in one slice. Where it is not, all parts of so many rows are folded as chunks of a [`Plan`] are, and then
/// pairwise.
///
/// A tuple of operators takes part where all of them fold as many items side by side, as `(Sum, Min, Max)` do; with others the program does not
/// compile.
///
/// ```
/// use gpu_reduce::{Reduce, Reducer, Sum};
///
/// let x: Vec<f32> = (0..10_000).map(|i| 0.1 * i as f32).collect();
/// let mut sum = Reducer::<_, f32, 256>::with_len(Sum, x.len() as u64);
/// for piece in x.chunks(999) {
///     sum.push(piece)?;
/// }
/// assert_eq!(sum.finish()?, x.reduce::<Sum, 256>()?);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Clone)]
pub struct Reducer<O: Op<T>, T: Item, const BLOCK: u32> {
    op: O,
    /// Items in a row, and in a chunk.
    row: usize,
    chunk: u64,
    /// Items that there will be.
    len: Option<u64>,
    /// Items so far, and how many of them are in the last chunk.
    count: u64,
    in_chunk: u64,
    /// The index of the next item.
    next: u64,
    /// The last chunk's accumulators.
    all: Vec<O::Accumulator>,
    /// The partial results of the chunks before: of a known number of items, and of others.
    partials: Vec<O::Accumulator>,
    tree: Pairwise<O::Accumulator>,
}

/// Rows of a chunk, where the number of items is not known. A sum of 2^40 `f32` has a path of 160 roundings with BLOCK 256.
const ROWS: u64 = 128;

/// Bytes from which on several threads fold, and the fewest accumulators that are worth one.
const PARALLEL_BYTES: usize = 1 << 20;
const LEAST_STRIP: usize = 128;

impl<O: Op<T>, T: Item, const BLOCK: u32> Reducer<O, T, BLOCK> {
    /// A reduction of however many items.
    pub fn new(op: O) -> Self {
        Self::of(op, None)
    }

    /// A reduction of so many items, with the bits of one slice.
    pub fn with_len(op: O, len: u64) -> Self {
        Self::of(op, Some(len))
    }

    fn of(op: O, len: Option<u64>) -> Self {
        const {
            assert_block(BLOCK);
            assert!(
                fold_alike::<O, T>(<*const T as Input>::BYTES),
                "these operators fold different numbers of items side by side: take a Reducer for each"
            );
        }
        let plan = Plan::new(len.unwrap_or(0), const { width::<O, T>(size_of::<T>()) }, BLOCK);
        Self {
            op,
            row: plan.row as usize,
            chunk: if len.is_some() { plan.chunk } else { ROWS * plan.row },
            len,
            count: 0,
            in_chunk: 0,
            next: 0,
            all: Vec::new(),
            partials: Vec::new(),
            tree: Pairwise::new(),
        }
    }

    /// Takes the next items.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] where they would be more than the number given; then none is taken.
    pub fn push(&mut self, items: &[T]) -> Result<(), Error> {
        if let Some(len) = self.len
            && len - self.count < items.len() as u64
        {
            let start = self.count as usize;
            return Err(Error::OutOfBounds {
                start,
                end: start.saturating_add(items.len()),
                len: len as usize,
            });
        }
        if let (0, Some(&first)) = (self.count, items.first()) {
            self.op = self.op.begin(first);
        }
        let mut rest = items;
        while !rest.is_empty() {
            let room = self.chunk - self.in_chunk;
            let (items, others) = rest.split_at(room.min(rest.len() as u64) as usize);
            self.fold(items);
            rest = others;
            let len = items.len() as u64;
            (self.count, self.in_chunk, self.next) = (self.count + len, self.in_chunk + len, self.next + len);
            if self.in_chunk == self.chunk {
                let partial = self.last_chunk();
                match self.len {
                    Some(_) => self.partials.push(partial),
                    None => self.tree.push(&self.op, partial),
                }
                self.all.clear();
                self.in_chunk = 0;
            }
        }
        Ok(())
    }

    /// Leaves out so many indices, which no items have.
    #[cfg(feature = "arrow")]
    pub(crate) fn skip(&mut self, count: u64) {
        self.next += count;
    }

    /// Items so far.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there have been no items.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The result of the items so far; others may follow.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyInput`] where the operator has no value for no items, [`Error::Incomplete`] where there have been fewer than the number given.
    pub fn finish(&self) -> Result<O::Output, Error> {
        let Self { op, count, .. } = *self;
        let none = || Error::empty(&op);
        if let Some(len) = self.len.filter(|&len| count < len) {
            return Err(Error::Incomplete { count, len });
        }
        if count == 0 {
            return op.finish(op.identity(), 0).ok_or_else(none);
        }
        let last = (self.in_chunk > 0).then(|| self.last_chunk());
        let all = match self.len {
            Some(_) => self.of_partials(last),
            None => {
                let mut tree = self.tree.clone();
                last.into_iter().for_each(|last| tree.push(&op, last));
                tree.finish(&op)
            }
        };
        op.finish(op.end(all, count), count).ok_or_else(none)
    }

    /// The accumulator of all chunks, with the last one's.
    fn of_partials(&self, last: Option<O::Accumulator>) -> O::Accumulator {
        let partials: Vec<_> = self.partials.iter().copied().chain(last).collect();
        cpu::of_partials::<O, &[T]>(&self.op, &partials)
    }

    /// The accumulator of the last chunk.
    fn last_chunk(&self) -> O::Accumulator {
        let mut tree = Pairwise::new();
        self.all.iter().for_each(|&all| tree.push(&self.op, all));
        tree.finish(&self.op)
    }

    /// Folds items into the last chunk's accumulators, each into that of its place in a row.
    fn fold(&mut self, items: &[T]) {
        let Self { op, row, .. } = *self;
        let lift = |index: u64, item: &T| op.lift(*item, index);
        let fold = |all: &mut [O::Accumulator], items: &[T], first: u64| {
            for ((place, item), index) in all.iter_mut().zip(items).zip(first..) {
                *place = op.combine(*place, lift(index, item));
            }
        };
        // What is missing in the first row, and then in another.
        let (first_row, items) = items.split_at(items.len().min(row - self.all.len()));
        self.all.extend((self.next..).zip(first_row).map(|(index, item)| lift(index, item)));
        let first = self.next + first_row.len() as u64;
        let place = (self.in_chunk as usize + first_row.len()) % row;
        let (begun, rows) = items.split_at(items.len().min((row - place) % row));
        fold(&mut self.all[place..], begun, first);
        let first = first + begun.len() as u64;
        let of_strip = |start: usize, all: &mut [O::Accumulator]| {
            for (items, first) in rows.chunks(row).zip((first..).step_by(row)) {
                fold(all, items.get(start..).unwrap_or_default(), first + start as u64);
            }
        };
        if size_of_val(rows) < PARALLEL_BYTES {
            return of_strip(0, &mut self.all);
        }
        let strip = row.div_ceil(threads::count()).next_multiple_of(LEAST_STRIP);
        let strips = self.all.par_chunks_mut(strip).enumerate();
        threads::install(|| strips.for_each(|(index, all)| of_strip(index * strip, all)));
    }
}

/// `Reducer { count: 3, len: Some(10) }`.
impl<O: Op<T>, T: Item, const BLOCK: u32> fmt::Debug for Reducer<O, T, BLOCK> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Reducer").field("count", &self.count).field("len", &self.len).finish()
    }
}
