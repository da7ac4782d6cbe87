//! The kernel of many short segments: each segment of an array gets the bits of reducing that slice alone.
//!
//! A segment's tree is that of its [`Plan`]; which lanes fold it does not change the bits. BLOCK is a
//! parameter of the tree alone: a launch has blocks of [`THREADS`].
//!
//! ```text
//! cut the positions into shares, one a warp; a warp has the segments that start in its share
//! for each batch of 256 of them:
//!     sort them into classes: class c is segments of up to 2^c leaves
//!     write the larger ones to the warp's list
//!     list the others in the order of their classes
//!     from the end of the list on: fold as many at a time as the warp has lanes for, each with the lanes that the largest of them needs
//! ```
//!
//! - A **position** counts an item, and each segment counts as [`Cut::weight`] items more, which is what it
//!   costs beside its items. So shares of the same number of positions cost the same, whatever the segments'
//!   lengths are.
//! - A **leaf** is WIDTH neighbouring items. A lane has up to SLOTS leaves in flight. If a segment has few lanes, a lane's leaves are
//!   neighbours; otherwise neighbouring lanes have neighbouring leaves. If accumulators are large, the leaves are of several segments.
//! - **Short** segments have up to 32 · SLOTS leaves, and at most a row of their plan.
//! - The **larger** ones are left to the kernel of [`larger`], by a list for each warp. If most segments are
//!   larger, that kernel gets all of them.

#[cfg(not(target_arch = "nvptx64"))]
use super::heads::{self, Listing};
use super::heads::{Heads, WORD};
use super::runs::prefix_sum;
use super::short_rows::Split;
use super::whole_rows::{LOADS, fold_each};
use super::{self as shape, Shape};
use crate::agent::{Agent, Step, is_rare, summed_from};
use crate::exchange::slot;
use crate::input::Input;
use crate::kernels::Parameters;
use crate::plan::few_rows;
pub(crate) use crate::tree::unrolled;
use crate::tree::{fold_lanes, fold_leaves_of_lanes, of_leaves, of_thread};
use crate::{Op, Plan};
use bytemuck::Pod;
use core::array::from_fn;
use core::ffi::c_void;
use core::hint::assert_unchecked;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU32, AtomicU64};
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, shared_array, thread, warp};

pub use super::{chunks, larger};

/// Threads in a block.
pub const THREADS: u32 = 256;

/// Blocks that a multiprocessor has registers for: it has 65,536, and a thread uses up to 64.
pub const RESIDENT_BLOCKS: u32 = 4;

/// Warps in a block.
pub const WARPS: u32 = THREADS / warp::WARP_SIZE;

/// The most positions in a warp's share if larger segments are listed. A thread folds `width` items side by
/// side.
pub const fn most_positions(width: u64) -> u64 {
    32 * width * (LARGER as u64 - 2)
}

/// The most larger segments in a warp's share: those that start in it, each over 32 leaves long, and one that
/// reaches into it.
const LARGER: u32 = 258;

/// Words of a warp's list of larger segments: their number, then the index of each.
pub const LIST: usize = LARGER as usize + 1;

/// Items of the longest short segments. A thread folds `width` items side by side and has `slots` leaves in
/// flight.
pub const fn most_short(width: u64, slots: usize, block: u32) -> u64 {
    width << unit(slots, block)
}

/// Leaves of the longest short segments, as a logarithm.
const fn unit(slots: usize, block: u32) -> u32 {
    let (most, row) = ((32 * slots as u32).trailing_zeros(), block.trailing_zeros());
    if row < most { row } else { most }
}

/// Where segments lie.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SegmentBounds {
    /// Offsets on the device, one more than segments; null if all segments have the same length.
    pub(super) offsets: *const c_void,
    /// Bytes of an offset, 4 or 8; 0 if all segments have the same length. The driver compiles the kernel for one value of this word.
    pub(super) offset_bytes: u64,
    /// The length of all segments, if they have the same.
    pub(super) size: u64,
    /// Segments; or an upper bound of their number.
    pub count: u64,
    /// The number of segments on the device; null if the host knows it. With [`Cut::HEADS`], the [`Heads`] begin with it.
    pub(super) number: *const u64,
    /// Items in all segments' array.
    pub len: u64,
}

impl SegmentBounds {
    /// Segments between consecutive offsets.
    pub fn of_offsets<T>(offsets: *const T, count: u64, len: u64) -> Self {
        let offset_bytes = size_of::<T>() as u64;
        Self { offsets: offsets.cast(), offset_bytes, size: 0, count, number: core::ptr::null(), len }
    }

    /// Segments of one length.
    pub fn of_length(length: u64, count: u64, len: u64) -> Self {
        let offsets = core::ptr::null();
        Self { offsets, offset_bytes: 0, size: length, count, number: core::ptr::null(), len }
    }

    /// Returns whether all segments have the same length.
    #[inline(always)]
    pub(super) fn are_rows(&self) -> bool {
        self.offset_bytes == 0
    }

    /// Returns the length of all segments if they have the same.
    pub fn length(&self) -> Option<u64> {
        self.are_rows().then_some(self.size)
    }

    /// Reads the number of segments from the device's memory; the present number becomes the upper bound.
    #[must_use]
    pub fn with_number(self, number: *const u64) -> Self {
        Self { number, ..self }
    }

    /// Returns whether these are runs whose [`Heads`] are on the device.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn has_heads(&self) -> bool {
        self.has_number() && heads::are_kept(self.len, self.count)
    }

    /// Returns the arguments to list the offsets of all runs, if these [have heads](Self::has_heads).
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn listing(&self) -> Listing {
        Listing {
            heads: self.number.cast_mut(),
            offsets: self.offsets.cast_mut().cast(),
            words: self.offset_bytes as u32 / 4,
            // If there are more runs, the start of the next one is the end of the last.
            room: self.count + 1,
            len: self.len,
        }
    }

    /// Returns whether the number of segments is in the device's memory.
    pub fn has_number(&self) -> bool {
        !self.number.is_null()
    }

    /// Returns the number of segments.
    #[inline(always)]
    pub(crate) fn count(&self) -> u64 {
        if self.number.is_null() {
            return self.count;
        }
        // SAFETY: a number that is not null is valid.
        let number = unsafe { self.number.read() };
        if number < self.count { number } else { self.count }
    }

    /// Returns the start of segment `index`, or the end of the last.
    #[inline(always)]
    pub(crate) fn start(&self, index: u64) -> u64 {
        if self.are_rows() {
            return index * self.size;
        }
        // SAFETY: there are `count + 1` offsets.
        unsafe {
            if self.offset_bytes == 4 {
                self.offsets.cast::<u32>().add(index as usize).read().into()
            } else {
                self.offsets.cast::<u64>().add(index as usize).read()
            }
        }
    }

    /// Returns the start and the end of a segment between offsets.
    #[inline(always)]
    pub(super) fn between(&self, index: u64) -> (u64, u64) {
        let at = self.offsets.wrapping_byte_add((index * self.offset_bytes) as usize).cast::<u32>();
        // In halves of 32 bits, so that the same code serves offsets of both sizes.
        let (upper, mask) = self.upper_half();
        let offset = |at: *const u32| {
            // SAFETY: there are `count + 1` offsets.
            let [lower, upper] = unsafe { [at.read(), at.wrapping_byte_add(upper).read()] };
            u64::from(lower) | (u64::from(upper) << 32 & mask)
        };
        (offset(at), offset(at.wrapping_byte_add(self.offset_bytes as usize)))
    }

    /// Returns where the upper half of an offset lies, and a mask for it: an offset of 4 bytes has none.
    #[inline(always)]
    fn upper_half(&self) -> (usize, u64) {
        (self.offset_bytes as usize - 4, if self.offset_bytes == 8 { u64::MAX } else { 0 })
    }

    /// Returns the start and the end of a row, or of a segment between offsets.
    #[inline(always)]
    pub(super) fn ends(&self, index: u64) -> (u64, u64) {
        if self.are_rows() { (index * self.size, (index + 1) * self.size) } else { self.between(index) }
    }

    /// Returns the ends of a lane's segments of a batch. For segments from `left` on, it is the end of
    /// segment `left - 1`.
    #[inline(always)]
    fn stops(&self, batch: u64, lane: u32, left: u32) -> [u64; OF_LANE] {
        let end = |group: usize| {
            let index = lane + 32 * group as u32;
            batch + u64::from(if index < left { index + 1 } else { left })
        };
        if self.are_rows() {
            return from_fn(|group| end(group) * self.size);
        }
        // In halves of 32 bits, so that the same code serves offsets of both sizes.
        let (upper, mask) = self.upper_half();
        from_fn(|group| {
            let at = self.offsets.wrapping_byte_add((end(group) * self.offset_bytes) as usize).cast::<u32>();
            // SAFETY: there are `count + 1` offsets.
            let [lower, upper] = unsafe { [at.read(), at.wrapping_byte_add(upper).read()] };
            u64::from(lower) | (u64::from(upper) << 32 & mask)
        })
    }

    /// Returns whether a segment from `start` to `end` lies in the array.
    #[inline(always)]
    pub(crate) fn is_valid(&self, start: u64, end: u64) -> bool {
        start <= end && end <= self.len
    }

    /// Returns for each of two positions the first of `count` segments that starts there or later, where a
    /// segment weighs as much as `weight` items. All lanes search, half of them for each position.
    ///
    /// If offsets descend, the segment is unspecified, but the same for all warps; position 0 gives segment
    /// 0, and positions from the last one on give `count`. So the shares of the warps cover every segment,
    /// and some warp finds each bad one.
    ///
    /// # Safety
    ///
    /// All lanes call it together.
    #[inline(always)]
    pub(super) unsafe fn first_from(&self, count: u64, weight: u64, positions: [u64; 2]) -> [u64; 2] {
        if self.are_rows() {
            let size = (self.size + weight).max(1);
            return positions.map(|position| position.div_ceil(size).min(count));
        }
        const PROBES: u32 = warp::WARP_SIZE / 2;
        let lane = warp::lane_id();
        let upper = lane >= PROBES;
        let position = if upper { positions[1] } else { positions[0] };
        let last = self.len + weight * count;
        let (mut low, mut high) = (if position < last { 0 } else { count }, count);
        // With many segments, the first probes are near the segment that would be found if all had the same
        // length.
        let mut is_near = count > u64::from(PROBES * PROBES);
        let mut guess = 0;
        if is_near {
            let part = position as f64 / last as f64;
            guess = (part * count as f64) as u64;
        }
        // SAFETY: as the caller promises.
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
                let before = low < high && at < high && self.start(at).wrapping_add(weight * at) < position;
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

/// The arguments of a launch.
pub type Arguments<P, O, V> = shape::Arguments<SegmentBounds, P, O, V>;

/// How segments are cut up.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Cut {
    /// BLOCK of the segments' plans.
    pub block: u32,
    /// Positions in a warp's share, at most [`most_positions`] if there are lists; for short rows, rows in a
    /// share; for the kernels of [`lines`](super::lines) and of [`chunks`], items in a chunk.
    pub share: u32,
    /// Items that a segment costs beside its own: one leaf's if there are lists; for the kernels of `lines` and of
    /// [`chunks`], chunks of a row, or further blocks of a segment.
    pub weight: u32,
    /// Parts of a chunk of a larger segment, as a logarithm. A warp folds a part. [`partial_slots`] counts
    /// with it. For [`SHORT`](Self::SHORT) rows of the kernel of [`short_rows`](super::short_rows), the lanes of a row, as a logarithm.
    pub parts: u32,
    /// What the host tells the kernel of the launch. For the kernel of `lines`, the lower 16 bits are what
    /// [`lines::of_chunk`](super::lines::of_chunk) returns. For the kernel of [`spans`](super::spans), the upper 32 bits are BLOCK. The
    /// other bits are [`ALIGNED`](Self::ALIGNED), [`SHORT`](Self::SHORT), [`HAS_DEFAULT`](Self::HAS_DEFAULT), [`HEADS`](Self::HEADS) and
    /// [`LOW`](Self::LOW).
    /// The driver compiles the kernel for one value of this word. These are bits of one word because ptxas treats no 16-bit part of a
    /// constant as a constant.
    pub ways: u64,
    /// A list of larger segments for each warp, [`LIST`] words each; null if that of [`larger`] has all
    /// segments.
    pub lists: *mut u64,
    /// A list of the segments of more than [`few_rows`] rows, which are left to the kernel of
    /// [`chunks`]: their number, 0 before the launch, then the index of each, [`most_long`] at most. Null if
    /// there are none, and for rows.
    pub long: *mut u64,
    /// A [`slot`] for each partial result of segments of several chunks or parts: [`partial_slots`] of them.
    pub partials: *mut u64,
    /// Counters of these partial results, as many; all 0 before the launch and after it.
    pub counts: *mut u32,
    /// Takes the least of all errors: the index of a segment whose end is before its start or past the
    /// array's end; with the highest bit set, the index of a segment that has no value.
    pub wrong: *mut u64,
}

impl Cut {
    /// The bit of [`wrong`](Self::wrong) that says that a segment has no value.
    pub const NO_VALUE: u64 = 1 << 63;

    /// The value of [`wrong`](Self::wrong) without an error.
    pub const NOTHING: u64 = u64::MAX;

    /// Rows have a whole number of leaves, and each leaf is one access.
    pub const ALIGNED: u64 = 1 << 16;

    /// Rows are short for their kernel. What that means depends on the kernel:
    ///
    /// - [`short_rows`](super::short_rows): one load of each lane reads all rows of a warp.
    /// - [`chunks`]: a row has at most two lines.
    /// - [`whole_rows`](super::whole_rows) and [`larger`]: a chunk has at most one line.
    ///
    /// Segments between offsets never have this bit.
    pub const SHORT: u64 = 1 << 17;

    /// A segment without items may have no value.
    pub const HAS_DEFAULT: u64 = 1 << 18;

    /// Segments are runs of keys, and their [`Heads`] say where they are. A position counts an item then, and no segment counts
    /// besides. The first item is at the position that is the shift of the heads.
    pub const HEADS: u64 = 1 << 19;

    /// Rows whose chunks have so few lines that the shuffles over the lanes of a warp count: for the kernels of
    /// [`whole_rows`](super::whole_rows) and [`larger`]. Segments between offsets never have this bit.
    pub const LOW: u64 = 1 << 20;

    /// The first bit of BLOCK. Only the kernel of [`spans`](super::spans) has BLOCK here: in a word with such high bits ptxas does not see
    /// that the bits below are constants, as the other kernels need.
    const TEAM: u32 = 32;

    /// Returns how segments are cut up for the kernel of [`spans`](super::spans), if spans have `share` items.
    pub const fn of_spans(block: u32, share: u32) -> Self {
        Self { block, share, ways: (block as u64) << Self::TEAM, ..Self::NONE }
    }

    /// Returns the threads of a team for the kernel of [`spans`](super::spans): BLOCK.
    #[inline(always)]
    pub(super) fn team(&self) -> u32 {
        (self.ways >> Self::TEAM) as u32
    }

    /// Returns what [`of_chunk`](super::lines::of_chunk) returns for the launch's chunks.
    #[inline(always)]
    pub(super) fn of_chunk(&self) -> u32 {
        self.ways as u32 & 0xffff
    }

    /// Returns whether all of `bits` are among the [`ways`](Self::ways).
    #[inline(always)]
    pub fn has(&self, bits: u64) -> bool {
        self.ways & bits == bits
    }

    /// No cut, and null pointers.
    pub const NONE: Self = Self {
        block: 0,
        share: 0,
        weight: 0,
        parts: 0,
        ways: 0,
        lists: null_mut(),
        long: null_mut(),
        partials: null_mut(),
        counts: null_mut(),
        wrong: null_mut(),
    };
}

/// Returns the most segments of more than [`few_rows`] rows of `row` items that `len` items have.
#[allow(clippy::manual_checked_ops)] // `checked_div` has no `unwrap_or` in a constant function.
pub const fn most_long(len: u64, row: u64, block: u32) -> u64 {
    let least = few_rows(block) * row;
    if least == 0 { 0 } else { len / least }
}

/// Returns the number of slots for the partial results of segments of `len` items in all, with rows of `row`
/// items and chunks of 2^`parts` parts.
pub const fn partial_slots(len: u64, row: u64, parts: u32) -> u64 {
    first_slot(len, row, parts) + 1
}

/// Returns the first slot of a segment that starts at item `start`. A segment shorter than a row has no
/// partial results. A segment of several chunks has at most a chunk for each row that it begins; or, if
/// chunks have [`TALL_ROWS`](larger::TALL_ROWS) rows or more, up to 32 parts for each of these chunks.
pub(super) const fn first_slot(start: u64, row: u64, parts: u32) -> u64 {
    (2 * (start >> row.trailing_zeros())) << parts
}

/// Stores a partial result in its slot.
///
/// # Safety
///
/// The slot is valid, and used by atomics alone.
#[inline(always)]
pub(super) unsafe fn store_partial<A: Pod>(slot: *mut u64, value: &A) {
    for word in 0..slot::words::<A>() {
        // SAFETY: as the caller promises.
        unsafe { AtomicU64::from_ptr(slot.add(word)).store(slot::word(value, word), Ordering::Relaxed) };
    }
}

/// Loads a partial result that is [there](Arguments::are_there).
///
/// # Safety
///
/// As for [`store_partial`].
#[inline(always)]
pub(super) unsafe fn load_partial<A: Pod>(slot: *mut u64) -> A {
    // SAFETY: as the caller promises.
    slot::unpack(|word| unsafe { AtomicU64::from_ptr(slot.add(word)).load(Ordering::Relaxed) })
}

impl Shape for SegmentBounds {
    type Cut = Cut;

    /// Names the words for whose values the driver compiles the kernel. Half of a kernel is code for offsets and lists, which rows do
    /// not have. Half of the rest serves other lengths and alignments than the launch has.
    fn push(&self, cut: &Cut, parameters: &mut Parameters) {
        let &Cut { weight, parts, ways, .. } = cut;
        parameters.knows(offset_of!(Self, offset_bytes), self.offset_bytes);
        if self.number.is_null() {
            parameters.knows(offset_of!(Self, number), 0);
        }
        parameters.push(self);
        if self.are_rows() && weight == 1 {
            parameters.knows(offset_of!(Cut, weight), 1 | u64::from(parts) << 32);
        }
        parameters.knows(offset_of!(Cut, ways), ways);
        for (pointer, byte) in [(cut.lists, offset_of!(Cut, lists)), (cut.long, offset_of!(Cut, long))] {
            if pointer.is_null() {
                parameters.knows(byte, 0);
            }
        }
        parameters.push(cut);
    }
}

/// The kernel as a type.
pub type Kernel<O, P> = shape::Kernel<SegmentBounds, SegmentBounds, O, P>;

/// Reduces the short segments of `arguments.input`, and lists the larger ones.
///
/// # Safety
///
/// The launch has blocks of [`THREADS`], and a warp and a list for each share of the positions. The pointers
/// are valid as [`Arguments`] says, and nothing else accesses what they point to meanwhile. The offsets may
/// have any values.
#[inline(always)]
pub unsafe fn reduce_segments<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    if const { matches!(summed_from::<O, P::Item>(), Some(0)) } {
        return;
    }
    let work = Short::<O, P, WIDTH, SLOTS> {
        arguments,
        bounds: shared_array![u64; (WARPS * (BATCH + 1)) as usize],
        list: shared_array![u8; (WARPS * BATCH) as usize],
        warp: thread::thread_idx_x() / warp::WARP_SIZE,
    };
    // SAFETY: all threads are here.
    unsafe { work.fold() }
}

/// Returns the warp's number in its block.
#[inline(always)]
pub(super) fn warp_of_block() -> u32 {
    thread::thread_idx_x() / warp::WARP_SIZE
}

/// Returns the warp's number in the grid.
#[inline(always)]
pub(super) fn warp_of_grid() -> u64 {
    u64::from(thread::block_idx_x() * WARPS + warp_of_block())
}

impl<O: Op<P::Item>, P: Input> Arguments<P, O, O::Output> {
    /// Returns the first and the end position of this warp's share of `count` segments.
    #[inline(always)]
    pub(super) fn positions(&self, count: u64) -> [u64; 2] {
        let mut share = u64::from(self.cut.share);
        if self.cut.has(Cut::HEADS) {
            let first = warp_of_grid() * share;
            // SAFETY: there are heads.
            let shift = unsafe { self.heads().shift().read() };
            return [first, first + share].map(|position| position.saturating_sub(shift));
        }
        if !self.shape.number.is_null() {
            // The host knew an upper bound of `count` only.
            let warps = u64::from(thread::grid_dim_x() * WARPS).max(1);
            share = (self.shape.len + u64::from(self.cut.weight) * count).div_ceil(warps).min(share);
        }
        let first = warp_of_grid() * share;
        [first, first + share]
    }

    /// Returns the heads of the runs, if the [cut](Cut::HEADS) has them.
    #[inline(always)]
    fn heads(&self) -> Heads {
        Heads(self.shape.number.cast_mut())
    }

    /// Returns the warp's list of larger segments.
    #[inline(always)]
    pub(super) fn list(&self) -> *mut u64 {
        self.cut.lists.wrapping_add(warp_of_grid() as usize * LIST)
    }

    /// Stores a segment's result, made of the accumulator of its `len` items.
    ///
    /// # Safety
    ///
    /// `segment` is the index of a segment, and nothing else stores its result.
    #[inline(always)]
    pub(super) unsafe fn deliver(&self, op: &O, segment: u64, all: O::Accumulator, len: u64) {
        let Self { results, default, cut, .. } = *self;
        let all = if len == 0 { all } else { op.end(all, len) };
        // SAFETY: there is an element for each result.
        unsafe {
            if !O::agent().store(op, (all, len), results, segment as usize) {
                slot::store(results.add(segment as usize), default);
                if len == 0 && !cut.has(Cut::HAS_DEFAULT) {
                    self.is_wrong(Cut::NO_VALUE | segment);
                }
            }
        }
    }

    /// As [`deliver`](Self::deliver), if a [`Step`] has [taken](Step::fold) an accumulator. Returns whether it has.
    ///
    /// # Safety
    ///
    /// As for [`deliver`](Self::deliver).
    #[inline(always)]
    pub(super) unsafe fn deliver_taken(
        &self,
        taken: Option<(O, O::Accumulator)>,
        segment: u64,
        len: u64,
    ) -> bool {
        let Some((op, all)) = taken else { return false };
        // SAFETY: as the caller promises.
        unsafe { self.deliver(&op, segment, all, len) };
        true
    }

    /// Returns the items of the array, first and end, whose leaves of `width` items can be loaded by words, also the last one, which may
    /// have less. Words reach up to 4 bytes before and after a leaf.
    #[inline(always)]
    fn of_words(&self, width: usize) -> [u64; 2] {
        [4, self.shape.len.saturating_sub(width as u64 + 4)]
    }

    /// Returns whether the leaves of a segment can be loaded at any address: by [words](Self::of_words) if items are
    /// [narrow](Input::IS_NARROW).
    #[inline(always)]
    pub(super) fn is_inside(&self, width: usize, start: u64, stop: u64) -> bool {
        let [first, end] = self.of_words(width);
        !P::IS_NARROW || start >= first && stop <= end
    }

    /// Returns the items of a part whose leaves can be loaded by [words](Self::of_words), if the part begins at item `start` of the array.
    /// They are counted from the part's first item, and may end after it.
    #[inline(always)]
    pub(super) fn inside(&self, width: usize, start: u64) -> [u32; 2] {
        let [first, end] = self.of_words(width);
        [first.saturating_sub(start) as u32, end.saturating_sub(start).min(u32::MAX.into()) as u32]
    }

    /// Puts a segment on the list of long ones. (There is no room only if offsets descend.)
    ///
    /// # Safety
    ///
    /// There is a list, and one lane calls it once for a segment.
    #[inline(always)]
    pub(super) unsafe fn list_long<const WIDTH: usize>(&self, segment: u64) {
        let Self { shape: segments, cut, .. } = *self;
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

    /// Counts `more` partial results that the warp has stored, of a segment whose first slot is `first`. Returns whether all are
    /// there now, and can be read.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together, and each partial result is counted once.
    #[inline(always)]
    pub(super) unsafe fn are_there(&self, first: usize, more: u32, all: u32) -> bool {
        // SAFETY: as the caller promises; the counter is used by atomics alone.
        unsafe {
            warp::sync_warp(warp::ALL);
            let mut is_last = false;
            if warp::lane_id() == 0 {
                let arrived = AtomicU32::from_ptr(self.cut.counts.add(first));
                is_last = arrived.fetch_add(more, Ordering::AcqRel) + more == all;
                if is_last {
                    arrived.store(0, Ordering::Relaxed);
                }
            }
            let are_there = warp::warp_vote_any(warp::ALL, is_last);
            if are_there {
                warp::sync_warp(warp::ALL);
            }
            are_there
        }
    }

    /// Reports an error, as [`Cut::wrong`] describes.
    #[inline(always)]
    pub(crate) fn is_wrong(&self, what: u64) {
        // SAFETY: the pointer is valid, and used by atomics alone.
        let least = unsafe { AtomicU64::from_ptr(self.cut.wrong) };
        least.fetch_min(what, Ordering::Relaxed);
    }
}

/// Returns the leaves that a lane has in flight.
pub const fn slots<O: Op<I>, I: Copy + 'static>(width: usize) -> usize {
    if are_apart::<O, I>(width) { LOADS } else { of_lane::<O, I>(width) }
}

/// Returns the leaves of a segment that a lane has in flight: four, or fewer if a thread lacks registers for their accumulators. An exact
/// operator has one accumulator for all of them.
const fn of_lane<O: Op<I>, I: Copy + 'static>(width: usize) -> usize {
    most_leaves(size_of::<O::Accumulator>() * if O::EXACT { 1 } else { width })
}

/// Returns the segments of one leaf that a lane has in flight. An exact operator has an accumulator and a value for each.
const fn of_own<O: Op<I>, I: Copy + 'static>(width: usize) -> usize {
    most_leaves(size_of::<O::Accumulator>() * if O::EXACT { 2 } else { width })
}

/// Returns the leaves in flight if each has `bytes` bytes of accumulators.
const fn most_leaves(bytes: usize) -> usize {
    match bytes {
        0..=16 => LOADS,
        17..=32 => 2,
        _ => 1,
    }
}

/// Returns whether a lane has leaves of several segments in flight, if the segments have more than two leaves: a thread has registers for
/// the accumulators of one leaf, and for the values of [`LOADS`] leaves. Variances of segments of `f32` on an H200, µs with a leaf a lane and
/// so: 17 items 447 and 249; 153 items, which are too many for a leaf a lane, so that a warp had a segment, 468 and 181. Norms with two
/// leaves a lane and so: 17 items 202 and 138. Accumulators of 4 bytes gain nothing: sums of 17 `f16` 201 and 233.
const fn are_apart<O: Op<I>, I: Copy + 'static>(width: usize) -> bool {
    !O::EXACT && matches!(size_of::<O::Accumulator>(), 5..=16) && of_lane::<O, I>(width) < LOADS
}

/// The arguments of a launch, and a block's shared memory. A thread folds WIDTH items side by side and has
/// SLOTS leaves in flight.
struct Short<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize> {
    arguments: Arguments<P, O, O::Output>,
    /// For each warp: the starts of a batch's segments, and the end of the last.
    bounds: Shared<u64>,
    /// For each warp: the numbers of listed segments in the batch.
    list: Shared<u8>,
    /// The warp's number in its block.
    warp: u32,
}

/// Segments in a batch, whose numbers fit in a byte, and segments of a lane.
const BATCH: u32 = 256;
const OF_LANE: usize = (BATCH / warp::WARP_SIZE) as usize;

/// Classes of short segments, which have up to 128 leaves.
const CLASSES: u32 = 8;

/// Segments of one item that a lane loads at a time.
const SINGLE_LOADS: usize = 4;

impl<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize> Short<O, P, WIDTH, SLOTS> {
    /// Reduces the short segments of the warp's share, and lists the larger ones.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold(&self) {
        let Arguments { shape: segments, cut, .. } = self.arguments;
        let lane = warp::lane_id();
        let bounds = self.warp * (BATCH + 1);
        let unit = unit(SLOTS, cut.block);
        let most = (WIDTH as u32) << unit;
        let entries = self.arguments.list().wrapping_add(1);
        let mut larger = 0;
        let is_of_heads = cut.has(Cut::HEADS);
        // SAFETY: as the caller promises; each warp accesses its own list and its own part of shared memory.
        unsafe {
            let count = segments.count();
            let (mut words, [first, end]) = if is_of_heads {
                let words = Words::new(self.arguments.heads(), segments.len, cut.share);
                (words, [words.before(), count])
            } else {
                let positions = self.arguments.positions(count);
                (Words::NONE, segments.first_from(count, cut.weight.into(), positions))
            };
            // The segment before may reach into the share.
            if first > 0 && first <= count && (!is_of_heads || words.is_before_listed()) {
                let (start, stop) = (segments.start(first - 1), segments.start(first));
                if segments.is_valid(start, stop) && stop - start > most.into() {
                    if lane == 0 {
                        entries.write(first - 1);
                    }
                    larger = 1;
                }
            }
            let mut batch = first;
            while batch < end && (!is_of_heads || words.next < words.end) {
                intrinsics::no_unroll();
                let left = end - batch;
                let mut taken = Taken::NONE;
                let left = if is_of_heads {
                    taken = words.take::<WIDTH>(&segments, batch, self.bounds.from(bounds));
                    if left < taken.count.into() { left as u32 } else { taken.count }
                } else {
                    let left = if left < BATCH.into() { left as u32 } else { BATCH };
                    let left = intrinsics::opaque(left);
                    let stops = segments.stops(batch, lane, left);
                    if lane == 0 {
                        self.bounds.write(bounds, segments.start(batch));
                    }
                    for (group, stop) in stops.into_iter().enumerate() {
                        self.bounds.write(bounds + lane + 32 * group as u32 + 1, stop);
                    }
                    left
                };
                warp::sync_warp(warp::ALL);
                // Segments of one item would need as long for their classes as for their items.
                let are_single = if is_of_heads { taken.are_single } else { self.are_single(left) };
                if are_single {
                    self.fold_single(batch, left, taken.first);
                    warp::sync_warp(warp::ALL);
                    batch += u64::from(left);
                    continue;
                }
                // Four bits for each group of 32 segments: class c if 2^c leaves suffice; 15 if the segment
                // is not short.
                let mut classes = u32::MAX;
                let mut group = 0;
                if taken.are_leaves {
                    (classes, group) = (Self::all_of(0, left), BATCH);
                }
                while 32 * group < left {
                    intrinsics::no_unroll();
                    let index = 32 * group + lane;
                    let (start, stop) =
                        (self.bounds.read(bounds + index), self.bounds.read(bounds + index + 1));
                    let len = stop.wrapping_sub(start);
                    let is_there = index < left;
                    let is_valid = is_of_heads || start <= stop && stop <= segments.len;
                    let is_short = is_there & is_valid & (len <= most.into());
                    // Before any branch on these, or the compiler makes two votes of it.
                    let others = warp::warp_vote_ballot(warp::ALL, is_there & !is_short);
                    let leaves = (len as u32).div_ceil(WIDTH as u32);
                    // The bits of `leaves - 1`.
                    let class = if leaves > 1 { 32 - (leaves - 1).leading_zeros() } else { 0 };
                    classes ^= if is_short { (15 ^ class) << (4 * group) } else { 0 };
                    if others != 0 {
                        let segment = batch + u64::from(index);
                        let entry = larger + before(others, lane);
                        if is_there && !is_valid {
                            self.arguments.is_wrong(segment);
                        }
                        if is_there && !is_short && entry < LARGER {
                            entries.add(entry as usize).write(segment);
                        }
                        larger = (larger + others.count_ones()).min(LARGER);
                    }
                    group += 1;
                }
                // Whether the lane has a segment of class 0, and whether it has one of a higher class: four bits that are not all alike.
                let has_leaf = !(classes | classes >> 1 | classes >> 2 | classes >> 3) & 0x1111_1111 != 0;
                let has_leaves = (classes ^ classes >> 1) & 0x7777_7777 != 0;
                if Self::HAVE_OWN && warp::warp_vote_any(warp::ALL, has_leaf) {
                    match const { of_own::<O, P::Item>(WIDTH) } {
                        2 => self.fold_own::<2>(batch, classes, left),
                        _ => self.fold_own::<LOADS>(batch, classes, left),
                    }
                }
                if !Self::HAVE_OWN || warp::warp_vote_any(warp::ALL, has_leaves) {
                    let upto = self.sort(classes, left);
                    self.fold_sorted(batch, upto);
                }
                warp::sync_warp(warp::ALL);
                batch += u64::from(left);
            }
            if lane == 0 {
                self.arguments.list().write(larger.into());
            }
        }
    }

    /// Returns whether none of the `left` segments of a batch has more than one item, and all lie in the array.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn are_single(&self, left: u32) -> bool {
        let bounds = self.warp * (BATCH + 1);
        // SAFETY: as the caller promises.
        unsafe {
            // Most batches end here.
            let [first, last] = [self.bounds.read(bounds), self.bounds.read(bounds + left)];
            if last < first || last - first > left.into() || last > self.arguments.shape.len {
                return false;
            }
            let mut are_single = true;
            let mut index = warp::lane_id();
            while index < left {
                intrinsics::no_unroll();
                let [start, stop] = [self.bounds.read(bounds + index), self.bounds.read(bounds + index + 1)];
                are_single &= stop.wrapping_sub(start) <= 1;
                index += warp::WARP_SIZE;
            }
            warp::warp_vote_all(warp::ALL, are_single)
        }
    }

    /// Reduces a batch of [single](Self::are_single) segments; with [heads](Cut::HEADS), of segments of an item each, from item
    /// `start` on.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_single(&self, batch: u64, left: u32, start: u64) {
        let Arguments { input, op, cut, .. } = self.arguments;
        let is_of_heads = cut.has(Cut::HEADS);
        let bounds = self.warp * (BATCH + 1);
        let mut first = warp::lane_id();
        // SAFETY: as the caller promises.
        unsafe {
            while first < left {
                intrinsics::no_unroll();
                let index_of = |load: usize| first + load as u32 * warp::WARP_SIZE;
                // A bit for each segment that has an item.
                let mut have_items = 0u32;
                let items: [P::Item; SINGLE_LOADS] = intrinsics::apart(|| {
                    from_fn(|load| {
                        if index_of(load) >= left {
                            return P::zeroed();
                        }
                        let index = bounds + index_of(load);
                        let mut item = start + u64::from(index_of(load));
                        if !is_of_heads {
                            item = self.bounds.read(index);
                            if item == self.bounds.read(index + 1) {
                                return P::zeroed();
                            }
                        }
                        have_items |= 1 << load;
                        input.offset(item as usize).read()
                    })
                });
                unrolled::<SINGLE_LOADS>(|load| {
                    if index_of(load) < left {
                        let (mut op, mut all) = (op, [op.identity(); WIDTH]);
                        let has_item = have_items >> load & 1;
                        if has_item != 0 {
                            op = op.begin(items[load]);
                            O::agent().fold_item(&op, &mut all[0], items[load], 0);
                        }
                        let value = of_thread::<O, P::Item, WIDTH>(&op, all);
                        let segment = batch + u64::from(index_of(load));
                        self.arguments.deliver(&op, segment, value, has_item.into());
                    }
                });
                first += SINGLE_LOADS as u32 * warp::WARP_SIZE;
            }
        }
    }

    /// Whether the lanes that have classified segments of one leaf [fold them](Self::fold_own). If accumulators are large, to list these
    /// segments costs little beside the rest.
    const HAVE_OWN: bool = of_own::<O, P::Item>(WIDTH) > 1 && !are_apart::<O, P::Item>(WIDTH);

    /// Returns the classes of a lane's segments if all `left` segments of the batch are of one class.
    #[inline(always)]
    fn all_of(class: u32, left: u32) -> u32 {
        let of_lane = (left + 31 - warp::lane_id()) / 32;
        (class * 0x1111_1111) | u32::MAX.unbounded_shl(4 * of_lane)
    }

    /// Lists a batch's short segments in the order of their classes, without those that [`fold_own`](Self::fold_own) reduces. Returns to
    /// lane c how many listed ones are of class c or a lower one.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn sort(&self, classes: u32, left: u32) -> u32 {
        let (lane, list) = (warp::lane_id(), self.warp * BATCH);
        let class_of = |index: u32| classes >> (index / 32 * 4) & 15;
        let is_listed = |class: u32| class < CLASSES && !(Self::HAVE_OWN && class == 0);
        // The counts of the eight classes are the bytes of one number, so that one addition adds to all of them.
        let one_of = |class: u32| if is_listed(class) { 1u64 << (8 * class) } else { 0 };
        // SAFETY: as the caller promises.
        unsafe {
            let (first, _) = warp::warp_shuffle_idx(warp::ALL, class_of(0), 0, 32);
            if warp::warp_vote_all(warp::ALL, classes == Self::all_of(first, left)) {
                let mut index = lane;
                while index < left {
                    intrinsics::no_unroll();
                    self.list.write(list + index, index as u8);
                    index += warp::WARP_SIZE;
                }
                warp::sync_warp(warp::ALL);
                return if lane >= first { left } else { 0 };
            }
            // Here no class has all segments, so that no byte counts to 256.
            let (mut of_lane, mut index) = (0, lane);
            while index < left {
                intrinsics::no_unroll();
                of_lane += one_of(class_of(index));
                index += warp::WARP_SIZE;
            }
            let (mut upto_lane, mut stride) = (of_lane, intrinsics::opaque(1));
            while stride < warp::WARP_SIZE {
                intrinsics::no_unroll();
                let (below, is_there) = warp::warp_shuffle_up(warp::ALL, upto_lane, stride, 32);
                upto_lane += if is_there { below } else { 0 };
                stride *= 2;
            }
            let (all, _) = warp::warp_shuffle_idx(warp::ALL, upto_lane, 31, 32);
            // Each byte: where the class's next segment of this lane is listed. The product adds up the bytes of lower classes. (A sum of 256
            // changes the next byte. Then the lower classes have all segments, and the bytes from there on are not used.)
            let mut next = all.wrapping_mul(0x0101_0101_0101_0100).wrapping_add(upto_lane - of_lane);
            index = lane;
            while index < left {
                intrinsics::no_unroll();
                let class = class_of(index);
                if is_listed(class) {
                    self.list.write(list + (next >> (8 * class % 64)) as u32 % 256, index as u8);
                }
                next = next.wrapping_add(one_of(class));
                index += warp::WARP_SIZE;
            }
            warp::sync_warp(warp::ALL);
            // The sum of the bytes up to the lane's class: of neighbouring ones, then of these sums, which have 16 bits.
            const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
            let upto = all << (8 * (CLASSES - 1)).saturating_sub(8 * lane);
            let pairs = (upto & EVEN) + (upto >> 8 & EVEN);
            (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as u32
        }
    }

    /// Reduces those of a batch's segments that [`sort`](Self::sort) has listed. `upto` is the number that `sort` returned to the lane.
    ///
    /// The segments with most leaves come first. Each segment of a round has the lanes that the largest segment of the round needs. So a round
    /// uses all lanes even if no two segments have the same length: on an H200, 2^26 `f32` in segments whose lengths follow a power law took 232
    /// µs where a round had segments of one class, and take 195.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_sorted(&self, batch: u64, upto: u32) {
        let of_lane = const { of_lane::<O, P::Item>(WIDTH) };
        // SAFETY: as the caller promises.
        unsafe {
            let (mut count, _) = warp::warp_shuffle_idx(warp::ALL, upto, CLASSES - 1, 32);
            loop {
                intrinsics::no_unroll();
                // The class of the last one.
                let class = warp::warp_vote_ballot(warp::ALL, upto < count).count_ones();
                if count == 0 {
                    break;
                }
                let (of_lower, _) = warp::warp_shuffle_idx(warp::ALL, upto, class.wrapping_sub(1) % 32, 32);
                let of_lower = if class > 0 { of_lower } else { 0 };
                if const { are_apart::<O, P::Item>(WIDTH) } && class >= 2 {
                    let split = Split::of(class, warp::lane_id());
                    while count > of_lower {
                        intrinsics::no_unroll();
                        let sorted = Sorted { short: self, batch, count };
                        O::agent().fold_step(&mut Apart { sorted, split });
                        count = count.saturating_sub(split.rows());
                    }
                }
                // Lanes for a segment, as a logarithm. A segment of two leaves would leave two of
                // four slots empty.
                let lanes = class.saturating_sub(of_lane.trailing_zeros());
                while count > of_lower {
                    intrinsics::no_unroll();
                    let sorted = Sorted { short: self, batch, count };
                    if of_lane > 2 && class <= 1 {
                        O::agent().fold_step(&mut OfLanes::<_, _, _, _, 2> { sorted, lanes: 0 });
                    } else {
                        match of_lane {
                            1 => O::agent().fold_step(&mut OfLanes::<_, _, _, _, 1> { sorted, lanes }),
                            2 => O::agent().fold_step(&mut OfLanes::<_, _, _, _, 2> { sorted, lanes }),
                            _ => O::agent().fold_step(&mut OfLanes::<_, _, _, _, LOADS> { sorted, lanes }),
                        }
                    }
                    count = count.saturating_sub(warp::WARP_SIZE >> lanes);
                }
            }
            warp::sync_warp(warp::ALL);
        }
    }

    /// Reduces a batch's segments of one leaf: each lane folds those that it has classified, without a list. An exact operator loads
    /// narrow items by words, if all of these segments are [inside](Arguments::is_inside) the array: on an H200, sums of segments of 13 `u8`
    /// take 209 µs so, and took 296 by a loop with a load for each item.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_own<const OWN: usize>(&self, batch: u64, classes: u32, left: u32) {
        let Arguments { input, op, .. } = self.arguments;
        let lane = warp::lane_id();
        let bounds = self.warp * (BATCH + 1);
        let by_words = const { O::EXACT && P::IS_NARROW };
        let mut group = 0;
        // SAFETY: as the caller promises.
        unsafe {
            while 32 * group < left {
                intrinsics::no_unroll();
                let mut ops = [op; OWN];
                let mut lens = [0; OWN];
                let mut is_in = [false; OWN];
                let mut ats = [input; OWN];
                let mut are_inside = by_words;
                unrolled::<OWN>(|slot| {
                    let group = group + slot as u32;
                    let index = bounds + 32 * group + lane;
                    let (start, stop) = (self.bounds.read(index), self.bounds.read(index + 1));
                    is_in[slot] = classes >> (4 * group) & 15 == 0;
                    lens[slot] = intrinsics::opaque(if is_in[slot] { (stop - start) as u32 } else { 0 });
                    ats[slot] = input.offset(start as usize);
                    are_inside &= !is_in[slot] || self.arguments.is_inside(WIDTH, start, stop);
                    if lens[slot] > 0 {
                        ops[slot] = op.begin(ats[slot].read());
                    }
                });
                let mut values = [op.identity(); OWN];
                if by_words && !warp::warp_vote_all(warp::ALL, are_inside) {
                    for _ in 0..OWN {
                        intrinsics::no_unroll();
                        let mut all = [op.identity(); WIDTH];
                        fold_leaf::<O, P, WIDTH>(&ops[0], &mut all, P::no_leaf(), ats[0], lens[0], 0);
                        values[0] = all[0];
                        rotate(&mut values);
                        rotate(&mut ops);
                        rotate(&mut ats);
                        rotate(&mut lens);
                    }
                } else {
                    let load = |at: P, len| match len {
                        _ if !by_words => load_leaf::<O, P, WIDTH>(at, len),
                        0 => P::no_leaf(),
                        _ => at.load_anywhere(),
                    };
                    let items: [P::Leaf<WIDTH>; OWN] =
                        intrinsics::apart(|| from_fn(|slot| load(ats[slot], lens[slot])));
                    unrolled::<OWN>(|slot| {
                        let mut all = [op.identity(); WIDTH];
                        if by_words {
                            // A predicate for each item, unlike in `fold_leaf`: ptxas computes the products of narrow items in any case,
                            // and then selects.
                            for (item, value) in P::items(items[slot]).into_iter().enumerate() {
                                if (item as u32) < lens[slot] {
                                    O::agent().fold_item(&ops[slot], &mut all[0], value, item as u64);
                                }
                            }
                        } else {
                            fold_leaf::<O, P, WIDTH>(
                                &ops[slot],
                                &mut all,
                                items[slot],
                                ats[slot],
                                lens[slot],
                                0,
                            );
                        }
                        values[slot] = of_thread::<O, P::Item, WIDTH>(&ops[slot], all);
                    });
                }
                unrolled::<OWN>(|slot| {
                    if is_in[slot] {
                        let segment = batch + u64::from(32 * (group + slot as u32) + lane);
                        self.arguments.deliver(&ops[slot], segment, values[slot], lens[slot].into());
                    }
                });
                group += OWN as u32;
            }
        }
    }
}

/// The first `count` of a batch's [sorted](Short::sort) segments.
struct Sorted<'a, O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize> {
    short: &'a Short<O, P, WIDTH, SLOTS>,
    batch: u64,
    count: u32,
}

impl<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize> Sorted<'_, O, P, WIDTH, SLOTS> {
    /// Returns the index in the batch of the segment that is `number` places before the last one, and the segment's bounds.
    ///
    /// # Safety
    ///
    /// There is such a segment.
    #[inline(always)]
    unsafe fn segment(&self, number: u32) -> (u32, u64, u64) {
        let Short { bounds, list, warp, .. } = self.short;
        // SAFETY: as the caller promises; the warp has written its lists.
        unsafe {
            let index = u32::from(list.read(warp * BATCH + self.count - 1 - number));
            let at = warp * (BATCH + 1) + index;
            (index, bounds.read(at), bounds.read(at + 1))
        }
    }
}

/// As many of the segments as [`Split::rows`] says. A lane has [`LOADS`] leaves in flight, of several segments if they are short. The
/// split suffices for each of these segments.
struct Apart<'a, O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize> {
    sorted: Sorted<'a, O, P, WIDTH, SLOTS>,
    split: Split,
}

impl<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize> Step<O, P::Item>
    for Apart<'_, O, P, WIDTH, SLOTS>
{
    #[inline(always)]
    unsafe fn fold<S: Op<P::Item>>(
        &mut self,
        stand_in: impl Fn(O) -> S,
        take: impl Fn(&S, S::Accumulator) -> Option<(O, O::Accumulator)>,
    ) -> bool {
        let &mut Self { ref sorted, split } = self;
        let &Sorted { short, batch, count } = sorted;
        let Arguments { input, op, .. } = short.arguments;
        let number_of = |load: usize| split.group() + split.row_of(load);
        let mut are_taken = true;
        // SAFETY: as the caller promises.
        unsafe {
            // A load without a segment has the last one's.
            let segment_of = |load: usize| {
                let number = number_of(load);
                sorted.segment(if number < count { number } else { 0 })
            };
            let deliver = |load: usize, op: &S, value| {
                if number_of(load) < count {
                    let (index, start, stop) = segment_of(load);
                    let segment = batch + u64::from(index);
                    are_taken &= short.arguments.deliver_taken(take(op, value), segment, stop - start);
                }
            };
            if const { is_rare::<S, P::Item>() } {
                let load = |load: usize| {
                    let (_, start, stop) = segment_of(load);
                    let (at, item) = (input.offset(start as usize), split.leaf_of(load) * WIDTH as u32);
                    let len = if number_of(load) < count { (stop - start) as u32 } else { 0 };
                    let op = stand_in(if len > 0 { op.begin(at.read()) } else { op });
                    (op, at.offset(item as usize), len.saturating_sub(item))
                };
                split.fold_rarely::<S, P, WIDTH>(load, deliver);
                return are_taken;
            }
            let (mut ops, mut ats, mut lefts) = ([stand_in(op); LOADS], [input; LOADS], [0; LOADS]);
            let (mut are_whole, mut are_inside) = (true, true);
            unrolled::<LOADS>(|load| {
                let (_, start, stop) = segment_of(load);
                let (item, len) = (split.leaf_of(load) * WIDTH as u32, (stop - start) as u32);
                let left = if number_of(load) < count { len.saturating_sub(item) } else { 0 };
                // Opaque, for the reason given in `fold_short`.
                lefts[load] = intrinsics::opaque(left);
                // In place of a leaf that is not there, the segment's first one is loaded.
                ats[load] = input.offset(start as usize).offset(if left > 0 { item as usize } else { 0 });
                let is_whole = (if left > 0 { left } else { len }) >= WIDTH as u32;
                are_whole &= is_whole && is_aligned(ats[load], WIDTH);
                are_inside &= short.arguments.is_inside(WIDTH, start, stop);
                if len > 0 {
                    ops[load] = stand_in(op.begin(input.offset(start as usize).read()));
                }
            });
            let are_whole = warp::warp_vote_all(warp::ALL, are_whole);
            let are_inside = P::IS_NARROW && warp::warp_vote_all(warp::ALL, are_inside);
            let values = fold_each::<S, P, WIDTH, LOADS>(
                &ops,
                |load| ats[load],
                |load| (split.leaf_of(load) * WIDTH as u32).into(),
                lefts,
                [are_whole, are_whole, are_inside],
            );
            split.settle::<S, P::Item>(ops, values, deliver);
        }
        are_taken
    }
}

/// As many of the segments as there are lanes for, with 2^`lanes` lanes each. 2^`lanes` · LEAVES leaves suffice for each of these segments.
struct OfLanes<'a, O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize, const LEAVES: usize> {
    sorted: Sorted<'a, O, P, WIDTH, SLOTS>,
    lanes: u32,
}

impl<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize, const LEAVES: usize> Step<O, P::Item>
    for OfLanes<'_, O, P, WIDTH, SLOTS, LEAVES>
{
    #[inline(always)]
    unsafe fn fold<S: Op<P::Item>>(
        &mut self,
        stand_in: impl Fn(O) -> S,
        take: impl Fn(&S, S::Accumulator) -> Option<(O, O::Accumulator)>,
    ) -> bool {
        let &mut Self { ref sorted, lanes } = self;
        let &Sorted { short, batch, count } = sorted;
        let lane = warp::lane_id();
        let (rank, part) = (lane >> lanes, lane & ((1 << lanes) - 1));
        // SAFETY: as the caller promises.
        unsafe {
            let Arguments { input: mut at, op: first, .. } = short.arguments;
            let (mut index, mut len, mut is_inside, mut op) = (0, 0, true, stand_in(first));
            if rank < count {
                let (start, stop);
                (index, start, stop) = sorted.segment(rank);
                is_inside = short.arguments.is_inside(WIDTH, start, stop);
                len = (stop - start) as u32;
                at = at.offset(start as usize);
                if len > 0 {
                    op = stand_in(first.begin(at.read()));
                }
            }
            let value = if O::EXACT {
                let value =
                    fold_leaves_in_any_order::<S, P, WIDTH, LEAVES>(&op, at, len, [part, lanes], is_inside);
                fold_lanes::<S, P::Item>(&op, value, lanes)
            } else {
                // If a segment has four lanes or more, neighbouring lanes have neighbouring leaves, and four lanes share the folding of four
                // leaves each. If each lane had four neighbouring leaves, a load of one item a lane would touch four times as many lines:
                // sums of segments of 301 `f32` took 131 µs so on an H200, and take 80.
                let are_strided = LEAVES == LOADS && lanes >= 2;
                let (of_lane, stride) = if are_strided { (1, WIDTH << lanes) } else { (LEAVES, WIDTH) };
                let item = part * (of_lane * WIDTH) as u32;
                let mut values = [[op.identity(); WIDTH]; LEAVES];
                fold_leaves::<S, P, WIDTH, LEAVES>(
                    &op,
                    &mut values,
                    at.offset(item as usize),
                    [len.saturating_sub(item), stride as u32],
                    item.into(),
                    is_inside,
                );
                if are_strided {
                    let values = from_fn(|slot| of_thread::<S, P::Item, WIDTH>(&op, values[slot % LEAVES]));
                    fold_leaves_of_lanes::<S, P::Item>(&op, values, lanes)
                } else {
                    let value = of_leaves::<S, P::Item, WIDTH, LEAVES>(&op, values);
                    fold_lanes::<S, P::Item>(&op, value, lanes)
                }
            };
            if rank >= count || part > 0 {
                return true;
            }
            short.arguments.deliver_taken(take(&op, value), batch + u64::from(index), len.into())
        }
    }
}

/// The words of a warp's share of the [`Heads`].
#[derive(Clone, Copy)]
struct Words {
    heads: Heads,
    shift: u64,
    /// The next word of the share, and the end of the share.
    next: u64,
    end: u64,
    /// The end of all words that have items.
    all: u64,
}

impl Words {
    const NONE: Self = Self { heads: Heads(null_mut()), shift: 0, next: 0, end: 0, all: 0 };

    /// Returns the words of this warp's share.
    ///
    /// # Safety
    ///
    /// There are heads.
    #[inline(always)]
    unsafe fn new(heads: Heads, len: u64, share: u32) -> Self {
        // SAFETY: as the caller promises.
        let shift = unsafe { heads.shift().read() };
        let all = (shift + len).div_ceil(WORD.into());
        let of_share = u64::from(share / WORD);
        let next = (warp_of_grid() * of_share).min(all);
        Self { heads, shift, next, end: (next + of_share).min(all), all }
    }

    /// Returns how many heads come before the share; if it has no words, more than there are.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn before(&self) -> u64 {
        // SAFETY: as the caller promises.
        if self.next < self.end { unsafe { self.heads.before_word(self.next) } } else { u64::MAX }
    }

    /// Returns the bits of a word; none if it has no items.
    #[inline(always)]
    fn bits(&self, word: u64) -> u32 {
        // SAFETY: there is such a word.
        if word < self.all { unsafe { self.heads.word(word).read() } } else { 0 }
    }

    /// Returns the item at a bit of a word.
    #[inline(always)]
    fn item(&self, word: u64, bit: u32) -> u64 {
        (word * u64::from(WORD) + u64::from(bit)).wrapping_sub(self.shift)
    }

    /// Returns whether the run before the share's first one is among the offsets.
    #[inline(always)]
    fn is_before_listed(&self) -> bool {
        let [before, first] = [self.bits(self.next.wrapping_sub(1)), self.bits(self.next)];
        before.leading_zeros() + first.trailing_zeros() >= WORD
    }

    /// Goes past the next words: as many as have up to [`BATCH`] heads, 32 at most. The first segment is `batch`. Writes to `bounds`
    /// where the segments are, unless each has one item.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together; `bounds` are the warp's own.
    #[inline(always)]
    unsafe fn take<const WIDTH: usize>(
        &mut self,
        segments: &SegmentBounds,
        batch: u64,
        bounds: Shared<u64>,
    ) -> Taken {
        let lane = warp::lane_id();
        let word = self.next + u64::from(lane);
        let bits = self.bits(word);
        let first = self.item(self.next, 0);
        // SAFETY: as the caller promises.
        unsafe {
            let upto = prefix_sum(bits.count_ones());
            let words = warp::warp_vote_ballot(warp::ALL, upto <= BATCH && word < self.end).count_ones();
            let (count, _) = warp::warp_shuffle_idx(warp::ALL, upto, words - 1, 32);
            // The next head ends the last segment.
            let later = warp::warp_vote_ballot(warp::ALL, lane >= words && bits != 0);
            let next = later.trailing_zeros();
            let (mut of_next, _) = warp::warp_shuffle_idx(warp::ALL, bits, next % 32, 32);
            if later == 0 {
                of_next = if words == 32 { self.bits(self.next + 32) } else { 0 };
            }
            let stop = match of_next {
                0 => segments.start((batch + u64::from(count)).min(segments.count())),
                bits => self.item(self.next + u64::from(next), bits.trailing_zeros()),
            };
            let items = stop.wrapping_sub(first);
            let are_single = count == WORD * words && items == count.into();
            let mut are_leaves = false;
            if !are_single {
                // A bit for each WIDTH positions without a head. Those right after the word count, too: the segment of its last
                // position may be long.
                let (after, _) = warp::warp_shuffle_down(warp::ALL, bits, 1, 32);
                let after = if lane == 31 { of_next } else { after };
                let mut gaps = !(u64::from(after) << 32 | u64::from(bits));
                for shift in 0..WIDTH.trailing_zeros() {
                    gaps &= gaps >> (1 << shift);
                }
                let is_long = lane < words && gaps & ((2 << WORD) - 1) != 0;
                are_leaves = !warp::warp_vote_any(warp::ALL, is_long);
                if words > MOST_SPARSE {
                    let mut left = if lane < words { bits } else { 0 };
                    let mut rank = upto - bits.count_ones();
                    let item = self.item(word, 0);
                    while left != 0 {
                        intrinsics::no_unroll();
                        bounds.write(rank, item + u64::from(left.trailing_zeros()));
                        left &= left - 1;
                        rank += 1;
                    }
                } else {
                    let (mut index, mut item) = (0, first + u64::from(lane));
                    while index < words {
                        intrinsics::no_unroll();
                        let (of_word, _) = warp::warp_shuffle_idx(warp::ALL, bits, index, 32);
                        let (upto, _) = warp::warp_shuffle_idx(warp::ALL, upto, index, 32);
                        let from_lane = of_word >> lane;
                        if from_lane & 1 != 0 {
                            bounds.write(upto - from_lane.count_ones(), item);
                        }
                        index += 1;
                        item += u64::from(WORD);
                    }
                }
                if lane == 0 {
                    bounds.write(count, stop);
                }
            }
            self.next += u64::from(words);
            Taken { count, first, are_single, are_leaves }
        }
    }
}

/// Words of a batch. If it has more, each lane writes the bounds of a word of its own; if it has fewer, and so more heads a word, the
/// warp takes less time to write one word after another.
const MOST_SPARSE: u32 = 20;

/// The segments of the words that a warp [has taken](Words::take).
#[derive(Clone, Copy)]
struct Taken {
    count: u32,
    /// The item at the first position.
    first: u64,
    /// Whether each segment has one item, and the first one is `first`.
    are_single: bool,
    /// Whether each segment has at most a leaf.
    are_leaves: bool,
}

impl Taken {
    const NONE: Self = Self { count: 0, first: 0, are_single: false, are_leaves: false };
}

/// Returns the plan of `len` items; unless `is_long`, they have at most [`few_rows`] rows, or their order does not
/// matter.
#[inline(always)]
pub(super) fn plan_of<const WIDTH: usize>(len: u64, block: u32, is_long: bool) -> Plan {
    // SAFETY: a BLOCK is not 0.
    unsafe { assert_unchecked(block > 0) };
    let plan = Plan::on_a_device(len, WIDTH, block, !is_long);
    // SAFETY: a chunk has at least a row.
    unsafe { assert_unchecked(plan.chunk > 0) };
    plan
}

/// Returns how many bits below bit `lane` are set.
#[inline(always)]
fn before(bits: u32, lane: u32) -> u32 {
    (bits & ((1 << lane) - 1)).count_ones()
}

/// Returns whether each WIDTH items from `at` on are one access.
#[inline(always)]
pub(super) fn is_aligned<P: Input>(at: P, width: usize) -> bool {
    at.head().is_some_and(|head| (head as usize).is_multiple_of(width))
}

/// Folds up to SLOTS leaves into a thread's accumulators, if the order of items matters. From the first one on `left` items are left; each
/// next one begins `stride` items later. Leaves [inside](Arguments::is_inside) the array can be loaded at any address.
///
/// All lanes of a warp load whole leaves, or all load leaves that may lie anywhere. Where each lane decided for itself, a warp executed both: on
/// an H200, sums of segments of 37 `f16` took 183 µs so, and take 143.
///
/// # Safety
///
/// There are `left` items at `at`, or more. All lanes of the warp call it together.
#[inline(always)]
unsafe fn fold_leaves<O: Op<P::Item>, P: Input, const WIDTH: usize, const SLOTS: usize>(
    op: &O,
    values: &mut [[O::Accumulator; WIDTH]; SLOTS],
    at: P,
    [left, stride]: [u32; 2],
    index: u64,
    is_inside: bool,
) {
    let ahead_of = |slot: usize| slot as u32 * stride;
    let slot_at = |slot: usize| at.offset(ahead_of(slot) as usize);
    let left_of = |slot: usize| left.saturating_sub(ahead_of(slot));
    // SAFETY: as the caller promises.
    unsafe {
        let is_whole = left >= ahead_of(SLOTS - 1) + WIDTH as u32 && is_aligned(at, WIDTH);
        if warp::warp_vote_all(warp::ALL, is_whole) {
            let items: [P::Leaf<WIDTH>; SLOTS] = from_fn(|slot| slot_at(slot).load());
            unrolled::<SLOTS>(|slot| {
                O::agent().fold_load(
                    op,
                    &mut values[slot],
                    P::items(items[slot]),
                    index + u64::from(ahead_of(slot)),
                )
            });
        } else {
            let items: [P::Leaf<WIDTH>; SLOTS] = if P::IS_NARROW && is_inside {
                intrinsics::apart(|| {
                    from_fn(
                        |slot| if left_of(slot) > 0 { slot_at(slot).load_anywhere() } else { P::no_leaf() },
                    )
                })
            } else {
                intrinsics::apart(|| from_fn(|slot| load_leaf::<O, P, WIDTH>(slot_at(slot), left_of(slot))))
            };
            unrolled::<SLOTS>(|slot| {
                fold_leaf::<O, P, WIDTH>(
                    op,
                    &mut values[slot],
                    items[slot],
                    slot_at(slot),
                    left_of(slot),
                    index + u64::from(ahead_of(slot)),
                );
            });
        }
    }
}

/// Returns a lane's value of a segment, for an exact operator: the lane is one of 2^`lanes` that have up to LEAVES leaves each. If there are
/// several lanes, leaves begin where they are one access; one lane would have too many items before the first leaf and after the last
/// one, which are folded one by one. On an H200, µs with leaves that begin with the segment, and so: maxima of segments of 301 `f16` 173
/// and 113, sums of segments of 301 `u8` 150 and 102.
///
/// # Safety
///
/// There are `len` items at `at`. Leaves [inside](Arguments::is_inside) the array can be loaded at any address.
#[inline(always)]
unsafe fn fold_leaves_in_any_order<O: Op<P::Item>, P: Input, const WIDTH: usize, const LEAVES: usize>(
    op: &O,
    at: P,
    len: u32,
    [part, lanes]: [u32; 2],
    is_inside: bool,
) -> O::Accumulator {
    let width = WIDTH as u32;
    let (are_aligned, head) = match at.head() {
        Some(head) if lanes > 0 => (true, (head % width).min(len)),
        _ => (false, 0),
    };
    let item_of = |slot: usize| head + (part + ((slot as u32) << lanes)) * width;
    let is_whole = |slot: usize| item_of(slot) + width <= len;
    let mut all = [op.identity(); WIDTH];
    // SAFETY: as the caller promises.
    unsafe {
        let load = |load: fn(P) -> P::Leaf<WIDTH>| -> [P::Leaf<WIDTH>; LEAVES] {
            intrinsics::apart(|| {
                from_fn(|slot| {
                    let leaf = at.offset(item_of(slot) as usize);
                    if is_whole(slot) { load(leaf) } else { P::no_leaf() }
                })
            })
        };
        let leaves = if are_aligned {
            load(|leaf| leaf.load())
        } else if P::IS_NARROW && is_inside {
            load(|leaf| leaf.load_anywhere())
        } else {
            load(|leaf| leaf.load_each())
        };
        unrolled::<LEAVES>(|slot| {
            if is_whole(slot) {
                O::agent().fold_load(op, &mut all, P::items(leaves[slot]), item_of(slot).into());
            }
        });
        // Last, because [`fold_load`](Agent::fold_load) may expect that no item before had a higher index.
        fold_beside(op, &mut all[0], at, len, [head, width], [part, lanes]);
    }
    all[0]
}

/// Returns item `number` of those in no leaf, if `len` items begin with `head` items before the first leaf of `width` items. If there is none,
/// it is not below `len`.
#[inline(always)]
pub(super) fn beside(number: u32, head: u32, [len, width]: [u32; 2]) -> u32 {
    if number < head { number } else { len - (len - head) % width + (number - head) }
}

/// Folds a lane's items of those [beside](beside) leaves, for an exact operator. The lane is number `part` of 2^`lanes` that share these
/// items.
///
/// # Safety
///
/// There are `len` items at `at`.
#[inline(always)]
unsafe fn fold_beside<O: Op<P::Item>, P: Input>(
    op: &O,
    all: &mut O::Accumulator,
    at: P,
    len: u32,
    [head, width]: [u32; 2],
    [part, lanes]: [u32; 2],
) {
    let rest = (len - head) % width;
    let item_of = |number: u32| beside(number, head, [len, width]);
    let mut number = part;
    while number < head + rest {
        intrinsics::no_unroll();
        let mut items: [P::Item; STRIDED] = from_fn(|next| match number + ((next as u32) << lanes) {
            // SAFETY: as the caller promises.
            number if number < head + rest => unsafe { at.offset(item_of(number) as usize).read() },
            _ => P::zeroed(),
        });
        // A loop, for the reason given in `fold_leaf`.
        let end = (head + rest).min(number + ((STRIDED as u32) << lanes));
        while number < end {
            intrinsics::no_unroll();
            O::agent().fold_item(op, all, items[0], item_of(number).into());
            rotate(&mut items);
            number += 1 << lanes;
        }
    }
}

/// Returns a leaf's items, of which `left` are left, loaded one by one. If the operator is exact,
/// [`fold_leaf`] loads them instead.
///
/// # Safety
///
/// There are `left` items at `at`, or more.
#[inline(always)]
pub(super) unsafe fn load_leaf<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    at: P,
    left: u32,
) -> P::Leaf<WIDTH> {
    // SAFETY: as the caller promises.
    if O::EXACT { P::no_leaf() } else { unsafe { at.load_some(left) } }
}

/// Folds a leaf, of which `left` items are left, into a thread's accumulators.
///
/// # Safety
///
/// `leaf` is what [`load_leaf`] has returned for the same leaf.
#[inline(always)]
pub(super) unsafe fn fold_leaf<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    op: &O,
    values: &mut [O::Accumulator; WIDTH],
    leaf: P::Leaf<WIDTH>,
    at: P,
    left: u32,
    index: u64,
) {
    if !O::EXACT {
        let items = P::items(leaf);
        for item in 0..WIDTH {
            if (item as u32) < left {
                O::agent().fold_item(op, &mut values[item], items[item], index + item as u64);
            }
        }
        return;
    }
    // A loop and not a predicate for each item: for a predicated 64-bit product of two items, ptxas 13.0.88
    // zeroes a pair of registers and adds the product 5 cycles later, before the zeros are there.
    let left = left.min(WIDTH as u32);
    let mut item = 0;
    while item < left {
        intrinsics::no_unroll();
        let mut some: [P::Item; 4] = from_fn(|next| {
            if item + (next as u32) < left {
                // SAFETY: as the caller promises.
                unsafe { at.offset(item as usize + next).read() }
            } else {
                P::zeroed()
            }
        });
        let mut next = item;
        if left - item >= 4 {
            for value in some {
                O::agent().fold_item(op, &mut values[0], value, index + u64::from(next));
                next += 1;
            }
        }
        while next < left.min(item + 4) {
            intrinsics::no_unroll();
            O::agent().fold_item(op, &mut values[0], some[0], index + u64::from(next));
            rotate(&mut some);
            next += 1;
        }
        item += 4;
    }
}

/// Items that a lane has at most if [`fold_strided`] folds them.
pub(super) const STRIDED: usize = 4;

/// Folds items that are `stride` items apart, [`STRIDED`] at most, from the item at `at` on, which has this index. There are `left`
/// items from there on. Lanes that begin at neighbouring items load neighbouring items at a time, in whatever order an exact
/// operator allows: a leaf of 16 `u8` that begins anywhere would be 16 loads of one lane, one after another.
///
/// # Safety
///
/// There are `left` items at `at`, or more.
#[inline(always)]
pub(super) unsafe fn fold_strided<O: Op<P::Item>, P: Input>(
    op: &O,
    all: &mut O::Accumulator,
    at: P,
    left: u32,
    stride: u32,
    index: u64,
) {
    let mut items: [P::Item; STRIDED] = from_fn(|number| match number as u32 * stride {
        // SAFETY: as the caller promises.
        ahead if ahead < left => unsafe { at.offset(ahead as usize).read() },
        _ => P::zeroed(),
    });
    // A loop, for the reason given in `fold_leaf`.
    let mut ahead = 0;
    while ahead < left.min(STRIDED as u32 * stride) {
        intrinsics::no_unroll();
        O::agent().fold_item(op, all, items[0], index + u64::from(ahead));
        rotate(&mut items);
        ahead += stride;
    }
}

/// Moves each element down by one, and the first to the end.
#[inline(always)]
pub(super) fn rotate<V: Copy, const N: usize>(values: &mut [V; N]) {
    *values = from_fn(|index| values[(index + 1) % N]);
}
