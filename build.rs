//! Embeds the kernels of `ptx/` in the library, each compressed by itself; with the feature `ladder`, those of `ptx/ladder/`
//! as well. With `GPU_REDUCE_REBUILD_PTX=1` it compiles both from `gpu/` first, which needs a device toolchain (see
//! `crates/cuda_builder`).

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rustc-check-cfg=cfg(gpu)");
    println!("cargo::rerun-if-changed=build.rs");
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH")?;
    let linux = std::env::var("CARGO_CFG_TARGET_OS")? == "linux";
    if cfg!(feature = "cuda") && linux && ["x86_64", "aarch64"].contains(&&*architecture) {
        println!("cargo::rustc-cfg=gpu");
        #[cfg(feature = "cuda")]
        embed()?;
    }
    Ok(())
}

#[cfg(feature = "cuda")]
fn embed() -> Result<(), Box<dyn std::error::Error>> {
    use std::{env, fs, path::Path};

    println!("cargo::rerun-if-env-changed=GPU_REDUCE_REBUILD_PTX");
    println!("cargo::rerun-if-changed=ptx");
    if env::var_os("GPU_REDUCE_REBUILD_PTX").is_some_and(|value| value == "1") {
        for sources in ["gpu", "crates/cuda_std", "crates/cuda_std_macros"] {
            println!("cargo::rerun-if-changed={sources}");
        }
        for (table, folder) in [("production", "ptx"), ("ladder", "ptx/ladder")] {
            let features = ["--no-default-features", "--features", table];
            cuda_builder::CudaBuilder::new("gpu").build_args(&features).copy_each_to(folder).build()?;
        }
    }

    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    let mut names = Vec::new();
    let folders = if cfg!(feature = "ladder") { &["ptx", "ptx/ladder"][..] } else { &["ptx"] };
    let files = folders.iter().map(fs::read_dir).collect::<Result<Vec<_>, _>>()?;
    for file in files.into_iter().flatten() {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "ptx") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            fs::write(out.join(&name), miniz_oxide::deflate::compress_to_vec(&fs::read(&path)?, 9))?;
            names.push(name);
        }
    }
    names.sort();
    let rows: String =
        names.iter().map(|name| format!("    ({name:?}, include_bytes!({:?})),\n", out.join(name))).collect();
    let table =
        "/// The kernels' names, sorted, and the PTX of each, compressed.\nstatic KERNELS: &[(&str, &[u8])]";
    fs::write(out.join("ptx.rs"), format!("{table} = &[\n{rows}];\n"))?;
    Ok(())
}
