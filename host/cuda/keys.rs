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
    Arguments, Build, Collect, EMPTY, Encoding, IN_FLIGHT, List, LookUp, MOST_SEEN, STATE, THREADS,
};
use std::any::TypeId;
use std::ptr::{null, null_mut};

/// The largest table that blocks copy to shared memory: larger ones leave too few threads on a multiprocessor, and are
/// read through its cache.
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
    /// Orders of these while they are sorted, and a word of each key.
    orders: [Vec<Area<u64>>; 2],
    words: Vec<Area<u64>>,
}

/// The kernels of keys of some bytes.
struct Kernels {
    collect: TypeId,
    build: TypeId,
    look_up: TypeId,
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

impl Gpu {
    /// Numbers the keys of `len` items, at least one, and waits. The first of several columns orders first. Returns
    /// the number of each item's key, and for each number the place of the first item with its key: in the order of
    /// the keys, or else of the places.
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
        let all_bytes: usize = columns.iter().map(|column| column.bytes).sum();
        let (stride, kernels) = Kernels::of(all_bytes);
        let places = self.with_workspace(|Workspace { queue, .. }| {
            let capturing = queue.is_capturing;
            macro_rules! room {
                ($area:ident $([$number:literal])?, $bytes:expr) => {{
                    let super::scratch::Scratch { keys, source, .. } = &mut queue.scratch;
                    let bytes: usize = $bytes;
                    area(&mut keys.$area$([$number])?, capturing, self, source, bytes.div_ceil(8))?
                }};
            }
            // SAFETY: as the caller vouches; the scratch memory suffices.
            unsafe {
                // Integers of 4 and 8 bytes are compared as they are.
                let is_plain = matches!(columns, [KeyColumn { bytes: 4 | 8, is_float: false, .. }]);
                let keys: *const u8 = if is_plain {
                    columns[0].keys.cast()
                } else {
                    let bits: *mut u8 = room!(bits[0], len * stride).cast();
                    if all_bytes < stride {
                        let set = sys::cuMemsetD8Async(bits as u64, 0, len * stride, queue.stream.as_inner());
                        self.done("clearing memory", set)?;
                    }
                    let mut first = all_bytes;
                    for column in columns {
                        first -= column.bytes;
                        queue.encode(self, column, (null(), len), bits.add(first), stride)?;
                    }
                    bits
                };
                let (scratch, source) = (&mut queue.scratch.keys, &mut queue.scratch.source);
                let state = zeros(&mut scratch.state, capturing, self, (source, &queue.stream), STATE)?;
                let (part, blocks) = parts(len as u64, 4 * u64::from(self.multiprocessors));
                let mut arguments = Arguments::<u8> {
                    keys,
                    len: len as u64,
                    part,
                    table: null_mut(),
                    mask: 0,
                    most: 0,
                    places: null_mut(),
                    count: 0,
                    numbers: to_numbers,
                    state,
                };
                // A table for twice as many keys as there are items always suffices.
                let whole = (2 * len).next_power_of_two();
                let in_flight = self.multiprocessors as usize * IN_FLIGHT;
                let mut slots = (2 * in_flight + 1).next_power_of_two().min(whole);
                let seen = MOST_SEEN.min(1 << (self.most_shared / 8).ilog2());
                arguments.count = seen;
                let count = loop {
                    arguments.table = room!(table, slots * 8);
                    (arguments.mask, arguments.most) = ((slots - 1) as u32, (slots / 2) as u32);
                    queue.empty(self, arguments.table, slots)?;
                    let parameters = Parameters::of(&arguments);
                    queue.launch_one(self, kernels.collect, (blocks, THREADS), seen * 8, &parameters)?;
                    let [count, is_full] = queue.take_words(self, state)?;
                    if is_full == 0 {
                        break count as usize;
                    }
                    slots = (slots * 8).min(whole);
                };
                let listed: *mut u32 = room!(listed, count * 4).cast();
                (arguments.places, arguments.count) = (listed, count as u32);
                let listing =
                    (slots.div_ceil(THREADS as usize)).min(self.multiprocessors as usize * 4) as u32;
                let parameters = Parameters::of(&arguments);
                queue.launch_one(self, TypeId::of::<List>(), (listing, THREADS), 0, &parameters)?;
                queue.clear(self, state, STATE)?;

                let mut places = Buffer::<u32>::room(self, count)?;
                let Place::Gpu(to) = places.whole_mut() else { unreachable!("it is on a GPU") };
                if is_by_place {
                    let sorting = Sorting {
                        items: listed.cast(),
                        bytes: 4,
                        indices: listed,
                        index_words: 1,
                        len: count,
                        count: len as u64,
                        sorted: to.cast(),
                    };
                    queue.enqueue_sort(self, &sorting)?;
                } else {
                    let bits: *mut u8 = room!(bits[1], count * stride).cast();
                    if is_plain {
                        queue.encode(self, &columns[0], (listed, count), bits, stride)?;
                    } else {
                        let layout = [stride, 4, stride];
                        queue.enqueue_gather(self, keys.cast(), layout, (listed, count), bits.cast())?;
                    }
                    let words: *mut u32 = room!(words, count * 4).cast();
                    let orders: [*mut u32; 2] =
                        [room!(orders[0], count * 4).cast(), room!(orders[1], count * 4).cast()];
                    let mut former = null::<u32>();
                    for (word, &order) in (0..all_bytes.div_ceil(4)).zip(orders.iter().cycle()) {
                        let first = bits.add(4 * word).cast();
                        queue.enqueue_gather(self, first, [4, 4, stride], (former, count), words.cast())?;
                        let sorting = Sorting {
                            items: former.cast(),
                            bytes: 4,
                            indices: words,
                            index_words: 1,
                            len: count,
                            count: 1 << 32,
                            sorted: order.cast(),
                        };
                        queue.enqueue_sort(self, &sorting)?;
                        former = order;
                    }
                    queue.enqueue_gather(self, listed.cast(), [4, 4, 4], (former, count), to.cast())?;
                }
                // The table of numbers.
                let slots = (count * 3 / 2 + 1).next_power_of_two();
                arguments.table = room!(table, slots * 8);
                queue.empty(self, arguments.table, slots)?;
                let bytes = slots * 8;
                let is_shared = bytes <= MOST_COPIED.min(self.most_shared as usize);
                (arguments.mask, arguments.most, arguments.places) =
                    ((slots - 1) as u32, u32::from(is_shared), to);
                let parameters = Parameters::of(&arguments);
                let building = count.div_ceil(THREADS as usize) as u32;
                queue.launch_one(self, kernels.build, (building, THREADS), 0, &parameters)?;
                let shared = if is_shared { bytes as u32 } else { 0 };
                queue.launch_one(self, kernels.look_up, (blocks, THREADS), shared, &parameters)?;
                self.done("numbering keys", sys::cuStreamSynchronize(queue.stream.as_inner()))?;
                Ok(places)
            }
        })?;
        Ok((numbers, places))
    }
}
