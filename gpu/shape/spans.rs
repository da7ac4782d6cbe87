//! The kernel of segments between offsets that blocks fold, and of rows that a block folds alone. (A **line** is a row of the plan.)
//!
//! ```text
//! a block folds a span: its lines, four at a time for each team, in a thread and over the lanes of a warp
//!     the values of the warps, for each chunk
//! if the span is the whole segment: fold the chunks (a segment of up to two lines: by `deliver_short`), and deliver the result
//! else: store the partial results of the chunks and count them; the block that completes the count folds all
//! ```
//!
//! A **span** is neighbouring chunks of a segment: up to [`Cut::share`] items, or one chunk if that is longer. Each segment has a block
//! for its first span. The blocks before these are for all other spans. There is such a block for each `share` items of the array,
//! because at most one span starts in `share` items. A block that has no span mostly sees that from 32 offsets, without a search.
//!
//! A **team** is as many threads as a line has leaves: BLOCK. If segments are few, a block has several teams, so that more loads are in
//! flight. Teams take turns at the lines if each line is a chunk; of other spans the first team folds all lines.

use super::chunks::deliver_short;
use super::lines::{LOADS, folds_several};
use super::segments::{
    Arguments, first_slot, fold_leaf, is_aligned, load_leaf, load_partial, plan_of, store_partial,
};
pub use super::segments::{Cut, SegmentBounds};
use crate::Op;
use crate::agent::Agent;
use crate::exchange::slot;
use crate::input::Input;
use crate::plan::{SINGLE_ROWS, few_rows};
use crate::tree::{fold_lanes, fold_slots, of_thread, unrolled};
use bytemuck::{Pod, Zeroable};
use core::array::from_fn;
use core::num::NonZeroU32;
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, shared_array, thread, warp};

/// Chunks of a span, at most.
const MOST_CHUNKS: u32 = 32;

/// Lines of a span, at most: segments of more lines have chunks of more than four.
pub const MOST_LINES: u64 = 128;

/// Returns whether this kernel is compiled for an operator. It is not if items are narrow or accumulators large: four lines take
/// more registers than a thread has, and the kernel of [`larger`](super::larger) is faster.
pub const fn folds_spans<O: Op<P::Item>, P: Input>() -> bool {
    has_spans(folds_several::<O, P::Item>(), O::EXACT, slot::words::<O::Accumulator>(), P::BYTES)
}

/// As [`folds_spans`]. The arguments say whether the operator [folds several](folds_several) chunks and is [exact](Op::EXACT), the
/// words of its accumulators and the bytes of an item.
pub const fn has_spans(folds_several: bool, is_exact: bool, words: usize, bytes: usize) -> bool {
    folds_several && bytes >= 4 && words <= if is_exact { 2 } else { 4 }
}

/// Reduces the segments of `arguments`. Rows are one span each.
///
/// # Safety
///
/// The launch has one team or several a block, and [`Cut::of_spans`] has made the cut. [`Cut::share`] is a whole number of lines, from two
/// to [`MOST_LINES`]. There is a block for each segment, and further ones for each `share` items of the array but the first. The operator
/// is one that [blocks fold](folds_spans). Otherwise as for [`reduce_segments`](super::segments::reduce_segments), without lists.
#[inline(always)]
pub unsafe fn reduce_spans<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    if const { folds_spans::<O, P>() } {
        let of_warps =
            shared_array![O::Accumulator; if folds_spans::<O, P>() { 32 * MOST_CHUNKS as usize } else { 1 }];
        let of_chunks =
            shared_array![O::Accumulator; if folds_spans::<O, P>() { MOST_CHUNKS as usize } else { 1 }];
        let place = shared_array![Place; 1];
        let block = Block::<O, P, WIDTH> { arguments, place, of_warps, of_chunks };
        // SAFETY: as the caller promises. All threads of the block find the same span.
        unsafe {
            if let Some(span) = block.find() {
                block.fold(&span);
            }
        }
    }
}

/// Whether an accumulator has one word and the order of items matters. Then each item is folded under a condition, whether its leaf is
/// whole or not: less code, and 3% faster if segments are few.
const fn is_light<O: Op<I>, I: Copy + 'static>() -> bool {
    !O::EXACT && slot::words::<O::Accumulator>() == 1
}

/// Where a block's span is in its segment. In shared memory, because it is not needed before the lines have been folded.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Place {
    /// The segment, its first item and its items.
    segment: u64,
    start: u64,
    len: u64,
    /// The span's first chunk, and how many the segment has.
    first: u32,
    of_segment: u32,
}

/// A block's span. It has no `bool`: rustc would make the `None` of an `Option` a value of it, of 16 bits. If a thread has 32 registers, ptxas
/// stores such a value in memory, and a block with a short segment waits for it: sums of 1,000 segments of 262 `f32` take 2.72 µs so on an
/// H200, 2.57 without.
struct Span<O, P> {
    op: O,
    /// Items of its segment, of the span and of a chunk, and the index of the span's first item in the segment.
    of_segment: u64,
    len: u32,
    chunk: NonZeroU32,
    item: u64,
    /// Where it lies.
    at: P,
}

/// What a block has, whatever its span. The arguments are here and not in [`Span`], because ptxas does not see that some of them are
/// constants if [`Block::find`] returns them.
struct Block<O: Op<P::Item>, P: Input, const WIDTH: usize> {
    arguments: Arguments<P, O, O::Output>,
    place: Shared<Place>,
    /// For each chunk, the values of warps, and their result.
    of_warps: Shared<O::Accumulator>,
    of_chunks: Shared<O::Accumulator>,
}

/// What a thread knows while it folds the lines of a span.
struct Lines<A, I, const WIDTH: usize> {
    /// The accumulators of the chunk.
    all: [A; WIDTH],
    /// Of an exact operator's last items, which are no whole leaf, the thread's one, if it has one.
    last: I,
    /// The first item of the next four lines, the number of the chunk that has it, and its end.
    first: u32,
    chunk: u32,
    end: u32,
}

/// Stands for a chunk's number where a line is not the last one of its chunk.
const NONE: u32 = u32::MAX;

impl<O: Op<P::Item>, P: Input, const WIDTH: usize> Block<O, P, WIDTH> {
    /// Returns the block's span, if there is one. Reports a segment that does not lie in the array, lists a long one, and reduces a
    /// short one.
    ///
    /// # Safety
    ///
    /// As for [`reduce_spans`].
    #[inline(always)]
    unsafe fn find(&self) -> Option<Span<O, P>> {
        let Self { arguments, place, .. } = self;
        let &Arguments { input, shape: segments, cut, .. } = arguments;
        let team = cut.team();
        let line = team.trailing_zeros() + WIDTH.trailing_zeros();
        let share = u64::from(cut.share);
        let further = thread::grid_dim_x() - segments.count as u32;
        let is_first = thread::block_idx_x() >= further;
        let mut index = u64::from(thread::block_idx_x().wrapping_sub(further));
        let mut item = 0;
        if !is_first {
            item = u64::from(thread::block_idx_x() + 1) * share;
            // SAFETY: all lanes of the warp are here.
            index = unsafe { around(&segments, item) };
        }
        let (start, stop) = segments.ends(index);
        if !segments.is_valid(start, stop) {
            if is_first {
                arguments.is_wrong(index);
            }
            return None;
        }
        let len = stop - start;
        let is_whole = len <= share;
        let (mut first, mut items) = (0, len);
        let chunk;
        if is_whole {
            if !is_first {
                return None;
            }
            if len <= 2 << line {
                // SAFETY: no other block has the segment, which lies in the array.
                unsafe { deliver_short::<O, P, WIDTH>(arguments, (index, start, len), || team) };
                return None;
            }
            chunk = chunk_lines(((len + (1 << line) - 1) >> line) as u32) << line;
        } else {
            let plan = plan_of::<WIDTH>(len, team, false);
            chunk = plan.chunk as u32;
            if !O::EXACT && !cut.long.is_null() && len > few_rows(team) << line {
                if is_first && thread::thread_idx_x() == 0 {
                    // SAFETY: there is a list; a segment has one first span.
                    unsafe { arguments.list_long::<WIDTH>(index) };
                }
                return None;
            }
            // Lines of a chunk, chunks of a span, and the lines of both. (A division by 0 would be a call.)
            let rows = ((plan.chunk >> line) as u32).max(1);
            let of_span = (cut.share >> line).div_ceil(rows).clamp(1, MOST_CHUNKS);
            let lines = (of_span * rows).max(1);
            let mut span = 0;
            if !is_first {
                if item < start || item >= stop {
                    return None;
                }
                // The first span that starts at `item` or later.
                span = (((item - start + (1 << line) - 1) >> line) as u32).div_ceil(lines);
                first = u64::from(span * lines) << line;
                if span == 0 || first >= len || start + first >= item + share {
                    return None;
                }
            }
            let most = u64::from(lines) << line;
            items = if len - first < most { len - first } else { most };
            // SAFETY: one thread writes, and a barrier is before the reads.
            unsafe {
                if thread::thread_idx_x() == 0 {
                    let (first, of_segment) = (span * of_span, plan.chunks);
                    place.write(0, Place { segment: index, start, len, first, of_segment });
                }
            }
        }
        let at = input.offset((start + first) as usize);
        // SAFETY: a segment that is not empty has a first item.
        let op = unsafe {
            if len > 0 { arguments.op.begin(input.offset(start as usize).read()) } else { arguments.op }
        };
        Some(Span { op, of_segment: len, len: items as u32, chunk: NonZeroU32::new(chunk)?, item: first, at })
    }

    /// Folds the span, and delivers the segment's result if no other block does.
    ///
    /// # Safety
    ///
    /// Every thread of the block calls it.
    #[inline(always)]
    unsafe fn fold(&self, span: &Span<O, P>) {
        let Self { arguments: Arguments { cut, shape: segments, .. }, .. } = self;
        let (op, team) = (&span.op, cut.team());
        let is_whole = span.of_segment <= cut.share.into();
        let (thread, log) = (thread::thread_idx_x(), (team / warp::WARP_SIZE).trailing_zeros());
        // SAFETY: as the caller promises. All threads are at the first barrier, those that have not returned at the second one.
        unsafe {
            let chunks = self.fold_lines(span);
            thread::sync_threads();
            if thread >= team {
                return;
            }
            let values = chunks << log;
            let is_there = thread & !31 < values;
            let mut value = op.identity();
            if is_there {
                value = self.of_warps.read(if thread < values { thread } else { values - 1 });
                value = fold_lanes::<O, P::Item>(op, value, log);
            }
            if chunks > 1 || !is_whole {
                if thread & ((1 << log) - 1) == 0 && thread < values {
                    self.of_chunks.write(thread >> log, value);
                }
                thread::sync_threads();
                if thread >= warp::WARP_SIZE {
                    return;
                }
                let partial = self.of_chunks.read(if thread < chunks { thread } else { 0 });
                if !is_whole {
                    self.settle(op, chunks, partial);
                    return;
                }
                value = op.identity();
                if thread < chunks {
                    value = op.combine(value, partial);
                }
                value = fold_lanes::<O, P::Item>(op, value, 5);
            }
            if thread == 0 {
                let further = thread::grid_dim_x() - segments.count as u32;
                self.arguments.deliver(op, (thread::block_idx_x() - further).into(), value, span.of_segment);
            }
        }
    }

    /// Returns the thread's number within its team, and the team's.
    #[inline(always)]
    fn thread_and_team(&self) -> (u32, u32) {
        let (thread, team) = (thread::thread_idx_x(), self.arguments.cut.team());
        (thread & (team - 1), thread >> team.trailing_zeros())
    }

    /// Returns where the thread's leaf of a slot's line lies, how many items are left from there on, and the first one's index, if
    /// the slots have the lines from item `first` of the span on.
    #[inline(always)]
    fn leaf(&self, span: &Span<O, P>, first: u32, slot: usize) -> (P, u32, u64) {
        let line = self.arguments.cut.team() * WIDTH as u32;
        let item = first + self.thread_and_team().0 * WIDTH as u32 + slot as u32 * line;
        (span.at.offset(item as usize), span.len.saturating_sub(item), span.item + u64::from(item))
    }

    /// Loads the thread's leaves of four lines, each by `load`, if it has `least` items or more left.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn load(
        &self,
        span: &Span<O, P>,
        first: u32,
        least: u32,
        load: impl Fn(P, u32) -> P::Leaf<WIDTH>,
    ) -> [P::Leaf<WIDTH>; LOADS] {
        // SAFETY: as the caller promises.
        unsafe {
            intrinsics::together(|| {
                from_fn(|slot| {
                    let (at, left, _) = self.leaf(span, first, slot);
                    if left >= least { load(at, left) } else { P::no_leaf() }
                })
            })
        }
    }

    /// Folds the span's lines, over the lanes of each warp. Returns how many chunks they are, to the first team.
    ///
    /// # Safety
    ///
    /// Every thread of the block calls it.
    #[inline(always)]
    unsafe fn fold_lines(&self, span: &Span<O, P>) -> u32 {
        let &Span { ref op, at, len, .. } = span;
        let chunk = span.chunk.get();
        let is_aligned = is_aligned(at, WIDTH) && (O::EXACT || len.is_multiple_of(WIDTH as u32));
        let (width, team) = (WIDTH as u32, self.arguments.cut.team());
        let line = team * width;
        let log = team.trailing_zeros();
        let least = if O::EXACT { width } else { 1 };
        // Teams take turns if a line is a chunk. Then a team skips the lines of the others after each four lines.
        let take_turns = chunk == line;
        let (thread, number) = self.thread_and_team();
        let before = number * LOADS as u32;
        let skipped = if take_turns { ((thread::block_dim_x() >> log) - 1) * LOADS as u32 } else { 0 };
        // SAFETY: as the caller promises. The segment has these items.
        unsafe {
            let mut lines = Lines {
                all: [op.identity(); WIDTH],
                last: match span.last::<WIDTH>() {
                    Some(last) => at.offset(last as usize).read(),
                    None => P::zeroed(),
                },
                first: if take_turns || number == 0 { before * line } else { len },
                chunk: before,
                end: (before + 1) * chunk,
            };
            loop {
                intrinsics::no_unroll();
                // Opaque: else the compiler keeps an address and a number of items for each of the four lines in registers.
                let first = intrinsics::opaque(lines.first);
                lines.first = first;
                let is_inside = first + (LOADS as u32 - 1) * line + ((thread | 31) + 1) * width <= len;
                let are_whole = is_aligned || O::EXACT || !const { is_light::<O, P::Item>() } && is_inside;
                let loads = match is_aligned {
                    true => self.load(span, first, least, |at, _| at.load()),
                    false if are_whole => self.load(span, first, least, |at, _| at.load_each()),
                    false => self.load(span, first, 0, |at, left| load_leaf::<O, P, WIDTH>(at, left)),
                };
                self.fold_four(span, &mut lines, loads, [are_whole, is_inside]);
                lines.first += skipped * line;
                lines.chunk += skipped;
                lines.end += skipped * line;
                if lines.first >= len {
                    let all = (len + line - 1) >> (log + WIDTH.trailing_zeros());
                    return if take_turns { all } else { lines.chunk };
                }
            }
        }
    }

    /// Folds a thread's leaves of four lines, and over the lanes of the warp the chunks that end with one of them. If `are_whole`, a leaf
    /// that has an item is whole, or the operator is exact. If `are_there`, all four leaves of each lane of the warp are whole. Code without
    /// branches folds these: norms of segments of 33,174 `f32` take 74 µs in place of 76 on an H200.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_four(
        &self,
        span: &Span<O, P>,
        lines: &mut Lines<O::Accumulator, P::Item, WIDTH>,
        loads: [P::Leaf<WIDTH>; LOADS],
        [are_whole, are_there]: [bool; 2],
    ) {
        let &Span { ref op, len, .. } = span;
        let chunk = span.chunk.get();
        let (lane, width, team) = (warp::lane_id(), WIDTH as u32, self.arguments.cut.team());
        let log = (team / warp::WARP_SIZE).trailing_zeros();
        let line = team * width;
        let mut ends = [NONE; LOADS];
        unrolled::<LOADS>(|slot| {
            let next = lines.first + (slot as u32 + 1) * line;
            if next - line < len.max(1) && (next >= lines.end || next >= len) {
                ends[slot] = lines.chunk;
                lines.chunk += 1;
                lines.end += chunk;
            }
        });
        if let Some(last) = span.last::<WIDTH>()
            && lines.first == 0
        {
            O::agent().fold_item(op, &mut lines.all[0], lines.last, span.item + u64::from(last));
        }
        let (mut values, first) = ([op.identity(); LOADS], lines.first);
        let mut fold = |are_there: bool| {
            unrolled::<LOADS>(|slot| {
                let (at, left, index) = self.leaf(span, first, slot);
                if are_there || are_whole && !const { is_light::<O, P::Item>() } {
                    if are_there || left >= if O::EXACT { width } else { 1 } {
                        O::agent().fold_load(op, &mut lines.all, P::items(loads[slot]), index);
                    }
                } else {
                    // SAFETY: there are these items.
                    unsafe { fold_leaf::<O, P, WIDTH>(op, &mut lines.all, loads[slot], at, left, index) };
                }
                values[slot] = of_thread::<O, P::Item, WIDTH>(op, lines.all);
                if ends[slot] != NONE {
                    lines.all = [op.identity(); WIDTH];
                }
            })
        };
        if are_there && !const { is_light::<O, P::Item>() } {
            fold(true);
        } else {
            fold(false);
        }
        // SAFETY: as the caller promises; each warp writes elements of its own.
        unsafe {
            let value = fold_slots::<O, P::Item>([*op; LOADS], values, 5).1;
            let mut end = NONE;
            for (slot, &of_slot) in ends.iter().enumerate() {
                end = if lane == slot as u32 { of_slot } else { end };
            }
            if end != NONE {
                self.of_warps.write((end << log) + self.thread_and_team().0 / warp::WARP_SIZE, value);
            }
        }
        lines.first += LOADS as u32 * line;
    }

    /// Stores the partial results of the span's chunks, one a lane, and counts them. The block that completes the segment's count
    /// folds all, and delivers the result.
    ///
    /// # Safety
    ///
    /// All lanes of one warp of the block call it.
    #[inline(always)]
    unsafe fn settle(&self, op: &O, chunks: u32, partial: O::Accumulator) {
        let Self { arguments: Arguments { cut, .. }, .. } = self;
        let (lane, words) = (warp::lane_id(), slot::words::<O::Accumulator>());
        // SAFETY: as the caller promises; the slots are the segment's.
        unsafe {
            let Place { segment, start, len, first: chunk, of_segment } = self.place.read(0);
            let first = first_slot(start, u64::from(cut.team()) * WIDTH as u64, 0) as usize;
            let slot_of = |chunk: u32| cut.partials.wrapping_add((first + chunk as usize) * words);
            if lane < chunks {
                store_partial(slot_of(chunk + lane), &partial);
            }
            if !self.arguments.are_there(first, chunks, of_segment) {
                return;
            }
            let (mut all, mut next) = (op.identity(), lane);
            while next < of_segment {
                intrinsics::no_unroll();
                // All loads are in flight before the first value is added.
                let partials: [O::Accumulator; LOADS] = from_fn(|load| {
                    let chunk = next + load as u32 * warp::WARP_SIZE;
                    load_partial(slot_of(if chunk < of_segment { chunk } else { 0 }))
                });
                unrolled::<LOADS>(|load| {
                    if next + (load as u32) * warp::WARP_SIZE < of_segment {
                        all = op.combine(all, partials[load]);
                    }
                });
                next += LOADS as u32 * warp::WARP_SIZE;
            }
            let all = fold_lanes::<O, P::Item>(op, all, 5);
            if lane == 0 {
                self.arguments.deliver(op, segment, all, len);
            }
        }
    }
}

impl<O: Op<P::Item>, P: Input> Span<O, P> {
    /// Returns which of an exact operator's last items, which are no whole leaf, the thread folds: one, as their order does not
    /// matter.
    #[inline(always)]
    fn last<const WIDTH: usize>(&self) -> Option<u32> {
        let (thread, rest) = (thread::thread_idx_x(), self.len % WIDTH as u32);
        (O::EXACT && thread < rest).then_some(self.len - rest + thread)
    }
}

/// Returns how many lines a chunk has if its segment has `lines` lines, [`MOST_LINES`] at most. The [`Plan`](crate::Plan) of the segment
/// says the same. To compute the plan takes more instructions, because a plan can be that of a longer segment.
#[inline(always)]
const fn chunk_lines(lines: u32) -> u32 {
    if lines as u64 <= SINGLE_ROWS { SINGLE_ROWS as u32 } else { lines.div_ceil(32) }
}

/// Returns the last segment that starts at an item or before. (If offsets descend, it may be another one.)
///
/// # Safety
///
/// All lanes of the warp call it together. There are segments.
#[inline(always)]
unsafe fn around(segments: &SegmentBounds, item: u64) -> u64 {
    let (count, lane) = (segments.count(), warp::lane_id());
    // The offsets around those that would be found if all segments had the same length.
    let guess = (item as f32 / segments.len as f32 * count as f32) as u64;
    let first = guess.saturating_sub(15);
    let start =
        if first + u64::from(lane) < count { segments.start(first + u64::from(lane)) } else { u64::MAX };
    // SAFETY: as the caller promises.
    unsafe {
        let before = warp::warp_vote_ballot(warp::ALL, start <= item);
        let found = before.count_ones();
        if before & 1 != 0 && found < 32 {
            return first + u64::from(found - 1);
        }
        let [found, _] = segments.first_from(count, 0, [item + 1; 2]);
        found.saturating_sub(1)
    }
}
