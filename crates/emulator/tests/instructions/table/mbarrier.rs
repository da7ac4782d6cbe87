//! mbarriers and bulk copies (PTX ISA, "mbarrier", "Data Movement and Conversion Instructions: Bulk copy").
//!
//! Each thread has an mbarrier of its own, and copies 16 bytes of its own.

use super::memory::POLICY;
use crate::instructions::row::{Reference, Row, Thread, of_thread, script};
use crate::instructions::value::{BFloat, Double, Half, Single, Value};
use rustc_apfloat::Float;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    arrivals(&mut rows);
    waits(&mut rows);
    bytes(&mut rows);
    copies(&mut rows);
    bulk_copies(&mut rows);
    reductions(&mut rows);
    rows
}

/// The space in the instruction, and the address of the thread's mbarrier.
const PLACES: [(&str, &str); 4] = [
    ("", "%generic"),
    (".shared", "%shared+16"),
    (".shared::cta", "%shared+16"),
    (".shared::cluster", "%shared+16"),
];

/// Adds the registers of the rows, and a generic address, to a text.
fn row<S>(text: String, f: impl Reference<S>) -> Row {
    let text = format!(
        ".reg .b64 %generic, %state;\n.reg .b32 %bit;\ncvta.shared.u64 %generic, %shared;\n\
         add.u64 %generic, %generic, 16;\n{text}"
    );
    script(text, f)
}

/// Shifts the result of a test of the phase's parity into `%x`, which has been 0 at first.
fn test(parity: u32) -> String {
    format!(
        "mbarrier.test_wait.parity.shared.b64 %p0, [%shared+16], {parity};\nselp.b32 %bit, 1, 0, %p0;\n\
         shl.b32 %x, %x, 1;\nor.b32 %x, %x, %bit;\n"
    )
}

/// An arrival by so many threads.
fn arrive(count: u32) -> String {
    format!("mbarrier.arrive.shared.b64 _, [%shared+16], {count};\n")
}

fn arrivals(rows: &mut Vec<Row>) {
    let orders = ["", ".release.cta", ".release.cluster", ".relaxed.cta", ".relaxed.cluster"];
    let complete = "mbarrier.complete_tx.shared.b64 [%shared+16], 16;\n";
    for (turn, order) in orders.into_iter().enumerate() {
        for (place, (space, at)) in PLACES.into_iter().enumerate() {
            for with in ["arrive", "arrive_drop", "arrive.expect_tx", "arrive_drop.expect_tx"] {
                let init = ["", ".shared", ".shared::cta"][(turn + place) % 3];
                let init_at = if init.is_empty() { "%generic" } else { "%shared+16" };
                let (state, pending) = match space {
                    ".shared::cluster" => ("_", "mov.b32 %y, 3;\n"),
                    _ => ("%state", "mbarrier.pending_count.b64 %y, %state;\n"),
                };
                let (operand, rest) = match (with.ends_with("expect_tx"), turn % 2) {
                    // The bytes are missing after the last arrival.
                    (true, _) => (", 16", arrive(2) + complete),
                    (false, 0) => (", 2", arrive(1)),
                    (false, _) => ("", arrive(2)),
                };
                let text = [
                    format!("mov.b32 %x, 0;\nmbarrier.init{init}.b64 [{init_at}], 3;\n"),
                    format!("mbarrier.{with}{order}{space}.b64 {state}, [{at}]{operand};\n{pending}"),
                    test(0) + &rest + &test(0) + &test(1),
                    format!("mbarrier.inval{init}.b64 [{init_at}];"),
                ];
                rows.push(row(text.concat(), || (0b010u32, 3u32)));
            }
        }
    }
    // What does not complete the phase.
    for order in ["", ".release.cta"] {
        for (space, at) in &PLACES[..3] {
            for with in ["arrive", "arrive_drop"] {
                let text = [
                    "mov.b32 %x, 0;\nmbarrier.init.shared.b64 [%shared+16], 3;\n".to_owned(),
                    format!("mbarrier.{with}.noComplete{order}{space}.b64 %state, [{at}], 2;\n"),
                    test(0) + "mbarrier.arrive.shared.b64 %state, [%shared+16];\n" + &test(0),
                    "mbarrier.pending_count.b64 %y, %state;".to_owned(),
                ];
                rows.push(row(text.concat(), || (0b01u32, 1u32)));
            }
        }
    }
    // Threads that drop out are not expected in the next phase.
    let text = [
        "mbarrier.init.shared.b64 [%shared+16], 5;\nmbarrier.arrive_drop.shared.b64 _, [%shared+16], 2;\n",
        &arrive(3),
        "mbarrier.arrive.shared.b64 %state, [%shared+16];\nmbarrier.pending_count.b64 %x, %state;",
    ];
    rows.push(row(text.concat(), || 3u32));
}

fn waits(rows: &mut Vec<Row>) {
    let orders = ["", ".acquire.cta", ".acquire.cluster", ".relaxed.cta", ".relaxed.cluster"];
    for order in orders {
        for (space, at) in &PLACES[..3] {
            // The last is how long the wait may take.
            for (wait, hint) in [("test_wait", ""), ("try_wait", ""), ("try_wait", ", 10")] {
                for (parity, operand) in [("", "%state"), (".parity", "0")] {
                    let words = format!("{wait}{parity}{order}{space}.b64 %p0, [{at}], {operand}{hint};\n");
                    let test = |result: &str| format!("mbarrier.{words}selp.b32 {result}, 1, 0, %p0;\n");
                    let text = [
                        "mbarrier.init.shared.b64 [%shared+16], 2;\n",
                        "mbarrier.arrive.shared.b64 %state, [%shared+16];\n",
                        &test("%x"),
                        &arrive(1),
                        &test("%y"),
                    ];
                    rows.push(row(text.concat(), || (0u32, 1u32)));
                }
            }
        }
    }
}

/// Bytes that phases wait for, expected before or after they have come.
fn bytes(rows: &mut Vec<Row>) {
    for order in ["", ".relaxed.cta", ".relaxed.cluster"] {
        for (space, at) in PLACES {
            for words in [["expect_tx", "complete_tx"], ["complete_tx", "expect_tx"]] {
                let [first, second] = words
                    .map(|word| format!("mbarrier.{word}{order}{space}.b64 [{at}], %word;\n") + &test(0));
                let text = [
                    "mov.b32 %x, 0;\nmbarrier.init.shared.b64 [%shared+16], 2;\nand.b32 %word, %a, 1023;\n",
                    "add.u32 %word, %word, 1;\n",
                    &(arrive(1) + &first + &second + &arrive(1) + &test(0)),
                ];
                rows.push(row(text.concat(), |_a: u32| 0b001u32));
            }
        }
    }
    let fences = [
        "mbarrier_init.release.cluster",
        "proxy.alias",
        "proxy.async",
        "proxy.async.global",
        "proxy.async.shared::cta",
        "proxy.async.shared::cluster",
    ];
    let fences = fences.map(|fence| format!("fence.{fence};\n")).concat();
    let text = format!("mov.b32 %x, 0;\nmbarrier.init.shared.b64 [%shared+16], 1;\n{fences}");
    rows.push(row(text + &arrive(1) + &test(0), || 1u32));
}

/// Waits until the first phase of the thread's mbarrier is complete.
const WAIT: &str = "WAIT: mbarrier.try_wait.parity.shared.b64 %p0, [%shared+16], 0;\n@!%p0 bra WAIT;\n";

/// Copies that are not in bulk.
fn copies(rows: &mut Vec<Row>) {
    for (space, at) in &PLACES[..3] {
        for (increment, arrive) in [(".noinc", ""), ("", "mbarrier.arrive.shared.b64 _, [%shared+16];\n")] {
            rows.push(row(
                format!(
                    "mbarrier.init.shared.b64 [%shared+16], 1;\ncp.async.ca.shared.global [%shared], [%from], 16;\n\
                     cp.async.mbarrier.arrive{increment}{space}.b64 [{at}];\n{arrive}{WAIT}\
                     ld.shared.v2.b64 {{%x, %y}}, [%shared];"
                ),
                |a: u64, b: u64| (a, b),
            ));
        }
    }
}

fn bulk_copies(rows: &mut Vec<Row>) {
    for space in ["shared::cluster", "shared::cta"] {
        for (policy, hint, operand) in [("", "", ""), (POLICY, ".L2::cache_hint", ", %policy")] {
            rows.push(row(
                format!(
                    "{policy}mbarrier.init.shared.b64 [%shared+16], 1;\nfence.proxy.async;\n\
                     cp.async.bulk.prefetch.L2.global{hint} [%from], 16{operand};\n\
                     mbarrier.arrive.expect_tx.shared.b64 _, [%shared+16], 16;\n\
                     cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes{hint}\n\
                     [%shared], [%from], 16, [%shared+16]{operand};\n\
                     {WAIT}ld.shared.v2.b64 {{%x, %y}}, [%shared];"
                ),
                |a: u64, b: u64| (a, b),
            ));
        }
    }
    for (policy, hint, operand) in [("", "", ""), (POLICY, ".L2::cache_hint", ", %policy")] {
        for read in ["", ".read"] {
            rows.push(row(
                format!(
                    "{policy}st.shared.v2.b64 [%shared], {{%a, %b}};\nfence.proxy.async;\n\
                     cp.async.bulk.global.shared::cta.bulk_group{hint} [%global], [%shared], 16{operand};\n\
                     cp.async.bulk.commit_group;\ncp.async.bulk.wait_group{read} 0;\ncp.async.bulk.wait_group 0;\n\
                     fence.proxy.async;\nld.global.v2.b64 {{%x, %y}}, [%global];"
                ),
                |a: u64, b: u64| (a, b),
            ));
        }
    }
}

/// A reduction of 16 bytes: the first element's and the last element's new values.
fn reduction<V: Value + Sync + 'static>(
    rows: &mut Vec<Row>,
    operation: &str,
    update: impl Fn(V, V) -> V + Copy + Sync + 'static,
) {
    let bits = V::OPERAND.register();
    let bytes = bits[1..].parse::<usize>().expect("a width") / 8;
    for (policy, hint, operand) in [("", "", ""), (POLICY, ".L2::cache_hint", ", %policy")] {
        let last = 16 - bytes;
        let stores: String = (0..16 / bytes)
            .map(|element| {
                let (at, even) = (element * bytes, element % 2 == 0);
                let [old, new] = if even { ["%a", "%c"] } else { ["%b", "%d"] };
                format!("st.global.{bits} [%global+{at}], {old};\nst.shared.{bits} [%shared+{at}], {new};\n")
            })
            .collect();
        let text = format!(
            "{policy}{stores}fence.proxy.async;\n\
             cp.reduce.async.bulk.global.shared::cta.bulk_group{hint}.{operation} [%global], [%shared], 16{operand};\n\
             cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nfence.proxy.async;\n\
             ld.global.{bits} %x, [%global];\nld.global.{bits} %y, [%global+{last}];"
        );
        let new = move |thread: &Thread, place: usize| {
            let [old, value] = [place, 2 + place].map(|place| V::from_register(thread.sources()[place]));
            update(old, value).to_register()
        };
        let types = |a: V, b: V, _: V, _: V| (a, b);
        rows.push(of_thread(text, types, move |thread| vec![new(thread, 0), new(thread, 1)]));
    }
}

fn reductions(rows: &mut Vec<Row>) {
    macro_rules! reductions {
        ($($int:ident $ty:literal $($operation:literal $update:expr),*;)*) => {$($(
            reduction(rows, concat!($operation, ".", $ty), |a: $int, b: $int| $update(a, b));
        )*)*};
    }
    reductions! {
        u32 "u32" "add" u32::wrapping_add, "min" u32::min, "max" u32::max;
        i32 "s32" "add" i32::wrapping_add, "min" i32::min, "max" i32::max;
        u64 "u64" "add" u64::wrapping_add, "min" u64::min, "max" u64::max;
        i64 "s64" "min" i64::min, "max" i64::max;
        u32 "b32" "and" |a, b| a & b, "or" |a, b| a | b, "xor" |a, b| a ^ b;
        u64 "b64" "and" |a, b| a & b, "or" |a, b| a | b, "xor" |a, b| a ^ b;
        u32 "u32" "inc" |a, b| if a >= b { 0 } else { a + 1 },
            "dec" |a, b| if a == 0 || a > b { b } else { a - 1 };
    }
    fn sum<F: Float>(a: F, b: F) -> F {
        (a + b).value
    }
    reduction(rows, "add.noftz.f16", sum::<Half>);
    reduction(rows, "add.noftz.bf16", sum::<BFloat>);
    reduction(rows, "add.f64", sum::<Double>);
    reduction(rows, "add.f32", sum::<Single>);
}
