//! Checks of bounds and alignment. They are always on: an access that passes them touches only memory that
//! the launch holds.

use crate::{
    fault::{Fault, FaultKind},
    memory::Allocation,
    program::code::{Space, WINDOW},
};

use super::{
    access::Request,
    lanes::{LANES, collect, lanes},
    site::Site,
    warp::Warp,
};

impl Site<'_> {
    /// Checks bounds, alignment and constant memory.
    pub fn check_global(&mut self, request: &Request) -> Result<(), Box<Fault>> {
        self.check_aligned(request)?;
        let bytes = u64::from(request.bytes);
        let mut left = request.mask;
        if let Some(place) = self.allocation(request.first(), request.whole()) {
            let allocation = &self.grid.allocations[place];
            self.recent = place;
            left = if request.contiguous { 0 } else { outside(request, allocation) };
            if request.kind.writes() && allocation.is_constant() {
                return Err(self.read_only(request, request.mask & !left));
            }
        }
        // Lanes outside the first lane's allocation.
        for lane in lanes(left) {
            match self.allocation(request.addresses[lane], bytes) {
                Some(place) if request.kind.writes() && self.grid.allocations[place].is_constant() => {
                    return Err(self.read_only(request, 1 << lane));
                }
                Some(_) => {}
                None => return Err(self.outside_allocations(request, lane)),
            }
        }
        Ok(())
    }

    /// The index of the allocation that holds all these bytes.
    pub fn allocation(&self, address: u64, bytes: u64) -> Option<usize> {
        let allocations = &self.grid.allocations;
        if allocations.get(self.recent).is_some_and(|recent| recent.holds(address, bytes)) {
            return Some(self.recent);
        }
        let place = allocations.partition_point(|allocation| allocation.base <= address).checked_sub(1)?;
        allocations[place].holds(address, bytes).then_some(place)
    }

    /// The fault of a lane whose bytes are in no allocation that the launch may access.
    fn outside_allocations(&self, request: &Request, lane: usize) -> Box<Fault> {
        let (address, mask) = (request.addresses[lane], 1 << lane);
        if let Some(forbidden) = self.grid.forbidden.iter().find(|allocation| allocation.holds(address, 1)) {
            let access = self.access(request, mask);
            let (device, owner) = (self.grid.device, forbidden.owner.device);
            return self.fault(
                request.warp,
                request.at,
                mask,
                FaultKind::PeerAccess { access, device, owner },
            );
        }
        let near = self.nearby(address);
        self.out_of_bounds(request, mask, near)
    }

    /// Describes what is near an address that is in no allocation.
    fn nearby(&self, address: u64) -> String {
        let allocations = &self.grid.allocations;
        let place = allocations.partition_point(|allocation| allocation.base <= address);
        if let Some((base, bytes)) = self.grid.memory.freed(address) {
            let at = address - base;
            return format!("this is byte {at} of memory that was freed: {bytes} bytes at {base:#x}");
        }
        match place.checked_sub(1).map(|place| &*allocations[place]) {
            Some(Allocation { base, bytes, .. }) if address - base < bytes.saturating_add(1 << 20) => {
                format!("the allocation at {base:#x} has {bytes} bytes, this is at byte {}", address - base)
            }
            _ => match allocations.get(place) {
                Some(next) if next.base - address < 4096 => {
                    format!("this is {} bytes before the allocation at {:#x}", next.base - address, next.base)
                }
                _ if is_host(address) => {
                    "this is host memory, which kernels can reach only if it is pinned or registered"
                        .to_owned()
                }
                _ => "no allocation is near".to_owned(),
            },
        }
    }

    pub fn check_aligned(&self, request: &Request) -> Result<(), Box<Fault>> {
        let low = u64::from(request.bytes) - 1;
        let mut any = 0;
        for &address in request.addresses {
            any |= address & low;
        }
        if any == 0 {
            return Ok(());
        }
        let wrong = collect(|lane| request.addresses[lane] & low != 0) & request.mask;
        if wrong == 0 {
            return Ok(());
        }
        let access = self.access(request, wrong);
        Err(self.fault(request.warp, request.at, wrong, FaultKind::Misaligned(access)))
    }

    /// Checks bounds and alignment in a memory of `bytes` bytes.
    pub fn check_range(&self, request: &Request, bytes: u64) -> Result<(), Box<Fault>> {
        self.check_aligned(request)?;
        let wrong = match bytes.checked_sub(u64::from(request.bytes)) {
            Some(last) => collect(|lane| request.addresses[lane] > last) & request.mask,
            None => request.mask,
        };
        if wrong == 0 {
            return Ok(());
        }
        let near = match request.space {
            Space::Shared => format!("the block has {bytes} bytes of shared memory"),
            Space::Local => format!("a thread has {bytes} bytes of local memory"),
            _ => {
                let all = self.grid.kernel.param_bytes;
                format!("the launch gave {bytes} of the {all} bytes of the kernel's parameters")
            }
        };
        Err(self.out_of_bounds(request, wrong, near))
    }

    /// Checks bounds and alignment in shared memory.
    pub fn check_shared(&self, request: &Request) -> Result<(), Box<Fault>> {
        let reserved = &self.grid.reserved;
        let is_reserved = |lane: usize| {
            let within = request.addresses[lane].checked_sub(reserved.start as u64);
            within.is_some_and(|at| at <= (reserved.len() as u64).saturating_sub(request.bytes.into()))
        };
        if reserved.is_empty() || !lanes(request.mask).all(is_reserved) {
            self.check_range(request, self.grid.shared_bytes as u64)?;
        }
        Ok(())
    }

    /// Checks that the addresses are in the threads' own local memory.
    fn check_own(&self, request: &Request) -> Result<(), Box<Fault>> {
        // 2 GiB before the start count as the thread's own: `check_range` reports them as out of bounds.
        let own = |offset: u64| offset < WINDOW || offset as i64 >= -(1 << 31) && (offset as i64) < 0;
        if request.addresses.iter().all(|&offset| own(offset)) {
            return Ok(());
        }
        let starts = self.grid.local_windows(request.warp, self.number);
        for lane in lanes(request.mask).filter(|&lane| !own(request.addresses[lane])) {
            let address = starts[lane].wrapping_add(request.addresses[lane]);
            let window = address.wrapping_add(1 << 31) & !(WINDOW - 1);
            if let Some((block, thread)) = self.grid.local_owner(window, self.number) {
                let at = Request { addresses: &[address.wrapping_sub(window); LANES], ..*request };
                let access = self.access(&at, 1 << lane);
                let kind = FaultKind::OtherThread { access, block, thread };
                return Err(self.fault(request.warp, request.at, 1 << lane, kind));
            }
        }
        Ok(())
    }

    /// Checks an access to local memory. Returns each lane's offset in the warp's local memory.
    pub fn check_local(&self, request: &Request, warp: &Warp) -> Result<[u64; LANES], Box<Fault>> {
        let bytes = self.grid.kernel.local_bytes as u64;
        self.check_own(request)?;
        self.check_range(request, bytes)?;
        Ok(std::array::from_fn(|lane| {
            request.addresses[lane].wrapping_add(lane as u64 * bytes).min(warp.local.len() as u64)
        }))
    }
}

/// The lanes whose bytes are not all in this allocation.
fn outside(request: &Request, allocation: &Allocation) -> u32 {
    let Some(last) = allocation.bytes.checked_sub(u64::from(request.bytes)) else { return request.mask };
    let mut mask = 0;
    for (lane, &address) in request.addresses.iter().enumerate() {
        mask |= u32::from(address.wrapping_sub(allocation.base) > last) << lane;
    }
    mask & request.mask
}

/// Whether the address is mapped in this process.
fn is_host(address: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(|line| line.split_once(' ')?.0.split_once('-')).any(|(start, end)| {
        let bound = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        (bound(start)..bound(end)).contains(&address)
    })
}
