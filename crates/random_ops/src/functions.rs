//! The functions of `gpu_reduce_kernels::math`.

use bytemuck::{Pod, Zeroable};
use core::array::from_fn;
use core::marker::PhantomData;
use gpu_reduce_kernels::math::{self, bf16, f16};
use gpu_reduce_kernels::{Kernels, Op};

/// The bits of the value of one function for one float type, of arguments that are made from the exclusive or
/// of all items. The first field is the function's index in [`NAMES`](Functions::NAMES), modulo their number.
///
/// [`finish`](Op::finish) computes them, because a kernel has that code a few times only.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Functions<F>(pub u8, pub PhantomData<F>);

/// A float type.
pub trait Float: math::Float {
    /// A float from a hash: a special one, one of moderate magnitude, or one of any bits.
    fn of(hash: u64) -> Self;

    /// The bits; all NaN have the same.
    fn bits(self) -> u64;
}

/// The number of special floats.
pub const SPECIAL: u64 = 12;

/// The item whose first two arguments are the special floats with these numbers.
pub fn special_item(x: u64, y: u64) -> u64 {
    x << 2 | y << 23
}

/// The special floats that do not depend on the type.
const NUMBERS: [f64; 8] = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, -1.0, 0.5];

macro_rules! floats {
    ($($type:ident: $from:expr, $bits:expr;)*) => {$(
        impl Float for $type {
            #[inline(always)]
            fn of(hash: u64) -> Self {
                let kind = (hash / 4 % SPECIAL) as usize;
                match hash % 4 {
                    0 if kind < 8 => $from(NUMBERS[kind]),
                    0 => [$type::MAX, $type::MIN_POSITIVE, $type::EPSILON, $type::from_bits(1)][kind - 8],
                    1 => $from((hash as i64 >> (hash / 4 % 24)) as f64 / (1u64 << 56) as f64),
                    _ => $type::from_bits($bits(hash.rotate_right(8))),
                }
            }

            #[inline(always)]
            fn bits(self) -> u64 {
                if self.is_nan() { 1 } else { self.to_bits().into() }
            }
        }
    )*};
}

floats! {
    f16: f16::from_f64, |bits| bits as u16;
    bf16: bf16::from_f64, |bits| bits as u16;
    f32: |number| number as f32, |bits| bits as u32;
    f64: |number| number, |bits| bits;
}

impl<F: Float> Functions<F> {
    /// The names of all functions; `Functions(n)` applies that at index n.
    pub const NAMES: [&str; 23] = [
        "sqrt",
        "mul_add",
        "abs",
        "min",
        "max",
        "floor",
        "ceil",
        "trunc",
        "round",
        "round_ties_even",
        "exp",
        "exp2",
        "ln",
        "log2",
        "log10",
        "sin",
        "cos",
        "tan",
        "tanh",
        "powf",
        "hypot",
        "atan2",
        "powi",
    ];

    /// The bits of the function's value. Not a part of each kernel, because it is large.
    #[inline(never)]
    fn value_bits(self, hash: u64) -> u64 {
        let [x, y, z]: [F; 3] = from_fn(|argument| F::of(hash.rotate_right(21 * argument as u32)));
        let value = match self.0 % Self::NAMES.len() as u8 {
            0 => math::sqrt(x),
            1 => math::mul_add(x, y, z),
            2 => math::abs(x),
            3 => math::min(x, y),
            4 => math::max(x, y),
            5 => math::floor(x),
            6 => math::ceil(x),
            7 => math::trunc(x),
            8 => math::round(x),
            9 => math::round_ties_even(x),
            10 => math::exp(x),
            11 => math::exp2(x),
            12 => math::ln(x),
            13 => math::log2(x),
            14 => math::log10(x),
            15 => math::sin(x),
            16 => math::cos(x),
            17 => math::tan(x),
            18 => math::tanh(x),
            19 => math::powf(x, y),
            20 => math::hypot(x, y),
            21 => math::atan2(x, y),
            _ => math::powi(x, (hash >> 32) as i32 >> (hash % 32)),
        };
        value.bits()
    }
}

impl<F: Float> Op<u64> for Functions<F> {
    const NAME: &'static str = "functions";
    type Accumulator = u64;
    type Output = u64;
    const EXACT: bool = true;
    const KERNELS: Kernels = crate::KERNELS;

    fn parameters(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    #[inline(always)]
    fn identity(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn lift(&self, item: u64, _: u64) -> u64 {
        item
    }

    #[inline(always)]
    fn combine(&self, a: u64, b: u64) -> u64 {
        a ^ b
    }

    #[inline(always)]
    fn finish(&self, all: u64, _: u64) -> Option<u64> {
        Some(self.value_bits(all))
    }
}
