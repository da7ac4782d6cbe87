//! Floating-point arithmetic.
//!
//! (PTX ISA, "Floating-Point Instructions", "Half Precision Floating-Point Instructions".)
//!
//! Results are exact to the bit, except for the approximations `div.approx`, `div.full`, `rcp.approx`,
//! `sqrt.approx`, `rsqrt.approx`, `sin`, `cos`, `lg2`, `ex2` and `tanh`. These return the host's
//! result rounded to the type; a GPU's may differ within the error that the PTX ISA allows.

use crate::{
    exec::lanes::{Bank, Lanes, binary, convert, ternary, test as test_lanes, unary},
    ptx::ast::Type,
};

use super::{
    number::{canonical_f32, canonical_f64, flush, saturate},
    soft::{BF16, F16, F32, F64, Format, Number, Rounding},
    words::{Words, bank_of},
};

/// Takes the rounding modifier; to nearest if there is none.
pub fn rounding(words: &mut Words) -> Rounding {
    match words.take_any(&["rn", "rz", "rm", "rp"]) {
        Some("rz") => Rounding::Zero,
        Some("rm") => Rounding::Down,
        Some("rp") => Rounding::Up,
        _ => Rounding::Nearest,
    }
}

/// The format of a type, and the number of values per register.
fn format(ty: Type) -> Option<(Format, u32)> {
    Some(match ty {
        Type::F16 => (F16, 1),
        Type::F16x2 => (F16, 2),
        Type::Bf16 => (BF16, 1),
        Type::Bf16x2 => (BF16, 2),
        Type::F32 => (F32, 1),
        Type::F64 => (F64, 1),
        _ => return None,
    })
}

/// `add`, `sub`, `mul`, `mad`, `fma`, `div`, `min`, `max`, `abs`, `neg`.
pub fn arithmetic(words: &mut Words) -> Result<Lanes, String> {
    let name = words.name();
    if name == "div" && words.take_any(&["approx", "full"]).is_some() {
        let ftz = words.take("ftz");
        return if words.ty()? == Type::F32 {
            Ok(binary(move |a: f32, b: f32| finish(enter(a, ftz) / enter(b, ftz), ftz, false)))
        } else {
            Err(words.unknown())
        };
    }
    let rounding = rounding(words);
    let (ftz, sat, relu) = (words.take("ftz"), words.take("sat"), words.take("relu"));
    let propagates = words.take("NaN");
    let xorsign = words.take("xorsign") && words.take("abs");
    words.take("noftz");
    let ty = words.ty()?;
    match ty {
        Type::F32 if !relu => Ok(match name {
            "abs" => unary(move |a: f32| finish(enter(a, ftz).abs(), ftz, false)),
            "neg" => unary(move |a: f32| finish(-enter(a, ftz), ftz, false)),
            "min" | "max" if xorsign => {
                let greater = name == "max";
                binary(move |a: f32, b: f32| by_sign(enter(a, ftz), enter(b, ftz), greater, propagates))
            }
            "min" => binary(move |a: f32, b: f32| minimum(enter(a, ftz), enter(b, ftz), propagates)),
            "max" => {
                binary(move |a: f32, b: f32| -minimum_of_negated(enter(a, ftz), enter(b, ftz), propagates))
            }
            _ if propagates || xorsign => return Err(words.unknown()),
            _ if ftz || sat || rounding != Rounding::Nearest => {
                return exact_f32(words, rounding, ftz, sat);
            }
            "add" => binary(|a: f32, b: f32| canonical_f32(a + b)),
            "sub" => binary(|a: f32, b: f32| canonical_f32(a - b)),
            "mul" => binary(|a: f32, b: f32| canonical_f32(a * b)),
            "div" => binary(|a: f32, b: f32| canonical_f32(a / b)),
            _ => ternary(|a: f32, b: f32, c: f32| canonical_f32(a.mul_add(b, c))),
        }),
        Type::F64 if !ftz && !sat && !relu && !propagates && !xorsign => Ok(match name {
            "abs" => unary(f64::abs),
            "neg" => unary(|a: f64| -a),
            "min" => binary(minimum_f64),
            "max" => binary(|a: f64, b: f64| {
                let least = minimum_f64(-a, -b);
                if least.is_nan() { least } else { -least }
            }),
            _ if rounding != Rounding::Nearest => return exact_f64(words, rounding),
            "add" => binary(|a: f64, b: f64| canonical_f64(a + b)),
            "sub" => binary(|a: f64, b: f64| canonical_f64(a - b)),
            "mul" => binary(|a: f64, b: f64| canonical_f64(a * b)),
            "div" => binary(|a: f64, b: f64| canonical_f64(a / b)),
            _ => ternary(|a: f64, b: f64, c: f64| canonical_f64(a.mul_add(b, c))),
        }),
        Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 if rounding == Rounding::Nearest => {
            small(words, ty, Small { ftz, sat, relu, propagates, xorsign })
        }
        _ => Err(words.unknown()),
    }
}

/// Applies `.ftz` to an `f32` operand.
#[inline(always)]
fn enter(a: f32, ftz: bool) -> f32 {
    if ftz { flush(a) } else { a }
}

/// Applies `.ftz` and `.sat` to an `f32` result, and canonicalises NaN.
#[inline(always)]
fn finish(a: f32, ftz: bool, sat: bool) -> f32 {
    let a = canonical_f32(enter(a, ftz));
    if sat { saturate(a) } else { a }
}

/// The smaller value; -0 is less than +0. A NaN loses to a number unless it `propagates`.
#[inline(always)]
fn minimum(a: f32, b: f32, propagates: bool) -> f32 {
    let least = if a < b || a == b && a.is_sign_negative() { a } else { b };
    let number = if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        least
    };
    canonical_f32(if propagates && (a.is_nan() || b.is_nan()) { f32::NAN } else { number })
}

/// `minimum(-a, -b)`. A NaN gets its sign flipped, so that the caller's negation restores it.
#[inline(always)]
fn minimum_of_negated(a: f32, b: f32, propagates: bool) -> f32 {
    let least = minimum(-a, -b, propagates);
    if least.is_nan() { -least } else { least }
}

/// `.xorsign.abs`: the extreme of the magnitudes, negative if exactly one operand is. A NaN stays as it is.
fn by_sign(a: f32, b: f32, greater: bool, propagates: bool) -> f32 {
    let negative = a.is_sign_negative() != b.is_sign_negative();
    let (a, b) = (a.abs(), b.abs());
    let magnitude = if greater { -minimum_of_negated(a, b, propagates) } else { minimum(a, b, propagates) };
    if negative && !magnitude.is_nan() { -magnitude } else { magnitude }
}

#[inline(always)]
fn minimum_f64(a: f64, b: f64) -> f64 {
    let least = if a < b || a == b && a.is_sign_negative() { a } else { b };
    canonical_f64(if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        least
    })
}

/// The named operation on exact numbers.
fn exact(name: &str) -> Option<fn([Number; 3], Rounding) -> Number> {
    Some(match name {
        "add" => |[a, b, _], rounding| a.plus(b, rounding),
        "sub" => |[a, b, _], rounding| a.plus(b.negated(), rounding),
        "mul" => |[a, b, _], _| a.times(b),
        "div" => |[a, b, _], _| a.over(b),
        "mad" | "fma" => |[a, b, c], rounding| a.times(b).plus(c, rounding),
        _ => return None,
    })
}

/// The function that rounds an exact result.
pub fn rounded(ftz: bool) -> fn(Format, Number, Rounding) -> u64 {
    if ftz { Format::round_or_flush } else { Format::round }
}

fn exact_f32(words: &Words, rounding: Rounding, ftz: bool, sat: bool) -> Result<Lanes, String> {
    let operation = exact(words.name()).ok_or_else(|| words.unknown())?;
    let round = rounded(ftz);
    let run = move |operands: [f32; 3]| {
        let numbers = operands.map(|value| F32.unpack(u64::from(enter(value, ftz).to_bits())));
        let bits = round(F32, operation(numbers, rounding), rounding);
        finish(f32::from_bits(bits as u32), false, sat)
    };
    Ok(match words.name() {
        "mad" | "fma" => ternary(move |a, b, c| run([a, b, c])),
        _ => binary(move |a, b| run([a, b, b])),
    })
}

fn exact_f64(words: &Words, rounding: Rounding) -> Result<Lanes, String> {
    let operation = exact(words.name()).ok_or_else(|| words.unknown())?;
    let run = move |operands: [u64; 3]| {
        F64.round(operation(operands.map(|bits| F64.unpack(bits)), rounding), rounding)
    };
    Ok(match words.name() {
        "mad" | "fma" => ternary(move |a, b, c| run([a, b, c])),
        _ => binary(move |a, b| run([a, b, b])),
    })
}

#[derive(Clone, Copy)]
struct Small {
    ftz: bool,
    sat: bool,
    relu: bool,
    propagates: bool,
    xorsign: bool,
}

/// Arithmetic in 16-bit formats, with one or two values per register.
fn small(words: &Words, ty: Type, options: Small) -> Result<Lanes, String> {
    let (format, count) = format(ty).ok_or_else(|| words.unknown())?;
    let flush = move |bits: u64| if options.ftz { format.flush(bits) } else { bits };
    let one = format.round(Number::integer(false, 1), Rounding::Nearest);
    let is_nan = move |bits: u64| bits & !format.sign() > format.infinity();
    let finish = move |bits: u64| {
        let bits = flush(bits);
        let nan = is_nan(bits);
        let negative = bits & format.sign() != 0;
        match () {
            () if options.sat && (nan || negative) => 0,
            () if options.sat => bits.min(one),
            () if nan => format.nan,
            () if options.relu && negative => 0,
            () => bits,
        }
    };
    // Maps bits to integers in the order of the values, with -0 below +0.
    let key = move |bits: u64| if bits & format.sign() != 0 { !bits as i64 } else { bits as i64 };
    let extreme = move |a: u64, b: u64, greater: bool| {
        let (a, b) = (flush(a), flush(b));
        let magnitude = if options.xorsign { !format.sign() } else { !0 };
        let sign = if options.xorsign { (a ^ b) & format.sign() } else { 0 };
        let (a, b) = (a & magnitude, b & magnitude);
        finish(
            sign ^ match (is_nan(a), is_nan(b)) {
                (true, true) => format.nan,
                (true, false) | (false, true) if options.propagates => format.nan,
                (true, false) => b,
                (false, true) => a,
                (false, false) => {
                    if (key(a) < key(b)) != greater {
                        a
                    } else {
                        b
                    }
                }
            },
        )
    };
    Ok(match words.name() {
        "abs" => by_parts(count, move |[a]| finish(flush(a) & !format.sign())),
        "neg" => by_parts(count, move |[a]| finish(flush(a) ^ format.sign())),
        "min" => by_parts(count, move |[a, b]| extreme(a, b, false)),
        "max" => by_parts(count, move |[a, b]| extreme(a, b, true)),
        name => {
            let operation = exact(name).filter(|_| name != "div").ok_or_else(|| words.unknown())?;
            let round = rounded(options.ftz);
            let run = move |operands: [u64; 3]| {
                let numbers = operands.map(|bits| format.unpack(flush(bits)));
                finish(round(format, operation(numbers, Rounding::Nearest), Rounding::Nearest))
            };
            match name {
                "mad" | "fma" => by_parts(count, run),
                _ => by_parts(count, move |[a, b]| run([a, b, b])),
            }
        }
    })
}

/// `d = f(a, …)` for each 16-bit value in a register.
fn by_parts<const N: usize>(count: u32, f: impl Fn([u64; N]) -> u64 + Send + Sync + 'static) -> Lanes {
    let bank = if count == 1 { Bank::Half } else { Bank::Word };
    convert(bank, [bank; N], move |operands| {
        (0..count).fold(0, |result, part| {
            result | f(operands.map(|value| value >> (16 * part) & 0xffff)) << (16 * part)
        })
    })
}

/// `rcp`, `sqrt`, `rsqrt`, `sin`, `cos`, `lg2`, `ex2`, `tanh`, `copysign`, `testp`.
pub fn function(words: &mut Words) -> Result<Lanes, String> {
    let name = words.name();
    if name == "testp" {
        return property(words);
    }
    if name == "copysign" {
        // The sign of a, the magnitude of b.
        return match words.ty()? {
            Type::F32 => Ok(binary(|a: f32, b: f32| b.copysign(a))),
            Type::F64 => Ok(binary(|a: f64, b: f64| b.copysign(a))),
            _ => Err(words.unknown()),
        };
    }
    let approximate = words.take("approx");
    let rounding = rounding(words);
    let ftz = words.take("ftz");
    let ty = words.ty()?;
    let nearest = rounding == Rounding::Nearest;
    // Approximations are computed in f64.
    let approximation: fn(f64) -> f64 = match name {
        "rcp" => |a| 1.0 / a,
        "sqrt" => f64::sqrt,
        "rsqrt" => |a| 1.0 / a.sqrt(),
        "sin" => f64::sin,
        "cos" => f64::cos,
        "lg2" => f64::log2,
        "ex2" => f64::exp2,
        _ => f64::tanh,
    };
    Ok(match (name, ty) {
        ("sqrt", Type::F32) if nearest => unary(move |a: f32| finish(enter(a, ftz).sqrt(), ftz, false)),
        ("rcp", Type::F32) if nearest => unary(move |a: f32| finish(1.0 / enter(a, ftz), ftz, false)),
        ("sqrt", Type::F64) if nearest && !ftz && !approximate => unary(|a: f64| canonical_f64(a.sqrt())),
        ("rcp", Type::F64) if nearest && !approximate => unary(|a: f64| canonical_f64(1.0 / a)),
        ("sqrt" | "rcp", Type::F32 | Type::F64) if !nearest => {
            let root = name == "sqrt";
            let operation = move |a: Number| if root { a.root() } else { Number::integer(false, 1).over(a) };
            if ty == Type::F32 {
                let round = rounded(ftz);
                unary(move |a: f32| {
                    let number = operation(F32.unpack(u64::from(enter(a, ftz).to_bits())));
                    round(F32, number, rounding) as u32
                })
            } else {
                unary(move |a: u64| F64.round(operation(F64.unpack(a)), rounding))
            }
        }
        (_, Type::F32) if nearest && (approximate || name == "ex2") => {
            unary(move |a: f32| finish(approximation(f64::from(enter(a, ftz))) as f32, ftz, false))
        }
        // Only the upper halves of the operand and the result count. (PTX ISA, "rcp.approx.ftz.f64".)
        ("rcp" | "rsqrt", Type::F64) if approximate && ftz => unary(move |a: f64| {
            let upper = |a: f64| {
                if a.is_subnormal() { 0f64.copysign(a) } else { f64::from_bits(a.to_bits() & !0xffff_ffff) }
            };
            upper(canonical_f64(approximation(if a.is_nan() { a } else { upper(a) })))
        }),
        ("rsqrt", Type::F64) if approximate => unary(move |a: f64| canonical_f64(approximation(a))),
        ("ex2" | "tanh", Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2) if approximate => {
            let (format, count) = format(ty).ok_or_else(|| words.unknown())?;
            let flush = move |bits: u64| if ftz { format.flush(bits) } else { bits };
            by_parts(count, move |[a]| {
                let value = f64::from_bits(F64.round(format.unpack(flush(a)), Rounding::Nearest));
                flush(format.round(F64.unpack(approximation(value).to_bits()), Rounding::Nearest))
            })
        }
        _ => return Err(words.unknown()),
    })
}

fn property(words: &mut Words) -> Result<Lanes, String> {
    let property = words
        .take_any(&["finite", "infinite", "number", "notanumber", "normal", "subnormal"])
        .ok_or_else(|| words.unknown())?;
    let ty = words.ty()?;
    let (format, _) = format(ty).ok_or_else(|| words.unknown())?;
    let (normal, infinity) = (1 << format.fraction, format.infinity());
    // The range of magnitudes with the property.
    let (least, greatest) = match property {
        "finite" => (0, infinity - 1),
        "infinite" => (infinity, infinity),
        "number" => (0, infinity),
        "notanumber" => (infinity + 1, u64::MAX),
        "normal" => (normal, infinity - 1),
        _ => (1, normal - 1),
    };
    // "As a special case, positive and negative zero are considered normal numbers." (PTX ISA, `testp`.)
    let zero = property == "normal";
    macro_rules! test {
        ($bits:ident) => {{
            let [sign, least, greatest] = [format.sign(), least, greatest].map(|bits| bits as $bits);
            test_lanes(move |a: $bits| {
                let magnitude = a & !sign;
                least <= magnitude && magnitude <= greatest || zero && magnitude == 0
            })
        }};
    }
    match ty {
        Type::F32 => Ok(test!(u32)),
        Type::F64 => Ok(test!(u64)),
        _ => Err(words.unknown()),
    }
}

/// Adds two values of a 16-bit format, rounded once. The atomics use it too.
pub fn add_small(format: Format, a: u64, b: u64) -> u64 {
    format.round(format.unpack(a).plus(format.unpack(b), Rounding::Nearest), Rounding::Nearest)
}

/// `cvt` of two `f32` to a pair in a 16-bit format. The first goes to the upper half.
pub fn convert_pair(format: Format, rounding: Rounding, relu: bool) -> Lanes {
    binary(move |a: u32, b: u32| {
        let narrow = |value: u32| {
            let bits = format.round(F32.unpack(u64::from(value)), rounding);
            if relu && bits & format.sign() != 0 { 0 } else { bits as u32 }
        };
        narrow(a) << 16 | narrow(b)
    })
}

/// `cvt` that rounds to an integer without changing the type.
pub fn round_integral(ty: Type, rounding: Rounding, ftz: bool, sat: bool) -> Option<Lanes> {
    let (format, _) = format(ty)?;
    let bank = bank_of(ty)?;
    Some(match ty {
        Type::F32 => unary(move |a: f32| {
            let a = enter(a, ftz);
            let rounded = match rounding {
                Rounding::Nearest => a.round_ties_even(),
                Rounding::Zero => a.trunc(),
                Rounding::Down => a.floor(),
                _ => a.ceil(),
            };
            finish(rounded, ftz, sat)
        }),
        _ => convert(bank, [bank], move |[a]| {
            let bits = format.round(format.unpack(a).to_integer(rounding), rounding);
            let value = f64::from_bits(F64.round(format.unpack(bits), Rounding::Nearest));
            if sat { format.round(F64.unpack(saturate(value).to_bits()), Rounding::Nearest) } else { bits }
        }),
    })
}
