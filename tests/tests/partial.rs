//! Partial results of one reduction, made apart, sent as bytes and merged in any order: the bits of reducing
//! one slice, or an error.

use bytemuck::{Pod, Zeroable};
use gpu_reduce::{
    ArgMax, Block, Comparison, CountWhere, Device, Error, ExactSum, Item, LogSumExp, Max, Mean, Min, Op,
    Partial, Plan, Reduce, Std, Sum, SumWhere, Threads, Var, for_each_integer_operator, for_each_operator,
};
use proptest::prelude::*;
use proptest::sample::Index;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Debug;
use support::{Sample, devices, for_each_block, for_each_element, for_each_integer, hash, lengths, samples};

/// Bits that tell results apart. All NaNs are alike.
fn shown(value: impl Debug) -> String {
    format!("{value:?}")
}

/// Merges partial results in a random order and in random pairs. Each goes through its bytes.
fn merged<O: Op<T>, T: Item, const BLOCK: u32>(
    op: O,
    mut parts: Vec<Partial<O, T, BLOCK>>,
    seed: u64,
) -> Partial<O, T, BLOCK>
where
    Threads<BLOCK>: Block,
{
    for turn in 0.. {
        let draw = |i: u64, parts: &Vec<_>| hash(seed.wrapping_mul(31) + 2 * turn + i) as usize % parts.len();
        let one = parts.swap_remove(draw(0, &parts));
        let mut one = Partial::from_bytes(op, &one.to_bytes()).unwrap();
        if parts.is_empty() {
            return one;
        }
        let other = parts.swap_remove(draw(1, &parts));
        one.merge(Partial::from_bytes(op, &other.to_bytes()).unwrap()).unwrap();
        parts.push(one);
    }
    unreachable!()
}

/// `data` in `count` parts.
fn parts<O: Op<T>, T: Item, const BLOCK: u32>(op: O, data: &[T], count: u32) -> Vec<Partial<O, T, BLOCK>>
where
    Threads<BLOCK>: Block,
{
    let len = data.len() as u64;
    let plan = Partial::<O, T, BLOCK>::plan(len);
    let part = |index| {
        let range = plan.part(index, count);
        let mut part = Partial::new(op, len, data.first().copied().unwrap_or(T::zeroed()));
        part.add(range.start, &data[range.start as usize..range.end as usize]).unwrap();
        part
    };
    (0..count).map(part).collect()
}

fn check<O: Op<T>, T: Sample, const BLOCK: u32>(op: O, lengths: &[usize])
where
    Threads<BLOCK>: Block,
{
    let data = samples(lengths.last().map_or(0, |&last| last), T::any);
    for &len in lengths {
        let data = &data[..len];
        let expected = shown(data.by(op).block::<BLOCK>().run());
        for count in [1, 2, 3, 7, 50] {
            let all = merged(op, parts::<O, T, BLOCK>(op, data, count), u64::from(count));
            let context = format!("{} of {len} {}, BLOCK {BLOCK}, in {count}", O::NAME, T::NAME);
            assert_eq!(shown(all.finish()), expected, "{context}");
            assert_eq!(all.missing(), None, "{context}");
        }
    }
}

#[test]
fn parts_have_the_bits_of_one_slice() {
    macro_rules! all {
        ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
            check::<_, f32, 64>(gpu_reduce::$op::default(), &[0, 1, 2049, 8193, 40_000]);
            check::<_, i8, 32>(gpu_reduce::$op::default(), &[0, 1, 257, 4097, 20_000]);
            check::<_, f64, 32>(gpu_reduce::$op::default(), &[1, 63, 513, 20_000]);
        )*};
    }
    for_each_operator! { all! {} }
    macro_rules! integers {
        ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
            check::<_, u16, 64>(gpu_reduce::$op::default(), &[0, 1, 5000, 40_000]);
        )*};
    }
    for_each_integer_operator! { integers! {} }
    check::<_, f32, 64>(CountWhere::new(Comparison::Less(0.25)), &[0, 1, 40_000]);
    check::<_, i32, 32>(SumWhere::new(Comparison::NotEqual(7)), &[0, 1, 40_000]);
    check::<_, f32, 128>(Var::new(1), &[1, 2, 100_000]);
    check::<_, f32, 128>((Sum, Min, Max), &[1, 1000, 100_000]);
    check::<_, f64, 64>((Mean, Std::new(1)), &[1, 1000, 100_000]);
}

#[test]
fn parts_of_every_type_and_block() {
    macro_rules! types {
        ({} $($type:ident: $($row:ident)*;)*) => {$(
            for_each_block!(|BLOCK| check::<_, $type, BLOCK>(Sum, &lengths::<$type, BLOCK>(100_000)));
        )*};
    }
    use gpu_reduce::{bf16, f16};
    for_each_element! { types! {} }
}

/// Long enough that each part has several chunks of several tiles, which several threads fold.
#[test]
fn long_parts() {
    check::<_, f32, 32>(Sum, &[(5 << 20) + 12_345]);
    check::<_, f64, 1024>(LogSumExp::default(), &[(2 << 20) + 1]);
    check::<_, f32, 256>(ArgMax, &[3 << 20]);
}

#[test]
fn parts_on_devices() {
    let data = samples(100_000, f32::any);
    let plan = Partial::<Var, f32, 64>::plan(100_000);
    for device in devices() {
        let mut all = Partial::<_, _, 64>::new(Var::new(1), 100_000, data[0]);
        for index in [2, 0, 1] {
            let range = plan.part(index, 3);
            let x = device.upload(&data[range.start as usize..range.end as usize]).unwrap();
            all.add(range.start, &x).unwrap();
        }
        assert_eq!(all.finish(), data.by(Var::new(1)).block::<64>().run(), "{device}");
        let other = device.upload(&[data[0] + 1.0; 64]).unwrap();
        let mut none = Partial::<_, _, 64>::new(Sum, 64, data[0]);
        assert!(matches!(none.add(0, &other), Err(Error::ReductionMismatch { what: "first element", .. })));
    }
}

/// Checks a part of elements on the emulator by several operators: its bits, and that no element is copied to
/// the CPU.
fn check_on_emulator<O: Op<f32>>(op: O) {
    let Ok(device) = Device::emulator() else { return eprintln!("skipped: no emulator") };
    let data = samples(20_000, f32::any);
    let range = Partial::<O, f32, 64>::plan(20_000).part(1, 2);
    let elements = &data[range.start as usize..range.end as usize];
    let buffer = device.upload(elements).unwrap();
    let part = || Partial::<_, _, 64>::new(op, 20_000, data[0]);
    let mut expected = part();
    expected.add(range.start, elements).unwrap();
    gpu_reduce::emulator::take_calls();
    let mut got = part();
    got.add(range.start, &buffer).unwrap();
    let calls = gpu_reduce::emulator::take_calls();
    assert!(calls.contains_key("cuLaunchKernel"), "{calls:?}");
    assert!(!calls.keys().any(|call| call.starts_with("cuMemcpy")), "{calls:?}");
    assert_eq!(got.to_bytes(), expected.to_bytes());
}

#[test]
fn several_operators_fold_on_the_device() {
    // There are kernels for all of them; for the last three; for each alone.
    check_on_emulator((Sum, Min, Max));
    check_on_emulator((Max, Sum, Min, Max));
    check_on_emulator((Max, Min, ArgMax));
}

/// An operator without kernels, and one with: the elements are copied for the former.
#[test]
fn elements_are_copied_for_an_operator_without_kernels() {
    let data = samples(20_000, f32::any);
    for device in devices() {
        let x = device.upload(&data).unwrap();
        let mut part = Partial::<_, _, 64>::new((Sum, Positive), 20_000, data[0]);
        part.add(0, &x).unwrap();
        assert_eq!(part.finish(), data.by((Sum, Positive)).block::<64>().run(), "{device}");
    }
}

/// Counts positive elements.
#[derive(Clone, Copy)]
struct Positive;

impl Op<f32> for Positive {
    const NAME: &'static str = "positive";
    type Accumulator = u64;
    type Output = u64;
    const EXACT: bool = true;

    fn identity(&self) -> u64 {
        0
    }
    fn lift(&self, element: f32, _: u64) -> u64 {
        u64::from(element > 0.0)
    }
    fn combine(&self, a: u64, b: u64) -> u64 {
        a + b
    }
    fn finish(&self, all: u64, _: u64) -> Option<u64> {
        Some(all)
    }
}

/// What a program writes itself: elements that are no numbers, and an operator that carries something.
#[derive(Clone, Copy, PartialEq, Debug, Pod, Zeroable)]
#[repr(C)]
struct Point {
    x: f64,
    y: f64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Within {
    radius: f64,
}

impl Op<Point> for Within {
    const NAME: &'static str = "within";
    type Accumulator = [u64; 2];
    type Output = u64;
    const EXACT: bool = true;

    fn parameters(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }
    fn identity(&self) -> [u64; 2] {
        [0; 2]
    }
    fn lift(&self, item: Point, index: u64) -> [u64; 2] {
        if item.x.hypot(item.y) < self.radius { [1, index] } else { [0, 0] }
    }
    fn combine(&self, a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
        [a[0] + b[0], a[1] + b[1]]
    }
    fn finish(&self, [count, places]: [u64; 2], _: u64) -> Option<u64> {
        Some(count ^ places << 20)
    }
}

#[test]
fn operators_and_elements_of_a_program() {
    let at = |i: u64| Point { x: f64::any(hash(i)), y: f64::any(hash(!i)) };
    let data: Vec<_> = (0..50_000).map(at).collect();
    let op = Within { radius: 0.25 };
    let all = merged(op, parts::<_, _, 32>(op, &data, 7), 1);
    assert_eq!(all.finish(), data.by(op).block::<32>().run());
    let bytes = all.to_bytes();
    let error = Partial::<_, Point, 32>::from_bytes(Within { radius: 0.5 }, &bytes).map(|_| ()).unwrap_err();
    let [found, expected] = ["0x000000000000d03f".into(), "0x000000000000e03f".into()];
    assert_eq!(error, Error::ReductionMismatch { what: "operator's parameters", found, expected });
}

#[test]
fn parts_of_a_plan_are_its_chunks() {
    for_each_block!(|BLOCK| {
        for len in lengths::<f32, BLOCK>(3_000_000).into_iter().chain([0, 1 << 40, usize::MAX]) {
            let plan = Plan::new(len as u64, 4, BLOCK);
            for count in [1, 2, 3, 7, 1000, 5000, u32::MAX] {
                let [mut end, mut shortest, mut longest] = [0, u64::MAX, 0];
                for index in (0..count.min(5000)).map(|index| plan.part(index, count)) {
                    assert_eq!(index.start, end);
                    end = index.end;
                    let chunks = (index.end - index.start).div_ceil(plan.chunk);
                    assert!(end.is_multiple_of(plan.chunk) || end == plan.len);
                    [shortest, longest] = [shortest.min(chunks), longest.max(chunks)];
                }
                assert!(count > 5000 || end == plan.len, "{len} in {count}");
                assert!(longest <= shortest + 1, "{len} in {count}: {shortest} {longest}");
            }
        }
    });
}

#[test]
fn what_is_missing_or_there_twice_is_told() {
    let data = samples(10_000, f32::any);
    let [one, two, three] = &parts::<_, _, 32>(Sum, &data, 3)[..] else { unreachable!() };
    let plan = Partial::<Sum, f32, 32>::plan(10_000);
    let mut all = Partial::<_, f32, 32>::new(Sum, 10_000, data[0]);
    let missing = |all: &Partial<Sum, f32, 32>| match all.finish().unwrap_err() {
        Error::Missing { start, end, len: 10_000 } => {
            assert_eq!(all.missing(), Some(start..end));
            start..end
        }
        other => panic!("{other}"),
    };
    assert_eq!(missing(&all), 0..10_000);
    all.merge(two.clone()).unwrap();
    assert_eq!(missing(&all), plan.part(0, 3));
    assert_eq!(
        all.finish().unwrap_err().to_string(),
        "elements 0..3456 of 10000 are missing: merge the partial result that has them"
    );
    all.merge(one.clone()).unwrap();
    assert_eq!(missing(&all), plan.part(2, 3));
    // A part that is there twice is refused, and the rest stays as it was.
    let before = all.to_bytes();
    let range = plan.part(0, 3);
    let twice = Error::Twice { start: 0, end: range.end, len: 10_000 };
    assert_eq!(all.merge(one.clone()), Err(twice.clone()));
    assert_eq!(all.add(0, &data[..range.end as usize]), Err(twice));
    let mut both = one.clone();
    both.merge(three.clone()).unwrap();
    assert!(matches!(all.merge(both), Err(Error::Twice { start: 0, .. })));
    let chunk = plan.chunk;
    assert_eq!(
        all.add(chunk, &data[chunk as usize..]).unwrap_err().to_string(),
        format!(
            "elements {chunk}..{} of 10000 are in two partial results: add each element to exactly one",
            plan.part(1, 3).end
        )
    );
    // Elements that are not whole chunks, or lie outside, are refused too.
    assert_eq!(
        all.add(1, &data[1..100]).unwrap_err().to_string(),
        format!(
            "elements 1..100 of 10000 are not whole chunks, which begin at multiples of {chunk}: use the \
             ranges of Plan::part"
        )
    );
    assert!(matches!(all.add(0, &data[..100]), Err(Error::Unchunked { start: 0, end: 100, .. })));
    assert!(matches!(all.add(0, &samples(10_001, f32::any)), Err(Error::OutOfBounds { end: 10_001, .. })));
    assert!(matches!(all.add(u64::MAX, &data), Err(Error::OutOfBounds { .. })));
    assert_eq!(all.add(5, &data[..0]), Ok(()));
    assert_eq!(all.to_bytes(), before);
    all.merge(three.clone()).unwrap();
    assert_eq!(all.finish(), data.reduce::<Sum, 32>());
    assert_eq!(shown(&all), r#"Partial { op: "sum", len: 10000, chunks: 27, of: 27 }"#);
    // Of no elements, none is missing.
    assert_eq!(Partial::<_, f32, 32>::new(Sum, 0, 5.0).finish(), Ok(0.0));
    assert_eq!(Partial::<_, f32, 32>::new(Max, 0, 5.0).finish(), Err(Error::EmptyInput { op: "max" }));
}

#[test]
fn parts_of_other_wholes_do_not_merge() {
    let mut all = Partial::<_, f32, 32>::new(Var::new(0), 1000, 1.5);
    let mut refused = |op, len, first| all.merge(Partial::new(op, len, first)).map_err(|why| why.to_string());
    assert_eq!(refused(Var::new(0), 1000, 1.5), Ok(()));
    assert_eq!(
        refused(Var::new(0), 1001, 1.5),
        Err("the partial result belongs to another reduction: length 1001, not 1000".into())
    );
    assert_eq!(
        refused(Var::new(0), 1000, 2.5),
        Err("the partial result belongs to another reduction: first element 0x00002040, not 0x0000c03f"
            .into())
    );
    assert_eq!(
        refused(Var::new(1), 1000, 1.5),
        Err("the partial result belongs to another reduction: operator's parameters \
             0x01000000000000000000000000000000, not 0x00000000000000000000000000000000"
            .into())
    );
    let mut whole = Partial::<_, f32, 32>::new(Sum, 3, 1.5);
    assert!(matches!(
        whole.add(0, &[-1.5, 0.0, 0.0]),
        Err(Error::ReductionMismatch { what: "first element", .. })
    ));
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    let mut sum = 14_695_981_039_346_656_037u64;
    for &byte in bytes {
        sum ^= u64::from(byte);
        sum = sum.wrapping_mul(1_099_511_628_211);
    }
    sum.to_le_bytes()
}

/// Corrects the number of bytes and the checksum.
fn seal(bytes: &mut [u8]) {
    let len = bytes.len();
    if len >= 28 {
        bytes[12..20].copy_from_slice(&(len as u64).to_le_bytes());
        let sum = checksum(&bytes[..len - 8]);
        bytes[len - 8..].copy_from_slice(&sum);
    }
}

/// The bytes, written again as the documentation describes them.
#[test]
fn the_bytes_are_those_of_the_documentation() {
    let data = samples(10_000, f32::any);
    let chunk = Partial::<Var, f32, 32>::plan(10_000).chunk as usize;
    assert_eq!(chunk, 384);
    let mut part = Partial::<_, f32, 32>::new((Sum, ArgMax), 10_000, data[0]);
    part.add(9 * 384, &data[9 * 384..10 * 384]).unwrap();
    part.add(3 * 384, &data[3 * 384..4 * 384]).unwrap();
    let mut expected = b"gpu_part\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    expected.extend(b"\x0b\0\0\0sum, argmax\0\0\0\0\x03\0\0\0f32");
    expected.extend(32u32.to_le_bytes());
    for number in [10_000u64, 128, 384] {
        expected.extend(number.to_le_bytes());
    }
    expected.extend([4, 0, 0, 0]);
    expected.extend(data[0].to_le_bytes());
    let size = size_of::<<(Sum, ArgMax) as Op<f32>>::Accumulator>() as u32;
    for number in [size, 2, 3, 9] {
        expected.extend(number.to_le_bytes());
    }
    // The sum of a chunk is that of its slice alone. It is the first bytes of the accumulator.
    let (head, sums) =
        (expected.len(), [3, 9].map(|chunk| data[chunk * 384..][..384].reduce::<Sum, 32>().unwrap()));
    expected.resize(head + 2 * size as usize + 8, 0);
    seal(&mut expected);
    let bytes = part.to_bytes();
    assert_eq!(bytes.len(), expected.len());
    assert_eq!(bytes[..head], expected[..head]);
    for (accumulator, sum) in bytes[head..].chunks_exact(size as usize).zip(sums) {
        assert_eq!(accumulator[..4], sum.to_le_bytes());
    }
    let mut sealed = bytes.clone();
    seal(&mut sealed);
    assert_eq!(sealed, bytes);
    assert_eq!(part.finish(), Err(Error::Missing { start: 0, end: 1152, len: 10_000 }));
}

/// A partial result of some chunks, as bytes.
fn some_bytes() -> Vec<u8> {
    let data = samples(10_000, f32::any);
    let [_, mut two, _, four, _] = <[_; 5]>::try_from(parts::<_, _, 32>(Sum, &data, 5)).unwrap();
    two.merge(four).unwrap();
    two.to_bytes()
}

fn read<O: Op<T>, T: Item, const BLOCK: u32>(op: O, bytes: &[u8]) -> Error
where
    Threads<BLOCK>: Block,
{
    Partial::<O, T, BLOCK>::from_bytes(op, bytes).map(|_| ()).unwrap_err()
}

#[test]
fn bytes_of_other_reductions_are_refused() {
    let bytes = some_bytes();
    let other = |error: Error| match error {
        Error::ReductionMismatch { what, found, expected } => [what.into(), found, expected].join(" "),
        other => panic!("{other}"),
    };
    assert!(Partial::<_, f32, 32>::from_bytes(Sum, &bytes).is_ok());
    assert_eq!(other(read::<_, f32, 32>(Max, &bytes)), "operator sum max");
    assert_eq!(other(read::<_, f32, 32>((Sum, Min), &bytes)), "operator sum sum, min");
    assert_eq!(other(read::<_, i32, 32>(Sum, &bytes)), "elements' type f32 i32");
    assert_eq!(other(read::<_, f32, 64>(Sum, &bytes)), "BLOCK 32 64");
    let of_var = Partial::<_, f32, 32>::new(Var::new(1), 10, 0.5).to_bytes();
    assert!(other(read::<_, f32, 32>(Var::new(0), &of_var)).starts_with("operator's parameters 0x01"));
    // From another version of the library with another plan: the chunk's length stands before the first
    // element.
    let mut replanned = bytes.clone();
    let chunk = 8 + 4 + 8 + 4 + 3 + 4 + 4 + 3 + 4 + 8 + 8;
    replanned[chunk] ^= 1;
    seal(&mut replanned);
    assert_eq!(
        other(read::<_, f32, 32>(Sum, &replanned)),
        "plan of rows of 128 elements and chunks of 385 of rows of 128 elements and chunks of 384"
    );
}

#[test]
fn bytes_that_are_no_part_are_refused() {
    let bytes = some_bytes();
    let why = |bytes: &[u8]| match read::<_, f32, 32>(Sum, bytes) {
        Error::BadPartial(why) => why,
        other => panic!("{other}"),
    };
    assert_eq!(why(b""), "they do not begin with `gpu_part`");
    assert_eq!(why(b"\x93NUMPY\x01\0v\0{'descr'"), "they do not begin with `gpu_part`");
    let changed = |at: usize, to: u8, sealed| {
        let mut changed = bytes.clone();
        changed[at] = to;
        if sealed {
            seal(&mut changed);
        }
        changed
    };
    assert_eq!(why(&changed(8, 2, true)), "they are of version 2 of the form, and this library reads 1");
    for len in 8..bytes.len() {
        why(&bytes[..len]);
        let mut cut = bytes[..len].to_vec();
        seal(&mut cut);
        why(&cut);
    }
    assert_eq!(
        why(&bytes[..bytes.len() - 1]),
        format!("they are {}, and say that they are {}", bytes.len() - 1, bytes.len())
    );
    let mut longer = [&bytes[..], b"!"].concat();
    assert_eq!(why(&longer), format!("they are {}, and say that they are {}", bytes.len() + 1, bytes.len()));
    seal(&mut longer);
    assert_eq!(why(&longer), "1 are left after the last chunk");
    for (at, byte) in bytes.iter().enumerate().skip(20) {
        for bit in 0..8 {
            assert_eq!(
                why(&changed(at, byte ^ 1 << bit, false)),
                "their checksum is wrong: they were changed on their way"
            );
        }
    }
    // 10 of 27 chunks: 5..10 and 16..21.
    let count = bytes.len() - 8 - 10 * 8 - 4;
    assert_eq!(bytes[count..count + 8], [10, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!(why(&changed(count, 9, true)), "8 are left after the last chunk");
    assert_eq!(why(&changed(count, 11, true)), "they are cut off");
    assert_eq!(why(&changed(count + 3, 255, true)), "they have 4278190090 chunks of 27");
    assert_eq!(
        why(&changed(count + 4, 6, true)),
        "a chunk of theirs is 6, which has to be from 7 to below 27"
    );
    assert_eq!(
        why(&changed(count + 4 + 4 * 9, 27, true)),
        "a chunk of theirs is 27, which has to be from 20 to below 27"
    );
    // The bytes of an element that its type does not allow.
    let mut of_flags = Partial::<_, bool, 32>::new(AnyOf, 3, true);
    of_flags.add(0, &[true, false, true]).unwrap();
    let mut of_flags = of_flags.to_bytes();
    assert_eq!(Partial::<_, bool, 32>::from_bytes(AnyOf, &of_flags).unwrap().finish(), Ok(true));
    let first = of_flags.iter().rposition(|&byte| byte == 1).unwrap();
    let first = first - 4 - 4 - 4 - 1;
    assert_eq!(of_flags[first - 4..=first], [1, 0, 0, 0, 1]);
    of_flags[first] = 2;
    seal(&mut of_flags);
    assert_eq!(
        read::<_, bool, 32>(AnyOf, &of_flags),
        Error::BadPartial("their first element, 0x02, is none of its type".into())
    );
    // A whole of no elements has no first element.
    let mut none = Partial::<_, u8, 32>::new(Sum, 0, 7).to_bytes();
    let first = none.len() - 8 - 8 - 1;
    none[first] = 7;
    seal(&mut none);
    assert_eq!(read::<_, u8, 32>(Sum, &none), Error::BadPartial("they have a first element of none".into()));
}

/// Whether any element is true, over `bool`, of which most bytes are invalid.
#[derive(Clone, Copy, Default)]
struct AnyOf;

impl Op<bool> for AnyOf {
    const NAME: &'static str = "any_of";
    type Accumulator = u8;
    type Output = bool;
    const EXACT: bool = true;

    fn identity(&self) -> u8 {
        0
    }
    fn lift(&self, item: bool, _: u64) -> u8 {
        item.into()
    }
    fn combine(&self, a: u8, b: u8) -> u8 {
        a | b
    }
    fn finish(&self, all: u8, _: u64) -> Option<bool> {
        Some(all != 0)
    }
}

#[test]
fn parts_are_serialised() {
    let data = samples(10_000, f64::any);
    let [one, two] = <[_; 2]>::try_from(parts::<_, _, 64>(Mean, &data, 2)).unwrap();
    let text = serde_json::to_string(&[one, two]).unwrap();
    let [mut one, two]: [Partial<Mean, f64, 64>; 2] = serde_json::from_str(&text).unwrap();
    one.merge(two).unwrap();
    assert_eq!(one.finish(), data.reduce::<Mean, 64>());
    let of_max = serde_json::from_str::<[Partial<Max, f64, 64>; 2]>(&text).unwrap_err().to_string();
    assert!(of_max.contains("operator mean, not max"), "{of_max}");
    let of_sample = serde_json::to_string(&Partial::<_, f64, 64>::new(Var::new(1), 5, 0.0)).unwrap();
    let error = serde_json::from_str::<Partial<Var, f64, 64>>(&of_sample).unwrap_err().to_string();
    assert!(error.contains("operator's parameters"), "{error}");
    assert!(serde_json::from_str::<Partial<Mean, f64, 64>>("[1, 2, 300]").is_err());
    assert!(serde_json::from_str::<Partial<Mean, f64, 64>>("7").is_err());
}

/// The allocator of this whole program. It counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no count any more.
        let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + layout.size()));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(place, layout) }
    }

    // The defaults would clear or copy themselves, which would slow other tests down.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + layout.size()));
        // SAFETY: as the caller vouches.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + size));
        // SAFETY: as the caller vouches.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Reads any bytes. Accepted ones are written back the same, and reading allocates no more than a few times
/// their size.
fn fuzz<O: Op<T>, T: Item, const BLOCK: u32>(op: O, bytes: &[u8]) -> bool
where
    Threads<BLOCK>: Block,
{
    let before = ALLOCATED.get();
    let read = Partial::<O, T, BLOCK>::from_bytes(op, bytes);
    let allocated = ALLOCATED.get() - before;
    assert!(allocated <= 8 * bytes.len() + 1024, "{allocated} for {}", bytes.len());
    match read {
        Ok(part) => {
            assert_eq!(part.to_bytes(), bytes);
            let _ = part.finish();
            true
        }
        Err(Error::BadPartial(_) | Error::ReductionMismatch { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

#[derive(Clone, Debug)]
enum Mutation {
    Set(Index, u8),
    Number(Index, u32),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
    Copy(Index, Index, usize),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let at = any::<Index>;
    let number = prop_oneof![any::<u32>(), 0..50u32, (0..4u32).prop_map(|below| u32::MAX - below)];
    let mutation = prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (at(), number).prop_map(|(at, number)| Mutation::Number(at, number)),
        (at(), 1..40usize).prop_map(|(at, count)| Mutation::Remove(at, count)),
        (at(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (at(), at(), 1..20usize).prop_map(|(from, to, count)| Mutation::Copy(from, to, count)),
    ];
    prop::collection::vec(mutation, 0..4)
}

fn mutated(mut bytes: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        if bytes.is_empty() {
            break;
        }
        let len = bytes.len();
        let within = |at: &Index, count: usize| at.index(len)..len.min(at.index(len) + count);
        match mutation {
            Mutation::Set(at, byte) => bytes[at.index(len)] = *byte,
            Mutation::Number(at, number) => {
                let range = within(at, 4);
                let number = &number.to_le_bytes()[..range.len()];
                bytes[range].copy_from_slice(number);
            }
            Mutation::Remove(at, count) => drop(bytes.drain(within(at, *count))),
            Mutation::Insert(at, more) => {
                drop(bytes.splice(at.index(len)..at.index(len), more.iter().copied()))
            }
            Mutation::Copy(from, to, count) => {
                let copy = bytes[within(from, *count)].to_vec();
                let range = within(to, copy.len());
                bytes[range.clone()].copy_from_slice(&copy[..range.len()]);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(support::cases(500))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), head: bool) {
        let mut bytes = if head { [b"gpu_part\x01\0\0\0\0\0\0\0\0\0\0\0", &bytes[..]].concat() } else { bytes };
        fuzz::<_, f32, 32>(Sum, &bytes);
        seal(&mut bytes);
        fuzz::<_, f32, 32>(Sum, &bytes);
    }

    #[test]
    fn mutated_bytes_are_read_or_refused(mutations in mutations(), count in 1..6u32, which in any::<Index>()) {
        let data = samples(10_000, f32::any);
        let index = which.index(count as usize);
        let bytes = parts::<_, _, 32>(Var::new(1), &data, count)[index].to_bytes();
        prop_assert!(fuzz::<_, f32, 32>(Var::new(1), &bytes));
        let mut changed = mutated(bytes.clone(), &mutations);
        prop_assert_eq!(fuzz::<_, f32, 32>(Var::new(1), &changed), changed == bytes);
        seal(&mut changed);
        fuzz::<_, f32, 32>(Var::new(1), &changed);
        fuzz::<_, bool, 32>(AnyOf, &changed);
        fuzz::<_, f32, 64>(ExactSum, &changed);
    }

    #[test]
    fn parts_go_by_way_of_bytes(len in 0..30_000usize, count in 1..9u32, seed: u64) {
        let data = samples(len, f64::any);
        let ops = (Sum, Min);
        let all = merged(ops, parts::<_, _, 32>(ops, &data, count), seed);
        prop_assert_eq!(all.finish(), data.reduce::<(Sum, Min), 32>());
    }
}

/// All integer types, and a device that no call is made of, because a partial result needs none.
#[test]
fn parts_of_few_elements() {
    macro_rules! types {
        ({} $($type:ident: $($row:ident)*;)*) => {$(
            let mut part = Partial::<_, $type, 1024>::new(Sum, 3, 1);
            part.add(0, &Device::cpu().upload(&[1, 2, 3]).unwrap()).unwrap();
            assert_eq!(part.finish(), Ok(6));
        )*};
    }
    for_each_integer! { types! {} }
}
