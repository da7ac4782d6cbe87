use crate::op::by_value::{ByValue, Magnitude, OfMagnitude, by_value, taken};
use crate::op::prelude::*;
use crate::tree::unrolled;

/// The maximum norm: the largest magnitude of an element.
///
/// The result is an `f64` for integers and `f64`, else an `f32`. A NaN makes it NaN. Empty input is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NormMax;

impl<T: Element> ByValue<T> for NormMax {
    #[inline(always)]
    fn lift_twin(&self, item: T, _: u64, is_second: bool) -> u64 {
        taken(Magnitude, item, is_second)
    }

    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [T; N], _: u64, is_second: bool) -> u64 {
        let (mut all, mut short) = (0, 0);
        unrolled::<N>(|place| {
            let magnitude = taken(Magnitude, items[place], is_second);
            if const { size_of::<T>() <= 4 } {
                short = (magnitude as u32).max(short);
            } else {
                all = magnitude.max(all);
            }
        });
        if const { size_of::<T>() <= 4 } { short.into() } else { all }
    }

    #[inline(always)]
    fn finish_twin(&self, all: u64, count: u64, is_second: bool) -> Option<T::Real> {
        (count > 0).then(|| T::real(taken(OfMagnitude(all), T::zeroed(), is_second)))
    }
}

impl<T: Element> Op<T> for NormMax {
    const NAME: &'static str = "norm_max";
    type Accumulator = u64;
    type Output = T::Real;
    const EXACT: bool = true;

    fn agent() -> impl Agent<Self, T> {
        Listed
    }

    #[inline(always)]
    fn identity(&self) -> u64 {
        0
    }

    by_value! { T }

    #[inline(always)]
    fn combine(&self, a: u64, b: u64) -> u64 {
        a.max(b)
    }

    #[inline(always)]
    fn finish(&self, all: u64, count: u64) -> Option<T::Real> {
        ByValue::<T>::finish_twin(self, all, count, false)
    }
}
