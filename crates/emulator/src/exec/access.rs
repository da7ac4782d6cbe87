//! Loads, stores and atomics.

use std::ops::Range;

use crate::{
    fault::{Action, Fault, Memory as Where},
    program::code::{
        Address, Atomic, LOCAL_WINDOW, LOCAL_WINDOWS, Load, Order, PARAM_WINDOW, SHARED_WINDOW, Space, Store,
        WINDOW,
    },
};

use super::{
    block::State,
    bytes::{copy_in, copy_out, read_global, update_global, write_global},
    hooks::Hooks,
    lanes::{ALL, Bank, LANES, Registers, lanes},
    site::Site,
    warp::Warp,
};

/// An access by some lanes of a warp.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub addresses: &'a [u64; LANES],
    pub mask: u32,
    /// The memory that the addresses name.
    pub space: Space,
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
    /// Whether all lanes take part and their bytes are consecutive. Known in global and shared memory.
    pub contiguous: bool,
    pub count: Count,
    pub at: u32,
    pub warp: u32,
}

/// How an access counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// As a request of its instruction.
    Request,
    /// As the rest of a request.
    Rest,
    /// Not at all.
    Nothing,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    AtomicRead,
    AtomicWrite,
}

impl Kind {
    pub fn is_atomic(self) -> bool {
        matches!(self, Kind::AtomicRead | Kind::AtomicWrite)
    }

    pub fn writes(self) -> bool {
        matches!(self, Kind::Write | Kind::AtomicWrite)
    }
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
        Request { addresses, mask, space, kind, ..*self }
    }

    /// The first lane's address.
    pub fn first(&self) -> u64 {
        self.addresses[self.mask.trailing_zeros() as usize]
    }

    /// The bytes that the access covers without a gap from its first address on: all lanes' if they are
    /// contiguous, else one lane's.
    pub fn whole(&self) -> u64 {
        let lanes = if self.contiguous { LANES as u64 } else { 1 };
        u64::from(self.bytes) * lanes
    }

    /// The elements of a lane.
    pub fn elements(&self) -> usize {
        (self.bytes / self.size) as usize
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

    /// The memory, as faults name it.
    pub fn memory(&self) -> Where {
        match self.space {
            Space::Generic | Space::Global => Where::Global,
            Space::Shared => Where::Shared,
            Space::Local => Where::Local,
            Space::Param => Where::Param,
        }
    }

    /// Finds whether the access is contiguous.
    fn measured(&self) -> Self {
        let first = self.addresses[0];
        let bytes = u64::from(self.bytes);
        let mut differs = 0;
        for (lane, &address) in self.addresses.iter().enumerate() {
            differs |= address ^ first.wrapping_add(lane as u64 * bytes);
        }
        Request { contiguous: differs == 0 && self.mask == ALL, ..*self }
    }
}

/// Values by element, then by lane.
pub type Values = [[u64; LANES]];

/// A weak load of `count` elements of `size` bytes per lane.
pub fn weak_read<'a>(
    warp: &Warp,
    (space, addresses, mask): (Space, &'a [u64; LANES], u32),
    (size, count): (u32, u32),
    at: u32,
) -> Request<'a> {
    Request {
        addresses,
        mask,
        space,
        size,
        bytes: size * count,
        order: Order::Weak,
        kind: Kind::Read,
        is_strong: false,
        reads: true,
        contiguous: false,
        count: Count::Request,
        at,
        warp: warp.index,
    }
}

impl State<'_> {
    pub fn load(&mut self, warp: &mut Warp, load: &Load, active: u32, at: u32) -> Result<(), Box<Fault>> {
        let addresses = addresses(&warp.registers, &load.address);
        let space = load.address.space;
        let count = load.targets.len();
        let mut values = [[0; LANES]; 8];
        let request = Request {
            order: load.order,
            kind: kind(load.order, space, load.reads_flag, false),
            is_strong: load.reads_flag,
            ..weak_read(warp, (space, &addresses, active), (load.size, count as u32), at)
        };
        self.hooks.begin(&request);
        self.read(warp, &request, &mut values[..count])?;
        if load.order != Order::Weak {
            let first = active.trailing_zeros() as usize;
            warp.poll(at, addresses[first], values[0][first]);
            self.hooks.acquire(&self.site, &request, load.scope);
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
        self.hooks.loaded(&self.site, warp, load, at);
        Ok(())
    }

    pub fn store(&mut self, warp: &mut Warp, store: &Store, active: u32, at: u32) -> Result<(), Box<Fault>> {
        let addresses = addresses(&warp.registers, &store.address);
        let space = store.address.space;
        let count = store.sources.len();
        let mut values = [[0; LANES]; 8];
        for (values, source) in values.iter_mut().zip(&store.sources) {
            *values = warp.registers.wide(*source);
        }
        let request = Request {
            order: store.order,
            kind: kind(store.order, space, true, true),
            is_strong: true,
            reads: false,
            ..weak_read(warp, (space, &addresses, active), (store.size, count as u32), at)
        };
        self.hooks.begin(&request);
        if store.order != Order::Weak {
            self.hooks.release(&self.site, &request, store.scope);
        }
        self.write(warp, &request, &values[..count])?;
        self.hooks.stored(warp);
        Ok(())
    }

    /// Reads `bytes` (a power of two) at a generic address of one lane, for `printf` and `assert`.
    ///
    /// On a GPU the host reads these texts, so the reads do not count as the kernel's.
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
        let request = weak_read(warp, (Space::Generic, &addresses, 1 << lane), (bytes, 1), at);
        let request = Request { count: Count::Nothing, ..request };
        self.hooks.begin(&request);
        self.read(warp, &request, &mut values)?;
        Ok(values[0][lane])
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
            addresses = offsets(&self.site, Space::Shared, &addresses, warp.index);
        }
        let request = weak_read(warp, (Space::Shared, &addresses, active), (bytes, 1), at);
        self.site.check_range(&request, self.site.grid.shared_bytes as u64)?;
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
        let request = weak_read(warp, (Space::Shared, addresses, active), (8, 1), at).stored();
        let request = Request { count: Count::Nothing, ..request };
        self.hooks.begin(&request);
        self.site.check_shared(&request)?;
        self.hooks.before(&mut self.site, warp, &request, &[])?;
        self.hooks.after(&mut self.site, warp, &request);
        Ok(())
    }

    pub fn read(
        &mut self,
        warp: &mut Warp,
        request: &Request,
        values: &mut Values,
    ) -> Result<(), Box<Fault>> {
        match request.space {
            Space::Generic => {
                for (space, mask) in by_window(request.addresses, request.mask) {
                    if mask != 0 {
                        let addresses = offsets(&self.site, space, request.addresses, request.warp);
                        self.read(warp, &request.part(space, &addresses, mask), values)?;
                    }
                }
                Ok(())
            }
            Space::Global => {
                let request = request.measured();
                self.site.check_global(&request)?;
                self.hooks.before(&mut self.site, warp, &request, &[])?;
                // SAFETY: `check_global` found the lanes' bytes aligned and inside allocations that the
                // launch holds.
                unsafe { read_global(&request, values) };
                self.hooks.after(&mut self.site, warp, &request);
                Ok(())
            }
            Space::Shared => {
                let request = request.measured();
                self.site.check_shared(&request)?;
                self.hooks.before(&mut self.site, warp, &request, &[])?;
                copy_out(&self.site.shared, &request, values);
                self.hooks.after(&mut self.site, warp, &request);
                Ok(())
            }
            Space::Local => self.read_local(warp, request, values),
            Space::Param => {
                // The parameters of a called function lie in local memory, which the address names
                // generically.
                if request.first() >= WINDOW {
                    return self.read(warp, &Request { space: Space::Generic, ..*request }, values);
                }
                let params = self.site.grid.launch.params;
                self.site.check_range(request, params.len() as u64)?;
                copy_out(params, request, values);
                Ok(())
            }
        }
    }

    pub fn write(&mut self, warp: &mut Warp, request: &Request, values: &Values) -> Result<(), Box<Fault>> {
        match request.space {
            Space::Generic => {
                for (space, mask) in by_window(request.addresses, request.mask) {
                    if mask != 0 {
                        let addresses = offsets(&self.site, space, request.addresses, request.warp);
                        self.write(warp, &request.part(space, &addresses, mask), values)?;
                    }
                }
                Ok(())
            }
            Space::Global => {
                let request = request.measured();
                self.site.check_global(&request)?;
                self.hooks.before(&mut self.site, warp, &request, values)?;
                // SAFETY: `check_global` found the lanes' bytes aligned and inside allocations that the
                // launch holds.
                unsafe { write_global(&request, values) };
                self.hooks.after(&mut self.site, warp, &request);
                Ok(())
            }
            Space::Shared => {
                let request = request.measured();
                self.site.check_shared(&request)?;
                self.hooks.before(&mut self.site, warp, &request, values)?;
                copy_in(&mut self.site.shared, &request, values);
                self.hooks.after(&mut self.site, warp, &request);
                Ok(())
            }
            Space::Local => self.write_local(warp, request, values),
            Space::Param => {
                if request.first() >= WINDOW {
                    return self.write(warp, &Request { space: Space::Generic, ..*request }, values);
                }
                let text = "parameters cannot be written".to_owned();
                Err(self.site.out_of_bounds(request, request.mask, text))
            }
        }
    }

    // Not inlined, to keep the common path of loads and stores small.
    #[inline(never)]
    fn read_local(
        &mut self,
        warp: &mut Warp,
        request: &Request,
        values: &mut Values,
    ) -> Result<(), Box<Fault>> {
        let places = self.site.check_local(request, warp)?;
        self.hooks.before(&mut self.site, warp, request, &[])?;
        copy_out(&warp.local, &Request { addresses: &places, ..*request }, values);
        self.hooks.after(&mut self.site, warp, request);
        Ok(())
    }

    #[inline(never)]
    fn write_local(&mut self, warp: &mut Warp, request: &Request, values: &Values) -> Result<(), Box<Fault>> {
        let places = self.site.check_local(request, warp)?;
        self.hooks.before(&mut self.site, warp, request, values)?;
        copy_in(&mut warp.local, &Request { addresses: &places, ..*request }, values);
        self.hooks.after(&mut self.site, warp, request);
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
        let space = atomic.address.space;
        let count = atomic.b.len();
        let (mut b, mut old) = ([[0; LANES]; 8], [[0; LANES]; 8]);
        for (b, register) in b.iter_mut().zip(&atomic.b) {
            *b = warp.registers.wide(*register);
        }
        let c = warp.registers.wide(atomic.c);
        let request = Request {
            order: atomic.order,
            kind: Kind::AtomicWrite,
            ..weak_read(warp, (space, &addresses, active), (atomic.size, count as u32), at)
        };
        self.hooks.begin(&request);
        self.hooks.release(&self.site, &request, atomic.scope);
        let parts = match space {
            Space::Generic => by_window(&addresses, active),
            space => [(space, active), (space, 0), (space, 0), (space, 0)],
        };
        for (part, mask) in parts {
            if mask == 0 {
                continue;
            }
            let addresses = match space {
                Space::Generic => offsets(&self.site, part, &addresses, warp.index),
                _ => addresses,
            };
            let request = Request { addresses: &addresses, mask, space: part, ..request };
            match part {
                Space::Global => {
                    let request = request.measured();
                    self.site.check_global(&request)?;
                    self.hooks.before(&mut self.site, warp, &request, &[])?;
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
                    self.hooks.after(&mut self.site, warp, &request);
                }
                // PTX has vector atomics only for global memory.
                Space::Shared if count == 1 => {
                    self.site.check_shared(&request)?;
                    self.hooks.before(&mut self.site, warp, &request, &[])?;
                    let mut values = [[0; LANES]];
                    for lane in lanes(mask) {
                        let one = Request { mask: 1 << lane, ..request };
                        copy_out(&self.site.shared, &one, &mut values);
                        old[0][lane] = values[0][lane];
                        values[0][lane] = (atomic.update)(old[0][lane], b[0][lane], c[lane]);
                        copy_in(&mut self.site.shared, &one, &values);
                    }
                    self.hooks.after(&mut self.site, warp, &request);
                }
                _ => {
                    let (text, space) = match part {
                        Space::Shared => ("vector atomics work only in global memory", Space::Shared),
                        _ => ("atomics work only in global and shared memory", Space::Local),
                    };
                    let request = Request { space, ..request };
                    return Err(self.site.out_of_bounds(&request, mask, text.to_owned()));
                }
            }
        }
        self.hooks.acquire(&self.site, &request, atomic.scope);
        let first = active.trailing_zeros() as usize;
        warp.poll(at, addresses[first], old[0][first]);
        for (target, old) in atomic.targets.iter().zip(&old) {
            warp.registers.set_wide(*target, old, active);
        }
        Ok(())
    }
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
fn offsets(site: &Site, space: Space, addresses: &[u64; LANES], warp: u32) -> [u64; LANES] {
    let starts = match space {
        Space::Shared => [SHARED_WINDOW; LANES],
        Space::Local => site.grid.local_windows(warp, site.number),
        Space::Param => [PARAM_WINDOW; LANES],
        Space::Generic | Space::Global => return *addresses,
    };
    std::array::from_fn(|lane| addresses[lane].wrapping_sub(starts[lane]))
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
