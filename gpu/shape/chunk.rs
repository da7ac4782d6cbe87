//! The first stage: a block folds a chunk into its partial result.
//!
//! ```text
//! head:   the items before the first 128-byte boundary, one by one
//! tiles:  TILE_ROWS rows at a time; a thread folds WIDTH neighbouring items of each row by one load
//! rest:   rows that are no whole tile, then the items of the load that the chunk's end cuts
//! rotate: each accumulator moves to the thread that would have it if the chunk had no head
//! fold:   a thread's WIDTH accumulators, then the block's, pairwise
//! ```

use crate::Op;
use crate::agent::{Agent, is_rare};
use crate::exchange::slot;
use crate::input::{Input, OneByOne};
use crate::plan::{ANY_BLOCK, TILE_ROWS};
use crate::tree::{block_dim, fold_block, fold_thread};
use bytemuck::Pod;
use core::array::from_fn;
use cuda_std::{intrinsics, shared_array, thread};

/// Folds the `len` items of a chunk, the first of which has index `start` in the whole input. Thread 0 gets
/// the partial result; the other threads' values are unspecified.
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
    // SAFETY: as the caller promises.
    unsafe {
        let accumulators = match chunk.head() {
            Some(head) => fold_rows::<O, P, BLOCK, WIDTH>(op, chunk, head, len, start),
            None => fold_rows::<O, OneByOne<P>, BLOCK, WIDTH>(op, OneByOne(chunk), 0, len, start),
        };
        fold_block::<O, P::Item, BLOCK>(op, fold_thread::<O, P::Item, WIDTH>(op, accumulators))
    }
}

/// As [`fold_chunk`], for a chunk that is the whole input and has at most WIDTH items a thread.
///
/// # Safety
///
/// Every thread of the block calls it, with the same `len` items at `input`, which is aligned for loads.
#[inline(always)]
pub(crate) unsafe fn fold_row<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    op: &O,
    input: P,
    len: u32,
) -> O::Accumulator {
    let row = block_dim::<BLOCK>() * WIDTH as u32;
    let first = thread::thread_idx_x() * WIDTH as u32;
    let mut accumulators = [op.identity(); WIDTH];
    // SAFETY: as the caller promises.
    unsafe {
        let rows = Rows { at: input.offset(first as usize), index: first.into(), row, left: len };
        fold_rest(op, &mut accumulators, rows, 1);
        fold_block::<O, P::Item, BLOCK>(op, fold_thread::<O, P::Item, WIDTH>(op, accumulators))
    }
}

/// The rows of a chunk that a thread has not folded yet.
#[derive(Clone, Copy)]
struct Rows<P> {
    /// The address of the thread's next load, aligned for it.
    at: P,
    /// The index of the first item there.
    index: u64,
    /// Items in a row.
    row: u32,
    /// Items from the start of the first row to the chunk's end.
    left: u32,
}

impl<P: Input> Rows<P> {
    /// Goes on by `rows` rows.
    #[inline(always)]
    fn skip(&mut self, rows: u32) {
        let items = rows * self.row;
        self.at = self.at.offset(items as usize);
        self.index += u64::from(items);
        self.left -= items;
    }
}

/// Folds a chunk row by row. Returns the thread's WIDTH accumulators: those of elements `WIDTH · thread ..`
/// of each row.
///
/// Loads are aligned whatever the chunk's address is. If `head` items precede the first 128-byte boundary (a
/// cache line: so a warp reads four lines, not parts of five), rows are read from the boundary on, and thread
/// t folds elements `head + WIDTH · t ..`. The accumulators at the end of that row are those of the head,
/// which are folded first. One exchange at the end brings each accumulator to its thread.
///
/// # Safety
///
/// Every thread of the block calls it, with the same `len` items at `chunk`; `head` is [`Input::head`] of it.
#[inline(always)]
unsafe fn fold_rows<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    op: &O,
    chunk: P,
    head: u32,
    len: u32,
    start: u64,
) -> [O::Accumulator; WIDTH] {
    let width = WIDTH as u32;
    let row = block_dim::<BLOCK>() * width;
    let first = thread::thread_idx_x() * width;
    // One item is one access at any address. If rows are shorter than 128 bytes, a row's boundary suffices.
    // (A row is a power of two. If only the launch knows its length, a division would delay the first load.)
    let head = if WIDTH == 1 { 0 } else { head & (row - 1) };
    let mut accumulators = [op.identity(); WIDTH];

    if O::EXACT {
        // SAFETY: the chunk has `len` items.
        unsafe { fold_head::<O, P, BLOCK, WIDTH>(op, &mut accumulators, chunk, head.min(len), start) };
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
    // The chunk is aligned from here on.
    let mut rows = Rows {
        at: chunk.offset(head.min(len) as usize).offset(first as usize),
        index: start + u64::from(head + first),
        row,
        left: len.saturating_sub(head),
    };
    while const { !is_rare::<O, P::Item>() } && rows.left >= TILE_ROWS as u32 * row {
        intrinsics::no_unroll();
        // SAFETY: these rows lie in the chunk.
        unsafe { fold_loads(op, &mut accumulators, rows, TILE_ROWS as u32, |_| true) };
        rows.skip(TILE_ROWS as u32);
    }
    let rest_rows = const { if is_rare::<O, P::Item>() { 1 } else { rest_rows(WIDTH) } };
    while rows.left >= rest_rows * row {
        intrinsics::no_unroll();
        // SAFETY: as above.
        unsafe { fold_loads(op, &mut accumulators, rows, rest_rows, |_| true) };
        rows.skip(rest_rows);
    }
    if rows.left > 0 {
        // SAFETY: what is left of the chunk is shorter.
        unsafe { fold_rest(op, &mut accumulators, rows, rest_rows) };
    }

    if head != 0 && !O::EXACT {
        // SAFETY: `head` is the same for the whole block, so every thread is here.
        unsafe { rotate::<O, P::Item, BLOCK, WIDTH>(&mut accumulators, head) };
    }
    accumulators
}

/// Folds the first `head` items of a chunk for an exact operator, whose bits do not depend on the order: an
/// item a thread.
///
/// # Safety
///
/// Every thread of the block calls it; there are `head` items at `chunk`.
#[inline(always)]
unsafe fn fold_head<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    op: &O,
    accumulators: &mut [O::Accumulator; WIDTH],
    chunk: P,
    head: u32,
    start: u64,
) {
    let mut item = thread::thread_idx_x();
    while item < head {
        intrinsics::no_unroll();
        // SAFETY: as the caller promises.
        let value = unsafe { chunk.offset(item as usize).read() };
        fold_item(op, accumulators, 0, value, start + u64::from(item));
        item += block_dim::<BLOCK>();
    }
}

/// Folds a load of each of the next `count` rows, at most TILE_ROWS, for which `whole` is true. All loads are
/// in flight before the first is folded.
///
/// # Safety
///
/// Each load for which `whole` is true lies in the chunk.
#[inline(always)]
unsafe fn fold_loads<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: &O,
    accumulators: &mut [O::Accumulator; WIDTH],
    Rows { at, index, row, .. }: Rows<P>,
    count: u32,
    whole: impl Fn(u32) -> bool,
) {
    let loads: [P::Leaf<WIDTH>; TILE_ROWS as usize] = from_fn(|load| {
        // SAFETY: as the caller promises.
        unsafe {
            if (load as u32) < count && whole(load as u32) {
                at.offset(load * row as usize).load()
            } else {
                P::no_leaf()
            }
        }
    });
    // One by one: the compiler may keep a loop if folding takes many instructions, and then moves the loads
    // to memory.
    let mut fold = |load, items| {
        let index = index + u64::from(load * row);
        if load >= count {
            return;
        }
        if O::EXACT {
            // A choice of values. With a branch, the compiler moves the load into it, behind code that waits
            // for the load before.
            let mut folded = *accumulators;
            O::agent().fold_load(op, &mut folded, P::items(items), index);
            accumulators[0] = if whole(load) { folded[0] } else { accumulators[0] };
        } else if whole(load) {
            O::agent().fold_load(op, accumulators, P::items(items), index);
        }
    };
    let [a, b, c, d] = loads;
    fold(0, a);
    fold(1, b);
    fold(2, c);
    fold(3, d);
}

/// Returns how many rows the end of a chunk, after its last whole tile, is folded by. Each load and each item
/// of the cut load needs a condition, so that registers and predicates limit it. Narrow types have more items
/// in a load, and get one row.
const fn rest_rows(width: usize) -> u32 {
    if width <= 4 { TILE_ROWS as u32 - 1 } else { 1 }
}

/// Folds the end of a chunk: whole loads, and the load that the end cuts.
///
/// # Safety
///
/// The chunk has at least one item left, and at most `count` rows, which are at most a tile.
#[inline(always)]
unsafe fn fold_rest<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: &O,
    accumulators: &mut [O::Accumulator; WIDTH],
    rows: Rows<P>,
    count: u32,
) {
    let width = WIDTH as u32;
    let Rows { at, index, row, left: len } = rows;
    let thread = thread::thread_idx_x();
    let first = thread * width;
    // Items from the thread's first on; negative if the thread has none.
    let left = len as i32 - first as i32;
    let whole = |load| (load * row + width) as i32 <= left;
    if O::EXACT {
        // The first threads fold the items of the cut load, one each. The other threads read the last item
        // again and do not use it: a branch would send the warp through all of the code below twice.
        let cut = len % width;
        let last = if thread < cut { len - cut + thread } else { len - 1 };
        let last = i64::from(last) - i64::from(first);
        // SAFETY: one of the chunk's last items; at least one is left.
        let item = unsafe { at.offset(last as usize).read() };
        // SAFETY: whole loads before the end lie in the chunk.
        unsafe { fold_loads(op, accumulators, rows, count, whole) };
        let lifted = op.lift(item, index.wrapping_add_signed(last));
        accumulators[0] = op.combine(accumulators[0], if thread < cut { lifted } else { op.identity() });
        return;
    }
    // SAFETY: whole loads before the end lie in the chunk.
    unsafe { fold_loads(op, accumulators, rows, count, whole) };
    // A thread's cut load has fewer than WIDTH items in the last row. (A row is a power of two. So for a
    // negative `left` the remainder is right as well: at least a load.)
    let last_row = left as u32 & (row - 1);
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

/// Folds one item into accumulator `lane`; into the first if the operator is exact, as [`Agent::fold_load`].
#[inline(always)]
fn fold_item<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(
    op: &O,
    accumulators: &mut [O::Accumulator; WIDTH],
    lane: usize,
    item: I,
    index: u64,
) {
    O::agent().fold_item(op, &mut accumulators[if O::EXACT { 0 } else { lane }], item, index);
}

/// Moves the accumulators of elements `WIDTH · thread ..` of the rows to their thread, which holds those of
/// `WIDTH · thread + head ..`, counted around the row.
///
/// # Safety
///
/// Every thread of the block calls it.
#[inline(always)]
unsafe fn rotate<O: Op<I>, I: Copy + 'static, const BLOCK: u32, const WIDTH: usize>(
    accumulators: &mut [O::Accumulator; WIDTH],
    head: u32,
) {
    // SAFETY: as the caller promises.
    unsafe {
        // A block of 1,024 has shared memory for 64-bit parts of 4 accumulators a thread, not of more.
        if const { size_of::<O::Accumulator>().is_multiple_of(8) && WIDTH <= 4 } {
            rotate_by::<_, u64, BLOCK, WIDTH>(
                accumulators,
                head,
                |value, pair| {
                    slot::word(value, 2 * pair) as u32 as u64 | slot::word(value, 2 * pair + 1) << 32
                },
                |value, pair, words| {
                    slot::set_word(value, 2 * pair, words as u32);
                    slot::set_word(value, 2 * pair + 1, (words >> 32) as u32);
                },
            );
        } else {
            rotate_by::<_, u32, BLOCK, WIDTH>(
                accumulators,
                head,
                |value, word| slot::word(value, word) as u32,
                slot::set_word,
            );
        }
    }
}

/// As [`rotate`], a part of type `W` of each accumulator at a time, so that shared memory suffices for
/// accumulators of any size.
///
/// # Safety
///
/// As for [`rotate`].
#[inline(always)]
unsafe fn rotate_by<A: Pod, W: Pod, const BLOCK: u32, const WIDTH: usize>(
    accumulators: &mut [A; WIDTH],
    head: u32,
    part: impl Fn(&A, usize) -> W,
    set: impl Fn(&mut A, usize, W),
) {
    let shared = shared_array![W; (if BLOCK == ANY_BLOCK { 1024 } else { BLOCK as usize }) * WIDTH];
    let row = block_dim::<BLOCK>() * WIDTH as u32;
    let first = thread::thread_idx_x() * WIDTH as u32;
    for index in 0..size_of::<A>().div_ceil(size_of::<W>()) {
        if index > 0 {
            thread::sync_threads();
        }
        for (lane, value) in (first + head..).zip(accumulators.iter()) {
            // SAFETY: no two threads write the same element.
            unsafe { shared.write(lane & (row - 1), part(value, index)) };
        }
        thread::sync_threads();
        for (lane, value) in (first..).zip(accumulators.iter_mut()) {
            // SAFETY: written before the barrier.
            set(value, index, unsafe { shared.read(lane) });
        }
    }
}
