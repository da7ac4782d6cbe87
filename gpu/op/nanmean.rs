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

impl<V: Summand> Summand for Counted<V> {
    const NOTHING: Self = Self { sum: V::NOTHING, count: 0 };

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        let (sum, other_sum) = (self.sum, other.sum);
        Self { sum: sum.plus(other_sum), count: self.count + other.count }
    }
}

impl<T: Element> Op<T> for NanMean {
    const NAME: &'static str = "nanmean";
    type Accumulator = Counted<T::Total>;
    type Output = T::Real;
    const EXACT: bool = T::Total::EXACT;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

    accumulators_add_up! { Counted<T::Total> }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> Counted<T::Total> {
        if element.widen().is_nan() { Counted::NOTHING } else { Counted { sum: element.total(), count: 1 } }
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
    fn finish(&self, all: Counted<T::Total>, _: u64) -> Option<T::Real> {
        let sum = all.sum;
        Some(T::real(sum.to_f64() / all.count as f64))
    }
}
