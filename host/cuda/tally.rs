//! Sums by index on a GPU: three launches, and their scratch memory.

use super::Gpu;
use super::modules::{Compiled, Grid, no_kernel};
use super::pending::Launched;
use super::queue::Queue;
use super::scratch::{Area, area, area_bytes, zeros};
use super::stream::{GpuStream, Workspace};
use crate::Error;
use crate::by_index::Tally;
use crate::request::MOST_ORDERED;
use gpu_reduce_kernels::deal::{self, ALIGNED};
use gpu_reduce_kernels::index::{
    Arguments, Buckets, COPIES, FINISHED, FINISHING, LIST_WORDS, STATE, TABLE_COST, THREADS, TILE, rest_bits,
};
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
    lists: Vec<Area<u64>>,
    /// All zeros between launches.
    rest: Vec<Area<u64>>,
    state: Vec<Area<u64>>,
    /// Items that are dealt to buckets: their counts, the buckets' table, the items and their indices, and these
    /// after the first of two steps.
    dealt: [Vec<Area<u64>>; AREAS],
}

/// How items are dealt to blocks, and the words of 64 bits of scratch memory.
struct Needs {
    blocks: u32,
    part: u64,
    copies: u32,
    /// Bytes of shared memory of a table.
    shared: u32,
    tables: usize,
    rest: usize,
    lists: usize,
    dealt: Option<Dealt>,
}

/// Areas of scratch memory for items that are dealt.
const AREAS: usize = 6;

/// The most buckets to which items are dealt in one step: of more, a tile has too few items for each.
const BUCKETS: u32 = 256;

/// How items are dealt to buckets.
struct Dealt {
    /// The logarithm of a bucket's number of indices.
    log2: u32,
    /// If items are dealt in two steps, the logarithm of the buckets that are one bucket at first.
    window: Option<u32>,
    blocks: u32,
    part: u32,
    /// Words of each area.
    areas: [usize; AREAS],
}

impl Needs {
    fn of(gpu: &Gpu, tally: &Tally) -> Result<Self, Error> {
        let &Tally { types, len, count, .. } = tally;
        let sums = count as usize;
        let bytes = types.words * 4;
        let slots = gpu.most_shared / bytes;
        let multiprocessors = u64::from(gpu.multiprocessors);
        let rest = if types.rest_words > 0 { rest_bits(sums) + types.rest_words * sums } else { 0 };
        let lists =
            |blocks: u32| if types.rest_words > 0 { blocks as usize * LIST_WORDS as usize } else { 0 };
        if count <= slots {
            // A word of a table has room for what 2^31 items add.
            let (part, blocks) = parts(len, multiprocessors.max(len >> 30));
            // No more copies than are worth being cleared.
            let copies = u64::from(slots / count.max(1)).min((part / u64::from(count.max(1))).max(1));
            let copies = 1 << copies.min(COPIES.into()).ilog2();
            let tables = (blocks as usize * types.words as usize * sums).div_ceil(2);
            let shared = count * copies * bytes;
            return Ok(Self {
                blocks,
                part,
                copies,
                shared,
                tables,
                rest,
                lists: lists(blocks),
                dealt: None,
            });
        }
        let log2 = slots.ilog2();
        let buckets = ((count - 1) >> log2) + 1;
        if len > MOST_ORDERED as u64 || buckets * 4 > gpu.most_shared {
            return Err(Error::TooManyGroups { count: sums });
        }
        let places = len as usize + buckets as usize * ALIGNED as usize;
        let (part, blocks) = parts(places as u64 + u64::from(buckets) * TABLE_COST, multiprocessors);
        let tables = blocks + buckets;
        let window =
            (buckets > BUCKETS).then(|| u32::BITS - (buckets - 1).leading_zeros()).map(|bits| bits / 2);
        let (of_deal, deals) = parts(len, 2 * multiprocessors);
        let of_first = if window.is_some() { len as usize } else { 0 };
        let [items, indices] =
            [types.bytes, 4].map(|bytes| [places, of_first].map(|places| (places * bytes).div_ceil(8)));
        let counts = (buckets as usize * deals as usize).div_ceil(2);
        let areas = [counts, 2 * buckets as usize, items[0], indices[0], items[1], indices[1]];
        let dealt = Dealt { log2, window, blocks: deals, part: of_deal as u32, areas };
        let (shared, lists) = (bytes << log2, lists(tables));
        let tables = ((tables as usize * types.words as usize) << log2).div_ceil(2);
        Ok(Self { blocks, part, copies: 1, shared, tables, rest, lists, dealt: Some(dealt) })
    }

    /// The words of all areas.
    fn areas(&self) -> impl Iterator<Item = usize> {
        let of_dealt = self.dealt.as_ref().map_or([0; AREAS], |dealt| dealt.areas);
        [self.tables, self.rest, self.lists, STATE + 1].into_iter().chain(of_dealt).filter(|&words| words > 0)
    }
}

/// Returns the items of a part, and the parts, of which there are `most` at most.
pub(super) fn parts(len: u64, most: u64) -> (u64, u32) {
    let tiles = len.div_ceil(TILE);
    let part = tiles.div_ceil(most.min(tiles).max(1)).max(1) * TILE;
    (part, len.div_ceil(part) as u32)
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
        let Needs { blocks, part, copies, shared, tables, rest, lists, dealt } = Needs::of(gpu, tally)?;
        let is_capturing = self.is_capturing;
        let (scratch, source, stream) = (&mut self.scratch.tally, &mut self.scratch.source, &self.stream);
        // The last word takes the place of a wrong index.
        let state = zeros(&mut scratch.state, is_capturing, gpu, (source, stream), STATE + 1)?;
        let tables = area(&mut scratch.tables, is_capturing, gpu, source, tables)?;
        let rest = zeros(&mut scratch.rest, is_capturing, gpu, (source, stream), rest)?;
        let lists = area(&mut scratch.lists, is_capturing, gpu, source, lists)?;
        let launch = |kernel: TypeId, (blocks, block): (u32, u32), shared: u32, parameters: &Parameters| {
            if blocks == 0 {
                return Ok(None);
            }
            let grid = Grid { blocks, block, resident: THREADS };
            // SAFETY: as the caller vouches; the parameters are those of the kernel, and the memory suffices.
            let kernel = unsafe {
                gpu.launch_with_shared(kernel, crate::Kernels::NONE, stream, (grid, shared), parameters)
            }?;
            kernel.map(Some).ok_or_else(|| no_kernel((types.name)(), block))
        };
        let (mut items, mut indices, mut index_words) = (items.cast::<u8>(), indices, index_words);
        let mut buckets = Buckets::NONE;
        if let Some(Dealt { log2, window, blocks, part: of_block, areas, .. }) = dealt {
            let mut places = [null_mut::<u64>(); AREAS];
            for (place, (areas, words)) in places.iter_mut().zip(scratch.dealt.iter_mut().zip(areas)) {
                *place = area(areas, is_capturing, gpu, source, words)?;
            }
            let [counts, table, last, last_indices, first, first_indices] = places;
            let of_first = window.map(|window| (window, first, first_indices));
            for step in [of_first, Some((0, last, last_indices))].into_iter().flatten() {
                let (larger, dealt, dealt_indices) = step;
                let is_last = dealt == last;
                buckets = Buckets { table, log2: (log2 + larger).into() };
                let mut arguments = deal::Arguments {
                    items,
                    indices,
                    index_words,
                    count,
                    len,
                    blocks,
                    part: of_block,
                    counts: counts.cast(),
                    buckets,
                    dealt: dealt.cast(),
                    dealt_indices: dealt_indices.cast(),
                    state,
                    sorts: 1,
                    mask: u32::MAX,
                    aligned: if is_last { ALIGNED } else { 1 },
                    kept: if is_last { (1 << log2) - 1 } else { u32::MAX },
                    window: window.filter(|_| is_last).unwrap_or(u32::BITS),
                };
                let number = arguments.number();
                let mut shared = deal::sorting_bytes(number, types.bytes);
                if shared > gpu.most_shared {
                    (arguments.sorts, shared) = (0, number * 4);
                }
                let parameters = Parameters::of(&arguments);
                let scanning = (number.div_ceil(deal::WARPS), THREADS);
                launch(TypeId::of::<deal::Count>(), (blocks, THREADS), number * 4, &parameters)?;
                launch(TypeId::of::<deal::Scan>(), scanning, 0, &parameters)?;
                launch(types.move_items, (blocks, deal::MOVING), shared, &parameters)?;
                (items, indices, index_words) = (dealt.cast(), dealt_indices.cast(), 1);
            }
        }
        let arguments = Arguments {
            items,
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
            buckets,
        };
        let mut parameters = Parameters::of(&arguments);
        launch(types.add, (blocks, THREADS), shared, &parameters)?;
        if types.rest_words > 0 {
            launch(types.rest, (blocks, THREADS), shared, &parameters)?;
        }
        let wrong = wrong.unwrap_or(state.wrapping_add(STATE));
        let (onto, counted) = (u32::from(onto), u32::from(types.counts));
        parameters.push(&results);
        parameters.push(&wrong);
        parameters.push(&onto);
        parameters.push(&counted);
        let of_block = if buckets.table.is_null() { FINISHED } else { FINISHING };
        // Each block counts itself at its end, one after another.
        let finishing = count.div_ceil(of_block).clamp(1, 32 * gpu.multiprocessors);
        let finished = launch(types.finish, (finishing, FINISHING), 0, &parameters)?;
        finished.ok_or_else(|| no_kernel((types.name)(), FINISHING))
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
        let needs = Needs::of(self, tally);
        needs.map_or(0, |needs| needs.areas().map(area_bytes::<u64>).fold(0, usize::saturating_add))
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
