use crate::agent::terms::Products;
use crate::op::Dot;
use crate::op::by_value::{ByValue, by_value};
use crate::op::prelude::*;

/// The sum of the squares of the elements.
///
/// The result has the type of [`Sum`](crate::Sum)'s: integers are squared and summed in 64 bits, which wrap.
/// For no elements it is 0. A NaN makes it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct SumSq;

impl<T: Element> ByValue<T> for SumSq {
    #[inline(always)]
    fn lift_twin(&self, item: T, index: u64, is_second: bool) -> T::Wide {
        Dot.lift_twin((item, item), index, is_second)
    }

    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [T; N], index: u64, is_second: bool) -> T::Wide {
        Dot.lift_load_twin(items.map(|item| (item, item)), index, is_second)
    }
}

impl<T: Element> Op<T> for SumSq {
    const NAME: &'static str = "sumsq";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;

    fn agent() -> impl Agent<Self, T> {
        Products
    }

    accumulators_add_up! { T::Wide }

    by_value! { T }

    #[inline(always)]
    fn finish(&self, all: T::Wide, count: u64) -> Option<T::Wide> {
        Some(if count == 0 { T::Wide::ZERO } else { all.canonical() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_add_up() {
        let of = |values: &[i8]| {
            values.iter().fold(Op::<i8>::identity(&SumSq), |all, &value| {
                Op::<i8>::combine(&SumSq, all, SumSq.lift(value, 0))
            })
        };
        assert_eq!(of(&[-128, 127, 3]), 16384 + 16129 + 9);
        assert_eq!(Op::<f32>::finish(&SumSq, -0.0, 0).map(f32::to_bits), Some(0));
        assert_eq!(Op::<f32>::finish(&SumSq, SumSq.lift(-1.5f32, 0), 1), Some(2.25));
        assert_eq!(SumSq.lift(i64::MIN, 0), 0, "64-bit integers wrap");
    }
}
