//! Where reductions run.

use crate::{Buffer, Element, Error, cpu};
#[cfg(gpu)]
use {crate::gpu::Gpu, std::sync::Arc};

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
pub struct Device(pub(crate) Kind);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Cpu,
    #[cfg(gpu)]
    Gpu(Arc<Gpu>),
}

impl Device {
    /// GPU number `index`, in the driver's order. The first call in a program starts the driver and the device's primary
    /// context, which other CUDA libraries share.
    ///
    /// # Errors
    ///
    /// [`Error::NoDriver`], [`Error::NoDevice`], [`Error::NoSuchDevice`], [`Error::DriverTooOld`],
    /// [`Error::DeviceTooOld`], [`Error::NoCuda`] in a build without GPUs, and [`Error::Driver`].
    pub fn cuda(index: usize) -> Result<Self, Error> {
        #[cfg(gpu)]
        return Gpu::open(index, false).map(|gpu| Self(Kind::Gpu(gpu)));
        #[cfg(not(gpu))]
        {
            let _ = index;
            Err(Error::NoCuda)
        }
    }

    /// A GPU in software, which runs the kernels that ship and checks them as they run; see the crate `emulator`. One driver
    /// serves a program: ask for it before the first [`Device::cuda`]. The environment variable `GPU_REDUCE_DRIVER=emulator`
    /// makes [`Device::cuda`] mean it in the whole program.
    ///
    /// # Errors
    ///
    /// [`Error::NoEmulator`] in a build without the feature `emulator`, [`Error::OtherDriver`] after the machine's driver was
    /// used, and as [`Device::cuda`].
    pub fn emulator() -> Result<Self, Error> {
        #[cfg(gpu)]
        return Gpu::open(0, true).map(|gpu| Self(Kind::Gpu(gpu)));
        #[cfg(not(gpu))]
        Err(Error::NoEmulator)
    }

    /// The CPU: SIMD chosen when the program runs, and rayon's global thread pool.
    pub fn cpu() -> Self {
        Self(Kind::Cpu)
    }

    /// The first GPU where there is one that works, otherwise the CPU.
    pub fn default_device() -> Self {
        Self::cuda(0).unwrap_or_else(|_| Self::cpu())
    }

    /// Whether this is the CPU.
    pub fn is_cpu(&self) -> bool {
        matches!(self.0, Kind::Cpu)
    }

    /// Bytes per second that a GPU's memory moves at most, by the driver's figures: twice the memory's clock, times the width
    /// of its bus. None for the CPU.
    pub fn peak_bandwidth(&self) -> Option<f64> {
        match &self.0 {
            Kind::Cpu => None,
            #[cfg(gpu)]
            Kind::Gpu(gpu) => Some(gpu.peak_bandwidth()),
        }
    }

    /// Copies `data` into a new buffer on the device. A megabyte or more goes to a GPU through pinned memory, which up to
    /// eight of rayon's threads fill: 16 MiB each, kept for later uploads. On an H200 1 GiB arrived at 50 GB/s, where a plain
    /// copy had 8.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn upload<T: Element>(&self, data: &[T]) -> Result<Buffer<T>, Error> {
        Buffer::upload(self, data)
    }

    /// A new buffer of `len` zeros on the device.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        Buffer::zeros(self, len)
    }
}

/// `cpu (16 threads, AVX-512)`, `cuda:0 (NVIDIA H200)`.
impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match &self.0 {
            Kind::Cpu => write!(f, "cpu ({} threads, {})", rayon::current_num_threads(), cpu::simd()),
            #[cfg(gpu)]
            Kind::Gpu(gpu) => write!(f, "{gpu}"),
        }
    }
}
