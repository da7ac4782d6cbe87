//! Finds a Rust toolchain that can compile kernels.

use std::{cmp::Reverse, env, ffi::OsStr, fmt, iter, path::PathBuf, process::Command};

use crate::CudaBuilderError;

/// The oldest rustc, as major and minor version, known to compile kernels.
///
/// 1.85 refuses `-Zcrate-attr=feature(…)` for crates that already have the feature (E0636); the versions
/// between are untested.
const OLDEST: (u32, u32) = (1, 96);

/// A Rust toolchain that can compile kernels.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub rustc: PathBuf,
    /// The version, such as `1.97.0-nightly`.
    pub release: String,
    /// The version of its LLVM, such as `22.1.8`.
    pub llvm: String,
    /// The version and the commit date, by which toolchains are ordered.
    age: ((u32, u32), String),
}

/// A rustc that cannot compile kernels, and why.
#[derive(Debug, PartialEq)]
pub struct Unfit {
    rustc: PathBuf,
    reason: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}", self.rustc.display(), self.reason)
    }
}

/// Finds a toolchain: that of `CUDA_BUILDER_RUSTC`, or else the first fit one of this build's rustc, rustup's
/// toolchains from the newest to the oldest, and Debian's rustc.
pub(crate) fn find() -> Result<Toolchain, CudaBuilderError> {
    if let Some(rustc) = env::var_os("CUDA_BUILDER_RUSTC") {
        return examine(rustc.into()).map_err(CudaBuilderError::UnfitToolchain);
    }
    let own = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    choose(
        iter::once_with(|| examine(own.into()))
            .chain(iter::once_with(of_rustup).flatten())
            .chain(iter::once_with(|| examine("/usr/bin/rustc".into()))),
    )
}

/// The first fit candidate, or why none is fit.
fn choose(candidates: impl Iterator<Item = Result<Toolchain, Unfit>>) -> Result<Toolchain, CudaBuilderError> {
    let mut unfit = Vec::new();
    for candidate in candidates {
        match candidate {
            Ok(toolchain) => return Ok(toolchain),
            Err(reason) if unfit.contains(&reason) => {}
            Err(reason) => unfit.push(reason),
        }
    }
    Err(CudaBuilderError::NoToolchain(unfit))
}

/// rustup's toolchains: the fit ones from the newest to the oldest, then the others.
fn of_rustup() -> Vec<Result<Toolchain, Unfit>> {
    let Ok(list) = run("rustup", &["toolchain", "list"]) else { return Vec::new() };
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let rustcs = names.filter_map(|name| run("rustup", &["which", "--toolchain", name, "rustc"]).ok());
    let mut toolchains: Vec<_> = rustcs.map(|rustc| examine(rustc.trim_end().into())).collect();
    toolchains.sort_by_key(|toolchain| Reverse(toolchain.as_ref().ok().map(|fit| fit.age.clone())));
    toolchains
}

/// Checks whether a rustc can compile kernels.
fn examine(rustc: PathBuf) -> Result<Toolchain, Unfit> {
    let facts = || -> Result<(PathBuf, String), String> {
        let sysroot = run(&rustc, &["--print", "sysroot"])?;
        Ok((PathBuf::from(sysroot.trim_end()), run(&rustc, &["-vV"])?))
    };
    let (sysroot, about) = match facts() {
        Ok(facts) => facts,
        Err(reason) => return Err(Unfit { rustc, reason }),
    };
    // rustup's `rustc` is a proxy; the rustc that it runs here is in the sysroot.
    let real = sysroot.join("bin").join("rustc").with_extension(env::consts::EXE_EXTENSION);
    let rustc = if real.is_file() { real } else { rustc };

    let field = |name: &str| {
        let value = about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or("unknown").to_owned()
    };
    let (release, llvm) = (field("release"), field("LLVM version"));
    let version = {
        let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    };
    if version < OLDEST {
        let reason = format!("is version {release}, older than {}.{}", OLDEST.0, OLDEST.1);
        return Err(Unfit { rustc, reason });
    }
    let source = sysroot.join("lib/rustlib/src/rust/library");
    if !source.join("core").is_dir() {
        let reason = format!("has no source of the standard library in {}", source.display());
        return Err(Unfit { rustc, reason });
    }
    Ok(Toolchain { rustc, release, llvm, age: (version, field("commit-date")) })
}

/// Returns what a program prints, or why it failed.
fn run(program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("does not start: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("fails: {}", String::from_utf8_lossy(&output.stderr).trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfit(rustc: &str, reason: &str) -> Result<Toolchain, Unfit> {
        Err(Unfit { rustc: rustc.into(), reason: reason.into() })
    }

    fn fit(rustc: &str) -> Result<Toolchain, Unfit> {
        let age = ((1, 97), "2026-07-01".into());
        Ok(Toolchain { rustc: rustc.into(), release: "1.97.0".into(), llvm: "22.1.8".into(), age })
    }

    #[test]
    fn the_first_that_serves_is_chosen() {
        let chosen = choose([unfit("/a/rustc", "fails"), fit("/b/rustc"), fit("/c/rustc")].into_iter());
        assert_eq!(chosen.unwrap().rustc, PathBuf::from("/b/rustc"));
    }

    #[test]
    fn where_none_serves_the_error_says_why_and_what_to_install() {
        let stable = || unfit("/home/a/stable/bin/rustc", "is version 1.95.0, older than 1.96");
        let nightly =
            unfit("/home/a/nightly/bin/rustc", "has no source of the standard library in /home/a/nightly");
        let error = choose([stable(), nightly, stable()].into_iter()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "found no Rust toolchain that can compile CUDA kernels. Tried:\n\
             - /home/a/stable/bin/rustc is version 1.95.0, older than 1.96\n\
             - /home/a/nightly/bin/rustc has no source of the standard library in /home/a/nightly\n\
             Install one:\n\
             - on Debian: apt-get install rustc-web rust-web-src\n\
             - with rustup: rustup toolchain install nightly --component rust-src\n\
             or set CUDA_BUILDER_RUSTC to a rustc that has the source of the standard library"
        );
        assert_eq!(format!("{error:?}"), error.to_string());
    }

    #[test]
    fn what_is_no_rustc_does_not_serve() {
        let of = |path: &str| examine(path.into()).unwrap_err().to_string();
        assert!(of("/nowhere/rustc").starts_with("/nowhere/rustc does not start: "));
        assert!(of("/bin/false").contains(" fails: "));
    }
}
