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
use gpu_reduce::{Buffer, Device, Element, Op, Reduce, Std, Sum, Var, View, bf16, f16};
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

    /// Degrees of freedom that var and std take off the count: 0 for a whole population, 1 for a sample.
    #[arg(long, default_value_t = 0)]
    ddof: u64,

    /// Where to compute: auto, cpu, cuda:N (the GPU of index N), or emulator (a GPU in software, with cargo's `--features emulator`).
    #[arg(long, default_value = "auto")]
    device: DeviceArg,

    #[command(flatten)]
    input: InputArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Quantity {
    Sum,
    Prod,
    Min,
    Max,
    Minmax,
    Mean,
    Var,
    Std,
    Sumsq,
    NormL1,
    NormL2,
    NormMax,
    Argmin,
    Argmax,
    Any,
    All,
    CountNonzero,
    CountNan,
    Nansum,
    Nanmin,
    Nanmax,
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
        (start.elapsed(), reduce(values.data(), &values, args)?)
    } else {
        let buffer = upload(&device, &values)?;
        // Loads the kernels, so that the time below is that of the reductions alone.
        reduce(buffer.view(), &values, args)?;
        (start.elapsed(), reduce(buffer.view(), &values, args)?)
    };

    let gigabytes = (reduced.passes * size_of_val(&*values)) as f64 / 1e9;
    let mut lines = vec![("count".to_owned(), count.to_string())];
    lines.extend(reduced.quantities);
    lines.push(("device".to_owned(), device.to_string()));
    lines.push(("load".to_owned(), format!("{load:.3?}")));
    lines.push(("time".to_owned(), format!("{:.3?}", reduced.time)));
    lines.push(("GB/s".to_owned(), format!("{:.2}", gigabytes / reduced.time.as_secs_f64())));
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    Ok(lines.into_iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect())
}

/// What [`reduce`] found.
struct Reduced {
    /// Each quantity by name.
    quantities: Vec<(String, String)>,
    /// How many passes over the data it took.
    passes: usize,
    time: Duration,
}

/// Computes what `args` ask for of the numbers in `data`, where they lie, which are `values`: if nothing is asked for, their sum,
/// minimum, maximum and mean.
fn reduce<T: Mean>(data: View<'_, T>, values: &[T], args: &Args) -> Result<Reduced, Error>
where
    Sum: Op<T>,
{
    const DEFAULT: &[Quantity] = &[Quantity::Sum, Quantity::Min, Quantity::Max, Quantity::Mean];
    let mut wanted = if args.op.is_empty() { DEFAULT.to_vec() } else { args.op.clone() };
    wanted.sort();
    wanted.dedup();
    let mut reduced = Reduced { quantities: Vec::new(), passes: 0, time: Duration::ZERO };
    // A mean is made of the sum: where both are wanted, there is one pass for them.
    let mut sum = None;
    for quantity in wanted {
        let start = Instant::now();
        let value = if values.is_empty() && args.op.is_empty() && quantity != Quantity::Sum {
            "none (empty input)".to_owned()
        } else if matches!(quantity, Quantity::Sum | Quantity::Mean) {
            if quantity == Quantity::Mean && values.is_empty() {
                return Err(Error::EmptyMean);
            }
            let sum = match sum {
                Some(sum) => sum,
                None => {
                    reduced.passes += 1;
                    *sum.insert(gpu_reduce::sum(&data)?)
                }
            };
            reduced.time += start.elapsed();
            if quantity == Quantity::Sum { show(sum) } else { show(T::mean(values, sum)) }
        } else {
            let value = quantity.of(data, values, args.ddof)?;
            reduced.passes += 1;
            reduced.time += start.elapsed();
            value
        };
        let name = quantity.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
        reduced.quantities.push((name, value));
    }
    Ok(reduced)
}

impl Quantity {
    /// The quantity of `data`, which are `values`, as text: an index with its value, a spread with its degrees of freedom.
    fn of<T: Element>(self, data: View<'_, T>, values: &[T], ddof: u64) -> Result<String, gpu_reduce::Error> {
        let place = |index: u64| format!("{index} ({})", show(values[index as usize]));
        let of_freedom = |value: String| format!("{value} (ddof {ddof})");
        const BLOCK: u32 = 512;
        Ok(match self {
            Self::Sum => show(gpu_reduce::sum(&data)?),
            Self::Prod => show(gpu_reduce::prod(&data)?),
            Self::Min => show(gpu_reduce::min(&data)?),
            Self::Max => show(gpu_reduce::max(&data)?),
            Self::Minmax => gpu_reduce::minmax(&data)?.map(show).join(" "),
            Self::Mean => show(gpu_reduce::mean(&data)?),
            Self::Var => of_freedom(show(data.reduce_by::<Var, BLOCK>(Var { ddof })?)),
            Self::Std => of_freedom(show(data.reduce_by::<Std, BLOCK>(Std { ddof })?)),
            Self::Sumsq => show(gpu_reduce::sumsq(&data)?),
            Self::NormL1 => show(gpu_reduce::norm_l1(&data)?),
            Self::NormL2 => show(gpu_reduce::norm_l2(&data)?),
            Self::NormMax => show(gpu_reduce::norm_max(&data)?),
            Self::Argmin => place(gpu_reduce::argmin(&data)?),
            Self::Argmax => place(gpu_reduce::argmax(&data)?),
            Self::Any => show(gpu_reduce::any(&data)?),
            Self::All => show(gpu_reduce::all(&data)?),
            Self::CountNonzero => show(gpu_reduce::count_nonzero(&data)?),
            Self::CountNan => show(gpu_reduce::count_nan(&data)?),
            Self::Nansum => show(gpu_reduce::nansum(&data)?),
            Self::Nanmin => show(gpu_reduce::nanmin(&data)?),
            Self::Nanmax => show(gpu_reduce::nanmax(&data)?),
        })
    }
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
