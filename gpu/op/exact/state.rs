//! Exact sums as values: integers of many words.
//!
//! A float is an integer times a power of two. In units of its type's smallest subnormal, 2^LOW, every finite
//! float is an integer; of `f32`, for example, one of 277 bits. [`Fixed`] adds such integers and keeps the
//! sum whole: with W words of 64 bits it has room for the sum of 2^64 of the largest floats. Integers add
//! exactly, in any order and grouping.
//!
//! NaN and infinities are not integers. Flags record that they occurred.

use bytemuck::{Pod, Zeroable};

/// Flag: an item was NaN.
pub(crate) const NAN: u64 = 1;
/// Flag: an item was +∞.
pub(crate) const INFINITE: u64 = 2;
/// Flag: an item was −∞.
pub(crate) const MINUS_INFINITE: u64 = 4;
/// Flag: an item was not −0.0. A sum of negative zeros alone is −0.0.
pub(crate) const NOT_MINUS_ZERO: u64 = 8;

/// A sum of floats: an integer of W words in two's complement, the lowest word first, and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Fixed<const W: usize> {
    pub(crate) words: [u64; W],
    pub(crate) flags: u64,
}

// SAFETY: it consists of words alone, and zeros are a value.
unsafe impl<const W: usize> Zeroable for Fixed<W> {}
// SAFETY: it consists of words alone, and any words are a value.
unsafe impl<const W: usize> Pod for Fixed<W> {}

/// What floats are added to bit by bit. Its lowest bit is worth 2^`low`.
pub(crate) trait Sum {
    /// Adds `magnitude · 2^shift`, or subtracts it; the magnitude is less than 2^53. Bits below 2^0 are
    /// dropped.
    fn add_scaled(&mut self, magnitude: u64, shift: i32, is_negative: bool);

    /// Sets flags.
    fn raise(&mut self, flags: u64);

    /// Adds a float whose bits below 2^`low` are zero.
    #[inline(always)]
    fn add_f64(&mut self, value: f64, low: i32) {
        let (exponent, fraction) = parts(value);
        let is_negative = value.is_sign_negative();
        if value.to_bits() != (-0.0f64).to_bits() {
            self.raise(NOT_MINUS_ZERO);
        }
        if exponent < 0x7ff {
            return self.add_scaled(
                significand(exponent, fraction),
                exponent.max(1) - 1075 - low,
                is_negative,
            );
        }
        self.raise(match (fraction, is_negative) {
            (0, false) => INFINITE,
            (0, true) => MINUS_INFINITE,
            _ => NAN,
        });
    }

    /// Adds the exact product of two floats; its bits below 2^`low` are zero.
    #[inline(always)]
    fn add_product(&mut self, a: f64, b: f64, low: i32) {
        let product = a * b;
        let ((of_a, fraction_of_a), (of_b, fraction_of_b)) = (parts(a), parts(b));
        if a == 0.0 || b == 0.0 || of_a.max(of_b) == 0x7ff {
            return self.add_f64(product, low);
        }
        let magnitude =
            u128::from(significand(of_a, fraction_of_a)) * u128::from(significand(of_b, fraction_of_b));
        let shift = of_a.max(1) + of_b.max(1) - 2 * 1075 - low;
        let is_negative = product.is_sign_negative();
        self.raise(NOT_MINUS_ZERO);
        self.add_scaled(magnitude as u64 & ((1 << 53) - 1), shift, is_negative);
        self.add_scaled((magnitude >> 53) as u64, shift + 53, is_negative);
    }
}

/// The biased exponent and the fraction field of a float.
#[inline(always)]
fn parts(value: f64) -> (i32, u64) {
    let bits = value.to_bits();
    ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1))
}

/// The fraction with the implicit leading bit.
#[inline(always)]
fn significand(exponent: i32, fraction: u64) -> u64 {
    fraction | u64::from(exponent > 0) << 52
}

impl<const W: usize> Sum for Fixed<W> {
    #[inline(always)]
    fn add_scaled(&mut self, magnitude: u64, shift: i32, is_negative: bool) {
        match shift {
            0.. => self.add(magnitude, shift as u32, is_negative),
            _ => self.add(magnitude.unbounded_shr(shift.unsigned_abs()), 0, is_negative),
        }
    }

    #[inline(always)]
    fn raise(&mut self, flags: u64) {
        self.flags |= flags;
    }
}

/// Words of the longest sum that a GPU holds in registers. Longer sums lie in local memory and are used word
/// by word.
const SHORT: usize = 10;

/// Calls `each` for the indices of W words, the lowest first.
#[inline(always)]
pub(super) fn each_word<const W: usize>(mut each: impl FnMut(usize)) {
    #[cfg(target_arch = "nvptx64")]
    if W > SHORT {
        // The compiler would unroll a loop whose count it knows.
        let count = cuda_std::intrinsics::opaque(W as u32) as usize;
        let mut index = 0;
        while index < count {
            cuda_std::intrinsics::no_unroll();
            // SAFETY: the count is W.
            unsafe { core::hint::assert_unchecked(index < W) };
            each(index);
            index += 1;
        }
        return;
    }
    for index in 0..W {
        each(index);
    }
}

/// Calls `each` with each item. On a GPU this is a loop that is not unrolled, because `each` is long.
#[inline(always)]
pub(crate) fn each_of<I: Copy, const N: usize>(items: [I; N], mut each: impl FnMut(I)) {
    #[cfg(target_arch = "nvptx64")]
    {
        let mut items = items;
        let count = cuda_std::intrinsics::opaque(N as u32);
        let mut index = 0;
        while index < count {
            cuda_std::intrinsics::no_unroll();
            // The items rotate: an index that the compiler does not know would take them out of registers.
            each(items[0]);
            items = core::array::from_fn(|index| items[(index + 1) % N]);
            index += 1;
        }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    for item in items {
        each(item);
    }
}

/// `a + b + carry`, and the carry out.
#[inline(always)]
fn add_words(a: u64, b: u64, carry: bool) -> (u64, bool) {
    let (value, first) = a.overflowing_add(b);
    let (value, second) = value.overflowing_add(carry.into());
    (value, first | second)
}

impl<const W: usize> Fixed<W> {
    /// The sum of no items.
    pub(crate) const ZERO: Self = Self { words: [0; W], flags: 0 };

    /// Adds `magnitude · 2^shift`, or subtracts it.
    #[inline(always)]
    pub(crate) fn add(&mut self, magnitude: u64, shift: u32, is_negative: bool) {
        let (first, bit) = (shift as usize / 64, shift % 64);
        let low = magnitude << bit;
        let high = magnitude.unbounded_shr(64 - bit);
        if W > SHORT {
            let mut carry = false;
            for (index, part) in [low, high].into_iter().chain(core::iter::repeat(0)).enumerate() {
                let Some(place) = self.words.get_mut(first + index) else { return };
                if index > 1 && !carry {
                    return;
                }
                // No overflow: a part is less than 2^64 − 1.
                let part = part.wrapping_add(carry.into());
                (*place, carry) =
                    if is_negative { place.overflowing_sub(part) } else { place.overflowing_add(part) };
            }
            return;
        }
        // All indices are known, so the words stay in registers. Subtraction adds the complement and 1.
        let mut carry = is_negative;
        for (index, place) in self.words.iter_mut().enumerate() {
            let part = if index == first {
                low
            } else if index == first + 1 {
                high
            } else {
                0
            };
            (*place, carry) = add_words(*place, if is_negative { !part } else { part }, carry);
        }
    }

    /// The sum of 2 W digits, each an integer of 64 bits worth 2^32 times the one
    /// before.
    #[inline(always)]
    pub(crate) fn of_digits(digit: impl Fn(usize) -> u64) -> Self {
        let mut sum = Self::ZERO;
        let mut carry = 0i64;
        each_word::<W>(|index| {
            let mut word = 0;
            for half in 0..2 {
                let value = i128::from(digit(2 * index + half) as i64) + i128::from(carry);
                word |= u64::from(value as u32) << (32 * half);
                carry = (value >> 32) as i64;
            }
            sum.words[index] = word;
        });
        sum
    }

    /// The sum of both.
    #[inline(always)]
    pub(super) fn plus(mut self, other: Self) -> Self {
        let mut carry = false;
        each_word::<W>(|index| {
            (self.words[index], carry) = add_words(self.words[index], other.words[index], carry);
        });
        self.flags |= other.flags;
        self
    }
}
