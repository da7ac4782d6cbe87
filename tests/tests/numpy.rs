//! Every operator against references that know nothing of this library: NumPy, and exact rational arithmetic where NumPy rounds.
//! `tests/reference/numpy_cases.py` writes them, and says what differs on purpose.

use gpu_reduce::{
    Buffer, Device, Element, Error, NanStd, NanVar, Op, Reduce, Std, Var, bf16, f16, for_each_element,
    for_each_operator,
};
use serde_json::Value;
use std::fmt::Debug;
use support::{devices, hash};

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/reference/numpy.jsonl");

/// The longest input that the emulator reduces.
const EMULATED: usize = 5_000;

/// A line of the file.
struct Case(Value);

impl Case {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_else(|| panic!("{key} of {}", self.0))
    }

    fn len(&self) -> usize {
        self.0["len"].as_u64().expect("a length") as usize
    }

    /// Whether `got` is what the case expects.
    fn expects<V: Answer>(&self, got: &Result<V, Error>, name: &'static str) -> bool {
        match (got, self.0.get("bits")) {
            (Ok(got), Some(Value::String(bits))) => got.bits() == *bits,
            (Err(why), Some(Value::Null)) => *why == Error::EmptyInput { op: name },
            (Ok(got), None) => {
                let number = |text: &str| text.parse::<f64>().expect("a number");
                let (got, value) = (got.number(), number(self.text("value")));
                let within = self.0["within"].as_str().map_or(0.0, number);
                // Infinities equal each other, and their difference is a NaN.
                got == value || (got.is_nan() && value.is_nan()) || (got - value).abs() <= within
            }
            _ => false,
        }
    }
}

/// The elements on every device, the CPU first.
type Inputs<T> = [(Device, Buffer<T>)];

/// A result.
trait Answer: Debug + Copy {
    /// Its bits in hexadecimal.
    fn bits(self) -> String;

    /// Its value; asked for of floats.
    fn number(self) -> f64 {
        f64::NAN
    }
}

/// The elements of a data set.
trait Data: Sized {
    /// That of an index with the hash `h`, as `integers` and `floats` in `numpy_cases.py` have it.
    fn of(data: &str, h: u64) -> Self;
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
                    _ => unreachable!("{data}"),
                }
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

            fn number(self) -> f64 {
                $to(self)
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

impl Answer for bool {
    fn bits(self) -> String {
        u8::from(self).bits()
    }
}

impl<V: Answer> Answer for [V; 2] {
    fn bits(self) -> String {
        self.map(V::bits).concat()
    }
}

/// Reduces by `op` on every device, and notes in `wrong` what is not as expected.
fn check<O: Op<T, Output: Answer>, T: Element>(
    op: O,
    case: &Case,
    inputs: &Inputs<T>,
    wrong: &mut Vec<String>,
) {
    for (device, buffer) in inputs {
        let mut expect = |got: Result<O::Output, Error>, how: &str| {
            if !case.expects(&got, O::NAME) {
                wrong.push(format!("{got:?} with BLOCK {how} on {device}: {}", case.0));
            }
        };
        if device.is_cpu() {
            expect(buffer.reduce_by::<O, 32>(op), "32");
            expect(buffer.reduce_by::<O, 1024>(op), "1024");
        }
        if !device.is_emulator() || case.len() <= EMULATED {
            expect(buffer.reduce_by::<O, 256>(op), "256");
        }
    }
}

macro_rules! operators {
    ({ $type:ident $case:ident $inputs:ident $wrong:ident }
        $($(#[$doc:meta])* $name:ident: $op:ident $blocks:ident;)*) => {
        match ($case.text("op"), $case.0["ddof"].as_u64()) {
            $((stringify!($name), None) => {
                check::<_, $type>(gpu_reduce::$op::default(), $case, $inputs, $wrong);
                let got = gpu_reduce::$name(&$inputs[0].1);
                if !$case.expects(&got, stringify!($name)) {
                    $wrong.push(format!("{got:?} of the one-line function: {}", $case.0));
                }
            })*
            ("var", Some(ddof)) => check::<_, $type>(Var::new(ddof), $case, $inputs, $wrong),
            ("std", Some(ddof)) => check::<_, $type>(Std::new(ddof), $case, $inputs, $wrong),
            ("nanvar", Some(ddof)) => check::<_, $type>(NanVar::new(ddof), $case, $inputs, $wrong),
            ("nanstd", Some(ddof)) => check::<_, $type>(NanStd::new(ddof), $case, $inputs, $wrong),
            _ => panic!("no operator: {}", $case.0),
        }
    };
}

macro_rules! test_types {
    ({} $($type:ident: $($row:ident)*;)*) => {$(
        #[test]
        fn $type() {
            fn answer(case: &Case, inputs: &Inputs<$type>, wrong: &mut Vec<String>) {
                for_each_operator! { operators! { $type case inputs wrong } }
            }
            test_type(answer);
        }
    )*};
}

/// All the type's cases, one after another.
fn test_type<T: Element + Data>(answer: fn(&Case, &Inputs<T>, &mut Vec<String>)) {
    let devices = devices();
    let text = std::fs::read_to_string(CASES).expect(CASES);
    let lines = text.lines().map(|line| Case(serde_json::from_str(line).expect("JSON")));
    let cases: Vec<Case> = lines.filter(|case| case.text("dtype") == T::NAME).collect();
    assert!(!cases.is_empty(), "no cases");
    let mut wrong = Vec::new();
    // A data set's cases follow one another.
    for cases in cases.chunk_by(|a, b| a.text("data") == b.text("data") && a.len() == b.len()) {
        let (data, len) = (cases[0].text("data"), cases[0].len() as u64);
        let host: Vec<T> = (0..len).map(|index| T::of(data, hash(index))).collect();
        let upload = |device: &Device| (device.clone(), device.upload(&host).unwrap());
        let inputs: Vec<_> = devices.iter().map(upload).collect();
        for case in cases {
            answer(case, &inputs, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

for_each_element! { test_types! {} }
