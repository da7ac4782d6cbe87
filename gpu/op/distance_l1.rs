use crate::op::by_value::{ByValue, Short, Summed, by_value, cast, is_signed, lift_each, short_sum, taken};
use crate::op::prelude::*;
use crate::tree::unrolled;

/// The L1 distance of two arrays: the sum of the magnitudes of the differences of their elements.
///
/// Integers sum exactly, in 128 bits, and the result is an `f64`. Floats sum as in [`Sum`](crate::Sum), and
/// the result is an `f64` for `f64`, else an `f32`. For no elements it is 0. A NaN makes it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DistanceL1;

impl<T: Element> ByValue<(T, T)> for DistanceL1 {
    #[inline(always)]
    fn lift_twin(&self, (a, b): (T, T), _: u64, is_second: bool) -> T::Total {
        if const { T::Total::EXACT && size_of::<T>() <= 4 } {
            return cast(i128::from(distance(a, b, is_second)));
        }
        (taken(Summed, a, is_second) - taken(Summed, b, is_second)).abs()
    }

    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [(T, T); N], index: u64, is_second: bool) -> T::Total {
        if const { T::Total::EXACT && size_of::<T>() <= 2 } {
            return cast(i128::from(short_sum(items, |(a, b)| distance(a, b, is_second) as i32)));
        }
        if const { T::Total::EXACT && size_of::<T>() == 4 } {
            let mut sum = 0;
            unrolled::<N>(|place| sum += u64::from(distance(items[place].0, items[place].1, is_second)));
            return cast(i128::from(sum));
        }
        lift_each(self, items, index, is_second)
    }
}

/// Returns the distance of two integers of at most 32 bits.
#[inline(always)]
fn distance<T: Element>(a: T, b: T, is_second: bool) -> u32 {
    let [a, b] = [a, b].map(|item| taken(Short, item, is_second));
    // Integers of fewer bits are the same, signed or not.
    let distances = [a.abs_diff(b), (a as u32).abs_diff(b as u32)];
    if size_of::<T>() < 4 || is_signed::<T>(is_second) { distances[0] } else { distances[1] }
}

impl<T: Element> Op<(T, T)> for DistanceL1 {
    const NAME: &'static str = "distance_l1";
    type Accumulator = T::Total;
    type Output = T::Real;
    const EXACT: bool = T::Total::EXACT;

    fn agent() -> impl Agent<Self, (T, T)> {
        Listed
    }

    accumulators_add_up! { T::Total }

    by_value! { (T, T) }

    #[inline(always)]
    fn finish(&self, all: T::Total, count: u64) -> Option<T::Real> {
        Some(T::real(if count == 0 { 0.0 } else { all.to_f64() }))
    }
}
