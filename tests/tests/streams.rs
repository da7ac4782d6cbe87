//! The caller's streams and memory: pending results, and streams and memory of cust and of other libraries.

use cust::memory::{CopyDestination, DeviceBuffer, LockedBuffer, UnifiedBuffer};
use cust::stream::{Stream as CustStream, StreamFlags};
use cust::sys::{self, cudaError_enum::CUDA_SUCCESS};
use gpu_reduce::{
    ArgMax, Both, Buffer, Device, Error, Max, Mean, Min, Pending, Reduce, Runs, Stream, Sum, Var, View,
    ViewMut,
};
use std::future::Future;
use std::ptr::without_provenance;
use std::sync::Arc;
use std::thread;
use support::{devices, lengths, samples};
use tokio::runtime::Builder;

/// The device under test that is not the CPU, with its primary context current on this thread.
fn gpu() -> Option<(Device, cust::context::Context)> {
    let device = devices().pop().filter(|device| !device.is_cpu())?;
    let context = cust::context::Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    Some((device, context))
}

/// Waits for the future in an executor of one thread.
fn block_on<F: Future>(future: F) -> F::Output {
    Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Tasks of tokio that await results, and one that leaves a reduction to a thread that may block.
#[test]
fn tasks_of_tokio() {
    let runtime = Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for device in devices() {
        let data = samples(70_000, |hash| (hash % 2000) as f32 * 1e-3 - 1.0);
        let expected = data.reduce::<Sum, 256>();
        let x = Arc::new(device.upload(&data).unwrap());
        let tasks: Vec<_> = (0..8)
            .map(|_| (device.clone(), x.clone()))
            .map(|(device, x)| {
                runtime.spawn(async move {
                    let stream = device.stream()?;
                    x.reduce_async::<Sum, 256>(&stream).await
                })
            })
            .collect();
        let blocking = runtime.spawn_blocking(move || gpu_reduce::sum(&*x));
        runtime.block_on(async {
            for task in tasks {
                assert_eq!(task.await.unwrap(), expected, "{device}");
            }
            assert_eq!(blocking.await.unwrap(), gpu_reduce::sum(&data), "{device}");
        });
    }
}

#[test]
fn pending_results_are_those_of_blocking_calls() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let data = samples(70_000, |hash| (hash % 2000) as f32 * 1e-3 - 1.0);
        let x = device.upload(&data).unwrap();
        for len in lengths::<f32, 64>(data.len()) {
            let (x, data) = (x.slice(data.len() - len..).unwrap(), &data[data.len() - len..]);
            let sum = x.reduce_async::<Sum, 64>(&stream);
            let spread = x.reduce_async::<Var, 256>(&stream);
            let both = x.reduce_async::<Both<Mean, Var>, 256>(&stream);
            let largest = x.by(ArgMax).block::<1024>().run_async(&stream);
            assert_eq!(largest.wait(), data.reduce::<ArgMax, 1024>(), "{len} on {device}");
            assert_eq!(sum.wait(), data.reduce::<Sum, 64>(), "{len} on {device}");
            let bits = |result: Result<f32, Error>| result.map(f32::to_bits);
            let of_both = bits(both.wait().map(|both| both.0));
            assert_eq!(of_both, bits(data.reduce::<Mean, 256>()), "{len} on {device}");
            assert_eq!(bits(spread.wait()), bits(data.reduce::<Var, 256>()), "{len} on {device}");
        }
        let pairs = (x.slice(..1000).unwrap(), x.slice(500..1500).unwrap());
        let expected = (&data[..1000], &data[500..1500]).reduce::<gpu_reduce::Dot, 128>();
        assert_eq!(pairs.reduce_async::<gpu_reduce::Dot, 128>(&stream).wait(), expected, "{device}");
    }
}

#[test]
fn many_are_pending_at_a_time_and_some_are_dropped() {
    for device in devices() {
        let data = samples(10_000, |hash| hash as i32);
        let x = device.upload(&data).unwrap();
        let stream = device.stream().unwrap();
        let parts: Vec<_> = (0..100).map(|index| x.slice(index * 50..).unwrap()).collect();
        let expected = |index: usize| data[index * 50..].reduce::<Sum, 128>();
        for _ in 0..3 {
            let pending: Vec<_> = parts.iter().map(|part| part.reduce_async::<Sum, 128>(&stream)).collect();
            for (index, pending) in pending.into_iter().enumerate().rev() {
                // A launch whose result nobody takes.
                if index % 3 == 0 {
                    drop(pending);
                } else {
                    assert_eq!(pending.wait(), expected(index), "{index} on {device}");
                }
            }
        }
        let pending = parts[7].reduce_async::<Sum, 128>(&stream);
        stream.synchronize().unwrap();
        assert!(pending.is_done());
        drop(stream);
        assert_eq!(pending.wait(), expected(7));
    }
}

#[test]
fn pending_results_are_futures() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    for device in devices() {
        let data = samples(1_000_000, |hash| hash as u8);
        let x = device.upload(&data).unwrap();
        let stream = device.stream().unwrap();
        let sum = async {
            let (sum, least) = (x.reduce_async::<Sum, 256>(&stream), x.reduce_async::<Min, 256>(&stream));
            let sums = x.rows(1000).unwrap().reduce_async::<Sum, 256>(&stream);
            (least.await, sum.await, sums.await.and_then(|sums| sums.to_vec()))
        };
        let rows = data.rows(1000).unwrap().reduce::<Sum, 256>().unwrap().to_vec();
        let expected = (data.reduce::<Min, 256>(), data.reduce::<Sum, 256>(), rows);
        assert_eq!(block_on(is_send(sum)), expected, "{device}");
    }
}

#[test]
fn errors_arrive_at_the_pending() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let x = device.upload(&[3i32, 1, 2]).unwrap();
        let none = x.slice(3..).unwrap();
        assert_eq!(none.reduce_async::<Max, 64>(&stream).wait(), Err(Error::EmptyInput { op: "max" }));
        assert_eq!(none.reduce_async::<Sum, 64>(&stream).wait(), Ok(0));
        let of = |error: Pending<Buffer<i32>>| error.wait().map(|_| ());
        let segments = x.segments(&[0u32, 2, 2, 3]).unwrap();
        assert_eq!(
            of(segments.reduce_async::<Max, 64>(&stream)),
            Err(Error::EmptySegment { op: "max", segment: 1 })
        );
        let largest = segments.by(Max).or(-1).block::<64>().run_async(&stream).wait().unwrap();
        assert_eq!(largest.to_vec().unwrap(), [3, -1, 2]);
        let offsets = device.upload(&[0u64, 2, 1, 9]).unwrap();
        if !device.is_cpu() {
            let wrong = x.segments(&offsets).unwrap();
            let expected = Error::BadOffset { index: 2, offset: 1, before: 2, len: 3 };
            assert_eq!(of(wrong.reduce_async::<Max, 64>(&stream)), Err(expected));
            // What bad calls leave behind disturbs no other call, not even one that is enqueued before they
            // are known to be bad.
            let data = samples(300_000, |hash| hash as i32);
            let many = device.upload(&data).unwrap();
            let bad = device.upload(&[0u64, 299_000, 150_000, 300_000, 5, 290_000]).unwrap();
            let good = [0u64, 150_000, 290_000, 300_000];
            let expected = data.segments(&good).unwrap().reduce::<Sum, 64>().unwrap().to_vec();
            let (bad, good) = (many.segments(&bad).unwrap(), many.segments(&good).unwrap());
            for _ in 0..5 {
                let wrong = [bad.reduce_async::<Sum, 64>(&stream), bad.reduce_async::<Sum, 64>(&stream)];
                let sums = good.reduce_async::<Sum, 64>(&stream);
                drop(bad.reduce_async::<Sum, 64>(&stream));
                let after = good.reduce_async::<Sum, 64>(&stream);
                assert!(
                    wrong
                        .into_iter()
                        .all(|wrong| matches!(wrong.wait(), Err(Error::BadOffset { index: 2, .. })))
                );
                assert_eq!(sums.wait().unwrap().to_vec(), expected);
                assert_eq!(after.wait().unwrap().to_vec(), expected);
            }
            // The stream still works.
            assert_eq!(x.reduce_async::<Sum, 64>(&stream).wait(), Ok(6));
            let here = [1i32, 2].reduce_async::<Sum, 64>(&stream).wait();
            assert!(matches!(here, Err(Error::DeviceMismatch { .. })), "{here:?}");
            let there = Device::cpu().stream().unwrap();
            let there = x.reduce_async::<Sum, 64>(&there).wait();
            assert!(matches!(there, Err(Error::DeviceMismatch { .. })), "{there:?}");
        }
    }
}

#[test]
fn shapes_are_pending() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let data = samples(6 * 7 * 50, |hash| (hash % 1000) as f64 * 0.5);
        let keys: Vec<_> = (0..data.len() as i32).map(|index| index / 9).collect();
        let x = device.upload(&data).unwrap();
        let runs = device.upload(&keys).unwrap().runs().unwrap();
        let offsets: Vec<_> = (0..=data.len() as u32).step_by(7).collect();
        let of_offsets = x.segments(&offsets).unwrap();
        let of_axes = x.reshape(&[6, 7, 50]).unwrap();
        let columns = x.columns(42).unwrap();
        let pending = [
            columns.reduce_async::<Sum, 32>(&stream),
            of_offsets.reduce_async::<Sum, 32>(&stream),
            of_axes.axis(1).unwrap().reduce_async::<Sum, 32>(&stream),
            x.segments(&runs).unwrap().reduce_async::<Sum, 32>(&stream),
        ];
        let on_host = data.reshape(&[6, 7, 50]).unwrap();
        let of_keys: Runs<i32> = keys.runs().unwrap();
        let expected = [
            data.columns(42).unwrap(),
            data.segments(&offsets).unwrap(),
            on_host.axis(1).unwrap(),
            data.segments(&of_keys).unwrap(),
        ];
        for (pending, expected) in pending.into_iter().zip(expected) {
            let expected = expected.reduce::<Sum, 32>().unwrap().to_vec();
            assert_eq!(pending.wait().unwrap().to_vec(), expected, "{device}");
        }
    }
}

/// A call on cust's streams, on the default streams and on ours sees the writes that were enqueued there
/// before.
#[test]
fn streams_of_others_are_in_order() {
    let Some((device, _context)) = gpu() else { return };
    let data = samples(100_000, |hash| hash as i32);
    let expected = data.reduce::<Sum, 256>().unwrap();
    let of_cust = CustStream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let own = device.stream().unwrap();
    let pinned = LockedBuffer::from_slice(&data).unwrap();
    let raw = |handle: usize| -> sys::CUstream { std::ptr::without_provenance_mut(handle) };
    // The legacy default stream by both names, and the thread's.
    for handle in [of_cust.as_inner(), own.as_raw().unwrap().cast(), raw(0), raw(1), raw(2)] {
        for _ in 0..3 {
            let x = DeviceBuffer::<i32>::zeroed(data.len()).unwrap();
            let mut sums = DeviceBuffer::<i64>::zeroed(2).unwrap();
            // SAFETY: the stream outlives the borrow, and the buffers live until it is waited for below.
            unsafe {
                let stream = device.stream_from_raw(handle.cast()).unwrap();
                let bytes = size_of_val(&data[..]);
                let copied = sys::cuMemcpyHtoDAsync_v2(
                    x.as_device_ptr().as_raw(),
                    pinned.as_ptr().cast(),
                    bytes,
                    handle,
                );
                assert_eq!(copied, CUDA_SUCCESS);
                let x = View::try_from(&x).unwrap();
                x.reduce_into::<Sum, 256>(&stream, ViewMut::try_from(&mut sums).unwrap()).unwrap();
                assert_eq!(x.reduce_async::<Sum, 256>(&stream).wait(), Ok(expected));
            }
            let mut results = [0; 2];
            sums.copy_to(&mut results).unwrap();
            assert_eq!(results, [expected, 0]);
        }
    }
    let stream = Stream::try_from(&of_cust).unwrap();
    assert_eq!(stream.device(), device);
    assert_eq!(device.upload(&data).unwrap().reduce_async::<Sum, 256>(&stream).wait(), Ok(expected));
}

/// The scratch memory of a dropped stream serves the next stream.
#[test]
fn threads_with_streams_of_their_own_mix_nothing() {
    let Some((device, _context)) = gpu() else { return };
    let threads = if device.is_emulator() { 4 } else { 32 };
    let data = samples(300_000, |hash| (hash % 1000) as f32 * 1e-3);
    let x = device.upload(&data).unwrap();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (device, x, data) = (&device, &x, &data);
            scope.spawn(move || {
                let part = thread * 1000..data.len() - 7 * thread;
                let expected = data[part.clone()].reduce::<Sum, 64>();
                let rows =
                    data[..1000 * (thread + 1)].rows(100).unwrap().reduce::<Max, 64>().unwrap().to_vec();
                for _ in 0..if device.is_emulator() { 2 } else { 20 } {
                    let stream = device.stream().unwrap();
                    let view = x.slice(part.clone()).unwrap();
                    let sums: Vec<_> = (0..5).map(|_| view.reduce_async::<Sum, 64>(&stream)).collect();
                    let of_rows = x.slice(..1000 * (thread + 1)).unwrap();
                    let of_rows = of_rows.rows(100).unwrap().reduce_async::<Max, 64>(&stream);
                    drop(stream);
                    assert!(sums.into_iter().all(|sum| sum.wait() == expected), "thread {thread}");
                    assert_eq!(of_rows.wait().unwrap().to_vec(), rows, "thread {thread}");
                }
            });
        }
    });
}

#[test]
fn memory_of_others_reduces_where_it_lies() {
    let Some((device, _context)) = gpu() else { return };
    let data = samples(10_001, |hash| hash as i16);
    let expected = data.reduce::<Sum, 256>();
    let buffer = DeviceBuffer::from_slice(&data).unwrap();
    assert_eq!(View::try_from(&buffer).unwrap().reduce::<Sum, 256>(), expected);
    assert_eq!(
        View::try_from(&buffer.index(1..)).unwrap().reduce::<Sum, 256>(),
        data[1..].reduce::<Sum, 256>()
    );
    assert_eq!(View::try_from(&buffer).unwrap().to_vec().unwrap(), data);
    // Our stream as one of cust's.
    let ours = device.upload(&data).unwrap();
    let mut copy = vec![0; 100];
    // SAFETY: the buffer outlives the slice and is only read.
    unsafe { ours.slice(5..105).unwrap().as_cust() }.unwrap().copy_to(&mut copy).unwrap();
    assert_eq!(copy, data[5..105]);
    // SAFETY: the slice is not used.
    let on_cpu = unsafe { Device::cpu().upload(&data).unwrap().view().as_cust() };
    assert!(matches!(on_cpu.map(drop), Err(Error::DeviceMismatch { .. })));
    let none = DeviceBuffer::<i16>::from_slice(&[]).unwrap();
    assert_eq!(View::try_from(&none).unwrap().reduce::<Sum, 256>(), Ok(0));
    let pinned = LockedBuffer::from_slice(&data).unwrap();
    let managed = UnifiedBuffer::from_slice(&data).unwrap();
    for first in [pinned.as_ptr(), managed.as_ptr()] {
        // SAFETY: the elements outlive the view, and nothing writes to them.
        let view = unsafe { device.view(first, data.len()) }.unwrap();
        assert_eq!(view.reduce::<Sum, 256>(), expected);
    }
    // SAFETY: the elements outlive the view.
    let view = unsafe { device.view(buffer.as_device_ptr().as_ptr(), data.len()) }.unwrap();
    assert_eq!(view.reduce::<Sum, 256>(), expected);
    let first = without_provenance::<i16>(buffer.as_device_ptr().as_raw() as usize);
    // SAFETY: memory that does not exist is rejected, and nothing is read.
    unsafe {
        let past = device.view(first, data.len() + 1_000_000).map(|_| ());
        assert!(matches!(past, Err(Error::OutOfBounds { start: 0, .. })), "{past:?}");
        let unaligned = device.view(first.byte_add(1), 5).map(|_| ());
        let address = first.addr() as u64 + 1;
        assert_eq!(unaligned, Err(Error::Unaligned { address, align: 2 }));
        let on_host = device.view(data.as_ptr(), data.len()).map(|_| ());
        assert!(matches!(on_host, Err(Error::Driver { .. })), "{on_host:?}");
    }
}

/// The context of another library: neither memory nor streams in it are the device's own.
#[test]
fn what_is_of_another_context_is_refused() {
    use cust::context::legacy::{Context, ContextFlags, ContextStack};
    let Some((device, _context)) = gpu() else { return };
    let raw = cust::device::Device::get_device(0).unwrap();
    let other = Context::create_and_push(ContextFlags::SCHED_AUTO, raw).unwrap();
    let (memory, stream) = (
        DeviceBuffer::from_slice(&[1i32, 2]).unwrap(),
        CustStream::new(StreamFlags::NON_BLOCKING, None).unwrap(),
    );
    let refused = View::try_from(&memory).map(|_| ());
    assert!(matches!(&refused, Err(Error::ContextMismatch { what: "the memory", .. })), "{refused:?}");
    let refused = Stream::try_from(&stream).map(|_| ());
    assert!(matches!(&refused, Err(Error::ContextMismatch { what: "the stream", .. })), "{refused:?}");
    // The device's own memory and streams still work from there.
    assert_eq!(
        device.upload(&[1i32, 2]).unwrap().reduce_async::<Sum, 32>(&device.stream().unwrap()).wait(),
        Ok(3)
    );
    drop((memory, stream));
    ContextStack::pop().unwrap();
    drop(other);
}
