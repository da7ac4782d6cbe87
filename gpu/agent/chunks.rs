//! Operators whose chunks fold on a CPU by other operators: cheaper ones, or one that folds in the same way
//! and is compiled already.

use super::{Agent, of_row};
use crate::element::Element;
use crate::op::{NanMean, NormL2, Op};
use crate::table::{Items, Row};
#[cfg(not(target_arch = "nvptx64"))]
use {
    crate::agent::Scatter,
    crate::element::Total,
    crate::element::{Summand, Wide},
    crate::host_simd::{self, Source},
    crate::op::Counted,
    crate::op::comparison::Range,
    crate::op::squares::Middling,
    crate::op::{CountNan, Mean, NanSum, Squares},
};

/// Folds chunks by the operator that the function returns, which has the same accumulators.
#[derive(Clone, Copy)]
pub(crate) struct ChunksBy<F>(pub F);

impl<I: Items, O, P, F> Agent<O, I> for ChunksBy<F>
where
    O: Op<I> + Row,
    P: Op<I, Accumulator = O::Accumulator>,
    F: Fn(&O) -> P + Copy,
{
    of_row! {}

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = I>>(self, op: &O, chunk: S, first: u64, row: usize) -> O::Accumulator {
        host_simd::fold_by_table(&self.0(op), chunk, first, row)
    }
}

/// Folds the sum and the count of [`NanMean`] one after the other: a chunk fits in a cache. (10^5 `f32` took
/// 93 µs by accumulators of both and take 7, Zen 5.)
#[derive(Clone, Copy)]
pub(crate) struct SumThenCount;

impl<I: Element> Agent<NanMean, I> for SumThenCount {
    of_row! { NanMean }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = I>>(
        self,
        _: &NanMean,
        chunk: S,
        first: u64,
        row: usize,
    ) -> <I::Total as Total>::Counted {
        let len = chunk.len() as u64;
        if const { I::Total::EXACT } {
            return Counted::new(host_simd::fold_by_table(&Mean, chunk, first, row), len);
        }
        let nans = host_simd::fold_by_table(&CountNan, chunk, first, row);
        // For floats, `I::Wide` is `I::Total`.
        let sum = bytemuck::cast(host_simd::fold_by_table(&NanSum, chunk, first, row));
        Counted::new(sum, len - nans)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<S: Scatter<I, I::Real>>(self, _: &NanMean, scatter: S) -> S::Outcome {
        scatter.tally_where(&Mean, Range::of_numbers())
    }
}

/// Folds a chunk of middling values and zeros into one sum instead of the three of [`NormL2`] (10^5 `f64`
/// took 28 µs and take 9, Zen 5), and other chunks once more.
#[derive(Clone, Copy)]
pub(crate) struct MiddlingFirst;

impl<I: Element> Agent<NormL2, I> for MiddlingFirst {
    of_row! { NormL2 }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = I>>(
        self,
        op: &NormL2,
        chunk: S,
        first: u64,
        row: usize,
    ) -> <I::Wide as Wide>::Squares {
        if const { size_of::<<I::Wide as Wide>::Squares>() > 8 } {
            let middling = host_simd::fold_chunk(&Middling, chunk, first, row);
            if let Some(squares) = Squares::of_middling(middling) {
                return squares;
            }
        }
        host_simd::fold_chunk(op, chunk, first, row)
    }
}
