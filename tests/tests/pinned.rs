//! Page-locked host memory, and enqueued copies from and to it.

use cust::sys::{self, cudaError_enum::CUDA_SUCCESS};
use gpu_reduce::{Device, Error, Max, Reduce, Stream, Sum};
use std::ptr::null_mut;
use std::thread;
use support::{devices, samples};

/// Uploads, reduces and downloads a thousand elements at a time, in stream order.
fn sums_of_thousands(device: &Device, stream: &Stream, data: &[i32]) -> Vec<i64> {
    let mut host = device.pinned(data.len()).unwrap();
    let mut sums = device.pinned::<i64>(data.len() / 1000).unwrap();
    let (mut x, mut results) = (device.zeros(data.len()).unwrap(), device.zeros(sums.len()).unwrap());
    host.copy_from_slice(data);
    // SAFETY: the four buffers live, unused otherwise, until the stream has been waited for.
    unsafe {
        stream.upload(&host, &mut x).unwrap();
        x.rows(1000).unwrap().reduce_into::<Sum, 64>(stream, &mut results).unwrap();
        stream.download(results.view(), &mut sums).unwrap();
    }
    stream.synchronize().unwrap();
    sums.to_vec()
}

fn expected(data: &[i32]) -> Vec<i64> {
    data.chunks(1000).map(|row| row.iter().map(|&x| i64::from(x)).sum()).collect()
}

#[test]
fn it_is_a_slice_of_zeros_that_reduces() {
    for device in devices() {
        let mut host = device.pinned::<f32>(1001).unwrap();
        assert_eq!((host.len(), host.iter().any(|&x| x != 0.0)), (1001, false), "{device}");
        assert_eq!(format!("{host:?}"), format!("PinnedBuffer {{ len: 1001, device: {device} }}"));
        host[1..].fill(0.5);
        assert_eq!(host.reduce::<Sum, 256>(), Ok(500.0), "{device}");
        assert_eq!(gpu_reduce::max(&host), Ok(0.5), "{device}");
        assert_eq!(host.reduce_on::<Sum, 256>(&device), Ok(500.0), "{device}");
        assert_eq!(device.upload(&host).unwrap().to_vec().unwrap(), host[..], "{device}");
        // It may be freed on another thread than the one that allocated it.
        thread::spawn(move || drop(host)).join().unwrap();
    }
}

#[test]
fn none_and_too_many_elements() {
    for device in devices() {
        let mut none = device.pinned::<u64>(0).unwrap();
        assert_eq!((none.len(), none.iter_mut().count()), (0, 0), "{device}");
        assert_eq!(none.reduce::<Max, 64>(), Err(Error::EmptyInput { op: "max" }));
        for len in [usize::MAX, isize::MAX as usize, 1 << 58] {
            let many = device.pinned::<u64>(len).map(|_| ());
            let requested = len.saturating_mul(8);
            let on_host = Device::cpu().to_string();
            let message = format!("out of memory on {on_host}: asked for {requested} bytes; ");
            assert!(many.as_ref().unwrap_err().to_string().starts_with(&message), "{many:?} on {device}");
            assert_eq!(many, Err(Error::OutOfMemory { device: on_host, requested, free: None }));
        }
        assert_eq!(device.pinned::<u64>(2).unwrap()[..], [0, 0], "{device}");
    }
}

#[test]
fn it_is_freed_and_made_again() {
    for device in devices() {
        let stream = device.stream().unwrap();
        for round in 0..20 {
            let data = samples(1000 * (1 + round % 5), |hash| hash as i32);
            assert_eq!(sums_of_thousands(&device, &stream, &data), expected(&data), "{round} on {device}");
            // Memory that was used before is zeroed again.
            assert!(device.pinned::<i32>(data.len()).unwrap().iter().all(|&x| x == 0), "{device}");
        }
    }
}

#[test]
fn copies_are_in_the_streams_order() {
    for device in devices() {
        let (first, second) = (samples(50_000, |hash| hash as u16), samples(50_000, |hash| !hash as u16));
        let mut host = [device.pinned(first.len()).unwrap(), device.pinned(first.len()).unwrap()];
        host[0].copy_from_slice(&first);
        host[1].copy_from_slice(&second);
        let mut x = device.zeros::<u16>(first.len()).unwrap();
        let mut results = device.zeros::<u64>(2).unwrap();
        let (mut sums, mut back) = (device.pinned(3).unwrap(), device.pinned::<u16>(first.len()).unwrap());
        let stream = device.stream().unwrap();
        // SAFETY: all buffers live, unused otherwise, until the stream has been waited for.
        unsafe {
            // Into the same memory, after the reduction has read it.
            stream.upload(&host[0], &mut x).unwrap();
            x.reduce_into::<Sum, 256>(&stream, &mut results).unwrap();
            stream.upload(&host[1], &mut x).unwrap();
            x.reduce_into::<Sum, 256>(&stream, results.slice_mut(1..).unwrap()).unwrap();
            // Fewer elements than there are on both sides, and more capacity than they need.
            stream.upload(&host[0][7..1007], x.slice_mut(3..2000).unwrap()).unwrap();
            stream.download(results.view(), &mut sums).unwrap();
            stream.download(x.slice(1..49_999).unwrap(), &mut back[1..]).unwrap();
            stream.upload(&host[0][..0], x.slice_mut(9..9).unwrap()).unwrap();
            stream.upload(&[], &mut x).unwrap();
            let none = x.slice(5..5).unwrap();
            stream.download(none, &mut []).unwrap();
            stream.download(none, &mut back).unwrap();
        }
        stream.synchronize().unwrap();
        let of = |data: &[u16]| data.iter().map(|&x| u64::from(x)).sum();
        assert_eq!(sums[..], [of(&first), of(&second), 0], "{device}");
        let mut expected = second;
        expected[3..1003].copy_from_slice(&first[7..1007]);
        expected[0] = 0;
        expected[49_999] = 0;
        assert_eq!(back[..], expected, "{device}");
    }
}

/// Copies from and to memory that is not page-locked, for which the driver may wait.
#[test]
fn pageable_memory_is_copied_too() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let data = samples(100_000, |hash| hash as i64);
        let mut back = vec![0; data.len() + 1];
        let mut x = device.zeros(data.len()).unwrap();
        // SAFETY: all buffers live, unused otherwise, until the stream has been waited for.
        unsafe {
            stream.upload(&data, &mut x).unwrap();
            stream.download(x.view(), &mut back).unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!((&back[..data.len()], back[data.len()]), (&data[..], 0), "{device}");
    }
}

#[test]
fn copies_that_do_not_fit_are_refused() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let mut host = device.pinned::<i32>(3).unwrap();
        let mut x = device.upload(&[1, 2]).unwrap();
        // SAFETY: a rejected copy is not enqueued.
        unsafe {
            let past = stream.upload(&host, &mut x);
            assert_eq!(past, Err(Error::OutOfBounds { start: 0, end: 3, len: 2 }), "{device}");
            let past = stream.download(x.view(), &mut host[..1]);
            assert_eq!(past, Err(Error::OutOfBounds { start: 0, end: 2, len: 1 }), "{device}");
            if !device.is_cpu() {
                let mut here = Device::cpu().upload(&[5, 6, 7]).unwrap();
                let there = Device::cpu().stream().unwrap();
                for refused in [
                    stream.upload(&host, &mut here),
                    stream.upload(&[], &mut here),
                    stream.download(here.view(), &mut host),
                    there.upload(&host[..2], &mut x),
                    there.download(x.view(), &mut host),
                ] {
                    assert!(matches!(refused, Err(Error::DeviceMismatch { .. })), "{refused:?}");
                }
                assert_eq!(here.to_vec().unwrap(), [5, 6, 7]);
            }
        }
        stream.synchronize().unwrap();
        assert_eq!((&host[..], x.to_vec().unwrap()), (&[0; 3][..], vec![1, 2]), "{device}");
    }
}

#[test]
fn several_streams_and_threads_copy_side_by_side() {
    for device in devices() {
        thread::scope(|scope| {
            for thread in 0..4 {
                let device = &device;
                scope.spawn(move || {
                    let stream = device.stream().unwrap();
                    for round in 0..4 {
                        let data = samples(20_000, |hash| hash.rotate_left(8 * thread + round) as i32);
                        assert_eq!(sums_of_thousands(device, &stream, &data), expected(&data), "{device}");
                    }
                });
            }
        });
        // Several at a time from one thread.
        let data: Vec<_> = (0..3).map(|turn| samples(30_000, |hash| hash.rotate_left(turn) as i32)).collect();
        let streams = [(); 3].map(|()| device.stream().unwrap());
        let mut hosts = [(); 3].map(|()| device.pinned::<i32>(30_000).unwrap());
        let mut xs = [(); 3].map(|()| device.zeros::<i32>(30_000).unwrap());
        let mut results = [(); 3].map(|()| device.zeros::<i64>(1).unwrap());
        let mut sums = [(); 3].map(|()| device.pinned::<i64>(1).unwrap());
        for turn in 0..3 {
            hosts[turn].copy_from_slice(&data[turn]);
            let stream = &streams[turn];
            // SAFETY: all buffers live, unused otherwise, until the streams have been waited for.
            unsafe {
                stream.upload(&hosts[turn], &mut xs[turn]).unwrap();
                xs[turn].reduce_into::<Sum, 256>(stream, &mut results[turn]).unwrap();
                stream.download(results[turn].view(), &mut sums[turn]).unwrap();
            }
        }
        for turn in 0..3 {
            streams[turn].synchronize().unwrap();
            assert_eq!(Ok(sums[turn][0]), data[turn].reduce::<Sum, 256>(), "{turn} on {device}");
        }
    }
}

/// A graph copies the host's data of the time when it runs.
#[test]
fn a_graph_copies_what_is_there_when_it_runs() {
    let Some(device) = devices().pop().filter(|device| !device.is_cpu()) else { return };
    let _context = cust::context::Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    let stream = device.stream().unwrap();
    let raw: sys::CUstream = stream.as_raw().unwrap().cast();
    let mut host = device.pinned::<f32>(10_000).unwrap();
    let mut sum = device.pinned::<f32>(1).unwrap();
    let (mut x, mut result) = (device.zeros::<f32>(host.len()).unwrap(), device.zeros(1).unwrap());
    let (mut graph, mut executable) = (null_mut(), null_mut());
    // SAFETY: what is copied outlives the graph, and is used only when the stream has been waited for; the
    // stream is live, and the graph's executable is destroyed after its last use.
    unsafe {
        let mut enqueue = || {
            stream.upload(&host, &mut x).unwrap();
            x.reduce_into::<Sum, 256>(&stream, &mut result).unwrap();
            stream.download(result.view(), &mut sum).unwrap();
        };
        enqueue();
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        assert_eq!(sys::cuStreamSynchronize(raw), CUDA_SUCCESS);
        assert_eq!(sys::cuStreamBeginCapture_v2(raw, mode), CUDA_SUCCESS);
        enqueue();
        assert_eq!(sys::cuStreamEndCapture(raw, &mut graph), CUDA_SUCCESS);
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0), CUDA_SUCCESS);
    }
    for round in 0..10 {
        let data = samples(host.len(), |hash| (hash.rotate_left(round) % 1000) as f32 * 1e-3);
        host.copy_from_slice(&data);
        // SAFETY: as above.
        assert_eq!(unsafe { sys::cuGraphLaunch(executable, raw) }, CUDA_SUCCESS);
        stream.synchronize().unwrap();
        assert_eq!(Ok(sum[0]), data.reduce::<Sum, 256>(), "round {round}");
    }
    // SAFETY: as above.
    unsafe {
        assert_eq!(sys::cuGraphExecDestroy(executable), CUDA_SUCCESS);
        assert_eq!(sys::cuGraphDestroy(graph), CUDA_SUCCESS);
    }
}
