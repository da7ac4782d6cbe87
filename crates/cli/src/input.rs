//! The input files: their formats, and their numbers.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::mem::take;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use gpu_reduce::{Element, f16};
use gpu_reduce_dynamic::{Dtype, Value, cast, with_type};

use super::args::InputArgs;
use super::columns::Columns;
use super::error::{Error, shown};
use super::inferred::Inferred;
use super::keys::Keys;
use super::report::say;
use super::rows::Rows;
use super::table::Selection;
use super::units::Unit;
use super::{file, foreign, memory, npy, npz};

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
    /// What the numbers stand for, if they are integers that stand for something else.
    pub unit: Option<Unit>,
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
    Typed(Dtype, Option<Unit>, Bytes),
    /// The numbers of a CSV file without --dtype, whose types are inferred.
    Inferred(Inferred),
}

impl Part {
    /// The type of the numbers; `None` for a CSV column without any.
    fn dtype(&self) -> Option<Dtype> {
        match self {
            Part::Typed(dtype, ..) => Some(*dtype),
            Part::Inferred(inferred) => inferred.dtype(),
        }
    }

    /// What the numbers stand for, if they are not numbers.
    fn unit(&self) -> Option<Unit> {
        match self {
            Part::Typed(_, unit, _) => unit.clone(),
            Part::Inferred(inferred) => inferred.unit(),
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
    let unit = parts.iter().find(|part| part.dtype().is_some()).and_then(Part::unit);
    let mut series = Series { dtype: of_csv, unit, is_inferred: false, parts: Vec::new() };
    for (part, File { path, .. }) in parts.into_iter().zip(files) {
        if part.dtype().is_some() && part.unit() != series.unit {
            let name = |unit: Option<Unit>| unit.map_or("numbers".to_owned(), |unit| unit.to_string());
            let (held, first) = (name(part.unit()), name(series.unit));
            return Err(Error::OtherUnits { path: path.clone(), held, first });
        }
        let (dtype, bytes) = match part {
            Part::Typed(dtype, _, bytes) => (dtype, bytes),
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
        conditions: args.conditions.as_ref().map_or(Vec::new(), |conditions| conditions.0.clone()),
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
            &["--column", "--by", "--where", "--skip-missing"],
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
        let typed = |dtype, bytes| (vec![Part::Typed(dtype, None, bytes)], Rows::default());
        Ok(match self {
            Format::Csv(selection, None, bytes) => {
                let (columns, rows) = selection.parse(bytes, Dtype::f64)?;
                (columns.into_iter().map(Part::Inferred).collect(), rows)
            }
            Format::Csv(selection, Some(dtype), bytes) => with_type!(*dtype, T => {
                let (columns, rows) = selection.parse::<Vec<T>>(bytes, *dtype)?;
                let typed = |numbers| Part::Typed(*dtype, None, memory::into_bytes(numbers));
                (columns.into_iter().map(typed).collect(), rows)
            }),
            Format::Columns(columns) => {
                let (numbers, rows) = columns.read()?;
                let typed = |((dtype, unit), bytes): (_, Vec<u8>)| Part::Typed(dtype, unit, bytes.into());
                (columns.types().zip(numbers).map(typed).collect(), rows)
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
