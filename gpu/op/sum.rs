use crate::op::by_value::{ByValue, Widened, by_value, is_signed, lift_each, taken};
use crate::op::exact::Exact;
use crate::op::prelude::*;
use crate::op::tally::{OfTally, Tallied};
use bytemuck::cast;
use cuda_std::intrinsics::{dp2a_lo_i32, dp2a_lo_u32, dp4a_i32, dp4a_u32};

/// The sum of the elements.
///
/// The result is an `i64` or `u64` for integers, an `f32` for `f16`, `bf16` and `f32`, an `f64` for `f64`.
/// 64-bit integers wrap. For no elements it is 0. A NaN makes it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Sum;

impl<T: Element> Op<T> for Sum {
    const NAME: &'static str = "sum";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;

    fn agent() -> impl Agent<Self, T> {
        Tally
    }

    accumulators_add_up! { T::Wide }

    by_value! { T }

    #[inline(always)]
    fn finish(&self, all: T::Wide, count: u64) -> Option<T::Wide> {
        Some(if count == 0 { T::Wide::ZERO } else { all.canonical() })
    }
}

impl<T: Element> ByValue<T> for Sum {
    #[inline(always)]
    fn lift_twin(&self, item: T, _: u64, is_second: bool) -> T::Wide {
        taken(Widened, item, is_second)
    }

    /// A GPU adds two or four products in one instruction; here each is an item times 1.
    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [T; N], index: u64, is_second: bool) -> T::Wide {
        if size_of::<[T; N]>() != 16 || size_of::<T>() > 2 || !T::Wide::EXACT {
            return lift_each(self, items, index, is_second);
        }
        let words: [u32; 4] = cast(items);
        let signed = |add: fn(u32, u32, i32) -> i32, ones| words.iter().fold(0, |sum, &word| add(word, ones, sum));
        let unsigned = |add: fn(u32, u32, u32) -> u32, ones| words.iter().fold(0, |sum, &word| add(word, ones, sum));
        let (signed, unsigned) = match size_of::<T>() {
            1 => (signed(dp4a_i32, 0x0101_0101), unsigned(dp4a_u32, 0x0101_0101)),
            _ => (signed(dp2a_lo_i32, 0x0101), unsigned(dp2a_lo_u32, 0x0101)),
        };
        cast(if is_signed::<T>(is_second) { i64::from(signed) } else { i64::from(unsigned) })
    }
}

impl<T: Element> OfTally<T> for Sum {
    const COUNTS: bool = false;

    #[inline(always)]
    fn of_tally(sum: &impl Exact, low: i32, _: u64) -> T::Wide {
        T::Wide::of_exact(sum, low)
    }
}
