//! The ladder's table: every classic kernel with every operator, type and BLOCK, at lengths around every
//! boundary, aligned and not, against the reference; special values; argmin.

use gpu_reduce::{
    Block, Device, Error, LadderElement, LadderOp, Max, Min, Prod, Reduce, Sum, Threads, Variant, View,
    for_each_rung, variant,
};
use std::fmt::Debug;
use std::num::NonZeroU32;
use std::time::Duration;
use support::reference::{Ordered, Reference};
use support::{Sample, devices, for_each_block, samples};

/// Every device that runs variants: all but the CPU.
fn gpus() -> impl Iterator<Item = Device> {
    devices().into_iter().filter(|device| !device.is_cpu())
}

/// The most elements for kernels with one atomic operation for each element.
const ATOMICS: usize = 70_000;

/// Lengths around a warp, a block, the two elements a thread of some kernels, and what two launches reduce.
/// On a GPU also around the elements that the cascaded kernel's grid covers at once.
fn lengths(device: &Device, block: usize) -> Vec<usize> {
    let mut boundaries = vec![2, 32, block, 2 * block, 3 * block];
    if block <= 64 || !device.is_emulator() {
        boundaries.extend([block * block, 4 * block * block]);
    }
    if !device.is_emulator() {
        boundaries.extend([cascade(block), 5_000_000]);
    }
    let mut lengths: Vec<usize> =
        boundaries.iter().flat_map(|&length| [length - 1, length, length + 1]).collect();
    lengths.sort();
    lengths.dedup();
    lengths
}

/// The elements that the cascaded kernel's largest grid covers at once.
fn cascade(block: usize) -> usize {
    2 * block * gpu_reduce::max_chunks(block as u32) as usize
}

/// The most operations between an element and the result, of any variant. Atomic operations may combine one
/// after another. A thread of the cascaded kernel has a 2^16th of the elements. There are at most six
/// launches of at most twelve operations each.
fn depth(variant: &str, len: usize) -> u64 {
    let len = len as u64;
    if variant.contains("atomic") { len + 12 } else { len.div_ceil(1 << 16) + 6 * 12 }
}

macro_rules! for_each_variant {
    (|$variant:ident| $body:expr) => {
        for_each_rung! { for_each_variant! { |$variant| $body } }
    };
    ({ |$variant:ident| $body:expr } $($rung:ident: $name:ident;)*) => {{
        $({
            type $variant = variant::$rung;
            assert_eq!(<$variant as Variant>::NAME, stringify!($name));
            $body;
        })*
        type $variant = variant::Production;
        $body;
    }};
}

fn table<O: LadderOp<T>, T: Sample + LadderElement + Reference<O>>(sample: fn(u64) -> T) {
    for device in gpus() {
        for_each_block!(|BLOCK| {
            let lengths = lengths(&device, BLOCK as usize);
            let host = samples(lengths.last().unwrap() + 3, sample);
            let buffer = device.upload(&host).unwrap();
            for (index, &len) in lengths.iter().enumerate() {
                let range = index % 4..index % 4 + len;
                let expected = T::expected(&host[range.clone()]);
                let view = buffer.slice(range).unwrap();
                // An atomic operation that is a loop of compare-and-swap takes seconds for millions of
                // elements.
                for_each_variant!(|V| if len <= ATOMICS || V::NAME != variant::Atomic::NAME {
                    test_case::<V, O, T, BLOCK>(view, &expected)
                });
            }
        });
    }
}

fn test_case<V: Variant, O: LadderOp<T>, T: Reference<O> + LadderElement, const BLOCK: u32>(
    view: View<T>,
    expected: &T::Expected,
) where
    Threads<BLOCK>: Block,
{
    check::<O, T>(V::NAME, BLOCK, view, view.reduce_with::<V, O, BLOCK>(), expected);
}

/// The part of [`test_case`] that is the same for all variants and BLOCKs.
fn check<O: LadderOp<T>, T: Reference<O> + LadderElement>(
    variant: &str,
    block: u32,
    view: View<T>,
    got: Result<O::Output, Error>,
    expected: &T::Expected,
) {
    let len = view.len();
    let context = format!("{variant}_{}_{}_{block} of {len} on {}", O::NAME, T::NAME, view.device());
    let got = got.unwrap_or_else(|error| panic!("{context}: {error}"));
    T::check(got, expected, depth(variant, len), &context);
}

macro_rules! test_types {
    ($($type:ident)*) => {$(
        mod $type {
            use super::*;

            #[test]
            fn table() {
                super::table::<Sum, $type>(Sample::any);
                super::table::<Prod, $type>(Sample::factor);
                super::table::<Min, $type>(Sample::any);
                super::table::<Max, $type>(Sample::any);
            }
        }
    )*};
}

test_types! { i32 i64 f32 f64 }

/// Every variant reduces `fill` with one `special` among it to `expected`.
fn expect<O: LadderOp<T>, T: LadderElement>(fill: T, special: T, expected: O::Output) {
    for device in gpus() {
        for len in [1, 2, 31, 97, 1025] {
            for place in [0, len / 2, len - 1] {
                let mut data = vec![fill; len];
                data[place] = special;
                let x = device.upload(&data).unwrap();
                for_each_variant!(|V| {
                    let got = x.reduce_with::<V, O, 64>().unwrap();
                    let context =
                        format!("{}_{}: {special} at {place} of {len} on {device}", V::NAME, O::NAME);
                    assert_same(got, expected, &context);
                });
            }
        }
    }
}

/// Panics unless equal. NaNs are equal, and zeros of different signs are not.
fn assert_same<V: Debug>(got: V, expected: V, context: &str) {
    assert_eq!(format!("{got:?}"), format!("{expected:?}"), "{context}");
}

/// More elements than a grid covers at once, so that threads loop, on the emulator too.
#[test]
fn cascades_go_around() {
    for device in gpus() {
        let host = samples(2 * cascade(1024) + 5, f32::any);
        let buffer = device.upload(&host).unwrap();
        for_each_block!(|BLOCK| {
            let range = 1..2 * cascade(BLOCK as usize) + 5;
            let expected = <f32 as Reference<Sum>>::expected(&host[range.clone()]);
            let view = buffer.slice(range).unwrap();
            test_case::<variant::Cascaded, Sum, f32, BLOCK>(view, &expected);
            test_case::<variant::Shuffle, Sum, f32, BLOCK>(view, &expected);
        });
    }
}

/// All but the atomics, which combine in the order in which blocks run.
#[test]
fn repeats_give_the_same_bits() {
    for device in gpus() {
        let len = if device.is_emulator() { 5_000 } else { 3_000_000 };
        let x = device.upload(&samples(len, f32::any)).unwrap();
        for_each_variant!(|V| {
            let sum = || x.reduce_with::<V, Sum, 128>().unwrap().to_bits();
            let first = sum();
            assert!(V::NAME.contains("atomic") || (0..5).all(|_| sum() == first), "{} on {device}", V::NAME);
        });
    }
}

/// Timing returns the result of the last repeat. Each repeat starts anew.
#[test]
fn timing_repeats_the_reduction() {
    for device in devices() {
        let x = device.upload(&samples(3_000, i32::any)).unwrap();
        let repeats = NonZeroU32::new(3).unwrap();
        let expected = x.reduce::<Sum, 64>().unwrap();
        assert_eq!(x.time_with::<variant::Production, Sum, 64>(repeats).unwrap().0, expected);
        if !device.is_cpu() {
            for_each_variant!(|V| {
                let (sum, time) = x.time_with::<V, Sum, 64>(repeats).unwrap();
                assert_eq!(sum, expected, "{} on {device}", V::NAME);
                assert!(time > Duration::ZERO, "{} on {device}", V::NAME);
            });
        }
        let empty = device.zeros::<i32>(0).unwrap();
        let timed = empty.time_with::<variant::Production, Sum, 64>(repeats);
        assert_eq!(timed, Ok((0, Duration::ZERO)), "{device}");
    }
}

#[test]
fn special_floats() {
    expect::<Sum, f32>(1.0, f32::NAN, f32::NAN);
    expect::<Prod, f64>(1.0, f64::NAN, f64::NAN);
    expect::<Min, f32>(f32::NEG_INFINITY, f32::NAN, f32::NAN);
    expect::<Max, f64>(f64::INFINITY, -f64::NAN, f64::NAN);
    expect::<Sum, f64>(1.0, f64::NEG_INFINITY, f64::NEG_INFINITY);
    expect::<Sum, f32>(-0.0, -0.0, -0.0);
    expect::<Prod, f32>(1.0, -0.0, -0.0);
    expect::<Min, f64>(0.0, -0.0, -0.0);
    expect::<Max, f32>(-0.0, 0.0, 0.0);
    // Not the sum of `f32`, because atomics flush subnormals there.
    expect::<Sum, f64>(0.0, f64::from_bits(1), f64::from_bits(1));
    expect::<Prod, f32>(1.0, f32::from_bits(1), f32::from_bits(1));
}

#[test]
fn extreme_integers() {
    expect::<Min, i32>(i32::MAX, i32::MAX, i32::MAX);
    expect::<Max, i64>(i64::MIN, i64::MIN, i64::MIN);
    expect::<Min, i64>(0, i64::MIN, i64::MIN);
    expect::<Max, i32>(i32::MIN, -1, -1);
}

#[test]
fn sums_of_i32_are_of_64_bits() {
    for device in gpus() {
        let x = device.upload(&vec![i32::MAX; 3000]).unwrap();
        let expected = 3000 * i64::from(i32::MAX);
        for_each_variant!(|V| assert_eq!(x.reduce_with::<V, Sum, 128>(), Ok(expected), "{}", V::NAME));
    }
}

/// The first of the smallest elements, in data of few different values, at every length.
fn argmin<T: Ordered + LadderElement>(values: &[T]) {
    for device in gpus() {
        for_each_block!(|BLOCK| {
            for len in lengths(&device, BLOCK as usize) {
                let data = samples(len, |hash| values[hash as usize % values.len()]);
                let first = (0..len).min_by(|&a, &b| data[a].order(&data[b])).unwrap();
                let context = format!("{:?}, {} of {len} on {device}", values, T::NAME);
                let (index, least) = device.upload(&data).unwrap().argmin_by_halving::<BLOCK>().unwrap();
                assert_eq!(index, first, "{context}");
                assert_same(least, data[first], &context);
            }
        });
    }
}

#[test]
fn argmin_is_the_first_of_the_least() {
    argmin(&[5, -3, 7i32]);
    argmin(&[i64::MAX]);
    argmin(&[0.0, -0.0, 1.5f32]);
    argmin(&[f64::NEG_INFINITY, f64::NAN, f64::INFINITY]);
}

#[test]
fn empty_inputs_and_the_cpu() {
    for device in gpus() {
        let empty = device.zeros::<f32>(0).unwrap();
        assert_eq!(empty.reduce_with::<variant::Atomic, Sum, 32>(), Ok(0.0));
        let refused = Err(Error::EmptyInput { op: "min" });
        assert_eq!(empty.reduce_with::<variant::Cascaded, Min, 32>(), refused);
        assert_eq!(empty.argmin_by_halving::<32>().map(|_| 0.0), refused);
    }
    let x = Device::cpu().upload(&[2.0f64, 3.0]).unwrap();
    assert_eq!(x.reduce_with::<variant::Production, Sum, 32>(), Ok(5.0));
    let error = x.reduce_with::<variant::Sequential, Sum, 32>().unwrap_err();
    assert_eq!(error, Error::NoVariant { variant: "sequential" });
    assert!(error.to_string().starts_with("sequential runs only on GPUs"), "{error}");
    assert_eq!(x.argmin_by_halving::<32>(), Err(Error::NoVariant { variant: "argmin_halving" }));
}
