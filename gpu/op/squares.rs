//! What the Euclidean norm sums in.

use super::sqrt;
use crate::element::Accumulator;
#[cfg(not(target_arch = "nvptx64"))]
use crate::element::Element;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::Op;
use bytemuck::{Pod, Zeroable};

/// Sums of squares with no overflow and no underflow where the root of the sum is representable.
pub trait Squares: Accumulator {
    /// No squares.
    const NOTHING: Self;
    /// The square of one value.
    fn of(value: f64) -> Self;
    /// The squares of both.
    fn plus(self, other: Self) -> Self;
    /// The root of their sum, not negative.
    fn root(self) -> f64;
    /// Those that [`Middling`] has summed, if it could; never of squares that are never scaled.
    #[cfg(not(target_arch = "nvptx64"))]
    fn of_middling(_sum: f64) -> Option<Self> {
        None
    }
}

/// Of values that are no `f64`: squares of the least and of the greatest `f32` are normal numbers.
impl Squares for f64 {
    const NOTHING: Self = -0.0;

    #[inline(always)]
    fn of(value: f64) -> Self {
        value * value
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }

    #[inline(always)]
    fn root(self) -> f64 {
        // Of no values, −0.0.
        sqrt(self + 0.0)
    }
}

/// The squares of small, of middling and of large values apart, the small and the large ones scaled by powers of two. (J. L. Blue,
/// "A portable Fortran program to find the Euclidean norm of a vector", 1978, as in LAPACK's `dnrm2`.)
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Scaled {
    small: f64,
    middling: f64,
    large: f64,
}

impl Squares for Scaled {
    const NOTHING: Self = Self { small: -0.0, middling: -0.0, large: -0.0 };

    /// By one multiplication: the squares by other scales would be subnormal, which take some processors a hundred times as long.
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

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self {
            small: self.small + other.small,
            middling: self.middling + other.middling,
            large: self.large + other.large,
        }
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

/// The sum of squares that need no scale, those of middling values and of zeros, on a CPU. Where there are small values it is NaN; where
/// there are large ones, NaN or as great as the least of their squares, because sums of squares only grow. Zeros may sum to another zero
/// than in [`Scaled`], which has the same root.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
pub(super) struct Middling;

#[cfg(not(target_arch = "nvptx64"))]
impl<T: Element> Op<T> for Middling {
    const NAME: &'static str = "norm_l2";
    type Accumulator = f64;
    type Output = f64;
    const EXACT: bool = false;

    #[inline(always)]
    fn identity(&self) -> f64 {
        -0.0
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> f64 {
        let value = element.to_f64();
        // As integers, of which 0 becomes the greatest: one comparison for both.
        let small = (value.to_bits() << 1).wrapping_sub(1) < (SMALL.to_bits() << 1) - 1;
        if small { f64::NAN } else { value * value }
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

/// Values above this are large: their squares, scaled, sum up without overflow.
const LARGE: f64 = f64::from_bits((1023 + 486) << 52);

/// Values below this are small: their squares lose no bits when they are scaled.
const SMALL: f64 = f64::from_bits((1023 - 511) << 52);

/// By what small values are scaled, and large ones back.
const UP: f64 = f64::from_bits((1023 + 538) << 52);

/// By what large values are scaled, and small ones back.
const DOWN: f64 = f64::from_bits((1023 - 538) << 52);

/// Beside a sum of middling squares of at least this, those of small values are of no account.
const ENOUGH: f64 = f64::from_bits((1023 - 900) << 52);
