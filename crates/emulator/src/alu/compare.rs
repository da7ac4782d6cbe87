//! `setp` and `set`.
//!
//! (PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison Instructions".)

use crate::{
    exec::lanes::{Join, Lanes, Outcome, Relation, compare as compare_lanes, compare_halves},
    ptx::ast::{Instruction, Operand, Type},
};

use super::{
    convert::{bf16_to_f32, f16_to_f32},
    number::flush,
    soft::F16,
    words::Words,
};

/// Builds `setp` and `set` for all types.
pub fn compare(words: &mut Words, instruction: &Instruction) -> Result<Lanes, String> {
    let relation = relation(words)?;
    let join = join(words, instruction);
    let ftz = words.take("ftz");
    let outcome = if words.name() == "setp" { Outcome::Predicates } else { truth(words)? };
    let opposite = matches!(instruction.operands.first(), Some(Operand::Pair(..)));
    let half = move |a: u16| f16_to_f32(if ftz { F16.flush(a.into()) as u16 } else { a });
    Ok(match words.ty()? {
        Type::B16 | Type::U16 => compare_lanes(relation, outcome, join, |a: u16| a),
        Type::B32 | Type::U32 => compare_lanes(relation, outcome, join, |a: u32| a),
        Type::B64 | Type::U64 => compare_lanes(relation, outcome, join, |a: u64| a),
        Type::S16 => compare_lanes(relation, outcome, join, |a: i16| a),
        Type::S32 => compare_lanes(relation, outcome, join, |a: i32| a),
        Type::S64 => compare_lanes(relation, outcome, join, |a: i64| a),
        Type::F32 if ftz => compare_lanes(relation, outcome, join, flush),
        Type::F32 => compare_lanes(relation, outcome, join, |a: f32| a),
        Type::F64 => compare_lanes(relation, outcome, join, |a: f64| a),
        Type::F16 | Type::Bf16 if opposite => {
            return Err("comparisons of 16-bit floats have no second result".to_owned());
        }
        Type::F16 => compare_lanes(relation, outcome, join, half),
        Type::Bf16 => compare_lanes(relation, outcome, join, bf16_to_f32),
        Type::F16x2 => compare_halves(relation, outcome, join, half),
        Type::Bf16x2 => compare_halves(relation, outcome, join, bf16_to_f32),
        _ => return Err(words.unknown()),
    })
}

/// The value that `set` writes where the comparison holds: all ones, or 1.0 of a floating-point type. Packed
/// comparisons write two values.
fn truth(words: &mut Words) -> Result<Outcome, String> {
    let ty = words.ty()?;
    let of_two = words.clone().ty().is_ok_and(|from| matches!(from, Type::F16x2 | Type::Bf16x2));
    Ok(match ty {
        Type::U32 | Type::S32 if of_two => Outcome::Halves(u16::MAX),
        Type::F16x2 => Outcome::Halves(F16_ONE),
        Type::Bf16x2 => Outcome::Halves(BF16_ONE),
        Type::U32 | Type::S32 => Outcome::Value(u32::MAX),
        Type::F32 => Outcome::Value(1f32.to_bits()),
        Type::U16 | Type::S16 => Outcome::Half(u16::MAX),
        Type::F16 => Outcome::Half(F16_ONE),
        Type::Bf16 => Outcome::Half(BF16_ONE),
        _ => return Err(words.unknown()),
    })
}

/// 1.0 in the 16-bit formats.
const F16_ONE: u16 = 0x3c00;
const BF16_ONE: u16 = 0x3f80;

/// Takes the relation modifier.
///
/// A relation that is true for NaN is the negation of one that is false for NaN. Integers have no NaN, so
/// theirs are chosen to need only one test.
fn relation(words: &mut Words) -> Result<Relation, String> {
    const NAMES: [&str; 18] = [
        "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
        "num", "nan",
    ];
    let (outcomes, negated) = match (words.take_any(&NAMES), words.is_float()) {
        (None, _) => return Err(words.unknown()),
        (Some("eq"), _) => ("=", false),
        (Some("lt" | "lo"), _) => ("<", false),
        (Some("gt" | "hi"), _) => (">", false),
        (Some("ne"), true) => ("<>", false),
        (Some("le"), true) => ("<=", false),
        (Some("ge"), true) => (">=", false),
        (Some("ne" | "neu"), _) => ("=", true),
        (Some("le" | "ls" | "leu"), _) => (">", true),
        (Some("ge" | "hs" | "geu"), _) => ("<", true),
        (Some("equ"), _) => ("<>", true),
        (Some("ltu"), _) => (">=", true),
        (Some("gtu"), _) => ("<=", true),
        (Some("num"), _) => ("<=>", false),
        (Some(_), _) => ("<=>", true),
    };
    let [less, equal, greater] = ['<', '=', '>'].map(|outcome| outcomes.contains(outcome));
    Ok(Relation { less, equal, greater, negated })
}

/// Takes the modifier that combines the comparison with a predicate.
fn join(words: &mut Words, instruction: &Instruction) -> Join {
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
