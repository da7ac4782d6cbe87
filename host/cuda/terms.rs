//! Sums by index of terms on a GPU: a kernel that makes the terms, then sums by index.

use super::Gpu;
use super::modules::Compiled;
use super::pending::Launched;
use super::queue::Queue;
use super::scratch::{Area, area, area_bytes};
use super::stream::{GpuStream, Workspace};
use crate::Error;
use crate::by_index::Tally;
use crate::request::{Making, Terms};
use gpu_reduce_kernels::indices::THREADS;
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::segments::Cut;
use gpu_reduce_kernels::slot;
use gpu_reduce_kernels::terms::{Factors, Keep, Keeping, Multiply, Picking, TILE};
use std::any::TypeId;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

/// Scratch memory of sums of terms.
#[derive(Default)]
pub struct TermsScratch {
    terms: Vec<Area<u64>>,
    /// If some items are not counted: the index of each term, a result for each sum, and the place of the
    /// first wrong index.
    indices: Vec<Area<u64>>,
    results: Vec<Area<u64>>,
    wrong: Vec<Area<u64>>,
}

impl Terms {
    /// Words of each area.
    fn areas(&self) -> [usize; 4] {
        let (len, sums) = (self.sums.len as usize, self.sums.count as usize + 1);
        let terms = (len * self.sums.types.bytes).div_ceil(8);
        if self.drops() {
            [terms, len.div_ceil(2), (sums * self.result_bytes).div_ceil(8), 1]
        } else {
            [terms, 0, 0, 0]
        }
    }

    /// Whether some items are not counted.
    fn drops(&self) -> bool {
        matches!(self.making, Making::Pick { drops: true, .. })
    }

    /// The sums of terms at an address.
    fn of_terms(&self, terms: *const u64, indices: *const u32, results: *mut u64) -> Tally {
        let sums = Tally { items: terms.cast(), ..self.sums };
        if !self.drops() {
            return sums;
        }
        Tally { indices, index_words: 1, count: sums.count + 1, results: results.cast(), ..sums }
    }
}

impl Queue {
    /// Enqueues sums by index of terms. Returns the last kernel of the sums. `wrong` is as for
    /// [`enqueue_tally`](Self::enqueue_tally).
    ///
    /// # Safety
    ///
    /// As for [`enqueue_tally`](Self::enqueue_tally).
    unsafe fn enqueue_terms(
        &mut self,
        gpu: &Gpu,
        all: &Terms,
        wrong: Option<*mut u64>,
    ) -> Result<&'static Compiled, Error> {
        let &Tally { indices, index_words, len, count, results, .. } = &all.sums;
        let is_capturing = self.is_capturing;
        let (scratch, source) = (&mut self.scratch.terms, &mut self.scratch.source);
        let [of_terms, of_indices, of_results, of_wrong] = all.areas();
        let terms = area(&mut scratch.terms, is_capturing, gpu, source, of_terms)?;
        let (mut picked, mut sums, mut is_wrong) = (null_mut::<u32>(), null_mut(), null_mut());
        if all.drops() {
            picked = area(&mut scratch.indices, is_capturing, gpu, source, of_indices)?.cast();
            sums = area(&mut scratch.results, is_capturing, gpu, source, of_results)?;
            is_wrong = area(&mut scratch.wrong, is_capturing, gpu, source, of_wrong)?;
        }
        let grid = (gpu.grid((len as usize).div_ceil(TILE / THREADS as usize)).0, THREADS);
        match all.making {
            Making::Pick { kernel, items, zero, rule, .. } => {
                let picking = Picking::<u8> {
                    items: items.cast(),
                    len,
                    terms: terms.cast(),
                    zero,
                    indices,
                    index_words,
                    count,
                    picked,
                    rule,
                };
                // SAFETY: as the caller vouches; pointers of all types are alike, and the memory suffices.
                unsafe { self.launch_one(gpu, kernel, grid, 0, &Parameters::of(&picking))? };
            }
            Making::Multiply { dtype, items: [a, b] } => {
                let factors = Factors { a: a.cast(), b: b.cast(), dtype: dtype as u32, len, products: terms };
                // SAFETY: as the caller vouches; the memory suffices.
                unsafe {
                    self.launch_one(gpu, TypeId::of::<Multiply>(), grid, 0, &Parameters::of(&factors))?;
                }
            }
        }
        let tally = all.of_terms(terms, picked, sums);
        if !all.drops() {
            // SAFETY: as the caller vouches; the terms are of the sums' type.
            return unsafe { self.enqueue_tally(gpu, &tally, wrong) };
        }
        let words = u64::from(count) * (all.result_bytes / 4) as u64;
        let keeping = Keeping {
            sums: sums.cast_const().cast(),
            words,
            wrong: is_wrong,
            results: results.cast(),
            to_host: wrong.unwrap_or(null_mut()),
        };
        // SAFETY: as the caller vouches; there is room for one sum more, and results have 4 or 8 bytes.
        unsafe {
            let last = self.enqueue_tally(gpu, &tally, Some(is_wrong))?;
            // One block at least, which tells the host of a wrong index.
            let grid = gpu.grid((words as usize).max(1));
            self.launch_one(gpu, TypeId::of::<Keep>(), grid, 0, &Parameters::of(&keeping))?;
            Ok(last)
        }
    }
}

impl Gpu {
    /// Sums terms by index, and waits. Returns the place of the first wrong index, or [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_terms`], until the call returns; but the context need not be entered.
    pub unsafe fn tally_terms(&self, terms: &Terms) -> Result<u64, Error> {
        self.with_workspace(|Workspace { queue, result }| {
            let word = result.as_mut_ptr();
            // SAFETY: as the caller vouches; the word is the workspace's.
            unsafe {
                let kernel = queue.enqueue_terms(self, terms, Some(word))?;
                self.launched(kernel, queue.stream.synchronize())?;
                Ok(AtomicU64::from_ptr(word).swap(slot::EMPTY, Ordering::Relaxed))
            }
        })
    }

    /// The bytes of lent memory that [`Queue::enqueue_terms`] takes.
    pub fn bytes_of_terms(&self, terms: &Terms) -> usize {
        let sums = self.tally_bytes(&terms.of_terms(null_mut(), null_mut(), null_mut()));
        let areas = terms.areas().into_iter().filter(|&words| words > 0).map(area_bytes::<u64>);
        areas.fold(sums, usize::saturating_add)
    }
}

impl GpuStream {
    /// Enqueues sums by index of terms, whose results stay on the device.
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_terms`]; but the context need not be entered.
    pub unsafe fn enqueue_terms(&self, terms: &Terms) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        self.enter(|gpu, queue| unsafe { queue.enqueue_terms(gpu, terms, None).map(drop) })
    }

    /// As [`enqueue_terms`](Self::enqueue_terms). The first word tells the host the place of the first wrong
    /// index, or [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// As for [`enqueue_terms`](Self::enqueue_terms), until the work has ended.
    pub unsafe fn launch_terms(&self, terms: &Terms) -> Result<Launched, Error> {
        let part = self.launched((1, Cut::NOTHING), |gpu, queue, word| {
            // SAFETY: as the caller vouches; the word stays until the work has ended.
            unsafe { queue.enqueue_terms(gpu, terms, Some(word)).map(Some) }
        })?;
        Ok(part.into())
    }
}
