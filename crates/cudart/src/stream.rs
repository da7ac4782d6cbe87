//! Streams, events, captures and graphs: the driver's functions under the runtime's names.

use crate::error::{NOT_SUPPORTED, api, check, put, require};
use crate::{driver, runtime};
use cust_raw::{
    CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUstream, CUstreamCallback, CUstreamCaptureMode,
    CUstreamCaptureStatus, cuCtxGetStreamPriorityRange, cuCtxSynchronize, cuEventCreate, cuEventDestroy_v2,
    cuEventElapsedTime, cuEventQuery, cuEventRecord, cuEventSynchronize, cuGraphDestroy, cuGraphExecDestroy,
    cuGraphGetNodes, cuGraphInstantiateWithFlags, cuGraphLaunch, cuGraphUpload, cuStreamAddCallback,
    cuStreamBeginCapture_v2, cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamEndCapture,
    cuStreamGetCaptureInfo_v2, cuStreamGetCtx, cuStreamGetFlags, cuStreamGetPriority, cuStreamIsCapturing,
    cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent, cuThreadExchangeStreamCaptureMode,
};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

/// Returns the stream that a file means which has default streams of its threads: `CU_STREAM_PER_THREAD` if
/// it names none.
pub fn of_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { ptr::without_provenance_mut(2) } else { stream }
}

/// `cudaStreamAttributeAccessPolicyWindow`
const ACCESS_WINDOW: c_int = 1;
/// `cudaStreamAttributeSynchronizationPolicy`
const SYNCHRONISATION: c_int = 3;

api! {
    fn cudaDeviceSynchronize() {
        check(cuCtxSynchronize())
    }

    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        check(cuCtxGetStreamPriorityRange(least, greatest))
    }

    fn cudaStreamCreate(stream: *mut CUstream) {
        check(cuStreamCreateWithPriority(stream, 0, 0))
    }

    fn cudaStreamCreateWithFlags(stream: *mut CUstream, flags: c_uint) {
        check(cuStreamCreateWithPriority(stream, flags, 0))
    }

    fn cudaStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) {
        check(cuStreamCreateWithPriority(stream, flags, priority))
    }

    fn cudaStreamDestroy(stream: CUstream) {
        check(cuStreamDestroy_v2(stream))
    }

    fn cudaStreamGetPriority(stream: CUstream, priority: *mut c_int) as cudaStreamGetPriority_ptsz(stream) {
        check(cuStreamGetPriority(stream, priority))
    }

    fn cudaStreamGetFlags(stream: CUstream, flags: *mut c_uint) as cudaStreamGetFlags_ptsz(stream) {
        check(cuStreamGetFlags(stream, flags))
    }

    fn cudaStreamGetDevice(stream: CUstream, device: *mut c_int) as cudaStreamGetDevice_ptsz(stream) {
        let mut context: CUcontext = ptr::null_mut();
        check(cuStreamGetCtx(stream, &mut context))?;
        put(device, runtime::device_of(context)?)
    }

    fn cudaStreamSynchronize(stream: CUstream) as cudaStreamSynchronize_ptsz(stream) {
        check(cuStreamSynchronize(stream))
    }

    fn cudaStreamQuery(stream: CUstream) as cudaStreamQuery_ptsz(stream) {
        check(cuStreamQuery(stream))
    }

    fn cudaStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) as cudaStreamWaitEvent_ptsz(stream) {
        check(cuStreamWaitEvent(stream, event, flags))
    }

    fn cudaStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint) as cudaStreamAddCallback_ptsz(stream) {
        check(cuStreamAddCallback(stream, callback, data, flags))
    }

    /// The windows of caches and the ways to wait that attributes set have no effect.
    fn cudaStreamSetAttribute(stream: CUstream, attribute: c_int, value: *const c_void) as cudaStreamSetAttribute_ptsz(stream) {
        require(!value.is_null())?;
        if !matches!(attribute, ACCESS_WINDOW | SYNCHRONISATION) {
            return Err(NOT_SUPPORTED);
        }
        let mut flags = 0;
        check(cuStreamGetFlags(stream, &mut flags))
    }

    fn cudaCtxResetPersistingL2Cache() {
        Ok(())
    }

    fn cudaEventCreate(event: *mut CUevent) {
        check(cuEventCreate(event, 0))
    }

    fn cudaEventCreateWithFlags(event: *mut CUevent, flags: c_uint) {
        check(cuEventCreate(event, flags))
    }

    fn cudaEventDestroy(event: CUevent) {
        check(cuEventDestroy_v2(event))
    }

    fn cudaEventRecord(event: CUevent, stream: CUstream) as cudaEventRecord_ptsz(stream) {
        check(cuEventRecord(event, stream))
    }

    /// With the flag `cudaEventRecordExternal`, a record in a capture would be a node of the graph.
    fn cudaEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) as cudaEventRecordWithFlags_ptsz(stream) {
        if flags != 0 {
            return Err(NOT_SUPPORTED);
        }
        check(cuEventRecord(event, stream))
    }

    fn cudaEventQuery(event: CUevent) {
        check(cuEventQuery(event))
    }

    fn cudaEventSynchronize(event: CUevent) {
        check(cuEventSynchronize(event))
    }

    fn cudaEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        check(cuEventElapsedTime(milliseconds, start, end))
    }

    fn cudaStreamBeginCapture(stream: CUstream, mode: c_int) as cudaStreamBeginCapture_ptsz(stream) {
        check(cuStreamBeginCapture_v2(stream, driver::capture_mode(mode)?))
    }

    fn cudaStreamEndCapture(stream: CUstream, graph: *mut CUgraph) as cudaStreamEndCapture_ptsz(stream) {
        check(cuStreamEndCapture(stream, graph))
    }

    fn cudaStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) as cudaStreamIsCapturing_ptsz(stream) {
        check(cuStreamIsCapturing(stream, status))
    }

    fn cudaStreamGetCaptureInfo(
        stream: CUstream,
        status: *mut CUstreamCaptureStatus,
        id: *mut c_ulonglong,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        edges: *mut *const c_void,
        count: *mut usize,
    ) as cudaStreamGetCaptureInfo_ptsz(stream) {
        if !edges.is_null() {
            return Err(NOT_SUPPORTED);
        }
        check(cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count))
    }

    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        let mut new: CUstreamCaptureMode = driver::capture_mode(mode.as_ref().copied().unwrap_or(-1))?;
        check(cuThreadExchangeStreamCaptureMode(&mut new))?;
        put(mode, new as c_int)
    }

    fn cudaGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        check(cuGraphGetNodes(graph, nodes, count))
    }

    fn cudaGraphInstantiate(executable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) {
        check(cuGraphInstantiateWithFlags(executable, graph, flags))
    }

    fn cudaGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) {
        check(cuGraphInstantiateWithFlags(executable, graph, flags))
    }

    fn cudaGraphUpload(executable: CUgraphExec, stream: CUstream) as cudaGraphUpload_ptsz(stream) {
        check(cuGraphUpload(executable, stream))
    }

    fn cudaGraphLaunch(executable: CUgraphExec, stream: CUstream) as cudaGraphLaunch_ptsz(stream) {
        crate::exit::flush();
        check(cuGraphLaunch(executable, stream))
    }

    fn cudaGraphExecDestroy(executable: CUgraphExec) {
        check(cuGraphExecDestroy(executable))
    }

    fn cudaGraphDestroy(graph: CUgraph) {
        check(cuGraphDestroy(graph))
    }
}
