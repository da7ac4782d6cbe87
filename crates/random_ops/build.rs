//! Compiles the kernels. Without a device toolchain it builds without kernels, so that the workspace's tests
//! run on any machine; tests that launch kernels then say why they are skipped. Other packages would just
//! unwrap.

use cuda_builder::{CudaBuilder, CudaBuilderError::NoToolchain};
use std::{env, fs, path::Path};

fn main() {
    println!("cargo::rerun-if-env-changed=GPU_REDUCE_TEST_PART");
    println!(r#"cargo::rustc-check-cfg=cfg(part, values("0", "1", "2", "3", "4", "5"))"#);
    let picked = env::var("GPU_REDUCE_TEST_PART").ok();
    let parts: Vec<String> = (0..6)
        .map(|part| part.to_string())
        .filter(|part| picked.as_ref().is_none_or(|picked| picked == part))
        .collect();
    assert!(
        !parts.is_empty(),
        "GPU_REDUCE_TEST_PART is {picked:?}: set it to a number from 0 to 5, or unset it"
    );
    for part in parts {
        println!("cargo::rustc-cfg=part=\"{part}\"");
    }
    match CudaBuilder::new(".").embed() {
        Err(why @ NoToolchain(_)) => {
            let out = env::var("OUT_DIR").unwrap();
            fs::write(Path::new(&out).join("kernels.rs"), "&[]").unwrap();
            let why = why.to_string().replace('\n', " ");
            println!("cargo::rustc-env=WITHOUT_KERNELS={why}; then touch crates/random_ops/build.rs");
        }
        embedded => embedded.unwrap(),
    }
}
