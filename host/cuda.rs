//! NVIDIA GPUs: the path from a typed call to a launch, through cust.
//!
//! - `driver`: loads the driver and checks its version and the device's compute capability;
//! - this file: an open GPU, its context, and its pools of reusable resources;
//! - `modules`: finds kernels by type, and compiles them from PTX at their first launch;
//! - `queue`: enqueues requests on a stream; `scratch`: the memory for it;
//! - `stream`: streams that callers enqueue on, and calls that wait;
//! - `pending`: pending results;
//! - `shards`: reduces on several GPUs; `deal`: items dealt by their index; `tally`: sums by index; `order`:
//!   items sorted by index; `in_order`: reductions of these; `keys`: numbers for keys; `spread`: variances by
//!   index; `terms`: sums by index of picked items and of products; `words`: extremes, places, bits and
//!   counts by index; `indices`: indices that kernels make;
//! - `memory`, `kept`, `staging`: memory and copies;
//! - `of_cust`: conversions from and to cust's memory and streams;
//! - `ladder`: the classic kernels (feature `ladder`).
//!
//! In a build without GPUs, `absent` replaces this module.

mod cut;
mod deal;
mod driver;
mod in_order;
mod indices;
mod kept;
mod keys;
#[cfg(feature = "ladder")]
pub mod ladder;
mod memory;
mod modules;
mod of_cust;
mod order;
mod pending;
mod queue;
mod scratch;
mod shards;
mod spread;
mod staging;
mod stream;
mod tally;
mod terms;
mod words;

pub use memory::{Memory, Pinned};
pub use pending::Launched;
pub use shards::{
    enqueue_columns_of_shards, enqueue_shards, launch_columns_of_shards, launch_shards, meet, stream_of,
};
pub use stream::GpuStream;

use crate::Error;
use cust::context::legacy::{ContextStack, CurrentContext};
use cust::context::{Context, ContextHandle};
use cust::device::{Device, DeviceAttribute};
use cust::error::CudaError;
use cust::sys::{self, CUcontext, CUdevice_attribute, CUresult};
use kept::Keeper;
use pending::Outcome;
use scratch::Spare;
use staging::Staging;
use std::ffi::CStr;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stream::Workspace;

/// An open GPU. There is one per index, for the program's life.
pub struct Gpu {
    index: usize,
    name: String,
    peak_bandwidth: f64,
    multiprocessors: u32,
    /// Bytes of dynamic shared memory that a block may have.
    most_shared: u32,
    context: Context,
    loaded: modules::Loaded,
    workspaces: Mutex<Vec<Workspace>>,
    scratches: Mutex<Vec<Spare>>,
    outcomes: Mutex<Vec<Outcome>>,
    stagings: Mutex<Vec<Staging>>,
    keeper: Keeper,
    /// The most bytes of memory that is kept.
    most_kept: usize,
    /// Other GPUs by their index, and whether this GPU's kernels can access their memory.
    peers: Mutex<Vec<(usize, bool)>>,
}

/// A context pushed on this thread's stack. Dropping it restores the caller's context.
struct Entered(PhantomData<*const ()>);

impl Drop for Entered {
    fn drop(&mut self) {
        // It fails if the driver has shut down: then there is no context to restore.
        let _ = ContextStack::pop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No panic can leave a guarded value half updated.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// Opens GPU number `index`, or returns it if it is open.
    pub fn open(index: usize) -> Result<&'static Self, Error> {
        static OPEN: Mutex<Vec<&'static Gpu>> = Mutex::new(Vec::new());
        driver::check_fork(format_args!("cuda:{index}"))?;
        driver::load()?;
        let mut open = lock(&OPEN);
        if let Some(&gpu) = open.iter().find(|gpu| gpu.index == index) {
            return Ok(gpu);
        }
        // Leaked: it lives as long as the program.
        let gpu = &*Box::leak(Box::new(Self::start(index)?));
        open.push(gpu);
        Ok(gpu)
    }

    /// Opens the emulator's GPU.
    pub fn open_emulator() -> Result<&'static Self, Error> {
        driver::load_emulator()?;
        Self::open(0)
    }

    fn start(index: usize) -> Result<Self, Error> {
        let device = format!("cuda:{index}");
        let failed = |call| {
            let device = device.clone();
            move |error| match error {
                CudaError::NoDevice => Error::NoDevice,
                error => Error::Driver { call, device, reason: error.reason() },
            }
        };
        driver::start();
        cust::init(cust::CudaFlags::empty()).map_err(failed("starting the driver"))?;
        let version = cust::CudaApiVersion::get().map_err(failed("asking for the driver's version"))?;
        driver::check_version(version.major() * 1000 + version.minor() * 10)?;
        let count = Device::num_devices().map_err(failed("counting devices"))? as usize;
        if count == 0 {
            return Err(Error::NoDevice);
        }
        if index >= count {
            return Err(Error::NoSuchDevice { index, count });
        }
        let raw = Device::get_device(index as u32).map_err(failed("finding the device"))?;
        let name = raw.name().map_err(failed("asking for the device's name"))?;
        let attribute = |attribute| raw.get_attribute(attribute).map_err(failed("asking for an attribute"));
        let capability = (
            attribute(DeviceAttribute::ComputeCapabilityMajor)?,
            attribute(DeviceAttribute::ComputeCapabilityMinor)?,
        );
        driver::check_capability(&format!("{device} ({name})"), capability)?;
        let multiprocessors = attribute(DeviceAttribute::MultiprocessorCount)? as u32;
        let mut most_shared = 0;
        // SAFETY: the device is one, and there is a place for the answer.
        let asked = unsafe {
            let optional = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
            sys::cuDeviceGetAttribute(&mut most_shared, optional, raw.as_raw())
        };
        // A little is left for what kernels declare themselves. Drivers that do not know the attribute have
        // 48 KiB.
        let most_shared = if asked == CUresult::CUDA_SUCCESS { most_shared as u32 } else { 48 << 10 } - 1024;
        // The clock is in kHz and the width in bits. The memory transfers data twice per clock period.
        let clock = f64::from(attribute(DeviceAttribute::MemoryClockRate)?) * 1e3;
        let bus = f64::from(attribute(DeviceAttribute::GlobalMemoryBusWidth)?) / 8.0;
        let peak_bandwidth = 2.0 * clock * bus;
        // `Context::new` makes the context current: restore the caller's.
        let current = CurrentContext::get_current().map_err(failed("asking for the current context"))?;
        let context = Context::new(raw).map_err(failed("creating the context"))?;
        CurrentContext::set_current(&current).map_err(failed("restoring the caller's context"))?;
        let memory = raw.total_memory().map_err(failed("asking for the device's memory"))?;
        let (loaded, workspaces, scratches, outcomes, stagings, keeper, peers) = Default::default();
        Ok(Self {
            index,
            name,
            peak_bandwidth,
            multiprocessors,
            most_shared,
            context,
            loaded,
            workspaces,
            scratches,
            outcomes,
            stagings,
            keeper,
            most_kept: memory / 32,
            peers,
        })
    }

    #[cfg(feature = "dlpack")]
    pub fn index(&self) -> usize {
        self.index
    }

    pub fn peak_bandwidth(&self) -> f64 {
        self.peak_bandwidth
    }

    /// Whether the program has installed a driver in place of the machine's.
    pub fn is_emulator(&self) -> bool {
        libcuda::installed() != Some(libcuda::DRIVER)
    }

    /// Makes the device's context current on this thread until the returned guard is dropped.
    fn enter(&self) -> Result<Entered, Error> {
        driver::check_fork(self)?;
        ContextStack::push(&self.context).map_err(|error| self.failed("entering the context", error))?;
        Ok(Entered(PhantomData))
    }

    fn failed(&self, call: &'static str, error: impl Cause) -> Error {
        Error::Driver { call, device: self.to_string(), reason: error.reason() }
    }

    /// Converts a driver function's return code.
    fn done(&self, call: &'static str, answer: CUresult) -> Result<(), Error> {
        match answer {
            CUresult::CUDA_SUCCESS => Ok(()),
            error => Err(self.failed(call, error)),
        }
    }

    fn launch_failed(&self, kernel: &str, error: impl Cause) -> Error {
        Error::Launch { kernel: kernel.to_owned(), device: self.to_string(), reason: error.reason() }
    }

    /// The error for a stream or memory of a context other than the device's primary one.
    #[cold]
    fn other_context(&self, what: &'static str, context: CUcontext) -> Error {
        let (context, own) = (context.addr(), self.raw_context().addr());
        Error::ContextMismatch { what, context, device: self.to_string(), own }
    }

    fn raw_context(&self) -> CUcontext {
        self.context.get_inner()
    }

    /// Runs `work`, which waits for what it enqueues, with a value taken from `spares`, or a new one. Puts it
    /// back unless `work` fails.
    fn with_spare<S, R>(
        &self,
        spares: &Mutex<Vec<S>>,
        new: impl FnOnce(&Self) -> Result<S, Error>,
        work: impl FnOnce(&mut S) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _entered = self.enter()?;
        let spare = lock(spares).pop();
        let mut spare = spare.map_or_else(|| new(self), Ok)?;
        let unwaited = self.keeper.unwaited();
        let result = work(&mut spare)?;
        std::mem::forget(unwaited);
        lock(spares).push(spare);
        Ok(result)
    }

    /// Runs `work` with a workspace that no other thread uses meanwhile.
    fn with_workspace<R>(&self, work: impl FnOnce(&mut Workspace) -> Result<R, Error>) -> Result<R, Error> {
        self.with_spare(&self.workspaces, Workspace::new, work)
    }
}

/// `cuda:0 (NVIDIA H200)`.
impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "cuda:{} ({})", self.index, self.name)
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Gpu {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

/// An error of the driver.
trait Cause {
    /// The driver's message, with the error's number in the driver's headers.
    fn reason(self) -> String;
}

impl Cause for CudaError {
    fn reason(self) -> String {
        format!("{self} (CUDA error {})", self as u32)
    }
}

impl Cause for CUresult {
    fn reason(self) -> String {
        let mut text = std::ptr::null();
        // SAFETY: `text` receives the address.
        let known = unsafe { sys::cuGetErrorString(self, &mut text) };
        let text = match known {
            // SAFETY: the driver returned a C string, which lives as long as the program.
            Self::CUDA_SUCCESS if !text.is_null() => unsafe { CStr::from_ptr(text) }.to_string_lossy(),
            _ => format!("{self:?}").into(),
        };
        format!("{text} (CUDA error {})", self as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sum;
    use crate::request::{Operation, Types};
    use modules::Grid;

    /// A rejected module and a refused launch are errors after which the device still works.
    #[test]
    fn a_failed_launch_leaves_the_device_usable() {
        use gpu_reduce_kernels::kernels::Parameters;
        use gpu_reduce_kernels::reduce::{Arguments, Target};
        use std::ptr::{null, null_mut};

        let gpu = match Gpu::open(0) {
            Ok(gpu) => gpu,
            Err(why) => return eprintln!("skipped, no GPU: {why}"),
        };
        let bad = gpu.with_workspace(|_| {
            gpu.compile("bad", &c".version 99.9\n.target sm_70\n.address_size 64\n".to_owned(), 32)
                .map(|_| ())
        });
        assert!(matches!(bad, Err(Error::Launch { .. })), "{bad:?}");
        let input: *const f32 = null();
        let result = Target::device(null_mut::<f32>());
        let slots = null_mut();
        let arguments =
            Arguments { input, chunk: 1, before: 0, len: 1, slots, result, first: input, op: Sum };
        let refused = gpu.with_workspace(|workspace| {
            let grid = Grid { blocks: 0, block: 256, resident: 256 };
            let stream = &workspace.queue.stream;
            // SAFETY: no device accepts a grid of 0 blocks, so the kernel never runs.
            unsafe {
                let types = Types::of::<Sum, *const f32>();
                gpu.launch_if_compiled(types.kernel, types.own, stream, grid, &Parameters::of(&arguments))
            }?;
            Ok(())
        });
        assert!(matches!(refused, Err(Error::Launch { .. })), "{refused:?}");
        let mut memory = Memory::new(gpu, 16).unwrap();
        memory.write(0, bytemuck::cast_slice(&[1f32, 2.0, 3.0, 4.0])).unwrap();
        let input = std::ptr::without_provenance::<f32>(memory.address(0) as usize);
        let (op, mut sum) = (Sum, 0f32);
        // SAFETY: the types match, and the memory holds 4 items.
        let reduced = unsafe {
            let request = Operation::whole::<Sum, *const f32>(&op, 256).of_whole(&input, 4);
            gpu.run(&request, bytemuck::bytes_of_mut(&mut sum)).map(drop)
        };
        assert_eq!((reduced, sum), (Ok(()), 10.0));
    }
}
