//! Moves, loads, stores and atomics. (PTX ISA, "Data Movement and Conversion Instructions", "atom", "red".)

use super::float::flush;
use crate::row::{Row, Thread, of_thread, row, script};
use crate::value::{BFloat, Double, Half, Single, Two, Value};
use rustc_apfloat::Float;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    moves(&mut rows);
    accesses(&mut rows);
    orders(&mut rows);
    addresses(&mut rows);
    hints(&mut rows);
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

/// Where a row's own bytes are: the space as instructions name it, and the register of their address, with what makes a
/// generic address of it where no space is named.
const PLACES: [(&str, &str, &str); 7] = [
    (".global", "%global", ""),
    (".shared", "%shared", ""),
    (".shared::cta", "%shared", ""),
    (".local", "%local", ""),
    ("", "%global", ""),
    ("", "%shared", "cvta.shared.u64 %shared, %shared;\n"),
    ("", "%local", "cvta.local.u64 %local, %local;\n"),
];

/// A value stored and loaded, of each type, alone and in vectors.
fn accesses(rows: &mut Vec<Row>) {
    for (space, at, convert) in PLACES {
        macro_rules! accesses {
            ($($int:ident $ty:literal)*) => {$(
                let text = |words: &str| format!("{convert}{words}").replace("SPACE", space).replace("AT", at).replace("TYPE", $ty);
                rows.push(script(text("stSPACE.TYPE [AT], %a;\nldSPACE.TYPE %x, [AT];"), |a: $int| a));
                rows.push(script(
                    text("stSPACE.v2.TYPE [AT+16], {%a, %b};\nldSPACE.v2.TYPE {%x, %y}, [AT+16];"),
                    |a: $int, b: $int| (a, b),
                ));
                if $int::BITS < 64 {
                    let register = $int::BITS.max(16);
                    rows.push(script(
                        format!(".reg .b{register} %t<2>;\n") + &text(
                            "stSPACE.v4.TYPE [AT], {%a, %b, %c, %d};\nldSPACE.v4.TYPE {%t0, %x, %t1, %y}, [AT];",
                        ),
                        |_a: $int, b: $int, _c: $int, d: $int| (b, d),
                    ));
                }
            )*};
        }
        accesses!(
            u8 "b8" u8 "u8" i8 "s8" u16 "b16" u16 "u16" i16 "s16" u32 "b32" u32 "u32" i32 "s32" u32 "f32"
            u64 "b64" u64 "u64" i64 "s64" u64 "f64"
        );
    }
    // Through the parameters of a call.
    macro_rules! parameters {
        ($($int:ident $ty:literal)*) => {$(
            let text = |types: &str, store: &str, load: &str| {
                format!(
                    "{{\n.param .align 16 .b8 given[16];\n.param .align 16 .b8 back[16];\n\
                     st.param{types} [given], {store};\ncall (back), echo, (given);\n\
                     ld.param{types} {load}, [back];\n}}"
                )
            };
            rows.push(script(text(concat!(".", $ty), "%a", "%x"), |a: $int| a));
            rows.push(script(text(concat!(".v2.", $ty), "{%a, %b}", "{%x, %y}"), |a: $int, b: $int| (a, b)));
        )*};
    }
    parameters!(
        u8 "b8" u8 "u8" i8 "s8" u16 "b16" u16 "u16" i16 "s16" u32 "b32" u32 "u32" i32 "s32" u32 "f32"
        u64 "b64" u64 "u64" i64 "s64" u64 "f64"
    );
    // Into wider registers, extended.
    macro_rules! widening {
        ($($int:ident $ty:literal $to:ident $unsigned:ident,)*) => {$(
            rows.push(script(
                concat!("st.global.b64 [%global], %a;\nld.global.", $ty, " %x, [%global];"),
                |a: u64| a as $int as $to as $unsigned,
            ));
        )*};
    }
    widening! {
        u8 "u8" u32 u32, i8 "s8" i32 u32, u16 "u16" u32 u32, i16 "s16" i32 u32, u8 "b8" u64 u64, i8 "s8" i64 u64,
        u16 "u16" u64 u64, i16 "s16" i64 u64, u32 "u32" u64 u64, i32 "s32" i64 u64,
    }
    rows.push(script(
        "st.global.b64 [%global], 0;\nst.global.b8 [%global+1], %a;\nld.global.b64 %x, [%global];",
        |a: u32| u64::from(a & 0xff) << 8,
    ));
}

/// Orders, scopes and cache operators, which change no value that a thread itself reads.
fn orders(rows: &mut Vec<Row>) {
    let scopes = ["cta", "cluster", "gpu", "sys"];
    let mut pairs = vec![
        (".weak".to_owned(), ".weak".to_owned()),
        (".volatile".to_owned(), ".volatile".to_owned()),
        (".mmio.relaxed.sys".to_owned(), ".mmio.relaxed.sys".to_owned()),
    ];
    for scope in scopes {
        pairs.push((format!(".relaxed.{scope}"), format!(".relaxed.{scope}")));
        pairs.push((format!(".release.{scope}"), format!(".acquire.{scope}")));
    }
    let access = |store: &str, load: &str| {
        script(format!("st{store}.b32 [%global], %a;\nld{load}.b32 %x, [%global];"), |a: u32| a)
    };
    for (store, load) in &pairs {
        rows.push(access(&format!("{store}.global"), &format!("{load}.global")));
        if !store.contains("mmio") {
            let text = format!(
                "st{store}.shared.v2.b32 [%shared], {{%a, %b}};\nld{load}.shared.v2.b32 {{%x, %y}}, [%shared];"
            );
            rows.push(script(text, |a: u32, b: u32| (a, b)));
        }
    }
    for (store, load) in [
        (".wb", ".ca"),
        (".cg", ".cg"),
        (".cs", ".cs"),
        (".wt", ".lu"),
        ("", ".cv"),
        (".L1::evict_last", ".L1::evict_last"),
        (".L1::no_allocate", ".L1::no_allocate"),
        ("", ".L1::evict_first.L2::128B"),
        ("", ".L1::evict_normal.L2::256B"),
        ("", ".L1::evict_unchanged.L2::64B"),
    ] {
        rows.push(access(&format!(".global{store}"), &format!(".global{load}")));
    }
    // Of memory that nobody writes during the launch.
    for load in [
        "ldu.global",
        "ld.global.nc",
        "ld.global.nc.L1::no_allocate",
        "ld.global.nc.L1::no_allocate.L2::128B",
    ] {
        rows.push(script(format!("{load}.b64 %x, [%from];"), |a: u64| a));
        rows.push(script(format!("{load}.v2.u64 {{%x, %y}}, [%from];"), |a: u64, b: u64| (a, b)));
    }
    let fences =
        ["fence.sc", "fence.acq_rel"].iter().flat_map(|fence| scopes.map(|scope| format!("{fence}.{scope}")));
    let barriers = ["membar.cta", "membar.gl", "membar.sys"].map(str::to_owned);
    for fence in fences.chain(barriers) {
        let text = format!("st.global.b32 [%global], %a;\n{fence};\nld.global.b32 %x, [%global];");
        rows.push(script(text, |a: u32| a));
    }
}

/// Variables, and addresses as values.
fn addresses(rows: &mut Vec<Row>) {
    const VALUES: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
    let variable = |text: &str, result: u64| script(text, move |_: bool| result);
    macro_rules! constants {
        ($($int:ident $ty:literal)*) => {$(
            rows.push(script(concat!("ld.const.v2.", $ty, " {%x, %y}, [constants];"), |_: bool| {
                let bytes = VALUES.map(u64::to_le_bytes).concat();
                let part = |place: usize| {
                    let size = size_of::<$int>();
                    $int::from_le_bytes(bytes[place * size..][..size].try_into().expect("as many bytes"))
                };
                (part(0), part(1))
            }));
        )*};
    }
    constants!(
        u8 "b8" u8 "u8" i8 "s8" u16 "b16" u16 "u16" i16 "s16" u32 "b32" u32 "u32" i32 "s32" u32 "f32"
        u64 "b64" u64 "u64" i64 "s64" u64 "f64"
    );
    for space in ["param", "param::entry"] {
        let text = format!(
            ".reg .b64 %t;\nmov.b64 %t, results;\ncvta.{space}.u64 %t, %t;\nisspacep.{space} %x, %t;\n\
             cvta.to.{space}.u64 %t, %t;\nld.param.u64 %t, [%t];\nsub.u64 %t, %to, %t;\n\
             setp.lt.and.u64 %x, %t, 0x10000000, %x;"
        );
        rows.push(script(text, |_: bool| true));
    }
    rows.extend([
        variable("ld.const.b64 %x, [constants+8];", VALUES[1]),
        variable("ld.global.b64 %x, [globals];", VALUES[0]),
        variable("mov.b64 %x, constants;\nld.const.b64 %x, [%x];", VALUES[0]),
        variable("mov.b64 %x, globals+8;\nld.global.b64 %x, [%x];", VALUES[1]),
        variable("mov.b64 %x, globals;\ncvta.global.u64 %x, %x;\nld.b64 %x, [%x+8];", VALUES[1]),
        variable("mov.b64 %x, constants;\ncvta.const.u64 %x, %x;\nld.b64 %x, [%x];", VALUES[0]),
        variable("mov.b64 %x, globals;\ncvta.global.u64 %x, %x;\ncvta.to.global.u64 %x, %x;\nld.global.b64 %x, [%x];", VALUES[0]),
        variable("mov.b64 %x, constants;\ncvta.const.u64 %x, %x;\ncvta.to.const.u64 %x, %x;\nld.const.b64 %x, [%x];", VALUES[0]),
        // 32 bits hold an address of shared memory.
        script("cvt.u32.u64 %word, %shared;\nst.shared.b32 [%word], %a;\nld.shared.b32 %x, [%shared];", |a: u32| a),
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

/// Instructions that change no value.
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

/// `atom`, which gives the old value, and `red`, each in one memory or both; and the new value.
fn atomic<V: Value + Sync + 'static>(
    rows: &mut Vec<Row>,
    memories: &[&str],
    operation: &str,
    update: impl Fn(V, V) -> V + Copy + Sync + 'static,
) {
    for (space, at, convert) in PLACES.iter().filter(|place| memories.contains(&place.1)) {
        let bits = V::OPERAND.register();
        let around = |text: String, new: &str| {
            format!("{convert}st{space}.{bits} [{at}], %a;\n{text}\nld{space}.{bits} {new}, [{at}];")
        };
        let new = move |thread: &Thread| {
            let [a, b] = [0, 1].map(|place| V::from_register(thread.sources()[place]));
            update(a, b).to_register()
        };
        // The old value comes back as it was, a NaN too.
        let text = around(format!("atom{space}.{operation} %x, [{at}], %b;"), "%y");
        rows.push(of_thread(text, |a: V, b: V| (a, b), move |thread| vec![thread.sources()[0], new(thread)]));
        if !operation.starts_with("exch") {
            rows.push(script(around(format!("red{space}.{operation} [{at}], %b;"), "%x"), update));
        }
    }
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
                // In half of the threads the value is the expected one.
                let text = format!(
                    "{convert}st{space}.{ty} [{at}], %a;\n@%d mov.{ty} %b, %a;\n\
                     atom{space}.cas.{ty} %x, [{at}], %b, %c;\nld{space}.{ty} %y, [{at}];",
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
    for order in ["relaxed", "acquire", "release", "acq_rel"] {
        for scope in ["cta", "cluster", "gpu", "sys"] {
            let text = format!(
                "st.global.b32 [%global], %a;\natom.{order}.{scope}.global.add.u32 %x, [%global], %b;"
            );
            rows.push(script(text, |a: u32, _b: u32| a));
        }
    }
}

/// Sums of floats. In global memory those of f32 flush subnormals, in shared memory not. (PTX ISA, "atom".)
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
    atomic(rows, &["%global"], "add.f32", |a: Single, b: Single| flush(sum(flush(a), flush(b))));
}
