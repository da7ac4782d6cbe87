//! The operators: what [`Op`] asks of one, and in a file each those that come with the library.

/// The fold of a chunk on a CPU that another operator over `T` has, from which this one differs in what is made of the accumulator.
macro_rules! folded_as {
    (|$op:ident| $other:expr) => {
        #[cfg(not(target_arch = "nvptx64"))]
        #[inline(always)]
        fn fold_chunk<S: crate::cpu::Source<Item = T>>(
            &self,
            chunk: S,
            first: u64,
            row: usize,
        ) -> Self::Accumulator {
            let $op = self;
            crate::cpu::fold_by_table(&$other, chunk, first, row)
        }
    };
}

#[macro_use]
mod bits;
#[macro_use]
mod counts;
#[macro_use]
pub mod exact;
#[macro_use]
mod extremes;
#[macro_use]
mod place;
#[macro_use]
mod powers;
#[macro_use]
mod quantifiers;
#[macro_use]
mod spread;

macro_rules! operators {
    ({ $of:ident } $($(#[$doc:meta])* $name:ident: $op:ident $blocks:ident;)*) => {
        $(mod $name;)*

        mod $of {
            $(pub use super::$name::$op;)*
        }
    };
}

crate::for_each_operator! { operators! { elements } }
crate::for_each_integer_operator! { operators! { integers } }
crate::for_each_pair_operator! { operators! { pairs } }
crate::for_each_comparison! { operators! { comparisons } }

/// The operators that come with the library, those of its tables.
pub mod every {
    pub use super::comparison::Comparison;
    pub use super::{comparisons::*, elements::*, integers::*, pairs::*};
}

mod comparison;
mod exponential;
mod squares;
pub(crate) mod together;

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

/// A sum, and the error of its rounding: D. E. Knuth, "The Art of Computer Programming", volume 2, 4.2.2, theorem B.
#[inline(always)]
fn two_sum(a: f64, b: f64) -> [f64; 2] {
    let sum = a + b;
    let of_b = sum - a;
    let of_a = sum - of_b;
    [sum, (a - of_a) + (b - of_b)]
}

/// `a · b + c`, rounded once.
#[inline(always)]
fn fma(a: f64, b: f64, c: f64) -> f64 {
    #[cfg(target_arch = "nvptx64")]
    {
        cuda_std::intrinsics::fma_f64(a, b, c)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        a.mul_add(b, c)
    }
}

pub(crate) use compensated_sum::{Compensated, Twofold};
pub use every::*;
pub(crate) use squares::{Scaled, Squares};
pub use together::Both;

#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{self, Source};
use crate::element::Accumulator;
use crate::input::Input;
use crate::kernels::Kernels;
use crate::reduce::{self, Arguments};
#[cfg(not(target_arch = "nvptx64"))]
use crate::slot;
use crate::stage::chunk;
#[cfg(not(target_arch = "nvptx64"))]
use ::std::vec::Vec;
use core::fmt::Debug;
use core::marker::PhantomData;

/// A reduction operator over items of type `I`: lift each item into an accumulator, combine accumulators, finish the last one.
///
/// An item is an element, any other plain value (`#[repr(C)]`, [`Pod`](bytemuck::Pod)), or a pair of two where two arrays are reduced
/// together. An operator is a value: what it carries is a parameter of the reduction, and a kernel's argument on a GPU, for which it
/// has to be plain, too.
///
/// A tuple of two to six operators is one that reduces by all of them in one pass over memory; its results are those that each has
/// alone, to the bit. (On a GPU where such a kernel is compiled: the library has `(Sum, Min, Max)`, `(Mean, Var)` and `(Mean, Std)`.
/// Others reduce one after another. See [`Both`].)
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
///     fn parameters(&self) -> &[u8] {
///         bytemuck::bytes_of(self)
///     }
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
#[diagnostic::on_unimplemented(
    message = "the operator `{Self}` does not reduce items of type `{I}`",
    note = "what reduces is any plain value, by an operator of your own: `impl Op<{I}> for …`"
)]
pub trait Op<I: Copy + 'static>: Copy + Send + Sync + 'static {
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

    /// How many items accumulators have room for side by side, see [`width`].
    #[doc(hidden)]
    const ROOM: Room<Self, I> = Room::of_accumulator();

    /// The BLOCK of large inputs where a call names none. 1,024 where a multiprocessor has registers for two such blocks (sums, 2^28 `f32`:
    /// 237.3 µs, with 512 238.9); with more registers a thread, 512 (`argmin`, 2^24: 20.7, with 1,024 22.5; `mean` 17.95 and 18.7).
    #[doc(hidden)]
    const LARGE_BLOCK: u32 = 512;

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

    /// The accumulator of all items, of which there are `count`, without what the operator knows of the first: called once where a
    /// reduction ends, by the operator that [`begin`](Op::begin) gave. Who finishes has not seen the items.
    #[inline(always)]
    fn end(&self, all: Self::Accumulator, _count: u64) -> Self::Accumulator {
        all
    }

    /// What the operator carries, as bytes: those that reduce parts of one whole apart compare it. An operator that carries something
    /// says it here, `bytemuck::bytes_of(self)`; else it does not compile where it is asked.
    fn parameters(&self) -> &[u8] {
        const { assert!(size_of::<Self>() == 0, "an operator that carries something says what in Op::parameters") };
        &[]
    }

    /// Calls `each` with the name and the parameters of each operator that this is made of.
    #[doc(hidden)]
    fn each_part(&self, each: &mut dyn FnMut(&'static str, &[u8])) {
        each(Self::NAME, self.parameters());
    }

    /// The name of the operator that has no value for no items, where this has none: of several, the first one's.
    #[doc(hidden)]
    fn without_value(&self) -> &'static str {
        Self::NAME
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
        cpu::fold_in_turn::<true, _, _>(self, items, first)
    }

    /// Folds an item into an accumulator.
    #[doc(hidden)]
    #[inline(always)]
    fn fold_item(&self, all: &mut Self::Accumulator, item: I, index: u64) {
        *all = self.combine(*all, self.lift(item, index));
    }

    /// Folds neighbouring items, the first of which has the index given, into the accumulators of places side by side: each into
    /// that of its place; or all into the first where the operator is [`EXACT`](Op::EXACT), because 16 of 64 bits would be half of a
    /// thread's registers.
    #[doc(hidden)]
    #[inline(always)]
    fn fold_load<const WIDTH: usize>(
        &self,
        all: &mut [Self::Accumulator; WIDTH],
        items: [I; WIDTH],
        index: u64,
    ) {
        if Self::EXACT {
            all[0] = self.combine(all[0], self.lift_load(items, index));
        } else {
            for (place, &item) in items.iter().enumerate() {
                all[place] = self.combine(all[place], self.lift(item, index + place as u64));
            }
        }
    }

    /// The accumulator of a chunk on a CPU, in rows of so many; its first item has the index given.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = I>>(&self, chunk: S, first: u64, row: usize) -> Self::Accumulator {
        cpu::fold_chunk(self, chunk, first, row)
    }

    /// The accumulator of a chunk, of `len` items, by a block: thread 0 gets it.
    ///
    /// # Safety
    ///
    /// Every thread of the block calls it, with the same items.
    #[doc(hidden)]
    #[inline(always)]
    unsafe fn fold_on_gpu<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize>(
        &self,
        chunk: P,
        len: u32,
        start: u64,
    ) -> Self::Accumulator {
        // SAFETY: as the caller vouches.
        unsafe { chunk::fold_chunk::<Self, P, BLOCK, WIDTH>(self, chunk, len, start) }
    }

    /// What the kernel of whole inputs does, or where it `is_row` that of a row.
    ///
    /// # Safety
    ///
    /// As for [`reduce::reduce`], or [`reduce::reduce_row`].
    #[doc(hidden)]
    #[inline(always)]
    unsafe fn reduce_on_gpu<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize>(
        arguments: Arguments<P, Self, Self::Output>,
        is_row: bool,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { reduce::by_tree::<Self, P, BLOCK, WIDTH>(arguments, is_row) }
    }

    /// The partial result that the words of a slot hold; none while they are not full.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn of_slot(word: impl Fn(usize) -> u64) -> Option<Self::Accumulator> {
        slot::full(word)
    }

    /// Reduces by this operator; by its parts, where it has some that have to be alone.
    #[doc(hidden)]
    #[inline(always)]
    fn by_parts<R: Reducer<I>>(&self, reducer: &R) -> Result<Self::Output, R::Error> {
        reducer.reduce(self)
    }

    /// Folds chunks by this operator. Several operators without a kernel of their own fold by each part.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn fold_by_parts<F: Folder<I>>(&self, folder: &F) -> Result<Vec<Self::Accumulator>, F::Error> {
        folder.fold(self)
    }

    /// Two accumulators made one.
    fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;

    /// The result of `count` items, or `None` where they have none, as the minimum of no items. A float's NaN is made
    /// canonical here, so that all devices agree on its bits.
    fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output>;
}

/// Where a table has an operator's folds over items of a type.
#[derive(Debug)]
pub struct OnCpu<O, I> {
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) table: &'static crate::table::FoldsTable,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) row: usize,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) column: usize,
    pub(crate) types: PhantomData<fn(O, I)>,
}

/// What reduces some items by one operator or another.
#[doc(hidden)]
pub trait Reducer<I: Copy + 'static> {
    /// What may go wrong.
    type Error;

    /// Whether it has a kernel for the operator, if it needs one.
    ///
    /// # Errors
    ///
    /// Of whoever has the kernels.
    fn has<O: Op<I>>(&self) -> Result<bool, Self::Error>;

    /// Reduces.
    ///
    /// # Errors
    ///
    /// Of the reduction.
    fn reduce<O: Op<I>>(&self, op: &O) -> Result<O::Output, Self::Error>;
}

/// A way to fold chunks into partial results, whatever the operator: [`Op::fold_by_parts`] calls it.
#[cfg(not(target_arch = "nvptx64"))]
#[doc(hidden)]
pub trait Folder<I: Copy + 'static> {
    /// The error of a fold.
    type Error;

    /// Whether it can fold by the operator where the items lie: on a GPU, whether there is a kernel for it.
    ///
    /// # Errors
    ///
    /// Those of finding the kernel.
    fn has<O: Op<I>>(&self) -> Result<bool, Self::Error>;

    /// Returns the partial result of each chunk.
    ///
    /// # Errors
    ///
    /// Those of the fold.
    fn fold<O: Op<I>>(&self, op: &O) -> Result<Vec<O::Accumulator>, Self::Error>;
}

/// Items that a thread folds side by side, WIDTH: those of a 16-byte load (of the wider array, where there are two), but no
/// more than have 64 bytes of accumulators, a quarter of the registers that a thread of 1,024 has, nor more than a block of 1,024 has
/// 32 KiB of shared memory for, four or eight bytes of each at a time. Where every order gives the same bits, one accumulator
/// does. A power of two.
pub const fn width<O: Op<I>, I: Copy + 'static>(item_bytes: usize) -> usize {
    least(power_of_two(16, item_bytes), O::ROOM.least)
}

/// The BLOCK of calls that name none, for an input of so many bytes: of the six that which serves all types best, measured on
/// an H200 by graph replays. 4,096 `f32` took 1.28 µs with 256 and 1.34 with 512; 2^20 took 2.41 with 512 and 2.57 with 1,024;
/// 2^26 took 61.3 with 1,024 and 61.6 with 512. (Up to 8 KiB are a row, and launched with the least BLOCK.)
pub const fn default_block<O: Op<I>, I: Copy + 'static>(bytes: u64) -> u32 {
    match bytes {
        0x2001..=0x4000 => 256,
        0..=0x200_0000 => 512,
        _ => O::LARGE_BLOCK,
    }
}

/// Whether all parts of an operator fold as many items side by side, so that together each has the bits that it has alone.
#[doc(hidden)]
pub const fn fold_alike<O: Op<I>, I: Copy + 'static>(item_bytes: usize) -> bool {
    let of_items = power_of_two(16, item_bytes);
    O::ROOM.most == 0 || least(of_items, O::ROOM.least) == least(of_items, O::ROOM.most)
}

/// How many items accumulators have room for side by side. Of an operator made of several: the least and the most of
/// those in which the order counts. The size of a row of accumulators depends on it, so only this crate makes one: an
/// operator elsewhere has that of its accumulator.
#[doc(hidden)]
pub struct Room<O, I> {
    pub(crate) least: usize,
    /// 0 where the order counts in none.
    most: usize,
    of: PhantomData<fn(O, I)>,
}

impl<O: Op<I>, I: Copy + 'static> Room<O, I> {
    /// By the size of the operator's accumulator.
    const fn of_accumulator() -> Self {
        if O::EXACT {
            return Self { least: 16, most: 0, of: PhantomData };
        }
        let bytes = size_of::<O::Accumulator>();
        let room = least(power_of_two(64, bytes), if bytes > 4 { 4 } else { 8 });
        Self { least: room, most: room, of: PhantomData }
    }

    /// That of another operator.
    pub(crate) const fn same_as<P: Op<J>, J: Copy + 'static>() -> Self {
        Self { least: P::ROOM.least, most: P::ROOM.most, of: PhantomData }
    }

    /// That of an operator made of two.
    pub(crate) const fn of_both<A: Op<I>, B: Op<I>>() -> Self {
        let (a, b) = (A::ROOM, B::ROOM);
        Self {
            least: least(a.least, b.least),
            most: if a.most > b.most { a.most } else { b.most },
            of: PhantomData,
        }
    }
}

/// The greatest power of two of parts of `size` bytes that `bytes` have room for; at least 1.
const fn power_of_two(bytes: usize, size: usize) -> usize {
    match bytes.checked_div(size) {
        None | Some(0) => 1,
        Some(count) => 1 << count.ilog2(),
    }
}

const fn least(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}
