//! Bulk copies: their results, and faults if nobody waits for them.

use super::{Machine, kernel, run_on_words};
use crate::fault::{Fault, FaultKind, Memory};

/// `%r3`: the thread's word in shared memory. `%rd4`: its result. `%p1`: thread 0.
const PLACES: &str = "mul.wide.u32 %rd4, %r0, 4; add.u64 %rd4, %rd0, %rd4;
    mov.u32 %r3, shared; shl.b32 %r5, %r0, 2; add.u32 %r3, %r3, %r5;
    setp.eq.u32 %p1, %r0, 0; mov.u32 %r10, 256;";

const INIT: &str = "@%p1 mbarrier.init.shared.b64 [shared+1024], 1; @%p1 fence.proxy.async; bar.sync 0;";
const EXPECT: &str = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [shared+1024], 256;";
const COPY: &str = "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
    [shared], [%rd1], 256, [shared+1024];";
const WAIT: &str = "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [shared+1024], 0; @!%p2 bra WAIT;";
/// The thread reads the word of the thread in the other warp.
const LOAD: &str = "xor.b32 %r6, %r5, 128; mov.u32 %r7, shared; add.u32 %r7, %r7, %r6;
    ld.shared.u32 %r7, [%r7]; st.global.u32 [%rd4], %r7;";

/// Runs a body with 64 threads and 64 words. Returns the results.
fn run(body: &str, seed: Option<u64>, checks: bool) -> Result<Vec<u32>, Box<Fault>> {
    run_on_words(&format!("{PLACES}{body}"), seed, checks)
}

fn results(body: &str) -> Vec<u32> {
    let first = run(body, None, true).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
    for (seed, checks) in [(Some(1), true), (Some(2), true), (Some(3), true), (None, false)] {
        assert_eq!(
            run(body, seed, checks).unwrap_or_else(|fault| panic!("{fault}\n{body}")),
            first,
            "{body}"
        );
    }
    first
}

fn fault(body: &str) -> FaultKind {
    let fault = run(body, None, true).expect_err(body);
    let other = run(body, Some(1), true).expect_err(body);
    assert_eq!(std::mem::discriminant(&fault.kind), std::mem::discriminant(&other.kind), "{fault}; {other}");
    fault.kind
}

#[test]
fn bytes_arrive_at_the_mbarrier() {
    let others: Vec<u32> = (0..64).map(|i| (i ^ 32) * 1000 + 1).collect();
    let hinted = "createpolicy.fractional.L2::evict_first.b64 %rd9, 1.0;
        @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint
        [shared], [%rd1], %r10, [shared+1024], %rd9;";
    for copy in [COPY, hinted] {
        assert_eq!(results(&format!("{INIT}{EXPECT}{copy}{WAIT}{LOAD}")), others);
        // The bytes may be expected later.
        let late = "@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [shared+1024], 256;
            @%p1 mbarrier.arrive.shared.b64 _, [shared+1024];";
        assert_eq!(results(&format!("{INIT}{copy}{late}{WAIT}{LOAD}")), others);
        // One warp waits, and a barrier orders the other.
        let one = format!("setp.lt.u32 %p3, %r0, 32; @!%p3 bra NEXT; {WAIT} NEXT: bar.sync 0; {LOAD}");
        assert_eq!(results(&format!("{INIT}{EXPECT}{copy}{one}")), others);
    }
}

#[test]
fn use_of_unfinished_copies_is_found() {
    for body in [
        // Nobody waits; a barrier does not.
        format!("{INIT}{EXPECT}{COPY} bar.sync 0; {LOAD}"),
        // Only one warp waits.
        format!(
            "{INIT}{EXPECT}{COPY} bar.sync 0; setp.lt.u32 %p3, %r0, 32; @!%p3 bra NEXT; {WAIT} NEXT: {LOAD}"
        ),
        // Thread 0 itself does not.
        format!("{INIT}{EXPECT}{COPY} @%p1 ld.shared.u32 %r7, [%r3];"),
        format!("{INIT}{EXPECT}{COPY} @%p1 st.shared.u32 [%r3], 5;"),
        format!("{INIT}{EXPECT}{COPY}{COPY}"),
    ] {
        let kind = fault(&body);
        let FaultKind::Unfinished { first, .. } = &kind else { panic!("{body}: {kind}") };
        assert_eq!((first.memory, first.thread), (Memory::Shared, [0; 3]), "{kind}");
    }
    // Other threads may still read what the copy overwrites.
    let body = format!("st.shared.u32 [%r3], 5; bar.sync 0; {INIT} {LOAD} {EXPECT}{COPY}");
    assert!(matches!(fault(&body), FaultKind::Race { .. }));
}

/// A ring of two stages: warp 0 copies, warp 1 reads and tells warp 0 that a stage is free.
#[test]
fn a_ring_of_stages_is_right_and_has_no_fault() {
    let ring = |release: &str| {
        format!(
            "{PLACES} @!%p1 bra MADE;
            mbarrier.init.shared.b64 [shared+1024], 1; mbarrier.init.shared.b64 [shared+1032], 1;
            mbarrier.init.shared.b64 [shared+1040], 32; mbarrier.init.shared.b64 [shared+1048], 32;
            fence.mbarrier_init.release.cluster;
            MADE: bar.sync 0;
            mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u64 %rd5, %rd1;
            mov.u32 %r20, shared; setp.lt.u32 %p3, %r0, 32; @!%p3 bra READER;
            @!%p1 bra OUT;
            WRITER: and.b32 %r13, %r11, 1; shr.u32 %r14, %r11, 1; and.b32 %r14, %r14, 1; xor.b32 %r14, %r14, 1;
            shl.b32 %r15, %r13, 3; add.u32 %r15, %r15, %r20; shl.b32 %r16, %r13, 7; add.u32 %r16, %r16, %r20;
            FREE: mbarrier.try_wait.parity.shared.b64 %p2, [%r15+1040], %r14; @!%p2 bra FREE;
            mbarrier.arrive.expect_tx.shared.b64 _, [%r15+1024], 128;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r16], [%rd5], 128, [%r15+1024];
            add.u64 %rd5, %rd5, 128; add.u32 %r11, %r11, 1; setp.lt.u32 %p4, %r11, 9; @%p4 bra WRITER;
            bra OUT;
            READER: and.b32 %r13, %r11, 1; shr.u32 %r14, %r11, 1; and.b32 %r14, %r14, 1;
            shl.b32 %r15, %r13, 3; add.u32 %r15, %r15, %r20; shl.b32 %r16, %r13, 7; add.u32 %r16, %r16, %r3;
            FULL: mbarrier.try_wait.parity.shared.b64 %p2, [%r15+1024], %r14; @!%p2 bra FULL;
            ld.shared.u32 %r17, [%r16+-128]; add.u32 %r12, %r12, %r17; {release}
            add.u32 %r11, %r11, 1; setp.lt.u32 %p4, %r11, 9; @%p4 bra READER;
            st.global.u32 [%rd4], %r12;
            OUT:"
        )
    };
    let values: Vec<u32> = (0..9 * 32).map(|i| i * 7 + 3).collect();
    let launch = |text: &str, seed| {
        let mut machine = Machine::new(&kernel(text));
        machine.settings.seed = seed;
        let (out, from) = (machine.upload(&[77u32; 64]), machine.upload(&values));
        machine.launch(1, 64, &[out, from]).map(|_| machine.words(out, 64))
    };
    let sums = (0..32).map(|i| (0..9).map(|stage| values[stage * 32 + i]).sum());
    let expected: Vec<u32> = std::iter::repeat_n(77, 32).chain(sums).collect();
    for seed in [None, Some(1), Some(2), Some(3)] {
        let right = launch(&ring("mbarrier.arrive.shared.b64 _, [%r15+1040];"), seed);
        assert_eq!(right.unwrap_or_else(|fault| panic!("{fault}")), expected);
        // The stage is free before it is read.
        let early = ring("")
            .replace("ld.shared.u32 %r17", "mbarrier.arrive.shared.b64 _, [%r15+1040]; ld.shared.u32 %r17");
        let fault = launch(&early, seed).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Race { .. } | FaultKind::Unfinished { .. }), "{fault}");
    }
}

const STORE: &str = "mul.lo.u32 %r8, %r0, 3; st.shared.u32 [%r3], %r8;";
const OUT: &str = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [shared], 256;
    @%p1 cp.async.bulk.commit_group;";

#[test]
fn shared_memory_is_copied_out() {
    let tripled: Vec<u32> = (0..64).map(|i| 3 * i).collect();
    for wait in ["cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;", ""] {
        assert_eq!(
            results(&format!("{STORE} fence.proxy.async.shared::cta; bar.sync 0; {OUT} {wait}")),
            tripled
        );
    }
    // The thread may write again when the copy has read, and others after a barrier.
    let again = "cp.async.bulk.wait_group.read 0; bar.sync 0; st.shared.u32 [%r3], 5;";
    assert_eq!(results(&format!("{STORE} fence.proxy.async; bar.sync 0; {OUT}{again}")), tripled);
    // All read the result.
    let body = format!(
        "{STORE} fence.proxy.async; bar.sync 0; {OUT} cp.async.bulk.wait_group 0; bar.sync 0;
        ld.global.u32 %r7, [%rd4]; add.u32 %r7, %r7, 1; st.global.u32 [%rd4], %r7;"
    );
    let expected: Vec<u32> = (0..64).map(|i| 3 * i + 1).collect();
    assert_eq!(results(&body), expected);
}

#[test]
fn use_before_the_copy_out_has_finished_is_found() {
    let start = format!("{STORE} fence.proxy.async; bar.sync 0; {OUT}");
    for wait in ["", "cp.async.bulk.wait_group.read 1;"] {
        let body = format!("{start} {wait} bar.sync 0; st.shared.u32 [%r3], 5; cp.async.bulk.wait_group 0;");
        let kind = fault(&body);
        assert!(matches!(kind, FaultKind::Unfinished { .. }), "{kind}");
    }
    // No barrier after the wait.
    let kind = fault(&format!("{start} cp.async.bulk.wait_group.read 0; st.shared.u32 [%r3], 5;"));
    assert!(matches!(kind, FaultKind::Race { .. } | FaultKind::Unfinished { .. }), "{kind}");
    // Global memory, of which only the reads have been waited for.
    let kind =
        fault(&format!("{start} cp.async.bulk.wait_group.read 0; bar.sync 0; ld.global.u32 %r7, [%rd4];"));
    assert!(matches!(&kind, FaultKind::Race { first, .. } if first.memory == Memory::Global), "{kind}");
    // Stores that the copy may not see.
    let kind = fault(&format!("{STORE} bar.sync 0; {OUT} cp.async.bulk.wait_group 0;"));
    assert!(matches!(&kind, FaultKind::Proxy { .. }), "{kind}");
    // And no barrier.
    let kind = fault(&format!("{STORE} fence.proxy.async; {OUT} cp.async.bulk.wait_group 0;"));
    assert!(matches!(&kind, FaultKind::Race { .. }), "{kind}");
}

#[test]
fn reductions_combine_with_global_memory() {
    let reduce = |words: &str| {
        format!(
            "ld.global.u32 %r8, [%rd4]; add.u32 %r8, %r8, %r0; st.global.u32 [%rd4], %r8;
            st.shared.u32 [%r3], %r0; fence.proxy.async; bar.sync 0;
            @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.{words} [%rd0], [shared], 128;
            @%p1 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
        )
    };
    let expected = |combine: fn(u32, u32) -> u32| -> Vec<u32> {
        (0..64).map(|i| if i < 32 { combine(77 + i, i) } else { 77 + i }).collect()
    };
    assert_eq!(results(&reduce("add.u32")), expected(|a, b| a + b));
    assert_eq!(results(&reduce("and.b32")), expected(|a, b| a & b));
    assert_eq!(results(&reduce("min.s32")), expected(|a, b| a.min(b)));
}

/// Bytes that nothing wrote are judged where they are used.
#[test]
fn unwritten_bytes_are_copied() {
    let mut machine = Machine::new(&format!("{PLACES}{INIT}{EXPECT}{COPY}{WAIT}{LOAD}"));
    machine.settings.checks = true;
    let out = machine.upload(&[0u32; 64]);
    let from = machine.memory.allocate(256).unwrap();
    machine.memory.write(from, &[1; 128]).unwrap();
    let fault = machine.launch(1, 64, &[out, from]).unwrap_err();
    assert!(
        matches!(&fault.kind, FaultKind::Unwritten(access) if access.memory == Memory::Shared),
        "{fault}"
    );
    // The upper half is not read.
    let half = LOAD.replace("xor.b32 %r6, %r5, 128;", "and.b32 %r6, %r5, 124;");
    let machine = Machine::new(&format!("{PLACES}{INIT}{EXPECT}{COPY}{WAIT}{half}"));
    let out = machine.upload(&[0u32; 64]);
    let from = machine.memory.allocate(256).unwrap();
    machine.memory.write(from, &[1; 128]).unwrap();
    machine.launch(1, 64, &[out, from]).unwrap();
    assert_eq!(machine.words(out, 64), [0x0101_0101; 64]);
}

#[test]
fn operands_are_checked() {
    let copy = |to: &str, from: &str, size: &str| {
        let words = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
        format!("{INIT} @%p1 {words} [{to}], [{from}], {size}, [shared+1024];")
    };
    for (to, from, size) in [
        ("shared+8", "%rd1", "16"),
        ("shared", "%rd1+4", "16"),
        ("shared", "%rd1", "24"),
        ("shared", "%rd1", "4"),
    ] {
        let kind = fault(&copy(to, from, size));
        assert!(matches!(&kind, FaultKind::CopyOperand(text) if text.contains("multiples of 16")), "{kind}");
    }
    for (to, from, size, memory) in [
        ("shared", "%rd1", "272", Memory::Global),
        ("shared", "%rd1-16", "16", Memory::Global),
        ("shared+8192", "%rd1", "16", Memory::Shared),
    ] {
        let kind = fault(&copy(to, from, size));
        assert!(matches!(&kind, FaultKind::OutOfBounds { access, .. } if access.memory == memory), "{kind}");
    }
    // Nothing to copy.
    let none = copy("shared", "%rd1", "0");
    run(&format!("{none} @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [shared], 0;"), None, true)
        .unwrap();
    let kind = fault(&format!("bar.sync 0; {COPY}"));
    assert!(matches!(kind, FaultKind::Mbarrier(_)), "{kind}");
}

#[test]
fn other_kinds_of_copies_are_unsupported() {
    let bytes = "mbarrier::complete_tx::bytes";
    for (instruction, operands) in [
        ("cp.async.bulk.tensor.1d.shared::cluster.global.tile", "[shared], [%rd1, {%r3}], [shared+64]"),
        ("cp.async.bulk.shared::cluster.shared::cta", "[shared], [shared+64], 16, [shared+128]"),
        ("cp.async.bulk.multicast::cluster.shared::cluster.global", "[shared], [%rd1], 16, [shared+64], %h1"),
        (
            "cp.reduce.async.bulk.add.u32.shared::cluster.shared::cta",
            "[shared], [shared+64], 16, [shared+128]",
        ),
    ] {
        let instruction = format!("{instruction}.{bytes} {operands}");
        let module = crate::ptx::parse(&kernel(&format!("{instruction};"))).unwrap();
        let error = crate::program::Program::decode(&module).unwrap_err();
        let name = instruction.split(' ').next().unwrap();
        assert!(error.unknown && error.message.contains(name), "{error}");
    }
}
