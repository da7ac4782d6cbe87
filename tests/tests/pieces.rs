//! Items in pieces: pushed to a `Reducer`, Arrow arrays with nulls, and memory-mapped files.

use arrow_array::types::{Float32Type, Float64Type, Int8Type, UInt64Type};
use arrow_array::{Array, ArrowPrimitiveType, Float32Array, Int32Array, PrimitiveArray};
use gpu_reduce::{
    ArgMax, ArgMin, Block, Device, Element, Error, Max, Mean, Min, Nullable, Op, Reduce, ReduceArray,
    Reducer, Sum, Threads, Var, bf16, for_each_operator,
};
use std::fmt::Debug;
use std::io::Write;
use support::{Sample, for_each_block, for_each_element, hash, lengths, samples};

/// Bits that tell results apart. All NaNs are alike.
fn shown(value: impl Debug) -> String {
    format!("{value:?}")
}

/// Pushes all items in pieces of the lengths that `length` returns.
fn pushed<O: Op<T>, T: Element, const BLOCK: u32>(
    mut reducer: Reducer<O, T, BLOCK>,
    data: &[T],
    mut length: impl FnMut() -> usize,
) -> Result<O::Output, Error>
where
    Threads<BLOCK>: Block,
{
    let mut rest = data;
    while !rest.is_empty() {
        let (piece, others) = rest.split_at(length().min(rest.len()));
        reducer.push(piece)?;
        rest = others;
    }
    reducer.push(&[])?;
    assert_eq!(reducer.len(), data.len() as u64);
    reducer.finish()
}

fn check<O: Op<T> + Default, T: Sample, const BLOCK: u32>(lengths: &[usize])
where
    Threads<BLOCK>: Block,
{
    let data = samples(lengths.last().map_or(0, |&last| last), T::any);
    for &len in lengths {
        let data = &data[..len];
        let op = O::default();
        let expected = shown(data.reduce::<O, BLOCK>());
        for most in [7, 1000, usize::MAX] {
            let mut turn = 0;
            let length = || {
                turn += 1;
                if most == usize::MAX { most } else { hash(turn) as usize % (most + 1) }
            };
            let got = shown(pushed(Reducer::<O, T, BLOCK>::with_len(op, len as u64), data, length));
            assert_eq!(got, expected, "{} of {len} {}, BLOCK {BLOCK}, pieces of {most}", O::NAME, T::NAME);
        }
        // If their number is not known in advance, the result is the same however they come.
        let at_once = shown(pushed(Reducer::<O, T, BLOCK>::new(op), data, || usize::MAX));
        let got = shown(pushed(Reducer::<O, T, BLOCK>::new(op), data, || 333));
        assert_eq!(got, at_once, "{} of {len} {}, BLOCK {BLOCK}", O::NAME, T::NAME);
        if O::EXACT {
            assert_eq!(got, expected);
        }
    }
}

#[test]
#[cfg_attr(not(part = "3"), ignore = "of part 3")]
fn pieces_have_the_bits_of_one_slice() {
    macro_rules! all {
        ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
            check::<gpu_reduce::$op, f32, 64>(&[0, 1, 31, 33, 255, 257, 2047, 2049, 8191, 8193, 40_000]);
            check::<gpu_reduce::$op, i8, 32>(&[0, 1, 255, 257, 4095, 4097, 20_000]);
            check::<gpu_reduce::$op, f64, 32>(&[0, 1, 63, 65, 513, 20_000]);
        )*};
    }
    for_each_operator! { all! {} }
    macro_rules! types {
        ({} $($type:ident: $($row:ident)*;)*) => {$(
            for_each_block!(|BLOCK| check::<Sum, $type, BLOCK>(&lengths::<$type, BLOCK>(100_000)));
        )*};
    }
    use gpu_reduce::f16;
    for_each_element! { types! {} }
    check::<(Sum, Min, Max), f32, 128>(&[1, 1000, 100_000]);
}

/// Pieces that several threads fold.
#[test]
#[cfg_attr(not(part = "4"), ignore = "of part 4")]
fn long_pieces() {
    for len in [3 << 20, (5 << 20) + 12_345] {
        check::<Sum, f32, 256>(&[len]);
        check::<Var, f32, 512>(&[len]);
        check::<ArgMin, f64, 1024>(&[len]);
    }
}

#[test]
fn a_sum_of_pieces_of_any_number_is_near() {
    let data = samples(3_000_000, f32::any);
    let exact: f64 = data.iter().map(|&x| f64::from(x)).sum();
    let magnitudes: f64 = data.iter().map(|&x| f64::from(x.abs())).sum();
    let sum = pushed(Reducer::<Sum, f32, 256>::new(Sum), &data, || 4567).unwrap();
    assert!(
        (f64::from(sum) - exact).abs() <= 160.0 * f64::from(f32::EPSILON) / 2.0 * magnitudes,
        "{sum} {exact}"
    );
}

#[test]
fn what_was_not_pushed_is_told() {
    let mut sum = Reducer::<_, i32, 32>::with_len(Sum, 3);
    assert!(sum.is_empty());
    sum.push(&[1, 2]).unwrap();
    assert_eq!(sum.finish(), Err(Error::Incomplete { count: 2, len: 3 }));
    assert_eq!(sum.push(&[3, 4]), Err(Error::OutOfBounds { start: 2, end: 4, len: 3 }));
    sum.push(&[5]).unwrap();
    assert_eq!(sum.finish(), Ok(8));
    assert_eq!(
        sum.push(&[5]).map_err(|why| why.to_string()),
        Err("elements 3..4 are not in a buffer of 3 elements".into())
    );
    assert_eq!(sum.finish(), Ok(8));
    assert_eq!(Reducer::<_, f32, 32>::with_len(Max, 0).finish(), Err(Error::EmptyInput { op: "max" }));
    assert_eq!(Reducer::<_, f32, 32>::new(Min).finish(), Err(Error::EmptyInput { op: "min" }));
    assert_eq!(Reducer::<_, f32, 32>::new(Sum).finish(), Ok(0.0));
    // A result midway, and then more items.
    let mut mean = Reducer::<_, f64, 256>::new(Mean);
    for (turn, value) in (1..=1000).map(f64::from).enumerate() {
        mean.push(&[value]).unwrap();
        assert_eq!(mean.finish(), Ok((turn + 2) as f64 / 2.0));
    }
}

/// A name, and which items of an array are null.
type Pattern = (&'static str, fn(usize) -> bool);

const PATTERNS: [Pattern; 6] = [
    ("none", |_| false),
    ("all", |_| true),
    ("some", |i| hash(i as u64).is_multiple_of(10)),
    ("most", |i| !hash(i as u64).is_multiple_of(10)),
    ("runs", |i| i / 700 % 2 == 1),
    ("all but the last", |i| i != 4999),
];

fn check_array<A: ArrowPrimitiveType<Native: Sample>>(place: impl Fn(A::Native) -> String) {
    let data = samples::<A::Native>(5000, A::Native::any);
    for (name, is_null) in PATTERNS {
        let all: PrimitiveArray<A> =
            data.iter().enumerate().map(|(i, &value)| (!is_null(i)).then_some(value)).collect();
        // Slices begin at any bit of their bitmap.
        for (start, len) in [(0, 5000), (1, 4999), (13, 3000), (64, 64), (4999, 1), (5, 0)] {
            let array = all.slice(start, len);
            let valid: Vec<_> = array.iter().flatten().collect();
            let nulls = len - valid.len();
            let context = format!("{name} null, {start} and {len}");
            let expected =
                (!valid.is_empty()).then(|| valid.reduce::<Sum, 64>().map(&shown)).transpose().unwrap();
            let got = array.reduce_valid::<Sum, 64>().unwrap();
            assert_eq!((got.value.map(shown), got.nulls), (expected.clone(), nulls), "{context}");
            // In two arrays.
            let halves = [array.slice(0, len / 3), array.slice(len / 3, len - len / 3)];
            let got = halves.reduce_valid::<Sum, 64>().unwrap();
            assert_eq!((got.value.map(shown), got.nulls), (expected, nulls), "{context}, in two");
            // The item at the index of the largest is the largest.
            if let Nullable { value: Some(index), .. } = array.reduce_valid::<ArgMax, 64>().unwrap() {
                let largest = valid.reduce::<Max, 64>().unwrap();
                assert!(array.is_valid(index as usize), "{context}");
                assert_eq!(place(array.value(index as usize)), place(largest), "{context}");
            }
        }
    }
}

#[test]
fn nulls_are_left_out() {
    check_array::<Float32Type>(|value| value.to_string());
    check_array::<Float64Type>(|value| value.to_string());
    check_array::<Int8Type>(|value| value.to_string());
    check_array::<UInt64Type>(|value| value.to_string());
}

#[test]
fn what_lies_under_nulls_is_not_read() {
    let values = vec![1.0, f32::NAN, 3.0, f32::NAN];
    let x = Float32Array::new(values.into(), Some(vec![true, false, true, false].into()));
    assert_eq!(x.reduce_valid::<Sum, 256>(), Ok(Nullable { value: Some(4.0), nulls: 2 }));
    assert_eq!(x.reduce_valid::<Min, 256>(), Ok(Nullable { value: Some(1.0), nulls: 2 }));
    assert_eq!(x.reduce_valid::<Mean, 256>(), Ok(Nullable { value: Some(2.0), nulls: 2 }));
    assert_eq!(x.reduce_valid_by::<_, 256>(Var::new(1)), Ok(Nullable { value: Some(2.0), nulls: 2 }));
    let none: [Int32Array; 0] = [];
    assert_eq!(none.reduce_valid::<Sum, 256>(), Ok(Nullable { value: None, nulls: 0 }));
}

#[test]
fn a_mapped_file_reduces_where_it_lies() {
    let data = samples(100_000, f32::any);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytemuck::cast_slice(&data)).unwrap();
    // SAFETY: nobody else uses the file.
    let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    let items: &[f32] = bytemuck::try_cast_slice(&map).unwrap();
    assert_eq!(items.reduce::<Sum, 256>(), data.reduce::<Sum, 256>());
    assert_eq!(items[1..].reduce::<Sum, 256>(), data[1..].reduce::<Sum, 256>());
    for device in support::devices() {
        assert_eq!(items.reduce_on::<Sum, 256>(&device), data.reduce_on::<Sum, 256>(&Device::cpu()));
    }
    let halves: &[bf16] = bytemuck::try_cast_slice(&map).unwrap();
    assert_eq!(halves.len(), 200_000);
}
