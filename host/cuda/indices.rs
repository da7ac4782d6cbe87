//! Indices that a GPU makes: of the elements of rows, and of the bins of a histogram.

use super::Gpu;
use super::scratch::zeros;
use super::stream::Workspace;
use crate::{Buffer, Element, Error};
use cust::sys;
use gpu_reduce_kernels::index::STATE;
use gpu_reduce_kernels::indices::{Binning, Bins, Expand, FindBins, Rows, THREADS};
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::segments::Cut;
use std::any::TypeId;

impl Gpu {
    /// The grid for a number of items.
    pub(super) fn grid(&self, len: usize) -> (u32, u32) {
        (len.div_ceil(THREADS as usize).min(self.multiprocessors as usize * 16) as u32, THREADS)
    }

    /// Makes the indices of the elements of rows, and waits. Returns the place of the first wrong index, or
    /// [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// The pointers are valid as [`Rows`] says, but for `wrong`, until the call returns.
    pub unsafe fn expand(&self, rows: Rows) -> Result<u64, Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            let (scratch, source) = (&mut queue.scratch.order, &mut queue.scratch.source);
            let wrong = zeros(&mut scratch.state, false, self, (source, &queue.stream), STATE)?;
            let rows = Rows { wrong, ..rows };
            let grid = self.grid(rows.len as usize);
            // SAFETY: as the caller vouches; the word is scratch memory.
            let [wrong] = unsafe {
                queue.launch_one(self, TypeId::of::<Expand>(), grid, 0, &Parameters::of(&rows))?;
                queue.take_words(self, wrong)?
            };
            Ok(if wrong == 0 { Cut::NOTHING } else { !wrong })
        })
    }

    /// Finds the bin of each item, and waits.
    ///
    /// # Safety
    ///
    /// There are `len` items, which nothing writes to until the call returns, and one more edge than bins.
    pub unsafe fn find_bins<T: Element>(
        &'static self,
        items: *const T,
        len: usize,
        bins: Bins,
        edges: *const f64,
    ) -> Result<Buffer<u32>, Error> {
        let mut found = Buffer::room(self, len)?;
        if let crate::place::Place::Gpu(indices) = found.whole_mut() {
            let binning = Binning { items, len: len as u64, bins, edges, indices };
            self.with_workspace(|Workspace { queue, .. }| {
                // SAFETY: as the caller vouches.
                unsafe {
                    let kernel = TypeId::of::<FindBins<T>>();
                    queue.launch_one(self, kernel, self.grid(len), 0, &Parameters::of(&binning))?;
                    self.done("finding bins", sys::cuStreamSynchronize(queue.stream.as_inner()))
                }
            })?;
        }
        Ok(found)
    }
}
