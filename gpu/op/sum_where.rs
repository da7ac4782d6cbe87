#![allow(clippy::multiple_bound_locations, reason = "in what `derive(Pod)` makes")]

use crate::agent::terms::Picked;
use crate::op::by_value::{ByValue, Short, Widened, cast, lift_each, short_sum, taken};
use crate::op::comparison::{Comparison, Range};
use crate::op::prelude::*;

/// The sum of the elements for which a comparison with a scalar holds.
///
/// The result has the type of [`Sum`](crate::Sum)'s; it is 0 if the comparison holds for no element. See
/// [`Comparison`] for NaNs and zeros.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(transparent)]
pub struct SumWhere<T: Element>(Range<T>);

impl<T: Element> SumWhere<T> {
    /// Sums the elements for which `comparison` holds.
    pub fn new(comparison: Comparison<T>) -> Self {
        Self(Range::new(comparison))
    }

    /// The comparison as a range of keys.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn range(&self) -> Range<T> {
        self.0
    }
}

impl<T: Element> ByValue<T> for SumWhere<T> {
    #[inline(always)]
    fn lift_twin(&self, item: T, _: u64, is_second: bool) -> T::Wide {
        if self.0.holds_twin(item, is_second) { taken(Widened, item, is_second) } else { T::Wide::NOTHING }
    }

    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [T; N], index: u64, is_second: bool) -> T::Wide {
        if const { T::Wide::EXACT && size_of::<T>() <= 2 } {
            let or_nothing = |item| {
                if self.0.holds_twin(item, is_second) { taken(Short, item, is_second) } else { 0 }
            };
            return cast(short_sum(items, or_nothing));
        }
        lift_each(self, items, index, is_second)
    }
}

impl<T: Element> Op<T> for SumWhere<T> {
    const NAME: &'static str = "sum_where";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;

    fn agent() -> impl Agent<Self, T> {
        Picked
    }

    fn parameters(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    accumulators_add_up! { T::Wide }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Wide {
        if self.0.holds(element) { element.widen() } else { T::Wide::NOTHING }
    }

    #[inline(always)]
    fn finish(&self, all: T::Wide, _: u64) -> Option<T::Wide> {
        Some(all.canonical().plus(T::Wide::ZERO))
    }
}
