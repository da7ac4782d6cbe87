//! Sums by index on a GPU: three launches, and their scratch memory.

use super::Gpu;
use super::deal::{AREAS, Dealing, Dealt};
use super::modules::{Compiled, Grid, no_kernel};
use super::pending::Launched;
use super::queue::Queue;
use super::scratch::{Area, area, area_bytes, zeros};
use super::stream::{GpuStream, Workspace};
use crate::Error;
use crate::by_index::Tally;
use gpu_reduce_kernels::index::{
    Arguments, Buckets, COPIES, FINISHED, FINISHING, LIST_WORDS, STATE, THREADS, TILE, rest_bits,
};
use gpu_reduce_kernels::kernels::{Identity, Parameters};
use gpu_reduce_kernels::segments::Cut;
use std::any::TypeId;
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
    dealt: Option<Dealing>,
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
        let dealt = Dealing::new(gpu, len, count, types.bytes, slots)?;
        let &Dealing { log2, part, blocks, tables, .. } = &dealt;
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
    /// Enqueues sums by index. Returns the last kernel. `wrong` is memory of the host, or else of the device,
    /// that takes the place of the first wrong index, or [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, the items, the indices and the places of results stay, and
    /// nothing else writes to them. The types are those of the operator and the items. The context is
    /// entered.
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
        let mut input = Dealt { items, indices, index_words, buckets: Buckets::NONE };
        if let Some(dealing) = &dealt {
            // SAFETY: as the caller vouches; the state has these words.
            input = unsafe { self.enqueue_deal(gpu, dealing, types.move_items, input, state)? };
        }
        let Dealt { items, indices, index_words, buckets } = input;
        let (items, stream) = (items.cast::<u8>(), &self.stream);
        let launch = |kernel: TypeId, (blocks, block): (u32, u32), shared: u32, parameters: &Parameters| {
            if blocks == 0 {
                return Ok(None);
            }
            let (kernel, grid) = (Identity::of_type(kernel), Grid { blocks, block, resident: THREADS });
            // SAFETY: as the caller vouches; the parameters are those of the kernel, and the memory suffices.
            let kernel = unsafe {
                gpu.launch_with_shared(kernel, crate::Kernels::NONE, stream, (grid, shared), parameters)
            }?;
            kernel.map(Some).ok_or_else(|| no_kernel((types.name)(), block))
        };
        let arguments = Arguments {
            items,
            indices,
            index_words,
            copies,
            counted: types.is_counted.into(),
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
        let onto = u32::from(onto);
        parameters.push(&results);
        parameters.push(&wrong);
        parameters.push(&onto);
        let of_block = if buckets.table.is_null() { FINISHED } else { FINISHING };
        // Each block counts itself at its end, one after another.
        let finishing = count.div_ceil(of_block).clamp(1, 8 * gpu.multiprocessors);
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
