//! Operators that a program writes itself: right on the CPU whatever their accumulator, refused on a GPU that has no kernel
//! of theirs.

mod support;

use gpu_reduce::{Element, Error, Op, Reduce};
use support::devices;

/// Whether there is a NaN, in a byte. Not `EXACT`, so that it folds by rows, of which a strip of bytes is longer than some.
enum HasNan {}

impl Op<f64> for HasNan {
    const NAME: &'static str = "has_nan";
    type Accumulator = u8;
    type Output = u8;
    const IDENTITY: u8 = 0;
    const EXACT: bool = false;
    const EMPTY: Option<u8> = Some(0);

    fn lift(element: f64) -> u8 {
        element.is_nan().into()
    }

    fn combine(a: u8, b: u8) -> u8 {
        a | b
    }

    fn finish(accumulator: u8) -> u8 {
        accumulator
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

/// The number of elements, under the name of another operator.
enum Impostor {}

impl<T: Element> Op<T> for Impostor {
    const NAME: &'static str = "sum";
    type Accumulator = u64;
    type Output = u64;
    const IDENTITY: u64 = 0;
    const EXACT: bool = true;
    const EMPTY: Option<u64> = Some(0);

    fn lift(_: T) -> u64 {
        1
    }

    fn combine(a: u64, b: u64) -> u64 {
        a + b
    }

    fn finish(accumulator: u64) -> u64 {
        accumulator
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
            assert_eq!(counted, Err(Error::NoKernel { kernel: "sum_i32_256".to_owned() }));
        }
        assert_eq!(gpu_reduce::sum(&x), Ok(5000));
    }
}
