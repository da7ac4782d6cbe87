//! Scratch memory: what launches need beside items and results. Each stream owns some, and its launches reuse
//! it.

use super::deal::DealScratch;
use super::in_order::InOrderScratch;
use super::keys::KeysScratch;
use super::order::OrderScratch;
use super::spread::SpreadScratch;
use super::tally::TallyScratch;
use super::terms::TermsScratch;
use super::words::WordsScratch;
use super::{Gpu, lock};
use crate::Error;
use cust::event::{Event, EventFlags};
use cust::memory::{
    AsyncCopyDestination, DeviceBuffer, DeviceCopy, DevicePointer, DeviceSlice, LockedBuffer,
};
use cust::stream::Stream;
use cust::sys;
use gpu_reduce_kernels::segments::Cut;
use gpu_reduce_kernels::slot;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;

/// The scratch memory of a stream. Launches of one stream run one after another, so they share it.
///
/// Each list holds allocations of one kind. The last one is in use. It is at least twice as large as the one
/// before it, which is kept because a graph that was captured with it may still use it.
#[derive(Default)]
pub struct Scratch {
    /// Slots for the partial results of blocks. They are empty between launches: the block that takes a
    /// partial result empties its slot.
    pub(super) slots: Vec<Area<u64>>,
    pub(super) partials: Vec<Partials>,
    /// Lists of segments that are not short.
    pub(super) lists: Vec<Area<u64>>,
    /// The state of the kernel that finds [runs](super::runs).
    pub(super) runs: Vec<Area<u64>>,
    /// Items that were copied from other devices.
    pub(super) copies: Vec<Area<u64>>,
    /// Slots in host memory, for partial results of devices that cannot access this device's memory.
    pub(super) host_slots: Vec<LockedBuffer<u64>>,
    /// For items that are dealt by their index.
    pub(super) dealt: DealScratch,
    /// For sums by index.
    pub(super) tally: TallyScratch,
    /// For the order of items by index.
    pub(super) order: OrderScratch,
    /// For reductions by index of sorted items.
    pub(super) in_order: InOrderScratch,
    /// For reductions by index to words.
    pub(super) words: WordsScratch,
    /// For sums by index of terms.
    pub(super) terms: TermsScratch,
    /// For variances by index.
    pub(super) spread: SpreadScratch,
    /// For numbers of keys.
    pub(super) keys: KeysScratch,
    /// Whether a graph may use the memory at any time.
    pub(super) is_captured: bool,
    pub(super) source: Source,
}

/// Where scratch memory comes from.
#[derive(Default)]
pub enum Source {
    /// The driver. Allocations are as large as calls of their kind are likely to need later.
    #[default]
    Driver,
    /// Memory that the caller has lent: the address and number of the bytes that are left. Each call takes
    /// just what it needs.
    Lent(u64, usize),
}

/// An allocation, or a part of the memory that the caller has lent.
pub enum Area<T: DeviceCopy> {
    Own(DeviceBuffer<T>),
    Lent(DeviceSlice<T>),
}

impl<T: DeviceCopy> Deref for Area<T> {
    type Target = DeviceSlice<T>;

    fn deref(&self) -> &DeviceSlice<T> {
        match self {
            Self::Own(buffer) => buffer,
            Self::Lent(slice) => slice,
        }
    }
}

impl<T: DeviceCopy> DerefMut for Area<T> {
    fn deref_mut(&mut self) -> &mut DeviceSlice<T> {
        match self {
            Self::Own(buffer) => buffer,
            Self::Lent(slice) => slice,
        }
    }
}

/// Returns the bytes that `len` values take of lent memory: whole cache lines.
pub(super) fn area_bytes<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>()).next_multiple_of(128)
}

impl Source {
    /// Fails if fewer than `needed` bytes of lent memory are left.
    fn has(&self, needed: usize) -> Result<(), Error> {
        match *self {
            Self::Lent(_, left) if left < needed => Err(Error::Scratch { needed, left }),
            _ => Ok(()),
        }
    }

    /// Returns memory for `len` values; if it comes from the driver, for `likely` values if that is more.
    pub(super) fn area<T: DeviceCopy>(
        &mut self,
        gpu: &Gpu,
        len: usize,
        likely: usize,
    ) -> Result<Area<T>, Error> {
        let bytes = area_bytes::<T>(len);
        self.has(bytes)?;
        let Self::Lent(address, left) = self else { return gpu.allocate(likely.max(len)).map(Area::Own) };
        // SAFETY: the memory lies in what was lent.
        let area = unsafe { DeviceSlice::from_raw_parts(DevicePointer::from_raw(*address), len) };
        (*address, *left) = (*address + bytes as u64, *left - bytes);
        Ok(Area::Lent(area))
    }

    /// Whether there is no new memory: the driver must not allocate while a stream is captured. Memory that
    /// was lent is there already.
    pub(super) fn is_closed(&self, is_capturing: bool) -> bool {
        is_capturing && matches!(self, Self::Driver)
    }

    /// As [`area`](Self::area), for empty slots. Zeros are copied, because clearing memory is a kernel: if a
    /// second stream runs one, each kernel takes 0.2 µs longer from then on (H200). But a graph would copy
    /// host memory again each time it runs, when that memory is gone, and so it clears.
    pub(super) fn empty_slots(
        &mut self,
        gpu: &Gpu,
        (stream, is_capturing): (&Stream, bool),
        words: usize,
        likely: usize,
    ) -> Result<Area<u64>, Error> {
        const { assert!(slot::EMPTY == 0) };
        let mut slots = self.area::<u64>(gpu, words, likely)?;
        if is_capturing {
            fill(gpu, stream, &slots, 0)?;
        } else if !slots.is_empty() {
            let empty = vec![slot::EMPTY; slots.len()];
            // SAFETY: launches that use the memory follow in the same stream. The driver has copied pageable
            // memory when the call returns (CUDA driver API, "API synchronization behavior").
            unsafe { slots.async_copy_from(&empty, stream) }
                .map_err(|error| gpu.failed("copying to the device", error))?;
        }
        Ok(slots)
    }
}

/// The partial results of segments or columns, as [`Cut`] takes them.
pub struct Partials {
    pub(super) slots: Area<u64>,
    pub(super) counts: Area<u32>,
    pub(super) wrong: Area<u64>,
}

impl Partials {
    /// Allocates `words` of slots and `counts` counters, or the likely numbers if those are larger.
    pub(super) fn new(
        gpu: &Gpu,
        stream: &Stream,
        source: &mut Source,
        [words, counts]: [usize; 2],
        likely: [usize; 2],
    ) -> Result<Self, Error> {
        source.has(Self::bytes(words, counts))?;
        let [likely_words, likely_counts] = likely.map(usize::next_power_of_two);
        let mut new = Self {
            slots: source.area(gpu, words, likely_words)?,
            counts: source.area(gpu, counts, likely_counts)?,
            wrong: source.area(gpu, 1, 1)?,
        };
        const { assert!(Cut::NOTHING == u64::MAX) };
        fill(gpu, stream, &new.wrong, u32::MAX)?;
        // Slots need values, too: if offsets descend, a launch may read slots into which it has put nothing.
        // SAFETY: launches that use the memory follow in the same stream.
        unsafe { new.counts.set_zero_async(stream).and_then(|()| new.slots.set_zero_async(stream)) }
            .map_err(|error| gpu.failed("clearing memory", error))?;
        Ok(new)
    }

    /// Returns the bytes of lent memory that it takes.
    pub(super) fn bytes(words: usize, counts: usize) -> usize {
        area_bytes::<u64>(words) + area_bytes::<u32>(counts) + area_bytes::<u64>(1)
    }

    /// Whether it has `words` of slots and `counts` counters.
    pub(super) fn has(&self, words: usize, counts: usize) -> bool {
        words <= self.slots.len() && counts <= self.counts.len()
    }
}

/// Reuses the last allocation if it is large enough, else appends a larger one, unless the source
/// [is closed](Source::is_closed). `new` gets the last allocation to learn its size.
pub(super) fn largest<T>(
    all: &mut Vec<T>,
    is_closed: bool,
    is_large_enough: impl FnOnce(&T) -> bool,
    new: impl FnOnce(Option<&T>) -> Result<T, Error>,
) -> Result<&mut T, Error> {
    let last = match all.pop() {
        Some(last) if is_large_enough(&last) => last,
        // While a stream is captured, allocations and copies become part of the graph.
        last if is_closed => {
            all.extend(last);
            return Err(Error::Capture);
        }
        Some(last) => {
            let new = new(Some(&last));
            all.push(last);
            new?
        }
        None => new(None)?,
    };
    Ok(all.push_mut(last))
}

/// Returns an area of at least this many words.
pub(super) fn area(
    areas: &mut Vec<Area<u64>>,
    is_capturing: bool,
    gpu: &Gpu,
    source: &mut Source,
    words: usize,
) -> Result<*mut u64, Error> {
    if words == 0 {
        return Ok(null_mut());
    }
    let likely = if words > 1 << 20 { words } else { words.next_power_of_two() };
    let is_closed = source.is_closed(is_capturing);
    let area = largest(areas, is_closed, |area| words <= area.len(), |_| source.area(gpu, words, likely))?;
    Ok(area.as_device_ptr().as_mut_ptr())
}

/// As [`area`], of zeros.
pub(super) fn zeros(
    areas: &mut Vec<Area<u64>>,
    is_capturing: bool,
    gpu: &Gpu,
    (source, stream): (&mut Source, &Stream),
    words: usize,
) -> Result<*mut u64, Error> {
    if words == 0 {
        return Ok(null_mut());
    }
    let likely = if words > 1 << 20 { words } else { words.next_power_of_two() };
    let area = largest(
        areas,
        source.is_closed(is_capturing),
        |area| words <= area.len(),
        |_| {
            let area = source.area::<u64>(gpu, words, likely)?;
            fill(gpu, stream, &area, 0)?;
            Ok(area)
        },
    )?;
    Ok(area.as_device_ptr().as_mut_ptr())
}

/// Enqueues that both halves of each word of an area are set to a value.
fn fill(gpu: &Gpu, stream: &Stream, area: &Area<u64>, value: u32) -> Result<(), Error> {
    if area.is_empty() {
        return Ok(());
    }
    let address = area.as_device_ptr().as_raw();
    // SAFETY: the memory is the area's; launches that use it follow in the same stream.
    let set = unsafe { sys::cuMemsetD32Async(address, value, 2 * area.len(), stream.as_inner()) };
    gpu.done("clearing memory", set)
}

/// Scratch memory of a stream that was dropped, for the next stream.
pub struct Spare {
    pub(super) scratch: Scratch,
    /// Recorded after its last use.
    pub(super) last_use: Event,
    /// The handle of the stream that was dropped.
    pub(super) stream: usize,
}

impl Gpu {
    /// Keeps the scratch memory of a stream that is dropped. The context is entered.
    pub(super) fn keep(&self, scratch: Scratch, stream: &Stream) {
        if let Source::Lent(..) = scratch.source {
            // The caller owns the memory. Lists of segments that were launched are freed, which waits for the
            // device.
            return;
        }
        let last = Event::new(EventFlags::DISABLE_TIMING).and_then(|last| last.record(stream).map(|()| last));
        match last {
            Ok(last_use) if !scratch.is_captured => {
                lock(&self.scratches).push(Spare { scratch, last_use, stream: stream.as_inner().addr() });
            }
            // A graph may use it, or work whose end is unknown does.
            _ => std::mem::forget(scratch),
        }
    }
}

/// Returns the first `words` words of pinned memory, which grows if it has fewer.
pub(super) fn words_of<'a>(
    gpu: &Gpu,
    pinned_words: &'a mut LockedBuffer<u64>,
    words: usize,
) -> Result<&'a [AtomicU64], Error> {
    if words > pinned_words.len() {
        *pinned_words = pinned(gpu, words, slot::EMPTY)?;
    }
    // SAFETY: the memory has that many words, aligned. Host and device access them by atomics alone
    // meanwhile.
    Ok(unsafe { std::slice::from_raw_parts(pinned_words.as_mut_ptr().cast(), words) })
}

/// Allocates pinned memory of `words` words with this value.
pub(super) fn pinned(gpu: &Gpu, words: usize, value: u64) -> Result<LockedBuffer<u64>, Error> {
    LockedBuffer::new(&value, words).map_err(|error| gpu.failed("allocating pinned memory", error))
}
