//! Compiles a crate of CUDA kernels to PTX from a build script.
//!
//! The API is that of rust-cuda's `cuda_builder`; below it is rustc's own NVPTX backend, so that no CUDA toolkit, LLVM or
//! patched compiler is needed. A build script:
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
//! The kernel crate is an ordinary `no_std` library, whose dependencies may be any `no_std` crates; `cuda_std` gives it
//! `#[kernel]`, thread indices, shared memory and a panic handler.
//!
//! # The device toolchain
//!
//! Kernels take rustc 1.96 or newer (older ones are untested, and 1.85 fails) with the source of the standard library.
//! The first of these that is both is used:
//! - the rustc that the environment variable `CUDA_BUILDER_RUSTC` names; where it does not serve, that is an error;
//! - the rustc that compiles the build script;
//! - rustup's toolchains, from the newest to the oldest
//!   (`rustup toolchain install nightly --component rust-src`);
//! - `/usr/bin/rustc` (Debian: `apt-get install rustc-web rust-web-src`).
//!
//! It may be a stable one, as its unstable features are turned on by `RUSTC_BOOTSTRAP=1`. The cargo is that of the build.
//! The first build downloads what the standard library's workspace depends on from crates.io.
//!
//! # The same PTX everywhere
//!
//! The PTX depends on the sources, the versions of their dependencies, the options here and the device toolchain's
//! version; not on the folder of the crate, on that of the build, or on the user's home. There is one exception: a
//! dependency by `path` that lies outside the kernel crate's workspace. Cargo puts its folder into the hashes that
//! symbols' names have, which show in the names of functions that LLVM did not inline.

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

/// The virtual architecture that PTX is for: it runs on GPUs of this compute capability and of every higher one.
///
/// Compute capability 7.0 is `Compute70`; <https://developer.nvidia.com/cuda-gpus> has the GPUs of each. Those here are
/// known to rustc 1.96 and to CUDA 13. The version of the PTX ISA is the oldest that has the architecture and that rustc
/// writes: for `Compute70`, rustc 1.96 writes 6.0, of CUDA 9.0, and rustc 1.97 writes 7.0, of CUDA 11.0.
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
    /// The name that LLVM has for it.
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

/// What PTX says about the sources it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DebugInfo {
    /// Nothing.
    #[default]
    None,
    /// The file and line of each instruction, which profilers show.
    LineTables,
}

/// Why a kernel crate did not become PTX. It prints the same with `{:?}`, so that a build script may just unwrap it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CudaBuilderError {
    /// The folder given to [`CudaBuilder::new`] is not that of a crate.
    #[error("there is no kernel crate in {}: it has no Cargo.toml", .0.display())]
    CratePathDoesntExist(PathBuf),
    /// No toolchain compiles kernels; these were looked at.
    #[error(
        "no Rust toolchain that compiles CUDA kernels was found. Looked at:\n{}\
         Install one,\n\
         - on Debian: apt-get install rustc-web rust-web-src\n\
         - with rustup: rustup toolchain install nightly --component rust-src\n\
         or set the environment variable CUDA_BUILDER_RUSTC to a rustc that has its library's source",
        .0.iter().map(|unfit| format!("- {unfit}\n")).collect::<String>()
    )]
    NoToolchain(Vec<Unfit>),
    /// The toolchain that `CUDA_BUILDER_RUSTC` names does not compile kernels.
    #[error("{0}: set the environment variable CUDA_BUILDER_RUSTC to another rustc, or not at all")]
    UnfitToolchain(Unfit),
    /// Cargo did not start.
    #[error("cargo does not start: {0}")]
    CargoNotFound(io::Error),
    /// The kernel crate does not compile; cargo's messages went to the standard error stream.
    #[error("the kernel crate in {} does not compile; cargo said why on the standard error stream", .0.display())]
    BuildFailed(PathBuf),
    /// The kernel crate compiled, and there is nothing in it to launch.
    #[error("the kernel crate in {} has no kernel: mark a public function with #[kernel]", .0.display())]
    NoKernels(PathBuf),
    /// An entry point to be packed has a name that does not end in the threads of its blocks.
    #[error("{} is no PTX of kernels named NAME_BLOCK, as sum_f32_256", .0.display())]
    NotPtx(PathBuf),
    /// PTX could not be brought to where it should be.
    #[error("could not copy PTX to {}: {source}", path.display())]
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

/// The file of a crate's packed kernels, in `OUT_DIR`.
const PACKED: &str = "kernels.ptx.br";

/// How well they are packed: a higher one is slow, and a build script is seldom optimised.
const QUALITY: i32 = 9;

/// Compiles a kernel crate to PTX, with the release profile.
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
    /// Compiles the crate in a folder.
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

    /// The architecture to compile for; [`NvvmArch::Compute70`] unless set.
    pub fn arch(mut self, arch: NvvmArch) -> Self {
        self.arch = arch;
        self
    }

    /// What the PTX says about its sources; [`DebugInfo::None`] unless set.
    pub fn debug(mut self, debug: DebugInfo) -> Self {
        self.debug = debug;
        self
    }

    /// Adds arguments for cargo, such as `--features`.
    pub fn build_args(mut self, args: &[impl AsRef<str>]) -> Self {
        self.build_args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Copies the PTX to a file.
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.copy_to = Some(path.as_ref().to_owned());
        self
    }

    /// The folder to build in, for cargo's own files.
    pub fn target_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.target_dir = Some(folder.as_ref().to_owned());
        self
    }

    /// In the build script of a crate whose kernels are those of a table, each named `NAME_BLOCK` for the threads of its blocks:
    /// compiles the crate and packs its kernels to `kernels.rs` in `OUT_DIR`, where `gpu_reduce_kernels::kernels!` includes it. For
    /// a crate that is compiled to PTX itself, it does nothing.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and [`CudaBuilderError::NotPtx`] where a kernel has another name.
    pub fn embed(self) -> Result<(), CudaBuilderError> {
        if env::var_os("CARGO_CFG_TARGET_ARCH").is_some_and(|architecture| architecture == "nvptx64") {
            return Ok(());
        }
        let file = self.build()?;
        let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
        let modules = split(&fs::read_to_string(&file).map_err(failed_at(&file))?);
        let modules = modules.iter().map(|(name, module)| (&**name, &**module));
        let packed = gpu_reduce_ptx::pack(PACKED, modules, QUALITY).ok_or(CudaBuilderError::NotPtx(file))?;
        write(&out.join(PACKED), &packed.bytes)?;
        write(&out.join("kernels.rs"), gpu_reduce_ptx::table([&packed].into_iter()).as_bytes())
    }

    /// Compiles the crate. Returns the PTX file: that of [`copy_to`](Self::copy_to) if it was called.
    ///
    /// In a build script, it is built in a folder of its own below `OUT_DIR`, and built again when something in the crate's
    /// folder changes, or a source of a dependency by `path`; elsewhere, in `target/cuda-builder` in that folder, unless
    /// [`target_dir`](Self::target_dir) names another. The PTX begins with a comment that says what compiled it.
    ///
    /// # Errors
    ///
    /// Where there is no crate or no device toolchain, where the crate does not compile or has no kernels, and where a file
    /// cannot be written.
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
        // In the place of an empty comment, so that lines keep their numbers.
        let rest = ptx.strip_prefix("//\n").unwrap_or(&ptx);
        let ptx = format!("// Generated from {name} by rustc {release}, LLVM {llvm}, for {cpu}\n{rest}");
        let file = self.copy_to.unwrap_or(file);
        write(&file, ptx.as_bytes())?;
        Ok(file)
    }

    /// Runs cargo; returns the PTX file, which has the package's name.
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
        // There is nothing to link: the assembly is the PTX.
        cargo.args(&self.build_args).args(["--", "-Zno-link"]).arg(emit);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", rustflags.join("\x1f")).stdout(Stdio::null());
        if !cargo.status().map_err(CudaBuilderError::CargoNotFound)?.success() {
            return Err(CudaBuilderError::BuildFailed(folder.to_owned()));
        }

        // Ends in `#name@version`, or, where the folder has the package's name, in `/name#version`.
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

    /// Cargo with the device toolchain, and with nothing that the build around it has set in the environment.
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
            // What a configuration file may set for the host's builds: no wrappers; the same code each time; and folders
            // that are not locked by the cargo that runs the build script.
            .env("RUSTC_WRAPPER", "")
            .env("RUSTC_WORKSPACE_WRAPPER", "")
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_TARGET_DIR", target_dir)
            .env("CARGO_BUILD_BUILD_DIR", target_dir);
        cargo
    }
}

/// Has cargo run the build script again when a source changes that is named in cargo's list beside what it built, in `folder`.
fn watch_sources(folder: &Path) -> Result<(), CudaBuilderError> {
    for entry in fs::read_dir(folder).map_err(failed_at(folder))? {
        let path = entry.map_err(failed_at(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "d") {
            let list = fs::read_to_string(&path).map_err(failed_at(&path))?;
            let sources = list.split_once(": ").map_or("", |(_, sources)| sources);
            // A space in a path has a backslash before it.
            for source in sources.replace("\\ ", "\0").split_whitespace() {
                println!("cargo::rerun-if-changed={}", source.replace('\0', " "));
            }
        }
    }
    Ok(())
}

/// Whether cargo gets an environment variable: all but those that a build sets for its rustc or its build scripts, which
/// are about another crate.
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

/// Writes a file, unless it has that content: a build that depends on it then has nothing to do.
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
