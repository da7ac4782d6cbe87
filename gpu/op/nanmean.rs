use crate::agent::chunks::SumThenCount;
use crate::op::prelude::*;

/// The arithmetic mean of the elements that are not NaN.
///
/// The result has the type of [`Mean`](crate::Mean)'s. It is NaN if there are no such elements, as in NumPy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NanMean;

/// A sum and the number of its elements.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, packed)]
pub struct Counted<V> {
    pub(crate) sum: V,
    pub(crate) count: u64,
}

impl<T: Element> Op<T> for NanMean {
    const NAME: &'static str = "nanmean";
    type Accumulator = Counted<T::Total>;
    type Output = T::Real;
    const EXACT: bool = T::Total::EXACT;

    fn agent() -> impl Agent<Self, T> {
        SumThenCount
    }

    #[inline(always)]
    fn identity(&self) -> Counted<T::Total> {
        Counted { sum: T::Total::NOTHING, count: 0 }
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> Counted<T::Total> {
        if element.widen().is_nan() {
            Op::<T>::identity(self)
        } else {
            Counted { sum: element.total(), count: 1 }
        }
    }

    #[inline(always)]
    fn combine(&self, a: Counted<T::Total>, b: Counted<T::Total>) -> Counted<T::Total> {
        let (sum, other) = (a.sum, b.sum);
        Counted { sum: sum.plus(other), count: a.count + b.count }
    }

    #[inline(always)]
    fn finish(&self, all: Counted<T::Total>, _: u64) -> Option<T::Real> {
        let sum = all.sum;
        Some(T::real(sum.to_f64() / all.count as f64))
    }
}
