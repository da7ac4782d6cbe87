//! The CPU backend: the kernels' plan, with chunks spread over threads.

use crate::{Element, Item, Op, Plan, threads};
use bytemuck::Zeroable;
use gpu_reduce_kernels::agent::Agent;
use gpu_reduce_kernels::columns::Columns;
use gpu_reduce_kernels::cpu::Folds;
pub use gpu_reduce_kernels::cpu::{Source, simd};
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::width;
use gpu_reduce_kernels::runs::is_same;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;

/// Below this many bytes, one thread is faster than waking up others.
pub const PARALLEL_BYTES: usize = 1 << 20;

/// Reduces items, at least one. A GPU would read them through `P`.
#[inline(always)]
pub fn reduce<O: Op<S::Item>, S: Source, P: Input<Item = S::Item>>(
    op: &O,
    items: S,
    block: u32,
) -> Option<O::Output> {
    Many::new::<O, S, P>(op, &items, block).range(0..items.len())
}

/// What the CPU needs to know of the types of an operator and its items: sizes, and functions of untyped
/// pointers.
pub struct Types {
    /// The sizes of an item, of an accumulator and of an operator.
    bytes: usize,
    accumulator: usize,
    op_bytes: usize,
    /// The items that a thread of a GPU folds side by side.
    width: usize,
    is_exact: bool,
    /// As [`Source::BOUNDARY`] and [`Source::room`].
    boundary: usize,
    room: fn(usize) -> usize,
    /// [`Op::begin`] with the item at an index: `(op, items, index, place)`. None if operators have no
    /// fields.
    begin: Option<unsafe fn(*const (), *const (), usize, *mut ())>,
    /// [`Op::identity`]: `(op, place)`.
    identity: unsafe fn(*const (), *mut ()),
    /// [`Op::finish`], after [`Op::end`] if the operator has begun: `(op, has_begun, accumulator, len,
    /// place)`. Returns whether there is a result.
    finish: unsafe fn(*const (), bool, *const (), u64, *mut ()) -> bool,
    /// [`Source::gather`]: `(items, at, stride, rows, columns, to, pitch)`.
    gather: unsafe fn(*const (), usize, usize, usize, usize, *mut u8, usize),
    /// [`Source::gathered`]: `(address, items, place)`.
    gathered: unsafe fn(*const u8, usize, *mut ()),
}

impl Types {
    const fn of<O: Op<S::Item>, S: Source, P: Input<Item = S::Item>>() -> &'static Self {
        const {
            assert_alignment::<O>();
            assert_alignment::<O::Accumulator>();
            assert_alignment::<S>();
            assert!(size_of::<S>() <= size_of::<Unit>(), "a source has up to 64 bytes");
            &Self {
                bytes: size_of::<S::Item>(),
                accumulator: size_of::<O::Accumulator>(),
                op_bytes: size_of::<O>(),
                width: width::<O, S::Item>(P::BYTES),
                is_exact: O::EXACT,
                boundary: S::BOUNDARY,
                room: S::room,
                begin: if size_of::<O>() > 0 { Some(begin::<O, S>) } else { None },
                identity: identity::<O, S::Item>,
                finish: finish::<O, S::Item>,
                gather: gather::<S>,
                gathered: gathered::<S>,
            }
        }
    }
}

/// # Safety
///
/// The pointers are to values of these types, the item exists, and the place may be written.
unsafe fn begin<O: Op<S::Item>, S: Source>(op: *const (), items: *const (), index: usize, place: *mut ()) {
    // SAFETY: as the caller vouches.
    unsafe { place.cast::<O>().write((*op.cast::<O>()).begin((*items.cast::<S>()).get(index))) }
}

/// # Safety
///
/// The pointer is to an operator of this type, and the place may be written.
unsafe fn identity<O: Op<I>, I: Copy + 'static>(op: *const (), place: *mut ()) {
    // SAFETY: as the caller vouches.
    unsafe { place.cast::<O::Accumulator>().write((*op.cast::<O>()).identity()) }
}

/// # Safety
///
/// The pointers are to values of the operator's types, and the place may be written.
unsafe fn finish<O: Op<I>, I: Copy + 'static>(
    op: *const (),
    has_begun: bool,
    all: *const (),
    len: u64,
    place: *mut (),
) -> bool {
    // SAFETY: as the caller vouches.
    unsafe {
        let (op, all) = (&*op.cast::<O>(), all.cast::<O::Accumulator>().read());
        let all = if has_begun { op.end(all, len) } else { all };
        op.finish(all, len).map(|result| place.cast::<O::Output>().write(result)).is_some()
    }
}

/// # Safety
///
/// The pointer is to a source, and as for [`Source::gather`].
unsafe fn gather<S: Source>(
    items: *const (),
    at: usize,
    stride: usize,
    rows: usize,
    columns: usize,
    to: *mut u8,
    pitch: usize,
) {
    // SAFETY: as the caller vouches.
    unsafe { (*items.cast::<S>()).gather(at, stride, rows, columns, to, pitch) }
}

/// # Safety
///
/// As for [`Source::gathered`]; the place may be written.
unsafe fn gathered<S: Source>(address: *const u8, items: usize, place: *mut ()) {
    // SAFETY: as the caller vouches.
    unsafe { place.cast::<S>().write(S::gathered(address, items)) }
}

/// An operator and items on the CPU, many parts of which it reduces. Of their types, it knows that of the results
/// only.
#[derive(Clone, Copy)]
pub struct Many<'a, V> {
    of: Operator<'a>,
    items: *const (),
    len: usize,
    results: PhantomData<fn() -> V>,
}

// SAFETY: operators are sent to threads, as sources are.
unsafe impl<V> Sync for Many<'_, V> {}

/// An operator that reduces on the CPU, and BLOCK, without its type.
#[derive(Clone, Copy)]
pub struct Operator<'a> {
    types: &'static Types,
    folds: Folds,
    op: *const (),
    block: u32,
    lifetime: PhantomData<&'a ()>,
}

impl<'a> Operator<'a> {
    /// An operator over items in a source `S`. A GPU would read them through `P`.
    pub fn new<O: Op<S::Item>, S: Source, P: Input<Item = S::Item>>(op: &'a O, block: u32) -> Self {
        let (types, folds) = (Types::of::<O, S, P>(), O::agent().folds::<S>());
        Self { types, folds, op: (&raw const *op).cast(), block, lifetime: PhantomData }
    }

    /// These items.
    ///
    /// # Safety
    ///
    /// The operator is one over sources of this type, and has results of type `V`.
    pub unsafe fn over<V, S: Source>(self, items: &'a S) -> Many<'a, V> {
        Many { of: self, items: (&raw const *items).cast(), len: items.len(), results: PhantomData }
    }

    /// Writes the result of `len` items, folded to bytes that `fold` fills, which hold the identity before.
    /// Returns whether there is a result.
    ///
    /// # Safety
    ///
    /// `fold` leaves the accumulator of an operator that has not begun, or that has been ended; there is a
    /// place for the result.
    pub unsafe fn finished<E>(
        self,
        len: u64,
        fold: impl FnOnce(&mut [u8]) -> Result<(), E>,
        place: *mut (),
    ) -> Result<bool, E> {
        let Self { types, op, .. } = self;
        let mut result = Ok(false);
        with_partials(1, types.accumulator, |all| {
            // SAFETY: there is a place for an accumulator, which is plain.
            result = unsafe {
                (types.identity)(op, all.first);
                fold(slice::from_raw_parts_mut(all.first.cast(), types.accumulator))
                    .map(|()| (types.finish)(op, false, all.first, len, place))
            };
        });
        result
    }
}

impl<'a, V> Many<'a, V> {
    /// The items of a source by an operator. A GPU would read them through `P`.
    pub fn new<O: Op<S::Item, Output = V>, S: Source, P: Input<Item = S::Item>>(
        op: &'a O,
        items: &'a S,
        block: u32,
    ) -> Self {
        // SAFETY: these types.
        unsafe { Operator::new::<O, S, P>(op, block).over(items) }
    }

    /// Reduces a range of the items, which may be empty.
    pub fn range(&self, range: Range<usize>) -> Option<V> {
        let mut result = MaybeUninit::<V>::uninit();
        // SAFETY: there is a place for the result, and it is written if there is one.
        unsafe { self.range_to(range, None, result.as_mut_ptr().cast()).then(|| result.assume_init()) }
    }

    /// Reduces all items: folds them by `by`. It returns the number of items in the accumulator, or `None` if
    /// there is no accumulator; then there is no result.
    ///
    /// # Safety
    ///
    /// If `by` returns a number, it has written the accumulator to its place. There is a place for the
    /// result, which is written if the call returns true.
    pub unsafe fn all_to(&self, by: &dyn Fn(Prepared) -> Option<u64>, place: *mut ()) -> bool {
        // SAFETY: as the caller vouches.
        unsafe { self.range_to(0..self.len, Some(by), place) }
    }

    /// # Safety
    ///
    /// As for [`all_to`](Self::all_to).
    unsafe fn range_to(
        &self,
        range: Range<usize>,
        by: Option<&dyn Fn(Prepared) -> Option<u64>>,
        place: *mut (),
    ) -> bool {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range lies within the items; as the caller vouches.
        unsafe { self.of.reduce(self.items, range, by, place) }
    }
}

impl Operator<'_> {
    /// Reduces a range of the items, as [`Many::all_to`].
    ///
    /// # Safety
    ///
    /// The items are of the operator's types, and have the range; as for [`Many::all_to`].
    unsafe fn reduce(
        self,
        items: *const (),
        range: Range<usize>,
        by: Option<&dyn Fn(Prepared) -> Option<u64>>,
        place: *mut (),
    ) -> bool {
        let Self { types, folds, block, .. } = self;
        let len = range.len();
        let plan = Plan::new(len as u64, types.width, block);
        // Segments of one chunk may be many, and the preparations below would take longer than folding one.
        if len > 0 && plan.chunks == 1 && by.is_none() && types.accumulator <= size_of::<Unit>() {
            let mut all = MaybeUninit::<Unit>::uninit();
            let all = all.as_mut_ptr().cast();
            let reduce = |op: *const ()| {
                // SAFETY: the functions are for these types, there is a place, and the range is in the items.
                unsafe {
                    (folds.chunk)(op, items, range.clone(), 0, plan.row as usize, all);
                    (types.finish)(op, true, all, len as u64, place)
                }
            };
            // SAFETY: the item exists.
            return unsafe { with_begun(types, self.op, items, range.start, reduce) };
        }
        let reduce = |op: *const ()| {
            let mut result = false;
            with_partials(1, types.accumulator, |all| {
                if len == 0 {
                    // SAFETY: the functions are for these types, and there is a place.
                    result = unsafe {
                        (types.identity)(op, all.first);
                        (types.finish)(op, false, all.first, 0, place)
                    };
                    return;
                }
                let fold = Prepared {
                    erased: Erased {
                        folds,
                        op,
                        items,
                        first: (range.start as u64).wrapping_neg(),
                        exact: types.is_exact,
                        accumulator: types.accumulator,
                    },
                    op_bytes: types.op_bytes,
                    plan,
                    width: types.width,
                    parallel: len.saturating_mul(types.bytes) >= PARALLEL_BYTES,
                    place: all.first,
                };
                let len = match by {
                    // SAFETY: the folds are for these types.
                    None => Some(unsafe { fold.run() }),
                    Some(by) => by(fold),
                };
                // SAFETY: the fold has run, or as the caller vouches.
                result = len.is_some_and(|len| unsafe { (types.finish)(op, true, all.first, len, place) });
            });
            result
        };
        match len {
            0 => reduce(self.op),
            // SAFETY: the item exists.
            _ => unsafe { with_begun(types, self.op, items, range.start, reduce) },
        }
    }
}

/// Calls `work` with the operator for items of which this is the first.
///
/// # Safety
///
/// The operator and the items are of these types, and the item exists.
#[inline(always)]
unsafe fn with_begun<R>(
    types: &Types,
    op: *const (),
    items: *const (),
    first: usize,
    work: impl FnOnce(*const ()) -> R,
) -> R {
    let Some(begin) = types.begin else { return work(op) };
    let mut few = [const { MaybeUninit::<Unit>::uninit() }; 4];
    let mut many = Vec::new();
    let units = types.op_bytes.div_ceil(size_of::<Unit>());
    let place = if units <= few.len() {
        few.as_mut_ptr()
    } else {
        many.reserve_exact(units);
        many.as_mut_ptr()
    };
    // SAFETY: as the caller vouches; there is a place for an operator.
    unsafe { begin(op, items, first, place.cast()) };
    work(place.cast_const().cast())
}

/// Folds consecutive chunks, by an operator that has begun. `items` are those of the chunks, and no others.
pub fn partials<O: Op<S::Item>, S: Source>(
    op: &O,
    items: S,
    plan: &Plan,
    chunks: Range<u32>,
) -> Vec<O::Accumulator> {
    const { assert_alignment::<O::Accumulator>() };
    let range = plan.elements(chunks.clone());
    assert!(items.len() as u64 == range.end - range.start);
    let mut partials = Vec::<O::Accumulator>::with_capacity(chunks.len());
    let places = Places { first: partials.as_mut_ptr().cast(), bytes: size_of::<O::Accumulator>() };
    let parallel = items.len().saturating_mul(size_of::<S::Item>()) >= PARALLEL_BYTES;
    // SAFETY: the folds are for these types; each chunk has its items and its place.
    unsafe {
        Erased::of(op, &items, range.start).chunks(plan, chunks.clone(), parallel, places);
        partials.set_len(chunks.len());
    }
    partials
}

/// Merges the partial results of several chunks, by an operator that has begun.
pub fn merge<O: Op<S::Item>, S: Source>(op: &O, partials: &[O::Accumulator]) -> O::Accumulator {
    let mut all = MaybeUninit::<O::Accumulator>::uninit();
    // SAFETY: the fold is for these types, and writes the accumulator.
    unsafe {
        let (op, place) = ((&raw const *op).cast(), all.as_mut_ptr().cast());
        (O::agent().folds::<S>().partials)(op, partials.as_ptr().cast(), partials.len(), place);
        all.assume_init()
    }
}

/// The work of a task, in items.
const TASK: u64 = 1 << 16;

/// The cost of a segment beside its items, in items.
const SEGMENT: u64 = 32;

/// Reduces segments of `len` items, to a place for each. Segments without a value get the default.
///
/// If there is no default, the result of a segment with items is zero, and the first segment without items is
/// returned. Tasks get about the same work, and several threads reduce a long segment.
pub fn reduce_segments<V: Item>(
    items: &Many<V>,
    len: usize,
    start: &(dyn Fn(u64) -> u64 + Sync),
    default: Option<V>,
    results: &mut [V],
) -> Option<u64> {
    let count = results.len() as u64;
    let position = |segment| start(segment) + SEGMENT * segment;
    let tasks = (len as u64 + SEGMENT * count).div_ceil(TASK);
    let mut rest = results;
    let mut parts = Vec::new();
    let mut first = 0;
    for task in 1..=tasks {
        // Binary search for the first segment that starts after the task.
        let (mut low, mut high) = (first, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if task == tasks || position(middle) < task * TASK { low = middle + 1 } else { high = middle }
        }
        let (part, others) = std::mem::take(&mut rest).split_at_mut((low - first) as usize);
        rest = others;
        if !part.is_empty() {
            parts.push((first, part));
        }
        first = low;
    }
    let reduce_part = |(first, part): (u64, &mut [V])| {
        let mut end = start(first);
        let mut none = None;
        for (segment, result) in (first..).zip(part) {
            let range = end as usize..start(segment + 1) as usize;
            end = range.end as u64;
            let is_empty = range.is_empty();
            match items.range(range).or(default) {
                Some(value) => *result = value,
                None if is_empty => none = none.or(Some(segment)),
                None => *result = Zeroable::zeroed(),
            }
        }
        none
    };
    if let [_] = parts[..] {
        return parts.pop().and_then(reduce_part);
    }
    let found = threads::map_parts(&mut parts, 1, &|_, part| {
        let (first, part) = &mut part[0];
        reduce_part((*first, part))
    });
    found.into_iter().flatten().min()
}

impl<V> Many<'_, V> {
    /// Reduces each column, to a place for each: by `by` if it is given. Columns have items; those without a
    /// value get the default. Returns whether they are reduced, as `by` does.
    ///
    /// # Panics
    ///
    /// If there are not as many items as the columns have, or fewer results than columns.
    pub fn columns(&self, columns: Columns, default: V, results: &mut [V], by: Option<ByColumns>) -> bool {
        let Columns { count, reduced, .. } = columns;
        let has_all = reduced > 0 && count.checked_mul(reduced) == Some(self.len as u64);
        assert!(has_all && count <= results.len() as u64);
        let Operator { types, folds, op, block, .. } = self.of;
        let erased = Erased {
            folds,
            op,
            items: self.items,
            first: 0,
            exact: types.is_exact,
            accumulator: types.accumulator,
        };
        let work = ColumnsOnCpu {
            types,
            erased,
            columns,
            plan: Plan::new(reduced, types.width, block),
            default: (&raw const default).cast(),
            results: Places { first: results.as_mut_ptr().cast(), bytes: size_of::<V>() },
            lifetime: PhantomData,
        };
        match by {
            // SAFETY: all columns have their items and a place.
            None => unsafe { reduce_columns(&[&work], &|| true) },
            Some(by) => by(&work),
        }
    }
}

/// What reduces columns; it returns whether it has.
pub type ByColumns<'a> = &'a dyn Fn(&ColumnsOnCpu) -> bool;

/// Bytes of columns that a thread copies at a time: they fit in a cache.
const GATHERED: usize = 1 << 19;

/// Bytes of columns after which the caller is asked whether to go on, if they keep all threads busy.
const BETWEEN_QUESTIONS: usize = 1 << 25;

/// A reduction of columns; the types are left behind.
#[derive(Clone, Copy)]
pub struct ColumnsOnCpu<'a> {
    types: &'static Types,
    pub erased: Erased,
    columns: Columns,
    pub plan: Plan,
    /// The result of columns without a value.
    default: *const (),
    results: Places,
    lifetime: PhantomData<&'a ()>,
}

// SAFETY: operators are sent to threads, as sources and results are.
unsafe impl Sync for ColumnsOnCpu<'_> {}

/// Neighbouring columns: some columns of one matrix, or all columns of several matrices in a row.
#[derive(Clone, Copy)]
struct Panel {
    /// The first column, and its first item.
    column: usize,
    first: usize,
    /// Columns of each matrix, and matrices.
    width: usize,
    outer: usize,
}

impl Panel {
    /// Calls `work` with the number of each column in the panel, and its first item.
    #[inline(always)]
    fn for_each(self, Columns { reduced, inner, .. }: Columns, mut work: impl FnMut(usize, usize)) {
        let matrix = (reduced * inner) as usize;
        for outer in 0..self.outer {
            for column in 0..self.width {
                work(outer * self.width + column, self.first + outer * matrix + column);
            }
        }
    }
}

impl ColumnsOnCpu<'_> {
    /// The size of the operator.
    pub fn op_bytes(&self) -> usize {
        self.types.op_bytes
    }

    /// The items that a thread of a GPU folds side by side.
    pub fn width(&self) -> usize {
        self.types.width
    }

    /// The bytes of the partial results of `columns` columns, rounded up to a whole number of [`Unit`]s.
    fn partial_bytes(&self, columns: usize) -> usize {
        (columns * self.plan.chunks as usize * self.erased.accumulator).next_multiple_of(size_of::<Unit>())
    }

    /// Folds the chunks that begin in a range of each column of a panel. Takes the address of the copied
    /// items, the bytes from one column to the next, and the places for the partial results, in which
    /// columns are `plan.chunks` places apart.
    ///
    /// # Safety
    ///
    /// The items of the range have been gathered there, and there are the places. Chunks that begin in the
    /// range end in it.
    unsafe fn fold(
        &self,
        panel: Panel,
        range: Range<u64>,
        places: *const u8,
        pitch: usize,
        partials: Places,
    ) {
        let (plan, folds) = (&self.plan, self.erased.folds);
        let (len, chunks) = ((range.end - range.start) as usize, plan.chunks as usize);
        let begin_in_range = range.start.div_ceil(plan.chunk) as u32
            ..range.end.div_ceil(plan.chunk).min(plan.chunks.into()) as u32;
        panel.for_each(self.columns, |index, first| {
            let mut items = MaybeUninit::<Unit>::uninit();
            let items = items.as_mut_ptr().cast();
            // SAFETY: as the caller vouches; the functions are for these types.
            unsafe {
                (self.types.gathered)(places.add(index * pitch), len, items);
                self.with_begun(first, |op| {
                    for chunk in begin_in_range.clone() {
                        let of_chunk = plan.range(chunk);
                        let gathered =
                            (of_chunk.start - range.start) as usize..(of_chunk.end - range.start) as usize;
                        let partial = partials.at(index * chunks + chunk as usize);
                        (folds.chunk)(op, items, gathered, of_chunk.start, plan.row as usize, partial);
                    }
                });
            }
        });
    }

    /// Calls `work` with the operator for the column with this first item.
    ///
    /// # Safety
    ///
    /// The item exists.
    #[inline(always)]
    unsafe fn with_begun(&self, first: usize, work: impl FnOnce(*const ())) {
        // SAFETY: as the caller vouches.
        unsafe { with_begun(self.types, self.erased.op, self.erased.items, first, work) }
    }

    /// Merges and finishes the partial results of a panel's columns.
    ///
    /// # Safety
    ///
    /// Each column has a partial result of each chunk, and a place for its result.
    unsafe fn finish(&self, panel: Panel, partials: Places) {
        let Self { types, erased: Erased { folds, .. }, plan, default, .. } = *self;
        let chunks = plan.chunks as usize;
        panel.for_each(self.columns, |index, first| {
            let (of_column, result) = (index * chunks, panel.column + index);
            // SAFETY: as the caller vouches; the functions are for these types.
            unsafe {
                let (of_column, result) = (partials.at(of_column), self.results.at(result));
                let finish = |op, all: *mut ()| {
                    if !(types.finish)(op, true, all, plan.len, result) {
                        result.cast::<u8>().copy_from_nonoverlapping(default.cast(), self.results.bytes);
                    }
                };
                self.with_begun(first, |op| match chunks {
                    1 => finish(op, of_column),
                    _ => with_partials(1, types.accumulator, |all| {
                        (folds.partials)(op, of_column, chunks, all.first);
                        finish(op, all.first);
                    }),
                });
            }
        });
    }
}

/// Reduces columns of the same items by each operator: a panel of neighbouring columns is copied at a time,
/// so that the items of a column lie side by side, and then folded by each. Every 32 MiB or more, asks
/// `go_on` whether to go on. Returns whether all is done.
///
/// # Safety
///
/// All columns have their items, the same for all operators, and a place for their result.
pub unsafe fn reduce_columns(all: &[&ColumnsOnCpu], go_on: &dyn Fn() -> bool) -> bool {
    let Some(&&ColumnsOnCpu { types, plan, columns: Columns { count, inner, .. }, .. }) = all.first() else {
        return true;
    };
    let window = all.iter().map(|one| one.plan.chunk).max().unwrap_or(1);
    if !all.iter().all(|one| one.plan.chunks == 1 || window.is_multiple_of(one.plan.chunk)) {
        // SAFETY: as the caller vouches.
        return all.iter().all(|one| unsafe { reduce_columns(&[one], go_on) });
    }
    let (len, inner) = (plan.len as usize, inner as usize);
    let matrices = count as usize / inner;
    // An odd number of cache lines (or of larger boundaries) from one column to the next: caches have few
    // places for addresses that are a power of two apart.
    let pitch = (types.room)(window.min(plan.len) as usize) | types.boundary;
    let line = size_of::<Unit>().div_ceil(types.bytes.max(1));
    let most = (GATHERED / pitch).max(line).next_multiple_of(line);
    let width = most.min(inner);
    let outer = (most.min(TASK as usize / len) / inner).clamp(1, matrices);
    let panels = inner.div_ceil(width);
    let panel = |index: usize| {
        let (matrix, start) = (index / panels * outer, index % panels * width);
        let panel = Panel {
            column: matrix * inner + start,
            first: matrix * len * inner + start,
            width: width.min(inner - start),
            outer: outer.min(matrices - matrix),
        };
        // SAFETY: the columns are in bounds.
        unsafe { reduce_panel(all, panel, pitch, window) };
    };
    let count_of_panels = matrices.div_ceil(outer) * panels;
    if len * count as usize * types.bytes < PARALLEL_BYTES {
        (0..count_of_panels).for_each(panel);
        return true;
    }
    let task = (TASK as usize / (len * width * outer)).max(1);
    let tasks = count_of_panels.div_ceil(task);
    let batch =
        (BETWEEN_QUESTIONS / (task * len * width * outer * types.bytes).max(1)).max(4 * threads::count());
    for first in (0..tasks).step_by(batch) {
        if first > 0 && !go_on() {
            return false;
        }
        threads::each(batch.min(tasks - first), &|number| {
            let number = first + number;
            (number * task..count_of_panels.min((number + 1) * task)).for_each(panel);
        });
    }
    true
}

/// Reduces a panel's columns by each operator, from `window` items of each column at a time.
///
/// # Safety
///
/// The columns are in bounds, and the same for all operators. Chunks do not cross from one window to the
/// next.
unsafe fn reduce_panel(all: &[&ColumnsOnCpu], panel: Panel, pitch: usize, window: u64) {
    let Some(&any) = all.first() else { return };
    let ColumnsOnCpu { types, plan, columns, .. } = *any;
    let Panel { width, outer, .. } = panel;
    let (count, inner) = (width * outer, columns.inner as usize);
    // The operators' partial results lie one after the other.
    let bytes = all.iter().map(|one| one.partial_bytes(count)).sum();
    let each = |partials: Places, work: &dyn Fn(&ColumnsOnCpu, Places)| {
        let mut first = partials.first;
        for one in all {
            work(one, Places { first, bytes: one.erased.accumulator });
            first = first.wrapping_byte_add(one.partial_bytes(count));
        }
    };
    with_partials(1, bytes, |partials| {
        let fold = |number: usize| {
            let start = number as u64 * window;
            let range = start..plan.len.min(start + window);
            let len = (range.end - range.start) as usize;
            // (Scratch memory begins on a cache line.)
            with_scratch(count * pitch + types.boundary - size_of::<Unit>(), |scratch| {
                let scratch = scratch.wrapping_add(scratch.align_offset(types.boundary));
                for matrix in 0..outer {
                    let first = panel.first + (matrix * plan.len as usize + range.start as usize) * inner;
                    let places = scratch.wrapping_add(matrix * width * pitch);
                    // SAFETY: as the caller vouches; the scratch memory has room for these columns.
                    unsafe { (types.gather)(any.erased.items, first, inner, len, width, places, pitch) };
                }
                // SAFETY: the items have been gathered, and there is a place for each partial result.
                each(partials, &|one, partials| unsafe {
                    one.fold(panel, range.clone(), scratch, pitch, partials);
                });
            });
        };
        match plan.len.div_ceil(window) as usize {
            1 => fold(0),
            windows => threads::each(windows, &fold),
        }
        // SAFETY: all chunks have been folded; as the caller vouches.
        each(partials, &|one, partials| unsafe { one.finish(panel, partials) });
    });
}

/// Calls `work` with places for `count` partial results: on the stack if these are few.
fn with_partials(count: usize, bytes: usize, work: impl FnOnce(Places)) {
    let mut few = [const { MaybeUninit::<Unit>::uninit() }; 64];
    let mut many = Vec::new();
    let units = (count * bytes).div_ceil(size_of::<Unit>());
    let first = if units <= few.len() {
        few.as_mut_ptr()
    } else {
        many.reserve_exact(units);
        many.as_mut_ptr()
    };
    work(Places { first: first.cast(), bytes });
}

/// Calls `work` with this many bytes that begin on a cache line. The thread keeps the memory unless it is
/// large.
fn with_scratch(bytes: usize, work: impl FnOnce(*mut u8)) {
    thread_local! {
        static SCRATCH: Cell<Vec<Unit>> = const { Cell::new(Vec::new()) };
    }
    let mut scratch = SCRATCH.take();
    scratch.reserve_exact(bytes.div_ceil(size_of::<Unit>()));
    work(scratch.as_mut_ptr().cast());
    if bytes <= 2 * GATHERED {
        SCRATCH.set(scratch);
    }
}

/// Keys that a task looks at.
const PIECE: usize = 1 << 16;

/// Keys that are checked together for the start of a run.
const STRETCH: usize = 32;

/// Counts the runs that begin in a range of keys.
fn count_heads<K: Element>(keys: &[K], range: Range<usize>) -> usize {
    let (first, is_first) = (range.start.max(1), range.start == 0);
    let before = &keys[first - 1..range.end.max(first) - 1];
    let unlike = before.iter().zip(&keys[first..]).map(|(&before, &key)| u32::from(!is_same(before, key)));
    unlike.sum::<u32>() as usize + usize::from(is_first)
}

/// Counts the runs that begin in each piece of the keys.
pub fn count_runs<K: Element>(keys: &[K]) -> Vec<usize> {
    let count = |piece: usize| count_heads(keys, piece * PIECE..keys.len().min((piece + 1) * PIECE));
    let pieces = keys.len().div_ceil(PIECE);
    if size_of_val(keys) < PARALLEL_BYTES {
        return (0..pieces).map(count).collect();
    }
    threads::map(pieces, &count)
}

/// Writes the first key and the start of each run, and the end of the last run, as far as there is room.
/// `counts` comes from [`count_runs`].
pub fn write_runs<K: Element, T: Send>(
    keys: &[K],
    counts: &[usize],
    mut heads: &mut [K],
    mut starts: &mut [T],
    start_of: impl Fn(usize) -> T + Sync,
) {
    let mut pieces = Vec::with_capacity(counts.len());
    for (piece, &count) in counts.iter().enumerate() {
        let heads = heads.split_off_mut(..count.min(heads.len())).unwrap_or_default();
        let starts = starts.split_off_mut(..count.min(starts.len())).unwrap_or_default();
        pieces.push((piece * PIECE, heads, starts));
    }
    if let Some(end) = starts.first_mut() {
        *end = start_of(keys.len());
    }
    let write = |(first, heads, starts): &mut (usize, &mut [K], &mut [T])| {
        let mut run = 0;
        for first in (*first..keys.len().min(*first + PIECE)).step_by(STRETCH) {
            let stretch = first..keys.len().min(first + STRETCH);
            if count_heads(keys, stretch.clone()) == 0 {
                continue;
            }
            for index in stretch {
                if index == 0 || !is_same(keys[index - 1], keys[index]) {
                    let Some(start) = starts.get_mut(run) else { return };
                    *start = start_of(index);
                    if let Some(head) = heads.get_mut(run) {
                        *head = keys[index];
                    }
                    run += 1;
                }
            }
        }
    };
    if size_of_val(keys) < PARALLEL_BYTES {
        return pieces.iter_mut().for_each(write);
    }
    threads::each_part(&mut pieces, 1, &|_, piece| write(&mut piece[0]));
}

/// The fold of a whole array without its types, which has not run yet.
pub struct Prepared {
    pub erased: Erased,
    /// The size of the operator.
    pub op_bytes: usize,
    pub plan: Plan,
    /// The items that a thread of a GPU folds side by side.
    pub width: usize,
    /// Whether the items are enough for several threads.
    pub parallel: bool,
    /// Where the accumulator goes.
    pub place: *mut (),
}

impl Prepared {
    /// Folds all items, and returns their number.
    ///
    /// # Safety
    ///
    /// The items and the operator are those of the folds' types, and the place may be written.
    pub unsafe fn run(&self) -> u64 {
        // SAFETY: as the caller vouches.
        unsafe { self.erased.all(&self.plan, self.parallel, self.place) };
        self.plan.len
    }
}

/// An operator and items without their types, so that the code that uses them is compiled once.
#[derive(Clone, Copy)]
pub struct Erased {
    pub folds: Folds,
    pub op: *const (),
    pub items: *const (),
    /// The index of the first item in the whole array; of the source, if the whole array is a later part of
    /// it, less than zero, modulo 2^64.
    pub first: u64,
    pub exact: bool,
    /// The size of an accumulator.
    pub accumulator: usize,
}

// SAFETY: operators are sent to threads, as sources are.
unsafe impl Sync for Erased {}

impl Erased {
    fn of<O: Op<S::Item>, S: Source>(op: &O, items: &S, first: u64) -> Self {
        Self {
            folds: O::agent().folds::<S>(),
            op: (&raw const *op).cast(),
            items: (&raw const *items).cast(),
            first,
            exact: O::EXACT,
            accumulator: size_of::<O::Accumulator>(),
        }
    }

    /// Folds all items of the plan into an accumulator.
    ///
    /// # Safety
    ///
    /// The folds are for the operator and the items, which are those of the plan; the place may be written.
    unsafe fn all(&self, plan: &Plan, parallel: bool, place: *mut ()) {
        if plan.chunks == 1 || (self.exact && !parallel) {
            // SAFETY: as the caller vouches.
            return unsafe { self.chunk(0..plan.len, plan.row, place) };
        }
        let chunks = plan.chunks as usize;
        with_partials(chunks, self.accumulator, |partials| {
            // SAFETY: as the caller vouches; the partial results have been written.
            unsafe {
                self.chunks(plan, 0..plan.chunks, parallel, partials);
                (self.folds.partials)(self.op, partials.first.cast_const(), chunks, place);
            }
        });
    }

    /// Folds consecutive chunks, each into its place.
    ///
    /// # Safety
    ///
    /// The folds are for the operator and the items, which contain those of the chunks. Each chunk has a
    /// place.
    unsafe fn chunks(&self, plan: &Plan, chunks: Range<u32>, parallel: bool, places: Places) {
        let fold = |index: usize| {
            let range = plan.range(chunks.start + index as u32);
            // SAFETY: as the caller vouches; each index is in bounds, and used once.
            unsafe { self.chunk(range, plan.row, places.at(index)) };
        };
        if parallel {
            threads::each(chunks.len(), &fold);
        } else {
            (0..chunks.len()).for_each(fold);
        }
    }

    /// Folds a range of the whole array into an accumulator.
    ///
    /// # Safety
    ///
    /// As for [`all`](Self::all); the range lies within the items.
    pub unsafe fn chunk(&self, range: Range<u64>, row: u64, place: *mut ()) {
        let (first, place_of) = (range.start, |index: u64| index.wrapping_sub(self.first) as usize);
        let range = place_of(range.start)..place_of(range.end);
        // SAFETY: as the caller vouches.
        unsafe { (self.folds.chunk)(self.op, self.items, range, first, row as usize, place) };
    }
}

/// Memory for accumulators: none has a greater alignment.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Unit([u8; 64]);

impl Unit {
    pub const ZERO: Self = Self([0; 64]);
}

/// Fails to compile, from a `const` block, if an accumulator has a greater alignment than [`Unit`].
const fn assert_alignment<A>() {
    assert!(align_of::<A>() <= align_of::<Unit>(), "an accumulator has an alignment of up to 64");
}

/// Places that several threads write, each its own.
#[derive(Clone, Copy)]
pub struct Places {
    pub first: *mut (),
    pub bytes: usize,
}

// SAFETY: users write each place from one thread.
unsafe impl Sync for Places {}

impl Places {
    /// Returns place `index`.
    ///
    /// # Safety
    ///
    /// It is in bounds.
    pub unsafe fn at(&self, index: usize) -> *mut () {
        // SAFETY: as the caller vouches.
        unsafe { self.first.byte_add(index * self.bytes) }
    }

    /// Returns the places from `index` on.
    pub fn from(self, index: usize) -> Self {
        Self { first: self.first.wrapping_byte_add(index * self.bytes), ..self }
    }
}
