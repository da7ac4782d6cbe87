use crate::agent::chunks::SumThenCount;
use crate::op::prelude::*;

/// The arithmetic mean of the elements that are not NaN.
///
/// The result has the type of [`Mean`](crate::Mean)'s. It is NaN if there are no such elements, as in NumPy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NanMean;

/// A sum of elements that are not NaN, and how many they are.
pub trait Counted<V>: Summand {
    /// A sum of `count` elements.
    fn new(sum: V, count: u64) -> Self;

    /// Returns the mean. `len` is the number of all elements.
    fn mean(self, len: u64) -> f64;
}

/// No integer is NaN, so the number of all elements is the count.
impl Counted<i128> for i128 {
    #[inline(always)]
    fn new(sum: i128, _: u64) -> i128 {
        sum
    }

    #[inline(always)]
    fn mean(self, len: u64) -> f64 {
        self.to_f64() / len as f64
    }
}

/// A sum and the number of its elements.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, packed)]
pub struct SumAndCount<V> {
    sum: V,
    count: u64,
}

impl<V: Total> Summand for SumAndCount<V> {
    const EXACT: bool = V::EXACT;
    const NOTHING: Self = Self { sum: V::NOTHING, count: 0 };

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        let (sum, of_other) = (self.sum, other.sum);
        Self { sum: sum.plus(of_other), count: self.count + other.count }
    }
}

impl<V: Total> Counted<V> for SumAndCount<V> {
    #[inline(always)]
    fn new(sum: V, count: u64) -> Self {
        Self { sum, count }
    }

    #[inline(always)]
    fn mean(self, _: u64) -> f64 {
        let sum = self.sum;
        sum.to_f64() / self.count as f64
    }
}

impl<T: Element> Op<T> for NanMean {
    const NAME: &'static str = "nanmean";
    type Accumulator = <T::Total as Total>::Counted;
    type Output = T::Real;
    const EXACT: bool = T::Total::EXACT;

    fn agent() -> impl Agent<Self, T> {
        SumThenCount
    }

    accumulators_add_up! { <T::Total as Total>::Counted }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> <T::Total as Total>::Counted {
        if element.widen().is_nan() { Summand::NOTHING } else { Counted::new(element.total(), 1) }
    }

    #[inline(always)]
    fn finish(&self, all: <T::Total as Total>::Counted, count: u64) -> Option<T::Real> {
        Some(T::real(all.mean(count)))
    }
}
