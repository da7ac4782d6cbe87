//! Types that reduce as another type: `usize` as `u64`, `isize` as `i64`, `bool` as `u8`. They share its
//! folds and kernels, and have its bits.

use crate::agent::{Agent, Room, folds_by_loads, in_parts, kernels, large_block, member, room};
use crate::host_simd::{Folds, Source};
use crate::kernels::Kernels;
use crate::op::Op;
use crate::words::Words;

/// The element types that reduce as another type: calls `$callback! { { ARGUMENTS } ROW ROW … }`. A row is
/// `TYPE: OTHER;`. There are none if pointers do not have 64 bits.
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

/// The element types that reduce as another type: none, because pointers do not have 64 bits.
#[cfg(not(target_pointer_width = "64"))]
#[macro_export]
macro_rules! for_each_alias {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! { { $($arguments)* } }
    };
}

/// The result of reducing `bool`, by that of reducing `u8`: `bool` if the result is an element.
pub trait OfBytes: Copy {
    /// The result's type.
    type OfBools: Copy + PartialEq + core::fmt::Debug + Send + Sync + 'static;

    /// Converts the result.
    fn of_bools(self) -> Self::OfBools;
}

macro_rules! of_bytes {
    ($($from:ty => $to:ty: |$value:ident| $result:expr;)*) => {$(
        impl OfBytes for $from {
            type OfBools = $to;

            fn of_bools(self) -> $to {
                let $value = self;
                $result
            }
        }
    )*};
}

// `[u8; 2]` stays: `[bool; 2]` is not plain.
of_bytes! {
    u8 => bool: |value| value != 0;
    u64 => u64: |value| value;
    i128 => i128: |value| value;
    f64 => f64: |value| value;
    bool => bool: |value| value;
    [u8; 2] => [u8; 2]: |value| value;
    [u64; 2] => [u64; 2]: |value| value;
    [f64; 2] => [f64; 2]: |value| value;
    [f64; 4] => [f64; 4]: |value| value;
}

/// Folds `bool` as the operator folds `u8`.
#[derive(Clone, Copy)]
pub(crate) struct AsBytes;

impl<A, O> Agent<O, bool> for AsBytes
where
    O: Op<u8, Accumulator = A, Output: OfBytes>
        + Op<bool, Accumulator = A, Output = <<O as Op<u8>>::Output as OfBytes>::OfBools>,
{
    const ROOM: Room = room::<O, u8>();
    const LARGE_BLOCK: u32 = large_block::<O, u8>();
    const FOLDS_BY_LOADS: bool = folds_by_loads::<O, u8>();
    const KERNELS: Kernels = kernels::<O, u8>();
    const MEMBER: u32 = member::<O, u8>();
    const IN_PARTS: bool = in_parts::<O, u8>();

    fn moved(self, all: A, by: u64) -> A {
        <O as Op<u8>>::agent().moved(all, by)
    }

    /// A `&[bool]` is folded as the `&[u8]` that it is.
    fn folds<S: Source<Item = bool>>(self) -> Folds {
        <O as Op<u8>>::agent().folds::<&[u8]>()
    }

    fn fold_item(self, op: &O, all: &mut A, item: bool, index: u64) {
        <O as Op<u8>>::agent().fold_item(op, all, item.into(), index);
    }

    fn fold_load<const WIDTH: usize>(self, op: &O, all: &mut [A; WIDTH], items: [bool; WIDTH], index: u64) {
        <O as Op<u8>>::agent().fold_load(op, all, items.map(u8::from), index);
    }

    fn of_slot(self, word: impl Fn(usize) -> u64) -> Option<A> {
        <O as Op<u8>>::agent().of_slot(word)
    }

    fn words(self, op: &O) -> Option<Words<<O as Op<bool>>::Output>> {
        <O as Op<u8>>::agent().words(op).map(Words::of_bools)
    }
}

macro_rules! of_bools {
    ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl Op<bool> for crate::op::$op {
            const NAME: &'static str = <Self as Op<u8>>::NAME;
            type Accumulator = <Self as Op<u8>>::Accumulator;
            type Output = <<Self as Op<u8>>::Output as OfBytes>::OfBools;
            const EXACT: bool = <Self as Op<u8>>::EXACT;

            fn agent() -> impl Agent<Self, bool> {
                AsBytes
            }

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
