//! The last uses of each byte of memory, to find races between the work of different streams.
//!
//! Work of two streams may overlap in time unless it is ordered. Vector clocks, with an entry per stream,
//! hold that order. When work has run, its uses of memory are compared with earlier uses.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, PoisonError},
};

use crate::{
    exec::Kind,
    fault::{Action, DeviceAccess, Fault, FaultKind, Place, Work},
    memory::Memory,
    program::code::Scope,
};

/// The most separate ranges of a launch's accesses with one effect that are compared with other work.
const MOST_RANGES: usize = 1 << 14;

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

    /// Whether all this work is in the other clock too.
    pub fn is_within(&self, other: &Clock) -> bool {
        self.0.iter().enumerate().all(|(stream, &count)| count <= other.get(stream))
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    pub kind: Kind,
    /// The threads to which it is atomic. A `volatile` access is so to all, and one that is not atomic to
    /// none beyond its block.
    pub scope: Scope,
    /// Whether it releases to the threads of its scope.
    pub releases: bool,
    /// Whether it acquires from the threads of its scope.
    pub acquires: bool,
}

impl Effect {
    /// The effect of a copy, a memset, or a plain load or store.
    pub fn plain(kind: Kind) -> Effect {
        Effect { kind, scope: Scope::Block, releases: false, acquires: false }
    }

    /// Whether its scope has the threads of another launch, on its device or on another one.
    fn reaches(&self, is_same_device: bool) -> bool {
        self.scope == Scope::System || self.scope == Scope::Device && is_same_device
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

impl Touch {
    /// The first range that overlaps another one: the bytes of both.
    fn meets(&self, other: &Range<u64>) -> Option<Range<u64>> {
        let after = self.ranges.partition_point(|range| range.end <= other.start);
        let range = self.ranges.get(after).filter(|range| range.start < other.end)?;
        Some(range.start.max(other.start)..range.end.min(other.end))
    }
}

/// The accesses of some work with one effect, kept in a history for comparison with later ones.
#[derive(Debug)]
struct Use {
    effect: Effect,
    /// What each instruction accessed.
    touches: Vec<Touch>,
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
    /// Whether both scopes have the other's threads.
    fn meets(&self, other: &Use) -> bool {
        let is_same_device = self.by.device == other.by.device;
        self.effect.reaches(is_same_device) && other.effect.reaches(is_same_device)
    }

    /// Whether two accesses to the same bytes race unless they are ordered.
    fn conflicts(&self, other: &Use) -> bool {
        let [one, two] = [self.effect.kind, other.effect.kind];
        (one.writes() || two.writes()) && !(one.is_atomic() && two.is_atomic() && self.meets(other))
    }

    /// The bytes of a range that its first instruction there accessed, and the instruction.
    fn part(&self, range: &Range<u64>) -> (Range<u64>, Option<Place>) {
        let part = self.touches.iter().find_map(|touch| Some((touch.meets(range)?, touch.place.clone())));
        part.unwrap_or((range.clone(), None))
    }

    fn describe(&self, range: &Range<u64>, place: Option<Place>) -> Box<DeviceAccess> {
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
            place,
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
            if race.is_none() {
                let racing = cell.uses.iter().find(|earlier| earlier.conflicts(now) && !before(earlier));
                race = racing.map(|earlier| (start..cell.end, earlier.clone()));
            }
            // Whatever races with an earlier use also races with a plain write that comes after it, or with a
            // use of the same kind by the same device, so the earlier use can go.
            cell.uses.retain(|earlier| {
                let alike = earlier.effect.kind == now.effect.kind
                    && earlier.effect.scope == now.effect.scope
                    && earlier.effect.releases == now.effect.releases
                    && earlier.by.device == now.by.device;
                !before(earlier) || !(now.effect.kind == Kind::Write || alike)
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

/// Records the accesses of work of this memory's context, and finds a race with earlier work.
pub fn compare(memory: &Memory, work: Work, mut moment: Moment, touches: Vec<Touch>) -> Compared {
    let device = memory.owner().device;
    for Touch { effect, ranges, .. } in touches.iter().filter(|touch| touch.effect.acquires) {
        for range in ranges {
            for allocation in memory.overlapping(range) {
                let history = allocation.history.lock().unwrap_or_else(PoisonError::into_inner);
                for earlier in history.uses(range).filter(|earlier| earlier.effect.releases) {
                    let is_same_device = earlier.by.device == device;
                    if earlier.effect.reaches(is_same_device) && effect.reaches(is_same_device) {
                        moment.clock.join(&earlier.by.moment.clock);
                    }
                }
            }
        }
    }
    let clock = moment.clock.clone();
    let by = Arc::new(By { work, device, moment });
    let (mut seen, mut race) = (false, None);
    for touches in by_effect(touches) {
        let effect = touches[0].effect;
        let ranges = union(&touches);
        let now = Arc::new(Use { effect, touches, by: by.clone() });
        for range in ranges {
            for allocation in memory.overlapping(&range) {
                seen |= effect.scope == Scope::System && effect.kind.writes() && allocation.is_host();
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

fn by_effect(touches: Vec<Touch>) -> Vec<Vec<Touch>> {
    let mut groups: Vec<Vec<Touch>> = Vec::new();
    for touch in touches {
        match groups.iter_mut().find(|group| group[0].effect == touch.effect) {
            Some(group) => group.push(touch),
            None => groups.push(vec![touch]),
        }
    }
    groups
}

/// All bytes that were touched, as disjoint ranges; none if there are more than [`MOST_RANGES`].
fn union(touches: &[Touch]) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = touches.iter().flat_map(|touch| touch.ranges.iter().cloned()).collect();
    // (A stable sort merges sorted runs.)
    all.sort_by_key(|range| range.start);
    join_ranges(&mut all);
    if all.len() > MOST_RANGES {
        all.clear();
    }
    all
}

/// Joins sorted ranges that overlap or follow one another.
pub fn join_ranges(ranges: &mut Vec<Range<u64>>) {
    ranges.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
}

fn fault(bytes: &Range<u64>, first: &Use, second: &Use) -> Fault {
    let kernel = match &second.by.work {
        Work::Kernel(name) => name.clone(),
        Work::Copy | Work::Memset => String::new(),
    };
    let is_same_device = first.by.device == second.by.device;
    let (bytes, earlier) = first.part(bytes);
    let (bytes, place) = second.part(&bytes);
    let (first, second) = (first.describe(&bytes, earlier), second.describe(&bytes, place.clone()));
    let kind = if is_same_device {
        FaultKind::StreamRace { first, second }
    } else {
        FaultKind::DeviceRace { first, second }
    };
    Fault { kernel, place, block: [0; 3], threads: Vec::new(), seed: None, kind }
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

    const KINDS: [(Kind, Scope); 8] = [
        (Kind::Read, Scope::Block),
        (Kind::Write, Scope::Block),
        (Kind::AtomicRead, Scope::Block),
        (Kind::AtomicWrite, Scope::Block),
        (Kind::AtomicRead, Scope::Device),
        (Kind::AtomicWrite, Scope::Device),
        (Kind::AtomicRead, Scope::System),
        (Kind::AtomicWrite, Scope::System),
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
                let (kind, scope) = KINDS[random.below(8) as usize];
                let effect = Effect { scope, ..Effect::plain(kind) };
                let now = Arc::new(Use { effect, touches: Vec::new(), by });
                let start = random.below(BYTES);
                let range = start..start + 1 + random.below(BYTES - start);
                let races_with = |earlier: &Use, now: &Use| {
                    let [first, second] = [earlier, now].map(|one| one.effect);
                    let is_same = earlier.by.device == now.by.device;
                    let has = |scope| scope == Scope::System || scope == Scope::Device && is_same;
                    let atomic = |one: Effect| one.kind.is_atomic() && has(one.scope);
                    let writes = |one: Effect| matches!(one.kind, Kind::Write | Kind::AtomicWrite);
                    (writes(first) || writes(second))
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
            history.add(range, &Arc::new(Use { effect: Effect::plain(kind), touches: Vec::new(), by }));
            history.cells.len()
        };
        assert_eq!(add(Kind::Write, 10..20), 1);
        assert_eq!(add(Kind::Read, 12..14), 3);
        assert_eq!(add(Kind::Read, 0..5), 4);
        assert_eq!(add(Kind::Read, 12..14), 4);
        assert_eq!(add(Kind::Write, 0..20), 1);
    }
}
