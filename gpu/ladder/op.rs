//! The bounds that the ladder adds to [`Element`] and [`Op`].

use crate::element::{Key, Wide};
use crate::{Element, Max, Min, Op, Prod, Sum};
use bytemuck::Pod;
use core::sync::atomic::Ordering::Relaxed;
use cuda_std::atomic::{AtomicF32, AtomicF64, AtomicI32, AtomicI64};

/// The types that the ladder is compiled for: `i32`, `i64`, `f32`, `f64`. Their accumulators are among them.
pub trait LadderElement: Element<Wide: AtomicWide, Key: AtomicKey> {}

impl LadderElement for i32 {}
impl LadderElement for i64 {}
impl LadderElement for f32 {}
impl LadderElement for f64 {}

/// An operator of the ladder: [`Sum`], [`Prod`], [`Min`] or [`Max`]. The same operator reduces its
/// accumulators as elements, and lifting an accumulator returns it.
pub trait LadderOp<T: LadderElement>: Op<T, Accumulator: Element, Output: Pod> + Default {
    /// Combines `value` into the accumulator at `target` in one atomic step, with relaxed ordering.
    ///
    /// # Safety
    ///
    /// `target` is valid and aligned, in global memory, and every access to it meanwhile is atomic.
    unsafe fn combine_atomically(target: *mut Self::Accumulator, value: Self::Accumulator);
}

macro_rules! ladder_operators {
    ($($op:ident: $type:ident $method:ident;)*) => {$(
        impl<T: LadderElement> LadderOp<T> for $op {
            #[inline(always)]
            unsafe fn combine_atomically(target: *mut T::$type, value: T::$type) {
                // SAFETY: as the caller promises.
                unsafe { value.$method(target) }
            }
        }
    )*};
}

ladder_operators! {
    Sum: Wide add_to;
    Prod: Wide multiply_into;
    Min: Key lower;
    Max: Key raise;
}

/// A wide type with atomic addition and multiplication.
pub trait AtomicWide: Wide + Element {
    /// Adds `self` to `*target`.
    ///
    /// # Safety
    ///
    /// As for [`LadderOp::combine_atomically`].
    unsafe fn add_to(self, target: *mut Self);

    /// Multiplies `*target` by `self`.
    ///
    /// # Safety
    ///
    /// As for [`LadderOp::combine_atomically`].
    unsafe fn multiply_into(self, target: *mut Self);
}

/// A key type with atomic minimum and maximum.
pub trait AtomicKey: Key + Element {
    /// Makes `*target` the lesser of the two.
    ///
    /// # Safety
    ///
    /// As for [`LadderOp::combine_atomically`].
    unsafe fn lower(self, target: *mut Self);

    /// Makes `*target` the greater of the two.
    ///
    /// # Safety
    ///
    /// As for [`LadderOp::combine_atomically`].
    unsafe fn raise(self, target: *mut Self);
}

macro_rules! wide {
    ($($type:ident $atomic:ident)*) => {$(
        impl AtomicWide for $type {
            #[inline(always)]
            unsafe fn add_to(self, target: *mut Self) {
                // SAFETY: as the caller promises.
                unsafe { $atomic::from_ptr(target) }.fetch_add(self, Relaxed);
            }

            // There is no atomic multiplication. So the product is swapped in if the factor has not changed
            // meanwhile. The bits are compared, because a NaN is not equal to itself.
            #[inline(always)]
            unsafe fn multiply_into(self, target: *mut Self) {
                // SAFETY: as the caller promises.
                let product = unsafe { $atomic::from_ptr(target) };
                let mut factor = product.load(Relaxed);
                loop {
                    let found = product.compare_and_swap(factor, factor.times(self), Relaxed);
                    if found.to_ne_bytes() == factor.to_ne_bytes() {
                        break;
                    }
                    factor = found;
                }
            }
        }
    )*};
}

macro_rules! keys {
    ($($type:ident $atomic:ident)*) => {$(
        impl AtomicKey for $type {
            #[inline(always)]
            unsafe fn lower(self, target: *mut Self) {
                // SAFETY: as the caller promises.
                unsafe { $atomic::from_ptr(target) }.fetch_min(self, Relaxed);
            }

            #[inline(always)]
            unsafe fn raise(self, target: *mut Self) {
                // SAFETY: as the caller promises.
                unsafe { $atomic::from_ptr(target) }.fetch_max(self, Relaxed);
            }
        }
    )*};
}

wide! { i64 AtomicI64 f32 AtomicF32 f64 AtomicF64 }
keys! { i32 AtomicI32 i64 AtomicI64 }
