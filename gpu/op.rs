//! The operators: the trait [`Op`], and a file for each operator of the library.

/// Declares an operator without parameters: `NAME: MODULE::GENERIC<ARGUMENTS>`, by [`forward!`].
macro_rules! operator {
    ($(#[$doc:meta])* $op:ident $name:literal $(, $bound:path)?: $module:ident::$generic:ident<$($argument:literal),+>) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C)]
        pub struct $op;

        forward! {
            $op, $name $(, $bound)?: |_op| crate::op::$module::$generic<$($argument),+>
                = crate::op::$module::$generic::<$($argument),+>
        }
    };
}

/// Implements [`Op`] for elements by forwarding to a generic operator. `begin` is given if the operator
/// depends on the first element; `chunk`, if another operator of the table folds chunks in the same way, so
/// that its compiled folds are used.
macro_rules! forward {
    ($op:ty, $name:literal $(, $bound:path)?: |$this:ident| $generic:ty = $value:expr
     $(, begin |$first:ident| $begun:expr)? $(, chunk $same:expr)?) => {
        impl<T: crate::Element $(+ $bound)?> crate::op::Op<T> for $op {
            const NAME: &'static str = $name;
            type Accumulator = <$generic as crate::op::Op<T>>::Accumulator;
            type Output = <$generic as crate::op::Op<T>>::Output;
            const EXACT: bool = <$generic as crate::op::Op<T>>::EXACT;
            const LARGE_BLOCK: u32 = <$generic as crate::op::Op<T>>::LARGE_BLOCK;
            const ON_CPU: Option<crate::op::OnCpu<Self, T>> = crate::table::on_cpu::<_, _, T>();

            fn parameters(&self) -> &[u8] {
                bytemuck::bytes_of(self)
            }

            $(
                #[allow(unused_variables, reason = "the operator, if it has no field but the first element")]
                #[inline(always)]
                fn begin(&self, $first: T) -> Self {
                    let $this = self;
                    $begun
                }

                #[inline(always)]
                fn end(&self, all: Self::Accumulator, count: u64) -> Self::Accumulator {
                    let $this = self;
                    crate::op::Op::<T>::end(&$value, all, count)
                }
            )?

            #[inline(always)]
            fn identity(&self) -> Self::Accumulator {
                let $this = self;
                crate::op::Op::<T>::identity(&$value)
            }

            #[inline(always)]
            fn lift(&self, element: T, index: u64) -> Self::Accumulator {
                let $this = self;
                $value.lift(element, index)
            }

            #[inline(always)]
            fn lift_load<const N: usize>(&self, load: [T; N], index: u64) -> Self::Accumulator {
                let $this = self;
                $value.lift_load(load, index)
            }

            #[inline(always)]
            fn fold_load<const WIDTH: usize>(
                &self,
                all: &mut [Self::Accumulator; WIDTH],
                items: [T; WIDTH],
                index: u64,
            ) {
                let $this = self;
                $value.fold_load(all, items, index);
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn fold_items<S: crate::cpu::Source<Item = T>>(&self, items: S, first: u64) -> Self::Accumulator {
                let $this = self;
                $value.fold_items(items, first)
            }

            $(
                #[cfg(not(target_arch = "nvptx64"))]
                #[inline(always)]
                fn fold_chunk<S: crate::cpu::Source<Item = T>>(
                    &self,
                    chunk: S,
                    first: u64,
                    row: usize,
                ) -> Self::Accumulator {
                    let $this = self;
                    crate::cpu::fold_by_table(&$same, chunk, first, row)
                }
            )?

            #[inline(always)]
            fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator {
                let $this = self;
                crate::op::Op::<T>::combine(&$value, a, b)
            }

            #[inline(always)]
            fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output> {
                let $this = self;
                crate::op::Op::<T>::finish(&$value, all, count)
            }
        }
    };
}

/// The methods of an [`Op`] whose accumulators are [`Summand`](crate::element::Summand)s.
macro_rules! accumulators_add_up {
    ($accumulator:ty) => {
        #[inline(always)]
        fn identity(&self) -> $accumulator {
            <$accumulator as crate::element::Summand>::NOTHING
        }

        #[inline(always)]
        fn combine(&self, a: $accumulator, b: $accumulator) -> $accumulator {
            crate::element::Summand::plus(a, b)
        }
    };
}

mod bits;
mod counts;
#[macro_use]
pub mod exact;
mod extremes;
mod place;
mod powers;
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

/// What most operators' files use.
mod prelude {
    pub use crate::element::{Dtype, Element, Summand, Total, Wide};
    pub use crate::op::{OnCpu, Op};
    pub use crate::table;
    pub use bytemuck::{Pod, Zeroable};
    #[cfg(not(target_arch = "nvptx64"))]
    pub use num_traits::Bounded;
    pub use num_traits::{ConstOne, ConstZero};
}

/// The operators of the library's tables.
pub mod every {
    pub use super::comparison::Comparison;
    pub use super::{comparisons::*, elements::*, integers::*, pairs::*};
}

mod comparison;
pub(crate) mod exponential;
mod squares;
pub(crate) mod together;

/// Returns the correctly rounded square root.
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

/// Returns `a + b` and the error of its rounding: D. E. Knuth, "The Art of Computer Programming", volume 2,
/// 4.2.2, theorem B.
#[inline(always)]
pub(crate) fn two_sum(a: f64, b: f64) -> [f64; 2] {
    let sum = a + b;
    let of_b = sum - a;
    let of_a = sum - of_b;
    [sum, (a - of_a) + (b - of_b)]
}

/// Returns `a · b + c`, rounded once.
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

/// A reduction operator over items of type `I`.
///
/// A reduction lifts each item into an accumulator, combines accumulators in pairs, and finishes the last
/// one. An item is an element, any other plain value (`#[repr(C)]`, [`Pod`](bytemuck::Pod)), or a pair of
/// them if two arrays are reduced together.
///
/// An operator is a value; its fields are parameters of the reduction. A GPU gets it as a kernel argument,
/// for which it must be plain, too.
///
/// A tuple of two to six operators is an operator: it computes all results in one pass over memory, with the
/// bits that each has alone. On a GPU this needs a compiled kernel; the library has those of `(Sum, Min, Max)`,
/// `(Mean, Var)` and `(Mean, Std)`. Without one, the operators run one after another. See [`Both`].
///
/// The [plan](crate::plan) fixes the order in which accumulators combine. It is not the order of the items,
/// so [`combine`](Op::combine) must be commutative, and associative up to rounding.
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use gpu_reduce_kernels::Op;
///
/// /// Counts the elements above a threshold.
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

    /// The type of partial results: any plain value of up to 1,536 bytes. The warps of a block exchange up to
    /// 32 of them through shared memory; if they do not fit, the GPU's driver fails to compile the kernel.
    type Accumulator: Accumulator;

    /// The type of results. It must be plain for results that stay on a device.
    type Output: Copy + PartialEq + Debug + Send + Sync + 'static;

    /// Whether every order of combining gives the same bits. If so, backends may ignore the plan's order.
    const EXACT: bool;

    /// The kernels that the operator's crate has compiled for it with `gpu_reduce_kernels::kernels!`. An
    /// operator without kernels reduces on the CPU only; on a GPU it is an error.
    const KERNELS: Kernels = Kernels::NONE;

    /// How many accumulators a thread has room for, see [`width`].
    #[doc(hidden)]
    const ROOM: Room<Self, I> = Room::of_accumulator();

    /// The BLOCK of large inputs if the call names none: 1,024 if a multiprocessor has registers for two such
    /// blocks (`sum` of 2^28 `f32`: 237.3 µs; with 512, 238.9), else 512 (`argmin` of 2^24: 20.7 µs; with
    /// 1,024, 22.5).
    #[doc(hidden)]
    const LARGE_BLOCK: u32 = 512;

    /// The folds over slices on a CPU that the operator's crate has compiled, so that programs need not
    /// compile them again.
    #[doc(hidden)]
    const ON_CPU: Option<OnCpu<Self, I>> = None;

    /// Returns the operator that reduces items of which `first` is the first. Called once, before any item is
    /// lifted. For operators that fold the distances of items from one of them.
    #[inline(always)]
    #[must_use]
    fn begin(&self, _first: I) -> Self {
        *self
    }

    /// Removes from the accumulator of all `count` items what depends on the first item. Called once, after the
    /// last combine, on the operator that [`begin`](Op::begin) returned. [`finish`](Op::finish) may be called on
    /// the original operator.
    #[inline(always)]
    fn end(&self, all: Self::Accumulator, _count: u64) -> Self::Accumulator {
        all
    }

    /// Returns the operator's parameters as bytes. Partial reductions of one whole compare them. An operator
    /// with fields must implement it, as `bytemuck::bytes_of(self)`; else programs that call it do not
    /// compile.
    fn parameters(&self) -> &[u8] {
        const { assert!(size_of::<Self>() == 0, "an operator with fields must implement Op::parameters") };
        &[]
    }

    /// Calls `each` with the name and the parameters of each operator in this one.
    #[doc(hidden)]
    fn each_part(&self, each: &mut dyn FnMut(&'static str, &[u8])) {
        each(Self::NAME, self.parameters());
    }

    /// Returns the name of the first operator in this one that has no result for no items.
    #[doc(hidden)]
    fn without_value(&self) -> &'static str {
        Self::NAME
    }

    /// Returns the accumulator of no items. Combining it with another leaves the other's bits.
    fn identity(&self) -> Self::Accumulator;

    /// Returns the accumulator of one item. Indices count from the first item of the reduction.
    fn lift(&self, item: I, index: u64) -> Self::Accumulator;

    /// Returns the accumulator of N neighbouring items, the first of which has index `index`. Called on a
    /// GPU, and only if the operator is [`EXACT`](Op::EXACT). Worth writing if there are instructions for
    /// several items at once.
    #[inline(always)]
    fn lift_load<const N: usize>(&self, items: [I; N], index: u64) -> Self::Accumulator {
        (index..)
            .zip(items)
            .fold(self.identity(), |all, (index, item)| self.combine(all, self.lift(item, index)))
    }

    /// Returns the accumulator of neighbouring items, the first of which has index `first`. Called on a CPU,
    /// and only if the operator is [`EXACT`](Op::EXACT). The default becomes SIMD if accumulators are
    /// integers.
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

    /// Folds WIDTH neighbouring items, the first of which has index `index`, each into its own accumulator.
    /// If the operator is [`EXACT`](Op::EXACT), folds all into the first: 16 accumulators of 64 bits would
    /// take half of a thread's registers.
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

    /// Returns the accumulator of a chunk on a CPU, folded in rows of `row` items. Its first item has index
    /// `first`.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = I>>(&self, chunk: S, first: u64, row: usize) -> Self::Accumulator {
        cpu::fold_chunk(self, chunk, first, row)
    }

    /// Returns the accumulator of a chunk of `len` items, folded by a block, to thread 0.
    ///
    /// # Safety
    ///
    /// Every thread of the block must call it, with the same items.
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

    /// The body of the kernel of whole inputs or, if `is_row`, of a row.
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

    /// Returns the partial result in a slot's words, or `None` while the slot is not full.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn of_slot(word: impl Fn(usize) -> u64) -> Option<Self::Accumulator> {
        slot::full(word)
    }

    /// Reduces by this operator, or by its parts one after another if there is no kernel for all of them.
    #[doc(hidden)]
    #[inline(always)]
    fn by_parts<R: Reducer<I>>(&self, reducer: &R) -> Result<R::Outcome<Self::Output>, R::Error> {
        reducer.reduce(self)
    }

    /// Folds chunks by this operator. Several operators without a kernel of their own fold by each part.
    #[cfg(not(target_arch = "nvptx64"))]
    #[doc(hidden)]
    fn fold_by_parts<F: Folder<I>>(&self, folder: &F) -> Result<Vec<Self::Accumulator>, F::Error> {
        folder.fold(self)
    }

    /// Combines two accumulators.
    fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;

    /// Returns the result of `count` items, or `None` if they have none, as the minimum of no items. Make a
    /// NaN canonical here, so that all devices agree on its bits.
    fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output>;
}

/// The position of an operator's folds in a table.
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

/// A way to reduce some items by any operator: [`Op::by_parts`] calls it.
#[doc(hidden)]
pub trait Reducer<I: Copy + 'static> {
    /// The error of a reduction.
    type Error;

    /// What a reduction returns: its result, or a result that is pending.
    type Outcome<V: Copy + Send + 'static>;

    /// Whether it can reduce by the operator at once: on a GPU, whether there is a kernel for it.
    ///
    /// # Errors
    ///
    /// Those of finding the kernel.
    fn has<O: Op<I>>(&self) -> Result<bool, Self::Error>;

    /// Reduces the items.
    ///
    /// # Errors
    ///
    /// Those of the reduction.
    fn reduce<O: Op<I>>(&self, op: &O) -> Result<Self::Outcome<O::Output>, Self::Error>;

    /// Joins two outcomes.
    fn join<A: Copy + Send + 'static, B: Copy + Send + 'static>(
        a: Self::Outcome<A>,
        b: Self::Outcome<B>,
    ) -> Self::Outcome<Both<A, B>>;

    /// Converts an outcome.
    fn map<A: Copy + Send + 'static, B: Copy + Send + 'static>(
        a: Self::Outcome<A>,
        map: fn(A) -> B,
    ) -> Self::Outcome<B>;
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

/// Returns WIDTH, the number of items that a thread folds side by side, a power of two.
///
/// It is the number of items of a 16-byte load (of the wider array, if there are two), but no more than
/// - have 64 bytes of accumulators, a quarter of the registers of a thread in a block of 1,024, and
/// - fit in 32 KiB of shared memory for a block of 1,024, four or eight bytes of each at a time.
///
/// An [`EXACT`](Op::EXACT) operator has one accumulator a thread, so that these limits do not apply.
pub const fn width<O: Op<I>, I: Copy + 'static>(item_bytes: usize) -> usize {
    least(power_of_two(16, item_bytes), O::ROOM.least)
}

/// Returns the BLOCK of calls that name none, for an input of `bytes` bytes: the fastest one over all types.
///
/// Measured on an H200 by graph replays: 4,096 `f32` took 1.28 µs with 256 and 1.34 with 512; 2^20 took 2.41
/// with 512 and 2.57 with 1,024; 2^26 took 61.3 with 1,024 and 61.6 with 512. (Up to 8 KiB are a row,
/// launched with the least BLOCK.)
pub const fn default_block<O: Op<I>, I: Copy + 'static>(bytes: u64) -> u32 {
    match bytes {
        0x2001..=0x4000 => 256,
        0..=0x200_0000 => 512,
        _ => O::LARGE_BLOCK,
    }
}

/// Whether all parts of an operator fold equally many items side by side, so that each has the bits that it
/// has alone.
#[doc(hidden)]
pub const fn fold_alike<O: Op<I>, I: Copy + 'static>(item_bytes: usize) -> bool {
    let of_items = power_of_two(16, item_bytes);
    O::ROOM.most == 0 || least(of_items, O::ROOM.least) == least(of_items, O::ROOM.most)
}

/// How many accumulators a thread has room for: for several operators in one, the least and the most over
/// those that are not [`EXACT`](Op::EXACT).
///
/// Buffers of accumulators rely on it, so that only this crate makes one. Operators of other crates have that
/// of their accumulator's size.
#[doc(hidden)]
pub struct Room<O, I> {
    pub(crate) least: usize,
    /// 0 if all are exact.
    most: usize,
    of: PhantomData<fn(O, I)>,
}

impl<O: Op<I>, I: Copy + 'static> Room<O, I> {
    /// Returns the room for accumulators of the operator's size.
    const fn of_accumulator() -> Self {
        if O::EXACT {
            return Self { least: 16, most: 0, of: PhantomData };
        }
        let bytes = size_of::<O::Accumulator>();
        let room = least(power_of_two(64, bytes), if bytes > 4 { 4 } else { 8 });
        Self { least: room, most: room, of: PhantomData }
    }

    /// Returns another operator's room.
    pub(crate) const fn same_as<P: Op<J>, J: Copy + 'static>() -> Self {
        Self { least: P::ROOM.least, most: P::ROOM.most, of: PhantomData }
    }

    /// Returns the room of two operators in one.
    pub(crate) const fn of_both<A: Op<I>, B: Op<I>>() -> Self {
        let (a, b) = (A::ROOM, B::ROOM);
        Self {
            least: least(a.least, b.least),
            most: if a.most > b.most { a.most } else { b.most },
            of: PhantomData,
        }
    }
}

/// Returns how many parts of `size` bytes fit in `bytes`, rounded down to a power of two; at least 1.
const fn power_of_two(bytes: usize, size: usize) -> usize {
    match bytes.checked_div(size) {
        None | Some(0) => 1,
        Some(count) => 1 << count.ilog2(),
    }
}

const fn least(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}
