//! Reductions by index to words on the CPU, as on a GPU: threads combine the words of items with tables of
//! their own if these are small, and else with one table.

use super::indices::{self, Index, with_words};
use crate::simd::with_simd;
use crate::{Item, cpu::Source, threads};
use gpu_reduce_kernels::words::{Kind, Rule, Rules, Words, bits_of, store};
use std::mem::transmute_copy;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Items for which it is worth waking threads.
const PARALLEL: usize = 1 << 16;

/// Words of a table that fits in a cache.
const SMALL: usize = 1 << 15;

/// Reduces the items of each index; the indices have been checked. Returns the first index that has no
/// result, which keeps what was there, if there is no default.
///
/// # Safety
///
/// The words are those of an operator for such values.
pub unsafe fn reduce<V: Item>(
    words: &Words<V>,
    values: &dyn Bits,
    indices: &indices::Words,
    default: Option<V>,
    results: &mut [V],
) -> Option<usize> {
    let rules = words.rules();
    let default = default.map(|default| parts_of(rules, default));
    let bytes = size_of::<V>() / rules.parts().len();
    let mut first = None;
    for (part, &rule) in rules.parts().iter().enumerate() {
        let items = Items { values, indices, rule: rule.for_len(rules.is_long, indices.len() as u64) };
        let Found { words, bits } = items.reduce(results.len());
        let finish = |(index, result): (usize, &mut V)| {
            let word = words[index].load(Relaxed);
            let has_value = word != 0 || !items.rule.takes_greatest() || has_bit(&bits, index);
            let value = if has_value {
                Some(items.rule.value(word, rules.is_long))
            } else {
                default.map(|default| default[part])
            };
            let Some(value) = value else { return Some(index) };
            // SAFETY: the part lies in the result, and the rules make the bits of a `V`.
            unsafe { store((&raw mut *result).cast::<u8>().add(part * bytes), bytes as u32, value) };
            None
        };
        first = if results.len() < PARALLEL {
            results.iter_mut().enumerate().filter_map(finish).min()
        } else {
            let found = threads::map_parts(results, PARALLEL / 4, &|part, results| {
                (part * (PARALLEL / 4)..).zip(results).filter_map(finish).min()
            });
            found.into_iter().flatten().min()
        };
    }
    first
}

/// Returns the bits of each part of a result.
pub fn parts_of<V: Item>(rules: &Rules, result: V) -> [u64; 2] {
    let bytes = bytemuck::bytes_of(&result);
    let part = |part: &[u8]| match *part {
        [a] => a.into(),
        [a, b] => bits_of([a, b]),
        [a, b, c, d] => bits_of([a, b, c, d]),
        _ => part.try_into().map_or(0, u64::from_ne_bytes),
    };
    let mut parts = bytes.chunks(bytes.len() / rules.parts().len()).map(part);
    [parts.next(), parts.next()].map(Option::unwrap_or_default)
}

/// The bits of items of any type, which are read some at a time.
pub trait Bits: Sync {
    /// Whether items have 8 bytes, not less.
    fn are_long(&self) -> bool;

    /// Copies the bits of consecutive items, from number `first` on.
    ///
    /// # Safety
    ///
    /// There are as many from there. They are numbers.
    unsafe fn copy(&self, first: usize, to: &mut [u64]);
}

impl<S: Source> Bits for S {
    fn are_long(&self) -> bool {
        size_of::<S::Item>() == 8
    }

    unsafe fn copy(&self, first: usize, to: &mut [u64]) {
        for (index, to) in to.iter_mut().enumerate() {
            // SAFETY: as the caller vouches.
            *to = unsafe { bits_of_item(self.get(first + index)) };
        }
    }
}

/// Items, and what is made of them.
struct Items<'a> {
    values: &'a dyn Bits,
    indices: &'a indices::Words<'a>,
    rule: Rule,
}

/// A word for each index, and a bit that says whether it has an item of word 0, if that is needed.
struct Found {
    words: Vec<AtomicU64>,
    bits: Vec<AtomicU32>,
}

fn has_bit(bits: &[AtomicU32], index: usize) -> bool {
    bits.get(index / 32).is_some_and(|bits| bits.load(Relaxed) >> (index % 32) & 1 != 0)
}

impl Items<'_> {
    /// Reduces in one pass, or in two.
    fn reduce(&self, count: usize) -> Found {
        let greatest = (self.rule.kind == Kind::Place).then(|| self.pass(count, None).words);
        self.pass(count, greatest.as_deref())
    }

    /// Combines the words of the items of each index; in the second pass, the complements of the places of
    /// those that have the `greatest` word.
    fn pass(&self, count: usize, greatest: Option<&[AtomicU64]>) -> Found {
        let (rule, len) = (&self.rule, self.indices.len());
        let words: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let bits = if rule.needs_bits(self.values.are_long()) { count.div_ceil(32) } else { 0 };
        let bits: Vec<_> = (0..bits).map(|_| AtomicU32::new(0)).collect();
        let shares = if len < PARALLEL { 1 } else { threads::count() };
        let share = len.div_ceil(shares).max(1);
        let has_tables = shares == 1 || count <= SMALL || rule.adds_up() && count <= share / 4;
        let fold = |first: usize| {
            let range = first..(first + share).min(len);
            if !has_tables {
                self.each(range, greatest, &bits, |index, word| offer(rule, &words[index], word));
                return;
            }
            let mut table = vec![0; count];
            self.each(range, greatest, &bits, |index, word| {
                // Most items change nothing: then the next item need not wait for a store.
                let all = rule.combine(table[index], word);
                if all != table[index] {
                    table[index] = all;
                }
            });
            table.iter().zip(&words).for_each(|(&word, all)| offer(rule, all, word));
        };
        if shares == 1 {
            fold(0);
        } else {
            threads::each(shares, &|number| fold((number * share).min(len)));
        }
        Found { words, bits }
    }

    /// Gives the index and the word of each item in a range to `combine`.
    fn each(
        &self,
        range: Range<usize>,
        greatest: Option<&[AtomicU64]>,
        bits: &[AtomicU32],
        mut combine: impl FnMut(usize, u64),
    ) {
        const BATCH: usize = 256;
        let is_long = self.values.are_long();
        let mut words = [0; BATCH];
        for first in range.clone().step_by(BATCH) {
            let len = BATCH.min(range.end - first);
            let words = &mut words[..len];
            // SAFETY: there are as many values as indices, and operators have words for numbers alone.
            unsafe { self.values.copy(first, words) };
            with_simd(
                #[inline(always)]
                || {
                    for (word, place) in words.iter_mut().zip(first as u64..) {
                        [*word] = if is_long {
                            self.rule.words([*word], place)
                        } else {
                            self.rule.words([*word as u32], place)
                        };
                    }
                },
            );
            with_words!(self.indices.part(first..first + len), |indices| {
                let indices = || indices.iter().map(|index| index.get() as usize);
                if let Some(greatest) = greatest {
                    for ((index, word), place) in indices().zip(&mut *words).zip(first as u64..) {
                        let is_greatest = greatest[index].load(Relaxed) == *word;
                        *word = if is_greatest { !place } else { 0 };
                    }
                }
                let items = || indices().zip(words.iter().copied());
                if !bits.is_empty() {
                    for (index, _) in items().filter(|&(index, word)| word == 0 && !has_bit(bits, index)) {
                        bits[index / 32].fetch_or(1 << (index % 32), Relaxed);
                    }
                }
                items().for_each(|(index, word)| combine(index, word));
            });
        }
    }
}

/// Returns the bits of a value of 1, 2, 4 or 8 bytes.
///
/// # Safety
///
/// It has no padding.
#[inline(always)]
unsafe fn bits_of_item<T: Copy>(value: T) -> u64 {
    // SAFETY: as the caller vouches; the sizes are equal.
    unsafe {
        match size_of::<T>() {
            1 => transmute_copy::<T, u8>(&value).into(),
            2 => transmute_copy::<T, u16>(&value).into(),
            4 => transmute_copy::<T, u32>(&value).into(),
            8 => transmute_copy(&value),
            _ => 0,
        }
    }
}

/// Combines a word with that of a result.
fn offer(rule: &Rule, all: &AtomicU64, word: u64) {
    let old = all.load(Relaxed);
    // Most items change nothing.
    if !rule.adds_up() && rule.combine(old, word) == old || word == 0 {
        return;
    }
    match rule.kind {
        Kind::Greatest | Kind::Packed | Kind::Place => all.fetch_max(word, Relaxed),
        Kind::Or | Kind::Any | Kind::None => all.fetch_or(word, Relaxed),
        Kind::Xor => all.fetch_xor(word, Relaxed),
        Kind::Count => all.fetch_add(word, Relaxed),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ArgMax;
    use gpu_reduce_kernels::agent::Agent;
    use gpu_reduce_kernels::op::Op;

    /// As of 2^32 items, whose places do not fit in a word.
    #[test]
    fn places_in_two_passes() {
        let values = [1.0f32, 7.0, 7.0, f32::NEG_INFINITY, f32::NAN, f32::NAN];
        let indices = &indices::Words::Short([0, 0, 0, 1, 3, 3][..].into());
        let words = <ArgMax as Op<f32>>::agent().words(&ArgMax).unwrap();
        let rule = words.rules().parts()[0].for_len(false, 1 << 32);
        assert_eq!(rule.kind, Kind::Place);
        let items = Items { values: &&values[..], indices, rule };
        let found = items.reduce(4).words.into_iter().map(|word| rule.value(word.into_inner(), false));
        assert_eq!(found.collect::<Vec<_>>(), [1, 3, u64::MAX, 4]);
    }
}
