//! Finds races.
//!
//! In shared memory they are found while a block runs: [`clocks`] say what is ordered, and [`shadow`] holds
//! the last accesses of each place. In global memory they are searched for after the launch: blocks [`log`]
//! their accesses, [`search`] compares them.

mod clocks;
mod copies;
mod log;
mod mbarriers;
mod search;
mod shadow;

use std::{ops::Range, sync::Once};

use crate::{
    exec::{
        access::{Kind, Request, Values},
        barrier::BARRIERS,
        bytes::changed_global,
        grid::Grid,
        hooks::{Done, Event, Hooks, Left},
        lanes::{LANES, lanes, low},
        reports::Conflict,
        site::Site,
        warp::Warp,
    },
    fault::{Access, Action, Fault, FaultKind, Memory as Where},
    program::code::{Operation, Order, SHARED_WINDOW, Scope, Space, WINDOW},
};

pub use self::log::{Log, Room};
use self::{
    clocks::{Clocks, Moment, Vector, WARPS},
    copies::Copies,
    log::Accessed,
    mbarriers::Objects,
    shadow::Shadow,
};

/// Guards the message that races are looked for only in part of a launch.
static PART: Once = Once::new();

/// What the search for races knows of a block.
pub struct Races<'g> {
    clocks: Clocks,
    shadow: Shadow,
    log: Log<'g>,
    /// The warp's clock when the current access began. A release also orders the access that makes it.
    time: u32,
    /// Accesses to shared memory so far.
    serial: u32,
    /// What the warps at each block barrier release.
    barriers: [Vector; BARRIERS],
    mbarriers: Objects,
    /// What was written before a `fence.proxy.async`.
    proxy: Vector,
    /// The asynchronous copies of each warp.
    copies: Vec<Copies>,
    /// `serial` when the current bulk copy began.
    bulk_began: u32,
}

impl<'g> Hooks<'g> for Races<'g> {
    fn new(grid: &'g Grid<'g>) -> Self {
        Races {
            clocks: Clocks::new(grid.warps),
            shadow: Shadow::new(grid.reserved.end, grid.granule),
            log: Log::new(0, &grid.room),
            time: 0,
            serial: 0,
            barriers: [[0; WARPS + 1]; BARRIERS],
            mbarriers: Objects::new(),
            proxy: [0; WARPS + 1],
            copies: vec![Copies::default(); grid.warps as usize],
            bulk_began: 0,
        }
    }

    fn begin_block(&mut self, site: &Site<'g>) {
        self.clocks.clear();
        self.shadow.clear();
        self.log = Log::new(site.number, &site.grid.room);
        self.barriers.as_flattened_mut().fill(0);
        self.mbarriers.clear();
        self.proxy.fill(0);
        self.copies.iter_mut().for_each(Copies::clear);
    }

    fn end_block(&mut self, done: &mut Done<'g>) {
        done.log = self.log.take().finish();
    }

    fn end_launch(grid: &'g Grid<'g>, left: &mut Left<'_, 'g>) -> Result<(), Box<Fault>> {
        if grid.room.is_spent() {
            let (name, bytes) = (&grid.kernel.name, grid.settings.race_log_bytes);
            PART.call_once(|| {
                eprintln!(
                    "kernel {name}: its accesses to global memory do not fit in Settings::race_log_bytes \
                     ({bytes}); only the first ones are checked for races"
                )
            });
        }
        search::find(grid, &mut left.logs, left.reports)?;
        if let Some(touches) = &mut left.touches {
            **touches = search::touches(grid, &left.logs);
        }
        Ok(())
    }

    fn complete(&mut self, barrier: usize) {
        self.barriers[barrier].fill(0);
    }

    #[inline(always)]
    fn begin(&mut self, request: &Request) {
        self.begin_access(request);
    }

    #[inline(always)]
    fn release(&mut self, site: &Site<'g>, request: &Request, scope: Scope) {
        self.synchronise(site.grid, request, scope, false);
    }

    #[inline(always)]
    fn acquire(&mut self, site: &Site<'g>, request: &Request, scope: Scope) {
        if request.kind == Kind::AtomicRead {
            self.log.has_read(site.grid.order());
        }
        self.synchronise(site.grid, request, scope, true);
    }

    #[inline(always)]
    fn before(
        &mut self,
        site: &mut Site<'g>,
        _warp: &Warp,
        request: &Request,
        values: &Values,
    ) -> Result<(), Box<Fault>> {
        match request.space {
            Space::Global => {
                self.log_global(site, request);
                if request.kind == Kind::Write && !values.is_empty() {
                    check_clash(site, request, values)?;
                    // SAFETY: `before` is told of accesses that are aligned and within bounds.
                    let changed = unsafe { changed_global(request, values) };
                    self.log.changed(changed, || site.grid.next_order() - 1);
                }
                Ok(())
            }
            Space::Shared => {
                self.access_shared(site, request, values)?;
                if request.kind == Kind::Write { check_clash(site, request, values) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    fn order(&mut self, site: &mut Site<'g>, warp: &Warp, event: &Event) -> Result<(), Box<Fault>> {
        let index = warp.index as usize;
        match *event {
            Event::Arrive { barrier } => self.arrive(site.grid, index, barrier),
            Event::Pass { barrier } => self.clocks.learn(index, &self.barriers[barrier]),
            Event::WarpBarrier { lanes, whole } => self.warp_barrier(index, (!whole).then_some(lanes)),
            Event::Fence(scope) => self.fence(index, scope),
            Event::Exit { lanes, at } => self.exit(site, warp, lanes, at)?,
            Event::Copy { lanes, to, bytes, at } => self.copy(warp, (lanes, to, bytes), at),
            Event::Commit { lanes } => self.commit(warp, lanes),
            Event::Wait { groups, lanes } => self.wait(warp, groups, lanes),
            Event::Bulk(ref event) => self.bulk(site, warp, event)?,
            Event::Mbarrier(ref event) => self.mbarrier(site, warp, event)?,
        }
        Ok(())
    }
}

impl Races<'_> {
    fn begin_access(&mut self, request: &Request) {
        self.time = self.clocks.time[request.warp as usize];
        self.log.begin(request.at, request.warp as usize, request.addresses, request.mask);
    }

    /// Records what an access acquires, or else what it releases.
    fn synchronise(&mut self, grid: &Grid, request: &Request, scope: Scope, acquires: bool) {
        let order = request.order;
        if !(order.acquires() || order.releases() || grid.fences) {
            return;
        }
        // A `volatile` access gets here only if the kernel has fences, and then orders in every memory.
        let atomic = request.kind.is_atomic() || order == Order::Volatile && request.space == Space::Generic;
        if !atomic {
            return;
        }
        let warp = request.warp as usize;
        for lane in lanes(request.mask) {
            // Shared memory has two addresses, plain and generic. Use the generic one. No other block sees
            // it.
            let address = match request.space {
                Space::Shared => request.addresses[lane].wrapping_add(SHARED_WINDOW),
                _ => request.addresses[lane],
            };
            let device = scope != Scope::Block && address.wrapping_sub(SHARED_WINDOW) >= WINDOW;
            let who = (warp, lane as u8);
            if !acquires && order.releases() {
                if device {
                    self.log.event(&self.clocks, true, address, grid.next_order(), who);
                }
                self.clocks.release(warp, lane as u8, address);
            } else if !acquires && grid.fences {
                if device {
                    self.log.relaxed_write(&self.clocks, address, grid.next_order(), who);
                }
                self.clocks.relaxed_write(warp, lane as u8, address);
            } else if acquires && order.acquires() {
                if device {
                    self.log.event(&self.clocks, false, address, grid.next_order(), who);
                }
                self.clocks.acquire(warp, lane as u8, address);
            } else if acquires && grid.fences {
                if device {
                    self.log.relaxed_read(address, grid.next_order(), who);
                }
                self.clocks.relaxed_read(warp, lane as u8, address);
            }
        }
    }

    fn arrive(&mut self, grid: &Grid, warp: usize, barrier: usize) {
        // GPUs order relaxed reads at a barrier as by a fence. CUDA's samples rely on it: they find the last
        // block with `atomicInc` and `__syncthreads`.
        if grid.fences {
            self.clocks.acquire_seen(warp);
            self.log.acquire_seen(&self.clocks, warp);
        }
        let vector = self.clocks.contribution(warp);
        self.log.interrupt(warp);
        clocks::join(&mut self.barriers[barrier], &vector);
    }

    fn warp_barrier(&mut self, warp: usize, part: Option<u32>) {
        self.clocks.warp_barrier(warp, part);
        self.log.interrupt(warp);
        if let Some(part) = part {
            self.log.warp_barrier(&self.clocks, warp, part);
        }
    }

    fn fence(&mut self, warp: usize, scope: Scope) {
        self.clocks.fence(warp);
        self.log.interrupt(warp);
        if scope != Scope::Block {
            self.log.fence(&self.clocks, warp);
        }
        self.clocks.time[warp] += 1;
    }

    fn log_global(&mut self, site: &Site, request: &Request) {
        let accessed = Accessed {
            addresses: request.addresses,
            mask: request.mask,
            bytes: request.bytes,
            kind: request.kind,
            at: request.at,
            warp: request.warp as usize,
            time: self.time,
        };
        // Atomic writes of a place follow one another, so each counts: the race search tells what came before
        // the last, and which ones a read can have seen.
        let counts = request.kind == Kind::AtomicWrite;
        let stamp = if counts { site.grid.next_order() - 1 } else { site.grid.order() };
        self.log.access(&self.clocks, stamp, &accessed);
    }

    /// Checks and records an access to shared memory. `values` has what a store writes.
    fn access_shared(
        &mut self,
        site: &mut Site,
        request: &Request,
        values: &Values,
    ) -> Result<(), Box<Fault>> {
        self.serial += 1;
        let bytes = request.bytes as usize;
        let moment = Moment {
            time: self.time,
            at: request.at,
            serial: self.serial,
            warp: request.warp as u8,
            lane: 0,
            kind: request.kind,
            size: request.size as u8,
        };
        // Races are judged after the loop over the lanes, which stays small.
        let mut racing = 0;
        for lane in lanes(request.mask) {
            let now = Moment { lane: lane as u8, ..moment };
            let address = request.addresses[lane] as usize;
            if self.shadow.access(&self.clocks, now, address, bytes).is_some() {
                racing |= 1 << lane;
            }
        }
        for lane in lanes(racing) {
            self.judge_races(site, request, values, Moment { lane: lane as u8, ..moment })?;
        }
        Ok(())
    }

    /// Reports the races of a lane's access to shared memory. Records the access if none is a fault.
    #[cold]
    fn judge_races(
        &mut self,
        site: &mut Site,
        request: &Request,
        values: &Values,
        now: Moment,
    ) -> Result<(), Box<Fault>> {
        let (address, bytes) = (request.addresses[now.lane as usize] as usize, request.bytes as usize);
        for (range, before) in self.shadow.races(&self.clocks, now, address, bytes) {
            let conflict = self.conflict(site, request, values, (range.clone(), before), now);
            let pair = (Some(conflict), before.at, now.at);
            if conflict == Conflict::Race && [before, now].iter().all(|moment| is_store(site, moment)) {
                let pair = race(site, request, before, now.lane);
                site.clash(range, pair, (request.warp, now.lane), [before.at, now.at])?;
                continue;
            }
            if conflict == Conflict::SameValue && !site.clashes.is_empty() {
                site.unsettled.push((range, None));
            }
            if !site.reports.is_settled(pair) {
                let [first, second] = race(site, request, before, now.lane);
                let kind = conflict.kind(first, second);
                let fault = site.fault(request.warp, request.at, 1 << now.lane, kind);
                site.reports.settle(site.grid, pair, fault)?;
            }
        }
        self.shadow.record(&self.clocks, now, address, bytes);
        Ok(())
    }

    /// Says why a lane's access to shared memory conflicts with an earlier access to these bytes.
    fn conflict(
        &self,
        site: &Site,
        request: &Request,
        values: &Values,
        (range, before): (Range<usize>, Moment),
        now: Moment,
    ) -> Conflict {
        let instructions = &site.grid.code.instructions;
        if before.is_in_flight() {
            return match instructions[before.at as usize].operation {
                Operation::Mbarrier(_) => Conflict::MbarrierWord,
                _ => Conflict::Unfinished,
            };
        }
        let starts_swap = |at: u32| match &instructions[at as usize].operation {
            Operation::Load(load) => load.starts_swap,
            _ => false,
        };
        match [before.kind, now.kind] {
            [Kind::Write, Kind::Write] => {
                let (size, lane) = (request.size as usize, now.lane as usize);
                let start = request.addresses[lane] as usize;
                let is_same = |at: usize| {
                    let (element, byte) = ((at - start) / size, (at - start) % size);
                    values
                        .get(element)
                        .is_some_and(|values| (values[lane] >> (8 * byte)) as u8 == site.shared[at])
                };
                let is_same = !self.shadow.has_atomic(range.start) && range.clone().all(is_same);
                if is_same { Conflict::SameValue } else { Conflict::Race }
            }
            [Kind::AtomicWrite, Kind::Read] if starts_swap(now.at) => Conflict::SwapRead,
            [Kind::Read, Kind::AtomicWrite] if starts_swap(before.at) => Conflict::SwapRead,
            _ => Conflict::Race,
        }
    }
}

/// Whether an access is a plain store, not part of a copy or of an mbarrier's initialisation.
fn is_store(site: &Site, moment: &Moment) -> bool {
    let operation = &site.grid.code.instructions[moment.at as usize].operation;
    moment.kind == Kind::Write && matches!(operation, Operation::Store(_))
}

/// Describes a lane's access, and the earlier access with which it races.
fn race(site: &Site, request: &Request, before: Moment, lane: u8) -> [Box<Access>; 2] {
    let place = (request.addresses[lane as usize], request.bytes);
    let earlier = Request { kind: before.kind, ..*request };
    let first = site.describe(earlier.action(), Where::Shared, place, before.thread());
    let second =
        site.describe(request.action(), Where::Shared, place, (request.warp, lane.into(), request.at));
    [first, second]
}

/// Whether two values are equal, or floats that differ by a few units in the last place. Lanes that reduce
/// the same values in other orders have such results, and compilers let all of them store.
fn differ_by_rounding(a: u64, b: u64, size: u32) -> bool {
    const MOST_UNITS: u64 = 16;
    let is_normal = |bits: u64| match size {
        4 => f32::from_bits(bits as u32).is_normal(),
        8 => f64::from_bits(bits).is_normal(),
        _ => false,
    };
    let low = low(8 * size);
    let (a, b) = (a & low, b & low);
    a == b || is_normal(a) && is_normal(b) && a.abs_diff(b) <= MOST_UNITS
}

/// Checks that no two lanes of one plain store write different values to the same place. (Of a relaxed store
/// they may: each is atomic.)
fn check_clash(site: &mut Site, request: &Request, values: &Values) -> Result<(), Box<Fault>> {
    if request.contiguous {
        return Ok(());
    }
    let mut order = [(0, 0); LANES];
    let mut count = 0;
    let mut ascending = true;
    for lane in lanes(request.mask) {
        order[count] = (request.addresses[lane], lane);
        ascending &= count == 0 || order[count - 1].0 < order[count].0;
        count += 1;
    }
    if ascending {
        // Accesses have one size and are aligned to it, so different addresses do not overlap.
        return Ok(());
    }
    order[..count].sort_unstable();
    for pair in order[..count].windows(2) {
        let ((address, a), (other, b)) = (pair[0], pair[1]);
        let low = low(8 * request.size);
        let differ = values.iter().any(|values| (values[a] ^ values[b]) & low != 0);
        if address == other && differ {
            let describe = |lane: usize| {
                let place = (address, request.bytes);
                let who = (request.warp, lane as u32, request.at);
                site.describe(Action::Write, request.memory(), place, who)
            };
            if values.iter().all(|values| differ_by_rounding(values[a], values[b], request.size)) {
                let pair = (Some(Conflict::Rounding), request.at, request.at);
                if !site.reports.is_settled(pair) {
                    let kind = Conflict::Rounding.kind(describe(a), describe(b));
                    let note = site.fault(request.warp, request.at, 1 << a | 1 << b, kind);
                    site.reports.settle(site.grid, pair, note)?;
                }
                continue;
            }
            if request.space == Space::Shared {
                let bytes = address as usize..address as usize + request.bytes as usize;
                let pair = [describe(a), describe(b)];
                site.clash(bytes, pair, (request.warp, b as u8), [request.at; 2])?;
                continue;
            }
            let kind = FaultKind::Race { first: describe(a), second: describe(b) };
            let fault = site.fault(request.warp, request.at, 1 << a | 1 << b, kind);
            let pair = (Some(Conflict::Race), request.at, request.at);
            return site.reports.settle(site.grid, pair, fault);
        }
    }
    Ok(())
}
