//! Reductions by index by operators for which the order of the items counts: the items are sorted by index,
//! and the items of one index are then reduced as a segment.

use super::{ByIndex, Enqueuing, Running, Starting};
use crate::data::{Data, gpu_of, other_device};
use crate::operators::Parts;
use crate::place::Place::Gpu;
use crate::request::{InOrder, MOST_ORDERED, Operation};
use crate::{Buffer, Device, Error, Item, Op, Pending, Reduce, cuda};
use bytemuck::Zeroable;
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::segments::Cut;
use std::ptr::{null, null_mut};

impl<'a, D: Data<'a>> ByIndex<'a, D> {
    /// Whether a GPU sorts the items: there are not too many, and there is an index that an item may have.
    fn is_sorted_on_gpu(&self) -> bool {
        self.count > 0 && self.data.len() <= MOST_ORDERED
    }

    /// What reduces on a GPU.
    fn in_order<'o, V>(
        &self,
        operation: Operation<'o>,
        (gpu, items): (&'static cuda::Gpu, D::Pointers),
        results: *mut V,
    ) -> Result<InOrder<'o>, Error> {
        let (len, count) = (self.data.len(), self.count);
        // The indices of no items may lie anywhere.
        let (indices, index_words) = if len == 0 { (null(), 1) } else { self.indices.on_gpu(gpu)? };
        let mut arrays = Vec::new();
        items.arrays(&mut |address, bytes| arrays.push((address, bytes)));
        Ok(InOrder { operation, arrays, indices, index_words, len, count, results: results.cast() })
    }
}

/// Reduces and waits, as [`Scatter::in_order`](gpu_reduce_kernels::agent::Scatter::in_order).
pub(super) fn run<'a, D: Data<'a>, O: Op<D::Item, Output: Item>>(
    Running { groups: &ByIndex { ref data, ref indices, count }, default, block }: Running<
        '_,
        'a,
        D,
        O::Output,
    >,
    op: &O,
) -> Result<Buffer<O::Output>, Error> {
    let (sorted, order) = data.sort(indices, count)?;
    sorted.segments(order.offsets())?.run(*op, default, block)
}

/// Reduces on a stream.
pub(super) fn start<'a, D: Data<'a>, O: Op<D::Item, Output: Item>>(
    Starting { groups: running, stream }: Starting<'_, 'a, D, O::Output>,
    op: &O,
) -> Result<Pending<'a, Buffer<O::Output>>, Error> {
    let Running { groups, default, block } = running;
    let place = groups.data.place()?;
    let (gpu, items, queue) = match (place, stream.on(gpu_of(&place))?) {
        (Gpu((gpu, items)), Some(queue)) if groups.is_sorted_on_gpu() => (gpu, items, queue),
        _ => return Ok(Pending::done(run(running, op))),
    };
    let mut results = Device(Gpu(gpu)).zeros(groups.count)?;
    let Gpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
    let value = default.unwrap_or(Zeroable::zeroed());
    let operation = Operation::each::<O, D::Pointers>(op, (&value, default.is_some()), block);
    let in_order = groups.in_order(operation, (gpu, items), places)?;
    // SAFETY: the types are these. The results are kept until the work has ended, or freed, which waits for
    // the device. Items and indices are borrowed as long; if the result is discarded, they are only read.
    let launched = unsafe { queue.launch_in_order(&in_order)? };
    let (indices, count) = (groups.indices, groups.count);
    Ok(Pending::new(launched, move |launched| match *launched.words() {
        [Cut::NOTHING, 0, ..] => Ok(results),
        [empty, 0, ..] => Err(Error::EmptySegment { op: O::NAME, segment: empty & !Cut::NO_VALUE }),
        [_, wrong, ..] => Err(indices.error(!wrong, count)),
        _ => unreachable!("there are two words"),
    }))
}

/// Reduces to places on a device, in the order of a stream.
///
/// # Safety
///
/// As for [`ByIndex::reduce_into`].
pub(super) unsafe fn enqueue<'a, D: Data<'a>, O: Op<D::Item, Output: Item>>(
    Enqueuing { groups: Running { groups, default, block }, stream, results }: Enqueuing<
        '_,
        'a,
        '_,
        D,
        O::Output,
    >,
    op: &O,
) -> Result<(), Error> {
    let default = default.unwrap_or(Zeroable::zeroed());
    let queue = stream.on(results.gpu())?;
    if let Some(queue) = queue
        && (groups.is_sorted_on_gpu() || groups.count == 0)
    {
        return match (groups.data.place()?, results.into_places()) {
            (Gpu((gpu, items)), Gpu(places)) if gpu == queue.gpu() => {
                let operation = Operation::each::<O, D::Pointers>(op, (&default, true), block);
                let in_order = groups.in_order(operation, (gpu, items), places)?;
                // SAFETY: as the caller vouches; the types are these.
                if groups.count == 0 { Ok(()) } else { unsafe { queue.enqueue_in_order(&in_order) } }
            }
            (place, _) => Err(other_device(gpu_of(&place), &stream.device())),
        };
    }
    if let Some(queue) = queue {
        // The host sorts more items than a GPU can; it needs what the stream writes before.
        queue.wait_unless_captured()?;
    }
    let (sorted, order) = groups.data.sort(&groups.indices, groups.count)?;
    let segments = sorted.segments(order.offsets())?;
    // SAFETY: as the caller vouches; the sorted items and their offsets are dropped after `synchronize`
    // below.
    unsafe { segments.enqueue(*op, default, block, stream, results)? };
    queue.map_or(Ok(()), |queue| queue.synchronize())
}

/// The bytes of scratch memory.
pub(super) fn scratch_bytes<'a, D: Data<'a>, O: Op<D::Item, Output: Item>>(
    groups: &ByIndex<'a, D>,
    op: &O,
    block: u32,
) -> usize {
    match groups.data.place() {
        Ok(Gpu(items)) if groups.is_sorted_on_gpu() => {
            let value = Zeroable::zeroed();
            let operation = Operation::each::<O, D::Pointers>(op, (&value, true), block);
            let in_order = groups.in_order(operation, items, null_mut::<O::Output>());
            in_order.map_or(0, |in_order| items.0.in_order_bytes(&in_order))
        }
        _ => 0,
    }
}
