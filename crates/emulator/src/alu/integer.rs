//! Integer arithmetic, comparison and selection. (PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision
//! Integer Arithmetic Instructions", "Comparison and Selection Instructions".)

use crate::{
    exec::lanes::{
        Bank, Lanes, binary, carrying, compare as compare_lanes, compare_set, convert, logic_not,
        select as select_lanes, ternary, unary,
    },
    ptx::ast::{Instruction, Operand, Type},
};

use super::{
    number::Integer,
    words::{Words, bank_of, bits_of},
};

/// Calls a function of an integer type with the type that a word names.
macro_rules! for_integer {
    ($ty:expr, $words:expr, $function:ident($($argument:expr),*)) => {
        match $ty {
            Type::U16 | Type::B16 => $function::<u16>($($argument),*),
            Type::S16 => $function::<i16>($($argument),*),
            Type::U32 | Type::B32 => $function::<u32>($($argument),*),
            Type::S32 => $function::<i32>($($argument),*),
            Type::U64 | Type::B64 => $function::<u64>($($argument),*),
            Type::S64 => $function::<i64>($($argument),*),
            _ => Err($words.unknown()),
        }
    };
}
pub(super) use for_integer;

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

/// `add` to `dp2a`.
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
        ty => for_integer!(ty, words, plain(words, ty)),
    }
}

/// Two values of 16 bits in a register.
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

fn plain<T: Integer>(words: &mut Words, ty: Type) -> Result<Lanes, String> {
    let saturating = ty == Type::S32 && words.take("sat");
    let clamp = |value: i128| i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX });
    Ok(match words.name() {
        "add" if saturating => binary(move |a: i32, b: i32| clamp(i128::from(a) + i128::from(b))),
        "sub" if saturating => binary(move |a: i32, b: i32| clamp(i128::from(a) - i128::from(b))),
        "mad" if saturating && words.take("hi") => {
            ternary(move |a: i32, b: i32, c: i32| clamp(i128::from(a.mul_high(b)) + i128::from(c)))
        }
        _ if saturating => return Err("`.sat` is not known here".to_owned()),
        "add" => binary(T::add),
        "sub" => binary(T::sub),
        "mul" if words.take("hi") => binary(T::mul_high),
        "mul" => {
            words.take("lo");
            binary(T::mul)
        }
        "mad" if words.take("hi") => ternary(|a: T, b: T, c: T| a.mul_high(b).add(c)),
        "mad" => {
            words.take("lo");
            ternary(|a: T, b: T, c: T| a.mul(b).add(c))
        }
        "div" => binary(T::div),
        "rem" => binary(T::rem),
        "min" => binary(|a: T, b: T| a.min(b)),
        "max" => binary(|a: T, b: T| a.max(b)),
        "abs" if T::SIGNED => unary(T::abs),
        "neg" if T::SIGNED => unary(|a: T| T::default().sub(a)),
        "sad" => ternary(|a: T, b: T, c: T| c.add(if a < b { b.sub(a) } else { a.sub(b) })),
        _ => return Err(words.unknown()),
    })
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

/// `mul24`, `mad24`: of the product of the operands' low 24 bits, bits 0 to 31 or 16 to 47.
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

/// `add.cc` to `madc`: with a carry out, and a carry in where `takes` says so.
fn extended(words: &mut Words, takes: bool) -> Result<Lanes, String> {
    // `addc` and its like without `.cc` leave the carry as it was.
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

/// `dp4a`, `dp2a`: four products of bytes, or two of a half-word and a byte, added to c.
fn dot<const PARTS: usize>(words: &mut Words) -> Result<Lanes, String> {
    let upper = PARTS == 2 && words.take("hi");
    if PARTS == 2 && !upper && !words.take("lo") {
        return Err(words.unknown());
    }
    let (a_type, b_type) = (words.ty()?, words.ty().unwrap_or(Type::Pred));
    let signed = |ty| match ty {
        Type::U32 => Ok(false),
        Type::S32 => Ok(true),
        _ => Err("`dp4a` and `dp2a` have two types, each `.u32` or `.s32`".to_owned()),
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

/// How `setp` and `set` join their comparison with a predicate.
pub fn join(words: &mut Words, instruction: &Instruction) -> fn(u32, u32) -> u32 {
    let negated = matches!(instruction.operands.last(), Some(Operand::Not(_)));
    match (words.take_any(&["and", "or", "xor"]), negated) {
        (None, _) => |bits, _| bits,
        (Some("and"), false) => |bits, c| bits & c,
        (Some("and"), true) => |bits, c| bits & !c,
        (Some("or"), false) => |bits, c| bits | c,
        (Some("or"), true) => |bits, c| bits | !c,
        (Some(_), false) => |bits, c| bits ^ c,
        (Some(_), true) => |bits, c| bits ^ !c,
    }
}

/// `setp` and `set` of integers.
pub fn compare(words: &mut Words, instruction: &Instruction) -> Result<Lanes, String> {
    let relation = words
        .take_any(&["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"])
        .ok_or_else(|| words.unknown())?;
    let join = join(words, instruction);
    let result = if words.name() == "set" { Some(words.ty()?) } else { None };
    let ty = words.ty()?;
    for_integer!(ty, words, compare_of(words, relation, join, result))
}

fn compare_of<T: Integer>(
    words: &Words,
    relation: &str,
    join: fn(u32, u32) -> u32,
    result: Option<Type>,
) -> Result<Lanes, String> {
    macro_rules! lanes {
        ($test:expr) => {
            match result {
                None => compare_lanes($test, join),
                Some(Type::F32) => compare_set($test, join, [0.0f32, 1.0]),
                Some(Type::U32 | Type::S32) => compare_set($test, join, [0u32, u32::MAX]),
                Some(_) => return Err(words.unknown()),
            }
        };
    }
    Ok(match relation {
        "eq" => lanes!(|a: T, b: T| a == b),
        "ne" => lanes!(|a: T, b: T| a != b),
        "lt" => lanes!(|a: T, b: T| a < b),
        "le" => lanes!(|a: T, b: T| a <= b),
        "gt" => lanes!(|a: T, b: T| a > b),
        "ge" => lanes!(|a: T, b: T| a >= b),
        "lo" => lanes!(|a: T, b: T| a.bits() < b.bits()),
        "ls" => lanes!(|a: T, b: T| a.bits() <= b.bits()),
        "hi" => lanes!(|a: T, b: T| a.bits() > b.bits()),
        _ => lanes!(|a: T, b: T| a.bits() >= b.bits()),
    })
}

/// `selp` and `slct`.
pub fn select(words: &mut Words) -> Result<Lanes, String> {
    let flush = words.name() == "slct" && words.take("ftz");
    let ty = words.ty()?;
    if words.name() == "selp" {
        return match bank_of(ty) {
            Some(Bank::Half) if bits_of(ty) == 16 => Ok(select_lanes::<u16>()),
            Some(Bank::Word) => Ok(select_lanes::<u32>()),
            Some(Bank::Double) => Ok(select_lanes::<u64>()),
            _ => Err(words.unknown()),
        };
    }
    macro_rules! by_sign {
        ($value:ident, $sign:ident) => {
            ternary(|a: $value, b: $value, c: $sign| if c >= 0 as $sign { a } else { b })
        };
    }
    // NaN is not at least 0, and -0 is: flushing a subnormal makes it at least 0.
    macro_rules! by_flushed {
        ($value:ident) => {
            ternary(|a: $value, b: $value, c: f32| if super::number::flush(c) >= 0.0 { a } else { b })
        };
    }
    Ok(match (bits_of(ty), words.ty()?, flush) {
        (16, Type::S32, false) => by_sign!(u16, i32),
        (32, Type::S32, false) => by_sign!(u32, i32),
        (64, Type::S32, false) => by_sign!(u64, i32),
        (16, Type::F32, false) => by_sign!(u16, f32),
        (32, Type::F32, false) => by_sign!(u32, f32),
        (64, Type::F32, false) => by_sign!(u64, f32),
        (16, Type::F32, true) => by_flushed!(u16),
        (32, Type::F32, true) => by_flushed!(u32),
        (64, Type::F32, true) => by_flushed!(u64),
        _ => return Err(words.unknown()),
    })
}

/// A conversion between integers: the low bits of a type, extended, or clamped to another where that saturates.
pub fn convert_integer(to: (Bank, Type), from: (Bank, Type), saturate: bool) -> Lanes {
    let (signed_from, signed_to) = (is_signed(from.1), is_signed(to.1));
    let (bits_from, bits_to) = (bits_of(from.1), bits_of(to.1));
    let extend = |value: u64, bits: u32, signed: bool| {
        let value = value << (64 - bits);
        if signed { (value as i64 >> (64 - bits)) as u64 } else { value >> (64 - bits) }
    };
    if !saturate {
        return convert(to.0, from.0, move |value| {
            extend(extend(value, bits_from, signed_from), bits_to, signed_to)
        });
    }
    let (least, greatest) = range(to.1);
    convert(to.0, from.0, move |value| {
        let value = extend(value, bits_from, signed_from);
        let value = if signed_from { i128::from(value as i64) } else { i128::from(value) };
        value.clamp(least, greatest) as u64
    })
}

/// Whether the type has a sign.
pub fn is_signed(ty: Type) -> bool {
    matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64)
}

/// The least and the greatest value of an integer type.
pub fn range(ty: Type) -> (i128, i128) {
    let bits = bits_of(ty);
    if is_signed(ty) { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}
