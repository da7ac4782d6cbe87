use crate::op::by_value::{ByValue, Value, by_value, taken};
use crate::op::prelude::*;

/// The mean of the first array, weighted by the second: the sum of their products divided by the sum of the
/// weights.
///
/// The result is an `f64` for integers and `f64`, else an `f32`, computed in `f64`, as NumPy's `average`. It
/// is NaN for no elements, or if the sums of weights and of products are both 0. 64-bit integers are first
/// converted to the nearest `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WeightedMean;

impl<T: Element> ByValue<(T, T)> for WeightedMean {
    #[inline(always)]
    fn lift_twin(&self, (a, b): (T, T), _: u64, is_second: bool) -> [f64; 2] {
        let (value, weight) = (taken(Value, a, is_second), taken(Value, b, is_second));
        [value * weight, weight]
    }
}

impl<T: Element> Op<(T, T)> for WeightedMean {
    const NAME: &'static str = "weighted_mean";
    type Accumulator = [f64; 2];
    type Output = T::Real;
    const EXACT: bool = false;

    fn agent() -> impl Agent<Self, (T, T)> {
        Listed
    }

    #[inline(always)]
    fn identity(&self) -> [f64; 2] {
        [-0.0; 2]
    }

    by_value! { (T, T) }

    #[inline(always)]
    fn combine(&self, a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
        [a[0] + b[0], a[1] + b[1]]
    }

    #[inline(always)]
    fn finish(&self, all: [f64; 2], _: u64) -> Option<T::Real> {
        Some(T::real(all[0] / all[1]))
    }
}
