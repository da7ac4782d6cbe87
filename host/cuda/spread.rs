//! Variances and standard deviations by index on a GPU: sums by index, of the items and of the squares of
//! their distances from the means, and two kernels between and after these.

use super::Gpu;
use super::modules::Compiled;
use super::pending::Launched;
use super::queue::Queue;
use super::scratch::{Area, area, area_bytes};
use super::stream::{GpuStream, Workspace};
use crate::by_index::Tally;
use crate::request::{Spread, TallyTypes};
use crate::{Error, Sum};
use gpu_reduce_kernels::center::{Distances, Divide, Spreads, Square};
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::op::center::Center;
use gpu_reduce_kernels::segments::Cut;
use gpu_reduce_kernels::slot;
use std::any::TypeId;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

/// Scratch memory of variances by index.
#[derive(Default)]
pub struct SpreadScratch {
    centers: Vec<Area<u64>>,
    /// The square of each item, then the sum of each index.
    squares: Vec<Area<u64>>,
    /// The place of the first wrong index.
    wrong: Vec<Area<u64>>,
}

/// Words of a [`Center`].
const CENTER: usize = size_of::<Center>() / 8;

/// Words of each area.
fn areas(&Tally { len, count, .. }: &Tally) -> [usize; 3] {
    let (len, count) = (len as usize, count as usize);
    [CENTER * count, len.saturating_add(count), 1]
}

/// The sums of squares.
fn of_squares(items: &Tally, squares: *mut u64) -> Tally {
    Tally {
        types: TallyTypes::of::<Sum, f64>(),
        items: squares.cast_const().cast(),
        results: squares.wrapping_add(items.len as usize).cast(),
        ..*items
    }
}

impl Queue {
    /// Enqueues variances by index. Returns the last kernel of sums. `wrong` is as for
    /// [`enqueue_tally`](Self::enqueue_tally).
    ///
    /// # Safety
    ///
    /// As for [`enqueue_tally`](Self::enqueue_tally).
    unsafe fn enqueue_spread(
        &mut self,
        gpu: &Gpu,
        &Spread { ref items, dtype, ddof, is_root, result_bytes, results }: &Spread,
        wrong: Option<*mut u64>,
    ) -> Result<&'static Compiled, Error> {
        let &Tally { items: of_items, indices, index_words, len, count, .. } = items;
        let is_capturing = self.is_capturing;
        let (scratch, source) = (&mut self.scratch.spread, &mut self.scratch.source);
        let [of_centers, of_squares, of_wrong] = areas(items);
        let centers = area(&mut scratch.centers, is_capturing, gpu, source, of_centers)?;
        let squares = area(&mut scratch.squares, is_capturing, gpu, source, of_squares)?;
        let is_wrong = area(&mut scratch.wrong, is_capturing, gpu, source, of_wrong)?;
        let sums = self::of_squares(items, squares);
        let distances = Distances {
            items: of_items.cast(),
            dtype: dtype as u32,
            indices,
            index_words,
            len,
            centers: centers.cast_const().cast(),
            wrong: is_wrong,
            squares: squares.cast(),
        };
        let spreads = Spreads {
            centers: distances.centers,
            squares: sums.results.cast_const().cast(),
            count: count.into(),
            wrong: is_wrong,
            ddof,
            is_root: is_root.into(),
            is_short: (result_bytes == 4).into(),
            results: results.cast(),
        };
        // SAFETY: as the caller vouches; the parameters are those of the kernels, and the memory suffices.
        unsafe {
            self.enqueue_tally(gpu, &Tally { results: centers.cast(), ..*items }, Some(is_wrong))?;
            let (kernel, parameters) = (TypeId::of::<Square>(), Parameters::of(&distances));
            self.launch_one(gpu, kernel, gpu.grid(len as usize), 0, &parameters)?;
            let last = self.enqueue_tally(gpu, &sums, wrong)?;
            let (kernel, parameters) = (TypeId::of::<Divide>(), Parameters::of(&spreads));
            self.launch_one(gpu, kernel, gpu.grid(count as usize), 0, &parameters)?;
            Ok(last)
        }
    }
}

impl Gpu {
    /// Reduces by index to variances, and waits. Returns the place of the first wrong index, or
    /// [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_spread`], until the call returns; but the context need not be entered.
    pub unsafe fn spread(&self, spread: &Spread) -> Result<u64, Error> {
        self.with_workspace(|Workspace { queue, result }| {
            let word = result.as_mut_ptr();
            // SAFETY: as the caller vouches; the word is the workspace's.
            unsafe {
                let kernel = queue.enqueue_spread(self, spread, Some(word))?;
                self.launched(kernel, queue.stream.synchronize())?;
                Ok(AtomicU64::from_ptr(word).swap(slot::EMPTY, Ordering::Relaxed))
            }
        })
    }

    /// The bytes of lent memory that [`Queue::enqueue_spread`] takes.
    pub fn spread_bytes(&self, Spread { items, .. }: &Spread) -> usize {
        let tallies = [self.tally_bytes(items), self.tally_bytes(&of_squares(items, null_mut()))];
        tallies.into_iter().chain(areas(items).map(area_bytes::<u64>)).fold(0, usize::saturating_add)
    }
}

impl GpuStream {
    /// Enqueues variances by index, whose results stay on the device.
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_spread`]; but the context need not be entered.
    pub unsafe fn enqueue_spread(&self, spread: &Spread) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        self.enter(|gpu, queue| unsafe { queue.enqueue_spread(gpu, spread, None).map(drop) })
    }

    /// As [`enqueue_spread`](Self::enqueue_spread). The first word tells the host the place of the first
    /// wrong index, or [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// As for [`enqueue_spread`](Self::enqueue_spread), until the work has ended.
    pub unsafe fn launch_spread(&self, spread: &Spread) -> Result<Launched, Error> {
        let part = self.launched((1, Cut::NOTHING), |gpu, queue, word| {
            // SAFETY: as the caller vouches; the word stays until the work has ended.
            unsafe { queue.enqueue_spread(gpu, spread, Some(word)).map(Some) }
        })?;
        Ok(part.into())
    }
}
