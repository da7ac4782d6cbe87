//! Sums without rounding, which the exact operators have in common.
//!
//! A sum of floats is an integer of so many words that none of its type's bits is lost, the lowest of which is worth that of the least subnormal: 2^64 numbers
//! of any magnitude, and their sum, fit. Such sums add as integers do, in any order and grouping, and are rounded once.
//!
//! On a CPU, blocks of items are summed by `f64` arithmetic that is exact (S. M. Rump, T. Ogita, S. Oishi, "Accurate floating-point summation part I", SIAM J.
//! Sci. Comput. 31, 2008, `ExtractVector`). With A = 1.5 · 2^P and an item x of less than 2^(P − 12), `t = A + x` is a multiple of 2^(P − 52), because it lies in
//! the binade of A; so is `q = t − A`, exactly, and so the rest `x − q` is no more than 2^(P − 53), and exact. A second A, 2^40 times less, takes that. The A
//! themselves add up what was taken: 2^11 items of less than 2^(P − 12), each rounded up by no more than as much, move it by less than 2^(P − 1), and it has not
//! left its binade; a lane has 2^7 of a block. What is left then, of items with bits below 2^(P − 92), is added bit by bit; so are infinities, NaN, and what
//! is so large that there is no such A.

#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::Source;
use crate::element::{Accumulator, Element};
use bytemuck::{Pod, Zeroable};
use core::fmt::Debug;
use half::{bf16, f16};

/// Some item was NaN, or infinite.
const NAN: u64 = 1;
const INFINITE: u64 = 2;
const MINUS_INFINITE: u64 = 4;

/// Some item was not −0.0.
const NOT_MINUS_ZERO: u64 = 8;

/// A sum of floats: an integer of W words, in two's complement, the lowest first, and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Fixed<const W: usize> {
    words: [u64; W],
    flags: u64,
}

// SAFETY: words alone, and any are a value.
unsafe impl<const W: usize> Zeroable for Fixed<W> {}
// SAFETY: as above.
unsafe impl<const W: usize> Pod for Fixed<W> {}

impl<const W: usize> Fixed<W> {
    const ZERO: Self = Self { words: [0; W], flags: 0 };

    /// Adds `magnitude · 2^shift`, or takes it away.
    #[inline(always)]
    fn add(&mut self, magnitude: u64, shift: u32, is_negative: bool) {
        let (word, bit) = (shift as usize / 64, shift % 64);
        let high = if bit == 0 { 0 } else { magnitude >> (64 - bit) };
        let mut carry = false;
        for (index, part) in [magnitude << bit, high].into_iter().chain(core::iter::repeat(0)).enumerate() {
            if word + index >= W || (index > 1 && !carry) {
                return;
            }
            let place = &mut self.words[word + index];
            let change = |value: u64, by| {
                if is_negative { value.overflowing_sub(by) } else { value.overflowing_add(by) }
            };
            let (value, first) = change(*place, part);
            let (value, second) = change(value, carry.into());
            (*place, carry) = (value, first | second);
        }
    }

    /// Adds an `f64` whose bits below 2^low are zero.
    #[inline(always)]
    fn add_f64(&mut self, value: f64, low: i32) {
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        let is_negative = bits >> 63 != 0;
        if bits != (-0.0f64).to_bits() {
            self.flags |= NOT_MINUS_ZERO;
        }
        if exponent == 0x7ff {
            self.flags |= match (fraction, is_negative) {
                (0, false) => INFINITE,
                (0, true) => MINUS_INFINITE,
                _ => NAN,
            };
            return;
        }
        let magnitude = if exponent > 0 { fraction | 1 << 52 } else { fraction };
        self.add_scaled(magnitude, exponent.max(1) - 1075 - low, is_negative);
    }

    /// Adds `magnitude · 2^shift`, an integer, or takes it away.
    #[inline(always)]
    fn add_scaled(&mut self, magnitude: u64, shift: i32, is_negative: bool) {
        match shift {
            0.. => self.add(magnitude, shift as u32, is_negative),
            -63..0 => self.add(magnitude >> -shift, 0, is_negative),
            // Of an integer there is nothing below.
            _ => {}
        }
    }

    /// The sum of both.
    #[inline(always)]
    fn plus(mut self, other: Self) -> Self {
        let mut carry = false;
        for (word, by) in self.words.iter_mut().zip(other.words) {
            let (value, first) = word.overflowing_add(by);
            let (value, second) = value.overflowing_add(carry.into());
            (*word, carry) = (value, first | second);
        }
        self.flags |= other.flags;
        self
    }

    /// The sum of so many if it is no finite number other than zero, by the flags.
    fn special(&self, count: u64) -> Option<f64> {
        let has = |flag| self.flags & flag != 0;
        match (has(INFINITE), has(MINUS_INFINITE)) {
            _ if has(NAN) => Some(f64::NAN),
            (true, true) => Some(f64::NAN),
            (true, false) => Some(f64::INFINITY),
            (false, true) => Some(f64::NEG_INFINITY),
            _ if self.words != [0; W] => None,
            _ => Some(if self.flags == 0 && count > 0 { -0.0 } else { 0.0 }),
        }
    }

    /// Whether it is negative, and the words of its magnitude.
    fn magnitude(&self) -> (bool, [u64; W]) {
        let is_negative = self.words[W - 1] >> 63 != 0;
        if !is_negative {
            return (false, self.words);
        }
        let mut carry = true;
        (
            true,
            self.words.map(|word| {
                let (value, over) = (!word).overflowing_add(carry.into());
                carry = over;
                value
            }),
        )
    }
}

/// The sum of so many, rounded once.
fn rounded<const W: usize>(sum: &Fixed<W>, count: u64, low: i32, format: Format) -> f64 {
    if let Some(special) = sum.special(count) {
        return special;
    }
    let (is_negative, words) = sum.magnitude();
    let nearest = nearest(&words, low, false, format);
    if is_negative { -nearest } else { nearest }
}

/// A float format: the digits of a number, and what the lowest is worth at least.
#[derive(Clone, Copy)]
struct Format {
    digits: i32,
    least: i32,
}

const F32: Format = Format { digits: 24, least: -149 };
const F64: Format = Format { digits: 53, least: -1074 };

/// `mantissa · 2^exponent`, which is an `f64`, or too large for one.
fn scaled(mantissa: u64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((1023 + exponent.clamp(-1022, 1023)) as u64) << 52);
    mantissa as f64 * power(exponent / 2) * power(exponent - exponent / 2)
}

/// The number of a format that is nearest to an integer's `2^low`-fold, the even one of two, as an `f64`; infinite where an `f64` is. Where something is
/// `below` the integer's last bit, it is a little more.
fn nearest(words: &[u64], low: i32, below: bool, format: Format) -> f64 {
    let bit = |index: i32| words[index as usize / 64] >> (index % 64) & 1 != 0;
    let Some(word) = words.iter().rposition(|&word| word != 0) else { return 0.0 };
    let top = 64 * word as i32 + words[word].ilog2() as i32;
    let last = (top + 1 - format.digits).max(format.least - low).max(0);
    let mut mantissa = (last..=top).rev().fold(0, |mantissa, index| mantissa << 1 | u64::from(bit(index)));
    if last > 0 && bit(last - 1) {
        let half = last as usize - 1;
        let rest = below
            || words[..half / 64].iter().any(|&word| word != 0)
            || words[half / 64] & ((1 << (half % 64)) - 1) != 0;
        mantissa += u64::from(rest || mantissa & 1 != 0);
    }
    scaled(mantissa, low + last)
}

/// Elements whose sums are exact.
pub trait ExactElement: Element {
    /// An exact sum.
    type State: Accumulator;

    /// What an exact sum is rounded to: `f32` of all floats but `f64`; of integers it is not rounded, and an `i128`.
    type Rounded: Copy + PartialEq + Debug + Send + Sync + 'static;

    /// The sum of nothing.
    const NOTHING: Self::State;

    /// The sum of one.
    fn alone(self) -> Self::State;

    /// The sum of both.
    fn plus(a: Self::State, b: Self::State) -> Self::State;

    /// The sum of items side by side.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn sum<S: Source<Item = Self>>(items: S) -> Self::State;

    /// The number nearest to the sum of so many.
    fn rounded(sum: Self::State, count: u64) -> Self::Rounded;

    /// The nearest `f64`, and the nearest to what it lacks.
    fn as_f64s(sum: Self::State, count: u64) -> [f64; 2];

    /// What an exact mean is rounded to: `f32` of all floats but `f64`; `f64` of those, and of integers.
    type Mean: Copy + PartialEq + Debug + Send + Sync + 'static;

    /// The number nearest to the sum divided by a count, which is not 0.
    fn mean(sum: Self::State, count: u64) -> Self::Mean;
}

/// Words of the longest sum.
const MOST_WORDS: usize = 34;

macro_rules! floats {
    ($($type:ident: [u64; $words:literal] from 2 ^ $low:literal, $rounded:ident, $format:ident, $to_f64:expr;)*) => {$(
        impl ExactElement for $type {
            type State = Fixed<$words>;
            type Rounded = $rounded;
            type Mean = $rounded;
            const NOTHING: Fixed<$words> = Fixed::ZERO;

            #[inline(always)]
            fn alone(self) -> Fixed<$words> {
                let mut sum = Fixed::ZERO;
                sum.add_f64($to_f64(self), $low);
                sum
            }

            #[inline(always)]
            fn plus(a: Fixed<$words>, b: Fixed<$words>) -> Fixed<$words> {
                a.plus(b)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn sum<S: Source<Item = Self>>(items: S) -> Fixed<$words> {
                sum_of_floats(items, $low, $to_f64)
            }

            fn rounded(sum: Fixed<$words>, count: u64) -> $rounded {
                rounded(&sum, count, $low, $format) as $rounded
            }

            fn as_f64s(mut sum: Fixed<$words>, count: u64) -> [f64; 2] {
                let nearest = rounded(&sum, count, $low, F64);
                if nearest == 0.0 || !nearest.is_finite() {
                    return [nearest, 0.0];
                }
                sum.add_f64(-nearest, $low);
                [nearest, rounded(&sum, count, $low, F64)]
            }

            fn mean(sum: Fixed<$words>, count: u64) -> $rounded {
                quotient(&sum, count, $low, $format) as $rounded
            }
        }
    )*};
}

floats! {
    f16: [u64; 2] from 2 ^ -24, f32, F32, |item: f16| f64::from(item.widen());
    bf16: [u64; 6] from 2 ^ -133, f32, F32, |item: bf16| f64::from(item.widen());
    f32: [u64; 6] from 2 ^ -149, f32, F32, f64::from;
    f64: [u64; 34] from 2 ^ -1074, f64, F64, |item: f64| item;
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl ExactElement for $type {
            type State = i128;
            type Rounded = i128;
            type Mean = f64;
            const NOTHING: i128 = 0;

            #[inline(always)]
            fn alone(self) -> i128 {
                self.into()
            }

            #[inline(always)]
            fn plus(a: i128, b: i128) -> i128 {
                a.wrapping_add(b)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn sum<S: Source<Item = Self>>(items: S) -> i128 {
                let mut sum = 0;
                let mut start = 0;
                while start < items.len() {
                    let end = items.len().min(start + BLOCK);
                    // In halves, which 64 bits have room for.
                    let (mut low, mut high) = (0u64, 0i64);
                    for index in start..end {
                        // SAFETY: it is in bounds.
                        let item = unsafe { items.get(index) };
                        low += u64::from(item as u32);
                        high += (i128::from(item) >> 32) as i64;
                    }
                    sum += (i128::from(high) << 32) + i128::from(low);
                    start = end;
                }
                sum
            }

            fn rounded(sum: i128, _: u64) -> i128 {
                sum
            }

            fn as_f64s(sum: i128, _: u64) -> [f64; 2] {
                let nearest = sum as f64;
                [nearest, sum.saturating_sub(nearest as i128) as f64]
            }

            fn mean(sum: i128, count: u64) -> f64 {
                let words = [sum as u64, (sum >> 64) as u64];
                quotient(&Fixed { words, flags: NOT_MINUS_ZERO }, count, 0, F64)
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

/// Lanes of a block, and items.
#[cfg(not(target_arch = "nvptx64"))]
const LANES: usize = 32;
#[cfg(not(target_arch = "nvptx64"))]
const BLOCK: usize = 4096;

/// The sum of floats, of which `value` makes an `f64`, and whose bits below 2^low are zero.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn sum_of_floats<S: Source, const W: usize>(
    items: S,
    low: i32,
    value: impl Fn(S::Item) -> f64 + Copy,
) -> Fixed<W> {
    let mut sum = Fixed::ZERO;
    let mut start = 0;
    while start < items.len() {
        let end = items.len().min(start + BLOCK);
        // SAFETY: it lies within the items.
        let block = unsafe { items.part(start..end) };
        // SAFETY: whoever calls it has an index below the block's length.
        let at = |index: usize| value(unsafe { block.get(index) });
        let whole = block.len() / LANES * LANES;
        let mut most = [0i64; LANES];
        for first in (0..whole).step_by(LANES) {
            for lane in 0..LANES {
                most[lane] = most[lane].max(at(first + lane).to_bits() as i64 & i64::MAX);
            }
        }
        let most = most.into_iter().fold(0, i64::max);
        let exponent = (most >> 52) as i32 - 1023;
        let mut rest = 0;
        if most == 0 {
            // Zeros alone.
            let plus = (0..whole).any(|index| at(index).to_bits() == 0);
            sum.flags |= if plus { NOT_MINUS_ZERO } else { 0 };
            rest = whole;
        } else if exponent <= 1000 {
            if !sum_block::<W, false>(&mut sum, &at, whole, exponent, low) {
                sum_block::<W, true>(&mut sum, &at, whole, exponent, low);
            }
            rest = whole;
        }
        for index in rest..block.len() {
            sum.add_f64(at(index), low);
        }
        start = end;
    }
    sum
}

/// Adds a block's items, the largest of which has this exponent. Where not `CAREFUL`, adds nothing and returns false if an item has bits that are too low.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn sum_block<const W: usize, const CAREFUL: bool>(
    sum: &mut Fixed<W>,
    at: &impl Fn(usize) -> f64,
    len: usize,
    exponent: i32,
    low: i32,
) -> bool {
    let high = (exponent + 13).max(-982);
    let window = |exponent: i32| f64::from_bits(((1023 + exponent) as u64) << 52 | 1 << 51);
    let windows = [window(high), window(high - 40)];
    let mut all = windows.map(|window| [window; LANES]);
    let mut left = [0u64; LANES];
    for first in (0..len).step_by(LANES) {
        let mut items = [0.0; LANES];
        for lane in 0..LANES {
            let mut x = at(first + lane);
            for all in &mut all {
                let next = all[lane] + x;
                x -= next - all[lane];
                all[lane] = next;
            }
            items[lane] = x;
            left[lane] |= x.to_bits() << 1;
        }
        if CAREFUL {
            for x in items.into_iter().filter(|&x| x != 0.0) {
                sum.add_f64(x, low);
            }
        }
    }
    if !CAREFUL && left.into_iter().fold(0, |all, left| all | left) != 0 {
        return false;
    }
    sum.flags |= NOT_MINUS_ZERO;
    for ((all, window), exponent) in all.iter().zip(windows).zip([high, high - 40]) {
        // In one binade, numbers are as far apart as their bits.
        let apart = |all: &f64| all.to_bits().wrapping_sub(window.to_bits()) as i64;
        let moved = all.iter().map(apart).sum::<i64>();
        sum.add_scaled(moved.unsigned_abs(), exponent - 52 - low, moved < 0);
    }
    true
}

/// The exact quotient's nearest number.
fn quotient<const W: usize>(sum: &Fixed<W>, count: u64, low: i32, format: Format) -> f64 {
    if let Some(special) = sum.special(count) {
        return special;
    }
    let (is_negative, words) = sum.magnitude();
    // Two more words below: then there are more bits than any format has.
    let mut places = [0; MOST_WORDS + 2];
    let quotient = &mut places[..W + 2];
    quotient[2..].copy_from_slice(&words);
    let mut rest = 0u128;
    for word in quotient.iter_mut().rev() {
        let value = rest << 64 | u128::from(*word);
        *word = (value / u128::from(count)) as u64;
        rest = value % u128::from(count);
    }
    let nearest = nearest(quotient, low - 128, rest != 0, format);
    if is_negative { -nearest } else { nearest }
}
