//! The kernel of segments that are not short.
//!
//! ```text
//! a warp has the chunks, or the parts of chunks, that start in its share of the positions
//!     for each part:  fold its units; lane i keeps the value of unit i; fold the lanes
//!                     lane i keeps the value of part i, 32 parts a round
//!     if one warp has the whole segment: fold the rounds, and deliver the result
//!     else: store the parts' values in slots and count them; the warp that completes the count folds all
//! ```
//!
//! The segments are those on the warp's list, or all of them, or rows that have no better kernel. Parts are for segments of
//! few chunks, or with tall chunks. Segments of more than [`few_rows`] are left to the kernel of `chunks`, by a list.

use super::segments::{
    Arguments, THREADS, WARPS, first_slot, is_aligned, load_partial, plan_of, rotate, store_partial,
    warp_of_block,
};
pub use super::segments::{Cut, SegmentBounds};
use super::whole_rows::{LOADS, Part, Units};
use crate::agent::summed_from;
use crate::exchange::slot;
use crate::input::Input;
use crate::plan::few_rows;
use crate::tree::fold_lanes;
use crate::{Op, Plan};
use bytemuck::{Pod, Zeroable};
use core::array::from_fn;
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, shared_array, thread, warp};

/// Rows of a tall chunk, at least. It has as many parts as it can have.
pub const TALL_ROWS: u32 = 32;

/// Reduces each listed segment of `arguments.input`, or all segments.
///
/// # Safety
///
/// As for [`reduce_segments`](super::segments::reduce_segments), which is launched before if there are lists.
#[inline(always)]
pub unsafe fn reduce_larger<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    if const { matches!(summed_from::<O, P::Item>(), Some(0)) } {
        return;
    }
    let larger = Larger::<O, P, WIDTH> {
        arguments,
        next: shared_array![u64; 2 * WARPS as usize],
        share: shared_array![Share; WARPS as usize],
        heads: shared_array![O::Accumulator; if waits_in_shared::<O, P::Item>() { THREADS as usize } else { 1 }],
        waiting: shared_array![O::Accumulator; if waits_in_shared::<O, P::Item>() { THREADS as usize } else { 1 }],
    };
    // SAFETY: all lanes of the warp are here.
    unsafe { larger.fold() }
}

/// Returns whether the block's 48 KiB of shared memory have room for two accumulators a thread.
const fn waits_in_shared<O: Op<I>, I: Copy + 'static>() -> bool {
    size_of::<O::Accumulator>() <= 40
}

/// The arguments of a launch, and a block's shared memory.
///
/// Values that all lanes share and seldom need are in shared memory, because each lane would have registers
/// for them: if the loop over a segment's units has too few registers and spills, rows of 1,024 take 1.4
/// times as long.
struct Larger<O: Op<P::Item>, P: Input, const WIDTH: usize> {
    arguments: Arguments<P, O, O::Output>,
    /// For each warp: the next of its segments, and their end.
    next: Shared<u64>,
    /// For each warp: its share of a segment.
    share: Shared<Share>,
    /// For each thread, if there is room: the value of a part of this round, and the accumulator of the
    /// rounds before. They take no registers then.
    heads: Shared<O::Accumulator>,
    waiting: Shared<O::Accumulator>,
}

impl<O: Op<P::Item>, P: Input, const WIDTH: usize> Larger<O, P, WIDTH> {
    /// Reduces the segments, or their chunks and parts, that start in the warp's share: those on its list, or
    /// all.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold(&self) {
        let Arguments { shape: segments, cut, .. } = self.arguments;
        let count = segments.count();
        let list = self.arguments.list();
        // SAFETY: as the caller promises; the list has indices of segments.
        unsafe {
            let [first, end] = if cut.lists.is_null() {
                let [first, end] =
                    segments.first_from(count, cut.weight.into(), self.arguments.positions(count));
                // The segment before may reach into the share.
                [first.saturating_sub(1), end]
            } else {
                [0, list.read()]
            };
            let next = 2 * warp_of_block();
            if warp::lane_id() == 0 {
                self.next.write(next, first);
                self.next.write(next + 1, end);
            }
            warp::sync_warp(warp::ALL);
            loop {
                intrinsics::no_unroll();
                let index = self.next.read(next);
                if index >= self.next.read(next + 1) {
                    return;
                }
                warp::sync_warp(warp::ALL);
                if warp::lane_id() == 0 {
                    self.next.write(next, index + 1);
                }
                let segment = if cut.lists.is_null() { index } else { list.add(index as usize + 1).read() };
                let (start, stop) = (segments.start(segment), segments.start(segment + 1));
                if segments.is_valid(start, stop) {
                    self.fold_segment(segment, start, stop - start);
                } else {
                    self.arguments.is_wrong(segment);
                }
                warp::sync_warp(warp::ALL);
            }
        }
    }

    /// Reduces the parts of a segment that start in the warp's share.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_segment(&self, segment: u64, start: u64, len: u64) {
        let Arguments { input, shape: segments, op, cut, .. } = self.arguments;
        let lane = warp::lane_id();
        let plan = plan_of::<WIDTH>(len, cut.block, false);
        let row = plan.row.trailing_zeros();
        // Rows of a chunk; a single chunk is as long as its segment.
        let of_chunk = if plan.chunks > 1 { plan.chunk } else { len };
        let rows = ((of_chunk + plan.row - 1) >> row) as u32;
        let is_of_row = if segments.are_rows() { cut.has(Cut::SHORT) } else { of_chunk <= plan.row };
        let units = Units::of::<O, P::Item, WIDTH>(is_of_row, &cut);
        // Units and parts of a chunk, as logarithms.
        let of_chunk = units.of_chunk(cut.block);
        let parts = if rows >= TALL_ROWS {
            of_chunk
        } else if len < plan.row {
            0
        } else {
            of_chunk.min(cut.parts)
        };
        // The parts that start before each end of the share. Parts have the same number of positions each.
        let all = plan.chunks << parts;
        let positions = self.arguments.positions(segments.count());
        let [first, end] = positions.map(|position| {
            let before = position.saturating_sub(start + u64::from(cut.weight) * segment);
            if before == 0 {
                0
            } else if before >= len || all == 1 {
                all
            } else {
                let grain = row - parts;
                (((before + (1 << grain) - 1) >> grain) as u32).div_ceil(rows.max(1)).min(all)
            }
        });
        if !O::EXACT && !cut.long.is_null() && len > few_rows(cut.block) << row {
            if first == 0 && end > 0 && lane == 0 {
                // SAFETY: the list has a number and room for [`most_long`] segments.
                unsafe { self.arguments.list_long::<WIDTH>(segment) };
            }
            return;
        }
        let (mut part, mut in_round) = (first, 0);
        let (mut head, mut waiting) = (op.identity(), op.identity());
        // SAFETY: as the caller promises.
        unsafe {
            if lane == 0 {
                self.share.write(warp_of_block(), Share { segment, start, len, parts, all, first, end });
            }
            warp::sync_warp(warp::ALL);
            let at = input.offset(start as usize);
            let op = if len > 0 { op.begin(at.read()) } else { op };
            // (For an exact operator, `fold_in_any_order` asks for each part.)
            let is_aligned = cut.has(Cut::ALIGNED) || !O::EXACT && is_aligned(at, WIDTH);
            // If the order does not matter, a warp that has all parts folds them at once.
            let is_one = all == 1 || O::EXACT && end - first == all && len < 1 << 31;
            while part < end {
                intrinsics::no_unroll();
                // Opaque: what the compiler would compute of it before the loop takes more registers than
                // there are.
                let parts = intrinsics::opaque(parts);
                let of = self.share.read(warp_of_block());
                let range = Plan { len: of.len, ..plan }.range(part >> parts);
                let number = part & ((1 << parts) - 1);
                let part_of = |start: u64, len: u32| {
                    let inside = self.arguments.inside(WIDTH, of.start + start);
                    Part { at: at.offset(start as usize), index: start, len, is_aligned, inside }
                };
                let value = if O::EXACT {
                    let of_part = (u64::from(rows) << row) >> parts;
                    let start = range.start + of_part * u64::from(number);
                    let end = range.end.min(start + of_part);
                    let (start, end) = if is_one { (0, of.len) } else { (start, end) };
                    let len = end.saturating_sub(start) as u32;
                    part_of(start, len).fold_in_any_order::<O, WIDTH>(&op)
                } else {
                    let of_part = of_chunk - parts;
                    let len = (range.end - range.start) as u32;
                    let part = part_of(range.start, len);
                    part.fold_in_order::<O, WIDTH>(&op, units, number << of_part, of_part)
                };
                if is_one {
                    if lane == 0 {
                        let of = self.share.read(warp_of_block());
                        self.arguments.deliver(&op, of.segment, value, of.len);
                    }
                    return;
                }
                // Lane i keeps the value of part i of the round.
                if waits_in_shared::<O, P::Item>() {
                    if lane == 0 {
                        self.heads.write(warp_of_block() * warp::WARP_SIZE + in_round, value);
                    }
                } else {
                    let (value, _) = warp::warp_shuffle_idx(warp::ALL, value, 0, 32);
                    if lane == in_round {
                        head = value;
                    }
                }
                part += 1;
                in_round += 1;
                if part == end || in_round == warp::WARP_SIZE {
                    self.settle(&op, part - in_round, head, &mut waiting);
                    in_round = 0;
                }
            }
        }
    }

    /// Folds the values of a round of parts, one a lane, into those of the rounds before. Delivers the
    /// segment's result when all parts are there.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together, for one round of the share after another.
    #[inline(always)]
    unsafe fn settle(&self, op: &O, part: u32, head: O::Accumulator, waiting: &mut O::Accumulator) {
        let lane = warp::lane_id();
        let mut head = head;
        // SAFETY: each warp, and each thread, accesses its own elements.
        let of = unsafe {
            warp::sync_warp(warp::ALL);
            let of = self.share.read(warp_of_block());
            if waits_in_shared::<O, P::Item>() && part + lane < of.end {
                head = self.heads.read(thread::thread_idx_x());
            }
            warp::sync_warp(warp::ALL);
            of
        };
        let cut = self.arguments.cut;
        let (all, chunks) = (of.all, of.all >> of.parts);
        let first = first_slot(of.start, u64::from(cut.block) * WIDTH as u64, cut.parts) as usize;
        let is_end = part + warp::WARP_SIZE >= of.end;
        let words = slot::words::<O::Accumulator>();
        let slot_of = |part: u32| cut.partials.wrapping_add((first + part as usize) * words);
        // SAFETY: as the caller promises; the slots are the segment's.
        unsafe {
            if of.end - of.first == all {
                self.add(op, [chunks, of.parts], part, head, waiting);
                if !is_end {
                    return;
                }
            } else {
                if part + lane < of.end {
                    store_partial(slot_of(part + lane), &head);
                }
                if !is_end || !self.arguments.are_there(first, of.end - of.first, all) {
                    return;
                }
                let partial = |part: u32| load_partial(slot_of(if part < all { part } else { 0 }));
                let mut part = 0;
                while part < all {
                    intrinsics::no_unroll();
                    if size_of::<O::Accumulator>() > 16 {
                        self.add(op, [chunks, of.parts], part, partial(part + lane), waiting);
                        part += warp::WARP_SIZE;
                        continue;
                    }
                    // All loads are in flight before the first value is added.
                    let mut heads: [O::Accumulator; LOADS] =
                        from_fn(|next| partial(part + lane + warp::WARP_SIZE * next as u32));
                    let mut next = 0;
                    while next < LOADS && part < all {
                        intrinsics::no_unroll();
                        self.add(op, [chunks, of.parts], part, heads[0], waiting);
                        rotate(&mut heads);
                        part += warp::WARP_SIZE;
                        next += 1;
                    }
                }
            }
            let mut value = if waits_in_shared::<O, P::Item>() {
                self.waiting.read(thread::thread_idx_x())
            } else {
                *waiting
            };
            if chunks > 1 {
                value = fold_lanes::<O, P::Item>(op, value, 5);
            }
            if lane == 0 {
                self.arguments.deliver(op, of.segment, value, of.len);
            }
        }
    }

    /// Folds the values of a round of parts into the chunks' accumulators: the partial result of chunk i goes
    /// to lane i modulo 32.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together, for one round after another.
    #[inline(always)]
    unsafe fn add(
        &self,
        op: &O,
        [chunks, parts]: [u32; 2],
        part: u32,
        head: O::Accumulator,
        waiting: &mut O::Accumulator,
    ) {
        let chunk = part >> parts;
        let ahead = warp::lane_id().wrapping_sub(chunk) % warp::WARP_SIZE;
        let is_there = ahead < (warp::WARP_SIZE >> parts) && chunk + ahead < chunks;
        // SAFETY: as the caller promises; each thread accesses its own element.
        unsafe {
            let value = fold_lanes::<O, P::Item>(op, head, parts);
            let (value, _) = warp::warp_shuffle_idx(warp::ALL, value, (ahead << parts) % 32, 32);
            let thread = thread::thread_idx_x();
            let mut all = op.identity();
            if part > 0 {
                all = if waits_in_shared::<O, P::Item>() { self.waiting.read(thread) } else { *waiting };
            }
            if is_there {
                // A single partial result is not combined with the identity, so that its bits stay.
                all = if chunks > 1 { op.combine(all, value) } else { value };
            }
            if waits_in_shared::<O, P::Item>() {
                self.waiting.write(thread, all);
            } else {
                *waiting = all;
            }
        }
    }
}

/// A warp's share of a segment.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Share {
    segment: u64,
    start: u64,
    len: u64,
    /// Parts of a chunk, as a logarithm.
    parts: u32,
    /// Parts of all chunks; the warp has the parts `first..end`.
    all: u32,
    first: u32,
    end: u32,
}
