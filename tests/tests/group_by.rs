//! Reductions by keys of any value, on every device, against groups that a sort makes.

use bytemuck::bytes_of;
use gpu_reduce::{Buffer, Element, Error, ExactSum, Groups, Item, Max, Mean, NanVar, Reduce, Sum, bf16, f16};
use std::cmp::Ordering;
use support::{Sample, devices, for_each_element, hash, is_taken, samples, takes_all};

/// Orders keys by value; zeros are equal, and NaN come last and are equal.
fn by_value<K: Element>(a: &K, b: &K) -> Ordering {
    let is_nan = |key: &K| key.partial_cmp(key).is_none();
    a.partial_cmp(b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
}

/// The places of each group's items. Groups ascend by key.
fn groups_of<K>(keys: &[K], order: impl Fn(&K, &K) -> Ordering) -> Vec<Vec<usize>> {
    let mut places: Vec<usize> = (0..keys.len()).collect();
    places.sort_by(|&a, &b| order(&keys[a], &keys[b]));
    places.chunk_by(|&a, &b| order(&keys[a], &keys[b]) == Ordering::Equal).map(<[usize]>::to_vec).collect()
}

/// The number of each item, for groups in an order.
fn numbers_of(groups: &[Vec<usize>], len: usize) -> Vec<u32> {
    let mut numbers = vec![0; len];
    for (number, places) in groups.iter().enumerate() {
        places.iter().for_each(|&place| numbers[place] = number as u32);
    }
    numbers
}

/// Checks the groups of a column of keys.
fn check<K: Element + Item>(keys: &[K], case: &str) {
    let mut groups = groups_of(keys, by_value);
    let first_keys = |groups: &[Vec<usize>]| groups.iter().map(|places| keys[places[0]]).collect::<Vec<_>>();
    let ascending = (numbers_of(&groups, keys.len()), first_keys(&groups));
    groups.sort_by_key(|places| places[0]);
    let by_appearance = (numbers_of(&groups, keys.len()), first_keys(&groups));
    for device in devices() {
        let on_device = device.upload(keys).unwrap();
        let got = [Groups::of(&on_device).unwrap(), Groups::in_order_of_appearance(&on_device).unwrap()];
        for (got, (numbers, keys), order) in got
            .iter()
            .zip([&ascending, &by_appearance])
            .zip(["", ", by appearance"])
            .map(|((a, b), c)| (a, b, c))
        {
            let case = format!("{case}: {} on {device}{order}", K::NAME);
            assert_eq!(got.len(), keys.len(), "{case}");
            let of_groups = got.keys().to_vec().unwrap();
            let differs = of_groups.iter().zip(keys).position(|(a, b)| bytes_of(a) != bytes_of(b));
            assert_eq!((of_groups.len(), differs), (keys.len(), None), "{case}");
            assert!(got.numbers().to_vec().unwrap() == *numbers, "{case}: numbers differ");
        }
    }
}

/// Keys by a distribution: all the same, few, skewed, sorted, many, with equal low bits.
fn place_of_key(distribution: usize, place: usize, len: usize) -> usize {
    let uniform = hash(place as u64 ^ 0x5eed) as usize;
    match distribution {
        0 => 7,
        1 => uniform % 10,
        2 => {
            let part = f64::from(uniform as u32) / 2f64.powi(32);
            (len as f64 * part.powi(4)) as usize
        }
        3 => place / 3,
        4 => uniform % (2 * len + 1),
        _ => (uniform % 50) << 12,
    }
}

fn keys_of_type<K: Sample + Item>() {
    for (case, len) in [0, 1, 2, 33, 1000, 4097, 9000].into_iter().enumerate() {
        for distribution in 0..6 {
            if !is_taken(case + distribution) {
                continue;
            }
            let keys: Vec<K> =
                (0..len).map(|place| K::any(place_of_key(distribution, place, len) as u64)).collect();
            check(&keys, &format!("{len} keys of distribution {distribution}"));
        }
    }
}

#[test]
fn keys_of_every_type() {
    macro_rules! all {
        ({} $($type:ident: $($row:ident)*;)*) => { $( keys_of_type::<$type>(); )* };
    }
    for_each_element! { all! {} }
}

#[test]
fn extremes_and_special_values() {
    let integers = [i64::MIN, -1, 0, i64::MAX, 1, -1, i64::MIN, 1 << 32, u32::MAX as i64];
    check(&integers, "extremes");
    check(&integers.map(|key| key as u64), "extremes");
    check(&integers.map(|key| key as i32), "extremes");
    check(&integers.map(|key| key as u32), "extremes");
    check(&integers.map(|key| key as i8), "extremes");
    check(&integers.map(|key| key as usize), "extremes");
    let floats = [
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::from_bits(0x7ff0_0000_0000_0001),
        f64::MIN_POSITIVE,
        -5e-324,
        5e-324,
        f64::MAX,
        f64::MIN,
        1.0,
        -1.0,
        -0.0,
    ];
    check(&floats, "special");
    check(&floats.map(|key| key as f32), "special");
    check(&floats.map(f16::from_f64), "special");
    check(&floats.map(bf16::from_f64), "special");
}

/// More keys than the table in shared memory has room for, and than the smallest table in global memory.
#[test]
#[cfg_attr(not(part = "0"), ignore = "of part 0")]
fn many_keys() {
    let len = 60_000;
    let keys: Vec<u64> = (0..len).map(hash).collect();
    check(&keys, "all different");
    let keys: Vec<u32> = (0..len).map(|place| hash(place % 20_000) as u32).collect();
    check(&keys, "three of each");
    let keys: Vec<i32> = (0..len).map(|place| (place as i32 % 30_000) << 16).collect();
    check(&keys, "low bits are 0");
}

/// A GPU tries a table of the first items' keys: of all keys, and of all but one, which comes later.
#[test]
fn keys_that_come_late() {
    let len = (1 << 19) + 5;
    let mut keys: Vec<u32> = (0..len as u64).map(|place| hash(place % 1000) as u32).collect();
    keys[0] = u32::MAX;
    let mut numbers: Vec<u32> = (0..len).map(|place| place as u32 % 1000).collect();
    for device in devices() {
        let groups = Groups::in_order_of_appearance(&device.upload(&keys).unwrap()).unwrap();
        assert_eq!(groups.keys().to_vec().unwrap()[..2], [u32::MAX, keys[1]], "on {device}");
        numbers.iter_mut().skip(1000).step_by(1000).for_each(|number| *number = 1000);
        assert!(groups.numbers().to_vec().unwrap() == numbers, "on {device}");
        let late = len - 2;
        let with_late: Vec<u32> = [&keys[..late], &[7], &keys[late + 1..]].concat();
        let groups = Groups::of(&device.upload(&with_late).unwrap()).unwrap();
        let mut different = with_late.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(groups.keys().to_vec().unwrap(), different, "on {device}");
        let number = |key| different.binary_search(key).unwrap() as u32;
        assert!(
            groups.numbers().to_vec().unwrap().into_iter().eq(with_late.iter().map(number)),
            "on {device}"
        );
    }
}

/// Most keys differ, and a GPU numbers them by sorting.
#[test]
#[cfg_attr(not(part = "1"), ignore = "of part 1")]
fn most_keys_differ() {
    fn check_one<K: Element + Item>(keys: &[K]) {
        let groups = groups_of(keys, by_value);
        let numbers = numbers_of(&groups, keys.len());
        let expected: Vec<_> = groups.iter().map(|places| keys[places[0]]).collect();
        for device in devices() {
            let got = Groups::of(&device.upload(keys).unwrap()).unwrap();
            let of_groups = got.keys().to_vec().unwrap();
            assert_eq!(of_groups.len(), expected.len(), "{} on {device}", K::NAME);
            assert!(of_groups.iter().zip(&expected).all(|(a, b)| bytes_of(a) == bytes_of(b)), "{}", K::NAME);
            assert!(got.numbers().to_vec().unwrap() == numbers, "{} on {device}", K::NAME);
        }
    }
    let len = (1 << 19) + 7;
    check_one(&(0..len).map(|place| hash(place % 400_000) as i32 >> 1).collect::<Vec<_>>());
    if takes_all() {
        let any = |place: u64| f64::from_bits(hash(place % 300_000) >> (place % 3 * 20));
        check_one(&(0..len).map(any).collect::<Vec<_>>());
    }
}

#[test]
fn several_columns() {
    for (case, len) in [1usize, 700, 5000].into_iter().enumerate() {
        let a: Vec<i16> = (0..len).map(|place| place_of_key(1, place, len) as i16 - 5).collect();
        let b: Vec<f64> = (0..len).map(|place| [0.5, -0.0, 0.0, f64::NAN, -1e300][place % 5]).collect();
        let c: Vec<u8> = (0..len).map(|place| hash(place as u64) as u8 & 3).collect();
        let keys: Vec<_> = (0..len).map(|place| (a[place], b[place], c[place])).collect();
        let order = |x: &(i16, f64, u8), y: &(i16, f64, u8)| {
            x.0.cmp(&y.0).then(by_value(&x.1, &y.1)).then(x.2.cmp(&y.2))
        };
        let groups = groups_of(&keys, order);
        let pairs = groups_of(&keys, |x, y| x.2.cmp(&y.2).then(x.0.cmp(&y.0)));
        for device in devices() {
            let case = format!("{case} on {device}");
            let (a, b, c) =
                (device.upload(&a).unwrap(), device.upload(&b).unwrap(), device.upload(&c).unwrap());
            let columns = (&a, (&b, &c));
            let got = Groups::of(&columns).unwrap();
            assert!(got.numbers().to_vec().unwrap() == numbers_of(&groups, len), "{case}");
            let (of_a, (of_b, of_c)) = got.keys();
            let of = |buffers: (Vec<i16>, Vec<f64>, Vec<u8>)| -> Vec<_> {
                (0..buffers.0.len())
                    .map(|at| (buffers.0[at], buffers.1[at].to_bits(), buffers.2[at]))
                    .collect()
            };
            let got = of((of_a.to_vec().unwrap(), of_b.to_vec().unwrap(), of_c.to_vec().unwrap()));
            let expected: Vec<_> = groups.iter().map(|places| keys[places[0]]).collect();
            let expected: Vec<_> = expected.into_iter().map(|(a, b, c)| (a, b.to_bits(), c)).collect();
            assert_eq!(got, expected, "{case}");
            let got = Groups::of(&(&c, &a)).unwrap();
            assert!(got.numbers().to_vec().unwrap() == numbers_of(&pairs, len), "{case}");
        }
    }
}

#[test]
fn reductions_by_key() {
    let len = 6000;
    let keys: Vec<i64> =
        (0..len).map(|place| place_of_key(1, place, len) as i64 * 1_000_000_007 - 5).collect();
    let items = samples(len, f32::any);
    let groups = groups_of(&keys, i64::cmp);
    let slices: Vec<Vec<f32>> =
        groups.iter().map(|places| places.iter().map(|&place| items[place]).collect()).collect();
    let bits = |results: Vec<f32>| results.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let sums = bits(slices.iter().map(|group| group.reduce::<ExactSum, 256>().unwrap()).collect());
    let largest = bits(slices.iter().map(|group| group.reduce::<Max, 256>().unwrap()).collect());
    let spreads = bits(slices.iter().map(|group| group.reduce::<NanVar, 256>().unwrap()).collect());
    for device in devices() {
        let (x, on_device) = (device.upload(&items).unwrap(), device.upload(&keys).unwrap());
        let grouped = x.group_by(&on_device).unwrap();
        let of = |results: Buffer<f32>| bits(results.to_vec().unwrap());
        assert_eq!(grouped.keys().to_vec().unwrap().len(), groups.len());
        assert_eq!(of(grouped.reduce::<Sum, 256>().unwrap()), sums, "{device}");
        let (of_max, of_var) = grouped.by((Max, NanVar::default())).unwrap().run().unwrap();
        assert_eq!((of(of_max), of(of_var)), (largest.clone(), spreads.clone()), "{device}");
        let stream = device.stream().unwrap();
        let pending = grouped.reduce_async::<Sum, 256>(&stream).unwrap();
        assert_eq!(of(pending.wait().unwrap()), sums, "{device}");
        let of_others = x.by_index(grouped.groups().numbers(), grouped.len()).unwrap();
        assert_eq!(of(of_others.reduce::<Max, 32>().unwrap()), largest, "{device}");
    }
}

#[test]
fn bad_keys_are_errors() {
    for device in devices() {
        let x = device.upload(&[1.0f32, 2.0]).unwrap();
        let three = device.upload(&[1u8, 2, 3]).unwrap();
        let lengths = Error::LengthMismatch { first: 2, second: 3 };
        assert_eq!(x.group_by(&three).map(drop), Err(lengths.clone()), "{device}");
        assert_eq!(Groups::of(&(&x, &three)).map(drop), Err(lengths), "{device}");
        let wide = device.upload(&[1u64, 2]).unwrap();
        let error = Groups::of(&((&wide, &wide), &x)).map(drop);
        assert_eq!(error, Err(Error::KeysTooWide { bytes: 20 }), "{device}");
        let none = device.upload::<f64>(&[]).unwrap();
        let grouped = none.group_by(&none).unwrap();
        assert_eq!(grouped.reduce::<Mean, 256>().unwrap().len(), 0, "{device}");
        assert_eq!(grouped.keys().len(), 0, "{device}");
    }
}
