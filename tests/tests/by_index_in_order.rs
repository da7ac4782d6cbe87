//! Reductions by index of sorted items that are enqueued on a stream, on every device, against the call that
//! waits.

use crate::by_index::{assert_same, indices};
use cust::sys::{self, cudaError_enum::CUDA_SUCCESS};
use gpu_reduce::{
    Buffer, ByIndex, Cosine, Data, Device, Dot, Error, Item, LogSumExp, NanMean, NanVar, Op, Prod, Reduce,
    Stream, Sum, SumSq,
};
use std::fmt::Debug;
use std::ptr::null_mut;
use support::{Sample, devices, is_taken, samples};

/// Calls `work` with a stream that has `bytes` bytes of scratch memory, waits, and checks that no others were
/// written.
fn lent(device: &Device, bytes: usize, work: impl FnOnce(&Stream)) {
    const GUARD: usize = 32;
    let words = GUARD..GUARD + bytes.div_ceil(8);
    let before = vec![0x5a5a_a5a5_1234_fedc; words.end + GUARD];
    let mut memory = device.upload::<u64>(&before).unwrap();
    {
        let scratch = memory.slice_mut(words.clone()).unwrap();
        // SAFETY: nothing else uses the memory until the stream has been waited for.
        let stream = unsafe { device.stream().unwrap().with_scratch(scratch) }.unwrap();
        work(&stream);
        stream.synchronize().unwrap();
    }
    let after = memory.to_vec().unwrap();
    assert_eq!(after[..words.start], before[..words.start], "{device}");
    assert_eq!(after[words.end..], before[words.end..], "{device}");
}

/// Checks each call that enqueues against the one that waits.
fn check<'a, D: Data<'a>, O: Op<D::Item, Output = V>, V: Item + Debug>(
    groups: &ByIndex<'a, D>,
    (op, default): (O, V),
    device: &Device,
    streams: &[Stream; 2],
) {
    let case = format!("{} by {} on {device}", O::NAME, groups.len());
    let expected = groups.by(op).or(default).run().unwrap().to_vec().unwrap();
    let bytes = groups.by(op).scratch_bytes();
    assert_eq!(bytes == 0, device.is_cpu(), "{case}");
    let mut results: [Buffer<V>; 3] =
        std::array::from_fn(|_| device.upload(&vec![default; groups.len() + 1]).unwrap());
    let [first, second, of_lent] = &mut results;
    // SAFETY: all of them stay until the streams have been synchronized.
    unsafe {
        groups.by(op).or(default).run_into(&streams[0], first).unwrap();
        groups.by(op).or(default).run_into(&streams[1], second).unwrap();
        lent(device, bytes, |stream| {
            // The second call uses the memory of the first.
            groups.by(op).or(default).run_into(stream, &mut *of_lent).unwrap();
            groups.by(op).or(default).run_into(stream, of_lent).unwrap();
        });
    }
    let pending = streams.each_ref().map(|stream| groups.by(op).or(default).run_async(stream));
    for pending in pending {
        assert_same(&pending.wait().unwrap().to_vec().unwrap(), &expected, &case);
    }
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    for results in results {
        let results = results.to_vec().unwrap();
        assert_same(&results[..groups.len()], &expected, &case);
        assert_same(&results[groups.len()..], &[default], &case);
    }
    let error = groups.by(op).run().map(|results| results.to_vec().unwrap());
    let pending = groups.by(op).run_async(&streams[0]).wait().map(|results| results.to_vec().unwrap());
    match (pending, error) {
        (Ok(results), Ok(expected)) => assert_same(&results, &expected, &case),
        (results, expected) => assert_eq!(results.map(drop), expected.map(drop), "{case}"),
    }
}

/// Lengths, numbers of results, and distributions of indices: one pass and several, one block and several,
/// short segments and long ones.
const CASES: [(usize, usize, usize); 5] = [(0, 3, 0), (9000, 2, 0), (4097, 40, 1), (2000, 700, 0), (1, 1, 0)];

#[test]
fn calls_that_enqueue_give_what_calls_that_wait_do() {
    fn of<T: Sample, O: Op<T, Output: Item + Debug> + Default>(taken: usize) {
        for device in devices() {
            let streams = [device.stream().unwrap(), device.stream().unwrap()];
            for (case, (len, count, distribution)) in CASES.into_iter().enumerate() {
                if !is_taken(case + taken) {
                    continue;
                }
                let x = device.upload(&samples(len, T::any)).unwrap();
                let at = indices(len, count, distribution);
                // Words of both sizes.
                let long =
                    device.upload(&at.iter().map(|&index| i64::from(index)).collect::<Vec<_>>()).unwrap();
                let at = device.upload(&at).unwrap();
                let groups =
                    if case % 2 == 0 { x.by_index(&at, count) } else { x.by_index(&long, count) }.unwrap();
                check(&groups, (O::default(), bytemuck::Zeroable::zeroed()), &device, &streams);
            }
        }
    }
    of::<i8, Prod>(0);
    of::<u16, NanVar>(1);
    of::<f32, Prod>(2);
    of::<f32, LogSumExp>(0);
    of::<f64, SumSq>(1);
    of::<f64, NanMean>(2);
}

/// Indices that are sorted in three passes, and a wrong one among them.
#[test]
fn many_results_are_enqueued() {
    let (len, count) = (3000, 270_000);
    for device in devices() {
        let x = device.upload(&samples(len, f64::any)).unwrap();
        let at = device.upload(&indices(len, count, 0)).unwrap();
        let groups = x.by_index(&at, count).unwrap();
        let expected = groups.by(SumSq).or(0.0).run().unwrap().to_vec().unwrap();
        let wrong = device.upload(&[&[count as u32], &indices(len - 1, count, 0)[..]].concat()).unwrap();
        let of_wrong = x.by_index(&wrong, count).unwrap();
        let mut results = device.zeros::<f64>(count).unwrap();
        lent(&device, groups.by(SumSq).scratch_bytes(), |stream| {
            // SAFETY: all of them stay until the stream has been synchronized.
            unsafe {
                groups.by(SumSq).run_into(stream, &mut results).unwrap();
                if !device.is_cpu() {
                    of_wrong.by(SumSq).or(1.0).run_into(stream, &mut results).unwrap();
                }
            }
        });
        assert_same(&results.to_vec().unwrap(), &expected, &device.to_string());
    }
}

/// Pairs of arrays are copied in the order of places, and arrays with other alignments too.
#[test]
fn pairs_are_enqueued() {
    let (len, count) = (5000, 90);
    for device in devices() {
        let streams = [device.stream().unwrap(), device.stream().unwrap()];
        let (x, y) = (samples(len + 1, f32::any), samples(len, |hash| f32::any(hash + 9)));
        let (x, y) = (device.upload(&x).unwrap(), device.upload(&y).unwrap());
        let at = device.upload(&indices(len, count, 1)).unwrap();
        let pair = (x.slice(1..).unwrap(), y.view());
        let groups = pair.by_index(&at, count).unwrap();
        check(&groups, (Dot, 7.0), &device, &streams);
        check(&groups, (Cosine, 7.0), &device, &streams);
    }
}

#[test]
fn a_wrong_index_writes_nothing() {
    let (len, count) = (5000, 300);
    for device in devices().into_iter().filter(|device| !device.is_cpu()) {
        let stream = device.stream().unwrap();
        let x = samples(len, f64::any);
        let x = device.upload(&x).unwrap();
        let right: Vec<i32> = indices(len, count, 0).into_iter().map(|index| index as i32).collect();
        let on_device = device.upload(&right).unwrap();
        let groups = x.by_index(&on_device, count).unwrap();
        let expected = groups.by(Prod).or(2.0).run().unwrap().to_vec().unwrap();
        for (place, index) in [(0, -1), (4999, 300), (1234, i32::MAX)] {
            let mut wrong = right.clone();
            (wrong[place], wrong[(place + 4990).min(4999)]) = (index, index);
            let wrong = device.upload(&wrong).unwrap();
            let of_wrong = x.by_index(&wrong, count).unwrap();
            let mut results = device.upload(&vec![0.25; count]).unwrap();
            let mut after = device.upload(&vec![0.25; count]).unwrap();
            // SAFETY: all of them stay until the stream has been synchronized.
            unsafe {
                of_wrong.by(Prod).or(2.0).run_into(&stream, &mut results).unwrap();
                of_wrong.reduce_into::<Prod, 64>(&stream, &mut results).unwrap();
                groups.by(Prod).or(2.0).run_into(&stream, &mut after).unwrap();
            }
            let error = of_wrong.by(Prod).run_async(&stream);
            let next = groups.by(Prod).or(2.0).run_async(&stream);
            let error = error.wait().map(drop);
            assert_eq!(error, Err(Error::BadIndex { place: place as u64, index: index.into(), count }));
            assert_same(&next.wait().unwrap().to_vec().unwrap(), &expected, "the next call");
            assert_same(&results.to_vec().unwrap(), &vec![0.25; count], "a wrong index");
            assert_same(&after.to_vec().unwrap(), &expected, "the next call");
        }
        // No index is right, and items of no indices are none.
        let mut none = device.zeros::<f64>(0).unwrap();
        let of_none = x.by_index(&on_device, 0).unwrap();
        // SAFETY: as above.
        unsafe { of_none.reduce_into::<Prod, 256>(&stream, &mut none).unwrap() };
        let error = of_none.reduce_async::<Prod, 256>(&stream).wait().map(drop);
        assert!(matches!(error, Err(Error::BadIndex { place: 0, .. })), "{error:?}");
        stream.synchronize().unwrap();
    }
}

/// A call that is captured and replayed with other items, other indices, and a wrong one. The stream's memory
/// is its own or lent.
#[test]
#[cfg_attr(not(part = "2"), ignore = "of part 2")]
fn a_graph_replays_with_new_items_and_indices() {
    let Some(device) = devices().pop().filter(|device| !device.is_cpu()) else { return };
    let _context = cust::context::Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    let (len, count) = (5000, 600);
    let (mut x, mut at) = (device.zeros::<f32>(len).unwrap(), device.zeros::<u32>(len).unwrap());
    let y = device.upload(&samples(len, f32::any)).unwrap();
    let mut products = device.zeros::<f32>(count).unwrap();
    let mut dots = device.zeros::<f32>(count).unwrap();
    let bytes = {
        let groups = x.by_index(&at, count).unwrap();
        let pairs = (&x, &y);
        let pairs = pairs.by_index(&at, count).unwrap();
        groups.by(Prod).scratch_bytes() + pairs.by(Dot).scratch_bytes()
    };
    let mut scratch = device.zeros::<u64>(bytes / 8).unwrap();
    // SAFETY: nothing else uses the memory as long as the stream and the graph are there.
    let of_lent = unsafe { device.stream().unwrap().with_scratch(scratch.view_mut()) }.unwrap();
    for stream in [device.stream().unwrap(), of_lent] {
        let raw: sys::CUstream = stream.as_raw().unwrap().cast();
        let mut enqueue = || {
            // SAFETY: the buffers outlive the graph. The stream has been waited for whenever they are
            // written.
            unsafe {
                let groups = x.by_index(&at, count).unwrap();
                groups.by(Prod).or(3.0).run_into(&stream, &mut products).unwrap();
                let pairs = (&x, &y);
                let pairs = pairs.by_index(&at, count).unwrap();
                pairs.by(Dot).run_into(&stream, &mut dots).unwrap();
            }
        };
        enqueue();
        let (mut graph, mut executable) = (null_mut(), null_mut());
        // SAFETY: the stream is live, and the graph's executable is destroyed after its last use.
        unsafe {
            let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            assert_eq!(sys::cuStreamSynchronize(raw), CUDA_SUCCESS);
            assert_eq!(sys::cuStreamBeginCapture_v2(raw, mode), CUDA_SUCCESS);
            enqueue();
            assert_eq!(sys::cuStreamEndCapture(raw, &mut graph), CUDA_SUCCESS);
            assert_eq!(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0), CUDA_SUCCESS);
        }
        let mut before = (products.to_vec().unwrap(), dots.to_vec().unwrap());
        for round in 0..4 {
            x.write(0, &samples(len, |hash| f32::any(hash ^ round))).unwrap();
            let mut host = indices(len, count, [0, 4, 1, 2][round as usize]);
            if round == 2 {
                host[4321] = count as u32;
            }
            at.write(0, &host).unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { sys::cuGraphLaunch(executable, raw) }, CUDA_SUCCESS);
            stream.synchronize().unwrap();
            if round != 2 {
                let groups = x.by_index(&at, count).unwrap();
                let pairs = (&x, &y);
                let pairs = pairs.by_index(&at, count).unwrap();
                before = (
                    groups.by(Prod).or(3.0).run().unwrap().to_vec().unwrap(),
                    pairs.by(Dot).or(0.0).run().unwrap().to_vec().unwrap(),
                );
            }
            let case = format!("round {round}");
            assert_same(&products.to_vec().unwrap(), &before.0, &case);
            assert_same(&dots.to_vec().unwrap(), &before.1, &case);
        }
        // SAFETY: as above.
        unsafe {
            assert_eq!(sys::cuGraphExecDestroy(executable), CUDA_SUCCESS);
            assert_eq!(sys::cuGraphDestroy(graph), CUDA_SUCCESS);
        }
    }
}

/// Calls of all kinds on one stream share its memory.
#[test]
fn calls_of_all_kinds_mix_on_a_stream() {
    let (len, count) = (5000, 50);
    for device in devices() {
        let stream = device.stream().unwrap();
        let x = device.upload(&samples(len, f32::any)).unwrap();
        let at = device.upload(&indices(len, count, 0)).unwrap();
        let few = device.upload(&indices(100, count, 0)).unwrap();
        let first = x.slice(..100).unwrap();
        let (groups, of_few) = (x.by_index(&at, count).unwrap(), first.by_index(&few, count).unwrap());
        let pending = [
            groups.by(Prod).or(0.5).run_async(&stream),
            of_few.by(Prod).or(0.5).run_async(&stream),
            groups.by(Sum).or(0.5).run_async(&stream),
            x.rows(100).unwrap().reduce_async::<Prod, 256>(&stream),
            groups.by(Prod).or(0.5).run_async(&stream),
        ];
        let expected = [
            groups.by(Prod).or(0.5).run(),
            of_few.by(Prod).or(0.5).run(),
            groups.by(Sum).or(0.5).run(),
            x.rows(100).unwrap().reduce::<Prod, 256>(),
            groups.by(Prod).or(0.5).run(),
        ];
        for (pending, expected) in pending.into_iter().zip(expected) {
            let expected = expected.unwrap().to_vec().unwrap();
            assert_same(&pending.wait().unwrap().to_vec().unwrap(), &expected, &device.to_string());
        }
    }
}
