//! Branches, calls, barriers and collectives.

use super::{Machine, kernel};

/// Runs a body with `threads` threads and returns each thread's `%r9`.
fn results(body: &str, threads: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for seed in [None, Some(5)] {
        let mut machine = Machine::new(&format!(
            "{body}
            mul.wide.u32 %rd9, %r0, 4; add.u64 %rd9, %rd9, %rd0; st.global.u32 [%rd9], %r9;"
        ));
        machine.settings.seed = seed;
        let out = machine.memory.allocate(4 * u64::from(threads)).unwrap();
        machine.launch(1, threads, &[out]).unwrap_or_else(|fault| panic!("{fault}"));
        all.push(machine.words(out, threads as usize));
    }
    assert_eq!(all[0], all[1]);
    all.remove(0)
}

#[test]
fn diverged_lanes_meet_again() {
    // Collatz steps: each lane has its own number of iterations, with an `if` in the loop.
    let body = "add.u32 %r1, %r0, 1; mov.u32 %r9, 0;
        LOOP: setp.eq.u32 %p1, %r1, 1; @%p1 bra DONE;
        and.b32 %r2, %r1, 1; setp.eq.u32 %p2, %r2, 0; @%p2 bra EVEN;
        mad.lo.u32 %r1, %r1, 3, 1; bra.uni NEXT;
        EVEN: shr.u32 %r1, %r1, 1;
        NEXT: add.u32 %r9, %r9, 1; bra LOOP;
        DONE: activemask.b32 %r3; setp.ne.u32 %p3, %r3, 0xffffffff; @%p3 trap;";
    let steps = |n: u32| {
        std::iter::successors(Some(n), |&n| (n != 1).then(|| if n % 2 == 0 { n / 2 } else { 3 * n + 1 }))
            .count()
            - 1
    };
    let expected: Vec<u32> = (1..=64).map(|n| steps(n) as u32).collect();
    assert_eq!(results(body, 64), expected);
}

#[test]
fn early_returns_leave_the_others_running() {
    let body = "mov.u32 %r9, 1; setp.eq.u32 %p1, %r0, 40; @%p1 bra OUT;
        vote.sync.ballot.b32 %r9, 1, 0xffffffff;
        OUT:";
    // Lane 8 of the second warp exits, and the others do not wait for it.
    let found = results(body, 64);
    assert_eq!((found[0], found[39], found[40], found[63]), (u32::MAX, 0xffff_feff, 1, 0xffff_feff));
}

#[test]
fn a_spin_lock_between_lanes_of_a_warp_ends() {
    let body = "mov.u32 %r9, 0;
        AGAIN: atom.acquire.gpu.global.cas.b32 %r1, [%rd1], 0, 1;
        setp.ne.u32 %p1, %r1, 0; @%p1 bra AGAIN;
        ld.relaxed.gpu.global.u32 %r2, [%rd1+4]; add.u32 %r2, %r2, 1; st.relaxed.gpu.global.u32 [%rd1+4], %r2;
        atom.release.gpu.global.exch.b32 %r1, [%rd1], 0;";
    let machine = Machine::new(body);
    let lock = machine.upload(&[0u32, 0]);
    machine.launch(2, 8, &[0, lock]).unwrap();
    assert_eq!(machine.words(lock, 2), [0, 16]);
}

#[test]
fn switches_go_where_their_index_says() {
    let body = "rem.u32 %r1, %r0, 3;
        ts: .branchtargets A, B, C;
        brx.idx %r1, ts;
        A: mov.u32 %r9, 10; bra E;
        B: mov.u32 %r9, 20; bra E;
        C: mov.u32 %r9, 30;
        E: vote.sync.ballot.b32 %r2, 1, 0xffffffff; and.b32 %r2, %r2, 1; add.u32 %r9, %r9, %r2;";
    let expected: Vec<u32> = (0..32).map(|thread| [11, 21, 31][thread % 3]).collect();
    assert_eq!(results(body, 32), expected);
}

/// LLVM gives the first list of each function the same name.
#[test]
fn functions_have_their_own_lists_of_targets() {
    let switch = |first: u32, after: &str| {
        format!(
            "ts: .branchtargets A{first}, B{first};
            brx.idx %r1, ts;
            A{first}: mov.u32 %r9, {first}; {after}
            B{first}: mov.u32 %r9, {}; {after}",
            first + 1
        )
    };
    let function = format!(
        ".func (.reg .u32 out) chosen(.reg .u32 %r1) {{ .reg .b32 %r9; {} }}\n",
        switch(40, "mov.u32 out, %r9; ret;")
    );
    let text = kernel(&format!(
        "and.b32 %r1, %r0, 1; {} E: call (%r8), chosen, (%r1); add.u32 %r9, %r9, %r8;
        mul.wide.u32 %rd9, %r0, 4; add.u64 %rd9, %rd9, %rd0; st.global.u32 [%rd9], %r9;",
        switch(10, "bra E;")
    ));
    let machine = Machine::new(&text.replace(".visible", &format!("{function}.visible")));
    let out = machine.memory.allocate(128).unwrap();
    machine.launch(1, 32, &[out]).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(machine.words(out, 32), (0..32).map(|thread| [50, 52][thread % 2]).collect::<Vec<_>>());
}

#[test]
fn calls_pass_parameters_and_results() {
    let functions = ".func (.param .b32 out) twice(.param .b32 in) {
            .reg .b32 %r<3>;
            ld.param.b32 %r1, [in]; add.u32 %r2, %r1, %r1; st.param.b32 [out], %r2; ret;
        }
        .func (.param .b32 out) wide(.param .align 8 .b8 in[16], .param .b64 more) {
            .reg .b32 %r<3>; .reg .b64 %rd<4>; .reg .pred %p<2>;
            ld.param.b64 %rd1, [in+8]; ld.param.b64 %rd2, [more];
            add.u64 %rd3, %rd1, %rd2; cvt.u32.u64 %r1, %rd3;
            setp.lt.u32 %p1, %r1, 20;
            @%p1 bra SMALL;
            st.param.b32 [out], 99; ret;
            SMALL:
            { .param .b32 p; .param .b32 q; st.param.b32 [p], %r1; call.uni (q), twice, (p);
            ld.param.b32 %r2, [q]; }
            st.param.b32 [out], %r2; ret;
        }
        .func (.reg .u32 out) registers(.reg .u32 a, .reg .u32 b) { sub.u32 out, a, b; ret; }\n";
    let body = "cvt.u64.u32 %rd3, %r0;
        { .param .align 8 .b8 p0[16]; .param .b64 p1; .param .b32 q;
          st.param.b64 [p0+8], %rd3; st.param.b64 [p1], 4;
          call.uni (q), wide, (p0, p1); ld.param.b32 %r8, [q]; }
        call (%r9), registers, (%r8, 1);";
    let text = kernel(&format!(
        "{body} mul.wide.u32 %rd9, %r0, 4; add.u64 %rd9, %rd9, %rd0; st.global.u32 [%rd9], %r9;"
    ));
    let machine = Machine::new(&text.replace(".visible", &format!("{functions}.visible")));
    let out = machine.memory.allocate(128).unwrap();
    machine.launch(1, 32, &[out]).unwrap_or_else(|fault| panic!("{fault}"));
    let expected: Vec<u32> = (0..32).map(|t| if t + 4 < 20 { 2 * (t + 4) - 1 } else { 98 }).collect();
    assert_eq!(machine.words(out, 32), expected);
}

#[test]
fn shared_arrays_of_one_name_are_apart() {
    let body = "shl.b32 %r1, %r0, 2;
        { .shared .align 16 .b8 array[128]; mov.u32 %r2, array; }
        { .shared .align 16 .b8 array[128]; mov.u32 %r3, array; }
        mov.u32 %r4, dynamic;
        add.u32 %r2, %r2, %r1; add.u32 %r3, %r3, %r1; add.u32 %r4, %r4, %r1;
        st.shared.u32 [%r2], 1; st.shared.u32 [%r3], 20; st.shared.u32 [%r4], 300;
        ld.shared.u32 %r5, [%r2]; ld.shared.u32 %r6, [%r3]; ld.shared.u32 %r7, [%r4];
        add.u32 %r9, %r5, %r6; add.u32 %r9, %r9, %r7;";
    assert_eq!(results(body, 32), [321; 32]);
}

#[test]
fn generic_addresses_reach_every_memory() {
    let body = ".local .align 8 .b8 depot[16];
        mov.u64 %rd3, depot; cvta.local.u64 %rd3, %rd3;
        mov.u64 %rd4, shared; cvta.shared.u64 %rd4, %rd4; mul.wide.u32 %rd5, %r0, 4; add.u64 %rd4, %rd4, %rd5;
        add.u64 %rd6, %rd0, %rd5;
        st.u32 [%rd3+4], %r0; st.u32 [%rd4], %r0; st.u32 [%rd6], %r0;
        // Odd lanes load from shared memory, even ones from local.
        and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 1; add.u64 %rd7, %rd3, 4; selp.b64 %rd7, %rd4, %rd7, %p1;
        ld.u32 %r2, [%rd7]; ld.u32 %r3, [%rd6]; add.u32 %r9, %r2, %r3;
        isspacep.shared %p2, %rd7; @!%p2 add.u32 %r9, %r9, 1000;
        isspacep.global %p3, %rd6; @!%p3 trap;
        isspacep.local %p4, %rd3; @!%p4 trap;";
    let expected: Vec<u32> = (0..32).map(|t| 2 * t + if t % 2 == 1 { 0 } else { 1000 }).collect();
    assert_eq!(results(body, 32), expected);
}

#[test]
fn module_variables_hold_their_values() {
    let text = kernel(
        "mov.u64 %rd3, table; mul.wide.u32 %rd4, %r0, 2; add.u64 %rd3, %rd3, %rd4; ld.global.u16 %r1, [%rd3];
        ld.const.u32 %r2, [factor]; ld.global.u64 %rd5, [pointer]; ld.u16 %r3, [%rd5];
        mad.lo.u32 %r9, %r1, %r2, %r3;
        mul.wide.u32 %rd9, %r0, 4; add.u64 %rd9, %rd9, %rd0; st.global.u32 [%rd9], %r9;",
    )
    .replace(
        ".visible",
        ".global .align 2 .u16 table[4] = {1, 2, 65535};\n.const .u32 factor = 10;\n\
         .global .align 8 .u64 pointer = generic(table)+2;\n.visible",
    );
    let machine = Machine::new(&text);
    let out = machine.memory.allocate(16).unwrap();
    machine.launch(1, 4, &[out]).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(machine.words(out, 4), [12, 22, 655_352, 2]);
}

#[test]
fn barriers_reduce_and_let_part_of_a_block_pass() {
    let body = "setp.lt.u32 %p1, %r0, 10;
        bar.red.popc.u32 %r1, 0, %p1;
        bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, !%p1;
        selp.u32 %r2, 100, 0, %p2; selp.u32 %r3, 1000, 0, %p3;
        add.u32 %r9, %r1, %r2; add.u32 %r9, %r9, %r3;
        mov.u32 %r5, shared;
        setp.ge.u32 %p4, %r0, 32; @%p4 bra PRODUCE;
        bar.sync 1, 64; ld.shared.u32 %r6, [%r5]; add.u32 %r9, %r9, %r6; bra END;
        PRODUCE: setp.ge.u32 %p5, %r0, 64; @%p5 bra END;
        setp.eq.u32 %p6, %r0, 32; @%p6 st.shared.u32 [%r5], 7; bar.arrive 1, 64;
        END:";
    let expected: Vec<u32> = (0..96).map(|t| 1010 + if t < 32 { 7 } else { 0 }).collect();
    assert_eq!(results(body, 96), expected);
}

#[test]
fn a_barrier_that_is_not_aligned_lets_paths_wait() {
    let body = "mov.u32 %r5, shared; shl.b32 %r1, %r0, 2; add.u32 %r6, %r5, %r1; st.shared.u32 [%r6], %r0;
        setp.lt.u32 %p1, %r0, 16; @%p1 bra A; barrier.sync 0; bra B; A: barrier.sync 0; B:
        xor.b32 %r2, %r1, 124; add.u32 %r2, %r2, %r5; ld.shared.u32 %r9, [%r2];";
    let expected: Vec<u32> = (0..32).map(|t| 31 - t).collect();
    assert_eq!(results(body, 32), expected);
}

#[test]
fn warps_vote_match_and_reduce() {
    let body = "and.b32 %r1, %r0, 3; setp.eq.u32 %p1, %r1, 0;
        vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p1, -1;
        vote.sync.ballot.b32 %r2, !%p1, -1;
        match.any.sync.b32 %r3, %r1, -1;
        match.all.sync.b32 %r4|%p5, %r1, -1;
        redux.sync.add.s32 %r5, %r0, -1; redux.sync.max.s32 %r6, %r1, -1;
        setp.ne.u32 %p6, %r2, 0xeeeeeeee; @%p6 trap;
        mov.u32 %r7, 0x11111111; shl.b32 %r7, %r7, %r1; setp.ne.u32 %p6, %r3, %r7; @%p6 trap;
        @%p5 trap; @%p3 trap; @%p4 trap; @!%p2 trap; setp.ne.u32 %p6, %r4, 0; @%p6 trap;
        add.u32 %r9, %r5, %r6;";
    assert_eq!(results(body, 32), [499; 32]);
}

#[test]
fn lanes_on_different_paths_shuffle_together() {
    // Both sides of the branch meet at the shuffle after it, and at a warp barrier inside it.
    let body = "setp.lt.u32 %p1, %r0, 16; @%p1 bra A;
        mov.u32 %r1, 5; bar.warp.sync 0xffffffff; bra B;
        A: mov.u32 %r1, 6; bar.warp.sync 0xffffffff;
        B: shfl.sync.bfly.b32 %r9|%p2, %r1, 16, 31, 0xffffffff; @!%p2 trap;";
    let expected: Vec<u32> = (0..32).map(|t| if t < 16 { 5 } else { 6 }).collect();
    assert_eq!(results(body, 32), expected);
}

#[test]
fn special_registers_tell_where_a_thread_is() {
    let body = "mov.u32 %r1, %laneid; mov.u32 %r2, %warpid; mov.u32 %r3, %ntid.x; mov.u32 %r4, %lanemask_lt;
        popc.b32 %r4, %r4; setp.ne.u32 %p1, %r4, %r1; @%p1 trap;
        mov.u32 %r5, %clock; mov.u32 %r6, %clock; setp.ge.u32 %p1, %r5, %r6; @%p1 trap;
        mad.lo.u32 %r9, %r2, 32, %r1; mad.lo.u32 %r9, %r3, 1000, %r9;";
    let expected: Vec<u32> = (0..40).map(|t| 40_000 + t).collect();
    assert_eq!(results(body, 40), expected);
}

#[test]
fn unsupported_code_is_an_error_with_its_line() {
    for (body, text) in [
        ("frob.u32 %r1, %r2;", "`frob.u32` is not a supported instruction"),
        ("add.q32 %r1, %r2, %r3;", "`add.q32` is not a supported instruction"),
        ("add.rz.u32 %r1, %r2, %r3;", "`add.rz.u32` is not a supported instruction"),
        ("mul.u32 %r1, %r2, %r3;", "`mul.u32` is not a supported instruction"),
        ("add.u32 %r1, %rd2, %r3;", "`%rd2` is a Double register where Word is needed"),
        ("setp.lt.f16 %p1|%p2, %h1, %h2;", "no second result"),
        ("add.u32 %r1, %r2;", "`add` does not have 2 operands"),
        ("bra NOWHERE;", "`NOWHERE` is not declared"),
        ("mov.u32 %r99, 0;", "`%r99` is not declared"),
        ("ld.global.b128 %rd1, [%rd0];", "`ld.global.b128` is not a supported instruction"),
        ("ld.global.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [%rd0];", "a vector of 256 bits"),
        ("shfl.down.b32 %r1, %r2, 1, 31;", "`shfl.down.b32` is not a supported instruction"),
        ("call.uni nothing, (%r1);", "`nothing` is neither a function nor a register"),
        ("atom.global.add.s16 %h1, [%rd0], 1;", "is not a supported instruction"),
        ("cvt.f32.s32 %r1, %r2;", "`cvt.f32.s32` is not a supported instruction"),
    ] {
        let module = crate::ptx::parse(&kernel(body)).unwrap();
        let error = crate::program::Program::decode(&module).expect_err(body);
        assert!(error.message.contains(text), "{body}: {error}");
        assert_eq!(error.line, 16, "{body}: {error}");
    }
}

/// What one kernel of a module needs and the emulator does not have keeps no other from running.
#[test]
fn what_cannot_run_fails_in_its_own_kernel() {
    let head = ".version 8.3\n.target sm_90\n.address_size 64\n\
        .func (.param .u32 out) twice(.param .u32 in) { ret; }\n\
        .func (.param .u32 out) thrice(.param .u32 in) { ret; }\n\
        .global .align 8 .u64 table[2] = {twice, thrice};\n.global .texref image;\n.global .surfref surface;\n\
        .global .samplerref sampler = { addr_mode_0 = clamp_to_border, force_unnormalized_coords = 1 };\n\
        .global .texref other = { width = 16 };\n";
    let good = ".visible .entry good() { ret; }\n";
    for (body, text) in [
        (".reg .b128 %q<3>;", "registers of the type of `%q` are not supported"),
        (
            ".reg .b32 %r<9>; tex.1d.v4.s32.s32 {%r1, %r2, %r3, %r4}, [image, {%r5}];",
            "`tex.1d.v4.s32.s32` is not a supported instruction",
        ),
        (
            ".reg .b32 %r<9>; tex.1d.v4.s32.s32 {%r1, %r2, %r3, %r4}, [image, sampler, {%r5}];",
            "`tex.1d.v4.s32.s32` is not a supported instruction",
        ),
    ] {
        let text_of_module = format!("{head}.visible .entry bad() {{ {body} ret; }}\n{good}");
        let module = crate::ptx::parse(&text_of_module).unwrap_or_else(|error| panic!("{error}\n{body}"));
        let program =
            crate::program::Program::decode(&module).unwrap_or_else(|error| panic!("{error}\n{body}"));
        let unknown = program.kernel("bad").unwrap().unknown.as_ref().expect(body);
        assert!(unknown.message.contains(text), "{body}: {unknown}");
        assert!(program.kernel("good").unwrap().unknown.is_none());
    }
}
