//! How variances and standard deviations are folded: as the library's other plain operators, but by index, where
//! squares of distances from the mean add up in any order.

use super::{Agent, of_row};
#[cfg(not(target_arch = "nvptx64"))]
use crate::agent::Scatter;
use crate::element::Element;
#[cfg(not(target_arch = "nvptx64"))]
use crate::host_simd::{self, Source};
use crate::op::center::OfSquares;
use crate::op::{Std, Var};
use crate::table::Row;

/// Folds by the operator's own methods; by index, by distances from the mean.
#[derive(Clone, Copy)]
pub(crate) struct Spreads;

impl<T: Element> Agent<Var, T> for Spreads {
    of_row! { Var, T }

    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<S: Scatter<T, T::Real>>(self, op: &Var, scatter: S) -> S::Outcome {
        scatter.spread(op)
    }
}

/// Chunks of a [`Std`](struct@crate::Std) are folded by the functions of [`Var`](struct@crate::Var), because both operators have the same accumulators.
impl<T: Element> Agent<Std, T> for Spreads {
    of_row! { Std, T }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = T>>(
        self,
        op: &Std,
        chunk: S,
        first: u64,
        row: usize,
    ) -> <Std as crate::op::Op<T>>::Accumulator {
        host_simd::fold_by_table(&op.variance(), chunk, first, row)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<S: Scatter<T, T::Real>>(self, op: &Std, scatter: S) -> S::Outcome {
        scatter.spread(op)
    }
}

impl<T: Element> OfSquares<T> for Var {
    const IS_ROOT: bool = false;

    fn ddof(&self) -> u64 {
        self.ddof()
    }
}

impl<T: Element> OfSquares<T> for Std {
    const IS_ROOT: bool = true;

    fn ddof(&self) -> u64 {
        self.ddof()
    }
}
