//! Texts that ask for more than a machine has. Each is refused with a reason or runs, in little time and
//! memory.

use crate::shipped;
use emulator::exec::{self, Launch, Loaded};
use emulator::memory::Memory;
use emulator::program::Program;
use emulator::{Settings, ptx};
use std::time::{Duration, Instant};

/// Parses, decodes and launches a text; returns the error.
fn run(text: &str) -> Result<(), String> {
    let module = ptx::parse(text).map_err(|error| error.to_string())?;
    let program = Program::decode(&module).map_err(|error| error.to_string())?;
    let memory = Memory::new(1 << 20);
    let loaded = Loaded::new(&program, &memory).ok_or("no memory for the variables")?;
    let settings = Settings { instruction_limit: 100_000, ..Settings::default() };
    for kernel in program.kernels() {
        let params = vec![0; kernel.param_bytes];
        let launch = Launch {
            grid: [1; 3],
            block: [64, 1, 1],
            dynamic_shared: 0,
            resident: exec::MOST_RESIDENT,
            workspace: 0,
            params: &params,
        };
        exec::launch(&program, &loaded, kernel, &launch, &memory, &settings)
            .map_err(|fault| fault.to_string())?;
    }
    Ok(())
}

/// Returns a module with a kernel of this body, after the text `before`.
fn module(before: &str, body: &str) -> String {
    format!(".version 8.0\n.target sm_90\n.address_size 64\n{before}\n.visible .entry k() {{ {body} ret; }}")
}

/// Returns functions that each call the next one twice, so that the last is inlined 2^depth times.
fn doubling(depth: usize) -> String {
    let function = |level: usize| {
        let next = level + 1;
        format!(
            ".func f{level}() {{ .reg .pred %p<3>; .reg .b64 %r<9>; mov.b64 %r1, {level}; \
             setp.eq.u64 %p1, %r1, 3; @%p1 bra L; add.u64 %r2, %r1, %r1; \
             L: call f{next}, (); call f{next}, (); ret; }}\n"
        )
    };
    format!(".func f{depth}() {{ ret; }}\n") + &(0..depth).rev().map(function).collect::<String>()
}

#[test]
fn too_much_is_refused() {
    let many = |count: usize, item: fn(usize) -> String| (0..count).map(item).collect::<String>();
    for (text, why) in [
        (module("", ".shared .b8 x[4294967295]; .reg .b32 %r; mov.u32 %r, x;"), "too large"),
        (module("", ".shared .b8 x[16000000]; .reg .b32 %r; mov.u32 %r, x;"), "bytes of shared memory"),
        (module("", ".local .b8 x[600000]; .reg .b64 %r; mov.u64 %r, x;"), "a thread has 524288"),
        (
            module(
                "",
                &(".reg .b64 %r<100000>;".to_owned() + &many(100_000, |r| format!("mov.b64 %r{r}, {r};"))),
            ),
            "a thread has 524288",
        ),
        (module(".global .b8 x[1099511627775];", ""), "no memory for the variables"),
        (module(".global .b8 x[4294967295][4294967295][4294967295];", ""), "2⁶⁴"),
        (module(".global .u32 x; .global .u32 x;", ""), "defined twice"),
        (module(&doubling(60), "call f0, ();"), "too many"),
        (
            module(".func f() { call g, (); ret; } .func g() { call f, (); ret; }", "call f, ();"),
            "calls itself",
        ),
        (module("", &("{".repeat(100_000) + &"}".repeat(100_000))), "nested"),
        (
            module(
                "",
                &format!(".reg .b32 %r; ld.v4.b32 {{{}}}, [0];", many(100_000, |_| "%r,".to_owned()) + "%r"),
            ),
            "4 values",
        ),
        (module("", "L: bra L;"), "no end"),
    ] {
        let start = Instant::now();
        let error = run(&text).expect_err(why);
        assert!(error.contains(why), "{error}, not: {why}");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {why}", start.elapsed());
    }
}

#[test]
fn much_is_taken() {
    let many = |count: usize, item: fn(usize) -> String| (0..count).map(item).collect::<String>();
    for text in [
        module("", ".reg .b64 %r<1048576>; .reg .b32 %s<1048576>; mov.b64 %r9, 5;"),
        module(&doubling(6), "call f0, ();"),
        module(&many(20_000, |x| format!(".global .u64 x{x} = x{};", x.max(1) - 1)), ""),
        module(&format!(".global .b8 x[500000] = {{{}1}};", "1,".repeat(499_999)), ""),
        module("", &many(500, |label| format!("L{label}: bra L{};", label + 1))).replace("ret", "L500: ret"),
    ] {
        let start = Instant::now();
        run(&text).unwrap_or_else(|error| panic!("{error}: {text:.200}"));
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {text:.200}", start.elapsed());
    }
}

/// Runs instructions with too few, too many and unsuitable operands.
///
/// Tries each instruction of the shipped kernels, and others with unusual operands.
#[test]
fn operands_that_do_not_fit_are_refused() {
    let texts = shipped::kernels().into_values();
    let opcode = |line: &str| {
        let line = line.trim().trim_end_matches(';');
        let line = if line.starts_with('@') { line.split_once(char::is_whitespace)?.1 } else { line };
        let word = line.split_whitespace().next()?;
        word.starts_with(|first: char| first.is_ascii_lowercase()).then(|| word.to_owned())
    };
    let mut opcodes: std::collections::BTreeSet<String> =
        texts.flat_map(|text| text.lines().filter_map(opcode).collect::<Vec<_>>()).collect();
    assert!(opcodes.len() > 100, "{}", opcodes.len());
    let others = "add.cc.u32 addc.cc.u32 addc.u64 sub.cc.s32 subc.u32 mad.lo.cc.u32 madc.hi.u32 \
        set.eq.u32.f32 setp.lt.and.s32 lop3.b32 prmt.b32 shf.l.wrap.b32 bfi.b32 dp4a.u32.u32 mov.b64 mov.b128 \
        cvta.to.shared.u64 isspacep.global brx.idx call call.uni bar.sync bar.arrive bar.red.popc.u32 \
        bar.red.and.pred barrier.sync.aligned bar.warp.sync shfl.sync.idx.b32 vote.sync.ballot.b32 \
        match.all.sync.b32 redux.sync.add.s32 elect.sync activemask.b32 atom.global.cas.b32 \
        atom.shared.exch.b64 red.global.add.f32 ld.global.v4.u32 st.shared.v2.u64 ld.param.u64 \
        fence.acq_rel.gpu membar.gl trap brkpt exit nanosleep.u32 cvt.rn.f16x2.f32 min.f32 \
        testp.finite.f32 slct.s32.f32 selp.b32 tex sust prefetch.global.L1";
    opcodes.extend(others.split_whitespace().map(str::to_owned));
    let kinds = [
        "%r1",
        "%d1",
        "%p1",
        "!%p1",
        "7",
        "0f3F800000",
        "[%d1]",
        "[%r1+4]",
        "{%r1, %r2}",
        "%p1|%p2",
        "%r1|%p1",
        "_",
        "LABEL",
        "(%r1)",
        "%tid.x",
    ];
    for opcode in opcodes {
        for count in 0..10 {
            for kind in kinds {
                for first in ["%r2", "%d2", "%p3", kind] {
                    let operands: Vec<&str> = [first].into_iter().chain([kind; 9]).take(count).collect();
                    let body = format!(
                        ".reg .b32 %r<4>; .reg .b64 %d<4>; .reg .pred %p<4>; {opcode} {}; LABEL:",
                        operands.join(", ")
                    );
                    // It may run or be refused, but must not panic.
                    let _ = run(&module("", &body));
                }
            }
        }
    }
}
