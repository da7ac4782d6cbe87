use crate::element::Element;
use crate::op::sqrt;
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The cosine of the angle between two vectors: their dot product over the product of their Euclidean norms. An `f64` of integers and
/// `f64`, else an `f32`, computed in `f64`, in which squares of `f64` above 2^511 overflow, and the result is NaN; of 64-bit integers those
/// of the nearest `f64`. NaN where one is all zeros; of no elements, for example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Cosine;

impl<T: Element> Op<(T, T)> for Cosine {
    const NAME: &'static str = "cosine";
    type Accumulator = [f64; 3];
    type Output = T::Real;
    const EXACT: bool = false;
    const ON_CPU: Option<OnCpu<Self, (T, T)>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> [f64; 3] {
        [-0.0; 3]
    }

    #[inline(always)]
    fn lift(&self, (a, b): (T, T), _: u64) -> [f64; 3] {
        let (a, b) = (a.to_f64(), b.to_f64());
        [a * b, a * a, b * b]
    }

    #[inline(always)]
    fn combine(&self, a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
        [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
    }

    #[inline(always)]
    fn finish(&self, all: [f64; 3], _: u64) -> Option<T::Real> {
        let [dot, a, b] = all;
        let cosine = dot / (sqrt(a) * sqrt(b));
        // Rounding may leave a little more than there is.
        Some(T::real(cosine.clamp(-1.0, 1.0)))
    }
}
