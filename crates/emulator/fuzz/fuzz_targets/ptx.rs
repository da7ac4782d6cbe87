//! Checks that no text crashes the emulator.
//!
//! Parses and decodes each text, then runs its kernels on little memory for a few instructions. Run it from
//! `crates/emulator`, with nightly Rust and cargo-fuzz:
//!
//! ```text
//! cargo +nightly fuzz run ptx fuzz/corpus/ptx ../../ptx
//! ```
#![no_main]

use emulator::exec::{self, Launch, Loaded};
use emulator::memory::Memory;
use emulator::program::Program;
use emulator::{Settings, ptx};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(module) = ptx::parse(text) else { return };
    let Ok(program) = Program::decode(&module) else { return };
    let memory = Memory::new(1 << 20);
    let Some(loaded) = Loaded::new(&program, &memory) else { return };
    let Some(data) = memory.allocate(4096) else { return };
    for kernel in program.kernels() {
        let pointers = data.to_ne_bytes().into_iter().cycle();
        let params: Vec<u8> = pointers.take(kernel.param_bytes).collect();
        let launch = Launch { grid: [2, 1, 1], block: [40, 1, 1], dynamic_shared: 64, resident: exec::MOST_RESIDENT, params: &params };
        for seed in [None, Some(1)] {
            let settings = Settings { seed, instruction_limit: 1000, ..Settings::default() };
            let _ = exec::launch(&program, &loaded, kernel, &launch, &memory, &settings);
        }
    }
});
