//! Columns, and arrays of several axes: each column has the bits of reducing its items alone, on every
//! device.

use gpu_reduce::{
    ArgMax, Block, Buffer, Dot, Error, Item, LogSumExp, Max, Mean, Min, Moments, NormL2, Op, Plan, Prod,
    Reduce, Segments, Sum, Threads, Var, f16, width,
};
use support::{Sample, checks, devices, for_each_block, hash, is_of_part, is_taken, samples};

/// The items of column `index`, in order.
fn column<T: Copy>(items: &[T], [_, reduced, inner]: [usize; 3], index: usize) -> Vec<T> {
    let first = index / inner * reduced * inner + index % inner;
    items[first..].iter().step_by(inner).take(reduced).copied().collect()
}

/// Panics unless each result is that of its column alone. Of many columns only some are checked.
fn compare<R: Item + PartialEq + std::fmt::Debug>(
    case: &str,
    got: Result<Buffer<R>, Error>,
    shape: [usize; 3],
    alone: impl Fn(usize) -> R,
) {
    let got = got.unwrap_or_else(|error| panic!("{case}, {shape:?}: {error}")).to_vec().unwrap();
    let count = shape[0] * shape[2];
    assert_eq!(got.len(), count, "{case}, {shape:?}");
    for index in (0..count).step_by(count / 24 + 1).chain([count - 1]) {
        // Compares as text, in which NaNs are equal and zeros of different signs are not.
        assert_eq!(
            format!("{:?}", got[index]),
            format!("{:?}", alone(index)),
            "{case}, {shape:?}, column {index}"
        );
    }
}

/// Lengths of columns around the boundaries of items, rows and chunks, and with more chunks than
/// accumulators.
fn lengths(row: usize) -> Vec<usize> {
    let chunks = [8 * row, 9 * row, 32 * row, 128 * row].map(|len| [len - 1, len, len + 1]);
    let rows = [row - 1, row, row + 1, 2 * row, 3 * row - 5, 5 * row + 7];
    [1, 2, 3, 4, 7, 8, 9, 16, 31, 33, 100]
        .into_iter()
        .chain(rows)
        .chain(chunks.into_iter().flatten())
        .collect()
}

const INNER: [usize; 18] = [2, 3, 1, 7, 8, 31, 32, 33, 100, 64, 257, 1000, 5, 16, 10, 12, 20, 40];

/// Shapes: all lengths with a few numbers of columns, and the other way round, unless they are too large.
fn shapes(row: usize, most: usize) -> Vec<[usize; 3]> {
    let lengths = lengths(row);
    let mut shapes = Vec::new();
    for (index, &reduced) in lengths.iter().enumerate() {
        for step in 0..3 {
            let random = hash((index + 100 * step) as u64) as usize;
            shapes.push([[1, 2, 5][random / 64 % 3], reduced, INNER[random % INNER.len()]]);
            shapes.push([1, reduced, INNER[(index + step) % 5]]);
        }
    }
    for (index, &inner) in INNER.iter().enumerate() {
        shapes.push([1, [1, 6, 40, 300][index % 4], inner]);
        shapes.push([1 + index, 12, inner]);
    }
    shapes.push([1, 3, 70_000]);
    shapes.push([1, 1, 136_000]);
    shapes.push([20_000, 5, 3]);
    shapes.retain(|shape| shape.iter().product::<usize>() <= most);
    shapes
}

/// The most items.
const MOST: usize = 140_000;

fn check<O: Op<T, Output: Item>, T: Sample>(op: O) {
    let host = samples(MOST + 1, T::any);
    for device in devices() {
        let x = device.upload(&host).unwrap();
        for_each_block!(|BLOCK| {
            let case = format!("{} of {} with BLOCK {BLOCK} on {device}", O::NAME, T::NAME);
            let row = Plan::new(1, width::<O, T>(size_of::<T>()), BLOCK).row as usize;
            let turn = O::NAME.len() + size_of::<T>() + BLOCK.ilog2() as usize;
            for (index, shape) in shapes(row, MOST).into_iter().enumerate() {
                if !is_taken(index + turn) {
                    continue;
                }
                // One of the two is not aligned.
                let start = index % 2;
                let x = x.slice(start..start + shape.iter().product::<usize>()).unwrap();
                let got = x.reshape(&shape).unwrap().axis(1).unwrap().by(op).block::<BLOCK>().run();
                compare(&case, got, shape, |index| {
                    column(&host[start..], shape, index).by(op).block::<BLOCK>().run().unwrap()
                });
            }
        });
    }
}

checks! {
    check
    sum: Sum, f32 f64 i8 f16 u16;
    mean: Mean, f32;
    var: Var, f32;
    argmax: ArgMax, f32 u8;
    max: Max, f16;
    min: Min, f64;
    prod: Prod, f32;
    logsumexp: LogSumExp, f32;
    moments: Moments, f32;
}

/// Compares the results of each shape with the CPU's, for arrays that begin at item 0, 1 or 2 of a buffer. The emulator runs the
/// small shapes only, and each from one of these items.
fn check_many<O: Op<T, Output: Item> + Default, T: Sample>(shapes: &[[usize; 3]])
where
    Threads<64>: Block,
{
    const FEW: usize = 3_000_000;
    for device in devices().into_iter().skip(1) {
        let len = |shape: &[usize; 3]| shape.iter().product::<usize>();
        let taken = || shapes.iter().filter(|shape| !device.is_emulator() || len(shape) <= FEW);
        let host = samples(taken().map(len).max().unwrap_or(0) + 2, T::any);
        let x = device.upload(&host).unwrap();
        for (index, shape) in taken().enumerate() {
            if !is_of_part(index + O::NAME.len() + size_of::<T>()) {
                continue;
            }
            let is_each = !device.is_emulator() && len(shape) <= FEW;
            for start in if is_each { 0..3 } else { index % 3..index % 3 + 1 } {
                let items = start..start + len(shape);
                let columns = host[items.clone()].reshape(shape).unwrap();
                let expected = columns.axis(1).unwrap().by(O::default()).block::<64>().run().unwrap();
                let x = x.slice(items).unwrap();
                let got = x.reshape(shape).unwrap().axis(1).unwrap().by(O::default()).block::<64>().run();
                let text = |results: Buffer<O::Output>| {
                    results.to_vec().unwrap().iter().map(|result| format!("{result:?}")).collect::<Vec<_>>()
                };
                let (got, expected) = (text(got.unwrap()), text(expected));
                let wrong = got.iter().zip(&expected).position(|(got, expected)| got != expected);
                assert_eq!(wrong, None, "{} of {}, {shape:?} from {start} on, {device}", O::NAME, T::NAME);
            }
        }
    }
}

/// Shapes of which a thread may fold several neighbouring columns. A row of `f32` has 256 items here, one of `f16` 512. In the last
/// two shapes, a thread folds all of a column, because the last of several would have few items.
#[test]
fn many_columns() {
    const SHAPES: [[usize; 3]; 10] = [
        [1, 25, 65_536],
        [2, 26, 33_000],
        [1, 31, 70_002],
        [1, 40, 65_537],
        [3, 2, 150_000],
        [1, 100, 65_536],
        [1, 256, 65_600],
        [1, 257, 65_600],
        [1, 67, 500_000],
        [1, 134, 400_001],
    ];
    check_many::<Sum, f32>(&SHAPES);
    check_many::<Sum, i32>(&SHAPES);
    check_many::<Max, f32>(&SHAPES);
    check_many::<Mean, f16>(&SHAPES);
    check_many::<Var, f32>(&SHAPES);
    check_many::<NormL2, f64>(&SHAPES);
    check_many::<ArgMax, f32>(&SHAPES);
}

/// Columns of a little more than a row, and of up to five: a thread has strips of leaves, whose values the block exchanges. In the
/// last two shapes, neighbouring threads have neighbouring leaves.
#[test]
fn columns_of_several_rows() {
    const SHAPES: [[usize; 3]; 7] = [
        [1, 300, 500],
        [2, 511, 150],
        [1, 700, 257],
        [1, 1_030, 100],
        [3, 260, 33],
        [1, 600, 16],
        [1, 513, 11],
    ];
    check_many::<Sum, f32>(&SHAPES);
    check_many::<Sum, f16>(&SHAPES);
    check_many::<NormL2, f16>(&SHAPES);
    check_many::<NormL2, f32>(&SHAPES);
    check_many::<NormL2, f64>(&SHAPES);
    check_many::<Var, f32>(&SHAPES);
    check_many::<Var, f16>(&SHAPES);
    check_many::<LogSumExp, f32>(&SHAPES);
}

fn check_pairs<T: Sample>()
where
    Dot: Op<(T, T), Output: Item>,
{
    let a = samples(MOST, T::any);
    let b = samples(MOST + 2, |hash| T::any(hash ^ 5));
    for device in devices() {
        let (x, y) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
        for_each_block!(|BLOCK| {
            for (index, shape) in shapes(4 * BLOCK as usize, MOST).into_iter().enumerate() {
                if !is_taken(index + BLOCK.ilog2() as usize) {
                    continue;
                }
                let len = shape.iter().product::<usize>();
                let start = 1 + index % 2;
                let (x, y) = (x.slice(..len).unwrap(), y.slice(start..len + start).unwrap());
                let got = (x, y).reshape(&shape).unwrap().axis(1).unwrap().reduce::<Dot, BLOCK>();
                compare(&format!("dot with BLOCK {BLOCK} on {device}"), got, shape, |index| {
                    (column(&a, shape, index), column(&b[start..], shape, index))
                        .reduce::<Dot, BLOCK>()
                        .unwrap()
                });
            }
        });
    }
}

#[test]
fn pairs() {
    check_pairs::<f32>();
    check_pairs::<f16>();
}

#[test]
fn axes() {
    let shape = [3, 4, 5, 6];
    let host: Vec<f32> = samples(360, f32::any);
    for device in devices() {
        let x = device.upload(&host).unwrap();
        let shaped = x.reshape(&shape).unwrap();
        let sums = |axes: &Segments<'_, _>| axes.reduce::<Sum, 64>().unwrap().to_vec().unwrap();
        for start in 0..4 {
            assert_eq!(sums(&shaped.axis(start).unwrap()), sums(&shaped.axis(start..=start).unwrap()));
            for end in start + 1..=4 {
                let over = shaped.axis(start..end).unwrap();
                let [outer, reduced, inner] =
                    [0..start, start..end, end..4].map(|axes| shape[axes].iter().product());
                assert_eq!(over.len(), outer * inner);
                compare(
                    &format!("{start}..{end} on {device}"),
                    over.reduce::<ArgMax, 64>(),
                    [outer, reduced, inner],
                    |index| column(&host, [outer, reduced, inner], index).reduce::<ArgMax, 64>().unwrap(),
                );
            }
        }
        assert_eq!(sums(&shaped.axis(1..).unwrap()), sums(&x.rows(120).unwrap()));
        assert_eq!(sums(&shaped.axis(..3).unwrap()), sums(&x.columns(6).unwrap()));
        assert_eq!(sums(&shaped.axis(..=1).unwrap()), sums(&x.columns(30).unwrap()));
        assert_eq!(sums(&shaped.axis(..).unwrap()), [x.reduce::<Sum, 64>().unwrap()]);
        assert_eq!(sums(&x.columns(1).unwrap()), [x.reduce::<Sum, 64>().unwrap()]);
        assert_eq!(sums(&x.columns(360).unwrap()), host.iter().map(|x| x + 0.0).collect::<Vec<_>>());
    }
}

#[test]
fn axes_without_items() {
    for device in devices() {
        let x = device.upload::<f32>(&[]).unwrap();
        let over = |shape: &[usize], axis: usize| {
            x.reshape(shape).unwrap().axis(axis).unwrap().reduce::<Sum, 256>().unwrap()
        };
        assert_eq!(over(&[0], 0).to_vec().unwrap(), [0.0]);
        assert_eq!(over(&[2, 0, 3], 1).to_vec().unwrap(), [0.0; 6]);
        assert_eq!(over(&[5, 0], 1).to_vec().unwrap(), [0.0; 5]);
        assert_eq!(over(&[0, 700], 0).to_vec().unwrap(), [0.0; 700]);
        assert_eq!(over(&[2, 0, 3], 0).len(), 0);
        assert_eq!(over(&[2, 3, 0], 1).len(), 0);
        assert_eq!(over(&[0, usize::MAX, usize::MAX], 1).len(), 0);
        assert_eq!(x.columns(4).unwrap().reduce::<Sum, 256>().unwrap().to_vec().unwrap(), [0.0; 4]);
        let max = x.reshape(&[2, 0, 3]).unwrap().axis(1).unwrap();
        assert_eq!(max.reduce::<Max, 256>().err(), Some(Error::EmptySegment { op: "max", segment: 0 }));
        assert_eq!(max.by(Max).or(7.0).block::<256>().run().unwrap().to_vec().unwrap(), [7.0; 6]);
        assert!(x.reshape(&[2, 0, 3]).unwrap().axis(0).unwrap().reduce::<Max, 256>().unwrap().is_empty());
        let many = x.reshape(&[usize::MAX, 0, usize::MAX]).unwrap().axis(1).unwrap();
        assert!(matches!(many.reduce::<Sum, 256>(), Err(Error::OutOfMemory { .. })));
    }
}

#[test]
fn what_is_no_shape() {
    let x = [1.0f32; 12];
    let message = |error: Option<Error>| error.map(|error| error.to_string()).unwrap();
    assert_eq!(
        message(x.reshape(&[2, 5]).err()),
        "axes of 2 × 5 do not make up 12 items: give lengths whose product is 12"
    );
    assert_eq!(
        message(x.reshape(&[]).err()),
        "no axes do not make up 12 items: give lengths whose product is 12"
    );
    assert!(x.reshape(&[usize::MAX, 2]).is_err());
    assert!(x.reshape(&[0, 12]).is_err());
    assert_eq!(
        message(x.columns(5).err()),
        "5 columns do not make up 12 items: give lengths whose product is 12"
    );
    assert!(x.columns(0).is_err());
    let shaped = x.reshape(&[2, 3, 2]).unwrap();
    assert_eq!(shaped.axis(3).err(), Some(Error::Axes { start: 3, end: 4, axes: 3 }));
    assert_eq!(shaped.axis(1..4).err(), Some(Error::Axes { start: 1, end: 4, axes: 3 }));
    assert_eq!(shaped.axis(1..1).err(), Some(Error::Axes { start: 1, end: 1, axes: 3 }));
    let descending = std::ops::Range { start: 2, end: 1 };
    assert!(shaped.axis(usize::MAX).is_err() && shaped.axis(descending).is_err());
}

#[test]
fn enqueued() {
    let host = samples(5000, f32::any);
    for device in devices() {
        let x = device.upload(&host).unwrap();
        let shaped = x.reshape(&[5, 250, 4]).unwrap();
        let over = shaped.axis(1).unwrap();
        let stream = device.stream().unwrap();
        let mut sums = device.zeros::<f32>(21).unwrap();
        let mut maxima = device.zeros::<f32>(20).unwrap();
        // SAFETY: all buffers live until the stream has been waited for.
        unsafe {
            over.reduce_into::<Sum, 32>(&stream, &mut sums).unwrap();
            over.reduce_into::<Max, 32>(&stream, &mut maxima).unwrap();
            let mut short = device.zeros::<f32>(19).unwrap();
            assert!(over.reduce_into::<Sum, 32>(&stream, &mut short).is_err());
        }
        stream.synchronize().unwrap();
        assert_eq!(sums.to_vec().unwrap()[20], 0.0);
        assert_eq!(sums.to_vec().unwrap()[..20], over.reduce::<Sum, 32>().unwrap().to_vec().unwrap());
        assert_eq!(maxima.to_vec().unwrap(), over.reduce::<Max, 32>().unwrap().to_vec().unwrap());
    }
}
