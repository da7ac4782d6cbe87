#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{self, Source};
use crate::op::prelude::*;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::{CountNan, Mean, NanSum};

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
    sum: V,
    count: u64,
}

impl<T: Element> Op<T> for NanMean {
    const NAME: &'static str = "nanmean";
    type Accumulator = Counted<T::Total>;
    type Output = T::Real;
    const EXACT: bool = T::Total::EXACT;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

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

    /// Folds the sum and the count one after the other, by other operators' folds: a chunk fits in a cache.
    /// (10^5 `f32` took 93 µs by accumulators of both and take 7, Zen 5.)
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = T>>(&self, chunk: S, first: u64, row: usize) -> Self::Accumulator {
        let len = chunk.len() as u64;
        if const { T::Total::EXACT } {
            return Counted { sum: cpu::fold_by_table(&Mean, chunk, first, row), count: len };
        }
        let nans = cpu::fold_by_table(&CountNan, chunk, first, row);
        // For floats, `T::Wide` is `T::Total`.
        let sum = bytemuck::cast(cpu::fold_by_table(&NanSum, chunk, first, row));
        Counted { sum, count: len - nans }
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
