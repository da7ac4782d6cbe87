//! Finds uses of values that nothing wrote.
//!
//! A load of memory that nothing wrote makes registers undefined; [`registers`] follow them to a use. If
//! another thread wrote there without synchronisation, the race is the real fault, and this only its symptom:
//! so the block runs on after it, and reports it at its end.

mod matrix;
mod registers;

use std::{collections::HashMap, ops::Range};

use crate::{
    exec::{
        access::{Request, Values},
        grid::Grid,
        hooks::{Bulk, Event, Hooks, Mbarrier},
        lanes::{LANES, lanes},
        matrix::Step,
        reports::shown,
        site::Site,
        warp::Warp,
    },
    fault::{Fault, FaultKind, Memory as Where},
    program::{
        code::{Collective, CollectiveKind, Load, Operation, Shuffle, Space},
        undefined::{Carries, Tracked},
    },
};

use self::{
    matrix::Elements,
    registers::{Origin, Track},
};

/// What a block has written.
pub struct Unwritten<'g> {
    /// Whether each byte of shared memory has been written, by a defined value.
    shared: Vec<bool>,
    warps: Vec<Track>,
    /// Whether any register may be undefined.
    follows: bool,
    /// The registers that are tracked, and what instructions do with them, if nearly all may be undefined.
    wide: Option<(&'g Tracked, &'g Carries)>,
    /// The origins of undefined values that were stored to shared memory, by address.
    stored: HashMap<usize, Origin>,
    elements: Elements,
}

impl<'g> Hooks<'g> for Unwritten<'g> {
    fn new(grid: &'g Grid<'g>) -> Self {
        let track = Track::new(grid.kernel.local_bytes * LANES);
        Unwritten {
            shared: vec![false; grid.reserved.end],
            warps: vec![track; grid.warps as usize],
            follows: false,
            wide: None,
            stored: HashMap::new(),
            elements: Elements::default(),
        }
    }

    fn begin_block(&mut self, site: &Site<'g>) {
        let tracked = &site.grid.code.tracked;
        self.shared.fill(false);
        // Cooperative groups take their part of it by atomic operations, each warp its bits.
        self.shared[site.grid.reserved.clone()].fill(true);
        self.warps.iter_mut().for_each(|track| track.start(tracked));
        self.follows = !tracked.lanes.is_empty();
        self.wide = None;
        self.stored.clear();
        self.elements = Elements::default();
    }

    #[inline(always)]
    fn follows(&self) -> bool {
        self.follows
    }

    #[inline(always)]
    fn resume(&mut self, site: &Site<'g>, warp: &Warp) {
        if self.wide.is_some() {
            self.follow(site.grid, warp);
        }
    }

    #[inline(always)]
    fn instruction(
        &mut self,
        site: &mut Site<'g>,
        warp: &Warp,
        lanes: [u32; 2],
        at: u32,
    ) -> Result<(), Box<Fault>> {
        match self.carry_of(site.grid, at) {
            Some(carry) => self.carry(site, warp, carry, lanes, at),
            None => Ok(()),
        }
    }

    #[inline(always)]
    fn before(
        &mut self,
        site: &mut Site<'g>,
        warp: &Warp,
        request: &Request,
        _values: &Values,
    ) -> Result<(), Box<Fault>> {
        if !request.kind.writes() {
            return Ok(());
        }
        if request.reads {
            self.read_by_atomic(site, request);
        } else if self.follows && request.space == Space::Global {
            self.check_defined(site, warp, request)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn after(&mut self, site: &mut Site<'g>, warp: &Warp, request: &Request) {
        match request.space {
            Space::Global if request.kind.writes() => mark_global(site, request),
            Space::Shared if request.kind.writes() => self.write_shared(site, warp, request),
            Space::Local if request.kind.writes() => self.write_local(site, warp, request),
            Space::Global => self.read_global(site, warp, request),
            Space::Shared => self.read_shared(site, warp, request),
            Space::Local => self.read_local(site, warp, request),
            _ => {}
        }
    }

    #[inline(always)]
    fn loaded(&mut self, site: &Site<'g>, warp: &Warp, load: &Load, at: u32) {
        if self.follows
            && let Some(carry) = self.carry_of(site.grid, at)
        {
            self.track(warp).carry_loaded(carry, load, at);
        }
    }

    #[inline(always)]
    fn stored(&mut self, warp: &Warp) {
        if self.follows {
            self.track(warp).void = Default::default();
        }
    }

    fn order(&mut self, site: &mut Site<'g>, _warp: &Warp, event: &Event) -> Result<(), Box<Fault>> {
        match *event {
            Event::Bulk(Bulk::Move(transfer, piece)) => {
                let Some(place) = site.allocation(piece.global, piece.bytes) else { return Ok(()) };
                let allocation = &site.grid.allocations[place];
                for byte in 0..piece.bytes {
                    let is_written = &mut self.shared[(piece.shared + byte) as usize];
                    // The values are judged where they are used.
                    if transfer.to_shared() {
                        *is_written = allocation.is_written(piece.global + byte, 1);
                    } else if *is_written {
                        allocation.mark_written(piece.global + byte, 1);
                    }
                }
            }
            Event::Mbarrier(Mbarrier::Invalidate { address, .. }) => {
                self.shared[address as usize..][..8].fill(false);
            }
            _ => {}
        }
        Ok(())
    }

    fn shuffled(
        &mut self,
        site: &mut Site<'g>,
        warp: &Warp,
        collective: &Collective,
        outside: u32,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        if !matches!(collective.kind, CollectiveKind::Shuffle(Shuffle::Up | Shuffle::Down)) {
            let text = format!("lanes {} shuffle from lanes that do not take part", shown(outside));
            return Err(site.fault(warp.index, at, outside, FaultKind::Mask(text)));
        }
        // Scans and sums over part of a warp read past its end, and drop the value.
        self.carry_shuffled(site.grid, warp, outside, at);
        Ok(())
    }

    fn matrix(&mut self, site: &mut Site<'g>, warp: &Warp, step: &Step, at: u32) -> Result<(), Box<Fault>> {
        if self.follows { self.follow_matrix(site, warp, step, at) } else { Ok(()) }
    }
}

impl<'g> Unwritten<'g> {
    fn track(&mut self, warp: &Warp) -> &mut Track {
        &mut self.warps[warp.index as usize]
    }

    /// Atomic operations use what they read.
    fn read_by_atomic(&self, site: &mut Site<'g>, request: &Request) {
        let unwritten = match request.space {
            Space::Shared => self.unwritten_in_shared(request),
            _ => unwritten_in_global(site, request)[0],
        };
        if unwritten != 0 {
            suspect(site, request, unwritten);
        }
    }

    fn read_global(&mut self, site: &mut Site<'g>, warp: &Warp, request: &Request) {
        if !request.reads {
            return;
        }
        let [unwritten, partly] = unwritten_in_global(site, request);
        if unwritten != 0 {
            suspect(site, request, unwritten);
        }
        if partly != 0 && request.bytes > request.size {
            self.read_unwritten(site, warp, request, partly);
        }
    }

    fn read_shared(&mut self, site: &mut Site<'g>, warp: &Warp, request: &Request) {
        let unwritten = self.unwritten_in_shared(request);
        if unwritten != 0 && request.reads {
            self.read_unwritten(site, warp, request, unwritten);
        }
    }

    fn write_shared(&mut self, site: &mut Site<'g>, warp: &Warp, request: &Request) {
        let unsettled = if site.unsettled.is_empty() { Vec::new() } else { self.unsettled(site, request) };
        if request.contiguous {
            self.shared[request.first() as usize..][..request.whole() as usize].fill(true);
        } else {
            for lane in lanes(request.mask) {
                self.shared[request.addresses[lane] as usize..][..request.bytes as usize].fill(true);
            }
        }
        if self.wide.is_some() {
            self.write_undefined(site, warp, request);
        }
        for (bytes, origin) in unsettled {
            self.shared[bytes.clone()].fill(false);
            self.stored.insert(bytes.start, origin);
        }
    }

    /// The bytes that a store leaves unspecified, because it races with another.
    #[cold]
    fn unsettled(&self, site: &mut Site<'g>, request: &Request) -> Vec<(Range<usize>, Origin)> {
        let origin = |(bytes, clash): (Range<usize>, Option<usize>)| {
            let before = || self.stored.get(&bytes.start).filter(|_| !self.shared[bytes.start]).copied();
            let origin = match clash {
                Some(clash) => Some(Origin::of_clash(request.at, clash)),
                None => before().filter(Origin::is_clash),
            };
            origin.map(|origin| (bytes.clone(), origin))
        };
        site.unsettled.drain(..).filter_map(origin).collect()
    }

    /// The lanes that read bytes of shared memory that nothing wrote.
    fn unwritten_in_shared(&self, request: &Request) -> u32 {
        let is_written = |address: u64, bytes: u64| {
            self.shared[address as usize..][..bytes as usize].iter().fold(true, |all, &written| all & written)
        };
        if request.contiguous && is_written(request.first(), request.whole()) {
            return 0;
        }
        lanes(request.mask)
            .filter(|&lane| !is_written(request.addresses[lane], request.bytes.into()))
            .fold(0, |mask, lane| mask | 1 << lane)
    }

    #[cold]
    fn read_local(&mut self, site: &Site<'g>, warp: &Warp, request: &Request) {
        if self.carry_of(site.grid, request.at).is_none() {
            return;
        }
        let Track { void, local, .. } = self.track(warp);
        for (element, void) in void[..request.elements()].iter_mut().enumerate() {
            for lane in lanes(request.mask) {
                let range = request.range(lane, element);
                // A partly defined value counts as defined: the program may use only that part.
                if !local[lane * site.grid.kernel.local_bytes..][range.clone()].contains(&true) {
                    if void.lanes == 0 {
                        void.from = Some((Where::Local, range.start as u64));
                    }
                    void.lanes |= 1 << lane;
                }
            }
        }
    }

    #[cold]
    fn write_local(&mut self, site: &Site<'g>, warp: &Warp, request: &Request) {
        let Track { void, local, .. } = self.track(warp);
        for (element, void) in void[..request.elements()].iter().enumerate() {
            for lane in lanes(request.mask) {
                local[lane * site.grid.kernel.local_bytes..][request.range(lane, element)]
                    .fill(void.lanes >> lane & 1 == 0);
            }
        }
    }

    /// Records which values that lanes have read from shared or global memory are undefined.
    #[cold]
    fn read_unwritten(&mut self, site: &mut Site<'g>, warp: &Warp, request: &Request, mask: u32) {
        let operation = &site.grid.code.instructions[request.at as usize].operation;
        // (`printf` uses what it reads.)
        if !matches!(operation, Operation::Load(_) | Operation::Matrix(_)) || !self.widen(site.grid) {
            return suspect(site, request, mask);
        }
        self.follow(site.grid, warp);
        let Unwritten { shared, warps, stored, .. } = self;
        // A partly defined value counts as defined: the program may use only that part.
        let is_partly_written = |at: usize, bytes: usize| match request.space {
            Space::Shared => shared[at..at + bytes].contains(&true),
            _ => {
                let place = site.allocation(at as u64, bytes as u64);
                place.is_none_or(|place| {
                    site.grid.allocations[place].is_partly_written(at as u64, bytes as u64)
                })
            }
        };
        let track = &mut warps[warp.index as usize];
        for (element, void) in track.void[..request.elements()].iter_mut().enumerate() {
            for lane in lanes(mask) {
                let range = request.range(lane, element);
                if !is_partly_written(range.start, range.len()) {
                    if void.lanes == 0 {
                        void.from = Some((request.memory(), range.start as u64));
                        void.origin = match request.space {
                            Space::Shared => stored.get(&range.start).copied(),
                            _ => None,
                        };
                    }
                    void.lanes |= 1 << lane;
                }
            }
        }
    }

    /// Marks the places in shared memory to which lanes have written undefined values.
    #[cold]
    fn write_undefined(&mut self, site: &Site<'g>, warp: &Warp, request: &Request) {
        let Some(carry) = self.carry_of(site.grid, request.at) else { return };
        let track = &self.warps[warp.index as usize];
        for (element, void) in track.void[..request.elements()].iter().enumerate() {
            for lane in lanes(void.lanes & request.mask) {
                let range = request.range(lane, element);
                self.shared[range.clone()].fill(false);
                if let Some(origin) = void.origin.or_else(|| track.origin_of_stored(carry, element)) {
                    self.stored.insert(range.start, origin);
                }
            }
        }
    }
}

/// Records a read of unwritten memory by these lanes.
#[cold]
fn suspect(site: &mut Site, request: &Request, mask: u32) {
    let access = site.access(request, mask);
    let fault = site.fault(request.warp, request.at, mask, FaultKind::Unwritten(access));
    site.suspect(fault);
}

/// The lanes that read bytes of global memory that nothing wrote, and those that read bytes of which some are
/// written and some not: a struct with padding, perhaps.
fn unwritten_in_global(site: &Site, request: &Request) -> [u32; 2] {
    let allocation =
        |address, bytes| site.allocation(address, bytes).map(|place| &site.grid.allocations[place]);
    let (first, whole, bytes) = (request.first(), request.whole(), u64::from(request.bytes));
    if request.contiguous
        && let Some(allocation) = allocation(first, whole)
        && allocation.is_written(first, whole)
    {
        return [0; 2];
    }
    let [mut unwritten, mut partly] = [0; 2];
    for lane in lanes(request.mask) {
        let address = request.addresses[lane];
        let Some(allocation) = allocation(address, bytes) else { continue };
        if allocation.is_written(address, bytes) {
            continue;
        }
        match allocation.is_partly_written(address, bytes) {
            true => partly |= 1 << lane,
            false => unwritten |= 1 << lane,
        }
    }
    [unwritten, partly]
}

fn mark_global(site: &Site, request: &Request) {
    if request.contiguous
        && let Some(place) = site.allocation(request.first(), request.whole())
    {
        site.grid.allocations[place].mark_written(request.first(), request.whole());
        return;
    }
    for lane in lanes(request.mask) {
        if let Some(place) = site.allocation(request.addresses[lane], request.bytes.into()) {
            site.grid.allocations[place].mark_written(request.addresses[lane], request.bytes.into());
        }
    }
}
