//! The kernels that deal items to buckets by their index, before [`index`](super::index) adds them up or
//! [`words`](super::words) combines them.
//!
//! ```text
//! count,  block b:  counts the items of part b for each bucket
//! scan,   warp w:   of bucket w, adds up the counts of the blocks before each
//!         the last block to end: adds up the items of the buckets before each
//! move,   block b:  moves each item of part b to the next place that the block has in its bucket
//! ```
//!
//! The items of a bucket have no order. A block sorts tiles of 6,144 items (of 8 bytes, 4,096) by bucket in shared memory
//! first, if there is room, so that it writes neighbours to neighbouring places: 2^26 `f32` of 62 buckets on an H100 take
//! 0.57 ms, and 2.1 ms without.
//!
//! Items may be dealt in two steps, to larger buckets first. In the second step a tile has items of few of the larger
//! buckets, and only the buckets in these, its **window**, are counted and scanned.

use super::index::{Buckets, EachLoad, Load, Part, THREADS, VECTOR};
use super::runs::prefix_sum;
use crate::Element;
use crate::kernels::{Entry, Named, arguments};
use crate::segments::unrolled;
use bytemuck::cast;
use core::array::from_fn;
use core::sync::atomic::Ordering;
use cuda_std::atomic::AtomicU64;
use cuda_std::shared::{Shared, dynamic_shared, dynamic_shared_from};
use cuda_std::{intrinsics, shared_array, thread, warp};

/// Warps in a block, each of which scans a bucket.
pub const WARPS: u32 = THREADS / warp::WARP_SIZE;

/// A bucket begins at a multiple of this number of items, so that its items can be loaded together.
pub const ALIGNED: u32 = VECTOR as u32;

/// The arguments of all three kernels; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<T> {
    /// The items, aligned to their type; null if each is 1.
    pub items: *const T,
    /// An index for each item, `index_words` words of 32 bits each.
    pub indices: *const u32,
    /// 1 or 2.
    pub index_words: u32,
    /// The number of indices; each index is less. 0 stands for 2^32.
    pub count: u32,
    /// Items in the input.
    pub len: u64,
    /// Blocks of the kernels that count and that move.
    pub blocks: u32,
    /// Items of a block's part.
    pub part: u32,
    /// For each bucket a word for each block.
    pub counts: *mut u32,
    /// The buckets.
    pub buckets: Buckets,
    /// The items by bucket, and their indices.
    pub dealt: *mut T,
    /// See above.
    pub dealt_indices: *mut u32,
    /// The state of [`index`](super::index).
    pub state: *mut u64,
    /// Whether blocks sort their items in shared memory before they move them: 0 if it has no room.
    pub sorts: u32,
    /// An index's bucket is `(index >> buckets.log2) & mask`.
    pub mask: u32,
    /// A bucket begins at a multiple of this number of items.
    pub aligned: u32,
    /// The bits of an index that are dealt with its item.
    pub kept: u32,
    /// If the items have been dealt before, to larger buckets, the logarithm of the number of these buckets that were
    /// one; else 32.
    pub window: u32,
}

arguments! {
    [T: Copy] Arguments<T>:
    items indices index_words count len blocks part counts buckets dealt dealt_indices state sorts mask aligned kept window
}

/// The kernel that counts, as a type.
pub type Count = Named<Counts, Arguments<u8>>;

/// The kernel that scans, as a type.
pub type Scan = Named<Scans, Arguments<u8>>;

/// The kernel that moves items of type `T`, as a type.
pub type Move<T> = Named<Moves, Arguments<T>>;

/// Names [`Count`].
pub enum Counts {}

/// Names [`Scan`].
pub enum Scans {}

/// Names [`Move`].
pub enum Moves {}

impl<T: Element> Arguments<T> {
    /// The last index.
    #[inline(always)]
    pub fn last(&self) -> u32 {
        self.count.wrapping_sub(1)
    }

    /// The number of buckets.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        (self.last() >> self.buckets.log2).min(self.mask) + 1
    }

    /// The block's part.
    #[inline(always)]
    pub(super) fn of_block(&self) -> Part<T> {
        let start = u64::from(thread::block_idx_x()) * u64::from(self.part);
        let len = self.len.saturating_sub(start).min(self.part.into()) as u32;
        Part::new(self.items, (self.indices, self.index_words), start, len)
    }
}

/// Takes places in buckets for items: the next ones of each bucket, by counters in shared memory. An item whose index
/// is too large belongs to the last index.
struct Taking<T, const MOVES: bool> {
    next: Shared<u32>,
    part: Part<T>,
    /// The last index.
    last: u32,
    log2: u32,
    mask: u32,
    kept: u32,
    dealt: *mut T,
    dealt_indices: *mut u32,
    state: *mut u64,
}

impl<T: Element, const MOVES: bool> Taking<T, MOVES> {
    #[inline(always)]
    fn new(next: Shared<u32>, part: Part<T>, arguments: &Arguments<T>) -> Self {
        let &Arguments { ref buckets, mask, kept, dealt, dealt_indices, state, .. } = arguments;
        let (last, log2) = (arguments.last(), buckets.log2 as u32);
        Self { next, part, last, log2, mask, kept, dealt, dealt_indices, state }
    }

    /// Returns the bucket of an index.
    #[inline(always)]
    fn bucket(&self, index: u32) -> u32 {
        (index.min(self.last) >> self.log2) & self.mask
    }

    /// Whether all items of the warp's loads are there and belong to one bucket. The first one's place is given.
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it.
    #[inline(always)]
    unsafe fn is_one(&self, place: u32, bucket: [u32; VECTOR]) -> bool {
        let mut is_one = place + VECTOR as u32 <= self.part.len;
        unrolled::<VECTOR>(|item| is_one &= bucket[item] == bucket[0]);
        // SAFETY: as the caller vouches.
        unsafe {
            let (first, _) = warp::warp_shuffle_idx(warp::ALL, bucket[0], 0, 32);
            warp::warp_vote_all(warp::ALL, is_one && bucket[0] == first)
        }
    }

    /// Moves an item to a place.
    ///
    /// # Safety
    ///
    /// There is such a place, and no other item comes there.
    #[inline(always)]
    unsafe fn put(&self, place: u32, index: u32, item: T) {
        // SAFETY: as the caller vouches.
        unsafe {
            self.dealt_indices.wrapping_add(place as usize).write(index & self.kept);
            self.dealt.wrapping_add(place as usize).write(item);
        }
    }
}

impl<T: Element, const MOVES: bool> EachLoad<T> for Taking<T, MOVES> {
    /// The counters have been set, and nobody reads them.
    #[inline(always)]
    unsafe fn add(&mut self, place: u32, Load { indices, items }: Load<T>) {
        let bucket = indices.map(|index| self.bucket(index));
        // SAFETY: all lanes are here; there is a counter for each bucket, and all threads use atomics.
        unsafe {
            if !MOVES {
                unrolled::<VECTOR>(|item| {
                    if indices[item] > self.last && place + (item as u32) < self.part.len {
                        let wrong = !(self.part.start + u64::from(place) + item as u64);
                        AtomicU64::from_ptr(self.state).fetch_max(wrong, Ordering::Relaxed);
                    }
                });
            }
            if self.is_one(place, bucket) {
                let next = add_of_warp(self.next, bucket[0], warp::WARP_SIZE * VECTOR as u32);
                if MOVES {
                    unrolled::<VECTOR>(|item| {
                        let place = next + item as u32 * warp::WARP_SIZE + warp::lane_id();
                        self.put(place, indices[item].min(self.last), items[item]);
                    });
                }
                return;
            }
            unrolled::<VECTOR>(|item| {
                if place + (item as u32) < self.part.len {
                    let next = self.next.fetch_add(bucket[item], 1);
                    if MOVES {
                        self.put(next, indices[item].min(self.last), items[item]);
                    }
                }
            });
        }
    }
}

/// Adds to a counter once for a warp; returns what it was.
///
/// # Safety
///
/// All lanes of the warp call it, and all threads use atomics. There is such a counter.
#[inline(always)]
unsafe fn add_of_warp(counters: Shared<u32>, counter: u32, count: u32) -> u32 {
    let mut before = 0;
    // SAFETY: as the caller vouches.
    unsafe {
        if warp::lane_id() == 0 {
            before = counters.fetch_add(counter, count);
        }
        warp::warp_shuffle_idx(warp::ALL, before, 0, 32).0
    }
}

/// Counts the items of each block for each bucket.
///
/// # Safety
///
/// The launch has `arguments.blocks` blocks of [`THREADS`], with a word of shared memory for each bucket. The
/// pointers are valid as [`Arguments`] says, and nothing else accesses what they point to meanwhile, other than to
/// read items and indices.
#[inline(always)]
pub unsafe fn count(arguments: Arguments<u8>) {
    let next = dynamic_shared::<u32>();
    let (part, number) = (Arguments { items: core::ptr::null(), ..arguments }.of_block(), arguments.number());
    let Arguments { counts, blocks, .. } = arguments;
    // SAFETY: all threads of the block are here, and barriers stand between clearing, adding and reading.
    unsafe {
        let mut bucket = thread::thread_idx_x();
        while bucket < number {
            next.write(bucket, 0);
            bucket += THREADS;
        }
        thread::sync_threads();
        part.each_load(&mut Taking::<u8, false>::new(next, part, &arguments));
        thread::sync_threads();
        let mut bucket = thread::thread_idx_x();
        while bucket < number {
            let of_block = bucket as usize * blocks as usize + thread::block_idx_x() as usize;
            counts.wrapping_add(of_block).write(next.read(bucket));
            bucket += THREADS;
        }
    }
}

/// Finds where the items of each block begin in each bucket, and where buckets begin.
///
/// # Safety
///
/// As for [`count`], which has run with the same arguments. The launch has a block of [`THREADS`] for each
/// [`WARPS`] buckets.
#[inline(always)]
pub unsafe fn scan(arguments: Arguments<u8>) {
    let number = arguments.number();
    let Arguments { counts, blocks, buckets, state, aligned, .. } = arguments;
    let (lane, thread) = (warp::lane_id(), thread::thread_idx_x());
    let of_warps = shared_array![u32; WARPS as usize];
    let is_last = shared_array![u32; 4];
    let bucket = thread::block_idx_x() * WARPS + thread / warp::WARP_SIZE;
    // SAFETY: all threads of the block are here, and barriers stand between accesses by different threads. Other
    // blocks read what this one writes after its release.
    unsafe {
        if bucket < number {
            let (mut before, mut first) = (0u32, 0);
            while first < blocks {
                intrinsics::no_unroll();
                let place = counts.wrapping_add(bucket as usize * blocks as usize + (first + lane) as usize);
                let count = if first + lane < blocks { place.read() } else { 0 };
                let upto = prefix_sum(count);
                if first + lane < blocks {
                    place.write(before + upto - count);
                }
                before += warp::warp_shuffle_idx(warp::ALL, upto, 31, 32).0;
                first += warp::WARP_SIZE;
            }
            if lane == 0 {
                buckets.word(bucket, 1).write(before.into());
            }
        }
        thread::sync_threads();
        if thread == 0 {
            let ended = AtomicU64::from_ptr(state.add(2)).fetch_add(1, Ordering::AcqRel);
            is_last.write(0, u32::from(ended + 1 == u64::from(thread::grid_dim_x())));
        }
        thread::sync_threads();
        if is_last.read(0) == 0 {
            return;
        }
        // Each thread adds up its buckets, then the block the threads' sums.
        let share = number.div_ceil(THREADS);
        let mine = thread * share..((thread + 1) * share).min(number);
        let room = |bucket: u32| {
            let len = AtomicU64::from_ptr(buckets.word(bucket, 1)).load(Ordering::Relaxed);
            (len as u32).next_multiple_of(aligned)
        };
        let mut items = 0;
        for bucket in mine.clone() {
            items += room(bucket);
        }
        let upto = prefix_sum(items);
        let warp = thread / warp::WARP_SIZE;
        if lane == warp::WARP_SIZE - 1 {
            of_warps.write(warp, upto);
        }
        thread::sync_threads();
        let mut start = upto - items;
        for before in 0..warp {
            start += of_warps.read(before);
        }
        for bucket in mine {
            buckets.word(bucket, 0).write(start.into());
            start += room(bucket);
        }
        if thread == 0 {
            AtomicU64::from_ptr(state.add(2)).store(0, Ordering::Relaxed);
        }
    }
}

/// Threads in a block of the kernel that moves.
pub const MOVING: u32 = 512;

/// Stands for a bucket and a rank where there is no item.
const NONE: u32 = u32::MAX;

/// Returns the loads that a thread has of a tile, of items of `size` bytes.
const fn loads(size: usize) -> usize {
    if size > 4 { 2 } else { 3 }
}

/// Returns the items of `size` bytes that a block sorts at a time.
const fn tile(size: usize) -> u32 {
    MOVING * (VECTOR * loads(size)) as u32
}

/// Returns the bytes of shared memory of the kernel that moves items of `size` bytes, if it sorts them.
pub const fn sorting_bytes(buckets: u32, size: usize) -> u32 {
    tile(size) * (size as u32 + 4) + 12 * buckets
}

/// Sorts tiles of items by bucket in shared memory, then moves them.
struct Sorting<T, const LOADS: usize> {
    taking: Taking<T, true>,
    /// The number of buckets, and [`Arguments::window`].
    number: u32,
    window: u64,
    /// How many items of the tile belong to each bucket; then where they begin among the sorted ones.
    counts: Shared<u32>,
    /// What is added to an item's place among the sorted ones to get its place in its bucket.
    shifts: Shared<u32>,
    /// The sorted items and their indices; if items have 4 bytes, in turn.
    items: Shared<T>,
    indices: Shared<u32>,
    of_warps: Shared<u32>,
}

impl<T: Element, const LOADS: usize> Sorting<T, LOADS> {
    const TILE: u32 = MOVING * (VECTOR * LOADS) as u32;

    /// Moves all items of the part.
    ///
    /// # Safety
    ///
    /// All threads of the block call it; the counters of the next places have been set.
    #[inline(always)]
    unsafe fn run(&self) {
        let taking = &self.taking;
        let (part, thread) = (taking.part, thread::thread_idx_x());
        let mut first = 0;
        // SAFETY: there are these items.
        let (mut loads, mut ends) = unsafe { self.load(first) };
        while first < part.len {
            intrinsics::no_unroll();
            let len = (part.len - first).min(Self::TILE);
            let [low, high] = ends.map(|index| u64::from(taking.bucket(index)) >> self.window);
            let low = (low << self.window) as u32;
            let high = ((high + 1) << self.window).min(self.number.into()) as u32;
            // SAFETY: barriers stand between accesses by different threads.
            unsafe {
                let mut bucket = low + thread;
                while bucket < high {
                    intrinsics::no_unroll();
                    self.counts.write(bucket, 0);
                    bucket += MOVING;
                }
                thread::sync_threads();
                let mut ranks = [[0; VECTOR]; LOADS];
                unrolled::<LOADS>(|load| {
                    ranks[load] = self.ranks(Self::place(first, load), loads[load].indices)
                });
                thread::sync_threads();
                self.find_starts(low, high);
                thread::sync_threads();
                unrolled::<LOADS>(|load| {
                    let Load { indices, items } = loads[load];
                    let starts =
                        ranks[load].map(|rank| self.counts.read(if rank == NONE { low } else { rank >> 16 }));
                    unrolled::<VECTOR>(|item| {
                        let rank = ranks[load][item];
                        if rank != NONE {
                            let at = starts[item] + (rank & 0xffff);
                            self.set(at, indices[item].min(taking.last), items[item]);
                        }
                    });
                });
                thread::sync_threads();
                first += Self::TILE;
                // The next tile's items are on their way while this one's are moved.
                if first < part.len {
                    (loads, ends) = self.load(first);
                }
                // A loop would wait for them.
                unrolled::<LOADS>(|load| {
                    let at = |item: usize| (load * VECTOR + item) as u32 * MOVING + thread;
                    let sorted: [(u32, T); VECTOR] = from_fn(|item| self.get(at(item).min(len - 1)));
                    let shifts = sorted.map(|(index, _)| self.shifts.read(index >> taking.log2));
                    unrolled::<VECTOR>(|item| {
                        if at(item) < len {
                            let (index, value) = sorted[item];
                            taking.put(shifts[item].wrapping_add(at(item)), index, value);
                        }
                    });
                });
            }
        }
    }

    /// Puts an item and its index among the sorted ones.
    ///
    /// # Safety
    ///
    /// It is a place of the tile, which no other thread accesses.
    #[inline(always)]
    unsafe fn set(&self, at: u32, index: u32, item: T) {
        // SAFETY: as the caller vouches.
        unsafe {
            if size_of::<T>() == 4 {
                dynamic_shared().write(at, [index, cast(item)]);
            } else {
                self.indices.write(at, index);
                self.items.write(at, item);
            }
        }
    }

    /// Returns an item of the sorted ones, and its index.
    ///
    /// # Safety
    ///
    /// The place has been set, with a barrier since.
    #[inline(always)]
    unsafe fn get(&self, at: u32) -> (u32, T) {
        // SAFETY: as the caller vouches.
        unsafe {
            if size_of::<T>() == 4 {
                let [index, item]: [u32; 2] = dynamic_shared().read(at);
                (index, cast(item))
            } else {
                (self.indices.read(at), self.items.read(at))
            }
        }
    }

    /// Returns the place of the first item of a load.
    #[inline(always)]
    fn place(first: u32, load: usize) -> u32 {
        first + (load as u32 * MOVING + thread::thread_idx_x()) * VECTOR as u32
    }

    /// Loads the thread's items of the tile that begins at a place; and the tile's first and last index, between which
    /// the others' buckets are if the items have been dealt before.
    ///
    /// # Safety
    ///
    /// The part has such an item.
    #[inline(always)]
    unsafe fn load(&self, first: u32) -> ([Load<T>; LOADS], [u32; 2]) {
        let part = self.taking.part;
        let is_aligned = part.is_aligned();
        let (mut loads, mut ends) = ([Load::none(); LOADS], [0, self.taking.last]);
        // SAFETY: there are these items, and they are aligned as it says.
        unsafe {
            // Without a condition between the loads: each would wait for those before.
            if is_aligned && part.index_words == 1 && first + Self::TILE <= part.len {
                unrolled::<LOADS>(|load| loads[load] = part.load_aligned(Self::place(first, load)));
            } else {
                unrolled::<LOADS>(|load| loads[load] = part.load(Self::place(first, load), is_aligned));
            }
            if self.window < u32::BITS.into() {
                ends = [first, (first + Self::TILE).min(part.len) - 1].map(|place| part.index(place));
            }
        }
        (loads, ends)
    }

    /// Counts a load's items. Returns the bucket of each, and in the lower half of the word how many came before it; or
    /// [`NONE`].
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it. There is a counter for each bucket, and all threads use atomics.
    #[inline(always)]
    unsafe fn ranks(&self, place: u32, indices: [u32; VECTOR]) -> [u32; VECTOR] {
        let bucket = indices.map(|index| self.taking.bucket(index));
        let mut ranks = [NONE; VECTOR];
        // SAFETY: as the caller vouches.
        unsafe {
            if self.taking.is_one(place, bucket) {
                let first = add_of_warp(self.counts, bucket[0], warp::WARP_SIZE * VECTOR as u32);
                let first = first + warp::lane_id() * VECTOR as u32;
                unrolled::<VECTOR>(|item| ranks[item] = bucket[0] << 16 | (first + item as u32));
            } else {
                let count = |item: usize| bucket[item] << 16 | self.counts.fetch_add(bucket[item], 1);
                if place + VECTOR as u32 <= self.taking.part.len {
                    unrolled::<VECTOR>(|item| ranks[item] = count(item));
                } else {
                    unrolled::<VECTOR>(|item| {
                        if place + (item as u32) < self.taking.part.len {
                            ranks[item] = count(item);
                        }
                    });
                }
            }
        }
        ranks
    }

    /// Adds up the counts of the buckets before each, from `low` up to `high`, and takes places in the buckets.
    ///
    /// # Safety
    ///
    /// All threads of the block call it, with a barrier before and after.
    #[inline(always)]
    unsafe fn find_starts(&self, low: u32, high: u32) {
        let (thread, lane) = (thread::thread_idx_x(), warp::lane_id());
        let share = (high - low).div_ceil(MOVING);
        let mine = (low + thread * share).min(high)..(low + (thread + 1) * share).min(high);
        // SAFETY: all threads of the block are here, with a barrier between.
        unsafe {
            let mut sum = 0;
            for bucket in mine.clone() {
                intrinsics::no_unroll();
                sum += self.counts.read(bucket);
            }
            let upto = prefix_sum(sum);
            if lane == warp::WARP_SIZE - 1 {
                self.of_warps.write(thread / warp::WARP_SIZE, upto);
            }
            thread::sync_threads();
            let of_lane = if lane < MOVING / warp::WARP_SIZE { self.of_warps.read(lane) } else { 0 };
            let of_warps = prefix_sum(of_lane) - of_lane;
            let (before, _) = warp::warp_shuffle_idx(warp::ALL, of_warps, thread / warp::WARP_SIZE, 32);
            let mut start = before + upto - sum;
            for bucket in mine {
                intrinsics::no_unroll();
                let (count, next) = (self.counts.read(bucket), self.taking.next.read(bucket));
                self.counts.write(bucket, start);
                self.shifts.write(bucket, next.wrapping_sub(start));
                self.taking.next.write(bucket, next + count);
                start += count;
            }
        }
    }
}

/// Moves the items of each block to their buckets.
///
/// # Safety
///
/// As for [`count`]; it and [`scan`] have run with the same arguments. There is room for all items, and for
/// [`ALIGNED`] more of each bucket.
#[inline(always)]
pub unsafe fn move_items<T: Element, const LOADS: usize>(arguments: Arguments<T>) {
    const { assert!(LOADS == loads(size_of::<T>())) };
    let (part, number) = (arguments.of_block(), arguments.number());
    let Arguments { counts, blocks, buckets, sorts, window, .. } = arguments;
    let room = if sorts == 0 { 0 } else { tile(size_of::<T>()) * (size_of::<T>() as u32 + 4) };
    let next = dynamic_shared_from::<u32>(room);
    let of_warps = shared_array![u32; (MOVING / warp::WARP_SIZE) as usize];
    // SAFETY: all threads of the block are here, and a barrier stands between setting the counters and their use.
    unsafe {
        let mut bucket = thread::thread_idx_x();
        while bucket < number {
            let of_block = bucket as usize * blocks as usize + thread::block_idx_x() as usize;
            let start = buckets.word(bucket, 0).read() as u32;
            next.write(bucket, start + counts.wrapping_add(of_block).read());
            bucket += MOVING;
        }
        thread::sync_threads();
        let mut taking = Taking::<T, true>::new(next, part, &arguments);
        if sorts == 0 {
            part.each_load_of::<MOVING>(&mut taking);
            return;
        }
        let (counts, shifts) = (next.from(number), next.from(2 * number));
        let indices = dynamic_shared_from(tile(size_of::<T>()) * size_of::<T>() as u32);
        let (items, window) = (dynamic_shared(), window.into());
        Sorting::<T, LOADS> { taking, number, window, counts, shifts, items, indices, of_warps }.run();
    }
}

/// Makes entry points of kernels that take [`Arguments`]; items are moved by their size.
#[cfg(feature = "index")]
macro_rules! entry_points {
    ($($name:literal $type:ident: $call:expr;)*) => {$(
        const _: () = {
            #[cuda_std::kernel(name = $name)]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn entry(
                items: *const $type,
                indices: *const u32,
                index_words: u32,
                count: u32,
                len: u64,
                blocks: u32,
                part: u32,
                counts: *mut u32,
                buckets: Buckets,
                dealt: *mut $type,
                dealt_indices: *mut u32,
                state: *mut u64,
                sorts: u32,
                mask: u32,
                aligned: u32,
                kept: u32,
                window: u32,
            ) {
                let arguments = Arguments {
                    items, indices, index_words, count, len, blocks, part, counts, buckets, dealt,
                    dealt_indices, state, sorts, mask, aligned, kept, window
                };
                // SAFETY: the host launches it as the function asks.
                unsafe { ($call)(arguments) }
            }
        };
    )*};
}

#[cfg(feature = "index")]
pub(super) use entry_points;

#[cfg(feature = "index")]
entry_points! {
    "deal_u8_count_1024" u8: self::count;
    "deal_u8_scan_1024" u8: scan;
    "deal_u8_move_512" u8: move_items::<u8, 3>;
    "deal_u16_move_512" u16: move_items::<u16, 3>;
    "deal_u32_move_512" u32: move_items::<u32, 3>;
    "deal_u64_move_512" u64: move_items::<u64, 2>;
}

/// The entry points.
pub const ENTRIES: &[&[Entry]] = &[&[
    Entry::new::<Count>("deal_u8_count"),
    Entry::new::<Scan>("deal_u8_scan"),
    Entry::new::<Move<u8>>("deal_u8_move"),
    Entry::new::<Move<u16>>("deal_u16_move"),
    Entry::new::<Move<u32>>("deal_u32_move"),
    Entry::new::<Move<u64>>("deal_u64_move"),
]];
