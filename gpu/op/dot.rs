use crate::agent::terms::Products;
use crate::op::prelude::*;
use bytemuck::cast;
use cuda_std::intrinsics::{dp4a_i32, dp4a_u32};

/// The dot product of two arrays: the sum of the products of their elements.
///
/// The result has the type of [`Sum`](crate::Sum)'s: integers multiply and sum in 64 bits, which wrap, `f16`
/// and `bf16` in `f32`. For no elements it is 0. A NaN makes it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Dot;

impl<T: Element> Op<(T, T)> for Dot {
    const NAME: &'static str = "dot";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;

    fn agent() -> impl Agent<Self, (T, T)> {
        Products
    }

    accumulators_add_up! { T::Wide }

    #[inline(always)]
    fn lift(&self, (a, b): (T, T), _: u64) -> T::Wide {
        a.widen().times(b.widen())
    }

    /// A GPU adds the products of four pairs of bytes in one instruction.
    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [(T, T); N], _: u64) -> T::Wide {
        if size_of::<[T; N]>() == 16 && matches!(T::DTYPE, Dtype::I8 | Dtype::U8) {
            let (a, b): ([u32; 4], [u32; 4]) = (cast(load.map(|(a, _)| a)), cast(load.map(|(_, b)| b)));
            let words = || a.into_iter().zip(b);
            return if T::DTYPE == Dtype::I8 {
                cast(i64::from(words().fold(0, |sum, (a, b)| dp4a_i32(a, b, sum))))
            } else {
                cast(u64::from(words().fold(0, |sum, (a, b)| dp4a_u32(a, b, sum))))
            };
        }
        load.into_iter().fold(T::Wide::NOTHING, |sum, (a, b)| sum.plus(a.widen().times(b.widen())))
    }

    #[inline(always)]
    fn finish(&self, all: T::Wide, count: u64) -> Option<T::Wide> {
        Some(if count == 0 { T::Wide::ZERO } else { all.canonical() })
    }
}
