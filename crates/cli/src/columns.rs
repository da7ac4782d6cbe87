//! Parquet and Arrow files: the numbers of columns.

use std::io::Cursor;
use std::ops::Deref;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;

use arrow_array::array::AnyDictionaryArray;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, downcast_integer_array,
    downcast_primitive_array,
};
use arrow_buffer::NullBuffer;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{ArrowError, DataType, FieldRef, Schema, SchemaRef, TimeUnit};
use arrow_select::filter::filter;
use arrow_select::take::take;
use bytes::Bytes;
use csv::ByteRecord;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use rayon::prelude::*;

use super::error::{Error, shown};
use super::foreign;
use super::input::Dtype;
use super::keys::Keys;
use super::memory;
use super::progress::Progress;
use super::rows::Rows;
use super::table::{Column, Selected, Selection};

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
    /// The type of each column of numbers.
    dtypes: Vec<Dtype>,
    skip_missing: bool,
}

/// The numbers of each column with their type, and what else there is.
type Table = (Vec<(Dtype, Vec<u8>)>, Rows);

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

    /// Finds the wanted columns, of which those of numbers have the type `dtype`, if that is given.
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
            dtype_of(values_of(found))
                .ok_or_else(|| Error::NotNumbers { column: column.name.clone(), found: found.to_string() })
        };
        let dtypes: Vec<Dtype> = selected.columns.iter().map(of_column).collect::<Result<_, _>>()?;
        for by in &selected.by {
            let found = fields[by.index].data_type();
            if !is_key(values_of(found)) {
                return Err(Error::NotKeys { column: by.name.clone(), found: found.to_string() });
            }
        }
        if let Kind::Parquet = kind {
            for column in selected.by.iter().chain(&selected.columns) {
                if let Some(error) = guarded(|| unread(&bytes, column)).map_err(malformed)? {
                    return Err(error);
                }
            }
        }
        if let Some(dtype) = dtype
            && let Some(held) = dtypes.iter().find(|&&held| held != dtype)
        {
            return Err(Error::OtherDtype { held: format!("{held:?}"), dtype });
        }
        Ok(Columns { bytes, kind, selected, dtypes, skip_missing: selection.skip_missing })
    }

    /// Returns the numbers, and the keys and missing rows.
    ///
    /// # Errors
    ///
    /// [`Error::Columns`] if the file is malformed; [`Error::Null`] at a null, unless missing values are
    /// skipped.
    pub fn read(&self) -> Result<Table, Error> {
        let Selected { columns, by } = &self.selected;
        let mut wanted: Vec<usize> = by.iter().chain(columns).map(|column| column.index).collect();
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
    fn nothing(&self, count: usize) -> Vec<(Dtype, Vec<u8>)> {
        let of_type = |&dtype: &Dtype| {
            let mut numbers = Vec::new();
            memory::reserve(&mut numbers, count.saturating_mul(dtype.size()));
            (dtype, numbers)
        };
        self.dtypes.iter().map(of_type).collect()
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
                pairs.for_each(|((_, numbers), (_, next))| numbers.extend_from_slice(&next));
                rows.append(rows_of_group);
            }
            progress.set(columns.iter().map(|(_, numbers)| numbers.len()).sum());
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

    /// Reads batches of rows, which have the `wanted` columns. The first row is number `first_row` of the file,
    /// after the rows `before`; there are about `count` rows.
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
            let batch = batch.map_err(failed)?;
            let mut nulls = Vec::new();
            for (column, (_, numbers)) in self.selected.columns.iter().zip(&mut columns) {
                let array = plain(batch.column(place(column))).map_err(failed)?;
                let of_column = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
                if let Some(nulls) = of_column.as_ref().filter(|_| !self.skip_missing) {
                    let null = (0..nulls.len()).find(|&index| nulls.is_null(index)).unwrap_or(0);
                    return Err(Error::Null { row: row + null, column: column.name.clone() });
                }
                push_numbers(&without(&array, of_column.as_ref()).map_err(failed)?, numbers);
                nulls.push(of_column);
            }
            row += batch.num_rows();
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

/// Whether values of the type can be keys.
fn is_key(data_type: &DataType) -> bool {
    dtype_of(data_type).is_some()
        || is_text(data_type)
        || data_type.is_decimal()
        || matches!(
            data_type,
            DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(..)
        )
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The array without the items that are null here.
fn without(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<ArrayRef, ArrowError> {
    match nulls {
        None => Ok(array.clone()),
        Some(nulls) => filter(array, &BooleanArray::new(nulls.inner().clone(), None)),
    }
}

/// Appends the bytes of an array of numbers without nulls.
fn push_numbers(array: &ArrayRef, numbers: &mut Vec<u8>) {
    match array.as_boolean_opt() {
        Some(truths) => numbers.extend(truths.values().iter().map(u8::from)),
        None => numbers.extend_from_slice(&bytes_of(array, array.data_type().primitive_width().unwrap_or(0))),
    }
}

/// The bytes of an array of numbers of this size.
fn bytes_of(numbers: &ArrayRef, size: usize) -> impl Deref<Target = [u8]> + use<> {
    let data = numbers.to_data();
    data.buffers()[0].slice_with_length(data.offset() * size, data.len() * size)
}

/// Appends the keys of rows, which come after those `before` and in `keys`.
fn push_keys(rows: &ArrayRef, before: &Keys, keys: &mut Keys) -> Result<(), ArrowError> {
    if let Some(dictionary) = rows.as_any_dictionary_opt() {
        match (1..=rows.len()).contains(&dictionary.values().len()) {
            true => push_entries(dictionary, before, keys),
            false => push_keys(&plain(rows)?, before, keys)?,
        }
        return Ok(());
    }
    match rows.data_type() {
        DataType::Utf8 => push_texts(rows.as_string::<i32>(), before, keys),
        DataType::LargeUtf8 => push_texts(rows.as_string::<i64>(), before, keys),
        DataType::Utf8View => push_texts(rows.as_string_view(), before, keys),
        data_type if data_type.is_integer() => {
            let rows = &**rows;
            downcast_integer_array! {
                rows => push_integers(rows, before, keys),
                _ => {}
            }
        }
        data_type => match data_type.primitive_width() {
            Some(2) => push_bits::<2>(rows, before, keys),
            Some(4) => push_bits::<4>(rows, before, keys),
            Some(8) => push_bits::<8>(rows, before, keys),
            _ => (0..rows.len()).for_each(|row| keys.push(before, key(rows, row).as_bytes())),
        },
    }
    Ok(())
}

/// Appends keys that are entries of a dictionary.
fn push_entries(dictionary: &dyn AnyDictionaryArray, before: &Keys, keys: &mut Keys) {
    let (entries, nulls) = (dictionary.values(), dictionary.nulls());
    let mut numbers = vec![None; entries.len()];
    for (row, entry) in dictionary.normalized_keys().into_iter().enumerate() {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            keys.push(before, b"");
            continue;
        }
        let number =
            numbers[entry].get_or_insert_with(|| keys.number(before, key(entries, entry).as_bytes()));
        keys.push_number(*number);
    }
}

/// Appends keys that are text; nulls are empty.
fn push_texts<'a>(rows: impl IntoIterator<Item = Option<&'a str>>, before: &Keys, keys: &mut Keys) {
    rows.into_iter().for_each(|text| keys.push(before, text.unwrap_or_default().as_bytes()));
}

/// Appends keys that are integers; nulls are empty.
fn push_integers<T>(rows: &PrimitiveArray<T>, before: &Keys, keys: &mut Keys)
where
    T: ArrowPrimitiveType<Native: TryInto<i64> + ToString>,
{
    for row in rows {
        match row.map(|integer| integer.try_into().map_err(|_| integer)) {
            Some(Ok(integer)) => keys.push_integer(before, integer),
            Some(Err(integer)) => keys.push(before, integer.to_string().as_bytes()),
            None => keys.push(before, b""),
        }
    }
}

/// Appends keys that are numbers of `SIZE` bytes. Each is converted to text once.
fn push_bits<const SIZE: usize>(rows: &ArrayRef, before: &Keys, keys: &mut Keys) {
    let (bytes, nulls) = (bytes_of(rows, SIZE), rows.nulls());
    let (numbers, _) = bytes.as_chunks::<SIZE>();
    for (row, number) in numbers.iter().enumerate() {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            keys.push(before, b"");
            continue;
        }
        let mut bits = [0; size_of::<u64>()];
        bits[..SIZE].copy_from_slice(number);
        keys.push_bits(before, u64::from_le_bytes(bits), || key(rows, row));
    }
}

/// The key at `index` as text; empty for a null. Dates and times are written as in ISO 8601, times with a zone in
/// UTC.
fn key(keys: &ArrayRef, index: usize) -> String {
    fn number<T: ArrowPrimitiveType>(keys: &PrimitiveArray<T>, index: usize) -> String {
        format!("{:?}", keys.value(index))
    }
    if keys.is_null(index) {
        return String::new();
    }
    /// An instant; out of range of the calendar, its number.
    macro_rules! instant {
        ($Type:ident, $method:ident) => {{
            let keys = keys.as_primitive::<$Type>();
            keys.$method(index).map_or(keys.value(index).to_string(), |instant| format!("{instant:?}"))
        }};
    }
    let keys = &**keys;
    match keys.data_type() {
        DataType::Date32 => return instant!(Date32Type, value_as_date),
        DataType::Date64 => return instant!(Date64Type, value_as_date),
        DataType::Time32(TimeUnit::Second) => return instant!(Time32SecondType, value_as_time),
        DataType::Time32(_) => return instant!(Time32MillisecondType, value_as_time),
        DataType::Time64(TimeUnit::Microsecond) => return instant!(Time64MicrosecondType, value_as_time),
        DataType::Time64(_) => return instant!(Time64NanosecondType, value_as_time),
        DataType::Timestamp(unit, zone) => {
            let text = match unit {
                TimeUnit::Second => instant!(TimestampSecondType, value_as_datetime),
                TimeUnit::Millisecond => instant!(TimestampMillisecondType, value_as_datetime),
                TimeUnit::Microsecond => instant!(TimestampMicrosecondType, value_as_datetime),
                TimeUnit::Nanosecond => instant!(TimestampNanosecondType, value_as_datetime),
            };
            return if zone.is_some() { text + "Z" } else { text };
        }
        DataType::Decimal32(..) => return keys.as_primitive::<Decimal32Type>().value_as_string(index),
        DataType::Decimal64(..) => return keys.as_primitive::<Decimal64Type>().value_as_string(index),
        DataType::Decimal128(..) => return keys.as_primitive::<Decimal128Type>().value_as_string(index),
        DataType::Decimal256(..) => return keys.as_primitive::<Decimal256Type>().value_as_string(index),
        _ => {}
    }
    downcast_primitive_array! {
        keys => number(keys, index),
        DataType::Utf8 => keys.as_string::<i32>().value(index).to_owned(),
        DataType::LargeUtf8 => keys.as_string::<i64>().value(index).to_owned(),
        DataType::Utf8View => keys.as_string_view().value(index).to_owned(),
        _ => keys.as_boolean().value(index).to_string(),
    }
}
