//! Undefined values, used or only copied; other threads' local memory; stores to constants.

use super::{Machine, kernel};
use crate::fault::{Action, Fault, FaultKind, Memory};
use std::mem::discriminant;

/// Runs a body with two blocks of 32 threads. `%rd0` points to a word per thread, `%rd9` to the thread's own
/// word. `%p1` is true for the first four threads of a block.
fn run(body: &str) -> Result<(), Box<Fault>> {
    let text = format!(
        ".local .align 16 .b8 depot[32];
        mov.u32 %r9, %ctaid.x; mad.lo.u32 %r9, %r9, 32, %r0; mul.wide.u32 %rd9, %r9, 4;
        add.u64 %rd9, %rd9, %rd0; setp.lt.u32 %p1, %r0, 4;
        {body}"
    );
    let mut first = None;
    for (seed, checks) in [(None, true), (Some(1), true), (None, false)] {
        let mut machine = Machine::new(&text);
        (machine.settings.seed, machine.settings.checks) = (seed, checks);
        let words = machine.upload(&[1u32; 64]);
        // The second block must not see the first one's values as defined.
        let ended = machine.launch(2, 32, &[words, words + 128]).map(drop);
        match checks {
            true => {
                let kind = |ended: &Result<(), Box<Fault>>| {
                    ended.as_ref().map_err(|fault| discriminant(&fault.kind)).copied()
                };
                // With a seed, either block may be the first at fault.
                assert_eq!(kind(first.get_or_insert(ended.clone())), kind(&ended), "{body}");
            }
            // The values may cause another fault.
            false => {
                let found = matches!(&ended, Err(fault) if is_undefined(fault));
                assert!(!found, "{body}");
            }
        }
    }
    first.unwrap()
}

fn is_undefined(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::Register { .. } | FaultKind::Unwritten(_))
}

/// Runs a body that uses an unwritten register. Returns the use and the number of threads at fault.
fn register(body: &str) -> (&'static str, usize) {
    let fault = run(body).expect_err(body);
    assert_eq!(fault.code(), 719);
    assert!(fault.to_string().contains("read of a register that nothing wrote"), "{fault}");
    match fault.kind {
        FaultKind::Register { what, .. } => (what, fault.threads.len()),
        _ => panic!("{fault}"),
    }
}

#[test]
fn use_of_an_unwritten_register_is_found() {
    for (body, what, threads) in [
        ("st.global.u32 [%rd9], %r5;", "what is stored", 32),
        ("add.u32 %r5, %r5, 1; st.global.u32 [%rd9], %r5;", "what is stored", 32),
        // An accumulator that is never set, through a loop, copies, shuffles and conversions.
        (
            "mov.u32 %r6, 0;
            LOOP: add.u32 %r5, %r5, %r6; add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 3; @%p2 bra LOOP;
            shfl.sync.bfly.b32 %r7, %r5, 1, 31, 0xffffffff; cvt.u64.u32 %rd4, %r7; mov.b64 {%r8, %r9}, %rd4;
            st.global.u32 [%rd9], %r8;",
            "what is stored",
            32,
        ),
        // Set only in some lanes, or on one of two paths.
        ("@%p1 mov.u32 %r5, 1; mul.lo.u32 %r5, %r5, 3; st.global.u32 [%rd9], %r5;", "what is stored", 28),
        (
            "@!%p1 bra JOIN; mov.u32 %r5, 1; JOIN: mad.lo.u32 %r6, %r5, 3, 1; st.global.u32 [%rd9], %r6;",
            "what is stored",
            28,
        ),
        ("selp.u32 %r6, 3, %r5, %p1; add.u32 %r6, %r6, 1; st.global.u32 [%rd9], %r6;", "what is stored", 28),
        ("ld.global.u32 %r6, [%rd5];", "the address", 32),
        (
            "and.b32 %r5, %r5, 31; mov.u32 %r6, shared; add.u32 %r6, %r6, %r5; st.shared.u8 [%r6], 1;",
            "the address",
            32,
        ),
        ("@%p3 bra OUT; OUT:", "the branch", 32),
        ("setp.eq.u32 %p3, %r5, 0; @%p3 bra OUT; OUT:", "the branch", 32),
        ("@%p3 st.global.u32 [%rd9], 1;", "whether to run the instruction", 32),
        ("red.global.add.u32 [%rd0], %r5;", "the address or an operand", 32),
        ("bar.sync %r5;", "an operand", 32),
        ("vote.sync.ballot.b32 %r6, %p1, %r5;", "an operand", 32),
    ] {
        assert_eq!(register(body), (what, threads), "{body}");
    }
    let fault = run("mov.u32 %r6, %r5;\nadd.u32 %r6, %r6, 1;\nst.global.u32 [%rd9], %r6;").unwrap_err();
    let FaultKind::Register { used, .. } = &fault.kind else { panic!("{fault}") };
    // The fault's place is the copy; `used` is the store.
    assert_eq!(used.line, fault.place.as_ref().unwrap().line + 2);
}

#[test]
fn harmless_undefined_values_are_no_fault() {
    for body in [
        // Copied and never used.
        "mov.u32 %r6, %r5; mov.b64 %rd4, {%r5, %r6}; add.u32 %r7, %r5, 1;",
        // Dropped again in the lanes where it is undefined.
        "@%p1 mov.u32 %r5, 1; add.u32 %r6, %r5, 1; selp.u32 %r7, %r6, 0, %p1; st.global.u32 [%rd9], %r7;",
        "@%p1 mov.u32 %r5, 1; @%p1 st.global.u32 [%rd9], %r5;",
        "@%p1 ld.global.u32 %r5, [%rd9]; shfl.sync.down.b32 %r6, %r5, 1, 31, 0xffffffff;
        setp.lt.u32 %p2, %r0, 3;
        @%p2 st.global.u32 [%rd9], %r6;",
        // A comparison of it is overruled by another condition.
        "@%p1 mov.u32 %r5, 1; setp.eq.u32 %p3, %r5, 1; and.pred %p3, %p3, %p1; @%p3 bra OUT; OUT:",
        "@%p1 mov.u32 %r5, 1; setp.eq.and.u32 %p3, %r5, 1, %p1; @%p3 bra OUT; OUT:",
        // Complementary guards write all lanes.
        "@%p1 mov.u32 %r5, 1; @!%p1 mov.u32 %r5, 2; st.global.u32 [%rd9], %r5;",
        "@%p1 bra A; mov.u32 %r5, 1; bra B; A: mov.u32 %r5, 2; B: add.u32 %r5, %r5, 1;
        st.global.u32 [%rd9], %r5;",
        // Only the defined half is used.
        "mov.b64 %rd4, {%r0, %r5}; cvt.u32.u64 %r6, %rd4; st.global.u32 [%rd9], %r6;",
        "prmt.b32 %r6, %r5, %r0, 0x5410; shr.u32 %r6, %r6, 16; st.global.u32 [%rd9], %r6;",
        // An enum variant without a value, and padding.
        "@%p1 mov.u32 %r5, 1; st.global.u32 [%rd9], %r5;",
        "and.b32 %r6, %r0, 15; mul.wide.u32 %rd4, %r6, 8; add.u64 %rd4, %rd4, %rd0; setp.lt.u32 %p2, %r9, 16;
        @%p2 st.global.v2.u32 [%rd4], {%r6, %r5};",
        // Elements past the end, exchanged through shared memory.
        "@%p1 mov.u32 %r5, 1; shl.b32 %r6, %r0, 2; mov.u32 %r7, shared; add.u32 %r7, %r7, %r6;
        st.shared.u32 [%r7], %r5;
        bar.sync 0; ld.shared.u32 %r8, [%r7]; @%p1 st.global.u32 [%rd9], %r8;",
        // A carry, and the second result of a comparison.
        "add.cc.u32 %r6, %r0, 1; addc.u32 %r7, %r0, 0; sub.cc.u32 %r8, %r6, %r7; add.u32 %r8, %r8, %r7;
        st.global.u32 [%rd9], %r8; mad.lo.cc.u32 %r8, %r6, %r7, 1; st.global.u32 [%rd9], %r8;
        setp.lt.u32 %p4|%p5, %r0, 3; @%p5 bra OUT; OUT:",
    ] {
        run(body).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
    }
}

/// Lanes 20 to 31 have ended: lanes 4 to 15 shuffle from them.
#[test]
fn what_a_shuffle_takes_from_an_ended_lane_is_undefined() {
    let body = |mode: &str, rest: &str| {
        format!(
            "setp.ge.u32 %p2, %r0, 20; @%p2 exit; shfl.sync.{mode}.b32 %r6, %r0, 16, 31, 0xffffffff;
            add.u32 %r6, %r6, 1; {rest}"
        )
    };
    for (rest, what) in [
        ("st.global.u32 [%rd9], %r6;", "what is stored"),
        ("setp.eq.u32 %p3, %r6, 0; @%p3 bra OUT; OUT:", "the branch"),
        ("red.global.add.u32 [%rd0], %r6;", "the address or an operand"),
        // A lane passes it on.
        ("shfl.sync.down.b32 %r7, %r6, 0, 31, 0xfffff; st.global.u32 [%rd9], %r7;", "what is stored"),
    ] {
        let fault = run(&body("down", rest)).expect_err(rest);
        let FaultKind::Shuffle { what: found, .. } = fault.kind else { panic!("{fault}") };
        assert_eq!((found, fault.threads.len(), fault.code()), (what, 12, 719), "{fault}");
        assert_eq!(fault.threads[0], [4, 0, 0], "{fault}");
    }
    for rest in
        ["", "@%p1 st.global.u32 [%rd9], %r6;", "selp.u32 %r6, %r6, 0, %p1; st.global.u32 [%rd9], %r6;"]
    {
        run(&body("down", rest)).unwrap_or_else(|fault| panic!("{fault}\n{rest}"));
    }
}

#[test]
fn use_of_unwritten_local_memory_is_found() {
    let local =
        "mov.u64 %rd3, depot; cvta.local.u64 %rd4, %rd3; and.b32 %r4, %r0, 3; mul.wide.u32 %rd5, %r4, 4;
        add.u64 %rd5, %rd5, %rd3;";
    for (body, offset, threads) in [
        ("ld.local.u32 %r5, [depot+8]; st.global.u32 [%rd9], %r5;", 8, 32),
        ("ld.u32 %r5, [%rd4+4]; add.u32 %r5, %r5, 1; st.global.u32 [%rd9], %r5;", 4, 32),
        (
            "st.local.u32 [depot], 1; ld.local.v2.u32 {%r5, %r6}, [depot]; setp.eq.u32 %p2, %r6, 0;
            @%p2 bra OUT; OUT:",
            4,
            32,
        ),
        (
            "st.local.u32 [%rd5], 1; ld.local.u32 %r5, [depot]; add.u32 %r6, %r5, 1;
            st.global.u32 [%rd9], %r6;",
            0,
            24,
        ),
        ("@%p1 st.local.u64 [depot], %rd0; ld.local.u64 %rd6, [depot]; ld.global.u32 %r5, [%rd6];", 0, 28),
        // A copy of an undefined value is undefined.
        (
            "ld.local.u64 %rd6, [depot]; st.local.u64 [depot+8], %rd6; ld.local.u32 %r5, [depot+12];
            st.global.u32 [%rd9], %r5;",
            12,
            32,
        ),
    ] {
        let fault = run(&format!("{local} {body}")).expect_err(body);
        let FaultKind::Unwritten(access) = &fault.kind else { panic!("{fault}") };
        assert_eq!(
            (access.memory, access.action, access.address),
            (Memory::Local, Action::Read, offset),
            "{fault}"
        );
        assert_eq!((fault.threads.len(), fault.place.as_ref()), (threads, Some(&access.place)), "{fault}");
    }
    for body in [
        // Read and dropped; copied together with an unwritten part.
        "ld.local.u32 %r5, [depot];",
        "st.local.u8 [depot], 1; ld.local.u64 %rd6, [depot]; st.local.u64 [depot+8], %rd6;
        ld.local.u8 %r5, [depot+8];
        st.global.u32 [%rd9], %r5;",
        "st.local.u8 [depot], 1; ld.local.u32 %r5, [depot]; and.b32 %r5, %r5, 255;
        st.global.u32 [%rd9], %r5;",
        "st.local.u64 [depot], 1; ld.local.v2.u64 {%rd6, %rd7}, [depot]; mul.wide.u32 %rd8, %r0, 0;
        add.u64 %rd8, %rd8, %rd0; setp.eq.u32 %p2, %r9, 0; @%p2 st.global.v2.u64 [%rd8], {%rd6, %rd7};",
        "ld.local.u8 %r5, [depot]; st.global.u8 [%rd9], %r5;",
        "st.u32 [%rd4+4], %r0; ld.local.u32 %r5, [depot+4]; st.global.u32 [%rd9], %r5;",
        "st.local.u32 [%rd5], 1; ld.local.u32 %r5, [%rd5]; st.global.u32 [%rd9], %r5;",
        "ld.local.u32 %r5, [depot]; selp.u32 %r5, 1, %r5, %p1; @%p1 st.global.u32 [%rd9], %r5;",
    ] {
        run(&format!("{local} {body}")).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
    }
}

#[test]
fn local_memory_is_its_own_threads() {
    let run = |body: &str, blocks, threads| {
        let machine = Machine::new(&format!(
            ".local .align 8 .b8 depot[16]; mov.u64 %rd3, depot; cvta.local.u64 %rd3, %rd3;
            st.u64 [%rd3+8], %rd3;
            mov.u32 %r1, %ctaid.x; mov.u64 %rd4, shared;
            {body}"
        ));
        let words = machine.upload(&[0u64; 2]);
        machine.launch(blocks, threads, &[words]).map(drop)
    };
    // Thread 3 passes the address of its local memory to all through shared memory.
    let told = "setp.eq.u32 %p1, %r0, 3; @%p1 st.shared.u64 [shared], %rd3; bar.sync 0;
        ld.shared.u64 %rd5, [shared];";
    for (access, address) in [
        ("ld.u32 %r2, [%rd5+8];", 8),
        ("st.u32 [%rd5], 1;", 0),
        ("cvta.to.local.u64 %rd5, %rd5; ld.local.u32 %r2, [%rd5+12];", 12),
    ] {
        let fault = run(&format!("{told} {access}"), 2, 64).expect_err(access);
        let FaultKind::OtherThread { access, block, thread } = &fault.kind else { panic!("{fault}") };
        assert!(matches!(fault.threads[..], [[other, 0, 0]] if other != 3), "{fault}");
        assert_eq!((*block, *thread), ([0; 3], [3, 0, 0]), "{fault}");
        assert_eq!((access.address, access.memory), (address, Memory::Local), "{fault}");
        assert_eq!(fault.code(), 700);
        assert!(fault.to_string().contains("belongs to thread [3, 0, 0] of block [0, 0, 0]"), "{fault}");
    }
    // Thread 3 itself may use it.
    run(&format!("{told} setp.ne.u32 %p2, %r0, 3; @%p2 bra OUT; ld.u32 %r2, [%rd5+8]; OUT:"), 2, 64).unwrap();
    // Passed by a shuffle, and by another block.
    let fault = run(
        "mov.b64 {%r5, %r6}, %rd3; shfl.sync.idx.b32 %r5, %r5, 9, 31, 0xffffffff;
        shfl.sync.idx.b32 %r6, %r6, 9, 31, 0xffffffff; mov.b64 %rd5, {%r5, %r6}; st.u32 [%rd5+4], %r0;",
        1,
        32,
    )
    .unwrap_err();
    assert!(matches!(fault.kind, FaultKind::OtherThread { thread: [9, 0, 0], .. }), "{fault}");
    let left = "setp.ne.u32 %p1, %r1, 0; @%p1 bra READ; st.relaxed.gpu.global.u64 [%rd0], %rd3; bra OUT;
        READ: ld.relaxed.gpu.global.u64 %rd5, [%rd0]; ld.u32 %r2, [%rd5+8]; OUT:";
    let fault = run(left, 2, 1).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::OtherThread { block: [0, 0, 0], .. }), "{fault}");
    assert_eq!(fault.block, [1, 0, 0]);
    // A thread's own memory, in each block and warp, through every kind of address. Past its end is out of
    // bounds.
    let own =
        "ld.u64 %rd5, [%rd3+8]; st.u64 [%rd5], %rd5; cvta.to.local.u64 %rd6, %rd5; ld.local.u64 %rd7, [%rd6];
        isspacep.local %p1, %rd7; @!%p1 trap; isspacep.shared %p1, %rd7; @%p1 trap;
        cvt.u32.u64 %r7, %rd7; st.local.u32 [%r7+4], 5;";
    run(own, 3, 100).unwrap();
    for access in ["ld.u32 %r2, [%rd3+16];", "ld.u32 %r2, [%rd3+-4];"] {
        let fault = run(&format!("setp.ne.u32 %p1, %r0, 1; @%p1 bra OUT; {access} OUT:"), 2, 2).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{fault}");
    }
}

#[test]
fn constants_are_not_written() {
    let run = |body: &str| {
        let text = kernel(body).replace(
            ".extern .shared",
            ".const .align 8 .u32 seven[2] = {7, 7};\n\
             .global .align 8 .u32 eight[2] = {8, 8};\n.extern .shared",
        );
        let machine = Machine::new(&text);
        let words = machine.upload(&[0u32; 32]);
        machine.launch(1, 32, &[words]).map(drop)
    };
    let constant = "mov.u64 %rd3, seven; cvta.const.u64 %rd3, %rd3;";
    for (access, action) in [
        ("st.u32 [%rd3], 1;", Action::Write),
        ("st.global.v2.u32 [%rd3], {%r0, %r0};", Action::Write),
        ("st.relaxed.gpu.u32 [%rd3+4], 1;", Action::Atomic),
        ("atom.global.add.u32 %r1, [%rd3], 1;", Action::Atomic),
        ("red.add.u32 [%rd3], 1;", Action::Atomic),
        // One lane among valid ones.
        (
            "mul.wide.u32 %rd4, %r0, 4; add.u64 %rd4, %rd4, %rd0; setp.eq.u32 %p1, %r0, 9;
            selp.b64 %rd4, %rd3, %rd4, %p1;
            st.u32 [%rd4], 1;",
            Action::Write,
        ),
    ] {
        let fault = run(&format!("{constant} {access}")).expect_err(access);
        let FaultKind::ReadOnly(found) = &fault.kind else { panic!("{fault}") };
        assert_eq!((found.action, fault.code()), (action, 700), "{fault}");
        assert!(fault.to_string().contains("write to constant memory (`.const`)"), "{fault}");
    }
    for body in [
        "ld.const.u32 %r1, [seven+4]; ld.u32 %r2, [%rd3]; ld.global.nc.u32 %r2, [%rd3];",
        "mov.u64 %rd4, eight; st.global.u32 [%rd4], 3; red.global.add.u32 [%rd4+4], 1; mov.u64 %rd5, seven;",
    ] {
        run(&format!("{constant} {body}")).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
    }
}

#[test]
fn padding_is_no_unwritten_memory() {
    // Thread i writes the fields of struct { u8 a; u32 c; u64 d; u32 e; /* padding */ } i, and copies struct
    // i.
    let run = |copy: &str| {
        let mut machine = Machine::new(&format!(
            "mul.wide.u32 %rd3, %r0, 32; add.u64 %rd4, %rd0, %rd3; add.u64 %rd5, %rd1, %rd3;
            st.global.u8 [%rd4], 7; st.global.u32 [%rd4+4], %r0; st.global.u64 [%rd4+8], %rd3;
            st.global.u32 [%rd4+16], %r0;
            {copy}"
        ));
        let ended = |machine: &Machine| {
            let [from, to] = [(); 2].map(|()| machine.memory.allocate(32 * 32).unwrap());
            machine.launch(1, 32, &[from, to]).map(|_| machine.words(to, 256)[32 + 1])
        };
        let first = ended(&machine);
        machine.settings.seed = Some(1);
        assert_eq!(first.is_ok(), ended(&machine).is_ok(), "{copy}");
        first
    };
    let whole = |half: &str| {
        format!(
            "ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%rd4{half}]; st.global.v4.u32 [%rd5{half}], {{%r1, %r2, %r3, %r4}};"
        )
    };
    for copy in [
        whole("") + &whole("+16"),
        "ld.global.v2.u64 {%rd6, %rd7}, [%rd4]; st.global.v2.u64 [%rd5], {%rd6, %rd7};
        ld.global.v2.u64 {%rd6, %rd7}, [%rd4+16]; st.global.v2.u64 [%rd5+16], {%rd6, %rd7};"
            .to_owned(),
        // Fields alone.
        "ld.global.u32 %r1, [%rd4]; and.b32 %r1, %r1, 255; st.global.u32 [%rd5], %r1;
        ld.global.v2.u32 {%r1, %r2}, [%rd4+16]; st.global.u32 [%rd5+4], %r1;"
            .to_owned(),
    ] {
        assert_eq!(run(&copy), Ok(4), "{copy}");
    }
    // Padding by itself, a use of it, and memory of which nothing is written.
    for copy in [
        "ld.global.u32 %r1, [%rd4+20];",
        "ld.global.v2.u32 {%r1, %r2}, [%rd4+16]; st.global.u32 [%rd5], %r2;",
        "ld.global.v2.u32 {%r1, %r2}, [%rd4+16]; add.u32 %r1, %r1, %r2; st.global.u32 [%rd5], %r1;",
        "ld.global.v2.u32 {%r1, %r2}, [%rd4+16]; setp.eq.u32 %p2, %r2, 0; @%p2 bra OUT; OUT:",
        "ld.global.v2.u32 {%r1, %r2}, [%rd4+24];",
        "ld.global.v2.u32 {%r1, %r2}, [%rd5];",
    ] {
        let fault = run(copy).expect_err(copy);
        let FaultKind::Unwritten(access) = &fault.kind else { panic!("{fault}") };
        assert_eq!(access.memory, Memory::Global, "{fault}");
    }
}
