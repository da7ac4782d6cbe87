//! Operators that are sums of something: of the items that pass a test, or of products. They fold as the library's
//! other plain operators do; but by index, where the order does not change the result, they are sums by index.

use super::{Agent, of_row};
use crate::element::Element;
use crate::op::{Dot, NanSum, SumSq, SumWhere};
use crate::table::Row;
#[cfg(not(target_arch = "nvptx64"))]
use {
    crate::agent::Scatter,
    crate::element::{Summand, Wide},
    crate::op::Sum,
    crate::op::comparison::Range,
};

/// By index, adds up the items that pass a test.
#[derive(Clone, Copy)]
pub(crate) struct Picked;

impl<T: Element> Agent<NanSum, T> for Picked {
    of_row! { NanSum, T }

    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<S: Scatter<T, T::Wide>>(self, _: &NanSum, scatter: S) -> S::Outcome {
        scatter.tally_where(&Sum, Range::of_numbers())
    }
}

impl<T: Element> Agent<SumWhere<T>, T> for Picked {
    of_row! { SumWhere<T>, T }

    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<S: Scatter<T, T::Wide>>(self, op: &SumWhere<T>, scatter: S) -> S::Outcome {
        scatter.tally_where(&Sum, op.range())
    }
}

/// Reduces products by index: products of integers are added in any order; items that are floats are sorted first, because
/// the rounding of their sums depends on the order.
#[derive(Clone, Copy)]
pub(crate) struct Products;

impl<T: Element> Agent<Dot, (T, T)> for Products {
    of_row! { Dot, (T, T) }

    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<S: Scatter<(T, T), T::Wide>>(self, op: &Dot, scatter: S) -> S::Outcome {
        if T::Wide::EXACT {
            scatter.tally_products(&Sum, T::DTYPE, |(a, b): (T, T)| a.widen().times(b.widen()))
        } else {
            scatter.in_order(op)
        }
    }
}

impl<T: Element> Agent<SumSq, T> for Products {
    of_row! { SumSq, T }

    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<S: Scatter<T, T::Wide>>(self, op: &SumSq, scatter: S) -> S::Outcome {
        if T::Wide::EXACT {
            scatter.tally_products(&Sum, T::DTYPE, |x: T| x.widen().times(x.widen()))
        } else {
            scatter.in_order(op)
        }
    }
}
