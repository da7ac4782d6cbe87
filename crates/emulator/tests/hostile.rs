//! Texts that ask for more than a machine has: each is refused with its reason, or runs, in little time and memory.

use emulator::exec::{self, Launch, Loaded};
use emulator::memory::Memory;
use emulator::program::Program;
use emulator::{Settings, ptx};
use std::time::{Duration, Instant};

/// Parses, decodes and launches; returns what went wrong.
fn run(text: &str) -> Result<(), String> {
    let module = ptx::parse(text).map_err(|error| error.to_string())?;
    let program = Program::decode(&module).map_err(|error| error.to_string())?;
    let memory = Memory::new(1 << 20);
    let loaded = Loaded::new(&program, &memory).ok_or("no memory for the variables")?;
    let settings = Settings { instruction_limit: 1000, ..Settings::default() };
    for kernel in program.kernels() {
        let params = vec![0; kernel.param_bytes];
        let launch = Launch { grid: [1; 3], block: [64, 1, 1], dynamic_shared: 0, params: &params };
        exec::launch(&program, &loaded, kernel, &launch, &memory, &settings)
            .map_err(|fault| fault.to_string())?;
    }
    Ok(())
}

/// A module around a kernel's body and what stands before it.
fn module(before: &str, body: &str) -> String {
    format!(".version 8.0\n.target sm_90\n.address_size 64\n{before}\n.visible .entry k() {{ {body} ret; }}")
}

/// Functions that call the next one twice: the last is inlined 2^depth times.
fn doubling(depth: usize) -> String {
    let function = |level: usize| {
        let next = level + 1;
        format!(
            ".func f{level}() {{ .reg .pred %p<3>; .reg .b64 %r<9>; mov.b64 %r1, {level}; setp.eq.u64 %p1, %r1, 3; \
             @%p1 bra L; add.u64 %r2, %r1, %r1; L: call f{next}, (); call f{next}, (); ret; }}\n"
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
        run(&text).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {text:.200}", start.elapsed());
    }
}
