//! The expected results, computed in another way: integers in 128 bits, floats in twice the working
//! precision, with a bound on the error of any order.

use gpu_reduce::{Element, Max, Min, Op, Prod, Sum, bf16, f16};
use rayon::prelude::*;
use std::cmp::Ordering;

/// The expected result of operator `O` on a slice of `Self`, and which results are right.
pub trait Reference<O: Op<Self>>: Element {
    /// The reference result, which does not depend on BLOCK.
    type Expected: Send + Sync;

    /// Computes it on all threads.
    fn expected(data: &[Self]) -> Self::Expected;

    /// Panics with `context` unless `got` is right for a reduction with at most `depth` operations between an
    /// element and the result.
    fn check(got: O::Output, expected: &Self::Expected, depth: u64, context: &str);
}

/// The order of minima: NaNs first, all equal, then −0.0 before +0.0.
pub trait Ordered: Element {
    /// How `self` compares with `other`.
    fn order(&self, other: &Self) -> Ordering;
}

/// A float as the unevaluated sum of two `f64`: about 106 bits. (T. J. Dekker, 1971; D. E. Knuth's two-sum.)
#[derive(Clone, Copy)]
pub struct Double(f64, f64);

impl Double {
    fn plus(self, other: Double) -> Double {
        let sum = self.0 + other.0;
        let part = sum - self.0;
        let error = (self.0 - (sum - part)) + (other.0 - part) + self.1 + other.1;
        let high = sum + error;
        Double(high, error - (high - sum))
    }

    fn times(self, other: Double) -> Double {
        let product = self.0 * other.0;
        let error = self.0.mul_add(other.0, -product) + self.0 * other.1 + self.1 * other.0;
        let high = product + error;
        Double(high, error - (high - product))
    }

    /// The distance to `value`.
    fn distance(self, value: f64) -> f64 {
        ((self.0 - value) + self.1).abs()
    }
}

macro_rules! integers {
    ($($type:ident $wide:ident;)*) => {$(
        impl Ordered for $type {
            fn order(&self, other: &Self) -> Ordering {
                self.cmp(other)
            }
        }

        impl Reference<Sum> for $type {
            type Expected = $wide;
            fn expected(data: &[Self]) -> $wide {
                data.par_iter().map(|&x| i128::from(x)).sum::<i128>() as $wide
            }
            fn check(got: $wide, expected: &$wide, _: u64, context: &str) {
                assert_eq!(got, *expected, "{context}");
            }
        }

        impl Reference<Prod> for $type {
            type Expected = $wide;
            fn expected(data: &[Self]) -> $wide {
                data.par_iter().map(|&x| i128::from(x)).reduce(|| 1, i128::wrapping_mul) as $wide
            }
            fn check(got: $wide, expected: &$wide, _: u64, context: &str) {
                assert_eq!(got, *expected, "{context}");
            }
        }

        impl Reference<Min> for $type {
            type Expected = $type;
            fn expected(data: &[Self]) -> $type {
                *data.par_iter().min().unwrap()
            }
            fn check(got: $type, expected: &$type, _: u64, context: &str) {
                assert_eq!(got, *expected, "{context}");
            }
        }

        impl Reference<Max> for $type {
            type Expected = $type;
            fn expected(data: &[Self]) -> $type {
                *data.par_iter().max().unwrap()
            }
            fn check(got: $type, expected: &$type, _: u64, context: &str) {
                assert_eq!(got, *expected, "{context}");
            }
        }
    )*};
}

macro_rules! floats {
    ($($type:ident $wide:ident;)*) => {$(
        impl Ordered for $type {
            fn order(&self, other: &Self) -> Ordering {
                match (self.is_nan(), other.is_nan()) {
                    (false, false) => self.total_cmp(other),
                    (one, two) => two.cmp(&one),
                }
            }
        }

        impl Reference<Sum> for $type {
            /// The sum, and the sum of the magnitudes.
            type Expected = (Double, f64);
            fn expected(data: &[Self]) -> Self::Expected {
                let lift = |&x: &$type| (Double(f64::from(x), 0.0), f64::from(x).abs());
                let add = |a: (Double, f64), b: (Double, f64)| (a.0.plus(b.0), a.1 + b.1);
                data.par_iter().map(lift).reduce(|| (Double(0.0, 0.0), 0.0), add)
            }
            /// There are at most `depth` additions between an element and the result. Each rounds by half an
            /// epsilon of a partial sum, which the sum of magnitudes bounds. (N. J. Higham, Accuracy and
            /// Stability of Numerical Algorithms, 4.2.)
            fn check(got: $wide, (sum, size): &Self::Expected, depth: u64, context: &str) {
                let bound = depth as f64 * f64::from($wide::EPSILON) / 2.0 * size * 1.001;
                let error = sum.distance(f64::from(got));
                assert!(error <= bound, "{context}: {got} is off by {error:e}, over the bound {bound:e}");
            }
        }

        impl Reference<Prod> for $type {
            /// The product, and the number of factors that are not ±1.
            type Expected = (Double, u64);
            fn expected(data: &[Self]) -> Self::Expected {
                let lift = |&x: &$type| (Double(f64::from(x), 0.0), u64::from(f64::from(x).abs() != 1.0));
                let multiply = |a: (Double, u64), b: (Double, u64)| (a.0.times(b.0), a.1 + b.1);
                data.par_iter().map(lift).reduce(|| (Double(1.0, 0.0), 0), multiply)
            }
            /// A multiplication rounds only if neither side is ±1: once for each such factor, and once for
            /// each fold of two accumulators, of which there are no more than such factors.
            fn check(got: $wide, (product, others): &Self::Expected, _: u64, context: &str) {
                let roundings = 2 * others;
                let bound = roundings as f64 * f64::from($wide::EPSILON) / 2.0 * product.0.abs() * 1.2;
                let error = product.distance(f64::from(got));
                assert!(error <= bound, "{context}: {got} is off by {error:e}, over the bound {bound:e}");
            }
        }

        impl Reference<Min> for $type {
            type Expected = $type;
            fn expected(data: &[Self]) -> $type {
                *data.par_iter().min_by(|a, b| a.total_cmp(b)).unwrap()
            }
            fn check(got: $type, expected: &$type, _: u64, context: &str) {
                assert_eq!(got.to_bits(), expected.to_bits(), "{context}: {got} for {expected}");
            }
        }

        impl Reference<Max> for $type {
            type Expected = $type;
            fn expected(data: &[Self]) -> $type {
                *data.par_iter().max_by(|a, b| a.total_cmp(b)).unwrap()
            }
            fn check(got: $type, expected: &$type, _: u64, context: &str) {
                assert_eq!(got.to_bits(), expected.to_bits(), "{context}: {got} for {expected}");
            }
        }
    )*};
}

integers! { i8 i64; i16 i64; i32 i64; i64 i64; u8 u64; u16 u64; u32 u64; u64 u64; }
floats! { f16 f32; bf16 f32; f32 f32; f64 f64; }
