//! Sums by index of terms that are made of items: of the items that pass a test, or of products.

use super::indices::Words;
use super::tally::{Items, Numbers};
use super::{ByIndex, Enqueuing, Running, Starting, addresses, check, fill};
use crate::cpu::Source;
use crate::data::{Data, gpu_of, other_device};
use crate::place::Place::{Cpu, Gpu};
use crate::request::{Making, Terms};
use crate::simd::with_simd;
use crate::{Buffer, Device, Element, Error, Item, Pending, cuda, threads};
use bytemuck::Zeroable;
use gpu_reduce_kernels::element::Dtype;
use gpu_reduce_kernels::op::tally::OfTally;
use gpu_reduce_kernels::terms::Range;
use std::ffi::c_void;
use std::ptr::null_mut;

/// Items for which it is worth waking threads.
const PARALLEL: usize = 1 << 14;

/// How terms are made of items of type `I`, on the CPU and on a GPU.
pub(super) trait Make<I>: Copy + Send + Sync {
    /// The type of terms.
    type Term: Element;

    /// Makes the term of an item.
    fn term(self, item: I) -> Self::Term;

    /// Whether the item is counted.
    fn counts(self, _item: I) -> bool {
        true
    }

    /// Whether some items are not counted.
    const DROPS: bool;

    /// How a GPU makes terms of the items at these addresses.
    fn on_gpu(self, items: [*const c_void; 2]) -> Making;
}

/// Picks items for a sum that is no negative zero: any other item is 0, and so is a negative zero.
#[derive(Clone, Copy)]
pub(super) struct Pick<T: Element>(pub Range<T>);

impl<T: Element> Make<T> for Pick<T> {
    type Term = T;
    const DROPS: bool = false;

    #[inline(always)]
    fn term(self, item: T) -> T {
        if self.0.holds(item) & (item != T::zero()) { item } else { T::zeroed() }
    }

    fn on_gpu(self, items: [*const c_void; 2]) -> Making {
        Making::pick(self.0, items[0], self.0.minus_zero(), false)
    }
}

/// Picks items that are counted; any other item is not.
#[derive(Clone, Copy)]
pub(super) struct PickCounted<T: Element>(pub Range<T>);

impl<T: Element> Make<T> for PickCounted<T> {
    type Term = T;
    const DROPS: bool = true;

    #[inline(always)]
    fn term(self, item: T) -> T {
        if self.0.holds(item) { item } else { T::zeroed() }
    }

    #[inline(always)]
    fn counts(self, item: T) -> bool {
        self.0.holds(item)
    }

    fn on_gpu(self, items: [*const c_void; 2]) -> Making {
        Making::pick(self.0, items[0], 0, true)
    }
}

/// Multiplies items that have factors of a type.
#[derive(Clone, Copy)]
pub(super) struct Multiply<F>(pub Dtype, pub F);

impl<I, P: Element, F: Fn(I) -> P + Copy + Send + Sync> Make<I> for Multiply<F> {
    type Term = P;
    const DROPS: bool = false;

    #[inline(always)]
    fn term(self, item: I) -> P {
        self.1(item)
    }

    fn on_gpu(self, items: [*const c_void; 2]) -> Making {
        Making::Multiply { dtype: self.0, items }
    }
}

/// The terms of items on the CPU, made as they are read.
struct TermsOf<S, M> {
    items: S,
    make: M,
}

impl<S: Source, M: Make<S::Item>> Numbers<M::Term> for TermsOf<S, M> {
    unsafe fn copy(&self, first: usize, to: &mut [M::Term]) {
        with_simd(
            #[inline(always)]
            || {
                for (index, to) in to.iter_mut().enumerate() {
                    // SAFETY: as the caller vouches.
                    *to = self.make.term(unsafe { self.items.get(first + index) });
                }
            },
        );
    }
}

/// Returns the index of each item, or `count` of one that is not counted. The indices are less, and there are
/// as many items.
fn counted<M: Make<S::Item>, S: Source>(make: M, items: S, indices: &Words, count: usize) -> Vec<u32> {
    let index = |place: usize| {
        // SAFETY: there are as many items as indices.
        let counts = make.counts(unsafe { items.get(place) });
        if counts { indices.get(place) as u32 } else { count as u32 }
    };
    if indices.len() < PARALLEL {
        return (0..indices.len()).map(index).collect();
    }
    let mut counted = vec![0; indices.len()];
    threads::each_part(&mut counted, PARALLEL / 4, &|part, counted| {
        counted.iter_mut().zip(part * (PARALLEL / 4)..).for_each(|(to, place)| *to = index(place));
    });
    counted
}

impl<'a, D: Data<'a>> ByIndex<'a, D> {
    /// Adds up terms on the CPU.
    fn terms_on_host<O: OfTally<M::Term>, M: Make<D::Item>>(
        &self,
        make: M,
        items: D::Slices,
        results: &mut [O::Output],
    ) -> Result<(), Error>
    where
        O::Output: Item,
    {
        let words = self.indices.words()?;
        let terms = TermsOf { items, make };
        let numbers: Option<&dyn Numbers<M::Term>> = Some(&terms);
        if !M::DROPS {
            let all_right = Items { numbers, indices: &words }.reduce::<O>(false, results);
            return if all_right { Ok(()) } else { self.indices.check_on_host(&words, self.count) };
        }
        self.indices.check_on_host(&words, self.count)?;
        let indices = &Words::Short(counted(make, items, &words, self.count).into());
        // One sum more, which is not needed.
        let mut sums = vec![O::Output::zeroed(); self.count + 1];
        Items { numbers, indices }.reduce::<O>(false, &mut sums);
        results.copy_from_slice(&sums[..self.count]);
        Ok(())
    }

    /// What adds up terms on a GPU.
    fn terms<O: OfTally<M::Term>, M: Make<D::Item>>(
        &self,
        make: M,
        gpu: &'static cuda::Gpu,
        items: &D::Pointers,
        results: *mut O::Output,
    ) -> Result<Terms, Error> {
        let items = addresses(items);
        let sums = self.request::<O, M::Term>(gpu, items[0], false, results)?;
        Ok(Terms { sums, making: make.on_gpu(items), result_bytes: size_of::<O::Output>() })
    }
}

/// Adds up terms and waits.
pub(super) fn run<'a, D: Data<'a>, M: Make<D::Item>, O: OfTally<M::Term, Output = V>, V: Item>(
    groups: &ByIndex<'a, D>,
    make: M,
) -> Result<Buffer<V>, Error> {
    let place = groups.data.place()?;
    let device = Device(gpu_of(&place).map_or(Cpu(()), Gpu));
    if groups.data.is_empty() {
        return device.upload(&vec![O::of_tally(&0i128, 0, 0); groups.count]);
    }
    let mut results = device.zeros(groups.count)?;
    match (place, results.whole_mut()) {
        (Cpu(items), Cpu(results)) => groups.terms_on_host::<O, M>(make, items, results)?,
        (Gpu((gpu, items)), Gpu(results)) => {
            let terms = groups.terms::<O, M>(make, gpu, &items, results)?;
            // SAFETY: the types are these, and all is borrowed.
            groups.check(unsafe { gpu.tally_terms(&terms)? })?;
        }
        _ => unreachable!("results lie where the items do"),
    }
    Ok(results)
}

/// Adds up terms on a stream.
pub(super) fn start<'a, D: Data<'a>, M: Make<D::Item>, O: OfTally<M::Term, Output = V>, V: Item>(
    Starting { groups: Running { groups, .. }, stream }: Starting<'_, 'a, D, V>,
    make: M,
) -> Result<Pending<'a, Buffer<V>>, Error> {
    let place = groups.data.place()?;
    let (gpu, items, queue) = match (place, stream.on(gpu_of(&place))?) {
        (Gpu((gpu, items)), Some(queue)) if !groups.data.is_empty() => (gpu, items, queue),
        _ => return Ok(Pending::done(run::<D, M, O, V>(groups, make))),
    };
    let mut results = Device(Gpu(gpu)).zeros(groups.count)?;
    let Gpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
    let terms = groups.terms::<O, M>(make, gpu, &items, places)?;
    // SAFETY: the types are these. The results are kept until the work has ended, or freed, which waits for
    // the device. Items and indices are borrowed as long; if the result is discarded, they are only read.
    let launched = unsafe { queue.launch_terms(&terms)? };
    let (indices, count) = (groups.indices, groups.count);
    Ok(Pending::new(launched, move |launched| check(launched.words()[0], &indices, count).map(|()| results)))
}

/// Adds up terms to places on a device, in the order of a stream.
///
/// # Safety
///
/// As for [`ByIndex::reduce_into`].
pub(super) unsafe fn enqueue<'a, D: Data<'a>, M: Make<D::Item>, O: OfTally<M::Term, Output = V>, V: Item>(
    Enqueuing { groups: Running { groups, .. }, stream, results }: Enqueuing<'_, 'a, '_, D, V>,
    make: M,
) -> Result<(), Error> {
    let on = stream.device();
    let queue = stream.on(results.gpu())?;
    if groups.data.is_empty() {
        // SAFETY: as the caller vouches.
        return unsafe { fill(results, queue, groups.count, O::of_tally(&0i128, 0, 0)) };
    }
    match (groups.data.place()?, results.into_places(), queue) {
        (Cpu(items), Cpu(results), None) => groups.terms_on_host::<O, M>(make, items, results),
        (Gpu((gpu, items)), Gpu(results), Some(queue)) if gpu == queue.gpu() => {
            let terms = groups.terms::<O, M>(make, gpu, &items, results)?;
            // SAFETY: as the caller vouches.
            unsafe { queue.enqueue_terms(&terms) }
        }
        (place, ..) => Err(other_device(gpu_of(&place), &on)),
    }
}

/// The bytes of scratch memory.
pub(super) fn scratch_bytes<'a, D: Data<'a>, M: Make<D::Item>, O: OfTally<M::Term>>(
    groups: &ByIndex<'a, D>,
    make: M,
) -> usize {
    match groups.data.place() {
        Ok(Gpu((gpu, items))) => {
            let terms = groups.terms::<O, M>(make, gpu, &items, null_mut());
            terms.map_or(0, |terms| gpu.bytes_of_terms(&terms))
        }
        _ => 0,
    }
}
