//! The words of accumulators.

use bytemuck::Pod;
use core::fmt::Debug;

/// An unsigned integer.
pub trait Word: Pod + PartialEq + Debug + Send + Sync {
    /// The low bits of a hash, as a word.
    fn of(hash: u64) -> Self;
    /// The lowest byte.
    fn low(self) -> u8;
    /// The value with its lowest bit set.
    fn odd(self) -> Self;
    /// The sum of two words, rotated and multiplied by a constant.
    fn turned(self, turn: u32, other: Self) -> Self;
    /// The identity of [`combined`](Self::combined).
    fn identity(kind: u32) -> Self;
    /// The sum, exclusive or, maximum or minimum, chosen by the low bits of `kind`.
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
                let sum = self.wrapping_add(other);
                sum.rotate_left(turn % $type::BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as $type)
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
    /// −0.0, the identity of addition: adding it changes no bits.
    const NOTHING: Self;
    /// A number from a hash. `spread` shifts the magnitude.
    fn of(hash: u64, spread: u8) -> Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($type:ident $signed:ident;)*) => {$(
        impl Float for $type {
            const NOTHING: Self = -0.0;

            /// The hash as a signed integer, shifted right by up to 23 bits.
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
