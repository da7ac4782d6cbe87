//! The functions of the CUDA runtime, for whole CUDA programs on the emulator.
//!
//! nvcc 13 links a program to this library in place of NVIDIA's runtime. The program itself does not change:
//!
//! ```text
//! cargo build --release -p gpu_reduce_cudart
//! nvcc -cudart none -arch=compute_80 -code=compute_80 --no-compress program.cu -o program \
//!     -L target/release -lgpu_reduce_cudart -Xlinker -rpath="$PWD/target/release"
//! ./program
//! ```
//!
//! - `-cudart none` leaves out NVIDIA's runtime.
//! - `-arch=compute_80 -code=compute_80` puts the kernels' PTX into the program, which the emulator runs, and
//!   no machine code. PTX for `compute_90` runs, too, unless it uses what the emulator lacks: bulk copies,
//!   which `thrust::transform` then has, and clusters.
//! - `--no-compress` keeps the PTX readable.
//! - `-lineinfo`, besides, gives faults the lines of the source.
//!
//! The emulator prints each fault to standard error when it finds it. At the end, a program with faults exits
//! with status 1, whatever its own status. The environment variables `GPU_REDUCE_EMULATOR_…` of the emulator
//! apply, for example `GPU_REDUCE_EMULATOR_SEED`, which runs blocks and warps in a random order.
//!
//! # What is not there
//!
//! The library has the functions and structs of CUDA 13.0. A program that another major version's nvcc
//! compiles does not link, or reads wrong fields of `cudaDeviceProp`.
//!
//! The functions in `unsupported.rs` fail with `cudaErrorNotSupported` and print their name: textures and
//! arrays, graphs that are built node by node, memory of other processes. Programs with several files of device
//! code that are linked to each other (`-rdc=true`) do not link. A `__managed__` variable belongs to the first
//! device that uses its file's kernels.
//!
//! # How a program finds its kernels
//!
//! Before `main`, code that nvcc adds calls `__cudaRegisterFatBinary` with the fat binary of each source
//! file, and `__cudaRegisterFunction` with each kernel: the address of its function on the host and its name
//! in the PTX. A launch names that address. The first launch of a file's kernels loads its PTX into the
//! device's primary context.

mod device;
mod driver;
mod error;
mod exit;
mod launch;
mod memory;
mod module;
mod pool;
mod runtime;
mod stream;
mod unsupported;
mod volume;
