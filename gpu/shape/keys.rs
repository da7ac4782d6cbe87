//! The kernels that number the keys of items: equal keys get one number, for reductions by index.
//!
//! ```text
//! encode:   writes the bits of keys, which order as the keys do, where keys are floats, small, or of several columns
//! collect:  inserts all keys into a table of hashes; a slot has the place of the first item with its key
//! list:     lists the slots' places
//! rank:     sorts a few of them by key, or by place (launches of [`order`](crate::order) sort many)
//! build:    inserts the sorted keys into a smaller table; a slot has the number of its key
//! look up:  finds the number of each item's key, or says that one is missing
//! ```
//!
//! If most keys differ, tables of them are far larger than caches. Then the keys of all items are sorted with their
//! places:
//!
//! ```text
//! tell:     counts the sorted keys that differ from the one before
//! assign:   counts again, in order: the number of each key, which goes to its item's place
//! ```
//!
//! From some number of items on, the host first collects only the keys of the first items. If the last kernel then
//! finds an item without a number, the host collects the keys of all items.
//!
//! A slot is a word of 64 bits: the upper half is a **tag**, the key or a hash of it; the lower half a place or a
//! number. Keys of more than 32 bits are compared where they lie. No order of the threads shows in the result: a
//! slot keeps the least place, and slots are only read in the order of their keys.

use crate::Element;
use crate::element::Key;
use crate::kernels::{Entry, Named, arguments};
use crate::segments::unrolled;
use bytemuck::Pod;
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU64, BlockAtomicU64};
use cuda_std::shared::{Shared, dynamic_shared};
use cuda_std::{intrinsics, shared_array, thread, warp};

/// Threads in a block of these kernels.
pub const THREADS: u32 = 1024;

/// A slot without a key.
pub const EMPTY: u64 = u64::MAX;

/// Words of 64 bits of the state, all 0 before the first kernel: keys in the table; whether they are too many; keys
/// that are listed; how many of these come in the second half of the items first.
pub const STATE: usize = 4;

/// Keys that a thread has in flight.
const BATCH: usize = 4;

/// Keys that a block looks at together.
pub const TILE: u64 = THREADS as u64 * BATCH as u64;

/// Keys that the threads of a multiprocessor have in flight at most.
pub const IN_FLIGHT: usize = 2048 * BATCH;

/// Slots of a block's own table in shared memory, of the kernel that collects: keys that it has seen. (2^26 `u32` of
/// 10,000 keys on an H100 take 605 µs with 4,096 slots.)
pub const MOST_SEEN: u32 = 8192;

/// Slots that a warp lists together.
pub const LISTED: u32 = 256;

/// The kernel that encodes keys of type `K`, as a type.
pub type Encode<K> = Named<Encodes, Encoding<K>>;

/// The kernel that collects keys of bits `B`, as a type.
pub type Collect<B> = Named<Collects, Arguments<B>>;

/// The kernel that lists slots, as a type.
pub type List = Named<Lists, Arguments<u8>>;

/// The kernel that tells sorted keys apart, as a type.
pub type Tell<B> = Named<Tells, Sorted<B>>;

/// The kernel that numbers sorted keys, as a type.
pub type Assign<B> = Named<Assigns, Sorted<B>>;

/// The kernel that ranks, as a type.
pub type Rank = Named<Ranks, Ranking>;

/// The kernel that builds the table of numbers, as a type.
pub type Build<B> = Named<Builds, Arguments<B>>;

/// The kernel that looks keys up, as a type.
pub type LookUp<B> = Named<LooksUp, Arguments<B>>;

/// Names [`Encode`].
pub enum Encodes {}

/// Names [`Collect`].
pub enum Collects {}

/// Names [`List`].
pub enum Lists {}

/// Names [`Tell`].
pub enum Tells {}

/// Names [`Assign`].
pub enum Assigns {}

/// Names [`Rank`].
pub enum Ranks {}

/// Names [`Build`].
pub enum Builds {}

/// Names [`LookUp`].
pub enum LooksUp {}

/// Bits of a key.
pub trait Bits: Pod + PartialEq {
    /// Whether the tag is the key.
    const IS_TAG: bool;

    /// The tag, and a hash of the key.
    fn tag(self) -> (u32, u32);
}

impl Bits for u32 {
    const IS_TAG: bool = true;

    /// The hash is the finalizer of MurmurHash3 (A. Appleby, public domain).
    #[inline(always)]
    fn tag(self) -> (u32, u32) {
        let mut hash = self;
        hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
        (self, hash ^ hash >> 16)
    }
}

/// The finalizer of MurmurHash3.
#[inline(always)]
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

impl Bits for u64 {
    const IS_TAG: bool = false;

    #[inline(always)]
    fn tag(self) -> (u32, u32) {
        let hash = mixed(self);
        ((hash >> 32) as u32, hash as u32)
    }
}

impl Bits for u128 {
    const IS_TAG: bool = false;

    #[inline(always)]
    fn tag(self) -> (u32, u32) {
        (mixed((self >> 64) as u64 ^ 0x9e37_79b9_7f4a_7c15) ^ self as u64).tag()
    }
}

/// Returns the bits of a key, of which the lowest `8 * size_of::<K>()` count. They order as keys do: both zeros are
/// equal, and NaN, all of them equal, come last.
#[inline(always)]
pub fn bits<K: Element>(key: K) -> u64 {
    use num_traits::Bounded;
    let key = if key == K::zero() { K::zero() } else { key };
    let key = key.key(K::Key::max_value()).wide();
    key.wrapping_sub(K::Key::min_value().wide()) as u64
}

/// Returns the key with these bits: of zeros the positive one, of NaN the canonical one.
#[cfg(not(target_arch = "nvptx64"))]
pub fn key_of_bits<K: Element>(bits: u64) -> K {
    use num_traits::Bounded;
    K::from_key(K::Key::of_wide((bits as i64).wrapping_add(K::Key::min_value().wide())))
}

/// The arguments of the kernel that encodes; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Encoding<K> {
    /// The keys.
    pub keys: *const K,
    /// The place of the key of each item; null if they are in order.
    pub places: *const u32,
    /// Items.
    pub len: u64,
    /// Takes the lowest byte of the first item's key.
    pub bits: *mut u8,
    /// Bytes from one item to the next.
    pub stride: u32,
}

arguments! { [K: Copy] Encoding<K>: keys places len bits stride }

/// Writes the bits of keys.
///
/// # Safety
///
/// The launch has blocks of [`THREADS`]. The pointers are valid as [`Encoding`] says.
#[inline(always)]
pub unsafe fn encode<K: Element>(arguments: Encoding<K>) {
    let Encoding { keys, places, len, bits: to, stride } = arguments;
    let mut item = u64::from(thread::block_idx_x()) * u64::from(THREADS) + u64::from(thread::thread_idx_x());
    let is_aligned = (to.addr() | stride as usize).is_multiple_of(size_of::<K>());
    while item < len {
        intrinsics::no_unroll();
        // SAFETY: as the caller vouches.
        unsafe {
            let place = if places.is_null() { item } else { places.add(item as usize).read().into() };
            let bits = bits(keys.add(place as usize).read());
            let to = to.add(item as usize * stride as usize);
            match size_of::<K>() {
                2 if is_aligned => to.cast::<u16>().write(bits as u16),
                4 if is_aligned => to.cast::<u32>().write(bits as u32),
                8 if is_aligned => to.cast::<u64>().write(bits),
                size => {
                    for byte in 0..size {
                        to.add(byte).write((bits >> (8 * byte)) as u8);
                    }
                }
            }
        }
        item += u64::from(thread::grid_dim_x()) * u64::from(THREADS);
    }
}

/// The arguments of the other kernels; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<B> {
    /// The items' keys, aligned to words of 32 bits, or to their size if it is smaller.
    pub keys: *const B,
    /// Items.
    pub len: u64,
    /// Items of a block's part.
    pub part: u64,
    /// The table of hashes.
    pub table: *mut u64,
    /// The number of its slots, a power of two, less 1.
    pub mask: u32,
    /// The most keys of the table.
    pub most: u32,
    /// Places of items with different keys, which are in the order of their numbers for the last two kernels.
    pub places: *mut u32,
    /// How many there are. Of the kernel that collects: slots of a block's own table, a power of two.
    pub count: u32,
    /// Keys by their numbers, unless tags are keys. The kernel that builds the table writes them.
    pub numbered: *mut B,
    /// Takes the number of each item's key.
    pub numbers: *mut u32,
    /// [`STATE`] words.
    pub state: *mut u64,
}

arguments! { [B: Copy] Arguments<B>: keys len part table mask most places count numbered numbers state }

impl<B: Bits> Arguments<B> {
    /// Returns the key at a place. All words of a key are read at once.
    ///
    /// # Safety
    ///
    /// There is such an item.
    #[inline(always)]
    unsafe fn key(&self, place: u32) -> B {
        // SAFETY: as the caller vouches.
        unsafe { self.keys.add(place as usize).read() }
    }

    /// Calls `each` with the items of the block's part: a batch of places and keys, none past the end.
    #[inline(always)]
    fn each_batch(&self, mut each: impl FnMut([Option<(u32, B)>; BATCH]) -> bool) {
        let start = u64::from(thread::block_idx_x()) * self.part;
        let end = (start + self.part).min(self.len);
        let mut first = start;
        while first < end {
            intrinsics::no_unroll();
            let mut batch = [None; BATCH];
            unrolled::<BATCH>(|item| {
                let place = first + item as u64 * u64::from(THREADS) + u64::from(thread::thread_idx_x());
                if place < end {
                    // SAFETY: there is such an item.
                    batch[item] = Some((place as u32, unsafe { self.key(place as u32) }));
                }
            });
            if !each(batch) {
                return;
            }
            first += TILE;
        }
    }

    /// Inserts a key, or lowers its place. Returns whether it is new.
    ///
    /// # Safety
    ///
    /// The table has room, and all threads use atomics.
    #[inline(always)]
    unsafe fn insert(&self, key: B, place: u32) -> bool {
        let (tag, mut slot) = key.tag();
        let new = u64::from(tag) << 32 | u64::from(place);
        loop {
            intrinsics::no_unroll();
            slot &= self.mask;
            // SAFETY: as the caller vouches; slots have places of items.
            unsafe {
                let word = AtomicU64::from_ptr(self.table.add(slot as usize));
                let mut seen = word.load(Ordering::Relaxed);
                if seen == EMPTY {
                    seen = word.compare_and_swap(EMPTY, new, Ordering::Relaxed);
                    if seen == EMPTY {
                        return true;
                    }
                }
                if (seen >> 32) as u32 == tag && (B::IS_TAG || self.key(seen as u32) == key) {
                    if new < seen {
                        word.fetch_min(new, Ordering::Relaxed);
                    }
                    return false;
                }
            }
            slot = slot.wrapping_add(1);
        }
    }
}

/// Inserts the keys of each block's part into the table.
///
/// # Safety
///
/// The launch has a block of [`THREADS`] for each part, with `arguments.count` slots of shared memory. The pointers are valid as
/// [`Arguments`] says, and nothing else accesses the table or the state meanwhile, or writes keys. The table is empty,
/// and has room for twice `arguments.most` keys, and for those that the threads of all resident blocks have in flight.
#[inline(always)]
pub unsafe fn collect<B: Bits>(arguments: Arguments<B>) {
    let Arguments { most, state, count: slots, .. } = arguments;
    let unused_bits = slots.leading_zeros() + 1;
    let seen: Shared<u64> = dynamic_shared();
    // SAFETY: a barrier stands between clearing and use; all threads use atomics from there on.
    unsafe {
        let mut slot = thread::thread_idx_x();
        while slot < slots {
            seen.write(slot, EMPTY);
            slot += THREADS;
        }
        thread::sync_threads();
        arguments.each_batch(|batch| {
            let mut new = 0u32;
            unrolled::<BATCH>(|item| {
                let Some((place, key)) = batch[item] else { return };
                let (tag, hash) = key.tag();
                // The table's lowest bits are others.
                let own = BlockAtomicU64::from_ptr(seen.from(hash >> unused_bits).as_mut_ptr());
                let word = own.load(Ordering::Relaxed);
                let is_seen = word != EMPTY
                    && (word >> 32) as u32 == tag
                    && (B::IS_TAG || arguments.key(word as u32) == key);
                if is_seen && word as u32 <= place {
                    return;
                }
                new += u32::from(arguments.insert(key, place));
                own.swap(u64::from(tag) << 32 | u64::from(place), Ordering::Relaxed);
            });
            new = warp_sum(new);
            let number = AtomicU64::from_ptr(state);
            let mut is_full = false;
            if new > 0 && warp::lane_id() == 0 {
                is_full = number.fetch_add(new.into(), Ordering::Relaxed) + u64::from(new) > most.into();
                if is_full {
                    AtomicU64::from_ptr(state.add(1)).store(1, Ordering::Relaxed);
                }
            }
            !warp::warp_vote_any(warp::ALL, is_full)
        });
    }
}

/// Lists the places of all slots, in any order.
///
/// # Safety
///
/// As for [`collect`], which has run; there is room for the place of each key. The number of slots is a multiple of
/// [`LISTED`].
#[inline(always)]
pub unsafe fn list(arguments: Arguments<u8>) {
    let Arguments { len, table, mask, places, state, .. } = arguments;
    let half = (len / 2) as u32;
    let mut first = thread::index_1d() / warp::WARP_SIZE * LISTED;
    // SAFETY: as the caller vouches; all lanes of a warp are here.
    unsafe {
        while first <= mask {
            intrinsics::no_unroll();
            let mut words = [EMPTY; (LISTED / warp::WARP_SIZE) as usize];
            let (mut taken, mut late) = (0, 0);
            unrolled::<{ (LISTED / warp::WARP_SIZE) as usize }>(|item| {
                let slot = first + item as u32 * warp::WARP_SIZE + warp::lane_id();
                words[item] = table.add(slot as usize).read();
            });
            let mut of_lane = [0; (LISTED / warp::WARP_SIZE) as usize];
            unrolled::<{ (LISTED / warp::WARP_SIZE) as usize }>(|item| {
                let is_taken = words[item] != EMPTY;
                let lanes = warp::warp_vote_ballot(warp::ALL, is_taken);
                of_lane[item] = taken + (lanes & ((1 << warp::lane_id()) - 1)).count_ones();
                taken += lanes.count_ones();
                let is_late = is_taken && words[item] as u32 >= half;
                late += warp::warp_vote_ballot(warp::ALL, is_late).count_ones();
            });
            let mut before = 0;
            if warp::lane_id() == 0 && taken != 0 {
                let [listed, lately] = [2, 3].map(|word| AtomicU64::from_ptr(state.add(word)));
                before = listed.fetch_add(taken.into(), Ordering::Relaxed) as u32;
                if late != 0 {
                    lately.fetch_add(late.into(), Ordering::Relaxed);
                }
            }
            before = warp::warp_shuffle_idx(warp::ALL, before, 0, 32).0;
            unrolled::<{ (LISTED / warp::WARP_SIZE) as usize }>(|item| {
                if words[item] != EMPTY {
                    places.add((before + of_lane[item]) as usize).write(words[item] as u32);
                }
            });
            first += thread::grid_dim_x() * (THREADS / warp::WARP_SIZE) * LISTED;
        }
    }
}

/// The arguments of the kernels of sorted keys; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Sorted<B> {
    /// The keys of all items, sorted.
    pub keys: *const B,
    /// The place of each key's item.
    pub places: *const u32,
    /// Items.
    pub len: u64,
    /// Items of a block's part.
    pub part: u64,
    /// A count for each block, 0 before the first kernel.
    pub counts: *mut u64,
    /// Takes the number of keys; 0 before the first kernel.
    pub count: *mut u64,
    /// Takes the number of each item's key.
    pub numbers: *mut u32,
    /// Takes the place of the first item with each key.
    pub firsts: *mut u32,
}

arguments! { [B: Copy] Sorted<B>: keys places len part counts count numbers firsts }

impl<B: Bits> Sorted<B> {
    /// The block's part.
    #[inline(always)]
    fn part(&self) -> (u64, u64) {
        let start = u64::from(thread::block_idx_x()) * self.part;
        (start, (start + self.part).min(self.len))
    }

    /// Whether a key differs from the one before, or is the first.
    ///
    /// # Safety
    ///
    /// There is such a key.
    #[inline(always)]
    unsafe fn is_new(&self, at: u64) -> bool {
        // SAFETY: as the caller vouches.
        unsafe {
            let key = self.keys.add(at as usize);
            at == 0 || key.read() != key.sub(1).read()
        }
    }
}

/// The sum of a number over the lanes of a warp.
///
/// # Safety
///
/// All lanes call it.
#[inline(always)]
unsafe fn warp_sum(mut number: u32) -> u32 {
    let mut lanes = warp::WARP_SIZE / 2;
    while lanes > 0 {
        // SAFETY: as the caller vouches.
        number += unsafe { warp::warp_shuffle_xor(warp::ALL, number, lanes, 32).0 };
        lanes /= 2;
    }
    number
}

/// Counts the keys of each block's part that differ from the one before.
///
/// # Safety
///
/// The launch has a block of [`THREADS`] for each part. The pointers are valid as [`Sorted`] says, and nothing else
/// accesses the counts meanwhile.
#[inline(always)]
pub unsafe fn tell<B: Bits>(sorted: Sorted<B>) {
    let (start, end) = sorted.part();
    let mut new = 0;
    let mut at = start + u64::from(thread::thread_idx_x());
    // SAFETY: as the caller vouches; all lanes are there at last.
    unsafe {
        while at < end {
            intrinsics::no_unroll();
            new += u32::from(sorted.is_new(at));
            at += u64::from(THREADS);
        }
        new = warp_sum(new);
        if warp::lane_id() == 0 && new > 0 {
            for count in [sorted.counts.add(thread::block_idx_x() as usize), sorted.count] {
                AtomicU64::from_ptr(count).fetch_add(new.into(), Ordering::Relaxed);
            }
        }
    }
}

/// Numbers the keys of each block's part.
///
/// # Safety
///
/// As for [`tell`], which has run; there is room for the first place of each key.
#[inline(always)]
pub unsafe fn assign<B: Bits>(sorted: Sorted<B>) {
    const WARPS: u32 = THREADS / warp::WARP_SIZE;
    const { assert!(WARPS == warp::WARP_SIZE) };
    let of_warps = shared_array![u32; WARPS as usize];
    let (thread, lane) = (thread::thread_idx_x(), warp::lane_id());
    let (start, end) = sorted.part();
    // SAFETY: as the caller vouches; all threads of the block are at each barrier, and at each vote all lanes.
    unsafe {
        // Keys in the parts of the blocks before.
        let mut before = 0;
        let mut block = thread;
        while block < thread::block_idx_x() {
            before += sorted.counts.add(block as usize).read() as u32;
            block += THREADS;
        }
        before = warp_sum(before);
        if lane == 0 {
            of_warps.write(thread / warp::WARP_SIZE, before);
        }
        thread::sync_threads();
        before = warp_sum(of_warps.read(lane));
        thread::sync_threads();
        let mut first = start;
        while first < end {
            intrinsics::no_unroll();
            let at = first + u64::from(thread);
            let is_new = at < end && sorted.is_new(at);
            let lanes = warp::warp_vote_ballot(warp::ALL, is_new);
            if lane == 0 {
                of_warps.write(thread / warp::WARP_SIZE, lanes.count_ones());
            }
            thread::sync_threads();
            let of_warp = of_warps.read(lane);
            let all = warp_sum(of_warp);
            let of_former = if lane < thread / warp::WARP_SIZE { of_warp } else { 0 };
            let of_lanes = (lanes & (u32::MAX >> (warp::WARP_SIZE - 1 - lane))).count_ones();
            // The number of this key is one less than how many there are so far.
            let number = before + warp_sum(of_former) + of_lanes - 1;
            if at < end {
                let place = sorted.places.add(at as usize).read();
                sorted.numbers.add(place as usize).write(number);
                if is_new {
                    sorted.firsts.add(number as usize).write(place);
                }
            }
            before += all;
            first += u64::from(THREADS);
            thread::sync_threads();
        }
    }
}

/// The arguments of the kernel that ranks; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Ranking {
    /// The bits of different keys, the lowest word first.
    pub bits: *const u32,
    /// Words of a key.
    pub words: u32,
    /// A place of each key.
    pub places: *const u32,
    /// Keys.
    pub count: u32,
    /// Takes the places in the order of the keys.
    pub ranked: *mut u32,
}

arguments! { [] Ranking: bits words places count ranked }

/// Sorts places by their keys: each warp counts the keys below one.
///
/// # Safety
///
/// The launch has blocks of [`THREADS`], a warp for each key. The pointers are valid as [`Ranking`] says.
#[inline(always)]
pub unsafe fn rank(arguments: Ranking) {
    let Ranking { bits, words, places, count, ranked } = arguments;
    let own = thread::index_1d() / warp::WARP_SIZE;
    if own >= count {
        return;
    }
    // SAFETY: as the caller vouches; all lanes of a warp are here.
    unsafe {
        let [own_bits, own_place] = [bits.add((own * words) as usize), places.add(own as usize)];
        let mut below = 0u32;
        let mut other = warp::lane_id();
        while other < count {
            intrinsics::no_unroll();
            let other_bits = bits.add((other * words) as usize);
            let mut is_below = false;
            for word in 0..words as usize {
                intrinsics::no_unroll();
                let [own, other] = [own_bits.add(word).read(), other_bits.add(word).read()];
                is_below = other < own || other == own && is_below;
            }
            below += u32::from(is_below);
            other += warp::WARP_SIZE;
        }
        below = warp_sum(below);
        if warp::lane_id() == 0 {
            ranked.add(below as usize).write(own_place.read());
        }
    }
}

/// Inserts the keys at `arguments.places` with their numbers.
///
/// # Safety
///
/// The launch has blocks of [`THREADS`], a thread for each key. The pointers are valid as [`Arguments`] says, the keys
/// differ, and the table is empty and larger than their number.
#[inline(always)]
pub unsafe fn build<B: Bits>(arguments: Arguments<B>) {
    let Arguments { table, mask, places, count, numbered, .. } = arguments;
    let number = thread::index_1d();
    if number >= count {
        return;
    }
    // SAFETY: as the caller vouches.
    unsafe {
        let key = arguments.key(places.add(number as usize).read());
        if !B::IS_TAG {
            numbered.add(number as usize).write(key);
        }
        let (tag, mut slot) = key.tag();
        let new = u64::from(tag) << 32 | u64::from(number);
        loop {
            intrinsics::no_unroll();
            slot &= mask;
            let word = AtomicU64::from_ptr(table.add(slot as usize));
            if word.compare_and_swap(EMPTY, new, Ordering::Relaxed) == EMPTY {
                return;
            }
            slot = slot.wrapping_add(1);
        }
    }
}

/// Finds the number of the key of each item of the block's part. If a key is not in the table, sets the first word
/// of the state to 1, and the thread stops.
///
/// # Safety
///
/// As for [`build`], which has run; the launch has a block of [`THREADS`] for each part. If `most` is not 0, it has
/// shared memory for the table.
#[inline(always)]
pub unsafe fn look_up<B: Bits>(arguments: Arguments<B>) {
    let Arguments { table, mask, most, numbered, numbers, state, .. } = arguments;
    let is_shared = most != 0;
    let copy: Shared<u64> = dynamic_shared();
    // SAFETY: as the caller vouches; a barrier stands between writing the copy and reading it.
    unsafe {
        if is_shared {
            let mut slot = thread::thread_idx_x();
            while slot <= mask {
                copy.write(slot, table.add(slot as usize).read());
                slot += THREADS;
            }
        }
        thread::sync_threads();
        arguments.each_batch(|batch| {
            let mut is_missing = false;
            unrolled::<BATCH>(|item| {
                let Some((place, key)) = batch[item] else { return };
                let (tag, mut slot) = key.tag();
                loop {
                    intrinsics::no_unroll();
                    slot &= mask;
                    let word = if is_shared { copy.read(slot) } else { table.add(slot as usize).read() };
                    if word == EMPTY {
                        is_missing = true;
                        return;
                    }
                    let is_found = (word >> 32) as u32 == tag
                        && (B::IS_TAG || numbered.add(word as u32 as usize).read() == key);
                    if is_found {
                        numbers.add(place as usize).write(word as u32);
                        return;
                    }
                    slot = slot.wrapping_add(1);
                }
            });
            if is_missing {
                AtomicU64::from_ptr(state).store(1, Ordering::Relaxed);
            }
            !is_missing
        });
    }
}

/// The entry points.
#[cfg(feature = "index")]
mod entry_points {
    use super::*;
    use crate::{bf16, f16};

    macro_rules! encoding {
        ({} $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {$(
            const _: () = {
                #[cuda_std::kernel(name = concat!("keys_", stringify!($type), "_encode_1024"))]
                pub unsafe fn entry(
                    keys: *const $type,
                    places: *const u32,
                    len: u64,
                    bits: *mut u8,
                    stride: u32,
                ) {
                    // SAFETY: the host launches it as the function asks.
                    unsafe { encode(Encoding { keys, places, len, bits, stride }) }
                }
            };
        )*};
    }
    crate::for_each_element! { encoding! {} }

    #[cuda_std::kernel(name = "keys_u32_rank_1024")]
    pub unsafe fn rank_entry(bits: *const u32, words: u32, places: *const u32, count: u32, ranked: *mut u32) {
        // SAFETY: the host launches it as the function asks.
        unsafe { rank(Ranking { bits, words, places, count, ranked }) }
    }

    macro_rules! sorted_entries {
        ($($name:literal $type:ident $function:ident;)*) => {$(
            const _: () = {
                #[cuda_std::kernel(name = $name)]
                pub unsafe fn entry(
                    keys: *const $type,
                    places: *const u32,
                    len: u64,
                    part: u64,
                    counts: *mut u64,
                    count: *mut u64,
                    numbers: *mut u32,
                    firsts: *mut u32,
                ) {
                    // SAFETY: the host launches it as the function asks.
                    unsafe { $function(Sorted { keys, places, len, part, counts, count, numbers, firsts }) }
                }
            };
        )*};
    }

    sorted_entries! {
        "keys_u32_tell_1024" u32 tell;
        "keys_u64_tell_1024" u64 tell;
        "wide_keys_u64_tell_1024" u128 tell;
        "keys_u32_assign_1024" u32 assign;
        "keys_u64_assign_1024" u64 assign;
        "wide_keys_u64_assign_1024" u128 assign;
    }

    macro_rules! entries {
        ($($name:literal $type:ident $function:ident;)*) => {$(
            const _: () = {
                #[cuda_std::kernel(name = $name)]
                #[allow(clippy::too_many_arguments)]
                pub unsafe fn entry(
                    keys: *const $type,
                    len: u64,
                    part: u64,
                    table: *mut u64,
                    mask: u32,
                    most: u32,
                    places: *mut u32,
                    count: u32,
                    numbered: *mut $type,
                    numbers: *mut u32,
                    state: *mut u64,
                ) {
                    let arguments = Arguments {
                        keys, len, part, table, mask, most, places, count, numbered, numbers, state,
                    };
                    // SAFETY: the host launches it as the function asks.
                    unsafe { $function(arguments) }
                }
            };
        )*};
    }

    entries! {
        "keys_u8_list_1024" u8 list;
        "keys_u32_collect_1024" u32 collect;
        "keys_u64_collect_1024" u64 collect;
        "wide_keys_u64_collect_1024" u128 collect;
        "keys_u32_build_1024" u32 build;
        "keys_u64_build_1024" u64 build;
        "wide_keys_u64_build_1024" u128 build;
        "keys_u32_look_1024" u32 look_up;
        "keys_u64_look_1024" u64 look_up;
        "wide_keys_u64_look_1024" u128 look_up;
    }
}

macro_rules! entries {
    ({} $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {
        /// The entry points' names.
        pub const ENTRIES: &[&[Entry]] = &[
            &[$(Entry::new::<Encode<$type>>(concat!("keys_", stringify!($type), "_encode"))),*],
            &[
                Entry::new::<List>("keys_u8_list"),
                Entry::new::<Rank>("keys_u32_rank"),
                Entry::new::<Tell<u32>>("keys_u32_tell"),
                Entry::new::<Tell<u64>>("keys_u64_tell"),
                Entry::new::<Tell<u128>>("wide_keys_u64_tell"),
                Entry::new::<Assign<u32>>("keys_u32_assign"),
                Entry::new::<Assign<u64>>("keys_u64_assign"),
                Entry::new::<Assign<u128>>("wide_keys_u64_assign"),
                Entry::new::<Collect<u32>>("keys_u32_collect"),
                Entry::new::<Collect<u64>>("keys_u64_collect"),
                Entry::new::<Collect<u128>>("wide_keys_u64_collect"),
                Entry::new::<Build<u32>>("keys_u32_build"),
                Entry::new::<Build<u64>>("keys_u64_build"),
                Entry::new::<Build<u128>>("wide_keys_u64_build"),
                Entry::new::<LookUp<u32>>("keys_u32_look"),
                Entry::new::<LookUp<u64>>("keys_u64_look"),
                Entry::new::<LookUp<u128>>("wide_keys_u64_look"),
            ],
        ];
    };
    ({ alias } $($type:ident: $other:ident;)*) => {
        /// The entries for types that are aliases of others, whose kernels they use.
        pub const ALIASES: &[&[Entry]] =
            &[&[$(Entry::new::<Encode<$type>>(concat!("keys_", stringify!($other), "_encode"))),*]];
    };
}

#[allow(unused_imports)]
use crate::{bf16, f16};
crate::for_each_element! { entries! {} }
#[cfg(not(target_arch = "nvptx64"))]
crate::for_each_alias! { entries! { alias } }
