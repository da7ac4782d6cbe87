//! Picks what the tests take of many alike: with `GPU_REDUCE_TEST_PART` 0, 1 or 2, two of six BLOCKs; else all.

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
