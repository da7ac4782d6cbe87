//! Floating point in integer arithmetic: every binary format and rounding direction, exact to the bit.
//!
//! The host rounds `f32` and `f64` only to nearest, so everything else is done here: operands become exact
//! [`Number`]s, and a result is rounded once, to its format.

use std::cmp::Ordering;

/// A binary interchange format of IEEE 754, or bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the exponent.
    pub exponent: u32,
    /// Bits of the fraction, without the leading one.
    pub fraction: u32,
    /// The NaN that arithmetic returns.
    pub nan: u64,
}

/// IEEE 754's binary16. Its NaN and those below are quiet, with all fraction bits set and no sign. (CUDA C++
/// Programming Guide, "Floating-Point Standard": "quiet NaN of bit pattern 0x7fffffff"; PTX ISA: "canonical
/// NaN 0x7fff" of f16 and bf16.)
pub const F16: Format = Format { exponent: 5, fraction: 10, nan: 0x7fff };
pub const BF16: Format = Format { exponent: 8, fraction: 7, nan: 0x7fff };
pub const F32: Format = Format { exponent: 8, fraction: 23, nan: 0x7fff_ffff };
pub const F64: Format = Format { exponent: 11, fraction: 52, nan: 0x7fff_ffff_ffff_ffff };

/// A rounding direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// `.rn`: to nearest, ties to even.
    Nearest,
    /// `.rz`.
    Zero,
    /// `.rm`.
    Down,
    /// `.rp`.
    Up,
}

impl Rounding {
    /// Whether to round up in magnitude, if the result is inexact. `odd` is the last bit kept; `half`
    /// compares the remainder with half a unit.
    fn increments(self, negative: bool, odd: bool, half: Ordering) -> bool {
        match self {
            Rounding::Nearest => half == Ordering::Greater || half == Ordering::Equal && odd,
            Rounding::Zero => false,
            Rounding::Down => negative,
            Rounding::Up => !negative,
        }
    }
}

/// A value `±significand · 2^exponent`. It is exact, except that long shifts make the last bit sticky.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Nan,
    Infinite {
        negative: bool,
    },
    /// A zero has significand 0.
    Finite {
        negative: bool,
        exponent: i32,
        significand: u128,
    },
}

use Number::{Finite, Infinite, Nan};

/// The leading bit of a normalised significand. Two bits above it stay free for sums.
const TOP: u32 = 125;

impl Format {
    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The bits of positive infinity.
    pub const fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    pub const fn sign(self) -> u64 {
        1 << (self.exponent + self.fraction)
    }

    /// Decodes bits of this format.
    pub fn unpack(self, bits: u64) -> Number {
        let negative = bits & self.sign() != 0;
        let fraction = bits & ((1 << self.fraction) - 1);
        let exponent = (bits & self.infinity()) >> self.fraction;
        if exponent == self.infinity() >> self.fraction {
            return if fraction == 0 { Infinite { negative } } else { Nan };
        }
        let hidden = u64::from(exponent != 0) << self.fraction;
        Finite {
            negative,
            exponent: exponent.max(1) as i32 - self.bias() - self.fraction as i32,
            significand: u128::from(hidden | fraction),
        }
    }

    /// Rounds a number to this format.
    pub fn round(self, number: Number, rounding: Rounding) -> u64 {
        let (negative, exponent, significand) = match number {
            Nan => return self.nan,
            Infinite { negative } => return self.signed(self.infinity(), negative),
            Finite { negative, exponent, significand } => (negative, exponent, significand),
        };
        if significand == 0 {
            return self.signed(0, negative);
        }
        let precision = self.fraction as i32 + 1;
        let digits = 128 - significand.leading_zeros() as i32;
        let lowest = 1 - self.bias() - self.fraction as i32;
        // The exponent of the last bit kept.
        let last = (exponent + digits - precision).max(lowest);
        let (mut kept, rest) = shift_out(significand, last - exponent);
        if let Some(half) = rest
            && rounding.increments(negative, kept & 1 == 1, half)
        {
            kept += 1;
        }
        // If rounding adds a digit, the carry increments the exponent field.
        let biased = if kept >> self.fraction == 0 { 0 } else { last - lowest };
        let bits = kept as u64 + ((biased as u64) << self.fraction);
        if bits >= self.infinity() {
            let grows = rounding.increments(negative, true, Ordering::Greater);
            return self.signed(self.infinity() - u64::from(!grows), negative);
        }
        self.signed(bits, negative)
    }

    /// Like [`Format::round`], with `.ftz`: a result below the smallest normal number becomes a zero of its
    /// sign.
    ///
    /// A result counts as below even if rounding to a subnormal's few digits would reach that number. PTX
    /// does not define this; an H200 decides as if the exponent had no lower limit.
    pub fn round_or_flush(self, number: Number, rounding: Rounding) -> u64 {
        // Doubled, the number keeps all its digits near the limit.
        let twice = match number {
            Finite { negative, exponent, significand } => {
                Finite { negative, exponent: exponent + 1, significand }
            }
            _ => number,
        };
        let least_normal = 1 << self.fraction;
        if self.round(twice, rounding) & !self.sign() < 2 * least_normal {
            self.signed(0, number.is_negative())
        } else {
            self.round(number, rounding)
        }
    }

    /// `.ftz` of an operand: a subnormal becomes a zero of its sign.
    pub fn flush(self, bits: u64) -> u64 {
        if bits & self.infinity() == 0 { bits & self.sign() } else { bits }
    }

    fn signed(self, bits: u64, negative: bool) -> u64 {
        if negative { bits | self.sign() } else { bits }
    }
}

/// `significand / 2^count`, and how the remainder compares with half a unit. `None` if it is 0.
fn shift_out(significand: u128, count: i32) -> (u128, Option<Ordering>) {
    match count {
        ..=0 => (significand << -count, None),
        1..=127 => {
            let rest = significand & ((1 << count) - 1);
            let half = 1u128 << (count - 1);
            (significand >> count, (rest != 0).then(|| rest.cmp(&half)))
        }
        128 => (0, Some(significand.cmp(&(1 << 127)))),
        129.. => (0, Some(Ordering::Less)),
    }
}

impl Number {
    pub fn integer(negative: bool, magnitude: u64) -> Number {
        Finite { negative, exponent: 0, significand: u128::from(magnitude) }
    }

    /// `-self`.
    pub fn negated(self) -> Number {
        match self {
            Nan => Nan,
            Infinite { negative } => Infinite { negative: !negative },
            Finite { negative, exponent, significand } => {
                Finite { negative: !negative, exponent, significand }
            }
        }
    }

    /// `self · other`.
    pub fn times(self, other: Number) -> Number {
        match (self, other) {
            (Nan, _) | (_, Nan) => Nan,
            (
                Finite { negative: a, exponent: x, significand: m },
                Finite { negative: b, exponent: y, significand: n },
            ) => Finite { negative: a != b, exponent: x + y, significand: m * n },
            _ if self.is_zero() || other.is_zero() => Nan,
            _ => Infinite { negative: self.is_negative() != other.is_negative() },
        }
    }

    /// `self + other`. A zero sum is -0 only if both operands are, or if it rounds down.
    pub fn plus(self, other: Number, rounding: Rounding) -> Number {
        let (a, b) = match (self, other) {
            (Nan, _) | (_, Nan) => return Nan,
            (Infinite { negative: a }, Infinite { negative: b }) => {
                return if a == b { self } else { Nan };
            }
            (Infinite { .. }, _) => return self,
            (_, Infinite { .. }) => return other,
            (Finite { .. }, Finite { .. }) => (self.normal(), other.normal()),
        };
        let (low, high) = if a.1 < b.1 { (a, b) } else { (b, a) };
        let (negative_low, exponent_low, low) = low;
        let (negative_high, exponent, high) = high;
        if low == 0 && high == 0 {
            let negative =
                if negative_low == negative_high { negative_low } else { rounding == Rounding::Down };
            return Finite { negative, exponent: 0, significand: 0 };
        }
        let low = jam(low, (exponent - exponent_low).unsigned_abs());
        if negative_low == negative_high {
            return Finite { negative: negative_low, exponent, significand: high + low };
        }
        match high.cmp(&low) {
            Ordering::Equal => Finite { negative: rounding == Rounding::Down, exponent, significand: 0 },
            Ordering::Greater => Finite { negative: negative_high, exponent, significand: high - low },
            Ordering::Less => Finite { negative: negative_low, exponent, significand: low - high },
        }
    }

    /// `self / other`.
    pub fn over(self, other: Number) -> Number {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Nan, _) | (_, Nan) | (Infinite { .. }, Infinite { .. }) => Nan,
            (Infinite { .. }, _) => Infinite { negative },
            (_, Infinite { .. }) => Finite { negative, exponent: 0, significand: 0 },
            (Finite { .. }, Finite { .. }) => {
                if other.is_zero() {
                    return if self.is_zero() { Nan } else { Infinite { negative } };
                }
                let ((_, x, m), (_, y, n)) = (self.normal(), other.normal());
                // The divisor has at most 53 bits, so the quotient has more than 70.
                let n_shift = n.trailing_zeros();
                let n = n >> n_shift;
                let quotient = m / n;
                let sticky = u128::from(m % n != 0);
                Finite { negative, exponent: x - y - n_shift as i32 - 1, significand: quotient << 1 | sticky }
            }
        }
    }

    /// The square root.
    pub fn root(self) -> Number {
        match self {
            Nan | Infinite { negative: true } => Nan,
            Infinite { .. } => self,
            Finite { significand: 0, .. } => self,
            Finite { negative: true, .. } => Nan,
            Finite { .. } => {
                let (_, exponent, significand) = self.normal();
                let (exponent, significand) = if exponent % 2 == 0 {
                    (exponent, significand)
                } else {
                    (exponent - 1, significand << 1)
                };
                let root = significand.isqrt();
                let sticky = u128::from(root * root != significand);
                Finite { negative: false, exponent: exponent / 2 - 1, significand: root << 1 | sticky }
            }
        }
    }

    /// Rounds to an integer.
    pub fn to_integer(self, rounding: Rounding) -> Number {
        let Finite { negative, exponent, significand } = self else { return self };
        if exponent >= 0 || significand == 0 {
            return self;
        }
        let (mut kept, rest) = shift_out(significand, -exponent);
        if let Some(half) = rest
            && rounding.increments(negative, kept & 1 == 1, half)
        {
            kept += 1;
        }
        Finite { negative, exponent: 0, significand: kept }
    }

    fn is_zero(self) -> bool {
        matches!(self, Finite { significand: 0, .. })
    }

    fn is_negative(self) -> bool {
        matches!(self, Infinite { negative: true } | Finite { negative: true, .. })
    }

    /// The sign, exponent and significand of a finite number, with the leading one at bit [`TOP`]. Zero gets
    /// the lowest exponent.
    fn normal(self) -> (bool, i32, u128) {
        match self {
            Finite { negative, significand: 0, .. } => (negative, i32::MIN / 2, 0),
            Finite { negative, exponent, significand } => {
                let shift = significand.leading_zeros() as i32 - (127 - TOP as i32);
                if shift >= 0 {
                    (negative, exponent - shift, significand << shift)
                } else {
                    (negative, exponent - shift, jam(significand, shift.unsigned_abs()))
                }
            }
            Nan | Infinite { .. } => (false, 0, 0),
        }
    }
}

/// Shifts right. If a 1 bit is shifted out, sets the last bit, so that later rounding sees it.
fn jam(value: u128, count: u32) -> u128 {
    match count {
        0 => value,
        1..128 => value >> count | u128::from(value & ((1 << count) - 1) != 0),
        _ => u128::from(value != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits near edge cases: few 1 bits; exponents close to each other or to the limits.
    fn samples(format: Format) -> impl Iterator<Item = u64> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let edges = [0, 1, 2, format.infinity() - 1, format.infinity(), format.infinity() + 1]
            .into_iter()
            .flat_map(move |bits| [bits, bits | format.sign()]);
        edges.chain((0..400).map(move |index| {
            let bits = next();
            let exponent = match index % 4 {
                0 => next() % 4,
                1 => (format.infinity() >> format.fraction) - 1 - next() % 4,
                2 => (format.infinity() >> format.fraction) / 2 + next() % 60,
                _ => next() & (format.infinity() >> format.fraction),
            };
            let fraction = if index % 3 == 0 { bits & next() & next() } else { bits };
            fraction & ((1 << format.fraction) - 1) | exponent << format.fraction | bits & format.sign()
        }))
    }

    fn same32(a: u64, b: f32) -> bool {
        if b.is_nan() { a == F32.nan } else { a == u64::from(b.to_bits()) }
    }

    fn same64(a: u64, b: f64) -> bool {
        if b.is_nan() { a == F64.nan } else { a == b.to_bits() }
    }

    #[test]
    fn rounding_to_nearest_is_the_hosts() {
        use Rounding::Nearest;
        for x in samples(F32) {
            let (a, p) = (f32::from_bits(x as u32), F32.unpack(x));
            assert!(same32(F32.round(p.root(), Nearest), a.sqrt()), "{a:e}");
            for y in samples(F32) {
                let (b, q) = (f32::from_bits(y as u32), F32.unpack(y));
                assert!(same32(F32.round(p.plus(q, Nearest), Nearest), a + b), "{a:e} + {b:e}");
                assert!(same32(F32.round(p.times(q), Nearest), a * b), "{a:e} * {b:e}");
                assert!(same32(F32.round(p.over(q), Nearest), a / b), "{a:e} / {b:e}");
                let c = f32::from_bits((x ^ y.rotate_left(9)) as u32);
                let r = F32.unpack(u64::from(c.to_bits()));
                let fused = p.times(q).plus(r, Nearest);
                assert!(same32(F32.round(fused, Nearest), a.mul_add(b, c)), "{a:e} * {b:e} + {c:e}");
            }
        }
    }

    #[test]
    fn rounding_to_nearest_is_the_hosts_in_64_bits() {
        use Rounding::Nearest;
        for x in samples(F64) {
            let (a, p) = (f64::from_bits(x), F64.unpack(x));
            assert!(same64(F64.round(p.root(), Nearest), a.sqrt()), "{a:e}");
            assert!(same32(F32.round(p, Nearest), a as f32), "{a:e}");
            for y in samples(F64) {
                let (b, q) = (f64::from_bits(y), F64.unpack(y));
                assert!(same64(F64.round(p.plus(q, Nearest), Nearest), a + b), "{a:e} + {b:e}");
                assert!(same64(F64.round(p.times(q), Nearest), a * b), "{a:e} * {b:e}");
                assert!(same64(F64.round(p.over(q), Nearest), a / b), "{a:e} / {b:e}");
                let c = f64::from_bits(x ^ y >> 12);
                let fused = p.times(q).plus(F64.unpack(c.to_bits()), Nearest);
                assert!(same64(F64.round(fused, Nearest), a.mul_add(b, c)), "{a:e} * {b:e} + {c:e}");
            }
        }
    }

    #[test]
    fn directed_roundings_enclose_the_exact_value() {
        for x in samples(F32) {
            for y in samples(F32) {
                let (p, q) = (F32.unpack(x), F32.unpack(y));
                let exact = f64::from(f32::from_bits(x as u32)) * f64::from(f32::from_bits(y as u32));
                if exact.is_nan() {
                    continue;
                }
                let float = |rounding| f32::from_bits(F32.round(p.times(q), rounding) as u32);
                let (down, up) = (float(Rounding::Down), float(Rounding::Up));
                assert!(f64::from(down) <= exact && exact <= f64::from(up), "{exact:e}: {down:e} to {up:e}");
                assert!(down == up || down.next_up() == up, "{exact:e}: {down:e} to {up:e}");
                let zero = float(Rounding::Zero);
                assert_eq!(zero, if exact < 0.0 { up } else { down });
            }
        }
    }

    #[test]
    fn a_sum_of_zero_has_the_sign_that_rounding_gives() {
        let (one, minus) = (Number::integer(false, 1), Number::integer(true, 1));
        for (rounding, bits) in [(Rounding::Nearest, 0), (Rounding::Down, F32.sign()), (Rounding::Up, 0)] {
            assert_eq!(F32.round(one.plus(minus, rounding), rounding), bits);
        }
    }

    #[test]
    fn halves_round_as_each_direction_says() {
        let half = |n: u64, negative| Finite { negative, exponent: -1, significand: u128::from(n) };
        let integer = |number: Number, rounding| match number.to_integer(rounding) {
            Finite { significand, .. } => significand,
            _ => unreachable!("finite"),
        };
        use Rounding::*;
        for (n, rounding, result) in
            [(1, Nearest, 0), (3, Nearest, 2), (5, Nearest, 2), (5, Zero, 2), (5, Down, 2), (5, Up, 3)]
        {
            assert_eq!(integer(half(n, false), rounding), result, "{n}/2 {rounding:?}");
        }
        assert_eq!(integer(half(5, true), Down), 3);
        assert_eq!(integer(half(5, true), Up), 2);
    }
}
