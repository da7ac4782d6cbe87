//! Streams, events and host functions.
//!
//! Work ends before the call that enqueues it returns. So a stream is always empty, and a recorded event has
//! always happened, unless a stream captured it. `order.rs` keeps the order that a program can rely on.

use super::context::PRIORITIES;
use super::graph::{Lane, Mark, Work};
use super::state::{Owned, State, host_function, state};
use super::{Answer, api, put, require};
use crate::history::Clock;
use cust_raw::{CUcontext, CUevent, CUhostFn, CUresult, CUstream, CUstreamCallback};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::time::Instant;

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
const WAIT_EXTERNAL: c_uint = 1;

/// The flag of a stream that does not wait for the legacy stream, and for which the legacy stream does not
/// wait.
const NON_BLOCKING: c_uint = 1;

pub struct Stream {
    flags: c_uint,
    priority: c_int,
}

pub struct Event {
    flags: c_uint,
    pub recorded: Recorded,
}

/// The last record of an event.
#[derive(Clone)]
pub enum Recorded {
    Never,
    /// The time, and the work that comes before.
    At(Instant, Clock),
    /// Recorded in a stream that captures.
    Captured(Mark),
}

/// A host function and its argument, which the caller of the driver keeps alive.
#[derive(Clone, Copy)]
pub struct HostCall {
    function: unsafe extern "C" fn(*mut c_void),
    /// The address of the argument.
    data: usize,
}

impl HostCall {
    /// # Safety
    ///
    /// The function may be called with its argument.
    pub unsafe fn run(self) {
        // SAFETY: the caller's promise.
        host_function(|| unsafe { (self.function)(ptr::with_exposed_provenance_mut(self.data)) });
    }
}

impl State {
    /// Returns the context of a stream.
    ///
    /// The handles 0, 1 and 2 (NULL, `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`) are default streams of
    /// the current context.
    pub fn stream_context(&mut self, stream: CUstream) -> Answer<usize> {
        match stream.addr() {
            0..=2 => self.current(),
            handle => Ok(self.get::<Stream>(handle)?.context),
        }
    }

    /// Returns a stream's flags and priority.
    fn stream(&mut self, stream: CUstream) -> Answer<(c_uint, c_int)> {
        self.stream_context(stream)?;
        match stream.addr() {
            0..=2 => Ok((0, 0)),
            handle => self.get::<Stream>(handle).map(|owned| (owned.object.flags, owned.object.priority)),
        }
    }

    /// Whether a stream and the legacy stream wait for each other.
    pub fn blocking(&mut self, stream: CUstream) -> Answer<bool> {
        Ok(self.stream(stream)?.0 & NON_BLOCKING == 0)
    }

    /// Returns the time when an event was recorded, and its context; fails if the event has no time.
    fn recorded(&mut self, event: CUevent) -> Answer<(Instant, usize)> {
        self.host_waits_for_event(event)?;
        let Owned { context, object } = self.get::<Event>(event.addr())?;
        match object.recorded {
            Recorded::At(instant, _) if object.flags & DISABLE_TIMING == 0 => Ok((instant, *context)),
            _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// The host waits for an event; all later work comes after it.
    fn host_waits_for_event(&mut self, event: CUevent) -> Answer {
        self.not_captured(event.addr())?;
        if let Recorded::At(_, done) = self.get::<Event>(event.addr())?.object.recorded.clone() {
            self.host_waits(&done);
        }
        Ok(())
    }

    /// The host waits for a stream; all later work comes after it.
    fn host_waits_for_stream(&mut self, stream: CUstream) -> Answer {
        self.not_capturing(stream)?;
        self.host_waits_for(stream)
    }
}

/// Creates a stream in the current context.
///
/// # Safety
///
/// `stream` is null or valid for writes.
unsafe fn create(stream: *mut CUstream, flags: c_uint, priority: c_int) -> Answer {
    let mut state = state()?;
    let context = state.current()?;
    require(!stream.is_null() && flags <= 1)?;
    let (least, greatest) = PRIORITIES;
    let handle = state.add(context, Stream { flags, priority: priority.clamp(greatest, least) });
    // SAFETY: the caller's promise.
    unsafe { put(stream, ptr::without_provenance_mut(handle)) }
}

api! {
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) {
        create(stream, flags, 0)
    }

    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) {
        create(stream, flags, priority)
    }

    fn cuStreamDestroy_v2(stream: CUstream) {
        let mut state = state()?;
        let context = state.stream_context(stream)?;
        state.remove::<Stream>(stream.addr())?;
        state.order.end(context, Lane::Created(stream.addr()));
        state.abandon(stream.addr());
        Ok(())
    }

    fn cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) {
        put(flags, state()?.stream(stream)?.0)
    }

    fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int) {
        put(priority, state()?.stream(stream)?.1)
    }

    fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) {
        put(context, ptr::without_provenance_mut(state()?.stream_context(stream)?))
    }

    fn cuStreamQuery(stream: CUstream) {
        state()?.host_waits_for_stream(stream)
    }

    fn cuStreamSynchronize(stream: CUstream) {
        state()?.host_waits_for_stream(stream)
    }

    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) {
        let mut state = state()?;
        state.stream_context(stream)?;
        state.get::<Event>(event.addr())?;
        require(flags <= WAIT_EXTERNAL)?;
        if flags == WAIT_EXTERNAL {
            // In a capture, such a wait would be a node of the graph.
            state.not_modelled_in_captures(stream)?;
        }
        state.wait(stream, event.addr())
    }

    fn cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint) {
        state()?.not_capturing(stream)?;
        require(flags == 0)?;
        let callback = callback.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        host_function(|| callback(stream, CUresult::CUDA_SUCCESS, data));
        state()?.host_waits_for(stream)
    }

    fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) {
        state()?.stream_context(stream)?;
        let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let call = HostCall { function, data: data.expose_provenance() };
        if !state()?.capture(stream, || Ok(Work::Host(call)))? {
            call.run();
            state()?.host_waits_for(stream)?;
        }
        Ok(())
    }

    fn cuEventCreate(event: *mut CUevent, flags: c_uint) {
        let mut state = state()?;
        let context = state.current()?;
        // An interprocess event cannot have a time.
        require(!event.is_null() && flags <= 7 && flags & (INTERPROCESS | DISABLE_TIMING) != INTERPROCESS)?;
        let handle = state.add(context, Event { flags, recorded: Recorded::Never });
        put(event, ptr::without_provenance_mut(handle))
    }

    fn cuEventDestroy_v2(event: CUevent) {
        state()?.remove::<Event>(event.addr()).map(drop)
    }

    fn cuEventRecord(event: CUevent, stream: CUstream) {
        let mut state = state()?;
        let context = state.get::<Event>(event.addr())?.context;
        if state.stream_context(stream)? != context {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let recorded = match state.mark(stream)? {
            Some(mark) => Recorded::Captured(mark),
            None => Recorded::At(Instant::now(), state.done_in(stream)?),
        };
        state.get::<Event>(event.addr())?.object.recorded = recorded;
        Ok(())
    }

    fn cuEventQuery(event: CUevent) {
        state()?.host_waits_for_event(event)
    }

    fn cuEventSynchronize(event: CUevent) {
        state()?.host_waits_for_event(event)
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        let mut state = state()?;
        let ((start, context), (end, other)) = (state.recorded(start)?, state.recorded(end)?);
        if context != other {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let elapsed = match end.checked_duration_since(start) {
            Some(forward) => forward.as_secs_f32(),
            None => -start.duration_since(end).as_secs_f32(),
        };
        put(milliseconds, elapsed * 1e3)
    }
}
