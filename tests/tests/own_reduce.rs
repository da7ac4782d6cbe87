//! A program's own `Reduce` that contradicts itself. A call reduces one answer of its `data`, and lengths are
//! those of that answer.

use gpu_reduce::emulator::{self, Settings};
use gpu_reduce::{
    ArgMax, Buffer, Data, Device, Dot, Error, ExactSum, Max, Mean, Op, Reduce, Sharded, Sum, Var, View,
};
use std::fmt::Debug;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::samples;

/// Gives one view after another, and reports another length.
struct Fickle<'a> {
    views: Vec<View<'a, f32>>,
    len: usize,
    asked: AtomicUsize,
}

impl Reduce for Fickle<'_> {
    type Item = f32;
    type Data<'a>
        = View<'a, f32>
    where
        Self: 'a;

    fn data(&self) -> View<'_, f32> {
        self.views[self.asked.fetch_add(1, Ordering::Relaxed) % self.views.len()]
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// The same, in several shards.
struct Many<'a>(Vec<Sharded<View<'a, f32>>>, AtomicUsize);

impl Reduce for Many<'_> {
    type Item = f32;
    type Data<'a>
        = <Sharded<View<'a, f32>> as Reduce>::Data<'a>
    where
        Self: 'a;

    fn data(&self) -> Self::Data<'_> {
        self.0[self.1.fetch_add(1, Ordering::Relaxed) % self.0.len()].data()
    }

    fn len(&self) -> usize {
        1 << 40
    }
}

fn fickle<'a>(views: &[View<'a, f32>], len: usize) -> Fickle<'a> {
    Fickle { views: views.to_vec(), len, asked: AtomicUsize::new(0) }
}

/// How often they were asked since the last call of this.
fn asked(all: &Sharded<Fickle>) -> Vec<usize> {
    all.as_slice().iter().map(|shard| shard.asked.swap(0, Ordering::Relaxed)).collect()
}

fn shown(value: impl Debug) -> String {
    format!("{value:?}")
}

/// The devices under test, with three emulated ones.
fn devices() -> Vec<Device> {
    static EMULATOR: Once = Once::new();
    EMULATOR.call_once(|| emulator::set_settings(Settings { devices: 3, ..emulator::settings() }));
    support::devices()
}

/// The lengths that are reported: none, too few, too many.
const SAID: [usize; 3] = [0, 1 << 20, usize::MAX / 2];

/// Each call of one shard gives the result of one of the views.
fn one<O: Op<f32, Output: gpu_reduce::Item> + Default>(device: &Device, views: &[View<'_, f32>]) {
    let expected: Vec<_> = views.iter().map(|view| shown(view.reduce::<O, 64>())).collect();
    let stream = device.stream().unwrap();
    for said in SAID {
        let all = Sharded::from(vec![fickle(views, said)]);
        let is_one = |result: String, call: &str| {
            assert!(
                expected.contains(&result),
                "{call} of {} said to be {said}, on {device}: {result}",
                O::NAME
            );
            assert_eq!(asked(&all), [1], "{call}");
        };
        for _ in 0..views.len() + 1 {
            is_one(shown(all.reduce::<O, 64>()), "reduce");
            is_one(shown(all.reduce_on::<O, 64>(device)), "reduce_on");
            is_one(shown(gpu_reduce::reduce(&all, O::default())), "reduce, a function");
            is_one(shown(all.reduce_async::<O, 64>(&stream).wait()), "launch");
            let len = all.data_len();
            asked(&all);
            if len > 0 {
                for shape in [all.rows(len), all.columns(1), all.reshape(&[len]).and_then(|all| all.axis(0))]
                {
                    asked(&all);
                    match shape.and_then(|shape| shape.reduce::<O, 64>()?.to_vec()) {
                        Ok(results) => assert!(
                            results.iter().all(|&result| expected.contains(&shown(Ok::<_, Error>(result))))
                        ),
                        Err(error) => {
                            assert!(
                                matches!(error, Error::Shape { .. } | Error::EmptySegment { .. }),
                                "{error}"
                            )
                        }
                    }
                }
            }
            match all.segments(&[300u32, 300, 600]).and_then(|all| all.reduce::<O, 64>()?.to_vec()) {
                Ok(results) => {
                    assert_eq!(shown(results[1]), shown(buffer_part(views).reduce::<O, 64>().unwrap()))
                }
                Err(error) => {
                    assert!(matches!(error, Error::BadOffset { .. } | Error::EmptySegment { .. }), "{error}")
                }
            }
            asked(&all);
            let mut result = device.zeros::<O::Output>(1).unwrap();
            // SAFETY: all stay until the stream has been waited for.
            match unsafe { all.reduce_into::<O, 64>(&stream, &mut result) } {
                Ok(()) => {
                    stream.synchronize().unwrap();
                    is_one(shown(Ok::<_, Error>(result.to_vec().unwrap()[0])), "enqueue");
                }
                Err(error) => is_one(shown(Err::<O::Output, _>(error)), "enqueue"),
            }
        }
    }
}

/// The items of the segment in the longest view.
fn buffer_part<'a>(views: &[View<'a, f32>]) -> View<'a, f32> {
    let longest = views.iter().max_by_key(|view| view.len()).unwrap();
    longest.slice(300..600).unwrap()
}

trait DataLen: Reduce {
    /// The length of one answer.
    fn data_len(&self) -> usize {
        self.data().len()
    }
}

impl<D: Reduce> DataLen for D {}

#[test]
fn one_shard_is_asked_once() {
    for device in devices() {
        let buffer = device.upload(&samples(5_000, |hash| (hash >> 40) as f32)).unwrap();
        let ranges = [0..300, 0..5_000, 5..5, 0..1];
        let views: Vec<_> = ranges.map(|range| buffer.slice(range).unwrap()).to_vec();
        for views in [&views[..], &views[1..3], &views[2..]] {
            one::<Sum>(&device, views);
            one::<Var>(&device, views);
            one::<Max>(&device, views);
            one::<ArgMax>(&device, views);
            one::<ExactSum>(&device, views);
        }
    }
}

#[test]
fn several_shards_are_asked_once() {
    if devices().len() < 2 {
        return eprintln!("skipped: there is no device but the CPU");
    }
    let (one, other) = match (Device::cuda(0), Device::cuda(1)) {
        (Ok(one), Ok(other)) => (one, other),
        (_, Err(why)) | (Err(why), _) => return eprintln!("skipped on two devices: {why}"),
    };
    let buffers =
        [one, other].map(|device| device.upload(&samples(9_000, |hash| (hash >> 40) as f32)).unwrap());
    let views = |buffer: usize, ends: &[usize]| {
        ends.iter().map(|&end| buffers[buffer].slice(..end).unwrap()).collect::<Vec<_>>()
    };
    let (first, second) = (views(0, &[9_000, 7, 0, 6_000]), views(1, &[3, 9_000, 4_345]));
    let mut expected = Vec::new();
    for &a in &first {
        for &b in &second {
            let both = Sharded::from(vec![a, b]);
            expected.push([
                shown(both.reduce::<Sum, 64>()),
                shown(both.reduce::<Var, 64>()),
                shown(both.reduce::<(Mean, Max), 64>()),
                shown((&both, &both).reduce::<Dot, 64>()),
            ]);
        }
    }
    let streams = gpu_reduce::Devices::new(buffers.iter().map(Buffer::device)).unwrap().stream().unwrap();
    for said in SAID {
        let all = Sharded::from(vec![fickle(&first, said), fickle(&second, said)]);
        for round in 0..12 {
            let is_one = |operator: usize, result: String| {
                let all = expected.iter().map(|expected| &expected[operator]).collect::<Vec<_>>();
                assert!(all.contains(&&result), "round {round}, said to be {said}: {result} of {all:?}");
            };
            asked(&all);
            is_one(0, shown(all.reduce::<Sum, 64>()));
            assert_eq!(asked(&all), [1, 1]);
            is_one(1, shown(all.reduce::<Var, 64>()));
            is_one(2, shown(all.reduce::<(Mean, Max), 64>()));
            is_one(0, shown(all.reduce_async::<Sum, 64>(&streams).wait()));
            is_one(1, shown(all.reduce_async::<Var, 64>(&streams).wait()));
            match (&all, &all).reduce::<Dot, 64>() {
                Err(error) => assert!(
                    matches!(
                        error,
                        Error::ShardMismatch { .. }
                            | Error::LengthMismatch { .. }
                            | Error::DeviceMismatch { .. }
                    ),
                    "{error}"
                ),
                dot => is_one(3, shown(dot)),
            }
            let len = all.data_len();
            let shapes = [all.rows(len.max(1)), all.columns(1), all.segments(&[0u64, 1, 5])];
            for shape in shapes.into_iter().flatten() {
                let count = shape.len();
                let results = shape.by(Max).or(-1.0).block::<64>().run().unwrap().to_vec().unwrap();
                assert_eq!(results.len(), count);
                let launched = shape.by(Max).or(-1.0).block::<64>().run_async(&streams);
                assert_eq!(launched.wait().unwrap().to_vec().unwrap(), results);
            }
        }
    }
    // Shards that consist of shards.
    let many = Sharded::from(vec![Many(
        vec![
            Sharded::from(vec![first[0], second[0]]),
            Sharded::from(vec![first[1], second[1], first[3]]),
            Sharded::from(vec![]),
        ],
        AtomicUsize::new(0),
    )]);
    let expected = many.as_slice()[0].0.iter().map(|all| shown(all.reduce::<Sum, 64>())).collect::<Vec<_>>();
    for _ in 0..7 {
        assert!(expected.contains(&shown(many.reduce::<Sum, 64>())));
    }
}

/// The first of two arrays may be longer than the second.
#[test]
fn pairs_are_of_one_length() {
    for device in devices() {
        let buffer = device.upload(&samples(5_000, |hash| (hash >> 40) as f32)).unwrap();
        let views = [1_000, 5_000, 0].map(|end| buffer.slice(..end).unwrap());
        let expected: Vec<_> = views.map(|view| shown((view, view).reduce::<Dot, 64>())).to_vec();
        let all = (fickle(&views, 5_000), fickle(&[views[0], views[0], views[2], views[1]], 5_000));
        for _ in 0..12 {
            match all.reduce::<Dot, 64>() {
                Err(error) => assert!(matches!(error, Error::LengthMismatch { .. }), "{error}"),
                dot => assert!(expected.contains(&shown(dot))),
            }
        }
    }
}
