//! The last uses of each byte of memory, to find races between the work of different devices.
//!
//! Work of two devices may overlap in time unless it is ordered. Vector clocks, with an entry per stream,
//! hold that order. When work has run, its uses of memory are compared with earlier uses by other devices.
//! Uses by the same device are not compared.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, PoisonError},
};

use crate::{
    exec::Kind,
    fault::{Action, DeviceAccess, Fault, FaultKind, Place, Work},
    memory::Memory,
};

/// A vector clock: for each stream, by number, how many pieces of its work come before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(Vec<u64>);

impl Clock {
    fn get(&self, stream: usize) -> u64 {
        self.0.get(stream).copied().unwrap_or(0)
    }

    /// Counts one more piece of a stream's work.
    pub fn advance(&mut self, stream: usize) {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] += 1;
    }

    /// Takes the maximum of each entry.
    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, &other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(other);
        }
    }
}

/// A piece of a stream's work in the order of all work.
#[derive(Clone, Debug)]
pub struct Moment {
    pub stream: usize,
    /// Counts the work that comes before, and this piece itself.
    pub clock: Clock,
}

impl Moment {
    fn is_before(&self, later: &Moment) -> bool {
        self.clock.get(self.stream) <= later.clock.get(self.stream)
    }
}

/// The kind and memory order of an access by an instruction, a copy or a memset.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    pub kind: Kind,
    /// Whether it is atomic for all devices and the host: `.sys`, or `volatile`.
    pub system: bool,
    /// Whether it releases at system scope.
    pub releases: bool,
    /// Whether it acquires at system scope.
    pub acquires: bool,
}

impl Effect {
    /// The effect of a copy, a memset, or a plain load or store.
    pub fn plain(kind: Kind) -> Effect {
        Effect { kind, system: false, releases: false, acquires: false }
    }

    /// Whether two accesses to the same bytes race unless they are ordered.
    fn conflicts(&self, other: &Effect) -> bool {
        let atomic = self.kind.is_atomic() && self.system && other.kind.is_atomic() && other.system;
        (self.kind.writes() || other.kind.writes()) && !atomic
    }
}

/// The memory that an instruction, a copy or a memset accessed, all threads taken together.
#[derive(Debug)]
pub struct Touch {
    pub effect: Effect,
    /// The instruction, if the work is a kernel.
    pub place: Option<Place>,
    /// The addresses: disjoint and ascending.
    pub ranges: Vec<Range<u64>>,
}

/// An access kept in a history, for comparison with later ones.
#[derive(Debug)]
struct Use {
    effect: Effect,
    place: Option<Place>,
    by: Arc<By>,
}

/// The work that made an access.
#[derive(Debug)]
struct By {
    work: Work,
    device: u32,
    moment: Moment,
}

impl Use {
    fn describe(&self, range: &Range<u64>) -> Box<DeviceAccess> {
        let action = match self.effect.kind {
            Kind::Read => Action::Read,
            Kind::Write => Action::Write,
            Kind::AtomicRead | Kind::AtomicWrite => Action::Atomic,
        };
        Box::new(DeviceAccess {
            action,
            address: range.start,
            bytes: range.end - range.start,
            work: self.by.work.clone(),
            device: self.by.device,
            place: self.place.clone(),
        })
    }
}

/// The last uses of an allocation's bytes.
#[derive(Debug, Default)]
pub struct History {
    /// Disjoint cells, by the address of their first byte.
    cells: BTreeMap<u64, Cell>,
}

/// A range of bytes with the same uses.
#[derive(Debug, Clone)]
struct Cell {
    end: u64,
    /// The uses that no later use makes redundant.
    uses: Vec<Arc<Use>>,
}

impl History {
    /// Splits the cell that contains this address, so that a cell starts there.
    fn cut(&mut self, at: u64) {
        if let Some((_, cell)) = self.cells.range_mut(..at).next_back()
            && cell.end > at
        {
            let rest = cell.clone();
            cell.end = at;
            self.cells.insert(at, rest);
        }
    }

    /// Records a use of a range. Returns an earlier use that it races with, and bytes that both used.
    fn add(&mut self, range: Range<u64>, now: &Arc<Use>) -> Option<(Range<u64>, Arc<Use>)> {
        self.cut(range.start);
        self.cut(range.end);
        let mut race = None;
        let mut done: Vec<(u64, Cell)> = Vec::new();
        let mut push = |start: u64, end: u64, uses: Vec<Arc<Use>>| match done.last_mut() {
            Some((_, last))
                if last.end == start
                    && last.uses.len() == uses.len()
                    && last.uses.iter().zip(&uses).all(|(one, other)| Arc::ptr_eq(one, other)) =>
            {
                last.end = end;
            }
            _ => done.push((start, Cell { end, uses })),
        };
        let mut at = range.start;
        for (start, mut cell) in self.cells.extract_if(range.clone(), |_, _| true) {
            if at < start {
                push(at, start, vec![now.clone()]);
            }
            at = cell.end;
            let before = |earlier: &Use| earlier.by.moment.is_before(&now.by.moment);
            let elsewhere = |earlier: &Use| earlier.by.device != now.by.device;
            if race.is_none() {
                let racing = cell.uses.iter().find(|earlier| {
                    elsewhere(earlier) && earlier.effect.conflicts(&now.effect) && !before(earlier)
                });
                race = racing.map(|earlier| (start..cell.end, earlier.clone()));
            }
            // Whatever races with an earlier use by this device also races with a later plain write, or a
            // later use of the same kind, so the earlier use can go.
            cell.uses.retain(|earlier| {
                let alike = earlier.effect.kind == now.effect.kind
                    && earlier.effect.system == now.effect.system
                    && earlier.effect.releases == now.effect.releases;
                elsewhere(earlier) || !before(earlier) || !(now.effect.kind == Kind::Write || alike)
            });
            cell.uses.push(now.clone());
            push(start, cell.end, cell.uses);
        }
        if at < range.end {
            push(at, range.end, vec![now.clone()]);
        }
        self.cells.extend(done);
        race
    }

    /// Returns the uses of all cells that overlap a range.
    fn uses(&self, range: &Range<u64>) -> impl Iterator<Item = &Arc<Use>> {
        let before = self.cells.range(..range.start).next_back().map(|(_, cell)| cell);
        let first = before.filter(|cell| cell.end > range.start);
        let cells = self.cells.range(range.clone()).map(|(_, cell)| cell);
        first.into_iter().chain(cells).flat_map(|cell| &cell.uses)
    }
}

/// The result of [`compare`].
pub struct Compared {
    /// The work that comes before the end of the compared work: more than before its start, if it acquired.
    pub clock: Clock,
    /// Whether the host may have seen the work's effects without a driver call, by watching its own memory.
    pub seen: bool,
    pub race: Option<Fault>,
}

/// Records the accesses of work of this memory's context, and finds a race with earlier work of other
/// devices.
pub fn compare(memory: &Memory, work: Work, mut moment: Moment, touches: Vec<Touch>) -> Compared {
    for range in touches.iter().filter(|touch| touch.effect.acquires).flat_map(|touch| &touch.ranges) {
        for allocation in memory.overlapping(range) {
            let history = allocation.history.lock().unwrap_or_else(PoisonError::into_inner);
            for released in history.uses(range).filter(|earlier| earlier.effect.releases) {
                moment.clock.join(&released.by.moment.clock);
            }
        }
    }
    let clock = moment.clock.clone();
    let by = Arc::new(By { work, device: memory.owner().device, moment });
    let (mut seen, mut race) = (false, None);
    for Touch { effect, place, ranges } in touches {
        let now = Arc::new(Use { effect, place, by: by.clone() });
        for range in ranges {
            for allocation in memory.overlapping(&range) {
                seen |= effect.system && effect.kind.writes() && allocation.is_host();
                let part =
                    range.start.max(allocation.base)..range.end.min(allocation.base + allocation.bytes);
                let mut history = allocation.history.lock().unwrap_or_else(PoisonError::into_inner);
                let found = history.add(part, &now);
                race = race.or_else(|| found.map(|(bytes, earlier)| fault(&bytes, &earlier, &now)));
            }
        }
    }
    Compared { clock, seen, race }
}

fn fault(bytes: &Range<u64>, first: &Use, second: &Use) -> Fault {
    let kernel = match &second.by.work {
        Work::Kernel(name) => name.clone(),
        Work::Copy | Work::Memset => String::new(),
    };
    Fault {
        kernel,
        place: second.place.clone(),
        block: [0; 3],
        threads: Vec::new(),
        seed: None,
        kind: FaultKind::DeviceRace { first: first.describe(bytes), second: second.describe(bytes) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A linear congruential generator.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
    }

    const KINDS: [(Kind, bool); 6] = [
        (Kind::Read, false),
        (Kind::Write, false),
        (Kind::AtomicRead, false),
        (Kind::AtomicWrite, false),
        (Kind::AtomicRead, true),
        (Kind::AtomicWrite, true),
    ];

    /// Compares the history with a list of all uses of each byte, which drops none.
    #[test]
    fn dropped_uses_are_redundant() {
        const BYTES: u64 = 24;
        const STREAMS: usize = 5;
        let (mut races, mut least) = (0, usize::MAX);
        for seed in 0..300 {
            let mut random = Random(seed);
            let mut history = History::default();
            let mut all: Vec<Vec<Arc<Use>>> = vec![Vec::new(); BYTES as usize];
            let mut clocks: [Clock; STREAMS] = Default::default();
            for _ in 0..60 {
                let stream = random.below(STREAMS as u64) as usize;
                if random.below(3) == 0 {
                    let other = clocks[random.below(STREAMS as u64) as usize].clone();
                    clocks[stream].join(&other);
                }
                clocks[stream].advance(stream);
                let moment = Moment { stream, clock: clocks[stream].clone() };
                // Streams 0, 2 and 4 are on one device, 1 and 3 on another.
                let by = Arc::new(By { work: Work::Copy, device: stream as u32 % 2, moment });
                let (kind, system) = KINDS[random.below(6) as usize];
                let effect = Effect { system, ..Effect::plain(kind) };
                let now = Arc::new(Use { effect, place: None, by });
                let start = random.below(BYTES);
                let range = start..start + 1 + random.below(BYTES - start);
                let races_with = |earlier: &Use, now: &Use| {
                    let [first, second] = [earlier, now].map(|one| one.effect);
                    let atomic = |one: Effect| one.kind.is_atomic() && one.system;
                    let writes = |one: Effect| matches!(one.kind, Kind::Write | Kind::AtomicWrite);
                    earlier.by.device != now.by.device
                        && (writes(first) || writes(second))
                        && !(atomic(first) && atomic(second))
                        && earlier.by.moment.clock.get(earlier.by.moment.stream)
                            > now.by.moment.clock.get(earlier.by.moment.stream)
                };
                let bytes = || range.clone().map(|byte| byte as usize);
                let expected = bytes().any(|byte| all[byte].iter().any(|one| races_with(one, &now)));
                let found = history.add(range.clone(), &now);
                assert_eq!(found.is_some(), expected, "seed {seed}");
                if let Some((both, earlier)) = found {
                    races += 1;
                    assert!(races_with(&earlier, &now) && range.start <= both.start && both.end <= range.end);
                    for byte in both {
                        assert!(all[byte as usize].iter().any(|one| Arc::ptr_eq(one, &earlier)));
                    }
                }
                bytes().for_each(|byte| all[byte].push(now.clone()));
                let cells: Vec<_> = history.cells.iter().map(|(&start, cell)| (start, cell.end)).collect();
                assert!(cells.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{cells:?}");
            }
            let most = history.cells.values().map(|cell| cell.uses.len()).max();
            least = least.min(all.iter().map(Vec::len).max().unwrap() - most.unwrap());
        }
        // The cases include many with and without a race, and the history drops uses.
        assert!(races > 1000 && races < 300 * 60 - 1000, "{races}");
        assert!(least > 0);
    }

    #[test]
    fn a_write_of_the_whole_range_leaves_one_cell() {
        let mut history = History::default();
        let mut clock = Clock::default();
        let mut add = |kind, range| {
            clock.advance(0);
            let moment = Moment { stream: 0, clock: clock.clone() };
            let by = Arc::new(By { work: Work::Memset, device: 0, moment });
            history.add(range, &Arc::new(Use { effect: Effect::plain(kind), place: None, by }));
            history.cells.len()
        };
        assert_eq!(add(Kind::Write, 10..20), 1);
        assert_eq!(add(Kind::Read, 12..14), 3);
        assert_eq!(add(Kind::Read, 0..5), 4);
        assert_eq!(add(Kind::Read, 12..14), 4);
        assert_eq!(add(Kind::Write, 0..20), 1);
    }
}
