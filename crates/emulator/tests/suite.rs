//! Tests of the emulator that may run beside one another, in one program, so that little is linked.
//!
//! Programs apart are those of settings, faults and captures that concern a whole process: `devices` has
//! three devices, `no_peer_access` devices without peer access, `environment` sets variables, `faults` stops
//! the primary context, `graphs` captures streams in every mode, `prints` reads its own standard output,
//! `size` measures its memory, and `start` calls the driver before it is initialised.

mod counters;
mod hostile;
#[path = "instructions/main.rs"]
mod instructions;
mod kernels;
mod misuse;
mod modules;
mod notes;
mod nvcc;
mod rust;
mod shipped;
