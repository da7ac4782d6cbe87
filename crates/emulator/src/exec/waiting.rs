//! What the threads of a block wait for, and the faults if they wait for ever.

use std::collections::BTreeMap;

use crate::{
    fault::{Fault, FaultKind},
    program::code::Operation,
};

use super::{
    block::Block,
    interpret::POLLS,
    warp::{Path, State as Waits, Warp},
};

/// Instructions of a block whose warps all wait at mbarriers, after which this is a deadlock. A kernel that
/// reads a clock may limit its waits by time, so that it has longer.
const STUCK: u64 = 1 << 20;
const STUCK_WITH_CLOCK: u64 = 1 << 24;

impl Block<'_> {
    /// Whether only other blocks can let this one continue: all its ready warps poll memory.
    pub fn waits(&self) -> bool {
        let mut ready = self.warps.iter().filter(|warp| warp.ready().next().is_some()).peekable();
        ready.peek().is_some() && ready.all(|warp| warp.polls >= POLLS)
    }

    fn is_mbarrier(&self, at: u32) -> bool {
        let instruction = &self.state.site.grid.code.instructions[at as usize];
        matches!(instruction.operation, Operation::Mbarrier(_))
    }

    /// Whether all warps that are ready wait at mbarriers, so that no other block can let this one continue.
    #[cold]
    pub fn waits_at_mbarriers(&self) -> bool {
        let mut ready = self.warps.iter().filter(|warp| warp.ready().next().is_some());
        ready.all(|warp| warp.watched.is_some_and(|(at, ..)| self.is_mbarrier(at)))
    }

    /// Called if all warps wait at mbarriers. Returns a fault if they have done so for long.
    pub fn check_mbarriers(&mut self) -> Result<(), Box<Fault>> {
        let issued = self.state.site.issued;
        let patience = if self.state.site.grid.reads_clock { STUCK_WITH_CLOCK } else { STUCK };
        if self.warps.iter().any(|warp| warp.has_seen) {
            self.stuck_since = None;
        } else if issued - *self.stuck_since.get_or_insert(issued) >= patience {
            return Err(self.fault_of_waiting(FaultKind::Deadlock(self.waiting())));
        }
        self.warps.iter_mut().for_each(|warp| (warp.polls, warp.has_seen) = (0, false));
        Ok(())
    }

    /// Returns a fault if the launch's time limit has passed.
    pub fn check_time(&self) -> Result<(), Box<Fault>> {
        let grid = self.state.site.grid;
        if grid.start.elapsed() < grid.settings.time_limit {
            return Ok(());
        }
        let limit = grid.settings.time_limit;
        Err(self.fault_of_waiting(FaultKind::Timeout { limit, waiting: self.waiting() }))
    }

    /// Returns the fault of a grid whose first blocks wait for blocks that never start.
    pub fn never_resident(&self) -> Box<Fault> {
        let (resident, blocks) = (self.state.site.grid.resident, self.state.site.grid.blocks());
        self.fault_of_waiting(FaultKind::Resident { resident, blocks, waiting: self.waiting() })
    }

    /// Returns a fault where the block waits.
    fn fault_of_waiting(&self, kind: FaultKind) -> Box<Fault> {
        let ready = |path: &&Path| path.state == Waits::Ready;
        let warp = self.warps.iter().find(|warp| warp.paths.iter().any(|path| ready(&path)));
        let warp = warp.or(self.warps.first());
        let path = warp.and_then(|warp| warp.paths.iter().find(ready).or(warp.paths.first()));
        let (at, mask) = path.map_or((0, 0), |path| (path.at, path.mask));
        let warp = warp.map_or(0, |warp| warp.index);
        self.state.site.fault(warp, at, mask, kind)
    }

    /// Describes where the threads are and what they wait for.
    pub fn waiting(&self) -> String {
        let mut groups: Vec<(u32, Waits, Option<u64>, u32)> = Vec::new();
        for warp in &self.warps {
            for path in &warp.paths {
                // Show a polling path at the load that it polls with.
                let polled = warp.watched.filter(|_| path.state == Waits::Ready && warp.polls > 0);
                let (at, address) = polled.map_or((path.at, None), |(at, address, _)| (at, Some(address)));
                match groups.iter_mut().find(|group| (group.0, group.1, group.2) == (at, path.state, address))
                {
                    Some(group) => group.3 += path.mask.count_ones(),
                    None => groups.push((at, path.state, address, path.mask.count_ones())),
                }
            }
        }
        let mut parts = Vec::new();
        let mut meeting: BTreeMap<u32, u32> = BTreeMap::new();
        for (at, mask) in self.warps.iter().flat_map(Warp::meeting) {
            *meeting.entry(at).or_default() += mask.count_ones();
        }
        for (at, count) in meeting {
            let place = self.state.site.grid.place(at);
            parts.push(format!("{count} threads wait at {place} for others of their warps"));
        }
        for (at, state, address, count) in groups {
            let place = self.state.site.grid.place(at);
            parts.push(match (state, address) {
                (Waits::Barrier(index), _) => format!("{count} threads wait for barrier {index} at {place}"),
                (Waits::Collective(mask), _) => {
                    format!("{count} threads wait for the lanes of mask {mask:#010x} at {place}")
                }
                (Waits::Ready, Some(address)) if self.is_mbarrier(at) => {
                    let missing = self.state.missing(address);
                    let which = format!("the mbarrier at shared address {address:#x}{missing}");
                    format!("{count} threads wait at {place} for {which}")
                }
                (Waits::Ready, Some(address)) => {
                    format!("{count} threads wait for a change at address {address:#x} at {place}")
                }
                (Waits::Ready, None) => format!("{count} threads run at {place}"),
            });
        }
        for (index, barrier) in
            self.state.barriers.iter().enumerate().filter(|(_, barrier)| barrier.arrived > 0)
        {
            let needed = barrier.threads.unwrap_or(self.state.live);
            parts.push(format!("barrier {index} has {} of {needed} threads", barrier.arrived));
        }
        parts.join("; ")
    }

    /// Called if no warp is ready. Returns `true` if all have ended, and `false` after it released lanes that
    /// waited for others of their warp. Otherwise this is a deadlock.
    pub fn ended(&mut self) -> Result<bool, Box<Fault>> {
        let mut any = false;
        for warp in &mut self.warps {
            any |= warp.go_on();
        }
        if any {
            return Ok(false);
        }
        let Some((warp, path)) =
            self.warps.iter().find_map(|warp| warp.paths.first().map(|path| (warp, path)))
        else {
            return Ok(true);
        };
        let text = self.waiting();
        let barrier = matches!(path.state, Waits::Barrier(_));
        let kind = if barrier { FaultKind::Barrier(text) } else { FaultKind::Deadlock(text) };
        Err(self.state.site.fault(warp.index, path.at, path.mask, kind))
    }
}
