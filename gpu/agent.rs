//! Agents: how the library folds by an operator, where [`Op::lift`] and [`Op::combine`], item by item, are
//! not the fastest way, or not the only step.
//!
//! - `Fold`, the agent of every operator of another crate, does with an operator what its methods say.
//! - `Listed` is for the plain operators of the library's table, whose folds are compiled with the library.
//! - `extremes` has SIMD on a CPU for extremes and their indices, and is for what reduces by index to words;
//!   `chunks` folds a chunk on a CPU by cheaper operators, `several` is for tuples, `near` for `LogSumExp`,
//!   `shared` for kernels of several operators, `twins` for kernels of two types, `spread` for variances, `terms` for
//!   sums of picked items and of products, and `exact` for exact sums.

pub(crate) mod chunks;
pub(crate) mod exact;
pub(crate) mod extremes;
pub(crate) mod near;
pub mod several;
pub(crate) mod shared;
pub(crate) mod spread;
pub(crate) mod terms;
#[cfg(any(test, target_arch = "nvptx64"))]
pub(crate) mod twins;

use crate::element::Element;
use crate::input::Input;
use crate::op::Op;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::center::OfSquares;
use crate::op::shared::store_result;
use crate::op::tally::OfTally;
use crate::reduce::{self, Arguments};
use crate::segments;
use crate::stage::chunk;
use crate::table::{Items, Row};
use several::Reducer;
#[cfg(not(target_arch = "nvptx64"))]
use {
    crate::element::Dtype,
    crate::host_simd::{self, Folds, Source},
    crate::kernels::Kernels,
    crate::op::comparison::Range,
    crate::slot,
    crate::words::Words,
    several::Folder,
    std::vec::Vec,
};

/// How the library folds items of type `I` by operator `O`. [`Op::agent`] returns it.
pub trait Agent<O: Op<I>, I: Copy + 'static>: Copy + sealed::Sealed {
    /// How many accumulators a thread has room for. Buffers of accumulators rely on it.
    const ROOM: Room = Room::of::<O, I>();

    /// The BLOCK of large inputs if the call names none: 1,024 if a multiprocessor has registers for two such
    /// blocks (`sum` of 2^28 `f32`: 237.3 µs; with 512, 238.9), else 512 (`argmin` of 2^24: 20.7 µs; with
    /// 1,024, 22.5).
    const LARGE_BLOCK: u32 = 512;

    /// The kernels that are compiled for the operator: those of its crate, or the library's.
    #[cfg(not(target_arch = "nvptx64"))]
    const KERNELS: Kernels = O::KERNELS;

    /// Which operator this is of those that share kernels, see [`Shared`](crate::op::shared::Shared).
    const MEMBER: u32 = 0;

    /// Whether parts of an array reduce as arrays of their own, wherever they begin, and their accumulators
    /// combine to that of the whole: the operator is [`EXACT`](Op::EXACT), and has no [`begin`](Op::begin)
    /// and no [`end`](Op::end).
    #[cfg(not(target_arch = "nvptx64"))]
    const IN_PARTS: bool = false;

    /// Whether items of groups may come in any order and in any pieces: sums, which are exact then, and operators
    /// that reduce [in parts](Self::IN_PARTS) and do not tell places.
    #[cfg(not(target_arch = "nvptx64"))]
    const IN_ANY_ORDER: bool = Self::IN_PARTS;

    /// Returns the accumulator of the same items with indices that are greater by `by`.
    #[cfg(not(target_arch = "nvptx64"))]
    fn moved(self, all: O::Accumulator, _by: u64) -> O::Accumulator {
        all
    }

    /// Columns whose accumulators are in one.
    const COLUMNS: usize = 1;

    /// Whether a block folds a chunk by [`fold_load`](Self::fold_load) as fast as by [`fold_on_gpu`](Self::fold_on_gpu).
    const FOLDS_BY_LOADS: bool = true;

    /// Bytes of the accumulators that a warp folds items into, see [`fold_step`](Self::fold_step).
    const FOLDED_BYTES: usize = size_of::<O::Accumulator>();

    /// Whether the code that folds an item is so long that the kernel of columns contains it once, in a loop over a thread's loads. The code
    /// of other operators is there once for each load.
    const TAKES_LONG: bool = false;

    /// Whether kernels use this operator only where the result of another one could not be used, which is rare. They have little code
    /// for it then.
    const IS_RARE: bool = false;

    /// How many items rows and segments must have on average for blocks to sum them in shared memory, by
    /// [`sum_segments`](Self::sum_segments). 0 if blocks sum all rows and segments so: then no other kernel for them is compiled.
    const SUMMED_FROM: Option<u64> = None;

    /// Sums rows or segments, if [`SUMMED_FROM`](Self::SUMMED_FROM) says so.
    ///
    /// # Safety
    ///
    /// The launch has fewer than 2^32 blocks. [`Cut::weight`](segments::Cut::weight) is the number of parts of a segment. If it is more
    /// than 1, the launch has a block for each part of each segment, and each part has an empty slot at
    /// [`Cut::partials`](segments::Cut::partials). Otherwise as for [`segments::reduce_segments`], without lists.
    #[inline(always)]
    unsafe fn sum_segments<P: Input<Item = I>, const WIDTH: usize>(
        self,
        _: segments::Arguments<P, O, O::Output>,
    ) {
    }

    /// Folds an item into an accumulator.
    #[inline(always)]
    fn fold_item(self, op: &O, all: &mut O::Accumulator, item: I, index: u64) {
        *all = op.combine(*all, op.lift(item, index));
    }

    /// Folds WIDTH neighbouring items, the first of which has index `index`, each into its own accumulator. If the operator is
    /// [`EXACT`](Op::EXACT), folds all into the first: 16 accumulators of 64 bits would take half of a thread's registers.
    ///
    /// What an accumulator has folded before has lower indices. (In the kernel of [`spans`](crate::shape::spans) it may have the segment's
    /// last item. That kernel is not compiled for places.)
    #[inline(always)]
    fn fold_load<const WIDTH: usize>(
        self,
        op: &O,
        all: &mut [O::Accumulator; WIDTH],
        items: [I; WIDTH],
        index: u64,
    ) {
        if O::EXACT {
            all[0] = op.combine(all[0], op.lift_load(items, index));
        } else {
            for (place, &item) in items.iter().enumerate() {
                all[place] = op.combine(all[place], op.lift(item, index + place as u64));
            }
        }
    }

    /// Folds what a warp folds at a time: by the operator, or first by one that takes less time and does not serve all items.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn fold_step(self, step: &mut impl Step<O, I>) {
        // SAFETY: as the caller promises.
        unsafe { step.fold(|op| op, |op, all| Some((*op, all))) };
    }

    /// Returns the accumulator of a chunk of `len` items, folded by a block, to thread 0.
    ///
    /// # Safety
    ///
    /// Every thread of the block must call it, with the same items.
    #[inline(always)]
    unsafe fn fold_on_gpu<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize>(
        self,
        op: &O,
        chunk: P,
        len: u32,
        start: u64,
    ) -> O::Accumulator {
        // SAFETY: as the caller vouches.
        unsafe { chunk::fold_chunk::<O, P, BLOCK, WIDTH>(op, chunk, len, start) }
    }

    /// The body of the kernel of whole inputs or, if `is_row`, of a row.
    ///
    /// # Safety
    ///
    /// As for [`reduce::reduce`], or [`reduce::reduce_row`].
    #[inline(always)]
    unsafe fn reduce_on_gpu<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize>(
        self,
        arguments: Arguments<P, O, O::Output>,
        is_row: bool,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { reduce::by_tree::<O, P, BLOCK, WIDTH>(arguments, is_row) }
    }

    /// Stores the result of `count` items as the result with this index. Returns whether there is a value.
    ///
    /// # Safety
    ///
    /// There is a place for this result, and nothing else accesses it.
    #[inline(always)]
    unsafe fn store(
        self,
        op: &O,
        (all, count): (O::Accumulator, u64),
        results: *mut O::Output,
        index: usize,
    ) -> bool {
        // SAFETY: as the caller vouches.
        unsafe { store_result(op, all, count, results, index) }
    }

    /// Returns the operator's folds over a source.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn folds<S: Source<Item = I>>(self) -> Folds {
        Folds::of::<O, S>()
    }

    /// Returns the accumulator of neighbouring items, the first of which has index `first`. Called on a CPU,
    /// and only if the operator is [`EXACT`](Op::EXACT). This becomes SIMD if accumulators are integers.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = I>>(self, op: &O, items: S, first: u64) -> O::Accumulator {
        host_simd::fold_in_turn::<true, _, _>(op, items, first)
    }

    /// Returns the accumulator of a chunk on a CPU, folded in rows of `row` items. Its first item has index
    /// `first`.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = I>>(self, op: &O, chunk: S, first: u64, row: usize) -> O::Accumulator {
        host_simd::fold_chunk(op, chunk, first, row)
    }

    /// Returns the partial result in a slot's words, or `None` while the slot is not full.
    #[cfg(not(target_arch = "nvptx64"))]
    fn of_slot(self, word: impl Fn(usize) -> u64) -> Option<O::Accumulator> {
        slot::full(word)
    }

    /// Calls `each` with the name and the parameters of each operator in this one.
    fn each_part(self, op: &O, each: &mut dyn FnMut(&'static str, &[u8])) {
        each(O::NAME, op.parameters());
    }

    /// Returns the name of the first operator in this one that has no result for no items.
    fn without_value(self, _op: &O) -> &'static str {
        O::NAME
    }

    /// Reduces by this operator, or by its parts one after another if there is no kernel for all of them.
    #[inline(always)]
    fn by_parts<R: Reducer<I>>(self, op: &O, reducer: &R) -> Result<R::Outcome<O::Output>, R::Error> {
        reducer.reduce(op)
    }

    /// Reduces the items of each index: in any order if the operator allows that.
    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<S: Scatter<I, O::Output>>(self, op: &O, scatter: S) -> S::Outcome {
        match self.words(op) {
            Some(words) => scatter.to_words(op, words),
            None => scatter.in_order(op),
        }
    }

    /// Returns how items are reduced by index to a word for each result, if they can be.
    #[cfg(not(target_arch = "nvptx64"))]
    fn words(self, _op: &O) -> Option<Words<O::Output>> {
        None
    }

    /// Folds chunks by this operator. Several operators without a kernel of their own fold by each part.
    #[cfg(not(target_arch = "nvptx64"))]
    fn fold_by_parts<F: Folder<I>>(self, op: &O, folder: &F) -> Result<Vec<O::Accumulator>, F::Error> {
        folder.fold(op)
    }
}

/// Rows, segments or parts of them, which a warp folds at a time. [`Agent::fold_step`] says by which operator.
pub trait Step<O: Op<I>, I: Copy + 'static> {
    /// Folds the items by an operator of type `S`: `stand_in` makes it of the operator of type `O`. `take` turns the operator of type `S` and
    /// its accumulator back into ones of type `O`; it returns `None` if the accumulator cannot be used. Returns false in a lane in which
    /// `take` has returned `None`.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    unsafe fn fold<S: Op<I>>(
        &mut self,
        stand_in: impl Fn(O) -> S,
        take: impl Fn(&S, S::Accumulator) -> Option<(O, O::Accumulator)>,
    ) -> bool;
}

/// Returns [`Agent::FOLDED_BYTES`] of an operator's agent.
pub(crate) const fn folded_bytes<O: Op<I>, I: Copy + 'static>() -> usize {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> usize {
        A::FOLDED_BYTES
    }
    of::<O, I, _>(O::agent)
}

/// Returns [`Agent::IS_RARE`] of an operator's agent.
pub(crate) const fn is_rare<O: Op<I>, I: Copy + 'static>() -> bool {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> bool {
        A::IS_RARE
    }
    of::<O, I, _>(O::agent)
}

/// Returns [`Agent::TAKES_LONG`] of an operator's agent.
pub(crate) const fn takes_long<O: Op<I>, I: Copy + 'static>() -> bool {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> bool {
        A::TAKES_LONG
    }
    of::<O, I, _>(O::agent)
}

/// Returns [`Agent::FOLDS_BY_LOADS`] of an operator's agent.
pub const fn folds_by_loads<O: Op<I>, I: Copy + 'static>() -> bool {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> bool {
        A::FOLDS_BY_LOADS
    }
    of::<O, I, _>(O::agent)
}

/// Returns [`Agent::SUMMED_FROM`] of an operator's agent.
pub const fn summed_from<O: Op<I>, I: Copy + 'static>() -> Option<u64> {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> Option<u64> {
        A::SUMMED_FROM
    }
    of::<O, I, _>(O::agent)
}

/// Returns [`Agent::COLUMNS`] of an operator's agent.
pub(crate) const fn columns<O: Op<I>, I: Copy + 'static>() -> usize {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> usize {
        A::COLUMNS
    }
    of::<O, I, _>(O::agent)
}

/// A way to reduce the items of each index to a result of type `V`: [`Agent::by_index`] calls one of its methods.
#[cfg(not(target_arch = "nvptx64"))]
pub trait Scatter<I: Copy + 'static, V> {
    /// What it returns.
    type Outcome;

    /// Reduces each index's items in their order.
    fn in_order<O: Op<I, Output = V>>(self, op: &O) -> Self::Outcome;

    /// Adds up each index's items.
    fn tally<O: OfTally<I, Output = V>>(self, op: &O) -> Self::Outcome
    where
        I: Element;

    /// Adds up, of each index, the items that lie in a range. An operator that counts items counts these alone. For one that
    /// does not count, every other item becomes +0.0, and so does a negative zero.
    fn tally_where<O: OfTally<I, Output = V>>(self, op: &O, range: Range<I>) -> Self::Outcome
    where
        I: Element;

    /// Adds up the products that `multiply` makes of each index's items, which have factors of type `dtype`: the two
    /// of a pair, or one twice. Products of integers have their 64 lowest bits; other products are `f64`.
    fn tally_products<O: OfTally<P, Output = V>, P: Element>(
        self,
        op: &O,
        dtype: Dtype,
        multiply: impl Fn(I) -> P + Copy + Send + Sync,
    ) -> Self::Outcome;

    /// Adds up the squares of the distances of each index's items from their mean.
    fn spread<O: OfSquares<I>>(self, op: &O) -> Self::Outcome
    where
        I: Element<Real = V>;

    /// Reduces each index's items to words.
    fn to_words<O: Op<I, Output = V>>(self, op: &O, words: Words<V>) -> Self::Outcome;
}

mod sealed {
    use super::*;

    /// An agent of this crate.
    pub trait Sealed {}

    impl Sealed for Fold {}
    impl Sealed for crate::shape::beside::EachColumn {}
    impl Sealed for Listed {}
    impl Sealed for Tally {}
    impl Sealed for several::Pair {}
    impl<N> Sealed for several::As<N> {}
    impl<F> Sealed for chunks::ChunksBy<F> {}
    impl Sealed for chunks::SumThenCount {}
    impl Sealed for chunks::MiddlingFirst {}
    impl<S> Sealed for exact::Sums<S> {}
    impl<const LEAST: bool, const SKIPS_NAN: bool> Sealed for extremes::OneExtreme<LEAST, SKIPS_NAN> {}
    impl Sealed for extremes::BothExtremes {}
    impl<const LEAST: bool, const SKIPS_NAN: bool> Sealed for extremes::FirstPlace<LEAST, SKIPS_NAN> {}
    impl Sealed for extremes::BothPlaces {}
    impl<const ALL: bool> Sealed for extremes::Decided<ALL> {}
    impl<const OPERATION: char> Sealed for extremes::Bitwise<OPERATION> {}
    impl Sealed for extremes::Counting {}
    impl Sealed for near::NearFirst {}
    impl Sealed for near::Rarely {}
    impl Sealed for shared::ByOwner {}
    impl Sealed for spread::Spreads {}
    impl Sealed for terms::Picked {}
    impl Sealed for terms::Products {}
    #[cfg(any(test, target_arch = "nvptx64"))]
    impl Sealed for twins::ByTwin {}
    #[cfg(any(test, target_arch = "nvptx64"))]
    impl Sealed for twins::ByEither {}
    #[cfg(not(target_arch = "nvptx64"))]
    impl Sealed for crate::element::alias::AsBytes {}
}

/// Folds by the operator's own methods.
#[derive(Clone, Copy)]
pub(crate) struct Fold;

impl<O: Op<I>, I: Copy + 'static> Agent<O, I> for Fold {}

/// What all agents of the table's operators have of their row.
macro_rules! of_row {
    () => {
        of_row! { O, I }
    };
    ($op:ty) => {
        of_row! { $op, I }
    };
    ($op:ty, $item:ty) => {
        const LARGE_BLOCK: u32 = <$op as Row>::LARGE_BLOCK;

        #[cfg(not(target_arch = "nvptx64"))]
        const KERNELS: crate::Kernels = <$op as Row>::KERNELS;

        const MEMBER: u32 = <$op as Row>::MEMBER | <$item as crate::table::Items>::TWIN;

        #[cfg(not(target_arch = "nvptx64"))]
        const IN_PARTS: bool = <$op as crate::op::Op<$item>>::EXACT;

        #[cfg(all(feature = "folds", not(any(test, target_arch = "nvptx64"))))]
        #[inline(always)]
        fn folds<Q: crate::host_simd::Source<Item = $item>>(self) -> crate::host_simd::Folds {
            <$op as Row>::FOLDS[<$item as crate::table::Items>::DTYPE as usize]
        }
    };
}
use of_row;

/// Folds by the operator's own methods, which the library compiles for CPUs with its feature `folds`.
#[derive(Clone, Copy)]
pub struct Listed;

impl<O: Op<I> + Row, I: Items> Agent<O, I> for Listed {
    of_row! {}
}

/// As [`Listed`], for operators that make something of a sum, which items can be added to in any order.
#[derive(Clone, Copy)]
pub struct Tally;

impl<O: OfTally<T> + Row, T: Element> Agent<O, T> for Tally {
    of_row! { O, T }

    #[cfg(not(target_arch = "nvptx64"))]
    const IN_ANY_ORDER: bool = true;

    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<S: Scatter<T, O::Output>>(self, op: &O, scatter: S) -> S::Outcome {
        scatter.tally(op)
    }
}

/// How many accumulators a thread has room for: for several operators in one, the least and the most over
/// those that are not [`EXACT`](Op::EXACT).
#[derive(Clone, Copy)]
pub struct Room {
    pub(crate) least: usize,
    /// 0 if all are exact.
    most: usize,
}

impl Room {
    /// Returns the room for accumulators of the operator's size.
    const fn of<O: Op<I>, I: Copy + 'static>() -> Self {
        if O::EXACT {
            return Self { least: 16, most: 0 };
        }
        let bytes = size_of::<O::Accumulator>();
        let room = least(power_of_two(64, bytes), if bytes > 4 { 4 } else { 8 });
        Self { least: room, most: room }
    }

    /// Returns the room of two operators in one.
    const fn of_both(a: Self, b: Self) -> Self {
        Self { least: least(a.least, b.least), most: if a.most > b.most { a.most } else { b.most } }
    }
}

/// Returns the room of an operator.
pub(crate) const fn room<O: Op<I>, I: Copy + 'static>() -> Room {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> Room {
        A::ROOM
    }
    of::<O, I, _>(O::agent)
}

/// Returns the BLOCK of large inputs of an operator if the call names none.
pub(crate) const fn large_block<O: Op<I>, I: Copy + 'static>() -> u32 {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> u32 {
        A::LARGE_BLOCK
    }
    of::<O, I, _>(O::agent)
}

/// Returns the kernels that are compiled for an operator, see [`Agent::KERNELS`].
#[cfg(not(target_arch = "nvptx64"))]
pub const fn kernels<O: Op<I>, I: Copy + 'static>() -> Kernels {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> Kernels {
        A::KERNELS
    }
    of::<O, I, _>(O::agent)
}

/// Returns which operator this is of those that share kernels, see [`Agent::MEMBER`].
pub const fn member<O: Op<I>, I: Copy + 'static>() -> u32 {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> u32 {
        A::MEMBER
    }
    of::<O, I, _>(O::agent)
}

/// Whether parts of an array reduce as arrays of their own, see [`Agent::IN_PARTS`].
#[cfg(not(target_arch = "nvptx64"))]
pub const fn in_parts<O: Op<I>, I: Copy + 'static>() -> bool {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> bool {
        A::IN_PARTS
    }
    of::<O, I, _>(O::agent)
}

/// Whether items of groups may come in any order, see [`Agent::IN_ANY_ORDER`].
#[cfg(not(target_arch = "nvptx64"))]
pub const fn in_any_order<O: Op<I>, I: Copy + 'static>() -> bool {
    const fn of<O: Op<I>, I: Copy + 'static, A: Agent<O, I>>(_: fn() -> A) -> bool {
        A::IN_ANY_ORDER
    }
    of::<O, I, _>(O::agent)
}

/// Returns WIDTH, the number of items that a thread folds side by side, a power of two.
///
/// It is the number of items of a 16-byte load (of the wider array, if there are two), but no more than
/// - have 64 bytes of accumulators, a quarter of the registers of a thread in a block of 1,024, and
/// - fit in 32 KiB of shared memory for a block of 1,024, four or eight bytes of each at a time.
///
/// An [`EXACT`](Op::EXACT) operator has one accumulator a thread, so that these limits do not apply.
pub const fn width<O: Op<I>, I: Copy + 'static>(item_bytes: usize) -> usize {
    least(power_of_two(16, item_bytes), room::<O, I>().least)
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
        _ => large_block::<O, I>(),
    }
}

/// Whether all parts of an operator fold equally many items side by side, so that each has the bits that it
/// has alone.
pub const fn fold_alike<O: Op<I>, I: Copy + 'static>(item_bytes: usize) -> bool {
    let (of_items, room) = (power_of_two(16, item_bytes), room::<O, I>());
    room.most == 0 || least(of_items, room.least) == least(of_items, room.most)
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
