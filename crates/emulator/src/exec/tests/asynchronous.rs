//! Asynchronous copies: their results, and faults if nobody waits for them.

use super::{Machine, kernel, run_on_words, values};
use crate::fault::{Fault, FaultKind, Memory};

/// `%rd3` and `%r3`: the thread's word at `%rd1` and in shared memory. `%rd4`: its result.
const PLACES: &str = "mul.wide.u32 %rd4, %r0, 4; add.u64 %rd3, %rd1, %rd4; add.u64 %rd4, %rd0, %rd4;
    mov.u32 %r3, shared; shl.b32 %r4, %r0, 2; add.u32 %r3, %r3, %r4;";

/// Runs a body with 64 threads and 64 words to copy. Returns the results.
fn run(body: &str, seed: Option<u64>, checks: bool) -> Result<Vec<u32>, Box<Fault>> {
    run_on_words(&format!("{PLACES}{body}"), seed, checks)
}

fn fault(body: &str) -> FaultKind {
    let fault = run(body, None, true).expect_err(body);
    let other = run(body, Some(1), true).expect_err(body);
    assert_eq!(std::mem::discriminant(&fault.kind), std::mem::discriminant(&other.kind), "{fault}; {other}");
    fault.kind
}

const COPY: &str = "cp.async.ca.shared.global [%r3], [%rd3], 4;";
/// The thread reads its neighbour's word.
const NEIGHBOUR: &str = "xor.b32 %r5, %r4, 4; mov.u32 %r6, shared; add.u32 %r5, %r5, %r6;
    ld.shared.u32 %r7, [%r5]; st.global.u32 [%rd4], %r7;";
const OWN: &str = "ld.shared.u32 %r7, [%r3]; st.global.u32 [%rd4], %r7;";

#[test]
fn copies_have_arrived_after_the_wait() {
    for wait in ["cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"] {
        for (seed, checks) in [(None, true), (Some(1), true), (Some(2), true), (None, false)] {
            assert_eq!(run(&format!("{COPY}{wait}{OWN}"), seed, checks).unwrap(), values());
            let neighbours: Vec<u32> = (0..64).map(|i| (i ^ 1) * 1000 + 1).collect();
            for barrier in ["bar.sync 0;", "bar.warp.sync 0xffffffff;"] {
                let found = run(&format!("{COPY}{wait}{barrier}{NEIGHBOUR}"), seed, checks);
                assert_eq!(found.unwrap(), neighbours);
            }
        }
    }
}

/// Two buffers in turns: while one is summed, the other is filled.
#[test]
fn a_pipeline_of_two_stages_is_right_and_has_no_fault() {
    let pipeline = |pending: u32, last: &str| {
        kernel(&format!(
            "{PLACES} mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u64 %rd5, %rd3;
            cp.async.ca.shared.global [%r3], [%rd5], 4; cp.async.commit_group;
            LOOP:
            add.u32 %r12, %r10, 1; and.b32 %r13, %r12, 1; shl.b32 %r13, %r13, 8; add.u32 %r13, %r13, %r3;
            add.u64 %rd5, %rd5, 256; setp.lt.u32 %p1, %r12, 8;
            @%p1 cp.async.ca.shared.global [%r13], [%rd5], 4;
            cp.async.commit_group;
            cp.async.wait_group {pending};
            bar.sync 0;
            and.b32 %r14, %r10, 1; shl.b32 %r14, %r14, 8; xor.b32 %r15, %r4, 4; add.u32 %r14, %r14, %r15;
            mov.u32 %r16, shared; add.u32 %r14, %r14, %r16; ld.shared.u32 %r17, [%r14];
            add.u32 %r11, %r11, %r17;
            {last}
            mov.u32 %r10, %r12; @%p1 bra LOOP;
            st.global.u32 [%rd4], %r11;"
        ))
    };
    let values: Vec<u32> = (0..512).map(|i| i * 7 + 3).collect();
    let launch = |text: &str, seed| {
        let mut machine = Machine::new(text);
        machine.settings.seed = seed;
        let (out, from) = (machine.upload(&[77u32; 64]), machine.upload(&values));
        machine.launch(1, 64, &[out, from]).map(|_| machine.words(out, 64))
    };
    let expected: Vec<u32> =
        (0..64).map(|i| (0..8).map(|stage| values[stage * 64 + (i ^ 1)]).sum()).collect();
    for seed in [None, Some(1), Some(2), Some(3)] {
        assert_eq!(launch(&pipeline(1, "bar.sync 0;"), seed).unwrap(), expected);
        // Too many pending groups; and no barrier between the reads and the next copy.
        let fault = launch(&pipeline(2, "bar.sync 0;"), seed).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Unfinished { .. }), "{fault}");
        let fault = launch(&pipeline(1, ""), seed).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Race { .. } | FaultKind::Unfinished { .. }), "{fault}");
    }
}

#[test]
fn use_of_unfinished_copies_is_found() {
    for body in [
        format!("{COPY}{OWN}"),
        format!("{COPY} st.shared.u32 [%r3], %r0;"),
        format!("{COPY}{COPY}"),
        // A group that was not committed, and waits for too few groups.
        format!("{COPY} cp.async.wait_group 0;{OWN}"),
        format!("{COPY} cp.async.commit_group;{OWN}"),
        format!("{COPY} cp.async.commit_group; cp.async.wait_group 1;{OWN}"),
        // A barrier does not wait for copies.
        format!("{COPY} bar.sync 0;{NEIGHBOUR} bar.sync 0; cp.async.wait_all;"),
        // Odd threads do not wait.
        format!(
            "{COPY} and.b32 %r8, %r0, 1; setp.eq.u32 %p1, %r8, 0; @%p1 cp.async.wait_all;
            bar.sync 0;{NEIGHBOUR}"
        ),
    ] {
        let FaultKind::Unfinished { first, second } = fault(&body) else { panic!("{body}") };
        assert_eq!((first.memory, first.address), (Memory::Shared, second.address), "{body}");
    }
    // Waited for, but without a barrier before other threads read.
    let kind = fault(&format!("{COPY} cp.async.wait_all;{NEIGHBOUR}"));
    let text = kind.to_string();
    assert!(
        text.contains("asynchronous copy of 4 bytes") && text.contains("between its wait and this access"),
        "{text}"
    );
    let FaultKind::Race { first, second } = kind else { panic!("{text}") };
    assert_ne!(first.thread, second.thread);
    // Other threads read what the next copy overwrites.
    let next = format!("{COPY} cp.async.wait_all; bar.sync 0;{NEIGHBOUR} {COPY} cp.async.wait_all;");
    let text = fault(&next).to_string();
    assert!(text.contains("overwrites what another thread may still have to read"), "{text}");
    // Another thread writes before the copy.
    let before = "xor.b32 %r5, %r4, 4; mov.u32 %r6, shared; add.u32 %r5, %r5, %r6; st.shared.u32 [%r5], 1;";
    assert!(matches!(fault(&format!("{before}{COPY} cp.async.wait_all;")), FaultKind::Race { .. }));
    run(&format!("{before} bar.sync 0; {COPY} cp.async.wait_all;"), None, true).unwrap();
}

/// The source is a word that the thread, or its neighbour, overwrites.
#[test]
fn a_source_is_not_overwritten_before_the_wait() {
    let own = "st.global.u32 [%rd3], 5;";
    let neighbours = "xor.b32 %r5, %r0, 33; mul.wide.u32 %rd5, %r5, 4; add.u64 %rd5, %rd1, %rd5;
        st.global.u32 [%rd5], 5;";
    let (wait, group, bar) =
        ("cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;", "bar.sync 0;");
    for wait in [wait, group] {
        // Before the copy, after the wait, and in a loop that copies again after each wait.
        run(&format!("{own} {COPY} {wait}"), None, true).unwrap();
        run(&format!("{COPY} {wait} {own} {COPY} {wait} {own}"), None, true).unwrap();
        run(&format!("{neighbours} {bar} {COPY} {wait} {bar} {neighbours}"), None, true).unwrap();
        let looped = format!(
            "mov.u32 %r9, 0; AGAIN: {COPY} {wait} {own} add.u32 %r9, %r9, 1;
            setp.lt.u32 %p1, %r9, 3; @%p1 bra AGAIN;"
        );
        run(&looped, None, true).unwrap();
        for body in [
            format!("{COPY} {own} {wait}"),
            format!("{COPY} cp.async.commit_group; {own} {wait}"),
            format!("{COPY} {wait} {COPY} {own} {wait}"),
            format!("{COPY} {bar} {neighbours} {wait}"),
            format!("{COPY} {bar} {neighbours} {bar} {wait}"),
            format!("{COPY} {own}"),
            looped.replace(&format!("{wait} {own}"), &format!("{own} {wait}")),
        ] {
            let kind = fault(&body);
            let FaultKind::Race { first, second } = &kind else { panic!("{kind}: {body}") };
            assert_eq!([first.memory, second.memory], [Memory::Global; 2], "{body}");
            assert!(kind.to_string().contains("may read its source until its wait"), "{kind}: {body}");
        }
        // Waited for, but without a barrier before the neighbour writes; or the neighbour writes first.
        for body in [format!("{COPY} {wait} {neighbours}"), format!("{neighbours} {COPY} {wait}")] {
            assert!(matches!(fault(&body), FaultKind::Race { .. }), "{body}");
        }
    }
    // The last group may still be reading.
    let two = format!(
        "{COPY} cp.async.commit_group; cp.async.ca.shared.global [%r3+256], [%rd3], 4; cp.async.commit_group;"
    );
    assert!(matches!(fault(&format!("{two} cp.async.wait_group 1; {own}")), FaultKind::Race { .. }));
    run(&format!("{two} cp.async.wait_group 0; {own}"), None, true).unwrap();
}

#[test]
fn operands_of_copies_are_checked() {
    let out_of_bounds = |body: &str, memory: Memory| {
        let kind = fault(body);
        assert!(
            matches!(&kind, FaultKind::OutOfBounds { access, .. } if access.memory == memory),
            "{body}: {kind}"
        );
    };
    out_of_bounds("cp.async.ca.shared.global [%r3], [%rd3+4], 4;", Memory::Global);
    out_of_bounds("cp.async.ca.shared.global [%r3+8192], [%rd3], 4;", Memory::Shared);
    out_of_bounds("cp.async.cg.shared.global [shared], [%rd1+256], 16, 1;", Memory::Global);
    for body in [
        "cp.async.ca.shared.global [%r3+2], [%rd3], 4;",
        "cp.async.ca.shared.global [%r3], [%rd3+2], 4;",
        "cp.async.ca.shared.global [%r3], [%rd3], 8;",
        "cp.async.ca.shared.global [shared], [%rd1+4], 8, 3;",
    ] {
        assert!(matches!(fault(body), FaultKind::Misaligned(_)), "{body}");
    }
    let kind = fault("mov.u32 %r8, 5; cp.async.ca.shared.global [%r3], [%rd3], 4, %r8;");
    assert!(matches!(&kind, FaultKind::CopyOperand(text) if text.contains("5 bytes")), "{kind}");
}

#[test]
fn bytes_that_are_not_read_need_no_allocation() {
    // Only three bytes of the last word are read, of eight. Nothing is read from address 0.
    let body = "setp.ne.u32 %p1, %r0, 0; @%p1 bra OUT;
        cp.async.ca.shared.global [shared], [%rd1+248], 8, 7;
        cp.async.ca.shared.global [shared+8], [0], 8, 0;
        setp.eq.u32 %p2, %r0, 0; cp.async.cg.shared.global [shared+16], [0], 16, %p2;
        cp.async.wait_all;
        ld.shared.u32 %r10, [shared+4]; st.global.u32 [%rd0], %r10;
        ld.shared.u32 %r10, [shared+8]; st.global.u32 [%rd0+4], %r10;
        ld.shared.u32 %r10, [shared+28]; st.global.u32 [%rd0+8], %r10;
        OUT:";
    let found = run(body, None, true).unwrap();
    assert_eq!(found[..4], [63_001 & 0xff_ffff, 0, 0, 77]);
}

#[test]
fn wrong_copies_do_not_load() {
    for (instruction, wrong) in [
        ("cp.async.ca.shared.global [%r3], [%rd3], 12", "one of [4, 8, 16] bytes"),
        ("cp.async.cg.shared.global [%r3], [%rd3], 8", "one of [16] bytes"),
        ("cp.async.ca.shared.global [%r3], [%rd3]", "3 operands, not 2"),
        ("cp.async.ca.shared.global [%r3], [%rd3], 4, 4, %rd3", "4 operands, not 5"),
        ("cp.async.ca.shared.global.L2::cache_hint [%r3], [%rd3], 4", "4 operands, not 3"),
        ("cp.async.wait_group %r3", "needs a constant number of groups"),
    ] {
        let module = crate::ptx::parse(&kernel(&format!("{instruction};"))).unwrap();
        let error = crate::program::Program::decode(&module).unwrap_err();
        assert!(!error.unknown && error.message.contains(wrong), "{error}");
    }
}
