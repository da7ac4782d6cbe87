//! Numbers for the keys of items on a GPU.

use super::Gpu;
use super::queue::Queue;
use super::scratch::{Area, area, zeros};
use super::stream::Workspace;
use super::tally::parts;
use crate::place::Place;
use crate::request::{KeyColumn, Sorting};
use crate::{Buffer, Error};
use cust::sys;
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::keys::{
    Arguments, Assign, Build, Collect, EMPTY, Encoding, IN_FLIGHT, LISTED, List, LookUp, MOST_SEEN, Rank,
    Ranking, STATE, Sorted, THREADS, TILE, Tell,
};
use std::any::TypeId;
use std::ptr::{null, null_mut};

/// The largest table that blocks copy to shared memory: larger ones leave too few threads on a
/// multiprocessor, and are read through its cache.
const MOST_COPIED: usize = 32 << 10;

/// Scratch memory of numbers for keys.
#[derive(Default)]
pub struct KeysScratch {
    table: Vec<Area<u64>>,
    state: Vec<Area<u64>>,
    /// The bits of all keys, and of those that differ.
    bits: [Vec<Area<u64>>; 2],
    /// Places of items with different keys, before they are sorted.
    listed: Vec<Area<u64>>,
    /// Keys by their numbers.
    numbered: Vec<Area<u64>>,
    /// Orders of these while they are sorted, and a word of each key.
    orders: [Vec<Area<u64>>; 2],
    words: Vec<Area<u64>>,
}

/// The kernels of keys of some bytes.
struct Kernels {
    collect: TypeId,
    build: TypeId,
    look_up: TypeId,
    tell: TypeId,
    assign: TypeId,
}

impl Kernels {
    /// Returns the bytes of a key of `bytes` bytes, a power of two, and its kernels.
    fn of(bytes: usize) -> (usize, Self) {
        macro_rules! of {
            ($type:ty) => {
                Self {
                    collect: TypeId::of::<Collect<$type>>(),
                    build: TypeId::of::<Build<$type>>(),
                    look_up: TypeId::of::<LookUp<$type>>(),
                    tell: TypeId::of::<Tell<$type>>(),
                    assign: TypeId::of::<Assign<$type>>(),
                }
            };
        }
        match bytes {
            0..=4 => (4, of!(u32)),
            5..=8 => (8, of!(u64)),
            _ => (16, of!(u128)),
        }
    }
}

impl Queue {
    /// Enqueues the kernel that encodes a column.
    unsafe fn encode(
        &self,
        gpu: &Gpu,
        column: &KeyColumn,
        (places, len): (*const u32, usize),
        bits: *mut u8,
        stride: usize,
    ) -> Result<(), Error> {
        let encoding =
            Encoding::<u8> { keys: column.keys.cast(), places, len: len as u64, bits, stride: stride as u32 };
        let blocks = (len.div_ceil(THREADS as usize)).min(gpu.multiprocessors as usize * 32) as u32;
        // SAFETY: as the caller of `number` vouches.
        unsafe { self.launch_one(gpu, column.encode, (blocks, THREADS), 0, &Parameters::of(&encoding)) }
    }

    /// Enqueues what empties a table.
    unsafe fn empty(&self, gpu: &Gpu, table: *mut u64, slots: usize) -> Result<(), Error> {
        const { assert!(EMPTY == u64::MAX) };
        // SAFETY: the table is scratch memory.
        let set = unsafe { sys::cuMemsetD32Async(table as u64, u32::MAX, 2 * slots, self.stream.as_inner()) };
        gpu.done("emptying a table", set)
    }
}

/// The most keys that are ranked, rather than sorted.
const MOST_RANKED: usize = 4096;

/// The least number of items for which the table of numbers is tried with the keys of the first items.
const LEAST_TRIED: usize = 1 << 19;

/// The share of the items, one in as many, whose keys are collected for the try.
const TRIED: usize = 16;

/// A call of [`Gpu::number`].
struct Numbering<'a> {
    gpu: &'static Gpu,
    queue: &'a mut Queue,
    columns: &'a [KeyColumn],
    kernels: Kernels,
    /// Bytes of an item's bits.
    stride: usize,
    /// All items.
    len: usize,
    arguments: Arguments<u8>,
}

/// A sort of items of 4 bytes by indices of 4 bytes.
fn sorting(items: *const u32, indices: *const u32, len: usize, below: usize, sorted: *mut u32) -> Sorting {
    Sorting {
        items: items.cast(),
        bytes: 4,
        indices,
        index_words: 1,
        len,
        count: below as u64,
        sorted: sorted.cast(),
    }
}

impl Numbering<'_> {
    /// Bytes of a key of all columns.
    fn bytes(&self) -> usize {
        self.columns.iter().map(|column| column.bytes).sum()
    }

    /// Whether the kernels compare keys as they are: integers of 4 and 8 bytes.
    fn is_plain(&self) -> bool {
        matches!(self.columns, [KeyColumn { bytes: 4 | 8, is_float: false, .. }])
    }

    /// Returns an area of the scratch memory of at least these bytes.
    fn room(
        &mut self,
        of: impl FnOnce(&mut KeysScratch) -> &mut Vec<Area<u64>>,
        bytes: usize,
    ) -> Result<*mut u64, Error> {
        let (scratch, is_capturing) = (&mut self.queue.scratch, self.queue.is_capturing);
        area(of(&mut scratch.keys), is_capturing, self.gpu, &mut scratch.source, bytes.div_ceil(8))
    }

    /// Enqueues a kernel of the arguments.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::number`]; the arguments suit the kernel.
    unsafe fn launch(&self, kernel: TypeId, grid: (u32, u32), shared: u32) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        unsafe { self.queue.launch_one(self.gpu, kernel, grid, shared, &Parameters::of(&self.arguments)) }
    }

    /// Has the next kernels work on the first `len` items. Returns the number of blocks: at most `blocks` for
    /// each multiprocessor.
    fn set_items(&mut self, len: usize, blocks: u64) -> u32 {
        self.arguments.len = len as u64;
        let (part, blocks) = parts(len as u64, blocks * u64::from(self.gpu.multiprocessors));
        self.arguments.part = part;
        blocks
    }

    /// Writes the bits of all keys, unless the kernels compare keys as they are.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::number`].
    unsafe fn encode(&mut self) -> Result<(), Error> {
        if self.is_plain() {
            self.arguments.keys = self.columns[0].keys.cast();
            return Ok(());
        }
        let (len, stride, mut first) = (self.len, self.stride, self.bytes());
        let bits: *mut u8 = self.room(|keys| &mut keys.bits[0], len * stride)?.cast();
        self.arguments.keys = bits;
        // SAFETY: as the caller vouches; the bits have room.
        unsafe {
            if first < stride {
                let stream = self.queue.stream.as_inner();
                let set = sys::cuMemsetD8Async(bits as u64, 0, len * stride, stream);
                self.gpu.done("clearing memory", set)?;
            }
            for column in self.columns {
                first -= column.bytes;
                self.queue.encode(self.gpu, column, (null(), len), bits.add(first), stride)?;
            }
        }
        Ok(())
    }

    /// Lists the places of the first `len` items' keys, and waits. Returns how many keys differ, and how many
    /// of them came in the second half of these items first.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::number`].
    unsafe fn collect(&mut self, len: usize) -> Result<[usize; 2], Error> {
        // Of a part of the items, fewer blocks begin with the same keys.
        let blocks = self.set_items(len, if len < self.len { 1 } else { 4 });
        // A table for twice as many keys as there are items always suffices.
        let whole = (2 * len).next_power_of_two().max(LISTED as usize);
        let in_flight = (self.gpu.multiprocessors as usize * IN_FLIGHT).min(blocks as usize * TILE as usize);
        let mut slots = (2 * in_flight + 1).next_power_of_two().min(whole);
        let seen = MOST_SEEN.min(1 << (self.gpu.most_shared / 8).ilog2());
        // SAFETY: as the caller vouches; the table has room.
        unsafe {
            loop {
                self.arguments.table = self.room(|keys| &mut keys.table, slots * 8)?;
                let arguments = &mut self.arguments;
                (arguments.mask, arguments.most, arguments.count) =
                    ((slots - 1) as u32, (slots / 2) as u32, seen);
                self.queue.empty(self.gpu, arguments.table, slots)?;
                self.launch(self.kernels.collect, (blocks, THREADS), seen * 8)?;
                // It has at most all keys of the table.
                self.arguments.places = self.room(|keys| &mut keys.listed, slots * 4)?.cast();
                let listing = slots.div_ceil(LISTED as usize * THREADS as usize / 32);
                let listing = listing.min(self.gpu.multiprocessors as usize * 4) as u32;
                self.launch(TypeId::of::<List>(), (listing, THREADS), 0)?;
                let [count, is_full, _, late] =
                    self.queue.take_words::<STATE>(self.gpu, self.arguments.state)?;
                if is_full == 0 {
                    return Ok([count, late].map(|keys| keys as usize));
                }
                slots = (slots * 8).min(whole);
            }
        }
    }

    /// Sorts the listed places, by themselves or by their keys.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::number`]; `count` places are listed.
    unsafe fn sort(&mut self, count: usize, is_by_place: bool) -> Result<Buffer<u32>, Error> {
        let (gpu, stride, listed) = (self.gpu, self.stride, self.arguments.places);
        let mut places = Buffer::<u32>::room(gpu, count)?;
        let Place::Gpu(to) = places.whole_mut() else { unreachable!("it is on a GPU") };
        let rank = |queue: &Queue, bits: *const u32, words: usize| {
            let ranking =
                Ranking { bits, words: words as u32, places: listed, count: count as u32, ranked: to };
            let blocks = count.div_ceil(THREADS as usize / 32) as u32;
            // SAFETY: as the caller vouches; there is a warp for each key.
            unsafe {
                queue.launch_one(gpu, TypeId::of::<Rank>(), (blocks, THREADS), 0, &Parameters::of(&ranking))
            }
        };
        // SAFETY: as the caller vouches; the scratch memory has room.
        unsafe {
            if is_by_place {
                if count <= MOST_RANKED {
                    rank(self.queue, listed, 1)?;
                } else {
                    self.queue.enqueue_sort(gpu, &sorting(listed, listed, count, self.len, to))?;
                }
                return Ok(places);
            }
            let bits: *mut u8 = self.room(|keys| &mut keys.bits[1], count * stride)?.cast();
            if self.is_plain() {
                self.queue.encode(gpu, &self.columns[0], (listed, count), bits, stride)?;
            } else {
                let layout = [stride, 4, stride];
                self.queue.enqueue_gather(
                    gpu,
                    self.arguments.keys.cast(),
                    layout,
                    (listed, count),
                    bits.cast(),
                )?;
            }
            if count <= MOST_RANKED {
                rank(self.queue, bits.cast(), stride / 4)?;
                return Ok(places);
            }
            let (order, _) = self.order(bits, count)?;
            self.queue.enqueue_gather(gpu, listed.cast(), [4, 4, 4], (order, count), to.cast())?;
        }
        Ok(places)
    }

    /// Sorts keys by their bits. Returns the places of the sorted keys, and their last words.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::number`]; there are bits of `count` keys.
    unsafe fn order(&mut self, bits: *const u8, count: usize) -> Result<(*const u32, *const u32), Error> {
        let mut words = bits.cast::<u32>();
        let (mut former, mut sorted) = (null::<u32>(), null());
        for word in 0..self.bytes().div_ceil(4) {
            let order: *mut u32 = self.room(|keys| &mut keys.orders[word % 2], count * 4)?.cast();
            // SAFETY: as the caller vouches; the scratch memory has room.
            unsafe {
                if self.stride > 4 {
                    let of_keys: *mut u32 = self.room(|keys| &mut keys.words, count * 4)?.cast();
                    let (first, layout) = (bits.add(4 * word).cast(), [4, 4, self.stride]);
                    self.queue.enqueue_gather(self.gpu, first, layout, (former, count), of_keys.cast())?;
                    words = of_keys;
                }
                let sorting = sorting(former, words, count, 1 << 32, order);
                (sorted, _) = self.queue.enqueue_sort(self.gpu, &sorting)?;
            }
            former = order;
        }
        Ok((former, sorted))
    }

    /// Numbers all items by sorting their keys, and waits. Returns the first place of each key.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::number`].
    unsafe fn number_by_sorting(&mut self) -> Result<Buffer<u32>, Error> {
        let (gpu, len, stride) = (self.gpu, self.len, self.stride);
        // SAFETY: as the caller vouches; the scratch memory has room.
        unsafe {
            if self.is_plain() {
                let bits: *mut u8 = self.room(|keys| &mut keys.bits[0], len * stride)?.cast();
                self.queue.encode(gpu, &self.columns[0], (null(), len), bits, stride)?;
                self.arguments.keys = bits;
            }
            let bits = self.arguments.keys;
            let (places, words) = self.order(bits, len)?;
            let mut keys = words.cast::<u8>();
            if stride > 4 {
                let sorted = self.room(|keys| &mut keys.bits[1], len * stride)?;
                let layout = [stride, 4, stride];
                self.queue.enqueue_gather(gpu, bits.cast(), layout, (places, len), sorted.cast())?;
                keys = sorted.cast();
            }
            let (part, blocks) = parts(len as u64, 4 * u64::from(gpu.multiprocessors));
            let counts = self.room(|keys| &mut keys.table, blocks as usize * 8)?;
            self.queue.clear(gpu, counts, blocks as usize)?;
            let Arguments { numbers, state: count, .. } = self.arguments;
            let mut sorted =
                Sorted { keys, places, len: len as u64, part, counts, count, numbers, firsts: null_mut() };
            let grid = (blocks, THREADS);
            self.queue.launch_one(gpu, self.kernels.tell, grid, 0, &Parameters::of(&sorted))?;
            let [count] = self.queue.take_words(gpu, count)?;
            let mut firsts = Buffer::<u32>::room(gpu, count as usize)?;
            let Place::Gpu(to) = firsts.whole_mut() else { unreachable!("it is on a GPU") };
            sorted.firsts = to;
            self.queue.launch_one(gpu, self.kernels.assign, grid, 0, &Parameters::of(&sorted))?;
            let waited = sys::cuStreamSynchronize(self.queue.stream.as_inner());
            gpu.done("numbering keys", waited)?;
            Ok(firsts)
        }
    }

    /// Looks all items up among the keys at these places, and waits. Returns whether all were found.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::number`]; the places are on the GPU, and their keys differ.
    unsafe fn look_up(&mut self, places: &mut Buffer<u32>) -> Result<bool, Error> {
        let count = places.len();
        let blocks = self.set_items(self.len, 4);
        let Place::Gpu(at) = places.whole_mut() else { unreachable!("they are on a GPU") };
        let slots = (count * 3 + 1).next_power_of_two();
        let bytes = slots * 8;
        let is_shared = bytes <= MOST_COPIED.min(self.gpu.most_shared as usize);
        // SAFETY: as the caller vouches; the table has room.
        unsafe {
            let table = self.room(|keys| &mut keys.table, bytes)?;
            self.queue.empty(self.gpu, table, slots)?;
            let numbered: *mut u64 = self.room(|keys| &mut keys.numbered, count * self.stride)?;
            self.arguments = Arguments {
                numbered: numbered.cast(),
                table,
                mask: (slots - 1) as u32,
                most: u32::from(is_shared),
                places: at,
                count: count as u32,
                ..self.arguments
            };
            self.launch(self.kernels.build, (count.div_ceil(THREADS as usize) as u32, THREADS), 0)?;
            let shared = if is_shared { bytes as u32 } else { 0 };
            self.launch(self.kernels.look_up, (blocks, THREADS), shared)?;
            let [missing] = self.queue.take_words(self.gpu, self.arguments.state)?;
            Ok(missing == 0)
        }
    }
}

impl Gpu {
    /// Numbers the keys of `len` items, at least one, and waits. The first of several columns orders first.
    /// Returns the number of each item's key, and for each number the place of the first item with its key:
    /// in the order of the keys, or else of the places.
    ///
    /// # Safety
    ///
    /// The columns have a key for each item, and nothing writes to them until the call returns.
    pub unsafe fn number(
        &'static self,
        columns: &[KeyColumn],
        len: usize,
        is_by_place: bool,
    ) -> Result<(Buffer<u32>, Buffer<u32>), Error> {
        let mut numbers = Buffer::<u32>::room(self, len)?;
        let Place::Gpu(to_numbers) = numbers.whole_mut() else { unreachable!("it is on a GPU") };
        let places = self.with_workspace(|Workspace { queue, .. }| {
            let scratch = &mut queue.scratch;
            let source = (&mut scratch.source, &*queue.stream);
            let state = zeros(&mut scratch.keys.state, queue.is_capturing, self, source, STATE)?;
            let (stride, kernels) = Kernels::of(columns.iter().map(|column| column.bytes).sum());
            let arguments = Arguments {
                keys: null(),
                len: 0,
                part: 0,
                table: null_mut(),
                mask: 0,
                most: 0,
                places: null_mut(),
                count: 0,
                numbered: null_mut(),
                numbers: to_numbers,
                state,
            };
            let mut numbering = Numbering { gpu: self, queue, columns, kernels, stride, len, arguments };
            // SAFETY: as the caller vouches.
            unsafe {
                numbering.encode()?;
                // Usually all keys come among the first items, most often if no key comes in the second half
                // of these first. They have the first item of each key too.
                if len >= LEAST_TRIED {
                    let tried = len / TRIED;
                    let [count, late] = numbering.collect(tried)?;
                    // With so many different keys, sorting all keys is faster than looking them up in a
                    // table.
                    if count > tried / 8 * 7 && !is_by_place {
                        match numbering.number_by_sorting() {
                            Err(Error::OutOfMemory { .. }) => {}
                            numbered => return numbered,
                        }
                    }
                    if late == 0 {
                        let mut places = numbering.sort(count, is_by_place)?;
                        if numbering.look_up(&mut places)? {
                            return Ok(places);
                        }
                    }
                }
                let [count, _] = numbering.collect(len)?;
                let mut places = numbering.sort(count, is_by_place)?;
                let all = numbering.look_up(&mut places)?;
                debug_assert!(all, "the table has all keys");
                Ok(places)
            }
        })?;
        Ok((numbers, places))
    }
}
