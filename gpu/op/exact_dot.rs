use crate::input::Input;
use crate::op::exact::{Exact, ExactFactor, OfExactSum};
use crate::op::{OnCpu, Op};
use crate::reduce::Arguments;
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The dot product of two arrays without any rounding but one: products and their sum are exact, and the sum is rounded as an
/// [`ExactSum`](crate::ExactSum). Of 64-bit integers it is taken modulo 2^128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ExactDot;

impl<T: ExactFactor> Op<(T, T)> for ExactDot {
    const NAME: &'static str = "exact_dot";
    type Accumulator = T::Products;
    type Output = T::Rounded;
    const EXACT: bool = true;
    const ON_CPU: Option<OnCpu<Self, (T, T)>> = table::on_cpu::<_, _, T>();

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
    unsafe fn reduce_on_gpu<P: Input<Item = (T, T)>, const BLOCK: u32, const WIDTH: usize>(
        arguments: Arguments<P, Self, Self::Output>,
        is_row: bool,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { T::reduce_products_on_gpu::<Self, P, BLOCK, WIDTH>(arguments, is_row) }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn of_slot(word: impl Fn(usize) -> u64) -> Option<T::Products> {
        T::products_of_slot(word)
    }

    #[inline(always)]
    fn fold_item(&self, all: &mut T::Products, (a, b): (T, T), _: u64) {
        a.add_product_to(b, all);
    }

    #[inline(always)]
    fn fold_load<const WIDTH: usize>(&self, all: &mut [T::Products; WIDTH], pairs: [(T, T); WIDTH], _: u64) {
        T::add_products_to(pairs, &mut all[0]);
    }

    #[inline(always)]
    fn combine(&self, a: T::Products, b: T::Products) -> T::Products {
        T::add_products(a, b)
    }

    #[inline(always)]
    fn finish(&self, sum: T::Products, count: u64) -> Option<T::Rounded> {
        Some(<Self as OfExactSum<(T, T)>>::of_sum(sum, count))
    }
}

impl<T: ExactFactor> OfExactSum<(T, T)> for ExactDot {
    #[inline(always)]
    fn of_sum(sum: impl Exact, count: u64) -> T::Rounded {
        T::rounded_products(sum, count)
    }
}
