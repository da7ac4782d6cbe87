//! Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic
//! Instructions").

use crate::instructions::row::{Row, row, script};
use crate::instructions::value::Two;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    every_type(&mut rows);
    wide(&mut rows);
    saturating(&mut rows);
    low_24(&mut rows);
    carries(&mut rows);
    dots(&mut rows);
    pairs(&mut rows);
    absolute_differences(&mut rows);
    rows
}

/// Bits `BITS` to `2 * BITS - 1` of a product; `i128` wraps above them.
macro_rules! high {
    ($int:ident, $a:expr, $b:expr) => {
        (i128::from($a).wrapping_mul(i128::from($b)) >> $int::BITS) as $int
    };
}

fn every_type(rows: &mut Vec<Row>) {
    macro_rules! every_type {
        ($($int:ident $ty:literal)*) => {$(
            let name = |name: &str| format!("{name}.{}", $ty);
            rows.extend([
                row(name("add"), |a: $int, b: $int| a.wrapping_add(b)),
                row(name("sub"), |a: $int, b: $int| a.wrapping_sub(b)),
                row(name("mul.lo"), |a: $int, b: $int| a.wrapping_mul(b)),
                row(name("mul.hi"), |a: $int, b: $int| high!($int, a, b)),
                row(name("mad.lo"), |a: $int, b: $int, c: $int| a.wrapping_mul(b).wrapping_add(c)),
                row(name("mad.hi"), |a: $int, b: $int, c: $int| high!($int, a, b).wrapping_add(c)),
                row(name("sad"), |a: $int, b: $int, c: $int| c.wrapping_add(a.abs_diff(b) as $int)),
                row(name("min"), |a: $int, b: $int| a.min(b)),
                row(name("max"), |a: $int, b: $int| a.max(b)),
                // PTX leaves division by zero to the machine; sm_90 returns all ones.
                row(name("div"), |a: $int, b: $int| if b == 0 { !0 } else { a.wrapping_div(b) }),
                row(name("rem"), |a: $int, b: $int| if b == 0 { !0 } else { a.wrapping_rem(b) }),
            ]);
        )*};
    }
    every_type!(u16 "u16" i16 "s16" u32 "u32" i32 "s32" u64 "u64" i64 "s64");
    macro_rules! signed {
        ($($int:ident $ty:literal)*) => {$(
            rows.push(row(concat!("abs.", $ty), |a: $int| a.wrapping_abs()));
            rows.push(row(concat!("neg.", $ty), |a: $int| a.wrapping_neg()));
        )*};
    }
    signed!(i16 "s16" i32 "s32" i64 "s64");
}

fn wide(rows: &mut Vec<Row>) {
    macro_rules! wide {
        ($($int:ident $wide:ident $ty:literal)*) => {$(
            rows.push(row(concat!("mul.wide.", $ty), |a: $int, b: $int| $wide::from(a) * $wide::from(b)));
            rows.push(row(concat!("mad.wide.", $ty), |a: $int, b: $int, c: $wide| {
                ($wide::from(a) * $wide::from(b)).wrapping_add(c)
            }));
        )*};
    }
    wide!(u16 u32 "u16" i16 i32 "s16" u32 u64 "u32" i32 i64 "s32");
}

fn saturating(rows: &mut Vec<Row>) {
    rows.extend([
        row("add.sat.s32", |a: i32, b: i32| a.saturating_add(b)),
        row("sub.sat.s32", |a: i32, b: i32| a.saturating_sub(b)),
        row("mad.hi.sat.s32", |a: i32, b: i32, c: i32| high!(i32, a, b).saturating_add(c)),
    ]);
}

/// `mul24`, `mad24`: the low or high 32 bits of the 48-bit product of the low 24 bits.
fn low_24(rows: &mut Vec<Row>) {
    fn signed(a: i32) -> i64 {
        ((i64::from(a) & 0xff_ffff) ^ 0x80_0000) - 0x80_0000
    }
    fn unsigned(a: u32) -> u64 {
        u64::from(a) & 0xff_ffff
    }
    rows.extend([
        row("mul24.lo.s32", |a: i32, b: i32| (signed(a) * signed(b)) as i32),
        row("mul24.hi.s32", |a: i32, b: i32| ((signed(a) * signed(b)) >> 16) as i32),
        row("mul24.lo.u32", |a: u32, b: u32| (unsigned(a) * unsigned(b)) as u32),
        row("mul24.hi.u32", |a: u32, b: u32| ((unsigned(a) * unsigned(b)) >> 16) as u32),
        row("mad24.lo.s32", |a: i32, b: i32, c: i32| ((signed(a) * signed(b)) as i32).wrapping_add(c)),
        row("mad24.hi.s32", |a: i32, b: i32, c: i32| {
            (((signed(a) * signed(b)) >> 16) as i32).wrapping_add(c)
        }),
        row("mad24.lo.u32", |a: u32, b: u32, c: u32| ((unsigned(a) * unsigned(b)) as u32).wrapping_add(c)),
        row("mad24.hi.u32", |a: u32, b: u32, c: u32| {
            (((unsigned(a) * unsigned(b)) >> 16) as u32).wrapping_add(c)
        }),
        row("mad24.hi.sat.s32", |a: i32, b: i32, c: i32| {
            (((signed(a) * signed(b)) >> 16) as i32).saturating_add(c)
        }),
    ]);
}

/// `add.cc` to `madc`.
///
/// The carry is set by an `add.cc` (a borrow by `sub.cc`) if the last source is not 0, and is read into `%y`.
fn carries(rows: &mut Vec<Row>) {
    macro_rules! carries {
        ($($int:ident $factor:ident $ty:literal)*) => {$({
            const ONES: $int = $int::MAX;
            let text = |text: &str| text.replace("TYPE", $ty);
            let sum = |a: $int, b: $int, carry: bool| {
                let sum = i128::from(a) + i128::from(b) + i128::from(carry);
                (sum as $int, $int::from(sum > i128::from(ONES)))
            };
            let difference = |a: $int, b: $int, borrow: bool| {
                let difference = i128::from(a) - i128::from(b) - i128::from(borrow);
                (difference as $int, if difference < 0 { ONES } else { 0 })
            };
            rows.extend([
                script(text("add.cc.TYPE %x, %a, %b;\naddc.TYPE %y, 0, 0;"), move |a: $int, b: $int| {
                    sum(a, b, false)
                }),
                script(text("sub.cc.TYPE %x, %a, %b;\nsubc.TYPE %y, 0, 0;"), move |a: $int, b: $int| {
                    difference(a, b, false)
                }),
                script(
                    text("add.cc.TYPE %y, %c, -1;\naddc.cc.TYPE %x, %a, %b;\naddc.TYPE %y, 0, 0;"),
                    move |a: $int, b: $int, c: $int| sum(a, b, c != 0),
                ),
                script(
                    text("sub.cc.TYPE %y, 0, %c;\nsubc.cc.TYPE %x, %a, %b;\nsubc.TYPE %y, 0, 0;"),
                    move |a: $int, b: $int, c: $int| difference(a, b, c != 0),
                ),
                // Without `.cc`, the carry does not change.
                script(
                    text("add.cc.TYPE %y, %c, -1;\naddc.TYPE %x, %a, %b;\naddc.TYPE %y, 0, 0;"),
                    move |a: $int, b: $int, c: $int| (sum(a, b, c != 0).0, $int::from(c != 0)),
                ),
            ]);
            let products: [(&str, fn($int, $int) -> $int); 2] = [
                ("lo", |a, b| a.wrapping_mul(b)),
                ("hi", |a, b| high!($factor, a as $factor, b as $factor) as $int),
            ];
            for (part, product) in products {
                let text = |words: &str| text(words).replace("PART", part);
                rows.extend([
                    script(
                        text("mad.PART.cc.TYPE %x, %a, %b, %c;\naddc.TYPE %y, 0, 0;"),
                        move |a: $int, b: $int, c: $int| sum(product(a, b), c, false),
                    ),
                    script(
                        text(
                            "add.cc.TYPE %y, %d, -1;\nmadc.PART.cc.TYPE %x, %a, %b, %c;\naddc.TYPE %y, 0, 0;",
                        ),
                        move |a: $int, b: $int, c: $int, d: $int| sum(product(a, b), c, d != 0),
                    ),
                    script(
                        text("add.cc.TYPE %y, %d, -1;\nmadc.PART.TYPE %x, %a, %b, %c;"),
                        move |a: $int, b: $int, c: $int, d: $int| {
                            (sum(product(a, b), c, d != 0).0, d.wrapping_sub(1))
                        },
                    ),
                ]);
            }
        })*};
    }
    carries!(u32 u32 "u32" u32 i32 "s32" u64 u64 "u64" u64 i64 "s64");
}

/// `dp4a`, `dp2a`.
fn dots(rows: &mut Vec<Row>) {
    fn part(value: u32, index: usize, bits: u32, signed: bool) -> i64 {
        let part = i64::from(value >> (index as u32 * bits)) & ((1 << bits) - 1);
        if signed && part >> (bits - 1) != 0 { part - (1 << bits) } else { part }
    }
    for (a_type, a_signed) in [("u32", false), ("s32", true)] {
        for (b_type, b_signed) in [("u32", false), ("s32", true)] {
            rows.push(row(format!("dp4a.{a_type}.{b_type}"), move |a: u32, b: u32, c: u32| {
                let product = |i| part(a, i, 8, a_signed) * part(b, i, 8, b_signed);
                (i64::from(c) + (0..4).map(product).sum::<i64>()) as u32
            }));
            for (half, first) in [("lo", 0), ("hi", 2)] {
                rows.push(row(format!("dp2a.{half}.{a_type}.{b_type}"), move |a: u32, b: u32, c: u32| {
                    let product = |i| part(a, i, 16, a_signed) * part(b, first + i, 8, b_signed);
                    (i64::from(c) + (0..2).map(product).sum::<i64>()) as u32
                }));
            }
        }
    }
}

/// Two 16-bit values per register.
fn pairs(rows: &mut Vec<Row>) {
    macro_rules! pairs {
        ($($int:ident $ty:literal)*) => {$(
            let operations: [(&str, fn($int, $int) -> $int); 3] =
                [("add", $int::wrapping_add), ("min", Ord::min), ("max", Ord::max)];
            for (name, operation) in operations {
                rows.push(row(format!("{name}.{}", $ty), move |a: Two<$int>, b: Two<$int>| {
                    Two(operation(a.0, b.0), operation(a.1, b.1))
                }));
            }
        )*};
    }
    pairs!(u16 "u16x2" i16 "s16x2");
}

/// `vabsdiff4`: absolute differences of selected bytes, merged into the third source or added to it (PTX ISA,
/// "SIMD Video Instructions").
fn absolute_differences(rows: &mut Vec<Row>) {
    /// Returns the bytes that the selector's digits name, the least significant first.
    ///
    /// Bytes 0 to 3 are those of a, 4 to 7 those of b; the first digit selects the most significant byte.
    fn chosen(a: u32, b: u32, selector: &str, signed: bool) -> [i64; 4] {
        let mut chosen = [0; 4];
        for (place, digit) in selector.bytes().rev().enumerate() {
            let number = u32::from(digit - b'0');
            let byte = if number < 4 { a >> (8 * number) } else { b >> (8 * (number - 4)) } & 0xff;
            chosen[place] = if signed && byte > 127 { i64::from(byte) - 256 } else { i64::from(byte) };
        }
        chosen
    }
    let mut add = |kind: &str, [to, from_a, from_b]: [&'static str; 3], selectors: [&'static str; 3]| {
        let [mask, of_a, of_b] = selectors;
        let text = match selectors {
            ["3210", "3210", "7654"] => format!("vabsdiff4.{to}.{from_a}.{from_b}{kind} %x, %a, %b, %c;"),
            _ => format!("vabsdiff4.{to}.{from_a}.{from_b}{kind} %x.b{mask}, %a.b{of_a}, %b.b{of_b}, %c;"),
        };
        let (adds, saturates) = (kind == ".add", kind == ".sat");
        rows.push(script(text, move |a: u32, b: u32, c: u32| {
            let first = chosen(a, b, of_a, from_a == "s32");
            let second = chosen(a, b, of_b, from_b == "s32");
            let mut result = i64::from(c);
            for place in 0..4 {
                if !mask.contains(char::from(b'0' + place as u8)) {
                    continue;
                }
                let most = if to == "s32" { 127 } else { 255 };
                let difference = (first[place] - second[place]).abs();
                if adds {
                    result += difference;
                } else {
                    let byte = if saturates { difference.min(most) } else { difference % 256 };
                    let before = result / (1 << (8 * place)) % 256;
                    result += (byte - before) << (8 * place);
                }
            }
            result as u32
        }));
    };
    for kind in ["", ".sat", ".add"] {
        for types in 0..8 {
            let ty = |bit: u32| if types >> bit & 1 == 0 { "u32" } else { "s32" };
            add(kind, [ty(2), ty(1), ty(0)], ["3210", "3210", "7654"]);
        }
        for mask in ["0", "1", "10", "2", "20", "21", "210", "3", "30", "31", "310", "32", "320", "321"] {
            add(kind, ["u32", "s32", "u32"], [mask, "7531", "0246"]);
        }
        add(kind, ["s32", "u32", "s32"], ["3210", "0000", "4567"]);
    }
}
