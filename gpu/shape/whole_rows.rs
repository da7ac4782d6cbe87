//! The kernel of rows that are not short and that warps fold: each whole, one after another.

use super::lines::folds_several;
use super::segments::{Arguments, beside, fold_leaf, load_leaf, plan_of, rotate, warp_of_grid};
pub use super::segments::{Cut, SegmentBounds};
use crate::Op;
use crate::agent::{Agent, Step, folded_bytes, folds_by_loads, is_rare};
use crate::exchange::slot;
use crate::input::Input;
use crate::tree::{fold_lanes, fold_leaves_of_lanes, of_thread, unrolled};
use core::array::from_fn;
use cuda_std::{intrinsics, warp};

/// Loads that a lane has in flight.
pub(super) const LOADS: usize = 4;

/// Words of 4 bytes of the largest accumulators of which warps have whole rows. Several larger ones a lane
/// would not fit in registers.
pub const MOST_WORDS: usize = 16;

/// Returns whether warps fold rows that are not short, of items of `bytes` bytes and with accumulators of `words` words, if the
/// operator [folds several](super::lines::folds_several) chunks: blocks are faster if accumulators are small.
pub const fn have_warps(folds_several: bool, is_exact: bool, words: usize, bytes: usize) -> bool {
    let are_small = match (is_exact, words) {
        (false, ..=2) => true,
        (true, ..=1) => bytes >= 4,
        _ => false,
    };
    words <= MOST_WORDS && !(folds_several && are_small)
}

/// Reduces rows of `arguments.input`.
///
/// # Safety
///
/// As for [`reduce_segments`](super::segments::reduce_segments), without offsets or lists. [`Cut::share`](super::segments::Cut::share)
/// is the rows of a warp, of one item at least and less than 2^31. Warps [fold such rows](have_warps), and BLOCK is at least 128.
/// No row has groups of chunks.
#[inline(always)]
pub unsafe fn reduce_rows<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    if const { !have_warps(folds_several::<O, P::Item>(), O::EXACT, slot::words::<O::Accumulator>(), P::BYTES) }
    {
        return;
    }
    let Arguments { input, shape: segments, op, cut, .. } = arguments;
    let first = warp_of_grid() * u64::from(cut.share);
    let end = segments.count.min(first + u64::from(cut.share));
    let (lane, len) = (warp::lane_id(), segments.size as u32);
    let is_aligned = cut.has(Cut::ALIGNED);
    let plan = plan_of::<WIDTH>(segments.size, cut.block, false);
    let mut row = first;
    // SAFETY: as the caller promises.
    unsafe {
        while row < end {
            intrinsics::no_unroll();
            let start = input.offset((row * segments.size) as usize);
            let op = op.begin(start.read());
            let inside = arguments.inside(WIDTH, row * segments.size);
            let mut part = Part { at: start, index: 0, len, is_aligned, inside };
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
                    part.inside = arguments.inside(WIDTH, row * segments.size + range.start);
                    let units = Units::of::<O, P::Item, WIDTH>(cut.has(Cut::SHORT), &cut);
                    let of_chunk = part.fold_in_order::<O, WIDTH>(&op, units, 0, units.of_chunk(cut.block));
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
    /// Whether the values of units wait until there are four: to fold these over the lanes takes as many shuffles as to fold one. A
    /// lane has one leaf of a unit then.
    wait: bool,
}

impl Units {
    /// Returns the units of a chunk, of one row of the plan at most or of several.
    #[inline(always)]
    pub fn of<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(is_of_row: bool, cut: &Cut) -> Self {
        let row = cut.block * WIDTH as u32;
        if is_of_row {
            return Self { leaves: 7, row: 0, wait: false };
        }
        let leaves = leaves_of_rows::<O, I>(WIDTH);
        // Four larger accumulators would not fit in registers.
        let can_wait = leaves == 1 && folded_bytes::<O, I>() <= 16;
        Self { leaves: 5 + leaves.ilog2(), row, wait: can_wait && cut.has(Cut::LOW) }
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
    if folded_bytes::<O, I>() * width <= 32 { 2 } else { 1 }
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
    /// Which items can be loaded at any address: what [`Arguments::inside`] returns. (Not one answer for the whole segment: a warp whose
    /// segment begins or ends with the array would load all of it item by item, and the launch would wait for that warp. Sums of
    /// segments of 1,000,003 `u8` took 120 µs so on an H200, and take 76.)
    pub inside: [u32; 2],
}

impl<P: Input> Part<P> {
    /// Returns the value of all items to lane 0, for an exact operator.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together. There are less than 2^31 items.
    #[inline(always)]
    pub unsafe fn fold_in_any_order<O: Op<P::Item>, const WIDTH: usize>(&self, op: &O) -> O::Accumulator {
        let head = if self.is_aligned { Some(0) } else { self.at.head() };
        // SAFETY: as the caller promises.
        unsafe {
            let all = match head {
                Some(head) => self.fold_after::<O, WIDTH>(op, head % WIDTH as u32),
                None => self.fold_anywhere::<O, WIDTH>(op),
            };
            fold_lanes::<O, P::Item>(op, all, 5)
        }
    }

    /// Returns a lane's value, where `head` items precede the first leaf that is one access. The items before the first leaf and after
    /// the last one are folded one a lane.
    ///
    /// # Safety
    ///
    /// As for [`fold_in_any_order`](Self::fold_in_any_order).
    #[inline(always)]
    unsafe fn fold_after<O: Op<P::Item>, const WIDTH: usize>(&self, op: &O, head: u32) -> O::Accumulator {
        const { assert!(2 * (WIDTH - 1) <= warp::WARP_SIZE as usize) };
        let (lane, width) = (warp::lane_id(), WIDTH as u32);
        let head = head.min(self.len);
        let end = self.len - (self.len - head) % width;
        let rest = beside(lane, head, [self.len, width]);
        let (of_load, has_rest) = (warp::WARP_SIZE * width, rest < self.len);
        let step = LOADS as u32 * of_load;
        let (mut all, mut first) = (op.identity(), head);
        // SAFETY: as the caller promises.
        unsafe {
            let value = if has_rest { self.at.offset(rest as usize).read() } else { P::zeroed() };
            // Small accumulators take few instructions an item, so that those which compute addresses count.
            if size_of::<O::Accumulator>() <= 8 {
                let mut all_of_lane = [all; WIDTH];
                while first + step <= end {
                    intrinsics::no_unroll();
                    let item = first + lane * width;
                    let at = self.at.offset(item as usize);
                    let items: [P::Leaf<WIDTH>; LOADS] =
                        from_fn(|load| at.offset(load * of_load as usize).load());
                    unrolled::<LOADS>(|load| {
                        let index = self.index + u64::from(item + load as u32 * of_load);
                        O::agent().fold_load(op, &mut all_of_lane, P::items(items[load]), index);
                    });
                    first += step;
                }
                all = all_of_lane[0];
            }
            while first < end {
                intrinsics::no_unroll();
                let item_of = |load: usize| first + lane * width + load as u32 * of_load;
                let values = fold_each::<O, P, WIDTH, LOADS>(
                    &[*op; LOADS],
                    |load| self.at.offset(item_of(load).min(end - width) as usize),
                    |load| self.index + u64::from(item_of(load)),
                    from_fn(|load| end.saturating_sub(item_of(load))),
                    [true; 3],
                );
                unrolled::<LOADS>(|load| all = op.combine(all, values[load]));
                first += step;
            }
            if has_rest {
                O::agent().fold_item(op, &mut all, value, self.index + u64::from(rest));
            }
        }
        all
    }

    /// Returns a lane's value, if the items are in two arrays whose boundaries of 128 bytes are at different items.
    ///
    /// # Safety
    ///
    /// As for [`fold_in_any_order`](Self::fold_in_any_order).
    #[inline(always)]
    unsafe fn fold_anywhere<O: Op<P::Item>, const WIDTH: usize>(&self, op: &O) -> O::Accumulator {
        let (mut all, mut first) = (op.identity(), 0);
        // SAFETY: as the caller promises.
        unsafe {
            while first < self.len {
                intrinsics::no_unroll();
                let values = self.fold_leaves::<O, WIDTH>(op, first);
                unrolled::<LOADS>(|load| all = op.combine(all, values[load]));
                first += (LOADS * WIDTH) as u32 * warp::WARP_SIZE;
            }
            // What `fold_each` leaves out.
            let mut item = self.len - self.len % WIDTH as u32 + warp::lane_id();
            while P::IS_NARROW && item < self.len {
                intrinsics::no_unroll();
                let value = self.at.offset(item as usize).read();
                O::agent().fold_item(op, &mut all, value, self.index + u64::from(item));
                item += warp::WARP_SIZE;
            }
        }
        all
    }

    /// Returns whether the leaves of the items `first..end` can be loaded at any address.
    #[inline(always)]
    fn is_inside(&self, first: u32, end: u32) -> bool {
        !P::IS_NARROW || first >= self.inside[0] && end.min(self.len) <= self.inside[1]
    }

    /// Returns whether all leaves that begin in the `count` items from item `first` on are whole.
    #[inline(always)]
    fn is_whole<const WIDTH: usize>(&self, first: u32, count: u32) -> bool {
        self.len.is_multiple_of(WIDTH as u32) || first + count <= self.len
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
    /// There is such an item. All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_leaves<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        first: u32,
    ) -> [O::Accumulator; LOADS] {
        let of_load = warp::WARP_SIZE * WIDTH as u32;
        let item = first + warp::lane_id() * WIDTH as u32;
        let item_of = |load: usize| item + load as u32 * of_load;
        let index_of = |load: usize| self.index + u64::from(item_of(load));
        let ops = [*op; LOADS];
        let end = first + LOADS as u32 * of_load;
        let is_inside = self.is_inside(first, end);
        // SAFETY: as the caller promises.
        unsafe {
            if !O::EXACT && (self.is_aligned || is_inside) && end <= self.len {
                // One address is computed for all leaves, as none needs a limit.
                let at = self.at.offset(item as usize);
                let ahead_of = |load: usize| load * of_load as usize;
                let leaves: [P::Leaf<WIDTH>; LOADS] = in_flight::<O, P::Item, _>(|| {
                    if self.is_aligned {
                        ahead::<O, P::Item, _>(|| from_fn(|load| at.offset(ahead_of(load)).load()))
                    } else {
                        at.load_all(ahead_of)
                    }
                });
                let mut values = [op.identity(); LOADS];
                unrolled::<LOADS>(|load| {
                    values[load] = of_leaf::<O, P, WIDTH>(op, leaves[load], index_of(load));
                });
                return values;
            }
            fold_each::<O, P, WIDTH, LOADS>(
                &ops,
                |load| self.leaf::<WIDTH>(item_of(load)),
                index_of,
                from_fn(|load| self.len.saturating_sub(item_of(load))),
                [self.is_whole::<WIDTH>(first, LOADS as u32 * of_load), self.is_aligned, is_inside],
            )
        }
    }

    /// Returns the value of 2^`count` units from unit `unit` on, to lane 0, if the order of items matters.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together, with the same operator.
    #[inline(always)]
    pub unsafe fn fold_in_order<O: Op<P::Item>, const WIDTH: usize>(
        self,
        op: &O,
        units: Units,
        unit: u32,
        count: u32,
    ) -> O::Accumulator {
        let mut step =
            InOrder::<O, P, WIDTH> { part: self, op: *op, units, unit, count, value: op.identity() };
        // SAFETY: as the caller promises.
        unsafe { O::agent().fold_step(&mut step) };
        step.value
    }

    /// As [`fold_in_order`](Self::fold_in_order), by this operator.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_units<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        units: Units,
        unit: u32,
        count: u32,
    ) -> O::Accumulator {
        let lane = warp::lane_id();
        let of_unit = (WIDTH as u32) << units.leaves;
        let mut values = [op.identity(); LOADS];
        // Lane i keeps the value of the i-th unit or, if values wait, the value of the i-th four units.
        let (mut of_units, mut done, mut kept) = (op.identity(), 0, 0);
        let most = if units.row == 0 { self.len } else { units.row };
        let (mut next, end) = (unit * of_unit, most.min((unit + (1 << count)) * of_unit));
        // SAFETY: as the caller promises.
        unsafe {
            loop {
                intrinsics::no_unroll();
                let mut first = next;
                if first >= end {
                    if !units.wait || done % LOADS as u32 == 0 {
                        break;
                    }
                    // Fewer than four values wait, and no unit is left. From here on there are no items, so that identities follow them.
                    first = self.len;
                }
                done += 1;
                next += of_unit;
                if units.row == 0 {
                    values = self.fold_leaves::<O, WIDTH>(op, first);
                } else {
                    let of_unit = self.fold_down::<O, WIDTH>(op, first, units.row);
                    if units.wait {
                        rotate(&mut values);
                        values[LOADS - 1] = of_unit[0];
                        if done % LOADS as u32 != 0 {
                            continue;
                        }
                    } else {
                        values = of_unit;
                    }
                }
                let value = fold_leaves_of_lanes::<O, P::Item>(op, values, 5);
                let (value, _) = warp::warp_shuffle_idx(warp::ALL, value, 0, 32);
                if lane == kept {
                    of_units = value;
                }
                kept += 1;
            }
            let waiting = if units.wait { LOADS.trailing_zeros() } else { 0 };
            fold_lanes::<O, P::Item>(op, of_units, count.saturating_sub(waiting))
        }
    }

    /// As [`fold_units`](Self::fold_units), with the code of one leaf.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_rarely<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        units: Units,
        unit: u32,
        count: u32,
    ) -> O::Accumulator {
        let lane = warp::lane_id();
        let row = if units.row == 0 { self.len } else { units.row };
        // Lane i keeps the value of the leaves 32 i to 32 i + 31.
        let groups = units.leaves + count - 5;
        let (mut of_groups, mut group) = (op.identity(), 0);
        // SAFETY: as the caller promises; the leaves have these items.
        unsafe {
            while group >> groups == 0 {
                intrinsics::no_unroll();
                let leaf = (unit << units.leaves) + group * warp::WARP_SIZE + lane;
                let (mut all, mut item) = ([op.identity(); WIDTH], leaf * WIDTH as u32);
                // A row of 32 leaves has no others, though units may have 64.
                if item >= row {
                    item = self.len;
                }
                while item < self.len {
                    intrinsics::no_unroll();
                    let (at, left) = (self.at.offset(item as usize), self.len - item);
                    let loaded = load_leaf::<O, P, WIDTH>(at, left);
                    fold_leaf::<O, P, WIDTH>(op, &mut all, loaded, at, left, self.index + u64::from(item));
                    item += row;
                }
                let value = fold_lanes::<O, P::Item>(op, of_thread::<O, P::Item, WIDTH>(op, all), 5);
                let (value, _) = warp::warp_shuffle_idx(warp::ALL, value, 0, 32);
                if lane == group {
                    of_groups = value;
                }
                group += 1;
            }
            fold_lanes::<O, P::Item>(op, of_groups, groups)
        }
    }

    /// Returns the value of each of the lane's leaves of a unit, one or two, in all rows of the plan, from item `first` on. The other
    /// values are the identity.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_down<O: Op<P::Item>, const WIDTH: usize>(
        &self,
        op: &O,
        first: u32,
        row: u32,
    ) -> [O::Accumulator; LOADS] {
        let leaves = leaves_of_rows::<O, P::Item>(WIDTH);
        let mut all = [[op.identity(); WIDTH]; LOADS];
        let mut down = first;
        // SAFETY: as the caller promises.
        unsafe {
            while down < self.len {
                intrinsics::no_unroll();
                let of_unit = (leaves * WIDTH) as u32 * warp::WARP_SIZE;
                let end = down + row + of_unit;
                let is_anywhere = self.is_aligned || self.is_inside(down, end);
                if leaves == 1 || is_anywhere && row >= of_unit && end <= self.len {
                    self.fold_rows::<O, WIDTH, LOADS>(op, &mut all, down, row);
                    down += (LOADS / leaves) as u32 * row;
                } else {
                    // Two leaves of one row. If this step had two rows, too, the last of three rows would take as long as two rows.
                    self.fold_rows::<O, WIDTH, 2>(op, &mut all, down, row);
                    down += row;
                }
            }
        }
        let mut values = [op.identity(); LOADS];
        unrolled::<LOADS>(|leaf| {
            if leaf < leaves {
                values[leaf] = of_thread::<O, P::Item, WIDTH>(op, all[leaf]);
            }
        });
        values
    }

    /// Folds COUNT loads into the accumulators of one or two leaves of neighbouring rows of the plan, from item `first` on. If a lane has two
    /// leaves and COUNT is four, the caller has seen that all leaves are whole, and that they are aligned or can be loaded at any address.
    ///
    /// # Safety
    ///
    /// There is such an item. All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_rows<O: Op<P::Item>, const WIDTH: usize, const COUNT: usize>(
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
        let is_single = leaves == 1;
        // A lane whose leaf is past the row's end loads the step's first leaf, which is whole if all others are. (If it loaded the last leaf
        // as a whole one, it would read items past the row's end.)
        let leaf_of = |load: usize| {
            if !is_single {
                self.leaf::<WIDTH>(item_of(load))
            } else {
                self.at.offset(if left_of(load) > 0 { item_of(load) as usize } else { first as usize })
            }
        };
        let index_of = |load: usize| self.index + u64::from(item_of(load));
        let last = (COUNT / leaves - 1) as u32 * row + (leaves * WIDTH) as u32 * warp::WARP_SIZE;
        let is_full = COUNT == LOADS && !is_single;
        // SAFETY: as the caller promises.
        unsafe {
            // Small accumulators take few instructions an item, so that those which compute addresses count:
            // whole steps need no limit for them. With one leaf, a lane loads from four rows of the plan, and
            // chunks of two rows have no such step.
            let is_whole = if is_single && !self.is_aligned && !is_apart::<O, P::Item>() {
                let mut are_whole = true;
                unrolled::<COUNT>(|load| are_whole &= left_of(load) == 0 || left_of(load) >= WIDTH as u32);
                warp::warp_vote_all(warp::ALL, are_whole)
            } else if is_single {
                self.is_whole::<WIDTH>(first, last)
            } else {
                is_full || first + last <= self.len && is_there(1)
            };
            // Leaves that need no limit have one address for each row.
            let at = self.at.offset((first + lane * WIDTH as u32) as usize);
            let ahead_of = |load: usize| {
                let (down, beside) = (load / leaves, load % leaves * warp::WARP_SIZE as usize);
                down * row as usize + beside * WIDTH
            };
            let place = |load: usize| if is_single { leaf_of(load) } else { at.offset(ahead_of(load)) };
            let mut fold_whole = |items: [P::Leaf<WIDTH>; COUNT]| {
                unrolled::<COUNT>(|load| {
                    if !is_single || left_of(load) > 0 {
                        O::agent().fold_load(
                            op,
                            &mut all[load % leaves],
                            P::items(items[load]),
                            index_of(load),
                        );
                    }
                });
            };
            if is_whole && self.is_aligned && is_apart::<O, P::Item>() {
                fold_whole(in_flight::<O, P::Item, _>(|| from_fn(|load| place(load).load())));
                return;
            }
            let is_whole = is_whole && !is_apart::<O, P::Item>();
            let is_anywhere =
                is_full || if P::IS_NARROW { self.is_inside(first, first + last) } else { is_whole };
            let items: [P::Leaf<WIDTH>; COUNT] = in_flight::<O, P::Item, _>(|| {
                if is_whole && self.is_aligned {
                    from_fn(|load| place(load).load())
                } else if is_full {
                    at.load_all(ahead_of)
                } else if is_anywhere {
                    from_fn(|load| leaf_of(load).load_anywhere())
                } else {
                    from_fn(|load| load_leaf::<O, P, WIDTH>(leaf_of(load), left_of(load)))
                }
            });
            if is_whole {
                fold_whole(items);
            } else {
                unrolled::<COUNT>(|load| {
                    let all = &mut all[load % leaves];
                    fold_leaf::<O, P, WIDTH>(
                        op,
                        all,
                        items[load],
                        leaf_of(load),
                        left_of(load),
                        index_of(load),
                    );
                });
            }
        }
    }
}

/// Some units of a part, and their value.
struct InOrder<O: Op<P::Item>, P: Input, const WIDTH: usize> {
    part: Part<P>,
    op: O,
    units: Units,
    /// The first unit, and how many there are, as a logarithm.
    unit: u32,
    count: u32,
    /// The value, in lane 0.
    value: O::Accumulator,
}

impl<O: Op<P::Item>, P: Input, const WIDTH: usize> Step<O, P::Item> for InOrder<O, P, WIDTH> {
    #[inline(always)]
    unsafe fn fold<S: Op<P::Item>>(
        &mut self,
        stand_in: impl Fn(O) -> S,
        take: impl Fn(&S, S::Accumulator) -> Option<(O, O::Accumulator)>,
    ) -> bool {
        let op = stand_in(self.op);
        // SAFETY: as the caller promises.
        let value = unsafe {
            if const { is_rare::<S, P::Item>() } {
                self.part.fold_rarely::<S, WIDTH>(&op, self.units, self.unit, self.count)
            } else {
                self.part.fold_units::<S, WIDTH>(&op, self.units, self.unit, self.count)
            }
        };
        match take(&op, value) {
            Some((_, value)) => {
                self.value = value;
                true
            }
            None => warp::lane_id() > 0,
        }
    }
}

/// Calls `load`, whose loads are all issued before one of their values is used, if accumulators are small: without the barrier,
/// ptxas 13.0.88 loaded and folded one leaf after another in some kernels (segments of 1,000 `f32` 112 µs in place of 99 on an
/// H100). Large accumulators need the registers, and spill with it (`var` of these segments 124 in place of 110).
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
pub(super) unsafe fn in_flight<O: Op<I>, I: Copy + 'static, V>(load: impl FnOnce() -> V) -> V {
    if const { is_small::<O, I>() } {
        // SAFETY: as the caller promises.
        unsafe { intrinsics::together(load) }
    } else {
        intrinsics::apart(load)
    }
}

/// As [`in_flight`], for aligned leaves, whose code has no branches: there the barrier has no effect (sums of rows of 16 `f32` 92 µs in
/// place of 71 on an H200).
#[inline(always)]
fn ahead<O: Op<I>, I: Copy + 'static, V>(load: impl FnOnce() -> V) -> V {
    if const { is_small::<O, I>() } { intrinsics::ahead(load) } else { intrinsics::apart(load) }
}

/// Returns whether accumulators leave registers for several loads in flight.
const fn is_small<O: Op<I>, I: Copy + 'static>() -> bool {
    size_of::<O::Accumulator>() <= if O::EXACT { 16 } else { 8 }
}

/// Returns the value of a whole leaf, whose first item has this index.
#[inline(always)]
fn of_leaf<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: &O,
    leaf: P::Leaf<WIDTH>,
    index: u64,
) -> O::Accumulator {
    let mut all = [op.identity(); WIDTH];
    O::agent().fold_load(op, &mut all, P::items(leaf), index);
    of_thread::<O, P::Item, WIDTH>(op, all)
}

/// Folds a leaf for each load, of which `lefts` items are left: 0 for a leaf that is not there, for which
/// `leaf_of` returns where another one lies. (All lanes load at once then. With a condition, ptxas moved
/// loads behind code that waits for the loads before.) `is_whole` says that each leaf is whole, `is_aligned` that whole ones are one
/// access each, `is_inside` that leaves can be loaded at any address.
///
/// An exact operator folds narrow items of whole leaves only.
///
/// # Safety
///
/// There are these items. All lanes of the warp call it together.
#[inline(always)]
pub(super) unsafe fn fold_each<O: Op<P::Item>, P: Input, const WIDTH: usize, const LOADS: usize>(
    ops: &[O; LOADS],
    leaf_of: impl Fn(usize) -> P,
    index_of: impl Fn(usize) -> u64,
    lefts: [u32; LOADS],
    [is_whole, is_aligned, is_inside]: [bool; 3],
) -> [O::Accumulator; LOADS] {
    let mut values = [ops[0].identity(); LOADS];
    // SAFETY: as the caller promises.
    unsafe {
        let mut fold_whole = |items: [P::Leaf<WIDTH>; LOADS]| {
            unrolled::<LOADS>(|load| {
                let value = of_leaf::<O, P, WIDTH>(&ops[load], items[load], index_of(load));
                values[load] = if lefts[load] > 0 { value } else { values[load] };
            });
        };
        if is_whole && is_aligned && is_apart::<O, P::Item>() {
            fold_whole(ahead::<O, P::Item, _>(|| from_fn(|load| leaf_of(load).load())));
        } else if O::EXACT {
            let items = load_whole::<O, P, WIDTH, LOADS>(&leaf_of, lefts, is_inside);
            let value_of = |op: &O, load: usize, items: P::Leaf<WIDTH>, left: u32| {
                let mut all = [op.identity(); WIDTH];
                if left >= WIDTH as u32 {
                    O::agent().fold_load(op, &mut all, P::items(items), index_of(load));
                } else if !P::IS_NARROW {
                    fold_leaf::<O, P, WIDTH>(op, &mut all, items, leaf_of(load), left, index_of(load));
                }
                all[0]
            };
            unrolled::<LOADS>(|load| values[load] = value_of(&ops[load], load, items[load], lefts[load]));
        } else {
            let is_whole = is_whole && !is_apart::<O, P::Item>();
            let items: [P::Leaf<WIDTH>; LOADS] = in_flight::<O, P::Item, _>(|| {
                if is_whole && is_aligned {
                    ahead::<O, P::Item, _>(|| from_fn(|load| leaf_of(load).load()))
                } else if if P::IS_NARROW { is_inside } else { is_whole } {
                    from_fn(|load| leaf_of(load).load_anywhere())
                } else {
                    from_fn(|load| load_leaf::<O, P, WIDTH>(leaf_of(load), lefts[load]))
                }
            });
            if is_whole {
                fold_whole(items);
            } else {
                unrolled::<LOADS>(|load| {
                    let mut all = [ops[load].identity(); WIDTH];
                    fold_leaf::<O, P, WIDTH>(
                        &ops[load],
                        &mut all,
                        items[load],
                        leaf_of(load),
                        lefts[load],
                        index_of(load),
                    );
                    values[load] = of_thread::<O, P::Item, WIDTH>(&ops[load], all);
                });
            }
        }
    }
    values
}

/// Returns whether an operator folds whole leaves by code of their own only if they are aligned, and all other leaves item by item.
/// If not, all whole leaves have that code: `var` of segments of 1,001 `f32` takes 107 µs on an H200 so, and took 146 item by item.
/// An exact operator loads whole leaves that are not aligned in another way. If an operator does not fold by loads, or has large
/// accumulators, code for all whole leaves takes more registers than there are. Items of 8 bytes gain nothing by it: compensated sums
/// of segments of 2,500 `f64` took 95 µs in place of 84.
const fn is_apart<O: Op<I>, I: Copy + 'static>() -> bool {
    O::EXACT || !folds_by_loads::<O, I>() || size_of::<I>() >= 8 || size_of::<O::Accumulator>() > 16
}

/// Loads leaves; `lefts` says how many items each has. A leaf with less than WIDTH items is not loaded. Narrow
/// items are loaded by words if all of them are inside the array.
///
/// # Safety
///
/// There are these items. All lanes of the warp call it together.
#[inline(always)]
unsafe fn load_whole<O: Op<P::Item>, P: Input, const WIDTH: usize, const LOADS: usize>(
    leaf_of: impl Fn(usize) -> P,
    lefts: [u32; LOADS],
    is_inside: bool,
) -> [P::Leaf<WIDTH>; LOADS] {
    let is_whole = |load: usize| lefts[load] >= WIDTH as u32;
    // SAFETY: as the caller promises.
    unsafe {
        if P::IS_NARROW && is_inside {
            in_flight::<O, P::Item, _>(|| {
                from_fn(|load| {
                    let leaf = leaf_of(load);
                    if is_whole(load) { leaf.load_anywhere() } else { P::no_leaf() }
                })
            })
        } else {
            in_flight::<O, P::Item, _>(|| {
                from_fn(|load| {
                    let leaf = leaf_of(load);
                    if is_whole(load) { leaf.load_each() } else { P::no_leaf() }
                })
            })
        }
    }
}
