//! The input file: which format it has, and the numbers in it.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use gpu_reduce::{Element, f16};
use memmap2::Mmap;

use super::error::Error;
use super::keys::Keys;
use super::results::Value;
use super::table::Selection;
use super::{foreign, npy};

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

/// Which file, and how to read it.
#[derive(clap::Args)]
pub struct InputArgs {
    /// The type of a raw file's numbers; the type to parse a CSV column as, if not f64; the type a .npy file must have.
    #[arg(long)]
    dtype: Option<Dtype>,

    /// The column of a CSV file: its name, or its index counted from 0.
    ///
    /// With this option, --header or --no-header any file is CSV, but .npy files, archives and the like; one named .tsv is
    /// separated by tabs.
    #[arg(long)]
    column: Option<String>,

    /// Print a result for each run of neighbouring rows of a CSV file that have one key in this column, as CSV;
    /// --column has the values.
    ///
    /// Keys are compared as numbers, where all are such, or as text. Indices, as of argmax, count from the run's start.
    /// With this option any file is CSV, as with --column.
    #[arg(long, value_name = "COLUMN", group = "slices")]
    by: Option<String>,

    /// The first row of the CSV file names the columns.
    ///
    /// By default a first row of numbers alone is data, and any other a header; where the first field of the column may
    /// be either, the program asks for one of the two options.
    #[arg(long, conflicts_with = "no_header")]
    header: bool,

    /// The first row of the CSV file is data, as all others; --column is an index.
    #[arg(long)]
    no_header: bool,

    /// Take the file's bytes as numbers of the type --dtype, whatever it is named or holds.
    #[arg(long, requires = "dtype", conflicts_with_all = ["column", "by", "header", "no_header"])]
    raw: bool,

    /// A NumPy .npy file, a CSV file, or raw little-endian numbers (with --dtype).
    ///
    /// Text, archives and other known formats are refused as raw numbers, unless --raw says so. The file is mapped, not
    /// read: it must not change meanwhile.
    file: PathBuf,
}

impl InputArgs {
    /// The option that says that the file is CSV, if there is one.
    fn csv_option(&self) -> Option<&'static str> {
        let options = [
            (self.column.is_some(), "--column"),
            (self.by.is_some(), "--by"),
            (self.header, "--header"),
            (self.no_header, "--no-header"),
        ];
        options.into_iter().find_map(|(given, option)| given.then_some(option))
    }
}

/// A file whose format and type of numbers are known.
pub struct Input {
    bytes: Box<dyn Deref<Target = [u8]>>,
    dtype: Dtype,
    format: Format,
}

enum Format {
    Npy(npy::Header),
    Csv(Selection),
    Raw,
}

/// What a file has.
enum Content<'a> {
    /// The bytes of numbers.
    Numbers(&'a [u8]),
    /// Text, and the keys of its rows.
    Text(Option<Keys>),
}

impl Input {
    /// Opens the file that `args` name. It is raw if they say so, else `.npy` if it starts so or is named so, else CSV if
    /// it is named so or they have an option for CSV, else raw.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is a malformed `.npy` file, does not have the type or format asked for, or has a
    /// format that is not read here.
    pub fn open(args: &InputArgs) -> Result<Input, Error> {
        let InputArgs { dtype, file, .. } = args;
        let bytes = read(file).map_err(|source| Error::Read { path: file.clone(), source })?;
        let foreign = |what| Error::Foreign { path: file.clone(), what };

        let (dtype, format) = if args.raw {
            (dtype.ok_or(Error::NoDtype)?, Format::Raw)
        } else if bytes.starts_with(npy::MAGIC) || foreign::is_named(file, &["npy"]) {
            if let Some(option) = args.csv_option() {
                return Err(Error::NotCsv { option });
            }
            let header = npy::Header::parse(&bytes)?;
            (npy_dtype(&header.descr, *dtype)?, Format::Npy(header))
        } else if let Some(what) = foreign::by_magic(&bytes) {
            return Err(foreign(what));
        } else if args.csv_option().is_some() || foreign::is_named(file, &["csv"]) {
            if foreign::has_nul(&bytes) {
                return Err(Error::NotText { path: file.clone() });
            }
            let selection = Selection {
                delimiter: if foreign::is_named(file, &["tsv", "tab"]) { b'\t' } else { b',' },
                column: args.column.clone(),
                by: args.by.clone(),
                header: (args.header || args.no_header).then_some(args.header),
            };
            (dtype.unwrap_or(Dtype::f64), Format::Csv(selection))
        } else if let Some(what) = foreign::by_name(file) {
            return Err(foreign(what));
        } else if foreign::is_text(file, &bytes) {
            return Err(Error::Text { path: file.clone() });
        } else {
            (dtype.ok_or(Error::NoDtype)?, Format::Raw)
        };
        Ok(Input { bytes, dtype, format })
    }

    /// Whether it is a CSV file.
    pub fn is_csv(&self) -> bool {
        matches!(self.format, Format::Csv(_))
    }

    /// The type of the numbers.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// All numbers, in the order of the file: in place where the file's layout allows it. `T` is the type that
    /// [`dtype`](Self::dtype) names. And the keys of a CSV file's rows, if they are asked for.
    ///
    /// # Errors
    ///
    /// If the file's length does not fit its type or header; in a CSV file, what [`Selection::parse`] says.
    pub fn values<T: Element + FromStr>(&self) -> Result<(Cow<'_, [T]>, Option<Keys>), Error> {
        let mut parsed = Vec::new();
        let mut parse = |text: &str| text.parse().map(|value| parsed.push(value)).is_ok();
        Ok(match self.read(size_of::<T>(), &mut parse)? {
            Content::Numbers(bytes) => (cast(bytes), None),
            Content::Text(keys) => (Cow::Owned(parsed), keys),
        })
    }

    /// The numbers, which have `size` bytes each; of text, they go to `parse`, one at a time.
    fn read(&self, size: usize, parse: &mut dyn FnMut(&str) -> bool) -> Result<Content<'_>, Error> {
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
                Ok(Content::Numbers(data))
            }
            Format::Raw if !self.bytes.len().is_multiple_of(size) => {
                Err(Error::Partial { bytes: self.bytes.len(), dtype: self.dtype, size })
            }
            Format::Raw => Ok(Content::Numbers(&self.bytes)),
            Format::Csv(selection) => selection.parse(&self.bytes, self.dtype, parse).map(Content::Text),
        }
    }

    /// The matrix of so many rows or columns that the numbers are, of which there are `len`: the lengths of its two
    /// axes, neighbours along the second of which lie side by side, and which of the two is the one asked for.
    ///
    /// # Errors
    ///
    /// If a `.npy` file has another shape, if nothing says the number, and if it does not divide `len`.
    pub fn matrix(
        &self,
        axis: Axis,
        number: Option<usize>,
        len: usize,
    ) -> Result<([usize; 2], usize), Error> {
        match &self.format {
            Format::Npy(npy::Header { shape, axes, fortran_order, .. }) => match axes[..] {
                [rows, columns] => {
                    let lengths = [rows, columns];
                    let index = axis as usize;
                    if let Some(number) = number.filter(|&number| number != lengths[index]) {
                        let shape = shape.clone();
                        return Err(Error::OtherNumber { shape, axis, number, of_file: lengths[index] });
                    }
                    return Ok(if *fortran_order { ([columns, rows], 1 - index) } else { (lengths, index) });
                }
                [_] => {}
                _ => return Err(Error::NotTwoAxes { shape: shape.clone() }),
            },
            Format::Raw | Format::Csv(_) => {}
        }
        let number = number.ok_or(Error::NoNumber { axis })?;
        match (axis, len.checked_rem(number)) {
            (Axis::Row, Some(0)) => Ok(([number, len / number], 0)),
            (Axis::Column, Some(0)) => Ok(([len / number, number], 1)),
            _ => Err(Error::Undivided { axis, number, len }),
        }
    }
}

/// The axes of a matrix, in NumPy's order.
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
    macro_rules! named {
        ($($T:ident)*) => {
            match Some(descr) {
                $(<$T as Value>::DESCR => Dtype::$T,)*
                // NumPy has no bfloat16: the package ml_dtypes saves it as two bytes of no known meaning.
                Some("<V2" | "|V2") if asked == Some(Dtype::bf16) => Dtype::bf16,
                _ => return Err(Error::Descr { descr: descr.into() }),
            }
        };
    }
    let dtype = named!(i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64);
    match asked {
        Some(asked) if asked != dtype => Err(Error::OtherDtype { descr: descr.into(), dtype: asked }),
        _ => Ok(dtype),
    }
}
