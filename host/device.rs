//! The devices that reductions run on.

use crate::cuda::Gpu;
use crate::place::Place::{self, Cpu};
use crate::{Buffer, Devices, Error, Item, PinnedBuffer, Stream, View, ViewMut, cpu, threads};
use std::ffi::c_void;

/// An NVIDIA GPU, or the CPU with its threads.
///
/// A device is cheap to clone and may be used by several threads at once.
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
    /// Opens GPU number `index`, in the driver's order.
    ///
    /// The first call in a program starts the driver and the device's primary context, which other CUDA
    /// libraries share. If the program has installed another driver before, as `emulator::install` does, the
    /// device is that driver's. If the environment variable `GPU_REDUCE_DRIVER` is `emulator`, it is the
    /// emulator's; the values `cuda` and empty have no effect.
    ///
    /// A device belongs to the process that opened it. In a child of `fork` its calls, and opening a device,
    /// return [`Error::Forked`] (see [After `fork`](crate#after-fork)).
    ///
    /// # Errors
    ///
    /// [`Error::NoDriver`], [`Error::NoDevice`], [`Error::NoSuchDevice`], [`Error::DriverTooOld`],
    /// [`Error::DeviceTooOld`], [`Error::NoCuda`] in a build without GPUs, [`Error::UnknownDriver`],
    /// [`Error::Forked`], and [`Error::Driver`].
    pub fn cuda(index: usize) -> Result<Self, Error> {
        Gpu::open(index).map(|gpu| Self(Place::Gpu(gpu)))
    }

    /// Opens the emulator: a GPU in software that runs the shipped kernels and checks them as they run.
    ///
    /// See the crate `emulator`. A program uses one driver: open the emulator before the first
    /// [`Device::cuda`], which then returns the same device. The environment variable
    /// `GPU_REDUCE_DRIVER=emulator` makes [`Device::cuda`] open the emulator in the whole program.
    ///
    /// # Errors
    ///
    /// [`Error::NoEmulator`] in a build without the feature `emulator`; [`Error::OtherDriver`] after the
    /// machine's driver was used; [`Error::Forked`] as for [`cuda`](Self::cuda).
    pub fn emulator() -> Result<Self, Error> {
        Gpu::open_emulator().map(|gpu| Self(Place::Gpu(gpu)))
    }

    /// Returns the CPU, with SIMD instructions chosen at run time.
    ///
    /// It uses the caller's rayon thread pool, otherwise rayon's global one. A child of `fork` uses a pool of
    /// its own (see [After `fork`](crate#after-fork)).
    pub fn cpu() -> Self {
        Self(Cpu(()))
    }

    /// Returns the first GPU if it can be opened, otherwise the CPU.
    pub fn default_device() -> Self {
        Self::cuda(0).unwrap_or_else(|_| Self::cpu())
    }

    /// Opens all GPUs of the driver, in its order.
    ///
    /// # Errors
    ///
    /// As for [`cuda`](Self::cuda), of any GPU.
    pub fn all() -> Result<Devices, Error> {
        Devices::all()
    }

    /// Returns whether this is the CPU.
    pub fn is_cpu(&self) -> bool {
        matches!(self.0, Cpu(()))
    }

    /// Returns whether this is the emulator's device, whose timings say nothing about a GPU.
    pub fn is_emulator(&self) -> bool {
        match &self.0 {
            Cpu(()) => false,
            Place::Gpu(gpu) => gpu.is_emulator(),
        }
    }

    /// Returns a GPU's peak memory bandwidth in bytes per second; none for the CPU.
    ///
    /// It is twice the memory clock times the bus width, as the driver reports them.
    pub fn peak_bandwidth(&self) -> Option<f64> {
        match &self.0 {
            Cpu(()) => None,
            Place::Gpu(gpu) => Some(gpu.peak_bandwidth()),
        }
    }

    /// Copies `data` into a new buffer on the device.
    ///
    /// Up to eight rayon threads copy 1 MiB or more to a GPU through pinned memory, 16 MiB per thread, which
    /// is kept for later uploads. On an H200, 1 GiB is uploaded at 50 GB/s this way, and at 8 GB/s by a plain
    /// copy.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn upload<T: Item>(&self, data: &[T]) -> Result<Buffer<T>, Error> {
        Buffer::upload(self, data)
    }

    /// Allocates a buffer of `len` zeros on the device.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn zeros<T: Item>(&self, len: usize) -> Result<Buffer<T>, Error> {
        Buffer::zeros(self, len)
    }

    /// Allocates `len` zeros in page-locked host memory, for asynchronous copies such as [`Stream::upload`].
    ///
    /// For the CPU it is ordinary memory. Page-locked memory is slow to allocate and not available to other
    /// programs: allocate few buffers and reuse them.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] of the host, [`Error::Driver`].
    pub fn pinned<T: Item>(&self, len: usize) -> Result<PinnedBuffer<T>, Error> {
        PinnedBuffer::zeros(self, len)
    }

    /// Creates a stream on the device, on which reductions can be enqueued.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn stream(&self) -> Result<Stream<'static>, Error> {
        Stream::new(self)
    }

    /// Borrows a stream of another library by its handle (`CUstream`, `cudaStream_t`).
    ///
    /// It may be PyTorch's current stream, or a default stream: null or 1 is the legacy one, 2 the per-thread
    /// one. Work enqueued here runs in order with other work on that stream. On the CPU a stream of this
    /// library is created.
    ///
    /// # Safety
    ///
    /// `stream` is a stream of this driver and stays valid for `'a`, which the caller chooses.
    ///
    /// # Errors
    ///
    /// [`Error::ContextMismatch`] if it does not belong to the device's primary context, [`Error::Driver`].
    pub unsafe fn stream_from_raw<'a>(&self, stream: *mut c_void) -> Result<Stream<'a>, Error> {
        // SAFETY: the caller's contract.
        unsafe { Stream::of(self, stream) }
    }

    /// Borrows `len` elements at `first` that the caller has on the device.
    ///
    /// They may be in memory of another library (cust's `DevicePointer` by its `as_ptr`), in pinned or
    /// managed memory, or, on the CPU, in any memory.
    ///
    /// # Safety
    ///
    /// At `first` are `len` valid elements that the device may read. They stay for `'a`, which the caller
    /// chooses, and until all work launched on them has ended. Until then nothing writes to them, except in
    /// stream order with that work.
    ///
    /// # Errors
    ///
    /// [`Error::Unaligned`]. If the driver can tell: [`Error::DeviceMismatch`]; [`Error::ContextMismatch`];
    /// [`Error::OutOfBounds`] if the allocation has fewer elements; [`Error::Driver`] if there is no memory.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let x = [1.5f32, 2.5];
    /// // SAFETY: `x` outlives the view and is not written to.
    /// let view = unsafe { Device::cpu().view(x.as_ptr(), x.len())? };
    /// assert_eq!(view.reduce::<Sum, 256>()?, 4.0);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    pub unsafe fn view<'a, T: Item>(&self, first: *const T, len: usize) -> Result<View<'a, T>, Error> {
        // SAFETY: the caller's contract.
        unsafe { View::of(self, first, len) }
    }

    /// Mutably borrows `len` elements at `first` that the caller has on the device, to write results to.
    ///
    /// # Safety
    ///
    /// As for [`view`](Self::view). In addition nothing else uses the elements for `'a`, except in stream
    /// order with the writes.
    ///
    /// # Errors
    ///
    /// As for [`view`](Self::view).
    pub unsafe fn view_mut<'a, T: Item>(&self, first: *mut T, len: usize) -> Result<ViewMut<'a, T>, Error> {
        // SAFETY: the caller's contract.
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
