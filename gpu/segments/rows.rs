//! The kernel of rows, segments of one length that lie one after another: nothing is to be searched, and there are no lists. A warp has as many
//! rows as every other, or as many chunks of rows.

use super::{
    Arguments, WARPS, Work, fold_lanes, fold_leaf, is_aligned, load_leaf, of_thread, plan_of, unrolled,
};
pub use super::{Cut, Segments};
use crate::input::Input;
use crate::kernels;
use crate::{Op, Plan};
use bytemuck::Pod;
use core::array::from_fn;
use core::marker::PhantomData;
use cuda_std::{intrinsics, thread, warp};

/// The kernel as a type.
pub struct Kernel<O, P>(PhantomData<(O, P)>);

impl<O: Op<P::Item> + Pod, P: Input> kernels::Kernel for Kernel<O, P> {
    type Arguments = Arguments<P, O, O::Output>;
}

/// Leaves of a row of the input, no more than a row of the plan has, up to which a warp has whole rows; of longer ones it has chunks.
pub const SHORT: u64 = 32 * LOADS as u64;

/// Loads that a lane has on their way at a time.
const LOADS: usize = 4;

/// Whether a warp has whole rows, of so many items, for plans of BLOCK `block` with `width` items side by side.
pub const fn is_short(len: u64, width: u64, block: u32) -> bool {
    let most = if (block as u64) < SHORT { block as u64 } else { SHORT };
    len <= most * width
}

/// Whether chunks are for this kernel: whether a lane has registers for the accumulators of several loads, or one will do.
pub const fn has_chunks<O: Op<I>, I: Copy + 'static>(width: usize) -> bool {
    O::EXACT || has_room::<O, I>(width)
}

/// The kernel: reduces each row of `arguments.input`.
///
/// # Safety
///
/// As for [`reduce_segments`](super::reduce_segments), but that the segments are of one length, at least 1, and [`Cut::share`]
/// is how many rows a warp has, or, of rows that are not [short](is_short), chunks. The launch has warps for all.
#[inline(always)]
pub unsafe fn reduce_rows<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    let Arguments { shape: segments, cut, .. } = arguments;
    let work = Work::<O, P, WIDTH, 2>::of_rows(arguments);
    let first = u64::from(thread::block_idx_x() * WARPS + work.warp) * u64::from(cut.share);
    let end_of = |count: u64| {
        let end = first + u64::from(cut.share);
        if end < count { end } else { count }
    };
    // SAFETY: all lanes of the warp are here.
    unsafe {
        if is_short(segments.size, WIDTH as u64, cut.block) {
            work.fold_rows(first, end_of(segments.count));
        } else {
            let plan = plan_of::<WIDTH>(segments.size, cut.block);
            work.fold_chunks(&plan, first, end_of(segments.count * u64::from(plan.chunks)));
        }
    }
}

impl<O: Op<P::Item>, P: Input, const WIDTH: usize> Work<O, P, WIDTH, 2> {
    /// Reduces the rows `first..end`, of up to [`SHORT`] leaves: each by as many lanes as its leaves are, rounded up to a power of two, or by all,
    /// of which each has two or four; and as many of them at a time as have LOADS loads a lane.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    #[allow(clippy::implicit_saturating_sub)]
    unsafe fn fold_rows(&self, first: u64, end: u64) {
        let Arguments { input, shape: segments, op, .. } = self.arguments;
        let lane = warp::lane_id();
        let len = segments.size as u32;
        let leaves = len.div_ceil(WIDTH as u32);
        let levels = if leaves > 1 { 32 - (leaves - 1).leading_zeros() } else { 0 };
        // Lanes, and parts for them, by their logarithms.
        let lanes = levels.min(5);
        let parts = levels - lanes;
        let place = (lane & ((1 << lanes) - 1)) * WIDTH as u32;
        let is_whole = len.is_multiple_of(WIDTH as u32) && is_aligned(input, WIDTH);
        // Rows of a load, and of all.
        let next = 32 >> lanes;
        let most = (next * LOADS as u32) >> parts;
        let row_of = |load: usize| (load as u32 >> parts) * next;
        let place_of =
            |load: usize| place + (load as u32 & ((1 << parts) - 1)) * warp::WARP_SIZE * WIDTH as u32;
        let mut row = first + u64::from(lane >> lanes);
        let mut at = input.offset((row * segments.size) as usize);
        // SAFETY: as the caller vouches.
        unsafe {
            while warp::warp_vote_any(warp::ALL, row < end) {
                intrinsics::no_unroll();
                let rows = if row < end { end - row } else { 0 };
                let rows = if rows < u64::from(most) { rows as u32 } else { most };
                let start_of = |load: usize| at.offset((row_of(load) * len) as usize);
                let leaf_of = |load: usize| start_of(load).offset(place_of(load) as usize);
                let left_of =
                    |load: usize| if row_of(load) < rows { len.saturating_sub(place_of(load)) } else { 0 };
                let mut ops = [op; LOADS];
                unrolled::<LOADS>(|load| {
                    if row_of(load) < rows {
                        ops[load] = op.begin(start_of(load).read());
                    }
                });
                let mut values = [op.identity(); LOADS];
                if is_whole && left_of(LOADS - 1) >= WIDTH as u32 {
                    let items: [[P::Item; WIDTH]; LOADS] = from_fn(|load| leaf_of(load).load());
                    unrolled::<LOADS>(|load| {
                        let mut all = [op.identity(); WIDTH];
                        ops[load].fold_load(&mut all, items[load], place_of(load).into());
                        values[load] = of_thread::<O, P::Item, WIDTH>(&ops[load], all);
                    });
                } else {
                    let items: [[P::Item; WIDTH]; LOADS] =
                        from_fn(|load| load_leaf::<O, P, WIDTH>(leaf_of(load), left_of(load)));
                    unrolled::<LOADS>(|load| {
                        let mut all = [op.identity(); WIDTH];
                        let index = place_of(load).into();
                        fold_leaf(&ops[load], &mut all, items[load], leaf_of(load), left_of(load), index);
                        values[load] = of_thread::<O, P::Item, WIDTH>(&ops[load], all);
                    });
                }
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
                if place == 0 {
                    if parts > 0 {
                        values[0] = ops[0].combine(values[0], values[1]);
                        values[2] = ops[2].combine(values[2], values[3]);
                    }
                    if parts > 1 {
                        values[0] = ops[0].combine(values[0], values[2]);
                    }
                    unrolled::<LOADS>(|load| {
                        if row_of(load) < rows && place_of(load) == 0 {
                            self.deliver(&ops[load], row + u64::from(row_of(load)), values[load], len.into());
                        }
                    });
                }
                row += u64::from(most);
                at = at.offset((most * len) as usize);
            }
        }
    }

    /// Reduces the chunks `first..end` of rows of more leaves than a warp has lanes, one after another.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_chunks(&self, plan: &Plan, first: u64, end: u64) {
        let Arguments { input, shape: segments, op, cut, .. } = self.arguments;
        let lane = warp::lane_id();
        let chunks = u64::from(plan.chunks.max(1));
        let (mut row, mut chunk) = (first / chunks, (first % chunks) as u32);
        let reach = Reach::of::<O, P::Item, WIDTH>(plan, cut.block);
        let units = cut.block >> reach.unit;
        let mut left = end.saturating_sub(first) as u32;
        // The row's chunks of this warp, from one to another.
        let mut of_row = [chunk, plan.chunks.min(chunk.saturating_add(left))];
        let (mut head, mut waiting) = (op.identity(), op.identity());
        // SAFETY: as the caller vouches.
        unsafe {
            while left > 0 {
                intrinsics::no_unroll();
                let start = row * segments.size;
                let op = op.begin(input.offset(start as usize).read());
                let range = plan.range(chunk);
                let mut of_units = op.identity();
                let mut unit = 0;
                while unit < units {
                    intrinsics::no_unroll();
                    let item = range.start + u64::from((unit << reach.unit) * WIDTH as u32);
                    let left = range.end.saturating_sub(item) as u32;
                    let at = input.offset((start + item) as usize);
                    let value = fold_unit::<O, P, WIDTH>(&op, at, left, item, reach);
                    // Lane i takes that of unit i.
                    let (value, _) = warp::warp_shuffle_idx(warp::ALL, value, 0, 32);
                    if lane == unit {
                        of_units = value;
                    }
                    unit += 1;
                }
                if units > 1 {
                    let value = fold_lanes::<O, P::Item>(&op, of_units, units.trailing_zeros());
                    (of_units, _) = warp::warp_shuffle_idx(warp::ALL, value, 0, 32);
                }
                // And that of chunk i, of a round of 32.
                let place = (chunk - of_row[0]) % warp::WARP_SIZE;
                let (value, _) = warp::warp_shuffle_idx(warp::ALL, of_units, 0, 32);
                if lane == place {
                    head = value;
                }
                chunk += 1;
                left -= 1;
                if chunk == of_row[1] || place == warp::WARP_SIZE - 1 {
                    self.settle(&op, row, start, plan, of_row, chunk - 1 - place, head, 1, &mut waiting);
                }
                if chunk == of_row[1] {
                    (row, chunk) = (row + 1, 0);
                    of_row = [0, plan.chunks.min(left)];
                }
            }
        }
    }
}

/// Which loads of a chunk a lane has on their way at a time: their places are i · near + j · far, i and j 0 or 1.
#[derive(Clone, Copy)]
struct Reach {
    /// Leaves of a unit in each row, by their logarithm.
    unit: u32,
    near: u32,
    far: u32,
    /// From such loads to the next.
    step: u32,
}

impl Reach {
    /// Four leaves of one row.
    const WIDE: u32 = 7;
    /// Two leaves of two rows.
    const BROAD: u32 = 6;
    /// A leaf of four rows.
    const TALL: u32 = 5;

    /// That of the chunks of a plan with this BLOCK.
    #[inline(always)]
    fn of<O: Op<I>, I: Copy + 'static, const WIDTH: usize>(plan: &Plan, block: u32) -> Self {
        let row = plan.row as u32;
        let line = warp::WARP_SIZE * WIDTH as u32;
        let in_chunk = if plan.len < plan.chunk { plan.len } else { plan.chunk };
        let has_rows = in_chunk > plan.row;
        if !has_chunks::<O, I>(WIDTH) || block < 64 {
            Self { unit: Self::TALL, near: row, far: 2 * row, step: 4 * row }
        } else if has_rows || block < 128 || WIDTH < 2 {
            Self { unit: Self::BROAD, near: line, far: row, step: 2 * row }
        } else {
            Self { unit: Self::WIDE, near: line, far: 2 * line, step: row }
        }
    }

    /// The place of a load.
    #[inline(always)]
    fn offset(&self, load: usize) -> u32 {
        (load % 2) as u32 * self.near + (load / 2) as u32 * self.far
    }
}

/// Whether a lane has registers for the accumulators of several loads.
const fn has_room<O: Op<I>, I: Copy + 'static>(width: usize) -> bool {
    !O::EXACT && size_of::<O::Accumulator>() * width <= 16
}

/// Folds a unit of a chunk, which begins at `at` with the item of this index, and `left` items before the chunk's end; the first lane gets its
/// value.
///
/// # Safety
///
/// All lanes of the warp call it together; there are so many items left.
#[inline(always)]
unsafe fn fold_unit<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: &O,
    at: P,
    left: u32,
    index: u64,
    reach: Reach,
) -> O::Accumulator {
    let place = warp::lane_id() * WIDTH as u32;
    let (mut at, mut left, mut index) =
        (at.offset(place as usize), left.saturating_sub(place), index + u64::from(place));
    let is_aligned = is_aligned(at, WIDTH);
    // Those of one leaf, or of two that are side by side; or four leaves.
    let mut all = [[op.identity(); WIDTH]; 2];
    // SAFETY: as the caller vouches.
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
                    let items: [[P::Item; WIDTH]; LOADS] =
                        from_fn(|load| load_leaf::<O, P, WIDTH>(load_at(load), left_of(load)));
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
                let items: [[P::Item; WIDTH]; LOADS] =
                    from_fn(|load| if is_whole(load) { load_at(load).load() } else { [P::zeroed(); WIDTH] });
                let mut load = 0;
                unrolled::<LOADS>(|load| {
                    if is_whole(load) {
                        op.fold_load(&mut all[0], items[load], index + u64::from(reach.offset(load)));
                    }
                });
                while load < LOADS {
                    intrinsics::no_unroll();
                    if left_of(load) > 0 && !is_whole(load) {
                        let items = load_leaf::<O, P, WIDTH>(load_at(load), left_of(load));
                        let index = index + u64::from(reach.offset(load));
                        fold_leaf(op, &mut all[0], items, load_at(load), left_of(load), index);
                    }
                    load += 1;
                }
            }
            at = at.offset(reach.step as usize);
            left = left.saturating_sub(reach.step);
            index += u64::from(reach.step);
        }
        if !has_room::<O, P::Item>(WIDTH) {
            return fold_lanes::<O, P::Item>(op, of_thread::<O, P::Item, WIDTH>(op, all[0]), 5);
        }
        let is_wide = reach.unit == Reach::WIDE;
        let leaves = from_fn(|load| match (is_wide, load < 2) {
            (true, _) => all[load / WIDTH.min(4)][load % WIDTH.min(4)],
            (false, true) => of_thread::<O, P::Item, WIDTH>(op, all[load % 2]),
            (false, false) => op.identity(),
        });
        fold_leaves_of_warp::<O, P::Item>(op, leaves)
    }
}

/// Folds the leaves of a warp, of which lane i has leaf 32 k + i at place k; the first lane gets the result. Neighbours exchange half of what they
/// have, so that each has as many fewer, instead of all leaves of a place moving at once.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
unsafe fn fold_leaves_of_warp<O: Op<I>, I: Copy + 'static>(
    op: &O,
    leaves: [O::Accumulator; LOADS],
) -> O::Accumulator {
    let lane = warp::lane_id();
    // SAFETY: as the caller vouches.
    unsafe {
        let exchange = |[first, second]: [O::Accumulator; 2], stride: u32| {
            // Asked anew after the shuffle, of which the compiler would else make one for each answer.
            let is_upper = || intrinsics::opaque(lane & stride) != 0;
            let (keep, give) = if is_upper() { (second, first) } else { (first, second) };
            let (take, _) = warp::warp_shuffle_xor(warp::ALL, give, stride, 32);
            if is_upper() { op.combine(take, keep) } else { op.combine(keep, take) }
        };
        let [a, b, c, d] = leaves;
        let mut value = exchange([exchange([a, b], 1), exchange([c, d], 1)], 2);
        // Then lane i has, of place i modulo 4, a part.
        for stride in [4, 8, 16, 1, 2] {
            let (above, _) = warp::warp_shuffle_down(warp::ALL, value, stride, 32);
            value = op.combine(value, above);
        }
        value
    }
}
