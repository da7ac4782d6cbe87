//! Sets the condition `part` to the value of `GPU_REDUCE_TEST_PART`, which picks a sixth of the tests' types,
//! BLOCKs and cases. Without it, `whole` is set, and `part` to each of the six values.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=GPU_REDUCE_TEST_PART");
    println!(r#"cargo::rustc-check-cfg=cfg(whole, part, values(none(), "0", "1", "2", "3", "4", "5"))"#);
    let picked = std::env::var("GPU_REDUCE_TEST_PART").ok();
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
    if picked.is_none() {
        println!("cargo::rustc-cfg=whole");
    }
}
