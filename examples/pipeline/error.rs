//! The errors of the example, with their messages.

use std::io;
use std::path::PathBuf;

/// A reason why the example has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Reduce(#[from] gpu_reduce::Error),
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot print the result: {0}")]
    Print(#[source] io::Error),
    #[error("`{}` is empty: there is nothing to reduce", path.display())]
    Empty { path: PathBuf },
    #[error(
        "`{}` has {bytes} bytes, which are not a whole number of {dtype}: they have {size} bytes each",
        path.display()
    )]
    Partial { path: PathBuf, bytes: u64, dtype: &'static str, size: usize },
    #[error("{option} is 0: give at least 1")]
    Zero { option: &'static str },
    #[error("`{}` is the file that is read: name another for --output", path.display())]
    SameFile { path: PathBuf },
}
