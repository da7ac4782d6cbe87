//! Reductions of items that come piece by piece.

use crate::{Block, Error, Item, Op, Plan, Threads, parts, threads};
use gpu_reduce_kernels::agent::fold_alike;
use gpu_reduce_kernels::cpu::Pairwise;
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::width;
use std::fmt;

/// A reduction on the CPU of items that come piece by piece, such as those of a file that does not fit in
/// memory.
///
/// It keeps a row of accumulators, and no items. The result's bits do not depend on how the items are cut
/// into pieces. If the number of items is given beforehand, they are those of
/// [`reduce`](crate::Reduce::reduce) with all items in one slice. Otherwise chunks of a fixed number of rows
/// are folded as those of a [`Plan`], and their partial results are merged pairwise.
///
/// The operators of a tuple have to fold the same number of items side by side, as `(Sum, Min, Max)` do;
/// others do not compile. Groups by key that come piece by piece are [`PartialGroups`](crate::PartialGroups).
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
    /// The number of all items, if it is known.
    len: Option<u64>,
    /// Items so far, and those in the last chunk.
    count: u64,
    in_chunk: u64,
    /// The index of the next item.
    next: u64,
    /// The accumulators of the last chunk.
    accumulators: Vec<O::Accumulator>,
    /// The partial results of the chunks before: a list if `len` is known, else a tree.
    partials: Vec<O::Accumulator>,
    tree: Pairwise<O::Accumulator>,
}

/// Rows of a chunk if the number of items is not known. The longest path of a sum of 2^40 `f32` with BLOCK
/// 256 is then 160 roundings.
pub const ROWS: u64 = 128;

/// Pieces of at least this many bytes are folded by several threads.
const PARALLEL_BYTES: usize = 1 << 20;

/// The fewest accumulators for which another thread pays.
const LEAST_STRIP: usize = 128;

impl<O: Op<T>, T: Item, const BLOCK: u32> Reducer<O, T, BLOCK>
where
    Threads<BLOCK>: Block,
{
    /// Returns a reduction of any number of items.
    pub fn new(op: O) -> Self {
        Self::of(op, None)
    }

    /// Returns a reduction of `len` items, which has the bits of one slice.
    pub fn with_len(op: O, len: u64) -> Self {
        Self::of(op, Some(len))
    }

    fn of(op: O, len: Option<u64>) -> Self {
        const {
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
            accumulators: Vec::new(),
            partials: Vec::new(),
            tree: Pairwise::new(),
        }
    }

    /// Takes the next items.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] if there would be more items than the number given; then none is taken.
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
                self.accumulators.clear();
                self.in_chunk = 0;
            }
        }
        Ok(())
    }

    /// Skips `count` indices, which no items have.
    #[cfg(feature = "arrow")]
    pub(crate) fn skip(&mut self, count: u64) {
        self.next += count;
    }

    /// Returns the number of items so far.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns whether there have been no items.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the result of the items so far; others may follow.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyInput`] if there are no items and the operator has no value for none;
    /// [`Error::Incomplete`] if there have been fewer items than the number given.
    pub fn finish(&self) -> Result<O::Output, Error> {
        let Self { op, count, .. } = *self;
        if let Some(len) = self.len.filter(|&len| count < len) {
            return Err(Error::Incomplete { count, len });
        }
        let last = (self.in_chunk > 0).then(|| self.last_chunk());
        let output = match self.len {
            _ if count == 0 => op.finish(op.identity(), 0),
            Some(_) => {
                let partials: Vec<_> = self.partials.iter().copied().chain(last).collect();
                parts::finish::<O, &[T]>(&op, &partials, count)
            }
            None => {
                let mut tree = self.tree.clone();
                last.into_iter().for_each(|last| tree.push(&op, last));
                op.finish(op.end(tree.finish(&op), count), count)
            }
        };
        output.ok_or_else(|| Error::empty(&op))
    }

    /// Returns the partial result of the last chunk.
    fn last_chunk(&self) -> O::Accumulator {
        let mut tree = Pairwise::new();
        self.accumulators.iter().for_each(|&accumulator| tree.push(&self.op, accumulator));
        tree.finish(&self.op)
    }

    /// Folds items into the last chunk's accumulators: item i of a row into accumulator i.
    fn fold(&mut self, items: &[T]) {
        let Self { op, row, .. } = *self;
        let lift = |index: u64, item: &T| op.lift(*item, index);
        let fold = |row: &mut [O::Accumulator], items: &[T], first: u64| {
            for ((place, item), index) in row.iter_mut().zip(items).zip(first..) {
                *place = op.combine(*place, lift(index, item));
            }
        };
        // The first row makes the accumulators. Then the row that an earlier piece began is completed.
        let (first_row, items) = items.split_at(items.len().min(row - self.accumulators.len()));
        self.accumulators.extend((self.next..).zip(first_row).map(|(index, item)| lift(index, item)));
        let first = self.next + first_row.len() as u64;
        let place = (self.in_chunk as usize + first_row.len()) % row;
        let (begun, rows) = items.split_at(items.len().min((row - place) % row));
        fold(&mut self.accumulators[place..], begun, first);
        let first = first + begun.len() as u64;
        let fold_strip = |start: usize, strip: &mut [O::Accumulator]| {
            for (items, first) in rows.chunks(row).zip((first..).step_by(row)) {
                fold(strip, items.get(start..).unwrap_or_default(), first + start as u64);
            }
        };
        if size_of_val(rows) < PARALLEL_BYTES {
            return fold_strip(0, &mut self.accumulators);
        }
        let strip = row.div_ceil(threads::count()).next_multiple_of(LEAST_STRIP);
        threads::each_part(&mut self.accumulators, strip, &|index, part| fold_strip(index * strip, part));
    }
}

/// `Reducer { count: 3, len: Some(10) }`.
impl<O: Op<T>, T: Item, const BLOCK: u32> fmt::Debug for Reducer<O, T, BLOCK> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Reducer").field("count", &self.count).field("len", &self.len).finish()
    }
}
