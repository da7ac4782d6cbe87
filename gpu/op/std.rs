use super::{canonical, sqrt};
use super::spread::Spread;
use crate::element::Element;
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The standard deviation, the root of the variance, with `ddof` degrees of freedom taken off the count, as in NumPy: 0 for that of a whole population, 1 for that of a
/// sample. It is an `f64` for integers and `f64`, else an `f32`; NaN where the count is not above `ddof` (where NumPy may divide by zero). It is computed in `f64`, by
/// distances from one of the elements; of 64-bit integers those are the nearest `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Std {
    /// Degrees of freedom taken off the count.
    pub ddof: u64,
}

impl<T: Element> Op<T> for Std {
    const NAME: &'static str = "std";
    type Accumulator = Spread;
    type Output = T::Real;
    const EXACT: bool = false;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu();

    #[inline(always)]
    fn identity(&self) -> Spread {
        Spread::NONE
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> Spread {
        Spread::of(element.to_f64())
    }

    #[inline(always)]
    fn combine(&self, a: Spread, b: Spread) -> Spread {
        a.with(b)
    }

    #[inline(always)]
    fn finish(&self, all: Spread, _: u64) -> Option<T::Real> {
        Some(T::real(canonical(sqrt(all.variance(self.ddof)))))
    }
}
