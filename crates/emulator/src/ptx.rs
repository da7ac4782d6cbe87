//! From PTX text to a syntax tree (PTX ISA, "Syntax", "Directives").
//!
//! Reads what rustc and nvcc emit. Names stay unresolved and instructions unchecked: the decoder knows them.
//! `.section` (debug data), `.pragma`, linkage, and hints other than `.maxntid` and `.reqntid` are left out.
//!
//! Time and memory grow linearly with the text, whatever is in it.

pub mod ast;
mod grammar;
mod instruction;
mod module;
mod number;
#[cfg(test)]
mod tests;
mod token;
mod variable;

use grammar::Input;
use winnow::Parser;

/// Why a text is not PTX.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// The line of the offending word, from 1.
    pub line: u32,
    /// What was expected and what stands there.
    pub message: String,
}

/// Parses one module.
///
/// # Errors
/// The first [`ParseError`] in the text. Scopes nested more than 64 deep, more than 2²⁰ registers in one
/// range and addresses of 32 bits are errors too.
///
/// # Example
/// ```
/// let module = emulator::ptx::parse(".version 6.0 .target sm_70 .visible .entry nothing() { ret; }")?;
/// assert_eq!(module.functions[0].name, "nothing");
///
/// let error = emulator::ptx::parse(".version 6.0\n.target 70").unwrap_err();
/// assert_eq!(error.to_string(), "line 2: expected a target, found `70`");
/// # Ok::<(), emulator::ptx::ParseError>(())
/// ```
pub fn parse(text: &str) -> Result<ast::Module, ParseError> {
    let tokens = token::tokens(text)?;
    module::module.parse(Input::new(&tokens)).map_err(|error| grammar::explain(error.into_inner(), &tokens))
}
