//! A warp: its registers, and the paths that its lanes are on.
//!
//! Lanes run in lockstep on a path. A branch that sends them different ways makes two paths, which meet again at the
//! branch's immediate post-dominator: whichever comes first waits there. Where a path waits for a barrier the others go
//! on, as threads do since sm_70. Lanes that wait to meet others go on without them where these wait for them, or poll
//! memory for long.

use super::{
    lanes::{LANES, Registers},
    undefined::{Undefined, Void},
};

/// No join: a path that runs to the thread's end.
pub const NONE: u32 = u32::MAX;

/// Instructions that a path may poll memory for while others wait to meet it.
const PATIENCE: u32 = 1 << 16;

/// What a path waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    /// At the block barrier of this index.
    Barrier(u32),
    /// At an instruction that the lanes of this mask do together.
    Collective(u32),
}

/// Lanes that are at one instruction.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The next instruction.
    pub at: u32,
    pub mask: u32,
    /// Where it meets the paths that it parted from: an index of `joins`, or [`NONE`].
    join: u32,
    pub state: State,
}

/// A place where paths meet.
#[derive(Clone, Copy, Debug)]
struct Join {
    at: u32,
    /// The lanes that will come, but for those that end before.
    expected: u32,
    arrived: u32,
    /// The join of the path that goes on from here.
    parent: u32,
    live: bool,
}

/// A warp.
#[derive(Debug)]
pub struct Warp {
    /// Its index in the block.
    pub index: u32,
    pub registers: Registers,
    /// The lanes that have not ended.
    pub live: u32,
    /// Those that run or wait; the deterministic order takes the last one that is ready.
    pub paths: Vec<Path>,
    joins: Vec<Join>,
    /// Whether lanes were sent on without those that they were to meet.
    pub torn: bool,
    /// Instructions that one path has run while others waited to meet it, and whether it has polled memory meanwhile.
    pub alone: u32,
    pub polled: bool,
    /// What it polled last: the instruction, the first lane's address, and what was there; and how often that was as before.
    pub watched: Option<(u32, u64, u64)>,
    pub polls: u32,
    /// Local memory: each lane's, one after another.
    pub local: Vec<u8>,
    /// Which bytes of it are defined.
    pub defined: Vec<bool>,
    /// The registers that may be undefined, by their numbers.
    pub undefined: Vec<Undefined>,
    /// Of each value of the load or store that runs.
    pub void: [Void; 8],
    /// Asynchronous copies that some lanes have not waited for.
    pub copies: Vec<InFlight>,
    /// How many groups of copies each lane has committed.
    pub groups: [u32; LANES],
}

/// An asynchronous copy of some lanes.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// Those that have not waited for it.
    pub lanes: u32,
    /// Where in shared memory each writes, and so many bytes.
    pub to: [u64; LANES],
    pub bytes: u32,
    /// The number of each lane's group that it is in.
    pub group: [u32; LANES],
    /// The instruction, and the number of its execution.
    pub at: u32,
    pub serial: u32,
}

impl Warp {
    pub fn new(index: u32, registers: Registers, local_bytes: usize) -> Warp {
        let local = vec![0; local_bytes * LANES];
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
            defined: vec![false; local.len()],
            local,
            copies: Vec::new(),
            groups: [0; LANES],
            undefined: Vec::new(),
            void: [Void::default(); 8],
        }
    }

    /// Puts these lanes before the first instruction.
    pub fn start(&mut self, lanes: u32) {
        self.live = lanes;
        self.joins.clear();
        self.paths.clear();
        (self.torn, self.alone, self.polled) = (false, 0, false);
        (self.watched, self.polls) = (None, 0);
        self.paths.push(Path { at: 0, mask: lanes, join: NONE, state: State::Ready });
        self.local.fill(0);
        self.copies.clear();
        self.groups.fill(0);
        self.defined.fill(false);
    }

    /// Where a path waits for those that it parted from.
    pub fn join_of(&self, path: usize) -> u32 {
        match self.paths[path].join {
            NONE => NONE,
            join => self.joins[join as usize].at,
        }
    }

    /// Sends some of a path's lanes to `target`, and the others to `next`; they meet at `meet`.
    pub fn part(&mut self, path: usize, taken: u32, target: u32, next: u32, meet: u32) {
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

    /// Ends a path at the join it has reached; the last one to come goes on from there.
    pub fn arrive(&mut self, path: usize) {
        let Path { mask, join, .. } = self.paths.remove(path);
        self.joins[join as usize].arrived |= mask;
        self.settle(join);
    }

    /// Ends lanes of a path. True where none of it are left.
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

    /// Goes on from a join when all have come.
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

    /// Notes that lanes looked at memory which others may change.
    pub fn poll(&mut self, at: u32, address: u64, value: u64) {
        self.polled = true;
        let watched = Some((at, address, value));
        self.polls = if self.watched == watched { self.polls.saturating_add(1) } else { 0 };
        self.watched = watched;
    }

    /// Notes that a path has had a turn of so many instructions. Where it polls memory while all others wait to meet it,
    /// these may be what it waits for, as the holder of a spin lock is: in the end they go on without it.
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

    /// Sends on the lanes that wait to meet others; false where there are none.
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

    /// Where the lanes of other paths are, with their masks; also those that wait to meet others.
    pub fn others(&self, path: usize) -> impl Iterator<Item = (u32, u32)> {
        let paths = self.paths.iter().enumerate().filter(move |&(index, _)| index != path);
        paths.map(|(_, path)| (path.at, path.mask)).chain(self.meeting())
    }

    /// Where lanes wait to meet others, with their masks.
    pub fn meeting(&self) -> impl Iterator<Item = (u32, u32)> {
        let waiting = self.joins.iter().filter(|join| join.live && join.arrived & join.expected != 0);
        waiting.map(|join| (join.at, join.arrived & join.expected))
    }

    /// Makes one path of those that are ready at the same instruction.
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

    /// Lets the other paths have their turn.
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

    /// The indices of the paths that are ready.
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
        warp.part(0, 0x0f, 10, 1, 20);
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
            warp.part(path, 1 << lane, 20, 5, 20);
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
        warp.part(0, 0x0f, 10, 1, 20);
        warp.part(0, 0x30, 12, 2, 15);
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
