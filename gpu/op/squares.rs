//! Sums of squares, for the Euclidean norm.

use super::sqrt;
#[cfg(not(target_arch = "nvptx64"))]
use crate::element::Element;
use crate::element::Summand;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::Op;
use bytemuck::{Pod, Zeroable};

/// A sum of squares. It does not overflow or underflow if the square root of the sum is representable.
pub trait Squares: Summand {
    /// Returns the square of one value.
    fn of(value: f64) -> Self;
    /// Returns the square root of the sum; not negative.
    fn root(self) -> f64;
    /// Converts a sum of [`Middling`], or returns `None` if other values were among its items. Only for sums
    /// that scale.
    #[cfg(not(target_arch = "nvptx64"))]
    fn of_middling(_sum: f64) -> Option<Self> {
        None
    }
}

/// For types other than `f64`: the squares of the least and of the greatest `f32` are normal numbers.
impl Squares for f64 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value * value
    }

    #[inline(always)]
    fn root(self) -> f64 {
        // + 0.0, because the sum of no values is −0.0.
        sqrt(self + 0.0)
    }
}

/// The sums of the squares of small, middling and large values; those of small and large values are scaled by
/// powers of two. (J. L. Blue, "A portable Fortran program to find the Euclidean norm of a vector", 1978, as
/// in LAPACK's `dnrm2`.)
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Scaled {
    small: f64,
    middling: f64,
    large: f64,
}

impl Summand for Scaled {
    const NOTHING: Self = Self { small: -0.0, middling: -0.0, large: -0.0 };

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self {
            small: self.small + other.small,
            middling: self.middling + other.middling,
            large: self.large + other.large,
        }
    }
}

impl Squares for Scaled {
    /// Computes only the square that counts: those by the other scales would be subnormal, which some
    /// processors take a hundred times as long for.
    #[inline(always)]
    fn of(value: f64) -> Self {
        let magnitude = f64::from_bits(value.to_bits() << 1 >> 1);
        let (small, large) = (magnitude < SMALL, magnitude > LARGE);
        let scale = if large { DOWN } else { 1.0 };
        let scaled = value * if small { UP } else { scale };
        let square = scaled * scaled;
        let if_so = |so: bool| if so { square } else { -0.0 };
        Self { small: if_so(small), middling: if_so(!small & !large), large: if_so(large) }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn of_middling(sum: f64) -> Option<Self> {
        (sum < LARGE * LARGE).then_some(Self { middling: sum, ..Self::NOTHING })
    }

    #[inline(always)]
    fn root(self) -> f64 {
        let Self { small, middling, large } = self;
        if large > 0.0 || large.is_nan() {
            sqrt(large + middling * DOWN * DOWN) * UP
        } else if small > 0.0 && middling < ENOUGH {
            sqrt(small + middling * UP * UP) * DOWN
        } else {
            middling.root()
        }
    }
}

/// The sum of the squares of middling values and zeros, which need no scale, on a CPU.
///
/// A small value makes the sum NaN. A large value makes it NaN or at least the least square of a large value,
/// because sums of squares only grow. Zeros may sum to another zero than in [`Scaled`]; it has the same
/// square root.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
pub(crate) struct Middling;

#[cfg(not(target_arch = "nvptx64"))]
impl<T: Element> Op<T> for Middling {
    const NAME: &'static str = "norm_l2";
    type Accumulator = f64;
    type Output = f64;
    const EXACT: bool = false;

    accumulators_add_up! { f64 }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> f64 {
        let value = element.as_f64();
        // One comparison of integers for both bounds: 0 becomes the greatest.
        let small = (value.to_bits() << 1).wrapping_sub(1) < (SMALL.to_bits() << 1) - 1;
        if small { f64::NAN } else { value * value }
    }

    #[inline(always)]
    fn finish(&self, all: f64, _: u64) -> Option<f64> {
        Some(all)
    }
}

/// Values above this are large; the scaled squares of all of them sum without overflow.
const LARGE: f64 = f64::from_bits((1023 + 486) << 52);

/// Values below this are small; their scaled squares lose no bits.
const SMALL: f64 = f64::from_bits((1023 - 511) << 52);

/// The scale of small values, and that of large sums back.
const UP: f64 = f64::from_bits((1023 + 538) << 52);

/// The scale of large values, and that of small sums back.
const DOWN: f64 = f64::from_bits((1023 - 538) << 52);

/// Beside a sum of middling squares of at least this, the squares of small values do not count.
const ENOUGH: f64 = f64::from_bits((1023 - 900) << 52);
