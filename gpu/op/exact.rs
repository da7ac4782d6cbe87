//! Sums without rounding, which the exact operators have in common.
//!
//! A sum of floats is an integer of so many words that none of its type's bits is lost, the lowest of which is worth that of the least subnormal: 2^64 numbers
//! of any magnitude, and their sum, fit. Such sums add as integers do, in any order and grouping, and are rounded once.
//!
//! On a CPU, blocks of items are summed by `f64` arithmetic that is exact (S. M. Rump, T. Ogita, S. Oishi, "Accurate floating-point summation part I", SIAM J.
//! Sci. Comput. 31, 2008, `ExtractVector`). With a window A = 1.5 · 2^P and an item x of less than 2^(P − 7), `t = A + x` is a multiple of 2^(P − 52), because
//! it lies in the binade of A; so is `q = t − A`, exactly, and the rest `x − q` is no more than 2^(P − 53), and exact. Another window, with an exponent less by
//! 45, takes that, of which it is less than 2^(P − 45 − 7). The windows themselves add up what was taken: 2^5 items of a block come to each lane, none moves it by
//! more than 2^(P − 7), and so it has moved by no more than 2^(P − 2), and has not left its binade, which is 2^(P − 1) to each side. What is left in the end, of
//! items with bits that are too low, says that there are too few windows: then there are more, and where seven are too few, and for infinities, NaN and what
//! has no window above it, items are added bit by bit, into words with room for what they carry over.

#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::Source;
use crate::element::{Accumulator, Element};
use bytemuck::{Pod, Zeroable};
use core::fmt::Debug;
#[cfg(not(target_arch = "nvptx64"))]
use core::mem::MaybeUninit;
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

/// What numbers are added to.
trait Sum {
    /// Adds `magnitude · 2^shift`, an integer, or takes it away; the magnitude is less than 2^53.
    fn add_scaled(&mut self, magnitude: u64, shift: i32, is_negative: bool);

    fn raise(&mut self, flags: u64);

    /// Adds an `f64` whose bits below 2^low are zero.
    #[inline(always)]
    fn add_f64(&mut self, value: f64, low: i32) {
        let (exponent, fraction) = parts(value);
        let is_negative = value.is_sign_negative();
        if value.to_bits() != (-0.0f64).to_bits() {
            self.raise(NOT_MINUS_ZERO);
        }
        if exponent < 0x7ff {
            return self.add_scaled(whole(exponent, fraction), exponent.max(1) - 1075 - low, is_negative);
        }
        self.raise(match (fraction, is_negative) {
            (0, false) => INFINITE,
            (0, true) => MINUS_INFINITE,
            _ => NAN,
        });
    }

    /// Adds a product of two `f64`, whose bits below 2^low are zero.
    #[inline(always)]
    fn add_product(&mut self, a: f64, b: f64, low: i32) {
        let product = a * b;
        let ((of_a, fraction_of_a), (of_b, fraction_of_b)) = (parts(a), parts(b));
        if a == 0.0 || b == 0.0 || of_a.max(of_b) == 0x7ff {
            return self.add_f64(product, low);
        }
        let magnitude = u128::from(whole(of_a, fraction_of_a)) * u128::from(whole(of_b, fraction_of_b));
        let shift = of_a.max(1) + of_b.max(1) - 2 * 1075 - low;
        let is_negative = product.is_sign_negative();
        self.raise(NOT_MINUS_ZERO);
        self.add_scaled(magnitude as u64 & ((1 << 53) - 1), shift, is_negative);
        self.add_scaled((magnitude >> 53) as u64, shift + 53, is_negative);
    }
}

/// The exponent of an `f64` as it is stored, and the fraction.
#[inline(always)]
fn parts(value: f64) -> (i32, u64) {
    let bits = value.to_bits();
    ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1))
}

/// A fraction with its first bit.
#[inline(always)]
fn whole(exponent: i32, fraction: u64) -> u64 {
    fraction | u64::from(exponent > 0) << 52
}

impl<const W: usize> Sum for Fixed<W> {
    #[inline(always)]
    fn add_scaled(&mut self, magnitude: u64, shift: i32, is_negative: bool) {
        match shift {
            0.. => self.add(magnitude, shift as u32, is_negative),
            // Of an integer there is nothing below.
            _ => self.add(magnitude.unbounded_shr(shift.unsigned_abs()), 0, is_negative),
        }
    }

    #[inline(always)]
    fn raise(&mut self, flags: u64) {
        self.flags |= flags;
    }
}

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

    /// The number nearest to the sum divided by a count, which is not 0.
    fn mean(sum: Self::State, count: u64) -> Self::Real;
}

/// Words of the longest sum.
const MOST_WORDS: usize = 67;

macro_rules! floats {
    ($($type:ident: [u64; $words:literal] from 2 ^ $low:literal, $format:ident, $windows:literal windows;)*) => {$(
        impl ExactElement for $type {
            type State = Fixed<$words>;
            type Rounded = Self::Real;
            const NOTHING: Fixed<$words> = Fixed::ZERO;

            #[inline(always)]
            fn alone(self) -> Fixed<$words> {
                let mut sum = Fixed::ZERO;
                sum.add_f64(self.to_f64(), $low);
                sum
            }

            #[inline(always)]
            fn plus(a: Fixed<$words>, b: Fixed<$words>) -> Fixed<$words> {
                a.plus(b)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn sum<S: Source<Item = Self>>(items: S) -> Fixed<$words> {
                sum_of::<Alone, S, 1, $words, $windows>(items)
            }

            fn rounded(sum: Fixed<$words>, count: u64) -> Self::Real {
                Self::real(rounded(&sum, count, $low, $format))
            }

            fn as_f64s(mut sum: Fixed<$words>, count: u64) -> [f64; 2] {
                let nearest = rounded(&sum, count, $low, F64);
                if nearest == 0.0 || !nearest.is_finite() {
                    return [nearest, 0.0];
                }
                sum.add_f64(-nearest, $low);
                [nearest, rounded(&sum, count, $low, F64)]
            }

            fn mean(sum: Fixed<$words>, count: u64) -> Self::Real {
                Self::real(quotient(&sum, count, $low, $format))
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Terms<$type, 1, $words> for Alone {
            const LOW: i32 = $low;

            #[inline(always)]
            fn terms(item: $type) -> [f64; 1] {
                [item.to_f64()]
            }

            #[inline(always)]
            fn is_exact(_: $type, _: [f64; 1]) -> bool {
                true
            }

            #[inline(always)]
            fn add(sum: &mut Loose, item: $type) {
                sum.add_f64(item.to_f64(), $low);
            }
        }
    )*};
}

/// Items as they are.
#[cfg(not(target_arch = "nvptx64"))]
struct Alone;

floats! {
    f16: [u64; 2] from 2 ^ -24, F32, 1 windows;
    bf16: [u64; 6] from 2 ^ -133, F32, 1 windows;
    f32: [u64; 6] from 2 ^ -149, F32, 1 windows;
    f64: [u64; 34] from 2 ^ -1074, F64, 2 windows;
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl ExactElement for $type {
            type State = i128;
            type Rounded = i128;
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

/// Lanes of a block, rows of them that are summed at a time, and items.
#[cfg(not(target_arch = "nvptx64"))]
const LANES: usize = 64;
#[cfg(not(target_arch = "nvptx64"))]
const ROWS: usize = 4;
#[cfg(not(target_arch = "nvptx64"))]
const BLOCK: usize = 2048;

/// Bits between the largest item and a window's first, and between one window's and the next.
#[cfg(not(target_arch = "nvptx64"))]
const HEADROOM: i32 = 7;
#[cfg(not(target_arch = "nvptx64"))]
const STEP: i32 = 45;

/// How items become floats that are summed.
#[cfg(not(target_arch = "nvptx64"))]
trait Terms<I, const N: usize, const W: usize> {
    /// The sum's lowest bit is worth 2^LOW, and items have none below.
    const LOW: i32;

    /// Floats whose sum is the item: a first one, and each other less than 2^-52 of that.
    fn terms(item: I) -> [f64; N];

    /// Whether they are, as long as they are finite.
    fn is_exact(item: I, terms: [f64; N]) -> bool;

    /// Adds an item bit by bit.
    fn add(sum: &mut Loose, item: I);
}

/// Words of 32 bits that carry nothing over, of up to so many items.
#[cfg(not(target_arch = "nvptx64"))]
struct Loose {
    words: [i64; 2 * MOST_WORDS + 2],
    flags: u64,
}

#[cfg(not(target_arch = "nvptx64"))]
impl Sum for Loose {
    #[inline(always)]
    fn add_scaled(&mut self, magnitude: u64, shift: i32, is_negative: bool) {
        let (magnitude, shift) = if shift < 0 {
            (magnitude.unbounded_shr(shift.unsigned_abs()), 0)
        } else {
            (magnitude, shift as u32)
        };
        let value = if is_negative { -(magnitude as i64) } else { magnitude as i64 };
        let (word, bit) = (shift as usize / 32, shift % 32);
        // Less than 2^32, and than 2^52; of a product's two parts, no two of these to a word. 2^10 times it is less than 2^63. (There are words for all shifts.)
        if let Some([low, high]) = self.words.get_mut(word..word + 2) {
            *low += value << bit & 0xffff_ffff;
            *high += value >> (32 - bit);
        }
    }

    #[inline(always)]
    fn raise(&mut self, flags: u64) {
        self.flags |= flags;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Loose {
    fn add_to<const W: usize>(&self, sum: &mut Fixed<W>) {
        sum.flags |= self.flags;
        for (word, &value) in self.words.iter().enumerate().filter(|&(_, &value)| value != 0) {
            sum.add(value.unsigned_abs(), 32 * word as u32, value < 0);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
const LOOSE: usize = 1024;

/// By which windows a block is summed: those that did for the one before.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
struct Guess {
    /// The first one's exponent.
    high: i32,
    /// How many of them: the least, five, seven; or bit by bit.
    level: u32,
}

/// A block after which fewer windows are tried again.
#[cfg(not(target_arch = "nvptx64"))]
const RETRY: usize = 16;

/// Adds up items.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn sum_of<T: Terms<S::Item, N, W>, S: Source, const N: usize, const W: usize, const WINDOWS: usize>(
    items: S,
) -> Fixed<W> {
    let mut sum = Fixed::ZERO;
    let mut guess = Guess { high: i32::MIN, level: 0 };
    let mut start = 0;
    while start < items.len() {
        let end = items.len().min(start + BLOCK);
        // SAFETY: it lies within the items.
        let block = unsafe { items.part(start..end) };
        // What is read a block later.
        let prefetch = |first: usize| {
            let first = end + first;
            if first < items.len() {
                items.prefetch(first..first + ROWS * LANES);
            }
        };
        if start % (RETRY * BLOCK) == 0 {
            guess.level = 0;
        }
        if block.len() == BLOCK {
            // SAFETY: it is below the block's length.
            let terms = |index| T::terms(unsafe { block.get(index) });
            add_block::<T, S, N, W, WINDOWS>(&mut sum, block, BLOCK, terms, prefetch, &mut guess);
        } else {
            let mut terms = [const { MaybeUninit::<[f64; N]>::uninit() }; BLOCK];
            let len = block.len().next_multiple_of(ROWS * LANES);
            for (index, place) in terms[..len].iter_mut().enumerate() {
                // SAFETY: as above.
                let of_item = || T::terms(unsafe { block.get(index) });
                place.write(if index < block.len() { of_item() } else { [0.0; N] });
            }
            // SAFETY: written above.
            let terms = |index: usize| unsafe { terms[index].assume_init() };
            add_block::<T, S, N, W, WINDOWS>(&mut sum, block, len, terms, prefetch, &mut guess);
        }
        start = end;
    }
    sum
}

/// Adds a block's items, of which these are the terms, zeros after the last.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn add_block<T: Terms<S::Item, N, W>, S: Source, const N: usize, const W: usize, const WINDOWS: usize>(
    sum: &mut Fixed<W>,
    block: S,
    len: usize,
    terms: impl Fn(usize) -> [f64; N] + Copy,
    prefetch: impl Fn(usize) + Copy,
    guess: &mut Guess,
) {
    // SAFETY: whoever calls it has an index below the block's length.
    let item = |index: usize| unsafe { block.get(index) };
    // (Of most items it is known when this is compiled, and there is no such loop.)
    let mut is_exact = true;
    for index in 0..block.len() {
        is_exact &= T::is_exact(item(index), T::terms(item(index)));
    }
    if is_exact && guess.level < 3 {
        let mut most = 0;
        if guess.high == i32::MIN {
            for index in 0..len {
                most = most.max(terms(index)[0].to_bits() as i64 & i64::MAX);
            }
            guess.high = high_for(most);
        }
        let first = guess.level;
        let mut turn = first;
        while turn < 3 {
            let (of_block, is_all) = match turn {
                0 => try_windows::<WINDOWS, W, N>(sum, len, terms, prefetch, guess.high, T::LOW),
                1 => try_windows::<5, W, N>(sum, len, terms, prefetch, guess.high, T::LOW),
                _ => try_windows::<7, W, N>(sum, len, terms, prefetch, guess.high, T::LOW),
            };
            if is_all {
                guess.level = turn;
                return;
            }
            most = of_block;
            if most == 0 {
                // Zeros alone.
                let plus = (0..block.len()).any(|index| T::terms(item(index))[0].to_bits() == 0);
                sum.flags |= if plus { NOT_MINUS_ZERO } else { 0 };
                return;
            }
            if most >> 52 > 1023 + 1000 {
                break;
            }
            // The same number of windows, where the largest item would have them; or more.
            let high = high_for(most);
            turn += u32::from(guess.high == high);
            guess.high = high;
        }
        // What is infinite, or NaN, or so large, is an exception; the rest is not.
        if turn == 3 {
            guess.level = 3;
        }
    }
    for first in (0..block.len()).step_by(LOOSE) {
        let mut loose = Loose { words: [0; 2 * MOST_WORDS + 2], flags: 0 };
        for index in first..block.len().min(first + LOOSE) {
            T::add(&mut loose, item(index));
        }
        loose.add_to(sum);
    }
}

/// The first window's exponent where this is the largest magnitude, as an integer.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn high_for(most: i64) -> i32 {
    ((most >> 52) as i32 - 1023 + 1 + HEADROOM).min(1023)
}

/// Adds a block's terms if so many windows take all of them. Returns the largest magnitude, as an integer, and whether they have.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn try_windows<const WINDOWS: usize, const W: usize, const N: usize>(
    sum: &mut Fixed<W>,
    len: usize,
    terms: impl Fn(usize) -> [f64; N] + Copy,
    prefetch: impl Fn(usize),
    high: i32,
    low: i32,
) -> (i64, bool) {
    let moved = Moved::<WINDOWS>::of(len, terms, prefetch, high);
    let is_all = moved.is_all();
    if is_all {
        moved.add_to(sum, low);
    }
    (moved.most, is_all)
}

/// What the items of a block have moved windows by.
#[cfg(not(target_arch = "nvptx64"))]
struct Moved<const WINDOWS: usize> {
    /// The first window's exponent.
    high: i32,
    by: [i64; WINDOWS],
    /// The largest magnitude, as an integer, and whether items had bits below the windows.
    most: i64,
    has_rest: bool,
}

#[cfg(not(target_arch = "nvptx64"))]
impl<const WINDOWS: usize> Moved<WINDOWS> {
    /// That of terms, of which there is a multiple of [`ROWS`] · [`LANES`].
    #[inline(always)]
    fn of<const N: usize>(
        len: usize,
        terms: impl Fn(usize) -> [f64; N],
        prefetch: impl Fn(usize),
        high: i32,
    ) -> Self {
        let high = high.max(STEP * (WINDOWS as i32 - 1) - 1022);
        let windows: [f64; WINDOWS] = core::array::from_fn(|window| {
            f64::from_bits(((1023 + high - STEP * window as i32) as u64) << 52 | 1 << 51)
        });
        let mut all = windows.map(|window| [window; LANES]);
        let mut most = [0i64; LANES];
        let mut rest = [0u64; LANES];
        for first in (0..len).step_by(ROWS * LANES) {
            prefetch(first);
            for lane in 0..LANES {
                let mut held: [f64; WINDOWS] = core::array::from_fn(|window| all[window][lane]);
                let (mut most_of_lane, mut rest_of_lane) = (most[lane], rest[lane]);
                for row in 0..ROWS {
                    let terms = terms(first + row * LANES + lane);
                    most_of_lane = most_of_lane.max(terms[0].to_bits() as i64 & i64::MAX);
                    for (term, mut x) in terms.into_iter().enumerate() {
                        // Of what is so much less, there is nothing in the first window.
                        for held in &mut held[term..] {
                            let next = *held + x;
                            x -= next - *held;
                            *held = next;
                        }
                        rest_of_lane |= x.to_bits() << 1;
                    }
                }
                for window in 0..WINDOWS {
                    all[window][lane] = held[window];
                }
                (most[lane], rest[lane]) = (most_of_lane, rest_of_lane);
            }
        }
        let mut by = [0; WINDOWS];
        for window in 0..WINDOWS {
            // In one binade, numbers are as far apart as their bits.
            let apart = |all: &f64| all.to_bits().wrapping_sub(windows[window].to_bits()) as i64;
            by[window] = all[window].iter().map(apart).fold(0, i64::wrapping_add);
        }
        let most = most.into_iter().fold(0, i64::max);
        Self { high, by, most, has_rest: rest.into_iter().fold(0, |all, rest| all | rest) != 0 }
    }

    /// Whether the windows have taken all, and some are no zeros.
    #[inline(always)]
    fn is_all(&self) -> bool {
        !self.has_rest && self.most > 0 && self.most >> 52 <= 1023 + 1000 && high_for(self.most) <= self.high
    }

    #[inline(always)]
    fn add_to<const W: usize>(&self, sum: &mut Fixed<W>, low: i32) {
        sum.flags |= NOT_MINUS_ZERO;
        for (window, &by) in self.by.iter().enumerate() {
            let shift = self.high - STEP * window as i32 - 52 - low;
            sum.add_scaled(by.unsigned_abs(), shift, by < 0);
        }
    }
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

/// Elements whose products are exact, and the sums of those: floats, and integers of up to 32 bits.
pub trait ExactFactor: ExactElement {
    /// An exact sum of products.
    type Products: Accumulator;

    /// The sum of nothing.
    const NO_PRODUCTS: Self::Products;

    /// One product.
    fn product(self, other: Self) -> Self::Products;

    /// The sum of both.
    fn add_products(a: Self::Products, b: Self::Products) -> Self::Products;

    /// The sum of the products of pairs side by side.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn sum_products<S: Source<Item = (Self, Self)>>(items: S) -> Self::Products;

    /// The number nearest to the sum of so many.
    fn rounded_products(sum: Self::Products, count: u64) -> Self::Rounded;
}

macro_rules! factors {
    ($($type:ident: [u64; $words:literal] from 2 ^ $low:literal, $format:ident, $terms:literal terms, $windows:literal windows;)*) => {$(
        impl ExactFactor for $type {
            type Products = Fixed<$words>;
            const NO_PRODUCTS: Fixed<$words> = Fixed::ZERO;

            #[inline(always)]
            fn product(self, other: Self) -> Fixed<$words> {
                let mut sum = Fixed::ZERO;
                sum.add_product(self.to_f64(), other.to_f64(), $low);
                sum
            }

            #[inline(always)]
            fn add_products(a: Fixed<$words>, b: Fixed<$words>) -> Fixed<$words> {
                a.plus(b)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn sum_products<S: Source<Item = (Self, Self)>>(items: S) -> Fixed<$words> {
                sum_of::<Products, S, $terms, $words, $windows>(items)
            }

            fn rounded_products(sum: Fixed<$words>, count: u64) -> Self::Rounded {
                rounded(&sum, count, $low, $format) as Self::Rounded
            }
        }
    )*};
}

/// Products of pairs.
#[cfg(not(target_arch = "nvptx64"))]
struct Products;

/// Of `f64` with fewer digits than half of theirs, a product is one.
macro_rules! single_products {
    ($($type:ident: $words:literal $low:literal;)*) => {$(
        #[cfg(not(target_arch = "nvptx64"))]
        impl Terms<($type, $type), 1, $words> for Products {
            const LOW: i32 = $low;

            #[inline(always)]
            fn terms((a, b): ($type, $type)) -> [f64; 1] {
                [a.to_f64() * b.to_f64()]
            }

            #[inline(always)]
            fn is_exact(_: ($type, $type), _: [f64; 1]) -> bool {
                true
            }

            #[inline(always)]
            fn add(sum: &mut Loose, (a, b): ($type, $type)) {
                sum.add_f64(a.to_f64() * b.to_f64(), $low);
            }
        }
    )*};
}

single_products! {
    f16: 3 -48;
    bf16: 10 -266;
    f32: 10 -298;
}

#[cfg(not(target_arch = "nvptx64"))]
impl Terms<(f64, f64), 2, 67> for Products {
    const LOW: i32 = -2148;

    #[inline(always)]
    fn terms((a, b): (f64, f64)) -> [f64; 2] {
        let product = a * b;
        [product, a.mul_add(b, -product)]
    }

    /// What a product lacks is no float where that is below the least, and it is 2^-106 of the product at least.
    #[inline(always)]
    fn is_exact((a, b): (f64, f64), [product, _]: [f64; 2]) -> bool {
        const LEAST: f64 = f64::from_bits((1023 - 960) << 52);
        (product.abs() >= LEAST) | (a == 0.0) | (b == 0.0)
    }

    #[inline(always)]
    fn add(sum: &mut Loose, (a, b): (f64, f64)) {
        sum.add_product(a, b, -2148);
    }
}

factors! {
    f16: [u64; 3] from 2 ^ -48, F32, 1 terms, 1 windows;
    bf16: [u64; 10] from 2 ^ -266, F32, 1 terms, 1 windows;
    f32: [u64; 10] from 2 ^ -298, F32, 1 terms, 2 windows;
    f64: [u64; 67] from 2 ^ -2148, F64, 2 terms, 3 windows;
}

macro_rules! integer_factors {
    ($($type:ident)*) => {$(
        impl ExactFactor for $type {
            type Products = i128;
            const NO_PRODUCTS: i128 = 0;

            #[inline(always)]
            fn product(self, other: Self) -> i128 {
                i128::from(self) * i128::from(other)
            }

            #[inline(always)]
            fn add_products(a: i128, b: i128) -> i128 {
                a.wrapping_add(b)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn sum_products<S: Source<Item = (Self, Self)>>(items: S) -> i128 {
                (0..items.len())
                    .map(|index| {
                        // SAFETY: it is in bounds.
                        let (a, b) = unsafe { items.get(index) };
                        a.product(b)
                    })
                    .sum()
            }

            fn rounded_products(sum: i128, _: u64) -> i128 {
                sum
            }
        }
    )*};
}

integer_factors! { i8 i16 i32 u8 u16 u32 }
