//! The sum of exponentials of distances from one number: how a chunk is first folded for
//! [`LogSumExp`](struct@crate::LogSumExp).
//!
//! Most chunks need one exponential an item, of the item's distance from the first item. [`Near`] sums these.
//! Its sum shows if an item was too far above the first for an `f64`. Then the chunk is folded once more, by
//! the general operator. Warps fold rows and segments in the same way: by [`Near`], and once more if its sum shows such an item.

use super::{Agent, Room, Step, of_row, room};
use crate::element::{Dtype, Element};
#[cfg(not(target_arch = "nvptx64"))]
use crate::host_simd::{self, Source};
use crate::input::{Input, OneByOne};
use crate::op::by_value::{Value, taken};
use crate::op::exponential::{NEAR, exp};
use crate::op::logsumexp::Exponentials;
use crate::op::{LogSumExp, Op, two_sum};
use crate::stage::chunk;
use crate::table::Row;
use bytemuck::{Pod, Zeroable};
use cuda_std::{shared_array, thread, warp};

/// Sums exponentials of distances from `origin`, the first item, or NaN if that does not serve.
///
/// Items far below the origin count as if they were at a distance of −[`NEAR`]: they do not matter beside the
/// origin. Items far above, and NaN, count as so much that the sum [will not do](Self::will_do).
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Near {
    pub(crate) origin: f64,
    /// Not 0 if items are of the second of two types that share a kernel (`op/twins.rs`), which only kernels know. (A `bool` would be no
    /// plain value.)
    pub(crate) is_second: u64,
}

impl Near {
    /// Distances from the first item, if it is a number below 2^30 in magnitude.
    #[inline(always)]
    pub(crate) fn from<T: Element>(self, first: T) -> Self {
        const MOST: f64 = (1 << 30) as f64;
        let first = self.value(first);
        Self { origin: if first.abs() < MOST { first } else { f64::NAN }, ..self }
    }

    /// Returns an item's value.
    #[inline(always)]
    pub(crate) fn value<T: Element>(self, item: T) -> f64 {
        taken(Value, item, self.is_second != 0)
    }

    /// Whether no item of a sum was too far above the origin.
    #[inline(always)]
    pub(crate) fn will_do(self, sum: f64) -> bool {
        const EXP_NEAR: f64 = 3.7730203009299397e260;
        sum < EXP_NEAR && !self.origin.is_nan()
    }

    /// Returns the distance of a value of type `T` and its rounding error.
    #[inline(always)]
    pub(crate) fn distance<T: Element>(self, value: f64) -> [f64; 2] {
        let (least, most) = (self.origin - NEAR, self.origin + 1.1 * NEAR);
        // The minimum first: a NaN is not less than `most`, and becomes it.
        match T::DTYPE {
            // In `f32`, for which a GPU has instructions.
            Dtype::F16 | Dtype::Bf16 | Dtype::F32 => {
                let value = at_least(at_most(value as f32, most as f32), least as f32);
                [f64::from(value) - self.origin, 0.0]
            }
            _ => {
                let value = if value < most { value } else { most };
                two_sum(if value > least { value } else { least }, -self.origin)
            }
        }
    }
}

/// Folds a chunk for [`LogSumExp`](struct@crate::LogSumExp): by [`Near`] if its distances will do, else once more by the operator.
#[derive(Clone, Copy)]
pub(crate) struct NearFirst;

impl<I: Element> Agent<LogSumExp, I> for NearFirst {
    of_row! { LogSumExp }
    const ROOM: Room = room::<Near, I>();
    const FOLDS_BY_LOADS: bool = false;
    const FOLDED_BYTES: usize = size_of::<f64>();

    #[inline(always)]
    fn fold_item(self, op: &LogSumExp, all: &mut Exponentials, item: I, _: u64) {
        let near = exp::<I>(op.near.distance::<I>(op.near.value(item)));
        if all.is_near() && op.near.will_do(near) {
            all.add_near(near);
        } else {
            *all = fold_any::<I>(op, *all, op.near.value(item));
        }
    }

    #[inline(always)]
    unsafe fn fold_step(self, step: &mut impl Step<LogSumExp, I>) {
        // SAFETY: as the caller vouches.
        unsafe {
            let take_near = |near: &Near, sum| {
                near.will_do(sum).then_some((LogSumExp { near: *near }, Exponentials::near(sum)))
            };
            let are_near = step.fold(|op| op.near, take_near);
            if !warp::warp_vote_all(warp::ALL, are_near) {
                step.fold(Far, |far, all| Some((far.0, all)));
            }
        }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = I>>(
        self,
        op: &LogSumExp,
        chunk: S,
        first: u64,
        row: usize,
    ) -> Exponentials {
        let sum = host_simd::fold_chunk(&op.near, chunk, first, row);
        if op.near.will_do(sum) {
            Exponentials::near(sum)
        } else {
            host_simd::fold_chunk(op, chunk, first, row)
        }
    }

    #[inline(always)]
    unsafe fn fold_on_gpu<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize>(
        self,
        op: &LogSumExp,
        chunk: P,
        len: u32,
        start: u64,
    ) -> Exponentials {
        let is_near = shared_array![u32; 1];
        // SAFETY: as the caller vouches. All threads are at the barrier, and read the same value.
        unsafe {
            let sum = chunk::fold_chunk::<_, P, BLOCK, WIDTH>(&op.near, chunk, len, start);
            if thread::thread_idx_x() == 0 {
                is_near.write(0, op.near.will_do(sum).into());
            }
            thread::sync_threads();
            if is_near.read(0) == 1 {
                return Exponentials::near(sum);
            }
            // One item at a time: there is no shared memory for another exchange.
            chunk::fold_chunk::<_, OneByOne<P>, BLOCK, WIDTH>(&Far(*op), OneByOne(chunk), len, start)
        }
    }
}

/// Folds as [`LogSumExp`](struct@crate::LogSumExp) says, when there are items that are not near the first.
#[derive(Clone, Copy)]
pub(super) struct Far(LogSumExp);

impl<T: Element> Op<T> for Far {
    const NAME: &'static str = "logsumexp";
    type Accumulator = Exponentials;
    type Output = T::Real;
    const EXACT: bool = false;

    fn agent() -> impl Agent<Self, T> {
        Rarely
    }

    #[inline(always)]
    fn identity(&self) -> Exponentials {
        Op::<T>::identity(&self.0)
    }

    #[inline(always)]
    fn lift(&self, element: T, index: u64) -> Exponentials {
        self.0.lift(element, index)
    }

    #[inline(always)]
    fn combine(&self, a: Exponentials, b: Exponentials) -> Exponentials {
        Op::<T>::combine(&self.0, a, b)
    }

    #[inline(always)]
    fn finish(&self, all: Exponentials, count: u64) -> Option<T::Real> {
        Op::<T>::finish(&self.0, all, count)
    }
}

/// Folds one item after another, each by a function.
#[derive(Clone, Copy)]
pub(super) struct Rarely;

impl<I: Element> Agent<Far, I> for Rarely {
    const ROOM: Room = room::<Near, I>();
    const FOLDS_BY_LOADS: bool = false;
    const FOLDED_BYTES: usize = size_of::<f64>();
    const IS_RARE: bool = true;

    #[inline(always)]
    fn fold_item(self, far: &Far, all: &mut Exponentials, item: I, _: u64) {
        *all = fold_any::<I>(&far.0, *all, far.0.near.value(item));
    }

    #[inline(always)]
    fn fold_load<const WIDTH: usize>(
        self,
        far: &Far,
        all: &mut [Exponentials; WIDTH],
        items: [I; WIDTH],
        index: u64,
    ) {
        for (all, item) in all.iter_mut().zip(items) {
            self.fold_item(far, all, item, index);
        }
    }
}

/// Folds an item that may be far from the first. A function that kernels call, in many places, seldom.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(always))]
fn fold_any<T: Element>(op: &LogSumExp, all: Exponentials, value: f64) -> Exponentials {
    Op::<T>::combine(op, all, op.lift_value::<T>(value))
}

/// The smaller of `value` and `most`; `most` for NaN.
#[inline(always)]
fn at_most(value: f32, most: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        cuda_std::intrinsics::fmin_f32(value, most)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        if value < most { value } else { most }
    }
}

/// The larger of `value` and `least`; `least` for NaN.
#[inline(always)]
fn at_least(value: f32, least: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        cuda_std::intrinsics::fmax_f32(value, least)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        if value > least { value } else { least }
    }
}

impl<T: Element> Op<T> for Near {
    const NAME: &'static str = "logsumexp";
    type Accumulator = f64;
    type Output = f64;
    const EXACT: bool = false;

    #[inline(always)]
    fn identity(&self) -> f64 {
        0.0
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> f64 {
        exp::<T>(self.distance::<T>(self.value(element)))
    }

    #[inline(always)]
    fn combine(&self, a: f64, b: f64) -> f64 {
        a + b
    }

    #[inline(always)]
    fn finish(&self, all: f64, _: u64) -> Option<f64> {
        Some(all)
    }
}
