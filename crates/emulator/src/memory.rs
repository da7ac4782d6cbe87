//! Global memory: allocations, and which of their bytes have been written.
//!
//! A device address is the host address of the same byte, so a kernel sees pinned host memory at its host
//! address. All devices share one address space; each allocation belongs to a context of one device.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    collections::{BTreeMap, VecDeque},
    ops::{Bound, Range},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use crate::history::History;

/// The alignment of an allocation, that of `cuMemAlloc`.
const ALIGN: usize = 256;

/// A host copy that starts outside every allocation, or runs past the end of the one it starts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes at {address:#x} do not lie in one allocation")]
pub struct OutOfBounds {
    /// The address where the copy starts.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// The context, and its device, that an allocation belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The device's number.
    pub device: u32,
    /// The context's handle.
    pub context: usize,
}

/// One context's view of global memory.
///
/// The context owns what it allocates through the view. Its kernels reach the memory of its device, of the
/// host and of its peers. All methods can be called from any thread.
#[derive(Clone, Debug)]
pub struct Memory {
    owner: Owner,
    /// Contexts of other devices whose memory its kernels reach.
    peers: Vec<usize>,
    shared: Arc<Shared>,
}

/// The state that the views of all contexts share.
#[derive(Debug)]
struct Shared {
    limit: u64,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    allocations: BTreeMap<u64, Arc<Allocation>>,
    /// Bytes allocated on each device, without host memory.
    used: BTreeMap<u32, u64>,
    /// Base and length of the last [`FREED`] freed allocations, the newest at the end.
    freed: VecDeque<(u64, u64)>,
}

/// The most freed allocations that are remembered.
const FREED: usize = 1024;

/// One range of memory that kernels may access.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub base: u64,
    pub bytes: u64,
    pub owner: Owner,
    origin: Origin,
    written: Written,
    /// Its last uses, by the work of all streams.
    pub history: Mutex<History>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Device,
    /// Device memory that kernels can only read.
    Constant,
    Host,
    /// Host memory that the caller owns.
    Registered,
}

impl Origin {
    fn is_device(self) -> bool {
        matches!(self, Origin::Device | Origin::Constant)
    }
}

/// Which bytes have been written: one bit per byte, allocated on first use.
#[derive(Debug)]
struct Written {
    all: AtomicBool,
    bits: OnceLock<Box<[AtomicU64]>>,
}

impl Memory {
    /// Creates memory of up to `limit` bytes per device, as seen by a context of device 0.
    pub fn new(limit: u64) -> Memory {
        let shared = Shared { limit, state: RwLock::default() };
        Memory { owner: Owner::default(), peers: Vec::new(), shared: Arc::new(shared) }
    }

    /// Returns the view of another context, whose kernels also reach the memory of the contexts `peers`.
    pub fn of(&self, owner: Owner, peers: &[usize]) -> Memory {
        Memory { owner, peers: peers.to_vec(), shared: self.shared.clone() }
    }

    /// Returns the context of this view.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Allocates device memory, aligned to 256 bytes.
    ///
    /// Returns `None` if it would exceed the limit, or if the host has no more memory. A kernel that reads a
    /// byte of it which nothing wrote is at fault.
    pub fn allocate(&self, bytes: u64) -> Option<u64> {
        self.allocate_from(bytes, Origin::Device)
    }

    /// Allocates memory for `.const` variables as [`allocate`](Self::allocate); a kernel that writes to it is
    /// at fault.
    pub fn allocate_constant(&self, bytes: u64) -> Option<u64> {
        self.allocate_from(bytes, Origin::Constant)
    }

    /// Allocates pinned host memory, which counts as written and does not count against the limit.
    pub fn allocate_host(&self, bytes: u64) -> Option<u64> {
        self.allocate_from(bytes, Origin::Host)
    }

    fn allocate_from(&self, bytes: u64, origin: Origin) -> Option<u64> {
        let layout = layout(bytes)?;
        self.edit(|state| {
            let device = origin.is_device();
            let used = state.used.entry(self.owner.device).or_default();
            if device && bytes > self.shared.limit - *used {
                return None;
            }
            // SAFETY: the layout's size is not zero.
            let base = unsafe { alloc_zeroed(layout) } as u64;
            if base == 0 {
                return None;
            }
            if device {
                *used += bytes;
            }
            state.allocations.insert(base, Arc::new(Allocation::new(base, bytes, self.owner, origin)));
            Some(base)
        })
    }

    /// Lets kernels access host memory that the caller owns and keeps alive.
    ///
    /// The caller keeps it until [`unregister_host`](Self::unregister_host). Returns false if part of the
    /// range is already allocated or registered, or if the range is null, empty or wraps around.
    pub fn register_host(&self, address: u64, bytes: u64) -> bool {
        self.edit(|state| {
            let Some(end) = address.checked_add(bytes) else { return false };
            let overlaps = state
                .allocations
                .range(..end)
                .next_back()
                .is_some_and(|(_, allocation)| allocation.base + allocation.bytes > address);
            if address == 0 || bytes == 0 || overlaps {
                return false;
            }
            let allocation = Allocation::new(address, bytes, self.owner, Origin::Registered);
            state.allocations.insert(address, Arc::new(allocation));
            true
        })
    }

    /// Ends [`register_host`](Self::register_host). Returns false if no registered range starts at `address`.
    pub fn unregister_host(&self, address: u64) -> bool {
        self.remove(address, |origin| origin == Origin::Registered)
    }

    /// Frees an allocation. Returns false if no live allocation starts at `address`.
    ///
    /// A running launch keeps the memory alive.
    pub fn free(&self, address: u64) -> bool {
        self.remove(address, |origin| origin != Origin::Registered)
    }

    fn remove(&self, address: u64, allowed: impl Fn(Origin) -> bool) -> bool {
        self.edit(|state| {
            let Some(allocation) = state.allocations.get(&address) else { return false };
            if !allowed(allocation.origin) {
                return false;
            }
            if !allocation.is_host() {
                *state.used.entry(allocation.owner.device).or_default() -= allocation.bytes;
            }
            state.freed.push_back((address, allocation.bytes));
            if state.freed.len() > FREED {
                state.freed.pop_front();
            }
            state.allocations.remove(&address);
            true
        })
    }

    /// Returns the base and length of the last freed allocation that held this address.
    pub(crate) fn freed(&self, address: u64) -> Option<(u64, u64)> {
        self.view(|state| {
            state.freed.iter().rev().find(|(base, bytes)| address.wrapping_sub(*base) < *bytes).copied()
        })
    }

    /// Returns the base and length of the allocation that holds this address.
    pub fn range(&self, address: u64) -> Option<(u64, u64)> {
        self.view(|state| find(state, address).map(|allocation| (allocation.base, allocation.bytes)))
    }

    /// Returns the context whose allocation holds this address.
    pub(crate) fn owner_of(&self, address: u64) -> Option<Owner> {
        self.view(|state| find(state, address).map(|allocation| allocation.owner))
    }

    /// Returns the device whose memory holds this address; `None` for host memory and unknown addresses.
    pub(crate) fn device_of(&self, address: u64) -> Option<u32> {
        let device = |allocation: &&Arc<Allocation>| !allocation.is_host();
        self.view(|state| find(state, address).filter(device).map(|allocation| allocation.owner.device))
    }

    /// Returns the allocation of these bytes, by base and length, if nothing wrote any of them.
    pub(crate) fn unwritten(&self, address: u64, bytes: u64) -> Option<(u64, u64)> {
        let is_unwritten = |allocation: &&Arc<Allocation>| {
            allocation.holds(address, bytes) && !allocation.is_partly_written(address, bytes)
        };
        self.view(|state| find(state, address).filter(is_unwritten).map(|found| (found.base, found.bytes)))
    }

    /// Whether the context's kernels can access this address.
    pub(crate) fn reaches(&self, address: u64) -> bool {
        self.view(|state| find(state, address).is_some_and(|allocation| allocation.is_reached_by(self)))
    }

    /// Returns the number of bytes allocated on the context's device.
    pub fn used(&self) -> u64 {
        self.view(|state| state.used.get(&self.owner.device).copied().unwrap_or(0))
    }

    /// Returns the number of bytes of memory of each device.
    pub fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// Copies memory to the host.
    ///
    /// # Errors
    ///
    /// The bytes do not lie in one allocation.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let _held = self.held(address, into.len() as u64)?;
        // SAFETY: the source lies in an allocation that is held; `into` is borrowed mutably. `copy` allows
        // overlap.
        unsafe { std::ptr::copy(address as *const u8, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies bytes of the host to memory.
    ///
    /// # Errors
    ///
    /// The bytes do not lie in one allocation.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), OutOfBounds> {
        let held = self.held(address, from.len() as u64)?;
        // SAFETY: the destination lies in an allocation that is held. `copy` allows overlap.
        unsafe { std::ptr::copy(from.as_ptr(), address as *mut u8, from.len()) };
        held.mark_written(address, from.len() as u64);
        Ok(())
    }

    /// Writes `count` copies of the pattern, one after another.
    ///
    /// # Errors
    ///
    /// The bytes do not lie in one allocation.
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), OutOfBounds> {
        let bytes = count.saturating_mul(pattern.len() as u64);
        let held = self.held(address, bytes)?;
        for at in (0..bytes).step_by(pattern.len().max(1)) {
            // SAFETY: `at + pattern.len()` is at most `bytes`, and these bytes lie in an allocation that is
            // held.
            unsafe { std::ptr::copy(pattern.as_ptr(), (address + at) as *mut u8, pattern.len()) };
        }
        held.mark_written(address, bytes);
        Ok(())
    }

    /// Copies from memory to memory; the ranges may overlap.
    ///
    /// A copied byte counts as written if its source does.
    ///
    /// # Errors
    ///
    /// The source or the destination does not lie in one allocation.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), OutOfBounds> {
        let source = self.held(from, bytes)?;
        let target = self.held(to, bytes)?;
        // SAFETY: both ranges lie in allocations that are held. `copy` allows overlap.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
        if source.is_written(from, bytes) {
            target.mark_written(to, bytes);
        } else {
            for at in 0..bytes {
                if source.is_written(from + at, 1) {
                    target.mark_written(to + at, 1);
                }
            }
        }
        Ok(())
    }

    /// Returns the current allocations in the order of their addresses: those that the context's kernels
    /// reach, and those of other devices that they do not reach.
    ///
    /// Their memory lives as long as the returned references.
    pub(crate) fn snapshot(&self) -> (Vec<Arc<Allocation>>, Vec<Arc<Allocation>>) {
        self.view(|state| {
            state.allocations.values().cloned().partition(|allocation| allocation.is_reached_by(self))
        })
    }

    /// Returns the allocations that overlap this range.
    pub(crate) fn overlapping(&self, range: &Range<u64>) -> Vec<Arc<Allocation>> {
        self.view(|state| {
            let before = state.allocations.range(..range.end).rev().map(|(_, allocation)| allocation);
            before.take_while(|last| last.base + last.bytes > range.start).cloned().collect()
        })
    }

    fn held(&self, address: u64, bytes: u64) -> Result<Arc<Allocation>, OutOfBounds> {
        self.view(|state| find(state, address).filter(|allocation| allocation.holds(address, bytes)).cloned())
            .ok_or(OutOfBounds { address, bytes })
    }

    fn view<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.shared.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn edit<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.shared.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}

fn find(state: &State, address: u64) -> Option<&Arc<Allocation>> {
    let (_, allocation) =
        state.allocations.range((Bound::Unbounded, Bound::Included(address))).next_back()?;
    (address - allocation.base < allocation.bytes.max(1)).then_some(allocation)
}

fn layout(bytes: u64) -> Option<Layout> {
    Layout::from_size_align(usize::try_from(bytes).ok()?.max(1), ALIGN).ok()
}

impl Allocation {
    fn new(base: u64, bytes: u64, owner: Owner, origin: Origin) -> Allocation {
        // The host may have written any byte of its own memory.
        let written = Written { all: AtomicBool::new(!origin.is_device()), bits: OnceLock::new() };
        Allocation { base, bytes, owner, origin, written, history: Mutex::default() }
    }

    /// Whether a context's kernels may access it.
    fn is_reached_by(&self, context: &Memory) -> bool {
        self.is_host()
            || self.owner.device == context.owner.device
            || context.peers.contains(&self.owner.context)
    }

    /// Whether it is host memory, which the host may read at any time.
    pub fn is_host(&self) -> bool {
        !self.origin.is_device()
    }

    /// Whether kernels can only read it.
    pub fn is_constant(&self) -> bool {
        self.origin == Origin::Constant
    }

    /// Whether all of these bytes lie in it.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        let Some(offset) = address.checked_sub(self.base) else { return false };
        offset <= self.bytes && bytes <= self.bytes - offset
    }

    /// Whether all of these bytes have been written. They must lie in the allocation.
    pub fn is_written(&self, address: u64, bytes: u64) -> bool {
        if self.written.all.load(Relaxed) {
            return true;
        }
        let Some(bits) = self.written.bits.get() else { return bytes == 0 };
        words(address - self.base, bytes).all(|(word, mask)| bits[word as usize].load(Relaxed) & mask == mask)
    }

    /// Whether any of these bytes has been written. They must lie in the allocation.
    pub fn is_partly_written(&self, address: u64, bytes: u64) -> bool {
        if self.written.all.load(Relaxed) {
            return true;
        }
        let Some(bits) = self.written.bits.get() else { return false };
        words(address - self.base, bytes).any(|(word, mask)| bits[word as usize].load(Relaxed) & mask != 0)
    }

    /// Marks these bytes as written. They must lie in the allocation.
    pub fn mark_written(&self, address: u64, bytes: u64) {
        if self.written.all.load(Relaxed) {
            return;
        }
        if bytes == self.bytes {
            self.written.all.store(true, Relaxed);
            return;
        }
        let bits = self.written.bits.get_or_init(|| {
            let words = self.bytes.div_ceil(64) as usize;
            // SAFETY: an `AtomicU64` of zero bytes is 0.
            unsafe { Box::new_zeroed_slice(words).assume_init() }
        });
        for (word, mask) in words(address - self.base, bytes) {
            let word = &bits[word as usize];
            if word.load(Relaxed) & mask != mask {
                word.fetch_or(mask, Relaxed);
            }
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.origin != Origin::Registered
            && let Some(layout) = layout(self.bytes)
        {
            // SAFETY: `allocate_from` allocated it with this layout, and nothing refers to it any more.
            unsafe { dealloc(self.base as *mut u8, layout) };
        }
    }
}

/// Returns the words of a bitmap that hold bits `offset .. offset + count`, each with the mask of those bits.
fn words(offset: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + count;
    (offset / 64..end.div_ceil(64)).filter(move |_| count > 0).map(move |word| {
        let low = offset.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        (word, (u64::MAX >> (64 - (high - low))) << low)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_stay_in_one_allocation() {
        let memory = Memory::new(1000);
        let a = memory.allocate(100).unwrap();
        assert_eq!(a % 256, 0);
        assert_eq!(memory.range(a + 99), Some((a, 100)));
        assert_eq!(memory.range(a + 100), None);
        assert!(memory.write(a, &[7; 100]).is_ok());
        let mut back = [0; 100];
        assert!(memory.read(a, &mut back).is_ok());
        assert_eq!(back, [7; 100]);
        assert_eq!(memory.write(a + 1, &[0; 100]), Err(OutOfBounds { address: a + 1, bytes: 100 }));
        assert!(memory.fill(a + 4, &[1, 2], 48).is_ok());
        assert!(memory.fill(a + 5, &[1, 2], 48).is_err());
        assert!(memory.copy(a, a + 4, 96).is_ok());
        assert!(memory.read(a, &mut back).is_ok());
        assert_eq!(back[..4], [1, 2, 1, 2]);
        assert_eq!(back[92..], [1, 2, 1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn the_limit_holds_and_nothing_is_freed_twice() {
        let memory = Memory::new(1000);
        let a = memory.allocate(600).unwrap();
        assert_eq!(memory.allocate(401), None);
        assert!(memory.allocate_host(4000).is_some());
        assert_eq!(memory.used(), 600);
        assert!(!memory.free(a + 256));
        assert!(memory.free(a));
        assert!(!memory.free(a));
        assert_eq!(memory.used(), 0);
        assert!(memory.allocate(1000).is_some());
    }

    #[test]
    fn each_device_has_its_own_limit_and_reaches_its_peers() {
        let zero = Memory::new(1000);
        let owner = Owner { device: 1, context: 32 };
        let (one, peer) = (zero.of(owner, &[]), zero.of(Owner { device: 2, context: 48 }, &[32]));
        assert!(zero.allocate(900).is_some());
        let a = one.allocate(800).unwrap();
        assert_eq!((zero.used(), one.used(), peer.used()), (900, 800, 0));
        assert_eq!((zero.owner_of(a), zero.owner_of(a + 800)), (Some(owner), None));
        assert_eq!([&zero, &one, &peer].map(|memory| memory.reaches(a + 799)), [false, true, true]);
        assert_eq!((zero.snapshot().0.len(), zero.snapshot().1[0].base), (1, a));
        let pinned = one.allocate_host(5000).unwrap();
        assert!(zero.reaches(pinned));
        assert_eq!((zero.device_of(pinned), zero.device_of(a)), (None, Some(1)));
        // Any context may free it.
        assert!(zero.free(a));
        assert_eq!(one.used(), 0);
    }

    #[test]
    fn registered_memory_is_the_callers() {
        let memory = Memory::new(0);
        let mut own = [1u8; 64];
        let address = own.as_mut_ptr() as u64;
        assert!(memory.register_host(address, 64));
        assert!(!memory.register_host(address + 63, 1));
        assert!(!memory.free(address));
        assert!(memory.write(address + 2, &[9]).is_ok());
        assert!(memory.unregister_host(address));
        assert!(!memory.unregister_host(address));
        assert_eq!(own[2], 9);
    }

    #[test]
    fn written_bytes_are_known_one_by_one() {
        let memory = Memory::new(1000);
        let a = memory.allocate(300).unwrap();
        let allocation = memory.snapshot().0.remove(0);
        assert!(!allocation.is_written(a, 1));
        memory.write(a + 60, &[0; 70]).unwrap();
        assert!(allocation.is_written(a + 60, 70));
        assert!(!allocation.is_written(a + 59, 2));
        assert!(!allocation.is_written(a + 129, 2));
        memory.copy(a, a + 50, 20).unwrap();
        assert!(!allocation.is_written(a + 9, 1));
        assert!(allocation.is_written(a + 10, 10));
        memory.fill(a, &[0], 300).unwrap();
        assert!(allocation.is_written(a, 300));
    }
}
