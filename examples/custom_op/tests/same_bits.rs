//! The operators' results are correct, with the same bits on the CPU and on a GPU, or the emulator without
//! one.

use custom_op::{BoundingBox, Complex, ComplexSum, Histogram, Point, Powers};
use gpu_reduce::{Device, Error, Item, Op, Reduce, check_op};

/// Reduces on both devices, with a small, a medium and the largest BLOCK.
fn on_both<O: Op<T>, T: Item>(op: O, items: &[T]) -> [Result<O::Output, Error>; 3] {
    let gpu = Device::cuda(0).or_else(|_| Device::emulator()).unwrap();
    let [cpu, gpu] = [Device::cpu(), gpu].map(|device| {
        let x = device.upload(items).unwrap();
        [x.by(op).block::<32>().run(), x.by(op).block::<256>().run(), x.by(op).block::<1024>().run()]
    });
    assert_eq!(format!("{cpu:?}"), format!("{gpu:?}"));
    cpu
}

/// The laws of operators, and every device and BLOCK.
#[test]
fn laws() {
    let points = [[0.0, 1.0, -2.0], [5.0, -0.0, 2.5], [0.0, 1.0, -2.0]].map(Point);
    check_op(&BoundingBox, &points).unwrap();
    let numbers = [(1.0, -0.5), (0.25, 3.0), (-7.0, 0.0)].map(|(re, im)| Complex { re, im });
    check_op::<_, Complex<f64>>(&ComplexSum, &numbers).unwrap();
    check_op(&Histogram { start: 0.0, width: 1.0 }, &[0.5f32, 15.5, 3.0, -1.0, f32::NAN]).unwrap();
    check_op(&Powers { c: 2.0, p: 1.5 }, &[1.0, 2.0, -4.5, 0.0]).unwrap();
}

#[test]
fn boxes() {
    let points: Vec<_> = (0..5_001).map(|i| Point([i as f32, -(i as f32), (i % 7) as f32])).collect();
    for found in on_both(BoundingBox, &points) {
        assert_eq!(found, Ok([Point([0.0, -5000.0, 0.0]), Point([5000.0, 0.0, 6.0])]));
    }
    for found in on_both(BoundingBox, &[]) {
        assert_eq!(found, Err(Error::EmptyInput { op: "bounding_box" }));
    }
}

#[test]
fn complex_numbers() {
    let numbers: Vec<_> = (0..3_000).map(|i| Complex { re: f64::from(i), im: -0.5 }).collect();
    for sum in on_both(ComplexSum, &numbers) {
        assert_eq!(sum, Ok(Complex { re: 4_498_500.0, im: -1500.0 }));
    }
    let numbers: Vec<_> = (0..70_000).map(|i| Complex { re: 1.0 / (i + 1) as f32, im: i as f32 }).collect();
    assert!(on_both(ComplexSum, &numbers).iter().all(Result::is_ok));
}

/// Segments of hundreds of items, for which the library has a kernel of its own (a block folds each segment).
#[test]
fn segments() {
    fn check<T: Item>(numbers: &[T])
    where
        ComplexSum: Op<T, Output: std::fmt::Debug + Item>,
    {
        let offsets: Vec<u64> = (0..701).map(|index| index * 963 + index % 4).collect();
        let gpu = Device::cuda(0).or_else(|_| Device::emulator()).unwrap();
        let [cpu, gpu] = [Device::cpu(), gpu].map(|device| {
            let (x, offsets) = (device.upload(numbers).unwrap(), device.upload(&offsets).unwrap());
            x.segments(&offsets).unwrap().reduce::<ComplexSum, 32>().unwrap().to_vec().unwrap()
        });
        assert_eq!(format!("{cpu:?}"), format!("{gpu:?}"));
    }
    let part = |i: i32| 1.0 / (i % 977 + 1) as f32;
    check(&(0..674_104).map(|i| Complex { re: part(i), im: i as f32 }).collect::<Vec<_>>());
    check(&(0..674_104).map(|i| Complex { re: f64::from(part(i)), im: 0.5 }).collect::<Vec<_>>());
}

#[test]
fn bins() {
    let values: Vec<_> = (0..20_000).map(|i| (i % 20) as f32 - 2.0 + 0.5).chain([f32::NAN]).collect();
    for counts in on_both(Histogram { start: 0.0, width: 1.0 }, &values) {
        assert_eq!(counts, Ok([1000; 16]));
    }
}

#[test]
fn parameters() {
    let values: Vec<_> = (0..1_000).map(f64::from).collect();
    for (c, p, expected) in [(0.0, 1.0, 499_500.0), (499.0, 2.0, 83_333_500.0), (1.0, 0.0, 1000.0)] {
        for sum in on_both(Powers { c, p }, &values) {
            assert_eq!(sum, Ok(expected), "c = {c}, p = {p}");
        }
    }
}
