//! Rows, segments and columns of items that lie on several GPUs: each GPU reduces those that it has all items of, and all together those that go from one to another.

use super::{Bounds, Copies, OfNone, Segments, check, pointer};
use crate::call::ShapeCall;
use crate::cuda::{
    GpuStream, Launched, enqueue_columns_of_shards, launch_columns_of_shards, meet, stream_of,
};
use crate::data::{Data, Shard};
use crate::pending::Pending;
use crate::place::Place::{Cpu, Gpu};
use crate::sharded::Located;
use crate::{Buffer, Device, Error, Item, Op, Stream, View, ViewMut, cuda};
use bytemuck::Zeroable;
use gpu_reduce_kernels::segments::{Cut, SegmentBounds as OnGpu};
use std::ops::Range;

/// Segments of which one GPU has all items.
struct Local<S> {
    /// The first one's number.
    first: usize,
    items: S,
    /// Where each begins among these, and the last ends.
    offsets: Vec<u64>,
}

/// Segments by where they lie.
struct Dealt<S> {
    local: Vec<Local<S>>,
    /// On several GPUs: the number, and which items.
    across: Vec<(usize, Range<u64>)>,
}

impl<'a, D: Data<'a>> Segments<'a, D> {
    /// As [`run`](Self::run).
    pub(super) fn run_on_shards<O: Op<D::Item, Output: Item>>(
        &self,
        located: &Located<'a, D>,
        op: O,
        none: OfNone<O::Output>,
        block: u32,
    ) -> Result<Buffer<O::Output>, Error> {
        self.launch_on_shards(located, op, none, block, &located.streams()?)?.wait()
    }

    /// As [`launch`](Self::launch), each on its GPU's stream of these. Offsets on a device are waited for.
    pub(super) fn launch_on_shards<O: Op<D::Item, Output: Item>>(
        &self,
        located: &Located<'a, D>,
        op: O,
        none: OfNone<O::Output>,
        block: u32,
        streams: &[GpuStream],
    ) -> Result<Pending<'a, Buffer<O::Output>>, Error> {
        let gpu = located.first_gpu();
        let (this, mut results) = self.with_room(&Device(Gpu(gpu)), none)?;
        if this.is_empty() {
            return Ok(Pending::done(Ok(results)));
        }
        let value = none.default.unwrap_or(Zeroable::zeroed());
        let call = || ShapeCall::new::<O, D::Pointers>(&op, (&value, none.default.is_some()), block);
        if let Some(columns) = this.as_columns() {
            let Gpu(places) = results.whole_mut() else {
                unreachable!("results lie where the first items do")
            };
            // SAFETY: the types are these; the items are borrowed as long as the results are kept, or nobody asks what comes of it.
            let launched = unsafe {
                launch_columns_of_shards(streams, located.shards(), gpu, call(), columns, places.cast())?
            };
            return Ok(Pending::new(launched, move |_| Ok(results)));
        }
        let Dealt { local, across } = this.deal()?;
        let (mut launched, mut parts, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for Local { first, items, offsets } in local {
            let Gpu((gpu, pointers)) = items.place()? else { unreachable!("shards lie on GPUs") };
            let (count, len) = (offsets.len() as u64 - 1, items.len() as u64);
            let mut part = Device(Gpu(gpu)).zeros::<O::Output>(count as usize)?;
            let Gpu(places) = part.whole_mut() else { unreachable!("it lies where the items do") };
            let mut copies = Copies::default();
            let segments = match this.bounds {
                Bounds::Length(length) => OnGpu::of_length(length, count, len),
                _ => OnGpu::of_offsets(pointer(View::host(&offsets), gpu, &mut copies.1)?, count, len),
            };
            let stream = stream_of(streams, gpu)?;
            // SAFETY: as above; what it has beside the items is kept until the work has been waited for, or freed, which waits for the device.
            launched.push(unsafe { stream.launch_segments(&call().with(&pointers, segments, places))? });
            parts.push((first, part, copies));
        }
        for (segment, items) in across {
            let (work, taking) = located.part(items).start(&op, block, streams)?;
            launched.push(work);
            taken.push((segment, taking));
        }
        Ok(Pending::new(Launched::together(launched), move |launched| {
            let mut words = launched.words_of_parts();
            for (first, part, _copies) in &parts {
                match words.next().map_or(Cut::NOTHING, |words| words[0]) {
                    Cut::NOTHING => copy(part, &mut results, *first)?,
                    wrong => {
                        let segment = (wrong & !Cut::NO_VALUE) + *first as u64;
                        return Err(Error::EmptySegment { op: none.op, segment });
                    }
                }
            }
            for (segment, taking) in taken {
                results.write(segment, &[taking.finish::<O, D>(&op, &mut words)?])?;
            }
            Ok(results)
        }))
    }

    /// As [`enqueue_or`](Self::enqueue_or). Where there are offsets, it waits.
    ///
    /// # Safety
    ///
    /// As there; there is a place for each result.
    pub(super) unsafe fn enqueue_on_shards<O: Op<D::Item, Output: Item>>(
        &self,
        located: &Located<'a, D>,
        op: O,
        default: O::Output,
        block: u32,
        stream: &Stream,
        results: ViewMut<'_, O::Output>,
    ) -> Result<(), Error> {
        let streams = stream.streams();
        let Some(on) = results.gpu() else {
            unreachable!("the stream has the results' device, and is one of GPUs")
        };
        let call = || ShapeCall::new::<O, D::Pointers>(&op, (&default, true), block);
        let length = match self.bounds {
            Bounds::Length(length) => length,
            Bounds::Columns { .. } | Bounds::Short(_) | Bounds::Long(_) => match self.as_columns() {
                Some(columns) => {
                    let Gpu(places) = results.into_places() else { unreachable!("they lie on a GPU") };
                    // SAFETY: as the caller vouches; the types are these.
                    return unsafe {
                        enqueue_columns_of_shards(
                            streams,
                            located.shards(),
                            on,
                            call(),
                            columns,
                            places.cast(),
                        )
                    };
                }
                None => {
                    stream.wait()?;
                    return results.write(&self.run(op, Some(default), block)?.to_vec()?);
                }
            },
        };
        let Gpu(places) = results.into_places() else { unreachable!("they lie on a GPU") };
        let Dealt { local, across } = self.deal()?;
        meet(streams)?;
        for Local { first, items, offsets } in local {
            let Gpu((gpu, pointers)) = items.place()? else { unreachable!("shards lie on GPUs") };
            let count = offsets.len() as u64 - 1;
            let segments = OnGpu::of_length(length, count, items.len() as u64);
            let call = call().with(&pointers, segments, std::ptr::null_mut::<O::Output>());
            let bytes = count as usize * size_of::<O::Output>();
            // SAFETY: as the caller vouches; the types are these, and there are so many places.
            unsafe {
                let to = places.wrapping_add(first).addr() as u64;
                stream_of(streams, gpu)?.enqueue_segments_to(call, bytes, to)?;
            }
        }
        for (segment, items) in across {
            // SAFETY: as above.
            unsafe { located.part(items).enqueue(&op, block, streams, on, places.wrapping_add(segment))? };
        }
        meet(streams)
    }

    /// Which segments lie on which of the shards that have items.
    fn deal(&self) -> Result<Dealt<D::Shard>, Error> {
        let offsets = self.offsets()?;
        check(&offsets, self.data.len() as u64)?;
        let shards: Vec<_> = self.data.shards()?.into_iter().filter(|shard| !shard.is_empty()).collect();
        let last = shards.len() - 1;
        let (mut local, mut across) = (Vec::new(), Vec::new());
        let (mut start, mut first) = (0, 0);
        for (index, shard) in shards.into_iter().enumerate() {
            let end = start + shard.len() as u64;
            // The first that begins after the shard; what begins at the end of all has no items, and falls to the last one.
            let begin = match index == last {
                true => self.len(),
                false => first + offsets[first..self.len()].partition_point(|&offset| offset < end),
            };
            let after = first + offsets[first + 1..=begin].partition_point(|&offset| offset <= end);
            if after > first {
                let range = (offsets[first] - start) as usize..(offsets[after] - start) as usize;
                let of_local = offsets[first..=after].iter().map(|offset| offset - offsets[first]);
                local.push(Local { first, items: shard.part(range)?, offsets: of_local.collect() });
            }
            across.extend((after..begin).map(|segment| (segment, offsets[segment]..offsets[segment + 1])));
            (start, first) = (end, begin);
        }
        Ok(Dealt { local, across })
    }

    /// Where each segment begins, and where the last one ends.
    fn offsets(&self) -> Result<Vec<u64>, Error> {
        Ok(match self.bounds {
            Bounds::Columns { .. } => unreachable!("columns are no ranges"),
            Bounds::Length(length) => (0..=self.count).map(|index| index * length).collect(),
            // Of runs there may be room for more.
            Bounds::Short(offsets) => {
                let offsets = offsets.slice(..self.len() + 1)?.to_vec()?;
                offsets.into_iter().map(u64::from).collect()
            }
            Bounds::Long(offsets) => offsets.slice(..self.len() + 1)?.to_vec()?,
        })
    }
}

/// Copies results to their places among all, from a GPU to another.
fn copy<V: Item>(part: &Buffer<V>, results: &mut Buffer<V>, first: usize) -> Result<(), Error> {
    let to = results.slice_mut(first..first + part.len())?;
    let gpu: Option<&'static cuda::Gpu> = to.gpu();
    match (gpu, to.into_places(), part.view().0) {
        // SAFETY: there is room for all, and both are borrowed.
        (Some(gpu), Gpu(to), Gpu(from)) => unsafe {
            gpu.copy(to.addr() as u64, from.address, part.len() * size_of::<V>())
        },
        (_, Cpu(_), _) | (_, _, Cpu(_)) | (None, ..) => unreachable!("both lie on GPUs"),
    }
}
