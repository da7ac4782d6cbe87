//! Logic, shifts and bit fields. (PTX ISA, "Logic and Shift Instructions", and `bfe` to `prmt` under "Integer
//! Arithmetic Instructions".)

use crate::{
    exec::lanes::{Lanes, binary, logic, logic_not, low, quaternary, ternary, unary},
    ptx::ast::{Instruction, Operand, Type},
};

use super::{
    integer::{for_integer, for_width},
    number::Integer,
    words::Words,
};

pub fn find(words: &mut Words, instruction: &Instruction) -> Result<Lanes, String> {
    match words.name() {
        "lop3" => return lop3(words, instruction),
        "shf" => return funnel(words),
        "prmt" => return permute(words),
        "bmsk" => return mask(words),
        "fns" => {
            return if words.ty()? == Type::B32 { Ok(ternary(nth_set)) } else { Err(words.unknown()) };
        }
        _ => {}
    }
    let ty = words.ty()?;
    match (words.name(), ty) {
        ("and", Type::Pred) => Ok(logic(|a, b| a & b)),
        ("or", Type::Pred) => Ok(logic(|a, b| a | b)),
        ("xor", Type::Pred) => Ok(logic(|a, b| a ^ b)),
        ("not", Type::Pred) => Ok(logic_not(|a| !a)),
        ("shr", _) => for_integer!(ty, words, shift_right()),
        ("bfe" | "bfind", Type::U32) => Ok(field::<u32>(words)),
        ("bfe" | "bfind", Type::S32) => Ok(field::<i32>(words)),
        ("bfe" | "bfind", Type::U64) => Ok(field::<u64>(words)),
        ("bfe" | "bfind", Type::S64) => Ok(field::<i64>(words)),
        ("szext", Type::U32) => Ok(extend::<u32>(words)),
        ("szext", Type::S32) => Ok(extend::<i32>(words)),
        ("bfi" | "brev" | "clz" | "popc", Type::B32) => Ok(scan::<u32>(words)),
        ("bfi" | "brev" | "clz" | "popc", Type::B64) => Ok(scan::<u64>(words)),
        _ => for_width!(ty, words, plain(words)),
    }
}

/// Operations that do not depend on the sign.
fn plain<T: Integer>(words: &Words) -> Result<Lanes, String> {
    Ok(match words.name() {
        "and" => binary(|a: T, b: T| T::from_bits(a.bits() & b.bits())),
        "or" => binary(|a: T, b: T| T::from_bits(a.bits() | b.bits())),
        "xor" => binary(|a: T, b: T| T::from_bits(a.bits() ^ b.bits())),
        "not" => unary(|a: T| T::from_bits(!a.bits())),
        "cnot" => unary(|a: T| T::from_bits(u64::from(a.bits() == 0))),
        "shl" => binary(|a: T, b: u32| T::from_bits(if b < T::BITS { a.bits() << b } else { 0 })),
        _ => return Err(words.unknown()),
    })
}

/// `shr`: amounts beyond the width fill the result with zeros or the sign.
fn shift_right<T: Integer>() -> Result<Lanes, String> {
    Ok(if T::SIGNED {
        binary(|a: T, b: u32| T::from_bits((a.extended() as i64 >> b.min(T::BITS - 1)) as u64))
    } else {
        binary(|a: T, b: u32| T::from_bits(if b < T::BITS { a.bits() >> b } else { 0 }))
    })
}

/// `bfi`, `brev`, `clz`, `popc`.
fn scan<T: Integer>(words: &Words) -> Lanes {
    match words.name() {
        "bfi" => quaternary(|a: T, b: T, start: u32, length: u32| {
            let [start, length] = [start, length].map(field_bits::<T>);
            let field = if start < T::BITS { low(length) << start } else { 0 };
            let value = if start < T::BITS { a.bits() << start } else { 0 };
            T::from_bits(b.bits() & !field | value & field)
        }),
        "brev" => unary(|a: T| T::from_bits(a.bits().reverse_bits() >> (64 - T::BITS))),
        "clz" => unary(|a: T| a.bits().leading_zeros() - (64 - T::BITS)),
        _ => unary(|a: T| a.bits().count_ones()),
    }
}

/// `bfe`, `bfind`.
fn field<T: Integer>(words: &mut Words) -> Lanes {
    if words.name() == "bfe" {
        return ternary(|a: T, start: u32, length: u32| {
            let [start, length] = [start, length].map(field_bits::<T>);
            extract(a, start, length)
        });
    }
    let shift = words.take("shiftamt");
    unary(move |a: T| leading(a, shift))
}

/// The start or length of a field. Only the low 8 bits count, as the PTX ISA says of `bfe` and `bfi`. For
/// 64-bit fields, an H200 uses all 32 bits.
fn field_bits<T: Integer>(amount: u32) -> u32 {
    if T::BITS == 64 { amount } else { amount & 0xff }
}

/// `bfe`. For signed types, bits above the field or beyond the top are copies of the field's sign bit.
fn extract<T: Integer>(a: T, start: u32, length: u32) -> T {
    let top = T::BITS - 1;
    let signed = T::SIGNED && length > 0;
    let sign = signed && a.bits() >> (start.saturating_add(length) - 1).min(top) & 1 != 0;
    let value = if start <= top { a.bits() >> start } else { 0 };
    // The field's bits that lie within the value.
    let length = length.min(T::BITS.saturating_sub(start));
    let fill = if sign { !low(length) } else { 0 };
    T::from_bits(value & low(length) | fill)
}

/// `bfind`: the position of the highest bit that differs from the sign, or its distance from the top. All
/// ones if there is none.
fn leading<T: Integer>(a: T, shift: bool) -> u32 {
    let bits = if T::SIGNED && a < T::default() { !a.bits() & low(T::BITS) } else { a.bits() };
    let place = 63u32.wrapping_sub(bits.leading_zeros());
    if bits == 0 {
        u32::MAX
    } else if shift {
        T::BITS - 1 - place
    } else {
        place
    }
}

/// `lop3`: bit i of the result is bit `4a + 2b + c` of the table, for bits i of a, b and c.
fn lop3(words: &mut Words, instruction: &Instruction) -> Result<Lanes, String> {
    let Some(&Operand::Integer(table)) = instruction.operands.get(4) else {
        return Err("`lop3` needs a constant lookup table as its fifth operand".to_owned());
    };
    if words.ty()? != Type::B32 {
        return Err(words.unknown());
    }
    Ok(ternary(move |a: u32, b: u32, c: u32| {
        (0..8).filter(|index| table >> index & 1 != 0).fold(0, |result, index| {
            let pick = |value: u32, bit: u32| if index & bit != 0 { value } else { !value };
            result | pick(a, 4) & pick(b, 2) & pick(c, 1)
        })
    }))
}

/// `shf`: 32 of the 64 bits of b and a.
fn funnel(words: &mut Words) -> Result<Lanes, String> {
    let left = match words.take_any(&["l", "r"]) {
        Some("l") => true,
        Some(_) => false,
        None => return Err(words.unknown()),
    };
    let wrap = match words.take_any(&["wrap", "clamp"]) {
        Some("wrap") => true,
        Some(_) => false,
        None => return Err(words.unknown()),
    };
    if words.ty()? != Type::B32 {
        return Err(words.unknown());
    }
    Ok(ternary(move |a: u32, b: u32, c: u32| {
        let both = u64::from(b) << 32 | u64::from(a);
        let count = if wrap { c & 31 } else { c.min(32) };
        if left { (both << count >> 32) as u32 } else { (both >> count) as u32 }
    }))
}

/// `prmt`: each byte of the result is one of the eight bytes of b and a.
fn permute(words: &mut Words) -> Result<Lanes, String> {
    let mode = words.take_any(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]);
    if words.ty()? != Type::B32 {
        return Err(words.unknown());
    }
    Ok(ternary(move |a: u32, b: u32, c: u32| {
        let both = u64::from(b) << 32 | u64::from(a);
        let start = c & 3;
        (0..4u32).fold(0, |result, place| {
            // The byte's index, and whether its sign bit fills the result byte.
            let (byte, sign) = match mode {
                None => (c >> (4 * place) & 7, c >> (4 * place) & 8 != 0),
                Some("f4e") => (start + place, false),
                Some("b4e") => (start.wrapping_sub(place) & 7, false),
                Some("rc8") => (start, false),
                Some("ecl") => (start.max(place), false),
                Some("ecr") => (start.min(place), false),
                Some(_) => ((start & 1) * 2 + (place & 1), false),
            };
            let value = (both >> (8 * byte)) as u8;
            let value = if sign { (value as i8 >> 7) as u8 } else { value };
            result | u32::from(value) << (8 * place)
        })
    }))
}

/// `bmsk`: b ones, starting at bit a.
fn mask(words: &mut Words) -> Result<Lanes, String> {
    let wrap = match words.take_any(&["wrap", "clamp"]) {
        Some("wrap") => true,
        Some(_) => false,
        None => return Err(words.unknown()),
    };
    if words.ty()? != Type::B32 {
        return Err(words.unknown());
    }
    Ok(binary(move |a: u32, b: u32| {
        let (a, b) = if wrap { (a & 31, b & 31) } else { (a.min(32), b.min(32)) };
        (low(b) << a) as u32
    }))
}

/// `szext`: extends the low b bits.
fn extend<T: Integer>(words: &mut Words) -> Lanes {
    let wrap = words.take_any(&["wrap", "clamp"]) == Some("wrap");
    binary(move |a: T, b: u32| {
        let count = if wrap { b & 31 } else { b.min(32) };
        if count == 0 {
            return T::default();
        }
        let value = (a.bits() << (64 - count)) as i64;
        T::from_bits(
            if T::SIGNED { value >> (64 - count) } else { (value as u64 >> (64 - count)) as i64 } as u64
        )
    })
}

/// `fns`: the position of the n-th set bit of the mask, counting from `base` up if n is positive, down if n
/// is negative. For n = 0, `base` itself if its bit is set. All ones if there is no such bit.
///
/// PTX does not define the result for `i32::MIN`, which has no magnitude; an H200 returns 0.
fn nth_set(mask: u32, base: u32, offset: i32) -> u32 {
    let base = base & 31;
    let set = |place: &u32| mask >> place & 1 != 0;
    let found = match offset {
        i32::MIN => return 0,
        0 => Some(base).filter(set),
        1.. => (base..32).filter(set).nth(offset as usize - 1),
        _ => (0..=base).rev().filter(set).nth(offset.unsigned_abs() as usize - 1),
    };
    found.unwrap_or(u32::MAX)
}
