//! Matrix products as a GPU's tensor cores compute them. (PTX ISA, "Warp Level Matrix Multiply-Accumulate
//! Instructions".)
//!
//! Integers are exact, and `f64` is a chain of fused multiply-adds in the order of k. The ISA leaves the sums
//! of narrow floats open. For each element of the result, GPUs of compute capability 9.0 do this:
//!
//! ```text
//! multiply the significands exactly, subnormal ones as they are, and add the exponents
//! cut off the products and c at EXTRA bits below the highest exponent among them
//! add them exactly
//! round the sum, to f32 toward zero or to f16 to nearest; a zero is positive
//! ```
//!
//! This is the model of Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores"
//! (arXiv 2511.10909). The signs of zeros, and the steps and conversions of `wmma`, were measured on an H200,
//! which agrees in more than 2 million elements, except that a NaN of `f64` keeps its payload there.

use super::number::canonical_f64;
use super::soft::{F16, F32, F64, Format, Number, Rounding};

/// Bits that terms keep below the leading bit of the highest exponent.
const EXTRA: i32 = 25;

/// `.tf32`: the upper bits of a register. The others are ignored.
pub const TF32: Format = Format { exponent: 8, fraction: 10, nan: 0x3_ffff };
const TF32_IGNORED: u32 = 13;

/// How elements are multiplied and summed.
#[derive(Clone, Copy, Debug)]
pub enum Arithmetic {
    /// Sums of 32 bits, which wrap or saturate. With `differs`, of the exclusive or of single bits instead of
    /// the product.
    Integer {
        a: Narrow,
        b: Narrow,
        saturates: bool,
        differs: bool,
    },
    /// The formats of the factors, of c and of the result; `step` products are summed at once.
    Float {
        factor: Format,
        c: Format,
        d: Format,
        step: usize,
    },
    Double(Rounding),
}

/// An integer of 1, 4 or 8 bits.
#[derive(Clone, Copy, Debug)]
pub struct Narrow {
    pub bits: u32,
    pub signed: bool,
}

impl Narrow {
    fn value(self, element: u64) -> i64 {
        let shift = 64 - self.bits;
        if self.signed { (element << shift) as i64 >> shift } else { (element << shift >> shift) as i64 }
    }
}

impl Arithmetic {
    /// Returns `a · b + c`, of which `columns` are the columns, as bits. `a` and `c` are given by rows, `b`
    /// by columns; `k` is the length of a row of `a`.
    pub fn multiply(self, k: usize, columns: usize, [a, b, c]: [&[u64]; 3]) -> Vec<u64> {
        match self {
            Arithmetic::Integer { a: of_a, b: of_b, saturates, differs } => {
                let a: Vec<i64> = a.iter().map(|&element| of_a.value(element)).collect();
                let b: Vec<i64> = b.iter().map(|&element| of_b.value(element)).collect();
                by_element(k, columns, (&a, &b, c), |a, b, c| {
                    let products = a.iter().zip(b).map(|(a, b)| if differs { a ^ b } else { a * b });
                    let sum = i64::from(c as u32 as i32) + products.sum::<i64>();
                    let sum = if saturates { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
                    (sum as u32).into()
                })
            }
            Arithmetic::Float { factor, c: of_c, d, step } => {
                let ignored = if factor == TF32 { TF32_IGNORED } else { 0 };
                let terms = |elements: &[u64]| -> Vec<Term> {
                    elements.iter().map(|&element| Term::new(factor, element >> ignored)).collect()
                };
                // If c or the result has f32, the other one is converted.
                let sums = if of_c == F16 && d == F16 { F16 } else { F32 };
                by_element(k, columns, (&terms(a), &terms(b), c), |a, b, c| {
                    let c = converted(c, of_c, sums);
                    let steps = a.chunks(step).zip(b.chunks(step));
                    let sum = steps.fold(c, |c, (a, b)| sum(a, b, Term::new(sums, c), sums));
                    converted(sum, sums, d)
                })
            }
            Arithmetic::Double(rounding) => {
                by_element(k, columns, (a, b, c), |a, b, c| chain(rounding, a, b, c))
            }
        }
    }
}

/// Computes each element of the result from a row of a, a column of b and an element of c.
fn by_element<T>(
    k: usize,
    columns: usize,
    (a, b, c): (&[T], &[T], &[u64]),
    f: impl Fn(&[T], &[T], u64) -> u64,
) -> Vec<u64> {
    let places = c.iter().enumerate();
    let element = |(place, &c): (usize, &u64)| {
        let (row, column) = (place / columns * k, place % columns * k);
        f(&a[row..row + k], &b[column..column + k], c)
    };
    places.map(element).collect()
}

/// Fused multiply-adds, one after another.
fn chain(rounding: Rounding, a: &[u64], b: &[u64], c: u64) -> u64 {
    a.iter().zip(b).fold(c, |c, (&a, &b)| match rounding {
        Rounding::Nearest => {
            let sum = f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c));
            canonical_f64(sum).to_bits()
        }
        _ => F64.round(F64.unpack(a).times(F64.unpack(b)).plus(F64.unpack(c), rounding), rounding),
    })
}

/// Rounds to another format, to nearest.
fn converted(bits: u64, from: Format, to: Format) -> u64 {
    if from == to { bits } else { to.round(from.unpack(bits), Rounding::Nearest) }
}

/// A term of a sum: a number, and its parts if it is finite.
#[derive(Clone, Copy, Debug)]
struct Term {
    number: Number,
    /// The significand is `significand / 2^digits`, below 2 in magnitude.
    significand: i64,
    exponent: i32,
    digits: u32,
}

impl Term {
    fn new(format: Format, bits: u64) -> Term {
        let number = format.unpack(bits);
        let digits = format.fraction;
        match number {
            Number::Finite { negative, exponent, significand } => {
                let magnitude = significand as i64;
                let significand = if negative { -magnitude } else { magnitude };
                Term { number, significand, exponent: exponent + digits as i32, digits }
            }
            _ => Term { number, significand: 0, exponent: 0, digits },
        }
    }

    fn is_finite(&self) -> bool {
        matches!(self.number, Number::Finite { .. })
    }

    /// `self · other`, if both are finite.
    fn times(&self, other: &Term) -> (i64, i32, u32) {
        (self.significand * other.significand, self.exponent + other.exponent, self.digits + other.digits)
    }
}

/// `a · b + c`, rounded to `format`.
fn sum(a: &[Term], b: &[Term], c: Term, format: Format) -> u64 {
    if !a.iter().chain(b).chain([&c]).all(Term::is_finite) {
        let products = a.iter().zip(b).map(|(a, b)| a.number.times(b.number));
        let sum = products.fold(c.number, |sum, product| sum.plus(product, Rounding::Nearest));
        return format.round(sum, Rounding::Nearest);
    }
    let products = || a.iter().zip(b).map(|(a, b)| a.times(b));
    let terms = || products().chain([(c.significand, c.exponent, c.digits)]).filter(|term| term.0 != 0);
    let last = terms().map(|term| term.1).max().unwrap_or(0) - EXTRA;
    let cut = |(significand, exponent, digits): (i64, i32, u32)| match last - (exponent - digits as i32) {
        shift @ ..=0 => significand << -shift,
        // Toward zero.
        shift @ 1..63 => significand / (1 << shift),
        _ => 0,
    };
    let sum: i64 = terms().map(cut).sum();
    let (negative, significand) = (sum < 0, sum.unsigned_abs().into());
    let rounding = if format == F32 { Rounding::Zero } else { Rounding::Nearest };
    let bits = format.round(Number::Finite { negative, exponent: last, significand }, rounding);
    match bits & !format.sign() {
        0 => 0,
        // Rounding toward zero stops here, the GPU does not.
        magnitude if magnitude == format.infinity() - 1 && exceeds(format, last, sum) => bits + 1,
        _ => bits,
    }
}

/// Whether `sum · 2^exponent` is at least a power of two that the format does not have.
fn exceeds(format: Format, exponent: i32, sum: i64) -> bool {
    let digits = sum.unsigned_abs().checked_ilog2().unwrap_or(0) as i32;
    exponent + digits >= 1 << (format.exponent - 1)
}

#[cfg(test)]
mod tests;
