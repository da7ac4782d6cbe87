//! The order of items by their index on a GPU: a stable radix sort.

use super::Gpu;
use super::modules::{Compiled, Grid, no_kernel};
use super::queue::Queue;
use super::scratch::{Area, area, zeros};
use super::stream::Workspace;
use super::tally::{MOST_DEALT, parts};
use crate::Error;
use cust::memory::{CopyDestination, DevicePointer, DeviceSlice};
use gpu_reduce_kernels::deal::{self, Arguments, WARPS};
use gpu_reduce_kernels::index::{self, Buckets, STATE};
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::order::{Copies, DIGIT, FindOffsets, Gather, Move, Offsets, THREADS};
use gpu_reduce_kernels::segments::Cut;
use std::any::{TypeId, type_name};
use std::ffi::c_void;
use std::ptr::{null, null_mut};

/// The most items that a GPU sorts.
pub const MOST_ORDERED: usize = MOST_DEALT as usize - 1;

/// Scratch memory of the order of items.
#[derive(Default)]
pub struct OrderScratch {
    /// Counts of blocks, and the table of buckets.
    counts: Vec<Area<u64>>,
    table: Vec<Area<u64>>,
    /// All zeros between launches.
    state: Vec<Area<u64>>,
    /// Indices and places between passes.
    indices: [Vec<Area<u64>>; 2],
    places: [Vec<Area<u64>>; 2],
}

/// Items that are sorted by their index.
pub struct Sorting {
    pub indices: *const u32,
    pub index_words: u32,
    /// At least one item, and at most [`MOST_ORDERED`].
    pub len: usize,
    /// The number of indices.
    pub count: usize,
    /// Takes the place of each item.
    pub places: *mut u32,
    /// Takes where each index begins, and where the last ends.
    pub offsets: *mut u32,
}

impl Queue {
    /// Enqueues a kernel.
    ///
    /// # Safety
    ///
    /// The parameters are those of the kernel, and what they point to suffices.
    unsafe fn launch_of<K: 'static>(
        &self,
        gpu: &Gpu,
        (blocks, block): (u32, u32),
        shared: u32,
        parameters: &Parameters,
    ) -> Result<&'static Compiled, Error> {
        let grid = (Grid { blocks, block, resident: index::THREADS }, shared);
        // SAFETY: as the caller vouches.
        let kernel = unsafe {
            gpu.launch_with_shared(TypeId::of::<K>(), crate::Kernels::NONE, &self.stream, grid, parameters)
        };
        kernel?.ok_or_else(|| no_kernel(type_name::<K>(), block))
    }

    /// Enqueues the sort. Returns the last kernel, and the word of the device that takes the complement of the place
    /// of the first wrong index, or 0. The work that resets that word is the caller's.
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, the indices and what takes the order stay, and nothing else accesses
    /// them. The context is entered.
    unsafe fn enqueue_order(
        &mut self,
        gpu: &Gpu,
        sorting: &Sorting,
    ) -> Result<(&'static Compiled, *mut u64), Error> {
        let &Sorting { indices, index_words, len, count, places, offsets } = sorting;
        let bits = (usize::BITS - (count - 1).leading_zeros()).max(1);
        let passes = bits.div_ceil(DIGIT);
        let digit = bits.div_ceil(passes);
        let (of_block, blocks) = parts(len as u64, 2 * u64::from(gpu.multiprocessors));
        let (is_capturing, stream) = (self.is_capturing, &self.stream);
        let (scratch, source) = (&mut self.scratch.order, &mut self.scratch.source);
        let state = zeros(&mut scratch.state, is_capturing, gpu, (&mut *source, stream), STATE)?;
        let words = (blocks as usize) << digit;
        let counts = area(&mut scratch.counts, is_capturing, gpu, source, words.div_ceil(2))?;
        let table = area(&mut scratch.table, is_capturing, gpu, source, 3 * ((1 << digit) + 1))?;
        let mut of_passes = [[null_mut::<u32>(); 2]; 2];
        for (buffer, [of_indices, of_places]) in of_passes.iter_mut().enumerate() {
            let words = |is_needed| if is_needed { len.div_ceil(2) } else { 0 };
            let buffer = buffer as u32;
            let at = buffer as usize;
            let (has_indices, has_places) = (buffer < passes, buffer + 1 < passes);
            *of_indices =
                area(&mut scratch.indices[at], is_capturing, gpu, source, words(has_indices))?.cast();
            *of_places = area(&mut scratch.places[at], is_capturing, gpu, source, words(has_places))?.cast();
        }
        let (mut from, mut sorted) = ((null(), indices, index_words), null_mut());
        for pass in 0..passes {
            let [to_indices, mut to_places] = of_passes[pass as usize % 2];
            if pass + 1 == passes {
                to_places = places;
            }
            let (items, indices, index_words) = from;
            let arguments = Arguments {
                items,
                indices,
                index_words,
                count: count as u32,
                len: len as u64,
                blocks,
                part: of_block as u32,
                counts: counts.cast(),
                of_part: of_block,
                buckets: Buckets { table, log2: (pass * digit).into() },
                dealt: to_places,
                dealt_indices: to_indices,
                state,
                sorts: 0,
                mask: (1 << digit) - 1,
                aligned: 1,
            };
            let (number, parameters) = (arguments.number(), Parameters::of(&arguments));
            // SAFETY: as the caller vouches; the scratch memory suffices.
            unsafe {
                self.launch_of::<deal::Count>(gpu, (blocks, index::THREADS), number * 4, &parameters)?;
                let scanning = number.div_ceil(WARPS);
                self.launch_of::<deal::Scan>(gpu, (scanning, index::THREADS), 0, &parameters)?;
                self.launch_of::<Move>(gpu, (blocks, THREADS), 0, &parameters)?;
            }
            (from, sorted) = ((to_places.cast_const(), to_indices.cast_const(), 1), to_indices);
        }
        let most = gpu.multiprocessors * 16;
        let share = (count as u32 + 1).div_ceil(most).next_multiple_of(THREADS);
        let blocks = (count as u32 + 1).div_ceil(share);
        let arguments = Offsets { indices: sorted, len: len as u32, count: count as u32, share, offsets };
        // SAFETY: as above.
        let kernel =
            unsafe { self.launch_of::<FindOffsets>(gpu, (blocks, THREADS), 0, &Parameters::of(&arguments))? };
        Ok((kernel, state))
    }
}

impl Gpu {
    /// Sorts items by their index, and waits. Returns the place of the first wrong index, or [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_order`], until the call returns; but the context need not be entered.
    pub unsafe fn sort(&self, sorting: &Sorting) -> Result<u64, Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            // SAFETY: as the caller vouches; the word is the queue's.
            unsafe {
                let (kernel, state) = queue.enqueue_order(self, sorting)?;
                self.launched(kernel, queue.stream.synchronize())?;
                let mut word = DeviceSlice::from_raw_parts(DevicePointer::<u64>::from_raw(state as u64), 1);
                let mut wrong = [0];
                word.copy_to(&mut wrong).map_err(|error| self.failed("copying to the host", error))?;
                word.copy_from(&[0]).map_err(|error| self.failed("copying to the device", error))?;
                Ok(if wrong[0] == 0 { Cut::NOTHING } else { !wrong[0] })
            }
        })
    }

    /// Copies `len` items of a size, aligned to `align`, in the order of `places`, and waits.
    ///
    /// # Safety
    ///
    /// Places and items are there, and room for the copies, until the call returns.
    pub unsafe fn gather(
        &self,
        items: *const c_void,
        (size, align): (usize, usize),
        places: *const u32,
        len: usize,
        copies: *mut c_void,
    ) -> Result<(), Error> {
        let unit = align.min(8);
        let units = size / unit;
        let len = (len * units) as u64;
        if len == 0 {
            return Ok(());
        }
        let grid = (len.div_ceil(u64::from(THREADS) * 4)).min(u64::from(self.multiprocessors) * 16) as u32;
        self.with_workspace(|Workspace { queue, .. }| {
            macro_rules! launch {
                ($type:ty) => {{
                    let (items, copies) = (items.cast(), copies.cast());
                    let arguments = Copies::<$type> { items, units: units as u32, places, len, copies };
                    // SAFETY: as the caller vouches.
                    unsafe {
                        queue.launch_of::<Gather<$type>>(
                            self,
                            (grid, THREADS),
                            0,
                            &Parameters::of(&arguments),
                        )
                    }
                }};
            }
            let kernel = match unit {
                1 => launch!(u8),
                2 => launch!(u16),
                4 => launch!(u32),
                _ => launch!(u64),
            }?;
            self.launched(kernel, queue.stream.synchronize())
        })
    }
}
