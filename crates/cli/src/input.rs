//! The input files: their formats, and their numbers.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::io::{IsTerminal, stdin};
use std::mem::take;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::ValueEnum;
use gpu_reduce::{Element, bf16, f16};

use super::columns::Columns;
use super::error::{Error, shown};
use super::inferred::Inferred;
use super::keys::Keys;
use super::report::say;
use super::results::Value;
use super::rows::Rows;
use super::table::Selection;
use super::{file, foreign, memory, npy, npz};

#[cfg(target_endian = "big")]
compile_error!("this program reinterprets little-endian input in memory, so it needs a little-endian target");

/// The type of the numbers.
#[expect(non_camel_case_types, reason = "each variant has the name of its Rust type")]
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Dtype {
    #[value(alias = "int8")]
    i8,
    #[value(alias = "int16")]
    i16,
    #[value(alias = "int32")]
    i32,
    #[value(alias = "int64")]
    i64,
    #[value(alias = "uint8")]
    u8,
    #[value(alias = "uint16")]
    u16,
    #[value(alias = "uint32")]
    u32,
    #[value(alias = "uint64")]
    u64,
    #[value(aliases = ["float16", "half"])]
    f16,
    #[value(alias = "bfloat16")]
    bf16,
    #[value(aliases = ["float32", "float"])]
    f32,
    #[value(aliases = ["float64", "double"])]
    f64,
}

/// Evaluates an expression with the type `$T` that a [`Dtype`] names.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $value:expr) => {
        with_type!(@ $dtype, $T => $value, i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64)
    };
    (@ $dtype:expr, $T:ident => $value:expr, $($type:ident)*) => {
        match $dtype {
            $(Dtype::$type => {
                type $T = $type;
                $value
            })*
        }
    };
}
pub(crate) use with_type;

impl Dtype {
    /// The size of a number in bytes.
    pub fn size(self) -> usize {
        with_type!(self, T => size_of::<T>())
    }
}

/// The files, and how to read them.
#[derive(clap::Args)]
pub struct InputArgs {
    /// The type of a raw file's numbers; the type to parse a CSV column as; the type that other files must
    /// have.
    ///
    /// Without it, a CSV column of integers only is i64; any other is f64. NumPy's names work too, such as
    /// float32. Booleans are u8, 0 and 1.
    #[arg(long, ignore_case = true)]
    dtype: Option<Dtype>,

    /// The column of a CSV, Parquet or Arrow file, or the array of a .npz file: its name, or its index from
    /// 0. Several columns, separated by commas or by giving the option again, have results each.
    ///
    /// With this option, --header, --no-header, --delimiter or --skip-missing, a file without another known
    /// format is read as CSV.
    #[arg(long)]
    column: Vec<String>,

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
    by: Vec<String>,

    /// The first row of the CSV file names the columns.
    ///
    /// By default, a first row of numbers only is data, and any other is a header. If the first field of the
    /// column may be either, the program asks for --header or --no-header.
    #[arg(long, conflicts_with = "no_header")]
    header: bool,

    /// The first row of the CSV file is data; --column is an index.
    #[arg(long)]
    no_header: bool,

    /// The character between two fields of a CSV file, or `tab`.
    ///
    /// By default it is the first of tab, semicolon, bar and comma that splits the first rows into the same
    /// number of fields.
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,

    /// Skip the lines of a CSV file that start with this character.
    #[arg(long, value_name = "CHARACTER", value_parser = character)]
    comment: Option<u8>,

    /// Leave out the rows of a CSV, Parquet or Arrow file that have no value in the column, and print their
    /// number. Of several columns, each leaves out its own.
    ///
    /// In CSV, a missing value is an empty field or `NA`, `N/A`, `#N/A`, `<NA>`, `NULL` or `None`, in any
    /// case, or a word of --missing; blank lines are not rows. NaN is a number: nansum and the like leave it out.
    #[arg(long)]
    skip_missing: bool,

    /// Words that stand for a missing value in CSV too, separated by commas, such as `-` or `-999`.
    #[arg(long, value_name = "WORDS", value_delimiter = ',', allow_hyphen_values = true)]
    missing: Vec<String>,

    /// Read the files' bytes as numbers of the type --dtype, whatever their names and contents.
    #[arg(long, requires = "dtype")]
    #[arg(conflicts_with_all = ["column", "by", "header", "no_header", "delimiter", "comment"])]
    #[arg(conflicts_with_all = ["skip_missing", "missing"])]
    raw: bool,

    /// CSV, NumPy .npy and .npz, Parquet and Arrow files, raw little-endian numbers (with --dtype), and any
    /// of these compressed by gzip, Zstandard, bzip2, xz, LZ4, or as the only file of a zip archive; - is standard input, and so is no file if it is no terminal.
    /// Several files form one input.
    ///
    /// Text, archives and other known formats are not read as raw numbers without --raw. Files are mapped
    /// into memory: they must not change while the program runs.
    #[arg(required = stdin().is_terminal(), value_name = "FILE")]
    files: Vec<PathBuf>,
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
    fn csv_options(&self) -> [(bool, &'static str); 8] {
        [
            (!self.column.is_empty(), "--column"),
            (!self.by.is_empty(), "--by"),
            (self.skip_missing, "--skip-missing"),
            (self.header, "--header"),
            (self.no_header, "--no-header"),
            (self.delimiter.is_some(), "--delimiter"),
            (self.comment.is_some(), "--comment"),
            (!self.missing.is_empty(), "--missing"),
        ]
    }

    /// Fails if an option for CSV other than `allowed` is given for a file that is `what`.
    fn none_but(&self, allowed: &[&str], what: &'static str) -> Result<(), Error> {
        match self.csv_options().into_iter().find(|&(given, option)| given && !allowed.contains(&option)) {
            Some((_, option)) => Err(Error::NotCsv { option, what }),
            None => Ok(()),
        }
    }
}

/// Opened files of known formats.
pub struct Files {
    files: Vec<File>,
    skip_missing: bool,
}

/// Files that were read.
pub struct Input {
    files: Vec<File>,
    /// The columns of numbers; files without columns have one.
    pub columns: Vec<Series>,
    /// What else the tables have.
    pub rows: Rows,
    skip_missing: bool,
}

/// The numbers of a column of all files.
pub struct Series {
    pub dtype: Dtype,
    /// Whether the type was inferred from the fields of a CSV file.
    pub is_inferred: bool,
    /// The numbers of each file.
    pub parts: Vec<Bytes>,
}

struct File {
    path: PathBuf,
    format: Format,
}

enum Format {
    Npy(npy::Header, Dtype, Bytes),
    /// CSV; without a type, each column has the type that its fields need.
    Csv(Selection, Option<Dtype>, Bytes),
    Columns(Columns),
    Raw(Dtype, Bytes),
}

/// The numbers of a column of a file.
enum Part {
    Typed(Dtype, Bytes),
    /// Those of a CSV file without --dtype.
    Inferred(Inferred),
}

impl Part {
    /// The type of the numbers; `None` for a CSV column without any.
    fn dtype(&self) -> Option<Dtype> {
        match self {
            Part::Typed(dtype, _) => Some(*dtype),
            Part::Inferred(inferred) => inferred.dtype(),
        }
    }
}

impl Files {
    /// Opens the files that `args` name.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, is malformed, has another type than asked for, or has an unsupported format.
    pub fn open(args: &InputArgs) -> Result<Files, Error> {
        if args.files.iter().filter(|path| path.as_os_str() == file::STANDARD_INPUT).count() > 1 {
            return Err(Error::TwiceStandardInput);
        }
        let standard_input = [PathBuf::from(file::STANDARD_INPUT)];
        let paths = if args.files.is_empty() { &standard_input[..] } else { &args.files };
        let mut files = Vec::new();
        for path in paths {
            let format = open(args, path).map_err(|error| in_file(paths.len(), path, error))?;
            files.push(File { path: path.clone(), format });
        }
        Ok(Files { files, skip_missing: args.skip_missing })
    }

    /// Whether any file is a table with named columns.
    pub fn are_tables(&self) -> bool {
        self.files.iter().any(|file| matches!(file.format, Format::Csv(..) | Format::Columns(_)))
    }

    /// Reads the numbers, keys and missing rows of all files in their order.
    ///
    /// # Errors
    ///
    /// [`Error::OtherTypes`], [`Error::OtherColumns`]; if a file's length does not fit its type or header; if
    /// [`Selection::parse`] or [`Columns::read`] fails.
    pub fn read(self) -> Result<Input, Error> {
        let Files { files, skip_missing } = self;
        let (mut rows, mut columns) = (Rows::default(), Vec::new());
        for File { path, format } in &files {
            let (parts, of_file) = format.read().map_err(|error| in_file(files.len(), path, error))?;
            rows.append(of_file);
            columns.resize_with(if columns.is_empty() { parts.len() } else { columns.len() }, Vec::new);
            if columns.len() != parts.len() {
                let (found, first) = (parts.len(), columns.len());
                return Err(Error::OtherColumns { path: path.clone(), found, first });
            }
            columns.iter_mut().zip(parts).for_each(|(column, part)| column.push(part));
        }
        let columns =
            columns.into_iter().map(|parts| of_one_type(&files, parts)).collect::<Result<_, _>>()?;
        Ok(Input { files, columns, rows, skip_missing })
    }
}

/// Converts the parts of a column, one of each file, to one type. CSV columns without --dtype are i64 if all
/// fields are integers that fit and no other file holds f64; else f64.
fn of_one_type(files: &[File], parts: Vec<Part>) -> Result<Series, Error> {
    let has = |dtype| parts.iter().any(|part| part.dtype() == Some(dtype));
    let of_csv = if has(Dtype::i64) && !has(Dtype::f64) { Dtype::i64 } else { Dtype::f64 };
    let mut series = Series { dtype: of_csv, is_inferred: false, parts: Vec::new() };
    for (part, File { path, .. }) in parts.into_iter().zip(files) {
        let (dtype, bytes) = match part {
            Part::Typed(dtype, bytes) => (dtype, bytes),
            Part::Inferred(mut inferred) => {
                series.is_inferred = true;
                if let Some(field) = inferred.become_of(of_csv) {
                    say(&format!(
                        "note: `{}`: {} does not fit i64, so this column of integers is read as f64, which \
                         has 53 bits of precision; choose another type with --dtype",
                        path.display(),
                        shown(field)
                    ));
                }
                (of_csv, inferred.into_bytes())
            }
        };
        let first = if series.parts.is_empty() { dtype } else { series.dtype };
        if dtype != first {
            return Err(Error::OtherTypes { path: path.clone(), dtype, first });
        }
        series.dtype = first;
        series.parts.push(bytes);
    }
    Ok(series)
}

impl Series {
    /// The number of numbers.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum::<usize>() / self.dtype.size()
    }

    /// The numbers. `T` is the type that `dtype` names. The numbers of a single file are not copied if its
    /// layout allows it.
    pub fn values<T: Element>(&self) -> Cow<'_, [T]> {
        match &self.parts[..] {
            [part] => cast(part),
            parts => {
                let mut values = Vec::new();
                memory::reserve(&mut values, self.len());
                parts.iter().for_each(|part| values.extend_from_slice(&cast::<T>(part)));
                values.into()
            }
        }
    }
}

impl Input {
    /// Whether rows without a value are left out.
    pub fn skips_missing(&self) -> bool {
        self.skip_missing
    }

    /// The name of a column of numbers; empty for files without columns.
    pub fn name(&self, column: usize) -> &str {
        self.rows.columns.get(column).map_or("", |column| &column.name)
    }

    /// The rows without a value in a column of numbers, besides the rows without any value.
    pub fn absent(&self, column: usize) -> &[usize] {
        self.rows.columns.get(column).map_or(&[], |column| &column.absent)
    }

    /// The number of rows without a value in a column of numbers.
    pub fn missing(&self, column: usize) -> u64 {
        self.rows.missing + self.absent(column).len() as u64
    }

    /// Takes the keys of the rows in each column of --by.
    pub fn take_keys(&mut self) -> Vec<Keys> {
        take(&mut self.rows.keys)
    }

    /// Returns the matrix that the `len` numbers form: the lengths of its axes, the second of which is
    /// contiguous, and which of the two the caller asked for. `number` is the number of rows or columns, if
    /// given. Several `.npy` files are stacked, one below the other.
    ///
    /// # Errors
    ///
    /// If `number` contradicts the shape of a `.npy` file, is missing for other files, or does not divide
    /// `len`.
    pub fn matrix(
        &self,
        axis: Axis,
        number: Option<usize>,
        len: usize,
    ) -> Result<([usize; 2], usize), Error> {
        let index = axis as usize;
        if let Some((shape, lengths, fortran_order)) = self.shape()? {
            if let Some(number) = number.filter(|&number| number != lengths[index]) {
                return Err(Error::OtherNumber { shape, axis, number, of_file: lengths[index] });
            }
            let [rows, columns] = lengths;
            return Ok(if fortran_order { ([columns, rows], 1 - index) } else { (lengths, index) });
        }
        let number = number.ok_or(Error::NoNumber { axis })?;
        match (axis, len.checked_rem(number)) {
            (Axis::Row, Some(0)) => Ok(([number, len / number], 0)),
            (Axis::Column, Some(0)) => Ok(([len / number, number], 1)),
            _ => Err(Error::Undivided { axis, number, len }),
        }
    }

    /// The shape in the `.npy` files, if they are matrices: as text, as numbers of rows and columns, and
    /// whether it is in Fortran order.
    fn shape(&self) -> Result<Option<(String, [usize; 2], bool)>, Error> {
        let mut all: Option<(String, [usize; 2], bool)> = None;
        for File { format, .. } in &self.files {
            let Format::Npy(npy::Header { shape, axes, fortran_order, .. }, ..) = format else {
                return Ok(None);
            };
            let lengths = match axes[..] {
                [_] => return Ok(None),
                [rows, columns] => [rows, columns],
                _ => return Err(Error::NotTwoAxes { shape: shape.clone() }),
            };
            all = Some(match all {
                None => (shape.clone(), lengths, *fortran_order),
                Some((_, [rows, columns], false)) if !fortran_order && columns == lengths[1] => {
                    let rows = rows + lengths[0];
                    (format!("({rows}, {columns})"), [rows, columns], false)
                }
                Some((above, ..)) => return Err(Error::NotBelow { above, shape: shape.clone() }),
            });
        }
        Ok(all)
    }
}

/// Adds the file's name to an error, if there are several files and the error does not name it already.
fn in_file(files: usize, path: &Path, error: Error) -> Error {
    match error {
        Error::Read { .. } | Error::Foreign { .. } | Error::Text { .. } | Error::NotText { .. } => error,
        error if files > 1 => Error::In { path: path.into(), error: Box::new(error) },
        error => error,
    }
}

/// Finds the format of a file and the type of its numbers.
///
/// A file is raw with --raw; else it has the format of its first bytes or its extension; else it is CSV if an
/// option for CSV is given, or if it is text and --dtype is not given; else it is raw.
fn open(args: &InputArgs, path: &Path) -> Result<Format, Error> {
    let dtype = args.dtype;
    let bytes = file::read(path)?;
    if args.raw {
        return Ok(Format::Raw(dtype.ok_or(Error::NoDtype)?, bytes));
    }
    let (inner, mut bytes) = file::decompressed(path, bytes)?;
    let path = || path.to_owned();
    let selection = || Selection {
        delimiter: args.delimiter.or(foreign::is_named(&inner, &["tsv", "tab"]).then_some(b'\t')),
        columns: args.column.clone(),
        by: args.by.clone(),
        comment: args.comment,
        header: (args.header || args.no_header).then_some(args.header),
        skip_missing: args.skip_missing,
        missing: args.missing.clone(),
    };

    let (mut is_npy, mut allowed) =
        (bytes.starts_with(npy::MAGIC) || foreign::is_named(&inner, &["npy"]), &[][..]);
    if npz::is_archive(&bytes)
        && let Some(array) = npz::array(&bytes, &args.column)?
    {
        (bytes, is_npy, allowed) = (array, true, &["--column"]);
    }
    if is_npy {
        args.none_but(allowed, "a NumPy file, which has no named columns or keys")?;
        let header = npy::Header::parse(&bytes)?;
        let dtype = npy_dtype(&header.descr, dtype)?;
        return Ok(Format::Npy(header, dtype, bytes));
    }
    if let Some(what) = foreign::by_magic(&bytes) {
        return Err(Error::Foreign { path: path(), what });
    }
    if let Some(kind) = Columns::kind(&inner, &bytes) {
        args.none_but(
            &["--column", "--by", "--skip-missing"],
            "a Parquet or Arrow file, whose columns have types and names",
        )?;
        return Ok(Format::Columns(Columns::open(kind, bytes, &selection(), dtype)?));
    }
    if let Some(text) = foreign::of_utf16(&bytes).filter(|text| dtype.is_none() || foreign::is_text(text)) {
        bytes = text;
    }
    let is_text = foreign::is_text(&bytes);
    let is_csv =
        args.csv_options().into_iter().any(|(given, _)| given) || foreign::is_named(&inner, foreign::TABLES);
    if is_csv || is_text && dtype.is_none() && !foreign::is_named_text(&inner) {
        if foreign::has_nul(&bytes) {
            return Err(Error::NotText { path: path() });
        }
        return Ok(Format::Csv(selection(), dtype, bytes));
    }
    if let Some(what) = foreign::by_name(&inner) {
        return Err(Error::Foreign { path: path(), what });
    }
    if is_text || foreign::is_named_text(&inner) {
        return Err(Error::Text { path: path() });
    }
    let dtype = dtype.ok_or(if bytes.is_empty() { Error::Nothing } else { Error::NoDtype })?;
    Ok(Format::Raw(dtype, bytes))
}

impl Format {
    /// Reads the columns of numbers, of which files without columns have one, and what else a table has.
    fn read(&self) -> Result<(Vec<Part>, Rows), Error> {
        let typed = |dtype, bytes| (vec![Part::Typed(dtype, bytes)], Rows::default());
        Ok(match self {
            Format::Csv(selection, None, bytes) => {
                let (columns, rows) = selection.parse(bytes, Dtype::f64)?;
                (columns.into_iter().map(Part::Inferred).collect(), rows)
            }
            Format::Csv(selection, Some(dtype), bytes) => with_type!(*dtype, T => {
                let (columns, rows) = selection.parse::<Vec<T>>(bytes, *dtype)?;
                let typed = |numbers| Part::Typed(*dtype, memory::into_bytes(numbers));
                (columns.into_iter().map(typed).collect(), rows)
            }),
            Format::Columns(columns) => {
                let (numbers, rows) = columns.read()?;
                (numbers.into_iter().map(|(dtype, bytes)| Part::Typed(dtype, bytes.into())).collect(), rows)
            }
            Format::Npy(header, dtype, bytes) => typed(*dtype, npy_data(header, bytes, dtype.size())?),
            Format::Raw(dtype, bytes) if bytes.len().is_multiple_of(dtype.size()) => {
                typed(*dtype, bytes.clone())
            }
            Format::Raw(dtype, bytes) => {
                return Err(Error::Partial { bytes: bytes.len(), dtype: *dtype, size: dtype.size() });
            }
        })
    }
}

/// The axes of a matrix in NumPy's order.
#[derive(Clone, Copy, Debug)]
pub enum Axis {
    Row,
    Column,
}

impl Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Axis::Row => "row",
            Axis::Column => "column",
        })
    }
}

/// `bytes` as numbers; copies them only if they are not aligned for `T`. Their length must be a multiple of
/// the size of `T`.
pub fn cast<T: Element>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => Cow::Owned(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()),
    }
}

/// Returns the bytes of the numbers in a `.npy` file, in little-endian order; `size` is the size of a number.
///
/// # Errors
///
/// [`Error::Shape`] if the number of elements differs from the shape.
fn npy_data(header: &npy::Header, file: &Bytes, size: usize) -> Result<Bytes, Error> {
    let data = file.slice(header.start..);
    let npy::Header { descr, shape, count, .. } = header;
    match count.checked_mul(size) {
        Some(bytes) if bytes == data.len() => {}
        needed => {
            let is_short = needed.is_none_or(|bytes| bytes > data.len());
            let hint = if is_short { ": the file is cut off" } else { "" };
            return Err(Error::Shape { shape: shape.clone(), count: *count, size, bytes: data.len(), hint });
        }
    }
    if !descr.starts_with('>') || size == 1 {
        return Ok(data);
    }
    let mut swapped = data.to_vec();
    swapped.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    Ok(swapped.into())
}

/// The type of a `.npy` file with this `descr`, in either byte order. It must equal `asked`, if given.
fn npy_dtype(descr: &str, asked: Option<Dtype>) -> Result<Dtype, Error> {
    let little = descr.strip_prefix(['>', '=']).map_or(descr.to_owned(), |name| format!("<{name}"));
    macro_rules! named {
        ($($T:ident)*) => {
            match Some(little.as_str()) {
                $(<$T as Value>::DESCR => Dtype::$T,)*
                // Single bytes have no byte order; booleans are 0 and 1.
                Some("<i1") => Dtype::i8,
                Some("<u1" | "|b1" | "<b1" | "?") => Dtype::u8,
                // NumPy has no bfloat16. The package ml_dtypes saves it as two opaque bytes.
                Some("<V2" | "|V2") if asked == Some(Dtype::bf16) => Dtype::bf16,
                _ => return Err(Error::Descr { descr: descr.into() }),
            }
        };
    }
    let dtype = named!(i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64);
    match asked {
        Some(asked) if asked != dtype => Err(Error::OtherDtype { held: descr.into(), dtype: asked }),
        _ => Ok(dtype),
    }
}
