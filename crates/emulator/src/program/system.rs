//! Decodes calls of CUDA's device runtime: `vprintf` and `__assertfail`. (CUDA C++ Programming Guide,
//! "Formatted Output", "Assertion"; PTX Writer's Guide to Interoperability, "System Calls".)

use crate::{
    alu::bits_of,
    exec::lanes::Register,
    ptx::ast::{Function, Variable},
};

use super::{
    LoadError,
    code::{Assert, Operation, Print},
    decode::{Decoder, Symbol, bank_of_bits},
    flow::Uses,
};

/// Whether the runtime has a function of this name with parameters and results of these sizes.
pub fn has(function: &Function) -> bool {
    let bits = |variables: &[Variable]| -> Vec<u32> {
        let size = |variable: &Variable| match (variable.len, variable.vector) {
            (None, 0 | 1) => bits_of(variable.ty),
            _ => 0,
        };
        variables.iter().map(size).collect()
    };
    let (results, params) = (bits(&function.returns), bits(&function.params));
    match function.name.as_str() {
        "vprintf" => results == [32] && params == [64, 64],
        // The last parameter is the size of a character.
        "__assertfail" => results.is_empty() && params == [64, 64, 32, 64, 64],
        _ => false,
    }
}

/// Emits a call of a function for which [`has`] returns `true`.
pub fn call(
    decoder: &mut Decoder,
    name: &str,
    arguments: &[(&Variable, Symbol)],
    results: &[(&Variable, Symbol)],
) -> Result<(), LoadError> {
    let mut read = Vec::new();
    for (formal, symbol) in arguments {
        let (register, place) = register(decoder, formal, symbol)?;
        if let Some(offset) = place {
            decoder.load_local(register, offset, bits_of(formal.ty) / 8)?;
        }
        read.push(register);
    }
    match (&read[..], results) {
        (&[format, arguments], [(formal, symbol)]) => {
            let (result, place) = register(decoder, formal, symbol)?;
            let print = Print { format, arguments, result };
            decoder.emit(Operation::Print(Box::new(print)), Uses { read, written: vec![result] })?;
            match place {
                Some(offset) => decoder.store_local(result, offset, bits_of(formal.ty) / 8),
                None => Ok(()),
            }
        }
        (&[message, file, line, function, _], []) => {
            let assert = Assert { message, file, line, function, callers: decoder.callers() };
            decoder.emit(Operation::Assert(Box::new(assert)), Uses { read, written: vec![] })
        }
        _ => decoder.error(format!("`{name}` has different parameters")),
    }
}

/// The register of a parameter. For one in memory, a new register and the offset.
fn register(
    decoder: &mut Decoder,
    formal: &Variable,
    symbol: &Symbol,
) -> Result<(Register, Option<u64>), LoadError> {
    match (symbol, bank_of_bits(bits_of(formal.ty))) {
        (Symbol::Register { register, .. }, _) => Ok((*register, None)),
        (Symbol::Place { offset, .. }, Some(bank)) => Ok((decoder.fresh(bank), Some(*offset))),
        _ => decoder.error(format!("the type of parameter `{}` is not supported", formal.name)),
    }
}
