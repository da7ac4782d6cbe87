//! Numbers the keys of items on the CPU: equal keys get one number, and numbers ascend with the keys.
//!
//! The keys choose one of three ways:
//!
//! - Keys of a small range ([`by_range`]): a bitmap has a bit for each value of the range, which is set if
//!   the value occurs. A key's number is the count of set bits below its own.
//! - Few keys ([`by_share`]): each thread numbers its share of the items by a hash table in its cache. The
//!   keys of all tables are sorted, and the shares renumbered.
//! - Many keys ([`by_partition`]): keys are dealt to partitions by their hash, so that the hash table of a
//!   partition fits in a cache.
//!
//! Hashes have a random seed, so that nobody can choose keys that collide. The result does not depend on it.

use crate::pages::zeros;
use crate::simd::with_simd;
use crate::threads;
use bytemuck::Pod;
use rayon::prelude::*;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Keys for which it is worth waking threads.
const PARALLEL: usize = 1 << 16;

/// Keys that are few: their hash table fits in the cache of a core.
const FEW: usize = 1 << 14;

/// Keys of a share that is dealt to partitions.
const SHARE: usize = 1 << 20;

/// Shares that are dealt at a time, at least.
const SHARES: usize = 16;

/// Partitions: to deal keys to more of them is slower.
const PARTITIONS: usize = 1 << PARTITION_BITS;
const PARTITION_BITS: u32 = 10;

/// The bits of a key, which ascend with its value: `u32`, `u64` or `u128`.
pub trait Bits: Pod + Ord + Default + Send + Sync {
    /// A hash of which all bits depend on all bits of the key.
    fn hash(self, seed: u64) -> u64;

    /// The distance from a lower key; of a longer one, `u64::MAX`.
    fn above(self, least: Self) -> u64;

    /// The key at a distance above this one.
    fn plus(self, distance: u64) -> Self;
}

/// The two words of a product, folded to one.
#[inline(always)]
fn folded_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The fraction of the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

macro_rules! bits {
    ($($type:ident)*) => {$(
        impl Bits for $type {
            #[inline(always)]
            fn hash(self, seed: u64) -> u64 {
                folded_product(u64::from(self) ^ seed, GOLDEN)
            }

            #[inline(always)]
            fn above(self, least: Self) -> u64 {
                (self - least).into()
            }

            #[inline(always)]
            fn plus(self, distance: u64) -> Self {
                self + distance as Self
            }
        }
    )*};
}

bits! { u32 u64 }

impl Bits for u128 {
    #[inline(always)]
    fn hash(self, seed: u64) -> u64 {
        ((self >> 64) as u64).hash((self as u64).hash(seed))
    }

    #[inline(always)]
    fn above(self, least: Self) -> u64 {
        u64::try_from(self - least).unwrap_or(u64::MAX)
    }

    #[inline(always)]
    fn plus(self, distance: u64) -> Self {
        self + u128::from(distance)
    }
}

/// Keys with a number each.
pub struct Numbered<B> {
    /// The number of each item's key.
    pub numbers: Vec<u32>,
    /// The key of each number.
    pub keys: Vec<B>,
}

/// Numbers keys in ascending order. `get(place)` returns the key of an item. There are at most 2^31 different
/// keys.
pub fn number<B: Bits>(len: usize, get: impl Fn(usize) -> B + Sync) -> Numbered<B> {
    let mut numbers = zeros(len);
    if len == 0 {
        return Numbered { numbers, keys: Vec::new() };
    }
    let (least, greatest) = extremes(len, &get);
    let range = greatest.above(least);
    let keys = if range / 4 <= len as u64 {
        by_range(&mut numbers, &get, least, range as usize)
    } else {
        let seed = RandomState::new().hash_one(0);
        let few = if len < PARALLEL { len } else { FEW };
        by_share(&mut numbers, &get, seed, few).unwrap_or_else(|| by_partition(&mut numbers, &get, seed))
    };
    Numbered { numbers, keys }
}

impl<B: Bits> Numbered<B> {
    /// Returns the numbers, and the first item of each. If `by_place`, these order the numbers, in place of
    /// the keys.
    pub fn with_places(self, by_place: bool) -> (Vec<u32>, Vec<usize>) {
        const NOT_FOUND: u32 = u32::MAX;
        let Self { mut numbers, keys } = self;
        let (mut ranks, mut places) = (vec![NOT_FOUND; keys.len()], Vec::with_capacity(keys.len()));
        // Usually all have been found long before the last place.
        let mut items = numbers.iter().enumerate();
        while places.len() < keys.len()
            && let Some((place, &number)) = items.next()
        {
            let rank = &mut ranks[number as usize];
            if *rank == NOT_FOUND {
                *rank = places.len() as u32;
                places.push(place);
            }
        }
        if !by_place {
            let places = ranks.iter().map(|&rank| places[rank as usize]).collect();
            return (numbers, places);
        }
        let share = share_of_thread(numbers.len());
        in_shares(&mut numbers, share, |_, share| {
            share.iter_mut().for_each(|number| *number = ranks[*number as usize]);
        });
        (numbers, places)
    }
}

/// The length of a share of `len` items if each thread has a few shares.
fn share_of_thread(len: usize) -> usize {
    if len < PARALLEL { len } else { len.div_ceil(4 * threads::count()).max(PARALLEL / 4) }
}

/// Calls `work` with the first place and the numbers of each share of the items.
fn in_shares<R: Send>(
    numbers: &mut [u32],
    share: usize,
    work: impl Fn(usize, &mut [u32]) -> R + Sync,
) -> Vec<R> {
    if share >= numbers.len() {
        return vec![work(0, numbers)];
    }
    threads::map_parts(numbers, share, &|index, numbers| work(index * share, numbers))
}

/// The least and the greatest key of items, at least one.
fn extremes<B: Bits>(len: usize, get: &(impl Fn(usize) -> B + Sync)) -> (B, B) {
    let of = |places: Range<usize>| {
        let first = get(places.start);
        with_simd(
            #[inline(always)]
            || {
                places.fold((first, first), |(least, greatest), place| {
                    let key = get(place);
                    (least.min(key), greatest.max(key))
                })
            },
        )
    };
    if len < PARALLEL {
        return of(0..len);
    }
    let all =
        threads::map(len.div_ceil(PARALLEL), &|piece| of(piece * PARALLEL..len.min((piece + 1) * PARALLEL)));
    let both = |a: (B, B), b: (B, B)| (a.0.min(b.0), a.1.max(b.1));
    all.into_iter().reduce(both).expect("there are items")
}

/// Numbers keys of which none is more than `range` above the least one. Returns the keys.
fn by_range<B: Bits>(
    numbers: &mut [u32],
    get: &(impl Fn(usize) -> B + Sync),
    least: B,
    range: usize,
) -> Vec<B> {
    let share = share_of_thread(numbers.len());
    let bitmap: Vec<_> = (0..=range / 64).map(|_| AtomicU64::new(0)).collect();
    in_shares(numbers, share, |first, numbers| {
        for place in first..first + numbers.len() {
            let value = get(place).above(least) as usize;
            let (word, bit) = (&bitmap[value / 64], 1 << (value % 64));
            // A bit that is set already is only read: threads can share its cache line.
            if word.load(Relaxed) & bit == 0 {
                word.fetch_or(bit, Relaxed);
            }
        }
    });
    let (mut keys, mut words) = (Vec::new(), Vec::with_capacity(bitmap.len()));
    for (index, word) in bitmap.into_iter().enumerate() {
        let mut bits = word.into_inner();
        words.push((bits, keys.len() as u32));
        while bits != 0 {
            keys.push(least.plus(64 * index as u64 + u64::from(bits.trailing_zeros())));
            bits &= bits - 1;
        }
    }
    in_shares(numbers, share, |first, numbers| {
        with_simd(
            #[inline(always)]
            || {
                for (place, number) in (first..).zip(numbers) {
                    let value = get(place).above(least) as usize;
                    let (bits, before) = words[value / 64];
                    *number = before + (bits & ((1 << (value % 64)) - 1)).count_ones();
                }
            },
        );
    });
    keys
}

/// A hash table of keys, which are numbered in the order in which they come.
struct Table<B> {
    seed: u64,
    /// A power of two of keys, each with its number plus one; 0 if the slot is empty.
    slots: Vec<(B, u32)>,
    /// The keys by their number, at most half as many as there are slots.
    keys: Vec<B>,
}

impl<B: Bits> Table<B> {
    fn new(seed: u64) -> Self {
        Self { seed, slots: vec![(B::default(), 0); 16], keys: Vec::new() }
    }

    /// Returns the number of a key, which is added if it is new.
    #[inline(always)]
    fn number(&mut self, key: B, hash: u64) -> u32 {
        let mut place = hash as usize;
        loop {
            place &= self.slots.len() - 1;
            // SAFETY: the number of slots is a power of two, so the masked place is below it.
            let &(other, number) = unsafe { self.slots.get_unchecked(place) };
            if number == 0 {
                return self.add(key, place);
            }
            if other == key {
                return number - 1;
            }
            place += 1;
        }
    }

    /// Adds a key that belongs in an empty slot.
    #[cold]
    fn add(&mut self, key: B, place: usize) -> u32 {
        self.keys.push(key);
        self.slots[place] = (key, self.keys.len() as u32);
        if 2 * self.keys.len() > self.slots.len() {
            self.slots = vec![(B::default(), 0); 4 * self.slots.len()];
            let mask = self.slots.len() - 1;
            for (key, number) in self.keys.iter().zip(1..) {
                let mut place = key.hash(self.seed) as usize & mask;
                while self.slots[place].1 != 0 {
                    place = (place + 1) & mask;
                }
                self.slots[place] = (*key, number);
            }
        }
        self.keys.len() as u32 - 1
    }
}

/// Sorts different keys. Returns them, and for each of the given ones its place in their order.
fn ranked<K: Copy + Ord + Send + Sync>(keys: Vec<K>) -> (Vec<K>, Vec<u32>) {
    let mut pairs: Vec<_> = keys.into_iter().zip(0u32..).collect();
    let mut ranks = vec![0; pairs.len()];
    if pairs.len() < PARALLEL {
        pairs.sort_unstable();
    } else {
        threads::install(|| pairs.par_sort_unstable());
    }
    let sorted = pairs.iter().zip(0..).map(|(&(key, number), rank)| {
        ranks[number as usize] = rank;
        key
    });
    (sorted.collect(), ranks)
}

/// Numbers keys if no share of the items has more than `few` different ones. Returns the keys.
fn by_share<B: Bits>(
    numbers: &mut [u32],
    get: &(impl Fn(usize) -> B + Sync),
    seed: u64,
    few: usize,
) -> Option<Vec<B>> {
    let keys_of_share = |first: usize, numbers: &mut [u32]| {
        let mut table = Table::new(seed);
        for (place, number) in (first..).zip(numbers) {
            let key = get(place);
            *number = table.number(key, key.hash(seed));
            if table.keys.len() > few {
                return None;
            }
        }
        Some(table.keys)
    };
    let share = share_of_thread(numbers.len());
    let shares: Option<Vec<_>> = in_shares(numbers, share, keys_of_share).into_iter().collect();
    let mut all = Table::new(seed);
    let mut number_in_all = |key: B| all.number(key, key.hash(seed));
    let mut shares: Vec<Vec<_>> =
        shares?.into_iter().map(|keys| keys.into_iter().map(&mut number_in_all).collect()).collect();
    let (keys, ranks) = ranked(all.keys);
    shares.iter_mut().flatten().for_each(|number| *number = ranks[*number as usize]);
    in_shares(numbers, share, |first, numbers| {
        let ranks = &shares[first / share];
        numbers.iter_mut().for_each(|number| *number = ranks[*number as usize]);
    });
    Some(keys)
}

/// Numbers any number of keys. Returns the keys.
///
/// ```text
/// for each slab of the items:
///     each share: deal its keys, so that those of a partition lie side by side
///     each partition: number its keys in all shares by its table
/// sort the keys of all tables
/// each share: renumber its keys, and take them back to their places
/// ```
///
/// In the meantime the numbers of a share lie as its dealt keys did.
fn by_partition<B: Bits>(numbers: &mut [u32], get: &(impl Fn(usize) -> B + Sync), seed: u64) -> Vec<B> {
    let partition = |key: B| (key.hash(seed) >> (64 - PARTITION_BITS)) as usize;
    let mut tables: Vec<_> = (0..PARTITIONS).map(|_| Table::new(seed)).collect();
    // Where the partitions of each share begin, and the last one ends.
    let mut starts: Vec<Vec<u32>> = Vec::new();
    let slab = SHARE * SHARES.max(threads::count());
    let mut dealt: Vec<B> = zeros(slab.min(numbers.len()));
    for (index, numbers) in numbers.chunks_mut(slab).enumerate() {
        let dealt = &mut dealt[..numbers.len()];
        let deal = |share: usize, dealt: &mut [B]| {
            let first = index * slab + share * SHARE;
            let keys = || (first..first + dealt.len()).map(get);
            // Counts are two places further: after their sum, and after each key has moved the place of the
            // next one, the first places are the starts.
            let mut starts = vec![0; PARTITIONS + 2];
            keys().for_each(|key| starts[partition(key) + 2] += 1);
            (1..starts.len()).for_each(|partition| starts[partition] += starts[partition - 1]);
            for key in keys() {
                let next = &mut starts[partition(key) + 1];
                dealt[*next as usize] = key;
                *next += 1;
            }
            starts
        };
        let shares = threads::map_parts(dealt, SHARE, &deal);
        // SAFETY: atomics have the layout of integers, and are not used otherwise meanwhile.
        let numbers = unsafe { &*(&raw mut *numbers as *const [AtomicU32]) };
        let number = |partition: usize, table: &mut [Table<B>]| {
            for (share, starts) in shares.iter().enumerate() {
                let [start, end] = [partition, partition + 1].map(|at| share * SHARE + starts[at] as usize);
                for (&key, number) in dealt[start..end].iter().zip(&numbers[start..end]) {
                    number.store(table[0].number(key, key.hash(seed)), Relaxed);
                }
            }
        };
        threads::each_part(&mut tables, 1, &number);
        starts.extend(shares);
    }
    drop(dealt);
    let mut keys = Vec::new();
    let mut firsts = Vec::with_capacity(PARTITIONS);
    for table in tables {
        firsts.push(keys.len());
        keys.extend(table.keys);
    }
    let (keys, ranks) = ranked(keys);
    in_shares(numbers, SHARE, |first, numbers| {
        let mut starts = starts[first / SHARE].clone();
        let mut renumbered = Vec::with_capacity(numbers.len());
        for (partition, &first) in firsts.iter().enumerate() {
            let numbers = &numbers[starts[partition] as usize..starts[partition + 1] as usize];
            renumbered.extend(numbers.iter().map(|&number| ranks[first + number as usize]));
        }
        for (place, number) in (first..).zip(numbers) {
            let next = &mut starts[partition(get(place))];
            *number = renumbered[*next as usize];
            *next += 1;
        }
    });
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    /// Numbers by sorting, with the first item of each number: in ascending order, and by appearance.
    fn expected<B: Bits>(items: &[B]) -> [(Vec<u32>, Vec<usize>); 2] {
        let mut keys = items.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let ranks: Vec<_> = items.iter().map(|key| keys.binary_search(key).unwrap()).collect();
        let mut places = vec![usize::MAX; keys.len()];
        ranks.iter().enumerate().rev().for_each(|(place, &rank)| places[rank] = place);
        let mut sorted = places.clone();
        sorted.sort_unstable();
        let by_place = ranks.iter().map(|&rank| sorted.binary_search(&places[rank]).unwrap() as u32);
        let by_place = (by_place.collect(), sorted);
        [(ranks.into_iter().map(|rank| rank as u32).collect(), places), by_place]
    }

    fn check<B: Bits + Debug>(items: &[B], case: &str) {
        let [ascending, by_place] = expected(items);
        let get = |place| items[place];
        assert!(number(items.len(), get).with_places(false) == ascending, "{case}");
        assert!(number(items.len(), get).with_places(true) == by_place, "{case}, by place");
        if items.is_empty() {
            return;
        }
        let mut numbers = vec![0; items.len()];
        let keys = by_partition(&mut numbers, &get, 7);
        assert!(Numbered { numbers, keys }.with_places(false) == ascending, "{case}, by partition");
        let mut numbers = vec![0; items.len()];
        let keys = by_share(&mut numbers, &get, 7, items.len()).unwrap();
        assert!(Numbered { numbers, keys }.with_places(false) == ascending, "{case}, by share");
    }

    fn check_types(len: usize, key: impl Fn(u64) -> u64, case: &str) {
        let items: Vec<_> = (0..len as u64).map(key).collect();
        check(&items, &format!("{len} u64, {case}"));
        let singles: Vec<_> = items.iter().map(|&key| key as u32).collect();
        check(&singles, &format!("{len} u32, {case}"));
        for shift in [0, 3, 64] {
            let wide: Vec<_> = items.iter().map(|&key| u128::from(key) << shift).collect();
            check(&wide, &format!("{len} u128 << {shift}, {case}"));
        }
    }

    fn random(place: u64) -> u64 {
        folded_product(place ^ 0x5eed_5eed_5eed_5eed, GOLDEN)
    }

    #[test]
    fn keys_of_every_distribution() {
        for len in [0, 1, 2, 63, 1000, PARALLEL - 1, PARALLEL, 200_001] {
            check_types(len, |_| 5, "all equal");
            check_types(len, |_| u64::MAX, "all the greatest");
            check_types(len, |place| place, "ascending");
            check_types(len, |place| u64::MAX - place, "descending from the greatest");
            check_types(len, random, "all different");
            check_types(len, |place| random(place) % 10, "ten");
            check_types(len, |place| random(random(place) % 3000), "thousands, far apart");
            check_types(len, |place| (place % 30_011) << 40, "low bits are zero");
            check_types(len, |place| place % 2 * u64::MAX, "least and greatest");
            check_types(len, |place| place * place * place, "cubes");
        }
    }

    #[test]
    fn several_shares_of_many_keys() {
        let items: Vec<_> = (0..SHARE as u64 * 2 + 77).map(|place| random(random(place) % 100_000)).collect();
        check(&items, "several shares");
    }

    #[test]
    fn a_hot_key_among_many() {
        let items: Vec<_> =
            (0..300_000).map(|place| if place % 2 == 0 { 9 } else { random(place) }).collect();
        check(&items, "half of the keys are equal");
    }
}
