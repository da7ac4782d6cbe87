//! Groups in parts: the bits of all items at once, however they are cut, merged and sent.

use bytemuck::bytes_of;
use gpu_reduce::{
    All, Any, BitXor, Buffer, CountNonzero, Element, Error, ExactDot, ExactElement, ExactMean, ExactSum,
    GroupKey, Groups, Item, Max, Mean, Min, NanMax, NanMin, NormL1, Op, PartialGroups, Prod, Reduce, Sharded,
    Sum, SumSq, bf16, f16,
};
use std::collections::BTreeMap;
use std::fmt::Debug;
use support::{Sample, devices, for_each_element, hash, is_taken, samples};

/// Cuts `len` items into pieces, some of them empty.
fn pieces(len: usize, seed: u64) -> Vec<std::ops::Range<usize>> {
    let mut cuts: Vec<_> =
        (0..hash(seed) % 6).map(|cut| hash(cut ^ seed << 8) as usize % (len + 1)).collect();
    cuts.extend([0, len, len / 2, len / 2]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

/// Merges parts in a tree that the seed draws.
fn merged<O: Op<T>, K: GroupKey, T: Copy + 'static>(
    mut parts: Vec<PartialGroups<O, K, T>>,
    seed: u64,
) -> PartialGroups<O, K, T> {
    let mut step = seed;
    while parts.len() > 1 {
        step = hash(step);
        let part = parts.swap_remove(step as usize % parts.len());
        step = hash(step);
        let place = step as usize % parts.len();
        parts[place].merge(part).unwrap();
    }
    parts.pop().unwrap()
}

fn assert_same<V: Item + Debug>(got: &Buffer<V>, expected: &[V], case: &str) {
    let got = got.to_vec().unwrap();
    assert_eq!(got.len(), expected.len(), "{case}");
    let differs = got.iter().zip(expected).position(|(got, expected)| bytes_of(got) != bytes_of(expected));
    if let Some(index) = differs {
        panic!("{case}: result {index} is {:?}, not {:?}", got[index], expected[index]);
    }
}

/// Checks that pieces of items by operator `O` give what `E` gives for each key's items as a slice.
fn check<T, O, E, V>(op: O, expected: E, items: &[T], keys: &[i32], case: &str)
where
    T: Item,
    O: Op<T, Output = V>,
    E: Op<T, Output = V>,
    V: Item + Debug,
{
    let mut groups = BTreeMap::<i32, Vec<T>>::new();
    keys.iter().zip(items).for_each(|(&key, &item)| groups.entry(key).or_default().push(item));
    let (names, values): (Vec<_>, Vec<_>) = groups
        .into_iter()
        .map(|(key, items)| {
            let all = items
                .iter()
                .fold(expected.identity(), |all, &item| expected.combine(all, expected.lift(item, 0)));
            (key, expected.finish(all, items.len() as u64).unwrap_or(V::zeroed()))
        })
        .unzip();
    let mut bytes = None;
    for (index, device) in devices().into_iter().enumerate() {
        for seed in 0..3 {
            let case = format!("{case}: {} on {device}, pieces {seed}", O::NAME);
            // A few parts, each with some of the pieces.
            let mut parts = vec![PartialGroups::new(op); 3];
            for (place, piece) in pieces(items.len(), seed).into_iter().enumerate() {
                let (keys, items) = (&keys[piece.clone()], &items[piece]);
                let part = &mut parts[hash(place as u64 ^ seed) as usize % 3];
                if place % 2 == index {
                    part.add(keys, items).unwrap();
                } else {
                    part.add(&device.upload(keys).unwrap(), &device.upload(items).unwrap()).unwrap();
                }
            }
            let all = merged(parts, seed);
            let sent = all.to_bytes();
            assert!(bytes.get_or_insert(sent.clone()) == &sent, "{case}: bytes differ");
            for part in [all, PartialGroups::from_bytes(op, &sent).unwrap()] {
                let (keys, results) = part.finish().unwrap();
                assert_same(&keys, &names, &case);
                assert_same(&results, &values, &case);
                assert!(part.to_bytes() == sent, "{case}: bytes differ after reading");
            }
        }
    }
}

/// Keys by a distribution: few, many, one for each item.
fn keys(len: usize, distribution: usize) -> Vec<i32> {
    let key = |place: usize| match distribution {
        0 => hash(place as u64) as i32 % 3,
        1 => (hash(hash(place as u64) % 300) >> 20) as i32,
        _ => i32::MIN + 7 * place as i32,
    };
    (0..len).map(key).collect()
}

macro_rules! sums {
    ({} $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {$(
        sums! { @$kind $type }
    )*};
    (@integer $type:ident) => {
        sums_of::<$type, _, _, _>(Sum, Sum);
        sums_of::<$type, _, _, _>(Mean, Mean);
    };
    (@float $type:ident) => {
        sums_of::<$type, _, _, _>(Sum, ExactSum);
        sums_of::<$type, _, _, _>(Mean, ExactMean);
    };
}

fn sums_of<T: Sample, O: Op<T, Output = V>, E: Op<T, Output = V>, V: Item + Debug>(op: O, expected: E) {
    let shift = size_of::<T>() + T::NAME.len() + O::NAME.len();
    let cases = [1500, 1000, 300].into_iter().enumerate();
    for (distribution, len) in cases.filter(|(case, _)| is_taken(case + shift)) {
        let items = samples(len, |index| T::any(index + 7));
        check(op, expected, &items, &keys(len, distribution), T::NAME);
    }
}

fn others<T: Sample + ExactElement<Rounded: Item>>() {
    let (items, keys) = (samples(1000, T::any), keys(1000, 1));
    check(ExactSum, ExactSum, &items, &keys, T::NAME);
    check(ExactMean, ExactMean, &items, &keys, T::NAME);
    check(Max, Max, &items, &keys, T::NAME);
    check(NanMin, NanMin, &items, &keys, T::NAME);
    check(CountNonzero, CountNonzero, &items, &keys, T::NAME);
    check(All, All, &items, &keys, T::NAME);
    check(Any, Any, &items, &keys, T::NAME);
}

#[test]
fn every_type() {
    for_each_element! { sums! {} }
    others::<u8>();
    others::<i64>();
    others::<bf16>();
    others::<f64>();
}

#[test]
fn operators_of_integers_and_pairs() {
    let (items, keys) = (samples(2000, <i32 as Sample>::any), keys(2000, 1));
    check(Prod, Prod, &items, &keys, "i32");
    check(SumSq, SumSq, &items, &keys, "i32");
    check(NormL1, NormL1, &items, &keys, "i32");
    check(BitXor, BitXor, &items, &keys, "i32");
    check(Min, Min, &items, &keys, "i32");
    let (a, b) = (samples(500, <f32 as Sample>::any), samples(500, |index| f32::any(index + 1)));
    let keys = &keys[..500];
    let mut part = PartialGroups::new(ExactDot);
    for piece in pieces(500, 5) {
        part.add(&keys[piece.clone()], &(&a[piece.clone()], &b[piece])).unwrap();
    }
    let part = PartialGroups::<_, i32, (f32, f32)>::from_bytes(ExactDot, &part.to_bytes()).unwrap();
    let (found, dots) = part.finish().unwrap();
    for (key, dot) in found.to_vec().unwrap().into_iter().zip(dots.to_vec().unwrap()) {
        let of_key = |x: &[f32]| -> Vec<f32> {
            keys.iter().zip(x).filter(|(other, _)| **other == key).map(|(_, &x)| x).collect()
        };
        assert_eq!(dot, (&of_key(&a), &of_key(&b)).reduce::<ExactDot, 256>().unwrap());
    }
}

/// Floats of these kinds, by number.
fn float(kind: usize, place: u64) -> f64 {
    let bits = hash(place.wrapping_mul(31) + kind as u64);
    let part = f64::from(bits as u32) / 2f64.powi(32);
    match kind {
        0 => part - 0.5,
        1 => (part - 0.5) * 2f64.powi(-100),
        2 => (part - 0.5) * 2f64.powi((bits >> 32) as i32 % 120),
        3 => f64::from_bits(bits),
        4 => f64::from_bits(bits >> 12),
        // What cancels; zeros of both signs, and these alone.
        5 => [1e30, -1e30, 2f64.powi(-60), 1.5][place as usize % 4],
        6 => [-0.0, 0.0, 1.0, -1.0][(bits >> 40) as usize % 4],
        7 => -0.0,
        8 => [-0.0, -0.0, -0.0, 0.0][(bits >> 40) as usize % 4],
        9 => {
            [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, f64::MAX, 0.5, -0.0][(bits >> 40) as usize % 7]
        }
        _ => [f64::MAX, f64::MAX, -f64::MAX, f64::MIN_POSITIVE][(bits >> 40) as usize % 4],
    }
}

#[test]
fn floats_of_every_size() {
    for kind in 0..11 {
        for (distribution, len) in [(0, 400), (1, 1000)] {
            if !is_taken(kind + distribution) {
                continue;
            }
            let keys = keys(len, distribution);
            let doubles: Vec<f64> = (0..len as u64).map(|place| float(kind, place)).collect();
            let singles: Vec<f32> = doubles.iter().map(|&value| value as f32).collect();
            let case = format!("kind {kind}, {len} items");
            check(Sum, ExactSum, &doubles, &keys, &case);
            check(Mean, ExactMean, &singles, &keys, &case);
            check(NanMax, NanMax, &singles, &keys, &case);
        }
    }
}

/// As many items as the CPU gives to threads, and sums of more than 64 bits in the window.
#[test]
fn many_items_on_the_cpu() {
    let len = 300_000;
    let items: Vec<f64> =
        (0..len as u64).map(|place| (2f64.powi(24) - 1.0) * float(6, place).abs()).collect();
    for distribution in [0, 1] {
        let keys = keys(len, distribution);
        let mut part = PartialGroups::new(Sum);
        let mut maxima = PartialGroups::new(Max);
        for piece in pieces(len, 1) {
            part.add(&keys[piece.clone()], &items[piece.clone()]).unwrap();
            maxima.add(&keys[piece.clone()], &items[piece]).unwrap();
        }
        let groups = items.group_by(&keys).unwrap();
        let sums = groups.reduce::<Sum, 256>().unwrap().to_vec().unwrap();
        let (found, got) = part.finish().unwrap();
        assert_same(&found, &groups.keys().to_vec().unwrap(), "keys");
        assert_same(&got, &sums, "sums");
        let greatest = groups.reduce::<Max, 256>().unwrap().to_vec().unwrap();
        assert_same(&maxima.finish().unwrap().1, &greatest, "maxima");
    }
}

/// Sums beyond 64 bits of integers, and beyond the window's 128 bits.
#[test]
fn sums_that_carry() {
    let mut part = PartialGroups::new(ExactMean);
    part.add(&[1u8], &[u64::MAX]).unwrap();
    let mut doubles = PartialGroups::new(ExactSum);
    doubles.add(&[1u8, 2], &[2f64.powi(23), -f64::from_bits(1)]).unwrap();
    for _ in 0..60 {
        part.merge(part.clone()).unwrap();
        doubles.merge(doubles.clone()).unwrap();
    }
    assert_eq!(part.finish().unwrap().1.to_vec().unwrap(), [2f64.powi(64)]);
    assert_eq!(
        doubles.finish().unwrap().1.to_vec().unwrap(),
        [2f64.powi(83), -f64::from_bits(1) * 2f64.powi(60)]
    );
    let back = PartialGroups::<_, u8, f64>::from_bytes(ExactSum, &doubles.to_bytes()).unwrap();
    assert_eq!(back.to_bytes(), doubles.to_bytes());
}

#[test]
fn keys_of_every_kind() {
    fn of<K: Element + GroupKey<Columns = Buffer<K>>>(keys: &[K], expected: &[K]) {
        let counts: Vec<u8> = vec![1; keys.len()];
        let mut part = PartialGroups::new(Sum);
        for device in devices() {
            let (keys, counts) = (device.upload(keys).unwrap(), device.upload(&counts).unwrap());
            part.add(&keys.slice(1..).unwrap(), &counts.slice(1..).unwrap()).unwrap();
            part.add(&keys.slice(..1).unwrap(), &counts.slice(..1).unwrap()).unwrap();
        }
        for part in [part.clone(), PartialGroups::from_bytes(Sum, &part.to_bytes()).unwrap()] {
            let (found, sums) = part.finish().unwrap();
            assert_same(&found, expected, "keys");
            assert_eq!(sums.to_vec().unwrap().iter().sum::<u64>() as usize, devices().len() * keys.len());
        }
    }
    of(&[i64::MAX, 0, i64::MIN, -1], &[i64::MIN, -1, 0, i64::MAX]);
    of(&[u64::MAX, 0, 1 << 63, u64::MAX], &[0, 1 << 63, u64::MAX]);
    of(&[127i8, -128, 0, -128], &[-128, 0, 127]);
    of(&[usize::MAX, 3], &[3, usize::MAX]);
    let nan = f32::from_bits(0xffc0_1234);
    of(
        &[-0.0, f32::NAN, nan, 0.0, f32::INFINITY, f32::NEG_INFINITY, -1e-45, f32::MAX],
        &[f32::NEG_INFINITY, -1e-45, 0.0, f32::MAX, f32::INFINITY, f32::NAN],
    );
    of(&[-f64::NAN, -0.0], &[0.0, f64::NAN]);
    of(&[f16::NAN, f16::NEG_ZERO, f16::MIN], &[f16::MIN, f16::ZERO, f16::NAN]);
    of(&[bf16::INFINITY, bf16::NEG_ZERO], &[bf16::ZERO, bf16::INFINITY]);

    let (a, b, c) = ([i64::MAX, i64::MAX, -5, -5], [-0.0f32, 0.0, f32::NAN, 1.0], [9u32, 9, 0, u32::MAX]);
    let mut part = PartialGroups::new(Max);
    for device in devices() {
        let [a, b] = [device.upload(&a).unwrap(), device.upload(&[7i64; 4]).unwrap()];
        let mut wide = PartialGroups::new(Sum);
        wide.add(&(&a, &b), &device.upload(&[1u8; 4]).unwrap()).unwrap();
        let ((a, b), sums) = wide.finish().unwrap();
        assert_eq!([a.to_vec().unwrap(), b.to_vec().unwrap()], [[-5, i64::MAX], [7, 7]]);
        assert_eq!(sums.to_vec().unwrap(), [2, 2]);
    }
    part.add(&(&a, (&b, &c)), &[1i8, 2, 3, 4]).unwrap();
    let part = PartialGroups::<_, (i64, (f32, u32)), i8>::from_bytes(Max, &part.to_bytes()).unwrap();
    let ((a, (b, c)), maxima) = part.finish().unwrap();
    assert_eq!(a.to_vec().unwrap(), [-5, -5, i64::MAX]);
    assert_eq!(b.to_vec().unwrap().map_bits(), [1.0, f32::NAN, 0.0].map(f32::to_bits));
    assert_eq!(c.to_vec().unwrap(), [u32::MAX, 0, 9]);
    assert_eq!(maxima.to_vec().unwrap(), [4, 3, 2]);
}

trait MapBits {
    fn map_bits(&self) -> Vec<u32>;
}

impl MapBits for Vec<f32> {
    fn map_bits(&self) -> Vec<u32> {
        self.iter().map(|value| value.to_bits()).collect()
    }
}

#[test]
fn shards() {
    let len = 3000;
    let (keys, items) = (keys(len, 1), (0..len as u64).map(|place| float(2, place)).collect::<Vec<_>>());
    for device in devices() {
        let cuts = [0, 17, 17, 2000, len];
        let shards = |_: ()| cuts.windows(2).map(|ends| ends[0]..ends[1]);
        let of_keys: Vec<_> = shards(()).map(|range| device.upload(&keys[range]).unwrap()).collect();
        let of_items: Vec<_> = shards(()).map(|range| device.upload(&items[range]).unwrap()).collect();
        let mut part = PartialGroups::new(Sum);
        part.add(&Sharded::from(of_keys), &Sharded::from(of_items)).unwrap();
        let groups = items.group_by(&keys).unwrap();
        let (found, sums) = part.finish().unwrap();
        assert_same(&found, &groups.keys().to_vec().unwrap(), "keys");
        assert_same(&sums, &groups.reduce::<Sum, 256>().unwrap().to_vec().unwrap(), "sums");
    }
}

#[test]
fn results_by_index() {
    let (len, count) = (2000, 700);
    let indices: Vec<i64> = (0..len as u64).map(|place| (hash(place) % 650) as i64).collect();
    let items: Vec<f32> = (0..len as u64).map(|place| float(3, place) as f32).collect();
    for device in devices() {
        let shards = |ends: &[usize]| ends.windows(2).map(|ends| ends[0]..ends[1]).collect::<Vec<_>>();
        let shards = shards(&[0, 5, 5, 1234, len]);
        let of_indices: Vec<_> =
            shards.iter().map(|range| device.upload(&indices[range.clone()]).unwrap()).collect();
        let of_items: Vec<_> =
            shards.iter().map(|range| device.upload(&items[range.clone()]).unwrap()).collect();
        let mut part = PartialGroups::new(Sum);
        part.add(&Sharded::from(of_indices), &Sharded::from(of_items)).unwrap();
        let expected =
            items.by_index(&indices, count).unwrap().reduce::<Sum, 256>().unwrap().to_vec().unwrap();
        assert_same(&part.finish_by_index(count, 0.0).unwrap(), &expected, "sums by index of shards");
        let error = part.finish_by_index(600, 0.0).unwrap_err();
        assert!(matches!(error, Error::BadIndex { place: 1.., index: 600, count: 600 }), "{error}");
    }
    let mut part = PartialGroups::new(Max);
    part.add(&[1i32, -3], &[1u8, 2]).unwrap();
    let error = part.finish_by_index(5, 0).unwrap_err();
    assert!(matches!(error, Error::BadIndex { place: 0, index: -3, count: 5 }), "{error}");
    let mut part = PartialGroups::new(Max);
    part.add(&[usize::MAX], &[1u8]).unwrap();
    let error = part.finish_by_index(5, 0).unwrap_err();
    assert!(matches!(error, Error::BadIndex { place: 0, count: 5, .. }), "{error}");
    let error = part.finish_by_index(usize::MAX, 0).unwrap_err();
    assert!(matches!(error, Error::BadIndex { .. }), "{error}");
}

#[test]
fn groups_that_are_numbered() {
    for device in devices() {
        let groups = Groups::of(&device.upload(&[3u16, 1, 3]).unwrap()).unwrap();
        let mut part = PartialGroups::new(Sum);
        part.add_groups(&groups, &device.upload(&[1.5f32, 2.0, 4.0]).unwrap()).unwrap();
        assert_eq!(part.finish().unwrap().1.to_vec().unwrap(), [2.0, 5.5]);
        let short = part.add_groups(&groups, &device.upload(&[1.5f32]).unwrap());
        assert!(matches!(short, Err(Error::LengthMismatch { first: 3, second: 1 })), "{short:?}");
        if !device.is_cpu() {
            let other = part.add_groups(&groups, &[1.5f32, 2.0, 4.0]);
            assert!(matches!(other, Err(Error::DeviceMismatch { .. })), "{other:?}");
        }
        assert_eq!(part.finish().unwrap().1.to_vec().unwrap(), [2.0, 5.5]);
    }
    // By appearance, too: the numbers do not ascend with the keys.
    let groups = Groups::in_order_of_appearance(&[3u16, 1, 3]).unwrap();
    let mut part = PartialGroups::new(Sum);
    part.add_groups(&groups, &[1.5f32, 2.0, 4.0]).unwrap();
    let (keys, sums) = part.finish().unwrap();
    assert_eq!((keys.to_vec().unwrap(), sums.to_vec().unwrap()), (vec![1, 3], vec![2.0, 5.5]));
}

#[test]
fn errors() {
    let mut part = PartialGroups::new(NanMax);
    part.add::<[i32], [f32]>(&[], &[]).unwrap();
    assert_eq!(part.finish().unwrap().1.len(), 0);
    let empty = PartialGroups::<NanMax, i32, f32>::from_bytes(NanMax, &part.to_bytes()).unwrap();
    part.merge(empty).unwrap();
    part.add(&[1, 2], &[1.0, f32::NAN]).unwrap();
    let before = part.to_bytes();
    let error = part.add(&[1, 2], &[1.0]).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { first: 2, second: 1 }), "{error}");
    let error = part
        .add(&Sharded::from(vec![&[1][..], &[2, 3]]), &Sharded::from(vec![&[1.0f32, 2.0][..], &[3.0]]))
        .unwrap_err();
    assert!(matches!(error, Error::ShardMismatch { .. }), "{error}");
    if let Some(device) = devices().into_iter().find(|device| !device.is_cpu()) {
        let error = part.add(&[1], &device.upload(&[1.0f32]).unwrap()).unwrap_err();
        assert!(matches!(error, Error::DeviceMismatch { .. }), "{error}");
    }
    assert_eq!(part.to_bytes(), before);
    assert_eq!(part.finish().unwrap().1.to_vec().unwrap().map_bits(), [1.0, f32::NAN].map(f32::to_bits));
    assert_eq!(format!("{part:?}"), r#"PartialGroups { op: "nanmax", groups: [2] }"#);

    fn mismatch<O: Op<T>, K: GroupKey, T: Copy + 'static>(op: O, bytes: &[u8], what: &str) {
        match PartialGroups::<O, K, T>::from_bytes(op, bytes).map(|_| ()) {
            Err(Error::ReductionMismatch { what: found, .. }) => assert_eq!(found, what),
            other => panic!("{what}: {other:?}"),
        }
    }
    mismatch::<NanMin, i32, f32>(NanMin, &before, "operator");
    mismatch::<NanMax, i32, f64>(NanMax, &before, "elements' type");
    mismatch::<NanMax, i64, f32>(NanMax, &before, "keys' type");
    mismatch::<NanMax, (i32, i32), f32>(NanMax, &before, "keys' type");
}

#[test]
fn serialised() {
    let mut part = PartialGroups::new(Mean);
    part.add(&[3i64, -3, 3], &[1.0f64, 1e300, 2.0]).unwrap();
    let text = serde_json::to_string(&part).unwrap();
    let back: PartialGroups<Mean, i64, f64> = serde_json::from_str(&text).unwrap();
    assert_eq!(back.to_bytes(), part.to_bytes());
    assert!(serde_json::from_str::<PartialGroups<Sum, i64, f64>>(&text).is_err());
}

/// The checksum at the end of the bytes.
fn checksum(bytes: &[u8]) -> [u8; 8] {
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    sum.to_le_bytes()
}

/// Reads bytes that are damaged: it may be an error, but no panic, and what is read can be used.
fn damaged<O: Op<T, Output: Item>, K: GroupKey, T: Copy + 'static>(op: O, bytes: &[u8]) {
    let read = |bytes: &[u8]| PartialGroups::<O, K, T>::from_bytes(op, bytes);
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "{len} bytes");
    }
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.to_vec();
            changed[place] ^= 1 << bit;
            assert!(read(&changed).is_err(), "bit {bit} of byte {place}");
        }
        if place + 8 >= bytes.len() {
            continue;
        }
        for value in [0, 1, 0x7f, 0x80, 0xff, bytes[place] ^ 1, bytes[place].wrapping_add(1)] {
            // Changed, and cut, with a right length and checksum.
            for len in [bytes.len(), place + 9] {
                let mut changed = bytes[..len - 8].to_vec();
                changed[place] = value;
                if len >= 28 {
                    changed[12..20].copy_from_slice(&(len as u64).to_le_bytes());
                }
                changed.extend(checksum(&changed));
                if let Ok(part) = read(&changed) {
                    let _ = part.finish();
                    let again = read(&part.to_bytes()).unwrap();
                    assert_eq!(again.to_bytes(), part.to_bytes());
                }
            }
        }
    }
}

#[test]
fn damaged_bytes() {
    let mut part = PartialGroups::new(Mean);
    part.add(&[1.5f32, f32::NAN, -7.0], &[1e30f64, -1e-300, 3.0]).unwrap();
    damaged::<Mean, f32, f64>(Mean, &part.to_bytes());
    let mut part = PartialGroups::new(Sum);
    part.add(&(&[u64::MAX, 0, 3], &[i64::MAX, i64::MIN, 7]), &[-1i32, i32::MAX, 0]).unwrap();
    damaged::<Sum, (u64, i64), i32>(Sum, &part.to_bytes());
    let mut part = PartialGroups::new(Max);
    part.add(&[300u16, 1, 300], &[1.0f32, -1e-30, 3.0]).unwrap();
    let bytes = part.to_bytes();
    damaged::<Max, u16, f32>(Max, &bytes);
    // More groups than there are bytes.
    let mut many = bytes.clone();
    let place = bytes.windows(8).rposition(|window| window == 2u64.to_le_bytes()).unwrap();
    for count in [3, 1 << 20, u64::MAX] {
        many[place..place + 8].copy_from_slice(&count.to_le_bytes());
        let end = many.len() - 8;
        let sum = checksum(&many[..end]);
        many[end..].copy_from_slice(&sum);
        let error = PartialGroups::<Max, u16, f32>::from_bytes(Max, &many).unwrap_err();
        assert!(matches!(error, Error::BadPartial(_)), "{error}");
    }
}
