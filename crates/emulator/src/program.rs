//! A module, decoded: what its kernels need of a launch, and their instructions in a form that runs fast.

pub(crate) mod code;
mod copy;
mod decode;
pub(crate) mod flow;
pub mod forms;
mod memory;
mod sync;
mod system;
pub(crate) mod undefined;
mod variables;
mod video;

use std::collections::HashMap;

use crate::ptx::ast::{self, Space};

/// Why a module cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {message}")]
pub struct LoadError {
    /// The line in the PTX text.
    pub line: u32,
    /// What is wrong there.
    pub message: String,
    /// Whether the emulator does not know what may be right.
    pub unknown: bool,
}

/// One decoded module.
#[derive(Debug)]
pub struct Program {
    kernels: Vec<Kernel>,
    variables: Vec<Variable>,
    /// `.file`: the index and path of each.
    pub(crate) files: Vec<(u32, String)>,
}

/// A parameter of a kernel: where it lies in the launch's parameter bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Bytes from the start, a multiple of `align`.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Bytes.
    pub align: usize,
}

/// A kernel.
#[derive(Debug)]
#[non_exhaustive]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<Param>,
    /// Bytes of all parameters.
    pub param_bytes: usize,
    /// Bytes of static shared memory a block.
    pub shared_bytes: usize,
    /// Bytes of local memory a thread.
    pub local_bytes: usize,
    /// 32-bit registers a thread: the most that hold live values at a time. A GPU's own compiler may need more or fewer.
    pub registers: u32,
    /// The most threads a block: what `.maxntid` or `.reqntid` says, otherwise 1024.
    pub max_threads: u32,
    /// The threads in x, y and z that a block must have: what `.reqntid` says.
    pub required_threads: Option<[u32; 3]>,
    /// What the emulator does not know in it, so that it cannot run.
    pub unknown: Option<LoadError>,
    pub(crate) code: code::Code,
}

/// A variable at module scope, `.global` or `.const`.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// `Space::Global` or `Space::Const`.
    pub space: Space,
    /// Bytes.
    pub size: u64,
    /// Bytes.
    pub align: u64,
    /// What it holds when the module is loaded: its first bytes, those of `relocations` zero. All further ones are zero.
    pub initial: Vec<u8>,
    /// The addresses in it.
    pub relocations: Vec<Relocation>,
}

/// An address that an initialiser holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Where in the variable it lies.
    pub at: usize,
    /// Its bytes.
    pub size: usize,
    /// The variable whose address it is.
    pub name: String,
    /// What is added to that address.
    pub addend: i64,
}

impl Program {
    /// Decodes a module.
    ///
    /// # Errors
    ///
    /// The module holds something that is not PTX; the error names it and its line. A kernel with something that the
    /// emulator does not know is kept for others' sake, and [cannot run](Kernel::unknown); but it is an error where no
    /// kernel can.
    pub fn decode(module: &ast::Module) -> Result<Program, LoadError> {
        let mut context = decode::Context { functions: HashMap::new(), variables: HashMap::new() };
        for function in &module.functions {
            let known = context.functions.entry(&function.name).or_insert(function);
            if known.body.is_none() {
                *known = function;
            } else if function.body.is_some() && !std::ptr::eq(*known, function) {
                return Err(LoadError {
                    line: function.line,
                    message: format!("`{}` is defined twice", function.name),
                    unknown: false,
                });
            }
        }
        for variable in &module.variables {
            let known = context.variables.insert(&variable.name, variable);
            if known.is_some_and(|known| !known.external && !variable.external) {
                return Err(LoadError {
                    line: variable.line,
                    message: format!("`{}` is defined twice", variable.name),
                    unknown: false,
                });
            }
        }
        let mut kernels = Vec::new();
        let mut unknown = None;
        for function in module.functions.iter().filter(|function| function.body.is_some()) {
            // A function is decoded where it is called; here only to find its errors.
            let kernel = decode::kernel(&context, function)?;
            unknown = unknown.or(kernel.unknown.clone());
            if function.entry {
                kernels.push(kernel);
            }
        }
        if kernels.iter().all(|kernel| kernel.unknown.is_some())
            && let Some(error) = unknown
        {
            return Err(error);
        }
        let variables = variables::decode(&module.variables, &context)?;
        Ok(Program { kernels, variables, files: module.files.clone() })
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// All kernels, in the order of the text.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The variables at module scope that are `.global` or `.const`.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }
}
