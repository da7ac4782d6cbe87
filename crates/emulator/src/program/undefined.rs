//! Finds the instructions that may see undefined values.
//!
//! Registers that no instruction has written are undefined, and so are local and shared memory. Compilers
//! copy undefined values, and combine them with others if the result is not used. So reading one is not a
//! fault. Using one is: as an address, in a branch, or as a value stored to global memory. This module finds
//! the registers that may be undefined, once per kernel; most kernels have none. The instructions that read
//! or write such a register track at run time in which lanes it is undefined.
//!
//! Every load from shared memory may read what nothing wrote, every vector from global memory may have
//! padding, and every shuffle may read from a lane that has ended, so that nearly all registers may be
//! undefined then. They are tracked only in a block where that has happened, from then on ([`Wide`]).
//!
//! A value that may be partly defined counts as defined.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use crate::{
    exec::lanes::{ALL, Register},
    ptx::ast,
};

use super::{
    code::{CollectiveKind, Guard, Instruction, Operation, Space},
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

/// The registers that may be undefined.
#[derive(Debug, Default)]
pub struct Tracked {
    /// The registers by number.
    pub registers: Vec<Register>,
    /// By number, the lanes in which the register is undefined when a thread starts.
    pub lanes: Vec<u32>,
    /// The numbers of those that no instruction writes.
    pub unwritten: Vec<u32>,
}

/// What [`find`] needs to know of a kernel.
#[derive(Debug)]
pub struct Sources {
    pub uses: Vec<Uses>,
    pub rules: Vec<Rule>,
    /// Registers that may be read before they are written.
    pub early: Vec<Register>,
    /// Registers that hold constants or are never read.
    pub fixed: HashSet<Register>,
    pub has_local: bool,
}

/// The registers that may be undefined if shared memory that nothing wrote is read, or padding in global
/// memory, or a lane that has ended; found when that happens.
#[derive(Debug)]
pub struct Wide {
    sources: Sources,
    found: OnceLock<(Tracked, Carries)>,
}

/// What each instruction does with values that may be undefined.
pub type Carries = Vec<Option<Box<Carry>>>;

impl Wide {
    /// `None` if no instruction loads from shared memory or a vector from global memory, and none shuffles.
    pub fn new(instructions: &[Instruction], sources: Sources) -> Option<Wide> {
        let may_read = |instruction: &Instruction| match &instruction.operation {
            Operation::Load(load) => match load.address.space {
                Space::Global => load.targets.len() > 1,
                space => matches!(space, Space::Shared | Space::Generic),
            },
            operation => is_shuffle(operation) || matrix_load(operation).is_some(),
        };
        instructions.iter().any(may_read).then(|| Wide { sources, found: OnceLock::new() })
    }

    pub fn get(&self, instructions: &[Instruction]) -> &(Tracked, Carries) {
        self.found.get_or_init(|| find(instructions, &self.sources, true))
    }
}

fn is_shuffle(operation: &Operation) -> bool {
    matches!(operation, Operation::Collective(collective) if matches!(collective.kind, CollectiveKind::Shuffle(_)))
}

/// The space that a matrix instruction loads from.
fn matrix_load(operation: &Operation) -> Option<Space> {
    match operation {
        Operation::Matrix(collective) => {
            let (lines, stores) = collective.kind.lines()?;
            (!stores).then_some(lines.address.space)
        }
        _ => None,
    }
}

/// Finds the registers that may be undefined, and the instructions that may see them. `is_wide` says whether
/// loads from shared memory, and vectors from global memory, may be of places that nothing wrote, and
/// shuffles from lanes that have ended.
pub fn find(instructions: &[Instruction], sources: &Sources, is_wide: bool) -> (Tracked, Carries) {
    let Sources { uses, rules, early, fixed, has_local } = sources;
    let is_fixed = |register: Register| fixed.contains(&register);
    let mut numbers: HashMap<Register, u32> = HashMap::new();
    for &register in early {
        let next = numbers.len() as u32;
        numbers.entry(register).or_insert(next);
    }
    let mut changed = !early.is_empty() || *has_local || is_wide;
    while changed {
        changed = false;
        for ((instruction, uses), &rule) in instructions.iter().zip(uses).zip(rules) {
            let may = |register: &Register| numbers.contains_key(register);
            let (read, guard) = reads(instruction, uses);
            let carries = match &instruction.operation {
                Operation::Load(load) => match load.address.space {
                    Space::Global => is_wide && load.targets.len() > 1,
                    Space::Shared => is_wide,
                    Space::Generic => is_wide || *has_local,
                    _ => *has_local,
                },
                Operation::Lanes(..) if guard.is_some_and(may) => true,
                Operation::Lanes(..) if rule == Rule::Whole => read.iter().all(may),
                Operation::Lanes(..) if rule == Rule::All => {
                    read.iter().any(may) && read.iter().all(|register| may(register) || is_fixed(*register))
                }
                operation if is_wide && is_shuffle(operation) => true,
                operation if let Some(space) = matrix_load(operation) => {
                    is_wide || *has_local && space == Space::Generic
                }
                Operation::Lanes(..) | Operation::Collective(_) | Operation::Matrix(_) => {
                    read.iter().any(may)
                }
                _ => false,
            };
            for &register in uses.written.iter().filter(|&&register| carries && !is_fixed(register)) {
                let next = numbers.len() as u32;
                changed |= *numbers.entry(register).or_insert(next) == next;
            }
        }
    }
    let of = |((instruction, uses), &rule): ((&Instruction, &Uses), &Rule)| {
        let touched = uses.read.iter().chain(&uses.written).any(|register| numbers.contains_key(register));
        touched.then(|| Box::new(carry(instruction, uses, rule, &numbers, is_fixed)))
    };
    let carries = instructions.iter().zip(uses).zip(rules).map(of).collect();
    let mut registers: Vec<_> = numbers.keys().copied().collect();
    registers.sort_unstable_by_key(|register| numbers[register]);
    let mut lanes = vec![0; numbers.len()];
    for register in early {
        lanes[numbers[register] as usize] = ALL;
    }
    let written: HashSet<&Register> = uses.iter().flat_map(|uses| &uses.written).collect();
    let unwritten = early.iter().filter(|register| !written.contains(register));
    let unwritten = unwritten.map(|register| numbers[register]).collect();
    (Tracked { registers, lanes, unwritten }, carries)
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
        // `exec::matrix` sets the targets.
        Operation::Matrix(collective) => {
            if let Some((lines, _)) = collective.kind.lines() {
                let of_address = lines.address.base.iter().chain(&lines.stride);
                carry.used = of_address.filter_map(number).collect();
            }
            carry.sources = read.iter().map(number).collect();
            carry.targets = uses.written.iter().map(number).collect();
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
