//! Compiles a crate of CUDA kernels to PTX from a build script.
//!
//! The API is that of rust-cuda's `cuda_builder`. The compiler is rustc with its own NVPTX backend, so no
//! CUDA toolkit, LLVM or patched compiler is needed. A build script:
//!
//! ```no_run
//! use cuda_builder::{CudaBuilder, NvvmArch};
//!
//! fn main() {
//!     let out = std::env::var("OUT_DIR").unwrap();
//!     CudaBuilder::new("kernels").arch(NvvmArch::Compute80).copy_to(out + "/kernels.ptx").build().unwrap();
//! }
//! ```
//!
//! The kernel crate is an ordinary `no_std` library and may depend on any `no_std` crate. `cuda_std` provides
//! `#[kernel]`, thread indices, shared memory and a panic handler.
//!
//! # The device toolchain
//!
//! Kernels need rustc 1.96 or newer (older versions are untested, except 1.85, which fails) and the source of
//! the standard library. The builder uses the first rustc of this list that has both:
//! - the one that the environment variable `CUDA_BUILDER_RUSTC` names; it is an error if that one is unfit;
//! - the one that compiles the build script;
//! - rustup's toolchains, from the newest to the oldest
//!   (`rustup toolchain install nightly --component rust-src`);
//! - `/usr/bin/rustc` (Debian: `apt-get install rustc-web rust-web-src`).
//!
//! A stable rustc works too, because `RUSTC_BOOTSTRAP=1` enables its unstable features. Cargo is the one that
//! runs the build. The first build downloads the dependencies of the standard library's workspace from
//! crates.io.
//!
//! # The same PTX everywhere
//!
//! The PTX depends only on the sources, the versions of their dependencies, the options here and the version
//! of the device toolchain. It does not depend on the folders of the crate, the build or the user.
//!
//! There is one exception: a dependency by `path` outside the kernel crate's workspace. Cargo hashes its
//! folder into symbol names, which appear in the names of functions that LLVM did not inline.

mod copies;
mod split;
mod toolchain;

use std::{
    env,
    ffi::OsString,
    fmt, fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub use split::split;
use toolchain::Toolchain;
pub use toolchain::Unfit;

/// The virtual architecture of the PTX, which runs on GPUs of this compute capability and higher ones.
///
/// Compute capability 7.0 is `Compute70`; <https://developer.nvidia.com/cuda-gpus> lists the GPUs of each.
/// These are the architectures that rustc 1.96 and CUDA 13 know. The version of the PTX ISA is the oldest
/// that has the architecture and that rustc can write: for `Compute70`, rustc 1.96 writes 6.0 (CUDA 9.0), and
/// rustc 1.97 writes 7.0 (CUDA 11.0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum NvvmArch {
    #[default]
    Compute70,
    Compute72,
    Compute75,
    Compute80,
    Compute86,
    Compute87,
    Compute89,
    Compute90,
    Compute100,
    Compute101,
    Compute120,
}

impl NvvmArch {
    /// LLVM's name of the architecture.
    fn target_cpu(self) -> &'static str {
        match self {
            Self::Compute70 => "sm_70",
            Self::Compute72 => "sm_72",
            Self::Compute75 => "sm_75",
            Self::Compute80 => "sm_80",
            Self::Compute86 => "sm_86",
            Self::Compute87 => "sm_87",
            Self::Compute89 => "sm_89",
            Self::Compute90 => "sm_90",
            Self::Compute100 => "sm_100",
            Self::Compute101 => "sm_101",
            Self::Compute120 => "sm_120",
        }
    }
}

/// Debug information in the PTX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DebugInfo {
    /// Nothing.
    #[default]
    None,
    /// The file and line of each instruction, for profilers.
    LineTables,
}

/// A reason why a kernel crate was not compiled to PTX. `{:?}` prints the same as `{}`, so that build scripts
/// can unwrap.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CudaBuilderError {
    /// The folder given to [`CudaBuilder::new`] has no crate.
    #[error("there is no kernel crate in {}: it has no Cargo.toml", .0.display())]
    CratePathDoesntExist(PathBuf),
    /// No toolchain can compile kernels; the list has those that were tried.
    #[error(
        "found no Rust toolchain that can compile CUDA kernels. Tried:\n{}\
         Install one:\n\
         - on Debian: apt-get install rustc-web rust-web-src\n\
         - with rustup: rustup toolchain install nightly --component rust-src\n\
         or set CUDA_BUILDER_RUSTC to a rustc that has the source of the standard library",
        .0.iter().map(|unfit| format!("- {unfit}\n")).collect::<String>()
    )]
    NoToolchain(Vec<Unfit>),
    /// The toolchain that `CUDA_BUILDER_RUSTC` names cannot compile kernels.
    #[error("{0}: set the environment variable CUDA_BUILDER_RUSTC to another rustc, or unset it")]
    UnfitToolchain(Unfit),
    /// Cargo could not be started.
    #[error("could not start cargo: {0}")]
    CargoNotFound(io::Error),
    /// The kernel crate does not compile; cargo printed why on standard error.
    #[error("the kernel crate in {} does not compile; cargo printed why on standard error", .0.display())]
    BuildFailed(PathBuf),
    /// The kernel crate does not compile, and its `src/lib.rs` has no `#![no_std]`.
    #[error(
        "the kernel crate in {} does not compile; cargo printed why on standard error. GPUs have no standard library: \
         write #![no_std] on the first line of its src/lib.rs",
        .0.display()
    )]
    UsesStd(PathBuf),
    /// The kernel crate has no kernels.
    #[error("the kernel crate in {} has no kernel: mark a public function with #[kernel]", .0.display())]
    NoKernels(PathBuf),
    /// The name of an entry point to pack does not end in the number of threads per block.
    #[error("the kernels in {} must be named NAME_BLOCK, for example sum_f32_256", .0.display())]
    NotPtx(PathBuf),
    /// A PTX file could not be read or written.
    #[error("could not read or write {}: {source}", path.display())]
    FailedToCopyPtxFile {
        /// The file or folder that could not be read or written.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl fmt::Debug for CudaBuilderError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The file of packed kernels in `OUT_DIR`.
const PACKED: &str = "kernels.ptx.br";

/// Brotli's quality for them; higher ones are slow, because build scripts are usually not optimised.
const QUALITY: i32 = 9;

/// Compiles a kernel crate to PTX in the release profile.
#[derive(Clone, Debug)]
#[must_use]
pub struct CudaBuilder {
    crate_path: PathBuf,
    arch: NvvmArch,
    debug: DebugInfo,
    build_args: Vec<String>,
    copy_to: Option<PathBuf>,
    target_dir: Option<PathBuf>,
}

impl CudaBuilder {
    /// Compiles the crate in this folder.
    pub fn new(path_to_crate_root: impl AsRef<Path>) -> Self {
        Self {
            crate_path: path_to_crate_root.as_ref().to_owned(),
            arch: NvvmArch::default(),
            debug: DebugInfo::default(),
            build_args: Vec::new(),
            copy_to: None,
            target_dir: None,
        }
    }

    /// Sets the architecture; the default is [`NvvmArch::Compute70`].
    pub fn arch(mut self, arch: NvvmArch) -> Self {
        self.arch = arch;
        self
    }

    /// Sets the debug information; the default is [`DebugInfo::None`].
    pub fn debug(mut self, debug: DebugInfo) -> Self {
        self.debug = debug;
        self
    }

    /// Adds arguments to cargo, such as `--features`.
    pub fn build_args(mut self, args: &[impl AsRef<str>]) -> Self {
        self.build_args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Copies the PTX to this file.
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.copy_to = Some(path.as_ref().to_owned());
        self
    }

    /// Sets the target folder of the build.
    pub fn target_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.target_dir = Some(folder.as_ref().to_owned());
        self
    }

    /// Compiles the crate and packs its kernels into `kernels.rs` in `OUT_DIR`.
    ///
    /// Call it in the build script of a crate whose kernels come from a table and are named `NAME_BLOCK`,
    /// where BLOCK is the number of threads per block. `gpu_reduce_kernels::kernels!` includes the file. Does
    /// nothing if the crate itself is being compiled to PTX. Packs no kernels for Clippy, which would have
    /// them compiled once more and does not look at them.
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build); [`CudaBuilderError::NotPtx`] if a kernel has another kind of name.
    pub fn embed(self) -> Result<(), CudaBuilderError> {
        if env::var_os("CARGO_CFG_TARGET_ARCH").is_some_and(|architecture| architecture == "nvptx64") {
            return Ok(());
        }
        let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
        if env::var_os("RUSTC_WORKSPACE_WRAPPER").is_some_and(|wrapper| is_clippy(Path::new(&wrapper))) {
            return write(&out.join("kernels.rs"), b"&[]");
        }
        let file = self.build()?;
        let modules = split(&fs::read_to_string(&file).map_err(failed_at(&file))?);
        let modules = modules.iter().map(|(name, module)| (&**name, &**module));
        let packed = gpu_reduce_ptx::pack(PACKED, modules, QUALITY).ok_or(CudaBuilderError::NotPtx(file))?;
        write(&out.join(PACKED), &packed.bytes)?;
        write(&out.join("kernels.rs"), format!("&[&{}]\n", packed.expression).as_bytes())
    }

    /// Compiles the crate; returns the path of the PTX file, which [`copy_to`](Self::copy_to) can set.
    ///
    /// In a build script, the crate is built in a folder under `OUT_DIR`, and rebuilt when a file in its
    /// folder or a source of a dependency by `path` changes. Elsewhere it is built in `target/cuda-builder`
    /// in its folder. [`target_dir`](Self::target_dir) overrides both. The PTX starts with a comment that
    /// names the compiler.
    ///
    /// # Errors
    ///
    /// If there is no crate or no device toolchain, if the crate does not compile or has no kernels, or if a
    /// file cannot be read or written.
    pub fn build(self) -> Result<PathBuf, CudaBuilderError> {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let folder = absolute(&self.crate_path);
        if !folder.join("Cargo.toml").is_file() {
            return Err(CudaBuilderError::CratePathDoesntExist(folder));
        }
        let out_dir = env::var_os("OUT_DIR");
        if out_dir.is_some() {
            println!("cargo::rerun-if-changed={}", folder.display());
            println!("cargo::rerun-if-env-changed=CUDA_BUILDER_RUSTC");
        }
        let target_dir = match (&self.target_dir, &out_dir) {
            (Some(target_dir), _) => absolute(target_dir),
            (None, Some(out_dir)) => Path::new(out_dir).join("cuda-builder"),
            (None, None) => folder.join("target/cuda-builder"),
        };
        let toolchain = toolchain::find()?;
        let file = self.compile(&folder, &target_dir, &toolchain)?;
        if out_dir.is_some() {
            watch_sources(&target_dir.join("nvptx64-nvidia-cuda/release"))?;
        }

        let ptx = fs::read_to_string(&file).map_err(failed_at(&file))?;
        if !ptx.contains(".entry") {
            return Err(CudaBuilderError::NoKernels(folder));
        }
        let (name, cpu) = (file.file_stem().unwrap_or_default().display(), self.arch.target_cpu());
        let Toolchain { release, llvm, .. } = &toolchain;
        // Replaces the empty comment on the first line, so that line numbers stay the same.
        let rest = ptx.strip_prefix("//\n").unwrap_or(&ptx);
        let ptx = format!("// Generated from {name} by rustc {release}, LLVM {llvm}, for {cpu}\n{rest}");
        let file = self.copy_to.unwrap_or(file);
        write(&file, ptx.as_bytes())?;
        Ok(file)
    }

    /// Runs cargo; returns the PTX file, named after the package.
    fn compile(
        &self,
        folder: &Path,
        target_dir: &Path,
        toolchain: &Toolchain,
    ) -> Result<PathBuf, CudaBuilderError> {
        let debug = match self.debug {
            DebugInfo::None => "none",
            DebugInfo::LineTables => "line-directives-only",
        };
        let rustflags = [
            &format!("-Ctarget-cpu={}", self.arch.target_cpu()),
            "-Zcrate-attr=feature(abi_ptx,asm_experimental_arch,stdarch_nvptx)",
            "-Aunused_features",
            "-Aduplicate_features",
        ];
        let assembly = target_dir.join("kernels.s");
        let mut emit = OsString::from("--emit=asm=");
        emit.push(&assembly);

        let mut cargo = self.cargo(folder, target_dir, toolchain);
        cargo.args(["rustc", "--lib", "--crate-type=cdylib", "--release", "--target=nvptx64-nvidia-cuda"]);
        cargo.args(["-Zbuild-std=core,alloc", "-Ztrim-paths"]);
        for setting in [
            "lto='fat'",
            "panic='abort'",
            "codegen-units=1",
            "trim-paths='object'",
            &format!("debug='{debug}'"),
        ] {
            cargo.arg("--config").arg(format!("profile.release.{setting}"));
        }
        // The assembly is the PTX, so nothing is linked.
        cargo.args(&self.build_args).args(["--", "-Zno-link"]).arg(emit);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", rustflags.join("\x1f")).stdout(Stdio::null());
        if !cargo.status().map_err(CudaBuilderError::CargoNotFound)?.success() {
            let source = fs::read_to_string(folder.join("src/lib.rs"));
            let has_std = source.is_ok_and(|source| !source.contains("no_std"));
            let error = if has_std { CudaBuilderError::UsesStd } else { CudaBuilderError::BuildFailed };
            return Err(error(folder.to_owned()));
        }

        // Ends in `#name@version`, or in `/name#version` if the folder has the package's name.
        let id = self.cargo(folder, target_dir, toolchain).arg("pkgid").stderr(Stdio::inherit()).output();
        let id = id.map_err(CudaBuilderError::CargoNotFound)?;
        if !id.status.success() {
            return Err(CudaBuilderError::BuildFailed(folder.to_owned()));
        }
        let id = String::from_utf8_lossy(&id.stdout);
        let (path, version) = id.trim_end().rsplit_once('#').unwrap_or((&id, ""));
        let name = match version.split_once('@') {
            Some((name, _)) => name,
            None => path.rsplit('/').next().unwrap_or(path),
        };
        let ptx = target_dir.join(name).with_extension("ptx");
        fs::rename(&assembly, &ptx).map_err(failed_at(&ptx))?;
        Ok(ptx)
    }

    /// A cargo command with the device toolchain, without the environment variables of the surrounding build.
    fn cargo(&self, folder: &Path, target_dir: &Path, toolchain: &Toolchain) -> Command {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        for (name, _) in env::vars_os() {
            if !is_inherited(&name.to_string_lossy()) {
                cargo.env_remove(name);
            }
        }
        cargo
            .current_dir(folder)
            .env("RUSTC", &toolchain.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            // These override configuration files for host builds: no wrappers, the same code each time, and
            // folders that the cargo running the build script has not locked.
            .env("RUSTC_WRAPPER", "")
            .env("RUSTC_WORKSPACE_WRAPPER", "")
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_TARGET_DIR", target_dir)
            .env("CARGO_BUILD_BUILD_DIR", target_dir);
        cargo
    }
}

/// Makes cargo rerun the build script when a source changes that cargo's `.d` files in `folder` list.
fn watch_sources(folder: &Path) -> Result<(), CudaBuilderError> {
    for entry in fs::read_dir(folder).map_err(failed_at(folder))? {
        let path = entry.map_err(failed_at(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "d") {
            let list = fs::read_to_string(&path).map_err(failed_at(&path))?;
            let sources = list.split_once(": ").map_or("", |(_, sources)| sources);
            // A backslash escapes a space in a path.
            for source in sources.replace("\\ ", "\0").split_whitespace() {
                println!("cargo::rerun-if-changed={}", source.replace('\0', " "));
            }
        }
    }
    Ok(())
}

/// Whether cargo keeps an environment variable: all but those that a build sets for its rustc or build
/// scripts, which concern another crate.
fn is_inherited(name: &str) -> bool {
    const OF_A_BUILD: [&str; 5] = ["CARGO_", "DEP_", "RUSTC", "RUSTDOC", "RUSTFLAGS"];
    const OF_THE_USER: [&str; 7] = [
        "CARGO_BUILD_JOBS",
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_MAKEFLAGS",
        "CARGO_NET_",
        "CARGO_REGISTR",
        "CARGO_TERM_",
    ];
    let starts_with = |prefix: &&str| name.starts_with(*prefix);
    OF_THE_USER.iter().any(starts_with) || !OF_A_BUILD.iter().any(starts_with)
}

/// Whether this is the program by which `cargo clippy` calls the compiler.
fn is_clippy(wrapper: &Path) -> bool {
    wrapper.file_stem().is_some_and(|name| name == "clippy-driver")
}

/// Writes a file, unless it already has this content: a rewrite would rebuild what depends on it.
fn write(path: &Path, content: &[u8]) -> Result<(), CudaBuilderError> {
    match fs::read(path) {
        Ok(old) if old == content => Ok(()),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed_at(path)(error)),
        _ => fs::write(path, content).map_err(failed_at(path)),
    }
}

fn failed_at(path: &Path) -> impl FnOnce(io::Error) -> CudaBuilderError {
    move |source| CudaBuilderError::FailedToCopyPtxFile { path: path.to_owned(), source }
}
