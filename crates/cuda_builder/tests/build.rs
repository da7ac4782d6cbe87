//! Compiles the crate in `fixture/`, if a device toolchain is installed.

use std::{
    env,
    fmt::Display,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use cuda_builder::{CudaBuilder, CudaBuilderError, NvvmArch};

/// Copies the fixture, so that builds leave no files among the sources.
fn fixture(copy: &str) -> PathBuf {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(copy);
    let manifest = fs::read_to_string(original.join("Cargo.toml")).unwrap();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_str().unwrap();
    fs::create_dir_all(copy.join("src")).unwrap();
    fs::write(copy.join("Cargo.toml"), manifest.replace("../../..", crates)).unwrap();
    fs::copy(original.join("src/lib.rs"), copy.join("src/lib.rs")).unwrap();
    copy
}

/// Prints why a test is skipped. `eprintln!` would be captured in a test that passes.
fn skipped(why: &dyn Display) {
    let mut stderr = io::stderr();
    writeln!(stderr, "skipped: {why}").unwrap();
}

/// Whether a test runs that compiles `core` once more: always, or with `GPU_REDUCE_TEST_PART` if it is of the
/// part.
fn is_of_part(part: &str) -> bool {
    env::var("GPU_REDUCE_TEST_PART").map_or(true, |picked| picked == part)
}

/// Compiles a copy of the fixture for sm_75. Returns what depends on the toolchain: the first line of the
/// PTX, and its ISA version.
fn compile(copy: &str) -> Result<(String, (u32, u32)), CudaBuilderError> {
    let fixture = fixture(copy);
    let whole = fixture.join("kernels.ptx");
    let builder = CudaBuilder::new(fixture).arch(NvvmArch::Compute75).copy_to(&whole);
    assert_eq!(builder.build()?, whole);

    let ptx = fs::read_to_string(whole).unwrap();
    for part in [".target sm_75\n", ".visible .entry scale(\n", ".visible .entry scale_add(\n"] {
        assert_eq!(ptx.matches(part).count(), 1, "{part} in {ptx}");
    }
    let modules = cuda_builder::split(&ptx);
    assert!(modules.keys().eq(["scale", "scale_add"]), "{:?}", modules.keys());
    // Mangling differs between toolchains, and so does the inlining of panics.
    let has = |module: &str| ["WEIGHTS", "weight", "panic"].map(|name| module.contains(name));
    assert_eq!(has(&modules["scale"]), [true, true, false], "{ptx}");
    assert_eq!(has(&modules["scale_add"]), [false, false, true], "{ptx}");

    let versions = ["scale", "scale_add"].map(|name| {
        let module = &modules[name];
        assert_eq!(module.matches(".entry").count(), 1, "{module}");
        assert!(!module.contains("//"), "{module}");
        let (version, rest) = module.split_once('\n').unwrap();
        assert!(rest.starts_with(".target sm_75\n.address_size 64\n"), "{module}");
        let version = version.strip_prefix(".version ").and_then(|version| version.split_once('.'));
        let (major, minor) = version.unwrap();
        (major.parse().unwrap(), minor.parse().unwrap())
    });
    assert_eq!(versions[0], versions[1]);
    Ok((ptx.lines().next().unwrap().to_owned(), versions[0]))
}

#[test]
fn a_kernel_crate_becomes_ptx() {
    let (heading, version) = match compile("kernels") {
        Err(why @ CudaBuilderError::NoToolchain(_)) => return skipped(&why),
        built => built.unwrap(),
    };
    assert!(heading.starts_with("// Generated from fixture_kernels by rustc "), "{heading}");
    assert!(heading.ends_with(", for sm_75"), "{heading}");
    assert!(version >= (6, 3), "sm_75 came with PTX 6.3, and this is {version:?}");
    the_emulators_kernels_are_what_rustc_makes_of_them("kernels");
}

/// Compares the committed PTX of the emulator's tests with a new build of its source, unless the compiler
/// named in its first line is another one. Reuses the standard library compiled for the copied fixture.
fn the_emulators_kernels_are_what_rustc_makes_of_them(fixture: &str) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let committed = crates.join("emulator/tests/rust/kernels.ptx");
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let copy = temporary.join("emulator_kernels");
    fs::create_dir_all(copy.join("src")).unwrap();
    let manifest = format!(
        "[workspace]\n[package]\nname = \"emulator_kernels\"\nedition = \"2024\"\n[dependencies]\n\
         cuda_std = {{ package = \"gpu_reduce_cuda_std\", path = {:?} }}\n",
        crates.join("cuda_std")
    );
    fs::write(copy.join("Cargo.toml"), manifest).unwrap();
    fs::copy(committed.with_extension("rs"), copy.join("src/lib.rs")).unwrap();
    let builder = CudaBuilder::new(copy).arch(NvvmArch::Compute75);
    let built = builder.target_dir(temporary.join(fixture).join("target/cuda-builder")).build().unwrap();
    let [of_committed, of_built] = [&committed, &built].map(|file| fs::read_to_string(file).unwrap());
    let heading = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    if heading(&of_committed) != heading(&of_built) {
        return skipped(&format!("`{}`, and here `{}`", heading(&of_committed), heading(&of_built)));
    }
    assert!(of_committed == of_built, "copy {} to {}", built.display(), committed.display());
}

/// Simulates a newer rustc that writes PTX 7.0, as 1.97 does, with Debian's rustc. It needs the environment
/// variable, so the test runs itself in a new process.
#[cfg(unix)]
#[test]
fn a_newer_rustc_may_write_newer_ptx() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    if !is_of_part("5") {
        return skipped(&"of part 5");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("newer-rustc");
    let rustc = folder.join("rustc");
    if env::var_os("CUDA_BUILDER_RUSTC").is_some_and(|named| rustc == named) {
        let (heading, version) = match compile("kernels-of-newer-rustc") {
            Err(why @ CudaBuilderError::UnfitToolchain(_)) => return skipped(&why),
            built => built.unwrap(),
        };
        assert!(heading.contains("-newer, LLVM "), "{heading}");
        return assert!(version >= (7, 0), "{version:?}");
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("lib/rustlib/src")).unwrap();
    symlink("/usr/lib/rustlib/src/rust", folder.join("lib/rustlib/src/rust")).unwrap();
    let script = r#"#!/bin/sh
case "$*" in
    "--print sysroot") dirname "$0" ;;
    -vV) /usr/bin/rustc -vV | sed "s/^release: .*/&-newer/" ;;
    *nvptx64-nvidia-cuda*) exec /usr/bin/rustc "$@" -Ctarget-feature=+ptx70 ;;
    *) exec /usr/bin/rustc "$@" ;;
esac
"#;
    fs::write(&rustc, script).unwrap();
    fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).unwrap();
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["--exact", "a_newer_rustc_may_write_newer_ptx", "--nocapture"]).stdout(Stdio::null());
    assert!(again.env("CUDA_BUILDER_RUSTC", rustc).status().unwrap().success());
}

#[test]
fn what_is_no_crate_and_what_does_not_compile_are_errors() {
    if !is_of_part("4") {
        return skipped(&"of part 4");
    }
    let of =
        |folder: &Path| CudaBuilder::new(folder).build_args(&["--features", "missing"]).build().unwrap_err();
    let fixture = fixture("errors");
    let error = of(&fixture.join("src"));
    assert!(
        matches!(&error, CudaBuilderError::CratePathDoesntExist(path) if path.ends_with("errors/src")),
        "{error}"
    );
    let std = fixture.join("std");
    fs::create_dir_all(std.join("src")).unwrap();
    fs::write(std.join("Cargo.toml"), "[package]\nname = \"std_kernels\"\n[workspace]\n").unwrap();
    fs::write(std.join("src/lib.rs"), "pub fn kernel() {}\n").unwrap();
    let error = of(&std);
    assert!(
        matches!(error, CudaBuilderError::NoToolchain(_)) || error.to_string().contains("write #![no_std]"),
        "{error}"
    );
    let error = of(&fixture);
    assert!(matches!(error, CudaBuilderError::BuildFailed(_) | CudaBuilderError::NoToolchain(_)), "{error}");
}
