//! Extremes by index on a GPU.

use super::Gpu;
use super::queue::Queue;
use super::scratch::{Area, area_bytes, zeros};
use super::stream::{GpuStream, Workspace};
use super::tally::parts;
use crate::Error;
use crate::request::Extremes;
use gpu_reduce_kernels::extremes::{Arguments, STATE};
use gpu_reduce_kernels::index::THREADS;
use gpu_reduce_kernels::kernels::Parameters;

/// Scratch memory of extremes by index, all zeros between launches.
#[derive(Default)]
pub struct ExtremesScratch {
    words: Vec<Area<u64>>,
    bits: Vec<Area<u64>>,
    state: Vec<Area<u64>>,
}

impl Queue {
    /// Enqueues extremes by index. Returns the words of the device that take the complements of the place of the first
    /// wrong index, and of the first index without a result; or 0.
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, the items, the indices and the places of results stay, and nothing
    /// else writes to them. The types are those of the items. The context is entered.
    unsafe fn enqueue_extremes(&mut self, gpu: &Gpu, extremes: &Extremes) -> Result<*mut u64, Error> {
        let &Extremes { offer, finish, items, indices, index_words, len, count, .. } = extremes;
        let &Extremes { bits, results, default, has_default, .. } = extremes;
        let (is_capturing, stream) = (self.is_capturing, &self.stream);
        let (scratch, source) = (&mut self.scratch.extremes, &mut self.scratch.source);
        let words = zeros(&mut scratch.words, is_capturing, gpu, (&mut *source, stream), count)?;
        let bits = zeros(&mut scratch.bits, is_capturing, gpu, (&mut *source, stream), bits.div_ceil(2))?;
        let state = zeros(&mut scratch.state, is_capturing, gpu, (source, stream), STATE)?;
        let table = count as u64 * 8;
        let has_table = table <= gpu.most_shared.into();
        let multiprocessors = u64::from(gpu.multiprocessors);
        let (part, blocks) = parts(len as u64, 2 * multiprocessors.max(len as u64 >> 30));
        let arguments = Arguments::<u8> {
            items: items.cast(),
            indices,
            index_words,
            count: count as u32,
            len: len as u64,
            part,
            words,
            bits: bits.cast(),
            state,
            has_table: has_table.into(),
        };
        let mut parameters = Parameters::of(&arguments);
        let shared = if has_table { table as u32 } else { 0 };
        let has_default = u32::from(has_default);
        // SAFETY: as the caller vouches; the parameters are those of the kernels.
        unsafe {
            self.clear(gpu, state, STATE)?;
            self.launch_one(gpu, offer, (blocks, THREADS), shared, &parameters)?;
            parameters.push(&results);
            parameters.push_address(default);
            parameters.push(&has_default);
            let blocks = count.div_ceil(THREADS as usize).min(16 * gpu.multiprocessors as usize) as u32;
            self.launch_one(gpu, finish, (blocks, THREADS), 0, &parameters)?;
        }
        Ok(state)
    }
}

impl Gpu {
    /// Finds extremes by index, and waits. Returns the place of the first wrong index, and the first index without a
    /// result.
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_extremes`], until the call returns; but the context need not be entered.
    pub unsafe fn extremes(&self, extremes: &Extremes) -> Result<[Option<u64>; STATE], Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            // SAFETY: as the caller vouches; the words are the queue's.
            let words: [u64; STATE] = unsafe {
                let state = queue.enqueue_extremes(self, extremes)?;
                queue.take_words(self, state)?
            };
            Ok(words.map(|word| (word != 0).then_some(!word)))
        })
    }

    /// The bytes of lent memory that [`Queue::enqueue_extremes`] takes.
    pub fn extremes_bytes(&self, extremes: &Extremes) -> usize {
        [extremes.count, extremes.bits.div_ceil(2), STATE].map(area_bytes::<u64>).iter().sum()
    }
}

impl GpuStream {
    /// Enqueues extremes by index, whose results stay on the device.
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_extremes`]; but the context need not be entered.
    pub unsafe fn enqueue_extremes(&self, extremes: &Extremes) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        self.enter(|gpu, queue| unsafe { queue.enqueue_extremes(gpu, extremes).map(drop) })
    }
}
