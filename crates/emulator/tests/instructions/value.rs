//! What registers hold, and values to try.

use rustc_apfloat::Float;
use std::cmp::Ordering;

pub use rustc_apfloat::ieee::{BFloat, Double, Half, Single};

/// A type of register, and the values that are worth trying in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    Predicate,
    /// An integer of so many bits, in a register of at least 16.
    Integer(u32),
    Float(Format),
    /// Two values of 16 bits.
    Integers,
    Floats(Format),
}

/// A binary floating-point format: the bits of its exponent and of its fraction.
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
    fn bits(self) -> u32 {
        1 + self.exponent + self.fraction
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    /// What these bits stand for, which 64 bits hold exactly.
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
                // In two steps, for the least power of all is no normal number.
                significand as f64 * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
            }
        };
        if bits == magnitude { number } else { -number }
    }

    /// 2^power, for a power in range.
    fn power(self, power: i64) -> Option<u64> {
        let biased = power + (1 << (self.exponent - 1)) - 1;
        (1..(1 << self.exponent) - 1).contains(&biased).then_some((biased as u64) << self.fraction)
    }

    /// Both signs of zero, subnormals, normals at each end, numbers near one and near the limits of integers, ties,
    /// infinities, quiet and signalling NaNs.
    fn edges(self) -> Vec<u64> {
        let (infinity, last) = (self.infinity(), (1 << self.fraction) - 1);
        let mut edges = vec![
            0,
            1,
            2,
            last / 2,
            last,
            last + 1,
            last + 2,
            infinity - 1,
            infinity,
            infinity + 1,
            infinity + last / 3,
            infinity + last / 2 + 1,
            infinity + last,
        ];
        for power in [-24, -1, 0, 1, 7, 8, 15, 16, 31, 32, 63, 64] {
            let Some(one) = self.power(power) else { continue };
            // A half more, where the fraction has such a bit.
            let half = if (0..i64::from(self.fraction)).contains(&power) {
                1u64 << (self.fraction - 1) >> power
            } else {
                0
            };
            edges.extend([one - 1, one, one + 1, one + half, one + last / 2 + 1]);
        }
        edges.extend(edges.clone().iter().map(|bits| bits | 1 << (self.bits() - 1)));
        distinct(edges)
    }
}

fn distinct(mut values: Vec<u64>) -> Vec<u64> {
    values.sort_unstable();
    values.dedup();
    values
}

impl Operand {
    /// The PTX type of its register.
    pub fn register(self) -> &'static str {
        match self {
            Operand::Predicate => "pred",
            Operand::Integer(64) | Operand::Float(F64) => "b64",
            Operand::Integer(32) | Operand::Float(F32) | Operand::Integers | Operand::Floats(_) => "b32",
            _ => "b16",
        }
    }

    /// Values at which instructions change their minds.
    pub fn edges(self) -> Vec<u64> {
        match self {
            Operand::Predicate => vec![0, 1],
            Operand::Integer(bits) => {
                let ones = u64::MAX >> (64 - bits);
                let mut edges = vec![0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 0x5555_5555_5555_5555];
                for width in [8, 16, 32, 64] {
                    let top = 1u64 << (width - 1);
                    edges.extend([top - 2, top - 1, top, top + 1, top.wrapping_mul(2).wrapping_sub(1)]);
                }
                edges.extend(edges.clone().iter().map(|bits| !bits));
                distinct(edges.into_iter().map(|bits| bits & ones).collect())
            }
            Operand::Float(format) => format.edges(),
            Operand::Integers => pairs(Operand::Integer(16).edges()),
            Operand::Floats(format) => pairs(format.edges()),
        }
    }

    /// A random value: any bits, or an edge, or a number of moderate size and few bits.
    pub fn random(self, random: &mut Random) -> u64 {
        match self {
            Operand::Predicate => random.next() >> 63,
            Operand::Integers => pair(Operand::Integer(16), random),
            Operand::Floats(format) => pair(Operand::Float(format), random),
            Operand::Integer(bits) => {
                // A register has at least 16 bits, whatever its type.
                let ones = u64::MAX >> (64 - bits.max(16));
                match random.next() % 4 {
                    0 => pick(&self.edges(), random),
                    1 => (random.next() as i64 >> (random.next() % 64)) as u64 & ones,
                    _ => random.next() & ones,
                }
            }
            Operand::Float(format) => {
                let bits = random.next() >> (64 - format.bits());
                match random.next() % 4 {
                    0 => pick(&self.edges(), random),
                    1 => bits,
                    kind => {
                        let near = format.power((random.next() % 64) as i64 - 32);
                        let near = near.or(format.power((random.next() % 16) as i64 - 8)).unwrap_or(0);
                        let sparse = if kind == 2 { random.next() & random.next() } else { u64::MAX };
                        let fraction = bits & sparse & ((1 << format.fraction) - 1);
                        near | fraction | bits & 1 << (format.bits() - 1)
                    }
                }
            }
        }
    }

    /// The numbers that a register of floats holds.
    pub fn numbers(self, bits: u64) -> Vec<f64> {
        match self {
            Operand::Float(format) => vec![format.number(bits)],
            Operand::Floats(format) => vec![format.number(bits & 0xffff), format.number(bits >> 16)],
            _ => Vec::new(),
        }
    }

    /// The greatest number of the floats' format.
    pub fn greatest(self) -> f64 {
        match self {
            Operand::Float(format) | Operand::Floats(format) => format.number(format.infinity() - 1),
            _ => f64::INFINITY,
        }
    }

    /// Whether two results are the same: bits, but for f64 any NaN is as good as another. (PTX ISA, "Floating-Point
    /// Instructions": NaN payloads are supported for double precision, without saying which survives.)
    pub fn same(self, a: u64, b: u64) -> bool {
        let nan = |bits: u64| f64::from_bits(bits).is_nan();
        a == b || self == Operand::Float(F64) && nan(a) && nan(b)
    }
}

fn pairs(edges: Vec<u64>) -> Vec<u64> {
    let high = edges.iter().cycle().skip(edges.len() / 3);
    edges.iter().zip(high).map(|(low, high)| low | high << 16).collect()
}

fn pair(part: Operand, random: &mut Random) -> u64 {
    part.random(random) | part.random(random) << 16
}

fn pick(values: &[u64], random: &mut Random) -> u64 {
    values[random.next() as usize % values.len()]
}

/// Numbers that are the same in each run: SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// The inputs of a row: its operands' edges crossed, where that is not too much, then `count` random ones; in all a
/// multiple of `unit`.
pub fn inputs(sources: &[Operand], count: usize, unit: usize) -> Vec<[u64; 4]> {
    const MOST_EDGES: usize = 1 << 16;
    let edges: Vec<Vec<u64>> = sources.iter().map(|source| source.edges()).collect();
    let crossed = edges.iter().map(Vec::len).product::<usize>().min(MOST_EDGES);
    let mut random = Random(7);
    let total = (crossed + count).next_multiple_of(unit);
    let input = |index: usize| {
        let mut rest = index;
        std::array::from_fn(|place| {
            let Some(edges) = edges.get(place) else { return 0 };
            let edge = edges[rest % edges.len()];
            rest /= edges.len();
            match index < crossed {
                true if crossed < MOST_EDGES => edge,
                true => pick(edges, &mut random),
                false => sources[place].random(&mut random),
            }
        })
    };
    (0..total).map(input).collect()
}

/// A value of a register, as the reference computes with it.
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

/// A NaN result is the one that arithmetic gives: all ones but the sign.
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

/// Two values of 16 bits, the lower half first.
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

/// What an instruction writes: a value, or two.
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
