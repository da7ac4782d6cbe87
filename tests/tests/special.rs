//! Values that break careless kernels: NaN, infinities, signed zeros, subnormals, extremes, overflow;
//! anywhere in inputs of any length, with every BLOCK, on every device.

use gpu_reduce::{Element, Error, Max, Min, Op, Prod, Reduce, Sum, bf16, f16};
use std::fmt::Debug;
use support::{devices, for_each_block};

/// Lengths that put `special` in the head, in whole rows, and in the last load, with other accumulators and
/// chunks beside it.
const LENGTHS: [usize; 7] = [1, 2, 31, 97, 1025, 70_001, 300_000];

/// The longest input that the emulator reduces.
const EMULATED: usize = 10_000;

/// Reduces inputs of many lengths, all `fill` except for one `special`, and expects `expected`.
fn expect<O: Op<T> + Default, T: Element>(fill: T, special: T, expected: O::Output) {
    for device in devices() {
        for len in LENGTHS.into_iter().filter(|&len| len <= EMULATED || !device.is_emulator()) {
            for place in [0, len / 2, len - 1] {
                let mut data = vec![fill; len + 1];
                data[1 + place] = special;
                let buffer = device.upload(&data).unwrap();
                let view = buffer.slice(1..).unwrap();
                for_each_block!(|BLOCK| {
                    let got = view.reduce::<O, BLOCK>().unwrap();
                    let case =
                        format!("{}_{}_{BLOCK}, {special} at {place} of {len}, {device}", O::NAME, T::NAME);
                    assert_same(got, expected, &case);
                });
            }
        }
    }
}

/// Panics unless equal. NaNs are equal, and zeros of different signs are not.
fn assert_same<V: Debug>(got: V, expected: V, case: &str) {
    assert_eq!(format!("{got:?}"), format!("{expected:?}"), "{case}");
}

macro_rules! floats {
    ($($name:ident: $type:ident $wide:ident, $convert:expr;)*) => {$(
        mod $name {
            use super::*;

            const INFINITY: $type = $type::INFINITY;
            const NAN: $type = $type::NAN;
            const MAX: $type = $type::MAX;

            fn of(value: f32) -> $type {
                $convert(value)
            }

            #[test]
            fn nan_propagates() {
                for nan in [NAN, -NAN, $type::from_bits(NAN.to_bits() | 1)] {
                    expect::<Sum, $type>(of(1.0), nan, $wide::NAN);
                    expect::<Prod, $type>(of(1.0), nan, $wide::NAN);
                    expect::<Min, $type>(-INFINITY, nan, NAN);
                    expect::<Max, $type>(INFINITY, nan, NAN);
                }
            }

            #[test]
            fn infinities_win() {
                expect::<Sum, $type>(of(1.0), -INFINITY, -$wide::INFINITY);
                expect::<Prod, $type>(of(1.0), -INFINITY, -$wide::INFINITY);
                expect::<Min, $type>(INFINITY, INFINITY, INFINITY);
                expect::<Min, $type>(-MAX, -INFINITY, -INFINITY);
                expect::<Max, $type>(-INFINITY, -INFINITY, -INFINITY);
                expect::<Max, $type>(MAX, INFINITY, INFINITY);
            }

            #[test]
            fn zeros_keep_their_sign() {
                expect::<Sum, $type>(of(-0.0), of(-0.0), -0.0);
                expect::<Prod, $type>(of(1.0), of(-0.0), -0.0);
                expect::<Min, $type>(of(0.0), of(-0.0), of(-0.0));
                expect::<Min, $type>(of(0.0), of(0.0), of(0.0));
                expect::<Max, $type>(of(-0.0), of(-0.0), of(-0.0));
                expect::<Max, $type>(of(-0.0), of(0.0), of(0.0));
            }

            #[test]
            fn subnormals_are_not_flushed() {
                let least = $type::from_bits(1);
                expect::<Sum, $type>(of(0.0), least, least.into());
                expect::<Prod, $type>(of(1.0), least, least.into());
                expect::<Min, $type>(of(0.0), -least, -least);
                expect::<Max, $type>(of(0.0), least, least);
            }

            #[test]
            fn opposite_infinities_make_nan() {
                for device in devices() {
                    let x = device.upload(&[INFINITY, of(1.0), -INFINITY]).unwrap();
                    for_each_block!(|BLOCK| {
                        let sum = x.reduce::<Sum, BLOCK>().unwrap();
                        // The same NaN on every device, whichever NaN its processor makes.
                        assert_eq!(sum.to_bits(), $wide::NAN.to_bits(), "{device}");
                    });
                }
            }
        }
    )*};
}

floats! {
    half: f16 f32, f16::from_f32;
    bfloat: bf16 f32, bf16::from_f32;
    single: f32 f32, |value| value;
    double: f64 f64, f64::from;
}

#[test]
fn sums_overflow_to_infinity() {
    for device in devices() {
        let x = device.upload(&[f32::MAX; 5000]).unwrap();
        let y = device.upload(&[f16::MAX; 5000]).unwrap();
        for_each_block!(|BLOCK| {
            assert_eq!(x.reduce::<Sum, BLOCK>(), Ok(f32::INFINITY), "{device}");
            assert_eq!(x.reduce::<Prod, BLOCK>(), Ok(f32::INFINITY), "{device}");
            // f16 accumulates in f32, which holds this sum.
            assert_eq!(y.reduce::<Sum, BLOCK>(), Ok(65504.0 * 5000.0), "{device}");
        });
    }
}

#[test]
fn integers_up_to_32_bits_do_not_overflow_and_64_wrap() {
    for device in devices() {
        let narrow = device.upload(&[i32::MIN; 70_001]).unwrap();
        let wide = device.upload(&[i64::MAX; 3]).unwrap();
        let unsigned = device.upload(&[u64::MAX; 70_001]).unwrap();
        for_each_block!(|BLOCK| {
            assert_eq!(narrow.reduce::<Sum, BLOCK>(), Ok(70_001 * i64::from(i32::MIN)), "{device}");
            assert_eq!(wide.reduce::<Sum, BLOCK>(), Ok(i64::MAX.wrapping_mul(3)), "{device}");
            assert_eq!(unsigned.reduce::<Sum, BLOCK>(), Ok(u64::MAX.wrapping_mul(70_001)), "{device}");
            assert_eq!(unsigned.reduce::<Prod, BLOCK>(), Ok(u64::MAX), "{device}");
        });
    }
}

#[test]
fn integer_extremes_are_found() {
    expect::<Min, i8>(i8::MAX, i8::MIN, i8::MIN);
    expect::<Max, i8>(i8::MIN, i8::MAX, i8::MAX);
    expect::<Max, i64>(i64::MIN, i64::MIN, i64::MIN);
    expect::<Min, u64>(u64::MAX, u64::MAX, u64::MAX);
    expect::<Min, u32>(u32::MAX, 0, 0);
}

#[test]
fn empty_inputs() {
    for device in devices() {
        let ints = device.upload::<i32>(&[]).unwrap();
        let floats = device.zeros::<f32>(10).unwrap();
        let none = floats.slice(10..).unwrap();
        assert!(ints.is_empty() && none.is_empty());
        assert_eq!(gpu_reduce::sum(&ints), Ok(0));
        assert_eq!(gpu_reduce::prod(&ints), Ok(1));
        assert_eq!(gpu_reduce::sum(&none).map(f32::to_bits), Ok(0), "an empty sum is +0");
        assert_eq!(gpu_reduce::prod(&none), Ok(1.0));
        assert_eq!(gpu_reduce::min(&ints), Err(Error::EmptyInput { op: "min" }));
        assert_eq!(gpu_reduce::max(&none), Err(Error::EmptyInput { op: "max" }));
        assert_eq!(ints.to_vec(), Ok(vec![]));
        // The device still works.
        assert_eq!(gpu_reduce::sum(&floats), Ok(0.0));
    }
}

/// Every bit pattern of the 16-bit floats widens and is ordered as it should be.
#[test]
fn all_16_bit_floats() {
    fn check<T: Element>(values: Vec<T>, wide: impl Fn(T) -> f32)
    where
        T::Wide: Into<f64>,
    {
        for device in devices() {
            // Each value alone, and its minimum and maximum with one. On a GPU each is a launch, so only some
            // values.
            let step = if device.is_cpu() { 1 } else { 257 };
            let buffer = device.upload(&values).unwrap();
            for (index, &value) in values.iter().enumerate().step_by(step) {
                let one = buffer.slice(index..index + 1).unwrap();
                let sum: f64 = one.reduce::<Sum, 32>().unwrap().into();
                assert_same(sum as f32, wide(value), &format!("{value:?} on {device}"));
                assert_same(one.reduce::<Min, 32>().unwrap(), value, &format!("{value:?} on {device}"));
                assert_same(one.reduce::<Max, 32>().unwrap(), value, &format!("{value:?} on {device}"));
            }
        }
    }
    check((0..=u16::MAX).map(f16::from_bits).collect(), f16::to_f32);
    check((0..=u16::MAX).map(bf16::from_bits).collect(), bf16::to_f32);
}
