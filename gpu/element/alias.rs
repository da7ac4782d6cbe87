//! Types that are others by another name: `usize` and `isize` are elements as `u64` and `i64` are, and `bool` reduces as `u8` does. The folds and the kernels are
//! those of the others, and so are the bits.

use crate::element::{Dtype, Element, sealed};
use crate::op::{OnCpu, Op};
use core::marker::PhantomData;

/// The types that are others by another name: calls `$callback! { { ARGUMENTS } ROW ROW … }`, a row being
/// `TYPE: OTHER;`. There are no rows if pointers do not have 64 bits.
#[cfg(target_pointer_width = "64")]
#[macro_export]
macro_rules! for_each_alias {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! {
            { $($arguments)* }
            usize: u64;
            isize: i64;
        }
    };
}

/// The types that are others by another name: none, as pointers do not have 64 bits.
#[cfg(not(target_pointer_width = "64"))]
#[macro_export]
macro_rules! for_each_alias {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! { { $($arguments)* } }
    };
}

macro_rules! elements {
    ({} $($type:ident: $other:ident;)*) => {$(
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const DTYPE: Dtype = <$other>::DTYPE;
            const NAME: &'static str = stringify!($type);
            type Wide = <$other as Element>::Wide;
            type Key = <$other as Element>::Key;
            type Total = <$other as Element>::Total;
            type Real = <$other as Element>::Real;

            #[inline(always)]
            fn widen(self) -> Self::Wide {
                (self as $other).widen()
            }

            #[inline(always)]
            fn total(self) -> Self::Total {
                (self as $other).total()
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn real(value: f64) -> Self::Real {
                <$other>::real(value)
            }

            #[inline(always)]
            fn magnitude(self) -> u64 {
                (self as $other).magnitude()
            }

            #[inline(always)]
            fn of_magnitude(magnitude: u64) -> f64 {
                <$other>::of_magnitude(magnitude)
            }

            #[inline(always)]
            fn narrow(wide: Self::Wide) -> Self {
                <$other>::narrow(wide) as Self
            }

            #[inline(always)]
            fn key_of_number(self) -> Self::Key {
                (self as $other).key_of_number()
            }

            #[inline(always)]
            fn key(self, nan: Self::Key) -> Self::Key {
                (self as $other).key(nan)
            }

            #[inline(always)]
            fn from_key(key: Self::Key) -> Self {
                <$other>::from_key(key) as Self
            }
        }
    )*};
}

crate::for_each_alias! { elements! {} }

/// What is returned of truth values where it is returned of bytes: a truth value where that is an element.
pub trait OfBytes: Copy {
    /// The type, of the same layout.
    type OfBools: Copy + PartialEq + core::fmt::Debug + Send + Sync + 'static;

    /// The value.
    fn of_bools(self) -> Self::OfBools;
}

impl OfBytes for u8 {
    type OfBools = bool;

    fn of_bools(self) -> bool {
        self != 0
    }
}

macro_rules! themselves {
    ($($type:ty)*) => {$(
        impl OfBytes for $type {
            type OfBools = $type;

            fn of_bools(self) -> $type {
                self
            }
        }
    )*};
}

// (Of two truth values there is no plain type.)
themselves! { u64 i128 f64 bool [u8; 2] [u64; 2] [f64; 2] [f64; 4] }

macro_rules! of_bools {
    ({} $($(#[$doc:meta])* $name:ident: $op:ident $blocks:ident;)*) => {$(
        impl Op<bool> for crate::op::$op {
            const NAME: &'static str = <Self as Op<u8>>::NAME;
            type Accumulator = <Self as Op<u8>>::Accumulator;
            type Output = <<Self as Op<u8>>::Output as OfBytes>::OfBools;
            const EXACT: bool = <Self as Op<u8>>::EXACT;
            const ROOM: crate::op::Room<Self, bool> = crate::op::Room::same_as::<Self, u8>();
            const LARGE_BLOCK: u32 = <Self as Op<u8>>::LARGE_BLOCK;
            const ON_CPU: Option<OnCpu<Self, bool>> = match <Self as Op<u8>>::ON_CPU {
                Some(OnCpu { table, row, column, .. }) => Some(OnCpu { table, row, column, types: PhantomData }),
                None => None,
            };

            #[inline(always)]
            fn begin(&self, first: bool) -> Self {
                <Self as Op<u8>>::begin(self, first.into())
            }

            #[inline(always)]
            fn end(&self, all: Self::Accumulator, count: u64) -> Self::Accumulator {
                <Self as Op<u8>>::end(self, all, count)
            }

            fn parameters(&self) -> &[u8] {
                <Self as Op<u8>>::parameters(self)
            }

            #[inline(always)]
            fn identity(&self) -> Self::Accumulator {
                <Self as Op<u8>>::identity(self)
            }

            #[inline(always)]
            fn lift(&self, item: bool, index: u64) -> Self::Accumulator {
                <Self as Op<u8>>::lift(self, item.into(), index)
            }

            #[inline(always)]
            fn lift_load<const N: usize>(&self, items: [bool; N], index: u64) -> Self::Accumulator {
                <Self as Op<u8>>::lift_load(self, items.map(u8::from), index)
            }

            #[inline(always)]
            fn fold_item(&self, all: &mut Self::Accumulator, item: bool, index: u64) {
                <Self as Op<u8>>::fold_item(self, all, item.into(), index);
            }

            #[inline(always)]
            fn fold_load<const WIDTH: usize>(&self, all: &mut [Self::Accumulator; WIDTH], items: [bool; WIDTH], index: u64) {
                <Self as Op<u8>>::fold_load(self, all, items.map(u8::from), index);
            }

            fn of_slot(word: impl Fn(usize) -> u64) -> Option<Self::Accumulator> {
                <Self as Op<u8>>::of_slot(word)
            }

            #[inline(always)]
            fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator {
                <Self as Op<u8>>::combine(self, a, b)
            }

            #[inline(always)]
            fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output> {
                <Self as Op<u8>>::finish(self, all, count).map(OfBytes::of_bools)
            }
        }
    )*};
}

crate::for_each_operator! { of_bools! {} }
