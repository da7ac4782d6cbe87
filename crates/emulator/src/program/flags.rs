//! Finds the volatile loads that read flags.
//!
//! The PTX ISA calls a volatile access a relaxed one, and two relaxed accesses do not race ("Volatile
//! Operation"). But older code, written for GPUs whose lanes ran in step, exchanges data by volatile accesses
//! of shared memory without a barrier, which is wrong today. So in shared memory the race checks take a
//! volatile load of data for a plain load. They take the load of a flag for an atomic one: a load whose value
//! decides when a loop ends, or from which only conditions are computed.

use std::collections::HashSet;

use crate::exec::lanes::{Bank, Register};

use super::{
    code::{Guard, Instruction, Operation, Order, Space},
    flow::Uses,
};

/// Sets [`Load::reads_flag`](super::code::Load::reads_flag) of the volatile loads that may be of shared
/// memory.
pub fn mark(instructions: &mut [Instruction], uses: &[Uses]) {
    for at in 0..instructions.len() {
        let reads_flag = match &instructions[at].operation {
            Operation::Load(load)
                if load.order == Order::Volatile
                    && matches!(load.address.space, Space::Shared | Space::Generic) =>
            {
                ends_loop(instructions, uses, at) || gives_conditions(instructions, uses, at)
            }
            _ => false,
        };
        if let Operation::Load(load) = &mut instructions[at].operation {
            load.reads_flag = reads_flag;
        }
    }
}

/// Whether the load at `at` is in a loop, and the value that it loads decides whether the loop ends.
fn ends_loop(instructions: &[Instruction], uses: &[Uses], at: usize) -> bool {
    let target = |from: usize| match &instructions[from].operation {
        Operation::Branch { target, .. } => Some(*target as usize),
        _ => None,
    };
    let mut computed: HashSet<Register> = uses[at].written.iter().copied().collect();
    let mut branches = Vec::new();
    for (next, uses) in uses.iter().enumerate().skip(at + 1) {
        let is_computed = uses.read.iter().any(|register| computed.contains(register));
        if is_computed {
            computed.extend(&uses.written);
        }
        let Some(to) = target(next) else { continue };
        if is_computed {
            branches.push(to);
        }
        // The loop from `to` to `next`.
        if to <= at && (is_computed || branches.iter().any(|&to_other| to_other < to || to_other > next)) {
            return true;
        }
    }
    false
}

/// Whether only conditions are computed from what the load at `at` loads.
fn gives_conditions(instructions: &[Instruction], uses: &[Uses], at: usize) -> bool {
    let mut computed: HashSet<Register> = uses[at].written.iter().copied().collect();
    loop {
        let before = computed.len();
        for (instruction, uses) in instructions.iter().zip(uses) {
            let guards = usize::from(instruction.guard != Guard::NONE);
            let read = &uses.read[..uses.read.len() - guards];
            if !read.iter().any(|register| computed.contains(register)) {
                continue;
            }
            if !matches!(instruction.operation, Operation::Lanes(..)) {
                return false;
            }
            computed.extend(uses.written.iter().filter(|register| register.bank != Bank::Predicate));
        }
        if computed.len() == before {
            return true;
        }
    }
}
