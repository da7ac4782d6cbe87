//! Sums by index on a GPU: three launches, and their scratch memory.

use super::Gpu;
use super::modules::{Compiled, Grid, no_kernel};
use super::pending::Launched;
use super::queue::Queue;
use super::scratch::{Area, Source, area_bytes, largest};
use super::stream::{GpuStream, Workspace};
use crate::Error;
use crate::by_index::Tally;
use cust::stream::Stream;
use cust::sys;
use gpu_reduce_kernels::index::{Arguments, CELL, COPIES, FINISHED, LIST_WORDS, STATE, THREADS, TILE};
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::segments::Cut;
use std::any::TypeId;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

/// Scratch memory of sums by index.
#[derive(Default)]
pub struct TallyScratch {
    /// Tables of blocks.
    tables: Vec<Area<u64>>,
    /// All zeros between launches: cells, what is outside, the state.
    cells: Vec<Area<u64>>,
    rest: Vec<Area<u64>>,
    state: Vec<Area<u64>>,
    lists: Vec<Area<u64>>,
}

/// How items are dealt to blocks, and the words of 64 bits of scratch memory.
struct Needs {
    blocks: u32,
    part: u64,
    /// 0 if there are cells.
    copies: u32,
    shared: u32,
    tables: usize,
    cells: usize,
    rest: usize,
    lists: usize,
}

impl Needs {
    fn of(gpu: &Gpu, tally: &Tally) -> Self {
        let &Tally { types, len, count, .. } = tally;
        let tiles = len.div_ceil(TILE);
        // A word of a table has room for what 2^31 items add.
        let most = u64::from(gpu.multiprocessors).max(len >> 30);
        let part = tiles.div_ceil(most.min(tiles).max(1)).max(1) * TILE;
        let blocks = len.div_ceil(part) as u32;
        let bytes = u64::from(types.words) * 4;
        let slots = u64::from(gpu.most_shared) / bytes;
        let sums = count as usize;
        let (copies, tables, cells) = match slots / u64::from(count.max(1)) {
            0 => (0, 0, CELL * sums),
            copies => {
                // No more than are worth being cleared.
                let copies = copies.min((part / u64::from(count.max(1))).max(1)).min(COPIES.into());
                (1 << copies.ilog2(), (blocks as usize * types.words as usize * sums).div_ceil(2), 0)
            }
        };
        Self {
            blocks,
            part,
            copies,
            shared: (u64::from(count) * u64::from(copies) * bytes) as u32,
            tables,
            cells,
            rest: types.rest_words * sums,
            lists: if types.rest_words > 0 { (blocks * LIST_WORDS) as usize } else { 0 },
        }
    }

    /// The words of all areas.
    fn areas(&self) -> [usize; 5] {
        let &Self { tables, cells, rest, lists, .. } = self;
        [tables, cells, rest, lists, STATE]
    }
}

/// Returns an area of at least this many words.
fn area<'a>(
    areas: &'a mut Vec<Area<u64>>,
    is_capturing: bool,
    gpu: &Gpu,
    source: &mut Source,
    words: usize,
) -> Result<&'a mut Area<u64>, Error> {
    let likely = if words > 1 << 20 { words } else { words.next_power_of_two() };
    largest(areas, is_capturing, |area| words <= area.len(), |_| source.area(gpu, words, likely))
}

/// As [`area`], of zeros.
fn zeros<'a>(
    areas: &'a mut Vec<Area<u64>>,
    is_capturing: bool,
    gpu: &Gpu,
    (source, stream): (&mut Source, &Stream),
    words: usize,
) -> Result<&'a mut Area<u64>, Error> {
    let likely = if words > 1 << 20 { words } else { words.next_power_of_two() };
    largest(
        areas,
        is_capturing,
        |area| words <= area.len(),
        |_| {
            let area = source.area::<u64>(gpu, words, likely)?;
            let address = area.as_device_ptr().as_raw();
            if !area.is_empty() {
                // SAFETY: the memory is the area's; launches that use it follow in the same stream.
                let set = unsafe { sys::cuMemsetD32Async(address, 0, 2 * area.len(), stream.as_inner()) };
                gpu.done("clearing memory", set)?;
            }
            Ok(area)
        },
    )
}

impl Queue {
    /// Enqueues sums by index. Returns the last kernel. `wrong` is memory of the host, or else of the device, that
    /// takes the place of the first wrong index, or [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, the items, the indices and the places of results stay, and nothing
    /// else writes to them. The types are those of the operator and the items. The context is entered.
    pub(super) unsafe fn enqueue_tally(
        &mut self,
        gpu: &Gpu,
        tally: &Tally,
        wrong: Option<*mut u64>,
    ) -> Result<&'static Compiled, Error> {
        let &Tally { types, items, indices, index_words, len, count, onto, results } = tally;
        let needs = Needs::of(gpu, tally);
        let Needs { blocks, part, copies, shared, .. } = needs;
        let is_capturing = self.is_capturing;
        let (scratch, source) = (&mut self.scratch.tally, &mut self.scratch.source);
        // The last word takes the place of a wrong index.
        let state = zeros(&mut scratch.state, is_capturing, gpu, (source, &self.stream), STATE + 1)?;
        let state = state.as_device_ptr().as_mut_ptr();
        let mut tables = null_mut();
        if copies > 0 {
            tables = area(&mut scratch.tables, is_capturing, gpu, source, needs.tables)?.as_device_ptr().as_mut_ptr();
        } else if count > 0 {
            let cells = zeros(&mut scratch.cells, is_capturing, gpu, (source, &self.stream), needs.cells)?;
            tables = cells.as_device_ptr().as_mut_ptr();
        }
        let (mut rest, mut lists) = (null_mut(), null_mut());
        if types.rest_words > 0 {
            rest = zeros(&mut scratch.rest, is_capturing, gpu, (source, &self.stream), needs.rest)?
                .as_device_ptr()
                .as_mut_ptr();
            lists = area(&mut scratch.lists, is_capturing, gpu, source, needs.lists)?.as_device_ptr().as_mut_ptr();
        }
        let arguments = Arguments {
            items: items.cast::<u8>(),
            indices,
            index_words,
            copies,
            len,
            count,
            blocks,
            part,
            tables: tables.cast(),
            rest,
            lists,
            state,
        };
        let mut parameters = Parameters::of(&arguments);
        let launch = |kernel: TypeId, blocks: u32, shared: u32, parameters: &Parameters| {
            let grid = Grid { blocks, block: THREADS, resident: THREADS };
            // SAFETY: as the caller vouches; the parameters are those of the kernel, and the memory suffices.
            let kernel = unsafe {
                gpu.launch_with_shared(kernel, crate::Kernels::NONE, &self.stream, (grid, shared), parameters)
            }?;
            kernel.ok_or_else(|| no_kernel((types.name)(), THREADS))
        };
        launch(if copies > 0 { types.add } else { types.add_to_cells }, blocks, shared, &parameters)?;
        if types.rest_words > 0 {
            launch(types.rest, blocks, shared, &parameters)?;
        }
        let wrong = wrong.unwrap_or(state.wrapping_add(STATE));
        let (onto, counted) = (u32::from(onto), u32::from(types.counts));
        parameters.push(&results);
        parameters.push(&wrong);
        parameters.push(&onto);
        parameters.push(&counted);
        let of_block = if copies > 0 { FINISHED } else { THREADS };
        launch(types.finish, count.div_ceil(of_block).max(1), 0, &parameters)
    }
}

impl Gpu {
    /// Sums by index, and waits. Returns the place of the first wrong index, or [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_tally`], until the call returns; but the context need not be entered.
    pub unsafe fn tally(&self, tally: &Tally) -> Result<u64, Error> {
        self.with_workspace(|Workspace { queue, result }| {
            let word = result.as_mut_ptr();
            // SAFETY: as the caller vouches; the word is the workspace's.
            unsafe {
                let kernel = queue.enqueue_tally(self, tally, Some(word))?;
                self.launched(kernel, queue.stream.synchronize())?;
                Ok(AtomicU64::from_ptr(word).swap(gpu_reduce_kernels::slot::EMPTY, Ordering::Relaxed))
            }
        })
    }

    /// The bytes of lent memory that [`Queue::enqueue_tally`] takes.
    pub fn tally_bytes(&self, tally: &Tally) -> usize {
        let [areas @ .., _] = Needs::of(self, tally).areas();
        let some = areas.into_iter().filter(|&words| words > 0).chain([STATE + 1]);
        some.map(area_bytes::<u64>).fold(0, usize::saturating_add)
    }
}

impl GpuStream {
    /// Enqueues sums by index, whose results stay on the device.
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_tally`]; but the context need not be entered.
    pub unsafe fn enqueue_tally(&self, tally: &Tally) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        self.enter(|gpu, queue| unsafe { queue.enqueue_tally(gpu, tally, None).map(drop) })
    }

    /// As [`enqueue_tally`](Self::enqueue_tally). The first word tells the host the place of the first wrong
    /// index, or [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// As for [`enqueue_tally`](Self::enqueue_tally), until the work has ended.
    pub unsafe fn launch_tally(&self, tally: &Tally) -> Result<Launched, Error> {
        let part = self.launched((1, Cut::NOTHING), |gpu, queue, word| {
            // SAFETY: as the caller vouches; the word stays until the work has ended.
            unsafe { queue.enqueue_tally(gpu, tally, Some(word)).map(Some) }
        })?;
        Ok(part.into())
    }

    /// Waits for everything that was enqueued; fails if the stream is being captured.
    pub fn wait_unless_captured(&self) -> Result<(), Error> {
        self.enter(|_, queue| if queue.is_capturing { Err(Error::Capture) } else { Ok(()) })?;
        self.synchronize()
    }
}
