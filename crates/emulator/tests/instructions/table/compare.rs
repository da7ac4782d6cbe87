//! Comparison and selection (PTX ISA, "Comparison and Selection Instructions", "testp", "copysign").

use super::float::flush;
use crate::instructions::row::{Row, row, script};
use crate::instructions::value::{BFloat, Double, Half, Single, Two, Value};
use rustc_apfloat::{Category, Float};
use std::cmp::Ordering;

/// A relation, by the ordering of a and b; `None` if either is NaN.
type Relation = (&'static str, fn(Option<Ordering>) -> bool);

const EQUAL: [Relation; 2] =
    [("eq", |order| order.is_some_and(Ordering::is_eq)), ("ne", |order| order.is_some_and(Ordering::is_ne))];
const ORDERED: [Relation; 4] = [
    ("lt", |order| order.is_some_and(Ordering::is_lt)),
    ("le", |order| order.is_some_and(Ordering::is_le)),
    ("gt", |order| order.is_some_and(Ordering::is_gt)),
    ("ge", |order| order.is_some_and(Ordering::is_ge)),
];
const UNSIGNED: [Relation; 4] = [
    ("lo", |order| order.is_some_and(Ordering::is_lt)),
    ("ls", |order| order.is_some_and(Ordering::is_le)),
    ("hi", |order| order.is_some_and(Ordering::is_gt)),
    ("hs", |order| order.is_some_and(Ordering::is_ge)),
];
const UNORDERED: [Relation; 8] = [
    ("equ", |order| order.is_none_or(Ordering::is_eq)),
    ("neu", |order| order.is_none_or(Ordering::is_ne)),
    ("ltu", |order| order.is_none_or(Ordering::is_lt)),
    ("leu", |order| order.is_none_or(Ordering::is_le)),
    ("gtu", |order| order.is_none_or(Ordering::is_gt)),
    ("geu", |order| order.is_none_or(Ordering::is_ge)),
    ("num", |order| order.is_some()),
    ("nan", |order| order.is_none()),
];

/// An operator that joins a comparison with a predicate.
type Join = (&'static str, fn(bool, bool) -> bool);

const JOINS: [Join; 3] = [("and", |a, b| a && b), ("or", |a, b| a || b), ("xor", |a, b| a != b)];

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    macro_rules! integers {
        ($($int:ident $ty:literal [$($more:ident)?],)*) => {$(
            let relations = [&EQUAL[..], $(&$more)?].concat();
            scalar(&mut rows, $ty, &relations, |a: $int, b: $int| Some(a.cmp(&b)));
        )*};
    }
    integers! {
        u16 "b16" [], u32 "b32" [], u64 "b64" [],
        i16 "s16" [ORDERED], i32 "s32" [ORDERED], i64 "s64" [ORDERED],
    }
    let unsigned = [&EQUAL[..], &ORDERED, &UNSIGNED].concat();
    scalar(&mut rows, "u16", &unsigned, |a: u16, b: u16| Some(a.cmp(&b)));
    scalar(&mut rows, "u32", &unsigned, |a: u32, b: u32| Some(a.cmp(&b)));
    scalar(&mut rows, "u64", &unsigned, |a: u64, b: u64| Some(a.cmp(&b)));
    let float = [&EQUAL[..], &ORDERED, &UNORDERED].concat();
    scalar(&mut rows, "f32", &float, |a: Single, b: Single| a.partial_cmp(&b));
    scalar(&mut rows, "ftz.f32", &float, |a: Single, b: Single| flush(a).partial_cmp(&flush(b)));
    scalar(&mut rows, "f64", &float, |a: Double, b: Double| a.partial_cmp(&b));
    half(&mut rows, "f16", &float, |a: Half, b: Half| a.partial_cmp(&b));
    half(&mut rows, "ftz.f16", &float, |a: Half, b: Half| flush(a).partial_cmp(&flush(b)));
    half(&mut rows, "bf16", &float, |a: BFloat, b: BFloat| a.partial_cmp(&b));
    selections(&mut rows);
    properties::<Single>(&mut rows, "f32");
    properties::<Double>(&mut rows, "f64");
    rows.push(row("copysign.f32", |a: u32, b: u32| a & 1 << 31 | b & !(1 << 31)));
    rows.push(row("copysign.f64", |a: u64, b: u64| a & 1 << 63 | b & !(1 << 63)));
    rows
}

type Order<V> = fn(V, V) -> Option<Ordering>;

/// `setp` and `set` of types with one value per register.
fn scalar<V: Value + 'static>(rows: &mut Vec<Row>, ty: &str, relations: &[Relation], order: Order<V>) {
    for &(name, holds) in relations {
        rows.push(row(format!("setp.{name}.{ty}"), move |a: V, b: V| holds(order(a, b))));
    }
    joined(rows, ty, relations, order);
    set(rows, ty, &["u32", "s32", "f32"], relations, order);
    let small: &[&str] = if ty.starts_with("ftz") { &["f16"] } else { &["f16", "bf16"] };
    set(rows, ty, small, &relations[..1], order);
}

/// `set`, alone and joined with a predicate: all ones, or 1.0, if the relation holds.
fn set<V: Value + 'static>(
    rows: &mut Vec<Row>,
    ty: &str,
    to: &[&str],
    relations: &[Relation],
    order: Order<V>,
) {
    for to in to {
        match *to {
            "f32" => set_to(rows, [ty, to], [0, 1.0f32.to_bits()], relations, order),
            "u32" | "s32" => set_to(rows, [ty, to], [0, u32::MAX], relations, order),
            to => set_to(rows, [ty, to], [0, true_half(to)], relations, order),
        }
    }
}

/// Returns the 16-bit result of `set` if the relation holds.
fn true_half(to: &str) -> u16 {
    match to {
        "f16" | "f16x2" => 0x3c00,
        "bf16" | "bf16x2" => 0x3f80,
        _ => u16::MAX,
    }
}

/// `set` to one type: `yes` if the relation holds, else `no`.
fn set_to<V: Value + 'static, R: Value + Sync + 'static>(
    rows: &mut Vec<Row>,
    [ty, to]: [&str; 2],
    [no, yes]: [R; 2],
    relations: &[Relation],
    order: Order<V>,
) {
    let (ftz, from) = ty.strip_prefix("ftz.").map_or(("", ty), |from| (".ftz", from));
    for &(name, holds) in relations {
        rows.push(row(
            format!("set.{name}{ftz}.{to}.{from}"),
            move |a: V, b: V| {
                if holds(order(a, b)) { yes } else { no }
            },
        ));
    }
    let (name, holds) = relations[0];
    for (join, joined) in JOINS {
        let text = format!("set.{name}.{join}{ftz}.{to}.{from} %x, %a, %b, %c;");
        rows.push(script(
            text,
            move |a: V, b: V, c: bool| if joined(holds(order(a, b)), c) { yes } else { no },
        ));
    }
}

/// `set` of two values per register, with two results.
fn set_pairs<V: Value + 'static>(rows: &mut Vec<Row>, ty: &str, relations: &[Relation], order: Order<V>)
where
    Two<V>: Value,
{
    let (ftz, from) = ty.strip_prefix("ftz.").map_or(("", ty), |from| (".ftz", from));
    for to in ["u32", "s32", &format!("{from}x2")] {
        let yes = true_half(to);
        let value = move |holds: bool| if holds { yes } else { 0 };
        for &(name, holds) in relations {
            rows.push(row(format!("set.{name}{ftz}.{to}.{from}x2"), move |a: Two<V>, b: Two<V>| {
                Two(value(holds(order(a.0, b.0))), value(holds(order(a.1, b.1))))
            }));
        }
        let (name, holds) = relations[relations.len() / 2];
        for (join, joined) in JOINS {
            let text = format!("set.{name}.{join}{ftz}.{to}.{from}x2 %x, %a, %b, !%c;");
            rows.push(script(text, move |a: Two<V>, b: Two<V>, c: bool| {
                let join = |a: V, b: V| value(joined(holds(order(a, b)), !c));
                Two(join(a.0, b.0), join(a.1, b.1))
            }));
        }
    }
}

/// `setp` with a second result, the negation; and both joined with a predicate, which is negated for `.or`.
fn joined<V: Value + 'static>(rows: &mut Vec<Row>, ty: &str, relations: &[Relation], order: Order<V>) {
    for &(name, holds) in relations {
        rows.push(row(format!("setp.{name}.{ty}"), move |a: V, b: V| {
            let holds = holds(order(a, b));
            (holds, !holds)
        }));
        for (join, joined) in JOINS {
            let (not, negated) = if join == "or" { ("!", true) } else { ("", false) };
            let text = format!("setp.{name}.{join}.{ty} %x|%y, %a, %b, {not}%c;");
            rows.push(script(text, move |a: V, b: V, c: bool| {
                let (holds, c) = (holds(order(a, b)), c != negated);
                (joined(holds, c), joined(!holds, c))
            }));
        }
    }
}

/// `setp` of 16-bit floats, one and two per register, with one result each.
fn half<V: Value + 'static>(rows: &mut Vec<Row>, ty: &str, relations: &[Relation], order: Order<V>)
where
    Two<V>: Value,
{
    for &(name, holds) in relations {
        rows.push(row(format!("setp.{name}.{ty}"), move |a: V, b: V| holds(order(a, b))));
        rows.push(row(format!("setp.{name}.{ty}x2"), move |a: Two<V>, b: Two<V>| {
            (holds(order(a.0, b.0)), holds(order(a.1, b.1)))
        }));
        for (join, joined) in JOINS {
            let text = format!("setp.{name}.{join}.{ty} %x, %a, %b, !%c;");
            rows.push(script(text, move |a: V, b: V, c: bool| joined(holds(order(a, b)), !c)));
            let text = format!("setp.{name}.{join}.{ty}x2 %x|%y, %a, %b, %c;");
            rows.push(script(text, move |a: Two<V>, b: Two<V>, c: bool| {
                (joined(holds(order(a.0, b.0)), c), joined(holds(order(a.1, b.1)), c))
            }));
        }
    }
    let own = ty.trim_start_matches("ftz.");
    set(rows, ty, &["u16", "s16", "u32", "s32", own], relations, order);
    if ty == "f16" {
        set(rows, ty, &["bf16"], relations, order);
    }
    set_pairs(rows, ty, relations, order);
}

fn selections(rows: &mut Vec<Row>) {
    macro_rules! selections {
        ($($int:ident $($ty:literal)*,)*) => {$($(
            rows.extend([
                row(concat!("selp.", $ty), |a: $int, b: $int, p: bool| if p { a } else { b }),
                row(concat!("slct.", $ty, ".s32"), |a: $int, b: $int, c: i32| if c >= 0 { a } else { b }),
                row(concat!("slct.", $ty, ".f32"), |a: $int, b: $int, c: Single| {
                    if c >= Single::ZERO { a } else { b }
                }),
                row(concat!("slct.ftz.", $ty, ".f32"), |a: $int, b: $int, c: Single| {
                    if flush(c) >= Single::ZERO { a } else { b }
                }),
            ]);
        )*)*};
    }
    selections! {
        u16 "b16" "u16" "s16", u32 "b32" "u32" "s32" "f32", u64 "b64" "u64" "s64" "f64",
    }
}

fn properties<F: Float + Value + 'static>(rows: &mut Vec<Row>, ty: &str) {
    type Property<F> = (&'static str, fn(F) -> bool);
    let properties: [Property<F>; 6] = [
        ("finite", |a| matches!(a.category(), Category::Zero | Category::Normal)),
        ("infinite", |a| a.category() == Category::Infinity),
        ("number", |a| a.category() != Category::NaN),
        ("notanumber", |a| a.category() == Category::NaN),
        // "As a special case, positive and negative zero are considered normal numbers."
        ("normal", |a| a.is_finite() && !a.is_denormal()),
        ("subnormal", |a| a.is_denormal()),
    ];
    for (name, holds) in properties {
        rows.push(row(format!("testp.{name}.{ty}"), holds));
    }
}
