//! Control flow: where diverged paths meet again, and which registers are live.

use std::collections::HashSet;

use crate::exec::lanes::{Bank, Register};

use super::code::{END, Instruction, Operation, Order};

/// The instructions that can follow an instruction. [`END`] stands for the thread's end.
fn successors(instructions: &[Instruction], at: usize) -> Vec<u32> {
    let next = if at + 1 < instructions.len() { at as u32 + 1 } else { END };
    let instruction = &instructions[at];
    let guarded = instruction.guard != super::code::Guard::NONE;
    let mut found = match &instruction.operation {
        Operation::Branch { target, .. } => vec![*target],
        Operation::Switch { targets, .. } => targets.clone(),
        Operation::Exit | Operation::Trap(_) | Operation::Assert(_) | Operation::Miscall(_) => vec![END],
        _ => return vec![next],
    };
    if guarded && !found.contains(&next) {
        found.push(next);
    }
    found
}

/// Whether an instruction has no effect that outlives its thread, except a trap.
fn is_idle(instruction: &Instruction) -> bool {
    use Operation::*;
    matches!(
        instruction.operation,
        Lanes(..) | Nothing | Branch { .. } | Exit | Trap(_) | Assert(_) | Miscall(_)
    )
}

/// The instructions that a thread can reach.
fn reachable(instructions: &[Instruction], from: u32) -> Vec<bool> {
    let mut reached = vec![false; instructions.len()];
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if at != END && !std::mem::replace(&mut reached[at as usize], true) {
            open.extend(successors(instructions, at as usize));
        }
    }
    reached
}

/// Whether threads at `from` are about to exit, as seen by threads at `barrier`: they reach no block barrier,
/// and have no effect that the others also have after their barrier.
pub fn leaves(instructions: &[Instruction], from: u32, barrier: u32) -> bool {
    let (left, stayed) = (reachable(instructions, from), reachable(instructions, barrier));
    instructions.iter().zip(left).zip(stayed).all(|((instruction, left), stayed)| {
        !left || !matches!(instruction.operation, Operation::Barrier(_)) && (!stayed || is_idle(instruction))
    })
}

/// Whether the two ways of a branch only load and compute until they meet again, and meet without coming to
/// the branch again.
pub fn only_computes(instructions: &[Instruction], branch: u32) -> bool {
    let Operation::Branch { join, .. } = instructions[branch as usize].operation else { return false };
    let mut seen = HashSet::new();
    let mut open = successors(instructions, branch as usize);
    while let Some(at) = open.pop() {
        if at == join || !seen.insert(at) {
            continue;
        }
        if at == END || at == branch {
            return false;
        }
        let computes = match &instructions[at as usize].operation {
            Operation::Lanes(..) | Operation::Branch { .. } | Operation::Nothing => true,
            Operation::Load(load) => load.order == Order::Weak,
            _ => false,
        };
        if !computes {
            return false;
        }
        open.extend(successors(instructions, at as usize));
    }
    true
}

/// Basic blocks: entered only at the first instruction and left only at the last.
struct Blocks {
    /// The first instruction of each block, and one past the last.
    ranges: Vec<(usize, usize)>,
    /// The blocks that can follow each; `ranges.len()` is the end.
    successors: Vec<Vec<usize>>,
}

impl Blocks {
    fn new(instructions: &[Instruction]) -> Blocks {
        let count = instructions.len();
        let mut leads = vec![false; count + 1];
        leads[0] = true;
        leads[count] = true;
        let ends = |at: usize| {
            matches!(
                instructions[at].operation,
                Operation::Branch { .. }
                    | Operation::Switch { .. }
                    | Operation::Exit
                    | Operation::Trap(_)
                    | Operation::Assert(_)
                    | Operation::Miscall(_)
            )
        };
        for at in (0..count).filter(|&at| ends(at)) {
            leads[at + 1] = true;
            for target in successors(instructions, at) {
                if target != END {
                    leads[target as usize] = true;
                }
            }
        }
        let starts: Vec<usize> = (0..=count).filter(|&at| leads[at]).collect();
        let ranges: Vec<(usize, usize)> = starts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let mut block_at = vec![0; count];
        for (block, &(start, _)) in ranges.iter().enumerate() {
            block_at[start] = block;
        }
        let exit = ranges.len();
        let successors = ranges
            .iter()
            .map(|&(_, end)| {
                let to = successors(instructions, end - 1);
                to.into_iter().map(|to| if to == END { exit } else { block_at[to as usize] }).collect()
            })
            .collect();
        Blocks { ranges, successors }
    }

    /// Whether threads in each block have nothing left to do but exit. The last entry is the end itself.
    fn ending(&self, instructions: &[Instruction]) -> Vec<bool> {
        let idle = |&(start, end): &(usize, usize)| instructions[start..end].iter().all(is_idle);
        let mut ending: Vec<bool> = self.ranges.iter().map(|_| false).chain([true]).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for block in (0..self.ranges.len()).rev() {
                let ends =
                    || idle(&self.ranges[block]) && self.successors[block].iter().all(|&to| ending[to]);
                if !ending[block] && ends() {
                    ending[block] = true;
                    changed = true;
                }
            }
        }
        ending
    }

    /// Removes the edges to exits from blocks that have another way on.
    ///
    /// A loop that can be left only by such edges keeps one, at its first or last block if possible: every
    /// iteration passes there, so lanes that diverge within an iteration meet before it.
    fn drop_exits(&mut self, ending: &[bool]) {
        let exit = self.ranges.len();
        let mut predecessors = vec![Vec::new(); exit + 1];
        let mut dropped = vec![Vec::new(); exit];
        // The length of the longest backward edge into or out of each block.
        let mut back = vec![0; exit + 1];
        for (block, to) in self.successors.iter_mut().enumerate() {
            if !to.iter().all(|&to| ending[to]) {
                dropped[block] = to.extract_if(.., |to| ending[*to]).collect();
            }
            for &to in to.iter() {
                predecessors[to].push(block);
                for end in [to, block] {
                    back[end] = back[end].max((block + 1).saturating_sub(to));
                }
            }
        }
        let mut kept: Vec<usize> = (0..exit).filter(|&block| !dropped[block].is_empty()).collect();
        kept.sort_unstable_by_key(|&block| (back[block], block));
        let mut ends = vec![false; exit + 1];
        let mut open = vec![exit];
        loop {
            while let Some(block) = open.pop() {
                if !std::mem::replace(&mut ends[block], true) {
                    open.extend(&predecessors[block]);
                }
            }
            match kept.pop() {
                None => break,
                Some(block) if ends[block] => {}
                Some(block) => {
                    self.successors[block].append(&mut dropped[block]);
                    open.push(block);
                }
            }
        }
    }

    /// The immediate post-dominator of each block. `None` if the block cannot reach the end. (Cooper, Harvey
    /// and Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed graph.)
    fn post_dominators(&self) -> Vec<Option<usize>> {
        let exit = self.ranges.len();
        let mut predecessors = vec![Vec::new(); exit + 1];
        for (block, to) in self.successors.iter().enumerate() {
            for &to in to {
                predecessors[to].push(block);
            }
        }
        // Post-order of the reversed graph, starting from the end.
        let (mut order, mut number) = (Vec::new(), vec![usize::MAX; exit + 1]);
        let mut seen = vec![false; exit + 1];
        let mut stack = vec![(exit, 0)];
        seen[exit] = true;
        while let Some((block, index)) = stack.pop() {
            match predecessors[block].get(index) {
                Some(&before) => {
                    stack.push((block, index + 1));
                    if !seen[before] {
                        seen[before] = true;
                        stack.push((before, 0));
                    }
                }
                None => {
                    number[block] = order.len();
                    order.push(block);
                }
            }
        }
        let mut dominator: Vec<Option<usize>> = vec![None; exit + 1];
        dominator[exit] = Some(exit);
        let mut changed = true;
        while changed {
            changed = false;
            for &block in order.iter().rev().filter(|&&block| block != exit) {
                let mut new = None;
                for &to in &self.successors[block] {
                    if dominator[to].is_some() {
                        new = Some(match new {
                            None => to,
                            Some(other) => intersect(to, other, &dominator, &number),
                        });
                    }
                }
                if dominator[block] != new {
                    dominator[block] = new;
                    changed = true;
                }
            }
        }
        dominator
    }
}

fn intersect(a: usize, b: usize, dominator: &[Option<usize>], number: &[usize]) -> usize {
    let (mut a, mut b) = (a, b);
    while a != b {
        while number[a] < number[b] {
            a = dominator[a].unwrap_or(a);
        }
        while number[b] < number[a] {
            b = dominator[b].unwrap_or(b);
        }
    }
    a
}

/// Sets the join of each branch.
///
/// Early exits are ignored: nobody waits for lanes that have exited. No join is set where all remaining code
/// only exits, because others may need that exit: a barrier does not wait for threads that have exited.
pub fn set_joins(instructions: &mut [Instruction]) {
    let mut blocks = Blocks::new(instructions);
    let ending = blocks.ending(instructions);
    blocks.drop_exits(&ending);
    let dominators = blocks.post_dominators();
    for (block, &(_, end)) in blocks.ranges.iter().enumerate() {
        let meet = match dominators[block] {
            Some(block) if !ending[block] => blocks.ranges[block].0 as u32,
            _ => END,
        };
        if let Operation::Branch { join, .. } | Operation::Switch { join, .. } =
            &mut instructions[end - 1].operation
        {
            *join = meet;
        }
    }
}

/// The registers that an instruction reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    pub read: Vec<Register>,
    pub written: Vec<Register>,
}

/// The result of [`liveness`].
pub struct Liveness {
    /// The most 32-bit registers that are live at once.
    pub pressure: u32,
    /// Registers that may be read before they are written.
    pub early: Vec<Register>,
}

/// The most bits that [`liveness`] may use: one per register and basic block.
const MOST_BITS: usize = 1 << 30;

/// Finds the live registers. Returns `None` if there are too many registers and basic blocks.
pub fn liveness(
    instructions: &[Instruction],
    uses: &[Uses],
    is_constant: impl Fn(Register) -> bool,
) -> Option<Liveness> {
    // Number the registers that are not constant.
    let mut numbers = std::collections::HashMap::new();
    let mut registers = Vec::new();
    for register in uses.iter().flat_map(|uses| uses.read.iter().chain(&uses.written)) {
        if !is_constant(*register) {
            numbers.entry(*register).or_insert_with(|| {
                registers.push(*register);
                registers.len() - 1
            });
        }
    }
    let blocks = Blocks::new(instructions);
    if blocks.ranges.len() * registers.len() > MOST_BITS {
        return None;
    }
    let mut live_in = vec![Bits::new(registers.len()); blocks.ranges.len() + 1];
    let width = |number: usize| match registers[number].bank {
        Bank::Double => 2,
        Bank::Word | Bank::Half => 1,
        Bank::Predicate => 0,
    };
    // Steps back over an instruction. Returns the change in live 32-bit registers.
    let step = |live: &mut Bits, at: usize| {
        let mut change = 0;
        // A guarded instruction keeps the old value in some lanes.
        if instructions[at].guard == super::code::Guard::NONE {
            for register in &uses[at].written {
                if let Some(&number) = numbers.get(register)
                    && live.remove(number)
                {
                    change -= width(number);
                }
            }
        }
        for register in &uses[at].read {
            if let Some(&number) = numbers.get(register)
                && live.insert(number)
            {
                change += width(number);
            }
        }
        change
    };
    let mut changed = true;
    while changed {
        changed = false;
        for block in (0..blocks.ranges.len()).rev() {
            let mut live = Bits::new(registers.len());
            for &to in &blocks.successors[block] {
                live.join(&live_in[to]);
            }
            for at in (blocks.ranges[block].0..blocks.ranges[block].1).rev() {
                step(&mut live, at);
            }
            if live != live_in[block] {
                live_in[block] = live;
                changed = true;
            }
        }
    }
    let mut pressure = 0;
    for block in 0..blocks.ranges.len() {
        let mut live = Bits::new(registers.len());
        for &to in &blocks.successors[block] {
            live.join(&live_in[to]);
        }
        let mut now: i32 = live.iter().map(width).sum();
        for at in (blocks.ranges[block].0..blocks.ranges[block].1).rev() {
            now += step(&mut live, at);
            pressure = pressure.max(now);
        }
    }
    let early = live_in[0].iter().map(|number| registers[number]).collect();
    Some(Liveness { pressure: pressure as u32, early })
}

/// A set of small numbers.
#[derive(Clone, PartialEq, Eq)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Self {
        Bits(vec![0; count.div_ceil(64)])
    }

    /// Returns whether the number was added.
    fn insert(&mut self, number: usize) -> bool {
        let (word, bit) = (&mut self.0[number / 64], 1 << (number % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Returns whether the number was in the set.
    fn remove(&mut self, number: usize) -> bool {
        let (word, bit) = (&mut self.0[number / 64], 1 << (number % 64));
        let known = *word & bit != 0;
        *word &= !bit;
        known
    }

    fn join(&mut self, other: &Bits) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| index * 64 + bit)
        })
    }
}
