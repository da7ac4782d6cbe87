//! Results and faults of `vprintf` and `__assertfail`. The output is tested in `tests/prints.rs`.

use super::{Machine, kernel};
use crate::fault::{FaultKind, Memory};

/// A module whose kernel calls `vprintf` with the addresses in `%rd10` and `%rd11`, and stores the result.
fn printing(addresses: &str) -> String {
    let body = format!(
        "{addresses}
        {{ .param .b64 format; st.param.b64 [format], %rd10; .param .b64 arguments;
        st.param.b64 [arguments+0], %rd11;
        .param .b32 count; call.uni (count), vprintf, (format, arguments); ld.param.b32 %r2, [count]; }}
        shl.b32 %r3, %r0, 2; cvt.u64.u32 %rd3, %r3; add.u64 %rd3, %rd0, %rd3; st.global.u32 [%rd3], %r2;"
    );
    kernel(&body).replacen(
        ".visible",
        ".extern .func (.param .b32 result) vprintf (.param .b64 _, .param .b64 _);\n\
         .global .align 1 .b8 texts[] = {37, 115, 10, 0, 37, 37};\n.visible",
        1,
    )
}

#[test]
fn printf_gives_back_how_many_arguments_it_took() {
    // Even lanes pass no format, odd lanes print a text.
    let machine = Machine::new(&printing(
        ".local .align 8 .b64 given; cvta.local.u64 %rd11, 0; mov.u64 %rd12, texts;
        cvta.global.u64 %rd12, %rd12;
        mov.u64 %rd11, given; cvta.local.u64 %rd11, %rd11; st.u64 [%rd11], %rd1;
        and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 0; selp.b64 %rd10, 0, %rd12, %p0;",
    ));
    let (out, text) = (machine.upload(&[77u32; 32]), machine.upload(b"printed by a test\0"));
    let counters = machine.launch(1, 32, &[out, text]).unwrap();
    let expected: Vec<u32> = (0..32).map(|lane| if lane % 2 == 0 { u32::MAX } else { 1 }).collect();
    assert_eq!(machine.words(out, 32), expected);
    // The texts that `printf` reads do not count.
    assert_eq!((counters.global_load_requests, counters.global_store_requests), (0, 1));
}

#[test]
fn texts_and_arguments_of_printf_are_checked() {
    let fault = |addresses: &str, text: u64| {
        let machine = Machine::new(&printing(addresses));
        let out = machine.upload(&[77u32; 32]);
        machine.launch(1, 1, &[out, text]).unwrap_err()
    };
    let format = "mov.u64 %rd10, texts; cvta.global.u64 %rd10, %rd10;";
    // Missing arguments; a text at address 0; a format without a zero byte.
    for (addresses, expected) in [
        (format!("{format} mov.u64 %rd11, 0;"), 0),
        (
            format!(
                "{format} st.shared.u64 [shared], 24; mov.u64 %rd11, shared; cvta.shared.u64 %rd11, %rd11;"
            ),
            24,
        ),
        ("mov.u64 %rd10, texts+4; mov.u64 %rd11, 0;".to_owned(), 6),
    ] {
        let fault = fault(&addresses, 0);
        let FaultKind::OutOfBounds { access, .. } = &fault.kind else { panic!("{fault}") };
        assert_eq!(access.memory, Memory::Global, "{fault}");
        assert_eq!(access.address % 16, expected % 16, "{fault}");
    }
    // `printf` reads a text that another thread writes.
    let machine = Machine::new(&printing(&format!(
        "{format} st.shared.u64 [shared], %rd1; mov.u64 %rd11, shared; cvta.shared.u64 %rd11, %rd11;
        setp.ne.u32 %p1, %r0, 0; @%p1 st.global.u8 [%rd1], 65;"
    )));
    let (out, text) = (machine.upload(&[77u32; 64]), machine.upload(b"text\0"));
    let fault = machine.launch(1, 2, &[out, text]).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}");
}

#[test]
fn an_assertion_ends_the_launch_and_names_all_its_threads() {
    let text = kernel(
        "mov.u64 %rd10, texts; setp.gt.u32 %p1, %r0, 5; @%p1 bra OUT;
        call.uni __assertfail, (%rd10, 0, 12, %rd10, 1);
        OUT:",
    );
    let text = text.replacen(
        ".visible",
        ".extern .func __assertfail (.param .b64 a, .param .b64 b, \
         .param .b32 c, .param .b64 d, .param .b64 e) .noreturn;\n\
         .global .align 1 .b8 texts[] = {105, 62, 53, 0};\n.visible",
        1,
    );
    let fault = Machine::new(&text).launch(1, 32, &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Assert(":12: i>5: Assertion `i>5` failed".to_owned()));
    assert_eq!((fault.threads.len(), fault.code()), (6, 710));
    // No assertion fails. A function that only has the same name is not supported.
    Machine::new(&text.replace("%r0, 5", "%r0, -1").replace("gt.u32", "gt.s32")).launch(1, 32, &[]).unwrap();
    let other =
        text.replace("(%rd10, 0, 12, %rd10, 1)", "(%rd10, 0, 12, %rd10)").replace(", .param .b64 e)", ")");
    let module = crate::ptx::parse(&other).unwrap();
    let error = crate::program::Program::decode(&module).unwrap_err();
    assert!(error.unknown && error.message.contains("`__assertfail` has no body"), "{error}");
}
