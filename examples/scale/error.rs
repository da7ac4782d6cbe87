//! Everything that can go wrong, as the program prints it.

use std::io;
use std::path::PathBuf;

/// Why there is no simulation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}`, line {line}: not a figure: {source}", path.display())]
    Line { path: PathBuf, line: usize, source: serde_json::Error },
    #[error(
        "there is no line with \"op\":\"{op}\" of BLOCK {block}; `cargo bench --bench several` prints those of 64, 256 and 1024"
    )]
    None { op: &'static str, block: u32 },
    #[error("there is no line with \"op\":\"{op}\" that says what nothing takes; {by} measures it")]
    NoLatency { op: &'static str, by: &'static str },
    #[error("cannot print the tables: {0}")]
    Print(#[source] io::Error),
}
