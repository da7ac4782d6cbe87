//! Functions of floats with the same bits on CPUs, on GPUs and on the emulator, for operators.
//!
//! ```
//! use gpu_reduce_kernels::math;
//!
//! assert_eq!(math::mul_add(math::sqrt(2.0f64), 0.5, 1.0), 1.7071067811865475);
//! assert_eq!(math::max(-0.0f32, 0.0).to_bits(), 0);
//! ```
//!
//! This module has functions, not methods, because a method of `std` hides a trait's method of the same name. `x.exp()`
//! on a CPU is the C library's exponential, even in a `no_std` crate, if any dependency links `std`. So it is
//! with `num_traits::Float`, whose functions are also the C library's if any crate enables its feature `std`.
//! No error says so; `gpu_reduce::check_op` finds it.
//!
//! # Accuracy
//!
//! [`sqrt`], [`abs`], [`min`], [`max`], [`floor`], [`ceil`], [`trunc`], [`round`] and [`round_ties_even`] are
//! correctly rounded for all types, and [`mul_add`] for `f32` and `f64`. On a GPU each is one instruction,
//! [`round`] a few.
//!
//! The other functions come from the crate [`libm`](https://docs.rs/libm), compiled for each device. Another
//! version of it, by another `Cargo.lock`, may give other bits. The largest errors that were found, in ulps
//! (units in the last place; 0.5 is correctly rounded):
//!
//! | function | f32 | f64 |
//! | --- | --- | --- |
//! | `exp` | 0.88 | 0.86 |
//! | `exp2` | 0.51 | 0.75 |
//! | `ln` | 0.83 | 0.84 |
//! | `log2` | 0.86 | 0.80 |
//! | `log10` | 0.82 | 0.72 |
//! | `sin` | 0.51 | 0.77 |
//! | `cos` | 0.51 | 0.76 |
//! | `tan` | 0.80 | 0.84 |
//! | `tanh` | 2.13 | 2.17 |
//! | `powf` | 0.84 | 0.84 |
//! | `hypot` | 0.86 | 0.99 |
//! | `atan2` | 1.49 | 1.38 |
//!
//! On 26 November 2026, with libm 0.2.16: `f32` with every 127th bit pattern, or 16,777,216 random pairs,
//! compared with `f64` (`cargo test --release -p gpu_reduce_kernels --lib -- --ignored many_f32`); `f64` with
//! 1,500,000 random arguments for each function, compared with 200 bits of mpmath. Other arguments may have
//! larger errors. `f16` and `bf16` are computed in `f32` and rounded once more: functions of one argument are
//! within 0.501 ulps, for all arguments. [`powi`] is within |n| ulps, if no product overflows or underflows.
//!
//! A NaN gives a NaN, except where a function says otherwise. The bits of a NaN may differ between devices:
//! [`Op::finish`](crate::Op::finish) makes it canonical.

use crate::element::Element;
pub use half::{bf16, f16};
use num_traits::ConstOne;

#[cfg(target_arch = "nvptx64")]
use cuda_std::intrinsics as exact;

/// The functions that IEEE 754 defines to the bit, under the names of [`cuda_std::intrinsics`].
#[cfg(not(target_arch = "nvptx64"))]
mod exact {
    macro_rules! functions {
        ($(
            $type:ident: $sqrt:ident $fma:ident $floor:ident $ceil:ident $trunc:ident $even:ident $min:ident
            $max:ident;
        )*) => {$(
            #[inline(always)]
            pub fn $sqrt(x: $type) -> $type {
                x.sqrt()
            }

            #[inline(always)]
            pub fn $fma(a: $type, b: $type, c: $type) -> $type {
                a.mul_add(b, c)
            }

            #[inline(always)]
            pub fn $floor(x: $type) -> $type {
                x.floor()
            }

            #[inline(always)]
            pub fn $ceil(x: $type) -> $type {
                x.ceil()
            }

            #[inline(always)]
            pub fn $trunc(x: $type) -> $type {
                x.trunc()
            }

            #[inline(always)]
            pub fn $even(x: $type) -> $type {
                x.round_ties_even()
            }

            // `std` leaves open which zero the result is.
            #[inline(always)]
            pub fn $min(a: $type, b: $type) -> $type {
                if a < b || b.is_nan() || a == b && a.is_sign_negative() { a } else { b }
            }

            #[inline(always)]
            pub fn $max(a: $type, b: $type) -> $type {
                if a > b || b.is_nan() || a == b && a.is_sign_positive() { a } else { b }
            }
        )*};
    }

    functions! {
        f32: sqrt_f32 fma_f32 floor_f32 ceil_f32 trunc_f32 round_ties_even_f32 fmin_f32 fmax_f32;
        f64: sqrt_f64 fma_f64 floor_f64 ceil_f64 trunc_f64 round_ties_even_f64 fmin_f64 fmax_f64;
    }
}

mod sealed {
    /// A float that another one computes for.
    pub trait Float {
        /// The float that computes.
        type Inner: super::Functions;

        /// Returns the same number.
        fn to_inner(self) -> Self::Inner;

        /// Returns the nearest number, ties to even.
        fn of_inner(inner: Self::Inner) -> Self;
    }
}

/// A float that the functions of this module take: `f32`, `f64`, and `f16` and `bf16`, for which `f32`
/// computes.
pub trait Float: Element + sealed::Float {}

macro_rules! floats {
    ($($type:ident $inner:ident: $of_inner:expr;)*) => {$(
        impl Float for $type {}

        impl sealed::Float for $type {
            type Inner = $inner;

            #[inline(always)]
            fn to_inner(self) -> $inner {
                Element::widen(self)
            }

            #[inline(always)]
            fn of_inner(inner: $inner) -> $type {
                $of_inner(inner)
            }
        }
    )*};
}

floats! {
    f16 f32: round_f16;
    bf16 f32: bf16::from_f32;
    f32 f32: |x| x;
    f64 f64: |x| x;
}

/// Returns the nearest `f16`; one instruction on a GPU.
#[inline(always)]
fn round_f16(x: f32) -> f16 {
    #[cfg(target_arch = "nvptx64")]
    {
        f16::from_bits(exact::f32_to_f16_bits(x))
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        f16::from_f32(x)
    }
}

/// Declares functions: `NAME(ARGUMENTS): that of f32, that of f64`.
macro_rules! functions {
    ($([$inline:meta] $($(#[$doc:meta])* $name:ident($($x:ident),+): $f32:expr, $f64:expr;)*)*) => {
        /// The functions of `f32` and `f64`.
        #[doc(hidden)]
        #[allow(missing_docs, reason = "the functions of the same names have them")]
        pub trait Functions: Copy + ConstOne + core::ops::Div<Output = Self> {
            $($(fn $name($($x: Self),+) -> Self;)*)*
        }

        impl Functions for f32 {
            $($(
                #[$inline]
                fn $name($($x: f32),+) -> f32 {
                    $f32($($x),+)
                }
            )*)*
        }

        impl Functions for f64 {
            $($(
                #[$inline]
                fn $name($($x: f64),+) -> f64 {
                    $f64($($x),+)
                }
            )*)*
        }

        $($(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name<F: Float>($($x: F),+) -> F {
                F::of_inner(F::Inner::$name($($x.to_inner()),+))
            }
        )*)*
    };
}

functions! {
    [inline(always)]
    /// Returns √`x`, correctly rounded; NaN below zero, and −0.0 for −0.0.
    sqrt(x): exact::sqrt_f32, exact::sqrt_f64;
    /// Returns `a · b + c`, rounded once by `f32` and `f64`, and once more by `f16` and `bf16`.
    mul_add(a, b, c): exact::fma_f32, exact::fma_f64;
    /// Returns |`x`|.
    abs(x): f32::abs, f64::abs;
    /// Returns the smaller number; −0.0 is below +0.0. The result is NaN only if both are, as that of
    /// `f32::min`. (IEEE 754-2019, `minimumNumber`.)
    min(a, b): exact::fmin_f32, exact::fmin_f64;
    /// Returns the larger number; −0.0 is below +0.0. The result is NaN only if both are, as that of
    /// `f32::max`. (IEEE 754-2019, `maximumNumber`.)
    max(a, b): exact::fmax_f32, exact::fmax_f64;
    /// Returns the greatest integer that is not above `x`.
    floor(x): exact::floor_f32, exact::floor_f64;
    /// Returns the least integer that is not below `x`.
    ceil(x): exact::ceil_f32, exact::ceil_f64;
    /// Returns `x` without its fraction.
    trunc(x): exact::trunc_f32, exact::trunc_f64;
    // Half of x is added, less than half if x + 0.5 would round up to an integer above.
    /// Returns the nearest integer, ties away from zero, as `f32::round`.
    round(x): |x: f32| exact::trunc_f32(x + (0.5 - 0.25 * f32::EPSILON).copysign(x)),
        |x: f64| exact::trunc_f64(x + (0.5 - 0.25 * f64::EPSILON).copysign(x));
    /// Returns the nearest integer, ties to even, as NumPy's `round`.
    round_ties_even(x): exact::round_ties_even_f32, exact::round_ties_even_f64;

    // Functions of their own in PTX: one that is inlined into each kernel takes minutes to compile.
    [cfg_attr(target_arch = "nvptx64", inline(never))]
    /// Returns e to the power of `x`.
    exp(x): libm::expf, libm::exp;
    /// Returns 2 to the power of `x`.
    exp2(x): libm::exp2f, libm::exp2;
    /// Returns the natural logarithm; NaN below zero, −∞ of zero.
    ln(x): libm::logf, libm::log;
    /// Returns the logarithm to base 2; NaN below zero, −∞ of zero.
    log2(x): libm::log2f, libm::log2;
    /// Returns the logarithm to base 10; NaN below zero, −∞ of zero.
    log10(x): libm::log10f, libm::log10;
    /// Returns the sine of `x` radians; NaN of infinities.
    sin(x): libm::sinf, libm::sin;
    /// Returns the cosine of `x` radians; NaN of infinities.
    cos(x): libm::cosf, libm::cos;
    /// Returns the tangent of `x` radians; NaN of infinities.
    tan(x): libm::tanf, libm::tan;
    /// Returns the hyperbolic tangent.
    tanh(x): libm::tanhf, libm::tanh;
    /// Returns `x` to the power of `y`; NaN if `x` is below zero and `y` no integer. 1 to any power and any
    /// `x` to the power of 0 are 1, also if the other is NaN.
    powf(x, y): libm::powf, libm::pow;
    /// Returns √(`x`² + `y`²) without overflow or underflow on the way; ∞ if one is infinite, also if the
    /// other is NaN.
    hypot(x, y): libm::hypotf, libm::hypot;
    /// Returns the angle of the point (`x`, `y`) in radians, from −π to π.
    atan2(y, x): libm::atan2f, libm::atan2;
}

/// Returns `x` to the power of `n`, by a fixed order of multiplications; 1 if `n` is 0, also of NaN.
///
/// The factors are `x`, `x`², `x`⁴ and so on, each the square of the one before. Those at the set bits of
/// |`n`| are multiplied, the lowest first. If `n` is negative, the result is 1 divided by that product, which
/// is 0 or ∞ if the product overflows or underflows. `f16` and `bf16` round once, at the end.
///
/// ```
/// assert_eq!(gpu_reduce_kernels::math::powi(1.5f32, 3), 1.5 * (1.5 * 1.5));
/// ```
#[inline(always)]
pub fn powi<F: Float>(x: F, n: i32) -> F {
    let (mut square, mut product, mut rest) = (x.to_inner(), F::Inner::ONE, n.unsigned_abs());
    while rest > 0 {
        if rest % 2 == 1 {
            product = product * square;
        }
        square = square * square;
        rest /= 2;
    }
    F::of_inner(if n < 0 { F::Inner::ONE / product } else { product })
}

#[cfg(test)]
mod tests;
