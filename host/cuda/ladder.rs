//! Launches the classic kernels repeatedly until one value or one list is left, without copies in between.

use super::modules::Grid;
use super::queue::Handle;
use super::stream::GpuStream;
use super::{Gpu, Memory};
use crate::buffer::Part;
use crate::merge::Merged;
use crate::{Element, Error, Kernels, LadderElement, LadderOp};
use bytemuck::Zeroable;
use cust::event::{Event, EventFlags};
use cust::stream::Stream;
use gpu_reduce_kernels::ladder::{ArgMin, Kernel, MERGE_BLOCK, Merge, Pass, Rung};
use std::mem;
use std::num::NonZeroU32;
use std::ptr::null;
use std::time::Duration;

/// Reduces one or more elements by kernel `K`, `repeats` times. Returns the result and the time of one
/// reduction.
pub fn reduce_with<K: Kernel, O: LadderOp<T>, T: LadderElement>(
    elements: Part<T>,
    block: u32,
    repeats: NonZeroU32,
) -> Result<(O::Output, Duration), Error> {
    let (gpu, op) = (elements.gpu, O::default());
    let len = elements.len as u64;
    // Atomics start from the identity: each repeat has its own accumulator, so nothing is reset in between.
    // The others leave at most a 32nd of their input, so all later launches together need no more than the
    // first.
    let places = if K::ATOMIC { repeats.get() } else { 2 * K::blocks(len, block) } as usize;
    let room = places.saturating_mul(size_of::<O::Accumulator>());
    let mut partials = Memory::new(gpu, room)?;
    if K::ATOMIC {
        partials.write(0, bytemuck::cast_slice(&vec![op.identity(); places]))?;
    }
    let first: *mut O::Accumulator = pointer(&partials, 0);
    let mut last = first;
    let time = gpu.with_workspace(|workspace| {
        let stream = &workspace.queue.stream;
        time(gpu, stream, repeats, &mut |repeat| {
            let output = first.wrapping_add(if K::ATOMIC { repeat as usize } else { 0 });
            // SAFETY: the input holds `len` elements, and `output` has a place for each block's partial
            // result.
            last = unsafe { enqueue::<K, O, T>(gpu, stream, elements.pointer(), len, output, block)? };
            Ok(())
        })
    })?;
    let mut all = op.identity();
    let offset = last.addr() - first.addr();
    partials.read(offset, bytemuck::bytes_of_mut(&mut all))?;
    Ok((op.finish(all, len).ok_or_else(|| Error::empty(&op))?, time))
}

/// Enqueues the launches of a reduction, with the partial results at `output`. Returns the address of the
/// result.
///
/// # Safety
///
/// `input` holds `len` elements, `output` has room for the partial results of all launches, and both stay
/// until the stream has been waited for.
unsafe fn enqueue<K: Kernel, O: LadderOp<T>, T: LadderElement>(
    gpu: &Gpu,
    stream: &Stream,
    input: *const T,
    len: u64,
    output: *mut O::Accumulator,
    block: u32,
) -> Result<*mut O::Accumulator, Error> {
    let grid = |len| Grid { blocks: K::blocks(len, block), block, resident: block };
    let Grid { mut blocks, .. } = grid(len);
    // SAFETY: the caller's contract; the input of a later launch is the output of the one before.
    unsafe {
        let pass = Pass { input, len, output };
        gpu.launch::<Rung<K, O, T, O::Accumulator>>(Kernels::NONE, stream, grid(len), &pass)?;
        let mut last = output;
        while !K::ATOMIC && blocks > 1 {
            let len = u64::from(blocks);
            let output = last.add(blocks as usize);
            let pass = Pass { input: last.cast_const(), len, output };
            gpu.launch::<Rung<K, O, O::Accumulator, O::Accumulator>>(
                Kernels::NONE,
                stream,
                grid(len),
                &pass,
            )?;
            Grid { blocks, .. } = grid(len);
            last = output;
        }
        Ok(last)
    }
}

/// Returns the index of the least of one or more elements, and the element.
pub fn argmin_by_halving<T: LadderElement>(elements: Part<T>, block: u32) -> Result<(usize, T), Error> {
    let gpu = elements.gpu;
    let mut len = elements.len as u64;
    let size = size_of::<T::Key>();
    let room = 2 * len.div_ceil(u64::from(block)) as usize;
    let places = Memory::new(gpu, room * (8 + size))?;
    let (mut indices_at, mut keys_at) = (0, room * 8);
    gpu.with_workspace(|workspace| {
        let stream = &workspace.queue.stream;
        let launch =
            |first: bool, len: u64, indices: *const u64, keys: *const T::Key, outputs: (usize, usize)| {
                let grid = Grid { blocks: len.div_ceil(u64::from(block)) as u32, block, resident: block };
                let (indices_out, keys_out) = (pointer(&places, outputs.0), pointer(&places, outputs.1));
                // SAFETY: the inputs hold `len` elements or keys, and the outputs have room for each block's.
                unsafe {
                    if first {
                        let arguments =
                            ArgMin { input: elements.pointer(), indices, len, keys_out, indices_out };
                        gpu.launch::<ArgMin<T>>(Kernels::NONE, stream, grid, &arguments)
                    } else {
                        let keys_out = keys_out.cast();
                        let arguments =
                            ArgMin::<T::Key> { input: keys.cast(), indices, len, keys_out, indices_out };
                        gpu.launch::<ArgMin<T::Key>>(Kernels::NONE, stream, grid, &arguments)
                    }
                }
            };
        let mut kernel = launch(true, len, null(), null(), (indices_at, keys_at))?;
        loop {
            let blocks = len.div_ceil(u64::from(block));
            if blocks == 1 {
                return gpu.launched(kernel, stream.synchronize());
            }
            let (indices, keys) = (pointer(&places, indices_at), pointer(&places, keys_at));
            indices_at += blocks as usize * 8;
            keys_at += blocks as usize * size;
            len = blocks;
            kernel = launch(false, len, indices, keys, (indices_at, keys_at))?;
        }
    })?;
    let (mut index, mut key) = (0u64, T::Key::zeroed());
    places.read(indices_at, bytemuck::bytes_of_mut(&mut index))?;
    places.read(keys_at, bytemuck::bytes_of_mut(&mut key))?;
    Ok((index as usize, T::from_key(key)))
}

/// Calls `enqueue` for each repeat, waits for the stream, and returns the time of one. The context must be
/// entered.
fn time(
    gpu: &Gpu,
    stream: &Stream,
    repeats: NonZeroU32,
    enqueue: &mut dyn FnMut(u32) -> Result<(), Error>,
) -> Result<Duration, Error> {
    let failed = |error| gpu.failed("timing launches", error);
    let [start, end] = [(); 2].map(|()| Event::new(EventFlags::DEFAULT).map_err(failed));
    let (start, end) = (start?, end?);
    start.record(stream).map_err(failed)?;
    (0..repeats.get()).try_for_each(enqueue)?;
    end.record(stream).and_then(|()| end.synchronize()).map_err(failed)?;
    let milliseconds = end.elapsed_time_f32(&start).map_err(failed)?;
    Ok(Duration::from_secs_f32(milliseconds / 1e3) / repeats.get())
}

impl GpuStream {
    /// Calls `enqueue` for each repeat, waits for this stream, and returns the time of one.
    pub fn time(
        &self,
        repeats: NonZeroU32,
        mut enqueue: impl FnMut() -> Result<(), Error>,
    ) -> Result<Duration, Error> {
        // SAFETY: the stream lives as long as `self`.
        let stream = unsafe { Handle::of(self.raw) };
        let gpu = self.gpu();
        let _entered = gpu.enter()?;
        time(gpu, &stream, repeats, &mut |_| enqueue())
    }
}

/// The address of byte `start`.
fn pointer<V>(memory: &Memory, start: usize) -> *mut V {
    std::ptr::without_provenance_mut(memory.address(start) as usize)
}

/// Merges sorted lists.
pub fn merge<T: Element>(gpu: &'static Gpu, lists: &[&[T]]) -> Result<Merged<T>, Error> {
    let mut merged = Merged { values: lists.concat(), lists: Vec::new() };
    merged.lists.resize(merged.values.len(), 0);
    if merged.values.is_empty() {
        return Ok(merged);
    }
    let ends = lists.iter().scan(0, |end, list| {
        *end += list.len() as u64;
        Some(*end)
    });
    let bounds: Vec<u64> = std::iter::once(0).chain(ends).collect();
    let memory_for = |bytes: &[u8]| Memory::new(gpu, bytes.len());
    let (values, numbers) = (bytemuck::cast_slice(&merged.values), bytemuck::cast_slice(&merged.lists));
    // Each launch reads one of two memories and writes the other.
    let mut values_at = [memory_for(values)?, memory_for(values)?];
    let numbers_at = [memory_for(numbers)?, memory_for(numbers)?];
    values_at[0].write(0, values)?;
    let mut bounds_at = memory_for(bytemuck::cast_slice(&bounds))?;
    bounds_at.write(0, bytemuck::cast_slice(&bounds))?;

    let (mut from, mut to) = (0, 1);
    let (mut width, lists) = (1, lists.len() as u64);
    gpu.with_workspace(|workspace| {
        let stream = &workspace.queue.stream;
        let kernel = loop {
            let blocks = lists.div_ceil(width * u64::from(MERGE_BLOCK)) as u32;
            let arguments = Merge::<T> {
                input: pointer(&values_at[from], 0),
                origins: if width == 1 { null() } else { pointer(&numbers_at[from], 0) },
                bounds: pointer(&bounds_at, 0),
                lists,
                width,
                output: pointer(&values_at[to], 0),
                origins_out: pointer(&numbers_at[to], 0),
            };
            // SAFETY: the memories hold all elements and one bound more than lists, and live until the stream
            // has been waited for.
            let kernel = unsafe {
                let grid = Grid { blocks, block: MERGE_BLOCK, resident: MERGE_BLOCK };
                gpu.launch::<Merge<T>>(Kernels::NONE, stream, grid, &arguments)?
            };
            if blocks == 1 {
                break kernel;
            }
            width *= u64::from(MERGE_BLOCK);
            mem::swap(&mut from, &mut to);
        };
        gpu.launched(kernel, stream.synchronize())
    })?;
    values_at[to].read(0, bytemuck::cast_slice_mut(&mut merged.values))?;
    numbers_at[to].read(0, bytemuck::cast_slice_mut(&mut merged.lists))?;
    Ok(merged)
}
