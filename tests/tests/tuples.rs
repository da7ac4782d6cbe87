//! Several operators at once, and operators of pairs, in every shape: each result has the bits that the
//! operator has alone.

use gpu_reduce::{
    ArgMax, Block, Buffer, Cosine, Data, Dot, Error, Item, Max, Mean, Min, NanSum, Op, Operators, Partial,
    Reduce, Reducer, Segments, Sum, Threads, Var, WeightedMean, bf16, f16,
};
use std::fmt::Debug;
use support::{Sample, devices, for_each_block, hash, samples};

fn text<R: Item + Debug>(results: &Buffer<R>) -> Vec<String> {
    results.to_vec().unwrap().iter().map(|result| format!("{result:?}")).collect()
}

/// Three operators together, and each alone.
fn check<'a, D: Data<'a, Item = f32>, const BLOCK: u32>(case: &str, segments: &Segments<'a, D>)
where
    Threads<BLOCK>: Block,
{
    let (sums, maxima, variances) = segments.by((Sum, Max, Var::default())).block::<BLOCK>().run().unwrap();
    assert_eq!(text(&sums), text(&segments.reduce::<Sum, BLOCK>().unwrap()), "{case}");
    assert_eq!(text(&maxima), text(&segments.reduce::<Max, BLOCK>().unwrap()), "{case}");
    assert_eq!(text(&variances), text(&segments.reduce::<Var, BLOCK>().unwrap()), "{case}");
    let samples = Var::new(1);
    let (means, variances) = segments.by((Mean, samples)).block::<BLOCK>().run().unwrap();
    assert_eq!(text(&means), text(&segments.reduce::<Mean, BLOCK>().unwrap()), "{case}");
    assert_eq!(text(&variances), text(&segments.by(samples).block::<BLOCK>().run().unwrap()), "{case}");
}

#[test]
#[cfg_attr(not(part = "1"), ignore = "of part 1")]
fn tuples_in_every_shape() {
    let host = samples(6_000, f32::any);
    let keys: Vec<u8> = (0..6_000).map(|index| (hash(index / 7) % 3) as u8).collect();
    for device in devices() {
        let (x, keys) = (device.upload(&host).unwrap(), device.upload(&keys).unwrap());
        let offsets = [3u32, 4, 9, 700, 701, 5_000, 5_999];
        check::<_, 32>("segments", &x.segments(&offsets).unwrap());
        check::<_, 256>("rows", &x.rows(75).unwrap());
        check::<_, 64>("columns", &x.columns(75).unwrap());
        check::<_, 256>("axes", &x.reshape(&[5, 100, 12]).unwrap().axis(1).unwrap());
        check::<_, 1024>("keys", &x.segments(&keys.runs().unwrap()).unwrap());
    }
}

/// Several operators on a stream, of a whole array and of segments: with a kernel of their own, by one after
/// another, and over shards. Each result has the bits of the blocking call.
#[test]
fn tuples_on_streams() {
    let host = samples(6_000, f32::any);
    for device in devices() {
        let x = device.upload(&host).unwrap();
        let stream = device.stream().unwrap();
        let compiled = x.reduce_async::<(Sum, Min, Max), 256>(&stream);
        let one_by_one = x.by((Max, ArgMax, Var::new(1), Sum)).block::<64>().run_async(&stream);
        let nested = x.reduce_async::<((Sum, Max), (Min, ArgMax)), 32>(&stream);
        let (sums, maxima, places) =
            x.rows(75).unwrap().by((Sum, Max, ArgMax)).block::<32>().run_async(&stream).wait().unwrap();
        let shown = |result: &dyn Debug| format!("{result:?}");
        assert_eq!(shown(&compiled.wait()), shown(&host.reduce::<(Sum, Min, Max), 256>()), "{device}");
        let expected = host.by((Max, ArgMax, Var::new(1), Sum)).block::<64>().run();
        assert_eq!(shown(&one_by_one.wait()), shown(&expected), "{device}");
        assert_eq!(
            shown(&nested.wait()),
            shown(&host.reduce::<((Sum, Max), (Min, ArgMax)), 32>()),
            "{device}"
        );
        let rows = host.rows(75).unwrap();
        assert_eq!(text(&sums), text(&rows.reduce::<Sum, 32>().unwrap()), "{device}");
        assert_eq!(text(&maxima), text(&rows.reduce::<Max, 32>().unwrap()), "{device}");
        assert_eq!(text(&places), text(&rows.reduce::<ArgMax, 32>().unwrap()), "{device}");
        let ended = x.reduce_async::<(Max, ArgMax), 256>(&stream);
        stream.synchronize().unwrap();
        assert!(ended.is_done(), "{device}");
    }
}

#[test]
fn tuples_of_six() {
    let x = [3.0f32, 1.0, 2.0, 5.0];
    let rows = x.rows(2).unwrap();
    let (sums, minima, maxima, means, places, variances) =
        rows.by((Sum, Min, Max, Mean, ArgMax, Var::default())).block::<32>().run().unwrap();
    assert_eq!(sums.to_vec().unwrap(), [4.0, 7.0]);
    assert_eq!(minima.to_vec().unwrap(), [1.0, 2.0]);
    assert_eq!(maxima.to_vec().unwrap(), [3.0, 5.0]);
    assert_eq!(means.to_vec().unwrap(), [2.0, 3.5]);
    assert_eq!(places.to_vec().unwrap(), [0, 1]);
    assert_eq!(variances.to_vec().unwrap(), [1.0, 2.25]);
}

#[test]
fn tuples_without_a_value() {
    for device in devices() {
        let x = device.upload(&[4.0f32, 2.0, 3.0]).unwrap();
        let segments = x.segments(&[0u32, 1, 1, 3]).unwrap();
        let error = segments.by((Sum, Max, Min)).block::<256>().run().err();
        assert_eq!(error, Some(Error::EmptySegment { op: "max", segment: 1 }));
        // Reductions of whole inputs also name the first operator without a value, in every way to call them.
        let (none, stream) = (x.slice(3..).unwrap(), device.stream().unwrap());
        let of_max = Err(Error::EmptyInput { op: "max" });
        assert_eq!(none.reduce::<(Sum, Max, Min), 256>(), of_max);
        assert_eq!(none.reduce_async::<(Sum, Max, Min), 256>(&stream).wait(), of_max);
        assert_eq!(Reducer::<_, f32, 256>::new((Sum, Max, Min)).finish(), of_max);
        assert_eq!(Partial::<_, f32, 256>::new((Sum, Max, Min), 0, 0.0).finish(), of_max);
        assert_eq!(none.reduce::<((Max, Sum), Min), 256>().map(|_| ()), Err(Error::EmptyInput { op: "max" }));
        let (sums, maxima) = segments.by((Sum, Max)).or((7.0, -1.0)).block::<256>().run().unwrap();
        assert_eq!(sums.to_vec().unwrap(), [4.0, 0.0, 5.0]);
        assert_eq!(maxima.to_vec().unwrap(), [4.0, -1.0, 3.0]);
        let none = x.slice(..0).unwrap();
        let (sums, maxima) =
            none.columns(2).unwrap().by((Sum, Max)).or((7.0, -1.0)).block::<256>().run().unwrap();
        assert_eq!(sums.to_vec().unwrap(), [0.0; 2]);
        assert_eq!(maxima.to_vec().unwrap(), [-1.0; 2]);
    }
}

/// Operators of pairs, together and alone. Says so if a kernel is not compiled.
fn check_pairs<'a, D: Data<'a, Item = (f32, f32)>, const BLOCK: u32>(
    case: &str,
    segments: &Segments<'a, D>,
    alone: impl Fn(usize) -> [String; 3],
) where
    Threads<BLOCK>: Block,
{
    let got = segments.by((Dot, Cosine, WeightedMean)).block::<BLOCK>().run();
    let (dots, cosines, means) = match got {
        Err(error @ Error::NoKernel { .. }) => return eprintln!("skipped: {error}"),
        got => got.unwrap(),
    };
    let got = [text(&dots), text(&cosines), text(&means)];
    for index in 0..segments.len() {
        assert_eq!(got.each_ref().map(|got| got[index].clone()), alone(index), "{case}, segment {index}");
    }
}

#[test]
fn pairs_in_every_shape() {
    let (a, b) = (samples(6_000, f32::any), samples(6_001, |hash| f32::any(hash ^ 5)));
    let keys: Vec<i32> = (0..6_000).map(|index| (hash(index / 50) % 3) as i32).collect();
    fn alone<const BLOCK: u32>(a: Vec<f32>, b: Vec<f32>) -> [String; 3]
    where
        Threads<BLOCK>: Block,
    {
        let pair = (a, b);
        [
            format!("{:?}", pair.reduce::<Dot, BLOCK>().unwrap()),
            format!("{:?}", pair.reduce::<Cosine, BLOCK>().unwrap()),
            format!("{:?}", pair.reduce::<WeightedMean, BLOCK>().unwrap()),
        ]
    }
    let every = |first: usize, step: usize, len: usize| {
        [&a, &b[1..]].map(|items: &[f32]| items[first..].iter().step_by(step).take(len).copied().collect())
    };
    let offsets = [0u64, 1, 6, 700, 701, 5_000, 6_000];
    let starts: Vec<usize> =
        (0..6_000).filter(|&index| index == 0 || keys[index] != keys[index - 1]).chain([6_000]).collect();
    for device in devices() {
        let (x, y) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
        let pair = (&x, y.slice(1..).unwrap());
        check_pairs::<_, 32>("segments", &pair.segments(&offsets).unwrap(), |index| {
            let [start, end] = [offsets[index] as usize, offsets[index + 1] as usize];
            let [a, b] = every(start, 1, end - start);
            alone::<32>(a, b)
        });
        check_pairs::<_, 256>("rows", &pair.rows(75).unwrap(), |index| {
            let [a, b] = every(75 * index, 1, 75);
            alone::<256>(a, b)
        });
        check_pairs::<_, 64>("columns", &pair.columns(75).unwrap(), |index| {
            let [a, b] = every(index, 75, 80);
            alone::<64>(a, b)
        });
        let shaped = pair.reshape(&[5, 100, 12]).unwrap();
        check_pairs::<_, 256>("axes", &shaped.axis(1).unwrap(), |index| {
            let [a, b] = every(index / 12 * 1_200 + index % 12, 12, 100);
            alone::<256>(a, b)
        });
        let keys = device.upload(&keys).unwrap();
        check_pairs::<_, 32>("keys", &pair.segments(&keys.runs().unwrap()).unwrap(), |index| {
            let [a, b] = every(starts[index], 1, starts[index + 1] - starts[index]);
            alone::<32>(a, b)
        });
    }
}

#[test]
fn pairs_of_other_lengths() {
    let (a, b) = ([1.0f32; 6], [1.0f32; 5]);
    let error = Some(Error::LengthMismatch { first: 6, second: 5 });
    assert_eq!((a, b).rows(3).unwrap().reduce::<Dot, 32>().err(), error);
    assert_eq!((a, b).columns(3).unwrap().reduce::<Dot, 32>().err(), error);
    assert_eq!((a, b).segments(&[0u32, 6]).unwrap().reduce::<Dot, 32>().err(), error);
}

/// A function that is generic over tuples.
#[test]
fn any_tuple() {
    fn of_rows<O: Operators<f32, M> + Default, M>(x: &[f32]) -> O::Buffers {
        x.rows(2).unwrap().by(O::default()).block::<32>().run().unwrap()
    }
    let (sums, minima) = of_rows::<(Sum, Min), _>(&[1.0, 2.0]);
    assert_eq!((sums.to_vec().unwrap(), minima.to_vec().unwrap()), (vec![3.0], vec![1.0]));
}

/// A row of two operators over `f16` has 8,192 accumulators of 8 bytes: twice as long as any row of one
/// operator.
#[test]
fn nested_tuples_of_halves() {
    fn check<T: Sample>()
    where
        Sum: Op<T>,
        NanSum: Op<T>,
        Mean: Op<T>,
        Max: Op<T>,
        Dot: Op<(T, T)>,
    {
        for len in [4_608, 8_191, 8_192, 8_193, 20_000, 65_537, 1_300_000] {
            let x = samples(len + 1, T::any);
            let (y, x) = (&x[1..], &x[..len]);
            for_each_block!(|BLOCK| {
                let case = format!("{len} {}, BLOCK {BLOCK}", std::any::type_name::<T>());
                let (sum, nansum) = (x.reduce::<Sum, BLOCK>().unwrap(), x.reduce::<NanSum, BLOCK>().unwrap());
                let (mean, max) = (x.reduce::<Mean, BLOCK>().unwrap(), x.reduce::<Max, BLOCK>().unwrap());
                let got = x.reduce::<((Sum, Mean), Max), BLOCK>().unwrap();
                assert_eq!(format!("{got:?}"), format!("{:?}", ((sum, mean), max)), "{case}");
                let got = x.reduce::<((Sum, NanSum), Max), BLOCK>().unwrap();
                assert_eq!(format!("{got:?}"), format!("{:?}", ((sum, nansum), max)), "{case}");
                let dot = (x, y).reduce::<Dot, BLOCK>().unwrap();
                let got = (x, y).reduce::<((Dot, Dot), Dot), BLOCK>().unwrap();
                assert_eq!(format!("{got:?}"), format!("{:?}", ((dot, dot), dot)), "{case}");
            });
        }
    }
    check::<f16>();
    check::<bf16>();
}

/// Each operator without needed parameters is a value by its name.
#[test]
fn operators_by_name() {
    let x = [1.0f32, 2.0, 4.0, 9.0];
    macro_rules! alone_and_beside_a_sum {
        ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
            let (sum, value) = x.by((Sum, gpu_reduce::$op)).run().unwrap();
            assert_eq!((sum, value), (16.0, gpu_reduce::$name(&x).unwrap()));
        )*};
    }
    gpu_reduce::for_each_operator! { alone_and_beside_a_sum! {} }
    assert_eq!(gpu_reduce::Skewness, gpu_reduce::Skewness::default());
}
