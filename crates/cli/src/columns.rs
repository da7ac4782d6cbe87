//! Parquet and Arrow files: the numbers of columns.

use std::io::Cursor;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array as _, BooleanArray, RecordBatch};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{ArrowError, DataType, FieldRef, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use csv::ByteRecord;
use gpu_reduce_dynamic::Dtype;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use rayon::prelude::*;

use super::arrays::{
    dtype_of, is_key, is_text, plain, push_keys, push_numbers, values_of, which_hold, without,
};
use super::error::{Error, shown};
use super::foreign;
use super::memory;
use super::progress::Progress;
use super::rows::Rows;
use super::table::{Column, Selected, Selection};
use super::units::Unit;

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
    selected: Selected,
    /// The type of each column of numbers, and what they stand for.
    types: Vec<(Dtype, Option<Unit>)>,
    skip_missing: bool,
}

/// The bytes of the numbers of each column, and what else there is.
type Table = (Vec<Vec<u8>>, Rows);

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

    /// Finds the wanted columns. If `dtype` is given, the columns of numbers must have that type.
    ///
    /// # Errors
    ///
    /// [`Error::Columns`] if the file is malformed; [`Error::Encrypted`]; [`Error::Compression`]; an error if
    /// a column does not exist, holds no numbers, or numbers of another type.
    pub fn open(
        kind: Kind,
        bytes: Bytes,
        selection: &Selection,
        dtype: Option<Dtype>,
    ) -> Result<Columns, Error> {
        if has_encrypted_footer(&bytes) {
            return Err(Error::Encrypted { what: "the Parquet file".into() });
        }
        let malformed = |error| Error::Columns { kind, error };
        let schema = guarded(|| schema(kind, &bytes)).map_err(malformed)?;
        let fields = schema.fields();
        if fields.is_empty() {
            return Err(Error::NoColumns);
        }
        let names = ByteRecord::from(fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>());
        let selected = selection.find_columns(&names, true)?;
        let of_column = |column: &Column| {
            let found = fields[column.index].data_type();
            let of_number = || dtype_of(values_of(found)).map(|dtype| (dtype, None));
            let held = match Unit::of(values_of(found)) {
                Some(unit) if unit.scale().is_some() && dtype == Some(Dtype::f64) => (Dtype::f64, None),
                Some(unit) => (unit.dtype(), Some(unit)),
                None => of_number().ok_or_else(|| Error::NotNumbers {
                    column: column.name.clone(),
                    found: found.to_string(),
                })?,
            };
            match dtype {
                Some(dtype) if held != (dtype, None) => {
                    let held = held.1.map_or(format!("{:?}", held.0), |unit| unit.to_string());
                    Err(Error::OtherDtype { held, dtype })
                }
                _ => Ok(held),
            }
        };
        let types: Vec<_> = selected.columns.iter().map(of_column).collect::<Result<_, _>>()?;
        let keys = selected.by.iter().chain(selected.conditions.iter().map(|(column, _)| column));
        for by in keys {
            let found = fields[by.index].data_type();
            if !is_key(values_of(found)) {
                return Err(Error::NotKeys { column: by.name.clone(), found: found.to_string() });
            }
        }
        if let Kind::Parquet = kind {
            for column in selected.all() {
                if let Some(error) = guarded(|| unread(&bytes, column)).map_err(malformed)? {
                    return Err(error);
                }
            }
        }
        Ok(Columns { bytes, kind, selected, types, skip_missing: selection.skip_missing })
    }

    /// The type of each column of numbers, and what they stand for.
    pub fn types(&self) -> impl Iterator<Item = (Dtype, Option<Unit>)> {
        self.types.iter().cloned()
    }

    /// Returns the numbers, and the keys and missing rows.
    ///
    /// # Errors
    ///
    /// [`Error::Columns`] if the file is malformed; [`Error::Null`] at a null, unless missing values are
    /// skipped.
    pub fn read(&self) -> Result<Table, Error> {
        let mut wanted: Vec<usize> = self.selected.all().map(|column| column.index).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let failed = |error| self.failed(error);
        let (bytes, projection) = (Cursor::new(self.bytes.clone()), Some(wanted.clone()));
        let read = || match self.kind {
            Kind::Parquet => self.read_row_groups(&wanted),
            Kind::Arrow => {
                let batches = FileReader::try_new(bytes, projection).map_err(failed)?;
                self.read_batches(batches, &wanted, 0, 0, &Rows::of(&self.selected))
            }
            Kind::Stream => {
                let batches = StreamReader::try_new(bytes, projection).map_err(failed)?;
                self.read_batches(batches, &wanted, 0, 0, &Rows::of(&self.selected))
            }
        };
        guarded(|| Ok(read())).map_err(failed)?
    }

    /// No numbers of each column, with memory for `count`.
    fn nothing(&self, count: usize) -> Vec<Vec<u8>> {
        let of_type = |(dtype, _): &(Dtype, _)| {
            let mut numbers = Vec::new();
            memory::reserve(&mut numbers, count.saturating_mul(dtype.size()));
            numbers
        };
        self.types.iter().map(of_type).collect()
    }

    /// Reads the row groups of a Parquet file, one on each thread.
    fn read_row_groups(&self, wanted: &[usize]) -> Result<Table, Error> {
        /// Rows of a batch, which stays in a cache.
        const BATCH: usize = 1 << 14;
        let failed = |error: ParquetError| self.failed(error.into());
        let metadata = self.with_dictionaries().map_err(failed)?;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), wanted.iter().copied());
        let read = |&(group, first_row, count): &(usize, usize, usize), before: &Rows| {
            let reader =
                ParquetRecordBatchReaderBuilder::new_with_metadata(self.bytes.clone(), metadata.clone());
            let reader = reader.with_projection(mask.clone()).with_row_groups(vec![group]);
            let batches = reader.with_batch_size(BATCH).build().map_err(failed)?;
            self.read_batches(batches, wanted, first_row, count, before)
        };

        let mut first_row = 0_usize;
        let groups = metadata.metadata().row_groups().iter().enumerate().map(|(group, metadata)| {
            let count = usize::try_from(metadata.num_rows()).unwrap_or(0);
            let first = first_row;
            first_row = first_row.saturating_add(count);
            (group, first, count)
        });
        let groups: Vec<_> = groups.collect();
        let progress = Progress::endless("reading numbers");
        let (mut columns, mut rows) = (self.nothing(first_row), Rows::of(&self.selected));
        rows.reserve(first_row);
        for some in groups.chunks(rayon::current_num_threads()) {
            let parts: Vec<Result<Table, _>> = some.par_iter().map(|group| read(group, &rows)).collect();
            for part in parts {
                let (of_group, rows_of_group) = part?;
                let pairs = columns.par_iter_mut().zip(of_group);
                pairs.for_each(|(numbers, next)| numbers.extend_from_slice(&next));
                rows.append(rows_of_group);
            }
            progress.set(columns.iter().map(Vec::len).sum());
        }
        Ok((columns, rows))
    }

    /// The metadata of the Parquet file, such that keys that are text have the dictionary of the file.
    fn with_dictionaries(&self) -> Result<ArrowReaderMetadata, ParquetError> {
        let metadata = ArrowReaderMetadata::load(&self.bytes, ArrowReaderOptions::new())?;
        let schema = metadata.schema();
        let of_field = |(index, field): (usize, &FieldRef)| {
            let values = match field.data_type() {
                text if !is_text(text) || self.selected.by.iter().all(|by| by.index != index) => {
                    return field.clone();
                }
                DataType::LargeUtf8 => DataType::LargeUtf8,
                _ => DataType::Utf8,
            };
            let dictionary = DataType::Dictionary(DataType::Int32.into(), values.into());
            Arc::new(field.as_ref().clone().with_data_type(dictionary))
        };
        let fields: Vec<FieldRef> = schema.fields().iter().enumerate().map(of_field).collect();
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
        // Keys are decoded if the reader refuses this schema.
        Ok(ArrowReaderMetadata::try_new(metadata.metadata().clone(), options).unwrap_or(metadata))
    }

    /// Reads batches of rows, which have the `wanted` columns. The first row is number `first_row` of the
    /// file, after the rows `before`; there are about `count` rows.
    fn read_batches(
        &self,
        batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
        wanted: &[usize],
        first_row: usize,
        count: usize,
        before: &Rows,
    ) -> Result<Table, Error> {
        let failed = |error| self.failed(error);
        let place = |column: &Column| wanted.iter().position(|&index| index == column.index).unwrap_or(0);
        let (mut columns, mut rows, mut row) = (self.nothing(count), before.part(), first_row);
        rows.reserve(count);
        for batch in batches {
            let whole = batch.map_err(failed)?;
            let mut is_kept: Option<BooleanArray> = None;
            for (column, condition) in &self.selected.conditions {
                let holds = which_hold(whole.column(place(column)), condition).map_err(failed)?;
                let both =
                    is_kept.map_or(holds.values().clone(), |is_kept| is_kept.values() & holds.values());
                is_kept = Some(BooleanArray::new(both, None));
            }
            let batch = match &is_kept {
                None => whole.clone(),
                Some(is_kept) => filter_record_batch(&whole, is_kept).map_err(failed)?,
            };
            let mut nulls = Vec::new();
            for ((column, (dtype, _)), numbers) in
                self.selected.columns.iter().zip(&self.types).zip(&mut columns)
            {
                let array = plain(batch.column(place(column))).map_err(failed)?;
                let of_column = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
                if let Some(nulls) = of_column.as_ref().filter(|_| !self.skip_missing) {
                    let null = (0..nulls.len()).find(|&index| nulls.is_null(index)).unwrap_or(0);
                    let kept = is_kept.as_ref().and_then(|kept| kept.values().set_indices().nth(null));
                    let null = kept.unwrap_or(null);
                    return Err(Error::Null { row: row + null, column: column.name.clone() });
                }
                let array = without(&array, of_column.as_ref()).map_err(failed)?;
                push_numbers(&array, *dtype, numbers)
                    .map_err(|value| Error::LargeDecimal { column: column.name.clone(), value })?;
                nulls.push(of_column);
            }
            row += whole.num_rows();
            let all_null = rows.push_nulls(batch.num_rows(), &nulls);
            for ((keys, before), by) in rows.keys.iter_mut().zip(&before.keys).zip(&self.selected.by) {
                let array = without(batch.column(place(by)), all_null.as_ref()).map_err(failed)?;
                push_keys(&array, before, keys).map_err(failed)?;
            }
        }
        Ok((columns, rows))
    }

    fn failed(&self, error: ArrowError) -> Error {
        Error::Columns { kind: self.kind, error }
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

/// The schema of a file.
fn schema(kind: Kind, bytes: &Bytes) -> Result<SchemaRef, ArrowError> {
    let cursor = Cursor::new(bytes.clone());
    Ok(match kind {
        Kind::Parquet => ArrowReaderMetadata::load(bytes, ArrowReaderOptions::new())?.schema().clone(),
        Kind::Arrow => FileReader::try_new(cursor, None)?.schema(),
        Kind::Stream => StreamReader::try_new(cursor, None)?.schema(),
    })
}
