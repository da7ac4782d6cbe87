//! Reduces the numbers in a file, and prints their count, sum, minimum, maximum and mean; or those of each row, column
//! or key, as CSV:
//!
//! ```text
//! cargo run --release --example reduce -- [--op sum] [--device auto] [--dtype f32] [--column NAME]
//!     [--header | --no-header | --raw] [--rows N | --columns N | --by NAME [--sort]] [--output FILE.npy] FILE
//! ```

#[path = "common/device.rs"]
mod device;

/// The files in `examples/reduce/`.
mod reduce {
    pub mod error;
    mod foreign;
    pub mod input;
    pub mod keys;
    mod npy;
    pub mod numbers;
    pub mod progress;
    pub mod results;
    pub mod slices;
    mod table;
}

use std::convert::Infallible;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use device::DeviceArg;
use gpu_reduce::Device;
use reduce::error::Error;
use reduce::input::{Input, InputArgs};
use reduce::keys::Keys;
use reduce::numbers::{self, Numbers, Quantity};
use reduce::progress::Progress;
use reduce::results::Results;
use reduce::slices::{Slices, SlicesArgs};

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
    slices: SlicesArgs,

    #[command(flatten)]
    input: InputArgs,
}

impl Args {
    /// What to compute; the default where nothing is asked for.
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
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does what `args` ask for.
fn run(args: &Args) -> Result<(), Error> {
    let input = Input::open(&args.input)?;
    args.slices.check(&input, args.quantities().len())?;
    let device = args.device.open()?;

    let start = Instant::now();
    let (mut numbers, keys) = numbers::of(&input)?;
    let numbers = &mut *numbers;
    let mut keys = keys.map(Keys::ranked);
    if let Some(keys) = keys.as_mut().filter(|_| args.slices.sort()) {
        numbers.permute(&keys.sort());
    }
    let count = numbers.bytes().len() / numbers.size();
    match args.slices.of(&input, count, keys, &device)? {
        Some(slices) => {
            load(numbers, &device)?;
            args.slices.put(&slices, &reduce_each(numbers, &slices, args)?)
        }
        None => {
            let report = report(numbers, args, &device, start)?;
            io::stdout().write_all(report.as_bytes()).map_err(Error::Print)
        }
    }
}

/// Puts the numbers where they are reduced.
fn load(numbers: &mut dyn Numbers, device: &Device) -> Result<(), Error> {
    if device.is_cpu() {
        read_ahead(numbers.bytes());
        return Ok(());
    }
    let (size, bytes) = (numbers.size(), numbers.bytes().len());
    numbers.allocate(device)?;
    Ok(in_pieces("uploading", bytes, |piece| numbers.upload(piece.start / size..piece.end / size))?)
}

/// The report on numbers, which have been read since `start`.
fn report(numbers: &mut dyn Numbers, args: &Args, device: &Device, start: Instant) -> Result<String, Error> {
    load(numbers, device)?;
    if !device.is_cpu() {
        // Loads the kernels, so that the time below is that of the reductions alone.
        reduce(numbers, args)?;
    }
    let load = start.elapsed();
    let reduced = reduce(numbers, args)?;

    let bytes = numbers.bytes().len();
    let gigabytes = (reduced.passes * bytes) as f64 / 1e9;
    let mut lines = vec![("count".to_owned(), (bytes / numbers.size()).to_string())];
    lines.extend(reduced.quantities);
    lines.push(("device".to_owned(), device.to_string()));
    lines.push(("load".to_owned(), format!("{load:.3?}")));
    lines.push(("time".to_owned(), format!("{:.3?}", reduced.time)));
    lines.push(("GB/s".to_owned(), format!("{:.2}", gigabytes / reduced.time.as_secs_f64())));
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    Ok(lines.into_iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect())
}

/// Computes what `args` ask for of each slice of the numbers, where they lie: each quantity by name.
fn reduce_each(numbers: &dyn Numbers, slices: &Slices, args: &Args) -> Result<Vec<(String, Results)>, Error> {
    let each = |quantity: Quantity| match numbers.reduce_each(slices, quantity, args.ddof) {
        Ok(results) => Ok((quantity.name(), results)),
        Err(Error::Reduce(gpu_reduce::Error::NoKernel { .. })) => {
            Err(Error::NotOnGpus { quantity: quantity.name() })
        }
        Err(Error::Reduce(gpu_reduce::Error::EmptySegment { segment, .. })) => {
            Err(Error::EmptySlice { quantity: quantity.name(), slice: slices.name.clone(), index: segment })
        }
        Err(error) => Err(error),
    };
    args.quantities().into_iter().map(each).collect()
}

/// What [`reduce`] found.
struct Reduced {
    /// Each quantity by name.
    quantities: Vec<(String, String)>,
    /// How many passes over the data it took.
    passes: usize,
    time: Duration,
}

impl Reduced {
    /// Computes a quantity in one pass.
    fn pass(&mut self, numbers: &mut dyn Numbers, quantity: Quantity, ddof: u64) -> Result<String, Error> {
        let start = Instant::now();
        let value = numbers.reduce(quantity, ddof)?;
        self.time += start.elapsed();
        self.passes += 1;
        Ok(value)
    }
}

/// Computes what `args` ask for of the numbers, where they lie: if nothing is asked for, their sum, minimum, maximum and mean.
fn reduce(numbers: &mut dyn Numbers, args: &Args) -> Result<Reduced, Error> {
    let wanted = args.quantities();
    let mut reduced = Reduced { quantities: Vec::new(), passes: 0, time: Duration::ZERO };
    let is_empty = numbers.bytes().is_empty();
    for &quantity in &wanted {
        let value = match quantity {
            Quantity::Min | Quantity::Max | Quantity::Mean if is_empty && args.op.is_empty() => {
                "none (empty input)".to_owned()
            }
            Quantity::Mean if is_empty => return Err(Error::EmptyMean),
            // It is made of the sum: where both are wanted, there is one pass for them.
            Quantity::Mean if wanted.contains(&Quantity::Sum) => numbers.reduce(quantity, args.ddof)?,
            Quantity::Var | Quantity::Std | Quantity::Nanvar | Quantity::Nanstd => {
                format!("{} (ddof {})", reduced.pass(numbers, quantity, args.ddof)?, args.ddof)
            }
            _ => reduced.pass(numbers, quantity, args.ddof)?,
        };
        reduced.quantities.push((quantity.name(), value));
    }
    Ok(reduced)
}

/// Touches each page of mapped numbers, so that the disk's time is not taken for the reductions'.
fn read_ahead(bytes: &[u8]) {
    const PAGE: usize = 4096;
    let Ok(()) = in_pieces("reading", bytes.len(), |piece| {
        bytes[piece].iter().step_by(PAGE).for_each(|byte| _ = black_box(*byte));
        Ok::<_, Infallible>(())
    });
}

/// Does `work` on so many bytes in pieces, and shows the progress.
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
