//! The kernels that sort items by their index and keep the order of equal ones: a stable radix sort.
//!
//! ```text
//! for each digit of the indices, the lowest first:
//!     count, scan:  the kernels of [`deal`](super::deal); a digit's value is a bucket
//!     move:         moves the index and the place of each item to its bucket, in order
//! offsets:  finds where each index begins among the sorted ones; tells whether all indices are right
//! gather:   copies items in the order of their places
//! ```
//!
//! Items of 1, 2, 4 or 8 bytes are moved with their indices; of others only places are, and the items are copied once. A
//! block moves 4,096 items at a time: each warp ranks its
//! 256 by votes, so that equal digits keep their order, and the block sorts them in shared memory, so that
//! neighbours are written to neighbouring places.

use super::deal::Arguments;
use super::index::{STATE, TILE};
use super::runs::prefix_sum;
use crate::Element;
use crate::kernels::{Entry, Named, arguments};
use crate::segments::unrolled;
use bytemuck::Pod;
use cuda_std::shared::{Shared, dynamic_shared, dynamic_shared_from};
use cuda_std::{intrinsics, thread, warp};

/// Threads in a block of these kernels.
pub const THREADS: u32 = 512;

/// The most bits of a digit: one thread for each value.
pub const DIGIT: u32 = THREADS.ilog2();

/// Items of a thread in a tile.
const ITEMS: usize = TILE as usize / THREADS as usize;

/// Warps in a block, and items of a warp in a tile.
const WARPS: u32 = THREADS / warp::WARP_SIZE;
const OF_WARP: u32 = TILE as u32 / WARPS;

/// The kernel that moves items of type `T`, as a type. Items of `u32` may be null: then they are their places.
pub type Move<T> = Named<Moves, Arguments<T>>;

/// The kernel that finds where each index begins, as a type.
pub type FindOffsets = Named<FindsOffsets, Offsets>;

/// The kernel that copies items in units of type `T`, as a type.
pub type Gather<T> = Named<Gathers, Copies<T>>;

/// Names [`Move`].
pub enum Moves {}

/// Names [`FindOffsets`].
pub enum FindsOffsets {}

/// Names [`Gather`].
pub enum Gathers {}

/// What a block knows of the digits of the tile that it moves.
#[derive(Clone, Copy)]
struct Tile {
    log2: u32,
    mask: u32,
    /// Bits of a digit.
    bits: u32,
    /// For each warp and each digit's value the items that it has; then those of the warps before.
    counts: Shared<u32>,
    /// Where the items of each digit's value begin in the sorted tile.
    starts: Shared<u32>,
    of_warps: Shared<u32>,
}

impl Tile {
    #[inline(always)]
    fn digit(self, index: u32) -> u32 {
        (index >> self.log2) & self.mask
    }

    /// Counts the warp's items. Returns how many with the same digit come before each in the warp.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it; nobody else accesses its counts.
    #[inline(always)]
    unsafe fn rank(self, indices: [Option<u32>; ITEMS]) -> [u32; ITEMS] {
        let (warp, lane) = (thread::thread_idx_x() / warp::WARP_SIZE, warp::lane_id());
        let (mut same, mut before) = ([0; ITEMS], [0; ITEMS]);
        // SAFETY: all lanes are here, and meet between accesses by different ones.
        unsafe {
            for part in 0..THREADS / warp::WARP_SIZE {
                self.counts.write(warp * THREADS + part * warp::WARP_SIZE + lane, 0);
            }
            warp::sync_warp(warp::ALL);
            // The lanes whose items have the same digit.
            unrolled::<ITEMS>(|item| {
                same[item] = warp::warp_vote_ballot(warp::ALL, indices[item].is_some());
            });
            for bit in 0..self.bits {
                intrinsics::no_unroll();
                unrolled::<ITEMS>(|item| {
                    let is_set = self.digit(indices[item].unwrap_or(0)) >> bit & 1 != 0;
                    let set = warp::warp_vote_ballot(warp::ALL, is_set);
                    same[item] &= if is_set { set } else { !set };
                });
            }
            // The first of them counts all.
            unrolled::<ITEMS>(|item| {
                if let Some(index) = indices[item]
                    && same[item] & ((1 << lane) - 1) == 0
                {
                    let counts = warp * THREADS + self.digit(index);
                    before[item] = self.counts.fetch_add(counts, same[item].count_ones());
                }
                warp::sync_warp(warp::ALL);
            });
            unrolled::<ITEMS>(|item| {
                let first = same[item].trailing_zeros();
                before[item] = warp::warp_shuffle_idx(warp::ALL, before[item], first, 32).0;
            });
        }
        let mut ranks = [0; ITEMS];
        unrolled::<ITEMS>(|item| {
            ranks[item] = before[item] + (same[item] & ((1 << lane) - 1)).count_ones();
        });
        ranks
    }

    /// Adds up the counts of the warps before each, and of the digits before each. Returns the number of items whose
    /// digit has the thread's number as its value.
    ///
    /// # Safety
    ///
    /// All threads of the block call it, after a barrier, and before one.
    #[inline(always)]
    unsafe fn scan(self) -> u32 {
        let (digit, lane) = (thread::thread_idx_x(), warp::lane_id());
        let mut count = 0;
        // SAFETY: all threads of the block are here, with barriers between accesses by different ones.
        unsafe {
            for warp in 0..WARPS {
                let at = warp * THREADS + digit;
                let of_warp = self.counts.read(at);
                self.counts.write(at, count);
                count += of_warp;
            }
            let upto = prefix_sum(count);
            if lane == warp::WARP_SIZE - 1 {
                self.of_warps.write(digit / warp::WARP_SIZE, upto);
            }
            thread::sync_threads();
            let of_lane = if lane < WARPS { self.of_warps.read(lane) } else { 0 };
            let of_warps = prefix_sum(of_lane) - of_lane;
            let (before, _) = warp::warp_shuffle_idx(warp::ALL, of_warps, digit / warp::WARP_SIZE, 32);
            self.starts.write(digit, before + upto - count);
        }
        count
    }
}

/// Returns the bytes of shared memory for the counts or a sorted tile of items of `size` bytes.
const fn sorted_bytes(size: u32) -> u32 {
    let (sorted, counts) = ((4 + size) * TILE as u32, 4 * WARPS * THREADS);
    if sorted > counts { sorted } else { counts }
}

/// Returns the bytes of dynamic shared memory of the kernel that moves items of `size` bytes.
pub const fn moving_bytes(size: u32) -> u32 {
    sorted_bytes(size) + 4 * (2 * THREADS + WARPS)
}

/// Moves the items of each block's part to their buckets.
///
/// # Safety
///
/// As for [`deal::count`](super::deal::count) and [`scan`](super::deal::scan), which have run with the same
/// arguments; the launch has blocks of [`THREADS`], with [`moving_bytes`] of shared memory.
#[inline(always)]
pub unsafe fn move_in_order<T: Element>(arguments: Arguments<T>) {
    let (part, number, last) = (arguments.of_block(), arguments.number(), arguments.last());
    let Arguments { items, counts, blocks, buckets, dealt, dealt_indices, mask, .. } = arguments;
    // The sorted tile lies where the counts were.
    let (sorted, sorted_items) = (dynamic_shared::<u32>(), dynamic_shared_from::<T>(4 * TILE as u32));
    let next = dynamic_shared_from::<u32>(sorted_bytes(size_of::<T>() as u32));
    let (starts, of_warps) = (next.from(THREADS), next.from(2 * THREADS));
    let bits = 32 - mask.leading_zeros();
    let tile = Tile { log2: buckets.log2 as u32, mask, bits, counts: sorted, starts, of_warps };
    let (mine, warp) = (thread::thread_idx_x(), thread::thread_idx_x() / warp::WARP_SIZE);
    // SAFETY: all threads of the block are here, and barriers stand between accesses by different ones; there is a
    // place for each item.
    unsafe {
        let mut place_of_mine = 0;
        if mine < number {
            let start = buckets.word(mine, 0).read() as u32;
            let of_block = mine as usize * blocks as usize + thread::block_idx_x() as usize;
            place_of_mine = start + counts.wrapping_add(of_block).read();
        }
        let mut first = 0;
        while first < part.len {
            intrinsics::no_unroll();
            let place =
                |item: usize| first + warp * OF_WARP + item as u32 * warp::WARP_SIZE + warp::lane_id();
            let (mut indices, mut of_tile) = ([None; ITEMS], [T::zeroed(); ITEMS]);
            unrolled::<ITEMS>(|item| {
                let place = place(item);
                if place < part.len {
                    indices[item] = Some(part.index(place).min(last));
                    let at = part.start as usize + place as usize;
                    of_tile[item] = if size_of::<T>() == 4 && items.is_null() {
                        core::mem::transmute_copy(&(at as u32))
                    } else {
                        items.wrapping_add(at).read()
                    };
                }
            });
            thread::sync_threads();
            let ranks = tile.rank(indices);
            thread::sync_threads();
            let of_mine = tile.scan();
            next.write(mine, place_of_mine.wrapping_sub(starts.read(mine)));
            place_of_mine += of_mine;
            thread::sync_threads();
            let mut to = [0; ITEMS];
            unrolled::<ITEMS>(|item| {
                let digit = tile.digit(indices[item].unwrap_or(0));
                to[item] = starts.read(digit) + tile.counts.read(warp * THREADS + digit) + ranks[item];
            });
            thread::sync_threads();
            unrolled::<ITEMS>(|item| {
                if let Some(index) = indices[item] {
                    sorted.write(to[item], index);
                    sorted_items.write(to[item], of_tile[item]);
                }
            });
            thread::sync_threads();
            let len = (part.len - first).min(TILE as u32);
            unrolled::<ITEMS>(|item| {
                let at = item as u32 * THREADS + mine;
                if at < len {
                    let (index, item) = (sorted.read(at), sorted_items.read(at));
                    let to = next.read(tile.digit(index)).wrapping_add(at) as usize;
                    dealt_indices.wrapping_add(to).write(index);
                    dealt.wrapping_add(to).write(item);
                }
            });
            first += TILE as u32;
        }
    }
}

/// The arguments of the kernel that finds offsets; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    /// Sorted indices.
    pub indices: *const u32,
    /// Their number.
    pub len: u32,
    /// The number of indices; each index is less.
    pub count: u32,
    /// Indices that a block looks for.
    pub share: u32,
    /// The state of [`index`](super::index), and a word more: that takes the number of indices, or 0 if the state has the
    /// place of a wrong index.
    pub state: *mut u64,
    /// A place for each index, and one more.
    pub offsets: *mut u32,
}

arguments! { [] Offsets: indices len count share state offsets }

impl Offsets {
    /// Returns where an index begins, which is in a range.
    ///
    /// # Safety
    ///
    /// There are so many indices.
    #[inline(always)]
    unsafe fn find(&self, index: u32, mut low: u32, mut high: u32) -> u32 {
        while low < high {
            intrinsics::no_unroll();
            let middle = low + (high - low) / 2;
            // SAFETY: as the caller vouches.
            if unsafe { self.indices.add(middle as usize).read() } < index {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Finds where each index begins among the sorted ones, and where the last ends.
///
/// # Safety
///
/// The launch has blocks of [`THREADS`], enough of them for `arguments.count` and one more. The pointers are valid as
/// [`Offsets`] says.
#[inline(always)]
pub unsafe fn find_offsets(arguments: Offsets) {
    let Offsets { len, count, share, state, offsets, .. } = arguments;
    let first = thread::block_idx_x() * share;
    let last = first + (share - 1).min(count - first);
    // SAFETY: as the caller vouches.
    unsafe {
        if first + thread::thread_idx_x() == 0 {
            state.add(STATE).write(if state.read() == 0 { count.into() } else { 0 });
        }
        let (mut low, mut high) = (0, len);
        if share > THREADS {
            low = arguments.find(first, low, high);
            high = arguments.find(last, low, high);
        }
        let mut index = first + thread::thread_idx_x();
        while index <= last {
            intrinsics::no_unroll();
            offsets.add(index as usize).write(arguments.find(index, low, high));
            index += THREADS;
        }
    }
}

/// The arguments of the kernel that copies items; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Copies<T> {
    /// The items.
    pub items: *const T,
    /// Units of an item that are copied, and from one item to the next.
    pub units: u32,
    /// See above.
    pub stride: u32,
    /// The place of each item; null if they are in order.
    pub places: *const u32,
    /// Units of all copies.
    pub len: u64,
    /// A place for each unit.
    pub copies: *mut T,
}

arguments! { [T: Copy] Copies<T>: items units stride places len copies }

/// Copies items, or parts of them.
///
/// # Safety
///
/// The launch has blocks of [`THREADS`]. The pointers are valid as [`Copies`] says.
#[inline(always)]
pub unsafe fn gather<T: Pod>(arguments: Copies<T>) {
    const BATCH: usize = 4;
    let Copies { items, units, stride, places, len, copies } = arguments;
    let mut first = u64::from(thread::block_idx_x()) * u64::from(THREADS) * BATCH as u64;
    while first < len {
        intrinsics::no_unroll();
        let mut batch = [T::zeroed(); BATCH];
        let at = |copy: usize| first + copy as u64 * u64::from(THREADS) + u64::from(thread::thread_idx_x());
        unrolled::<BATCH>(|copy| {
            if at(copy) < len {
                let (item, unit) = if units == 1 {
                    (at(copy), 0)
                } else {
                    (at(copy) / u64::from(units), at(copy) % u64::from(units))
                };
                // SAFETY: as the caller vouches.
                unsafe {
                    let place = if places.is_null() { item } else { places.add(item as usize).read().into() };
                    batch[copy] = items.add((place * u64::from(stride) + unit) as usize).read();
                }
            }
        });
        unrolled::<BATCH>(|copy| {
            if at(copy) < len {
                // SAFETY: as the caller vouches.
                unsafe { copies.add(at(copy) as usize).write(batch[copy]) };
            }
        });
        first += u64::from(thread::grid_dim_x()) * u64::from(THREADS) * BATCH as u64;
    }
}

/// The entry points.
#[cfg(feature = "index")]
mod entry_points {
    use super::*;
    use crate::shape::deal;
    use crate::shape::index::Buckets;

    deal::entry_points! {
        "order_u8_move_512" u8: move_in_order::<u8>;
        "order_u16_move_512" u16: move_in_order::<u16>;
        "order_u32_move_512" u32: move_in_order::<u32>;
        "order_u64_move_512" u64: move_in_order::<u64>;
    }

    #[cuda_std::kernel(name = "order_u8_offsets_512")]
    pub unsafe fn offsets_512(
        indices: *const u32,
        len: u32,
        count: u32,
        share: u32,
        state: *mut u64,
        offsets: *mut u32,
    ) {
        // SAFETY: the host launches it as the function asks.
        unsafe { find_offsets(Offsets { indices, len, count, share, state, offsets }) }
    }

    macro_rules! gather_entries {
        ($($name:literal $type:ident;)*) => {$(
            const _: () = {
                #[cuda_std::kernel(name = $name)]
                pub unsafe fn entry(
                    items: *const $type,
                    units: u32,
                    stride: u32,
                    places: *const u32,
                    len: u64,
                    copies: *mut $type,
                ) {
                    // SAFETY: the host launches it as the function asks.
                    unsafe { gather(Copies { items, units, stride, places, len, copies }) }
                }
            };
        )*};
    }

    gather_entries! {
        "order_u8_gather_512" u8;
        "order_u16_gather_512" u16;
        "order_u32_gather_512" u32;
        "order_u64_gather_512" u64;
    }
}

/// The entry points' names.
pub const ENTRIES: &[&[Entry]] = &[&[
    Entry::new::<Move<u8>>("order_u8_move"),
    Entry::new::<Move<u16>>("order_u16_move"),
    Entry::new::<Move<u32>>("order_u32_move"),
    Entry::new::<Move<u64>>("order_u64_move"),
    Entry::new::<FindOffsets>("order_u8_offsets"),
    Entry::new::<Gather<u8>>("order_u8_gather"),
    Entry::new::<Gather<u16>>("order_u16_gather"),
    Entry::new::<Gather<u32>>("order_u32_gather"),
    Entry::new::<Gather<u64>>("order_u64_gather"),
]];
