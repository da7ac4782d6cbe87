//! Runs of equal neighbouring keys and reductions by them. A loop over the keys finds the same runs, and each
//! run has the bits of reducing its slice.

use cust::sys::{self, cudaError_enum::CUDA_SUCCESS};
use gpu_reduce::{
    ArgMax, Buffer, Device, Element, Error, ExactSum, Item, Max, Mean, Op, Parameterless, Reduce, Runs, Sum,
    Var, View, bf16, f16, reduce_by_key,
};
use std::ops::Range;
use std::ptr::null_mut;
use support::{Sample, devices, for_each_element, hash, is_of_part, is_taken, samples};

/// Keys in a tile of the kernel.
const TILE: usize = 8192;

/// Compares keys as NumPy's `unique` does.
#[allow(clippy::eq_op)]
fn is_same<K: Element>(a: K, b: K) -> bool {
    a == b || (a != a && b != b)
}

/// The runs' offsets.
fn ranges<K: Element>(keys: &[K]) -> Vec<Range<usize>> {
    let begins = |&index: &usize| index == 0 || !is_same(keys[index - 1], keys[index]);
    let starts: Vec<usize> = (0..keys.len()).filter(begins).chain([keys.len()]).collect();
    starts.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

/// Keys in runs of these lengths, unless neighbouring keys happen to be equal.
fn keys_of<K: Sample>(lengths: impl IntoIterator<Item = usize>) -> Vec<K> {
    let keys = lengths.into_iter().enumerate();
    keys.flat_map(|(run, len)| std::iter::repeat_n(K::any(hash(run as u64)), len)).collect()
}

/// The keys' bytes, because NaNs have different bits.
fn bytes<K: Element>(keys: &[K]) -> &[u8] {
    bytemuck::cast_slice(keys)
}

/// The same keys and values on every device.
fn check<K: Element>(host: &[K], starts: &[usize], name: &str) {
    let values = samples(host.len(), f32::any);
    for device in devices() {
        let (on_device, x) = (device.upload(host).unwrap(), device.upload(&values).unwrap());
        for &start in starts {
            let case = format!("{name} of {} from {start} on {device}", K::NAME);
            let ranges = ranges(&host[start..]);
            let keys: Vec<K> = ranges.iter().map(|range| host[start..][range.start]).collect();
            let sums =
                ranges.iter().map(|range| values[start..][range.clone()].reduce::<Sum, 256>().unwrap());
            let sums: Vec<f32> = sums.collect();
            let (of, x) = (on_device.slice(start..).unwrap(), x.slice(start..).unwrap());
            // Twice, because the first call must leave nothing behind.
            for _ in 0..2 {
                let runs = of.runs().unwrap_or_else(|error| panic!("{case}: {error}"));
                assert_eq!(runs.number().to_vec().unwrap(), [ranges.len() as u64], "{case}");
                assert_eq!(bytes(&runs.keys().to_vec().unwrap()), bytes(&keys), "{case}");
                let got = x.segments(&runs).unwrap().reduce::<Sum, 256>().unwrap().to_vec().unwrap();
                let same = |(got, sum): (&f32, &f32)| got.to_bits() == sum.to_bits();
                let differs = got.iter().zip(&sums).position(|pair| !same(pair));
                assert_eq!(
                    (got.len(), differs),
                    (sums.len(), None),
                    "{case}: {:?}",
                    differs.map(|run| &ranges[run])
                );
            }
        }
    }
}

/// Lengths of runs that have `total` keys together.
fn lengths(total: usize, length: impl Fn(u64) -> usize) -> Vec<usize> {
    let (mut lengths, mut left) = (Vec::new(), total);
    while left > 0 {
        let length = length(hash(lengths.len() as u64)).clamp(1, left);
        lengths.push(length);
        left -= length;
    }
    lengths
}

macro_rules! test_types {
    ({} $($type:ident: $($row:ident)*;)*) => {$(
        #[test]
        fn $type() {
            test_type::<$type>();
        }
    )*};
}

for_each_element! { test_types! {} }

fn test_type<K: Sample>() {
    const LEN: usize = 3 * TILE + 77;
    let mut case = K::NAME.bytes().map(usize::from).sum::<usize>();
    let mut check = |keys: &[K], starts: &[usize], name: &str| {
        case += 1;
        if is_taken(case) {
            check::<K>(keys, starts, name);
        }
    };
    let starts = [0, 1, 3, 16 / size_of::<K>() + 1];
    check(&[], &[0], "no keys");
    for len in [1, 2, 15, 16, 17, 31, 32, 33, 100, 1023, 1025, TILE - 1, TILE, TILE + 1] {
        check(&keys_of(lengths(len, |hash| (hash % 4) as usize)), &[0, 1], &format!("{len} keys"));
    }
    for run in [1, 2, 3, 100] {
        check(&keys_of(lengths(LEN, |_| run)), &starts[..2], &format!("runs of {run}"));
    }
    check(&keys_of([LEN]), &starts[..2], "one run");
    check(&keys_of(lengths(LEN, |hash| 1 << (hash % 12))), &starts, "runs of many lengths");
    // A run begins at each of these keys.
    let mut edges: Vec<usize> =
        (1..=3).flat_map(|tile| (tile * TILE - 2..=tile * TILE + 2).step_by(1)).collect();
    edges.push(LEN);
    for keep in [1, 2, 5] {
        let edges: Vec<usize> =
            [0].into_iter().chain(edges.iter().copied().step_by(keep)).chain([LEN]).collect();
        let lengths = edges.windows(2).map(|ends| ends[1] - ends[0]);
        check(&keys_of(lengths), &starts[..2], "runs at tiles' edges");
    }
}

/// More tiles than a warp looks back over at once.
#[test]
#[cfg_attr(not(part = "3"), ignore = "of part 3")]
fn many_tiles() {
    let len = 41 * TILE + 5;
    check::<i32>(&keys_of(lengths(len, |hash| (hash % 9) as usize)), &[0, 3], "short runs");
    check::<i32>(&keys_of(lengths(len, |hash| (hash % 90_000) as usize)), &[0], "long runs");
    check::<u8>(&keys_of(lengths(len, |_| 1)), &[1], "runs of 1");
    if support::gpu().is_some() {
        let len = (1 << 24) + 12_345;
        check::<u32>(&keys_of(lengths(len, |hash| (hash % 9) as usize)), &[0, 1], "short runs");
        check::<u64>(&keys_of(lengths(len, |hash| (hash % 99) as usize)), &[0, 1], "short runs");
        check::<f32>(&keys_of(lengths(len, |hash| (hash % 999_999) as usize)), &[0, 1], "long runs");
        check::<u8>(&vec![3; len], &[0, 1], "one run");
    }
}

macro_rules! special_floats {
    ($($type:ident $bits:ident)*) => {$(
        let infinity = $type::INFINITY.to_bits();
        let nan = |payload| $type::from_bits(infinity | payload);
        let negative_nan = $type::from_bits(nan(2).to_bits() | 1 << ($bits::BITS - 1));
        let zero = $type::from_bits(0);
        let some = [
            -zero, zero, zero, -zero, nan(1), negative_nan, nan(3), nan(infinity >> 1), $type::INFINITY, $type::INFINITY,
            $type::NEG_INFINITY, nan(1), zero, $type::from_bits(1), $type::from_bits(1 | 1 << ($bits::BITS - 1)), -zero,
        ];
        let keys: Vec<$type> = (0..TILE + 999).map(|index| some[(hash(index as u64 / 3) % 16) as usize]).collect();
        check(&some, &[0, 1, 2, 3], "special keys");
        check(&keys, &[0, 1], "special keys");
    )*};
}

#[test]
#[cfg_attr(not(part = "1"), ignore = "of part 1")]
fn nan_is_nan_and_zero_is_zero() {
    special_floats! { f16 u16 bf16 u16 f32 u32 f64 u64 }
}

/// Buffers for runs and results on a stream: reused with other keys each time, and with too small a capacity.
#[test]
fn runs_stay_on_the_device() {
    for device in devices() {
        let (len, most) = (5 * TILE + 100, 9_000);
        let values = samples(len, f32::any);
        let x = device.upload(&values).unwrap();
        let stream = device.stream().unwrap();
        let mut runs = Runs::<i16>::with_capacity(&device, len, most).unwrap();
        let mut short = Runs::<i16>::with_capacity(&device, 1_000, 2_000).unwrap();
        let mut sums = device.zeros::<f32>(most).unwrap();
        assert_eq!((runs.keys().len(), short.keys().len()), (most, 1_000));
        for round in 1..6 {
            let host: Vec<i16> = keys_of(lengths(len, |hash| (hash % (3 * round)) as usize));
            let keys = device.upload(&host).unwrap();
            // SAFETY: the buffers live, unused otherwise, until the stream has been waited for.
            unsafe {
                runs.find(&keys, &stream).unwrap();
                short.find(&keys.slice(..1_000).unwrap(), &stream).unwrap();
                let segments = x.segments(&runs).unwrap();
                segments.reduce_into::<Sum, 256>(&stream, &mut sums).unwrap();
            }
            stream.synchronize().unwrap();
            for (runs, host) in [(&runs, &host[..]), (&short, &host[..1_000])] {
                let ranges = ranges(host);
                let room = ranges.len().min(runs.keys().len());
                let first: Vec<i16> = ranges[..room].iter().map(|range| host[range.start]).collect();
                let number = runs.number().to_vec().unwrap();
                assert_eq!(number, [ranges.len() as u64], "round {round} on {device}");
                assert_eq!(
                    runs.keys().slice(..room).unwrap().to_vec().unwrap(),
                    first,
                    "round {round} on {device}"
                );
            }
            let ranges = ranges(&host);
            let room = ranges.len().min(most);
            let expected: Vec<f32> = ranges[..room]
                .iter()
                .map(|range| values[range.clone()].reduce::<Sum, 256>().unwrap())
                .collect();
            assert_eq!(sums.slice(..room).unwrap().to_vec().unwrap(), expected, "round {round} on {device}");
            // A call that waits has the number from there, too.
            let again = x.segments(&runs).unwrap().reduce::<Sum, 256>().unwrap();
            assert_eq!(again.to_vec().unwrap(), expected, "round {round} on {device}");
        }
    }
}

/// Reduces the values of runs that are found on a stream. Panics unless each has the bits of its slice.
fn check_on_a_stream<K: Sample, T: Sample, O>(device: &Device, host: &[K], most: usize, name: &str)
where
    O: Op<T, Output: Item + PartialEq> + Parameterless,
{
    let case = format!("{} of {name} of {}, room for {most}, on {device}", O::NAME, K::NAME);
    let values = samples(host.len(), T::any);
    let (keys, x) = (device.upload(host).unwrap(), device.upload(&values).unwrap());
    let stream = device.stream().unwrap();
    for start in [0, 16 / size_of::<K>() - 1] {
        let (keys, x) = (keys.slice(start..).unwrap(), x.slice(start..).unwrap());
        let ranges = ranges(&host[start..]);
        let room = ranges.len().min(most);
        let expected: Vec<O::Output> = ranges[..room]
            .iter()
            .map(|range| values[start..][range.clone()].reduce::<O, 256>().unwrap())
            .collect();
        let mut runs = Runs::with_capacity(device, keys.len(), most).unwrap();
        let mut results = device.zeros::<O::Output>(most).unwrap();
        // SAFETY: the buffers live, unused otherwise, until the stream has been waited for.
        unsafe {
            runs.find(&keys, &stream).unwrap();
            x.segments(&runs).unwrap().reduce_into::<O, 256>(&stream, &mut results).unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(runs.number().to_vec().unwrap(), [ranges.len() as u64], "{case} from {start}");
        let check = |got: Vec<O::Output>| {
            let differs =
                (0..room).find(|&run| bytemuck::bytes_of(&got[run]) != bytemuck::bytes_of(&expected[run]));
            assert_eq!(differs.map(|run| &ranges[run]), None, "{case} from {start}");
        };
        check(results.slice(..room).unwrap().to_vec().unwrap());
        // A call that waits uses all offsets.
        check(x.segments(&runs).unwrap().reduce::<O, 256>().unwrap().to_vec().unwrap());
    }
}

/// Short and long runs that are found on a stream, with room for so many runs that the search writes heads as bits. In CI the emulator
/// runs a sixth of the cases.
#[test]
fn many_runs_on_a_stream() {
    const LEN: usize = 2 * TILE + 1_234;
    fn check<K: Sample, T: Sample, O>(device: &Device, lengths: Vec<usize>, most: usize, name: &str)
    where
        O: Op<T, Output: Item + PartialEq> + Parameterless,
    {
        let case = size_of::<K>() + O::NAME.len() + name.len();
        if !device.is_emulator() || is_of_part(case) {
            check_on_a_stream::<K, T, O>(device, &keys_of(lengths), most, name);
        }
    }
    let short = |most: u64| move |hash: u64| (hash % (most + 1)) as usize;
    let mostly =
        |long: usize| move |hash: u64| if hash.is_multiple_of(97) { long } else { 1 + (hash % 3) as usize };
    for device in &devices() {
        let of = |length: &dyn Fn(u64) -> usize| lengths(LEN, length);
        check::<u32, f32, Sum>(device, of(&|_| 1), LEN, "runs of 1");
        check::<u8, f16, Max>(device, of(&|_| 1), LEN, "runs of 1");
        check::<f64, u8, Sum>(device, of(&|_| 2), LEN, "runs of 2");
        check::<i16, f64, Var>(device, of(&|_| 2), LEN, "runs of 2");
        check::<i32, f32, Sum>(device, of(&short(4)), LEN / 4, "runs of up to 4");
        check::<u16, i64, ArgMax>(device, of(&short(9)), LEN, "runs of up to 9");
        check::<f32, f64, Sum>(device, of(&short(9)), LEN / 4, "runs of up to 9");
        for long in [33, 129, 600] {
            let name = format!("short runs and some of {long}");
            check::<u64, f32, Sum>(device, of(&mostly(long)), LEN, &name);
            check::<i8, f32, Var>(device, of(&mostly(long)), LEN, &name);
            check::<f16, f16, Sum>(device, of(&mostly(long)), 4_097, &name);
        }
        // The kernel of exact sums has all offsets.
        check::<u32, f64, ExactSum>(device, of(&|_| 1), LEN, "runs of 1");
        check::<u32, f32, ExactSum>(device, of(&mostly(600)), LEN, "short and long runs");
        // All of the words that a warp looks at are empty. The longest runs have several chunks, which several warps fold.
        for (at, long) in [(100, 7_000), (TILE - 1, 7_000), (TILE, 7_000), (TILE + 1_000, 30_000)] {
            let lengths = (0..LEN).map(|run| if run == at { long } else { 1 }).collect();
            check::<u32, f32, Sum>(device, lengths, LEN, &format!("runs of 1, and run {at} of {long}"));
        }
        check::<u32, f32, Sum>(device, vec![20_000, 30_000, 1, 14_000], LEN, "long runs");
    }
}

/// With room for 4,090 runs, there may be too many for a block each, and at most one for each warp of an H200. So one kernel folds all
/// runs without lists. The keys have about 4,090 short runs, or five of which two are long.
#[test]
fn a_run_for_each_warp() {
    const MOST: usize = 4_090;
    for device in devices() {
        let many = keys_of(lengths(12 * MOST, |hash| 9 + (hash % 7) as usize));
        check_on_a_stream::<u32, f32, Sum>(&device, &many, MOST, "short runs");
        check_on_a_stream::<u32, f16, ArgMax>(&device, &many, MOST, "short runs");
        let long = keys_of([20_000, 3, 28_000, 1, 1_076]);
        check_on_a_stream::<u32, f32, Var>(&device, &long, MOST, "long runs");
        check_on_a_stream::<u32, u8, Sum>(&device, &long, MOST, "long runs");
    }
}

/// The first search has a tile more than the second, because its keys lie at another address. The heads of that tile stay in memory.
#[test]
fn a_search_leaves_no_heads_to_the_next() {
    let len = 2 * TILE - 3;
    for device in devices() {
        let host: Vec<u8> = (0..len + 15).map(|index| (index / 2) as u8).collect();
        let (keys, x) = (device.upload(&host).unwrap(), device.upload(&samples(len, i32::any)).unwrap());
        let stream = device.stream().unwrap();
        let mut runs = Runs::with_capacity(&device, len, len).unwrap();
        for start in [15, 0] {
            let keys = keys.slice(start..start + len).unwrap();
            // SAFETY: the buffers live, unused otherwise, until the stream has been waited for.
            unsafe { runs.find(&keys, &stream).unwrap() };
            stream.synchronize().unwrap();
            let expected = x.segments(&keys.runs().unwrap()).unwrap().reduce::<Sum, 256>().unwrap();
            let sums = x.segments(&runs).unwrap().reduce::<Sum, 256>().unwrap();
            assert_eq!(sums.to_vec(), expected.to_vec(), "from {start} on {device}");
        }
    }
}

/// Runs, and two reductions by them, captured once and replayed with other keys in the same memory each time.
/// Another launch on the stream comes between.
#[test]
fn a_graph_replays_with_new_keys() {
    let Some(device) = support::gpu() else { return };
    let _context = cust::context::Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    let len = 40 * TILE + 99;
    let values = samples(len, f32::any);
    let x = device.upload(&values).unwrap();
    let mut keys = device.zeros::<i32>(len).unwrap();
    let mut runs = Runs::with_capacity(&device, len, len).unwrap();
    let mut few = Runs::with_capacity(&device, 100, 100).unwrap();
    let mut sums = device.zeros::<f32>(len).unwrap();
    let mut means = device.zeros::<f32>(len).unwrap();
    let stream = device.stream().unwrap();
    let raw: sys::CUstream = stream.as_raw().unwrap().cast();
    let mut enqueue = || {
        // SAFETY: the buffers outlive the graph. The stream has been waited for whenever they are written.
        unsafe {
            runs.find(&keys, &stream).unwrap();
            let segments = x.segments(&runs).unwrap();
            segments.reduce_into::<Sum, 256>(&stream, &mut sums).unwrap();
            segments.reduce_into::<Mean, 256>(&stream, &mut means).unwrap();
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
    for round in 0..30 {
        let host: Vec<i32> = keys_of(lengths(len, |hash| (hash % (1 << (round % 17))) as usize));
        keys.write(0, &host).unwrap();
        // SAFETY: as above.
        unsafe {
            few.find(&keys.slice(1..101).unwrap(), &stream).unwrap();
            assert_eq!(sys::cuGraphLaunch(executable, raw), CUDA_SUCCESS);
        }
        stream.synchronize().unwrap();
        let ranges = ranges(&host);
        let count = ranges.len();
        assert_eq!(runs.number().to_vec().unwrap(), [count as u64], "round {round}");
        let first: Vec<i32> = ranges.iter().map(|range| host[range.start]).collect();
        assert_eq!(runs.keys().slice(..count).unwrap().to_vec().unwrap(), first, "round {round}");
        let by = |reduce: &dyn Fn(&[f32]) -> f32| -> Vec<f32> {
            ranges.iter().map(|range| reduce(&values[range.clone()])).collect()
        };
        let expected = by(&|values| values.reduce::<Sum, 256>().unwrap());
        assert_eq!(sums.slice(..count).unwrap().to_vec().unwrap(), expected, "round {round}");
        let expected = by(&|values| values.reduce::<Mean, 256>().unwrap());
        assert_eq!(means.slice(..count).unwrap().to_vec().unwrap(), expected, "round {round}");
    }
    // SAFETY: as above.
    unsafe {
        assert_eq!(sys::cuGraphExecDestroy(executable), CUDA_SUCCESS);
        assert_eq!(sys::cuGraphDestroy(graph), CUDA_SUCCESS);
    }
}

#[test]
fn in_one_line() {
    for device in devices() {
        let keys = device.upload(&[2.5f64, 2.5, -1.0, 2.5]).unwrap();
        let values = device.upload(&[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let (keys, sums) = reduce_by_key(&keys, &values, Sum).unwrap();
        assert_eq!(
            (keys.to_vec(), sums.to_vec()),
            (Ok(vec![2.5, -1.0, 2.5]), Ok(vec![3.0, 3.0, 4.0])),
            "{device}"
        );
    }
    assert_eq!(vec![1u8, 1, 2].runs().unwrap().keys().to_vec(), Ok(vec![1, 2]));
    let (keys, most) = reduce_by_key(&[false as u8, 1, 1], &[1.0f32, 2.0, 3.0], Max).unwrap();
    assert_eq!((keys.to_vec(), most.to_vec()), (Ok(vec![0, 1]), Ok(vec![1.0, 3.0])));
}

#[test]
fn what_does_not_fit_is_refused() {
    let host = [1i32, 1, 2];
    for device in devices() {
        let keys = device.upload(&host).unwrap();
        let other_length = |first, second| Some(Error::LengthMismatch { first, second });
        let more = device.upload(&[1.0f32; 4]).unwrap();
        assert_eq!(reduce_by_key(&keys, &more, Sum).err(), other_length(4, 3));
        let stream = device.stream().unwrap();
        let mut runs = Runs::with_capacity(&device, 4, 4).unwrap();
        // SAFETY: nothing is enqueued.
        assert_eq!(unsafe { runs.find(&keys, &stream) }.err(), other_length(4, 3));
        if !device.is_cpu() {
            let is_elsewhere = |result: Option<Error>| matches!(result, Some(Error::DeviceMismatch { .. }));
            assert!(is_elsewhere(reduce_by_key(&host, &more.slice(..3).unwrap(), Sum).err()));
            assert!(is_elsewhere(reduce_by_key(&keys, &[1.0f32; 3], Sum).err()));
            let here: Buffer<i32> = Device::cpu().upload(&[1; 4]).unwrap();
            let here: View<i32> = here.view();
            // SAFETY: as above.
            assert!(is_elsewhere(unsafe { runs.find(&here, &stream) }.err()));
        }
    }
}
