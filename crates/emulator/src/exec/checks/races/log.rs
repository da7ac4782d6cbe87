//! A block's log of accesses to global memory.
//!
//! Races are searched for after the launch, so that blocks need not wait for each other while they run.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use crate::exec::{access::Kind, lanes::LANES};

use super::{
    clocks::{Clocks, Vector},
    search::{Link, Span},
};

/// The bytes that a launch's logs may still take, including what [`search::find`](super::search::find)
/// derives from them.
///
/// When they are spent, nothing more is logged. The accesses logged so far lack no ordering, because what
/// orders two accesses comes before the second.
#[derive(Debug)]
pub struct Room(AtomicU64);

impl Room {
    pub fn new(bytes: u64) -> Room {
        Room(AtomicU64::new(bytes))
    }

    pub fn is_spent(&self) -> bool {
        self.0.load(SeqCst) == 0
    }

    /// Takes `bytes`; the last item may exceed what is left. Returns `false` if nothing was left.
    fn take(&self, bytes: usize) -> bool {
        let less = |left: u64| (left > 0).then(|| left.saturating_sub(bytes as u64));
        self.0.fetch_update(SeqCst, SeqCst, less).is_ok()
    }
}

/// The access of one execution of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The launch's number of events and atomic writes before the access. It is not less than the stamp of any
    /// acquire before the access.
    pub stamp: u64,
    /// Lane 0's address and the distance from lane to lane, or the index of a list of addresses.
    pub base: u64,
    pub stride: i64,
    pub list: Option<u32>,
    pub mask: u32,
    pub at: u32,
    /// The warp's clock.
    pub time: u32,
    /// The index in `Log::known` of the warp's vector.
    pub known: u32,
    pub bytes: u8,
    pub warp: u8,
    pub kind: Kind,
    /// The lanes whose plain store changed the bytes.
    pub changed: u32,
}

/// A release or an acquire with a scope beyond its block.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub release: bool,
    pub address: u64,
    /// Its position in the order of all events.
    pub order: u64,
    pub time: u32,
    /// The time of the access itself. A release by a fence and a later write is ordered from the fence on
    /// (`time`), but also covers that write.
    pub own: u32,
    pub known: u32,
    pub warp: u8,
    pub lane: u8,
}

/// A block's accesses and events.
#[derive(Debug)]
pub struct Log<'g> {
    room: &'g Room,
    pub block: u64,
    pub records: Vec<Record>,
    pub lists: Vec<[u64; LANES]>,
    pub events: Vec<Event>,
    pub known: Vec<Vector>,
    /// Each warp's partial barriers: the time after the barrier, and its lanes.
    pub parts: HashMap<u8, Vec<(u32, u32)>>,
    /// The times before which asynchronous copies may still read, by record: that of the wait, or the
    /// greatest.
    ends: HashMap<usize, u32>,
    /// Each warp's last instruction, to detect repetitions.
    last: Vec<Last>,
    /// The record of the last access.
    latest: Option<usize>,
    /// The last fence of each warp: the warp, its time, and the index of its vector.
    fenced: Vec<(u8, u32, u32)>,
    /// Relaxed reads since each warp's last fence: warp, lane, address, order.
    seen: Vec<(u8, u8, u64, u64)>,
}

/// A warp's last instruction with its records and events.
///
/// An instruction that repeats with nothing in between, such as a spin loop, is logged once: the first
/// release and the last acquire and access stand for all.
#[derive(Clone, Debug)]
struct Last {
    warp: usize,
    at: u32,
    mask: u32,
    addresses: [u64; LANES],
    records: Vec<usize>,
    events: Vec<usize>,
    /// Records and events seen in the current repetition.
    repeated: Option<(usize, usize)>,
}

/// An access of some lanes.
#[derive(Clone, Copy, Debug)]
pub struct Accessed<'a> {
    pub addresses: &'a [u64; LANES],
    pub mask: u32,
    pub bytes: u32,
    pub kind: Kind,
    pub at: u32,
    pub warp: usize,
    /// The warp's clock.
    pub time: u32,
}

impl<'g> Log<'g> {
    pub fn new(block: u64, room: &'g Room) -> Self {
        Log {
            room,
            block,
            records: Vec::new(),
            lists: Vec::new(),
            events: Vec::new(),
            known: Vec::new(),
            parts: HashMap::new(),
            ends: HashMap::new(),
            last: Vec::new(),
            latest: None,
            fenced: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Takes the log, and leaves one that is empty.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Log::new(0, self.room))
    }

    /// Drops what is not needed after the block has ended. Returns `None` if the block accessed nothing.
    pub fn finish(mut self) -> Option<Self> {
        self.records.shrink_to_fit();
        self.lists.shrink_to_fit();
        self.events.shrink_to_fit();
        self.known.shrink_to_fit();
        (self.last, self.fenced, self.seen) = (Vec::new(), Vec::new(), Vec::new());
        (!self.records.is_empty()).then_some(self)
    }

    /// The index of the warp's current vector. Adds it to `known` if needed.
    fn know(&mut self, clocks: &Clocks, warp: usize) -> u32 {
        let known = &clocks.known[warp];
        // Warps that passed the same barrier have the same vector.
        let recent = self.known.iter().rev().take(2).position(|other| other == known);
        let place = match recent {
            Some(back) => self.known.len() - 1 - back,
            None => {
                self.room.take(size_of::<Vector>());
                self.known.push(*known);
                self.known.len() - 1
            }
        };
        place as u32
    }

    /// Marks the beginning of an instruction.
    pub fn begin(&mut self, at: u32, warp: usize, addresses: &[u64; LANES], mask: u32) {
        self.latest = None;
        let last = self.last.iter().position(|last| last.warp == warp);
        let new = || Last {
            warp,
            at,
            mask,
            addresses: *addresses,
            records: Vec::new(),
            events: Vec::new(),
            repeated: None,
        };
        match last.map(|place| &mut self.last[place]) {
            Some(last) if last.at == at && last.mask == mask && last.addresses == *addresses => {
                last.repeated = Some((0, 0));
            }
            Some(last) => {
                (last.at, last.mask, last.addresses, last.repeated) = (at, mask, *addresses, None);
                last.records.clear();
                last.events.clear();
            }
            None => self.last.push(new()),
        }
    }

    /// Ends a repetition: the warp ran something else that orders accesses.
    pub fn interrupt(&mut self, warp: usize) {
        self.last.retain(|last| last.warp != warp);
    }

    /// Logs a warp barrier of some lanes. Call it after the clocks' own.
    pub fn warp_barrier(&mut self, clocks: &Clocks, warp: usize, lanes: u32) {
        if self.room.take(size_of::<(u32, u32)>()) {
            self.parts.entry(warp as u8).or_default().push((clocks.time[warp], lanes));
        }
    }

    /// Logs an access.
    pub fn access(&mut self, clocks: &Clocks, stamp: u64, accessed: &Accessed) {
        let Accessed { addresses, mask, bytes, kind, at, warp, time } = *accessed;
        self.latest = None;
        if self.room.is_spent() {
            return;
        }
        if let Some(last) = self.last.iter_mut().find(|last| last.warp == warp)
            && let Some((done, _)) = &mut last.repeated
            && let Some(&place) = last.records.get(*done)
        {
            *done += 1;
            self.latest = Some(place);
            self.records[place].stamp = stamp;
            self.records[place].time = time;
            self.records[place].known = self.know(clocks, warp);
            return;
        }
        let first = mask.trailing_zeros() as usize;
        let rest = mask & mask.wrapping_sub(1);
        let second = rest.trailing_zeros() as usize;
        let stride = if rest == 0 {
            0
        } else {
            (addresses[second] as i64).wrapping_sub(addresses[first] as i64) / (second - first) as i64
        };
        let base = addresses[first].wrapping_sub((stride as u64).wrapping_mul(first as u64));
        let mut regular = true;
        for (lane, &address) in addresses.iter().enumerate() {
            let expected = base.wrapping_add((stride as u64).wrapping_mul(lane as u64));
            regular &= mask >> lane & 1 == 0 || address == expected;
        }
        let list = (!regular).then_some(self.lists.len() as u32);
        let spans = if regular && stride == i64::from(bytes) { 1 } else { mask.count_ones() as usize };
        let size = size_of::<Record>()
            + spans * size_of::<Span>()
            + if regular { 0 } else { size_of_val(addresses) }
            + if self.records.is_empty() { size_of::<Log>() } else { 0 };
        if !self.room.take(size) {
            return;
        }
        if !regular {
            self.lists.push(*addresses);
        }
        let known = self.know(clocks, warp);
        let record = Record {
            stamp,
            base,
            stride,
            list,
            mask,
            at,
            time,
            known,
            bytes: bytes as u8,
            warp: warp as u8,
            kind,
            changed: 0,
        };
        self.latest = Some(self.records.len());
        self.records.push(record);
        if let Some(last) = self.last.iter_mut().find(|last| last.warp == warp) {
            last.records.push(self.records.len() - 1);
        }
    }

    /// Marks the reads of a warp's last instruction as unfinished. Returns their records.
    #[cold]
    pub fn suspend(&mut self, warp: usize) -> Vec<usize> {
        let last = self.last.iter().find(|last| last.warp == warp);
        let records = last.map_or_else(Vec::new, |last| last.records.clone());
        self.ends.extend(records.iter().map(|&record| (record, u32::MAX)));
        records
    }

    /// Ends reads before this time of their warp. The first end counts, if lanes wait at different times.
    pub fn settle(&mut self, records: &[usize], time: u32) {
        for record in records {
            self.ends.entry(*record).and_modify(|end| *end = time.min(*end));
        }
    }

    /// The time of the warp from which a record's access is over: that of the access, or of the wait for a
    /// copy.
    pub fn end_of(&self, record: usize) -> u32 {
        self.ends.get(&record).copied().unwrap_or(self.records[record].time)
    }

    /// Notes the lanes whose plain store, the last access, changes the bytes. If not all do, other stores may
    /// have stored the same values before: `stamp` tells which.
    pub fn changed(&mut self, lanes: u32, stamp: impl FnOnce() -> u64) {
        if let Some(place) = self.latest {
            let record = &mut self.records[place];
            record.changed |= lanes;
            if lanes != record.mask {
                record.stamp = stamp();
            }
        }
    }

    /// Notes that the last access, a relaxed read, has read what was there at this stamp.
    pub fn has_read(&mut self, stamp: u64) {
        if let Some(place) = self.latest {
            self.records[place].stamp = stamp;
        }
    }

    /// Logs a release or an acquire. Call it before the clocks' own.
    pub fn event(
        &mut self,
        clocks: &Clocks,
        release: bool,
        address: u64,
        order: u64,
        (warp, lane): (usize, u8),
    ) {
        if self.room.is_spent() {
            return;
        }
        let (known, time) = (self.know(clocks, warp), clocks.time[warp]);
        let event = Event { release, address, order, time, own: time, known, warp: warp as u8, lane };
        if let Some(last) = self.last.iter_mut().find(|last| last.warp == warp) {
            if let Some((_, done)) = &mut last.repeated
                && let Some(&place) = last.events.get(*done)
            {
                *done += 1;
                if !release {
                    self.events[place] = event;
                }
                return;
            }
            last.events.push(self.events.len());
        }
        self.add(event);
    }

    fn add(&mut self, event: Event) {
        if self.room.take(size_of::<Event>() + size_of::<Link>()) {
            self.events.push(event);
        }
    }

    /// Logs a relaxed write, which releases what the warp's last fence ordered.
    pub fn relaxed_write(&mut self, clocks: &Clocks, address: u64, order: u64, (warp, lane): (usize, u8)) {
        let repeats = self.last.iter().any(|last| last.warp == warp && last.repeated.is_some());
        if !repeats && let Some(&(_, time, known)) = self.fenced.iter().find(|fence| fence.0 as usize == warp)
        {
            let own = clocks.time[warp];
            self.add(Event { release: true, address, order, time, own, known, warp: warp as u8, lane });
        }
    }

    /// Notes a relaxed read, which the warp's next fence makes an acquire.
    pub fn relaxed_read(&mut self, address: u64, order: u64, (warp, lane): (usize, u8)) {
        let key = (warp as u8, lane, address);
        match self.seen.iter_mut().find(|seen| (seen.0, seen.1, seen.2) == key) {
            Some(seen) => seen.3 = order,
            None => self.seen.push((key.0, key.1, key.2, order)),
        }
    }

    /// Logs a fence.
    pub fn fence(&mut self, clocks: &Clocks, warp: usize) {
        let (known, time) = (self.know(clocks, warp), clocks.time[warp]);
        self.fenced.retain(|fence| fence.0 as usize != warp);
        self.fenced.push((warp as u8, time, known));
        self.acquire_seen(clocks, warp);
    }

    /// Logs the relaxed reads so far as acquires.
    pub fn acquire_seen(&mut self, clocks: &Clocks, warp: usize) {
        if self.seen.is_empty() {
            return;
        }
        let (known, time) = (self.know(clocks, warp), clocks.time[warp]);
        let (seen, left) = self.seen.drain(..).partition(|seen| seen.0 as usize == warp);
        self.seen = left;
        for (warp, lane, address, order) in Vec::from_iter::<Vec<_>>(seen) {
            self.add(Event { release: false, address, order, time, own: time, known, warp, lane });
        }
    }
}

impl Record {
    pub fn address(&self, log: &Log, lane: usize) -> u64 {
        match self.list {
            Some(list) => log.lists[list as usize][lane],
            None => self.base.wrapping_add((self.stride as u64).wrapping_mul(lane as u64)),
        }
    }
}
