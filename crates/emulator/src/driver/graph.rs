//! Stream capture and graphs. A graph is one sequence, in the order in which its work was captured: where work depends on
//! other work, it was captured after it.
//!
//! The codes are those of CUDA's documentation; none of them was seen on a GPU. Where the documentation says that an
//! operation is invalid, the captures that it concerns are invalidated. It does not say what these give, and the
//! emulator chose:
//!
//! - `cuStreamEndCapture` of a stream that joined invalidates the capture; of another thread it does not, nor does
//!   `cuStreamBeginCapture` of a stream that captures already.
//! - A synchronous copy beside a capture that forbids unsafe calls and blocks the legacy stream has the code of the former.
//! - A wait for an event of a capture that has ended: `CUDA_ERROR_CAPTURED_EVENT`, and in a stream that captures
//!   `CUDA_ERROR_STREAM_CAPTURE_ISOLATION`.
//! - A wait in the legacy stream for an event that a stream which does not block it captured, `cuGraphLaunch` and
//!   `cuGraphUpload` in a stream that captures: `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
//! - A stream destroyed where its capture began takes the capture with it; one that joined leaves its work there.
//! - Modules are loaded and unloaded as memory is allocated and freed: not while captures forbid unsafe calls.

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

/// Flags of `cuGraphInstantiateWithFlags` that change nothing here: memory that a graph allocates itself is to be freed
/// at each launch, and nodes have priorities.
const INSTANTIATE_FLAGS: c_ulonglong = 1 | 8;
/// Graphs that kernels launch.
const INSTANTIATE_FOR_DEVICE: c_ulonglong = 4;

thread_local! {
    /// Which captures keep this thread from calls that they do not see.
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// Work that a stream captures.
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
    Created(usize),
    /// The default stream of a thread in a context.
    OfThread(usize, ThreadId),
}

/// Of each stream of a capture, how many pieces of its work come before.
type Before = HashMap<Lane, usize>;

/// What an event stands for that was recorded in a capturing stream.
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
    /// Whether a stream of it and the legacy stream wait for each other.
    blocking: bool,
    valid: bool,
    /// The streams of the capture, each with what its next piece of work waits for.
    streams: HashMap<Lane, Before>,
}

impl Capture {
    /// Makes what a stream does next wait for what is before.
    fn join(&mut self, lane: Lane, before: &Before) {
        let own = self.streams.entry(lane).or_default();
        for (&lane, &count) in before {
            let known = own.entry(lane).or_default();
            *known = count.max(*known);
        }
    }

    /// That all its work comes before what the stream where it began would do next.
    fn joined(&self) -> bool {
        let end = self.streams.get(&self.origin);
        self.streams.iter().all(|(lane, own)| end.and_then(|end| end.get(lane)) >= own.get(lane))
    }

    /// Whether it forbids this thread calls that it does not see.
    fn forbids_unsafe(&self) -> bool {
        let own = self.thread == thread::current().id();
        match MODE.get() {
            CU_STREAM_CAPTURE_MODE_RELAXED => false,
            _ if own => self.mode != CU_STREAM_CAPTURE_MODE_RELAXED,
            mode => mode == CU_STREAM_CAPTURE_MODE_GLOBAL && self.mode == CU_STREAM_CAPTURE_MODE_GLOBAL,
        }
    }
}

/// Refuses a call with this code, and invalidates the captures that are in its way, if there are any.
fn refuse<'a>(captures: impl IntoIterator<Item = &'a mut Capture>, code: CUresult) -> Answer {
    let mut answer = Ok(());
    for capture in captures {
        capture.valid = false;
        answer = Err(code);
    }
    answer
}

impl State {
    /// The stream as one that can capture, which the legacy stream cannot.
    pub fn lane(&mut self, stream: CUstream) -> Answer<Option<Lane>> {
        let context = self.stream_context(stream)?;
        Ok(match stream.addr() {
            0 | 1 => None,
            2 => Some(Lane::OfThread(context, thread::current().id())),
            handle => Some(Lane::Created(handle)),
        })
    }

    /// The captures that the legacy stream of a context would wait for.
    fn blocking_captures(&mut self, context: usize) -> impl Iterator<Item = &mut Capture> {
        self.captures.iter_mut().filter(move |capture| capture.blocking && capture.context == context)
    }

    /// The capture that a stream is part of, to use the stream.
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

    /// Lets a stream capture work, if it does capture; otherwise false.
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

    /// A stream's context, for calls that cannot be captured.
    pub fn not_capturing(&mut self, stream: CUstream) -> Answer<usize> {
        let capture = self.capture_of(stream)?.map(|(_, capture)| capture);
        refuse(capture, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)?;
        self.stream_context(stream)
    }

    /// A stream's context, for calls that a GPU's driver could capture.
    pub fn not_modelled_in_captures(&mut self, stream: CUstream) -> Answer<usize> {
        if self.capture_of(stream)?.is_some() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        self.stream_context(stream)
    }

    /// That no capture forbids a call that it would not see.
    pub fn outside_captures(&mut self) -> Answer {
        let captures = self.captures.iter_mut().filter(|capture| capture.forbids_unsafe());
        refuse(captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// The current context, for a call that captures would not see.
    pub fn current_for_unsafe(&mut self) -> Answer<usize> {
        let context = self.current()?;
        self.outside_captures()?;
        Ok(context)
    }

    /// The current context, where work may be done at once in its legacy stream.
    pub fn in_legacy_stream(&mut self) -> Answer<usize> {
        let context = self.current_for_unsafe()?;
        refuse(self.blocking_captures(context), CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)?;
        Ok(context)
    }

    /// That no stream of the context captures, to wait for all of them.
    pub fn no_capture_in(&mut self, context: usize) -> Answer {
        let captures = self.captures.iter_mut().filter(|capture| capture.context == context);
        refuse(captures, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// That an event's time is known: it was not recorded last in a stream that captures.
    pub fn not_captured(&mut self, event: usize) -> Answer {
        let Recorded::Captured(mark) = &self.get::<Event>(event)?.object.recorded else { return Ok(()) };
        let id = mark.capture;
        let captures = self.captures.iter_mut().filter(|capture| capture.id == id);
        refuse(captures, CUresult::CUDA_ERROR_CAPTURED_EVENT)?;
        Err(CUresult::CUDA_ERROR_CAPTURED_EVENT)
    }

    /// What an event stands for that is recorded in a stream, if that captures.
    pub fn mark(&mut self, stream: CUstream) -> Answer<Option<Mark>> {
        let capture = self.capture_of(stream)?;
        Ok(capture.map(|(lane, capture)| {
            let before = capture.streams.get(&lane).cloned().unwrap_or_default();
            Mark { capture: capture.id, before }
        }))
    }

    /// Makes what a stream does or captures next wait for an event.
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

    /// Ends the capture that began in this stream; the graph's handle.
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

    /// Drops the capture that began in a stream which is gone.
    pub fn abandon(&mut self, stream: usize) {
        let origin = Lane::Created(stream);
        if let Some(at) = self.captures.iter().position(|capture| capture.origin == origin) {
            let capture = self.captures.swap_remove(at);
            Graph::table(self).remove(&capture.graph);
        }
    }

    /// The capture that a stream is part of, to look at.
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

/// Runs a graph's work in a stream, until a check finds a fault.
///
/// # Safety
///
/// What the captured calls were given may still be used: host memory that was copied, host functions and their arguments.
unsafe fn replay(nodes: &[Node], stream: CUstream) -> Answer {
    // Held throughout, so that memory is not freed in the middle; but a host function may wait for who frees memory.
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

    /// Of a capture's order only the whole is kept, so there is no answer for who asks what comes next after what.
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
        let modes =
            [CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED];
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
        // The documentation forbids it while a capture goes on; the code is the only one that it has for this function.
        require(state.captures.iter().all(|capture| capture.graph != graph.addr()))?;
        state.remove::<Graph>(graph.addr()).map(drop)
    }
}
