//! Reduces the numbers in files to their count, sum, minimum, maximum and mean, or reduces each row, column
//! or key:
//!
//! ```text
//! gpu-reduce [--op sum] [--device auto] [--dtype f32] [--column NAME,...]
//!     [--rows N | --columns N | --by NAME,... [--runs]]
//!     [--json | --csv] [--plot FILE.svg] [--output FILE.npy] FILE...
//! ```

mod args;
mod arrays;
mod columns;
mod conditions;
mod device;
mod division;
mod error;
mod fields;
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
mod quantile;
mod records;
mod report;
mod results;
mod rows;
mod slices;
mod table;
mod units;

use std::convert::Infallible;
use std::hint::black_box;
use std::io::{ErrorKind, Write as _, stdout};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use args::InputArgs;
use clap::{CommandFactory as _, Parser};
use clap_complete::Shell;
use device::DeviceArg;
use division::Division;
use error::Error;
use gpu_reduce::Device;
use input::{Files, Input};
use keys::Groups;
use numbers::{Numbers, Quantity};
use progress::Progress;
use quantile::Level;
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

    /// Compute these quantiles, separated by commas: 0.5 is the median. Between two numbers they are
    /// interpolated linearly, as NumPy does by default. They and median are computed on the CPU.
    #[arg(long, value_name = "LEVELS", value_delimiter = ',')]
    quantile: Vec<Level>,

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

    /// Print what makes this shell complete the options: in bash, `source <(gpu-reduce --completions bash)`.
    #[arg(long, value_name = "SHELL", exclusive = true)]
    completions: Option<Shell>,

    #[command(flatten)]
    input: InputArgs,
}

impl Args {
    /// Whether the user names no quantity.
    fn is_default(&self) -> bool {
        self.op.is_empty() && self.quantile.is_empty()
    }

    /// The quantities to compute: what `--op` and `--quantile` name, or the default.
    fn quantities(&self) -> Vec<Quantity> {
        const DEFAULT: &[Quantity] = &[Quantity::Sum, Quantity::Min, Quantity::Max, Quantity::Mean];
        let quantiles = self.quantile.iter().copied().map(Quantity::Quantile);
        let mut quantities: Vec<_> = self.op.iter().copied().chain(quantiles).collect();
        if self.is_default() {
            quantities = DEFAULT.to_vec();
        }
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
    if let Some(shell) = args.completions {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Args::command(), "gpu-reduce", &mut script);
        return stdout().write_all(&script).map_err(Error::Print);
    }
    if let Some(path) = args.plot.as_ref().filter(|path| !foreign::is_named(path, &["svg"])) {
        return Err(Error::NotSvgName { path: path.clone() });
    }
    let device = args.device.open()?;
    let start = Instant::now();
    let files = Files::open(&args.input)?;
    args.slices.check(&files, args.quantities().len())?;

    let mut input = files.read()?;
    let groups = Groups::of(input.take_keys())?;
    match args.slices.of(&input, groups, &device)? {
        Some(slices) => reduce_slices(&input, &slices, args, &device),
        None => reduce_columns(&input, args, &device, start),
    }
}

/// Reduces each column and prints the results. The load time counts from `start`.
fn reduce_columns(input: &Input, args: &Args, device: &Device, start: Instant) -> Result<(), Error> {
    let (mut reports, mut times) = (Vec::new(), Times::none(device));
    for (column, series) in input.columns.iter().enumerate() {
        let start = if column == 0 { start } else { Instant::now() };
        let mut numbers = numbers::of(series);
        let missing = input.skips_missing().then_some(input.missing(column));
        reports.push((input.name(column), report(&mut *numbers, missing, args, device, start, &mut times)?));
        if let Some(path) = &args.plot {
            match input.columns.len() {
                1 => numbers.histogram()?.draw(path)?,
                columns => return Err(Error::OneColumn { option: "plot", columns }),
            }
        }
    }
    args.format.format().print(&reports)?;
    times.print();
    Ok(())
}

/// Reduces the slices of each column and prints the results.
fn reduce_slices(input: &Input, slices: &Slices, args: &Args, device: &Device) -> Result<(), Error> {
    let mut results = Vec::new();
    for (column, series) in input.columns.iter().enumerate() {
        let mut numbers = numbers::of(series);
        load(&mut *numbers, device)?;
        let of_column = match input.absent(column) {
            [] => reduce_each(&*numbers, slices, &slices.division, args)?,
            absent => {
                let (division, places) = slices.division.without(absent, device)?;
                let results = reduce_each(&*numbers, slices, &division, args)?;
                results.into_iter().map(|(name, results)| (name, results.at(Some(places.clone())))).collect()
            }
        };
        let named = |(name, of_quantity): (String, Results)| match input.columns.len() {
            1 => (name, of_quantity),
            _ => (format!("{}_{name}", input.name(column)), of_quantity),
        };
        results.extend(of_column.into_iter().map(named));
    }
    args.slices.put(slices, &results, args.format.format())?;
    for column in (0..input.columns.len()).filter(|_| input.skips_missing()) {
        let name =
            if input.columns.len() == 1 { "missing" } else { &format!("{}_missing", input.name(column)) };
        say(&format!("{name}  {}", input.missing(column)));
    }
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

/// Reduces all numbers, and adds the times of loading (since `start`) and of reducing to the times so far.
/// `missing` is the number of rows left out.
fn report(
    numbers: &mut dyn Numbers,
    missing: Option<u64>,
    args: &Args,
    device: &Device,
    start: Instant,
    times: &mut Times,
) -> Result<Report, Error> {
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
            (_, None) if bytes == 0 => " (empty input)".into(),
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
    times.add(load, reduced.time, reduced.passes * bytes);
    Ok(report)
}

/// Computes each quantity of `args` for each slice of a column; returns them with their names.
fn reduce_each(
    numbers: &dyn Numbers,
    slices: &Slices,
    division: &Division,
    args: &Args,
) -> Result<Vec<(String, Results)>, Error> {
    let each = |quantity: Quantity| match numbers.reduce_each(division, quantity, args.ddof) {
        Ok(results) => Ok(Some((quantity.name(), results))),
        Err(Error::NotOfUnit { .. }) if args.is_default() => Ok(None),
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
    args.quantities().into_iter().filter_map(|quantity| each(quantity).transpose()).collect()
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
    let mut wanted = args.quantities();
    // Each report has it.
    wanted.retain(|&quantity| quantity != Quantity::Count);
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
            Err(Error::Reduce(gpu_reduce::Error::EmptyInput { .. })) if args.is_default() => None,
            Err(Error::NotOfUnit { .. }) if args.is_default() => None,
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
