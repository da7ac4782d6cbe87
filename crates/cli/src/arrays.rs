//! Arrays of Parquet and Arrow files: their types, numbers and keys.

use std::ops::Deref;

use arrow_array::array::AnyDictionaryArray;
use arrow_array::cast::AsArray;
use arrow_array::temporal_conversions::{as_date, as_datetime, as_time};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, PrimitiveArray, downcast_integer_array, downcast_primitive_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, i256};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use arrow_select::filter::filter;
use arrow_select::take::take;
use gpu_reduce::Element as _;
use gpu_reduce_dynamic::{Dtype, cast, with_type};

use super::conditions::Condition;
use super::keys::Keys;
use super::units;

/// The type of the values; for a dictionary, the type of its entries.
pub fn values_of(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        _ => data_type,
    }
}

/// The array, decoded if it is a dictionary.
pub fn plain(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.as_any_dictionary_opt() {
        Some(dictionary) => take(dictionary.values(), dictionary.keys(), None),
        None => Ok(array.clone()),
    }
}

/// The matching [`Dtype`], if the type is a number or a boolean.
pub fn dtype_of(data_type: &DataType) -> Option<Dtype> {
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
pub fn is_key(data_type: &DataType) -> bool {
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

pub fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Which items of the array meet the condition. Nulls do not.
pub fn which_hold(array: &ArrayRef, condition: &Condition) -> Result<BooleanArray, ArrowError> {
    let array = plain(array)?;
    let is_there = |index: &usize| array.is_valid(*index);
    let holds: BooleanBuffer = match dtype_of(array.data_type()) {
        Some(dtype) if condition.is_of_numbers() && array.as_boolean_opt().is_none() => {
            with_type!(dtype, T => {
                let bytes = bytes_of(&array, size_of::<T>());
                let numbers = cast::<T>(&bytes);
                let holds = |index: usize| condition.holds_for(Some(numbers[index].as_f64()));
                (0..array.len()).map(|index| is_there(&index) && holds(index)).collect()
            })
        }
        _ => (0..array.len()).map(|index| condition.holds(key(&array, index).as_bytes())).collect(),
    };
    Ok(BooleanArray::new(holds, None))
}

/// The array without the items that are null here.
pub fn without(array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<ArrayRef, ArrowError> {
    match nulls {
        None => Ok(array.clone()),
        Some(nulls) => filter(array, &BooleanArray::new(nulls.inner().clone(), None)),
    }
}

/// Appends the bytes of an array of numbers, dates or times without nulls. Decimals become numbers of type
/// `dtype`: f64, or i64 without their point. Returns the first that does not fit i64.
pub fn push_numbers(array: &ArrayRef, dtype: Dtype, numbers: &mut Vec<u8>) -> Result<(), String> {
    macro_rules! decimals {
        ($Type:ident, $scale:expr, $to_i128:expr) => {{
            let decimals = array.as_primitive::<$Type>();
            for (index, &decimal) in decimals.values().iter().enumerate() {
                let integer: Option<i128> = $to_i128(decimal);
                let too_large = || decimals.value_as_string(index);
                if dtype == Dtype::f64 {
                    numbers.extend(units::float(integer.ok_or_else(too_large)?, $scale).to_le_bytes());
                } else {
                    let integer = integer.and_then(|integer| i64::try_from(integer).ok());
                    numbers.extend(integer.ok_or_else(too_large)?.to_le_bytes());
                }
            }
        }};
    }
    match *array.data_type() {
        DataType::Boolean => numbers.extend(array.as_boolean().values().iter().map(u8::from)),
        DataType::Decimal32(_, scale) => decimals!(Decimal32Type, scale, |decimal: i32| Some(decimal.into())),
        DataType::Decimal64(_, scale) => decimals!(Decimal64Type, scale, |decimal: i64| Some(decimal.into())),
        DataType::Decimal128(_, scale) => decimals!(Decimal128Type, scale, Some),
        DataType::Decimal256(_, scale) => decimals!(Decimal256Type, scale, i256::to_i128),
        _ => numbers.extend_from_slice(&bytes_of(array, array.data_type().primitive_width().unwrap_or(0))),
    }
    Ok(())
}

/// The bytes of an array of numbers of this size.
fn bytes_of(numbers: &ArrayRef, size: usize) -> impl Deref<Target = [u8]> + use<> {
    let data = numbers.to_data();
    data.buffers()[0].slice_with_length(data.offset() * size, data.len() * size)
}

/// Appends the keys of rows, which come after those `before` and in `keys`.
pub fn push_keys(rows: &ArrayRef, before: &Keys, keys: &mut Keys) -> Result<(), ArrowError> {
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

/// The key at `index` as text; empty for a null. Dates and times are written as in ISO 8601, times with a
/// zone in UTC.
fn key(keys: &ArrayRef, index: usize) -> String {
    fn number<T: ArrowPrimitiveType>(keys: &PrimitiveArray<T>, index: usize) -> String {
        format!("{:?}", keys.value(index))
    }
    if keys.is_null(index) {
        return String::new();
    }
    let keys = &**keys;
    let data_type = keys.data_type();
    match data_type {
        DataType::Decimal32(..) => return keys.as_primitive::<Decimal32Type>().value_as_string(index),
        DataType::Decimal64(..) => return keys.as_primitive::<Decimal64Type>().value_as_string(index),
        DataType::Decimal128(..) => return keys.as_primitive::<Decimal128Type>().value_as_string(index),
        DataType::Decimal256(..) => return keys.as_primitive::<Decimal256Type>().value_as_string(index),
        _ => {}
    }
    if data_type.is_temporal() {
        let data = keys.to_data();
        let integer = match data_type.primitive_width() {
            Some(4) => data.buffer::<i32>(0)[index].into(),
            _ => data.buffer::<i64>(0)[index],
        };
        return moment(data_type, integer);
    }
    downcast_primitive_array! {
        keys => number(keys, index),
        DataType::Utf8 => keys.as_string::<i32>().value(index).to_owned(),
        DataType::LargeUtf8 => keys.as_string::<i64>().value(index).to_owned(),
        DataType::Utf8View => keys.as_string_view().value(index).to_owned(),
        _ => keys.as_boolean().value(index).to_string(),
    }
}

/// A date or time, which this integer stands for in an array of the type; out of range of the calendar, the
/// integer.
pub fn moment(data_type: &DataType, integer: i64) -> String {
    macro_rules! text {
        ($as:ident, $Type:ident) => {
            $as::<$Type>(integer).map_or(integer.to_string(), |moment| format!("{moment:?}"))
        };
    }
    match data_type {
        DataType::Date32 => text!(as_date, Date32Type),
        DataType::Date64 => text!(as_date, Date64Type),
        DataType::Time32(TimeUnit::Second) => text!(as_time, Time32SecondType),
        DataType::Time32(_) => text!(as_time, Time32MillisecondType),
        DataType::Time64(TimeUnit::Microsecond) => text!(as_time, Time64MicrosecondType),
        DataType::Time64(_) => text!(as_time, Time64NanosecondType),
        DataType::Timestamp(unit, zone) => {
            let text = match unit {
                TimeUnit::Second => text!(as_datetime, TimestampSecondType),
                TimeUnit::Millisecond => text!(as_datetime, TimestampMillisecondType),
                TimeUnit::Microsecond => text!(as_datetime, TimestampMicrosecondType),
                TimeUnit::Nanosecond => text!(as_datetime, TimestampNanosecondType),
            };
            if zone.is_some() { text + "Z" } else { text }
        }
        _ => integer.to_string(),
    }
}
