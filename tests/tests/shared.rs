//! Operators whose kernels are another operator's: each result has the bits that a CPU gives it, in every shape.

use gpu_reduce::{
    Device, ExactMean, ExactSum, ExactSumTwofold, Item, Kurtosis, Mean, Moments, NanMean, NanStd, NanVar,
    NormL1, Op, Reduce, Skewness, Std, Var, f16,
};
use std::fmt::Debug;
use support::{Sample, devices, samples};

/// Results as text, in which NaNs are equal and zeros of different signs are not.
fn text(results: &[impl Debug]) -> Vec<String> {
    results.iter().map(|result| format!("{result:?}")).collect()
}

/// Calls `check` with each operator that runs another's kernels, and with the owners of the kernels.
macro_rules! each_operator {
    ($check:ident, $device:ident, $($type:ident)*) => {$(
        $check::<$type, _>($device, Var::new(1));
        $check::<$type, _>($device, Std::new(1));
        $check::<$type, _>($device, NanVar::new(0));
        $check::<$type, _>($device, NanStd::new(0));
        $check::<$type, _>($device, Skewness);
        $check::<$type, _>($device, Kurtosis);
        $check::<$type, _>($device, Moments);
        $check::<$type, _>($device, ExactMean);
        $check::<$type, _>($device, ExactSum);
        $check::<$type, _>($device, ExactSumTwofold);
        $check::<$type, _>($device, Mean);
        $check::<$type, _>($device, NanMean);
        $check::<$type, _>($device, NormL1);
    )*};
}

/// Calls `check` with each operator and some types of each class, on every device.
macro_rules! each {
    ($check:ident) => {
        for device in &devices() {
            each_operator! { $check, device, f32 f64 i16 u64 }
        }
    };
}

const LEN: usize = 1_500;

/// A whole array whose result stays on the device: a row, and several chunks.
fn whole<T: Sample, O: Op<T, Output: Item>>(device: &Device, op: O) {
    let host = samples(LEN, T::any);
    let x = device.upload(&host).unwrap();
    let stream = device.stream().unwrap();
    for len in [60, LEN] {
        let mut result = device.zeros::<O::Output>(1).unwrap();
        let x = x.slice(..len).unwrap();
        // SAFETY: the buffers outlive the stream's work.
        unsafe { x.by(op).block::<32>().run_into(&stream, &mut result).unwrap() };
        stream.synchronize().unwrap();
        let expected = host[..len].by(op).block::<32>().run().unwrap();
        let case = format!("{} of {len} {} on {device}", O::NAME, T::NAME);
        assert_eq!(text(&result.to_vec().unwrap()), text(&[expected]), "{case}");
    }
}

/// Many reductions in one call.
macro_rules! shape {
    ($name:ident, |$x:ident| $shaped:expr) => {
        fn $name<T: Sample, O: Op<T, Output: Item>>(device: &Device, op: O) {
            let host = samples(LEN, T::any);
            let results = |device: &Device| {
                let $x = device.upload(&host).unwrap();
                text(&$shaped.unwrap().by(op).block::<64>().run().unwrap().to_vec().unwrap())
            };
            assert_eq!(results(device), results(&Device::cpu()), "{} of {} on {device}", O::NAME, T::NAME);
        }
    };
}

shape! { short_rows, |x| x.rows(5) }
shape! { long_rows, |x| x.rows(750) }
shape! { segments, |x| x.segments(&[0u32, 0, 1, 40, 41, 999, 1_500]) }
shape! { columns, |x| x.columns(20) }

#[test]
fn results_of_whole_arrays() {
    each!(whole);
}

#[test]
fn results_of_rows() {
    each!(short_rows);
    each!(long_rows);
}

#[test]
fn results_of_segments() {
    each!(segments);
}

#[test]
fn results_of_columns() {
    each!(columns);
}

/// The pair of a mean and a standard deviation runs the kernels of a mean and a variance.
#[test]
fn results_of_pairs() {
    let host = samples(LEN, f16::any);
    for device in devices() {
        let x = device.upload(&host).unwrap();
        let (of_x, of_host) = (x.columns(20).unwrap(), host.columns(20).unwrap());
        let (means, deviations) = of_x.by((Mean, Std::new(1))).run().unwrap();
        assert_eq!(text(&means.to_vec().unwrap()), text(&of_host.by(Mean).run().unwrap().to_vec().unwrap()));
        let expected = of_host.by(Std::new(1)).run().unwrap().to_vec().unwrap();
        assert_eq!(text(&deviations.to_vec().unwrap()), text(&expected), "{device}");
        let (_, variances) = of_x.by((Mean, Var::new(1))).run().unwrap();
        let expected = of_host.by(Var::new(1)).run().unwrap().to_vec().unwrap();
        assert_eq!(text(&variances.to_vec().unwrap()), text(&expected), "{device}");
    }
}
