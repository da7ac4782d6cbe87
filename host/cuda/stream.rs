//! Launching reductions: on a stream, with the result on the device, or for the host to wait for.

use super::modules::{Compiled, Grid, no_kernel};
use super::{Gpu, lock};
use crate::call::{Call, ColumnsCall, SegmentsCall};
use crate::{Error, Plan};
use cust::error::{CudaError, CudaResult};
use cust::event::{Event, EventFlags, EventStatus};
use cust::memory::{AsyncCopyDestination, DeviceBuffer, LockedBuffer};
use cust::stream::{Stream, StreamFlags, StreamWaitEventFlags};
use cust::sys::{self, CUstream, CUstreamCaptureStatus_enum as CUstreamCaptureStatus};
use gpu_reduce_kernels::columns;
use gpu_reduce_kernels::plan::least_block;
use gpu_reduce_kernels::reduce::{self, Target};
use gpu_reduce_kernels::rows;
use gpu_reduce_kernels::segments::{self, Cut, THREADS, WARPS, most_positions, most_short, places};
use gpu_reduce_kernels::shape::push_rest;
use gpu_reduce_kernels::slot;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, transmute};
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A stream, ours or another's, with what its launches share.
pub struct Queue {
    pub(super) stream: Handle,
    pub(super) scratch: Scratch,
    /// Whether the stream is being captured.
    pub(super) is_capturing: bool,
}

/// Memory that launches share, because one begins when another has ended. Of each kind the last is in use: it is the largest, at least twice as large as
/// the one before it, which a graph may still use that was captured meanwhile.
#[derive(Default)]
pub struct Scratch {
    /// For the blocks' partial results. Empty between launches: who takes one out of a slot leaves it so.
    slots: Vec<DeviceBuffer<u64>>,
    pub(super) partials: Vec<Partials>,
    /// Lists of segments that are not short.
    lists: Vec<DeviceBuffer<u64>>,
    /// What launches of [`runs`](super::runs) have in common.
    pub(super) runs: Vec<DeviceBuffer<u64>>,
    /// Whether a graph may use it, at whatever time.
    is_captured: bool,
}

/// Memory that a stream has left.
pub struct Spare {
    scratch: Scratch,
    /// When the last use has ended.
    last: Event,
    /// The stream, by its handle.
    stream: usize,
}

/// A stream, which is destroyed here if it is ours.
pub struct Handle {
    stream: ManuallyDrop<Stream>,
    is_own: bool,
}

impl Deref for Handle {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.is_own {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.stream) }
        }
    }
}

impl Handle {
    fn new(gpu: &Gpu) -> Result<Self, Error> {
        Ok(Self { stream: ManuallyDrop::new(gpu.new_stream()?), is_own: true })
    }

    /// A stream that is somebody else's.
    ///
    /// # Safety
    ///
    /// It stays as long as this.
    unsafe fn of(raw: CUstream) -> Self {
        const { assert!(size_of::<Stream>() == size_of::<CUstream>()) };
        // SAFETY: cust has no other way to it: its stream is the handle alone, as its size says, and as the line after checks. It is not destroyed.
        let stream = ManuallyDrop::new(unsafe { transmute::<CUstream, Stream>(raw) });
        assert_eq!(stream.as_inner(), raw);
        Self { stream, is_own: false }
    }
}

/// Words of slots that a queue has from its first launch on: for any plan with accumulators of 8 bytes.
const SLOT_WORDS: usize = 2 * 2048;

impl Queue {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, Error> {
        Ok(Self { stream: Handle::new(gpu)?, scratch: Scratch::default(), is_capturing: false })
    }

    /// Slots with so many words.
    fn slots_for(&mut self, gpu: &Gpu, words: usize) -> Result<*mut u64, Error> {
        let last = largest(
            &mut self.scratch.slots,
            self.is_capturing,
            |slots| words <= slots.len(),
            |_| empty_slots(gpu, &self.stream, words.next_power_of_two().max(SLOT_WORDS)),
        )?;
        Ok(last.as_device_ptr().as_mut_ptr())
    }

    /// Asks whether the stream is being captured, before something is enqueued.
    fn look(&mut self, gpu: &Gpu) -> Result<(), Error> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is live.
        let asked = unsafe { sys::cuStreamIsCapturing(self.stream.as_inner(), &mut status) };
        gpu.done("asking whether a stream is being captured", asked)?;
        self.is_capturing = status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        self.scratch.is_captured |= self.is_capturing;
        Ok(())
    }

    /// Enqueues a reduction; its result goes to `result`. Returns the kernel that does it.
    ///
    /// # Safety
    ///
    /// The items and the result's target stay until the stream has been waited for, and nothing else uses them meanwhile; the
    /// target is one for the operator's results. The context is entered.
    pub(super) unsafe fn enqueue(
        &mut self,
        gpu: &Gpu,
        call: &Call,
        result: Target<()>,
    ) -> Result<&'static Compiled, Error> {
        let &Call { of, len, block, .. } = call;
        let launch = |stream: &Stream, kernel, grid, chunk, slots| {
            let mut parameters = call.input;
            reduce::push_rest(&mut parameters, (&len, &chunk, &slots), &result, call.op);
            // SAFETY: as the caller vouches; the parameters are those that the kernel, which is one for the call's types, takes.
            unsafe { gpu.launch_if_compiled(kernel, of.own, stream, grid, &parameters) }
        };
        // What is no longer than a row has the same bits by the least BLOCK that has it.
        let least = least_block(len, of.width);
        if least <= block {
            let is_aligned = call.head.is_some_and(|head| (head as usize).is_multiple_of(of.width));
            let kernel = if is_aligned { of.row_kernel } else { of.kernel };
            let grid = Grid { blocks: 1, block: least, resident: least };
            let slots = self.slots_for(gpu, 0)?;
            if let Some(kernel) = launch(&self.stream, kernel, grid, len, slots)? {
                return Ok(kernel);
            }
        }
        let plan = Plan::new(len, of.width, block);
        let words = plan.chunks as usize * of.words;
        let slots = self.slots_for(gpu, words)?;
        let grid = Grid { blocks: plan.chunks, block, resident: block };
        launch(&self.stream, of.kernel, grid, plan.chunk, slots)?.ok_or_else(|| no_kernel((of.name)(), block))
    }
}

/// A stream that callers enqueue on, theirs or one of ours.
pub struct GpuStream {
    gpu: &'static Gpu,
    queue: ManuallyDrop<Mutex<Queue>>,
    raw: CUstream,
}

// SAFETY: a stream's handle may be used by any thread, and so by several.
unsafe impl Send for GpuStream {}
// SAFETY: as above; the rest is behind a mutex.
unsafe impl Sync for GpuStream {}

impl GpuStream {
    pub fn new(gpu: &'static Gpu) -> Result<Self, Error> {
        let _entered = gpu.enter()?;
        Self::with(gpu, Handle::new(gpu)?)
    }

    /// A stream that is somebody else's, of the device's primary context.
    ///
    /// # Safety
    ///
    /// It is one, and stays as long as this.
    pub unsafe fn of(gpu: &'static Gpu, raw: *mut c_void) -> Result<Self, Error> {
        let _entered = gpu.enter()?;
        let raw: CUstream = raw.cast();
        // The default streams, which have names from 0 to 2, are those of the context that was entered.
        if raw.addr() > 2 {
            let mut context = null_mut();
            // SAFETY: as the caller vouches.
            gpu.done("asking for a stream's context", unsafe { sys::cuStreamGetCtx(raw, &mut context) })?;
            if context != gpu.raw_context() {
                return Err(gpu.other_context("the stream", context));
            }
        }
        // SAFETY: as the caller vouches.
        Self::with(gpu, unsafe { Handle::of(raw) })
    }

    /// Memory that an earlier stream has left serves this one, if it was the same one, or all that used it has ended: streams do not wait for each other.
    fn with(gpu: &'static Gpu, stream: Handle) -> Result<Self, Error> {
        let raw = stream.as_inner();
        let mut queue = Queue { stream, scratch: Scratch::default(), is_capturing: false };
        queue.look(gpu)?;
        if !queue.is_capturing {
            let mut spares = lock(&gpu.scratches);
            let same = spares.iter().position(|spare| spare.stream == raw.addr());
            let is_ready = |spare: &Spare| matches!(spare.last.query(), Ok(EventStatus::Ready));
            if let Some(spare) = same.or_else(|| spares.iter().position(is_ready)) {
                let Spare { scratch, last, .. } = spares.swap_remove(spare);
                queue.scratch = scratch;
                // For a stream that was made anew, of a name that was free again.
                let waits = queue.stream.wait_event(last, StreamWaitEventFlags::DEFAULT);
                waits.map_err(|error| gpu.failed("waiting for an event", error))?;
            }
        }
        Ok(Self { gpu, queue: ManuallyDrop::new(Mutex::new(queue)), raw })
    }

    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The stream, as the driver's functions take it.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Waits for all that is enqueued.
    pub fn wait(&self) -> Result<(), Error> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the stream is live.
        self.gpu.done("waiting for a stream", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// Enqueues a copy of so many bytes of the host's, at least one, to the device.
    ///
    /// # Safety
    ///
    /// They are there on both sides, and stay until the stream has been waited for; nothing else uses them meanwhile.
    pub unsafe fn upload(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Error> {
        let _entered = self.gpu.enter()?;
        // SAFETY: as the caller vouches; the stream is live.
        let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(to.addr() as u64, from.cast(), bytes, self.raw) };
        self.gpu.done("copying to the device", copied)
    }

    /// Enqueues a copy of so many bytes of the device's, at least one, to the host.
    ///
    /// # Safety
    ///
    /// As of [`upload`](Self::upload).
    pub unsafe fn download(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Error> {
        let _entered = self.gpu.enter()?;
        // SAFETY: as the caller vouches; the stream is live.
        let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from.addr() as u64, bytes, self.raw) };
        self.gpu.done("copying from the device", copied)
    }

    /// Enqueues what `work` does, with the context entered.
    pub(super) fn enter<R>(
        &self,
        work: impl FnOnce(&'static Gpu, &mut Queue) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _entered = self.gpu.enter()?;
        let mut queue = lock(&self.queue);
        queue.look(self.gpu)?;
        work(self.gpu, &mut queue)
    }

    /// Enqueues that a value goes to a place on the device.
    ///
    /// # Safety
    ///
    /// It is the place of so many bytes, which stay until the stream has been waited for, and nothing else uses them meanwhile.
    pub unsafe fn fill(&self, place: *mut u8, value: &[u8]) -> Result<(), Error> {
        // As values that the driver keeps: host memory would be read again by a graph, when that is replayed.
        self.enter(|gpu, queue| {
            let stream = queue.stream.as_inner();
            let is_aligned = place.addr().is_multiple_of(4) && value.len().is_multiple_of(4);
            let step = if is_aligned { 4 } else { 1 };
            for (index, piece) in value.chunks(step).enumerate() {
                let address = (place.addr() + step * index) as u64;
                // SAFETY: as the caller vouches.
                let set = unsafe {
                    match *piece {
                        [a, b, c, d] => {
                            sys::cuMemsetD32Async(address, u32::from_le_bytes([a, b, c, d]), 1, stream)
                        }
                        [byte, ..] => sys::cuMemsetD8Async(address, byte, 1, stream),
                        [] => continue,
                    }
                };
                gpu.done("setting memory", set)?;
            }
            Ok(())
        })
    }

    /// Enqueues a reduction, and leaves its result on the device.
    ///
    /// # Safety
    ///
    /// As of [`Queue::enqueue`], but for the context; `result` is a place for it.
    pub unsafe fn enqueue(&self, call: &Call, result: *mut ()) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        self.enter(|gpu, queue| unsafe { queue.enqueue(gpu, call, Target::device(result)).map(drop) })
    }

    /// Enqueues the reduction of each of some segments.
    ///
    /// # Safety
    ///
    /// As of [`Queue::enqueue_segments`], but for the context; and the offsets do not descend, nor go past the items' end.
    pub unsafe fn enqueue_segments(&self, call: &SegmentsCall) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        self.enter(|gpu, queue| unsafe { queue.enqueue_segments(gpu, call, None).map(drop) })
    }

    /// Enqueues the reduction of each column.
    ///
    /// # Safety
    ///
    /// As of [`Queue::enqueue_columns`], but for the context.
    pub unsafe fn enqueue_columns(&self, call: &ColumnsCall) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        self.enter(|gpu, queue| unsafe { queue.enqueue_columns(gpu, call).map(drop) })
    }
}

impl Drop for GpuStream {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let queue = unsafe { ManuallyDrop::take(&mut self.queue) };
        let Queue { stream, scratch, .. } = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Where there is no context to be had, the process is ending.
        let Ok(_entered) = self.gpu.enter() else { return std::mem::forget((stream, scratch)) };
        let last =
            Event::new(EventFlags::DISABLE_TIMING).and_then(|last| last.record(&stream).map(|()| last));
        match last {
            Ok(last) if !scratch.is_captured => {
                lock(&self.gpu.scratches).push(Spare { scratch, last, stream: self.raw.addr() });
            }
            // A graph uses it, or what is enqueued does, of which nobody knows when it ends.
            _ => std::mem::forget(scratch),
        }
        drop(stream);
    }
}

/// Slots that nothing is in. They are copied, because clearing is a kernel: where a second stream runs one, an H200 takes 0.2 µs
/// longer for each kernel from then on.
pub(super) fn empty_slots(gpu: &Gpu, stream: &Stream, words: usize) -> Result<DeviceBuffer<u64>, Error> {
    let mut slots = gpu.allocate::<u64>(words)?;
    // SAFETY: launches that use the memory follow in the same stream; of pageable memory, the driver has made a copy when the
    // call returns (CUDA driver API, "API synchronization behavior").
    unsafe { slots.async_copy_from(&vec![slot::EMPTY; words], stream) }
        .map_err(|error| gpu.failed("copying to the device", error))?;
    Ok(slots)
}

/// What a call that waits for its result needs. It takes one and gives it back, so that threads do not wait for each other and
/// nothing is allocated twice.
pub struct Workspace {
    pub(super) queue: Queue,
    /// A slot in pinned memory, so that the kernel hands the result to the host itself. Empty between calls.
    result: LockedBuffer<u64>,
}

/// The last of some, or a new one where that does not do, which is made knowing it.
pub(super) fn largest<T>(
    all: &mut Vec<T>,
    is_capturing: bool,
    does: impl FnOnce(&T) -> bool,
    new: impl FnOnce(Option<&T>) -> Result<T, Error>,
) -> Result<&mut T, Error> {
    let last = match all.pop() {
        Some(last) if does(&last) => last,
        // What a graph does while it is captured is not done then.
        last if is_capturing => {
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

/// What segments of several chunks need, as [`Cut`] has it.
pub struct Partials {
    slots: DeviceBuffer<u64>,
    counts: DeviceBuffer<u32>,
    wrong: DeviceBuffer<u64>,
}

impl Partials {
    /// For so many words of slots, and so many counts.
    fn new(gpu: &Gpu, stream: &Stream, words: usize, counts: usize) -> Result<Self, Error> {
        let (words, counts) = (words.next_power_of_two(), counts.next_power_of_two());
        let mut new =
            Self { slots: gpu.allocate(words)?, counts: gpu.allocate(counts)?, wrong: gpu.allocate(1)? };
        // SAFETY: launches that use the memory follow in the same stream; for the copy, as in `empty_slots`.
        unsafe {
            new.counts
                .set_zero_async(stream)
                .and_then(|()| new.wrong.async_copy_from(&[Cut::NOTHING], stream))
                .map_err(|error| gpu.failed("clearing memory", error))?;
        }
        Ok(new)
    }

    /// Whether it is for so many.
    fn has(&self, words: usize, counts: usize) -> bool {
        words <= self.slots.len() && counts <= self.counts.len()
    }
}

/// Words of a result's slot from the start.
const RESULT_WORDS: usize = 16;

impl Workspace {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, Error> {
        Ok(Self { queue: Queue::new(gpu)?, result: pinned(gpu, RESULT_WORDS, slot::EMPTY)? })
    }
}

/// The first `words` words of a result's slot, which grows to have so many.
fn words_of<'a>(
    gpu: &Gpu,
    result: &'a mut LockedBuffer<u64>,
    words: usize,
) -> Result<&'a [AtomicU64], Error> {
    if words > result.len() {
        *result = pinned(gpu, words, slot::EMPTY)?;
    }
    // SAFETY: the memory has so many words, aligned; meanwhile both sides use them by atomic accesses alone.
    Ok(unsafe { std::slice::from_raw_parts(result.as_mut_ptr().cast(), words) })
}

pub(super) fn pinned(gpu: &Gpu, words: usize, value: u64) -> Result<LockedBuffer<u64>, Error> {
    LockedBuffer::new(&value, words).map_err(|error| gpu.failed("allocating pinned memory", error))
}

impl Gpu {
    pub(super) fn new_stream(&self) -> Result<Stream, Error> {
        Stream::new(StreamFlags::NON_BLOCKING, None).map_err(|error| self.failed("creating a stream", error))
    }

    /// Reduces, and waits for the accumulator of all items.
    ///
    /// # Safety
    ///
    /// The items stay as they are meanwhile, and `all` are the bytes of an accumulator of the call's operator.
    pub unsafe fn reduce(&self, call: &Call, all: &mut [u8]) -> Result<(), Error> {
        self.with_workspace(|Workspace { queue, result }| {
            let words = words_of(self, result, call.of.words)?;
            let host = words.as_ptr().cast_mut().cast();
            // SAFETY: the input stays as the caller vouches, and so does the workspace's slot, which is empty; the context is
            // entered.
            let kernel = unsafe { queue.enqueue(self, call, Target::host(host)) }?;
            self.launched(kernel, wait(words, || queue.stream.synchronize()))?;
            slot::unpack_bytes(all, |index| words[index].load(Ordering::Relaxed));
            words.iter().for_each(|word| word.store(slot::EMPTY, Ordering::Relaxed));
            Ok(())
        })
    }
}

/// Positions that are worth a warp, where there are lists of short segments.
const LEAST_SHARE: u64 = 64;

/// Leaves of segments, on the average, from which on there are no such lists; and of fewer segments for each warp than this there are none in any case.
const LARGER_ON_AVERAGE: u64 = 96;
const FEW: u64 = 2;

/// Leaves that are folded in the time that a segment takes beside its own, where there are no lists.
const WEIGHT: u64 = 64;

/// Leaves of a chunk that are worth a warp, where there are more warps than chunks: what the warps give each other takes 3 µs.
const LEAST_PART: u64 = 160;

/// How segments are cut up for so many warps, but for the memory, and how many of these there are.
fn cut_for(call: &SegmentsCall, warps: u64) -> (Cut, u64) {
    let &SegmentsCall { of, shape: segments, block, .. } = call;
    let (width, count) = (of.width as u64, segments.count.max(1));
    let average = segments.len / count;
    let mut cut = Cut { block, has_default: call.has_default.into(), ..Cut::NONE };
    if segments.length().is_some_and(|length| rows::is_short(length, width, block)) {
        cut.share = count.div_ceil(warps) as u32;
        return (cut, count.div_ceil(cut.share.into()));
    }
    let has_lists = segments.has_number()
        || segments.length().is_none() && average < LARGER_ON_AVERAGE * width && count > FEW * warps;
    let mut waves = 1;
    if has_lists {
        cut.weight = width as u32;
        waves = (segments.len + width * count).div_ceil(most_positions(width) * warps).max(1);
    } else {
        cut.weight = (WEIGHT * width) as u32;
        let chunks = u64::from(Plan::new(average, of.width, block).chunks);
        let parts = warps.div_ceil(count * chunks).next_power_of_two();
        cut.parts = parts.min(average / chunks / (LEAST_PART * width)).max(1).ilog2().min(5) as u16;
    }
    let positions = segments.len + u64::from(cut.weight) * count;
    let least = if has_lists { LEAST_SHARE } else { cut.weight.into() };
    let share = positions.div_ceil(waves * warps).max(least);
    cut.share = share as u32;
    (cut, positions.div_ceil(share))
}

impl Queue {
    /// Partial results for so many words of slots, and so many counts: those that are there, unless they are too few.
    fn partials_for(&mut self, gpu: &Gpu, words: usize, counts: usize) -> Result<&mut Partials, Error> {
        largest(
            &mut self.scratch.partials,
            self.is_capturing,
            |partials| partials.has(words, counts),
            |last| {
                let (old_words, old_counts) =
                    last.map_or((0, 0), |last| (last.slots.len(), last.counts.len()));
                Partials::new(gpu, &self.stream, words.max(old_words), counts.max(old_counts))
            },
        )
    }

    /// Enqueues the reduction of each of some segments; what is wrong goes to `wrong`, or to the queue's own place for it.
    ///
    /// # Safety
    ///
    /// The items, the offsets and the places of results stay until the stream has been waited for, and what the call has is of its types. The
    /// context is entered.
    pub(super) unsafe fn enqueue_segments(
        &mut self,
        gpu: &Gpu,
        call: &SegmentsCall,
        wrong: Option<*mut u64>,
    ) -> Result<&'static Compiled, Error> {
        let &SegmentsCall { of, shape: segments, block, .. } = call;
        let (width, row) = (of.width as u64, u64::from(block) * of.width as u64);
        let (mut cut, warps) =
            cut_for(call, (gpu.multiprocessors * segments::RESIDENT_BLOCKS * WARPS).into());
        let blocks = warps.div_ceil(WARPS.into()) as u32;
        // Short rows have no partial results.
        let places = if cut.weight > 0 { places(segments.len, row, cut.parts) as usize } else { 1 };
        let partials = self.partials_for(gpu, places * of.words, places)?;
        cut.partials = partials.slots.as_device_ptr().as_mut_ptr();
        cut.counts = partials.counts.as_device_ptr().as_mut_ptr();
        cut.wrong = wrong.unwrap_or(partials.wrong.as_device_ptr().as_mut_ptr());
        let has_lists = cut.weight > 0 && u64::from(cut.weight) == width;
        if has_lists {
            let words = (blocks * WARPS) as usize * segments::LIST;
            let lists = largest(
                &mut self.scratch.lists,
                self.is_capturing,
                |lists| words <= lists.len(),
                |_| gpu.allocate(words.next_power_of_two()),
            )?;
            cut.lists = lists.as_device_ptr().as_mut_ptr();
        }
        let mut parameters = call.input;
        push_rest(&mut parameters, (&segments, &cut, &call.results), call.default, call.op);
        let grid = Grid { blocks, block: THREADS, resident: THREADS * segments::RESIDENT_BLOCKS };
        let launch = |kernel| {
            // SAFETY: as the caller vouches; the memory is for these partial results and lists.
            let kernel = unsafe { gpu.launch_if_compiled(kernel, of.own, &self.stream, grid, &parameters) }?;
            kernel.ok_or_else(|| no_kernel((of.name)(), block))
        };
        if has_lists {
            let kernel = launch(of.segments_kernel)?;
            if segments.len <= most_short(width, of.slots, block) {
                return Ok(kernel);
            }
        }
        launch(of.rows_kernel)
    }
}

impl Gpu {
    /// Reduces each segment, and waits; says what was wrong, as [`Cut::wrong`] has it.
    ///
    /// # Safety
    ///
    /// The items, the offsets and the places of results stay as they are meanwhile, and what the call has is of its types.
    pub unsafe fn reduce_segments(&self, call: &SegmentsCall) -> Result<Option<u64>, Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            // SAFETY: as the caller vouches.
            let kernel = unsafe { queue.enqueue_segments(self, call, None) }?;
            let mut wrong = [Cut::NOTHING];
            let copied = match queue.scratch.partials.last() {
                // SAFETY: the stream is waited for below.
                Some(partials) => unsafe { partials.wrong.async_copy_to(&mut wrong, &queue.stream) },
                None => Ok(()),
            };
            self.launched(kernel, copied.and_then(|()| queue.stream.synchronize()))?;
            if wrong == [Cut::NOTHING] {
                return Ok(None);
            }
            // It is said in there, and counts may be left behind.
            queue.scratch.partials.clear();
            Ok(Some(wrong[0]))
        })
    }
}

impl Queue {
    /// Enqueues the reduction of each column.
    ///
    /// # Safety
    ///
    /// The items and the places of results stay until the stream has been waited for, and what the call has is of its
    /// types. The context is entered.
    pub(super) unsafe fn enqueue_columns(
        &mut self,
        gpu: &Gpu,
        call: &ColumnsCall,
    ) -> Result<&'static Compiled, Error> {
        let &ColumnsCall { of, shape: columns, block, .. } = call;
        let mut cut = columns::Cut::new(&columns, of.width, block, of.bytes, of.words);
        if cut.has_partials() {
            let (words, counts) = (cut.words(of.words), cut.counts());
            let partials = self.partials_for(gpu, words, counts)?;
            cut.partials = partials.slots.as_device_ptr().as_mut_ptr();
            cut.counts = partials.counts.as_device_ptr().as_mut_ptr();
        }
        let mut parameters = call.input;
        push_rest(&mut parameters, (&columns, &cut, &call.results), call.default, call.op);
        let grid = Grid { blocks: cut.blocks(), block: columns::THREADS, resident: columns::RESIDENT };
        // SAFETY: as the caller vouches; the memory is for these partial results.
        let kernel =
            unsafe { gpu.launch_if_compiled(of.columns_kernel, of.own, &self.stream, grid, &parameters) }?;
        kernel.ok_or_else(|| no_kernel((of.name)(), block))
    }
}

impl Gpu {
    /// Reduces each column, and waits.
    ///
    /// # Safety
    ///
    /// The items and the places of results stay as they are meanwhile, and what the call has is of its types.
    pub unsafe fn reduce_columns(&self, call: &ColumnsCall) -> Result<(), Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            // SAFETY: as the caller vouches.
            let kernel = unsafe { queue.enqueue_columns(self, call) }?;
            self.launched(kernel, queue.stream.synchronize())
        })
    }
}

/// Waits until a launch has filled these words: for a while by looking at them, then by the driver, who also knows of a
/// launch that failed. On an H200 a call over 2^10 `f32` took 7.1 µs in this way, and 9.0 by the driver alone.
fn wait(words: &[AtomicU64], synchronize: impl FnOnce() -> CudaResult<()>) -> CudaResult<()> {
    const LOOKS: u32 = 2000;
    let full = || words.iter().all(|word| word.load(Ordering::Relaxed) != slot::EMPTY);
    for _ in 0..LOOKS {
        if full() {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    synchronize()?;
    if full() { Ok(()) } else { Err(CudaError::LaunchFailed) }
}
