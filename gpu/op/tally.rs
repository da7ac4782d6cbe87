//! Sums by index: what an item adds to the sum that its index names.
//!
//! Numbers are added as integers, which add exactly in any order. A float is an integer times a power of two.
//! Most floats of an array fit in a **window**: they are multiples of its lowest bit, 2^LOW, and have no bit
//! above its highest. Such floats are added as integers of 64 bits (`f64`: of 92). What a float of any other
//! size adds is kept beside, in digits that have room for every float ([`Outside`]).

use super::exact::{Exact, Fixed, INFINITE, MINUS_INFINITE, NAN, NOT_MINUS_ZERO};
use super::{Op, exact};
use crate::Element;
use core::ops::AddAssign;

/// A float that is not in the window: a magnitude times 2^shift in units of the least subnormal, or flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// The significand.
    pub magnitude: u64,
    /// The place of its lowest bit.
    pub shift: u32,
    /// Whether it is subtracted.
    pub is_negative: bool,
    /// Of −0.0 [`MINUS_ZERO`]; else [`OTHERS`], and a flag of a NaN or an infinity, whose magnitude is 0.
    pub flags: u32,
}

/// Flag: an item was −0.0.
pub const MINUS_ZERO: u32 = 16;

/// Flag: an item was not −0.0.
pub const OTHERS: u64 = NOT_MINUS_ZERO;

/// Bit of a set of steps: there was a NaN or an infinity.
pub const SPECIAL_STEP: u64 = 1 << 62;

/// Bit of a set of steps: there was a −0.0.
pub const MINUS_ZERO_STEP: u64 = 1 << 63;

impl Outside {
    /// The steps, of `step` bits each, in which the float of `digits` bits lies: bit k for the bits from k ·
    /// `step` on.
    #[inline(always)]
    pub fn steps(self, step: u32, digits: u32) -> u64 {
        match self.flags {
            MINUS_ZERO => MINUS_ZERO_STEP,
            flags if flags & !(NOT_MINUS_ZERO as u32) != 0 => SPECIAL_STEP,
            _ => 1 << (self.shift / step.max(1)) | 1 << ((self.shift + digits - 1) / step.max(1)),
        }
    }

    /// Returns what the number adds to a digit of 32 bits, or to the flags, which are the last of `count` words.
    #[inline(always)]
    pub fn digit(self, digit: usize, count: usize) -> u64 {
        if digit + 1 == count {
            return u64::from(self.flags & !(NOT_MINUS_ZERO as u32));
        }
        self.part(32 * digit as u32, 32) as u64
    }

    /// The part of the number that lies in the `step` bits from bit number `first` on, in units of that bit.
    #[inline(always)]
    pub fn part(self, first: u32, step: u32) -> i128 {
        let shift = self.shift as i32 - first as i32;
        let value = if step <= 64 {
            let value = match shift {
                0.. => self.magnitude.unbounded_shl(shift as u32),
                _ => self.magnitude.unbounded_shr(shift.unsigned_abs()),
            };
            i128::from(value & u64::MAX.unbounded_shr(64 - step))
        } else {
            let magnitude = i128::from(self.magnitude);
            let value = match shift {
                0.. => magnitude.unbounded_shl(shift as u32),
                _ => magnitude.unbounded_shr(shift.unsigned_abs()),
            };
            value & ((1 << step) - 1)
        };
        if self.is_negative { -value } else { value }
    }
}

/// Numbers that are summed by index: `i64`, `u64`, `f32`, `f64`.
pub trait Tallied: Copy {
    /// Words of 32 bits of an item's addend.
    const PARTS: u32;

    /// An addend's unit is 2^LOW.
    const LOW: i32;

    /// Bits of the sum of all that are below the window.
    const BELOW: u32;

    /// Bits of a step outside of the window; 0 if nothing is outside.
    const STEP: u32;

    /// Bits of a significand.
    const DIGITS: u32;

    /// Digits of 32 bits, in a word of 64 each, for what is outside, and a word of flags; 0 if nothing is.
    const REST: usize;

    /// What up to four items add together: `i64` or `i128`.
    type Sum: Copy + Default + AddAssign + Into<i128>;

    /// What the number adds if it is in the window.
    fn addend(self) -> Option<Self::Sum>;

    /// The number as one that is outside.
    fn outside(self) -> Outside;

    /// The number nearest to a sum of which the lowest bit is worth 2^`low`. Integers wrap.
    fn of_exact(sum: &impl Exact, low: i32) -> Self;

    /// The `f64` or `f32` nearest to the mean of `count` numbers, which is not 0.
    fn mean_of(sum: &impl Exact, low: i32, count: u64) -> f64;

    /// Calls `then` with the sum of what is in the window, in units of 2^LOW, and of what is outside: `digit`
    /// returns the words. The lowest bit of that sum is worth 2^`low`, its second argument.
    fn with_rest<R>(sum: i128, digit: impl Fn(usize) -> u64, then: impl Finish<R>) -> R;
}

/// What is made of an exact sum of any type.
pub trait Finish<R> {
    /// Makes it. The sum's lowest bit is worth 2^`low`.
    fn finish(self, sum: &impl Exact, low: i32) -> R;
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl Tallied for $type {
            const PARTS: u32 = 2;
            const LOW: i32 = 0;
            const BELOW: u32 = 0;
            const STEP: u32 = 0;
            const DIGITS: u32 = 64;
            const REST: usize = 0;

            type Sum = i128;

            #[inline(always)]
            fn addend(self) -> Option<i128> {
                Some(self.into())
            }

            #[inline(always)]
            fn outside(self) -> Outside {
                Outside { magnitude: 0, shift: 0, is_negative: false, flags: NOT_MINUS_ZERO as u32 }
            }

            #[inline(always)]
            fn of_exact(sum: &impl Exact, _: i32) -> Self {
                sum.lowest() as $type
            }

            #[inline(always)]
            fn mean_of(sum: &impl Exact, low: i32, count: u64) -> f64 {
                exact::mean_of::<true>(sum, low, count)
            }

            #[inline(always)]
            fn with_rest<R>(sum: i128, _: impl Fn(usize) -> u64, then: impl Finish<R>) -> R {
                then.finish(&sum, 0)
            }
        }
    )*};
}

integers! { i64 u64 }

macro_rules! floats {
    ($($type:ident $is_wide:literal, $digits:literal digits, $exponents:literal exponents, window from $offset:literal in $sum:ident, unit 2 ^ $least:literal,
       $parts:literal parts, $step:literal steps, $words:literal words;)*) => {$(
        impl Tallied for $type {
            const PARTS: u32 = $parts;
            const LOW: i32 = $least + $offset;
            const BELOW: u32 = $offset;
            const STEP: u32 = $step;
            const DIGITS: u32 = $digits;
            const REST: usize = 2 * $words + 1;

            type Sum = $sum;

            #[inline(always)]
            fn addend(self) -> Option<$sum> {
                addend::$type(self)
            }

            #[inline(always)]
            fn outside(self) -> Outside {
                let bits = self.to_bits();
                let magnitude = bits << 1 >> 1;
                let exponent = (magnitude >> ($digits - 1)) as u32;
                let fraction = (magnitude & ((1 << ($digits - 1)) - 1)) as u64;
                let is_negative = magnitude != bits;
                let is_special = exponent == (1 << $exponents) - 1;
                let flags = match (is_special, fraction == 0, is_negative) {
                    (true, false, _) => NAN as u32,
                    (true, true, false) => INFINITE as u32,
                    (true, true, true) => MINUS_INFINITE as u32,
                    (false, true, true) if exponent == 0 => MINUS_ZERO,
                    _ => 0,
                };
                let significand = if exponent > 0 { fraction | 1 << ($digits - 1) } else { fraction };
                Outside {
                    magnitude: if is_special { 0 } else { significand },
                    shift: if exponent > 1 && !is_special { exponent - 1 } else { 0 },
                    is_negative,
                    flags: if flags == MINUS_ZERO { flags } else { flags | NOT_MINUS_ZERO as u32 },
                }
            }

            #[inline(always)]
            fn of_exact(sum: &impl Exact, low: i32) -> Self {
                exact::sum_of::<$is_wide>(sum, low) as $type
            }

            #[inline(always)]
            fn mean_of(sum: &impl Exact, low: i32, count: u64) -> f64 {
                exact::mean_of::<$is_wide>(sum, low, count)
            }

            #[inline(always)]
            fn with_rest<R>(sum: i128, digit: impl Fn(usize) -> u64, then: impl Finish<R>) -> R {
                let mut all = Fixed::<$words>::of_digits(&digit);
                let flags = digit(2 * $words) as u32;
                let only_minus_zeros = flags & (MINUS_ZERO | NOT_MINUS_ZERO as u32) == MINUS_ZERO;
                all.flags = u64::from(flags & !MINUS_ZERO);
                if !only_minus_zeros {
                    all.flags |= NOT_MINUS_ZERO;
                }
                let magnitude = sum.unsigned_abs();
                for piece in 0..3 {
                    let part = (magnitude >> (48 * piece)) as u64 & ((1 << 48) - 1);
                    all.add(part, $offset + 48 * piece, sum < 0);
                }
                then.finish(&all, $least)
            }
        }
    )*};
}

floats! {
    f32 false, 24 digits, 8 exponents, window from 111 in i64, unit 2 ^ -149, 2 parts, 64 steps, 6 words;
    f64 true, 53 digits, 11 exponents, window from 1006 in i128, unit 2 ^ -1074, 3 parts, 96 steps, 34 words;
}

/// What floats add that are in the window.
mod addend {
    use super::Tallied;

    /// A multiple of 2^−38 less than 2^22: an integer of 60 bits, so that four of them are one of 64.
    #[inline(always)]
    pub fn f32(value: f32) -> Option<i64> {
        const _: () = assert!(<f32 as Tallied>::LOW == -38);
        const UNITS: f32 = (1u64 << 38) as f32;
        const END: f32 = (1u64 << 60) as f32;
        let units = value * UNITS;
        #[cfg(target_arch = "nvptx64")]
        let whole = cuda_std::intrinsics::trunc_f32(units);
        #[cfg(not(target_arch = "nvptx64"))]
        let whole = units.trunc();
        let is_inside = (units == whole) & (units.abs() < END) & (value.to_bits() != 1 << 31);
        // SAFETY: it is a number less than 2^60.
        if is_inside { Some(unsafe { units.to_int_unchecked() }) } else { None }
    }

    /// A multiple of 2^−68 less than 2^24: an integer of 92 bits.
    #[inline(always)]
    pub fn f64(value: f64) -> Option<i128> {
        const OFFSET: i32 = <f64 as Tallied>::LOW + 1074;
        const MOST: i32 = 92 - 53;
        let bits = value.to_bits();
        let magnitude = bits & (u64::MAX >> 1);
        let exponent = (magnitude >> 52) as i32;
        let fraction = magnitude & ((1 << 52) - 1);
        let significand = if exponent > 0 { fraction | 1 << 52 } else { fraction };
        let shift = if exponent > 1 { exponent - 1 } else { 0 } - OFFSET;
        let is_negative = magnitude != bits;
        if shift > MOST {
            return None;
        }
        let addend = if shift >= 0 {
            i128::from(significand) << shift
        } else {
            let shift = shift.unsigned_abs();
            let rest = significand.unbounded_shr(shift);
            // It has bits below the window, or is −0.0.
            if rest.unbounded_shl(shift) != significand || (rest == 0 && is_negative) {
                return None;
            }
            i128::from(rest)
        };
        Some(if is_negative { -addend } else { addend })
    }
}

/// Operators that make something of an exact sum, by which items can be added up in any order. Of floats,
/// sums and means by index are therefore the correctly rounded ones.
pub trait OfTally<T: Element>: Op<T> {
    /// Whether it needs the number of items.
    const COUNTS: bool;

    /// The result of `count` items, which are not counted if none are needed. The sum's lowest bit is worth
    /// 2^`low`.
    fn of_tally(sum: &impl Exact, low: i32, count: u64) -> Self::Output;
}
