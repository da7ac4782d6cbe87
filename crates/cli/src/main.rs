//! Reduces the numbers in files to their count, sum, minimum, maximum and mean, or reduces each row, column
//! or key:
//!
//! ```text
//! gpu-reduce [--op sum] [--device auto] [--dtype f32] [--column NAME]
//!     [--rows N | --columns N | --by NAME,... [--runs]]
//!     [--json | --csv] [--plot FILE.svg] [--output FILE.npy] FILE...
//! ```

mod columns;
mod device;
mod error;
mod file;
mod foreign;
mod histogram;
mod inferred;
mod input;
mod keys;
mod memory;
mod npy;
mod npz;
mod numbers;
mod progress;
mod records;
mod report;
mod results;
mod slices;
mod table;

use std::convert::Infallible;
use std::hint::black_box;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use device::DeviceArg;
use error::Error;
use gpu_reduce::Device;
use input::{Files, InputArgs};
use keys::Groups;
use numbers::{Numbers, Quantity};
use progress::Progress;
use report::{FormatArgs, Report, Times, say};
use results::Results;
use slices::{Slices, SlicesArgs};

/// Reduces the numbers in files to their count, sum, minimum, maximum and mean, or by the operators of --op.
///
/// Results go to standard output; the device, times and notes go to standard error.
#[derive(Parser)]
#[command(name = "gpu-reduce", version)]
struct Args {
    /// What to compute, separated by commas, instead of the default.
    ///
    /// Sums and products of integers of up to 32 bits have 64 bits; those of 64-bit integers wrap. In a CSV
    /// column read as i64 without --dtype, a sum that does not fit has 128 bits; a product or sumsq that does
    /// not fit is f64, with a note.
    #[arg(long, value_delimiter = ',')]
    op: Vec<Quantity>,

    /// Degrees of freedom subtracted from the count in var and std: 0 for a population, 1 for a sample.
    #[arg(long, default_value_t = 0)]
    ddof: u64,

    /// Where to compute: auto, cpu, cuda:N (GPU number N), or emulator (a GPU in software; needs cargo's
    /// `--features emulator`).
    #[arg(long, default_value = "auto")]
    device: DeviceArg,

    #[command(flatten)]
    slices: SlicesArgs,

    #[command(flatten)]
    format: FormatArgs,

    /// Draw a histogram of the numbers, as SVG.
    #[arg(long, value_name = "FILE.svg", conflicts_with = "slices")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    input: InputArgs,
}

impl Args {
    /// The quantities to compute: what `--op` names, or the default.
    fn quantities(&self) -> Vec<Quantity> {
        const DEFAULT: &[Quantity] = &[Quantity::Sum, Quantity::Min, Quantity::Max, Quantity::Mean];
        let mut quantities = if self.op.is_empty() { DEFAULT.to_vec() } else { self.op.clone() };
        quantities.sort();
        quantities.dedup();
        quantities
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe, as in `gpu-reduce ... | head -1`.
        Err(Error::Print(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the program.
fn run(args: &Args) -> Result<(), Error> {
    if let Some(path) = args.plot.as_ref().filter(|path| !foreign::is_named(path, &["svg"])) {
        return Err(Error::NotSvgName { path: path.clone() });
    }
    let device = args.device.open()?;
    let start = Instant::now();
    let files = Files::open(&args.input)?;
    args.slices.check(&files, args.quantities().len())?;

    let input = files.typed()?;
    let (mut numbers, rows) = numbers::of(&input)?;
    let numbers = &mut *numbers;
    let count = numbers.bytes().len() / numbers.size();
    let missing = input.skips_missing().then_some(rows.missing);
    if let Some(slices) = args.slices.of(&input, count, Groups::of(rows.keys)?, &device)? {
        load(numbers, &device)?;
        let results = reduce_each(numbers, &slices, args)?;
        args.slices.put(&slices, &results, args.format.format())?;
        if let Some(missing) = missing {
            say(&format!("missing  {missing}"));
        }
        return Ok(());
    }
    let (report, times) = report(numbers, missing, args, &device, start)?;
    if let Some(path) = &args.plot {
        numbers.histogram().draw(path)?;
    }
    args.format.format().print(&report)?;
    times.print();
    Ok(())
}

/// Copies the numbers to the device, or reads mapped files ahead on the CPU.
fn load(numbers: &mut dyn Numbers, device: &Device) -> Result<(), Error> {
    if device.is_cpu() {
        read_ahead(numbers.bytes());
        return Ok(());
    }
    let (size, bytes) = (numbers.size(), numbers.bytes().len());
    numbers.allocate(device)?;
    Ok(in_pieces("uploading", bytes, |piece| numbers.upload(piece.start / size..piece.end / size))?)
}

/// Reduces all numbers. The load time counts from `start`; `missing` is the number of rows left out.
fn report(
    numbers: &mut dyn Numbers,
    missing: Option<u64>,
    args: &Args,
    device: &Device,
    start: Instant,
) -> Result<(Report, Times), Error> {
    load(numbers, device)?;
    let bytes = numbers.bytes().len();
    let mut report = Report::new(bytes / numbers.size());
    if let Some(missing) = missing {
        report.number("missing", missing);
    }
    if !device.is_cpu() {
        // The first pass loads the kernels, so that the time below has the reductions alone.
        reduce(numbers, missing, args)?;
    }
    let load = start.elapsed();
    let reduced = reduce(numbers, missing, args)?;
    for (quantity, result) in &reduced.quantities {
        let note = match (quantity, result) {
            (Quantity::Var | Quantity::Std | Quantity::Nanvar | Quantity::Nanstd, Some(_)) => {
                format!(" (ddof {})", args.ddof)
            }
            (
                Quantity::Argmin | Quantity::Argmax | Quantity::Nanargmin | Quantity::Nanargmax,
                Some(place),
            ) => {
                let index = place.texts(0).next().and_then(|index| index.parse().ok());
                index.map_or(String::new(), |index| format!(" ({})", numbers.text(index)))
            }
            _ => String::new(),
        };
        report.result(&quantity.name(), result.as_ref(), &note);
    }
    let speed = (reduced.passes * bytes) as f64 / 1e9 / reduced.time.as_secs_f64();
    Ok((report, Times { device: device.to_string(), load, time: reduced.time, speed }))
}

/// Computes each quantity of `args` for each slice; returns them with their names.
fn reduce_each(numbers: &dyn Numbers, slices: &Slices, args: &Args) -> Result<Vec<(String, Results)>, Error> {
    let each = |quantity: Quantity| match numbers.reduce_each(slices, quantity, args.ddof) {
        Ok(results) => Ok((quantity.name(), results)),
        Err(Error::Reduce(gpu_reduce::Error::NoKernel { .. })) => {
            Err(Error::NotOnGpus { quantity: quantity.name() })
        }
        Err(Error::Reduce(gpu_reduce::Error::EmptySegment { segment, .. })) => Err(Error::EmptySlice {
            quantity: quantity.name(),
            slice: slices.names().join(","),
            index: segment,
        }),
        Err(error) => Err(error),
    };
    args.quantities().into_iter().map(each).collect()
}

/// The results of [`reduce`].
struct Reduced {
    /// Each quantity, with its result if it has one.
    quantities: Vec<(Quantity, Option<Results>)>,
    /// Passes over the data.
    passes: usize,
    time: Duration,
}

/// Computes each quantity of `args` over all numbers.
fn reduce(numbers: &dyn Numbers, missing: Option<u64>, args: &Args) -> Result<Reduced, Error> {
    let wanted = args.quantities();
    let mut reduced = Reduced { quantities: Vec::new(), passes: 0, time: Duration::ZERO };
    let bytes = numbers.bytes().len();
    let progress = Progress::new("reducing", wanted.len() * bytes);
    for (index, &quantity) in wanted.iter().enumerate() {
        progress.set(index * bytes);
        let start = Instant::now();
        let result = match quantity {
            Quantity::Mean if bytes == 0 => Err(gpu_reduce::Error::EmptyInput { op: "mean" }.into()),
            _ => numbers.reduce(quantity, args.ddof),
        };
        reduced.time += start.elapsed();
        reduced.passes += 1;
        let result = match result {
            Ok(result) => Some(result),
            Err(Error::Reduce(gpu_reduce::Error::EmptyInput { .. })) if args.op.is_empty() => None,
            Err(Error::Reduce(gpu_reduce::Error::EmptyInput { .. })) => {
                let without =
                    missing.map_or(String::new(), |missing| format!(" without its {missing} missing values"));
                return Err(Error::Empty { quantity: quantity.name(), without });
            }
            Err(error) => return Err(error),
        };
        reduced.quantities.push((quantity, result));
    }
    Ok(reduced)
}

/// Touches each page of mapped numbers, so that reading the disk does not count as reduction time.
fn read_ahead(bytes: &[u8]) {
    const PAGE: usize = 4096;
    let Ok(()) = in_pieces("reading", bytes.len(), |piece| {
        bytes[piece].iter().step_by(PAGE).for_each(|byte| _ = black_box(*byte));
        Ok::<_, Infallible>(())
    });
}

/// Calls `work` on consecutive pieces of `bytes` bytes and shows the progress.
fn in_pieces<E>(
    what: &'static str,
    bytes: usize,
    mut work: impl FnMut(Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    const PIECE: usize = 64 << 20;
    let progress = Progress::new(what, bytes);
    for start in (0..bytes).step_by(PIECE) {
        progress.set(start);
        work(start..bytes.min(start + PIECE))?;
    }
    Ok(())
}
