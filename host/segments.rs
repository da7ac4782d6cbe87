//! Many reductions at once: segments, rows and columns of an array, each with the bits of reducing that slice alone.

mod sharded;

use crate::call::{ShapeCall, Types};
use crate::cpu::{Many, OfTypes};
use crate::data::{Data, gpu_of, lies_on, other_device};
use crate::place::Place::{self, Cpu, Gpu};
use crate::sharded::Located;
use crate::{
    Buffer, Device, Element, Error, Item, Op, Operators, Pending, Runs, Stream, View, ViewMut, cpu, cuda,
};
use bytemuck::Zeroable;
use gpu_reduce_kernels::columns::Columns;
use gpu_reduce_kernels::plan::assert_block;
use gpu_reduce_kernels::segments::{Cut, SegmentBounds as OnGpu};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::dangling;

/// Segments of an array that reduce each by itself: what [`Reduce::segments`](crate::Reduce::segments),
/// [`Reduce::rows`](crate::Reduce::rows), [`Reduce::columns`](crate::Reduce::columns) and
/// [`Shaped::over`](crate::Shaped::over) give.
///
/// ```
/// use gpu_reduce::{ArgMax, Device, Max, Mean, Reduce, Sum};
///
/// let x = Device::cpu().upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let segments = x.segments(&[0u32, 1, 1, 6])?;
/// assert_eq!(segments.reduce::<Sum, 256>()?.to_vec()?, [1.0, 0.0, 20.0]);
/// assert_eq!(segments.reduce_or::<_, 256>(Max, -1.0)?.to_vec()?, [1.0, -1.0, 6.0]);
/// assert_eq!(x.rows(3)?.reduce::<Mean, 256>()?.to_vec()?, [2.0, 5.0]);
/// assert_eq!(x.rows(2)?.reduce::<ArgMax, 256>()?.to_vec()?, [1, 1, 1]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Segments<'a, D> {
    data: D,
    bounds: Bounds<'a>,
    count: u64,
    /// How many there are, of which `count` is then the most.
    number: Option<View<'a, u64>>,
    lifetime: PhantomData<&'a ()>,
}

/// Where segments lie: `u32` or `u64` on the host or on the data's device, one more than there are segments, none below the one before; or
/// the [`Runs`] of as many keys as there are items, on the data's device.
#[derive(Clone, Copy)]
pub struct Offsets<'a>(Bounds<'a>, Option<OfKeys<'a>>);

/// What is known of segments that are runs of keys.
#[derive(Clone, Copy)]
pub(crate) struct OfKeys<'a> {
    /// Keys.
    pub len: usize,
    /// How many runs there are, if that is not the number of segments.
    pub number: Option<View<'a, u64>>,
}

#[derive(Clone, Copy)]
enum Bounds<'a> {
    /// Segments of one length.
    Length(u64),
    /// Columns of so many items, from one of which to the next it is `inner`.
    Columns {
        reduced: u64,
        inner: u64,
    },
    Short(View<'a, u32>),
    Long(View<'a, u64>),
}

/// What becomes of a segment without items.
#[derive(Clone, Copy)]
struct OfNone<V> {
    /// The operator's name.
    op: &'static str,
    default: Option<V>,
    /// Whether it has a value.
    is_defined: bool,
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
    /// Where offsets lie; lengths, on the CPU.
    fn device(&self) -> Device {
        match self {
            Self::Length(_) | Self::Columns { .. } => Device::cpu(),
            Self::Short(offsets) => offsets.device(),
            Self::Long(offsets) => offsets.device(),
        }
    }

    /// Where segments start, for items on the CPU.
    fn on_host(&self) -> Result<impl Fn(u64) -> u64 + Sync, Error> {
        match *self {
            Self::Short(View(Gpu(part))) => Err(elsewhere(part.gpu, &Device::cpu())),
            Self::Long(View(Gpu(part))) => Err(elsewhere(part.gpu, &Device::cpu())),
            bounds => Ok(move |index| match bounds {
                Self::Columns { .. } => unreachable!("columns are no ranges"),
                Self::Length(length) => index * length,
                Self::Short(View(Cpu(offsets))) => offsets[index as usize].into(),
                Self::Long(View(Cpu(offsets))) => offsets[index as usize],
                Self::Short(_) | Self::Long(_) => unreachable!("these lie on a GPU"),
            }),
        }
    }

    /// The same for a GPU; offsets on the host are copied there.
    fn on_gpu(
        self,
        gpu: &'static cuda::Gpu,
        copies: &mut Copies,
        count: u64,
        len: u64,
    ) -> Result<OnGpu, Error> {
        Ok(match self {
            Self::Columns { .. } => unreachable!("columns are no ranges"),
            Self::Length(length) => OnGpu::of_length(length, count, len),
            Self::Short(offsets) => OnGpu::of_offsets(pointer(offsets, gpu, &mut copies.0)?, count, len),
            Self::Long(offsets) => OnGpu::of_offsets(pointer(offsets, gpu, &mut copies.1)?, count, len),
        })
    }

    /// Copies some offsets from where they lie; none of rows and columns.
    fn some(self, range: Range<u64>) -> Result<Vec<u64>, Error> {
        let range = range.start as usize..range.end as usize;
        Ok(match self {
            Self::Length(_) | Self::Columns { .. } => Vec::new(),
            Self::Short(offsets) => offsets.slice(range)?.to_vec()?.into_iter().map(u64::from).collect(),
            Self::Long(offsets) => offsets.slice(range)?.to_vec()?,
        })
    }

    /// Returns the error of segment `index`, which a GPU has found to have bad offsets.
    fn what_is_wrong(self, index: u64, len: u64) -> Error {
        match self.some(index..index + 2).map(|offsets| check(&offsets, len)) {
            Ok(Err(Error::BadOffset { index: of_two, offset, before, len })) => {
                Error::BadOffset { index: index + of_two, offset, before, len }
            }
            Ok(Err(error)) | Err(error) => error,
            // Somebody has written to them since.
            Ok(Ok(())) => Error::BadOffset { index: index + 1, offset: 0, before: 0, len },
        }
    }
}

/// Offsets that were copied to a GPU, to be kept as long as they are used.
#[derive(Default)]
struct Copies(Option<Buffer<u32>>, Option<Buffer<u64>>);

/// Where offsets lie on a GPU.
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

/// Offsets do not lie where the items do.
fn elsewhere(offsets: &'static cuda::Gpu, device: &Device) -> Error {
    Error::OtherDevice { buffer: offsets.to_string(), device: device.to_string() }
}

/// An error unless no offset is below the one before, or past the end.
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
            Bounds::Length(_) | Bounds::Columns { .. } => unreachable!("offsets are none of these"),
            Bounds::Short(offsets) => offsets.len(),
            Bounds::Long(offsets) => offsets.len(),
        };
        let Some(count) = offsets.checked_sub(1) else { return Err(Error::NoOffsets) };
        if let Some(OfKeys { len, number }) = of_keys {
            if len != data.len() {
                return Err(Error::OtherLength { first: data.len(), second: len });
            }
            if !const { D::MAY_BE_SHARDED } || Located::of(&data)?.is_none() {
                lies_on(gpu_of(&data.place()?), &bounds.device())?;
            }
            return Ok(Self { data, bounds, count: count as u64, number, lifetime: PhantomData });
        }
        match bounds {
            Bounds::Short(View(Cpu(offsets))) => check(offsets, data.len() as u64)?,
            Bounds::Long(View(Cpu(offsets))) => check(offsets, data.len() as u64)?,
            _ => {}
        }
        Ok(Self { data, bounds, count: count as u64, number: None, lifetime: PhantomData })
    }

    /// Rows of so many items.
    pub(crate) fn rows(data: D, columns: usize) -> Result<Self, Error> {
        let len = data.len();
        match len.checked_rem(columns) {
            Some(0) => {
                let count = (len / columns) as u64;
                let bounds = Bounds::Length(columns as u64);
                Ok(Self { data, bounds, count, number: None, lifetime: PhantomData })
            }
            _ => Err(Error::Shape { shape: format!("rows of {columns}"), len }),
        }
    }

    /// So many columns of `reduced` items, from one of which to the next it is `inner`.
    pub(crate) fn columns(data: D, [count, reduced, inner]: [usize; 3]) -> Self {
        let [reduced, inner] = [reduced as u64, inner as u64];
        // Columns side by side are rows.
        let bounds = if inner == 1 && reduced > 0 {
            Bounds::Length(reduced)
        } else {
            Bounds::Columns { reduced, inner }
        };
        Self { data, bounds, count: count as u64, number: None, lifetime: PhantomData }
    }

    /// How many segments there are; of runs that were [enqueued](Runs::enqueue), how many there is room for.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are no segments.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reduces each segment; the results lie where the items do. An index among them counts from the segment's start. By several operators,
    /// [`reduce_tuple`](Self::reduce_tuple) does.
    ///
    /// # Errors
    ///
    /// [`Error::EmptySegment`] where a segment without items has no value, [`Error::BadOffset`] of offsets on a device, and as
    /// [`Reduce::reduce`](crate::Reduce::reduce).
    pub fn reduce<O: Op<D::Item> + Default, const BLOCK: u32>(&self) -> Result<Buffer<O::Output>, Error>
    where
        O::Output: Item,
    {
        self.reduce_by::<O, BLOCK>(O::default())
    }

    /// As [`reduce`](Self::reduce), by an operator that has parameters.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn reduce_by<O: Op<D::Item>, const BLOCK: u32>(&self, op: O) -> Result<Buffer<O::Output>, Error>
    where
        O::Output: Item,
    {
        const { assert_block(BLOCK) };
        self.run(op, None, BLOCK)
    }

    /// As [`reduce_by`](Self::reduce_by), with a result for segments that have no value.
    ///
    /// # Errors
    ///
    /// As there, but for [`Error::EmptySegment`].
    pub fn reduce_or<O: Op<D::Item>, const BLOCK: u32>(
        &self,
        op: O,
        default: O::Output,
    ) -> Result<Buffer<O::Output>, Error>
    where
        O::Output: Item,
    {
        const { assert_block(BLOCK) };
        self.run(op, Some(default), BLOCK)
    }

    /// Reduces each segment by several operators, in a tuple: a buffer of each one's results, with the bits that it has alone. They reduce
    /// one after the other.
    ///
    /// ```
    /// use gpu_reduce::{ArgMax, Mean, Reduce, Sum};
    ///
    /// let x = [1.0f32, 2.0, 6.0, 5.0, 3.0, 1.0];
    /// let (sums, means, places) = x.rows(3)?.reduce_tuple::<(Sum, Mean, ArgMax), 256>()?;
    /// assert_eq!((sums.to_vec()?, means.to_vec()?), (vec![9.0, 9.0], vec![3.0, 3.0]));
    /// assert_eq!(places.to_vec()?, [2, 0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce), of the first operator that has one.
    pub fn reduce_tuple<O: Operators<D::Item> + Default, const BLOCK: u32>(
        &self,
    ) -> Result<O::Buffers, Error> {
        self.reduce_tuple_by::<O, BLOCK>(O::default())
    }

    /// As [`reduce_tuple`](Self::reduce_tuple), by operators that have parameters.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn reduce_tuple_by<O: Operators<D::Item>, const BLOCK: u32>(
        &self,
        ops: O,
    ) -> Result<O::Buffers, Error> {
        const { assert_block(BLOCK) };
        ops.reduce_segments(&self.counted()?, None, BLOCK)
    }

    /// As [`reduce_tuple_by`](Self::reduce_tuple_by), with a result of each operator for segments that have no value.
    ///
    /// ```
    /// use gpu_reduce::{Max, Min, Reduce};
    ///
    /// let x = [1.0f32, 2.0, 6.0];
    /// let segments = x.segments(&[0u32, 2, 2, 3])?;
    /// let (minima, maxima) = segments.reduce_tuple_or::<_, 256>((Min, Max), (f32::INFINITY, f32::NEG_INFINITY))?;
    /// assert_eq!(minima.to_vec()?, [1.0, f32::INFINITY, 6.0]);
    /// assert_eq!(maxima.to_vec()?, [2.0, f32::NEG_INFINITY, 6.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As there, but for [`Error::EmptySegment`].
    pub fn reduce_tuple_or<O: Operators<D::Item>, const BLOCK: u32>(
        &self,
        ops: O,
        defaults: O::Outputs,
    ) -> Result<O::Buffers, Error> {
        const { assert_block(BLOCK) };
        ops.reduce_segments(&self.counted()?, Some(defaults), BLOCK)
    }

    /// As many as there are.
    fn counted(&self) -> Result<Self, Error> {
        let Some(number) = self.number else { return Ok(self.clone()) };
        let count = number.to_vec()?.first().map_or(0, |&number| number.min(self.count));
        Ok(Self { count, number: None, ..self.clone() })
    }

    /// It is compiled for each operator and element type that a program uses, and so is no more than what is of these
    /// types.
    pub(crate) fn run<O: Op<D::Item>>(
        &self,
        op: O,
        default: Option<O::Output>,
        block: u32,
    ) -> Result<Buffer<O::Output>, Error>
    where
        O::Output: Item,
    {
        let is_defined = default.or_else(|| op.finish(op.identity(), 0)).is_some();
        let none = OfNone { op: O::NAME, default, is_defined };
        if const { D::MAY_BE_SHARDED }
            && let Some(located) = Located::of(&self.data)?
        {
            return self.run_on_shards(&located, op, none, block);
        }
        let value = default.unwrap_or(Zeroable::zeroed());
        let call = ShapeCall::new::<O, D::Pointers>(&op, (&value, default.is_some()), block);
        // SAFETY: the types are these.
        match unsafe { self.run_on_gpu(call, none)? } {
            Gpu(results) => Ok(results),
            Cpu(items) => self.run_on_host(&OfTypes::<_, _, D::Pointers>::new(&op, items, block), none),
        }
    }

    /// Reduces data on a GPU; of others says where on the CPU they are. For all operators with results of one type the
    /// same code.
    ///
    /// # Safety
    ///
    /// The call's types are these.
    #[inline(never)]
    unsafe fn run_on_gpu<V: Item>(
        &self,
        call: ShapeCall<()>,
        none: OfNone<V>,
    ) -> Result<Place<D::Slices, Buffer<V>>, Error> {
        let (gpu, items) = match self.data.place()? {
            Cpu(items) => return Ok(Cpu(items)),
            Gpu(place) => place,
        };
        let (this, mut results) = self.with_room(&Device(Gpu(gpu)), none)?;
        let Gpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
        let len = this.data.len() as u64;
        let mut copies = Copies::default();
        // SAFETY: as the caller vouches; the items and the offsets stay, and there is a place for each result.
        let wrong = unsafe {
            match this.as_columns() {
                _ if this.is_empty() => None,
                Some(columns) => {
                    gpu.reduce_columns(&call.with(&items, columns, places))?;
                    None
                }
                None => {
                    let segments = this.bounds.on_gpu(gpu, &mut copies, this.count, len)?;
                    gpu.reduce_segments(&call.with(&items, segments, places))?
                }
            }
        };
        match wrong {
            None => Ok(Gpu(results)),
            Some(wrong) if wrong & Cut::NO_VALUE != 0 => {
                Err(Error::EmptySegment { op: none.op, segment: wrong & !Cut::NO_VALUE })
            }
            Some(segment) => Err(this.bounds.what_is_wrong(segment, len)),
        }
    }

    /// Reduces items on the CPU. For all operators with results of one type the same code.
    #[inline(never)]
    fn run_on_host<V: Item>(&self, items: &dyn Many<V>, none: OfNone<V>) -> Result<Buffer<V>, Error> {
        let (this, mut results) = self.with_room(&Device::cpu(), none)?;
        let Cpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
        match this.reduce_on_host(items, none.default, places)? {
            None => Ok(results),
            Some(segment) => Err(Error::EmptySegment { op: none.op, segment }),
        }
    }

    /// Allocates a place for each result; returns these segments with their number, and the places.
    fn with_room<V: Item>(&self, device: &Device, none: OfNone<V>) -> Result<(Self, Buffer<V>), Error> {
        let this = self.counted()?;
        if this.is_empty() && self.number.is_none() {
            // No launch looks at the only offset.
            check(&this.bounds.some(0..1)?, this.data.len() as u64)?;
        }
        let have_no_items = matches!(this.bounds, Bounds::Columns { reduced: 0, .. });
        if have_no_items && !this.is_empty() && !none.is_defined {
            return Err(Error::EmptySegment { op: none.op, segment: 0 });
        }
        let results = device.zeros(this.len())?;
        Ok((this, results))
    }

    /// The columns, where these are some.
    fn as_columns(&self) -> Option<Columns> {
        match self.bounds {
            Bounds::Columns { reduced, inner } => Some(Columns { count: self.count, reduced, inner }),
            _ => None,
        }
    }

    /// Reduces items on the CPU to a place for each result; returns the first segment that has none.
    fn reduce_on_host<V: Item>(
        &self,
        items: &dyn Many<V>,
        default: Option<V>,
        results: &mut [V],
    ) -> Result<Option<u64>, Error> {
        if let Some(columns) = self.as_columns() {
            if !self.is_empty() {
                items.columns(columns, default.unwrap_or(Zeroable::zeroed()), results);
            }
            return Ok(None);
        }
        let start = self.bounds.on_host()?;
        Ok(cpu::reduce_segments(items, self.data.len(), &start, default, results))
    }

    /// Enqueues the reduction of each segment, as [`Reduce::enqueue`](crate::Reduce::enqueue).
    ///
    /// `results` has a place for each segment; a segment that has no value gets zero. If the items lie on
    /// [several GPUs](crate::Sharded) and there are offsets, this call waits for the stream and for the results.
    ///
    /// No error can be returned for bad offsets on a device, because they are read when the stream reaches this work.
    /// A segment whose end lies before its start or past the items' end is not reduced, and its place is not written.
    /// The results of the other segments are then unspecified, and so are those of segments that are enqueued on the
    /// same stream later. No other memory is written or read. [`reduce`](Self::reduce) and [`launch`](Self::launch)
    /// return [`Error::BadOffset`] instead.
    ///
    /// # Safety
    ///
    /// As there; the offsets stay as the items do.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] where `results` has fewer places than there are segments, [`Error::OtherDevice`], also for offsets on
    /// the host of items on a GPU; and as [`Reduce::enqueue`](crate::Reduce::enqueue).
    pub unsafe fn enqueue<'r, O: Op<D::Item, Output: Item> + Default, const BLOCK: u32>(
        &self,
        stream: &Stream,
        results: impl Into<ViewMut<'r, O::Output>>,
    ) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        unsafe { self.enqueue_or::<O, BLOCK>(O::default(), Zeroable::zeroed(), stream, results) }
    }

    /// As [`enqueue`](Self::enqueue), by an operator that may have parameters, and with a result for segments that have no value.
    ///
    /// # Safety
    ///
    /// As there.
    ///
    /// # Errors
    ///
    /// As there.
    pub unsafe fn enqueue_or<'r, O: Op<D::Item, Output: Item>, const BLOCK: u32>(
        &self,
        op: O,
        default: O::Output,
        stream: &Stream,
        results: impl Into<ViewMut<'r, O::Output>>,
    ) -> Result<(), Error> {
        const { assert_block(BLOCK) };
        let results = results.into().slice_mut(..self.len())?;
        let on = stream.device();
        let queue = stream.on(results.gpu())?;
        if self.is_empty() {
            return Ok(());
        }
        if const { D::MAY_BE_SHARDED }
            && let Some(located) = Located::of(&self.data)?
        {
            // SAFETY: as the caller vouches.
            return unsafe { self.enqueue_on_shards(&located, op, default, BLOCK, stream, results) };
        }
        match (self.data.place()?, results.into_places(), queue) {
            (Cpu(items), Cpu(results), None) => {
                let this = self.counted()?;
                let items = OfTypes::<_, _, D::Pointers>::new(&op, items, BLOCK);
                this.reduce_on_host(&items, Some(default), &mut results[..this.len()]).map(drop)
            }
            (Gpu((gpu, items)), Gpu(results), Some(queue)) if gpu == queue.gpu() => {
                let call = ShapeCall::new::<O, D::Pointers>(&op, (&default, true), BLOCK);
                if let Some(columns) = self.as_columns() {
                    // SAFETY: as the caller vouches.
                    return unsafe { queue.enqueue_columns(&call.with(&items, columns, results)) };
                }
                let mut copies = Copies::default();
                let segments = self.bounds.on_gpu(gpu, &mut copies, self.count, self.data.len() as u64)?;
                if copies.0.is_some() || copies.1.is_some() {
                    return Err(Error::OtherDevice {
                        buffer: Device::cpu().to_string(),
                        device: on.to_string(),
                    });
                }
                let segments = match self.number {
                    Some(View(Gpu(number))) => segments.with_number(number.pointer()),
                    _ => segments,
                };
                // SAFETY: as the caller vouches.
                unsafe { queue.enqueue_segments(&call.with(&items, segments, results)) }
            }
            (place, ..) => Err(other_device(gpu_of(&place), &on)),
        }
    }

    /// Bytes of scratch memory that [`enqueue`](Self::enqueue) takes where the caller [lends](Stream::with_scratch) it to the stream; none on the CPU.
    pub fn scratch_bytes<O: Op<D::Item>, const BLOCK: u32>(&self) -> usize {
        const { assert_block(BLOCK) };
        let Ok(Gpu((gpu, _))) = self.data.place() else { return 0 };
        let types = Types::of::<O, D::Pointers>();
        let len = self.data.len() as u64;
        if self.is_empty() {
            return 0;
        }
        match self.bounds {
            Bounds::Columns { reduced, inner } => {
                gpu.scratch_bytes_of_columns(types, &Columns { count: self.count, reduced, inner }, BLOCK)
            }
            Bounds::Length(length) => {
                gpu.scratch_bytes_of_segments(types, &OnGpu::of_length(length, self.count, len), BLOCK)
            }
            Bounds::Short(_) | Bounds::Long(_) => {
                // It makes no difference where they lie.
                let segments = OnGpu::of_offsets(dangling::<u32>(), self.count, len);
                let segments =
                    if self.number.is_some() { segments.with_number(dangling()) } else { segments };
                gpu.scratch_bytes_of_segments(types, &segments, BLOCK)
            }
        }
    }

    /// Launches the reduction of each segment, as [`Reduce::launch`](crate::Reduce::launch). The buffer of the results is allocated, and offsets on the
    /// host of items on a GPU are copied there, before it returns; of [`Runs`] that were enqueued, their number is waited for.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let device = Device::default_device();
    /// let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0])?;
    /// let stream = device.stream()?;
    /// let sums = x.rows(2)?.launch::<Sum, 256>(&stream);
    /// assert_eq!(sums.wait()?.to_vec()?, [3.0, 7.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    pub fn launch<O: Op<D::Item, Output: Item> + Default, const BLOCK: u32>(
        &self,
        stream: &Stream,
    ) -> Pending<'a, Buffer<O::Output>> {
        self.launch_by::<O, BLOCK>(O::default(), None, stream)
    }

    /// As [`launch`](Self::launch), by an operator that may have parameters, and with a result for segments that have no value, or none.
    pub fn launch_by<O: Op<D::Item, Output: Item>, const BLOCK: u32>(
        &self,
        op: O,
        default: Option<O::Output>,
        stream: &Stream,
    ) -> Pending<'a, Buffer<O::Output>> {
        const { assert_block(BLOCK) };
        self.launched(op, default, stream, BLOCK).unwrap_or_else(Pending::from)
    }

    fn launched<O: Op<D::Item, Output: Item>>(
        &self,
        op: O,
        default: Option<O::Output>,
        stream: &Stream,
        block: u32,
    ) -> Result<Pending<'a, Buffer<O::Output>>, Error> {
        let is_defined = default.or_else(|| op.finish(op.identity(), 0)).is_some();
        let none = OfNone { op: O::NAME, default, is_defined };
        if const { D::MAY_BE_SHARDED }
            && let Some(located) = Located::of(&self.data)?
        {
            return self.launch_on_shards(&located, op, none, block, stream.streams());
        }
        let place = self.data.place()?;
        let (gpu, items, queue) = match (place, stream.on(gpu_of(&place))?) {
            (Gpu((gpu, items)), Some(queue)) => (gpu, items, queue),
            _ => return Ok(Pending::done(self.run(op, default, block))),
        };
        let value = default.unwrap_or(Zeroable::zeroed());
        let call = ShapeCall::new::<O, D::Pointers>(&op, (&value, default.is_some()), block);
        let (this, mut results) = self.with_room(&Device(Gpu(gpu)), none)?;
        if this.is_empty() {
            return Ok(Pending::done(Ok(results)));
        }
        let Gpu(places) = results.whole_mut() else { unreachable!("results lie where the items do") };
        let len = this.data.len() as u64;
        let mut copies = Copies::default();
        // SAFETY: the types are these. Results and copies are kept until the work has been waited for, or freed, which waits for the device; items and
        // offsets are borrowed as long, or nobody asks what comes of it: whatever memory they are in then, it is read and no more.
        let launched = unsafe {
            match this.as_columns() {
                Some(columns) => queue.launch_columns(&call.with(&items, columns, places))?,
                None => {
                    let segments = this.bounds.on_gpu(gpu, &mut copies, this.count, len)?;
                    queue.launch_segments(&call.with(&items, segments, places))?
                }
            }
        };
        let wrong = move |wrong: u64| match wrong {
            Cut::NOTHING => None,
            _ if wrong & Cut::NO_VALUE != 0 => {
                Some(Error::EmptySegment { op: none.op, segment: wrong & !Cut::NO_VALUE })
            }
            segment => Some(this.bounds.what_is_wrong(segment, len)),
        };
        Ok(Pending::new(launched, move |launched| {
            drop(copies);
            wrong(launched.words()[0]).map_or(Ok(results), Err)
        }))
    }
}
