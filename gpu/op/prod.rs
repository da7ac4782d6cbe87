use crate::op::by_value::{ByValue, Short, Widened, by_value, cast, is_signed, lift_each, taken};
use crate::op::prelude::*;
use crate::tree::unrolled;
use cuda_std::intrinsics::mul_lo_i32;

/// The product of the elements.
///
/// The result has the type of [`Sum`](crate::Sum)'s; 64 bits wrap. For no elements it is 1. A NaN makes it
/// NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Prod;

impl<T: Element> ByValue<T> for Prod {
    #[inline(always)]
    fn lift_twin(&self, item: T, _: u64, is_second: bool) -> T::Wide {
        taken(Widened, item, is_second)
    }

    /// The two or four integers in a word multiply in 32 bits, which hold their product.
    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [T; N], index: u64, is_second: bool) -> T::Wide {
        if const { T::Wide::EXACT && size_of::<T>() <= 2 } {
            let mut all = T::Wide::ONE;
            let of_word = const { 4 / size_of::<T>() };
            let mut of_one = 1;
            unrolled::<N>(|place| {
                let factor = taken(Short, items[place], is_second);
                of_one = if place % of_word == 0 { factor } else { mul_lo_i32(of_one, factor) };
                if (place + 1) % of_word == 0 || place + 1 == N {
                    let product = if is_signed::<T>(is_second) { of_one.into() } else { i64::from(of_one as u32) };
                    all = all.times(cast(product));
                }
            });
            return all;
        }
        lift_each(self, items, index, is_second)
    }
}

impl<T: Element> Op<T> for Prod {
    const NAME: &'static str = "prod";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;

    fn agent() -> impl Agent<Self, T> {
        Listed
    }

    #[inline(always)]
    fn identity(&self) -> T::Wide {
        T::Wide::ONE
    }

    by_value! { T }

    #[inline(always)]
    fn combine(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        a.times(b)
    }

    #[inline(always)]
    fn finish(&self, all: T::Wide, _: u64) -> Option<T::Wide> {
        Some(all.canonical())
    }
}
