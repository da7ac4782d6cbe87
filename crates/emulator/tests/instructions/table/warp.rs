//! Warp and block instructions, and special registers (PTX ISA, "Parallel Synchronization and Communication
//! Instructions", "Special Registers").

use crate::instructions::kernel::{BLOCK, ROWS};
use crate::instructions::row::{Row, Thread, of_machine, of_thread, script};

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    shuffles(&mut rows);
    votes(&mut rows);
    matches(&mut rows);
    reductions(&mut rows);
    barriers(&mut rows);
    specials(&mut rows);
    rows.push(of_thread("activemask.b32 %x;", |_: bool| 0u32, |_| vec![u64::from(u32::MAX)]));
    rows.push(of_thread(
        "elect.sync %x|%y, -1;",
        |_: bool| (0u32, false),
        |thread| vec![0, u64::from(thread.lane() == 0)],
    ));
    rows
}

/// `shfl`, by the ISA's pseudo code.
fn shuffles(rows: &mut Vec<Row>) {
    /// Returns the lane to read, and whether it is in range.
    ///
    /// Takes the lane, the low five bits of b and of c, and the segment's mask.
    type Source = fn(i32, i32, i32, i32) -> (i32, bool);
    let modes: [(&str, Source); 4] = [
        ("up", |lane, b, c, mask| (lane - b, lane - b >= lane & mask | c & !mask)),
        ("down", |lane, b, c, mask| (lane + b, lane + b <= lane & mask | c & !mask)),
        ("bfly", |lane, b, c, mask| (lane ^ b, lane ^ b <= lane & mask | c & !mask)),
        ("idx", |lane, b, c, mask| {
            let from = lane & mask | b & !mask;
            (from, from <= lane & mask | c & !mask)
        }),
    ];
    for (mode, source) in modes {
        let results = move |thread: &Thread| {
            let [_, b, c, _] = *thread.sources();
            let lane = thread.lane() as i32;
            let (from, inside) = source(lane, b as i32 & 31, c as i32 & 31, c as i32 >> 8 & 31);
            let from = if inside { from } else { lane };
            vec![thread.warp()[from as usize][0], u64::from(inside)]
        };
        let types = |a: u32, _b: u32, _c: u32| (a, false);
        rows.push(of_thread(format!("shfl.sync.{mode}.b32 %x|%y, %a, %b, %c, -1;"), types, results));
    }
    rows.push(of_thread(
        "shfl.sync.bfly.b32 %x, %a, 16, 31, -1;",
        |a: u32| a,
        |thread| vec![thread.warp()[thread.lane() ^ 16][0]],
    ));
}

/// Returns a warp instruction for all lanes; with `part`, for the lanes whose `%a` holds, and `%x` is 0 in
/// the others.
fn guarded(part: bool, ty: &str, instruction: &str) -> String {
    if !part {
        return instruction.replace("MASK", "-1");
    }
    let clear = if ty == "pred" { "setp.ne.b32 %x, 0, 0;".to_owned() } else { format!("mov.{ty} %x, 0;") };
    format!("{clear}\nvote.sync.ballot.b32 %word, %a, -1;\n@%a {}", instruction.replace("MASK", "%word"))
}

/// Returns the mask of the lanes for which something holds.
fn ballot(thread: &Thread, holds: impl Fn(&[u64; 4]) -> bool) -> u32 {
    thread.warp().iter().rev().fold(0, |mask, sources| mask << 1 | u32::from(holds(sources)))
}

/// Returns the mask of the lanes that take part in a [`guarded`] instruction.
fn active(thread: &Thread, part: bool) -> u32 {
    ballot(thread, |sources| !part || sources[0] != 0)
}

fn takes_part(thread: &Thread, part: bool) -> bool {
    !part || thread.sources()[0] != 0
}

fn votes(rows: &mut Vec<Row>) {
    type Vote = fn(u32, u32) -> bool;
    let votes: [(&str, Vote); 3] = [
        ("all", |holds, active| holds == active),
        ("any", |holds, _| holds != 0),
        ("uni", |holds, active| holds == active || holds == 0),
    ];
    for (mode, vote) in votes {
        for (not, negated) in [("", false), ("!", true)] {
            for part in [false, true] {
                let text = guarded(part, "pred", &format!("vote.sync.{mode}.pred %x, {not}%b, MASK;"));
                rows.push(of_thread(
                    text,
                    |_: bool, _: bool| false,
                    move |thread| {
                        let active = active(thread, part);
                        let holds = ballot(thread, |sources| (sources[1] != 0) != negated) & active;
                        vec![u64::from(takes_part(thread, part) && vote(holds, active))]
                    },
                ));
            }
        }
    }
    for part in [false, true] {
        let text = guarded(part, "b32", "vote.sync.ballot.b32 %x, %b, MASK;");
        rows.push(of_thread(
            text,
            |_: bool, _: bool| 0u32,
            move |thread| {
                let holds = ballot(thread, |sources| sources[1] != 0) & active(thread, part);
                vec![if takes_part(thread, part) { holds.into() } else { 0 }]
            },
        ));
    }
}

/// `match`, on the low bits of the second source, so that lanes often have equal values.
fn matches(rows: &mut Vec<Row>) {
    macro_rules! matches {
        ($($int:ident $ty:literal)*) => {$(
            for part in [false, true] {
                for (mask, few) in [(1, "1"), (5, "5"), ($int::MAX, "-1")] {
                    let prepare = format!("and.{ty} %b, %b, {few};\n", ty = $ty);
                    let same = move |thread: &Thread| {
                        let own = thread.sources()[1] as $int & mask;
                        ballot(thread, |sources| sources[1] as $int & mask == own) & active(thread, part)
                    };
                    let any = guarded(part, "b32", concat!("match.any.sync.", $ty, " %x, %b, MASK;"));
                    rows.push(of_thread(prepare.clone() + &any, |_: bool, _: $int| 0u32, move |thread| {
                        vec![if takes_part(thread, part) { same(thread).into() } else { 0 }]
                    }));
                    if part {
                        continue;
                    }
                    let all = concat!("match.all.sync.", $ty, " %x|%y, %b, -1;");
                    rows.push(of_thread(prepare + all, |_: bool, _: $int| (0u32, false), move |thread| {
                        let all = same(thread) == u32::MAX;
                        vec![if all { u32::MAX.into() } else { 0 }, all.into()]
                    }));
                }
            }
        )*};
    }
    matches!(u32 "b32" u64 "b64");
}

/// `redux`.
fn reductions(rows: &mut Vec<Row>) {
    type Fold = fn(u32, u32) -> u32;
    let folds: [(&str, Fold); 9] = [
        ("add.u32", u32::wrapping_add),
        ("add.s32", u32::wrapping_add),
        ("min.u32", u32::min),
        ("max.u32", u32::max),
        ("min.s32", |a, b| (a as i32).min(b as i32) as u32),
        ("max.s32", |a, b| (a as i32).max(b as i32) as u32),
        ("and.b32", |a, b| a & b),
        ("or.b32", |a, b| a | b),
        ("xor.b32", |a, b| a ^ b),
    ];
    for (name, fold) in folds {
        for part in [false, true] {
            let text = guarded(part, "b32", &format!("redux.sync.{name} %x, %b, MASK;"));
            rows.push(of_thread(
                text,
                |_: bool, _: u32| 0u32,
                move |thread| {
                    let values = thread.warp().iter().filter(|sources| !part || sources[0] != 0);
                    let folded = values.map(|sources| sources[1] as u32).reduce(fold).unwrap_or(0);
                    vec![if takes_part(thread, part) { folded.into() } else { 0 }]
                },
            ));
        }
    }
}

/// Values exchanged through shared memory across a barrier, and `bar.red`.
fn barriers(rows: &mut Vec<Row>) {
    // Each thread reads the value of the thread whose index differs by `other` in an XOR.
    let exchange = |barrier: &str, other: u32| {
        let text = format!(
            ".reg .b64 %t;\nst.shared.b32 [%shared], %a;\n{barrier}\nxor.b32 %word, %i1, {other};\n\
             mov.b64 %t, block;\nmad.wide.u32 %t, %word, 32, %t;\nld.shared.b32 %x, [%t];"
        );
        of_thread(
            text,
            |a: u32| a,
            move |thread| {
                let place = thread.index % thread.block.len();
                vec![thread.block[place ^ other as usize][0]]
            },
        )
    };
    for barrier in [
        "bar.sync 0;",
        "bar.sync 0, 128;",
        "bar.cta.sync 3;",
        "barrier.sync 0;",
        "barrier.sync.aligned 1, 128;",
        "barrier.cta.sync 15;",
        "barrier.cta.sync.aligned 0;",
        "mov.u32 %word, 2;\nbar.sync %word;",
        // The lower half of the block only arrives at the first barrier.
        "setp.lt.u32 %p0, %i1, 64;\n@%p0 bar.arrive 1, 128;\n@!%p0 bar.sync 1, 128;\nbar.sync 0;",
        "setp.lt.u32 %p0, %i1, 64;\n@%p0 barrier.cta.arrive 1, 128;\n@!%p0 barrier.cta.sync 1, 128;\nbarrier.sync 0;",
        "setp.lt.u32 %p0, %i1, 64;\n@%p0 barrier.cta.arrive.aligned 1, 128;\n\
         @!%p0 barrier.cta.sync.aligned 1, 128;\nbarrier.sync 0;",
    ] {
        rows.push(exchange(barrier, 127));
    }
    rows.push(exchange("bar.warp.sync -1;", 31));
    rows.push(exchange("activemask.b32 %word;\nbar.warp.sync %word;", 1));
    for (barrier, aligned) in [
        ("bar.red", ""),
        ("bar.cta.red", ""),
        ("barrier.red", ""),
        ("barrier.red", ".aligned"),
        ("barrier.cta.red", ""),
        ("barrier.cta.red", ".aligned"),
    ] {
        for (not, negated) in [("", false), ("!", true)] {
            let count = move |thread: &Thread| {
                thread.block.iter().filter(|sources| (sources[0] != 0) != negated).count() as u64
            };
            let types = |_: bool| false;
            rows.extend([
                of_thread(
                    format!("{barrier}.popc{aligned}.u32 %x, 0, {not}%a;"),
                    |_: bool| 0u32,
                    move |thread| vec![count(thread)],
                ),
                of_thread(format!("{barrier}.and{aligned}.pred %x, 1, {not}%a;"), types, move |thread| {
                    vec![u64::from(count(thread) == 128)]
                }),
                of_thread(format!("{barrier}.or{aligned}.pred %x, 2, 128, {not}%a;"), types, move |thread| {
                    vec![u64::from(count(thread) > 0)]
                }),
            ]);
        }
    }
}

fn specials(rows: &mut Vec<Row>) {
    type Value = fn(&Thread) -> usize;
    const THREADS: usize = (BLOCK[0] * BLOCK[1] * BLOCK[2]) as usize;
    let columns: Value = |thread| thread.threads / THREADS / ROWS as usize;
    let specials: [(&str, Value); 20] = [
        ("%tid.x", |thread| thread.index % 32),
        ("%tid.y", |thread| thread.index / 32 % 2),
        ("%tid.z", |thread| thread.index / 64 % 2),
        ("%ntid.x", |_| BLOCK[0] as usize),
        ("%ntid.y", |_| BLOCK[1] as usize),
        ("%ntid.z", |_| BLOCK[2] as usize),
        ("%ctaid.x", |thread| thread.index / THREADS % (thread.threads / THREADS / ROWS as usize)),
        ("%ctaid.y", |thread| thread.index / THREADS / (thread.threads / THREADS / ROWS as usize)),
        ("%ctaid.z", |_| 0),
        ("%nctaid.x", columns),
        ("%nctaid.y", |_| ROWS as usize),
        ("%nctaid.z", |_| 1),
        ("%laneid", |thread| thread.lane()),
        ("%lanemask_eq", |thread| 1 << thread.lane()),
        ("%lanemask_le", |thread| (2 << thread.lane()) - 1),
        ("%lanemask_lt", |thread| (1 << thread.lane()) - 1),
        ("%lanemask_ge", |thread| 0x1_0000_0000 - (1 << thread.lane())),
        ("%lanemask_gt", |thread| 0x1_0000_0000 - (2 << thread.lane())),
        ("%dynamic_smem_size", |_| 0),
        ("WARP_SZ", |_| 32),
    ];
    for (name, value) in specials {
        let results = move |thread: &Thread| vec![value(thread) as u64];
        rows.push(of_thread(format!("mov.u32 %x, {name};"), |_: bool| 0u32, results));
    }
    for name in [
        "%warpid",
        "%nwarpid",
        "%smid",
        "%nsmid",
        "%total_smem_size",
        "%clock",
        "%clock_hi",
        "%globaltimer_lo",
        "%globaltimer_hi",
    ] {
        rows.push(of_machine(format!("mov.u32 %x, {name};"), |_: bool| 0u32));
    }
    for name in ["%clock64", "%globaltimer", "%gridid"] {
        rows.push(of_machine(format!("mov.u64 %x, {name};"), |_: bool| 0u64));
    }
    // The clock advances.
    rows.push(script(
        ".reg .b64 %t<2>;\nmov.u64 %t0, %clock64;\nbar.sync 0;\nmov.u64 %t1, %clock64;\nsetp.gt.u64 %x, %t1, %t0;",
        |_: bool| true,
    ));
}
