//! The shadow of shared memory: the last accesses of each place.

use std::ops::{Range, RangeInclusive};

use crate::exec::access::Kind;

use super::clocks::{Clocks, ENGINE, IN_FLIGHT, Moment};

/// The last accesses of a place.
#[derive(Clone, Copy, Debug)]
struct Cell {
    write: Moment,
    atomic: Moment,
    /// Two readers since the last write, of different warps if possible, else of different lanes.
    reads: [Moment; 2],
}

const EMPTY: Cell = Cell { write: Moment::NONE, atomic: Moment::NONE, reads: [Moment::NONE; 2] };

/// The shadow of a block's shared memory.
#[derive(Debug)]
pub struct Shadow {
    cells: Vec<Cell>,
    /// Log2 of a cell's bytes, which are those of the kernel's smallest access.
    shift: u32,
}

impl Shadow {
    pub fn new(bytes: usize, granule: u32) -> Shadow {
        let shift = granule.trailing_zeros();
        Shadow { cells: vec![EMPTY; (bytes >> shift) + 1], shift }
    }

    /// Resets the shadow for a new block.
    pub fn clear(&mut self) {
        self.cells.fill(EMPTY);
    }

    /// Marks the last write of these bytes as in flight: nothing is ordered after it before [`Self::settle`].
    pub fn suspend(&mut self, address: usize, bytes: usize) {
        for cell in self.cells(address, bytes) {
            cell.write.time = u32::MAX;
            cell.write.lane |= IN_FLIGHT;
        }
    }

    /// Ends a write in flight of these bytes at this moment, the write of the same serial number.
    pub fn settle(&mut self, moment: Moment, address: usize, bytes: usize) {
        for cell in self.cells(address, bytes).iter_mut().filter(|cell| cell.flies(moment.serial)) {
            cell.write = moment;
        }
    }

    /// Forgets all accesses of these bytes but this one.
    pub fn replace(&mut self, moment: Moment, address: usize, bytes: usize) {
        self.cells(address, bytes).fill(Cell { write: moment, ..EMPTY });
    }

    /// Whether the write of this serial number is in flight.
    pub fn flies(&self, address: usize, serial: u32) -> bool {
        self.cells[address >> self.shift].flies(serial)
    }

    /// Ends the writes in flight of these bytes that have these serial numbers: an mbarrier tells all who
    /// wait at it.
    pub fn land(&mut self, time: u32, (address, bytes): (usize, usize), serials: &RangeInclusive<u32>) {
        for cell in self.cells(address, bytes) {
            if cell.write.time == u32::MAX && serials.contains(&cell.write.serial) {
                let Moment { warp, lane, .. } = cell.write;
                let lane = lane & !IN_FLIGHT;
                cell.write = Moment { time, serial: warp.into(), warp: ENGINE as u8, lane, ..cell.write };
            }
        }
    }

    /// A write of these bytes after the access of this serial number.
    pub fn written_since(&self, serial: u32, address: usize, bytes: usize) -> Option<Moment> {
        let cells = &self.cells[address >> self.shift..=(address + bytes - 1) >> self.shift];
        let writes = cells.iter().flat_map(|cell| [cell.write, cell.atomic]);
        writes.into_iter().find(|write| {
            write.is_some() && write.kind.writes() && write.warp != ENGINE as u8 && write.serial > serial
        })
    }

    /// The last plain writes of these bytes.
    pub fn writes(&self, address: usize, bytes: usize) -> impl Iterator<Item = Moment> {
        let cells = &self.cells[address >> self.shift..=(address + bytes - 1) >> self.shift];
        cells.iter().map(|cell| cell.write).filter(Moment::is_some)
    }

    fn cells(&mut self, address: usize, bytes: usize) -> &mut [Cell] {
        &mut self.cells[address >> self.shift..=(address + bytes - 1) >> self.shift]
    }

    /// Records an access. Returns an earlier access that it races with, if any.
    #[inline(always)]
    pub fn access(&mut self, clocks: &Clocks, now: Moment, address: usize, bytes: usize) -> Option<Moment> {
        let (first, last) = (address >> self.shift, (address + bytes - 1) >> self.shift);
        self.cells[first..=last].iter_mut().find_map(|cell| cell.access(clocks, now))
    }

    /// All earlier accesses that an access races with, each with the bytes that both used.
    #[cold]
    pub fn races(
        &self,
        clocks: &Clocks,
        now: Moment,
        address: usize,
        bytes: usize,
    ) -> Vec<(Range<usize>, Moment)> {
        let (first, last) = (address >> self.shift, (address + bytes - 1) >> self.shift);
        let races = (first..=last).flat_map(|index| {
            let range = index << self.shift..(index + 1) << self.shift;
            self.cells[index].races(clocks, now).map(move |before| (range.clone(), before))
        });
        races.collect()
    }

    /// Whether an atomic access came after the last plain write of this byte.
    pub fn has_atomic(&self, address: usize) -> bool {
        self.cells[address >> self.shift].atomic.is_some()
    }

    /// Records an access whose races are no faults.
    #[cold]
    pub fn record(&mut self, clocks: &Clocks, now: Moment, address: usize, bytes: usize) {
        for cell in self.cells(address, bytes) {
            // Keep a write that this one races with in place of a reader: later accesses may race with both.
            let other = cell.races(clocks, now).find(|before| before.kind == Kind::Write);
            cell.record(clocks, now);
            if let Some(other) = other.filter(|_| now.kind == Kind::Write) {
                cell.reads[1] = other;
            }
        }
    }
}

impl Cell {
    fn flies(&self, serial: u32) -> bool {
        self.write.time == u32::MAX && self.write.serial == serial
    }

    // Runs once per lane, so inlining pays in spite of the many callers.
    #[inline(always)]
    fn access(&mut self, clocks: &Clocks, now: Moment) -> Option<Moment> {
        for before in [&self.write, &self.atomic, &self.reads[0], &self.reads[1]] {
            if races(clocks, now, before) {
                return Some(*before);
            }
        }
        self.record(clocks, now);
        None
    }

    fn races(&self, clocks: &Clocks, now: Moment) -> impl Iterator<Item = Moment> {
        let earlier = [self.write, self.atomic, self.reads[0], self.reads[1]];
        earlier.into_iter().filter(move |before| races(clocks, now, before))
    }

    #[inline(always)]
    fn record(&mut self, clocks: &Clocks, now: Moment) {
        match now.kind {
            Kind::Write => *self = Cell { write: now, ..EMPTY },
            Kind::AtomicWrite => self.atomic = now,
            Kind::Read | Kind::AtomicRead => self.read(clocks, now),
        }
    }

    fn read(&mut self, clocks: &Clocks, now: Moment) {
        let [first, second] = self.reads;
        let same_thread = first.warp == now.warp && first.lane == now.lane;
        // Keep a reader of another warp: a warp barrier does not order it.
        let keeps = first.warp == now.warp
            && second.is_some()
            && second.warp != now.warp
            && !clocks.ordered(&second, now.warp as usize, now.lane);
        if first.is_some() && !same_thread && !keeps {
            self.reads[1] = first;
        }
        self.reads[0] = now;
    }
}

#[inline(always)]
fn races(clocks: &Clocks, now: Moment, before: &Moment) -> bool {
    before.is_some()
        && now.conflicts(before)
        && !(before.warp == now.warp && before.serial == now.serial)
        && !clocks.ordered(before, now.warp as usize, now.lane)
}
