use crate::agent::extremes::BothPlaces;
use super::place::Place;
use super::{ArgMax, ArgMin};
use crate::op::prelude::*;

/// The indices of the smallest and of the largest element, as [`ArgMin`](crate::ArgMin) and
/// [`ArgMax`](crate::ArgMax) return them.
///
/// The result is an array of two `u64`. Empty input is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ArgMinMax;

impl<T: Element> Op<T> for ArgMinMax {
    const NAME: &'static str = "argminmax";
    type Accumulator = [Place; 2];
    type Output = [u64; 2];
    const EXACT: bool = true;

    fn agent() -> impl Agent<Self, T> {
        BothPlaces
    }

    #[inline(always)]
    fn identity(&self) -> [Place; 2] {
        [Place::NONE; 2]
    }

    #[inline(always)]
    fn lift(&self, element: T, index: u64) -> [Place; 2] {
        [ArgMin.lift(element, index), ArgMax.lift(element, index)]
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], index: u64) -> [Place; 2] {
        [ArgMin.lift_load(load, index), ArgMax.lift_load(load, index)]
    }

    #[inline(always)]
    fn combine(&self, a: [Place; 2], b: [Place; 2]) -> [Place; 2] {
        [a[0].first(b[0]), a[1].first(b[1])]
    }

    #[inline(always)]
    fn finish(&self, all: [Place; 2], count: u64) -> Option<[u64; 2]> {
        (count > 0).then_some(all.map(|place| place.index))
    }
}
