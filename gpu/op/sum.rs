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

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Wide {
        element.widen()
    }

    /// A GPU adds two or four products in one instruction; here each is an element times 1.
    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> T::Wide {
        if size_of::<[T; N]>() != 16 {
            return load.into_iter().fold(T::Wide::NOTHING, |sum, element| sum.plus(element.widen()));
        }
        let words = || cast::<[T; N], [u32; 4]>(load).into_iter();
        match T::DTYPE {
            Dtype::I8 => cast(i64::from(words().fold(0, |sum, word| dp4a_i32(word, 0x0101_0101, sum)))),
            Dtype::U8 => cast(u64::from(words().fold(0, |sum, word| dp4a_u32(word, 0x0101_0101, sum)))),
            Dtype::I16 => cast(i64::from(words().fold(0, |sum, word| dp2a_lo_i32(word, 0x0101, sum)))),
            Dtype::U16 => cast(u64::from(words().fold(0, |sum, word| dp2a_lo_u32(word, 0x0101, sum)))),
            _ => load.into_iter().fold(T::Wide::NOTHING, |sum, element| sum.plus(element.widen())),
        }
    }

    #[inline(always)]
    fn finish(&self, all: T::Wide, count: u64) -> Option<T::Wide> {
        Some(if count == 0 { T::Wide::ZERO } else { all.canonical() })
    }
}

impl<T: Element> OfTally<T> for Sum {
    const COUNTS: bool = false;

    #[inline(always)]
    fn of_tally(sum: &impl Exact, low: i32, _: u64) -> T::Wide {
        T::Wide::of_exact(sum, low)
    }
}
