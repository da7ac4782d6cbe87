//! CSV files: whether the first row is a header, and the numbers of one column.

use csv::{ByteRecord, ReaderBuilder, Trim};

use super::error::Error;
use super::input::Dtype;
use super::progress::Progress;

/// What to read of a CSV file, and how.
pub struct Selection {
    /// What stands between two fields.
    pub delimiter: u8,
    /// The name of the column, or its index from 0; of the only column, neither.
    pub column: Option<String>,
    /// Whether the first row is a header, if the user says so.
    pub header: Option<bool>,
}

impl Selection {
    /// Has the column of the file of these `bytes` parsed, a field at a time, as numbers of the type that `dtype` names; `parse` says
    /// whether a field is one.
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
    ) -> Result<(), Error> {
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
            return if self.header == Some(false) { Ok(()) } else { Err(Error::NoHeader) };
        }
        let Column { index, name } = self.find_column(&record)?;
        let width = record.len();
        if name.is_some() {
            more = reader.read_byte_record(&mut record)?;
        }

        let progress = Progress::new("parsing", bytes.len());
        let mut count = 0_usize;
        while more {
            let start = record.position().map_or(0, |position| position.byte() as usize);
            let line = || line_of_record(bytes, start);
            if record.len() != width {
                let first = if name.is_some() { "header" } else { "first" };
                return Err(Error::Fields { line: line(), found: record.len(), first, expected: width });
            }
            if !str::from_utf8(&record[index]).is_ok_and(&mut *parse) {
                return Err(Error::Value {
                    line: line(),
                    column: name.unwrap_or_else(|| index.to_string()),
                    text: lossy(&record[index]),
                    dtype,
                });
            }
            count += 1;
            if count.is_multiple_of(1 << 16) {
                progress.set(start);
            }
            more = reader.read_byte_record(&mut record)?;
        }
        Ok(())
    }

    /// The column that is asked for, of a file with this `first` row.
    ///
    /// Where the user does not say whether it is a header, a row of numbers alone is none, and one without any is one.
    /// What is left, such as `name,2021`, is one where it names the column; where it may as well be the column's first
    /// number, the user has to say.
    fn find_column(&self, first: &ByteRecord) -> Result<Column, Error> {
        let header = match self.header {
            Some(header) => header,
            None if first.iter().all(is_number) => {
                if self.names_a_field_of(first) || !first.iter().any(has_digit) {
                    return Err(self.ambiguous(first));
                }
                false
            }
            None => {
                let Column { index, .. } = self.find_named(first)?;
                let may_be_data = looks_numeric(&first[index]) || first[index].is_empty();
                let only_a_name = self.names_a_field_of(first) && self.index_below(first.len()).is_none();
                if first.iter().any(looks_numeric) && may_be_data && !only_a_name {
                    return Err(self.ambiguous(first));
                }
                true
            }
        };
        if header { self.find_named(first) } else { self.find_unnamed(first.len()) }
    }

    /// The column under these `names` that is asked for by its name, or else by its index, or as the only one.
    fn find_named(&self, names: &ByteRecord) -> Result<Column, Error> {
        let columns = || quoted(names.iter().map(lossy));
        let index = match &self.column {
            None if names.len() == 1 => 0,
            None => return Err(Error::WhichColumn { columns: columns() }),
            Some(wanted) => {
                let of_name: Vec<_> =
                    (0..names.len()).filter(|&index| &names[index] == wanted.as_bytes()).collect();
                match (&of_name[..], self.index_below(names.len())) {
                    (&[index], _) | (&[], Some(index)) => index,
                    ([], None) => {
                        return Err(Error::UnknownColumn { column: wanted.clone(), columns: columns() });
                    }
                    (several, _) => {
                        let indices = quoted(several.iter().map(usize::to_string));
                        return Err(Error::SeveralOfName { column: wanted.clone(), indices });
                    }
                }
            }
        };
        Ok(Column { index, name: Some(lossy(&names[index])) })
    }

    /// The column that is asked for by its index, or as the only one, of `count` without names.
    fn find_unnamed(&self, count: usize) -> Result<Column, Error> {
        let index = match &self.column {
            None if count == 1 => 0,
            None => {
                return Err(Error::WhichColumn {
                    columns: quoted((0..count).map(|index| index.to_string())),
                });
            }
            Some(wanted) => self
                .index_below(count)
                .ok_or_else(|| Error::NoNames { column: wanted.clone(), last: count - 1 })?,
        };
        Ok(Column { index, name: None })
    }

    /// Whether the column that is asked for is spelled like a field of the row.
    fn names_a_field_of(&self, row: &ByteRecord) -> bool {
        self.column.as_ref().is_some_and(|wanted| row.iter().any(|field| field == wanted.as_bytes()))
    }

    /// The column that is asked for, as an index below `count`.
    fn index_below(&self, count: usize) -> Option<usize> {
        self.column.as_ref()?.parse().ok().filter(|&index| index < count)
    }

    fn ambiguous(&self, first: &ByteRecord) -> Error {
        Error::MaybeHeader { row: quoted(first.iter().map(lossy)) }
    }
}

/// Where a column is, and what the header calls it, if there is one.
struct Column {
    index: usize,
    name: Option<String>,
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
