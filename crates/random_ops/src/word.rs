//! What accumulators are made of.

use bytemuck::Pod;
use core::fmt::Debug;

/// An unsigned integer.
pub trait Word: Pod + PartialEq + Debug + Send + Sync {
    /// The low bits of a hash.
    fn of(hash: u64) -> Self;
    /// The low bits.
    fn low(self) -> u8;
    /// It, or the next one up where that is odd.
    fn odd(self) -> Self;
    /// The sum of two, rotated and made another by a factor.
    fn turned(self, turn: u32, other: Self) -> Self;
    /// The identity of [`combined`](Self::combined).
    fn identity(kind: u32) -> Self;
    /// The sum, the exclusive or, the greatest or the least, as the low bits of `kind` say.
    fn combined(kind: u32, a: Self, b: Self) -> Self;
}

macro_rules! words {
    ($($type:ident)*) => {$(
        impl Word for $type {
            #[inline(always)]
            fn of(hash: u64) -> Self {
                hash as $type
            }

            #[inline(always)]
            fn low(self) -> u8 {
                self as u8
            }

            #[inline(always)]
            fn odd(self) -> Self {
                self | 1
            }

            #[inline(always)]
            fn turned(self, turn: u32, other: Self) -> Self {
                self.wrapping_add(other).rotate_left(turn % $type::BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as $type)
            }

            #[inline(always)]
            fn identity(kind: u32) -> Self {
                if kind % 4 == 3 { $type::MAX } else { 0 }
            }

            #[inline(always)]
            fn combined(kind: u32, a: Self, b: Self) -> Self {
                match kind % 4 {
                    0 => a.wrapping_add(b),
                    1 => a ^ b,
                    2 => a.max(b),
                    _ => a.min(b),
                }
            }
        }
    )*};
}

words! { u8 u16 u32 u64 }

/// A float.
pub trait Float: Pod + PartialEq + Debug + Send + Sync {
    /// −0.0, which leaves the bits of what it is added to.
    const NOTHING: Self;
    /// A number from a hash, the larger the smaller `spread`.
    fn of(hash: u64, spread: u8) -> Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($type:ident $signed:ident;)*) => {$(
        impl Float for $type {
            const NOTHING: Self = -0.0;

            /// The hash as a signed integer, without some of its low or its high bits.
            #[inline(always)]
            fn of(hash: u64, spread: u8) -> Self {
                ((hash as i64) >> ((u32::from(spread) ^ hash as u32) % 24)) as $signed as $type
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
        }
    )*};
}

floats! { f32 i32; f64 i64; }
