//! Operators written by a program: right on the CPU for any accumulator, and an error on a GPU without a
//! kernel for them.

use bytemuck::{Pod, Zeroable};
use gpu_reduce::{Element, Error, Op, Reduce};
use support::{devices, for_each_block};

/// Whether there is a NaN, as a byte. It is not `EXACT`, so it folds by rows, and a strip of bytes is longer
/// than some rows.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct HasNan;

impl Op<f64> for HasNan {
    const NAME: &'static str = "has_nan";
    type Accumulator = u8;
    type Output = u8;
    const EXACT: bool = false;

    fn identity(&self) -> u8 {
        0
    }

    fn lift(&self, element: f64, _: u64) -> u8 {
        element.is_nan().into()
    }

    fn combine(&self, a: u8, b: u8) -> u8 {
        a | b
    }

    fn finish(&self, all: u8, _: u64) -> Option<u8> {
        Some(all)
    }
}

#[test]
fn a_small_accumulator_misses_nothing_on_the_cpu() {
    for place in [7, 63, 64, 130, 99_999] {
        let mut data = vec![0.5; 100_000];
        data[place] = f64::NAN;
        for_each_block!(|BLOCK| {
            assert_eq!(data.reduce::<HasNan, BLOCK>(), Ok(1), "NaN at {place}, BLOCK {BLOCK}");
            assert_eq!(data[place + 1..].reduce::<HasNan, BLOCK>(), Ok(0), "BLOCK {BLOCK}");
        });
    }
}

/// Counts elements, with the name and the kernels of another operator.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct Impostor;

impl<T: Element> Op<T> for Impostor {
    const NAME: &'static str = "sum";
    type Accumulator = u64;
    type Output = u64;
    const EXACT: bool = true;
    const KERNELS: gpu_reduce::Kernels = <gpu_reduce::Sum as Op<T>>::KERNELS;

    fn identity(&self) -> u64 {
        0
    }

    fn lift(&self, _: T, _: u64) -> u64 {
        1
    }

    fn combine(&self, a: u64, b: u64) -> u64 {
        a + b
    }

    fn finish(&self, all: u64, _: u64) -> Option<u64> {
        Some(all)
    }
}

#[test]
fn an_operator_with_anothers_name_does_not_run_its_kernel() {
    for device in devices() {
        let x = device.upload(&[5i32; 1000]).unwrap();
        let counted = x.reduce::<Impostor, 256>();
        if device.is_cpu() {
            assert_eq!(counted, Ok(1000));
        } else {
            let error = counted.unwrap_err();
            assert!(matches!(&error, Error::NoKernel { kernel } if kernel.contains("Impostor")), "{error:?}");
            assert!(error.to_string().contains("gpu_reduce_kernels::kernels!"), "{error}");
        }
        assert_eq!(gpu_reduce::sum(&x), Ok(5000));
    }
}

/// The sum, and whether references to items are aligned, for items with an alignment larger than a cache
/// line.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
struct SumOfWide;

macro_rules! wide {
    ($($name:ident $align:literal $words:literal;)*) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
        #[repr(C, align($align))]
        struct $name([u64; $words]);

        impl Op<$name> for SumOfWide {
            const NAME: &'static str = "sum_of_wide";
            type Accumulator = u64;
            type Output = u64;
            const EXACT: bool = true;

            fn identity(&self) -> u64 {
                0
            }

            fn lift(&self, item: $name, _: u64) -> u64 {
                item.0.iter().sum()
            }

            fn combine(&self, a: u64, b: u64) -> u64 {
                a + b
            }

            fn finish(&self, all: u64, _: u64) -> Option<u64> {
                Some(all)
            }
        }

        impl $name {
            fn check() {
                for (rows, columns) in [(1, 3), (5, 3), (8, 8), (33, 7), (300, 5)] {
                    let of = |index: usize| Self([index as u64; $words]);
                    let items: Vec<_> = (0..rows * columns).map(of).collect();
                    let expected: Vec<u64> = (0..columns)
                        .map(|column| (0..rows).map(|row| (row * columns + column) as u64 * $words).sum())
                        .collect();
                    let sums = items.columns(columns).unwrap().reduce::<SumOfWide, 64>().unwrap();
                    assert_eq!(sums.to_vec().unwrap(), expected, "{rows} × {columns} of {}", $align);
                }
            }
        }
    )*};
}

wide! { Wide128 128 16; Wide256 256 32; Wide4096 4096 512; }

#[test]
fn columns_of_items_of_large_alignments() {
    Wide128::check();
    Wide256::check();
    Wide4096::check();
}
