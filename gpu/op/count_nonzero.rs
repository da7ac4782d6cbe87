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
}

forward! { CountNonzero, "count_nonzero": |op| Count<CountNonzero> = Count(*op), agent Listed }
