//! The input file: which format it has, and the numbers in it.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;
use std::str::FromStr;

use clap::ValueEnum;
use csv::{ByteRecord, ReaderBuilder, Trim};
use gpu_reduce::Element;
use memmap2::Mmap;

use super::error::Error;
use super::npy;
use super::progress::Progress;

#[cfg(target_endian = "big")]
compile_error!("this example uses the little-endian numbers of its input file as they lie in memory");

/// The type of the numbers.
#[expect(non_camel_case_types, reason = "each variant has the name of its Rust type")]
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Dtype {
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    f16,
    bf16,
    f32,
    f64,
}

/// A file whose format and type of numbers are known.
pub struct Input {
    bytes: Box<dyn Deref<Target = [u8]>>,
    dtype: Dtype,
    format: Format,
}

enum Format {
    Npy(npy::Header),
    Csv { column: Option<String> },
    Raw,
}

impl Input {
    /// Opens the file at `path`. It is `.npy` if it starts so or is named so, else CSV if it is named so or `column`
    /// is given, else raw. `dtype` is the type of raw numbers, the type to parse a CSV column as (else f64), or the
    /// type that a `.npy` file must have.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is a malformed `.npy` file, or does not have the type or format asked for.
    pub fn open(path: &Path, dtype: Option<Dtype>, column: Option<&str>) -> Result<Input, Error> {
        let bytes = read(path).map_err(|source| Error::Read { path: path.into(), source })?;
        let named =
            |extension| path.extension().is_some_and(|of_path| of_path.eq_ignore_ascii_case(extension));

        let (dtype, format) = if bytes.starts_with(npy::MAGIC) || named("npy") {
            if column.is_some() {
                return Err(Error::NotCsv);
            }
            let header = npy::Header::parse(&bytes)?;
            (npy_dtype(&header.descr, dtype)?, Format::Npy(header))
        } else if column.is_some() || named("csv") {
            (dtype.unwrap_or(Dtype::f64), Format::Csv { column: column.map(str::to_owned) })
        } else {
            (dtype.ok_or(Error::NoDtype)?, Format::Raw)
        };
        Ok(Input { bytes, dtype, format })
    }

    /// The type of the numbers.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// All numbers, in the order of the file: in place where the file's layout allows it. `T` is the type that
    /// [`dtype`](Self::dtype) names.
    ///
    /// # Errors
    ///
    /// If the file's length does not fit its type or header; in a CSV file, if there is no such column, or a row has
    /// no valid number in it.
    pub fn values<T: Element + FromStr>(&self) -> Result<Cow<'_, [T]>, Error> {
        let size = size_of::<T>();
        match &self.format {
            Format::Npy(npy::Header { shape, count, start, .. }) => {
                let data = &self.bytes[*start..];
                if count.checked_mul(size) != Some(data.len()) {
                    return Err(Error::Shape {
                        shape: shape.clone(),
                        count: *count,
                        size,
                        bytes: data.len(),
                    });
                }
                Ok(cast(data))
            }
            Format::Csv { column } => self.parse_column(column.as_deref()).map(Cow::Owned),
            Format::Raw if !self.bytes.len().is_multiple_of(size) => {
                Err(Error::Partial { bytes: self.bytes.len(), dtype: self.dtype, size })
            }
            Format::Raw => Ok(cast(&self.bytes)),
        }
    }

    /// Parses one column of a CSV file: the one called `column`, or whose zero-based index `column` is, or the only one.
    fn parse_column<T: FromStr>(&self, column: Option<&str>) -> Result<Vec<T>, Error> {
        // A row with too few or too many fields is refused below, with its line.
        let mut reader = ReaderBuilder::new().flexible(true).trim(Trim::All).from_reader(&self.bytes[..]);
        let names = reader.byte_headers()?.clone();
        let column = find_column(&names, column)?;

        let progress = Progress::new("parsing", self.bytes.len());
        let mut values = Vec::new();
        let mut record = ByteRecord::new();
        while reader.read_byte_record(&mut record)? {
            let start = record.position().map_or(0, |position| position.byte() as usize);
            let line = || line_of_record(&self.bytes, start);
            if record.len() != names.len() {
                return Err(Error::Fields { line: line(), found: record.len(), expected: names.len() });
            }
            let value = str::from_utf8(&record[column]).ok().and_then(|text| text.parse().ok());
            values.push(value.ok_or_else(|| Error::Value {
                line: line(),
                column: String::from_utf8_lossy(&names[column]).into(),
                text: String::from_utf8_lossy(&record[column]).into(),
                dtype: self.dtype,
            })?);
            if values.len().is_multiple_of(1 << 16) {
                progress.set(start);
            }
        }
        Ok(values)
    }
}

/// The bytes of the file at `path`: mapped, unless it is a pipe, a device or another file of unknown length.
fn read(path: &Path) -> io::Result<Box<dyn Deref<Target = [u8]>>> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.len() > 0 {
        // SAFETY: the map is only read. As with any map of a file, nobody may change the file meanwhile, which the
        // help asks of the user: no system that this runs on has a way to rule it out.
        return Ok(Box::new(unsafe { Mmap::map(&file)? }));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Box::new(bytes))
}

/// `bytes` as numbers: copied only where they are not aligned for `T`. Their length is a multiple of its size.
fn cast<T: Element>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => Cow::Owned(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()),
    }
}

/// The type that a `.npy` file's `descr` names; `asked` must agree with it.
fn npy_dtype(descr: &str, asked: Option<Dtype>) -> Result<Dtype, Error> {
    let dtype = match descr {
        "|i1" => Dtype::i8,
        "<i2" => Dtype::i16,
        "<i4" => Dtype::i32,
        "<i8" => Dtype::i64,
        "|u1" => Dtype::u8,
        "<u2" => Dtype::u16,
        "<u4" => Dtype::u32,
        "<u8" => Dtype::u64,
        "<f2" => Dtype::f16,
        "<f4" => Dtype::f32,
        "<f8" => Dtype::f64,
        // NumPy has no bfloat16: the package ml_dtypes saves it as two bytes of no known meaning.
        "<V2" | "|V2" if asked == Some(Dtype::bf16) => Dtype::bf16,
        _ => return Err(Error::Descr { descr: descr.into() }),
    };
    match asked {
        Some(asked) if asked != dtype => Err(Error::OtherDtype { descr: descr.into(), dtype: asked }),
        _ => Ok(dtype),
    }
}

/// The index of the column called `wanted`, or whose index `wanted` is; or of the only one, where none is named.
fn find_column(names: &ByteRecord, wanted: Option<&str>) -> Result<usize, Error> {
    let columns = || {
        let quoted: Vec<_> =
            names.iter().map(|name| format!("`{}`", String::from_utf8_lossy(name))).collect();
        quoted.join(", ")
    };
    match wanted {
        _ if names.is_empty() => Err(Error::NoHeader),
        None if names.len() == 1 => Ok(0),
        None => Err(Error::WhichColumn { columns: columns() }),
        Some(wanted) => names
            .iter()
            .position(|name| name == wanted.as_bytes())
            .or_else(|| wanted.parse().ok().filter(|&index| index < names.len()))
            .ok_or_else(|| Error::UnknownColumn { column: wanted.into(), columns: columns() }),
    }
}

/// The line, from 1, of the CSV record whose position is `start`. The csv crate's own count stops before the line ends
/// and blank lines that it skips at a record's start.
fn line_of_record(bytes: &[u8], start: usize) -> usize {
    let skipped = bytes[start..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    1 + bytes[..start + skipped].iter().filter(|&&byte| byte == b'\n').count()
}
