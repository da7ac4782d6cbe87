//! Races in global memory, found out after the launch from what its blocks have noted.
//!
//! Two accesses of one place, one of them a plain write or one plain and the other an atomic write, are a race unless one
//! happens before the other: by barriers within a block, or through a release and an acquire at one address. A release
//! counts as seen by each acquire of that address that came after it; one that read an older value counts too, so a race
//! can be missed there. So it is where more than [`RECENT`] atomic accesses of a place follow each other.

use std::collections::{HashMap, HashSet};

use crate::fault::{Access, Action, Fault, FaultKind, Memory as Where};

use super::{
    clocks::Kind,
    grid::Grid,
    lanes::{LANES, lanes},
    log::{Event, Log, Record},
};

/// Atomic accesses of a place that a plain one is compared with.
const RECENT: usize = 256;

/// One execution of an instruction: the block's log, and the record in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    log: u32,
    record: u32,
}

/// Addresses that one execution touched, from the first to past the last.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    source: Source,
}

/// One lane's use of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    place: u64,
    stamp: u64,
    source: Source,
    lane: u8,
}

/// Finds a race, if there is one: the first by address.
pub fn find(grid: &Grid, mut logs: Vec<Log>) -> Result<(), Box<Fault>> {
    logs.sort_unstable_by_key(|log| log.block);
    let spans = conflicting_spans(&logs);
    let orders = Orders::new(&logs);
    // A cluster is a run of spans each of which overlaps one before it.
    let mut cluster: Vec<Span> = Vec::new();
    let mut end = 0;
    for span in spans {
        if span.start >= end {
            check_cluster(grid, &logs, &orders, &cluster)?;
            cluster.clear();
        }
        end = end.max(span.end);
        cluster.push(span);
    }
    check_cluster(grid, &logs, &orders, &cluster)
}

/// The spans of all writes, and of the reads of what was written, in the order of their starts.
fn conflicting_spans(logs: &[Log]) -> Vec<Span> {
    let sources = || {
        logs.iter().enumerate().flat_map(|(log, content)| {
            content.records.iter().enumerate().map(move |(record, entry)| {
                (content, entry, Source { log: log as u32, record: record as u32 })
            })
        })
    };
    let mut spans = Vec::new();
    for (log, record, source) in sources().filter(|(_, record, _)| record.kind.writes()) {
        record.spans(log, |start, end| spans.push(Span { start, end, source }));
    }
    spans.sort_unstable_by_key(|span| span.start);
    // Disjoint ranges of written addresses.
    let mut written: Vec<(u64, u64)> = Vec::new();
    for span in &spans {
        match written.last_mut() {
            Some(last) if span.start <= last.1 => last.1 = last.1.max(span.end),
            _ => written.push((span.start, span.end)),
        }
    }
    let overlaps = |start: u64, end: u64| {
        let after = written.partition_point(|range| range.1 <= start);
        written.get(after).is_some_and(|range| range.0 < end)
    };
    if let (Some(first), Some(last)) = (written.first(), written.last()) {
        let hull = (first.0, last.1);
        for (log, record, source) in sources().filter(|(_, record, _)| !record.kind.writes()) {
            record.spans(log, |start, end| {
                if start < hull.1 && hull.0 < end && overlaps(start, end) {
                    spans.push(Span { start, end, source });
                }
            });
        }
    }
    spans.sort_unstable_by_key(|span| (span.start, span.source));
    spans
}

impl Record {
    /// The addresses that it touched: one span where the lanes' bytes follow each other, otherwise one each.
    fn spans(&self, log: &Log, mut add: impl FnMut(u64, u64)) {
        let bytes = u64::from(self.bytes);
        if self.list.is_none() && self.stride == i64::from(self.bytes) {
            let first = self.mask.trailing_zeros() as usize;
            let last = LANES - 1 - self.mask.leading_zeros() as usize;
            return add(self.address(log, first), self.address(log, last) + bytes);
        }
        for lane in lanes(self.mask) {
            let address = self.address(log, lane);
            add(address, address + bytes);
        }
    }
}

fn check_cluster(grid: &Grid, logs: &[Log], orders: &Orders, cluster: &[Span]) -> Result<(), Box<Fault>> {
    let record = |source: Source| &logs[source.log as usize].records[source.record as usize];
    let mut sources: Vec<Source> = cluster.iter().map(|span| span.source).collect();
    sources.sort_unstable();
    sources.dedup();
    if sources.len() < 2 || sources.iter().all(|&source| record(source).kind.is_atomic()) {
        return Ok(());
    }
    // Accesses are aligned to their size, so places of the smallest size are each touched whole.
    let shift =
        sources.iter().map(|&source| u32::from(record(source).bytes).trailing_zeros()).min().unwrap_or(0);
    let mut uses = Vec::new();
    for span in cluster {
        let entry = record(span.source);
        let log = &logs[span.source.log as usize];
        for lane in lanes(entry.mask) {
            let address = entry.address(log, lane);
            if address < span.start || address >= span.end {
                continue;
            }
            for place in address >> shift..(address + u64::from(entry.bytes)) >> shift {
                uses.push(Use { place, stamp: entry.stamp, source: span.source, lane: lane as u8 });
            }
        }
    }
    uses.sort_unstable();
    uses.dedup();
    for uses in uses.chunk_by(|a, b| a.place == b.place) {
        check_place(logs, orders, uses)
            .map_or(Ok(()), |(first, second)| Err(fault(grid, logs, first, second)))?;
    }
    Ok(())
}

/// Two uses of a place that race, if there are such. What happens before another has no greater stamp, so each is
/// compared with the last write, and a write with all that read what the last one wrote.
fn check_place(logs: &[Log], orders: &Orders, uses: &[Use]) -> Option<(Use, Use)> {
    let (mut write, mut reads, mut atomics): (Option<Use>, Vec<Use>, Vec<Use>) =
        (None, Vec::new(), Vec::new());
    for &now in uses {
        let kind = entry(logs, now).kind;
        let recent = &atomics[atomics.len().saturating_sub(RECENT)..];
        for &before in write.iter().chain(&reads).chain(recent) {
            if kind.conflicts(entry(logs, before).kind) && !orders.ordered(logs, before, now) {
                return Some((before, now));
            }
        }
        match kind {
            Kind::Write => {
                write = Some(now);
                reads.clear();
                atomics.clear();
            }
            Kind::Read => reads.push(now),
            Kind::AtomicRead | Kind::AtomicWrite => atomics.push(now),
        }
    }
    None
}

fn entry(logs: &[Log], used: Use) -> &Record {
    &logs[used.source.log as usize].records[used.source.record as usize]
}

/// A point in a block: a thread at a time of its warp.
#[derive(Clone, Copy, Debug)]
struct Point {
    log: u32,
    warp: u8,
    lane: u8,
    time: u32,
    known: u32,
    /// An acquire comes after what its thread does at the same time; all else comes in order.
    acquires: bool,
}

impl Point {
    fn of_use(logs: &[Log], used: Use) -> Point {
        let &Record { warp, time, known, .. } = entry(logs, used);
        Point { log: used.source.log, warp, lane: used.lane, time, known, acquires: false }
    }

    fn of_event(log: u32, event: &Event) -> Point {
        let &Event { warp, lane, time, known, release, .. } = event;
        Point { log, warp, lane, time, known, acquires: !release }
    }

    /// Whether it comes before another point of its block, in program order or by barriers.
    fn before(&self, logs: &[Log], other: &Point) -> bool {
        let least = self.time + u32::from(self.acquires);
        self.log == other.log
            && (self.warp == other.warp && self.lane == other.lane && least <= other.time
                || logs[other.log as usize].known[other.known as usize][self.warp as usize] > self.time)
    }
}

/// The releases and acquires of a launch.
struct Orders {
    /// Those of each block.
    releases: Vec<Vec<Event>>,
    /// Acquires at each address, with their block, in order.
    acquires: HashMap<u64, Vec<(u32, Event)>>,
}

impl Orders {
    fn new(logs: &[Log]) -> Orders {
        let mut orders = Orders { releases: Vec::new(), acquires: HashMap::new() };
        for (log, content) in logs.iter().enumerate() {
            orders.releases.push(content.events.iter().filter(|event| event.release).copied().collect());
            for event in content.events.iter().filter(|event| !event.release) {
                orders.acquires.entry(event.address).or_default().push((log as u32, *event));
            }
        }
        for acquires in orders.acquires.values_mut() {
            acquires.sort_unstable_by_key(|(_, event)| event.order);
        }
        orders
    }

    /// Whether one use happens before another.
    fn ordered(&self, logs: &[Log], first: Use, second: Use) -> bool {
        if first.source == second.source {
            return true;
        }
        let (from, to) = (Point::of_use(logs, first), Point::of_use(logs, second));
        from.before(logs, &to) || self.reaches(logs, from, to)
    }

    /// Whether a chain of releases and acquires leads from one point to another.
    fn reaches(&self, logs: &[Log], from: Point, to: Point) -> bool {
        let mut open = vec![from];
        let mut seen = HashSet::new();
        while let Some(point) = open.pop() {
            for release in &self.releases[point.log as usize] {
                if !point.before(logs, &Point::of_event(point.log, release)) {
                    continue;
                }
                let Some(acquires) = self.acquires.get(&release.address) else { continue };
                let after = acquires.partition_point(|(_, event)| event.order < release.order);
                for (log, acquire) in &acquires[after..] {
                    let reached = Point::of_event(*log, acquire);
                    if reached.before(logs, &to) {
                        return true;
                    }
                    if seen.insert((*log, acquire.order)) {
                        open.push(reached);
                    }
                }
            }
        }
        false
    }
}

fn fault(grid: &Grid, logs: &[Log], first: Use, second: Use) -> Box<Fault> {
    let describe = |used: Use| {
        let log = &logs[used.source.log as usize];
        let record = entry(logs, used);
        let action = match record.kind {
            Kind::Read => Action::Read,
            Kind::Write => Action::Write,
            Kind::AtomicRead | Kind::AtomicWrite => Action::Atomic,
        };
        Access {
            action,
            memory: Where::Global,
            address: record.address(log, used.lane.into()),
            bytes: record.bytes.into(),
            block: grid.block_index(log.block),
            thread: grid.thread(record.warp.into(), used.lane.into()),
            place: grid.place(record.at),
        }
    };
    let (first, second) = (describe(first), describe(second));
    Box::new(Fault {
        kernel: grid.kernel.name.clone(),
        place: Some(second.place.clone()),
        block: second.block,
        threads: vec![second.thread],
        kind: FaultKind::Race { first: Box::new(first), second: Box::new(second) },
    })
}
