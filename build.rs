//! Embeds the kernels of `ptx/` in the library, with the feature `ladder` those of `ptx/ladder/` as well, and what they need of a
//! driver and of a GPU. With `GPU_REDUCE_REBUILD_PTX=1` it compiles both from `gpu/` first, which needs a device toolchain (see
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
    use cuda_builder::{CudaBuilder, Needs};
    use std::{env, fs, path::Path};

    println!("cargo::rerun-if-env-changed=GPU_REDUCE_REBUILD_PTX");
    println!("cargo::rerun-if-changed=ptx");
    if env::var_os("GPU_REDUCE_REBUILD_PTX").is_some_and(|value| value == "1") {
        for sources in ["gpu", "crates/cuda_std", "crates/cuda_std_macros"] {
            println!("cargo::rerun-if-changed={sources}");
        }
        let tables = [("production", "ptx", operator as fn(&str) -> String), ("ladder", "ptx/ladder", rung)];
        for (table, folder, group) in tables {
            CudaBuilder::new("gpu")
                .build_args(&["--features", table])
                .copy_groups_to(folder, group)
                .build()?;
        }
    }

    let mut files = Vec::new();
    for folder in if cfg!(feature = "ladder") { &["ptx", "ptx/ladder"][..] } else { &["ptx"] } {
        for file in fs::read_dir(folder)? {
            let path = file?.path();
            files.extend(path.extension().is_some_and(|extension| extension == "ptx").then_some(path));
        }
    }
    let out = env::var("OUT_DIR")?;
    let Needs { ptx, capability } = cuda_builder::pack(&files, Path::new(&out))?;
    let needs = format!(
        "/// The highest version of the PTX ISA, and the highest compute capability, that an embedded kernel is for.
const NEEDED_PTX: (i32, i32) = {ptx:?};
const NEEDED_CAPABILITY: (i32, i32) = {capability:?};
"
    );
    fs::write(Path::new(&out).join("needs.rs"), needs)?;
    Ok(())
}

/// A file for an operator: of `sum_f32_256`, `sum_f32_row_1024`, `sum_f32_segments_0`, `sum_f32_rows_0` and `sum_f32_columns_256`, `sum`.
#[cfg(feature = "cuda")]
fn operator(kernel: &str) -> String {
    let shapes = ["_row_", "_segments_", "_rows_", "_columns_"];
    let kernel = shapes.iter().fold(kernel.to_owned(), |kernel, shape| kernel.replace(shape, "_"));
    let words: Vec<_> = kernel.split('_').collect();
    words[..words.len().saturating_sub(2)].join("_")
}

/// A file for a rung of the ladder: of `sequential_sum_f32_256`, `sequential`; of `merge_f32_32`, `merge`.
#[cfg(feature = "cuda")]
fn rung(kernel: &str) -> String {
    let kernel = operator(kernel);
    match kernel.rsplit_once('_') {
        Some((rung, "sum" | "prod" | "min" | "max")) => rung.to_owned(),
        _ => kernel,
    }
}
