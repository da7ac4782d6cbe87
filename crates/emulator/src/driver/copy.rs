//! Copies and memsets. Device ranges are checked; host pointers are the caller's responsibility.

use super::graph;
use super::memory::check_range;
use super::state::{State, state};
use super::{Answer, MEMORY, Running, api, require, running};
use crate::exec::Kind;
use crate::fault::{Fault, FaultKind, Work};
use crate::history::{Effect, Moment, Touch};
use crate::memory::OutOfBounds;
use cust_raw::{CUcontext, CUdeviceptr, CUresult, CUstream};
use std::ffi::{c_uchar, c_uint, c_ushort, c_void};
use std::{fmt, ptr, slice};

/// One end of a copy.
#[derive(Clone, Copy)]
pub enum End {
    /// Device memory or pinned host memory.
    Device(u64),
    /// Any memory.
    Any(u64),
}
use End::{Any, Device};

impl End {
    fn host(pointer: *const c_void) -> Self {
        Any(pointer.addr() as u64)
    }

    /// Decides now, for replays, whether the end is device memory; fails if the range leaves its allocation.
    fn held(self, bytes: usize) -> Answer<Self> {
        let (address, known) = self.locate()?;
        if known {
            check_range(address, bytes)?;
        }
        Ok(if known { Device(address) } else { Any(address) })
    }

    /// Returns the address, and whether an allocation of the emulator holds it.
    fn locate(self) -> Answer<(u64, bool)> {
        let (Device(address) | Any(address)) = self;
        let known = MEMORY.range(address).is_some();
        require(address != 0 && (known || matches!(self, Any(_))))?;
        Ok((address, known))
    }
}

/// A copy or a memset.
#[derive(Clone, Copy)]
pub enum MemoryWork {
    Transfer { to: End, from: End, bytes: usize },
    Fill { to: CUdeviceptr, pattern: Pattern, count: usize },
}
use MemoryWork::{Fill, Transfer};

/// The value that a memset repeats: four bytes, and how many of them are used.
#[derive(Clone, Copy)]
pub struct Pattern([u8; 4], usize);

impl Pattern {
    fn new<const BYTES: usize>(bytes: [u8; BYTES]) -> Self {
        Self(std::array::from_fn(|index| bytes[index % BYTES]), BYTES)
    }

    fn bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl fmt::Display for MemoryWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Transfer { to: Device(to) | Any(to), from: Device(from) | Any(from), bytes } => {
                write!(f, "a copy of {bytes} bytes from {from:#x} to {to:#x}")
            }
            Fill { to, pattern, count } => {
                write!(f, "a memset of {count} times {} bytes at {to:#x}", pattern.1)
            }
        }
    }
}

impl MemoryWork {
    /// Runs it as a piece of a stream's work. Returns false if it races with other work, which stops the
    /// context.
    ///
    /// # Safety
    ///
    /// An end in host memory is valid for all bytes, and nothing else uses them meanwhile.
    pub unsafe fn run(self, context: usize, moment: Moment, _device: &Running) -> Answer<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.perform()? };
        if let Some(fault) = self.unwritten() {
            state()?.record(context, fault);
            return Ok(false);
        }
        let touch = |kind, start: u64, bytes: usize| {
            let range = start..start.saturating_add(bytes as u64);
            Touch { effect: Effect::plain(kind), place: None, ranges: vec![range] }
        };
        let (work, touches) = match self {
            Transfer { bytes: 0, .. } | Fill { count: 0, .. } => return Ok(true),
            Transfer { to: Device(to) | Any(to), from: Device(from) | Any(from), bytes } => {
                (Work::Copy, vec![touch(Kind::Read, from, bytes), touch(Kind::Write, to, bytes)])
            }
            Fill { to, pattern, count } => {
                (Work::Memset, vec![touch(Kind::Write, to, count.saturating_mul(pattern.1))])
            }
        };
        state()?.end_work(context, work, moment, touches)
    }

    /// The fault of a copy to the host of which nothing wrote any byte. (A part may be padding, or not be
    /// used yet.)
    fn unwritten(self) -> Option<Fault> {
        let Transfer { to: Device(to) | Any(to), from: Device(from) | Any(from), bytes } = self else {
            return None;
        };
        if bytes == 0 || MEMORY.device_of(to).is_some() || !crate::settings().checks {
            return None;
        }
        let allocation = MEMORY.unwritten(from, bytes as u64)?;
        let kind = FaultKind::UnwrittenCopy { address: from, bytes: bytes as u64, allocation };
        Some(Fault {
            kernel: String::new(),
            place: None,
            block: [0; 3],
            threads: Vec::new(),
            seed: None,
            kind,
        })
    }

    /// # Safety
    ///
    /// That of [`run`](Self::run).
    unsafe fn perform(self) -> Answer {
        let done = match self {
            Transfer { bytes: 0, .. } | Fill { count: 0, .. } => return Ok(()),
            Transfer { to, from, bytes } => {
                let (to, from) = (to.locate()?, from.locate()?);
                // SAFETY: the caller's promise.
                unsafe { transfer(to, from, bytes) }
            }
            Fill { to, pattern, count } => {
                require(to.is_multiple_of(pattern.1 as u64))?;
                MEMORY.fill(to, pattern.bytes(), count as u64)
            }
        };
        done.map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Whether the host waits for it when called without a stream: unless both ends are device memory (CUDA
    /// Driver API, "API synchronization behavior").
    fn is_waited_for(self) -> bool {
        match self {
            Transfer { to: Device(to) | Any(to), from: Device(from) | Any(from), .. } => {
                MEMORY.device_of(to).is_none() || MEMORY.device_of(from).is_none()
            }
            Fill { to, .. } => MEMORY.device_of(to).is_none(),
        }
    }

    /// Whether the host waits for it even in a stream: if it copies to memory that is not pinned.
    fn is_always_waited_for(self) -> bool {
        matches!(self, Transfer { to: Device(to) | Any(to), .. } if MEMORY.range(to).is_none())
    }

    /// Prepares it for replays; fails if it could not run now.
    ///
    /// Decides now which ends are device memory, so that a replay does not take freed device memory for host
    /// memory.
    fn captured(self) -> Answer<Self> {
        Ok(match self {
            Transfer { bytes: 0, .. } | Fill { count: 0, .. } => self,
            Transfer { to, from, bytes } => Transfer { to: to.held(bytes)?, from: from.held(bytes)?, bytes },
            Fill { to, pattern, count } => {
                require(to.is_multiple_of(pattern.1 as u64))?;
                Device(to).held(count.saturating_mul(pattern.1))?;
                self
            }
        })
    }
}

/// Copies between addresses, each with whether an allocation of the emulator holds it.
///
/// # Safety
///
/// That of [`MemoryWork::run`].
unsafe fn transfer(to: (u64, bool), from: (u64, bool), bytes: usize) -> Result<(), OutOfBounds> {
    let ((to, to_device), (from, from_device)) = (to, from);
    let source: *const u8 = ptr::with_exposed_provenance(from as usize);
    let target: *mut u8 = ptr::with_exposed_provenance_mut(to as usize);
    // SAFETY: ends in host memory are valid by the caller's promise.
    unsafe {
        match (to_device, from_device) {
            (true, true) => MEMORY.copy(to, from, bytes as u64),
            (true, false) => MEMORY.write(to, slice::from_raw_parts(source, bytes)),
            (false, true) => MEMORY.read(from, slice::from_raw_parts_mut(target, bytes)),
            (false, false) => {
                ptr::copy(source, target, bytes);
                Ok(())
            }
        }
    }
}

/// The legacy stream of the current context.
const LEGACY: CUstream = ptr::null_mut();

/// Runs a copy or memset at once, in the legacy stream.
///
/// # Safety
///
/// That of [`MemoryWork::run`].
unsafe fn now(work: MemoryWork) -> Answer {
    let (context, moment) = {
        let mut state = state()?;
        (state.in_legacy_stream()?, state.begin_work(LEGACY)?)
    };
    // SAFETY: the caller's promise.
    let well = unsafe { work.run(context, moment, &running())? };
    if well && work.is_waited_for() { state()?.host_waits_for(LEGACY) } else { Ok(()) }
}

/// Runs a copy or memset in a stream, or adds it to the stream's capture.
///
/// # Safety
///
/// That of [`MemoryWork::run`], also for all replays of a capture.
unsafe fn enqueue(stream: CUstream, work: MemoryWork) -> Answer {
    let (context, moment) = {
        let mut state = state()?;
        if state.capture(stream, || Ok(graph::Work::Memory(work.captured()?)))? {
            return Ok(());
        }
        (state.stream_context(stream)?, state.begin_work(stream)?)
    };
    // SAFETY: the caller's promise.
    let well = unsafe { work.run(context, moment, &running())? };
    if well && work.is_always_waited_for() { state()?.host_waits_for(stream) } else { Ok(()) }
}

/// Returns a copy between contexts; fails unless each end is pinned or in the memory of its context's device.
fn between(
    state: &State,
    to: (CUdeviceptr, CUcontext),
    from: (CUdeviceptr, CUcontext),
    bytes: usize,
) -> Answer<MemoryWork> {
    for (address, context) in [to, from] {
        let device = state.device_of(context)?;
        require(MEMORY.device_of(address).is_none_or(|owner| owner as usize == device))?;
    }
    Ok(Transfer { to: Device(to.0), from: Device(from.0), bytes })
}

api! {
    fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        now(Transfer { to: Any(to), from: Any(from), bytes })
    }

    fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        enqueue(stream, Transfer { to: Any(to), from: Any(from), bytes })
    }

    fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) {
        now(Transfer { to: Device(to), from: End::host(from), bytes })
    }

    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) {
        enqueue(stream, Transfer { to: Device(to), from: End::host(from), bytes })
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) {
        now(Transfer { to: End::host(to), from: Device(from), bytes })
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        enqueue(stream, Transfer { to: End::host(to), from: Device(from), bytes })
    }

    fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        now(Transfer { to: Device(to), from: Device(from), bytes })
    }

    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        enqueue(stream, Transfer { to: Device(to), from: Device(from), bytes })
    }

    /// Waits for all earlier work of the current and the two named contexts; their later work waits for it.
    fn cuMemcpyPeer(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        bytes: usize,
    ) {
        let (work, context, moment) = {
            let mut state = state()?;
            let context = state.in_legacy_stream()?;
            let work = between(&state, (to, to_context), (from, from_context), bytes)?;
            let contexts = [context, to_context.addr(), from_context.addr()];
            (work, context, state.begin_between(LEGACY, contexts)?)
        };
        work.run(context, moment, &running()).map(drop)
    }

    fn cuMemcpyPeerAsync(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) {
        let work = between(&*state()?, (to, to_context), (from, from_context), bytes)?;
        enqueue(stream, work)
    }

    fn cuMemsetD8_v2(device: CUdeviceptr, value: c_uchar, count: usize) {
        now(Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }

    fn cuMemsetD8Async(device: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) {
        enqueue(stream, Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }

    fn cuMemsetD16_v2(device: CUdeviceptr, value: c_ushort, count: usize) {
        now(Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }

    fn cuMemsetD16Async(device: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) {
        enqueue(stream, Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }

    fn cuMemsetD32_v2(device: CUdeviceptr, value: c_uint, count: usize) {
        now(Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }

    fn cuMemsetD32Async(device: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) {
        enqueue(stream, Fill { to: device, pattern: Pattern::new(value.to_ne_bytes()), count })
    }
}
