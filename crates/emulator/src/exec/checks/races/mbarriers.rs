//! What mbarriers order. A copy that a phase waits for is in flight until a thread has waited for the phase.

use std::{collections::HashMap, ops::RangeInclusive};

use crate::{
    exec::{access::Kind, bulk::Transfer, hooks::Mbarrier, lanes::lanes, site::Site, warp::Warp},
    fault::{Action, Fault, FaultKind, Memory as Where},
    program::code::Order,
};

use super::{
    Races,
    clocks::{self, Clocks, ENGINE, Moment, Vector, WARPS},
    shadow::Shadow,
};

/// What is known of an mbarrier.
#[derive(Debug)]
pub struct Object {
    init: Moment,
    /// What all arrivals so far have released.
    open: Released,
    /// What the arrivals had released when the last phase was complete.
    done: Released,
    /// The copies that the current phase waits for.
    flying: Vec<Landing>,
    /// The copies of complete phases for which no thread has waited.
    landed: Vec<Landing>,
}

/// The mbarriers of a block by their addresses.
pub type Objects = HashMap<u64, Object>;

/// An asynchronous copy to shared memory: its place, and the serial numbers of its writes.
#[derive(Clone, Debug)]
pub struct Landing {
    pub to: usize,
    pub bytes: usize,
    pub serials: RangeInclusive<u32>,
}

/// What arrivals release.
#[derive(Clone, Debug)]
struct Released {
    /// What the arriving warps knew.
    vector: Vector,
    /// The times of the warps' own arrivals, and the lanes that arrived.
    own: Vector,
    lanes: [u32; WARPS],
}

impl Released {
    const NOTHING: Released = Released { vector: [0; WARPS + 1], own: [0; WARPS + 1], lanes: [0; WARPS] };

    fn arrive(&mut self, clocks: &mut Clocks, (warp, lane): (usize, usize), order: Order) {
        let own = match order {
            Order::Relaxed => {
                let Some(fenced) = clocks.fenced(warp) else { return };
                clocks::join(&mut self.vector, &without(fenced, warp));
                fenced[warp]
            }
            _ => {
                let own = clocks.contribution(warp)[warp];
                clocks::join(&mut self.vector, &clocks.known[warp]);
                own
            }
        };
        self.own[warp] = self.own[warp].max(own);
        self.lanes[warp] |= 1 << lane;
    }

    /// What a lane acquires: all but its own arrivals, which do not order the other lanes of its warp.
    fn seen_by(&self, (warp, lane): (usize, usize)) -> Vector {
        let mut vector = self.vector;
        let own = if self.lanes[warp] & !(1 << lane) == 0 { without(&self.own, warp) } else { self.own };
        clocks::join(&mut vector, &own);
        vector
    }
}

fn without(vector: &Vector, warp: usize) -> Vector {
    let mut vector = *vector;
    vector[warp] = 0;
    vector
}

impl Object {
    fn turn(&mut self) {
        self.done = self.open.clone();
        self.landed.append(&mut self.flying);
    }

    /// A lane has seen that a phase is complete.
    fn wait(
        &mut self,
        (clocks, shadow): (&mut Clocks, &mut Shadow),
        (warp, lane): (usize, usize),
        order: Order,
    ) {
        if !self.landed.is_empty() {
            let time = clocks.time[ENGINE];
            clocks.time[ENGINE] += 1;
            for copy in self.landed.drain(..) {
                shadow.land(time, (copy.to, copy.bytes), &copy.serials);
            }
            for released in [&mut self.open, &mut self.done] {
                released.vector[ENGINE] = clocks.time[ENGINE];
            }
        }
        let vector = self.done.seen_by((warp, lane));
        if order == Order::Relaxed {
            clocks.see(warp, &vector);
        } else {
            clocks.time[warp] += 1;
            clocks.learn(warp, &vector);
        }
    }
}

impl Races<'_> {
    #[cold]
    pub(super) fn mbarrier(&mut self, site: &Site, warp: &Warp, event: &Mbarrier) -> Result<(), Box<Fault>> {
        let index = warp.index as usize;
        match *event {
            Mbarrier::Init { addresses, lanes: active, at } => {
                let known = |lane: &usize| self.mbarriers.contains_key(&addresses[*lane]);
                if let Some(lane) = lanes(active).find(known) {
                    let text =
                        "an mbarrier is initialised twice, without `mbarrier.inval` in between".to_owned();
                    return Err(site.fault(warp.index, at, 1 << lane, FaultKind::Mbarrier(text)));
                }
            }
            Mbarrier::Begin { addresses, lanes: active } => {
                for lane in lanes(active) {
                    let address = addresses[lane] as usize;
                    let Some(init) = self.shadow.writes(address, 8).next() else { continue };
                    self.shadow.suspend(address, 8);
                    let (open, done) = (Released::NOTHING, Released::NOTHING);
                    let object = Object { init, open, done, flying: Vec::new(), landed: Vec::new() };
                    self.mbarriers.insert(addresses[lane], object);
                }
            }
            Mbarrier::Use { lane, address, at } => {
                let Some(Object { init, .. }) = self.mbarriers.get(&address) else {
                    return Err(site.no_mbarrier(warp.index, (lane, address), at));
                };
                if !self.clocks.ordered(init, index, lane as u8) {
                    let describe = |who| site.describe(Action::Atomic, Where::Shared, (address, 8), who);
                    let first = describe(init.thread());
                    let second = describe((warp.index, lane as u32, at));
                    return Err(site.fault(warp.index, at, 1 << lane, FaultKind::Race { first, second }));
                }
            }
            Mbarrier::Invalidate { lane, address, at } => {
                self.mbarriers.remove(&address);
                self.serial += 1;
                let (time, serial) = (self.clocks.time[index], self.serial);
                let (warp, lane, kind) = (warp.index as u8, lane as u8, Kind::Write);
                let now = Moment { time, at, serial, warp, lane, kind, size: 8 };
                self.shadow.replace(now, address as usize, 8);
            }
            Mbarrier::Arrive { lane, address, order } => {
                if let Some(object) = self.mbarriers.get_mut(&address) {
                    object.open.arrive(&mut self.clocks, (index, lane), order);
                }
                self.log.interrupt(index);
            }
            Mbarrier::Attach { lane, address } => self.attach(index, lane, address),
            Mbarrier::Land { address, transfer: Transfer { place, .. } } => {
                if place.bytes > 0
                    && let Some(object) = self.mbarriers.get_mut(&address)
                {
                    let serials = self.bulk_began + 1..=self.serial;
                    let (to, bytes) = (place.shared as usize, place.bytes as usize);
                    object.flying.push(Landing { to, bytes, serials });
                }
            }
            Mbarrier::Turn { address } => {
                if let Some(object) = self.mbarriers.get_mut(&address) {
                    object.turn();
                }
            }
            Mbarrier::Seen { lane, address, order } => {
                if let Some(object) = self.mbarriers.get_mut(&address) {
                    object.wait((&mut self.clocks, &mut self.shadow), (index, lane), order);
                }
                self.log.interrupt(index);
            }
        }
        Ok(())
    }

    /// Makes the current phase of an mbarrier wait for the copies (`cp.async`) that a lane began.
    fn attach(&mut self, warp: usize, lane: usize, address: u64) {
        let Some(object) = self.mbarriers.get_mut(&address) else { return };
        let time = self.clocks.time[warp];
        let copies = &mut self.copies[warp].copies;
        for copy in copies.iter_mut().filter(|copy| copy.lanes >> lane & 1 != 0) {
            let to = copy.to[lane] as usize;
            if self.shadow.flies(to, copy.serial) {
                let serials = copy.serial..=copy.serial;
                object.flying.push(Landing { to, bytes: copy.bytes as usize, serials });
                // Any thread may wait there, and overwrite the source then. So the check of the source ends
                // here.
                self.log.settle(&copy.records, time + 1);
            } else {
                copy.lanes &= !(1 << lane);
            }
        }
        copies.retain(|copy| copy.lanes != 0);
    }
}
