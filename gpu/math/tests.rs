//! Results are as near to the exact ones as the table in the documentation of the module says.

use super::*;
use std::{format, println, vec::Vec};

/// The columns of the table.
#[derive(Clone, Copy)]
enum Column {
    F32 = 2,
    F64 = 3,
}

/// The largest error of a function that the table gives, in ulps.
fn bound(name: &str, column: Column) -> f64 {
    let row = format!("//! | `{name}` |");
    let line = include_str!("../math.rs").lines().find(|line| line.starts_with(&row)).expect(name);
    line.split('|').nth(column as usize).unwrap().trim().parse().expect(line)
}

/// A function of one argument for each type, and its `f64` reference: the C library's, which is right to
/// 2^-28 ulps of `f32`.
type Row = (&'static str, fn(f32) -> f32, fn(f16) -> f16, fn(bf16) -> bf16, fn(f64) -> f64);

const ROWS: [Row; 9] = [
    ("exp", exp, exp, exp, f64::exp),
    ("exp2", exp2, exp2, exp2, f64::exp2),
    ("ln", ln, ln, ln, f64::ln),
    ("log2", log2, log2, log2, f64::log2),
    ("log10", log10, log10, log10, f64::log10),
    ("sin", sin, sin, sin, f64::sin),
    ("cos", cos, cos, cos, f64::cos),
    ("tan", tan, tan, tan, f64::tan),
    ("tanh", tanh, tanh, tanh, f64::tanh),
];

/// The distance of `got` from `exact` in units of the last place, in a format whose mantissa has `bits` bits
/// and whose exponents are `from` to `to`. Infinity stands for the next power of two.
fn error(got: f64, exact: f64, bits: i32, [from, to]: [i32; 2]) -> f64 {
    if got.is_nan() || exact.is_nan() {
        return if got.is_nan() && exact.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let most = 2f64.powi(to + 1);
    let [got, exact] = [got, exact].map(|value| value.clamp(-most, most));
    let exponent = (exact.abs().to_bits() >> 52) as i32 - 1023;
    (got - exact).abs() / 2f64.powi(exponent.clamp(from, to) - bits)
}

fn error_f32(got: f32, exact: f64) -> f64 {
    error(got.into(), exact, 23, [-126, 127])
}

/// Checks the functions of one argument with the `f32` of every `step`-th bit pattern, each function in a
/// thread.
fn check_f32(step: usize) {
    let check = |(name, function, _, _, exact): Row| {
        let (mut most, mut of) = (0.0, 0.0);
        for x in (0..=u32::MAX).step_by(step).map(f32::from_bits) {
            let wrong = error_f32(function(x), exact(x.into()));
            if wrong > most {
                (most, of) = (wrong, x);
            }
        }
        println!("{name}: {most:.4} ulp, of {of:e}");
        assert!(most <= bound(name, Column::F32), "{name}({of:e}) is wrong by {most} ulp");
    };
    std::thread::scope(|scope| {
        ROWS.map(|row| scope.spawn(move || check(row))).map(|thread| thread.join().unwrap())
    });
}

#[test]
fn f32_is_near() {
    check_f32(65_519);
    check_f32_of_two(100_000);
}

/// The measurement that the documentation cites; `check_f32(1)` would be all arguments:
///
/// ```text
/// cargo test --release -p gpu_reduce_kernels --lib -- --ignored --nocapture many_f32
/// ```
#[test]
#[ignore = "takes 20 s"]
fn many_f32_are_near() {
    check_f32(127);
    check_f32_of_two(1 << 24);
}

/// All arguments.
#[test]
fn halves_are_nearly_correctly_rounded() {
    for (name, _, of_f16, of_bf16, exact) in ROWS {
        for bits in 0..=u16::MAX {
            let (x, y) = (f16::from_bits(bits), bf16::from_bits(bits));
            let of_x = error(of_f16(x).into(), exact(x.into()), 10, [-14, 15]);
            let of_y = error(of_bf16(y).into(), exact(y.into()), 7, [-126, 127]);
            assert!(of_x.max(of_y) <= 0.501, "{name}({x:e}), {name}({y:e}): {of_x}, {of_y}");
        }
    }
}

/// Checks the functions of two arguments with random finite numbers: those below 2, and those from 1/8 to 16.
fn check_f32_of_two(count: u64) {
    type Row = (&'static str, fn(f32, f32) -> f32, fn(f64, f64) -> f64);
    let rows: [Row; 3] =
        [("powf", powf, f64::powf), ("hypot", hypot, f64::hypot), ("atan2", atan2, f64::atan2)];
    for (name, function, exact) in rows {
        let mut most = (0.0, 0.0, 0.0);
        for index in 0..count {
            let hash = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let hash = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let [x, y] = [hash as u32, (hash >> 32) as u32].map(|bits| match index % 2 {
                0 => f32::from_bits(bits & 0xbfff_ffff), // below 2 in magnitude
                _ => f32::from_bits(bits & 0x83ff_ffff | 0x3e00_0000), // 2^-3 to 2^4
            });
            let x = if name == "powf" { x.abs() } else { x };
            let wrong = error_f32(function(x, y), exact(x.into(), y.into()));
            if wrong > most.0 {
                most = (wrong, x, y);
            }
        }
        println!("{name}: {most:?}");
        assert!(most.0 <= bound(name, Column::F32), "{name}: {most:?}");
    }
}

/// Arguments whose exact results `exact.txt` has: the ten that were the worst of 1,500,000 for each function,
/// and random ones. Each line has a function, two arguments, the nearest `f64` to the exact result, and the
/// rest in ulps, from 200 bits of mpmath.
#[test]
fn f64_is_near() {
    type Of = fn(f64, f64) -> f64;
    let functions: [(&str, Of); 12] = [
        ("exp", |x, _| exp(x)),
        ("exp2", |x, _| exp2(x)),
        ("ln", |x, _| ln(x)),
        ("log2", |x, _| log2(x)),
        ("log10", |x, _| log10(x)),
        ("sin", |x, _| sin(x)),
        ("cos", |x, _| cos(x)),
        ("tan", |x, _| tan(x)),
        ("tanh", |x, _| tanh(x)),
        ("powf", powf),
        ("hypot", hypot),
        ("atan2", atan2),
    ];
    for line in include_str!("exact.txt").lines() {
        let [name, x, y, nearest, rest] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let [x, y, nearest] =
            [x, y, nearest].map(|bits| f64::from_bits(u64::from_str_radix(bits, 16).unwrap()));
        let got = functions.iter().find(|(of, _)| *of == name).unwrap().1(x, y);
        let ulps = got.to_bits().wrapping_sub(nearest.to_bits()) as i64 as f64;
        let rest: f64 = rest.parse().unwrap();
        // Bits of negative numbers grow with the magnitude.
        let wrong = (ulps - rest.copysign(rest * nearest)).abs();
        assert!(wrong <= bound(name, Column::F64), "{name}({x:e}, {y:e}) is {got:e}, wrong by {wrong} ulp");
    }
}

/// What IEEE 754 defines.
#[test]
fn exact_functions() {
    let special =
        [0.0, 0.5, 1.5, 2.5, 0.499_999_97, 8_388_609.0, 1e30, f32::MAX, f32::INFINITY, f32::NAN, 1e-45];
    let random = (0..=u32::MAX).step_by(65_519).map(f32::from_bits);
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    for x in special.into_iter().flat_map(|x| [x, -x]).chain(random) {
        assert!(same(round(x), x.round()) && same(round_ties_even(x), x.round_ties_even()), "{x:e}");
        assert!(same(floor(x), x.floor()) && same(ceil(x), x.ceil()) && same(trunc(x), x.trunc()), "{x:e}");
        assert!(same(sqrt(x), f64::from(x).sqrt() as f32) && same(abs(x), x.abs()), "{x:e}");
        assert!(same(min(x, f32::NAN), x) && same(max(f32::NAN, x), x), "{x:e}");
        let y = f64::from(x) + 0.25;
        assert!(same(round(y) as f32, y.round() as f32) && same(sqrt(y * y) as f32, y.abs() as f32), "{x:e}");
    }
    for zeros in [[0.0, -0.0], [-0.0, 0.0]] {
        let [a, b]: [f64; 2] = zeros;
        assert!(min(a, b).is_sign_negative() && max(a, b).is_sign_positive());
    }
    assert_eq!(
        mul_add(f32::EPSILON + 1.0, f32::EPSILON + 1.0, -1.0 - 2.0 * f32::EPSILON),
        f32::EPSILON.powi(2)
    );
}

#[test]
fn special_arguments() {
    const NAN: f64 = f64::NAN;
    const INFINITY: f64 = f64::INFINITY;
    assert_eq!([powf(1.0, NAN), powf(NAN, 0.0), hypot(-INFINITY, NAN)], [1.0, 1.0, INFINITY]);
    assert_eq!([ln(0.0), log2(-0.0), exp(-INFINITY), exp(INFINITY)], [-INFINITY, -INFINITY, 0.0, INFINITY]);
    for nan in
        [sqrt(-1.0), ln(-1.0), log10(-1.0), sin(INFINITY), cos(-INFINITY), tan(INFINITY), powf(-1.0, 0.5)]
    {
        assert!(nan.is_nan());
    }
    for nan in
        [exp(NAN), tanh(NAN), powf(NAN, 1.0), atan2(NAN, 1.0), mul_add(0.0, NAN, 1.0), round(NAN), abs(NAN)]
    {
        assert!(nan.is_nan());
    }
}

#[test]
fn powers_multiply_in_a_fixed_order() {
    for x in [1.1f32, -0.3, 7.25, 1e-3] {
        assert_eq!(powi(x, 11), x * (x * x) * ((x * x) * (x * x) * ((x * x) * (x * x))));
        assert_eq!(powi(x, -2), 1.0 / (x * x));
        for n in -12..=12 {
            let wrong = error_f32(powi(x, n), f64::from(x).powi(n));
            assert!(wrong <= f64::from(n.abs()), "{x}^{n} is wrong by {wrong} ulp");
        }
    }
    assert_eq!((powi(f64::NAN, 0), powi(2.0, i32::MIN), powi(1.0, i32::MAX)), (1.0, 0.0, 1.0));
}
