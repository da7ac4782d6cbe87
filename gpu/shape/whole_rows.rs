//! Rows that a warp folds whole: short ones several at a time, longer ones one after another.

use super::segments::{Arguments, fold_leaf, is_aligned, load_leaf, plan_of};
use crate::Op;
use crate::agent::shared::is_passed;
use crate::agent::{Agent, folds_by_loads};
use crate::input::Input;
use crate::tree::{fold_lanes, fold_leaves_of_warp, fold_slots, of_thread, unrolled};
use core::array::from_fn;
use cuda_std::{intrinsics, warp};

/// Leaves of the longest short rows, which also have no more leaves than a row of the plan.
pub const SHORT: u64 = 32 * LOADS as u64;

/// Loads that a lane has in flight.
pub(super) const LOADS: usize = 4;

/// Words of 4 bytes of the largest accumulators of which warps have whole rows. Several larger ones a lane
/// would not fit in registers.
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

/// Reduces the rows `first..end`, which are [short](is_short). A row gets as many lanes as it has leaves,
/// rounded up to a power of two; or all lanes, with two or four leaves each. As many rows are folded at a
/// time as LOADS loads a lane suffice for.
///
/// With one load, these are all rows that the warp has. Few rows are folded so, because the time of a small
/// input goes to fetching instructions, and the code for one load has a quarter of those for four: 1,000 rows
/// of 65 `f32` took 2.4 µs on an H100, and take 1.6.
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
    // Opaque, because the compiler would compute what several ways need before it branches to one of them,
    // and keep it in registers that this one needs.
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
) {
    let Arguments { input, shape: segments, op, cut, .. } = *arguments;
    let (lane, len) = (warp::lane_id(), segments.size as u32);
    let is_aligned = len.is_multiple_of(WIDTH as u32) && is_aligned(input, WIDTH);
    let plan = plan_of::<WIDTH>(segments.size, cut.block, false);
    let mut row = first;
    // SAFETY: as the caller promises.
    unsafe {
        while row < end {
            intrinsics::no_unroll();
            let start = input.offset((row * segments.size) as usize);
            let op = op.begin(start.read());
            let is_inside = arguments.is_inside(WIDTH, row * segments.size, (row + 1) * segments.size);
            let mut part = Part { at: start, index: 0, len, is_aligned, is_inside };
            let mut value = op.identity();
            if O::EXACT {
                value = part.fold_in_any_order::<O, WIDTH>(&op);
            } else {
                let mut chunk = 0;
                while chunk < plan.chunks {
                    intrinsics::no_unroll();
                    let range = plan.range(chunk);
                    part.at = start.offset(range.start as usize);
                    part.index = range.start;
                    part.len = (range.end - range.start) as u32;
                    let units = Units::of::<O, P::Item, WIDTH>(part.len, cut.block);
                    let of_chunk = part.fold_units::<O, WIDTH>(&op, units, 0, units.of_chunk(cut.block));
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

/// How a warp folds a chunk: by units of 128, 64 or 32 leaves of each row of the plan.
#[derive(Clone, Copy)]
pub(super) struct Units {
    /// Leaves of a unit, as a logarithm.
    pub leaves: u32,
    /// Items of a row of the plan, if the chunk has several rows; else 0.
    row: u32,
}

impl Units {
    /// Returns the units of a chunk of `len` items.
    #[inline(always)]
    pub fn of<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(len: u32, block: u32) -> Self {
        let row = block * WIDTH as u32;
        if len <= row {
            Self { leaves: 7, row: 0 }
        } else {
            Self { leaves: 5 + leaves_of_rows::<O, I>(WIDTH).ilog2(), row }
        }
    }

    /// Returns the number of a chunk's units, as a logarithm.
    #[inline(always)]
    pub fn of_chunk(&self, block: u32) -> u32 {
        block.trailing_zeros().saturating_sub(self.leaves)
    }
}

/// Returns how many leaves of a row of the plan a lane has accumulators for, if it folds several rows: two or
/// one.
const fn leaves_of_rows<O: Op<I>, I: Copy + 'static>(width: usize) -> usize {
    if size_of::<O::Accumulator>() * width <= 32 { 2 } else { 1 }
}

/// A chunk that a warp folds, or a row or segment if the order of its items does not matter.
#[derive(Clone, Copy)]
pub(super) struct Part<P> {
    pub at: P,
    /// The index of its first item in the row.
    pub index: u64,
    /// Its items, one at least.
    pub len: u32,
    /// Whether loads are aligned for one access.
    pub is_aligned: bool,
    /// Whether leaves can be loaded at any address.
    pub is_inside: bool,
}

impl<P: Input> Part<P> {
    /// Returns the value of all items to lane 0, for an exact operator.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together. There are less than 2^31 items.
    #[inline(always)]
    pub unsafe fn fold_in_any_order<O: Op<P::Item>, const WIDTH: usize>(&self, op: &O) -> O::Accumulator {
        // SAFETY: as the caller promises.
        unsafe {
            if const { is_apart::<O, P::Item>() } {
                let &Self { at, index, len, is_aligned, is_inside } = self;
                fold_in_any_order_apart::<O, P, WIDTH>(*op, at, index, len, is_aligned, is_inside)
            } else {
                self.fold_in_any_order_here::<O, WIDTH>(op)
            }
        }
    }

    /// As [`fold_in_any_order`](Self::fold_in_any_order).
    ///
    /// # Safety
    ///
    /// As for `fold_in_any_order`.
    #[inline(always)]
    unsafe fn fold_in_any_order_here<O: Op<P::Item>, const WIDTH: usize>(&self, op: &O) -> O::Accumulator {
        let (mut all, mut first) = (op.identity(), 0);
        let of_load = warp::WARP_SIZE * WIDTH as u32;
        let step = LOADS as u32 * of_load;
        // SAFETY: as the caller promises.
        unsafe {
            // Small accumulators take few instructions an item, so that those which compute addresses count.
            if size_of::<O::Accumulator>() <= 8 && self.is_aligned {
                let mut all_of_lane = [all; WIDTH];
                while first + step <= self.len {
                    intrinsics::no_unroll();
                    let item = first + warp::lane_id() * WIDTH as u32;
                    let at = self.at.offset(item as usize);
                    let items: [[P::Item; WIDTH]; LOADS] =
                        from_fn(|load| at.offset(load * of_load as usize).load());
                    unrolled::<LOADS>(|load| {
                        let index = self.index + u64::from(item + load as u32 * of_load);
                        O::agent().fold_load(op, &mut all_of_lane, items[load], index);
                    });
                    first += step;
                }
                all = all_of_lane[0];
            }
            while first < self.len {
                intrinsics::no_unroll();
                let values = self.fold_leaves::<O, WIDTH>(op, first);
                unrolled::<LOADS>(|load| all = op.combine(all, values[load]));
                first += step;
            }
            // What `fold_each` leaves out.
            let mut item = self.len - self.len % WIDTH as u32 + warp::lane_id();
            while P::IS_NARROW && item < self.len {
                intrinsics::no_unroll();
                let value = self.at.offset(item as usize).read();
                O::agent().fold_item(op, &mut all, value, self.index + u64::from(item));
                item += warp::WARP_SIZE;
            }
            fold_lanes::<O, P::Item>(op, all, 5)
        }
    }

    /// Returns whether all leaves that begin in the `count` items from item `first` on are whole and aligned.
    #[inline(always)]
    fn is_whole<const WIDTH: usize>(&self, first: u32, count: u32) -> bool {
        self.is_aligned && (self.len.is_multiple_of(WIDTH as u32) || first + count <= self.len)
    }

    /// Returns where the leaf of an item lies, or the last one if it is not there.
    #[inline(always)]
    fn leaf<const WIDTH: usize>(&self, item: u32) -> P {
        self.at.offset(item.min((self.len - 1) / WIDTH as u32 * WIDTH as u32) as usize)
    }

    /// Returns the value of each of the lane's next four leaves, from item `first` on.
    ///
    /// # Safety
    ///
    /// There is such an item.
    #[inline(always)]
    unsafe fn fold_leaves<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        first: u32,
    ) -> [O::Accumulator; LOADS] {
        let of_load = warp::WARP_SIZE * WIDTH as u32;
        let item_of = |load: usize| first + warp::lane_id() * WIDTH as u32 + load as u32 * of_load;
        // SAFETY: as the caller promises.
        unsafe {
            fold_each::<O, P, WIDTH, LOADS>(
                &[*op; LOADS],
                |load| self.leaf::<WIDTH>(item_of(load)),
                |load| self.index + u64::from(item_of(load)),
                from_fn(|load| self.len.saturating_sub(item_of(load))),
                [self.is_whole::<WIDTH>(first, LOADS as u32 * of_load), self.is_inside],
            )
        }
    }

    /// Returns the value of 2^`count` units from unit `unit` on, to lane 0, if the order of items matters.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    pub unsafe fn fold_units<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        units: Units,
        unit: u32,
        count: u32,
    ) -> O::Accumulator {
        // SAFETY: as the caller promises.
        unsafe {
            if const { is_apart::<O, P::Item>() } {
                let &Self { at, index, len, is_aligned, is_inside } = self;
                let Units { leaves, row } = units;
                fold_units_apart::<O, P, WIDTH>(
                    *op, at, index, len, is_aligned, is_inside, leaves, row, unit, count,
                )
            } else {
                self.fold_units_here::<O, WIDTH>(op, units, unit, count)
            }
        }
    }

    /// As [`fold_units`](Self::fold_units).
    ///
    /// # Safety
    ///
    /// As for `fold_units`.
    #[inline(always)]
    unsafe fn fold_units_here<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        units: Units,
        mut unit: u32,
        count: u32,
    ) -> O::Accumulator {
        let lane = warp::lane_id();
        let of_unit = (WIDTH as u32) << units.leaves;
        let leaves = leaves_of_rows::<O, P::Item>(WIDTH);
        // Lane i keeps the value of unit i.
        let (mut of_units, mut done) = (op.identity(), 0);
        let most = if units.row == 0 { self.len } else { units.row };
        // SAFETY: as the caller promises.
        unsafe {
            while done >> count == 0 && unit * of_unit < most {
                intrinsics::no_unroll();
                let first = unit * of_unit;
                let mut values = [op.identity(); LOADS];
                if units.row == 0 {
                    values = self.fold_leaves::<O, WIDTH>(op, first);
                } else {
                    let mut all = [[op.identity(); WIDTH]; LOADS];
                    let mut down = first;
                    while down < self.len {
                        intrinsics::no_unroll();
                        self.fold_rows::<O, WIDTH>(op, &mut all, down, units.row);
                        down += (LOADS / leaves) as u32 * units.row;
                    }
                    unrolled::<LOADS>(|leaf| {
                        if leaf < leaves {
                            values[leaf] = of_thread::<O, P::Item, WIDTH>(op, all[leaf]);
                        }
                    });
                }
                let value = fold_leaves_of_warp::<O, P::Item>(op, values);
                let (value, _) = warp::warp_shuffle_idx(warp::ALL, value, 0, 32);
                if lane == done {
                    of_units = value;
                }
                done += 1;
                unit += 1;
            }
            fold_lanes::<O, P::Item>(op, of_units, count)
        }
    }

    /// Folds four loads into the accumulators of one or two leaves of neighbouring rows of the plan, from
    /// item `first` on.
    ///
    /// # Safety
    ///
    /// There is such an item.
    #[inline(always)]
    unsafe fn fold_rows<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        all: &mut [[O::Accumulator; WIDTH]; LOADS],
        first: u32,
        row: u32,
    ) {
        let leaves = leaves_of_rows::<O, P::Item>(WIDTH);
        let lane = warp::lane_id();
        // A row of 32 leaves has no second one for a lane.
        let is_there = |load: usize| load.is_multiple_of(leaves) || row > warp::WARP_SIZE * WIDTH as u32;
        let item_of = |load: usize| {
            let leaf = (load % leaves) as u32 * warp::WARP_SIZE + lane;
            first + (load / leaves) as u32 * row + leaf * WIDTH as u32
        };
        let left_of = |load: usize| if is_there(load) { self.len.saturating_sub(item_of(load)) } else { 0 };
        let leaf_of = |load: usize| self.leaf::<WIDTH>(item_of(load));
        let index_of = |load: usize| self.index + u64::from(item_of(load));
        let last = (LOADS / leaves - 1) as u32 * row + (leaves * WIDTH) as u32 * warp::WARP_SIZE;
        // SAFETY: as the caller promises.
        unsafe {
            // Small accumulators take few instructions an item, so that those which compute addresses count:
            // whole steps need no limit for them. With one leaf, a lane loads from four rows of the plan, and
            // chunks of two rows have no such step.
            let is_single = leaves == 1;
            let is_fast = if is_single {
                self.is_whole::<WIDTH>(first, last)
            } else {
                self.is_aligned && first + last <= self.len && is_there(1)
            };
            if is_fast {
                let place = |load: usize| {
                    if is_single { leaf_of(load) } else { self.at.offset(item_of(load) as usize) }
                };
                let items: [[P::Item; WIDTH]; LOADS] =
                    intrinsics::apart(|| from_fn(|load| place(load).load()));
                unrolled::<LOADS>(|load| {
                    if !is_single || left_of(load) > 0 {
                        O::agent().fold_load(op, &mut all[load % leaves], items[load], index_of(load));
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
                    let all = &mut all[load % leaves];
                    fold_leaf(op, all, items[load], leaf_of(load), left_of(load), index_of(load));
                });
            }
        }
    }
}

/// Whether a warp folds parts by functions that the kernel calls in two places, for whole rows and for segments: for large
/// accumulators and for `logsumexp`, whose code for it is a third of the kernel's. For others a call takes longer than it
/// saves (`var` of rows of 1,024 `f32` 13% more on an H200).
const fn is_apart<O: Op<I>, I: Copy + 'static>() -> bool {
    is_passed::<O::Accumulator>() && (size_of::<O::Accumulator>() > 16 || !folds_by_loads::<O, I>())
}

/// [`Part::fold_in_any_order`] as a function. Its arguments are values, because structs would go through memory.
///
/// # Safety
///
/// As for `fold_in_any_order`.
#[inline(never)]
unsafe fn fold_in_any_order_apart<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: O,
    at: P,
    index: u64,
    len: u32,
    is_aligned: bool,
    is_inside: bool,
) -> O::Accumulator {
    let part = Part { at, index, len, is_aligned, is_inside };
    // SAFETY: as the caller promises.
    unsafe { part.fold_in_any_order_here::<O, WIDTH>(&op) }
}

/// [`Part::fold_units`] as a function, as [`fold_in_any_order_apart`].
///
/// # Safety
///
/// As for `fold_units`.
#[allow(clippy::too_many_arguments)]
#[inline(never)]
unsafe fn fold_units_apart<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: O,
    at: P,
    index: u64,
    len: u32,
    is_aligned: bool,
    is_inside: bool,
    leaves: u32,
    row: u32,
    unit: u32,
    count: u32,
) -> O::Accumulator {
    let (part, units) = (Part { at, index, len, is_aligned, is_inside }, Units { leaves, row });
    // SAFETY: as the caller promises.
    unsafe { part.fold_units_here::<O, WIDTH>(&op, units, unit, count) }
}

/// Folds a leaf for each load, of which `lefts` items are left: 0 for a leaf that is not there, for which
/// `leaf_of` returns where another one lies. (All lanes load at once then. With a condition, ptxas moved
/// loads behind code that waits for the loads before.) If `is_whole`, each leaf is whole and aligned for one
/// access; if `is_inside`, leaves can be loaded at any address.
///
/// An exact operator folds narrow items of whole leaves only.
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
            let items = load_whole::<P, WIDTH, LOADS>(&leaf_of, lefts, is_inside);
            unrolled::<LOADS>(|load| {
                let mut all = [ops[load].identity(); WIDTH];
                if lefts[load] >= WIDTH as u32 {
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

/// Loads leaves; `lefts` says how many items each has. A leaf with less than WIDTH items is not loaded. Narrow
/// items are loaded by words if all of them are inside the array.
///
/// # Safety
///
/// There are these items.
#[inline(always)]
unsafe fn load_whole<P: Input, const WIDTH: usize, const LOADS: usize>(
    leaf_of: impl Fn(usize) -> P,
    lefts: [u32; LOADS],
    is_inside: bool,
) -> [[P::Item; WIDTH]; LOADS] {
    let is_whole = |load: usize| lefts[load] >= WIDTH as u32;
    // SAFETY: as the caller promises.
    unsafe {
        if P::IS_NARROW && is_inside {
            intrinsics::apart(|| {
                from_fn(
                    |load| if is_whole(load) { leaf_of(load).load_anywhere() } else { [P::zeroed(); WIDTH] },
                )
            })
        } else {
            let one_by_one = |leaf: P| from_fn(|item| leaf.offset(item).read());
            intrinsics::apart(|| {
                from_fn(|load| if is_whole(load) { one_by_one(leaf_of(load)) } else { [P::zeroed(); WIDTH] })
            })
        }
    }
}
