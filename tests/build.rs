//! Sets the condition `part` to the value of `GPU_REDUCE_TEST_PART`, which picks a third of the tests' BLOCKs and cases.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=GPU_REDUCE_TEST_PART");
    println!(r#"cargo::rustc-check-cfg=cfg(part, values("0", "1", "2"))"#);
    if let Ok(part) = std::env::var("GPU_REDUCE_TEST_PART") {
        assert!(
            ["0", "1", "2"].contains(&&*part),
            "GPU_REDUCE_TEST_PART is {part:?}: set it to 0, 1 or 2, or unset it"
        );
        println!("cargo::rustc-cfg=part=\"{part}\"");
    }
}
