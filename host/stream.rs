//! Streams: work that is enqueued on one runs in order, while the program goes on.

use crate::cuda::{self, GpuStream};
use crate::data::{Data, gpu_of, other_device};
use crate::place::Place::{self, Cpu, Gpu};
use crate::{Device, Error, Item, View, ViewMut};
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

/// A queue of work for a device.
///
/// It is one of ours ([`Device::stream`]), or belongs to another library ([`Device::stream_from_raw`]; cust's
/// by `TryFrom`). Work that anyone enqueued on it before is done before. On the CPU it is always empty: work
/// is done at once.
///
/// A stream owns the scratch memory of its reductions, and leaves it for other streams when it is dropped,
/// which waits for nothing. So a new stream for each call costs a microsecond or two. Several threads may
/// enqueue on a stream.
///
/// Our streams, like cust's, do not synchronize with the legacy default stream by themselves; but the driver
/// refuses synchronous copies, by any thread, while one of them is captured, and the capture is then invalid.
///
/// A stream of [several devices](crate::Devices::stream) has a queue on each, and work runs where its items
/// lie.
///
/// See [`Reduce::reduce_into`](crate::Reduce::reduce_into),
/// [`Reduce::reduce_async`](crate::Reduce::reduce_async) and [`upload`](Self::upload).
pub struct Stream<'a>(Place<(), Vec<GpuStream>>, PhantomData<&'a ()>);

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut devices = f.debug_list();
        match &self.0 {
            Cpu(()) => devices.entry(&format_args!("cpu")),
            Gpu(streams) => devices.entries(streams.iter().map(GpuStream::gpu)),
        };
        devices.finish()
    }
}

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
    /// A stream of the driver.
    ///
    /// # Safety
    ///
    /// `stream` is one, and lives for `'a`.
    pub(crate) unsafe fn of(device: &Device, stream: *mut c_void) -> Result<Self, Error> {
        let stream = match device.0 {
            Cpu(()) => Cpu(()),
            // SAFETY: as the caller vouches.
            Gpu(gpu) => Gpu(vec![unsafe { GpuStream::of(gpu, stream) }?]),
        };
        Ok(Self(stream, PhantomData))
    }

    /// Returns the same stream, with scratch memory that the caller lends it.
    ///
    /// Calls take scratch memory from it and not from the driver. The first call of a kind, and one that
    /// needs more than those before, takes what its `scratch_bytes` says
    /// ([`Reduction`](crate::Reduction::scratch_bytes),
    /// [`SegmentReduction`](crate::SegmentReduction::scratch_bytes), [`Runs`](crate::Runs::scratch_bytes));
    /// so the sum suffices for several. `run_async` takes as much as `run_into`, except that segments and
    /// rows have memory of their own. On the CPU nothing is needed.
    ///
    /// While the stream is captured, such calls need not have been made before: the graph clears the memory
    /// each time it runs. Their kernels must have been loaded, by the same call on any stream.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let device = Device::default_device();
    /// let x = device.upload(&vec![0.5f32; 100_000])?;
    /// let mut sum = device.zeros::<f32>(1)?;
    /// let mut scratch = device.zeros::<u64>(x.by(Sum).block::<256>().scratch_bytes().div_ceil(8))?;
    /// // SAFETY: nothing else uses the memory, and all stay until the stream has been synchronized.
    /// unsafe {
    ///     let stream = device.stream()?.with_scratch(scratch.view_mut())?;
    ///     x.reduce_into::<Sum, 256>(&stream, &mut sum)?;
    ///     stream.synchronize()?;
    /// }
    /// assert_eq!(sum.to_vec()?, [50_000.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Nothing else uses the memory until the returned stream has been synchronized after the last call on
    /// it, nor while a graph runs that was captured on it.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceMismatch`]. A call that needs more than is left returns [`Error::Scratch`].
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

    /// Joins streams of different devices to one.
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
    /// [`Error::NotDistinct`] if there are none, two of one device, or several and one of them the CPU's.
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

    /// Returns its device; of several, the first.
    pub fn device(&self) -> Device {
        Device(match self.first() {
            None => Cpu(()),
            Some(stream) => Gpu(stream.gpu()),
        })
    }

    /// The queue of its first device, if that is a GPU.
    fn first(&self) -> Option<&GpuStream> {
        match &self.0 {
            Cpu(()) => None,
            Gpu(streams) => streams.first(),
        }
    }

    /// Waits until everything that was enqueued is done.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], also for a launch that has failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.0 {
            Cpu(()) => Ok(()),
            Gpu(streams) => streams.iter().map(GpuStream::synchronize).fold(Ok(()), Result::and),
        }
    }

    /// Enqueues a copy of host elements to the first elements of `to`, which may have more.
    ///
    /// From [pinned](Device::pinned) memory the call returns at once, and other streams run meanwhile. Of
    /// other memory the driver makes a copy first, for which it may wait. On the CPU the copy is done when
    /// the call returns.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let device = Device::default_device();
    /// let stream = device.stream()?;
    /// let (mut host, mut sum) = (device.pinned::<f32>(1000)?, device.pinned::<f32>(1)?);
    /// let (mut x, mut result) = (device.zeros(1000)?, device.zeros(1)?);
    /// host.fill(0.5);
    /// // SAFETY: all four stay, and are not used otherwise, until the stream has been synchronized.
    /// unsafe {
    ///     stream.upload(&host, &mut x)?;
    ///     x.reduce_into::<Sum, 256>(&stream, &mut result)?;
    ///     stream.download(result.view(), &mut sum)?;
    /// }
    /// stream.synchronize()?;
    /// assert_eq!(sum[0], 500.0);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, neither side is freed, `from` is not written, and the elements
    /// of `to` are neither read nor written. What is enqueued on the same stream may do so. The same holds
    /// for a graph that captured the copy, each time it runs: it copies what `from` holds then.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] if `to` has fewer elements, [`Error::DeviceMismatch`], [`Error::Driver`].
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

    /// Enqueues a copy of a device's elements to the first elements of `to`, host memory that may have more.
    ///
    /// To [pinned](Device::pinned) memory the call returns at once. To other memory the driver may wait for
    /// the copy, and so for everything enqueued before. On the CPU the copy is done when the call returns.
    ///
    /// # Safety
    ///
    /// As for [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// As [`upload`](Self::upload).
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

    /// Returns whether the stream is being captured, so that what is enqueued becomes part of a CUDA graph.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn is_capturing(&self) -> Result<bool, Error> {
        self.first().map_or(Ok(false), GpuStream::is_capturing)
    }

    /// Returns the `CUstream`, for functions of the driver such as those that capture a graph; none on the
    /// CPU. It lives as long as the stream.
    pub fn as_raw(&self) -> Option<*mut c_void> {
        self.first().map(GpuStream::as_raw)
    }

    /// Makes later work of this stream wait for the work that another stream, given by its handle, has so
    /// far. The host does not wait. On the CPU everything is done already.
    ///
    /// # Safety
    ///
    /// `other` is a stream of this driver.
    pub(crate) unsafe fn come_after(&self, other: *mut c_void) -> Result<(), Error> {
        match self.first() {
            None => Ok(()),
            // SAFETY: as the caller vouches.
            Some(stream) => unsafe { stream.come_after(other) },
        }
    }

    /// The queues of its GPUs; none on the CPU.
    pub(crate) fn streams(&self) -> &[GpuStream] {
        match &self.0 {
            Cpu(()) => &[],
            Gpu(streams) => streams,
        }
    }

    /// Returns the queue of this GPU, or none for the CPU. Fails if the stream is not of that device.
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
