//! The options that name the files and say how to read them.

use std::io::{IsTerminal, stdin};
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gpu_reduce_dynamic::Dtype;

use super::conditions::Conditions;
use super::error::Error;

/// The files, and how to read them.
#[derive(clap::Args)]
pub struct InputArgs {
    /// The type of a raw file's numbers; the type to parse a CSV column as; the type that other files must
    /// have.
    ///
    /// Without it, a CSV column of integers only is i64; any other is f64. NumPy's names work too, such as
    /// float32. Booleans are u8, 0 and 1. In CSV, `0x1f` is hexadecimal, and `12.5 %` is 0.125.
    ///
    /// Dates and times, in CSV in the form 2026-11-26T09:05:00.5Z or a part of it, have min, max, mean,
    /// median and the like. Sums of the decimals of Parquet and Arrow files are exact; with f64, the decimals
    /// are floats, for the operators that they do not have. Durations are decimals, in seconds.
    #[arg(long, ignore_case = true, value_parser = dtype())]
    pub dtype: Option<Dtype>,

    /// The column of a CSV, Parquet or Arrow file, or the array of a .npz file: its name, or its index from
    /// 0. Several columns, separated by commas or by giving the option again, have results each. A name
    /// that has a comma is given whole, in an option of its own.
    ///
    /// With this option, --header, --no-header, --delimiter or --skip-missing, a file without another known
    /// format is read as CSV.
    #[arg(long)]
    pub column: Vec<String>,

    /// Print a result for each key as CSV: the keys are in this column of a CSV, Parquet or Arrow file, the
    /// values in --column. Several columns, separated by commas, give a result for each combination of keys.
    ///
    /// The rows of a key may be anywhere. Keys are compared as numbers if all are numbers, else as text.
    /// Results are in ascending order of the keys: numbers by value, then NaN, then empty keys; text by its
    /// bytes. Sums and means of floats are correctly rounded, as exact_sum and exact_mean compute them. The
    /// index that argmax gives counts all rows from 0. A column whose name has a comma is named by
    /// its index. With this option, as with --column, a file without another known format is read as
    /// CSV.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', group = "slices")]
    pub by: Vec<String>,

    /// Read only the rows of a CSV, Parquet or Arrow file that meet the conditions, as in
    /// `year>=2020 and city='new york'`.
    ///
    /// A condition is a column's name or index, one of =, !=, <, <=, > and >=, and a value; ` and ` joins
    /// several. Quotes, ' or ", may be around a name or a value. With a number without quotes, fields are
    /// compared as numbers; with another value as text by its bytes, which is right for dates such as
    /// 2026-11-26. An empty field meets no condition.
    #[arg(long = "where", value_name = "CONDITIONS")]
    pub conditions: Option<Conditions>,

    /// The first row of the CSV file names the columns.
    ///
    /// By default, a first row of numbers only is data, and any other is a header. If the first field of the
    /// column may be either, the program asks for --header or --no-header.
    #[arg(long, conflicts_with = "no_header")]
    pub header: bool,

    /// The first row of the CSV file is data; --column is an index.
    #[arg(long)]
    pub no_header: bool,

    /// The character between two fields of a CSV file, or `tab`.
    ///
    /// By default it is the first of tab, semicolon, bar and comma that splits the first rows into the same
    /// number of fields.
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    pub delimiter: Option<u8>,

    /// Skip the lines of a CSV file that start with this character.
    #[arg(long, value_name = "CHARACTER", value_parser = character)]
    pub comment: Option<u8>,

    /// Leave out the rows of a CSV, Parquet or Arrow file that have no value in the column, and print their
    /// number. Of several columns, each leaves out its own.
    ///
    /// In CSV, a missing value is an empty field or `NA`, `N/A`, `#N/A`, `<NA>`, `NULL` or `None`, in any
    /// case, or a word of --missing; blank lines are not rows. NaN is a number: nansum and the like leave it
    /// out.
    #[arg(long)]
    pub skip_missing: bool,

    /// Words that stand for a missing value in CSV too, separated by commas, such as `-` or `-999`.
    #[arg(long, value_name = "WORDS", value_delimiter = ',', allow_hyphen_values = true)]
    pub missing: Vec<String>,

    /// Read the files' bytes as numbers of the type --dtype, whatever their names and contents.
    #[arg(long, requires = "dtype")]
    #[arg(conflicts_with_all = ["column", "by", "header", "no_header", "delimiter", "comment"])]
    #[arg(conflicts_with_all = ["skip_missing", "missing", "conditions"])]
    pub raw: bool,

    /// CSV, NumPy .npy and .npz, Parquet and Arrow files, raw little-endian numbers (with --dtype), and any
    /// of these compressed by gzip, Zstandard, bzip2, xz, LZ4, or as the only file of a zip archive; - is
    /// standard input, and so is no file if it is no terminal. Several files form one input.
    ///
    /// Text, archives and other known formats are not read as raw numbers without --raw. Files are mapped
    /// into memory: they must not change while the program runs.
    #[arg(required = stdin().is_terminal(), value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Parses `--dtype`.
fn dtype() -> impl TypedValueParser<Value = Dtype> {
    let value = |dtype: &Dtype| PossibleValue::new(dtype.name()).aliases(dtype.aliases());
    let values = PossibleValuesParser::new(Dtype::ALL.iter().map(value));
    values.try_map(|name| name.to_lowercase().parse::<Dtype>())
}

/// Parses `--delimiter`.
fn delimiter(text: &str) -> Result<u8, &'static str> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        &[b'"' | b'\r' | b'\n'] => Err("it cannot separate fields"),
        &[byte] if byte.is_ascii() => Ok(byte),
        _ => Err("neither a single ASCII character nor `tab`"),
    }
}

/// Parses `--comment`.
fn character(text: &str) -> Result<u8, &'static str> {
    match text.as_bytes() {
        &[byte] if byte.is_ascii_punctuation() && byte != b'"' => Ok(byte),
        _ => Err("not a single ASCII punctuation character, such as `#`"),
    }
}

impl InputArgs {
    /// The options that mark a file as CSV, and whether each is given.
    pub fn csv_options(&self) -> [(bool, &'static str); 9] {
        [
            (!self.column.is_empty(), "--column"),
            (!self.by.is_empty(), "--by"),
            (self.conditions.is_some(), "--where"),
            (self.skip_missing, "--skip-missing"),
            (self.header, "--header"),
            (self.no_header, "--no-header"),
            (self.delimiter.is_some(), "--delimiter"),
            (self.comment.is_some(), "--comment"),
            (!self.missing.is_empty(), "--missing"),
        ]
    }

    /// Fails if an option for CSV other than `allowed` is given for a file that is `what`.
    pub fn none_but(&self, allowed: &[&str], what: &'static str) -> Result<(), Error> {
        match self.csv_options().into_iter().find(|&(given, option)| given && !allowed.contains(&option)) {
            Some((_, option)) => Err(Error::NotCsv { option, what }),
            None => Ok(()),
        }
    }
}
