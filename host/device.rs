//! Where reductions run.

use crate::cuda::Gpu;
use crate::place::Place::{self, Cpu};
use crate::{Buffer, Devices, Error, Item, PinnedBuffer, Stream, View, ViewMut, cpu, threads};
use std::ffi::c_void;

/// A device that reduces: an NVIDIA GPU, or the CPU's threads. Cheap to clone, and usable from several threads at once.
///
/// ```
/// use gpu_reduce::{Device, Reduce, Sum};
///
/// let device = Device::cuda(0).unwrap_or_else(|why| {
///     eprintln!("{why}");
///     Device::cpu()
/// });
/// let x = device.upload(&[1.5f32, 2.5])?;
/// assert_eq!(x.reduce::<Sum, 256>()?, 4.0);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Device(pub(crate) Place<(), &'static Gpu>);

impl Device {
    /// GPU number `index`, in the driver's order. The first call in a program starts the driver and the device's primary
    /// context, which other CUDA libraries share. Where the program has installed another driver before, as
    /// `emulator::install` does, it is that driver's device.
    ///
    /// The environment variable `GPU_REDUCE_DRIVER` may be `emulator`, which makes it the emulator's; empty and `cuda` are as
    /// if it were not set.
    ///
    /// A device belongs to the process that opened it: in a child of `fork` its calls give [`Error::Forked`], and
    /// so does opening a device there (see [After `fork`](crate#after-fork)).
    ///
    /// # Errors
    ///
    /// [`Error::NoDriver`], [`Error::NoDevice`], [`Error::NoSuchDevice`], [`Error::DriverTooOld`],
    /// [`Error::DeviceTooOld`], [`Error::NoCuda`] in a build without GPUs, [`Error::UnknownDriver`],
    /// [`Error::Forked`], and [`Error::Driver`].
    pub fn cuda(index: usize) -> Result<Self, Error> {
        Gpu::open(index).map(|gpu| Self(Place::Gpu(gpu)))
    }

    /// A GPU in software, which runs the kernels that ship and checks them as they run; see the crate `emulator`. One driver
    /// serves a program: ask for it before the first [`Device::cuda`], which then gives the same. The environment variable
    /// `GPU_REDUCE_DRIVER=emulator` makes [`Device::cuda`] mean it in the whole program.
    ///
    /// # Errors
    ///
    /// [`Error::NoEmulator`] in a build without the feature `emulator`, [`Error::OtherDriver`] after the machine's driver was
    /// used, [`Error::Forked`] as of [`cuda`](Self::cuda).
    pub fn emulator() -> Result<Self, Error> {
        Gpu::open_emulator().map(|gpu| Self(Place::Gpu(gpu)))
    }

    /// The CPU: SIMD chosen when the program runs, and the caller's rayon thread pool, or else rayon's global
    /// one; in a child of `fork`, a pool of the child's own (see [After `fork`](crate#after-fork)).
    pub fn cpu() -> Self {
        Self(Cpu(()))
    }

    /// The first GPU where there is one that works, otherwise the CPU.
    pub fn default_device() -> Self {
        Self::cuda(0).unwrap_or_else(|_| Self::cpu())
    }

    /// All GPUs that the driver has, in its order.
    ///
    /// # Errors
    ///
    /// As [`cuda`](Self::cuda), of any of them.
    pub fn all() -> Result<Devices, Error> {
        Devices::all()
    }

    /// Whether this is the CPU.
    pub fn is_cpu(&self) -> bool {
        matches!(self.0, Cpu(()))
    }

    /// Whether this is the emulator's device, on which figures of speed say nothing of a GPU.
    pub fn is_emulator(&self) -> bool {
        match &self.0 {
            Cpu(()) => false,
            Place::Gpu(gpu) => gpu.is_emulator(),
        }
    }

    /// Bytes per second that a GPU's memory moves at most, by the driver's figures: twice the memory's clock, times the width
    /// of its bus. None for the CPU.
    pub fn peak_bandwidth(&self) -> Option<f64> {
        match &self.0 {
            Cpu(()) => None,
            Place::Gpu(gpu) => Some(gpu.peak_bandwidth()),
        }
    }

    /// Copies `data` into a new buffer on the device. A megabyte or more goes to a GPU through pinned memory, which up to
    /// eight of rayon's threads fill: 16 MiB each, kept for later uploads. On an H200 1 GiB arrived at 50 GB/s, where a plain
    /// copy had 8.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn upload<T: Item>(&self, data: &[T]) -> Result<Buffer<T>, Error> {
        Buffer::upload(self, data)
    }

    /// A new buffer of `len` zeros on the device.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn zeros<T: Item>(&self, len: usize) -> Result<Buffer<T>, Error> {
        Buffer::zeros(self, len)
    }

    /// Page-locked memory of the host with `len` zeros, which the device copies from and to by itself: see [`Stream::upload`]. On the CPU it is ordinary
    /// memory.
    ///
    /// It is dear to make, and what is locked no other program gets: make few, and use them again.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] of the host, [`Error::Driver`].
    pub fn pinned<T: Item>(&self, len: usize) -> Result<PinnedBuffer<T>, Error> {
        PinnedBuffer::zeros(self, len)
    }

    /// A new stream on the device, on which reductions can be enqueued.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn stream(&self) -> Result<Stream<'static>, Error> {
        Stream::new(self)
    }

    /// A stream that is somebody else's, by its handle (`CUstream`, `cudaStream_t`): such as PyTorch's current one, or a default stream, which is
    /// null (or 1) for the legacy one and 2 for that of the thread. What it is given comes after what was enqueued before, and before what will be.
    /// On the CPU it is one of ours.
    ///
    /// # Safety
    ///
    /// It is a stream of this driver's, and stays for `'a`, of which the caller decides.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`] where it is not of the device's primary context, [`Error::Driver`].
    pub unsafe fn stream_from_raw<'a>(&self, stream: *mut c_void) -> Result<Stream<'a>, Error> {
        // SAFETY: as the caller vouches.
        unsafe { Stream::of(self, stream) }
    }

    /// Elements that the caller has on the device, where they lie: memory of other libraries (cust's `DevicePointer` by its `as_ptr`), pinned or managed
    /// memory, or on the CPU any.
    ///
    /// # Safety
    ///
    /// At `first` are so many elements, each a valid one of its type, that the device may read; for `'a`, of which the caller decides, and until all has
    /// ended that was launched on them, they stay, and nothing writes to them but what is ordered with that by its stream.
    ///
    /// # Errors
    ///
    /// Where the driver can tell: [`Error::DeviceMismatch`], [`Error::ContextMismatch`], [`Error::OutOfBounds`] where the allocation has fewer, and
    /// [`Error::Driver`] where it knows no memory there. [`Error::Unaligned`].
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let x = [1.5f32, 2.5];
    /// // SAFETY: the elements stay.
    /// let view = unsafe { Device::cpu().view(x.as_ptr(), x.len())? };
    /// assert_eq!(view.reduce::<Sum, 256>()?, 4.0);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    pub unsafe fn view<'a, T: Item>(&self, first: *const T, len: usize) -> Result<View<'a, T>, Error> {
        // SAFETY: as the caller vouches.
        unsafe { View::of(self, first, len) }
    }

    /// Places of elements that the caller has on the device, to write results to.
    ///
    /// # Safety
    ///
    /// As of [`view`](Self::view); and nothing else uses them for `'a`, but what is ordered with the writing by its stream.
    ///
    /// # Errors
    ///
    /// As there.
    pub unsafe fn view_mut<'a, T: Item>(&self, first: *mut T, len: usize) -> Result<ViewMut<'a, T>, Error> {
        // SAFETY: as the caller vouches.
        unsafe { ViewMut::of(self, first, len) }
    }
}

/// `cpu (16 threads, AVX-512)`, `cuda:0 (NVIDIA H200)`.
impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match &self.0 {
            Cpu(()) => write!(f, "cpu ({} threads, {})", threads::count(), cpu::simd()),
            Place::Gpu(gpu) => write!(f, "{gpu}"),
        }
    }
}
