//! Types that reduce as another type: `usize` as `u64`, `isize` as `i64`, `bool` as `u8`. They share its
//! folds and kernels, and have its bits.

use crate::cpu::Source;
use crate::input::Input;
use crate::op::exact::{Exact, ExactElement, ExactFactor, OfExactSum};
use crate::op::{OnCpu, Op};
use crate::reduce::Arguments;
use core::marker::PhantomData;

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

macro_rules! exact_elements {
    ({} $($type:ident: $other:ident;)*) => {$(
        impl ExactElement for $type {
            type State = <$other as ExactElement>::State;
            type Rounded = <$other as ExactElement>::Rounded;
            const NOTHING: Self::State = <$other>::NOTHING;

            #[inline(always)]
            fn alone(self) -> Self::State {
                (self as $other).alone()
            }

            #[inline(always)]
            fn add_to(self, sum: &mut Self::State) {
                (self as $other).add_to(sum);
            }

            #[inline(always)]
            fn plus(a: Self::State, b: Self::State) -> Self::State {
                <$other>::plus(a, b)
            }

            #[inline(always)]
            fn sum<S: Source<Item = Self>>(items: S) -> Self::State {
                let mut sum = Self::NOTHING;
                // SAFETY: they are in bounds.
                (0..items.len()).for_each(|index| unsafe { items.get(index) }.add_to(&mut sum));
                sum
            }

            fn of_slot(word: impl Fn(usize) -> u64) -> Option<Self::State> {
                <$other as ExactElement>::of_slot(word)
            }

            unsafe fn reduce_on_gpu<
                O: OfExactSum<Self, Accumulator = Self::State>,
                P: Input<Item = Self>,
                const BLOCK: u32,
                const WIDTH: usize,
            >(
                _: Arguments<P, O, O::Output>,
                _: bool,
            ) {
                unreachable!("the kernels are those of the other type")
            }

            fn rounded(sum: impl Exact, count: u64) -> Self::Rounded {
                <$other>::rounded(sum, count)
            }

            fn as_f64s(sum: impl Exact, count: u64) -> [f64; 2] {
                <$other>::as_f64s(sum, count)
            }

            fn mean(sum: impl Exact, count: u64) -> Self::Real {
                <$other>::mean(sum, count)
            }
        }

        impl ExactFactor for $type {
            type Products = <$other as ExactFactor>::Products;
            const NO_PRODUCTS: Self::Products = <$other>::NO_PRODUCTS;

            #[inline(always)]
            fn product(self, other: Self) -> Self::Products {
                (self as $other).product(other as $other)
            }

            #[inline(always)]
            fn add_product_to(self, other: Self, sum: &mut Self::Products) {
                (self as $other).add_product_to(other as $other, sum);
            }

            #[inline(always)]
            fn add_products(a: Self::Products, b: Self::Products) -> Self::Products {
                <$other>::add_products(a, b)
            }

            #[inline(always)]
            fn sum_products<S: Source<Item = (Self, Self)>>(items: S) -> Self::Products {
                let mut sum = Self::NO_PRODUCTS;
                for index in 0..items.len() {
                    // SAFETY: it is in bounds.
                    let (a, b) = unsafe { items.get(index) };
                    a.add_product_to(b, &mut sum);
                }
                sum
            }

            fn products_of_slot(word: impl Fn(usize) -> u64) -> Option<Self::Products> {
                <$other>::products_of_slot(word)
            }

            unsafe fn reduce_products_on_gpu<
                O: OfExactSum<(Self, Self), Accumulator = Self::Products>,
                P: Input<Item = (Self, Self)>,
                const BLOCK: u32,
                const WIDTH: usize,
            >(
                _: Arguments<P, O, O::Output>,
                _: bool,
            ) {
                unreachable!("the kernels are those of the other type")
            }

            fn rounded_products(sum: impl Exact, count: u64) -> Self::Rounded {
                <$other>::rounded_products(sum, count)
            }
        }
    )*};
}

crate::for_each_alias! { exact_elements! {} }

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
