//! Planted faults, each found by the right check, and correct kernels next to them without a fault.

use super::Machine;
use crate::{
    Allow,
    fault::{Action, Fault, FaultKind, Memory},
};

/// A tree reduction in shared memory by 64 threads. `step` comes before the first level, `last` before the
/// others.
fn tree(step: &str, last: &str) -> String {
    let mut body = "shl.b32 %r1, %r0, 2;
        mov.u32 %r2, shared; add.u32 %r2, %r2, %r1;
        st.shared.u32 [%r2], %r0;"
        .to_owned();
    for half in [32, 16, 8] {
        let step = if half == 32 { step } else { last };
        body += &format!(
            "{step}
            setp.ge.u32 %p1, %r0, {half};
            @%p1 bra SKIP{half};
            ld.shared.u32 %r3, [%r2];
            ld.shared.u32 %r4, [%r2+{}];
            add.u32 %r3, %r3, %r4;
            st.shared.u32 [%r2], %r3;
            SKIP{half}:",
            half * 4
        );
    }
    body
}

fn race(result: Result<crate::counters::Counters, Box<Fault>>) -> (Memory, Action, Action) {
    match result.expect_err("a race").kind {
        FaultKind::Race { first, second } => {
            assert_eq!(first.memory, second.memory);
            assert_ne!((first.block, first.thread), (second.block, second.thread));
            (first.memory, first.action, second.action)
        }
        kind => panic!("{kind}"),
    }
}

#[test]
fn a_tree_with_its_barriers_has_no_race() {
    for seed in [None, Some(1), Some(2)] {
        let mut machine = Machine::new(&tree("bar.sync 0;", "bar.sync 0;"));
        machine.settings.seed = seed;
        let counters = machine.launch(3, 64, &[]).unwrap();
        assert_eq!(counters.barriers, 9);
    }
    // The levels within one warp need only a warp barrier.
    Machine::new(&tree("bar.sync 0;", "bar.warp.sync 0xffffffff;")).launch(1, 64, &[]).unwrap();
}

#[test]
fn a_warp_that_needs_more_shared_memory_than_there_is_is_out_of_bounds() {
    for checks in [true, false] {
        let mut machine = Machine::new(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{
            .reg .b32 %r<4>;
            .shared .align 4 .b8 few[64];
            mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, few; add.u32 %r1, %r1, %r2;
            st.shared.u32 [%r1], %r0;
            ret;\n}",
        );
        (machine.settings.checks, machine.dynamic_shared) = (checks, 0);
        let fault = machine.launch(1, 32, &[]).expect_err("half of the lanes are outside");
        let FaultKind::OutOfBounds { access, .. } = &fault.kind else { panic!("{fault}") };
        assert_eq!((access.memory, access.address, fault.threads.len()), (Memory::Shared, 64, 16));
    }
}

#[test]
fn a_removed_block_barrier_is_a_race() {
    // Warp 0 reads what warp 1 has not written yet. The fault is the race, not the unwritten read.
    let found = race(Machine::new(&tree("", "bar.sync 0;")).launch(1, 64, &[]));
    assert_eq!(found, (Memory::Shared, Action::Read, Action::Write));
    // With interleaved warps either access may come first.
    let mut machine = Machine::new(&tree("", "bar.sync 0;"));
    machine.settings.seed = Some(3);
    assert_eq!(race(machine.launch(1, 64, &[])).0, Memory::Shared);
}

#[test]
fn a_removed_warp_barrier_is_a_race() {
    let fault = Machine::new(&tree("bar.sync 0;", "")).launch(1, 64, &[]).unwrap_err();
    let FaultKind::Race { first, second } = &fault.kind else { panic!("{fault}") };
    assert!(first.thread[0] < 32 && second.thread[0] < 32, "{fault}");
    assert!(first.place.line < second.place.line, "{fault}");
}

#[test]
fn without_checks_nothing_but_bounds_is_looked_at() {
    let mut machine = Machine::new(&tree("", ""));
    machine.settings.checks = false;
    machine.launch(1, 64, &[]).unwrap();
}

#[test]
fn lanes_of_one_store_may_agree_and_not_differ() {
    let used = "bar.sync 0; ld.shared.u32 %r3, [%r2]; setp.eq.u32 %p1, %r3, 99; @%p1 trap;";
    let store =
        |value: &str| Machine::new(&format!("mov.u32 %r2, shared; st.shared.u32 [%r2], {value}; {used}"));
    store("7").launch(1, 32, &[]).unwrap();
    assert_eq!(race(store("%r0").launch(1, 32, &[])), (Memory::Shared, Action::Write, Action::Write));
    assert_eq!(race(store("%r0").launch(1, 64, &[])), (Memory::Shared, Action::Write, Action::Write));
    // Each lane's relaxed store is atomic.
    let body = "mov.u32 %r2, shared; st.relaxed.cta.shared.u32 [%r2], %r0;";
    Machine::new(body).launch(1, 64, &[]).unwrap();
}

#[test]
fn shared_atomics_do_not_race_with_each_other() {
    let body = "mov.u32 %r2, shared;
        setp.ne.u32 %p1, %r0, 0;
        @!%p1 st.shared.u32 [%r2], 0;
        bar.sync 0;
        red.shared.add.u32 [%r2], 1;";
    Machine::new(body).launch(1, 128, &[]).unwrap();
    let found = race(Machine::new(&format!("{body} ld.shared.u32 %r3, [%r2];")).launch(1, 128, &[]));
    assert_eq!(found, (Memory::Shared, Action::Atomic, Action::Read));
}

#[test]
fn a_flag_orders_warps_of_a_block() {
    let handover = |store: &str, load: &str| {
        format!(
            "mov.u32 %r2, shared;
            setp.ne.u32 %p1, %r0, 0;
            @!%p1 st.shared.u32 [%r2+4], 0;
            bar.sync 0;
            setp.lt.u32 %p2, %r0, 32;
            @%p2 bra READER;
            setp.ne.u32 %p1, %r0, 32;
            @%p1 bra DONE;
            st.shared.u32 [%r2], 5;
            {store} [%r2+4], 1;
            bra DONE;
            READER:
            @%p1 bra DONE;
            WAIT:
            {load} %r3, [%r2+4];
            setp.eq.u32 %p3, %r3, 0;
            @%p3 bra WAIT;
            ld.shared.u32 %r4, [%r2];
            DONE:"
        )
    };
    let good = handover("st.release.cta.shared.u32", "ld.acquire.cta.shared.u32");
    Machine::new(&good).launch(1, 64, &[]).unwrap();
    let bad = handover("st.relaxed.cta.shared.u32", "ld.relaxed.cta.shared.u32");
    assert_eq!(race(Machine::new(&bad).launch(1, 64, &[])), (Memory::Shared, Action::Write, Action::Read));
    let fenced = bad
        .replace("st.relaxed", "fence.acq_rel.cta; st.relaxed")
        .replace("ld.shared.u32 %r4", "fence.acq_rel.cta; ld.shared.u32 %r4");
    Machine::new(&fenced).launch(1, 64, &[]).unwrap();
}

/// Each block stores its number. The block with the last ticket reads all of them.
fn tickets(atomic: &str, before: &str, after: &str) -> String {
    format!(
        "mov.u32 %r1, %ctaid.x;
        mov.u32 %r9, %nctaid.x;
        mul.wide.u32 %rd3, %r1, 4;
        add.u64 %rd3, %rd3, %rd0;
        mov.u32 %r5, shared;
        setp.ne.u32 %p1, %r0, 31;
        @%p1 bra STORED;
        st.global.u32 [%rd3], %r1;
        STORED:
        {before}
        setp.ne.u32 %p2, %r0, 0;
        @%p2 bra TAKEN;
        sub.u32 %r8, %r9, 1;
        {atomic}.inc.u32 %r7, [%rd1], %r8;
        st.shared.u32 [%r5], %r7;
        TAKEN:
        {after}
        ld.shared.u32 %r7, [%r5];
        setp.ne.u32 %p3, %r7, %r8;
        mov.u32 %r8, %nctaid.x;
        sub.u32 %r8, %r8, 1;
        setp.ne.u32 %p3, %r7, %r8;
        @%p3 bra DONE;
        setp.ge.u32 %p4, %r0, %r9;
        @%p4 bra DONE;
        mul.wide.u32 %rd4, %r0, 4;
        add.u64 %rd4, %rd4, %rd0;
        ld.global.u32 %r10, [%rd4];
        add.u64 %rd5, %rd2, 0;
        red.global.add.u32 [%rd5], %r10;
        DONE:"
    )
}

#[test]
fn the_last_block_reads_what_others_released() {
    let bar = "bar.sync 0;";
    let run = |body: &str, threads| {
        let mut machine = Machine::new(body);
        machine.settings.threads = threads;
        let partials = machine.memory.allocate(4 * 20).unwrap();
        let (ticket, sum) = (machine.upload(&[0u32]), machine.upload(&[0u32]));
        machine.launch(20, 64, &[partials, ticket, sum]).map(|_| machine.words(sum, 1)[0])
    };
    for threads in [1, 2, 4] {
        assert_eq!(run(&tickets("atom.acq_rel.gpu.global", bar, bar), threads), Ok(190));
    }
    let fenced = tickets("fence.acq_rel.gpu; atom.relaxed.gpu.global", bar, bar)
        .replace("TAKEN:", "fence.acq_rel.gpu; TAKEN:");
    assert_eq!(run(&fenced, 1), Ok(190));
    // Each missing part is found: the order, its scope, and the barrier before it.
    let blind = tickets("atom.acq_rel.gpu.global", bar, bar).replace("@%p3 bra DONE;", "");
    assert!(matches!(run(&blind, 1).unwrap_err().kind, FaultKind::Race { .. }));
    for (atomic, before) in [
        ("atom.relaxed.gpu.global", bar),
        ("atom.release.gpu.global", bar),
        ("atom.acquire.gpu.global", bar),
        ("atom.acq_rel.cta.global", bar),
        ("atom.acq_rel.gpu.global", ""),
    ] {
        let fault = run(&tickets(atomic, before, bar), 1).expect_err(atomic);
        let FaultKind::Race { first, second } = &fault.kind else { panic!("{fault}") };
        let actions = [first.action, second.action];
        // Atomics with `.cta` also race with each other. The addresses decide which race is found first.
        let atomics = atomic.contains(".cta") && actions == [Action::Atomic; 2];
        assert!(atomics || actions == [Action::Write, Action::Read], "{fault}");
        if atomics {
            let text = fault.to_string();
            assert!(text.contains("atomic operation with scope `.cta` of 4 bytes"), "{text}");
            assert!(text.contains("use `.gpu`"), "{text}");
        }
        assert_eq!(first.memory, Memory::Global, "{fault}");
        assert_ne!(first.block, second.block);
    }
}

/// Each block counts itself, and the last of 20 sets the counter back.
#[test]
fn the_last_block_may_set_its_counter_back() {
    let reset = |atomic: &str, last: u32| {
        format!(
            "mov.u64 %rd1, %rd0; mov.u32 %r1, 0; setp.ne.u32 %p1, %r0, 0; @%p1 bra JOIN;
            {atomic} %r1, [%rd1], 1;
            JOIN: setp.ne.u32 %p2, %r1, {last}; @%p2 bra DONE; st.global.u32 [%rd1], 0; DONE:"
        )
    };
    for threads in [1, 3] {
        for seed in [None, Some(1), Some(2)] {
            let run = |body: &str| {
                let mut machine = Machine::new(body);
                (machine.settings.threads, machine.settings.seed) = (threads, seed);
                let counter = machine.upload(&[0u32]);
                machine.launch(20, 32, &[counter]).map(|_| machine.words(counter, 1)[0])
            };
            for atomic in
                ["atom.relaxed.gpu.global.add.u32", "atom.global.add.u32", "atom.acq_rel.gpu.global.add.u32"]
            {
                assert_eq!(run(&reset(atomic, 19)), Ok(0), "{atomic}");
            }
            // A block in the middle races with those after it, and the scope must hold between blocks.
            for body in
                [reset("atom.relaxed.gpu.global.add.u32", 7), reset("atom.relaxed.cta.global.add.u32", 19)]
            {
                let fault = run(&body).expect_err(&body);
                assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
            }
        }
    }
}

#[test]
fn atomic_accesses_of_different_sizes_race() {
    let first = "mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0;";
    for (store, load, races) in [
        ("st.relaxed.gpu.global.u64 [%rd0], %rd1;", "ld.relaxed.gpu.global.u32 %r2, [%rd0];", true),
        ("st.relaxed.gpu.global.u64 [%rd0], %rd1;", "ld.relaxed.gpu.global.u32 %r2, [%rd0+4];", true),
        ("st.relaxed.gpu.global.u64 [%rd0], %rd1;", "ld.relaxed.gpu.global.v2.u32 {%r2, %r3}, [%rd0];", true),
        ("st.relaxed.gpu.global.u64 [%rd0], %rd1;", "ld.relaxed.gpu.global.u64 %rd2, [%rd0];", false),
        ("st.relaxed.gpu.global.v2.u32 [%rd0], {%r0, %r0};", "ld.relaxed.gpu.global.u32 %r2, [%rd0];", false),
        ("red.relaxed.gpu.global.add.u32 [%rd0], 1;", "red.relaxed.gpu.global.add.u64 [%rd0], 1;", true),
        ("st.relaxed.gpu.global.u64 [%rd0], %rd1;", "ld.relaxed.gpu.global.u32 %r2, [%rd0+8];", false),
    ] {
        for [one, other] in [[store, load], [load, store]] {
            let machine = Machine::new(&format!("{first} @!%p1 {one} @%p1 {other}"));
            let words = machine.upload(&[0u32; 4]);
            let ended = machine.launch(2, 1, &[words]);
            match ended {
                Err(fault) if races => {
                    let FaultKind::Race { first, second } = &fault.kind else { panic!("{fault}") };
                    assert_eq!([first.action, second.action], [Action::Atomic; 2], "{fault}");
                    assert!(fault.to_string().contains("of different sizes"), "{fault}");
                }
                ended => assert_eq!((ended.err(), races), (None, false), "{one} {other}"),
            }
        }
    }
    // In shared memory.
    let shared = |other: &str| {
        let body = format!(
            "st.shared.u64 [shared], 0; bar.sync 0; setp.ge.u32 %p1, %r0, 32;
            @%p1 st.relaxed.cta.shared.u64 [shared], %rd1; @!%p1 {other}"
        );
        Machine::new(&body).launch(1, 64, &[])
    };
    assert_eq!(
        race(shared("ld.relaxed.cta.shared.u32 %r2, [shared+4];")),
        (Memory::Shared, Action::Atomic, Action::Atomic)
    );
    assert_eq!(
        race(shared("red.shared.add.u32 [shared], 1;")),
        (Memory::Shared, Action::Atomic, Action::Atomic)
    );
    shared("ld.relaxed.cta.shared.u64 %rd2, [shared];").unwrap();
    // A barrier orders them.
    shared("ld.relaxed.cta.shared.u64 %rd2, [shared]; bar.sync 0; ld.relaxed.cta.shared.u32 %r2, [shared];")
        .unwrap();
}

/// Two arrays of 64 words, and dynamic shared memory after them.
#[test]
fn an_array_does_not_run_over_into_its_neighbour() {
    let run = |body: &str, allow: &[Allow]| {
        let mut machine = Machine::new(&format!(
            ".shared .align 4 .b8 first[256]; .shared .align 4 .b8 second[256];
            shl.b32 %r1, %r0, 2; mov.u32 %r2, first; mov.u32 %r3, second;
            add.u32 %r4, %r2, %r1; add.u32 %r5, %r3, %r1;
            cvt.u64.u32 %rd3, %r4; cvta.shared.u64 %rd3, %rd3;
            {body}"
        ));
        machine.settings.allow = allow.to_vec();
        let word = machine.upload(&[0u32]);
        machine.launch(1, 64, &[word])
    };
    for body in [
        "st.shared.u32 [%r4], 1; st.shared.u32 [%r5], 2; st.shared.u32 [dynamic], 3;",
        // From the end backwards; one element past the end is computed, not used.
        "neg.s32 %r6, %r1; add.u32 %r7, %r2, 256; add.u32 %r7, %r7, %r6; st.shared.u32 [%r7+-4], 1;",
        // From either array.
        "setp.lt.u32 %p1, %r0, 32; selp.b32 %r6, %r4, %r5, %p1; st.shared.u32 [%r6+64], 1;",
        // A comparison of addresses gives a number.
        "setp.lt.u32 %p1, %r4, %r5; selp.b32 %r6, 1, 0, %p1; shl.b32 %r6, %r6, 2; add.u32 %r6, %r5, %r6;
        setp.lt.u32 %p2, %r0, 63; @%p2 st.shared.u32 [%r6], 1;",
    ] {
        run(body, &[]).unwrap_or_else(|fault| panic!("{fault}: {body}"));
    }
    for (body, action, array, near) in [
        ("st.shared.u32 [%r4+4], 1;", Action::Write, "first", "this is byte 0 of `second`"),
        ("st.u32 [%rd3+4], 1;", Action::Write, "first", "this is byte 0 of `second`"),
        ("ld.shared.u32 %r6, [%r5+-4];", Action::Read, "second", "this is byte 252 of `first`"),
        ("red.shared.add.u32 [first+260], 1;", Action::Atomic, "first", "this is byte 4 of `second`"),
        ("st.shared.u32 [second+256], 1;", Action::Write, "second", "no array is there"),
        (
            "cp.async.ca.shared.global [first+256], [%rd0], 4; cp.async.wait_all;",
            Action::Write,
            "first",
            "`second`",
        ),
    ] {
        let fault = run(body, &[]).expect_err(body);
        let FaultKind::OutOfArray { access, array: of, near: place, .. } = &fault.kind else {
            panic!("{fault}")
        };
        assert_eq!((access.memory, access.action, of.as_str()), (Memory::Shared, action, array), "{fault}");
        assert!(place.contains(near) && fault.to_string().contains("which has 256 bytes at 0x"), "{fault}");
    }
    run("@!%p9 st.shared.u32 [%r4+4], %r0;", &[Allow::kernel("k")]).unwrap();
    // Past all arrays there is no memory.
    let fault = run("st.shared.u32 [%r5+65536], 1;", &[Allow::kernel("k")]).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{fault}");
}

/// A writer and readers of two words under a sequence number, whose words are plain. (A reader that sees an
/// odd or another number afterwards drops them.)
#[test]
fn plain_data_under_a_sequence_number_is_a_race() {
    let text = |load: &str, store: &str| {
        format!(
            "mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; mov.u32 %r2, 0; @%p1 bra READ;
            WRITE: add.u32 %r2, %r2, 1; st.relaxed.gpu.global.u32 [%rd0], %r2; fence.acq_rel.gpu;
            {store} [%rd0+4], %r2; {store} [%rd0+8], %r2;
            add.u32 %r2, %r2, 1; st.release.gpu.global.u32 [%rd0], %r2;
            setp.lt.u32 %p2, %r2, 40; @%p2 bra WRITE; bra DONE;
            READ: ld.acquire.gpu.global.u32 %r3, [%rd0]; {load} %r4, [%rd0+4]; {load} %r5, [%rd0+8];
            fence.acq_rel.gpu; ld.relaxed.gpu.global.u32 %r6, [%rd0];
            add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 20; @%p2 bra READ; DONE:"
        )
    };
    let run = |text: &str, seed| {
        let mut machine = Machine::new(text);
        machine.settings.seed = seed;
        let words = machine.upload(&[0u32; 3]);
        machine.launch(3, 1, &[words]).map(drop)
    };
    let plain = text("ld.global.u32", "st.global.u32");
    let atomic = text("ld.relaxed.gpu.global.u32", "st.relaxed.gpu.global.u32");
    // In order, all writes come before the first read, and its acquire sees them.
    assert_eq!(run(&plain, None), Ok(()));
    let found = (0..8).filter(|&seed| run(&plain, Some(seed)).is_err()).count();
    assert!(found >= 4, "{found} of 8 seeds");
    (0..8).for_each(|seed| assert_eq!(run(&atomic, Some(seed)), Ok(()), "{seed}"));
}

#[test]
fn accesses_that_race_have_the_names_of_their_instructions() {
    for (store, load, names) in [
        (
            "st.volatile.shared.u32 [shared], 1;",
            "ld.shared.u32 %r1, [shared];",
            ["volatile store of", "read of"],
        ),
        (
            "st.shared.u32 [shared], 1;",
            "ld.volatile.shared.u32 %r1, [shared];",
            ["write of", "volatile load of"],
        ),
        (
            "st.release.cta.shared.u32 [shared], 1;",
            "ld.shared.u32 %r1, [shared];",
            ["release store with scope `.cta` of", "read of"],
        ),
        (
            "st.shared.u32 [shared], 1;",
            "ld.relaxed.gpu.shared.u32 %r1, [shared];",
            ["write of", "relaxed load with scope `.gpu` of"],
        ),
        (
            "atom.shared.add.u32 %r1, [shared], 1;",
            "ld.shared.u32 %r1, [shared];",
            ["atomic operation with scope `.gpu` of", "read of"],
        ),
    ] {
        let body = format!("setp.lt.u32 %p1, %r0, 32; @%p1 bra OTHER; {load} bra END; OTHER: {store} END:");
        let text = Machine::new(&body).launch(1, 64, &[]).unwrap_err().to_string();
        assert!(names.iter().all(|name| text.contains(name)), "{text}");
        assert!(text.contains("Put a barrier"), "{text}");
    }
}

#[test]
fn a_race_in_global_memory_says_where_in_its_allocation() {
    let machine = Machine::new("mov.u32 %r1, %ctaid.x; st.global.u32 [%rd0+40], %r1;");
    let data = machine.upload(&[0u32; 16]);
    let fault = machine.launch(2, 1, &[data, 0]).unwrap_err();
    let text = fault.to_string();
    let place = format!(
        "write of 4 bytes at global address {:#x}, byte 40 of an allocation of 64, by thread",
        data + 40
    );
    assert_eq!(text.matches(&place).count(), 2, "{text}");
}

#[test]
fn threads_of_a_block_race_in_global_memory() {
    let body = |step: &str| {
        format!(
            "mul.wide.u32 %rd3, %r0, 4;
            add.u64 %rd4, %rd0, %rd3;
            st.global.u32 [%rd4], %r0;
            {step}
            xor.b32 %r1, %r0, 32;
            mul.wide.u32 %rd5, %r1, 4;
            add.u64 %rd5, %rd0, %rd5;
            ld.global.u32 %r2, [%rd5];"
        )
    };
    let run = |body: &str| {
        let machine = Machine::new(body);
        let data = machine.upload(&[0u32; 64]);
        machine.launch(1, 64, &[data])
    };
    run(&body("bar.sync 0;")).unwrap();
    let found = race(run(&body("")));
    assert_eq!(found.0, Memory::Global);
    // Each thread updates its own element in place: no race.
    run("mul.wide.u32 %rd3, %r0, 4; add.u64 %rd4, %rd0, %rd3;
        ld.global.u32 %r1, [%rd4]; add.u32 %r1, %r1, 1; st.global.u32 [%rd4], %r1;
        ld.global.u32 %r1, [%rd4]; st.global.u32 [%rd4], %r1;")
    .unwrap();
}

#[test]
fn unwritten_memory_is_not_read() {
    let shared = |rest: &str| {
        let machine = Machine::new(&format!(
            "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0; mov.u32 %r2, shared; ld.shared.u32 %r1, [%r2+8]; {rest}"
        ));
        machine.launch(1, 40, &[machine.upload(&[0u32; 40])])
    };
    // Read and dropped, as CUB's merges do with an item too many.
    shared("setp.lt.u32 %p1, %r0, 64; selp.u32 %r1, 5, %r1, %p1; st.global.u32 [%rd3], %r1;").unwrap();
    shared(
        "add.u32 %r3, %r1, 1; shl.b32 %r5, %r0, 2; add.u32 %r5, %r5, %r2; st.shared.u32 [%r5+64], %r3;
        ld.shared.u32 %r4, [%r5+64];",
    )
    .unwrap();
    for used in [
        "st.global.u32 [%rd3], %r1;",
        "cvt.u8.u32 %h1, %r1; st.global.u8 [%rd3], %h1;",
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra OUT; OUT:",
        "red.global.add.u32 [%rd3], %r1;",
        // By way of another place in shared memory, a lane, and arithmetic.
        "setp.eq.u32 %p1, %r0, 3; @%p1 st.shared.u32 [%r2+20], %r1; @!%p1 bra OUT; ld.shared.u32 %r3, [%r2+20];
        add.u32 %r3, %r3, 1; st.global.u32 [%rd3], %r3; OUT:",
        "setp.lt.u32 %p1, %r0, 32; @!%p1 bra OUT; selp.u32 %r1, 7, %r1, %p2; shfl.sync.bfly.b32 %r3, %r1, 1, 31, 0xffffffff;
        st.global.u32 [%rd3], %r3; OUT:",
    ] {
        let used = format!("setp.lt.u32 %p2, %r0, 2; {used}");
        let fault = shared(&used).expect_err(&used);
        let FaultKind::Unwritten(access) = &fault.kind else { panic!("{fault}") };
        assert_eq!((access.memory, access.address, access.bytes), (Memory::Shared, 8, 4), "{used}: {fault}");
        assert_eq!(fault.code(), 719);
    }
    let fault = shared("st.global.u32 [%rd3], %r1;").unwrap_err();
    assert_eq!(fault.threads.len(), 32);
    let machine =
        Machine::new("mul.wide.u32 %rd3, %r0, 4; add.u64 %rd4, %rd0, %rd3; ld.global.u32 %r1, [%rd4];");
    let data = machine.memory.allocate(128).unwrap();
    machine.memory.write(data, &[0; 124]).unwrap();
    machine.launch(1, 31, &[data]).unwrap();
    let fault = machine.launch(1, 32, &[data]).unwrap_err();
    assert!(matches!(&fault.kind, FaultKind::Unwritten(access) if access.thread == [31, 0, 0]), "{fault}");
}

#[test]
fn accesses_stay_in_bounds() {
    let body = "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd4, %rd0, %rd3; st.global.u32 [%rd4], %r0;";
    let mut machine = Machine::new(body);
    machine.settings.checks = false;
    let data = machine.memory.allocate(128).unwrap();
    machine.launch(1, 32, &[data]).unwrap();
    let fault = machine.launch(1, 33, &[data]).unwrap_err();
    assert_eq!(fault.code(), 700);
    assert_eq!(fault.threads, [[32, 0, 0]]);
    assert!(fault.to_string().contains("has 128 bytes, this is at byte 128"), "{fault}");
    assert!(
        fault.to_string().starts_with("kernel k, block [0, 0, 0], thread [32, 0, 0], PTX line"),
        "{fault}"
    );

    for (body, memory) in [
        ("mov.u32 %r2, shared; st.shared.u32 [%r2+4352], 0;", Memory::Shared),
        ("ld.shared.u32 %r1, [4350];", Memory::Shared),
        (
            ".local .b8 depot[8]; mov.u64 %rd3, depot; cvta.local.u64 %rd3, %rd3; st.u32 [%rd3+8], 0;",
            Memory::Local,
        ),
        ("ld.param.u64 %rd3, [a+24];", Memory::Param),
        ("mov.u64 %rd3, 0; ld.global.u32 %r1, [%rd3];", Memory::Global),
    ] {
        let fault = Machine::new(body).launch(1, 1, &[]).unwrap_err();
        match &fault.kind {
            FaultKind::OutOfBounds { access, .. } | FaultKind::Misaligned(access) => {
                assert_eq!(access.memory, memory, "{body}");
            }
            _ => panic!("{fault}"),
        }
    }
}

#[test]
fn accesses_are_aligned() {
    let machine = Machine::new("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+8];");
    let data = machine.upload(&[0u32; 8]);
    let fault = machine.launch(1, 1, &[data]).unwrap_err();
    assert_eq!(fault.code(), 716);
    assert!(fault.to_string().contains("16 bytes"), "{fault}");
}

#[test]
fn a_barrier_under_a_divergent_branch_is_found() {
    let body = "setp.lt.u32 %p1, %r0, 16; @%p1 bra SKIP; bar.sync 0;\nSKIP: st.shared.u32 [shared], 0;";
    let fault = Machine::new(body).launch(1, 32, &[]).unwrap_err();
    let FaultKind::Barrier(text) = &fault.kind else { panic!("{fault}") };
    // The others wait where the paths meet again.
    let where_all_are = "lanes 16-31 of the warp are here, lanes 0-15 are not; lanes 0-15 are at PTX line 17";
    assert_eq!(text, where_all_are);
    let guarded = "setp.lt.u32 %p1, %r0, 16; @%p1 bar.sync 0;";
    assert!(matches!(Machine::new(guarded).launch(1, 32, &[]).unwrap_err().kind, FaultKind::Barrier(_)));
    // Threads that have exited are not waited for, and a branch of whole warps does not diverge.
    Machine::new("setp.lt.u32 %p1, %r0, 16; @%p1 ret; bar.sync 0;").launch(1, 64, &[]).unwrap();
}

#[test]
fn two_barriers_that_wait_for_each_other_are_found() {
    let body = "setp.lt.u32 %p1, %r0, 32; @%p1 bra OTHER; bar.sync 1; bra END; OTHER: bar.sync 2; END:";
    let fault = Machine::new(body).launch(1, 64, &[]).unwrap_err();
    let FaultKind::Barrier(text) = &fault.kind else { panic!("{fault}") };
    assert!(
        text.contains("32 threads wait for barrier 1") && text.contains("32 threads wait for barrier 2"),
        "{text}"
    );
    let fault = Machine::new("bar.sync 0, 96;").launch(1, 64, &[]).unwrap_err();
    assert!(fault.to_string().contains("barrier 0 has 64 of 96 threads"), "{fault}");
}

#[test]
fn lanes_that_never_come_to_a_shuffle_are_found() {
    let body = "setp.lt.u32 %p1, %r0, 16; @%p1 bra SKIP;
        shfl.sync.down.b32 %r1, %r0, 1, 31, 0xffffffff; bra END;
        SKIP: bar.warp.sync 0xffffffff; END:";
    let fault = Machine::new(body).launch(1, 32, &[]).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Deadlock(_)), "{fault}");
    let fault = Machine::new("bar.warp.sync 0xfffffffe;").launch(1, 32, &[]).unwrap_err();
    assert!(fault.to_string().contains("lanes 0 are not in the mask"), "{fault}");
}

#[test]
fn a_loop_without_an_end_is_found() {
    // The second loop never uses up a warp's turn.
    for body in ["LOOP: bra LOOP;", "LOOP: bar.sync 0; bra LOOP;"] {
        for seed in [None, Some(1)] {
            let mut machine = Machine::new(body);
            (machine.settings.instruction_limit, machine.settings.seed) = (100_000, seed);
            let fault = machine.launch(1, 64, &[]).unwrap_err();
            let FaultKind::Endless { limit: 100_000, waiting } = &fault.kind else { panic!("{fault}") };
            assert!(waiting.contains(" at PTX line 16"), "{fault}");
            assert_eq!(fault.code(), 702);
        }
    }
}

#[test]
fn a_trap_names_its_place() {
    let text = super::kernel("setp.eq.u32 %p1, %r0, 3;\n.loc 1 42 7\n@%p1 trap;")
        .replace(".address_size 64", ".address_size 64\n.file 1 \"src/lib.rs\"");
    let fault = Machine::new(&text).launch(1, 32, &[]).unwrap_err();
    assert_eq!(fault.threads, [[3, 0, 0]]);
    assert_eq!(fault.place.unwrap().source, Some(("src/lib.rs".to_owned(), 42)));
}

/// The kernel is in `mine/src/lib.rs`. Each case is what precedes a trap, and the trap's line and the
/// author's.
#[test]
fn a_trap_in_a_library_names_the_authors_line() {
    const FILES: &str = ".address_size 64
        .file 1 \"/home/me/mine/src/lib.rs\"
        .file 2 \"/rustc/hash/library/core/src/ptr.rs\"
        .file 3 \"/home/me/mine/src/helper.rs\"
        .file 4 \"/home/me/other/src/lib.rs\"";
    let inlined = |caller: &str| format!(", function_name $L__n, inlined_at {caller}");
    let lib = |line| Some(("/home/me/mine/src/lib.rs".to_owned(), line));
    let helper = Some(("/home/me/mine/src/helper.rs".to_owned(), 7));
    let core = Some(("/rustc/hash/library/core/src/ptr.rs".to_owned(), 9));
    let other = Some(("/home/me/other/src/lib.rs".to_owned(), 5));
    for (locations, source, author) in [
        ("".to_owned(), lib(1), None),
        (format!(".loc 2 9 1{}", inlined("1 42 7")), core.clone(), lib(42)),
        // Inlined into another library's function, which was inlined into the author's.
        (format!(".loc 4 4 1{}\n.loc 2 9 1{}", inlined("1 40 2"), inlined("4 4 1")), core.clone(), lib(40)),
        (
            format!(".loc 3 7 1{}\n.loc 2 9 1{}", inlined("1 40 2"), inlined("3 7 1")),
            core.clone(),
            helper.clone(),
        ),
        // Without `inlined_at`, or where it leads nowhere: the last line before.
        (".loc 1 12 3\n.loc 2 9 1".to_owned(), core.clone(), lib(12)),
        (format!(".loc 3 7 1\n.loc 4 5 1\n.loc 2 9 1{}", inlined("4 5 1")), core.clone(), helper.clone()),
        (format!(".loc 4 5 1{}\n.loc 2 9 1{}", inlined("2 9 1"), inlined("4 5 1")), core.clone(), lib(1)),
        (".loc 3 7 1".to_owned(), helper, None),
        // A called function has the line of the call, and the call's line is back after it.
        (".loc 1 20 1\ncall fails, ();".to_owned(), other, lib(20)),
        (".loc 1 20 1\ncall ends, ();".to_owned(), lib(20), None),
    ] {
        let text = super::kernel(&format!(".loc 1 1 1\n{locations}\ntrap;"))
            .replace(".address_size 64", FILES)
            .replace(
                ".visible .entry",
                ".func fails() { .loc 4 5 1\ntrap; ret; }\n.func ends() { .loc 3 30 1\nret; }\n.visible .entry",
            );
        let place = Machine::new(&text).launch(1, 32, &[]).unwrap_err().place.unwrap();
        assert_eq!((&place.source, &place.author), (&source, &author), "{locations}: {place}");
    }
}

#[test]
fn of_several_faults_the_first_blocks_is_reported() {
    for threads in [1, 3] {
        let mut machine = Machine::new("mov.u32 %r1, %ctaid.x; setp.ge.u32 %p1, %r1, 5; @%p1 trap;");
        machine.settings.threads = threads;
        assert_eq!(machine.launch(40, 32, &[]).unwrap_err().block, [5, 0, 0]);
    }
}

#[test]
fn a_full_race_log_hides_races_but_invents_none() {
    let bar = "bar.sync 0;";
    let run = |body: &str, bytes| {
        let mut machine = Machine::new(body);
        machine.settings.race_log_bytes = bytes;
        let partials = machine.memory.allocate(4 * 20).unwrap();
        let (ticket, sum) = (machine.upload(&[0u32]), machine.upload(&[0u32]));
        machine.launch(20, 64, &[partials, ticket, sum])
    };
    let right = tickets("atom.acq_rel.gpu.global", bar, bar);
    let fenced = tickets("fence.acq_rel.gpu; atom.relaxed.gpu.global", bar, bar)
        .replace("TAKEN:", "fence.acq_rel.gpu; TAKEN:");
    for bytes in (0..40_000).step_by(250) {
        run(&right, bytes).unwrap();
        run(&fenced, bytes).unwrap();
    }
    let wrong = tickets("atom.relaxed.gpu.global", bar, bar);
    run(&wrong, 1000).unwrap();
    race(run(&wrong, 40_000));
}

#[test]
fn uses_beyond_one_batch_are_all_checked() {
    let body = |last: &str| {
        format!(
            "and.b32 %r1, %r0, 31;
            mul.wide.u32 %rd3, %r1, 4;
            add.u64 %rd3, %rd0, %rd3;
            setp.ge.u32 %p1, %r0, 32;
            @%p1 bra WRITTEN;
            st.global.u32 [%rd3], %r0;
            st.global.u32 [%rd3+128], %r0;
            WRITTEN:
            bar.sync 0;
            mov.u32 %r2, 0;
            LOOP:
            ld.global.u32 %r3, [%rd3];
            ld.global.u32 %r3, [%rd3+128];
            add.u32 %r2, %r2, 1;
            setp.lt.u32 %p2, %r2, 3000;
            @%p2 bra LOOP;
            setp.eq.u32 %p3, %r0, 1000;
            {last}"
        )
    };
    let run = |last: &str| {
        let machine = Machine::new(&body(last));
        let data = machine.memory.allocate(256).unwrap();
        machine.launch(1, 1024, &[data])
    };
    run("bar.sync 0; @%p3 st.global.u32 [%rd3+128], 1;").unwrap();
    let fault = run("@%p3 st.global.u32 [%rd3+128], 1;").unwrap_err();
    let FaultKind::Race { first, second } = fault.kind else { panic!("{fault}") };
    assert!(first.action != second.action, "{first}; {second}");
    assert_eq!((first.thread[0] % 32, second.thread[0] % 32), (1000 % 32, 1000 % 32));
}
