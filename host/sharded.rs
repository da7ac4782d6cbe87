//! Data on several GPUs. Each GPU folds the chunks that lie on it; the result has the bits of the same data
//! on one GPU.

use crate::by_index::Order;
use crate::cpu::Source;
use crate::cuda::{Gpu, GpuStream, Launched, enqueue_shards, launch_shards};
use crate::data::{Data, PlaceOf, Shard, gpu_of};
use crate::pending::Pending;
use crate::place::Place::{Cpu, Gpu as OnGpu};
use crate::request::Types;
use crate::shares::Shares;
use crate::{Buffer, Device, Error, Item, Op, Plan, Reduce, Stream, parts, threads};
use gpu_reduce_kernels::agent::in_parts;
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::width;
use gpu_reduce_kernels::slot;
use rayon::prelude::*;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Several GPUs, or the CPU alone.
///
/// [`Device::all`] returns all GPUs.
///
/// ```
/// use gpu_reduce::{Device, Devices, Max, Reduce, Sum};
///
/// let devices = Device::all().or_else(|_| Devices::new([Device::cpu()]))?;
/// let x = devices.upload(&[1.5f32, 2.5, 3.0])?;
/// assert_eq!(x.reduce::<Sum, 256>()?, 7.0);
/// assert_eq!(gpu_reduce::max(&x)?, 3.0);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Devices(Vec<Device>);

/// The devices' names: `cuda:0 (NVIDIA H200), cuda:1 (NVIDIA H200)`.
impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (index, device) in self.0.iter().enumerate() {
            write!(f, "{}{device}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// Data in shards, which reduce as one array.
///
/// A shard is a [`Buffer`] or a [`View`](crate::View) on one device. Shards may have any lengths, and several
/// may lie on one device. To reduce pairs, use `(&a, &b)` of data that are cut at the same places, or shards
/// that are pairs.
///
/// Each GPU folds the [chunks](Plan) that lie on it. If a chunk lies on several GPUs, they copy it to the one
/// with most of it. Integers, extremes, counts and exact sums need no plan: their order does not matter, so
/// each GPU reduces its shards as arrays of their own.
///
/// ```
/// use gpu_reduce::{Device, Reduce, Sharded, Sum};
///
/// let device = Device::default_device();
/// let shards = Sharded::from(vec![device.upload(&[0.1f32; 1000])?]);
/// assert_eq!(shards.reduce::<Sum, 256>()?, [0.1f32; 1000].reduce::<Sum, 256>()?);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Clone)]
pub struct Sharded<S>(Vec<S>);

/// The items of a [`Sharded`], where they lie.
///
/// Each shard is asked once where its items lie, when this is made.
#[derive(Clone, Debug)]
pub struct Shards<V>(Result<Arc<[V]>, Error>);

impl Devices {
    /// Returns these devices as one.
    ///
    /// # Errors
    ///
    /// [`Error::NotDistinct`] if there are no devices, if one is there twice, or if the CPU is not the only
    /// one.
    pub fn new(devices: impl IntoIterator<Item = Device>) -> Result<Self, Error> {
        let devices: Vec<_> = devices.into_iter().collect();
        let wrong = devices.iter().enumerate().find(|&(index, device)| {
            devices[..index].contains(device) || device.is_cpu() && devices.len() > 1
        });
        match wrong {
            Some((_, device)) => Err(Error::NotDistinct { device: device.to_string() }),
            None if devices.is_empty() => Err(Error::NotDistinct { device: "none".to_owned() }),
            None => Ok(Self(devices)),
        }
    }

    /// Returns all GPUs of the driver.
    pub(crate) fn all() -> Result<Self, Error> {
        let first = Device::cuda(0)?;
        let others = (1..).map_while(|index| match Device::cuda(index) {
            Err(Error::NoSuchDevice { .. }) => None,
            device => Some(device),
        });
        std::iter::once(Ok(first)).chain(others).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the devices.
    pub fn as_slice(&self) -> &[Device] {
        &self.0
    }

    /// Copies `data` to the devices, all at once: the same number of elements to each but the last.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn upload<T: Item>(&self, data: &[T]) -> Result<Sharded<Buffer<T>>, Error> {
        /// Long shards have a multiple of this number of elements: in most plans, a chunk then ends where
        /// they do.
        const MULTIPLE: usize = 1 << 16;
        let len = data.len().div_ceil(self.0.len());
        let len = if len < MULTIPLE { len } else { len.next_multiple_of(MULTIPLE) };
        let parts = (0..self.0.len()).map(|index| {
            let start = (index * len).min(data.len());
            &data[start..(start + len).min(data.len())]
        });
        let parts: Vec<_> = self.0.iter().zip(parts).collect();
        let upload = |(device, data): (&Device, &[T])| device.upload(data);
        threads::install(|| parts.into_par_iter().map(upload).collect::<Result<_, _>>()).map(Sharded)
    }

    /// Returns a stream on each device, used as one.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn stream(&self) -> Result<Stream<'static>, Error> {
        Stream::together(self.0.iter().map(Device::stream).collect::<Result<Vec<_>, _>>()?)
    }
}

impl<S> From<Vec<S>> for Sharded<S> {
    fn from(shards: Vec<S>) -> Self {
        Self(shards)
    }
}

impl<S> Sharded<S> {
    /// Returns the shards.
    pub fn as_slice(&self) -> &[S] {
        &self.0
    }

    /// Returns the shards.
    pub fn into_vec(self) -> Vec<S> {
        self.0
    }
}

impl<T: Item> Sharded<Buffer<T>> {
    /// Copies all elements to the host.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let parts: Vec<_> = self.0.iter().map(Buffer::to_vec).collect::<Result<_, _>>()?;
        Ok(parts.concat())
    }
}

impl<S: Reduce> fmt::Debug for Sharded<S> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let lens: Vec<_> = self.0.iter().map(Reduce::len).collect();
        f.debug_struct("Sharded").field("lens", &lens).finish()
    }
}

/// The items of one device in a shard of type `S`.
type ShardOf<'a, S> = <<S as Reduce>::Data<'a> as Data<'a>>::Shard;

#[diagnostic::do_not_recommend]
impl<S: Reduce> Reduce for Sharded<S> {
    type Item = S::Item;
    type Data<'a>
        = Shards<ShardOf<'a, S>>
    where
        Self: 'a;

    fn data(&self) -> Self::Data<'_> {
        let mut shards = Vec::with_capacity(self.0.len());
        for shard in &self.0 {
            match shard.data().shards() {
                Ok(of_shard) => shards.extend(of_shard),
                Err(error) => return Shards(Err(error)),
            }
        }
        Shards(Ok(shards.into()))
    }
}

impl<'a, V> Data<'a> for Shards<V>
where
    V: Shard<'a> + Data<'a, Shard = V>,
{
    type Item = V::Item;
    type Slices = V::Slices;
    type Pointers = V::Pointers;
    type Shard = V;
    type Owned = V::Owned;
    const MAY_BE_SHARDED: bool = true;

    fn gather(&self, order: &Order) -> Result<V::Owned, Error> {
        self.only()?.gather(order)
    }

    fn to_host(&self) -> Result<V::Owned, Error> {
        self.only()?.to_host()
    }

    fn shards(&self) -> Result<Vec<V>, Error> {
        self.0.as_ref().map(|shards| shards.to_vec()).map_err(Error::clone)
    }

    /// 0 after an error, which the other methods return.
    fn len(&self) -> usize {
        self.0.iter().flat_map(|shards| shards.iter()).map(Data::len).fold(0, usize::saturating_add)
    }

    /// Fails if the items lie in several places.
    fn place(&self) -> Result<PlaceOf<'a, Self>, Error> {
        let shards = self.0.as_ref().map_err(Error::clone)?;
        let mut some = shards.iter().filter(|shard| !shard.is_empty());
        match (some.next(), some.next()) {
            (Some(shard), None) => shard.place(),
            (None, _) => match shards.first() {
                Some(shard) => shard.place(),
                None => Ok(Cpu(Source::none())),
            },
            _ => Err(Error::SeveralDevices { devices: names(shards) }),
        }
    }
}

impl<'a, V> Shards<V>
where
    V: Shard<'a> + Data<'a, Shard = V>,
{
    /// Returns the shard that has all items.
    fn only(&self) -> Result<&V, Error> {
        let shards = self.0.as_ref().map_err(Error::clone)?;
        let some = shards.iter().find(|shard| !shard.is_empty()).or(shards.first());
        match some {
            Some(shard) if shard.len() == self.len() => Ok(shard),
            _ => Err(Error::SeveralDevices { devices: names(shards) }),
        }
    }
}

/// Returns the names of the shards' devices.
fn names<'a, D: Data<'a>>(shards: &[D]) -> String {
    let name = |shard: &D| match shard.place() {
        Ok(place) => Device(gpu_of(&place).map_or(Cpu(()), OnGpu)).to_string(),
        Err(error) => error.to_string(),
    };
    shards.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Bytes from one array's first item on the host to the next one's: items have an alignment of up to 64.
pub const FIRST_BYTES: usize = 64;

/// The items of an array that lie on one GPU.
pub struct GpuShard {
    pub gpu: &'static Gpu,
    pub len: u64,
    /// The address of each array's items (a pair has two arrays), and the size of an element.
    pub arrays: Vec<(u64, usize)>,
    /// The input's [`head`](Input::head); `None` serves as well.
    pub head: Option<u32>,
}

/// A reduction of items on several GPUs, or of some chunks of them.
pub struct ShardsCall<'a> {
    pub of: &'static Types,
    /// The shards, none of which is empty.
    pub shards: &'a [GpuShard],
    /// Where the shards lie in the whole array. The first begins where a chunk does.
    pub shares: &'a Shares,
    /// The address and the size of the first item of the whole array, in each array of a pair.
    pub first: &'a [(u64, usize)],
    /// The GPU of the first item, if it lies on one.
    pub first_gpu: Option<&'static Gpu>,
    /// The plan of the whole array.
    pub plan: Plan,
    /// Whether each shard reduces as an array of its own, and has a slot for its accumulator. Shards then
    /// take the place of chunks.
    pub in_parts: bool,
    pub block: u32,
    pub op: *const c_void,
}

/// Chunks in the order of their slots.
pub type SlotOrder = Vec<Range<u32>>;

/// The words of slots that hold the partial results of some chunks.
pub struct SlotsOfChunks<'a> {
    pub chunks: &'a SlotOrder,
    pub words: &'a [u64],
}

/// Items on GPUs, in shards that are not empty.
pub(crate) struct Located<'a, D> {
    shards: Vec<GpuShard>,
    shares: Shares,
    lifetime: PhantomData<&'a ()>,
    data: PhantomData<fn() -> D>,
}

impl<'a, D: Data<'a>> Located<'a, D> {
    /// Returns where the data lie if they lie in several places.
    pub fn of(data: &D) -> Result<Option<Self>, Error> {
        Ok(Self::of_some(data)?.filter(|located| located.shards.len() > 1))
    }

    /// Returns where the data lie if there are items, and not on the CPU.
    pub fn of_some(data: &D) -> Result<Option<Self>, Error> {
        let parts: Vec<_> = data.shards()?.into_iter().filter(|shard| !shard.is_empty()).collect();
        if parts.is_empty() || parts.len() == 1 && matches!(parts[0].place()?, Cpu(_)) {
            return Ok(None);
        }
        let mut shards = Vec::with_capacity(parts.len());
        for part in &parts {
            let (gpu, pointers) = match part.place()? {
                OnGpu(place) => place,
                Cpu(_) => return Err(Error::SeveralDevices { devices: names(&parts) }),
            };
            let mut arrays = Vec::new();
            pointers.arrays(&mut |address, bytes| arrays.push((address, bytes)));
            shards.push(GpuShard { gpu, len: part.len() as u64, arrays, head: pointers.head() });
        }
        Ok(Some(Self::new(shards)))
    }

    fn new(shards: Vec<GpuShard>) -> Self {
        let shares = Shares::new(0, shards.iter().map(|shard| shard.len));
        Self { shards, shares, lifetime: PhantomData, data: PhantomData }
    }

    /// Returns the items of a range.
    pub fn part(&self, range: Range<u64>) -> Self {
        let parts = self.shares.parts(range).map(|(shard, part)| {
            let skipped = part.start - self.shares.range(shard).start;
            let GpuShard { gpu, arrays, .. } = &self.shards[shard];
            let arrays = arrays.iter().map(|&(start, bytes)| (start + skipped * bytes as u64, bytes));
            GpuShard { gpu, len: part.end - part.start, arrays: arrays.collect(), head: None }
        });
        Self::new(parts.collect())
    }

    /// Returns the items of each shard.
    pub fn shards(&self) -> &[GpuShard] {
        &self.shards
    }

    /// Returns a stream of ours on each GPU.
    pub fn streams(&self) -> Result<Vec<GpuStream>, Error> {
        let mut streams = Vec::<GpuStream>::new();
        for GpuShard { gpu, .. } in &self.shards {
            if streams.iter().all(|stream| stream.gpu() != *gpu) {
                streams.push(GpuStream::new(gpu)?);
            }
        }
        Ok(streams)
    }

    /// Returns the GPU of the first items.
    pub fn first_gpu(&self) -> &'static Gpu {
        self.shards[0].gpu
    }

    fn call<O: Op<D::Item>>(&self, op: &O, block: u32, in_parts: bool) -> ShardsCall<'_> {
        let Self { shards, shares, .. } = self;
        let plan = Plan::new(shares.len(), const { width::<O, D::Item>(D::Pointers::BYTES) }, block);
        let of = Types::of::<O, D::Pointers>();
        let (first, first_gpu) = (&shards[0].arrays[..], Some(self.first_gpu()));
        ShardsCall {
            of,
            shards,
            shares,
            first,
            first_gpu,
            plan,
            in_parts,
            block,
            op: (&raw const *op).cast(),
        }
    }

    /// Returns where the shards begin if each reduces as an array of its own.
    fn starts<O: Op<D::Item>>(&self) -> Option<Vec<u64>> {
        let start = |shard| self.shares.range(shard).start;
        const { in_parts::<O, D::Item>() }.then(|| (0..self.shards.len()).map(start).collect())
    }

    /// Reduces, as [`Reduce::reduce`].
    pub fn reduce<O: Op<D::Item>>(&self, op: &O, block: u32) -> Result<O::Output, Error> {
        let starts = self.starts::<O>();
        let call = self.call(op, block, starts.is_some());
        let mut output = None;
        // SAFETY: the items are borrowed, and the types are the call's.
        unsafe {
            self.first_gpu().reduce_shards(&call, &mut |slots, first| {
                output = Some(finish::<O, D>(op, &call.plan, starts.as_deref(), slots, first));
            })?;
        }
        output.unwrap_or_else(|| Err(Error::empty(op)))
    }

    /// As [`Reduce::reduce_async`].
    pub fn launch<O: Op<D::Item>>(
        &self,
        op: O,
        block: u32,
        streams: &[GpuStream],
    ) -> Result<Pending<'a, O::Output>, Error> {
        let (launched, slots) = self.start(&op, block, streams)?;
        Ok(Pending::new(launched, move |launched| slots.finish::<O, D>(&op, &mut launched.words_of_parts())))
    }

    /// Launches, and returns where the partial results will be.
    pub fn start<O: Op<D::Item>>(
        &self,
        op: &O,
        block: u32,
        streams: &[GpuStream],
    ) -> Result<(Launched, SlotLayout), Error> {
        let starts = self.starts::<O>();
        let call = self.call(op, block, starts.is_some());
        let plan = call.plan;
        // SAFETY: the items are borrowed until the work is done, or nobody asks for its result; the types are
        // the call's.
        let (launched, chunks) = unsafe { launch_shards(streams, &call)? };
        Ok((launched, SlotLayout { plan, starts, chunks }))
    }

    /// As [`Reduce::reduce_into`].
    ///
    /// # Safety
    ///
    /// As for [`Reduce::reduce_into`]; `place` is a place for the result on the GPU `on`.
    pub unsafe fn enqueue<O: Op<D::Item, Output: Item>>(
        &self,
        op: &O,
        block: u32,
        streams: &[GpuStream],
        on: &'static Gpu,
        place: *mut O::Output,
    ) -> Result<(), Error> {
        // SAFETY: as the caller vouches; the types are the call's.
        unsafe { enqueue_shards(streams, &self.call(op, block, false), on, place.cast()) }
    }
}

/// Which chunks have their slots in the words of which part of launched work.
pub(crate) struct SlotLayout {
    plan: Plan,
    /// Where the shards begin if each has reduced as an array of its own.
    starts: Option<Vec<u64>>,
    /// The chunks of each part.
    chunks: Vec<SlotOrder>,
}

impl SlotLayout {
    /// Returns the result. Takes the words of its parts of the work from `parts`, and no others.
    pub fn finish<'w, 'a, O: Op<D::Item>, D: Data<'a>>(
        &self,
        op: &O,
        parts: &mut impl Iterator<Item = &'w [u64]>,
    ) -> Result<O::Output, Error> {
        let slots = self.chunks.iter().map(|chunks| {
            let words = parts.next().unwrap_or_default();
            SlotsOfChunks { chunks, words }
        });
        let slots: Vec<_> = slots.collect();
        let looks_at_first = const { size_of::<O>() > 0 } && self.starts.is_none();
        let first = if looks_at_first { parts.next().unwrap_or_default() } else { &[] };
        finish::<O, D>(op, &self.plan, self.starts.as_deref(), &slots, first)
    }
}

/// Returns the result from the slots of all chunks, and from the words of the first item if the operator has
/// fields; or from the slots of all shards if `starts` says where these begin.
fn finish<'a, O: Op<D::Item>, D: Data<'a>>(
    op: &O,
    plan: &Plan,
    starts: Option<&[u64]>,
    slots: &[SlotsOfChunks],
    first: &[u64],
) -> Result<O::Output, Error> {
    if let Some(starts) = starts {
        let of_shards = parts::from_slots(op, slots, 0..starts.len() as u32, |_, word| slot::full(word))?;
        let all = parts::join(op, starts.iter().copied().zip(of_shards));
        return op.finish(all, plan.len).ok_or_else(|| Error::empty(op));
    }
    let mut begun = *op;
    if const { size_of::<O>() > 0 } {
        let mut next = first.as_ptr().expose_provenance();
        let input = D::Pointers::at(&mut |bytes| {
            let place = next;
            next += bytes.next_multiple_of(FIRST_BYTES);
            place
        });
        // SAFETY: the bytes of an item's elements were copied there, each to a place of its alignment.
        begun = op.begin(unsafe { input.read() });
    }
    let partials = parts::from_slots(op, slots, 0..plan.chunks, parts::of_slot)?;
    parts::finish::<O, D::Slices>(&begun, &partials, plan.len).ok_or_else(|| Error::empty(op))
}
