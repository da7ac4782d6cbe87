//! Launching what finds runs of equal neighbouring keys.

use super::Gpu;
use super::modules::{Compiled, Grid, no_kernel};
use super::stream::{GpuStream, Queue, Scratch, area_bytes, largest};
use crate::call::RunsCall;
use crate::{Error, Kernels};
use cust::memory::{AsyncCopyDestination, DevicePointer, DeviceSlice};
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::runs::{Arguments, RESIDENT, STATE_HEAD, THREADS, tiles};

/// Tiles that a queue has an area for from its first launch on: 2^23 keys.
const TILES: u64 = 1024;

/// Words that launches have in common, of up to so many tiles.
fn words(tiles: u64) -> usize {
    STATE_HEAD + 2 * tiles as usize
}

impl Queue {
    /// Enqueues that the runs of some keys are found. Returns the kernel that does it.
    ///
    /// # Safety
    ///
    /// The keys, and what the call has places for, stay until the stream has been waited for, and nothing else uses
    /// them meanwhile. The context is entered.
    unsafe fn enqueue_runs(&mut self, gpu: &Gpu, call: &RunsCall) -> Result<&'static Compiled, Error> {
        let Arguments { keys, len, .. } = call.arguments;
        let tiles = tiles(keys.addr() as u64, len, call.size);
        let Scratch { runs, source, .. } = &mut self.scratch;
        let likely = words(tiles.next_power_of_two().max(TILES));
        let state = largest(
            runs,
            self.is_capturing,
            |state| state.len() >= words(tiles),
            |_| source.empty_slots(gpu, &self.stream, words(tiles), likely),
        )?;
        let area = ((state.len() - STATE_HEAD) / 2) as u64;
        let state = state.as_device_ptr().as_mut_ptr();
        let arguments = Arguments { state, area, ..call.arguments };
        let parameters = Parameters::of(&arguments);
        let grid = Grid { blocks: tiles as u32, block: THREADS, resident: RESIDENT };
        // SAFETY: as the caller vouches; the area has so many tiles.
        unsafe { gpu.launch_if_compiled(call.kernel, Kernels::NONE, &self.stream, grid, &parameters) }?
            .ok_or_else(|| no_kernel("runs", THREADS))
    }
}

impl Gpu {
    /// Bytes of lent memory that it takes to find the runs of so many keys of such a size, wherever they lie.
    pub fn scratch_bytes_of_runs(&self, len: u64, size: usize) -> usize {
        area_bytes::<u64>(words(tiles(0, len, size) + 1))
    }
}

impl GpuStream {
    /// Enqueues that the runs of some keys are found.
    ///
    /// # Safety
    ///
    /// As of [`Queue::enqueue_runs`], but for the context.
    pub unsafe fn enqueue_runs(&self, call: &RunsCall) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        self.enter(|gpu, queue| unsafe { queue.enqueue_runs(gpu, call).map(drop) })
    }
}

impl Gpu {
    /// Finds the runs of some keys, and waits; returns how many there are.
    ///
    /// # Safety
    ///
    /// The keys stay as they are meanwhile, and nothing else uses what the call has places for.
    pub unsafe fn find_runs(&self, call: &RunsCall) -> Result<u64, Error> {
        self.with_workspace(|workspace| {
            let queue = &mut workspace.queue;
            let place = DevicePointer::<u64>::from_raw(call.arguments.number.addr() as u64);
            let mut number = [0];
            // SAFETY: as the caller vouches; the stream is waited for below.
            unsafe {
                let kernel = queue.enqueue_runs(self, call)?;
                let copied = DeviceSlice::from_raw_parts(place, 1).async_copy_to(&mut number, &queue.stream);
                self.launched(kernel, copied.and_then(|()| queue.stream.synchronize()))?;
            }
            Ok(number[0])
        })
    }
}
