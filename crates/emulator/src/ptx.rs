//! Parses PTX text into a syntax tree (PTX ISA, "Syntax", "Directives").
//!
//! Reads what rustc and nvcc emit. Names stay unresolved and instructions unchecked; the decoder handles
//! both. The tree leaves out `.section` (debug data), `.pragma`, linkage other than `.extern`, and hints
//! other than `.maxntid` and `.reqntid`.
//!
//! Time and memory grow linearly with the text, for any text.

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

/// A syntax error in a PTX text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// The line of the offending token, from 1.
    pub line: u32,
    /// What was expected, and what was found.
    pub message: String,
}

/// Parses one module.
///
/// # Errors
/// The first [`ParseError`] in the text. Scopes nested more than 64 deep, more than 2²⁰ registers in one
/// range and 32-bit addresses are errors, too.
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
