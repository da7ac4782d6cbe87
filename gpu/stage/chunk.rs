//! The first stage: a chunk becomes its partial result.

use crate::Op;
use crate::fold::{fold_block, fold_thread};
use crate::input::Input;
use crate::plan::TILE_ROWS;
use core::array::from_fn;
use cuda_std::{intrinsics, shared_array, thread};

/// Folds a chunk, of which there are `len` items and the first has index `start` in the whole input. Thread 0 gets its
/// partial result, the others something of no use.
///
/// # Safety
///
/// Every thread of the block calls it, with the same `len` items at `chunk`.
#[inline(always)]
pub(crate) unsafe fn fold_chunk<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    op: &O,
    chunk: P,
    len: u32,
    start: u64,
) -> O::Accumulator {
    // SAFETY: as the caller vouches.
    unsafe {
        let accumulators = fold_rows::<O, P, BLOCK, WIDTH>(op, chunk, len, start);
        fold_block::<O, P::Item, BLOCK>(op, fold_thread::<O, P::Item, WIDTH>(op, accumulators))
    }
}

/// Folds a chunk row by row; returns the thread's WIDTH accumulators, those of elements `WIDTH · thread ..` of each row.
///
/// Loads are aligned whatever the input is. Where its first `head` elements precede a 128-byte boundary (a cache line, so
/// that a warp reads four lines and not parts of five), rows are read from that boundary on, and thread t folds elements
/// `head + WIDTH · t ..`. The accumulators at the end of that row are those of the head, folded first. One exchange at the
/// end brings each accumulator to its thread.
///
/// # Safety
///
/// Every thread of the block calls it, with the same `len` elements at `chunk`.
#[inline(always)]
unsafe fn fold_rows<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    op: &O,
    chunk: P,
    len: u32,
    start: u64,
) -> [O::Accumulator; WIDTH] {
    let width = WIDTH as u32;
    let row = BLOCK * width;
    let first = thread::thread_idx_x() * width;
    // One item is loaded in one access wherever it lies.
    let head = if WIDTH == 1 { 0 } else { chunk.head() };
    let mut accumulators = [op.identity(); WIDTH];

    if O::EXACT {
        // SAFETY: the chunk has `len` items.
        unsafe { fold_edges::<O, P, BLOCK, WIDTH>(op, &mut accumulators, chunk, len, head, start) };
    } else if first + width + head > row {
        for lane in 0..width {
            let element = (first + lane + head).wrapping_sub(row);
            if element < head.min(len) {
                // SAFETY: in the chunk.
                let item = unsafe { chunk.offset(element as usize).read() };
                fold_item(op, &mut accumulators, lane as usize, item, start + u64::from(element));
            }
        }
    }
    let mut at = chunk.offset(head.min(len) as usize).offset(first as usize);
    let mut index = start + u64::from(head + first);
    let mut left = len.saturating_sub(head);

    // The chunk is aligned from here on.
    while left >= TILE_ROWS as u32 * row {
        intrinsics::no_unroll();
        // SAFETY: these rows lie in the chunk.
        unsafe { fold_loads(op, &mut accumulators, at, index, row, |_| true) };
        at = at.offset(TILE_ROWS as usize * row as usize);
        index += TILE_ROWS * u64::from(row);
        left -= TILE_ROWS as u32 * row;
    }
    let rest_rows = rest_rows(WIDTH);
    while left >= rest_rows * row {
        intrinsics::no_unroll();
        // SAFETY: as above.
        unsafe { fold_loads(op, &mut accumulators, at, index, row, |load| load < rest_rows) };
        at = at.offset((rest_rows * row) as usize);
        index += u64::from(rest_rows * row);
        left -= rest_rows * row;
    }
    if left > 0 {
        // SAFETY: the thread's elements of these rows start at `at`.
        unsafe { fold_rest(op, &mut accumulators, at, index, row, left as i32 - first as i32) };
    }

    if head != 0 && !O::EXACT {
        // SAFETY: `head` is the same for the whole block, so every thread is here.
        unsafe { rotate::<O, P::Item, BLOCK, WIDTH>(&mut accumulators, head) };
    }
    accumulators
}

/// Folds what whole loads leave of a chunk at its head and at its end: where every order gives the same bits, by an item a
/// thread. (On an H200, XXX.)
///
/// # Safety
///
/// Every thread of the block calls it, with the same `len` items at `chunk`.
#[inline(always)]
unsafe fn fold_edges<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    op: &O,
    accumulators: &mut [O::Accumulator; WIDTH],
    chunk: P,
    len: u32,
    head: u32,
    start: u64,
) {
    let head = head.min(len);
    let cut = (len - head) % WIDTH as u32;
    let mut fold = |item: u32| {
        // SAFETY: called for items of the chunk.
        let value = unsafe { chunk.offset(item as usize).read() };
        fold_item(op, accumulators, 0, value, start + u64::from(item));
    };
    let thread = thread::thread_idx_x();
    if thread < cut {
        fold(len - cut + thread);
    }
    let mut item = thread;
    while item < head {
        intrinsics::no_unroll();
        fold(item);
        item += BLOCK;
    }
}

/// Folds a load of each of a tile's rows that `whole` is true for; all are on their way before the first is folded.
///
/// # Safety
///
/// The thread's first load lies at `at`, aligned to 16 bytes, and each that `whole` is true for lies in the chunk.
#[inline(always)]
unsafe fn fold_loads<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: &O,
    accumulators: &mut [O::Accumulator; WIDTH],
    at: P,
    index: u64,
    row: u32,
    whole: impl Fn(u32) -> bool,
) {
    let loads: [[P::Item; WIDTH]; TILE_ROWS as usize] = from_fn(|load| {
        if whole(load as u32) {
            // SAFETY: as the caller vouches.
            unsafe { at.offset(load * row as usize).load() }
        } else {
            [P::zeroed(); WIDTH]
        }
    });
    for (load, &items) in (0..).zip(&loads) {
        if whole(load) {
            fold_load(op, accumulators, items, index + u64::from(load * row));
        }
    }
}

/// The rows that the end of a chunk, after its last whole tile, is folded by: as many as there are registers and predicates
/// for, when each load and each element after them has a condition. Narrow types have more elements, and one row.
const fn rest_rows(width: usize) -> u32 {
    if width <= 4 { TILE_ROWS as u32 - 1 } else { 1 }
}

/// Folds the end of a chunk, less than [`rest_rows`]: whole loads, and the load that the end cuts.
///
/// # Safety
///
/// Of the chunk, `left` elements lie from `at` on, which is aligned to 16 bytes; none if it is negative.
#[inline(always)]
unsafe fn fold_rest<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: &O,
    accumulators: &mut [O::Accumulator; WIDTH],
    at: P,
    index: u64,
    row: u32,
    left: i32,
) {
    let width = WIDTH as u32;
    let whole = |load| load < rest_rows(WIDTH) && (load * row + width) as i32 <= left;
    // SAFETY: whole loads before the end lie in the chunk.
    unsafe { fold_loads(op, accumulators, at, index, row, whole) };
    if O::EXACT {
        return; // `fold_edges` has what is left.
    }
    // A thread whose load the end cuts has less than a load in the last row (a row is a power of two, so that the remainder
    // is right for a negative `left` as well: a load or more).
    let last_row = left as u32 % row;
    let cut = if last_row < width { last_row } else { 0 };
    let before = left as u32 - cut;
    let at = at.offset(before as usize);
    for lane in 0..WIDTH {
        if (lane as u32) < cut {
            // SAFETY: one of the chunk's last items.
            let item = unsafe { at.offset(lane).read() };
            fold_item(op, accumulators, lane, item, index + u64::from(before) + lane as u64);
        }
    }
}

/// Folds the items of one load, each into its accumulator. Where every order gives the same bits, all go into the
/// first one: 16 accumulators of 64 bits would be half of a thread's registers.
#[inline(always)]
fn fold_load<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(
    op: &O,
    accumulators: &mut [O::Accumulator; WIDTH],
    items: [I; WIDTH],
    index: u64,
) {
    if O::EXACT {
        accumulators[0] = op.combine(accumulators[0], op.lift_load(items, index));
    } else {
        for (lane, &item) in items.iter().enumerate() {
            fold_item(op, accumulators, lane, item, index + lane as u64);
        }
    }
}

/// Folds one item into accumulator `lane`; as [`fold_load`].
#[inline(always)]
fn fold_item<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(
    op: &O,
    accumulators: &mut [O::Accumulator; WIDTH],
    lane: usize,
    item: I,
    index: u64,
) {
    let accumulator = &mut accumulators[if O::EXACT { 0 } else { lane }];
    *accumulator = op.combine(*accumulator, op.lift(item, index));
}

/// Gives each thread the accumulators of elements `WIDTH · thread ..` of the rows; it holds those of `WIDTH · thread +
/// head ..`, counted around the row.
///
/// # Safety
///
/// Every thread of the block calls it.
#[inline(always)]
unsafe fn rotate<O: Op<I>, I: Copy + 'static, const BLOCK: u32, const WIDTH: usize>(
    accumulators: &mut [O::Accumulator; WIDTH],
    head: u32,
) {
    let places = shared_array![O::Accumulator; BLOCK as usize * WIDTH];
    let first = thread::thread_idx_x() * WIDTH as u32;
    for (lane, &value) in (first + head..).zip(accumulators.iter()) {
        // SAFETY: no two threads have a place in common.
        unsafe { places.write(lane % (BLOCK * WIDTH as u32), value) };
    }
    thread::sync_threads();
    for (lane, value) in (first..).zip(accumulators) {
        // SAFETY: written before the barrier.
        *value = unsafe { places.read(lane) };
    }
}
