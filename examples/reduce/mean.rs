//! The mean of numbers, where their sum as the library returns it does not hold it.

use gpu_reduce::{Element, Op, Sum, bf16, f16};
use rayon::prelude::*;

/// Numbers that have a mean.
pub trait Mean: Element
where
    Sum: Op<Self>,
{
    /// The mean of `values`, at least one, whose `sum` the library has computed. They are read again only where it may
    /// have wrapped, or is not finite.
    fn mean(values: &[Self], sum: <Sum as Op<Self>>::Output) -> f64;
}

macro_rules! integers {
    ($($T:ident)*) => {$(
        impl Mean for $T {
            fn mean(values: &[$T], sum: <Sum as Op<$T>>::Output) -> f64 {
                let may_wrap = (values.len() as u128) << $T::BITS > 1 << 64;
                let sum: i128 =
                    if may_wrap { values.par_iter().map(|&value| i128::from(value)).sum() } else { sum.into() };
                sum as f64 / values.len() as f64
            }
        }
    )*};
}

macro_rules! floats {
    ($($T:ident)*) => {$(
        impl Mean for $T {
            fn mean(values: &[$T], sum: <Sum as Op<$T>>::Output) -> f64 {
                // So small that as many as memory holds have a finite sum.
                const SCALE: f64 = 1.0 / (1_u128 << 64) as f64;
                let count = values.len() as f64;
                if sum.is_finite() {
                    f64::from(sum) / count
                } else {
                    values.iter().map(|&value| f64::from(value) * SCALE).sum::<f64>() / count / SCALE
                }
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);
floats!(f16 bf16 f32 f64);
