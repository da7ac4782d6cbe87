use crate::op::by_value::{ByValue, Value, by_value, taken};
use crate::op::prelude::*;
use crate::op::sqrt;

/// The cosine of the angle between two vectors: their dot product divided by the product of their Euclidean
/// norms.
///
/// The result is an `f64` for integers and `f64`, else an `f32`, computed in `f64`. It is NaN if a vector is
/// all zeros, for no elements, or if squares overflow, which those of `f64` above 2^511 do. 64-bit integers
/// are first converted to the nearest `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Cosine;

impl<T: Element> ByValue<(T, T)> for Cosine {
    #[inline(always)]
    fn lift_twin(&self, (a, b): (T, T), _: u64, is_second: bool) -> [f64; 3] {
        let (a, b) = (taken(Value, a, is_second), taken(Value, b, is_second));
        [a * b, a * a, b * b]
    }
}

impl<T: Element> Op<(T, T)> for Cosine {
    const NAME: &'static str = "cosine";
    type Accumulator = [f64; 3];
    type Output = T::Real;
    const EXACT: bool = false;

    fn agent() -> impl Agent<Self, (T, T)> {
        Listed
    }

    #[inline(always)]
    fn identity(&self) -> [f64; 3] {
        [-0.0; 3]
    }

    by_value! { (T, T) }

    #[inline(always)]
    fn combine(&self, a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
        [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
    }

    #[inline(always)]
    fn finish(&self, all: [f64; 3], _: u64) -> Option<T::Real> {
        let [dot, a, b] = all;
        let cosine = dot / (sqrt(a) * sqrt(b));
        // Rounding may make it greater than 1.
        Some(T::real(cosine.clamp(-1.0, 1.0)))
    }
}
