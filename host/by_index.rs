//! Reductions by index: each item has an index, which names the result that it belongs to.

mod in_order;
pub(crate) mod indices;
mod spread;
pub(crate) mod tally;
mod terms;
mod words;

use crate::cpu::Source;
use crate::data::{Data, gpu_of, lies_on, other_device};
use crate::operators::{One, Operators, Parts};
use crate::place::Place::{Cpu, Gpu};
use crate::request::{MOST_ORDERED, TallyTypes, ToWords};
use crate::{
    Block, Buffer, Device, Element, Error, Item, Op, Parameterless, Pending, Reduce, Stream, Sum, Threads,
    ViewMut, cuda,
};
use bytemuck::Zeroable;
use gpu_reduce_kernels::agent::{Agent, Scatter};
use gpu_reduce_kernels::element::Dtype;
use gpu_reduce_kernels::indices::Rows;
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::center::OfSquares;
use gpu_reduce_kernels::op::tally::OfTally;
use gpu_reduce_kernels::segments::Cut;
use gpu_reduce_kernels::terms::Range;
use gpu_reduce_kernels::words::{STATE, Words};
pub use indices::{Indices, Order};
use indices::{elements_of_rows, with_words};
use std::ffi::c_void;
use std::fmt;
use std::ptr::{null, null_mut, without_provenance};
use tally::{Items, Numbers};
use terms::{Multiply, Pick, PickCounted};

/// Items with an index each: what [`Reduce::by_index`] returns.
///
/// Each result depends on the items of its index alone, and on their order if the operator's result does: it
/// has the same bits on every device, for any number of threads, whatever the other items are.
///
/// - **Sums and means of floats are the correctly rounded ones**, those of [`ExactSum`](crate::ExactSum) and
///   [`ExactMean`](crate::ExactMean), in any order of the items. They are added as integers. The same holds
///   for [`NanSum`](crate::NanSum), [`NanMean`](crate::NanMean) and [`SumWhere`](crate::SumWhere).
/// - **[`Var`](struct@crate::Var) and [`Std`](struct@crate::Std)** do not depend on the order of the items
///   either: they add up squared distances from the exact mean. The relative error is at most 8 · 2^-53. A
///   result that is an `f32` is rounded to it afterwards. If squares of distances overflow an `f64`, the
///   result is infinite.
/// - [`ArgMax`](crate::ArgMax) and the other operators that return indices return those of the whole array,
///   of equal items the first.
/// - Every other operator has the bits of reducing the items of an index, in their order, as a slice. The
///   items are sorted first, unless the operator is an extreme, a count, one of bits, [`Any`](crate::Any),
///   [`All`](crate::All), a [`Dot`](crate::Dot) or [`SumSq`](crate::SumSq) of integers, or an
///   [`ExactDot`](crate::ExactDot) of numbers of up to 4 bytes.
///
/// ```
/// use gpu_reduce::{ArgMax, Device, Max, Reduce, Sum};
///
/// let device = Device::default_device();
/// let x = device.upload(&[1.0f32, 2.0, 4.0, 8.0])?;
/// let indices = device.upload(&[2u32, 0, 2, 2])?;
/// let groups = x.by_index(&indices, 3)?;
/// assert_eq!(groups.by(ArgMax).or(0).run()?.to_vec()?, [1, 0, 3]);
/// assert_eq!(groups.reduce::<Sum, 256>()?.to_vec()?, [2.0, 0.0, 13.0]);
/// assert_eq!(groups.by(Max).or(-1.0).run()?.to_vec()?, [2.0, -1.0, 8.0]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct ByIndex<'a, D> {
    data: D,
    indices: Indices<'a>,
    count: usize,
}

impl<D: fmt::Debug> fmt::Debug for ByIndex<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("ByIndex")
            .field("data", &self.data)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// The most results.
const MOST: usize = 1 << 31;

impl<'a, D: Data<'a>> ByIndex<'a, D> {
    pub(crate) fn new(data: D, indices: Indices<'a>, count: usize) -> Result<Self, Error> {
        if data.len() != indices.len() {
            return Err(Error::LengthMismatch { first: data.len(), second: indices.len() });
        }
        if count > MOST {
            return Err(Error::TooManyGroups { count });
        }
        let groups = Self { data, indices, count };
        if !groups.data.is_empty() {
            lies_on(gpu_of(&groups.data.place()?), &indices.device())?;
        }
        Ok(groups)
    }

    /// Returns the number of results.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no results.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reduces the items of each index, and waits. The results lie where the items do.
    ///
    /// # Errors
    ///
    /// [`Error::BadIndex`] names the first index that is negative or too large. [`Error::EmptySegment`] if an
    /// index has no items and the operator has no value for none; [`Error::SeveralDevices`]; and as
    /// [`Reduce::reduce`].
    pub fn reduce<O: Op<D::Item, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
    ) -> Result<Buffer<O::Output>, Error>
    where
        Threads<BLOCK>: Block,
    {
        self.run(O::default(), None, BLOCK)
    }

    /// Describes the reduction by an operator, or by several in a tuple, which is then run as
    /// [`IndexReduction`] says.
    ///
    /// ```
    /// use gpu_reduce::{Mean, Reduce, Sum};
    ///
    /// let x = [1.0f64, 2.0, 6.0];
    /// let (sums, means) = x.by_index(&[1i64, 0, 1], 2)?.by((Sum, Mean)).run()?;
    /// assert_eq!((sums.to_vec()?, means.to_vec()?), (vec![2.0, 7.0], vec![2.0, 3.5]));
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    pub fn by<O: Operators<D::Item, M>, M>(&self, ops: O) -> IndexReduction<'a, D, O, M> {
        IndexReduction { groups: self.clone(), ops, defaults: None, block: 256 }
    }

    /// Starts the reduction of the items of each index on a stream, as [`Reduce::reduce_async`].
    ///
    /// If items are to be sorted and there are 2^31 of them or more, it runs before the call returns.
    pub fn reduce_async<O: Op<D::Item, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
        stream: &Stream,
    ) -> Pending<'a, Buffer<O::Output>>
    where
        Threads<BLOCK>: Block,
    {
        self.start(O::default(), None, BLOCK, stream).unwrap_or_else(Pending::from)
    }

    /// Enqueues the reduction of the items of each index on a stream, as [`Reduce::reduce_into`]. `results`
    /// has a place for each.
    ///
    /// No error can be returned for a bad index, which is found when the stream reaches this work: then no
    /// result is written. If items are to be sorted and there are 2^31 of them or more, the call waits for
    /// the stream and for the results, and cannot be captured.
    ///
    /// # Safety
    ///
    /// As for [`Reduce::reduce_into`]; the indices stay as the items do.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] if `results` has fewer places than there are results, and as
    /// [`Reduce::reduce_into`].
    pub unsafe fn reduce_into<'r, O: Op<D::Item, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
        stream: &Stream,
        results: impl Into<ViewMut<'r, O::Output>>,
    ) -> Result<(), Error>
    where
        Threads<BLOCK>: Block,
    {
        // SAFETY: as the caller vouches.
        unsafe { self.enqueue(O::default(), None, BLOCK, stream, results.into()) }
    }

    /// Enqueues on a stream what [`scatter_add`] does: adds each item to the element of `sums` that its index
    /// names.
    ///
    /// No error can be returned for a bad index, which is found when the stream reaches this work: then
    /// `sums` is unchanged.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce};
    ///
    /// let device = Device::default_device();
    /// let (x, indices) = (device.upload(&[1.0f32, 2.0, 4.0])?, device.upload(&[1i64, 1, 0])?);
    /// let mut sums = device.upload(&[0.5f32, 0.25, 8.0])?;
    /// let stream = device.stream()?;
    /// // SAFETY: all three stay, and are not used otherwise, until the stream has been synchronized.
    /// unsafe { x.by_index(&indices, 3)?.add_into(&stream, &mut sums)? };
    /// stream.synchronize()?;
    /// assert_eq!(sums.to_vec()?, [4.5, 3.25, 8.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// As for [`Reduce::reduce_into`]; the indices stay as the items do.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] if `sums` has fewer elements than there are results; on the CPU
    /// [`Error::BadIndex`]; and as [`Reduce::reduce_into`].
    pub unsafe fn add_into<'r>(
        &self,
        stream: &Stream,
        sums: impl Into<ViewMut<'r, <Sum as Op<D::Item>>::Output>>,
    ) -> Result<(), Error>
    where
        D::Item: Element,
    {
        let sums = sums.into().slice_mut(..self.count)?;
        let on = stream.device();
        let queue = stream.on(sums.gpu())?;
        if self.data.is_empty() {
            return Ok(());
        }
        match (self.data.place()?, sums.into_places(), queue) {
            (Cpu(values), Cpu(sums), None) => {
                tally_on_host::<Sum, _>(&self.indices, Some(&values), true, sums)
            }
            (Gpu((gpu, items)), Gpu(sums), Some(queue)) if gpu == queue.gpu() => {
                let request = self.request::<Sum, D::Item>(gpu, address(&items), true, sums)?;
                // SAFETY: the types are these; as the caller vouches.
                unsafe { queue.enqueue_tally(&request) }
            }
            (place, ..) => Err(other_device(gpu_of(&place), &on)),
        }
    }

    /// Returns the bytes of scratch memory that [`add_into`](Self::add_into) takes if the caller
    /// [lends](Stream::with_scratch) it to the stream; 0 on the CPU.
    pub fn add_scratch_bytes(&self) -> usize
    where
        D::Item: Element,
    {
        match self.data.place() {
            Ok(Gpu((gpu, items))) if !self.data.is_empty() => self
                .request::<Sum, D::Item>(gpu, address(&items), true, null_mut())
                .map_or(0, |request| gpu.tally_bytes(&request)),
            _ => 0,
        }
    }

    /// Adds each item to the result of its index, exactly, and rounds once.
    fn add_to(&self, results: ViewMut<'_, <Sum as Op<D::Item>>::Output>) -> Result<(), Error>
    where
        D::Item: Element,
    {
        let results = results.slice_mut(..self.count)?;
        if self.data.is_empty() {
            return Ok(());
        }
        let on = results.device();
        match (self.data.place()?, results.into_places()) {
            (Cpu(values), Cpu(results)) => {
                tally_on_host::<Sum, _>(&self.indices, Some(&values), true, results)
            }
            (Gpu((gpu, items)), Gpu(results)) if on == Device(Gpu(gpu)) => {
                // SAFETY: the types are these, and all is borrowed.
                unsafe {
                    let request = self.request::<Sum, D::Item>(gpu, address(&items), true, results)?;
                    self.check(gpu.tally(&request)?)
                }
            }
            (place, _) => Err(other_device(gpu_of(&place), &on)),
        }
    }

    /// What adds up items on a GPU.
    fn request<O: OfTally<T>, T: Element>(
        &self,
        gpu: &'static cuda::Gpu,
        items: *const c_void,
        onto: bool,
        results: *mut O::Output,
    ) -> Result<Tally, Error> {
        request::<O, T>(gpu, items, &self.indices, self.count, onto, results)
    }

    /// Returns the error of the first wrong index that a GPU has found.
    fn check(&self, wrong: u64) -> Result<(), Error> {
        check(wrong, &self.indices, self.count)
    }

    /// What reduces to words on a GPU.
    fn to_words<V: Item>(
        &self,
        gpu: &'static cuda::Gpu,
        items: *const c_void,
        words: &Words<V>,
        default: Option<V>,
        results: *mut V,
    ) -> Result<ToWords, Error> {
        let (indices, index_words) = self.indices.on_gpu(gpu)?;
        let rules = *words.rules();
        Ok(ToWords {
            rules,
            items,
            indices,
            index_words,
            len: self.data.len(),
            count: self.count,
            results: results.cast(),
            bytes: size_of::<V>() / rules.parts().len(),
            default: default.map(|default| words::parts_of(&rules, default)),
        })
    }

    /// Reduces to words on the CPU, by the operator of this name.
    ///
    /// # Safety
    ///
    /// The words are those of an operator for such values.
    unsafe fn to_words_on_host<V: Item>(
        &self,
        op: &'static str,
        (words, default): (&Words<V>, Option<V>),
        values: impl Source,
        results: &mut [V],
    ) -> Result<(), Error> {
        let indices = self.indices.words()?;
        self.indices.check_on_host(&indices, self.count)?;
        // SAFETY: as the caller vouches.
        let without = unsafe { words::reduce(words, &values, &indices, default, results) };
        without.map_or(Ok(()), |segment| Err(Error::EmptySegment { op, segment: segment as u64 }))
    }

    /// Reduces to words, and waits. One function for all operators with results of one type.
    ///
    /// # Safety
    ///
    /// `words` belong to the operator that `op` names.
    #[inline(never)]
    unsafe fn run_to_words<V: Item>(
        &self,
        op: &'static str,
        words: &Words<V>,
        default: Option<V>,
    ) -> Result<Buffer<V>, Error> {
        let place = self.data.place()?;
        let device = Device(gpu_of(&place).map_or(Cpu(()), Gpu));
        let mut results = Buffer::for_results(&device, self.count)?;
        match (place, results.whole_mut()) {
            (Cpu(values), Cpu(results)) => {
                // SAFETY: as the caller vouches.
                unsafe { self.to_words_on_host(op, (words, default), values, results)? }
            }
            (Gpu((gpu, items)), Gpu(results)) => {
                let to = self.to_words(gpu, address(&items), words, default, results)?;
                // SAFETY: as the caller vouches, and all is borrowed.
                let state = unsafe { gpu.reduce_to_words(&to)? };
                check_words(state, op, &self.indices, self.count)?;
            }
            _ => unreachable!("results lie where the items do"),
        }
        Ok(results)
    }

    /// Enqueues the reduction. An index that has no value gets `default`, or zero.
    ///
    /// # Safety
    ///
    /// As for [`reduce_into`](Self::reduce_into).
    unsafe fn enqueue<O: Op<D::Item, Output: Item>>(
        &self,
        op: O,
        default: Option<O::Output>,
        block: u32,
        stream: &Stream,
        results: ViewMut<'_, O::Output>,
    ) -> Result<(), Error> {
        let results = results.slice_mut(..self.count)?;
        let groups = Running { groups: self, default, block };
        O::agent().by_index(&op, Enqueuing { groups, stream, results })
    }
}

/// What adds up items on a GPU; of no items, each is 1.
fn request<O: OfTally<T>, T: Element>(
    gpu: &'static cuda::Gpu,
    items: *const c_void,
    indices: &Indices,
    count: usize,
    onto: bool,
    results: *mut O::Output,
) -> Result<Tally, Error> {
    let len = indices.len() as u64;
    let (indices, index_words) = indices.on_gpu(gpu)?;
    let types = if onto { TallyTypes::counted::<O, T>() } else { TallyTypes::of::<O, T>() };
    Ok(Tally { types, items, indices, index_words, len, count: count as u32, onto, results: results.cast() })
}

/// Adds up numbers on the CPU; of none, each is 1.
fn tally_on_host<O: OfTally<T>, T: Element>(
    indices: &Indices,
    numbers: Option<&dyn Numbers<T>>,
    onto: bool,
    results: &mut [O::Output],
) -> Result<(), Error> {
    let words = indices.words()?;
    if (Items { numbers, indices: &words }).reduce::<O>(onto, results) {
        return Ok(());
    }
    indices.check_on_host(&words, results.len())
}

/// Items that are added up on a GPU.
pub struct Tally {
    pub types: &'static TallyTypes,
    /// None if each item is 1.
    pub items: *const c_void,
    pub indices: *const u32,
    pub index_words: u32,
    pub len: u64,
    pub count: u32,
    /// Whether the sums are added to the results.
    pub onto: bool,
    pub results: *mut c_void,
}

/// The address of the items of one array.
fn address(items: &impl Input) -> *const c_void {
    addresses(items)[0]
}

/// The addresses of the items of two arrays; of one, twice the same.
fn addresses(items: &impl Input) -> [*const c_void; 2] {
    let (mut addresses, mut arrays) = ([null(); 2], 0);
    items.arrays(&mut |at, _| {
        addresses[arrays..].fill(without_provenance(at as usize));
        arrays += 1;
    });
    addresses
}

impl<'a, D: Data<'a>> Parts<'a, D::Item> for ByIndex<'a, D> {
    fn run<O: Op<D::Item, Output: Item>>(
        &self,
        op: O,
        default: Option<O::Output>,
        block: u32,
    ) -> Result<Buffer<O::Output>, Error> {
        O::agent().by_index(&op, Running { groups: self, default, block })
    }

    fn start<O: Op<D::Item, Output: Item>>(
        &self,
        op: O,
        default: Option<O::Output>,
        block: u32,
        stream: &Stream,
    ) -> Result<Pending<'a, Buffer<O::Output>>, Error> {
        let groups = Running { groups: self, default, block };
        O::agent().by_index(&op, Starting { groups, stream })
    }

    fn counted(&self) -> Result<Self, Error> {
        Ok(self.clone())
    }
}

/// The reduction of each index's items, for which the caller waits.
struct Running<'g, 'a, D, V> {
    groups: &'g ByIndex<'a, D>,
    default: Option<V>,
    block: u32,
}

impl<'a, D: Data<'a>, V: Item> Scatter<D::Item, V> for Running<'_, 'a, D, V> {
    type Outcome = Result<Buffer<V>, Error>;

    fn in_order<O: Op<D::Item, Output = V>>(self, op: &O) -> Result<Buffer<V>, Error> {
        in_order::run(self, op)
    }

    fn tally<O: OfTally<D::Item, Output = V>>(self, _: &O) -> Result<Buffer<V>, Error>
    where
        D::Item: Element,
    {
        let groups = self.groups;
        let place = groups.data.place()?;
        let device = Device(gpu_of(&place).map_or(Cpu(()), Gpu));
        if groups.data.is_empty() {
            return device.upload(&vec![O::of_tally(&0i128, 0, 0); groups.count]);
        }
        let mut results = Buffer::for_results(&device, groups.count)?;
        match (place, results.whole_mut()) {
            (Cpu(values), Cpu(results)) => {
                tally_on_host::<O, _>(&groups.indices, Some(&values), false, results)?
            }
            (Gpu((gpu, items)), Gpu(results)) => {
                let request = groups.request::<O, D::Item>(gpu, address(&items), false, results)?;
                // SAFETY: the types are these, and all is borrowed.
                groups.check(unsafe { gpu.tally(&request)? })?;
            }
            _ => unreachable!("results lie where the items do"),
        }
        Ok(results)
    }

    fn tally_where<O: OfTally<D::Item, Output = V>>(
        self,
        op: &O,
        range: Range<D::Item>,
    ) -> Result<Buffer<V>, Error>
    where
        D::Item: Element,
    {
        if range.holds_for_integers() {
            self.tally(op)
        } else if O::COUNTS {
            terms::run::<D, _, O, V>(self.groups, PickCounted(range))
        } else {
            terms::run::<D, _, O, V>(self.groups, Pick(range))
        }
    }

    fn tally_products<O: OfTally<P, Output = V>, P: Element>(
        self,
        _: &O,
        dtype: Dtype,
        multiply: impl Fn(D::Item) -> P + Copy + Send + Sync,
    ) -> Result<Buffer<V>, Error> {
        terms::run::<D, _, O, V>(self.groups, Multiply(dtype, multiply))
    }

    fn spread<O: OfSquares<D::Item>>(self, op: &O) -> Result<Buffer<V>, Error>
    where
        D::Item: Element<Real = V>,
    {
        spread::run(self.groups, op)
    }

    fn to_words<O: Op<D::Item, Output = V>>(self, _: &O, words: Words<V>) -> Result<Buffer<V>, Error> {
        // SAFETY: the words are the operator's.
        unsafe { self.groups.run_to_words(O::NAME, &words, self.default) }
    }
}

/// The reduction of each index's items on a stream.
struct Starting<'g, 'a, D, V> {
    groups: Running<'g, 'a, D, V>,
    stream: &'g Stream<'g>,
}

impl<'a, D: Data<'a>, V: Item> Scatter<D::Item, V> for Starting<'_, 'a, D, V> {
    type Outcome = Result<Pending<'a, Buffer<V>>, Error>;

    fn in_order<O: Op<D::Item, Output = V>>(self, op: &O) -> Self::Outcome {
        in_order::start(self, op)
    }

    fn tally<O: OfTally<D::Item, Output = V>>(self, op: &O) -> Self::Outcome
    where
        D::Item: Element,
    {
        let groups = self.groups.groups;
        let place = groups.data.place()?;
        let (gpu, items, queue) = match (place, self.stream.on(gpu_of(&place))?) {
            (Gpu((gpu, items)), Some(queue)) if !groups.data.is_empty() => (gpu, items, queue),
            _ => return Ok(Pending::done(self.groups.tally(op))),
        };
        let mut results = Buffer::room(gpu, groups.count)?;
        let Gpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
        let request = groups.request::<O, D::Item>(gpu, address(&items), false, places)?;
        // SAFETY: the types are these. The results are kept until the work has ended, or freed, which waits
        // for the device. Items and indices are borrowed as long; if the result is discarded, they are only
        // read.
        let launched = unsafe { queue.launch_tally(&request)? };
        let (indices, count) = (groups.indices, groups.count);
        Ok(Pending::new(launched, move |launched| {
            check(launched.words()[0], &indices, count).map(|()| results)
        }))
    }

    fn tally_where<O: OfTally<D::Item, Output = V>>(self, op: &O, range: Range<D::Item>) -> Self::Outcome
    where
        D::Item: Element,
    {
        if range.holds_for_integers() {
            self.tally(op)
        } else if O::COUNTS {
            terms::start::<D, _, O, V>(self, PickCounted(range))
        } else {
            terms::start::<D, _, O, V>(self, Pick(range))
        }
    }

    fn tally_products<O: OfTally<P, Output = V>, P: Element>(
        self,
        _: &O,
        dtype: Dtype,
        multiply: impl Fn(D::Item) -> P + Copy + Send + Sync,
    ) -> Self::Outcome {
        terms::start::<D, _, O, V>(self, Multiply(dtype, multiply))
    }

    fn spread<O: OfSquares<D::Item>>(self, op: &O) -> Self::Outcome
    where
        D::Item: Element<Real = V>,
    {
        spread::start(self, op)
    }

    fn to_words<O: Op<D::Item, Output = V>>(self, op: &O, words: Words<V>) -> Self::Outcome {
        let Running { groups, default, .. } = self.groups;
        let place = groups.data.place()?;
        let (gpu, items, queue) = match (place, self.stream.on(gpu_of(&place))?) {
            (Gpu((gpu, items)), Some(queue)) => (gpu, items, queue),
            _ => return Ok(Pending::done(self.groups.to_words(op, words))),
        };
        let mut results = Buffer::room(gpu, groups.count)?;
        let Gpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
        let to = groups.to_words(gpu, address(&items), &words, default, places)?;
        // SAFETY: the rules are the operator's; for the memory see `tally`.
        let launched = unsafe { queue.launch_to_words(&to)? };
        let (indices, count) = (groups.indices, groups.count);
        Ok(Pending::new(launched, move |launched| {
            let state = [launched.words()[0], launched.words()[1]];
            check_words(state, O::NAME, &indices, count).map(|()| results)
        }))
    }
}

/// The reduction of each index's items to places on a device, in the order of a stream.
struct Enqueuing<'g, 'a, 'r, D, V: Item> {
    groups: Running<'g, 'a, D, V>,
    stream: &'g Stream<'g>,
    results: ViewMut<'r, V>,
}

impl<'a, D: Data<'a>, V: Item> Scatter<D::Item, V> for Enqueuing<'_, 'a, '_, D, V> {
    type Outcome = Result<(), Error>;

    fn in_order<O: Op<D::Item, Output = V>>(self, op: &O) -> Result<(), Error> {
        // SAFETY: as the caller of `enqueue` vouches.
        unsafe { in_order::enqueue(self, op) }
    }

    fn tally<O: OfTally<D::Item, Output = V>>(self, _: &O) -> Result<(), Error>
    where
        D::Item: Element,
    {
        let Self { groups: Running { groups, .. }, stream, results } = self;
        let on = stream.device();
        let queue = stream.on(results.gpu())?;
        if groups.data.is_empty() {
            // SAFETY: as the caller of `enqueue` vouches.
            return unsafe { fill(results, queue, groups.count, O::of_tally(&0i128, 0, 0)) };
        }
        match (groups.data.place()?, results.into_places(), queue) {
            (Cpu(values), Cpu(results), None) => {
                tally_on_host::<O, _>(&groups.indices, Some(&values), false, results)
            }
            (Gpu((gpu, items)), Gpu(results), Some(queue)) if gpu == queue.gpu() => {
                let request = groups.request::<O, D::Item>(gpu, address(&items), false, results)?;
                // SAFETY: as the caller of `enqueue` vouches.
                unsafe { queue.enqueue_tally(&request) }
            }
            (place, ..) => Err(other_device(gpu_of(&place), &on)),
        }
    }

    fn tally_where<O: OfTally<D::Item, Output = V>>(self, op: &O, range: Range<D::Item>) -> Result<(), Error>
    where
        D::Item: Element,
    {
        if range.holds_for_integers() {
            self.tally(op)
        } else if O::COUNTS {
            // SAFETY: as the caller of `enqueue` vouches.
            unsafe { terms::enqueue::<D, _, O, V>(self, PickCounted(range)) }
        } else {
            // SAFETY: as the caller of `enqueue` vouches.
            unsafe { terms::enqueue::<D, _, O, V>(self, Pick(range)) }
        }
    }

    fn tally_products<O: OfTally<P, Output = V>, P: Element>(
        self,
        _: &O,
        dtype: Dtype,
        multiply: impl Fn(D::Item) -> P + Copy + Send + Sync,
    ) -> Result<(), Error> {
        // SAFETY: as the caller of `enqueue` vouches.
        unsafe { terms::enqueue::<D, _, O, V>(self, Multiply(dtype, multiply)) }
    }

    fn spread<O: OfSquares<D::Item>>(self, op: &O) -> Result<(), Error>
    where
        D::Item: Element<Real = V>,
    {
        // SAFETY: as the caller of `enqueue` vouches.
        unsafe { spread::enqueue(self, op) }
    }

    fn to_words<O: Op<D::Item, Output = V>>(self, _: &O, words: Words<V>) -> Result<(), Error> {
        let Self { groups: Running { groups, default, .. }, stream, results } = self;
        let default = Some(default.unwrap_or(Zeroable::zeroed()));
        let on = stream.device();
        let queue = stream.on(results.gpu())?;
        match (groups.data.place()?, results.into_places(), queue) {
            (Cpu(values), Cpu(results), None) => {
                // SAFETY: the words are the operator's.
                unsafe { groups.to_words_on_host(O::NAME, (&words, default), values, results) }
            }
            (Gpu((gpu, items)), Gpu(results), Some(queue)) if gpu == queue.gpu() => {
                let to = groups.to_words(gpu, address(&items), &words, default, results)?;
                // SAFETY: the rules are the operator's; as the caller of `enqueue` vouches.
                unsafe { queue.enqueue_to_words(&to) }
            }
            (place, ..) => Err(other_device(gpu_of(&place), &on)),
        }
    }
}

/// Enqueues what fills `count` places with a value.
///
/// # Safety
///
/// As for [`ByIndex::reduce_into`].
unsafe fn fill<V: Item>(
    results: ViewMut<V>,
    queue: Option<&cuda::GpuStream>,
    count: usize,
    value: V,
) -> Result<(), Error> {
    match (results.into_places(), queue) {
        (Cpu(results), _) => {
            results.fill(value);
            Ok(())
        }
        (Gpu(results), Some(queue)) => (0..count).try_for_each(|index| {
            // SAFETY: as the caller vouches.
            unsafe { queue.fill(results.wrapping_add(index).cast(), bytemuck::bytes_of(&value)) }
        }),
        (Gpu(_), None) => unreachable!("the stream is one of the results' device"),
    }
}

/// Returns the error of the first wrong index that a GPU has found.
fn check(wrong: u64, indices: &Indices, count: usize) -> Result<(), Error> {
    if wrong == Cut::NOTHING { Ok(()) } else { Err(indices.error(wrong, count)) }
}

/// Returns the error of the first wrong index, or of the first index without a result, that a GPU has found
/// while it reduced to words.
fn check_words(
    [wrong, empty]: [u64; STATE],
    op: &'static str,
    indices: &Indices,
    count: usize,
) -> Result<(), Error> {
    match (wrong, empty) {
        (0, 0) => Ok(()),
        (0, _) => Err(Error::EmptySegment { op, segment: !empty }),
        _ => Err(indices.error(!wrong, count)),
    }
}

/// The reduction of each index's items, which has not started: what [`ByIndex::by`] returns.
///
/// [`or`](Self::or) sets the result of indices that have no value, and [`block`](Self::block) chooses BLOCK,
/// which is 256 otherwise. Then [`run`](Self::run), [`run_async`](Self::run_async) or
/// [`run_into`](Self::run_into) runs it. Several operators, in a tuple, run one after another, and give a
/// buffer each.
#[must_use = "a reduction does nothing until it is run"]
pub struct IndexReduction<'a, D: Data<'a>, O: Operators<D::Item, M>, M> {
    groups: ByIndex<'a, D>,
    ops: O,
    defaults: Option<O::Outputs>,
    block: u32,
}

impl<'a, D: Data<'a> + fmt::Debug, O: Operators<D::Item, M>, M> fmt::Debug for IndexReduction<'a, D, O, M> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { groups, block, .. } = self;
        f.debug_struct("IndexReduction").field("groups", groups).field("block", block).finish_non_exhaustive()
    }
}

impl<'a, D: Data<'a>, O: Operators<D::Item, M>, M> IndexReduction<'a, D, O, M> {
    /// Sets the result of indices that have no value: for a tuple, a tuple of results.
    pub fn or(self, defaults: O::Outputs) -> Self {
        Self { defaults: Some(defaults), ..self }
    }

    /// Chooses BLOCK, as [`Reduction::block`](crate::Reduction::block).
    pub fn block<const BLOCK: u32>(self) -> Self
    where
        Threads<BLOCK>: Block,
    {
        Self { block: BLOCK, ..self }
    }

    /// Reduces the items of each index, and waits. The results lie where the items do.
    ///
    /// # Errors
    ///
    /// As [`ByIndex::reduce`]; of several operators, the error of the first that has one. After
    /// [`or`](Self::or) there is no [`Error::EmptySegment`].
    pub fn run(self) -> Result<O::Buffers, Error> {
        self.ops.run(&self.groups, self.defaults, self.block)
    }

    /// Starts the reduction on a stream, as [`ByIndex::reduce_async`].
    pub fn run_async(self, stream: &Stream) -> Pending<'a, O::Buffers> {
        self.ops.start(&self.groups, self.defaults, self.block, stream)
    }
}

impl<'a, D: Data<'a>, O: Op<D::Item, Output: Item>> IndexReduction<'a, D, O, One> {
    /// Enqueues the reduction on a stream, as [`ByIndex::reduce_into`]. An index that has no value gets the
    /// result that [`or`](Self::or) set, or zero.
    ///
    /// # Safety
    ///
    /// As for [`ByIndex::reduce_into`].
    ///
    /// # Errors
    ///
    /// As [`ByIndex::reduce_into`].
    pub unsafe fn run_into<'r>(
        self,
        stream: &Stream,
        results: impl Into<ViewMut<'r, O::Output>>,
    ) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        unsafe { self.groups.enqueue(self.ops, self.defaults, self.block, stream, results.into()) }
    }

    /// Returns the bytes of scratch memory that [`run_into`](Self::run_into) takes if the caller
    /// [lends](Stream::with_scratch) it to the stream; 0 on the CPU. Sorted items are copied to this memory.
    pub fn scratch_bytes(&self) -> usize {
        O::agent().by_index(&self.ops, ScratchBytes(&self.groups, self.block))
    }
}

/// The bytes of scratch memory of a reduction with a BLOCK.
struct ScratchBytes<'g, 'a, D>(&'g ByIndex<'a, D>, u32);

impl<'a, D: Data<'a>, V: Item> Scatter<D::Item, V> for ScratchBytes<'_, 'a, D> {
    type Outcome = usize;

    fn in_order<O: Op<D::Item, Output = V>>(self, op: &O) -> usize {
        in_order::scratch_bytes(self.0, op, self.1)
    }

    fn tally<O: OfTally<D::Item, Output = V>>(self, _: &O) -> usize
    where
        D::Item: Element,
    {
        match self.0.data.place() {
            Ok(Gpu((gpu, items))) => self
                .0
                .request::<O, D::Item>(gpu, address(&items), false, null_mut())
                .map_or(0, |request| gpu.tally_bytes(&request)),
            _ => 0,
        }
    }

    fn tally_where<O: OfTally<D::Item, Output = V>>(self, op: &O, range: Range<D::Item>) -> usize
    where
        D::Item: Element,
    {
        if range.holds_for_integers() {
            self.tally(op)
        } else if O::COUNTS {
            terms::scratch_bytes::<D, _, O>(self.0, PickCounted(range))
        } else {
            terms::scratch_bytes::<D, _, O>(self.0, Pick(range))
        }
    }

    fn tally_products<O: OfTally<P, Output = V>, P: Element>(
        self,
        _: &O,
        dtype: Dtype,
        multiply: impl Fn(D::Item) -> P + Copy + Send + Sync,
    ) -> usize {
        terms::scratch_bytes::<D, _, O>(self.0, Multiply(dtype, multiply))
    }

    fn spread<O: OfSquares<D::Item>>(self, op: &O) -> usize
    where
        D::Item: Element<Real = V>,
    {
        spread::scratch_bytes(self.0, op)
    }

    fn to_words<O: Op<D::Item, Output = V>>(self, _: &O, words: Words<V>) -> usize {
        match self.0.data.place() {
            Ok(Gpu((gpu, items))) => self
                .0
                .to_words(gpu, address(&items), &words, None, null_mut())
                .map_or(0, |to| gpu.bytes_to_words(&to)),
            _ => 0,
        }
    }
}

/// Counts how often each index occurs, as NumPy's `bincount`.
///
/// ```
/// let counts = gpu_reduce::bincount(&[2u32, 0, 2, 2], 4)?;
/// assert_eq!(counts.to_vec()?, [1, 0, 3, 0]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// As [`ByIndex::reduce`].
pub fn bincount<'a>(indices: impl Into<Indices<'a>>, count: usize) -> Result<Buffer<u64>, Error> {
    let indices = indices.into();
    if count > MOST {
        return Err(Error::TooManyGroups { count });
    }
    let device = indices.device();
    let mut counts = device.zeros::<u64>(count)?;
    if indices.is_empty() {
        return Ok(counts);
    }
    match (&device.0, counts.whole_mut()) {
        (Cpu(()), Cpu(counts)) => {
            tally_on_host::<Sum, u8>(&indices, None, false, counts)?;
        }
        (Gpu(gpu), Gpu(counts)) => {
            let request = request::<Sum, u8>(gpu, null(), &indices, count, false, counts)?;
            // SAFETY: the types are these, and all is borrowed.
            check(unsafe { gpu.tally(&request)? }, &indices, count)?;
        }
        _ => unreachable!("counts lie where the indices do"),
    }
    Ok(counts)
}

/// Sums the weights of each index, as NumPy's `bincount` with weights. Sums of floats are the correctly
/// rounded ones, in any order.
///
/// ```
/// let sums = gpu_reduce::bincount_weighted(&[2u32, 0, 2], &[1.0f64, 0.5, 0.25], 3)?;
/// assert_eq!(sums.to_vec()?, [0.5, 0.0, 1.25]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::LengthMismatch`], [`Error::DeviceMismatch`], and as [`ByIndex::reduce`].
pub fn bincount_weighted<'a, D: Reduce<Item: Element> + ?Sized>(
    indices: impl Into<Indices<'a>>,
    weights: &'a D,
    count: usize,
) -> Result<Buffer<<Sum as Op<D::Item>>::Output>, Error>
where
    Sum: Op<D::Item, Output: Item>,
{
    weights.by_index(indices, count)?.run(Sum, None, 256)
}

/// Makes indices for the elements of rows, of `columns` elements each, from indices that number the rows: `x`
/// is an array of rows, and `x.by_index(&row_indices(&indices, columns, count)?, count * columns)` reduces
/// each column of the rows of an index, as PyTorch's `index_add_` of two dimensions. They lie where the
/// indices do.
///
/// ```
/// use gpu_reduce::{Device, Reduce, Sum, row_indices};
///
/// let device = Device::default_device();
/// let gradients = device.upload(&[1.0f32, 2.0, 10.0, 20.0, 100.0, 200.0])?;
/// let tokens = device.upload(&[1i64, 0, 1])?;
/// let indices = row_indices(&tokens, 2, 2)?;
/// let sums = gradients.by_index(&indices, 2 * 2)?.reduce::<Sum, 256>()?;
/// assert_eq!(sums.to_vec()?, [10.0, 20.0, 101.0, 202.0]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::BadIndex`] names the first row whose index is negative or too large. [`Error::TooManyGroups`] for
/// more than 2^31 results, [`Error::TooManyKeys`] for 2^31 elements on a GPU, [`Error::OutOfMemory`],
/// [`Error::Launch`], [`Error::Driver`].
pub fn row_indices<'a>(
    indices: impl Into<Indices<'a>>,
    columns: usize,
    count: usize,
) -> Result<Buffer<u32>, Error> {
    let indices = indices.into();
    let results = count.saturating_mul(columns);
    if results > MOST {
        return Err(Error::TooManyGroups { count: results });
    }
    let len = indices.len().saturating_mul(columns);
    let Gpu(gpu) = indices.device().0 else {
        let words = indices.words()?;
        indices.check_on_host(&words, count)?;
        return with_words!(words, |rows| Ok(Buffer::of_host(elements_of_rows(rows, columns))));
    };
    if len > MOST_ORDERED {
        return Err(Error::TooManyKeys { len });
    }
    let mut elements = Buffer::room(gpu, len)?;
    if let (Gpu(elements), 1..) = (elements.whole_mut(), len) {
        let (at, index_words) = indices.on_gpu(gpu)?;
        let (len, columns, count_of_rows) = (len as u32, columns as u32, count as u32);
        let rows = Rows {
            indices: at,
            index_words,
            count: count_of_rows,
            len,
            columns,
            elements,
            wrong: null_mut(),
        };
        // SAFETY: the indices are borrowed, and there is room for all.
        check(unsafe { gpu.expand(rows)? }, &indices, count)?;
    }
    Ok(elements)
}

/// Adds each element to the element of `sums` that its index names, as PyTorch's `index_add_`. For rows see
/// [`row_indices`].
///
/// Each sum, with what was there, is computed exactly and rounded once, so that the order of the elements
/// does not matter. An element to which nothing is added keeps its bits. After an error `sums` is unchanged.
///
/// ```
/// use gpu_reduce::Device;
///
/// let device = Device::default_device();
/// let (x, indices) = (device.upload(&[1.0f32, 2.0, 4.0])?, device.upload(&[1i64, 1, 0])?);
/// let mut sums = device.upload(&[0.5f32, 0.25, 8.0])?;
/// gpu_reduce::scatter_add(&x, &indices, &mut sums)?;
/// assert_eq!(sums.to_vec()?, [4.5, 3.25, 8.0]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::LengthMismatch`], [`Error::DeviceMismatch`], and as [`ByIndex::reduce`].
pub fn scatter_add<'a, 'r, D: Reduce<Item: Element> + ?Sized>(
    x: &'a D,
    indices: impl Into<Indices<'a>>,
    sums: impl Into<ViewMut<'r, <Sum as Op<D::Item>>::Output>>,
) -> Result<(), Error>
where
    Sum: Op<D::Item, Output: Item>,
{
    let sums = sums.into();
    x.by_index(indices, sums.len())?.add_to(sums)
}
