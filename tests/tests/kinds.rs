//! Every kind of container of elements, and elements that are other types by another name.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;

use gpu_reduce::{
    Comparison, CountWhere, Error, ExactDot, Item, Max, Mean, Min, Op, Reduce, Reducer, Sum, Var,
    for_each_integer_operator, for_each_operator,
};
use support::{Sample, devices, hash, samples};

#[test]
fn whatever_holds_the_elements() {
    let x = samples(10_001, f32::any);
    let sum = gpu_reduce::sum(&x);
    let boxed: Box<[f32]> = x.clone().into();
    let shared: Arc<[f32]> = x.clone().into();
    let counted: Rc<[f32]> = x.clone().into();
    let (owned, borrowed) = (Cow::Owned::<[f32]>(x.clone()), Cow::Borrowed(&x[..]));
    let slice = &x[..];
    let text = |sum: &Result<f32, Error>| format!("{sum:?}");
    for other in [
        gpu_reduce::sum(&boxed),
        gpu_reduce::sum(&shared),
        gpu_reduce::sum(&counted),
        gpu_reduce::sum(&owned),
        gpu_reduce::sum(&borrowed),
        gpu_reduce::sum(slice),
        gpu_reduce::sum(&slice),
        gpu_reduce::sum(&&slice),
        boxed.reduce::<Sum, 1024>().and(gpu_reduce::sum(&boxed)),
    ] {
        assert_eq!(text(&other), text(&sum));
    }
    for device in devices() {
        assert_eq!(
            boxed.reduce_on::<Max, 64>(&device).map(f32::to_bits),
            x.reduce::<Max, 64>().map(f32::to_bits)
        );
        assert_eq!(
            shared.reduce_on::<Min, 64>(&device).map(f32::to_bits),
            x.reduce::<Min, 64>().map(f32::to_bits)
        );
    }

    // In two pieces, and joined.
    let mut deque = VecDeque::with_capacity(10_000);
    deque.extend(0..5_000);
    (0..100).for_each(|index| deque.push_front(index));
    let expected: i64 = deque.iter().map(|&x| i64::from(x)).sum();
    let mut reducer = Reducer::<_, i32, 256>::new(Sum);
    let (first, second) = deque.as_slices();
    assert!(!first.is_empty() && !second.is_empty());
    reducer.push(first).unwrap();
    reducer.push(second).unwrap();
    assert_eq!(reducer.finish(), Ok(expected));
    assert_eq!(gpu_reduce::sum(deque.make_contiguous()), Ok(expected));
}

/// Results as bytes: a truth value as the byte that it is.
fn text(result: impl Debug) -> String {
    format!("{result:?}").replace("false", "0").replace("true", "1")
}

fn alike<O: Op<A> + Op<B> + Default, A: Item, B: Item>(name: &str, of: (&[A], &[B]))
where
    <O as Op<A>>::Output: Item,
    <O as Op<B>>::Output: Item,
{
    for device in devices() {
        let (a, b) = (device.upload(of.0).unwrap(), device.upload(of.1).unwrap());
        let case = format!("{name}, {} elements on {device}", a.len());
        assert_eq!(text(a.reduce::<O, 256>()), text(b.reduce::<O, 256>()), "{case}");
        if !a.is_empty() {
            let rows =
                (a.rows(a.len()).unwrap().reduce::<O, 256>(), b.rows(a.len()).unwrap().reduce::<O, 256>());
            let rows = (rows.0.unwrap().to_vec().unwrap(), rows.1.unwrap().to_vec().unwrap());
            assert_eq!(text(rows.0), text(rows.1), "{case}, a row");
            let columns =
                (a.columns(1).unwrap().reduce::<O, 256>(), b.columns(1).unwrap().reduce::<O, 256>());
            let columns = (columns.0.unwrap().to_vec().unwrap(), columns.1.unwrap().to_vec().unwrap());
            assert_eq!(text(columns.0), text(columns.1), "{case}, a column");
        }
        let stream = device.stream().unwrap();
        assert_eq!(
            text(a.reduce_async::<O, 256>(&stream).wait()),
            text(b.reduce_async::<O, 256>(&stream).wait()),
            "{case}"
        );
    }
}

/// Lengths below a tile, of a few tiles, and around a chunk.
const LENGTHS: [usize; 5] = [0, 1, 63, 1_000, 9_001];

macro_rules! each {
    ({ $of:ident $to:ident $all:ident } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
        for len in LENGTHS {
            let all: Vec<$to> = (0..len as u64).map(|index| $all(hash(index))).collect();
            let same: Vec<$of> = all.iter().map(|&element| named::$of(element)).collect();
            $( alike::<gpu_reduce::$op, $of, $to>(stringify!($name), (&same, &all)); )*
        }
    };
}

/// Converts an element to its alias.
mod named {
    pub fn usize(element: u64) -> usize {
        element as usize
    }

    pub fn isize(element: i64) -> isize {
        element as isize
    }

    pub fn bool(element: u8) -> bool {
        element != 0
    }
}

fn unsigned(draw: u64) -> u64 {
    draw >> (draw % 64)
}

fn signed(draw: u64) -> i64 {
    draw as i64 >> (draw % 64)
}

fn bit(draw: u64) -> u8 {
    draw.is_multiple_of(3).into()
}

#[test]
#[cfg_attr(not(part = "2"), ignore = "of part 2")]
fn usize_is_u64() {
    for_each_operator! { each! { usize u64 unsigned } }
    for_each_integer_operator! { each! { usize u64 unsigned } }
    // Calls that return elements return the elements' own type.
    let x = [3usize, 1, 2];
    assert_eq!(gpu_reduce::min(&x), Ok(1usize));
    assert_eq!(gpu_reduce::sum(&x), Ok(6u64));
    assert_eq!(gpu_reduce::bit_or(&x), Ok(3usize));
}

#[test]
#[cfg_attr(not(part = "3"), ignore = "of part 3")]
fn isize_is_i64() {
    for_each_operator! { each! { isize i64 signed } }
    for_each_integer_operator! { each! { isize i64 signed } }
    assert_eq!(gpu_reduce::minmax(&[-3isize, 1]), Ok([-3isize, 1]));
}

#[test]
#[cfg_attr(not(part = "1"), ignore = "of part 1")]
fn bool_is_u8() {
    for_each_operator! { each! { bool u8 bit } }
    let x = [true, false, true];
    assert_eq!(gpu_reduce::sum(&x), Ok(2));
    assert_eq!(gpu_reduce::mean(&x), Ok(2.0 / 3.0));
    assert_eq!(gpu_reduce::min(&x), Ok(false));
    assert_eq!(gpu_reduce::minmax(&x), Ok([0u8, 1]));
    assert_eq!((gpu_reduce::any(&x), gpu_reduce::all(&x)), (Ok(true), Ok(false)));
    let samples = Var::new(1);
    assert_eq!(gpu_reduce::reduce(&x, samples), gpu_reduce::reduce(&[1u8, 0, 1], samples));
    // In pieces, as a partial result, and several operators at once.
    let x: Vec<bool> = (0..5_000).map(|index| hash(index).is_multiple_of(2)).collect();
    let bytes: Vec<u8> = x.iter().map(|&x| x.into()).collect();
    let mut reducer = Reducer::<_, bool, 256>::with_len(Mean, 5_000);
    x.chunks(7).for_each(|piece| reducer.push(piece).unwrap());
    assert_eq!(reducer.finish(), gpu_reduce::mean(&bytes));
    for device in devices() {
        let (x, bytes) = (device.upload(&x).unwrap(), device.upload(&bytes).unwrap());
        let all =
            x.reduce::<(Sum, Min, Max), 256>().map(|(sum, min, max)| (sum, u8::from(min), u8::from(max)));
        assert_eq!(all, bytes.reduce::<(Sum, Min, Max), 256>());
    }
}

/// Pairs, and comparisons with a scalar.
#[test]
fn pairs_and_comparisons() {
    for len in LENGTHS {
        let all: Vec<u64> = (0..len as u64).map(|index| unsigned(hash(index))).collect();
        let same: Vec<usize> = all.iter().map(|&element| element as usize).collect();
        for device in devices() {
            let (x, y) = (device.upload(&same).unwrap(), device.upload(&all).unwrap());
            assert_eq!(gpu_reduce::dot(&x, &x), gpu_reduce::dot(&y, &y), "{device}");
            assert_eq!(
                (&x, &x).reduce::<ExactDot, 256>(),
                (&y, &y).reduce::<ExactDot, 256>(),
                "{device}, {len}"
            );
            let above = |scalar: u64| {
                let of_usize = CountWhere::new(Comparison::Greater(scalar as usize));
                assert_eq!(
                    x.by(of_usize).block::<256>().run(),
                    y.by(CountWhere::new(Comparison::Greater(scalar))).block::<256>().run()
                );
            };
            above(1 << 20);
            above(u64::MAX);
            let sums = (x.reduce::<(Sum, Min, Max), 256>(), y.reduce::<(Sum, Min, Max), 256>());
            assert_eq!(text(sums.0.ok()), text(sums.1.ok()));
            assert_eq!(text(x.reduce::<(Mean, Var), 256>()), text(y.reduce::<(Mean, Var), 256>()));
        }
    }
}
