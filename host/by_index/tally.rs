//! Sums by index on the CPU.
//!
//! If the sums fit in a cache, each thread adds its shares of the items to sums of its own, which are then
//! added up. If not, items are dealt to ranges of the sums first, a slab of the input at a time, so that a
//! thread has one range in its cache.
//!
//! An item in the window is split into two integers ([`split`]), by the same steps for every item, so that
//! they become SIMD. Both are added as integers of 64 bits, exactly. Before they can overflow, they are
//! carried to integers of 128 bits.

use super::indices::Index;
use crate::cpu::Source;
use crate::simd::with_avx2;
use crate::{Element, threads};
use gpu_reduce_kernels::op::exact::Exact;
use gpu_reduce_kernels::op::tally::{Finish, MINUS_ZERO, OTHERS, OfTally, Outside, Tallied};
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Items for which it is worth waking threads.
const PARALLEL: usize = 1 << 16;

/// Sums that fit in the cache of a core.
const CACHED: usize = 1 << 14;

/// Sums of all threads that fit in the cache that cores share.
const SHARED: usize = 1 << 21;

/// Items of a share that is dealt to ranges.
const SHARE: usize = 1 << 19;

/// Shares that are dealt at a time, at least.
const SHARES: usize = 8;

/// Ranges that a thread deals items to at a time: more of them are slower to write to.
const MOST_RANGES: usize = 1 << 11;

/// Items that are split at a time.
const BLOCK: usize = 128;

/// The items of sums by index: an index for each, and a value, which is 1 if there are no values.
pub struct Items<'a, S, X> {
    pub values: Option<S>,
    pub indices: &'a [X],
}

/// The bits of the low part of an item.
const fn half<W: Tallied>() -> u32 {
    if W::STEP == 0 { 32 } else { 46 }
}

/// Splits an item in the window: it is `low` + 2^half · `high`, in units of 2^LOW. An item that is not in the
/// window has parts of 0, and the third value is false.
///
/// A float becomes an integer as it is added to a float whose lowest bit is worth the unit: the sum is
/// rounded to a multiple of it, which its lowest bits are.
#[inline(always)]
fn split<T: Element>(value: T) -> (i64, i64, bool) {
    let half = const { half::<T::Wide>() };
    if T::Wide::STEP == 0 {
        if size_of::<T>() <= 4 {
            return (value.to_i64().unwrap_or_default(), 0, true);
        }
        let value: i128 = value.widen().addend().unwrap_or_default().into();
        return (i64::from(value as u32), (value >> half) as i64, true);
    }
    let value = value.as_f64();
    let (high, rounded) = in_units(value, T::Wide::LOW + half as i32);
    let rest = value - rounded;
    let (low, rounded) = in_units(rest, T::Wide::LOW);
    let is_inside = (value.abs() < power_of_two(T::Wide::LOW + 2 * half as i32))
        & (rounded == rest)
        & (value.to_bits() != (-0.0f64).to_bits());
    if is_inside { (low, high, true) } else { (0, 0, false) }
}

/// Rounds to a multiple of 2^`unit`. Returns the multiple, and its value.
#[inline(always)]
fn in_units(value: f64, unit: i32) -> (i64, f64) {
    let shifter = 1.5 * power_of_two(52 + unit);
    let shifted = value + shifter;
    (shifted.to_bits().wrapping_sub(shifter.to_bits()) as i64, shifted - shifter)
}

#[inline(always)]
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Prefetches a cache line. The address may be any.
#[inline(always)]
fn prefetch<V>(_place: *const V) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, and may have any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(_place.cast()) };
    }
}

/// Sums of a range of indices.
struct Sums<T> {
    len: usize,
    /// There are 2^`copies` of the parts and counts of each sum, side by side, so that consecutive additions
    /// to one sum do not wait for each other.
    copies: u32,
    /// The sums of the parts of items since the last carry.
    parts: Vec<[i64; 2]>,
    /// The number of items of each sum; none if they are not counted.
    counts: Vec<u64>,
    /// What has been carried; empty before the first carry.
    carried: Vec<i128>,
    outside: Outsides<T>,
}

impl<T: Element> Sums<T> {
    fn new(len: usize, is_counted: bool) -> Self {
        let copies = if len <= 1 << 6 {
            4
        } else if len <= 1 << 11 {
            2
        } else {
            0
        };
        Self {
            len,
            copies,
            parts: vec![[0; 2]; len << copies],
            counts: vec![0; if is_counted { len << copies } else { 0 }],
            carried: Vec::new(),
            outside: Outsides::new(),
        }
    }

    /// Adds `len` items, whose indices and values the functions return.
    #[inline(always)]
    fn add(&mut self, len: usize, index: impl Fn(usize) -> u32, value: impl Fn(usize) -> T) {
        for start in (0..len).step_by(BLOCK) {
            let len = BLOCK.min(len - start);
            self.add_block(len, |item| index(start + item), |item| value(start + item));
        }
    }

    /// Adds up to BLOCK items.
    #[inline(always)]
    fn add_block(&mut self, len: usize, index: impl Fn(usize) -> u32, value: impl Fn(usize) -> T) {
        let (mut places, mut parts) = ([0; BLOCK], [[0; 2]; BLOCK]);
        let (places, parts) = (&mut places[..len], &mut parts[..len]);
        let mut all_inside = true;
        for (item, parts) in parts.iter_mut().enumerate() {
            let (low, high, is_inside) = split(value(item));
            *parts = [low, high];
            all_inside &= is_inside;
        }
        let mask = (1 << self.copies) - 1;
        for (item, place) in places.iter_mut().enumerate() {
            *place = index(item) << self.copies | (item as u32 & mask);
        }
        if self.len > CACHED {
            for &place in &*places {
                prefetch(self.parts.as_ptr().wrapping_add(place as usize));
                prefetch(self.counts.as_ptr().wrapping_add(place as usize));
            }
        }
        let mut high_bits = [0; 2];
        for (&place, &[low, high]) in places.iter().zip(&*parts) {
            let sums = &mut self.parts[place as usize];
            *sums = [sums[0] + low, sums[1] + high];
            high_bits = [0, 1].map(|part| high_bits[part] | (sums[part] ^ sums[part] << 1));
        }
        if !self.counts.is_empty() {
            places.iter().for_each(|&place| self.counts[place as usize] += 1);
        }
        // A part whose highest two bits differ has a magnitude of 2^62 or more. A block adds less than 2^54.
        if high_bits[0] | high_bits[1] < 0 {
            self.carry();
        }
        if !all_inside {
            let mut values = [T::zeroed(); BLOCK];
            values[..len].iter_mut().enumerate().for_each(|(item, copy)| *copy = value(item));
            self.add_outside(places, parts, &values);
        }
    }

    /// Adds the items of a block that are outside of the window.
    #[inline(never)]
    fn add_outside(&mut self, places: &[u32], parts: &[[i64; 2]], values: &[T; BLOCK]) {
        let (mut items, mut count) = ([0; BLOCK], 0);
        for (item, (value, parts)) in values.iter().zip(parts).enumerate() {
            items[count] = item;
            count += usize::from(*parts == [0; 2] && value.as_f64().to_bits() != 0);
        }
        let items = &items[..count];
        let mut outsides = [(0, Outside { magnitude: 0, shift: 0, is_negative: false, flags: 0 }); BLOCK];
        for (&item, at) in items.iter().zip(&mut outsides) {
            let index = (places[item] >> self.copies) as usize;
            *at = (self.outside.place(index, self.len), values[item].widen().outside());
            prefetch(self.outside.words.as_ptr().wrapping_add(at.0 + at.1.shift as usize / 32));
        }
        for &(place, outside) in &outsides[..count] {
            self.outside.add(place, outside);
        }
    }

    /// Moves all parts to integers of 128 bits.
    #[cold]
    fn carry(&mut self) {
        self.carried.resize(self.len, 0);
        for (carried, parts) in self.carried.iter_mut().zip(self.parts.chunks_mut(1 << self.copies)) {
            *carried += sum_of::<T>(parts);
            parts.fill([0; 2]);
        }
    }

    /// The sum of what is in the window.
    fn sum(&self, index: usize) -> i128 {
        let carried = self.carried.get(index).copied().unwrap_or(0);
        carried + sum_of::<T>(&self.parts[index << self.copies..(index + 1) << self.copies])
    }

    /// The number of items of a sum; 1 if they are not counted.
    fn count(&self, index: usize) -> u64 {
        self.counts
            .get(index << self.copies..(index + 1) << self.copies)
            .map_or(1, |counts| counts.iter().sum())
    }

    /// Adds the sums of the same range.
    fn merge(&mut self, other: Self) {
        let mut high_bits = 0;
        let others = other.parts.as_flattened();
        for (part, other) in self.parts.as_flattened_mut().iter_mut().zip(others) {
            *part += other;
            high_bits |= *part ^ *part << 1;
        }
        if high_bits < 0 {
            self.carry();
        }
        self.carried.resize(self.carried.len().max(other.carried.len()), 0);
        self.carried.iter_mut().zip(other.carried).for_each(|(sum, other)| *sum += other);
        self.counts.iter_mut().zip(other.counts).for_each(|(count, other)| *count += other);
        self.outside.merge(other.outside);
    }
}

/// The sum of the copies of a sum's parts.
#[inline(always)]
fn sum_of<T: Element>(parts: &[[i64; 2]]) -> i128 {
    let half = const { half::<T::Wide>() };
    parts.iter().map(|&[low, high]| i128::from(low) + (i128::from(high) << half)).sum()
}

/// What floats add that are outside of the window.
struct Outsides<T> {
    /// The number of each index that has words, from 1 on; 0 if it has none. Empty if nothing is outside.
    numbers: Vec<u32>,
    /// REST words of each number.
    words: Vec<u64>,
    of: PhantomData<T>,
}

impl<T: Element> Outsides<T> {
    const REST: usize = T::Wide::REST;

    fn new() -> Self {
        Self { numbers: Vec::new(), words: Vec::new(), of: PhantomData }
    }

    /// Where the words of one of `len` indices begin, which are made if there are none.
    fn place(&mut self, index: usize, len: usize) -> usize {
        if self.numbers.is_empty() {
            self.numbers = vec![0; len];
        }
        let number = &mut self.numbers[index];
        if *number == 0 {
            self.words.resize(self.words.len() + Self::REST, 0);
            *number = (self.words.len() / Self::REST) as u32;
        }
        (*number as usize - 1) * Self::REST
    }

    /// Adds an item to the words that begin at `place`.
    #[inline(always)]
    fn add(&mut self, place: usize, outside: Outside) {
        let words = &mut self.words[place..place + Self::REST];
        let mut magnitude = u128::from(outside.magnitude) << (outside.shift % 32);
        let first = outside.shift as usize / 32;
        for word in &mut words[first..first + 3] {
            // Without a branch on the sign, which cannot be predicted.
            let sign = u64::from(outside.is_negative).wrapping_neg();
            *word = word.wrapping_add((u64::from(magnitude as u32) ^ sign).wrapping_sub(sign));
            magnitude >>= 32;
        }
        let flags = outside.digit(Self::REST - 1, Self::REST);
        if flags != 0 {
            words[Self::REST - 1] |= flags;
        }
    }

    fn words(&self, index: usize) -> Option<&[u64]> {
        let end = *self.numbers.get(index)? as usize * Self::REST;
        if end == 0 { None } else { Some(&self.words[end - Self::REST..end]) }
    }

    fn merge(&mut self, other: Self) {
        for index in 0..other.numbers.len() {
            let Some(others) = other.words(index) else { continue };
            let place = self.place(index, other.numbers.len());
            for (digit, (word, &other)) in self.words[place..].iter_mut().zip(others).enumerate() {
                *word = if digit + 1 < Self::REST { word.wrapping_add(other) } else { *word | other };
            }
        }
    }

    fn has_minus_zero(&self) -> bool {
        self.words.chunks(Self::REST.max(1)).any(|words| words[Self::REST - 1] & u64::from(MINUS_ZERO) != 0)
    }
}

/// The exact sum of an index's items.
pub struct IndexSum<'a> {
    /// What lies in the window, in units of 2^LOW.
    pub sum: i128,
    /// The number of items; 1 if they are not counted.
    pub count: u64,
    /// The REST words of what lies outside.
    pub outside: Option<&'a [u64]>,
    /// Whether an item was not −0.0.
    pub has_others: bool,
}

/// Makes what the operator makes of the sum of so many items.
pub struct ByOp<O, T>(pub u64, pub PhantomData<fn() -> (O, T)>);

impl<O: OfTally<T>, T: Element> Finish<O::Output> for ByOp<O, T> {
    fn finish(self, sum: &impl Exact, low: i32) -> O::Output {
        O::of_tally(sum, low, self.0)
    }
}

impl<T: Element, S: Source<Item = T>, X: Index> Items<'_, S, X> {
    /// Adds up the items of a range of places, whose indices have been checked.
    fn add(&self, range: Range<usize>, sums: &mut Sums<T>) {
        let indices = &self.indices[range.clone()];
        // SAFETY: `add` calls it with items below the length.
        let index = |item: usize| unsafe { indices.get_unchecked(item) }.get() as u32;
        match self.values {
            Some(values) => {
                // SAFETY: there are as many values as indices.
                let value = |item: usize| unsafe { values.get(range.start + item) };
                with_avx2(|| sums.add(range.len(), index, value));
            }
            None => with_avx2(|| sums.add(range.len(), index, |_| T::one())),
        }
    }

    #[inline(always)]
    fn value(&self, place: usize) -> T {
        match self.values {
            // SAFETY: there are as many values as indices.
            Some(values) => unsafe { values.get(place) },
            None => T::one(),
        }
    }

    /// Stores what the operator makes of each sum; if `onto`, of the sum and what is there, where there are
    /// items. All indices have been checked.
    pub fn reduce<O: OfTally<T>>(&self, onto: bool, results: &mut [O::Output]) {
        let (all, range) = self.all(results.len(), O::COUNTS || onto);
        self.finish::<O>(&all, range, onto, results);
    }

    /// Calls `each` with the exact sum of each index, in their order. All indices have been checked, and each has
    /// items.
    pub fn each_sum(&self, count: usize, is_counted: bool, mut each: impl FnMut(IndexSum)) {
        let (all, range) = self.all(count, is_counted);
        let minus_zeros = self.minus_zeros(&all, count);
        for index in 0..count {
            let (sums, place) = (&all[index / range], index % range);
            each(IndexSum {
                sum: sums.sum(place),
                count: sums.count(place),
                outside: sums.outside.words(place),
                has_others: minus_zeros.get(index).is_none_or(|only| !only.load(Relaxed)),
            });
        }
    }

    /// Adds up all items. Returns the sums of ranges of indices, and how many a range has.
    fn all(&self, count: usize, is_counted: bool) -> (Vec<Sums<T>>, usize) {
        let is_small = count <= CACHED || count * threads::count() <= SHARED;
        if is_small || self.indices.len() <= count / 16 {
            return (vec![self.by_share(count, is_counted)], count.max(1));
        }
        let range = CACHED.max(count.div_ceil(MOST_RANGES).next_power_of_two());
        (self.by_range(count, range, is_counted), range)
    }

    /// Whether each index has no item other than −0.0; nothing if there is no −0.0.
    fn minus_zeros(&self, all: &[Sums<T>], count: usize) -> Vec<AtomicBool> {
        if all.iter().any(|sums| sums.outside.has_minus_zero()) {
            self.only_minus_zeros(count)
        } else {
            Vec::new()
        }
    }

    /// Adds up all items; threads have sums of their own.
    fn by_share(&self, count: usize, is_counted: bool) -> Sums<T> {
        let len = self.indices.len();
        let add = |places: Range<usize>| {
            let mut sums = Sums::new(count, is_counted);
            self.add(places, &mut sums);
            sums
        };
        let share = (len / threads::count()).max(PARALLEL / 2).max(8 * count);
        if len < PARALLEL || share >= len {
            return add(0..len);
        }
        let merge = |mut sums: Sums<T>, other| {
            sums.merge(other);
            sums
        };
        let shares = (0..len.div_ceil(share)).into_par_iter();
        let all = shares.map(|number| add(number * share..len.min((number + 1) * share)));
        threads::install(|| all.reduce_with(merge)).expect("there are items")
    }

    /// Adds up all items, range by range of `range` indices.
    fn by_range(&self, count: usize, range: usize, is_counted: bool) -> Vec<Sums<T>> {
        let mut all: Vec<_> = (0..count)
            .step_by(range)
            .map(|first| Sums::<T>::new(range.min(count - first), is_counted))
            .collect();
        let slab = SHARE * SHARES.max(threads::count());
        let mut dealt = vec![(0u32, T::zeroed()); slab.min(self.indices.len())];
        for (number, indices) in self.indices.chunks(slab).enumerate() {
            self.add_slab(number * slab, range, &mut dealt[..indices.len()], &mut all);
        }
        all
    }

    /// Deals the items from `first` on by the range of their index, to as many places, and adds them up.
    fn add_slab(&self, first: usize, range: usize, dealt: &mut [(u32, T)], all: &mut [Sums<T>]) {
        let shift = range.ilog2();
        // Returns where each range of a share begins, and the last one ends.
        let deal = |(share, dealt): (usize, &mut [(u32, T)])| {
            let places = first + share * SHARE..first + share * SHARE + dealt.len();
            let indices = &self.indices[places.clone()];
            // Counts are two places further: after their sum, and after each item has moved the place of the
            // next one, the first places are the starts.
            let mut starts = vec![0u32; all.len() + 2];
            indices.iter().for_each(|index| starts[(index.get() >> shift) as usize + 2] += 1);
            (1..starts.len()).for_each(|number| starts[number] += starts[number - 1]);
            for (index, place) in indices.iter().zip(places) {
                let index = index.get();
                let next = &mut starts[(index >> shift) as usize + 1];
                dealt[*next as usize] = ((index & (range as u64 - 1)) as u32, self.value(place));
                *next += 1;
            }
            starts
        };
        let starts: Vec<_> = threads::install(|| dealt.par_chunks_mut(SHARE).enumerate().map(deal).collect());
        let add = |(number, sums): (usize, &mut Sums<T>)| {
            for (dealt, starts) in dealt.chunks(SHARE).zip(&starts) {
                let items = &dealt[starts[number] as usize..starts[number + 1] as usize];
                // SAFETY: `add` calls it with places below the length.
                let item = |place: usize| unsafe { *items.get_unchecked(place) };
                with_avx2(|| sums.add(items.len(), |place| item(place).0, |place| item(place).1));
            }
        };
        threads::install(|| all.par_iter_mut().enumerate().for_each(add));
    }

    /// Stores the results of all sums, of which each has `range`.
    fn finish<O: OfTally<T>>(&self, all: &[Sums<T>], range: usize, onto: bool, results: &mut [O::Output]) {
        let minus_zeros = self.minus_zeros(all, results.len());
        let finish = |(index, result): (usize, &mut O::Output)| {
            let (sums, place) = (&all[index / range], index % range);
            let count = sums.count(place);
            if onto && count == 0 {
                return;
            }
            let mut sum = sums.sum(place);
            let mut before = None;
            let mut has_others = minus_zeros.get(index).is_none_or(|only| !only.load(Relaxed));
            if onto && size_of::<O::Output>() == size_of::<T::Wide>() {
                // SAFETY: the result of a sum is of this type, which has any bits.
                let value = unsafe { std::mem::transmute_copy::<O::Output, T::Wide>(result) };
                match value.addend() {
                    Some(addend) => {
                        sum += addend.into();
                        has_others = true;
                    }
                    None => before = Some(value.outside()),
                }
            }
            let then = ByOp::<O, T>(count, PhantomData);
            let words = sums.outside.words(place);
            *result = if words.is_none() && before.is_none() {
                then.finish(&sum, T::Wide::LOW)
            } else {
                let digit = |digit: usize| {
                    let value = words.map_or(0, |words| words[digit]);
                    let before = before.map_or(0, |before| before.digit(digit, T::Wide::REST));
                    if digit + 1 < T::Wide::REST {
                        return value.wrapping_add(before);
                    }
                    value | before | if has_others { OTHERS } else { 0 }
                };
                T::Wide::with_rest(sum, digit, then)
            };
        };
        if results.len() < PARALLEL / 16 {
            return results.iter_mut().enumerate().for_each(finish);
        }
        threads::install(|| results.par_iter_mut().with_min_len(1 << 10).enumerate().for_each(finish));
    }

    /// Whether each index has no item other than −0.0.
    #[cold]
    fn only_minus_zeros(&self, count: usize) -> Vec<AtomicBool> {
        let all: Vec<_> = (0..count).map(|_| AtomicBool::new(true)).collect();
        let look = |(place, index): (usize, &X)| {
            let only = &all[index.get() as usize];
            if only.load(Relaxed) && self.value(place).widen().outside().flags != MINUS_ZERO {
                only.store(false, Relaxed);
            }
        };
        threads::install(|| self.indices.par_iter().with_min_len(PARALLEL).enumerate().for_each(look));
        all
    }
}
