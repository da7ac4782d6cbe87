//! Finds the instructions that may see undefined values.
//!
//! Registers that no instruction has written are undefined, and so is local memory. Compilers copy undefined
//! values, and combine them with others if the result is not used. So reading one is not a fault. Using one
//! is: as an address, in a branch, or as a value stored to global memory. This module finds the registers
//! that may be undefined, once per kernel; most kernels have none. The instructions that read or write such a
//! register track at run time in which lanes it is undefined.
//!
//! A value that may be partly defined counts as defined.

use std::collections::{HashMap, HashSet};

use crate::{
    exec::lanes::{ALL, Register},
    ptx::ast,
};

use super::{
    code::{Guard, Instruction, Operation, Space},
    flow::Uses,
};

/// When a result is undefined in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// If any source is.
    #[default]
    Any,
    /// If all sources are, not counting constants.
    All,
    /// If all sources are; constants count as defined.
    Whole,
    /// `selp`: if the source that the predicate (the last source) selects is.
    Select,
    /// For collectives: in all lanes, if the source is in all of them.
    Together,
}

impl Rule {
    pub fn of(instruction: &ast::Instruction) -> Rule {
        let has = |words: &[&str]| instruction.modifiers.iter().any(|word| words.contains(&word.as_str()));
        match instruction.name.as_str() {
            "and" | "or" | "xor" | "lop3" => Rule::All,
            "bfi" | "prmt" | "shf" | "slct" => Rule::Whole,
            // Combined with a predicate.
            "set" | "setp" if has(&["and", "or", "xor"]) => Rule::Whole,
            // A copy, or parts that are packed.
            "mov" | "cvt" | "cvta" => Rule::Whole,
            "selp" => Rule::Select,
            _ => Rule::Any,
        }
    }
}

/// A register's number among those that may be undefined. `None` for other registers.
pub type Number = Option<u32>;

/// How an instruction treats values that may be undefined.
#[derive(Debug, Default)]
pub struct Carry {
    /// The guard's predicate.
    pub guard: Number,
    /// Registers that must be defined, such as addresses and branch indices.
    pub used: Vec<u32>,
    /// The stored values.
    pub stored: Vec<Number>,
    /// The sources of its results; `rule` says how the results depend on them.
    pub sources: Vec<Number>,
    pub rule: Rule,
    pub targets: Vec<Number>,
    /// Destinations that are defined in any case.
    pub defined: Vec<u32>,
}

/// Finds the instructions that may see undefined values, and sets their `carry`.
///
/// `early` are the registers that may be read before they are written; `is_fixed` tells registers that hold
/// constants or are never read. Returns for each register that may be undefined, by number, the lanes in
/// which it is when a thread starts; and the numbers of those that are never written.
pub fn find(
    instructions: &mut [Instruction],
    uses: &[Uses],
    rules: &[Rule],
    early: &[Register],
    has_local: bool,
    is_fixed: impl Fn(Register) -> bool,
) -> (Vec<u32>, Vec<u32>) {
    let mut numbers: HashMap<Register, u32> = HashMap::new();
    for &register in early {
        let next = numbers.len() as u32;
        numbers.entry(register).or_insert(next);
    }
    let mut changed = !early.is_empty() || has_local;
    while changed {
        changed = false;
        for ((instruction, uses), &rule) in instructions.iter().zip(uses).zip(rules) {
            let may = |register: &Register| numbers.contains_key(register);
            let (read, guard) = reads(instruction, uses);
            let carries = match &instruction.operation {
                Operation::Load(load) => {
                    has_local && !matches!(load.address.space, Space::Global | Space::Shared)
                }
                Operation::Lanes(..) if guard.is_some_and(may) => true,
                Operation::Lanes(..) if rule == Rule::Whole => read.iter().all(may),
                Operation::Lanes(..) if rule == Rule::All => {
                    read.iter().any(may) && read.iter().all(|register| may(register) || is_fixed(*register))
                }
                Operation::Lanes(..) | Operation::Collective(_) => read.iter().any(may),
                _ => false,
            };
            for &register in uses.written.iter().filter(|&&register| carries && !is_fixed(register)) {
                let next = numbers.len() as u32;
                changed |= *numbers.entry(register).or_insert(next) == next;
            }
        }
    }
    if numbers.is_empty() {
        return Default::default();
    }
    for ((instruction, uses), &rule) in instructions.iter_mut().zip(uses).zip(rules) {
        let touched = uses.read.iter().chain(&uses.written).any(|register| numbers.contains_key(register));
        if touched {
            instruction.carry = Some(Box::new(carry(instruction, uses, rule, &numbers, &is_fixed)));
        }
    }
    let mut lanes = vec![0; numbers.len()];
    for register in early {
        lanes[numbers[register] as usize] = ALL;
    }
    let written: HashSet<&Register> = uses.iter().flat_map(|uses| &uses.written).collect();
    let unwritten = early.iter().filter(|register| !written.contains(register));
    let unwritten = unwritten.map(|register| numbers[register]);
    (lanes, unwritten.collect())
}

/// Splits the registers that an instruction reads into its operands and its guard, which is the last.
fn reads<'a>(instruction: &Instruction, uses: &'a Uses) -> (&'a [Register], Option<&'a Register>) {
    match uses.read.split_last() {
        Some((guard, read)) if instruction.guard != Guard::NONE => (read, Some(guard)),
        _ => (&uses.read, None),
    }
}

fn carry(
    instruction: &Instruction,
    uses: &Uses,
    rule: Rule,
    numbers: &HashMap<Register, u32>,
    is_fixed: impl Fn(Register) -> bool,
) -> Carry {
    let number = |register: &Register| numbers.get(register).copied();
    let (read, guard) = reads(instruction, uses);
    let mut carry = Carry { guard: guard.and_then(number), ..Carry::default() };
    match &instruction.operation {
        Operation::Lanes(..) => {
            let counts = |register: &&Register| rule != Rule::All || !is_fixed(**register);
            carry.sources = read.iter().filter(counts).map(number).collect();
            carry.rule = rule;
            carry.targets = uses.written.iter().map(number).collect();
        }
        Operation::Collective(collective) => {
            carry.used.extend(number(&collective.mask));
            carry.sources = vec![number(&collective.source)];
            carry.rule = Rule::Together;
            carry.targets = vec![number(&collective.target)];
            carry.defined.extend(number(&collective.flag));
        }
        // `carry_loaded` sets the targets after the load.
        Operation::Load(load) => {
            carry.used.extend(load.address.base.as_ref().and_then(number));
            carry.targets = uses.written.iter().map(number).collect();
        }
        Operation::Store(store) => {
            carry.used.extend(store.address.base.as_ref().and_then(number));
            carry.stored = store.sources.iter().map(number).collect();
        }
        Operation::Barrier(barrier) => {
            carry.used = [Some(barrier.index), barrier.threads].iter().flatten().filter_map(number).collect();
            carry.defined = uses.written.iter().filter_map(number).collect();
        }
        _ => {
            carry.used = read.iter().filter_map(number).collect();
            carry.defined = uses.written.iter().filter_map(number).collect();
        }
    }
    carry
}
