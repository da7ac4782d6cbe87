//! Simulates a sum over more GPUs than exist, from measurements on existing ones by
//! `cargo bench --bench several` and `mpi_reduce`:
//!
//! ```text
//! cargo run --release -p gpu_reduce_examples --example scale -- [OPTIONS] FILE.jsonl
//! ```
//!
//! A GPU's part takes the measured time for its number of chunks. Two all-gathers follow, each of log2(GPUs)
//! rounds, rounded up. A round takes the measured time between processes of one machine plus the network's
//! latency. Partial results are folded before and after the second. The network's latency and bandwidth are
//! assumptions.

/// The files in `examples/common/`.
#[path = "common"]
mod common {
    pub mod table;
}

/// The files in `examples/scale/`.
mod scale {
    pub mod error;
    pub mod measured;
    pub mod model;
}

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use common::table::{length, markdown, rounded, short};
use scale::error::Error;
use scale::measured::Measured;
use scale::model::{Limit, Model, Network};

/// Prints measurements beside their simulation, and tables of a sum of f32 over up to 1,024 GPUs: with a
/// fixed number of elements in all, and with a fixed number per GPU.
#[derive(Parser)]
struct Args {
    /// Threads per block, which determine the number of chunks.
    #[arg(long, default_value_t = 1024)]
    block: u32,

    /// The network's latency per message, in microseconds.
    #[arg(long, default_value_t = 2.0, value_name = "MICROSECONDS")]
    latency: f64,

    /// The network's bandwidth to and from each GPU, in GB/s.
    #[arg(long, default_value_t = 50.0, value_name = "GB/S")]
    bandwidth: f64,

    /// The bench's output:
    /// {"impl":"gpu_reduce","op":"part_sum","dtype":"f32","n":1073741824,"block":1024,"chunks":256,
    /// "us":950.0}, and so on.
    #[arg(value_name = "FILE.jsonl")]
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

fn run(args: &Args) -> Result<(), Error> {
    let measured = Measured::read(&args.file)?;
    let network = Network { latency_us: args.latency, gbps: args.bandwidth };
    let model = Model::new(&measured, args.block, network)?;
    let mut text = markdown(&beside_measured(&measured, &model));
    for (title, len) in [("in all", In::All(1 << 34)), ("a GPU", In::Each(1 << 30))] {
        text += &format!("\n{}\n", markdown(&table(&model, title, len)).trim_end());
    }
    io::stdout().write_all(text.as_bytes()).map_err(Error::Print)
}

/// The number of elements of a simulation: in all, or per GPU.
#[derive(Clone, Copy)]
enum In {
    All(u64),
    Each(u64),
}

/// The measurements on one or two GPUs, beside their simulation.
fn beside_measured(measured: &Measured, model: &Model) -> Vec<Vec<String>> {
    let header = ["`f32`", "µs, measured", "µs, simulated", "ratio"].map(str::to_owned);
    let mut lines = vec![header.to_vec()];
    for (what, us, simulated) in model.beside(measured) {
        lines.push(vec![what, rounded(us), rounded(simulated), short(simulated / us)]);
    }
    lines
}

fn table(model: &Model, title: &str, len: In) -> Vec<Vec<String>> {
    let elements = match len {
        In::All(len) | In::Each(len) => length(len as usize),
    };
    let first = format!("GPUs, {elements} {title}");
    let header = [&first, "chunks a GPU", "µs", "TB/s", "times one", "without order", "KB received", "limit"]
        .map(str::to_owned);
    let mut lines = vec![header.to_vec()];
    let rate = |gpus: u32| {
        let all = match len {
            In::All(len) => len,
            In::Each(len) => len * u64::from(gpus),
        };
        let simulated = model.sum(gpus, all);
        let tbps = [simulated.us, simulated.us_without_order].map(|us| all as f64 * 4.0 / us / 1e6);
        (simulated, tbps)
    };
    let (_, [one, one_without_order]) = rate(1);
    for gpus in (0..=10).map(|power| 1 << power) {
        let (simulated, [tbps, without_order]) = rate(gpus);
        let limit = match simulated.limit {
            Limit::Memory => "memory",
            Limit::Chunks => "chunks",
            Limit::Messages => "messages",
        };
        lines.push(vec![
            gpus.to_string(),
            simulated.chunks.to_string(),
            rounded(simulated.us),
            short(tbps),
            short(tbps / one),
            short(without_order / one_without_order),
            short(simulated.bytes as f64 / 1e3),
            limit.to_owned(),
        ]);
    }
    lines
}
