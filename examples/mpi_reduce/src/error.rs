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
        "the .npy file holds `{descr}`; supported are little-endian integers of 8 to 64 bits and floats of 16 to 64 bits"
    )]
    Descr { descr: String },
    #[error("the .npy file holds `{descr}`, which is not the {dtype:?} that --dtype names")]
    OtherDtype { descr: String, dtype: Dtype },
    #[error("a file of raw numbers does not say their type: name it with --dtype")]
    NoDtype,
    #[error("{bytes} bytes of numbers, and {expected} are expected, of {size} each")]
    Length { bytes: u64, expected: u64, size: usize },
    #[error(
        "--split has {weights} weights, and there are {ranks} ranks: give one each, and one that is not 0"
    )]
    Split { weights: usize, ranks: usize },
    #[error("{bytes} bytes do not fit in memory")]
    OutOfMemory { bytes: u64 },
}
