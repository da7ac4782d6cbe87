//! The windows of a thread: see [`op::exact`](crate::op::exact) for how a window rounds without losing a bit.
//!
//! With D digits of the window's type (24 for `f32`, 53 for `f64`) and T terms in a thread's tile, H = 1 +
//! log2 T is the **headroom**: a window 1.5 · 2^P takes terms below 2^(P − H). A tile moves it by at most T ·
//! 2^(P − H) = 2^(P − 1), to the end of its binade and no further. A remainder is at most 2^(P − D). The next
//! window's exponent is less by the **step** S = D − 1 − H, and so it takes that: 2^(P − D) < 2^((P − S) −
//! H).

use crate::op::exact::{INFINITE, MINUS_INFINITE, NAN, Terms};
use core::array::from_fn;
use core::marker::PhantomData;
use core::ops::{Add, Sub};

/// Bits by which later items may exceed the largest of the first ones without a change of windows.
const SLACK: i32 = 2;

/// The type of windows, `f32` or `f64`.
///
/// Its **upper word** is the sign, the exponent and the first bits of the fraction. It takes one register,
/// and stands for the number where magnitudes are compared.
pub(crate) trait Float: Copy + PartialEq + Add<Output = Self> + Sub<Output = Self> {
    /// Bits of a significand.
    const DIGITS: i32;
    /// The exponent of the smallest normal number.
    const LEAST: i32;
    /// Bits of the fraction in the upper word.
    const UPPER_FRACTION: i32;

    /// Windows that are tried first, at most [`FEW`](super::thread::FEW).
    const FEW: usize;
    /// Windows that are tried next, at most [`MANY`](super::thread::MANY).
    const MANY: usize;

    /// Tiles after which `Moved` is added to the block's sum. A tile moves a window by at most 2^(DIGITS − 2)
    /// units of its last bit; that many tiles fit in an `i32` for `f32`, and those of 32 lanes in an `i64`
    /// for `f64`.
    const FULL: u32;

    /// How far several tiles have moved a window, in units of its last bit.
    type Moved: Copy + Into<i64>;
    const UNMOVED: Self::Moved;

    /// 1.5 · 2^exponent.
    fn window(exponent: i32) -> Self;

    /// Not zero if the bits differ. The sign's bit may be ignored.
    fn differs(self, other: Self) -> u32;

    /// `before` and the distance of a window from where it began: within a binade, numbers are as far apart
    /// as their bits.
    fn moved(self, from: Self, before: Self::Moved) -> Self::Moved;

    /// The upper word.
    fn upper_word(self) -> u32;

    /// The upper word of 2^exponent.
    #[inline(always)]
    fn upper_word_of(exponent: i32) -> u32 {
        ((exponent - Self::LEAST + 1) as u32) << Self::UPPER_FRACTION
    }

    /// The exponent in an upper word without the sign.
    #[inline(always)]
    fn exponent(upper_word: u32) -> i32 {
        (upper_word >> Self::UPPER_FRACTION) as i32 + Self::LEAST - 1
    }

    /// The number as an integer, and the exponent of its last bit; the flag of NaN or an infinity.
    fn integer(self) -> Result<(i64, i32), u64>;
}

macro_rules! floats {
    ($(
        $type:ident: $bits:ident $signed:ident, $digits:literal digits of $exponents:literal exponents,
        $few:literal or $many:literal, $full:literal full;
    )*) => {$(
        impl Float for $type {
            const DIGITS: i32 = $digits;
            const LEAST: i32 = 2 - $exponents / 2;
            const UPPER_FRACTION: i32 = $digits - 1 + 32 - $bits::BITS as i32;
            const FEW: usize = $few;
            const MANY: usize = $many;
            const FULL: u32 = $full;
            type Moved = $signed;
            const UNMOVED: $signed = 0;

            #[inline(always)]
            fn window(exponent: i32) -> $type {
                let biased = exponent - Self::LEAST + 1;
                $type::from_bits((biased as $bits) << ($digits - 1) | 1 << ($digits - 2))
            }

            #[inline(always)]
            fn differs(self, other: $type) -> u32 {
                let bits = self.to_bits() ^ other.to_bits();
                let lower = if $bits::BITS == 32 { u32::MAX >> 1 } else { u32::MAX };
                (bits as u64 >> 32) as u32 & (u32::MAX >> 1) | bits as u32 & lower
            }

            #[inline(always)]
            fn moved(self, from: $type, before: $signed) -> $signed {
                before.wrapping_add(self.to_bits().wrapping_sub(from.to_bits()) as $signed)
            }

            #[inline(always)]
            fn upper_word(self) -> u32 {
                (self.to_bits() >> ($bits::BITS - 32)) as u32
            }

            #[inline(always)]
            fn integer(self) -> Result<(i64, i32), u64> {
                let bits = self.to_bits();
                let exponent = (bits >> ($digits - 1)) as i32 & ($exponents - 1);
                let fraction = bits & ((1 << ($digits - 1)) - 1);
                let is_negative = bits >> ($bits::BITS - 1) != 0;
                if exponent == $exponents - 1 {
                    return Err(match (fraction, is_negative) {
                        (0, false) => INFINITE,
                        (0, true) => MINUS_INFINITE,
                        _ => NAN,
                    });
                }
                let whole = (fraction | if exponent > 0 { 1 << ($digits - 1) } else { 0 }) as i64;
                Ok((if is_negative { -whole } else { whole }, exponent.max(1) + Self::LEAST - $digits))
            }
        }
    )*};
}

floats! {
    f32: u32 i32, 24 digits of 256 exponents, 3 or 9, 128 full;
    f64: u64 i64, 53 digits of 2048 exponents, 2 or 4, 32 full;
}

/// The exponents of windows for tiles of TERMS terms a thread. `high` is that of the first window.
pub(super) struct Spacing<F, const TERMS: usize>(PhantomData<F>);

impl<F: Float, const TERMS: usize> Spacing<F, TERMS> {
    /// A window with exponent P takes terms below 2^(P − HEADROOM).
    const HEADROOM: i32 = 1 + TERMS.next_power_of_two().ilog2() as i32;

    /// The exponent of a window minus that of the next.
    const STEP: i32 = F::DIGITS - 1 - Self::HEADROOM;

    /// `high` before windows are chosen.
    pub(super) const NONE: i32 = F::LEAST;

    /// `high` for terms whose largest magnitude has this upper word. It is below the format's largest
    /// exponent, so that the end of the binade is a number.
    #[inline(always)]
    pub(super) fn high_for(most: u32) -> i32 {
        (F::exponent(most) + 1 + Self::HEADROOM + SLACK).min(-F::LEAST)
    }

    /// The exponent of a window. It is at least that of the smallest normal number, whose last bit is the
    /// smallest subnormal.
    #[inline(always)]
    pub(super) fn exponent(high: i32, window: usize) -> i32 {
        (high - Self::STEP * window as i32).max(F::LEAST)
    }

    /// The least upper word of magnitudes that are too large.
    #[inline(always)]
    fn limit(high: i32) -> u32 {
        F::upper_word_of(high - Self::HEADROOM)
    }
}

/// COUNT windows that a thread's items of a tile move.
pub(super) struct Windows<F, const COUNT: usize, const TERMS: usize> {
    sums: [F; COUNT],
    /// Not zero if an item has left a remainder.
    rest: u32,
    /// Whether each item is the sum of its terms.
    is_exact: bool,
    /// The upper word of the largest magnitude.
    pub(super) most: u32,
    /// Not zero if an item is not −0.0.
    pub(super) bits: u32,
}

impl<F: Float, const COUNT: usize, const TERMS: usize> Windows<F, COUNT, TERMS> {
    #[inline(always)]
    fn window(high: i32, window: usize) -> F {
        F::window(Spacing::<F, TERMS>::exponent(high, window))
    }

    #[inline(always)]
    pub(super) fn new(high: i32) -> Self {
        Self { sums: from_fn(|window| Self::window(high, window)), rest: 0, is_exact: true, most: 0, bits: 0 }
    }

    /// Adds an item to the first `count` windows.
    #[inline(always)]
    pub(super) fn add<I: Terms<N, OnGpu = F>, const N: usize>(&mut self, item: I, count: usize) {
        if N > 1 {
            self.is_exact &= item.is_exact(item.terms());
        }
        let terms = item.terms_on_gpu();
        self.most = self.most.max(magnitude(terms[0]));
        self.bits |= terms[0].upper_word() ^ 1 << 31;
        for (term, mut rest) in terms.into_iter().enumerate() {
            // A second term is too small for the first window.
            for window in term..count - 1 {
                let next = self.sums[window] + rest;
                rest = rest - (next - self.sums[window]);
                self.sums[window] = next;
            }
            let last = self.sums[count - 1];
            let next = last + rest;
            self.rest |= (next - last).differs(rest);
            self.sums[count - 1] = next;
        }
    }

    /// Whether the windows took all items. A NaN or an infinity has too large a magnitude.
    #[inline(always)]
    pub(super) fn is_all(&self, high: i32) -> bool {
        self.is_exact & (self.rest == 0) & (self.most < Spacing::<F, TERMS>::limit(high))
    }

    /// `before` and how far a window was moved.
    #[inline(always)]
    pub(super) fn moved(&self, window: usize, high: i32, before: F::Moved) -> F::Moved {
        self.sums[window].moved(Self::window(high, window), before)
    }
}

/// The upper word without the sign.
#[inline(always)]
pub(super) fn magnitude(value: impl Float) -> u32 {
    value.upper_word() & (u32::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Debug;

    /// Adds as many of the largest items, of one sign, as windows may take before `Moved` is emptied: no
    /// window leaves its binade, and no integer overflows.
    fn check<T: Float + Debug + Terms<1, OnGpu = T>, const COUNT: usize, const TERMS: usize>(
        most: impl Fn(i32) -> T,
        sign: i64,
    ) {
        for high in [T::LEAST + 20, -3, 0, 40, -T::LEAST] {
            // The largest magnitude below the limit.
            let exponent = high - Spacing::<T, TERMS>::HEADROOM;
            let item = most(exponent);
            assert!(
                magnitude(item) < Spacing::<T, TERMS>::limit(high)
                    && magnitude(item) > Spacing::<T, TERMS>::limit(high - 1)
            );
            let mut moved = [T::UNMOVED; COUNT];
            for _ in 0..T::FULL {
                let mut windows = Windows::<T, COUNT, TERMS>::new(high);
                for _ in 0..TERMS {
                    windows.add(item, COUNT);
                }
                assert!(windows.is_all(high), "{item:?}");
                for (window, moved) in moved.iter_mut().enumerate() {
                    let exponent = Spacing::<T, TERMS>::exponent(high, window);
                    // Or at the end of the binade, after the last item.
                    let sum = windows.sums[window].upper_word();
                    let is_end = sum == T::upper_word_of(exponent + 1);
                    assert!(T::exponent(sum) == exponent || is_end, "{item:?} in window {window}");
                    *moved = windows.moved(window, high, *moved);
                }
            }
            // In units of an item's last bit.
            let (value, place) = item.integer().unwrap();
            let mut sum = 0i128;
            for (window, moved) in moved.into_iter().enumerate() {
                let last = Spacing::<T, TERMS>::exponent(high, window) - T::DIGITS + 1;
                let of_warp: i64 =
                    (0..32).fold(0i64, |all, _| all.checked_add(moved.into()).expect("a warp's integers"));
                let of_warp = i128::from(of_warp);
                sum += if last >= place {
                    of_warp << (last - place)
                } else {
                    of_warp.checked_shr((place - last) as u32).unwrap_or(0)
                };
            }
            assert_eq!(value.signum(), sign);
            assert_eq!(sum, i128::from(value) * 32 * i128::from(T::FULL) * TERMS as i128, "{item:?}");
        }
    }

    #[test]
    fn the_most_additions_between_two_emptyings() {
        let single = |exponent: i32| f32::from_bits((((exponent + 127) as u32) << 23) - 1);
        check::<f32, { <f32 as Float>::FEW }, 16>(single, 1);
        check::<f32, { <f32 as Float>::MANY }, 16>(|exponent| -single(exponent), -1);
        let double = |exponent: i32| f64::from_bits((((exponent + 1023) as u64) << 52) - 1);
        check::<f64, { <f64 as Float>::FEW }, 8>(double, 1);
        check::<f64, { <f64 as Float>::MANY }, 8>(|exponent| -double(exponent), -1);
        // As many terms as a tile of products has.
        check::<f64, { <f64 as Float>::FEW }, 16>(double, 1);
    }
}
