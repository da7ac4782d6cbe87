//! `cvt` (PTX ISA, "Data Movement and Conversion Instructions: cvt").

use super::float::{Modifiers, ROUNDINGS, flush};
use crate::instructions::row::{Row, row};
use crate::instructions::value::{BFloat, Double, Exact, Half, Single, Two, Value};
use rustc_apfloat::ieee::{Float8E4M3FN, Float8E5M2};
use rustc_apfloat::{Float, FloatConvert, Round};

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    integers(&mut rows);
    floats_and_integers(&mut rows);
    floats(&mut rows);
    integral::<Single>(&mut rows, "f32", &[false, true], &[false, true]);
    integral::<Double>(&mut rows, "f64", &[false], &[false, true]);
    integral::<Half>(&mut rows, "f16", &[false], &[false, true]);
    integral::<BFloat>(&mut rows, "bf16", &[false], &[false]);
    pairs::<Half>(&mut rows, "f16x2");
    pairs::<BFloat>(&mut rows, "bf16x2");
    small::<Float8E4M3FN>(&mut rows, "e4m3x2");
    small::<Float8E5M2>(&mut rows, "e5m2x2");
    tf32(&mut rows);
    rows
}

/// Between integers: the low bits, extended; or clamped if a value may not fit.
fn integers(rows: &mut Vec<Row>) {
    macro_rules! to_each {
        ($from:ident $from_type:literal: $($to:ident $to_type:literal)*) => {$(
            rows.push(row(concat!("cvt.", $to_type, ".", $from_type), |a: $from| a as $to));
            let fits = i128::from($to::MIN) <= i128::from($from::MIN)
                && i128::from($from::MAX) <= i128::from($to::MAX);
            if !fits {
                rows.push(row(concat!("cvt.sat.", $to_type, ".", $from_type), |a: $from| {
                    i128::from(a).clamp($to::MIN.into(), $to::MAX.into()) as $to
                }));
            }
        )*};
    }
    macro_rules! from_each {
        ($($from:ident $ty:literal)*) => {$(
            to_each!($from $ty: u8 "u8" i8 "s8" u16 "u16" i16 "s16" u32 "u32" i32 "s32" u64 "u64" i64 "s64");
        )*};
    }
    from_each!(u8 "u8" i8 "s8" u16 "u16" i16 "s16" u32 "u32" i32 "s32" u64 "u64" i64 "s64");
}

const TO_INTEGER: [(&str, Round); 4] = [
    ("rni", Round::NearestTiesToEven),
    ("rzi", Round::TowardZero),
    ("rmi", Round::TowardNegative),
    ("rpi", Round::TowardPositive),
];

fn floats_and_integers(rows: &mut Vec<Row>) {
    macro_rules! each {
        ($float:ident $ty:literal $double:literal: $($int:ident $int_type:literal)*) => {$(
            for &(word, round) in &ROUNDINGS[1..] {
                for with in modifiers($ty) {
                    let name = format!("cvt{word}{}.{}.{}", with.words(), $ty, $int_type);
                    rows.push(row(name, move |a: $int| {
                        with.result($float::from_i128_r(a.into(), round).value)
                    }));
                }
            }
            for (word, round) in TO_INTEGER {
                for with in modifiers($ty) {
                    let name = format!("cvt.{word}{}.{}.{}", with.words(), $int_type, $ty);
                    rows.push(row(name, move |a: $float| {
                        // Zero, or only the top bit if either type has 64 bits.
                        if a.is_nan() {
                            return if $double || $int::BITS == 64 { 1 << ($int::BITS - 1) } else { 0 };
                        }
                        let bits = $int::BITS as usize;
                        let a = if with.ftz { flush(a) } else { a };
                        match i128::from($int::MIN) < 0 {
                            true => a.to_i128_r(bits, round, &mut false).value as $int,
                            false => a.to_u128_r(bits, round, &mut false).value as $int,
                        }
                    }));
                }
            }
        )*};
    }
    each!(Half "f16" false: u8 "u8" i8 "s8" u16 "u16" i16 "s16" u32 "u32" i32 "s32" u64 "u64" i64 "s64");
    each!(BFloat "bf16" false: u16 "u16" i16 "s16" u32 "u32" i32 "s32" u64 "u64" i64 "s64");
    each!(Single "f32" false: u8 "u8" i8 "s8" u16 "u16" i16 "s16" u32 "u32" i32 "s32" u64 "u64" i64 "s64");
    each!(Double "f64" true: u8 "u8" i8 "s8" u16 "u16" i16 "s16" u32 "u32" i32 "s32" u64 "u64" i64 "s64");
}

/// Returns the modifiers of conversions between integers and this type. Integers saturate with and without
/// `.sat`.
fn modifiers(ty: &str) -> Vec<Modifiers> {
    let ftz: &[bool] = if ty == "f32" { &[false, true] } else { &[false] };
    let sat: &[bool] = if ty == "bf16" { &[false] } else { &[false, true] };
    let all = ftz.iter().flat_map(|&ftz| sat.iter().map(move |&sat| Modifiers { ftz, sat, relu: false }));
    all.collect()
}

fn floats(rows: &mut Vec<Row>) {
    // A wider format represents every value exactly. `.ftz` exists only if a type is f32.
    between::<Half, Single>(rows, ".f32.f16", false, &["", ".ftz", ".sat", ".ftz.sat"]);
    between::<Half, Double>(rows, ".f64.f16", false, &["", ".sat"]);
    between::<Single, Double>(rows, ".f64.f32", false, &["", ".ftz", ".sat", ".ftz.sat"]);
    between::<BFloat, Double>(rows, ".f64.bf16", false, &[""]);
    between::<Half, Half>(rows, ".f16.f16", false, &["", ".sat"]);
    between::<BFloat, BFloat>(rows, ".bf16.bf16", false, &[""]);
    between::<Single, Single>(rows, ".f32.f32", false, &[".ftz", ".sat", ".ftz.sat"]);
    between::<Double, Double>(rows, ".f64.f64", false, &[".sat"]);
    between::<Single, Half>(rows, ".f16.f32", true, &["", ".ftz", ".sat", ".ftz.sat", ".relu"]);
    between::<Single, BFloat>(rows, ".bf16.f32", true, &["", ".ftz", ".relu"]);
    between::<Double, Single>(rows, ".f32.f64", true, &["", ".ftz", ".sat", ".ftz.sat"]);
    between::<Double, Half>(rows, ".f16.f64", true, &["", ".sat"]);
    between::<Double, BFloat>(rows, ".bf16.f64", true, &[""]);
    between::<Half, BFloat>(rows, ".bf16.f16", true, &[""]);
    between::<BFloat, Half>(rows, ".f16.bf16", true, &[""]);
    // These move bits, also those of a NaN.
    rows.extend([
        row("cvt.f32.bf16", |a: u16| u32::from(a) << 16),
        row("cvt.f32.f32", |a: u32| a),
        row("cvt.f64.f64", |a: u64| a),
    ]);
}

/// From one format to another; with every rounding mode if it `narrows`.
fn between<From, To>(rows: &mut Vec<Row>, types: &'static str, narrows: bool, modifiers: &[&str])
where
    From: Float + FloatConvert<To> + Value + 'static,
    To: Float + Value + 'static,
    Exact<To>: Value,
{
    for &(word, round) in if narrows { &ROUNDINGS[1..] } else { &ROUNDINGS[..1] } {
        for &words in modifiers {
            let with = Modifiers {
                ftz: words.contains("ftz"),
                sat: words.contains("sat"),
                relu: words.contains("relu"),
            };
            // `.relu` is only allowed with `.rn` and `.rz`.
            if with.relu && matches!(word, ".rm" | ".rp") {
                continue;
            }
            // `.ftz` flushes f32 sources and results; on an H200, not the source of a conversion to f16.
            let enter = Modifiers { ftz: with.ftz && types.ends_with(".f32") && types != ".f16.f32", ..with };
            let leave = Modifiers { ftz: with.ftz && types.starts_with(".f32"), ..with };
            rows.push(row(format!("cvt{word}{words}{types}"), move |a: From| {
                let a = enter.source(a);
                let result = leave.rounded(|power| a.scalbn(power).convert_r(round, &mut false).value);
                // A NaN result of f64 keeps the source's sign and fraction on an H200; the ISA defines no
                // bits.
                Exact(if types.ends_with(".f64") { result } else { To::from_register(result.to_register()) })
            }));
        }
    }
}

/// Rounds to an integer within a format.
fn integral<F: Float + Value + 'static>(rows: &mut Vec<Row>, ty: &str, ftz: &[bool], sat: &[bool]) {
    for (word, round) in TO_INTEGER {
        for &ftz in ftz {
            for &sat in sat {
                let with = Modifiers { ftz, sat, relu: false };
                rows.push(row(format!("cvt.{word}{}.{ty}.{ty}", with.words()), move |a: F| {
                    with.result(with.source(a).round_to_integral(round).value)
                }));
            }
        }
    }
}

/// Packs two numbers into a register; the first becomes the upper half.
fn pairs<F: Float + Value + 'static>(rows: &mut Vec<Row>, ty: &str)
where
    Single: FloatConvert<F>,
    Two<F>: Value,
{
    for &(word, round) in &ROUNDINGS[1..3] {
        for relu in [false, true] {
            let with = Modifiers { relu, ..Modifiers::default() };
            rows.push(row(format!("cvt{word}{}.{ty}.f32", with.words()), move |a: Single, b: Single| {
                let part = |value: Single| with.result(value.convert_r(round, &mut false).value);
                Two(part(b), part(a))
            }));
        }
    }
}

/// Two 8-bit floats, clamped to their greatest numbers.
fn small<F>(rows: &mut Vec<Row>, ty: &str)
where
    Single: FloatConvert<F>,
    Half: FloatConvert<F>,
    F: Float + FloatConvert<Half> + 'static,
{
    fn byte<From: FloatConvert<F>, F: Float>(value: From, relu: bool) -> u16 {
        if value.is_nan() {
            return 0x7f;
        }
        if value.is_negative() && relu {
            return 0;
        }
        let rounded: F = value.convert_r(Round::NearestTiesToEven, &mut false).value;
        let greatest = F::largest();
        let greatest = if value.is_negative() { -greatest } else { greatest };
        let bits = if rounded.is_finite() { rounded } else { greatest };
        bits.to_bits() as u16
    }
    for relu in [false, true] {
        let words = if relu { ".relu" } else { "" };
        rows.push(row(format!("cvt.rn.satfinite{words}.{ty}.f32"), move |a: Single, b: Single| {
            byte::<_, F>(a, relu) << 8 | byte::<_, F>(b, relu)
        }));
        rows.push(row(format!("cvt.rn.satfinite{words}.{ty}.f16x2"), move |a: Two<Half>| {
            byte::<_, F>(a.1, relu) << 8 | byte::<_, F>(a.0, relu)
        }));
        rows.push(row(format!("cvt.rn{words}.f16x2.{ty}"), move |a: u16| {
            let half = |byte: u16| {
                let wide: Half = F::from_bits(byte.into()).convert(&mut false).value;
                let is_cut = relu && wide.is_negative() && !wide.is_nan();
                if is_cut { Half::from_bits(0) } else { wide }
            };
            Two(half(a & 0xff), half(a >> 8))
        }));
    }
}

/// Ten bits of fraction, computed in `f64`.
fn tf32(rows: &mut Vec<Row>) {
    // NaNs are those of an H200.
    let rounded = |a: u32, round: fn(f64) -> f64, clamps: bool, relu: bool| {
        let value = f32::from_bits(a);
        if value.is_nan() && round(0.5) == 1.0 {
            let cut = a & 0xffff_e000;
            return if clamps { cut - 0x2000 } else { cut };
        }
        if value.is_nan() {
            return 0x7fff_e000;
        }
        if relu && value.is_sign_negative() {
            return 0;
        }
        let greatest = f32::from_bits(0x7f7f_e000);
        let exponent = ((a >> 23 & 0xff) as i32).max(1) - 127;
        let unit = 2f64.powi(exponent - 10);
        let result = if value.is_infinite() { value } else { (round(f64::from(value) / unit) * unit) as f32 };
        if clamps { result.clamp(-greatest, greatest).to_bits() } else { result.to_bits() }
    };
    for clamps in [false, true] {
        let words = if clamps { ".satfinite" } else { "" };
        rows.push(row(format!("cvt.rna{words}.tf32.f32"), move |a: u32| {
            rounded(a, f64::round, clamps, false)
        }));
    }
    for relu in [false, true] {
        let words = if relu { ".relu" } else { "" };
        rows.push(row(format!("cvt.rn{words}.tf32.f32"), move |a: u32| {
            rounded(a, f64::round_ties_even, false, relu)
        }));
        rows.push(row(format!("cvt.rz{words}.tf32.f32"), move |a: u32| rounded(a, f64::trunc, false, relu)));
    }
}
