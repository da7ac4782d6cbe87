//! Reduces a column of numbers in a CSV file by several operators in one pass.
//!
//! ```text
//! cargo run --example reduce -- [--column NAME] FILE
//! ```
//!
//! The program `gpu-reduce` (`crates/cli`) reads more formats and has all operators.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gpu_reduce::{Device, Max, Mean, Min, Reduce, Std, Sum};

/// Reduces a column of numbers in a CSV file, whose first row names the columns.
#[derive(Parser)]
struct Args {
    /// The column's name; by default the first column.
    #[arg(long)]
    column: Option<String>,

    /// The CSV file.
    file: PathBuf,
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

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let numbers = read(args)?;

    // The first GPU that works, else the CPU; both give the same bits.
    let device = Device::default_device();
    let numbers = device.upload(&numbers)?;
    let (sum, min, max, mean, std) = numbers.reduce::<(Sum, Min, Max, Mean, Std), 256>()?;

    println!("count   {}", numbers.len());
    println!("sum     {sum}\nmin     {min}\nmax     {max}\nmean    {mean}\nstd     {std}");
    println!("device  {device}");
    Ok(())
}

/// Reads the numbers of the column.
fn read(args: &Args) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut reader = csv::Reader::from_path(&args.file)?;
    let names = reader.headers()?;
    let index = match &args.column {
        None => 0,
        Some(column) => names.iter().position(|name| name == column).ok_or_else(|| {
            format!(
                "there is no column `{column}`; there are {}",
                names.iter().collect::<Vec<_>>().join(", ")
            )
        })?,
    };
    let mut numbers = Vec::new();
    for record in reader.records() {
        let record = record?;
        let text = record.get(index).unwrap_or_default().trim();
        let line = record.position().map_or(0, |position| position.line());
        numbers.push(
            text.parse().map_err(|_| format!("line {line}: `{}` is not a number", text.escape_debug()))?,
        );
    }
    Ok(numbers)
}
