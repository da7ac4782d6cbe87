//! The errors of the example, with their messages.

use std::io;
use std::path::PathBuf;

/// A reason why there is no simulation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}`, line {line}: not a figure: {source}", path.display())]
    Line { path: PathBuf, line: usize, source: serde_json::Error },
    #[error(
        "there is no line with \"op\":\"{op}\" for BLOCK {block}; `cargo bench --bench several` prints lines \
         for 64, 256 and 1024"
    )]
    None { op: &'static str, block: u32 },
    #[error("there is no line with \"op\":\"{op}\" for the latency; run {by}")]
    NoLatency { op: &'static str, by: &'static str },
    #[error("cannot print the tables: {0}")]
    Print(#[source] io::Error),
}
