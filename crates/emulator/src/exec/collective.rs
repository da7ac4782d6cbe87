//! Warp shuffles, votes, matches and reductions. (PTX ISA, "shfl.sync", "vote.sync", "match.sync",
//! "redux.sync".)

use crate::program::code::{Collective, CollectiveKind, Shuffle, WarpReduce};

use super::lanes::{ALL, Bank, LANES, Register, Registers, collect, lanes};

/// Runs a collective for the lanes that take part. Returns the lanes that shuffle from a lane that does not
/// take part, whose value is undefined.
pub fn run(registers: &mut Registers, collective: &Collective, active: u32) -> u32 {
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
