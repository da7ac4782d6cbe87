//! Sets the condition `gpu` if the library has GPUs: those of NVIDIA, with the feature `cuda`, on Linux.

fn main() -> Result<(), std::env::VarError> {
    println!("cargo::rustc-check-cfg=cfg(gpu)");
    println!("cargo::rerun-if-changed=build.rs");
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH")?;
    let linux = std::env::var("CARGO_CFG_TARGET_OS")? == "linux";
    if cfg!(feature = "cuda") && linux && ["x86_64", "aarch64"].contains(&&*architecture) {
        println!("cargo::rustc-cfg=gpu");
    }
    Ok(())
}
