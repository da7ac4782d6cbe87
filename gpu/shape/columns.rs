//! The kernel of columns: an array of `outer` × `reduced` × `inner` items, row-major, is reduced over the axis in the
//! middle, and each of the outer · inner columns has the bits of reducing its items alone.
//!
//! Neighbouring columns lie side by side, so a thread has one column, and a warp's loads are neighbours. A block has a
//! **panel** of neighbouring columns, and several threads for each.
//!
//! - A column is cut as its [`Plan`] says. Of a chunk's accumulators, the **leaves**, a thread has a power of two of
//!   neighbours, an aligned part of the tree; so they fold one after another, and what waits for its neighbour is a
//!   value for each level of the tree.
//! - The threads of a column fold their parts of the tree through shared memory.
//! - Where there are few columns, several blocks share a chunk; and where a column has several chunks, several blocks
//!   share it. The last one to come folds what all have left behind; nobody waits.
//!
//! What cuts the work into panels and parts, [`Cut`], is of no account for the bits. A launch has blocks of
//! [`THREADS`].

use super::{self as shape, Shape};
use crate::exchange::slot;
use crate::input::Input;
use crate::plan::PARTIALS;
use crate::tree::{LEVELS, Pairwise, fold_panel, fold_thread, most_at_once};
use crate::{Op, Plan};
use core::array::from_fn;
use core::hint::assert_unchecked;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU32, AtomicU64};
use cuda_std::{intrinsics, shared_array, thread};

/// Threads in a block.
pub const THREADS: u32 = 256;

/// Threads that a multiprocessor is to have registers for, 64 each: with 40, and so with half as many loads a thread, 2^26 `f32`
/// took an H200 a sixth to a quarter more.
pub const RESIDENT: u32 = 1024;

/// Columns of an array, row-major.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Columns {
    /// Columns in all: the product of the lengths of the axes that stay.
    pub count: u64,
    /// Items in a column.
    pub reduced: u64,
    /// From an item of a column to the next.
    pub inner: u64,
}

/// How columns are cut up.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cut {
    /// The greatest number that times `inner` is below 2^64.
    inverse: u64,
    /// Items of a column in each chunk but the last.
    chunk: u64,
    /// Items in a row of the plan.
    row: u32,
    /// Chunks of a column.
    chunks: u32,
    /// Parts of a chunk, each for a block: 2 to the power of this.
    parts: u32,
    /// Columns in a panel: 2 to the power of this.
    panel: u32,
    /// Threads for each column: 2 to the power of this.
    threads: u32,
    /// Leaves of a thread: 2 to the power of this.
    leaves: u32,
    /// Panels.
    panels: u32,
    /// For [`words`](Self::words) words of partial results.
    pub partials: *mut u64,
    /// For [`counts`](Self::counts) of those that are there, all 0 before the launch and after it.
    pub counts: *mut u32,
}

/// Blocks that keep any GPU busy.
const BLOCKS: u64 = 1024;

/// Bytes that a block reads side by side, at least, where there are as many columns.
const LINE: usize = 128;

/// Leaves of a thread, where there are enough columns for all threads.
const LEAVES: u32 = 32;

/// Items of a thread, up to which it takes no longer than the exchange between blocks.
const ITEMS: u64 = 32;

impl Cut {
    /// That of columns, of which there are some, for plans of BLOCK `block` with `width` items side by side; of items
    /// of `bytes`, and accumulators of so many words.
    pub fn new(columns: &Columns, width: usize, block: u32, bytes: usize, words: usize) -> Self {
        let &Columns { count, reduced, inner } = columns;
        let plan = Plan::new(reduced, width, block);
        // The leaves of a chunk.
        let log = |value: u64| value.next_power_of_two().trailing_zeros();
        let mut leaves = log(reduced.clamp(1, plan.row));
        let places = most_at_once(4 * words).ilog2();
        let mut panel = log((LINE / bytes.max(1)).max(32) as u64).min(log(count)).min(places);
        while panel < places && leaves + panel < LEAVES.ilog2() + places && count >> panel > BLOCKS {
            panel += 1;
        }
        let threads = (places - panel).min(leaves);
        leaves -= threads;
        let panels = count.div_ceil(1 << panel);
        let rows = plan.chunk.min(reduced).div_ceil(plan.row);
        let mut parts = 0;
        while parts < PARTIALS.ilog2()
            && leaves > 0
            && (panels * u64::from(plan.chunks)) << parts < BLOCKS
            && rows << leaves > ITEMS
        {
            (parts, leaves) = (parts + 1, leaves - 1);
        }
        Self {
            inverse: u64::MAX / inner,
            chunk: plan.chunk,
            row: plan.row as u32,
            chunks: plan.chunks,
            parts,
            panel,
            threads,
            leaves,
            panels: u32::try_from(panels).unwrap_or(u32::MAX),
            partials: core::ptr::null_mut(),
            counts: core::ptr::null_mut(),
        }
    }

    /// Blocks of a launch; where there are more than that, no driver takes as many.
    pub fn blocks(&self) -> u32 {
        u32::try_from((u64::from(self.panels) * u64::from(self.chunks)) << self.parts).unwrap_or(u32::MAX)
    }

    /// Whether several blocks have parts of a column.
    pub fn has_partials(&self) -> bool {
        self.chunks << self.parts > 1
    }

    /// Words of the partial results, each of so many.
    pub fn words(&self, words: usize) -> usize {
        (self.panels as usize * self.chunks as usize * words) << (self.parts + self.panel)
    }

    /// Counts of partial results.
    pub fn counts(&self) -> usize {
        self.panels as usize * self.counts_of_panel() as usize
    }

    /// A count for each chunk, and one for all.
    #[inline(always)]
    fn counts_of_panel(&self) -> u32 {
        self.chunks + 1
    }
}

/// What a launch is given.
pub type Arguments<P, O, V> = shape::Arguments<Columns, P, O, V>;

impl Shape for Columns {
    type Cut = Cut;
}

/// The kernel as a type.
pub type Kernel<O, P> = shape::Kernel<Columns, O, P>;

/// Whose partial results fold next: those of a chunk's parts, of a column's chunks, or none.
const PARTS: u32 = 0;
const CHUNKS: u32 = 1;
const ALL: u32 = 2;

/// Whether a thread folds several leaves at a time.
const fn is_side_by_side<O: Op<I>, I: Copy + 'static>() -> bool {
    O::EXACT || size_of::<O::Accumulator>() <= 8
}

/// Items that a thread has in flight.
pub const fn loads<O: Op<I>, I: Copy + 'static>() -> usize {
    let least = match size_of::<I>() {
        0..=4 => 8,
        5..=8 => 4,
        _ => 2,
    };
    // Those that fold one after another are not held in registers.
    if is_side_by_side::<O, I>() { 2 * least } else { least }
}

/// The kernel: reduces each column of `arguments.input`.
///
/// # Safety
///
/// The launch has the [`Cut::blocks`] of [`THREADS`] that `arguments.cut` asks for; the pointers are valid as
/// [`Arguments`] says, and nothing else uses what they point to meanwhile.
#[inline(always)]
pub unsafe fn reduce_columns<O: Op<P::Item>, P: Input, const LOADS: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    let Arguments { input, shape: columns, cut, results, default, op } = arguments;
    let (thread, block) = (thread::thread_idx_x(), thread::block_idx_x());
    let (mut panel, mut unit) = (block, 0);
    if cut.chunks << cut.parts > 1 {
        // SAFETY: there are some.
        unsafe { assert_unchecked(cut.panels > 0) };
        (panel, unit) = (block % cut.panels, block / cut.panels);
    }
    let (chunk, part) = (unit >> cut.parts, unit & ((1 << cut.parts) - 1));
    let (place, number) = (thread & ((1 << cut.panel) - 1), thread >> cut.panel);
    let column = (u64::from(panel) << cut.panel) + u64::from(place);
    let is_there = column < columns.count && number >> cut.threads == 0;
    let [outer, inner] = divide(column, columns.inner, cut.inverse);
    let at = input.offset((outer * columns.reduced * columns.inner + inner) as usize);
    let start = u64::from(chunk) * cut.chunk;
    let (mut op, mut items) = (op, 0);
    if is_there && columns.reduced > 0 {
        // SAFETY: it is the column's first item.
        op = op.begin(unsafe { at.read() });
        items = (columns.reduced - start).min(cut.chunk) as u32;
    }
    let leaf = ((part << cut.threads) + number) << cut.leaves;
    let chunk_of_column = Chunk {
        at: at.offset((start * columns.inner) as usize),
        stride: columns.inner as usize,
        index: start,
        items,
        row: cut.row,
        leaves: [leaf, (leaf + (1 << cut.leaves)).min(items)],
        count: 1 << cut.leaves,
    };
    let mut waiting = [const { MaybeUninit::uninit() }; LEVELS];
    let mut tree = Pairwise::new(&op, &mut waiting);
    // SAFETY: these are the column's items.
    unsafe { chunk_of_column.fold::<O, LOADS>(&op, &mut tree) };

    let words = slot::words::<O::Accumulator>();
    let slots = (u64::from(panel) * u64::from(cut.chunks << cut.parts) * words as u64) << cut.panel;
    let slots = cut.partials.wrapping_add(slots as usize + place as usize);
    let is_last = shared_array![u32; 1];
    // First come the parts of a chunk, if it has some; then the chunks.
    let chunks = if cut.chunks > 1 { CHUNKS } else { ALL };
    let mut stage = if cut.parts > 0 { PARTS } else { chunks };
    let all = loop {
        intrinsics::no_unroll();
        // SAFETY: every thread of the block is here.
        let value = unsafe { fold_panel::<O, P::Item>(&op, tree.finish(&op), cut.panel, cut.threads) };
        if stage == ALL {
            break value;
        }
        // A slot for each of the parts; and that of the first for the chunk.
        let is_part = stage == PARTS;
        let size = (words as u32) << cut.panel;
        let pitch = if is_part { size } else { size << cut.parts };
        let slots =
            slots.wrapping_add(if is_part { (chunk << cut.parts) as usize * size as usize } else { 0 });
        let (index, count, counter) =
            if is_part { (part, 1 << cut.parts, chunk) } else { (chunk, cut.chunks, cut.chunks) };
        let slot = |index: u32, word: usize| {
            let word = index as usize * pitch as usize + (word << cut.panel);
            // SAFETY: there is a slot for each.
            unsafe { AtomicU64::from_ptr(slots.add(word)) }
        };
        if is_there && number == 0 {
            for word in 0..words {
                slot(index, word).store(slot::word(&value, word), Ordering::Relaxed);
            }
        }
        thread::sync_threads();
        if thread == 0 {
            let there = panel as usize * cut.counts_of_panel() as usize + counter as usize;
            // SAFETY: there is a count for each chunk of each panel, and one for all.
            unsafe {
                let there = AtomicU32::from_ptr(cut.counts.add(there));
                let last = there.fetch_add(1, Ordering::AcqRel) + 1 == count;
                if last {
                    there.store(0, Ordering::Relaxed);
                }
                is_last.write(0, last.into());
            }
        }
        thread::sync_threads();
        // SAFETY: written before the barrier.
        if unsafe { is_last.read(0) } == 0 {
            return;
        }
        tree = Pairwise::new(&op, &mut waiting);
        if is_there {
            take_partials(&op, &mut tree, count, [number, cut.threads], |index| {
                slot::unpack(|word| slot(index, word).load(Ordering::Relaxed))
            });
        }
        stage = if is_part { chunks } else { ALL };
    };
    if is_there && number == 0 {
        let len = columns.reduced;
        let all = if len == 0 { all } else { op.end(all, len) };
        // SAFETY: there is a place for each column's result.
        unsafe { slot::store(results.add(column as usize), op.finish(all, len).unwrap_or(default)) };
    }
}

/// Quotient and remainder of a number below 2^63, by the divisor's [`Cut::inverse`].
#[inline(always)]
fn divide(number: u64, divisor: u64, inverse: u64) -> [u64; 2] {
    // The inverse is too small by one at most, and so is the quotient.
    let quotient = ((u128::from(number) * u128::from(inverse)) >> 64) as u64;
    let rest = number - quotient * divisor;
    if rest >= divisor { [quotient + 1, rest - divisor] } else { [quotient, rest] }
}

/// A thread's part of a column's chunk.
struct Chunk<P> {
    at: P,
    /// From an item to the next.
    stride: usize,
    /// The index of the first item.
    index: u64,
    items: u32,
    /// Leaves in a row.
    row: u32,
    /// The thread's leaves, from one to another.
    leaves: [u32; 2],
    /// How many they are, but for what is missing at the chunk's end.
    count: u32,
}

impl<P: Input> Chunk<P> {
    /// Folds the thread's leaves.
    ///
    /// # Safety
    ///
    /// The items are there.
    #[inline(always)]
    unsafe fn fold<O: Op<P::Item>, const LOADS: usize>(
        &self,
        op: &O,
        tree: &mut Pairwise<'_, O::Accumulator>,
    ) {
        // SAFETY: as the caller vouches.
        unsafe {
            if is_side_by_side::<O, P::Item>() {
                self.fold_side_by_side::<O, LOADS>(op, tree);
            } else {
                self.fold_in_turn::<O, LOADS>(op, tree);
            }
        }
    }

    /// LOADS leaves at a time.
    ///
    /// # Safety
    ///
    /// The items are there.
    #[inline(always)]
    unsafe fn fold_side_by_side<O: Op<P::Item>, const LOADS: usize>(
        &self,
        op: &O,
        tree: &mut Pairwise<'_, O::Accumulator>,
    ) {
        let [mut leaf, end] = self.leaves;
        while leaf < end {
            intrinsics::no_unroll();
            let mut all = [op.identity(); LOADS];
            let mut item = leaf;
            while item < self.items {
                intrinsics::no_unroll();
                let left = (self.items - item).min(self.count);
                let index = self.index + u64::from(item);
                let mut at = self.at.offset(item as usize * self.stride);
                // SAFETY: so many items are left.
                unsafe {
                    let mut items = [P::zeroed(); LOADS];
                    if left >= LOADS as u32 {
                        for item in &mut items {
                            *item = at.read();
                            at = at.offset(self.stride);
                        }
                        op.fold_load(&mut all, items, index);
                    } else if O::EXACT {
                        for index in index..index + u64::from(left) {
                            intrinsics::no_unroll();
                            op.fold_item(&mut all[0], at.read(), index);
                            at = at.offset(self.stride);
                        }
                    } else {
                        // The last item again and again, to no end: a branch for each would hold up the loads.
                        for (place, item) in (1..).zip(&mut items) {
                            *item = at.read();
                            at = at.offset(if place < left { self.stride } else { 0 });
                        }
                        for (place, item) in items.into_iter().enumerate() {
                            if (place as u32) < left {
                                all[place] = op.combine(all[place], op.lift(item, index + place as u64));
                            }
                        }
                    }
                }
                item += self.row;
            }
            let all = if O::EXACT { all[0] } else { fold_thread::<O, P::Item, LOADS>(op, all) };
            tree.push(op, all);
            leaf += LOADS as u32;
        }
    }

    /// One leaf after another, and the code of one: LOADS of their items are loaded at a time.
    ///
    /// # Safety
    ///
    /// The items are there.
    #[inline(always)]
    unsafe fn fold_in_turn<O: Op<P::Item>, const LOADS: usize>(
        &self,
        op: &O,
        tree: &mut Pairwise<'_, O::Accumulator>,
    ) {
        // A leaf, and one of its items.
        let [first, end] = self.leaves;
        let next = |[leaf, item]: [u32; 2]| {
            if item + self.row < self.items { [leaf, item + self.row] } else { [leaf + 1, leaf + 1] }
        };
        let mut all = op.identity();
        let (mut loaded, mut folded) = ([first; 2], [first; 2]);
        while folded[0] < end {
            intrinsics::no_unroll();
            let items: [P::Item; LOADS] = from_fn(|_| {
                if loaded[0] >= end {
                    return P::zeroed();
                }
                let at = self.at.offset(loaded[1] as usize * self.stride);
                loaded = next(loaded);
                // SAFETY: one of the chunk's items.
                unsafe { at.read() }
            });
            let mut place = 0;
            while place < LOADS && folded[0] < end {
                intrinsics::no_unroll();
                // SAFETY: a place below LOADS.
                let item = unsafe { *items.get_unchecked(place) };
                all = op.combine(all, op.lift(item, self.index + u64::from(folded[1])));
                let leaf = folded[0];
                folded = next(folded);
                if folded[0] != leaf {
                    tree.push(op, all);
                    all = op.identity();
                }
                place += 1;
            }
        }
    }
}

/// Takes the partial results of a column, of which there are `count`: partial i falls to accumulator i modulo
/// [`PARTIALS`], and the column's threads, 2 to the power of `threads` of which this is `number`, share the
/// accumulators.
#[inline(always)]
fn take_partials<O: Op<I>, I: Copy + 'static>(
    op: &O,
    tree: &mut Pairwise<'_, O::Accumulator>,
    count: u32,
    [number, threads]: [u32; 2],
    partial: impl Fn(u32) -> O::Accumulator,
) {
    let share = PARTIALS >> threads.min(PARTIALS.ilog2());
    let mut first = number * share;
    let end = (first + share).min(PARTIALS).min(count);
    while first < end {
        intrinsics::no_unroll();
        let mut all = op.identity();
        let mut index = first;
        while index < count {
            intrinsics::no_unroll();
            if size_of::<O::Accumulator>() <= 8 {
                let is_there = |place| index + place as u32 * PARTIALS < count;
                let partials: [_; 4] = from_fn(|place| {
                    partial(if is_there(place) { index + place as u32 * PARTIALS } else { index })
                });
                for (place, partial) in partials.into_iter().enumerate() {
                    if is_there(place) {
                        all = op.combine(all, partial);
                    }
                }
                index += 4 * PARTIALS;
            } else {
                all = op.combine(all, partial(index));
                index += PARTIALS;
            }
        }
        tree.push(op, all);
        first += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact() {
        let near = |bits: u32| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1];
        for divisor in (0..40).flat_map(near).chain([3, 7, 1000, 1_000_003]).filter(|&divisor| divisor > 0) {
            let multiples = (0..62).flat_map(near).map(|factor| (factor % (1 << 62) / divisor) * divisor);
            for number in
                multiples.flat_map(|multiple| [multiple.saturating_sub(1), multiple, multiple + divisor - 1])
            {
                let expected = [number / divisor, number % divisor];
                assert_eq!(divide(number, divisor, u64::MAX / divisor), expected, "{number} by {divisor}");
            }
        }
    }
}
