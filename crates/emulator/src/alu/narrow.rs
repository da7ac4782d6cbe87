//! `cvt` to and from 8-bit floats, and to tf32. (PTX ISA, "Alternate Floating-Point Data Formats".)

use crate::{
    exec::lanes::{Lanes, binary, unary},
    ptx::ast::Type,
};

use super::{
    soft::{F16, F32, Format, Number, Rounding},
    words::Words,
};

/// A format of 8 bits.
#[derive(Clone, Copy, Debug)]
struct Small {
    /// The binary format that encodes numbers times 2^`scale` with the same bits.
    format: Format,
    scale: i32,
    /// The greatest number.
    greatest: u64,
}

/// The only NaN, but for its sign, that a conversion gives.
const NAN: u64 = 0x7f;

const E5M2: Small = Small { format: Format { exponent: 5, fraction: 2, nan: NAN }, scale: 0, greatest: 0x7b };
/// It has no infinities. What would be infinities and other NaNs are numbers, so it is encoded with one more
/// bit of exponent.
const E4M3: Small =
    Small { format: Format { exponent: 5, fraction: 3, nan: NAN }, scale: -8, greatest: 0x7e };

impl Small {
    /// Rounds to the nearest number; clamps to the greatest.
    fn encode(self, number: Number, relu: bool) -> u64 {
        let number = match number {
            Number::Nan => return NAN,
            Number::Finite { negative, exponent, significand } => {
                Number::Finite { negative, exponent: exponent + self.scale, significand }
            }
            number => number,
        };
        let bits = self.format.round(number, Rounding::Nearest);
        match bits & self.format.sign() != 0 {
            true if relu => 0,
            true => 0x80 | (bits & !self.format.sign()).min(self.greatest),
            false => bits.min(self.greatest),
        }
    }

    fn decode(self, bits: u64) -> Number {
        let (negative, magnitude) = (bits & 0x80 != 0, bits & 0x7f);
        if self.scale != 0 && magnitude == NAN {
            return Number::Nan;
        }
        match self.format.unpack(magnitude) {
            Number::Finite { exponent, significand, .. } => {
                Number::Finite { negative, exponent: exponent - self.scale, significand }
            }
            Number::Infinite { .. } => Number::Infinite { negative },
            Number::Nan => Number::Nan,
        }
    }
}

/// Builds a `cvt` with one of these formats. `None` if it has none.
///
/// # Errors
///
/// Words that do not go together.
pub fn convert(words: &mut Words) -> Result<Option<Lanes>, String> {
    if words.take("tf32") {
        return tf32(words).map(Some);
    }
    let to_small = words.precedes(["e4m3x2", "e5m2x2"], ["f32", "f16x2"]);
    let small = match words.take_any(&["e4m3x2", "e5m2x2"]) {
        Some("e4m3x2") => E4M3,
        Some(_) => E5M2,
        None => return Ok(None),
    };
    let (clamps, relu) = (words.take("satfinite"), words.take("relu"));
    if !words.take("rn") || clamps != to_small {
        return Err(words.unknown());
    }
    let ty = words.ty()?;
    Ok(Some(match (to_small, ty) {
        (true, Type::F32) => binary(move |a: u32, b: u32| {
            let [a, b] = [a, b].map(|value| small.encode(F32.unpack(value.into()), relu));
            (a << 8 | b) as u16
        }),
        (true, Type::F16x2) => unary(move |a: u32| {
            let [a, b] = [a >> 16, a & 0xffff].map(|value| small.encode(F16.unpack(value.into()), relu));
            (a << 8 | b) as u16
        }),
        (false, Type::F16x2) => unary(move |a: u16| {
            let [a, b] = [a >> 8, a & 0xff].map(|value| {
                let bits = F16.round(small.decode(value.into()), Rounding::Nearest);
                if relu && bits & F16.sign() != 0 { 0 } else { bits as u32 }
            });
            a << 16 | b
        }),
        _ => return Err(words.unknown()),
    }))
}

/// Rounds an `f32` to the 10 bits of fraction of tf32, whose other bits are zero. The ISA does not say which
/// bits a NaN has; this returns the NaN that an H200 returns.
fn tf32(words: &mut Words) -> Result<Lanes, String> {
    const HALF: u32 = 1 << 12;
    const LOW: u32 = 2 * HALF - 1;
    const INFINITY: u32 = 0x7f80_0000;
    let rounding = words.take_any(&["rna", "rn", "rz"]).ok_or_else(|| words.unknown())?;
    let (clamps, relu) = (words.take("satfinite"), words.take("relu"));
    if words.ty()? != Type::F32 {
        return Err(words.unknown());
    }
    Ok(unary(move |bits: u32| {
        let (sign, magnitude) = (bits & 1 << 31, bits & !(1 << 31));
        let is_nan = magnitude > INFINITY;
        if is_nan && rounding != "rna" {
            return F32.nan as u32 & !LOW;
        }
        if relu && sign != 0 {
            return 0;
        }
        let half = match rounding {
            "rna" if is_nan => 0,
            "rna" => HALF,
            "rn" => HALF - 1 + (magnitude >> 13 & 1),
            _ => 0,
        };
        // A carry out of the fraction increments the exponent.
        let rounded = (magnitude + half) & !LOW;
        sign | if clamps && rounded >= INFINITY { rounded - LOW - 1 } else { rounded }
    }))
}
