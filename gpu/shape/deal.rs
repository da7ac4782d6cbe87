//! The kernels that deal items to buckets by their index, before [`index`](super::index) adds them up.
//!
//! ```text
//! count,  block b:  counts the items of part b for each bucket
//! scan,   warp w:   of bucket w, adds up the counts of the blocks before each
//!         the last block to end: adds up the items, and the parts, of the buckets before each
//! move,   block b:  moves each item of part b to the next place that the block has in its bucket
//! ```
//!
//! The items of a bucket have no order. A block sorts 4,096 items by bucket in shared memory first, if there is room,
//! so that it writes neighbours to neighbouring places (2^26 `f32` of 62 buckets on an H100 take 2.1 ms without).

use super::index::{Buckets, EachLoad, Load, Part, THREADS, VECTOR};
use super::runs::prefix_sum;
use crate::Element;
use crate::kernels::{Entry, Named, arguments};
use crate::segments::unrolled;
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
    /// Items of a part of a bucket.
    pub of_part: u64,
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
    /// A bucket begins at a multiple of this number of items. If it is 1, items whose index is too large are kept,
    /// as if they had the last index.
    pub aligned: u32,
}

arguments! {
    [T: Copy] Arguments<T>:
    items indices index_words count len blocks part counts of_part buckets dealt dealt_indices state sorts mask aligned
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

/// Takes places in buckets for items: the next ones of each bucket, by counters in shared memory.
struct Taking<T, const MOVES: bool> {
    next: Shared<u32>,
    part: Part<T>,
    /// The last index.
    last: u32,
    log2: u32,
    mask: u32,
    /// Whether items whose index is too large are taken for those of the last index.
    keeps_wrong: bool,
    dealt: *mut T,
    dealt_indices: *mut u32,
    state: *mut u64,
}

impl<T: Element, const MOVES: bool> Taking<T, MOVES> {
    /// Moves an item to a place.
    ///
    /// # Safety
    ///
    /// There is such a place, and no other item comes there.
    #[inline(always)]
    unsafe fn put(&self, place: u32, index: u32, item: T) {
        // SAFETY: as the caller vouches.
        unsafe {
            self.dealt_indices.wrapping_add(place as usize).write(index & ((1 << self.log2) - 1));
            self.dealt.wrapping_add(place as usize).write(item);
        }
    }
}

impl<T: Element, const MOVES: bool> EachLoad<T> for Taking<T, MOVES> {
    /// The counters have been set, and nobody reads them.
    #[inline(always)]
    unsafe fn add(&mut self, place: u32, Load { indices, items }: Load<T>) {
        let bucket = indices.map(|index| (index >> self.log2) & self.mask);
        let mut is_one = true;
        let is_right = |item: usize| indices[item] <= self.last && place + (item as u32) < self.part.len;
        unrolled::<VECTOR>(|item| is_one &= is_right(item) & (bucket[item] == bucket[0]));
        // SAFETY: all lanes are here; there is a counter for each bucket, and all threads use atomics.
        unsafe {
            let (first, _) = warp::warp_shuffle_idx(warp::ALL, bucket[0], 0, 32);
            if warp::warp_vote_all(warp::ALL, is_one && bucket[0] == first) {
                let mut next = 0;
                if warp::lane_id() == 0 {
                    next = self.next.fetch_add(first, warp::WARP_SIZE * VECTOR as u32);
                }
                (next, _) = warp::warp_shuffle_idx(warp::ALL, next, 0, 32);
                if MOVES {
                    unrolled::<VECTOR>(|item| {
                        self.put(
                            next + item as u32 * warp::WARP_SIZE + warp::lane_id(),
                            indices[item],
                            items[item],
                        );
                    });
                }
                return;
            }
            unrolled::<VECTOR>(|item| {
                if is_right(item) {
                    let next = self.next.fetch_add(bucket[item], 1);
                    if MOVES {
                        self.put(next, indices[item], items[item]);
                    }
                } else if !MOVES && place + (item as u32) < self.part.len {
                    let wrong = !(self.part.start + u64::from(place) + item as u64);
                    AtomicU64::from_ptr(self.state).fetch_max(wrong, Ordering::Relaxed);
                    if self.keeps_wrong {
                        self.next.fetch_add((self.last >> self.log2) & self.mask, 1);
                    }
                }
            });
        }
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
    let last = arguments.last();
    let Arguments { counts, blocks, buckets, dealt, dealt_indices, state, mask, aligned, .. } = arguments;
    // SAFETY: all threads of the block are here, and barriers stand between clearing, adding and reading.
    unsafe {
        let mut bucket = thread::thread_idx_x();
        while bucket < number {
            next.write(bucket, 0);
            bucket += THREADS;
        }
        thread::sync_threads();
        let log2 = buckets.log2 as u32;
        part.each_load(&mut Taking::<u8, false> {
            next,
            part,
            last,
            log2,
            mask,
            keeps_wrong: aligned == 1,
            dealt,
            dealt_indices,
            state,
        });
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
    let Arguments { counts, blocks, of_part, buckets, state, aligned, .. } = arguments;
    let (lane, thread) = (warp::lane_id(), thread::thread_idx_x());
    let of_warps = shared_array![u64; 2 * WARPS as usize];
    let is_last = shared_array![u32; 4];
    let bucket = thread::block_idx_x() * WARPS + thread / warp::WARP_SIZE;
    let word = |bucket: u32, word: usize| buckets.table.wrapping_add(3 * bucket as usize + word);
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
                word(bucket, 2).write(before.into());
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
        let of = |bucket: u32| {
            let len = AtomicU64::from_ptr(word(bucket, 2)).load(Ordering::Relaxed);
            (len.next_multiple_of(aligned.into()), len.div_ceil(of_part))
        };
        let (mut items, mut parts) = (0u64, 0u64);
        for bucket in mine.clone() {
            let (len, of_bucket) = of(bucket);
            (items, parts) = (items + len, parts + of_bucket);
        }
        let (upto_items, upto_parts) = (prefix_sum(items as u32), prefix_sum(parts as u32));
        let warp = thread / warp::WARP_SIZE;
        if lane == warp::WARP_SIZE - 1 {
            of_warps.write(2 * warp, upto_items.into());
            of_warps.write(2 * warp + 1, upto_parts.into());
        }
        thread::sync_threads();
        let (mut start, mut part) = (u64::from(upto_items) - items, u64::from(upto_parts) - parts);
        for before in 0..warp {
            start += of_warps.read(2 * before);
            part += of_warps.read(2 * before + 1);
        }
        for bucket in mine {
            let (len, of_bucket) = of(bucket);
            word(bucket, 0).write(part);
            word(bucket, 1).write(start);
            (start, part) = (start + len, part + of_bucket);
            if bucket + 1 == number {
                word(number, 0).write(part);
            }
        }
        if thread == 0 {
            AtomicU64::from_ptr(state.add(2)).store(0, Ordering::Relaxed);
        }
    }
}

/// Items that a block sorts at a time.
pub const SORTED: u32 = THREADS * VECTOR as u32;

/// Returns the bytes of shared memory of the kernel that moves items of `size` bytes, if it sorts them.
pub const fn sorting_bytes(buckets: u32, size: u32) -> u32 {
    SORTED * (size + 4) + 12 * buckets
}

/// Sorts items by bucket in shared memory, then moves them.
struct Sorting<T> {
    taking: Taking<T, true>,
    /// How many of the items belong to each bucket, and where they begin.
    counts: Shared<u32>,
    starts: Shared<u32>,
    items: Shared<T>,
    indices: Shared<u32>,
    of_warps: Shared<u32>,
    number: u32,
}

impl<T: Element> Sorting<T> {
    /// Moves all items of the part.
    ///
    /// # Safety
    ///
    /// All threads of the block call it; the counters of the next places have been set.
    #[inline(always)]
    unsafe fn run(&self) {
        let part = self.taking.part;
        let (is_aligned, thread) = (part.is_aligned(), thread::thread_idx_x());
        let mut first = 0;
        while first < part.len {
            intrinsics::no_unroll();
            let place = first + thread * VECTOR as u32;
            // SAFETY: barriers stand between accesses by different threads.
            unsafe {
                let mut bucket = thread;
                while bucket < self.number {
                    self.counts.write(bucket, 0);
                    bucket += THREADS;
                }
                thread::sync_threads();
                let load = part.load(place, is_aligned);
                let ranks = self.ranks(load);
                thread::sync_threads();
                self.find_starts();
                thread::sync_threads();
                self.sort(load, ranks);
                thread::sync_threads();
                let end = self.starts.read(self.number - 1) + self.counts.read(self.number - 1);
                let mut sorted = thread;
                while sorted < end {
                    let (index, item) = (self.indices.read(sorted), self.items.read(sorted));
                    let bucket = index >> self.taking.log2;
                    let next = self.taking.next.read(bucket) + sorted - self.starts.read(bucket);
                    self.taking.put(next, index, item);
                    sorted += THREADS;
                }
                thread::sync_threads();
                let mut bucket = thread;
                while bucket < self.number {
                    self.taking.next.write(bucket, self.taking.next.read(bucket) + self.counts.read(bucket));
                    bucket += THREADS;
                }
            }
            first += SORTED;
        }
    }

    /// Counts a load's items; returns how many of each item's bucket came before.
    #[inline(always)]
    unsafe fn ranks(&self, Load { indices, .. }: Load<T>) -> [u32; VECTOR] {
        indices.map(|index| {
            if index > self.taking.last {
                return 0;
            }
            // SAFETY: there is a counter for each bucket, and all threads use atomics.
            unsafe { self.counts.fetch_add(index >> self.taking.log2, 1) }
        })
    }

    /// Puts a load's items where they belong among the sorted ones.
    #[inline(always)]
    unsafe fn sort(&self, Load { indices, items }: Load<T>, ranks: [u32; VECTOR]) {
        unrolled::<VECTOR>(|item| {
            if indices[item] <= self.taking.last {
                // SAFETY: there are as many places as items.
                unsafe {
                    let at = self.starts.read(indices[item] >> self.taking.log2) + ranks[item];
                    self.indices.write(at, indices[item]);
                    self.items.write(at, items[item]);
                }
            }
        });
    }

    /// Adds up the counts of the buckets before each.
    #[inline(always)]
    unsafe fn find_starts(&self) {
        let (thread, lane) = (thread::thread_idx_x(), warp::lane_id());
        let share = self.number.div_ceil(THREADS);
        let mine = (thread * share).min(self.number)..((thread + 1) * share).min(self.number);
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
            let of_lane = self.of_warps.read(lane);
            let of_warps = prefix_sum(of_lane) - of_lane;
            let (before, _) = warp::warp_shuffle_idx(warp::ALL, of_warps, thread / warp::WARP_SIZE, 32);
            let mut start = before + upto - sum;
            for bucket in mine {
                intrinsics::no_unroll();
                self.starts.write(bucket, start);
                start += self.counts.read(bucket);
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
pub unsafe fn move_items<T: Element>(arguments: Arguments<T>) {
    let (part, number) = (arguments.of_block(), arguments.number());
    let last = arguments.last();
    let Arguments { counts, blocks, buckets, dealt, dealt_indices, state, sorts, mask, .. } = arguments;
    let room = if sorts == 0 { 0 } else { SORTED * (size_of::<T>() as u32 + 4) };
    let next = dynamic_shared_from::<u32>(room);
    let of_warps = shared_array![u32; WARPS as usize];
    // SAFETY: all threads of the block are here, and a barrier stands between setting the counters and their use.
    unsafe {
        let mut bucket = thread::thread_idx_x();
        while bucket < number {
            let of_block = bucket as usize * blocks as usize + thread::block_idx_x() as usize;
            let start = buckets.table.wrapping_add(3 * bucket as usize + 1).read() as u32;
            next.write(bucket, start + counts.wrapping_add(of_block).read());
            bucket += THREADS;
        }
        thread::sync_threads();
        let log2 = buckets.log2 as u32;
        let mut taking = Taking::<T, true> {
            next,
            part,
            last,
            log2,
            mask,
            keeps_wrong: false,
            dealt,
            dealt_indices,
            state,
        };
        if sorts == 0 {
            part.each_load(&mut taking);
            return;
        }
        let sorting = Sorting {
            taking,
            counts: next.from(number),
            starts: next.from(2 * number),
            items: dynamic_shared(),
            indices: dynamic_shared_from(SORTED * size_of::<T>() as u32),
            of_warps,
            number,
        };
        sorting.run();
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
                of_part: u64,
                buckets: Buckets,
                dealt: *mut $type,
                dealt_indices: *mut u32,
                state: *mut u64,
                sorts: u32,
                mask: u32,
                aligned: u32,
            ) {
                let arguments = Arguments {
                    items, indices, index_words, count, len, blocks, part, counts, of_part, buckets, dealt,
                    dealt_indices, state, sorts, mask, aligned
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
    "deal_u8_move_1024" u8: move_items::<u8>;
    "deal_u16_move_1024" u16: move_items::<u16>;
    "deal_u32_move_1024" u32: move_items::<u32>;
    "deal_u64_move_1024" u64: move_items::<u64>;
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
