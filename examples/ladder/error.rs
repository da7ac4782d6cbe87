//! The errors of the example, with their messages.

use std::io;
use std::path::PathBuf;

use crate::common::chart::Draw;

/// A reason why the example has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Reduce(#[from] gpu_reduce::Error),
    #[error("{variant} gives {got} for the sum of {n} {dtype}; on the CPU it is {expected}")]
    Wrong { variant: &'static str, n: usize, dtype: &'static str, got: String, expected: String },
    #[error("cannot start one CPU thread: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    #[error("cannot count on the emulator: this program, started again for it, {0}")]
    Emulator(String),

    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: csv::Error },
    #[error("cannot encode the results: {0}")]
    Csv(#[from] csv::Error),
    #[error("cannot encode the results: {0}")]
    Json(#[from] serde_json::Error),

    #[error("nothing to draw: there are no times; the emulator has none, so run it on a GPU")]
    NoTimes,
    #[error(transparent)]
    Draw(#[from] Draw),
}
