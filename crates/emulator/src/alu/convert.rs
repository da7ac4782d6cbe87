//! `cvt`. (PTX ISA, "Data Movement and Conversion Instructions: cvt".)

use crate::{
    exec::lanes::{Bank, Lanes, convert as convert_lanes, low, unary},
    ptx::ast::Type,
};

use super::{
    float::{convert_pair, round_integral, rounded},
    integer::{convert_integer, is_signed},
    narrow,
    number::{canonical_f32, flush, saturate},
    soft::{BF16, F16, F32, F64, Format, Number, Rounding},
    words::{Words, bank_of, bits_of},
};

/// Builds a `cvt`. `banks` are the registers' banks, which may be wider than the types.
pub fn convert(words: &mut Words, banks: &[Option<Bank>]) -> Result<Lanes, String> {
    if let Some(lanes) = narrow::convert(words)? {
        return Ok(lanes);
    }
    let integral = words.take_any(&["rni", "rzi", "rmi", "rpi"]);
    let named = words.take_any(&["rn", "rz", "rm", "rp"]);
    let (ftz, sat, relu) = (words.take("ftz"), words.take("sat"), words.take("relu"));
    let (to, from) = (words.ty()?, words.ty()?);
    let rounding = match integral.or(named) {
        Some("rn" | "rni") => Some(Rounding::Nearest),
        Some("rz" | "rzi") => Some(Rounding::Zero),
        Some("rm" | "rmi") => Some(Rounding::Down),
        Some("rp" | "rpi") => Some(Rounding::Up),
        _ => None,
    };
    if let Type::F16x2 | Type::Bf16x2 = to {
        let format = if to == Type::F16x2 { F16 } else { BF16 };
        return match (from, rounding) {
            (Type::F32, Some(rounding)) if banks.len() == 3 && !ftz && !sat => {
                Ok(convert_pair(format, rounding, relu))
            }
            _ => Err(words.unknown()),
        };
    }
    let (to_format, from_format) = (format(to), format(from));
    let bank = |ty: Type, operand: usize| {
        let least = bank_of(ty).filter(|&bank| bank != Bank::Predicate).ok_or_else(|| words.unknown())?;
        let bank = banks.get(operand).copied().flatten().unwrap_or(least);
        if bank == Bank::Predicate || (bank as u8) < least as u8 {
            return Err(format!("a {bank:?} register cannot hold {} bits", bits_of(ty)));
        }
        Ok(bank)
    };
    let (to_bank, from_bank) = (bank(to, 0)?, bank(from, 1)?);
    Ok(match (from_format, to_format) {
        (None, None) if rounding.is_none() => convert_integer((to_bank, to), (from_bank, from), sat),
        (None, None) => return Err(words.unknown()),
        (Some(from_format), None) => {
            let rounding = rounding.ok_or_else(|| words.unknown())?;
            to_integer((to_bank, to), (from_bank, from), from_format, rounding, ftz)
        }
        (None, Some(format)) => {
            let rounding = rounding.ok_or_else(|| words.unknown())?;
            from_integer((to_bank, to), (from_bank, from), format, rounding, sat)
        }
        (Some(_), Some(_)) if from == to && (integral.is_some() || rounding.is_none()) => {
            match (integral, rounding) {
                (Some(_), Some(rounding)) => {
                    round_integral(to, rounding, ftz, sat).ok_or_else(|| words.unknown())?
                }
                _ => between((to_bank, to), (from_bank, from), Rounding::Nearest, Options { ftz, sat, relu }),
            }
        }
        (Some(from_format), Some(to_format)) => {
            let widens =
                from_format.fraction <= to_format.fraction && from_format.exponent <= to_format.exponent;
            let rounding = match rounding {
                None if widens => Rounding::Nearest,
                None => return Err(words.unknown()),
                Some(rounding) => rounding,
            };
            between((to_bank, to), (from_bank, from), rounding, Options { ftz, sat, relu })
        }
    })
}

/// The format of a scalar floating-point type.
pub fn format(ty: Type) -> Option<Format> {
    Some(match ty {
        Type::F16 => F16,
        Type::Bf16 => BF16,
        Type::F32 => F32,
        Type::F64 => F64,
        _ => return None,
    })
}

/// Converts to an integer, clamped to its range. NaN gives 0, or only the top bit if either type has 64 bits.
/// (PTX ISA, `cvt`: "Zero if source is not .f64 and destination is not .s64/.u64", otherwise
/// `1 << (BitWidth(dst) - 1)`.)
fn to_integer(to: (Bank, Type), from: (Bank, Type), format: Format, rounding: Rounding, ftz: bool) -> Lanes {
    let bits = bits_of(to.1);
    let nan = if bits_of(from.1) == 64 || bits == 64 { 1u64 << (bits - 1) } else { 0 };
    let (signed, ty) = (is_signed(to.1), to.1);
    let round: fn(f64) -> f64 = match rounding {
        Rounding::Nearest => f64::round_ties_even,
        Rounding::Zero => f64::trunc,
        Rounding::Down => f64::floor,
        _ => f64::ceil,
    };
    let narrow: fn(f64) -> u64 = match ty {
        Type::U8 => |value| u64::from(value as u8),
        Type::S8 => |value| value as i8 as u64,
        Type::U16 => |value| u64::from(value as u16),
        Type::S16 => |value| value as i16 as u64,
        Type::U32 => |value| u64::from(value as u32),
        Type::S32 => |value| value as i32 as u64,
        Type::U64 => |value| value as u64,
        _ => |value| value as i64 as u64,
    };
    let nan = if signed { ((nan << (64 - bits)) as i64 >> (64 - bits)) as u64 } else { nan };
    convert_lanes(to.0, [from.0], move |[value]| {
        let value = to_f64(format, value, ftz);
        if value.is_nan() { nan } else { narrow(round(value)) }
    })
}

/// Converts a value of any format to `f64`, exactly.
#[inline(always)]
fn to_f64(format: Format, bits: u64, ftz: bool) -> f64 {
    match format {
        F64 => f64::from_bits(bits),
        F32 if ftz => f64::from(flush(f32::from_bits(bits as u32))),
        F32 => f64::from(f32::from_bits(bits as u32)),
        F16 => f64::from(f16_to_f32(bits as u16)),
        _ => f64::from(bf16_to_f32(bits as u16)),
    }
}

fn from_integer(
    to: (Bank, Type),
    from: (Bank, Type),
    format: Format,
    rounding: Rounding,
    sat: bool,
) -> Lanes {
    let (signed, bits) = (is_signed(from.1), bits_of(from.1));
    convert_lanes(to.0, [from.0], move |[value]| {
        let top = value << (64 - bits);
        let (negative, magnitude) = if signed {
            let value = top as i64 >> (64 - bits);
            (value < 0, value.unsigned_abs())
        } else {
            (false, top >> (64 - bits))
        };
        let magnitude = match (sat, negative) {
            (true, true) => 0,
            (true, false) => magnitude.min(1),
            (false, _) => magnitude,
        };
        let negative = negative && !sat;
        match (format, rounding) {
            (F32, Rounding::Nearest) => {
                let value = magnitude as f32;
                u64::from(if negative { -value } else { value }.to_bits())
            }
            (F64, Rounding::Nearest) => {
                let value = magnitude as f64;
                if negative { -value } else { value }.to_bits()
            }
            _ => format.round(Number::integer(negative, magnitude), rounding),
        }
    })
}

#[derive(Clone, Copy)]
struct Options {
    ftz: bool,
    sat: bool,
    relu: bool,
}

/// Converts between formats. Within one format, flushes or saturates.
fn between(to: (Bank, Type), from: (Bank, Type), rounding: Rounding, options: Options) -> Lanes {
    let Options { ftz, sat, relu } = options;
    let (Some(to_format), Some(from_format)) = (format(to.1), format(from.1)) else {
        return unary(|a: u32| a);
    };
    let plain = !ftz && !sat && !relu;
    match (from.1, to.1) {
        // Bit moves, even of a NaN: ptxas emits a shift or nothing. Not so from 16 bits to 16 bits: there an
        // H200 returns the canonical NaN.
        (Type::F32, Type::F32) | (Type::F64, Type::F64) if plain => {
            return convert_lanes(to.0, [from.0], |[a]| a);
        }
        (Type::Bf16, Type::F32) if plain => {
            return convert_lanes(to.0, [from.0], |[a]| bf16_to_f32(a as u16).to_bits().into());
        }
        (Type::F16, Type::F32) if plain && from.0 == Bank::Half && to.0 == Bank::Word => {
            return unary(|a: u16| canonical_f32(f16_to_f32(a)));
        }
        (Type::F32, Type::F16) if plain && rounding == Rounding::Nearest => {
            return convert_lanes(to.0, [from.0], |[a]| u64::from(f32_to_f16(f32::from_bits(a as u32))));
        }
        _ => {}
    }
    // `.ftz` flushes f32 operands and results. But an H200 does not flush an f32 that becomes an f16.
    let flushes = move |format: Format| ftz && format == F32 && to_format != F16;
    let round = rounded(flushes(to_format));
    convert_lanes(to.0, [from.0], move |[value]| {
        let value = value & low(bits_of(from.1));
        let value = if flushes(from_format) { F32.flush(value) } else { value };
        let bits = match from_format.unpack(value) {
            Number::Nan if from_format == F64 => narrow_nan(to_format, value),
            number => round(to_format, number, rounding),
        };
        if relu && bits & to_format.sign() != 0 {
            return 0;
        }
        if !sat {
            return bits;
        }
        let value = f64::from_bits(F64.round(to_format.unpack(bits), Rounding::Nearest));
        to_format.round(F64.unpack(saturate(value).to_bits()), Rounding::Nearest)
    })
}

/// Converts an f64 NaN to another format: quiet, with its sign and the upper bits of its fraction, as an H200
/// does. NaNs of other formats become the canonical one.
fn narrow_nan(format: Format, bits: u64) -> u64 {
    let sign = if bits & F64.sign() != 0 { format.sign() } else { 0 };
    let fraction = bits >> (F64.fraction - format.fraction) & low(format.fraction);
    sign | format.infinity() | 1 << (format.fraction - 1) | fraction
}

/// Exact. A NaN stays a NaN.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // Multiplying by 2^112 corrects the exponent's bias. It also normalises subnormals.
    let value = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
    let value = if magnitude >= 0x0f80_0000 { f32::from_bits(magnitude | 0x7f80_0000) } else { value };
    f32::from_bits(value.to_bits() | u32::from(bits & 0x8000) << 16)
}

/// Exact, including a NaN's bits.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds to nearest, ties to even. A NaN becomes the canonical one.
pub fn f32_to_f16(value: f32) -> u16 {
    F16.round(F32.unpack(u64::from(value.to_bits())), Rounding::Nearest) as u16
}
