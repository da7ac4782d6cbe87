use crate::op::Op;
use crate::op::exact::{ExactElement, ExactFactor};
use bytemuck::{Pod, Zeroable};

macro_rules! of_exact_sum {
    ($($(#[$doc:meta])* $op:ident, $name:literal: $output:ty, |$sum:ident, $count:ident| $finish:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $op;

        impl<T: ExactElement> Op<T> for $op {
            const NAME: &'static str = $name;
            type Accumulator = T::State;
            type Output = $output;
            const EXACT: bool = true;

            #[inline(always)]
            fn identity(&self) -> T::State {
                T::NOTHING
            }

            #[inline(always)]
            fn lift(&self, item: T, _: u64) -> T::State {
                item.alone()
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn fold_items<S: crate::cpu::Source<Item = T>>(&self, items: S, _: u64) -> T::State {
                T::sum(items)
            }

            #[inline(always)]
            fn combine(&self, a: T::State, b: T::State) -> T::State {
                T::plus(a, b)
            }

            fn finish(&self, $sum: T::State, $count: u64) -> Option<$output> {
                $finish
            }
        }
    )*};
}

of_exact_sum! {
    /// The sum without any rounding but one, of the exact sum to the nearest number, the even one of two that are as near: of `f64` an `f64`, of
    /// other floats an `f32`, of integers an `i128`, which is not rounded. In whatever order, by whatever BLOCK, threads and device.
    ///
    /// Infinities and NaN are as IEEE 754 has them for a sum: NaN where there is one, or both infinities. What overflows on the way but not in the end is
    /// as the end is. The sum of negative zeros alone is −0.0; of nothing 0.
    ///
    /// On the CPU: no kernels of it are compiled yet, and on a GPU it is an error that says so.
    ///
    /// ```
    /// use gpu_reduce_kernels::{ExactSum, Op};
    ///
    /// let sum = |a, b| Op::<f32>::combine(&ExactSum, a, b);
    /// let [a, b, c] = [1e30f32, 1.0, -1e30].map(|item| ExactSum.lift(item, 0));
    /// assert_eq!(Op::<f32>::finish(&ExactSum, sum(sum(a, b), c), 3), Some(1.0));
    /// ```
    ExactSum, "exact_sum": T::Rounded, |sum, count| Some(T::rounded(sum, count));

    /// As [`ExactSum`], as two `f64`: the nearest to the sum, and the nearest to what that lacks. Where the first is infinite or NaN, the second is 0.
    ExactSumTwofold, "exact_sum_twofold": [f64; 2], |sum, count| Some(T::as_f64s(sum, count));

    /// The mean, exact but for one rounding to the nearest number: of `f64` and integers an `f64`, of other floats an `f32`. Of no elements it has no
    /// value. As [`ExactSum`] otherwise.
    ExactMean, "exact_mean": T::Real, |sum, count| (count > 0).then(|| T::mean(sum, count));
}

/// The dot product of two arrays without any rounding but one: products and their sum are exact, and the sum is rounded as an [`ExactSum`]. Of floats, and of
/// integers of up to 32 bits.
///
/// On the CPU, as [`ExactSum`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ExactDot;

impl<T: ExactFactor> Op<(T, T)> for ExactDot {
    const NAME: &'static str = "exact_dot";
    type Accumulator = T::Products;
    type Output = T::Rounded;
    const EXACT: bool = true;

    #[inline(always)]
    fn identity(&self) -> T::Products {
        T::NO_PRODUCTS
    }

    #[inline(always)]
    fn lift(&self, (a, b): (T, T), _: u64) -> T::Products {
        a.product(b)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: crate::cpu::Source<Item = (T, T)>>(&self, items: S, _: u64) -> T::Products {
        T::sum_products(items)
    }

    #[inline(always)]
    fn combine(&self, a: T::Products, b: T::Products) -> T::Products {
        T::add_products(a, b)
    }

    fn finish(&self, sum: T::Products, count: u64) -> Option<T::Rounded> {
        Some(T::rounded_products(sum, count))
    }
}
