//! A CUDA device in software, which runs, checks and counts PTX kernels on any Linux machine.
//!
//! It needs no GPU and no CUDA. [`install`] puts the emulator behind the CUDA driver API of this program.
//! Host code stays as it is: its calls through [cust](https://docs.rs/cust) now reach a device named "PTX
//! emulator", with the limits of an H200 (compute capability 9.0) and 16 GiB of memory, or
//! [several](#several-devices). `cuModuleLoadData` parses PTX, `cuMemAlloc` returns host memory, and
//! `cuLaunchKernel` interprets the kernel. The results equal a GPU's bit for bit wherever the PTX ISA defines
//! them. Products of matrices (`mma`, `wmma`), whose sums the ISA leaves open, equal an H200's.
//!
//! # Testing a kernel
//!
//! Call [`install`] first; everything else is cust. (`crates/libcuda` says what a package that uses cust
//! needs to build.)
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
//! // SAFETY: the kernel takes one pointer, to one element per thread.
//! unsafe { launch!(module.double<<<1, 3, 0, stream>>>(values.as_device_ptr()))? };
//! stream.synchronize()?;
//! assert_eq!(values.as_host_vec()?, [2.0, 5.0, -6.0]);
//!
//! // What the launch did.
//! let (kernel, counters) = emulator::last_counters().unwrap();
//! assert_eq!((kernel.as_str(), counters.warp_instructions), ("double", 8));
//!
//! // One thread too many: the emulator finds the access past the end of the buffer.
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
//! With [`Settings::checks`] on, the default, the emulator finds:
//!
//! - data races in shared memory, and in global memory within a launch, between streams and across devices;
//! - reads of shared or global memory that nothing wrote, and copies of it to the host;
//! - accesses out of bounds or misaligned, also from one shared array into its neighbour;
//! - asynchronous copies that are used before their wait, and sources that are overwritten before it;
//! - barriers that part of a block never reaches;
//! - wrong lane masks, and matrix instructions that part of a warp misses;
//! - wrong uses of mbarriers, and of shared memory that an asynchronous copy still writes or reads;
//! - deadlocks;
//! - uses of values that nothing wrote.
//!
//! A failed check is a [`Fault`]. It names the kernel, the line of the PTX (and of the source, if the PTX has
//! debug information), the block, the threads and the address. If the source line is a library's, the fault
//! also names the line of the kernel's author that it was inlined or called at: the first one in the folder
//! of the package that has the kernel. The emulator prints the fault to standard error, and [`take_faults`]
//! returns it. The calls behave as on a GPU: the launch succeeds, and later calls of the context fail.
//!
//! **Notes.** Some findings that are races by the letter of the PTX ISA, or uses of unwritten values, are in
//! many libraries, and change no result. They are notes ([`Level::Note`](fault::Level::Note)): the emulator
//! prints them, [`take_notes`] returns them, and nothing stops.
//!
//! - Threads store the same bytes in the same place ([`SameValue`](fault::FaultKind::SameValue)), for example
//!   a flag.
//! - Threads store different values in the same place in shared memory, for example in a spare slot for what
//!   they drop ([`Clash`](fault::FaultKind::Clash)). If something uses the value that they left there, the
//!   use is a fault.
//! - Lanes of one store write floats to the same place that differ in their last bits only
//!   ([`Rounding`](fault::FaultKind::Rounding)). Triton lets all lanes store a result that each of them has
//!   reduced in another order.
//! - The first read of a compare-and-swap loop is plain ([`SwapRead`](fault::FaultKind::SwapRead)), and the
//!   other threads use atomic operations. The loop is recognised if the loaded value, or a copy of it, is
//!   what `atom.cas` compares at the same address.
//! - A block overwrites what another one has read, and only relaxed accesses order the two
//!   ([`Overwrite`](fault::FaultKind::Overwrite)). Compaction in place argues by dependencies: the read led
//!   to the place of the write, through counts that blocks pass on. The PTX ISA calls this a race unless a
//!   release and an acquire are between the two. The emulator does not follow each value through registers,
//!   shuffles and memory, so it takes the dependency for granted. To read what another block has written, no
//!   dependency helps, and a missing release is a fault.
//! - A read-only load (`ld.global.nc`) comes before the kernel's write of the same place
//!   ([`ConstantFirst`](fault::FaultKind::ConstantFirst)). If it comes after the write, or without an order,
//!   it is a fault.
//! - A branch depends on a value in shared memory that nothing wrote, and its two ways only load and compute
//!   until they meet ([`UnwrittenBranch`](fault::FaultKind::UnwrittenBranch)). Intersections of sets go on
//!   past the last item of one set, and drop what they find there. The emulator does not compare what the two
//!   ways compute. But each [`Settings::seed`] puts other bytes in shared memory that nothing wrote, so that
//!   results which depend on them differ.
//!
//! **Allowed lines.** [`Settings::allow`] lists lines of the source and kernels whose author has decided that
//! a race, or a use of what nothing wrote, is none. Neither a fault nor a note is reported there.
//!
//! ```
//! use emulator::{Allow, Settings};
//!
//! let allow = vec![Allow::line("src/compact.cu", 42), Allow::kernel("compact")];
//! emulator::set_settings(Settings { allow, ..emulator::settings() });
//! ```
//!
//! **Global memory.** Each launch logs its accesses to global memory, and the emulator looks for races among
//! them when the launch has ended. If a launch makes more accesses than fit in [`Settings::race_log_bytes`],
//! only the first ones are checked, and a message says so once.
//!
//! **Barriers.** Block barriers and warp instructions (`bar.sync`, `*.sync`) wait for all threads they name
//! that have not ended. The PTX ISA says so of shuffles, votes and reductions, and GPUs since sm_70 do so for
//! barriers, too. So a kernel may return early (`if i >= n { return; }`) before a block barrier, or before a
//! shuffle with the mask of the whole warp. Reading an ended lane's value by a shuffle is a fault if the
//! instruction names the lane (`idx`, `bfly`); `up` and `down` may read past the participating lanes, as
//! reductions and scans that drop what they read there, but what depends on such a value is a fault. A
//! `bar.sync` is a fault, at once, if part of a warp goes around it and then does the same work as the
//! others. The parts of a diverged warp may each pass their own mask, and a warp barrier orders only the
//! lanes of its mask.
//!
//! **mbarriers and asynchronous copies.** A wait at an mbarrier (`test_wait`, `try_wait`) that succeeds comes
//! after what preceded the arrivals of that phase, and of those before. Only `mbarrier` instructions may use
//! the eight bytes between `mbarrier.init` and `mbarrier.inval`. Copies (`cp.async`, `cp.async.bulk`)
//! transfer their bytes at once, but the checks take the bytes as in flight until someone waits: at the
//! copy's mbarrier, in each thread that uses them; or else for the copy's group, in the thread that copies. A
//! bulk copy from shared memory is a fault if no `fence.proxy.async` at all follows a store of its bytes. A
//! block whose warps all wait at mbarriers is in a deadlock, and the fault says which arrivals and bytes are
//! missing; if the kernel reads a clock, it takes 2^24 instructions of waiting to be one. When a thread has
//! waited at one mbarrier, the emulator may miss that it uses copies of another for which only other threads
//! have waited.
//!
//! **Calls through pointers** become comparisons with the address of each function that the call may call:
//! those whose address is taken and whose parameters have the same sizes as the call's. A call of any other
//! address is a fault.
//!
//! **Matrices.** `mma`, `wmma`, `ldmatrix`, `stmatrix` and `movmatrix` need all 32 lanes of a warp: it is a
//! fault at once if a lane goes around one or has ended. A row of `ldmatrix` or `stmatrix` counts as accessed
//! by the lane that gave its address. `wmma` accesses up to 16 bytes of a row or column per lane, and these
//! must be aligned. An element of a product is undefined if one of its row of a, of its column of b, or of c
//! is. The sums of narrow floats are those of compute capability 9.0; earlier GPUs give other bits.
//!
//! **Memory order.** A release covers the atomic access that it is part of, also if a fence before the access
//! makes it a release. A block barrier acquires what relaxed reads before it have seen, because CUDA's
//! samples rely on that (`threadFenceReduction`). Atomic operations on a place follow one another, also
//! without fences: after one, its block may load and store the place plainly, though other blocks have used
//! it (`if (atomicAdd(c, 1) == last) *c = 0`). The emulator does not look at what the operation returned, so
//! it finds a block that is not the last one only if a later block uses the place.
//!
//! Two relaxed accesses of different sizes are not atomic to each other, so a `st.relaxed.u64` and a
//! `ld.relaxed.u32` of one of its halves race. (Each value of a vector counts for itself.)
//!
//! An acquire is taken to see each release of its address that ran before it. So plain data under a sequence
//! number (a seqlock) is a race only in an order of execution in which a read and a later write overlap:
//! blocks that run one after another hide it, and [`Settings::seed`] shows it.
//!
//! **Asynchronous copies.** Between a `cp.async` and its wait, any access to the bytes that it writes is a
//! fault, and so is a write to those that it reads, also by the same thread.
//!
//! **Shared arrays.** Shared memory is one range of bytes, so an index past the end of an array reaches the
//! next one. The emulator finds that if the access's address is computed from the address of one `.shared`
//! variable. It does not find it if the address comes from memory or from two variables, and the parts of
//! dynamic shared memory are one array to it.
//!
//! **Copies to the host** of memory of which nothing wrote any byte are faults. If a part is written, the
//! rest may be padding, or not in use yet. A copy on the device is no fault: the copied bytes stay unwritten.
//!
//! **Volatile accesses.** The PTX ISA calls them relaxed, and two relaxed accesses do not race. In shared
//! memory the emulator treats so only volatile stores, and volatile loads of flags: loads whose value decides
//! when a loop ends, or from which only conditions are computed. It checks other volatile loads there as
//! plain ones. So a flag needs no fence for itself, and code for lanes that once ran in step (`v[i] += v[i +
//! 16]` without a barrier of the warp) is a race.
//!
//! **Values that nothing wrote**, in a register, in local or in shared memory, are faults where they are
//! used: as an address, in a branch (see the notes above) or a guard, or by an atomic. Storing one to global
//! memory is a fault if it is stored by itself and comes from memory or from a register that no instruction
//! ever writes; other stores are not, because padding between fields is copied along. Copying such a value
//! elsewhere, or computing a result that is then dropped, is no fault, because compilers do both, and merges
//! read an item too many. A load from global memory is a fault at once if nothing wrote any of its bytes. If
//! some are written, as of a struct with padding, its values are judged where they are used. If part of a
//! value may be defined, all of it counts as defined. A value that a shuffle (`up`, `down`) takes from a lane
//! that has ended or does not take part counts as one that nothing wrote.
//!
//! **Other spaces.** The generic address of a thread's local memory carries its owner. Another thread that
//! uses the address is at fault, and the fault names the owner; on a GPU the access would reach the accessing
//! thread's own memory. A kernel that writes to a `.const` variable is at fault, and so is one that reads an
//! argument which the launch's argument buffer is too short for.
//!
//! **Launches that do not end** are stopped by [`Settings::time_limit`], and blocks by
//! [`Settings::instruction_limit`]; the fault says which threads waited, where and for what. Blocks that poll
//! memory let others run, so a barrier of all blocks of a grid does not need one CPU thread per block. A grid
//! with such a barrier must have no more blocks than the device holds at a time, which
//! `cuOccupancyMaxActiveBlocksPerMultiprocessor` tells: if all that it holds wait for others, that is a fault
//! at once. A cooperative launch (`cuLaunchCooperativeKernel`, or `cuLaunchKernelEx` with that attribute) of
//! more blocks is refused.
//!
//! **Orders.** Without a seed, blocks and warps run one after another as far as they can, which hides faults
//! that depend on the order. [`Settings::seed`] mixes blocks, warps and diverged lanes, each seed in its own
//! order, the same every time; [`compare_seeds`] runs a test under several seeds and tells whose results
//! differ.
//!
//! A fault stops the context for all threads that use it. Put a test that plants a fault in a test program of
//! its own, or serialise it with the other tests.
//!
//! Misuse of the driver API returns the codes of the NVIDIA driver: an invalid handle, a launch past the
//! limits, memory freed twice, a copy out of bounds. Host pointers are not checked.
//!
//! # What kernels print
//!
//! `printf` in a kernel (`vprintf`, as nvcc, clang and rustc call it) writes to this program's standard
//! output at once. The lines of one thread keep their order, each call's text stays whole, and the order
//! across threads is unspecified. Conversions and return values are those of CUDA's `printf`. An `assert`
//! that fails (`__assertfail`) prints a line on standard error in CUDA's wording and is a
//! [`FaultKind::Assert`](fault::FaultKind::Assert); later calls fail with `CUDA_ERROR_ASSERT`. A panic of a
//! Rust kernel is such an assertion, with the file and the line that panicked. The fault also names the
//! functions of `core` that were called, for example `core::panicking::panic_bounds_check`.
//!
//! # Several devices
//!
//! [`Settings::devices`], or `GPU_REDUCE_EMULATOR_DEVICES` in the environment, sets the number of devices.
//! The driver reads it when it is initialised, so a program that does not use the environment sets it first:
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
//! // The new context is the current one.
//! let _second = Context::new(Device::get_device(1)?)?;
//! let mut copy = DeviceBuffer::from_slice(&[0; 3])?;
//! copy.copy_from(&*values)?;
//! assert_eq!(copy.as_host_vec()?, [1, 2, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each device has its own contexts and its own memory limit. Addresses are unified: a copy goes from any
//! device to any other, and `cuPointerGetAttribute` returns the device of an address. A kernel reaches the
//! memory of its own device, pinned and managed memory, and the memory of contexts to which its own has
//! enabled peer access (`cuCtxEnablePeerAccess`). Any other address of another device is a
//! [`FaultKind::PeerAccess`](fault::FaultKind::PeerAccess). With [`Settings::peer_access`] off, no device can
//! access another's memory, as between GPUs without a link, and data must be copied.
//!
//! # Streams
//!
//! With the checks on, two pieces of work (launches, copies, memsets) must be ordered if they use the same
//! bytes and one of them writes. A stream orders them, or events, the legacy stream of a context, or what the
//! host waits for (streams, contexts, events, copies to the host). Work without an order is a
//! [`FaultKind::StreamRace`](fault::FaultKind::StreamRace) or, between two devices, a
//! [`FaultKind::DeviceRace`](fault::FaultKind::DeviceRace). It names both and stops the context of the
//! second. It is a fault even though the first has long ended here: a GPU may run the two in any order. For
//! example, a stream created as non-blocking does not wait for `cuMemsetD8`, which the host does not wait for
//! either.
//!
//! Two accesses do not race if both are atomic and their scopes have both threads: `.gpu` (the default of
//! `atom` and `red`) on one device, `.sys` or `volatile` across devices. A release orders two launches if an
//! acquire has seen it, with such scopes.
//!
//! The check never invents a race, but it can miss one: all threads of the host count as one; a launch that
//! writes to host memory by accesses of system scope counts as waited for, because the host may have watched
//! that memory; the work of a graph counts as one sequence; and plain reads of a launch from more than 16,384
//! separate ranges of memory are left out, as are its writes and each kind of its atomic accesses. It does
//! not look at the host's own accesses, which make no call of the driver: a program that reads pinned or
//! managed memory before the stream has ended gets the final values here, and no fault.
//!
//! # Graphs
//!
//! Streams capture launches, copies, memsets and host functions, and events carry a capture from stream to
//! stream (`cuStreamBeginCapture_v2`, `cuStreamEndCapture` and the functions that query captures).
//! `cuGraphInstantiateWithFlags` or `cuGraphInstantiate_v2`, then `cuGraphLaunch`, run the captured work in
//! the order of its capture, with the same checks and counters as launches; [`last_counters`] returns those
//! of a graph's last kernel. A copy or memset whose memory has been freed since the capture is a
//! [`FaultKind::Replay`](fault::FaultKind::Replay).
//!
//! Calls that a capture forbids return the codes of CUDA's documentation: waiting for a captured stream or
//! event, allocations and synchronous copies, the legacy stream beside a capture that blocks it, forks that
//! do not join.
//!
//! # What is not modelled
//!
//! - Time. Work has ended when the call that enqueues it returns. So streams and devices do not overlap, a
//!   kernel cannot wait for a later launch, and events measure the interpreter.
//! - What PTX leaves to the machine: caches, the registers and instructions of the compiled kernel. The
//!   number of registers per thread, and so occupancy, are estimates from the PTX. Approximate functions
//!   (`sin.approx`) return the host's result, within the error that the PTX ISA allows; every 64-bit NaN
//!   result is the same one.
//! - Graphs built or changed node by node, dependencies within a graph, memory allocated or freed and
//!   external events in captures; cooperative launches on several devices, the linker, arrays, textures,
//!   surfaces, virtual memory and memory of other processes. Their functions return
//!   `CUDA_ERROR_NOT_SUPPORTED`. Memory pools keep nothing that was freed, and only their own device has
//!   access to them.
//! - Instructions for clusters and textures, and copies of tensors (`cp.async.bulk.tensor`); each cluster has
//!   one block, so that `.shared::cluster` is the block's own shared memory. Matrix instructions of warp
//!   groups (`wgmma`), of sparse matrices and of floats of 8 bits, `wmma` of less than 8 bits, and
//!   `mma.m8n8k4` of `f16`. Recursion, calls through registers that are nested more than four deep, and
//!   functions without a body except `vprintf` and `__assertfail`. Launching a kernel that contains one fails
//!   and names it; the other kernels of the module run.
//! - Machine code: cubins return `CUDA_ERROR_NO_BINARY_FOR_GPU`, and so do fat binaries unless they have PTX
//!   that is not compressed (`nvcc --no-compress`).

mod allow;
mod alu;
mod counters;
mod driver;
pub mod fault;
mod history;
mod seeds;
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

pub use allow::Allow;
pub use counters::Counters;
pub use driver::{last_counters, last_load_error, take_calls, take_counters, take_faults, take_notes};
pub use exec::Settings;
pub use fault::Fault;
pub use seeds::{SeedsDiffer, compare_seeds};

use libcuda::LoadError;
use std::str::FromStr;
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::Duration;

/// Makes the emulator this program's CUDA driver.
///
/// Call it before the first call of the driver API; later calls change nothing.
///
/// # Errors
///
/// [`LoadError::AlreadyInstalled`] if the program has already loaded the NVIDIA driver.
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
    // SAFETY: `driver::api!` compiles only functions with the signatures that cust_raw declares for these
    // names; they are part of the program, and any thread may call them.
    unsafe { libcuda::install("the emulator", &driver::resolve) }
}

static SETTINGS: LazyLock<RwLock<Settings>> = LazyLock::new(|| RwLock::new(from_environment()));

/// Returns the settings that launches use from now on.
///
/// Until [`set_settings`] is called, they come from the environment, which is read once:
///
/// | variable | value | default |
/// | --- | --- | --- |
/// | `GPU_REDUCE_EMULATOR_CHECKS` | 0 or 1: [`checks`](Settings::checks) off or on | on |
/// | `GPU_REDUCE_EMULATOR_SEED` | [`seed`](Settings::seed) of a random order of blocks and warps | they run in order |
/// | `GPU_REDUCE_EMULATOR_THREADS` | CPU [`threads`](Settings::threads) | the machine's parallelism |
/// | `GPU_REDUCE_EMULATOR_TIME_LIMIT` | seconds per launch, the [`time_limit`](Settings::time_limit) | 60 |
/// | `GPU_REDUCE_EMULATOR_DEVICES` | number of [`devices`](Settings::devices) | 1 |
/// | `GPU_REDUCE_EMULATOR_PEER_ACCESS` | 0 or 1: [`peer_access`](Settings::peer_access) off or on | on |
/// | `GPU_REDUCE_EMULATOR_ALLOW` | lines (`scan.cu:42`) and kernels to [`allow`](Settings::allow), separated by `;` | none |
pub fn settings() -> Settings {
    SETTINGS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Sets how launches run, for all threads of the program.
///
/// Launches that are already running keep their settings.
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
    if let Some(seconds) = variable("GPU_REDUCE_EMULATOR_TIME_LIMIT") {
        settings.time_limit = Duration::from_secs(seconds);
    }
    if let Some(devices) = variable::<u32>("GPU_REDUCE_EMULATOR_DEVICES") {
        settings.devices = devices;
    }
    if let Some(peer_access) = variable::<u8>("GPU_REDUCE_EMULATOR_PEER_ACCESS") {
        settings.peer_access = peer_access != 0;
    }
    if let Some(allowed) = std::env::var_os("GPU_REDUCE_EMULATOR_ALLOW") {
        let allowed = allowed.to_string_lossy();
        let entries = allowed.split(';').map(str::trim).filter(|entry| !entry.is_empty());
        settings.allow.extend(entries.flat_map(str::parse));
    }
    settings
}

/// Reads a number from the environment; reports a value that does not parse and ignores it.
fn variable<T: FromStr>(name: &str) -> Option<T> {
    let value = std::env::var_os(name)?;
    let number = value.to_str().and_then(|value| value.trim().parse().ok());
    if number.is_none() {
        eprintln!("{name} is {value:?}, not a number in range: the emulator ignores it");
    }
    number
}
