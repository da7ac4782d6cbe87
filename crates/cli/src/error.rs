//! The errors of the program, with their messages.

use std::io;
use std::path::PathBuf;

use arrow_schema::ArrowError;
use gpu_reduce_dynamic::Dtype;
use zip::result::ZipError;

use super::columns::Kind;
use super::input::Axis;
use super::units::Unit;

/// A reason why the program has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Reduce(#[from] gpu_reduce::Error),
    #[error(
        "{quantity} has no value, because the input is empty{without}: choose sum, prod or a count, or \
         leave out --op"
    )]
    Empty { quantity: String, without: String },
    #[error("bit_and, bit_or and bit_xor take integers, not {dtype}")]
    NotIntegers { dtype: Dtype },
    #[error("the reduction was stopped")]
    Stopped,
    #[error("cannot print the result: {0}")]
    Print(#[source] io::Error),
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "`{}` does not end in .npy: --output writes only .npy files; leave it out to print CSV",
        path.display()
    )]
    NotNpyName { path: PathBuf },
    #[error("a .npy file holds the results of one operator, not of {operators}: choose one with --op")]
    OneOperator { operators: usize },
    #[error(
        "NumPy has no type for the results of {quantity} (bf16 or 128-bit integers): leave out --output to \
         print CSV"
    )]
    NoDescr { quantity: String },
    #[error("cannot draw the histogram: {reason}")]
    Plot { reason: String },
    #[error("`{}` does not end in .svg: --plot draws SVG", path.display())]
    NotSvgName { path: PathBuf },
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}`: {error}", path.display())]
    In { path: PathBuf, error: Box<Error> },
    #[error("standard input, `-`, is given twice, but can be read only once")]
    TwiceStandardInput,
    #[error("the {format} data are damaged or cut off: {source}")]
    Compressed { format: &'static str, source: io::Error },
    #[error(
        "`{}` holds {dtype:?}, but the first file holds {first:?}: name one type for all with --dtype, or \
         convert a file",
        path.display()
    )]
    OtherTypes { path: PathBuf, dtype: Dtype, first: Dtype },
    #[error("{quantity} of rows, columns or keys is not compiled for GPUs: compute it with --device cpu")]
    NotOnGpus { quantity: String },
    #[error("{quantity} of {slice} {index} has no value: it has no elements")]
    EmptySlice { quantity: String, slice: String, index: u64 },

    #[error("--{axis}s is for raw and .npy files; --by COLUMN is for CSV, Parquet and Arrow files")]
    NoMatrix { axis: Axis },
    #[error(
        "the .npy file's shape {shape} is not a matrix: save it with two axes, for example as \
         x.reshape(len(x), -1) in NumPy"
    )]
    NotTwoAxes { shape: String },
    #[error(
        "the .npy file's shape {shape} has {of_file} {axis}s, not {number}: give --{axis}s no number, or \
         {of_file}"
    )]
    OtherNumber { shape: String, axis: Axis, number: usize, of_file: usize },
    #[error(
        "a .npy file of shape {shape} cannot be stacked below shape {above}: several files form one matrix \
         only if all are in C order and have the same number of columns"
    )]
    NotBelow { above: String, shape: String },
    #[error("the file does not say how many {axis}s there are: give --{axis}s a number")]
    NoNumber { axis: Axis },
    #[error(
        "{len} numbers cannot be split into {number} {axis}s of equal length: give --{axis}s a number that \
         divides {len}"
    )]
    Undivided { axis: Axis, number: usize, len: usize },

    #[error("not a valid .npy file: {}", printable(reason))]
    Npy { reason: String },
    #[error(
        "the .npy file holds {}; supported are booleans, integers of 8 to 64 bits, floats of 16 to 64 bits, \
         and, with --dtype bf16, `<V2`, which is how NumPy saves bfloat16",
        shown(descr)
    )]
    Descr { descr: String },
    #[error("the file holds {}, but --dtype says {dtype:?}", shown(held))]
    OtherDtype { held: String, dtype: Dtype },
    #[error(
        "the .npy file's shape {shape} needs {count} elements of {size} bytes, but {bytes} bytes follow the \
         header{hint}"
    )]
    Shape { shape: String, count: usize, size: usize, bytes: usize, hint: &'static str },
    #[error("{option} is for CSV files; this is {what}")]
    NotCsv { option: &'static str, what: &'static str },
    #[error("not a valid zip archive, as .npz files are, or cut off: {0}")]
    Npz(#[from] ZipError),

    #[error("not a valid {kind:?} file, or cut off: {}", printable(&error.to_string()))]
    Columns { kind: Kind, error: ArrowError },
    #[error(
        "column {} is compressed with {by}, which is not supported: write the file with Zstandard, gzip, \
         Snappy or LZ4, or without compression",
        shown(column)
    )]
    Compression { column: String, by: &'static str },
    #[error("{what} is encrypted, which is not supported: write the file without encryption")]
    Encrypted { what: String },
    #[error("the file has no columns")]
    NoColumns,
    #[error("column {} holds {found}, which is not a supported type of number", shown(column))]
    NotNumbers { column: String, found: String },
    #[error(
        "column {} holds the decimal {value}, whose digits do not fit i64: read the column as floats with \
         --dtype f64",
        shown(column)
    )]
    LargeDecimal { column: String, value: String },
    #[error("{quantity} of {} is not computed{}", unit.name(), of_floats(unit))]
    NotOfUnit { quantity: String, unit: Unit },
    #[error("`{}` holds {held}, but the first file holds {first}", path.display())]
    OtherUnits { path: PathBuf, held: String, first: String },
    #[error(
        "column {} holds {found}, which cannot be keys: keys are text, numbers, dates or times",
        shown(column)
    )]
    NotKeys { column: String, found: String },
    #[error(
        "row {row} (counted from 0) has no value in column {}: --skip-missing leaves such rows out",
        shown(column)
    )]
    Null { row: usize, column: String },

    #[error("the input is empty: if it should hold raw numbers, name their type with --dtype")]
    Nothing,
    #[error(
        "unknown format: if the file holds raw numbers, name their type with --dtype; if it is CSV, say so \
         with --header or --no-header"
    )]
    NoDtype,
    #[error("{bytes} bytes are not a whole number of {dtype:?} elements of {size} bytes")]
    Partial { bytes: usize, dtype: Dtype, size: usize },
    #[error(
        "`{}` is {what}, which is not supported: convert it to CSV, .npy or Parquet, or read its bytes as \
         numbers with --raw and --dtype",
        path.display()
    )]
    Foreign { path: PathBuf, what: &'static str },
    #[error(
        "`{}` is text, not raw numbers: read it as CSV with --column, --header or --no-header, or read its \
         bytes as numbers with --raw and --dtype",
        path.display()
    )]
    Text { path: PathBuf },
    #[error(
        "`{}` has NUL bytes, as UTF-16 and binary files do, so it is not CSV: save it as UTF-8, or read its \
         bytes as numbers with --raw and --dtype",
        path.display()
    )]
    NotText { path: PathBuf },

    #[error("the CSV file is empty; its first row must name its columns")]
    NoHeader,
    #[error("there are several columns or arrays; choose one with --column: {columns}")]
    WhichColumn { columns: String },
    #[error("a .npz file is read one array at a time, not {arrays}: choose one with --column")]
    OneArray { arrays: String },
    #[error("column {column} is chosen twice: name each column once")]
    TwiceColumn { column: String },
    #[error("`{}` has {found} of the columns, but the first file {first}: rename them", path.display())]
    OtherColumns { path: PathBuf, found: usize, first: usize },
    #[error("--{option} takes one column, but there are {columns}: choose one with --column")]
    OneColumn { option: &'static str, columns: usize },
    #[error("there is no column or array {column}; there are {columns}")]
    UnknownColumn { column: String, columns: String },
    #[error("several columns are named {column}; choose one by its index: {indices}")]
    SeveralOfName { column: String, indices: String },
    #[error(
        "the CSV file has no column {column}: its columns have no names, only indices from 0 to {last}; if \
         the first row has the names, say so with --header"
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
        "column {} holds numbers and dates, or dates and times in several forms: write all fields in one form",
        shown(column)
    )]
    Mixed { column: String },
    #[error(
        "line {line}: {} in column {} is a missing value: --skip-missing leaves such rows out",
        shown(text),
        shown(column)
    )]
    Missing { line: usize, column: String, text: String },
    #[error(
        "line {line}: a quote opened in this row is never closed; to write a quote character in a field, \
         double it and quote the field"
    )]
    Unclosed { line: usize },
    #[error(transparent)]
    Csv(#[from] csv::Error),
}

/// What to do about an operator that decimals do not have.
fn of_floats(unit: &Unit) -> &'static str {
    match unit.scale() {
        Some(_) => ": read the column as floats with --dtype f64",
        None => ": choose count, min, max, mean or median",
    }
}

impl From<gpu_reduce_dynamic::Error> for Error {
    fn from(error: gpu_reduce_dynamic::Error) -> Error {
        match error {
            gpu_reduce_dynamic::Error::Reduce(error) => Error::Reduce(error),
            gpu_reduce_dynamic::Error::NotIntegers { dtype, .. } => Error::NotIntegers { dtype },
            // The program waits for the results of groups, and enqueues none.
            gpu_reduce_dynamic::Error::Stopped | gpu_reduce_dynamic::Error::Grouped => Error::Stopped,
        }
    }
}

/// A word from a file, safe to print: control characters are escaped and a long word is cut.
pub fn shown(word: &str) -> String {
    const MOST: usize = 100;
    let end = if word.chars().nth(MOST).is_some() { "…" } else { "" };
    let start: String = word.chars().take(MOST).collect();
    format!("`{}{end}`", printable(&start))
}

/// Several words as [`shown`], at most 100 of them.
pub fn quoted(words: impl Iterator<Item = String>) -> String {
    const MOST: usize = 100;
    let mut words: Vec<_> = words.map(|word| shown(&word)).collect();
    let more = words.len().saturating_sub(MOST);
    words.truncate(MOST);
    let end = if more > 0 { format!(" and {more} more") } else { String::new() };
    words.join(", ") + &end
}

/// Text with its control characters escaped, so that a terminal does not obey them.
pub fn printable(text: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => c.escape_unicode().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}
