//! Many reductions at once: segments, rows and columns of an array, each with the bits of reducing that slice alone.

use crate::call::{ColumnsCall, SegmentsCall};
use crate::data::{Data, gpu_of, lies_on, other_device};
use crate::place::Place::{Cpu, Gpu};
use crate::{Buffer, Device, Element, Error, Item, Op, Operators, Runs, Stream, View, cpu, cuda};
use gpu_reduce_kernels::columns::Columns;
use gpu_reduce_kernels::plan::assert_block;
use gpu_reduce_kernels::segments::{Cut, Segments as OnGpu};
use std::marker::PhantomData;
use std::sync::Arc;

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
            Self::Short(View(Gpu(part))) => Err(elsewhere(part.memory.gpu(), &Device::cpu())),
            Self::Long(View(Gpu(part))) => Err(elsewhere(part.memory.gpu(), &Device::cpu())),
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
    fn on_gpu(self, gpu: &Arc<cuda::Gpu>, copies: &mut Copies, count: u64, len: u64) -> Result<OnGpu, Error> {
        Ok(match self {
            Self::Columns { .. } => unreachable!("columns are no ranges"),
            Self::Length(length) => OnGpu::of_length(length, count, len),
            Self::Short(offsets) => OnGpu::of_offsets(pointer(offsets, gpu, &mut copies.0)?, count, len),
            Self::Long(offsets) => OnGpu::of_offsets(pointer(offsets, gpu, &mut copies.1)?, count, len),
        })
    }

    /// The error of segment `index`, whose offsets on a GPU are not such.
    fn what_is_wrong(self, index: u64, len: u64) -> Error {
        let offsets = match self {
            Self::Length(_) | Self::Columns { .. } => Ok(Vec::new()),
            Self::Short(offsets) => {
                two(offsets, index).map(|offsets| offsets.into_iter().map(u64::from).collect())
            }
            Self::Long(offsets) => two(offsets, index),
        };
        match offsets.map(|offsets| check(&offsets, len)) {
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
    gpu: &Arc<cuda::Gpu>,
    copy: &mut Option<Buffer<T>>,
) -> Result<*const T, Error> {
    let device = Device(Gpu(gpu.clone()));
    let offsets = match offsets.0 {
        Cpu(offsets) => copy.insert(device.upload(offsets)?).view(),
        Gpu(_) => offsets,
    };
    match offsets.0 {
        Gpu(part) if part.memory.gpu() == gpu => Ok(part.pointer()),
        Gpu(part) => Err(elsewhere(part.memory.gpu(), &device)),
        Cpu(_) => unreachable!("they were copied"),
    }
}

/// The offsets of a segment.
fn two<T: Item>(offsets: View<'_, T>, index: u64) -> Result<Vec<T>, Error> {
    offsets.slice(index as usize..index as usize + 2)?.to_vec()
}

/// Offsets do not lie where the items do.
fn elsewhere(offsets: &Arc<cuda::Gpu>, device: &Device) -> Error {
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
            lies_on(gpu_of(&data.place()?), &bounds.device())?;
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
        let Some(number) = self.number else { return Ok(*self) };
        let count = number.to_vec()?.first().map_or(0, |&number| number.min(self.count));
        Ok(Self { count, number: None, ..*self })
    }

    pub(crate) fn run<O: Op<D::Item>>(
        &self,
        op: O,
        default: Option<O::Output>,
        block: u32,
    ) -> Result<Buffer<O::Output>, Error>
    where
        O::Output: Item,
    {
        let this = self.counted()?;
        let place = this.data.place()?;
        let device = Device(gpu_of(&place).map_or(Cpu(()), |gpu| Gpu(gpu.clone())));
        if let Bounds::Columns { reduced: 0, .. } = this.bounds
            && !this.is_empty()
            && default.or_else(|| op.finish(op.identity(), 0)).is_none()
        {
            return Err(Error::EmptySegment { op: O::NAME, segment: 0 });
        }
        let mut results = device.zeros::<O::Output>(this.len())?;
        let wrong = match (place, results.whole_mut()) {
            _ if this.is_empty() => None,
            (Cpu(items), Cpu(results)) => this.run_on_host(&op, default, items, results, block)?,
            (Gpu((gpu, items)), Gpu(results)) => {
                let value = default.unwrap_or(bytemuck::Zeroable::zeroed());
                if let Some(columns) = this.as_columns() {
                    let call =
                        ColumnsCall::new(&items, columns, block, &op, (&value, default.is_some()), results);
                    // SAFETY: the types are these; the items stay, and there is a place for each result.
                    unsafe { gpu.reduce_columns(&call)? };
                    None
                } else {
                    let mut copies = Copies::default();
                    let segments =
                        this.bounds.on_gpu(gpu, &mut copies, this.count, this.data.len() as u64)?;
                    // SAFETY: the types are these; the items and the offsets stay, and there is a place for each result.
                    unsafe {
                        let call = SegmentsCall::new(
                            &items,
                            segments,
                            block,
                            &op,
                            (&value, default.is_some()),
                            results,
                        );
                        gpu.reduce_segments(&call)?
                    }
                }
            }
            _ => unreachable!("results lie where the items do"),
        };
        match wrong {
            None => Ok(results),
            Some(wrong) if wrong & Cut::NO_VALUE != 0 => {
                Err(Error::EmptySegment { op: O::NAME, segment: wrong & !Cut::NO_VALUE })
            }
            Some(segment) => Err(this.bounds.what_is_wrong(segment, this.data.len() as u64)),
        }
    }

    /// The columns, where these are some.
    fn as_columns(&self) -> Option<Columns> {
        match self.bounds {
            Bounds::Columns { reduced, inner } => Some(Columns { count: self.count, reduced, inner }),
            _ => None,
        }
    }

    /// As [`run`](Self::run), on the CPU; says what is wrong as a GPU does.
    fn run_on_host<O: Op<D::Item>>(
        &self,
        op: &O,
        default: Option<O::Output>,
        items: D::Slices,
        results: &mut [O::Output],
        block: u32,
    ) -> Result<Option<u64>, Error>
    where
        O::Output: Item,
    {
        if let Some(columns) = self.as_columns() {
            let default = default.unwrap_or(bytemuck::Zeroable::zeroed());
            cpu::reduce_columns::<O, D::Slices, D::Pointers>(op, items, columns, block, default, results);
            return Ok(None);
        }
        let start = self.bounds.on_host()?;
        let none = cpu::reduce_segments(results, self.data.len(), &start, &|range| {
            let is_empty = range.is_empty();
            cpu::reduce_range::<O, D::Slices, D::Pointers>(op, items, range, block)
                .or(default)
                .or((!is_empty).then(bytemuck::Zeroable::zeroed))
        });
        Ok(none.map(|segment| segment | Cut::NO_VALUE))
    }

    /// Enqueues the reduction of each segment, as [`Reduce::enqueue`](crate::Reduce::enqueue); `results` has a place for each, and those
    /// that have no value get the default.
    ///
    /// # Safety
    ///
    /// As there; the offsets stay as the items do, and are such as [`Offsets`] says.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] where `results` has fewer places than there are segments, [`Error::OtherDevice`], also for offsets on
    /// the host of items on a GPU; and as [`Reduce::enqueue`](crate::Reduce::enqueue).
    pub unsafe fn enqueue<O: Op<D::Item>, const BLOCK: u32>(
        &self,
        op: O,
        default: O::Output,
        stream: &mut Stream,
        results: &mut Buffer<O::Output>,
    ) -> Result<(), Error>
    where
        O::Output: Item,
    {
        const { assert_block(BLOCK) };
        results.slice(..self.len())?;
        let on = stream.device();
        let queue = stream.on(results.gpu())?;
        if self.is_empty() {
            return Ok(());
        }
        match (self.data.place()?, results.whole_mut(), queue) {
            (Cpu(items), Cpu(results), None) => {
                let this = self.counted()?;
                this.run_on_host(&op, Some(default), items, &mut results[..this.len()], BLOCK).map(drop)
            }
            (Gpu((gpu, items)), Gpu(results), Some(queue)) if gpu == queue.gpu() => {
                if let Some(columns) = self.as_columns() {
                    let call = ColumnsCall::new(&items, columns, BLOCK, &op, (&default, true), results);
                    // SAFETY: as the caller vouches.
                    return unsafe { queue.enqueue_columns(&call) };
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
                unsafe {
                    let call = SegmentsCall::new(&items, segments, BLOCK, &op, (&default, true), results);
                    queue.enqueue_segments(&call)
                }
            }
            (place, ..) => Err(other_device(gpu_of(&place), &on)),
        }
    }
}
