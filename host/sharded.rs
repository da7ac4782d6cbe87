//! Data on several GPUs: each reduces the chunks that lie on it, and the result has the bits that it has where all lie on one.

use crate::cpu::{self, Source};
use crate::cuda::{
    self, FIRST_BYTES, GpuStream, Group, Launched, Shard, ShardsCall, Slots, enqueue_shards, launch_shards,
    slots_of,
};
use crate::data::{self, Data, gpu_of};
use crate::pending::Pending;
use crate::place::Place::{Cpu, Gpu};
use crate::request::Types;
use crate::{Buffer, Device, Error, Item, Op, Plan, Reduce, Stream, View, threads};
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::width;
use gpu_reduce_kernels::slot;
use rayon::prelude::*;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Several GPUs, or the CPU alone.
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

/// Data in shards, one after the other, each a [`Buffer`] or a [`View`] on one device: they reduce as if they were one array. Shards may have any
/// lengths, and several may lie on one device. (Of pairs: `(&a, &b)` of data that are cut at the same places, or shards that are pairs.)
///
/// Each GPU folds the chunks that lie on it; where a shard ends within a chunk, the smaller part of that is copied to where the larger one is. See
/// [`Plan`].
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

/// The items of a [`Sharded`]: where each shard's lie. Each shard is asked once, when this is made.
#[derive(Clone)]
pub struct Shards<V>(Result<Arc<[V]>, Error>);

impl Devices {
    /// These.
    ///
    /// # Errors
    ///
    /// [`Error::NotDistinct`] where there are none, one is there twice, or the CPU is not alone.
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

    /// All GPUs that the driver has.
    pub(crate) fn all() -> Result<Self, Error> {
        let first = Device::cuda(0)?;
        let others = (1..).map_while(|index| match Device::cuda(index) {
            Err(Error::NoSuchDevice { .. }) => None,
            device => Some(device),
        });
        std::iter::once(Ok(first)).chain(others).collect::<Result<_, _>>().map(Self)
    }

    /// Each of them.
    pub fn as_slice(&self) -> &[Device] {
        &self.0
    }

    /// Copies `data` to the devices, as many elements to each, but for the last; all at a time.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn upload<T: Item>(&self, data: &[T]) -> Result<Sharded<Buffer<T>>, Error> {
        /// Elements that shards have some multiple of: a chunk of most plans then ends where they do.
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

    /// A stream on each device, used as one.
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
    /// The shards.
    pub fn as_slice(&self) -> &[S] {
        &self.0
    }

    /// The shards.
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

/// Where the items of `S` lie that are on one device.
type ShardOf<'a, S> = <<S as Reduce>::Data<'a> as Data<'a>>::Shard;

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
    V: data::Shard<'a> + Data<'a, Shard = V>,
{
    type Item = V::Item;
    type Slices = V::Slices;
    type Pointers = V::Pointers;
    type Shard = V;
    const MAY_BE_SHARDED: bool = true;

    fn shards(&self) -> Result<Vec<V>, Error> {
        self.0.as_ref().map(|shards| shards.to_vec()).map_err(Error::clone)
    }

    /// None where there is an error, which whoever asks for more gets.
    fn len(&self) -> usize {
        self.0.iter().flat_map(|shards| shards.iter()).map(Data::len).fold(0, usize::saturating_add)
    }

    /// Where they are, if that is one place.
    fn place(&self) -> Result<data::Located<'a, Self>, Error> {
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

/// The devices of shards, in words.
fn names<'a, D: Data<'a>>(shards: &[D]) -> String {
    let name = |shard: &D| match shard.place() {
        Ok(place) => Device(gpu_of(&place).map_or(Cpu(()), Gpu)).to_string(),
        Err(error) => error.to_string(),
    };
    shards.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Items on several GPUs, of each of which there are some.
pub(crate) struct Located<'a, D> {
    shards: Vec<Shard>,
    len: u64,
    lifetime: PhantomData<&'a ()>,
    data: PhantomData<fn() -> D>,
}

impl<'a, D: Data<'a>> Located<'a, D> {
    /// Where data lie, if that is in several places.
    pub fn of(data: &D) -> Result<Option<Self>, Error> {
        Ok(Self::of_some(data)?.filter(|located| located.shards.len() > 1))
    }

    /// Where data lie, if there are some, and not on the CPU alone.
    pub fn of_some(data: &D) -> Result<Option<Self>, Error> {
        let parts: Vec<_> = data.shards()?.into_iter().filter(|shard| !shard.is_empty()).collect();
        if parts.is_empty() || parts.len() == 1 && matches!(parts[0].place()?, Cpu(_)) {
            return Ok(None);
        }
        let mut shards = Vec::with_capacity(parts.len());
        for part in &parts {
            let (gpu, pointers) = match part.place()? {
                Gpu(place) => place,
                Cpu(_) => return Err(Error::SeveralDevices { devices: names(&parts) }),
            };
            let mut arrays = Vec::new();
            pointers.arrays(&mut |address, bytes| arrays.push((address, bytes)));
            shards.push(Shard { gpu, len: part.len() as u64, arrays });
        }
        Ok(Some(Self { shards, len: data.len() as u64, lifetime: PhantomData, data: PhantomData }))
    }

    /// Those in a range.
    pub fn part(&self, range: Range<u64>) -> Self {
        let parts = cuda::parts(&self.shards, &range).into_iter().map(|(shard, part)| {
            let Shard { gpu, arrays, .. } = &self.shards[shard];
            let arrays = arrays.iter().map(|&(start, bytes)| (start + part.start * bytes as u64, bytes));
            Shard { gpu, len: part.end - part.start, arrays: arrays.collect() }
        });
        Self {
            shards: parts.collect(),
            len: range.end - range.start,
            lifetime: PhantomData,
            data: PhantomData,
        }
    }

    /// What lies on each GPU, one after the other.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// A stream of ours on each GPU.
    pub fn streams(&self) -> Result<Vec<GpuStream>, Error> {
        let mut streams = Vec::<GpuStream>::new();
        for Shard { gpu, .. } in &self.shards {
            if streams.iter().all(|stream| stream.gpu() != *gpu) {
                streams.push(GpuStream::new(gpu)?);
            }
        }
        Ok(streams)
    }

    /// The GPU of the first items.
    pub fn first_gpu(&self) -> &'static cuda::Gpu {
        self.shards[0].gpu
    }

    fn call<O: Op<D::Item>>(&self, op: &O, block: u32) -> ShardsCall<'_> {
        let plan = Plan::new(self.len, const { width::<O, D::Item>(D::Pointers::BYTES) }, block);
        let of = Types::of::<O, D::Pointers>();
        let (first, first_gpu) = (&self.shards[0].arrays[..], Some(self.first_gpu()));
        let op = (&raw const *op).cast();
        ShardsCall { of, shards: &self.shards, start: 0, first, first_gpu, plan, block, op }
    }

    /// Reduces, as [`Reduce::reduce`].
    pub fn reduce<O: Op<D::Item>>(&self, op: &O, block: u32) -> Result<O::Output, Error> {
        let call = self.call(op, block);
        let mut output = None;
        // SAFETY: the items are borrowed, and the types are these.
        unsafe {
            self.first_gpu().reduce_shards(&call, &mut |slots, first| {
                output = Some(finish::<O, D>(op, &call.plan, slots, first));
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
        let (launched, taking) = self.start(&op, block, streams)?;
        Ok(Pending::new(launched, move |launched| taking.finish::<O, D>(&op, &mut launched.words_of_parts())))
    }

    /// Launches, and says how what comes of it is taken.
    pub fn start<O: Op<D::Item>>(
        &self,
        op: &O,
        block: u32,
        streams: &[GpuStream],
    ) -> Result<(Launched, Taking), Error> {
        let call = self.call(op, block);
        let plan = call.plan;
        // SAFETY: the items are borrowed as long as what is launched, or nobody asks what comes of it; the types are these.
        let (launched, groups) = unsafe { launch_shards(streams, &call)? };
        Ok((launched, Taking { plan, groups: groups.iter().map(Group::chunks_of_jobs).collect() }))
    }

    /// As [`Reduce::reduce_into`].
    ///
    /// # Safety
    ///
    /// As there; the result has a place on the GPU.
    pub unsafe fn enqueue<O: Op<D::Item, Output: Item>>(
        &self,
        op: &O,
        block: u32,
        streams: &[GpuStream],
        on: &'static cuda::Gpu,
        place: *mut O::Output,
    ) -> Result<(), Error> {
        // SAFETY: as the caller vouches; the types are these.
        unsafe { enqueue_shards(streams, &self.call(op, block), on, place.cast()) }
    }
}

/// How what was launched on several GPUs is taken.
pub(crate) struct Taking {
    plan: Plan,
    /// Chunks before those of each job, and how many these are, of each group.
    groups: Vec<Vec<(u32, usize)>>,
}

impl Taking {
    /// The result, from what each part of the work has left, of which it takes its own.
    pub fn finish<'w, 'a, O: Op<D::Item>, D: Data<'a>>(
        &self,
        op: &O,
        parts: &mut impl Iterator<Item = &'w [u64]>,
    ) -> Result<O::Output, Error> {
        let words = const { slot::words::<O::Accumulator>() };
        let mut slots = Vec::new();
        for jobs in &self.groups {
            slots.extend(slots_of(jobs, parts.next().unwrap_or_default(), words));
        }
        let first = if const { size_of::<O>() > 0 } { parts.next().unwrap_or_default() } else { &[] };
        finish::<O, D>(op, &self.plan, &slots, first)
    }
}

/// The result, of what chunks came to, and of the first item where the operator looks at it.
fn finish<'a, O: Op<D::Item>, D: Data<'a>>(
    op: &O,
    plan: &Plan,
    slots: &[Slots],
    first: &[u64],
) -> Result<O::Output, Error> {
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
    let partials = of_slots::<O, D::Item>(op, slots, 0..plan.chunks)?;
    let all = begun.end(cpu::of_partials::<O, D::Slices>(&begun, &partials), plan.len);
    op.finish(all, plan.len).ok_or_else(|| Error::empty(op))
}

/// The partial results of some chunks, from their slots.
fn of_slots<O: Op<I>, I: Copy + 'static>(
    op: &O,
    slots: &[Slots],
    chunks: Range<u32>,
) -> Result<Vec<O::Accumulator>, Error> {
    let words = const { slot::words::<O::Accumulator>() };
    let mut partials = vec![op.identity(); chunks.len()];
    for &Slots { before, words: of_job } in slots {
        let places = &mut partials[(before - chunks.start) as usize..];
        for (place, slot) in places.iter_mut().zip(of_job.chunks(words)) {
            *place = O::of_slot(|index| slot[index]).ok_or_else(|| Error::Launch {
                kernel: O::NAME.to_owned(),
                device: "one of several devices".to_owned(),
                reason: "it has left no result".to_owned(),
            })?;
        }
    }
    Ok(partials)
}

/// The partial results of some chunks of a whole that begins with `first`, from their elements on a GPU; none where that has no kernel for it.
pub(crate) fn partials_on_gpu<O: Op<T>, T: Item>(
    op: &O,
    elements: View<T>,
    plan: &Plan,
    chunks: Range<u32>,
    first: &T,
) -> Result<Option<Vec<O::Accumulator>>, Error> {
    let Gpu((gpu, pointer)) = elements.place()? else { return Ok(None) };
    let of = Types::of::<O, *const T>();
    let block = (plan.row / of.width as u64) as u32;
    if !gpu.has_kernel(of, block)? {
        return Ok(None);
    }
    let shards =
        [Shard { gpu, len: elements.len() as u64, arrays: vec![(pointer.addr() as u64, size_of::<T>())] }];
    let call = ShardsCall {
        of,
        shards: &shards,
        start: plan.elements(chunks.clone()).start,
        first: &[((&raw const *first).addr() as u64, size_of::<T>())],
        first_gpu: None,
        plan: *plan,
        block,
        op: (&raw const *op).cast(),
    };
    let mut partials = None;
    // SAFETY: the elements are borrowed, and the types are these.
    unsafe {
        gpu.reduce_shards(&call, &mut |slots, _| {
            partials = Some(of_slots::<O, T>(op, slots, chunks.clone()));
        })?;
    }
    partials.transpose()
}
