//! The exact sums of groups, as values: what a sum by index has before it is rounded.
//!
//! A sum is an integer in two's complement, in units of the least subnormal; of integers, in units of 1. Only
//! its significant words of 64 bits are kept: no zeros below, and no copies of the sign above. Of floats of
//! similar size these are two or three, where a sum of `f64` has room for 34. Equal sums have equal words,
//! however they were added up.

use crate::Element;
use crate::by_index::indices;
use crate::by_index::tally::{ByOp, IndexSum, Items};
use crate::cpu::Source;
use crate::threads;
use gpu_reduce_kernels::agent::Scatter;
use gpu_reduce_kernels::element::Dtype;
use gpu_reduce_kernels::op::Op;
use gpu_reduce_kernels::op::center::OfSquares;
use gpu_reduce_kernels::op::tally::{Finish, MINUS_ZERO, OTHERS, OfTally, Tallied};
use gpu_reduce_kernels::terms;
use gpu_reduce_kernels::words::Words;
use std::marker::PhantomData;
use std::ops::Range;

/// The most words of a sum: those of `f64`.
const MOST: usize = 34;

/// Sums that one thread finishes at a time.
const PIECE: usize = 1 << 12;

/// Where the words of a sum are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    /// The place of the lowest word; 0 if there are no words, which is the sum 0.
    first: u8,
    /// The number of words.
    len: u8,
    flags: u8,
}

/// A sum.
#[derive(Clone, Copy, Debug)]
pub struct Sum<'a> {
    /// The number of items, or 0 if they are not counted.
    pub count: u64,
    /// Whether items were NaN, infinite, −0.0, or anything else.
    pub flags: u8,
    /// The place of the lowest word.
    pub first: u8,
    pub words: &'a [u64],
}

impl Sum<'_> {
    fn end(&self) -> usize {
        self.first as usize + self.words.len()
    }

    /// A word of all that the sum has room for.
    #[inline(always)]
    fn word(&self, place: usize) -> u64 {
        match place.checked_sub(self.first.into()) {
            None => 0,
            Some(index) => self.words.get(index).copied().unwrap_or_else(|| sign(self.words)),
        }
    }
}

/// The words above the highest one.
#[inline(always)]
fn sign(words: &[u64]) -> u64 {
    words.last().map_or(0, |&last| ((last as i64) >> 63) as u64)
}

/// Flags of items of both.
fn flags_of_both(a: u8, b: u8) -> u8 {
    let both = a | b;
    // It only matters if there is nothing else.
    if u64::from(both) & OTHERS != 0 { both & !(MINUS_ZERO as u8) } else { both }
}

/// Sums, one after another.
#[derive(Clone, Default)]
pub struct Sums {
    /// The number of items of each; empty if they are not counted.
    counts: Vec<u64>,
    heads: Vec<Head>,
    /// The words of all sums.
    words: Vec<u64>,
}

impl Sums {
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Reserves room for as many sums as both have.
    pub fn for_both(a: &Self, b: &Self) -> Self {
        Self {
            counts: Vec::with_capacity(a.counts.len() + b.counts.len()),
            heads: Vec::with_capacity(a.len() + b.len()),
            words: Vec::with_capacity(a.words.len() + b.words.len()),
        }
    }

    /// Returns the sums in their order.
    pub fn iter(&self) -> impl Iterator<Item = Sum<'_>> {
        self.from((0, 0))
    }

    /// Returns the sums from a place on, whose words begin at another.
    fn from(&self, (place, at): (usize, usize)) -> impl Iterator<Item = Sum<'_>> {
        let mut rest = &self.words[at..];
        self.heads[place..].iter().enumerate().map(move |(index, &Head { first, len, flags })| {
            let (words, others) = rest.split_at(len.into());
            rest = others;
            let count = self.counts.get(place + index).copied().unwrap_or(0);
            Sum { count, flags, first, words }
        })
    }

    /// Appends a sum whose lowest word is at `first`; the words need not all be significant.
    #[inline(always)]
    pub fn push(&mut self, Layout { is_counted, .. }: Layout, sum: Sum) {
        let Sum { count, flags, first, words } = sum;
        let zeros = words.iter().take_while(|&&word| word == 0).count();
        let words = &words[zeros..];
        let mut len = words.len();
        while len > 0 && words[len - 1] == sign(&words[..len - 1]) {
            len -= 1;
        }
        let first = if len == 0 { 0 } else { first + zeros as u8 };
        self.heads.push(Head { first, len: len as u8, flags });
        self.words.extend_from_slice(&words[..len]);
        if is_counted {
            self.counts.push(count);
        }
    }

    /// Appends the sum of two sums.
    #[inline(always)]
    pub fn push_both(&mut self, layout: Layout, a: Sum, b: Sum) {
        let count = a.count.wrapping_add(b.count);
        let flags = flags_of_both(a.flags, b.flags);
        if a.words.is_empty() || b.words.is_empty() {
            let Sum { first, words, .. } = if a.words.is_empty() { b } else { a };
            return self.push(layout, Sum { count, flags, first, words });
        }
        let first = a.first.min(b.first);
        let end = (a.end().max(b.end()) + 1).min(layout.room);
        let (mut words, mut carry) = ([0; MOST], false);
        let len = end - usize::from(first);
        for (word, place) in words[..len].iter_mut().zip(first.into()..) {
            let (sum, first) = a.word(place).overflowing_add(b.word(place));
            let (sum, second) = sum.overflowing_add(carry.into());
            (*word, carry) = (sum, first | second);
        }
        self.push(layout, Sum { count, flags, first, words: &words[..len] });
    }

    /// Appends a sum by index.
    fn push_exact<W: Tallied>(&mut self, layout: Layout, exact: IndexSum) {
        let IndexSum { sum, count, outside, has_others } = exact;
        let others = if has_others { OTHERS as u8 } else { 0 };
        // What is in the window, in two or three words.
        let (place, shift) = (W::BELOW / 64, W::BELOW % 64);
        let low = (sum as u128) << shift;
        let high = if shift == 0 { sum >> 127 } else { sum >> (128 - shift) };
        let window = [low as u64, (low >> 64) as u64, high as u64];
        let Some(digits) = outside else {
            let words = &window[..layout.room.min(3)];
            return self.push(layout, Sum { count, flags: others, first: place as u8, words });
        };
        let (mut words, mut carry) = ([0; MOST], 0i128);
        for (index, word) in words[..layout.room].iter_mut().enumerate() {
            let value = |digit: usize| i128::from(digits[digit] as i64);
            let of_window = match index.checked_sub(place as usize) {
                None => 0,
                Some(index) => window.get(index).copied().unwrap_or(sign(&window)),
            };
            carry += value(2 * index) + (value(2 * index + 1) << 32) + i128::from(of_window);
            *word = carry as u64;
            carry >>= 64;
        }
        let flags = flags_of_both(digits[W::REST - 1] as u8, others);
        self.push(layout, Sum { count, flags, first: 0, words: &words[..layout.room] });
    }

    /// Returns what the operator makes of each sum.
    fn finish<O: OfTally<T>, T: Element>(&self) -> Vec<O::Output> {
        let mut starts = Vec::with_capacity(self.len() / PIECE + 1);
        let mut at = 0;
        for (place, head) in self.heads.iter().enumerate() {
            if place % PIECE == 0 {
                starts.push((place, at));
            }
            at += usize::from(head.len);
        }
        let piece = |&start: &(usize, usize)| -> Vec<O::Output> {
            self.from(start).take(PIECE).map(|sum| result::<O, T>(&sum)).collect()
        };
        if starts.len() <= 1 {
            return starts.iter().flat_map(piece).collect();
        }
        threads::map(starts.len(), &|number| piece(&starts[number])).concat()
    }
}

/// What the operator makes of a sum.
fn result<O: OfTally<T>, T: Element>(sum: &Sum) -> O::Output {
    let then = ByOp::<O, T>(sum.count, PhantomData);
    if let Some(units) = in_window::<T::Wide>(sum) {
        return then.finish(&units, T::Wide::LOW);
    }
    let low = if T::Wide::REST == 0 { u128::from(sum.word(0)) | u128::from(sum.word(1)) << 64 } else { 0 };
    let digit = |digit: usize| {
        if digit + 1 == T::Wide::REST {
            return sum.flags.into();
        }
        u64::from((sum.word(digit / 2) >> (32 * (digit % 2))) as u32)
    };
    T::Wide::with_rest(low as i128, digit, then)
}

/// A finite sum of floats in units of 2^LOW, if it is a multiple of that, of up to 128 bits: most are.
#[inline(always)]
fn in_window<W: Tallied>(sum: &Sum) -> Option<i128> {
    let (place, shift) = (W::BELOW as usize / 64, W::BELOW % 64);
    if shift == 0 || u64::from(sum.flags) != OTHERS || usize::from(sum.first) < place || sum.end() > place + 3
    {
        return None;
    }
    let [low, middle, high] = [0, 1, 2].map(|index| sum.word(place + index));
    let above = high as i64 >> (shift - 1);
    if low << (64 - shift) != 0 || !(-1..=0).contains(&above) {
        return None;
    }
    let below = (u128::from(low) | u128::from(middle) << 64) >> shift;
    Some((below | u128::from(high) << (128 - shift)) as i128)
}

impl Sums {
    /// Appends the sum with these bytes, the lowest of which is at byte `first`. Returns whether there is
    /// such a sum, of which all these bytes are significant.
    pub fn push_bytes(
        &mut self,
        layout: Layout,
        (count, flags): (u64, u8),
        first: usize,
        bytes: &[u8],
    ) -> bool {
        let end = first.saturating_add(bytes.len());
        if end > 8 * layout.room || significant(bytes) != (0..bytes.len()) {
            return false;
        }
        let (low, high) = (first / 8, end.div_ceil(8));
        let mut all = [0; 8 * MOST];
        all[first..end].copy_from_slice(bytes);
        if bytes.last().is_some_and(|&last| last >= 0x80) {
            all[end..8 * high].fill(0xff);
        }
        let mut words = [0; MOST];
        for (word, &bytes) in words[low..high].iter_mut().zip(&all.as_chunks().0[low..high]) {
            *word = u64::from_le_bytes(bytes);
        }
        self.push(layout, Sum { count, flags, first: low as u8, words: &words[low..high] });
        true
    }
}

/// Where the significant bytes of an integer in two's complement are.
pub fn significant(bytes: &[u8]) -> Range<usize> {
    let first = bytes.iter().take_while(|&&byte| byte == 0).count();
    let mut end = bytes.len();
    while end > first {
        let below = if end - 1 > first { bytes[end - 2] } else { 0 };
        let sign = if below >= 0x80 { 0xff } else { 0 };
        if bytes[end - 1] != sign {
            break;
        }
        end -= 1;
    }
    first..end
}

/// What sums of an operator hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whether items are counted.
    pub is_counted: bool,
    /// The words that a sum has room for.
    pub room: usize,
}

impl Layout {
    const fn of<O: OfTally<T>, T: Element>() -> Self {
        Self { is_counted: O::COUNTS, room: if T::Wide::REST == 0 { 2 } else { T::Wide::REST / 2 } }
    }
}

/// What the groups' sums hold, if the operator makes something of sums.
pub struct LayoutOf;

impl<I: Copy + 'static, V> Scatter<I, V> for LayoutOf {
    type Outcome = Option<Layout>;

    fn in_order<O: Op<I, Output = V>>(self, _: &O) -> Option<Layout> {
        None
    }

    fn tally<O: OfTally<I, Output = V>>(self, _: &O) -> Option<Layout>
    where
        I: Element,
    {
        Some(Layout::of::<O, I>())
    }

    fn tally_where<O: OfTally<I, Output = V>>(self, _: &O, _: terms::Range<I>) -> Option<Layout>
    where
        I: Element,
    {
        None
    }

    fn tally_products<O: OfTally<P, Output = V>, P: Element>(
        self,
        _: &O,
        _: Dtype,
        _: impl Fn(I) -> P + Copy + Send + Sync,
    ) -> Option<Layout> {
        None
    }

    fn spread<O: OfSquares<I>>(self, _: &O) -> Option<Layout>
    where
        I: Element<Real = V>,
    {
        None
    }

    fn to_words<O: Op<I, Output = V>>(self, _: &O, _: Words<V>) -> Option<Layout> {
        None
    }
}

/// What the operator makes of sums.
impl<I: Copy + 'static, V: Copy + Send> Scatter<I, V> for &Sums {
    type Outcome = Option<Vec<V>>;

    fn in_order<O: Op<I, Output = V>>(self, _: &O) -> Option<Vec<V>> {
        None
    }

    fn tally<O: OfTally<I, Output = V>>(self, _: &O) -> Option<Vec<V>>
    where
        I: Element,
    {
        Some(self.finish::<O, I>())
    }

    fn tally_where<O: OfTally<I, Output = V>>(self, _: &O, _: terms::Range<I>) -> Option<Vec<V>>
    where
        I: Element,
    {
        None
    }

    fn tally_products<O: OfTally<P, Output = V>, P: Element>(
        self,
        _: &O,
        _: Dtype,
        _: impl Fn(I) -> P + Copy + Send + Sync,
    ) -> Option<Vec<V>> {
        None
    }

    fn spread<O: OfSquares<I>>(self, _: &O) -> Option<Vec<V>>
    where
        I: Element<Real = V>,
    {
        None
    }

    fn to_words<O: Op<I, Output = V>>(self, _: &O, _: Words<V>) -> Option<Vec<V>> {
        None
    }
}

/// Items with the number of each one's group; the groups, `0..count`, have items.
#[derive(Clone, Copy)]
pub struct Numbered<'a, S> {
    pub items: S,
    pub numbers: &'a [u32],
    pub count: usize,
}

/// The sums of the groups, if the operator makes something of sums.
impl<S: Source, V> Scatter<S::Item, V> for Numbered<'_, S> {
    type Outcome = Option<Sums>;

    fn in_order<O: Op<S::Item, Output = V>>(self, _: &O) -> Option<Sums> {
        None
    }

    fn tally<O: OfTally<S::Item, Output = V>>(self, _: &O) -> Option<Sums>
    where
        S::Item: Element,
    {
        let mut sums = Sums::default();
        let layout = Layout::of::<O, S::Item>();
        let items =
            Items { numbers: Some(&self.items), indices: &indices::Words::Short(self.numbers.into()) };
        items.each_sum(self.count, O::COUNTS, |sum| {
            sums.push_exact::<<S::Item as Element>::Wide>(layout, sum);
        });
        Some(sums)
    }

    fn tally_where<O: OfTally<S::Item, Output = V>>(self, _: &O, _: terms::Range<S::Item>) -> Option<Sums>
    where
        S::Item: Element,
    {
        None
    }

    fn tally_products<O: OfTally<P, Output = V>, P: Element>(
        self,
        _: &O,
        _: Dtype,
        _: impl Fn(S::Item) -> P + Copy + Send + Sync,
    ) -> Option<Sums> {
        None
    }

    fn spread<O: OfSquares<S::Item>>(self, _: &O) -> Option<Sums>
    where
        S::Item: Element<Real = V>,
    {
        None
    }

    fn to_words<O: Op<S::Item, Output = V>>(self, _: &O, _: Words<V>) -> Option<Sums> {
        None
    }
}
