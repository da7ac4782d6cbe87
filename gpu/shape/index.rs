//! The kernels of sums by index: each item has an index, which names the sum that it is added to.
//!
//! ```text
//! add,     block b:  clears a table in shared memory, a sum for each index
//!                    adds the items of part b to the table, by atomics; lists those that are outside of the window
//!                    stores the table as table b
//! rest,    block b:  adds the listed items of part b to digits in global memory; if they are too many to
//!                    list, reads part b again for each step of bits in which some lie
//! finish,  block b:  adds up some sums of all tables, and rounds
//! ```
//!
//! Sums are integers ([`tally`](crate::op::tally)), so that no order matters. A sum in a table is words of 32
//! bits, the lowest first, because shared memory adds words of 32 bits at once. An addition carries into the
//! next word if the old value that it returns says so. Words begin in their middle, at 2^31, so that sums near
//! zero do not carry at each change of sign. If there are few indices, the table has several **copies** of each
//! sum, for lanes that would otherwise wait for each other.
//!
//! If there are more sums than a table has room for, the items are dealt to **buckets** first
//! ([`deal`](super::deal)): a bucket has the items of a range of indices, for which a table has room. A block's
//! part has items of several buckets then, and the block makes a table for each, one after another.

use crate::element::Element;
use crate::kernels::{Entry, Named, arguments};
use crate::op::exact::{Exact, NOT_MINUS_ZERO};
use crate::op::tally::{Finish, MINUS_ZERO_STEP, OfTally, Outside, SPECIAL_STEP, Tallied};
use crate::segments::unrolled;
#[allow(unused_imports)]
use crate::{bf16, f16};
use core::array::from_fn;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU32, AtomicU64, SystemAtomicU64};
use cuda_std::shared::{Shared, dynamic_shared};
use cuda_std::{intrinsics, mem, shared_array, thread, warp};

#[cfg(feature = "index")]
cuda_std::declare_dynamic_shared!();

/// Threads in a block.
pub const THREADS: u32 = 1024;

/// The most copies of a sum in a table.
pub const COPIES: u32 = 32;

/// Threads in a block of the last kernel, and the sums that it finishes if items were dealt.
pub const FINISHING: u32 = 256;

/// Sums that a block of the last kernel finishes if items were not dealt: the warps share the tables.
pub const FINISHED: u32 = warp::WARP_SIZE;

/// Items that a block lists because they are outside of the window.
pub const LIST: u32 = 511;

/// Words of a block's list: their number, and their places in the block's part.
pub const LIST_WORDS: u32 = LIST + 1;

/// Words of the state between launches, all 0: the complement of the least place of an index that is too large;
/// the steps in which items lie that are outside; blocks that have ended of the kernel that deals, and of the last
/// one.
pub const STATE: usize = 4;

/// Neighbouring items that a thread loads together.
pub(super) const VECTOR: usize = 4;

/// Returns the number of such loads that a thread has in flight, of items of `size` bytes: of larger ones there are
/// registers for one.
const fn batch(size: usize) -> u32 {
    if size > 4 { 1 } else { 2 }
}

/// Items that a block loads together; a part has a multiple of it.
pub const TILE: u64 = THREADS as u64 * VECTOR as u64;

/// Items that a block adds in the time in which it clears and stores a table for a bucket (measured on an H100).
pub const TABLE_COST: u64 = 8 * TILE;

/// A word of a table at first.
const MIDDLE: u32 = 1 << 31;

/// Returns the words of a sum in a table, with a word for the number of items if that is needed.
pub const fn words<T: Element>(is_counted: bool) -> u32 {
    <T::Wide as Tallied>::PARTS + 1 + is_counted as u32
}

/// Returns the words of 64 bits of a bit for each of `count` sums.
pub const fn rest_bits(count: usize) -> usize {
    count.div_ceil(64)
}

/// The arguments of all three kernels; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<T> {
    /// The items, aligned to their type; null if each is 1, for types of one byte.
    pub items: *const T,
    /// An index for each item, `index_words` words of 32 bits each.
    pub indices: *const u32,
    /// 1 or 2.
    pub index_words: u32,
    /// Copies of each sum in a table, a power of two up to [`COPIES`].
    pub copies: u32,
    /// 1 if the items of each sum are counted, else 0.
    pub counted: u32,
    /// Items in the input.
    pub len: u64,
    /// The number of sums; each index is less.
    pub count: u32,
    /// Blocks of the first two kernels.
    pub blocks: u32,
    /// Items of a block's part, a multiple of [`TILE`]; the last block's part may be smaller. If items were dealt, a table
    /// counts as [`TABLE_COST`] items.
    pub part: u64,
    /// Room for a table of each block, and one more for each bucket.
    pub tables: *mut u32,
    /// A bit for each sum, [`rest_bits`] words, then for each sum [`Tallied::REST`] words: all 0 between launches. The
    /// bit says whether the words are not.
    pub rest: *mut u64,
    /// [`LIST_WORDS`] for each table.
    pub lists: *mut u64,
    /// [`STATE`] words.
    pub state: *mut u64,
    /// Where the buckets' items lie, if they were dealt.
    pub buckets: Buckets,
}

arguments! {
    [T: Copy] Arguments<T>: items indices index_words copies counted len count blocks part tables rest lists state buckets
}

/// The arguments of the last kernel beside the others.
#[derive(Clone, Copy, Debug)]
pub struct Target<V> {
    /// A place for each sum.
    pub results: *mut V,
    /// Takes the least place of an index that is too large, or `u64::MAX`. If there is one, no result is
    /// written.
    pub wrong: *mut u64,
    /// 1 if the sums are added to what is there, else 0. The items must be counted: where there are none, what
    /// is there stays.
    pub onto: u32,
}

/// The kernel that adds items of type `T`, as a type.
pub type Add<T> = Named<Adds, Arguments<T>>;

/// The kernel for items that are outside of the window, as a type.
pub type Rest<T> = Named<Rests, Arguments<T>>;

/// The kernel that finishes, as a type.
pub type Finished<O, T> = Named<(O, Finishes), Arguments<T>>;

/// Names [`Add`].
pub enum Adds {}

/// Names [`Rest`].
pub enum Rests {}

/// Names [`Finished`].
pub enum Finishes {}

/// A block's table in shared memory.
#[derive(Clone, Copy)]
struct Table<const PARTS: u32> {
    words: Shared<u32>,
    /// The number of sums, times their copies.
    slots: u32,
    copies: u32,
}

impl<const PARTS: u32> Table<PARTS> {
    #[inline(always)]
    fn new(count: u32, copies: u32) -> Self {
        Self { words: dynamic_shared(), slots: count * copies, copies }
    }

    /// Sets all sums to zero, and the words after them, up to `words` words for each sum.
    ///
    /// # Safety
    ///
    /// All threads of the block call it, with a barrier before they use the table.
    #[inline(always)]
    unsafe fn clear(self, words: u32) {
        let mut at = thread::thread_idx_x();
        while at < words * self.slots {
            // SAFETY: it is in bounds.
            unsafe { self.words.write(at, if at < PARTS * self.slots { MIDDLE } else { 0 }) };
            at += THREADS;
        }
    }

    /// Returns the lane's slot of a sum.
    #[inline(always)]
    fn slot(self, index: u32) -> u32 {
        index * self.copies + (warp::lane_id() & (self.copies - 1))
    }

    /// Adds to sums, word by word, so that the additions of a word are under way together.
    ///
    /// # Safety
    ///
    /// The slots are in bounds.
    #[inline(always)]
    unsafe fn add<const N: usize>(self, slots: [u32; N], values: [impl Into<i128>; N]) {
        let values: [i128; N] = values.map(Into::into);
        let mut carries = [0u32; N];
        unrolled::<4>(|part| {
            if part as u32 >= PARTS {
                return;
            }
            let mut words = [0; N];
            unrolled::<N>(|item| {
                let (word, over) = ((values[item] >> (32 * part)) as u32).overflowing_add(carries[item]);
                (words[item], carries[item]) = (word, over.into());
            });
            // The first word is seldom 0.
            if part == 0 || words != [0; N] {
                // SAFETY: as the caller vouches; all threads use atomics.
                let add = |item: usize| unsafe {
                    self.words.fetch_add(slots[item] + part as u32 * self.slots, words[item])
                };
                let old: [u32; N] = from_fn(add);
                unrolled::<N>(|item| carries[item] += u32::from(old[item].overflowing_add(words[item]).1));
            }
        });
        // What is left is less than 2^32, for 2^32 items at most are added. Of a small negative value it is −1,
        // and a carry.
        let upper: [u32; N] =
            from_fn(|item| ((values[item] >> (32 * PARTS)) as u32).wrapping_add(carries[item]));
        if upper != [0; N] {
            unrolled::<N>(|item| {
                // SAFETY: as above.
                unsafe { self.words.fetch_add(slots[item] + PARTS * self.slots, upper[item]) };
            });
        }
    }

    /// Counts items of a sum.
    ///
    /// # Safety
    ///
    /// The slot is in bounds, and the table has a word for counts.
    #[inline(always)]
    unsafe fn count(self, slot: u32, items: u32) {
        // SAFETY: as the caller vouches; all threads use atomics.
        unsafe { self.words.fetch_add((PARTS + 1) * self.slots + slot, items) };
    }

    /// Calls `each` with each index, its sum, and the word after the sum if `is_counted`, added up over all
    /// copies.
    ///
    /// # Safety
    ///
    /// All threads of the block call it, after a barrier.
    #[inline(always)]
    unsafe fn each_sum(self, is_counted: bool, each: impl Fn(u32, i128, u32)) {
        let mut first = 0;
        while first < self.slots {
            intrinsics::no_unroll();
            let slot = first + thread::thread_idx_x();
            let (mut sum, mut items) = (0i128, 0);
            if slot < self.slots {
                // SAFETY: it is in bounds, and nobody writes.
                let word = |part: u32| unsafe { self.words.read(part * self.slots + slot) };
                sum = i128::from(word(PARTS) as i32) << (32 * PARTS);
                for part in 0..PARTS {
                    sum += (i128::from(word(part)) - i128::from(MIDDLE)) << (32 * part);
                }
                if is_counted {
                    items = word(PARTS + 1);
                }
            }
            let mut lanes = 1;
            while lanes < self.copies {
                intrinsics::no_unroll();
                // SAFETY: all lanes are here.
                unsafe {
                    sum += warp::warp_shuffle_xor(warp::ALL, Words::of(sum), lanes, 32).0.value();
                    if is_counted {
                        items += warp::warp_shuffle_xor(warp::ALL, items, lanes, 32).0;
                    }
                }
                lanes *= 2;
            }
            if slot < self.slots && slot & (self.copies - 1) == 0 {
                each(slot >> self.copies.trailing_zeros(), sum, items);
            }
            first += THREADS;
        }
    }
}

/// An integer of 128 bits, as shuffles move it.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Words([u64; 2]);

impl Words {
    #[inline(always)]
    fn of(value: i128) -> Self {
        Self([value as u64, (value >> 64) as u64])
    }

    #[inline(always)]
    fn value(self) -> i128 {
        i128::from(self.0[0]) | i128::from(self.0[1]) << 64
    }
}

/// The items of a block's part.
#[derive(Clone, Copy)]
pub(super) struct Part<T> {
    pub items: *const T,
    pub indices: *const u32,
    pub index_words: u32,
    pub is_ones: bool,
    /// The part's first item in the input.
    pub start: u64,
    pub len: u32,
}

/// Neighbouring items: their indices, which are [`NONE`](Self::NONE) for items that there are not, and for
/// indices that are too large.
#[derive(Clone, Copy)]
pub(super) struct Load<T> {
    pub indices: [u32; VECTOR],
    pub items: [T; VECTOR],
}

impl<T: Element> Load<T> {
    pub const NONE: u32 = u32::MAX;

    /// No items.
    #[inline(always)]
    pub fn none() -> Self {
        Self { indices: [Self::NONE; VECTOR], items: [T::zeroed(); VECTOR] }
    }
}

impl<T: Element> Part<T> {
    /// The part of `len` items from `start` on.
    #[inline(always)]
    pub fn new(items: *const T, (indices, index_words): (*const u32, u32), start: u64, len: u32) -> Self {
        Self {
            items: items.wrapping_add(start as usize),
            indices: indices.wrapping_add(start as usize * index_words as usize),
            index_words,
            is_ones: items.is_null(),
            start,
            len,
        }
    }

    /// Whether loads of several items lie at multiples of their size.
    #[inline(always)]
    pub fn is_aligned(&self) -> bool {
        self.items.addr().is_multiple_of((VECTOR * size_of::<T>()).min(16))
            && self.indices.addr().is_multiple_of(16)
    }

    /// Returns the index of an item of the part.
    ///
    /// # Safety
    ///
    /// There is such an item.
    #[inline(always)]
    pub unsafe fn index(&self, place: u32) -> u32 {
        // SAFETY: as the caller vouches.
        unsafe {
            let at = self.indices.add((place << (self.index_words - 1)) as usize);
            let upper = if self.index_words > 1 { at.add(1).read() } else { 0 };
            if upper == 0 { at.read() } else { Load::<T>::NONE }
        }
    }

    /// Returns an item of the part.
    ///
    /// # Safety
    ///
    /// There is such an item.
    #[inline(always)]
    unsafe fn item(&self, place: u32) -> T {
        if size_of::<T>() == 1 && self.is_ones {
            return T::one();
        }
        // SAFETY: as the caller vouches.
        unsafe { self.items.add(place as usize).read() }
    }

    /// Loads items from a place on.
    ///
    /// # Safety
    ///
    /// The part [is aligned](Self::is_aligned) if `is_aligned` says so, and the place a multiple of VECTOR.
    #[inline(always)]
    pub unsafe fn load(&self, place: u32, is_aligned: bool) -> Load<T> {
        let mut load = Load::none();
        // SAFETY: only items of the part are read.
        unsafe {
            if is_aligned && place + VECTOR as u32 <= self.len {
                if self.index_words == 1 {
                    return self.load_aligned(place);
                }
                let at = self.indices.add((place * self.index_words) as usize);
                let [a, b]: [[[u32; 2]; 2]; 2] =
                    [mem::load_16_bytes(at.cast()), mem::load_16_bytes(at.add(VECTOR).cast())];
                let short = |[low, high]: [u32; 2]| if high == 0 { low } else { Load::<T>::NONE };
                load.indices = [short(a[0]), short(a[1]), short(b[0]), short(b[1])];
                load.items = self.load_items(place);
            } else {
                for item in 0..VECTOR {
                    let place = place + item as u32;
                    if place < self.len {
                        load.indices[item] = self.index(place);
                        load.items[item] = self.item(place);
                    }
                }
            }
        }
        load
    }

    /// Loads neighbouring items, whose indices are of 32 bits.
    ///
    /// # Safety
    ///
    /// The part [is aligned](Self::is_aligned), the place a multiple of VECTOR, and the items are there.
    #[inline(always)]
    pub unsafe fn load_aligned(&self, place: u32) -> Load<T> {
        // SAFETY: as the caller vouches.
        unsafe {
            let indices = mem::load_16_bytes(self.indices.add(place as usize).cast());
            Load { indices, items: self.load_items(place) }
        }
    }

    /// # Safety
    ///
    /// As for [`load_aligned`](Self::load_aligned).
    #[inline(always)]
    unsafe fn load_items(&self, place: u32) -> [T; VECTOR] {
        let at = self.items.wrapping_add(place as usize);
        // SAFETY: as the caller vouches.
        unsafe {
            match size_of::<T>() {
                // Nothing to count but bytes.
                1 if self.is_ones => [T::one(); VECTOR],
                8 => {
                    let [a, b]: [[T; 2]; 2] =
                        [mem::load_16_bytes(at.cast()), mem::load_16_bytes(at.add(2).cast())];
                    [a[0], a[1], b[0], b[1]]
                }
                4 => mem::load_16_bytes(at.cast()),
                2 => mem::load_8_bytes(at.cast()),
                _ => mem::load_4_bytes(at.cast()),
            }
        }
    }

    /// Gives all items to `each`, as loads of neighbouring ones. All lanes of a warp call it together, also for
    /// loads without items.
    ///
    /// # Safety
    ///
    /// All threads of the block call it, as `each` asks.
    #[inline(always)]
    pub unsafe fn each_load(&self, each: &mut impl EachLoad<T>) {
        // SAFETY: as the caller vouches.
        unsafe { self.each_load_of::<THREADS>(each) }
    }

    /// The same in a block of `BLOCK` threads.
    ///
    /// # Safety
    ///
    /// As for [`each_load`](Self::each_load).
    #[inline(always)]
    pub unsafe fn each_load_of<const BLOCK: u32>(&self, each: &mut impl EachLoad<T>) {
        let (tile, batch) = const { (BLOCK * VECTOR as u32, batch(size_of::<T>())) };
        let is_aligned = self.is_aligned();
        let mut place = thread::thread_idx_x() * VECTOR as u32;
        let end = self.len.next_multiple_of(tile * batch);
        while place < end {
            intrinsics::no_unroll();
            let last = place + (batch - 1) * tile;
            // SAFETY: it is aligned as it says.
            unsafe {
                let [mut load, second] =
                    if is_aligned && self.index_words == 1 && last + VECTOR as u32 <= self.len {
                        // Without a condition between the loads, where one would wait for the other.
                        [place, last].map(|place| self.load_aligned(place))
                    } else {
                        [place, last].map(|place| self.load(place, is_aligned))
                    };
                let mut at = place;
                loop {
                    intrinsics::no_unroll();
                    each.add(at, load);
                    if at == last {
                        break;
                    }
                    (load, at) = (second, last);
                }
            }
            place += batch * tile;
        }
    }
}

/// What is done with loads of items.
pub(super) trait EachLoad<T> {
    /// Takes neighbouring items, the first of which has a place in the block's part.
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it together; as the implementation says.
    unsafe fn add(&mut self, place: u32, load: Load<T>);
}

/// Where items lie that were dealt to buckets: a table of two words of 64 bits for each bucket, its first item and its
/// number of items. The buckets follow one another.
///
/// A bucket has `1 << log2` indices. Its items' indices count from the bucket's first one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Buckets {
    /// The table; null if items were not dealt.
    pub table: *mut u64,
    /// The logarithm of a bucket's number of indices.
    pub log2: u64,
}

impl Buckets {
    /// Items were not dealt.
    pub const NONE: Self = Self { table: core::ptr::null_mut(), log2: 0 };

    /// Returns a word of a bucket.
    #[inline(always)]
    pub(super) fn word(&self, bucket: u32, word: usize) -> *mut u64 {
        self.table.wrapping_add(2 * bucket as usize + word)
    }

    /// Returns where a bucket's items begin and end in the work of all blocks, and how far that is from where they
    /// lie: before them is the work of each table so far.
    ///
    /// # Safety
    ///
    /// There is such a bucket.
    #[inline(always)]
    unsafe fn work(&self, bucket: u32) -> (u64, u64, u64) {
        // SAFETY: as the caller vouches.
        let [start, len] = [0, 1].map(|word| unsafe { self.word(bucket, word).read() });
        let of_tables = (u64::from(bucket) + 1) * TABLE_COST;
        (start + of_tables, start + of_tables + len, of_tables)
    }
}

/// What a block has for one table.
pub(super) struct Task<T> {
    pub part: Part<T>,
    /// The first of its indices, and their number.
    pub first: u32,
    pub count: u32,
    /// The number of its table and of its list.
    pub number: u32,
}

/// The tasks of a block. Without buckets it is one: the block's part. With buckets, the part is one of the
/// [work](Buckets::work) of all items and tables, and may have items of several buckets: a task each.
///
/// A task's number is the block's and the bucket's together. Both ascend, and one of them does from each task to the
/// next, so that it is the task's alone.
pub(super) struct Tasks<T> {
    items: *const T,
    indices: (*const u32, u32),
    count: u32,
    table: Buckets,
    /// The next bucket, and their number.
    bucket: u32,
    buckets: u32,
    /// The block's part.
    start: u64,
    end: u64,
}

impl<T: Element> Tasks<T> {
    /// The tasks of the block, whose share is `part` of `len` items, or of the work.
    ///
    /// # Safety
    ///
    /// The buckets are as they say.
    #[inline(always)]
    pub unsafe fn new(
        items: *const T,
        indices: (*const u32, u32),
        count: u32,
        (len, part): (u64, u64),
        table: Buckets,
    ) -> Self {
        let start = u64::from(thread::block_idx_x()) * part;
        let (mut low, mut buckets, mut end) = (0, 1, (start + part).min(len));
        if !table.table.is_null() {
            (buckets, end) = (((count - 1) >> table.log2) + 1, start + part);
            // The first bucket that ends after the part's start.
            let mut high = buckets;
            while low < high {
                intrinsics::no_unroll();
                let middle = low + (high - low) / 2;
                // SAFETY: there is this bucket.
                if unsafe { table.work(middle).1 } <= start {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
        }
        Self { items, indices, count, table, bucket: low, buckets, start: start.min(end), end }
    }

    /// Returns the next task.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new).
    #[inline(always)]
    pub unsafe fn next(&mut self) -> Option<Task<T>> {
        let &mut Self { count, table, bucket, .. } = self;
        if bucket >= self.buckets {
            return None;
        }
        let (mut start, mut end, mut before, mut first) = (self.start, self.end, 0, 0);
        if !table.table.is_null() {
            // SAFETY: there is this bucket.
            let (first_item, end_of_items, of_tables) = unsafe { table.work(bucket) };
            if first_item >= end {
                return None;
            }
            (start, before, first) = (start.max(first_item), of_tables, bucket << table.log2);
            end = end.min(end_of_items).max(start);
        }
        self.bucket += 1;
        let of_table = if table.table.is_null() { count } else { 1 << table.log2 };
        Some(Task {
            part: Part::new(self.items, self.indices, start - before, (end - start) as u32),
            first,
            count: (count - first).min(of_table),
            number: thread::block_idx_x() + bucket,
        })
    }
}

/// Adds items to a table.
struct Adding<T, const PARTS: u32> {
    table: Table<PARTS>,
    /// Whether items are counted.
    is_counted: bool,
    part: Part<T>,
    count: u32,
    state: *mut u64,
    /// The block's list, and in shared memory its length.
    list: *mut u64,
    listed: Shared<u32>,
    /// The steps in which the thread's items lie that are outside of the window.
    steps: u64,
    /// Whether the list is known to be full.
    is_full: bool,
}

impl<T: Element, const PARTS: u32> Adding<T, PARTS> {
    /// Adds items to a table that has been cleared. Then lists the block's items that are outside of the window,
    /// and notes their steps.
    ///
    /// # Safety
    ///
    /// As for [`add`]; all threads of the block call it.
    #[inline(always)]
    unsafe fn run(arguments: &Arguments<T>, Task { part, count, number, .. }: Task<T>, table: Table<PARTS>) {
        let Arguments { lists, state, .. } = *arguments;
        let listed = shared_array![u32; 4];
        let list = lists.wrapping_add(number as usize * LIST_WORDS as usize);
        // SAFETY: as the caller vouches, and barriers stand between clearing, adding and reading.
        unsafe {
            if thread::thread_idx_x() < 4 {
                listed.write(thread::thread_idx_x(), 0);
            }
            thread::sync_threads();
            let is_counted = arguments.counted != 0;
            let mut adding =
                Self { table, is_counted, part, count, state, list, listed, steps: 0, is_full: false };
            part.each_load(&mut adding);
            let steps = adding.steps;
            if T::Wide::STEP > 0 {
                // Without a condition: the compiler would make a barrier for each of its ways.
                listed.fetch_or(1, steps as u32);
                listed.fetch_or(2, (steps >> 32) as u32);
            }
            thread::sync_threads();
            if T::Wide::STEP > 0 && thread::thread_idx_x() == 0 {
                list.write(listed.read(0).into());
                let steps = u64::from(listed.read(1)) | u64::from(listed.read(2)) << 32;
                if steps != 0 {
                    AtomicU64::from_ptr(state.add(1)).fetch_or(steps, Ordering::Relaxed);
                }
            }
        }
    }

    /// Adds to sums, and to the numbers of their items.
    ///
    /// # Safety
    ///
    /// There are such sums.
    #[inline(always)]
    unsafe fn flush<const N: usize>(&self, indices: [u32; N], sums: [impl Into<i128>; N], items: [u32; N]) {
        let slots = indices.map(|index| self.table.slot(index));
        // SAFETY: as the caller vouches.
        unsafe {
            self.table.add(slots, sums);
            if self.is_counted {
                unrolled::<N>(|item| self.table.count(slots[item], items[item]));
            }
        }
    }

    /// Lists items that are outside of the window, and notes the first whose index is too large: of the load at
    /// a place, those whose bits are set. It is seldom called, and reads the items once more.
    #[inline(always)]
    fn set_aside(&mut self, place: u32, mut left: u32) {
        while left != 0 {
            intrinsics::no_unroll();
            let place = place + left.trailing_zeros();
            left &= left - 1;
            if place >= self.part.len {
                return;
            }
            // SAFETY: there is such an item, the list has room, and all threads use atomics.
            unsafe {
                if self.part.index(place) >= self.count {
                    let wrong = !(self.part.start + u64::from(place));
                    AtomicU64::from_ptr(self.state).fetch_max(wrong, Ordering::Relaxed);
                    continue;
                }
                let item = self.part.item(place).widen();
                self.steps |= item.outside().steps(T::Wide::STEP, T::Wide::DIGITS);
                if !self.is_full {
                    let number = self.listed.fetch_add(0, 1);
                    self.is_full = number >= LIST;
                    if !self.is_full {
                        self.list.add(1 + number as usize).write(place.into());
                    }
                }
            }
        }
    }
}

impl<T: Element, const PARTS: u32> EachLoad<T> for Adding<T, PARTS> {
    /// The table has been cleared, and nobody reads it.
    #[inline(always)]
    unsafe fn add(&mut self, place: u32, Load { indices, items }: Load<T>) {
        let none = <T::Wide as Tallied>::Sum::default();
        let (mut sums, mut of_item, mut aside, mut is_one) = ([none; VECTOR], [0; VECTOR], 0, true);
        // An item whose index is too large adds nothing to the first sum.
        let mut at = [0; VECTOR];
        unrolled::<VECTOR>(|item| {
            let addend = items[item].widen().addend();
            if indices[item] < self.count {
                (at[item], sums[item], of_item[item]) = (indices[item], addend.unwrap_or(none), 1);
            }
            if indices[item] >= self.count || addend.is_none() {
                aside |= 1 << item;
            }
            is_one &= indices[item] == indices[0];
        });
        is_one &= indices[0] < self.count;
        // SAFETY: all lanes are here; the indices have been checked.
        unsafe {
            let (first, _) = warp::warp_shuffle_idx(warp::ALL, indices[0], 0, 32);
            let is_one_of_warp = warp::warp_vote_all(warp::ALL, is_one && indices[0] == first);
            if is_one {
                let mut sum = none;
                unrolled::<VECTOR>(|item| sum += sums[item]);
                let (mut sum, mut items, mut lanes) = (sum.into(), VECTOR as u32, warp::WARP_SIZE / 2);
                // The warp adds its items up first.
                while is_one_of_warp && lanes > 0 {
                    intrinsics::no_unroll();
                    sum += warp::warp_shuffle_xor(warp::ALL, Words::of(sum), lanes, 32).0.value();
                    items *= 2;
                    lanes /= 2;
                }
                if !is_one_of_warp || warp::lane_id() == 0 {
                    self.flush([at[0]], [sum], [items]);
                }
            } else if aside != (1 << VECTOR) - 1 || self.is_counted {
                self.flush(at, sums, of_item);
            }
        }
        if aside != 0 {
            self.set_aside(place, aside);
        }
    }
}

/// Adds up the items of each block's part.
///
/// # Safety
///
/// The launch has `arguments.blocks` blocks of [`THREADS`], with shared memory for a table. The pointers are
/// valid as [`Arguments`] says, and nothing else accesses what they point to meanwhile, other than to read items
/// and indices. PARTS are those of the type.
#[inline(always)]
pub unsafe fn add<T: Element, const PARTS: u32>(arguments: Arguments<T>) {
    const { assert!(PARTS == <T::Wide as Tallied>::PARTS) };
    let Arguments { items, indices, index_words, copies, tables, len, part, buckets, count: all, .. } =
        arguments;
    let (is_counted, words) = (arguments.counted != 0, words::<T>(arguments.counted != 0));
    let of_table = if buckets.table.is_null() { all } else { 1 << buckets.log2 } as usize;
    // SAFETY: all threads of the block are here, and barriers stand between clearing, adding and reading.
    unsafe {
        let mut tasks = Tasks::new(items, (indices, index_words), all, (len, part), buckets);
        while let Some(task) = tasks.next() {
            intrinsics::no_unroll();
            if task.part.len == 0 && !buckets.table.is_null() {
                continue;
            }
            let table = Table::<PARTS>::new(task.count, copies);
            let to = tables.wrapping_add(task.number as usize * words as usize * of_table);
            let to = |word: u32, index: u32| to.wrapping_add(word as usize * of_table + index as usize);
            table.clear(words);
            Adding::<T, PARTS>::run(&arguments, task, table);
            table.each_sum(is_counted, |index, sum, items| {
                for word in 0..=PARTS {
                    to(word, index).write((sum >> (32 * word)) as u32);
                }
                if is_counted {
                    to(PARTS + 1, index).write(items);
                }
            });
            thread::sync_threads();
        }
    }
}

/// Digits in global memory, for what is outside of the window.
#[derive(Clone, Copy)]
struct Digits {
    /// See [`Arguments::rest`].
    rest: *mut u64,
    /// The number of sums.
    count: u32,
    /// The sum of index 0.
    first: u32,
    /// Words for each sum.
    words: usize,
}

impl Digits {
    #[inline(always)]
    fn word(self, index: u32, digit: usize) -> *mut u64 {
        let before = rest_bits(self.count as usize) + (self.first + index) as usize * self.words;
        self.rest.wrapping_add(before + digit)
    }

    /// The word with the bit of a sum.
    #[inline(always)]
    fn bits(self, index: u32) -> *mut u32 {
        self.rest.cast::<u32>().wrapping_add((self.first + index) as usize / 32)
    }

    /// Notes that a sum has digits or flags.
    #[inline(always)]
    fn mark(self, index: u32) {
        // SAFETY: there is such a word, and all threads use atomics.
        let bits = unsafe { AtomicU32::from_ptr(self.bits(index)) };
        bits.fetch_or(1 << ((self.first + index) % 32), Ordering::Relaxed);
    }

    /// Raises flags of a sum.
    #[inline(always)]
    fn raise(self, index: u32, flags: u32) {
        let word = self.word(index, self.words - 1);
        // SAFETY: there are such words, and all threads use atomics.
        unsafe { AtomicU64::from_ptr(word).fetch_or(flags.into(), Ordering::Relaxed) };
        self.mark(index);
    }

    /// Adds to the digits of a sum, from digit `first` on.
    #[inline(always)]
    fn add(self, index: u32, first: u32, value: i128) {
        let (is_negative, mut magnitude, mut place) = (value < 0, value.unsigned_abs(), first as usize);
        if magnitude != 0 {
            self.mark(index);
        }
        while magnitude != 0 {
            intrinsics::no_unroll();
            let word = u64::from(magnitude as u32);
            let change = if is_negative { word.wrapping_neg() } else { word };
            if word != 0 {
                // SAFETY: as above.
                unsafe { AtomicU64::from_ptr(self.word(index, place)).fetch_add(change, Ordering::Relaxed) };
            }
            magnitude >>= 32;
            place += 1;
        }
    }

    /// Adds a number that is outside, and raises its flags.
    #[inline(always)]
    fn add_outside(self, index: u32, outside: Outside) {
        let Outside { magnitude, shift, is_negative, flags } = outside;
        let value = i128::from(magnitude) << (shift % 32);
        self.add(index, shift / 32, if is_negative { -value } else { value });
        if flags & !(NOT_MINUS_ZERO as u32) != 0 {
            self.raise(index, flags);
        }
    }
}

/// Adds what lies in a step of bits to a table, of items that are outside of the window.
struct AddingStep<const PARTS: u32> {
    table: Table<PARTS>,
    count: u32,
    step: u32,
}

impl<T: Element, const PARTS: u32> EachLoad<T> for AddingStep<PARTS> {
    /// The table has been cleared, and nobody reads it.
    #[inline(always)]
    unsafe fn add(&mut self, _: u32, Load { indices, items }: Load<T>) {
        unrolled::<VECTOR>(|item| {
            let wide = items[item].widen();
            if indices[item] < self.count && wide.addend().is_none() {
                let part = wide.outside().part(self.step * T::Wide::STEP, T::Wide::STEP);
                // SAFETY: the index is one of the table.
                unsafe { self.table.add([self.table.slot(indices[item])], [part]) };
            }
        });
    }
}

/// Raises the flags of each index's items.
struct Raising {
    flags: Shared<u32>,
    count: u32,
    /// The flags that matter.
    mask: u32,
}

impl<T: Element> EachLoad<T> for Raising {
    /// The flags have been cleared, and nobody reads them.
    #[inline(always)]
    unsafe fn add(&mut self, _: u32, Load { indices, items }: Load<T>) {
        unrolled::<VECTOR>(|item| {
            let flags = items[item].widen().outside().flags & self.mask;
            if indices[item] < self.count && flags != 0 {
                // SAFETY: there is a word for each index, and all threads use atomics.
                unsafe { self.flags.fetch_or(indices[item], flags) };
            }
        });
    }
}

/// Adds what is outside of the window.
///
/// # Safety
///
/// As for [`add`], which has run with the same arguments.
#[inline(always)]
pub unsafe fn rest<T: Element, const PARTS: u32>(arguments: Arguments<T>) {
    const { assert!(PARTS == <T::Wide as Tallied>::PARTS) };
    let Arguments {
        items,
        indices,
        index_words,
        copies,
        rest,
        lists,
        state,
        len,
        part,
        buckets,
        count: all,
        ..
    } = arguments;
    // SAFETY: all threads of the block are here, and barriers stand between clearing, adding and reading.
    unsafe {
        let steps = state.add(1).read();
        // Nothing is written if an index is wrong.
        if steps == 0 || state.read() != 0 {
            return;
        }
        let mut tasks = Tasks::new(items, (indices, index_words), all, (len, part), buckets);
        while let Some(Task { part, first, count, number }) = tasks.next() {
            intrinsics::no_unroll();
            if part.len == 0 {
                continue;
            }
            let table = Table::<PARTS>::new(count, copies);
            let list = lists.wrapping_add(number as usize * LIST_WORDS as usize);
            let digits = Digits { rest, count: all, first, words: T::Wide::REST };
            let listed = list.read();
            let is_listed = listed <= LIST.into();
            if is_listed {
                let mut number = thread::thread_idx_x();
                while u64::from(number) < listed {
                    intrinsics::no_unroll();
                    let place = list.add(1 + number as usize).read() as u32;
                    let outside = part.item(place).widen().outside();
                    digits.add_outside(part.index(place), outside);
                    number += THREADS;
                }
            } else {
                let mut left = steps & !(SPECIAL_STEP | MINUS_ZERO_STEP);
                while left != 0 {
                    intrinsics::no_unroll();
                    let step = left.trailing_zeros();
                    left &= left - 1;
                    thread::sync_threads();
                    table.clear(PARTS + 1);
                    thread::sync_threads();
                    part.each_load(&mut AddingStep { table, count, step });
                    thread::sync_threads();
                    table
                        .each_sum(false, |index, sum, _| digits.add(index, step * (T::Wide::STEP / 32), sum));
                }
            }
            let looks_for_others = steps & MINUS_ZERO_STEP != 0;
            if looks_for_others || (!is_listed && steps & SPECIAL_STEP != 0) {
                let mask = if looks_for_others { u32::MAX } else { !(NOT_MINUS_ZERO as u32) };
                thread::sync_threads();
                let mut at = thread::thread_idx_x();
                while at < count {
                    table.words.write(at, 0);
                    at += THREADS;
                }
                thread::sync_threads();
                part.each_load(&mut Raising { flags: table.words, count, mask });
                thread::sync_threads();
                let mut at = thread::thread_idx_x();
                while at < count {
                    let flags = table.words.read(at);
                    if flags != 0 {
                        digits.raise(at, flags);
                    }
                    at += THREADS;
                }
            }
            thread::sync_threads();
        }
    }
}

/// Finishes by an operator.
struct ByOp<O, T>(u64, PhantomData<fn() -> (O, T)>);

impl<O: OfTally<T>, T: Element> Finish<O::Output> for ByOp<O, T> {
    #[inline(always)]
    fn finish(self, sum: &impl Exact, low: i32) -> O::Output {
        O::of_tally(sum, low, self.0)
    }
}

/// Adds up all tables, and stores the results.
///
/// # Safety
///
/// As for [`add`]; it and [`rest`] have run with the same arguments. The launch has blocks of [`FINISHING`] threads,
/// each of which finishes [`FINISHED`] sums at a time; if items were dealt, [`FINISHING`]. There are the places of [`Target`], and
/// nothing else accesses them meanwhile.
#[inline(always)]
pub unsafe fn finish<O: OfTally<T>, T: Element>(arguments: Arguments<T>, target: Target<O::Output>) {
    const TABLES: usize = 4;
    const WARPS: u32 = FINISHING / warp::WARP_SIZE;
    let Arguments { counted, count, blocks, part, tables, rest, state, ref buckets, .. } = arguments;
    let Target { results, wrong, onto } = target;
    let parts = const { <T::Wide as Tallied>::PARTS };
    let words = parts + 1 + counted;
    let (lane, mine) = (warp::lane_id(), thread::thread_idx_x());
    // If items were dealt, a sum a thread; else a sum a lane, and warps share the tables.
    let is_dealt = !buckets.table.is_null();
    let of_block = if is_dealt { FINISHING } else { FINISHED };
    let sums = shared_array![u64; 2 * FINISHING as usize];
    let counts = shared_array![u64; FINISHING as usize];
    let (warp, step) = (mine / warp::WARP_SIZE, if is_dealt { 1 } else { WARPS });
    let mut first_sum = thread::block_idx_x() * of_block;
    // SAFETY: all threads of the block are here, and barriers stand between accesses by different threads.
    unsafe {
        let (is_wrong, steps) = (state.read() != 0, state.add(1).read());
        while first_sum < count {
            intrinsics::no_unroll();
            let index = first_sum + if is_dealt { mine } else { lane };
            let is_there = index < count;
            let (mut sum, mut items) = (0i128, 0u64);
            let (mut first, mut end, mut at_in_table, mut of_table) = (warp, blocks, index, count);
            if is_dealt {
                let bucket = index.min(count - 1) >> buckets.log2;
                let (start, end_of_items, _) = buckets.work(bucket);
                if start < end_of_items {
                    first = bucket + start as u32 / (part as u32).max(1);
                    end = bucket + (end_of_items - 1) as u32 / (part as u32).max(1) + 1;
                } else {
                    (first, end) = (0, 0);
                }
                (at_in_table, of_table) = (index & ((1 << buckets.log2) - 1), 1 << buckets.log2);
            }
            while is_there && first < end {
                intrinsics::no_unroll();
                let mut of_tables = [[0; 5]; TABLES];
                unrolled::<TABLES>(|place| {
                    let table = first + place as u32 * step;
                    if table < end {
                        let word = |word: u32| {
                            let at = (table as usize * words as usize + word as usize) * of_table as usize;
                            tables.wrapping_add(at + at_in_table as usize).read()
                        };
                        for part in 0..=parts {
                            of_tables[place][part as usize] = word(part);
                        }
                        if counted != 0 {
                            of_tables[place][4] = word(parts + 1);
                        }
                    }
                });
                unrolled::<TABLES>(|place| {
                    let of_table = of_tables[place];
                    if first + place as u32 * step < end {
                        sum += i128::from(of_table[parts as usize] as i32) << (32 * parts);
                        for part in 0..parts {
                            sum += i128::from(of_table[part as usize]) << (32 * part);
                        }
                        items += u64::from(of_table[4]);
                    }
                });
                first += TABLES as u32 * step;
            }
            let mut half = if is_dealt { 0 } else { FINISHING / 2 };
            while half > 0 {
                intrinsics::no_unroll();
                sums.write(2 * mine, sum as u64);
                sums.write(2 * mine + 1, (sum >> 64) as u64);
                counts.write(mine, items);
                thread::sync_threads();
                if mine < half {
                    let other = mine + half;
                    sum += Words([sums.read(2 * other), sums.read(2 * other + 1)]).value();
                    items += counts.read(other);
                }
                thread::sync_threads();
                half = if half > warp::WARP_SIZE { half / 2 } else { 0 };
            }
            let digits = Digits { rest, count, first: 0, words: T::Wide::REST };
            let mut has_rest = false;
            if steps != 0 && (warp == 0 || is_dealt) {
                // A warp has the sums of a word of bits.
                if is_there {
                    has_rest = digits.bits(index).read() >> (index % 32) & 1 != 0;
                }
                warp::sync_warp(warp::ALL);
                if is_there && lane == 0 {
                    digits.bits(index).write(0);
                }
            }
            if (warp == 0 || is_dealt) && is_there {
                let place = results.wrapping_add(index as usize);
                let word = |digit: usize| digits.word(index, digit);
                let mut before = None;
                if onto != 0 && size_of::<O::Output>() == size_of::<T::Wide>() {
                    // The result of a sum is of this type.
                    let value = place.cast::<T::Wide>().read();
                    match value.addend() {
                        Some(addend) => sum += addend.into(),
                        None => before = Some(value.outside()),
                    }
                }
                let then = ByOp::<O, T>(items, PhantomData);
                let result = if !has_rest && before.is_none() {
                    then.finish(&sum, T::Wide::LOW)
                } else {
                    let digit = |digit: usize| {
                        let value = if has_rest { word(digit).read() } else { 0 };
                        let before = before.map_or(0, |before| before.digit(digit, T::Wide::REST));
                        if digit + 1 < T::Wide::REST {
                            return value.wrapping_add(before);
                        }
                        // If there is no −0.0, nobody has looked for other items.
                        value | before | if steps & MINUS_ZERO_STEP == 0 { NOT_MINUS_ZERO } else { 0 }
                    };
                    T::Wide::with_rest(sum, digit, then)
                };
                if !is_wrong && (onto == 0 || items > 0) {
                    place.write(result);
                }
                if has_rest {
                    for digit in 0..T::Wide::REST {
                        intrinsics::no_unroll();
                        word(digit).write(0);
                    }
                }
            }
            first_sum += thread::grid_dim_x() * of_block;
        }
        thread::sync_threads();
        if mine == 0 {
            let ended = AtomicU64::from_ptr(state.add(3)).fetch_add(1, Ordering::AcqRel);
            if ended + 1 == u64::from(thread::grid_dim_x()) {
                let complement = AtomicU64::from_ptr(state).load(Ordering::Relaxed);
                SystemAtomicU64::from_ptr(wrong).store(!complement, Ordering::Relaxed);
                for word in 0..STATE {
                    AtomicU64::from_ptr(state.add(word)).store(0, Ordering::Relaxed);
                }
            }
        }
    }
}

/// The entry points: those that add, for each type, and for floats those for what is outside; those that finish,
/// for each type of sums.
#[cfg(feature = "index")]
macro_rules! entry_points {
    ({} $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {$(
        entry_points! { @add $type }
        entry_points! { @rest $kind $type }
    )*};
    (@add $type:ident) => {
        entry_points! {
            @kernel concat!("sum_", stringify!($type), "_index_1024"), $type, [] |arguments|
            add::<$type, { <<$type as Element>::Wide as Tallied>::PARTS }>(arguments)
        }
    };
    (@rest integer $type:ident) => {};
    (@rest float $type:ident) => {
        entry_points! {
            @kernel concat!("sum_", stringify!($type), "_rest_1024"), $type, [] |arguments|
            rest::<$type, { <<$type as Element>::Wide as Tallied>::PARTS }>(arguments)
        }
    };
    (@finish $($name:literal $op:ident $type:ident)*) => {$(
        entry_points! { @finishing concat!($name, "_", stringify!($type), "_finish_256") => $op $type }
    )*};
    (@finishing $name:expr => $op:ident $type:ident) => {
        entry_points! {
            @kernel $name, $type,
            [results: *mut <crate::op::$op as crate::Op<$type>>::Output, wrong: *mut u64, onto: u32] |arguments|
            finish::<crate::op::$op, $type>(arguments, Target { results, wrong, onto })
        }
    };
    (@kernel $name:expr, $type:ident, [$($parameter:ident: $of:ty),*] |$arguments:ident| $call:expr) => {
        const _: () = {
            #[cuda_std::kernel(name = $name)]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn entry(
                items: *const $type,
                indices: *const u32,
                index_words: u32,
                copies: u32,
                counted: u32,
                len: u64,
                count: u32,
                blocks: u32,
                part: u64,
                tables: *mut u32,
                rest: *mut u64,
                lists: *mut u64,
                state: *mut u64,
                buckets: Buckets,
                $($parameter: $of),*
            ) {
                let $arguments = Arguments {
                    items, indices, index_words, copies, counted, len, count, blocks, part, tables, rest, lists, state,
                    buckets
                };
                // SAFETY: the host launches it as the function asks.
                unsafe { $call }
            }
        };
    };
}

#[cfg(feature = "index")]
crate::for_each_element! { entry_points! {} }
#[cfg(feature = "index")]
entry_points! {
    @finish
    "sum" Sum i64 "sum" Sum u64 "sum" Sum f32 "sum" Sum f64
    "mean" Mean i64 "mean" Mean f32 "mean" Mean f64
    "exact_sum" ExactSum i64
    "exact_mean" ExactMean i64
    "center" Centers i64 "center" Centers f32 "center" Centers f64
}
#[cfg(feature = "index")]
entry_points! { @finishing "sum_f64_narrow_256" => Narrow f64 }

macro_rules! entries {
    ({} $($type:ident: $dtype:ident $kind:ident $wide:ident $($key:ident)?;)*) => {
        /// The entry points.
        pub const ENTRIES: &[&[Entry]] = &[
            $(entries! { @of $type $kind $type $wide }),*,
            &[Entry::new::<Finished<crate::op::Narrow, f64>>("sum_f64_narrow")],
        ];
    };
    ({ alias } $($type:ident: $other:ident;)*) => {
        /// The entries for types that are aliases of others, whose kernels they use.
        pub const ALIASES: &[&[Entry]] = &[$(entries! { @alias $type $other }),*];
    };
    (@alias $type:ident i64) => { entries! { @of $type integer i64 i64 } };
    (@alias $type:ident u64) => { entries! { @of $type integer u64 u64 } };
    (@of $type:ident integer $compiled:ident $wide:ident) => {
        &[
            Entry::new::<Add<$type>>(concat!("sum_", stringify!($compiled), "_index")),
            Entry::new::<Finished<crate::op::Sum, $type>>(concat!("sum_", stringify!($wide), "_finish")),
            Entry::new::<Finished<crate::op::Mean, $type>>("mean_i64_finish"),
            Entry::new::<Finished<crate::op::ExactSum, $type>>("exact_sum_i64_finish"),
            Entry::new::<Finished<crate::op::ExactMean, $type>>("exact_mean_i64_finish"),
            Entry::new::<Finished<crate::op::Centers, $type>>("center_i64_finish"),
        ]
    };
    (@of $type:ident float $compiled:ident $wide:ident) => {
        &[
            Entry::new::<Add<$type>>(concat!("sum_", stringify!($compiled), "_index")),
            Entry::new::<Rest<$type>>(concat!("sum_", stringify!($compiled), "_rest")),
            Entry::new::<Finished<crate::op::Sum, $type>>(concat!("sum_", stringify!($wide), "_finish")),
            Entry::new::<Finished<crate::op::Mean, $type>>(concat!("mean_", stringify!($wide), "_finish")),
            Entry::new::<Finished<crate::op::ExactSum, $type>>(concat!("sum_", stringify!($wide), "_finish")),
            Entry::new::<Finished<crate::op::ExactMean, $type>>(concat!("mean_", stringify!($wide), "_finish")),
            Entry::new::<Finished<crate::op::Centers, $type>>(concat!("center_", stringify!($wide), "_finish")),
        ]
    };
}

crate::for_each_element! { entries! {} }
#[cfg(not(target_arch = "nvptx64"))]
crate::for_each_alias! { entries! { alias } }
