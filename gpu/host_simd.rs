//! The fold of a chunk on a CPU: SIMD lanes take the place of a block's threads.
//!
//! A **strip** is as many neighbouring accumulators of a row as stay close: in eight registers where there is AVX-512 and they are
//! of 4 or 8 bytes, else in 4 or 8 KiB of memory. All rows of a chunk fold into a strip, and the strip folds pairwise, to one accumulator
//! or to a few, its **heads**, before the next one begins: nothing but the chunk is read from memory. The heads of all strips are the
//! upper part of the tree.
//!
//! Where an operator is exact, the order is of no account: [`Op::fold_items`] folds the items.
//!
//! Every operator and type is compiled here several times over, so loops are written to become little code. What is without SIMD is kept
//! from being unrolled.
//!
//! The loops are written for the compiler's vectoriser, which is exact: float operations keep their order. They have counts
//! that it knows, of 64 and more, and indices: what is shorter it unrolls before it looks for vectors, and then finds poor
//! ones (`f64` sums took twice the time with iterators).
#![allow(clippy::needless_range_loop)]

#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod exact;
mod pairwise;
mod source;
mod strips;
#[cfg(test)]
mod tests;

pub use pairwise::Pairwise;
pub use source::Source;

use crate::op::Op;
use crate::plan::PARTIALS;
use core::mem::MaybeUninit;
use core::ops::Range;
#[cfg(target_arch = "x86_64")]
use std::is_x86_feature_detected;
use strips::{Fold, LONGEST_ROW_BYTES, Strip};

/// A chunk of more bytes than a level 2 cache holds is read four rows at a time, each as it lies, and not by strips: of those
/// processors foresee what they read next, and look for fewer pages.
const LEVEL_2: usize = 1 << 20;

/// Items that are folded without SIMD sooner than it begins, and that are lifted together at a chunk's end; fewer than any row
/// has.
const FEW: usize = 16;

/// Calls `each` with blocks of `N` items, the last of which may be short, and with the index of their first, until one returns
/// false.
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

/// Folds a chunk whose rows have `row` items, a power of two from 32 to 16384, into its partial result; `first` is the
/// index of its first item in the whole input. Of an exact operator a chunk may be anything, the whole input even.
///
/// Compiled once for each instruction set, and once more without vectors, for a few items and for old processors. On a processor
/// that has all three (Zen 5), the sum of 10^4 `f32` took 0.11 µs with AVX-512, 0.36 with AVX2, 0.49 with SSE2; the least of
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

/// As [`fold_chunk`], by the folds that the operator's crate has compiled.
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
        (S::folds::<O>().chunk)(
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

/// What is compiled for an operator and a source. The methods are the operator's, because a crate is compiled by the modules of
/// its types, several at a time: functions of this module would all be compiled one after another.
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

    /// Whole rows first, as they lie in memory, into accumulators in a level 1 cache.
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
            // SAFETY: a row has so many items, and there is room for so many accumulators.
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
            place.cast::<Self::Accumulator>().write(op.fold_chunk(source.part(range), first, row));
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
        let mut tree = Pairwise::new();
        for lane in 0..count.min(PARTIALS as usize) {
            let mut all = op.identity();
            for partial in (lane..count).step_by(PARTIALS as usize) {
                all = op.combine(all, partials[scalar(partial)]);
            }
            tree.push(op, all);
        }
        // SAFETY: as the caller vouches.
        unsafe { place.cast::<Self::Accumulator>().write(tree.finish(op)) };
    }
}

impl<O: Op<S::Item>, S: Source> Compiled<S> for O {}

/// The instruction set that `fold_chunk` uses here.
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

/// Folds one item after another, the first of which has the index given. Where not `VECTORS`, the loop is left as it is written.
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

/// A loop's variable of which the compiler knows nothing: it leaves a loop with one as it is.
#[inline(always)]
fn scalar(#[allow(unused_mut)] mut i: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no instructions.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) i, options(pure, nomem, nostack, preserves_flags));
    }
    i
}

/// An operator's folds over a source, by places in memory that are of their types: so that who cuts up an input, and hands it to
/// threads, need not be compiled for each of them.
#[derive(Clone, Copy, Debug)]
pub struct Folds {
    /// `fold_chunk`: by the operator, of a range of the source, the first of which has the index given, in rows of so
    /// many items, to a place for the partial result.
    ///
    /// # Safety
    ///
    /// They are of the operator's and the source's types, the range lies within the source, and the place may be written.
    pub chunk: unsafe fn(*const (), *const (), Range<usize>, u64, usize, *mut ()),

    /// By the operator, of so many partial results, to a place for the accumulator of all: result i goes into the accumulator i
    /// modulo [`PARTIALS`], and these fold pairwise.
    ///
    /// # Safety
    ///
    /// They are of the operator's types, there are so many, and the place may be written.
    pub partials: unsafe fn(*const (), *const (), usize, *mut ()),
}

impl Folds {
    /// Those of an operator and a source.
    pub const fn of<O: Op<S::Item>, S: Source>() -> Self {
        Self { chunk: <O as Compiled<S>>::chunk, partials: <O as Compiled<S>>::partials }
    }
}
