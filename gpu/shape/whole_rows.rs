//! Rows that a warp folds whole: short ones several at a time, longer ones one after another.

use super::segments::{Arguments, fold_leaf, load_leaf, plan_of};
use crate::Op;
use crate::agent::Agent;
use crate::input::Input;
use crate::tree::{fold_lanes, fold_leaves_of_warp, fold_slots, of_thread, unrolled};
use core::array::from_fn;
use cuda_std::{intrinsics, warp};

/// Leaves of the longest short rows, which also have no more leaves than a row of the plan.
pub const SHORT: u64 = 32 * LOADS as u64;

/// Loads that a lane has in flight.
pub(super) const LOADS: usize = 4;

/// Words of 4 bytes of the largest accumulators of which warps have whole rows. Several larger ones a lane would not fit
/// in registers.
pub const MOST_WORDS: usize = 16;

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

/// Returns how many leaves of a row of the plan a lane has registers for, if it folds several rows: all that it loads, two,
/// or one. With all, it folds chunks of one row only.
pub const fn leaves_of_rows(accumulator_bytes: usize, width: usize) -> usize {
    match accumulator_bytes * width {
        0..=16 => LOADS,
        17..=32 => 2,
        _ => 1,
    }
}

/// Reduces the rows `first..end`, which are [short](is_short). A row gets as many lanes as it has leaves,
/// rounded up to a power of two; or all lanes, with two or four leaves each. As many rows are folded at a
/// time as LOADS loads a lane suffice for.
///
/// With one load, these are all rows that the warp has. Few rows are folded so, because the time of a small input goes
/// to fetching instructions, and the code for one load has a quarter of those for four: 1,000 rows of 65 `f32` took
/// 2.4 µs on an H100, and take 1.6.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
pub(super) unsafe fn fold_short<O: Op<P::Item>, P: Input, const WIDTH: usize, const LOADS: usize>(
    arguments: &Arguments<P, O, O::Output>,
    first: u64,
    end: u64,
    is_whole: bool,
) {
    let Arguments { input, shape: segments, op, .. } = *arguments;
    // Opaque: or the compiler shares instructions of several ways, whose values take registers of the other ones.
    let (lane, len) = (intrinsics::opaque(warp::lane_id()), intrinsics::opaque(segments.size as u32));
    let leaves = len.div_ceil(WIDTH as u32);
    let levels = if leaves > 1 { 32 - (leaves - 1).leading_zeros() } else { 0 };
    // Lanes of a row, and leaves of a lane, as logarithms.
    let lanes = levels.min(5);
    let parts = levels - lanes;
    let item = (lane & ((1 << lanes) - 1)) * WIDTH as u32;
    // Rows of one load of all lanes, and of all LOADS loads.
    let next = 32 >> lanes;
    let most = (next * LOADS as u32) >> parts;
    // Rows with the bytes that loads by words may read after a row.
    let margin = (WIDTH as u32 + 4).div_ceil(len.max(1));
    let row_of = |load: usize| (load as u32 >> parts) * next;
    let item_of = |load: usize| item + (load as u32 & ((1 << parts) - 1)) * warp::WARP_SIZE * WIDTH as u32;
    // The first row of the lane, if it has one.
    let group = lane >> lanes;
    let mut at = input.offset(((first + u64::from(group)) * segments.size) as usize);
    let all = end.saturating_sub(first) as u32;
    let mut done = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while done < all {
            intrinsics::no_unroll();
            let rows = (all - done).saturating_sub(group).min(most);
            let left_of =
                |load: usize| if row_of(load) < rows { len.saturating_sub(item_of(load)) } else { 0 };
            // 32-bit values, computed before any load. With 64-bit comparisons between the loads, ptxas
            // moved some loads behind code that waits for others.
            let lefts: [u32; LOADS] = from_fn(|load| intrinsics::opaque(left_of(load)));
            let mut ops = [op; LOADS];
            unrolled::<LOADS>(|load| {
                if row_of(load) < rows {
                    ops[load] = op.begin(at.offset((row_of(load) * len) as usize).read());
                }
            });
            let row = first + u64::from(done);
            // Whether all leaves of the warp can be loaded by words.
            let is_inside = !P::IS_NARROW || row > 0 && row + u64::from(most + margin) <= segments.count;
            // A lane without a row has the warp's first one.
            let before = if rows > 0 { 0 } else { (group * len) as usize };
            let near = at.offset(before.wrapping_neg());
            let leaf_of = |load: usize| {
                let item = if lefts[load] > 0 { row_of(load) * len + item_of(load) } else { 0 };
                near.offset(item as usize)
            };
            let mut values = fold_each::<O, P, WIDTH, LOADS>(
                &ops,
                leaf_of,
                |load| item_of(load).into(),
                lefts,
                [is_whole, is_inside],
            );
            if O::EXACT && P::IS_NARROW && !is_whole {
                // The order does not matter, so each lane folds an item of those after the last whole leaf.
                let mut rest = if is_inside { len - len % WIDTH as u32 } else { 0 } + item / WIDTH as u32;
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
                            O::agent().fold_item(&ops[load], &mut values[load], items[load], rest.into());
                        }
                    });
                    rest += 1 << lanes;
                }
            }
            let row_of_load = |load: u32| row + u64::from(group + (load >> parts) * next);
            if LOADS > 1 && lanes >= 2 {
                let (op, mut value) = fold_slots::<O, P::Item>(
                    from_fn(|load| ops[load % LOADS]),
                    from_fn(|load| values[load % LOADS]),
                    lanes,
                );
                // Lane i has a leaf group of load i modulo 4.
                for stride in [1, 2] {
                    if stride >> parts == 0 {
                        let (above, _) = warp::warp_shuffle_down(warp::ALL, value, stride, 32);
                        value = op.combine(value, above);
                    }
                }
                let load = lane & 3;
                if item < 4 * WIDTH as u32 && load & ((1 << parts) - 1) == 0 && (load >> parts) * next < rows
                {
                    arguments.deliver(&op, row_of_load(load), value, len.into());
                }
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
                    unrolled::<LOADS>(|load| {
                        if row_of(load) < rows {
                            arguments.deliver(&ops[load], row_of_load(load as u32), values[load], len.into());
                        }
                    });
                }
            }
            if LOADS == 1 {
                return;
            }
            done += most;
            at = at.offset((most * len) as usize);
        }
    }
}

/// Reduces the rows `first..end`, of more than [`SHORT`] leaves, one after another.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
pub(super) unsafe fn fold_long<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: &Arguments<P, O, O::Output>,
    first: u64,
    end: u64,
    is_whole: bool,
) {
    let Arguments { input, shape: segments, op, cut, .. } = *arguments;
    let (lane, len) = (warp::lane_id(), segments.size as u32);
    let of_load = warp::WARP_SIZE * WIDTH as u32;
    let plan = plan_of::<WIDTH>(segments.size, cut.block, false);
    let mut row = first;
    // SAFETY: as the caller promises.
    unsafe {
        while row < end {
            intrinsics::no_unroll();
            let start = input.offset((row * segments.size) as usize);
            let op = op.begin(start.read());
            let is_inside = !P::IS_NARROW || row > 0 && row + 1 < segments.count;
            let line = Line { at: start, item: lane * WIDTH as u32, len, is_whole, is_inside };
            let mut value = op.identity();
            if O::EXACT {
                let mut turn = 0;
                while turn < len {
                    intrinsics::no_unroll();
                    let values = line.fold_each::<O, WIDTH>(&op, turn);
                    unrolled::<LOADS>(|load| value = op.combine(value, values[load]));
                    turn += LOADS as u32 * of_load;
                }
                if P::IS_NARROW && !is_whole {
                    let mut rest = if is_inside { len - len % WIDTH as u32 } else { 0 } + lane;
                    while rest < len {
                        intrinsics::no_unroll();
                        O::agent().fold_item(
                            &op,
                            &mut value,
                            start.offset(rest as usize).read(),
                            rest.into(),
                        );
                        rest += warp::WARP_SIZE;
                    }
                }
                value = fold_lanes::<O, P::Item>(&op, value, 5);
            } else {
                let mut chunk = 0;
                while chunk < plan.chunks {
                    intrinsics::no_unroll();
                    let range = plan.range(chunk);
                    let (begin, stop) = (range.start as u32, range.end as u32);
                    let of_chunk =
                        Line { len: stop, ..line }.fold_chunk::<O, WIDTH>(&op, begin, plan.row as u32);
                    if plan.chunks == 1 {
                        value = of_chunk;
                    } else {
                        // The partial result of chunk i goes to lane i modulo 32.
                        let (of_chunk, _) = warp::warp_shuffle_idx(warp::ALL, of_chunk, 0, 32);
                        if lane == chunk % warp::WARP_SIZE {
                            value = op.combine(value, of_chunk);
                        }
                    }
                    chunk += 1;
                }
                if plan.chunks > 1 {
                    value = fold_lanes::<O, P::Item>(&op, value, 5);
                }
            }
            if lane == 0 {
                arguments.deliver(&op, row, value, len.into());
            }
            row += 1;
        }
    }
}

/// A row that a warp folds, or its part up to an item.
#[derive(Clone, Copy)]
struct Line<P> {
    at: P,
    /// The lane's first item of the first load.
    item: u32,
    len: u32,
    /// Whether all leaves are whole, and aligned for one access.
    is_whole: bool,
    /// Whether all leaves can be loaded at any address.
    is_inside: bool,
}

impl<P: Input> Line<P> {
    /// Returns the value of each of the lane's next four leaves, from item `first` of the row on.
    ///
    /// # Safety
    ///
    /// There is such an item.
    #[inline(always)]
    unsafe fn fold_each<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        first: u32,
    ) -> [O::Accumulator; LOADS] {
        let item_of = |load: usize| first + self.item + load as u32 * warp::WARP_SIZE * WIDTH as u32;
        // SAFETY: as the caller promises.
        unsafe {
            fold_each::<O, P, WIDTH, LOADS>(
                &[*op; LOADS],
                |load| self.leaf::<WIDTH>(item_of(load)),
                |load| item_of(load).into(),
                from_fn(|load| self.len.saturating_sub(item_of(load))),
                [self.is_whole, self.is_inside],
            )
        }
    }

    /// Returns where the leaf of an item lies, or the last one if it is not there.
    #[inline(always)]
    fn leaf<const WIDTH: usize>(&self, item: u32) -> P {
        self.at.offset(item.min((self.len - 1) / WIDTH as u32 * WIDTH as u32) as usize)
    }

    /// Returns the value of the chunk from item `first` to the end, to lane 0. A row of the plan has `row` items.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together. There is such an item.
    #[inline(always)]
    unsafe fn fold_chunk<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        first: u32,
        row: u32,
    ) -> O::Accumulator {
        let lane = warp::lane_id();
        let of_load = warp::WARP_SIZE * WIDTH as u32;
        let leaves = const { leaves_of_rows(size_of::<O::Accumulator>(), WIDTH) };
        // (If a lane has registers for four leaves, a chunk has one row of the plan.)
        let is_single = leaves == LOADS || self.len - first <= row;
        let of_unit = if is_single { LOADS } else { leaves } as u32 * of_load;
        // Lane i keeps the value of unit i.
        let (mut of_units, mut unit) = (op.identity(), 0);
        // SAFETY: as the caller promises.
        unsafe {
            while unit * of_unit < row.min(self.len - first) {
                intrinsics::no_unroll();
                let begin = first + unit * of_unit;
                let mut values = [op.identity(); LOADS];
                if is_single {
                    values = self.fold_each::<O, WIDTH>(op, begin);
                } else {
                    let mut all = [[op.identity(); WIDTH]; LOADS];
                    let mut down = begin;
                    while down < self.len {
                        intrinsics::no_unroll();
                        self.add::<O, WIDTH>(op, &mut all, leaves, down, row);
                        down += (LOADS / leaves) as u32 * row;
                    }
                    unrolled::<LOADS>(|leaf| {
                        if leaf < leaves {
                            values[leaf] = of_thread::<O, P::Item, WIDTH>(op, all[leaf]);
                        }
                    });
                }
                let value = fold_leaves_of_warp::<O, P::Item>(op, values);
                let (value, _) = warp::warp_shuffle_idx(warp::ALL, value, 0, 32);
                if lane == unit {
                    of_units = value;
                }
                unit += 1;
            }
            fold_lanes::<O, P::Item>(op, of_units, (row / of_unit).trailing_zeros())
        }
    }

    /// Folds four loads into the accumulators of `leaves` leaves: as many leaves of one or several rows of the plan, from
    /// item `first` on.
    ///
    /// # Safety
    ///
    /// There is such an item.
    #[inline(always)]
    unsafe fn add<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        all: &mut [[O::Accumulator; WIDTH]; LOADS],
        leaves: usize,
        first: u32,
        row: u32,
    ) {
        let item_of = |load: usize| {
            let of_load = warp::WARP_SIZE * WIDTH as u32;
            first + self.item + (load / leaves) as u32 * row + (load % leaves) as u32 * of_load
        };
        let left_of = |load: usize| self.len.saturating_sub(item_of(load));
        let leaf_of = |load: usize| self.leaf::<WIDTH>(item_of(load));
        // SAFETY: as the caller promises.
        unsafe {
            if self.is_whole {
                let items: [[P::Item; WIDTH]; LOADS] =
                    intrinsics::apart(|| from_fn(|load| leaf_of(load).load()));
                unrolled::<LOADS>(|load| {
                    if left_of(load) > 0 {
                        O::agent().fold_load(op, &mut all[load % leaves], items[load], item_of(load).into());
                    }
                });
            } else {
                let items: [[P::Item; WIDTH]; LOADS] = if P::IS_NARROW && self.is_inside {
                    intrinsics::apart(|| from_fn(|load| leaf_of(load).load_anywhere()))
                } else {
                    intrinsics::apart(|| {
                        from_fn(|load| load_leaf::<O, P, WIDTH>(leaf_of(load), left_of(load)))
                    })
                };
                unrolled::<LOADS>(|load| {
                    let index = item_of(load).into();
                    fold_leaf(op, &mut all[load % leaves], items[load], leaf_of(load), left_of(load), index);
                });
            }
        }
    }
}

/// Folds a leaf for each load, of which `lefts` items are left: 0 for a leaf that is not there, for which `leaf_of` returns
/// where another one lies. (All lanes load at once then. With a condition, ptxas moved loads behind code that waits for
/// the loads before.) If `is_whole`, each leaf is whole and aligned for one access; if `is_inside`, leaves can be loaded
/// at any address.
///
/// An exact operator folds narrow items of whole leaves only, and none unless `is_inside`.
///
/// # Safety
///
/// There are these items.
#[inline(always)]
unsafe fn fold_each<O: Op<P::Item>, P: Input, const WIDTH: usize, const LOADS: usize>(
    ops: &[O; LOADS],
    leaf_of: impl Fn(usize) -> P,
    index_of: impl Fn(usize) -> u64,
    lefts: [u32; LOADS],
    [is_whole, is_inside]: [bool; 2],
) -> [O::Accumulator; LOADS] {
    let mut values = [ops[0].identity(); LOADS];
    // SAFETY: as the caller promises.
    unsafe {
        if is_whole {
            let items: [[P::Item; WIDTH]; LOADS] = intrinsics::apart(|| from_fn(|load| leaf_of(load).load()));
            unrolled::<LOADS>(|load| {
                let mut all = [ops[load].identity(); WIDTH];
                O::agent().fold_load(&ops[load], &mut all, items[load], index_of(load));
                let value = of_thread::<O, P::Item, WIDTH>(&ops[load], all);
                values[load] = if lefts[load] > 0 { value } else { values[load] };
            });
        } else if O::EXACT {
            let is_all = |load: usize| is_inside && lefts[load] >= WIDTH as u32;
            let items: [[P::Item; WIDTH]; LOADS] = intrinsics::apart(|| {
                from_fn(
                    |load| if is_all(load) { leaf_of(load).load_anywhere() } else { [P::zeroed(); WIDTH] },
                )
            });
            unrolled::<LOADS>(|load| {
                let mut all = [ops[load].identity(); WIDTH];
                if is_all(load) {
                    O::agent().fold_load(&ops[load], &mut all, items[load], index_of(load));
                } else if !P::IS_NARROW {
                    fold_leaf(&ops[load], &mut all, items[load], leaf_of(load), lefts[load], index_of(load));
                }
                values[load] = all[0];
            });
        } else {
            let items: [[P::Item; WIDTH]; LOADS] = if P::IS_NARROW && is_inside {
                intrinsics::apart(|| from_fn(|load| leaf_of(load).load_anywhere()))
            } else {
                intrinsics::apart(|| from_fn(|load| load_leaf::<O, P, WIDTH>(leaf_of(load), lefts[load])))
            };
            unrolled::<LOADS>(|load| {
                let mut all = [ops[load].identity(); WIDTH];
                fold_leaf(&ops[load], &mut all, items[load], leaf_of(load), lefts[load], index_of(load));
                values[load] = of_thread::<O, P::Item, WIDTH>(&ops[load], all);
            });
        }
    }
    values
}
