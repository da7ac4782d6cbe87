//! Sums by index of the items that pass a test, and of products, on every device: against exact sums of each
//! index's items that pass, and against dot products of each index's items as slices.

use crate::by_index::{assert_same, float, groups, indices};
use gpu_reduce::{
    Comparison, CountNan, Device, Dot, Element, Error, ExactDot, ExactMean, ExactSum, Item, Max, Mean,
    NanMean, NanSum, Op, Reduce, Sum, SumSq, SumWhere, bf16, f16,
};
use std::fmt::Debug;
use std::ops::Add;
use support::{Sample, devices, for_each_element, for_each_integer, hash, is_taken, mixed, samples};

/// Checks that operator `op` by index gives what operator `E` gives for those of each index's items for which
/// `holds` is true, and then `finish`: in two orders of the items.
fn check<T: Element, O: Op<T, Output = V>, E: Op<T, Output = V> + Default, V: Item + Debug>(
    op: O,
    (items, at, count): (&[T], &[u32], usize),
    holds: impl Fn(T) -> bool,
    finish: impl Fn(V) -> V,
    case: &str,
) {
    let expected: Vec<V> = groups(items, at, count)
        .into_iter()
        .map(|group| group.into_iter().filter(|&item| holds(item)).collect::<Vec<_>>())
        .map(|group| finish(group.reduce::<E, 256>().unwrap()))
        .collect();
    let order = mixed(items.len());
    let mixed: Vec<_> = order.iter().map(|&place| items[place]).collect();
    let mixed_at: Vec<_> = order.iter().map(|&place| i64::from(at[place])).collect();
    for device in devices() {
        let case = format!("{case}: {} of {} on {device}", O::NAME, T::NAME);
        let (x, on_device) = (device.upload(items).unwrap(), device.upload(at).unwrap());
        // There is a result for no items.
        let got = x.by_index(&on_device, count).unwrap().by(op).or(expected[0]).run();
        let got = got.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_same(&got.to_vec().unwrap(), &expected, &case);
        let (x, on_device) = (device.upload(&mixed).unwrap(), device.upload(&mixed_at).unwrap());
        let got = x.by_index(&on_device, count).unwrap().by(op).run().unwrap();
        assert_same(&got.to_vec().unwrap(), &expected, &format!("{case}, in another order"));
    }
}

/// Sums that skip items are +0.0 if they are zero.
fn positive_zero<V: Add<Output = V> + Item>(sum: V) -> V {
    sum + V::zeroed()
}

/// Checks [`NanSum`], [`NanMean`] and [`SumWhere`] of items, some of which are equal to `scalar`.
fn check_picked<T, S, M>(items: &[T], at: &[u32], count: usize, scalar: T, case: &str)
where
    T: Element<Wide: Item + Debug, Real: Item + Debug>,
    S: Op<T, Output = T::Wide> + Default,
    M: Op<T, Output = T::Real> + Default,
{
    let input = (items, at, count);
    #[expect(clippy::eq_op, reason = "a NaN is not equal to itself")]
    let is_number = |item: T| item == item;
    check::<T, _, S, _>(NanSum, input, is_number, positive_zero, case);
    check::<T, _, M, _>(NanMean, input, is_number, |mean| mean, case);
    let case = format!("{case}, scalar {scalar}");
    let where_ = |comparison| SumWhere::new(comparison);
    check::<T, _, S, _>(where_(Comparison::Less(scalar)), input, |item| item < scalar, positive_zero, &case);
    check::<T, _, S, _>(
        where_(Comparison::NotEqual(scalar)),
        input,
        |item| item != scalar,
        positive_zero,
        &case,
    );
    check::<T, _, S, _>(
        where_(Comparison::GreaterEqual(scalar)),
        input,
        |item| item >= scalar,
        positive_zero,
        &case,
    );
}

macro_rules! picked {
    ({ $of:ident } $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {$(
        picked! { @$kind $of $type }
    )*};
    (@integer $of:ident $type:ident) => { $of::<$type, Sum, Mean>(); };
    (@float $of:ident $type:ident) => { $of::<$type, ExactSum, ExactMean>(); };
}

#[test]
#[cfg_attr(not(part = "5"), ignore = "of part 5")]
fn picked_items_of_every_type() {
    fn of<T, S, M>()
    where
        T: Sample + Element<Wide: Item + Debug, Real: Item + Debug>,
        S: Op<T, Output = T::Wide> + Default,
        M: Op<T, Output = T::Real> + Default,
    {
        let shift = size_of::<T>() + T::NAME.len();
        let cases =
            [(1, 1), (31, 2), (1000, 1), (5000, 40), (4097, 900), (1000, 20_000)].into_iter().enumerate();
        for (case, (len, count)) in cases.filter(|(case, _)| is_taken(case + shift)) {
            let at = indices(len, count, case % 5);
            let items = samples(len, |index| T::any(index + 7));
            check_picked::<T, S, M>(&items, &at, count + 1, items[len / 2], &format!("{len} items"));
        }
    }
    for_each_element! { picked! { of } }
}

/// Floats of every size, NaN, infinities, zeros of both signs.
#[test]
#[cfg_attr(not(part = "0"), ignore = "of part 0")]
fn picked_floats_of_every_kind() {
    for kind in [0, 4, 5, 7, 8, 9, 10] {
        for (case, (len, count)) in [(700, 7), (3000, 300), (500, 900)].into_iter().enumerate() {
            if !is_taken(kind + case) {
                continue;
            }
            let at = indices(len, count, (case + kind) % 5);
            let nan = |place: u64| hash(place ^ 0x4a4).is_multiple_of(3);
            let of = |place| {
                if nan(place) { f64::from_bits(0x7ff << 52 | hash(place) >> 12) } else { float(kind, place) }
            };
            let doubles: Vec<f64> = (0..len as u64).map(of).collect();
            let name = format!("floats of kind {kind}, {len} items of {count} indices");
            let scalar = [0.0, -0.0, 1.0, f64::INFINITY, f64::NAN][(kind + case) % 5];
            check_picked::<f64, ExactSum, ExactMean>(&doubles, &at, count + 1, scalar, &name);
            let singles: Vec<_> = doubles.iter().map(|&value| value as f32).collect();
            check_picked::<f32, ExactSum, ExactMean>(&singles, &at, count + 1, scalar as f32, &name);
            let halves: Vec<_> = doubles.iter().map(|&value| f16::from_f64(value)).collect();
            check_picked::<f16, ExactSum, ExactMean>(&halves, &at, count + 1, f16::from_f64(scalar), &name);
            let brains: Vec<_> = doubles.iter().map(|&value| bf16::from_f64(value)).collect();
            check_picked::<bf16, ExactSum, ExactMean>(&brains, &at, count + 1, bf16::from_f64(scalar), &name);
        }
    }
}

/// As of slices, whose sums are exact here.
#[test]
fn special_values() {
    let [infinite, nan, least] = [f32::INFINITY, f32::NAN, f32::from_bits(1)];
    let all: [&[f32]; 14] = [
        &[],
        &[nan],
        &[nan, -nan],
        &[-0.0],
        &[-0.0, nan],
        &[-0.0, -0.0],
        &[0.0, -0.0, nan],
        &[infinite, nan],
        &[infinite, -infinite, nan],
        &[-infinite, 1.0],
        &[least, nan, least],
        &[-least, -0.0],
        &[f32::MAX, f32::MAX, -f32::MAX],
        &[2.5],
    ];
    let x = all.concat();
    let at: Vec<u32> = (0..).zip(all).flat_map(|(index, group)| group.iter().map(move |_| index)).collect();
    let of = |index: usize| all[index];
    for device in devices() {
        let (on_device, at) = (device.upload(&x).unwrap(), device.upload(&at).unwrap());
        let groups = on_device.by_index(&at, all.len()).unwrap();
        let not_zero = SumWhere::new(Comparison::NotEqual(0.0));
        let (sums, means, others) = groups.by((NanSum, NanMean, not_zero)).run().unwrap();
        let (sums, means) = (sums.to_vec().unwrap(), means.to_vec().unwrap());
        let others = others.to_vec().unwrap();
        for index in (0..all.len()).filter(|&index| of(index).len() < 3 || of(index)[0] != f32::MAX) {
            let case = format!("{:?} on {device}", of(index));
            assert_same(&[sums[index]], &[of(index).by(NanSum).run().unwrap()], &case);
            assert_same(&[means[index]], &[of(index).by(NanMean).run().unwrap()], &case);
            assert_same(&[others[index]], &[of(index).by(not_zero).run().unwrap()], &case);
        }
        // A slice's sum overflows on the way.
        assert_eq!((sums[12], means[12]), (f32::MAX, (f64::from(f32::MAX) / 3.0) as f32), "{device}");
    }
}

/// Checks that products by index give what those of each index's pairs as slices give.
fn check_products<T, O, V>(op: O, (a, b): (&[T], &[T]), at: &[u32], count: usize, case: &str)
where
    T: Element + Item,
    O: Op<(T, T), Output = V> + Default,
    V: Item + Debug,
{
    let (of_a, of_b) = (groups(a, at, count), groups(b, at, count));
    let dot = |(a, b): (&Vec<T>, &Vec<T>)| (a, b).reduce::<O, 256>().unwrap();
    let expected: Vec<V> = of_a.iter().zip(&of_b).map(dot).collect();
    for device in devices() {
        let case = format!("{case}: {} of {} on {device}", O::NAME, T::NAME);
        let (a, b) = (device.upload(a).unwrap(), device.upload(b).unwrap());
        let at = device.upload(at).unwrap();
        let pairs = (&a, &b);
        let got = pairs.by_index(&at, count).unwrap().by(op).run();
        let got = got.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_same(&got.to_vec().unwrap(), &expected, &case);
    }
}

#[test]
fn products_of_every_type() {
    fn of<T: Sample + Item>(cases: &[(usize, usize)])
    where
        Dot: Op<(T, T), Output: Item + Debug>,
        ExactDot: Op<(T, T), Output: Item + Debug>,
    {
        let shift = size_of::<T>() + T::NAME.len();
        for (case, &(len, count)) in cases.iter().enumerate().filter(|(case, _)| is_taken(case + shift)) {
            let at = indices(len, count, case % 5);
            let (a, b) = (samples(len, T::any), samples(len, |index| T::any(index + 7)));
            let name = format!("{len} pairs of {count} indices");
            check_products::<T, _, _>(Dot, (&a, &b), &at, count + 1, &name);
            check_products::<T, _, _>(ExactDot, (&a, &b), &at, count + 1, &name);
        }
    }
    macro_rules! all {
        ({} $($type:ident: $($row:ident)*;)*) => {$(
            of::<$type>(&[(1, 1), (33, 2), (3000, 1), (2000, 40), (1500, 300)]);
        )*};
    }
    for_each_element! { all! {} }
}

/// The greatest and the least factors, whose products and their sums wrap.
#[test]
fn products_of_extreme_integers() {
    fn of<T: Element + Item>()
    where
        Dot: Op<(T, T), Output: Item + Debug>,
        ExactDot: Op<(T, T), Output: Item + Debug>,
        SumSq: Op<T, Output: Item + Debug>,
    {
        let values = [T::min_value(), T::max_value(), T::one(), T::zero(), T::max_value() - T::one()];
        let a = samples(900, |place| values[place as usize % 5]);
        let b = samples(900, |place| values[(place >> 8) as usize % 5]);
        let at = indices(900, 7, 0);
        check_products::<T, _, _>(Dot, (&a, &b), &at, 7, "extreme");
        check_products::<T, _, _>(ExactDot, (&a, &b), &at, 7, "extreme");
        check::<T, _, SumSq, _>(SumSq, (&a, &at, 7), |_| true, |sum| sum, "extreme");
    }
    macro_rules! all {
        ({} $($type:ident: $($row:ident)*;)*) => { $( of::<$type>(); )* };
    }
    for_each_integer! { all! {} }
}

#[test]
fn products_of_floats_of_every_kind() {
    for kind in 0..11 {
        if !is_taken(kind) {
            continue;
        }
        for (len, count) in [(900, 7), (4100, 300)] {
            let at = indices(len, count, kind % 5);
            let of = |shift| (0..len as u64).map(move |place| float(kind, place + shift));
            let case = format!("floats of kind {kind}, {len} pairs");
            let [a, b] = [0, 1 << 20].map(|shift| of(shift).map(|value| value as f32).collect::<Vec<_>>());
            check_products::<f32, _, _>(ExactDot, (&a, &b), &at, count, &case);
            let bits = |shift| (0..len as u64).map(move |place| hash(place + shift) as u32);
            let [a, b] = [3, 1 << 30].map(|shift| bits(shift).map(f32::from_bits).collect::<Vec<_>>());
            check_products::<f32, _, _>(ExactDot, (&a, &b), &at, count, "any bits");
            let [a, b] = [0, 1 << 20].map(|shift| of(shift).map(f16::from_f64).collect::<Vec<_>>());
            check_products::<f16, _, _>(ExactDot, (&a, &b), &at, count, &case);
            let [a, b] = [0, 1 << 20].map(|shift| of(shift).map(bf16::from_f64).collect::<Vec<_>>());
            check_products::<bf16, _, _>(ExactDot, (&a, &b), &at, count, &case);
        }
    }
}

/// A sum near the middle of two `f32`, which as an `f64` would be the middle.
#[test]
fn exact_products_are_rounded_once() {
    let power = |exponent| 2f32.powi(exponent);
    let (above, below) = ([1.0, power(-12), power(-30)], [1.0, power(-12), -power(-30)]);
    let odd = [1.0 + power(-23), power(-12), -power(-30)];
    let a = [above, below, odd].concat();
    let b = [[1.0, power(-12), power(-30)]; 3].concat();
    let at: Vec<u32> = (0..9).map(|place| place / 3).collect();
    // The square of the second factor is 2^-24, and of the third one 2^-60.
    let expected = [1.0 + power(-23), 1.0, 1.0 + power(-23)];
    assert_eq!((1.0 + 2f64.powi(-24) + 2f64.powi(-60)) as f32, 1.0, "rounded twice");
    for device in devices() {
        let (x, y) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
        let at = device.upload(&at).unwrap();
        let sums = (&x, &y).by_index(&at, 4).unwrap().reduce::<ExactDot, 256>().unwrap().to_vec().unwrap();
        assert_same(&sums[..3], &expected, &format!("{device}"));
        assert_same(&sums[3..], &[0.0], &format!("no pairs on {device}"));
    }
}

#[test]
fn no_items_and_no_results() {
    for device in devices() {
        let (x, at) = (device.upload::<f32>(&[]).unwrap(), device.upload::<i64>(&[]).unwrap());
        let groups = x.by_index(&at, 3).unwrap();
        assert_same(&groups.reduce::<NanSum, 256>().unwrap().to_vec().unwrap(), &[0.0; 3], "sums");
        assert!(groups.reduce::<NanMean, 256>().unwrap().to_vec().unwrap().into_iter().all(f32::is_nan));
        let dots = (&x, &x).by_index(&at, 3).unwrap().reduce::<ExactDot, 256>().unwrap();
        assert_same(&dots.to_vec().unwrap(), &[0.0; 3], "products");
        let mut into = device.upload(&[1.0f32; 3]).unwrap();
        let stream = device.stream().unwrap();
        // SAFETY: the results stay until the stream has been synchronized.
        unsafe { groups.reduce_into::<NanMean, 256>(&stream, &mut into).unwrap() };
        stream.synchronize().unwrap();
        assert!(into.to_vec().unwrap().into_iter().all(f32::is_nan), "{device}");
        assert_eq!(x.by_index(&at, 0).unwrap().reduce::<NanMean, 256>().unwrap().len(), 0, "{device}");
        // Each index is wrong if there are no results.
        let (x, at) = (device.upload(&[f32::NAN]).unwrap(), device.upload(&[0u32]).unwrap());
        let error = Error::BadIndex { place: 0, index: 0, count: 0 };
        let groups = x.by_index(&at, 0).unwrap();
        assert_eq!(groups.reduce::<NanMean, 256>().map(drop), Err(error.clone()), "{device}");
        assert_eq!(groups.reduce::<NanSum, 256>().map(drop), Err(error), "{device}");
    }
}

/// Starts and enqueues, with scratch memory that was lent, and after wrong indices.
fn on_a_stream<D, O, V>(device: &Device, x: &D, op: O, count: usize)
where
    D: Reduce,
    O: Op<D::Item, Output = V>,
    V: Item + Debug,
{
    let case = format!("{} on {device}", O::NAME);
    let len = 4500;
    let at = device.upload(&indices(len, count, 0)).unwrap();
    let groups = x.by_index(&at, count).unwrap();
    let results = groups.by(op).run().unwrap().to_vec().unwrap();
    let stream = device.stream().unwrap();
    let pending = groups.by(op).run_async(&stream).wait().unwrap();
    assert_same(&pending.to_vec().unwrap(), &results, &case);
    let bytes = groups.by(op).scratch_bytes();
    assert_eq!(bytes > 0, !device.is_cpu(), "{case}: it is added up in place");
    let mut scratch = device.zeros::<u64>(bytes.div_ceil(8).max(1)).unwrap();
    let mut into = device.zeros::<V>(count).unwrap();
    let wrong = |first: u64, index: u64| {
        let mut wrong: Vec<_> = indices(len, count, 0).into_iter().map(u64::from).collect();
        (wrong[first as usize], wrong[1300]) = (index, u64::MAX);
        device.upload(&wrong).unwrap()
    };
    let all_wrong = [(1234, count as u64), (0, 1 << 32), (1299, count as u64 + 1)];
    // SAFETY: all of them stay until the stream has been synchronized.
    unsafe {
        let stream = device.stream().unwrap().with_scratch(scratch.view_mut()).unwrap();
        groups.by(op).run_into(&stream, &mut into).unwrap();
        groups.by(op).run_into(&stream, &mut into).unwrap();
        // A wrong index leaves the results.
        let wrong = wrong(1234, count as u64);
        match x.by_index(&wrong, count).unwrap().by(op).run_into(&stream, &mut into) {
            Ok(()) => assert!(!device.is_cpu(), "{case}"),
            Err(error) => assert!(device.is_cpu(), "{case}: {error}"),
        }
        stream.synchronize().unwrap();
    }
    assert_same(&into.to_vec().unwrap(), &results, &case);
    for (place, index) in all_wrong {
        let wrong = wrong(place, index);
        let bad = x.by_index(&wrong, count).unwrap();
        let error = Error::BadIndex { place, index: index.into(), count };
        assert_eq!(bad.by(op).run().map(drop), Err(error.clone()), "{case}");
        assert_eq!(bad.by(op).run_async(&stream).wait().map(drop), Err(error), "{case}");
    }
    let again = groups.by(op).run().unwrap();
    assert_same(&again.to_vec().unwrap(), &results, &case);
}

#[test]
#[cfg_attr(not(part = "1"), ignore = "of part 1")]
fn on_streams() {
    for device in devices() {
        // So many that items are dealt to buckets, too.
        for count in [33, 20_000] {
            // The items at the places of wrong indices are among those that are skipped.
            let of = |place: u64| if place.is_multiple_of(2) { f64::NAN } else { float(0, place) };
            let doubles = device.upload(&(0..4500).map(of).collect::<Vec<_>>()).unwrap();
            let singles =
                device.upload(&(0..4501).map(|place| of(place) as f32).collect::<Vec<_>>()).unwrap();
            // Aligned to an element alone.
            let singles = singles.slice(1..).unwrap();
            let shorts = device.upload(&samples(4500, i16::any)).unwrap();
            on_a_stream(&device, &singles, NanMean, count);
            if count == 33 {
                on_a_stream(&device, &doubles, NanMean, count);
                on_a_stream(&device, &shorts, SumSq, count);
                on_a_stream(&device, &singles, NanSum, count);
                on_a_stream(&device, &shorts, SumWhere::new(Comparison::Less(0)), count);
                on_a_stream(&device, &(&shorts, &shorts), Dot, count);
            }
            on_a_stream(&device, &(&singles, &singles), ExactDot, count);
        }
    }
}

#[test]
fn of_groups_by_key() {
    for device in devices() {
        let keys = device.upload(&[30i16, -1, 30, -1, 5]).unwrap();
        let x = device.upload(&[1.0f32, 2.0, f32::NAN, 4.0, f32::NAN]).unwrap();
        let groups = x.group_by(&keys).unwrap();
        let less = SumWhere::new(Comparison::Less(3.0));
        let all = groups.by((NanSum, NanMean, less, CountNan, Max)).unwrap().run().unwrap();
        assert_eq!(all.0.to_vec().unwrap(), [6.0, 0.0, 1.0], "{device}");
        let means = all.1.to_vec().unwrap();
        assert!((means[0], means[2]) == (3.0, 1.0) && means[1].is_nan(), "{means:?} on {device}");
        assert_eq!(all.2.to_vec().unwrap(), [2.0, 0.0, 1.0], "{device}");
        assert_eq!(all.3.to_vec().unwrap(), [0, 1, 1], "{device}");
        let y = device.upload(&[1u8, 255, 3, 255, 5]).unwrap();
        let dots = (&y, &y).group_by(&keys).unwrap().reduce::<Dot, 256>().unwrap();
        assert_eq!(dots.to_vec().unwrap(), [2 * 255 * 255, 25, 10], "{device}");
    }
}

/// So many items that the CPU makes indices with several threads.
#[test]
fn many_items_on_the_cpu() {
    let len = 100_000;
    let of = |place: u64| if hash(place).is_multiple_of(5) { f32::NAN } else { float(3, place) as f32 };
    let items: Vec<f32> = (0..len as u64).map(of).collect();
    for count in [3, 20_000] {
        let at = indices(len, count, 1);
        let input = items.by_index(&at, count).unwrap();
        let (sums, means) = input.by((NanSum, NanMean)).run().unwrap();
        let numbers = groups(&items, &at, count).into_iter();
        let numbers =
            numbers.map(|group| group.into_iter().filter(|item| !item.is_nan()).collect::<Vec<_>>());
        let expected: Vec<_> = numbers
            .map(|group| (group.by(ExactSum).run().unwrap(), group.by(ExactMean).run().unwrap()))
            .collect();
        let (of_sums, of_means): (Vec<_>, Vec<_>) = expected.into_iter().unzip();
        assert_same(&sums.to_vec().unwrap(), &of_sums, "sums");
        assert_same(&means.to_vec().unwrap(), &of_means, "means");
    }
}
