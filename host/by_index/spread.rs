//! Variances and standard deviations by index: sums of the squared distances from the mean of each index.

use super::indices::Words;
use super::tally::Items;
use super::{ByIndex, Enqueuing, Running, Starting, address, check};
use crate::cpu::Source;
use crate::data::{Data, gpu_of, other_device};
use crate::place::Place::{Cpu, Gpu};
use crate::request::Spread;
use crate::{Buffer, Device, Element, Error, Item, Pending, Sum, cuda, threads};
use gpu_reduce_kernels::op::center::{Center, Centers, OfSquares};
use std::ffi::c_void;
use std::ptr::null_mut;

/// Items for which it is worth waking threads.
const PARALLEL: usize = 1 << 14;

/// Reduces the items of each index, as [`OfSquares`] says. The indices are below the number of results, and there
/// are as many values.
fn reduce<T: Element, S: Source<Item = T>>(
    (ddof, is_root): (u64, bool),
    values: S,
    indices: &Words,
    results: &mut [T::Real],
) {
    let mut centers = vec![Center::default(); results.len()];
    Items { numbers: Some(&values), indices }.reduce::<Centers>(false, &mut centers);
    let square = |place: usize| {
        // SAFETY: there are as many values as indices.
        let value = unsafe { values.get(place) };
        centers[indices.get(place) as usize].square(value)
    };
    let mut squares = vec![0.0; indices.len()];
    in_parts(&mut squares, &|place, to| *to = square(place));
    let mut sums = vec![0.0f64; results.len()];
    Items { numbers: Some(&&squares[..]), indices }.reduce::<Sum>(false, &mut sums);
    in_parts(results, &|index, result| {
        *result = T::real(centers[index].spread(sums[index], ddof, is_root));
    });
}

/// Calls `each` for each place, on several threads if there are many.
fn in_parts<V: Send>(places: &mut [V], each: &(impl Fn(usize, &mut V) + Sync)) {
    let part = if places.len() < PARALLEL { places.len().max(1) } else { PARALLEL / 4 };
    let run = |number: usize, places: &mut [V]| {
        (number * part..).zip(places).for_each(|(place, to)| each(place, to));
    };
    if places.len() <= part { run(0, places) } else { threads::each_part(places, part, &run) }
}

impl<'a, D: Data<'a, Item: Element<Real: Item>>> ByIndex<'a, D> {
    /// As [`reduce`], on the CPU.
    fn spread_on_host<O: OfSquares<D::Item>>(
        &self,
        op: &O,
        values: D::Slices,
        results: &mut [<D::Item as Element>::Real],
    ) -> Result<(), Error> {
        let words = self.indices.words()?;
        self.indices.check_on_host(&words, self.count)?;
        reduce((op.ddof(), O::IS_ROOT), values, &words, results);
        Ok(())
    }

    /// What reduces on a GPU.
    fn spread<O: OfSquares<D::Item>>(
        &self,
        op: &O,
        gpu: &'static cuda::Gpu,
        items: *const c_void,
        results: *mut <D::Item as Element>::Real,
    ) -> Result<Spread, Error> {
        Ok(Spread {
            items: self.request::<Centers, D::Item>(gpu, items, false, null_mut())?,
            dtype: D::Item::DTYPE,
            ddof: op.ddof(),
            is_root: O::IS_ROOT,
            result_bytes: size_of::<<D::Item as Element>::Real>(),
            results: results.cast(),
        })
    }
}

/// Reduces and waits, as [`Scatter::spread`](gpu_reduce_kernels::agent::Scatter::spread).
pub(super) fn run<'a, D: Data<'a, Item: Element<Real = V>>, O: OfSquares<D::Item>, V: Item>(
    groups: &ByIndex<'a, D>,
    op: &O,
) -> Result<Buffer<V>, Error> {
    let place = groups.data.place()?;
    let device = Device(gpu_of(&place).map_or(Cpu(()), Gpu));
    if groups.data.is_empty() {
        return device.upload(&vec![D::Item::real(f64::NAN); groups.count]);
    }
    let mut results = Buffer::for_results(&device, groups.count)?;
    match (place, results.whole_mut()) {
        (Cpu(values), Cpu(results)) => groups.spread_on_host(op, values, results)?,
        (Gpu((gpu, items)), Gpu(results)) => {
            let spread = groups.spread(op, gpu, address(&items), results)?;
            // SAFETY: the types are these, and all is borrowed.
            groups.check(unsafe { gpu.spread(&spread)? })?;
        }
        _ => unreachable!("results lie where the items do"),
    }
    Ok(results)
}

/// Reduces on a stream.
pub(super) fn start<'a, D: Data<'a, Item: Element<Real = V>>, O: OfSquares<D::Item>, V: Item>(
    Starting { groups: Running { groups, .. }, stream }: Starting<'_, 'a, D, V>,
    op: &O,
) -> Result<Pending<'a, Buffer<V>>, Error> {
    let place = groups.data.place()?;
    let (gpu, items, queue) = match (place, stream.on(gpu_of(&place))?) {
        (Gpu((gpu, items)), Some(queue)) if !groups.data.is_empty() => (gpu, items, queue),
        _ => return Ok(Pending::done(run(groups, op))),
    };
    let mut results = Buffer::room(gpu, groups.count)?;
    let Gpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
    let spread = groups.spread(op, gpu, address(&items), places)?;
    // SAFETY: the types are these. The results are kept until the work has ended, or freed, which waits for
    // the device. Items and indices are borrowed as long; if the result is discarded, they are only read.
    let launched = unsafe { queue.launch_spread(&spread)? };
    let (indices, count) = (groups.indices, groups.count);
    Ok(Pending::new(launched, move |launched| check(launched.words()[0], &indices, count).map(|()| results)))
}

/// Reduces to places on a device, in the order of a stream.
///
/// # Safety
///
/// As for [`ByIndex::reduce_into`].
pub(super) unsafe fn enqueue<'a, D: Data<'a, Item: Element<Real = V>>, O: OfSquares<D::Item>, V: Item>(
    Enqueuing { groups: Running { groups, .. }, stream, results }: Enqueuing<'_, 'a, '_, D, V>,
    op: &O,
) -> Result<(), Error> {
    let on = stream.device();
    let queue = stream.on(results.gpu())?;
    if groups.data.is_empty() {
        // SAFETY: as the caller vouches.
        return unsafe { super::fill(results, queue, groups.count, D::Item::real(f64::NAN)) };
    }
    match (groups.data.place()?, results.into_places(), queue) {
        (Cpu(values), Cpu(results), None) => groups.spread_on_host(op, values, results),
        (Gpu((gpu, items)), Gpu(results), Some(queue)) if gpu == queue.gpu() => {
            let spread = groups.spread(op, gpu, address(&items), results)?;
            // SAFETY: as the caller vouches.
            unsafe { queue.enqueue_spread(&spread) }
        }
        (place, ..) => Err(other_device(gpu_of(&place), &on)),
    }
}

/// The bytes of scratch memory.
pub(super) fn scratch_bytes<'a, D: Data<'a, Item: Element<Real: Item>>, O: OfSquares<D::Item>>(
    groups: &ByIndex<'a, D>,
    op: &O,
) -> usize {
    match groups.data.place() {
        Ok(Gpu((gpu, items))) => {
            groups.spread(op, gpu, address(&items), null_mut()).map_or(0, |spread| gpu.spread_bytes(&spread))
        }
        _ => 0,
    }
}
