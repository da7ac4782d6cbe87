//! Operators that depend on the items' type only in what they first take of an item: its value, its key, and so on.
//!
//! Two types share kernels ([`twins`](super::twins)). If items reach an operator through one of the functions here, its kernels
//! compute what is taken of an item for both types, and all else once.

use crate::element::{Dtype, Element};
use crate::op::Op;
use crate::tree::unrolled;
use bytemuck::{Pod, Zeroable, try_cast};
use half::bf16;

/// An operator that is the same for two types of items but for what it takes of an item.
pub trait ByValue<I: Copy + 'static>: Op<I> {
    /// As [`Op::begin`]; if `is_second`, for items of the second of the two types, which have the bits of an `I`.
    #[inline(always)]
    fn begin_twin(&self, _first: I, _is_second: bool) -> Self {
        *self
    }

    /// As [`Op::lift`], of an item as in [`begin_twin`](Self::begin_twin).
    fn lift_twin(&self, item: I, index: u64, is_second: bool) -> Self::Accumulator;

    /// As [`Op::finish`], for such items.
    #[inline(always)]
    fn finish_twin(&self, all: Self::Accumulator, count: u64, _is_second: bool) -> Option<Self::Output> {
        self.finish(all, count)
    }

    /// As [`Op::lift_load`], of such items.
    #[inline(always)]
    fn lift_load_twin<const N: usize>(
        &self,
        items: [I; N],
        index: u64,
        is_second: bool,
    ) -> Self::Accumulator {
        lift_each(self, items, index, is_second)
    }
}

/// Combines what [`ByValue::lift_twin`] makes of each item of a load.
#[inline(always)]
pub(crate) fn lift_each<I: Copy + 'static, O: ByValue<I>, const N: usize>(
    op: &O,
    items: [I; N],
    index: u64,
    is_second: bool,
) -> O::Accumulator {
    let mut all = op.identity();
    // Unrolled, or the compiler may put the items into memory.
    unrolled::<N>(|place| all = op.combine(all, op.lift_twin(items[place], index + place as u64, is_second)));
    all
}

/// The methods of an [`Op`] that is [`ByValue`].
macro_rules! by_value {
    ($item:ty) => {
        #[inline(always)]
        fn lift(&self, item: $item, index: u64) -> Self::Accumulator {
            crate::op::by_value::ByValue::lift_twin(self, item, index, false)
        }

        #[inline(always)]
        fn lift_load<const N: usize>(&self, items: [$item; N], index: u64) -> Self::Accumulator {
            crate::op::by_value::ByValue::lift_load_twin(self, items, index, false)
        }
    };
}
pub(crate) use by_value;

/// Something that an operator takes of an item, as the item's value.
pub(crate) trait Take: Copy {
    /// The type of what is taken of an item of type `T`.
    type Of<T: Element>: Pod;

    /// Takes it of an item.
    fn of<T: Element>(self, item: T) -> Self::Of<T>;
}

macro_rules! take {
    ($($(#[$doc:meta])* $name:ident: $type:ty, $of:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl Take for $name {
            type Of<T: Element> = $type;

            #[inline(always)]
            fn of<T: Element>(self, item: T) -> $type {
                item.$of()
            }
        }
    )*};
}

take! {
    /// The value.
    Value: f64, as_f64;
    /// The value in the type of sums.
    Widened: T::Wide, widen;
    /// The value in the type that means sum in.
    Summed: T::Total, total;
    /// The magnitude.
    Magnitude: u64, magnitude;
}

/// The value of this magnitude, for items of the given item's type. The item itself does not matter.
#[derive(Clone, Copy)]
pub(crate) struct OfMagnitude(pub u64);

impl Take for OfMagnitude {
    type Of<T: Element> = f64;

    #[inline(always)]
    fn of<T: Element>(self, _: T) -> f64 {
        T::of_magnitude(self.0)
    }
}

/// Whether items are signed integers.
#[inline(always)]
pub(crate) fn is_signed<T: Element>(is_second: bool) -> bool {
    is_second || matches!(T::DTYPE, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64)
}

/// The value of an integer of at most 16 bits; of others, the lower 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct Short;

impl Take for Short {
    type Of<T: Element> = i32;

    #[inline(always)]
    fn of<T: Element>(self, item: T) -> i32 {
        cast::<_, i64>(item.widen()) as i32
    }
}

/// Returns the sum of what `of` makes of each item of a load. The sum has 32 bits at most.
#[inline(always)]
pub(crate) fn short_sum<I: Copy, const N: usize>(items: [I; N], of: impl Fn(I) -> i32) -> i64 {
    let mut sum = 0;
    unrolled::<N>(|place| sum += of(items[place]));
    sum.into()
}

/// The key of a number, or the key in this struct if the item is a NaN.
#[derive(Clone, Copy)]
pub(crate) struct KeyOr<K>(pub K);

impl<K: Pod> Take for KeyOr<K> {
    type Of<T: Element> = T::Key;

    #[inline(always)]
    fn of<T: Element>(self, item: T) -> T::Key {
        item.key(cast(self.0))
    }
}

/// Takes something of an item; if `is_second`, of the item of the second type that has its bits.
#[inline(always)]
pub(crate) fn taken<F: Take, T: Element>(take: F, item: T, is_second: bool) -> F::Of<T> {
    let first = take.of(item);
    let second = match T::DTYPE {
        Dtype::U8 => cast(take.of(cast::<T, i8>(item))),
        Dtype::U16 => cast(take.of(cast::<T, i16>(item))),
        Dtype::U32 => cast(take.of(cast::<T, i32>(item))),
        Dtype::U64 => cast(take.of(cast::<T, i64>(item))),
        Dtype::F16 => cast(take.of(cast::<T, bf16>(item))),
        _ => first,
    };
    if is_second { second } else { first }
}

/// Returns a value's bytes as a value of another type of the same size. ([`taken`] is compiled for each type of items, and so contains
/// calls for types of different sizes. None of them is executed.)
#[inline(always)]
pub(crate) fn cast<A: Pod, B: Pod>(value: A) -> B {
    try_cast(value).unwrap_or_else(|_| Zeroable::zeroed())
}
