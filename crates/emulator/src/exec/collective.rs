//! Warp shuffles, votes, matches and reductions. (PTX ISA, "shfl.sync", "vote.sync", "match.sync",
//! "redux.sync".)

use crate::{
    fault::{Fault, FaultKind},
    program::code::{Collective, CollectiveKind, Operation, Shuffle, WarpReduce},
};

use super::{
    block::State,
    hooks::{Event, Hooks},
    lanes::{ALL, Bank, LANES, Register, Registers, collect, lanes},
    reports::shown,
    warp::{Path, State as Waits, Warp},
};

impl State<'_> {
    /// Checks that an instruction for a whole warp has all its lanes. If lanes have left a join early, the
    /// others may still come.
    #[cold]
    pub fn check_whole(&self, warp: &Warp, path: usize, active: u32) -> Result<(), Box<Fault>> {
        let at = warp.paths[path].at;
        if warp.torn && warp.live == ALL {
            return Ok(());
        }
        let text = self.site.apart(warp, path, [active, !active]);
        Err(self.site.fault(warp.index, at, active, FaultKind::Aligned(text)))
    }

    /// Runs a collective instruction. Returns `true` if it is done. Returns `false` if the path waits for
    /// lanes of other paths, or if paths have changed so that the caller must look its path up again.
    pub fn collective(
        &mut self,
        warp: &mut Warp,
        path: usize,
        active: u32,
        collective: &Collective,
    ) -> Result<bool, Box<Fault>> {
        let Path { at, mask, .. } = warp.paths[path];
        let names = warp.registers.wide(collective.mask);
        let mut waiting = 0;
        let mut left = active;
        // Lanes that pass the same mask are a group. Diverged lanes may form several groups.
        while left != 0 {
            let named = names[left.trailing_zeros() as usize] as u32;
            let group = collect(|lane| names[lane] as u32 == named) & left;
            left &= !group;
            if named & group != group {
                let text = format!(
                    "lanes {} are not in the mask {named:#010x} that they pass",
                    shown(group & !named)
                );
                return Err(self.site.fault(warp.index, at, group & !named, FaultKind::Mask(text)));
            }
            let missing = named & warp.live & !group;
            if missing & mask & !active != 0 {
                let text = format!(
                    "lanes {} are in the mask {named:#010x}, but their guard leaves them out",
                    shown(missing & mask & !active)
                );
                return Err(self.site.fault(warp.index, at, group, FaultKind::Mask(text)));
            }
            if missing == 0 {
                self.together(warp, group, collective, at)?;
            } else {
                waiting |= group;
            }
        }
        if waiting == 0 {
            return Ok(true);
        }
        // Lanes that are done and lanes that the guard excludes wait behind the instruction.
        let mut left = waiting;
        while left != 0 {
            let named = names[left.trailing_zeros() as usize] as u32;
            let group = collect(|lane| names[lane] as u32 == named) & left;
            left &= !group;
            if group != warp.paths[path].mask {
                warp.diverge(path, group, at, at + 1, at + 1);
                // The group is now the last path. The remaining lanes stay at the instruction if they wait
                // too.
                let last = warp.paths.len() - 1;
                warp.paths[last].state = Waits::Collective(named);
                if left != 0 {
                    warp.paths[path].at = at;
                }
            } else {
                warp.paths[path].state = Waits::Collective(named);
            }
        }
        self.release_collectives(warp)?;
        Ok(false)
    }

    /// Releases the paths whose collective has all its lanes.
    pub fn release_collectives(&mut self, warp: &mut Warp) -> Result<(), Box<Fault>> {
        for path in 0..warp.paths.len() {
            let Some(&Path { at, state: Waits::Collective(named), .. }) = warp.paths.get(path) else {
                continue;
            };
            let instructions = self.site.grid.code.instructions.as_slice();
            let collective = |at: u32| match &instructions[at as usize].operation {
                Operation::Collective(collective) | Operation::Matrix(collective) => Some(collective),
                _ => None,
            };
            let Some(own) = collective(at) else { continue };
            let is_barrier = own.kind.is_barrier();
            let meets = |other: &Path| {
                other.state == Waits::Collective(named)
                    && (other.at == at
                        || is_barrier && collective(other.at).is_some_and(|other| other.kind.is_barrier()))
            };
            let here = warp.paths.iter().filter(|path| meets(path)).fold(0, |mask, path| mask | path.mask);
            if named & warp.live & !here != 0 {
                continue;
            }
            self.together(warp, here, own, at)?;
            for path in 0..warp.paths.len() {
                if meets(&warp.paths[path]) {
                    warp.paths[path].at += 1;
                    warp.paths[path].state = Waits::Ready;
                }
            }
        }
        warp.meet();
        Ok(())
    }

    /// Runs a collective for lanes that have all arrived.
    fn together(
        &mut self,
        warp: &mut Warp,
        active: u32,
        collective: &Collective,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        if collective.kind.is_barrier() {
            let event = Event::WarpBarrier { lanes: active, whole: active == warp.live };
            return self.tell(warp, &event);
        }
        if let CollectiveKind::Matrix(matrix) = &collective.kind {
            return self.matrix(warp, matrix, active, at);
        }
        let outside = run(&mut warp.registers, collective, active);
        if outside == 0 {
            return Ok(());
        }
        self.hooks.shuffled(&mut self.site, warp, collective, outside, at)
    }
}

/// Runs a collective for the lanes that take part. Returns the lanes that shuffle from a lane that does not
/// take part, whose value is undefined.
fn run(registers: &mut Registers, collective: &Collective, active: u32) -> u32 {
    let Collective { kind, target, flag, source, negated, control, .. } = collective;
    let values = registers.wide(*source);
    let bits = match source.bank {
        Bank::Predicate => registers.predicate[source.index as usize] ^ if *negated { ALL } else { 0 },
        _ => 0,
    } & active;
    let mut outside = 0;
    let (results, flags) = match kind {
        // These have no result, or their own code.
        CollectiveKind::Barrier | CollectiveKind::Matrix(_) => return 0,
        CollectiveKind::Shuffle(mode) => {
            let from = source_lanes(registers, *mode, *control);
            if active != ALL {
                outside = active & collect(|lane| active >> from[lane].0 & 1 == 0);
            }
            (from.map(|(lane, _)| values[lane]), collect(|lane| from[lane].1))
        }
        CollectiveKind::VoteAll => splat(u64::from(bits == active)),
        CollectiveKind::VoteAny => splat(u64::from(bits != 0)),
        CollectiveKind::VoteUniform => splat(u64::from(bits == active || bits == 0)),
        CollectiveKind::Ballot => splat(u64::from(bits)),
        CollectiveKind::MatchAny => {
            let equal = |lane: usize| collect(|other| values[other] == values[lane]) & active;
            (std::array::from_fn(|lane| u64::from(equal(lane))), ALL)
        }
        CollectiveKind::MatchAll => {
            let first = values[active.trailing_zeros() as usize % LANES];
            let all = lanes(active).all(|lane| values[lane] == first);
            ([if all { u64::from(active) } else { 0 }; LANES], if all { ALL } else { 0 })
        }
        CollectiveKind::Elect => {
            let leader = active.trailing_zeros();
            ([u64::from(leader); LANES], 1u32.checked_shl(leader).unwrap_or(0))
        }
        CollectiveKind::Reduce(reduce) => {
            let values = lanes(active).map(|lane| values[lane] as u32);
            splat(u64::from(values.reduce(|a, b| fold(*reduce, a, b)).unwrap_or(0)))
        }
    };
    registers.set_wide(*target, &results, active);
    let flags: [u64; LANES] = std::array::from_fn(|lane| u64::from(flags >> lane & 1));
    registers.set_wide(*flag, &flags, active);
    outside
}

/// The source lane of each lane, and whether it is in range, if this is a shuffle.
pub fn shuffled(registers: &Registers, collective: &Collective) -> Option<[(usize, bool); LANES]> {
    match collective.kind {
        CollectiveKind::Shuffle(mode) => Some(source_lanes(registers, mode, collective.control)),
        _ => None,
    }
}

fn source_lanes(registers: &Registers, mode: Shuffle, control: [Register; 2]) -> [(usize, bool); LANES] {
    let (b, c) = (registers.wide(control[0]), registers.wide(control[1]));
    std::array::from_fn(|lane| source_lane(mode, lane as i32, b[lane] as i32, c[lane] as i32))
}

fn splat(value: u64) -> ([u64; LANES], u32) {
    ([value; LANES], ALL)
}

/// The source lane of a shuffle and whether it is in range. If it is not, a lane keeps its own value.
fn source_lane(mode: Shuffle, lane: i32, b: i32, c: i32) -> (usize, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let max = lane & segment | clamp & !segment;
    let min = lane & segment;
    let from = match mode {
        Shuffle::Up => lane - b,
        Shuffle::Down => lane + b,
        Shuffle::Butterfly => lane ^ b,
        Shuffle::Index => min | b & !segment,
    };
    let inside = if mode == Shuffle::Up { from >= max } else { from <= max };
    (if inside { from as usize } else { lane as usize }, inside)
}

fn fold(reduce: WarpReduce, a: u32, b: u32) -> u32 {
    match reduce {
        WarpReduce::Add => a.wrapping_add(b),
        WarpReduce::MinUnsigned => a.min(b),
        WarpReduce::MaxUnsigned => a.max(b),
        WarpReduce::MinSigned => (a as i32).min(b as i32) as u32,
        WarpReduce::MaxSigned => (a as i32).max(b as i32) as u32,
        WarpReduce::And => a & b,
        WarpReduce::Or => a | b,
        WarpReduce::Xor => a ^ b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_stay_in_their_segment() {
        // Segments of 8 lanes: c = 0x181f, for `up` 0x1800.
        assert_eq!(source_lane(Shuffle::Down, 5, 2, 0x181f), (7, true));
        assert_eq!(source_lane(Shuffle::Down, 6, 2, 0x181f), (6, false));
        assert_eq!(source_lane(Shuffle::Up, 9, 1, 0x1800), (8, true));
        assert_eq!(source_lane(Shuffle::Up, 8, 1, 0x1800), (8, false));
        assert_eq!(source_lane(Shuffle::Butterfly, 12, 4, 0x181f), (8, true));
        assert_eq!(source_lane(Shuffle::Butterfly, 4, 16, 0x181f), (4, false));
        assert_eq!(source_lane(Shuffle::Index, 17, 11, 0x181f), (19, true));
        // The whole warp.
        assert_eq!(source_lane(Shuffle::Down, 31, 1, 31), (31, false));
        assert_eq!(source_lane(Shuffle::Butterfly, 3, 28, 31), (31, true));
        assert_eq!(source_lane(Shuffle::Up, 0, 1, 0), (0, false));
    }
}
