use crate::op::prelude::*;
use bytemuck::cast;
use cuda_std::intrinsics::{mul_lo_i32, mul_lo_u32};

/// The product of the elements.
///
/// The result has the type of [`Sum`](crate::Sum)'s; 64 bits wrap. For no elements it is 1. A NaN makes it
/// NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Prod;

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

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Wide {
        element.widen()
    }

    /// The two or four integers in a word multiply in 32 bits, which hold their product.
    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> T::Wide {
        let words = load.chunks_exact(4 / size_of::<T>().clamp(1, 4));
        match T::DTYPE {
            Dtype::I8 | Dtype::I16 => words.fold(T::Wide::ONE, |product, word| {
                let factors = word.iter().map(|factor| cast::<_, i64>(factor.widen()) as i32);
                product.times(cast(i64::from(factors.reduce(mul_lo_i32).unwrap_or(1))))
            }),
            Dtype::U8 | Dtype::U16 => words.fold(T::Wide::ONE, |product, word| {
                let factors = word.iter().map(|factor| cast::<_, u64>(factor.widen()) as u32);
                product.times(cast(u64::from(factors.reduce(mul_lo_u32).unwrap_or(1))))
            }),
            _ => load.into_iter().fold(T::Wide::ONE, |product, element| product.times(element.widen())),
        }
    }

    #[inline(always)]
    fn combine(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        a.times(b)
    }

    #[inline(always)]
    fn finish(&self, all: T::Wide, _: u64) -> Option<T::Wide> {
        Some(all.canonical())
    }
}
