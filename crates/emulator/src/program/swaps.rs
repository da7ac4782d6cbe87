//! Finds the plain first reads of compare-and-swap loops.
//!
//! `old = *p; do { assumed = old; old = atomicCAS(p, assumed, f(assumed)); } while (old != assumed);` is how
//! CUDA's documentation writes an atomic operation that the hardware lacks. The first read of `*p` is plain,
//! so it races with the other threads' operations; but if it returns an old value, the compare-and-swap fails
//! and the loop goes around again.

use std::collections::{HashMap, HashSet};

use crate::exec::lanes::Register;

use super::{
    code::{Address, Guard, Instruction, Operation, Order},
    flow::Uses,
};

/// Sets [`Load::starts_swap`](super::code::Load::starts_swap) of the plain loads whose value a
/// compare-and-swap on the same address compares.
pub fn mark(instructions: &mut [Instruction], uses: &[Uses]) {
    let swap = |instruction: &Instruction| match &instruction.operation {
        Operation::Atomic(atomic) if atomic.is_swap => Some((atomic.address, atomic.size, atomic.b[0])),
        _ => None,
    };
    let swaps: Vec<(Address, u32, Register)> = instructions.iter().filter_map(swap).collect();
    if swaps.is_empty() {
        return;
    }
    let copies = Copies::new(instructions, uses);
    for instruction in instructions {
        let Operation::Load(load) = &mut instruction.operation else { continue };
        let [target] = load.targets[..] else { continue };
        if !matches!(load.order, Order::Weak | Order::Volatile) {
            continue;
        }
        let held = copies.of(target);
        load.starts_swap = swaps.iter().any(|(address, size, compared)| {
            *size == load.size && held.contains(compared) && copies.is_same(&load.address, address)
        });
    }
}

/// The copies between registers.
struct Copies {
    pairs: Vec<(Register, Register)>,
    /// The source of each register that one copy alone writes.
    sources: HashMap<Register, Register>,
}

impl Copies {
    fn new(instructions: &[Instruction], uses: &[Uses]) -> Copies {
        let mut pairs = Vec::new();
        let mut writes: HashMap<Register, usize> = HashMap::new();
        for (instruction, uses) in instructions.iter().zip(uses) {
            uses.written.iter().for_each(|register| *writes.entry(*register).or_default() += 1);
            let guards = usize::from(instruction.guard != Guard::NONE);
            // An instruction of one operand: a move or a conversion, of an address too.
            if let (Operation::Lanes(..), [from], [to]) =
                (&instruction.operation, &uses.read[..uses.read.len() - guards], &uses.written[..])
            {
                pairs.push((*from, *to));
            }
        }
        let sources = pairs.iter().filter(|(_, to)| writes[to] == 1).map(|&(from, to)| (to, from)).collect();
        Copies { pairs, sources }
    }

    /// The registers that may hold a copy of this one.
    fn of(&self, register: Register) -> HashSet<Register> {
        let mut held = HashSet::from([register]);
        loop {
            let before = held.len();
            for (from, to) in &self.pairs {
                if held.contains(from) {
                    held.insert(*to);
                }
            }
            if held.len() == before {
                return held;
            }
        }
    }

    /// Whether two addresses are surely the same.
    fn is_same(&self, one: &Address, other: &Address) -> bool {
        one.offset == other.offset
            && one.base.map(|base| self.source(base)) == other.base.map(|base| self.source(base))
    }

    fn source(&self, register: Register) -> Register {
        let mut source = register;
        for _ in 0..self.sources.len() {
            match self.sources.get(&source) {
                Some(&from) => source = from,
                None => break,
            }
        }
        source
    }
}
