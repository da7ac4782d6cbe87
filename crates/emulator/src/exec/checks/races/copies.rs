//! Asynchronous copies: groups and waits. (PTX ISA, "Asynchronous copy".)
//!
//! The bytes are copied at once. The checks take a copy to shared memory as in flight until it has been
//! waited for: by its thread, or at an mbarrier. They take a bulk copy to global memory as reading and
//! writing until its thread has waited for its group.

use crate::{
    exec::{
        access::{Kind, Request},
        bulk::{Place, Transfer},
        hooks::Bulk,
        lanes::{LANES, collect, lanes},
        site::Site,
        warp::Warp,
    },
    fault::{Action, Fault, FaultKind, Memory as Where},
    program::bulk::Group,
};

use super::{
    Races,
    clocks::{self, ENGINE, Moment},
};

/// The copies of a warp that its threads have not waited for.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    pub copies: Vec<InFlight>,
    /// Groups of copies that each lane has committed.
    committed: [u32; LANES],
    /// Bulk copies to global memory.
    bulk: Vec<Outgoing>,
    committed_bulk: [u32; LANES],
}

/// An asynchronous copy by some lanes.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// The lanes that have not waited for it.
    pub lanes: u32,
    /// The shared address that each lane writes `bytes` to.
    pub to: [u64; LANES],
    pub bytes: u32,
    /// The copy's group, by lane.
    pub group: [u32; LANES],
    /// The instruction, and the serial number of its execution.
    pub at: u32,
    pub serial: u32,
    /// The records of what it reads, in the block's log.
    pub records: Vec<usize>,
}

/// A bulk copy to global memory.
#[derive(Clone, Debug)]
struct Outgoing {
    transfer: Transfer,
    group: u32,
    /// The serial number of its last read. `None` if the thread has waited for the reads.
    serial: Option<u32>,
}

impl Copies {
    pub fn clear(&mut self) {
        self.copies.clear();
        self.committed.fill(0);
        self.bulk.clear();
        self.committed_bulk.fill(0);
    }
}

impl Races<'_> {
    /// `cp.async`: lanes have copied `bytes` to these addresses.
    #[cold]
    pub(super) fn copy(&mut self, warp: &Warp, (active, to, bytes): (u32, &[u64; LANES], u32), at: u32) {
        let records = self.log.suspend(warp.index as usize);
        for lane in lanes(active) {
            self.shadow.suspend(to[lane] as usize, bytes as usize);
        }
        let Copies { copies, committed, .. } = &mut self.copies[warp.index as usize];
        let (to, group, serial) = (*to, *committed, self.serial);
        copies.push(InFlight { lanes: active, to, bytes, group, at, serial, records });
    }

    /// `cp.async.commit_group`: makes a group of the copies that these lanes began since their last one.
    #[cold]
    pub(super) fn commit(&mut self, warp: &Warp, active: u32) {
        for lane in lanes(active) {
            let committed = &mut self.copies[warp.index as usize].committed[lane];
            *committed = committed.saturating_add(1);
        }
    }

    /// Waits for all groups but the last `groups`. `None` waits for all copies, committed or not.
    #[cold]
    pub(super) fn wait(&mut self, warp: &Warp, groups: Option<u32>, active: u32) {
        let index = warp.index as usize;
        let Copies { copies, committed, .. } = &mut self.copies[index];
        let time = self.clocks.time[index];
        if !copies.is_empty() {
            // What comes after the wait has a later time, so that it differs from what comes before.
            self.clocks.time[index] += 1;
            self.log.interrupt(index);
        }
        for copy in copies.iter_mut() {
            let ends = |lane: usize| match groups {
                None => true,
                Some(groups) => copy.group[lane].saturating_add(groups) < committed[lane],
            };
            let done = collect(ends) & copy.lanes & active;
            copy.lanes &= !done;
            if done != 0 {
                self.log.settle(&copy.records, time + 1);
            }
            for lane in lanes(done) {
                let moment = Moment {
                    time,
                    at: copy.at,
                    serial: copy.serial,
                    warp: warp.index as u8,
                    lane: lane as u8,
                    kind: Kind::Write,
                    size: copy.bytes.min(8) as u8,
                };
                let to = copy.to[lane] as usize;
                if self.shadow.flies(to, copy.serial) {
                    self.shadow.settle(moment, to, copy.bytes as usize);
                } else {
                    // Another thread has waited for it at an mbarrier.
                    self.clocks.known[index][ENGINE] = self.clocks.time[ENGINE];
                }
            }
        }
        copies.retain(|copy| copy.lanes != 0);
    }

    #[cold]
    pub(super) fn bulk(&mut self, site: &mut Site, warp: &Warp, event: &Bulk) -> Result<(), Box<Fault>> {
        let index = warp.index as usize;
        match *event {
            Bulk::Begin(_) => self.bulk_began = self.serial,
            Bulk::Move(transfer, piece) if transfer.to_shared() => {
                self.shadow.suspend(piece.shared as usize, piece.bytes as usize);
            }
            Bulk::Move(transfer, piece) => self.check_proxy(site, warp, transfer, piece)?,
            Bulk::End(transfer) => {
                let Copies { bulk, committed_bulk, .. } = &mut self.copies[index];
                let (group, serial) = (committed_bulk[transfer.lane], Some(self.serial));
                bulk.push(Outgoing { transfer: transfer.clone(), group, serial });
            }
            Bulk::Group { group: Group::Commit, lanes: active, .. } => {
                for lane in lanes(active) {
                    let committed = &mut self.copies[index].committed_bulk[lane];
                    *committed = committed.saturating_add(1);
                }
            }
            Bulk::Group { group: Group::Wait { groups, reads }, lanes: active, at } => {
                let committed = self.copies[index].committed_bulk;
                let is_done = |copy: &Outgoing| {
                    let lane = copy.transfer.lane;
                    active >> lane & 1 != 0 && copy.group.saturating_add(groups) < committed[lane]
                };
                self.wait_for_bulk(site, warp, is_done, (reads, at))?;
            }
            Bulk::Group { group: Group::Fence, .. } => {
                let vector = self.clocks.contribution(index);
                self.log.interrupt(index);
                clocks::join(&mut self.proxy, &vector);
            }
        }
        Ok(())
    }

    /// Ends the copies to global memory of lanes that exit.
    pub(super) fn exit(
        &mut self,
        site: &mut Site,
        warp: &Warp,
        active: u32,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        if self.copies[warp.index as usize].bulk.is_empty() {
            return Ok(());
        }
        self.wait_for_bulk(site, warp, |copy| active >> copy.transfer.lane & 1 != 0, (false, at))
    }

    /// Waits for the copies to global memory that are `done`, or only for their reads.
    #[cold]
    fn wait_for_bulk(
        &mut self,
        site: &mut Site,
        warp: &Warp,
        done: impl Fn(&Outgoing) -> bool,
        (reads, at): (bool, u32),
    ) -> Result<(), Box<Fault>> {
        let index = warp.index as usize;
        let mut copies = std::mem::take(&mut self.copies[index].bulk);
        self.time = self.clocks.time[index];
        for copy in copies.iter_mut().filter(|copy| done(copy)) {
            if let Some(serial) = copy.serial.take() {
                self.check_source(site, warp, &copy.transfer, (serial, at))?;
            }
            if !reads {
                // The copy has written until now.
                for piece in copy.transfer.place.pieces() {
                    let addresses = [piece.global; LANES];
                    let request = copy.transfer.in_global(warp, &addresses, piece);
                    self.begin_access(&request);
                    self.log_global(site, &request);
                }
            }
        }
        copies.retain(|copy| reads || !done(copy));
        self.copies[index].bulk = copies;
        Ok(())
    }

    /// Checks that nothing was written to the bytes that a copy has read until now.
    fn check_source(
        &mut self,
        site: &mut Site,
        warp: &Warp,
        transfer: &Transfer,
        (serial, at): (u32, u32),
    ) -> Result<(), Box<Fault>> {
        let Place { shared, bytes, .. } = transfer.place;
        if bytes == 0 {
            return Ok(());
        }
        let Some(write) = self.shadow.written_since(serial, shared as usize, bytes as usize) else {
            for piece in transfer.place.pieces() {
                let addresses = [piece.shared; LANES];
                let request: Request = transfer.in_shared(warp, &addresses, piece);
                self.access_shared(site, &request, &[])?;
            }
            return Ok(());
        };
        let place = (shared, bytes as u32);
        let who = (warp.index, transfer.lane as u32, transfer.at);
        let first = site.describe(Action::Read, Where::Shared, place, who);
        let second = site.describe(Action::Write, Where::Shared, place, write.thread());
        Err(site.fault(warp.index, at, 1 << transfer.lane, FaultKind::Unfinished { first, second }))
    }

    /// Checks that a `fence.proxy.async` lies between the stores to these bytes and a bulk copy of them.
    fn check_proxy(
        &self,
        site: &Site,
        warp: &Warp,
        transfer: &Transfer,
        piece: Place,
    ) -> Result<(), Box<Fault>> {
        let unfenced =
            |write: &Moment| !write.is_in_flight() && self.proxy[write.warp as usize] <= write.time;
        let mut writes = self.shadow.writes(piece.shared as usize, piece.bytes as usize);
        let Some(write) = writes.find(unfenced) else { return Ok(()) };
        let place = (piece.shared, piece.bytes as u32);
        let (lane, at) = (transfer.lane, transfer.at);
        let first = site.describe(Action::Write, Where::Shared, place, write.thread());
        let second = site.describe(Action::Read, Where::Shared, place, (warp.index, lane as u32, at));
        Err(site.fault(warp.index, at, 1 << lane, FaultKind::Proxy { first, second }))
    }
}
