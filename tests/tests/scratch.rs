//! The caller's scratch memory: a call uses as many bytes as it says, and no more.

use cust::stream::{Stream as CustStream, StreamFlags};
use cust::sys::{self, cudaError_enum::CUDA_SUCCESS};
use gpu_reduce::{
    ArgMin, Buffer, Device, Error, Item, Max, Mean, Op, Reduce, Runs, Segments, Stream, Sum, Var, View,
};
use std::fmt::Debug;
use std::ptr::null_mut;
use support::{devices, samples};

/// Guard words before and after the memory that is lent.
const GUARD: usize = 64;

/// Lends `bytes` bytes, which are not zero, to a stream, and calls `work`. Panics if `work` changed the
/// memory before or after them.
fn lent(device: &Device, bytes: usize, work: impl FnOnce(&Stream)) {
    let words = bytes.div_ceil(8);
    let before = vec![0x0123_4567_89ab_cdef; GUARD + words + GUARD];
    let mut memory = device.upload(&before).unwrap();
    {
        let scratch = memory.slice_mut(GUARD..GUARD + words).unwrap();
        // SAFETY: nothing else uses the memory until the stream has been waited for.
        let stream = unsafe { device.stream().unwrap().with_scratch(scratch) }.unwrap();
        work(&stream);
        stream.synchronize().unwrap();
    }
    let after = memory.to_vec().unwrap();
    assert_eq!(after[..GUARD], before[..GUARD], "{device}");
    assert_eq!(after[GUARD + words..], before[GUARD + words..], "{device}");
}

fn check<O: Op<f32, Output: Item + Debug> + Default>(x: View<f32>) {
    let device = x.device();
    let bytes = x.by(O::default()).block::<64>().scratch_bytes();
    assert_eq!(bytes == 0, device.is_cpu());
    let expected = x.reduce::<O, 64>().unwrap();
    let mut result = device.zeros::<O::Output>(3).unwrap();
    lent(&device, bytes, |stream| {
        for place in 0..3 {
            // SAFETY: both stay.
            unsafe { x.reduce_into::<O, 64>(stream, result.slice_mut(place..).unwrap()) }.unwrap();
        }
    });
    assert_eq!(result.to_vec().unwrap(), [expected; 3], "{} of {} on {device}", O::NAME, x.len());
}

#[test]
fn a_reduction_takes_what_it_says() {
    for device in devices() {
        let x = device.upload(&samples(70_000, |hash| (hash % 1000) as f32)).unwrap();
        for len in [1, 100, 2049, 5000, 70_000] {
            let x = x.slice(..len).unwrap();
            check::<Sum>(x);
            check::<Mean>(x);
            check::<Var>(x);
            check::<ArgMin>(x);
        }
    }
}

fn check_segments(segments: Segments<'_, View<'_, f32>>, device: &Device, what: &str) {
    let bytes = segments.by(Sum).block::<64>().scratch_bytes();
    let expected = segments.reduce::<Sum, 64>().unwrap().to_vec().unwrap();
    let mut results = device.zeros::<f32>(expected.len()).unwrap();
    lent(device, bytes, |stream| {
        for _ in 0..2 {
            // SAFETY: all stay.
            unsafe { segments.reduce_into::<Sum, 64>(stream, &mut results) }.unwrap();
            stream.synchronize().unwrap();
        }
    });
    assert_eq!(results.to_vec().unwrap(), expected, "{what} on {device}");
    lent(device, bytes, |stream| {
        assert_eq!(
            segments.reduce_async::<Sum, 64>(stream).wait().unwrap().to_vec().unwrap(),
            expected,
            "{what} on {device}"
        );
    });
}

#[test]
#[cfg_attr(not(part = "2"), ignore = "of part 2")]
fn segments_rows_and_columns_take_what_they_say() {
    for device in devices() {
        let x = device.upload(&samples(60_000, |hash| (hash % 1000) as f32)).unwrap();
        for columns in [1, 3, 100, 3000, 30_000] {
            check_segments(x.rows(columns).unwrap(), &device, "rows");
            check_segments(x.columns(columns).unwrap(), &device, "columns");
        }
        for step in [1, 2, 7, 500, 40_000] {
            let offsets: Vec<u32> = (0..=60_000).step_by(step).collect();
            let offsets = device.upload(&offsets).unwrap();
            check_segments(x.segments(&offsets).unwrap(), &device, "segments");
        }
    }
}

#[test]
fn keys_and_their_values_take_the_sum() {
    for device in devices() {
        let keys: Vec<u16> = (0..20_000u32).map(|index| (index / 17) as u16).collect();
        let values = samples(keys.len(), |hash| hash as i32);
        let (keys, values) = (device.upload(&keys).unwrap(), device.upload(&values).unwrap());
        let mut runs = Runs::with_capacity(&device, keys.len(), 2000).unwrap();
        let of_values = values.segments(&runs).unwrap().by(Sum).block::<256>().scratch_bytes();
        let bytes = runs.scratch_bytes() + of_values;
        let mut sums: Buffer<i64> = device.zeros(2000).unwrap();
        lent(&device, bytes, |stream| {
            // SAFETY: all buffers live until the stream has been waited for.
            unsafe {
                runs.find(&keys, stream).unwrap();
                values.segments(&runs).unwrap().reduce_into::<Sum, 256>(stream, &mut sums).unwrap();
            }
        });
        let (_, expected) = gpu_reduce::reduce_by_key(&keys, &values, Sum).unwrap();
        assert_eq!(sums.slice(..expected.len()).unwrap().to_vec(), expected.to_vec(), "{device}");
    }
}

#[test]
fn what_is_too_little_is_told() {
    for device in devices().into_iter().filter(|device| !device.is_cpu()) {
        let x = device.upload(&samples(70_000, |hash| hash as i32)).unwrap();
        let bytes = x.by(Sum).block::<32>().scratch_bytes();
        let mut sum = device.zeros::<i64>(1).unwrap();
        lent(&device, bytes - 8, |stream| {
            // SAFETY: both stay.
            let why = unsafe { x.reduce_into::<Sum, 32>(stream, &mut sum) };
            assert_eq!(why, Err(Error::Scratch { needed: bytes, left: (bytes - 8).next_multiple_of(8) }));
            // A reduction that needs less has enough.
            // SAFETY: both buffers live until the stream has been waited for.
            unsafe {
                x.slice(..100)
                    .unwrap()
                    .reduce_into::<Max, 32>(stream, device.zeros::<i32>(1).unwrap().view_mut())
            }
            .unwrap();
            assert_eq!(x.reduce_async::<Sum, 32>(&device.stream().unwrap()).wait(), x.reduce::<Sum, 32>());
        });
        // A refused call has used no scratch memory.
        let rows = x.rows(7).unwrap();
        let bytes = rows.by(Sum).block::<32>().scratch_bytes();
        let mut sums = device.zeros::<i64>(rows.len()).unwrap();
        lent(&device, bytes, |stream| {
            let all = x.segments(&[0u32, 10_000, 69_000, 70_000]).unwrap();
            assert!(all.by(Sum).block::<32>().scratch_bytes() > bytes);
            // SAFETY: all stay.
            unsafe {
                let offsets = device.upload(&[0u32, 10_000, 69_000, 70_000]).unwrap();
                let all = x.segments(&offsets).unwrap();
                let why = all.reduce_into::<Sum, 32>(stream, &mut sums);
                assert!(matches!(why, Err(Error::Scratch { .. })), "{why:?}");
                rows.reduce_into::<Sum, 32>(stream, &mut sums).unwrap();
            }
        });
        // Memory of another device.
        let mut other = Device::cpu().zeros::<u64>(100).unwrap();
        // SAFETY: the memory outlives the call.
        let why = unsafe { device.stream().unwrap().with_scratch(other.view_mut()) };
        assert!(matches!(why.map(drop), Err(Error::DeviceMismatch { .. })));
    }
}

/// A graph takes all its scratch memory from what the caller has lent, and clears it each time it runs.
#[test]
fn graphs_clear_what_was_lent() {
    let Some(device) = devices().pop().filter(|device| !device.is_cpu()) else { return };
    let _context = cust::context::Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    let x = device.upload(&samples(40_000, |hash| (hash % 100) as f32)).unwrap();
    let at = device.upload(&(0..40_000).map(|place| place % 7).collect::<Vec<u32>>()).unwrap();
    let (rows, columns) = (x.rows(20_000).unwrap(), x.columns(10).unwrap());
    let groups = x.by_index(&at, 7).unwrap();
    let bytes = [
        x.by(Sum).block::<64>().scratch_bytes(),
        rows.by(Sum).block::<64>().scratch_bytes(),
        columns.by(Sum).block::<64>().scratch_bytes(),
        groups.add_scratch_bytes(),
    ];
    assert!(bytes.iter().all(|&bytes| bytes > 0), "{bytes:?}");
    let garbage = vec![0x0123_4567_89ab_cdef; bytes.iter().sum::<usize>().div_ceil(8)];
    let mut scratch = device.upload(&garbage).unwrap();
    let mut sums = device.zeros::<f32>(20).unwrap();
    let handle = CustStream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let raw = handle.as_inner();
    let mut run = |stream: &Stream| {
        // SAFETY: all stay until the graph has run.
        unsafe {
            x.reduce_into::<Sum, 64>(stream, sums.slice_mut(0..).unwrap()).unwrap();
            rows.reduce_into::<Sum, 64>(stream, sums.slice_mut(1..).unwrap()).unwrap();
            columns.reduce_into::<Sum, 64>(stream, sums.slice_mut(3..).unwrap()).unwrap();
            groups.add_into(stream, sums.slice_mut(13..).unwrap()).unwrap();
        }
    };
    // Loads the kernels.
    let first = device.stream().unwrap();
    assert!(!first.is_capturing().unwrap());
    run(&first);
    first.synchronize().unwrap();
    let (mut graph, mut executable) = (null_mut(), null_mut());
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the streams are live; the graph is destroyed after its last run.
    unsafe {
        assert_eq!(sys::cuStreamBeginCapture_v2(raw, mode), CUDA_SUCCESS);
        let lent = Stream::try_from(&handle).unwrap().with_scratch(scratch.view_mut()).unwrap();
        assert!(lent.is_capturing().unwrap());
        run(&lent);
        drop(lent);
        assert_eq!(sys::cuStreamEndCapture(raw, &mut graph), CUDA_SUCCESS);
        assert_eq!(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0), CUDA_SUCCESS);
    }
    let mut expected = vec![x.reduce::<Sum, 64>().unwrap()];
    expected.extend(rows.reduce::<Sum, 64>().unwrap().to_vec().unwrap());
    expected.extend(columns.reduce::<Sum, 64>().unwrap().to_vec().unwrap());
    expected.extend(groups.reduce::<Sum, 64>().unwrap().to_vec().unwrap());
    for _ in 0..3 {
        scratch.write(0, &garbage).unwrap();
        sums.write(0, &[0.0; 20]).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { sys::cuGraphLaunch(executable, raw) }, CUDA_SUCCESS);
        handle.synchronize().unwrap();
        assert_eq!(sums.to_vec().unwrap(), expected);
    }
    // SAFETY: as above.
    unsafe {
        assert_eq!(sys::cuGraphExecDestroy(executable), CUDA_SUCCESS);
        assert_eq!(sys::cuGraphDestroy(graph), CUDA_SUCCESS);
    }
}
