//! Reduces a file of numbers over the ranks of an MPI communicator:
//! `mpirun -n 4 mpi_reduce --dtype f32 numbers.raw`.
//!
//! Each rank reads and reduces its part. See the README.

mod error;
mod input;
#[expect(dead_code, reason = "this example does not use all of it")]
#[path = "../../../crates/cli/src/npy.rs"]
mod npy;

use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Instant;

use bytemuck::{NoUninit, bytes_of};
use clap::{Parser, ValueEnum};
use gpu_reduce::{
    ArgMax, Device, Element, ExactElement, ExactSum, LogSumExp, Max, Mean, Min, Op, Reduce, ReduceRanks, Sum,
    Var, View, bf16, f16,
};
use mpi::traits::*;

use error::Error;
use input::{Dtype, Input, InputArgs};

/// Threads per block; another number may change the bits of the result.
const BLOCK: u32 = 256;

/// Reduces a file of numbers; each rank reads its part.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    input: InputArgs,

    /// The reduction to compute.
    #[arg(long, default_value = "sum")]
    op: Operator,

    /// Each rank's share of the file, as weights such as 5,0,1,1000; equal by default.
    #[arg(long, value_delimiter = ',', value_name = "WEIGHTS")]
    split: Option<Vec<u32>>,

    /// Where ranks reduce: on the CPU, each on a GPU of its machine (in rotation), or on the emulator.
    #[arg(long, default_value = "cpu")]
    device: Place,

    /// Repeat the reduction this many times, and print the shortest time.
    #[arg(long, default_value_t = 1)]
    runs: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Operator {
    Sum,
    Min,
    Max,
    Argmax,
    Mean,
    Var,
    Logsumexp,
    ExactSum,
}

#[derive(Clone, Copy, ValueEnum)]
enum Place {
    Cpu,
    Cuda,
    Emulator,
}

impl Place {
    /// Opens the rank's device.
    fn open(self, world: &impl Communicator) -> Result<Device, gpu_reduce::Error> {
        match self {
            Place::Cpu => Ok(Device::cpu()),
            Place::Emulator => Device::emulator(),
            Place::Cuda => {
                let of_machine = world.split_shared(world.rank()).rank() as usize;
                match Device::cuda(of_machine) {
                    Err(gpu_reduce::Error::NoSuchDevice { count, .. }) if count > 0 => {
                        Device::cuda(of_machine % count)
                    }
                    device => device,
                }
            }
        }
    }
}

/// A result, formatted, and its time.
struct Reduced {
    value: String,
    bits: String,
    seconds: f64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(universe) = mpi::initialize() else {
        eprintln!("MPI is already initialised");
        return ExitCode::FAILURE;
    };
    let world = universe.world();
    match run(&world, &args) {
        Ok(()) => ExitCode::SUCCESS,
        // All ranks got this error.
        Err(Error::Reduce(error)) => {
            if world.rank() == 0 {
                eprintln!("{error}");
            }
            ExitCode::FAILURE
        }
        // Perhaps only this rank got the error, and the others are waiting.
        Err(error) => {
            eprintln!("rank {}: {error}", world.rank());
            world.abort(1)
        }
    }
}

fn run(world: &impl Communicator, args: &Args) -> Result<(), Error> {
    let input = Input::open(&args.input)?;
    macro_rules! reduced {
        ($($T:ident)*) => {
            match input.dtype() {
                $(Dtype::$T => reduce_file::<$T>(world, args, &input)?,)*
            }
        };
    }
    let (reduced, bytes) = reduced!(i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64);
    if world.rank() == 0 {
        let Reduced { value, bits, seconds } = reduced;
        println!("{value} {bits}");
        println!("{} ranks, {:.6} s, {:.2} GB/s", world.size(), seconds, bytes as f64 / seconds / 1e9);
    }
    Ok(())
}

/// Reduces a file of elements of type `T`; also returns the number of bytes.
fn reduce_file<T: Element + ExactElement<Rounded: NoUninit>>(
    world: &impl Communicator,
    args: &Args,
    input: &Input,
) -> Result<(Reduced, u64), Error> {
    let part = input.part::<T>(world.rank() as usize, world.size() as usize, args.split.as_deref())?;
    let buffer;
    let local = match args.device {
        Place::Cpu => part.data(),
        device => {
            buffer = device.open(world).and_then(|device| device.upload(&part)).map_err(Error::Device)?;
            buffer.view()
        }
    };
    macro_rules! reduced {
        ($($name:ident: $Op:ty,)*) => {
            match args.op {
                $(Operator::$name => reduce::<$Op, T>(world, local, args.runs)?,)*
            }
        };
    }
    let reduced = reduced! {
        Sum: Sum,
        Min: Min,
        Max: Max,
        Argmax: ArgMax,
        Mean: Mean,
        Var: Var,
        Logsumexp: LogSumExp,
        ExactSum: ExactSum,
    };
    Ok((reduced, input.bytes()))
}

fn reduce<O: Op<T, Output: NoUninit + Debug> + Default, T: Element>(
    world: &impl Communicator,
    local: View<'_, T>,
    runs: u32,
) -> Result<Reduced, gpu_reduce::Error> {
    let timed = || {
        world.barrier();
        let start = Instant::now();
        let value = world.reduce::<O, BLOCK>(&local)?;
        Ok((value, start.elapsed().as_secs_f64()))
    };
    let (value, mut seconds) = timed()?;
    for _ in 1..runs {
        seconds = timed()?.1.min(seconds);
    }
    let bits: String = bytes_of(&value).iter().rev().map(|byte| format!("{byte:02x}")).collect();
    Ok(Reduced { value: format!("{value:?}"), bits: format!("0x{bits}"), seconds })
}
