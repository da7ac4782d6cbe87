//! Values of registers.

use rustc_apfloat::Float;
use std::cmp::Ordering;

pub use rustc_apfloat::ieee::{BFloat, Double, Half, Single};

/// The type of a register's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    Predicate,
    /// An integer of this many bits, in a register of at least 16 bits.
    Integer(u32),
    Float(Format),
    /// Two 16-bit integers.
    Integers,
    /// Two 16-bit floats.
    Floats(Format),
}

/// A binary floating-point format: the number of exponent bits and of fraction bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub exponent: u32,
    pub fraction: u32,
}

const F16: Format = Format { exponent: 5, fraction: 10 };
const BF16: Format = Format { exponent: 8, fraction: 7 };
const F32: Format = Format { exponent: 8, fraction: 23 };
const F64: Format = Format { exponent: 11, fraction: 52 };

impl Format {
    pub fn bits(self) -> u32 {
        1 + self.exponent + self.fraction
    }

    /// Returns the bits of positive infinity.
    pub fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    /// Returns the number with these bits, which `f64` represents exactly.
    fn number(self, bits: u64) -> f64 {
        let magnitude = bits & !(1 << (self.bits() - 1));
        let (exponent, fraction) =
            ((magnitude >> self.fraction) as i32, magnitude & ((1 << self.fraction) - 1));
        let number = match magnitude.cmp(&self.infinity()) {
            Ordering::Greater => f64::NAN,
            Ordering::Equal => f64::INFINITY,
            Ordering::Less => {
                let significand = fraction | u64::from(exponent > 0) << self.fraction;
                let power = exponent.max(1) - (1 << (self.exponent - 1)) + 1 - self.fraction as i32;
                // In two steps, because the smallest power alone is subnormal.
                significand as f64 * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
            }
        };
        if bits == magnitude { number } else { -number }
    }
}

impl Operand {
    /// Returns the PTX type of its register.
    pub fn register(self) -> &'static str {
        match self {
            Operand::Predicate => "pred",
            Operand::Integer(64) | Operand::Float(F64) => "b64",
            Operand::Integer(32) | Operand::Float(F32) | Operand::Integers | Operand::Floats(_) => "b32",
            _ => "b16",
        }
    }

    /// Returns the numbers in a register of floats.
    pub fn numbers(self, bits: u64) -> Vec<f64> {
        match self {
            Operand::Float(format) => vec![format.number(bits)],
            Operand::Floats(format) => vec![format.number(bits & 0xffff), format.number(bits >> 16)],
            _ => Vec::new(),
        }
    }

    /// Returns the greatest finite number of the floats' format.
    pub fn greatest(self) -> f64 {
        match self {
            Operand::Float(format) | Operand::Floats(format) => format.number(format.infinity() - 1),
            _ => f64::INFINITY,
        }
    }

    /// Whether two results have the same bits, or are both NaNs of f64.
    ///
    /// PTX ISA, "Floating-Point Instructions", supports NaN payloads for double precision without saying
    /// which survives.
    pub fn same(self, a: u64, b: u64) -> bool {
        let nan = |bits: u64| f64::from_bits(bits).is_nan();
        a == b || self == Operand::Float(F64) && nan(a) && nan(b)
    }
}

/// A register's value in the type with which a reference computes.
pub trait Value: Copy {
    const OPERAND: Operand;
    fn from_register(bits: u64) -> Self;
    fn to_register(self) -> u64;
}

/// Results narrower than a register are extended to it.
macro_rules! integers {
    ($($int:ident $bits:literal $register:ident,)*) => {$(
        impl Value for $int {
            const OPERAND: Operand = Operand::Integer($bits);
            fn from_register(bits: u64) -> Self {
                bits as $int
            }
            fn to_register(self) -> u64 {
                self as $register as u64
            }
        }
    )*};
}

integers! {
    u8 8 u16, i8 8 u16, u16 16 u16, i16 16 u16, u32 32 u32, i32 32 u32, u64 64 u64, i64 64 u64,
}

impl Value for bool {
    const OPERAND: Operand = Operand::Predicate;
    fn from_register(bits: u64) -> Self {
        bits != 0
    }
    fn to_register(self) -> u64 {
        u64::from(self)
    }
}

/// A NaN result has the bits that arithmetic gives: all ones except the sign.
macro_rules! floats {
    ($($float:ident $format:ident,)*) => {$(
        impl Value for $float {
            const OPERAND: Operand = Operand::Float($format);
            fn from_register(bits: u64) -> Self {
                Float::from_bits(bits.into())
            }
            fn to_register(self) -> u64 {
                let nan = (1 << ($format.bits() - 1)) - 1;
                if self.is_nan() { nan } else { Float::to_bits(self) as u64 }
            }
        }

        impl Value for Exact<$float> {
            const OPERAND: Operand = Operand::Float($format);
            fn from_register(bits: u64) -> Self {
                Exact(Float::from_bits(bits.into()))
            }
            fn to_register(self) -> u64 {
                Float::to_bits(self.0) as u64
            }
        }

        impl Value for Two<$float> {
            const OPERAND: Operand = Operand::Floats($format);
            fn from_register(bits: u64) -> Self {
                Two(Value::from_register(bits & 0xffff), Value::from_register(bits >> 16))
            }
            fn to_register(self) -> u64 {
                Value::to_register(self.0) | Value::to_register(self.1) << 16
            }
        }
    )*};
}

floats! { Half F16, BFloat BF16, Single F32, Double F64, }

/// A float whose NaN keeps its bits.
#[derive(Clone, Copy)]
pub struct Exact<F>(pub F);

/// Two 16-bit values, the lower half first.
#[derive(Clone, Copy)]
pub struct Two<T>(pub T, pub T);

macro_rules! pairs_of_integers {
    ($($int:ident)*) => {$(
        impl Value for Two<$int> {
            const OPERAND: Operand = Operand::Integers;
            fn from_register(bits: u64) -> Self {
                Two(bits as $int, (bits >> 16) as $int)
            }
            fn to_register(self) -> u64 {
                self.0.to_register() | self.1.to_register() << 16
            }
        }
    )*};
}

pairs_of_integers! { u16 i16 }

/// The results of an instruction: one value or two.
pub trait Results {
    fn operands() -> Vec<Operand>;
    fn bits(self) -> Vec<u64>;
}

impl<V: Value> Results for V {
    fn operands() -> Vec<Operand> {
        vec![V::OPERAND]
    }
    fn bits(self) -> Vec<u64> {
        vec![self.to_register()]
    }
}

impl<V: Value, W: Value> Results for (V, W) {
    fn operands() -> Vec<Operand> {
        vec![V::OPERAND, W::OPERAND]
    }
    fn bits(self) -> Vec<u64> {
        vec![self.0.to_register(), self.1.to_register()]
    }
}
