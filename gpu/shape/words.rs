//! The kernels that reduce by index, in any order of the items, to a word for each result: extremes, their
//! places, bits, tests and counts.
//!
//! ```text
//! offer,   block b:  makes a word of each item of part b, and combines it with the word of its index in a table in
//!                    shared memory; then combines each word of the table with the result's word in global memory.
//!                    If there is no room for a table, items' words are combined with results' words at once
//! finish:  makes a result of each word, and sets the word to 0
//! ```
//!
//! A [`Rule`] says what the word of an item is, how words combine, and what a word's result is. It is an
//! argument, the same for all threads, so that one kernel serves all operators and all types of one size. A
//! word is read before it is written if most items change nothing: so few atomics wait for each other,
//! whatever the indices are.
//!
//! The word of a **place** has the item's rank above the complement of the place: the greatest rank wins, and
//! of equal ones the first. If the two do not fit, there are two passes: the first finds the greatest rank of
//! each index, and the second the first place that has it.
//!
//! If there are more results than a table has room for, the items are [dealt](super::deal) to buckets first, as they
//! are for sums; but for places, which a dealt item does not know.

use super::index::{Buckets, EachLoad, FINISHING, Load, Part, THREADS, Task, Tasks, VECTOR};
use crate::Element;
use crate::kernels::{Entry, Named, arguments};
use crate::segments::unrolled;
use core::array::from_fn;
use core::sync::atomic::Ordering::Relaxed;
use cuda_std::atomic::{AtomicU32, AtomicU64, BlockAtomicU32, BlockAtomicU64};
use cuda_std::shared::{Shared, dynamic_shared};
use cuda_std::{intrinsics, thread, warp};
use num_traits::PrimInt;

#[cfg(not(target_arch = "nvptx64"))]
mod rules;
#[cfg(not(target_arch = "nvptx64"))]
pub use rules::{Rules, Words, bits_of};

/// Words of the state, all 0 before the first kernel: the complement of the least place of an index that is
/// too large, and that of the least index without a result.
pub const STATE: usize = 2;

/// How an item becomes a word, words combine, and a word becomes a result.
///
/// An item's bits become a **rank**, which orders as the items do, or opposite to them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Rule {
    /// Of floats all bits but the sign, else 0: they are flipped in negative items, so that the bits order.
    magnitude: u64,
    /// An item of which these bits are greater is a NaN.
    infinity: u64,
    /// The rank of a NaN.
    nan: u64,
    /// The bits of a result that is a NaN.
    canonical: u64,
    /// Then these bits are flipped.
    flip: u64,
    /// The least and the greatest rank that pass the test.
    range: [u64; 2],
    /// 1 if the ranks outside of the range pass instead, else 0.
    is_outside: u32,
    /// What the result is.
    pub kind: Kind,
}

/// What the result of an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The item of the greatest rank.
    Greatest,
    /// Its place, which fits in a word with the rank.
    Packed,
    /// Its place, found in two passes.
    Place,
    /// The bits that are set in any rank.
    Or,
    /// The bits that are set in an odd number of ranks.
    Xor,
    /// Whether any item passes the test.
    Any,
    /// Whether no item does.
    None,
    /// The number of items that do.
    Count,
}

/// An integer with the bits of an item: `u64` of items of 8 bytes, which are long, else `u32`.
pub trait Bits: PrimInt + Into<u64> {
    /// Returns the lowest bits of a word.
    fn of(word: u64) -> Self;
}

impl Bits for u32 {
    #[inline(always)]
    fn of(word: u64) -> Self {
        word as u32
    }
}

impl Bits for u64 {
    #[inline(always)]
    fn of(word: u64) -> Self {
        word
    }
}

impl Rule {
    /// Returns the rank of an item.
    #[inline(always)]
    fn rank<B: Bits>(&self, bits: B) -> B {
        let magnitude = B::of(self.magnitude);
        let key = bits ^ if bits & (magnitude + B::one()) == B::zero() { B::zero() } else { magnitude };
        if bits & magnitude > B::of(self.infinity) { B::of(self.nan) } else { key ^ B::of(self.flip) }
    }

    /// Returns the item of a rank.
    #[inline(always)]
    fn item(&self, rank: u64) -> u64 {
        let key = rank ^ self.flip;
        let bits = if key & (self.magnitude + 1) == 0 { key } else { key ^ self.magnitude };
        if bits & self.magnitude > self.infinity { self.canonical } else { bits }
    }

    /// Whether a rank passes the test.
    #[inline(always)]
    fn passes<B: Bits>(&self, rank: B) -> bool {
        let [low, high] = self.range.map(B::of);
        ((low <= rank) & (rank <= high)) != (self.is_outside != 0)
    }

    /// Whether an item passes the test.
    #[inline(always)]
    pub(super) fn picks<B: Bits>(&self, bits: B) -> bool {
        self.passes(self.rank(bits))
    }

    /// Returns the words of neighbouring items, the first of which has this place. An index without
    /// items has the word 0. If items have 8 bytes and the greatest wins, an item of the least rank has the word 0, too.
    #[inline(always)]
    pub fn words<B: Bits, const N: usize>(&self, items: [B; N], place: u64) -> [u64; N] {
        let ranks = items.map(|item| self.rank(item));
        let wide = ranks.map(|rank| -> u64 { rank.into() });
        match self.kind {
            Kind::Greatest | Kind::Place if size_of::<B>() < 8 => wide.map(|rank| rank << 32 | 1),
            Kind::Packed => {
                from_fn(|item| wide[item] << 32 | u64::from(!(place as u32).wrapping_add(item as u32)))
            }
            Kind::Greatest | Kind::Place | Kind::Or | Kind::Xor => wide,
            Kind::Any | Kind::None | Kind::Count => ranks.map(|rank| self.passes(rank).into()),
        }
    }

    /// Combines two words.
    #[inline(always)]
    pub fn combine(&self, a: u64, b: u64) -> u64 {
        match self.kind {
            Kind::Greatest | Kind::Packed | Kind::Place => a.max(b),
            Kind::Or | Kind::Any | Kind::None => a | b,
            Kind::Xor => a ^ b,
            Kind::Count => a + b,
        }
    }

    /// Whether the greatest word wins. Then an index without items has no result.
    #[inline(always)]
    pub fn takes_greatest(&self) -> bool {
        matches!(self.kind, Kind::Greatest | Kind::Packed | Kind::Place)
    }

    /// Returns the bits of the result of a word.
    #[inline(always)]
    pub fn value(&self, word: u64, is_long: bool) -> u64 {
        match self.kind {
            Kind::Greatest if is_long => self.item(word),
            Kind::Greatest => self.item(word >> 32),
            Kind::Packed => u64::from(!(word as u32)),
            Kind::Place => !word,
            Kind::Or | Kind::Xor => word ^ self.flip,
            Kind::Any | Kind::Count => word,
            Kind::None => u64::from(word == 0),
        }
    }
}

/// Stores the lowest `bytes` bytes of a value: 1, 2, 4 or 8.
///
/// # Safety
///
/// There is room for them, aligned to as many bytes.
#[inline(always)]
pub unsafe fn store(to: *mut u8, bytes: u32, value: u64) {
    // SAFETY: as the caller vouches.
    unsafe {
        match bytes {
            1 => to.write(value as u8),
            2 => to.cast::<u16>().write(value as u16),
            4 => to.cast::<u32>().write(value as u32),
            _ => to.cast::<u64>().write(value),
        }
    }
}

/// The arguments of the kernel that offers; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<T> {
    /// The items, as unsigned integers of their size, and aligned to it.
    pub items: *const T,
    /// An index for each item, `index_words` words of 32 bits each.
    pub indices: *const u32,
    /// 1 or 2.
    pub index_words: u32,
    /// The number of results; each index is less.
    pub count: u32,
    /// Items in the input.
    pub len: u64,
    /// Items of a block's part; if items were dealt, a part of the work of all.
    pub part: u64,
    /// A word for each result, 0 between launches.
    pub words: *mut u64,
    /// A bit for each result, 0 between launches: whether it has an item of word 0. Null if that need not be
    /// known.
    pub bits: *mut u32,
    /// [`STATE`] words.
    pub state: *mut u64,
    /// In the second pass the greatest word of each index: the complements of the places of items with this
    /// word are offered. Else null.
    pub greatest: *const u64,
    /// Whether a block has room for a table in shared memory.
    pub has_table: u32,
    /// The logarithm of the number of copies of each word in the table, up to 5.
    pub log2_copies: u32,
    /// Where the buckets' items lie, if they were dealt.
    pub buckets: Buckets,
    /// What words are.
    pub rule: Rule,
}

arguments! {
    [T: Copy] Arguments<T>:
    items indices index_words count len part words bits state greatest has_table log2_copies buckets rule
}

/// The arguments of the kernel that finishes; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As in [`Arguments`].
    pub words: *mut u64,
    /// As in [`Arguments`].
    pub bits: *mut u32,
    /// As in [`Arguments`].
    pub state: *mut u64,
    /// A place for each result, `stride` bytes after the one before.
    pub results: *mut u8,
    /// The result of an index without items, if `has_default` is not 0.
    pub default: u64,
    /// The number of results.
    pub count: u32,
    /// See above.
    pub stride: u32,
    /// Bytes of a result: 1, 2, 4 or 8.
    pub bytes: u32,
    /// See above.
    pub has_default: u32,
    /// Whether items have 8 bytes.
    pub is_long: u32,
    /// What results are.
    pub rule: Rule,
}

arguments! {
    [] Target: words bits state results default count stride bytes has_default is_long rule
}

/// The kernel that offers items of as many bytes as `T`, as a type.
pub type Offer<T> = Named<Offers, Arguments<T>>;

/// The kernel that finishes, as a type.
pub type Finish = Named<Finishes, Target>;

/// Names [`Offer`].
pub enum Offers {}

/// Names [`Finish`].
pub enum Finishes {}

/// Offers items.
struct Offering<'a, T> {
    arguments: &'a Arguments<T>,
    part: Part<T>,
    /// The first index of the table, and their number.
    first: u32,
    count: u32,
    table: Shared<u64>,
}

impl<T: Element + Into<u64>> EachLoad<T> for Offering<'_, T> {
    /// The table has been cleared, and nobody reads it.
    #[inline(always)]
    unsafe fn add(&mut self, place: u32, Load { indices, items }: Load<T>) {
        let Arguments { words: all, bits, state, greatest, has_table, log2_copies, ref rule, .. } =
            *self.arguments;
        let place = self.part.start + u64::from(place);
        let items = items.map(|item| -> u64 { item.into() });
        let words = if size_of::<T>() == 8 {
            rule.words(items, place)
        } else {
            rule.words(items.map(|item| item as u32), place)
        };
        unrolled::<VECTOR>(|item| {
            let (in_table, mut word, place) = (indices[item], words[item], place + item as u64);
            let index = self.first + in_table;
            if in_table < self.count {
                // SAFETY: there is a word for each index, and all threads use atomics where others write.
                unsafe {
                    if !greatest.is_null() {
                        word = if greatest.add(index as usize).read() == word { !place } else { 0 };
                    }
                    if has_table != 0 {
                        let copy = warp::lane_id() & ((1 << log2_copies) - 1);
                        offer_to_table(rule, self.table.from(in_table << log2_copies | copy), word);
                    } else {
                        offer(rule, all.add(index as usize), word);
                    }
                    if size_of::<T>() == 8 && word == 0 && !bits.is_null() {
                        let bits = AtomicU32::from_ptr(bits.add(index as usize / 32));
                        let bit = 1 << (index % 32);
                        if bits.load(Relaxed) & bit == 0 {
                            bits.fetch_or(bit, Relaxed);
                        }
                    }
                }
            } else if place < self.part.start + u64::from(self.part.len) {
                // SAFETY: as above.
                unsafe { AtomicU64::from_ptr(state) }.fetch_max(!place, Relaxed);
            }
        });
    }
}

/// Combines a word with that of a result.
///
/// # Safety
///
/// There is such a word, and all threads use atomics.
#[inline(always)]
unsafe fn offer(rule: &Rule, to: *mut u64, word: u64) {
    // SAFETY: as the caller vouches.
    let all = unsafe { AtomicU64::from_ptr(to) };
    // Not by the `match`, which becomes a jump by a table.
    if rule.takes_greatest() {
        if all.load(Relaxed) < word {
            all.fetch_max(word, Relaxed);
        }
        return;
    }
    match rule.kind {
        Kind::Xor => {
            if word != 0 {
                all.fetch_xor(word, Relaxed);
            }
        }
        Kind::Count => {
            if word != 0 {
                all.fetch_add(word, Relaxed);
            }
        }
        _ => {
            if word & !all.load(Relaxed) != 0 {
                all.fetch_or(word, Relaxed);
            }
        }
    }
}

/// As [`offer`], to a word of a block's table. Shared memory adds and flips 32 bits at once, which suffice
/// for what a block counts.
///
/// # Safety
///
/// As for [`offer`].
#[inline(always)]
unsafe fn offer_to_table(rule: &Rule, to: Shared<u64>, word: u64) {
    let to = to.as_mut_ptr();
    // SAFETY: as the caller vouches; of one rule, all threads access words, or all access their halves.
    let (all, [low, high]) = unsafe {
        let half = |half| BlockAtomicU32::from_ptr(to.cast::<u32>().add(half));
        (BlockAtomicU64::from_ptr(to), [half(0), half(1)])
    };
    // Not by the `match`, which becomes a jump by a table.
    if rule.takes_greatest() {
        if all.load(Relaxed) < word {
            all.fetch_max(word, Relaxed);
        }
        return;
    }
    match rule.kind {
        Kind::Xor => {
            if word as u32 != 0 {
                low.fetch_xor(word as u32, Relaxed);
            }
            if word >> 32 != 0 {
                high.fetch_xor((word >> 32) as u32, Relaxed);
            }
        }
        Kind::Count => {
            if word != 0 {
                low.fetch_add(word as u32, Relaxed);
            }
        }
        _ => {
            if word & !all.load(Relaxed) != 0 {
                all.fetch_or(word, Relaxed);
            }
        }
    }
}

/// Offers the items of each block's part.
///
/// # Safety
///
/// The launch has a block of [`THREADS`] for each part, with shared memory for a table if `has_table` says
/// so. The pointers are valid as [`Arguments`] says, and nothing else accesses what they point to meanwhile,
/// other than to read items and indices.
#[inline(always)]
pub unsafe fn offer_items<T: Element + Into<u64>>(arguments: Arguments<T>) {
    let Arguments {
        items,
        indices,
        index_words,
        count,
        len,
        part,
        words,
        has_table,
        log2_copies,
        buckets,
        ..
    } = arguments;
    let table: Shared<u64> = dynamic_shared();
    // SAFETY: all threads of the block are here, and barriers stand between clearing, offering and reading.
    unsafe {
        let mut tasks = Tasks::new(items, (indices, index_words), count, (len, part), buckets);
        while let Some(Task { part, first, count, .. }) = tasks.next() {
            intrinsics::no_unroll();
            let of_table = if has_table != 0 && part.len > 0 { count << log2_copies } else { 0 };
            let mut at = thread::thread_idx_x();
            while at < of_table {
                table.write(at, 0);
                at += THREADS;
            }
            thread::sync_threads();
            part.each_load(&mut Offering { arguments: &arguments, part, first, count, table });
            thread::sync_threads();
            let mut at = thread::thread_idx_x();
            while at < of_table {
                intrinsics::no_unroll();
                offer(&arguments.rule, words.add((first + (at >> log2_copies)) as usize), table.read(at));
                at += THREADS;
            }
            thread::sync_threads();
        }
    }
}

/// Makes the results.
///
/// # Safety
///
/// Blocks have [`FINISHING`] threads. The kernel that offers has run; there are the places of [`Target`], and
/// nothing else accesses them meanwhile.
#[inline(always)]
pub unsafe fn finish(target: Target) {
    let Target { words, bits, state, results, default, count, stride, bytes, has_default, is_long, rule } =
        target;
    let lane = warp::lane_id();
    let mut first = thread::index_1d() - lane;
    // SAFETY: as the caller vouches. A warp has the results of a word of bits, and meets before it is set to
    // 0.
    unsafe {
        let is_wrong = state.read() != 0;
        while first < count {
            intrinsics::no_unroll();
            let index = first + lane;
            let mut has_zero = false;
            if !bits.is_null() {
                let of_warp = bits.add(first as usize / 32);
                has_zero = of_warp.read() >> lane & 1 != 0;
                warp::sync_warp(warp::ALL);
                if lane == 0 {
                    of_warp.write(0);
                }
            }
            if index < count {
                let word = words.add(index as usize).read();
                words.add(index as usize).write(0);
                let has_value = word != 0 || has_zero || !rule.takes_greatest();
                if is_wrong {
                    // Nothing is written.
                } else if has_value || has_default != 0 {
                    let value = if has_value { rule.value(word, is_long != 0) } else { default };
                    store(results.add(index as usize * stride as usize), bytes, value);
                } else {
                    AtomicU64::from_ptr(state.add(1)).fetch_max(!u64::from(index), Relaxed);
                }
            }
            first += thread::grid_dim_x() * FINISHING;
        }
    }
}

/// The entry points.
#[cfg(feature = "index")]
macro_rules! entry_points {
    ($($type:ident)*) => {$(
        const _: () = {
            #[cuda_std::kernel(name = concat!("words_", stringify!($type), "_offer_1024"))]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn entry(
                items: *const $type,
                indices: *const u32,
                index_words: u32,
                count: u32,
                len: u64,
                part: u64,
                words: *mut u64,
                bits: *mut u32,
                state: *mut u64,
                greatest: *const u64,
                has_table: u32,
                log2_copies: u32,
                buckets: Buckets,
                rule: Rule,
            ) {
                let arguments = Arguments {
                    items,
                    indices,
                    index_words,
                    count,
                    len,
                    part,
                    words,
                    bits,
                    state,
                    greatest,
                    has_table,
                    log2_copies,
                    buckets,
                    rule,
                };
                // SAFETY: the host launches it as the function asks.
                unsafe { offer_items(arguments) }
            }
        };
    )*};
}

#[cfg(feature = "index")]
entry_points! { u8 u16 u32 u64 }

#[cfg(feature = "index")]
const _: () = {
    #[cuda_std::kernel(name = "words_u64_finish_256")]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn entry(
        words: *mut u64,
        bits: *mut u32,
        state: *mut u64,
        results: *mut u8,
        default: u64,
        count: u32,
        stride: u32,
        bytes: u32,
        has_default: u32,
        is_long: u32,
        rule: Rule,
    ) {
        let target =
            Target { words, bits, state, results, default, count, stride, bytes, has_default, is_long, rule };
        // SAFETY: the host launches it as the function asks.
        unsafe { finish(target) }
    }
};

/// The entry points' names.
pub const ENTRIES: &[&[Entry]] = &[&[
    Entry::new::<Offer<u8>>("words_u8_offer"),
    Entry::new::<Offer<u16>>("words_u16_offer"),
    Entry::new::<Offer<u32>>("words_u32_offer"),
    Entry::new::<Offer<u64>>("words_u64_offer"),
    Entry::new::<Finish>("words_u64_finish"),
]];
