use crate::agent::extremes::BothExtremes;
use super::{Max, Min};
use crate::op::prelude::*;

/// The smallest and the largest element, as [`Min`](crate::Min) and [`Max`](crate::Max) return them.
///
/// The result is an array of two elements. A NaN makes both NaN. Empty input is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MinMax;

impl<T: Element> Op<T> for MinMax {
    const NAME: &'static str = "minmax";
    type Accumulator = [T::Key; 2];
    type Output = [T; 2];
    const EXACT: bool = true;

    fn agent() -> impl Agent<Self, T> {
        BothExtremes
    }

    #[inline(always)]
    fn identity(&self) -> [T::Key; 2] {
        [Op::<T>::identity(&Min), Op::<T>::identity(&Max)]
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> [T::Key; 2] {
        [Min.lift(element, 0), Max.lift(element, 0)]
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> [T::Key; 2] {
        [Min.lift_load(load, 0), Max.lift_load(load, 0)]
    }

    #[inline(always)]
    fn combine(&self, a: [T::Key; 2], b: [T::Key; 2]) -> [T::Key; 2] {
        [Ord::min(a[0], b[0]), Ord::max(a[1], b[1])]
    }

    #[inline(always)]
    fn finish(&self, all: [T::Key; 2], count: u64) -> Option<[T; 2]> {
        (count > 0).then(|| all.map(T::from_key))
    }
}
