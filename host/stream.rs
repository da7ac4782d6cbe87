//! Streams: what is enqueued on one runs in order, while the program goes on.

use crate::call::{Call, Types};
use crate::cuda::{self, GpuStream};
use crate::data::{Data, gpu_of, other_device};
use crate::pending::Pending;
use crate::place::Place::{self, Cpu, Gpu};
use crate::sharded::Located as Sharded;
use crate::{Device, Error, Item, Op, View, ViewMut, cpu};
use std::ffi::c_void;
use std::marker::PhantomData;

/// A queue of a device's work: one of ours ([`Device::stream`]), or somebody else's ([`Device::stream_from_raw`]; cust's by `TryFrom`). What was
/// enqueued before on the same queue, by whomever, is done before. On the CPU it is always empty: what is enqueued is done at once.
///
/// It keeps the memory that reductions need beside their items, and gives it back for other streams when it is dropped, which waits for nothing. So a
/// stream that somebody makes anew for each call is no loss but for a microsecond or two. Several threads may enqueue on it.
///
/// Ours, like cust's, wait for the legacy default stream, and it waits for them: so the driver refuses synchronous copies, of any thread's, while one is
/// captured, and the capture is invalid then.
///
/// See [`Reduce::enqueue`](crate::Reduce::enqueue), [`Reduce::launch`](crate::Reduce::launch) and [`upload`](Self::upload).
///
/// One for [several devices](crate::Devices::stream) has a queue on each: what is given to it runs where its items lie.
pub struct Stream<'a>(Place<(), Vec<GpuStream>>, PhantomData<&'a ()>);

impl Stream<'static> {
    pub(crate) fn new(device: &Device) -> Result<Self, Error> {
        let stream = match device.0 {
            Cpu(()) => Cpu(()),
            Gpu(gpu) => Gpu(vec![GpuStream::new(gpu)?]),
        };
        Ok(Self(stream, PhantomData))
    }
}

impl<'a> Stream<'a> {
    /// A stream of the driver's.
    ///
    /// # Safety
    ///
    /// It is one, and stays for `'a`.
    pub(crate) unsafe fn of(device: &Device, stream: *mut c_void) -> Result<Self, Error> {
        let stream = match device.0 {
            Cpu(()) => Cpu(()),
            // SAFETY: as the caller vouches.
            Gpu(gpu) => Gpu(vec![unsafe { GpuStream::of(gpu, stream) }?]),
        };
        Ok(Self(stream, PhantomData))
    }

    /// The same stream, with scratch memory of the caller's: what calls need beside their items and results, and otherwise take from a pool. A call takes as much as its `scratch_bytes` says ([`Reduce`](crate::Reduce::scratch_bytes), [`Segments`](crate::Segments::scratch_bytes),
    /// [`Runs`](crate::Runs::scratch_bytes)) where none before has taken as much for its kind; so the sum suffices for several. What is
    /// launched takes as much as what is enqueued; segments and rows that are launched have memory of their own.
    ///
    /// On the CPU nothing is needed.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let device = Device::default_device();
    /// let x = device.upload(&vec![0.5f32; 100_000])?;
    /// let mut sum = device.zeros::<f32>(1)?;
    /// let mut scratch = device.zeros::<u64>(x.scratch_bytes::<Sum, 256>().div_ceil(8))?;
    /// // SAFETY: nothing else uses the memory, and all stay until the stream has been waited for.
    /// unsafe {
    ///     let stream = device.stream()?.with_scratch(scratch.view_mut())?;
    ///     x.enqueue::<Sum, 256>(&stream, &mut sum)?;
    ///     stream.wait()?;
    /// }
    /// assert_eq!(sum.to_vec()?, [50_000.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Nothing else uses the memory until the stream has been waited for that was returned, after the last call on it, nor while a graph runs that was captured on
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDevice`]. A call that takes more than is left is [`Error::Scratch`].
    pub unsafe fn with_scratch<'b>(mut self, scratch: ViewMut<'b, u64>) -> Result<Stream<'b>, Error>
    where
        'a: 'b,
    {
        self.on(scratch.gpu())?;
        let bytes = scratch.len() * size_of::<u64>();
        let gpu = scratch.gpu();
        if let (Gpu(streams), Gpu(scratch)) = (&mut self.0, scratch.into_places())
            && let Some(stream) = streams.iter_mut().find(|stream| Some(stream.gpu()) == gpu)
        {
            stream.lend(scratch.addr() as u64, bytes)?;
        }
        Ok(Stream(self.0, PhantomData))
    }

    /// Streams of different devices, to be used as one.
    ///
    /// ```
    /// use gpu_reduce::{Device, Stream};
    ///
    /// let streams = Stream::together([Device::cpu().stream()?])?;
    /// assert!(streams.device().is_cpu());
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotDistinct`] where there are none, two of a device, or several and one of them the CPU's.
    pub fn together(streams: impl IntoIterator<Item = Self>) -> Result<Self, Error> {
        let mut streams = streams.into_iter();
        let not_distinct = |device: Device| Error::NotDistinct { device: device.to_string() };
        let Some(mut all) = streams.next() else { return Err(Error::NotDistinct { device: "none".into() }) };
        for stream in streams {
            let device = stream.device();
            match (&mut all.0, stream.0) {
                (Gpu(all), Gpu(streams)) => {
                    for stream in streams {
                        if all.iter().any(|other| other.gpu() == stream.gpu()) {
                            return Err(not_distinct(Device(Gpu(stream.gpu()))));
                        }
                        all.push(stream);
                    }
                }
                _ => return Err(not_distinct(device)),
            }
        }
        Ok(all)
    }

    /// The device that it is of; of several the first.
    pub fn device(&self) -> Device {
        Device(match self.first() {
            None => Cpu(()),
            Some(stream) => Gpu(stream.gpu()),
        })
    }

    /// The stream of its first device, where that is a GPU.
    fn first(&self) -> Option<&GpuStream> {
        match &self.0 {
            Cpu(()) => None,
            Gpu(streams) => streams.first(),
        }
    }

    /// Waits for all that is enqueued.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], also for a launch that failed since.
    pub fn wait(&self) -> Result<(), Error> {
        match &self.0 {
            Cpu(()) => Ok(()),
            Gpu(streams) => streams.iter().map(GpuStream::wait).fold(Ok(()), Result::and),
        }
    }

    /// Enqueues a copy of host elements to the first places of `to`, which may have more. From [pinned](Device::pinned) memory it returns at once, and what
    /// is enqueued on other streams runs meanwhile; of other memory the driver makes a copy first, for which it may wait.
    ///
    /// On the CPU it is done when the call returns.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let device = Device::default_device();
    /// let stream = device.stream()?;
    /// let (mut host, mut sum) = (device.pinned::<f32>(1000)?, device.pinned::<f32>(1)?);
    /// let (mut x, mut result) = (device.zeros(1000)?, device.zeros(1)?);
    /// host.fill(0.5);
    /// // SAFETY: all four stay, and are not used otherwise, until the stream has been waited for.
    /// unsafe {
    ///     stream.upload(&host, &mut x)?;
    ///     x.enqueue::<Sum, 256>(&stream, &mut result)?;
    ///     stream.download(result.view(), &mut sum)?;
    /// }
    /// stream.wait()?;
    /// assert_eq!(sum[0], 500.0);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until the stream has been waited for, neither side is freed, `from` is not written, and the elements of `to` are neither read nor written; by what is
    /// enqueued on the same stream, they may be. So it is with a graph that it was captured in, each time that one runs: it copies what `from` has then.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] where `to` has fewer places, [`Error::OtherDevice`], [`Error::Driver`].
    pub unsafe fn upload<'r, T: Item>(&self, from: &[T], to: impl Into<ViewMut<'r, T>>) -> Result<(), Error> {
        let to = to.into().slice_mut(..from.len())?;
        let gpu = to.gpu();
        let stream = self.on(gpu)?;
        match (to.into_places(), stream) {
            (Cpu(to), None) => to.copy_from_slice(from),
            (Gpu(to), Some(stream)) => match size_of_val(from) {
                0 => {}
                // SAFETY: as the caller vouches.
                bytes => unsafe { stream.upload(from.as_ptr().cast(), to.cast(), bytes)? },
            },
            _ => return Err(other_device(gpu, &self.device())),
        }
        Ok(())
    }

    /// Enqueues a copy of a device's elements to the first of `to`, host memory that may have more. Where that is [pinned](Device::pinned) it returns at
    /// once; to other memory the driver may wait for the copy, and so for what was enqueued before.
    ///
    /// On the CPU it is done when the call returns.
    ///
    /// # Safety
    ///
    /// As of [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// As there.
    pub unsafe fn download<T: Item>(&self, from: View<'_, T>, to: &mut [T]) -> Result<(), Error> {
        let len = to.len();
        let Some(to) = to.get_mut(..from.len()) else {
            return Err(Error::OutOfBounds { start: 0, end: from.len(), len });
        };
        let place = from.place()?;
        match (place, self.on(gpu_of(&place))?) {
            (Cpu(from), None) => to.copy_from_slice(from),
            (Gpu((_, from)), Some(stream)) => match size_of_val(to) {
                0 => {}
                // SAFETY: as the caller vouches; the elements' bytes are those of `T`s.
                bytes => unsafe { stream.download(from.cast(), to.as_mut_ptr().cast(), bytes)? },
            },
            (place, _) => return Err(other_device(gpu_of(&place), &self.device())),
        }
        Ok(())
    }

    /// The `CUstream`, for the driver's own functions, such as those that capture a graph; none on the CPU. It lives as long as
    /// the stream.
    pub fn as_raw(&self) -> Option<*mut c_void> {
        self.first().map(GpuStream::as_raw)
    }

    /// Has what is enqueued here from now on come after what another stream was given so far, by its handle. The host waits for nothing. On the CPU all
    /// is done already.
    ///
    /// # Safety
    ///
    /// The other is a stream of this driver's.
    pub(crate) unsafe fn come_after(&self, other: *mut c_void) -> Result<(), Error> {
        match self.first() {
            None => Ok(()),
            // SAFETY: as the caller vouches.
            Some(stream) => unsafe { stream.come_after(other) },
        }
    }

    /// As [`Reduce::enqueue`](crate::Reduce::enqueue).
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn enqueue<'d, D: Data<'d>, O: Op<D::Item>>(
        &self,
        data: D,
        op: &O,
        block: u32,
        result: ViewMut<'_, O::Output>,
    ) -> Result<(), Error>
    where
        O::Output: Item,
    {
        let none = || op.finish(op.identity(), 0).ok_or_else(|| Error::empty(op));
        let result = result.slice_mut(..1)?;
        let gpu = result.gpu();
        let stream = self.on(gpu)?;
        if const { D::MAY_BE_SHARDED }
            && let Gpu(streams) = &self.0
            && let Some(sharded) = Sharded::of_some(&data)?
        {
            let (Some(on), Gpu(place)) = (gpu, result.into_places()) else {
                unreachable!("they are the stream's")
            };
            // SAFETY: as the caller vouches; the result's place is in bounds.
            return unsafe { sharded.enqueue(op, block, streams, on, place) };
        }
        match (data.place()?, result.into_places(), stream) {
            (Cpu(items), Cpu(result), None) => {
                result[0] = match data.len() {
                    0 => none()?,
                    _ => cpu::reduce::<O, D::Slices, D::Pointers>(op, items, block)
                        .unwrap_or(bytemuck::Zeroable::zeroed()),
                };
                Ok(())
            }
            // SAFETY: as the caller vouches; the result's place is in bounds.
            (_, Gpu(result), Some(stream)) if D::MAY_BE_SHARDED && data.len() == 0 => unsafe {
                stream.fill(result.cast(), bytemuck::bytes_of(&none()?))
            },
            // SAFETY: as above.
            (Gpu((of_items, items)), Gpu(result), Some(stream)) if Some(of_items) == gpu => unsafe {
                match data.len() {
                    0 => stream.fill(result.cast(), bytemuck::bytes_of(&none()?)),
                    len => {
                        let types = Types::of::<O, D::Pointers>();
                        let call = Call::new(types, (&raw const *op).cast(), &items, len as u64, block);
                        stream.enqueue(&call, result.cast())
                    }
                }
            },
            (place, ..) => Err(other_device(gpu_of(&place), &Device(gpu.map_or(Cpu(()), Gpu)))),
        }
    }

    /// As [`Reduce::launch`](crate::Reduce::launch).
    pub(crate) fn launch<'d, D: Data<'d>, O: Op<D::Item>>(
        &self,
        data: D,
        op: O,
        block: u32,
    ) -> Result<Pending<'d, O::Output>, Error> {
        let value = move |value: Option<O::Output>| value.ok_or_else(|| Error::empty(&op));
        if const { D::MAY_BE_SHARDED }
            && let Gpu(streams) = &self.0
            && let Some(sharded) = Sharded::of(&data)?
        {
            return sharded.launch(op, block, streams);
        }
        let place = data.place()?;
        match (place, self.on(gpu_of(&place))?) {
            _ if data.len() == 0 => Ok(Pending::done(value(op.finish(op.identity(), 0)))),
            (Cpu(items), None) => {
                Ok(Pending::done(value(cpu::reduce::<O, D::Slices, D::Pointers>(&op, items, block))))
            }
            (Gpu((_, items)), Some(stream)) => {
                let len = data.len() as u64;
                // SAFETY: the types are these; the items are borrowed until the work has been waited for, or nobody asks what comes of it: whatever
                // memory they are in then, it is read and no more, and to free it waits for the device.
                let launched = unsafe {
                    let types = Types::of::<O, D::Pointers>();
                    stream.launch(&Call::new(types, (&raw const op).cast(), &items, len, block))?
                };
                Ok(Pending::new(launched, move |launched| {
                    let words = launched.words();
                    let mut all = op.identity();
                    // SAFETY: the bytes of an accumulator, which is plain.
                    let bytes = unsafe {
                        let bytes = (&raw mut all).cast();
                        std::slice::from_raw_parts_mut(bytes, size_of::<O::Accumulator>())
                    };
                    gpu_reduce_kernels::slot::unpack_bytes(bytes, |index| words[index]);
                    value(op.finish(all, len))
                }))
            }
            (place, _) => Err(other_device(gpu_of(&place), &self.device())),
        }
    }

    /// The streams of GPUs.
    pub(crate) fn streams(&self) -> &[GpuStream] {
        match &self.0 {
            Cpu(()) => &[],
            Gpu(streams) => streams,
        }
    }

    /// The stream of this GPU; none of the CPU, where that is it; an error where there is none.
    pub(crate) fn on(&self, gpu: Option<&'static cuda::Gpu>) -> Result<Option<&GpuStream>, Error> {
        match (gpu, &self.0) {
            (None, Cpu(())) => Ok(None),
            (Some(_), Gpu(streams)) => match streams.iter().find(|stream| Some(stream.gpu()) == gpu) {
                Some(stream) => Ok(Some(stream)),
                None => Err(other_device(gpu, &self.device())),
            },
            _ => Err(other_device(gpu, &self.device())),
        }
    }
}
