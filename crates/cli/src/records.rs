//! The rows of a CSV file. The file is cut into pieces, which threads read at the same time.

use std::io::Read as _;
use std::ops::Range;

use csv::ByteRecord;
use gpu_reduce_dynamic::Dtype;
use memchr::{memchr, memchr2, memchr3};
use rayon::prelude::*;

use super::error::Error;
use super::fields::Field;
use super::memory;
use super::progress::Progress;
use super::rows::Rows;
use super::table::{self, Dialect, Selected, Selection};

/// The numbers that fields are parsed to.
pub trait Parsed: Default + Send {
    /// Adds the number of the next field; returns false if the field is not a number.
    fn push_text(&mut self, text: &[u8]) -> bool;

    /// Reserves memory for `count` more numbers.
    fn reserve(&mut self, count: usize);

    /// Appends the numbers of the next fields; returns false if they are of another kind.
    fn push_all(&mut self, next: Self) -> bool;
}

impl<T: Field> Parsed for Vec<T> {
    fn push_text(&mut self, text: &[u8]) -> bool {
        T::parse(text).map(|value| self.push(value)).is_some()
    }

    fn reserve(&mut self, count: usize) {
        memory::reserve(self, count);
    }

    fn push_all(&mut self, next: Vec<T>) -> bool {
        match self.is_empty() {
            true => *self = next,
            false => self.par_extend(next),
        }
        true
    }
}

/// The rows of a CSV file after its header, and what to read of them.
pub struct Records<'a> {
    /// The whole file.
    pub bytes: &'a [u8],
    pub dialect: Dialect,
    /// Whether the first row is a header.
    pub header: bool,
    /// The number of fields in each row.
    pub width: usize,
    pub selected: &'a Selected,
    pub dtype: Dtype,
    pub selection: &'a Selection,
}

impl Records<'_> {
    /// Reads the rows from the offset `start` on.
    ///
    /// # Errors
    ///
    /// The error of the first row that has the wrong number of fields or no valid number in a column, or
    /// whose quote is never closed.
    pub fn read<P: Parsed>(&self, start: usize) -> Result<(Vec<P>, Rows), Error> {
        /// Pieces of each thread between two updates of the progress bar.
        const TURNS: usize = 8;
        let progress = Progress::new("parsing", self.bytes.len());
        let (mut parsed, mut rows) = (self.nothing::<P>(), Rows::of(self.selected));
        let mut pieces = Pieces { bytes: self.bytes, start, dialect: self.dialect };
        let mut some = || pieces.by_ref().take(TURNS * rayon::current_num_threads()).collect::<Vec<_>>();
        let mut now = some();
        while let Some(&Range { end, .. }) = now.last() {
            let read =
                || now.par_iter().map(|piece| self.read_piece::<P>(piece.clone(), &rows)).collect::<Vec<_>>();
            let (read, next) = rayon::join(read, &mut some);
            for piece in read {
                let (numbers, of_piece) = piece?;
                for ((parsed, numbers), column) in parsed.iter_mut().zip(numbers).zip(&self.selected.columns)
                {
                    if !parsed.push_all(numbers) {
                        return Err(Error::Mixed { column: column.name.clone() });
                    }
                }
                rows.append(of_piece);
            }
            if now[0].start == start {
                // The rest has about as many rows for its length, or a few more.
                let count = rows.count * (self.bytes.len() - end) / (end - start);
                parsed.iter_mut().for_each(|parsed| parsed.reserve(count + count / 16));
                rows.reserve(count + count / 16);
            }
            progress.set(end);
            now = next;
        }
        Ok((parsed, rows))
    }

    /// No numbers yet of each column.
    fn nothing<P: Parsed>(&self) -> Vec<P> {
        self.selected.columns.iter().map(|_| P::default()).collect()
    }

    /// Reads the rows of a piece, which comes after the rows `before`.
    fn read_piece<P: Parsed>(&self, piece: Range<usize>, before: &Rows) -> Result<(Vec<P>, Rows), Error> {
        let mut read = (self.nothing(), before.part());
        let mut lines = Lines::new(&self.bytes[..piece.end], piece.start, self.dialect);
        while let Some(start) = lines.next() {
            self.push(
                start,
                lines.fields.len(),
                |index| lines.fields[index].trim_ascii(),
                before,
                &mut read,
            )?;
        }
        if lines.at == piece.end {
            return Ok(read);
        }

        // The csv crate reads the piece from the first row with escaped quotes on. It would remove a byte
        // order mark at the start: a line end before prevents that.
        let start = lines.at;
        let rest = &self.bytes[start..piece.end];
        let mut reader = table::reader((&b"\n"[..]).chain(rest), self.dialect);
        let offset = |of_reader: u64| (start + of_reader as usize).saturating_sub(1);
        let mut record = ByteRecord::new();
        while reader.read_byte_record(&mut record)? {
            let start = offset(record.position().map_or(0, csv::Position::byte));
            if table::start_of_row(self.bytes, start, self.dialect.comment) == self.bytes.len() {
                break; // a comment without a line end
            }
            if offset(reader.position().byte()) == self.bytes.len() {
                table::check_closed(self.bytes, start, self.dialect)?;
            }
            self.push(start, record.len(), |index| &record[index], before, &mut read)?;
        }
        Ok(read)
    }

    /// Adds the row at the offset `start`, whose number of fields is `width`.
    #[inline(always)]
    fn push<'f, P: Parsed>(
        &self,
        start: usize,
        width: usize,
        field: impl Fn(usize) -> &'f [u8],
        before: &Rows,
        (parsed, rows): &mut (Vec<P>, Rows),
    ) -> Result<(), Error> {
        let line = || table::line_of_record(self.bytes, start, self.dialect.comment);
        if width != self.width {
            let first = if self.header { "header" } else { "first" };
            return Err(Error::Fields { line: line(), found: width, first, expected: self.width });
        }
        let conditions = &self.selected.conditions;
        if !conditions.iter().all(|(column, condition)| condition.holds(field(column.index))) {
            return Ok(());
        }
        let mut is_absent = true;
        for (place, column) in self.selected.columns.iter().enumerate() {
            let text = field(column.index);
            let is_word = self.selection.is_word(text);
            if !is_word && parsed[place].push_text(text) {
                is_absent = false;
            } else if !is_word && !table::is_missing(text) {
                return Err(table::no_number(text, &column.name, line(), self.dtype));
            } else if self.selection.skip_missing {
                rows.columns[place].absent.push(rows.count);
            } else {
                let text = String::from_utf8_lossy(text).into();
                return Err(Error::Missing { line: line(), column: column.name.clone(), text });
            }
        }
        if is_absent {
            rows.columns.iter_mut().for_each(|column| _ = column.absent.pop());
            rows.missing += 1;
            return Ok(());
        }
        rows.count += 1;
        let keys = rows.keys.iter_mut().zip(&before.keys);
        keys.zip(&self.selected.by).for_each(|((keys, before), by)| keys.push(before, field(by.index)));
        Ok(())
    }
}

/// The pieces of the bytes from `start` on. Each ends where a row ends.
struct Pieces<'a> {
    bytes: &'a [u8],
    start: usize,
    dialect: Dialect,
}

impl Iterator for Pieces<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.start;
        self.start = self.end();
        (start < self.start).then_some(start..self.start)
    }
}

impl Pieces<'_> {
    /// Where the piece that starts at `start` ends: after the first line end outside of quotes behind its
    /// least length.
    fn end(&self) -> usize {
        const LEAST: usize = 1 << 18;
        let Pieces { bytes, start, dialect: Dialect { comment, .. } } = *self;
        let least = bytes.len().min(start + LEAST);
        if comment.is_none() {
            return self.end_of_rows(start, least);
        }
        // Quotes in comments are ordinary characters.
        let mut at = start;
        while at < least {
            at = table::start_of_row(bytes, at, comment);
            at = self.end_of_rows(at, at);
        }
        at
    }

    /// The first end of a row behind the offset `least`; one starts at `start`.
    fn end_of_rows(&self, start: usize, least: usize) -> usize {
        let Pieces { bytes, dialect: Dialect { delimiter, .. }, .. } = *self;
        // A place outside of quotes.
        let mut at = start;
        loop {
            let found = match memchr(b'"', &bytes[at..least.max(at)]) {
                Some(quote) => at + quote,
                None => {
                    at = at.max(least);
                    match memchr2(b'"', b'\n', &bytes[at..]) {
                        Some(found) if bytes[at + found] == b'\n' => return at + found + 1,
                        Some(quote) => at + quote,
                        None => return bytes.len(),
                    }
                }
            };
            // A quote within a field that does not start with one is an ordinary character.
            let is_opening = found == start || [delimiter, b'\r', b'\n'].contains(&bytes[found - 1]);
            at = if is_opening { end_of_quoted(bytes, found) } else { found + 1 };
        }
    }
}

/// Where the quoted text that starts at `start` ends: after its closing quote, or at the end of the file.
fn end_of_quoted(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        match memchr(b'"', &bytes[at..]) {
            None => return bytes.len(),
            // Two quotes stand for one in the text.
            Some(quote) if bytes.get(at + quote + 1) == Some(&b'"') => at += quote + 2,
            Some(quote) => return at + quote + 1,
        }
    }
}

/// Splits rows into fields, as long as no field has a quote to remove within.
struct Lines<'a> {
    bytes: &'a [u8],
    /// Where the next row starts, or blank lines before it.
    at: usize,
    dialect: Dialect,
    /// The fields of the last row, without the quotes around them.
    fields: Vec<&'a [u8]>,
}

impl<'a> Lines<'a> {
    fn new(bytes: &'a [u8], at: usize, dialect: Dialect) -> Lines<'a> {
        Lines { bytes, at, dialect, fields: Vec::new() }
    }

    /// Reads the next row; returns its offset. `None` at the end, or before a row that needs the csv crate.
    fn next(&mut self) -> Option<usize> {
        let Lines { bytes, dialect: Dialect { delimiter, comment }, .. } = *self;
        self.at = table::start_of_row(bytes, self.at, comment);
        let start = self.at;
        if start == bytes.len() {
            return None;
        }
        self.fields.clear();
        let mut at = start;
        loop {
            let rest = &bytes[at..];
            let field;
            (field, at) = match rest {
                [b'"', quoted @ ..] => {
                    let length = memchr(b'"', quoted)?;
                    (&quoted[..length], at + length + 2)
                }
                _ => {
                    let length = length_of_plain(rest, delimiter);
                    (&rest[..length], at + length)
                }
            };
            self.fields.push(field);
            match bytes.get(at) {
                None | Some(b'\r' | b'\n') => {
                    self.at = at;
                    return Some(start);
                }
                Some(&byte) if byte == delimiter => at += 1,
                // A quote is escaped, or text follows the closing quote.
                Some(_) => return None,
            }
        }
    }
}

/// The length of a field without quotes: up to a delimiter or line end. Most fields are short: two words are
/// searched here, because a call of memchr takes longer.
fn length_of_plain(bytes: &[u8], delimiter: u8) -> usize {
    const WORDS: usize = 2;
    const ONES: u64 = u64::MAX / 0xff;
    let (words, _) = bytes.as_chunks();
    for (index, &word) in words.iter().take(WORDS).enumerate() {
        // The lowest bit that is set is in the first byte that is equal.
        let equal = |byte: u8| {
            let different = u64::from_le_bytes(word) ^ (ONES * u64::from(byte));
            different.wrapping_sub(ONES) & !different & (ONES << 7)
        };
        let found = equal(delimiter) | equal(b'\r') | equal(b'\n');
        if found != 0 {
            return index * size_of::<u64>() + found.trailing_zeros() as usize / 8;
        }
    }
    let searched = words.len().min(WORDS) * size_of::<u64>();
    let found = memchr3(delimiter, b'\r', b'\n', &bytes[searched..]);
    found.map_or(bytes.len(), |found| searched + found)
}
