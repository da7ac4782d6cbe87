//! Kernels as nvcc and rustc emit them: early exits, partial warps, block counters; and their faults.

use super::{Machine, kernel};
use crate::{
    exec::{self, Launch},
    fault::{Fault, FaultKind},
};

/// The warp orders in which a kernel must be correct.
const SEEDS: [Option<u64>; 5] = [None, Some(1), Some(2), Some(3), Some(4)];

/// Runs a body in all orders and checks that they agree. `%rd0` holds one result word per thread.
fn run(body: &str, blocks: u32, threads: u32) -> Result<Vec<u32>, Box<Fault>> {
    let mut first = None;
    for seed in SEEDS {
        let mut machine = Machine::new(body);
        machine.settings.seed = seed;
        let count = (blocks * threads) as usize;
        let out = machine.upload(&vec![77u32; count]);
        let counter = machine.upload(&[0u32; 64]);
        machine.launch(blocks, threads, &[out, counter])?;
        let words = machine.words(out, count);
        assert_eq!(first.get_or_insert_with(|| words.clone()), &words, "seed {seed:?}");
    }
    Ok(first.unwrap_or_default())
}

fn well(body: &str, blocks: u32, threads: u32) -> Vec<u32> {
    run(body, blocks, threads).unwrap_or_else(|fault| panic!("{fault}\n{body}"))
}

/// `if i >= n { return }` as rustc and nvcc emit it: all exits branch to one `ret`. `%r1` is the thread's
/// index in the grid.
const EARLY: &str = "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r1, %r2, %r3, %r0;
    mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd3, %rd0;
    setp.ge.u32 %p1, %r1, 300; @%p1 bra OUT;";

#[test]
fn a_barrier_does_not_wait_for_threads_that_left() {
    let body = format!(
        "{EARLY}
        shl.b32 %r4, %r0, 2; mov.u32 %r5, shared; add.u32 %r5, %r5, %r4; st.shared.u32 [%r5], %r1;
        bar.sync 0;
        ld.shared.u32 %r6, [shared];
        bar.sync 0;
        st.global.u32 [%rd3], %r6;
        OUT:"
    );
    let expected: Vec<u32> = (0..512).map(|i| if i < 300 { i / 256 * 256 } else { 77 }).collect();
    assert_eq!(well(&body, 2, 256), expected);
    // Threads may still work before they exit.
    let busy = body.replace(
        "@%p1 bra OUT;",
        "@!%p1 bra GO; mov.u32 %r20, 0;
        SLOW: add.u32 %r20, %r20, 1; setp.lt.u32 %p9, %r20, %r0; @%p9 bra SLOW; st.global.u32 [%rd3], 5;
        bra OUT;
        GO:",
    );
    let slow: Vec<u32> = (0..512).map(|i| if i < 300 { i / 256 * 256 } else { 5 }).collect();
    assert_eq!(well(&busy, 2, 256), slow);
    // Also for an explicit number of threads, and for barriers that are not aligned.
    assert_eq!(well(&body.replace("bar.sync 0", "barrier.sync 0"), 2, 256), expected);
    let one_warp = body.replace("bar.sync 0;", "bar.sync 0, 32;").replace("300", "20");
    let expected: Vec<u32> = (0..32).map(|i| if i < 20 { 0 } else { 77 }).collect();
    assert_eq!(well(&one_warp, 1, 32), expected);
}

#[test]
fn a_warp_does_not_wait_for_lanes_that_left() {
    let body = format!(
        "{EARLY}
        vote.sync.ballot.b32 %r6, 1, 0xffffffff;
        bar.warp.sync 0xffffffff;
        shfl.sync.down.b32 %r7|%p2, %r1, 1, 31, 0xffffffff;
        st.global.u32 [%rd3], %r6;
        OUT:"
    );
    let expected: Vec<u32> = (0..320)
        .map(|i| {
            if i < 288 {
                u32::MAX
            } else if i < 300 {
                0xfff
            } else {
                77
            }
        })
        .collect();
    assert_eq!(well(&body, 1, 320), expected);
}

#[test]
fn lanes_meet_again_although_some_may_leave_between() {
    // Odd lanes may exit within their branch. After it, all others are one warp again.
    let body = format!(
        "{EARLY}
        and.b32 %r4, %r0, 1; setp.eq.u32 %p2, %r4, 0; @%p2 bra JOIN;
        setp.eq.u32 %p3, %r0, 5; @%p3 bra OUT;
        add.u32 %r1, %r1, 1;
        JOIN: activemask.b32 %r6;
        bar.sync 0;
        st.global.u32 [%rd3], %r6;
        OUT:"
    );
    let active = |i: u32| match i / 32 {
        0 => !(1 << 5),
        9 => 0xfff,
        _ => u32::MAX,
    };
    let expected: Vec<u32> = (0..320).map(|i| if i == 5 || i >= 300 { 77 } else { active(i) }).collect();
    assert_eq!(well(&body, 1, 320), expected);
    // In a loop that can also be left in its middle.
    let body = format!(
        "{EARLY} mov.u32 %r10, 0;
        LOOP: setp.eq.u32 %p2, %r10, 9; @%p2 bra OUT;
        shr.u32 %r4, %r0, %r10; and.b32 %r4, %r4, 1; setp.eq.u32 %p3, %r4, 0; @%p3 bra NEXT;
        setp.eq.u32 %p4, %r0, 7; @%p4 bra OUT;
        NEXT: bar.sync 0; activemask.b32 %r6; st.global.u32 [%rd3], %r6;
        add.u32 %r10, %r10, 1; bra LOOP;
        OUT:"
    );
    let found = well(&body, 1, 64);
    assert_eq!((found[0], found[7], found[63]), (0xffff_ff7f, 77, u32::MAX));
}

#[test]
fn lanes_at_a_meeting_point_go_on_to_the_warps_barrier() {
    // The lower half waits inside the branch for the upper half, which would wait for it at the join.
    let body = "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0;
        setp.ge.u32 %p1, %r0, 16; @%p1 bra JOIN;
        bar.warp.sync 0xffffffff;
        JOIN: bar.warp.sync 0xffffffff;
        setp.lt.u32 %p2, %r0, 16; @%p2 bra END; bar.warp.sync 0xffffffff;
        END: st.global.u32 [%rd3], %r0;";
    assert_eq!(well(body, 1, 32), (0..32).collect::<Vec<_>>());
}

/// A sum over halves of a warp, each with its own mask, in shared memory and by shuffles.
fn halves(step: &str) -> String {
    format!(
        "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0;
        mov.u32 %r20, %laneid; and.b32 %r21, %r20, 16; mov.u32 %r22, 0xffff; shl.b32 %r22, %r22, %r21;
        shl.b32 %r4, %r0, 2; mov.u32 %r5, shared; add.u32 %r6, %r5, %r4;
        st.shared.u32 [%r6], %r0;
        {step}
        xor.b32 %r7, %r4, 60; add.u32 %r7, %r7, %r5; ld.shared.u32 %r8, [%r7];
        shfl.sync.down.b32 %r9|%p1, %r8, 8, 0x100f, %r22; add.u32 %r8, %r8, %r9;
        shfl.sync.down.b32 %r9|%p1, %r8, 4, 0x100f, %r22; add.u32 %r8, %r8, %r9;
        shfl.sync.down.b32 %r9|%p1, %r8, 2, 0x100f, %r22; add.u32 %r8, %r8, %r9;
        shfl.sync.down.b32 %r9|%p1, %r8, 1, 0x100f, %r22; add.u32 %r8, %r8, %r9;
        shfl.sync.idx.b32 %r9|%p1, %r8, 0, 0x101f, %r22;
        vote.sync.ballot.b32 %r10, 1, %r22; setp.ne.u32 %p2, %r10, %r22; @%p2 trap;
        match.any.sync.b32 %r11, %r9, %r22; setp.ne.u32 %p2, %r11, %r22; @%p2 trap;
        redux.sync.add.u32 %r12, %r0, %r22; setp.ne.u32 %p2, %r12, %r9; @%p2 trap;
        elect.sync %r13|%p3, %r22; setp.ne.u32 %p2, %r13, %r21; @%p2 trap;
        st.global.u32 [%rd3], %r9;"
    )
}

#[test]
fn parts_of_a_warp_have_masks_of_their_own() {
    let expected: Vec<u32> = (0..64).map(|t| (0..16).map(|lane| t / 16 * 16 + lane).sum()).collect();
    assert_eq!(well(&halves("bar.warp.sync %r22;"), 1, 64), expected);
    // With one half diverged before, or at an instruction of its own.
    let apart = "setp.eq.u32 %p5, %r21, 0; @%p5 bra LOW; bar.warp.sync %r22; bra HIGH;
        LOW: bar.warp.sync 0xffff; bar.warp.sync %r22; HIGH:";
    assert_eq!(well(&halves(apart), 1, 64), expected);
    // One half waits with the full mask, and the other half arrives later.
    let later =
        "bar.warp.sync %r22; mov.u32 %r30, -1; setp.eq.u32 %p5, %r21, 0; selp.b32 %r30, 0xffff, %r30, %p5;
        bar.warp.sync %r30; @!%p5 bra HIGH; bar.warp.sync 0xffffffff; HIGH:";
    assert_eq!(well(&halves(later), 1, 64), expected);
}

#[test]
fn a_barrier_of_some_lanes_orders_only_these() {
    for step in ["", "bar.warp.sync 1;", "setp.ne.u32 %p6, %r20, 0; @%p6 bra GO; bar.warp.sync 1; GO:"] {
        let step =
            if step == "bar.warp.sync 1;" { "shl.b32 %r31, 1, %r20; bar.warp.sync %r31;" } else { step };
        let fault = run(&halves(step), 1, 64).expect_err(step);
        assert!(matches!(fault.kind, FaultKind::Race { .. }), "{step}: {fault}");
    }
    // Lanes 0 to 7 meet, then 4 to 15: lane 4 orders lane 0's write before lane 15's read. In the other order
    // it does not.
    let chain = |first: u32, second: u32| {
        let part = |mask: u32, label: &str| {
            format!(
                "shr.u32 %r30, {mask}, %r20; and.b32 %r30, %r30, 1; setp.eq.u32 %p6, %r30, 0;
                @%p6 bra {label};
                bar.warp.sync {mask}; {label}:"
            )
        };
        let body = |space: &str, base: &str| {
            format!(
                "mov.u32 %r20, %laneid;
                setp.ne.u32 %p1, %r20, 0; @%p1 bra WROTE; st.{space}.u32 [{base}], 5; WROTE:
                {} {}
                setp.ne.u32 %p1, %r20, 15; @%p1 bra READ; ld.{space}.u32 %r5, [{base}]; READ:",
                part(first, "A"),
                part(second, "B")
            )
        };
        [body("shared", "shared"), body("global", "%rd1")].map(|body| run(&body, 1, 32).map(drop))
    };
    assert_eq!(chain(0xff, 0xfff0), [Ok(()), Ok(())]);
    for result in chain(0xfff0, 0xff) {
        let fault = result.unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
    }
}

#[test]
fn wrong_masks_are_reported() {
    for (body, text) in [
        ("shfl.sync.bfly.b32 %r9|%p2, %r0, 16, 31, 0xffff;", "lanes 16-31 are not in the mask 0x0000ffff"),
        (
            "setp.ge.u32 %p1, %r0, 16; @%p1 bra END; shfl.sync.bfly.b32 %r9|%p2, %r0, 16, 31, 0xffff;
            END: bar.sync 0;",
            "lanes 0-15 shuffle from lanes that do not take part",
        ),
        (
            "setp.ge.u32 %p1, %r0, 16; @!%p1 vote.sync.ballot.b32 %r9, 1, 0xffffffff;",
            "lanes 16-31 are in the mask 0xffffffff, but their guard leaves them out",
        ),
    ] {
        let fault = run(body, 1, 32).expect_err(body);
        assert!(matches!(fault.kind, FaultKind::Mask(_)), "{fault}");
        assert!(fault.to_string().contains(text), "{fault}");
    }
    for (body, text) in
        [("bar.sync 16;", "there is no barrier 16"), ("bar.sync 0, 33;", "a barrier for 33 threads")]
    {
        let fault = run(body, 1, 32).expect_err(body);
        assert!(matches!(fault.kind, FaultKind::BarrierOperand(_)), "{fault}");
        assert!(fault.to_string().contains(text), "{fault}");
    }
}

/// Each block counts itself. The last block resets the counter.
fn reset(atomic: &str, before: &str, after: &str) -> String {
    format!(
        "setp.ne.u32 %p1, %r0, 0; @%p1 bra OUT;
        mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd4, %rd1, %rd3;
        st.global.u32 [%rd4+16], %r2;
        {before}
        {atomic} %r3, [%rd1], 1;
        {after}
        mov.u32 %r4, %nctaid.x; sub.u32 %r4, %r4, 1; setp.ne.u32 %p2, %r3, %r4; @%p2 bra OUT;
        ld.global.u32 %r5, [%rd1+16];
        st.global.u32 [%rd1], 0;
        OUT:"
    )
}

#[test]
fn the_last_block_sets_the_counter_back() {
    well(&reset("atom.acq_rel.gpu.global.add.u32", "", ""), 5, 32);
    well(&reset("atom.global.add.u32", "fence.acq_rel.gpu;", "fence.acq_rel.gpu;"), 5, 32);
    well(&reset("atom.global.inc.u32", "membar.gl;", "membar.gl;").replace(", 1;\n", ", 9;\n"), 5, 32);
    // As in CUDA's samples: a block barrier instead of a fence follows the atomic access.
    let sample = reset("atom.global.inc.u32", "membar.gl;", "st.shared.u32 [shared], %r3;").replace(
        "mov.u32 %r4, %nctaid.x;",
        "OUT: bar.sync 0; ld.shared.u32 %r3, [shared]; mov.u32 %r4, %nctaid.x;",
    );
    let sample = sample
        .replace(", 1;\n", ", 9;\n")
        .replace("@%p2 bra OUT;", "@%p2 bra END;")
        .replace("st.global.u32 [%rd1], 0;\n        OUT:", "@%p1 bra END; st.global.u32 [%rd1], 0; END:");
    well(&sample, 5, 64);
    for body in [
        reset("atom.acquire.gpu.global.add.u32", "", ""),
        reset("atom.global.add.u32", "", ""),
        // A write between the fence and the atomic access is not released.
        reset(
            "atom.global.add.u32",
            "fence.acq_rel.gpu; st.global.u32 [%rd1+16], %r2;",
            "fence.acq_rel.gpu;",
        ),
    ] {
        let fault = run(&body, 5, 32).expect_err(&body);
        assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
    }
}

#[test]
fn a_volatile_flag_orders_with_fences() {
    // Warp 1 waits for warp 0. With generic addresses, only the launch knows the memory.
    let flag = |space: &str, base: &str, fence: &str| {
        format!(
            "mov.u64 %rd5, shared; cvta.shared.u64 %rd5, %rd5;
            setp.ne.u32 %p1, %r0, 0; @%p1 bra OTHERS;
            st{space}.u32 [{base}+64], 7; {fence} st.volatile{space}.u32 [{base}], 1;
            bra OUT;
            OTHERS: setp.lt.u32 %p1, %r0, 32; @%p1 bra OUT;
            WAIT: ld.volatile{space}.u32 %r3, [{base}]; setp.eq.u32 %p2, %r3, 0; @%p2 bra WAIT;
            {fence}
            ld{space}.u32 %r4, [{base}+64]; setp.ne.u32 %p3, %r4, 7; @%p3 trap;
            OUT:"
        )
    };
    // The flag starts as 0, set before a barrier. The barrier orders nothing that comes after it.
    let body = |space, base: &str, fence| {
        let zero = format!(
            "setp.ne.u32 %p1, %r0, 0; @%p1 bra ZERO; mov.u64 %rd5, shared; cvta.shared.u64 %rd5, %rd5;
            st{space}.u32 [{base}], 0; ZERO: bar.sync 0;"
        );
        zero + &flag(space, base, fence)
    };
    for (space, base) in [(".shared", "shared"), ("", "%rd5"), (".global", "%rd1"), ("", "%rd1")] {
        well(&body(space, base, "membar.cta;").replace("membar.cta", "membar.gl"), 1, 64);
        if base != "%rd1" {
            well(&body(space, base, "membar.cta;"), 1, 64);
            let fault = run(&body(space, base, ""), 1, 64).expect_err(space);
            assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
        }
    }
}

/// Threads with no barrier after the flag is 0; `%rd5` is its generic address.
const ZERO: &str = "mov.u64 %rd5, shared; cvta.shared.u64 %rd5, %rd5;
    setp.ne.u32 %p1, %r0, 0; @%p1 bra ZERO; st.shared.u32 [shared], 0; ZERO: bar.sync 0;
    setp.eq.u32 %p1, %r0, 0;";

#[test]
fn a_volatile_flag_alone_needs_no_fence() {
    for (space, base) in [(".shared", "shared"), ("", "%rd5")] {
        let set = format!("st.volatile{space}.u32 [{base}], 1;");
        let get = format!("ld.volatile{space}.u32 %r3, [{base}];");
        // Within a warp and between warps; a loop that ends at its foot, and one that ends at its head.
        for wait in [
            format!("@%p1 {set} @%p1 bra OUT; WAIT: {get} setp.eq.u32 %p2, %r3, 0; @%p2 bra WAIT; OUT:"),
            format!(
                "@%p1 {set} @%p1 bra OUT; WAIT: {get} and.b32 %r4, %r3, 1; setp.ne.u32 %p2, %r4, 0; @%p2 bra OUT;
                nanosleep.u32 20; bra WAIT; OUT:"
            ),
            // A look, and no loop.
            format!("@%p1 {set} @%p1 bra OUT; {get} setp.eq.u32 %p2, %r3, 2; @%p2 trap; OUT:"),
        ] {
            for fence in ["", "membar.cta;"] {
                for threads in [32, 64] {
                    well(&format!("{ZERO} {wait} {fence}"), 1, threads);
                }
            }
        }
    }
}

#[test]
fn volatile_data_between_lanes_need_a_barrier() {
    // The last step of a warp's reduction as it was written for GPUs whose lanes ran in step.
    for space in [".shared", ""] {
        for fence in ["", "membar.cta;"] {
            let step = |barrier: &str| {
                format!(
                    "mov.u64 %rd5, shared; {} mul.wide.u32 %rd6, %r0, 4; add.u64 %rd5, %rd5, %rd6;
                    st.volatile{space}.u32 [%rd5], %r0; {barrier}
                    xor.b32 %r1, %r0, 1; mul.wide.u32 %rd7, %r1, 4; sub.u64 %rd7, %rd7, %rd6;
                    add.u64 %rd7, %rd5, %rd7;
                    ld.volatile{space}.u32 %r2, [%rd7]; {barrier}
                    add.u32 %r2, %r2, %r0; st.volatile{space}.u32 [%rd5], %r2; {fence}",
                    if space.is_empty() { "cvta.shared.u64 %rd5, %rd5;" } else { "" }
                )
            };
            well(&step("bar.warp.sync 0xffffffff;"), 1, 32);
            let fault = run(&step(""), 1, 32).expect_err(space);
            assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
        }
    }
}

#[test]
fn a_flag_may_be_named_by_shared_and_by_generic_addresses() {
    let body = kernel(
        "mov.u64 %rd5, shared; cvta.shared.u64 %rd5, %rd5;
        setp.ne.u32 %p1, %r0, 0; @%p1 bra ZERO; st.shared.u32 [shared], 0; ZERO: bar.sync 0;
        setp.ne.u32 %p1, %r0, 0; @%p1 bra OTHERS;
        st.shared.u32 [shared+64], 7; st.release.cta.u32 [%rd5], 1;
        bra OUT;
        OTHERS: setp.lt.u32 %p1, %r0, 32; @%p1 bra OUT;
        WAIT: ld.acquire.cta.shared.u32 %r3, [shared]; setp.eq.u32 %p2, %r3, 0; @%p2 bra WAIT;
        ld.shared.u32 %r4, [shared+64];
        OUT:",
    );
    well(&body, 1, 64);
}

#[test]
fn unsupported_code_fails_only_its_own_kernel() {
    let others = ".func (.param .b32 o) down(.param .b32 i) { .reg .b32 %r<3>;
            { .param .b32 p; .param .b32 q; call.uni (q), down, (p); } ret; }
        .extern .func elsewhere();
        .visible .entry recursive(.param .u64 a) { .reg .b32 %r<3>;
            { .param .b32 p; .param .b32 q; st.param.b32 [p], 1; call.uni (q), down, (p); } ret; }
        .visible .entry texture(.param .u64 a) { .reg .b32 %r<9>; .reg .b64 %rd<2>;
            tex.2d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%rd1, {%r5, %r6}]; ret; }
        .visible .entry frob(.param .u64 a) { frob.u32 a; ret; }
        .visible .entry external(.param .u64 a) { call.uni elsewhere; ret; }";
    let text = kernel("").replace(".visible .entry k", &format!("{others}\n.visible .entry k"));
    let machine = Machine::new(&text);
    let launch = |name: &str| {
        let kernel = machine.program.kernel(name).unwrap();
        let params = vec![0; kernel.param_bytes];
        let launch = Launch {
            grid: [1; 3],
            block: [32, 1, 1],
            dynamic_shared: 0,
            resident: exec::MOST_RESIDENT,
            workspace: 0,
            params: &params,
        };
        exec::launch(&machine.program, &machine.loaded, kernel, &launch, &machine.memory, &machine.settings)
    };
    launch("k").unwrap();
    for (name, text) in [
        ("recursive", "`down` calls itself"),
        ("texture", "`tex.2d.v4.u32.s32` is not a supported instruction"),
        ("frob", "`frob.u32` is not a supported instruction"),
        ("external", "`elsewhere` has no body"),
    ] {
        let fault = launch(name).unwrap_err();
        assert!(matches!(&fault.kind, FaultKind::Unknown(message) if message.contains(text)), "{fault}");
        assert!(fault.place.is_some(), "{fault}");
    }
    // Invalid PTX is an error when the module is loaded, and so is a module without a supported kernel.
    for (from, to) in [("frob.u32 a;", "mov.u32 %none, 0;"), ("ret;\n}", "frob.u32 a; }")] {
        let module = crate::ptx::parse(&text.replace(from, to)).unwrap();
        crate::program::Program::decode(&module).unwrap_err();
    }
}

/// A grid barrier as cooperative groups emit it, between a store and a load of another block's word.
const GRID: &str = "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;
    mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd3, %rd0;
    setp.ne.u32 %p1, %r0, 0; @%p1 bra PASS;
    st.global.u32 [%rd3], %r2;
    fence.acq_rel.gpu; atom.global.add.u32 %r4, [%rd1], 1;
    WAIT: ld.acquire.gpu.global.u32 %r4, [%rd1]; setp.lt.u32 %p2, %r4, %r3; @%p2 bra WAIT;
    PASS: bar.sync 0;
    xor.b32 %r5, %r2, 1; mul.wide.u32 %rd4, %r5, 4; add.u64 %rd4, %rd4, %rd0;
    setp.ne.u32 %p1, %r0, 40; @%p1 bra OUT;
    ld.global.u32 %r6, [%rd4]; mul.wide.u32 %rd5, %r2, 4; add.u64 %rd5, %rd5, %rd2; st.global.u32 [%rd5], %r6;
    OUT:";

#[test]
fn blocks_that_wait_for_each_other_need_no_thread_each() {
    for (threads, seed) in [(1, None), (3, None), (2, Some(9))] {
        let mut machine = Machine::new(GRID);
        (machine.settings.threads, machine.settings.seed) = (threads, seed);
        let [words, counter, out] = [1000, 1, 1000].map(|count| machine.upload(&vec![0u32; count]));
        let blocks = if seed.is_none() { 1000 } else { 20 };
        machine.launch(blocks, 64, &[words, counter, out]).unwrap_or_else(|fault| panic!("{fault}"));
        let expected: Vec<u32> = (0..blocks).map(|block| block ^ 1).collect();
        assert_eq!(machine.words(out, blocks as usize), expected);
    }
    // Each block waits for the one before, on more CPU threads than there are cores.
    let chain = "setp.ne.u32 %p1, %r0, 0; @%p1 bra OUT;
        mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 0; @%p1 bra GO;
        WAIT: ld.acquire.gpu.global.u32 %r4, [%rd1]; setp.ne.u32 %p2, %r4, %r2; @%p2 bra WAIT;
        GO: add.u32 %r2, %r2, 1; st.release.gpu.global.u32 [%rd1], %r2;
        OUT:";
    let mut machine = Machine::new(chain);
    machine.settings.threads = 16;
    let counter = machine.upload(&[0u32]);
    machine.launch(4000, 32, &[0, counter]).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(machine.words(counter, 1), [4000]);
}

#[test]
fn a_timeout_says_which_threads_wait_for_what() {
    let time_limit = std::time::Duration::from_millis(300);
    // Thread 0 waits for one block too many; the others wait at the barrier after it.
    let hang = GRID.replace("mov.u32 %r3, %nctaid.x;", "mov.u32 %r3, %nctaid.x; add.u32 %r3, %r3, 1;");
    for (body, texts) in [
        (
            &*hang,
            &["1 threads wait for a change at address 0x", "threads wait for barrier 0 at PTX line 22"][..],
        ),
        ("LOOP: add.u32 %r1, %r1, 1; bra LOOP;", &["threads run at PTX line 16"]),
    ] {
        for seed in [None, Some(1)] {
            let mut machine = Machine::new(body);
            machine.settings.time_limit = time_limit;
            machine.settings.seed = seed;
            let [words, counter, out] = [8, 1, 8].map(|count| machine.upload(&vec![0u32; count]));
            let fault = machine.launch(8, 64, &[words, counter, out]).unwrap_err();
            let FaultKind::Timeout { limit, waiting } = &fault.kind else { panic!("{fault}") };
            assert_eq!(*limit, time_limit);
            for text in texts {
                assert!(waiting.contains(text), "{fault}");
            }
            assert_eq!(fault.code(), 702);
            // With a seed, any block may be running when the limit has passed.
            assert!(seed.is_some() || fault.block == [0; 3], "{fault}");
        }
    }
}

#[test]
fn block_scope_atomics_are_not_atomic_across_blocks() {
    let body = |scope: &str| format!("red.relaxed.{scope}.global.add.u32 [%rd1], 1;");
    well(&body("gpu"), 3, 32);
    well(&body("cta"), 1, 64);
    let fault = run(&body("cta"), 3, 32).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
}

#[test]
fn a_constant_load_of_written_memory_is_a_fault() {
    let body = "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd1; add.u64 %rd4, %rd3, 128;
        st.global.u32 [%rd4], %r0; bar.sync 0; ld.global.nc.u32 %r1, [%rd3];";
    well(body, 1, 32);
    let fault = run(&body.replace("128", "0"), 1, 32).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Constant { .. }), "{fault}");
}

#[test]
fn the_threads_that_a_kernel_requires() {
    let text = kernel("").replace("c)\n{", "c)\n.reqntid 64\n{");
    Machine::new(&text).launch(1, 64, &[]).unwrap();
    let fault = Machine::new(&text).launch(1, 32, &[]).unwrap_err();
    assert!(fault.to_string().contains("`.reqntid` requires [64, 1, 1]"), "{fault}");
}

#[test]
fn freed_memory_and_host_memory_are_named() {
    let machine = Machine::new("ld.global.u32 %r1, [%rd0+8];");
    let freed = machine.upload(&[1u32; 8]);
    assert!(machine.memory.free(freed));
    let fault = machine.launch(1, 1, &[freed]).unwrap_err();
    assert!(fault.to_string().contains("this is byte 8 of memory that was freed: 32 bytes at"), "{fault}");
    let host = vec![0u32; 1 << 20];
    let fault = machine.launch(1, 1, &[host[1 << 19..].as_ptr() as u64]).unwrap_err();
    assert!(fault.to_string().contains("host memory"), "{fault}");
}

#[test]
fn a_block_is_a_cluster_of_one() {
    let body = "griddepcontrol.wait; griddepcontrol.launch_dependents;
        mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; mov.u32 %r3, %clusterid.x;
        mov.u32 %r4, %cluster_nctaid.y; mov.u32 %r5, %envreg3; mov.u32 %r6, %reserved_smem_offset_begin;
        mov.u32 %r10, %nclusterid.x; mov.u32 %r11, %ctaid.x; sub.u32 %r3, %r3, %r11;
        add.u32 %r7, %r1, %r2; add.u32 %r7, %r7, %r3; add.u32 %r7, %r7, %r4; add.u32 %r7, %r7, %r5;
        add.u32 %r7, %r7, %r6; add.u32 %r7, %r7, %r10;
        mad.lo.u32 %r8, %r11, 32, %r0; mul.wide.u32 %rd3, %r8, 4; add.u64 %rd3, %rd3, %rd0;
        st.global.u32 [%rd3], %r7;";
    assert_eq!(well(body, 3, 32), [5; 96]);
}
