//! Custom operators over custom elements, with parameters; each has the same bits on CPUs, on GPUs and on the
//! emulator.
//!
//! The crate is compiled for all of them, so it does without the standard library.
#![no_std]

use bytemuck::{Pod, Zeroable};
use core::array::from_fn;
use core::fmt::Debug;
use gpu_reduce_kernels::{Kernels, Op, math};
use num_traits::float::FloatCore;

// The kernels to compile for GPUs: a row for each operator and element type.
gpu_reduce_kernels::kernels! {
    bounding_box: BoundingBox, Point;
    complex_sum_f32: ComplexSum, Complex<f32>;
    complex_sum_f64: ComplexSum, Complex<f64>;
    histogram: Histogram, f32;
    powers: Powers, f64;
}

/// A point in space.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Point(pub [f32; 3]);

/// The smallest axis-aligned box around points, as its least and its greatest corner.
///
/// A NaN coordinate does not extend the box. Without points there is no box.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct BoundingBox;

impl Op<Point> for BoundingBox {
    const NAME: &'static str = "bounding_box";
    type Accumulator = [Point; 2];
    type Output = [Point; 2];
    // 0.0 and −0.0 are equal here. Which one is found depends on the order of combination, which is the same
    // everywhere.
    const EXACT: bool = false;
    const KERNELS: Kernels = crate::KERNELS;

    fn identity(&self) -> [Point; 2] {
        [Point([f32::INFINITY; 3]), Point([f32::NEG_INFINITY; 3])]
    }

    fn lift(&self, point: Point, _: u64) -> [Point; 2] {
        [point; 2]
    }

    fn combine(&self, a: [Point; 2], b: [Point; 2]) -> [Point; 2] {
        let pick = |corner: usize, other_is: fn(&f32, &f32) -> bool| {
            let (a, b) = (a[corner].0, b[corner].0);
            Point(from_fn(|axis| if other_is(&b[axis], &a[axis]) { b[axis] } else { a[axis] }))
        };
        [pick(0, f32::lt), pick(1, f32::gt)]
    }

    fn finish(&self, all: [Point; 2], count: u64) -> Option<[Point; 2]> {
        (count > 0).then_some(all)
    }
}

/// A complex number.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Complex<F> {
    /// The real part.
    pub re: F,
    /// The imaginary part.
    pub im: F,
}

// SAFETY: two equal parts have no padding between them, and zeros are valid.
unsafe impl<F: Zeroable> Zeroable for Complex<F> {}
// SAFETY: as above.
unsafe impl<F: Pod> Pod for Complex<F> {}

/// The sum of complex numbers.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct ComplexSum;

impl<F: FloatCore + Pod + Debug + Send + Sync> Op<Complex<F>> for ComplexSum {
    const NAME: &'static str = "complex_sum";
    type Accumulator = Complex<F>;
    type Output = Complex<F>;
    const EXACT: bool = false;
    const KERNELS: Kernels = crate::KERNELS;

    fn identity(&self) -> Complex<F> {
        // −0.0 is the identity: 0.0 + −0.0 is 0.0, and −0.0 + −0.0 is −0.0.
        Complex { re: F::neg_zero(), im: F::neg_zero() }
    }

    fn lift(&self, number: Complex<F>, _: u64) -> Complex<F> {
        number
    }

    fn combine(&self, a: Complex<F>, b: Complex<F>) -> Complex<F> {
        Complex { re: a.re + b.re, im: a.im + b.im }
    }

    fn finish(&self, all: Complex<F>, _: u64) -> Option<Complex<F>> {
        Some(all)
    }
}

/// Counts numbers in 16 adjacent bins of equal width; leaves out NaN and numbers outside the bins.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Histogram {
    /// The start of the first bin.
    pub start: f32,
    /// The width of a bin.
    pub width: f32,
}

impl Op<f32> for Histogram {
    const NAME: &'static str = "histogram";
    type Accumulator = [u64; 16];
    type Output = [u64; 16];
    const EXACT: bool = true;
    const KERNELS: Kernels = crate::KERNELS;

    fn identity(&self) -> [u64; 16] {
        [0; 16]
    }

    fn lift(&self, number: f32, _: u64) -> [u64; 16] {
        let place = (number - self.start) / self.width;
        from_fn(|bin| (place >= bin as f32 && place < (bin + 1) as f32).into())
    }

    fn combine(&self, a: [u64; 16], b: [u64; 16]) -> [u64; 16] {
        from_fn(|bin| a[bin] + b[bin])
    }

    fn finish(&self, all: [u64; 16], _: u64) -> Option<[u64; 16]> {
        Some(all)
    }
}

/// A map before the reduction: the sum of |x − c|^p, with `c` and `p` given at run time.
///
/// It calls the functions of [`math`], which have the same bits on every device. The method
/// `distance.powf(p)` would call the C library on a CPU, with other bits.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Powers {
    /// The number to subtract from each element.
    pub c: f64,
    /// The power.
    pub p: f64,
}

impl Op<f64> for Powers {
    const NAME: &'static str = "powers";
    type Accumulator = f64;
    type Output = f64;
    const EXACT: bool = false;
    const KERNELS: Kernels = crate::KERNELS;

    fn identity(&self) -> f64 {
        -0.0
    }

    fn lift(&self, number: f64, _: u64) -> f64 {
        math::powf(math::abs(number - self.c), self.p)
    }

    fn combine(&self, a: f64, b: f64) -> f64 {
        a + b
    }

    fn finish(&self, all: f64, _: u64) -> Option<f64> {
        Some(all)
    }
}
