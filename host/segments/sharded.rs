//! Rows, segments and columns of items that lie on several GPUs. Each GPU reduces the segments whose items it
//! has all of; the segments that cross from one GPU to another are reduced by all of those together.

use super::{Bounds, Copies, IfEmpty, Segments, check, pointer};
use crate::cuda::{
    GpuStream, Launched, enqueue_columns_of_shards, launch_columns_of_shards, meet, stream_of,
};
use crate::data::{Data, Shard};
use crate::operators::Parts;
use crate::pending::Pending;
use crate::place::Place::{Cpu, Gpu};
use crate::request::{Operation, Shape};
use crate::sharded::Located;
use crate::{Buffer, Device, Error, Item, Op, Stream, View, ViewMut, cuda};
use bytemuck::Zeroable;
use gpu_reduce_kernels::segments::{Cut, SegmentBounds};
use std::ops::Range;

/// Segments whose items all lie on one GPU.
struct Local<S> {
    /// The index of the first.
    first: usize,
    items: S,
    /// Where each begins among these items, and where the last ends.
    offsets: Vec<u64>,
}

/// Segments, by where they lie.
struct Dealt<S> {
    local: Vec<Local<S>>,
    /// Those on several GPUs: the index, and the items.
    across: Vec<(usize, Range<u64>)>,
}

impl<'a, D: Data<'a>> Segments<'a, D> {
    /// As [`start`](Self::start): each GPU uses its stream of these. Offsets on a device are waited for.
    pub(super) fn start_on_shards<O: Op<D::Item, Output: Item>>(
        &self,
        located: &Located<'a, D>,
        op: O,
        if_empty: IfEmpty<O::Output>,
        block: u32,
        streams: &[GpuStream],
    ) -> Result<Pending<'a, Buffer<O::Output>>, Error> {
        let gpu = located.first_gpu();
        let (this, mut results) = self.allocate(&Device(Gpu(gpu)), if_empty)?;
        if this.is_empty() {
            return Ok(Pending::done(Ok(results)));
        }
        let value = if_empty.default.unwrap_or(Zeroable::zeroed());
        let operation = Operation::each::<O, D::Pointers>(&op, (&value, if_empty.default.is_some()), block);
        if let Some(columns) = this.as_columns() {
            let Gpu(places) = results.whole_mut() else {
                unreachable!("results lie where the first items do")
            };
            // SAFETY: the types are these. The items are borrowed until the result is taken; if it is
            // discarded, they are only read.
            let launched = unsafe {
                launch_columns_of_shards(streams, located.shards(), gpu, operation, columns, places.cast())?
            };
            return Ok(Pending::new(launched, move |_| Ok(results)));
        }
        let Dealt { local, across } = this.deal()?;
        let (mut launched, mut parts, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for Local { first, items, offsets } in local {
            let Gpu((gpu, pointers)) = items.place()? else { unreachable!("shards lie on GPUs") };
            let (count, len) = (offsets.len() as u64 - 1, items.len() as u64);
            let mut part = Buffer::<O::Output>::room(gpu, count as usize)?;
            let Gpu(places) = part.whole_mut() else { unreachable!("it lies where the items do") };
            let mut copies = Copies::default();
            let segments = match this.bounds {
                Bounds::Length(length) => SegmentBounds::of_length(length, count, len),
                _ => SegmentBounds::of_offsets(
                    pointer(View::host(&offsets), gpu, &mut copies.long)?,
                    count,
                    len,
                ),
            };
            let stream = stream_of(streams, gpu)?;
            // SAFETY: as above. Results and copies are kept until the work has ended, or freed, which waits
            // for the device.
            launched.push(unsafe {
                stream.launch(&operation.request(&pointers, Shape::Segments(segments), places))?
            });
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
                    wrong => return Err(if_empty.error((wrong & !Cut::NO_VALUE) + *first as u64)),
                }
            }
            for (segment, taking) in taken {
                results.write(segment, &[taking.finish::<O, D>(&op, &mut words)?])?;
            }
            Ok(results)
        }))
    }

    /// As [`enqueue`](Self::enqueue). If there are offsets, it waits.
    ///
    /// # Safety
    ///
    /// As for [`enqueue`](Self::enqueue), and there is a place for each result.
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
        let operation = Operation::each::<O, D::Pointers>(&op, (&default, true), block);
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
                            operation,
                            columns,
                            places.cast(),
                        )
                    };
                }
                None => {
                    stream.synchronize()?;
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
            let shape = Shape::Segments(SegmentBounds::of_length(length, count, items.len() as u64));
            let request = operation.request(&pointers, shape, std::ptr::null_mut::<O::Output>());
            let bytes = count as usize * size_of::<O::Output>();
            // SAFETY: as the caller vouches; the types are these, and there is a place for each result.
            unsafe {
                let to = places.wrapping_add(first).addr() as u64;
                stream_of(streams, gpu)?.enqueue_to(request, bytes, to)?;
            }
        }
        for (segment, items) in across {
            // SAFETY: as above.
            unsafe { located.part(items).enqueue(&op, block, streams, on, places.wrapping_add(segment))? };
        }
        meet(streams).map(drop)
    }

    /// Returns which segments lie on which of the shards that have items.
    fn deal(&self) -> Result<Dealt<D::Shard>, Error> {
        let offsets = self.offsets()?;
        check(&offsets, self.data.len() as u64)?;
        let shards: Vec<_> = self.data.shards()?.into_iter().filter(|shard| !shard.is_empty()).collect();
        let last = shards.len() - 1;
        let (mut local, mut across) = (Vec::new(), Vec::new());
        let (mut start, mut first) = (0, 0);
        for (index, shard) in shards.into_iter().enumerate() {
            let end = start + shard.len() as u64;
            // The first segment that begins after the shard. Segments that begin at the very end have no
            // items, and go to the last shard.
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

    /// Returns where each segment begins, and where the last one ends.
    fn offsets(&self) -> Result<Vec<u64>, Error> {
        Ok(match self.bounds {
            Bounds::Columns { .. } => unreachable!("columns are not ranges"),
            Bounds::Length(length) => (0..=self.count).map(|index| index * length).collect(),
            // There may be room for more runs.
            Bounds::Short(offsets) => {
                let offsets = offsets.slice(..self.len() + 1)?.to_vec()?;
                offsets.into_iter().map(u64::from).collect()
            }
            Bounds::Long(offsets) => offsets.slice(..self.len() + 1)?.to_vec()?,
        })
    }
}

/// Copies results from one GPU to their places on another.
fn copy<V: Item>(part: &Buffer<V>, results: &mut Buffer<V>, first: usize) -> Result<(), Error> {
    let to = results.slice_mut(first..first + part.len())?;
    let gpu: Option<&'static cuda::Gpu> = to.gpu();
    match (gpu, to.into_places(), part.view().0) {
        // SAFETY: there is room for all results, and both buffers are borrowed.
        (Some(gpu), Gpu(to), Gpu(from)) => unsafe {
            gpu.copy(to.addr() as u64, from.address, part.len() * size_of::<V>())
        },
        (_, Cpu(_), _) | (_, _, Cpu(_)) | (None, ..) => unreachable!("both lie on GPUs"),
    }
}
