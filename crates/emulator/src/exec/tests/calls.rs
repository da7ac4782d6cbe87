//! Calls through registers.

use super::Machine;
use crate::fault::{Fault, FaultKind};

/// Functions, and tables of them.
const HEAD: &str = ".version 8.3\n.target sm_90\n.address_size 64\n
    .extern .func (.param .b32 out) elsewhere(.param .b32 in);
    .func (.param .b32 out) twice(.param .b32 in) { .reg .b32 %r<2>; ld.param.b32 %r1, [in]; add.u32 %r1, %r1, %r1;
        st.param.b32 [out], %r1; ret; }
    .func (.param .b32 out) next(.param .b32 in) { .reg .b32 %r<2>; ld.param.b32 %r1, [in]; add.u32 %r1, %r1, 1;
        st.param.b32 [out], %r1; ret; }
    .func (.param .b64 out) wide(.param .b32 in) { ret; }
    .func (.reg .b32 %out) in_registers(.reg .b32 %in) { add.u32 %out, %in, 7; ret; }
    .func (.param .b32 out) again(.param .b32 in, .param .b64 f) {
        .reg .b64 %rd<2>; .reg .b32 %r<2>; .param .b32 given; .param .b32 back;
        ld.param.b32 %r1, [in]; st.param.b32 [given], %r1; ld.param.b64 %rd1, [f];
        one: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (back), %rd1, (given), one;
        ld.param.b32 %r1, [back]; add.u32 %r1, %r1, 100; st.param.b32 [out], %r1; ret; }
    .func (.param .b32 out) itself(.param .b32 in) {
        .reg .b64 %rd<2>; .param .b32 given; .param .b32 back;
        mov.u64 %rd1, itself; st.param.b32 [given], 1;
        one: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (back), %rd1, (given), one; ret; }
    .global .align 8 .u64 table[5] = {twice, next, wide, elsewhere, itself};
    .const .align 8 .u64 constants[3] = {next, twice, again};\n";

/// Runs a kernel with 64 threads: `%rd0` is its result's place, `%r0` the thread, `%r1` what it stores.
fn run(body: &str) -> Result<Vec<u32>, Box<Fault>> {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 a) {{ .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>;
        .param .b32 given; .param .b32 back; .param .b64 function;
        ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
        st.param.b32 [given], %r0; and.b32 %r2, %r0, 1; mul.wide.u32 %rd2, %r2, 8;
        {body}
        st.global.u32 [%rd0], %r1; ret; }}"
    );
    let mut results = Vec::new();
    for seed in [None, Some(1)] {
        let mut machine = Machine::new(&text);
        machine.settings.seed = seed;
        let out = machine.upload(&[77u32; 64]);
        machine.launch(1, 64, &[out])?;
        results.push(machine.words(out, 64));
    }
    assert_eq!(results[0], results[1]);
    Ok(results.swap_remove(0))
}

const CALL: &str = "one: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (back), %rd4, (given), one; ld.param.b32 %r1, [back];";

#[test]
fn functions_of_tables_are_called() {
    let twice_or_next = |i: u32| if i.is_multiple_of(2) { 2 * i } else { i + 1 };
    let expected: Vec<u32> = (0..64).map(twice_or_next).collect();
    let load = "mov.u64 %rd3, table; add.u64 %rd3, %rd3, %rd2; ld.global.u64 %rd4, [%rd3];";
    assert_eq!(run(&format!("{load}{CALL}")).unwrap(), expected);
    let generic =
        "mov.u64 %rd3, table; cvta.global.u64 %rd3, %rd3; add.u64 %rd3, %rd3, %rd2; ld.u64 %rd4, [%rd3];";
    assert_eq!(run(&format!("{generic}{CALL}")).unwrap(), expected);
    let by_name = "setp.eq.u32 %p1, %r2, 0; mov.u64 %rd4, next; @%p1 mov.u64 %rd4, twice;
        those: .calltargets next, twice; call (back), %rd4, (given), those; ld.param.b32 %r1, [back];";
    assert_eq!(run(by_name).unwrap(), expected);
    let constant = "xor.b64 %rd2, %rd2, 8; mov.u64 %rd3, constants; add.u64 %rd3, %rd3, %rd2;
        ld.const.u64 %rd4, [%rd3];";
    assert_eq!(run(&format!("{constant}{CALL}")).unwrap(), expected);
    // Only some threads call.
    let guarded = format!(
        "{load} mov.u32 %r1, 5; setp.lt.u32 %p1, %r0, 40; one: .callprototype (.param .b32 _) _ (.param .b32 _);
        @%p1 call (back), %rd4, (given), one; @%p1 ld.param.b32 %r1, [back];"
    );
    let some: Vec<u32> = (0..64).map(|i| if i < 40 { twice_or_next(i) } else { 5 }).collect();
    assert_eq!(run(&guarded).unwrap(), some);
}

#[test]
fn functions_call_functions_that_they_are_given() {
    let body = "ld.const.u64 %rd4, [constants+16]; mov.u64 %rd5, next; st.param.b64 [function], %rd5;
        two: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _);
        call (back), %rd4, (given, function), two; ld.param.b32 %r1, [back];";
    assert_eq!(run(body).unwrap(), (101..165).collect::<Vec<u32>>());
    let registers =
        "mov.u64 %rd4, in_registers; list: .calltargets in_registers; call (%r1), %rd4, (%r0), list;";
    assert_eq!(run(registers).unwrap(), (7..71).collect::<Vec<u32>>());
}

#[test]
fn calls_through_bad_pointers_are_faults() {
    for (load, wanted) in [
        ("mov.u64 %rd4, 0;", "the pointer is null"),
        ("mov.u64 %rd4, %rd0;", "no function is at address"),
        ("mov.u64 %rd4, twice+8;", "no function is at address"),
        ("ld.global.u64 %rd4, [table+16];", "`wide` has other parameters or results than the call"),
        ("ld.global.u64 %rd4, [table+24];", "`elsewhere` has no body"),
        ("ld.global.u64 %rd4, [table+32];", "`itself` calls itself; recursion is not supported"),
        // Only odd threads have a function.
        (
            "setp.eq.u32 %p1, %r2, 0; mov.u64 %rd4, next; @%p1 mov.u64 %rd4, 5;",
            "no function is at address 0x5",
        ),
    ] {
        let fault = run(&format!("{load}{CALL}")).unwrap_err();
        assert!(matches!(&fault.kind, FaultKind::Call(text) if text.contains(wanted)), "{load}: {fault}");
        assert!(fault.place.is_some() && fault.threads.len() == 1);
    }
    // The code of a function is no memory.
    let fault = run("mov.u64 %rd4, twice; ld.u32 %r1, [%rd4];").unwrap_err();
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{fault}");
}

#[test]
fn wrong_calls_do_not_load() {
    for (call, wanted) in [
        ("call (back), %rd4, (given);", "needs `.calltargets` or a `.callprototype`"),
        ("call (back), %rd4, (given), none;", "needs `.calltargets` or a `.callprototype`"),
        ("call (back), table, (given), none;", "`table` is neither a function nor a register"),
    ] {
        let text = format!(
            "{HEAD}.visible .entry k() {{ .reg .b64 %rd<9>; .param .b32 given; .param .b32 back; {call} ret; }}"
        );
        let error = crate::program::Program::decode(&crate::ptx::parse(&text).unwrap()).unwrap_err();
        assert!(error.message.contains(wanted), "{error}");
    }
}
