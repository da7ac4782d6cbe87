//! No text brings the parser down: `cargo +nightly fuzz run ptx fuzz/corpus/ptx ../../ptx`, from `crates/emulator`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = emulator::ptx::parse(text);
});
