//! Parquet and Arrow files: the numbers of one column.

use std::io::Cursor;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, downcast_primitive_array};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::filter::filter;
use arrow_select::take::take;
use bytes::Bytes;
use csv::ByteRecord;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;

use super::error::{Error, shown};
use super::foreign;
use super::input::{Dtype, Rows};
use super::progress::Progress;
use super::table::{Column, Selection};

/// The file format.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Parquet,
    /// Arrow's file format, also called Feather version 2.
    Arrow,
    /// Arrow's stream format.
    Stream,
}

/// A Parquet or Arrow file, and the columns to read.
pub struct Columns {
    bytes: Bytes,
    kind: Kind,
    column: Column,
    by: Option<Column>,
    skip_missing: bool,
}

type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

impl Columns {
    /// Recognises the format by the file's first bytes or its name.
    pub fn kind(path: &Path, bytes: &[u8]) -> Option<Kind> {
        let named = |extensions: &[&str]| foreign::is_named(path, extensions);
        let is_arrow = named(&["arrow", "feather", "ipc"]);
        let is_parquet = bytes.starts_with(b"PAR1") || has_encrypted_footer(bytes);
        match bytes {
            _ if is_parquet || named(&["parquet", "pq"]) => Some(Kind::Parquet),
            _ if bytes.starts_with(b"ARROW1") => Some(Kind::Arrow),
            _ if is_stream(bytes) || named(&["arrows"]) => Some(Kind::Stream),
            _ if is_arrow && bytes.starts_with(OF_STREAM) => Some(Kind::Stream),
            _ => is_arrow.then_some(Kind::Arrow),
        }
    }

    /// Finds the wanted columns; also returns the type of the numbers.
    ///
    /// # Errors
    ///
    /// [`Error::Columns`] if the file is malformed; [`Error::Encrypted`]; [`Error::Compression`]; an error if
    /// the column does not exist or holds no numbers.
    pub fn open(kind: Kind, bytes: Bytes, selection: &Selection) -> Result<(Columns, Dtype), Error> {
        if has_encrypted_footer(&bytes) {
            return Err(Error::Encrypted { what: "the Parquet file".into() });
        }
        let malformed = |error| Error::Columns { kind, error };
        let (schema, _) = guarded(|| batches(kind, &bytes, None)).map_err(malformed)?;
        let fields = schema.fields();
        if fields.is_empty() {
            return Err(Error::NoColumns);
        }
        let names = ByteRecord::from(fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>());
        let (column, by) = selection.find_columns(&names, true)?;
        let found = fields[column.index].data_type();
        let Some(dtype) = dtype_of(values_of(found)) else {
            return Err(Error::NotNumbers { column: column.name, found: found.to_string() });
        };
        if let Some(by) = &by {
            let found = fields[by.index].data_type();
            if dtype_of(values_of(found)).is_none() && !is_text(values_of(found)) {
                return Err(Error::NotKeys { column: by.name.clone(), found: found.to_string() });
            }
        }
        if let Kind::Parquet = kind {
            for column in [Some(&column), by.as_ref()].into_iter().flatten() {
                if let Some(error) = guarded(|| unread(&bytes, column)).map_err(malformed)? {
                    return Err(error);
                }
            }
        }
        Ok((Columns { bytes, kind, column, by, skip_missing: selection.skip_missing }, dtype))
    }

    /// Returns the bytes of the numbers; adds keys and missing rows to `rows`.
    ///
    /// # Errors
    ///
    /// [`Error::Columns`] if the file is malformed; [`Error::Null`] at a null, unless missing values are
    /// skipped.
    pub fn read(&self, rows: &mut Rows) -> Result<Vec<u8>, Error> {
        let failed = |error| Error::Columns { kind: self.kind, error };
        let mut wanted = vec![self.column.index];
        wanted.extend(self.by.as_ref().map(|by| by.index));
        wanted.sort_unstable();
        wanted.dedup();
        let place = |column: &Column| wanted.iter().position(|&index| index == column.index);
        let (_, mut batches) = guarded(|| batches(self.kind, &self.bytes, Some(&wanted))).map_err(failed)?;

        let progress = Progress::endless("reading numbers");
        let (mut values, mut row) = (Vec::new(), 0);
        if let Some(by) = &self.by {
            rows.keys_of(&by.name);
        }
        while let Some(batch) = guarded(|| batches.next().transpose()).map_err(failed)? {
            let of = |column: &Column| plain(batch.column(place(column).unwrap_or(0))).map_err(failed);
            let mut numbers = of(&self.column)?;
            let is_there = numbers.logical_nulls().filter(|nulls| nulls.null_count() > 0);
            if let Some(nulls) = is_there.as_ref().filter(|_| !self.skip_missing) {
                let null = (0..nulls.len()).find(|&index| nulls.is_null(index)).unwrap_or(0);
                return Err(Error::Null { row: row + null, column: self.column.name.clone() });
            }
            rows.missing += is_there.as_ref().map_or(0, |nulls| nulls.null_count()) as u64;
            let is_there = is_there.map(|nulls| BooleanArray::new(nulls.into_inner(), None));
            let kept = |array: ArrayRef| match &is_there {
                None => Ok(array),
                Some(is_there) => filter(&array, is_there).map_err(failed),
            };
            row += numbers.len();
            numbers = kept(numbers)?;
            push_bytes(&numbers, &mut values);
            if let Some(by) = &self.by {
                let keys = kept(of(by)?)?;
                let of_rows = rows.keys_of(&by.name);
                (0..keys.len()).for_each(|index| of_rows.push(key(&keys, index).as_bytes()));
            }
            progress.set(values.len());
        }
        Ok(values)
    }
}

/// The first bytes of an Arrow stream since Arrow 0.15.
const OF_STREAM: &[u8] = &[0xff; 4];

/// Whether the bytes are an Arrow stream: they start with the length of a schema message and the message.
fn is_stream(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(OF_STREAM).unwrap_or(bytes);
    let message = || {
        let (length, rest) = bytes.split_first_chunk()?;
        root_as_message(rest.get(..u32::from_le_bytes(*length) as usize)?).ok()
    };
    message().is_some_and(|message| message.header_type() == MessageHeader::Schema)
}

/// Whether this is a Parquet file with an encrypted footer, which hides names and types.
fn has_encrypted_footer(bytes: &[u8]) -> bool {
    const MAGIC: &[u8] = b"PARE";
    bytes.starts_with(MAGIC) && bytes.ends_with(MAGIC)
}

/// The reason why this program cannot read a column of a valid Parquet file, if there is one.
fn unread(bytes: &Bytes, column: &Column) -> Result<Option<Error>, ArrowError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes.clone())?;
    let is_of_column = |&leaf: &usize| builder.parquet_schema().get_column_root_idx(leaf) == column.index;
    for row_group in builder.metadata().row_groups() {
        for leaf in (0..row_group.num_columns()).filter(is_of_column) {
            let chunk = row_group.column(leaf);
            let by = match chunk.compression() {
                Compression::BROTLI(_) => "Brotli",
                Compression::LZO => "LZO",
                _ if is_encrypted(bytes, chunk.byte_range()) => {
                    return Ok(Some(Error::Encrypted { what: format!("column {}", shown(&column.name)) }));
                }
                _ => continue,
            };
            return Ok(Some(Error::Compression { column: column.name.clone(), by }));
        }
    }
    Ok(None)
}

/// Whether a Parquet column chunk is encrypted. An encrypted chunk starts with the length of its encrypted
/// page header; a plain one starts with a page header whose first two fields are integers.
fn is_encrypted(bytes: &[u8], (start, length): (u64, u64)) -> bool {
    /// Bytes that encryption adds to a page header.
    const LEAST: u64 = 28;
    const INTEGER: u8 = 0x15;
    let header = usize::try_from(start).ok().and_then(|start| bytes.get(start..)?.first_chunk());
    header.is_some_and(|header: &[u8; 4]| {
        let is_plain = header[0] == INTEGER && header[2] == INTEGER;
        !is_plain && (LEAST..length).contains(&u32::from_le_bytes(*header).into())
    })
}

/// Turns a panic of the Parquet or Arrow reader, which malformed files can cause, into an error.
fn guarded<R>(read: impl FnOnce() -> Result<R, ArrowError>) -> Result<R, ArrowError> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    panic::set_hook(hook);
    result.unwrap_or_else(|_| Err(ArrowError::ParseError("its parts are inconsistent".into())))
}

/// Returns the schema and the record batches. With `wanted`, the batches have only the columns of these
/// indices, in ascending order.
fn batches(kind: Kind, bytes: &Bytes, wanted: Option<&[usize]>) -> Result<(SchemaRef, Batches), ArrowError> {
    let bytes = bytes.clone();
    let columns = wanted.map(<[usize]>::to_vec);
    Ok(match kind {
        Kind::Parquet => {
            let builder = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
            let schema = builder.schema().clone();
            let mask = match columns {
                Some(columns) => ProjectionMask::roots(builder.parquet_schema(), columns),
                None => ProjectionMask::all(),
            };
            (schema, Box::new(builder.with_projection(mask).build()?))
        }
        Kind::Arrow => {
            let reader = FileReader::try_new(Cursor::new(bytes), columns)?;
            (reader.schema(), Box::new(reader))
        }
        Kind::Stream => {
            let reader = StreamReader::try_new(Cursor::new(bytes), columns)?;
            (reader.schema(), Box::new(reader))
        }
    })
}

/// The type of the values; for a dictionary, the type of its entries.
fn values_of(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        _ => data_type,
    }
}

/// The array, decoded if it is a dictionary.
fn plain(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.as_any_dictionary_opt() {
        Some(dictionary) => take(dictionary.values(), dictionary.keys(), None),
        None => Ok(array.clone()),
    }
}

/// The matching [`Dtype`], if the type is numeric or boolean.
fn dtype_of(data_type: &DataType) -> Option<Dtype> {
    Some(match data_type {
        DataType::Int8 => Dtype::i8,
        DataType::Int16 => Dtype::i16,
        DataType::Int32 => Dtype::i32,
        DataType::Int64 => Dtype::i64,
        DataType::UInt8 | DataType::Boolean => Dtype::u8,
        DataType::UInt16 => Dtype::u16,
        DataType::UInt32 => Dtype::u32,
        DataType::UInt64 => Dtype::u64,
        DataType::Float16 => Dtype::f16,
        DataType::Float32 => Dtype::f32,
        DataType::Float64 => Dtype::f64,
        _ => return None,
    })
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Appends the bytes of `numbers`, which has no nulls.
fn push_bytes(numbers: &ArrayRef, bytes: &mut Vec<u8>) {
    match numbers.as_boolean_opt() {
        Some(truths) => bytes.extend(truths.values().iter().map(u8::from)),
        None => {
            let data = numbers.to_data();
            let size = data.data_type().primitive_width().unwrap_or(0);
            bytes.extend_from_slice(&data.buffers()[0][data.offset() * size..][..data.len() * size]);
        }
    }
}

/// The key at `index` as text; empty for a null.
fn key(keys: &ArrayRef, index: usize) -> String {
    fn number<T: ArrowPrimitiveType>(keys: &arrow_array::PrimitiveArray<T>, index: usize) -> String {
        format!("{:?}", keys.value(index))
    }
    if keys.is_null(index) {
        return String::new();
    }
    let keys = &**keys;
    downcast_primitive_array! {
        keys => number(keys, index),
        DataType::Utf8 => keys.as_string::<i32>().value(index).to_owned(),
        DataType::LargeUtf8 => keys.as_string::<i64>().value(index).to_owned(),
        DataType::Utf8View => keys.as_string_view().value(index).to_owned(),
        _ => keys.as_boolean().value(index).to_string(),
    }
}
