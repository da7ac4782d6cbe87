//! Floating-point arithmetic (PTX ISA, "Floating-Point Instructions", "Half Precision Floating-Point
//! Instructions").

use crate::instructions::row::{Near, Row, near, row};
use crate::instructions::value::{BFloat, Double, Half, Single, Two, Value};
use rustc_apfloat::{ExpInt, Float, Round};
use std::ops::Neg;

/// The rounding modes; to nearest if none is named.
pub const ROUNDINGS: [(&str, Round); 5] = [
    ("", Round::NearestTiesToEven),
    (".rn", Round::NearestTiesToEven),
    (".rz", Round::TowardZero),
    (".rm", Round::TowardNegative),
    (".rp", Round::TowardPositive),
];

/// `.ftz`: a subnormal becomes a zero of the same sign.
pub fn flush<F: Float>(a: F) -> F {
    if a.is_denormal() { F::ZERO.copy_sign(a) } else { a }
}

/// Modifiers that change operands or results.
#[derive(Clone, Copy, Default)]
pub struct Modifiers {
    pub ftz: bool,
    pub sat: bool,
    pub relu: bool,
}

impl Modifiers {
    pub fn source<F: Float>(self, a: F) -> F {
        if self.ftz { flush(a) } else { a }
    }

    pub fn result<F: Float>(self, a: F) -> F {
        let a = self.source(a);
        let one = F::from_u128(1).value;
        match () {
            () if self.sat && a > one => one,
            // NaN and -0 are also clamped to +0.
            () if self.sat => {
                if a > F::ZERO {
                    a
                } else {
                    F::ZERO
                }
            }
            () if self.relu && a.is_negative() && !a.is_nan() => F::ZERO,
            () => a,
        }
    }

    /// Returns the result of an operation that scales by a power of two before it rounds.
    ///
    /// `.ftz` flushes a result that would be below the least normal number if it were rounded without a lower
    /// exponent limit. PTX leaves this open; an H200 does it.
    pub fn rounded<F: Float>(self, operation: impl Fn(ExpInt) -> F) -> F {
        let result = operation(0);
        // Near the least normal number, twice the result is rounded to full precision.
        let below = operation(1).abs() < F::smallest_normalized().scalbn(1);
        self.result(if self.ftz && below { F::ZERO.copy_sign(result) } else { result })
    }

    fn binary<F: Float>(self, operation: Binary<F>, round: Round, a: F, b: F) -> F {
        let (a, b) = (self.source(a), self.source(b));
        self.rounded(|power| operation(a, b, power, round))
    }

    fn fused<F: Float>(self, round: Round, a: F, b: F, c: F) -> F {
        let [a, b, c] = [a, b, c].map(|value| self.source(value));
        self.rounded(|power| a.scalbn(power).mul_add_r(b, c.scalbn(power), round).value)
    }

    /// Returns the words in an instruction.
    pub fn words(self) -> String {
        [(self.ftz, ".ftz"), (self.relu, ".relu"), (self.sat, ".sat")]
            .iter()
            .filter_map(|&(given, word)| given.then_some(word))
            .collect()
    }
}

const PLAIN: Modifiers = Modifiers { ftz: false, sat: false, relu: false };
const FTZ: Modifiers = Modifiers { ftz: true, ..PLAIN };
const SAT: Modifiers = Modifiers { sat: true, ..PLAIN };
const FTZ_SAT: Modifiers = Modifiers { ftz: true, sat: true, relu: false };
const RELU: Modifiers = Modifiers { relu: true, ..PLAIN };
const FTZ_RELU: Modifiers = Modifiers { ftz: true, sat: false, relu: true };

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let all = [PLAIN, FTZ, SAT, FTZ_SAT];
    arithmetic::<Single>(&mut rows, "f32", &ROUNDINGS, &all);
    arithmetic::<Double>(&mut rows, "f64", &ROUNDINGS, &[PLAIN]);
    fused::<Single>(&mut rows, "f32", &["mad", "fma"], &ROUNDINGS[1..], &all);
    fused::<Double>(&mut rows, "f64", &["mad", "fma"], &ROUNDINGS[1..], &[PLAIN]);
    quotients::<Single>(&mut rows, "f32", &[PLAIN, FTZ]);
    quotients::<Double>(&mut rows, "f64", &[PLAIN]);
    roots(&mut rows);
    signs::<Single>(&mut rows, "f32", &[PLAIN, FTZ]);
    signs::<Double>(&mut rows, "f64", &[PLAIN]);
    extremes::<Single>(&mut rows, "f32", &["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"], &[PLAIN, FTZ]);
    extremes::<Double>(&mut rows, "f64", &[""], &[PLAIN]);
    half::<Half>(&mut rows, "f16", &all, &[PLAIN, FTZ, SAT, FTZ_SAT, RELU, FTZ_RELU]);
    half::<BFloat>(&mut rows, "bf16", &[PLAIN], &[PLAIN, RELU]);
    approximations(&mut rows);
    rows
}

/// An operation on two numbers whose result is scaled by a power of two and rounded.
type Binary<F> = fn(F, F, ExpInt, Round) -> F;

fn sums_and_products<F: Float>() -> [(&'static str, Binary<F>); 3] {
    [
        ("add", |a, b, power, round| a.scalbn(power).add_r(b.scalbn(power), round).value),
        ("sub", |a, b, power, round| a.scalbn(power).sub_r(b.scalbn(power), round).value),
        ("mul", |a, b, power, round| a.scalbn(power).mul_r(b, round).value),
    ]
}

fn arithmetic<F: Float + Value + Sync + 'static>(
    rows: &mut Vec<Row>,
    ty: &str,
    roundings: &[(&str, Round)],
    modifiers: &[Modifiers],
) {
    for (name, operation) in sums_and_products::<F>() {
        for &(word, round) in roundings {
            for &with in modifiers {
                rows.push(row(format!("{name}{word}{}.{ty}", with.words()), move |a: F, b: F| {
                    with.binary(operation, round, a, b)
                }));
            }
        }
    }
}

fn fused<F: Float + Value + Sync + 'static>(
    rows: &mut Vec<Row>,
    ty: &str,
    names: &[&str],
    roundings: &[(&str, Round)],
    modifiers: &[Modifiers],
) {
    for name in names {
        for &(word, round) in roundings {
            for &with in modifiers {
                rows.push(row(format!("{name}{word}{}.{ty}", with.words()), move |a: F, b: F, c: F| {
                    with.fused(round, a, b, c)
                }));
            }
        }
    }
}

/// `div` and `rcp`, rounded.
fn quotients<F: Float + Value + Sync + 'static>(rows: &mut Vec<Row>, ty: &str, modifiers: &[Modifiers]) {
    let quotient: Binary<F> = |a, b, power, round| a.scalbn(power).div_r(b, round).value;
    for &(word, round) in &ROUNDINGS[1..] {
        for &with in modifiers {
            rows.push(row(format!("div{word}{}.{ty}", with.words()), move |a: F, b: F| {
                with.binary(quotient, round, a, b)
            }));
            rows.push(row(format!("rcp{word}{}.{ty}", with.words()), move |a: F| {
                with.binary(quotient, round, F::from_u128(1).value, a)
            }));
        }
    }
}

/// `sqrt`, rounded: the host's root to nearest, or its neighbour if its square is on the wrong side.
fn roots(rows: &mut Vec<Row>) {
    fn single(a: f32, round: Round) -> f32 {
        let root = a.sqrt();
        // The square is exact in 64 bits.
        neighbour(root.into(), f64::from(root) * f64::from(root) - f64::from(a), round, |up| {
            if up { root.next_up() } else { root.next_down() }.into()
        }) as f32
    }
    fn double(a: f64, round: Round) -> f64 {
        // Scaled by an even power of two, so that the error of the square is not subnormal.
        let scaled = if a < 1e-200 { a * 2f64.powi(600) } else { a };
        let scale = if a < 1e-200 { 2f64.powi(-300) } else { 1.0 };
        let root = scaled.sqrt();
        let root = neighbour(root, root.mul_add(root, -scaled), round, |up| {
            if up { root.next_up() } else { root.next_down() }
        });
        root * scale
    }
    fn neighbour(root: f64, excess: f64, round: Round, next: impl Fn(bool) -> f64) -> f64 {
        match round {
            Round::TowardPositive if excess < 0.0 && root.is_finite() => next(true),
            Round::TowardZero | Round::TowardNegative if excess > 0.0 && root.is_finite() => next(false),
            _ => root,
        }
    }
    for &(word, round) in &ROUNDINGS[1..] {
        for with in [PLAIN, FTZ] {
            rows.push(row(format!("sqrt{word}{}.f32", with.words()), move |a: Single| {
                let a = f32::from_bits(with.source(a).to_register() as u32);
                Single::from_register(single(a, round).to_bits().into())
            }));
        }
        rows.push(row(format!("sqrt{word}.f64"), move |a: Double| {
            Double::from_register(double(f64::from_bits(a.to_register()), round).to_bits())
        }));
    }
}

fn signs<F: Float + Value + Sync + 'static>(rows: &mut Vec<Row>, ty: &str, modifiers: &[Modifiers]) {
    for &with in modifiers {
        rows.push(row(format!("abs{}.{ty}", with.words()), move |a: F| with.source(a).abs()));
        rows.push(row(format!("neg{}.{ty}", with.words()), move |a: F| -with.source(a)));
    }
}

/// `min` and `max`: -0 is less than +0, and a number wins over a NaN, unless `.NaN` is given.
fn extreme<F: Float>(a: F, b: F, greater: bool, words: &str) -> F {
    let sign = a.is_negative() != b.is_negative();
    let xorsign = words.contains(".xorsign");
    let (a, b) = if xorsign { (a.abs(), b.abs()) } else { (a, b) };
    let chosen = match (a.is_nan(), b.is_nan()) {
        (false, false) => {
            let a_is_less = a < b || a == b && a.is_negative();
            if a_is_less != greater { a } else { b }
        }
        (true, true) => return F::NAN,
        _ if words.contains(".NaN") => return F::NAN,
        (true, false) => b,
        (false, true) => a,
    };
    if xorsign && sign != chosen.is_negative() { -chosen } else { chosen }
}

fn extremes<F: Float + Value + Sync + 'static>(
    rows: &mut Vec<Row>,
    ty: &str,
    words: &[&'static str],
    modifiers: &[Modifiers],
) {
    for (name, greater) in [("min", false), ("max", true)] {
        for &with in modifiers {
            for &word in words {
                rows.push(row(format!("{name}{}{word}.{ty}", with.words()), move |a: F, b: F| {
                    extreme(with.source(a), with.source(b), greater, word)
                }));
            }
        }
    }
}

/// 16-bit formats, with one and two values per register.
fn half<F>(rows: &mut Vec<Row>, ty: &str, modifiers: &[Modifiers], fused_modifiers: &[Modifiers])
where
    F: Float + Value + Sync + Neg<Output = F> + 'static,
    Two<F>: Value,
{
    let flushing: Vec<Modifiers> = modifiers.iter().copied().filter(|with| !with.sat).collect();
    let words = ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"];
    arithmetic::<F>(rows, ty, &ROUNDINGS[..2], modifiers);
    fused::<F>(rows, ty, &["fma"], &ROUNDINGS[1..2], fused_modifiers);
    signs::<F>(rows, ty, &flushing);
    extremes::<F>(rows, ty, &words, &flushing);

    let round = Round::NearestTiesToEven;
    for (name, operation) in sums_and_products::<F>() {
        for &(word, _) in &ROUNDINGS[..2] {
            for &with in modifiers {
                rows.push(row(
                    format!("{name}{word}{}.{ty}x2", with.words()),
                    move |a: Two<F>, b: Two<F>| {
                        let part = |a: F, b: F| with.binary(operation, round, a, b);
                        Two(part(a.0, b.0), part(a.1, b.1))
                    },
                ));
            }
        }
    }
    for &with in fused_modifiers {
        rows.push(row(format!("fma.rn{}.{ty}x2", with.words()), move |a: Two<F>, b: Two<F>, c: Two<F>| {
            let part = |a: F, b: F, c: F| with.fused(round, a, b, c);
            Two(part(a.0, b.0, c.0), part(a.1, b.1, c.1))
        }));
    }
    for with in flushing {
        rows.push(row(format!("abs{}.{ty}x2", with.words()), move |a: Two<F>| {
            Two(with.source(a.0).abs(), with.source(a.1).abs())
        }));
        rows.push(row(format!("neg{}.{ty}x2", with.words()), move |a: Two<F>| {
            Two(-with.source(a.0), -with.source(a.1))
        }));
        for (name, greater) in [("min", false), ("max", true)] {
            for word in words {
                rows.push(row(
                    format!("{name}{}{word}.{ty}x2", with.words()),
                    move |a: Two<F>, b: Two<F>| {
                        let part = |a: F, b: F| extreme(with.source(a), with.source(b), greater, word);
                        Two(part(a.0, b.0), part(a.1, b.1))
                    },
                ));
            }
        }
    }
}

/// Approximate functions, within the errors that the ISA states.
fn approximations(rows: &mut Vec<Row>) {
    for (words, least) in [("", LEAST_F32), (".ftz", NORMAL_F32)] {
        let flush = move |a: f64| if a.abs() < least { 0f64.copysign(a) } else { a };
        let mut function = |name: &str, exact: fn(f64) -> f64, error: fn(f64) -> Option<(f64, f64)>| {
            rows.push(near::<Single>(format!("{name}.approx{words}.f32"), 1, move |sources| {
                let a = flush(sources[0]);
                error(a).map(|(relative, absolute)| Near::new(exact(a), relative, absolute + least))
            }));
        };
        function("rcp", f64::recip, |_: f64| Some((ulps(1.0), 0.0)));
        function("sqrt", f64::sqrt, |_| Some((ulps(1.0), 0.0)));
        function("rsqrt", |a| a.sqrt().recip(), |_| Some(((-22.9f64).exp2(), 0.0)));
        function("sin", f64::sin, angle_error);
        function("cos", f64::cos, angle_error);
        function("ex2", f64::exp2, |_| Some((ulps(2.0), 0.0)));
        function("lg2", f64::log2, |a| match a {
            0.5..=2.0 => Some((0.0, ulps(2.0))),
            _ => Some((ulps(2.0), 0.0)),
        });
        if words.is_empty() {
            function("tanh", f64::tanh, |_| Some(((-11f64).exp2(), 0.0)));
        }
        rows.push(near::<Single>(format!("div.full{words}.f32"), 2, move |sources| {
            Some(Near::new(flush(sources[0]) / flush(sources[1]), ulps(2.0), least))
        }));
        // Nothing is guaranteed for other divisors.
        rows.push(near::<Single>(format!("div.approx{words}.f32"), 2, move |sources| {
            let (a, b) = (flush(sources[0]), flush(sources[1]));
            let promised = (NORMAL_F32..=NORMAL_F32.recip()).contains(&b.abs());
            promised.then(|| Near::new(a / b, ulps(2.0), least))
        }));
    }
    half_approximations::<Half>(rows, "f16", "", ((-9.9f64).exp2(), LEAST_F16), (-10.987f64).exp2());
    // The ISA states 2^-8 for `tanh`. For 0.746, an H200's error is 2.5e-7 more: 0.62890625 instead of
    // 0.63281275.
    let tanh_error = (-8f64).exp2() + (-21f64).exp2();
    half_approximations::<BFloat>(rows, "bf16", ".ftz", ((-7f64).exp2(), NORMAL_F32), tanh_error);

    // The ISA states no error here, only 20 bits of fraction; it ignores the lower bits of a NaN.
    let gross = (-18f64).exp2();
    for (name, exact) in [("rcp", f64::recip as fn(f64) -> f64), ("rsqrt", |a| a.sqrt().recip())] {
        rows.push(near::<Double>(format!("{name}.approx.ftz.f64"), 1, move |sources| {
            let a = if sources[0].is_subnormal() { 0f64.copysign(sources[0]) } else { sources[0] };
            (!a.is_nan()).then(|| Near::new(exact(a), gross, f64::MIN_POSITIVE))
        }));
    }
    rows.push(near::<Double>("rsqrt.approx.f64", 1, move |sources| {
        Some(Near::new(sources[0].sqrt().recip(), gross, 0.0))
    }));
}

/// The least normal number of f32 and bf16, then the least subnormal numbers of f32 and f16.
const NORMAL_F32: f64 = f32::MIN_POSITIVE as f64;
const LEAST_F32: f64 = NORMAL_F32 / (1u32 << 23) as f64;
const LEAST_F16: f64 = 1.0 / (1u32 << 24) as f64;

/// Units in the last place of an f32, as a relative error.
fn ulps(count: f64) -> f64 {
    count * (-23f64).exp2()
}

/// Returns the relative and absolute errors of `sin` and `cos`, by the size of the angle.
fn angle_error(a: f64) -> Option<(f64, f64)> {
    match (a / std::f64::consts::TAU).abs() {
        ..=1.0 => Some((0.0, (-20.5f64).exp2())),
        ..=50.0 => Some((0.0, (-14.7f64).exp2())),
        turns if turns.is_finite() => None,
        _ => Some((0.0, 0.0)),
    }
}

/// `ex2` and `tanh`, with one and two values per register.
///
/// The error of `ex2` is relative; for a subnormal result it is absolute, because `.ftz` flushes the result
/// and an H200 truncates it otherwise.
fn half_approximations<F>(
    rows: &mut Vec<Row>,
    ty: &str,
    ex2_words: &str,
    (ex2_error, least): (f64, f64),
    tanh_error: f64,
) where
    F: Value,
    Two<F>: Value,
{
    let ex2 = move |sources: &[f64]| Some(Near::new(sources[0].exp2(), ex2_error, least));
    let tanh = move |sources: &[f64]| Some(Near::new(sources[0].tanh(), 0.0, tanh_error));
    rows.push(near::<F>(format!("ex2.approx{ex2_words}.{ty}"), 1, ex2));
    rows.push(near::<Two<F>>(format!("ex2.approx{ex2_words}.{ty}x2"), 1, ex2));
    rows.push(near::<F>(format!("tanh.approx.{ty}"), 1, tanh));
    rows.push(near::<Two<F>>(format!("tanh.approx.{ty}x2"), 1, tanh));
}
