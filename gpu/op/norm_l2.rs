use super::{canonical, sqrt};
use crate::element::{Dtype, Element};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The square root of the sum of squares, with no overflow and no underflow on the way: an `f64` for integers and `f64`, else an `f32`. Of
/// no elements it is 0.
///
/// Squares sum in `f64`: those of small, of middling and of large elements apart, the small and the large ones scaled by powers of
/// two (J. L. Blue, "A portable Fortran program to find the Euclidean norm of a vector", 1978, as in LAPACK's `dnrm2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NormL2;

impl<T: Element> Op<T> for NormL2 {
    const NAME: &'static str = "norm_l2";
    type Accumulator = [f64; 3];
    type Output = T::Real;
    const EXACT: bool = false;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu();

    #[inline(always)]
    fn identity(&self) -> [f64; 3] {
        [-0.0; 3]
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> [f64; 3] {
        let value = element.to_f64();
        if cfg!(not(target_arch = "nvptx64")) {
            return on_cpu::<T>(value);
        }
        let magnitude = f64::from_bits(value.to_bits() << 1 >> 1);
        let (small, large) = (value * UP, value * DOWN);
        if magnitude > LARGE {
            [-0.0, -0.0, large * large]
        } else if magnitude < SMALL {
            [small * small, -0.0, -0.0]
        } else {
            [-0.0, value * value, -0.0]
        }
    }

    #[inline(always)]
    fn combine(&self, a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
        [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
    }

    #[inline(always)]
    fn finish(&self, all: [f64; 3], count: u64) -> Option<T::Real> {
        let [small, middling, large] = all;
        if count == 0 {
            return Some(T::real(0.0));
        }
        let norm = if large > 0.0 || large.is_nan() {
            sqrt(large + middling * DOWN * DOWN) * UP
        } else if small > 0.0 && middling < ENOUGH {
            sqrt(small + middling * UP * UP) * DOWN
        } else {
            // Zeros alone leave the identity here, which is −0.0.
            sqrt(middling + 0.0)
        };
        Some(T::real(canonical(norm)))
    }
}

/// The same squares, by one multiplication: those of other magnitudes would be subnormal, which take some processors a hundred
/// times as long. Of narrower types all that is not zero is middling, and an infinity's square is infinite.
#[inline(always)]
fn on_cpu<T: Element>(value: f64) -> [f64; 3] {
    if !matches!(T::DTYPE, Dtype::F64) {
        return [-0.0, value * value, -0.0];
    }
    let magnitude = f64::from_bits(value.to_bits() << 1 >> 1);
    let (small, large) = (magnitude < SMALL, magnitude > LARGE);
    let scale = if large { DOWN } else { 1.0 };
    let scaled = value * if small { UP } else { scale };
    let square = scaled * scaled;
    let if_so = |so: bool| if so { square } else { -0.0 };
    [if_so(small), if_so(!small & !large), if_so(large)]
}

/// Elements above this are large: their squares, scaled, sum up without overflow.
const LARGE: f64 = f64::from_bits((1023 + 486) << 52);

/// Elements below this are small: their squares lose no bits when they are scaled.
const SMALL: f64 = f64::from_bits((1023 - 511) << 52);

/// By what small elements are scaled, and large ones back.
const UP: f64 = f64::from_bits((1023 + 538) << 52);

/// By what large elements are scaled, and small ones back.
const DOWN: f64 = f64::from_bits((1023 - 538) << 52);

/// Beside a sum of middling squares of at least this, those of small elements are of no account.
const ENOUGH: f64 = f64::from_bits((1023 - 900) << 52);
