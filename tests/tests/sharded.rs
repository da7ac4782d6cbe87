//! Data on several devices: the bits of the same data on one device, whatever the shards' lengths.

use cust::sys::{self, cudaError_enum::CUDA_SUCCESS};
use gpu_reduce::emulator::{self, Settings};
use gpu_reduce::{
    ArgMax, Block, Buffer, Device, Devices, Dot, Element, Error, ExactSum, Item, Max, Min, Op, Reduce,
    Sharded, Stream, Sum, Threads, Var, View, bf16, f16, for_each_operator, for_each_pair_operator,
};
use std::fmt::Debug;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::Once;
use support::{Sample, devices, for_each_element, hash, samples};

/// All GPUs, or the three emulated ones if there is none. A single GPU stands for several.
pub fn several() -> Option<Devices> {
    static EMULATOR: Once = Once::new();
    EMULATOR.call_once(|| emulator::set_settings(Settings { devices: 3, ..emulator::settings() }));
    let gpu = devices().pop().filter(|device| !device.is_cpu())?;
    let all = Device::all().unwrap();
    assert_eq!(all.as_slice()[0], gpu);
    Some(all)
}

/// Where to cut `len` elements: nowhere, into halves, into unequal parts, and into parts within one chunk.
fn cuts(len: usize) -> Vec<Vec<usize>> {
    let at = |numerator: usize, denominator: usize| len * numerator / denominator;
    let mut cuts = vec![
        vec![len / 2],
        vec![1.min(len), 1.min(len), len],
        vec![at(1, 3), at(1, 3) + 3.min(len - at(1, 3)), at(9, 10)],
        (0..5).map(|index| hash(index + len as u64) as usize % (len + 1)).collect(),
        vec![(len / 2).next_multiple_of(4096).min(len)],
    ];
    cuts.iter_mut().for_each(|cuts| cuts.sort());
    cuts
}

/// The elements in shards that end at the cuts, on one device after the other. Each shard begins a few
/// elements into its buffer.
fn shards<T: Element>(devices: &Devices, data: &[T], cuts: &[usize]) -> Vec<(Buffer<T>, usize)> {
    let ends = cuts.iter().copied().chain([data.len()]);
    let mut start = 0;
    let parts = ends.zip(devices.as_slice().iter().cycle()).enumerate().map(|(index, (end, device))| {
        let skipped = index % 3;
        let padded: Vec<T> =
            data[..skipped.min(data.len())].iter().chain(&data[start..end]).copied().collect();
        start = end;
        (device.upload(&padded).unwrap(), skipped.min(data.len()))
    });
    parts.collect()
}

fn views<T: Element>(shards: &[(Buffer<T>, usize)]) -> Sharded<View<'_, T>> {
    let views = shards.iter().map(|(buffer, skipped)| buffer.slice(*skipped..).unwrap());
    Sharded::from(views.collect::<Vec<_>>())
}

fn shown(value: impl Debug) -> String {
    format!("{value:?}")
}

/// Blocking, pending and enqueued reductions of sharded data have the bits of the same reduction on the host.
fn compare<O: Op<D::Item, Output: Item> + Default, D: Reduce, H: Reduce<Item = D::Item>, const BLOCK: u32>(
    (sharded, host): (&D, &H),
    devices: &Devices,
    stream: &Stream,
    case: &str,
) where
    Threads<BLOCK>: Block,
{
    let case = format!("{} of {case}, BLOCK {BLOCK}", O::NAME);
    let expected = host.reduce::<O, BLOCK>();
    // Twice: what the first call leaves behind does not disturb the second.
    for _ in 0..2 {
        assert_eq!(shown(sharded.reduce::<O, BLOCK>()), shown(expected.clone()), "{case}");
        let pending = sharded.reduce_async::<O, BLOCK>(stream);
        assert_eq!(shown(pending.wait()), shown(expected.clone()), "{case}, launched");
    }
    let Ok(expected) = expected else { return };
    for device in devices.as_slice() {
        let mut results = device.zeros::<O::Output>(3).unwrap();
        for place in [1, 2] {
            // SAFETY: all stay until the stream has been waited for.
            unsafe { sharded.reduce_into::<O, BLOCK>(stream, results.slice_mut(place..).unwrap()).unwrap() };
        }
        stream.synchronize().unwrap();
        let got = results.to_vec().unwrap();
        assert_eq!(shown(&got[1..]), shown([expected, expected]), "{case}, enqueued on {device}");
    }
}

fn check<O: Op<T, Output: Item> + Default, T: Sample, const BLOCK: u32>(lengths: &[usize])
where
    Threads<BLOCK>: Block,
{
    let Some(devices) = several() else { return };
    let stream = devices.stream().unwrap();
    for &len in lengths {
        let data = samples(len, T::any);
        for cuts in cuts(len) {
            let buffers = shards(&devices, &data, &cuts);
            let case = format!("{len} {} cut at {cuts:?}", T::NAME);
            compare::<O, _, _, BLOCK>((&views(&buffers), &data), &devices, &stream, &case);
        }
    }
}

fn check_pairs<O: Op<(T, T), Output: Item> + Default, T: Sample, const BLOCK: u32>(len: usize)
where
    Threads<BLOCK>: Block,
{
    let Some(devices) = several() else { return };
    let stream = devices.stream().unwrap();
    let (a, b) = (samples(len, T::any), samples(len, |hash| T::any(hash.rotate_left(17))));
    for cuts in cuts(len) {
        let (of_a, of_b) = (shards(&devices, &a, &cuts), shards(&devices, &b, &cuts));
        let case = format!("{len} pairs of {} cut at {cuts:?}", T::NAME);
        let (first, second) = (views(&of_a), views(&of_b));
        compare::<O, _, _, BLOCK>((&(&first, &second), &(&a, &b)), &devices, &stream, &case);
        // Shards of pairs.
        let pairs = first.as_slice().iter().copied().zip(second.as_slice().iter().copied());
        let pairs = Sharded::from(pairs.collect::<Vec<_>>());
        let sum = pairs.reduce::<O, BLOCK>();
        assert_eq!(shown(sum), shown((&a, &b).reduce::<O, BLOCK>()), "{case}");
    }
}

macro_rules! test_operators {
    ({ $check:ident } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
        #[test]
        fn $name() {
            $check!($op);
        }
    )*};
}

macro_rules! of_elements {
    ($op:ident) => {
        check::<gpu_reduce::$op, f32, 64>(&[1, 2, 1_000, 40_001])
    };
}

macro_rules! of_pairs {
    ($op:ident) => {
        check_pairs::<gpu_reduce::$op, f32, 64>(30_001)
    };
}

for_each_operator! { test_operators! { of_elements } }
for_each_pair_operator! { test_operators! { of_pairs } }

#[test]
#[cfg_attr(not(part = "0"), ignore = "of part 0")]
fn types() {
    macro_rules! types {
        ({} $($type:ident: $($row:ident)*;)*) => {$(
            check::<Sum, $type, 32>(&[20_001]);
            check::<ArgMax, $type, 128>(&[20_001]);
        )*};
    }
    for_each_element! { types! {} }
    check::<ExactSum, f64, 256>(&[70_001, 300_000]);
    check::<ExactSum, f16, 32>(&[1, 20_001]);
    check_pairs::<Dot, bf16, 256>(20_001);
}

#[test]
fn several_operators() {
    let Some(devices) = several() else { return };
    let data = samples(70_001, f32::any);
    let buffers = shards(&devices, &data, &[12_345, 50_000]);
    let sharded = views(&buffers);
    // With one kernel, and with several.
    assert_eq!(sharded.reduce::<(Sum, Min, Max), 256>(), data.reduce::<(Sum, Min, Max), 256>());
    assert_eq!(sharded.reduce::<(Var, ArgMax, Sum), 256>(), data.reduce::<(Var, ArgMax, Sum), 256>());
    assert_eq!(gpu_reduce::mean(&sharded), gpu_reduce::mean(&data));
}

/// Chunks of several tiles; more of them if `GPU_REDUCE_TEST_LEN` is as long as an input.
#[test]
#[cfg_attr(not(part = "5"), ignore = "of part 5")]
fn long() {
    check::<Sum, f32, 256>(&[3 << 20]);
    check::<Var, f32, 512>(&[(3 << 20) + 1]);
    let longest = support::longest(0);
    if longest >= (5 << 20) + 12_345 {
        check::<Sum, f32, 256>(&[(5 << 20) + 12_345]);
    }
    if longest > 9 << 20 {
        check::<Sum, f32, 1024>(&[(9 << 20) + 1]);
    }
}

#[test]
#[cfg_attr(not(part = "2"), ignore = "of part 2")]
fn shapes() {
    let Some(devices) = several() else { return };
    let stream = devices.stream().unwrap();
    let len = 20_000;
    let data = samples(len, f32::any);
    let mut offsets: Vec<u32> = (0..500).map(|index| hash(index) as u32 % (len as u32 + 1)).collect();
    offsets.extend([0, len as u32, 10_000, 10_000, 7_000]);
    offsets.sort();
    for cuts in cuts(len) {
        let buffers = shards(&devices, &data, &cuts);
        let sharded = views(&buffers);
        let text = |result: Result<Buffer<f32>, Error>| shown(result.and_then(|buffer| buffer.to_vec()));
        for columns in [1, 100, 1_000, 20_000] {
            let case = format!("{columns} columns, cut at {cuts:?}");
            let shapes = [
                (sharded.rows(columns).unwrap(), data.rows(columns).unwrap()),
                (sharded.columns(columns).unwrap(), data.columns(columns).unwrap()),
            ];
            for (got, expected) in shapes {
                let expected_sums = text(expected.reduce::<Sum, 64>());
                assert_eq!(text(got.reduce::<Sum, 64>()), expected_sums, "{case}");
                assert_eq!(text(got.reduce::<Var, 256>()), text(expected.reduce::<Var, 256>()), "{case}");
                let pending = [got.reduce_async::<Sum, 64>(&stream), got.reduce_async::<Sum, 64>(&stream)];
                for pending in pending {
                    assert_eq!(text(pending.wait()), expected_sums, "{case}, launched");
                }
                for device in devices.as_slice() {
                    let mut results = device.zeros::<f32>(got.len()).unwrap();
                    for _ in 0..2 {
                        // SAFETY: all stay until the stream has been waited for.
                        unsafe { got.reduce_into::<Sum, 64>(&stream, &mut results).unwrap() };
                    }
                    stream.synchronize().unwrap();
                    assert_eq!(text(Ok(results)), expected_sums, "{case}, enqueued on {device}");
                }
            }
        }
        let (got, expected) = (sharded.segments(&offsets).unwrap(), data.segments(&offsets).unwrap());
        assert_eq!(text(got.reduce::<Sum, 64>()), text(expected.reduce::<Sum, 64>()), "cut at {cuts:?}");
        assert_eq!(
            text(got.by(Min).or(2.0).block::<64>().run()),
            text(expected.by(Min).or(2.0).block::<64>().run())
        );
        assert_eq!(text(got.reduce::<Min, 64>()), text(expected.reduce::<Min, 64>()));
        assert_eq!(text(got.reduce_async::<Sum, 64>(&stream).wait()), text(expected.reduce::<Sum, 64>()));
        let device = &devices.as_slice()[devices.as_slice().len() - 1];
        let on_device = device.upload(&offsets).unwrap();
        let got = sharded.segments(&on_device).unwrap();
        assert_eq!(text(got.reduce::<Sum, 64>()), text(expected.reduce::<Sum, 64>()));
        let mut results = device.zeros::<f32>(offsets.len() - 1).unwrap();
        // SAFETY: all stay.
        unsafe { got.reduce_into::<Sum, 64>(&stream, &mut results).unwrap() };
        stream.synchronize().unwrap();
        assert_eq!(text(Ok(results)), text(expected.reduce::<Sum, 64>()));
    }
    let buffers = shards(&devices, &data, &[10_000]);
    let bad = devices.as_slice()[0].upload(&[0u64, 15_000, 10_000]).unwrap();
    let error = views(&buffers).segments(&bad).unwrap().reduce::<Sum, 64>().map(|_| ());
    assert_eq!(error, Err(Error::BadOffset { index: 2, offset: 10_000, before: 15_000, len: 20_000 }));
}

/// Enqueued copies go through the host.
#[test]
#[cfg_attr(not(part = "5"), ignore = "of part 5")]
fn without_peer_access() {
    let Some(devices) = several() else { return };
    if !devices.as_slice()[0].is_emulator() {
        return eprintln!("skipped: GPUs cannot be told not to reach each other");
    }
    let tests = ["sum", "var", "dot", "exact_sum", "shapes"].map(|test| format!("sharded::{test}"));
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--include-ignored"]) // of other parts
        .args(tests)
        .env("GPU_REDUCE_EMULATOR_PEER_ACCESS", "0")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && output.contains("5 passed"), "{output}");
}

#[test]
#[cfg_attr(not(part = "4"), ignore = "of part 4")]
fn keys() {
    let Some(devices) = several() else { return };
    let len = 60_000;
    let values = samples(len, f32::any);
    for longest in [1, 50, 100_000] {
        let mut key = 0.0;
        let keys = samples(len, |hash| u8::from(hash % longest == 0)).into_iter().map(|is_next| {
            key += f32::from(is_next);
            if key % 7.0 == 0.0 { f32::NAN } else { key }
        });
        let keys: Vec<f32> = keys.collect();
        let expected = gpu_reduce::reduce_by_key(&keys, &values, Sum).unwrap();
        for cuts in cuts(len) {
            let (of_keys, of_values) = (shards(&devices, &keys, &cuts), shards(&devices, &values, &cuts));
            let (of_keys, of_values) = (views(&of_keys), views(&of_values));
            let got = gpu_reduce::reduce_by_key(&of_keys, &of_values, Sum).unwrap();
            let text = |(keys, sums): &(Buffer<f32>, Buffer<f32>)| shown((keys.to_vec(), sums.to_vec()));
            assert_eq!(text(&got), text(&expected), "runs of {longest}, cut at {cuts:?}");
            let runs = of_keys.runs().unwrap();
            let smallest = of_values.segments(&runs).unwrap().reduce::<Min, 64>().unwrap().to_vec();
            let alone = values.segments(&keys.runs().unwrap()).unwrap().reduce::<Min, 64>().unwrap().to_vec();
            assert_eq!(smallest, alone);
        }
    }
}

#[test]
fn uploads() {
    let Some(devices) = several() else { return };
    for len in [0, 1, 7, 100_000, 1_000_001] {
        let data = samples(len, i32::any);
        let x = devices.upload(&data).unwrap();
        assert_eq!(x.as_slice().len(), devices.as_slice().len());
        assert_eq!((Reduce::len(&x), x.to_vec().unwrap()), (len, data.clone()));
        assert_eq!(x.reduce::<Sum, 256>(), data.reduce::<Sum, 256>());
        assert_eq!(x.reduce::<Max, 256>(), data.reduce::<Max, 256>());
    }
    let none = Sharded::<Buffer<f32>>::from(Vec::new());
    assert_eq!((none.reduce::<Sum, 256>(), Reduce::len(&none)), (Ok(0.0), 0));
    assert_eq!(none.reduce::<Max, 256>(), Err(Error::EmptyInput { op: "max" }));
}

/// As many shards as a data frame's column may have chunks.
#[test]
fn many_shards() {
    let Some(devices) = several() else { return };
    let stream = devices.stream().unwrap();
    let data = samples(300_000, f32::any);
    let mut cuts: Vec<_> = (0..400).map(|index| hash(index) as usize % (data.len() + 1)).collect();
    cuts.sort();
    let buffers = shards(&devices, &data, &cuts);
    compare::<Sum, _, _, 64>((&views(&buffers), &data), &devices, &stream, "400 shards");
    compare::<Var, _, _, 256>((&views(&buffers), &data), &devices, &stream, "400 shards");
}

/// The CPU is a single device.
#[test]
fn the_cpu_alone() {
    let cpu = Devices::new([Device::cpu()]).unwrap();
    let data = samples(10_000, f32::any);
    let x = cpu.upload(&data).unwrap();
    assert_eq!(x.reduce::<Sum, 256>(), data.reduce::<Sum, 256>());
    assert_eq!(x.reduce_async::<Sum, 256>(&cpu.stream().unwrap()).wait(), data.reduce::<Sum, 256>());
    let halves = Sharded::from(vec![&data[..10], &data[10..]]);
    let error = halves.reduce::<Sum, 256>().unwrap_err();
    assert!(matches!(error, Error::SeveralDevices { .. }), "{error}");
}

#[test]
fn what_is_refused() {
    let twice = Devices::new([Device::cpu(), Device::cpu()]);
    assert!(matches!(twice, Err(Error::NotDistinct { .. })));
    assert!(matches!(Devices::new([]), Err(Error::NotDistinct { .. })));
    let Some(devices) = several() else { return };
    let device = devices.as_slice()[0].clone();
    let own = device.to_string();
    assert_eq!(
        Devices::new([device.clone(), device.clone()]),
        Err(Error::NotDistinct { device: own.clone() })
    );
    assert!(matches!(Devices::new([device.clone(), Device::cpu()]), Err(Error::NotDistinct { .. })));
    let streams = [device.stream().unwrap(), device.stream().unwrap()];
    assert_eq!(Stream::together(streams).err(), Some(Error::NotDistinct { device: own.clone() }));
    let streams = [device.stream().unwrap(), Device::cpu().stream().unwrap()];
    assert!(matches!(Stream::together(streams), Err(Error::NotDistinct { .. })));

    let data = samples(1_000, f32::any);
    let x = Sharded::from(vec![device.upload(&data[..600]).unwrap(), device.upload(&data[600..]).unwrap()]);
    let y = Sharded::from(vec![device.upload(&data[..500]).unwrap(), device.upload(&data[500..]).unwrap()]);
    let error = Error::ShardMismatch { first: "[600, 400]".into(), second: "[500, 500]".into() };
    assert_eq!((&x, &y).reduce::<Dot, 256>(), Err(error));
    let whole = device.upload(&data).unwrap();
    assert!(matches!((&x, &whole).reduce::<Dot, 256>(), Err(Error::ShardMismatch { .. })));
    let on_cpu = Device::cpu().upload(&data[..600]).unwrap();
    let mixed = Sharded::from(vec![on_cpu.view(), x.as_slice()[1].view()]);
    assert!(matches!(mixed.reduce::<Sum, 256>(), Err(Error::SeveralDevices { .. })));
    assert!(matches!(x.reduce_on::<Sum, 256>(&device), Err(Error::SeveralDevices { .. })));

    let stream = Device::cpu().stream().unwrap();
    assert!(matches!(
        x.reduce_async::<Sum, 256>(&stream).wait(),
        Err(Error::SeveralDevices { .. } | Error::DeviceMismatch { .. })
    ));
    let stream = devices.stream().unwrap();
    let mut result = Device::cpu().zeros::<f32>(1).unwrap();
    // SAFETY: nothing is enqueued.
    let error = unsafe { x.reduce_into::<Sum, 256>(&stream, &mut result) };
    assert!(matches!(error, Err(Error::DeviceMismatch { .. })), "{error:?}");
    let mut none = device.zeros::<f32>(0).unwrap();
    // SAFETY: as above.
    let error = unsafe { x.reduce_into::<Sum, 256>(&stream, &mut none) };
    assert!(matches!(error, Err(Error::OutOfBounds { .. })), "{error:?}");
    assert_eq!(x.reduce::<Sum, 256>(), data.reduce::<Sum, 256>());
}

/// Enqueued calls that a graph captures, whichever stream the capture begins in. Each replay reduces what the
/// shards hold then.
#[test]
fn graphs_replay_with_new_data() {
    let Some(devices) = several() else { return };
    let one = &devices.as_slice()[0];
    let _context = cust::context::Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    const LEN: usize = 60_000;
    for begin in 0..devices.as_slice().len() {
        let mut data = samples(LEN, f32::any);
        let mut buffers = shards(&devices, &data, &[17_001, 41_000]);
        let own: Vec<_> = devices.as_slice().iter().map(|device| device.stream().unwrap()).collect();
        let raw: Vec<sys::CUstream> = own.iter().map(|stream| stream.as_raw().unwrap().cast()).collect();
        let stream = Stream::together(own).unwrap();
        let mut results = one.zeros::<f32>(2).unwrap();
        let mut rows = one.zeros::<f32>(LEN / 100).unwrap();
        let mut columns = one.zeros::<f32>(100).unwrap();
        let mut enqueue = |buffers: &[(Buffer<f32>, usize)]| {
            let x = views(buffers);
            // SAFETY: the buffers outlive the graph; what is written between replays is when the streams have
            // been waited for.
            unsafe {
                x.reduce_into::<Sum, 64>(&stream, results.slice_mut(..1).unwrap())?;
                x.reduce_into::<Var, 64>(&stream, results.slice_mut(1..).unwrap())?;
                x.rows(100)?.reduce_into::<Sum, 64>(&stream, &mut rows)?;
                x.columns(100)?.reduce_into::<Max, 64>(&stream, &mut columns)
            }
        };
        let (mut graph, mut executable) = (null_mut(), null_mut());
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        enqueue(&buffers).unwrap();
        stream.synchronize().unwrap();
        // SAFETY: the stream is live, and the graph's executable is destroyed after its last use.
        unsafe {
            assert_eq!(sys::cuStreamBeginCapture_v2(raw[begin], mode), CUDA_SUCCESS);
            assert_eq!(views(&buffers).reduce_async::<Sum, 64>(&stream).wait(), Err(Error::Capture));
            enqueue(&buffers).unwrap();
            assert_eq!(sys::cuStreamEndCapture(raw[begin], &mut graph), CUDA_SUCCESS);
            assert_eq!(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0), CUDA_SUCCESS);
        }
        for round in 0..4 {
            let mut start = 0;
            for (buffer, skipped) in &mut buffers {
                let len = buffer.len() - *skipped;
                let part: Vec<f32> =
                    (start..start + len).map(|index| f32::any(hash((index + round * LEN) as u64))).collect();
                buffer.write(*skipped, &part).unwrap();
                data[start..start + len].copy_from_slice(&part);
                start += len;
            }
            // SAFETY: as above.
            assert_eq!(unsafe { sys::cuGraphLaunch(executable, raw[begin]) }, CUDA_SUCCESS);
            stream.synchronize().unwrap();
            let case = format!("round {round}, captured from stream {begin}");
            let expected = [data.reduce::<Sum, 64>().unwrap(), data.reduce::<Var, 64>().unwrap()];
            assert_eq!(shown(results.to_vec().unwrap()), shown(expected), "{case}");
            let sums: Vec<f32> = data.chunks(100).map(|row| row.reduce::<Sum, 64>().unwrap()).collect();
            assert_eq!(shown(rows.to_vec().unwrap()), shown(sums), "{case}");
            let column = |index: usize| data.iter().skip(index).step_by(100).copied().collect::<Vec<_>>();
            let most: Vec<f32> = (0..100).map(|index| column(index).reduce::<Max, 64>().unwrap()).collect();
            assert_eq!(shown(columns.to_vec().unwrap()), shown(most), "{case}");
        }
        // SAFETY: as above.
        unsafe {
            assert_eq!(sys::cuGraphExecDestroy(executable), CUDA_SUCCESS);
            assert_eq!(sys::cuGraphDestroy(graph), CUDA_SUCCESS);
        }
    }
}

/// Several threads, each with its own streams, or all with the same.
#[test]
fn threads() {
    let Some(devices) = several() else { return };
    let shared = devices.stream().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (devices, shared) = (&devices, &shared);
            scope.spawn(move || {
                let data = samples(50_000 + thread, f32::any);
                let buffers = shards(devices, &data, &[20_000 + 1_000 * thread]);
                let x = views(&buffers);
                let own = devices.stream().unwrap();
                let mut result =
                    devices.as_slice()[thread % devices.as_slice().len()].zeros::<f32>(1).unwrap();
                for _ in 0..5 {
                    let expected = data.reduce::<Sum, 64>();
                    assert_eq!(x.reduce::<Sum, 64>(), expected);
                    for stream in [&own, shared] {
                        let pending = x.reduce_async::<Sum, 64>(stream);
                        // SAFETY: all stay until the stream has been waited for.
                        unsafe { x.reduce_into::<Sum, 64>(stream, &mut result).unwrap() };
                        stream.synchronize().unwrap();
                        assert_eq!(result.to_vec().unwrap(), [expected.clone().unwrap()]);
                        assert_eq!(pending.wait(), expected);
                    }
                }
            });
        }
    });
}
