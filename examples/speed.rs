//! Compares this library's speed with its peers', from the JSON lines of `benches/device.rs` and the peers'
//! programs:
//!
//! ```text
//! cargo run --release -p gpu_reduce_examples --example speed -- [OPTIONS] FILE.jsonl…
//! ```

/// The files in `examples/common/`.
#[path = "common"]
mod common {
    pub mod chart;
    pub mod table;
}

/// The files in `examples/speed/`.
mod speed {
    pub mod chart;
    pub mod error;
    pub mod figures;
}

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use common::table::{markdown, rounded};
use speed::chart;
use speed::error::Error;
use speed::figures::{Case, Figures, OURS};

/// Inputs of at least this size are read from memory; the benchmarks leave smaller ones in the L2 cache.
const FROM_MEMORY: f64 = (16 << 20) as f64;

/// Prints tables of the time of each reduction, the peers' times, and the speedup over each peer.
#[derive(Parser)]
struct Args {
    /// Draw the bandwidth of f32 sums over their length, and the speedup over each peer.
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,

    /// Draw the bandwidth of sums of segments and of rows, of 2^26 f32 in all, over the length of a segment.
    #[arg(long, value_name = "FILE.svg")]
    segments_chart: Option<PathBuf>,

    /// Files with lines such as {"impl":"gpu_reduce","op":"sum","dtype":"f32","n":1024,"us":1.25}, and, for
    /// the memory's peak, {"impl":"peak","device":"NVIDIA H200","gbps":4800.0}. Lines that do not start with
    /// { are skipped.
    #[arg(required = true, value_name = "FILE.jsonl")]
    files: Vec<PathBuf>,
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
    let figures = Figures::read(&args.files)?;
    let tables = [cases(&figures), segmented(&figures), summary(&figures)];
    // Leaves out tables that have only a header.
    let tables = tables.iter().filter(|table| table.len() > 1).map(|table| markdown(table));
    let tables = tables.collect::<Vec<_>>().join("\n");
    io::stdout().write_all(tables.as_bytes()).map_err(Error::Print)?;
    let write = |path: &PathBuf, svg| {
        fs::write(path, svg).map_err(|source| Error::Write { path: path.clone(), source })
    };
    if let Some(path) = &args.chart {
        write(path, chart::over_lengths(&figures)?)?;
    }
    if let Some(path) = &args.segments_chart {
        write(path, chart::over_segments(&figures)?)?;
    }
    Ok(())
}

/// The table of our cases with one result, with two columns for each peer.
fn cases(figures: &Figures) -> Vec<Vec<String>> {
    let peers = figures.peers();
    let mut header = ["reduction", "µs", "GB/s", "% of peak"].map(str::to_owned).to_vec();
    header.extend(peers.iter().flat_map(|peer| [format!("{peer}, µs"), "times as fast".to_owned()]));
    let rows = figures.of(OURS).filter(|ours| !ours.case.is_segmented()).map(|ours| {
        let case = &ours.case;
        let peak = figures.peak.as_ref().filter(|_| case.bytes() >= FROM_MEMORY);
        let percent = peak.map(|peak| format!("{:.1}", 100.0 * ours.gbps() / peak.gbps));
        let mut row = vec![case.to_string(), format!("{:.2}", ours.us), rounded(ours.gbps())];
        row.push(percent.unwrap_or_default());
        row.extend(peers.iter().flat_map(|peer| match figures.find(peer, case) {
            Some(theirs) => [format!("{:.2}", theirs.us), format!("{:.3}", theirs.us / ours.us)],
            None => Default::default(),
        }));
        row
    });
    [header].into_iter().chain(rows).collect()
}

/// The table of our cases with segments, with a column for each peer.
fn segmented(figures: &Figures) -> Vec<Vec<String>> {
    let peers = figures.peers();
    let mut header = ["reduction", "µs", "GB/s of the input"].map(str::to_owned).to_vec();
    header.extend(peers.iter().map(|peer| format!("{peer}, µs")));
    header.push("times as fast as the fastest".to_owned());
    let rows = figures.of(OURS).filter(|ours| ours.case.is_segmented()).map(|ours| {
        let times: Vec<_> =
            peers.iter().map(|peer| figures.find(peer, &ours.case).map(|theirs| theirs.us)).collect();
        let fastest = times.iter().copied().flatten().reduce(f64::min);
        let cell = |us: Option<f64>| us.map(|us| format!("{us:.2}")).unwrap_or_default();
        let mut row = vec![ours.case.to_string(), cell(Some(ours.us)), rounded(ours.gbps())];
        row.extend(times.into_iter().map(cell));
        row.push(fastest.map(|us| format!("{:.3}", us / ours.us)).unwrap_or_default());
        row
    });
    [header].into_iter().chain(rows).collect()
}

/// The summary: for each peer, a row over all common cases and one over the sums of f32.
fn summary(figures: &Figures) -> Vec<Vec<String>> {
    let header = ["times as fast as", "cases", "geometric mean", "worst"].map(str::to_owned).to_vec();
    let row = |peer: &str, which: &str, counts: fn(&Case) -> bool| {
        let all = figures.of(peer).filter(|theirs| counts(&theirs.case)).count();
        let ratios: Vec<_> = figures.ratios(peer).filter(|(case, _)| counts(case)).collect();
        let (worst_case, worst) = ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let mean = ratios.iter().map(|(_, ratio)| ratio.ln()).sum::<f64>() / ratios.len() as f64;
        Some(vec![
            format!("{peer}{which}"),
            format!("{} of {all}", ratios.len()),
            format!("{:.3}", mean.exp()),
            format!("{worst:.3}, {worst_case}"),
        ])
    };
    let rows = figures
        .peers()
        .into_iter()
        .flat_map(|peer| [row(peer, "", |_| true), row(peer, ", sum f32", |case| case.is_of_f32("sum"))]);
    [header].into_iter().chain(rows.flatten()).collect()
}
