//! One reduction by several GPUs: each folds the chunks that lie on it, and a chunk that lies on several is folded by the one that has most of it, from a copy.
//!
//! What chunks come to goes to the host where that waits for the result. Where it is left on a device, it goes there, by peer access or through the host; and when all is there,
//! a launch of one block, without items, takes it.

use super::driver::check_fork;
use super::modules::{Compiled, Grid, no_kernel};
use super::pending::Launched;
use super::queue::Queue;
use super::scratch::{Area, area_bytes, largest, words_of};
use super::stream::{GpuStream, Workspace};
use super::{Gpu, lock};
use crate::request::{Operation, Request, Shape, Types};
use crate::{Error, Plan};
use cust::error::{CudaError, CudaResult};
use cust::event::{Event, EventFlags};
use cust::stream::StreamWaitEventFlags;
use cust::sys::{self, CUresult};
use gpu_reduce_kernels::columns::Columns;
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::reduce::{self, Target};
use gpu_reduce_kernels::segments::Cut;
use gpu_reduce_kernels::slot;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::without_provenance_mut;
use std::sync::atomic::AtomicU64;

/// Items on one GPU: part of those that reduce together.
pub struct Shard {
    pub gpu: &'static Gpu,
    pub len: u64,
    /// Where each of the arrays begins that have them, and the bytes of an element.
    pub arrays: Vec<(u64, usize)>,
}

/// A reduction of items on several GPUs, or of a part of them.
pub struct ShardsCall<'a> {
    pub of: &'static Types,
    /// Each has items.
    pub shards: &'a [Shard],
    /// Where they begin, which is where a chunk does.
    pub start: u64,
    /// Where the whole's first item is, and its bytes, in each array; and on which GPU, if on one.
    pub first: &'a [(u64, usize)],
    pub first_gpu: Option<&'static Gpu>,
    /// That of the whole.
    pub plan: Plan,
    pub block: u32,
    pub op: *const c_void,
}

/// Chunks that one GPU folds, by one launch.
struct Job {
    /// Whose GPU.
    shard: usize,
    /// Chunks before these, and how many these are.
    before: u32,
    chunks: u32,
    items: Range<u64>,
    /// Where the shard begins that has them all.
    shard_start: Option<u64>,
}

/// What chunks came to: the words of their slots.
pub struct Slots<'a> {
    /// Chunks before.
    pub before: u32,
    pub words: &'a [u64],
}

/// Jobs of one GPU, one after the other, whose slots follow one another.
pub struct Group {
    gpu: &'static Gpu,
    jobs: Vec<Job>,
}

impl Group {
    /// Chunks of all jobs.
    fn chunks(&self) -> usize {
        self.jobs.iter().map(|job| job.chunks as usize).sum()
    }

    /// Chunks before those of each job, and how many these are.
    pub fn chunks_of_jobs(&self) -> Vec<(u32, usize)> {
        self.jobs.iter().map(|job| (job.before, job.chunks as usize)).collect()
    }
}

/// What the chunks of a group came to, with slots of so many words.
pub fn slots_of<'a>(jobs: &[(u32, usize)], mut words: &'a [u64], of_slot: usize) -> Vec<Slots<'a>> {
    let mut slots = Vec::with_capacity(jobs.len());
    for &(before, chunks) in jobs {
        let (of_job, others) = words.split_at(chunks * of_slot);
        slots.push(Slots { before, words: of_job });
        words = others;
    }
    slots
}

/// Bytes from one array's first item on the host to the next one's: items have an alignment of up to 64.
pub const FIRST_BYTES: usize = 64;

impl ShardsCall<'_> {
    /// What each GPU does, and by itself, where this is asked, what it does from copies, so that it need not come after: one chunk takes one block longer than its share of
    /// the others.
    fn groups(&self, copies_apart: bool) -> Vec<Group> {
        let mut groups = Vec::<Group>::new();
        for job in self.jobs() {
            let gpu = self.shards[job.shard].gpu;
            let is_alike = |group: &&mut Group| {
                let is_copy = |job: &Job| job.shard_start.is_none();
                group.gpu == gpu && !(copies_apart && is_copy(&job) != is_copy(&group.jobs[0]))
            };
            match groups.iter_mut().find(is_alike) {
                Some(group) => group.jobs.push(job),
                None => groups.push(Group { gpu, jobs: vec![job] }),
            }
        }
        groups
    }

    /// What is to be done, chunks from copies first.
    fn jobs(&self) -> Vec<Job> {
        let Plan { len, chunk, chunks, .. } = self.plan;
        let (mut copied, mut jobs) = (Vec::<Job>::new(), Vec::new());
        let mut start = self.start;
        for (index, shard) in self.shards.iter().enumerate() {
            let end = start + shard.len;
            let before = start.div_ceil(chunk) as u32;
            let after = if end == len { chunks } else { (end / chunk) as u32 };
            if before < after {
                let items = u64::from(before) * chunk..(u64::from(after) * chunk).min(len);
                jobs.push(Job {
                    shard: index,
                    before,
                    chunks: after - before,
                    items,
                    shard_start: Some(start),
                });
            }
            if end < len && !end.is_multiple_of(chunk) {
                let before = (end / chunk) as u32;
                if copied.last().is_none_or(|job| job.before != before) {
                    copied.push(self.of_copy(before));
                }
            }
            start = end;
        }
        copied.extend(jobs);
        copied
    }

    /// A chunk that lies on several GPUs, for the one that has most of it.
    fn of_copy(&self, chunk: u32) -> Job {
        let items = self.plan.range(chunk);
        let parts = parts(self.shards, &(items.start - self.start..items.end - self.start));
        let most = parts.iter().rev().max_by_key(|(_, part)| part.end - part.start);
        Job { shard: most.map_or(0, |&(shard, _)| shard), before: chunk, chunks: 1, items, shard_start: None }
    }

    /// Whether items travel between devices, so that streams have to wait for each other.
    fn copies(&self, groups: &[Group]) -> bool {
        let mut jobs = groups.iter().flat_map(|group| &group.jobs);
        self.of.looks_at_first || jobs.any(|job| job.shard_start.is_none())
    }

    /// The GPU where the first item is, where the operator looks at it.
    fn first_comes_from(&self) -> Option<&'static Gpu> {
        self.first_gpu.filter(|_| self.of.looks_at_first)
    }

    /// Words of the host's memory for the first item.
    fn first_words(&self) -> usize {
        let arrays = if self.first_comes_from().is_some() { self.first } else { &[] };
        arrays.iter().map(|&(_, bytes)| bytes.next_multiple_of(FIRST_BYTES) / size_of::<u64>()).sum()
    }

    /// Enqueues a copy of the first item to the host, of each array to [`FIRST_BYTES`] after the one before, or more.
    ///
    /// # Safety
    ///
    /// There is room for it, and all stays until the stream has been waited for; the context is entered.
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

/// Which items of each shard are in a range of all: the shard, and a range from its own start.
pub fn parts(shards: &[Shard], items: &Range<u64>) -> Vec<(usize, Range<u64>)> {
    let mut start = 0;
    let mut parts = Vec::new();
    for (index, shard) in shards.iter().enumerate() {
        let part = items.start.max(start)..items.end.min(start + shard.len);
        if !part.is_empty() {
            parts.push((index, part.start - start..part.end - start));
        }
        start += shard.len;
    }
    parts
}

/// Enqueues a copy, from wherever to wherever.
///
/// # Safety
///
/// So many bytes are there, on both sides, and stay until the stream has been waited for; nothing else uses them meanwhile, the context is entered.
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

/// Blocks of the launch that takes what all chunks came to: the last of several blocks does.
const TAKERS: u32 = 2;

impl Queue {
    /// An area for so many bytes.
    fn copies_for(&mut self, gpu: &Gpu, bytes: usize) -> Result<u64, Error> {
        let words = bytes.div_ceil(size_of::<u64>());
        let source = &mut self.scratch.source;
        let area = largest(
            &mut self.scratch.copies,
            self.is_capturing,
            |area: &Area<u64>| words <= area.len(),
            |_| source.area(gpu, words, words.next_power_of_two()),
        )?;
        Ok(area.as_device_ptr().as_raw())
    }

    /// Where each array's items of a job are, and each array's first item of all: where they lie, or copied to where the GPU has them.
    ///
    /// # Safety
    ///
    /// As of [`enqueue_job`](Self::enqueue_job).
    unsafe fn arrays_of(
        &mut self,
        gpu: &Gpu,
        call: &ShardsCall,
        job: Option<&Job>,
    ) -> Result<(Vec<u64>, Vec<u64>), Error> {
        let failed = |error| gpu.failed("copying from device to device", error);
        let is_here = call.first_gpu == Some(gpu);
        let copies_first = call.of.looks_at_first && !is_here;
        let items = match job {
            Some(job) if job.shard_start.is_none() => job.items.clone(),
            _ => 0..0,
        };
        let len = (items.end - items.start) as usize;
        let of_items = |&(_, bytes): &(u64, usize)| area_bytes::<u8>(len.saturating_mul(bytes));
        let of_first = |&(_, bytes): &(u64, usize)| if copies_first { area_bytes::<u8>(bytes) } else { 0 };
        let all = call.first.iter().map(|array| of_items(array).saturating_add(of_first(array)));
        let bytes = all.fold(0, usize::saturating_add);
        let mut place = if bytes > 0 { self.copies_for(gpu, bytes)? } else { 0 };
        let (mut of_job, mut of_all) = (Vec::new(), Vec::new());
        for (index, array) in call.first.iter().enumerate() {
            let bytes = array.1;
            let at = match job {
                Some(&Job { shard, shard_start: Some(start), ref items, .. }) => {
                    call.shards[shard].arrays[index].0 + (items.start - start) * bytes as u64
                }
                _ => place,
            };
            if len > 0 {
                let mut to = place;
                for (shard, part) in parts(call.shards, &(items.start - call.start..items.end - call.start)) {
                    let from = call.shards[shard].arrays[index].0 + part.start * bytes as u64;
                    let bytes = (part.end - part.start) as usize * bytes;
                    // SAFETY: the area has room for the parts one after the other; as the caller vouches.
                    unsafe { copy(self, to, from, bytes).map_err(failed)? };
                    to += bytes as u64;
                }
                place += of_items(array) as u64;
            }
            of_job.push(at);
            if copies_first {
                // SAFETY: as above.
                unsafe { copy(self, place, array.0, bytes).map_err(failed)? };
                of_all.push(place);
                place += of_first(array) as u64;
            } else {
                // Where nobody looks at it, any place will do.
                of_all.push(if is_here { array.0 } else { at });
            }
        }
        Ok((of_job, of_all))
    }

    /// Enqueues a launch of some chunks, or of none, which takes what chunks came to.
    ///
    /// # Safety
    ///
    /// The items stay until the stream has been waited for, and so do the slots, which are empty, and the result's place; nothing else writes to them meanwhile. The
    /// context is entered.
    unsafe fn enqueue_chunks(
        &mut self,
        gpu: &Gpu,
        call: &ShardsCall,
        job: Option<&Job>,
        slots: *mut u64,
        result: Target<()>,
    ) -> Result<&'static Compiled, Error> {
        let &ShardsCall { of, plan, block, op, .. } = call;
        // SAFETY: as the caller vouches.
        let (arrays, firsts) = unsafe { self.arrays_of(gpu, call, job)? };
        let (mut parameters, mut of_first) = (Parameters::NONE, Parameters::NONE);
        arrays.iter().for_each(|address| parameters.push(address));
        firsts.iter().for_each(|address| of_first.push(address));
        let (len, chunk, before, blocks) = match job {
            Some(job) => (job.items.end - job.items.start, plan.chunk as u32, job.before, job.chunks),
            None => (plan.len, 0, plan.chunks, TAKERS),
        };
        reduce::push_rest(&mut parameters, (&chunk, &before, &len, &slots), &result, &of_first, op);
        let grid = Grid { blocks, block, resident: block };
        // SAFETY: as the caller vouches; the parameters are those that the kernel, which is one for the call's types, takes.
        let kernel = unsafe { gpu.launch_if_compiled(of.kernel, of.own, &self.stream, grid, &parameters) }?;
        kernel.ok_or_else(|| no_kernel((of.name)(), block))
    }

    /// Enqueues a job. `slots` are those of its own chunks.
    ///
    /// # Safety
    ///
    /// As of [`enqueue_chunks`](Self::enqueue_chunks).
    unsafe fn enqueue_job(
        &mut self,
        gpu: &Gpu,
        call: &ShardsCall,
        job: &Job,
        slots: *mut u64,
    ) -> Result<&'static Compiled, Error> {
        // SAFETY: as the caller vouches.
        unsafe { self.enqueue_chunks(gpu, call, Some(job), slots, Target::none()) }
    }

    /// Enqueues a group of jobs, of which there are some, with slots that follow one another. Returns the kernel.
    ///
    /// # Safety
    ///
    /// As of [`enqueue_chunks`](Self::enqueue_chunks).
    unsafe fn enqueue_group(
        &mut self,
        call: &ShardsCall,
        group: &Group,
        mut slots: *mut u64,
    ) -> Result<Option<&'static Compiled>, Error> {
        let mut kernel = None;
        for job in &group.jobs {
            // SAFETY: as the caller vouches.
            kernel = Some(unsafe { self.enqueue_job(group.gpu, call, job, slots)? });
            slots = slots.wrapping_add(job.chunks as usize * call.of.words);
        }
        Ok(kernel)
    }
}

/// A group of jobs that runs, on a workspace of its own.
struct Running {
    gpu: &'static Gpu,
    workspace: Workspace,
    kernel: Option<&'static Compiled>,
    /// Words of its slots, one for each of so many chunks, and of the first item, which comes after them.
    chunks: usize,
    words: usize,
    first_words: usize,
}

impl Running {
    /// Waits for what its chunks came to: for a while by looking, then by the driver.
    fn wait(&mut self, of: &Types) -> Result<(), Error> {
        const LOOKS: u32 = 2000;
        let Self { gpu, workspace, kernel, chunks, .. } = self;
        // SAFETY: the memory has so many words, aligned; meanwhile both sides use them by atomic accesses alone.
        let slots = unsafe {
            let words = workspace.result.as_slice().as_ptr().cast::<AtomicU64>();
            std::slice::from_raw_parts(words, *chunks * of.words)
        };
        let launched = |result| kernel.map_or(Ok(()), |kernel| gpu.launched(kernel, result));
        let mut empty = slots.chunks(of.words).peekable();
        let mut looks = 0;
        while let Some(slot) = empty.peek() {
            if (of.is_full)(slot) {
                empty.next();
            } else if looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
            } else {
                let _entered = gpu.enter()?;
                launched(workspace.queue.stream.synchronize())?;
                if !empty.all(|slot| (of.is_full)(slot)) {
                    return launched(Err(CudaError::LaunchFailed));
                }
                break;
            }
        }
        Ok(())
    }
}

impl Gpu {
    /// Reduces items on several GPUs, of which this is one, and calls `finish` with what chunks came to, and with the first item, where the operator looks at it.
    ///
    /// # Safety
    ///
    /// The items stay as they are meanwhile, and the call has the types of its operator and the items.
    pub unsafe fn reduce_shards(
        &self,
        call: &ShardsCall,
        finish: &mut dyn FnMut(&[Slots], &[u64]),
    ) -> Result<(), Error> {
        let groups = call.groups(true);
        let mut running = Vec::with_capacity(groups.len());
        let launched = groups.iter().enumerate().try_for_each(|(index, group)| {
            let first_words = if index == 0 { call.first_words() } else { 0 };
            // SAFETY: as the caller vouches; all is waited for below.
            unsafe { start(call, group, first_words) }.map(|group| running.push(group))
        });
        let waited = running.iter_mut().map(|group| group.wait(call.of)).fold(launched, Result::and);
        if let Err(error) = waited {
            // What still runs has ended when its memory is freed.
            for Running { gpu, workspace, .. } in running {
                let entered = gpu.enter();
                let _ = workspace.queue.stream.synchronize();
                drop((workspace, entered));
            }
            return Err(error);
        }
        let mut first: &[u64] = &[];
        let mut slots = Vec::new();
        for (group, running) in groups.iter().zip(&running) {
            let (words, others) = running.workspace.result.as_slice().split_at(running.words);
            slots.extend(slots_of(&group.chunks_of_jobs(), words, call.of.words));
            if running.first_words > 0 {
                first = &others[..running.first_words];
            }
        }
        finish(&slots, first);
        for Running { gpu, mut workspace, words, first_words, .. } in running {
            workspace.result.as_mut_slice()[..words + first_words].fill(slot::EMPTY);
            lock(&gpu.workspaces).push(workspace);
        }
        Ok(())
    }
}

/// Starts a group of jobs, on a workspace of its own.
///
/// # Safety
///
/// As of [`Gpu::reduce_shards`], until it has been waited for.
unsafe fn start(call: &ShardsCall, group: &Group, first_words: usize) -> Result<Running, Error> {
    let gpu = group.gpu;
    let _entered = gpu.enter()?;
    let spare = lock(&gpu.workspaces).pop();
    let mut workspace = match spare {
        Some(spare) => spare,
        None => Workspace::new(gpu)?,
    };
    // The first item has its alignment.
    let chunks = group.chunks();
    let words = (chunks * call.of.words).next_multiple_of(FIRST_BYTES / size_of::<u64>());
    words_of(gpu, &mut workspace.result, words + first_words)?;
    let slots = workspace.result.as_mut_ptr();
    // SAFETY: as the caller vouches; the slots are the workspace's, which is kept.
    let kernel = unsafe {
        if first_words > 0 {
            call.copy_first(gpu, &workspace.queue, slots.add(words))?;
        }
        workspace.queue.enqueue_group(call, group, slots)?
    };
    Ok(Running { gpu, workspace, kernel, chunks, words, first_words })
}

/// The stream of a GPU among some, of which there is one for each GPU of the call's.
pub fn stream_of<'s>(streams: &'s [GpuStream], gpu: &Gpu) -> Result<&'s GpuStream, Error> {
    let found = streams.iter().find(|stream| stream.gpu() == gpu);
    found.ok_or_else(|| Error::DeviceMismatch { buffer: gpu.to_string(), device: names(streams) })
}

fn names(streams: &[GpuStream]) -> String {
    let names: Vec<_> = streams.iter().map(|stream| stream.gpu().to_string()).collect();
    names.join(", ")
}

/// Has each stream come after what all were given so far. The host waits for nothing.
pub fn meet(streams: &[GpuStream]) -> Result<(), Error> {
    let mut given = Vec::with_capacity(streams.len());
    for stream in streams {
        given.push(stream.enter(|gpu, queue| {
            if queue.is_capturing {
                return Err(Error::Capture);
            }
            // An event for each that waits, as who waits takes it.
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
    Ok(())
}

/// Launches a reduction of items on several GPUs, each on its stream of these. What comes of it are the slots of each group that is returned, and last, where the operator looks
/// at it, the first item.
///
/// # Safety
///
/// As of [`Gpu::reduce_shards`], until what is returned has been waited for.
pub unsafe fn launch_shards(
    streams: &[GpuStream],
    call: &ShardsCall,
) -> Result<(Launched, Vec<Group>), Error> {
    let groups = call.groups(false);
    call.shards.iter().try_for_each(|shard| stream_of(streams, shard.gpu).map(drop))?;
    let _turn = streams.first().map(GpuStream::turn).transpose()?;
    let copies = call.copies(&groups);
    if copies {
        meet(streams)?;
    }
    let mut launched = Vec::with_capacity(groups.len() + 1);
    for group in &groups {
        let words = group.chunks() * call.of.words;
        launched.push(stream_of(streams, group.gpu)?.launched((words, slot::EMPTY), |_, queue, words| {
            // SAFETY: as the caller vouches; the words stay until the work has ended.
            unsafe { queue.enqueue_group(call, group, words) }
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
    Ok((Launched::of(launched), groups))
}

/// Enqueues a reduction of items on several GPUs, each on its stream of these, and leaves its result on one of them.
///
/// # Safety
///
/// The items and the result's place stay until the streams have been waited for, and nothing else writes to them meanwhile; the call has the types of its operator
/// and the items.
pub unsafe fn enqueue_shards(
    streams: &[GpuStream],
    call: &ShardsCall,
    on: &'static Gpu,
    result: *mut (),
) -> Result<(), Error> {
    let jobs = call.jobs();
    let home = stream_of(streams, on)?;
    let mut reach = true;
    for shard in call.shards {
        stream_of(streams, shard.gpu)?;
        reach &= shard.gpu.reaches(on)?;
    }
    let _turn = streams.first().map(GpuStream::turn).transpose()?;
    let words = (call.plan.chunks + TAKERS) as usize * call.of.words;
    let slots = home.enter(|gpu, queue| match () {
        () if queue.is_capturing => Err(Error::Capture),
        () if reach => queue.slots_for(gpu, words),
        () => queue.host_slots_for(gpu, words),
    })?;
    meet(streams)?;
    let enqueued = jobs.iter().try_for_each(|job| {
        let slots = slots.wrapping_add(job.before as usize * call.of.words);
        // SAFETY: as the caller vouches; the slots stay until the stream has ended, and are empty when what it was given before is done.
        let enqueue = |gpu: &'static Gpu, queue: &mut Queue| unsafe {
            queue.enqueue_job(gpu, call, job, slots).map(drop)
        };
        stream_of(streams, call.shards[job.shard].gpu)?.enter(enqueue)
    });
    let enqueued = enqueued.and_then(|()| meet(streams)).and_then(|()| {
        let slots = slots.wrapping_add(call.plan.chunks as usize * call.of.words);
        // SAFETY: as the caller vouches; something comes to each slot before its own.
        home.enter(|gpu, queue| unsafe {
            queue.enqueue_chunks(gpu, call, None, slots, Target::device(result)).map(drop)
        })
    });
    enqueued.inspect_err(|_| {
        // What some have put into slots, nobody takes.
        streams.iter().for_each(|stream| drop(stream.synchronize()));
        let _ = home.enter(|_, queue| {
            queue.forget_slots();
            Ok(())
        });
    })
}

/// Launches the reduction of each column of items that lie on several GPUs, on one, from a copy; nothing can be wrong with them.
///
/// # Safety
///
/// As of [`Gpu::reduce_shards`], until what is returned has been waited for; there is a place on that GPU for each result.
pub unsafe fn launch_columns_of_shards(
    streams: &[GpuStream],
    shards: &[Shard],
    on: &'static Gpu,
    operation: Operation,
    columns: Columns,
    results: *mut c_void,
) -> Result<Launched, Error> {
    let _turn = streams.first().map(GpuStream::turn).transpose()?;
    let home = stream_of(streams, on)?;
    shards.iter().try_for_each(|shard| stream_of(streams, shard.gpu).map(drop))?;
    meet(streams)?;
    let part = home.launched((1, Cut::NOTHING), |gpu, queue, _| {
        // SAFETY: as the caller vouches.
        unsafe { queue.enqueue_gathered_columns(gpu, shards, operation, columns, results).map(Some) }
    })?;
    meet(streams)?;
    Ok(part.into())
}

/// Enqueues the same.
///
/// # Safety
///
/// As there, until the streams have been waited for.
pub unsafe fn enqueue_columns_of_shards(
    streams: &[GpuStream],
    shards: &[Shard],
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
    meet(streams)
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
        shards: &[Shard],
        operation: Operation,
        columns: Columns,
        results: *mut c_void,
    ) -> Result<&'static Compiled, Error> {
        let failed = |error| gpu.failed("copying from device to device", error);
        let bytes_of =
            |array: usize, shard: &Shard| (shard.len as usize).saturating_mul(shard.arrays[array].1);
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
    /// Enqueues the reduction of each of some segments, whose results, of so many bytes, are copied to another device from here.
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
    /// Copies bytes from wherever to this GPU's memory.
    ///
    /// # Safety
    ///
    /// So many are there, on both sides, and nothing else uses them meanwhile.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            // SAFETY: as the caller vouches; the stream is waited for.
            unsafe { copy(queue, to, from, bytes) }
                .map_err(|error| self.failed("copying from device to device", error))?;
            queue.stream.synchronize().map_err(|error| self.failed("copying from device to device", error))
        })
    }

    /// Whether kernels of this GPU reach what the library allocates on another, which they are made to.
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
        peers.push((other.index, reaches));
        Ok(reaches)
    }
}
