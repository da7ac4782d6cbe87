//! The order of items by their index on a GPU: a stable radix sort.

use super::Gpu;
use super::modules::{Grid, no_kernel};
use super::queue::Queue;
use super::scratch::{Area, area, zeros};
use super::stream::Workspace;
use super::tally::parts;
use crate::Error;
use crate::request::Sorting;
use cust::sys;
use gpu_reduce_kernels::deal::{self, Arguments, WARPS};
use gpu_reduce_kernels::index::{self, Buckets, STATE};
use gpu_reduce_kernels::kernels::{Identity, Parameters};
use gpu_reduce_kernels::order::{Copies, DIGIT, FindOffsets, Gather, Move, Offsets, THREADS, moving_bytes};
use gpu_reduce_kernels::segments::Cut;
use std::any::TypeId;
use std::ffi::c_void;
use std::ptr::null_mut;

/// Scratch memory of the order of items.
#[derive(Default)]
pub struct OrderScratch {
    /// Counts of blocks, and the table of buckets.
    counts: Vec<Area<u64>>,
    table: Vec<Area<u64>>,
    /// All zeros between launches, but for the last word of the order's [`STATE`] and one more.
    pub(super) state: Vec<Area<u64>>,
    /// Indices and items between passes.
    indices: [Vec<Area<u64>>; 2],
    items: [Vec<Area<u64>>; 2],
}

/// How items are sorted, and the words of 64 bits of scratch memory.
pub(super) struct SortNeeds {
    passes: u32,
    /// Bits of a digit.
    digit: u32,
    /// Items of a block, and blocks.
    of_block: u32,
    blocks: u32,
    counts: usize,
    table: usize,
    indices: [usize; 2],
    items: [usize; 2],
}

impl SortNeeds {
    pub(super) fn of(gpu: &Gpu, &Sorting { len, count, bytes, .. }: &Sorting) -> Self {
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(1);
        let passes = bits.div_ceil(DIGIT);
        let digit = bits.div_ceil(passes);
        let (of_block, blocks) = parts(len as u64, 2 * u64::from(gpu.multiprocessors));
        let words = |bytes: usize, is_needed: bool| if is_needed { (len * bytes).div_ceil(8) } else { 0 };
        Self {
            passes,
            digit,
            of_block: of_block as u32,
            blocks,
            counts: ((blocks as usize) << digit).div_ceil(2),
            table: 2 << digit,
            indices: [words(4, true), words(4, passes > 1)],
            items: [words(bytes, passes > 1), words(bytes, passes > 2)],
        }
    }

    /// The words of all areas but the state's.
    pub(super) fn areas(&self) -> impl Iterator<Item = usize> {
        [self.counts, self.table].into_iter().chain(self.indices).chain(self.items)
    }
}

impl Queue {
    /// Enqueues a kernel of the library's tables, with bytes of shared memory, unless the grid has no blocks.
    ///
    /// # Safety
    ///
    /// The parameters are those of the kernel, and what they point to suffices. The context is entered.
    pub(super) unsafe fn launch_one(
        &self,
        gpu: &Gpu,
        kernel: TypeId,
        (blocks, block): (u32, u32),
        shared: u32,
        parameters: &Parameters,
    ) -> Result<(), Error> {
        if blocks == 0 {
            return Ok(());
        }
        let (kernel, grid) =
            (Identity::of_type(kernel), (Grid { blocks, block, resident: index::THREADS }, shared));
        // SAFETY: as the caller vouches.
        let kernel =
            unsafe { gpu.launch_with_shared(kernel, crate::Kernels::NONE, &self.stream, grid, parameters) }?;
        kernel.map(drop).ok_or_else(|| no_kernel("for keys or indices", block))
    }

    /// The state of [`index`] for the sort of items, and a word more: [`Offsets::state`].
    pub(super) fn state_of_order(&mut self, gpu: &Gpu) -> Result<*mut u64, Error> {
        let (scratch, source) = (&mut self.scratch.order, &mut self.scratch.source);
        zeros(&mut scratch.state, self.is_capturing, gpu, (source, &self.stream), STATE + 1)
    }

    /// Enqueues the sort of items by their indices, each less than `count`, which is 2^32 at most. Returns
    /// the sorted indices, and the word of the device that takes the complement of the place of the first
    /// wrong index, or 0. The work that resets that word is the caller's.
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, the indices and what takes the places stay, and nothing else
    /// accesses them. The context is entered.
    pub(super) unsafe fn enqueue_sort(
        &mut self,
        gpu: &Gpu,
        sorting: &Sorting,
    ) -> Result<(*const u32, *mut u64), Error> {
        let &Sorting { items, bytes, indices, index_words, len, count, sorted } = sorting;
        let needs = SortNeeds::of(gpu, sorting);
        let SortNeeds { passes, digit, of_block, blocks, .. } = needs;
        let state = self.state_of_order(gpu)?;
        let is_capturing = self.is_capturing;
        let (scratch, source) = (&mut self.scratch.order, &mut self.scratch.source);
        let counts = area(&mut scratch.counts, is_capturing, gpu, source, needs.counts)?;
        let table = area(&mut scratch.table, is_capturing, gpu, source, needs.table)?;
        let mut of_passes = [(null_mut::<u32>(), null_mut::<u8>()); 2];
        for (buffer, (of_indices, of_items)) in (0..).zip(&mut of_passes) {
            let (indices, items) = (&mut scratch.indices[buffer], &mut scratch.items[buffer]);
            *of_indices = area(indices, is_capturing, gpu, source, needs.indices[buffer])?.cast();
            *of_items = area(items, is_capturing, gpu, source, needs.items[buffer])?.cast();
        }
        let moving = match bytes {
            1 => TypeId::of::<Move<u8>>(),
            2 => TypeId::of::<Move<u16>>(),
            4 => TypeId::of::<Move<u32>>(),
            _ => TypeId::of::<Move<u64>>(),
        };
        let mut from = (items.cast::<u8>(), indices, index_words);
        for pass in 0..passes {
            let (to_indices, mut to) = of_passes[pass as usize % 2];
            if pass + 1 == passes {
                to = sorted.cast();
            }
            let (items, indices, index_words) = from;
            let arguments = Arguments {
                items,
                indices,
                index_words,
                count: count as u32,
                len: len as u64,
                blocks,
                part: of_block,
                counts: counts.cast(),
                buckets: Buckets { table, log2: (pass * digit).into() },
                dealt: to,
                dealt_indices: to_indices,
                state,
                sorts: 0,
                mask: (1 << digit) - 1,
                aligned: 1,
                kept: u32::MAX,
                window: u32::BITS,
            };
            let (number, parameters) = (arguments.number(), Parameters::of(&arguments));
            let counting = TypeId::of::<deal::Count>();
            // SAFETY: as the caller vouches; the scratch memory suffices.
            unsafe {
                self.launch_one(gpu, counting, (blocks, index::THREADS), number * 4, &parameters)?;
                let scanning = (number.div_ceil(WARPS), index::THREADS);
                self.launch_one(gpu, TypeId::of::<deal::Scan>(), scanning, 0, &parameters)?;
                let shared = moving_bytes(bytes as u32);
                self.launch_one(gpu, moving, (blocks, THREADS), shared, &parameters)?;
            }
            from = (to.cast_const(), to_indices.cast_const(), 1);
        }
        Ok((from.1, state))
    }

    /// Enqueues the search for where each index begins among those that [`enqueue_sort`](Self::enqueue_sort)
    /// has returned.
    ///
    /// # Safety
    ///
    /// As for [`enqueue_sort`](Self::enqueue_sort). There is an offset for each index, and one more.
    pub(super) unsafe fn enqueue_offsets(
        &self,
        gpu: &Gpu,
        sorting: &Sorting,
        (indices, state): (*const u32, *mut u64),
        offsets: *mut u32,
    ) -> Result<(), Error> {
        let (len, count) = (sorting.len as u32, sorting.count as u32);
        let most = gpu.multiprocessors * 16;
        let share = (count + 1).div_ceil(most).next_multiple_of(THREADS);
        let blocks = (count + 1).div_ceil(share);
        let parameters = Offsets { indices, len, count, share, state, offsets };
        let (kernel, parameters) = (TypeId::of::<FindOffsets>(), Parameters::of(&parameters));
        // SAFETY: as the caller vouches.
        unsafe { self.launch_one(gpu, kernel, (blocks, THREADS), 0, &parameters) }
    }

    /// Enqueues the copies of parts of items: of each item, `size` bytes in units of `unit` bytes, from one
    /// item to the next `stride` bytes.
    ///
    /// # Safety
    ///
    /// Places and items are there, and room for the copies, until the stream has been synchronized. The
    /// context is entered.
    pub(super) unsafe fn enqueue_gather(
        &self,
        gpu: &Gpu,
        items: *const c_void,
        [size, unit, stride]: [usize; 3],
        (places, len): (*const u32, usize),
        copies: *mut c_void,
    ) -> Result<(), Error> {
        let unit = unit.min(8);
        let [units, stride] = [size, stride].map(|bytes| (bytes / unit) as u32);
        let kernel = match unit {
            1 => TypeId::of::<Gather<u8>>(),
            2 => TypeId::of::<Gather<u16>>(),
            4 => TypeId::of::<Gather<u32>>(),
            _ => TypeId::of::<Gather<u64>>(),
        };
        let len = len as u64 * u64::from(units);
        let arguments =
            Copies::<u8> { items: items.cast(), units, stride, places, len, copies: copies.cast() };
        let blocks = len.div_ceil(u64::from(THREADS) * 4).min(u64::from(gpu.multiprocessors) * 16) as u32;
        // SAFETY: as the caller vouches.
        unsafe { self.launch_one(gpu, kernel, (blocks, THREADS), 0, &Parameters::of(&arguments)) }
    }
}

impl Gpu {
    /// Sorts items by their index, and waits. `offsets` take where each index begins, and where the last
    /// ends. Returns the place of the first wrong index, or [`Cut::NOTHING`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_sort`], until the call returns; but the context need not be entered.
    pub unsafe fn sort(&self, sorting: &Sorting, offsets: *mut u32) -> Result<u64, Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            // SAFETY: as the caller vouches; the word is the queue's.
            unsafe {
                let (indices, state) = queue.enqueue_sort(self, sorting)?;
                queue.enqueue_offsets(self, sorting, (indices, state), offsets)?;
                let [wrong] = queue.take_words(self, state)?;
                Ok(if wrong == 0 { Cut::NOTHING } else { !wrong })
            }
        })
    }

    /// Copies `len` items of a size and an alignment in the order of `places`, and waits.
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_gather`], until the call returns; but the context need not be entered.
    pub unsafe fn gather(
        &self,
        items: *const c_void,
        [size, align]: [usize; 2],
        places: (*const u32, usize),
        copies: *mut c_void,
    ) -> Result<(), Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            // SAFETY: as the caller vouches; the stream is live.
            unsafe {
                queue.enqueue_gather(self, items, [size, align, size], places, copies)?;
                self.done("copying items", sys::cuStreamSynchronize(queue.stream.as_inner()))
            }
        })
    }
}

impl Queue {
    /// Waits for the stream. Returns words of device memory, and sets them to 0.
    ///
    /// # Safety
    ///
    /// There are such words. The context is entered.
    pub(super) unsafe fn take_words<const N: usize>(
        &self,
        gpu: &Gpu,
        words: *mut u64,
    ) -> Result<[u64; N], Error> {
        let mut values = [0u64; N];
        // SAFETY: as the caller vouches; the copy has ended when the stream has been synchronized.
        unsafe {
            let stream = self.stream.as_inner();
            let copied = sys::cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), words as u64, 8 * N, stream);
            gpu.done("copying to the host", copied)?;
            self.clear(gpu, words, N)?;
            gpu.done("waiting for kernels of keys or indices", sys::cuStreamSynchronize(stream))?;
        }
        Ok(values)
    }

    /// Enqueues what sets words of device memory to 0.
    ///
    /// # Safety
    ///
    /// As for [`take_words`](Self::take_words).
    pub(super) unsafe fn clear(&self, gpu: &Gpu, words: *mut u64, count: usize) -> Result<(), Error> {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: as the caller vouches.
        let set = unsafe { sys::cuMemsetD32Async(words as u64, 0, 2 * count, self.stream.as_inner()) };
        gpu.done("clearing memory", set)
    }
}
