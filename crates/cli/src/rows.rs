//! What a table has besides its numbers: names, keys, and which rows have no value.

use arrow_buffer::NullBuffer;

use super::keys::Keys;
use super::table::{Column, Selected};

/// The rows of tables that have a value in a column of numbers.
#[derive(Default)]
pub struct Rows {
    /// The columns of numbers.
    pub columns: Vec<OfColumn>,
    /// The keys of the rows in each column of --by.
    pub keys: Vec<Keys>,
    /// The number of rows.
    pub count: usize,
    /// The number of other rows. They were left out because they have no value in any column.
    pub missing: u64,
}

/// A column of numbers.
#[derive(Clone)]
pub struct OfColumn {
    pub name: String,
    /// The rows without a value in this column, in ascending order.
    pub absent: Vec<usize>,
}

impl Rows {
    /// No rows yet of a table with these columns.
    pub fn of(Selected { columns, by, .. }: &Selected) -> Rows {
        let of_column = |column: &Column| OfColumn { name: column.name.clone(), absent: Vec::new() };
        Rows {
            columns: columns.iter().map(of_column).collect(),
            keys: by.iter().map(|column| Keys::of_column(column.name.clone())).collect(),
            ..Rows::default()
        }
    }

    /// No rows of a part yet, which comes after these rows.
    pub fn part(&self) -> Rows {
        let empty = |column: &OfColumn| OfColumn { name: column.name.clone(), absent: Vec::new() };
        Rows {
            columns: self.columns.iter().map(empty).collect(),
            keys: self.keys.iter().map(Keys::part).collect(),
            ..Rows::default()
        }
    }

    /// Reserves memory for the keys of `count` more rows.
    pub fn reserve(&mut self, count: usize) {
        self.keys.iter_mut().for_each(|keys| keys.reserve(count));
    }

    /// Adds rows, some of which are null in some columns. Returns the rows that are null in all columns, if
    /// any are: they are left out.
    pub fn push_nulls(&mut self, count: usize, nulls: &[Option<NullBuffer>]) -> Option<NullBuffer> {
        let of_columns: Option<Vec<&NullBuffer>> = nulls.iter().map(Option::as_ref).collect();
        let in_none = of_columns.and_then(|nulls| {
            let inner = nulls.into_iter().map(|nulls| nulls.inner().clone());
            inner.reduce(|a, b| &a | &b).map(NullBuffer::new).filter(|nulls| nulls.null_count() > 0)
        });
        let missing = in_none.as_ref().map_or(0, NullBuffer::null_count);
        for (column, nulls) in self.columns.iter_mut().zip(nulls) {
            let Some(nulls) = nulls.as_ref().filter(|nulls| nulls.null_count() > missing) else { continue };
            let is_there = |row: &usize| in_none.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
            let rows = (0..count).filter(is_there).zip(self.count..);
            column.absent.extend(rows.filter(|&(row, _)| nulls.is_null(row)).map(|(_, row)| row));
        }
        self.count += count - missing;
        self.missing += missing as u64;
        in_none
    }

    /// Appends the rows of a part of a file, or of the next file.
    pub fn append(&mut self, next: Rows) {
        if self.columns.is_empty() {
            *self = next;
            return;
        }
        for (column, next) in self.columns.iter_mut().zip(next.columns) {
            column.absent.extend(next.absent.into_iter().map(|row| self.count + row));
        }
        self.keys.iter_mut().zip(next.keys).for_each(|(keys, next)| keys.append(next));
        self.count += next.count;
        self.missing += next.missing;
    }
}
