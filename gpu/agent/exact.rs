//! Exact sums on a GPU: what a block does for a chunk, and what the last block does with the chunks' sums.
//!
//! - A thread sums a **tile** at a time, the items of up to four loads that it has in flight, by windows in
//!   registers ([`windows`]). All lanes of a warp have the same windows ([`thread`] chooses them). If they
//!   take all items of all lanes, what each window was moved by is added to an integer in a register.
//! - A block's sum is in shared memory: **digits** of 32 bits, each with room for the carries of 2^31
//!   additions ([`digits`]). Warps add to them by atomics. Carries are propagated once, in the end.
//! - Blocks hand their sums over in [slots](crate::slot). The last block adds them up digit by digit, and
//!   rounds.
//! - A block sums a row or a segment, or a part of one, in the same way ([`segments`]).
//!
//! ```text
//! for each tile of the chunk:
//!     if the warp's windows take the tile: moved += what the tile moves each window by
//!     else: choose other windows, or add the tile bit by bit
//! digits += the warp's moved
//! barrier
//! if this is not the last block: put the digits into the block's slot
//! else: digits += those of all other blocks' slots; the result is the digits, rounded
//! ```

mod digits;
mod segments;
mod thread;
mod windows;

use super::shared::{Store, store_by_call};
use super::{Agent, of_row, takes_long};
use crate::fold::block_dim;
#[cfg(not(target_arch = "nvptx64"))]
use crate::host_simd::Source;
use crate::input::{Input, OneByOne};
use crate::op::exact::{Fixed, OfExactSum, Summing, Terms, each_of};
use crate::op::shared::store_result;
use crate::reduce::Arguments;
use crate::segments::Arguments as SegmentArguments;
use crate::slot;
use crate::table::{Items, Row};
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use cuda_std::atomic::SystemAtomicU64;
use cuda_std::{shared_array, warp};
use digits::Digits;
pub(crate) use segments::sum_segments;
use thread::ThreadSum;
pub(crate) use windows::Float;

/// Sums exactly, as `S` does.
pub(crate) struct Sums<S>(pub PhantomData<fn() -> S>);

impl<S> Clone for Sums<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Sums<S> {}

impl<I: Items, S: Summing<I>, O: OfExactSum<I, Accumulator = S::State> + Row> Agent<O, I> for Sums<S> {
    of_row! {}
    const SUMMED_FROM: Option<u64> = S::SUMMED_FROM;
    const TAKES_LONG: bool = size_of::<S::State>() > 16;

    #[inline(always)]
    fn fold_item(self, _: &O, all: &mut S::State, item: I, _: u64) {
        S::add(all, item);
    }

    #[inline(always)]
    fn fold_load<const WIDTH: usize>(self, _: &O, all: &mut [S::State; WIDTH], items: [I; WIDTH], _: u64) {
        let sum = &mut all[0];
        each_of(items, |item| S::add(sum, item));
    }

    #[inline(always)]
    unsafe fn reduce_on_gpu<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize>(
        self,
        arguments: Arguments<P, O, O::Output>,
        is_row: bool,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { S::reduce_on_gpu::<O, P, BLOCK, WIDTH>(arguments, is_row) }
    }

    #[inline(always)]
    unsafe fn sum_segments<P: Input<Item = I>, const WIDTH: usize>(
        self,
        arguments: SegmentArguments<P, O, O::Output>,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { S::sum_segments::<O, P, WIDTH>(arguments) }
    }

    #[inline(always)]
    unsafe fn store(
        self,
        op: &O,
        (all, count): (S::State, u64),
        results: *mut O::Output,
        index: usize,
    ) -> bool {
        // SAFETY: as the caller vouches.
        unsafe {
            if const { takes_long::<O, I>() } {
                store_by_call(Rounded(*op, PhantomData::<fn() -> I>), all, count, results, index);
                return true;
            }
            store_result(op, all, count, results, index)
        }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<Q: Source<Item = I>>(self, _: &O, items: Q, _: u64) -> S::State {
        S::sum(items)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn of_slot(self, word: impl Fn(usize) -> u64) -> Option<S::State> {
        S::of_slot(word)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<Q: super::Scatter<I, O::Output>>(self, op: &O, scatter: Q) -> Q::Outcome {
        op.by_index(scatter)
    }
}

/// An operator that makes results of exact sums of items of type `I`.
#[derive(Clone, Copy)]
struct Rounded<I, O>(O, PhantomData<fn() -> I>);

impl<I: Copy + 'static, O: OfExactSum<I>> Store<O::Accumulator, O::Output> for Rounded<I, O> {
    #[inline(always)]
    unsafe fn store(self, all: O::Accumulator, count: u64, results: *mut O::Output, index: usize) {
        // SAFETY: as the caller vouches.
        unsafe { store_result(&self.0, all, count, results, index) };
    }
}

/// What the kernel does, with tiles of LOADS loads and TERMS terms a thread.
///
/// # Safety
///
/// As for [`reduce`](crate::reduce::reduce).
#[inline(always)]
pub(crate) unsafe fn reduce<
    O: OfExactSum<P::Item, Accumulator = Fixed<W>>,
    P: Input<Item: Terms<N>>,
    const BLOCK: u32,
    const WIDTH: usize,
    const N: usize,
    const W: usize,
    const LOADS: usize,
    const TERMS: usize,
>(
    arguments: Arguments<P, O, O::Output>,
) {
    use cuda_std::thread;
    const { assert!(LOADS * WIDTH * N == TERMS, "terms of a tile") };
    let Arguments { input, chunk, before, len, slots, result, op, .. } = arguments;
    let digits = Digits::<W>(shared_array![u32; 4 * W + 1]);
    let (block, blocks) = (thread::block_idx_x(), thread::grid_dim_x());
    let start = u64::from(block) * u64::from(chunk);
    let items = (len - start).min(chunk.into()) as u32;
    // SAFETY: all threads of the block are here; the chunk lies in the input; each block has a slot.
    unsafe {
        let at = input.offset(start as usize);
        let sum = ThreadSum::<P::Item, N, W, TERMS>::new(digits);
        match at.head() {
            Some(head) => sum.add_chunk::<P, BLOCK, WIDTH, LOADS>(at, head, items, (true, false)),
            None => sum.add_chunk::<OneByOne<P>, BLOCK, WIDTH, LOADS>(OneByOne(at), 0, items, (true, false)),
        }
        thread::sync_threads();
        let words = slot::words::<Fixed<W>>();
        if block + 1 < blocks || result.is_none() {
            if thread::thread_idx_x() < warp::WARP_SIZE {
                digits.carry_over();
                digits.put(slots.wrapping_add(block as usize * words));
            }
            return;
        }
        if before + block > 0 {
            digits.take::<BLOCK>(slots.sub(before as usize * words), before + block);
            thread::sync_threads();
        }
        if thread::thread_idx_x() >= warp::WARP_SIZE {
            return;
        }
        digits.carry_over();
        match result.place() {
            Ok(place) => op.store_sum(digits, len, place, 0),
            Err(slot) => digits.each_word(|index, word| {
                SystemAtomicU64::from_ptr(slot.add(index)).store(slot::word(&word, 0), Ordering::Relaxed);
            }),
        }
    }
}
