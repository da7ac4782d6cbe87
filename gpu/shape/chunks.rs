//! The kernel of long rows, and of segments with more than [`few_rows`](crate::plan::few_rows) rows. A block folds one chunk,
//! as it does of a whole input. (A **line** is a row of the plan.)
//!
//! ```text
//! fold the chunk
//! if it is the whole row: deliver the result
//! else: put the partial result into the chunk's slot
//! a row's last chunk: take the partial results of this row or of an earlier one from their slots, fold them, deliver
//! (if there are groups: the block of a group's last chunk folds the group, the very last block the groups)
//! ```
//!
//! Rows have their chunks one after another. Segments between offsets are those on the list that the kernel of
//! [`larger`](super::larger) has made; or, if segments are few, all of them: then the first blocks have the first chunk of each
//! segment, and further blocks the other chunks.
//!
//! A block waits for the partial results of its own row, and loads nothing meanwhile. So there are further blocks if rows have
//! more blocks than a GPU holds: as many as this number, the block of a row's last chunk takes the partial results of the row so
//! many rows before, which are there, and the further blocks take those of the last rows.
//!
//! A block whose row or segment has at most two lines runs code of its own (`fold_short`), which makes no plan, treats no
//! items before a boundary apart, and lets idle warps do nothing. It is short, because the time of a small input goes to
//! fetching instructions. Sums of `f32` on an H100, µs before and now: 10 segments of 102 2.07 and 1.56, 100 of 655 4.37 and 1.90, 1,000 of 65 4.66 and 2.44.

use super::segments::{Arguments, STRIDED, fold_leaf, fold_strided, load_leaf, most_long, plan_of};
pub use super::segments::{Cut, SegmentBounds};
use crate::agent::{Agent, summed_from};
use crate::exchange::{partials, slot};
use crate::input::Input;
use crate::plan::{ANY_BLOCK, GROUP, SINGLE_ROWS, chunk_rows};
use crate::tree::{fold_warp, of_thread};
use crate::{Op, Plan};
use core::hint::assert_unchecked;
use cuda_std::{intrinsics, shared_array, thread, warp};

/// The kernel as a type.
pub type Kernel<O, P> = super::Kernel<SegmentBounds, Chunks, O, P>;

/// Names the [`Kernel`].
pub enum Chunks {}

/// Words of the largest accumulators of which blocks fold short rows and segments between offsets.
pub const MOST_WORDS: usize = 10;

/// Whether accumulators have at most [`MOST_WORDS`].
pub(super) const fn is_small<O: Op<I>, I: Copy + 'static>() -> bool {
    slot::words::<O::Accumulator>() <= MOST_WORDS
}

/// Returns the slots of a segment's partial results.
pub const fn slots(plan: &Plan) -> u32 {
    plan.chunks + plan.groups()
}

/// Returns the blocks for up to `segments` listed segments of `len` items in all.
pub const fn most_blocks(len: u64, segments: u64, width: usize, block: u32) -> u64 {
    len / (chunk_rows(width) * block as u64 * width as u64) + segments
}

/// Reduces each row of `arguments.input`, or each segment on the list of [long](Cut::long) ones, or each segment.
///
/// # Safety
///
/// The launch has [`Cut::block`] threads a block. [`Cut::share`] is the items of a chunk, a whole number of lines, and
/// [`Cut::weight`] the chunks of a row.
///
/// Accumulators of segments between offsets that are on no list have at most [`MOST_WORDS`].
///
/// There may be further blocks for rows of several chunks, one for each row at most, but none if a plan has
/// [groups](Plan::groups).
///
/// There is a block for each chunk of each row; for listed segments there are [`most_blocks`]. Without a list, segments between
/// offsets have a block each, and [`Cut::weight`] further ones each: one fewer than the [most chunks](Plan::most_chunks) of an
/// input as long as the array. If the weight is 0, there are further blocks for each row's end within the array.
///
/// At [`Cut::partials`] are empty slots, [`slots`] for each row of several chunks and for each listed segment, or one for
/// each block and one more.
///
/// If blocks [sum](Agent::SUMMED_FROM) segments, the launch is as [`sum_segments`](Agent::sum_segments) needs it instead. Otherwise as for [`reduce_segments`](super::segments::reduce_segments).
#[inline(always)]
pub unsafe fn reduce_chunks<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    if const { summed_from::<O, P::Item>().is_some() } {
        // SAFETY: as the caller promises.
        return unsafe { O::agent().sum_segments::<P, WIDTH>(arguments) };
    }
    // SAFETY: as the caller promises.
    unsafe {
        let ended = if let Some(further) = further_block::<O, P>(&arguments) {
            Some(Ended::Row(arguments.shape.count as u32 + further))
        } else if const { is_small::<O, P::Item>() }
            && arguments.cut.long.is_null()
            && fold_short::<O, P, WIDTH>(&arguments)
        {
            None
        } else if let Some((segment, chunk)) = find::<O, P, WIDTH>(&arguments) {
            fold::<O, P, WIDTH>(arguments, segment, chunk)
        } else {
            None
        };
        let partials = match ended {
            Some(Ended::Row(row)) => partials_of_earlier::<O, P>(&arguments, row),
            Some(Ended::Segment(partials)) => Some(partials),
            None => None,
        };
        if let Some(partials) = partials {
            deliver_partials::<O, P>(&arguments, partials);
        }
    }
}

/// The row or segment whose last chunk a block has folded.
enum Ended {
    /// A row of several chunks.
    Row(u32),
    /// A segment of several chunks that is not a row: the partial results of its chunks or, if chunks form groups, of the groups.
    Segment(Partials),
}

/// A row or segment, and where its partial results are.
struct Partials {
    index: u64,
    start: u64,
    len: u64,
    /// The slots of the partial results, and the number of slots.
    slots: *mut u64,
    count: u32,
}

/// Returns the blocks that have chunks of rows.
#[inline(always)]
fn blocks_of_rows<O: Op<P::Item>, P: Input>(arguments: &Arguments<P, O, O::Output>) -> u32 {
    // Opaque, because the compiler would keep the value of the first call for the second, in a register.
    intrinsics::opaque(arguments.shape.count as u32) * arguments.cut.weight
}

/// Returns the number of a block that has no chunk of a row, among such blocks.
#[inline(always)]
fn further_block<O: Op<P::Item>, P: Input>(arguments: &Arguments<P, O, O::Output>) -> Option<u32> {
    if !arguments.shape.are_rows() || arguments.cut.weight <= 1 {
        return None;
    }
    thread::block_idx_x().checked_sub(blocks_of_rows::<O, P>(arguments))
}

/// Returns the partial results of the row that is as many rows before row `row` as there are further blocks, if there is one, to
/// a block's first warp.
#[inline(always)]
fn partials_of_earlier<O: Op<P::Item>, P: Input>(
    arguments: &Arguments<P, O, O::Output>,
    row: u32,
) -> Option<Partials> {
    let further = thread::grid_dim_x() - blocks_of_rows::<O, P>(arguments);
    (thread::thread_idx_x() < warp::WARP_SIZE && row >= further)
        .then(|| partials_of_row::<O, P>(arguments, row - further))
}

/// Returns the partial results of a row of several chunks.
#[inline(always)]
fn partials_of_row<O: Op<P::Item>, P: Input>(arguments: &Arguments<P, O, O::Output>, row: u32) -> Partials {
    let Arguments { shape: segments, cut, .. } = arguments;
    let words = slot::words::<O::Accumulator>();
    Partials {
        index: row.into(),
        start: u64::from(row) * segments.size,
        len: segments.size,
        slots: cut.partials.wrapping_add(row as usize * cut.weight as usize * words),
        count: cut.weight,
    }
}

/// Takes the partial results of a row of several chunks from their slots, and delivers the row's result.
///
/// # Safety
///
/// All lanes of a block's first warp call it, for a row once. Each block that has a chunk of the row has put its partial result
/// into the chunk's slot, or does so without waiting for this block.
#[inline(always)]
pub(super) unsafe fn deliver_row<O: Op<P::Item>, P: Input>(arguments: &Arguments<P, O, O::Output>, row: u32) {
    // SAFETY: as the caller promises.
    unsafe { deliver_partials(arguments, partials_of_row::<O, P>(arguments, row)) };
}

/// Takes partial results from their slots, and delivers the result of the row or segment, which has items.
///
/// # Safety
///
/// As for [`deliver_row`].
#[inline(always)]
unsafe fn deliver_partials<O: Op<P::Item>, P: Input>(
    arguments: &Arguments<P, O, O::Output>,
    Partials { index, start, len, slots, count }: Partials,
) {
    let Arguments { input, op, .. } = *arguments;
    // SAFETY: as the caller promises.
    unsafe {
        let op = op.begin(input.offset(start as usize).read());
        let all = partials::take_all::<O, P::Item>(&op, slots, count);
        if warp::lane_id() == 0 {
            arguments.deliver(&op, index, all, len);
        }
    }
}

/// Reduces the row or the segment of the block's number if it has at most two lines, or reports it if it does not lie in
/// the array. Returns whether that was so.
///
/// # Safety
///
/// Every thread of the block calls it. As for [`reduce_chunks`], without a list.
#[inline(always)]
unsafe fn fold_short<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: &Arguments<P, O, O::Output>,
) -> bool {
    let &Arguments { shape: segments, cut, .. } = arguments;
    let index = u64::from(thread::block_idx_x());
    let most = u64::from(2 * cut.block * WIDTH as u32);
    let is_left = if segments.are_rows() { !cut.has(Cut::SHORT) } else { index >= segments.count() };
    if is_left {
        return false;
    }
    let (mut start, mut len) = (index * segments.size, segments.size);
    if !segments.are_rows() {
        let (first, stop) = segments.between(index);
        (start, len) = (first, stop.wrapping_sub(first));
        if !segments.is_valid(first, stop) {
            arguments.is_wrong(index);
            return true;
        }
        if len > most {
            return false;
        }
    }
    // SAFETY: the segment lies in the array, and the block has all of it.
    unsafe { deliver_short::<O, P, WIDTH>(arguments, (index, start, len), thread::block_dim_x) };
    true
}

/// Reduces a row or a segment of two lines at most: its index, its first item and its items. `threads` returns for how many of the
/// block's threads a line has leaves.
///
/// # Safety
///
/// Every thread of the block calls it, and no other block has it. It lies in the array.
#[inline(always)]
pub(super) unsafe fn deliver_short<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: &Arguments<P, O, O::Output>,
    (index, start, len): (u64, u64, u64),
    threads: impl Fn() -> u32,
) {
    let &Arguments { input, op, .. } = arguments;
    let input = input.offset(start as usize);
    // SAFETY: as the caller promises.
    unsafe {
        let op = if len > 0 { op.begin(input.read()) } else { op };
        let all = fold_two_lines::<O, P, WIDTH>(&op, input, len as u32, threads);
        if thread::thread_idx_x() == 0 {
            arguments.deliver(&op, index, all, len);
        }
    }
}

/// Folds `len` items of two lines at most, which lie anywhere; `threads` is as for [`deliver_short`]. Thread 0 gets the result. Warps
/// without items do nothing.
///
/// # Safety
///
/// Every thread of the block calls it, with the same items.
#[inline(always)]
unsafe fn fold_two_lines<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: &O,
    input: P,
    len: u32,
    threads: impl Fn() -> u32,
) -> O::Accumulator {
    let of_warps = shared_array![O::Accumulator; 32];
    let (thread, width) = (thread::thread_idx_x(), WIDTH as u32);
    let (item, warp) = (thread * width, thread / warp::WARP_SIZE);
    let line = threads() * width;
    let of_warp = warp::WARP_SIZE * STRIDED as u32;
    let is_strided = O::EXACT && len <= threads() * STRIDED as u32;
    let warps = if is_strided {
        len.div_ceil(of_warp)
    } else {
        (if len < line { len } else { line }).div_ceil(warp::WARP_SIZE * width)
    };
    let mut value = op.identity();
    // SAFETY: as the caller promises; each warp writes an element of its own, which is read after the barrier.
    unsafe {
        if warp < warps {
            if is_strided {
                let item = warp * of_warp + warp::lane_id();
                let (at, left) = (input.offset(item as usize), len.saturating_sub(item));
                fold_strided(op, &mut value, at, left, warp::WARP_SIZE, item.into());
            } else {
                let mut all = [op.identity(); WIDTH];
                let mut first = item;
                while first - item < len {
                    intrinsics::no_unroll();
                    let (at, left) = (input.offset(first as usize), len.saturating_sub(first));
                    fold_leaf(op, &mut all, load_leaf::<O, P, WIDTH>(at, left), at, left, first.into());
                    first += line;
                }
                value = of_thread::<O, P::Item, WIDTH>(op, all);
            }
            value = fold_warp::<O, P::Item>(op, value, warp::WARP_SIZE);
            if warps > 1 && thread.is_multiple_of(warp::WARP_SIZE) {
                of_warps.write(warp, value);
            }
        }
        if warps <= 1 {
            return value;
        }
        thread::sync_threads();
        if warp == 0 {
            value = if thread < warps { of_warps.read(thread) } else { op.identity() };
            value = fold_warp::<O, P::Item>(op, value, warp::WARP_SIZE);
        }
        value
    }
}

/// A segment, how it is cut up, and where its slots begin.
#[derive(Clone, Copy)]
struct Segment {
    index: u64,
    start: u64,
    plan: Plan,
    first_slot: usize,
}

/// Returns the segment of the block's chunk, and the chunk's number.
///
/// # Safety
///
/// As for [`reduce_chunks`].
#[inline(always)]
unsafe fn find<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: &Arguments<P, O, O::Output>,
) -> Option<(Segment, u32)> {
    let Arguments { shape: segments, cut, .. } = arguments;
    let block = thread::block_idx_x();
    if segments.are_rows() {
        let chunks = cut.weight;
        // (A division by 0 would be a call.)
        let chunks = chunks.max(1);
        let (index, chunk) = if chunks > 1 { (block / chunks, block % chunks) } else { (block, 0) };
        let row = u64::from(cut.block) * WIDTH as u64;
        let plan = Plan { len: segments.size, row, chunk: cut.share.into(), chunks };
        let first_slot = index as usize * slots(&plan) as usize;
        let index = u64::from(index);
        return Some((Segment { index, start: index * segments.size, plan, first_slot }, chunk));
    }
    if const { is_small::<O, P::Item>() } && cut.long.is_null() {
        // SAFETY: as the caller promises.
        return unsafe { find_between_offsets::<O, P, WIDTH>(arguments) };
    }
    if const { O::EXACT } {
        return None;
    }
    let (mut before, mut first_slot) = (0, 0);
    // SAFETY: a BLOCK is not 0. (Else the division could panic.)
    unsafe { assert_unchecked(cut.block > 0) };
    let most = most_long(segments.len, u64::from(cut.block) * WIDTH as u64, cut.block);
    // SAFETY: the list holds the first `most` of the segments that it counts. (It counts more only if offsets descend.)
    unsafe {
        for entry in 0..cut.long.read().min(most) as usize {
            intrinsics::no_unroll();
            let index = cut.long.add(1 + entry).read();
            let start = segments.start(index);
            let plan = plan_of::<WIDTH>(segments.start(index + 1) - start, cut.block, true);
            // If offsets descend, the segments may have more chunks than there are blocks. Their results are not used.
            if before + plan.chunks > thread::grid_dim_x() {
                return None;
            }
            if block - before < plan.chunks {
                return Some((Segment { index, start, plan, first_slot }, block - before));
            }
            before += plan.chunks;
            first_slot += slots(&plan) as usize;
        }
    }
    None
}

/// As [`find`], for all segments between offsets that [`fold_short`] leaves.
///
/// A segment has as many slots as it may have chunks. If there is a further block for each row's end, a segment has at most
/// one chunk for each end within it, and its first chunk. Its first slot is then the segment's index plus the number of
/// whole rows before the segment's start.
///
/// # Safety
///
/// As for [`reduce_chunks`].
#[inline(always)]
unsafe fn find_between_offsets<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: &Arguments<P, O, O::Output>,
) -> Option<(Segment, u32)> {
    let Arguments { shape: segments, cut, .. } = arguments;
    let log = cut.block.trailing_zeros() + WIDTH.trailing_zeros();
    let (block, count) = (u64::from(thread::block_idx_x()), segments.count());
    let single = SINGLE_ROWS << log;
    let (mut index, mut chunk) = (block, 0);
    // An item of the segment, if it is searched for.
    let mut item = 0;
    if block >= segments.count {
        let further = (block - segments.count) as u32;
        if cut.weight > 0 {
            // The second chunks of all, then the third ones: blocks for chunks that no segment has come last.
            // (A division by 0 would be a call.)
            let of_all = (segments.count as u32).max(1);
            (index, chunk) = ((further % of_all).into(), 1 + further / of_all);
        } else {
            chunk = 1 + further;
            item = u64::from(chunk) << log;
            // SAFETY: all lanes are here.
            if segments.len <= count * single && unsafe { is_in_short(segments, count, item, single) } {
                return None;
            }
        }
    }
    if item == 0 {
        if index >= count {
            return None;
        }
        let (start, stop) = segments.between(index);
        if !segments.is_valid(start, stop) {
            return None;
        }
        if cut.weight == 0 && stop - start > single {
            item = start + 1;
        }
    }
    if item > 0 {
        // If any offsets are wrong, nobody finds a segment of several chunks: a block would wait for chunks that no
        // other block has found.
        // SAFETY: all threads of the block are here.
        index = unsafe { around(segments, count as u32, item) }?.into();
    }
    let (start, stop) = segments.between(index);
    let plan = plan_of::<WIDTH>(stop - start, cut.block, false);
    let mut first_slot = index as usize * (cut.weight as usize + 1);
    if cut.weight == 0 {
        let rows = (start >> log) as u32;
        first_slot += rows as usize;
        chunk = chunk.saturating_sub(rows);
    }
    (chunk < plan.chunks).then_some((Segment { index, start, plan, first_slot }, chunk))
}

/// Returns whether an item is the first of a segment, or within one of at most `most` items, as far as a look at 32
/// segments tells: those around the place where the item's segment would be if all had the same length.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
unsafe fn is_in_short(segments: &SegmentBounds, count: u64, item: u64, most: u64) -> bool {
    let likely = (item as f32 / segments.len as f32 * count as f32) as u64;
    let index = (likely + u64::from(warp::lane_id())).saturating_sub(16);
    let mut is_in = false;
    if index < count {
        let (start, stop) = segments.between(index);
        is_in = start <= item && item <= stop && (stop - start <= most || start == item || stop == item);
    }
    // SAFETY: as the caller promises.
    unsafe { warp::warp_vote_any(warp::ALL, is_in) }
}

/// Returns the segment that begins before an item and ends after it. There is none if any segment does not lie in the
/// array.
///
/// # Safety
///
/// Every thread of the block calls it.
#[inline(always)]
unsafe fn around(segments: &SegmentBounds, count: u32, item: u64) -> Option<u32> {
    const NONE: u32 = u32::MAX;
    const WRONG: u32 = u32::MAX - 1;
    let of_warps = shared_array![u32; 32];
    let (thread, threads, lane) = (thread::thread_idx_x(), thread::block_dim_x(), warp::lane_id());
    let mut found = NONE;
    let mut index = thread;
    while index < count {
        intrinsics::no_unroll();
        let (start, stop) = segments.between(index.into());
        if !segments.is_valid(start, stop) {
            found = WRONG;
        } else if start < item && item < stop && found == NONE {
            found = index;
        }
        index += threads;
    }
    // One lane has the segment at most, unless some are wrong.
    let of_lanes = |found| {
        // SAFETY: all lanes of the warp are here.
        unsafe {
            let has = warp::warp_vote_ballot(warp::ALL, found < WRONG);
            let index = warp::warp_shuffle_idx(warp::ALL, found, has.trailing_zeros() % 32, 32).0;
            match (warp::warp_vote_any(warp::ALL, found == WRONG), has) {
                (true, _) => WRONG,
                (false, 0) => NONE,
                (false, _) => index,
            }
        }
    };
    let of_warp = of_lanes(found);
    // SAFETY: each warp writes an element of its own, which is read after the barrier.
    unsafe {
        if lane == 0 {
            of_warps.write(thread / warp::WARP_SIZE, of_warp);
        }
        thread::sync_threads();
        let index = of_lanes(if lane < threads / warp::WARP_SIZE { of_warps.read(lane) } else { NONE });
        (index < WRONG).then_some(index)
    }
}

/// Folds a chunk, and delivers the result of a segment of one chunk. Returns the segment of several whose last chunk it is, to
/// the block's first warp.
///
/// # Safety
///
/// Every thread of the block calls it, and the block of each other chunk of the segment does so too or has.
#[inline(always)]
unsafe fn fold<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
    Segment { index, start, plan, first_slot }: Segment,
    chunk: u32,
) -> Option<Ended> {
    let Arguments { input, cut, op, .. } = arguments;
    let (thread, chunks) = (thread::thread_idx_x(), plan.chunks);
    let input = input.offset(start as usize);
    let range = plan.range(chunk);
    // SAFETY: the segment has an item, and the chunk lies in it.
    let (op, partial) = unsafe {
        let op = op.begin(input.read());
        let (chunk, len) = (input.offset(range.start as usize), (range.end - range.start) as u32);
        (op, O::agent().fold_on_gpu::<P, ANY_BLOCK, WIDTH>(&op, chunk, len, range.start))
    };
    if chunks == 1 {
        if thread == 0 {
            // SAFETY: as the caller promises.
            unsafe { arguments.deliver(&op, index, partial, plan.len) };
        }
        return None;
    }
    let words = slot::words::<O::Accumulator>();
    let slots = cut.partials.wrapping_add(first_slot * words);
    let groups = if O::EXACT { 0 } else { plan.groups() };
    let is_last = chunk == chunks - 1;
    // SAFETY: each block puts a value into its slot, and each slot is taken once. The whole of one warp is here.
    unsafe {
        if thread == 0 {
            partials::put(slots, chunk, partial);
        }
        if thread >= warp::WARP_SIZE || !(is_last || groups > 0 && chunk % GROUP == GROUP - 1) {
            return None;
        }
        let mut partials = Partials { index, start, len: plan.len, slots, count: chunks };
        if groups > 0 {
            let group = chunk / GROUP;
            let first = group * GROUP;
            let of_group =
                partials::take_group::<O, P::Item>(&op, slots.add(first as usize * words), chunk + 1 - first);
            let of_groups = slots.add(chunks as usize * words);
            if thread == 0 {
                partials::put(of_groups, group, of_group);
            }
            if !is_last {
                return None;
            }
            (partials.slots, partials.count) = (of_groups, groups);
        } else if arguments.shape.are_rows() {
            return Some(Ended::Row(index as u32));
        }
        Some(Ended::Segment(partials))
    }
}
