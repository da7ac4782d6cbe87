//! Reductions by index that work in any order, on every device, against a plain reading of what the operators
//! promise.

use crate::by_index::{assert_same, indices};
use bytemuck::bytes_of;
use gpu_reduce::Comparison::{Greater, NotEqual};
use gpu_reduce::{
    All, Any, ArgMax, ArgMin, ArgMinMax, BitAnd, BitOr, BitXor, CountNan, CountNonzero, CountWhere, Device,
    Element, Error, Item, Max, MinMax, NanArgMax, NanArgMin, NanMin, Op, Reduce, Sum, bf16, f16,
};
use std::fmt::Debug;
use support::{Sample, devices, hash, is_of_part, is_taken, samples};

/// The places of the items of each index.
fn places(at: &[u32], count: usize) -> Vec<Vec<usize>> {
    let mut places = vec![Vec::new(); count];
    at.iter().enumerate().for_each(|(place, &index)| places[index as usize].push(place));
    places
}

/// Checks an operator against `expected`, which gets the places of an index's items.
fn check<T: Element, O: Op<T, Output = V>, V: Item + Debug>(
    op: O,
    items: &[T],
    (at, count): (&[u32], usize),
    default: V,
    expected: impl Fn(&[usize]) -> Option<V>,
) {
    let expected: Vec<_> = places(at, count).iter().map(|places| expected(places)).collect();
    let results: Vec<_> = expected.iter().map(|result| result.unwrap_or(default)).collect();
    let empty = expected.iter().position(Option::is_none);
    for device in devices() {
        let case = format!("{} of {} {} by {count} on {device}", O::NAME, items.len(), T::NAME);
        let (x, at) = (device.upload(items).unwrap(), device.upload(at).unwrap());
        let groups = x.by_index(&at, count).unwrap();
        // Twice, because the first call must leave nothing behind.
        for _ in 0..2 {
            let got = groups.by(op).or(default).run().unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_same(&got.to_vec().unwrap(), &results, &case);
            match (groups.by(op).run(), empty) {
                (Ok(got), None) => assert_same(&got.to_vec().unwrap(), &results, &case),
                (Err(error), Some(empty)) => {
                    let expected = Error::EmptySegment { op: O::NAME, segment: empty as u64 };
                    assert_eq!(error, expected, "{case}");
                }
                (got, empty) => panic!("{case}: {got:?}, the first index without items is {empty:?}"),
            }
        }
    }
}

fn is_nan<T: Element>(item: T) -> bool {
    item.partial_cmp(&item).is_none()
}

/// Whether a number is below another; −0.0 is below 0.0.
fn is_below<T: Element>(a: T, b: T) -> bool {
    let is_minus_zero = |item: T| item == T::zero() && bytes_of(&item).iter().any(|&byte| byte != 0);
    a < b || (a == b && is_minus_zero(a) && !is_minus_zero(b))
}

/// The place of the first extreme.
fn first<T: Element>(items: &[T], places: &[usize], is_least: bool, skips_nan: bool) -> Option<u64> {
    let mut found: Option<usize> = None;
    for &place in places {
        let wins = match found {
            None => true,
            Some(best) => match (is_nan(items[best]), is_nan(items[place])) {
                (true, true) => false,
                (true, false) => skips_nan,
                (false, true) => !skips_nan,
                _ if is_least => is_below(items[place], items[best]),
                _ => is_below(items[best], items[place]),
            },
        };
        found = if wins { Some(place) } else { found };
    }
    found.map(|place| place as u64)
}

/// The cases: lengths and numbers of results, and a distribution of indices.
fn cases() -> impl Iterator<Item = (usize, usize, Vec<u32>)> {
    let cases =
        [(0, 3), (1, 1), (1, 5), (700, 1), (3000, 20), (9001, 40), (8200, 9000), (5000, 60_000), (4097, 2)];
    (0..).zip(cases).map(|(case, (len, count))| (len, count, indices(len, count, case % 5)))
}

/// Items of few values or of many: the extremes of the type, zeros, NaNs and infinities of floats.
fn items<T: Sample>(len: usize, case: usize) -> Vec<T> {
    let special = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0].map(T::from);
    let special = special.map(|value| value.unwrap_or(T::one()));
    let item = |place: u64| match hash(place ^ 0xfeed) % 16 {
        _ if case % 3 == 1 => T::any(hash(place)),
        0 => T::max_value(),
        1 => T::min_value(),
        which @ 2..8 if case % 3 == 2 => special[which as usize - 2],
        which => special[[0, 1, 5][which as usize % 3]],
    };
    (0..len as u64).map(item).collect()
}

fn all_of<T: Sample + Item>(shift: usize) {
    for (case, (len, count, at)) in cases().enumerate().filter(|(case, _)| is_taken(case + shift)) {
        let x = items::<T>(len, case / 3);
        let by = (&at[..], count);
        check(ArgMax, &x, by, 99, |places| first(&x, places, false, false));
        check(ArgMin, &x, by, 99, |places| first(&x, places, true, false));
        check(NanArgMax, &x, by, 99, |places| first(&x, places, false, true));
        check(NanArgMin, &x, by, 99, |places| first(&x, places, true, true));
        check(ArgMinMax, &x, by, [7, 9], |places| {
            Some([first(&x, places, true, false)?, first(&x, places, false, false)?])
        });
        // `max` makes a NaN canonical.
        let extreme = |place: u64| [x[place as usize]].reduce::<Max, 256>().unwrap();
        check(Max, &x, by, T::one(), |places| first(&x, places, false, false).map(extreme));
        check(NanMin, &x, by, T::one(), |places| first(&x, places, true, true).map(extreme));
        check(MinMax, &x, by, [T::one(), T::zero()], |places| {
            Some([extreme(first(&x, places, true, false)?), extreme(first(&x, places, false, false)?)])
        });
        let number =
            |places: &[usize], test: fn(T) -> bool| places.iter().filter(|&&at| test(x[at])).count() as u64;
        let is_nonzero = |item: T| item != T::zero();
        check(Any, &x, by, true, |places| Some(number(places, is_nonzero) > 0));
        check(All, &x, by, false, |places| Some(number(places, is_nonzero) == places.len() as u64));
        check(CountNonzero, &x, by, 99, |places| Some(number(places, is_nonzero)));
        check(CountNan, &x, by, 99, |places| Some(number(places, is_nan)));
        check(CountWhere::new(Greater(T::one())), &x, by, 99, |places| {
            Some(number(places, |item| item > T::one()))
        });
        check(CountWhere::new(NotEqual(T::zero())), &x, by, 99, |places| Some(number(places, is_nonzero)));
    }
}

#[test]
fn places_tests_and_counts() {
    macro_rules! all_of_each {
        ($($number:literal $type:ident)*) => {$(
            if is_of_part($number) {
                all_of::<$type>($number);
            }
        )*};
    }
    all_of_each! { 0 i8 1 i32 2 isize 3 u16 4 u64 5 f16 6 f32 7 f64 }
}

#[test]
#[cfg_attr(not(part = "4"), ignore = "of part 4")]
fn bits() {
    macro_rules! of {
        ($($type:ident)*) => {$(
            for (case, (len, count, at)) in cases().enumerate() {
                let any = |hash| $type::any(if case % 2 == 0 { hash } else { hash % 3 });
                let (x, by) = (samples(len, any), (&at[..], count));
                let fold = |places: &[usize], first: $type, combine: fn($type, $type) -> $type| {
                    Some(places.iter().fold(first, |all, &place| combine(all, x[place])))
                };
                check(BitAnd, &x, by, 1, |places| fold(places, !0, |a, b| a & b));
                check(BitOr, &x, by, 1, |places| fold(places, 0, |a, b| a | b));
                check(BitXor, &x, by, 1, |places| fold(places, 0, |a, b| a ^ b));
            }
        )*};
    }
    of! { u8 i16 u32 i64 u64 }
}

/// `bool` reduces as `u8`, and places are those of the whole input, too.
#[test]
fn truth_values() {
    let (len, count) = (5000, 30);
    let (at, x) =
        (indices(len, count, 1), (0..len as u64).map(|at| hash(at).is_multiple_of(9)).collect::<Vec<_>>());
    for device in devices() {
        let (on_device, indices) = (device.upload(&x).unwrap(), device.upload(&at).unwrap());
        let groups = on_device.by_index(&indices, count).unwrap();
        let (any, count_true, last) =
            groups.by((Any, CountNonzero, ArgMax)).or((false, 0, 77)).run().unwrap();
        let (any, number, first) =
            (any.to_vec().unwrap(), count_true.to_vec().unwrap(), last.to_vec().unwrap());
        for (index, places) in places(&at, count).iter().enumerate() {
            let of_true: Vec<_> = places.iter().filter(|&&place| x[place]).collect();
            assert_eq!(any[index], !of_true.is_empty(), "{index} on {device}");
            assert_eq!(number[index], of_true.len() as u64, "{index} on {device}");
            let found = of_true.first().copied().or(places.first()).map_or(77, |&place| place as u64);
            assert_eq!(first[index], found, "{index} on {device}");
        }
    }
}

/// As many items as the CPU takes in each of its ways: tables of threads, and one table.
#[test]
fn many_items_on_the_cpu() {
    let len = 200_000;
    for (count, distribution) in [(3, 0), (20_000, 1), (40_000, 0), (300_000, 0)] {
        let at = indices(len, count, distribution);
        let (x, y) = (items::<f32>(len, 2), samples(len, u64::any));
        let places = places(&at, count);
        let by_x = x.by_index(&at, count).unwrap();
        let by_y = y.by_index(&at, count).unwrap();
        let (of_x, number) = by_x.by((ArgMax, CountNonzero)).or((99, 99)).run().unwrap();
        let (of_y, flipped) = by_y.by((ArgMin, BitXor)).or((99, 99)).run().unwrap();
        let expected: Vec<_> =
            places.iter().map(|places| first(&x, places, false, false).unwrap_or(99)).collect();
        assert_same(&of_x.to_vec().unwrap(), &expected, "argmax");
        let expected: Vec<_> =
            places.iter().map(|places| first(&y, places, true, false).unwrap_or(99)).collect();
        assert_same(&of_y.to_vec().unwrap(), &expected, "argmin");
        let expected: Vec<_> = places
            .iter()
            .map(|places| places.iter().filter(|&&place| x[place] != 0.0).count() as u64)
            .collect();
        assert_same(&number.to_vec().unwrap(), &expected, "count_nonzero");
        let expected: Vec<_> =
            places.iter().map(|places| places.iter().fold(0, |all, &place| all ^ y[place])).collect();
        assert_same(&flipped.to_vec().unwrap(), &expected, "bit_xor");
    }
}

/// Starts and enqueues an operator with scratch memory that was lent.
fn on_a_stream<T: Sample + Item, O: Op<T, Output = V> + Default, V: Item + Debug>(device: &Device) {
    let (len, count) = (5000, 33);
    let x = device.upload(&items::<T>(len, 2)).unwrap();
    let at = device.upload(&indices(len, count - 1, 0)).unwrap();
    let groups = x.by_index(&at, count).unwrap();
    let results = groups.by(O::default()).or(V::zeroed()).run().unwrap().to_vec().unwrap();
    let stream = device.stream().unwrap();
    let pending = groups.by(O::default()).or(V::zeroed()).run_async(&stream);
    let other = groups.reduce_async::<O, 256>(&stream);
    assert_same(&pending.wait().unwrap().to_vec().unwrap(), &results, "async");
    match other.wait() {
        Ok(other) => assert_same(&other.to_vec().unwrap(), &results, "async"),
        Err(error) => assert_eq!(error, Error::EmptySegment { op: O::NAME, segment: count as u64 - 1 }),
    }
    let bytes = groups.by(O::default()).scratch_bytes();
    let mut scratch = device.zeros::<u64>(bytes.div_ceil(8).max(1)).unwrap();
    let mut into = device.upload(&vec![V::zeroed(); count]).unwrap();
    // SAFETY: all of them stay until the stream has been synchronized.
    unsafe {
        let stream = device.stream().unwrap().with_scratch(scratch.view_mut()).unwrap();
        groups.reduce_into::<O, 256>(&stream, &mut into).unwrap();
        groups.reduce_into::<O, 256>(&stream, &mut into).unwrap();
        stream.synchronize().unwrap();
    }
    assert_same(&into.to_vec().unwrap(), &results, O::NAME);
    // After a wrong index nothing is written, and the next call is right.
    let mut wrong = indices(len, count, 0);
    wrong[1234] = count as u32;
    wrong[4321] = u32::MAX;
    let wrong = device.upload(&wrong).unwrap();
    let error = Error::BadIndex { place: 1234, index: count as i128, count };
    let bad = x.by_index(&wrong, count).unwrap();
    assert_eq!(bad.reduce::<O, 256>().map(drop), Err(error.clone()), "{device}");
    assert_eq!(bad.reduce_async::<O, 256>(&stream).wait().map(drop), Err(error), "{device}");
    let again = groups.by(O::default()).or(V::zeroed()).run().unwrap();
    assert_same(&again.to_vec().unwrap(), &results, O::NAME);
}

#[test]
fn on_streams() {
    for device in devices() {
        on_a_stream::<f32, ArgMax, _>(&device);
        on_a_stream::<f64, ArgMax, _>(&device);
        on_a_stream::<i64, NanArgMin, _>(&device);
        on_a_stream::<u8, ArgMinMax, _>(&device);
        on_a_stream::<i64, ArgMinMax, _>(&device);
        on_a_stream::<f16, MinMax, _>(&device);
        on_a_stream::<i64, MinMax, _>(&device);
        on_a_stream::<bf16, All, _>(&device);
        on_a_stream::<f32, Any, _>(&device);
        on_a_stream::<i16, BitAnd, _>(&device);
        on_a_stream::<u64, BitXor, _>(&device);
        on_a_stream::<f64, CountNan, _>(&device);
    }
}

/// All items of one index lose against all others, or are equal.
#[test]
fn items_of_the_least_rank() {
    let (len, count) = (4500, 70);
    let at = indices(len, count, 0);
    let x = vec![i64::MIN; len];
    check(Max, &x, (&at, count), 7, |places| places.first().map(|_| i64::MIN));
    check(ArgMax, &x, (&at, count), 7, |places| places.first().map(|&place| place as u64));
    check(ArgMin, &x, (&at, count), 7, |places| places.first().map(|&place| place as u64));
}

#[test]
fn no_results() {
    for device in devices() {
        let (x, at) = (device.upload(&[1.0f64; 9]).unwrap(), device.upload(&[0u32; 9]).unwrap());
        let error = Error::BadIndex { place: 0, index: 0, count: 0 };
        let groups = x.by_index(&at, 0).unwrap();
        assert_eq!(groups.reduce::<ArgMax, 256>().map(drop), Err(error.clone()), "{device}");
        assert_eq!(groups.reduce::<CountNan, 256>().map(drop), Err(error), "{device}");
        let (x, at) = (x.slice(..0).unwrap(), at.slice(..0).unwrap());
        assert_eq!(x.by_index(at, 0).unwrap().reduce::<MinMax, 256>().unwrap().len(), 0, "{device}");
    }
}

#[test]
fn places_of_groups_by_key() {
    for device in devices() {
        let keys = device.upload(&[30i16, -1, 30, -1, 5]).unwrap();
        let x = device.upload(&[1.0f32, 2.0, 4.0, 2.0, f32::NAN]).unwrap();
        let groups = x.group_by(&keys).unwrap();
        assert_eq!(groups.reduce::<ArgMax, 256>().unwrap().to_vec().unwrap(), [1, 4, 2]);
        let (least, sums) = groups.by((ArgMinMax, Sum)).unwrap().run().unwrap();
        assert_eq!(least.to_vec().unwrap(), [[1, 1], [4, 4], [0, 2]]);
        assert_eq!(sums.to_vec().unwrap()[2], 5.0);
    }
}
