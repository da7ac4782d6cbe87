//! Sums without rounding, which the exact operators have in common.
//!
//! A sum of floats is an integer of so many words that none of its type's bits is lost, the lowest of which is worth that of the least subnormal: 2^64 numbers
//! of any magnitude, and their sum, fit. Such sums add as integers do, in any order and grouping, and are rounded once.
//!
//! Most items are not added to that, but summed in windows, by `f64` arithmetic that is exact (S. M. Rump, T. Ogita, S. Oishi, "Accurate floating-point
//! summation part I", SIAM J. Sci. Comput. 31, 2008, `ExtractVector`). With a window A = 1.5 · 2^P and an item x of less than 2^(P − 7), `t = A + x` is a
//! multiple of 2^(P − 52), because it lies in the binade of A; so is `q = t − A`, exactly, and the rest `x − q` is no more than 2^(P − 53), and exact. Another
//! window, with an exponent less by 45, takes that, of which it is less than 2^(P − 45 − 7). The windows themselves add up what was taken: where 2^5 items come
//! to each, none moves it by more than 2^(P − 7), and so it has moved by no more than 2^(P − 2), and has not left its binade, which is 2^(P − 1) to each side.
//! What is left in the end, of items with bits that are too low, says that there are too few windows.
//!
//! `cpu` does so with a block of items side by side, `gpu` with those that a thread has on their way.

/// An operator that sums exactly, and what it makes of the sum of so many.
macro_rules! of_exact_sum {
    ($(#[$doc:meta])* $op:ident $name:literal: $output:ty, |$sum:ident, $count:ident| $finish:expr) => {
        use crate::input::Input;
        use crate::op::exact::{Exact, ExactElement, OfExactSum};
        use crate::op::{OnCpu, Op};
        use crate::reduce::Arguments;
        use crate::table;
        use bytemuck::{Pod, Zeroable};

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $op;

        impl<T: ExactElement> Op<T> for $op {
            const NAME: &'static str = $name;
            type Accumulator = T::State;
            type Output = $output;
            const EXACT: bool = true;
            const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

            #[inline(always)]
            fn identity(&self) -> T::State {
                T::NOTHING
            }

            #[inline(always)]
            fn lift(&self, item: T, _: u64) -> T::State {
                item.alone()
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn fold_items<S: crate::cpu::Source<Item = T>>(&self, items: S, _: u64) -> T::State {
                T::sum(items)
            }

            #[inline(always)]
            unsafe fn reduce_on_gpu<P: Input<Item = T>, const BLOCK: u32, const WIDTH: usize>(
                arguments: Arguments<P, Self, Self::Output>,
                is_row: bool,
            ) {
                // SAFETY: as the caller vouches.
                unsafe { T::reduce_on_gpu::<Self, P, BLOCK, WIDTH>(arguments, is_row) }
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn of_slot(word: impl Fn(usize) -> u64) -> Option<T::State> {
                T::of_slot(word)
            }

            #[inline(always)]
            fn fold_item(&self, all: &mut T::State, item: T, _: u64) {
                item.add_to(all);
            }

            #[inline(always)]
            fn fold_load<const WIDTH: usize>(&self, all: &mut [T::State; WIDTH], items: [T; WIDTH], _: u64) {
                T::add_load_to(items, &mut all[0]);
            }

            #[inline(always)]
            fn combine(&self, a: T::State, b: T::State) -> T::State {
                T::plus(a, b)
            }

            #[inline(always)]
            fn finish(&self, sum: T::State, count: u64) -> Option<$output> {
                Some(<Self as OfExactSum<T>>::of_sum(sum, count))
            }
        }

        impl<T: ExactElement> OfExactSum<T> for $op {
            #[inline(always)]
            fn of_sum($sum: impl Exact, $count: u64) -> $output {
                $finish
            }
        }
    };
}

use crate::agent::exact as gpu;
use crate::element::{Accumulator, Element};
#[cfg(not(target_arch = "nvptx64"))]
use crate::host_simd::{Source, exact as cpu};
use crate::input::Input;
use crate::op::{Op, fma};
use crate::reduce::{self, Arguments};
#[cfg(not(target_arch = "nvptx64"))]
use crate::slot;
use bytemuck::{Pod, Zeroable};
use core::fmt::Debug;
use core::hint::assert_unchecked;
use half::{bf16, f16};

/// Some item was NaN, or infinite.
pub(crate) const NAN: u64 = 1;
pub(crate) const INFINITE: u64 = 2;
pub(crate) const MINUS_INFINITE: u64 = 4;

/// Some item was not −0.0.
pub(crate) const NOT_MINUS_ZERO: u64 = 8;

/// A sum of floats: an integer of W words, in two's complement, the lowest first, and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Fixed<const W: usize> {
    pub(crate) words: [u64; W],
    pub(crate) flags: u64,
}

// SAFETY: words alone, and any are a value.
unsafe impl<const W: usize> Zeroable for Fixed<W> {}
// SAFETY: as above.
unsafe impl<const W: usize> Pod for Fixed<W> {}

/// What numbers are added to.
pub(crate) trait Sum {
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

/// Words of the longest sums that are held in a GPU's registers; of others, all is done word by word.
const SHORT: usize = 10;

/// Calls `each` for each of W words, the lowest first.
#[inline(always)]
fn each_word<const W: usize>(mut each: impl FnMut(usize)) {
    #[cfg(target_arch = "nvptx64")]
    if W > SHORT {
        // Of a count that the compiler knows, it makes as much code.
        let count = cuda_std::intrinsics::opaque(W as u32) as usize;
        let mut index = 0;
        while index < count {
            cuda_std::intrinsics::no_unroll();
            // SAFETY: the count is W.
            unsafe { assert_unchecked(index < W) };
            each(index);
            index += 1;
        }
        return;
    }
    for index in 0..W {
        each(index);
    }
}

/// Calls `each` with items, one after another: on a GPU in a loop, as it is much code.
#[inline(always)]
fn each_of<I: Copy, const N: usize>(items: [I; N], mut each: impl FnMut(I)) {
    #[cfg(target_arch = "nvptx64")]
    {
        let mut items = items;
        let count = cuda_std::intrinsics::opaque(N as u32);
        let mut index = 0;
        while index < count {
            cuda_std::intrinsics::no_unroll();
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

/// A sum of two words and what was carried; and what it carries.
#[inline(always)]
fn add_words(a: u64, b: u64, carry: bool) -> (u64, bool) {
    let (value, first) = a.overflowing_add(b);
    let (value, second) = value.overflowing_add(carry.into());
    (value, first | second)
}

impl<const W: usize> Fixed<W> {
    pub(crate) const ZERO: Self = Self { words: [0; W], flags: 0 };

    /// Adds `magnitude · 2^shift`, or takes it away.
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
                let part = part.wrapping_add(carry.into());
                // A part is less than 2^64 − 1.
                (*place, carry) =
                    if is_negative { place.overflowing_sub(part) } else { place.overflowing_add(part) };
            }
            return;
        }
        // Places that are known are registers.
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

    /// The sum of both.
    #[inline(always)]
    fn plus(mut self, other: Self) -> Self {
        let mut carry = false;
        each_word::<W>(|index| {
            (self.words[index], carry) = add_words(self.words[index], other.words[index], carry);
        });
        self.flags |= other.flags;
        self
    }
}

/// An exact sum, of which is known what it is rounded by.
#[doc(hidden)]
pub trait Exact {
    /// What it is rounded by.
    fn leading(&self) -> Leading;

    /// Takes a finite number away, where the sum's lowest bit is worth 2^low, and the number has none below.
    fn take_away(&mut self, value: f64, low: i32);

    /// Its lowest 128 bits.
    fn lowest(&self) -> i128;
}

/// The first bits of a sum's magnitude, and what else it is rounded by.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Leading {
    /// Of its magnitude so many words that their first bit that is set has 128 behind it.
    words: [u64; 4],
    /// The place of their lowest bit.
    place: i32,
    /// Whether there is anything below.
    below: bool,
    is_negative: bool,
    flags: u64,
}

impl Leading {
    /// That of an integer in two's complement, by words of which these are, but for the sign in all bits, the first that is not zero, and two after it; and
    /// whether there is anything but zeros below. The first has this place.
    #[inline(always)]
    pub(crate) fn of(words: [u64; 3], place: i32, below: bool, is_negative: bool, flags: u64) -> Self {
        let mut words = [words[0], words[1], words[2], 0];
        let mut carry = is_negative && !below;
        for word in &mut words {
            (*word, carry) = word.overflowing_add(carry.into());
        }
        Self { words, place: place - 128, below, is_negative, flags }
    }

    /// The sum of so many if it is no finite number other than zero.
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
}

impl<const W: usize> Exact for Fixed<W> {
    #[inline(always)]
    fn leading(&self) -> Leading {
        let is_negative = self.words[W - 1] >> 63 != 0;
        let sign = if is_negative { u64::MAX } else { 0 };
        // The last two words with that sign as zeros, and whether there was anything else before them.
        let (mut last, mut before, mut below) = (sign, sign, false);
        let mut leading = ([0; 3], 0, false);
        each_word::<W>(|index| {
            let word = self.words[index] ^ sign;
            if word != 0 || index == 0 {
                leading = ([before, last, word], index as i32, below);
            }
            below |= before != sign;
            (before, last) = (last, word);
        });
        let (words, index, below) = leading;
        Leading::of(words, 64 * index, below, is_negative, self.flags)
    }

    #[inline(always)]
    fn take_away(&mut self, value: f64, low: i32) {
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
    fn take_away(&mut self, value: f64, low: i32) {
        let mut sum = Fixed::of(*self);
        sum.take_away(value, low);
        *self = sum.lowest();
    }

    fn lowest(&self) -> i128 {
        *self
    }
}

impl Fixed<2> {
    /// An integer.
    #[inline(always)]
    fn of(sum: i128) -> Self {
        Self { words: [sum as u64, (sum >> 64) as u64], flags: NOT_MINUS_ZERO }
    }
}

/// The sum of so many, rounded once.
#[inline(always)]
fn rounded(sum: &impl Exact, count: u64, low: i32, format: Format) -> f64 {
    let leading = sum.leading();
    leading.special(count).unwrap_or_else(|| leading.nearest(low, format))
}

/// The `f64` nearest to the sum of so many, and that nearest to what it lacks.
#[inline(always)]
#[expect(clippy::eq_op, reason = "0, or NaN of what is not finite")]
fn as_f64s(mut sum: impl Exact, count: u64, low: i32) -> [f64; 2] {
    let nearest = rounded(&sum, count, low, F64);
    if nearest == 0.0 || nearest - nearest != 0.0 {
        return [nearest, 0.0];
    }
    sum.take_away(nearest, low);
    // Nothing is 0.0.
    [nearest, rounded(&sum, 0, low, F64)]
}

/// The sum of so many, divided by their number and rounded once.
///
/// # Safety
///
/// There are some.
#[inline(always)]
unsafe fn quotient(sum: &impl Exact, count: u64, low: i32, format: Format) -> f64 {
    let mut leading = sum.leading();
    if let Some(special) = leading.special(count) {
        return special;
    }
    let mut rest = 0;
    // (More than 64 bits of a quotient are left of 129.)
    for word in leading.words.iter_mut().rev() {
        // SAFETY: as the caller vouches.
        (*word, rest) = unsafe { divide(rest, *word, count) };
    }
    leading.below |= rest != 0;
    leading.nearest(low, format)
}

/// The quotient and the rest of two words by one that is larger than the upper: D. E. Knuth, "The Art of Computer Programming", volume 2, 4.3.1, algorithm D,
/// with digits of 32 bits.
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

/// A float format: the digits of a number, and what the lowest is worth at least.
#[derive(Clone, Copy)]
struct Format {
    digits: i32,
    least: i32,
}

const F32: Format = Format { digits: 24, least: -149 };
const F64: Format = Format { digits: 53, least: -1074 };

/// `mantissa · 2^exponent`, which is an `f64`, or too large for one.
#[inline(always)]
fn scaled(mantissa: u64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((1023 + exponent.clamp(-1022, 1023)) as u64) << 52);
    mantissa as f64 * power(exponent / 2) * power(exponent - exponent / 2)
}

impl Leading {
    /// The nearest number of a format, the even one of two, as an `f64`, infinite where an `f64` is; of a sum whose lowest bit is worth 2^low.
    #[inline(always)]
    fn nearest(&self, low: i32, format: Format) -> f64 {
        let [d, c, b, a] = self.words;
        // The first word that is not zero, the one after it, and whether there is something after that.
        let (top, first, second, rest) = match (a, b, c) {
            (0, 0, 0) => (0, d, 0, 0),
            (0, 0, _) => (1, c, d, 0),
            (0, _, _) => (2, b, c, d),
            _ => (3, a, b, c | d),
        };
        // The first 64 bits, and what the lowest of them is worth.
        let zeros = first.leading_zeros();
        let bits = first << (zeros % 64) | second.unbounded_shr(64 - zeros);
        let below = self.below || rest != 0 || second << (zeros % 64) != 0;
        let lowest = low + self.place + 64 * top - zeros as i32;
        let drop = (64 - format.digits).max(format.least - lowest);
        let mantissa = bits.unbounded_shr(drop as u32);
        let half = 1u64.unbounded_shl(drop as u32 - 1);
        let is_more = below || bits & half.wrapping_sub(1) != 0;
        let is_up = bits & half != 0 && (is_more || mantissa & 1 != 0);
        let nearest = scaled(mantissa + u64::from(is_up), lowest + drop);
        if self.is_negative { -nearest } else { nearest }
    }
}

/// Operators that make something of an exact sum.
#[doc(hidden)]
pub trait OfExactSum<I: Copy + 'static>: Op<I> {
    /// What of the sum of so many.
    fn of_sum(sum: impl Exact, count: u64) -> Self::Output;
}

/// Elements whose sums are exact.
pub trait ExactElement: Element {
    /// An exact sum.
    type State: Accumulator + Exact;

    /// What an exact sum is rounded to: `f32` of all floats but `f64`; of integers it is not rounded, and an `i128`.
    type Rounded: Copy + PartialEq + Debug + Send + Sync + 'static;

    /// The sum of nothing.
    const NOTHING: Self::State;

    /// The sum of one.
    fn alone(self) -> Self::State;

    /// Adds one.
    #[doc(hidden)]
    fn add_to(self, sum: &mut Self::State);

    /// Adds some.
    #[doc(hidden)]
    #[inline(always)]
    fn add_load_to<const N: usize>(items: [Self; N], sum: &mut Self::State) {
        each_of(items, |item| item.add_to(sum));
    }

    /// The sum of both.
    fn plus(a: Self::State, b: Self::State) -> Self::State;

    /// The sum of items side by side.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn sum<S: Source<Item = Self>>(items: S) -> Self::State;

    /// As [`Op::of_slot`].
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn of_slot(word: impl Fn(usize) -> u64) -> Option<Self::State>;

    /// What the kernel of an operator does that sums so.
    ///
    /// # Safety
    ///
    /// As for [`reduce::reduce`].
    #[doc(hidden)]
    unsafe fn reduce_on_gpu<
        O: OfExactSum<Self, Accumulator = Self::State>,
        P: Input<Item = Self>,
        const BLOCK: u32,
        const WIDTH: usize,
    >(
        arguments: Arguments<P, O, O::Output>,
        is_row: bool,
    );

    /// The number nearest to the sum of so many.
    #[doc(hidden)]
    fn rounded(sum: impl Exact, count: u64) -> Self::Rounded;

    /// The nearest `f64`, and the nearest to what it lacks.
    #[doc(hidden)]
    fn as_f64s(sum: impl Exact, count: u64) -> [f64; 2];

    /// The number nearest to the sum divided by a count; of a count of 0, NaN.
    #[doc(hidden)]
    fn mean(sum: impl Exact, count: u64) -> Self::Real;
}

/// How items become floats that are summed.
pub(crate) trait Terms<I, const N: usize, const W: usize> {
    /// The sum's lowest bit is worth 2^LOW, and items have none below.
    const LOW: i32;

    /// An item whose terms are −0.0.
    const NOTHING: I;

    /// What terms are on a GPU, where `f32` takes half the time.
    type OnGpu: gpu::Float;

    /// Floats whose sum is the item: a first one, and each other less than 2^-52 of that.
    fn terms(item: I) -> [f64; N];

    /// The same.
    fn terms_on_gpu(item: I) -> [Self::OnGpu; N];

    /// Whether the sum of the terms is the item.
    fn is_exact(item: I, terms: [f64; N]) -> bool;

    /// Adds an item bit by bit.
    fn add(sum: &mut impl Sum, item: I);
}

macro_rules! floats {
    ($($type:ident: [u64; $words:literal] from 2 ^ $low:literal, $format:ident, $windows:literal windows, $loads:literal loads of $terms:literal, nothing $nothing:expr;)*) => {$(
        impl ExactElement for $type {
            type State = Fixed<$words>;
            type Rounded = Self::Real;
            const NOTHING: Fixed<$words> = Fixed::ZERO;

            #[inline(always)]
            fn alone(self) -> Fixed<$words> {
                let mut sum = Fixed::ZERO;
                self.add_to(&mut sum);
                sum
            }

            #[inline(always)]
            fn add_to(self, sum: &mut Fixed<$words>) {
                sum.add_f64(self.to_f64(), $low);
            }

            #[inline(always)]
            fn plus(a: Fixed<$words>, b: Fixed<$words>) -> Fixed<$words> {
                a.plus(b)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn sum<S: Source<Item = Self>>(items: S) -> Fixed<$words> {
                cpu::sum_of::<Alone, S, 1, $words, $windows>(items)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn of_slot(word: impl Fn(usize) -> u64) -> Option<Fixed<$words>> {
                Fixed::of_slot(word)
            }

            #[inline(always)]
            unsafe fn reduce_on_gpu<O: OfExactSum<$type, Accumulator = Fixed<$words>>, P: Input<Item = $type>, const BLOCK: u32, const WIDTH: usize>(
                arguments: Arguments<P, O, O::Output>,
                _: bool,
            ) {
                // SAFETY: as the caller vouches.
                unsafe { gpu::reduce::<Alone, O, P, BLOCK, WIDTH, 1, $words, $loads, $terms>(arguments) }
            }

            #[inline(always)]
            fn rounded(sum: impl Exact, count: u64) -> Self::Real {
                Self::real(rounded(&sum, count, $low, $format))
            }

            #[inline(always)]
            fn as_f64s(sum: impl Exact, count: u64) -> [f64; 2] {
                as_f64s(sum, count, $low)
            }

            #[inline(always)]
            fn mean(sum: impl Exact, count: u64) -> Self::Real {
                if count == 0 {
                    return Self::real(f64::NAN);
                }
                // SAFETY: looked at above.
                Self::real(unsafe { quotient(&sum, count, $low, $format) })
            }
        }

        impl Terms<$type, 1, $words> for Alone {
            const LOW: i32 = $low;
            const NOTHING: $type = $nothing;
            type OnGpu = <$type as Element>::Wide;

            #[inline(always)]
            fn terms_on_gpu(item: $type) -> [Self::OnGpu; 1] {
                [item.widen()]
            }

            #[inline(always)]
            fn terms(item: $type) -> [f64; 1] {
                [item.to_f64()]
            }

            #[inline(always)]
            fn is_exact(_: $type, _: [f64; 1]) -> bool {
                true
            }

            #[inline(always)]
            fn add(sum: &mut impl Sum, item: $type) {
                sum.add_f64(item.to_f64(), $low);
            }
        }
    )*};
}

/// Items as they are.
pub(crate) struct Alone;

floats! {
    f16: [u64; 2] from 2 ^ -24, F32, 1 windows, 2 loads of 16, nothing f16::NEG_ZERO;
    bf16: [u64; 6] from 2 ^ -133, F32, 1 windows, 2 loads of 16, nothing bf16::NEG_ZERO;
    f32: [u64; 6] from 2 ^ -149, F32, 1 windows, 4 loads of 16, nothing -0.0;
    f64: [u64; 34] from 2 ^ -1074, F64, 2 windows, 4 loads of 8, nothing -0.0;
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
            fn add_to(self, sum: &mut i128) {
                *sum = sum.wrapping_add(self.into());
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
                    let end = items.len().min(start + cpu::BLOCK);
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

            #[cfg(not(target_arch = "nvptx64"))]
            fn of_slot(word: impl Fn(usize) -> u64) -> Option<i128> {
                slot::full(word)
            }

            #[inline(always)]
            unsafe fn reduce_on_gpu<O: OfExactSum<$type, Accumulator = i128>, P: Input<Item = $type>, const BLOCK: u32, const WIDTH: usize>(
                arguments: Arguments<P, O, O::Output>,
                is_row: bool,
            ) {
                // SAFETY: as the caller vouches.
                unsafe { reduce::by_tree::<O, P, BLOCK, WIDTH>(arguments, is_row) }
            }

            #[inline(always)]
            fn rounded(sum: impl Exact, _: u64) -> i128 {
                sum.lowest()
            }

            #[inline(always)]
            fn as_f64s(sum: impl Exact, count: u64) -> [f64; 2] {
                as_f64s(sum, count, 0)
            }

            #[inline(always)]
            fn mean(sum: impl Exact, count: u64) -> f64 {
                if count == 0 {
                    return f64::NAN;
                }
                // SAFETY: looked at above.
                unsafe { quotient(&sum, count, 0, F64) }
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

/// Elements whose products are exact, and the sums of those; of 64-bit integers modulo 2^128.
pub trait ExactFactor: ExactElement {
    /// An exact sum of products.
    type Products: Accumulator + Exact;

    /// The sum of nothing.
    const NO_PRODUCTS: Self::Products;

    /// One product.
    fn product(self, other: Self) -> Self::Products;

    /// Adds one.
    #[doc(hidden)]
    fn add_product_to(self, other: Self, sum: &mut Self::Products);

    /// Adds some.
    #[doc(hidden)]
    #[inline(always)]
    fn add_products_to<const N: usize>(pairs: [(Self, Self); N], sum: &mut Self::Products) {
        each_of(pairs, |(a, b)| a.add_product_to(b, sum));
    }

    /// The sum of both.
    fn add_products(a: Self::Products, b: Self::Products) -> Self::Products;

    /// The sum of the products of pairs side by side.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn sum_products<S: Source<Item = (Self, Self)>>(items: S) -> Self::Products;

    /// As [`Op::of_slot`].
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn products_of_slot(word: impl Fn(usize) -> u64) -> Option<Self::Products>;

    /// What the kernel of an operator does that sums products so.
    ///
    /// # Safety
    ///
    /// As for [`reduce::reduce`].
    #[doc(hidden)]
    unsafe fn reduce_products_on_gpu<
        O: OfExactSum<(Self, Self), Accumulator = Self::Products>,
        P: Input<Item = (Self, Self)>,
        const BLOCK: u32,
        const WIDTH: usize,
    >(
        arguments: Arguments<P, O, O::Output>,
        is_row: bool,
    );

    /// The number nearest to the sum of so many.
    #[doc(hidden)]
    fn rounded_products(sum: impl Exact, count: u64) -> Self::Rounded;
}

macro_rules! factors {
    ($($type:ident: [u64; $words:literal] from 2 ^ $low:literal, $format:ident, $terms:literal terms, $windows:literal windows, $loads:literal loads of $all:literal;)*) => {$(
        impl ExactFactor for $type {
            type Products = Fixed<$words>;
            const NO_PRODUCTS: Fixed<$words> = Fixed::ZERO;

            #[inline(always)]
            fn product(self, other: Self) -> Fixed<$words> {
                let mut sum = Fixed::ZERO;
                self.add_product_to(other, &mut sum);
                sum
            }

            #[inline(always)]
            fn add_product_to(self, other: Self, sum: &mut Fixed<$words>) {
                sum.add_product(self.to_f64(), other.to_f64(), $low);
            }

            #[inline(always)]
            fn add_products(a: Fixed<$words>, b: Fixed<$words>) -> Fixed<$words> {
                a.plus(b)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn sum_products<S: Source<Item = (Self, Self)>>(items: S) -> Fixed<$words> {
                cpu::sum_of::<Products, S, $terms, $words, $windows>(items)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn products_of_slot(word: impl Fn(usize) -> u64) -> Option<Fixed<$words>> {
                Fixed::of_slot(word)
            }

            #[inline(always)]
            unsafe fn reduce_products_on_gpu<
                O: OfExactSum<(Self, Self), Accumulator = Self::Products>,
                P: Input<Item = (Self, Self)>,
                const BLOCK: u32,
                const WIDTH: usize,
            >(
                arguments: Arguments<P, O, O::Output>,
                _: bool,
            ) {
                // SAFETY: as the caller vouches.
                unsafe { gpu::reduce::<Products, O, P, BLOCK, WIDTH, $terms, $words, $loads, $all>(arguments) }
            }

            #[inline(always)]
            fn rounded_products(sum: impl Exact, count: u64) -> Self::Rounded {
                rounded(&sum, count, $low, $format) as Self::Rounded
            }
        }
    )*};
}

/// Products of pairs.
pub(crate) struct Products;

/// Of `f64` with fewer digits than half of theirs, a product is one.
macro_rules! single_products {
    ($($type:ident: $words:literal $low:literal nothing $nothing:expr;)*) => {$(
        impl Terms<($type, $type), 1, $words> for Products {
            const LOW: i32 = $low;
            const NOTHING: ($type, $type) = $nothing;
            type OnGpu = f64;

            #[inline(always)]
            fn terms_on_gpu(item: ($type, $type)) -> [f64; 1] {
                Self::terms(item)
            }

            #[inline(always)]
            fn terms((a, b): ($type, $type)) -> [f64; 1] {
                [a.to_f64() * b.to_f64()]
            }

            #[inline(always)]
            fn is_exact(_: ($type, $type), _: [f64; 1]) -> bool {
                true
            }

            #[inline(always)]
            fn add(sum: &mut impl Sum, (a, b): ($type, $type)) {
                sum.add_f64(a.to_f64() * b.to_f64(), $low);
            }
        }
    )*};
}

single_products! {
    f16: 3 -48 nothing (f16::NEG_ZERO, f16::ZERO);
    bf16: 10 -266 nothing (bf16::NEG_ZERO, bf16::ZERO);
    f32: 10 -298 nothing (-0.0, 0.0);
}

impl Terms<(f64, f64), 2, 67> for Products {
    const LOW: i32 = -2148;
    const NOTHING: (f64, f64) = (-0.0, 0.0);
    type OnGpu = f64;

    #[inline(always)]
    fn terms_on_gpu(item: (f64, f64)) -> [f64; 2] {
        Self::terms(item)
    }

    #[inline(always)]
    fn terms((a, b): (f64, f64)) -> [f64; 2] {
        let product = a * b;
        [product, fma(a, b, -product)]
    }

    /// The rounding error of a product is 0 or at least 2^-106 of it. So it is an `f64` if the product is at least
    /// 2^-960 and has not overflowed.
    #[inline(always)]
    fn is_exact((a, b): (f64, f64), [product, _]: [f64; 2]) -> bool {
        const LEAST: f64 = f64::from_bits((1023 - 960) << 52);
        ((product.abs() >= LEAST) & (product.abs() <= f64::MAX)) | (a == 0.0) | (b == 0.0)
    }

    #[inline(always)]
    fn add(sum: &mut impl Sum, (a, b): (f64, f64)) {
        sum.add_product(a, b, -2148);
    }
}

factors! {
    f16: [u64; 3] from 2 ^ -48, F32, 1 terms, 1 windows, 2 loads of 16;
    bf16: [u64; 10] from 2 ^ -266, F32, 1 terms, 1 windows, 2 loads of 16;
    f32: [u64; 10] from 2 ^ -298, F32, 1 terms, 2 windows, 4 loads of 16;
    f64: [u64; 67] from 2 ^ -2148, F64, 2 terms, 3 windows, 4 loads of 16;
}

macro_rules! integer_factors {
    ($($type:ident)*) => {$(
        impl ExactFactor for $type {
            type Products = i128;
            const NO_PRODUCTS: i128 = 0;

            #[inline(always)]
            fn product(self, other: Self) -> i128 {
                i128::from(self).wrapping_mul(i128::from(other))
            }

            #[inline(always)]
            fn add_product_to(self, other: Self, sum: &mut i128) {
                *sum = sum.wrapping_add(self.product(other));
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
                    .fold(0, i128::wrapping_add)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn products_of_slot(word: impl Fn(usize) -> u64) -> Option<i128> {
                slot::full(word)
            }

            #[inline(always)]
            unsafe fn reduce_products_on_gpu<
                O: OfExactSum<(Self, Self), Accumulator = Self::Products>,
                P: Input<Item = (Self, Self)>,
                const BLOCK: u32,
                const WIDTH: usize,
            >(
                arguments: Arguments<P, O, O::Output>,
                is_row: bool,
            ) {
                // SAFETY: as the caller vouches.
                unsafe { reduce::by_tree::<O, P, BLOCK, WIDTH>(arguments, is_row) }
            }

            #[inline(always)]
            fn rounded_products(sum: impl Exact, _: u64) -> i128 {
                sum.lowest()
            }
        }
    )*};
}

integer_factors! { i8 i16 i32 i64 u8 u16 u32 u64 }
