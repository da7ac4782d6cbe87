//! The kernels of extremes by index: in any order, the greatest word wins.
//!
//! ```text
//! offer,   block b:  offers the items of part b to a table of words in shared memory, then its words to the results'
//!                    words in global memory; without room for a table, offers the items to these
//! finish:  makes a result of each word, and sets it to 0
//! ```
//!
//! A word is an item's key as an unsigned integer, from the key on that loses against all others. A word is read before
//! it is written, for most items do not win: so few atomics wait for each other, whatever the indices are.

use super::index::{EachLoad, Load, Part, THREADS, VECTOR};
use crate::Element;
use crate::element::Key;
use crate::kernels::{Entry, Named, arguments};
use crate::op::extremes::Extreme;
use crate::segments::unrolled;
#[allow(unused_imports)]
use crate::{bf16, f16};
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU32, AtomicU64, BlockAtomicU64};
use cuda_std::shared::{Shared, dynamic_shared};
use cuda_std::{intrinsics, thread, warp};

/// Words of the state, all 0 before the first kernel: the complement of the least place of an index that is too large,
/// and that of the least index without a result.
pub const STATE: usize = 2;

/// Returns the word of an element: greater for what wins, and greater than 0 for keys of up to 32 bits.
#[inline(always)]
pub fn word<T: Element, const LEAST: bool, const SKIPS_NAN: bool>(element: T) -> u64 {
    let nan = if SKIPS_NAN { Extreme::<LEAST>::worst() } else { Extreme::<LEAST>::best() };
    let (key, worst) = (element.key(nan).wide(), Extreme::<LEAST>::worst::<T::Key>().wide());
    let above = if LEAST { worst.wrapping_sub(key) } else { key.wrapping_sub(worst) } as u64;
    above + if is_long::<T>() { 0 } else { 1 }
}

/// Returns the key of a word that is not that of no items.
#[inline(always)]
pub fn key<T: Element, const LEAST: bool>(word: u64) -> T::Key {
    let above = word.wrapping_sub(if is_long::<T>() { 0 } else { 1 }) as i64;
    let worst = Extreme::<LEAST>::worst::<T::Key>().wide();
    T::Key::of_wide(if LEAST { worst.wrapping_sub(above) } else { worst.wrapping_add(above) })
}

/// Whether an item may have the word 0, which is that of no items, too: then a bit tells them apart.
pub const fn is_long<T: Element>() -> bool {
    size_of::<T>() == 8
}

/// Returns the words of 32 bits of the bits of `count` results.
pub const fn bits<T: Element>(count: usize) -> usize {
    if is_long::<T>() { count.div_ceil(32) } else { 0 }
}

/// The arguments of both kernels; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<T> {
    /// The items, aligned to their type.
    pub items: *const T,
    /// An index for each item, `index_words` words of 32 bits each.
    pub indices: *const u32,
    /// 1 or 2.
    pub index_words: u32,
    /// The number of results; each index is less.
    pub count: u32,
    /// Items in the input.
    pub len: u64,
    /// Items of a block's part.
    pub part: u64,
    /// A word for each result, 0 between launches.
    pub words: *mut u64,
    /// [`bits`], 0 between launches: whether a result has an item of word 0.
    pub bits: *mut u32,
    /// [`STATE`] words.
    pub state: *mut u64,
    /// Whether a block has room for a table in shared memory.
    pub has_table: u32,
}

arguments! { [T: Copy] Arguments<T>: items indices index_words count len part words bits state has_table }

/// The arguments of the last kernel beside the others.
#[derive(Clone, Copy, Debug)]
pub struct Target<T> {
    /// A place for each result.
    pub results: *mut T,
    /// The result of an index without items, if `has_default` is not 0.
    pub default: T,
    /// See above.
    pub has_default: u32,
}

/// The kernel that offers, as a type.
pub type Offer<T, const LEAST: bool, const SKIPS_NAN: bool> = Named<Offers<LEAST, SKIPS_NAN>, Arguments<T>>;

/// The kernel that finishes, as a type.
pub type Finish<T, const LEAST: bool> = Named<Finishes<LEAST>, Arguments<T>>;

/// Names [`Offer`].
pub enum Offers<const LEAST: bool, const SKIPS_NAN: bool> {}

/// Names [`Finish`].
pub enum Finishes<const LEAST: bool> {}

/// Offers items.
struct Offering<'a, T, const LEAST: bool, const SKIPS_NAN: bool> {
    arguments: &'a Arguments<T>,
    part: Part<T>,
    table: Shared<u64>,
}

impl<T: Element, const LEAST: bool, const SKIPS_NAN: bool> EachLoad<T> for Offering<'_, T, LEAST, SKIPS_NAN> {
    /// The table has been cleared, and nobody reads it.
    #[inline(always)]
    unsafe fn add(&mut self, place: u32, Load { indices, items }: Load<T>) {
        let Arguments { count, words, bits, state, has_table, .. } = *self.arguments;
        unrolled::<VECTOR>(|item| {
            let index = indices[item];
            if index < count {
                let word = word::<T, LEAST, SKIPS_NAN>(items[item]);
                // SAFETY: there is a word for each index, and all threads use atomics.
                unsafe {
                    if has_table != 0 {
                        let winner = BlockAtomicU64::from_ptr(self.table.from(index).as_mut_ptr());
                        if winner.load(Ordering::Relaxed) < word {
                            winner.fetch_max(word, Ordering::Relaxed);
                        }
                    } else {
                        offer(words, index, word);
                    }
                    if is_long::<T>() && word == 0 {
                        let bits = AtomicU32::from_ptr(bits.add(index as usize / 32));
                        bits.fetch_or(1 << (index % 32), Ordering::Relaxed);
                    }
                }
            } else if place + (item as u32) < self.part.len {
                let wrong = !(self.part.start + u64::from(place) + item as u64);
                // SAFETY: as above.
                unsafe { AtomicU64::from_ptr(state) }.fetch_max(wrong, Ordering::Relaxed);
            }
        });
    }
}

/// Offers a word to that of a result.
///
/// # Safety
///
/// There is such a word, and all threads use atomics.
#[inline(always)]
unsafe fn offer(words: *mut u64, index: u32, word: u64) {
    // SAFETY: as the caller vouches.
    let winner = unsafe { AtomicU64::from_ptr(words.add(index as usize)) };
    if winner.load(Ordering::Relaxed) < word {
        winner.fetch_max(word, Ordering::Relaxed);
    }
}

/// Offers the items of each block's part.
///
/// # Safety
///
/// The launch has a block of [`THREADS`] for each part, with shared memory for a table if `has_table` says so. The
/// pointers are valid as [`Arguments`] says, and nothing else accesses what they point to meanwhile, other than to read
/// items and indices.
#[inline(always)]
pub unsafe fn offer_items<T: Element, const LEAST: bool, const SKIPS_NAN: bool>(arguments: Arguments<T>) {
    let Arguments { items, indices, index_words, count, len, part, words, has_table, .. } = arguments;
    let start = u64::from(thread::block_idx_x()) * part;
    let len = len.saturating_sub(start).min(part) as u32;
    let part = Part::new(items, (indices, index_words), start, len);
    let table: Shared<u64> = dynamic_shared();
    let of_table = if has_table != 0 { count } else { 0 };
    // SAFETY: all threads of the block are here, and barriers stand between clearing, offering and reading.
    unsafe {
        let mut index = thread::thread_idx_x();
        while index < of_table {
            table.write(index, 0);
            index += THREADS;
        }
        thread::sync_threads();
        part.each_load(&mut Offering::<T, LEAST, SKIPS_NAN> { arguments: &arguments, part, table });
        thread::sync_threads();
        let mut index = thread::thread_idx_x();
        while index < of_table {
            let word = table.read(index);
            if word != 0 {
                offer(words, index, word);
            }
            index += THREADS;
        }
    }
}

/// Makes the results.
///
/// # Safety
///
/// As for [`offer_items`], which has run; there are the places of [`Target`], and nothing else accesses them meanwhile.
#[inline(always)]
pub unsafe fn finish<T: Element, const LEAST: bool>(arguments: Arguments<T>, target: Target<T>) {
    let Arguments { count, words, bits, state, .. } = arguments;
    let Target { results, default, has_default } = target;
    let lane = warp::lane_id();
    let mut first = thread::index_1d() - lane;
    // SAFETY: as the caller vouches. A warp has the results of a word of bits, and meets before it is set to 0.
    unsafe {
        let is_wrong = state.read() != 0;
        while first < count {
            intrinsics::no_unroll();
            let index = first + lane;
            let mut has_zero = false;
            if is_long::<T>() {
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
                let place = results.add(index as usize);
                if is_wrong {
                    // Nothing is written.
                } else if word != 0 || has_zero {
                    place.write(T::from_key(key::<T, LEAST>(word)));
                } else if has_default != 0 {
                    place.write(default);
                } else {
                    AtomicU64::from_ptr(state.add(1)).fetch_max(!u64::from(index), Ordering::Relaxed);
                }
            }
            first += thread::grid_dim_x() * THREADS;
        }
    }
}

/// The entry points.
#[cfg(feature = "index")]
macro_rules! entry_points {
    ({} $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {$(
        entry_points! { @offer "max" $type false false }
        entry_points! { @offer "min" $type true false }
        entry_points! { @nan $kind $type }
        entry_points! { @finish "maxima" $type false }
        entry_points! { @finish "minima" $type true }
    )*};
    (@nan integer $type:ident) => {};
    (@nan float $type:ident) => {
        entry_points! { @offer "nanmax" $type false true }
        entry_points! { @offer "nanmin" $type true true }
    };
    (@offer $name:literal $type:ident $least:literal $skips:literal) => {
        entry_points! {
            @kernel concat!("extremes_", stringify!($type), "_", $name, "_1024"), $type, [] |arguments|
            offer_items::<$type, $least, $skips>(arguments)
        }
    };
    (@finish $name:literal $type:ident $least:literal) => {
        entry_points! {
            @kernel concat!("extremes_", stringify!($type), "_", $name, "_1024"), $type,
            [results: *mut $type, default: $type, has_default: u32] |arguments|
            finish::<$type, $least>(arguments, Target { results, default, has_default })
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
                count: u32,
                len: u64,
                part: u64,
                words: *mut u64,
                bits: *mut u32,
                state: *mut u64,
                has_table: u32,
                $($parameter: $of),*
            ) {
                let $arguments =
                    Arguments { items, indices, index_words, count, len, part, words, bits, state, has_table };
                // SAFETY: the host launches it as the function asks.
                unsafe { $call }
            }
        };
    };
}

#[cfg(feature = "index")]
crate::for_each_element! { entry_points! {} }

macro_rules! entries {
    ({} $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {
        /// The entry points' names.
        pub const ENTRIES: &[&[Entry]] = &[$(entries! { @of $kind $type $type }),*];
    };
    ({ alias } $($type:ident: $other:ident;)*) => {
        /// The entries for types that are aliases of others, whose kernels they use.
        pub const ALIASES: &[&[Entry]] = &[$(entries! { @of integer $type $other }),*];
    };
    // The kernels that skip NaN are the others' where there is none.
    (@of integer $type:ident $compiled:ident) => {
        entries! { @named $type $compiled "_max" "_min" }
    };
    (@of float $type:ident $compiled:ident) => {
        entries! { @named $type $compiled "_nanmax" "_nanmin" }
    };
    (@named $type:ident $compiled:ident $nanmax:literal $nanmin:literal) => {
        &[
            Entry::new::<Offer<$type, false, false>>(concat!("extremes_", stringify!($compiled), "_max")),
            Entry::new::<Offer<$type, true, false>>(concat!("extremes_", stringify!($compiled), "_min")),
            Entry::new::<Offer<$type, false, true>>(concat!("extremes_", stringify!($compiled), $nanmax)),
            Entry::new::<Offer<$type, true, true>>(concat!("extremes_", stringify!($compiled), $nanmin)),
            Entry::new::<Finish<$type, false>>(concat!("extremes_", stringify!($compiled), "_maxima")),
            Entry::new::<Finish<$type, true>>(concat!("extremes_", stringify!($compiled), "_minima")),
        ]
    };
}

crate::for_each_element! { entries! {} }
#[cfg(not(target_arch = "nvptx64"))]
crate::for_each_alias! { entries! { alias } }
