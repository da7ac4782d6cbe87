//! Loads, stores and atomics, with their checks.

use std::ops::Range;

use crate::{
    fault::{Action, Fault, FaultKind, Memory as Where, readable},
    program::arrays::Array,
    program::code::{
        Address, AsyncCopy, Atomic, LOCAL_WINDOW, LOCAL_WINDOWS, Load, Operation, Order, PARAM_WINDOW,
        SHARED_WINDOW, Scope, Space, Store, WINDOW,
    },
};

use super::{
    block::State,
    bytes::{changed_global, copy_in, copy_out, read_global, update_global, write_global},
    clocks::{Kind, Moment},
    counting::{bank_conflicts, sectors},
    lanes::{ALL, Bank, LANES, Registers, collect, lanes},
    log::Accessed,
    reports::Conflict,
    warp::{InFlight, Warp},
};

/// An access by some lanes of a warp.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub addresses: &'a [u64; LANES],
    pub mask: u32,
    /// Bytes of one element. `bytes` covers all elements of a lane.
    pub size: u32,
    pub bytes: u32,
    /// The memory order. `kind` is the access as the race checks see it in its memory.
    pub order: Order,
    pub kind: Kind,
    /// Whether the access is atomic in shared memory too if it is `volatile`: a store, or the load of a flag.
    pub is_strong: bool,
    /// Whether the access returns the old value.
    pub reads: bool,
    pub at: u32,
    pub warp: u32,
    /// The warp's clock before the access. A release also orders the access that makes it.
    pub time: u32,
}

impl Request<'_> {
    /// The weak store to the same place.
    pub fn stored(self) -> Self {
        Request { kind: Kind::Write, reads: false, ..self }
    }

    /// Restricts a generic access to the lanes in one memory.
    fn part<'a>(&self, space: Space, addresses: &'a [u64; LANES], mask: u32) -> Request<'a> {
        let kind = match self.order {
            Order::Volatile => kind(self.order, space, self.is_strong, self.kind.writes()),
            _ => self.kind,
        };
        Request { addresses, mask, kind, ..*self }
    }

    /// The byte offsets of one element of a lane.
    pub fn range(&self, lane: usize, element: usize) -> Range<usize> {
        let start = self.addresses[lane] as usize + element * self.size as usize;
        start..start + self.size as usize
    }

    pub fn action(&self) -> Action {
        match self.kind {
            Kind::Read => Action::Read,
            Kind::Write => Action::Write,
            Kind::AtomicRead | Kind::AtomicWrite => Action::Atomic,
        }
    }

    /// Whether all lanes take part and their bytes are consecutive.
    pub fn is_contiguous(&self) -> bool {
        let first = self.addresses[0];
        let bytes = u64::from(self.bytes);
        let mut differs = 0;
        for (lane, &address) in self.addresses.iter().enumerate() {
            differs |= address ^ first.wrapping_add(lane as u64 * bytes);
        }
        differs == 0 && self.mask == ALL
    }
}

/// Values by element, then by lane.
pub type Values = [[u64; LANES]];

impl State<'_> {
    pub fn load(&mut self, warp: &mut Warp, load: &Load, active: u32, at: u32) -> Result<(), Box<Fault>> {
        let addresses = addresses(&warp.registers, &load.address);
        let count = load.targets.len();
        let mut values = [[0; LANES]; 8];
        let request = Request {
            addresses: &addresses,
            mask: active,
            size: load.size,
            bytes: load.size * count as u32,
            order: load.order,
            kind: kind(load.order, load.address.space, load.reads_flag, false),
            is_strong: load.reads_flag,
            reads: true,
            at,
            warp: warp.index,
            time: self.time(warp),
        };
        self.begin(&request);
        self.read(warp, &request, load.address.space, &mut values[..count])?;
        if load.order != Order::Weak {
            let first = active.trailing_zeros() as usize;
            warp.poll(at, addresses[first], values[0][first]);
            self.synchronise(&request, load.address.space, load.scope, [false, true]);
        }
        let shift = 64 - 8 * load.size;
        for (target, values) in load.targets.iter().zip(&mut values) {
            if load.signed && shift > 0 {
                for value in values.iter_mut() {
                    *value = ((*value << shift) as i64 >> shift) as u64;
                }
            }
            warp.registers.set_wide(*target, values, active);
        }
        Ok(())
    }

    pub fn store(&mut self, warp: &mut Warp, store: &Store, active: u32, at: u32) -> Result<(), Box<Fault>> {
        let addresses = addresses(&warp.registers, &store.address);
        let count = store.sources.len();
        let mut values = [[0; LANES]; 8];
        for (values, source) in values.iter_mut().zip(&store.sources) {
            *values = warp.registers.wide(*source);
        }
        let request = Request {
            addresses: &addresses,
            mask: active,
            size: store.size,
            bytes: store.size * count as u32,
            order: store.order,
            kind: kind(store.order, store.address.space, true, true),
            is_strong: true,
            reads: false,
            at,
            warp: warp.index,
            time: self.time(warp),
        };
        self.begin(&request);
        if store.order != Order::Weak {
            self.synchronise(&request, store.address.space, store.scope, [true, false]);
        }
        self.write(warp, &request, store.address.space, &values[..count])
    }

    /// Reads `bytes` (a power of two) at a generic address of one lane, for `printf` and `assert`.
    #[cold]
    pub fn peek(
        &mut self,
        warp: &mut Warp,
        lane: usize,
        (address, bytes): (u64, u32),
        at: u32,
    ) -> Result<u64, Box<Fault>> {
        let mut values = [[0; LANES]];
        let addresses = [address; LANES];
        let request = self.weak_read(warp, (&addresses, 1 << lane), (bytes, 1), at);
        self.begin(&request);
        self.read(warp, &request, Space::Generic, &mut values)?;
        Ok(values[0][lane])
    }

    /// A weak load of `count` elements of `size` bytes per lane.
    pub fn weak_read<'a>(
        &self,
        warp: &Warp,
        (addresses, mask): (&'a [u64; LANES], u32),
        (size, count): (u32, u32),
        at: u32,
    ) -> Request<'a> {
        Request {
            addresses,
            mask,
            size,
            bytes: size * count,
            order: Order::Weak,
            kind: Kind::Read,
            is_strong: false,
            reads: true,
            at,
            warp: warp.index,
            time: self.time(warp),
        }
    }

    /// The warp's clock; 0 if the checks are off.
    fn time(&self, warp: &Warp) -> u32 {
        self.checks.as_ref().map_or(0, |checks| checks.clocks.time[warp.index as usize])
    }

    pub fn begin(&mut self, request: &Request) {
        if let Some(checks) = &mut self.checks {
            checks.log.begin(request.at, request.warp as usize, request.addresses, request.mask);
        }
    }

    /// The addresses in shared memory of what lanes name in `.shared` or generically, `bytes` (a power of
    /// two) each, aligned. A fault if they are elsewhere.
    #[cold]
    pub fn words(
        &self,
        warp: &Warp,
        address: &Address,
        (active, bytes): (u32, u32),
        at: u32,
    ) -> Result<[u64; LANES], Box<Fault>> {
        let mut addresses = addresses(&warp.registers, address);
        if address.space == Space::Generic {
            addresses = self.offsets(Space::Shared, &addresses, warp.index);
        }
        let request = self.weak_read(warp, (&addresses, active), (bytes, 1), at);
        self.site.check_range(&request, self.site.grid.shared_bytes as u64, Where::Shared)?;
        Ok(addresses)
    }

    /// Checks plain stores of 8 bytes to shared memory, which the caller makes.
    #[cold]
    pub fn write_words(
        &mut self,
        warp: &Warp,
        (addresses, active): (&[u64; LANES], u32),
        at: u32,
    ) -> Result<(), Box<Fault>> {
        let request = self.weak_read(warp, (addresses, active), (8, 1), at);
        self.check_shared(&Request { kind: Kind::Write, reads: false, ..request }, &[]).map(drop)
    }

    /// Splits the lanes of a generic access by the memory that they address.
    fn by_window(addresses: &[u64; LANES], mask: u32) -> [(Space, u32); 4] {
        let mut found = [(Space::Global, 0), (Space::Shared, 0), (Space::Local, 0), (Space::Param, 0)];
        let windows = [(SHARED_WINDOW, WINDOW), (LOCAL_WINDOW, LOCAL_WINDOWS), (PARAM_WINDOW, WINDOW)];
        for lane in lanes(mask) {
            let inside = |&(start, bytes): &(u64, u64)| addresses[lane].wrapping_sub(start) < bytes;
            found[windows.iter().position(inside).map_or(0, |place| place + 1)].1 |= 1 << lane;
        }
        found
    }

    /// Converts generic addresses to offsets in `space`. Local offsets start at each thread's own memory.
    fn offsets(&self, space: Space, addresses: &[u64; LANES], warp: u32) -> [u64; LANES] {
        let starts = match space {
            Space::Shared => [SHARED_WINDOW; LANES],
            Space::Local => self.site.grid.local_windows(warp, self.site.number),
            Space::Param => [PARAM_WINDOW; LANES],
            Space::Generic | Space::Global => return *addresses,
        };
        std::array::from_fn(|lane| addresses[lane].wrapping_sub(starts[lane]))
    }

    pub fn read(
        &mut self,
        warp: &mut Warp,
        request: &Request,
        space: Space,
        values: &mut Values,
    ) -> Result<(), Box<Fault>> {
        match space {
            Space::Generic => {
                for (space, mask) in Self::by_window(request.addresses, request.mask) {
                    if mask != 0 {
                        let addresses = self.offsets(space, request.addresses, request.warp);
                        let part = request.part(space, &addresses, mask);
                        self.read(warp, &part, space, values)?;
                    }
                }
                Ok(())
            }
            Space::Global => {
                self.counters.global_load_requests += 1;
                let (sectors, partly) = self.check_global(request)?;
                self.counters.global_load_sectors += sectors;
                // SAFETY: `check_global` found the lanes' bytes aligned and inside allocations that the
                // launch holds.
                unsafe { read_global(request, values) };
                if partly != 0 && values.len() > 1 {
                    self.read_unwritten(warp, request, (partly, Where::Global), values.len());
                }
                Ok(())
            }
            Space::Shared => {
                self.counters.shared_load_requests += 1;
                self.counters.shared_load_conflicts +=
                    bank_conflicts(request.addresses, request.mask, request.bytes);
                let unwritten = self.check_shared(request, &[])?;
                copy_out(&self.site.shared, request, values);
                if unwritten != 0 {
                    self.read_unwritten(warp, request, (unwritten, Where::Shared), values.len());
                }
                Ok(())
            }
            Space::Local => self.read_local(warp, request, values),
            Space::Param => {
                // The parameters of a called function lie in local memory, which the address names
                // generically.
                if request.addresses[request.mask.trailing_zeros() as usize] >= WINDOW {
                    return self.read(warp, request, Space::Generic, values);
                }
                let params = self.site.grid.launch.params;
                self.site.check_range(request, params.len() as u64, Where::Param)?;
                copy_out(params, request, values);
                Ok(())
            }
        }
    }

    pub fn write(
        &mut self,
        warp: &mut Warp,
        request: &Request,
        space: Space,
        values: &Values,
    ) -> Result<(), Box<Fault>> {
        match space {
            Space::Generic => {
                for (space, mask) in Self::by_window(request.addresses, request.mask) {
                    if mask != 0 {
                        let addresses = self.offsets(space, request.addresses, request.warp);
                        let part = request.part(space, &addresses, mask);
                        self.write(warp, &part, space, values)?;
                    }
                }
                Ok(())
            }
            Space::Global => {
                self.counters.global_store_requests += 1;
                self.counters.global_store_sectors += self.check_global(request)?.0;
                self.check_defined(warp, request.size, request.mask, request.at)?;
                self.check_clash(request, values, Where::Global)?;
                if let Some(checks) = &mut self.checks
                    && request.kind == Kind::Write
                {
                    // SAFETY: as for the store below.
                    let changed = unsafe { changed_global(request, values) };
                    checks.log.changed(changed, || self.site.grid.next_order() - 1);
                }
                // SAFETY: `check_global` found the lanes' bytes aligned and inside allocations that the
                // launch holds.
                unsafe { write_global(request, values) };
                self.mark_global(request);
                Ok(())
            }
            Space::Shared => {
                self.counters.shared_store_requests += 1;
                self.counters.shared_store_conflicts +=
                    bank_conflicts(request.addresses, request.mask, request.bytes);
                self.check_shared(request, values)?;
                self.check_clash(request, values, Where::Shared)?;
                copy_in(&mut self.site.shared, request, values);
                if self.wide.is_some() {
                    self.write_undefined(warp, request, values.len());
                }
                Ok(())
            }
            Space::Local => self.write_local(warp, request, values),
            Space::Param => {
                if request.addresses[request.mask.trailing_zeros() as usize] >= WINDOW {
                    return self.write(warp, request, Space::Generic, values);
                }
                Err(self.site.out_of_bounds(
                    request,
                    request.mask,
                    Where::Param,
                    "parameters cannot be written".to_owned(),
                ))
            }
        }
    }

    // Not inlined, to keep the common path of loads and stores small.
    #[inline(never)]
    fn read_local(&self, warp: &mut Warp, request: &Request, values: &mut Values) -> Result<(), Box<Fault>> {
        let places = self.site.check_local(request, warp)?;
        let (offsets, request) = (request.addresses, Request { addresses: &places, ..*request });
        copy_out(&warp.local, &request, values);
        if self.checks.is_none() || self.carry_of(request.at).is_none() {
            return Ok(());
        }
        for (element, void) in warp.void[..values.len()].iter_mut().enumerate() {
            for lane in lanes(request.mask) {
                // A partly defined value counts as defined: the program may use only that part.
                if !warp.defined[request.range(lane, element)].contains(&true) {
                    if void.lanes == 0 {
                        let offset = offsets[lane] + element as u64 * u64::from(request.size);
                        void.from = Some((Where::Local, offset));
                    }
                    void.lanes |= 1 << lane;
                }
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn write_local(&self, warp: &mut Warp, request: &Request, values: &Values) -> Result<(), Box<Fault>> {
        let places = self.site.check_local(request, warp)?;
        let request = Request { addresses: &places, ..*request };
        copy_in(&mut warp.local, &request, values);
        for (element, void) in warp.void[..values.len()].iter().enumerate() {
            for lane in lanes(request.mask) {
                warp.defined[request.range(lane, element)].fill(void.lanes >> lane & 1 == 0);
            }
        }
        Ok(())
    }

    pub fn atomic(
        &mut self,
        warp: &mut Warp,
        atomic: &Atomic,
        active: u32,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        let addresses = addresses(&warp.registers, &atomic.address);
        let count = atomic.b.len();
        let (mut b, mut old) = ([[0; LANES]; 8], [[0; LANES]; 8]);
        for (b, register) in b.iter_mut().zip(&atomic.b) {
            *b = warp.registers.wide(*register);
        }
        let c = warp.registers.wide(atomic.c);
        self.counters.atomic_operations += u64::from(active.count_ones());
        let request = Request {
            addresses: &addresses,
            mask: active,
            size: atomic.size,
            bytes: atomic.size * count as u32,
            order: atomic.order,
            kind: Kind::AtomicWrite,
            is_strong: false,
            reads: true,
            at,
            warp: warp.index,
            time: self.time(warp),
        };
        self.begin(&request);
        self.synchronise(&request, atomic.address.space, atomic.scope, [true, false]);
        let parts = match atomic.address.space {
            Space::Generic => Self::by_window(&addresses, active),
            space => [(space, active), (space, 0), (space, 0), (space, 0)],
        };
        for (space, mask) in parts {
            if mask == 0 {
                continue;
            }
            let addresses = match atomic.address.space {
                Space::Generic => self.offsets(space, &addresses, warp.index),
                _ => addresses,
            };
            let request = Request { addresses: &addresses, mask, ..request };
            match space {
                Space::Global => {
                    self.counters.global_atomic_requests += 1;
                    self.check_global(&request)?;
                    let update = atomic.update_global.as_ref().unwrap_or(&atomic.update);
                    for (element, (old, b)) in old.iter_mut().zip(&b).take(count).enumerate() {
                        let offset = element as u64 * u64::from(atomic.size);
                        for lane in lanes(mask) {
                            let update = |old| update(old, b[lane], c[lane]);
                            // SAFETY: `check_global` found the lane's bytes aligned and inside an allocation
                            // that the launch holds.
                            old[lane] =
                                unsafe { update_global(addresses[lane] + offset, atomic.size, update) };
                        }
                    }
                    self.mark_global(&request);
                }
                // PTX has vector atomics only for global memory.
                Space::Shared if count == 1 => {
                    self.counters.shared_atomic_requests += 1;
                    let unwritten = self.check_shared(&request, &[])?;
                    if unwritten != 0 {
                        self.suspect_unwritten(&request, unwritten, Where::Shared);
                    }
                    let mut values = [[0; LANES]];
                    for lane in lanes(mask) {
                        let one = Request { mask: 1 << lane, ..request };
                        copy_out(&self.site.shared, &one, &mut values);
                        old[0][lane] = values[0][lane];
                        values[0][lane] = (atomic.update)(old[0][lane], b[0][lane], c[lane]);
                        copy_in(&mut self.site.shared, &one, &values);
                    }
                }
                _ => {
                    let (text, memory) = match space {
                        Space::Shared => ("vector atomics work only in global memory", Where::Shared),
                        _ => ("atomics work only in global and shared memory", Where::Local),
                    };
                    return Err(self.site.out_of_bounds(&request, mask, memory, text.to_owned()));
                }
            }
        }
        self.synchronise(&request, atomic.address.space, atomic.scope, [false, true]);
        let first = active.trailing_zeros() as usize;
        warp.poll(at, addresses[first], old[0][first]);
        for (target, old) in atomic.targets.iter().zip(&old) {
            warp.registers.set_wide(*target, old, active);
        }
        Ok(())
    }

    /// Runs `cp.async`. Copies the bytes at once; the checks forbid their use until the copy has been waited
    /// for.
    #[cold]
    pub fn copy(
        &mut self,
        warp: &mut Warp,
        copy: &AsyncCopy,
        active: u32,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        let (from, to) = (addresses(&warp.registers, &copy.from), addresses(&warp.registers, &copy.to));
        let wanted = copy.reads.map_or([copy.size.into(); LANES], |register| warp.registers.wide(register));
        let ignored = copy.ignores.map_or(0, |(register, negated)| {
            warp.registers.predicate[register.index as usize] ^ if negated { ALL } else { 0 }
        });
        let too_many = collect(|lane| wanted[lane] > copy.size.into()) & active;
        if too_many != 0 {
            let count = wanted[too_many.trailing_zeros() as usize];
            let text = format!("`cp.async` reads {count} bytes but copies only {}", copy.size);
            return Err(self.site.fault(warp.index, at, too_many, FaultKind::CopyOperand(text)));
        }
        let size = copy.size.min(8);
        let count = copy.size / size;
        let mut values = [[0; LANES]; 2];
        let values = &mut values[..count as usize];
        let whole = collect(|lane| wanted[lane] == copy.size.into()) & active & !ignored;
        let request = self.weak_read(warp, (&from, whole), (size, count), at);
        self.begin(&request);
        if request.mask != 0 {
            self.read(warp, &request, Space::Global, values)?;
        }
        // Partial reads go byte by byte: only the bytes that are read must be in an allocation.
        let part = collect(|lane| wanted[lane] != 0) & active & !ignored & !request.mask;
        if part != 0 {
            self.site.check_aligned(&Request { mask: part, ..request }, Where::Global)?;
            let mut counters = self.counters;
            counters.global_load_requests += u64::from(request.mask == 0);
            counters.global_load_sectors += sectors(&from, part, 1);
            for lane in lanes(part) {
                for byte in 0..wanted[lane] {
                    let (address, mut value) = ([from[lane].wrapping_add(byte); LANES], [[0; LANES]]);
                    let one = Request { addresses: &address, mask: 1 << lane, size: 1, bytes: 1, ..request };
                    self.read(warp, &one, Space::Global, &mut value)?;
                    values[byte as usize / 8][lane] |= value[0][lane] << (8 * (byte % 8));
                }
            }
            self.counters = counters;
        }
        let records =
            self.checks.as_mut().map_or_else(Vec::new, |checks| checks.log.suspend(warp.index as usize));
        let request = Request { addresses: &to, mask: active, ..request }.stored();
        self.write(warp, &request, Space::Shared, values)?;
        if let Some(checks) = &mut self.checks {
            for lane in lanes(active) {
                checks.shadow.suspend(to[lane] as usize, copy.size as usize);
            }
            let (group, serial) = (warp.groups, checks.serial);
            warp.copies.push(InFlight { lanes: active, to, bytes: copy.size, group, at, serial, records });
        }
        Ok(())
    }

    /// Records what an access orders. The caller calls this before the access with `[true, false]`, and after
    /// it with `[false, true]`. A release must get its place in the order of all events before other threads
    /// can see the access; an acquire must get it after the access saw theirs.
    fn synchronise(&mut self, request: &Request, space: Space, scope: Scope, [before, after]: [bool; 2]) {
        let grid = self.site.grid;
        let Some(checks) = &mut self.checks else { return };
        let order = request.order;
        if !(order.acquires() || order.releases() || grid.fences) {
            return;
        }
        // A `volatile` access gets here only if the kernel has fences, and then orders in every memory.
        let atomic = request.kind.is_atomic() || order == Order::Volatile && space == Space::Generic;
        if !atomic {
            return;
        }
        let warp = request.warp as usize;
        for lane in lanes(request.mask) {
            // Shared memory has two addresses, plain and generic. Use the generic one. No other block sees
            // it.
            let address = match space {
                Space::Shared => request.addresses[lane].wrapping_add(SHARED_WINDOW),
                _ => request.addresses[lane],
            };
            let device = scope != Scope::Block && address.wrapping_sub(SHARED_WINDOW) >= WINDOW;
            let who = (warp, lane as u8);
            if before && order.releases() {
                if device {
                    checks.log.event(&checks.clocks, true, address, grid.next_order(), who);
                }
                checks.clocks.release(warp, lane as u8, address);
            } else if before && grid.fences {
                if device {
                    checks.log.relaxed_write(&checks.clocks, address, grid.next_order(), who);
                }
                checks.clocks.relaxed_write(warp, lane as u8, address);
            }
            if after && order.acquires() {
                if device {
                    checks.log.event(&checks.clocks, false, address, grid.next_order(), who);
                }
                checks.clocks.acquire(warp, lane as u8, address);
            } else if after && grid.fences {
                if device {
                    checks.log.relaxed_read(address, grid.next_order(), who);
                }
                checks.clocks.relaxed_read(warp, lane as u8, address);
            }
        }
    }

    /// Checks bounds, alignment, constant memory and unwritten bytes, and logs the access. Returns the number
    /// of sectors touched, and the lanes that read bytes of which some are written and some not: a struct
    /// with padding, perhaps.
    pub fn check_global(&mut self, request: &Request) -> Result<(u64, u32), Box<Fault>> {
        let contiguous = request.is_contiguous();
        self.site.check_global(request, contiguous)?;
        let partly =
            if self.checks.is_some() && request.reads { self.find_unwritten(request, contiguous) } else { 0 };
        if let Some(checks) = &mut self.checks {
            let accessed = Accessed {
                addresses: request.addresses,
                mask: request.mask,
                bytes: request.bytes,
                kind: request.kind,
                at: request.at,
                warp: request.warp as usize,
                time: request.time,
            };
            // Operations on a place follow one another, so each counts: the race search tells what came
            // before the last.
            let is_operation = request.kind == Kind::AtomicWrite && request.reads;
            let grid = self.site.grid;
            let stamp = if is_operation { grid.next_order() - 1 } else { grid.order() };
            checks.log.access(&checks.clocks, stamp, &accessed);
        }
        let sectors = if contiguous {
            let first = request.addresses[0];
            (first + u64::from(request.bytes) * LANES as u64 - 1) / 32 - first / 32 + 1
        } else {
            sectors(request.addresses, request.mask, request.bytes)
        };
        Ok((sectors, partly))
    }

    /// Suspects the lanes that read global memory that nothing wrote. Returns those that read bytes of which
    /// some are written.
    fn find_unwritten(&mut self, request: &Request, contiguous: bool) -> u32 {
        let bytes = u64::from(request.bytes);
        let allocation = |address, bytes| {
            self.site.allocation(address, bytes).map(|place| &self.site.grid.allocations[place])
        };
        if contiguous
            && let Some(allocation) = allocation(request.addresses[0], bytes * LANES as u64)
            && allocation.is_written(request.addresses[0], bytes * LANES as u64)
        {
            return 0;
        }
        let (mut unwritten, mut partly) = (0, 0);
        for lane in lanes(request.mask) {
            let address = request.addresses[lane];
            let Some(allocation) = allocation(address, bytes) else { continue };
            if !allocation.is_written(address, bytes) {
                let found =
                    if allocation.is_partly_written(address, bytes) { &mut partly } else { &mut unwritten };
                *found |= 1 << lane;
            }
        }
        if unwritten != 0 {
            self.suspect_unwritten(request, unwritten, Where::Global);
        }
        partly
    }

    fn mark_global(&mut self, request: &Request) {
        if self.checks.is_none() {
            return;
        }
        let bytes = u64::from(request.bytes);
        let first = request.addresses[0];
        if request.is_contiguous()
            && let Some(place) = self.site.allocation(first, bytes * LANES as u64)
        {
            self.site.grid.allocations[place].mark_written(first, bytes * LANES as u64);
            return;
        }
        for lane in lanes(request.mask) {
            if let Some(place) = self.site.allocation(request.addresses[lane], bytes) {
                self.site.grid.allocations[place].mark_written(request.addresses[lane], bytes);
            }
        }
    }

    /// Checks bounds, alignment, unwritten bytes and races in shared memory. `values` are those of a store.
    /// Returns the lanes that read what nothing wrote.
    pub fn check_shared(&mut self, request: &Request, values: &Values) -> Result<u32, Box<Fault>> {
        let reserved = &self.site.grid.reserved;
        let is_reserved = |lane: usize| {
            let within = request.addresses[lane].checked_sub(reserved.start as u64);
            within.is_some_and(|at| at <= (reserved.len() as u64).saturating_sub(request.bytes.into()))
        };
        if reserved.is_empty() || !lanes(request.mask).all(is_reserved) {
            self.site.check_range(request, self.site.grid.shared_bytes as u64, Where::Shared)?;
        }
        if self.checks.is_some()
            && let Some(array) = self.site.grid.code.arrays.of(request.at)
        {
            self.check_array(request, array)?;
        }
        let Some(checks) = &mut self.checks else { return Ok(0) };
        checks.serial += 1;
        let (bytes, warp) = (request.bytes as usize, request.warp as usize);
        let moment = Moment {
            time: request.time,
            at: request.at,
            serial: checks.serial,
            warp: warp as u8,
            lane: 0,
            kind: request.kind,
            size: request.size as u8,
        };
        let (mut unwritten, mut racing) = (0, 0);
        for lane in lanes(request.mask) {
            let address = request.addresses[lane] as usize;
            let now = Moment { lane: lane as u8, ..moment };
            if checks.shadow.access(&checks.clocks, now, address, bytes).is_some() {
                racing |= 1 << lane;
            }
            if request.reads && !checks.shadow.is_written(address, bytes) {
                unwritten |= 1 << lane;
            }
            if request.kind.writes() {
                checks.shadow.mark_written(address, bytes);
            }
        }
        for lane in lanes(racing) {
            self.judge_races(request, values, Moment { lane: lane as u8, ..moment })?;
        }
        Ok(unwritten)
    }

    /// Records which values that lanes have read from shared or global memory are undefined.
    #[cold]
    fn read_unwritten(
        &mut self,
        warp: &mut Warp,
        request: &Request,
        (mask, memory): (u32, Where),
        count: usize,
    ) {
        let operation = &self.site.grid.code.instructions[request.at as usize].operation;
        // (`printf` uses what it reads.)
        if !matches!(operation, Operation::Load(_) | Operation::Matrix(_)) || !self.widen() {
            return self.suspect_unwritten(request, mask, memory);
        }
        self.follow(warp);
        let Some(checks) = &self.checks else { return };
        // A partly defined value counts as defined: the program may use only that part.
        let is_partly_written = |at: usize, bytes: usize| match memory {
            Where::Shared => checks.shadow.is_partly_written(at, bytes),
            _ => {
                let place = self.site.allocation(at as u64, bytes as u64);
                place.is_none_or(|place| {
                    self.site.grid.allocations[place].is_partly_written(at as u64, bytes as u64)
                })
            }
        };
        for (element, void) in warp.void[..count].iter_mut().enumerate() {
            for lane in lanes(mask) {
                let range = request.range(lane, element);
                if !is_partly_written(range.start, range.len()) {
                    if void.lanes == 0 {
                        void.from = Some((memory, range.start as u64));
                        void.origin = match memory {
                            Where::Shared => self.stored_undefined.get(&range.start).copied(),
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
    fn write_undefined(&mut self, warp: &Warp, request: &Request, count: usize) {
        let Some(carry) = self.carry_of(request.at) else { return };
        let Some(checks) = &mut self.checks else { return };
        for (element, void) in warp.void[..count].iter().enumerate() {
            for lane in lanes(void.lanes & request.mask) {
                let range = request.range(lane, element);
                checks.shadow.mark_unwritten(range.start, range.len());
                if let Some(origin) = void.origin.or_else(|| warp.origin_of_stored(carry, element)) {
                    self.stored_undefined.insert(range.start, origin);
                }
            }
        }
    }

    /// Checks that an access whose address comes from one shared array stays in it.
    fn check_array(&mut self, request: &Request, array: &Array) -> Result<(), Box<Fault>> {
        let (start, end) = (array.range.start, array.range.end);
        let mut mask = 0;
        for (lane, &address) in request.addresses.iter().enumerate() {
            mask |= u32::from(address < start || address.saturating_add(request.bytes.into()) > end) << lane;
        }
        if mask & request.mask == 0 { Ok(()) } else { self.out_of_array(request, mask & request.mask, array) }
    }

    #[cold]
    fn out_of_array(&mut self, request: &Request, mask: u32, array: &Array) -> Result<(), Box<Fault>> {
        let pair = (Conflict::Race, request.at, request.at);
        if self.site.reports.is_settled(pair) {
            return Ok(());
        }
        let shown = |array: &Array| readable(&array.name).unwrap_or_else(|| array.name.clone());
        let access = self.site.access(request, mask, Where::Shared);
        let near = match self.site.grid.code.arrays.at(access.address) {
            Some(other) => {
                format!("this is byte {} of `{}`", access.address - other.range.start, shown(other))
            }
            None => "no array is there".to_owned(),
        };
        let kind = FaultKind::OutOfArray { access, array: shown(array), bytes: array.range.clone(), near };
        let fault = self.site.fault(request.warp, request.at, mask, kind);
        self.site.reports.settle(self.site.grid, pair, fault)
    }

    /// Reports the races of a lane's access to shared memory. Records the access if none is a fault.
    #[cold]
    fn judge_races(&mut self, request: &Request, values: &Values, now: Moment) -> Result<(), Box<Fault>> {
        let (address, bytes) = (request.addresses[now.lane as usize] as usize, request.bytes as usize);
        let Some(checks) = &self.checks else { return Ok(()) };
        for (range, before) in checks.shadow.races(&checks.clocks, now, address, bytes) {
            let conflict = self.conflict(request, values, (range, before), now);
            let pair = (conflict, before.at, now.at);
            if !self.site.reports.is_settled(pair) {
                let fault = self.race(request, conflict, before, now.lane);
                self.site.reports.settle(self.site.grid, pair, fault)?;
            }
        }
        if let Some(checks) = &mut self.checks {
            checks.shadow.record(&checks.clocks, now, address, bytes);
        }
        Ok(())
    }

    /// Says why a lane's access to shared memory conflicts with an earlier access to these bytes.
    fn conflict(
        &self,
        request: &Request,
        values: &Values,
        (range, before): (Range<usize>, Moment),
        now: Moment,
    ) -> Conflict {
        if before.is_in_flight() {
            return match self.site.grid.code.instructions[before.at as usize].operation {
                Operation::Mbarrier(_) => Conflict::MbarrierWord,
                _ => Conflict::Unfinished,
            };
        }
        let starts_swap = |at: u32| match &self.site.grid.code.instructions[at as usize].operation {
            Operation::Load(load) => load.starts_swap,
            _ => false,
        };
        match [before.kind, now.kind] {
            [Kind::Write, Kind::Write] => {
                let (size, lane) = (request.size as usize, now.lane as usize);
                let start = request.addresses[lane] as usize;
                let has_atomic = |at| self.checks.as_ref().is_some_and(|checks| checks.shadow.has_atomic(at));
                let is_same = |at: usize| {
                    let (element, byte) = ((at - start) / size, (at - start) % size);
                    values
                        .get(element)
                        .is_some_and(|values| (values[lane] >> (8 * byte)) as u8 == self.site.shared[at])
                };
                let is_same = !has_atomic(range.start) && range.clone().all(is_same);
                if is_same { Conflict::SameValue } else { Conflict::Race }
            }
            [Kind::AtomicWrite, Kind::Read] if starts_swap(now.at) => Conflict::SwapRead,
            [Kind::Read, Kind::AtomicWrite] if starts_swap(before.at) => Conflict::SwapRead,
            _ => Conflict::Race,
        }
    }

    fn race(&self, request: &Request, conflict: Conflict, before: Moment, lane: u8) -> Box<Fault> {
        let place = (request.addresses[lane as usize], request.bytes);
        let earlier = Request { kind: before.kind, ..*request };
        let first = self.site.describe(earlier.action(), Where::Shared, place, before.thread());
        let second = self.site.describe(
            request.action(),
            Where::Shared,
            place,
            (request.warp, lane.into(), request.at),
        );
        self.site.fault(request.warp, request.at, 1 << lane, conflict.kind(first, second))
    }

    /// Checks that no two lanes of one store write different values to the same place. Of a relaxed store
    /// they may: each is atomic.
    fn check_clash(&mut self, request: &Request, values: &Values, memory: Where) -> Result<(), Box<Fault>> {
        if self.checks.is_none() || request.kind.is_atomic() || request.is_contiguous() {
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
            let low = super::lanes::low(8 * request.size);
            let differ = values.iter().any(|values| (values[a] ^ values[b]) & low != 0);
            if address == other && differ {
                let describe = |lane: usize| {
                    let place = (address, request.bytes);
                    self.site.describe(Action::Write, memory, place, (request.warp, lane as u32, request.at))
                };
                let kind = FaultKind::Race { first: describe(a), second: describe(b) };
                let fault = self.site.fault(request.warp, request.at, 1 << a | 1 << b, kind);
                let pair = (Conflict::Race, request.at, request.at);
                return self.site.reports.settle(self.site.grid, pair, fault);
            }
        }
        Ok(())
    }

    /// Records a read of unwritten memory. The block runs on: if another thread wrote there without
    /// synchronisation, the race is the real fault, and the unwritten read only its symptom.
    fn suspect_unwritten(&mut self, request: &Request, mask: u32, memory: Where) {
        let access = self.site.access(request, mask, memory);
        let fault = self.site.fault(request.warp, request.at, mask, FaultKind::Unwritten(access));
        self.site.suspect(fault);
    }
}

/// The access as the race checks see it. `volatile` counts as atomic in global memory; in shared memory only
/// if it `is_strong`.
fn kind(order: Order, space: Space, is_strong: bool, writes: bool) -> Kind {
    let strong = match order {
        Order::Weak => false,
        Order::Volatile => space == Space::Global || space == Space::Shared && is_strong,
        _ => true,
    };
    match (strong, writes) {
        (false, false) => Kind::Read,
        (false, true) => Kind::Write,
        (true, false) => Kind::AtomicRead,
        (true, true) => Kind::AtomicWrite,
    }
}

pub fn addresses(registers: &Registers, address: &Address) -> [u64; LANES] {
    let offset = address.offset;
    match address.base {
        None => [offset; LANES],
        Some(base) if base.bank == Bank::Word => {
            registers.word[base.index as usize].map(|base| u64::from(base.wrapping_add(offset as u32)))
        }
        Some(base) => registers.wide(base).map(|base| base.wrapping_add(offset)),
    }
}
