//! An operator of one's own, for CPUs and GPUs.
#![no_std]

use bytemuck::{Pod, Zeroable};
use gpu_reduce_kernels::{Kernels, Op, math};

// The kernels to compile: a row for each operator and type of items.
gpu_reduce_kernels::kernels! {
    rms_f32: Rms, f32;
}

/// The root mean square.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Rms;

impl Op<f32> for Rms {
    const NAME: &'static str = "rms";
    /// The sum of the squares.
    type Accumulator = f64;
    type Output = f64;
    /// Not every order of the items gives the same bits: sums of floats round.
    const EXACT: bool = false;
    const KERNELS: Kernels = KERNELS;

    fn identity(&self) -> f64 {
        -0.0 // added to any number, it leaves the bits, of −0.0 too
    }

    fn lift(&self, item: f32, _index: u64) -> f64 {
        f64::from(item) * f64::from(item)
    }

    fn combine(&self, a: f64, b: f64) -> f64 {
        a + b
    }

    fn finish(&self, all: f64, count: u64) -> Option<f64> {
        (count > 0).then(|| math::sqrt(all / count as f64))
    }
}
