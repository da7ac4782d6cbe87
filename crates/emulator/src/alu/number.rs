//! One trait for integers of all widths, and float operations with the device's rounding.

use crate::exec::lanes::Value;

use super::soft::{F32, F64};

/// An integer type that registers hold.
pub trait Integer: Value + Ord + Default {
    const BITS: u32;
    const SIGNED: bool;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// The upper half of the full product.
    fn mul_high(self, other: Self) -> Self;
    /// Division. By zero: all ones. The minimum by -1: the minimum.
    fn div(self, other: Self) -> Self;
    /// Remainder. By zero: all ones. The minimum by -1: 0.
    fn rem(self, other: Self) -> Self;
    /// The bits, zero-extended.
    fn bits(self) -> u64;
    /// The value, sign-extended if the type is signed.
    fn extended(self) -> i128;
    /// Truncates to the low bits.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! integers {
    ($($int:ident $unsigned:ident $wide:ident,)*) => {$(
        #[allow(unused_comparisons)]
        impl Integer for $int {
            const BITS: u32 = $int::BITS;
            const SIGNED: bool = $int::MIN < 0;

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn mul_high(self, other: Self) -> Self {
                (($wide::from(self) * $wide::from(other)) >> $int::BITS) as Self
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn bits(self) -> u64 {
                u64::from(self as $unsigned)
            }
            #[inline(always)]
            fn extended(self) -> i128 {
                i128::from(self)
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
        }
    )*};
}

integers! {
    u16 u16 u32, i16 u16 i32, u32 u32 u64, i32 u32 i64, u64 u64 u128, i64 u64 i128,
}

/// Replaces NaN by the device's only NaN.
#[inline(always)]
pub fn canonical_f32(value: f32) -> f32 {
    if value.is_nan() { f32::from_bits(F32.nan as u32) } else { value }
}

/// Like [`canonical_f32`].
#[inline(always)]
pub fn canonical_f64(value: f64) -> f64 {
    if value.is_nan() { f64::from_bits(F64.nan) } else { value }
}

/// `.ftz`: a subnormal becomes a zero of its sign.
#[inline(always)]
pub fn flush(value: f32) -> f32 {
    if value.is_subnormal() { f32::from_bits(value.to_bits() & 0x8000_0000) } else { value }
}

/// `.sat`: clamps to the range 0 to 1. NaN becomes +0.
#[inline(always)]
pub fn saturate<F: PartialOrd + From<u8>>(value: F) -> F {
    let (zero, one) = (F::from(0), F::from(1));
    if value > zero { if value < one { value } else { one } } else { zero }
}

/// `add.rn.f32`.
pub fn add_f32(a: f32, b: f32) -> f32 {
    canonical_f32(a + b)
}

/// `add.rn.f64`.
pub fn add_f64(a: f64, b: f64) -> f64 {
    canonical_f64(a + b)
}
