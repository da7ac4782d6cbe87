//! Many reductions at once: each segment and row has the bits of reducing its slice alone, on every device.

use gpu_reduce::{
    ArgMax, ArgMin, Block, Buffer, Cosine, Device, DistanceL1, DistanceSquared, Dot, Error, ExactDot, Item,
    LogSumExp, Max, Mean, Min, MinMax, NanMean, NanVar, NormL2, Op, Parameterless, Plan, Prod, Reduce, Sum,
    SumSq, Threads, Var, WeightedMean, bf16, f16, width,
};
use support::{
    Sample, checks, devices, for_each_block, has_turn, hash, is_of_part, is_taken, longest, samples,
};

/// Lengths around the boundaries between ways of folding: items, leaves, what a warp folds at a time, rows,
/// and chunks.
fn lengths(row: usize, most: usize) -> Vec<usize> {
    let boundaries = [64, 128, 256, 512, 1024, row, 2 * row, 8 * row, 9 * row, 33 * row]
        .map(|len| [len - 1, len, len + 1]);
    (0..36).chain(boundaries.into_iter().flatten()).filter(|&len| len <= most).collect()
}

/// Offsets of segments of these lengths in a mixed order, with `short` short segments between them, and empty
/// segments at the start, at the end, and several in a row.
fn offsets(lengths: &[usize], short: u64) -> Vec<u64> {
    let mut lengths = lengths.to_vec();
    lengths
        .extend((0..short).map(|index| (hash(index) % [3, 12, 70][(3 * index / short) as usize]) as usize));
    lengths.sort_by_key(|&len| hash(len as u64 ^ 77));
    let mut offsets = vec![3, 3, 3];
    for (index, len) in lengths.iter().enumerate() {
        let last = offsets[offsets.len() - 1] + *len as u64;
        offsets.push(last);
        if index % 40 == 7 {
            offsets.extend([last; 2]);
        }
    }
    offsets.push(offsets[offsets.len() - 1]);
    offsets
}

/// Panics unless each result has the bits of its slice alone.
fn compare<R: Item + std::fmt::Debug>(case: &str, got: Result<Buffer<R>, Error>, alone: &[String]) {
    let got = got.unwrap_or_else(|error| panic!("{case}: {error}")).to_vec().unwrap();
    assert_eq!(got.len(), alone.len(), "{case}");
    for (index, (got, alone)) in got.iter().zip(alone).enumerate() {
        // Compares as text, in which NaNs are equal and zeros of different signs are not.
        assert_eq!(&format!("{got:?}"), alone, "{case}, segment {index}");
    }
}

fn check<O: Op<T, Output: Item>, T: Sample>(op: O) {
    // Items of rows.
    let most = longest(100_000);
    for_each_block!(|BLOCK| {
        let row = Plan::new(1, width::<O, T>(size_of::<T>()), BLOCK).row as usize;
        // With one BLOCK so many segments that the short ones are listed.
        let offsets = offsets(&lengths(row, 20_000), if BLOCK == 128 { 12_000 } else { 700 });
        let short: Vec<u32> = offsets.iter().map(|&offset| offset as u32).collect();
        let len = offsets[offsets.len() - 1] as usize + 5;
        let host = samples(len, T::any);
        let default: O::Output = bytemuck::Zeroable::zeroed();
        let alone = |range: std::ops::Range<usize>| {
            format!("{:?}", host[range].by(op).block::<BLOCK>().run().unwrap_or(default))
        };
        let of_segments: Vec<String> =
            offsets.windows(2).map(|ends| alone(ends[0] as usize..ends[1] as usize)).collect();
        for device in devices() {
            let case = format!("{} of {} with BLOCK {BLOCK} on {device}", O::NAME, T::NAME);
            let x = device.upload(&host).unwrap();
            compare(
                &case,
                x.segments(&offsets).unwrap().by(op).or(default).block::<BLOCK>().run(),
                &of_segments,
            );
            // Few segments, each of which has a block for each chunk that it may have.
            let few = &offsets[..40];
            let first = x.slice(..few[39] as usize).unwrap();
            let got = first.segments(few).unwrap().by(op).or(default).block::<BLOCK>().run();
            compare(&format!("{case}, few"), got, &of_segments[..39]);
            let on_device = device.upload(&short).unwrap();
            compare(
                &case,
                x.segments(&on_device).unwrap().by(op).or(default).block::<BLOCK>().run(),
                &of_segments,
            );
            let columns = [1, 3, 8, 77, 129, 300, 600, 1_025, 3_000, 9_000].into_iter().enumerate();
            let turn = O::NAME.len() + size_of::<T>() + BLOCK.ilog2() as usize;
            for (_, columns) in columns.filter(|(index, _)| is_taken(index + turn)) {
                let items = (len.min(most) / columns).min(2_000) * columns;
                // Half of them begin aligned.
                let first = columns % 2;
                let rows: Vec<String> = (0..items / columns)
                    .map(|row| alone(row * columns + first..(row + 1) * columns + first))
                    .collect();
                let Ok(x) = x.slice(first..items + first) else { continue };
                let got = x.rows(columns).unwrap().by(op).block::<BLOCK>().run();
                compare(&format!("{case}, rows of {columns}"), got, &rows);
            }
        }
    });
}

checks! {
    check
    sums_of_floats: Sum, f16 bf16 f32 f64;
    sums_of_integers: Sum, i8 u16 i32 u64;
    products: Prod, f64 i16;
    squares: SumSq, f32 u8;
    minima: Min, f32 i8 f16;
    maxima: Max, bf16 u32;
    places_of_minima: ArgMin, f32 i64;
    places_of_maxima: ArgMax, f64 u8;
    means: Mean, f32 i32;
    variances: Var, f32 f64 u16;
    others: LogSumExp, f32;
    more_others: NanVar, f64;
}

/// Values whose exponentials exceed `f64`, alternately below and above the first value of their segment.
fn check_far_apart<T: Sample, const BLOCK: u32>(from: impl Fn(f64) -> T)
where
    Threads<BLOCK>: Block,
{
    if !has_turn(size_of::<T>() / 2) {
        return;
    }
    const VALUES: [f64; 12] =
        [0.0, -650.0, 600.1, -600.1, 5e5, -5e5, 1e9, -1e9, 3e9, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let mut offsets = vec![0u32];
    let mut host = Vec::new();
    for most in 1..=VALUES.len() {
        for len in [1, 2, 3, 5, 33, 129, 1_025, 2_600] {
            host.extend((0..len).map(|item| {
                let hash = hash(item + 1_000 * most as u64);
                from(VALUES[hash as usize % most] + (hash >> 32) as f64 * 2f64.powi(-30))
            }));
            offsets.push(host.len() as u32);
        }
    }
    let alone = |items: &[T]| format!("{:?}", items.reduce::<LogSumExp, BLOCK>().unwrap());
    let of_segments: Vec<String> =
        offsets.windows(2).map(|ends| alone(&host[ends[0] as usize..ends[1] as usize])).collect();
    let of_columns: Vec<String> = (0..3)
        .map(|column| alone(&host[column..].iter().step_by(3).take(2_000).copied().collect::<Vec<T>>()))
        .collect();
    for device in devices() {
        let x = device.upload(&host).unwrap();
        let case = format!("{} on {device}", T::NAME);
        compare(&case, x.segments(&offsets).unwrap().reduce::<LogSumExp, BLOCK>(), &of_segments);
        let columns = x.slice(..6_000).unwrap();
        compare(&case, columns.columns(3).unwrap().reduce::<LogSumExp, BLOCK>(), &of_columns);
        // On a GPU there are enough rows for the kernel in which a warp folds whole rows.
        let (host, most) =
            if device.is_emulator() { (host.clone(), 6_000) } else { (host.repeat(32), 1 << 30) };
        let x = device.upload(&host).unwrap();
        for len in [1, 3, 9, 33, 300, 601, 1_500, 9_001] {
            let count = (most / len).clamp(1, host.len() / len);
            let of_rows: Vec<String> = host.chunks(len).take(count).map(alone).collect();
            let rows = x.slice(..count * len).unwrap();
            let case = format!("{case}, rows of {len}");
            compare(&case, rows.rows(len).unwrap().reduce::<LogSumExp, BLOCK>(), &of_rows);
        }
    }
}

#[test]
fn exponentials_far_apart() {
    check_far_apart::<_, 32>(|value| value as f32);
    check_far_apart::<_, 256>(|value| value as f32);
    check_far_apart::<_, 64>(|value| value);
    check_far_apart::<_, 256>(|value| value);
    check_far_apart::<_, 64>(f16::from_f64);
}

/// So many segments that a block has whole segments of several chunks.
#[test]
fn long_segments_within_a_block() {
    let offsets: Vec<u32> = (0..1000u32)
        .scan(0, |end, index| {
            let start = *end;
            *end += 1_100 + hash(index.into()) as u32 % 2_500;
            Some(start)
        })
        .collect();
    let host = samples(offsets[offsets.len() - 1] as usize, f32::any);
    for device in devices() {
        let x = device.upload(&host).unwrap();
        fn alone<const BLOCK: u32>(host: &[f32], offsets: &[u32]) -> Vec<String>
        where
            Threads<BLOCK>: Block,
        {
            let sums = offsets
                .windows(2)
                .map(|ends| host[ends[0] as usize..ends[1] as usize].reduce::<Sum, BLOCK>());
            sums.map(|sum| format!("{:?}", sum.unwrap())).collect()
        }
        let segments = x.segments(&offsets).unwrap();
        compare("of a row", segments.reduce::<Sum, 1024>(), &alone::<1024>(&host, &offsets));
        compare("of many chunks", segments.reduce::<Sum, 32>(), &alone::<32>(&host, &offsets));
    }
}

#[test]
fn one_segment() {
    let host = samples(700_001, f32::any);
    for device in devices() {
        let x = device.upload(&host).unwrap();
        let case = format!("on {device}");
        for start in [0, 1] {
            let sum = format!("{:?}", host[start..].reduce::<Sum, 64>().unwrap());
            let ends = [start as u64, 700_001];
            compare(&case, x.segments(&ends).unwrap().reduce::<Sum, 64>(), std::slice::from_ref(&sum));
            let x = x.slice(start..).unwrap();
            compare(&case, x.rows(700_001 - start).unwrap().reduce::<Sum, 64>(), &[sum]);
        }
    }
}

/// Segments so long that they have as many chunks as `max_chunks` allows: each gets a block for each of its
/// chunks. The emulator has one such segment; a GPU also has several, with empty and short segments between
/// them.
#[test]
fn few_long_segments() {
    let host = samples(1_100_005, f64::any);
    let alone = |range: &[f64]| format!("{:?}", range.reduce::<Var, 32>().unwrap());
    for device in devices() {
        let x = device.upload(&host).unwrap();
        let got = x.segments(&[4u32, 1_100_004]).unwrap().reduce::<Var, 32>();
        compare(&format!("on {device}"), got, &[alone(&host[4..1_100_004])]);
    }
    let Some(gpu) = support::gpu() else { return };
    let host = samples(40_000_000, f32::any);
    let x = gpu.upload(&host).unwrap();
    for offsets in [
        vec![0u64, 40_000_000],
        vec![1, 1, 13_333_333, 13_333_340, 39_999_999],
        vec![3, 20_000_001, 40_000_000],
    ] {
        let alone: Vec<String> = offsets
            .windows(2)
            .map(|ends| {
                format!("{:?}", host[ends[0] as usize..ends[1] as usize].reduce::<Sum, 256>().unwrap())
            })
            .collect();
        compare("long", x.segments(&offsets).unwrap().reduce::<Sum, 256>(), &alone);
        let on_device = gpu.upload(&offsets).unwrap();
        compare("long, offsets on the device", x.segments(&on_device).unwrap().reduce::<Sum, 256>(), &alone);
    }
}

/// Compares rows with their slices reduced alone, for each length `count_of(length)` rows, the first of which begins at item
/// `first` of the array. The emulator runs the first length only, in CI of a sixth of the operators and types.
fn check_many<O: Op<T, Output: Item> + Parameterless, T: Sample>(
    lengths: &[usize],
    count_of: impl Fn(usize) -> usize,
    first: usize,
) {
    for device in devices() {
        if device.is_emulator() && !is_of_part(O::NAME.len() + size_of::<T>() + lengths[0]) {
            continue;
        }
        let lengths = if device.is_emulator() { &lengths[..1] } else { lengths };
        for &len in lengths {
            check_rows::<O, T>(&device, [count_of(len), len], first);
        }
    }
}

/// Compares `count` rows of `len` items, the first of which begins at item `first` of an array, with their slices reduced alone.
fn check_rows<O: Op<T, Output: Item> + Parameterless, T: Sample>(
    device: &Device,
    [count, len]: [usize; 2],
    first: usize,
) {
    let host = samples(first + count * len, T::any);
    let alone = host[first..].rows(len).unwrap().reduce::<O, 256>().unwrap().to_vec().unwrap();
    let alone: Vec<_> = alone.iter().map(|value| format!("{value:?}")).collect();
    let x = device.upload(&host).unwrap();
    let case = format!("{} of {count} rows of {len} {} from item {first} on, {device}", O::NAME, T::NAME);
    compare(&case, x.slice(first..).unwrap().rows(len).unwrap().reduce::<O, 256>(), &alone);
}

/// So many rows that warps fold each of them whole if that is faster: of one row of the plan, of several, and of several
/// chunks, aligned and not. (The first lengths are such that each sixth of CI takes two or three.)
#[test]
fn many_long_rows() {
    fn check<O: Op<T, Output: Item> + Parameterless, T: Sample>(lengths: &[usize]) {
        check_many::<O, T>(lengths, |_| 2200, 0);
    }
    check::<Sum, f32>(&[515, 516, 777, 1024, 3_001, 9_000, 9_217, 16_384]);
    check::<Sum, f16>(&[
        1_031, 2_051, 1_027, 1_032, 1_500, 2_048, 4_000, 5_001, 6_000, 8_190, 17_000, 33_000,
    ]);
    check::<Var, f32>(&[998, 515, 1_024, 1_500, 2_500, 3_071, 4_001, 5_003, 8_000, 9_001, 11_000]);
    check::<Var, f16>(&[1_034, 1_600, 2_048, 4_000, 5_000, 5_003, 6_001]);
    check::<Var, f64>(&[261, 515, 1_500, 2_000, 2_501]);
    check::<NanMean, f32>(&[1_027, 2_051, 4_001, 6_000, 8_190]);
    check::<LogSumExp, f32>(&[514, 1_500, 3_001]);
    check::<Mean, f64>(&[301, 511, 512, 6_001]);
    check::<NormL2, f32>(&[519, 1_477, 1_024, 3_000, 11_222]);
    check::<ArgMax, f32>(&[1_028, 1_300, 515, 1_024, 2_048, 3_001, 4_096, 9_000, 50_001]);
    check::<Max, f16>(&[1_029, 1_504, 4_000, 4_096, 10_000, 10_001]);
    check::<Max, f32>(&[1_029, 1_024, 3_001, 9_001]);
    check::<Sum, i32>(&[1_024, 1_477, 3_001, 4_096, 9_217]);
    check::<Sum, u8>(&[2_051, 2_064, 5_008, 8_191, 8_192, 20_000, 65_536]);
}

/// Rows that several warps share, of four kinds: fewer rows than warps; variances of unaligned rows; rows of narrow items with three
/// rows of the plan; and as many rows as leave a quarter of the warps without one. The emulator runs the last two kinds with fewer
/// rows, each of which one warp folds.
#[test]
fn rows_in_parts() {
    fn check<O: Op<T, Output: Item> + Parameterless, T: Sample>(lengths: &[usize]) {
        check_many::<O, T>(lengths, |_| 140, 0);
    }
    check::<ArgMax, f32>(&[9_217, 9_220, 20_001, 40_000, 70_001, 262_144, 300_001]);
    check::<ArgMin, f64>(&[4_609, 20_000, 20_001, 70_001]);
    check::<ArgMax, f16>(&[18_433, 70_001, 150_001]);
    check::<MinMax, f64>(&[4_610, 40_000, 150_001]);
    check::<Var, f32>(&[9_221, 20_001, 40_001, 65_536, 70_000, 70_001]);
    check::<Var, f16>(&[33_000, 40_001, 70_000, 70_001]);
    check::<Max, f16>(&[18_435, 70_001]);
    check::<MinMax, f16>(&[18_439, 70_001]);
    check::<Sum, u8>(&[36_867, 70_001, 150_001]);
    check_many::<Sum, f16>(&[4_099, 5_001], |len| if len == 4_099 { 300 } else { 8_500 }, 0);
    check_many::<Var, f16>(&[18_433, 20_001], |len| if len == 18_433 { 70 } else { 2_200 }, 0);
}

/// Rows of 9 to 64 lines; a chunk has one line or two. Each of 66 rows of up to 32 lines has a block. Of 1,600 rows, only rows of whole
/// lines have one each; the emulator runs 66 of these. Of more than 32 lines, variances of 300 rows have one each; the emulator runs 66.
#[test]
fn rows_of_a_block_each() {
    fn check<O: Op<T, Output: Item> + Parameterless, T: Sample>(lengths: &[usize]) {
        check_many::<O, T>(lengths, |_| 66, 0);
    }
    check::<Sum, f32>(&[9_217, 12_288, 16_384, 16_385, 30_001, 32_768]);
    check::<Sum, f64>(&[4_609, 8_192, 10_001]);
    check::<Sum, i32>(&[9_221, 16_384, 20_003]);
    check::<Max, f32>(&[9_218, 16_384, 25_001]);
    check::<NormL2, f32>(&[9_219, 16_384, 32_767]);
    check::<Var, f32>(&[9_220, 10_485, 16_384, 20_000, 32_768]);
    check_many::<Var, f32>(&[33_001, 40_000, 51_593, 65_536], |len| if len == 33_001 { 66 } else { 300 }, 0);
    check_many::<Sum, f32>(&[12_288, 16_384, 16_388], |len| if len == 12_288 { 66 } else { 1_600 }, 0);
    check_many::<Sum, f32>(&[10_240], |_| 66, 1);
}

/// So few short rows that a lane has one leaf of a row, or up to four items that lie apart: aligned and not.
#[test]
fn few_short_rows() {
    fn check<O: Op<T, Output: Item> + Parameterless, T: Sample>() {
        for device in devices() {
            if device.is_emulator() && !is_of_part(O::NAME.len() + size_of::<T>()) {
                continue;
            }
            for len in [1, 3, 4, 5, 16, 17, 31, 64, 65, 127, 128, 129, 300, 512] {
                for (count, first) in [(1, 1), (7, 0), (90, 3), (600, 1)] {
                    check_rows::<O, T>(&device, [count, len], first);
                }
            }
        }
    }
    check::<Sum, u8>();
    check::<Sum, i16>();
    check::<SumSq, i32>();
    check::<Sum, f16>();
    check::<Sum, f32>();
    check::<Max, f64>();
    check::<ArgMax, f32>();
    check::<ArgMin, u8>();
    check::<Var, f32>();
}

/// So many short rows that blocks fold them, a row by each group of warps: aligned and not.
#[test]
fn many_short_rows() {
    fn check<O: Op<T, Output: Item> + Parameterless, T: Sample>(lengths: &[usize]) {
        check_many::<O, T>(lengths, |len| (8 << 20) / size_of::<T>() / len + 3, 0);
    }
    check::<Sum, f32>(&[131, 129, 132, 150, 257, 291, 300, 511, 512]);
    check::<Sum, f16>(&[300, 265, 272, 513, 777, 1_000, 1_024]);
    check::<Sum, f64>(&[67, 66, 100, 101, 256]);
    check::<NormL2, f32>(&[291, 132, 300, 512]);
    check::<Max, f32>(&[150, 129, 200, 291]);
    check::<Sum, u16>(&[400, 272, 1_024]);
    check::<ArgMax, f32>(&[300, 260, 404, 512]);
}

/// Rows of whole leaves in a slice that begins within one, so that none is a single access.
#[test]
fn many_rows_of_an_unaligned_slice() {
    check_many::<Sum, f32>(&[600], |_| 2_200, 1);
    check_many::<Sum, f64>(&[100], |_| 10_500, 1);
    check_many::<Sum, u8>(&[2_064], |_| 2_200, 1);
    check_many::<Max, f16>(&[1_032], |_| 2_200, 1);
    check_many::<ArgMax, f32>(&[516], |_| 2_200, 1);
}

/// Compares segments by offsets of an array with `rest` items after the last one, also after a launch that bad offsets have failed.
fn check_between<O: Op<T, Output: Item> + Parameterless, T: Sample, const BLOCK: u32>(
    case: &str,
    offsets: &[u64],
    rest: u64,
) where
    Threads<BLOCK>: Block,
{
    let host = samples((offsets[offsets.len() - 1] + rest) as usize, T::any);
    let default: O::Output = bytemuck::Zeroable::zeroed();
    let alone: Vec<_> = offsets
        .windows(2)
        .map(|ends| &host[ends[0] as usize..ends[1] as usize])
        .map(|items| format!("{:?}", items.reduce::<O, BLOCK>().unwrap_or(default)))
        .collect();
    let mut wrong = offsets.to_vec();
    wrong.swap(50, 52);
    for device in devices() {
        let x = device.upload(&host).unwrap();
        let case = format!("{} of {} {case}, {device}", O::NAME, T::NAME);
        let reduce = |offsets: &[u64]| {
            let offsets = device.upload(offsets)?;
            x.segments(&offsets)?.by(O::default()).or(default).block::<BLOCK>().run()
        };
        compare(&case, reduce(offsets), &alone);
        // Partial results that the failed launch has left behind do not change the next launch's results.
        assert!(matches!(reduce(&wrong), Err(Error::BadOffset { .. })), "{case}");
        compare(&case, reduce(offsets), &alone);
    }
}

/// More segments than a GPU has warps, so that short ones are listed. Some operators have leaves of several segments in flight in a lane.
/// With the others, a lane has neighbouring leaves or neighbouring lanes have them, and leaves begin with the segment or at a boundary of
/// 16 bytes. The segments have up to 131 leaves. With BLOCK 32, segments of more than 32 leaves are not short.
#[test]
fn many_short_segments() {
    fn check<O: Op<T, Output: Item> + Parameterless, T: Sample, const BLOCK: u32>()
    where
        Threads<BLOCK>: Block,
    {
        if !has_turn(O::NAME.len() + size_of::<T>() + BLOCK as usize / 32) {
            return;
        }
        let width = width::<O, T>(size_of::<T>()) as u64;
        let mut offsets = vec![1];
        for index in 0..5_000 {
            let leaves = hash(index / 6) % (1 << (1 + index % 6));
            let len = match index {
                500 | 501 => 131 * width,
                _ if index.is_multiple_of(50) => 0,
                // All leaves of some neighbouring segments are whole and aligned.
                600..650 => 32 * width,
                _ => leaves * width + hash(index) % width,
            };
            let last = offsets[offsets.len() - 1];
            offsets.push(if index == 599 { (last + len).next_multiple_of(width) } else { last + len });
        }
        // Some of the longest short ones.
        for leaves in [65, 100, 127, 128, 129] {
            offsets.push(offsets[offsets.len() - 1] + leaves * width);
            offsets.push(offsets[offsets.len() - 1] + leaves * width - 1);
        }
        check_between::<O, T, BLOCK>(&format!("of few leaves with BLOCK {BLOCK}"), &offsets, 40);
    }
    check::<Var, f32, 256>();
    check::<Var, f32, 32>();
    check::<Var, f64, 128>();
    check::<Var, f16, 256>();
    check::<Var, u8, 64>();
    check::<LogSumExp, f32, 256>();
    check::<NanMean, f32, 128>();
    check::<NanMean, f16, 32>();
    check::<NormL2, f32, 256>();
    check::<NormL2, f16, 128>();
    check::<Sum, f32, 256>();
    check::<Sum, f16, 128>();
    check::<Sum, f64, 64>();
    check::<Sum, u8, 256>();
    check::<Sum, i64, 128>();
    check::<Max, f16, 256>();
    check::<Max, f32, 32>();
    check::<ArgMax, f32, 256>();
    check::<ArgMax, u8, 128>();
    check::<MinMax, f64, 64>();
}

/// Batches of 256 short segments, all of one class, all but one, or of two classes. A warp has such batches only of more than a million
/// segments, for which the emulator takes too long. One segment in eight is compared.
#[test]
fn full_batches_of_short_segments() {
    /// `leaves` returns the leaves of each of 256 segments, over and over.
    fn check<O: Op<T, Output: Item> + Parameterless, T: Sample>(leaves: impl Fn(u64) -> u64) {
        let Some(device) = support::gpu() else { return };
        let width = width::<O, T>(size_of::<T>()) as u64;
        let mut offsets = vec![1];
        for index in 0..1_400_000 {
            let len = (leaves(index % 256) * width).saturating_sub(hash(index) % width);
            offsets.push(offsets[offsets.len() - 1] + len);
        }
        let host = samples(offsets[offsets.len() - 1] as usize + 20, T::any);
        let default: O::Output = bytemuck::Zeroable::zeroed();
        let (x, of_device) = (device.upload(&host).unwrap(), device.upload(&offsets).unwrap());
        let got = x.segments(&of_device).unwrap().by(O::default()).or(default).run().unwrap();
        for (index, got) in got.to_vec().unwrap().iter().enumerate() {
            if hash(index as u64).is_multiple_of(8) {
                let items = &host[offsets[index] as usize..offsets[index + 1] as usize];
                let alone = items.reduce::<O, 256>().unwrap_or(default);
                let case = format!("{} of {}, segment {index} of {} items", O::NAME, T::NAME, items.len());
                assert_eq!(format!("{got:?}"), format!("{alone:?}"), "{case}");
            }
        }
    }
    check::<Sum, f32>(|_| 3);
    check::<Sum, f32>(|index| if index == 77 { 1 } else { 3 });
    check::<Sum, f32>(|index| if index == 255 { 200 } else { 2 });
    check::<Sum, f64>(|index| if index == 1 { 40 } else { 2 });
    check::<Max, u8>(|index| if index == 128 { 5 } else { 2 });
    check::<ArgMax, f32>(|index| if index == 3 { 0 } else { 9 });
    check::<NormL2, f32>(|index| if index == 9 { 1 } else { 4 });
    check::<Var, f32>(|_| 5);
    check::<Var, f32>(|index| if index < 128 { 3 } else { 6 });
    check::<LogSumExp, f32>(|index| if index == 200 { 1 } else { 2 });
    // Narrow items, which lanes load by words.
    check::<Sum, u8>(|_| 1);
    check::<Max, f16>(|index| index % 2);
    check::<SumSq, u8>(|index| if index == 40 { 2 } else { 1 });
    check::<Prod, i16>(|_| 1);
    check::<Sum, f16>(|_| 5);
}

/// Rows and segments of two arrays, which may begin at different items of a leaf: short, of a warp each, of several warps or blocks each.
/// The emulator runs the first two shapes, in CI by a sixth of the operators and types.
#[test]
fn rows_and_segments_of_two_arrays() {
    fn check<O: Op<(T, T), Output: Item> + Parameterless, T: Sample>() {
        const SHAPES: [[usize; 2]; 12] = [
            [9, 21],
            [3, 2_063],
            [9_000, 3],
            [9_000, 17],
            [5_000, 64],
            [2_200, 301],
            [2_200, 1_769],
            [600, 2_048],
            [70, 36_867],
            [66, 33_000],
            [300, 9_001],
            [2, 300_001],
        ];
        let most = SHAPES.iter().map(|[count, len]| count * len).max().unwrap_or(0) + 5;
        for device in devices() {
            if device.is_emulator() && !is_of_part(O::NAME.len() + size_of::<T>()) {
                continue;
            }
            let (shapes, most) =
                if device.is_emulator() { (&SHAPES[..2], 6_500) } else { (&SHAPES[..], most) };
            let (a, b) = (samples(most, T::any), samples(most, |hash| T::any(hash.rotate_left(17))));
            let (x, y) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
            for &[count, len] in shapes {
                for [first, second] in [[0, 0], [3, 3], [1, 4]] {
                    let (ends, others) = (first..first + count * len, second..second + count * len);
                    let pairs = (&a[ends.clone()], &b[others.clone()]);
                    let alone = pairs.rows(len).unwrap().reduce::<O, 256>().unwrap().to_vec().unwrap();
                    let alone: Vec<_> = alone.iter().map(|value| format!("{value:?}")).collect();
                    let offsets: Vec<_> = (0..=count).map(|segment| (segment * len) as u64).collect();
                    let offsets = device.upload(&offsets).unwrap();
                    let (x, y) = (x.slice(ends).unwrap(), y.slice(others).unwrap());
                    let pairs = (&x, &y);
                    let case = format!("{} of {count} times {len} {}", O::NAME, T::NAME);
                    let case = format!("{case} from items {first} and {second} on, {device}");
                    compare(&case, pairs.rows(len).unwrap().reduce::<O, 256>(), &alone);
                    compare(&case, pairs.segments(&offsets).unwrap().reduce::<O, 256>(), &alone);
                }
            }
        }
    }
    check::<Dot, u8>();
    check::<Dot, i8>();
    check::<Dot, u16>();
    check::<Dot, f16>();
    check::<Dot, f32>();
    check::<DistanceSquared, u8>();
    check::<DistanceSquared, bf16>();
    check::<DistanceL1, u8>();
    check::<DistanceL1, i16>();
    check::<DistanceL1, f64>();
    check::<WeightedMean, u8>();
    check::<Cosine, f16>();
    check::<ExactDot, u8>();
}

/// Segments that the kernel of spans folds. There are three kinds: segments of about 9 lines, with some empty ones and one of 300
/// lines among them; aligned segments of about 20 lines; segments of about 80 lines, which several blocks share.
#[test]
fn segments_of_many_lines() {
    fn check<O: Op<T, Output: Item> + Parameterless, T: Sample>(part: usize) {
        if !has_turn(part) {
            return;
        }
        const BLOCK: u32 = 32;
        let row = Plan::new(1, width::<O, T>(size_of::<T>()), BLOCK).row;
        let lengths = |kind: usize, index: u64| match (kind, index % 7) {
            (0, 0) => 0,
            (0, _) if index == 400 => 300 * row + 5,
            (0, kind) => (hash(index) % (2 * row)) + (kind + 6) * row,
            (1, kind) => (14 + 2 * kind) * row,
            (_, kind) => 79 * row + 61 * kind,
        };
        for (kind, count) in [600, 250, 80].into_iter().enumerate() {
            let mut offsets = vec![kind as u64 % 2 * 4];
            for index in 0..count {
                offsets.push(offsets[index as usize] + lengths(kind, index));
            }
            let case = format!("of about {} lines", [9, 20, 80][kind]);
            check_between::<O, T, BLOCK>(&case, &offsets, 40 * row * kind as u64);
        }
    }
    check::<Sum, f32>(5);
    check::<Sum, i64>(1);
    check::<NormL2, f32>(3);
    check::<Max, f64>(4);
    check::<Var, f32>(0);
}

/// Unaligned segments of narrow items that warps fold, of up to 40 lines: more lines than a launch for few segments has blocks. The first
/// segment begins at the array's first or second item, and the last one ends at the array's end or near it. Both have chunks of two lines.
#[test]
fn narrow_segments_of_many_lines() {
    fn check<O: Op<T, Output: Item> + Parameterless, T: Sample>(part: usize) {
        if !has_turn(part) {
            return;
        }
        const BLOCK: u32 = 64;
        let row = Plan::new(1, width::<O, T>(size_of::<T>()), BLOCK).row;
        for rest in [0, 3, 20] {
            let mut offsets = vec![rest % 2];
            for index in 0..250 {
                let length = match index {
                    0 | 249 => 35 * row + 7,
                    _ => hash(index) % (40 * row) + 1,
                };
                offsets.push(offsets[index as usize] + length);
            }
            assert!(offsets[250] > 4_100 * row);
            check_between::<O, T, BLOCK>("of up to 40 lines", &offsets, rest);
        }
    }
    check::<Sum, f16>(0);
    check::<Sum, bf16>(1);
    check::<Sum, u8>(2);
    check::<Var, f16>(3);
    check::<Max, f16>(4);
    check::<ArgMax, u8>(5);
    check::<LogSumExp, f16>(2);
}

/// 360 segments of 33 to 64 lines. A segment of this length has chunks of two lines. Because the segments are so many, a block folds a
/// whole segment.
#[test]
fn a_block_for_chunks_of_two_lines() {
    const BLOCK: u32 = 32;
    if !has_turn(1) {
        return;
    }
    let line = Plan::new(1, width::<Sum, f32>(4), BLOCK).row;
    let ends = (0..360).scan(0, |end, index| {
        *end += (33 + index % 32) * line - index % 3;
        Some(*end)
    });
    let offsets: Vec<u64> = [0].into_iter().chain(ends).collect();
    check_between::<Sum, f32, BLOCK>("of 33 to 64 lines", &offsets, 5);
}

/// 1,200 segments, which are more blocks than a GPU holds at a time. Most are shorter than a line, ten have about two lines, two have
/// more.
#[test]
fn a_thousand_segments() {
    fn check<O: Op<T, Output: Item> + Parameterless, T: Sample>(part: usize) {
        if !has_turn(part) {
            return;
        }
        const BLOCK: u32 = 256;
        let row = Plan::new(1, width::<O, T>(size_of::<T>()), BLOCK).row;
        let length = |index: u64| match index {
            50..60 => 2 * row - 55 + index,
            300 => 70 * row + 3,
            700 => 9 * row,
            _ if index.is_multiple_of(9) => 0,
            _ => hash(index) % (row / 3) + 1,
        };
        let mut offsets = vec![1];
        for index in 0..1200 {
            offsets.push(offsets[index as usize] + length(index));
        }
        check_between::<O, T, BLOCK>("of less than a line", &offsets, 17);
    }
    check::<Sum, f32>(0);
    check::<Sum, i64>(1);
    check::<NormL2, f32>(2);
    check::<Max, f64>(4);
}

/// A segment of 32 rows a chunk, in parts, between others whose results lie beside its own.
#[test]
fn tall_chunks() {
    let len = Plan::new(1, width::<Sum, f32>(4), 64).row as usize * 64_000;
    let host = samples(len + 20_000, f32::any);
    assert!(Plan::new(len as u64, width::<Sum, f32>(4), 64).chunk >= 32 * 256);
    let ends = [5, 9_000, 9_000 + len, 9_007 + len, 19_999 + len].map(|end| end as u64);
    let alone = |range: std::ops::Range<u64>| {
        format!("{:?}", host[range.start as usize..range.end as usize].reduce::<Sum, 64>().unwrap())
    };
    let alone: Vec<_> = ends.windows(2).map(|ends| alone(ends[0]..ends[1])).collect();
    for device in devices() {
        let x = device.upload(&host).unwrap();
        compare(&format!("on {device}"), x.segments(&ends).unwrap().reduce::<Sum, 64>(), &alone);
    }
}

#[test]
fn segments_without_items() {
    for device in devices() {
        let x = device.upload(&[4.0f32, 2.0, 3.0]).unwrap();
        let segments = x.segments(&[0u32, 1, 1, 3, 3]).unwrap();
        assert_eq!(segments.reduce::<Sum, 256>().unwrap().to_vec().unwrap(), [4.0, 0.0, 5.0, 0.0]);
        assert_eq!(segments.reduce::<Min, 256>().err(), Some(Error::EmptySegment { op: "min", segment: 1 }));
        assert_eq!(
            segments.by(Min).or(-1.0).block::<256>().run().unwrap().to_vec().unwrap(),
            [4.0, -1.0, 2.0, -1.0]
        );
        assert_eq!(segments.reduce::<Sum, 256>().unwrap().to_vec().unwrap(), [4.0, 0.0, 5.0, 0.0]);
        assert!(segments.reduce::<Mean, 256>().unwrap().to_vec().unwrap()[1].is_nan());
        assert_eq!(x.segments(&[2u64]).unwrap().reduce::<Sum, 256>().unwrap().len(), 0);
        let none = device.upload::<f32>(&[]).unwrap();
        assert_eq!(
            none.segments(&[0u64, 0, 0]).unwrap().reduce::<Sum, 32>().unwrap().to_vec().unwrap(),
            [0.0; 2]
        );
        assert_eq!(none.rows(5).unwrap().reduce::<Sum, 32>().unwrap().len(), 0);
    }
}

/// Few segments of lengths that vary, which have a block for each chunk: equal ones, skewed ones, one that
/// has nearly all items, ones that end where rows of the plan do.
#[test]
fn few_segments_of_many_kinds() {
    let host = samples(longest(90_000), f32::any);
    for seed in (0..40u64).filter(|&seed| has_turn(seed as usize)) {
        let len = host.len() as u64 / [1, 4, 50][seed as usize % 3];
        let count = [1, 7, 60, 500, 2_500][seed as usize % 5];
        let place = |index: u64| {
            let at = hash(seed << 32 | index) % (len + 1);
            match seed % 8 {
                0..4 => at,
                4 => len * index / count,
                5 => (at as f64 * (at as f64 / len as f64).powi(3)) as u64,
                6 => at / 1024 * 1024,
                _ => at % 100 + if index > count / 2 { len - 99 } else { 0 },
            }
        };
        let mut offsets: Vec<u64> = (0..=count).map(|index| place(index).min(len)).collect();
        offsets.sort();
        for_each_block!(|BLOCK| {
            let alone = |ends: &[u64]| {
                let sum = host[ends[0] as usize..ends[1] as usize].reduce::<Sum, BLOCK>();
                format!("{:?}", sum.unwrap())
            };
            let alone: Vec<String> = offsets.windows(2).map(alone).collect();
            for device in devices() {
                let x = device.upload(&host[..len as usize]).unwrap();
                let offsets = device.upload(&offsets).unwrap();
                let case = format!("{count} segments of {len} items, seed {seed}, BLOCK {BLOCK}, {device}");
                compare(&case, x.segments(&offsets).unwrap().reduce::<Sum, BLOCK>(), &alone);
            }
        });
    }
}

#[test]
fn what_are_no_offsets() {
    let bad = |index, offset, before| Some(Error::BadOffset { index, offset, before, len: 5_000 });
    for device in devices() {
        let x = device.upload(&samples(5_000, f32::any)).unwrap();
        assert_eq!(x.segments(&[0u32, 3, 2, 1, 5_000]).err(), bad(2, 2, 3));
        assert_eq!(x.segments(&[0u64, 3, 5_001]).err(), bad(2, 5_001, 3));
        assert_eq!(x.segments(&[] as &[u32]).err(), Some(Error::NoOffsets));
        let sums = |offsets: &[u64]| {
            let on_device = device.upload(offsets).unwrap();
            match x.segments(&on_device) {
                Ok(segments) => segments.reduce::<Sum, 256>().err(),
                Err(error) => Some(error),
            }
        };
        assert_eq!(sums(&[0, 3, 2, 1, 5_000]), bad(2, 2, 3));
        assert_eq!(sums(&[0, 3, u64::MAX]), bad(2, u64::MAX, 3));
        assert_eq!(sums(&[0, 5_000, 100, 4_900, 200, 4_800]), bad(2, 100, 5_000));
        let mut offsets: Vec<u64> = (0..3_000).map(|index| index * 5 / 3).collect();
        (offsets[1_700], offsets[2_900]) = (0, 1 << 40);
        assert_eq!(sums(&offsets), bad(1_700, 0, 1_699 * 5 / 3));
        // Nothing is left behind.
        assert_eq!(sums(&[0, 3, 3, 5_000]), None);
        let other = Device::cpu().upload(&[0u32, 5]).unwrap();
        assert_eq!(x.segments(&other).unwrap().reduce::<Sum, 32>().unwrap().len(), 1);
    }
}

/// Bad offsets on a device are the same error as on the host, wherever they are.
#[test]
#[cfg_attr(not(part = "1"), ignore = "of part 1")]
fn bad_offsets_on_a_device() {
    const LEN: usize = 6_000;
    let host = samples(LEN, f32::any);
    let mut cases: Vec<Vec<u64>> = vec![
        vec![1 << 40, 2, 4],
        vec![1 << 40, 1 << 41, 2, 4],
        vec![u64::MAX, 0, 6_000],
        vec![u64::MAX, u64::MAX],
        vec![6_001, 6_001, 6_001],
        vec![1 << 31, 2, 4, 6_000],
        vec![0, 1 << 63, 6_000],
        // Segments of one item, the first of which begins an item before the array.
        (0..20_000).map(|index: u64| if index == 0 { u64::MAX } else { (index - 1).min(6_000) }).collect(),
    ];
    for seed in 0..16 {
        // Few segments, and enough that short ones are listed.
        let count = [2, 5, 40, 3_000][seed as usize % 4];
        let mut offsets: Vec<u64> = (0..=count).map(|index| index * LEN as u64 / count).collect();
        for turn in 0..=hash(seed) % 3 {
            let value = [0, 1, 2_999, 6_000, 6_001, 1 << 32, 1 << 40, u64::MAX];
            let place = [0, 1, count / 2, count - 1, count, hash(seed + 100 * turn) % count];
            offsets[place[hash(seed + 7 + turn) as usize % 6] as usize] =
                value[hash(seed + 50 + turn) as usize % 8];
        }
        cases.push(offsets);
    }
    for device in devices().into_iter().filter(|device| !device.is_cpu()) {
        let x = device.upload(&host).unwrap();
        let stream = device.stream().unwrap();
        for offsets in &cases {
            let expected = host.segments(offsets).err();
            let singles: Vec<u32> =
                offsets.iter().map(|&offset| offset.min(u32::MAX.into()) as u32).collect();
            let expected_of_singles = host.segments(&singles).err();
            let (offsets_there, singles) =
                (device.upload(offsets).unwrap(), device.upload(&singles).unwrap());
            let context = format!("{offsets:.12?} of {} on {device}", offsets.len());
            for (of, expected) in
                [(x.segments(&offsets_there), expected), (x.segments(&singles), expected_of_singles)]
            {
                let of = of.unwrap();
                assert_eq!(of.reduce::<Sum, 256>().err(), expected, "{context}");
                assert_eq!(of.by(Max).or(0.0).block::<32>().run().err(), expected, "{context}");
                assert_eq!(of.by((Sum, SumSq)).block::<64>().run().map(drop).err(), expected, "{context}");
                assert_eq!(of.reduce_async::<Sum, 1024>(&stream).wait().err(), expected, "{context}");
            }
            let pairs = (&x, &x);
            let of = pairs.segments(&offsets_there).unwrap();
            assert_eq!(of.reduce::<Dot, 128>().err(), host.segments(offsets).err(), "{context}");
            // An enqueued call leaves the results of bad segments as they were.
            let stream = device.stream().unwrap();
            let mut places = device.upload(&vec![7.5f32; offsets.len() - 1]).unwrap();
            // SAFETY: all buffers stay until the stream has been waited for, and nothing else is enqueued on
            // it.
            unsafe {
                let of = x.segments(&offsets_there).unwrap();
                of.by(Sum).or(0.0).block::<256>().run_into(&stream, &mut places).unwrap();
            }
            stream.synchronize().unwrap();
            for (segment, result) in places.to_vec().unwrap().into_iter().enumerate() {
                if offsets[segment] > offsets[segment + 1] || offsets[segment + 1] > LEN as u64 {
                    assert_eq!(result, 7.5, "segment {segment}, {context}");
                }
            }
        }
        // One offset, so no segment.
        let one = device.upload(&[6_001u64]).unwrap();
        let expected = host.segments(&[6_001u64]).err();
        assert_eq!(x.segments(&one).unwrap().reduce::<Sum, 256>().err(), expected);
        assert_eq!(x.segments(&one).unwrap().reduce_async::<Sum, 256>(&stream).wait().err(), expected);
    }
}

#[test]
fn what_are_no_rows() {
    let x = [1.0f32; 12];
    assert_eq!(x.rows(5).err(), Some(Error::Shape { shape: "rows of 5".to_owned(), len: 12 }));
    assert!(x.rows(0).is_err());
    assert_eq!(x.rows(4).unwrap().reduce::<Sum, 32>().unwrap().to_vec().unwrap(), [4.0; 3]);
}

#[test]
fn enqueued() {
    let host = samples(50_000, f32::any);
    let offsets: Vec<u32> = (0..=100).map(|index| index * index * 5).collect();
    for device in devices() {
        let (x, offsets) = (device.upload(&host).unwrap(), device.upload(&offsets).unwrap());
        let segments = x.segments(&offsets).unwrap();
        let stream = device.stream().unwrap();
        let mut sums = device.zeros::<f32>(101).unwrap();
        let mut minima = device.zeros::<f32>(100).unwrap();
        // SAFETY: all buffers live until the stream has been waited for.
        unsafe {
            for _ in 0..3 {
                segments.reduce_into::<Sum, 32>(&stream, &mut sums).unwrap();
                segments.by(Min).or(7.0).block::<128>().run_into(&stream, &mut minima).unwrap();
            }
            let mut short = device.zeros::<f32>(99).unwrap();
            assert!(segments.reduce_into::<Sum, 32>(&stream, &mut short).is_err());
        }
        stream.synchronize().unwrap();
        let sums = sums.to_vec().unwrap();
        assert_eq!(sums[100], 0.0);
        assert_eq!(sums[..100], segments.reduce::<Sum, 32>().unwrap().to_vec().unwrap());
        assert_eq!(minima.to_vec().unwrap(), segments.reduce::<Min, 128>().unwrap().to_vec().unwrap());
    }
}
