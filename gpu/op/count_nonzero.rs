use crate::agent::extremes::Counting;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::comparison::{Comparison, Range};
use crate::op::counts::{Count, Predicate};
use crate::op::prelude::*;
use crate::op::quantifiers::is_nonzero;

/// The number of elements that are nonzero.
///
/// The result is a `u64`. A NaN is nonzero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CountNonzero;

impl<T: Element> Predicate<T> for CountNonzero {
    #[inline(always)]
    fn holds(self, element: T) -> bool {
        is_nonzero(element)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn range(self) -> Range<T> {
        Range::new(Comparison::NotEqual(T::zero()))
    }
}

forward! { CountNonzero, "count_nonzero": |op| Count<CountNonzero> = Count(*op), agent Counting }
