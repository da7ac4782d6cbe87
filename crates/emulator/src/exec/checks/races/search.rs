//! Finds races in global memory after a launch, from the logs of its blocks.
//!
//! Two accesses of one place conflict if one of them writes and they are not both atomic. A conflict is a
//! race unless one access happens before the other: by barriers within a block, or by a release and an
//! acquire of the same address. An acquire is taken to see every release of its address that ran before it,
//! even if it read an older value. This can hide a race. So can more than [`RECENT`] atomic accesses of a
//! place in a row, as many plain reads before an atomic write, or more than [`SAME`] unordered stores of one
//! value.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use crate::{
    exec::{
        access::Kind,
        grid::Grid,
        lanes::{LANES, collect, lanes},
        reports::{Conflict, Reports},
    },
    fault::{Access, Action, Fault, Memory as Where},
    history::{Effect, Touch, join_ranges},
    program::code::{Operation, Order, Scope},
};

use super::log::{Event, Log, Record};

/// The most atomic accesses of a place that an access is compared with, and the most plain reads that an
/// atomic write is compared with.
const RECENT: usize = 256;

/// The most unordered stores of one value to a place that an access is compared with.
const SAME: usize = 16;

/// The most uses that are checked at once, to bound the memory needed.
const MOST_USES: u64 = 1 << 22;

/// One execution of an instruction: the indices of its log and of its record there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    log: u32,
    record: u32,
}

/// A range of addresses that one execution touched.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: u64,
    end: u64,
    source: Source,
}

/// The use of one place by one execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    place: u64,
    stamp: u64,
    source: Source,
    /// The lanes that used it.
    lanes: u32,
}

/// Two uses that race, each with a lane.
type Pair = [(Use, usize); 2];

/// Searches for races. Returns the one at the lowest address that is a fault.
pub fn find(grid: &Grid, logs: &mut [Log], reports: &mut Reports) -> Result<(), Box<Fault>> {
    logs.sort_unstable_by_key(|log| log.block);
    let spans = conflicting_spans(logs);
    let mut orders = Ordered { strict: Orders::new(logs), relaxed: None };
    // A cluster is a run of overlapping spans.
    let mut rest = spans.as_slice();
    while let Some(first) = rest.first() {
        let mut range = first.start..first.end;
        let mut count = 0;
        while let Some(span) = rest.get(count).filter(|span| span.start < range.end) {
            range.end = range.end.max(span.end);
            count += 1;
        }
        let (cluster, after) = rest.split_at(count);
        check_cluster(grid, logs, (&mut orders, reports), cluster, range)?;
        rest = after;
    }
    Ok(())
}

/// The memory that a launch touched, by instruction, to find races with the work of other streams.
pub fn touches(grid: &Grid, logs: &[Log]) -> Vec<Touch> {
    let mut found: BTreeMap<u32, (Effect, Vec<Range<u64>>)> = BTreeMap::new();
    for log in logs {
        for record in &log.records {
            let new = || (effect(grid, record), Vec::new());
            let (_, ranges) = found.entry(record.at).or_insert_with(new);
            record.spans(log, |start, end| match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            });
        }
    }
    let touch = |(at, (effect, mut ranges)): (u32, (Effect, Vec<Range<u64>>))| {
        ranges.sort_unstable_by_key(|range| range.start);
        join_ranges(&mut ranges);
        Touch { effect, place: Some(grid.place(at)), ranges }
    };
    found.into_iter().map(touch).collect()
}

/// An access as other devices see it.
fn effect(grid: &Grid, record: &Record) -> Effect {
    let (order, scope, reads) = match &grid.code.instructions[record.at as usize].operation {
        Operation::Load(load) => (load.order, load.scope, true),
        Operation::Store(store) => (store.order, store.scope, false),
        Operation::Atomic(atomic) => (atomic.order, atomic.scope, true),
        _ => (Order::Weak, Scope::Block, false),
    };
    // `volatile` is `relaxed` with scope `sys`, also for generic addresses. (PTX ISA, "Volatile Operation".)
    let volatile = order == Order::Volatile;
    let kind = match record.kind {
        Kind::Read if volatile => Kind::AtomicRead,
        Kind::Write if volatile => Kind::AtomicWrite,
        kind => kind,
    };
    let scope = match kind.is_atomic() {
        true if volatile => Scope::System,
        true => scope,
        false => Scope::Block,
    };
    Effect {
        kind,
        scope,
        releases: scope != Scope::Block && kind.writes() && (order.releases() || grid.fences),
        acquires: scope != Scope::Block && reads && (order.acquires() || grid.fences),
    }
}

/// The spans of all writes, and of the reads that overlap them, sorted by start.
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
    // Disjoint ranges of written addresses, sorted.
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
    /// Calls `add` with the addresses touched: one range if the lanes' bytes are consecutive, else one per
    /// address.
    fn spans(&self, log: &Log, mut add: impl FnMut(u64, u64)) {
        let bytes = u64::from(self.bytes);
        if self.list.is_none() && self.stride == i64::from(self.bytes) {
            let first = self.mask.trailing_zeros() as usize;
            let last = LANES - 1 - self.mask.leading_zeros() as usize;
            return add(self.address(log, first), self.address(log, last) + bytes);
        }
        for (address, _) in self.addresses(log) {
            add(address, address + bytes);
        }
    }

    /// Each distinct address, with its lanes.
    fn addresses(&self, log: &Log) -> impl Iterator<Item = (u64, u32)> {
        let mut left = self.mask;
        std::iter::from_fn(move || {
            let lane = (left != 0).then(|| left.trailing_zeros() as usize)?;
            let address = self.address(log, lane);
            let same = match (self.list, self.stride) {
                (None, 0) => left,
                (None, _) => 1 << lane,
                (Some(list), _) => {
                    let addresses = &log.lists[list as usize];
                    collect(|other| addresses[other] == address) & left
                }
            };
            left &= !same;
            Some((address, same))
        })
    }
}

/// Searches for a race within a cluster's addresses.
fn check_cluster(
    grid: &Grid,
    logs: &[Log],
    (orders, reports): (&mut Ordered, &mut Reports),
    cluster: &[Span],
    range: Range<u64>,
) -> Result<(), Box<Fault>> {
    let record = |source: Source| &logs[source.log as usize].records[source.record as usize];
    let several = cluster.iter().any(|span| span.source != cluster[0].source);
    let size = element(grid, record(cluster[0].source));
    let harmless = |span: &Span| {
        let record = record(span.source);
        record.kind.is_atomic() && !of_block(grid, record) && element(grid, record) == size
    };
    if !several || cluster.iter().all(harmless) {
        return Ok(());
    }
    // Accesses are aligned to their size, so each place of the smallest size is touched as a whole.
    let shift =
        cluster.iter().map(|span| u32::from(record(span.source).bytes).trailing_zeros()).min().unwrap_or(0);
    let count: u64 =
        cluster.iter().map(|span| (span.end.min(range.end) - span.start.max(range.start)) >> shift).sum();
    if count > MOST_USES && range.end - range.start > 1 << shift {
        let middle = (range.start + (range.end - range.start) / 2) >> shift << shift;
        for half in [range.start..middle, middle..range.end] {
            let touches = |span: &&Span| span.start < half.end && half.start < span.end;
            let part: Vec<Span> = cluster.iter().filter(touches).copied().collect();
            check_cluster(grid, logs, (orders, reports), &part, half)?;
        }
        return Ok(());
    }
    let mut uses = Vec::new();
    for span in cluster {
        let entry = record(span.source);
        let log = &logs[span.source.log as usize];
        for (address, lanes) in entry.addresses(log) {
            let end = (address + u64::from(entry.bytes)).min(span.end).min(range.end);
            for place in address.max(span.start).max(range.start) >> shift..end >> shift {
                uses.push(Use { place, stamp: entry.stamp, source: span.source, lanes });
            }
        }
    }
    uses.sort_unstable();
    for uses in uses.chunk_by(|a, b| a.place == b.place) {
        check_place(grid, logs, (orders, reports), uses)?;
    }
    Ok(())
}

/// Finds two uses of a place that race, and reports them.
///
/// Uses are sorted by stamp, and what happens before a use has no greater stamp. So it suffices to compare
/// each use with the last write and the recent atomic accesses, and a write also with the reads since the
/// last write.
fn check_place(
    grid: &Grid,
    logs: &[Log],
    (orders, reports): (&mut Ordered, &mut Reports),
    uses: &[Use],
) -> Result<(), Box<Fault>> {
    let (mut write, mut reads, mut atomics): (Option<Use>, Vec<Use>, Vec<Use>) =
        (None, Vec::new(), Vec::new());
    // Writes of the same value as the last one, with which it races.
    let (mut others, mut values) = (Vec::new(), Values::default());
    for &now in uses {
        let kind = entry(logs, now).kind;
        let recent = |uses: &[Use]| uses.len().saturating_sub(RECENT);
        let reads_before = match kind {
            Kind::Write => &reads[..],
            Kind::AtomicWrite => &reads[recent(&reads)..],
            Kind::Read | Kind::AtomicRead => &[],
        };
        let values_now = if kind == Kind::Write { values.with(logs, now) } else { values };
        let mut races_with_writes = false;
        for &before in write.iter().chain(&others).chain(reads_before).chain(&atomics[recent(&atomics)..]) {
            let earlier = entry(logs, before);
            let mut report = |conflict, uses: Pair| {
                let pair = (Some(conflict), earlier.at, entry(logs, now).at);
                if reports.is_settled(pair) {
                    return Ok(());
                }
                reports.settle(grid, pair, fault(grid, logs, conflict, uses))
            };
            if conflicts(grid, logs, before, now) {
                let conflict = match [earlier.kind, kind] {
                    [Kind::Write, Kind::Write] if values_now.are_same() => Conflict::SameValue,
                    [Kind::Read, Kind::AtomicWrite] if starts_swap(grid, earlier) => Conflict::SwapRead,
                    [Kind::AtomicWrite, Kind::Read] if starts_swap(grid, entry(logs, now)) => {
                        Conflict::SwapRead
                    }
                    _ => Conflict::Race,
                };
                if let Some([first, second]) = orders.strict.unordered(logs, before, now)
                    && !ends_chain(
                        grid,
                        logs,
                        &mut orders.strict,
                        &atomics[recent(&atomics)..],
                        [before, now],
                    )
                {
                    let conflict = match conflict {
                        Conflict::Race
                            if !earlier.kind.writes() && orders.depends(grid, logs, before, now) =>
                        {
                            Conflict::Overwrite
                        }
                        conflict => conflict,
                    };
                    report(conflict, [(before, first), (now, second)])?;
                    races_with_writes |= earlier.kind == Kind::Write;
                }
            }
            let lane = |used: Use| used.lanes.trailing_zeros() as usize;
            let pair = [(before, lane(before)), (now, lane(now))];
            if kind.writes() && is_constant(grid, earlier) {
                let is_ordered = orders.strict.unordered(logs, before, now).is_none()
                    || orders.depends(grid, logs, before, now);
                report(if is_ordered { Conflict::ConstantFirst } else { Conflict::Constant }, pair)?;
            } else if earlier.kind.writes() && is_constant(grid, entry(logs, now)) {
                report(Conflict::Constant, pair)?;
            }
        }
        match kind {
            Kind::Write => {
                if races_with_writes {
                    others.extend(write);
                    values = values_now;
                } else {
                    others.clear();
                    values = Values::default().with(logs, now);
                }
                if others.len() > SAME {
                    others.remove(0);
                }
                write = Some(now);
                reads.clear();
                atomics.clear();
            }
            Kind::Read => reads.push(now),
            Kind::AtomicRead | Kind::AtomicWrite => atomics.push(now),
        }
    }
    Ok(())
}

/// What plain writes of a place did to it.
#[derive(Clone, Copy, Debug)]
struct Values {
    /// How many of them changed the place.
    changes: usize,
    /// The stamp of the last one that changed it.
    changed: u64,
    /// The least stamp of those that did not.
    unchanged: u64,
}

impl Default for Values {
    fn default() -> Values {
        Values { changes: 0, changed: 0, unchanged: u64::MAX }
    }
}

impl Values {
    fn with(self, logs: &[Log], now: Use) -> Values {
        if entry(logs, now).changed & now.lanes != 0 {
            Values { changes: self.changes + 1, changed: now.stamp, ..self }
        } else {
            Values { unchanged: self.unchanged.min(now.stamp), ..self }
        }
    }

    /// Whether all wrote the same value: none changed the place, or only the first one did. (A write that
    /// changes nothing has a stamp of its own, so that the stamps tell which one came first.)
    fn are_same(self) -> bool {
        self.changes == 0 || self.changes == 1 && self.changed <= self.unchanged
    }
}

/// Whether two uses of a place race unless they are ordered.
fn conflicts(grid: &Grid, logs: &[Log], before: Use, now: Use) -> bool {
    let (first, second) = (entry(logs, before), entry(logs, now));
    if !first.kind.writes() && !second.kind.writes() {
        return false;
    }
    // Accesses with block scope are atomic only among the threads of a block, and accesses of different sizes
    // are not atomic to each other.
    let are_atomic = first.kind.is_atomic()
        && second.kind.is_atomic()
        && (before.source.log == now.source.log || !of_block(grid, first) && !of_block(grid, second))
        && element(grid, first) == element(grid, second);
    !are_atomic
}

/// The bytes of one element that an access reads or writes.
fn element(grid: &Grid, record: &Record) -> u32 {
    match &grid.code.instructions[record.at as usize].operation {
        Operation::Load(load) => load.size,
        Operation::Store(store) => store.size,
        Operation::Atomic(atomic) => atomic.size,
        _ => record.bytes.into(),
    }
}

/// Whether the access is the plain first read of a compare-and-swap loop.
fn starts_swap(grid: &Grid, record: &Record) -> bool {
    matches!(&grid.code.instructions[record.at as usize].operation, Operation::Load(load) if load.starts_swap)
}

/// Whether the second of two uses is a plain access that comes after an atomic operation of its own block on
/// the same place, and the first is atomic: `if (atomicAdd(c, 1) == last) *c = 0`. The operations on a place
/// follow one another, each sees what the one before it wrote, and a thread's accesses of one place keep
/// their order, also without fences. (What the operation returned is taken to say that the first use precedes
/// it.)
fn ends_chain(
    grid: &Grid,
    logs: &[Log],
    orders: &mut Orders,
    atomics: &[Use],
    [first, second]: [Use; 2],
) -> bool {
    let links = |used: Use| {
        let record = entry(logs, used);
        record.kind.is_atomic() && !of_block(grid, record)
    };
    let is_operation = |used: Use| {
        matches!(grid.code.instructions[entry(logs, used).at as usize].operation, Operation::Atomic(_))
    };
    !entry(logs, second).kind.is_atomic()
        && links(first)
        && atomics.iter().rev().any(|&own| {
            own.source.log == second.source.log
                && is_operation(own)
                && links(own)
                && orders.unordered(logs, own, second).is_none()
        })
}

/// Whether the access is atomic only within its block.
fn of_block(grid: &Grid, record: &Record) -> bool {
    let (order, scope) = match &grid.code.instructions[record.at as usize].operation {
        Operation::Load(load) => (load.order, load.scope),
        Operation::Store(store) => (store.order, store.scope),
        Operation::Atomic(atomic) => (atomic.order, atomic.scope),
        _ => return false,
    };
    scope == Scope::Block && order != Order::Volatile
}

/// Whether the access is a load of memory declared constant (`ld.global.nc`).
fn is_constant(grid: &Grid, record: &Record) -> bool {
    matches!(&grid.code.instructions[record.at as usize].operation, Operation::Load(load) if load.constant)
}

fn entry<'a>(logs: &'a [Log<'_>], used: Use) -> &'a Record {
    &logs[used.source.log as usize].records[used.source.record as usize]
}

/// A point in the run of a block: a thread, at a time of its warp's clock.
#[derive(Clone, Copy, Debug)]
struct Point {
    log: u32,
    warp: u8,
    lane: u8,
    time: u32,
    known: u32,
    /// Whether this is an acquire, which comes after its thread's other accesses of the same time.
    acquires: bool,
    /// The record of the access, if the point is one. Records have the order in which the block ran.
    record: Option<u32>,
}

impl Point {
    fn of_use(logs: &[Log], used: Use, lane: usize) -> Point {
        let &Record { warp, time, known, .. } = entry(logs, used);
        let Source { log, record } = used.source;
        Point { log, warp, lane: lane as u8, time, known, acquires: false, record: Some(record) }
    }

    fn of_event(log: u32, event: &Event) -> Point {
        let &Event { warp, lane, time, known, release, .. } = event;
        Point { log, warp, lane, time, known, acquires: !release, record: None }
    }

    /// Whether it precedes another point of its block, in program order or by barriers.
    fn before(&self, logs: &[Log], other: &Point) -> bool {
        let least = self.time + u32::from(self.acquires);
        self.log == other.log
            && self.record.zip(other.record).is_none_or(|(own, other)| own <= other)
            && (self.warp == other.warp && self.lane == other.lane && least <= other.time
                || logs[other.log as usize].known[other.known as usize][self.warp as usize] > self.time
                || self.warp == other.warp && self.meets(&logs[self.log as usize], other))
    }

    /// Whether partial warp barriers lead from this lane to the other point's lane.
    fn meets(&self, log: &Log, other: &Point) -> bool {
        let Some(parts) = log.parts.get(&self.warp) else { return false };
        let after = parts.partition_point(|part| part.0 <= self.time);
        let mut reached = 1u32 << self.lane;
        for (_, lanes) in parts[after..].iter().take_while(|part| part.0 <= other.time) {
            if lanes & reached != 0 {
                reached |= lanes;
            }
            if reached >> other.lane & 1 != 0 {
                return true;
            }
        }
        false
    }
}

/// A release or an acquire of an address.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    point: Point,
    release: bool,
    address: u64,
    /// An acquire sees the releases of no greater order.
    order: u64,
    /// The time of the access itself.
    own: u32,
}

impl Link {
    fn of_event(log: u32, event: &Event) -> Link {
        let &Event { release, address, order, own, .. } = event;
        Link { point: Point::of_event(log, event), release, address, order, own }
    }

    /// The links of a record as if it were an acquire if it reads, and a release if it writes.
    fn of_record(grid: &Grid, logs: &[Log], source: Source) -> Vec<Link> {
        let log = &logs[source.log as usize];
        let record = &log.records[source.record as usize];
        if !record.kind.is_atomic() || of_block(grid, record) {
            return Vec::new();
        }
        let is_operation =
            matches!(grid.code.instructions[record.at as usize].operation, Operation::Atomic(_));
        let [reads, writes] = [is_operation || !record.kind.writes(), record.kind.writes()];
        let of = |(lane, release): (usize, bool)| {
            let used = Use { place: 0, stamp: record.stamp, source, lanes: 1 << lane };
            let point = Point::of_use(logs, used, lane);
            let order = record.stamp + u64::from(release);
            Link { point, release, address: record.address(log, lane), order, own: record.time }
        };
        let ways = [(reads, false), (writes, true)].into_iter().filter(|way| way.0);
        ways.flat_map(|(_, release)| lanes(record.mask).map(move |lane| (lane, release))).map(of).collect()
    }
}

/// What is ordered, and what would be if relaxed accesses were releases and acquires.
struct Ordered {
    strict: Orders,
    relaxed: Option<Orders>,
}

impl Ordered {
    /// Whether relaxed accesses lead from a read to a write. If what they pass on depends on the value read,
    /// the write cannot come before the read.
    fn depends(&mut self, grid: &Grid, logs: &[Log], read: Use, write: Use) -> bool {
        let relaxed = self.relaxed.get_or_insert_with(|| Orders::of_relaxed(grid, logs));
        relaxed.unordered(logs, read, write).is_none()
    }
}

/// What the releases and acquires of blocks order.
struct Orders {
    /// The links of each log, in the order in which the block ran.
    links: Vec<Vec<Link>>,
    /// Releases by address, each as (order, log, link), sorted.
    releases: HashMap<u64, Vec<(u64, u32, u32)>>,
    /// The last [`Orders::horizon`], with the log and acquires that it belongs to.
    last: (u32, Vec<u32>, HashMap<u64, u64>),
}

impl Orders {
    /// The order by releases and acquires.
    fn new(logs: &[Log]) -> Orders {
        let of = |(log, content): (usize, &Log)| {
            content.events.iter().map(|event| Link::of_event(log as u32, event)).collect()
        };
        Orders::of_links(logs.iter().enumerate().map(of).collect())
    }

    /// The order if relaxed accesses were releases and acquires.
    fn of_relaxed(grid: &Grid, logs: &[Log]) -> Orders {
        let of = |(log, content): (usize, &Log)| {
            let source = |record| Source { log: log as u32, record: record as u32 };
            (0..content.records.len())
                .flat_map(|record| Link::of_record(grid, logs, source(record)))
                .collect()
        };
        Orders::of_links(logs.iter().enumerate().map(of).collect())
    }

    fn of_links(links: Vec<Vec<Link>>) -> Orders {
        let mut releases: HashMap<u64, Vec<(u64, u32, u32)>> = HashMap::new();
        for (log, content) in links.iter().enumerate() {
            for (index, link) in content.iter().enumerate().filter(|(_, link)| link.release) {
                releases.entry(link.address).or_default().push((link.order, log as u32, index as u32));
            }
        }
        releases.values_mut().for_each(|releases| releases.sort_unstable());
        Orders { links, releases, last: Default::default() }
    }

    /// Finds a lane of each use such that the first does not happen before the second.
    fn unordered(&mut self, logs: &[Log], first: Use, second: Use) -> Option<[usize; 2]> {
        if first.source == second.source {
            return None;
        }
        let pairs = lanes(first.lanes).flat_map(|one| lanes(second.lanes).map(move |other| [one, other]));
        pairs.into_iter().find(|&[one, other]| {
            let (mut from, to) = (Point::of_use(logs, first, one), Point::of_use(logs, second, other));
            from.time = logs[first.source.log as usize].end_of(first.source.record as usize);
            let atomic = entry(logs, first).kind == Kind::AtomicWrite;
            let own = atomic.then(|| entry(logs, first).address(&logs[from.log as usize], one));
            !from.before(logs, &to) && !self.reaches(logs, (from, own), to)
        })
    }

    /// Whether a chain of releases and acquires leads from `from` to `to`. `own` is the address of an atomic
    /// write at `from`, which may itself be part of the release.
    fn reaches(&mut self, logs: &[Log], (from, own): (Point, Option<u64>), to: Point) -> bool {
        let acquired: Vec<u32> = self.acquires_before(logs, to).collect();
        if (to.log, &acquired) != (self.last.0, &self.last.1) {
            let horizon = self.horizon(logs, to.log, &acquired);
            self.last = (to.log, acquired, horizon);
        }
        let horizon = &self.last.2;
        self.links[from.log as usize].iter().any(|link| {
            link.release
                && horizon.get(&link.address).is_some_and(|&order| link.order <= order)
                && (from.before(logs, &link.point)
                    || own == Some(link.address)
                        && (from.warp, from.lane) == (link.point.warp, link.point.lane)
                        && from.time <= link.own)
        })
    }

    /// For each address, the last order whose releases these acquires see, directly or through other
    /// acquires.
    fn horizon(&self, logs: &[Log], log: u32, acquired: &[u32]) -> HashMap<u64, u64> {
        let mut horizon = HashMap::new();
        let mut open: Vec<(u32, u32)> = acquired.iter().map(|&link| (log, link)).collect();
        while let Some((log, link)) = open.pop() {
            let Link { address, order, .. } = self.links[log as usize][link as usize];
            let seen = horizon.entry(address).or_insert(0);
            let before = std::mem::replace(seen, order.max(*seen));
            let Some(releases) = self.releases.get(&address) else { continue };
            let after = releases.partition_point(|release| release.0 <= before);
            for &(_, log, release) in releases[after..].iter().take_while(|release| release.0 <= order) {
                let release = self.links[log as usize][release as usize].point;
                open.extend(self.acquires_before(logs, release).map(|acquire| (log, acquire)));
            }
        }
        horizon
    }

    /// The acquires of a point's block that precede it.
    fn acquires_before(&self, logs: &[Log], point: Point) -> impl Iterator<Item = u32> {
        let links = self.links[point.log as usize].iter().enumerate();
        let before = move |link: &Link| !link.release && link.point.before(logs, &point);
        links.filter(move |(_, link)| before(link)).map(|(index, _)| index as u32)
    }
}

fn fault(grid: &Grid, logs: &[Log], conflict: Conflict, [first, second]: Pair) -> Box<Fault> {
    let describe = |(used, lane): (Use, usize)| {
        let log = &logs[used.source.log as usize];
        let record = entry(logs, used);
        let action = match record.kind {
            Kind::Read => Action::Read,
            Kind::Write => Action::Write,
            Kind::AtomicRead | Kind::AtomicWrite => Action::Atomic,
        };
        let (name, scope) = grid.name_of_access(record.at);
        let address = record.address(log, lane);
        Access {
            action,
            name,
            scope,
            memory: Where::Global,
            address,
            allocation: grid.allocation_at(Where::Global, address),
            bytes: record.bytes.into(),
            block: grid.block_index(log.block),
            thread: grid.thread(record.warp.into(), lane as u32),
            place: grid.place(record.at),
        }
    };
    let (first, second) = (Box::new(describe(first)), Box::new(describe(second)));
    Box::new(Fault {
        kernel: grid.kernel.name.clone(),
        place: Some(second.place.clone()),
        block: second.block,
        threads: vec![second.thread],
        seed: grid.settings.seed,
        kind: conflict.kind(first, second),
    })
}
