//! The kernel of rows that warps fold, and of segments that are not short. Rows are segments of one length. (Other rows have
//! the kernel of [`chunks`](super::chunks).)
//!
//! ```text
//! whole rows:       a warp has a share of the rows, and folds each of them ([`whole_rows`](super::whole_rows))
//! other segments:   a warp has the chunks, or the parts of chunks, that start in its share of the positions
//!     for each part:  fold its units; lane i keeps the value of unit i; fold the lanes
//!                     lane i keeps the value of part i, 32 parts a round
//!     if one warp has the whole segment: fold the rounds, and deliver the result
//!     else: store the parts' values in slots and count them; the warp that completes the count folds all
//! ```
//!
//! The segments are those on the warp's list, or all of them. Parts are for segments of few chunks, or with
//! tall chunks. Segments of more than [`few_rows`] are left to the kernel of `chunks`, by a list.

use super::segments::{
    Arguments, THREADS, WARPS, first_slot, fold_leaf, is_aligned, load_leaf, most_long, plan_of, rotate,
    warp_of_block, warp_of_grid,
};
pub use super::segments::{Cut, SegmentBounds};
use super::whole_rows::{LOADS, MOST_WORDS, SHORT, fold_long, fold_short, of_load};
use crate::agent::Agent;
use crate::exchange::slot;
use crate::input::Input;
use crate::plan::few_rows;
use crate::tree::{fold_lanes, fold_leaves_of_warp, of_thread, unrolled};
use crate::{Op, Plan};
use bytemuck::{Pod, Zeroable};
use core::array::from_fn;
use core::hint::assert_unchecked;
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU32, AtomicU64};
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, shared_array, thread, warp};

/// The kernel as a type.
pub type Kernel<O, P> = super::Kernel<SegmentBounds, Larger, O, P>;

/// Names the [`Kernel`].
pub enum Larger {}

/// Rows of a tall chunk, at least. It has as many parts as it can have.
pub const TALL_ROWS: u32 = 32;

/// Reduces each row of `arguments.input`, or each listed segment, or all segments.
///
/// # Safety
///
/// As for [`reduce_segments`](super::segments::reduce_segments), which is launched before if there are lists.
/// If there are no offsets and [`Cut::weight`] is 0, [`Cut::share`] is the rows of a warp, which have at least an item, and
/// at most [`MOST_WORDS`] words an accumulator. Such a row is [short](super::whole_rows::is_short), or the operator is
/// exact and rows have less than 2^30 items, or BLOCK is at least 128 and a chunk has one row of the plan, or several if
/// lanes have [registers](super::whole_rows::leaves_of_rows) for less than four leaves. No segment has groups of chunks.
#[inline(always)]
pub unsafe fn reduce_rows<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    let Arguments { shape: segments, cut, .. } = arguments;
    let work = Rows::<O, P, WIDTH> {
        arguments,
        next: shared_array![u64; 2 * WARPS as usize],
        share: shared_array![Share; WARPS as usize],
        heads: shared_array![O::Accumulator; if waits_in_shared::<O, P::Item>() { THREADS as usize } else { 1 }],
        waiting: shared_array![O::Accumulator; if waits_in_shared::<O, P::Item>() { THREADS as usize } else { 1 }],
    };
    // SAFETY: all lanes of the warp are here.
    unsafe {
        if slot::words::<O::Accumulator>() <= MOST_WORDS && segments.offsets.is_null() && cut.weight == 0 {
            let first = warp_of_grid() * u64::from(cut.share);
            let end = segments.count.min(first + u64::from(cut.share));
            let is_whole =
                (segments.size as u32).is_multiple_of(WIDTH as u32) && is_aligned(arguments.input, WIDTH);
            if u64::from(cut.share) <= of_load(segments.size, WIDTH as u64) {
                fold_short::<O, P, WIDTH, 1>(&arguments, first, end, is_whole);
            } else if segments.size > SHORT * WIDTH as u64 {
                fold_long::<O, P, WIDTH>(&arguments, first, end, is_whole);
            } else if is_whole {
                fold_short::<O, P, WIDTH, LOADS>(&arguments, first, end, true);
            } else {
                fold_short::<O, P, WIDTH, LOADS>(&arguments, first, end, false);
            }
        } else {
            work.fold_larger();
        }
    }
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
struct Rows<O: Op<P::Item>, P: Input, const WIDTH: usize> {
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

impl<O: Op<P::Item>, P: Input, const WIDTH: usize> Rows<O, P, WIDTH> {
    /// Reduces the segments, or their chunks and parts, that start in the warp's share: those on its list, or
    /// all.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_larger(&self) {
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
        let rows = if plan.chunks > 1 { plan.chunk >> row } else { (len + plan.row - 1) >> row } as u32;
        let reach = Reach::of::<O, P::Item, WIDTH>(rows, plan.row as u32, cut.block);
        // Units and parts of a chunk, as logarithms.
        let units = cut.block.trailing_zeros() - reach.unit;
        let parts = if rows >= TALL_ROWS {
            units
        } else if len < plan.row {
            0
        } else {
            units.min(cut.parts.into())
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
                unsafe { self.list_long(segment) };
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
            let op = if len > 0 { op.begin(input.offset(start as usize).read()) } else { op };
            while part < end {
                intrinsics::no_unroll();
                // Opaque: what the compiler would compute of it before the loop takes more registers than
                // there are.
                let parts = intrinsics::opaque(parts);
                let of = self.share.read(warp_of_block());
                let range = Plan { len: of.len, ..plan }.range(part >> parts);
                let of_part = units - parts;
                let mut unit = (part & ((1 << parts) - 1)) << of_part;
                let end_of_part = unit + (1 << of_part);
                let mut of_units = op.identity();
                while unit < end_of_part {
                    intrinsics::no_unroll();
                    let item = range.start + u64::from((unit << reach.unit) * WIDTH as u32);
                    let left = range.end.saturating_sub(item) as u32;
                    if left > 0 {
                        let at = input.offset((of.start + item) as usize);
                        let is_inside = self.arguments.is_inside(of.start, of.start + of.len);
                        let value = fold_unit::<O, P, WIDTH>(&op, at, left, item, reach, is_inside);
                        // Lane i keeps the value of unit i.
                        let (value, _) = warp::warp_shuffle_idx(warp::ALL, value, 0, 32);
                        if lane == unit & ((1 << of_part) - 1) {
                            of_units = value;
                        }
                    }
                    unit += 1;
                }
                let value = fold_lanes::<O, P::Item>(&op, of_units, units - intrinsics::opaque(parts));
                if all == 1 {
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

    /// Puts a segment on the list of long ones. (There is no room only if offsets descend.)
    ///
    /// # Safety
    ///
    /// There is a list, and one lane calls it once for a segment.
    #[inline(always)]
    unsafe fn list_long(&self, segment: u64) {
        let Arguments { shape: segments, cut, .. } = self.arguments;
        // SAFETY: a BLOCK is not 0. (Else the division could panic.)
        unsafe { assert_unchecked(cut.block > 0) };
        let most = most_long(segments.len, u64::from(cut.block) * WIDTH as u64, cut.block);
        // SAFETY: as the caller promises.
        unsafe {
            let place = AtomicU64::from_ptr(cut.long).fetch_add(1, Ordering::Relaxed);
            if place < most {
                cut.long.add(1 + place as usize).write(segment);
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
                    let slot = slot_of(part + lane);
                    for word in 0..words {
                        AtomicU64::from_ptr(slot.add(word)).store(slot::word(&head, word), Ordering::Relaxed);
                    }
                }
                if !is_end {
                    return;
                }
                warp::sync_warp(warp::ALL);
                let mut is_last = false;
                if lane == 0 {
                    let arrived = AtomicU32::from_ptr(cut.counts.add(first));
                    let more = of.end - of.first;
                    is_last = arrived.fetch_add(more, Ordering::AcqRel) + more == all;
                    if is_last {
                        arrived.store(0, Ordering::Relaxed);
                    }
                }
                if !warp::warp_vote_any(warp::ALL, is_last) {
                    return;
                }
                warp::sync_warp(warp::ALL);
                let partial = |part: u32| {
                    let slot = slot_of(if part < all { part } else { 0 });
                    slot::unpack(|word| AtomicU64::from_ptr(slot.add(word)).load(Ordering::Relaxed))
                };
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

/// Which four loads of a chunk a lane has in flight: those at item i · near + j · far, for i and j of 0 and
/// 1.
#[derive(Clone, Copy)]
struct Reach {
    /// Leaves of a unit in each row, as a logarithm.
    unit: u32,
    near: u32,
    far: u32,
    /// Items from these loads to the next four.
    step: u32,
}

impl Reach {
    /// Four leaves of one row.
    const WIDE: u32 = 7;
    /// Two leaves of two rows.
    const BROAD: u32 = 6;
    /// A leaf of four rows.
    const TALL: u32 = 5;

    /// Returns the reach for chunks of `rows` rows of `row` items.
    #[inline(always)]
    fn of<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(rows: u32, row: u32, block: u32) -> Self {
        let line = warp::WARP_SIZE * WIDTH as u32;
        let has_room = has_room::<O, I>(WIDTH);
        // Whether a lane has registers for the results of several leaves of a row, or needs none.
        let is_wide = O::EXACT || if has_room { WIDTH > 1 } else { size_of::<O::Accumulator>() <= 24 };
        if rows >= TALL_ROWS
            || block < 64
            || !(O::EXACT || has_room || (rows <= 1 && is_wide && block >= 128))
        {
            Self { unit: Self::TALL, near: row, far: 2 * row, step: 4 * row }
        } else if rows > 1 || block < 128 || !is_wide {
            Self { unit: Self::BROAD, near: line, far: row, step: 2 * row }
        } else {
            Self { unit: Self::WIDE, near: line, far: 2 * line, step: row }
        }
    }

    /// Returns the item of a load.
    #[inline(always)]
    fn offset(&self, load: usize) -> u32 {
        (load % 2) as u32 * self.near + (load / 2) as u32 * self.far
    }
}

/// Returns whether a lane has registers for the accumulators of several loads.
const fn has_room<O: Op<I>, I: Copy + 'static>(width: usize) -> bool {
    !O::EXACT && size_of::<O::Accumulator>() * width <= 16
}

/// Folds a unit of a chunk. It begins at `at` with the item of index `index`, and `left` items of the chunk
/// are left. Leaves [inside](Arguments::is_inside) the array can be loaded at any address. Lane 0 gets the result.
///
/// # Safety
///
/// All lanes of the warp call it together; there are `left` items at `at`.
#[inline(always)]
unsafe fn fold_unit<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: &O,
    at: P,
    left: u32,
    index: u64,
    reach: Reach,
    is_inside: bool,
) -> O::Accumulator {
    let item = warp::lane_id() * WIDTH as u32;
    let (mut at, mut left, mut index) =
        (at.offset(item as usize), left.saturating_sub(item), index + u64::from(item));
    let is_aligned = is_aligned(at, WIDTH);
    // The accumulators of one leaf, or of two leaves side by side, or of four leaves.
    let mut all = [[op.identity(); WIDTH]; 2];
    // The results of four leaves, if there are no registers for their accumulators.
    let mut leaves = [op.identity(); LOADS];
    let is_wide = !O::EXACT && size_of::<O::Accumulator>() <= 24 && reach.unit == Reach::WIDE;
    // SAFETY: as the caller promises.
    unsafe {
        while warp::warp_vote_any(warp::ALL, left > 0) {
            intrinsics::no_unroll();
            let load_at = |load: usize| at.offset(reach.offset(load) as usize);
            let left_of = |load: usize| left.saturating_sub(reach.offset(load));
            let is_whole = |load: usize| is_aligned && left_of(load) >= WIDTH as u32;
            if has_room::<O, P::Item>(WIDTH) {
                let index_of = |load: usize, item: usize| index + u64::from(reach.offset(load)) + item as u64;
                let mut values = [[op.identity(); WIDTH]; LOADS];
                if is_whole(LOADS - 1) {
                    let items: [[P::Item; WIDTH]; LOADS] = from_fn(|load| load_at(load).load());
                    values = from_fn(|load| from_fn(|item| op.lift(items[load][item], index_of(load, item))));
                } else if left > 0 {
                    let items: [[P::Item; WIDTH]; LOADS] = intrinsics::apart(|| {
                        from_fn(|load| load_leaf::<O, P, WIDTH>(load_at(load), left_of(load)))
                    });
                    values = from_fn(|load| {
                        from_fn(|item| {
                            if (item as u32) < left_of(load) {
                                op.lift(items[load][item], index_of(load, item))
                            } else {
                                op.identity()
                            }
                        })
                    });
                }
                let add = |all: [O::Accumulator; WIDTH], values: [O::Accumulator; WIDTH]| {
                    from_fn(|item| op.combine(all[item], values[item]))
                };
                match reach.unit {
                    Reach::WIDE => unrolled::<LOADS>(|load| {
                        let leaf = add([op.identity(); WIDTH], values[load]);
                        all[load / WIDTH.min(4)][load % WIDTH.min(4)] =
                            of_thread::<O, P::Item, WIDTH>(op, leaf);
                    }),
                    Reach::BROAD => {
                        unrolled::<LOADS>(|load| all[load % 2] = add(all[load % 2], values[load]))
                    }
                    _ => unrolled::<LOADS>(|load| all[0] = add(all[0], values[load])),
                }
            } else {
                let is_full = is_aligned && left_of(LOADS - 1) >= WIDTH as u32;
                if size_of::<O::Accumulator>() <= 8 && warp::warp_vote_all(warp::ALL, is_full) {
                    let items: [[P::Item; WIDTH]; LOADS] = from_fn(|load| load_at(load).load());
                    let index_of = |load: usize| index + u64::from(reach.offset(load));
                    if is_wide {
                        unrolled::<LOADS>(|load| {
                            let mut all = [op.identity(); WIDTH];
                            O::agent().fold_load(op, &mut all, items[load], index_of(load));
                            leaves[load] = of_thread::<O, P::Item, WIDTH>(op, all);
                        });
                    } else {
                        unrolled::<LOADS>(|load| {
                            O::agent().fold_load(op, &mut all[0], items[load], index_of(load));
                        });
                    }
                } else {
                    let is_whole = |load: usize| (is_aligned || is_inside) && left_of(load) >= WIDTH as u32;
                    let items: [[P::Item; WIDTH]; LOADS] =
                        if is_aligned {
                            intrinsics::apart(|| {
                                from_fn(|load| {
                                    if is_whole(load) { load_at(load).load() } else { [P::zeroed(); WIDTH] }
                                })
                            })
                        } else {
                            intrinsics::apart(|| {
                                from_fn(|load| {
                                    if is_whole(load) {
                                        load_at(load).load_anywhere()
                                    } else {
                                        [P::zeroed(); WIDTH]
                                    }
                                })
                            })
                        };
                    unrolled::<LOADS>(|load| {
                        if is_whole(load) {
                            if is_wide {
                                all[0] = [op.identity(); WIDTH];
                            }
                            O::agent().fold_load(
                                op,
                                &mut all[0],
                                items[load],
                                index + u64::from(reach.offset(load)),
                            );
                            if is_wide {
                                leaves[load] = of_thread::<O, P::Item, WIDTH>(op, all[0]);
                            }
                        }
                    });
                    // The loads that are not whole: one at most, if leaves can be loaded at once.
                    let mut others = 0;
                    unrolled::<LOADS>(|load| {
                        others |= if left_of(load) > 0 && !is_whole(load) { 1u32 << load } else { 0 };
                    });
                    while others != 0 {
                        intrinsics::no_unroll();
                        let load = others.trailing_zeros() as usize;
                        let items = load_leaf::<O, P, WIDTH>(load_at(load), left_of(load));
                        let index = index + u64::from(reach.offset(load));
                        if is_wide {
                            all[0] = [op.identity(); WIDTH];
                        }
                        fold_leaf(op, &mut all[0], items, load_at(load), left_of(load), index);
                        if is_wide {
                            let leaf = of_thread::<O, P::Item, WIDTH>(op, all[0]);
                            unrolled::<LOADS>(|other| {
                                leaves[other] = if other == load { leaf } else { leaves[other] }
                            });
                        }
                        others &= others - 1;
                    }
                }
            }
            at = at.offset(reach.step as usize);
            left = left.saturating_sub(reach.step);
            index += u64::from(reach.step);
        }
        if !has_room::<O, P::Item>(WIDTH) {
            if is_wide {
                return fold_leaves_of_warp::<O, P::Item>(op, leaves);
            }
            return fold_lanes::<O, P::Item>(op, of_thread::<O, P::Item, WIDTH>(op, all[0]), 5);
        }
        let leaves = from_fn(|load| match (is_wide, load < 2) {
            (true, _) => all[load / WIDTH.min(4)][load % WIDTH.min(4)],
            (false, true) => of_thread::<O, P::Item, WIDTH>(op, all[load % 2]),
            (false, false) => op.identity(),
        });
        fold_leaves_of_warp::<O, P::Item>(op, leaves)
    }
}
