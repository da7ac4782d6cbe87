//! Variances and standard deviations by index, on every device, against exact arithmetic.

use crate::by_index::{assert_same, indices};
use gpu_reduce::{Device, Element, Error, Item, Max, NanVar, Reduce, Std, Var, bf16, f16};
use num_bigint::BigInt;
use std::fmt::Debug;
use support::{Sample, devices, for_each_element, hash, is_taken, mixed, samples};

/// A finite number times 2^1074.
fn big(value: f64) -> BigInt {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as u32;
    let fraction = bits & ((1 << 52) - 1);
    let magnitude = if exponent > 0 { fraction | 1 << 52 } else { fraction };
    let big = BigInt::from(magnitude) << (exponent.max(1) - 1);
    if value.is_sign_negative() { -big } else { big }
}

/// The number of items, and their number times the exact sum of the squared distances from the mean, times
/// 2^2148.
fn exact<T: Element>(items: &[T]) -> (u64, BigInt) {
    let values = items.iter().map(|&item| match item.to_i128() {
        // Integers of 64 bits are no `f64`.
        Some(integer) if T::one() / (T::one() + T::one()) == T::zero() => BigInt::from(integer) << 1074,
        _ => big(item.to_f64().unwrap()),
    });
    let (mut sum, mut squares) = (BigInt::ZERO, BigInt::ZERO);
    for value in values {
        squares += &value * &value;
        sum += value;
    }
    let len = items.len() as u64;
    (len, squares * len - &sum * &sum)
}

/// Whether a result of `got` for the variance `exact / (len * by)` has a relative error of at most `most` ·
/// 2^-60.
fn is_near(got: f64, (len, exact): &(u64, BigInt), by: u64, most: u64) -> bool {
    let difference: BigInt = (big(got) << 1074) * *len * by - exact;
    BigInt::from(difference.magnitude().clone()) << 60 <= exact * most
}

/// The bounds that `docs/groups.md` gives, of variances and of standard deviations: 8 and 5 units of 2^-53,
/// and for results that are `f32` half a unit of 2^-23 more.
fn bounds<V>() -> [u64; 2] {
    let rounding = if size_of::<V>() == 4 { 1 << 36 } else { 0 };
    [rounding + (8 << 7), rounding + (5 << 7)]
}

/// Checks variances and standard deviations of items, in two orders, on every device. Some index has no
/// items.
fn check<T: Element + Item>(items: &[T], at: &[u32], count: usize, case: &str)
where
    T::Real: Item + Debug + Into<f64>,
{
    let mut groups = vec![Vec::new(); count];
    items.iter().zip(at).for_each(|(&item, &index)| groups[index as usize].push(item));
    let exact: Vec<_> = groups.iter().map(|group| exact(group)).collect();
    let [of_var, of_std] = bounds::<T::Real>();
    let order = mixed(items.len());
    let mixed: Vec<_> = order.iter().map(|&place| items[place]).collect();
    let mixed_at: Vec<_> = order.iter().map(|&place| i64::from(at[place])).collect();
    for ddof in [0, 1] {
        let mut expected = None;
        for device in devices() {
            let (x, on_device) = (device.upload(items).unwrap(), device.upload(at).unwrap());
            let results = x.by_index(&on_device, count).unwrap().by((Var::new(ddof), Std::new(ddof))).run();
            let results = results.unwrap_or_else(|error| panic!("{case} on {device}: {error}"));
            let got = (results.0.to_vec().unwrap(), results.1.to_vec().unwrap());
            let (x, on_device) = (device.upload(&mixed).unwrap(), device.upload(&mixed_at).unwrap());
            let other = x.by_index(&on_device, count).unwrap().by((Var::new(ddof), Std::new(ddof)));
            let (variances, roots) = other.run().unwrap();
            let case = format!("{case} of {}, ddof {ddof}, on {device}", T::NAME);
            assert_same(&variances.to_vec().unwrap(), &got.0, &case);
            assert_same(&roots.to_vec().unwrap(), &got.1, &case);
            let expected: &(Vec<_>, Vec<_>) = expected.get_or_insert(got.clone());
            assert_same(&got.0, &expected.0, &case);
            assert_same(&got.1, &expected.1, &case);
        }
        let (variances, roots) = expected.unwrap();
        for (index, exact) in exact.iter().enumerate() {
            let case = format!("{case} of {}, ddof {ddof}, index {index}", T::NAME);
            let (variance, root): (f64, f64) = (variances[index].into(), roots[index].into());
            if exact.0 <= ddof {
                assert!(variance.is_nan() && root.is_nan(), "{case}");
                continue;
            }
            assert!(
                is_near(variance, exact, exact.0 - ddof, of_var),
                "{case}: {variance} of {:?}",
                groups[index]
            );
            // The square of the root is exact as a big integer.
            let square = big(root) * big(root) * exact.0 * (exact.0 - ddof);
            let difference = BigInt::from((square - &exact.1).magnitude().clone());
            assert!(difference << 60 <= &exact.1 * (2 * of_std + 1), "{case}: {root}");
        }
    }
}

#[test]
fn of_every_type() {
    fn of<T: Sample + Item>()
    where
        T::Real: Item + Debug + Into<f64>,
    {
        let cases = [(1, 1), (2, 3), (31, 1), (1000, 2), (5000, 40), (2100, 900)].into_iter().enumerate();
        let shift = size_of::<T>() + T::NAME.len();
        for (case, (len, count)) in cases.filter(|(case, _)| is_taken(case + shift)) {
            let at = indices(len, count, case % 5);
            let items = samples(len, |index| T::any(index + 7));
            check(&items, &at, count + 1, &format!("{len} items of {count} indices"));
        }
    }
    macro_rules! all {
        ({} $($type:ident: $($row:ident)*;)*) => { $( of::<$type>(); )* };
    }
    for_each_element! { all! {} }
}

/// A large mean, and items that differ in their last bits.
#[test]
fn far_from_zero() {
    let at = indices(3000, 60, 1);
    let small = |place: u64| f64::from_bits(1023 << 52 | hash(place) >> 12) - 1.5;
    check(&samples(3000, |place| (1e8 + 40.0 * small(place)) as f32), &at, 61, "1e8 and 40");
    check(&samples(3000, |place| -1e8 + small(place)), &at, 61, "-1e8 and 1");
    check(&samples(3000, |place| 1.0 + small(place) * 2f64.powi(-50)), &at, 61, "last bits");
    check(
        &samples(3000, |place| f32::from_bits(0x3f80_0000 + (hash(place) % 3) as u32)),
        &at,
        61,
        "last bits",
    );
    check(&samples(3000, |place| i64::MAX - (hash(place) % 3) as i64), &at, 61, "greatest");
    check(&samples(3000, |place| i64::MIN + (hash(place) % 3) as i64), &at, 61, "least");
    check(&samples(3000, |place| u64::MAX - (hash(place) % 3) as u64), &at, 61, "greatest");
    check(&samples(3000, |place| (1 << 53) - 1 + (hash(place) % 3) as u64), &at, 61, "around 2^53");
    check(&samples(3000, |place| -1 - (hash(place) % 2) as i64), &at, 61, "around 0");
    check(&samples(3000, |place| f16::from_f64(1000.0 + 2.0 * small(place))), &at, 61, "1000 and 2");
    check(&samples(3000, |place| bf16::from_f64(1000.0 + 20.0 * small(place))), &at, 61, "1000 and 20");
}

/// Items of every size whose squares neither overflow nor underflow.
#[test]
fn of_every_size() {
    let at = indices(3000, 60, 0);
    let of = |place: u64, most: u64| {
        let exponent = hash(place ^ 0xabc) % (2 * most) + 1023 - most;
        f64::from_bits(hash(place) & (1 << 63) | exponent << 52 | hash(place) >> 12 & ((1 << 52) - 1))
    };
    check(&samples(3000, |place| of(place, 480)), &at, 61, "2^±480");
    check(&samples(3000, |place| of(place, 60)), &at, 61, "2^±60");
    check(&samples(3000, |place| of(place, 55) as f32), &at, 61, "2^±55");
    // One item is much larger than the others.
    let one = |place: u64| if place.is_multiple_of(50) { 1e12 } else { of(place, 3) };
    check(&samples(3000, one), &at, 61, "one is large");
    check(&samples(3000, |place| one(place) as f32), &at, 61, "one is large");
}

#[test]
fn equal_items_have_no_spread() {
    fn of<T: Element + Item>(items: &[T])
    where
        T::Real: Item + Debug + Into<f64>,
    {
        let x: Vec<_> = (0..7 * items.len()).map(|place| items[place % items.len()]).collect();
        let at: Vec<_> = (0..x.len()).map(|place| (place % items.len()) as u32).collect();
        for device in devices() {
            let (x, at) = (device.upload(&x).unwrap(), device.upload(&at).unwrap());
            let groups = x.by_index(&at, items.len()).unwrap();
            let got = groups.by((Var::new(1), Std::new(0))).run().unwrap();
            let zeros = vec![T::real(0.0); items.len()];
            assert_same(&got.0.to_vec().unwrap(), &zeros, T::NAME);
            assert_same(&got.1.to_vec().unwrap(), &zeros, T::NAME);
        }
    }
    of(&[0.1f32, -0.0, 1e-45, f32::MAX, 16777217.0, 1.0 / 3.0]);
    of(&[0.1f64, -0.0, 5e-324, f64::MAX, f64::MIN, 1e300, 1.0 / 3.0]);
    of(&[i64::MAX, i64::MIN, (1 << 60) + 1, -(1 << 60) - 1, 1 << 53, 7]);
    of(&[u64::MAX, (1 << 63) + 1, (1 << 60) + 1, 0]);
    of(&[f16::from_f64(0.1), f16::MAX, f16::MIN_POSITIVE_SUBNORMAL]);
    of(&[bf16::from_f64(0.1), bf16::MAX]);
}

/// As of slices.
#[test]
fn special_values() {
    fn of<T: Element + Item>(groups: &[&[T]])
    where
        T::Real: Item + Debug + Into<f64>,
    {
        let x = groups.concat();
        let at: Vec<_> =
            (0..).zip(groups).flat_map(|(index, group)| group.iter().map(move |_| index)).collect();
        for ddof in [0, 1, 2, u64::MAX] {
            let expected: Vec<_> =
                groups.iter().map(|group| group.by(Var::new(ddof)).run().unwrap()).collect();
            for device in devices() {
                let (x, at) = (device.upload(&x).unwrap(), device.upload::<u32>(&at).unwrap());
                let groups = x.by_index(&at, groups.len()).unwrap();
                let case = format!("{}, ddof {ddof}, on {device}", T::NAME);
                // There is a result for no items.
                let results = groups.by(Var::new(ddof)).or(T::real(7.0)).run().unwrap();
                assert_same(&results.to_vec().unwrap(), &expected, &case);
            }
        }
    }
    let [infinite, nan] = [f64::INFINITY, f64::NAN];
    of(&[
        &[],
        &[nan],
        &[infinite],
        &[1.0, -infinite],
        &[infinite, -infinite],
        &[nan, infinite],
        &[1.0, 3.0],
        &[-0.0, -0.0],
        &[f64::MAX, f64::MIN],
        &[1e200, 2e200],
        &[5.0],
    ]);
    let [infinite, nan] = [f32::INFINITY, f32::NAN];
    of(&[&[], &[nan, 1.0], &[infinite, infinite], &[f32::MAX, f32::MIN], &[-0.0], &[1.0, 2.0, 3.0]]);
}

#[test]
fn no_items_and_no_results() {
    for device in devices() {
        let (x, at) = (device.upload::<f32>(&[]).unwrap(), device.upload::<i64>(&[]).unwrap());
        let groups = x.by_index(&at, 3).unwrap();
        let (variances, roots) = groups.by((Var::new(1), Std::new(1))).run().unwrap();
        assert!(variances.to_vec().unwrap().into_iter().all(f32::is_nan), "{device}");
        assert!(roots.to_vec().unwrap().into_iter().all(f32::is_nan), "{device}");
        let mut into = device.upload(&[1.0f32; 3]).unwrap();
        let stream = device.stream().unwrap();
        // SAFETY: the results stay until the stream has been synchronized.
        unsafe { groups.reduce_into::<Var, 256>(&stream, &mut into).unwrap() };
        stream.synchronize().unwrap();
        assert!(into.to_vec().unwrap().into_iter().all(f32::is_nan), "{device}");
        assert_eq!(x.by_index(&at, 0).unwrap().reduce::<Var, 256>().unwrap().len(), 0, "{device}");
    }
}

/// Starts and enqueues, with scratch memory that was lent, and after wrong indices.
fn on_a_stream<T: Sample + Item>(device: &Device, len: usize, count: usize)
where
    T::Real: Item + Debug,
{
    let x = device.upload(&samples(len, T::any)).unwrap();
    let at = device.upload(&indices(len, count, 0)).unwrap();
    let groups = x.by_index(&at, count).unwrap();
    let results = groups.by(Std::new(1)).run().unwrap().to_vec().unwrap();
    let stream = device.stream().unwrap();
    let pending = groups.by(Std::new(1)).run_async(&stream).wait().unwrap();
    assert_same(&pending.to_vec().unwrap(), &results, "async");
    let bytes = groups.by(Std::new(1)).scratch_bytes();
    let mut scratch = device.zeros::<u64>(bytes.div_ceil(8).max(1)).unwrap();
    let mut into = device.zeros::<T::Real>(count).unwrap();
    let mut wrong = indices(len, count, 0);
    wrong[1234] = count as u32;
    wrong[1300] = u32::MAX;
    let wrong = device.upload(&wrong).unwrap();
    let bad = x.by_index(&wrong, count).unwrap();
    // SAFETY: all of them stay until the stream has been synchronized.
    unsafe {
        let stream = device.stream().unwrap().with_scratch(scratch.view_mut()).unwrap();
        groups.by(Std::new(1)).run_into(&stream, &mut into).unwrap();
        groups.by(Std::new(1)).run_into(&stream, &mut into).unwrap();
        // A wrong index leaves the results.
        match bad.by(Std::new(1)).run_into(&stream, &mut into) {
            Ok(()) => assert!(!device.is_cpu()),
            Err(error) => assert!(device.is_cpu(), "{error}"),
        }
        stream.synchronize().unwrap();
    }
    assert_same(&into.to_vec().unwrap(), &results, "enqueued");
    let error = Error::BadIndex { place: 1234, index: count as i128, count };
    assert_eq!(bad.reduce::<Var, 256>().map(drop), Err(error.clone()), "{device}");
    assert_eq!(bad.reduce_async::<Var, 256>(&stream).wait().map(drop), Err(error), "{device}");
    let again = groups.by(Std::new(1)).run().unwrap();
    assert_same(&again.to_vec().unwrap(), &results, "again");
}

#[test]
fn on_streams() {
    for device in devices() {
        on_a_stream::<f32>(&device, 5000, 33);
        on_a_stream::<f64>(&device, 5000, 33);
        on_a_stream::<i16>(&device, 2000, 1);
        // So many that items are dealt to buckets.
        on_a_stream::<f64>(&device, 3000, 40_000);
    }
}

#[test]
fn of_groups_by_key() {
    for device in devices() {
        let keys = device.upload(&[30i16, -1, 30, -1, 5]).unwrap();
        let x = device.upload(&[1.0f32, 2.0, 4.0, 2.0, 8.0]).unwrap();
        let groups = x.group_by(&keys).unwrap();
        let (variances, maxima) = groups.by((Var::new(0), Max)).unwrap().run().unwrap();
        assert_eq!(variances.to_vec().unwrap(), [0.0, 0.0, 2.25], "{device}");
        assert_eq!(maxima.to_vec().unwrap(), [2.0, 8.0, 4.0], "{device}");
        // Those that skip NaN have the bits of slices.
        let sorted = groups.reduce::<NanVar, 256>().unwrap().to_vec().unwrap();
        assert_eq!(sorted, [0.0, 0.0, 2.25], "{device}");
    }
}
