//! The errors of the example, with their messages.

use std::io;
use std::path::PathBuf;

use super::input::Dtype;

/// A reason why the example has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Reduce(#[from] gpu_reduce::Error),
    #[error(transparent)]
    Device(gpu_reduce::Error),
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("not a valid .npy file: {reason}")]
    Npy { reason: String },
    #[error(
        "the .npy file holds `{descr}`; supported are little-endian integers of 8 to 64 bits and floats of \
         16 to 64 bits"
    )]
    Descr { descr: String },
    #[error("the .npy file holds `{descr}`, but --dtype says {dtype:?}")]
    OtherDtype { descr: String, dtype: Dtype },
    #[error("a file of raw numbers does not say their type: name it with --dtype")]
    NoDtype,
    #[error("the numbers have {bytes} bytes, but {expected} are expected, {size} for each")]
    Length { bytes: u64, expected: u64, size: usize },
    #[error("--split has {weights} weights for {ranks} ranks: give one for each rank, not all of them 0")]
    Split { weights: usize, ranks: usize },
    #[error("{bytes} bytes do not fit in memory")]
    OutOfMemory { bytes: u64 },
}
