//! Who used memory last, for races between the work of different devices.
//!
//! Work of one device can overlap in time with any of another's that it is not ordered with. What comes before what is
//! known by vector clocks, with an entry for each stream; two uses of a place are compared by them, when the second one
//! has run. Uses of one device are not compared with each other.

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

/// For each stream, by its number, how much of its work comes before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(Vec<u64>);

impl Clock {
    fn get(&self, stream: usize) -> u64 {
        self.0.get(stream).copied().unwrap_or(0)
    }

    /// One piece of a stream's work more.
    pub fn advance(&mut self, stream: usize) {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] += 1;
    }

    /// The later of each.
    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, &other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(other);
        }
    }
}

/// A piece of a stream's work, with what comes before it and itself.
#[derive(Clone, Debug)]
pub struct Moment {
    pub stream: usize,
    pub clock: Clock,
}

impl Moment {
    fn is_before(&self, later: &Moment) -> bool {
        self.clock.get(self.stream) <= later.clock.get(self.stream)
    }
}

/// What an instruction, a copy or a memset does, as races across devices see it.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    pub kind: Kind,
    /// Whether it is atomic for all devices and the host: `.sys`, or `volatile`.
    pub system: bool,
    /// Whether it orders what others do after they have seen it, and what its own work does after it has seen others', on
    /// all devices.
    pub releases: bool,
    pub acquires: bool,
}

impl Effect {
    /// That of a copy or a memset, or of a plain load or store.
    pub fn plain(kind: Kind) -> Effect {
        Effect { kind, system: false, releases: false, acquires: false }
    }

    /// Whether two such uses of one place need an order.
    fn conflicts(&self, other: &Effect) -> bool {
        let atomic = self.kind.is_atomic() && self.system && other.kind.is_atomic() && other.system;
        (self.kind.writes() || other.kind.writes()) && !atomic
    }
}

/// What an instruction of a kernel, a copy or a memset did, all threads together.
#[derive(Debug)]
pub struct Touch {
    pub effect: Effect,
    /// The instruction.
    pub place: Option<Place>,
    /// The addresses: disjoint, and ascending.
    pub ranges: Vec<Range<u64>>,
}

/// A touch, as later ones are compared with it.
#[derive(Debug)]
struct Use {
    effect: Effect,
    place: Option<Place>,
    by: Arc<By>,
}

/// Who used it.
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
    /// By their first byte's address; disjoint.
    cells: BTreeMap<u64, Cell>,
}

/// Bytes with the same uses.
#[derive(Debug, Clone)]
struct Cell {
    end: u64,
    /// Those that no later one stands for.
    uses: Vec<Arc<Use>>,
}

impl History {
    /// Cuts the cell that this address is in, so that one starts there.
    fn cut(&mut self, at: u64) {
        if let Some((_, cell)) = self.cells.range_mut(..at).next_back()
            && cell.end > at
        {
            let rest = cell.clone();
            cell.end = at;
            self.cells.insert(at, rest);
        }
    }

    /// Notes a use of a range; an earlier one that it races with, and the bytes that both used.
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
            // What races with an earlier use of the device races with a plain write after it, and with its like.
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

    /// The uses of a range.
    fn uses(&self, range: &Range<u64>) -> impl Iterator<Item = &Arc<Use>> {
        let before = self.cells.range(..range.start).next_back().map(|(_, cell)| cell);
        let first = before.filter(|cell| cell.end > range.start);
        let cells = self.cells.range(range.clone()).map(|(_, cell)| cell);
        first.into_iter().chain(cells).flat_map(|cell| &cell.uses)
    }
}

/// What comparing work with what came before it has shown.
pub struct Compared {
    /// What comes before the work's end: more than before its start, where it has acquired.
    pub clock: Clock,
    /// Whether the host can have seen what it did without a call of the driver, by watching its own memory.
    pub seen: bool,
    pub race: Option<Fault>,
}

/// Compares what work of this memory's context did with what other devices' work did before it, and notes it.
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
        kind: FaultKind::DeviceRace { first: first.describe(bytes), second: second.describe(bytes) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers below a bound, one after another.
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

    /// Against a list of all uses of each byte, of which nothing is ever dropped.
    #[test]
    fn what_is_dropped_is_not_missed() {
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
                // Streams 0, 2 and 4 are of one device, 1 and 3 of another.
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
        // There are both, and something is dropped.
        assert!(races > 1000 && races < 300 * 60 - 1000, "{races}");
        assert!(least > 0);
    }

    #[test]
    fn a_write_of_all_leaves_one_cell() {
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
