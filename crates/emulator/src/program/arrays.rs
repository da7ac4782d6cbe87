//! Finds the shared array from which the address of an access comes.
//!
//! Shared memory is one range of bytes, so an index past the end of an array reads or writes the next one.
//! The text of a kernel tells them apart: an address is computed from the address of one array, by additions
//! of numbers. This module finds the accesses whose address comes from one array only. Of an address that
//! comes from two arrays, or from memory, nothing is known; nor is it of the parts of dynamic shared memory,
//! which is one array to PTX.

use std::{collections::HashMap, ops::Range};

use crate::exec::lanes::{Bank, Register};

use super::{
    code::{Address, Constant, Guard, Instruction, Operation, Space},
    flow::Uses,
};

/// A `.shared` variable.
#[derive(Clone, Debug)]
pub struct Array {
    pub name: String,
    /// Its bytes in the block's shared memory.
    pub range: Range<u64>,
}

/// The shared arrays of a kernel, and which of them its accesses use.
#[derive(Debug, Default)]
pub struct Arrays {
    all: Vec<Array>,
    /// The number of the array of each instruction, or [`UNKNOWN`]. Empty if an array has no neighbour.
    used: Vec<u32>,
}

const UNKNOWN: u32 = u32::MAX;

impl Arrays {
    pub fn find(
        all: Vec<Array>,
        constants: &[(Register, Constant)],
        instructions: &[Instruction],
        uses: &[Uses],
    ) -> Arrays {
        let is_dynamic = |(_, constant): &(Register, Constant)| matches!(constant, Constant::Dynamic(_));
        if all.len() + usize::from(constants.iter().any(is_dynamic)) < 2 {
            return Arrays::default();
        }
        let origins = origins(constants, instructions, uses);
        let of = |address: &Address| match address.space {
            Space::Shared | Space::Generic => address.base.and_then(|base| origins.get(&base).copied()),
            _ => None,
        };
        let used = instructions.iter().map(|instruction| {
            let number = match &instruction.operation {
                Operation::Load(load) => of(&load.address),
                Operation::Store(store) => of(&store.address),
                Operation::Atomic(atomic) => of(&atomic.address),
                Operation::Copy(copy) => of(&copy.to),
                _ => None,
            };
            number.unwrap_or(UNKNOWN)
        });
        Arrays { used: used.collect(), all }
    }

    /// The array that an instruction's address comes from.
    pub fn of(&self, at: u32) -> Option<&Array> {
        self.all.get(*self.used.get(at as usize)? as usize)
    }

    /// The array that has the byte at an offset.
    pub fn at(&self, offset: u64) -> Option<&Array> {
        self.all.iter().find(|array| array.range.contains(&offset))
    }
}

/// The array that each register's value comes from, or [`UNKNOWN`] if it comes from several. Numbers come
/// from none.
fn origins(
    constants: &[(Register, Constant)],
    instructions: &[Instruction],
    uses: &[Uses],
) -> HashMap<Register, u32> {
    let origin = |(register, constant): &(Register, Constant)| match constant {
        Constant::Shared { array, .. } => Some((*register, *array)),
        Constant::Dynamic(_) => Some((*register, UNKNOWN)),
        _ => None,
    };
    let mut origins: HashMap<Register, u32> = constants.iter().filter_map(origin).collect();
    let mut readers: HashMap<Register, Vec<usize>> = HashMap::new();
    for (at, (instruction, uses)) in instructions.iter().zip(uses).enumerate() {
        if matches!(instruction.operation, Operation::Lanes(..) | Operation::Collective(_)) {
            let guards = usize::from(instruction.guard != Guard::NONE);
            let read = &uses.read[..uses.read.len() - guards];
            read.iter().for_each(|register| readers.entry(*register).or_default().push(at));
        }
    }
    // Each register changes twice at most.
    let mut open: Vec<Register> = origins.keys().copied().collect();
    while let Some(from) = open.pop() {
        let origin = origins[&from];
        for &at in readers.get(&from).map_or(&[][..], Vec::as_slice) {
            // A comparison of addresses is no address.
            for to in uses[at].written.iter().filter(|to| to.bank != Bank::Predicate) {
                let now = origins.get(to).map_or(origin, |&before| join(before, origin));
                if origins.insert(*to, now) != Some(now) {
                    open.push(*to);
                }
            }
        }
    }
    origins
}

fn join(one: u32, other: u32) -> u32 {
    if one == other { one } else { UNKNOWN }
}
