//! Many reductions at once: segments, rows and columns of an array, each with the bits of reducing that slice
//! alone.

mod sharded;

use crate::cpu::{ByColumns, ColumnsOnCpu, Many, Operator};
use crate::data::{Data, gpu_of, lies_on, other_device};
use crate::operators::{One, Parts};
use crate::place::Place::{Cpu, Gpu};
use crate::request::{Operation, Shape, Types};
use crate::sharded::Located;
use crate::steps::{Fold, ToPlaces, Way};
use crate::{
    Block, Buffer, Device, Element, Error, Item, Op, Operators, Parameterless, Pending, Runs, Stream,
    Threads, View, ViewMut, cpu, cuda,
};
use bytemuck::Zeroable;
use gpu_reduce_kernels::columns::Columns;
use gpu_reduce_kernels::segments::{Cut, SegmentBounds};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{dangling, null_mut};

/// Segments of an array, each of which reduces by itself.
///
/// [`Reduce::segments`](crate::Reduce::segments), [`Reduce::rows`](crate::Reduce::rows),
/// [`Reduce::columns`](crate::Reduce::columns) and [`Reshaped::axis`](crate::Reshaped::axis) return them.
///
/// ```
/// use gpu_reduce::{ArgMax, Device, Max, Mean, Reduce, Sum};
///
/// let x = Device::cpu().upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let segments = x.segments(&[0u32, 1, 1, 6])?;
/// assert_eq!(segments.reduce::<Sum, 256>()?.to_vec()?, [1.0, 0.0, 20.0]);
/// assert_eq!(segments.by(Max).or(-1.0).run()?.to_vec()?, [1.0, -1.0, 6.0]);
/// assert_eq!(x.rows(3)?.reduce::<Mean, 256>()?.to_vec()?, [2.0, 5.0]);
/// assert_eq!(x.rows(2)?.reduce::<ArgMax, 256>()?.to_vec()?, [1, 1, 1]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Segments<'a, D> {
    data: D,
    bounds: Bounds<'a>,
    /// The number of segments; or the most that there may be, if `number` has it.
    count: u64,
    number: Option<View<'a, u64>>,
    lifetime: PhantomData<&'a ()>,
}

impl<D: fmt::Debug> fmt::Debug for Segments<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Segments")
            .field("data", &self.data)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// Where segments lie: offsets, or the [`Runs`] of keys.
///
/// Offsets are `u32` or `u64`, on the host or on the data's device. They do not descend, and there is one
/// more of them than there are segments. Of [`Runs`], there are as many keys as items, on the data's device.
#[derive(Clone, Copy, Debug)]
pub struct Offsets<'a>(Bounds<'a>, Option<OfKeys<'a>>);

/// What is known of segments that are runs of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfKeys<'a> {
    /// The number of keys.
    pub len: usize,
    /// The number of runs, if it may be less than the number of segments.
    pub number: Option<View<'a, u64>>,
}

#[derive(Clone, Copy, Debug)]
enum Bounds<'a> {
    /// Segments of one length.
    Length(u64),
    /// Columns of `reduced` items each, whose items lie `inner` apart.
    Columns {
        reduced: u64,
        inner: u64,
    },
    Short(View<'a, u32>),
    Long(View<'a, u64>),
}

/// What happens to segments that have no items.
#[derive(Clone, Copy)]
struct IfEmpty<V> {
    /// The operator's name.
    op: &'static str,
    default: Option<V>,
    /// Whether an empty segment has a value.
    is_defined: bool,
}

impl<V: Copy> IfEmpty<V> {
    fn of<I: Copy + 'static, O: Op<I, Output = V>>(op: &O, default: Option<V>) -> Self {
        let is_defined = default.or_else(|| op.finish(op.identity(), 0)).is_some();
        Self { op: O::NAME, default, is_defined }
    }

    fn error(&self, segment: u64) -> Error {
        Error::EmptySegment { op: self.op, segment }
    }
}

macro_rules! offsets {
    ($($type:ident $bounds:ident)*) => {$(
        impl<'a> From<View<'a, $type>> for Offsets<'a> {
            fn from(offsets: View<'a, $type>) -> Self {
                Self(Bounds::$bounds(offsets), None)
            }
        }

        impl<'a> From<&'a Buffer<$type>> for Offsets<'a> {
            fn from(offsets: &'a Buffer<$type>) -> Self {
                offsets.view().into()
            }
        }

        impl<'a> From<&'a [$type]> for Offsets<'a> {
            fn from(offsets: &'a [$type]) -> Self {
                View::host(offsets).into()
            }
        }

        impl<'a> From<&'a Vec<$type>> for Offsets<'a> {
            fn from(offsets: &'a Vec<$type>) -> Self {
                offsets[..].into()
            }
        }

        impl<'a, const N: usize> From<&'a [$type; N]> for Offsets<'a> {
            fn from(offsets: &'a [$type; N]) -> Self {
                offsets[..].into()
            }
        }
    )*};
}

offsets! { u32 Short u64 Long }

impl<'a, K: Element> From<&'a Runs<K>> for Offsets<'a> {
    fn from(runs: &'a Runs<K>) -> Self {
        Self(runs.offsets().0, Some(runs.of_keys()))
    }
}

impl Bounds<'_> {
    /// The device where offsets lie; the CPU for lengths.
    fn device(&self) -> Device {
        match self {
            Self::Length(_) | Self::Columns { .. } => Device::cpu(),
            Self::Short(offsets) => offsets.device(),
            Self::Long(offsets) => offsets.device(),
        }
    }

    /// Returns a function from a segment's index to its start, for items on the CPU.
    fn on_host(&self) -> Result<impl Fn(u64) -> u64 + Sync, Error> {
        match *self {
            Self::Short(View(Gpu(part))) => Err(elsewhere(part.gpu, &Device::cpu())),
            Self::Long(View(Gpu(part))) => Err(elsewhere(part.gpu, &Device::cpu())),
            bounds => Ok(move |index| match bounds {
                Self::Columns { .. } => unreachable!("columns are not ranges"),
                Self::Length(length) => index * length,
                Self::Short(View(Cpu(offsets))) => offsets[index as usize].into(),
                Self::Long(View(Cpu(offsets))) => offsets[index as usize],
                Self::Short(_) | Self::Long(_) => unreachable!("these lie on a GPU"),
            }),
        }
    }

    /// Returns the shape for a GPU. Offsets on the host are copied there.
    fn on_gpu(
        self,
        gpu: &'static cuda::Gpu,
        copies: &mut Copies,
        count: u64,
        len: u64,
    ) -> Result<Shape, Error> {
        Ok(match self {
            Self::Columns { reduced, inner } => Shape::Columns(Columns { count, reduced, inner }),
            Self::Length(length) => Shape::Segments(SegmentBounds::of_length(length, count, len)),
            Self::Short(offsets) => {
                let offsets = pointer(offsets, gpu, &mut copies.short)?;
                Shape::Segments(SegmentBounds::of_offsets(offsets, count, len))
            }
            Self::Long(offsets) => {
                let offsets = pointer(offsets, gpu, &mut copies.long)?;
                Shape::Segments(SegmentBounds::of_offsets(offsets, count, len))
            }
        })
    }

    /// Copies a range of offsets to the host; returns none for rows and columns.
    fn range(self, range: Range<u64>) -> Result<Vec<u64>, Error> {
        let range = range.start as usize..range.end as usize;
        Ok(match self {
            Self::Length(_) | Self::Columns { .. } => Vec::new(),
            Self::Short(offsets) => offsets.slice(range)?.to_vec()?.into_iter().map(u64::from).collect(),
            Self::Long(offsets) => offsets.slice(range)?.to_vec()?,
        })
    }

    /// Returns the error that a GPU found in segments of `len` items, as [`Cut::wrong`] says it, if any.
    fn error<V: Copy>(self, wrong: u64, len: u64, if_empty: IfEmpty<V>) -> Option<Error> {
        match wrong {
            Cut::NOTHING => None,
            wrong if wrong & Cut::NO_VALUE != 0 => Some(if_empty.error(wrong & !Cut::NO_VALUE)),
            segment => Some(self.bad_offset(segment, len)),
        }
    }

    /// Returns the error of segment `index`, which a GPU has found to have bad offsets.
    fn bad_offset(self, index: u64, len: u64) -> Error {
        match self.range(index..index + 2).map(|offsets| check(&offsets, len)) {
            Ok(Err(Error::BadOffset { index: of_two, offset, before, len })) => {
                Error::BadOffset { index: index + of_two, offset, before, len }
            }
            Ok(Err(error)) | Err(error) => error,
            // The offsets have been written since.
            Ok(Ok(())) => Error::BadOffset { index: index + 1, offset: 0, before: 0, len },
        }
    }
}

/// Offsets that were copied to a GPU. They are kept as long as they are used.
#[derive(Default)]
struct Copies {
    short: Option<Buffer<u32>>,
    long: Option<Buffer<u64>>,
}

/// Returns where offsets lie on a GPU; those on the host are copied there.
fn pointer<T: Item>(
    offsets: View<'_, T>,
    gpu: &'static cuda::Gpu,
    copy: &mut Option<Buffer<T>>,
) -> Result<*const T, Error> {
    let device = Device(Gpu(gpu));
    let offsets = match offsets.0 {
        Cpu(offsets) => copy.insert(device.upload(offsets)?).view(),
        Gpu(_) => offsets,
    };
    match offsets.0 {
        Gpu(part) if part.gpu == gpu => Ok(part.pointer()),
        Gpu(part) => Err(elsewhere(part.gpu, &device)),
        Cpu(_) => unreachable!("they were copied"),
    }
}

/// The error of offsets that do not lie where the items do.
fn elsewhere(offsets: &'static cuda::Gpu, device: &Device) -> Error {
    Error::DeviceMismatch { buffer: offsets.to_string(), device: device.to_string() }
}

/// Fails if an offset is below the one before, or past the end.
fn check<T: Copy + Into<u64>>(offsets: &[T], len: u64) -> Result<(), Error> {
    let mut before = 0;
    for (index, &offset) in offsets.iter().enumerate() {
        let offset = offset.into();
        if offset < before || offset > len {
            return Err(Error::BadOffset { index: index as u64, offset, before, len });
        }
        before = offset;
    }
    Ok(())
}

impl<'a, D: Data<'a>> Segments<'a, D> {
    /// The segments between offsets.
    pub(crate) fn new(data: D, Offsets(bounds, of_keys): Offsets<'a>) -> Result<Self, Error> {
        let offsets = match bounds {
            Bounds::Length(_) | Bounds::Columns { .. } => unreachable!("`Offsets` has offsets"),
            Bounds::Short(offsets) => offsets.len(),
            Bounds::Long(offsets) => offsets.len(),
        };
        let Some(count) = offsets.checked_sub(1) else { return Err(Error::NoOffsets) };
        let segments = Self { data, bounds, count: count as u64, number: None, lifetime: PhantomData };
        let data = &segments.data;
        if let Some(OfKeys { len, number }) = of_keys {
            if len != data.len() {
                return Err(Error::LengthMismatch { first: data.len(), second: len });
            }
            if !const { D::MAY_BE_SHARDED } || Located::of(data)?.is_none() {
                lies_on(gpu_of(&data.place()?), &bounds.device())?;
            }
            return Ok(Self { number, ..segments });
        }
        match bounds {
            Bounds::Short(View(Cpu(offsets))) => check(offsets, data.len() as u64)?,
            Bounds::Long(View(Cpu(offsets))) => check(offsets, data.len() as u64)?,
            _ => {}
        }
        Ok(segments)
    }

    /// Rows of `columns` items.
    pub(crate) fn rows(data: D, columns: usize) -> Result<Self, Error> {
        let len = data.len();
        match len.checked_rem(columns) {
            Some(0) => {
                let bounds = Bounds::Length(columns as u64);
                Ok(Self { data, bounds, count: (len / columns) as u64, number: None, lifetime: PhantomData })
            }
            _ => Err(Error::Shape { shape: format!("rows of {columns}"), len }),
        }
    }

    /// `count` columns of `reduced` items each, whose items lie `inner` apart.
    pub(crate) fn columns(data: D, [count, reduced, inner]: [usize; 3]) -> Self {
        let [reduced, inner] = [reduced as u64, inner as u64];
        // Columns whose items lie side by side are rows.
        let bounds = if inner == 1 && reduced > 0 {
            Bounds::Length(reduced)
        } else {
            Bounds::Columns { reduced, inner }
        };
        Self { data, bounds, count: count as u64, number: None, lifetime: PhantomData }
    }

    /// Returns the number of segments; of runs that were [found on a stream](Runs::find), the number that
    /// there is room for.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no segments.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reduces each segment, and waits. The results lie where the items do.
    ///
    /// An index among the results, as of [`ArgMax`](crate::ArgMax), counts from the segment's start. For an
    /// operator with parameters, several operators, or a result for empty segments, see [`by`](Self::by).
    ///
    /// # Errors
    ///
    /// [`Error::EmptySegment`] if a segment has no items and the operator has no value for none,
    /// [`Error::BadOffset`] of offsets on a device, and as [`Reduce::reduce`](crate::Reduce::reduce).
    pub fn reduce<O: Op<D::Item, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
    ) -> Result<Buffer<O::Output>, Error>
    where
        Threads<BLOCK>: Block,
    {
        self.run(O::default(), None, BLOCK)
    }

    /// Describes the reduction of each segment by an operator, or by several in a tuple, which is then run as
    /// [`SegmentReduction`] says.
    ///
    /// ```
    /// use gpu_reduce::{ArgMax, Mean, Reduce, Sum};
    ///
    /// let x = [1.0f32, 2.0, 6.0, 5.0, 3.0, 1.0];
    /// let (sums, means, places) = x.rows(3)?.by((Sum, Mean, ArgMax)).run()?;
    /// assert_eq!((sums.to_vec()?, means.to_vec()?), (vec![9.0, 9.0], vec![3.0, 3.0]));
    /// assert_eq!(places.to_vec()?, [2, 0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    pub fn by<O: Operators<D::Item, M>, M>(&self, ops: O) -> SegmentReduction<'a, D, O, M> {
        SegmentReduction { segments: self.clone(), ops, defaults: None, block: DEFAULT_BLOCK }
    }

    /// Starts the reduction of each segment on a stream, as
    /// [`Reduce::reduce_async`](crate::Reduce::reduce_async).
    ///
    /// Before it returns, it allocates the buffer of results and copies offsets from the host to the GPU. Of
    /// [`Runs`] that were found on a stream, it waits for their number.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let device = Device::default_device();
    /// let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0])?;
    /// let stream = device.stream()?;
    /// let sums = x.rows(2)?.reduce_async::<Sum, 256>(&stream);
    /// assert_eq!(sums.wait()?.to_vec()?, [3.0, 7.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    pub fn reduce_async<O: Op<D::Item, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
        stream: &Stream,
    ) -> Pending<'a, Buffer<O::Output>>
    where
        Threads<BLOCK>: Block,
    {
        self.start(O::default(), None, BLOCK, stream).unwrap_or_else(Pending::from)
    }

    /// Enqueues the reduction of each segment on a stream, as
    /// [`Reduce::reduce_into`](crate::Reduce::reduce_into).
    ///
    /// `results` has a place for each segment; a segment that has no value gets zero. If the items lie on
    /// [several GPUs](crate::Sharded) and there are offsets, this call waits for the stream and for the
    /// results.
    ///
    /// No error can be returned for bad offsets on a device, because they are read when the stream reaches
    /// this work. A segment whose end lies before its start or past the items' end is not reduced, and its
    /// place is not written. The results of the other segments are then unspecified, and so are those of
    /// segments that are enqueued on the same stream later. No other memory is written or read.
    /// [`reduce`](Self::reduce) and [`reduce_async`](Self::reduce_async) return [`Error::BadOffset`] instead.
    ///
    /// # Safety
    ///
    /// As for [`Reduce::reduce_into`](crate::Reduce::reduce_into); the offsets stay as the items do.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] if `results` has fewer places than there are segments;
    /// [`Error::DeviceMismatch`], also for offsets on the host of items on a GPU; and as
    /// [`Reduce::reduce_into`](crate::Reduce::reduce_into).
    pub unsafe fn reduce_into<'r, O: Op<D::Item, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
        stream: &Stream,
        results: impl Into<ViewMut<'r, O::Output>>,
    ) -> Result<(), Error>
    where
        Threads<BLOCK>: Block,
    {
        // SAFETY: as the caller vouches.
        unsafe { self.enqueue(O::default(), Zeroable::zeroed(), BLOCK, stream, results.into()) }
    }

    /// Reduces data where they lie: columns on the CPU by `by` if it is given. The same code for all
    /// operators with results of one type.
    ///
    /// # Safety
    ///
    /// Both are the operator for the data, on a GPU and on the CPU, and its results are of type `V`.
    #[inline(never)]
    unsafe fn run_erased<V: Item>(
        &self,
        operation: Operation,
        on_host: Operator,
        if_empty: IfEmpty<V>,
        by: Option<ByColumns>,
    ) -> Result<Buffer<V>, Error> {
        let (gpu, items) = match self.data.place()? {
            Cpu(items) => {
                // SAFETY: as the caller vouches.
                let items = unsafe { on_host.over(&items) };
                return self.run_on_host(&items, if_empty, by);
            }
            Gpu(place) => place,
        };
        let (this, mut results) = self.allocate(&Device(Gpu(gpu)), if_empty)?;
        if this.is_empty() {
            return Ok(results);
        }
        let Gpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
        let mut copies = Copies::default();
        let len = this.data.len() as u64;
        let shape = this.bounds.on_gpu(gpu, &mut copies, this.count, len)?;
        // SAFETY: as the caller vouches; the items and the offsets stay, and there is a place for each
        // result.
        let wrong = unsafe { gpu.run(&operation.request(&items, shape, places), &mut [])? };
        this.bounds.error(wrong, len, if_empty).map_or(Ok(results), Err)
    }

    /// Reduces items on the CPU.
    fn run_on_host<V: Item>(
        &self,
        items: &Many<V>,
        if_empty: IfEmpty<V>,
        by: Option<ByColumns>,
    ) -> Result<Buffer<V>, Error> {
        let (this, mut results) = self.allocate(&Device::cpu(), if_empty)?;
        let Cpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
        match this.reduce_on_host(items, if_empty.default, places, by)? {
            None => Ok(results),
            Some(segment) => Err(if_empty.error(segment)),
        }
    }

    /// Allocates a place for each result. Returns these segments with their number, and the places.
    fn allocate<V: Item>(&self, device: &Device, if_empty: IfEmpty<V>) -> Result<(Self, Buffer<V>), Error> {
        let this = self.counted()?;
        if this.is_empty() && self.number.is_none() {
            // No launch looks at the only offset.
            check(&this.bounds.range(0..1)?, this.data.len() as u64)?;
        }
        let have_no_items = matches!(this.bounds, Bounds::Columns { reduced: 0, .. });
        if have_no_items && !this.is_empty() && !if_empty.is_defined {
            return Err(if_empty.error(0));
        }
        let results = Buffer::for_results(device, this.len())?;
        Ok((this, results))
    }

    /// The columns, if these are columns.
    fn as_columns(&self) -> Option<Columns> {
        match self.bounds {
            Bounds::Columns { reduced, inner } => Some(Columns { count: self.count, reduced, inner }),
            _ => None,
        }
    }

    /// Reduces items on the CPU to a place for each result. Returns the first segment that has no value, or
    /// that `by` has not reduced.
    fn reduce_on_host<V: Item>(
        &self,
        items: &Many<V>,
        default: Option<V>,
        results: &mut [V],
        by: Option<ByColumns>,
    ) -> Result<Option<u64>, Error> {
        if let Some(columns) = self.as_columns() {
            let default = default.unwrap_or(Zeroable::zeroed());
            if columns.reduced == 0 {
                results.fill(items.range(0..0).unwrap_or(default));
            } else if !self.is_empty() && !items.columns(columns, default, results, by) {
                return Ok(Some(0));
            }
            return Ok(None);
        }
        let start = self.bounds.on_host()?;
        Ok(cpu::reduce_segments(items, self.data.len(), &start, default, results))
    }

    /// Returns the shape for a GPU that has the offsets: a copy would be freed before a stream gets there.
    fn shape_there(&self, gpu: &'static cuda::Gpu) -> Result<Shape, Error> {
        let mut copies = Copies::default();
        let shape = self.bounds.on_gpu(gpu, &mut copies, self.count, self.data.len() as u64)?;
        if copies.short.is_some() || copies.long.is_some() {
            return Err(other_device(None, &Device(Gpu(gpu))));
        }
        Ok(match (shape, self.number) {
            (Shape::Segments(segments), Some(View(Gpu(number)))) => {
                Shape::Segments(segments.with_number(number.pointer()))
            }
            (shape, _) => shape,
        })
    }

    /// Enqueues the reduction of each segment. A segment that has no value gets `default`.
    ///
    /// # Safety
    ///
    /// As for [`reduce_into`](Self::reduce_into).
    pub(crate) unsafe fn enqueue<O: Op<D::Item, Output: Item>>(
        &self,
        op: O,
        default: O::Output,
        block: u32,
        stream: &Stream,
        results: ViewMut<'_, O::Output>,
    ) -> Result<(), Error> {
        let results = results.slice_mut(..self.len())?;
        let on = stream.device();
        let queue = stream.on(results.gpu())?;
        if self.is_empty() {
            return Ok(());
        }
        if const { D::MAY_BE_SHARDED }
            && let Some(located) = Located::of(&self.data)?
        {
            // SAFETY: as the caller vouches.
            return unsafe { self.enqueue_on_shards(&located, op, default, block, stream, results) };
        }
        match (self.data.place()?, results.into_places(), queue) {
            (Cpu(items), Cpu(results), None) => {
                let this = self.counted()?;
                let items = Many::new::<O, D::Slices, D::Pointers>(&op, &items, block);
                this.reduce_on_host(&items, Some(default), &mut results[..this.len()], None).map(drop)
            }
            (Gpu((gpu, items)), Gpu(results), Some(queue)) if gpu == queue.gpu() => {
                let operation = Operation::each::<O, D::Pointers>(&op, (&default, true), block);
                let shape = self.shape_there(gpu)?;
                // SAFETY: as the caller vouches.
                unsafe { queue.enqueue(&operation.request(&items, shape, results)) }
            }
            (place, ..) => Err(other_device(gpu_of(&place), &on)),
        }
    }
}

impl<'a, T: Item> Segments<'a, View<'a, T>> {
    /// As [`run_erased`](Self::run_erased), in a way.
    ///
    /// # Safety
    ///
    /// As for [`run_erased`](Self::run_erased).
    #[inline(never)]
    unsafe fn run_in_a_way<V: Item>(
        &self,
        operation: Operation,
        on_host: Operator,
        if_empty: IfEmpty<V>,
        way: Way<T>,
    ) -> Result<Option<Buffer<V>>, Error> {
        match way {
            Way::Wait(by) => {
                let by = |columns: &ColumnsOnCpu| {
                    // SAFETY: all is borrowed until `by` returns.
                    let fold = unsafe { Fold::of_columns(columns) };
                    by(&fold);
                    fold.len().is_some()
                };
                // SAFETY: as the caller vouches.
                unsafe { self.run_erased(operation, on_host, if_empty, Some(&by)).map(Some) }
            }
            // SAFETY: as the caller vouches.
            Way::Enqueue(to) => unsafe { self.enqueue_erased(operation, to).map(|()| None) },
        }
    }

    /// Enqueues that the results are written to places. A segment that has no value gets the default.
    ///
    /// # Safety
    ///
    /// As for [`run_erased`](Self::run_erased). There is a place for each of its results.
    unsafe fn enqueue_erased(&self, mut operation: Operation, to: &ToPlaces) -> Result<(), Error> {
        operation.has_default = true;
        match self.data.place()? {
            _ if self.is_empty() => Ok(()),
            Gpu((gpu, items)) => {
                let shape = self.shape_there(gpu)?;
                // SAFETY: as the caller vouches.
                unsafe { to.enqueue(gpu, operation.request(&items, shape, null_mut::<()>())) }
            }
            Cpu(_) => to.refuse_host(),
        }
    }

    /// Returns the items that the segments are of.
    ///
    /// ```
    /// use gpu_reduce::Reduce;
    ///
    /// assert_eq!([1, 2, 3, 4].rows(2)?.data().len(), 4);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    pub fn data(&self) -> View<'a, T> {
        self.data
    }
}

impl<'a, D: Data<'a>> Parts<'a, D::Item> for Segments<'a, D> {
    /// Compiled for each operator and element type that a program uses, and so only what depends on these
    /// types.
    fn run<O: Op<D::Item, Output: Item>>(
        &self,
        op: O,
        default: Option<O::Output>,
        block: u32,
    ) -> Result<Buffer<O::Output>, Error> {
        let if_empty = IfEmpty::of(&op, default);
        if const { D::MAY_BE_SHARDED }
            && let Some(located) = Located::of(&self.data)?
        {
            return self.start_on_shards(&located, op, if_empty, block, &located.streams()?)?.wait();
        }
        let value = default.unwrap_or(Zeroable::zeroed());
        let operation = Operation::each::<O, D::Pointers>(&op, (&value, default.is_some()), block);
        // SAFETY: the types are these.
        unsafe {
            self.run_erased(operation, Operator::new::<O, D::Slices, D::Pointers>(&op, block), if_empty, None)
        }
    }

    fn start<O: Op<D::Item, Output: Item>>(
        &self,
        op: O,
        default: Option<O::Output>,
        block: u32,
        stream: &Stream,
    ) -> Result<Pending<'a, Buffer<O::Output>>, Error> {
        let if_empty = IfEmpty::of(&op, default);
        if const { D::MAY_BE_SHARDED }
            && let Some(located) = Located::of(&self.data)?
        {
            return self.start_on_shards(&located, op, if_empty, block, stream.streams());
        }
        let place = self.data.place()?;
        let (gpu, items, queue) = match (place, stream.on(gpu_of(&place))?) {
            (Gpu((gpu, items)), Some(queue)) => (gpu, items, queue),
            _ => return Ok(Pending::done(self.run(op, default, block))),
        };
        let value = default.unwrap_or(Zeroable::zeroed());
        let operation = Operation::each::<O, D::Pointers>(&op, (&value, default.is_some()), block);
        let (this, mut results) = self.allocate(&Device(Gpu(gpu)), if_empty)?;
        if this.is_empty() {
            return Ok(Pending::done(Ok(results)));
        }
        let Gpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
        let mut copies = Copies::default();
        let (bounds, len) = (this.bounds, this.data.len() as u64);
        let shape = bounds.on_gpu(gpu, &mut copies, this.count, len)?;
        // SAFETY: the types are these. Results and copies are kept until the work has ended, or freed, which
        // waits for the device. Items and offsets are borrowed as long; if the result is discarded, they are
        // only read.
        let launched = unsafe { queue.launch(&operation.request(&items, shape, places))? };
        Ok(Pending::new(launched, move |launched| {
            drop(copies);
            bounds.error(launched.words()[0], len, if_empty).map_or(Ok(results), Err)
        }))
    }

    /// Returns these segments with their number. If they are runs that were found on a stream, it waits for the number, and lists
    /// all of their offsets.
    fn counted(&self) -> Result<Self, Error> {
        let Some(number) = self.number else { return Ok(self.clone()) };
        let first = number.slice(..1)?.to_vec()?;
        let count = first.first().map_or(0, |&number| number.min(self.count));
        if let View(Gpu(heads)) = number
            && let Shape::Segments(runs) = self.shape_there(heads.gpu)?
            && runs.has_heads()
        {
            // SAFETY: the search has ended, as its caller has vouched, and the runs are borrowed until this call has waited.
            unsafe { heads.gpu.list_offsets(&runs)? };
        }
        Ok(Self { count, number: None, ..self.clone() })
    }
}

/// BLOCK of reductions of segments that choose none.
const DEFAULT_BLOCK: u32 = 256;

/// The reduction of each segment, which has not started: what [`Segments::by`] returns.
///
/// [`or`](Self::or) sets the result of segments that have no value, and [`block`](Self::block) chooses BLOCK,
/// which is 256 otherwise. Then one of these runs it: [`run`](Self::run) waits for the results,
/// [`run_async`](Self::run_async) returns at once, and [`run_into`](Self::run_into) writes them to places on
/// the device. Several operators, in a tuple, run one after another, and give a buffer each, with the bits
/// that each has alone.
///
/// ```
/// use gpu_reduce::{Max, Min, Reduce};
///
/// let x = [1.0f32, 2.0, 6.0];
/// let segments = x.segments(&[0u32, 2, 2, 3])?;
/// let (minima, maxima) =
///     segments.by((Min, Max)).or((f32::INFINITY, f32::NEG_INFINITY)).block::<64>().run()?;
/// assert_eq!(minima.to_vec()?, [1.0, f32::INFINITY, 6.0]);
/// assert_eq!(maxima.to_vec()?, [2.0, f32::NEG_INFINITY, 6.0]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[must_use = "a reduction does nothing until it is run"]
pub struct SegmentReduction<'a, D: Data<'a>, O: Operators<D::Item, M>, M> {
    segments: Segments<'a, D>,
    ops: O,
    defaults: Option<O::Outputs>,
    block: u32,
}

impl<'a, D: Data<'a> + fmt::Debug, O: Operators<D::Item, M>, M> fmt::Debug for SegmentReduction<'a, D, O, M> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { segments, block, .. } = self;
        f.debug_struct("SegmentReduction")
            .field("segments", segments)
            .field("block", block)
            .finish_non_exhaustive()
    }
}

impl<'a, D: Data<'a>, O: Operators<D::Item, M>, M> SegmentReduction<'a, D, O, M> {
    /// Sets the result of segments that have no value: for a tuple, a tuple of results.
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

    /// Reduces each segment, and waits. The results lie where the items do.
    ///
    /// # Errors
    ///
    /// As [`Segments::reduce`]; of several operators, the error of the first that has one. After
    /// [`or`](Self::or) there is no [`Error::EmptySegment`].
    pub fn run(self) -> Result<O::Buffers, Error> {
        self.ops.run(&self.segments, self.defaults, self.block)
    }

    /// Starts the reduction on a stream, as [`Segments::reduce_async`].
    pub fn run_async(self, stream: &Stream) -> Pending<'a, O::Buffers> {
        self.ops.start(&self.segments, self.defaults, self.block, stream)
    }
}

impl<'a, T: Item, O: Op<T, Output: Item>> SegmentReduction<'a, View<'a, T>, O, One> {
    /// As [`run`](Self::run), in this [way](Way). Returns none if the results were not waited for.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`Error::EmptySegment`] if these are columns on the CPU and are not folded.
    #[doc(hidden)]
    pub fn run_by(self, way: Way<T>) -> Result<Option<Buffer<O::Output>>, Error> {
        let Self { segments, ops: op, defaults: default, block } = self;
        let value = default.unwrap_or(Zeroable::zeroed());
        let operation = Operation::each::<O, *const T>(&op, (&value, default.is_some()), block);
        let on_host = Operator::new::<O, &[T], *const T>(&op, block);
        // SAFETY: the types are these.
        unsafe { segments.run_in_a_way(operation, on_host, IfEmpty::of(&op, default), way) }
    }
}

impl<'a, D: Data<'a>, O: Op<D::Item, Output: Item>> SegmentReduction<'a, D, O, One> {
    /// Enqueues the reduction on a stream, as [`Segments::reduce_into`]. A segment that has no value gets the
    /// result that [`or`](Self::or) set, or zero.
    ///
    /// # Safety
    ///
    /// As for [`Segments::reduce_into`].
    ///
    /// # Errors
    ///
    /// As [`Segments::reduce_into`].
    pub unsafe fn run_into<'r>(
        self,
        stream: &Stream,
        results: impl Into<ViewMut<'r, O::Output>>,
    ) -> Result<(), Error> {
        let default = self.defaults.unwrap_or(Zeroable::zeroed());
        // SAFETY: as the caller vouches.
        unsafe { self.segments.enqueue(self.ops, default, self.block, stream, results.into()) }
    }

    /// Returns the bytes of scratch memory that [`run_into`](Self::run_into) takes if the caller
    /// [lends](Stream::with_scratch) it to the stream; 0 on the CPU.
    pub fn scratch_bytes(&self) -> usize {
        let Segments { ref data, bounds, count, number, .. } = self.segments;
        let Ok(Gpu((gpu, _))) = data.place() else { return 0 };
        if count == 0 {
            return 0;
        }
        let len = data.len() as u64;
        let shape = match bounds {
            Bounds::Columns { reduced, inner } => Shape::Columns(Columns { count, reduced, inner }),
            Bounds::Length(length) => Shape::Segments(SegmentBounds::of_length(length, count, len)),
            Bounds::Short(_) | Bounds::Long(_) => {
                // The memory does not depend on where offsets and number lie.
                let segments = SegmentBounds::of_offsets(dangling::<u32>(), count, len);
                Shape::Segments(if number.is_some() { segments.with_number(dangling()) } else { segments })
            }
        };
        gpu.scratch_bytes(Types::of::<O, D::Pointers>(), &shape, self.block)
    }
}
