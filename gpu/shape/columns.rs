//! The kernel of columns: reduces a row-major array of `outer` × `reduced` × `inner` items over the axis in
//! the middle. Each of the outer · inner columns gets the bits of reducing its items alone.
//!
//! ```text
//! a block has a panel of neighbouring columns, and several threads for each column
//! each thread:  folds its leaves of the column's chunk one after another (`Pairwise`)
//! the block:    folds the threads of each column through shared memory
//! if several blocks share a chunk:           store and count; the last block folds the parts
//! if the column has groups of chunks:        store and count; the last block folds the group's chunks
//! if the column has several chunks:          store and count; the last block folds the chunks, or groups
//! one thread of each column stores its result
//! ```
//!
//! - Neighbouring columns lie side by side, so that a warp's loads are neighbours.
//! - Where alignment allows it, a thread folds several neighbouring columns ([`beside`]): it loads narrow items as words
//!   of 4 bytes, items of 4 bytes in pairs if the columns are many and have a row at most, and the items of short columns as
//!   16 bytes. "A column" in this file may be several of them.
//! - A column is cut as its [`Plan`] says. A **leaf** is one of a chunk's accumulators. A thread has 2^n
//!   neighbouring leaves, an aligned subtree, and keeps one value for each level of it.
//! - Of a column of a little more than a row of the plan, the first leaves have two items, the others one. So if a column has
//!   several rows, neighbouring threads fold **strips** of leaves in turn, and exchange the strips' values.
//! - The lanes of a warp load together, and a barrier of the warp follows the loads: without it, ptxas waits for each load before it
//!   loads the next, if the accumulators leave few registers. Threads beyond the last column fold that one, and store nothing.
//! - If there are few columns, several blocks share a chunk. No block waits: the last one to arrive goes on. Then
//!   neighbouring threads load neighbouring leaves. At the end of a chunk each thread gets the accumulators of its own
//!   leaves from the threads that loaded them.
//!
//! How [`Cut`] cuts the work into panels and parts does not change the bits. A launch has blocks of
//! [`Cut::block`] threads.

pub use super::beside::is_pair;
use super::beside::{self, Each, Words};
use super::{self as shape, Shape};
use crate::agent::{self, Agent, takes_long};
use crate::exchange::{in_shared, slot};
use crate::input::Input;
use crate::kernels::Parameters;
use crate::plan::{self, GROUP, PARTIALS};
use crate::shape::segments::rotate;
use crate::tree::{LEVELS, Pairwise, fold_in_order, of_thread, unrolled};
use crate::{Op, Plan};
use core::array::from_fn;
use core::hint::assert_unchecked;
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU32, AtomicU64};
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, shared_array, thread, warp};

/// The most threads of a block.
pub const THREADS: u32 = 256;

/// Threads that a multiprocessor should have registers for, 64 each. With 40 registers, and so half as many
/// loads a thread, an H200 took a sixth to a quarter longer for 2^26 `f32`.
pub const RESIDENT: u32 = 1024;

/// The columns of a row-major array.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Columns {
    /// Columns: the product of the lengths of the axes that stay.
    pub count: u64,
    /// Items in a column.
    pub reduced: u64,
    /// The stride from an item of a column to the next.
    pub inner: u64,
}

/// How columns are cut up.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cut {
    /// The greatest number whose product with `inner` is below 2^64.
    inverse: u64,
    /// Items of a column in each chunk but the last.
    chunk: u64,
    /// Items in a row of the plan.
    row: u32,
    /// Chunks of a column.
    chunks: u32,
    /// Parts of a chunk, each for a block, as a logarithm.
    parts: u32,
    /// Columns in a panel.
    panel: u32,
    /// Threads for all leaves of a row, of each column, as a logarithm. Blocks do not have those without leaves.
    threads: u32,
    /// Leaves of a thread, as a logarithm.
    leaves: u32,
    /// Strips of a thread's leaves, as a logarithm.
    strips: u32,
    panels: u32,
    /// How the launch folds its columns. The lower 16 bits are the number of neighbouring columns that a thread folds as one. The
    /// others are [`TOGETHER`](Self::TOGETHER), [`IN_ROW`](Self::IN_ROW) and [`PARTIALS`](Self::PARTIALS). The driver compiles the
    /// kernel for one value of this word.
    ways: u64,
    /// [`words`](Self::words) words of slots for partial results.
    pub partials: *mut u64,
    /// [`counts`](Self::counts) counters of partial results, all 0 before the launch and after it.
    pub counts: *mut u32,
}

/// How a thread folds columns.
#[derive(Clone, Copy, Debug)]
pub struct PerThread {
    /// Neighbouring columns that it folds as one.
    pub beside: usize,
    /// Bytes of their items together.
    pub bytes: usize,
    /// Words of 4 bytes of their accumulators together.
    pub words: usize,
    /// Items of a column that it has in flight, see [`loads`].
    pub loads: usize,
    /// Whether the operator is [`EXACT`](Op::EXACT).
    pub is_exact: bool,
    /// Whether it folds several leaves at a time, see [`is_side_by_side`].
    pub is_side_by_side: bool,
    /// Whether a block folds all of a column.
    pub is_of_block: bool,
}

/// Blocks that keep any GPU busy.
const BLOCKS: u64 = 1024;

/// Bytes that a block reads side by side, at least, if there are enough columns.
const LINE: usize = 128;

/// Leaves of a thread if there are enough columns for all threads.
const LEAVES: u32 = 64;

/// Columns that are few: a block has 16 threads for each, or more.
const FEW: u32 = 16;

/// Items of a thread that take no longer than the exchange between blocks.
const ITEMS: u64 = 32;

impl Columns {
    /// The columns as threads see them that fold `beside` neighbours as one.
    #[inline(always)]
    fn of_threads(&self, beside: u64) -> Self {
        Self { count: self.count / beside, reduced: self.reduced, inner: self.inner / beside }
    }
}

impl Cut {
    /// Neighbouring threads load neighbouring leaves, and exchange their accumulators at a chunk's end.
    const TOGETHER: u64 = 1 << 16;

    /// A chunk has a row of the plan at most, and a thread neighbouring leaves of it. With neither bit a thread has strips of
    /// leaves.
    const IN_ROW: u64 = 1 << 17;

    /// Several blocks share a column.
    const PARTIALS: u64 = 1 << 18;

    /// Cuts up columns, at least one, for plans of BLOCK `block` with `width` items side by side.
    pub fn new(columns: &Columns, width: usize, block: u32, per_thread: PerThread) -> Self {
        let PerThread { beside, bytes, words, loads, is_exact, is_side_by_side, is_of_block } = per_thread;
        let Columns { count, reduced, inner } = columns.of_threads(beside as u64);
        let plan = Plan::on_a_device(reduced, width, block, is_exact);
        // `leaves` first counts the leaves of a chunk, as a logarithm.
        let log = |value: u64| value.next_power_of_two().trailing_zeros();
        let mut leaves = log(reduced.clamp(1, plan.row));
        let most = most_at_once(4 * words).ilog2();
        let mut widest = log((LINE / bytes.max(1)).max(32) as u64).min(most);
        // Of the threads of a column, all but the last have LEAVES leaves. The registers of one that has few are idle.
        let is_uneven = reduced <= plan.row
            && 3 * reduced.next_multiple_of(LEAVES.into()) > 4 * reduced
            && count >> most > BLOCKS / 2 * 3;
        while widest < most
            && (is_uneven || leaves + widest < LEAVES.ilog2() + most)
            && count >> widest > BLOCKS
        {
            widest += 1;
        }
        let panels = count.div_ceil(1 << widest);
        // Panels of a power of two begin at boundaries of memory. Others leave no lanes idle.
        let is_mostly_full = 7 * u128::from(count) > 6 * (u128::from(panels) << widest);
        let panel = if is_mostly_full { 1 << widest } else { count.div_ceil(panels) as u32 };
        // Leaves of one item are loaded several at a time, unless the order does not matter.
        let least = if is_exact || !is_side_by_side || reduced > plan.row { 0 } else { 4 };
        let threads = ((1 << most) / panel).ilog2().min(leaves.saturating_sub(least));
        leaves -= threads;
        let rows = plan.chunk.min(reduced).div_ceil(plan.row);
        let mut parts = 0;
        // The threads of few columns load side by side if each has leaves for half of its loads. It has no more than these
        // if the columns have many rows: then a block reads whole cache lines.
        let half = (loads / 2).ilog2();
        let is_few = panel <= FEW && rows >= 16;
        let least_left = if threads <= half { 0 } else { half + u32::from(!is_few) };
        while !is_of_block
            && parts < PARTIALS.ilog2()
            && leaves > least_left
            && ((panels * u64::from(plan.chunks)) << parts < BLOCKS || is_few)
            && rows << leaves > ITEMS
        {
            (parts, leaves) = (parts + 1, leaves - 1);
        }
        // Leaves of a column of several rows have an item more or less, so threads have strips of them in turn.
        let is_in_strips = reduced > plan.row && !is_narrow(panel, bytes);
        let strips = if is_in_strips { most_strips(4 * words).min(leaves.saturating_sub(4)) } else { 0 };
        let mut cut = Self {
            inverse: u64::MAX / inner,
            chunk: plan.chunk,
            row: plan.row as u32,
            chunks: plan.chunks,
            parts,
            panel,
            threads,
            leaves,
            strips,
            panels: u32::try_from(panels).unwrap_or(u32::MAX),
            ways: beside as u64 | if plan.chunks << parts > 1 { Self::PARTIALS } else { 0 },
            partials: core::ptr::null_mut(),
            counts: core::ptr::null_mut(),
        };
        let has_all_threads = cut.block(columns) == panel << threads;
        let is_together = is_side_by_side && !is_of_block && is_narrow(panel, bytes);
        if is_together && has_all_threads && threads >= loads.ilog2() && leaves >= half {
            cut.ways |= Self::TOGETHER;
        } else if is_side_by_side
            && !is_exact
            && (is_of_block || strips == 0 && plan.chunk.min(reduced) <= plan.row)
        {
            cut.ways |= Self::IN_ROW;
        }
        cut
    }

    /// Returns the blocks of a launch. `u32::MAX` stands for more blocks as well: no driver launches that
    /// many.
    pub fn blocks(&self) -> u32 {
        u32::try_from((u64::from(self.panels) * u64::from(self.chunks)) << self.parts).unwrap_or(u32::MAX)
    }

    /// Returns the threads of a block. A row of fewer leaves than its plan's has threads for these only.
    pub fn block(&self, columns: &Columns) -> u32 {
        let threads = 1 << self.threads;
        self.panel
            * if self.has_partials() {
                threads
            } else {
                columns.reduced.div_ceil(1 << self.leaves).clamp(1, threads.into()) as u32
            }
    }

    /// Returns whether several blocks share a column.
    #[inline(always)]
    pub fn has_partials(&self) -> bool {
        self.has(Self::PARTIALS)
    }

    /// Returns how many neighbouring columns a thread folds as one.
    #[inline(always)]
    fn beside(&self) -> usize {
        (self.ways & 0xffff) as usize
    }

    /// Returns whether `bit` is one of the [`ways`](Self::ways).
    #[inline(always)]
    fn has(&self, bit: u64) -> bool {
        self.ways & bit != 0
    }

    /// Returns the words of all slots. A column's accumulator has `words` words of 4 bytes.
    pub fn words(&self, words: usize) -> usize {
        let words = self.beside() * words;
        (self.panels as usize * self.chunks as usize * self.panel as usize * words) << self.parts
    }

    /// Returns the number of counters.
    pub fn counts(&self) -> usize {
        self.panels as usize * self.counts_of_panel() as usize
    }

    /// A counter for each chunk, one for the column, and one for each group of chunks.
    #[inline(always)]
    fn counts_of_panel(&self) -> u32 {
        self.chunks + 1 + plan::groups(self.chunks)
    }
}

/// What a launch is given.
pub type Arguments<P, O, V> = shape::Arguments<Columns, P, O, V>;

impl Shape for Columns {
    type Cut = Cut;

    /// Names `ways`, so that the compiled kernel has the code for one way to fold columns.
    fn push(&self, cut: &Cut, parameters: &mut Parameters) {
        parameters.push(self);
        parameters.knows(offset_of!(Cut, ways), cut.ways);
        parameters.push(cut);
    }
}

/// The kernel as a type.
pub type Kernel<O, P> = shape::Kernel<Columns, Columns, O, P>;

/// What the partial results in hand are: a chunk's parts, a group's chunks, a column's chunks or groups, or the
/// whole column.
const PARTS: u32 = 0;
const CHUNKS: u32 = 1;
const GROUPS: u32 = 2;
const ALL: u32 = 3;

/// Returns whether a warp would read parts of cache lines only, if neighbouring threads did not read neighbouring leaves. With 72
/// bytes side by side, that is still faster (87 µs for sums of 9 columns of `f64` on an H200, and 92 if they do not); with 88 it is
/// slower (98 and 80), and so it is with more columns (variances of 17 columns of `f32` 210 and 135).
const fn is_narrow(panel: u32, bytes: usize) -> bool {
    panel <= FEW && panel as usize * bytes <= 80
}

/// Returns whether a thread folds several leaves at a time.
pub const fn is_side_by_side<O: Op<I>, I: Copy + 'static>() -> bool {
    let bytes = size_of::<O::Accumulator>() / agent::columns::<O, I>();
    O::EXACT || bytes <= 8 || bytes <= 24 && agent::folds_by_loads::<O, I>()
}

/// Returns whether [`fold_together`](Chunk::fold_together) computes each load's address from the first one. Otherwise it adds to the
/// address of the load before, which takes fewer registers. On an H200, sums of 3 columns of `f32` take 75 µs with addresses from the
/// first one, 86 otherwise; variances 120 and 94.
const fn are_apart<O: Op<I>, I: Copy + 'static>() -> bool {
    O::EXACT || size_of::<O::Accumulator>() <= 8 * agent::columns::<O, I>()
}

/// Returns whether an item's accumulator has 8 bytes, and the item fewer.
const fn is_widened<O: Op<P::Item>, P: Input>() -> bool {
    size_of::<O::Accumulator>() == 8 * agent::columns::<O, P::Item>()
        && P::BYTES < size_of::<O::Accumulator>()
}

/// Returns whether columns that are folded with this LOADS have a row of items at most, and a block folds all of a column.
const fn is_of_block<O: Op<I>, I: Copy + 'static, const LOADS: usize>() -> bool {
    LOADS == 0 && is_side_by_side::<O, I>()
}

/// Returns how many levels of its tree a thread has registers for, if accumulators have `bytes` bytes and `loads` of them are
/// folded side by side.
const fn levels_in_registers(bytes: usize, loads: usize) -> usize {
    match bytes {
        0..=16 if bytes * loads <= 64 => 2,
        0..=32 => 1,
        _ => 0,
    }
}

/// Returns the items that a thread has in flight if columns are few.
pub const fn loads<O: Op<I>, I: Copy + 'static>() -> usize {
    let least = match size_of::<I>() {
        0..=4 => 8,
        5..=8 => 4,
        _ => 2,
    };
    match size_of::<O::Accumulator>() {
        // Leaves that are folded one after another do not stay in registers.
        _ if !is_side_by_side::<O, I>() => least,
        0..=8 => 2 * least,
        _ if O::EXACT => 2 * least,
        9..=16 => least,
        _ => 4,
    }
}

/// Returns how many neighbouring columns a thread folds as one, if all arrays and columns allow it: any columns, and
/// short ones.
pub const fn beside<O: Op<P::Item>, P: Input>() -> [usize; 2] {
    [beside::of_word::<O, P>(), beside::of_line::<O, P>()]
}

/// Reduces each column of `arguments.input`.
///
/// # Safety
///
/// The launch has [`Cut::blocks`] blocks of [`Cut::block`] threads. The pointers are valid as [`Arguments`] says, and
/// nothing else accesses what they point to meanwhile. If `cut.beside()` is not 1, it is one of [`beside`], which divides
/// `columns.inner`, and all arrays lie at multiples of 4 bytes, of 8 for [pairs](is_pair), or of 16.
#[inline(always)]
pub unsafe fn reduce_columns<O: Op<P::Item>, P: Input, const LOADS: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    let shared = shared_array![u32; words_in_shared::<O, P>()];
    macro_rules! beside {
        ($($columns:literal)*) => {$(
            if const { beside::of_line::<O, P>() == $columns && beside::of_word::<O, P>() != $columns }
                && arguments.cut.beside() == $columns
            {
                // SAFETY: as the caller vouches.
                return unsafe { reduce_beside::<O, P, 0, 4, 4, $columns>(arguments, shared) };
            }
            if const { beside::of_word::<O, P>() == $columns } && arguments.cut.beside() == $columns {
                // SAFETY: as the caller vouches.
                return unsafe {
                    if const { is_pair(P::BYTES) } {
                        reduce_beside::<O, P, 0, 8, 16, $columns>(arguments, shared);
                    } else if O::EXACT {
                        reduce_beside::<O, P, LOADS, LOADS, LOADS, $columns>(arguments, shared);
                    } else if const { $columns * size_of::<O::Accumulator>() <= 16 } {
                        // Leaves of several items keep an accumulator for each load: 16 do not stay in registers.
                        reduce_beside::<O, P, LOADS, 8, 16, $columns>(arguments, shared);
                    } else {
                        reduce_beside::<O, P, LOADS, 4, 8, $columns>(arguments, shared);
                    }
                };
            }
        )*};
    }
    beside! { 2 4 8 16 }
    // SAFETY: as the caller vouches.
    unsafe {
        if const { P::BYTES <= 8 && matches!(size_of::<O::Accumulator>(), 5..=8) && !O::EXACT } {
            // Leaves of several items keep an accumulator for each load: 16 of 8 bytes do not stay in registers.
            reduce_each::<O, P, LOADS, 8, 16>(arguments, shared);
        } else if const { P::BYTES <= 8 && size_of::<O::Accumulator>() <= 16 } {
            reduce_each::<O, P, LOADS, LOADS, 16>(arguments, shared);
        } else {
            reduce_each::<O, P, LOADS, LOADS, LOADS>(arguments, shared);
        }
    }
}

/// Reduces V neighbouring columns as one.
///
/// # Safety
///
/// As for [`reduce_columns`]; V is `cut.beside()`.
#[inline(always)]
unsafe fn reduce_beside<
    O: Op<P::Item>,
    P: Input,
    const LOADS: usize,
    const MANY: usize,
    const OF_ROW: usize,
    const V: usize,
>(
    Arguments { input, shape, cut, results, default, op }: Arguments<P, O, O::Output>,
    shared: Shared<u32>,
) {
    let arguments = Arguments {
        input: Words::<P, V>(input),
        shape: shape.of_threads(V as u64),
        cut,
        results: results.cast(),
        default: [default; V],
        op: Each::new(op, default),
    };
    // SAFETY: as the caller vouches.
    unsafe { reduce_each::<Each<O, O::Output, V>, Words<P, V>, LOADS, MANY, OF_ROW>(arguments, shared) }
}

/// Reduces each column. A thread has LOADS items in flight if there are few columns; if there are many, OF_ROW if their leaves
/// have one item each, MANY if they have more. If LOADS is 0, there are many columns, and those whose leaves are folded side by
/// side are [of one block](is_of_block).
///
/// # Safety
///
/// As for [`reduce_columns`]; a thread has one column.
#[inline(always)]
unsafe fn reduce_each<
    O: Op<P::Item>,
    P: Input,
    const LOADS: usize,
    const MANY: usize,
    const OF_ROW: usize,
>(
    arguments: Arguments<P, O, O::Output>,
    shared: Shared<u32>,
) {
    let Arguments { input, shape: columns, cut, results, default, op } = arguments;
    let (thread, block) = (thread::thread_idx_x(), thread::block_idx_x());
    let (mut panel, mut unit) = (block, 0);
    if const { !is_of_block::<O, P::Item, LOADS>() } && cut.has_partials() {
        // SAFETY: there is at least one column, so at least one panel.
        unsafe { assert_unchecked(cut.panels > 0) };
        (panel, unit) = (block % cut.panels, block / cut.panels);
    }
    let (chunk, part) = (unit >> cut.parts, unit & ((1 << cut.parts) - 1));
    // SAFETY: a panel has columns.
    unsafe { assert_unchecked(cut.panel > 0) };
    let (in_panel, number) = (thread % cut.panel, thread / cut.panel);
    let column = u64::from(panel) * u64::from(cut.panel) + u64::from(in_panel);
    // Threads beyond the last column fold that one, so that all threads of a block do the same.
    let is_there = column < columns.count;
    let [outer, inner] = divide(column.min(columns.count - 1), columns.inner, cut.inverse);
    let at = input.offset((outer * columns.reduced * columns.inner + inner) as usize);
    let start = u64::from(chunk) * cut.chunk;
    let (mut op, mut items) = (op, 0);
    if columns.reduced > 0 {
        // SAFETY: it is the column's first item.
        op = op.begin(unsafe { at.read() });
        items = (columns.reduced - start).min(cut.chunk) as u32;
    }
    let chunk_of_column = Chunk {
        at: at.offset((start * columns.inner) as usize),
        stride: columns.inner as usize,
        index: start,
        items,
        row: cut.row,
        first: part << (cut.threads + cut.leaves),
        leaves: cut.leaves,
        strips: cut.strips,
        number: [number, 1 << cut.threads],
        ways: cut.ways,
        column: in_panel,
        panel: cut.panel,
        shared,
    };
    let mut waiting = [const { MaybeUninit::uninit() }; LEVELS];
    let levels = const { levels_in_registers(size_of::<O::Accumulator>(), LOADS) };
    let mut tree = Pairwise::new(&op, &mut waiting, levels);
    // SAFETY: the chunk's items lie in the column, and every thread of the block is here.
    unsafe { chunk_of_column.fold::<O, LOADS, MANY, OF_ROW>(&op, &mut tree) };

    let words = slot::words::<O::Accumulator>();
    let slots = u64::from(panel) * u64::from(cut.chunks << cut.parts) * words as u64 * u64::from(cut.panel);
    let slots = cut.partials.wrapping_add(slots as usize + in_panel as usize);
    let is_last = shared_array![u32; 1];
    // A chunk's parts come first, if it has several; then a group's chunks; then the column's chunks or groups.
    let groups = if O::EXACT { 0 } else { plan::groups(cut.chunks) };
    let chunks = if groups > 0 {
        CHUNKS
    } else if cut.chunks > 1 {
        GROUPS
    } else {
        ALL
    };
    let mut stage = if const { is_of_block::<O, P::Item, LOADS>() } || !cut.has_partials() {
        ALL
    } else if cut.parts > 0 {
        PARTS
    } else {
        chunks
    };
    let all = loop {
        intrinsics::no_unroll();
        // SAFETY: every thread of the block is here.
        let value =
            unsafe { fold_panel::<O, P::Item>(&op, tree.finish(&op), cut.panel, cut.threads, shared) };
        if stage == ALL {
            break value;
        }
        // Each part has a slot. A chunk's result goes to the slot of its first part, a group's to that of its
        // first chunk. `first` is the first slot of this stage, and 2^`pitch` slots make one.
        let group = chunk / GROUP;
        let of_group = GROUP.ilog2();
        let [first, pitch, index, count, counter] = match stage {
            PARTS => [chunk << cut.parts, 0, part, 1 << cut.parts, chunk],
            CHUNKS => {
                let first = group * GROUP;
                let count = (cut.chunks - first).min(GROUP);
                [first << cut.parts, cut.parts, chunk - first, count, cut.chunks + 1 + group]
            }
            _ if groups > 0 => [0, cut.parts + of_group, group, groups, cut.chunks],
            _ => [0, cut.parts, chunk, cut.chunks, cut.chunks],
        };
        let slot = |index: u32, word: usize| {
            let slot = first as usize + ((index as usize) << pitch);
            let word = (slot * words + word) * cut.panel as usize;
            // SAFETY: there is a slot for each column and partial result.
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
            // SAFETY: there is a counter for each chunk of each panel, and one for the panel's columns.
            unsafe {
                let arrived = AtomicU32::from_ptr(cut.counts.add(there));
                let last = arrived.fetch_add(1, Ordering::AcqRel) + 1 == count;
                if last {
                    arrived.store(0, Ordering::Relaxed);
                }
                is_last.write(0, last.into());
            }
        }
        thread::sync_threads();
        // SAFETY: written before the barrier.
        if unsafe { is_last.read(0) } == 0 {
            return;
        }
        tree = Pairwise::new(&op, &mut waiting, levels);
        if is_there {
            let partial = |index| slot::unpack(|word| slot(index, word).load(Ordering::Relaxed));
            if stage == CHUNKS && !O::EXACT {
                // The threads of the column share the group's chunks.
                let share = GROUP >> cut.threads;
                for index in number * share..count.min((number + 1) * share) {
                    intrinsics::no_unroll();
                    tree.push(&op, partial(index));
                }
            } else {
                take_partials(&op, &mut tree, count, [number, cut.threads], partial);
            }
        }
        stage = match stage {
            PARTS => chunks,
            CHUNKS => GROUPS,
            _ => ALL,
        };
    };
    if is_there && number == 0 {
        let len = columns.reduced;
        let all = if len == 0 { all } else { op.end(all, len) };
        // SAFETY: there is an element for each column's result.
        unsafe {
            if !O::agent().store(&op, (all, len), results, column as usize) {
                slot::store(results.add(column as usize), default);
            }
        }
    }
}

/// Returns the quotient and the remainder of a number below 2^63, by the divisor's [`Cut::inverse`].
#[inline(always)]
fn divide(number: u64, divisor: u64, inverse: u64) -> [u64; 2] {
    // The inverse is too small by at most one, and so is the quotient.
    let quotient = ((u128::from(number) * u128::from(inverse)) >> 64) as u64;
    let rest = number - quotient * divisor;
    if rest >= divisor { [quotient + 1, rest - divisor] } else { [quotient, rest] }
}

/// A thread's part of a column's chunk.
struct Chunk<P> {
    at: P,
    /// The stride from an item to the next.
    stride: usize,
    /// The index of the chunk's first item.
    index: u64,
    items: u32,
    /// Leaves in a row.
    row: u32,
    /// The first of the block's leaves.
    first: u32,
    /// Leaves of the thread, with those that are missing at the chunk's end, as a logarithm.
    leaves: u32,
    /// Strips of these, as a logarithm.
    strips: u32,
    /// Which of the column's threads this one is, counted from 0; and how many threads the column has.
    number: [u32; 2],
    /// How it folds them, see [`Cut::ways`].
    ways: u64,
    /// The number of the column in its panel.
    column: u32,
    /// Columns in the panel.
    panel: u32,
    /// What the block's threads exchange values through.
    shared: Shared<u32>,
}

impl<P: Input> Chunk<P> {
    /// Returns a strip's leaves: the first, and where they end.
    #[inline(always)]
    fn leaves_of(&self, strip: u32) -> [u32; 2] {
        let of_strip = self.leaves - self.strips;
        let first = self.first + (strip << of_strip);
        [first, (first + (1 << of_strip)).min(self.items)]
    }

    /// Folds the thread's leaves, as [`reduce_each`] says.
    ///
    /// # Safety
    ///
    /// The chunk's items are valid, and every thread of the block calls it.
    #[inline(always)]
    unsafe fn fold<O: Op<P::Item>, const LOADS: usize, const MANY: usize, const OF_ROW: usize>(
        &self,
        op: &O,
        tree: &mut Pairwise<'_, O::Accumulator>,
    ) {
        // SAFETY: as the caller promises. All threads of the block take the same branch.
        unsafe {
            if const { LOADS > 0 && is_side_by_side::<O, P::Item>() } && self.ways & Cut::TOGETHER != 0 {
                self.fold_together::<O, LOADS>(op, tree);
            } else if const { !O::EXACT && is_side_by_side::<O, P::Item>() }
                && (const { is_of_block::<O, P::Item, LOADS>() } || self.ways & Cut::IN_ROW != 0)
            {
                self.fold_row::<O, OF_ROW>(op, tree);
            } else {
                self.fold_strips::<O, MANY>(op, tree);
            }
        }
    }

    /// Folds the thread's leaves strip by strip. A thread's strips are as many strips apart as the column has threads. Then
    /// the block exchanges the values of all strips: each thread gets those of neighbouring strips, and folds them.
    ///
    /// # Safety
    ///
    /// The chunk's items are valid, and every thread of the block calls it.
    #[inline(always)]
    unsafe fn fold_strips<O: Op<P::Item>, const LOADS: usize>(
        &self,
        op: &O,
        tree: &mut Pairwise<'_, O::Accumulator>,
    ) {
        let [number, threads] = self.number;
        let end = threads << self.strips;
        let place = |strip: u32| strip * self.panel + self.column;
        let mut strip = number;
        while strip < end {
            intrinsics::no_unroll();
            // SAFETY: as the caller promises. No two threads have the same strip.
            unsafe {
                if is_side_by_side::<O, P::Item>() {
                    self.fold_side_by_side::<O, LOADS>(op, tree, self.leaves_of(strip));
                } else {
                    self.fold_in_turn::<O, LOADS>(op, tree, self.leaves_of(strip));
                }
                if const { !O::EXACT } && self.strips > 0 {
                    in_shared::write(self.shared, end * self.panel, place(strip), &tree.take(op));
                }
            }
            strip += threads;
        }
        if O::EXACT || self.strips == 0 {
            return;
        }
        thread::sync_threads();
        for strip in number << self.strips..(number + 1) << self.strips {
            intrinsics::no_unroll();
            if self.leaves_of(strip)[0] < self.items {
                // SAFETY: written before the barrier.
                tree.push(op, unsafe { in_shared::read(self.shared, end * self.panel, place(strip)) });
            }
        }
        thread::sync_threads();
    }

    /// Folds leaves, LOADS at a time, of any number of rows.
    ///
    /// # Safety
    ///
    /// The chunk's items are valid, and every thread of the block calls it.
    #[inline(always)]
    unsafe fn fold_side_by_side<O: Op<P::Item>, const LOADS: usize>(
        &self,
        op: &O,
        tree: &mut Pairwise<'_, O::Accumulator>,
        [mut leaf, end]: [u32; 2],
    ) {
        // SAFETY: as the caller promises: the lanes of a warp go on until none has leaves left.
        unsafe {
            while warp::warp_vote_any(warp::ALL, leaf < end) {
                intrinsics::no_unroll();
                let mut all = [op.identity(); LOADS];
                let mut item = leaf;
                loop {
                    intrinsics::no_unroll();
                    let (at, left) = self.rest(item);
                    let index = self.index + u64::from(item);
                    if const { !O::EXACT && is_widened::<O, P>() && agent::columns::<O, P::Item>() == 1 } {
                        // Eight accumulators of 8 bytes leave registers for 16 loads.
                        let left = left.min(self.items.saturating_sub(item + self.row));
                        if are_whole::<LOADS>(left) {
                            let rows = load_two_rows::<P, LOADS>(at, self.stride, self.row);
                            O::agent().fold_load(op, &mut all, rows[0], index);
                            O::agent().fold_load(op, &mut all, rows[1], index + u64::from(self.row));
                            item += 2 * self.row;
                            if !warp::warp_vote_any(warp::ALL, item < self.items) {
                                break;
                            }
                            continue;
                        }
                    }
                    if are_whole::<LOADS>(left) {
                        let items = load_whole::<P, LOADS>(at, self.stride);
                        O::agent().fold_load(op, &mut all, items, index);
                    } else if O::EXACT {
                        let mut at = at;
                        for index in index..index + u64::from(left.min(LOADS as u32)) {
                            intrinsics::no_unroll();
                            O::agent().fold_item(op, &mut all[0], at.read(), index);
                            at = at.offset(self.stride);
                        }
                    } else {
                        let (items, left) = load_some::<P, LOADS>(at, self.stride, left);
                        unrolled::<LOADS>(|load| {
                            if (load as u32) < left {
                                O::agent().fold_item(op, &mut all[load], items[load], index + load as u64);
                            }
                        });
                    }
                    item += self.row;
                    if !warp::warp_vote_any(warp::ALL, item < self.items) {
                        break;
                    }
                }
                if leaf < end {
                    tree.push(op, of_thread::<O, P::Item, LOADS>(op, all));
                }
                leaf += LOADS as u32;
            }
        }
    }

    /// Folds LOADS leaves of one item each at a time.
    ///
    /// # Safety
    ///
    /// The chunk's items are valid, at most a row. Every thread of the block calls it.
    #[inline(always)]
    unsafe fn fold_row<O: Op<P::Item>, const LOADS: usize>(
        &self,
        op: &O,
        tree: &mut Pairwise<'_, O::Accumulator>,
    ) {
        let [mut leaf, end] = self.leaves_of(self.number[0]);
        // SAFETY: as the caller promises: the lanes of a warp go on until none has leaves left.
        unsafe {
            while warp::warp_vote_any(warp::ALL, leaf < end) {
                intrinsics::no_unroll();
                let (at, left) = self.rest(leaf);
                let index = self.index + u64::from(leaf);
                let all = if are_whole::<LOADS>(left) {
                    let items = load_whole::<P, LOADS>(at, self.stride);
                    fold_in_order::<O, P::Item, LOADS>(op, |load, all| {
                        O::agent().fold_item(op, all, items[load], index + load as u64);
                    })
                } else {
                    let (items, left) = load_some::<P, LOADS>(at, self.stride, left);
                    fold_in_order::<O, P::Item, LOADS>(op, |load, all| {
                        if (load as u32) < left {
                            O::agent().fold_item(op, all, items[load], index + load as u64);
                        }
                    })
                };
                if leaf < end {
                    tree.push(op, all);
                }
                leaf += LOADS as u32;
            }
        }
    }

    /// Returns where an item lies, or the chunk's first one if it has none of this number; and how many items of the thread's
    /// leaves there are from this one on, in this row.
    #[inline(always)]
    fn rest(&self, item: u32) -> (P, u32) {
        let left = self.items.saturating_sub(item).min(1 << (self.leaves - self.strips));
        (self.at.offset(if left > 0 { item as usize * self.stride } else { 0 }), left)
    }

    /// Folds half of LOADS leaves at a time of every thread of the column together: a load of neighbouring threads is of
    /// neighbouring leaves, so that a warp reads whole lines though it has few columns. Then each thread gets its own leaves
    /// from the others.
    ///
    /// # Safety
    ///
    /// The chunk's items are valid, and every thread of the block calls it.
    #[inline(always)]
    unsafe fn fold_together<O: Op<P::Item>, const LOADS: usize>(
        &self,
        op: &O,
        tree: &mut Pairwise<'_, O::Accumulator>,
    ) {
        let [number, threads] = self.number;
        // Leaves of a thread at a time. The loads are of two rows.
        let loads = LOADS as u32 / 2;
        let count = 1 << self.leaves;
        // From a load's leaf to the next load's: the leaves of as many threads as have that many leaves together.
        let step = threads / loads * count;
        let shift = step.trailing_zeros();
        let stride = self.stride << shift;
        // From the last load of a row to the first of the next.
        let to_next = (self.row as usize * self.stride).wrapping_sub((loads as usize - 1) * stride);
        let mut before = 0;
        while before < count {
            intrinsics::no_unroll();
            let mut all = [op.identity(); LOADS];
            let mut item = self.first + number / loads * count + number % loads + before;
            // SAFETY: the lanes of a warp have loads left, or wait for those that have.
            while unsafe { warp::warp_vote_any(warp::ALL, item < self.items) } {
                intrinsics::no_unroll();
                let more = self.items.saturating_sub(item);
                let mut left = ((more.min(self.row) + step - 1) >> shift).min(loads);
                if more > self.row {
                    left = loads + (((more - self.row).min(self.row) + step - 1) >> shift);
                }
                let index = self.index + u64::from(item);
                // SAFETY: `left` loads are left. All lanes of the warp are here.
                unsafe {
                    let mut fold = |load: usize, item| {
                        let (row, place) = (load as u32 / loads, load as u32 % loads);
                        let index = index + u64::from(place << shift) + u64::from(row * self.row);
                        let all = &mut all[if O::EXACT { 0 } else { place as usize }];
                        O::agent().fold_item(op, all, item, index);
                    };
                    if const { are_apart::<O, P::Item>() } {
                        let first = self.at.offset(item as usize * self.stride);
                        let second = first.offset(self.row as usize * self.stride);
                        let read = |load: usize| {
                            let row = if (load as u32) < loads { first } else { second };
                            row.offset((load as u32 % loads) as usize * stride).read()
                        };
                        let is_left = |load: usize| (load as u32) < left;
                        let load_left = || -> [P::Item; LOADS] {
                            load_together(|load| if is_left(load) { read(load) } else { P::zeroed() })
                        };
                        if const { takes_long::<O, P::Item>() } {
                            let (mut items, mut load) = (load_left(), 0);
                            while load < left.min(LOADS as u32) {
                                intrinsics::no_unroll();
                                fold(load as usize, items[0]);
                                rotate(&mut items);
                                load += 1;
                            }
                        } else if are_whole::<LOADS>(left) {
                            let items: [_; LOADS] = load_together(read);
                            unrolled::<LOADS>(|load| fold(load, items[load]));
                        } else {
                            let items = load_left();
                            unrolled::<LOADS>(|load| {
                                if is_left(load) {
                                    fold(load, items[load]);
                                }
                            });
                        }
                    } else {
                        let mut at = self.at.offset(if left > 0 { item as usize * self.stride } else { 0 });
                        let items: [_; LOADS] = load_together(|load| {
                            let item = at.read();
                            let next = if load as u32 + 1 == loads { to_next } else { stride };
                            at = at.offset(if load as u32 + 1 < left { next } else { 0 });
                            item
                        });
                        unrolled::<LOADS>(|load| {
                            if (load as u32) < left {
                                fold(load, items[load]);
                            }
                        });
                    }
                }
                item += 2 * self.row;
            }
            if !O::EXACT {
                // SAFETY: every thread of the block is here.
                unsafe { self.give_back::<O, LOADS>(&mut all) };
            }
            let all = of_thread::<O, P::Item, LOADS>(op, all);
            tree.push(op, all);
            before += loads;
        }
        if !O::EXACT {
            // What follows writes to the same shared memory.
            thread::sync_threads();
        }
    }

    /// Gives each thread the values of its own neighbouring leaves. Before, value i of thread t was of leaf i · threads + t.
    ///
    /// # Safety
    ///
    /// Every thread of the block calls it.
    #[inline(always)]
    unsafe fn give_back<O: Op<P::Item>, const LOADS: usize>(&self, all: &mut [O::Accumulator; LOADS]) {
        let loads = LOADS as u32 / 2;
        let [number, threads] = self.number;
        let first = self.column * threads * loads;
        for word in 0..size_of::<O::Accumulator>().div_ceil(4) {
            thread::sync_threads();
            for (load, value) in (0..).zip(&all[..LOADS / 2]) {
                // SAFETY: no two threads write the same element.
                unsafe { self.shared.write(first + load * threads + number, slot::word(value, word) as u32) };
            }
            thread::sync_threads();
            for (load, value) in (0..).zip(&mut all[..LOADS / 2]) {
                // SAFETY: written before the barrier.
                let there = unsafe { self.shared.read(first + number * loads + load) };
                slot::set_word(value, word, there);
            }
        }
    }

    /// Folds one leaf after another, with the code of one leaf. LOADS items are loaded at a time.
    ///
    /// # Safety
    ///
    /// The chunk's items are valid.
    #[inline(always)]
    unsafe fn fold_in_turn<O: Op<P::Item>, const LOADS: usize>(
        &self,
        op: &O,
        tree: &mut Pairwise<'_, O::Accumulator>,
        [first, end]: [u32; 2],
    ) {
        // Goes from an item of a leaf to the leaf's next item, or to the next leaf's first.
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
            let mut load = 0;
            while load < LOADS && folded[0] < end {
                intrinsics::no_unroll();
                // SAFETY: the index is below LOADS.
                let item = unsafe { *items.get_unchecked(load) };
                all = op.combine(all, op.lift(item, self.index + u64::from(folded[1])));
                let leaf = folded[0];
                folded = next(folded);
                if folded[0] != leaf {
                    tree.push(op, all);
                    all = op.identity();
                }
                load += 1;
            }
        }
    }
}

/// Returns whether each lane of a warp has LOADS items left. (A block's last warp may have fewer than 32 lanes.)
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
unsafe fn are_whole<const LOADS: usize>(left: u32) -> bool {
    // SAFETY: as the caller promises.
    unsafe { !warp::warp_vote_any(warp::ALL, left < LOADS as u32) }
}

/// Loads all items before any of them is used: else ptxas waits for each where registers are few.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
unsafe fn load_together<I, const LOADS: usize>(load: impl FnMut(usize) -> I) -> [I; LOADS] {
    // SAFETY: as the caller promises.
    unsafe { intrinsics::together(|| from_fn(load)) }
}

/// Loads LOADS items that lie `stride` apart.
///
/// # Safety
///
/// There are these items. All lanes of the warp call it together.
#[inline(always)]
unsafe fn load_whole<P: Input, const LOADS: usize>(mut at: P, stride: usize) -> [P::Item; LOADS] {
    // SAFETY: as the caller promises.
    unsafe {
        load_together(|_| {
            let item = at.read();
            at = at.offset(stride);
            item
        })
    }
}

/// Loads LOADS items of each of two neighbouring rows. The items of a row lie `stride` apart.
///
/// # Safety
///
/// There are these items. All lanes of the warp call it together.
#[inline(always)]
unsafe fn load_two_rows<P: Input, const LOADS: usize>(
    at: P,
    stride: usize,
    row: u32,
) -> [[P::Item; LOADS]; 2] {
    // SAFETY: as the caller promises.
    unsafe {
        intrinsics::together(|| {
            let mut next = at;
            from_fn(|of| {
                if of == 1 {
                    next = at.offset(row as usize * stride);
                }
                from_fn(|_| {
                    let item = next.read();
                    next = next.offset(stride);
                    item
                })
            })
        })
    }
}

/// As [`load_whole`], where `left` items may be fewer than LOADS. Then the last is read again: a branch for each load would delay
/// the loads. Returns `left` as well, hidden from the compiler: it would take the first load, and what is done with it, out of
/// both branches.
///
/// # Safety
///
/// There are these items, or one if none are left. All lanes of the warp call it together.
#[inline(always)]
unsafe fn load_some<P: Input, const LOADS: usize>(
    mut at: P,
    stride: usize,
    left: u32,
) -> ([P::Item; LOADS], u32) {
    let left = intrinsics::opaque(left);
    // SAFETY: as the caller promises.
    let items = unsafe {
        load_together(|load| {
            let item = at.read();
            at = at.offset(if load as u32 + 1 < left { stride } else { 0 });
            item
        })
    };
    (items, left)
}

/// Returns how many strips of leaves a thread has at most, as a logarithm, if accumulators have `bytes` bytes: as many as fit in
/// shared memory, besides which loads need room in the same cache.
const fn most_strips(bytes: usize) -> u32 {
    match bytes {
        0..=4 => 3,
        5..=16 => 2,
        17..=32 => 1,
        _ => 0,
    }
}

/// Returns how many words a block needs in shared memory.
const fn words_in_shared<O: Op<P::Item>, P: Input>() -> usize {
    let ([word, line], bytes) = (beside::<O, P>(), size_of::<O::Accumulator>());
    // The words that `give_back` exchanges; the values of threads that fold one column; and of threads that fold several columns as
    // one. If a block has all of a column, its threads have no strips.
    let all = [
        THREADS as usize * 8,
        words_of_values(bytes, true),
        words_of_values(word * bytes, !is_pair(P::BYTES)),
        words_of_values(line * bytes, !is_side_by_side::<O, P::Item>()),
    ];
    let (mut most, mut index) = (0, 0);
    while index < all.len() {
        most = if all[index] > most { all[index] } else { most };
        index += 1;
    }
    most
}

/// Returns the words of the values that a block exchanges, if accumulators have `bytes` bytes, and if threads have strips.
const fn words_of_values(bytes: usize, has_strips: bool) -> usize {
    let strips = if has_strips { most_strips(bytes) } else { 0 };
    let values = if strips > 0 { (THREADS as usize) << strips } else { most_at_once(bytes) };
    values * bytes.div_ceil(4)
}

/// Returns how many accumulators of `bytes` bytes each a block exchanges at once, at most: a power of two.
const fn most_at_once(bytes: usize) -> usize {
    match (32 << 10) / if bytes == 0 { 1 } else { bytes } {
        0 => 1,
        count if count >= THREADS as usize => THREADS as usize,
        count => 1 << count.ilog2(),
    }
}

/// Folds the values of each column's threads, at most 2^`threads`, pairwise, neighbours first. A column's first
/// thread gets the result. Thread t has column t modulo `panel`.
///
/// # Safety
///
/// Every thread of the block calls it, and `panel` is not 0.
#[inline(always)]
unsafe fn fold_panel<O: Op<I>, I: Copy + 'static>(
    op: &O,
    mut value: O::Accumulator,
    panel: u32,
    threads: u32,
    shared: Shared<u32>,
) -> O::Accumulator {
    let count = const { most_at_once(size_of::<O::Accumulator>()) as u32 };
    let thread = thread::thread_idx_x();
    // SAFETY: as the caller vouches.
    unsafe { assert_unchecked(panel > 0) };
    let number = thread / panel;
    if threads > 0 {
        // SAFETY: each thread writes an element of its own.
        unsafe { in_shared::write(shared, count, thread, &value) };
    }
    for level in 0..threads {
        intrinsics::no_unroll();
        thread::sync_threads();
        let neighbour = thread + (panel << level);
        // The identity stands for threads that the block does not have.
        if number & ((2 << level) - 1) == 0 && neighbour < thread::block_dim_x() {
            // SAFETY: the neighbour wrote its element before the barrier, and nobody has since. The thread's
            // own element is read after the next barrier.
            unsafe {
                value = op.combine(value, in_shared::read(shared, count, neighbour));
                in_shared::write(shared, count, thread, &value);
            }
        }
    }
    value
}

/// Folds the `count` partial results of a column: partial i goes to accumulator i modulo [`PARTIALS`]. The
/// column's 2^`threads` threads, of which this is `number`, share the accumulators.
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
                let is_there = |load| index + load as u32 * PARTIALS < count;
                let partials: [_; 4] = from_fn(|load| {
                    partial(if is_there(load) { index + load as u32 * PARTIALS } else { index })
                });
                for (load, partial) in partials.into_iter().enumerate() {
                    if is_there(load) {
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
