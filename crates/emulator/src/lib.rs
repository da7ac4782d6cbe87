//! A CUDA device in software: kernels in PTX run, are checked and are counted on any Linux machine, with no GPU and
//! no CUDA.
//!
//! [`install`] puts the emulator behind the CUDA driver API of this program. Host code stays as it is: what it calls
//! through [cust](https://docs.rs/cust) now meets a device, "PTX emulator", with the limits of an H200 (compute
//! capability 9.0) and 16 GiB of memory, or [several](#several-devices). `cuModuleLoadData` parses PTX, `cuMemAlloc` hands out host memory, and
//! `cuLaunchKernel` interprets, with results that are to the bit those of a GPU where the PTX ISA defines them.
//!
//! # Testing a kernel
//!
//! Call [`install`] first; everything else is cust. (`crates/libcuda` says what a package that uses cust needs to build.)
//!
//! ```
//! use cust::launch;
//! use cust::memory::{CopyDestination, DeviceBuffer};
//! use cust::module::Module;
//! use cust::stream::{Stream, StreamFlags};
//!
//! const DOUBLE: &str = "
//!     .version 6.0
//!     .target sm_70
//!     .address_size 64
//!
//!     // values[i] *= 2 for each thread i of the only block
//!     .visible .entry double(.param .u64 values) {
//!         .reg .b32 %r<2>;
//!         .reg .b64 %rd<4>;
//!         .reg .f32 %f<3>;
//!         ld.param.u64 %rd1, [values];
//!         mov.u32 %r1, %tid.x;
//!         mul.wide.u32 %rd2, %r1, 4;
//!         add.s64 %rd3, %rd1, %rd2;
//!         ld.global.f32 %f1, [%rd3];
//!         add.rn.f32 %f2, %f1, %f1;
//!         st.global.f32 [%rd3], %f2;
//!         ret;
//!     }";
//!
//! emulator::install()?;
//! let _context = cust::quick_init()?;
//! let module = Module::from_ptx(DOUBLE, &[])?;
//! let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
//! let values = DeviceBuffer::from_slice(&[1.0f32, 2.5, -3.0])?;
//! // SAFETY: the kernel takes one pointer, to an element for each of the 3 threads.
//! unsafe { launch!(module.double<<<1, 3, 0, stream>>>(values.as_device_ptr()))? };
//! stream.synchronize()?;
//! assert_eq!(values.as_host_vec()?, [2.0, 5.0, -6.0]);
//!
//! // What the launch did.
//! let (kernel, counters) = emulator::last_counters().unwrap();
//! assert_eq!((kernel.as_str(), counters.warp_instructions), ("double", 8));
//!
//! // One thread too many: the access past the buffer's end is found, and named.
//! // SAFETY: the emulator checks each access.
//! unsafe { launch!(module.double<<<1, 4, 0, stream>>>(values.as_device_ptr()))? };
//! assert!(stream.synchronize().is_err());
//! let faults = emulator::take_faults();
//! assert!(faults[0].to_string().contains("out of bounds"), "{}", faults[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is checked
//!
//! With [`Settings::checks`] on, as it is by default: data races in shared memory and, within a launch and across
//! devices, in global memory; reads of shared or global memory that nothing wrote; accesses out of bounds or misaligned; barriers that
//! part of a block never reaches; deadlocks. What a check finds is a [`Fault`], which names the kernel, the line of
//! the PTX (and of the Rust source, where the PTX has debug information), the block, the threads and the address. It
//! is printed to standard error, and [`take_faults`] returns it. The calls see what a GPU's host would see: the launch
//! succeeds, and later calls of the context fail.
//!
//! Accesses to global memory are noted, and races among them looked for when the launch has ended. Where a launch makes
//! more of them than fit in [`Settings::race_log_bytes`], only the first ones are looked at, and a message says so once.
//!
//! A fault stops the context for all threads that use it. A test that plants one does so best in a test program of its
//! own, or serialised with the other tests.
//!
//! Misuse of the driver API gets the codes that the NVIDIA driver gives: an invalid handle, a launch past the limits,
//! memory freed twice, a copy out of bounds. Host pointers are not checked.
//!
//! # Several devices
//!
//! [`Settings::devices`], or `GPU_REDUCE_EMULATOR_DEVICES` in the environment, says how many there are. The driver takes
//! it when it is initialised, so that a program which does not use the environment sets it first:
//!
//! ```
//! use cust::context::Context;
//! use cust::device::Device;
//! use cust::memory::{CopyDestination, DeviceBuffer};
//!
//! emulator::set_settings(emulator::Settings { devices: 2, ..emulator::settings() });
//! emulator::install()?;
//! cust::init(cust::CudaFlags::empty())?;
//! assert_eq!(Device::num_devices()?, 2);
//!
//! let _first = Context::new(Device::get_device(0)?)?;
//! let values = DeviceBuffer::from_slice(&[1, 2, 3])?;
//! // Now this one is current.
//! let _second = Context::new(Device::get_device(1)?)?;
//! let mut copy = DeviceBuffer::from_slice(&[0; 3])?;
//! copy.copy_from(&*values)?;
//! assert_eq!(copy.as_host_vec()?, [1, 2, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each has its contexts, and its memory up to its own limit. Addresses are unified: copies go from any device to any
//! other, and `cuPointerGetAttribute` says whose an address is. A kernel reaches its own device's memory, pinned and managed
//! memory, and that of contexts to which its own has enabled peer access (`cuCtxEnablePeerAccess`); another address of
//! another device is [`FaultKind::PeerAccess`](fault::FaultKind::PeerAccess). With [`Settings::peer_access`] off, no device
//! can access another one's memory, as between GPUs without a link, and data must go by copies.
//!
//! With the checks on, work of different devices (launches, copies, memsets) that uses the same bytes must be ordered if
//! any of it writes: by a stream, by events, by the legacy stream of a context, or by what the host waits for (streams,
//! contexts, events, copies to it). Otherwise it is a [`FaultKind::DeviceRace`](fault::FaultKind::DeviceRace), which names
//! both, and stops the context of the second. It is one even though here the first has ended long since: a GPU may run them
//! in any order. Atomics, `volatile` and stronger accesses are none among each other where their scope is the system's
//! (`.sys`); `.gpu`, the default of `atom` and `red`, is not enough across devices. A release that an acquire of that
//! scope has seen orders the launches.
//!
//! What can hide a race, and never invents one: the host's threads count as one; a launch that writes to the host's
//! memory by accesses of the system's scope counts as waited for, because the host may have watched that memory; the work
//! of a graph counts as one sequence. Accesses by the host itself, and the streams of one device among each other, are not
//! looked at.
//!
//! # Graphs
//!
//! Streams capture launches, copies, memsets and host functions, and events carry a capture from stream to stream
//! (`cuStreamBeginCapture_v2`, `cuStreamEndCapture` and what asks about captures). `cuGraphInstantiateWithFlags` or
//! `cuGraphInstantiate_v2` and `cuGraphLaunch` run what was captured, in the order in which it was captured, with the same
//! checks and counters as launches; [`last_counters`] is that of a graph's last kernel. A copy or memset whose memory was
//! freed since is a fault as well, [`FaultKind::Replay`](fault::FaultKind::Replay).
//!
//! What a capture forbids is refused with the codes of CUDA's documentation: waiting for a stream or event that is
//! captured, allocations and synchronous copies, the legacy stream beside a capture that blocks it, forks that do not join.
//!
//! # What is not modelled
//!
//! - Time. Work has ended when the call that asked for it returns, so streams and devices do not overlap, a kernel cannot
//!   wait for one that is launched after it, and events measure the interpreter.
//! - What PTX leaves to the machine: caches, the registers and instructions of the compiled kernel. The number of
//!   registers a thread, and so occupancy, are estimates from the PTX. Approximate functions (`sin.approx`) give the
//!   host's result, within the error that the PTX ISA allows a GPU; a NaN of 64 bits is always the same one.
//! - Graphs that are built or changed node by node, the dependencies in a graph, and in captures memory that is allocated
//!   or freed and events that are external; cooperative launches, the linker, arrays, textures, surfaces, memory pools and
//!   virtual memory, memory of other processes: their functions return `CUDA_ERROR_NOT_SUPPORTED`.
//! - Machine code: cubins and fat binaries are `CUDA_ERROR_NO_BINARY_FOR_GPU`.

mod alu;
mod counters;
mod driver;
pub mod fault;
mod history;
#[cfg(test)]
#[path = "../tests/shipped/mod.rs"]
mod shipped;

// Below the driver API: for this repository's benchmarks and its fuzz target.
#[doc(hidden)]
pub mod exec;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod program;
#[doc(hidden)]
pub mod ptx;

pub use counters::Counters;
pub use driver::{last_counters, last_load_error, take_calls, take_counters, take_faults};
pub use exec::Settings;
pub use fault::Fault;

use libcuda::LoadError;
use std::str::FromStr;
use std::sync::{LazyLock, PoisonError, RwLock};

/// Makes this program's CUDA driver the emulator. Call it before the first call of the driver API; later calls change
/// nothing.
///
/// # Errors
///
/// [`LoadError::AlreadyInstalled`] where the program has loaded the NVIDIA driver before.
///
/// # Examples
///
/// ```
/// emulator::install()?;
/// let context = cust::quick_init()?;
/// assert_eq!(cust::device::Device::get_device(0)?.name()?, "PTX emulator");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn install() -> Result<(), LoadError> {
    // SAFETY: `driver::api!` compiles only functions of the signatures that cust_raw declares under these names; they
    // are part of the program, and may be called from any thread.
    unsafe { libcuda::install("the emulator", &driver::resolve) }
}

static SETTINGS: LazyLock<RwLock<Settings>> = LazyLock::new(|| RwLock::new(from_environment()));

/// How launches run from now on.
///
/// Unless [`set_settings`] was called: checks on, or as `GPU_REDUCE_EMULATOR_CHECKS` (0 or 1) says; warps in order, or
/// at random from the number in `GPU_REDUCE_EMULATOR_SEED`; as many CPU threads as the machine runs at a time, or
/// `GPU_REDUCE_EMULATOR_THREADS`; one device, or `GPU_REDUCE_EMULATOR_DEVICES`, with peer access, or as
/// `GPU_REDUCE_EMULATOR_PEER_ACCESS` (0 or 1) says. The environment is read once.
pub fn settings() -> Settings {
    SETTINGS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Changes how launches run, for all threads of the program. Launches that run go on as they started.
///
/// # Examples
///
/// ```
/// let settings = emulator::Settings { seed: Some(7), ..emulator::settings() };
/// emulator::set_settings(settings.clone());
/// assert_eq!(emulator::settings(), settings);
/// ```
pub fn set_settings(settings: Settings) {
    *SETTINGS.write().unwrap_or_else(PoisonError::into_inner) = settings;
}

fn from_environment() -> Settings {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut settings = Settings { threads, ..Settings::default() };
    if let Some(checks) = variable::<u8>("GPU_REDUCE_EMULATOR_CHECKS") {
        settings.checks = checks != 0;
    }
    settings.seed = variable("GPU_REDUCE_EMULATOR_SEED");
    if let Some(threads) = variable::<usize>("GPU_REDUCE_EMULATOR_THREADS") {
        settings.threads = threads.max(1);
    }
    if let Some(devices) = variable::<u32>("GPU_REDUCE_EMULATOR_DEVICES") {
        settings.devices = devices;
    }
    if let Some(peer_access) = variable::<u8>("GPU_REDUCE_EMULATOR_PEER_ACCESS") {
        settings.peer_access = peer_access != 0;
    }
    settings
}

/// A number from the environment; one that cannot be read is reported, and passed over.
fn variable<T: FromStr>(name: &str) -> Option<T> {
    let value = std::env::var_os(name)?;
    let number = value.to_str().and_then(|value| value.trim().parse().ok());
    if number.is_none() {
        eprintln!("{name} is {value:?}, which is no number that fits: the emulator goes on without it");
    }
    number
}
