//! Decoded modules: what each kernel requires of a launch, and its instructions in a form that runs fast.

pub(crate) mod arrays;
pub(crate) mod bulk;
pub(crate) mod call;
pub(crate) mod code;
mod copy;
mod decode;
mod flags;
pub(crate) mod flow;
pub mod forms;
mod lines;
mod matrix;
pub(crate) mod mbarrier;
mod memory;
mod swaps;
mod sync;
mod system;
pub(crate) mod undefined;
mod variables;
mod video;

use std::collections::HashMap;

use crate::ptx::ast::{self, Space};

/// An error in a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {message}")]
pub struct LoadError {
    /// The line in the PTX text.
    pub line: u32,
    /// What is wrong there.
    pub message: String,
    /// Whether it may be valid PTX that the emulator does not know.
    pub unknown: bool,
}

/// A decoded module.
#[derive(Debug)]
pub struct Program {
    kernels: Vec<Kernel>,
    variables: Vec<Variable>,
    /// The index and path of each `.file`.
    pub(crate) files: Vec<(u32, String)>,
}

/// The place of a kernel parameter in the launch's parameter bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// In bytes from the start, a multiple of `align`.
    pub offset: usize,
    /// In bytes.
    pub size: usize,
    /// In bytes.
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
    /// Bytes of static shared memory per block.
    pub shared_bytes: usize,
    /// Bytes of local memory per thread.
    pub local_bytes: usize,
    /// 32-bit registers per thread: the most with live values at a time. A GPU's compiler may need more or
    /// fewer.
    pub registers: u32,
    /// The most threads per block: `.maxntid` or `.reqntid`, otherwise 1024.
    pub max_threads: u32,
    /// The threads in x, y and z that a block must have (`.reqntid`).
    pub required_threads: Option<[u32; 3]>,
    /// PTX in it that the emulator does not know, so that it cannot run.
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
    /// In bytes.
    pub size: u64,
    /// In bytes.
    pub align: u64,
    /// Its first bytes when the module is loaded, with zeros for `relocations`. All further bytes are zero.
    pub initial: Vec<u8>,
    /// The addresses in it.
    pub relocations: Vec<Relocation>,
}

/// An address in an initialiser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Its offset in the variable.
    pub at: usize,
    /// Its size in bytes.
    pub size: usize,
    /// The variable whose address it is.
    pub name: String,
    /// The bytes to add to that address.
    pub addend: i64,
}

impl Program {
    /// Decodes a module.
    ///
    /// # Errors
    ///
    /// The module is not valid PTX; the error names the text and its line. PTX that the emulator does not
    /// know is no error by itself, because other kernels of the module may run: the kernel with it [cannot
    /// run](Kernel::unknown). It is an error if no kernel of the module can run.
    pub fn decode(module: &ast::Module) -> Result<Program, LoadError> {
        let mut context = decode::Context {
            functions: HashMap::new(),
            variables: HashMap::new(),
            taken: call::taken(module),
            files: &module.files,
        };
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
            // Functions are decoded again where kernels call them; this decoding only finds their errors.
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

    /// Returns the kernel with this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// Returns all kernels, in the order of the text.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Returns the `.global` and `.const` variables at module scope.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }
}
