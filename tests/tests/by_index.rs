//! Reductions by index, on every device, against the reduction of each index's items as a slice.

use bytemuck::bytes_of;
use gpu_reduce::{
    Device, Dot, Element, Error, ExactElement, ExactMean, ExactSum, Item, Max, Mean, Min, NanMax, NanMin,
    NanVar, Op, Prod, Reduce, Sum, SumSq, bf16, bincount, bincount_weighted, f16, row_indices, scatter_add,
};
use std::fmt::Debug;
use support::{Sample, devices, for_each_element, gpu, hash, is_taken, samples};

/// The items of each index, in their order.
pub(crate) fn groups<T: Copy>(items: &[T], indices: &[u32], count: usize) -> Vec<Vec<T>> {
    let mut groups = vec![Vec::new(); count];
    items.iter().zip(indices).for_each(|(&item, &index)| groups[index as usize].push(item));
    groups
}

pub(crate) fn assert_same<V: Item + Debug>(got: &[V], expected: &[V], case: &str) {
    assert_eq!(got.len(), expected.len(), "{case}");
    let differs = got.iter().zip(expected).position(|(got, expected)| bytes_of(got) != bytes_of(expected));
    if let Some(index) = differs {
        panic!("{case}: result {index} is {:?}, not {:?}", got[index], expected[index]);
    }
}

/// Checks that operator `O` by index gives what operator `E` gives for each index's items as a slice.
fn check<T: Element, O: Op<T, Output = V> + Default, E: Op<T, Output = V> + Default, V: Item + Debug>(
    items: &[T],
    indices: &[u32],
    count: usize,
    case: &str,
) {
    let expected: Vec<V> = groups(items, indices, count)
        .iter()
        .map(|group| group.reduce::<E, 256>().unwrap_or(V::zeroed()))
        .collect();
    for device in devices() {
        let case = format!("{case}: {} of {} on {device}", O::NAME, T::NAME);
        let (x, on_device) = (device.upload(items).unwrap(), device.upload(indices).unwrap());
        // Twice, because the first call must leave nothing behind.
        for _ in 0..2 {
            let groups = x.by_index(&on_device, count).unwrap();
            let got = groups.by(O::default()).or(V::zeroed()).run();
            let got = got.unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_same(&got.to_vec().unwrap(), &expected, &case);
        }
    }
}

/// Indices by a distribution: uniform, skewed, sorted, all the same, in short runs.
pub(crate) fn indices(len: usize, count: usize, distribution: usize) -> Vec<u32> {
    let uniform = |place: usize| (hash(place as u64 ^ 0x5eed) % count as u64) as u32;
    let index = |place: usize| match distribution {
        0 => uniform(place),
        1 => {
            let part = f64::from(hash(place as u64) as u32) / 2f64.powi(32);
            (count as f64 * part.powi(4)) as u32
        }
        2 => (place * count / len.max(1)) as u32,
        3 => count as u32 - 1,
        _ => uniform(place / 7),
    };
    (0..len).map(index).collect()
}

macro_rules! sums {
    ({ $of:ident } $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {$(
        sums! { @$kind $of $type }
    )*};
    (@integer $of:ident $type:ident) => {
        $of::<$type, Sum, Sum, _>();
        $of::<$type, Mean, Mean, _>();
    };
    (@float $of:ident $type:ident) => {
        $of::<$type, Sum, ExactSum, _>();
        $of::<$type, Mean, ExactMean, _>();
    };
}

fn sums_of<T: Sample, O: Op<T, Output = V> + Default, E: Op<T, Output = V> + Default, V: Item + Debug>() {
    let cases = [
        (0, 3),
        (1, 1),
        (1, 5),
        (5, 2),
        (31, 1),
        (1000, 1),
        (4097, 3),
        (5000, 40),
        (8192, 700),
        (9001, 3000),
        (3000, 30_000),
    ];
    for (case, (len, count)) in cases.into_iter().enumerate() {
        let items = samples(len, |index| T::any(index + 7));
        let indices = indices(len, count, case % 5);
        check::<T, O, E, V>(&items, &indices, count, &format!("{len} items of {count} indices"));
    }
}

#[test]
#[cfg_attr(not(part = "0"), ignore = "of part 0")]
fn sums_and_means_of_every_type() {
    for_each_element! { sums! { sums_of } }
}

/// So many sums that items are dealt to buckets in two steps.
#[test]
#[cfg_attr(not(part = "1"), ignore = "of part 1")]
fn more_sums_than_one_step_deals() {
    fn of<T: Sample + ExactElement<Rounded: Item>>(len: usize, count: usize, distribution: usize)
    where
        Sum: Op<T, Output = <ExactSum as Op<T>>::Output>,
        ExactSum: Op<T, Output: Item + Debug>,
    {
        let items = samples(len, |index| T::any(index + 7));
        let case = format!("{len} items of {count} indices, distribution {distribution}");
        check::<T, Sum, ExactSum, _>(&items, &indices(len, count, distribution), count, &case);
    }
    of::<f32>(20_000, 4_300_000, 1);
    // The emulator would take minutes.
    if gpu().is_some() {
        for distribution in 0..5 {
            of::<f32>(3_000_001, 6_000_000, distribution);
            of::<f64>(2_000_003, 3_000_000, distribution);
        }
    }
}

#[test]
fn exact_operators_of_every_type() {
    fn of<T: Sample + ExactElement<Rounded: Item>>() {
        let (items, indices) = (samples(6000, T::any), indices(6000, 50, 0));
        check::<T, ExactSum, ExactSum, _>(&items, &indices, 50, "6000 items");
        check::<T, ExactMean, ExactMean, _>(&items, &indices, 50, "6000 items");
    }
    macro_rules! all {
        ({} $($type:ident: $($row:ident)*;)*) => { $( of::<$type>(); )* };
    }
    for_each_element! { all! {} }
}

/// Floats of these kinds, by number.
pub(crate) fn float(kind: usize, place: u64) -> f64 {
    let bits = hash(place.wrapping_mul(31) + kind as u64);
    let part = f64::from(bits as u32) / 2f64.powi(32);
    match kind {
        // In the window; small and large; a wide range; all bits.
        0 => part - 0.5,
        1 => (part - 0.5) * 2f64.powi(-100),
        2 => (part - 0.5) * 2f64.powi(100),
        3 => (part - 0.5) * 2f64.powi((bits >> 32) as i32 % 120),
        4 => f64::from_bits(bits),
        5 => f64::from_bits(bits >> 12),
        // What cancels; zeros of both signs, and these alone.
        6 => [1e30, -1e30, 2f64.powi(-60), 1.5][place as usize % 4],
        7 => [-0.0, 0.0, 1.0, -1.0][(bits >> 40) as usize % 4],
        8 => -0.0,
        9 => {
            [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, f64::MAX, 0.5, -0.0][(bits >> 40) as usize % 7]
        }
        _ => [f64::INFINITY, 1.0, f64::MIN_POSITIVE][(bits >> 40) as usize % 3],
    }
}

#[test]
#[cfg_attr(not(part = "3"), ignore = "of part 3")]
fn floats_of_every_size() {
    for kind in 0..11 {
        for (case, (len, count)) in [(700, 7), (9000, 300), (4100, 4), (2000, 40_000)].into_iter().enumerate()
        {
            if !is_taken(kind + case) {
                continue;
            }
            let indices = indices(len, count, (case + kind) % 5);
            let name = format!("floats of kind {kind}, {len} items of {count} indices");
            let doubles: Vec<f64> = (0..len as u64).map(|place| float(kind, place)).collect();
            check::<f64, Sum, ExactSum, _>(&doubles, &indices, count, &name);
            check::<f64, Mean, ExactMean, _>(&doubles, &indices, count, &name);
            let singles: Vec<f32> = doubles.iter().map(|&value| value as f32).collect();
            check::<f32, Sum, ExactSum, _>(&singles, &indices, count, &name);
            if kind % 3 == 0 {
                let halves: Vec<_> = doubles.iter().map(|&value| f16::from_f64(value)).collect();
                check::<f16, Sum, ExactSum, _>(&halves, &indices, count, &name);
                let brains: Vec<_> = doubles.iter().map(|&value| bf16::from_f64(value)).collect();
                check::<bf16, Mean, ExactMean, _>(&brains, &indices, count, &name);
            }
        }
    }
}

/// As many items and sums as the CPU takes in each of its ways: copies of few sums, sums in a shared cache,
/// and items dealt to ranges.
#[test]
#[cfg_attr(not(part = "2"), ignore = "of part 2")]
fn many_items_on_the_cpu() {
    let len = 140_000;
    for (count, kinds) in [(3, 0..11), (50_000, 3..8), (1_500_000, 4..6)] {
        for kind in kinds {
            let indices = indices(len, count, kind % 2);
            let items: Vec<f64> = (0..len as u64).map(|place| float(kind, place)).collect();
            let groups = groups(&items, &indices, count);
            let expected: Vec<f64> =
                groups.iter().map(|group| group.reduce::<ExactSum, 256>().unwrap_or(0.0)).collect();
            let sums = items.by_index(&indices, count).unwrap().reduce::<Sum, 256>().unwrap();
            assert_same(&sums.to_vec().unwrap(), &expected, &format!("kind {kind}, {count} indices"));
        }
    }
}

/// Sums in the window of more than 64 bits.
#[test]
fn sums_that_carry_on_the_cpu() {
    let indices = indices(600_000, 2, 0);
    for sign in [1.0, -1.0] {
        let items = vec![sign * (2f64.powi(24) - 1.0); indices.len()];
        let expected: Vec<f64> = groups(&items, &indices, 2)
            .iter()
            .map(|group| group.reduce::<ExactSum, 256>().unwrap())
            .collect();
        let sums = items.by_index(&indices, 2).unwrap().reduce::<Sum, 256>().unwrap();
        assert_same(&sums.to_vec().unwrap(), &expected, "window's greatest");
    }
}

/// Few enough items that overflow a sum of 64 bits, or leave the window of one part, that the CPU keeps to
/// one part; and so many that it does not.
#[test]
fn large_items_among_small_ones() {
    let len = 20_000;
    for every in [2, 40] {
        let is_large = |place: u64| hash(place).is_multiple_of(every);
        for count in [1, 7, 3000] {
            let (indices, case) = (indices(len, count, 0), format!("one of {every}, {count} indices"));
            let signed = |place| if is_large(place) { hash(!place) as i64 } else { place as i64 - 9000 };
            let signed: Vec<_> = (0..len as u64).map(signed).collect();
            check::<i64, Sum, Sum, _>(&signed, &indices, count, &case);
            check::<i64, Mean, Mean, _>(&signed, &indices, count, &case);
            let unsigned = |place| if is_large(place) { u64::MAX - place } else { place };
            let unsigned: Vec<_> = (0..len as u64).map(unsigned).collect();
            check::<u64, Mean, Mean, _>(&unsigned, &indices, count, &case);
            let float = |place| (place as f32 - 9000.25) * if is_large(place) { 4096.0 } else { 1.0 };
            let floats: Vec<_> = (0..len as u64).map(float).collect();
            check::<f32, Sum, ExactSum, _>(&floats, &indices, count, &case);
        }
    }
}

#[test]
fn zeros_of_both_signs_added_on_the_cpu() {
    let mut sums = Device::cpu().upload(&[0.0f32, -0.0, -0.0, -0.0]).unwrap();
    scatter_add(&[-0.0f32, -0.0, 0.0, -0.0], &[0u32, 1, 2, 2], &mut sums).unwrap();
    assert_same(&sums.to_vec().unwrap(), &[0.0, -0.0, 0.0, -0.0], "zeros");
}

/// More items that are outside of the window than a block lists.
#[test]
#[cfg_attr(not(part = "5"), ignore = "of part 5")]
fn many_floats_outside_of_the_window() {
    let len = 40_000;
    for kind in [4, 7, 9] {
        let items: Vec<f32> = (0..len).map(|place| float(kind, place) as f32 * 1e-30).collect();
        for count in [2, 40_000] {
            let indices = indices(len as usize, count, 0);
            check::<f32, Sum, ExactSum, _>(&items, &indices, count, &format!("kind {kind}, {count} indices"));
        }
    }
}

#[test]
#[cfg_attr(not(part = "2"), ignore = "of part 2")]
fn operators_whose_order_matters() {
    let (len, count) = (3000, 20);
    let (items, indices) = (samples(len, f32::any), indices(len, count, 1));
    check::<f32, NanVar, NanVar, _>(&items, &indices, count, "in order");
    check::<f32, Prod, Prod, _>(&items, &indices, count, "in order");
    check::<f32, SumSq, SumSq, _>(&items, &indices, count, "in order");
    // Several tiles, blocks and digits, and items of every size.
    for (case, (len, count)) in
        [(1, 1), (4096, 2), (9000, 512), (21_000, 700), (4097, 300_000)].into_iter().enumerate()
    {
        let at = self::indices(len, count, case);
        let name = format!("{len} items of {count} indices");
        check::<i8, Prod, Prod, _>(&samples(len, i8::any), &at, count, &name);
        check::<u16, NanVar, NanVar, _>(&samples(len, u16::any), &at, count, &name);
        check::<f64, SumSq, SumSq, _>(&samples(len, f64::any), &at, count, &name);
    }
}

fn extremes_of<T: Sample + Item>() {
    for (case, (len, count)) in [(1, 1), (3000, 20), (9000, 4000), (5000, 60_000)].into_iter().enumerate() {
        let mut items = samples(len, |index| T::any(index + 3));
        // Those that lose against all others.
        for place in (0..len).step_by(7) {
            items[place] = if place % 2 == 0 { T::max_value() } else { T::min_value() };
        }
        let at = indices(len, count, case);
        let name = format!("{len} items of {count} indices");
        check::<T, Max, Max, _>(&items, &at, count, &name);
        check::<T, Min, Min, _>(&items, &at, count, &name);
        check::<T, NanMax, NanMax, _>(&items, &at, count, &name);
        check::<T, NanMin, NanMin, _>(&items, &at, count, &name);
    }
}

#[test]
#[cfg_attr(not(part = "4"), ignore = "of part 4")]
fn extremes_of_every_type() {
    macro_rules! all {
        ({} $($type:ident: $($row:ident)*;)*) => { $( extremes_of::<$type>(); )* };
    }
    for_each_element! { all! {} }
    let nan: Vec<f32> = (0..600).map(|place| if place % 3 == 0 { 1.5 } else { f32::NAN }).collect();
    let at = indices(600, 500, 0);
    check::<f32, NanMax, NanMax, _>(&nan, &at, 500, "NaN");
    check::<f32, Min, Min, _>(&nan, &at, 500, "NaN");
}

#[test]
fn an_index_without_items_has_no_extreme() {
    for device in devices() {
        for len in [3usize, 70_000] {
            let x = device.upload(&vec![i64::MIN; len]).unwrap();
            let at: Vec<u32> = (0..len).map(|place| [0, 1, 3][place % 3]).collect();
            let at = device.upload(&at).unwrap();
            let groups = x.by_index(&at, 5).unwrap();
            let empty = groups.reduce::<Max, 256>().map(drop);
            assert_eq!(empty, Err(Error::EmptySegment { op: "max", segment: 2 }), "{device}");
            let results = groups.by(Max).or(7).run().unwrap().to_vec().unwrap();
            assert_eq!(results, [i64::MIN, i64::MIN, 7, i64::MIN, 7], "{device}");
        }
    }
}

#[test]
fn pairs_by_index() {
    let (len, count) = (6000, 40);
    let indices = indices(len, count, 1);
    let (x, y) = (samples(len, f32::any), samples(len, |place| f32::any(place + 9)));
    let (of_x, of_y) = (groups(&x, &indices, count), groups(&y, &indices, count));
    let dot = |(x, y): (&Vec<f32>, &Vec<f32>)| (x, y).reduce::<Dot, 256>().unwrap();
    let expected: Vec<f32> = of_x.iter().zip(&of_y).map(dot).collect();
    for device in devices() {
        let (x, y) = (device.upload(&x).unwrap(), device.upload(&y).unwrap());
        let at = device.upload(&indices).unwrap();
        let got = (&x, &y).by_index(&at, count).unwrap().by(Dot).or(0.0).run().unwrap();
        assert_same(&got.to_vec().unwrap(), &expected, &format!("dot on {device}"));
    }
}

#[test]
#[cfg_attr(not(part = "5"), ignore = "of part 5")]
fn the_order_of_items_does_not_matter() {
    let len = 5000;
    let items: Vec<f64> = (0..len).map(|place| float(4, place)).filter(|value| value.is_finite()).collect();
    let indices = indices(items.len(), 30, 0);
    let mut pairs: Vec<_> = items.iter().copied().zip(indices).collect();
    for device in devices() {
        let mut all: Vec<Vec<f64>> = Vec::new();
        for turn in 0..3 {
            pairs.sort_by_key(|&(value, index)| hash(value.to_bits() ^ u64::from(index) ^ turn));
            let (items, indices): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            let (x, on_device) = (device.upload(&items).unwrap(), device.upload(&indices).unwrap());
            all.push(x.by_index(&on_device, 30).unwrap().reduce::<Sum, 256>().unwrap().to_vec().unwrap());
        }
        assert_same(&all[0], &all[1], "another order");
        assert_same(&all[0], &all[2], "another order");
    }
}

#[test]
fn every_type_of_indices_and_any_address() {
    let len = 4500;
    let items = samples(len, f32::any);
    let short = indices(len, 60, 0);
    let expected: Vec<f32> = groups(&items[3..], &short[3..], 60)
        .iter()
        .map(|group| group.reduce::<ExactSum, 256>().unwrap())
        .collect();
    for device in devices() {
        let x = device.upload(&items).unwrap();
        let x = x.slice(3..).unwrap();
        macro_rules! of {
            ($($type:ident)*) => {$(
                let indices: Vec<$type> = short.iter().map(|&index| index as $type).collect();
                let indices = device.upload(&indices).unwrap();
                let groups = x.by_index(indices.slice(3..).unwrap(), 60).unwrap();
                let got = groups.reduce::<Sum, 32>().unwrap().to_vec().unwrap();
                assert_same(&got, &expected, &format!("{} on {device}", stringify!($type)));
            )*};
        }
        of! { u32 i32 u64 i64 usize }
    }
}

#[test]
fn wrong_indices() {
    let count = 9;
    for device in devices() {
        let x = device.upload(&samples(5000, f32::any)).unwrap();
        for (first, wrong) in [(0usize, 9i64), (4999, -1), (1234, i64::MAX), (77, 1 << 32)] {
            let mut indices = vec![0i64; 5000];
            indices[first] = wrong;
            if first < 4000 {
                indices[4500] = 10;
            }
            let indices = device.upload(&indices).unwrap();
            let error = Error::BadIndex { place: first as u64, index: wrong.into(), count };
            let groups = x.by_index(&indices, count).unwrap();
            assert_eq!(groups.reduce::<Sum, 256>().map(drop), Err(error.clone()), "{device}");
            assert_eq!(groups.reduce::<Max, 256>().map(drop), Err(error.clone()), "{device}");
            let mut sums = device.upload(&[1.0f32; 9]).unwrap();
            assert_eq!(scatter_add(&x, &indices, &mut sums), Err(error.clone()), "{device}");
            assert_eq!(sums.to_vec().unwrap(), [1.0; 9], "{device}");
            let stream = device.stream().unwrap();
            // SAFETY: all stay until the stream has been synchronized.
            let added = unsafe { groups.add_into(&stream, &mut sums) };
            stream.synchronize().unwrap();
            assert_eq!(added, if device.is_cpu() { Err(error.clone()) } else { Ok(()) }, "{device}");
            assert_eq!(sums.to_vec().unwrap(), [1.0; 9], "{device}");
            assert_eq!(bincount(&indices, count).map(drop), Err(error), "{device}");
        }
        // The next call is right.
        let zeros = device.upload(&vec![0u32; 5000]).unwrap();
        let sum = x.by_index(&zeros, 1).unwrap().reduce::<Sum, 256>().unwrap().to_vec().unwrap();
        assert_same(&sum, &[x.reduce::<ExactSum, 256>().unwrap()], "after an error");
        let none = x.by_index(&zeros, 0).unwrap().reduce::<Sum, 256>().map(drop);
        assert_eq!(none, Err(Error::BadIndex { place: 0, index: 0, count: 0 }));
        let short = device.upload(&[0u32; 3]).unwrap();
        let error = Error::LengthMismatch { first: 5000, second: 3 };
        assert_eq!(x.by_index(&short, 1).map(drop), Err(error));
    }
    let error = [1.0f32].by_index(&[0u32], (1 << 31) + 1).map(drop);
    assert_eq!(error, Err(Error::TooManyGroups { count: (1 << 31) + 1 }));
}

#[test]
fn counts_and_sums_onto_others() {
    let len = 7000;
    for (count, distribution) in [(5, 1), (1000, 0), (50_000, 0)] {
        let indices = indices(len, count, distribution);
        let mut counts = vec![0u64; count];
        indices.iter().for_each(|&index| counts[index as usize] += 1);
        let x: Vec<f32> = (0..len as u64).map(|place| float(3, place) as f32).collect();
        let before: Vec<f32> =
            (0..count as u64).map(|place| float(7 + (place % 3) as usize, place) as f32).collect();
        let sums: Vec<f32> = groups(&x, &indices, count)
            .into_iter()
            .zip(&before)
            .map(|(mut group, &before)| {
                if group.is_empty() {
                    return before;
                }
                group.push(before);
                group.reduce::<ExactSum, 256>().unwrap()
            })
            .collect();
        let integers: Vec<i32> = (0..len as u64).map(|place| hash(place) as i32).collect();
        let mut of_integers = vec![i64::MAX - 5; count];
        integers.iter().zip(&indices).for_each(|(&value, &index)| {
            let sum = &mut of_integers[index as usize];
            *sum = sum.wrapping_add(value.into());
        });
        for device in devices() {
            let case = format!("{count} indices on {device}");
            let (x, at) = (device.upload(&x).unwrap(), device.upload(&indices).unwrap());
            assert_same(&bincount(&at, count).unwrap().to_vec().unwrap(), &counts, &case);
            let mut onto = device.upload(&before).unwrap();
            scatter_add(&x, &at, &mut onto).unwrap();
            assert_same(&onto.to_vec().unwrap(), &sums, &case);
            let groups = x.by_index(&at, count).unwrap();
            let mut scratch = device.zeros::<u64>(groups.add_scratch_bytes().div_ceil(8)).unwrap();
            let mut onto = device.upload(&before).unwrap();
            // SAFETY: all of them stay until the stream has been synchronized.
            unsafe {
                let stream = device.stream().unwrap().with_scratch(scratch.view_mut()).unwrap();
                groups.add_into(&stream, &mut onto).unwrap();
                stream.synchronize().unwrap();
            }
            assert_same(&onto.to_vec().unwrap(), &sums, &case);
            let mut onto = device.upload(&vec![i64::MAX - 5; count]).unwrap();
            scatter_add(&device.upload(&integers).unwrap(), &at, &mut onto).unwrap();
            assert_same(&onto.to_vec().unwrap(), &of_integers, &case);
            let weighted = bincount_weighted(&at, &x, count).unwrap().to_vec().unwrap();
            let by_index = x.by_index(&at, count).unwrap().reduce::<Sum, 256>().unwrap().to_vec().unwrap();
            assert_same(&weighted, &by_index, &case);
        }
    }
}

#[test]
fn on_streams() {
    let (len, count) = (5000, 33);
    let (items, indices) = (samples(len, f64::any), indices(len, count, 0));
    for device in devices() {
        let (x, at) = (device.upload(&items).unwrap(), device.upload(&indices).unwrap());
        let groups = x.by_index(&at, count).unwrap();
        let (sums, means, largest) = groups.by((Sum, Mean, Max)).run().unwrap();
        let bytes = groups.by(Mean).scratch_bytes();
        let mut scratch = device.zeros::<u64>(bytes.div_ceil(8).max(1)).unwrap();
        let stream = device.stream().unwrap();
        let pending = groups.reduce_async::<Sum, 256>(&stream);
        assert_same(&pending.wait().unwrap().to_vec().unwrap(), &sums.to_vec().unwrap(), "async");
        let pending = groups.by((Mean, Max)).run_async(&stream);
        let (of_means, of_largest) = pending.wait().unwrap();
        assert_same(&of_means.to_vec().unwrap(), &means.to_vec().unwrap(), "async");
        assert_same(&of_largest.to_vec().unwrap(), &largest.to_vec().unwrap(), "async");
        let mut into = device.upload(&vec![7.0f64; count + 1]).unwrap();
        // SAFETY: all of them stay until the stream has been synchronized.
        unsafe {
            let stream = device.stream().unwrap().with_scratch(scratch.view_mut()).unwrap();
            groups.by(Mean).run_into(&stream, &mut into).unwrap();
            stream.synchronize().unwrap();
        }
        assert_same(&into.to_vec().unwrap()[..count], &means.to_vec().unwrap(), "into");
        assert_eq!(into.to_vec().unwrap()[count], 7.0);
        // SAFETY: as above.
        unsafe {
            groups.reduce_into::<Max, 256>(&stream, &mut into).unwrap();
            stream.synchronize().unwrap();
        }
        assert_same(&into.to_vec().unwrap()[..count], &largest.to_vec().unwrap(), "into");
    }
}

#[test]
fn no_items() {
    for device in devices() {
        let (x, at) = (device.upload::<f32>(&[]).unwrap(), device.upload::<u32>(&[]).unwrap());
        let groups = x.by_index(&at, 3).unwrap();
        assert_eq!(groups.reduce::<Sum, 256>().unwrap().to_vec().unwrap(), [0.0; 3]);
        assert!(groups.reduce::<Mean, 256>().unwrap().to_vec().unwrap().iter().all(|mean| mean.is_nan()));
        assert_eq!(groups.reduce::<Max, 256>().map(drop), Err(Error::EmptySegment { op: "max", segment: 0 }));
        assert_eq!(bincount(&at, 2).unwrap().to_vec().unwrap(), [0, 0]);
        let mut sums = device.upload(&[1.5f32]).unwrap();
        scatter_add(&x, &at, &mut sums).unwrap();
        assert_eq!(sums.to_vec().unwrap(), [1.5]);
        assert_eq!(x.by_index(&at, 0).unwrap().reduce::<Sum, 256>().unwrap().len(), 0);
    }
    // Device::cpu is one of them, and host data lie there.
    let _ = Device::cpu();
}

#[test]
fn rows_by_index() {
    for (rows, columns, count) in [(0, 3, 2), (50, 1, 7), (700, 5, 30), (40, 300, 9), (9, 0, 4)] {
        let (items, indices) = (samples(rows * columns, f32::any), indices(rows, count, 1));
        let of_elements: Vec<u32> = indices
            .iter()
            .flat_map(|index| (0..columns as u32).map(move |column| index * columns as u32 + column))
            .collect();
        let expected: Vec<f32> = groups(&items, &of_elements, count * columns)
            .iter()
            .map(|group| group.reduce::<ExactSum, 256>().unwrap())
            .collect();
        for device in devices() {
            let case = format!("{rows} rows of {columns} on {device}");
            let (x, short) = (device.upload(&items).unwrap(), device.upload(&indices).unwrap());
            let long: Vec<i64> = indices.iter().map(|&index| index.into()).collect();
            let long = device.upload(&long).unwrap();
            let elements = row_indices(&long, columns, count).unwrap();
            assert_same(&elements.to_vec().unwrap(), &of_elements, &case);
            let elements = row_indices(&short, columns, count).unwrap();
            let sums = x.by_index(&elements, count * columns).unwrap().reduce::<Sum, 256>().unwrap();
            assert_same(&sums.to_vec().unwrap(), &expected, &case);
        }
    }
    for device in devices() {
        let indices = device.upload(&[0i32, 1, 5, -1]).unwrap();
        let error = Err(Error::BadIndex { place: 2, index: 5, count: 2 });
        assert_eq!(row_indices(&indices, 3, 2).map(drop), error, "{device}");
        let error = Err(Error::TooManyGroups { count: 5 << 30 });
        assert_eq!(row_indices(&indices, 1 << 30, 5).map(drop), error, "{device}");
        // The next call is right.
        assert_eq!(row_indices(&indices.slice(..2).unwrap().to_vec().unwrap(), 1, 2).unwrap().len(), 2);
    }
}
