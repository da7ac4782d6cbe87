//! Every call with every type, on every device, against loops over integers. (`operators.rs` and `kinds.rs`
//! have every operator on every type.) The types come from the library's tables, so a new type needs no
//! change here.

use bytemuck::Zeroable;
use dlpark::versioned::Dlpack;
use gpu_reduce::{
    ArrayItem, Buffer, Comparison, Data, Device, Dot, Error, ExactDot, ExactElement, ExactFactor, ExactSum,
    Item, Max, Min, Op, Partial, Reduce, ReduceAxis, Reducer, Runs, Segments, Sharded, Stream, Sum, View,
    for_each_alias, merge_sorted, reduce_by_key,
};
use ndarray::{ArrayView2, Axis};
use std::any::type_name;
use std::fmt::Debug;
use std::ops::Range;
use support::{devices, for_each_element, hash};

/// The number of elements: as many rows as columns, and not a multiple of a load.
const LEN: usize = SIDE * SIDE;
const SIDE: usize = 35;

const BLOCK: u32 = 256;

/// The output of an operator.
type Of<O, T> = <O as Op<T>>::Output;

/// Elements, each with its number: small integers, whose sums are exact in every type, in runs of at least
/// three.
fn items<T>(item: impl Fn(i8) -> (T, i64)) -> Vec<(T, i64)> {
    (0..LEN as u64).map(|index| item((hash(index / 3) % 15) as i8 - 7)).collect()
}

/// A result as text that is the same for every type: a whole number as an integer, a truth value as a byte.
fn text(result: impl Debug) -> String {
    format!("{result:?}").replace(".0", "").replace("false", "0").replace("true", "1")
}

#[track_caller]
fn check<T>(call: &str, device: &Device, got: impl Debug, expected: impl Debug) {
    assert_eq!(text(got), text(expected), "{call} of {} on {device}", type_name::<T>());
}

fn sum(numbers: &[i64]) -> i64 {
    numbers.iter().sum()
}

fn max(numbers: &[i64]) -> i64 {
    *numbers.iter().max().unwrap()
}

fn ends(offsets: &[u32]) -> impl Iterator<Item = Range<usize>> {
    offsets.windows(2).map(|ends| ends[0] as usize..ends[1] as usize)
}

/// The indices where runs of equal numbers begin, and where the last one ends.
fn run_offsets(numbers: &[i64]) -> Vec<u32> {
    let starts = (0..numbers.len()).filter(|&index| index == 0 || numbers[index - 1] != numbers[index]);
    starts.chain([numbers.len()]).map(|start| start as u32).collect()
}

/// A whole array: a call that waits, a launch, and a result that stays on the device.
fn whole<T: Item>(kind: &str, x: &impl Reduce<Item = T>, numbers: &[i64], stream: &Stream)
where
    Sum: Op<T, Output: Item>,
    Max: Op<T, Output: Item>,
    Min: Op<T>,
{
    let device = stream.device();
    let check = |call: &str, got: &dyn Debug, expected: &dyn Debug| {
        check::<T>(&format!("{call} of {kind}"), &device, got, expected);
    };
    check("reduce", &x.reduce::<Sum, BLOCK>().unwrap(), &sum(numbers));
    check("max", &gpu_reduce::max(x).unwrap(), &max(numbers));
    let least = *numbers.iter().min().unwrap();
    let several = gpu_reduce::reduce(x, (Sum, Min, Max)).unwrap();
    check("several operators", &several, &(sum(numbers), least, max(numbers)));
    check("launch", &x.reduce_async::<Sum, BLOCK>(stream).wait().unwrap(), &sum(numbers));
    let mut result = device.zeros::<Of<Sum, T>>(1).unwrap();
    // SAFETY: all stay, and are not used otherwise, until the stream has been waited for.
    unsafe { x.reduce_into::<Sum, BLOCK>(stream, &mut result).unwrap() };
    stream.synchronize().unwrap();
    check("enqueue", &result.to_vec().unwrap(), &[sum(numbers)]);
}

/// Many reductions in one call. The maximum of an empty one is `default`, which is 1.
fn segments<'a, T: Item, D: Data<'a, Item = T>>(
    kind: &str,
    segments: &Segments<'a, D>,
    expected: &[Vec<i64>],
    default: Of<Max, T>,
    stream: &Stream,
) where
    Sum: Op<T, Output: Item>,
    Max: Op<T, Output: Item>,
{
    let device = stream.device();
    let check = |call: &str, got: &dyn Debug, expected: &dyn Debug| {
        check::<T>(&format!("{call} of {kind}"), &device, got, expected);
    };
    let sums: Vec<i64> = expected.iter().map(|numbers| sum(numbers)).collect();
    let most = |numbers: &Vec<i64>| numbers.iter().copied().max().unwrap_or(1);
    let maxima: Vec<i64> = expected.iter().map(most).collect();
    let vec = |sums: Buffer<Of<Sum, T>>| sums.to_vec().unwrap();
    check("reduce", &vec(segments.reduce::<Sum, BLOCK>().unwrap()), &sums);
    let got = segments.by(Max).or(default).block::<BLOCK>().run().unwrap();
    check("reduce_or", &got.to_vec().unwrap(), &maxima);
    let defaults = (Of::<Sum, T>::zeroed(), default);
    let (got, most) = segments.by((Sum, Max)).or(defaults).block::<BLOCK>().run().unwrap();
    check("reduce_tuple_or", &(vec(got), most.to_vec().unwrap()), &(&sums, &maxima));
    check("launch", &vec(segments.reduce_async::<Sum, BLOCK>(stream).wait().unwrap()), &sums);
    let mut results = device.zeros::<Of<Sum, T>>(segments.len()).unwrap();
    // SAFETY: all stay, and are not used otherwise, until the stream has been waited for.
    unsafe { segments.reduce_into::<Sum, BLOCK>(stream, &mut results).unwrap() };
    stream.synchronize().unwrap();
    check("enqueue", &vec(results), &sums);
}

/// Calls for every type of item.
fn calls<T: Item>(items: &[(T, i64)], one: T)
where
    Sum: Op<T, Output: Item>,
    Max: Op<T, Output: Item>,
    Min: Op<T>,
{
    let (host, numbers): (Vec<T>, Vec<i64>) = items.iter().copied().unzip();
    let default = gpu_reduce::max(&[one]).unwrap();
    for device in devices() {
        let check = |call: &str, got: &dyn Debug, expected: &dyn Debug| {
            check::<T>(call, &device, got, expected);
        };
        let all = sum(&numbers);
        check("reduce_on", &host.reduce_on::<Sum, BLOCK>(&device).unwrap(), &all);
        let x = device.upload(&host).unwrap();
        check("reduce_on", &x.reduce_on::<Sum, BLOCK>(&device).unwrap(), &all);
        check("sum", &gpu_reduce::sum(&x).unwrap(), &all);
        check("sum of a slice", &gpu_reduce::sum(&host[..]).unwrap(), &all);
        let stream = device.stream().unwrap();
        let view = x.slice(1..).unwrap();
        whole("a view", &view, &numbers[1..], &stream);

        let offsets = [2, 2, 3, 40, 40, 1_000, LEN as u32];
        let long = device.upload(&offsets.map(u64::from)).unwrap();
        let short = device.upload(&offsets).unwrap();
        let of = |range: Range<usize>| numbers[range].to_vec();
        let expected: Vec<_> = ends(&offsets).map(of).collect();
        segments("segments", &x.segments(&short).unwrap(), &expected, default, &stream);
        segments("segments by u64", &x.segments(&long).unwrap(), &expected, default, &stream);
        let rows: Vec<_> = numbers.chunks(SIDE).map(<[i64]>::to_vec).collect();
        segments("rows", &x.rows(SIDE).unwrap(), &rows, default, &stream);
        let column = |column| numbers.iter().skip(column).step_by(SIDE).copied().collect();
        let columns: Vec<Vec<i64>> = (0..SIDE).map(column).collect();
        segments("columns", &x.columns(SIDE).unwrap(), &columns, default, &stream);
        let shaped = x.reshape(&[SIDE, SIDE]).unwrap();
        segments("an axis", &shaped.axis(0).unwrap(), &columns, default, &stream);
        let array = ArrayView2::from_shape((SIDE, SIDE), &host).unwrap();
        let of_axis: Vec<i64> = columns.iter().map(|numbers| sum(numbers)).collect();
        let got = array.reduce_axis::<Sum, BLOCK>(Axis(0)).unwrap();
        check("reduce_axis", &got.into_raw_vec_and_offset().0, &of_axis);
        let keys = device.upload(&numbers).unwrap();
        let runs: Vec<_> = ends(&run_offsets(&numbers)).map(of).collect();
        segments("runs", &x.segments(&keys.runs().unwrap()).unwrap(), &runs, default, &stream);

        // Shards on one GPU. The CPU has only itself.
        let cut = if device.is_cpu() { LEN } else { LEN / 2 };
        let shards = [x.slice(..cut), x.slice(cut..)].map(Result::unwrap);
        let sharded = Sharded::from(shards.to_vec());
        whole("shards", &sharded, &numbers, &stream);
        segments("rows of shards", &sharded.rows(SIDE).unwrap(), &rows, default, &stream);

        let mut pieces = Reducer::<_, T, BLOCK>::new(Sum);
        host.chunks(7).for_each(|piece| pieces.push(piece).unwrap());
        check("pieces", &pieces.finish().unwrap(), &all);
        let mut part = Partial::<_, T, BLOCK>::new(Sum, LEN as u64, host[0]);
        part.add(0, &x).unwrap();
        let part = Partial::<_, T, BLOCK>::from_bytes(Sum, &part.to_bytes()).unwrap();
        check("a part", &part.finish().unwrap(), &all);

        let mut pinned = device.pinned::<T>(LEN).unwrap();
        let mut copy = device.zeros::<T>(LEN).unwrap();
        pinned.copy_from_slice(&host);
        // SAFETY: both buffers live, unused otherwise, until the stream has been waited for.
        unsafe { stream.upload(&pinned, &mut copy).unwrap() };
        check("launch after upload", &copy.reduce_async::<Sum, BLOCK>(&stream).wait().unwrap(), &all);
    }
}

/// Calls for elements only: keys, pairs, comparisons, exact sums, sorted lists, arrays of other libraries.
fn calls_of_elements<T>()
where
    T: ExactElement<Rounded: Item> + ExactFactor + ArrayItem + TryFrom<i8>,
{
    // Below 0 if the type has negative numbers.
    let element = |number| T::try_from(number).ok();
    let items: Vec<(T, i64)> = items(|draw| match element(draw) {
        Some(item) => (item, draw.into()),
        None => (element(-draw).unwrap(), (-draw).into()),
    });
    let one = element(1).unwrap();
    calls(&items, one);
    let (host, numbers): (Vec<T>, Vec<i64>) = items.iter().copied().unzip();
    let offsets = run_offsets(&numbers);
    let first = |range: Range<usize>| numbers[range.start];
    let expected: Vec<i64> = ends(&offsets).map(first).collect();
    let of_runs: Vec<i64> = ends(&offsets).map(|range| sum(&numbers[range])).collect();
    for device in devices() {
        let check = |call: &str, got: &dyn Debug, expected: &dyn Debug| {
            check::<T>(call, &device, got, expected);
        };
        let (x, stream) = (device.upload(&host).unwrap(), device.stream().unwrap());
        let runs = x.runs();
        check("keys", &runs.and_then(|runs| runs.keys().to_vec()), &Ok::<_, Error>(&expected));
        let (keys, sums) = reduce_by_key(&x, &x, Sum).unwrap();
        check("reduce_by_key", &(keys.to_vec().unwrap(), sums.to_vec().unwrap()), &(&expected, &of_runs));
        let mut runs = Runs::<T>::with_capacity(&device, LEN, LEN).unwrap();
        // SAFETY: all stay, and are not used otherwise, until the stream has been waited for.
        unsafe { runs.find(&x, &stream).unwrap() };
        stream.synchronize().unwrap();
        let keys = runs.keys().slice(..expected.len()).unwrap();
        check("enqueued keys", &keys.to_vec().unwrap(), &expected);
        check("enqueued runs", &runs.number().to_vec().unwrap(), &[expected.len()]);

        let all = sum(&numbers);
        check("exact_sum", &gpu_reduce::exact_sum(&x).unwrap(), &all);
        let rows: Vec<i64> = numbers.chunks(SIDE).map(sum).collect();
        let exact = x.rows(SIDE).unwrap().reduce::<ExactSum, BLOCK>().unwrap();
        check("exact sums of rows", &exact.to_vec().unwrap(), &rows);
        let above: Vec<i64> = numbers.iter().copied().filter(|&number| number > 1).collect();
        let greater = Comparison::Greater(one);
        check("count_where", &gpu_reduce::count_where(&x, greater).unwrap(), &above.len());
        check("sum_where", &gpu_reduce::sum_where(&x, greater).unwrap(), &sum(&above));

        let squares: Vec<i64> = numbers.iter().map(|number| number * number).collect();
        let pair = (&x, &x);
        check("dot", &gpu_reduce::dot(&x, &x).unwrap(), &sum(&squares));
        check("exact_dot", &pair.reduce::<ExactDot, BLOCK>().unwrap(), &sum(&squares));
        check("launch of a pair", &pair.reduce_async::<Dot, BLOCK>(&stream).wait().unwrap(), &sum(&squares));
        let dots: Vec<i64> = squares.chunks(SIDE).map(sum).collect();
        let got = pair.rows(SIDE).unwrap().reduce::<Dot, BLOCK>().unwrap();
        check("dots of rows", &got.to_vec().unwrap(), &dots);

        let mut sorted = items.clone();
        sorted.sort_by_key(|&(_, number)| number);
        let lists = [&sorted[..LEN / 3], &sorted[LEN / 3..]];
        let lists = lists.map(|list| list.iter().map(|&(item, _)| item).collect::<Vec<_>>());
        let expected: Vec<i64> = sorted.iter().map(|&(_, number)| number).collect();
        let merged = merge_sorted(&device, &[&lists[1], &lists[0]]).map(|merged| merged.values);
        check("merge_sorted", &merged, &Ok::<_, Error>(&expected));

        let tensor: Dlpack = x.into_dlpack();
        // SAFETY: the array outlives the view, and nothing writes to it.
        let view = unsafe { View::<T>::from_dlpack(&tensor) }.unwrap();
        check("a tensor", &view.reduce::<Sum, BLOCK>().unwrap(), &all);
    }
}

macro_rules! test_types {
    ({} $($type:ident: $($row:ident)*;)*) => {$(
        mod $type {
            #[allow(unused_imports)]
            use gpu_reduce::{bf16, f16};

            #[test]
            fn every_call() {
                super::calls_of_elements::<$type>();
            }
        }
    )*};
}

for_each_element! { test_types! {} }
for_each_alias! { test_types! {} }

#[test]
fn every_call_of_bool() {
    calls(&items(|draw| (draw > 0, (draw > 0).into())), true);
}
