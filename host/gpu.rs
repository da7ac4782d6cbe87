//! NVIDIA GPUs: the one path from a typed call to a launch, through cust.

#[cfg(feature = "ladder")]
mod ladder;
mod staging;

use crate::{Element, Error, Max, Min, Op, Plan, Prod, Sum, bf16, f16, for_each_element};
use cust::context::Context;
use cust::context::legacy::{ContextStack, CurrentContext};
use cust::device::DeviceAttribute;
use cust::error::{CudaError, CudaResult};
use cust::function::Function;
use cust::memory::{AsyncCopyDestination, DeviceBuffer, LockedBuffer};
use cust::module::{Module, ModuleJitOption};
use cust::stream::{Stream, StreamFlags};
use gpu_reduce_kernels::slot;
use staging::{STAGED_BYTES, Staging};
use std::any::TypeId;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

include!(concat!(env!("OUT_DIR"), "/ptx.rs"));

/// The oldest CUDA version whose driver reads the kernels' PTX.
const NEEDED_CUDA: i32 = first_cuda(NEEDED_PTX).expect("the kernels' PTX version is not in first_cuda");

/// Room for the slots of any plan.
const SLOT_BYTES: usize = 2048 * size_of::<[u64; slot::MAX_WORDS]>();

/// A GPU that was opened. There is one for each index, for the program's life.
pub struct Gpu {
    index: usize,
    name: String,
    peak_bandwidth: f64,
    context: Context,
    /// Compiled kernels by name, kept for the program's life.
    kernels: Mutex<HashMap<String, &'static Function<'static>>>,
    workspaces: Mutex<Vec<Workspace>>,
    stagings: Mutex<Vec<Staging>>,
}

/// What one launch needs besides its input. A reduction takes one and gives it back, so that threads do not wait for each
/// other and nothing is allocated twice.
struct Workspace {
    stream: Stream,
    /// Empty between launches: who takes a partial result out of a slot leaves it so.
    slots: DeviceBuffer<u8>,
    /// A slot in pinned memory, so that the kernel hands the result to the host itself.
    result: LockedBuffer<u64>,
    /// Room for the partial results of the ladder's kernels; none until one of them needs it.
    #[cfg(feature = "ladder")]
    partials: DeviceBuffer<u8>,
}

/// A context on top of this thread's stack of them. Dropped, it gives way to the one that the caller had, or to none.
struct Entered(PhantomData<*const ()>);

impl Drop for Entered {
    fn drop(&mut self) {
        // It fails where the driver has ended: then there is nothing to give way to.
        let _ = ContextStack::pop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the mutexes hold is whole at every moment that a panic could come.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// The GPU of that index, of the driver or of the emulator: one of them serves the whole program.
    pub fn open(index: usize, emulated: bool) -> Result<Arc<Self>, Error> {
        static OPEN: Mutex<Vec<Arc<Gpu>>> = Mutex::new(Vec::new());
        load_driver(
            emulated || std::env::var_os("GPU_REDUCE_DRIVER").is_some_and(|name| name == "emulator"),
        )?;
        let mut open = lock(&OPEN);
        if let Some(gpu) = open.iter().find(|gpu| gpu.index == index) {
            return Ok(gpu.clone());
        }
        let gpu = Arc::new(Self::start(index)?);
        open.push(gpu.clone());
        Ok(gpu)
    }

    fn start(index: usize) -> Result<Self, Error> {
        let device = format!("cuda:{index}");
        let failed = |call| {
            let device = device.clone();
            move |error| match error {
                CudaError::NoDevice => Error::NoDevice,
                error => Error::Driver { call, device, reason: reason(error) },
            }
        };
        cust::init(cust::CudaFlags::empty()).map_err(failed("starting the driver"))?;
        let version = cust::CudaApiVersion::get().map_err(failed("asking for the driver's version"))?;
        check_version(version.major() * 1000 + version.minor() * 10, NEEDED_CUDA)?;
        let count = cust::device::Device::num_devices().map_err(failed("counting devices"))? as usize;
        if count == 0 {
            return Err(Error::NoDevice);
        }
        if index >= count {
            return Err(Error::NoSuchDevice { index, count });
        }
        let raw = cust::device::Device::get_device(index as u32).map_err(failed("finding the device"))?;
        let name = raw.name().map_err(failed("asking for the device's name"))?;
        let attribute = |attribute| raw.get_attribute(attribute).map_err(failed("asking for an attribute"));
        let capability = (
            attribute(DeviceAttribute::ComputeCapabilityMajor)?,
            attribute(DeviceAttribute::ComputeCapabilityMinor)?,
        );
        check_capability(&format!("{device} ({name})"), capability, NEEDED_CAPABILITY)?;
        // The clock is in kHz, of memory that moves data twice a period, and the width in bits.
        let clock = f64::from(attribute(DeviceAttribute::MemoryClockRate)?) * 1e3;
        let bus = f64::from(attribute(DeviceAttribute::GlobalMemoryBusWidth)?) / 8.0;
        let peak_bandwidth = 2.0 * clock * bus;
        // cust makes a context that it retains the current one; the caller's stays so.
        let current = CurrentContext::get_current().map_err(failed("asking for the current context"))?;
        let context = Context::new(raw).map_err(failed("creating the context"))?;
        CurrentContext::set_current(&current).map_err(failed("restoring the caller's context"))?;
        let (kernels, workspaces, stagings) = Default::default();
        Ok(Self { index, name, peak_bandwidth, context, kernels, workspaces, stagings })
    }

    pub fn peak_bandwidth(&self) -> f64 {
        self.peak_bandwidth
    }

    /// Makes the device's context the thread's current one, until what is returned is dropped.
    fn enter(&self) -> Result<Entered, Error> {
        ContextStack::push(&self.context).map_err(|error| self.failed("entering the context", error))?;
        Ok(Entered(PhantomData))
    }

    fn failed(&self, call: &'static str, error: CudaError) -> Error {
        Error::Driver { call, device: self.to_string(), reason: reason(error) }
    }

    fn allocate(&self, bytes: usize) -> Result<DeviceBuffer<u8>, Error> {
        // SAFETY: memory from a `Memory` is written before it is handed out; a workspace's is the kernel's matter.
        unsafe { DeviceBuffer::uninitialized(bytes) }.map_err(|error| match error {
            CudaError::OutOfMemory => {
                let free = cust::memory::mem_get_info().ok().map(|(free, _)| free);
                Error::OutOfMemory { device: self.to_string(), requested: bytes, free }
            }
            error => self.failed("allocating", error),
        })
    }

    /// Runs `work` with a spare of its own, a new one where there is none; it comes back unless the work failed.
    fn with_spare<S, R>(
        &self,
        spares: &Mutex<Vec<S>>,
        new: impl FnOnce(&Self) -> Result<S, Error>,
        work: impl FnOnce(&mut S) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _entered = self.enter()?;
        let spare = lock(spares).pop();
        let mut spare = match spare {
            Some(spare) => spare,
            None => new(self)?,
        };
        let result = work(&mut spare)?;
        lock(spares).push(spare);
        Ok(result)
    }

    /// Runs `work` with a workspace of its own.
    fn with_workspace<R>(&self, work: impl FnOnce(&mut Workspace) -> Result<R, Error>) -> Result<R, Error> {
        self.with_spare(&self.workspaces, Workspace::new, work)
    }

    fn new_stream(&self) -> Result<Stream, Error> {
        Stream::new(StreamFlags::NON_BLOCKING, None).map_err(|error| self.failed("creating a stream", error))
    }

    /// Runs `work` on a stream and waits for the stream.
    fn on_stream(
        &self,
        call: &'static str,
        work: impl FnOnce(&Stream) -> CudaResult<()>,
    ) -> Result<(), Error> {
        self.with_workspace(|workspace| {
            work(&workspace.stream)
                .and_then(|()| workspace.stream.synchronize())
                .map_err(|error| self.failed(call, error))
        })
    }

    /// The kernel of that name, compiled by the driver when it is first asked for.
    fn kernel(&self, name: &str, block: u32) -> Result<&'static Function<'static>, Error> {
        let mut kernels = lock(&self.kernels);
        if let Some(kernel) = kernels.get(name) {
            return Ok(kernel);
        }
        let ptx = ptx(name).ok_or_else(|| Error::NoKernel { kernel: name.to_owned() })?;
        let kernel = &*Box::leak(Box::new(self.compile(name, &ptx, block)?));
        kernels.insert(name.to_owned(), kernel);
        Ok(kernel)
    }

    fn compile(&self, name: &str, ptx: &CStr, block: u32) -> Result<Function<'static>, Error> {
        // A block's threads must fit in the 65,536 registers of a multiprocessor.
        let registers = (65536 / block).min(255);
        let failed = |error| self.launch_failed(name, error);
        let module =
            Module::from_ptx_cstr(ptx, &[ModuleJitOption::MaxRegisters(registers)]).map_err(failed)?;
        // Leaked: a kernel stays loaded for the program's life.
        Box::leak(Box::new(module)).get_function(name).map_err(failed)
    }

    fn launch_failed(&self, name: &str, error: CudaError) -> Error {
        Error::Launch { kernel: name.to_owned(), device: self.to_string(), reason: reason(error) }
    }

    /// Launches a kernel.
    ///
    /// # Safety
    ///
    /// The arguments are those of the kernel, and what they point to stays valid until the stream has been waited for.
    unsafe fn launch(
        &self,
        stream: &Stream,
        name: &str,
        blocks: u32,
        block: u32,
        arguments: &[*mut c_void],
    ) -> Result<(), Error> {
        let kernel = self.kernel(name, block)?;
        // SAFETY: as the caller vouches.
        unsafe { stream.launch(kernel, blocks, block, 0, arguments) }
            .map_err(|error| self.launch_failed(name, error))
    }

    /// Reduces `len` elements.
    fn reduce<O: Op<T>, T: Element, const BLOCK: u32>(
        &self,
        input: u64,
        len: usize,
    ) -> Result<O::Output, Error> {
        self.with_workspace(|workspace| {
            self.enqueue::<O, T, BLOCK>(workspace, input, len)?;
            self.result::<O, T, BLOCK>(workspace)
        })
    }

    /// Enqueues a reduction of `len` elements, which stay until [`result`](Self::result) has waited for it.
    fn enqueue<O: Op<T>, T: Element, const BLOCK: u32>(
        &self,
        workspace: &mut Workspace,
        input: u64,
        len: usize,
    ) -> Result<(), Error> {
        check_compiled::<O, T>(kernel_name::<O, T, BLOCK>)?;
        let plan = Plan::new::<T, BLOCK>(len as u64);
        let Workspace { stream, slots, result, .. } = workspace;
        words(result).iter().for_each(|word| word.store(slot::EMPTY, Ordering::Relaxed));
        let (slots, output) = (slots.as_device_ptr().as_raw(), result.as_mut_ptr());
        let arguments = [
            argument(&input),
            argument(&plan.len),
            argument(&plan.chunk),
            argument(&slots),
            argument(&output),
        ];
        // SAFETY: the arguments are those of the kernel (`reduce::Arguments`): `input` holds `len` elements and stays while
        // the launch reads it; the workspace is this reduction's alone.
        unsafe { self.launch(stream, &kernel_name::<O, T, BLOCK>(), plan.chunks, BLOCK, &arguments) }
    }

    /// Waits for the reduction that was enqueued, and returns its result.
    fn result<O: Op<T>, T: Element, const BLOCK: u32>(
        &self,
        workspace: &mut Workspace,
    ) -> Result<O::Output, Error> {
        let words = words(&mut workspace.result);
        wait(&words[..slot::words::<O::Output>()], &workspace.stream)
            .map_err(|error| self.launch_failed(&kernel_name::<O, T, BLOCK>(), error))?;
        Ok(slot::unpack(words.each_ref().map(|word| word.load(Ordering::Relaxed))))
    }
}

/// The words of the slot in which a launch leaves its result.
fn words(result: &mut LockedBuffer<u64>) -> &[AtomicU64; slot::MAX_WORDS] {
    // SAFETY: a workspace's result has so many words, aligned; meanwhile both sides use them by atomic accesses alone.
    unsafe { &*result.as_mut_ptr().cast() }
}

/// Waits until a launch has filled these words: for a while by looking at them, then by the driver, who also knows of a
/// launch that failed. On an H200 a call over 2^10 `f32` took 7.1 µs in this way, and 9.0 by the driver alone.
fn wait(words: &[AtomicU64], stream: &Stream) -> CudaResult<()> {
    const LOOKS: u32 = 2000;
    let full = || words.iter().all(|word| word.load(Ordering::Relaxed) != slot::EMPTY);
    for _ in 0..LOOKS {
        if full() {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    stream.synchronize()?;
    if full() { Ok(()) } else { Err(CudaError::LaunchFailed) }
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

impl Workspace {
    fn new(gpu: &Gpu) -> Result<Self, Error> {
        let stream = gpu.new_stream()?;
        let mut slots = gpu.allocate(SLOT_BYTES)?;
        // SAFETY: launches that use the memory follow in the same stream.
        unsafe { slots.set_zero_async(&stream) }.map_err(|error| gpu.failed("clearing memory", error))?;
        let result = LockedBuffer::new(&slot::EMPTY, slot::MAX_WORDS)
            .map_err(|error| gpu.failed("allocating pinned memory", error))?;
        Ok(Self {
            stream,
            slots,
            result,
            #[cfg(feature = "ladder")]
            partials: gpu.allocate(0)?,
        })
    }
}

/// Memory on a GPU. Copies are by the stream of a workspace and have ended when a call returns.
pub struct Memory {
    gpu: Arc<Gpu>,
    bytes: ManuallyDrop<DeviceBuffer<u8>>,
}

impl Memory {
    /// Uninitialised memory: write or clear it before it is read.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, Error> {
        let _entered = gpu.enter()?;
        Ok(Self { gpu: gpu.clone(), bytes: ManuallyDrop::new(gpu.allocate(bytes)?) })
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Sets every byte to 0.
    pub fn clear(&mut self) -> Result<(), Error> {
        let bytes = &mut self.bytes;
        self.gpu.on_stream("clearing memory", |stream| {
            // SAFETY: the stream is waited for below, before the memory can be freed or used otherwise.
            if bytes.is_empty() { Ok(()) } else { unsafe { bytes.set_zero_async(stream) } }
        })
    }

    /// Copies `data` to the bytes from `start` on, which must be in bounds.
    pub fn write(&mut self, start: usize, data: &[u8]) -> Result<(), Error> {
        let mut target = self.bytes.index(start..start + data.len());
        if data.len() >= STAGED_BYTES {
            return self.gpu.upload(data, target);
        }
        self.gpu.on_stream("copying to the device", |stream| {
            // SAFETY: the stream is waited for before `data` or the memory can go.
            if data.is_empty() { Ok(()) } else { unsafe { target.async_copy_from(data, stream) } }
        })
    }

    /// Copies the bytes from `start` on to `data`; they must be in bounds.
    pub fn read(&self, start: usize, data: &mut [u8]) -> Result<(), Error> {
        let source = self.bytes.index(start..start + data.len());
        self.gpu.on_stream("copying from the device", |stream| {
            // SAFETY: the stream is waited for before `data` or the memory can go.
            if data.is_empty() { Ok(()) } else { unsafe { source.async_copy_to(data, stream) } }
        })
    }

    /// Where byte `start` lies.
    fn address(&self, start: usize) -> u64 {
        self.bytes.as_device_ptr().as_raw() + start as u64
    }

    /// Reduces the `len` elements at byte `start`, which must be in bounds.
    pub fn reduce<O: Op<T>, T: Element, const BLOCK: u32>(
        &self,
        start: usize,
        len: usize,
    ) -> Result<O::Output, Error> {
        self.gpu.reduce::<O, T, BLOCK>(self.address(start), len)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Freeing needs a current context; where there is none to be had, the process is ending.
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.bytes) }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} bytes on {}", self.bytes(), self.gpu)
    }
}

/// Has the driver's functions served by the emulator or by the machine's driver, whichever the program asks for first.
fn load_driver(emulated: bool) -> Result<(), Error> {
    let loaded = match emulated {
        false => libcuda::load(),
        #[cfg(feature = "emulator")]
        true => emulator::install(),
        #[cfg(not(feature = "emulator"))]
        true => return Err(Error::NoEmulator),
    };
    loaded.map_err(|error| match error {
        libcuda::LoadError::AlreadyInstalled { .. } => Error::OtherDriver(error.to_string()),
        libcuda::LoadError::NoDriver { .. } => Error::NoDriver(error.to_string()),
    })
}

/// The CUDA version that a version of the PTX ISA came with, as drivers say it: 9010 is 9.1 (PTX ISA, "PTX ISA Version
/// History").
const fn first_cuda(ptx: (i32, i32)) -> Option<i32> {
    Some(match ptx {
        (6, minor @ 0..=2) => 9000 + 10 * minor,
        (6, minor @ 3..=5) => 10000 + 10 * (minor - 3),
        (7, minor @ 0..=8) => 11000 + 10 * minor,
        (8, minor @ 0..=5) => 12000 + 10 * minor,
        (8, minor @ 6..=8) => 12010 + 10 * minor,
        (9, minor @ 0..=1) => 13000 + 10 * minor,
        _ => return None,
    })
}

fn check_version(driver: i32, needed: i32) -> Result<(), Error> {
    let text = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
    if driver >= needed {
        return Ok(());
    }
    Err(Error::DriverTooOld { driver: text(driver), needed: text(needed) })
}

fn check_capability(device: &str, capability: (i32, i32), needed: (i32, i32)) -> Result<(), Error> {
    let text = |(major, minor): (i32, i32)| format!("{major}.{minor}");
    if capability >= needed {
        return Ok(());
    }
    let (capability, needed) = (text(capability), text(needed));
    Err(Error::DeviceTooOld { device: device.to_owned(), capability, needed })
}

/// The name of the production kernel, as `sum_f32_256`.
fn kernel_name<O: Op<T>, T: Element, const BLOCK: u32>() -> String {
    format!("{}_{}_{BLOCK}", O::NAME, T::NAME)
}

/// Refuses an operator or a type that is not one of the kernels': a program's own may have the name of one that is, and
/// kernels are found by name.
fn check_compiled<O: Op<T>, T: Element>(kernel: impl FnOnce() -> String) -> Result<(), Error> {
    macro_rules! of_types {
        ({} $($type:ident: $($row:ident)*;)*) => { [$(TypeId::of::<$type>()),*] };
    }
    let operators = [TypeId::of::<Sum>(), TypeId::of::<Prod>(), TypeId::of::<Min>(), TypeId::of::<Max>()];
    let types = for_each_element! { of_types! {} };
    if operators.contains(&TypeId::of::<O>()) && types.contains(&TypeId::of::<T>()) {
        Ok(())
    } else {
        Err(Error::NoKernel { kernel: kernel() })
    }
}

/// A kernel's argument, as a launch takes it.
fn argument<V>(value: &V) -> *mut c_void {
    (&raw const *value).cast_mut().cast()
}

/// What the driver says of an error, and its number in the driver's headers.
fn reason(error: CudaError) -> String {
    format!("{error} (CUDA error {})", error as u32)
}

/// The PTX of a kernel, as the module that holds it alone.
fn ptx(name: &str) -> Option<CString> {
    let index = KERNELS.binary_search_by_key(&name, |&(name, _)| name).ok()?;
    let text = miniz_oxide::inflate::decompress_to_vec(KERNELS[index].1).ok()?;
    CString::new(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_embedded() {
        assert_eq!(KERNELS.len() % crate::BLOCKS.len(), 0);
        for &(name, _) in KERNELS {
            let ptx = ptx(name).unwrap().into_string().unwrap();
            assert!(ptx.contains(&format!(".visible .entry {name}(")), "{name} is not in its module");
            assert_eq!(ptx.matches(".entry").count(), 1, "{name} is not alone in its module");
        }
    }

    /// By the emulator's reading of each, which is not the build script's.
    #[test]
    fn what_is_needed_is_what_some_kernel_is_for() {
        let (mut version, mut target) = Default::default();
        for (name, _) in KERNELS {
            let module = emulator::ptx::parse(ptx(name).unwrap().to_str().unwrap()).unwrap();
            version = module.version.max(version);
            target = module.target[0].strip_prefix("sm_").unwrap().parse::<i32>().unwrap().max(target);
        }
        assert_eq!((version.0 as i32, version.1 as i32), NEEDED_PTX);
        let (major, minor) = NEEDED_CAPABILITY;
        assert_eq!(target, 10 * major + minor);
        let cuda = format!("{}.{}", NEEDED_CUDA / 1000, NEEDED_CUDA % 1000 / 10);
        println!("the kernels need a driver for CUDA {cuda} and compute capability {major}.{minor}");
    }

    #[test]
    fn each_ptx_version_came_with_a_cuda_version() {
        let expected = [
            ((6, 0), 9000),
            ((6, 3), 10000),
            ((6, 5), 10020),
            ((7, 0), 11000),
            ((7, 8), 11080),
            ((8, 5), 12050),
            ((8, 6), 12070),
            ((8, 8), 12090),
            ((9, 0), 13000),
        ];
        for (ptx, cuda) in expected {
            assert_eq!(first_cuda(ptx), Some(cuda), "{ptx:?}");
        }
        for unknown in [(5, 0), (6, 6), (7, 9), (8, 9), (9, 99), (10, 0)] {
            assert_eq!(first_cuda(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn what_embedding_adds_is_small() {
        let bytes: usize = KERNELS.iter().map(|(name, data)| name.len() + data.len()).sum();
        // A dependent package has the ladder's only if it asks for them.
        let most = if cfg!(feature = "ladder") { 4 << 20 } else { 2 << 20 };
        assert!(bytes < most, "{bytes} bytes");
    }

    #[test]
    fn old_drivers_and_devices_are_refused() {
        assert_eq!(check_version(13000, 9000), Ok(()));
        assert_eq!(check_version(9000, 9000), Ok(()));
        let old = check_version(10020, 11010).unwrap_err();
        assert_eq!(
            old.to_string(),
            "the driver is one for CUDA 10.2, but the kernels need CUDA 11.1 or newer: update the driver"
        );
        assert_eq!(check_capability("cuda:0", (7, 0), (7, 0)), Ok(()));
        assert_eq!(check_capability("cuda:0", (12, 0), (7, 0)), Ok(()));
        let old = check_capability("cuda:0", (6, 1), (7, 0)).unwrap_err();
        assert_eq!(old.to_string(), "cuda:0 has compute capability 6.1, but the kernels need 7.0 or higher");
    }

    /// On a GPU: a module that the driver does not take, and a launch that it refuses, are errors, and the device goes on.
    #[test]
    fn a_failed_launch_leaves_the_device_usable() {
        let gpu = match Gpu::open(0, false) {
            Ok(gpu) => gpu,
            Err(why) => return eprintln!("skipped, no GPU: {why}"),
        };
        let _entered = gpu.enter().unwrap();
        let bad = gpu.compile("bad", c".version 99.9\n.target sm_70\n.address_size 64\n", 32);
        assert!(matches!(bad, Err(Error::Launch { .. })), "{:?}", bad.map(|_| ()));
        let kernel = gpu.kernel("sum_f32_256", 256).unwrap();
        let argument = 0u64;
        let arguments = [(&raw const argument).cast_mut().cast(); 5];
        let refused = gpu.with_workspace(|workspace| {
            // SAFETY: 2,048 threads a block are more than any device takes, so it never runs.
            unsafe { workspace.stream.launch(kernel, 1, 2048, 0, &arguments) }
                .map_err(|error| gpu.launch_failed("sum_f32_256", error))
        });
        assert!(matches!(refused, Err(Error::Launch { .. })), "{refused:?}");
        let mut memory = Memory::new(&gpu, 16).unwrap();
        memory.write(0, bytemuck::cast_slice(&[1f32, 2.0, 3.0, 4.0])).unwrap();
        assert_eq!(memory.reduce::<Sum, f32, 256>(0, 4), Ok(10.0));
    }
}
