use crate::agent::extremes::Counting;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::comparison::Range;
use crate::op::counts::{Count, Predicate};
use crate::op::prelude::*;

/// The number of elements that are NaN.
///
/// The result is a `u64`; of integers it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CountNan;

impl<T: Element> Predicate<T> for CountNan {
    #[inline(always)]
    fn holds(self, element: T) -> bool {
        element.widen().is_nan()
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn range(self) -> Range<T> {
        Range::of_nan()
    }
}

forward! { CountNan, "count_nan": |op| Count<CountNan> = Count(*op), agent Counting }
