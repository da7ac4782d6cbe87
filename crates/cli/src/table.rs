//! CSV files: finds the delimiter, the header and the columns, and reads the numbers of columns.

use std::io::Read;

use csv::{ByteRecord, ReaderBuilder, Trim};
use gpu_reduce_dynamic::Dtype;
use memchr::memchr2;

use super::conditions::Condition;
use super::error::{Error, quoted, shown};
use super::fields::Field as _;
use super::records::{Parsed, Records};
use super::rows::Rows;

/// What to read from a table.
pub struct Selection {
    /// The delimiter, if the user or the file's name says it.
    pub delimiter: Option<u8>,
    /// What lines that are comments start with.
    pub comment: Option<u8>,
    /// The names or the indices from 0 of the columns, perhaps several separated by commas; none are needed
    /// if there is only one.
    pub columns: Vec<String>,
    /// The names or indices of the keys' columns.
    pub by: Vec<String>,
    /// Whether the first row is a header, if the user says so.
    pub header: Option<bool>,
    /// Whether to leave out rows without a value.
    pub skip_missing: bool,
    /// Words that stand for a missing value, besides those that always do.
    pub missing: Vec<String>,
    /// Conditions of the rows to read.
    pub conditions: Vec<Condition>,
}

/// How a CSV file is written.
#[derive(Clone, Copy)]
pub struct Dialect {
    pub delimiter: u8,
    /// What lines that are comments start with.
    pub comment: Option<u8>,
}

impl Selection {
    /// Parses the fields of each column as numbers of type `dtype`; also returns the keys and missing rows.
    ///
    /// # Errors
    ///
    /// If a column is not found or is ambiguous, if the first row may be a header or data, if a row has the
    /// wrong number of fields or no valid number in a column, and if a quote is never closed.
    pub fn parse<P: Parsed>(&self, bytes: &[u8], dtype: Dtype) -> Result<(Vec<P>, Rows), Error> {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let comment = self.comment;
        let delimiter = self.delimiter.unwrap_or_else(|| guess_delimiter(bytes, comment));
        let dialect = Dialect { delimiter, comment };
        let mut reader = reader(bytes, dialect);
        let mut first = ByteRecord::new();
        let is_empty = start_of_row(bytes, 0, comment) == bytes.len();
        if is_empty || !reader.read_byte_record(&mut first)? {
            return match self.header {
                Some(false) => {
                    let of_name = |name: &str| Column { index: 0, name: name.to_owned() };
                    let columns = match &self.columns[..] {
                        [] => vec![of_name("0")],
                        names => names.iter().flat_map(|name| name.split(',')).map(of_name).collect(),
                    };
                    let by = self.by.iter().map(|name| of_name(name)).collect();
                    let selected = Selected { columns, by, conditions: Vec::new() };
                    Ok((selected.columns.iter().map(|_| P::default()).collect(), Rows::of(&selected)))
                }
                _ => Err(Error::NoHeader),
            };
        }
        let end = reader.position().byte() as usize;
        if end == bytes.len() {
            check_closed(bytes, 0, dialect)?;
        }
        let header = self.is_header(&first)?;
        let (selected, width) = (&self.find_columns(&first, header)?, first.len());
        let records = Records { bytes, dialect, header, width, selected, dtype, selection: self };
        records.read(if header { end } else { 0 })
    }

    /// Whether the `first` row of a file is a header.
    ///
    /// If the user does not say: a row of numbers only is data; a row without numbers is a header. A mixed
    /// row, such as `name,2021`, is a header if it names a wanted column. If its field in a column may also
    /// be the first number, the user has to say.
    fn is_header(&self, first: &ByteRecord) -> Result<bool, Error> {
        if let Some(header) = self.header {
            return Ok(header);
        }
        let names_a_field = |wanted: &&str| first.iter().any(|field| field == wanted.as_bytes());
        let wanted = self.columns.iter().flat_map(|wanted| split(wanted, first));
        let others = self.by.iter().chain(self.conditions.iter().map(|condition| &condition.column));
        let mut wanted = wanted.chain(others.map(String::as_str)).filter(names_a_field);
        if first.iter().all(is_number) {
            return match wanted.next() {
                None if first.iter().any(has_digit) => Ok(false),
                _ => Err(self.ambiguous(first)),
            };
        }
        let Selected { columns, .. } = self.find_columns(first, true)?;
        let mut fields = columns.iter().map(|column| &first[column.index]);
        let is_missing = |field: &[u8]| self.is_word(field) || is_missing(field);
        let may_be_data = fields.clone().any(|field| looks_numeric(field) || is_missing(field));
        let says_missing = fields.any(|field| is_missing(field) && !field.is_empty());
        let has_only_a_name = wanted.any(|wanted| index_below(wanted, first.len()).is_none());
        if (says_missing || first.iter().any(looks_numeric)) && may_be_data && !has_only_a_name {
            return Err(self.ambiguous(first));
        }
        Ok(true)
    }

    /// Finds the columns of the numbers, by name, by index, or as the only one besides the keys' columns; and
    /// the columns of keys and conditions. `first` is the first row; `header` says whether it is a header.
    ///
    /// # Errors
    ///
    /// If a column does not exist or is named twice, or if several match.
    pub fn find_columns(&self, first: &ByteRecord, header: bool) -> Result<Selected, Error> {
        let of_index = |index: usize| {
            let name = if header { lossy(&first[index]) } else { index.to_string() };
            Column { index, name }
        };
        let find = |wanted: &str| {
            let index = if header { find_named(wanted, first) } else { find_unnamed(wanted, first.len()) };
            index.map(of_index)
        };
        let by: Vec<Column> = self.by.iter().map(|wanted| find(wanted)).collect::<Result<_, _>>()?;
        let others = || (0..first.len()).filter(|&index| by.iter().all(|by| by.index != index));
        let columns = match (&self.columns[..], others().count()) {
            ([], 0 | 1) => vec![of_index(others().next().unwrap_or(0))],
            ([], _) => {
                let names = others().map(|index| of_index(index).name).collect::<Vec<_>>();
                return Err(which(&ByteRecord::from(names)));
            }
            (wanted, _) => {
                let wanted = wanted.iter().flat_map(|wanted| split(wanted, first));
                wanted.map(find).collect::<Result<Vec<_>, _>>()?
            }
        };
        let condition = |condition: &Condition| Ok((find(&condition.column)?, condition.clone()));
        let conditions = self.conditions.iter().map(condition).collect::<Result<_, Error>>()?;
        let is_again = |(place, column): &(usize, &Column)| {
            columns[..*place].iter().any(|before| before.index == column.index)
        };
        match columns.iter().enumerate().find(is_again) {
            Some((_, column)) => Err(Error::TwiceColumn { column: shown(&column.name) }),
            None => Ok(Selected { columns, by, conditions }),
        }
    }

    /// Whether a field is a word that stands for a missing value in this file.
    pub fn is_word(&self, field: &[u8]) -> bool {
        self.missing.iter().any(|word| word.as_bytes() == field)
    }

    fn ambiguous(&self, first: &ByteRecord) -> Error {
        Error::MaybeHeader { row: quoted(first.iter().map(lossy)) }
    }
}

/// The columns to read.
pub struct Selected {
    /// The columns of numbers.
    pub columns: Vec<Column>,
    /// The columns of keys.
    pub by: Vec<Column>,
    /// The columns of conditions.
    pub conditions: Vec<(Column, Condition)>,
}

impl Selected {
    /// All columns; one with several uses comes again.
    pub fn all(&self) -> impl Iterator<Item = &Column> {
        self.by.iter().chain(&self.columns).chain(self.conditions.iter().map(|(column, _)| column))
    }
}

/// A column's index, and its name in the header, or its index as text without a header.
pub struct Column {
    pub index: usize,
    pub name: String,
}

/// A reader that accepts rows of any length; [`Records::read`] refuses the wrong ones and names their line.
pub fn reader<R: Read>(bytes: R, Dialect { delimiter, comment }: Dialect) -> csv::Reader<R> {
    let mut builder = ReaderBuilder::new();
    builder.has_headers(false).delimiter(delimiter).comment(comment);
    builder.flexible(true).trim(Trim::All).from_reader(bytes)
}

/// Guesses the delimiter: the first of tab, semicolon and bar that splits the first rows into the same number
/// of fields, more than one; else a comma.
fn guess_delimiter(bytes: &[u8], comment: Option<u8>) -> u8 {
    const ROWS: usize = 16;
    const START: usize = 64 << 10;
    let start = &bytes[..bytes.len().min(START)];
    let separates = |&delimiter: &u8| {
        // A comment without a line end would be a row.
        let reader = reader(start.chain(&b"\n"[..]), Dialect { delimiter, comment });
        let rows = reader.into_byte_records().take(ROWS).map_while(Result::ok);
        let mut widths: Vec<usize> = rows.map(|row| row.len()).collect();
        if start.len() < bytes.len() && (2..ROWS).contains(&widths.len()) {
            widths.pop(); // the last row is cut off
        }
        widths.first().is_some_and(|&width| width > 1 && widths.iter().all(|&other| other == width))
    };
    b"\t;|".iter().copied().find(separates).unwrap_or(b',')
}

/// Checks that the last row of a file, which starts at this offset, has no open quote: a row appended to it
/// would become part of it.
///
/// # Errors
///
/// [`Error::Unclosed`].
pub fn check_closed(bytes: &[u8], start: usize, dialect: Dialect) -> Result<(), Error> {
    let row = &bytes[start..];
    let is_open = || reader(row.chain(&b"\n0"[..]), dialect).into_byte_records().count() == 1;
    match row.contains(&b'"') && is_open() {
        true => Err(Error::Unclosed { line: line_of_record(bytes, start, dialect.comment) }),
        false => Ok(()),
    }
}

/// The error of a field that is not a number.
pub fn no_number(field: &[u8], column: &str, line: usize, dtype: Dtype) -> Error {
    let (text, column) = (lossy(field), column.to_owned());
    let hint = if has_separators(&text) { SEPARATORS } else { "" };
    Error::Value { line, column, text, dtype, hint }
}

/// Whether a field stands for a missing value.
pub fn is_missing(field: &[u8]) -> bool {
    const MISSING: [&str; 7] = ["", "NA", "N/A", "#N/A", "<NA>", "NULL", "None"];
    MISSING.iter().any(|missing| field.eq_ignore_ascii_case(missing.as_bytes()))
}

const SEPARATORS: &str =
    ": write numbers without thousands separators and with a decimal point, as in 1234.5";

/// Whether the text would be a number without thousands separators, or with a point as its decimal separator.
fn has_separators(text: &str) -> bool {
    let is_separator = |c| matches!(c, ',' | '_' | ' ' | '\'' | '’' | '\u{a0}' | '\u{202f}');
    let has_some = text.contains(is_separator) || text.matches('.').count() > 1;
    let digits: String = text.chars().filter(|&c| !is_separator(c) && c != '.').collect();
    has_some && digits.parse::<f64>().is_ok_and(f64::is_finite)
}

/// The error of choosing no column among several.
pub fn which(names: &ByteRecord) -> Error {
    Error::WhichColumn { columns: quoted(names.iter().map(lossy)) }
}

/// The columns that an option names in a file with these column names: one whose name has commas, or several
/// between commas.
fn split<'a>(wanted: &'a str, names: &ByteRecord) -> impl Iterator<Item = &'a str> + use<'a> {
    let is_one = names.iter().any(|name| name == wanted.as_bytes());
    let (one, several) = if is_one { (Some(wanted), None) } else { (None, Some(wanted.split(','))) };
    one.into_iter().chain(several.into_iter().flatten().map(str::trim))
}

/// Finds a column by name, or else by index, among `names`.
///
/// # Errors
///
/// If no column matches, or if several do.
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

/// Finds a column by index among `count` columns without names.
fn find_unnamed(wanted: &str, count: usize) -> Result<usize, Error> {
    index_below(wanted, count).ok_or_else(|| Error::NoNames { column: shown(wanted), last: count - 1 })
}

/// `wanted` as an index, if it is a number below `count`.
fn index_below(wanted: &str, count: usize) -> Option<usize> {
    wanted.parse().ok().filter(|&index| index < count)
}

/// Whether the field parses as a number.
fn is_number(field: &[u8]) -> bool {
    str::from_utf8(field).is_ok_and(|text| text.parse::<f64>().is_ok())
}

/// Whether this is a number, or may be one in another notation, such as `0x1f`, `1,000`, `$5` or
/// `2026-11-21`: it has digits and no letters.
fn looks_numeric(field: &[u8]) -> bool {
    is_number(field)
        || f64::parse(field).is_some()
        || has_digit(field) && !lossy(field).chars().any(char::is_alphabetic)
}

fn has_digit(field: &[u8]) -> bool {
    lossy(field).chars().any(char::is_numeric)
}

fn lossy(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into()
}

/// The line, from 1, of the CSV record at the offset `start`. The csv crate's own line count omits the line
/// ends, blank lines and comments that it skips at the start of a record.
pub fn line_of_record(bytes: &[u8], start: usize, comment: Option<u8>) -> usize {
    1 + bytes[..start_of_row(bytes, start, comment)].iter().filter(|&&byte| byte == b'\n').count()
}

/// Where the row after the offset `at` starts: after line ends, blank lines and comments.
pub fn start_of_row(bytes: &[u8], mut at: usize, comment: Option<u8>) -> usize {
    loop {
        match bytes.get(at) {
            Some(b'\r' | b'\n') => at += 1,
            Some(&byte) if Some(byte) == comment => {
                at += memchr2(b'\r', b'\n', &bytes[at..]).unwrap_or(bytes.len() - at);
            }
            _ => return at,
        }
    }
}
