//! Decodes calls through registers. (PTX ISA, "Control Flow Instructions: call".)
//!
//! A function's address only has to be unlike all others: the call compares it with those of the functions
//! that it may call, and each of them is inlined.

use std::collections::HashMap;

use crate::{
    exec::lanes::{self, Bank, Register},
    ptx::ast::{self, Operand, Space, Statement, Variable},
};

use super::{
    LoadError,
    code::{CODE_WINDOW, Guard, Operation},
    decode::{Context, Decoder, variable_size},
    flow::Uses,
};

/// The most calls through registers that are nested in each other, to bound the code that they become.
const MOST_NESTED: usize = 4;

/// A call of an address at which no function is that the call may call.
#[derive(Debug)]
pub struct Miscall {
    pub pointer: Register,
    /// The addresses of functions, and why the call cannot call them.
    pub others: Vec<(u64, String)>,
}

/// The functions that a call through a register may call.
#[derive(Clone, Debug)]
pub enum Callees {
    /// `.calltargets`.
    Named(Vec<String>),
    /// `.callprototype`: those with results and parameters of these sizes in memory (`.param`).
    Like([Vec<u64>; 2]),
}

/// The functions of a module whose address is taken, in the order of the text.
pub(super) fn taken(module: &ast::Module) -> Vec<&str> {
    let mut names = std::collections::HashSet::new();
    for variable in &module.variables {
        names.extend(variable.initial.iter().filter_map(|value| match value {
            ast::Initial::Address { name, .. } => Some(name.as_str()),
            ast::Initial::Bits(_) => None,
        }));
    }
    for function in &module.functions {
        mentioned(function.body.as_deref().unwrap_or_default(), &mut names);
    }
    let mut found = Vec::new();
    for function in &module.functions {
        // Each name once: a declaration may precede the definition.
        if names.remove(function.name.as_str()) {
            found.push(function.name.as_str());
        }
    }
    found
}

/// Adds the names among the operands of instructions, without the functions that calls name.
fn mentioned<'a>(statements: &'a [Statement], names: &mut std::collections::HashSet<&'a str>) {
    for statement in statements {
        match statement {
            Statement::Block(inner) => mentioned(inner, names),
            Statement::Instruction(instruction) if instruction.name != "call" => {
                names.extend(instruction.operands.iter().filter_map(|operand| match operand {
                    Operand::Name(name) | Operand::Sum(name, _) => Some(name.as_str()),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
}

/// The address of the function at this place among those whose address is taken.
pub(super) fn address(place: usize) -> u64 {
    CODE_WINDOW + 16 * (place as u64 + 1)
}

/// The lists `name: .calltargets f, g;` and the prototypes of a body, by name.
pub(super) fn callees(statements: &[Statement]) -> HashMap<String, Callees> {
    let mut found = HashMap::new();
    for pair in statements.windows(2) {
        let [Statement::Label(name), Statement::Instruction(instruction)] = pair else { continue };
        let sizes = |operand: Option<&Operand>| match operand {
            Some(Operand::Arguments(sizes)) => sizes.iter().filter_map(size).collect(),
            _ => Vec::new(),
        };
        let callees = match instruction.name.as_str() {
            ".calltargets" => Callees::Named(instruction.operands.iter().filter_map(named).collect()),
            ".callprototype" => Callees::Like([0, 1].map(|place| sizes(instruction.operands.get(place)))),
            _ => continue,
        };
        found.insert(name.clone(), callees);
    }
    for statement in statements {
        if let Statement::Block(inner) = statement {
            found.extend(callees(inner));
        }
    }
    found
}

fn size(operand: &Operand) -> Option<u64> {
    match operand {
        Operand::Integer(bytes) => Some(*bytes),
        _ => None,
    }
}

fn named(operand: &Operand) -> Option<String> {
    match operand {
        Operand::Name(name) => Some(name.clone()),
        _ => None,
    }
}

impl Callees {
    fn include(&self, function: &ast::Function) -> bool {
        let size = |variable: &Variable| match variable.space {
            Space::Reg => None,
            _ => variable_size(variable),
        };
        let are =
            |wanted: &[u64], found: &[Variable]| wanted.iter().copied().map(Some).eq(found.iter().map(size));
        match self {
            Callees::Named(names) => names.contains(&function.name),
            Callees::Like([results, params]) => {
                are(results, &function.returns) && are(params, &function.params)
            }
        }
    }
}

/// Decodes the call of the address in a register, the operand at `place`.
pub(super) fn indirect<'a>(
    decoder: &mut Decoder<'a>,
    instruction: &'a ast::Instruction,
    (place, returned, given): (usize, &'a [Operand], &'a [Operand]),
) -> Result<(), LoadError> {
    let pointer = decoder.source(&instruction.operands[place], Bank::Double)?;
    let list =
        instruction.operands.last().and_then(named).and_then(|name| decoder.callees.get(&name).cloned());
    let Some(list) = list else {
        return decoder.error("a call through a register needs `.calltargets` or a `.callprototype`");
    };
    let Context { functions, taken, .. } = decoder.context;
    let after = decoder.label();
    let mut others = Vec::new();
    decoder.indirect += 1;
    for (place, name) in taken.iter().enumerate() {
        let (address, function) = (address(place), functions[name]);
        if !list.include(function) {
            others.push((address, format!("`{name}` has other parameters or results than the call")));
            continue;
        }
        let why_not = match decoder.indirect > MOST_NESTED {
            true => Some(format!("calls through registers are nested more than {MOST_NESTED} deep")),
            false => decoder.why_not(function),
        };
        if let Some(why_not) = why_not {
            others.push((address, why_not));
            continue;
        }
        let (next, differs) = (decoder.label(), decoder.fresh(Bank::Predicate));
        let operands = [differs.index, pointer.index, 0, 0, 0, 0, 0, 0];
        let operation = Operation::Lanes(lanes::test(move |pointer: u64| pointer != address), operands);
        decoder.emit(operation, Uses { read: vec![pointer], written: vec![differs] })?;
        decoder.guard = Guard { predicate: differs.index, negated: 0 };
        decoder.jump(next)?;
        decoder.guard = Guard::NONE;
        decoder.inline(function, returned, given)?;
        decoder.jump(after)?;
        decoder.place_label(next);
    }
    decoder.indirect -= 1;
    let uses = Uses { read: vec![pointer], written: vec![] };
    decoder.emit(Operation::Miscall(Box::new(Miscall { pointer, others })), uses)?;
    decoder.place_label(after);
    Ok(())
}
