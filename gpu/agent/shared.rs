//! How kernels fold that several operators share: as the operator that owns them, up to the result.

use super::{Agent, Room, folds_by_loads, room, summed_from, takes_long};
use crate::input::Input;
use crate::op::shared::{Serves, Shared};
use crate::reduce::Arguments;
use crate::segments::Arguments as SegmentArguments;
use core::marker::PhantomData;
use core::mem::transmute_copy;

/// Folds as the kernel's owner; stores the result of the operator that was asked for.
#[derive(Clone, Copy)]
pub(crate) struct ByOwner;

impl<I: Copy + 'static, O: Serves<I>> Agent<Shared<O>, I> for ByOwner {
    const ROOM: Room = room::<O, I>();
    const FOLDS_BY_LOADS: bool = folds_by_loads::<O, I>();
    const SUMMED_FROM: Option<u64> = summed_from::<O, I>();
    const TAKES_LONG: bool = takes_long::<O, I>();

    #[inline(always)]
    fn fold_item(self, shared: &Shared<O>, all: &mut O::Accumulator, item: I, index: u64) {
        O::agent().fold_item(&shared.op, all, item, index);
    }

    #[inline(always)]
    fn fold_load<const WIDTH: usize>(
        self,
        shared: &Shared<O>,
        all: &mut [O::Accumulator; WIDTH],
        items: [I; WIDTH],
        index: u64,
    ) {
        O::agent().fold_load(&shared.op, all, items, index);
    }

    #[inline(always)]
    unsafe fn fold_on_gpu<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize>(
        self,
        shared: &Shared<O>,
        chunk: P,
        len: u32,
        start: u64,
    ) -> O::Accumulator {
        // SAFETY: as the caller vouches.
        unsafe { O::agent().fold_on_gpu::<P, BLOCK, WIDTH>(&shared.op, chunk, len, start) }
    }

    #[inline(always)]
    unsafe fn reduce_on_gpu<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize>(
        self,
        arguments: Arguments<P, Shared<O>, O::Output>,
        is_row: bool,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { O::reduce_on_gpu::<P, BLOCK, WIDTH>(arguments, is_row) }
    }

    #[inline(always)]
    unsafe fn sum_segments<P: Input<Item = I>, const WIDTH: usize>(
        self,
        arguments: SegmentArguments<P, Shared<O>, O::Output>,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { O::sum_segments::<P, WIDTH>(arguments) }
    }

    #[inline(always)]
    unsafe fn store(
        self,
        shared: &Shared<O>,
        (all, count): (O::Accumulator, u64),
        results: *mut O::Output,
        index: usize,
    ) -> bool {
        // SAFETY: as the caller vouches.
        unsafe { store_by_call(ByMember(*shared, PhantomData::<fn() -> I>), all, count, results, index) };
        true
    }
}

/// An operator that makes results of type `V` of accumulators `A`.
pub(super) trait Store<A, V>: Copy {
    /// Stores the result of `count` items as the result with this index.
    ///
    /// # Safety
    ///
    /// As for [`Agent::store`].
    unsafe fn store(self, all: A, count: u64, results: *mut V, index: usize);
}

/// The operator of a shared kernel, for items of type `I`.
#[derive(Clone, Copy)]
struct ByMember<I, O>(Shared<O>, PhantomData<fn() -> I>);

impl<I: Copy + 'static, O: Serves<I>> Store<O::Accumulator, O::Output> for ByMember<I, O> {
    #[inline(always)]
    unsafe fn store(self, all: O::Accumulator, count: u64, results: *mut O::Output, index: usize) {
        // SAFETY: as the caller vouches.
        unsafe { self.0.op.store(self.0.member, all, count, results, index) };
    }
}

/// Stores a result by a function that kernels call, if an accumulator can be [passed](is_passed) to one. Kernels store results in many
/// places, and the code for it in each of them was half of a kernel.
///
/// # Safety
///
/// As for [`Agent::store`].
#[inline(always)]
pub(super) unsafe fn store_by_call<A: Copy, V>(
    op: impl Store<A, V>,
    all: A,
    count: u64,
    results: *mut V,
    index: usize,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        if const { !is_passed::<A>() } {
            op.store(all, count, results, index);
        } else if const { size_of::<A>() == 32 } {
            let [a, b, c, d]: [u64; 4] = transmute_copy(&all);
            store_words(op, a, b, c, d, count, results, index);
        } else {
            store_whole(op, all, count, results, index);
        }
    }
}

/// Returns whether an accumulator of type `A` can be a parameter of a function. Accumulators of [`Both`](crate::op::together::Both) are
/// packed, and the compiler would put them into memory to pass them. Two other ways to pass them failed: an accumulator's bytes as
/// parameters, and its words. With both, `mean_var` of 2,600 `f16` had a variance on an H200 that was 20 units in the last place too
/// large, though the emulator ran the same PTX right. With words, kernels also took up to twice as long.
const fn is_passed<A>() -> bool {
    align_of::<A>() >= 4
}

/// Stores a result.
///
/// # Safety
///
/// As for [`Agent::store`].
#[inline(never)]
unsafe fn store_whole<A, V>(op: impl Store<A, V>, all: A, count: u64, results: *mut V, index: usize) {
    // SAFETY: as the caller vouches.
    unsafe { op.store(all, count, results, index) };
}

/// As [`store_whole`], for an accumulator of 32 bytes, which is four parameters. As one parameter it would be a pointer, and the
/// compiler would keep the kernel's accumulators and operators in memory: `nanvar` of rows of 17 `f16` took 5.1 ms so on an H200, 1.2 with
/// four.
///
/// # Safety
///
/// As for [`Agent::store`].
#[inline(never)]
#[allow(clippy::too_many_arguments)]
unsafe fn store_words<A, V>(
    op: impl Store<A, V>,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    count: u64,
    results: *mut V,
    index: usize,
) {
    // SAFETY: as the caller vouches; the accumulator has these bytes.
    unsafe { op.store(transmute_copy(&[a, b, c, d]), count, results, index) };
}
