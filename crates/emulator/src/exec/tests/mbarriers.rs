//! mbarriers: phases, counts, what they order, and faults.

use super::{kernel, run_on_words, values};
use crate::fault::{Fault, FaultKind, Memory};

/// `%r3`: the thread's word in shared memory, `%r4`: that of its neighbour in the other warp. `%rd4`: its
/// result, `%rd3`: its input. The mbarriers are at `shared+1024`.
const PLACES: &str = "mul.wide.u32 %rd4, %r0, 4; add.u64 %rd3, %rd1, %rd4; add.u64 %rd4, %rd0, %rd4;
    mov.u32 %r3, shared; shl.b32 %r5, %r0, 2; xor.b32 %r6, %r5, 128; add.u32 %r4, %r3, %r6; add.u32 %r3, %r3, %r5;
    setp.eq.u32 %p1, %r0, 0; mov.u32 %r10, 1;";

/// Thread 0 makes an mbarrier for 64 arrivals.
const INIT: &str = "@%p1 mbarrier.init.shared.b64 [shared+1024], 64; bar.sync 0;";
const LOAD: &str = "ld.shared.u32 %r7, [%r4]; st.global.u32 [%rd4], %r7;";

/// Runs a body with 64 threads and 64 words. Returns the results.
fn run(body: &str, seed: Option<u64>, checks: bool) -> Result<Vec<u32>, Box<Fault>> {
    run_on_words(&format!("{PLACES}{body}"), seed, checks)
}

/// Runs a body in several orders.
fn results(body: &str) -> Vec<u32> {
    let first = run(body, None, true).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
    for (seed, checks) in [(Some(1), true), (Some(2), true), (Some(3), true), (Some(4), false), (None, false)]
    {
        let found = run(body, seed, checks).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
        assert_eq!(found, first, "{seed:?} {body}");
    }
    first
}

fn fault(body: &str) -> FaultKind {
    let fault = run(body, None, true).expect_err(body);
    let other = run(body, Some(1), true).expect_err(body);
    assert_eq!(std::mem::discriminant(&fault.kind), std::mem::discriminant(&other.kind), "{fault}; {other}");
    fault.kind
}

fn others() -> Vec<u32> {
    (0..64).map(|i| (i ^ 32) * 1000 + 1).collect()
}

/// A loop that waits until `test`, with the predicate `%p2`, succeeds.
fn wait(label: &str, test: &str) -> String {
    format!("{label}: {test} @!%p2 bra {label};\n")
}

#[test]
fn threads_meet_at_an_mbarrier() {
    let store = "ld.global.u32 %r8, [%rd3]; st.shared.u32 [%r3], %r8;";
    for arrive in [
        "mbarrier.arrive.shared.b64 %rd5, [shared+1024];",
        "mbarrier.arrive.shared::cta.b64 %rd5, [shared+1024], %r10;",
        "mbarrier.arrive.release.cta.shared.b64 %rd5, [shared+1024], 1;",
        "fence.acq_rel.cta; mbarrier.arrive.relaxed.cta.shared.b64 %rd5, [shared+1024];",
        "mov.u64 %rd6, shared; cvta.shared.u64 %rd6, %rd6;
         mbarrier.arrive.b64 %rd5, [%rd6+1024];",
        "mbarrier.arrive.expect_tx.shared.b64 %rd5, [shared+1024], 16;
         mbarrier.complete_tx.shared.b64 [shared+1024], 16;",
        "mbarrier.arrive_drop.shared.b64 %rd5, [shared+1024];",
    ] {
        for (at, test) in [
            "mbarrier.try_wait.shared.b64 %p2, [shared+1024], %rd5;",
            "mbarrier.try_wait.shared.b64 %p2, [shared+1024], %rd5, 1000;",
            "mbarrier.test_wait.acquire.cta.shared.b64 %p2, [shared+1024], %rd5;",
            "mbarrier.try_wait.parity.shared.b64 %p2, [shared+1024], 0;",
            "mbarrier.try_wait.relaxed.cta.shared.b64 %p2, [shared+1024], %rd5; fence.acq_rel.cta;",
        ]
        .into_iter()
        .enumerate()
        {
            let wait = wait(&format!("WAIT{at}"), test);
            assert_eq!(results(&format!("{INIT}{store}{arrive}{wait}{LOAD}")), others());
        }
        // No wait.
        let kind =
            fault(&format!("{INIT}{store}{}{LOAD}", arrive.replace("cvta.shared.u64 %rd6, %rd7;", "")));
        assert!(matches!(kind, FaultKind::Race { .. }), "{arrive}: {kind}");
    }
    // Relaxed, and no fence.
    for (arrive, order) in [("arrive.relaxed.cta", "acquire.cta"), ("arrive.release.cta", "relaxed.cta")] {
        let wait = wait("WAIT", &format!("mbarrier.try_wait.{order}.shared.b64 %p2, [shared+1024], %rd5;"));
        let kind =
            fault(&format!("{INIT}{store} mbarrier.{arrive}.shared.b64 %rd5, [shared+1024];{wait}{LOAD}"));
        assert!(matches!(kind, FaultKind::Race { .. }), "{kind}");
    }
}

/// A phase does not order what is done after the arrival, nor the stores of threads that have not arrived.
#[test]
fn a_phase_orders_only_what_precedes_its_arrivals() {
    let arrive = "mbarrier.arrive.shared.b64 %rd5, [shared+1024];";
    let wait = wait("WAIT", "mbarrier.try_wait.shared.b64 %p2, [shared+1024], %rd5;");
    let kind = fault(&format!("{INIT}{arrive} st.shared.u32 [%r3], 1; {wait}{LOAD}"));
    assert!(matches!(kind, FaultKind::Race { .. }), "{kind}");
    // Two phases: the loads of the first are not ordered before the stores of the second.
    let body = format!(
        "{INIT} st.shared.u32 [%r3], 5; {arrive}{wait}
        ld.shared.u32 %r7, [%r4]; st.shared.u32 [%r3], 6; st.global.u32 [%rd4], %r7;"
    );
    assert!(matches!(fault(&body), FaultKind::Race { .. }));
}

#[test]
fn phases_alternate() {
    // Each step adds the neighbour's value; the phase's parity is the step's.
    let body = format!(
        "@%p1 mbarrier.init.shared.b64 [shared+1024], 64; @%p1 mbarrier.init.shared.b64 [shared+1032], 64;
        @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;
        mov.u32 %r8, %r0; mov.u32 %r9, 0;
        STEP: st.shared.u32 [%r3], %r8; and.b32 %r11, %r9, 1;
        mbarrier.arrive.shared.b64 _, [shared+1024]; {}
        ld.shared.u32 %r7, [%r4]; add.u32 %r8, %r8, %r7;
        mbarrier.arrive.shared.b64 _, [shared+1032]; {}
        add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 7; @%p3 bra STEP;
        st.global.u32 [%rd4], %r8; bar.sync 0;
        @%p1 mbarrier.inval.shared.b64 [shared+1024]; @%p1 st.shared.u32 [shared+1024], 3;",
        wait("FIRST", "mbarrier.try_wait.parity.shared.b64 %p2, [shared+1024], %r11;"),
        wait("SECOND", "mbarrier.try_wait.parity.acquire.cta.shared.b64 %p2, [shared+1032], %r11, 100;")
    );
    let expected: Vec<u32> = (0..64).map(|i| (i + (i ^ 32)) * 64).collect();
    assert_eq!(results(&body), expected);
}

#[test]
fn counts_and_parities_are_those_of_the_isa() {
    let store = |at: u32, value: &str| format!("st.global.u32 [%rd0+{at}], {value};");
    let test = |parity: u32, at: u32| {
        format!(
            "mbarrier.test_wait.parity.shared.b64 %p2, [shared+1024], {parity}; selp.u32 %r8, 1, 0, %p2; {}",
            store(at, "%r8")
        )
    };
    let body = format!(
        "@!%p1 bra OUT; mbarrier.init.shared.b64 [shared+1024], 5;
        {} {} mbarrier.arrive.noComplete.shared.b64 %rd5, [shared+1024], 2;
        mbarrier.pending_count.b64 %r8, %rd5; {}
        mbarrier.arrive_drop.noComplete.release.cta.shared.b64 %rd5, [shared+1024], 1;
        mbarrier.pending_count.b64 %r8, %rd5; {}
        mbarrier.arrive.shared.b64 %rd5, [shared+1024]; mbarrier.arrive.shared.b64 %rd6, [shared+1024];
        mbarrier.pending_count.b64 %r8, %rd6; {} {} {}
        mbarrier.test_wait.shared.b64 %p2, [shared+1024], %rd6; selp.u32 %r8, 1, 0, %p2; {}
        mbarrier.arrive.shared.b64 %rd5, [shared+1024]; mbarrier.pending_count.b64 %r8, %rd5; {}
        mbarrier.test_wait.shared.b64 %p2, [shared+1024], %rd5; selp.u32 %r8, 1, 0, %p2; {}
        mbarrier.expect_tx.relaxed.cta.shared.b64 [shared+1024], 100;
        mbarrier.arrive.shared.b64 _, [shared+1024], 3; {}
        mbarrier.complete_tx.shared::cta.b64 [shared+1024], 60;
        mbarrier.complete_tx.relaxed.cta.shared.b64 [shared+1024], 40; {}
        OUT:",
        test(1, 0),
        test(0, 4),
        store(8, "%r8"),
        store(12, "%r8"),
        store(16, "%r8"),
        test(1, 20),
        test(0, 24),
        store(28, "%r8"),
        store(32, "%r8"),
        store(36, "%r8"),
        test(1, 40),
        test(1, 44),
    );
    assert_eq!(results(&body)[..12], [1, 0, 5, 3, 1, 0, 1, 1, 4, 0, 0, 1]);
}

/// The two halves of a warp, one of which waits for the other.
#[test]
fn lanes_of_a_warp_wait_for_each_other() {
    let body = format!(
        "@%p1 mbarrier.init.shared.b64 [shared+1024], 32; bar.sync 0;
        and.b32 %r8, %r0, 1; setp.eq.u32 %p3, %r8, 0; xor.b32 %r9, %r5, 4;
        mov.u32 %r11, shared; add.u32 %r11, %r11, %r9;
        @%p3 bra EVEN;
        st.shared.u32 [%r3], %r0; mbarrier.arrive.shared.b64 _, [shared+1024]; bra END;
        EVEN: {}
        ld.shared.u32 %r7, [%r11]; st.global.u32 [%rd4], %r7;
        END:",
        wait("WAIT", "mbarrier.try_wait.parity.shared.b64 %p2, [shared+1024], 0;")
    );
    let expected: Vec<u32> = (0..64).map(|i| if i % 2 == 0 { i + 1 } else { 77 }).collect();
    assert_eq!(results(&body), expected);
}

#[test]
fn copies_arrive_at_an_mbarrier() {
    let copy = "cp.async.ca.shared.global [%r3], [%rd3], 4;";
    let wait = wait("WAIT", "mbarrier.try_wait.parity.shared.b64 %p2, [shared+1024], 0;");
    for arrive in [
        "cp.async.mbarrier.arrive.noinc.shared.b64 [shared+1024];",
        "cp.async.mbarrier.arrive.shared::cta.b64 [shared+1024]; mbarrier.arrive.shared.b64 _, [shared+1024];",
    ] {
        assert_eq!(results(&format!("{INIT}{copy}{arrive}{wait}{LOAD}")), others());
        assert_eq!(results(&format!("{INIT}{copy}{arrive}{wait} cp.async.wait_all;{LOAD}")), others());
        let own = "cp.async.wait_all; ld.shared.u32 %r7, [%r3]; st.global.u32 [%rd4], %r7;";
        let other = format!("setp.lt.u32 %p3, %r0, 32; @%p3 bra OWN; {wait} OWN: {own}");
        assert_eq!(results(&format!("{INIT}{copy}{arrive}{other}")), values());
        // The barrier orders the arrivals, but nobody waits for the copies.
        let kind = fault(&format!("{INIT}{copy}{arrive} bar.sync 0;{LOAD}"));
        assert!(matches!(kind, FaultKind::Unfinished { .. }), "{kind}");
        // One warp does not wait.
        let half = format!("setp.lt.u32 %p3, %r0, 32; @!%p3 bra NEXT; {wait} NEXT: {LOAD}");
        let kind = fault(&format!("{INIT}{copy}{arrive} bar.sync 0; {half}"));
        assert!(matches!(kind, FaultKind::Unfinished { .. }), "{kind}");
    }
    // A copy after the arrival.
    let kind = fault(&format!(
        "{INIT} cp.async.mbarrier.arrive.noinc.shared.b64 [shared+1024]; {copy} {wait} {LOAD}"
    ));
    assert!(matches!(kind, FaultKind::Unfinished { .. }), "{kind}");
}

#[test]
fn wrong_uses_are_faults() {
    let arrive = "mbarrier.arrive.shared.b64 %rd5, [shared+1024];";
    for (body, wanted) in [
        (arrive.to_owned(), "nothing initialised"),
        (format!("@%p1 st.shared.u64 [shared+1024], 5; bar.sync 0; {arrive}"), "nothing initialised"),
        (
            format!("{INIT} bar.sync 0; @%p1 mbarrier.inval.shared.b64 [shared+1024]; bar.sync 0; {arrive}"),
            "no longer",
        ),
        (format!("{INIT} mbarrier.arrive.shared.b64 %rd5, [shared+1024], 3;"), "3 arrivals at an mbarrier"),
        (format!("{INIT} @%p1 mbarrier.arrive.shared.b64 %rd5, [shared+1024], 0;"), "0 arrivals"),
        (format!("{INIT} @%p1 mbarrier.arrive.noComplete.shared.b64 %rd5, [shared+1024], 64;"), "noComplete"),
        (format!("{INIT} @%p1 mbarrier.init.shared.b64 [shared+1024], 64;"), "initialised twice"),
        (format!("{INIT} @%p1 mbarrier.expect_tx.shared.b64 [shared+1024], 2000000;"), "2000000 bytes"),
        ("@%p1 mbarrier.init.shared.b64 [shared+1024], 0;".to_owned(), "for 0 arrivals"),
    ] {
        let kind = fault(&body);
        assert!(matches!(&kind, FaultKind::Mbarrier(text) if text.contains(wanted)), "{body}: {kind}");
    }
    for body in [
        "st.shared.u32 [shared+1028], 1;",
        "ld.shared.u8 %h1, [shared+1024];",
        "atom.shared.add.u32 %r8, [shared+1024], 1;",
        "cp.async.ca.shared.global [shared+1024], [%rd1], 8;",
    ] {
        let kind = fault(&format!("{INIT} @%p1 {body}"));
        let FaultKind::MbarrierWord { first, second } = &kind else { panic!("{body}: {kind}") };
        assert_eq!((first.memory, second.memory), (Memory::Shared, Memory::Shared));
        assert!(kind.to_string().contains("initialisation of an mbarrier"), "{kind}");
    }
    // No barrier after the initialisation; stores before it that are not ordered.
    let other = "setp.eq.u32 %p3, %r0, 40;";
    for body in [
        format!("{other} @%p1 mbarrier.init.shared.b64 [shared+1024], 64; @%p3 {arrive}"),
        format!("{other} @%p3 st.shared.u32 [shared+1024], 1; {INIT}"),
    ] {
        let found: Vec<_> = [None, Some(1), Some(2), Some(3), Some(4)]
            .into_iter()
            .filter_map(|seed| run(&body, seed, true).err())
            .collect();
        assert!(found.iter().any(|fault| matches!(fault.kind, FaultKind::Race { .. })), "{body}: {found:?}");
    }
    for body in
        ["mbarrier.init.shared.b64 [shared+1028], 64;", "mbarrier.arrive.shared.b64 %rd5, [shared+1028];"]
    {
        assert!(matches!(fault(body), FaultKind::Misaligned(_)), "{body}");
    }
    for body in ["mbarrier.init.shared.b64 [shared+8192], 64;", "mbarrier.init.b64 [%rd1], 64;"] {
        assert!(matches!(fault(body), FaultKind::OutOfBounds { .. }), "{body}");
    }
}

#[test]
fn waits_without_end_are_deadlocks() {
    let wait = wait("WAIT", "mbarrier.try_wait.parity.shared.b64 %p2, [shared+1024], 0;");
    let body = format!(
        "{INIT} mbarrier.expect_tx.shared.b64 [shared+1024], 2; setp.ne.u32 %p3, %r0, 5;
        @%p3 mbarrier.arrive.shared.b64 _, [shared+1024]; {wait}"
    );
    let kind = fault(&body);
    let text = kind.to_string();
    assert!(
        matches!(kind, FaultKind::Deadlock(_))
            && text.contains(
                "for the mbarrier at shared address 0x400, which lacks 1 of 64 arrivals and 128 bytes"
            ),
        "{text}"
    );
    // Some wait at a barrier.
    let text = fault(&format!("{INIT} @%p1 bra OUT; bar.sync 1, 64; OUT: {wait}"));
    assert!(text.to_string().contains("barrier"), "{text}");
}

#[test]
fn states_of_remote_arrivals_must_be_dropped() {
    let text = kernel("mbarrier.arrive.release.cluster.shared::cluster.b64 %rd5, [shared], 1;");
    let error = crate::program::Program::decode(&crate::ptx::parse(&text).unwrap()).unwrap_err();
    assert!(!error.unknown && error.message.contains("must be `_`"), "{error}");
}
