//! Compiles the crate in `fixture/`, where there is a toolchain for that.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use cuda_builder::{CudaBuilder, CudaBuilderError, NvvmArch};

/// A copy of the fixture where builds leave nothing among the sources.
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

#[test]
fn a_kernel_crate_becomes_ptx() {
    let fixture = fixture("kernels");
    let (whole, each) = (fixture.join("kernels.ptx"), fixture.join("each"));
    fs::create_dir_all(&each).unwrap();
    fs::write(each.join("renamed.ptx"), "of a kernel that is no more").unwrap();
    fs::write(each.join("README"), "no PTX").unwrap();

    let builder = CudaBuilder::new(fixture).arch(NvvmArch::Compute75).copy_to(&whole).copy_each_to(&each);
    match builder.build() {
        // Not `eprintln!`, which a test that passes shows to nobody.
        Err(error @ CudaBuilderError::NoToolchain(_)) => {
            return writeln!(io::stderr(), "skipped: {error}").unwrap();
        }
        built => assert_eq!(built.unwrap(), whole),
    }

    let ptx = fs::read_to_string(whole).unwrap();
    for part in [".target sm_75\n", ".visible .entry scale(\n", ".visible .entry scale_add(\n"] {
        assert_eq!(ptx.matches(part).count(), 1, "{part} in {ptx}");
    }
    let mut files: Vec<_> = fs::read_dir(&each).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["README", "scale.ptx", "scale_add.ptx"]);

    let scale = fs::read_to_string(each.join("scale.ptx")).unwrap();
    let scale_add = fs::read_to_string(each.join("scale_add.ptx")).unwrap();
    for module in [&scale, &scale_add] {
        let (heading, module) = module.split_once('\n').unwrap();
        assert!(heading.starts_with("// Generated from fixture_kernels by rustc 1."), "{heading}");
        assert!(heading.ends_with(", for sm_75"), "{heading}");
        assert!(module.starts_with(".version 6.3\n.target sm_75\n.address_size 64\n"), "{module}");
        assert_eq!(module.matches(".entry").count(), 1, "{module}");
        assert!(!module.contains("//"), "{module}");
    }
    let has = |module: &str| {
        ["7WEIGHTS[32] = {3, ", "6weight(", "18panic_bounds_check("].map(|part| module.contains(part))
    };
    assert_eq!(has(&scale), [true, true, false], "{scale}");
    assert_eq!(has(&scale_add), [false, false, true], "{scale_add}");
}

#[test]
fn what_is_no_crate_and_what_does_not_compile_are_errors() {
    let of =
        |folder: &Path| CudaBuilder::new(folder).build_args(&["--features", "missing"]).build().unwrap_err();
    let fixture = fixture("errors");
    let error = of(&fixture.join("src"));
    assert!(
        matches!(&error, CudaBuilderError::CratePathDoesntExist(path) if path.ends_with("errors/src")),
        "{error}"
    );
    let error = of(&fixture);
    assert!(matches!(error, CudaBuilderError::BuildFailed(_) | CudaBuilderError::NoToolchain(_)), "{error}");
}
