//! The table: every instruction that the emulator knows, in every form, with the results that the PTX ISA
//! defines.
//!
//! The references share no code with the emulator. Integer references use Rust's integers or the ISA's pseudo
//! code, bit by bit; floating-point references use `rustc_apfloat`.

mod bits;
mod compare;
mod control;
mod convert;
mod float;
mod integer;
mod matrix;
mod mbarrier;
mod memory;
mod warp;

use crate::instructions::row::Row;

/// Returns all rows.
pub fn rows() -> Vec<Row> {
    [
        integer::rows(),
        matrix::rows(),
        bits::rows(),
        compare::rows(),
        convert::rows(),
        float::rows(),
        memory::rows(),
        mbarrier::rows(),
        warp::rows(),
        control::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
