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

    /// Adds a product of two `f64`, whose bits below 2^low are zero.
    #[inline(always)]
    fn add_product(&mut self, a: f64, b: f64, low: i32) {
        let product = a * b;
        let of = |value: f64| {
            let bits = value.to_bits();
            let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
            (u128::from(if exponent > 0 { fraction | 1 << 52 } else { fraction }), exponent.max(1) - 1075)
        };
        if a == 0.0 || b == 0.0 || !a.is_finite() || !b.is_finite() {
            return self.add_f64(product, low);
        }
        let ((a, of_a), (b, of_b)) = (of(a), of(b));
        let (magnitude, shift) = (a * b, of_a + of_b - low);
        let is_negative = product.is_sign_negative();
        self.flags |= NOT_MINUS_ZERO;
        self.add_scaled(magnitude as u64, shift, is_negative);
        self.add_scaled((magnitude >> 64) as u64, shift + 64, is_negative);
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

    /// The number nearest to the sum divided by a count, which is not 0.
    fn mean(sum: Self::State, count: u64) -> Self::Real;
}

/// Words of the longest sum.
const MOST_WORDS: usize = 34;

macro_rules! floats {
    ($($type:ident: [u64; $words:literal] from 2 ^ $low:literal, $format:ident;)*) => {$(
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
                sum_of::<Alone, S, 1, $words, 2>(items)
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
            fn add(sum: &mut Fixed<$words>, item: $type) {
                sum.add_f64(item.to_f64(), $low);
            }
        }
    )*};
}

/// Items as they are.
#[cfg(not(target_arch = "nvptx64"))]
struct Alone;

floats! {
    f16: [u64; 2] from 2 ^ -24, F32;
    bf16: [u64; 6] from 2 ^ -133, F32;
    f32: [u64; 6] from 2 ^ -149, F32;
    f64: [u64; 34] from 2 ^ -1074, F64;
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

/// Lanes of a block, and items.
#[cfg(not(target_arch = "nvptx64"))]
const LANES: usize = 32;
#[cfg(not(target_arch = "nvptx64"))]
const BLOCK: usize = 4096;

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
    fn add(sum: &mut Fixed<W>, item: I);
}

/// Adds up items.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn sum_of<T: Terms<S::Item, N, W>, S: Source, const N: usize, const W: usize, const WINDOWS: usize>(
    items: S,
) -> Fixed<W> {
    let mut sum = Fixed::ZERO;
    let mut start = 0;
    while start < items.len() {
        let end = items.len().min(start + BLOCK);
        // SAFETY: it lies within the items.
        let block = unsafe { items.part(start..end) };
        let whole = block.len() / LANES * LANES;
        let mut most = [0i64; LANES];
        let mut inexact = [false; LANES];
        for first in (0..whole).step_by(LANES) {
            for lane in 0..LANES {
                // SAFETY: it is below the block's length.
                let item = unsafe { block.get(first + lane) };
                let terms = T::terms(item);
                most[lane] = most[lane].max(terms[0].to_bits() as i64 & i64::MAX);
                inexact[lane] |= !T::is_exact(item, terms);
            }
        }
        let most = most.into_iter().fold(0, i64::max);
        let exponent = (most >> 52) as i32 - 1023;
        let is_exact = inexact == [false; LANES];
        let mut rest = 0;
        if most == 0 && is_exact {
            // Zeros alone.
            // SAFETY: as above.
            let plus = (0..whole).any(|index| T::terms(unsafe { block.get(index) })[0].to_bits() == 0);
            sum.flags |= if plus { NOT_MINUS_ZERO } else { 0 };
            rest = whole;
        } else if exponent <= 1000 && is_exact {
            if !sum_block::<T, S, N, W, WINDOWS, false>(&mut sum, block, whole, exponent) {
                sum_block::<T, S, N, W, WINDOWS, true>(&mut sum, block, whole, exponent);
            }
            rest = whole;
        }
        for index in rest..block.len() {
            // SAFETY: as above.
            T::add(&mut sum, unsafe { block.get(index) });
        }
        start = end;
    }
    sum
}

/// Adds the first items of a block, the largest of which has this exponent. Where not `CAREFUL`, adds nothing and returns false if an item has bits that are too
/// low.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn sum_block<
    T: Terms<S::Item, N, W>,
    S: Source,
    const N: usize,
    const W: usize,
    const WINDOWS: usize,
    const CAREFUL: bool,
>(
    sum: &mut Fixed<W>,
    block: S,
    len: usize,
    exponent: i32,
) -> bool {
    let high = (exponent + 13).max(40 * WINDOWS as i32 - 1062);
    let exponents: [i32; WINDOWS] = core::array::from_fn(|window| high - 40 * window as i32);
    let windows = exponents.map(|exponent| f64::from_bits(((1023 + exponent) as u64) << 52 | 1 << 51));
    let mut all = windows.map(|window| [window; LANES]);
    let mut left = [0u64; LANES];
    for first in (0..len).step_by(LANES) {
        let mut rest = [[0.0; LANES]; N];
        for lane in 0..LANES {
            // SAFETY: it is below the block's length.
            let terms = T::terms(unsafe { block.get(first + lane) });
            for (term, mut x) in terms.into_iter().enumerate() {
                // Of what is so much less, there is nothing in the first window.
                for all in &mut all[term..] {
                    let next = all[lane] + x;
                    x -= next - all[lane];
                    all[lane] = next;
                }
                rest[term][lane] = x;
                left[lane] |= x.to_bits() << 1;
            }
        }
        if CAREFUL {
            for &x in rest.as_flattened().iter().filter(|&&x| x != 0.0) {
                sum.add_f64(x, T::LOW);
            }
        }
    }
    if !CAREFUL && left.into_iter().fold(0, |all, left| all | left) != 0 {
        return false;
    }
    sum.flags |= NOT_MINUS_ZERO;
    for ((all, window), exponent) in all.iter().zip(windows).zip(exponents) {
        // In one binade, numbers are as far apart as their bits.
        let apart = |all: &f64| all.to_bits().wrapping_sub(window.to_bits()) as i64;
        let moved = all.iter().map(apart).sum::<i64>();
        sum.add_scaled(moved.unsigned_abs(), exponent - 52 - T::LOW, moved < 0);
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
            fn add(sum: &mut Fixed<$words>, (a, b): ($type, $type)) {
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
    fn add(sum: &mut Fixed<67>, (a, b): (f64, f64)) {
        sum.add_product(a, b, -2148);
    }
}

factors! {
    f16: [u64; 3] from 2 ^ -48, F32, 1 terms, 2 windows;
    bf16: [u64; 10] from 2 ^ -266, F32, 1 terms, 2 windows;
    f32: [u64; 10] from 2 ^ -298, F32, 1 terms, 3 windows;
    f64: [u64; 67] from 2 ^ -2148, F64, 2 terms, 4 windows;
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
