//! Reduces by custom operators on the CPU, and on a GPU or, without one, on the emulator:
//!
//! ```text
//! cargo run --manifest-path examples/custom_op/Cargo.toml --example custom_op
//! ```

use custom_op::{BoundingBox, Complex, ComplexSum, Histogram, Point, Powers};
use gpu_reduce::{Device, Error, Reduce};

fn main() -> Result<(), Error> {
    let wave = |index: u32| (f64::from(index) * 0.37).sin() as f32;
    let points: Vec<_> =
        (0..10_000).map(|index| Point([0, 1, 2].map(|axis| wave(3 * index + axis)))).collect();
    let numbers: Vec<_> = (0..10_000).map(|index| Complex { re: wave(index), im: wave(index + 1) }).collect();
    let values: Vec<_> = (0..10_000).map(wave).collect();
    let doubles: Vec<_> = values.iter().copied().map(f64::from).collect();

    let mut results = Vec::new();
    // The emulator replaces a missing GPU.
    for device in [Device::cpu(), Device::cuda(0).or_else(|_| Device::emulator())?] {
        let points = device.upload(&points)?.reduce::<BoundingBox, 256>()?;
        let numbers = device.upload(&numbers)?.reduce::<ComplexSum, 256>()?;
        let bins = Histogram { start: -1.0, width: 0.125 };
        let bins = device.upload(&values)?.by(bins).block::<256>().run()?;
        let powers = device.upload(&doubles)?.by(Powers { c: 0.5, p: 2.5 }).block::<256>().run()?;
        let text = format!("{points:?}\n{numbers:?}\n{bins:?}\n{powers:?}");
        println!("{device}\n{text}\n");
        results.push(text);
    }
    assert_eq!(results[0], results[1], "the same on every device");
    Ok(())
}
