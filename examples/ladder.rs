//! Runs the ladder of classic reduction kernels: times them on a GPU, and counts on the emulator what
//! explains the times.
//!
//! ```text
//! cargo run --release -p gpu_reduce_examples --example ladder -- [--n 2^26 | --sweep 2^1..2^30]
//!     [--type i32] [--threads 1024] [--variant sequential,production] [--device auto]
//!     [--csv FILE] [--json FILE] [--svg FOLDER]
//! cargo run --release -p gpu_reduce_examples --example ladder -- --from FILE.csv --svg FOLDER
//! ```

/// The files in `examples/common/`.
#[path = "common"]
mod common {
    pub mod chart;
    #[path = "../../crates/cli/src/device.rs"]
    pub mod device;
    pub mod table;
}

/// The files in `examples/ladder/`.
mod ladder {
    pub mod chart;
    pub mod error;
    pub mod length;
    pub mod measure;
    pub mod record;
    pub mod rung;
    mod sample;
    pub mod table;
}

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use clap::builder::PossibleValuesParser;
use common::device::DeviceArg;
use gpu_reduce::{BLOCKS, Device};
use ladder::error::Error;
use ladder::length::{Length, Sweep};
use ladder::measure::{Dtype, Job};
use ladder::record::{Record, read, to_csv, to_json};
use ladder::rung::names;
use ladder::{chart, record, table};

/// The most elements to count on the emulator, beside times or without a GPU.
const COUNTED: usize = 1 << 20;

/// Runs the ladder of classic reduction kernels: times them on a GPU, and counts on the emulator what
/// explains the times.
///
/// Compares each result with the CPU's. The data are such that sums are exact, even of floats.
#[derive(Parser)]
struct Args {
    /// The type of the elements.
    #[arg(long = "type", value_name = "TYPE", default_value = "i32")]
    dtype: Dtype,

    /// The number of elements, such as 1000000, 2^26 or 1024*65535.
    #[arg(long, default_value = "2^26")]
    n: Length,

    /// Instead of one length, all powers of two in a range; also times the CPU.
    #[arg(long, value_name = "FROM..TO", conflicts_with = "n")]
    sweep: Option<Sweep>,

    /// Threads per block.
    #[arg(long, default_value_t = 1024, value_parser = threads)]
    threads: u32,

    /// The variants, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    #[arg(value_parser = PossibleValuesParser::new([vec!["all"], names()].concat()))]
    variant: Vec<String>,

    /// Where to run: cuda:N (GPU number N), emulator (a GPU in software, which counts but has no times), or
    /// auto: the first GPU, or else the emulator with at most 2^20 elements.
    #[arg(long, default_value = "auto")]
    device: DeviceArg,

    /// Write the results to this file as CSV; - prints them instead of the table.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write the results to this file as JSON; - prints them instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw the times in this folder, created if needed: bandwidth.svg and time.svg, or sweep.svg for a
    /// sweep.
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,

    /// Read the results from a CSV file of this program, and run nothing.
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["dtype", "n", "sweep", "threads", "variant", "device"])]
    from: Option<PathBuf>,
}

/// Parses `--threads`.
fn threads(text: &str) -> Result<u32, String> {
    let known = text.parse().ok().filter(|threads| BLOCKS.contains(threads));
    known.ok_or_else(|| format!("kernels are compiled for {BLOCKS:?} threads a block"))
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

fn run(args: &Args) -> Result<(), Error> {
    let records = match &args.from {
        Some(path) => read(path)?,
        None => measure(args)?,
    };
    let outputs = [(&args.csv, to_csv as fn(&[Record]) -> _), (&args.json, to_json)];
    let mut printed = false;
    for (path, format) in outputs {
        if let Some(path) = path {
            printed |= write(path, &format(&records)?)?;
        }
    }
    if !printed {
        write(Path::new("-"), table::table(&records).as_bytes())?;
    }
    if let Some(folder) = &args.svg {
        let failed = |source| Error::Write { path: folder.clone(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        for (name, svg) in chart::charts(&records)? {
            write(&folder.join(name), svg.as_bytes())?;
        }
    }
    Ok(())
}

/// Writes a file, or standard output if the path is `-`; returns whether it was standard output.
fn write(path: &Path, bytes: &[u8]) -> Result<bool, Error> {
    let print = path == Path::new("-");
    let written = if print { io::stdout().write_all(bytes) } else { fs::write(path, bytes) };
    written.map(|()| print).map_err(|source| Error::Write { path: path.into(), source })
}

fn measure(args: &Args) -> Result<Vec<Record>, Error> {
    let (device, most) = match args.device {
        DeviceArg::Auto => match Device::cuda(0) {
            Ok(device) => (device, usize::MAX),
            Err(why) => {
                eprintln!("{why}");
                eprintln!(
                    "so there are no times; the emulator counts instead, for at most {COUNTED} elements"
                );
                (Device::emulator()?, COUNTED)
            }
        },
        named => (named.open()?, usize::MAX),
    };
    let mut lengths = args.sweep.clone().map_or_else(|| vec![args.n.0], |Sweep(lengths)| lengths);
    lengths.iter_mut().for_each(|n| *n = most.min(*n));
    lengths.dedup();
    let all = args.variant.iter().any(|name| name == "all");
    let job = Job {
        device,
        dtype: args.dtype,
        threads: args.threads,
        lengths,
        variants: if all { names().into_iter().map(str::to_owned).collect() } else { args.variant.clone() },
        cpu: args.sweep.is_some(),
    };
    let records = job.run()?;
    if job.is_emulated() || job.cpu { Ok(records) } else { count(&job, records) }
}

/// Adds the emulator's counters, for fewer elements. A process has one driver, so a second run of this
/// program counts.
fn count(job: &Job, records: Vec<Record>) -> Result<Vec<Record>, Error> {
    let failed = |error: io::Error| Error::Emulator(format!("does not start: {error}"));
    let n = job.lengths.iter().copied().max().map_or(0, |n| n.min(COUNTED));
    let mut again = Command::new(std::env::current_exe().map_err(failed)?);
    again.args(["--device", "emulator", "--csv", "-", "--n", &n.to_string()]);
    again.args(["--type", &format!("{:?}", job.dtype), "--threads", &job.threads.to_string()]);
    again.args(["--variant", &job.variants.join(",")]);
    let output = again.stderr(Stdio::inherit()).output().map_err(failed)?;
    if !output.status.success() {
        return Err(Error::Emulator(format!("ended with {}", output.status)));
    }
    let counted = record::from_csv(&output.stdout)
        .map_err(|error| Error::Emulator(format!("did not print results: {error}")))?;
    Ok(records.into_iter().zip(&counted).map(|(record, counted)| record.counted_as(counted)).collect())
}
