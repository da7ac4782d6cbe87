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
    mod npy;
    pub mod numbers;
    pub mod progress;
    mod table;
}

use std::convert::Infallible;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use device::DeviceArg;
use gpu_reduce::Device;
use reduce::error::Error;
use reduce::input::{Input, InputArgs};
use reduce::numbers::{self, Numbers, Quantity};
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
    let device = match args.device {
        DeviceArg::Auto => Device::default_device(),
        DeviceArg::Cpu => Device::cpu(),
        DeviceArg::Cuda(index) => Device::cuda(index)?,
        DeviceArg::Emulator => Device::emulator()?,
    };

    let start = Instant::now();
    let mut numbers = numbers::of(&input)?;
    let numbers = &mut *numbers;
    let (size, bytes) = (numbers.size(), numbers.bytes().len());
    let (load, reduced) = if device.is_cpu() {
        read_ahead(numbers.bytes());
        (start.elapsed(), reduce(numbers, args)?)
    } else {
        numbers.allocate(&device)?;
        in_pieces("uploading", bytes, |piece| numbers.upload(piece.start / size..piece.end / size))?;
        // Loads the kernels, so that the time below is that of the reductions alone.
        reduce(numbers, args)?;
        (start.elapsed(), reduce(numbers, args)?)
    };

    let gigabytes = (reduced.passes * bytes) as f64 / 1e9;
    let mut lines = vec![("count".to_owned(), (bytes / size).to_string())];
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
    const DEFAULT: &[Quantity] = &[Quantity::Sum, Quantity::Min, Quantity::Max, Quantity::Mean];
    let mut wanted = if args.op.is_empty() { DEFAULT.to_vec() } else { args.op.clone() };
    wanted.sort();
    wanted.dedup();
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
        let name = quantity.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
        reduced.quantities.push((name, value));
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
