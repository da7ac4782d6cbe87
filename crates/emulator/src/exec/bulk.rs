//! Bulk copies (`cp.async.bulk`): their bytes, groups and waits.
//!
//! The bytes are copied at once. The checks take a copy to shared memory as in flight until a thread has
//! waited at its mbarrier, and a copy to global memory as reading and writing until its thread has waited for
//! its group.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    fault::{Action, Fault, FaultKind, Memory as Where},
    program::bulk::{Bulk, Group, Reduction, Way},
};

use super::{
    access::{Request, addresses},
    block::State,
    bytes::update_global,
    clocks::{Kind, Moment},
    lanes::{LANES, lanes},
    mbarrier::Landing,
    warp::Warp,
};

/// Addresses and sizes of bulk copies are multiples of this.
const UNIT: u64 = 16;
/// The most bytes that are checked at once: a sector.
const PIECE: u64 = 32;

/// The bulk copies to global memory that a warp's threads have not waited for.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    copies: Vec<Outgoing>,
    /// Groups that each lane has committed.
    committed: [u32; LANES],
}

#[derive(Clone, Debug)]
struct Outgoing {
    lane: usize,
    group: u32,
    place: Place,
    kind: Kind,
    at: u32,
    /// The serial number of its last read. `None` if the thread has waited for the reads.
    serial: Option<u32>,
}

/// Where a copy reads and writes.
#[derive(Clone, Copy, Debug)]
struct Place {
    shared: u64,
    global: u64,
    bytes: u64,
}

impl Place {
    /// Parts whose addresses are multiples of their sizes.
    fn pieces(self) -> impl Iterator<Item = Place> {
        let Place { shared, global, bytes } = self;
        let mut done = 0;
        std::iter::from_fn(move || {
            let (shared, global, left) = (shared.wrapping_add(done), global.wrapping_add(done), bytes - done);
            let fits = |bytes: &u64| *bytes <= left && (shared | global) % bytes == 0;
            let bytes = [PIECE, UNIT].into_iter().find(fits)?;
            done += bytes;
            Some(Place { shared, global, bytes })
        })
    }

    /// The sectors of its global memory.
    fn sectors(self) -> u64 {
        if self.bytes == 0 {
            0
        } else {
            (self.global.saturating_add(self.bytes) - 1) / 32 - self.global / 32 + 1
        }
    }
}

impl Groups {
    pub fn clear(&mut self) {
        self.copies.clear();
        self.committed.fill(0);
    }

    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }
}

impl State<'_> {
    /// Runs a bulk copy by each lane.
    #[cold]
    pub fn bulk(&mut self, warp: &mut Warp, bulk: &Bulk, active: u32, at: u32) -> Result<(), Box<Fault>> {
        let (to, from) = (addresses(&warp.registers, &bulk.to), addresses(&warp.registers, &bulk.from));
        let sizes = warp.registers.wide(bulk.size);
        let mbarriers = match &bulk.way {
            Way::ToShared(address) => self.words(warp, address, (active, 8), at)?,
            Way::ToGlobal(_) => [0; LANES],
        };
        for lane in lanes(active) {
            let (to, from, bytes) = (to[lane], from[lane], sizes[lane]);
            if (to | from | bytes) % UNIT != 0 {
                let text = format!(
                    "`cp.async.bulk` of {bytes} bytes from address {from:#x} to {to:#x}; all must be \
                     multiples of {UNIT}"
                );
                return Err(self.site.fault(warp.index, at, 1 << lane, FaultKind::CopyOperand(text)));
            }
            match &bulk.way {
                Way::ToShared(_) => {
                    let place = Place { shared: to, global: from, bytes };
                    self.copy_in_bulk(warp, lane, (place, mbarriers[lane]), at)?;
                }
                Way::ToGlobal(reduction) => {
                    let place = Place { shared: from, global: to, bytes };
                    self.copy_out_bulk(warp, lane, (place, reduction.as_ref()), at)?;
                }
            }
        }
        Ok(())
    }

    fn copy_in_bulk(
        &mut self,
        warp: &mut Warp,
        lane: usize,
        (place, mbarrier): (Place, u64),
        at: u32,
    ) -> Result<(), Box<Fault>> {
        self.counters.global_load_requests += 1;
        self.counters.global_load_sectors += place.sectors();
        self.counters.shared_store_requests += 1;
        let first = self.checks.as_ref().map_or(0, |checks| checks.serial) + 1;
        for piece in place.pieces() {
            let Place { shared, global, bytes } = piece;
            self.touch_global(warp, lane, piece, (Kind::Read, at))?;
            self.touch_shared(warp, lane, piece, (Kind::Write, at))?;
            for offset in (0..bytes).step_by(8) {
                // SAFETY: `touch_global` found the bytes aligned and inside an allocation that the launch
                // holds.
                let word = unsafe { AtomicU64::from_ptr((global + offset) as *mut u64) };
                let word = word.load(Ordering::Acquire).to_le_bytes();
                self.site.shared[(shared + offset) as usize..][..8].copy_from_slice(&word);
            }
            let Some(source) =
                self.site.allocation(global, bytes).map(|place| &self.site.grid.allocations[place])
            else {
                continue;
            };
            let Some(checks) = &mut self.checks else { continue };
            if !source.is_written(global, bytes) {
                // The values are judged where they are used.
                for byte in (0..bytes).filter(|byte| !source.is_written(global + byte, 1)) {
                    checks.shadow.mark_unwritten((shared + byte) as usize, 1);
                }
            }
            checks.shadow.suspend(shared as usize, bytes as usize);
        }
        let last = self.checks.as_ref().map_or(0, |checks| checks.serial);
        let copy = Landing { to: place.shared as usize, bytes: place.bytes as usize, serials: first..=last };
        self.complete((warp.index, lane), mbarrier, copy, at)
    }

    fn copy_out_bulk(
        &mut self,
        warp: &mut Warp,
        lane: usize,
        (place, reduction): (Place, Option<&Reduction>),
        at: u32,
    ) -> Result<(), Box<Fault>> {
        match reduction {
            Some(_) => self.counters.global_atomic_requests += 1,
            None => {
                self.counters.global_store_requests += 1;
                self.counters.global_store_sectors += place.sectors();
            }
        }
        self.counters.shared_load_requests += 1;
        let kind = if reduction.is_some() { Kind::AtomicWrite } else { Kind::Write };
        for piece in place.pieces() {
            let Place { shared, global, bytes } = piece;
            self.touch_shared(warp, lane, piece, (Kind::Read, at))?;
            self.check_proxy((warp.index, lane), piece, at)?;
            self.touch_global(warp, lane, piece, (kind, at))?;
            let size = reduction.map_or(8, |reduction| reduction.size);
            for offset in (0..bytes).step_by(size as usize) {
                let mut word = [0; 8];
                let from = (shared + offset) as usize;
                word[..size as usize].copy_from_slice(&self.site.shared[from..][..size as usize]);
                let value = u64::from_le_bytes(word);
                let update = |old| reduction.map_or(value, |reduction| (reduction.update)(old, value, value));
                // SAFETY: `touch_global` found the bytes aligned and inside an allocation that the launch
                // holds.
                unsafe { update_global(global + offset, size, update) };
            }
            let target = self.site.allocation(global, bytes);
            if let (Some(target), Some(checks)) = (target, &self.checks) {
                let target = &self.site.grid.allocations[target];
                let is_written = |byte: &u64| checks.shadow.is_written((shared + byte) as usize, 1);
                for byte in (0..bytes).filter(is_written) {
                    target.mark_written(global + byte, 1);
                }
            }
        }
        if let Some(checks) = &self.checks {
            let (group, serial) = (warp.bulk.committed[lane], Some(checks.serial));
            warp.bulk.copies.push(Outgoing { lane, group, place, kind, at, serial });
        }
        Ok(())
    }

    /// Checks an access to a piece of global memory. Values that nothing wrote are no fault.
    fn touch_global(
        &mut self,
        warp: &Warp,
        lane: usize,
        piece: Place,
        (kind, at): (Kind, u32),
    ) -> Result<(), Box<Fault>> {
        let addresses = [piece.global; LANES];
        let request = self.weak_read(warp, (&addresses, 1 << lane), (8, piece.bytes as u32 / 8), at);
        let request = Request { kind, reads: false, ..request };
        self.begin(&request);
        self.check_global(&request).map(drop)
    }

    /// Checks an access to a piece of shared memory. Values that nothing wrote are no fault.
    fn touch_shared(
        &mut self,
        warp: &Warp,
        lane: usize,
        piece: Place,
        (kind, at): (Kind, u32),
    ) -> Result<(), Box<Fault>> {
        let addresses = [piece.shared; LANES];
        let request = self.weak_read(warp, (&addresses, 1 << lane), (8, piece.bytes as u32 / 8), at);
        self.check_shared(&Request { kind, reads: false, ..request }, &[]).map(drop)
    }

    /// Checks that a `fence.proxy.async` lies between the stores to these bytes and a bulk copy of them.
    fn check_proxy(&self, (warp, lane): (u32, usize), piece: Place, at: u32) -> Result<(), Box<Fault>> {
        let Some(checks) = &self.checks else { return Ok(()) };
        let unfenced =
            |write: &Moment| !write.is_in_flight() && checks.proxy[write.warp as usize] <= write.time;
        let mut writes = checks.shadow.writes(piece.shared as usize, piece.bytes as usize);
        let Some(write) = writes.find(unfenced) else { return Ok(()) };
        let place = (piece.shared, piece.bytes as u32);
        let first = self.site.describe(Action::Write, Where::Shared, place, write.thread());
        let second = self.site.describe(Action::Read, Where::Shared, place, (warp, lane as u32, at));
        Err(self.site.fault(warp, at, 1 << lane, FaultKind::Proxy { first, second }))
    }

    /// Runs what orders bulk copies.
    #[cold]
    pub fn group(&mut self, warp: &mut Warp, group: Group, active: u32, at: u32) -> Result<(), Box<Fault>> {
        match group {
            Group::Commit => {
                for lane in lanes(active) {
                    warp.bulk.committed[lane] = warp.bulk.committed[lane].saturating_add(1);
                }
                Ok(())
            }
            Group::Wait { groups, reads } => {
                let committed = warp.bulk.committed;
                let is_done = |copy: &Outgoing| {
                    active >> copy.lane & 1 != 0 && copy.group.saturating_add(groups) < committed[copy.lane]
                };
                self.wait_for_bulk(warp, is_done, (reads, at))
            }
            Group::Fence => {
                if let Some(checks) = &mut self.checks {
                    let vector = checks.clocks.contribution(warp.index as usize);
                    checks.log.interrupt(warp.index as usize);
                    super::clocks::join(&mut checks.proxy, &vector);
                }
                Ok(())
            }
        }
    }

    /// Ends the copies to global memory of lanes that exit.
    #[cold]
    pub fn exit_with_bulk(&mut self, warp: &mut Warp, active: u32, at: u32) -> Result<(), Box<Fault>> {
        self.wait_for_bulk(warp, |copy| active >> copy.lane & 1 != 0, (false, at))
    }

    /// Waits for the copies to global memory that are `done`, or only for their reads.
    fn wait_for_bulk(
        &mut self,
        warp: &mut Warp,
        done: impl Fn(&Outgoing) -> bool,
        (reads, at): (bool, u32),
    ) -> Result<(), Box<Fault>> {
        let mut copies = std::mem::take(&mut warp.bulk.copies);
        for copy in copies.iter_mut().filter(|copy| done(copy)) {
            if let Some(serial) = copy.serial.take() {
                self.check_source(warp, copy, (serial, at))?;
            }
            if !reads {
                // The copy has written until now.
                for piece in copy.place.pieces() {
                    self.touch_global(warp, copy.lane, piece, (copy.kind, copy.at))?;
                }
            }
        }
        copies.retain(|copy| reads || !done(copy));
        warp.bulk.copies = copies;
        Ok(())
    }

    /// Checks that nothing was written to the bytes that a copy has read until now.
    fn check_source(
        &mut self,
        warp: &Warp,
        copy: &Outgoing,
        (serial, at): (u32, u32),
    ) -> Result<(), Box<Fault>> {
        let Place { shared, bytes, .. } = copy.place;
        let Some(checks) = &self.checks else { return Ok(()) };
        if bytes == 0 {
            return Ok(());
        }
        let write = checks.shadow.written_since(serial, shared as usize, bytes as usize);
        let Some(write) = write else {
            for piece in copy.place.pieces() {
                self.touch_shared(warp, copy.lane, piece, (Kind::Read, copy.at))?;
            }
            return Ok(());
        };
        let place = (shared, bytes as u32);
        let who = (warp.index, copy.lane as u32, copy.at);
        let first = self.site.describe(Action::Read, Where::Shared, place, who);
        let second = self.site.describe(Action::Write, Where::Shared, place, write.thread());
        Err(self.site.fault(warp.index, at, 1 << copy.lane, FaultKind::Unfinished { first, second }))
    }
}
