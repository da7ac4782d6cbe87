//! Enqueued reductions: results stay on the device, in order, with no memory cleared between them; also in a
//! captured graph.

use cust::stream::{Stream as CustStream, StreamFlags};
use cust::sys::{self, cudaError_enum::CUDA_SUCCESS};
use gpu_reduce::{Device, Error, Max, Min, Reduce, Stream, Sum};
use std::ptr::null_mut;
use support::{devices, for_each_block, samples};

#[test]
fn results_stay_on_the_device() {
    for device in devices() {
        let len = if device.is_emulator() { 20_000 } else { 3_000_000 };
        let data = samples(len, |hash| (hash % 1000) as f32 * 1e-3 - 0.5);
        let x = device.upload(&data).unwrap();
        let tail = x.slice(len - 777..).unwrap();
        let mut sums = device.zeros::<f32>(4).unwrap();
        let stream = device.stream().unwrap();
        assert_eq!((stream.device(), stream.as_raw().is_some()), (device.clone(), !device.is_cpu()));
        for_each_block!(|BLOCK| {
            // SAFETY: the buffers live, unused otherwise, until the stream has been waited for.
            unsafe {
                x.reduce_into::<Sum, BLOCK>(&stream, sums.slice_mut(0..).unwrap()).unwrap();
                tail.reduce_into::<Min, BLOCK>(&stream, sums.slice_mut(2..).unwrap()).unwrap();
                // Reads results that were enqueued before, in order.
                x.slice(..1)
                    .unwrap()
                    .reduce_into::<Sum, BLOCK>(&stream, sums.slice_mut(3..).unwrap())
                    .unwrap();
            }
            stream.synchronize().unwrap();
            let expected = [
                data.reduce::<Sum, BLOCK>().unwrap(),
                0.0,
                data[len - 777..].reduce::<Min, BLOCK>().unwrap(),
                data[0],
            ];
            assert_eq!(sums.to_vec().unwrap(), expected, "{device}, BLOCK {BLOCK}");
        });
    }
}

#[test]
fn what_cannot_be_enqueued_is_refused() {
    for device in devices() {
        let x = device.upload(&[1i32, 2, 3]).unwrap();
        let none = x.slice(3..).unwrap();
        let mut sums = device.upload(&[7i64; 2]).unwrap();
        let mut least = device.upload(&[7i32; 2]).unwrap();
        let stream = device.stream().unwrap();
        // SAFETY: as above.
        unsafe {
            let past = x.reduce_into::<Sum, 64>(&stream, sums.slice_mut(2..).unwrap());
            assert_eq!(past, Err(Error::OutOfBounds { start: 0, end: 1, len: 0 }));
            let empty = none.reduce_into::<Max, 64>(&stream, least.slice_mut(0..).unwrap());
            assert_eq!(empty, Err(Error::EmptyInput { op: "max" }));
            none.reduce_into::<Sum, 64>(&stream, sums.slice_mut(1..).unwrap()).unwrap();
            if !device.is_cpu() {
                let here = Device::cpu().upload(&[1i32]).unwrap();
                let other = here.reduce_into::<Sum, 64>(&stream, sums.slice_mut(0..).unwrap());
                assert!(matches!(other, Err(Error::DeviceMismatch { .. })), "{other:?}");
                let mut there = Device::cpu().zeros::<i64>(1).unwrap();
                let other = x.reduce_into::<Sum, 64>(&stream, there.slice_mut(0..).unwrap());
                assert!(matches!(other, Err(Error::DeviceMismatch { .. })), "{other:?}");
            }
        }
        stream.synchronize().unwrap();
        assert_eq!((sums.to_vec().unwrap(), least.to_vec().unwrap()), (vec![7, 0], vec![7, 7]), "{device}");
    }
}

/// Twenty reductions captured once and replayed a hundred times, with other data in the same memory each
/// time.
#[test]
#[cfg_attr(not(part = "5"), ignore = "of part 5")]
fn a_graph_replays_with_new_data() {
    let Some(device) = devices().pop().filter(|device| !device.is_cpu()) else { return };
    let _context = cust::context::Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    let len = 100_000;
    let mut x = device.zeros::<f32>(len).unwrap();
    let mut sums = device.zeros::<f32>(20).unwrap();
    let stream = device.stream().unwrap();
    let raw: sys::CUstream = stream.as_raw().unwrap().cast();
    let mut enqueue = |index: usize| {
        let part = x.slice(index * 100..).unwrap();
        // SAFETY: the buffers outlive the graph; what is written between replays is when the stream has been
        // waited for.
        unsafe { part.reduce_into::<Sum, 256>(&stream, sums.slice_mut(index..).unwrap()).unwrap() };
    };
    enqueue(0);
    let (mut graph, mut executable) = (null_mut(), null_mut());
    // SAFETY: the stream is live, and the graph's executable is destroyed after its last use.
    unsafe {
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        assert_eq!(sys::cuStreamSynchronize(raw), CUDA_SUCCESS);
        assert_eq!(sys::cuStreamBeginCapture_v2(raw, mode), CUDA_SUCCESS);
        (0..20).for_each(enqueue);
        assert_eq!(sys::cuStreamEndCapture(raw, &mut graph), CUDA_SUCCESS);
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0), CUDA_SUCCESS);
    }
    for round in 0..100 {
        let data = samples(len, |hash| (hash.rotate_left(round) % 1000) as f32 * 1e-3 - 0.5);
        x.write(0, &data).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { sys::cuGraphLaunch(executable, raw) }, CUDA_SUCCESS);
        stream.synchronize().unwrap();
        let expected: Vec<f32> =
            (0..20).map(|index| data[index * 100..].reduce::<Sum, 256>().unwrap()).collect();
        assert_eq!(sums.to_vec().unwrap(), expected, "round {round}");
    }
    // SAFETY: as above.
    unsafe {
        assert_eq!(sys::cuGraphExecDestroy(executable), CUDA_SUCCESS);
        assert_eq!(sys::cuGraphDestroy(graph), CUDA_SUCCESS);
    }
}

/// While a stream is captured, calls that allocate or wait are refused. A graph keeps the memory that it
/// needs when its stream is dropped.
#[test]
fn graphs_keep_what_they_need() {
    let Some(device) = devices().pop().filter(|device| !device.is_cpu()) else { return };
    let _context = cust::context::Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    let data = samples(200_000, |hash| (hash % 100) as f32);
    let x = device.upload(&data).unwrap();
    let mut sums = device.zeros::<f32>(1).unwrap();
    let expected = data.reduce::<Sum, 64>().unwrap();
    let mut graph = null_mut();
    let mut executable = null_mut();
    let handle = CustStream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let raw = handle.as_inner();
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let capture = |work: &mut dyn FnMut(), graph: &mut sys::CUgraph| {
        // SAFETY: the stream is live.
        unsafe {
            assert_eq!(sys::cuStreamBeginCapture_v2(raw, mode), CUDA_SUCCESS);
            work();
            assert_eq!(sys::cuStreamEndCapture(raw, graph), CUDA_SUCCESS);
        }
    };
    let stream = Stream::try_from(&handle).unwrap();
    // SAFETY: the buffers live until all graphs have run.
    unsafe {
        // The kernel is compiled, but this stream has no memory for it yet, and may not use another stream's.
        let first = device.stream().unwrap();
        x.reduce_into::<Sum, 64>(&first, &mut sums).unwrap();
        first.synchronize().unwrap();
        capture(
            &mut || {
                let fresh = Stream::try_from(&handle).unwrap();
                assert_eq!(x.reduce_into::<Sum, 64>(&fresh, &mut sums), Err(Error::Capture));
                assert_eq!(x.reduce_async::<Sum, 64>(&stream).wait(), Err(Error::Capture));
            },
            &mut graph,
        );
        assert_eq!(sys::cuGraphDestroy(graph), CUDA_SUCCESS);
        x.reduce_into::<Sum, 64>(&stream, &mut sums).unwrap();
        capture(&mut || x.reduce_into::<Sum, 64>(&stream, &mut sums).unwrap(), &mut graph);
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0), CUDA_SUCCESS);
    }
    drop(stream);
    for _ in 0..10 {
        // SAFETY: as above.
        assert_eq!(unsafe { sys::cuGraphLaunch(executable, raw) }, CUDA_SUCCESS);
        // Another stream has its own memory.
        let other = device.stream().unwrap();
        assert_eq!(x.reduce_async::<Sum, 64>(&other).wait(), Ok(expected));
        handle.synchronize().unwrap();
        assert_eq!(sums.to_vec().unwrap(), [expected]);
        sums.write(0, &[0.0]).unwrap();
    }
    // SAFETY: the graphs have run.
    unsafe {
        assert_eq!(sys::cuGraphExecDestroy(executable), CUDA_SUCCESS);
        assert_eq!(sys::cuGraphDestroy(graph), CUDA_SUCCESS);
    }
}
