//! The operators: what [`Op`] asks of one, and in a file each those that come with the library.

#[macro_use]
mod extremes;
#[macro_use]
mod place;
#[macro_use]
mod spread;

macro_rules! operators {
    ({} $($(#[$doc:meta])* $name:ident: $op:ident $blocks:ident;)*) => {
        $(mod $name;)*

        /// The operators that come with the library, those of its table.
        pub mod every {
            $(pub use super::$name::$op;)*
        }
    };
}

crate::for_each_operator! { operators! {} }

mod squares;

/// The square root, correctly rounded.
#[inline(always)]
fn sqrt(value: f64) -> f64 {
    #[cfg(target_arch = "nvptx64")]
    {
        cuda_std::intrinsics::sqrt_f64(value)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        value.sqrt()
    }
}

pub use every::*;
pub(crate) use squares::{Scaled, Squares};

#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{Source, fold_in_turn};
use crate::element::Accumulator;
use crate::kernels::Kernels;
use bytemuck::Pod;
use core::fmt::Debug;
use core::marker::PhantomData;

/// A reduction operator over items of type `I`: lift each item into an accumulator, combine accumulators, finish the last one.
///
/// An item is an element, any other plain value (`#[repr(C)]`, [`Pod`]), or a pair of two where two arrays are reduced
/// together. An operator is a value: what it carries is a parameter of the reduction, and a kernel's argument on a GPU.
///
/// The order in which accumulators combine is fixed by the [plan](crate::plan), but it is not that of the items, so
/// [`combine`](Op::combine) must be commutative and associative up to rounding.
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use gpu_reduce_kernels::Op;
///
/// /// How many elements are above a threshold.
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Above(f32);
///
/// impl Op<f32> for Above {
///     const NAME: &'static str = "above";
///     type Accumulator = u64;
///     type Output = u64;
///     const EXACT: bool = true;
///
///     fn identity(&self) -> u64 {
///         0
///     }
///     fn lift(&self, item: f32, _: u64) -> u64 {
///         (item > self.0).into()
///     }
///     fn combine(&self, a: u64, b: u64) -> u64 {
///         a + b
///     }
///     fn finish(&self, all: u64, _: u64) -> Option<u64> {
///         Some(all)
///     }
/// }
/// ```
pub trait Op<I: Copy + 'static>: Pod + Send + Sync {
    /// The operator's name in errors, as `sum`.
    const NAME: &'static str;

    /// What partial results are: any plain value. A block's warps exchange up to 32 of them through shared memory, which has room
    /// for those of up to 1,536 bytes; larger ones are an error when a GPU's driver compiles the kernel.
    type Accumulator: Accumulator;

    /// What a reduction returns. To be left on a device it has to be plain, too.
    type Output: Copy + PartialEq + Debug + Send + Sync + 'static;

    /// Whether every order of combining gives the same bits. Backends then need not keep the plan's.
    const EXACT: bool;

    /// The kernels that the operator's crate has compiled for it: `gpu_reduce_kernels::kernels!` makes them. An operator
    /// without any reduces on the CPU, and is an error that says so elsewhere.
    const KERNELS: Kernels = Kernels::NONE;

    /// The folds over slices on a CPU where the operator's crate has compiled them, so that not every program that uses the operator
    /// does.
    #[doc(hidden)]
    const ON_CPU: Option<OnCpu<Self, I>> = None;

    /// The operator for items of which this is the first: called once where a reduction begins, before any is lifted. For what
    /// folds items by their distances from one of them.
    #[inline(always)]
    #[must_use]
    fn begin(&self, _first: I) -> Self {
        *self
    }

    /// Combined with any accumulator it leaves that one's bits.
    fn identity(&self) -> Self::Accumulator;

    /// The accumulator of one item. Indices count from the start of what is reduced.
    fn lift(&self, item: I, index: u64) -> Self::Accumulator;

    /// The accumulator of neighbouring items, the first of which has the index given. Called on a GPU, and only where the
    /// operator is [`EXACT`](Op::EXACT): worth writing where there are instructions for several items at once.
    #[inline(always)]
    fn lift_load<const N: usize>(&self, items: [I; N], index: u64) -> Self::Accumulator {
        (index..)
            .zip(items)
            .fold(self.identity(), |all, (index, item)| self.combine(all, self.lift(item, index)))
    }

    /// The accumulator of items that lie side by side, the first of which has the index given. Called on a CPU, and only where the
    /// operator is [`EXACT`](Op::EXACT). As it is, it becomes SIMD where accumulators are integers.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    #[inline(always)]
    fn fold_items<S: Source<Item = I>>(&self, items: S, first: u64) -> Self::Accumulator {
        fold_in_turn::<true, _, _>(self, items, first)
    }

    /// Two accumulators made one.
    fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;

    /// The result of `count` items, or `None` where they have none, as the minimum of no items. A float's NaN is made
    /// canonical here, so that all devices agree on its bits.
    fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output>;
}

/// Where the table has an operator's folds over slices of a type.
#[derive(Debug)]
#[cfg_attr(target_arch = "nvptx64", allow(dead_code, reason = "folds are for CPUs"))]
pub struct OnCpu<O, I> {
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) types: PhantomData<fn(O, I)>,
}

/// Items that a thread folds side by side, WIDTH: those of a 16-byte load (of the wider array, where there are two), but no
/// more than have 64 bytes of accumulators, a quarter of the registers that a thread of 1,024 has, nor more than a block of 1,024 has
/// 32 KiB of shared memory for, four or eight bytes of each at a time. Where every order gives the same bits, one accumulator
/// does. A power of two.
pub const fn width<O: Op<I>, I: Copy + 'static>(item_bytes: usize) -> usize {
    const fn of(bytes: usize, size: usize) -> usize {
        match bytes.checked_div(size) {
            None | Some(0) => 1,
            Some(count) => 1 << count.ilog2(),
        }
    }
    let (of_items, of_accumulators) = (of(16, item_bytes), of(64, size_of::<O::Accumulator>()));
    if O::EXACT {
        return of_items;
    }
    let room = if size_of::<O::Accumulator>() > 4 { 4 } else { 8 };
    let most = if of_accumulators < room { of_accumulators } else { room };
    if of_items < most { of_items } else { most }
}
