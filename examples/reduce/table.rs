//! CSV files: whether the first row is a header, and the numbers of one column.

use csv::{ByteRecord, ReaderBuilder, Trim};

use super::error::Error;
use super::input::Dtype;
use super::keys::Keys;
use super::progress::Progress;

/// What to read of a CSV file, and how.
pub struct Selection {
    /// What stands between two fields.
    pub delimiter: u8,
    /// The name of the column, or its index from 0; of the only column, neither.
    pub column: Option<String>,
    /// Those of the keys' column, if there are keys.
    pub by: Option<String>,
    /// Whether the first row is a header, if the user says so.
    pub header: Option<bool>,
}

impl Selection {
    /// Has the column of the file of these `bytes` parsed, a field at a time, as numbers of the type that `dtype` names; `parse` says
    /// whether a field is one. Returns the keys of the rows, if there are to be any.
    ///
    /// # Errors
    ///
    /// If there is no such column or more than one, if the first row may be a header or not, or if a row has no valid
    /// number in the column.
    pub fn parse(
        &self,
        bytes: &[u8],
        dtype: Dtype,
        parse: &mut dyn FnMut(&str) -> bool,
    ) -> Result<Option<Keys>, Error> {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        // A row with too few or too many fields is refused below, with its line.
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .delimiter(self.delimiter)
            .flexible(true)
            .trim(Trim::All)
            .from_reader(bytes);
        let mut record = ByteRecord::new();
        let mut more = reader.read_byte_record(&mut record)?;
        if !more {
            return match (self.header, &self.by) {
                (Some(false), by) => Ok(by.clone().map(Keys::of_column)),
                _ => Err(Error::NoHeader),
            };
        }
        let header = self.is_header(&record)?;
        let (column, by) = self.find_columns(&record, header)?;
        let (index, width) = (column.index, record.len());
        let mut keys = by.map(|by| (by.index, Keys::of_column(by.name)));
        if header {
            more = reader.read_byte_record(&mut record)?;
        }

        let progress = Progress::new("parsing", bytes.len());
        let mut count = 0_usize;
        while more {
            let start = record.position().map_or(0, |position| position.byte() as usize);
            let line = || line_of_record(bytes, start);
            if record.len() != width {
                let first = if header { "header" } else { "first" };
                return Err(Error::Fields { line: line(), found: record.len(), first, expected: width });
            }
            if !str::from_utf8(&record[index]).is_ok_and(&mut *parse) {
                let text = lossy(&record[index]);
                return Err(Error::Value { line: line(), column: column.name, text, dtype });
            }
            if let Some((index, keys)) = &mut keys {
                keys.push(&record[*index]);
            }
            count += 1;
            if count.is_multiple_of(1 << 16) {
                progress.set(start);
            }
            more = reader.read_byte_record(&mut record)?;
        }
        Ok(keys.map(|(_, keys)| keys))
    }

    /// Whether this `first` row of a file is a header.
    ///
    /// Where the user does not say so, a row of numbers alone is none, and one without any is one. What is left, such
    /// as `name,2021`, is one where it names a column that is asked for; where it may as well have the column's first
    /// number, the user has to say.
    fn is_header(&self, first: &ByteRecord) -> Result<bool, Error> {
        if let Some(header) = self.header {
            return Ok(header);
        }
        let names_a_field = |wanted: &&String| first.iter().any(|field| field == wanted.as_bytes());
        let mut wanted = self.column.iter().chain(&self.by).filter(names_a_field);
        if first.iter().all(is_number) {
            return match wanted.next() {
                None if first.iter().any(has_digit) => Ok(false),
                _ => Err(self.ambiguous(first)),
            };
        }
        let (Column { index, .. }, _) = self.find_columns(first, true)?;
        let may_be_data = looks_numeric(&first[index]) || first[index].is_empty();
        let has_only_a_name = wanted.any(|wanted| index_below(wanted, first.len()).is_none());
        if first.iter().any(looks_numeric) && may_be_data && !has_only_a_name {
            return Err(self.ambiguous(first));
        }
        Ok(true)
    }

    /// The column that is asked for, by name, index, or as the only one beside the keys', and that of the keys, if
    /// there are any; of a file with this `first` row, which may be its header.
    fn find_columns(&self, first: &ByteRecord, header: bool) -> Result<(Column, Option<Column>), Error> {
        let of_index = |index: usize| {
            let name = if header { lossy(&first[index]) } else { index.to_string() };
            Column { index, name }
        };
        let find = |wanted: &String| {
            let index = if header { find_named(wanted, first) } else { find_unnamed(wanted, first.len()) };
            index.map(of_index)
        };
        let by = self.by.as_ref().map(find).transpose()?;
        let others = || (0..first.len()).filter(|&index| by.as_ref().is_none_or(|by| by.index != index));
        let column = match (&self.column, others().count()) {
            (Some(wanted), _) => find(wanted)?,
            (None, 0 | 1) => of_index(others().next().unwrap_or(0)),
            (None, _) => {
                let names = others().map(|index| of_index(index).name);
                return Err(Error::WhichColumn { columns: quoted(names) });
            }
        };
        Ok((column, by))
    }

    fn ambiguous(&self, first: &ByteRecord) -> Error {
        Error::MaybeHeader { row: quoted(first.iter().map(lossy)) }
    }
}

/// Where a column is, and what the header calls it, or its index where there is none.
struct Column {
    index: usize,
    name: String,
}

/// The column under these `names` that is wanted by its name, or else by its index.
fn find_named(wanted: &str, names: &ByteRecord) -> Result<usize, Error> {
    let of_name: Vec<_> = (0..names.len()).filter(|&index| &names[index] == wanted.as_bytes()).collect();
    match (&of_name[..], index_below(wanted, names.len())) {
        (&[index], _) | (&[], Some(index)) => Ok(index),
        ([], None) => {
            let columns = quoted(names.iter().map(lossy));
            Err(Error::UnknownColumn { column: wanted.to_owned(), columns })
        }
        (several, _) => {
            let indices = quoted(several.iter().map(usize::to_string));
            Err(Error::SeveralOfName { column: wanted.to_owned(), indices })
        }
    }
}

/// The column that is wanted by its index, of `count` without names.
fn find_unnamed(wanted: &str, count: usize) -> Result<usize, Error> {
    index_below(wanted, count).ok_or_else(|| Error::NoNames { column: wanted.to_owned(), last: count - 1 })
}

/// A wanted column as an index below `count`.
fn index_below(wanted: &str, count: usize) -> Option<usize> {
    wanted.parse().ok().filter(|&index| index < count)
}

/// Whether this is a number as the program reads it.
fn is_number(field: &[u8]) -> bool {
    str::from_utf8(field).is_ok_and(|text| text.parse::<f64>().is_ok())
}

/// Whether this is a number, or perhaps one in another spelling, such as `1,000`, `$5` and `2026-11-21`: it has digits,
/// and no letters.
fn looks_numeric(field: &[u8]) -> bool {
    is_number(field) || has_digit(field) && !lossy(field).chars().any(char::is_alphabetic)
}

fn has_digit(field: &[u8]) -> bool {
    lossy(field).chars().any(char::is_numeric)
}

fn lossy(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into()
}

/// Words as an error shows them.
fn quoted(words: impl Iterator<Item = String>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The line, from 1, of the CSV record whose position is `start`. The csv crate's own count stops before the line ends
/// and blank lines that it skips at a record's start.
fn line_of_record(bytes: &[u8], start: usize) -> usize {
    let skipped = bytes[start..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    1 + bytes[..start + skipped].iter().filter(|&&byte| byte == b'\n').count()
}
