//! Arithmetic instructions: maps names, modifiers and types to operations on lanes.

mod bits;
mod compare;
mod convert;
mod float;
mod integer;
mod matrix;
mod narrow;
mod number;
mod soft;
mod words;

pub use float::add_small;
pub use matrix::{Arithmetic, Narrow, TF32};
pub use number::{Integer, add_f32, add_f64, flush};
pub use soft::{BF16, F16, F32, Format, Rounding};
pub use words::{Words, bank_of, bits_of, parse_type};

use crate::{
    exec::lanes::{Bank, Lanes},
    ptx::ast::Instruction,
};

/// Returns the operation of an instruction, or `None` if it does not work lane by lane.
///
/// `banks` are the register banks of the operands, because a conversion's registers may be wider than its
/// types.
///
/// # Errors
///
/// A modifier or type that the instruction does not have, or that is unknown.
pub fn find(instruction: &Instruction, banks: &[Option<Bank>]) -> Result<Option<Lanes>, String> {
    let mut words = Words::new(instruction);
    let found = match words.name() {
        "mov" => Some(integer::mov(&mut words)?),
        "add" | "sub" | "mul" | "mad" | "fma" | "div" | "min" | "max" | "abs" | "neg" if words.is_float() => {
            Some(float::arithmetic(&mut words)?)
        }
        "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "copysign" | "testp" => {
            Some(float::function(&mut words)?)
        }
        "setp" | "set" => Some(compare::compare(&mut words, instruction)?),
        "cvt" => Some(convert::convert(&mut words, banks)?),
        "selp" | "slct" => Some(integer::select(&mut words)?),
        "and" | "or" | "xor" | "not" | "cnot" | "lop3" | "shl" | "shr" | "shf" | "bfe" | "bfi" | "bfind"
        | "brev" | "clz" | "popc" | "prmt" | "szext" | "bmsk" | "fns" => {
            Some(bits::find(&mut words, instruction)?)
        }
        "add" | "sub" | "mul" | "mad" | "mul24" | "mad24" | "div" | "rem" | "min" | "max" | "abs" | "neg"
        | "sad" | "addc" | "subc" | "madc" | "dp4a" | "dp2a" => Some(integer::arithmetic(&mut words)?),
        _ => None,
    };
    if found.is_some() {
        words.finish()?;
    }
    Ok(found)
}
