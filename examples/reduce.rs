//! Reduces the numbers in a file, and prints their count, sum, minimum, maximum and mean:
//!
//! ```text
//! cargo run --release --example reduce -- [--op sum] [--device auto] [--dtype f32] [--column NAME]
//!     [--header | --no-header | --raw] FILE
//! ```

#[path = "common/device.rs"]
mod device;

/// The files in `examples/reduce/`.
mod reduce {
    pub mod error;
    mod foreign;
    pub mod input;
    pub mod mean;
    mod npy;
    pub mod progress;
    mod table;
}

use std::convert::Infallible;
use std::fmt::Debug;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use device::DeviceArg;
use gpu_reduce::{Buffer, Device, Element, Op, Reduce, Sum, bf16, f16};
use reduce::error::Error;
use reduce::input::{Dtype, Input, InputArgs};
use reduce::mean::Mean;
use reduce::progress::Progress;

/// Reduces the numbers in a file: by default to their count, sum, minimum, maximum and mean.
#[derive(Parser)]
struct Args {
    /// What to compute, instead of the default; several are separated by commas.
    ///
    /// Sums and products of integers up to 32 bits have 64 bits; those of 64-bit integers wrap.
    #[arg(long, value_delimiter = ',')]
    op: Vec<Quantity>,

    /// Where to compute: auto, cpu, cuda:N (the GPU of index N), or emulator (a GPU in software, with cargo's `--features emulator`).
    #[arg(long, default_value = "auto")]
    device: DeviceArg,

    #[command(flatten)]
    input: InputArgs,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Quantity {
    Sum,
    Prod,
    Min,
    Max,
    Mean,
}

fn main() -> ExitCode {
    let printed = run(&Args::parse())
        .and_then(|report| io::stdout().write_all(report.as_bytes()).map_err(Error::Print));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The report on the file that `args` name.
fn run(args: &Args) -> Result<String, Error> {
    let input = Input::open(&args.input)?;
    macro_rules! run_typed {
        ($($T:ident)*) => {
            match input.dtype() { $(Dtype::$T => run_typed::<$T>(&input, args),)* }
        };
    }
    run_typed!(i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64)
}

/// [`run`] for numbers of type `T`.
fn run_typed<T>(input: &Input, args: &Args) -> Result<String, Error>
where
    T: Mean + FromStr,
    Sum: Op<T>,
{
    let device = match args.device {
        DeviceArg::Auto => Device::default_device(),
        DeviceArg::Cpu => Device::cpu(),
        DeviceArg::Cuda(index) => Device::cuda(index)?,
        DeviceArg::Emulator => Device::emulator()?,
    };

    let start = Instant::now();
    let values = input.values::<T>()?;
    let count = values.len();
    let (load, reduced) = if device.is_cpu() {
        read_ahead(&values);
        (start.elapsed(), reduce(&*values, &args.op)?)
    } else {
        let buffer = upload(&device, &values)?;
        // Loads the kernels, so that the time below is that of the reductions alone.
        reduce(&buffer, &args.op)?;
        (start.elapsed(), reduce(&buffer, &args.op)?)
    };

    let gigabytes = (reduced.passes * size_of_val(&*values)) as f64 / 1e9;
    let mut lines = vec![("count", count.to_string())];
    lines.extend(reduced.quantities);
    lines.extend(reduced.sum_for_mean.map(|sum| ("mean", show(T::mean(&values, sum)))));
    lines.push(("device", device.to_string()));
    lines.push(("load", format!("{load:.3?}")));
    lines.push(("time", format!("{:.3?}", reduced.time)));
    lines.push(("GB/s", format!("{:.2}", gigabytes / reduced.time.as_secs_f64())));
    Ok(lines.into_iter().map(|(name, value)| format!("{name:<6}  {value}\n")).collect())
}

/// What [`reduce`] found.
struct Reduced<S> {
    /// Each quantity by name, but the mean.
    quantities: Vec<(&'static str, String)>,
    /// The sum to make the mean of, where it is wanted.
    sum_for_mean: Option<S>,
    /// How many passes over the data it took.
    passes: usize,
    time: Duration,
}

/// Computes what is `asked` of the numbers in `data`, where they lie: if nothing is, all but the product; if there are no
/// numbers besides, their sum.
fn reduce<D>(data: &D, asked: &[Quantity]) -> Result<Reduced<<Sum as Op<D::Item>>::Output>, Error>
where
    D: Reduce<Item: Element> + ?Sized,
    Sum: Op<D::Item>,
{
    let count = data.len();
    let wanted = match asked {
        [] if count == 0 => &[Quantity::Sum],
        [] => &[Quantity::Sum, Quantity::Min, Quantity::Max, Quantity::Mean][..],
        _ => asked,
    };
    let wants = |quantity| wanted.contains(&quantity);
    if wants(Quantity::Mean) && count == 0 {
        return Err(Error::EmptyMean);
    }

    let start = Instant::now();
    let sum = (wants(Quantity::Sum) || wants(Quantity::Mean)).then(|| gpu_reduce::sum(data)).transpose()?;
    let prod = wants(Quantity::Prod).then(|| gpu_reduce::prod(data)).transpose()?;
    let min = wants(Quantity::Min).then(|| gpu_reduce::min(data)).transpose()?;
    let max = wants(Quantity::Max).then(|| gpu_reduce::max(data)).transpose()?;
    let time = start.elapsed();

    let passes = [sum.is_some(), prod.is_some(), min.is_some(), max.is_some()]
        .into_iter()
        .filter(|&done| done)
        .count();
    let none = || (asked.is_empty() && count == 0).then(|| "none (empty input)".to_owned());
    let quantities = [
        ("sum", sum.filter(|_| wants(Quantity::Sum)).map(show)),
        ("prod", prod.map(show)),
        ("min", min.map(show).or_else(none)),
        ("max", max.map(show).or_else(none)),
        ("mean", none()),
    ];
    let quantities = quantities.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    Ok(Reduced { quantities, sum_for_mean: sum.filter(|_| wants(Quantity::Mean)), passes, time })
}

/// A number with as many digits as tell it from its neighbours; a float keeps its point.
fn show(number: impl Debug) -> String {
    format!("{number:?}")
}

/// Touches each page of mapped values, so that the disk's time is not taken for the reductions'.
fn read_ahead<T: Element>(values: &[T]) {
    const PAGE: usize = 4096;
    let Ok(()) = in_pieces("reading", values, |_, piece| {
        piece.iter().step_by(PAGE / size_of::<T>()).for_each(|value| _ = black_box(*value));
        Ok::<_, Infallible>(())
    });
}

/// Copies `values` to the device.
fn upload<T: Element>(device: &Device, values: &[T]) -> Result<Buffer<T>, gpu_reduce::Error> {
    let mut buffer = device.zeros(values.len())?;
    in_pieces("uploading", values, |start, piece| buffer.write(start, piece))?;
    Ok(buffer)
}

/// Does `work` on `values` in pieces, each with the index of its first value, and shows the progress.
fn in_pieces<T, E>(
    what: &'static str,
    values: &[T],
    mut work: impl FnMut(usize, &[T]) -> Result<(), E>,
) -> Result<(), E> {
    const PIECE: usize = 64 << 20;
    let size = size_of::<T>();
    let progress = Progress::new(what, size_of_val(values));
    for (piece, start) in values.chunks(PIECE / size).zip((0..).step_by(PIECE / size)) {
        progress.set(start * size);
        work(start, piece)?;
    }
    Ok(())
}
