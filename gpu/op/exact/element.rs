//! What the exact operators sum, and how: elements, and pairs of elements, whose products are summed.

#[cfg(not(target_arch = "nvptx64"))]
use super::Narrow;
use super::OfExactSum;
use super::round::{Exact, F32, F64, as_f64s, quotient, rounded};
use super::state::{Fixed, Sum};
use crate::agent;
#[cfg(not(target_arch = "nvptx64"))]
use crate::element::Wide;
use crate::element::{Accumulator, Element};
#[cfg(not(target_arch = "nvptx64"))]
use crate::host_simd::{self, Source};
use crate::input::Input;
use crate::op::fma;
use crate::op::tally::Tallied;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::{ExactDot, ExactSum};
use crate::reduce::{self, Arguments};
use crate::segments::Arguments as SegmentArguments;
#[cfg(not(target_arch = "nvptx64"))]
use crate::slot;
use core::fmt::Debug;
use half::{bf16, f16};

/// Element types with exact sums: all twelve, `usize` and `isize`.
///
/// An exact sum is an operator's [accumulator](crate::Op::Accumulator): an `i128` for integers, words and
/// flags for floats.
pub trait ExactElement: Element {
    /// What an exact sum is rounded to: `f64` for `f64`, `f32` for other floats. For integers it is an
    /// `i128`, which is not rounded.
    type Rounded: Copy + PartialEq + Debug + Send + Sync + 'static;

    /// How elements are summed.
    #[doc(hidden)]
    type Sums: Summing<Self>;

    /// The number nearest to the sum of `count` elements.
    #[doc(hidden)]
    fn rounded(sum: impl Exact, count: u64) -> Self::Rounded;

    /// The number nearest to a sum of elements, some of which there are. Its lowest bit is worth 2^`low`.
    #[doc(hidden)]
    fn rounded_from(sum: &impl Exact, low: i32) -> Self::Rounded;

    /// The number nearest to the mean of `count` elements; NaN for a count of 0. The sum's lowest bit is worth
    /// 2^`low`.
    #[doc(hidden)]
    fn mean_from(sum: &impl Exact, low: i32, count: u64) -> Self::Real {
        if count == 0 {
            return Self::real(f64::NAN);
        }
        Self::real(Self::Wide::mean_of(sum, low, count))
    }

    /// The `f64` nearest to the sum of `count` elements, and the `f64` nearest to the difference.
    #[doc(hidden)]
    fn as_f64s(sum: impl Exact, count: u64) -> [f64; 2];

    /// The number nearest to the mean of `count` elements; NaN for a count of 0.
    #[doc(hidden)]
    fn mean(sum: impl Exact, count: u64) -> Self::Real;
}

/// Element types with exact sums of products. For 64-bit integers the sum is modulo 2^128.
pub trait ExactFactor: ExactElement {
    /// How products are summed.
    #[doc(hidden)]
    type Dots: Summing<(Self, Self)>;

    /// The number nearest to the sum of `count` products.
    #[doc(hidden)]
    fn rounded_products(sum: impl Exact, count: u64) -> Self::Rounded;

    /// As [`Agent::by_index`](agent::Agent::by_index): adds products up in any order if they fit in 64 bits.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn products_by_index<S: agent::Scatter<(Self, Self), Self::Rounded>>(
        op: &ExactDot,
        scatter: S,
    ) -> S::Outcome;
}

/// How items of type `I` are summed: one by one, side by side on a CPU, by a kernel on a GPU.
#[doc(hidden)]
pub trait Summing<I: Copy + 'static> {
    /// An exact sum.
    type State: Accumulator + Exact;

    /// The sum of no items.
    const ZERO: Self::State;

    /// A sum's lowest bit is worth 2^LOW.
    const LOW: i32;

    /// Adds an item.
    fn add(sum: &mut Self::State, item: I);

    /// The sum of one item.
    #[inline(always)]
    fn alone(item: I) -> Self::State {
        let mut sum = Self::ZERO;
        Self::add(&mut sum, item);
        sum
    }

    /// The sum of both.
    fn plus(a: Self::State, b: Self::State) -> Self::State;

    /// The sum of items side by side.
    #[cfg(not(target_arch = "nvptx64"))]
    fn sum<S: Source<Item = I>>(items: S) -> Self::State;

    /// The sum in a slot's words, or `None` while the slot is not full.
    #[cfg(not(target_arch = "nvptx64"))]
    fn of_slot(word: impl Fn(usize) -> u64) -> Option<Self::State>;

    /// As [`Agent::SUMMED_FROM`](agent::Agent::SUMMED_FROM).
    const SUMMED_FROM: Option<u64> = None;

    /// As [`Agent::sum_segments`](agent::Agent::sum_segments).
    ///
    /// # Safety
    ///
    /// As for [`Agent::sum_segments`](agent::Agent::sum_segments).
    #[inline(always)]
    unsafe fn sum_segments<
        O: OfExactSum<I, Accumulator = Self::State>,
        P: Input<Item = I>,
        const WIDTH: usize,
    >(
        _: SegmentArguments<P, O, O::Output>,
    ) {
    }

    /// What an operator's kernel does.
    ///
    /// # Safety
    ///
    /// As for [`reduce::reduce`], or if `is_row`, as for [`reduce::reduce_row`].
    unsafe fn reduce_on_gpu<
        O: OfExactSum<I, Accumulator = Self::State>,
        P: Input<Item = I>,
        const BLOCK: u32,
        const WIDTH: usize,
    >(
        arguments: Arguments<P, O, O::Output>,
        is_row: bool,
    );
}

/// Items that are floats, or sums of N floats: the item's **terms**.
pub(crate) trait Terms<const N: usize>: Copy + 'static {
    /// The lowest bit that an item may have is worth 2^LOW.
    const LOW: i32;

    /// An item whose terms are −0.0, which changes no sum.
    const NOTHING: Self;

    /// The type of terms on a GPU, where `f32` takes half the time of `f64`.
    type OnGpu: agent::exact::Float;

    /// The terms, as `f64`: the first, and others less than 2^−52 of it.
    fn terms(self) -> [f64; N];

    /// The terms, as a GPU sums them.
    fn terms_on_gpu(self) -> [Self::OnGpu; N];

    /// Whether the sum of `terms` is the item.
    #[inline(always)]
    fn is_exact(self, _terms: [f64; N]) -> bool {
        true
    }

    /// Adds the item bit by bit.
    #[inline(always)]
    fn add_to(self, sum: &mut impl Sum) {
        const { assert!(N == 1, "one term is the item") };
        sum.add_f64(self.terms()[0], Self::LOW);
    }

    /// Adds the item to a sum of its own lane: as [`add_to`](Self::add_to), or a product by its factors.
    #[inline(always)]
    fn add_alone(self, sum: &mut impl Sum) {
        self.add_to(sum);
    }
}

/// Sums items of N terms by windows: on a CPU by FEW of them first, on a GPU by tiles of LOADS loads, TERMS
/// terms a thread. A sum has W words.
pub struct Windowed<const N: usize, const W: usize, const FEW: usize, const LOADS: usize, const TERMS: usize>;

impl<I: Terms<N>, const N: usize, const W: usize, const FEW: usize, const LOADS: usize, const TERMS: usize>
    Summing<I> for Windowed<N, W, FEW, LOADS, TERMS>
{
    type State = Fixed<W>;
    const ZERO: Fixed<W> = Fixed::ZERO;
    const LOW: i32 = I::LOW;
    // Sums that are held in registers add a few items sooner.
    const SUMMED_FROM: Option<u64> = match W {
        ..6 => None,
        6..10 => Some(96),
        _ => Some(0),
    };

    #[inline(always)]
    unsafe fn sum_segments<
        O: OfExactSum<I, Accumulator = Fixed<W>>,
        P: Input<Item = I>,
        const WIDTH: usize,
    >(
        arguments: SegmentArguments<P, O, O::Output>,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { agent::exact::sum_segments::<O, P, WIDTH, N, W, LOADS, TERMS>(arguments) }
    }

    #[inline(always)]
    fn add(sum: &mut Fixed<W>, item: I) {
        item.add_alone(sum);
    }

    #[inline(always)]
    fn plus(a: Fixed<W>, b: Fixed<W>) -> Fixed<W> {
        a.plus(b)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn sum<S: Source<Item = I>>(items: S) -> Fixed<W> {
        host_simd::exact::sum_of::<S, N, W, FEW>(items)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn of_slot(word: impl Fn(usize) -> u64) -> Option<Fixed<W>> {
        Fixed::of_slot(word)
    }

    #[inline(always)]
    unsafe fn reduce_on_gpu<
        O: OfExactSum<I, Accumulator = Fixed<W>>,
        P: Input<Item = I>,
        const BLOCK: u32,
        const WIDTH: usize,
    >(
        arguments: Arguments<P, O, O::Output>,
        _: bool,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { agent::exact::reduce::<O, P, BLOCK, WIDTH, N, W, LOADS, TERMS>(arguments) }
    }
}

/// Items that are integers. An item of at most 8 bytes is at least −2^63 and less than 2^64.
pub(crate) trait Integer: Copy + 'static {
    /// The integer.
    fn value(self) -> i128;
}

impl<T: Element<Total = i128>> Integer for T {
    #[inline(always)]
    fn value(self) -> i128 {
        self.total()
    }
}

impl<T: Element<Total = i128>> Integer for (T, T) {
    #[inline(always)]
    fn value(self) -> i128 {
        self.0.total().wrapping_mul(self.1.total())
    }
}

/// Sums integers, modulo 2^128.
pub struct AsIntegers;

impl<I: Integer> Summing<I> for AsIntegers {
    type State = i128;
    const ZERO: i128 = 0;
    const LOW: i32 = 0;

    #[inline(always)]
    fn alone(item: I) -> i128 {
        item.value()
    }

    #[inline(always)]
    fn add(sum: &mut i128, item: I) {
        *sum = sum.wrapping_add(item.value());
    }

    #[inline(always)]
    fn plus(a: i128, b: i128) -> i128 {
        a.wrapping_add(b)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn sum<S: Source<Item = I>>(items: S) -> i128 {
        host_simd::exact::sum_of_integers(items)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn of_slot(word: impl Fn(usize) -> u64) -> Option<i128> {
        slot::full(word)
    }

    #[inline(always)]
    unsafe fn reduce_on_gpu<
        O: OfExactSum<I, Accumulator = i128>,
        P: Input<Item = I>,
        const BLOCK: u32,
        const WIDTH: usize,
    >(
        arguments: Arguments<P, O, O::Output>,
        is_row: bool,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { reduce::by_tree::<O, P, BLOCK, WIDTH>(arguments, is_row) }
    }
}

macro_rules! floats {
    ($($type:ident $format:ident from $low:literal, $least:literal sum $sum:tt products $products:tt)*) => {$(
        impl ExactElement for $type {
            type Rounded = Self::Real;
            type Sums = floats!(@by $sum);

            #[inline(always)]
            fn rounded(sum: impl Exact, count: u64) -> Self::Real {
                Self::real(rounded(&sum, count, $low, $format))
            }

            #[inline(always)]
            fn rounded_from(sum: &impl Exact, low: i32) -> Self::Real {
                Self::Wide::of_exact(sum, low)
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
                // SAFETY: checked above.
                Self::real(unsafe { quotient(&sum, count, $low, $format) })
            }
        }

        impl ExactFactor for $type {
            type Dots = floats!(@by $products);

            #[inline(always)]
            fn rounded_products(sum: impl Exact, count: u64) -> Self::Rounded {
                rounded(&sum, count, $least, $format) as Self::Rounded
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn products_by_index<S: agent::Scatter<(Self, Self), Self::Rounded>>(
                op: &ExactDot,
                scatter: S,
            ) -> S::Outcome {
                floats!(@by_index $format $type op scatter)
            }
        }
    )*};
    (@by_index F32 $type:ident $op:ident $scatter:ident) => {{
        let _ = $op;
        $scatter.tally_products(&Narrow, <$type>::DTYPE, |(a, b): ($type, $type)| a.as_f64() * b.as_f64())
    }};
    (@by_index F64 $type:ident $op:ident $scatter:ident) => {
        $scatter.in_order($op)
    };
    (@by ($n:literal terms, [u64; $w:literal], $few:literal windows, $loads:literal loads of $t:literal)) => {
        Windowed<$n, $w, $few, $loads, $t>
    };
}

floats! {
    f16 F32 from -24, -48
        sum (1 terms, [u64; 2], 1 windows, 2 loads of 16)
        products (1 terms, [u64; 3], 1 windows, 2 loads of 16)
    bf16 F32 from -133, -266
        sum (1 terms, [u64; 6], 1 windows, 2 loads of 16)
        products (1 terms, [u64; 10], 1 windows, 2 loads of 16)
    f32 F32 from -149, -298
        sum (1 terms, [u64; 6], 1 windows, 4 loads of 16)
        products (1 terms, [u64; 10], 2 windows, 4 loads of 16)
    f64 F64 from -1074, -2148
        sum (1 terms, [u64; 34], 2 windows, 4 loads of 8)
        products (2 terms, [u64; 67], 3 windows, 4 loads of 16)
}

macro_rules! terms {
    ($($type:ident from 2 ^ $low:literal, $minus_zero:expr $(, products from 2 ^ $least:literal)?;)*) => {$(
        impl Terms<1> for $type {
            const LOW: i32 = $low;
            const NOTHING: Self = $minus_zero;
            type OnGpu = <$type as Element>::Wide;

            #[inline(always)]
            fn terms(self) -> [f64; 1] {
                [f64::from(self)]
            }

            #[inline(always)]
            fn terms_on_gpu(self) -> [Self::OnGpu; 1] {
                [self.widen()]
            }
        }

        $(impl Terms<1> for ($type, $type) {
            const LOW: i32 = $least;
            const NOTHING: Self = ($minus_zero, $type::from_bits(0));
            type OnGpu = f64;

            #[inline(always)]
            fn terms(self) -> [f64; 1] {
                [f64::from(self.0) * f64::from(self.1)]
            }

            #[inline(always)]
            fn terms_on_gpu(self) -> [f64; 1] {
                self.terms()
            }

            #[inline(always)]
            fn add_alone(self, sum: &mut impl Sum) {
                sum.add_product(f64::from(self.0), f64::from(self.1), Self::LOW);
            }
        })?
    )*};
}

// A product of f16, bf16 or f32 has at most 48 bits, and is one f64.
terms! {
    f16 from 2 ^ -24, f16::NEG_ZERO, products from 2 ^ -48;
    bf16 from 2 ^ -133, bf16::NEG_ZERO, products from 2 ^ -266;
    f32 from 2 ^ -149, -0.0, products from 2 ^ -298;
    f64 from 2 ^ -1074, -0.0;
}

/// A product of `f64` is two terms: the rounded product and its rounding error.
impl Terms<2> for (f64, f64) {
    const LOW: i32 = -2148;
    const NOTHING: Self = (-0.0, 0.0);
    type OnGpu = f64;

    #[inline(always)]
    fn terms(self) -> [f64; 2] {
        let product = self.0 * self.1;
        [product, fma(self.0, self.1, -product)]
    }

    #[inline(always)]
    fn terms_on_gpu(self) -> [f64; 2] {
        self.terms()
    }

    /// The rounding error is 0 or at least 2^−106 of the product. So it is an `f64` if the product is at
    /// least 2^−960 and has not overflowed.
    #[inline(always)]
    fn is_exact(self, [product, _]: [f64; 2]) -> bool {
        const LEAST: f64 = f64::from_bits((1023 - 960) << 52);
        ((product.abs() >= LEAST) & (product.abs() <= f64::MAX)) | (self.0 == 0.0) | (self.1 == 0.0)
    }

    #[inline(always)]
    fn add_to(self, sum: &mut impl Sum) {
        sum.add_product(self.0, self.1, Self::LOW);
    }
}

macro_rules! integers {
    ({} $($type:ident: $of:ident $($row:ident)*;)*) => {$(
        impl ExactElement for $type {
            type Rounded = i128;
            type Sums = AsIntegers;

            #[inline(always)]
            fn rounded(sum: impl Exact, _: u64) -> i128 {
                sum.lowest()
            }

            #[inline(always)]
            fn rounded_from(sum: &impl Exact, _: i32) -> i128 {
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
                // SAFETY: checked above.
                unsafe { quotient(&sum, count, 0, F64) }
            }
        }

        impl ExactFactor for $type {
            type Dots = AsIntegers;

            #[inline(always)]
            fn rounded_products(sum: impl Exact, _: u64) -> i128 {
                sum.lowest()
            }

            #[cfg(not(target_arch = "nvptx64"))]
            fn products_by_index<S: agent::Scatter<(Self, Self), i128>>(op: &ExactDot, scatter: S) -> S::Outcome {
                if size_of::<Self>() > 4 {
                    return scatter.in_order(op);
                }
                let multiply = |(a, b): (Self, Self)| Wide::times(a.widen(), b.widen());
                scatter.tally_products(&ExactSum, Self::DTYPE, multiply)
            }
        }
    )*};
}

crate::for_each_integer! { integers! {} }
#[cfg(not(target_arch = "nvptx64"))]
crate::for_each_alias! { integers! {} }
