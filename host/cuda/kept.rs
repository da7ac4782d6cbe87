//! Memory that was dropped, which later calls reuse: results and numbers of groups, mostly.

use super::{Gpu, lock};
use cust::error::CudaError;
use cust::memory::DeviceBuffer;
use std::collections::VecDeque;
use std::mem::take;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The memory that a GPU keeps, and whether it may keep more.
///
/// To allocate and to free takes the driver 30 µs each, of any size up to 4 MB, and 0.5 ms in all for 256 MiB
/// (H100, driver 580); a reduction of short rows takes 3 µs. But freeing also waits for all work of the GPU,
/// which may still use the memory. So memory is kept only if no such work can exist:
///
/// - Calls that wait leave no work behind, unless they fail.
/// - A call that enqueues sets `is_unwaited`, until the driver frees some memory, and so waits.
/// - Other libraries, graphs and other GPUs can use memory whose address they have: `is_exposed` is set for
///   good.
#[derive(Default)]
pub struct Keeper {
    kept: Mutex<Kept<DeviceBuffer<u8>>>,
    is_unwaited: AtomicBool,
    is_exposed: AtomicBool,
}

/// Records, when it is dropped, that work may still run.
pub struct Unwaited<'a>(&'a Keeper);

impl Drop for Unwaited<'_> {
    fn drop(&mut self) {
        self.0.is_unwaited.store(true, Ordering::SeqCst);
    }
}

impl Keeper {
    /// Call it before work is enqueued. [Forget](std::mem::forget) the value if the work has been waited for.
    pub fn unwaited(&self) -> Unwaited<'_> {
        Unwaited(self)
    }

    /// Returns kept memory of exactly `bytes` bytes, if there is any.
    pub fn take(&self, bytes: usize) -> Option<DeviceBuffer<u8>> {
        lock(&self.kept).take(bytes)
    }

    /// Frees all memory that is kept. Returns whether there was some.
    pub fn free_all(&self) -> bool {
        let kept = take(&mut *lock(&self.kept));
        !kept.memory.is_empty()
    }
}

impl Gpu {
    /// Records that others may use memory from now on: other libraries, graphs, other GPUs.
    pub fn expose(&self) {
        self.keeper.is_exposed.store(true, Ordering::SeqCst);
    }

    /// Keeps memory, or frees it. The context is entered.
    pub(super) fn keep_memory(&self, memory: DeviceBuffer<u8>) {
        let Keeper { kept, is_unwaited, is_exposed } = &self.keeper;
        let bytes = memory.len();
        // The emulator's checks know what has been freed, and what has not been written.
        let is_used = || is_unwaited.load(Ordering::SeqCst) || is_exposed.load(Ordering::SeqCst);
        if bytes == 0 || self.is_emulator() || is_used() {
            // Work that is enqueued from here on sets it again.
            is_unwaited.store(false, Ordering::SeqCst);
            return drop(memory);
        }
        let freed = lock(kept).keep(bytes, memory, self.most_kept);
        drop(freed);
    }

    /// Runs `allocate`, and again without kept memory if the device has no more.
    pub(super) fn with_all_memory<T>(
        &self,
        mut allocate: impl FnMut() -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        match allocate() {
            Err(CudaError::OutOfMemory) if self.keeper.free_all() => allocate(),
            allocated => allocated,
        }
    }
}

/// Memory that was dropped.
struct Kept<M> {
    /// Bytes of each, those first that were dropped first.
    memory: VecDeque<(usize, M)>,
    bytes: usize,
}

impl<M> Default for Kept<M> {
    fn default() -> Self {
        Self { memory: VecDeque::new(), bytes: 0 }
    }
}

impl<M> Kept<M> {
    fn take(&mut self, bytes: usize) -> Option<M> {
        let place = self.memory.iter().rposition(|&(of, _)| of == bytes)?;
        self.bytes -= bytes;
        self.memory.remove(place).map(|(_, memory)| memory)
    }

    /// Keeps memory, and at most `most` bytes. Returns what has to be freed.
    fn keep(&mut self, bytes: usize, memory: M, most: usize) -> Vec<M> {
        self.memory.push_back((bytes, memory));
        self.bytes += bytes;
        let mut freed = Vec::new();
        while self.bytes > most
            && let Some((bytes, memory)) = self.memory.pop_front()
        {
            self.bytes -= bytes;
            freed.push(memory);
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;

    #[test]
    fn memory_that_is_kept() {
        const MOST: usize = 400;
        let mut kept = Kept::default();
        for number in 0..4 {
            assert_eq!(kept.keep(100 + number % 2, number, MOST), if number < 3 { vec![] } else { vec![0] });
        }
        assert_eq!(kept.take(99), None);
        assert_eq!([kept.take(100), kept.take(100)], [Some(2), None]);
        assert_eq!([kept.take(101), kept.take(101), kept.take(101)], [Some(3), Some(1), None]);
        assert_eq!(kept.bytes, 0);
        assert_eq!(kept.keep(500, 4, MOST), [4]);
    }
}
