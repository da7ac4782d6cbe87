//! A reduction on the CPU in steps, for operators that are known only when the program runs: several in one
//! pass over memory, and items that come in pieces.
//!
//! [`Reduction::run_by`](crate::Reduction::run_by) prepares a [`Fold`] and hands it to its caller, who runs
//! it alone, runs it in a [`Pass`] with others, or takes [`Pieces`] from it. Then the call finishes the
//! result. All that depends on the operator's type is in that call: a program that has every operator
//! compiles nothing else for each of them. On a GPU, the same call can [enqueue](Way::Enqueue) the reduction.

use crate::cpu::{ColumnsOnCpu, Erased, PARALLEL_BYTES, Places, Prepared, Unit, reduce_columns};
use crate::cuda::Gpu;
use crate::data::other_device;
use crate::reducer::ROWS;
use crate::request::Request;
use crate::{Error, Item, Plan, Stream, threads};
use gpu_reduce_kernels::cpu::Folds;
use std::cell::Cell;
use std::ffi::c_void;
use std::iter::successors;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// Bytes that a pass folds before it asks again whether to go on, if they keep all threads busy.
const BATCH: usize = 1 << 25;

/// How a reduction by an operator that is known when the program runs goes on.
pub enum Way<'a, T: Item> {
    /// Waits for the results. Items that lie on the CPU are folded by this function.
    Wait(&'a dyn Fn(&Fold<T>)),
    /// Enqueues that a GPU writes the results to these places. The result of an array without items is returned.
    Enqueue(&'a ToPlaces<'a>),
}

/// Places for results on a GPU, and a stream.
pub struct ToPlaces<'a> {
    /// If none, nothing is enqueued.
    stream: Option<&'a Stream<'a>>,
    first: *mut c_void,
    scratch_bytes: Cell<usize>,
}

impl<'a> ToPlaces<'a> {
    /// Places from an address on.
    ///
    /// # Safety
    ///
    /// There is a place for each result of the reductions that are enqueued with it. As for
    /// [`Reduce::reduce_into`](crate::Reduce::reduce_into), the places and the items stay until the stream has been
    /// synchronized, and nothing else uses them, except in the order of the stream.
    pub unsafe fn new(stream: &'a Stream<'a>, first: *mut c_void) -> Self {
        Self { stream: Some(stream), first, scratch_bytes: Cell::new(0) }
    }

    /// No places: nothing is enqueued, but [`scratch_bytes`](Self::scratch_bytes) tells what the call needs.
    pub fn none() -> Self {
        Self { stream: None, first: null_mut(), scratch_bytes: Cell::new(0) }
    }

    /// The bytes of scratch memory that the last call without places needs, as
    /// [`Reduction::scratch_bytes`](crate::Reduction::scratch_bytes).
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes.get()
    }

    /// Enqueues a request.
    ///
    /// # Safety
    ///
    /// The request has the types of its operator and of its items. There is a place for each of its results.
    pub(crate) unsafe fn enqueue(&self, gpu: &'static Gpu, mut request: Request) -> Result<(), Error> {
        let Some(stream) = self.stream else {
            self.scratch_bytes.set(gpu.scratch_bytes(request.by.types, &request.shape, request.by.block));
            return Ok(());
        };
        request.results = self.first;
        match stream.on(Some(gpu))? {
            // SAFETY: the caller vouches for the types, and the caller of `new` for the places.
            Some(queue) => unsafe { queue.enqueue(&request) },
            None => Err(other_device(Some(gpu), &stream.device())),
        }
    }

    /// The error of items that lie on the CPU, if something is to be enqueued.
    pub(crate) fn refuse_host(&self) -> Result<(), Error> {
        self.stream.map_or(Ok(()), |stream| Err(other_device(None, &stream.device())))
    }
}

/// The fold of all items of an array on the CPU, or of each of its columns, which has not run yet.
pub struct Fold<'a, T: Item> {
    /// The fold of a whole array. For columns, a fold that does not run: it describes the operator and one column.
    of: Prepared,
    columns: Option<&'a ColumnsOnCpu<'a>>,
    /// The number of items in the accumulator, once it is there.
    len: Cell<Option<u64>>,
    items: PhantomData<&'a [T]>,
}

impl<'a, T: Item> Fold<'a, T> {
    /// # Safety
    ///
    /// `of` folds a source `&[T]` with the items of its plan. They, the operator, and the place for the
    /// accumulator stay for `'a`.
    pub(crate) unsafe fn new(of: Prepared) -> Self {
        Self { of, columns: None, len: Cell::new(None), items: PhantomData }
    }

    /// # Safety
    ///
    /// As for [`reduce_columns`]; the items are in a source `&[T]`.
    pub(crate) unsafe fn of_columns(columns: &'a ColumnsOnCpu<'a>) -> Self {
        let of = Prepared {
            erased: columns.erased,
            op_bytes: columns.op_bytes(),
            plan: columns.plan,
            width: columns.width(),
            parallel: false,
            place: null_mut(),
        };
        Self { of, columns: Some(columns), len: Cell::new(None), items: PhantomData }
    }

    /// The number of items in the accumulator, or in each column; `None` if they are not folded.
    pub(crate) fn len(&self) -> Option<u64> {
        self.len.get()
    }

    /// Folds all items.
    pub fn run(&self) {
        // SAFETY: as for `new` and `of_columns`.
        self.len.set(Some(unsafe {
            match self.columns {
                None => self.of.run(),
                Some(columns) => {
                    reduce_columns(&[columns], &|| true);
                    self.of.plan.len
                }
            }
        }));
    }

    /// Returns the fold by the same operator of items that come in pieces, and begin with the same item: of
    /// `len` items, with the bits of one array, or of any number, with the bits of a
    /// [`Reducer`](crate::Reducer).
    pub fn pieces(&self, len: Option<u64>) -> Pieces<T> {
        let Prepared { erased, op_bytes, ref plan, width, .. } = self.of;
        let mut op = vec![Unit::ZERO; op_bytes.div_ceil(size_of::<Unit>())];
        // SAFETY: the operator has these bytes, and there is room for them.
        unsafe { erased.op.cast::<u8>().copy_to_nonoverlapping(op.as_mut_ptr().cast(), op_bytes) };
        // The chunks matter only if the operator is not exact.
        let block = (plan.row / width as u64) as u32;
        let planned = len.filter(|_| !erased.exact).map(|len| Plan::new(len, width, block).chunk);
        Pieces {
            op,
            folds: erased.folds,
            row: plan.row,
            chunk: planned.unwrap_or(ROWS * plan.row) as usize,
            is_tree: planned.is_none(),
            len,
            count: 0,
            begun: Vec::new(),
            chunks: 0,
            partials: Accumulators::new(erased.accumulator),
        }
    }

    /// Takes the accumulator of pieces, in place of folding these items. Does nothing if the pieces have
    /// accumulators of another size, or no items, and for columns.
    pub fn take(&self, pieces: &Pieces<T>) {
        let is_whole = self.columns.is_none();
        if is_whole && pieces.partials.bytes == self.of.erased.accumulator && pieces.count > 0 {
            // SAFETY: there is a place for an accumulator. It may have any bytes, for it is plain.
            unsafe { pieces.accumulate(self.of.place) };
            self.len.set(Some(pieces.count));
        }
    }
}

/// Folds of the same items by several operators, which run in one pass over memory: a list, the last first.
pub struct Pass<'a, T: Item> {
    fold: &'a Fold<'a, T>,
    before: Option<&'a Self>,
}

impl<'a, T: Item> Pass<'a, T> {
    /// A fold, and those before it.
    pub fn new(fold: &'a Fold<'a, T>, before: Option<&'a Self>) -> Self {
        Self { fold, before }
    }

    /// Runs all folds. A part of the items that fits in a cache is folded by all operators before the next
    /// one. Every 32 MiB or more, asks `go_on` whether to go on. Returns whether all is done.
    pub fn run(&self, go_on: &dyn Fn() -> bool) -> bool {
        let folds = successors(Some(self), |pass| pass.before).map(|pass| pass.fold);
        let folds: Vec<_> = folds.collect();
        let columns: Vec<_> = folds.iter().filter_map(|fold| fold.columns).collect();
        if columns.len() == folds.len() {
            // SAFETY: as for `Fold::of_columns`; the folds of one pass are of the same columns.
            let is_done = unsafe { reduce_columns(&columns, go_on) };
            folds.iter().filter(|_| is_done).for_each(|fold| fold.len.set(Some(fold.of.plan.len)));
            return is_done;
        }
        let window = folds.iter().map(|fold| fold.of.plan.chunk).max().unwrap_or(1);
        let windows = folds.iter().map(|fold| fold.of.plan.len.div_ceil(window)).max().unwrap_or(0) as usize;
        let parallel = folds.iter().any(|fold| fold.of.parallel);
        let busy = if parallel { 4 * threads::count() } else { 1 };
        let batch = (BATCH / (window as usize * size_of::<T>()).max(1)).max(busy);
        if !parallel || folds.len() == 1 && windows <= batch {
            folds.iter().for_each(|fold| fold.run());
            return true;
        }
        let mut partials: Vec<_> =
            folds.iter().map(|fold| Accumulators::new(fold.of.erased.accumulator)).collect();
        let places = partials.iter_mut().zip(&folds);
        let places: Vec<_> =
            places.map(|(partials, fold)| partials.grow(fold.of.plan.chunks as usize)).collect();
        let parts: Vec<_> = folds.iter().map(|fold| (fold.of.erased, fold.of.plan)).zip(&places).collect();
        for first in (0..windows).step_by(batch) {
            if first > 0 && !go_on() {
                return false;
            }
            threads::each(batch.min(windows - first), &|index| {
                let start = (first + index) as u64 * window;
                for &((erased, plan), places) in &parts {
                    // The chunks that begin in the window.
                    let end = (start + window).div_ceil(plan.chunk).min(plan.chunks.into());
                    for chunk in start.div_ceil(plan.chunk)..end {
                        // SAFETY: as for `Fold::new`; each chunk has its own place.
                        unsafe {
                            erased.chunk(plan.range(chunk as u32), plan.row, places.at(chunk as usize))
                        };
                    }
                }
            });
        }
        for (fold, partials) in folds.iter().zip(&partials) {
            // SAFETY: as for `Fold::new`; all partial results have been written.
            unsafe { partials.merge(fold.of.erased.folds, fold.of.erased.op, fold.of.place) };
            fold.len.set(Some(fold.of.plan.len));
        }
        true
    }
}

/// A fold of items that come in pieces.
#[derive(Clone)]
pub struct Pieces<T: Item> {
    /// The operator's bytes, and its folds over `&[T]`.
    op: Vec<Unit>,
    folds: Folds,
    row: u64,
    /// Items in a chunk.
    chunk: usize,
    /// Whether the partial results of the chunks merge pairwise as they come. If not, all are kept.
    is_tree: bool,
    /// The number of all items, if it is known.
    len: Option<u64>,
    /// Items so far.
    count: u64,
    /// The items of the last chunk, while it is not whole.
    begun: Vec<T>,
    /// Whole chunks so far.
    chunks: u64,
    /// The chunks' partial results; of a tree, those that wait for their neighbours.
    partials: Accumulators,
}

impl<T: Item> Pieces<T> {
    /// Takes the next items.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] if there would be more items than the number given; then none is taken.
    pub fn push(&mut self, items: &[T]) -> Result<(), Error> {
        let end = self.count + items.len() as u64;
        if let Some(len) = self.len.filter(|&len| len < end) {
            return Err(Error::OutOfBounds {
                start: self.count as usize,
                end: end as usize,
                len: len as usize,
            });
        }
        self.count = end;
        let mut rest = items;
        if !self.begun.is_empty() {
            let room = (self.chunk - self.begun.len()).min(rest.len());
            self.begun.extend_from_slice(&rest[..room]);
            rest = &rest[room..];
            if self.begun.len() < self.chunk {
                return Ok(());
            }
            let mut begun = std::mem::take(&mut self.begun);
            self.fold(&begun);
            begun.clear();
            self.begun = begun;
        }
        let (whole, begun) = rest.split_at(rest.len() - rest.len() % self.chunk);
        self.fold(whole);
        self.begun.extend_from_slice(begun);
        Ok(())
    }

    /// The number of items so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns an error if there have been fewer items than the number given.
    ///
    /// # Errors
    ///
    /// [`Error::Incomplete`].
    pub fn check_complete(&self) -> Result<(), Error> {
        match self.len {
            Some(len) if self.count < len => Err(Error::Incomplete { count: self.count, len }),
            _ => Ok(()),
        }
    }

    fn op(&self) -> *const () {
        self.op.as_ptr().cast()
    }

    /// Folds whole chunks.
    fn fold(&mut self, items: &[T]) {
        let mut new = Accumulators::new(self.partials.bytes);
        self.fold_to(items, new.grow(items.len() / self.chunk));
        for index in 0..new.count {
            self.partials.push(new.at(index));
            if self.is_tree {
                // Each trailing 1 of the number of chunks is a tree that waits for its neighbour.
                for _ in 0..self.chunks.trailing_ones() {
                    self.partials.merge_last(self.folds, self.op());
                }
            }
            self.chunks += 1;
        }
    }

    /// Folds the items after all whole chunks, a place for each chunk.
    fn fold_to(&self, items: &[T], places: Places) {
        let (chunk, first) = (self.chunk as u64, self.chunks * self.chunk as u64);
        let end = first + items.len() as u64;
        let erased = Erased {
            folds: self.folds,
            op: self.op(),
            items: (&raw const items).cast(),
            first,
            exact: false,
            accumulator: self.partials.bytes,
        };
        let fold = |index: usize| {
            let start = first + index as u64 * chunk;
            // SAFETY: the folds are for this operator and `&[T]`; each chunk has its own place.
            unsafe { erased.chunk(start..end.min(start + chunk), self.row, places.at(index)) };
        };
        let chunks = items.len().div_ceil(self.chunk);
        match size_of_val(items) < PARALLEL_BYTES {
            true => (0..chunks).for_each(fold),
            false => threads::each(chunks, &fold),
        }
    }

    /// Writes the accumulator of all items, of which there are some.
    ///
    /// # Safety
    ///
    /// `place` has room for an accumulator.
    unsafe fn accumulate(&self, place: *mut ()) {
        let mut partials = self.partials.clone();
        if !self.begun.is_empty() {
            self.fold_to(&self.begun, partials.grow(1));
        }
        if self.is_tree {
            while partials.count > 1 {
                partials.merge_last(self.folds, self.op());
            }
        }
        // SAFETY: as the caller vouches; there is a partial result.
        unsafe { partials.merge(self.folds, self.op(), place) };
    }
}

/// Accumulators without their type, one after the other.
#[derive(Clone)]
struct Accumulators {
    memory: Vec<Unit>,
    /// The size of each.
    bytes: usize,
    count: usize,
}

impl Accumulators {
    fn new(bytes: usize) -> Self {
        Self { memory: Vec::new(), bytes, count: 0 }
    }

    /// Adds `count` accumulators of zeros, and returns their places.
    fn grow(&mut self, count: usize) -> Places {
        let before = self.count;
        self.count += count;
        self.memory.resize((self.count * self.bytes).div_ceil(size_of::<Unit>()), Unit::ZERO);
        Places { first: self.memory.as_mut_ptr().cast(), bytes: self.bytes }.from(before)
    }

    fn at(&self, index: usize) -> *const () {
        assert!(index < self.count);
        self.memory.as_ptr().wrapping_byte_add(index * self.bytes).cast()
    }

    /// Adds a copy of an accumulator of the same size.
    fn push(&mut self, accumulator: *const ()) {
        let place = self.grow(1).first;
        // SAFETY: both have this size.
        unsafe { place.cast::<u8>().copy_from_nonoverlapping(accumulator.cast(), self.bytes) };
    }

    /// Combines the last two.
    fn merge_last(&mut self, folds: Folds, op: *const ()) {
        let mut both = Self::new(self.bytes);
        let place = both.grow(1).first;
        let first = self.count - 2;
        // SAFETY: `first` and the next one exist, and there is a place for what they come to.
        unsafe { (folds.partials)(op, self.at(first), 2, place) };
        self.count = first;
        self.push(both.at(0));
    }

    /// Merges all, as the partial results of chunks, to `place`.
    ///
    /// # Safety
    ///
    /// The folds are for the operator and for these accumulators, of which there are some; `place` has room
    /// for one.
    unsafe fn merge(&self, folds: Folds, op: *const (), place: *mut ()) {
        // SAFETY: as the caller vouches.
        unsafe {
            match self.count {
                1 => place.cast::<u8>().copy_from_nonoverlapping(self.at(0).cast(), self.bytes),
                count => (folds.partials)(op, self.at(0), count, place),
            }
        }
    }
}
