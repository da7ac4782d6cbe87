//! The errors of the example, with their messages.

use std::io;
use std::path::PathBuf;

use super::figures::{Case, OURS};
use crate::common::chart::Draw;

/// A reason why there is no comparison.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}`, line {line}: {source}", path.display())]
    Line { path: PathBuf, line: usize, source: LineError },
    #[error(
        "there is no line with \"impl\":\"{OURS}\", to compare others with; `cargo bench --bench device` \
         prints them"
    )]
    NoneOfOurs,
    #[error("cannot print the tables: {0}")]
    Print(#[source] io::Error),
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("nothing to draw: a chart takes our sums of f32 of two lengths or more")]
    NoLengths,
    #[error("nothing to draw: a chart of segments takes our sums of segments or rows of 2^26 f32")]
    NoSegments,
    #[error(transparent)]
    Draw(#[from] Draw),
}

/// What is wrong with a line of a file.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("not a figure: {0}")]
    Invalid(#[from] serde_json::Error),
    #[error("a second time of {of} for {case}; give the files of one run")]
    Twice { of: String, case: Case },
}
