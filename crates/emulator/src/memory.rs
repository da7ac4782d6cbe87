//! Global memory: allocations, and which of their bytes have been written.
//!
//! A device address is the host address of the same byte, so a kernel sees pinned host memory at its own address.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

/// The alignment of an allocation, as `cuMemAlloc` gives.
const ALIGN: usize = 256;

/// A host copy that leaves the allocation it starts in, or starts in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes at {address:#x} do not lie in one allocation")]
pub struct OutOfBounds {
    /// Where the copy starts.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

/// Global memory. All methods can be called from any thread.
#[derive(Debug)]
pub struct Memory {
    limit: u64,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    allocations: BTreeMap<u64, Arc<Allocation>>,
    /// Bytes of device allocations; host memory does not count.
    used: u64,
}

/// One range of memory that kernels may access.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub base: u64,
    pub bytes: u64,
    origin: Origin,
    written: Written,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Device,
    Host,
    /// Memory of the caller's, which stays the caller's.
    Registered,
}

/// Which bytes have been written: a bit each, made when first needed.
#[derive(Debug)]
struct Written {
    all: AtomicBool,
    bits: OnceLock<Box<[AtomicU64]>>,
}

impl Memory {
    /// A memory that holds up to `limit` bytes.
    pub fn new(limit: u64) -> Memory {
        Memory { limit, state: RwLock::default() }
    }

    /// Device memory of this many bytes, aligned to 256. `None` where it would pass the limit, or the host has no more.
    /// A kernel that reads a byte of it which nothing wrote is at fault.
    pub fn allocate(&self, bytes: u64) -> Option<u64> {
        self.allocate_from(bytes, Origin::Device)
    }

    /// Pinned host memory, which counts as written and not against the limit.
    pub fn allocate_host(&self, bytes: u64) -> Option<u64> {
        self.allocate_from(bytes, Origin::Host)
    }

    fn allocate_from(&self, bytes: u64, origin: Origin) -> Option<u64> {
        let layout = layout(bytes)?;
        self.edit(|state| {
            let device = origin == Origin::Device;
            if device && bytes > self.limit - state.used {
                return None;
            }
            // SAFETY: the layout's size is not zero.
            let base = unsafe { alloc_zeroed(layout) } as u64;
            if base == 0 {
                return None;
            }
            if device {
                state.used += bytes;
            }
            let written = Written { all: AtomicBool::new(!device), bits: OnceLock::new() };
            state.allocations.insert(base, Arc::new(Allocation { base, bytes, origin, written }));
            Some(base)
        })
    }

    /// Lets kernels access host memory that the caller owns, and keeps until [`unregister_host`](Self::unregister_host).
    /// False where part of it is known already, or where there is none of it.
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
            let written = Written { all: AtomicBool::new(true), bits: OnceLock::new() };
            let allocation = Allocation { base: address, bytes, origin: Origin::Registered, written };
            state.allocations.insert(address, Arc::new(allocation));
            true
        })
    }

    /// Ends [`register_host`](Self::register_host). False where that range's start is not `address`.
    pub fn unregister_host(&self, address: u64) -> bool {
        self.remove(address, |origin| origin == Origin::Registered)
    }

    /// Frees an allocation. False where none that is live starts at `address`. A launch that still runs keeps it.
    pub fn free(&self, address: u64) -> bool {
        self.remove(address, |origin| origin != Origin::Registered)
    }

    fn remove(&self, address: u64, allowed: impl Fn(Origin) -> bool) -> bool {
        self.edit(|state| {
            let Some(allocation) = state.allocations.get(&address) else { return false };
            if !allowed(allocation.origin) {
                return false;
            }
            if allocation.origin == Origin::Device {
                state.used -= allocation.bytes;
            }
            state.allocations.remove(&address);
            true
        })
    }

    /// The base and length of the allocation that holds this address.
    pub fn range(&self, address: u64) -> Option<(u64, u64)> {
        self.view(|state| find(state, address).map(|allocation| (allocation.base, allocation.bytes)))
    }

    /// Bytes of device memory that are allocated.
    pub fn used(&self) -> u64 {
        self.view(|state| state.used)
    }

    /// Bytes of device memory there are.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Copies memory to the host.
    ///
    /// # Errors
    ///
    /// The bytes do not lie in one allocation.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let _held = self.held(address, into.len() as u64)?;
        // SAFETY: the source lies in an allocation that is held; `into` is the caller's own. `copy` allows overlap.
        unsafe { std::ptr::copy(address as *const u8, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies the host's bytes to memory.
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

    /// Writes the pattern `count` times, one after another.
    ///
    /// # Errors
    ///
    /// The bytes do not lie in one allocation.
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), OutOfBounds> {
        let bytes = count.saturating_mul(pattern.len() as u64);
        let held = self.held(address, bytes)?;
        for at in (0..bytes).step_by(pattern.len().max(1)) {
            // SAFETY: `at + pattern.len()` is at most `bytes`, and so many bytes lie in an allocation that is held.
            unsafe { std::ptr::copy(pattern.as_ptr(), (address + at) as *mut u8, pattern.len()) };
        }
        held.mark_written(address, bytes);
        Ok(())
    }

    /// Copies from memory to memory; the ranges may overlap. The copy is as written, or not, as the original.
    ///
    /// # Errors
    ///
    /// The bytes to read or those to write do not lie in one allocation.
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

    /// All allocations as they are now, in the order of their addresses; they stay as long as they are held.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Allocation>> {
        self.view(|state| state.allocations.values().cloned().collect())
    }

    fn held(&self, address: u64, bytes: u64) -> Result<Arc<Allocation>, OutOfBounds> {
        self.view(|state| find(state, address).filter(|allocation| allocation.holds(address, bytes)).cloned())
            .ok_or(OutOfBounds { address, bytes })
    }

    fn view<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn edit<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
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
    /// Whether these bytes all lie in it.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        let Some(offset) = address.checked_sub(self.base) else { return false };
        offset <= self.bytes && bytes <= self.bytes - offset
    }

    /// Whether each of these bytes, which lie in it, has been written.
    pub fn is_written(&self, address: u64, bytes: u64) -> bool {
        if self.written.all.load(Relaxed) {
            return true;
        }
        let Some(bits) = self.written.bits.get() else { return bytes == 0 };
        words(address - self.base, bytes).all(|(word, mask)| bits[word as usize].load(Relaxed) & mask == mask)
    }

    /// Notes that these bytes, which lie in it, have been written.
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
            // SAFETY: `allocate_from` allocated it with this layout, and nothing holds it any more.
            unsafe { dealloc(self.base as *mut u8, layout) };
        }
    }
}

/// The words of a bitmap that hold bits `offset .. offset + count`, each with the mask of those bits.
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
        let allocation = memory.snapshot().remove(0);
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
