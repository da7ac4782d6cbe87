//! A warp: its registers and the paths of its lanes.
//!
//! The lanes of a path run in lockstep. A divergent branch splits a path in two. The paths meet again at the
//! branch's immediate post-dominator, their join; a path that gets there waits for the others. While a path
//! waits at a barrier, the other paths run on, as on GPUs since sm_70. Lanes that wait at a join are released
//! early if other lanes wait for them in a barrier or collective, or poll memory for long.

use super::lanes::{LANES, Registers};

/// The join of a path that runs to the thread's end.
pub const NONE: u32 = u32::MAX;

/// Instructions that a path may run while it polls memory and all others wait at joins.
const PATIENCE: u32 = 1 << 16;

/// What a path waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    /// At the block barrier of this index.
    Barrier(u32),
    /// At a collective instruction with this lane mask.
    Collective(u32),
}

/// Lanes that are at the same instruction.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The next instruction.
    pub at: u32,
    pub mask: u32,
    /// The index in `joins` of the place where it meets the paths that it diverged from, or [`NONE`].
    join: u32,
    pub state: State,
}

/// A place where diverged paths meet again.
#[derive(Clone, Copy, Debug)]
struct Join {
    at: u32,
    /// The lanes that will arrive, without those that exit first.
    expected: u32,
    arrived: u32,
    /// The join of the path that continues from here.
    parent: u32,
    live: bool,
}

#[derive(Debug)]
pub struct Warp {
    /// Its index in the block.
    pub index: u32,
    pub registers: Registers,
    /// The lanes that have not exited.
    pub live: u32,
    /// The paths that run or wait. Without a seed, the last ready one runs.
    pub paths: Vec<Path>,
    joins: Vec<Join>,
    /// Whether lanes left a join without the lanes that they waited for.
    pub torn: bool,
    /// Instructions that one path ran while all others waited at joins. `polled` says whether it polled
    /// memory meanwhile.
    pub alone: u32,
    pub polled: bool,
    /// The last poll: the instruction, the first lane's address and the value. `polls` counts repetitions
    /// with the same value.
    pub watched: Option<(u32, u64, u64)>,
    pub polls: u32,
    /// Whether a poll has read another value, or from another place, than the one before.
    pub has_seen: bool,
    /// Local memory, lane by lane.
    pub local: Vec<u8>,
}

impl Warp {
    pub fn new(index: u32, registers: Registers, local_bytes: usize) -> Warp {
        Warp {
            index,
            registers,
            live: 0,
            paths: Vec::new(),
            joins: Vec::new(),
            torn: false,
            alone: 0,
            polled: false,
            watched: None,
            polls: 0,
            has_seen: true,
            local: vec![0; local_bytes * LANES],
        }
    }

    /// Starts these lanes at the first instruction.
    pub fn start(&mut self, lanes: u32) {
        self.live = lanes;
        self.joins.clear();
        self.paths.clear();
        (self.torn, self.alone, self.polled) = (false, 0, false);
        (self.watched, self.polls, self.has_seen) = (None, 0, true);
        self.paths.push(Path { at: 0, mask: lanes, join: NONE, state: State::Ready });
        self.local.fill(0);
    }

    /// The instruction where a path meets those that it diverged from.
    pub fn join_of(&self, path: usize) -> u32 {
        match self.paths[path].join {
            NONE => NONE,
            join => self.joins[join as usize].at,
        }
    }

    /// Splits a path: the lanes in `taken` go to `target`, the others to `next`. They meet at `meet`.
    pub fn diverge(&mut self, path: usize, taken: u32, target: u32, next: u32, meet: u32) {
        let Path { mask, join, .. } = self.paths[path];
        let join = if meet == NONE || self.join_of(path) == meet {
            join
        } else {
            let new = Join { at: meet, expected: mask, arrived: 0, parent: join, live: true };
            match self.joins.iter().position(|join| !join.live) {
                Some(place) => {
                    self.joins[place] = new;
                    place as u32
                }
                None => {
                    self.joins.push(new);
                    self.joins.len() as u32 - 1
                }
            }
        };
        self.paths[path] = Path { at: next, mask: mask & !taken, join, state: State::Ready };
        self.paths.push(Path { at: target, mask: taken, join, state: State::Ready });
    }

    /// Ends a path at its join. The last arrival releases all of them.
    pub fn arrive(&mut self, path: usize) {
        let Path { mask, join, .. } = self.paths.remove(path);
        self.joins[join as usize].arrived |= mask;
        self.settle(join);
    }

    /// Ends lanes of a path. Returns `true` if the path has no lanes left.
    pub fn exit(&mut self, path: usize, lanes: u32) -> bool {
        self.live &= !lanes;
        let Path { mask, join, .. } = self.paths[path];
        let mut above = join;
        while above != NONE {
            let join = &mut self.joins[above as usize];
            join.expected &= !lanes;
            above = join.parent;
        }
        self.paths[path].mask = mask & !lanes;
        if mask & !lanes != 0 {
            return false;
        }
        self.paths.remove(path);
        if join != NONE {
            self.settle(join);
        }
        true
    }

    /// Continues from a join if all lanes have arrived.
    fn settle(&mut self, join: u32) {
        let Join { at, expected, arrived, parent, .. } = self.joins[join as usize];
        if arrived & expected != expected {
            return;
        }
        self.joins[join as usize].live = false;
        if expected == self.live {
            self.torn = false;
        }
        if expected != 0 {
            self.paths.push(Path { at, mask: expected, join: parent, state: State::Ready });
        } else if parent != NONE {
            self.settle(parent);
        }
    }

    /// Records a read of memory that other threads may change.
    pub fn poll(&mut self, at: u32, address: u64, value: u64) {
        self.polled = true;
        let watched = Some((at, address, value));
        if self.watched == watched {
            self.polls = self.polls.saturating_add(1);
        } else {
            (self.watched, self.polls, self.has_seen) = (watched, 0, true);
        }
    }

    /// Records that a path ran `instructions`. If it polls memory while all others wait at joins, one of them
    /// may be what it waits for, such as the holder of a spin lock. After [`PATIENCE`] instructions they
    /// continue without it.
    pub fn had_turn(&mut self, instructions: u32) {
        let waiting = self.joins.iter().any(|join| join.live && join.arrived != 0);
        if !waiting || !self.polled || self.paths.len() > 1 {
            (self.alone, self.polled) = (0, false);
            return;
        }
        self.alone += instructions;
        if self.alone < PATIENCE {
            return;
        }
        self.go_on();
    }

    /// Releases the lanes that wait at joins. Returns `false` if there are none.
    pub fn go_on(&mut self) -> bool {
        (self.alone, self.polled) = (0, false);
        let before = self.paths.len();
        for join in self.joins.iter_mut().filter(|join| join.live && join.arrived != 0) {
            let mask = std::mem::take(&mut join.arrived);
            join.expected &= !mask;
            self.paths.push(Path { at: join.at, mask, join: join.parent, state: State::Ready });
        }
        let any = self.paths.len() > before;
        self.torn |= any;
        any
    }

    /// The places and masks of lanes on other paths, and of lanes that wait at joins.
    pub fn others(&self, path: usize) -> impl Iterator<Item = (u32, u32)> {
        let paths = self.paths.iter().enumerate().filter(move |&(index, _)| index != path);
        paths.map(|(_, path)| (path.at, path.mask)).chain(self.meeting())
    }

    /// The places and masks of lanes that wait at joins.
    pub fn meeting(&self) -> impl Iterator<Item = (u32, u32)> {
        let waiting = self.joins.iter().filter(|join| join.live && join.arrived & join.expected != 0);
        waiting.map(|join| (join.at, join.arrived & join.expected))
    }

    /// Merges ready paths that are at the same instruction and have the same join.
    pub fn meet(&mut self) {
        for path in (1..self.paths.len()).rev() {
            let Path { at, mask, join, state } = self.paths[path];
            let same = |other: &Path| (other.at, other.join, other.state) == (at, join, State::Ready);
            if state == State::Ready
                && let Some(other) = self.paths[..path].iter().position(same)
            {
                self.paths[other].mask |= mask;
                self.paths.remove(path);
            }
        }
        if let [Path { mask, .. }] = self.paths[..]
            && mask == self.live
        {
            self.torn = false;
        }
    }

    /// Moves a path behind the others, so that they run next.
    pub fn rotate(&mut self, path: usize) {
        let path = self.paths.remove(path);
        self.paths.insert(0, path);
    }

    /// Ends the turn of a path that polls.
    #[cold]
    pub fn rest(&mut self, path: usize, at: u32) {
        self.paths[path].at = at;
        self.rotate(path);
    }

    /// The indices of the ready paths.
    pub fn ready(&self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.paths.len()).filter(|&path| self.paths[path].state == State::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warp() -> Warp {
        let mut warp = Warp::new(0, Registers::default(), 0);
        warp.start(0xff);
        warp
    }

    #[test]
    fn paths_meet_where_their_branch_says() {
        let mut warp = warp();
        warp.diverge(0, 0x0f, 10, 1, 20);
        assert_eq!(warp.paths.iter().map(|path| path.mask).collect::<Vec<_>>(), [0xf0, 0x0f]);
        warp.arrive(1);
        assert_eq!(warp.ready().count(), 1);
        warp.arrive(0);
        assert_eq!((warp.paths.len(), warp.paths[0].at, warp.paths[0].mask), (1, 20, 0xff));
        assert_eq!(warp.join_of(0), NONE);
    }

    #[test]
    fn a_loop_that_lanes_leave_one_by_one_needs_one_join() {
        let mut warp = warp();
        for lane in 0..7 {
            let path = warp.ready().next_back().unwrap();
            warp.diverge(path, 1 << lane, 20, 5, 20);
            let at_join = warp.paths.iter().position(|path| path.at == 20).unwrap();
            warp.arrive(at_join);
        }
        assert_eq!(warp.joins.len(), 1);
        warp.arrive(0);
        assert_eq!(warp.paths[0].mask, 0xff);
    }

    #[test]
    fn lanes_that_end_are_not_waited_for() {
        let mut warp = warp();
        warp.diverge(0, 0x0f, 10, 1, 20);
        warp.diverge(0, 0x30, 12, 2, 15);
        assert!(warp.exit(0, 0xc0));
        let path = warp.paths.iter().position(|path| path.mask == 0x30).unwrap();
        assert!(!warp.exit(path, 0x10));
        let path = warp.paths.iter().position(|path| path.mask == 0x20).unwrap();
        warp.arrive(path);
        let path = warp.paths.iter().position(|path| path.mask == 0x20).unwrap();
        assert_eq!(warp.paths[path].at, 15);
        warp.arrive(path);
        let path = warp.paths.iter().position(|path| path.mask == 0x0f).unwrap();
        warp.arrive(path);
        assert_eq!((warp.paths.len(), warp.paths[0].mask, warp.live), (1, 0x2f, 0x2f));
    }
}
