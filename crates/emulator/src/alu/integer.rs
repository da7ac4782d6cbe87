//! Integer arithmetic and selection. (PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision
//! Integer Arithmetic Instructions", "Comparison and Selection Instructions: selp, slct".)

use crate::{
    exec::lanes::{
        Bank, Lanes, Value, binary, carrying, convert, logic_not, select as select_lanes, ternary, unary,
    },
    ptx::ast::Type,
};

use super::{
    number::{Integer, flush},
    words::{Words, bank_of, bits_of},
};

/// Calls a generic function with the Rust integer type of a PTX type.
macro_rules! for_integer {
    ($ty:expr, $words:expr, $function:ident($($argument:expr),*)) => {
        match $ty {
            Type::S16 => $function::<i16>($($argument),*),
            Type::S32 => $function::<i32>($($argument),*),
            Type::S64 => $function::<i64>($($argument),*),
            ty => for_width!(ty, $words, $function($($argument),*)),
        }
    };
}

/// Like [`for_integer`], with the unsigned type of the width, for functions that do not depend on the sign.
macro_rules! for_width {
    ($ty:expr, $words:expr, $function:ident($($argument:expr),*)) => {
        match $ty {
            Type::U16 | Type::B16 | Type::S16 => $function::<u16>($($argument),*),
            Type::U32 | Type::B32 | Type::S32 => $function::<u32>($($argument),*),
            Type::U64 | Type::B64 | Type::S64 => $function::<u64>($($argument),*),
            _ => Err($words.unknown()),
        }
    };
}
pub(super) use {for_integer, for_width};

/// `mov` between registers of one width.
pub fn mov(words: &mut Words) -> Result<Lanes, String> {
    let ty = words.ty()?;
    match bank_of(ty) {
        Some(Bank::Half) if bits_of(ty) == 16 => Ok(unary(|a: u16| a)),
        Some(Bank::Word) => Ok(unary(|a: u32| a)),
        Some(Bank::Double) => Ok(unary(|a: u64| a)),
        Some(Bank::Predicate) => Ok(logic_not(|a| a)),
        _ => Err(words.unknown()),
    }
}

/// The integer instructions from `add` to `dp2a`.
pub fn arithmetic(words: &mut Words) -> Result<Lanes, String> {
    match words.name() {
        "dp4a" => return dot::<4>(words),
        "dp2a" => return dot::<2>(words),
        "addc" | "subc" | "madc" => return extended(words, true),
        "add" | "sub" | "mad" if words.take("cc") => return extended(words, false),
        "mul24" | "mad24" => return low_24(words),
        _ => {}
    }
    if words.take("wide") {
        return wide(words);
    }
    match words.ty()? {
        Type::U16x2 => halves::<u16>(words),
        Type::S16x2 => halves::<i16>(words),
        Type::S32 if words.take("sat") => saturating(words),
        ty => match words.name() {
            "mul" | "mad" if words.take("hi") => for_integer!(ty, words, signed(words)),
            "add" | "sub" | "mul" | "mad" | "neg" | "abs" => for_width!(ty, words, plain(words)),
            _ => for_integer!(ty, words, signed(words)),
        },
    }
}

/// Operations on two 16-bit values per register.
fn halves<T: Integer>(words: &Words) -> Result<Lanes, String> {
    let operation: fn(T, T) -> T = match words.name() {
        "add" => T::add,
        "min" => T::min,
        "max" => T::max,
        _ => return Err(words.unknown()),
    };
    Ok(binary(move |a: u32, b: u32| {
        let half = |shift: u32| {
            let part = |value: u32| T::from_bits(u64::from(value >> shift & 0xffff));
            (operation(part(a), part(b)).bits() as u32) << shift
        };
        half(0) | half(16)
    }))
}

/// Operations that do not depend on the sign.
fn plain<T: Integer>(words: &mut Words) -> Result<Lanes, String> {
    words.take("lo");
    Ok(match words.name() {
        "add" => binary(T::add),
        "sub" => binary(T::sub),
        "mul" => binary(T::mul),
        "mad" => ternary(|a: T, b: T, c: T| a.mul(b).add(c)),
        "neg" => unary(|a: T| T::default().sub(a)),
        // The minimum has no positive counterpart and stays itself.
        "abs" => unary(|a: T| if a.bits() >> (T::BITS - 1) != 0 { T::default().sub(a) } else { a }),
        _ => return Err(words.unknown()),
    })
}

/// Operations that depend on the sign.
fn signed<T: Integer>(words: &mut Words) -> Result<Lanes, String> {
    Ok(match words.name() {
        "mul" => binary(T::mul_high),
        "mad" => ternary(|a: T, b: T, c: T| a.mul_high(b).add(c)),
        "div" => binary(T::div),
        "rem" => binary(T::rem),
        "min" => binary(|a: T, b: T| a.min(b)),
        "max" => binary(|a: T, b: T| a.max(b)),
        "sad" => ternary(|a: T, b: T, c: T| c.add(if a < b { b.sub(a) } else { a.sub(b) })),
        _ => return Err(words.unknown()),
    })
}

/// `.sat`, which exists only for `.s32`.
fn saturating(words: &mut Words) -> Result<Lanes, String> {
    match (words.name(), words.take("hi")) {
        ("add", false) => Ok(binary(i32::saturating_add)),
        ("sub", false) => Ok(binary(i32::saturating_sub)),
        ("mad", true) => Ok(ternary(|a: i32, b: i32, c: i32| a.mul_high(b).saturating_add(c))),
        _ => Err(format!("`{}` does not exist with `.sat` in this form", words.name())),
    }
}

fn wide(words: &mut Words) -> Result<Lanes, String> {
    let ty = words.ty()?;
    macro_rules! product {
        ($from:ident, $to:ident) => {
            match words.name() {
                "mul" => binary(|a: $from, b: $from| $to::from(a) * $to::from(b)),
                _ => ternary(|a: $from, b: $from, c: $to| ($to::from(a) * $to::from(b)).wrapping_add(c)),
            }
        };
    }
    match (words.name(), ty) {
        ("mul" | "mad", Type::U16) => Ok(product!(u16, u32)),
        ("mul" | "mad", Type::S16) => Ok(product!(i16, i32)),
        ("mul" | "mad", Type::U32) => Ok(product!(u32, u64)),
        ("mul" | "mad", Type::S32) => Ok(product!(i32, i64)),
        _ => Err(words.unknown()),
    }
}

/// `mul24`, `mad24`: bits 0 to 31 or 16 to 47 of the product of the operands' low 24 bits.
fn low_24(words: &mut Words) -> Result<Lanes, String> {
    let shift = if words.take("hi") { 16 } else { 0 };
    let saturating = shift == 16 && words.name() == "mad24" && words.take("sat");
    words.take("lo");
    let signed = |a: i32, b: i32| i64::from(a << 8 >> 8) * i64::from(b << 8 >> 8);
    let unsigned = |a: u32, b: u32| u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff);
    match (words.name(), words.ty()?) {
        ("mul24", Type::S32) => Ok(binary(move |a, b| (signed(a, b) >> shift) as i32)),
        ("mul24", Type::U32) => Ok(binary(move |a, b| (unsigned(a, b) >> shift) as u32)),
        ("mad24", Type::S32) if saturating => {
            Ok(ternary(move |a, b, c: i32| ((signed(a, b) >> shift) as i32).saturating_add(c)))
        }
        ("mad24", Type::S32) => {
            Ok(ternary(move |a, b, c: i32| ((signed(a, b) >> shift) as i32).wrapping_add(c)))
        }
        ("mad24", Type::U32) => {
            Ok(ternary(move |a, b, c: u32| ((unsigned(a, b) >> shift) as u32).wrapping_add(c)))
        }
        _ => Err(words.unknown()),
    }
}

/// `add.cc` to `madc`: with carry out, and with carry in if `takes`.
fn extended(words: &mut Words, takes: bool) -> Result<Lanes, String> {
    // `addc` and similar instructions without `.cc` leave the carry unchanged.
    let gives = !takes || words.take("cc");
    match words.ty()? {
        Type::U32 => extended_of::<u32>(words, takes, gives),
        Type::S32 => extended_of::<i32>(words, takes, gives),
        Type::U64 => extended_of::<u64>(words, takes, gives),
        Type::S64 => extended_of::<i64>(words, takes, gives),
        _ => Err(words.unknown()),
    }
}

fn extended_of<T: Integer>(words: &mut Words, takes: bool, gives: bool) -> Result<Lanes, String> {
    let high = words.take("hi");
    words.take("lo");
    let subtracts = words.name().starts_with("sub");
    let multiplies = words.name().starts_with("mad");
    Ok(carrying(if multiplies { 3 } else { 2 }, move |[a, b, c]: [T; 3], carry| {
        let carry_in = i128::from(takes && carry);
        let (a, b) = match (multiplies, high) {
            (false, _) => (a, b),
            (true, false) => (a.mul(b), c),
            (true, true) => (a.mul_high(b), c),
        };
        let (a, b) = (i128::from(a.bits()), i128::from(b.bits()));
        let sum = if subtracts { a - b - carry_in } else { a + b + carry_in };
        let carry_out = sum >> T::BITS & 1 != 0;
        (T::from_bits(sum as u64), if gives { carry_out } else { carry })
    }))
}

/// `dp4a`, `dp2a`: adds four products of bytes, or two of a half-word and a byte, to c.
fn dot<const PARTS: usize>(words: &mut Words) -> Result<Lanes, String> {
    let upper = PARTS == 2 && words.take("hi");
    if PARTS == 2 && !upper && !words.take("lo") {
        return Err(words.unknown());
    }
    let (a_type, b_type) = (words.ty()?, words.ty().unwrap_or(Type::Pred));
    let signed = |ty| match ty {
        Type::U32 => Ok(false),
        Type::S32 => Ok(true),
        _ => Err("`dp4a` and `dp2a` need two types, each `.u32` or `.s32`".to_owned()),
    };
    let (a_signed, b_signed) = (signed(a_type)?, signed(b_type)?);
    let part = |value: u32, index: usize, bits: u32, signed: bool| {
        let value = value >> (index as u32 * bits) << (32 - bits);
        if signed { (value as i32 >> (32 - bits)) as u32 } else { value >> (32 - bits) }
    };
    Ok(ternary(move |a: u32, b: u32, c: u32| {
        (0..PARTS).fold(c, |sum, index| {
            let x = part(a, index, 32 / PARTS as u32, a_signed);
            let y = part(b, index + if upper { 2 } else { 0 }, 8, b_signed);
            sum.wrapping_add(x.wrapping_mul(y))
        })
    }))
}

/// `selp` and `slct`.
pub fn select(words: &mut Words) -> Result<Lanes, String> {
    let ftz = words.name() == "slct" && words.take("ftz");
    let ty = words.ty()?;
    if words.name() == "selp" {
        return match bank_of(ty) {
            Some(Bank::Half) if bits_of(ty) == 16 => Ok(select_lanes::<u16>()),
            Some(Bank::Word) => Ok(select_lanes::<u32>()),
            Some(Bank::Double) => Ok(select_lanes::<u64>()),
            _ => Err(words.unknown()),
        };
    }
    match words.ty()? {
        Type::S32 => Ok(by_sign(ty, |c: i32| c >= 0)),
        // NaN is not >= 0, but -0 is: flushing a negative subnormal makes it >= 0.
        Type::F32 => Ok(by_sign(ty, move |c: f32| if ftz { flush(c) } else { c } >= 0.0)),
        _ => Err(words.unknown()),
    }
}

/// `d = positive(c) ? a : b`.
fn by_sign<C: Value>(ty: Type, positive: impl Fn(C) -> bool + Send + Sync + 'static) -> Lanes {
    match bits_of(ty) {
        16 => ternary(move |a: u16, b: u16, c| if positive(c) { a } else { b }),
        32 => ternary(move |a: u32, b: u32, c| if positive(c) { a } else { b }),
        _ => ternary(move |a: u64, b: u64, c| if positive(c) { a } else { b }),
    }
}

/// A conversion between integer types: truncates and extends, or clamps if it saturates.
pub fn convert_integer(to: (Bank, Type), from: (Bank, Type), saturate: bool) -> Lanes {
    let (signed_from, signed_to) = (is_signed(from.1), is_signed(to.1));
    let (bits_from, bits_to) = (bits_of(from.1), bits_of(to.1));
    let extend = |value: u64, bits: u32, signed: bool| {
        let value = value << (64 - bits);
        if signed { (value as i64 >> (64 - bits)) as u64 } else { value >> (64 - bits) }
    };
    if !saturate {
        return convert(to.0, [from.0], move |[value]| {
            extend(extend(value, bits_from, signed_from), bits_to, signed_to)
        });
    }
    let (least, greatest) = range(to.1);
    convert(to.0, [from.0], move |[value]| {
        let value = extend(value, bits_from, signed_from);
        let value = if signed_from { i128::from(value as i64) } else { i128::from(value) };
        value.clamp(least, greatest) as u64
    })
}

/// Whether the type is signed.
pub fn is_signed(ty: Type) -> bool {
    matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64)
}

/// The minimum and maximum of an integer type.
pub fn range(ty: Type) -> (i128, i128) {
    let bits = bits_of(ty);
    if is_signed(ty) { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}
