//! Stream capture and graphs. The error codes are those of CUDA's documentation; none was checked on a GPU.
//!
//! The tests share the primary context, and a capture affects all threads of a program, so the tests run one
//! at a time.

use cust::sys::CUstreamCaptureMode::*;
use cust::sys::CUstreamCaptureStatus::*;
use cust::sys::cudaError_enum::*;
use cust::sys::*;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut, without_provenance_mut as handle};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `step` multiplies a number by three and adds its second argument, so the result shows the order of two
/// steps.
const PTX: &CStr = c"
.version 6.0
.target sm_70
.address_size 64
.visible .entry step(.param .u64 at, .param .u32 add) {
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [add];
    ld.global.u32 %r2, [%rd1];
    mad.lo.u32 %r3, %r2, 3, %r1;
    st.global.u32 [%rd1], %r3;
    ret;
}
.visible .entry increment(.param .u64 at) {
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd1], %r2;
    ret;
}
";
/// Warp instructions of `increment`.
const INSTRUCTIONS: u64 = 5;

const BLOCKING: u32 = 0;
const NON_BLOCKING: u32 = 1;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn ok(code: CUresult) {
    assert_eq!(code, CUDA_SUCCESS);
}

/// Two streams, two events, two numbers on the device and the kernels.
struct Bench {
    stream: CUstream,
    other: CUstream,
    event: CUevent,
    back: CUevent,
    a: CUdeviceptr,
    b: CUdeviceptr,
    module: CUmodule,
    step: CUfunction,
    increment: CUfunction,
    _context: cust::context::Context,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    fn new(flags: u32) -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        emulator::install().unwrap();
        let context = cust::quick_init().unwrap();
        emulator::take_faults();
        emulator::take_counters();
        let (mut stream, mut other, mut event, mut back) = (null_mut(), null_mut(), null_mut(), null_mut());
        let (mut a, mut b, mut module) = (0, 0, null_mut());
        let (mut step, mut increment) = (null_mut(), null_mut());
        // SAFETY: pointers are to variables of the right type; the texts end in a zero.
        unsafe {
            ok(cuStreamCreate(&mut stream, flags));
            ok(cuStreamCreate(&mut other, flags));
            ok(cuEventCreate(&mut event, 0));
            ok(cuEventCreate(&mut back, 0));
            ok(cuMemAlloc_v2(&mut a, 4));
            ok(cuMemAlloc_v2(&mut b, 4));
            ok(cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
            ok(cuModuleGetFunction(&mut step, module, c"step".as_ptr()));
            ok(cuModuleGetFunction(&mut increment, module, c"increment".as_ptr()));
        }
        let bench = Self {
            stream,
            other,
            event,
            back,
            a,
            b,
            module,
            step,
            increment,
            _context: context,
            _alone: alone,
        };
        bench.set(a, 0);
        bench.set(b, 0);
        bench
    }

    fn begin(&self, mode: CUstreamCaptureMode) {
        // SAFETY: handles are looked up.
        ok(unsafe { cuStreamBeginCapture_v2(self.stream, mode) });
    }

    fn end(&self) -> Result<CUgraph, CUresult> {
        let mut graph = handle(0x5000);
        // SAFETY: the pointer is to a variable of the right type.
        match unsafe { cuStreamEndCapture(self.stream, &mut graph) } {
            CUDA_SUCCESS => Ok(graph),
            code => {
                assert_eq!(graph, null_mut());
                Err(code)
            }
        }
    }

    /// Ends the capture, and returns an executable that outlives its graph.
    fn executable(&self) -> CUgraphExec {
        let (graph, mut executable) = (self.end().unwrap(), null_mut());
        // SAFETY: the pointer is to a variable of the right type.
        unsafe {
            ok(cuGraphInstantiateWithFlags(&mut executable, graph, 0));
            ok(cuGraphDestroy(graph));
        }
        executable
    }

    fn replay(&self, executable: CUgraphExec) {
        // SAFETY: what the tests capture lives as long as they replay it.
        ok(unsafe { cuGraphLaunch(executable, self.stream) });
    }

    fn step(&self, stream: CUstream, mut at: CUdeviceptr, mut add: u32) -> CUresult {
        let mut arguments = [(&raw mut at).cast(), (&raw mut add).cast()];
        let arguments: *mut *mut c_void = arguments.as_mut_ptr();
        // SAFETY: the kernel takes these arguments. A capture must copy them: they are gone when this
        // returns.
        unsafe { cuLaunchKernel(self.step, 1, 1, 1, 1, 1, 1, 0, stream, arguments, null_mut()) }
    }

    fn increment(&self, stream: CUstream, mut at: CUdeviceptr) -> CUresult {
        let mut arguments: [*mut c_void; 1] = [(&raw mut at).cast()];
        let arguments = arguments.as_mut_ptr();
        // SAFETY: the kernel takes this argument.
        unsafe { cuLaunchKernel(self.increment, 1, 1, 1, 1, 1, 1, 0, stream, arguments, null_mut()) }
    }

    /// Waits for all work, and returns the number at an address.
    fn get(&self, from: CUdeviceptr) -> u32 {
        let mut value = 0u32;
        // SAFETY: the variable has four bytes.
        unsafe {
            ok(cuCtxSynchronize());
            ok(cuMemcpyDtoH_v2((&raw mut value).cast(), from, 4));
        }
        value
    }

    /// Sets a number after all work so far, and before all later work.
    fn set(&self, to: CUdeviceptr, value: u32) {
        // SAFETY: no host memory is used.
        unsafe {
            ok(cuCtxSynchronize());
            ok(cuMemsetD32_v2(to, value, 1));
            ok(cuCtxSynchronize());
        }
    }

    fn status(&self, stream: CUstream) -> CUstreamCaptureStatus {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the pointer is to a variable of the right type.
        ok(unsafe { cuStreamIsCapturing(stream, &mut status) });
        status
    }

    fn record(&self, event: CUevent, stream: CUstream) -> CUresult {
        // SAFETY: handles are looked up.
        unsafe { cuEventRecord(event, stream) }
    }

    fn wait(&self, stream: CUstream, event: CUevent) -> CUresult {
        // SAFETY: handles are looked up.
        unsafe { cuStreamWaitEvent(stream, event, 0) }
    }

    /// Checks that a call during a capture fails with this code and invalidates the capture.
    fn refuses(&self, mode: CUstreamCaptureMode, code: CUresult, call: impl FnOnce() -> CUresult) {
        self.begin(mode);
        ok(self.increment(self.stream, self.a));
        assert_eq!(call(), code);
        assert_eq!(self.status(self.stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        assert_eq!(self.increment(self.stream, self.a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_eq!(self.end(), Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
        assert_eq!(self.status(self.stream), CU_STREAM_CAPTURE_STATUS_NONE);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        emulator::take_faults();
        // SAFETY: nothing is used afterwards. Handles that a test has destroyed are refused here.
        unsafe {
            cuStreamDestroy_v2(self.stream);
            cuStreamDestroy_v2(self.other);
            cuEventDestroy_v2(self.event);
            cuEventDestroy_v2(self.back);
            cuMemFree_v2(self.a);
            cuMemFree_v2(self.b);
            cuModuleUnload(self.module);
        }
    }
}

#[test]
fn a_graph_runs_a_hundred_times_with_what_memory_holds() {
    let bench = Bench::new(NON_BLOCKING);
    bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    ok(bench.increment(bench.stream, bench.a));
    ok(bench.step(bench.stream, bench.a, 7));
    let executable = bench.executable();
    assert_eq!(bench.get(bench.a), 0);
    assert_eq!(emulator::take_counters(), emulator::Counters::default());
    for round in 0..100 {
        bench.set(bench.a, round * 10);
        bench.replay(executable);
        assert_eq!(bench.get(bench.a), (round * 10 + 1) * 3 + 7);
    }
    // Back to back, each replay continues from the last one's result.
    bench.set(bench.a, 0);
    let mut expected = 0u32;
    for _ in 0..10 {
        bench.replay(executable);
        expected = (expected + 1) * 3 + 7;
    }
    assert_eq!(bench.get(bench.a), expected);
    // SAFETY: handles are looked up.
    ok(unsafe { cuGraphExecDestroy(executable) });
}

#[test]
fn replays_are_counted() {
    let bench = Bench::new(NON_BLOCKING);
    bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    ok(bench.step(bench.stream, bench.b, 0));
    ok(bench.increment(bench.stream, bench.a));
    let executable = bench.executable();
    bench.replay(executable);
    let (kernel, counters) = emulator::last_counters().unwrap();
    assert_eq!((kernel.as_str(), counters.warp_instructions), ("increment", INSTRUCTIONS));
    let once = emulator::take_counters();
    assert!(once.warp_instructions > counters.warp_instructions);
    for _ in 0..5 {
        bench.replay(executable);
    }
    assert_eq!(emulator::take_counters().warp_instructions, 5 * once.warp_instructions);
}

#[test]
fn copies_memsets_and_host_functions_are_captured() {
    let bench = Bench::new(NON_BLOCKING);
    struct Notes {
        calls: u32,
        code: CUresult,
    }
    extern "C" fn note(to: *mut c_void) {
        let notes = to.cast::<Notes>();
        // SAFETY: `to` is `notes` below.
        unsafe {
            (*notes).calls += 1;
            // A host function must not call the driver. The call still waits until the device is idle.
            (*notes).code = cuMemFree_v2(0);
        }
    }
    let mut notes = Notes { calls: 0, code: CUDA_SUCCESS };
    let notes = &raw mut notes;
    let (mut source, mut target, mut copied) = (5u32, 0u32, 0u32);
    let (source, target, copied) = (&raw mut source, &raw mut target, &raw mut copied);
    let (mut pinned, mut device, mut nodes, mut graph_nodes) = (null_mut(), 0, 0, [handle(1); 16]);
    // SAFETY: host memory is that of the variables above and of `pinned`, which live until the end.
    unsafe {
        ok(cuMemAllocHost_v2(&mut pinned, 4));
        ok(cuMemHostGetDevicePointer_v2(&mut device, pinned, 0));
        let stream = bench.stream;
        bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok(cuMemcpyHtoDAsync_v2(bench.a, source.cast(), 4, stream));
        ok(bench.increment(stream, bench.a));
        ok(cuMemcpyDtoDAsync_v2(bench.b, bench.a, 4, stream));
        ok(cuMemsetD32Async(bench.a, 0x0102_0304, 1, stream));
        ok(cuMemsetD16Async(bench.a + 2, 0x0506, 1, stream));
        ok(cuMemsetD8Async(bench.a, 7, 1, stream));
        ok(cuLaunchHostFunc(stream, Some(note), notes.cast()));
        ok(cuMemcpyDtoHAsync_v2(target.cast(), bench.a, 4, stream));
        ok(cuMemcpyAsync(copied.addr() as u64, bench.b, 4, stream));
        ok(cuMemcpyDtoDAsync_v2(device, bench.b, 4, stream));
        // Work that could not run now is refused, and is not captured.
        assert_eq!(cuMemcpyDtoDAsync_v2(bench.b, bench.a, 5, stream), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyDtoDAsync_v2(bench.b, 64, 4, stream), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemsetD16Async(bench.a + 1, 1, 1, stream), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemsetD32Async(bench.a, 1, 2, stream), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuLaunchHostFunc(stream, None, null_mut()), CUDA_ERROR_INVALID_VALUE);
        let graph = bench.end().unwrap();

        ok(cuGraphGetNodes(graph, null_mut(), &mut nodes));
        assert_eq!(nodes, 10);
        nodes = graph_nodes.len();
        ok(cuGraphGetNodes(graph, graph_nodes.as_mut_ptr(), &mut nodes));
        assert_eq!(nodes, 10);
        assert!(graph_nodes[..10].iter().all(|node| node.addr() > 2));
        assert_eq!(graph_nodes[10..], [null_mut(); 6]);
        nodes = 3;
        ok(cuGraphGetNodes(graph, graph_nodes.as_mut_ptr(), &mut nodes));
        assert_eq!(nodes, 3);

        let mut executable = null_mut();
        let (mut wrong, mut log) = (handle(1), [1; 4]);
        ok(cuGraphInstantiate_v2(&mut executable, graph, &mut wrong, log.as_mut_ptr(), 4));
        assert_eq!((wrong, log[0]), (null_mut(), 0));
        ok(cuGraphUpload(executable, stream));
        assert_eq!((bench.get(bench.a), *target, (*notes).calls), (0, 0, 0));
        for round in 1..=100 {
            *source = round;
            bench.replay(executable);
            assert_eq!((*target, *copied, bench.get(bench.b)), (0x0506_0307, round + 1, round + 1));
            assert_eq!(*pinned.cast::<u32>(), round + 1);
            assert_eq!((*notes).calls, round);
        }
        assert_eq!((*notes).code, CUDA_ERROR_NOT_PERMITTED);
        ok(cuGraphExecDestroy(executable));
        ok(cuGraphDestroy(graph));
        ok(cuMemFreeHost(pinned));
    }
}

#[test]
fn forks_join() {
    let bench = Bench::new(BLOCKING);
    let stream_of_thread = handle(2);
    for (origin, other) in [(bench.stream, bench.other), (stream_of_thread, bench.other)] {
        let (mut graph, mut executable) = (null_mut(), null_mut());
        // SAFETY: pointers are to variables of the right type.
        unsafe {
            ok(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
            ok(bench.step(origin, bench.a, 1));
            ok(bench.record(bench.event, origin));
            ok(bench.wait(other, bench.event));
            assert_eq!(bench.status(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
            ok(bench.step(other, bench.b, 2));
            ok(bench.record(bench.back, other));
            ok(bench.wait(origin, bench.back));
            ok(cuMemcpyDtoDAsync_v2(bench.a, bench.b, 4, origin));
            // `other` joins again and captures no work: the origin need not wait for it again.
            ok(bench.wait(other, bench.event));
            ok(cuStreamEndCapture(origin, &mut graph));
            assert_eq!(bench.status(other), CU_STREAM_CAPTURE_STATUS_NONE);
            ok(cuGraphInstantiateWithFlags(&mut executable, graph, 1));
            bench.set(bench.b, 5);
            ok(cuGraphLaunch(executable, bench.other));
            assert_eq!((bench.get(bench.a), bench.get(bench.b)), (17, 17));
        }
    }

    // Through a third stream, with the second one destroyed before the end.
    bench.begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    ok(bench.record(bench.event, bench.stream));
    ok(bench.wait(bench.other, bench.event));
    ok(bench.increment(bench.other, bench.a));
    ok(bench.record(bench.back, bench.other));
    let mut third = null_mut();
    // SAFETY: the pointer is to a variable of the right type.
    unsafe {
        ok(cuStreamCreate(&mut third, NON_BLOCKING));
        ok(bench.wait(third, bench.back));
        ok(bench.increment(third, bench.a));
        ok(bench.record(bench.event, third));
        ok(cuStreamDestroy_v2(third));
        ok(cuStreamDestroy_v2(bench.other));
    }
    ok(bench.wait(bench.stream, bench.event));
    let executable = bench.executable();
    bench.replay(executable);
    assert_eq!(bench.get(bench.a), 19);

    // Destroying the stream where a capture began drops the capture.
    bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    // SAFETY: handles are looked up.
    ok(unsafe { cuStreamDestroy_v2(bench.stream) });
    bench.set(bench.a, 0);
}

#[test]
fn a_fork_that_does_not_join() {
    let bench = Bench::new(NON_BLOCKING);
    let fork = || {
        bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok(bench.record(bench.event, bench.stream));
        ok(bench.wait(bench.other, bench.event));
        ok(bench.increment(bench.other, bench.a));
    };
    fork();
    assert_eq!(bench.end(), Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
    assert_eq!(bench.status(bench.other), CU_STREAM_CAPTURE_STATUS_NONE);
    // Work captured after the event is not joined.
    fork();
    ok(bench.record(bench.back, bench.other));
    ok(bench.increment(bench.other, bench.a));
    ok(bench.wait(bench.stream, bench.back));
    assert_eq!(bench.end(), Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
    // Both streams can be used again.
    for (stream, expected) in [(bench.stream, 1), (bench.other, 2)] {
        ok(bench.increment(stream, bench.a));
        assert_eq!(bench.get(bench.a), expected);
    }
}

#[test]
fn beginning_and_ending() {
    let bench = Bench::new(NON_BLOCKING);
    let begin = |stream| {
        // SAFETY: handles are looked up.
        unsafe { cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) }
    };
    let end = |stream| {
        let mut graph = null_mut();
        // SAFETY: the pointer is to a variable of the right type.
        unsafe { cuStreamEndCapture(stream, &mut graph) }
    };
    for legacy in [null_mut(), handle(1)] {
        assert_eq!(begin(legacy), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(end(legacy), CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(bench.status(legacy), CU_STREAM_CAPTURE_STATUS_NONE);
    }
    assert_eq!(begin(handle(0x5001)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(end(handle(0x5001)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(end(bench.stream), CUDA_ERROR_ILLEGAL_STATE);

    ok(begin(bench.stream));
    assert_eq!(begin(bench.stream), CUDA_ERROR_ILLEGAL_STATE);
    assert_eq!(end(bench.other), CUDA_ERROR_ILLEGAL_STATE);
    // SAFETY: a null pointer is not written.
    assert_eq!(unsafe { cuStreamEndCapture(bench.stream, null_mut()) }, CUDA_ERROR_INVALID_VALUE);
    // None of these calls invalidated the capture, which is empty.
    let executable = bench.executable();
    bench.replay(executable);

    ok(begin(bench.stream));
    ok(bench.record(bench.event, bench.stream));
    ok(bench.wait(bench.other, bench.event));
    assert_eq!(begin(bench.other), CUDA_ERROR_ILLEGAL_STATE);
    assert_eq!(end(bench.other), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    assert_eq!(end(bench.stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    // Another thread may only end a relaxed capture.
    for (mode, code) in [
        (CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
        (CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
        (CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS),
    ] {
        bench.begin(mode);
        let stream = bench.stream.addr();
        let elsewhere = std::thread::spawn(move || {
            let mut graph = null_mut();
            // SAFETY: the pointer is to a variable of the right type.
            unsafe { cuStreamEndCapture(handle(stream), &mut graph) }
        });
        assert_eq!(elsewhere.join().unwrap(), code, "{mode:?}");
        assert_eq!(end(bench.stream) == CUDA_SUCCESS, code != CUDA_SUCCESS, "{mode:?}");
    }
}

#[test]
fn what_is_known_of_a_capture() {
    let bench = Bench::new(NON_BLOCKING);
    let (mut status, mut id, mut graph) = (CU_STREAM_CAPTURE_STATUS_NONE, 9, handle(9));
    let (mut dependencies, mut count) = (null(), 9);
    // SAFETY: pointers are null or to variables of the right type.
    unsafe {
        let stream = bench.stream;
        let all = (&raw mut dependencies, &raw mut count);
        ok(cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, all.0, all.1));
        assert_eq!((status, id, graph), (CU_STREAM_CAPTURE_STATUS_NONE, 0, null_mut()));
        assert_eq!((dependencies, count), (null(), 0));
        assert_eq!(cuStreamIsCapturing(stream, null_mut()), CUDA_ERROR_INVALID_VALUE);

        bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok(cuStreamGetCaptureInfo(stream, &mut status, &mut id));
        assert_eq!(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
        assert_ne!(id, 0);
        let first = id;
        ok(cuStreamGetCaptureInfo(stream, &mut status, null_mut()));
        ok(bench.increment(stream, bench.a));
        ok(cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, null_mut(), null_mut()));
        assert_eq!(id, first);
        let refused = cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, all.0, all.1);
        assert_eq!(refused, CUDA_ERROR_NOT_SUPPORTED);
        // During the capture, the graph can be queried but not destroyed.
        ok(cuGraphGetNodes(graph, null_mut(), &mut count));
        assert_eq!(count, 1);
        assert_eq!(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(bench.end(), Ok(graph));
        ok(cuGraphDestroy(graph));

        bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok(cuStreamGetCaptureInfo(stream, &mut status, &mut id));
        assert_ne!(id, first);
        bench.end().unwrap();
    }
}

#[test]
fn streams_and_events_that_are_captured_cannot_be_waited_for() {
    let bench = Bench::new(NON_BLOCKING);
    let (mode, stream) = (CU_STREAM_CAPTURE_MODE_RELAXED, bench.stream);
    let unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    extern "C" fn callback(_: CUstream, _: CUresult, _: *mut c_void) {}
    let mut time = 0.0;
    bench.begin(mode);
    let executable = bench.executable();
    // SAFETY: pointers are to variables of the right type, and the callback uses none.
    unsafe {
        bench.refuses(mode, unsupported, || cuStreamSynchronize(stream));
        bench.refuses(mode, unsupported, || cuStreamQuery(stream));
        bench.refuses(mode, unsupported, || cuStreamAddCallback(stream, Some(callback), null_mut(), 0));
        bench.refuses(mode, unsupported, || cuMemPrefetchAsync(bench.a, 4, 0, stream));
        bench.refuses(mode, unsupported, || cuGraphLaunch(executable, stream));
        bench.refuses(mode, unsupported, || cuGraphUpload(executable, stream));
        bench.refuses(mode, unsupported, || cuCtxSynchronize());
        for ask in [cuEventQuery, cuEventSynchronize] {
            bench.refuses(mode, CUDA_ERROR_CAPTURED_EVENT, || {
                ok(bench.record(bench.event, stream));
                ask(bench.event)
            });
            // The event counts as captured until it is recorded again.
            assert_eq!(ask(bench.event), CUDA_ERROR_CAPTURED_EVENT);
            assert_eq!(bench.wait(stream, bench.event), CUDA_ERROR_CAPTURED_EVENT);
            ok(bench.record(bench.event, stream));
            ok(ask(bench.event));
            ok(bench.wait(stream, bench.event));
        }
        ok(bench.record(bench.back, stream));
        bench.refuses(mode, CUDA_ERROR_CAPTURED_EVENT, || {
            ok(bench.record(bench.event, stream));
            cuEventElapsedTime(&mut time, bench.back, bench.event)
        });

        // The NVIDIA driver captures these; the emulator refuses them, and the capture continues.
        bench.begin(mode);
        let mut address = 0;
        assert_eq!(cuMemAllocAsync(&mut address, 4, stream), CUDA_ERROR_NOT_SUPPORTED);
        assert_eq!(cuMemFreeAsync(bench.a, stream), CUDA_ERROR_NOT_SUPPORTED);
        assert_eq!(cuStreamWaitEvent(stream, bench.back, 1), CUDA_ERROR_NOT_SUPPORTED);
        bench.end().unwrap();
    }
    assert_eq!(bench.get(bench.a), 0);
}

#[test]
fn captures_depend_on_nothing_outside() {
    let bench = Bench::new(NON_BLOCKING);
    let (mode, stream) = (CU_STREAM_CAPTURE_MODE_GLOBAL, bench.stream);
    ok(bench.record(bench.event, bench.other));
    bench.refuses(mode, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, || bench.wait(stream, bench.event));
    // An event of a capture that has ended.
    bench.begin(mode);
    ok(bench.record(bench.event, stream));
    bench.end().unwrap();
    bench.refuses(mode, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, || bench.wait(stream, bench.event));
    // An event that was never recorded.
    bench.begin(mode);
    ok(bench.wait(stream, bench.back));
    bench.end().unwrap();
    // An event of another capture, which is invalidated, too.
    // SAFETY: handles are looked up.
    ok(unsafe { cuStreamBeginCapture_v2(bench.other, mode) });
    ok(bench.record(bench.event, bench.other));
    bench.refuses(mode, CUDA_ERROR_STREAM_CAPTURE_MERGE, || bench.wait(stream, bench.event));
    assert_eq!(bench.status(bench.other), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_eq!(bench.wait(stream, bench.event), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    let mut graph = null_mut();
    // SAFETY: the pointer is to a variable of the right type.
    let code = unsafe { cuStreamEndCapture(bench.other, &mut graph) };
    assert_eq!(code, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // The legacy stream cannot join.
    bench.refuses(mode, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, || {
        ok(bench.record(bench.event, stream));
        bench.wait(null_mut(), bench.event)
    });
}

#[test]
fn the_legacy_stream_does_not_wait_for_captures() {
    let bench = Bench::new(BLOCKING);
    let implicit = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    let relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    for legacy in [null_mut(), handle(1)] {
        // SAFETY: no host memory is used.
        unsafe {
            bench.refuses(CU_STREAM_CAPTURE_MODE_GLOBAL, implicit, || bench.increment(legacy, bench.b));
            bench.refuses(relaxed, implicit, || cuMemsetD8Async(bench.b, 0, 4, legacy));
            bench.refuses(relaxed, implicit, || bench.record(bench.event, legacy));
            bench.refuses(relaxed, implicit, || cuStreamSynchronize(legacy));
            bench.refuses(relaxed, implicit, || cuStreamQuery(legacy));
        }
    }
    // SAFETY: no host memory is used.
    bench.refuses(relaxed, implicit, || unsafe { cuMemcpyDtoD_v2(bench.b, bench.a, 4) });
    // A capture blocks the legacy stream once a blocking stream joins it.
    let mut origin = null_mut();
    // SAFETY: pointers are to variables of the right type.
    unsafe {
        ok(cuStreamCreate(&mut origin, NON_BLOCKING));
        ok(cuStreamBeginCapture_v2(origin, relaxed));
        ok(bench.increment(null_mut(), bench.b));
        ok(bench.record(bench.event, origin));
        ok(bench.wait(bench.other, bench.event));
        assert_eq!(bench.increment(null_mut(), bench.b), implicit);
        ok(cuStreamDestroy_v2(origin));
        ok(bench.increment(null_mut(), bench.b));
    }
    // A query does not invalidate the capture.
    bench.begin(relaxed);
    // SAFETY: the pointer is to a variable of the right type.
    assert_eq!(unsafe { cuStreamIsCapturing(null_mut(), &mut status) }, implicit);
    bench.end().unwrap();

    // A capture in a non-blocking stream does not affect the legacy stream.
    drop(bench);
    let bench = Bench::new(NON_BLOCKING);
    bench.begin(relaxed);
    ok(bench.increment(null_mut(), bench.b));
    bench.end().unwrap();
    assert_eq!(bench.get(bench.b), 1);
}

#[test]
fn unsafe_calls() {
    let bench = Bench::new(NON_BLOCKING);
    let unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let (mut address, mut host, mut value, mut module) = (0, null_mut(), 0u32, null_mut());
    let mut own = [0u8; 64];
    let (own, value) = (&raw mut own, &raw mut value);
    let exchange = |mut mode: CUstreamCaptureMode| {
        // SAFETY: the pointer is to a variable of the right type.
        ok(unsafe { cuThreadExchangeStreamCaptureMode(&mut mode) });
        mode
    };
    // SAFETY: pointers are to variables of the right type and size.
    unsafe {
        for mode in [CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL] {
            bench.refuses(mode, unsupported, || cuMemAlloc_v2(&mut address, 4));
            bench.refuses(mode, unsupported, || cuMemAllocPitch_v2(&mut address, &mut 0, 4, 4, 4));
            bench.refuses(mode, unsupported, || cuMemAllocManaged(&mut address, 4, 1));
            bench.refuses(mode, unsupported, || cuMemAllocHost_v2(&mut host, 4));
            bench.refuses(mode, unsupported, || cuMemHostAlloc(&mut host, 4, 0));
            bench.refuses(mode, unsupported, || cuMemHostRegister_v2(own.cast(), 64, 0));
            bench.refuses(mode, unsupported, || cuMemHostUnregister(own.cast()));
            bench.refuses(mode, unsupported, || cuMemFreeHost(null_mut()));
            bench.refuses(mode, unsupported, || cuMemFree_v2(bench.a));
            bench.refuses(mode, unsupported, || cuMemcpy(bench.a, bench.b, 4));
            bench.refuses(mode, unsupported, || cuMemcpyHtoD_v2(bench.a, value.cast(), 4));
            bench.refuses(mode, unsupported, || cuMemcpyDtoH_v2(value.cast(), bench.a, 4));
            bench.refuses(mode, unsupported, || cuMemcpyDtoD_v2(bench.a, bench.b, 4));
            bench.refuses(mode, unsupported, || cuMemsetD32_v2(bench.a, 1, 1));
            bench.refuses(mode, unsupported, || cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
            bench.refuses(mode, unsupported, || cuModuleUnload(bench.module));
        }
        // None of the calls had an effect. Work in another stream does not affect the capture.
        assert_eq!(bench.get(bench.a), 0);
        bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok(bench.increment(bench.other, bench.a));
        ok(cuMemcpyDtoDAsync_v2(bench.b, bench.a, 4, bench.other));
        ok(cuStreamSynchronize(bench.other));
        bench.end().unwrap();
        assert_eq!(bench.get(bench.b), 1);

        // Allowed if the capture or the thread is in relaxed mode.
        bench.begin(CU_STREAM_CAPTURE_MODE_RELAXED);
        ok(cuMemAlloc_v2(&mut address, 4));
        ok(cuMemFree_v2(address));
        bench.end().unwrap();
        assert_eq!(exchange(CU_STREAM_CAPTURE_MODE_RELAXED), CU_STREAM_CAPTURE_MODE_GLOBAL);
        bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok(cuMemAlloc_v2(&mut address, 4));
        ok(cuMemcpyDtoD_v2(address, bench.a, 4));
        ok(cuMemFree_v2(address));
        bench.end().unwrap();
        assert_eq!(exchange(CU_STREAM_CAPTURE_MODE_GLOBAL), CU_STREAM_CAPTURE_MODE_RELAXED);
        let mut none = 3i32;
        assert_eq!(cuThreadExchangeStreamCaptureMode((&raw mut none).cast()), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuThreadExchangeStreamCaptureMode(null_mut()), CUDA_ERROR_INVALID_VALUE);
    }

    // A capture in global mode also forbids unsafe calls of other threads, unless they are in another mode.
    let elsewhere = |mode| {
        let thread = std::thread::spawn(move || {
            let _context = cust::quick_init().unwrap();
            let (mut mode, mut address) = (mode, 0);
            // SAFETY: pointers are to variables of the right type.
            unsafe {
                ok(cuThreadExchangeStreamCaptureMode(&mut mode));
                let code = cuMemAlloc_v2(&mut address, 4);
                if code == CUDA_SUCCESS {
                    ok(cuMemFree_v2(address));
                }
                code
            }
        });
        thread.join().unwrap()
    };
    for (mode, of_thread) in [
        (CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        (CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED),
        (CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL),
        (CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL),
    ] {
        bench.begin(mode);
        assert_eq!(elsewhere(of_thread), CUDA_SUCCESS, "{mode:?} {of_thread:?}");
        bench.end().unwrap();
    }
    let global = CU_STREAM_CAPTURE_MODE_GLOBAL;
    bench.refuses(global, unsupported, || elsewhere(global));
}

#[test]
fn memory_that_is_gone_is_a_fault() {
    let bench = Bench::new(NON_BLOCKING);
    let stream = bench.stream;
    let (mut gone, mut pinned, mut number) = (0, null_mut(), 0u32);
    let number = &raw mut number;
    // SAFETY: host memory is that of the variable above, which lives until the end, and of `pinned`, which
    // the emulator checks.
    unsafe {
        type Capture<'a> = (&'a dyn Fn(CUdeviceptr) -> CUresult, &'a str, &'a str);
        let captures: [Capture<'_>; 5] = [
            (&|gone| bench.increment(stream, gone), "increment", "out of bounds"),
            (&|gone| cuMemcpyDtoDAsync_v2(bench.b, gone, 4, stream), "", "copy of 4 bytes"),
            (&|gone| cuMemcpyHtoDAsync_v2(gone, number.cast(), 4, stream), "", "copy of 4 bytes"),
            (&|gone| cuMemcpyDtoHAsync_v2(number.cast(), gone, 4, stream), "", "copy of 4 bytes"),
            (&|gone| cuMemsetD32Async(gone, 1, 1, stream), "", "memset of 1 times 4 bytes"),
        ];
        for (capture, kernel, message) in captures {
            bench.set(bench.a, 0);
            ok(cuMemAlloc_v2(&mut gone, 4));
            bench.set(gone, 1);
            bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
            ok(bench.increment(stream, bench.a));
            ok(capture(gone));
            ok(bench.increment(stream, bench.a));
            let executable = bench.executable();
            bench.replay(executable);
            assert_eq!(bench.get(bench.a), 2);
            ok(cuMemFree_v2(gone));

            // As with a launch, the call succeeds and later calls fail. The rest of the graph does not run.
            bench.replay(executable);
            assert_eq!(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
            assert_eq!(cuGraphLaunch(executable, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
            let faults = emulator::take_faults();
            let [fault] = &faults[..] else { panic!("{faults:?}") };
            assert_eq!((fault.kernel.as_str(), fault.code()), (kernel, 700));
            assert!(fault.to_string().contains(message), "{fault}");
            assert_eq!(bench.get(bench.a), 3);
            ok(cuGraphExecDestroy(executable));
        }

        // Freed pinned memory is not taken for pageable host memory.
        ok(cuMemAllocHost_v2(&mut pinned, 4));
        bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
        ok(cuMemcpyHtoDAsync_v2(bench.a, pinned, 4, stream));
        let executable = bench.executable();
        ok(cuMemFreeHost(pinned));
        bench.replay(executable);
        assert_eq!(emulator::take_faults().len(), 1);
    }
}

#[test]
fn handles_that_were_destroyed() {
    let bench = Bench::new(NON_BLOCKING);
    bench.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    ok(bench.increment(bench.stream, bench.a));
    let graph = bench.end().unwrap();
    let (mut executable, mut count) = (null_mut(), 0);
    // SAFETY: pointers are null or to variables of the right type.
    unsafe {
        assert_eq!(cuGraphInstantiateWithFlags(null_mut(), graph, 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuGraphInstantiateWithFlags(&mut executable, graph, 2), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuGraphInstantiateWithFlags(&mut executable, graph, 4), CUDA_ERROR_NOT_SUPPORTED);
        assert_eq!(cuGraphGetNodes(graph, null_mut(), null_mut()), CUDA_ERROR_INVALID_VALUE);
        ok(cuGraphInstantiateWithFlags(&mut executable, graph, 8));
        ok(cuGraphDestroy(graph));
        assert_eq!(cuGraphDestroy(graph), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuGraphGetNodes(graph, null_mut(), &mut count), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuGraphInstantiateWithFlags(&mut executable, graph, 0), CUDA_ERROR_INVALID_HANDLE);
        let again = cuGraphInstantiate_v2(&mut executable, graph, null_mut(), null_mut(), 0);
        assert_eq!(again, CUDA_ERROR_INVALID_HANDLE);
        // A graph's handle is not an executable's.
        assert_eq!(cuGraphLaunch(graph.cast(), bench.stream), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuGraphLaunch(executable, handle(0x5001)), CUDA_ERROR_INVALID_HANDLE);
        bench.replay(executable);
        assert_eq!(bench.get(bench.a), 1);

        ok(cuModuleUnload(bench.module));
        assert_eq!(cuGraphLaunch(executable, bench.stream), CUDA_ERROR_INVALID_HANDLE);
        ok(cuGraphExecDestroy(executable));
        assert_eq!(cuGraphExecDestroy(executable), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuGraphLaunch(executable, bench.stream), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuGraphUpload(executable, bench.stream), CUDA_ERROR_INVALID_HANDLE);

        // Graphs and captures are destroyed with their context.
        let (mut context, mut stream, mut graph) = (null_mut(), null_mut(), null_mut());
        ok(cuCtxCreate_v2(&mut context, 0, 0));
        ok(cuStreamCreate(&mut stream, NON_BLOCKING));
        ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        ok(cuStreamEndCapture(stream, &mut graph));
        ok(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        ok(cuCtxDestroy_v2(context));
        assert_eq!(cuGraphDestroy(graph), CUDA_ERROR_INVALID_HANDLE);
    }
    bench.set(bench.a, 0);
}
