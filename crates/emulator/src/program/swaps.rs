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

/// The most compare-and-swaps of a kernel that are looked at, and the most copies of an address that are
/// followed.
const MOST: usize = 64;

/// Sets [`Load::starts_swap`](super::code::Load::starts_swap) of the plain loads whose value a
/// compare-and-swap on the same address compares.
pub fn mark(instructions: &mut [Instruction], uses: &[Uses]) {
    let swap = |instruction: &Instruction| match &instruction.operation {
        Operation::Atomic(atomic) if atomic.is_swap => Some((atomic.address, atomic.size, atomic.b[0])),
        _ => None,
    };
    let swaps: Vec<(Address, u32, Register)> = instructions.iter().filter_map(swap).take(MOST).collect();
    if swaps.is_empty() {
        return;
    }
    let copies = Copies::new(instructions, uses);
    let swaps = swaps.into_iter().map(|(address, size, compared)| (address, size, copies.behind(compared)));
    let swaps: Vec<_> = swaps.collect();
    for instruction in instructions {
        let Operation::Load(load) = &mut instruction.operation else { continue };
        let [target] = load.targets[..] else { continue };
        if !matches!(load.order, Order::Weak | Order::Volatile) {
            continue;
        }
        load.starts_swap = swaps.iter().any(|(address, size, compared)| {
            *size == load.size && compared.contains(&target) && copies.is_same(&load.address, address)
        });
    }
}

/// The copies between registers.
struct Copies {
    /// The sources of each register.
    sources: HashMap<Register, Vec<Register>>,
    /// How many instructions write each register.
    writes: HashMap<Register, usize>,
}

impl Copies {
    fn new(instructions: &[Instruction], uses: &[Uses]) -> Copies {
        let mut copies = Copies { sources: HashMap::new(), writes: HashMap::new() };
        for (instruction, uses) in instructions.iter().zip(uses) {
            uses.written.iter().for_each(|register| *copies.writes.entry(*register).or_default() += 1);
            let guards = usize::from(instruction.guard != Guard::NONE);
            // An instruction of one operand: a move or a conversion, of an address too.
            if let (Operation::Lanes(..), [from], [to]) =
                (&instruction.operation, &uses.read[..uses.read.len() - guards], &uses.written[..])
            {
                copies.sources.entry(*to).or_default().push(*from);
            }
        }
        copies
    }

    /// The registers whose value this one may hold.
    fn behind(&self, register: Register) -> HashSet<Register> {
        let (mut found, mut open) = (HashSet::from([register]), vec![register]);
        while let Some(to) = open.pop() {
            for from in self.sources.get(&to).into_iter().flatten() {
                if found.insert(*from) {
                    open.push(*from);
                }
            }
        }
        found
    }

    /// Whether two addresses are surely the same.
    fn is_same(&self, one: &Address, other: &Address) -> bool {
        one.offset == other.offset
            && one.base.map(|base| self.source(base)) == other.base.map(|base| self.source(base))
    }

    /// The register that this one is always a copy of.
    fn source(&self, register: Register) -> Register {
        let mut source = register;
        for _ in 0..MOST {
            match self.sources.get(&source).map(Vec::as_slice) {
                Some(&[from]) if self.writes[&source] == 1 => source = from,
                _ => break,
            }
        }
        source
    }
}
