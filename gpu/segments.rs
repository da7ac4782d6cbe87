//! The kernel of many reductions at once: each segment of an array has the bits of reducing that slice alone.
//!
//! A segment's tree is that of its [`Plan`]; which lanes fold it is of no account, and BLOCK is the tree's parameter alone: a launch has blocks of
//! [`THREADS`].
//!
//! A **position** counts the items, and for each segment a leaf: shares of as many positions cost alike, whatever the segments' lengths are. A
//! warp has the segments that start in its share, and goes through them by batches.
//!
//! - A **leaf** is WIDTH neighbouring items. A lane folds SLOTS of them at a time, and all their loads are on their way before the first is
//!   folded.
//! - A **unit** is up to 32 · SLOTS neighbouring leaves of each row of a chunk, a power of two: a **short** segment is one, of one row. A warp lists
//!   the units of a batch by their leaves, rounded up to a power of two, and folds as many at a time as it has lanes for.
//! - A **middle** segment has several units, rows or chunks, and is folded by a warp after its short ones.
//! - **Long** ones are folded by the block, when its warps have done the others, 32 units at a time. It has the chunks that start in its share; who
//!   folds the last of a segment folds the chunks' partial results.

use crate::fold::fold_thread;
use crate::input::Input;
use crate::plan::SINGLE_ROWS;
use crate::shape::{self, Shape};
use crate::{Op, Plan, slot};
use core::array::from_fn;
use core::ffi::c_void;
use core::hint::assert_unchecked;
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU32, AtomicU64};
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, shared_array, thread, warp};

pub mod rows;

/// Threads in a block.
pub const THREADS: u32 = 256;

/// Blocks that a multiprocessor has registers for: 65,536, of which each thread has up to 64.
pub const RESIDENT_BLOCKS: u32 = 4;

/// Warps in a block.
pub const WARPS: u32 = THREADS / warp::WARP_SIZE;

/// The most positions in a warp's share, by the items that a thread folds side by side.
pub const fn most_positions(width: u64) -> u64 {
    32 * width * (LARGER as u64 - 2)
}

/// Leaves that a segment has more of to be long.
pub const LEAST_LONG: u64 = 256;

/// Segments that start in a warp's share and are not short, and one that reaches into it, at most.
const LARGER: u32 = 258;

/// Where segments lie.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Segments {
    /// Offsets on the device, one more than there are segments; none where all segments have the same length.
    offsets: *const c_void,
    /// Bytes of an offset, 4 or 8; or the segments' length.
    size: u64,
    /// Segments; or the most that there may be.
    pub count: u64,
    /// Where their number lies on the device, if it does.
    number: *const u64,
    /// Items in all.
    pub len: u64,
}

impl Segments {
    /// Those that offsets say.
    pub fn of_offsets<T>(offsets: *const T, count: u64, len: u64) -> Self {
        Self { offsets: offsets.cast(), size: size_of::<T>() as u64, count, number: core::ptr::null(), len }
    }

    /// Those of a length.
    pub fn of_length(length: u64, count: u64, len: u64) -> Self {
        Self { offsets: core::ptr::null(), size: length, count, number: core::ptr::null(), len }
    }

    /// Their length, if it is one.
    pub fn length(&self) -> Option<u64> {
        self.offsets.is_null().then_some(self.size)
    }

    /// As many as the device's memory says there, but no more than they are here.
    #[must_use]
    pub fn with_number(self, number: *const u64) -> Self {
        Self { number, ..self }
    }

    /// How many there are.
    #[inline(always)]
    fn count(&self) -> u64 {
        if self.number.is_null() {
            return self.count;
        }
        // SAFETY: it is there.
        let number = unsafe { self.number.read() };
        if number < self.count { number } else { self.count }
    }

    /// Where segment `index`, or that after the last, starts.
    #[inline(always)]
    fn start(&self, index: u64) -> u64 {
        if self.offsets.is_null() {
            return index * self.size;
        }
        // SAFETY: there are so many offsets.
        unsafe {
            if self.size == 4 {
                self.offsets.cast::<u32>().add(index as usize).read().into()
            } else {
                self.offsets.cast::<u64>().add(index as usize).read()
            }
        }
    }

    /// Where a lane's segments of a batch end; of those from `left` on, what the last before them does.
    #[inline(always)]
    fn stops(&self, batch: u64, lane: u32, left: u32) -> [u64; OF_LANE] {
        let place = |group: usize| {
            let index = lane + 32 * group as u32;
            (batch + u64::from(if index < left { index + 1 } else { left })) * self.size
        };
        if self.offsets.is_null() {
            return from_fn(place);
        }
        // By halves, so that there is one code for offsets of both sizes.
        let (upper, mask) = (self.size as usize - 4, if self.size == 8 { u64::MAX } else { 0 });
        from_fn(|group| {
            let place = self.offsets.wrapping_byte_add(place(group) as usize).cast::<u32>();
            // SAFETY: there are so many offsets.
            let [lower, upper] = unsafe { [place.read(), place.wrapping_byte_add(upper).read()] };
            u64::from(lower) | (u64::from(upper) << 32 & mask)
        })
    }

    /// Whether a segment lies there.
    #[inline(always)]
    fn is_valid(&self, start: u64, end: u64) -> bool {
        start <= end && end <= self.len
    }

    /// The first of `count` segments that starts at one of two positions or later, for each: found by all lanes, half of them for each. Of
    /// offsets that descend it is some segment, the same for all who ask.
    ///
    /// # Safety
    ///
    /// All lanes call it together.
    #[inline(always)]
    unsafe fn first_from(&self, count: u64, leaf: u64, positions: [u64; 2]) -> [u64; 2] {
        if self.offsets.is_null() {
            let size = (self.size + leaf).max(1);
            return positions.map(|position| position.div_ceil(size).min(count));
        }
        const PROBES: u32 = warp::WARP_SIZE / 2;
        let lane = warp::lane_id();
        let upper = lane >= PROBES;
        let position = if upper { positions[1] } else { positions[0] };
        let (mut low, mut high) = (0, count);
        // Where it would be if all segments had one length: near it are the first probes.
        let part = position as f64 / (self.len + leaf * count) as f64;
        let guess = (part * count as f64) as u64;
        let mut is_near = true;
        // SAFETY: as the caller vouches.
        unsafe {
            while warp::warp_vote_any(warp::ALL, low < high) {
                intrinsics::no_unroll();
                let step = (high - low).div_ceil(PROBES.into());
                let probe = |index: u32| {
                    if !is_near {
                        low + u64::from(index + 1) * step - 1
                    } else if index < PROBES / 2 {
                        guess.saturating_sub(1 << (4 * (PROBES / 2 - 1 - index)))
                    } else {
                        guess + (1 << (4 * (index - PROBES / 2))) - 1
                    }
                };
                let at = probe(lane % PROBES);
                let before = low < high && at < high && self.start(at).wrapping_add(leaf * at) < position;
                let ballot = warp::warp_vote_ballot(warp::ALL, before) >> (if upper { PROBES } else { 0 });
                let passed = (!ballot).trailing_zeros().min(PROBES);
                if low < high {
                    let (below, above) = (probe(passed.wrapping_sub(1)), probe(passed));
                    if passed < PROBES && above < high {
                        high = above;
                    }
                    if passed > 0 {
                        low = below + 1;
                    }
                }
                is_near = false;
            }
            [
                warp::warp_shuffle_idx(warp::ALL, low, 0, 32).0,
                warp::warp_shuffle_idx(warp::ALL, low, PROBES, 32).0,
            ]
        }
    }
}

/// What a launch is given.
pub type Arguments<P, O, V> = shape::Arguments<Segments, P, O, V>;

/// How segments are cut up.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cut {
    /// BLOCK of the plans.
    pub block: u32,
    /// Positions in a warp's share, at most [`most_positions`].
    pub share: u32,
    /// Items of a segment that a warp folds alone, at most; no fewer than [`LEAST_LONG`] leaves.
    pub middle: u32,
    /// Whether a segment without items may have no value.
    pub has_default: u32,
    /// For the partial results of segments of several chunks: [`places`] of them, each a [`slot`].
    pub partials: *mut u64,
    /// For how many of them are there: as many numbers, all 0 before the launch and after it.
    pub counts: *mut u32,
    /// Takes the least of what is wrong: the index of a segment whose end is before its start or past the items' end; or, of the upper half,
    /// that of a segment that has no value.
    pub wrong: *mut u64,
}

impl Cut {
    /// What is wrong where a segment has no value, but for its index.
    pub const NO_VALUE: u64 = 1 << 63;
}

/// Places for the partial results of the segments of `len` items, in rows of `row`: two for each row of the input. No chunk is shorter, so that
/// in one row there start at most one segment of several chunks, and one other chunk of such.
pub const fn places(len: u64, row: u64) -> u64 {
    2 * (len >> row.trailing_zeros()) + 2
}

impl Shape for Segments {
    type Cut = Cut;
}

/// The kernel as a type.
pub type Kernel<O, P> = shape::Kernel<Segments, O, P>;

/// The kernel: reduces each segment of `arguments.input`.
///
/// # Safety
///
/// The launch has blocks of [`THREADS`], as many as have a warp for each share of the positions; the pointers are valid as [`Arguments`]
/// says, and nothing else uses what they point to meanwhile. The offsets may be anything.
#[inline(always)]
pub unsafe fn reduce_segments<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    let Arguments { shape: segments, cut, .. } = arguments;
    let work = Work::<O, P, WIDTH, SLOTS> {
        arguments,
        bounds: shared_array![u64; (WARPS * (BATCH + 1)) as usize],
        list: shared_array![u8; (WARPS * BATCH) as usize],
        larger: shared_array![u64; (WARPS * LARGER) as usize],
        longs: shared_array![u32; WARPS as usize],
        heads: shared_array![O::Accumulator; 64],
        accumulators: shared_array![O::Accumulator; if waits_in_shared::<O, P::Item>() { THREADS as usize } else { 1 }],
        warp: thread::thread_idx_x() / warp::WARP_SIZE,
    };
    // SAFETY: all threads are here.
    unsafe {
        let count = segments.count();
        let mut share = u64::from(cut.share);
        if !segments.number.is_null() {
            // The host knew only how many there may be.
            let warps = u64::from(thread::grid_dim_x() * WARPS).max(1);
            share = (segments.len + WIDTH as u64 * count).div_ceil(warps).min(share);
        }
        let start = u64::from(thread::block_idx_x() * WARPS) * share;
        let own = start + u64::from(work.warp) * share;
        let [first, end] = segments.first_from(count, WIDTH as u64, [own, own + share]);
        let larger = work.fold_short(first, end);
        work.fold_larger(larger, [start, start + u64::from(WARPS) * share]);
    }
}

/// Leaves that a lane has in flight: up to four, where a thread has registers for their accumulators.
pub const fn slots<O: Op<I>, I: Copy + 'static>(width: usize) -> usize {
    let bytes = size_of::<O::Accumulator>() * if O::EXACT { 2 } else { width };
    match bytes {
        0..=16 => 2,
        17..=32 => 2,
        _ => 1,
    }
}

/// Whether shared memory, of which a block has 48 KiB, has room for an accumulator for each thread.
const fn waits_in_shared<O: Op<I>, I: Copy + 'static>() -> bool {
    size_of::<O::Accumulator>() <= 40
}

/// What a launch is given, and what its blocks share: the items that a thread folds side by side are WIDTH, the leaves that it has in flight SLOTS.
struct Work<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize> {
    arguments: Arguments<P, O, O::Output>,
    /// For each warp: where a batch's segments start, and where the last one ends.
    bounds: Shared<u64>,
    /// For each warp: numbers of a batch's segments.
    list: Shared<u8>,
    /// For each warp: the segments of its share that are not short.
    larger: Shared<u64>,
    /// For each warp: how many of them are long.
    longs: Shared<u32>,
    /// The accumulators of 32 units, twice.
    heads: Shared<O::Accumulator>,
    /// Those of the chunks of a segment, where there is room for them: one for each thread, which has no registers for it.
    accumulators: Shared<O::Accumulator>,
    /// The warp's number in its block.
    warp: u32,
}

/// Segments in a batch, and those of a lane: as many numbers as fit in a byte.
const BATCH: u32 = 256;
const OF_LANE: usize = (BATCH / warp::WARP_SIZE) as usize;

/// Units that a warp has of the 32 that a block folds at a time.
const UNITS: u32 = warp::WARP_SIZE / WARPS;

impl<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize> Work<O, P, WIDTH, SLOTS> {
    /// What rows need of it: nothing is listed.
    #[inline(always)]
    fn of_rows(arguments: Arguments<P, O, O::Output>) -> Self {
        Self {
            arguments,
            bounds: shared_array![u64; 1],
            list: shared_array![u8; 1],
            larger: shared_array![u64; 1],
            longs: shared_array![u32; 1],
            heads: shared_array![O::Accumulator; 1],
            accumulators: shared_array![O::Accumulator; if waits_in_shared::<O, P::Item>() { THREADS as usize } else { 1 }],
            warp: thread::thread_idx_x() / warp::WARP_SIZE,
        }
    }

    /// Leaves that a warp folds at a time, by their logarithm.
    const MOST: u32 = (32 * SLOTS as u32).trailing_zeros();

    /// Leaves of a unit of a chunk, by their logarithm.
    #[inline(always)]
    fn unit(&self) -> u32 {
        self.arguments.cut.block.trailing_zeros().min(Self::MOST)
    }

    /// Reduces those of the segments `first..end` that are short, lists the others, and says how many they are.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together; the segments are those that start in the warp's share.
    #[inline(always)]
    unsafe fn fold_short(&self, first: u64, end: u64) -> u32 {
        let segments = self.arguments.shape;
        let lane = warp::lane_id();
        let bounds = self.warp * (BATCH + 1);
        let list = self.warp * BATCH;
        let most = (WIDTH as u32) << self.unit();
        let mut larger = 0;
        // SAFETY: as the caller vouches.
        unsafe {
            // The one before may reach into the block's share.
            if self.warp == 0 && first > 0 {
                let (start, stop) = (segments.start(first - 1), segments.start(first));
                if segments.is_valid(start, stop) && self.is_long(stop - start) {
                    self.larger.write(0, first - 1);
                    larger = 1;
                }
            }
            let mut batch = first;
            while batch < end {
                intrinsics::no_unroll();
                let left = if end - batch < BATCH.into() { (end - batch) as u32 } else { BATCH };
                let left = intrinsics::opaque(left);
                let stops = segments.stops(batch, lane, left);
                if lane == 0 {
                    self.bounds.write(bounds, segments.start(batch));
                }
                for (group, stop) in stops.into_iter().enumerate() {
                    self.bounds.write(bounds + lane + 32 * group as u32 + 1, stop);
                }
                warp::sync_warp(warp::ALL);
                // Classes: of class c are segments that 2^c leaves suffice for; 15 stands for no short one. Four bits each.
                let mut classes = u32::MAX;
                let mut present = 0;
                let mut group = 0;
                while 32 * group < left {
                    intrinsics::no_unroll();
                    let index = 32 * group + lane;
                    let (start, stop) =
                        (self.bounds.read(bounds + index), self.bounds.read(bounds + index + 1));
                    let len = stop.wrapping_sub(start);
                    let is_there = index < left;
                    let is_short = is_there & (start <= stop) & (stop <= segments.len) & (len <= most.into());
                    // Before any branch on these, or the compiler makes two votes of it.
                    let others = warp::warp_vote_ballot(warp::ALL, is_there & !is_short);
                    let leaves = (len as u32).div_ceil(WIDTH as u32);
                    // The bits of the number before it.
                    let class = if leaves > 1 { 32 - (leaves - 1).leading_zeros() } else { 0 };
                    classes ^= if is_short { (15 ^ class) << (4 * group) } else { 0 };
                    present |= if is_short { 1 << class } else { 0 };
                    if others != 0 {
                        let place = larger + before(others, lane);
                        if is_there && !is_short && place < LARGER {
                            self.larger.write(self.warp * LARGER + place, batch + u64::from(index));
                        }
                        larger = (larger + others.count_ones()).min(LARGER);
                    }
                    group += 1;
                }
                // With one slot, a list costs little beside the rest.
                let mut class = 0;
                if SLOTS > 1 {
                    if warp::warp_vote_any(warp::ALL, present & 1 != 0) {
                        self.fold_own(batch, classes, left);
                    }
                    class = 1;
                }
                while class <= self.unit() {
                    intrinsics::no_unroll();
                    if warp::warp_vote_any(warp::ALL, present >> class & 1 != 0) {
                        let mut count = 0;
                        let mut group = 0;
                        while 32 * group < left {
                            intrinsics::no_unroll();
                            let is_in = classes >> (4 * group) & 15 == class;
                            let ballot = warp::warp_vote_ballot(warp::ALL, is_in);
                            if is_in {
                                self.list
                                    .write(list + count + before(ballot, lane), (lane + 32 * group) as u8);
                            }
                            count += ballot.count_ones();
                            group += 1;
                        }
                        warp::sync_warp(warp::ALL);
                        // Lanes that a segment has, by their logarithm.
                        let lanes = class.saturating_sub(SLOTS.trailing_zeros());
                        let mut done = 0;
                        while done < count {
                            intrinsics::no_unroll();
                            self.fold_listed(batch, lanes, done, count);
                            done += 32 >> lanes;
                        }
                        warp::sync_warp(warp::ALL);
                    }
                    class += 1;
                }
                warp::sync_warp(warp::ALL);
                batch += u64::from(left);
            }
        }
        larger
    }

    /// Reduces a batch's segments of a leaf, each by the lane that has its class.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_own(&self, batch: u64, classes: u32, left: u32) {
        let Arguments { input, op, .. } = self.arguments;
        let lane = warp::lane_id();
        let bounds = self.warp * (BATCH + 1);
        let mut group = 0;
        // SAFETY: as the caller vouches.
        unsafe {
            while 32 * group < left {
                intrinsics::no_unroll();
                let mut ops = [op; SLOTS];
                let mut lens = [0; SLOTS];
                let mut is_in = [false; SLOTS];
                let mut items = [[P::zeroed(); WIDTH]; SLOTS];
                let mut ats = [input; SLOTS];
                unrolled::<SLOTS>(|slot| {
                    let group = group + slot as u32;
                    let index = bounds + 32 * group + lane;
                    is_in[slot] = classes >> (4 * group) & 15 == 0;
                    if is_in[slot] {
                        let start = self.bounds.read(index);
                        lens[slot] = (self.bounds.read(index + 1) - start) as u32;
                        ats[slot] = input.offset(start as usize);
                        if lens[slot] > 0 {
                            ops[slot] = op.begin(ats[slot].read());
                        }
                        items[slot] = load_leaf::<O, P, WIDTH>(ats[slot], lens[slot]);
                    }
                });
                let mut values = [op.identity(); SLOTS];
                unrolled::<SLOTS>(|slot| {
                    let mut all = [op.identity(); WIDTH];
                    fold_leaf(&ops[slot], &mut all, items[slot], ats[slot], lens[slot], 0);
                    values[slot] = of_thread::<O, P::Item, WIDTH>(&ops[slot], all);
                });
                let mut slot = 0;
                while slot < intrinsics::opaque(SLOTS as u32) {
                    intrinsics::no_unroll();
                    if is_in[0] {
                        let segment = batch + u64::from(32 * (group + slot) + lane);
                        self.deliver(&ops[0], segment, values[0], lens[0].into());
                    }
                    rotate(&mut is_in);
                    rotate(&mut lens);
                    rotate(&mut ops);
                    rotate(&mut values);
                    slot += 1;
                }
                group += SLOTS as u32;
            }
        }
    }

    /// Reduces the listed segments from `done` on, of which there are `count` in all, as many as there is room for, with so many lanes each.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together; the lanes are as many as have the leaves.
    #[inline(always)]
    unsafe fn fold_listed(&self, batch: u64, lanes: u32, done: u32, count: u32) {
        let lane = warp::lane_id();
        let bounds = self.warp * (BATCH + 1);
        let (rank, part) = (done + (lane >> lanes), lane & ((1 << lanes) - 1));
        let item = part * (SLOTS * WIDTH) as u32;
        // SAFETY: as the caller vouches.
        unsafe {
            let Arguments { input: mut at, mut op, .. } = self.arguments;
            let (mut index, mut len) = (0, 0);
            if rank < count {
                index = u32::from(self.list.read(self.warp * BATCH + rank));
                let start = self.bounds.read(bounds + index);
                len = (self.bounds.read(bounds + index + 1) - start) as u32;
                at = at.offset(start as usize);
                if len > 0 {
                    op = op.begin(at.read());
                }
            }
            let mut values = [[op.identity(); WIDTH]; SLOTS];
            fold_leaves::<O, P, WIDTH, SLOTS>(
                &op,
                &mut values,
                at.offset(item as usize),
                len.saturating_sub(item),
                item.into(),
            );
            let value = of_leaves::<O, P::Item, WIDTH, SLOTS>(&op, values);
            let value = fold_lanes::<O, P::Item>(&op, value, lanes);
            if rank < count && part == 0 {
                self.deliver(&op, batch + u64::from(index), value, len.into());
            }
        }
    }

    /// Reduces the segments that are not short: the middle ones that the warp has listed, and the block's chunks of the long ones.
    ///
    /// # Safety
    ///
    /// All threads of the block call it together.
    #[inline(always)]
    unsafe fn fold_larger(&self, larger: u32, positions: [u64; 2]) {
        let Arguments { input, shape: segments, op, cut, .. } = self.arguments;
        let lane = warp::lane_id();
        let row = cut.block * WIDTH as u32;
        let unit = self.unit();
        let units = cut.block >> unit;
        // Lanes of a unit.
        let lanes = unit.saturating_sub(SLOTS.trailing_zeros());
        let (side, part) = (lane >> lanes, lane & ((1 << lanes) - 1));
        let (mut of_warp, mut index, mut longs, mut parity) = (WARPS, 0, 0, 0);
        // SAFETY: as the caller vouches.
        unsafe {
            warp::sync_warp(warp::ALL);
            loop {
                intrinsics::no_unroll();
                let is_long = of_warp < WARPS;
                if !is_long && index == larger {
                    // Now the block folds what its warps have found to be long.
                    if lane == 0 {
                        self.longs.write(self.warp, longs);
                    }
                    thread::sync_threads();
                    of_warp = 0;
                    index = 0;
                    continue;
                }
                if is_long && index >= self.longs.read(of_warp) {
                    of_warp += 1;
                    index = 0;
                    if of_warp == WARPS {
                        return;
                    }
                    continue;
                }
                let segment = self.larger.read((if is_long { of_warp } else { self.warp }) * LARGER + index);
                let (start, stop) = (segments.start(segment), segments.start(segment + 1));
                let len = stop.wrapping_sub(start);
                let plan = self.plan(len);
                let mut chunks = [0, plan.chunks];
                if is_long {
                    let (row, rows) =
                        (plan.row.trailing_zeros(), (plan.chunk >> plan.row.trailing_zeros()) as u32);
                    chunks = positions.map(|position| {
                        let before = position.saturating_sub(start + WIDTH as u64 * segment).min(len);
                        let before = ((before + plan.row - 1) >> row) as u32;
                        before.div_ceil(rows.max(1)).min(plan.chunks)
                    });
                } else if !segments.is_valid(start, stop) {
                    self.is_wrong(segment);
                    index += 1;
                    continue;
                } else if self.is_long(len) {
                    warp::sync_warp(warp::ALL);
                    self.larger.write(self.warp * LARGER + longs, segment);
                    longs += 1;
                    index += 1;
                    continue;
                }
                let mut chunk = chunks[0];
                let op = op.begin(input.offset(start as usize).read());
                let shift = units.trailing_zeros();
                let mut waiting = op.identity();
                while chunk < chunks[1] {
                    intrinsics::no_unroll();
                    // Units that are left, of a round of 32; the block's warps have every eighth.
                    let left = if len < row.into() {
                        (len as u32).div_ceil((WIDTH as u32) << unit)
                    } else if chunks[1] - chunk < warp::WARP_SIZE {
                        ((chunks[1] - chunk) << shift).min(warp::WARP_SIZE)
                    } else {
                        warp::WARP_SIZE
                    };
                    let count = if is_long { left.div_ceil(WARPS) } else { left };
                    let mut head = op.identity();
                    let mut done = 0;
                    while done < count {
                        intrinsics::no_unroll();
                        let number = done + side;
                        let number = if is_long { self.warp + WARPS * number } else { number };
                        let of_chunk = chunk + (number >> shift);
                        let range = plan.range(of_chunk);
                        let mut item = range.start
                            + u64::from(
                                (((number & (units - 1)) << unit) + part * SLOTS as u32) * WIDTH as u32,
                            );
                        let is_there = done + side < count && of_chunk < chunks[1];
                        let mut left = if is_there { range.end.saturating_sub(item) as u32 } else { 0 };
                        let mut values = [[op.identity(); WIDTH]; SLOTS];
                        while warp::warp_vote_any(warp::ALL, left > 0) {
                            intrinsics::no_unroll();
                            fold_leaves::<O, P, WIDTH, SLOTS>(
                                &op,
                                &mut values,
                                input.offset((start + item) as usize),
                                left,
                                item,
                            );
                            item += u64::from(row);
                            left = left.saturating_sub(row);
                        }
                        let value = of_leaves::<O, P::Item, WIDTH, SLOTS>(&op, values);
                        let value = fold_lanes::<O, P::Item>(&op, value, lanes);
                        // Lane i takes that of unit i.
                        let ahead = lane.wrapping_sub(done);
                        let (value, _) = warp::warp_shuffle_idx(warp::ALL, value, (ahead << lanes) % 32, 32);
                        if ahead < (32 >> lanes) && lane < count {
                            head = value;
                        }
                        done += 32 >> lanes;
                    }
                    if is_long {
                        if lane < UNITS {
                            self.heads.write(parity + self.warp + WARPS * lane, head);
                        }
                        thread::sync_threads();
                    }
                    let head = if is_long { self.heads.read(parity + lane) } else { head };
                    // In one code for both, which the compiler would make two.
                    if intrinsics::opaque((!is_long || self.warp == 0).into()) != 0 {
                        let plan = self.plan(len);
                        self.settle(&op, segment, start, &plan, chunks, chunk, head, units, &mut waiting);
                    }
                    parity ^= if is_long { warp::WARP_SIZE } else { 0 };
                    chunk += warp::WARP_SIZE >> shift;
                }
                index += 1;
            }
        }
    }

    /// The plan of a segment that is not short; each time anew, so that it takes no registers meanwhile.
    #[inline(always)]
    fn plan(&self, len: u64) -> Plan {
        plan_of::<WIDTH>(len, intrinsics::opaque(self.arguments.cut.block))
    }

    /// Whether a segment of so many items is folded by a block.
    #[inline(always)]
    fn is_long(&self, len: u64) -> bool {
        let cut = self.arguments.cut;
        len > cut.middle.into()
    }

    /// Folds the units of some chunks of a long segment, a lane each, and then, where all of its chunks are folded, the chunks' partial results.
    ///
    /// # Safety
    ///
    /// All lanes of the segment's warp, or of the block's first, call it together, for one of its chunks after the other.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    unsafe fn settle(
        &self,
        op: &O,
        segment: u64,
        start: u64,
        plan: &Plan,
        [first, end]: [u32; 2],
        chunk: u32,
        head: O::Accumulator,
        units: u32,
        waiting: &mut O::Accumulator,
    ) {
        let lane = warp::lane_id();
        let counts = self.arguments.cut.counts;
        let shift = units.trailing_zeros();
        let chunks = warp::WARP_SIZE >> shift;
        let is_end = chunk + chunks >= end;
        // SAFETY: as the caller vouches.
        unsafe {
            let head = fold_lanes::<O, P::Item>(op, head, shift);
            if plan.len <= SINGLE_ROWS * plan.row {
                // The tree of one partial result has its bits.
                if lane == 0 {
                    self.deliver(op, segment, head, plan.len);
                }
                return;
            }
            let is_whole = first == 0 && end == plan.chunks;
            let mut all = op.identity();
            if is_whole {
                if chunk > 0 {
                    all = if waits_in_shared::<O, P::Item>() {
                        self.accumulators.read(self.warp * 32 + lane)
                    } else {
                        *waiting
                    };
                }
                // That of chunk i goes to lane i modulo 32.
                let ahead = lane.wrapping_sub(chunk) % warp::WARP_SIZE;
                let (head, _) = warp::warp_shuffle_idx(warp::ALL, head, (ahead << shift) % 32, 32);
                if ahead < chunks && chunk + ahead < end {
                    all = op.combine(all, head);
                }
                if waits_in_shared::<O, P::Item>() {
                    self.accumulators.write(self.warp * 32 + lane, all);
                } else {
                    *waiting = all;
                }
                if !is_end {
                    return;
                }
            } else {
                let chunk = chunk + (lane >> shift);
                if lane & (units - 1) == 0 && chunk < end {
                    let slot = self.partial(start, plan, chunk);
                    for word in 0..slot::words::<O::Accumulator>() {
                        AtomicU64::from_ptr(slot.add(word)).store(slot::word(&head, word), Ordering::Relaxed);
                    }
                }
                if !is_end {
                    return;
                }
                warp::sync_warp(warp::ALL);
                let mut is_last = false;
                if lane == 0 {
                    let there = AtomicU32::from_ptr(counts.add(self.place(start, plan, 0)));
                    is_last = there.fetch_add(end - first, Ordering::AcqRel) + (end - first) == plan.chunks;
                    if is_last {
                        there.store(0, Ordering::Relaxed);
                    }
                }
                if !warp::warp_vote_any(warp::ALL, is_last) {
                    return;
                }
                warp::sync_warp(warp::ALL);
                let mut chunk = lane;
                while chunk < plan.chunks {
                    let partials: [O::Accumulator; SLOTS] = from_fn(|next| {
                        let chunk = chunk + 32 * next as u32;
                        let slot = self.partial(start, plan, if chunk < plan.chunks { chunk } else { 0 });
                        slot::unpack(|word| AtomicU64::from_ptr(slot.add(word)).load(Ordering::Relaxed))
                    });
                    unrolled::<SLOTS>(|next| {
                        if chunk + 32 * (next as u32) < plan.chunks {
                            all = op.combine(all, partials[next]);
                        }
                    });
                    chunk += 32 * SLOTS as u32;
                }
                warp::sync_warp(warp::ALL);
            }
            let all = fold_lanes::<O, P::Item>(op, all, 5);
            if lane == 0 {
                self.deliver(op, segment, all, plan.len);
            }
        }
    }

    /// The place of a chunk's partial result, as [`places`] counts them.
    #[inline(always)]
    fn place(&self, start: u64, plan: &Plan, chunk: u32) -> usize {
        let at = start + u64::from(chunk) * plan.chunk;
        (2 * (at >> plan.row.trailing_zeros()) + u64::from(chunk == 0)) as usize
    }

    /// The slot for it.
    #[inline(always)]
    fn partial(&self, start: u64, plan: &Plan, chunk: u32) -> *mut u64 {
        let words = slot::words::<O::Accumulator>();
        self.arguments.cut.partials.wrapping_add(self.place(start, plan, chunk) * words)
    }

    /// Stores a segment's result, of the accumulator of its items.
    ///
    /// # Safety
    ///
    /// It is one of the segments, and nobody else stores its result.
    #[inline(always)]
    unsafe fn deliver(&self, op: &O, segment: u64, all: O::Accumulator, len: u64) {
        let Arguments { results, default, cut, .. } = self.arguments;
        let all = if len == 0 { all } else { op.end(all, len) };
        // SAFETY: there is a place for each.
        unsafe {
            let place = results.add(segment as usize);
            match op.finish(all, len) {
                Some(output) => place.write(output),
                None => {
                    place.write(default);
                    if len == 0 && cut.has_default == 0 {
                        self.is_wrong(Cut::NO_VALUE | segment);
                    }
                }
            }
        }
    }

    /// Says what is wrong, as [`Cut::wrong`] takes it.
    #[inline(always)]
    fn is_wrong(&self, what: u64) {
        // SAFETY: the place is for this.
        let least = unsafe { AtomicU64::from_ptr(self.arguments.cut.wrong) };
        least.fetch_min(what, Ordering::Relaxed);
    }
}

/// The plan of so many items.
#[inline(always)]
fn plan_of<const WIDTH: usize>(len: u64, block: u32) -> Plan {
    // SAFETY: it is a BLOCK.
    unsafe { assert_unchecked(block > 0) };
    let plan = Plan::cut(len, WIDTH, block);
    // SAFETY: a chunk is some rows.
    unsafe { assert_unchecked(plan.chunk > 0) };
    plan
}

/// How many bits are set below one.
#[inline(always)]
fn before(bits: u32, lane: u32) -> u32 {
    (bits & ((1 << lane) - 1)).count_ones()
}

/// Folds a thread's accumulators, as they are folded into.
#[inline(always)]
fn of_thread<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(
    op: &O,
    values: [O::Accumulator; WIDTH],
) -> O::Accumulator {
    if O::EXACT { values[0] } else { fold_thread::<O, I, WIDTH>(op, values) }
}

/// Folds the accumulators of neighbouring leaves.
#[inline(always)]
fn of_leaves<O: Op<I>, I: Copy + 'static, const WIDTH: usize, const SLOTS: usize>(
    op: &O,
    values: [[O::Accumulator; WIDTH]; SLOTS],
) -> O::Accumulator {
    let mut leaves = [op.identity(); SLOTS];
    unrolled::<SLOTS>(|slot| leaves[slot] = of_thread::<O, I, WIDTH>(op, values[slot]));
    fold_thread::<O, I, SLOTS>(op, leaves)
}

/// Folds the values of 2^`lanes` neighbouring lanes, whose first gets the result.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
unsafe fn fold_lanes<O: Op<I>, I: Copy + 'static>(
    op: &O,
    mut value: O::Accumulator,
    lanes: u32,
) -> O::Accumulator {
    let mut stride = 1;
    let lanes = intrinsics::opaque(lanes);
    while stride >> lanes == 0 {
        intrinsics::no_unroll();
        // SAFETY: as the caller vouches.
        let (above, _) = unsafe { warp::warp_shuffle_down(warp::ALL, value, stride, 32) };
        value = op.combine(value, above);
        stride *= 2;
    }
    value
}

/// Whether WIDTH items at a time are one access from here on.
#[inline(always)]
fn is_aligned<P: Input>(at: P, width: usize) -> bool {
    at.head().is_some_and(|head| (head as usize).is_multiple_of(width))
}

/// Folds neighbouring leaves, or what is left of them, into a thread's accumulators.
///
/// # Safety
///
/// There are so many items left.
#[inline(always)]
unsafe fn fold_leaves<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize>(
    op: &O,
    values: &mut [[O::Accumulator; WIDTH]; SLOTS],
    at: P,
    left: u32,
    index: u64,
) {
    let slot_at = |slot: usize| at.offset(slot * WIDTH);
    let left_of = |slot: usize| left.saturating_sub((slot * WIDTH) as u32);
    // SAFETY: as the caller vouches.
    unsafe {
        if left >= (SLOTS * WIDTH) as u32 && is_aligned(at, WIDTH) {
            let items: [[P::Item; WIDTH]; SLOTS] = from_fn(|slot| slot_at(slot).load());
            unrolled::<SLOTS>(|slot| {
                op.fold_load(&mut values[slot], items[slot], index + (slot * WIDTH) as u64)
            });
        } else if left > 0 {
            let items: [[P::Item; WIDTH]; SLOTS] =
                from_fn(|slot| load_leaf::<O, P, WIDTH>(slot_at(slot), left_of(slot)));
            unrolled::<SLOTS>(|slot| {
                fold_leaf(
                    op,
                    &mut values[slot],
                    items[slot],
                    slot_at(slot),
                    left_of(slot),
                    index + (slot * WIDTH) as u64,
                );
            });
        }
    }
}

/// The items of a leaf, or what is left of it, one by one; where the operator is exact, [`fold_leaf`] loads them.
///
/// # Safety
///
/// There are so many items left.
#[inline(always)]
unsafe fn load_leaf<O: Op<P::Item>, P: Input, const WIDTH: usize>(at: P, left: u32) -> [P::Item; WIDTH] {
    from_fn(|item| {
        // SAFETY: as the caller vouches.
        if !O::EXACT && (item as u32) < left { unsafe { at.offset(item).read() } } else { P::zeroed() }
    })
}

/// Folds a leaf, or what is left of it, into a thread's accumulators.
///
/// # Safety
///
/// The items are what [`load_leaf`] gave.
#[inline(always)]
unsafe fn fold_leaf<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: &O,
    values: &mut [O::Accumulator; WIDTH],
    items: [P::Item; WIDTH],
    at: P,
    left: u32,
    index: u64,
) {
    if !O::EXACT {
        for item in 0..WIDTH {
            if (item as u32) < left {
                values[item] = op.combine(values[item], op.lift(items[item], index + item as u64));
            }
        }
        return;
    }
    let left = left.min(WIDTH as u32);
    let mut item = 0;
    while item < left {
        intrinsics::no_unroll();
        let mut some: [P::Item; 4] = from_fn(|next| {
            if item + (next as u32) < left {
                // SAFETY: as the caller vouches.
                unsafe { at.offset(item as usize + next).read() }
            } else {
                P::zeroed()
            }
        });
        let mut next = item;
        if left - item >= 4 {
            for value in some {
                values[0] = op.combine(values[0], op.lift(value, index + u64::from(next)));
                next += 1;
            }
        }
        while next < left.min(item + 4) {
            intrinsics::no_unroll();
            values[0] = op.combine(values[0], op.lift(some[0], index + u64::from(next)));
            rotate(&mut some);
            next += 1;
        }
        item += 4;
    }
}

/// Calls `each` for each of up to eight: a loop over much stays one, and takes what it indexes to memory.
#[inline(always)]
fn unrolled<const COUNT: usize>(mut each: impl FnMut(usize)) {
    const { assert!(COUNT <= 8) };
    each(0);
    if COUNT > 1 {
        each(1);
    }
    if COUNT > 2 {
        each(2);
        each(3);
    }
    if COUNT > 4 {
        each(4);
        each(5);
        each(6);
        each(7);
    }
}

/// The second becomes the first, and so on; the first the last.
#[inline(always)]
fn rotate<V: Copy, const N: usize>(values: &mut [V; N]) {
    *values = from_fn(|index| values[(index + 1) % N]);
}
