//! Everything that can go wrong, as the program prints it.

use std::io;
use std::path::PathBuf;

use arrow_schema::ArrowError;
use zip::result::ZipError;

use super::columns::Kind;
use super::input::{Axis, Dtype};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Reduce(#[from] gpu_reduce::Error),
    #[error(
        "{quantity} has no value, as the input is empty{without}: sum, prod and the counts have one, and without --op those \
         that have none are left out"
    )]
    Empty { quantity: String, without: String },
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
    #[error("cannot draw the histogram: {reason}")]
    Plot { reason: String },
    #[error("`{}` is not named .svg, and --plot draws SVG", path.display())]
    NotSvgName { path: PathBuf },
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}`: {error}", path.display())]
    In { path: PathBuf, error: Box<Error> },
    #[error("standard input, `-`, is given twice, and can be read once")]
    TwiceStandardInput,
    #[error("the file is not whole, or damaged: {format} says {source}")]
    Compressed { format: &'static str, source: io::Error },
    #[error("`{}` holds {dtype:?}, and the first file {first:?}: name the type of all with --dtype, or convert one", path.display())]
    OtherTypes { path: PathBuf, dtype: Dtype, first: Dtype },
    #[error("{quantity} of rows, columns or keys is not compiled for GPUs: compute it with --device cpu")]
    NotOnGpus { quantity: String },
    #[error("{quantity} of {slice} {index} has no value: it has no elements")]
    EmptySlice { quantity: String, slice: String, index: u64 },
    #[error(
        "the key {} in column {} comes back after another key: --sort gives a result for each key, --runs one for each run \
         of equal keys",
        shown(key),
        shown(column)
    )]
    KeyComesBack { key: String, column: String },

    #[error("--{axis}s is for raw and .npy files; --by COLUMN is for CSV, Parquet and Arrow files")]
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
    #[error(
        "a .npy file of shape {shape} does not stand below what has shape {above}: several are one matrix where they are all in C order, and have as many columns"
    )]
    NotBelow { above: String, shape: String },
    #[error("the file does not say how many {axis}s there are: give --{axis}s a number")]
    NoNumber { axis: Axis },
    #[error(
        "{len} numbers cannot be {number} {axis}s of one length: give --{axis}s a number that divides {len}"
    )]
    Undivided { axis: Axis, number: usize, len: usize },

    #[error("not a valid .npy file: {}", printable(reason))]
    Npy { reason: String },
    #[error(
        "the .npy file holds {}; supported are truth values, integers of 8 to 64 bits, floats of 16 to \
         64 bits, and with --dtype bf16 `<V2`, as which NumPy saves bfloat16",
        shown(descr)
    )]
    Descr { descr: String },
    #[error("the file holds {}, which is not the {dtype:?} that --dtype names", shown(held))]
    OtherDtype { held: String, dtype: Dtype },
    #[error(
        "the .npy file's shape {shape} needs {count} elements of {size} bytes; {bytes} bytes follow its header{hint}"
    )]
    Shape { shape: String, count: usize, size: usize, bytes: usize, hint: &'static str },
    #[error("{option} is for CSV files, and this is {what}")]
    NotCsv { option: &'static str, what: &'static str },
    #[error("not a valid .npz file, or not a whole one: {0}")]
    Npz(#[from] ZipError),

    #[error("not a valid {kind:?} file, or not a whole one: {}", printable(&error.to_string()))]
    Columns { kind: Kind, error: ArrowError },
    #[error(
        "column {} is compressed with {by}, which this program does not read: write the file with Zstandard, gzip, Snappy or \
         LZ4, or without compression",
        shown(column)
    )]
    Compression { column: String, by: &'static str },
    #[error("{what} is encrypted, which this program does not read: write the file without encryption")]
    Encrypted { what: String },
    #[error("the file has no columns")]
    NoColumns,
    #[error("column {} holds {found}, which are no numbers that are read here", shown(column))]
    NotNumbers { column: String, found: String },
    #[error(
        "column {} holds {found}, which are no keys that are read here: text and numbers are",
        shown(column)
    )]
    NotKeys { column: String, found: String },
    #[error(
        "row {row}, counted from 0, has no value in column {}: --skip-missing leaves such rows out",
        shown(column)
    )]
    Null { row: usize, column: String },

    #[error("the input is empty: if raw numbers should be in it, name their type with --dtype")]
    Nothing,
    #[error(
        "no format that is known here; if it holds raw numbers, name their type with --dtype; if it is CSV, say so with --header or --no-header"
    )]
    NoDtype,
    #[error("{bytes} bytes are not a whole number of {dtype:?} elements, which have {size} bytes each")]
    Partial { bytes: usize, dtype: Dtype, size: usize },
    #[error(
        "`{}` is {what}, which is not read here: convert it to CSV, .npy or Parquet, or take its bytes as \
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
    #[error("there are several columns or arrays; choose one with --column: {columns}")]
    WhichColumn { columns: String },
    #[error("there is no column or array {column}; there are {columns}")]
    UnknownColumn { column: String, columns: String },
    #[error("there are several columns {column}; choose one by its index: {indices}")]
    SeveralOfName { column: String, indices: String },
    #[error(
        "the CSV file has no column {column}: its columns have no names (--header says that the first row has \
         them), but indices from 0 to {last}"
    )]
    NoNames { column: String, last: usize },
    #[error(
        "the first row of the CSV file may be a header or data; say which with --header or --no-header: {row}"
    )]
    MaybeHeader { row: String },
    #[error("line {line}: {found} fields, but the {first} row has {expected}")]
    Fields { line: usize, found: usize, first: &'static str, expected: usize },
    #[error("line {line}: {} in column {} is not a valid {dtype:?}{hint}", shown(text), shown(column))]
    Value { line: usize, column: String, text: String, dtype: Dtype, hint: &'static str },
    #[error(
        "line {line}: {} in column {} is no value: --skip-missing leaves such rows out",
        shown(text),
        shown(column)
    )]
    Missing { line: usize, column: String, text: String },
    #[error(
        "line {line}: nothing closes a quote that is opened in this row; if it is no quotation mark, write it twice, between two others"
    )]
    Unclosed { line: usize },
    #[error(transparent)]
    Csv(#[from] csv::Error),
}

/// A word of a file as an error shows it: with nothing in it that a terminal takes for a command, and not all of one that is long.
pub fn shown(word: &str) -> String {
    const MOST: usize = 100;
    let end = if word.chars().nth(MOST).is_some() { "…" } else { "" };
    let start: String = word.chars().take(MOST).collect();
    format!("`{}{end}`", printable(&start))
}

/// Several of them.
pub fn quoted(words: impl Iterator<Item = String>) -> String {
    const MOST: usize = 100;
    let mut words: Vec<_> = words.map(|word| shown(&word)).collect();
    let more = words.len().saturating_sub(MOST);
    words.truncate(MOST);
    let end = if more > 0 { format!(" and {more} more") } else { String::new() };
    words.join(", ") + &end
}

/// Text without what a terminal takes for a command.
pub fn printable(text: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => c.escape_unicode().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}
