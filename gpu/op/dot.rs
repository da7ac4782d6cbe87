use crate::agent::terms::Products;
use crate::op::by_value::{ByValue, Short, Widened, by_value, cast, is_signed, lift_each, taken};
use crate::op::prelude::*;
use cuda_std::intrinsics::{dp4a_i32, dp4a_u32};

/// The dot product of two arrays: the sum of the products of their elements.
///
/// The result has the type of [`Sum`](crate::Sum)'s: integers multiply and sum in 64 bits, which wrap, `f16`
/// and `bf16` in `f32`. For no elements it is 0. A NaN makes it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Dot;

impl<T: Element> ByValue<(T, T)> for Dot {
    #[inline(always)]
    fn lift_twin(&self, (a, b): (T, T), _: u64, is_second: bool) -> T::Wide {
        if const { T::Wide::EXACT && size_of::<T>() <= 4 } {
            // A GPU multiplies factors of 32 bits to a product of 64 in one instruction, if both are signed, or both unsigned.
            let factors = |is_second| [a, b].map(|item| taken(Short, item, is_second));
            let ([a, b], [of_unsigned, other]) = (factors(true), factors(false).map(|factor| u64::from(factor as u32)));
            let (signed, unsigned) = (i64::from(a) * i64::from(b), of_unsigned * other);
            return cast(if is_signed::<T>(is_second) { signed } else { unsigned as i64 });
        }
        taken(Widened, a, is_second).times(taken(Widened, b, is_second))
    }

    /// A GPU adds the products of four pairs of bytes in one instruction.
    #[inline(always)]
    fn lift_load_twin<const N: usize>(&self, items: [(T, T); N], index: u64, is_second: bool) -> T::Wide {
        if size_of::<T>() == 1 && N == 16 {
            let (a, b): ([u32; 4], [u32; 4]) = (cast(items.map(|(a, _)| a)), cast(items.map(|(_, b)| b)));
            let words = || a.into_iter().zip(b);
            let signed = words().fold(0, |sum, (a, b)| dp4a_i32(a, b, sum));
            let unsigned = words().fold(0, |sum, (a, b)| dp4a_u32(a, b, sum));
            return cast(if is_signed::<T>(is_second) { i64::from(signed) } else { i64::from(unsigned) });
        }
        lift_each(self, items, index, is_second)
    }
}

impl<T: Element> Op<(T, T)> for Dot {
    const NAME: &'static str = "dot";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;

    fn agent() -> impl Agent<Self, (T, T)> {
        Products
    }

    accumulators_add_up! { T::Wide }

    by_value! { (T, T) }

    #[inline(always)]
    fn finish(&self, all: T::Wide, count: u64) -> Option<T::Wide> {
        Some(if count == 0 { T::Wide::ZERO } else { all.canonical() })
    }
}
