//! Values that nothing defines: which instructions may come to see one.
//!
//! A register that no instruction has written holds such a value, and so does local memory. Compilers copy them around, and
//! combine them with others where the result is dropped, so that reading one is no fault: using one is, as an address, for
//! where a thread goes, or as what global memory is to hold. Which registers may hold one is found here, once for a kernel;
//! the instructions that read or write such a register, of which most kernels have none, carry on while they run in which
//! lanes it does.
//!
//! Where part of a result may be defined, all of it counts as defined.

use std::collections::{HashMap, HashSet};

use crate::{
    exec::lanes::{ALL, Register},
    ptx::ast,
};

use super::{
    code::{Guard, Instruction, Operation, Space},
    flow::Uses,
};

/// In which lanes a result is undefined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Where any source is.
    #[default]
    Any,
    /// Where all sources that are registers are.
    All,
    /// Where all sources are; constants are defined.
    Whole,
    /// `selp`: where the source is that the predicate, the last one, takes.
    Select,
    /// What lanes do together: in all of them, where the source is in all of them.
    Together,
}

impl Rule {
    pub fn of(instruction: &ast::Instruction) -> Rule {
        let has = |words: &[&str]| instruction.modifiers.iter().any(|word| words.contains(&word.as_str()));
        match instruction.name.as_str() {
            "and" | "or" | "xor" | "lop3" => Rule::All,
            "bfi" | "prmt" | "shf" | "slct" => Rule::Whole,
            // Joined with a predicate.
            "set" | "setp" if has(&["and", "or", "xor"]) => Rule::Whole,
            // Parts that make up a whole, or a copy.
            "mov" | "cvt" | "cvta" => Rule::Whole,
            "selp" => Rule::Select,
            _ => Rule::Any,
        }
    }
}

/// A register's number among those that may be undefined; `None` for any other.
pub type Number = Option<u32>;

/// What an instruction does with values that may be undefined.
#[derive(Debug, Default)]
pub struct Carry {
    /// The predicate that it is guarded by.
    pub guard: Number,
    /// What must be defined: an address, the target of a branch.
    pub used: Vec<u32>,
    /// What is stored, each value by itself.
    pub stored: Vec<Number>,
    /// What its results depend on, and how.
    pub sources: Vec<Number>,
    pub rule: Rule,
    pub targets: Vec<Number>,
    /// What it writes that is defined in any case.
    pub defined: Vec<u32>,
}

/// Finds the instructions that may see undefined values, and notes in each what it does with them. Returns for each register
/// that may be undefined, by its number, the lanes where it is when a thread starts; and which of them are never written.
///
/// `early` are registers that may be read before they are written; `is_fixed` ones hold constants, or are read by nobody.
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

/// What an instruction reads but its guard, which is the last one of its uses; and the guard.
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
        // What it gives is noted when it is done.
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
