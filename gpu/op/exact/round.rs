//! Rounding an exact sum, once.
//!
//! To round an integer, three things suffice: its first 24 or 53 bits, the bit after them, and a **sticky
//! bit**, which says whether any bit below that is set. [`Leading`] holds the first 129 bits or more of a sum
//! and the sticky bit. A mean divides these bits by the count; a remainder sets the sticky bit.

use super::state::{Fixed, INFINITE, MINUS_INFINITE, NAN, NOT_MINUS_ZERO, Sum, each_word};
use core::hint::assert_unchecked;

/// An exact sum, wherever it is held: a value, or a block's digits in shared memory.
#[doc(hidden)]
pub trait Exact {
    /// Its first bits.
    fn leading(&self) -> Leading;

    /// Subtracts a finite float. The sum's lowest bit is worth 2^`low`, and the float has no bits below it.
    fn subtract(&mut self, value: f64, low: i32);

    /// Its lowest 128 bits.
    fn lowest(&self) -> i128;

    /// The sum, if it is finite, known to be small, and no negative zero.
    #[inline(always)]
    fn small(&self) -> Option<i64> {
        None
    }
}

/// The first bits of a sum's magnitude, the sticky bit, the sign and the flags.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Leading {
    /// Words of the magnitude, the lowest first. At least 128 bits follow the first one that is set.
    words: [u64; 4],
    /// The lowest bit of `words` is bit number `place` of the sum.
    place: i32,
    /// Whether any bit below `words` is set.
    sticky: bool,
    is_negative: bool,
    flags: u64,
}

impl Leading {
    /// Of a sum in two's complement: `words` are the highest word that is not a copy of the sign and the two
    /// below it, the lowest first. They are inverted if the sum is negative. The highest begins at bit number
    /// `place`.
    #[inline(always)]
    pub(crate) fn of(words: [u64; 3], place: i32, sticky: bool, is_negative: bool, flags: u64) -> Self {
        let mut words = [words[0], words[1], words[2], 0];
        // −x = !x + 1, and the 1 reaches these words only if all bits below are zero.
        let mut carry = is_negative && !sticky;
        for word in &mut words {
            (*word, carry) = word.overflowing_add(carry.into());
        }
        Self { words, place: place - 128, sticky, is_negative, flags }
    }

    /// The sum of `count` items if it is NaN, infinite or zero.
    #[inline(always)]
    fn special(&self, count: u64) -> Option<f64> {
        let has = |flag| self.flags & flag != 0;
        match (has(INFINITE), has(MINUS_INFINITE)) {
            _ if has(NAN) => Some(f64::NAN),
            (true, true) => Some(f64::NAN),
            (true, false) => Some(f64::INFINITY),
            (false, true) => Some(f64::NEG_INFINITY),
            _ if self.words.iter().fold(0, |all, word| all | word) != 0 => None,
            _ => Some(if self.flags == 0 && count > 0 { -0.0 } else { 0.0 }),
        }
    }

    /// The nearest number of a format as an `f64`, ties to even; infinite if it overflows an `f64`. The sum's
    /// lowest bit is worth 2^`low`.
    #[inline(always)]
    fn nearest(&self, low: i32, format: Format) -> f64 {
        let [d, c, b, a] = self.words;
        // The first word that is not zero, the word after it, and the bits after that.
        let (top, first, second, rest) = match (a, b, c) {
            (0, 0, 0) => (0, d, 0, 0),
            (0, 0, _) => (1, c, d, 0),
            (0, _, _) => (2, b, c, d),
            _ => (3, a, b, c | d),
        };
        // The first 64 bits, and the exponent of the lowest of them.
        let zeros = first.leading_zeros();
        let bits = first << (zeros % 64) | second.unbounded_shr(64 - zeros);
        let sticky = self.sticky || rest != 0 || second << (zeros % 64) != 0;
        let lowest = low + self.place + 64 * top - zeros as i32;
        let drop = (64 - format.digits).max(format.least - lowest);
        let mantissa = bits.unbounded_shr(drop as u32);
        let half = 1u64.unbounded_shl(drop as u32 - 1);
        let is_more = sticky || bits & half.wrapping_sub(1) != 0;
        let is_up = bits & half != 0 && (is_more || mantissa & 1 != 0);
        let nearest = scaled(mantissa + u64::from(is_up), lowest + drop);
        if self.is_negative { -nearest } else { nearest }
    }
}

impl<const W: usize> Exact for Fixed<W> {
    #[inline(always)]
    fn leading(&self) -> Leading {
        let is_negative = self.words[W - 1] >> 63 != 0;
        let sign = if is_negative { u64::MAX } else { 0 };
        // The last two words without the sign, and whether a bit below them was set.
        let (mut last, mut before, mut sticky) = (sign, sign, false);
        let mut leading = ([0; 3], 0, false);
        each_word::<W>(|index| {
            let word = self.words[index] ^ sign;
            if word != 0 || index == 0 {
                leading = ([before, last, word], index as i32, sticky);
            }
            sticky |= before != sign;
            (before, last) = (last, word);
        });
        let (words, index, sticky) = leading;
        Leading::of(words, 64 * index, sticky, is_negative, self.flags)
    }

    #[inline(always)]
    fn subtract(&mut self, value: f64, low: i32) {
        self.add_f64(-value, low);
    }

    fn lowest(&self) -> i128 {
        let word = |index| i128::from(self.words.get(index).copied().unwrap_or(0));
        word(0) | word(1) << 64
    }
}

impl Exact for i128 {
    #[inline(always)]
    fn leading(&self) -> Leading {
        Fixed::of(*self).leading()
    }

    #[inline(always)]
    fn subtract(&mut self, value: f64, low: i32) {
        let mut sum = Fixed::of(*self);
        sum.subtract(value, low);
        *self = sum.lowest();
    }

    fn lowest(&self) -> i128 {
        *self
    }

    #[inline(always)]
    fn small(&self) -> Option<i64> {
        (*self).try_into().ok()
    }
}

impl Fixed<2> {
    /// An integer as a sum.
    #[inline(always)]
    fn of(sum: i128) -> Self {
        Self { words: [sum as u64, (sum >> 64) as u64], flags: NOT_MINUS_ZERO }
    }
}

/// A float format.
#[derive(Clone, Copy)]
pub(super) struct Format {
    /// Bits of a significand.
    digits: i32,
    /// The smallest subnormal is 2^`least`.
    least: i32,
}

pub(super) const F32: Format = Format { digits: 24, least: -149 };
pub(super) const F64: Format = Format { digits: 53, least: -1074 };

/// The sum of `count` items, rounded once.
#[inline(always)]
pub(super) fn rounded(sum: &impl Exact, count: u64, low: i32, format: Format) -> f64 {
    let leading = sum.leading();
    leading.special(count).unwrap_or_else(|| leading.nearest(low, format))
}

/// The `f64`, or if not IS_WIDE the `f32`, nearest to a sum of items, some of which there are.
#[inline(always)]
pub(crate) fn sum_of<const IS_WIDE: bool>(sum: &impl Exact, low: i32) -> f64 {
    // A conversion rounds to the nearest, ties to even; scaling rounds no more, for nothing is subnormal.
    if !IS_WIDE
        && low >= -126
        && let Some(small) = sum.small()
    {
        return scaled(1, low) * f64::from(small as f32);
    }
    rounded(sum, 1, low, if IS_WIDE { F64 } else { F32 })
}

/// The `f64`, or if not IS_WIDE the `f32`, nearest to a sum divided by a count, which is not 0.
#[inline(always)]
pub(crate) fn mean_of<const IS_WIDE: bool>(sum: &impl Exact, low: i32, count: u64) -> f64 {
    // SAFETY: the count is at least 1.
    unsafe { quotient(sum, count.max(1), low, if IS_WIDE { F64 } else { F32 }) }
}

/// The `f64` nearest to the sum of `count` items, and the `f64` nearest to the difference.
#[inline(always)]
#[expect(clippy::eq_op, reason = "x - x is 0 if x is finite, else NaN")]
pub(super) fn as_f64s(mut sum: impl Exact, count: u64, low: i32) -> [f64; 2] {
    let nearest = rounded(&sum, count, low, F64);
    if nearest == 0.0 || nearest - nearest != 0.0 {
        return [nearest, 0.0];
    }
    sum.subtract(nearest, low);
    // A count of 0, so that a difference of zero is +0.0.
    [nearest, rounded(&sum, 0, low, F64)]
}

/// The sum of `count` items, divided by the count and rounded once.
///
/// # Safety
///
/// The count is not 0.
#[inline(always)]
pub(super) unsafe fn quotient(sum: &impl Exact, count: u64, low: i32, format: Format) -> f64 {
    let mut leading = sum.leading();
    if let Some(special) = leading.special(count) {
        return special;
    }
    // Of 129 bits divided by 64 more than 64 are left, enough to round.
    // SAFETY: as the caller vouches.
    let rest = unsafe { divide_words(&mut leading.words, count) };
    leading.sticky |= rest != 0;
    leading.nearest(low, format)
}

/// Divides words, the lowest first, by a count, and returns the remainder.
///
/// # Safety
///
/// The count is not 0.
#[inline(always)]
unsafe fn divide_words(words: &mut [u64; 4], count: u64) -> u64 {
    let mut rest = 0;
    for word in words.iter_mut().rev() {
        // SAFETY: as the caller vouches.
        (*word, rest) = unsafe { divide(rest, *word, count) };
    }
    rest
}

/// Quotient and remainder of two words by one word larger than the upper: D. E. Knuth, "The Art of Computer
/// Programming", volume 2, 4.3.1, algorithm D, with digits of 32 bits.
///
/// # Safety
///
/// The divisor is not 0.
#[inline(always)]
unsafe fn divide(upper: u64, lower: u64, divisor: u64) -> (u64, u64) {
    let shift = divisor.leading_zeros();
    let divisor = divisor << (shift % 64);
    let (first, second) = (divisor >> 32, divisor & 0xffff_ffff);
    // SAFETY: the divisor is not 0, as the caller vouches, and its highest bit is set now.
    unsafe { assert_unchecked(first > 0) };
    let mut rest = upper << (shift % 64) | lower.unbounded_shr(64 - shift);
    let lower = lower << (shift % 64);
    let mut quotient = 0;
    for next in [lower >> 32, lower & 0xffff_ffff] {
        let mut digit = rest / first;
        let mut over = rest - digit * first;
        while over >> 32 == 0 && (digit >> 32 != 0 || digit * second > (over << 32 | next)) {
            digit -= 1;
            over += first;
        }
        rest = (rest << 32 | next).wrapping_sub(digit.wrapping_mul(divisor));
        quotient = quotient << 32 | digit;
    }
    (quotient, rest >> (shift % 64))
}

/// The sum of `count` items divided by the count: the nearest `f64`, and the rest, which is rounded to an `f64` and NaN
/// if the mean is not finite.
///
/// The division gives at least 129 bits less the number of bits of the count. Bits below these are left out.
#[inline(always)]
#[expect(clippy::eq_op, reason = "x - x is 0 if x is finite, else NaN")]
pub(crate) fn center_of(sum: &impl Exact, low: i32, count: u64) -> [f64; 2] {
    let leading = sum.leading();
    if let Some(special) = leading.special(count) {
        return [special, special - special];
    }
    let Leading { mut words, place, is_negative, .. } = leading;
    // SAFETY: the count is at least 1.
    unsafe { divide_words(&mut words, count.max(1)) };
    let [mean, rest] = as_f64s(Fixed { words, flags: NOT_MINUS_ZERO }, 1, low + place);
    if is_negative { [-mean, -rest] } else { [mean, rest] }
}

/// `mantissa · 2^exponent` as an `f64`; infinite if it is too large.
#[inline(always)]
fn scaled(mantissa: u64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((1023 + exponent.clamp(-1022, 1023)) as u64) << 52);
    mantissa as f64 * power(exponent / 2) * power(exponent - exponent / 2)
}
