//! Launches of the classic kernels, repeated until one value, or one list, is left; nothing is copied between them.

use super::{Gpu, Memory, Workspace, argument, check_compiled};
use crate::merge::Merged;
use crate::{Element, Error, LadderElement, LadderOp, Min, Op};
use bytemuck::Zeroable;
use cust::event::{Event, EventFlags};
use cust::memory::AsyncCopyDestination;
use gpu_reduce_kernels::ladder::{ArgMin, Kernel, MERGE_BLOCK, Merge};
use std::mem;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// What the launches of a kernel of the ladder need, with one operator, on one type.
struct Rung {
    /// The kernel's names: over elements, in the first launch, and over accumulators, in later ones.
    names: [String; 2],
    atomic: bool,
    blocks: fn(len: u64, block: u32) -> u32,
    block: u32,
}

/// A kernel's name, as `sequential_sum_f32_256`.
fn name<K: Kernel>(op: &str, element: &str, block: u32) -> String {
    format!("{}_{op}_{element}_{block}", K::NAME)
}

impl Rung {
    /// Enqueues the launches of a reduction of the input at an address and of a length, whose partial results, of `size` bytes,
    /// go to `output` and on; returns where the last one will lie.
    fn enqueue(
        &self,
        gpu: &Gpu,
        workspace: &Workspace,
        (mut input, mut len): (u64, u64),
        mut output: u64,
        size: usize,
    ) -> Result<u64, Error> {
        let mut name = &self.names[0];
        loop {
            let blocks = (self.blocks)(len, self.block);
            let arguments = [argument(&input), argument(&len), argument(&output)];
            // SAFETY: the arguments are those of the kernel (`ladder::Pass`): `input` holds `len` elements, and the
            // workspace, which is this reduction's alone, has room for an accumulator from each block.
            unsafe { gpu.launch(&workspace.stream, name, blocks, self.block, &arguments)? };
            if self.atomic || blocks == 1 {
                return Ok(output);
            }
            name = &self.names[1];
            (input, len) = (output, u64::from(blocks));
            output += len * size as u64;
        }
    }
}

impl Memory {
    /// Reduces the `len` elements at byte `start`, which must be in bounds and not none, by kernel `K`, `repeats` times: the
    /// result, and the time of one.
    pub fn reduce_with<K: Kernel, O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
        &self,
        start: usize,
        len: usize,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error> {
        let mut accumulator = O::IDENTITY;
        let rung = Rung {
            names: [T::NAME, O::Accumulator::NAME].map(|element| name::<K>(O::NAME, element, BLOCK)),
            atomic: K::ATOMIC,
            blocks: K::blocks,
            block: BLOCK,
        };
        check_compiled::<O, T>(|| rung.names[0].clone())?;
        let time = self.run(&rung, start, len as u64, repeats, bytemuck::bytes_of_mut(&mut accumulator))?;
        Ok((O::finish(accumulator), time))
    }

    /// Runs the launches of a rung of the ladder; `accumulator` is the identity, and becomes the result. Not generic, because the
    /// ladder has a thousand rungs, types and operators.
    fn run(
        &self,
        rung: &Rung,
        start: usize,
        len: u64,
        repeats: NonZeroU32,
        accumulator: &mut [u8],
    ) -> Result<Duration, Error> {
        let (gpu, input, size) = (&self.gpu, self.address(start), accumulator.len());
        gpu.with_workspace(|workspace| {
            // Atomics need the identity where they begin: each repeat has a place of its own, so that nothing is set between.
            // Otherwise a launch leaves a 32nd of its input, and the later ones together need no more room than the first.
            let places =
                if rung.atomic { repeats.get() } else { 2 * (rung.blocks)(len, rung.block) } as usize;
            let room = workspace.room(gpu, places * size)?;
            if rung.atomic {
                workspace.put(gpu, &accumulator.repeat(places))?;
            }
            let mut last = room;
            let time = gpu.time(workspace, repeats, |workspace, repeat| {
                let place = if rung.atomic { repeat as usize * size } else { 0 };
                last = rung.enqueue(gpu, workspace, (input, len), room + place as u64, size)?;
                Ok(())
            })?;
            workspace.get(gpu, &rung.names[0], last, accumulator)?;
            Ok(time)
        })
    }

    /// As [`reduce_with`](Self::reduce_with), by the production kernel.
    pub fn reduce_repeatedly<O: Op<T>, T: Element, const BLOCK: u32>(
        &self,
        start: usize,
        len: usize,
        repeats: NonZeroU32,
    ) -> Result<(O::Output, Duration), Error> {
        let (gpu, input) = (&self.gpu, self.address(start));
        gpu.with_workspace(|workspace| {
            let time = gpu
                .time(workspace, repeats, |workspace, _| gpu.enqueue::<O, T, BLOCK>(workspace, input, len))?;
            Ok((gpu.result::<O, T, BLOCK>(workspace)?, time))
        })
    }

    /// The index of the least of the `len` elements at byte `start`, which must be in bounds and not none, and the element.
    pub fn argmin_by_halving<T: LadderElement, const BLOCK: u32>(
        &self,
        start: usize,
        len: usize,
    ) -> Result<(usize, T), Error> {
        let (gpu, mut input, mut len) = (&self.gpu, self.address(start), len as u64);
        let mut indices = 0;
        let name_for = |element| format!("{}_{element}_{BLOCK}", ArgMin::<T>::NAME);
        let mut name = name_for(T::NAME);
        check_compiled::<Min, T>(|| name.clone())?;
        gpu.with_workspace(|workspace| {
            let size = size_of::<T::Key>() as u64;
            let room = 2 * len.div_ceil(u64::from(BLOCK));
            let mut indices_out = workspace.room(gpu, (room * (8 + size)) as usize)?;
            let mut keys_out = indices_out + room * 8;
            loop {
                let blocks = len.div_ceil(u64::from(BLOCK)) as u32;
                let arguments = [
                    argument(&input),
                    argument(&indices),
                    argument(&len),
                    argument(&keys_out),
                    argument(&indices_out),
                ];
                // SAFETY: the arguments are those of the kernel (`ladder::ArgMin`); otherwise as above.
                unsafe { gpu.launch(&workspace.stream, &name, blocks, BLOCK, &arguments)? };
                if blocks == 1 {
                    break;
                }
                name = name_for(T::Key::NAME);
                (input, indices, len) = (keys_out, indices_out, u64::from(blocks));
                keys_out += len * size;
                indices_out += len * 8;
            }
            let (mut index, mut key) = (0u64, T::Key::zeroed());
            workspace.get(gpu, &name, indices_out, bytemuck::bytes_of_mut(&mut index))?;
            workspace.get(gpu, &name, keys_out, bytemuck::bytes_of_mut(&mut key))?;
            Ok((index as usize, T::from_key(key)))
        })
    }
}

impl Gpu {
    /// Has `enqueue` enqueue each of the repeats, waits for them, and returns the time of one.
    fn time(
        &self,
        workspace: &mut Workspace,
        repeats: NonZeroU32,
        mut enqueue: impl FnMut(&mut Workspace, u32) -> Result<(), Error>,
    ) -> Result<Duration, Error> {
        let failed = |error| self.failed("timing launches", error);
        let [start, end] = [(); 2].map(|()| Event::new(EventFlags::DEFAULT).map_err(failed));
        let (start, end) = (start?, end?);
        start.record(&workspace.stream).map_err(failed)?;
        (0..repeats.get()).try_for_each(|repeat| enqueue(workspace, repeat))?;
        end.record(&workspace.stream).and_then(|()| end.synchronize()).map_err(failed)?;
        let milliseconds = end.elapsed_time_f32(&start).map_err(failed)?;
        Ok(Duration::from_secs_f32(milliseconds / 1e3) / repeats.get())
    }

    /// Merges lists, each of which is sorted.
    pub fn merge<T: Element>(self: &Arc<Self>, lists: &[&[T]]) -> Result<Merged<T>, Error> {
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
        let memory_for = |bytes: &[u8]| Memory::new(self, bytes.len());
        let (values, numbers) = (bytemuck::cast_slice(&merged.values), bytemuck::cast_slice(&merged.lists));
        // Each launch goes from one of two memories to the other.
        let mut values_at = [memory_for(values)?, memory_for(values)?];
        let numbers_at = [memory_for(numbers)?, memory_for(numbers)?];
        values_at[0].write(0, values)?;
        let mut bounds_at = memory_for(bytemuck::cast_slice(&bounds))?;
        bounds_at.write(0, bytemuck::cast_slice(&bounds))?;

        let name = format!("{}_{}_{MERGE_BLOCK}", Merge::<T>::NAME, T::NAME);
        check_compiled::<Min, T>(|| name.clone())?;
        let (bounds, count) = (bounds_at.address(0), lists.len() as u64);
        let (mut from, mut to) = (0, 1);
        let mut width = 1;
        self.with_workspace(|workspace| {
            loop {
                let groups = count.div_ceil(width * u64::from(MERGE_BLOCK)) as u32;
                let (input, output) = (values_at[from].address(0), values_at[to].address(0));
                let origins = if width == 1 { 0 } else { numbers_at[from].address(0) };
                let origins_out = numbers_at[to].address(0);
                let arguments = [
                    argument(&input),
                    argument(&origins),
                    argument(&bounds),
                    argument(&count),
                    argument(&width),
                    argument(&output),
                    argument(&origins_out),
                ];
                // SAFETY: the arguments are those of the kernel (`ladder::Merge`), and the memories, of a place for each
                // element, and a bound for each list and one more, stay until the stream has been waited for.
                unsafe { self.launch(&workspace.stream, &name, groups, MERGE_BLOCK, &arguments)? };
                if groups == 1 {
                    break;
                }
                width *= u64::from(MERGE_BLOCK);
                mem::swap(&mut from, &mut to);
            }
            workspace.stream.synchronize().map_err(|error| self.launch_failed(&name, error))
        })?;
        values_at[to].read(0, bytemuck::cast_slice_mut(&mut merged.values))?;
        numbers_at[to].read(0, bytemuck::cast_slice_mut(&mut merged.lists))?;
        Ok(merged)
    }
}

impl Workspace {
    /// The address of `bytes` bytes for partial results, which stay with the workspace; what was there is lost.
    fn room(&mut self, gpu: &Gpu, bytes: usize) -> Result<u64, Error> {
        if self.partials.len() < bytes {
            self.partials = gpu.allocate(bytes)?;
        }
        Ok(self.partials.as_device_ptr().as_raw())
    }

    /// Copies `values` to the start of that room.
    fn put(&mut self, gpu: &Gpu, values: &[u8]) -> Result<(), Error> {
        let mut target = self.partials.index(..values.len());
        // SAFETY: the stream is waited for before the values or the room can go.
        unsafe { target.async_copy_from(values, &self.stream) }
            .and_then(|()| self.stream.synchronize())
            .map_err(|error| gpu.failed("copying to the device", error))
    }

    /// Copies to `value` what kernel `name` has left at `address`, in that room, once it has ended.
    fn get(&self, gpu: &Gpu, name: &str, address: u64, value: &mut [u8]) -> Result<(), Error> {
        let start = (address - self.partials.as_device_ptr().as_raw()) as usize;
        let source = self.partials.index(start..start + value.len());
        // SAFETY: the stream is waited for before the value or the room can go.
        unsafe { source.async_copy_to(value, &self.stream) }
            .and_then(|()| self.stream.synchronize())
            .map_err(|error| gpu.launch_failed(name, error))
    }
}
