//! Sums by index on the CPU.
//!
//! If the sums fit in a cache, each thread adds its shares of the items to sums of its own, which are then
//! added up. If not, items are dealt to ranges of the sums first, a slab of the input at a time, so that a
//! thread has one range in its cache.
//!
//! An item in the window is one integer of 64 bits or two ([`split`]), by the same steps for every item, so
//! that they become SIMD. Integers add exactly; what overflows is carried to integers of 128 bits. `f64` has
//! two parts, and so have other items of which many do not fit in one.

use super::indices::{Index, Words, with_words};
use crate::cpu::Source;
use crate::pages::zeros;
use crate::simd::with_simd;
use crate::{Element, threads};
use gpu_reduce_kernels::element::Dtype;
use gpu_reduce_kernels::op::exact::Exact;
use gpu_reduce_kernels::op::tally::{Finish, MINUS_ZERO, OTHERS, OfTally, Outside, Tallied};
use std::array;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Items for which it is worth waking threads.
const PARALLEL: usize = 1 << 16;

/// Sums that fit in the cache of a core.
const CACHED: usize = 1 << 14;

/// Parts of sums of all threads that fit in the cache that cores share.
const SHARED: usize = 1 << 22;

/// Items of a share that is dealt to ranges.
const SHARE: usize = 1 << 19;

/// Shares that are dealt at a time, at least.
const SHARES: usize = 8;

/// Ranges that a thread deals items to at a time: more of them are slower to write to.
const MOST_RANGES: usize = 1 << 11;

/// Items that are split at a time.
const BLOCK: usize = 128;

/// The numbers that are added up. They are read a block at a time by one call, so that what adds them up is
/// compiled once for each type of numbers, wherever these come from.
pub trait Numbers<T>: Sync {
    /// Copies consecutive numbers, from number `first` on.
    ///
    /// # Safety
    ///
    /// There are as many from there.
    unsafe fn copy(&self, first: usize, to: &mut [T]);
}

impl<S: Source> Numbers<S::Item> for S {
    unsafe fn copy(&self, first: usize, to: &mut [S::Item]) {
        for (index, to) in to.iter_mut().enumerate() {
            // SAFETY: as the caller vouches.
            *to = unsafe { self.get(first + index) };
        }
    }
}

/// The items of sums by index: a number for each, and an index.
pub struct Items<'a, T> {
    /// None if each number is 1.
    pub numbers: Option<&'a dyn Numbers<T>>,
    pub indices: &'a Words<'a>,
}

/// The bits of the low part of an item of two parts. To find the only part of a float, half of its bits.
const fn half<W: Tallied, const PARTS: usize>() -> u32 {
    match (W::STEP, PARTS) {
        (0, _) => 32,
        (_, 1) => 30,
        _ => 46,
    }
}

/// Splits an item in the window of one or two PARTS: it is the first part, and if there are two, 2^half times
/// the second, in units of 2^LOW. An item that is not in the window has parts of 0, and the second value is
/// false.
///
/// A float becomes an integer as it is added to a float whose lowest bit is worth the unit: the sum is
/// rounded to a multiple of it, which its lowest bits are.
#[inline(always)]
fn split<T: Element, const PARTS: usize>(value: T) -> ([i64; PARTS], bool) {
    let half = const { half::<T::Wide, PARTS>() };
    let mut parts = [0; PARTS];
    if T::Wide::STEP == 0 {
        let value: i128 = match T::DTYPE {
            Dtype::U64 => value.to_u64().unwrap_or_default().into(),
            _ => value.to_i64().unwrap_or_default().into(),
        };
        match &mut parts[..] {
            [low, high] => (*low, *high) = (i64::from(value as u32), (value >> half) as i64),
            parts => parts[0] = value as i64,
        }
        return (parts, true);
    }
    let value = value.as_f64();
    let (high, rounded) = in_units(value, T::Wide::LOW + half as i32);
    let rest = value - rounded;
    let (low, rounded) = in_units(rest, T::Wide::LOW);
    let is_inside = (value.abs() < power_of_two(T::Wide::LOW + 2 * half as i32))
        & (rounded == rest)
        & (value.to_bits() != (-0.0f64).to_bits());
    match &mut parts[..] {
        parts if !is_inside => parts.fill(0),
        [first, second] => (*first, *second) = (low, high),
        parts => parts[0] = low + (high << half),
    }
    (parts, is_inside)
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
struct Sums<T, const PARTS: usize> {
    len: usize,
    /// There are 2^`copies` of the parts and counts of each sum, side by side, so that consecutive additions
    /// to one sum do not wait for each other.
    copies: u32,
    /// The sums of the parts of items, without what has been carried.
    parts: Vec<[i64; PARTS]>,
    /// The number of items of each sum; none if they are not counted.
    counts: Vec<u64>,
    /// What has been carried; empty before the first carry.
    carried: Vec<i128>,
    outside: Outsides<T>,
}

impl<T: Element, const PARTS: usize> Sums<T, PARTS> {
    /// Whether parts are `u64`, not `i64`.
    const IS_UNSIGNED: bool = matches!(T::DTYPE, Dtype::U64);

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
            parts: zeros(len << copies),
            counts: zeros(if is_counted { len << copies } else { 0 }),
            carried: Vec::new(),
            outside: Outsides::new(),
        }
    }

    /// Adds up to BLOCK items, of which each is 1 if there are no values. Returns whether all their indices are
    /// below the number of sums. If it returns false, some items may be added and others not.
    fn add(&mut self, indices: &Words, values: Option<&[T; BLOCK]>) -> bool {
        with_simd(
            #[inline(always)]
            || self.add_by_simd(indices, values),
        )
    }

    #[inline(always)]
    fn add_by_simd(&mut self, indices: &Words, values: Option<&[T; BLOCK]>) -> bool {
        let (mut places, mut parts) = ([0; BLOCK], [[0; PARTS]; BLOCK]);
        let (places, parts) = (&mut places[..indices.len()], &mut parts[..indices.len()]);
        if with_words!(indices, |indices| self.find(indices, places)) {
            return false;
        }
        let Some(values) = values else {
            places.iter().for_each(|&place| self.parts[place as usize][0] += 1);
            return true;
        };
        let mut all_inside = true;
        for (parts, &value) in parts.iter_mut().zip(values) {
            let (split, is_inside) = split::<T, PARTS>(value);
            *parts = split;
            all_inside &= is_inside;
        }
        if self.len > CACHED {
            let sums = self.parts.as_ptr();
            places.iter().for_each(|&place| prefetch(sums.wrapping_add(place as usize)));
        }
        self.add_parts(places, parts);
        if !self.counts.is_empty() {
            places.iter().for_each(|&place| self.counts[place as usize] += 1);
        }
        if !all_inside {
            self.add_outside(places, parts, values);
        }
        true
    }

    /// Finds the places of indices. Returns whether one is not below the number of sums.
    #[inline(always)]
    fn find(&self, indices: &[impl Index], places: &mut [u32]) -> bool {
        let (mask, end) = ((1 << self.copies) - 1, self.len as u64);
        let mut has_wrong = false;
        for (item, (place, index)) in places.iter_mut().zip(indices).enumerate() {
            let index = index.get();
            has_wrong |= index >= end;
            *place = (index as u32) << self.copies | (item as u32 & mask);
        }
        has_wrong
    }

    /// Adds the parts of items to the sums at their places.
    #[inline(always)]
    fn add_parts(&mut self, places: &[u32], parts: &[[i64; PARTS]]) {
        let mut high_bits = [0; PARTS];
        for (&place, parts) in places.iter().zip(parts) {
            let sum = &mut self.parts[place as usize];
            if PARTS == 1 {
                let (next, overflows) = if Self::IS_UNSIGNED {
                    let (next, overflows) = (sum[0] as u64).overflowing_add(parts[0] as u64);
                    (next as i64, overflows)
                } else {
                    sum[0].overflowing_add(parts[0])
                };
                sum[0] = next;
                if overflows {
                    self.carry(place, if !Self::IS_UNSIGNED && parts[0] < 0 { -1 } else { 1 });
                }
            } else {
                *sum = array::from_fn(|part| sum[part] + parts[part]);
                high_bits = array::from_fn(|part| high_bits[part] | (sum[part] ^ sum[part] << 1));
            }
        }
        // One of two parts whose highest two bits differ has a magnitude of 2^62 or more. A block adds less
        // than 2^54.
        if PARTS == 2 && high_bits.iter().any(|&bits| bits < 0) {
            places.iter().for_each(|&place| self.carry(place, 0));
        }
    }

    /// Adds the items of a block that are outside of the window.
    #[inline(never)]
    fn add_outside(&mut self, places: &[u32], parts: &[[i64; PARTS]], values: &[T; BLOCK]) {
        let (mut items, mut count) = ([0; BLOCK], 0);
        for (item, (value, parts)) in values.iter().zip(parts).enumerate() {
            items[count] = item;
            count += usize::from(*parts == [0; PARTS] && value.as_f64().to_bits() != 0);
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

    /// Carries the parts at a place, and `overflows` times 2^64, to an integer of 128 bits.
    #[cold]
    #[inline(never)]
    fn carry(&mut self, place: u32, overflows: i128) {
        let parts = std::mem::replace(&mut self.parts[place as usize], [0; PARTS]);
        let index = (place >> self.copies) as usize;
        self.carried()[index] += Self::sum_of(&[parts]) + (overflows << 64);
    }

    /// What has been carried.
    fn carried(&mut self) -> &mut [i128] {
        if self.carried.is_empty() {
            self.carried = zeros(self.len);
        }
        &mut self.carried
    }

    /// The sum of the copies of a sum's parts.
    #[inline(always)]
    fn sum_of(copies: &[[i64; PARTS]]) -> i128 {
        let of_copy = |parts: &[i64; PARTS]| match parts[..] {
            [low, high] => i128::from(low) + (i128::from(high) << half::<T::Wide, PARTS>()),
            _ if Self::IS_UNSIGNED => i128::from(parts[0] as u64),
            _ => i128::from(parts[0]),
        };
        copies.iter().map(of_copy).sum()
    }

    /// The sum of what is in the window.
    fn sum(&self, index: usize) -> i128 {
        let carried = self.carried.get(index).copied().unwrap_or(0);
        carried + Self::sum_of(&self.parts[index << self.copies..(index + 1) << self.copies])
    }

    /// The number of items of a sum; 1 if they are not counted.
    fn count(&self, index: usize) -> u64 {
        self.counts
            .get(index << self.copies..(index + 1) << self.copies)
            .map_or(1, |counts| counts.iter().sum())
    }

    /// Adds the sums of the same range.
    fn merge(&mut self, other: Self) {
        (0..).zip(&other.parts).for_each(|(place, &parts)| self.add_parts(&[place], &[parts]));
        if !other.carried.is_empty() {
            self.carried().iter_mut().zip(other.carried).for_each(|(sum, other)| *sum += other);
        }
        self.counts.iter_mut().zip(other.counts).for_each(|(count, other)| *count += other);
        self.outside.merge(other.outside);
    }
}

/// What floats add that are outside of the window.
struct Outsides<T> {
    /// The number of each index that has words, from 1 on; 0 if it has none. Empty if nothing is outside.
    numbers: Vec<u32>,
    /// REST words of each number, and zeros for more.
    words: Vec<u64>,
    /// How many numbers there are.
    count: usize,
    /// The flags of all items.
    flags: u64,
    of: PhantomData<T>,
}

impl<T: Element> Outsides<T> {
    const REST: usize = T::Wide::REST;

    fn new() -> Self {
        Self { numbers: Vec::new(), words: Vec::new(), count: 0, flags: 0, of: PhantomData }
    }

    /// Where the words of one of `len` indices begin, which are made if there are none.
    fn place(&mut self, index: usize, len: usize) -> usize {
        if self.numbers.is_empty() {
            self.numbers = zeros(len);
        }
        let number = &mut self.numbers[index];
        if *number == 0 {
            let place = self.count * Self::REST;
            if place == self.words.len() {
                let mut words = zeros((2 * place).max(Self::REST << 4));
                words[..place].copy_from_slice(&self.words);
                self.words = words;
            }
            self.count += 1;
            *number = self.count as u32;
        }
        (*number as usize - 1) * Self::REST
    }

    /// Adds an item to the words that begin at `place`.
    #[inline(always)]
    fn add(&mut self, place: usize, outside: Outside) {
        let words = &mut self.words[place..place + Self::REST];
        let mut magnitude = u128::from(outside.magnitude) << (outside.shift % 32);
        let first = outside.shift as usize / 32;
        for word in &mut words[first..][..const { (T::Wide::DIGITS as usize + 31).div_ceil(32) }] {
            // Without a branch on the sign, which cannot be predicted.
            let sign = u64::from(outside.is_negative).wrapping_neg();
            *word = word.wrapping_add((u64::from(magnitude as u32) ^ sign).wrapping_sub(sign));
            magnitude >>= 32;
        }
        let flags = outside.digit(Self::REST - 1, Self::REST);
        if flags != 0 {
            words[Self::REST - 1] |= flags;
            self.flags |= flags;
        }
    }

    fn words(&self, index: usize) -> Option<&[u64]> {
        let end = *self.numbers.get(index)? as usize * Self::REST;
        if end == 0 { None } else { Some(&self.words[end - Self::REST..end]) }
    }

    fn merge(&mut self, other: Self) {
        self.flags |= other.flags;
        for index in 0..other.numbers.len() {
            let Some(others) = other.words(index) else { continue };
            let place = self.place(index, other.numbers.len());
            for (digit, (word, &other)) in self.words[place..].iter_mut().zip(others).enumerate() {
                *word = if digit + 1 < Self::REST { word.wrapping_add(other) } else { *word | other };
            }
        }
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

/// The sums of all items, whatever they are made of.
struct Found<T, const PARTS: usize> {
    /// The sums of consecutive ranges of indices.
    sums: Vec<Sums<T, PARTS>>,
    /// The number of indices of each range.
    range: usize,
    /// Whether each index has no item other than −0.0; nothing if there is no −0.0.
    minus_zeros: Vec<AtomicBool>,
}

/// The exact sum of each index.
trait ExactSums: Sync {
    fn get(&self, index: usize) -> IndexSum<'_>;
}

impl<T: Element, const PARTS: usize> ExactSums for Found<T, PARTS> {
    fn get(&self, index: usize) -> IndexSum<'_> {
        let (sums, place) = (&self.sums[index / self.range], index % self.range);
        IndexSum {
            sum: sums.sum(place),
            count: sums.count(place),
            outside: sums.outside.words(place),
            has_others: self.minus_zeros.get(index).is_none_or(|only| !only.load(Relaxed)),
        }
    }
}

impl<T: Element> Items<'_, T> {
    fn len(&self) -> usize {
        self.indices.len()
    }

    /// Copies the numbers of the first items of a range, which exist, if there are numbers. Returns their
    /// indices.
    #[inline(always)]
    fn read(&self, range: Range<usize>, values: &mut [T; BLOCK]) -> Words<'_> {
        let len = BLOCK.min(range.len());
        if let Some(numbers) = self.numbers {
            // SAFETY: there is a number for each index.
            unsafe { numbers.copy(range.start, &mut values[..len]) };
        }
        self.indices.part(range.start..range.start + len)
    }

    /// The number of the item at a place.
    fn number(&self, place: usize) -> T {
        assert!(place < self.len());
        let mut number = [T::one()];
        if let Some(numbers) = self.numbers {
            // SAFETY: there is a number for each index.
            unsafe { numbers.copy(place, &mut number) };
        }
        number[0]
    }

    /// Adds up the items of a range of places. Returns whether all their indices are below the number of
    /// sums.
    fn add<const PARTS: usize>(&self, range: Range<usize>, sums: &mut Sums<T, PARTS>) -> bool {
        let mut values = [T::zeroed(); BLOCK];
        range.clone().step_by(BLOCK).all(|first| {
            let indices = self.read(first..range.end, &mut values);
            sums.add(&indices, self.numbers.map(|_| &values))
        })
    }

    /// Stores what the operator makes of each sum; if `onto`, of the sum and what is there, where there are
    /// items. Returns whether all indices are below the number of results; if not, these are unchanged.
    pub fn reduce<O: OfTally<T>>(&self, onto: bool, results: &mut [O::Output]) -> bool {
        let Some(sums) = self.sums(results.len(), O::COUNTS || onto) else { return false };
        let finish = |(index, result): (usize, &mut O::Output)| finish::<O, T>(sums.get(index), onto, result);
        if results.len() < PARALLEL / 16 {
            results.iter_mut().enumerate().for_each(finish);
        } else {
            threads::each_part(results, 1 << 10, &|part, results| {
                (part << 10..).zip(results).for_each(finish);
            });
        }
        true
    }

    /// Calls `each` with the exact sum of each index, in their order. All indices have been checked, and each
    /// has items.
    pub fn each_sum(&self, count: usize, is_counted: bool, each: impl FnMut(IndexSum)) {
        if let Some(sums) = self.sums_of::<2>(count, is_counted) {
            (0..count).map(|index| sums.get(index)).for_each(each);
        }
    }

    /// Adds up all items. `None` if an index is wrong.
    fn sums(&self, count: usize, is_counted: bool) -> Option<Box<dyn ExactSums>> {
        match T::DTYPE {
            Dtype::F64 => self.sums_of::<2>(count, is_counted),
            Dtype::I64 | Dtype::U64 | Dtype::F32 | Dtype::Bf16 if self.has_long() => {
                self.sums_of::<2>(count, is_counted)
            }
            _ => self.sums_of::<1>(count, is_counted),
        }
    }

    /// As [`sums`](Self::sums); each number is split into PARTS parts.
    fn sums_of<const PARTS: usize>(&self, count: usize, is_counted: bool) -> Option<Box<dyn ExactSums>> {
        let is_small = count <= CACHED || count * threads::count() * PARTS <= SHARED;
        let (sums, range) = if is_small || self.len() <= count / 16 {
            (vec![self.by_share::<PARTS>(count, is_counted)?], count.max(1))
        } else {
            let range = CACHED.max(count.div_ceil(MOST_RANGES).next_power_of_two());
            (self.by_range(count, range, is_counted)?, range)
        };
        let has_minus_zeros = sums.iter().any(|sums| sums.outside.flags & u64::from(MINUS_ZERO) != 0);
        let minus_zeros = if has_minus_zeros { self.only_minus_zeros(count) } else { Vec::new() };
        Some(Box::new(Found { sums, range, minus_zeros }))
    }

    /// Whether many items, of some all over the array, are better split into two parts: floats in the window
    /// of two parts alone, or integers so large that their sums often overflow.
    fn has_long(&self) -> bool {
        const SAMPLE: usize = 1 << 10;
        const SHORT: f64 = (1u64 << 57) as f64;
        let step = self.len().div_ceil(SAMPLE).max(1);
        let is_long = |&place: &usize| {
            let value = self.number(place);
            if T::Wide::STEP == 0 {
                return value.as_f64().abs() >= SHORT;
            }
            !split::<T, 1>(value).1 && split::<T, 2>(value).1
        };
        let places = (0..self.len()).step_by(step);
        16 * places.clone().filter(is_long).count() > places.len()
    }

    /// Adds up all items; threads have sums of their own. `None` if an index is wrong.
    fn by_share<const PARTS: usize>(&self, count: usize, is_counted: bool) -> Option<Sums<T, PARTS>> {
        let len = self.len();
        let add = |places: Range<usize>| {
            let mut sums = Sums::new(count, is_counted);
            self.add(places, &mut sums).then_some(sums)
        };
        let share = (len / threads::count()).max(PARALLEL / 2).max(8 * count);
        if len < PARALLEL || share >= len {
            return add(0..len);
        }
        let shares =
            threads::map(len.div_ceil(share), &|number| add(number * share..len.min((number + 1) * share)));
        threads::merged(shares.into_iter().collect::<Option<_>>()?, &Sums::merge)
    }

    /// Adds up all items, range by range of `range` indices. `None` if an index is wrong.
    fn by_range<const PARTS: usize>(
        &self,
        count: usize,
        range: usize,
        is_counted: bool,
    ) -> Option<Vec<Sums<T, PARTS>>> {
        if self.indices.first_wrong(count).is_some() {
            return None;
        }
        let mut all: Vec<_> =
            (0..count).step_by(range).map(|first| Sums::new(range.min(count - first), is_counted)).collect();
        let slab = SHARE * SHARES.max(threads::count());
        let mut dealt = vec![(0u32, T::zeroed()); slab.min(self.len())];
        for first in (0..self.len()).step_by(slab) {
            let len = slab.min(self.len() - first);
            self.add_slab(first, range, &mut dealt[..len], &mut all);
        }
        Some(all)
    }

    /// Deals the items from `first` on by the range of their index, to as many places, and adds them up.
    fn add_slab<const PARTS: usize>(
        &self,
        first: usize,
        range: usize,
        dealt: &mut [(u32, T)],
        all: &mut [Sums<T, PARTS>],
    ) {
        let shift = range.ilog2();
        // Returns where each range of a share begins, and the last one ends.
        let deal = |share: usize, dealt: &mut [(u32, T)]| {
            let first = first + share * SHARE;
            let places = first..first + dealt.len();
            // Counts are two places further: after their sum, and after each item has moved the place of the
            // next one, the first places are the starts.
            let mut starts = vec![0u32; all.len() + 2];
            with_words!(self.indices.part(places.clone()), |indices| {
                indices.iter().for_each(|index| starts[(index.get() >> shift) as usize + 2] += 1);
            });
            (1..starts.len()).for_each(|number| starts[number] += starts[number - 1]);
            let mut values = [T::one(); BLOCK];
            for first in places.clone().step_by(BLOCK) {
                with_words!(self.read(first..places.end, &mut values), |indices| {
                    for (index, &value) in indices.iter().zip(&values) {
                        let index = index.get();
                        let next = &mut starts[(index >> shift) as usize + 1];
                        dealt[*next as usize] = ((index & (range as u64 - 1)) as u32, value);
                        *next += 1;
                    }
                });
            }
            starts
        };
        let starts = threads::map_parts(dealt, SHARE, &deal);
        let add = |number: usize, sums: &mut [Sums<T, PARTS>]| {
            let (mut indices, mut values) = ([0; BLOCK], [T::zeroed(); BLOCK]);
            for (dealt, starts) in dealt.chunks(SHARE).zip(&starts) {
                for items in dealt[starts[number] as usize..starts[number + 1] as usize].chunks(BLOCK) {
                    for (item, (index, value)) in items.iter().zip(indices.iter_mut().zip(&mut values)) {
                        (*index, *value) = *item;
                    }
                    sums[0].add(&Words::Short(indices[..items.len()].into()), Some(&values));
                }
            }
        };
        threads::each_part(all, 1, &add);
    }

    /// Whether each index has no item other than −0.0.
    #[cold]
    fn only_minus_zeros(&self, count: usize) -> Vec<AtomicBool> {
        let all: Vec<_> = (0..count).map(|_| AtomicBool::new(true)).collect();
        let look = |place: usize| {
            let only = &all[self.indices.get(place) as usize];
            if only.load(Relaxed) && self.number(place).widen().outside().flags != MINUS_ZERO {
                only.store(false, Relaxed);
            }
        };
        let len = self.len();
        threads::each(len.div_ceil(PARALLEL), &|part| {
            (part * PARALLEL..len.min((part + 1) * PARALLEL)).for_each(look);
        });
        all
    }
}

/// Stores what the operator makes of a sum; if `onto`, of the sum and what is there, if there are items.
#[inline]
fn finish<O: OfTally<T>, T: Element>(found: IndexSum, onto: bool, result: &mut O::Output) {
    let IndexSum { mut sum, count, outside, mut has_others } = found;
    if onto && count == 0 {
        return;
    }
    let mut before = None;
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
    *result = if outside.is_none() && before.is_none() {
        then.finish(&sum, T::Wide::LOW)
    } else {
        let digit = |digit: usize| {
            let value = outside.map_or(0, |words| words[digit]);
            let before = before.map_or(0, |before| before.digit(digit, T::Wide::REST));
            if digit + 1 < T::Wide::REST {
                return value.wrapping_add(before);
            }
            value | before | if has_others { OTHERS } else { 0 }
        };
        T::Wide::with_rest(sum, digit, then)
    };
}
