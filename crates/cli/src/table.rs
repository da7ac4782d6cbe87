//! CSV files: what separates their fields, whether the first row is a header, and the numbers of one column.

use std::io::Read;

use csv::{ByteRecord, ReaderBuilder, Trim};

use super::error::{Error, quoted, shown};
use super::input::{Dtype, Rows};
use super::progress::Progress;

/// What to read of a CSV file, and how.
pub struct Selection {
    /// What stands between two fields, if the user or the file's name says so.
    pub delimiter: Option<u8>,
    /// The name of the column, or its index from 0; of the only column, neither.
    pub column: Option<String>,
    /// Those of the keys' column, if there are keys.
    pub by: Option<String>,
    /// Whether the first row is a header, if the user says so.
    pub header: Option<bool>,
    /// Whether rows without a value are left out.
    pub skip_missing: bool,
}

impl Selection {
    /// Has the column of the file of these `bytes` parsed, a field at a time, as numbers of the type that `dtype` names; `parse` says
    /// whether a field is one. Adds what stands beside them to `rows`.
    ///
    /// # Errors
    ///
    /// If there is no such column or more than one, if the first row may be a header or not, if a row has no valid
    /// number in the column, and if the last one has a quote that nothing closes.
    pub fn parse(
        &self,
        bytes: &[u8],
        dtype: Dtype,
        parse: &mut dyn FnMut(&str) -> bool,
        rows: &mut Rows,
    ) -> Result<(), Error> {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let delimiter = self.delimiter.unwrap_or_else(|| guess_delimiter(bytes));
        let mut reader = reader(bytes, delimiter);
        let mut record = ByteRecord::new();
        let mut more = reader.read_byte_record(&mut record)?;
        if !more {
            return match (self.header, &self.by) {
                (Some(false), by) => {
                    by.iter().for_each(|by| _ = rows.keys_of(by));
                    Ok(())
                }
                _ => Err(Error::NoHeader),
            };
        }
        // What takes the rest of the file is no row, but what follows a quote.
        let is_closed = |record: &ByteRecord, end: u64| match (record.position(), end as usize == bytes.len())
        {
            (Some(start), true) if is_unclosed(&bytes[start.byte() as usize..], delimiter) => {
                Err(Error::Unclosed { line: line_of_record(bytes, start.byte() as usize) })
            }
            _ => Ok(()),
        };
        is_closed(&record, reader.position().byte())?;
        let header = self.is_header(&record)?;
        let (column, by) = self.find_columns(&record, header)?;
        let (index, width) = (column.index, record.len());
        if let Some(by) = &by {
            rows.keys_of(&by.name);
        }
        if header {
            more = reader.read_byte_record(&mut record)?;
        }

        let progress = Progress::new("parsing", bytes.len());
        let mut count = 0_usize;
        while more {
            is_closed(&record, reader.position().byte())?;
            let start = record.position().map_or(0, |position| position.byte() as usize);
            let line = || line_of_record(bytes, start);
            if record.len() != width {
                let first = if header { "header" } else { "first" };
                return Err(Error::Fields { line: line(), found: record.len(), first, expected: width });
            }
            let field = &record[index];
            if str::from_utf8(field).is_ok_and(&mut *parse) {
                if let Some(by) = &by {
                    rows.keys_of(&by.name).push(&record[by.index]);
                }
            } else if !is_missing(field) {
                let hint = if has_separators(&lossy(field)) { SEPARATORS } else { "" };
                return Err(Error::Value {
                    line: line(),
                    column: column.name,
                    text: lossy(field),
                    dtype,
                    hint,
                });
            } else if self.skip_missing {
                rows.missing += 1;
            } else {
                return Err(Error::Missing { line: line(), column: column.name, text: lossy(field) });
            }
            count += 1;
            if count.is_multiple_of(1 << 16) {
                progress.set(start);
            }
            more = reader.read_byte_record(&mut record)?;
        }
        Ok(())
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
        let may_be_data = looks_numeric(&first[index]) || is_missing(&first[index]);
        let says_missing = is_missing(&first[index]) && !first[index].is_empty();
        let has_only_a_name = wanted.any(|wanted| index_below(wanted, first.len()).is_none());
        if (says_missing || first.iter().any(looks_numeric)) && may_be_data && !has_only_a_name {
            return Err(self.ambiguous(first));
        }
        Ok(true)
    }

    /// The column that is asked for, by name, index, or as the only one beside the keys', and that of the keys, if
    /// there are any; of a file with this `first` row, which may be its header.
    ///
    /// # Errors
    ///
    /// Where there is none, or are several.
    pub fn find_columns(&self, first: &ByteRecord, header: bool) -> Result<(Column, Option<Column>), Error> {
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
                let names = others().map(|index| of_index(index).name).collect::<Vec<_>>();
                return Err(which(&ByteRecord::from(names)));
            }
        };
        Ok((column, by))
    }

    fn ambiguous(&self, first: &ByteRecord) -> Error {
        Error::MaybeHeader { row: quoted(first.iter().map(lossy)) }
    }
}

/// Where a column is, and what the header calls it, or its index where there is none.
pub struct Column {
    pub index: usize,
    pub name: String,
}

/// A reader of rows of any length: one with too few or too many fields is refused above, with its line.
fn reader<R: Read>(bytes: R, delimiter: u8) -> csv::Reader<R> {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).delimiter(delimiter).flexible(true).trim(Trim::All).from_reader(bytes)
}

/// What separates the fields of a file: of the characters that do so in some, the first one that cuts its first rows into as many fields each, more than one.
fn guess_delimiter(bytes: &[u8]) -> u8 {
    const ROWS: usize = 16;
    const START: usize = 64 << 10;
    let start = &bytes[..bytes.len().min(START)];
    let separates = |&delimiter: &u8| {
        let rows = reader(start, delimiter).into_byte_records().take(ROWS).map_while(Result::ok);
        let mut widths: Vec<usize> = rows.map(|row| row.len()).collect();
        if start.len() < bytes.len() && (2..ROWS).contains(&widths.len()) {
            widths.pop(); // it is cut off
        }
        widths.first().is_some_and(|&width| width > 1 && widths.iter().all(|&other| other == width))
    };
    b"\t;|".iter().copied().find(separates).unwrap_or(b',')
}

/// Whether a quote is open at the end of what is the last row of a file: the next row would be in it.
fn is_unclosed(row: &[u8], delimiter: u8) -> bool {
    row.contains(&b'"') && reader(row.chain(&b"\n0"[..]), delimiter).into_byte_records().count() == 1
}

/// Whether a field says that there is no value.
fn is_missing(field: &[u8]) -> bool {
    const MISSING: [&str; 7] = ["", "NA", "N/A", "#N/A", "<NA>", "NULL", "None"];
    MISSING.iter().any(|missing| field.eq_ignore_ascii_case(missing.as_bytes()))
}

const SEPARATORS: &str = ": write numbers without separators between thousands, and with a point, as 1234.5";

/// Whether this would be a number without what stands between its thousands, or with a point for its comma.
fn has_separators(text: &str) -> bool {
    let is_separator = |c| matches!(c, ',' | '_' | ' ' | '\'' | '’' | '\u{a0}' | '\u{202f}');
    let has_some = text.contains(is_separator) || text.matches('.').count() > 1;
    let digits: String = text.chars().filter(|&c| !is_separator(c) && c != '.').collect();
    has_some && digits.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Of several columns none is chosen.
pub fn which(names: &ByteRecord) -> Error {
    Error::WhichColumn { columns: quoted(names.iter().map(lossy)) }
}

/// The column under these `names` that is wanted by its name, or else by its index.
///
/// # Errors
///
/// Where there is none, or are several.
pub fn find_named(wanted: &str, names: &ByteRecord) -> Result<usize, Error> {
    let of_name: Vec<_> = (0..names.len()).filter(|&index| &names[index] == wanted.as_bytes()).collect();
    match (&of_name[..], index_below(wanted, names.len())) {
        (&[index], _) | (&[], Some(index)) => Ok(index),
        ([], None) => {
            let columns = quoted(names.iter().map(lossy));
            Err(Error::UnknownColumn { column: shown(wanted), columns })
        }
        (several, _) => {
            let indices = quoted(several.iter().map(usize::to_string));
            Err(Error::SeveralOfName { column: shown(wanted), indices })
        }
    }
}

/// The column that is wanted by its index, of `count` without names.
fn find_unnamed(wanted: &str, count: usize) -> Result<usize, Error> {
    index_below(wanted, count).ok_or_else(|| Error::NoNames { column: shown(wanted), last: count - 1 })
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

/// The line, from 1, of the CSV record whose position is `start`. The csv crate's own count stops before the line ends
/// and blank lines that it skips at a record's start.
fn line_of_record(bytes: &[u8], start: usize) -> usize {
    let skipped = bytes[start..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    1 + bytes[..start + skipped].iter().filter(|&&byte| byte == b'\n').count()
}
