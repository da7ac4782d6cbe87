//! Sums by index on the CPU.
//!
//! If the sums fit in a cache, each thread adds its share of the items to sums of its own, which are then added
//! up. If not, items are dealt out by their index first, a slab of the input at a time, so that a thread has a
//! range of the sums in its cache.

use super::indices::Index;
use crate::cpu::Source;
use crate::{Element, threads};
use gpu_reduce_kernels::op::exact::Exact;
use gpu_reduce_kernels::op::tally::{Finish, MINUS_ZERO, OTHERS, OfTally, Tallied};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::Range;

/// Items for which it is worth waking threads.
const PARALLEL: usize = 1 << 16;

/// Sums that fit in the cache of a core.
const CACHED: usize = 1 << 15;

/// Items of a slab.
const SLAB: usize = 1 << 24;

/// Ranges that a thread deals items to at a time: more of them are slower to write to.
const MOST_RANGES: usize = 1 << 11;

/// The items of sums by index: an index for each, and a value, which is 1 if there are no values.
pub struct Items<'a, S, X> {
    pub values: Option<S>,
    pub indices: &'a [X],
}

/// Sums of a range of indices.
struct Sums<W> {
    sums: Vec<i128>,
    /// The number of items of each sum; none if they are not counted.
    counts: Vec<u64>,
    /// What is outside of the window, by index.
    rest: HashMap<usize, Vec<u64>>,
    of: std::marker::PhantomData<W>,
}

impl<W: Tallied> Sums<W> {
    fn new(len: usize, is_counted: bool) -> Self {
        let counts = vec![0; if is_counted { len } else { 0 }];
        Self { sums: vec![0; len], counts, rest: HashMap::new(), of: std::marker::PhantomData }
    }

    #[inline(always)]
    fn add(&mut self, index: usize, value: W) {
        match value.addend() {
            Some(addend) => self.sums[index] += addend.into(),
            None => self.add_outside(index, value),
        }
        if let Some(count) = self.counts.get_mut(index) {
            *count += 1;
        }
    }

    #[cold]
    fn add_outside(&mut self, index: usize, value: W) {
        let outside = value.outside();
        let words = self.rest.entry(index).or_insert_with(|| vec![0; W::REST]);
        for (digit, word) in words[..W::REST - 1].iter_mut().enumerate() {
            *word = word.wrapping_add(outside.digit(digit, W::REST));
        }
        words[W::REST - 1] |= outside.digit(W::REST - 1, W::REST);
    }

    /// Adds the sums of the same range.
    fn merge(&mut self, other: Self) {
        self.sums.iter_mut().zip(other.sums).for_each(|(sum, other)| *sum += other);
        self.counts.iter_mut().zip(other.counts).for_each(|(count, other)| *count += other);
        for (index, other) in other.rest {
            let words = self.rest.entry(index).or_insert_with(|| vec![0; W::REST]);
            for (digit, (word, other)) in words.iter_mut().zip(other).enumerate() {
                *word = if digit + 1 < W::REST { word.wrapping_add(other) } else { *word | other };
            }
        }
    }

    fn has_minus_zero(&self) -> bool {
        self.rest.values().any(|words| words[W::REST - 1] & u64::from(MINUS_ZERO) != 0)
    }
}

struct ByOp<O, T>(u64, std::marker::PhantomData<fn() -> (O, T)>);

impl<O: OfTally<T>, T: Element> Finish<O::Output> for ByOp<O, T> {
    fn finish(self, sum: &impl Exact, low: i32) -> O::Output {
        O::of_tally(sum, low, self.0)
    }
}

impl<T: Element, S: Source<Item = T>, X: Index> Items<'_, S, X> {
    /// Returns the first item whose index is not below `count`.
    pub fn first_wrong(&self, count: usize) -> Option<usize> {
        const PIECE: usize = 1 << 16;
        // Without a branch for each index, this becomes SIMD.
        let has_wrong =
            |piece: &[X]| piece.iter().fold(false, |has, index| has | (index.get() >= count as u64));
        let pieces = || self.indices.par_chunks(PIECE).enumerate();
        let wrong = if self.indices.len() < PARALLEL {
            has_wrong(self.indices).then_some(0)
        } else {
            threads::install(|| {
                pieces().filter(|(_, piece)| has_wrong(piece)).map(|(at, _)| at * PIECE).min()
            })
        };
        wrong.map(|start| {
            let found = self.indices[start..].iter().position(|index| index.get() >= count as u64);
            start + found.unwrap_or(0)
        })
    }

    #[inline(always)]
    fn value(&self, place: usize) -> T::Wide {
        match self.values {
            // SAFETY: there are as many values as indices.
            Some(values) => unsafe { values.get(place) }.widen(),
            None => T::one().widen(),
        }
    }

    /// Adds up the items of a range of places, whose indices have been checked.
    fn add(&self, places: Range<usize>, sums: &mut Sums<T::Wide>) {
        for place in places {
            sums.add(self.indices[place].get() as usize, self.value(place));
        }
    }

    /// Stores what the operator makes of each sum; if `onto`, of the sum and what is there, where there are
    /// items. All indices have been checked.
    pub fn reduce<O: OfTally<T>>(&self, onto: bool, results: &mut [O::Output]) {
        let (len, count) = (self.indices.len(), results.len());
        let is_counted = O::COUNTS || onto;
        let is_parallel = len >= PARALLEL && threads::count() > 1;
        if count <= CACHED || len <= count / 16 {
            let mut sums = Sums::new(count, is_counted);
            let share = len.div_ceil(threads::count()).max(PARALLEL / 2).max(8 * count);
            if is_parallel && share < len {
                let shares: Vec<_> =
                    (0..len).step_by(share).map(|start| start..len.min(start + share)).collect();
                let add = |places: Range<usize>| {
                    let mut sums = Sums::new(count, is_counted);
                    self.add(places, &mut sums);
                    sums
                };
                let merge = |mut sums: Sums<T::Wide>, other| {
                    sums.merge(other);
                    sums
                };
                if let Some(all) = threads::install(|| shares.into_par_iter().map(add).reduce_with(merge)) {
                    sums = all;
                }
            } else {
                self.add(0..len, &mut sums);
            }
            return self.finish::<O>(sums, 0, onto, results);
        }
        let range = CACHED.max(count.div_ceil(MOST_RANGES).next_power_of_two());
        let mut all: Vec<_> =
            results.chunks(range).map(|results| Sums::<T::Wide>::new(results.len(), is_counted)).collect();
        for start in (0..len).step_by(SLAB) {
            self.add_slab(start..len.min(start + SLAB), range, &mut all);
        }
        let finish = |number: usize, sums: Sums<T::Wide>, results: &mut [O::Output]| {
            self.finish::<O>(sums, number * range, onto, results);
        };
        threads::install(|| {
            all.into_par_iter()
                .zip(results.par_chunks_mut(range))
                .enumerate()
                .for_each(|(number, (sums, results))| finish(number, sums, results))
        });
    }

    /// Deals out a slab of items by the range of their index, and adds them up.
    fn add_slab(&self, slab: Range<usize>, range: usize, all: &mut [Sums<T::Wide>]) {
        let shift = range.ilog2();
        let share = slab.len().div_ceil(threads::count()).max(1 << 14);
        let shares: Vec<_> =
            slab.clone().step_by(share).map(|start| start..slab.end.min(start + share)).collect();
        // The items of each share, in the order of their ranges, and where each range ends.
        let deal = |places: Range<usize>| {
            let indices = &self.indices[places.clone()];
            let mut ends = vec![0u32; all.len() + 1];
            indices.iter().for_each(|index| ends[(index.get() >> shift) as usize + 1] += 1);
            for number in 1..ends.len() {
                ends[number] += ends[number - 1];
            }
            let mut dealt = vec![(0u32, T::zeroed().widen()); indices.len()];
            for (index, place) in indices.iter().zip(places) {
                let index = index.get();
                let next = &mut ends[(index >> shift) as usize];
                dealt[*next as usize] = ((index & (range as u64 - 1)) as u32, self.value(place));
                *next += 1;
            }
            (dealt, ends)
        };
        let dealt: Vec<_> = threads::install(|| shares.into_par_iter().map(deal).collect());
        let add = |(number, sums): (usize, &mut Sums<T::Wide>)| {
            for (dealt, ends) in &dealt {
                let start = if number > 0 { ends[number - 1] as usize } else { 0 };
                for &(index, value) in &dealt[start..ends[number] as usize] {
                    sums.add(index as usize, value);
                }
            }
        };
        threads::install(|| all.par_iter_mut().enumerate().for_each(add));
    }

    /// Stores the results of sums whose indices begin at `first`.
    fn finish<O: OfTally<T>>(
        &self,
        mut sums: Sums<T::Wide>,
        first: usize,
        onto: bool,
        results: &mut [O::Output],
    ) {
        if sums.has_minus_zero() {
            self.look_for_others(&mut sums, first);
        }
        let Sums { sums, counts, rest, .. } = sums;
        let finish = |(index, result): (usize, &mut O::Output)| {
            let count = counts.get(index).copied().unwrap_or(1);
            if onto && count == 0 {
                return;
            }
            let mut sum = sums[index];
            let mut before = None;
            if onto && size_of::<O::Output>() == size_of::<T::Wide>() {
                // SAFETY: the result of a sum is of this type, which has any bits.
                let value = unsafe { std::mem::transmute_copy::<O::Output, T::Wide>(result) };
                match value.addend() {
                    Some(addend) => sum += addend.into(),
                    None => before = Some(value.outside()),
                }
            }
            let then = ByOp::<O, T>(count, std::marker::PhantomData);
            let words = rest.get(&index);
            *result = if words.is_none() && before.is_none() {
                then.finish(&sum, T::Wide::LOW)
            } else {
                let digit = |digit: usize| {
                    let value = words.map_or(0, |words| words[digit]);
                    let before = before.map_or(0, |before| before.digit(digit, T::Wide::REST));
                    if digit + 1 < T::Wide::REST {
                        return value.wrapping_add(before);
                    }
                    // If no item is −0.0, nobody has looked for others.
                    let others = if value & u64::from(MINUS_ZERO) == 0 && count > 0 { OTHERS } else { 0 };
                    value | before | others
                };
                T::Wide::with_rest(sum, digit, then)
            };
        };
        if results.len() < PARALLEL / 16 {
            return results.iter_mut().enumerate().for_each(finish);
        }
        threads::install(|| results.par_iter_mut().with_min_len(1 << 10).enumerate().for_each(finish));
    }

    /// Flags sums that have a −0.0 and another item.
    #[cold]
    fn look_for_others(&self, sums: &mut Sums<T::Wide>, first: usize) {
        for (place, index) in self.indices.iter().enumerate() {
            let index = (index.get() as usize).wrapping_sub(first);
            if let Some(words) = sums.rest.get_mut(&index) {
                words[T::Wide::REST - 1] |= u64::from(self.value(place).outside().flags) & OTHERS;
            }
        }
    }
}
