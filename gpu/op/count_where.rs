#![allow(clippy::multiple_bound_locations, reason = "in what `derive(Pod)` makes")]

use crate::agent::extremes::Counting;
use crate::op::by_value::ByValue;
use crate::op::comparison::{Comparison, Range};
use crate::op::counts::{Count, Predicate};
use crate::op::prelude::*;

/// The number of elements for which a comparison with a scalar holds.
///
/// The result is a `u64`. See [`Comparison`] for NaNs and zeros.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(transparent)]
pub struct CountWhere<T: Element>(Range<T>);

impl<T: Element> CountWhere<T> {
    /// Counts the elements for which `comparison` holds.
    pub fn new(comparison: Comparison<T>) -> Self {
        Self(Range::new(comparison))
    }
}

impl<T: Element> Predicate<T> for CountWhere<T> {
    #[inline(always)]
    fn holds(self, element: T) -> bool {
        self.0.holds(element)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn range(self) -> Range<T> {
        self.0
    }
}

impl<T: Element> ByValue<T> for CountWhere<T> {
    #[inline(always)]
    fn lift_twin(&self, item: T, _: u64, is_second: bool) -> u64 {
        self.0.holds_twin(item, is_second).into()
    }

    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [T; N], _: u64, is_second: bool) -> u64 {
        let holds = |item| u32::from(self.0.holds_twin(item, is_second));
        items.into_iter().map(holds).sum::<u32>().into()
    }
}

forward! { CountWhere<T>, "count_where": |op| Count<CountWhere<T>> = Count(*op), agent Counting }
