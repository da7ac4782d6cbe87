//! Reductions by index of sorted items on a GPU: a sort, copies of items, and the kernels of segments.
//!
//! If an index is wrong, its item is sorted to the last index, so that no kernel leaves the memory. The
//! kernels of segments then find that there are no segments, and write nothing.

use super::Gpu;
use super::modules::Compiled;
use super::order::SortNeeds;
use super::pending::Launched;
use super::queue::Queue;
use super::scratch::{Area, area, area_bytes};
use super::stream::GpuStream;
use crate::Error;
use crate::request::{InOrder, Shape, Sorting};
use cust::sys;
use gpu_reduce_kernels::index::STATE;
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::segments::{Cut, SegmentBounds};
use std::ptr::{null, null_mut, without_provenance};

/// Scratch memory of reductions by index of sorted items.
#[derive(Default)]
pub struct InOrderScratch {
    offsets: Vec<Area<u64>>,
    /// Places of items in the order of their indices, if these are sorted.
    places: Vec<Area<u64>>,
    /// The sorted items.
    copies: Vec<Area<u64>>,
}

/// What is sorted, and the words of 64 bits of scratch memory.
struct Needs {
    /// Whether items are sorted; if not, their places are.
    moves_items: bool,
    /// Without the places that take what is sorted.
    sorting: Sorting,
    offsets: usize,
    places: usize,
    copies: usize,
}

impl Needs {
    fn of(&InOrder { ref arrays, indices, index_words, len, count, .. }: &InOrder) -> Self {
        let first = match arrays[..] {
            [(address, bytes @ (1 | 2 | 4 | 8))] if unit(address, bytes) == bytes => Some((address, bytes)),
            _ => None,
        };
        let (items, bytes) =
            first.map_or((null(), 4), |(at, bytes)| (without_provenance(at as usize), bytes));
        let copies = arrays.iter().map(|&(_, bytes)| copies_bytes(len, bytes));
        Self {
            moves_items: first.is_some(),
            sorting: Sorting {
                items,
                bytes,
                indices,
                index_words,
                len,
                count: count as u64,
                sorted: null_mut(),
            },
            offsets: (count + 1).div_ceil(2),
            places: if first.is_some() { 0 } else { len.div_ceil(2) },
            copies: copies.fold(0, usize::saturating_add) / 8,
        }
    }
}

/// Returns the bytes of the units in which items at an address can be copied.
fn unit(address: u64, bytes: usize) -> usize {
    1 << (address | bytes as u64 | 8).trailing_zeros()
}

/// Returns the bytes of the copies of an array's items.
fn copies_bytes(len: usize, bytes: usize) -> usize {
    area_bytes::<u8>(len.saturating_mul(bytes))
}

/// Returns the segments of sorted items.
fn segments(&InOrder { len, count, .. }: &InOrder, offsets: *const u32) -> SegmentBounds {
    SegmentBounds::of_offsets(offsets, count as u64, len as u64)
}

impl Queue {
    /// Enqueues a reduction by index of sorted items. Returns the last kernel, and the word of the device
    /// that takes the complement of the place of the first wrong index, or 0. `report` is memory of the host
    /// for what [`Cut::wrong`] takes.
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, the items, the indices, `report` and the places of results
    /// stay, and nothing else writes to them. The operation's types are those of its operator and the items.
    /// The context is entered.
    unsafe fn enqueue_in_order(
        &mut self,
        gpu: &Gpu,
        request: &InOrder,
        report: Option<*mut u64>,
    ) -> Result<(&'static Compiled, *mut u64), Error> {
        let &InOrder { operation, ref arrays, len, results, .. } = request;
        let needs = Needs::of(request);
        let state = self.state_of_order(gpu)?;
        let is_capturing = self.is_capturing;
        let (scratch, source) = (&mut self.scratch.in_order, &mut self.scratch.source);
        let offsets = area(&mut scratch.offsets, is_capturing, gpu, source, needs.offsets)?;
        let places = area(&mut scratch.places, is_capturing, gpu, source, needs.places)?;
        let copies = area(&mut scratch.copies, is_capturing, gpu, source, needs.copies)?;
        let mut number = null();
        let mut addresses = Vec::with_capacity(arrays.len());
        // SAFETY: as the caller vouches; the scratch memory suffices.
        unsafe {
            self.clear(gpu, state, 1)?;
            if len == 0 {
                self.clear(gpu, offsets, needs.offsets)?;
            } else {
                let sorted = if needs.moves_items { copies } else { places };
                let sorting = Sorting { sorted: sorted.cast(), ..needs.sorting };
                let indices = self.enqueue_sort(gpu, &sorting)?;
                self.enqueue_offsets(gpu, &sorting, indices, offsets.cast())?;
                number = state.wrapping_add(STATE).cast_const();
            }
            let mut copies = copies.cast::<u8>();
            for &(address, bytes) in arrays {
                if !needs.moves_items {
                    let (items, layout) =
                        (without_provenance(address as usize), [bytes, unit(address, bytes), bytes]);
                    self.enqueue_gather(gpu, items, layout, (places.cast(), len), copies.cast())?;
                }
                addresses.push(copies.addr() as u64);
                copies = copies.wrapping_add(copies_bytes(len, bytes));
            }
            let mut input = Parameters::NONE;
            addresses.iter().for_each(|address| input.push(address));
            let segments = segments(request, offsets.cast());
            let request = operation.with_parameters(input, Shape::Segments(segments), results);
            let kernel = self.enqueue_segments(gpu, &request, (&segments, number), report)?;
            Ok((kernel, state))
        }
    }
}

impl Gpu {
    /// The bytes of lent memory that [`Queue::enqueue_in_order`] takes.
    pub fn in_order_bytes(&self, request: &InOrder) -> usize {
        let Needs { sorting, offsets, places, copies, .. } = Needs::of(request);
        let sort = (sorting.len > 0).then(|| SortNeeds::of(self, &sorting));
        let areas = sort.iter().flat_map(SortNeeds::areas).chain([STATE + 1, offsets, places, copies]);
        let bytes = areas.filter(|&words| words > 0).map(area_bytes::<u64>).fold(0, usize::saturating_add);
        let InOrder { operation, .. } = request;
        let segments = segments(request, std::ptr::dangling());
        let of_segments = self.bytes_of_segments(operation.types, &segments, operation.block);
        bytes.saturating_add(of_segments)
    }
}

impl GpuStream {
    /// Enqueues a reduction by index of sorted items, whose results stay on the device.
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_in_order`]; but the context need not be entered.
    pub unsafe fn enqueue_in_order(&self, request: &InOrder) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        self.enter(|gpu, queue| unsafe { queue.enqueue_in_order(gpu, request, None).map(drop) })
    }

    /// As [`enqueue_in_order`](Self::enqueue_in_order). The first word tells the host the first index that
    /// has no value, as [`Cut::wrong`] does; the second one is the complement of the place of the first wrong
    /// index, or 0.
    ///
    /// # Safety
    ///
    /// As for [`enqueue_in_order`](Self::enqueue_in_order), until the work has ended.
    pub unsafe fn launch_in_order(&self, request: &InOrder) -> Result<Launched, Error> {
        let part = self.launched((2, Cut::NOTHING), |gpu, queue, words| {
            // SAFETY: as the caller vouches; the words stay until the work has ended.
            unsafe {
                let (kernel, state) = queue.enqueue_in_order(gpu, request, Some(words))?;
                let (word, stream) = (words.wrapping_add(1), queue.stream.as_inner());
                gpu.done(
                    "copying to the host",
                    sys::cuMemcpyDtoHAsync_v2(word.cast(), state as u64, 8, stream),
                )?;
                Ok(Some(kernel))
            }
        })?;
        Ok(part.into())
    }
}
