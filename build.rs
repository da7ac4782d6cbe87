//! Embeds the kernels of `ptx/` in the library, each compressed by itself; with the feature `ladder`, those of `ptx/ladder/`
//! as well; and what they need of a driver and of a GPU. With `GPU_REDUCE_REBUILD_PTX=1` it compiles both from `gpu/` first,
//! which needs a device toolchain (see `crates/cuda_builder`).

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
    let (mut version, mut capability) = Default::default();
    let folders = if cfg!(feature = "ladder") { &["ptx", "ptx/ladder"][..] } else { &["ptx"] };
    let files = folders.iter().map(fs::read_dir).collect::<Result<Vec<_>, _>>()?;
    for file in files.into_iter().flatten() {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "ptx") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let ptx = fs::read_to_string(&path)?;
            let needs =
                needs(&ptx).ok_or_else(|| format!("{} has another header than PTX", path.display()))?;
            (version, capability) = (needs.0.max(version), needs.1.max(capability));
            fs::write(out.join(&name), miniz_oxide::deflate::compress_to_vec(ptx.as_bytes(), 9))?;
            names.push(name);
        }
    }
    names.sort();
    let rows: String =
        names.iter().map(|name| format!("    ({name:?}, include_bytes!({:?})),\n", out.join(name))).collect();
    let table =
        "/// The kernels' names, sorted, and the PTX of each, compressed.\nstatic KERNELS: &[(&str, &[u8])]";
    let needs = format!(
        "/// The highest version of the PTX ISA, and the highest compute capability, that one of them is for.
const NEEDED_PTX: (i32, i32) = {version:?};
const NEEDED_CAPABILITY: (i32, i32) = {capability:?};"
    );
    fs::write(out.join("ptx.rs"), format!("{table} = &[\n{rows}];\n{needs}\n"))?;
    Ok(())
}

/// A module's version of the PTX ISA and its compute capability, each as major and minor number.
#[cfg(feature = "cuda")]
fn needs(ptx: &str) -> Option<((i32, i32), (i32, i32))> {
    let value_of = |directive| ptx.lines().find_map(|line| line.strip_prefix(directive));
    let (major, minor) = value_of(".version ")?.split_once('.')?;
    let target: i32 = value_of(".target sm_")?.parse().ok()?;
    Some(((major.parse().ok()?, minor.parse().ok()?), (target / 10, target % 10)))
}
