//! One reduction by several GPUs: each folds the chunks that lie on it.
//!
//! A chunk that lies on several GPUs is copied to the one with most of it. If the host waits for the result,
//! the partial results go to the host. If the result stays on a device, they go there, by peer access or
//! through the host; when all are there, a launch of one block without items merges them.

use super::driver::check_fork;
use super::modules::{Compiled, Grid, no_kernel};
use super::pending::Launched;
use super::queue::Queue;
use super::scratch::{Area, area_bytes, largest, words_of};
use super::stream::{GpuStream, Workspace};
use super::{Gpu, lock};
use crate::Error;
use crate::request::{Operation, Request, Shape};
use crate::sharded::{FIRST_BYTES, GpuShard, ShardsCall, SlotOrder, SlotsOfChunks};
use crate::shares::Assignment;
use cust::error::CudaResult;
use cust::event::{Event, EventFlags};
use cust::stream::StreamWaitEventFlags;
use cust::sys::{self, CUresult};
use gpu_reduce_kernels::columns::Columns;
use gpu_reduce_kernels::kernels::{Family, Parameters};
use gpu_reduce_kernels::plan::GROUP;
use gpu_reduce_kernels::reduce::{self, Target};
use gpu_reduce_kernels::segments::Cut;
use gpu_reduce_kernels::slot;
use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicU64, Ordering};

/// Assignments that one GPU folds, by a launch for each; their slots follow one another.
struct Batch {
    gpu: &'static Gpu,
    assigned: Vec<Assignment>,
}

impl Batch {
    fn chunks(&self) -> SlotOrder {
        self.assigned.iter().map(|assigned| assigned.chunks.clone()).collect()
    }

    fn chunk_count(&self) -> usize {
        self.assigned.iter().map(|assigned| assigned.chunks.len()).sum()
    }
}

impl ShardsCall<'_> {
    /// Assigns all chunks, split chunks first; or each shard, in place of a chunk, to itself.
    fn assign(&self) -> Vec<Assignment> {
        if self.in_parts {
            let part = |share| Assignment { share, chunks: share as u32..share as u32 + 1, is_split: false };
            return (0..self.shards.len()).map(part).collect();
        }
        let mut assigned = self.shares.assign(&self.plan);
        assigned.sort_by_key(|assigned| !assigned.is_split);
        assigned
    }

    /// Returns what each GPU folds.
    ///
    /// If `apart`, each batch gets a stream of its own. Then split chunks are apart, because one chunk takes
    /// one block longer than the other chunks take all blocks, and the others are two batches for each GPU: a
    /// launch begins while the one before ends. (2^32 `f32` in 64 shards on one H100 took 7% longer than in
    /// one by launches in one stream.)
    fn batches(&self, apart: bool) -> Vec<Batch> {
        let mut batches = Vec::<Batch>::new();
        for assigned in self.assign() {
            let gpu = self.shards[assigned.share].gpu;
            let fits = |batch: &&mut Batch| {
                batch.gpu == gpu && !(apart && assigned.is_split != batch.assigned[0].is_split)
            };
            let most = if apart && !assigned.is_split { 2 } else { 1 };
            let is_new = batches.iter_mut().filter(fits).count() < most;
            let fewest = batches.iter_mut().filter(fits).min_by_key(|batch| batch.assigned.len());
            match fewest.filter(|_| !is_new) {
                Some(batch) => batch.assigned.push(assigned),
                None => batches.push(Batch { gpu, assigned: vec![assigned] }),
            }
        }
        batches
    }

    /// Returns whether items are copied between devices, so that streams have to wait for each other.
    fn copies(&self, batches: &[Batch]) -> bool {
        let mut assigned = batches.iter().flat_map(|batch| &batch.assigned);
        !self.in_parts && (self.of.looks_at_first || assigned.any(|assigned| assigned.is_split))
    }

    /// Returns the GPU of the first item if the operator looks at it.
    fn first_comes_from(&self) -> Option<&'static Gpu> {
        self.first_gpu.filter(|_| self.of.looks_at_first && !self.in_parts)
    }

    /// Returns the words of the host's memory for the first item.
    fn first_words(&self) -> usize {
        let arrays = if self.first_comes_from().is_some() { self.first } else { &[] };
        arrays.iter().map(|&(_, bytes)| bytes.next_multiple_of(FIRST_BYTES) / size_of::<u64>()).sum()
    }

    /// Enqueues a copy of the first item to the host, of each array to a multiple of [`FIRST_BYTES`].
    ///
    /// # Safety
    ///
    /// There is room for it; all stays until the stream has been waited for; the context is entered.
    unsafe fn copy_first(&self, gpu: &Gpu, queue: &Queue, mut to: *mut u64) -> Result<(), Error> {
        for &(from, bytes) in self.first {
            // SAFETY: as the caller vouches.
            unsafe { copy(queue, to.addr() as u64, from, bytes) }
                .map_err(|error| gpu.failed("copying from the device", error))?;
            to = to.wrapping_byte_add(bytes.next_multiple_of(FIRST_BYTES));
        }
        Ok(())
    }
}

/// Enqueues a copy between any two places on devices or the host.
///
/// # Safety
///
/// Both places have `bytes` bytes and stay until the stream has been waited for; nothing else uses them until
/// then; the context is entered.
unsafe fn copy(queue: &Queue, to: u64, from: u64, bytes: usize) -> Result<(), CUresult> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: as the caller vouches.
    match unsafe { sys::cuMemcpyAsync(to, from, bytes, queue.stream.as_inner()) } {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(error),
    }
}

/// Blocks of the launch that merges all partial results without groups: the last of several blocks does.
const MERGING_BLOCKS: u32 = 2;

impl Queue {
    /// Returns an area of at least this many bytes.
    fn copies_for(&mut self, gpu: &Gpu, bytes: usize) -> Result<u64, Error> {
        let words = bytes.div_ceil(size_of::<u64>());
        let source = &mut self.scratch.source;
        let area = largest(
            &mut self.scratch.copies,
            source.is_closed(self.is_capturing),
            |area: &Area<u64>| words <= area.len(),
            |_| source.area(gpu, words, words.next_power_of_two()),
        )?;
        Ok(area.as_device_ptr().as_raw())
    }

    /// Returns the addresses of each array's assigned items, and of each array's first item of all. Items
    /// that the GPU does not have are copied.
    ///
    /// # Safety
    ///
    /// As for [`enqueue_chunks`](Self::enqueue_chunks).
    unsafe fn arrays_of(
        &mut self,
        gpu: &Gpu,
        call: &ShardsCall,
        assigned: Option<&Assignment>,
    ) -> Result<(Vec<u64>, Vec<u64>), Error> {
        let failed = |error| gpu.failed("copying from device to device", error);
        let is_here = call.first_gpu == Some(gpu);
        let copies_first = call.of.looks_at_first && !is_here;
        // The address of an item in a shard.
        let address = |array: usize, shard: usize, item: u64| {
            let (start, bytes) = call.shards[shard].arrays[array];
            start + (item - call.shares.range(shard).start) * bytes as u64
        };
        let items = assigned.map_or(0..0, |assigned| call.plan.elements(assigned.chunks.clone()));
        let split = assigned.filter(|assigned| assigned.is_split).map(|_| items.clone());
        let len = split.as_ref().map_or(0, |items| (items.end - items.start) as usize);
        let of_items = |&(_, bytes): &(u64, usize)| area_bytes::<u8>(len.saturating_mul(bytes));
        let of_first = |&(_, bytes): &(u64, usize)| if copies_first { area_bytes::<u8>(bytes) } else { 0 };
        let all = call.first.iter().map(|array| of_items(array).saturating_add(of_first(array)));
        let bytes = all.fold(0, usize::saturating_add);
        let mut place = if bytes > 0 { self.copies_for(gpu, bytes)? } else { 0 };
        let (mut arrays, mut firsts) = (Vec::new(), Vec::new());
        for (index, array) in call.first.iter().enumerate() {
            let bytes = array.1;
            let at = match assigned {
                Some(assigned) if !assigned.is_split => address(index, assigned.share, items.start),
                _ => place,
            };
            if let Some(items) = &split {
                let mut to = place;
                for (shard, part) in call.shares.parts(items.clone()) {
                    let from = address(index, shard, part.start);
                    let bytes = (part.end - part.start) as usize * bytes;
                    // SAFETY: the area has room for the parts one after the other; as the caller vouches.
                    unsafe { copy(self, to, from, bytes).map_err(failed)? };
                    to += bytes as u64;
                }
                place += of_items(array) as u64;
            }
            arrays.push(at);
            if copies_first {
                // SAFETY: as above.
                unsafe { copy(self, place, array.0, bytes).map_err(failed)? };
                firsts.push(place);
                place += of_first(array) as u64;
            } else {
                // If the operator does not look at it, any address will do.
                firsts.push(if is_here { array.0 } else { at });
            }
        }
        Ok((arrays, firsts))
    }

    /// Enqueues a launch that folds assigned chunks, or without any, one that merges all partial results, by
    /// groups if there are any. (What has no order needs no groups.)
    /// Returns the kernel.
    ///
    /// # Safety
    ///
    /// The items, the slots and the result's place stay until the stream has been waited for. The slots,
    /// which are those of the launch's own chunks, are empty. Nothing else writes to any of these until then.
    /// The context is entered.
    unsafe fn enqueue_chunks(
        &mut self,
        gpu: &Gpu,
        call: &ShardsCall,
        assigned: Option<&Assignment>,
        slots: *mut u64,
        result: Target<()>,
    ) -> Result<&'static Compiled, Error> {
        let &ShardsCall { of, plan, block, op, .. } = call;
        let has_groups = !of.is_exact && plan.groups() > 0;
        // SAFETY: as the caller vouches.
        let (arrays, firsts) = unsafe { self.arrays_of(gpu, call, assigned)? };
        let (mut parameters, mut of_first) = (Parameters::NONE, Parameters::NONE);
        arrays.iter().for_each(|address| parameters.push(address));
        firsts.iter().for_each(|address| of_first.push(address));
        let (len, chunk, before, blocks) = match assigned {
            Some(Assignment { chunks, .. }) => {
                let items = plan.elements(chunks.clone());
                (items.end - items.start, plan.chunk as u32, chunks.start, chunks.len() as u32)
            }
            None if has_groups => (plan.len, 0, plan.chunks, plan.groups()),
            None => (plan.len, 0, plan.chunks, MERGING_BLOCKS),
        };
        reduce::push_rest(
            &mut parameters,
            (&chunk, &before, &len, &slots),
            &result,
            &of_first,
            of.operator(op),
        );
        let folds_groups = has_groups && assigned.is_none();
        let (kernel, threads) =
            if folds_groups { (of.kernel.with(Family::Groups), GROUP) } else { (of.kernel, block) };
        let grid = Grid { blocks, block: threads, resident: threads };
        // SAFETY: as the caller vouches; the parameters are those of the kernel, which is one for the call's
        // types.
        let kernel = unsafe { gpu.launch_if_compiled(kernel, of.own, &self.stream, grid, &parameters) }?;
        kernel.ok_or_else(|| no_kernel((of.name)(), block))
    }

    /// Enqueues a batch, with slots that follow one another. Returns the kernel.
    ///
    /// # Safety
    ///
    /// As for [`enqueue_chunks`](Self::enqueue_chunks).
    unsafe fn enqueue_batch(
        &mut self,
        call: &ShardsCall,
        batch: &Batch,
        mut slots: *mut u64,
    ) -> Result<Option<&'static Compiled>, Error> {
        let mut kernel = None;
        for assigned in &batch.assigned {
            // SAFETY: as the caller vouches.
            kernel = Some(unsafe {
                if call.in_parts {
                    let GpuShard { len, ref arrays, head, .. } = call.shards[assigned.share];
                    let mut input = Parameters::NONE;
                    arrays.iter().for_each(|(address, _)| input.push(address));
                    let request = Operation::of_types(call.of, call.op, call.block).with_parameters(
                        input,
                        Shape::Whole { len, head },
                        null_mut(),
                    );
                    self.enqueue(batch.gpu, &request, Some(slots))?
                } else {
                    self.enqueue_chunks(batch.gpu, call, Some(assigned), slots, Target::none())?
                }
            });
            slots = slots.wrapping_add(assigned.chunks.len() * call.of.words);
        }
        Ok(kernel)
    }
}

/// A batch that was launched, with a workspace of its own.
struct RunningBatch {
    batch: Batch,
    workspace: Workspace,
    kernel: Option<&'static Compiled>,
    /// Words of its slots, with padding, and of the first item, which comes after them.
    words: usize,
    first_words: usize,
}

impl RunningBatch {
    /// Waits for the partial results: polls the slots for a while, then waits for the stream.
    fn wait(&mut self, call: &ShardsCall) -> Result<(), Error> {
        let of = call.of;
        let is_full = |slot: &[AtomicU64]| match call.in_parts {
            true => slot.iter().all(|word| word.load(Ordering::Relaxed) != slot::EMPTY),
            false => (of.is_full)(slot),
        };
        const LOOKS: u32 = 2000;
        let Self { batch, workspace, kernel, .. } = self;
        // SAFETY: the memory has these words, aligned; until they are full, both sides only use atomic
        // accesses.
        let slots = unsafe {
            let words = workspace.result.as_slice().as_ptr().cast::<AtomicU64>();
            std::slice::from_raw_parts(words, batch.chunk_count() * of.words)
        };
        let launched = |result| kernel.map_or(Ok(()), |kernel| batch.gpu.launched(kernel, result));
        let mut empty = slots.chunks(of.words).peekable();
        let mut looks = 0;
        while let Some(slot) = empty.peek() {
            if is_full(slot) {
                empty.next();
            } else if looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
            } else {
                let _entered = batch.gpu.enter()?;
                // If a slot is not full then, whoever reads it reports that.
                return launched(workspace.queue.stream.synchronize());
            }
        }
        Ok(())
    }
}

impl Gpu {
    /// Reduces items on several GPUs, one of which is this. Calls `finish` with the slots of all chunks, and
    /// with the words of the first item if the operator looks at it.
    ///
    /// # Safety
    ///
    /// The items do not change until the call returns. The call's types are those of its operator and the
    /// items.
    pub unsafe fn reduce_shards(
        &self,
        call: &ShardsCall,
        finish: &mut dyn FnMut(&[SlotsOfChunks], &[u64]),
    ) -> Result<(), Error> {
        let mut running = Vec::new();
        let launched = call.batches(true).into_iter().try_for_each(|batch| {
            let first_words = if running.is_empty() { call.first_words() } else { 0 };
            // SAFETY: as the caller vouches; all is waited for below.
            unsafe { start(call, batch, first_words) }.map(|batch| running.push(batch))
        });
        let waited = running.iter_mut().map(|batch| batch.wait(call)).fold(launched, Result::and);
        if let Err(error) = waited {
            // Work that still runs ends before its memory is freed.
            for RunningBatch { batch, workspace, .. } in running {
                let entered = batch.gpu.enter();
                let _ = workspace.queue.stream.synchronize();
                drop((workspace, entered));
            }
            return Err(error);
        }
        let chunks: Vec<_> = running.iter().map(|running| running.batch.chunks()).collect();
        let mut first: &[u64] = &[];
        let mut slots = Vec::with_capacity(running.len());
        for (running, chunks) in running.iter().zip(&chunks) {
            let (words, others) = running.workspace.result.as_slice().split_at(running.words);
            slots.push(SlotsOfChunks { chunks, words });
            if running.first_words > 0 {
                first = &others[..running.first_words];
            }
        }
        finish(&slots, first);
        for RunningBatch { batch, mut workspace, words, first_words, .. } in running {
            workspace.result.as_mut_slice()[..words + first_words].fill(slot::EMPTY);
            lock(&batch.gpu.workspaces).push(workspace);
        }
        Ok(())
    }
}

/// Launches a batch, with a workspace of its own.
///
/// # Safety
///
/// As for [`Gpu::reduce_shards`], until the batch has been waited for.
unsafe fn start(call: &ShardsCall, batch: Batch, first_words: usize) -> Result<RunningBatch, Error> {
    let gpu = batch.gpu;
    let _entered = gpu.enter()?;
    let spare = lock(&gpu.workspaces).pop();
    let mut workspace = match spare {
        Some(spare) => spare,
        None => Workspace::new(gpu)?,
    };
    // The padding aligns the first item.
    let words = (batch.chunk_count() * call.of.words).next_multiple_of(FIRST_BYTES / size_of::<u64>());
    words_of(gpu, &mut workspace.result, words + first_words)?;
    let slots = workspace.result.as_mut_ptr();
    // SAFETY: as the caller vouches; the slots are the workspace's, which is kept.
    let kernel = unsafe {
        if first_words > 0 {
            call.copy_first(gpu, &workspace.queue, slots.add(words))?;
        }
        workspace.queue.enqueue_batch(call, &batch, slots)?
    };
    Ok(RunningBatch { batch, workspace, kernel, words, first_words })
}

/// Returns the stream on a GPU. There should be one on each GPU of the call.
pub fn stream_of<'s>(streams: &'s [GpuStream], gpu: &Gpu) -> Result<&'s GpuStream, Error> {
    let found = streams.iter().find(|stream| stream.gpu() == gpu);
    found.ok_or_else(|| Error::DeviceMismatch { buffer: gpu.to_string(), device: names(streams) })
}

fn names(streams: &[GpuStream]) -> String {
    let names: Vec<_> = streams.iter().map(|stream| stream.gpu().to_string()).collect();
    names.join(", ")
}

/// Returns which streams are being captured.
fn captured(streams: &[GpuStream]) -> Result<Vec<bool>, Error> {
    streams.iter().map(|stream| stream.enter(|_, queue| Ok(queue.is_capturing))).collect()
}

/// Fails if any stream is being captured: the host would wait for the result.
fn refuse_capture(streams: &[GpuStream]) -> Result<(), Error> {
    if captured(streams)?.contains(&true) { Err(Error::Capture) } else { Ok(()) }
}

/// Makes each stream wait for the work that all have so far. The host does not wait.
///
/// If only some of the streams are being captured, it makes the others wait for these, with which they join
/// the capture; what they have so far is not part of it. Returns whether the streams are captured.
pub fn meet(streams: &[GpuStream]) -> Result<bool, Error> {
    let captured = captured(streams)?;
    let is_captured = captured.contains(&true);
    let mut given = Vec::with_capacity(streams.len());
    for (stream, &gives) in streams.iter().zip(&captured) {
        given.push(stream.enter(|gpu, queue| {
            if is_captured && !gives {
                return Ok(Vec::new());
            }
            // An event for each of the other streams: waiting takes the event.
            let event = || {
                let event = Event::new(EventFlags::DISABLE_TIMING)?;
                event.record(&queue.stream).map(|()| event)
            };
            let events: CudaResult<Vec<_>> = (1..streams.len()).map(|_| event()).collect();
            events.map_err(|error| gpu.failed("recording an event", error))
        })?);
    }
    for (index, stream) in streams.iter().enumerate() {
        let others = given.iter_mut().enumerate().filter(|&(other, _)| other != index);
        let events: Vec<_> = others.filter_map(|(_, events)| events.pop()).collect();
        stream.enter(|gpu, queue| {
            let mut waits = events.into_iter();
            waits
                .try_for_each(|event| queue.stream.wait_event(event, StreamWaitEventFlags::DEFAULT))
                .map_err(|error| gpu.failed("having a stream wait for another", error))
        })?;
    }
    Ok(is_captured)
}

/// Launches a reduction of items on several GPUs, each on its stream.
///
/// Each part of the launched work leaves the slots of the chunks that are returned for it. If the operator
/// looks at the first item, one more part leaves that.
///
/// # Safety
///
/// As for [`Gpu::reduce_shards`], until the launched work has been waited for.
pub unsafe fn launch_shards(
    streams: &[GpuStream],
    call: &ShardsCall,
) -> Result<(Launched, Vec<SlotOrder>), Error> {
    let batches = call.batches(false);
    call.shards.iter().try_for_each(|shard| stream_of(streams, shard.gpu).map(drop))?;
    let _turn = streams.first().map(GpuStream::turn).transpose()?;
    refuse_capture(streams)?;
    let copies = call.copies(&batches);
    if copies {
        meet(streams)?;
    }
    let mut launched = Vec::with_capacity(batches.len() + 1);
    for batch in &batches {
        let words = batch.chunk_count() * call.of.words;
        launched.push(stream_of(streams, batch.gpu)?.launched((words, slot::EMPTY), |_, queue, words| {
            // SAFETY: as the caller vouches; the words stay until the work has ended.
            unsafe { queue.enqueue_batch(call, batch, words) }
        })?);
    }
    if let Some(first) = call.first_comes_from() {
        let stream = stream_of(streams, first)?;
        launched.push(stream.launched((call.first_words(), slot::EMPTY), |gpu, queue, words| {
            // SAFETY: as above.
            unsafe { call.copy_first(gpu, queue, words).map(|()| None) }
        })?);
    }
    if copies {
        meet(streams)?;
    }
    Ok((Launched::of(launched), batches.iter().map(Batch::chunks).collect()))
}

/// Enqueues a reduction of items on several GPUs, each on its stream. The result goes to a place on one of
/// them.
///
/// # Safety
///
/// The items and the result's place stay until the streams have been waited for, and nothing else writes to
/// them until then. The call's types are those of its operator and the items.
pub unsafe fn enqueue_shards(
    streams: &[GpuStream],
    call: &ShardsCall,
    on: &'static Gpu,
    result: *mut (),
) -> Result<(), Error> {
    let home = stream_of(streams, on)?;
    let mut reach = true;
    for shard in call.shards {
        stream_of(streams, shard.gpu)?;
        reach &= shard.gpu.reaches(on)?;
    }
    let _turn = streams.first().map(GpuStream::turn).transpose()?;
    if captured(streams)?.contains(&true) {
        // The stream that has the slots may have to join the capture first.
        meet(streams)?;
    }
    let words = (call.plan.chunks + call.plan.groups().max(MERGING_BLOCKS)) as usize * call.of.words;
    let slots = home.enter(|gpu, queue| match reach {
        true => queue.slots_for(gpu, words),
        false => queue.host_slots_for(gpu, words),
    })?;
    let is_captured = meet(streams)?;
    let enqueued = call.assign().iter().try_for_each(|assigned| {
        let slots = slots.wrapping_add(assigned.chunks.start as usize * call.of.words);
        // SAFETY: as the caller vouches; the slots stay until the stream has ended, and are empty when the
        // work before is done.
        let enqueue = |gpu: &'static Gpu, queue: &mut Queue| unsafe {
            queue.enqueue_chunks(gpu, call, Some(assigned), slots, Target::none()).map(drop)
        };
        stream_of(streams, call.shards[assigned.share].gpu)?.enter(enqueue)
    });
    let enqueued = enqueued.and_then(|()| meet(streams)).and_then(|_| {
        let slots = slots.wrapping_add(call.plan.chunks as usize * call.of.words);
        // SAFETY: as the caller vouches; the slots before its own are filled.
        home.enter(|gpu, queue| unsafe {
            queue.enqueue_chunks(gpu, call, None, slots, Target::device(result)).map(drop)
        })?;
        // A capture ends in the stream where it began, which may be another.
        if is_captured { meet(streams).map(drop) } else { Ok(()) }
    });
    enqueued.inspect_err(|_| {
        // What is captured does not run.
        if is_captured {
            return;
        }
        // No launch takes the partial results that are in slots already.
        streams.iter().for_each(|stream| drop(stream.synchronize()));
        let _ = home.enter(|_, queue| {
            queue.forget_slots();
            Ok(())
        });
    })
}

/// Launches the reduction of each column of items on several GPUs: on one GPU, from a copy. It has no error
/// to report later.
///
/// # Safety
///
/// As for [`Gpu::reduce_shards`], until the launched work has been waited for; there is a place on that GPU
/// for each result.
pub unsafe fn launch_columns_of_shards(
    streams: &[GpuStream],
    shards: &[GpuShard],
    on: &'static Gpu,
    operation: Operation,
    columns: Columns,
    results: *mut c_void,
) -> Result<Launched, Error> {
    let _turn = streams.first().map(GpuStream::turn).transpose()?;
    let home = stream_of(streams, on)?;
    shards.iter().try_for_each(|shard| stream_of(streams, shard.gpu).map(drop))?;
    refuse_capture(streams)?;
    meet(streams)?;
    let part = home.launched((1, Cut::NOTHING), |gpu, queue, _| {
        // SAFETY: as the caller vouches.
        unsafe { queue.enqueue_gathered_columns(gpu, shards, operation, columns, results).map(Some) }
    })?;
    meet(streams)?;
    Ok(part.into())
}

/// As [`launch_columns_of_shards`], but enqueues.
///
/// # Safety
///
/// As for [`launch_columns_of_shards`], until the streams have been waited for.
pub unsafe fn enqueue_columns_of_shards(
    streams: &[GpuStream],
    shards: &[GpuShard],
    on: &'static Gpu,
    operation: Operation,
    columns: Columns,
    results: *mut c_void,
) -> Result<(), Error> {
    let _turn = streams.first().map(GpuStream::turn).transpose()?;
    let home = stream_of(streams, on)?;
    shards.iter().try_for_each(|shard| stream_of(streams, shard.gpu).map(drop))?;
    meet(streams)?;
    home.enter(|gpu, queue| {
        // SAFETY: as the caller vouches.
        unsafe { queue.enqueue_gathered_columns(gpu, shards, operation, columns, results).map(drop) }
    })?;
    meet(streams).map(drop)
}

impl Queue {
    /// Enqueues a copy of all items, and the reduction of each column.
    ///
    /// # Safety
    ///
    /// As for [`enqueue`](Self::enqueue).
    unsafe fn enqueue_gathered_columns(
        &mut self,
        gpu: &Gpu,
        shards: &[GpuShard],
        operation: Operation,
        columns: Columns,
        results: *mut c_void,
    ) -> Result<&'static Compiled, Error> {
        let failed = |error| gpu.failed("copying from device to device", error);
        let bytes_of =
            |array: usize, shard: &GpuShard| (shard.len as usize).saturating_mul(shard.arrays[array].1);
        let bytes = |array: usize| {
            area_bytes::<u8>(shards.iter().map(|shard| bytes_of(array, shard)).fold(0, usize::saturating_add))
        };
        let arrays = 0..shards[0].arrays.len();
        let mut place = self.copies_for(gpu, arrays.clone().map(bytes).fold(0, usize::saturating_add))?;
        let mut places = Vec::new();
        for array in arrays {
            let mut to = place;
            for shard in shards {
                // SAFETY: the area has room for all, one after the other; as the caller vouches.
                unsafe { copy(self, to, shard.arrays[array].0, bytes_of(array, shard)).map_err(failed)? };
                to += bytes_of(array, shard) as u64;
            }
            places.push(place);
            place += bytes(array) as u64;
        }
        let mut parameters = Parameters::NONE;
        places.iter().for_each(|place| parameters.push(place));
        // SAFETY: as the caller vouches.
        unsafe {
            let request = operation.with_parameters(parameters, Shape::Columns(columns), results);
            self.enqueue(gpu, &request, None)
        }
    }
}

impl GpuStream {
    /// Enqueues a reduction of segments, and a copy of the results, which have `bytes` bytes, to another
    /// device.
    ///
    /// # Safety
    ///
    /// As for [`enqueue`](Self::enqueue), but for the results; there is room for them.
    pub unsafe fn enqueue_to(&self, mut request: Request, bytes: usize, to: u64) -> Result<(), Error> {
        self.enter(|gpu, queue| {
            let area = queue.copies_for(gpu, bytes)?;
            request.results = without_provenance_mut(area as usize);
            // SAFETY: as the caller vouches; the area has room for the results.
            unsafe {
                queue.enqueue(gpu, &request, None)?;
                copy(queue, to, area, bytes)
                    .map_err(|error| gpu.failed("copying from device to device", error))
            }
        })
    }
}

impl Gpu {
    /// Copies bytes from any device or the host to this GPU's memory.
    ///
    /// # Safety
    ///
    /// Both places have `bytes` bytes, and nothing else uses them until the call returns.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            // SAFETY: as the caller vouches; the stream is waited for.
            unsafe { copy(queue, to, from, bytes) }
                .map_err(|error| self.failed("copying from device to device", error))?;
            queue.stream.synchronize().map_err(|error| self.failed("copying from device to device", error))
        })
    }

    /// Returns whether kernels of this GPU can access the library's memory on another. Enables peer access if
    /// possible.
    fn reaches(&self, other: &Self) -> Result<bool, Error> {
        if self == other {
            return Ok(true);
        }
        check_fork(self)?;
        let mut peers = lock(&self.peers);
        if let Some(&(_, reaches)) = peers.iter().find(|&&(peer, _)| peer == other.index) {
            return Ok(reaches);
        }
        let _entered = self.enter()?;
        let mut can = 0;
        // SAFETY: the devices are such, the context is one, and there is a place for the answer.
        let reaches = unsafe {
            let [device, peer] = [self, other].map(|gpu| gpu.index as i32);
            self.done("asking for peer access", sys::cuDeviceCanAccessPeer(&mut can, device, peer))?;
            can != 0
                && matches!(
                    sys::cuCtxEnablePeerAccess(other.raw_context(), 0),
                    CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                )
        };
        if reaches {
            self.expose();
            other.expose();
        }
        peers.push((other.index, reaches));
        Ok(reaches)
    }
}
