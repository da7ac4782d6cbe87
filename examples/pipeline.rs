//! Sums rows of numbers in a file that may be larger than memory.
//!
//! While one piece is read, others are copied to the device, reduced there, and their sums copied back.
//! Prints the total, the speed, and the speed of each step alone:
//!
//! ```text
//! cargo run --release --example pipeline -- [--device auto] [--dtype f32] [--row 4096]
//!     [--piece 16MiB] [--slots 4] [--output FILE] FILE
//! ```
//!
//! This makes a file of 8 GiB to try it with, which is in the page cache afterwards:
//!
//! ```text
//! head -c 8G /dev/zero >numbers.f32
//! ```

#[path = "../crates/cli/src/device.rs"]
mod device;
#[path = "../crates/cli/src/progress.rs"]
mod progress;

/// The files in `examples/pipeline/`.
mod pipeline {
    pub mod error;
    pub mod flow;
    pub mod input;
    pub mod output;
    pub mod slot;
}

use std::fmt::Display;
use std::io::{self, Write as _};
use std::ops::AddAssign;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use device::DeviceArg;
use gpu_reduce::{Device, Element};
use pipeline::error::Error;
use pipeline::flow::flow;
use pipeline::input::{Cut, Input};
use pipeline::output::Output;
use pipeline::slot::Slot;
use progress::Progress;

/// Sums each row of the numbers in a file that may be larger than memory, and all of them.
#[derive(Parser)]
struct Args {
    /// The type of the numbers; sums of i32 are i64.
    #[arg(long, default_value = "f32")]
    dtype: Dtype,

    /// Numbers per row; the last row may be shorter.
    #[arg(long, default_value_t = 4096)]
    row: usize,

    /// Bytes to read, copy and reduce at a time, such as 1000, 64KiB, 32MiB or 1GiB; rounded down to whole
    /// rows, but at least one row.
    #[arg(long, default_value = "16MiB")]
    piece: Size,

    /// Pieces in flight at a time; with 1, each step waits for the one before.
    #[arg(long, default_value_t = 4)]
    slots: usize,

    /// Where to compute: auto, cpu, cuda:N (GPU number N), or emulator (a GPU in software; needs cargo's
    /// `--features emulator`).
    #[arg(long, default_value = "auto")]
    device: DeviceArg,

    /// Write the sums of the rows to this file, as raw little-endian numbers.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Raw little-endian numbers. The file must not change while the program runs.
    file: PathBuf,
}

/// The type of the numbers.
#[expect(non_camel_case_types, reason = "each variant has the name of its Rust type")]
#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    f32,
    f64,
    i32,
}

/// A number of bytes.
#[derive(Clone, Copy)]
struct Size(usize);

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
        let unit = units.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)));
        let (number, unit) = unit.unwrap_or((text, 1));
        let bytes = number.trim().parse().ok().and_then(|number: usize| number.checked_mul(unit));
        bytes.map(Self).ok_or("a size is a number of bytes, such as 1000, 64KiB, 32MiB or 1GiB")
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

/// Runs the program.
fn run(args: &Args) -> Result<(), Error> {
    for (option, value) in [("--row", args.row), ("--piece", args.piece.0), ("--slots", args.slots)] {
        if value == 0 {
            return Err(Error::Zero { option });
        }
    }
    // The types of the totals: they do not overflow, and an f64 adds no visible error to sums of f32 rows.
    let report = match args.dtype {
        Dtype::f32 => reduce::<f32, f64>(args),
        Dtype::f64 => reduce::<f64, f64>(args),
        Dtype::i32 => reduce::<i32, i128>(args),
    }?;
    io::stdout().write_all(report.as_bytes()).map_err(Error::Print)
}

/// Reduces the file, then measures each step alone.
fn reduce<T: Element, A: Default + AddAssign + Display>(args: &Args) -> Result<String, Error>
where
    T::Wide: Into<A>,
{
    let input = Input::open::<T>(&args.file)?;
    let cut = Cut::new::<T>(input.bytes() / size_of::<T>() as u64, args.row, args.piece.0);
    let output = args.output.as_deref().map(|path| Output::create(path, &input)).transpose()?;
    let device = args.device.open()?;
    let start = Instant::now();
    let slots = slots::<T>(&device, cut, args.slots)?;
    let set_up = start.elapsed();

    let start = Instant::now();
    let (total, slots) = overlapped::<T, A>(&input, cut, slots, output)?;
    let overlapped = Speed::since(start, input.bytes());
    let alone = Alone::measure(&input, cut, slots)?;

    let lines = [
        ("total", total.to_string()),
        ("rows", cut.rows().to_string()),
        ("bytes", input.bytes().to_string()),
        ("device", device.to_string()),
        ("set-up", format!("{set_up:.3?}")),
        ("time", format!("{:.3?}", overlapped.time)),
        ("GB/s", format!("{:.2}", overlapped.gbps())),
        ("upload", format!("{} alone, from pinned memory", alone.upload)),
        ("overlap", format!("{:.3} of the upload's GB/s", overlapped.gbps() / alone.upload.gbps())),
        ("reading", format!("{} alone", alone.reading)),
        (
            "in turn",
            format!("{}, {:.2} times as long", alone.in_turn, overlapped.gbps() / alone.in_turn.gbps()),
        ),
    ];
    Ok(lines.into_iter().map(|(name, value)| format!("{name:<7}  {value}\n")).collect())
}

/// Creates up to `most` slots, as many as there are pieces; runs their kernels once, so that they are
/// compiled.
fn slots<T: Element>(device: &Device, cut: Cut, most: usize) -> Result<Vec<Slot<T>>, Error> {
    let slots = (0..most.min(cut.pieces())).map(|_| {
        let mut slot = Slot::new(device, cut.piece, cut.row)?;
        for piece in [0, cut.pieces() - 1] {
            slot.fill(cut.len(piece))?;
            slot.enqueue()?;
        }
        slot.wait()?;
        Ok(slot)
    });
    slots.collect()
}

/// Reduces the file, with all steps overlapping. Returns the total, and the slots for reuse.
fn overlapped<T: Element, A: Default + AddAssign>(
    input: &Input,
    cut: Cut,
    slots: Vec<Slot<T>>,
    mut output: Option<Output>,
) -> Result<(A, Vec<Slot<T>>), Error>
where
    T::Wide: Into<A>,
{
    let progress = Progress::new("reducing", input.bytes() as usize);
    let (mut total, mut pieces) = (A::default(), 1..);
    let enqueue = |slot: &mut Slot<T>| Ok(slot.enqueue()?);
    let slots = flow(input, cut, slots, enqueue, |slot| {
        let sums = slot.sums()?;
        sums.iter().for_each(|&sum| total += sum.into());
        if let Some(output) = &mut output {
            output.write(sums)?;
        }
        if let Some(next) = pieces.next() {
            progress.set(cut.elements.min(cut.start(next)) as usize * size_of::<T>());
        }
        Ok(())
    })?;
    output.map(Output::end).transpose()?;
    Ok((total, slots))
}

/// The speed of each step alone, on the first pieces of a file that was just read.
struct Alone {
    upload: Speed,
    reading: Speed,
    /// Reading, upload, reduction and download, one after the other.
    in_turn: Speed,
}

impl Alone {
    fn measure<T: Element>(input: &Input, cut: Cut, slots: Vec<Slot<T>>) -> Result<Self, Error> {
        const BYTES: usize = 4 << 30;
        let cut = cut.up_to((BYTES / size_of::<T>()) as u64);
        let bytes = cut.elements * size_of::<T>() as u64;

        let start = Instant::now();
        let mut slots = flow(input, cut, slots, |_| Ok(()), |_| Ok(()))?;
        let reading = Speed::since(start, bytes);

        for slot in &mut slots {
            slot.fill(cut.piece)?;
        }
        let start = Instant::now();
        let count = slots.len();
        for piece in 0..cut.pieces() {
            slots[piece % count].upload()?;
        }
        for slot in &slots {
            slot.wait()?;
        }
        let upload = Speed::since(start, (cut.pieces() * cut.piece * size_of::<T>()) as u64);

        slots.truncate(1);
        let start = Instant::now();
        flow(input, cut, slots, |slot| Ok(slot.enqueue()?), |slot| Ok(slot.wait()?))?;
        Ok(Self { upload, reading, in_turn: Speed::since(start, bytes) })
    }
}

/// A number of bytes, and the time that they took.
struct Speed {
    bytes: u64,
    time: Duration,
}

impl Speed {
    fn since(start: Instant, bytes: u64) -> Self {
        Self { bytes, time: start.elapsed() }
    }

    fn gbps(&self) -> f64 {
        self.bytes as f64 / 1e9 / self.time.as_secs_f64()
    }
}

/// Formats as `54.20 GB/s (79.200ms for 4294967296 bytes)`.
impl Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{:.2} GB/s ({:.3?} for {} bytes)", self.gbps(), self.time, self.bytes)
    }
}
