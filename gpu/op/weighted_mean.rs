use crate::element::Element;
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The mean of the first array, weighted by the second: the sum of their products over the sum of the weights. An `f64` of integers and
/// `f64`, else an `f32`, computed in `f64`; of 64-bit integers those of the nearest `f64`. NaN where the weights sum to 0 and the products
/// do, too; of no elements, for example. (NumPy's `average`.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WeightedMean;

impl<T: Element> Op<(T, T)> for WeightedMean {
    const NAME: &'static str = "weighted_mean";
    type Accumulator = [f64; 2];
    type Output = T::Real;
    const EXACT: bool = false;
    const ON_CPU: Option<OnCpu<Self, (T, T)>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> [f64; 2] {
        [-0.0; 2]
    }

    #[inline(always)]
    fn lift(&self, (a, b): (T, T), _: u64) -> [f64; 2] {
        let (value, weight) = (a.to_f64(), b.to_f64());
        [value * weight, weight]
    }

    #[inline(always)]
    fn combine(&self, a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
        [a[0] + b[0], a[1] + b[1]]
    }

    #[inline(always)]
    fn finish(&self, all: [f64; 2], _: u64) -> Option<T::Real> {
        Some(T::real(all[0] / all[1]))
    }
}
