//! Stream capture and graphs.
//!
//! A graph is one sequence in the order of capture. That order is valid, because work is captured after the
//! work that it depends on.
//!
//! The codes are those of CUDA's documentation; none was checked on a GPU. An operation that the
//! documentation calls invalid invalidates the captures involved. The documentation leaves these cases open,
//! and the emulator chose:
//!
//! - `cuStreamEndCapture` in a stream that joined a capture invalidates the capture. `cuStreamEndCapture` in
//!   a wrong thread and `cuStreamBeginCapture` in a stream that already captures do not.
//! - A synchronous copy, while a capture both forbids unsafe calls and blocks the legacy stream, returns the
//!   code for unsafe calls.
//! - A wait for an event of a capture that has ended returns `CUDA_ERROR_CAPTURED_EVENT`, or
//!   `CUDA_ERROR_STREAM_CAPTURE_ISOLATION` in a stream that captures.
//! - A wait in the legacy stream for an event captured in a non-blocking stream, and `cuGraphLaunch` and
//!   `cuGraphUpload` in a stream that captures, return `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
//! - Destroying the stream where a capture began drops the capture; destroying one that joined leaves its
//!   work in it.
//! - Loading and unloading modules is unsafe, as allocating and freeing memory is: a capture can forbid it.

use super::copy::MemoryWork;
use super::launch::Captured;
use super::state::{Object, State, state};
use super::stream::{Event, HostCall, Recorded};
use super::{Answer, api, put, put_if_wanted, require, running};
use crate::fault::{Fault, FaultKind};
use cust_raw::CUstreamCaptureMode::{self, *};
use cust_raw::CUstreamCaptureStatus::{self, *};
use cust_raw::{CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream, cuuint64_t};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_char, c_ulonglong};
use std::ptr;
use std::sync::Arc;
use std::thread::{self, ThreadId};

/// Flags of `cuGraphInstantiateWithFlags` that have no effect here: auto-free on launch, and node priorities.
const INSTANTIATE_FLAGS: c_ulonglong = 1 | 8;
/// The flag for graphs that kernels launch.
const INSTANTIATE_FOR_DEVICE: c_ulonglong = 4;

thread_local! {
    /// The thread's capture mode: which captures forbid its unsafe calls.
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// A piece of work that a stream captures.
#[derive(Clone)]
pub enum Work {
    Launch(Captured),
    Memory(MemoryWork),
    Host(HostCall),
}

#[derive(Clone)]
struct Node {
    handle: usize,
    /// The context of the stream that captured it.
    context: usize,
    work: Work,
}

pub struct Graph {
    nodes: Vec<Node>,
}

pub struct Executable {
    nodes: Arc<[Node]>,
}

/// A stream that can capture.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// A stream's handle.
    Created(usize),
    /// The per-thread default stream of a context.
    OfThread(usize, ThreadId),
}

/// For each stream of a capture, how many pieces of its work come before.
type Before = HashMap<Lane, usize>;

/// The state of a capture when an event was recorded in it.
#[derive(Clone)]
pub struct Mark {
    /// The capture's number.
    capture: u64,
    before: Before,
}

pub struct Capture {
    id: u64,
    pub context: usize,
    /// The graph's handle.
    graph: usize,
    origin: Lane,
    thread: ThreadId,
    mode: CUstreamCaptureMode,
    /// Whether one of its streams and the legacy stream wait for each other.
    blocking: bool,
    valid: bool,
    /// The streams of the capture, each with the work that its next piece of work waits for.
    streams: HashMap<Lane, Before>,
}

impl Capture {
    /// Makes a stream's next work wait for the work in `before`.
    fn join(&mut self, lane: Lane, before: &Before) {
        let own = self.streams.entry(lane).or_default();
        for (&lane, &count) in before {
            let known = own.entry(lane).or_default();
            *known = count.max(*known);
        }
    }

    /// Whether all streams have joined the origin: all work comes before the origin's next work.
    fn joined(&self) -> bool {
        let end = self.streams.get(&self.origin);
        self.streams.iter().all(|(lane, own)| end.and_then(|end| end.get(lane)) >= own.get(lane))
    }

    /// Whether it forbids unsafe calls of this thread: calls that it cannot capture and that could break it.
    fn forbids_unsafe(&self) -> bool {
        let own = self.thread == thread::current().id();
        match MODE.get() {
            CU_STREAM_CAPTURE_MODE_RELAXED => false,
            _ if own => self.mode != CU_STREAM_CAPTURE_MODE_RELAXED,
            mode => mode == CU_STREAM_CAPTURE_MODE_GLOBAL && self.mode == CU_STREAM_CAPTURE_MODE_GLOBAL,
        }
    }
}

/// Invalidates these captures and fails with this code; succeeds if there are none.
fn refuse<'a>(captures: impl IntoIterator<Item = &'a mut Capture>, code: CUresult) -> Answer {
    let mut answer = Ok(());
    for capture in captures {
        capture.valid = false;
        answer = Err(code);
    }
    answer
}

impl State {
    /// Returns the stream as one that can capture; `None` for the legacy stream.
    pub fn lane(&mut self, stream: CUstream) -> Answer<Option<Lane>> {
        let context = self.stream_context(stream)?;
        Ok(match stream.addr() {
            0 | 1 => None,
            2 => Some(Lane::OfThread(context, thread::current().id())),
            handle => Some(Lane::Created(handle)),
        })
    }

    /// Returns the captures that work in the legacy stream of a context would wait for.
    fn blocking_captures(&mut self, context: usize) -> impl Iterator<Item = &mut Capture> {
        self.captures.iter_mut().filter(move |capture| capture.blocking && capture.context == context)
    }

    /// Returns the capture that a stream is part of; fails if the stream cannot be used.
    fn capture_of(&mut self, stream: CUstream) -> Answer<Option<(Lane, &mut Capture)>> {
        let context = self.stream_context(stream)?;
        let Some(lane) = self.lane(stream)? else {
            refuse(self.blocking_captures(context), CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)?;
            return Ok(None);
        };
        match self.captures.iter_mut().find(|capture| capture.streams.contains_key(&lane)) {
            Some(capture) if !capture.valid => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            capture => Ok(capture.map(|capture| (lane, capture))),
        }
    }

    /// Adds work to a stream's capture; false if the stream does not capture.
    pub fn capture(&mut self, stream: CUstream, work: impl FnOnce() -> Answer<Work>) -> Answer<bool> {
        let context = self.stream_context(stream)?;
        let Some((lane, capture)) = self.capture_of(stream)? else { return Ok(false) };
        let work = work()?;
        *capture.streams.entry(lane).or_default().entry(lane).or_default() += 1;
        let graph = capture.graph;
        let handle = self.new_handle();
        self.get::<Graph>(graph)?.object.nodes.push(Node { handle, context, work });
        Ok(true)
    }

    /// Returns a stream's context, for calls that cannot be captured; fails if the stream captures.
    pub fn not_capturing(&mut self, stream: CUstream) -> Answer<usize> {
        let capture = self.capture_of(stream)?.map(|(_, capture)| capture);
        refuse(capture, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)?;
        self.stream_context(stream)
    }

    /// Returns a stream's context, for calls that the NVIDIA driver can capture and the emulator cannot.
    pub fn not_modelled_in_captures(&mut self, stream: CUstream) -> Answer<usize> {
        if self.capture_of(stream)?.is_some() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        self.stream_context(stream)
    }

    /// Fails if a capture forbids an unsafe call of this thread.
    pub fn outside_captures(&mut self) -> Answer {
        let captures = self.captures.iter_mut().filter(|capture| capture.forbids_unsafe());
        refuse(captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Returns the current context, for an unsafe call.
    pub fn current_for_unsafe(&mut self) -> Answer<usize> {
        let context = self.current()?;
        self.outside_captures()?;
        Ok(context)
    }

    /// Returns the current context, for synchronous work in its legacy stream.
    pub fn in_legacy_stream(&mut self) -> Answer<usize> {
        let context = self.current_for_unsafe()?;
        refuse(self.blocking_captures(context), CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)?;
        Ok(context)
    }

    /// Fails if a stream of the context captures, for calls that wait for all of them.
    pub fn no_capture_in(&mut self, context: usize) -> Answer {
        let captures = self.captures.iter_mut().filter(|capture| capture.context == context);
        refuse(captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Fails if an event was last recorded in a stream that captures, so that it has no time.
    pub fn not_captured(&mut self, event: usize) -> Answer {
        let Recorded::Captured(mark) = &self.get::<Event>(event)?.object.recorded else { return Ok(()) };
        let id = mark.capture;
        let captures = self.captures.iter_mut().filter(|capture| capture.id == id);
        refuse(captures, CUresult::CUDA_ERROR_CAPTURED_EVENT)?;
        Err(CUresult::CUDA_ERROR_CAPTURED_EVENT)
    }

    /// Returns the mark of an event that is recorded in a stream now; `None` if the stream does not capture.
    pub fn mark(&mut self, stream: CUstream) -> Answer<Option<Mark>> {
        let capture = self.capture_of(stream)?;
        Ok(capture.map(|(lane, capture)| {
            let before = capture.streams.get(&lane).cloned().unwrap_or_default();
            Mark { capture: capture.id, before }
        }))
    }

    /// Makes a stream's next work, executed or captured, wait for an event.
    pub fn wait(&mut self, stream: CUstream, event: usize) -> Answer {
        let recorded = self.get::<Event>(event)?.object.recorded.clone();
        let own = self.capture_of(stream)?.map(|(_, capture)| capture);
        let mark = match recorded {
            Recorded::Never => return Ok(()),
            Recorded::At(_, done) => {
                refuse(own, CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)?;
                return self.stream_waits(stream, &done);
            }
            Recorded::Captured(mark) => mark,
        };
        let own = own.map(|capture| capture.id);
        let (lane, blocking) = (self.lane(stream)?, self.blocking(stream)?);
        let Some(capture) = self.captures.iter_mut().find(|capture| capture.id == mark.capture) else {
            let own = self.captures.iter_mut().filter(|capture| Some(capture.id) == own);
            refuse(own, CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)?;
            return Err(CUresult::CUDA_ERROR_CAPTURED_EVENT);
        };
        if own.is_some_and(|own| own != mark.capture) {
            let both = self.captures.iter_mut().filter(|c| c.id == mark.capture || Some(c.id) == own);
            return refuse(both, CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
        }
        if !capture.valid {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let Some(lane) = lane else {
            return refuse([capture], CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        };
        capture.blocking |= blocking;
        capture.join(lane, &mark.before);
        Ok(())
    }

    fn begin(&mut self, stream: CUstream, mode: CUstreamCaptureMode) -> Answer {
        let origin = self.lane(stream)?.ok_or(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)?;
        if self.captures.iter().any(|capture| capture.streams.contains_key(&origin)) {
            return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        }
        let (context, blocking) = (self.stream_context(stream)?, self.blocking(stream)?);
        let graph = self.add(context, Graph { nodes: Vec::new() });
        let id = self.new_handle() as u64;
        let thread = thread::current().id();
        let streams = HashMap::from([(origin, Before::new())]);
        self.captures.push(Capture {
            id,
            context,
            graph,
            origin,
            thread,
            mode,
            blocking,
            valid: true,
            streams,
        });
        Ok(())
    }

    /// Ends the capture that began in this stream and returns the graph's handle.
    fn end(&mut self, stream: CUstream) -> Answer<usize> {
        let lane = self.lane(stream)?;
        let part = |capture: &Capture| lane.is_some_and(|lane| capture.streams.contains_key(&lane));
        let at = self.captures.iter().position(part).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = &mut self.captures[at];
        if lane != Some(capture.origin) {
            return refuse([capture], CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED).map(|()| 0);
        }
        if capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != thread::current().id() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let capture = self.captures.swap_remove(at);
        let refused = match (capture.valid, capture.joined()) {
            (true, true) => return Ok(capture.graph),
            (true, false) => CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
            (false, _) => CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        };
        Graph::table(self).remove(&capture.graph);
        Err(refused)
    }

    /// Drops the capture that began in a destroyed stream.
    pub fn abandon(&mut self, stream: usize) {
        let origin = Lane::Created(stream);
        if let Some(at) = self.captures.iter().position(|capture| capture.origin == origin) {
            let capture = self.captures.swap_remove(at);
            Graph::table(self).remove(&capture.graph);
        }
    }

    /// Returns the capture that a stream is part of, even if it is invalid.
    fn look(&mut self, stream: CUstream) -> Answer<Option<&Capture>> {
        let context = self.stream_context(stream)?;
        match self.lane(stream)? {
            Some(lane) => Ok(self.captures.iter().find(|capture| capture.streams.contains_key(&lane))),
            None if self.blocking_captures(context).next().is_some() => {
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
            }
            None => Ok(None),
        }
    }

    fn instantiate(&mut self, graph: usize) -> Answer<CUgraphExec> {
        let owned = self.get::<Graph>(graph)?;
        let (context, nodes) = (owned.context, owned.object.nodes.as_slice().into());
        Ok(ptr::without_provenance_mut(self.add(context, Executable { nodes })))
    }
}

fn status(capture: Option<&Capture>) -> CUstreamCaptureStatus {
    match capture {
        None => CU_STREAM_CAPTURE_STATUS_NONE,
        Some(Capture { valid: true, .. }) => CU_STREAM_CAPTURE_STATUS_ACTIVE,
        Some(_) => CU_STREAM_CAPTURE_STATUS_INVALIDATED,
    }
}

/// Runs a graph's work in a stream; stops at the first fault.
///
/// # Safety
///
/// The arguments of the captured calls are still valid: host memory of copies, host functions and their
/// arguments.
unsafe fn replay(nodes: &[Node], stream: CUstream) -> Answer {
    // Held throughout, so that no memory is freed in between. Released for host functions, which may wait for
    // a thread that frees memory.
    let mut device = running();
    for Node { context, work, .. } in nodes {
        let moment = state()?.begin_work(stream)?;
        let well = match work {
            Work::Launch(launch) => launch.run(moment, &device)?,
            Work::Memory(work) => {
                // SAFETY: the caller's promise.
                let done = unsafe { work.run(*context, moment, &device) };
                if done.is_err() {
                    state()?.record(
                        *context,
                        Fault {
                            kernel: String::new(),
                            place: None,
                            block: [0; 3],
                            threads: Vec::new(),
                            seed: None,
                            kind: FaultKind::Replay(work.to_string()),
                        },
                    );
                }
                done.unwrap_or(false)
            }
            Work::Host(call) => {
                drop(device);
                // SAFETY: the caller's promise.
                unsafe { call.run() };
                device = running();
                state()?.host_waits_for(stream)?;
                true
            }
        };
        if !well {
            break;
        }
    }
    Ok(())
}

api! {
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) {
        state()?.begin(stream, mode)
    }

    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) {
        let mut state = state()?;
        put(graph, ptr::null_mut())?;
        put(graph, ptr::without_provenance_mut(state.end(stream)?))
    }

    fn cuStreamIsCapturing(stream: CUstream, capturing: *mut CUstreamCaptureStatus) {
        put(capturing, status(state()?.look(stream)?))
    }

    fn cuStreamGetCaptureInfo(stream: CUstream, capturing: *mut CUstreamCaptureStatus, id: *mut cuuint64_t) {
        let mut state = state()?;
        let capture = state.look(stream)?;
        put(capturing, status(capture))?;
        put_if_wanted(id, capture.map_or(0, |capture| capture.id));
        Ok(())
    }

    /// Dependencies are not supported: a capture keeps only the order of all its work.
    fn cuStreamGetCaptureInfo_v2(
        stream: CUstream,
        capturing: *mut CUstreamCaptureStatus,
        id: *mut cuuint64_t,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) {
        let mut state = state()?;
        let capture = state.look(stream)?;
        if capture.is_some() && !(dependencies.is_null() && count.is_null()) {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        put(capturing, status(capture))?;
        put_if_wanted(id, capture.map_or(0, |capture| capture.id));
        put_if_wanted(graph, ptr::without_provenance_mut(capture.map_or(0, |capture| capture.graph)));
        put_if_wanted(dependencies, ptr::null());
        put_if_wanted(count, 0);
        Ok(())
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) {
        let _state = state()?;
        require(!mode.is_null())?;
        let modes = [
            CU_STREAM_CAPTURE_MODE_GLOBAL,
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CU_STREAM_CAPTURE_MODE_RELAXED,
        ];
        let number = mode.cast::<i32>().read_unaligned();
        let new = modes.into_iter().find(|&known| known as i32 == number);
        put(mode, MODE.replace(new.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?))
    }

    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        let mut state = state()?;
        let known = &state.get::<Graph>(graph.addr())?.object.nodes;
        require(!count.is_null())?;
        if nodes.is_null() {
            return put(count, known.len());
        }
        let room = count.read_unaligned();
        for index in 0..room {
            let handle = known.get(index).map_or(0, |node| node.handle);
            put(nodes.add(index), ptr::without_provenance_mut(handle))?;
        }
        put(count, room.min(known.len()))
    }

    fn cuGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) {
        let mut state = state()?;
        state.get::<Graph>(graph.addr())?;
        require(!executable.is_null() && flags & !(INSTANTIATE_FLAGS | INSTANTIATE_FOR_DEVICE) == 0)?;
        if flags & INSTANTIATE_FOR_DEVICE != 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        put(executable, state.instantiate(graph.addr())?)
    }

    fn cuGraphInstantiate_v2(
        executable: *mut CUgraphExec,
        graph: CUgraph,
        error_node: *mut CUgraphNode,
        log: *mut c_char,
        log_bytes: usize,
    ) {
        let mut state = state()?;
        state.get::<Graph>(graph.addr())?;
        require(!executable.is_null())?;
        put(executable, state.instantiate(graph.addr())?)?;
        put_if_wanted(error_node, ptr::null_mut());
        if log_bytes > 0 {
            put_if_wanted(log, 0);
        }
        Ok(())
    }

    fn cuGraphUpload(executable: CUgraphExec, stream: CUstream) {
        let mut state = state()?;
        state.get::<Executable>(executable.addr())?;
        state.not_capturing(stream).map(drop)
    }

    fn cuGraphLaunch(executable: CUgraphExec, stream: CUstream) {
        let nodes = {
            let mut state = state()?;
            let nodes = state.get::<Executable>(executable.addr())?.object.nodes.clone();
            state.not_capturing(stream)?;
            nodes
        };
        replay(&nodes, stream)
    }

    fn cuGraphExecDestroy(executable: CUgraphExec) {
        state()?.remove::<Executable>(executable.addr()).map(drop)
    }

    fn cuGraphDestroy(graph: CUgraph) {
        let mut state = state()?;
        state.get::<Graph>(graph.addr())?;
        // The documentation forbids it during the capture; INVALID_VALUE is its only code for this function.
        require(state.captures.iter().all(|capture| capture.graph != graph.addr()))?;
        state.remove::<Graph>(graph.addr()).map(drop)
    }
}
