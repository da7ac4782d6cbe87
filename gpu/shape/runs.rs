//! The kernel of runs: finds the runs of equal neighbouring keys in one pass, and returns the start and the
//! key of each, and their number.
//!
//! ```text
//! block:    takes the next tile by a ticket
//!           finds the heads in its tile; a head is a key unlike the key before it
//!           publishes how many heads its tile has
//! warp 0:   looks back over the tiles before, and adds up their counts until one counts all heads before
//!           publishes the count of all heads up to the tile's end
//! block:    stores the heads' offsets and keys from there on
//! ```
//!
//! This is decoupled look-back (D. Merrill, M. Garland, "Single-pass Parallel Prefix Scan with Decoupled
//! Look-back", 2016). Tickets order the blocks, so no block waits for one that has not started. A status is a
//! word with a count and a flag that says what is counted; one access moves both, as in a
//! [`slot`](crate::slot).
//!
//! There are two areas of statuses, used in turn. Each launch clears what the launch before has left in the
//! other area. So nothing has to be set between launches, and no block has to know when all others have read
//! a status.

#[cfg(feature = "index")]
use super::heads::Listing;
use super::heads::{self, Heads};
use crate::Element;
use crate::kernels::{self, Entry, Named, Parameters};
#[allow(unused_imports)]
use crate::{bf16, f16};
use bytemuck::cast;
use core::array::from_fn;
use core::sync::atomic::Ordering;
use cuda_std::atomic::AtomicU64;
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, mem, shared_array, thread, warp};

/// Threads in a block.
pub const THREADS: u32 = 256;

/// Threads that a multiprocessor should have registers for: the most that it can hold, because blocks wait
/// for memory and for each other.
pub const RESIDENT: u32 = 2048;

/// As [`RESIDENT`], for a search that keeps heads: most of its runs are short, or its keys are few. A block reads the keys of runs a second time, from the L2 cache if that still has
/// them, and looks back over fewer tiles if fewer blocks run. µs of sums of 2^26 `f32` by runs of 1, 4 and 16 on an H200, with this
/// number 390, 228, 199, with 2,048 404, 231, 199.
pub const RESIDENT_FOR_SHORT: u32 = 1536;

/// Keys in a tile: a thread has a word of heads.
pub const TILE: u32 = WORD * THREADS;

/// Words of state before the two areas of statuses. The first is the ticket.
pub const STATE_HEAD: usize = 16;

/// Keys for a word of heads, one a bit.
const WORD: u32 = u32::BITS;

/// Warps in a block.
const WARPS: u32 = THREADS / warp::WARP_SIZE;

/// Loads that a lane has in flight.
const BATCH: usize = 4;

/// First keys of runs that a lane has in flight, at most.
const MOST_KEYS: usize = 8;

/// Windows of 32 statuses that a warp looks back over at a time.
const WINDOWS: usize = 4;

/// The two lowest bits of a status say what it counts: the heads of the tile, or all heads up to the tile's
/// end.
const OF_TILE: u64 = 1;
const OF_ALL: u64 = 2;
const OF: u64 = 3;

/// The arguments of a launch; the kernel's parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<K> {
    /// The keys, aligned to their type.
    pub keys: *const K,
    /// Keys in the input.
    pub len: u64,
    /// Takes the first key of each run.
    pub heads: *mut K,
    /// Takes the start of each run and the end of the last, `words` words each.
    pub offsets: *mut u32,
    /// Words of an offset, 1 or 2.
    pub words: u32,
    /// The capacity of `offsets`, one more than that of `heads`. Runs beyond it are counted only.
    pub capacity: u64,
    /// Takes the number of runs.
    pub number: *mut u64,
    /// Takes the [`heads`] as bits: words for [`positions`]. The offsets of short runs are not listed then. If it is
    /// null, all are.
    pub bits: *mut u64,
    /// State that consecutive launches share, and no two launches at the same time: [`STATE_HEAD`] words and
    /// two areas, all 0 before the first launch.
    pub state: *mut u64,
    /// Words in an area, at least the tiles of any launch.
    pub area: u64,
}

impl<K> Arguments<K> {
    /// Arguments without keys.
    pub const NONE: Self = Self {
        keys: core::ptr::null(),
        len: 0,
        heads: core::ptr::null_mut(),
        offsets: core::ptr::null_mut(),
        words: 1,
        capacity: 0,
        number: core::ptr::null_mut(),
        bits: core::ptr::null_mut(),
        state: core::ptr::null_mut(),
        area: 0,
    };
}

impl<K: Copy> kernels::Arguments for Arguments<K> {
    fn parameters(&self, parameters: &mut Parameters) {
        let Self { keys, len, heads, offsets, words, capacity, number, bits, state, area } = self;
        parameters.push(keys);
        parameters.push(len);
        parameters.push(heads);
        parameters.push(offsets);
        parameters.push(words);
        parameters.push(capacity);
        parameters.push(number);
        // The driver compiles a kernel that lists all offsets without the code for bits.
        if bits.is_null() {
            parameters.knows(0, 0);
        }
        parameters.push(bits);
        parameters.push(state);
        parameters.push(area);
    }
}

/// The kernel as a type.
pub type Kernel<K> = Named<Runs, Arguments<K>>;

/// Names the [`Kernel`].
pub enum Runs {}

/// Returns whether keys belong to one run: they are equal, or both NaN, as in NumPy's `unique`.
#[inline(always)]
pub fn is_same<K: Element>(a: K, b: K) -> bool {
    #[allow(clippy::eq_op)]
    let both_nan = a != a && b != b;
    a == b || both_nan
}

/// Returns the tiles of `len` keys of `size` bytes at an address; one tile for no keys.
pub const fn tiles(address: u64, len: u64, size: usize) -> u64 {
    let before = address % 16 / size as u64;
    let tiles = (before + len).div_ceil(TILE as u64);
    if tiles == 0 { 1 } else { tiles }
}

/// Returns the most positions that the tiles of `len` keys have, at whatever address the keys lie.
pub const fn positions(len: u64) -> u64 {
    tiles(15, len, 1) * TILE as u64
}

/// Finds the runs of `arguments.keys`.
///
/// # Safety
///
/// The launch has a block of [`THREADS`] for each of the keys' [`tiles`]. The pointers are valid as
/// [`Arguments`] says, and nothing else accesses what they point to meanwhile. VECTOR is the number of keys
/// in 16 bytes.
#[inline(always)]
pub unsafe fn find_runs<K: Element, const VECTOR: usize>(arguments: Arguments<K>) {
    let Arguments { keys, len, heads, offsets, words, capacity, number, bits, state, area } = arguments;
    let (thread, tiles) = (thread::thread_idx_x(), thread::grid_dim_x());
    let (warp, lane) = (thread / warp::WARP_SIZE, warp::lane_id());
    let shared = shared_array![u64; 1];
    let totals = shared_array![u32; WARPS as usize];
    let list = List(shared_array![u16; List::LEN]);
    // SAFETY: every thread of the block is here. A barrier stands between accesses to an element of shared
    // memory by different threads. `state` is used by atomics alone, and the keys that are read are in the
    // tile.
    unsafe {
        if thread == 0 {
            shared.write(0, AtomicU64::from_ptr(state).fetch_add(1, Ordering::Relaxed));
        }
        thread::sync_threads();
        let ticket = Ticket(shared.read(0));
        let tile = Tile::<K, VECTOR>::new(keys, len, ticket.tile());
        if thread == 0 && tile.index + 1 == tiles {
            // All blocks have their tickets.
            AtomicU64::from_ptr(state).store(ticket.next(tiles), Ordering::Relaxed);
        }
        clear(state.add(STATE_HEAD + (ticket.area() ^ 1) as usize * area as usize), ticket, tiles);
        let mut mask = tile.heads();
        let (of_thread, bits) = (mask, Heads(bits));
        if !bits.0.is_null() {
            bits.word(u64::from(tile.index) * u64::from(THREADS) + u64::from(thread)).write(mask);
        }
        let count = mask.count_ones();
        let upto = prefix_sum(count);
        if lane == warp::WARP_SIZE - 1 {
            totals.write(warp, upto);
        }
        thread::sync_threads();
        let (mut first, mut total) = (upto - count, 0);
        for index in 0..WARPS {
            let of_warp = totals.read(index);
            first += if index < warp { of_warp } else { 0 };
            total += of_warp;
        }
        let mut rank = first;
        let status = state.add(STATE_HEAD + ticket.area() as usize * area as usize);
        let publish = |count: u64, of: u64| {
            AtomicU64::from_ptr(status.add(tile.index as usize)).store(count << 2 | of, Ordering::Relaxed);
        };
        if thread == 0 {
            publish(total.into(), OF_TILE);
        }
        let is_listed = total > 0 && capacity > 0;
        // If all keys are heads, their positions need no list.
        let are_all = total == tile.end - tile.start;
        if !is_listed || are_all {
            mask = 0;
        }
        while mask != 0 {
            intrinsics::no_unroll();
            list.write(rank, WORD * thread + mask.trailing_zeros());
            rank += 1;
            mask &= mask - 1;
        }
        thread::sync_threads();
        let position = |rank: u32| if are_all { tile.start + rank } else { list.read(rank) };
        // Read before the number of heads before these is known: now the keys are still in the cache.
        let of_batch = Tile::<K, VECTOR>::KEYS;
        let read = |first: u32| -> [K; MOST_KEYS] {
            from_fn(|index| match first + index as u32 * THREADS {
                rank if index < of_batch => tile.read(position(rank.min(total - 1))),
                _ => K::zeroed(),
            })
        };
        let mut keys = [K::zeroed(); MOST_KEYS];
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
        let left = capacity.saturating_sub(before);
        let offsets_end = left.min(total.into()) as u32;
        let heads_end = left.saturating_sub(1).min(total.into()) as u32;
        let write_offset = |rank: u32, position: u32| {
            let offset = tile.first.wrapping_add(position.into());
            heads::write_offset(offsets, words, before + u64::from(rank), offset);
        };
        if bits.0.is_null() {
            let mut rank = thread;
            while rank < offsets_end {
                write_offset(rank, position(rank));
                rank += THREADS;
            }
        } else {
            if lane == 0 {
                let window = bits.before(u64::from(tile.index) * u64::from(WARPS) + u64::from(warp));
                window.write(before + u64::from(first));
            }
            if thread == 0 && tile.index == 0 {
                bits.shift().write(tile.start.into());
            }
            // The first position of a lane's word is bit 0.
            let (last, next) = (of_thread.leading_zeros(), of_thread.trailing_zeros());
            let (last_before, is_inside) = warp::warp_shuffle_up(warp::ALL, last, 1, 32);
            // More than 32 items lie between the last head before the word and its first head. (The next tile's, and the next
            // warp's words are not here.)
            let starts_late = !is_inside || last_before + next >= WORD;
            let (next_after, is_inside) = warp::warp_shuffle_down(warp::ALL, next, 1, 32);
            let ends_late = !is_inside || last + next_after >= WORD;
            let of_last = first + count.saturating_sub(1);
            if count > 0 && starts_late && first < offsets_end {
                write_offset(first, WORD * thread + next);
            }
            if count > 0 && ends_late && of_last < offsets_end {
                write_offset(of_last, WORD * thread + WORD - 1 - last);
            }
        }
        let heads = heads.wrapping_add(before as usize);
        let mut first = thread;
        while first < heads_end {
            intrinsics::no_unroll();
            for (index, &key) in keys.iter().take(of_batch).enumerate() {
                let rank = first + index as u32 * THREADS;
                if rank < heads_end {
                    heads.wrapping_add(rank as usize).write(key);
                }
            }
            first += of_batch as u32 * THREADS;
            if first < heads_end {
                // All of these loads come before the next store, too. The compiler cannot know that the store
                // does not change what they read.
                keys = read(first);
            }
        }
        if thread == 0 && tile.index + 1 == tiles {
            let all = before + u64::from(total);
            number.write(all);
            if !bits.0.is_null() {
                bits.0.write(all);
            }
            if all < capacity {
                heads::write_offset(offsets, words, all, len);
            }
        }
    }
}

/// Clears a block's part of the area that the launch before has used.
///
/// # Safety
///
/// Every thread of the block calls it, and all blocks of the launch, each with its ticket.
#[inline(always)]
unsafe fn clear(area: *mut u64, ticket: Ticket, tiles: u32) {
    let mut tile = u64::from(ticket.tile()) + u64::from(thread::thread_idx_x()) * u64::from(tiles);
    while tile < ticket.before() {
        intrinsics::no_unroll();
        // SAFETY: the launch before had that many tiles, and this one does not use its area.
        unsafe { AtomicU64::from_ptr(area.add(tile as usize)).store(0, Ordering::Relaxed) };
        tile += u64::from(THREADS) * u64::from(tiles);
    }
}

/// What a block took from the first word of the state: the number of its tile in the lower half; above it the
/// tiles of the launch before; in the highest bit the area.
#[derive(Clone, Copy)]
struct Ticket(u64);

impl Ticket {
    #[inline(always)]
    fn tile(self) -> u32 {
        self.0 as u32
    }

    /// Returns the tiles of the launch before.
    #[inline(always)]
    fn before(self) -> u64 {
        self.0 >> 32 & 0x7fff_ffff
    }

    #[inline(always)]
    fn area(self) -> u64 {
        self.0 >> 63
    }

    /// Returns the next launch's first ticket.
    #[inline(always)]
    fn next(self, tiles: u32) -> u64 {
        (self.area() ^ 1) << 63 | u64::from(tiles) << 32
    }
}

/// A block's keys. A tile begins at a multiple of 16 bytes, so that the first tile may have positions before
/// the first key.
#[derive(Clone, Copy)]
struct Tile<K, const VECTOR: usize> {
    index: u32,
    /// The address of position 0.
    keys: *const K,
    /// The index of the key at position 0.
    first: u64,
    /// The positions that have keys.
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

    /// Returns the heads among the thread's 32 positions: bit i for position i.
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
        // SAFETY: all lanes of the warp are here, and the keys that are read are in the tile, or the key
        // before it.
        unsafe {
            // The key before lane 0's next load.
            let mut before = K::zeroed();
            if lane == 0 && of_warp < self.end && (of_warp > 0 || self.index > 0) {
                before = self.read_before(of_warp);
            }
            let mut position = first;
            while position < of_warp + warp::WARP_SIZE * WORD {
                intrinsics::no_unroll();
                let at = self.keys.wrapping_add(position as usize);
                let loads: [[u32; 4]; BATCH] = from_fn(|load| {
                    if load < Self::BATCH && self.is_whole(position + load as u32 * stride) {
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
                // One by one, for the reason given in `shape::chunk`.
                let [a, b, c, d] = loads;
                each(a);
                each(b);
                if Self::BATCH > 2 {
                    each(c);
                    each(d);
                }
                position += Self::BATCH as u32 * stride;
            }
            mask = in_order::<VECTOR>(mask);
            if self.index == 0 || self.end < TILE {
                // Words whose keys were not all loaded, or that follow such keys: each lane checks a
                // position.
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

    /// Loads that a lane has in flight. Narrow keys take a register each, so they have fewer.
    const BATCH: usize = if VECTOR > 4 { 2 } else { BATCH };

    /// First keys of runs that a lane has in flight.
    const KEYS: usize = if VECTOR < 4 { MOST_KEYS / 2 } else { MOST_KEYS };

    /// Returns whether there are VECTOR keys from a position on.
    #[inline(always)]
    fn is_whole(&self, position: u32) -> bool {
        self.start <= position && position + VECTOR as u32 <= self.end
    }

    /// Returns whether the key at a position is a head.
    ///
    /// # Safety
    ///
    /// The tile's keys, and the key before the tile, are valid.
    #[inline(always)]
    unsafe fn is_head(&self, position: u32) -> bool {
        if position < self.start || position >= self.end {
            return false;
        }
        // SAFETY: there is a key here; and one before it, unless this is the first.
        (self.index == 0 && position == self.start)
            || unsafe { !is_same(self.read_before(position), self.read(position)) }
    }

    /// Returns the key at a position.
    ///
    /// # Safety
    ///
    /// There is one.
    #[inline(always)]
    unsafe fn read(&self, position: u32) -> K {
        // SAFETY: as the caller promises.
        unsafe { self.keys.wrapping_add(position as usize).read() }
    }

    /// Returns the key before a position.
    ///
    /// # Safety
    ///
    /// There is one.
    #[inline(always)]
    unsafe fn read_before(&self, position: u32) -> K {
        // SAFETY: as the caller promises.
        unsafe { self.keys.wrapping_add(position as usize).wrapping_sub(1).read() }
    }
}

/// Returns the keys in four words. Narrow keys are shifted out: with a cast, the compiler takes them apart as
/// soon as they are loaded.
#[inline(always)]
fn keys_of<K: Element, const VECTOR: usize>(words: [u32; 4]) -> [K; VECTOR] {
    match size_of::<K>() {
        1 => from_fn(|index| cast((words[index / 4] >> (8 * (index % 4))) as u8)),
        2 => from_fn(|index| cast((words[index / 2] >> (16 * (index % 2))) as u16)),
        _ => cast(words),
    }
}

/// Returns which keys are unlike the key before them: bit i for key i.
#[inline(always)]
fn heads_of<K: Element, const VECTOR: usize>(mut before: K, keys: [K; VECTOR]) -> u32 {
    let mut heads = 0;
    for (index, &key) in keys.iter().enumerate() {
        heads |= u32::from(!is_same(before, key)) << index;
        before = key;
    }
    heads
}

/// Transposes the heads. Before, each lane has VECTOR bits of each of its loads; after, each lane has the
/// bits of 32 neighbouring positions. As many lanes as a lane has loads exchange theirs.
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
        // The first half of each 2 · stride neighbouring loads.
        let lower = u32::MAX / ((1 << bits) + 1);
        // SAFETY: as the caller promises.
        let (other, _) = unsafe { warp::warp_shuffle_xor(warp::ALL, mask, stride, 32) };
        let (keep, other) = if lane & stride == 0 { (lower, other << bits) } else { (!lower, other >> bits) };
        mask = mask & keep | other & !keep;
        stride *= 2;
    }
    // Lane i of such a group has the word of load i, and a load has VECTOR words.
    // SAFETY: as the caller promises.
    unsafe { warp::warp_shuffle_idx(warp::ALL, mask, lane % vector * loads + lane / vector, 32).0 }
}

/// The positions of a tile's heads, in shared memory. The padding puts 32 words that neighbouring threads
/// write at the same time into different banks, if all positions are heads.
#[derive(Clone, Copy)]
struct List(Shared<u16>);

impl List {
    const LEN: usize = (TILE + TILE / WORD * 2) as usize;

    #[inline(always)]
    fn index(rank: u32) -> u32 {
        rank + rank / WORD * 2
    }

    /// Returns the position of head `rank`.
    ///
    /// # Safety
    ///
    /// The tile has more than `rank` heads, and their positions were written before a barrier.
    #[inline(always)]
    unsafe fn read(self, rank: u32) -> u32 {
        // SAFETY: as the caller promises.
        unsafe { self.0.read(Self::index(rank)).into() }
    }

    /// Sets the position of head `rank`.
    ///
    /// # Safety
    ///
    /// The tile has more than `rank` heads, and no other thread writes this element.
    #[inline(always)]
    unsafe fn write(self, rank: u32, position: u32) {
        // SAFETY: as the caller promises.
        unsafe { self.0.write(Self::index(rank), position as u16) }
    }
}

/// Returns the number of heads in all tiles before `tile`.
///
/// # Safety
///
/// All lanes of a warp call it together; each of these tiles has published its status, or will.
#[inline(always)]
unsafe fn count_before(status: *mut u64, tile: u32) -> u64 {
    let lane = warp::lane_id();
    let (mut end, mut sum, mut is_done) = (tile, 0, false);
    // SAFETY: as the caller promises.
    unsafe {
        while !is_done {
            intrinsics::no_unroll();
            // Several windows of 32 at a time. Looking at all tiles one window after another would take
            // longer than 2^26 keys take.
            let windows: [u64; WINDOWS] = from_fn(|window| {
                let before = lane + window as u32 * warp::WARP_SIZE;
                // Before the first tile there are no heads.
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
                // The lanes up to the nearest such status; or all lanes.
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

/// Returns the sum of the values of all lanes up to this one.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
pub(super) unsafe fn prefix_sum(mut value: u32) -> u32 {
    for stride in [1, 2, 4, 8, 16] {
        // SAFETY: as the caller promises.
        let (below, is_there) = unsafe { warp::warp_shuffle_up(warp::ALL, value, stride, 32) };
        value += if is_there { below } else { 0 };
    }
    value
}

/// The name of the kernel for a type of keys. Keys are compared for equality, so signed integers have the
/// kernels of unsigned ones.
macro_rules! name_of {
    (i8) => {
        "runs_u8"
    };
    (i16) => {
        "runs_u16"
    };
    (i32) => {
        "runs_u32"
    };
    (i64) => {
        "runs_u64"
    };
    ($type:ident) => {
        concat!("runs_", stringify!($type))
    };
}

/// The entry point for each type of keys.
#[cfg(feature = "reduce")]
macro_rules! entry_points {
    ($($type:ident)*) => {$(
        const _: () = {
            #[cuda_std::kernel(name = concat!("runs_", stringify!($type), "_256"))]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn entry(
                keys: *const $type,
                len: u64,
                heads: *mut $type,
                offsets: *mut u32,
                words: u32,
                capacity: u64,
                number: *mut u64,
                bits: *mut u64,
                state: *mut u64,
                area: u64,
            ) {
                let arguments =
                    Arguments { keys, len, heads, offsets, words, capacity, number, bits, state, area };
                // SAFETY: the host launches it as `find_runs` asks.
                unsafe { find_runs::<$type, { 16 / size_of::<$type>() }>(arguments) }
            }
        };
    )*};
}

/// With the other kernels that list, because a rebuild of one family replaces all kernels of the same shape.
#[cfg(feature = "index")]
const _: () = {
    #[cuda_std::kernel(name = "runs_u8_list_256")]
    pub unsafe fn entry(heads: *mut u64, offsets: *mut u32, words: u32, room: u64, len: u64) {
        // SAFETY: the host launches it as the function asks.
        unsafe { heads::list(Listing { heads, offsets, words, room, len }) }
    }
};

#[cfg(feature = "reduce")]
entry_points! { u8 u16 u32 u64 f16 bf16 f32 f64 }

macro_rules! entries {
    ({} $($type:ident: $($row:ident)*;)*) => {
        /// The entry points.
        pub const ENTRIES: &[&[Entry]] = &[&[
            $( Entry::new::<Kernel<$type>>(name_of!($type)), )*
            Entry::new::<heads::List>("runs_u8_list"),
        ]];
    };
}

crate::for_each_element! { entries! {} }

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! aliases {
    ({} $($type:ident: $other:ident;)*) => {
        /// The entries for key types that are aliases of others, whose kernels they use.
        pub const ALIASES: &[&[Entry]] = &[&[
            $( Entry::new::<Kernel<$type>>(name_of!($other)) ),*
        ]];
    };
}

#[cfg(not(target_arch = "nvptx64"))]
crate::for_each_alias! { aliases! {} }
