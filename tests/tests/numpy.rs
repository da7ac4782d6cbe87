//! Every operator against references that are independent of this library: NumPy, or exact rational
//! arithmetic if NumPy and SciPy round. `tests/reference/numpy_cases.py` writes them, and says what differs
//! on purpose.

use gpu_reduce::{
    Buffer, Comparison, CountWhere, Device, Element, Error, LogSumExp, NanStd, NanVar, Op, Reduce, Std,
    SumWhere, Var, bf16, f16, for_each_comparison, for_each_integer_operator, for_each_operator,
    for_each_pair_operator,
};
use serde_json::Value;
use std::fmt::Debug;
use support::{devices, for_each_element, hash};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/reference/numpy.jsonl");

/// The longest input that the emulator reduces.
const EMULATED: usize = 5_000;

/// A line of the file of cases.
struct Case(Value);

impl Case {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_else(|| panic!("{key} of {}", self.0))
    }

    fn len(&self) -> usize {
        self.0["len"].as_u64().expect("a length") as usize
    }

    /// The second data set, of cases that have two.
    fn second(&self) -> Option<&str> {
        self.0.get("second").and_then(Value::as_str)
    }

    /// Whether `got` is the expected result.
    fn expects<V: Answer>(&self, got: &Result<V, Error>, name: &'static str) -> bool {
        match (got, self.0.get("bits")) {
            (Ok(got), Some(Value::String(bits))) => got.bits() == *bits,
            (Err(why), Some(Value::Null)) => *why == Error::EmptyInput { op: name },
            (Ok(got), None) => {
                let numbers = |text: &str| -> Vec<f64> {
                    text.split(' ').map(|number| number.parse().expect("a number")).collect()
                };
                let (got, values) = (got.numbers(), numbers(self.text("value")));
                let within = self.0["within"].as_str().map_or(vec![0.0; values.len()], numbers);
                assert_eq!((got.len(), within.len()), (values.len(), values.len()), "{}", self.0);
                // Infinities are equal, though their difference is NaN.
                let good = |got: f64, value: f64, within: f64| {
                    got == value || (got.is_nan() && value.is_nan()) || (got - value).abs() <= within
                };
                got.iter().zip(&values).zip(&within).all(|((&got, &value), &within)| good(got, value, within))
            }
            _ => false,
        }
    }

    /// The scalar that elements are compared with.
    fn comparison<T: Data>(&self) -> Comparison<T> {
        let than = T::of_bits(u64::from_str_radix(self.text("than"), 16).expect("bits"));
        match self.text("is") {
            "Less" => Comparison::Less(than),
            "LessEqual" => Comparison::LessEqual(than),
            "Greater" => Comparison::Greater(than),
            "GreaterEqual" => Comparison::GreaterEqual(than),
            "Equal" => Comparison::Equal(than),
            "NotEqual" => Comparison::NotEqual(than),
            comparison => unreachable!("{comparison}"),
        }
    }
}

/// The elements on a device.
struct Input<T: Element> {
    device: Device,
    x: Buffer<T>,
    /// The second array; none if the case has one.
    y: Buffer<T>,
}

/// The arrays on every device, the CPU first.
type Inputs<T> = [Input<T>];

/// A result.
trait Answer: Debug + Copy {
    /// The bits in hexadecimal.
    fn bits(self) -> String;

    /// Its values; called for floats only.
    fn numbers(self) -> Vec<f64> {
        vec![]
    }
}

/// The elements of a data set.
trait Data: Sized {
    /// The element at an index with the hash `h`, as `integers` and `floats` in `numpy_cases.py` define it.
    fn of(data: &str, h: u64) -> Self;

    /// The element with these bits.
    fn of_bits(bits: u64) -> Self;
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl Answer for $type {
            fn bits(self) -> String {
                format!("{:01$x}", self, 2 * size_of::<$type>())
            }
        }

        impl Data for $type {
            fn of(data: &str, h: u64) -> $type {
                const MIN: $type = $type::MIN;
                const MAX: $type = $type::MAX;
                match data {
                    "any" => h as $type,
                    "factor" => h as $type | 1,
                    "ties" => (h % 5) as $type - if MIN == 0 { 0 } else { 2 },
                    "zeros" => 0,
                    "constant" => 7,
                    "sparse" => (h % 512 == 0) as $type,
                    "dense" if h % 512 == 0 => 0,
                    "dense" => h as $type | 1,
                    "extremes" => [MIN, MAX, MIN + 1, MAX - 1, 0, 1, MAX, MIN][h as usize % 8],
                    "top" => MAX - (h % 4) as $type,
                    "bottom" => MIN + (h % 4) as $type,
                    "offset" => 1_000_000_000u64 as $type + (h % 7) as $type,
                    "weights" => (h % 8) as $type,
                    _ => unreachable!("{data}"),
                }
            }

            fn of_bits(bits: u64) -> $type {
                bits as $type
            }
        }
    )*};
}

macro_rules! floats {
    ($($type:ident $word:ident: $from:expr, $to:expr;)*) => {$(
        impl Answer for $type {
            fn bits(self) -> String {
                format!("{:01$x}", self.to_bits(), 2 * size_of::<$type>())
            }

            fn numbers(self) -> Vec<f64> {
                vec![$to(self)]
            }
        }

        impl Data for $type {
            fn of(data: &str, h: u64) -> $type {
                const TOP: u32 = $word::BITS - 1;
                const INFINITY: u64 = $type::INFINITY.to_bits() as u64;
                const FRACTION: u32 = $type::MANTISSA_DIGITS - 1;
                let of = $from;
                let of_bits = |bits: u64| $type::from_bits(bits as $word);
                let signed = |h: u64| (h & 1) << TOP;
                let even = (h >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
                let some = || of(match stringify!($type) {
                    "f16" => (((h >> 11) % 2049) as f64 - 1024.0) / 2048.0,
                    "bf16" => (((h >> 11) % 257) as f64 - 128.0) / 256.0,
                    _ => even,
                });
                let nan = || {
                    let quiet = INFINITY | 1 << (FRACTION - 1) | (h >> 8) % 32;
                    let signalling = INFINITY | (1 + (h >> 8) % 31);
                    of_bits(if (h >> 21) & 1 == 0 { quiet } else { signalling } | signed(h >> 20))
                };
                let sign = if h & 1 == 0 { 1.0 } else { -1.0 };
                let scaled = |scale16: fn(f64) -> f64, bf16: f64, single: f64, double: f64| of(sign * match stringify!($type) {
                    "f16" => scale16(((h >> 1) % 16) as f64),
                    "bf16" => (128.0 + ((h >> 1) % 128) as f64) * bf16,
                    "f32" => (even + 1.0) * single,
                    _ => (even + 1.0) * double,
                });
                match data {
                    "any" => some(),
                    "factor" => {
                        let size = if h % 4096 == 0 { 0.75 + ((h >> 12) % 65) as f64 / 128.0 } else { 1.0 };
                        of(if h >> 63 == 0 { size } else { -size })
                    }
                    "bits" => of_bits(h >> (63 - TOP)),
                    "ties" => of((h % 5) as f64 - 2.0),
                    "zeros" => of_bits(signed(h)),
                    "constant" => of(if TOP == 15 { 0.15625 } else { 0.1 }),
                    "sparse" if h % 512 == 0 => of(1.5),
                    "sparse" => of_bits(signed(h)),
                    "dense" if h % 512 == 0 => of_bits(signed(h)),
                    "dense" => of(1.0 + (h >> 62) as f64),
                    "nans" if h % 64 == 7 => nan(),
                    "nans" => some(),
                    "all_nan" => nan(),
                    "infinities" if h % 16 == 0 => $type::INFINITY,
                    "infinities" => some(),
                    "opposite" if h % 16 < 2 => of_bits(INFINITY | signed(h)),
                    "opposite" => some(),
                    "infinite" => $type::INFINITY,
                    "low" if h % 16 == 0 => $type::NEG_INFINITY,
                    "low" => some(),
                    "lowest" => $type::NEG_INFINITY,
                    "nonfinite" => match h % 4 {
                        0 => nan(),
                        3 => some(),
                        _ => of_bits(INFINITY | signed(h >> 30)),
                    },
                    "extremes" => of_bits([
                        INFINITY - 1,
                        INFINITY - 1 | 1 << TOP,
                        1 << FRACTION,
                        1,
                        1 | 1 << TOP,
                        0,
                        1 << TOP,
                        (1 << FRACTION) - 1,
                    ][h as usize % 8]),
                    "apart" => of($to(some()) * -4096.0),
                    "below" => of(($to(some()) - 0.5) * 4096.0),
                    "weights" => of((h % 8) as f64 / 4.0),
                    "subnormal" => of_bits(signed(h) | (h >> 1) % (1 << FRACTION)),
                    "huge" => scaled(|some| 64512.0 - 32.0 * some, 2f64.powi(92), 1e30, 1e200),
                    "tiny" => scaled(|some| (1.0 + some) / 2f64.powi(24), 2f64.powi(-107), 1e-30, 1e-200),
                    "offset" => of(match stringify!($type) {
                        "f16" => 998.0 + (h % 5) as f64,
                        "bf16" => 198.0 + (h % 5) as f64,
                        "f32" => 1e6 + even * 3.4641016,
                        _ => 1e9 + even * 3.4641016,
                    }),
                    _ => unreachable!("{data}"),
                }
            }

            fn of_bits(bits: u64) -> $type {
                $type::from_bits(bits as $word)
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }
floats! {
    f16 u16: f16::from_f64, f16::to_f64;
    bf16 u16: bf16::from_f64, bf16::to_f64;
    f32 u32: |value: f64| value as f32, f64::from;
    f64 u64: |value: f64| value, f64::from;
}

impl Answer for i128 {
    fn bits(self) -> String {
        format!("{self:032x}")
    }
}

impl Answer for bool {
    fn bits(self) -> String {
        u8::from(self).bits()
    }
}

impl<V: Answer, const N: usize> Answer for [V; N] {
    fn bits(self) -> String {
        self.map(V::bits).concat()
    }

    fn numbers(self) -> Vec<f64> {
        self.map(V::numbers).concat()
    }
}

/// Adds to `wrong` what differs from the case: `op`'s reductions on every device, and `one_line`, the result
/// of the one-line function.
fn check<'a, O: Op<D::Item, Output: Answer>, D: Reduce>(
    op: O,
    case: &Case,
    data: impl Iterator<Item = (&'a Device, D)>,
    one_line: Option<Result<O::Output, Error>>,
    wrong: &mut Vec<String>,
) {
    let mut expect = |got: Result<O::Output, Error>, how: &dyn Fn() -> String| {
        if !case.expects(&got, O::NAME) {
            wrong.push(format!("{got:?} {}: {}", how(), case.0));
        }
    };
    for (device, data) in data {
        let how = |block: u32| move || format!("with BLOCK {block} on {device}");
        if device.is_cpu() {
            expect(data.by(op).block::<32>().run(), &how(32));
            expect(data.by(op).block::<1024>().run(), &how(1024));
        }
        if !device.is_emulator() || case.len() <= EMULATED {
            expect(data.by(op).block::<256>().run(), &how(256));
        }
    }
    if let Some(got) = one_line {
        expect(got, &|| "of the one-line function".into());
    }
}

/// Copies the array to every device.
fn single<T: Element>(inputs: &Inputs<T>) -> impl Iterator<Item = (&Device, &Buffer<T>)> {
    inputs.iter().map(|input| (&input.device, &input.x))
}

/// Checks the operator with the case's name, and returns whether there is one.
macro_rules! operators {
    ({ $case:ident $inputs:ident $wrong:ident } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
        match $case.text("op") {
            $(stringify!($name) => {
                let one_line = Some(gpu_reduce::$name(&$inputs[0].x));
                check(gpu_reduce::$op::default(), $case, single($inputs), one_line, $wrong);
                true
            })*
            _ => false,
        }
    };
}

macro_rules! pair_operators {
    ({ $case:ident $inputs:ident $wrong:ident } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
        match $case.text("op") {
            $(stringify!($name) => {
                let pairs = $inputs.iter().map(|input| (&input.device, (&input.x, &input.y)));
                let one_line = Some(gpu_reduce::$name(&$inputs[0].x, &$inputs[0].y));
                check(gpu_reduce::$op::default(), $case, pairs, one_line, $wrong);
                true
            })*
            _ => false,
        }
    };
}

macro_rules! integer_operators {
    (integer $case:ident $inputs:ident $wrong:ident) => {
        for_each_integer_operator! { operators! { $case $inputs $wrong } }
    };
    (float $case:ident $inputs:ident $wrong:ident) => {
        false
    };
}

/// Operators with degrees of freedom.
fn with_ddof<T: Element<Real: Answer>>(
    ddof: u64,
    case: &Case,
    inputs: &Inputs<T>,
    wrong: &mut Vec<String>,
) -> bool {
    match case.text("op") {
        "var" => check(Var::new(ddof), case, single(inputs), None, wrong),
        "std" => check(Std::new(ddof), case, single(inputs), None, wrong),
        "nanvar" => check(NanVar::new(ddof), case, single(inputs), None, wrong),
        "nanstd" => check(NanStd::new(ddof), case, single(inputs), None, wrong),
        _ => return false,
    }
    true
}

/// Operators with a comparison.
fn with_comparison<T: Element<Wide: Answer> + Data>(
    comparison: Comparison<T>,
    case: &Case,
    inputs: &Inputs<T>,
    wrong: &mut Vec<String>,
) -> bool {
    let x = &inputs[0].x;
    match case.text("op") {
        "count_where" => {
            let one_line = Some(gpu_reduce::count_where(x, comparison));
            check(CountWhere::new(comparison), case, single(inputs), one_line, wrong);
        }
        "sum_where" => {
            let one_line = Some(gpu_reduce::sum_where(x, comparison));
            check(SumWhere::new(comparison), case, single(inputs), one_line, wrong);
        }
        _ => return false,
    }
    true
}

macro_rules! test_types {
    ({} $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {$(
        #[test]
        fn $type() {
            fn answer(case: &Case, inputs: &Inputs<$type>, wrong: &mut Vec<String>) -> bool {
                if let Some(ddof) = case.0["ddof"].as_u64() {
                    with_ddof(ddof, case, inputs, wrong)
                } else if case.0.get("is").is_some() {
                    with_comparison(case.comparison(), case, inputs, wrong)
                } else if case.second().is_some() {
                    for_each_pair_operator! { pair_operators! { case inputs wrong } }
                } else {
                    let found = for_each_operator! { operators! { case inputs wrong } };
                    found || integer_operators! { $kind case inputs wrong }
                }
            }
            test_type(answer);
        }
    )*};
}

/// Checks all cases of the type, one after another.
fn test_type<T: Element + Data>(answer: fn(&Case, &Inputs<T>, &mut Vec<String>) -> bool) {
    let devices = devices();
    let text = std::fs::read_to_string(CASES).expect(CASES);
    let lines = text.lines().map(|line| Case(serde_json::from_str(line).expect("JSON")));
    let cases: Vec<Case> = lines.filter(|case| case.text("dtype") == T::NAME).collect();
    assert!(!cases.is_empty(), "no cases");
    let mut wrong = Vec::new();
    // Cases of the same data sets follow one another.
    let same = |a: &Case, b: &Case| {
        a.text("data") == b.text("data") && a.second() == b.second() && a.len() == b.len()
    };
    for cases in cases.chunk_by(same) {
        let len = cases[0].len() as u64;
        let host = |data: &str, first: u64| -> Vec<T> {
            (first..first + len).map(|index| T::of(data, hash(index))).collect()
        };
        let x = host(cases[0].text("data"), 0);
        let y = cases[0].second().map_or(vec![], |data| host(data, 1 << 32));
        let inputs: Vec<_> = devices
            .iter()
            .map(|device| Input {
                device: device.clone(),
                x: device.upload(&x).unwrap(),
                y: device.upload(&y).unwrap(),
            })
            .collect();
        for case in cases {
            assert!(answer(case, &inputs, &mut wrong), "no operator: {}", case.0);
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

for_each_element! { test_types! {} }

/// A cosine is never above 1 or below -1, even for arrays that differ by a factor, which rounding might push
/// further.
#[test]
fn cosines_are_at_most_one() {
    for len in 1..300 {
        let x: Vec<f64> = (0..len).map(|index| Data::of("any", hash(index))).collect();
        for factor in [1.0, 3.0, 1e-3, -1.0, -0.7] {
            let y: Vec<f64> = x.iter().map(|x| x * factor).collect();
            let cosine = gpu_reduce::cosine(&x, &y).unwrap();
            let least = 1.0 - 1e-14;
            assert!(
                (least..=1.0).contains(&(cosine * factor.signum())),
                "{cosine} of {len} elements, {factor}"
            );
        }
    }
}

/// The logarithm of a sum of exponentials with the largest elements side by side, at any distance from the
/// first one.
#[test]
fn exponentials_of_distant_elements() {
    for device in devices() {
        for distance in (0..1500).step_by(8) {
            for away in [1.0, -1.0] {
                let x: Vec<f64> =
                    [0].into_iter().chain(distance..distance + 16).map(|x| x as f64 * away).collect();
                let most = x.iter().copied().fold(f64::MIN, f64::max);
                let expected = most + x.iter().map(|x| (x - most).exp()).sum::<f64>().ln();
                let got = device.upload(&x).unwrap().reduce::<LogSumExp, 256>().unwrap();
                let unit = f64::EPSILON / 2.0 * expected.abs().max(1.0);
                assert!((got - expected).abs() <= 8.0 * unit, "{got} for {expected} on {device}: {x:?}");
                let x: Vec<f32> = x.iter().map(|&x| x as f32).collect();
                let got = device.upload(&x).unwrap().reduce::<LogSumExp, 256>().unwrap();
                let unit = f64::from(f32::EPSILON) / 2.0 * expected.abs().max(1.0);
                assert!(
                    (f64::from(got) - expected).abs() <= 4.0 * unit,
                    "{got} for {expected} on {device}: {x:?}"
                );
            }
        }
    }
}

macro_rules! rows {
    ({ $table:ident } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
        vec![$((stringify!($name), stringify!($op))),*]
    };
}

macro_rules! types {
    ({} $($type:ident: $($row:ident)*;)*) => { [$(stringify!($type)),*] };
}

/// Every operator of the tables has a reference that does not use the operator's own code, for every type:
/// cases of NumPy here, or integers of any length in `exact.rs`.
#[test]
fn every_operator_has_a_reference() {
    const EXACT: [&str; 4] = ["exact_sum", "exact_sum_twofold", "exact_mean", "exact_dot"];
    let exact = include_str!("exact.rs");
    let text = std::fs::read_to_string(CASES).expect(CASES);
    let cases: Vec<Case> = text.lines().map(|line| Case(serde_json::from_str(line).expect("JSON"))).collect();
    let integers = for_each_integer_operator! { rows! { integers } };
    let mut others = for_each_operator! { rows! { elements } };
    others.extend(for_each_pair_operator! { rows! { pairs } });
    others.extend(for_each_comparison! { rows! { comparisons } });
    let types = gpu_reduce::for_each_element! { types! {} };
    let mut lack = Vec::new();
    for (operators, types) in
        [(integers, &gpu_reduce::for_each_integer! { types! {} }[..]), (others, &types[..])]
    {
        for (name, op) in operators {
            if EXACT.contains(&name) {
                let is_tested = exact.contains(op) && exact.contains("BigInt");
                lack.extend((!is_tested).then_some(format!("{name} in exact.rs")));
                continue;
            }
            let has = |of: &str| cases.iter().any(|case| case.text("op") == name && case.text("dtype") == of);
            lack.extend(types.iter().filter(|of| !has(of)).map(|of| format!("{name} of {of}")));
        }
    }
    assert!(lack.is_empty(), "no case in tests/reference/numpy_cases.py for {lack:?}");
}
