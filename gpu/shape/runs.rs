//! The kernel of runs: where runs of equal neighbouring keys begin, the key of each, and how many there are, in one
//! pass.
//!
//! A block takes a [tile](TILE) of keys, as the next number of a ticket says. What is unlike the key before it is a
//! **head**. The block counts its own; how many there are before it, it adds up from what the tiles before have
//! published, back to one that already knows all before itself (D. Merrill, M. Garland, "Single-pass Parallel Prefix
//! Scan with Decoupled Look-back", 2016). No block waits for one that has not begun. A status is a word that holds a
//! count and says of what, so that one access moves both, as in a [`slot`](crate::slot).
//!
//! Statuses are in one of two areas in turn, and each launch clears what the one before has left in the other. So
//! launches, which follow each other, need nothing set between them, and no block has to find out that all others have
//! read what it clears.

use crate::Element;
use crate::kernels::{self, Entry, Parameters};
#[allow(unused_imports)]
use crate::{bf16, f16};
use bytemuck::cast;
use core::array::from_fn;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use cuda_std::atomic::AtomicU64;
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, mem, shared_array, thread, warp};

/// Threads in a block.
pub const THREADS: u32 = 256;

/// Threads that a multiprocessor is to have registers for: as many as it has at most, because blocks wait for memory,
/// and for each other.
pub const RESIDENT: u32 = 2048;

/// Keys in a tile: a word of heads for each thread.
pub const TILE: u32 = WORD * THREADS;

/// Words of state before the two areas of statuses: the first is the ticket.
pub const STATE_HEAD: usize = 16;

/// Keys that a word of heads is for.
const WORD: u32 = u32::BITS;

/// Warps in a block.
const WARPS: u32 = THREADS / warp::WARP_SIZE;

/// Loads that a lane has in flight.
const BATCH: usize = 4;

/// Windows that a warp looks back over at a time.
const WINDOWS: usize = 4;

/// What is said of a status's count, in its lowest bits: it is that of the tile's heads; or that of all up to the
/// tile's end.
const OF_TILE: u64 = 1;
const OF_ALL: u64 = 2;
const OF: u64 = 3;

/// What a launch is given; the kernel's arguments in this order.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<K> {
    /// The keys, aligned to their type.
    pub keys: *const K,
    /// How many there are.
    pub len: u64,
    /// Room for the key of each run, the first of it.
    pub heads: *mut K,
    /// Room for where each run begins, and for where the last one ends: so many words for each offset.
    pub offsets: *mut u32,
    /// Words of an offset, 1 or 2.
    pub words: u32,
    /// For how many offsets there is room, one more than for keys. Runs that there is none for are counted.
    pub places: u64,
    /// Takes the number of runs.
    pub number: *mut u64,
    /// What launches that follow each other have in common, and no two at a time: [`STATE_HEAD`] words and two areas,
    /// all 0 before the first.
    pub state: *mut u64,
    /// Words in an area: no launch has more tiles.
    pub area: u64,
}

impl<K: Copy> kernels::Arguments for Arguments<K> {
    fn parameters(&self, parameters: &mut Parameters) {
        let Self { keys, len, heads, offsets, words, places, number, state, area } = self;
        parameters.push(keys);
        parameters.push(len);
        parameters.push(heads);
        parameters.push(offsets);
        parameters.push(words);
        parameters.push(places);
        parameters.push(number);
        parameters.push(state);
        parameters.push(area);
    }
}

/// The kernel as a type.
pub struct Kernel<K>(PhantomData<K>);

impl<K: Element> kernels::Kernel for Kernel<K> {
    type Arguments = Arguments<K>;
}

/// Whether keys are one run: equal, or both NaN, as NumPy's `unique` has it.
#[inline(always)]
pub fn is_same<K: Element>(a: K, b: K) -> bool {
    #[allow(clippy::eq_op)]
    let both_nan = a != a && b != b;
    a == b || both_nan
}

/// Tiles of `len` keys of `size` bytes that begin at an address. There is one for no keys, too.
pub const fn tiles(address: u64, len: u64, size: usize) -> u64 {
    let before = address % 16 / size as u64;
    let tiles = (before + len).div_ceil(TILE as u64);
    if tiles == 0 { 1 } else { tiles }
}

/// The kernel.
///
/// # Safety
///
/// The launch has a block of [`THREADS`] for each of the keys' [`tiles`]; the pointers are valid as [`Arguments`] says,
/// and nothing else uses what they point to meanwhile. VECTOR is how many keys 16 bytes have.
#[inline(always)]
pub unsafe fn find_runs<K: Element, const VECTOR: usize>(arguments: Arguments<K>) {
    let Arguments { keys, len, heads, offsets, words, places, number, state, area } = arguments;
    let (thread, tiles) = (thread::thread_idx_x(), thread::grid_dim_x());
    let (warp, lane) = (thread / warp::WARP_SIZE, warp::lane_id());
    let shared = shared_array![u64; 1];
    let totals = shared_array![u32; WARPS as usize];
    let list = List(shared_array![u16; List::PLACES]);
    // SAFETY: every thread of the block is here. Of shared memory, no two write the same place without a barrier
    // between, nor does one read what another writes. The places of `state` are for atomics alone, and what is read of
    // the keys is in the tile.
    unsafe {
        if thread == 0 {
            shared.write(0, AtomicU64::from_ptr(state).fetch_add(1, Ordering::Relaxed));
        }
        thread::sync_threads();
        let ticket = Ticket(shared.read(0));
        let tile = Tile::<K, VECTOR>::new(keys, len, ticket.tile());
        if thread == 0 && tile.index + 1 == tiles {
            // All have theirs.
            AtomicU64::from_ptr(state).store(ticket.next(tiles), Ordering::Relaxed);
        }
        clear(state.add(STATE_HEAD + (ticket.area() ^ 1) as usize * area as usize), ticket, tiles);
        let mut mask = tile.heads();
        let count = mask.count_ones();
        let upto = prefix_sum(count);
        if lane == warp::WARP_SIZE - 1 {
            totals.write(warp, upto);
        }
        thread::sync_threads();
        let (mut rank, mut total) = (upto - count, 0);
        for index in 0..WARPS {
            let of_warp = totals.read(index);
            rank += if index < warp { of_warp } else { 0 };
            total += of_warp;
        }
        let status = state.add(STATE_HEAD + ticket.area() as usize * area as usize);
        let publish = |count: u64, of: u64| {
            AtomicU64::from_ptr(status.add(tile.index as usize)).store(count << 2 | of, Ordering::Relaxed);
        };
        if thread == 0 {
            publish(total.into(), OF_TILE);
        }
        let is_listed = total > 0 && places > 0;
        if !is_listed {
            mask = 0;
        }
        while mask != 0 {
            intrinsics::no_unroll();
            list.write(rank, WORD * thread + mask.trailing_zeros());
            rank += 1;
            mask &= mask - 1;
        }
        thread::sync_threads();
        // Before it is known how many heads there are before these: now the keys are near.
        let ranks = |first: u32| from_fn::<u32, BATCH, _>(|index| first + index as u32 * THREADS);
        let read = |first: u32| ranks(first).map(|rank| tile.read(list.read(rank.min(total - 1))));
        let mut keys = [K::zeroed(); BATCH];
        if is_listed {
            keys = read(thread);
        }
        if warp == 0 {
            let before = count_before(status, tile.index);
            if lane == 0 {
                publish(before + u64::from(total), OF_ALL);
                shared.write(0, before);
            }
        }
        thread::sync_threads();
        let before = shared.read(0);
        let left = places.saturating_sub(before);
        let offsets_end = left.min(total.into()) as u32;
        let heads_end = left.saturating_sub(1).min(total.into()) as u32;
        let write_offset = |place: *mut u32, offset: u64| {
            place.write(offset as u32);
            if words > 1 {
                place.add(1).write((offset >> 32) as u32);
            }
        };
        let heads = heads.wrapping_add(before as usize);
        let starts = offsets.wrapping_add(before as usize * words as usize);
        let mut rank = thread;
        while rank < offsets_end {
            write_offset(
                starts.wrapping_add((rank * words) as usize),
                tile.first + u64::from(list.read(rank)),
            );
            rank += THREADS;
        }
        let mut first = thread;
        while first < heads_end {
            intrinsics::no_unroll();
            let ranks = ranks(first);
            for index in 0..BATCH {
                if ranks[index] < heads_end {
                    heads.wrapping_add(ranks[index] as usize).write(keys[index]);
                }
            }
            first += BATCH as u32 * THREADS;
            if first < heads_end {
                // All of these loads, too, come before the next store, which might write what they read, for all that
                // the compiler knows.
                keys = read(first);
            }
        }
        if thread == 0 && tile.index + 1 == tiles {
            let all = before + u64::from(total);
            number.write(all);
            if all < places {
                write_offset(offsets.wrapping_add(all as usize * words as usize), len);
            }
        }
    }
}

/// Clears a block's part of what the launch before has left in its area.
///
/// # Safety
///
/// Every thread of the block calls it, and of its launch all blocks, each with its ticket.
#[inline(always)]
unsafe fn clear(area: *mut u64, ticket: Ticket, tiles: u32) {
    let mut tile = u64::from(ticket.tile()) + u64::from(thread::thread_idx_x()) * u64::from(tiles);
    while tile < ticket.before() {
        intrinsics::no_unroll();
        // SAFETY: that launch had so many tiles, and this one does not use its area.
        unsafe { AtomicU64::from_ptr(area.add(tile as usize)).store(0, Ordering::Relaxed) };
        tile += u64::from(THREADS) * u64::from(tiles);
    }
}

/// What a block took from the state's first word: of the lower half the number of its tile, then of the tiles that the
/// launch before had, and uppermost the area.
#[derive(Clone, Copy)]
struct Ticket(u64);

impl Ticket {
    #[inline(always)]
    fn tile(self) -> u32 {
        self.0 as u32
    }

    /// Tiles of the launch before.
    #[inline(always)]
    fn before(self) -> u64 {
        self.0 >> 32 & 0x7fff_ffff
    }

    #[inline(always)]
    fn area(self) -> u64 {
        self.0 >> 63
    }

    /// The next launch's first.
    #[inline(always)]
    fn next(self, tiles: u32) -> u64 {
        (self.area() ^ 1) << 63 | u64::from(tiles) << 32
    }
}

/// A block's keys. Tiles begin at a multiple of 16 bytes; so the first may have places before the first key.
#[derive(Clone, Copy)]
struct Tile<K, const VECTOR: usize> {
    index: u32,
    /// Where the first place lies.
    keys: *const K,
    /// The index of the key there.
    first: u64,
    /// The places that there are keys for.
    start: u32,
    end: u32,
}

impl<K: Element, const VECTOR: usize> Tile<K, VECTOR> {
    #[inline(always)]
    fn new(keys: *const K, len: u64, index: u32) -> Self {
        let before = (keys.addr() % 16 / size_of::<K>()) as u64;
        let first = (u64::from(index) * u64::from(TILE)).wrapping_sub(before);
        Self {
            index,
            keys: keys.wrapping_add(first as usize),
            first,
            start: if index == 0 { before as u32 } else { 0 },
            end: len.wrapping_sub(first).min(TILE.into()) as u32,
        }
    }

    /// The heads among the thread's places, of which each thread has as many as a word has bits: bit i for place i.
    ///
    /// # Safety
    ///
    /// Every thread of the block calls it.
    #[inline(always)]
    unsafe fn heads(&self) -> u32 {
        let vector = VECTOR as u32;
        let stride = warp::WARP_SIZE * vector;
        let lane = warp::lane_id();
        let of_warp = thread::thread_idx_x() / warp::WARP_SIZE * warp::WARP_SIZE * WORD;
        let first = of_warp + lane * vector;
        let mut mask = 0u32;
        // SAFETY: all lanes of the warp are here, and what is read is there.
        unsafe {
            // The key before lane 0's next load.
            let mut before = K::zeroed();
            if lane == 0 && of_warp < self.end && (of_warp > 0 || self.index > 0) {
                before = self.read_before(of_warp);
            }
            let mut place = first;
            while place < of_warp + warp::WARP_SIZE * WORD {
                intrinsics::no_unroll();
                let at = self.keys.wrapping_add(place as usize);
                let loads: [[u32; 4]; BATCH] = from_fn(|load| {
                    if load < Self::BATCH && self.is_whole(place + load as u32 * stride) {
                        mem::load_16_bytes(at.wrapping_add(load * stride as usize).cast())
                    } else {
                        [0; 4]
                    }
                });
                let mut each = |words: [u32; 4]| {
                    let keys: [K; VECTOR] = keys_of(words);
                    let (below, _) =
                        warp::warp_shuffle_idx(warp::ALL, keys[VECTOR - 1], (lane + 31) % 32, 32);
                    mask =
                        (mask | heads_of(if lane == 0 { before } else { below }, keys)).rotate_right(vector);
                    before = below;
                };
                // One by one, as loads are folded in `stage::chunk`.
                let [a, b, c, d] = loads;
                each(a);
                each(b);
                if Self::BATCH > 2 {
                    each(c);
                    each(d);
                }
                place += Self::BATCH as u32 * stride;
            }
            mask = in_order::<VECTOR>(mask);
            if self.index == 0 || self.end < TILE {
                // Words of which a part was not loaded, or lies behind such a part: a place a lane.
                for word in [0, self.end.saturating_sub(1) / WORD] {
                    if of_warp == word / warp::WARP_SIZE * warp::WARP_SIZE * WORD {
                        let heads = warp::warp_vote_ballot(warp::ALL, self.is_head(word * WORD + lane));
                        mask = if lane == word % warp::WARP_SIZE { heads } else { mask };
                    }
                }
                mask = if of_warp + lane * WORD < self.end { mask } else { 0 };
            }
        }
        mask
    }

    /// Loads that a lane has in flight; of narrow keys, which have registers of their own, fewer.
    const BATCH: usize = if VECTOR > 4 { 2 } else { BATCH };

    /// Whether there are VECTOR keys from a place on.
    #[inline(always)]
    fn is_whole(&self, place: u32) -> bool {
        self.start <= place && place + VECTOR as u32 <= self.end
    }

    /// Whether there is a head at a place.
    ///
    /// # Safety
    ///
    /// The keys are there.
    #[inline(always)]
    unsafe fn is_head(&self, place: u32) -> bool {
        if place < self.start || place >= self.end {
            return false;
        }
        // SAFETY: there is one here; and one before, unless it is the first.
        (self.index == 0 && place == self.start)
            || unsafe { !is_same(self.read_before(place), self.read(place)) }
    }

    /// The key at a place.
    ///
    /// # Safety
    ///
    /// There is one.
    #[inline(always)]
    unsafe fn read(&self, place: u32) -> K {
        // SAFETY: as the caller vouches.
        unsafe { self.keys.wrapping_add(place as usize).read() }
    }

    /// The key before a place.
    ///
    /// # Safety
    ///
    /// There is one.
    #[inline(always)]
    unsafe fn read_before(&self, place: u32) -> K {
        // SAFETY: as the caller vouches.
        unsafe { self.keys.wrapping_add(place as usize).wrapping_sub(1).read() }
    }
}

/// The keys in words. Narrow ones come of shifts, because of a cast the compiler takes them apart as soon as they are
/// loaded.
#[inline(always)]
fn keys_of<K: Element, const VECTOR: usize>(words: [u32; 4]) -> [K; VECTOR] {
    match size_of::<K>() {
        1 => from_fn(|index| cast((words[index / 4] >> (8 * (index % 4))) as u8)),
        2 => from_fn(|index| cast((words[index / 2] >> (16 * (index % 2))) as u16)),
        _ => cast(words),
    }
}

/// Which of neighbouring keys are unlike the one before.
#[inline(always)]
fn heads_of<K: Element, const VECTOR: usize>(mut before: K, keys: [K; VECTOR]) -> u32 {
    let mut heads = 0;
    for (index, &key) in keys.iter().enumerate() {
        heads |= u32::from(!is_same(before, key)) << index;
        before = key;
    }
    heads
}

/// Gives each lane a word of the heads of neighbouring places, where it has VECTOR of each of its loads, which are each
/// as many from all lanes: as many lanes as there are loads exchange theirs, as in transposing a matrix.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
unsafe fn in_order<const VECTOR: usize>(mut mask: u32) -> u32 {
    let (vector, loads) = (VECTOR as u32, WORD / VECTOR as u32);
    let lane = warp::lane_id();
    let mut stride = 1;
    while stride < loads {
        let bits = stride * vector;
        // Of 2 · stride loads next to each other, the first half.
        let lower = u32::MAX / ((1 << bits) + 1);
        // SAFETY: as the caller vouches.
        let (other, _) = unsafe { warp::warp_shuffle_xor(warp::ALL, mask, stride, 32) };
        let (keep, other) = if lane & stride == 0 { (lower, other << bits) } else { (!lower, other >> bits) };
        mask = mask & keep | other & !keep;
        stride *= 2;
    }
    // Lane i of those has the word of load i; there are VECTOR such words of each load.
    // SAFETY: as the caller vouches.
    unsafe { warp::warp_shuffle_idx(warp::ALL, mask, lane % vector * loads + lane / vector, 32).0 }
}

/// The places of a tile's heads, in shared memory. Of 32 words that threads next to each other write at a time, each is
/// in a bank of its own if all places are heads.
#[derive(Clone, Copy)]
struct List(Shared<u16>);

impl List {
    const PLACES: usize = (TILE + TILE / WORD * 2) as usize;

    #[inline(always)]
    fn index(rank: u32) -> u32 {
        rank + rank / WORD * 2
    }

    /// # Safety
    ///
    /// There are so many heads, and their places were written before a barrier.
    #[inline(always)]
    unsafe fn read(self, rank: u32) -> u32 {
        // SAFETY: as the caller vouches.
        unsafe { self.0.read(Self::index(rank)).into() }
    }

    /// # Safety
    ///
    /// There are so many heads, and no other thread writes this one's place.
    #[inline(always)]
    unsafe fn write(self, rank: u32, place: u32) {
        // SAFETY: as the caller vouches.
        unsafe { self.0.write(Self::index(rank), place as u16) }
    }
}

/// The heads in all tiles before one.
///
/// # Safety
///
/// All lanes of a warp call it together; each of the tiles has published its status, or will.
#[inline(always)]
unsafe fn count_before(status: *mut u64, tile: u32) -> u64 {
    let lane = warp::lane_id();
    let (mut end, mut sum, mut is_done) = (tile, 0, false);
    // SAFETY: as the caller vouches.
    unsafe {
        while !is_done {
            intrinsics::no_unroll();
            // Several windows of a warp at a time: 2^26 keys pass in less time than it takes to look at all tiles one
            // window after another.
            let windows: [u64; WINDOWS] = from_fn(|window| {
                let before = lane + window as u32 * warp::WARP_SIZE;
                // Before the first tile there are none.
                if before < end {
                    AtomicU64::from_ptr(status.add((end - 1 - before) as usize)).load(Ordering::Relaxed)
                } else {
                    OF_ALL
                }
            });
            let mut is_full = true;
            for word in windows {
                let empty = warp::warp_vote_ballot(warp::ALL, word == 0);
                let of_all = warp::warp_vote_ballot(warp::ALL, word & OF == OF_ALL);
                // The lanes up to the first of them, or all.
                let nearest = of_all ^ of_all.wrapping_sub(1);
                is_full &= empty & nearest == 0;
                if is_full && !is_done {
                    sum += if nearest >> lane & 1 == 1 { word >> 2 } else { 0 };
                    is_done = of_all != 0;
                    end = end.saturating_sub(warp::WARP_SIZE);
                }
            }
        }
        for lanes in [16, 8, 4, 2, 1] {
            sum += warp::warp_shuffle_xor(warp::ALL, sum, lanes, 32).0;
        }
    }
    sum
}

/// The sums of the values of the lanes up to each.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
unsafe fn prefix_sum(mut value: u32) -> u32 {
    for stride in [1, 2, 4, 8, 16] {
        // SAFETY: as the caller vouches.
        let (below, is_there) = unsafe { warp::warp_shuffle_up(warp::ALL, value, stride, 32) };
        value += if is_there { below } else { 0 };
    }
    value
}

/// The entry point for one type of keys.
#[cfg(feature = "reduce")]
macro_rules! entry_points {
    ({} $($type:ident: $($row:ident)*;)*) => {$(
        const _: () = {
            #[cuda_std::kernel(name = concat!("runs_", stringify!($type), "_256"))]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn entry(
                keys: *const $type,
                len: u64,
                heads: *mut $type,
                offsets: *mut u32,
                words: u32,
                places: u64,
                number: *mut u64,
                state: *mut u64,
                area: u64,
            ) {
                let arguments = Arguments { keys, len, heads, offsets, words, places, number, state, area };
                // SAFETY: the host launches it as `find_runs` asks.
                unsafe { find_runs::<$type, { 16 / size_of::<$type>() }>(arguments) }
            }
        };
    )*};
}

#[cfg(feature = "reduce")]
crate::for_each_element! { entry_points! {} }

macro_rules! entries {
    ({} $($type:ident: $($row:ident)*;)*) => {
        /// The entry points.
        pub const ENTRIES: &[&[Entry]] = &[&[
            $( Entry::new::<Kernel<$type>>(concat!("runs_", stringify!($type))) ),*
        ]];
    };
}

crate::for_each_element! { entries! {} }

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! aliases {
    ({} $($type:ident: $other:ident;)*) => {
        /// The entries of keys of types that are others by another name, whose kernels these are.
        pub const ALIASES: &[&[Entry]] = &[&[
            $( Entry::new::<Kernel<$type>>(concat!("runs_", stringify!($other))) ),*
        ]];
    };
}

#[cfg(not(target_arch = "nvptx64"))]
crate::for_each_alias! { aliases! {} }
