//! The fold of a chunk on a CPU: SIMD lanes take the place of a block's threads.
//!
//! The [plan](crate::plan) folds a chunk by columns: item i into accumulator i mod `row`, and then the row of
//! accumulators pairwise. A **strip** is a part of the row that fits eight AVX-512 registers, for
//! accumulators of 4 or 8 bytes; else 4 or 8 KiB of memory:
//!
//! ```text
//! for each strip of the row:
//!     fold that part of all the chunk's rows into the strip
//!     fold the strip pairwise to one accumulator, or a few: its heads
//! fold the heads of all strips pairwise
//! ```
//!
//! So only the chunk is read from memory. `strips.rs` has the loops, `avx512.rs` the pairwise folds in
//! registers.
//!
//! If an operator is exact, the order does not matter, and [`Agent::fold_items`] folds the chunk:
//! `exact.rs` for exact sums, `extremes.rs` for extremes.
//!
//! Every operator and type is compiled here several times, so loops are written to become little code. Loops
//! without SIMD are kept from being unrolled. SIMD is the work of the compiler's vectoriser, which keeps the
//! order of float operations. It needs indices, and counts of 64 or more that it knows: it unrolls shorter
//! loops before it looks for vectors, and then finds poor ones (`f64` sums took twice the time with
//! iterators).
#![allow(clippy::needless_range_loop)]
// Strips are for the vectors of x86-64.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]

#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod exact;
pub(crate) mod extremes;
mod pairwise;
mod source;
mod strips;
#[cfg(test)]
mod tests;

pub use pairwise::Pairwise;
pub use source::Source;

use crate::agent::Agent;
use crate::op::Op;
use crate::plan::{GROUP, PARTIALS, groups};
use core::mem::MaybeUninit;
use core::ops::Range;
#[cfg(target_arch = "x86_64")]
use std::is_x86_feature_detected;
use strips::{Fold, LONGEST_ROW_BYTES, Strip};

/// Bytes of a level 2 cache. Larger chunks are read by four whole rows at a time, not by strips: processors
/// prefetch whole rows, and rows touch fewer pages at a time.
const LEVEL_2: usize = 1 << 20;

/// Up to so many items are folded without SIMD. It is at least a vector's number of items, and less than a
/// row's.
const FEW: usize = 16;

/// Calls `each` with blocks of `N` items and the index of the first, until it returns false. The last may be
/// shorter.
#[inline(always)]
pub(crate) fn for_each_block<const N: usize, S: Source>(items: S, mut each: impl FnMut(S, usize) -> bool) {
    let mut start = 0;
    while start < items.len() {
        let end = items.len().min(start + N);
        // SAFETY: it lies within the items.
        if !each(unsafe { items.part(start..end) }, start) {
            return;
        }
        start = end;
    }
}

/// Folds a chunk into its partial result. Rows have `row` items, a power of two from 32 to 16384; `first` is
/// the index of the chunk's first item in the input. For an exact operator a chunk may have any length.
///
/// It is compiled once for each instruction set, and once without vectors for a few items. On one processor
/// (Zen 5) the sum of 10^4 `f32` took 0.11 µs with AVX-512, 0.36 with AVX2, 0.49 with SSE2; the minimum of
/// 10^4 `f64` 0.60, 1.49, 10.4.
#[inline(always)]
pub(crate) fn fold_chunk<O: Op<S::Item>, S: Source>(
    op: &O,
    chunk: S,
    first: u64,
    row: usize,
) -> O::Accumulator {
    let fold = Fold { op, chunk, first, row, above: None };
    if chunk.len() <= FEW {
        return fold.few();
    }
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            if fold.fits_registers() && row >= 128 && chunk.len() * size_of::<S::Item>() > LEVEL_2 {
                // SAFETY: the processor has what it is compiled for.
                return unsafe { O::avx512_by_rows(fold) };
            }
            // SAFETY: the processor has what it is compiled for.
            return unsafe { O::avx512(&fold) };
        }
        if has_avx2() {
            // SAFETY: the processor has what it is compiled for.
            return unsafe { O::avx2(&fold) };
        }
        O::sse2(&fold)
    }
    #[cfg(not(target_arch = "x86_64"))]
    fold.anywhere::<true>()
}

/// As [`fold_chunk`], but calls the folds that the operator's crate has compiled, if it has.
#[inline(always)]
pub(crate) fn fold_by_table<O: Op<S::Item>, S: Source>(
    op: &O,
    chunk: S,
    first: u64,
    row: usize,
) -> O::Accumulator {
    let mut all = MaybeUninit::<O::Accumulator>::uninit();
    // SAFETY: the folds are for these types, and they write the accumulator.
    unsafe {
        (O::agent().folds::<S>().chunk)(
            (&raw const *op).cast(),
            (&raw const chunk).cast(),
            0..chunk.len(),
            first,
            row,
            all.as_mut_ptr().cast(),
        );
        all.assume_init()
    }
}

/// The functions that are compiled for an operator and a source. They are methods because rustc compiles a
/// method with the module of its type, and modules in parallel. Functions of this module would be compiled
/// one after another.
trait Compiled<S: Source>: Op<S::Item> {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512(fold: &Fold<'_, Self, S>) -> Self::Accumulator {
        if !fold.fits_registers() {
            return fold.anywhere::<true>();
        }
        match const { size_of::<Self::Accumulator>() } {
            4 => fold.in_registers::<128, 16>(
                |strip| avx512::fold_strip(fold.op, strip),
                |first, others| avx512::fold_heads(fold.op, first, others),
                |vector, by| avx512::shift(fold.op, vector, by),
            ),
            8 => fold.in_registers::<64, 8>(
                |strip| avx512::fold_strip(fold.op, strip),
                |first, others| avx512::fold_heads(fold.op, first, others),
                |vector, by| avx512::shift(fold.op, vector, by),
            ),
            _ => unreachable!("of 4 or 8 bytes"),
        }
    }

    /// Folds whole rows first, in the order of memory, into a row of accumulators in the level 1 cache.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512_by_rows(mut fold: Fold<'_, Self, S>) -> Self::Accumulator {
        let mut above = Strip::<[u8; 64], { LONGEST_ROW_BYTES / 64 }>::new();
        let above = above.0.0.as_mut_ptr().cast::<Self::Accumulator>();
        let row = fold.row;
        assert!(
            128 <= row
                && row * size_of::<Self::Accumulator>() <= LONGEST_ROW_BYTES
                && row <= fold.chunk.len()
        );
        for i in 0..row {
            // SAFETY: the chunk has a row of items, and there is room for as many accumulators.
            unsafe { above.add(i).write(fold.lift(i)) };
        }
        let mut at = row;
        while at + 4 * row <= fold.chunk.len() {
            for i in 0..row {
                // SAFETY: as above, and these are four more whole rows.
                unsafe {
                    let mut all = above.add(i).read();
                    for row in [at, at + row, at + 2 * row, at + 3 * row] {
                        all = fold.op.combine(all, fold.lift(row + i));
                    }
                    above.add(i).write(all);
                }
            }
            at += 4 * row;
        }
        // SAFETY: written above.
        fold.above = Some((unsafe { core::slice::from_raw_parts(above, row) }, at));
        // SAFETY: as the caller vouches.
        unsafe { Self::avx512(&fold) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(fold: &Fold<'_, Self, S>) -> Self::Accumulator {
        fold.anywhere::<true>()
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(never)]
    fn sse2(fold: &Fold<'_, Self, S>) -> Self::Accumulator {
        fold.anywhere::<false>()
    }

    /// As [`Folds::chunk`].
    unsafe fn chunk(
        op: *const (),
        source: *const (),
        range: Range<usize>,
        first: u64,
        row: usize,
        place: *mut (),
    ) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (op, source) = (&*op.cast::<Self>(), *source.cast::<S>());
            place.cast::<Self::Accumulator>().write(Self::agent().fold_chunk(
                op,
                source.part(range),
                first,
                row,
            ));
        }
    }

    /// As [`Folds::partials`].
    unsafe fn partials(op: *const (), partials: *const (), count: usize, place: *mut ()) {
        // SAFETY: as the caller vouches.
        let (op, partials) = unsafe {
            (&*op.cast::<Self>(), core::slice::from_raw_parts(partials.cast::<Self::Accumulator>(), count))
        };
        if Self::EXACT {
            let mut all = op.identity();
            for partial in 0..count {
                all = op.combine(all, partials[scalar(partial)]);
            }
            // SAFETY: as the caller vouches.
            return unsafe { place.cast::<Self::Accumulator>().write(all) };
        }
        let groups = groups(count as u32) as usize;
        let mut tree = Pairwise::new();
        for lane in 0..count.min(PARTIALS as usize) {
            let mut all = op.identity();
            for partial in (lane..if groups > 0 { groups } else { count }).step_by(PARTIALS as usize) {
                let partial = scalar(partial);
                let partial = if groups > 0 {
                    let start = partial * GROUP as usize;
                    fold_pairwise(op, &partials[start..count.min(start + GROUP as usize)])
                } else {
                    partials[partial]
                };
                all = op.combine(all, partial);
            }
            tree.push(op, all);
        }
        // SAFETY: as the caller vouches.
        unsafe { place.cast::<Self::Accumulator>().write(tree.finish(op)) };
    }
}

impl<O: Op<S::Item>, S: Source> Compiled<S> for O {}

/// Folds accumulators pairwise, neighbours first; small ones eight at a time.
#[inline(never)]
pub fn fold_pairwise<O: Op<I>, I: Copy + 'static>(op: &O, all: &[O::Accumulator]) -> O::Accumulator {
    let at_once = if const { size_of::<O::Accumulator>() <= 16 } { 8 } else { 1 };
    let mut tree = Pairwise::new();
    for few in all.chunks(at_once) {
        let mut leaves = [op.identity(); 8];
        leaves[..few.len()].copy_from_slice(few);
        let mut stride = 1;
        while stride < at_once {
            for left in (0..8).step_by(2 * stride) {
                leaves[left] = op.combine(leaves[left], leaves[left + stride]);
            }
            stride *= 2;
        }
        tree.push(op, leaves[0]);
    }
    tree.finish(op)
}

/// The instruction set that folds use on this processor.
pub fn simd() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        return "AVX-512";
    } else if has_avx2() {
        return "AVX2";
    }
    if cfg!(target_arch = "x86_64") {
        "SSE2"
    } else if cfg!(target_arch = "aarch64") {
        "NEON"
    } else {
        "no SIMD"
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// Folds one item after another; `first` is the index of the first. Without `VECTORS` the loop is compiled as
/// written.
#[inline(always)]
pub(crate) fn fold_in_turn<const VECTORS: bool, O: Op<S::Item>, S: Source>(
    op: &O,
    items: S,
    first: u64,
) -> O::Accumulator {
    let mut all = op.identity();
    for i in 0..items.len() {
        let i = if VECTORS { i } else { scalar(i) };
        // SAFETY: `i` is in bounds.
        all = op.combine(all, op.lift(unsafe { items.get(i) }, first + i as u64));
    }
    all
}

/// A loop's variable, hidden from the compiler, which neither unrolls nor vectorises the loop then.
#[inline(always)]
fn scalar(#[allow(unused_mut)] mut i: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no instructions.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) i, options(pure, nomem, nostack, preserves_flags));
    }
    i
}

/// An operator's folds over a source, by untyped pointers: the code that cuts an input into chunks for
/// threads is compiled once for all of them.
#[derive(Clone, Copy, Debug)]
pub struct Folds {
    /// Folds a chunk: `(op, source, range, first, row, partial)`.
    ///
    /// Folds a range of the source, in rows of `row` items, to `partial`. `first` is the index of its first
    /// item.
    ///
    /// # Safety
    ///
    /// The pointers are to values of the operator's and the source's types, the range lies within the source,
    /// and `partial` may be written.
    pub chunk: unsafe fn(*const (), *const (), Range<usize>, u64, usize, *mut ()),

    /// Folds partial results: `(op, partials, count, all)`.
    ///
    /// Partial result i goes into accumulator i mod [`PARTIALS`], and these fold pairwise, to `all`; by
    /// [groups](crate::Plan::groups) first if there are many.
    ///
    /// # Safety
    ///
    /// The pointers are to values of the operator's types, there are `count` partial results, and `all` may
    /// be written.
    pub partials: unsafe fn(*const (), *const (), usize, *mut ()),
}

impl Folds {
    /// The folds of an operator and a source.
    pub const fn of<O: Op<S::Item>, S: Source>() -> Self {
        Self { chunk: <O as Compiled<S>>::chunk, partials: <O as Compiled<S>>::partials }
    }
}
