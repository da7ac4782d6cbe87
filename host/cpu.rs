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

/// Below this many bytes, one thread is faster than waking up others.
pub const PARALLEL_BYTES: usize = 1 << 20;

/// Reduces items, at least one. A GPU would read them through `P`.
#[inline(always)]
pub fn reduce<O: Op<S::Item>, S: Source, P: Input<Item = S::Item>>(
    op: &O,
    items: S,
    block: u32,
) -> Option<O::Output> {
    // SAFETY: there is no `by`.
    unsafe { reduce_by::<O, S, P>(op, items, block, None) }
}

/// Reduces items, at least one: folds them by `by` if it is given. It returns the number of items in the
/// accumulator, or `None` if there is no accumulator; then there is no result.
///
/// # Safety
///
/// If `by` returns a number, it has written the accumulator to its place.
pub unsafe fn reduce_by<O: Op<S::Item>, S: Source, P: Input<Item = S::Item>>(
    op: &O,
    items: S,
    block: u32,
    by: Option<&dyn Fn(Prepared) -> Option<u64>>,
) -> Option<O::Output> {
    const { assert_alignment::<O::Accumulator>() };
    let len = items.len();
    // SAFETY: there is an item.
    let op = &op.begin(unsafe { items.get(0) });
    let mut all = MaybeUninit::<O::Accumulator>::uninit();
    let fold = Prepared {
        erased: Erased::of(op, &items, 0),
        op_bytes: size_of::<O>(),
        plan: Plan::new(len as u64, const { width::<O, S::Item>(P::BYTES) }, block),
        width: const { width::<O, S::Item>(P::BYTES) },
        parallel: len.saturating_mul(size_of::<S::Item>()) >= PARALLEL_BYTES,
        place: all.as_mut_ptr().cast(),
    };
    let len = match by {
        // SAFETY: the folds are for these types.
        None => unsafe { fold.run() },
        Some(by) => by(fold)?,
    };
    // SAFETY: the fold has run, or as the caller vouches.
    let all = unsafe { all.assume_init() };
    op.finish(op.end(all, len), len)
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

/// Items on the CPU with an operator, by which many parts are reduced; the types are left behind.
pub trait Many<V>: Sync {
    /// Reduces a range of the items, which may be empty.
    fn range(&self, range: Range<usize>) -> Option<V>;

    /// Reduces each column, to a place for each. Columns have items; those without a value get the default.
    fn columns(&self, columns: Columns, default: V, results: &mut [V]);
}

/// Items and an operator; a GPU would read the items through `P`.
pub struct OfTypes<'a, O, S, P> {
    op: &'a O,
    items: S,
    block: u32,
    input: PhantomData<fn() -> P>,
}

impl<'a, O, S, P> OfTypes<'a, O, S, P> {
    pub fn new(op: &'a O, items: S, block: u32) -> Self {
        Self { op, items, block, input: PhantomData }
    }
}

impl<O: Op<S::Item>, S: Source, P: Input<Item = S::Item>> Many<O::Output> for OfTypes<'_, O, S, P> {
    fn range(&self, range: Range<usize>) -> Option<O::Output> {
        let Self { op, items, block, .. } = *self;
        assert!(range.start <= range.end && range.end <= items.len());
        if range.is_empty() {
            return op.finish(op.identity(), 0);
        }
        // SAFETY: it lies within the items.
        reduce::<O, S, P>(op, unsafe { items.part(range) }, block)
    }

    fn columns(&self, columns: Columns, default: O::Output, results: &mut [O::Output]) {
        let work = ColumnsOnCpu {
            types: ColumnTypes::of::<O, S, P>(),
            folds: O::agent().folds::<S>(),
            op: (&raw const *self.op).cast(),
            items: (&raw const self.items).cast(),
            columns,
            plan: Plan::new(columns.reduced, const { width::<O, S::Item>(P::BYTES) }, self.block),
            default: (&raw const default).cast(),
            results: Places { first: results.as_mut_ptr().cast(), bytes: size_of::<O::Output>() },
        };
        // SAFETY: the types are these, and there are as many items and places.
        unsafe { work.all(self.items.len(), results.len()) }
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
    items: &dyn Many<V>,
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

/// What a reduction of columns needs to know of its types: sizes, and functions of untyped pointers.
struct ColumnTypes {
    /// The sizes of an item, of an accumulator and of an operator.
    bytes: usize,
    accumulator: usize,
    op_bytes: usize,
    /// As [`Source::BOUNDARY`] and [`Source::room`].
    boundary: usize,
    room: fn(usize) -> usize,
    /// [`Op::begin`] with the item at an index: `(op, items, index, place)`. None if operators have no fields.
    begin: Option<unsafe fn(*const (), *const (), usize, *mut ())>,
    /// [`Source::gather`]: `(items, at, stride, rows, columns, to, pitch)`.
    gather: unsafe fn(*const (), usize, usize, usize, usize, *mut u8, usize),
    /// [`Source::gathered`]: `(address, items, place)`.
    gathered: unsafe fn(*const u8, usize, *mut ()),
    /// The result of `len` items, or the default: `(op, accumulator, len, default, place)`.
    finish: unsafe fn(*const (), *const (), u64, *const (), *mut ()),
}

impl ColumnTypes {
    const fn of<O: Op<S::Item>, S: Source, P: Input<Item = S::Item>>() -> &'static Self {
        const {
            assert_alignment::<O>();
            assert_alignment::<O::Accumulator>();
            assert_alignment::<S>();
            assert!(size_of::<S>() <= size_of::<Unit>(), "a source of columns has up to 64 bytes");
            &Self {
                bytes: size_of::<S::Item>(),
                accumulator: size_of::<O::Accumulator>(),
                op_bytes: size_of::<O>(),
                boundary: S::BOUNDARY,
                room: S::room,
                begin: if size_of::<O>() > 0 { Some(begin::<O, S>) } else { None },
                gather: gather::<S>,
                gathered: gathered::<S>,
                finish: finish::<O, S::Item>,
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

/// # Safety
///
/// The pointers are to values of the operator's types, and the place may be written.
unsafe fn finish<O: Op<I>, I: Copy + 'static>(
    op: *const (),
    all: *const (),
    len: u64,
    default: *const (),
    place: *mut (),
) {
    // SAFETY: as the caller vouches.
    unsafe {
        let op = &*op.cast::<O>();
        let result = op.finish(op.end(all.cast::<O::Accumulator>().read(), len), len);
        place.cast::<O::Output>().write(result.unwrap_or(default.cast::<O::Output>().read()));
    }
}

/// Bytes of columns that a thread copies at a time: they fit in a cache.
const GATHERED: usize = 1 << 19;

/// A reduction of columns; the types are left behind. A chunk of neighbouring columns is copied at a time, so
/// that the items of a column lie side by side, and then folded as any chunk.
struct ColumnsOnCpu {
    types: &'static ColumnTypes,
    folds: Folds,
    op: *const (),
    items: *const (),
    columns: Columns,
    plan: Plan,
    /// The result of columns without a value.
    default: *const (),
    results: Places,
}

// SAFETY: operators are sent to threads, as sources and results are.
unsafe impl Sync for ColumnsOnCpu {}

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

impl ColumnsOnCpu {
    /// Reduces all columns.
    ///
    /// # Safety
    ///
    /// The pointers are to values of the types, with `items` items and `results` results.
    ///
    /// # Panics
    ///
    /// If there are not as many items as the columns have, or fewer results than columns.
    unsafe fn all(&self, items: usize, results: usize) {
        let Self { types, plan, columns: Columns { count, inner, reduced }, .. } = *self;
        assert!(reduced > 0 && count.checked_mul(reduced) == Some(items as u64) && count <= results as u64);
        let (len, inner) = (plan.len as usize, inner as usize);
        let matrices = count as usize / inner;
        // An odd number of cache lines (or of larger boundaries) from one column to the next: caches have few
        // places for addresses that are a power of two apart.
        let pitch = (types.room)(plan.chunk.min(plan.len) as usize) | types.boundary;
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
            unsafe { self.panel(panel, pitch) };
        };
        let all = matrices.div_ceil(outer) * panels;
        if len * count as usize * types.bytes < PARALLEL_BYTES {
            return (0..all).for_each(panel);
        }
        let task = (TASK as usize / (len * width * outer)).max(1);
        threads::each(all.div_ceil(task), &|number| {
            (number * task..all.min((number + 1) * task)).for_each(panel);
        });
    }

    /// Reduces a panel's columns.
    ///
    /// # Safety
    ///
    /// The columns are in bounds.
    unsafe fn panel(&self, panel: Panel, pitch: usize) {
        let Panel { width, outer, .. } = panel;
        let Self { types, .. } = *self;
        let (chunks, inner) = (self.plan.chunks as usize, self.columns.inner as usize);
        with_partials(width * outer * chunks, types.accumulator, |partials| {
            let chunk = |chunk: usize| {
                let range = self.plan.range(chunk as u32);
                let len = (range.end - range.start) as usize;
                // (Scratch memory begins on a cache line.)
                with_scratch(width * outer * pitch + types.boundary - size_of::<Unit>(), |scratch| {
                    let scratch = scratch.wrapping_add(scratch.align_offset(types.boundary));
                    for matrix in 0..outer {
                        let first =
                            panel.first + (matrix * self.plan.len as usize + range.start as usize) * inner;
                        let places = scratch.wrapping_add(matrix * width * pitch);
                        // SAFETY: as the caller vouches; the scratch memory has room for these columns.
                        unsafe { (types.gather)(self.items, first, inner, len, width, places, pitch) };
                    }
                    // SAFETY: the items have been gathered, and there is a place for each partial result.
                    unsafe { self.fold(panel, range.clone(), scratch, pitch, partials.from(chunk)) };
                });
            };
            if chunks > 1 {
                threads::each(chunks, &chunk)
            } else {
                chunk(0)
            }
            // SAFETY: all chunks have been folded; as the caller vouches.
            unsafe { self.finish(panel, partials) };
        });
    }

    /// Calls `work` with the operator for the column with this first item.
    ///
    /// # Safety
    ///
    /// The item exists.
    unsafe fn with_op(&self, first: usize, work: impl FnOnce(*const ())) {
        let Some(begin) = self.types.begin else { return work(self.op) };
        with_partials(1, self.types.op_bytes, |place| {
            // SAFETY: as the caller vouches; the functions are for these types, and there is a place.
            unsafe { begin(self.op, self.items, first, place.first) };
            work(place.first);
        });
    }

    /// Folds a range of each column of a panel. Takes the address of the copied items, the bytes from one
    /// column to the next, and the places for the partial results, in which columns are `plan.chunks` places
    /// apart.
    ///
    /// # Safety
    ///
    /// The items of the range have been gathered there, and there are the places.
    unsafe fn fold(
        &self,
        panel: Panel,
        range: Range<u64>,
        places: *const u8,
        pitch: usize,
        partials: Places,
    ) {
        let (len, chunks) = ((range.end - range.start) as usize, self.plan.chunks as usize);
        panel.for_each(self.columns, |index, first| {
            let mut items = MaybeUninit::<Unit>::uninit();
            let items = items.as_mut_ptr().cast();
            // SAFETY: as the caller vouches; the functions are for these types.
            unsafe {
                (self.types.gathered)(places.add(index * pitch), len, items);
                let partial = partials.at(index * chunks);
                self.with_op(first, |op| {
                    (self.folds.chunk)(op, items, 0..len, range.start, self.plan.row as usize, partial);
                });
            }
        });
    }

    /// Merges and finishes the partial results of a panel's columns.
    ///
    /// # Safety
    ///
    /// Each column has a partial result of each chunk, and a place for its result.
    unsafe fn finish(&self, panel: Panel, partials: Places) {
        let Self { types, plan, default, .. } = *self;
        let chunks = plan.chunks as usize;
        panel.for_each(self.columns, |index, first| {
            // SAFETY: as the caller vouches; the functions are for these types.
            unsafe {
                let (of_column, result) =
                    (partials.at(index * chunks), self.results.at(panel.column + index));
                self.with_op(first, |op| match chunks {
                    1 => (types.finish)(op, of_column, plan.len, default, result),
                    _ => with_partials(1, types.accumulator, |all| {
                        (self.folds.partials)(op, of_column, chunks, all.first);
                        (types.finish)(op, all.first, plan.len, default, result);
                    }),
                });
            }
        });
    }
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
    /// The index of the first item in the whole array.
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
        let (first, place_of) = (range.start, |index| (index - self.first) as usize);
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
