//! The kernel of short rows. A warp folds several at a time.

use super::segments::{Arguments, STRIDED, fold_leaf, fold_strided, load_leaf, warp_of_grid};
pub use super::segments::{Cut, SegmentBounds};
use super::whole_rows::{LOADS, MOST_WORDS, fold_each};
use crate::Op;
use crate::agent::{Agent, Step, is_rare};
use crate::exchange::slot;
use crate::input::Input;
use crate::tree::{fold_lanes, fold_slots, of_thread, unrolled};
use core::array::from_fn;
use cuda_std::{intrinsics, warp};

/// Leaves of the longest short rows, which also have no more leaves than a row of the plan.
pub const SHORT: u64 = 32 * LOADS as u64;

/// Returns whether rows of `len` items are short, for plans of BLOCK `block` with `width` items side by side.
pub const fn is_short(len: u64, width: u64, block: u32) -> bool {
    let most = if (block as u64) < SHORT { block as u64 } else { SHORT };
    len <= most * width
}

/// Returns how many rows of `len` items, one at least, a warp folds at a time.
pub const fn at_once(len: u64, width: u64) -> u64 {
    let leaves = len.div_ceil(width).next_power_of_two().trailing_zeros();
    let lanes = if leaves < 5 { leaves } else { 5 };
    let rows = ((warp::WARP_SIZE as u64 * LOADS as u64) >> lanes) >> (leaves - lanes);
    if rows > 1 { rows } else { 1 }
}

/// Returns how many rows of `len` items the lanes of a warp have one load of each for; 0 if a row has more.
pub const fn of_load(len: u64, width: u64) -> u64 {
    let leaves = len.div_ceil(width);
    if leaves <= 32 { 32 >> leaves.next_power_of_two().trailing_zeros() } else { 0 }
}

/// Returns how many items a lane has of a row of `len` items, if a warp has few rows. `is_strided` says that the order of the items
/// does not matter, and that leaves are not aligned.
pub const fn of_lane(len: u64, width: u64, is_strided: bool) -> u64 {
    const MOST: u64 = STRIDED as u64;
    if is_strided && width > MOST && len <= warp::WARP_SIZE as u64 * MOST { MOST } else { width }
}

/// Reduces rows of `arguments.input`, all of them [short](is_short).
///
/// # Safety
///
/// As for [`reduce_segments`](super::segments::reduce_segments), without offsets or lists. [`Cut::share`] is the rows of a warp,
/// of one item at least and less than 2^31. An accumulator has at most [`MOST_WORDS`] words.
#[inline(always)]
pub unsafe fn reduce_short_rows<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    if const { slot::words::<O::Accumulator>() > MOST_WORDS } {
        return;
    }
    let Arguments { shape: segments, cut, .. } = arguments;
    let first = warp_of_grid() * u64::from(cut.share);
    let end = segments.count.min(first + u64::from(cut.share));
    // SAFETY: all lanes of the warp are here.
    unsafe {
        if cut.has(Cut::SHORT) {
            fold_once::<O, P, WIDTH>(&arguments);
        } else {
            fold_short::<O, P, WIDTH>(&arguments, first, end);
        }
    }
}

/// Reduces the warp's rows, which are so few that each lane has one leaf of one row, or up to [`STRIDED`] items if the order does not
/// matter. A row has 2^[`Cut::parts`] lanes.
///
/// A small input takes as long as it takes to fetch the instructions and to compute where the first item of a lane lies. So the host
/// computes what it can, the number of a row has 32 bits, and this function is a quarter of the code for four loads a lane. Sums of 1,000 rows of
/// 65 `f32` took 2.4 µs on an H100 with the code for four loads, and 1.6 with code for one.
///
/// # Safety
///
/// As for [`reduce_short_rows`].
#[inline(always)]
unsafe fn fold_once<O: Op<P::Item>, P: Input, const WIDTH: usize>(arguments: &Arguments<P, O, O::Output>) {
    let (first, count) = (warp_of_grid() as u32 * arguments.cut.share, arguments.shape.count as u32);
    if first < count {
        // SAFETY: as the caller promises; all lanes of the warp are here.
        unsafe { O::agent().fold_step(&mut Once::<O, P, WIDTH> { arguments, first, count }) };
    }
}

/// The warp's rows for [`fold_once`].
struct Once<'a, O: Op<P::Item>, P: Input, const WIDTH: usize> {
    arguments: &'a Arguments<P, O, O::Output>,
    /// The first row, and the number of all.
    first: u32,
    count: u32,
}

impl<O: Op<P::Item>, P: Input, const WIDTH: usize> Step<O, P::Item> for Once<'_, O, P, WIDTH> {
    #[inline(always)]
    unsafe fn fold<S: Op<P::Item>>(
        &mut self,
        stand_in: impl Fn(O) -> S,
        take: impl Fn(&S, S::Accumulator) -> Option<(O, O::Accumulator)>,
    ) -> bool {
        let Self { arguments, first, count } = *self;
        let Arguments { input, shape: segments, cut, op, .. } = *arguments;
        let (lane, len, lanes) = (warp::lane_id(), segments.size as u32, cut.parts);
        let (group, part) = (lane >> lanes, lane & ((1 << lanes) - 1));
        let row = first + group;
        let is_there = group < cut.share && row < count;
        let item_of = |row: u32| u64::from(row) * u64::from(len);
        // A lane without a row has the warp's first one.
        let start = input.offset(item_of(if is_there { row } else { first }) as usize);
        let left_from = |item: u32, end: u32| if is_there { end.saturating_sub(item) } else { 0 };
        let is_aligned = cut.has(Cut::ALIGNED);
        // SAFETY: as the caller promises.
        unsafe {
            let op = stand_in(op.begin(start.read()));
            let mut value = op.identity();
            if O::EXACT && !is_aligned && (WIDTH <= STRIDED || len <= (STRIDED as u32) << lanes) {
                let at = start.offset(part as usize);
                fold_strided(&op, &mut value, at, left_from(part, len), 1 << lanes, part.into());
            } else {
                let item = part * WIDTH as u32;
                let left = left_from(item, len);
                let leaf = start.offset(if left > 0 { item as usize } else { 0 });
                // Whether all leaves of the warp can be loaded by words.
                let is_inside = arguments.is_inside(WIDTH, item_of(first), item_of(first + cut.share));
                // (Here `is_aligned` says that leaves are whole, too.)
                let how = [is_aligned, is_aligned, is_inside];
                [value] = fold_each::<S, P, WIDTH, 1>(&[op], |_| leaf, |_| item.into(), [left], how);
                if O::EXACT && P::IS_NARROW && !is_aligned {
                    let item = len - len % WIDTH as u32 + part;
                    let at = start.offset(item as usize);
                    fold_strided(&op, &mut value, at, left_from(item, len), 1 << lanes, item.into());
                }
            }
            let mut stride = 1;
            while stride >> lanes == 0 {
                intrinsics::no_unroll();
                let (above, _) = warp::warp_shuffle_down(warp::ALL, value, stride, 32);
                value = op.combine(value, above);
                stride *= 2;
            }
            if part > 0 || !is_there {
                return true;
            }
            arguments.deliver_taken(take(&op, value), row.into(), len.into())
        }
    }
}

/// How a warp folds short rows, LOADS leaves a lane at a time: 2^`lanes` lanes have a row, and 2^`parts` leaves each of it.
#[derive(Clone, Copy)]
pub(super) struct Split {
    lane: u32,
    lanes: u32,
    parts: u32,
}

impl Split {
    /// Splits rows of 2^`levels` leaves at most, which are 128 at most, for lane `lane`.
    #[inline(always)]
    pub(super) fn of(levels: u32, lane: u32) -> Self {
        let lanes = levels.min(5);
        Self { lane, lanes, parts: levels - lanes }
    }

    /// Returns the lane's number among those that have its row.
    #[inline(always)]
    fn part(self) -> u32 {
        self.lane & ((1 << self.lanes) - 1)
    }

    /// Returns the rows that a warp has one load of.
    #[inline(always)]
    fn of_load(self) -> u32 {
        warp::WARP_SIZE >> self.lanes
    }

    /// Returns the rows that a warp folds at a time.
    #[inline(always)]
    pub(super) fn rows(self) -> u32 {
        (self.of_load() * LOADS as u32) >> self.parts
    }

    /// Returns which of the rows that a warp has one load of is the lane's first.
    #[inline(always)]
    pub(super) fn group(self) -> u32 {
        self.lane >> self.lanes
    }

    /// Returns how many rows later the row of a load of the lane is.
    #[inline(always)]
    pub(super) fn row_of(self, load: usize) -> u32 {
        (load as u32 >> self.parts) * self.of_load()
    }

    /// Returns the number of a lane's leaf in its row.
    #[inline(always)]
    pub(super) fn leaf_of(self, load: usize) -> u32 {
        self.part() + (load as u32 & ((1 << self.parts) - 1)) * warp::WARP_SIZE
    }

    /// Folds rows with the code of one load. `load` returns the row's operator, the place of the lane's leaf, and the leaf's items, 0 if it
    /// is not there. For each row one lane calls `deliver`, as [`settle`](Self::settle) does.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together; the leaves have these items.
    #[inline(always)]
    pub(super) unsafe fn fold_rarely<O: Op<P::Item>, P: Input, const WIDTH: usize>(
        self,
        load: impl Fn(usize) -> (O, P, u32),
        mut deliver: impl FnMut(usize, &O, O::Accumulator),
    ) {
        let (part, parts) = (self.part(), (1 << self.parts) - 1);
        let (mut of_loads, mut number) = (load(0).0.identity(), 0);
        while number < LOADS {
            intrinsics::no_unroll();
            let (op, at, left) = load(number);
            let mut all = [op.identity(); WIDTH];
            // SAFETY: as the caller promises.
            unsafe {
                let leaf = load_leaf::<O, P, WIDTH>(at, left);
                fold_leaf::<O, P, WIDTH>(
                    &op,
                    &mut all,
                    leaf,
                    at,
                    left,
                    (self.leaf_of(number) * WIDTH as u32).into(),
                );
                let value = of_thread::<O, P::Item, WIDTH>(&op, all);
                let value = fold_lanes::<O, P::Item>(&op, value, self.lanes);
                // Lane i of a row's lanes keeps the value of the row's load i.
                let (value, _) = warp::warp_shuffle_idx(warp::ALL, value, self.lane - part, 32);
                let of_row = number as u32 & parts;
                if part == of_row {
                    of_loads = value;
                }
                if of_row == parts {
                    let value = fold_lanes::<O, P::Item>(&op, of_loads, self.parts);
                    if part == 0 {
                        deliver(number, &op, value);
                    }
                }
            }
            number += 1;
        }
    }

    /// Folds the values of the leaves of each row, which has four lanes at least. For each row one lane calls `deliver` with a load that it
    /// has of the row, the row's operator and its value; also for rows that are not there.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    pub(super) unsafe fn settle<O: Op<I>, I: Copy + 'static>(
        self,
        ops: [O; LOADS],
        values: [O::Accumulator; LOADS],
        deliver: impl FnOnce(usize, &O, O::Accumulator),
    ) {
        // SAFETY: as the caller promises.
        let (op, mut value) = unsafe { fold_slots::<O, I>(ops, values, self.lanes) };
        // Lane i has a leaf group of load i modulo 4.
        for stride in [1, 2] {
            if stride >> self.parts == 0 {
                // SAFETY: as the caller promises.
                let (above, _) = unsafe { warp::warp_shuffle_down(warp::ALL, value, stride, 32) };
                value = op.combine(value, above);
            }
        }
        let load = self.lane & 3;
        if self.part() < 4 && load & ((1 << self.parts) - 1) == 0 {
            deliver(load as usize, &op, value);
        }
    }
}

/// Reduces the rows `first..end`, which are [short](is_short). A row gets as many lanes as it has leaves,
/// rounded up to a power of two; or all lanes, with two or four leaves each. As many rows are folded at a
/// time as LOADS loads a lane suffice for.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
unsafe fn fold_short<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: &Arguments<P, O, O::Output>,
    first: u64,
    end: u64,
) {
    let Arguments { input, shape: segments, cut, .. } = *arguments;
    let is_whole = cut.has(Cut::ALIGNED);
    // Opaque, because the compiler would compute what several ways need before it branches to one of them,
    // and keep it in registers that this one needs.
    let (lane, len) = (intrinsics::opaque(warp::lane_id()), intrinsics::opaque(segments.size as u32));
    let leaves = len.div_ceil(WIDTH as u32);
    let levels = if leaves > 1 { 32 - (leaves - 1).leading_zeros() } else { 0 };
    let split = Split::of(levels, lane);
    let most = split.rows();
    // The first row of the lane, if it has one.
    let group = split.group();
    let mut at = input.offset(((first + u64::from(group)) * segments.size) as usize);
    let all = end.saturating_sub(first) as u32;
    // Rows with the bytes that loads by words may read after a row.
    let margin = (WIDTH as u32 + 4).div_ceil(len.max(1));
    let mut done = 0;
    while done < all {
        intrinsics::no_unroll();
        let rows = (all - done).saturating_sub(group).min(most);
        let row = first + u64::from(done);
        // Whether all leaves of the warp can be loaded by words.
        let is_inside = !P::IS_NARROW || row > 0 && row + u64::from(most + margin) <= segments.count;
        let mut step = Several::<O, P, WIDTH> { arguments, split, len, row, at, rows, is_whole, is_inside };
        // SAFETY: as the caller promises.
        unsafe { O::agent().fold_step(&mut step) };
        done += most;
        at = at.offset((most * len) as usize);
    }
}

/// Rows that a warp folds at a time.
struct Several<'a, O: Op<P::Item>, P: Input, const WIDTH: usize> {
    arguments: &'a Arguments<P, O, O::Output>,
    split: Split,
    /// Items of a row.
    len: u32,
    /// The index of the first of these rows.
    row: u64,
    /// Where the lane's first row lies.
    at: P,
    /// The number of rows from the lane's first one on.
    rows: u32,
    /// Whether leaves are whole and aligned.
    is_whole: bool,
    /// Whether all leaves of the warp can be loaded by words.
    is_inside: bool,
}

impl<O: Op<P::Item>, P: Input, const WIDTH: usize> Step<O, P::Item> for Several<'_, O, P, WIDTH> {
    #[inline(always)]
    unsafe fn fold<S: Op<P::Item>>(
        &mut self,
        stand_in: impl Fn(O) -> S,
        take: impl Fn(&S, S::Accumulator) -> Option<(O, O::Accumulator)>,
    ) -> bool {
        let Self { arguments, split, len, row, at, rows, is_whole, is_inside } = *self;
        let (lanes, group) = (split.lanes, split.group());
        let item = split.part() * WIDTH as u32;
        let row_of = |load: usize| split.row_of(load);
        let item_of = |load: usize| split.leaf_of(load) * WIDTH as u32;
        let left_of = |load: usize| if row_of(load) < rows { len.saturating_sub(item_of(load)) } else { 0 };
        // 32-bit values, computed before any load. With 64-bit comparisons between the loads, ptxas
        // moved some loads behind code that waits for others.
        let lefts: [u32; LOADS] = from_fn(|load| intrinsics::opaque(left_of(load)));
        let mut are_taken = true;
        let mut deliver = |load: usize, op: &S, value| {
            if row_of(load) < rows {
                let row = row + u64::from(group + row_of(load));
                // SAFETY: there is such a row.
                are_taken &= unsafe { arguments.deliver_taken(take(op, value), row, len.into()) };
            }
        };
        // SAFETY: as the caller promises.
        unsafe {
            let op_of = |load: usize| {
                stand_in(if row_of(load) < rows {
                    arguments.op.begin(at.offset((row_of(load) * len) as usize).read())
                } else {
                    arguments.op
                })
            };
            if const { is_rare::<S, P::Item>() } {
                let leaf_of = |load: usize| at.offset((row_of(load) * len + item_of(load)) as usize);
                let load = |load: usize| (op_of(load), leaf_of(load), left_of(load));
                split.fold_rarely::<S, P, WIDTH>(load, deliver);
                return are_taken;
            }
            let mut ops = [stand_in(arguments.op); LOADS];
            unrolled::<LOADS>(|load| ops[load] = op_of(load));
            // A lane without a row has the warp's first one.
            let before = if rows > 0 { 0 } else { (group * len) as usize };
            let near = at.offset(before.wrapping_neg());
            let leaf_of = |load: usize| {
                let item = if lefts[load] > 0 { row_of(load) * len + item_of(load) } else { 0 };
                near.offset(item as usize)
            };
            let how = [is_whole, is_whole, is_inside];
            let mut values =
                fold_each::<S, P, WIDTH, LOADS>(&ops, leaf_of, |load| item_of(load).into(), lefts, how);
            if O::EXACT && P::IS_NARROW && !is_whole {
                // The order does not matter, so each lane folds an item of those after the last whole leaf.
                let mut rest = len - len % WIDTH as u32 + item / WIDTH as u32;
                while rest < len {
                    intrinsics::no_unroll();
                    let is_there = |load: usize| row_of(load) < rows && item_of(load) == item;
                    let items: [P::Item; LOADS] = from_fn(|load| {
                        if is_there(load) {
                            at.offset((row_of(load) * len + rest) as usize).read()
                        } else {
                            P::zeroed()
                        }
                    });
                    unrolled::<LOADS>(|load| {
                        if is_there(load) {
                            S::agent().fold_item(&ops[load], &mut values[load], items[load], rest.into());
                        }
                    });
                    rest += 1 << lanes;
                }
            }
            if lanes >= 2 {
                split.settle::<S, P::Item>(ops, values, deliver);
            } else {
                let mut stride = 1;
                let lanes = intrinsics::opaque(lanes);
                while stride >> lanes == 0 {
                    intrinsics::no_unroll();
                    values = from_fn(|load| {
                        let (above, _) = warp::warp_shuffle_down(warp::ALL, values[load], stride, 32);
                        ops[load].combine(values[load], above)
                    });
                    stride *= 2;
                }
                if item == 0 {
                    unrolled::<LOADS>(|load| deliver(load, &ops[load], values[load]));
                }
            }
        }
        are_taken
    }
}
