//! Exponential and logarithm with the same bits on all devices: C libraries differ, and GPUs have no such
//! instructions.

use crate::element::{Dtype, Element};
use crate::op::{fma, two_sum};

/// The greatest magnitude of distances: the sum of 2^64 exponentials of NEAR does not overflow, and the
/// exponential of −NEAR is a normal number.
pub(crate) const NEAR: f64 = 600.0;

const LN_2: [f64; 2] = [0.6931471803691238, 1.9082149292705877e-10]; // 32 bits, and the rest

/// Returns e^(`distance` + `error`), for a distance within ±700 and its rounding error: to 2^-52, or for
/// elements whose result is an `f32` to 2^-24, without the error.
///
/// It is 2^n · e^r, with the whole number n that makes r least. A polynomial that interpolates e^r at
/// Chebyshev's nodes computes e^r: of degree 6 to 2 · 10^-8, of degree 11 to 2 · 10^-17.
#[inline(always)]
pub(crate) fn exp<T: Element>([distance, error]: [f64; 2]) -> f64 {
    // Adding it to a number rounds that to a whole number, in the lowest bits.
    const ROUND: f64 = 1.5 * (1u64 << 52) as f64;
    let rounded = fma(distance, core::f64::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    let power = match T::DTYPE {
        Dtype::F16 | Dtype::Bf16 | Dtype::F32 => {
            let r = fma(n, -core::f64::consts::LN_2, distance) as f32;
            polynomial(
                r,
                [1.394_111_9e-3, 8.375_134e-3, 4.166_635e-2, 1.666_641_5e-1, 0.5, 1.0, 1.0],
                fma_f32,
            )
            .into()
        }
        _ => {
            let r = fma(n, -LN_2[1], fma(n, -LN_2[0], distance));
            let coefficients = [
                2.5110049204818658e-8,
                2.763265472252779e-7,
                2.755724088722987e-6,
                2.4801485441561313e-5,
                1.9841269890076403e-4,
                1.3888888952352863e-3,
                8.333333333319589e-3,
                4.166666666648795e-2,
                1.666666666666668e-1,
                0.5000000000000019,
                1.0,
                1.0,
            ];
            let power = polynomial(r, coefficients, fma);
            fma(power, error, power)
        }
    };
    let exponent = (rounded.to_bits() as u32) << 20;
    #[cfg(target_arch = "nvptx64")]
    {
        cuda_std::intrinsics::add_to_upper_word(power, exponent)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        f64::from_bits(power.to_bits().wrapping_add(u64::from(exponent) << 32))
    }
}

/// Evaluates the polynomial with these coefficients, that of the highest power first.
#[inline(always)]
fn polynomial<V: Copy, const N: usize>(x: V, coefficients: [V; N], fma: impl Fn(V, V, V) -> V) -> V {
    let mut value = coefficients[0];
    let mut index = 1;
    while index < N {
        value = fma(value, x, coefficients[index]);
        index += 1;
    }
    value
}

#[inline(always)]
fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        cuda_std::intrinsics::fma_f32(a, b, c)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        a.mul_add(b, c)
    }
}

/// Returns `from` + ln `value`, for a normal number above 0; NaN for a NaN.
///
/// The logarithm is k · ln 2 + ln c with c from √½ to √2, and ln c = 2 artanh s with s = (c − 1) / (c + 1),
/// by its series.
///
/// A function that kernels call, in many places, once for a result.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(crate) fn plus_ln(from: f64, value: f64) -> f64 {
    if value.is_nan() || from.is_infinite() {
        return from + value;
    }
    const FRACTION: u64 = (1 << 52) - 1;
    let bits = value.to_bits();
    let (mut k, mut c) = ((bits >> 52) as i32 - 1023, f64::from_bits(bits & FRACTION | 1.0f64.to_bits()));
    if c > core::f64::consts::SQRT_2 {
        (k, c) = (k + 1, 0.5 * c);
    }
    let s = (c - 1.0) / (c + 1.0);
    let square = s * s;
    let mut series = 0.0;
    let mut odd = 23.0;
    while odd > 1.0 {
        series = (series + 1.0 / odd) * square;
        odd -= 2.0;
    }
    let k = f64::from(k);
    // The first product is exact, and the sum may cancel.
    let [sum, error] = two_sum(from, k * LN_2[0]);
    sum + (2.0 * s + (2.0 * s * series + (k * LN_2[1] + error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_the_c_library() {
        for i in -60_000..=60_000 {
            let x = f64::from(i) * 0.01 + 1e-3 / f64::from(i).abs().max(1.0);
            let x = x.clamp(-NEAR, NEAR);
            assert!((exp::<f64>([x, 0.0]) / x.exp() - 1.0).abs() < 5e-16, "{x}");
            assert!((exp::<f32>([x, 0.0]) / x.exp() - 1.0).abs() < 1.5e-7, "{x}");
            let y = x.exp();
            assert!((plus_ln(0.0, y) - y.ln()).abs() <= 4e-16 * y.ln().abs(), "{y}");
            assert!((plus_ln(-x, y)).abs() <= 2e-16 * x.abs().max(2.0), "{y}");
        }
        assert_eq!((exp::<f64>([0.0; 2]), exp::<f32>([0.0; 2]), plus_ln(7.5, 1.0)), (1.0, 1.0, 7.5));
        assert!(plus_ln(0.0, f64::NAN).is_nan() && exp::<f32>([f64::NAN, 0.0]).is_nan());
    }
}
