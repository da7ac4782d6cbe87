//! Launches of the classic kernels, repeated until one value, or one list, is left; nothing is copied between them.

use super::{Gpu, Memory, Workspace, argument};
use crate::merge::Merged;
use crate::{Element, Error, LadderElement, LadderOp};
use bytemuck::Pod;
use cust::memory::AsyncCopyDestination;
use gpu_reduce_kernels::ladder::{ArgMin, Kernel, MERGE_BLOCK, Merge};
use std::mem;
use std::sync::Arc;

impl Memory {
    /// Reduces the `len` elements at byte `start`, which must be in bounds and not none, by kernel `K`.
    pub fn reduce_with<K: Kernel, O: LadderOp<T>, T: LadderElement, const BLOCK: u32>(
        &self,
        start: usize,
        len: usize,
    ) -> Result<O::Output, Error> {
        let (gpu, mut input, mut len) = (&self.gpu, self.address(start), len as u64);
        let name_for = |element| format!("{}_{}_{element}_{BLOCK}", K::NAME, O::NAME);
        let mut name = name_for(T::NAME);
        gpu.with_workspace(|workspace| {
            let size = size_of::<O::Accumulator>();
            // A launch leaves a 32nd of its input, so that the later ones together need no more room than the first.
            let places = if K::ATOMIC { 1 } else { 2 * K::blocks(len, BLOCK) as usize };
            let mut output = workspace.room(gpu, places * size)?;
            if K::ATOMIC {
                workspace.put(gpu, O::IDENTITY)?;
            }
            loop {
                let blocks = K::blocks(len, BLOCK);
                let arguments = [argument(&input), argument(&len), argument(&output)];
                // SAFETY: the arguments are those of the kernel (`ladder::Pass`): `input` holds `len` elements, and the
                // workspace, which is this reduction's alone, has room for an accumulator from each block.
                unsafe { gpu.launch(&workspace.stream, &name, blocks, BLOCK, &arguments)? };
                if K::ATOMIC || blocks == 1 {
                    break;
                }
                name = name_for(O::Accumulator::NAME);
                (input, len) = (output, u64::from(blocks));
                output += len * size as u64;
            }
            Ok(O::finish(workspace.get(gpu, &name, output)?))
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
            let index: u64 = workspace.get(gpu, &name, indices_out)?;
            Ok((index as usize, T::from_key(workspace.get(gpu, &name, keys_out)?)))
        })
    }
}

impl Gpu {
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

    /// Copies `value` to the start of that room.
    fn put<V: Pod>(&mut self, gpu: &Gpu, value: V) -> Result<(), Error> {
        let mut target = self.partials.index(..size_of::<V>());
        // SAFETY: the stream is waited for before the value or the room can go.
        unsafe { target.async_copy_from(bytemuck::bytes_of(&value), &self.stream) }
            .and_then(|()| self.stream.synchronize())
            .map_err(|error| gpu.failed("copying to the device", error))
    }

    /// What kernel `name` has left at `address`, in that room, once it has ended.
    fn get<V: Pod>(&self, gpu: &Gpu, name: &str, address: u64) -> Result<V, Error> {
        let start = (address - self.partials.as_device_ptr().as_raw()) as usize;
        let source = self.partials.index(start..start + size_of::<V>());
        let mut value = V::zeroed();
        // SAFETY: the stream is waited for before the value or the room can go.
        unsafe { source.async_copy_to(bytemuck::bytes_of_mut(&mut value), &self.stream) }
            .and_then(|()| self.stream.synchronize())
            .map_err(|error| gpu.launch_failed(name, error))?;
        Ok(value)
    }
}
