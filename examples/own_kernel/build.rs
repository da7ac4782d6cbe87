//! Compiles the kernels to PTX, with the Rust source line of each instruction.

use cuda_builder::{CudaBuilder, DebugInfo};

fn main() {
    println!("cargo::rerun-if-changed=kernels");
    let ptx = std::env::var("OUT_DIR").unwrap() + "/kernels.ptx";
    CudaBuilder::new("kernels").debug(DebugInfo::LineTables).copy_to(ptx).build().unwrap();
}
