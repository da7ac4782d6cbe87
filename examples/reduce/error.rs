//! Everything that can go wrong, as the program prints it.

use std::io;
use std::path::PathBuf;

use super::input::{Axis, Dtype};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Reduce(#[from] gpu_reduce::Error),
    #[error("the mean of no elements is undefined: the input is empty")]
    EmptyMean,
    #[error("bit_and, bit_or and bit_xor are for integers, and these are {dtype}")]
    NotIntegers { dtype: &'static str },
    #[error("cannot print the result: {0}")]
    Print(#[source] io::Error),
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` is not named .npy, which is all that --output writes: without it, CSV is printed", path.display())]
    NotNpyName { path: PathBuf },
    #[error("a .npy file has the results of one operator, and these are {operators}: choose one with --op")]
    OneOperator { operators: usize },
    #[error(
        "NumPy has no type for what {quantity} is here, bf16 or an integer of 128 bits: print it as CSV, without --output"
    )]
    NoDescr { quantity: String },
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{quantity} of rows, columns or keys is not compiled for GPUs: compute it with --device cpu")]
    NotOnGpus { quantity: String },
    #[error("{quantity} of {slice} {index} has no value: it has no elements")]
    EmptySlice { quantity: String, slice: String, index: u64 },

    #[error("--{axis}s is for raw and .npy files; --by COLUMN is for CSV files")]
    NoMatrix { axis: Axis },
    #[error(
        "the .npy file's shape {shape} is not that of a matrix, which has two axes: save it as one, such as \
         x.reshape(len(x), -1) in NumPy"
    )]
    NotTwoAxes { shape: String },
    #[error(
        "the .npy file's shape {shape} has {of_file} {axis}s, not {number}: give --{axis}s no number, or that"
    )]
    OtherNumber { shape: String, axis: Axis, number: usize, of_file: usize },
    #[error("the file does not say how many {axis}s there are: give --{axis}s a number")]
    NoNumber { axis: Axis },
    #[error(
        "{len} numbers cannot be {number} {axis}s of one length: give --{axis}s a number that divides {len}"
    )]
    Undivided { axis: Axis, number: usize, len: usize },

    #[error("not a valid .npy file: {reason}")]
    Npy { reason: String },
    #[error(
        "the .npy file holds `{descr}`; supported are little-endian integers of 8 to 64 bits, floats of 16 to \
         64 bits, and with --dtype bf16 `<V2`, as which NumPy saves bfloat16"
    )]
    Descr { descr: String },
    #[error("the .npy file holds `{descr}`, which is not the {dtype:?} that --dtype names")]
    OtherDtype { descr: String, dtype: Dtype },
    #[error(
        "the .npy file's shape {shape} needs {count} elements of {size} bytes; {bytes} bytes follow its header"
    )]
    Shape { shape: String, count: usize, size: usize, bytes: usize },
    #[error("{option} is for CSV files, and this is a .npy file, which has neither names nor keys")]
    NotCsv { option: &'static str },

    #[error("neither a .npy nor a CSV file; if it holds raw numbers, name their type with --dtype")]
    NoDtype,
    #[error("{bytes} bytes are not a whole number of {dtype:?} elements, which have {size} bytes each")]
    Partial { bytes: usize, dtype: Dtype, size: usize },
    #[error(
        "`{}` is {what}, which is not read here: convert it to .npy, CSV or raw numbers, or take its bytes as \
         numbers with --raw and --dtype",
        path.display()
    )]
    Foreign { path: PathBuf, what: &'static str },
    #[error(
        "`{}` is text, not raw numbers: read it as CSV with --column, --header or --no-header, or take its \
         bytes as numbers with --raw and --dtype",
        path.display()
    )]
    Text { path: PathBuf },
    #[error(
        "`{}` has NUL bytes, as UTF-16 and binary files do, and is no CSV file: save it as UTF-8, or take its \
         bytes as numbers with --raw and --dtype",
        path.display()
    )]
    NotText { path: PathBuf },

    #[error("the CSV file is empty; its first row must name its columns")]
    NoHeader,
    #[error("the CSV file has several columns; choose one with --column: {columns}")]
    WhichColumn { columns: String },
    #[error("the CSV file has no column `{column}`; it has {columns}")]
    UnknownColumn { column: String, columns: String },
    #[error("the CSV file has several columns `{column}`; choose one by its index: {indices}")]
    SeveralOfName { column: String, indices: String },
    #[error(
        "the CSV file has no column `{column}`: its columns have no names (--header says that the first row has \
         them), but indices from 0 to {last}"
    )]
    NoNames { column: String, last: usize },
    #[error(
        "the first row of the CSV file may be a header or data; say which with --header or --no-header: {row}"
    )]
    MaybeHeader { row: String },
    #[error("line {line}: {found} fields, but the {first} row has {expected}")]
    Fields { line: usize, found: usize, first: &'static str, expected: usize },
    #[error("line {line}: `{text}` in column `{column}` is not a valid {dtype:?}")]
    Value { line: usize, column: String, text: String, dtype: Dtype },
    #[error(transparent)]
    Csv(#[from] csv::Error),
}
