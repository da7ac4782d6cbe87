//! Moves, loads, stores and atomics (PTX ISA, "Data Movement and Conversion Instructions", "atom", "red").

use super::float::flush;
use crate::instructions::row::{Row, Thread, of_thread, row, script};
use crate::instructions::value::{BFloat, Double, Half, Single, Two, Value};
use rustc_apfloat::Float;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    moves(&mut rows);
    accesses(&mut rows);
    orders(&mut rows);
    addresses(&mut rows);
    hints(&mut rows);
    policies(&mut rows);
    copies(&mut rows);
    atomics(&mut rows);
    rows
}

fn moves(rows: &mut Vec<Row>) {
    macro_rules! moves {
        ($($int:ident $($ty:literal)*,)*) => {$($(
            rows.push(row(concat!("mov.", $ty), |a: $int| a));
        )*)*};
    }
    moves! {
        bool "pred", u16 "b16" "u16" "s16", u32 "b32" "u32" "s32" "f32", u64 "b64" "u64" "s64" "f64",
    }
    rows.extend([
        script("mov.b32 %x, {%a, %b};", |a: u16, b: u16| u32::from(a) | u32::from(b) << 16),
        script("mov.b32 {%x, %y}, %a;", |a: u32| (a as u16, (a >> 16) as u16)),
        script("mov.b64 %x, {%a, %b};", |a: u32, b: u32| u64::from(a) | u64::from(b) << 32),
        script("mov.b64 {%x, %y}, %a;", |a: u64| (a as u32, (a >> 32) as u32)),
        script("mov.b64 {_, %x}, %a;", |a: u64| (a >> 32) as u32),
        script("mov.b64 %x, {%a, %b, %c, %d};", |a: u16, b: u16, c: u16, d: u16| {
            [d, c, b, a].iter().fold(0, |all, &part| all << 16 | u64::from(part))
        }),
        script(".reg .b16 %t<2>;\nmov.b64 {%t0, %x, %t1, %y}, %a;", |a: u64| {
            ((a >> 16) as u16, (a >> 48) as u16)
        }),
    ]);
}

/// The places of a row's own bytes.
///
/// The space in the instruction, the register with the address, and PTX that converts it to a generic address
/// if the instruction names no space.
const PLACES: [(&str, &str, &str); 7] = [
    (".global", "%global", ""),
    (".shared", "%shared", ""),
    (".shared::cta", "%shared", ""),
    (".local", "%local", ""),
    ("", "%global", ""),
    ("", "%shared", "cvta.shared.u64 %shared, %shared;\n"),
    ("", "%local", "cvta.local.u64 %local, %local;\n"),
];

/// Calls a function that is generic over a type, with each memory type, its name and more arguments.
macro_rules! for_each_type {
    ($function:ident($($argument:expr),*)) => {
        for_each_type!($function($($argument),*):
            u8 "b8", u8 "u8", i8 "s8", u16 "b16", u16 "u16", i16 "s16",
            u32 "b32", u32 "u32", i32 "s32", u32 "f32", u64 "b64", u64 "u64", i64 "s64", u64 "f64")
    };
    ($function:ident $arguments:tt: $($int:ident $ty:literal),*) => {
        $(for_each_type!($function $arguments $int $ty);)*
    };
    ($function:ident($($argument:expr),*) $int:ident $ty:literal) => {
        $function::<$int>($ty, $($argument),*)
    };
}

/// Returns the vector lengths that an access to a type can have, 1 for a scalar.
fn vectors<V>() -> &'static [usize] {
    if size_of::<V>() < 8 { &[1, 2, 4] } else { &[1, 2] }
}

/// Returns declarations, the types of an access such as `.v2.b32`, and the loaded registers.
fn loaded<V: Value>(ty: &str, vector: usize) -> (String, String, &'static str) {
    let temporary = format!(".reg .{} %t<2>;\n", V::OPERAND.register());
    match vector {
        1 => (String::new(), format!(".{ty}"), "%x"),
        2 => (String::new(), format!(".v2.{ty}"), "{%x, %y}"),
        _ => (temporary, format!(".v4.{ty}"), "{%t0, %x, %t1, %y}"),
    }
}

/// Adds a row whose text stores GIVEN and loads LOADED, of type TYPE.
fn round_trip<V: Value + 'static>(ty: &str, rows: &mut Vec<Row>, vector: usize, text: &str) {
    let (declared, types, loaded) = loaded::<V>(ty, vector);
    let text = |given: &str| {
        declared + &text.replace("TYPE", &types).replace("LOADED", loaded).replace("GIVEN", given)
    };
    rows.push(match vector {
        1 => script(text("%a"), |a: V| a),
        2 => script(text("{%a, %b}"), |a: V, b: V| (a, b)),
        _ => script(text("{%a, %b, %c, %d}"), |_: V, b: V, _: V, d: V| (b, d)),
    });
}

/// Adds a row that loads LOADED, of type TYPE, from read-only memory: the two given words, or the sources.
fn load<V: Value + 'static>(
    ty: &str,
    rows: &mut Vec<Row>,
    vector: usize,
    text: &str,
    words: Option<[u64; 2]>,
) {
    let (declared, types, loaded) = loaded::<V>(ty, vector);
    let text = declared + &text.replace("TYPE", &types).replace("LOADED", loaded);
    let part = move |place: usize, sources: [u64; 2]| {
        let [low, high] = words.unwrap_or(sources).map(u128::from);
        V::from_register(((high << 64 | low) >> (8 * size_of::<V>() * place)) as u64)
    };
    rows.push(match vector {
        1 => script(text, move |a: u64, b: u64| part(0, [a, b])),
        2 => script(text, move |a: u64, b: u64| (part(0, [a, b]), part(1, [a, b]))),
        _ => script(text, move |a: u64, b: u64| (part(1, [a, b]), part(3, [a, b]))),
    });
}

/// Every type in every memory, including constants and call parameters.
fn accesses(rows: &mut Vec<Row>) {
    fn of_type<V: Value + 'static>(ty: &str, rows: &mut Vec<Row>) {
        for &vector in vectors::<V>() {
            for (space, at, convert) in PLACES {
                let text =
                    format!("{convert}st{space}TYPE [{at}+16], GIVEN;\nld{space}TYPE LOADED, [{at}+16];");
                round_trip::<V>(ty, rows, vector, &text);
            }
            for space in ["param", "param::func"] {
                let text = format!(
                    "{{\n.param .align 16 .b8 given[16];\n.param .align 16 .b8 back[16];\n\
                     st.{space}TYPE [given], GIVEN;\ncall (back), echo, (given);\nld.{space}TYPE LOADED, [back];\n}}"
                );
                round_trip::<V>(ty, rows, vector, &text);
            }
            load::<V>(ty, rows, vector, "ld.constTYPE LOADED, [constants];", Some(CONSTANTS));
            load::<V>(ty, rows, vector, "ld.global.ncTYPE LOADED, [%from];", None);
            load::<V>(ty, rows, vector, "ldu.globalTYPE LOADED, [%from];", None);
        }
    }
    for_each_type!(of_type(rows));
    // Loads into wider registers, extended.
    macro_rules! widening {
        ($($int:ident $ty:literal $to:ident $unsigned:ident,)*) => {$(
            rows.push(script(
                concat!("st.global.b64 [%global], %a;\nld.global.", $ty, " %x, [%global];"),
                |a: u64| a as $int as $to as $unsigned,
            ));
        )*};
    }
    widening! {
        u8 "u8" u32 u32, i8 "s8" i32 u32, u16 "u16" u32 u32, i16 "s16" i32 u32, u8 "b8" u64 u64,
        i8 "s8" i64 u64, u16 "u16" u64 u64, i16 "s16" i64 u64, u32 "u32" u64 u64, i32 "s32" i64 u64,
    }
    rows.push(script(
        "st.global.b64 [%global], 0;\nst.global.b8 [%global+1], %a;\nld.global.b64 %x, [%global];",
        |a: u32| u64::from(a & 0xff) << 8,
    ));
}

const SCOPES: [&str; 4] = ["cta", "cluster", "gpu", "sys"];

/// Orders, scopes and cache operators, which do not change the values that a thread reads.
///
/// Each type has each kind of access, and takes the words that go with it in turn.
fn orders(rows: &mut Vec<Row>) {
    fn of_type<V: Value + 'static>(ty: &str, rows: &mut Vec<Row>, turn: &mut usize) {
        *turn += 1;
        let vector = vectors::<V>()[*turn % vectors::<V>().len()];
        let next = |words: &[&'static str]| words[*turn % words.len()];
        let scope = next(&SCOPES);
        let space = next(&[".global", ".shared", ".shared::cta", ""]);
        let at = if space.starts_with(".shared") { "%shared" } else { "%global" };
        let evict = next(&["evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate"]);
        let ahead = next(&["64B", "128B", "256B"]);
        let (to, from) = (next(&["wb", "cg", "cs", "wt"]), next(&["ca", "cg", "cs", "lu", "cv"]));
        for (store, load, at) in [
            (format!("st.weak{space}.{to}"), format!("ld.weak{space}.{from}"), at),
            (format!("st.volatile{space}"), format!("ld.volatile{space}"), at),
            (format!("st.relaxed.{scope}{space}"), format!("ld.relaxed.{scope}{space}"), at),
            (format!("st.release.{scope}{space}"), format!("ld.acquire.{scope}{space}"), at),
            (format!("st.L1::{evict}"), format!("ld.L1::{evict}.L2::{ahead}"), "%global"),
            (
                format!("st.release.{scope}.L1::{evict}"),
                format!("ld.acquire.{scope}.L1::{evict}.L2::{ahead}"),
                "%global",
            ),
            ("st.volatile.global".to_owned(), format!("ld.volatile.global.L2::{ahead}"), "%global"),
        ] {
            round_trip::<V>(
                ty,
                rows,
                vector,
                &format!("{store}TYPE [{at}], GIVEN;\n{load}TYPE LOADED, [{at}];"),
            );
        }
        let space = next(&[".global", ""]);
        for (store, load) in [
            (format!("st.weak{space}.{to}"), format!("ld.weak{space}.{from}.L2::{ahead}")),
            (format!("st{space}.L1::{evict}"), format!("ld{space}.L1::{evict}")),
            (format!("st.relaxed.{scope}{space}"), format!("ld.relaxed.{scope}{space}.L2::{ahead}")),
            (
                format!("st.release.{scope}{space}.L1::{evict}"),
                format!("ld.acquire.{scope}{space}.L1::{evict}"),
            ),
        ] {
            let text = format!(
                "{POLICY}{store}.L2::cache_hintTYPE [%global], GIVEN, %policy;\n\
                 {load}.L2::cache_hintTYPE LOADED, [%global], %policy;"
            );
            round_trip::<V>(ty, rows, vector, &text);
        }
        // Only scalars.
        let text = "st.mmio.relaxed.sys.globalTYPE [%global], GIVEN;\n\
                    ld.mmio.relaxed.sys.globalTYPE LOADED, [%global];";
        round_trip::<V>(ty, rows, 1, text);
        let operator = next(&["ca", "cg", "cs"]);
        for words in [format!("{operator}.nc"), format!("nc.L1::{evict}.L2::{ahead}")] {
            load::<V>(ty, rows, vector, &format!("ld.global.{words}TYPE LOADED, [%from];"), None);
        }
        let text = format!("{POLICY}ld.global.nc.L2::cache_hintTYPE LOADED, [%from], %policy;");
        load::<V>(ty, rows, vector, &text, None);
    }
    let mut turn = 0;
    for_each_type!(of_type(rows, &mut turn));
    let orders = ["", ".sc", ".acq_rel", ".acquire", ".release"];
    let fences = orders.iter().flat_map(|order| SCOPES.map(|scope| format!("fence{order}.{scope}")));
    let barriers = ["membar.cta", "membar.gl", "membar.sys"].map(str::to_owned);
    for fence in fences.chain(barriers) {
        let text = format!("st.global.b32 [%global], %a;\n{fence};\nld.global.b32 %x, [%global];");
        rows.push(script(text, |a: u32| a));
    }
}

/// The contents of the module's variables.
const CONSTANTS: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

/// Variables, and addresses as values.
fn addresses(rows: &mut Vec<Row>) {
    let variable = |text: &str, result: u64| script(text, move |_: bool| result);
    for space in ["param", "param::entry"] {
        // The first parameter, loaded by its address, is slightly less than %to, which was computed from it.
        let text = format!(
            ".reg .b64 %t;\nmov.b64 %t, results;\ncvta.{space}.u64 %t, %t;\nisspacep.{space} %x, %t;\n\
             cvta.to.{space}.u64 %t, %t;\nld.{space}.u64 %t, [%t];\nsub.u64 %t, %to, %t;\n\
             setp.lt.and.u64 %x, %t, 0x10000000, %x;"
        );
        rows.push(script(text, |_: bool| true));
    }
    rows.extend([
        variable("ld.const.b64 %x, [constants+8];", CONSTANTS[1]),
        variable("ld.global.b64 %x, [globals];", CONSTANTS[0]),
        variable("mov.b64 %x, constants;\nld.const.b64 %x, [%x];", CONSTANTS[0]),
        variable("mov.b64 %x, globals+8;\nld.global.b64 %x, [%x];", CONSTANTS[1]),
        variable("mov.b64 %x, globals;\ncvta.global.u64 %x, %x;\nld.b64 %x, [%x+8];", CONSTANTS[1]),
        variable("mov.b64 %x, constants;\ncvta.const.u64 %x, %x;\nld.b64 %x, [%x];", CONSTANTS[0]),
        variable(
            "mov.b64 %x, globals;\ncvta.global.u64 %x, %x;\ncvta.to.global.u64 %x, %x;\n\
             ld.global.b64 %x, [%x];",
            CONSTANTS[0],
        ),
        variable(
            "mov.b64 %x, constants;\ncvta.const.u64 %x, %x;\ncvta.to.const.u64 %x, %x;\n\
             ld.const.b64 %x, [%x];",
            CONSTANTS[0],
        ),
        // 32 bits hold an address of shared memory.
        script(
            "cvt.u32.u64 %word, %shared;\nst.shared.b32 [%word], %a;\nld.shared.b32 %x, [%shared];",
            |a: u32| a,
        ),
    ]);
    for (space, at) in [("shared", "%shared"), ("local", "%local"), ("shared::cta", "%shared")] {
        let text = format!(
            ".reg .b64 %t;\ncvta.{space}.u64 %t, {at};\nst.b64 [%t], %a;\n\
             cvta.to.{space}.u64 %t, %t;\nadd.u64 %t, %t, 4;\nld.{space}.b32 %x, [%t];"
        );
        rows.push(script(text, |a: u64| (a >> 32) as u32));
    }
    let spaces = [
        ("global", "%global", ""),
        ("shared", "%shared", "cvta.shared.u64 %shared, %shared;\n"),
        ("local", "%local", "cvta.local.u64 %local, %local;\n"),
    ];
    for asked in ["global", "shared", "shared::cta", "local"] {
        for (space, at, convert) in spaces {
            let text = format!("{convert}isspacep.{asked} %x, {at};");
            rows.push(script(text, move |_: bool| asked.split("::").next() == Some(space)));
        }
    }
}

/// Instructions without an effect on values.
fn hints(rows: &mut Vec<Row>) {
    for hint in [
        "prefetch.global.L1 [%global]",
        "prefetch.global.L2 [%global]",
        "prefetch.local.L1 [%local]",
        "prefetch.L1 [%global]",
        "prefetch.L2 [%global]",
        "prefetch.global.L2::evict_last [%global]",
        "prefetch.global.L2::evict_normal [%global]",
        "prefetchu.L1 [%global]",
        "and.b64 %global, %global, -128;\napplypriority.global.L2::evict_normal [%global], 128",
        "and.b64 %global, %global, -128;\ndiscard.global.L2 [%global], 128",
        "and.b64 %global, %global, -128;\ndiscard.L2 [%global], 128",
        "nanosleep.u32 20",
    ] {
        rows.push(script(format!("{hint};\nmov.b32 %x, %a;"), |a: u32| a));
    }
}

/// A cache policy in the register `%policy`.
pub(super) const POLICY: &str =
    ".reg .b64 %policy;\ncreatepolicy.fractional.L2::evict_last.L2::evict_first.b64 %policy, 0.5;\n";

/// `createpolicy`; a load with the policy gives the same value.
fn policies(rows: &mut Vec<Row>) {
    let mut policy = |text: &str| {
        let text = format!(
            ".reg .b64 %policy;\ncreatepolicy.{text};\nld.global.L2::cache_hint.b64 %x, [%from], %policy;"
        );
        rows.push(script(text, |a: u64| a));
    };
    for primary in ["evict_last", "evict_normal", "evict_first", "evict_unchanged"] {
        policy(&format!("fractional.L2::{primary}.b64 %policy"));
        policy(&format!("range.L2::{primary}.b64 %policy, [%from], 64, 128"));
        for secondary in ["evict_first", "evict_unchanged"] {
            policy(&format!("fractional.L2::{primary}.L2::{secondary}.b64 %policy, 0.25"));
            policy(&format!("range.global.L2::{primary}.L2::{secondary}.b64 %policy, [%from], 64, 128"));
        }
    }
    // Only the host can make an access property, so 0 stands for one.
    let text = ".reg .b64 %policy;\ncreatepolicy.cvt.L2.b64 %policy, 0;\nmov.b64 %x, %a;";
    rows.push(script(text, |a: u64| a));
}

/// Asynchronous copies of a thread's own sources.
fn copies(rows: &mut Vec<Row>) {
    let wait = "cp.async.wait_all;\n";
    rows.extend([
        script(
            format!("cp.async.ca.shared.global [%shared], [%from+4], 4;\n{wait}ld.shared.b32 %x, [%shared];"),
            |a: u64| (a >> 32) as u32,
        ),
        script(
            format!(
                "cp.async.ca.shared::cta.global.L2::64B [%shared+8], [%from], 8;\n{wait}ld.shared.b64 %x, [%shared+8];"
            ),
            |a: u64| a,
        ),
        // 32 bits hold an address of shared memory.
        script(
            format!(
                "cvt.u32.u64 %word, %shared;\ncp.async.cg.shared.global.L2::256B [%word+16], [%from], 16;\n{wait}\
                 ld.shared.v2.b64 {{%x, %y}}, [%word+16];"
            ),
            |a: u64, b: u64| (a, b),
        ),
        script(
            format!(
                "{POLICY}cp.async.cg.shared::cta.global.L2::cache_hint.L2::128B [%shared], [%from], 16, %policy;\n\
                 {wait}ld.shared.v2.b64 {{%x, %y}}, [%shared];"
            ),
            |a: u64, b: u64| (a, b),
        ),
        // Two groups: waits for the first alone, then for the second.
        script(
            "cp.async.ca.shared.global [%shared], [%from], 8;\ncp.async.commit_group;\n\
             cp.async.ca.shared.global [%shared+8], [%from+8], 8;\ncp.async.commit_group;\n\
             cp.async.wait_group 1;\nld.shared.b64 %x, [%shared];\n\
             cp.async.wait_group 0;\nld.shared.b64 %y, [%shared+8];",
            |a: u64, b: u64| (a, b),
        ),
    ]);
    // Copies that read only some bytes, or none; the others become zero.
    for (operator, size) in [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)] {
        let kept = move |[a, b]: [u64; 2], count: u32| {
            let kept =
                |word: u64, count: u32| if count >= 8 { word } else { word & ((1 << (8 * count)) - 1) };
            (kept(a, count), kept(b, count.saturating_sub(8)))
        };
        let around = |operand: &str, hint: &str, policy: &str| {
            format!(
                "{}st.shared.v2.b64 [%shared], {{0, 0}};\n\
                 cp.async.{operator}.shared.global{hint} [%shared], [%from], {size}, {operand}{policy};\n{wait}\
                 ld.shared.v2.b64 {{%x, %y}}, [%shared];",
                if hint.is_empty() { "" } else { POLICY }
            )
        };
        let text = format!("rem.u32 %word, %c, {};\n{}", size + 1, around("%word", "", ""));
        rows.push(script(text, move |a: u64, b: u64, c: u32| kept([a, b], c % (size + 1))));
        rows.push(script(around("0", ".L2::cache_hint", ", %policy"), |_: u64, _: u64| (0u64, 0u64)));
        for (operand, ignored) in [("%c", true), ("!%c", false)] {
            let text = around(operand, ".L2::cache_hint", ", %policy");
            rows.push(script(text, move |a: u64, b: u64, c: bool| {
                kept([a, b], if c == ignored { 0 } else { size })
            }));
        }
    }
}

/// `atom` with its old value, and `red`, in each of the given memories; both with the new value.
fn atomic<V: Value + Sync + 'static>(
    rows: &mut Vec<Row>,
    memories: &[&str],
    operation: &str,
    update: impl Fn(V, V) -> V + Copy + Sync + 'static,
) {
    for (space, at, convert) in PLACES.iter().filter(|place| memories.contains(&place.1)) {
        let bits = V::OPERAND.register();
        // The rows take the orders and scopes in turn.
        let (order, scope) = next_order(rows.len());
        let red_order = ["", ".relaxed", ".release"][rows.len() / 2 % 3];
        let around = |text: String, new: &str| {
            format!("{convert}st{space}.{bits} [{at}], %a;\n{text}\nld{space}.{bits} {new}, [{at}];")
        };
        let new = move |thread: &Thread| {
            let [a, b] = [0, 1].map(|place| V::from_register(thread.sources()[place]));
            update(a, b).to_register()
        };
        // The old value comes back unchanged, also a NaN.
        let text = around(format!("atom{order}{scope}{space}.{operation} %x, [{at}], %b;"), "%y");
        rows.push(of_thread(text, |a: V, b: V| (a, b), move |thread| vec![thread.sources()[0], new(thread)]));
        if !operation.starts_with("exch") {
            rows.push(script(
                around(format!("red{red_order}{scope}{space}.{operation} [{at}], %b;"), "%x"),
                update,
            ));
        }
    }
    if memories.contains(&"%global") {
        hinted(rows, operation, update);
    }
}

/// Atomics in global memory with a cache policy.
fn hinted<V: Value + Sync + 'static>(
    rows: &mut Vec<Row>,
    operation: &str,
    update: impl Fn(V, V) -> V + Copy + Sync + 'static,
) {
    let bits = V::OPERAND.register();
    for turn in 0..5 {
        let (order, scope) = next_order(2 * turn);
        let (red_order, space) = (["", ".relaxed", ".release"][turn % 3], ["", ".global"][turn % 2]);
        let red = match operation.starts_with("exch") {
            true => String::new(),
            false => {
                format!("red{red_order}{scope}{space}.{operation}.L2::cache_hint [%global], %b, %policy;\n")
            }
        };
        let once = red.is_empty();
        let text = format!(
            "{POLICY}st.global.{bits} [%global], %a;\n\
             atom{order}{scope}{space}.{operation}.L2::cache_hint %x, [%global], %b, %policy;\n\
             {red}ld.global.{bits} %y, [%global];"
        );
        rows.push(of_thread(
            text,
            |a: V, b: V| (a, b),
            move |thread| {
                let [a, b] = [0, 1].map(|place| V::from_register(thread.sources()[place]));
                let new = V::from_register(update(a, b).to_register());
                let new = if once { new } else { update(new, b) };
                vec![thread.sources()[0], new.to_register()]
            },
        ));
    }
}

/// Vector atomics in global memory.
///
/// `atom` returns the last element's old value and the first one's new value; `red` returns both new values.
fn vector<V: Value + Sync + 'static>(
    rows: &mut Vec<Row>,
    counts: &[usize],
    operation: &str,
    update: impl Fn(V, V) -> V + Copy + Sync + 'static,
) {
    let bits = V::OPERAND.register();
    let bytes = if bits == "b32" { 4 } else { 2 };
    for (turn, &count) in counts.iter().cycle().take(5 * counts.len()).enumerate() {
        let (order, scope) = next_order(2 * turn);
        let (red_order, space) = (["", ".relaxed", ".release"][turn % 3], ["", ".global"][turn % 2]);
        let (policy, hint, operand) =
            if turn % 2 == 0 { (POLICY, ".L2::cache_hint", ", %policy") } else { ("", "", "") };
        let list = |even: &str, odd: &str| {
            let register = |place| if place % 2 == 0 { even } else { odd };
            format!("{{{}}}", (0..count).map(register).collect::<Vec<_>>().join(", "))
        };
        let (given, last) = (list("%c", "%d"), bytes * (count - 1));
        let stores: String = (0..count)
            .map(|place| {
                let register = ["%a", "%b"][place % 2];
                format!("st.global.{bits} [%global+{}], {register};\n", bytes * place)
            })
            .collect();
        let mut old: Vec<String> = (0..count).map(|place| format!("%t{place}")).collect();
        old[count - 1] = "%x".to_owned();
        let old = old.join(", ");
        let words = format!("{scope}{space}.v{count}.{operation}{hint}");
        let text = format!(
            "{policy}.reg .{bits} %t<8>;\n{stores}atom{order}{words} {{{old}}}, [%global], {given}{operand};\n\
             ld.global.{bits} %y, [%global];"
        );
        let new = move |thread: &Thread, place: usize| {
            let [old, value] = [place, 2 + place].map(|place| V::from_register(thread.sources()[place]));
            update(old, value).to_register()
        };
        let types = |_: V, b: V, c: V, _: V| (b, c);
        rows.push(of_thread(text, types, move |thread| vec![thread.sources()[1], new(thread, 0)]));
        let text = format!(
            "{policy}{stores}red{red_order}{words} [%global], {given}{operand};\n\
             ld.global.{bits} %x, [%global];\nld.global.{bits} %y, [%global+{last}];"
        );
        rows.push(of_thread(text, types, move |thread| vec![new(thread, 0), new(thread, 1)]));
    }
}

/// Returns the orders and scopes of atomics in turn.
fn next_order(turn: usize) -> (&'static str, &'static str) {
    let order = ["", ".relaxed", ".acquire", ".release", ".acq_rel"][turn / 2 % 5];
    (order, ["", ".cta", ".cluster", ".gpu", ".sys"][turn % 5])
}

const EVERYWHERE: &[&str] = &["%global", "%shared"];

fn atomics(rows: &mut Vec<Row>) {
    macro_rules! atomics {
        ($($int:ident $ty:literal $($operation:literal $update:expr),*;)*) => {$($(
            let operation = concat!($operation, ".", $ty);
            atomic(rows, EVERYWHERE, operation, |a: $int, b: $int| $update(a, b));
        )*)*};
    }
    atomics! {
        u32 "u32" "add" u32::wrapping_add, "min" u32::min, "max" u32::max;
        i32 "s32" "add" i32::wrapping_add, "min" i32::min, "max" i32::max;
        u64 "u64" "add" u64::wrapping_add, "min" u64::min, "max" u64::max;
        i64 "s64" "min" i64::min, "max" i64::max;
        u32 "b32" "and" |a, b| a & b, "or" |a, b| a | b, "xor" |a, b| a ^ b, "exch" |_, b| b;
        u64 "b64" "and" |a, b| a & b, "or" |a, b| a | b, "xor" |a, b| a ^ b, "exch" |_, b| b;
        u32 "u32" "inc" |a, b| if a >= b { 0 } else { a + 1 },
            "dec" |a, b| if a == 0 || a > b { b } else { a - 1 };
    }
    for (space, at, convert) in PLACES.iter().filter(|place| place.1 != "%local") {
        macro_rules! swaps {
            ($($int:ident $ty:literal)*) => {$(
                let (order, scope) = next_order(rows.len());
                // In half of the threads, the compared value matches.
                let text = format!(
                    "{convert}st{space}.{ty} [{at}], %a;\n@%d mov.{ty} %b, %a;\n\
                     atom{order}{scope}{space}.cas.{ty} %x, [{at}], %b, %c;\nld{space}.{ty} %y, [{at}];",
                    ty = $ty
                );
                rows.push(script(text, |a: $int, b: $int, c: $int, same: bool| {
                    (a, if same || a == b { c } else { a })
                }));
            )*};
        }
        swaps!(u16 "b16" u32 "b32" u64 "b64");
    }
    float_atomics(rows);
}

/// Sums of floats. Sums of f32 flush subnormals in global memory, but not in shared memory (PTX ISA, "atom").
fn float_atomics(rows: &mut Vec<Row>) {
    fn sum<F: Float>(a: F, b: F) -> F {
        (a + b).value
    }
    fn pair<F: Float>(a: Two<F>, b: Two<F>) -> Two<F> {
        Two(sum(a.0, b.0), sum(a.1, b.1))
    }
    atomic(rows, EVERYWHERE, "add.noftz.f16", sum::<Half>);
    atomic(rows, EVERYWHERE, "add.noftz.bf16", sum::<BFloat>);
    atomic(rows, EVERYWHERE, "add.noftz.f16x2", pair::<Half>);
    atomic(rows, EVERYWHERE, "add.noftz.bf16x2", pair::<BFloat>);
    atomic(rows, EVERYWHERE, "add.f64", sum::<Double>);
    atomic(rows, &["%shared"], "add.f32", sum::<Single>);
    let flushed = |a: Single, b: Single| flush(sum(flush(a), flush(b)));
    atomic(rows, &["%global"], "add.f32", flushed);
    vector(rows, &[2, 4], "f32.add", flushed);
    vector(rows, &[2, 4, 8], "f16.add.noftz", sum::<Half>);
    vector(rows, &[2, 4, 8], "bf16.add.noftz", sum::<BFloat>);
    vector(rows, &[2, 4], "f16x2.add.noftz", pair::<Half>);
    vector(rows, &[2, 4], "bf16x2.add.noftz", pair::<BFloat>);
}
