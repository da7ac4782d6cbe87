//! Decodes module-scope variables.

use crate::{
    alu::bits_of,
    ptx::ast::{self, Initial, Space},
};

use super::{
    LoadError, Relocation, Variable,
    decode::{Context, variable_size},
};

/// Decodes the variables in global and constant memory.
pub fn decode(variables: &[ast::Variable], context: &Context) -> Result<Vec<Variable>, LoadError> {
    let held = variables.iter().filter(|variable| matches!(variable.space, Space::Global | Space::Const));
    held.map(|variable| {
        let error = |message: String| LoadError { line: variable.line, message, unknown: false };
        if variable.external {
            return Err(error(format!(
                "`{}` is defined in another module; the emulator does not link",
                variable.name
            )));
        }
        let size = variable_size(variable).filter(|&size| size < 1 << 40);
        let size = size.ok_or_else(|| error(format!("`{}` is too large", variable.name)))?;
        let element = bits_of(variable.ty).div_ceil(8) as usize;
        if (variable.initial.len() * element) as u64 > size {
            return Err(error(format!("`{}` has more initial values than elements", variable.name)));
        }
        let mut initial = vec![0; variable.initial.len() * element];
        let mut relocations = Vec::new();
        for (index, value) in variable.initial.iter().enumerate() {
            let at = index * element;
            match value {
                Initial::Bits(bits) => {
                    let bytes = bits.to_le_bytes();
                    let count = element.min(bytes.len());
                    initial[at..at + count].copy_from_slice(&bytes[..count]);
                }
                Initial::Address { name, offset, .. } => {
                    if let Some(address) = context.address(name) {
                        let bytes = address.wrapping_add(*offset as u64).to_le_bytes();
                        let count = element.min(bytes.len());
                        initial[at..at + count].copy_from_slice(&bytes[..count]);
                        continue;
                    }
                    if !context.variables.contains_key(name.as_str()) {
                        return Err(error(format!("`{name}` is not a variable whose address is known")));
                    }
                    relocations.push(Relocation { at, size: element, name: name.clone(), addend: *offset });
                }
            }
        }
        Ok(Variable {
            name: variable.name.clone(),
            space: variable.space,
            size,
            align: u64::from(variable.align.max(1)),
            initial,
            relocations,
        })
    })
    .collect()
}
