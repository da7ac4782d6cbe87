//! The table: every instruction that the emulator knows, in every form, and what the PTX ISA says it gives.
//!
//! The references share no code with the emulator: integers are Rust's, or the ISA's own pseudo code bit by bit, and
//! floating point is that of `rustc_apfloat`, the compiler's.

mod bits;
mod compare;
mod control;
mod convert;
mod float;
mod integer;
mod memory;
mod warp;

use crate::instructions::row::Row;

/// All rows.
pub fn rows() -> Vec<Row> {
    [
        integer::rows(),
        bits::rows(),
        compare::rows(),
        convert::rows(),
        float::rows(),
        memory::rows(),
        warp::rows(),
        control::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
