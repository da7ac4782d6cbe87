use crate::op::powers::Powers;
use crate::op::prelude::*;

/// The mean, and the second, third and fourth central moments, of a whole population.
///
/// The result is an array of four `f64` for integers and `f64`, else of four `f32`.
///
/// It is computed in `f64` from the powers of the distances to the first element: if that element is far from
/// all n others, rounding errors grow up to a few times n. It is NaN for no elements, if an element is not
/// finite, or if a fourth power overflows. 64-bit integers are first converted to the nearest `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Moments {
    /// The first element.
    pub(in crate::op) origin: f64,
}

by_name! { Moments { origin: 0.0 } }

impl<T: Element> Op<T> for Moments {
    const NAME: &'static str = "moments";
    type Accumulator = Powers;
    type Output = [T::Real; 4];
    const EXACT: bool = false;

    fn agent() -> impl Agent<Self, T> {
        Listed
    }

    accumulators_add_up! { Powers }

    fn parameters(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    #[inline(always)]
    fn begin(&self, first: T) -> Self {
        Self { origin: first.as_f64() }
    }

    #[inline(always)]
    fn end(&self, all: Powers, count: u64) -> Powers {
        all.moments(self.origin, count)
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> Powers {
        Powers::of_distance(element.as_f64() - self.origin)
    }

    #[inline(always)]
    fn finish(&self, all: Powers, count: u64) -> Option<[T::Real; 4]> {
        Some(all.finished(count).map(T::real))
    }
}
