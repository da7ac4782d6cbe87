//! Rows, columns and runs of equal keys: what is reduced each by itself.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use gpu_reduce::{Device, Element, Reduce as _, Runs, Segments, View};

use super::error::Error;
use super::input::{Axis, Files, Input};
use super::keys::Ranks;
use super::report::Format;
use super::results::Results;
use super::{foreign, npy};

/// Of which slices there is a result each, instead of one of all numbers, and where the results go.
#[derive(clap::Args)]
pub struct SlicesArgs {
    /// Print a result for each row of a matrix of N rows, as CSV: of a raw file's, which lies row after row, or a .npy
    /// file's, or several files' one below the other.
    ///
    /// A .npy file of two axes, in C or Fortran order, has a number of its own: N is left out, at the end or before
    /// another option. Indices, as of argmax, count from the row's start.
    #[arg(long, value_name = "N", num_args = 0..=1, value_parser = number, group = "slices")]
    rows: Option<Option<usize>>,

    /// Print a result for each column of a matrix of N columns, as CSV; the rest as for --rows.
    #[arg(long, value_name = "N", num_args = 0..=1, value_parser = number, group = "slices")]
    columns: Option<Option<usize>>,

    /// With --by, sort the rows by their keys first, those of one key as they were: a result for each key, in ascending
    /// order, wherever its rows are.
    ///
    /// Numbers are in the order of their values, then NaN, then empty keys; text is in that of its bytes.
    #[arg(long, requires = "by")]
    sort: bool,

    /// With --by, print a result for each run of neighbouring rows that have one key: a key that comes back has
    /// several.
    #[arg(long, requires = "by", conflicts_with = "sort")]
    runs: bool,

    /// Write the results of one operator to a NumPy .npy file, without keys, instead of printing CSV.
    ///
    /// It has one axis; of minmax and moments, whose results have several numbers, two.
    #[arg(long, value_name = "FILE.npy", requires = "slices")]
    output: Option<PathBuf>,
}

fn number(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "not a number; where there is none, the file goes before the option")
}

impl SlicesArgs {
    /// The slices that are asked for, if any are, of an input of `len` numbers: runs of its keys, which are found on
    /// `device`, if it has some, else rows or columns.
    ///
    /// # Errors
    ///
    /// [`Error::KeyComesBack`] if there is to be a result for each key, and one has several runs; as
    /// [`Input::matrix`] and [`Reduce::runs`](gpu_reduce::Reduce::runs).
    pub fn of(
        &self,
        input: &Input,
        len: usize,
        keys: Option<Ranks>,
        device: &Device,
    ) -> Result<Option<Slices>, Error> {
        if let Some(ranks) = keys.as_ref().filter(|_| !self.runs)
            && let Some(key) = ranks.that_comes_back()
        {
            let key = String::from_utf8_lossy(key).into();
            return Err(Error::KeyComesBack { key, column: ranks.column.clone() });
        }
        if let Some(Ranks { column, of_rows, texts }) = keys {
            let runs = device.upload(&of_rows)?.runs()?;
            let ranks = runs.keys().to_vec()?;
            return Ok(Some(Slices { name: column, bounds: Bounds::Keys { runs, ranks, texts } }));
        }
        let Some((axis, number)) = self.axis() else { return Ok(None) };
        let (shape, kept) = input.matrix(axis, number, len)?;
        Ok(Some(Slices { name: axis.to_string(), bounds: Bounds::Matrix { shape, kept } }))
    }

    /// Whether the keys are to be sorted.
    pub fn sort(&self) -> bool {
        self.sort
    }

    /// The rows or columns that are asked for, if any are, and their number, if it is given.
    fn axis(&self) -> Option<(Axis, Option<usize>)> {
        let rows = self.rows.map(|number| (Axis::Row, number));
        rows.or(self.columns.map(|number| (Axis::Column, number)))
    }

    /// An error where the files have no such slices, or a file cannot have the results of so many operators.
    ///
    /// # Errors
    ///
    /// [`Error::NoMatrix`], [`Error::NotNpyName`], [`Error::OneOperator`].
    pub fn check(&self, files: &Files, operators: usize) -> Result<(), Error> {
        if let Some((axis, _)) = self.axis().filter(|_| files.are_tables()) {
            return Err(Error::NoMatrix { axis });
        }
        match &self.output {
            Some(path) if !foreign::is_named(path, &["npy"]) => Err(Error::NotNpyName { path: path.clone() }),
            Some(_) if operators != 1 => Err(Error::OneOperator { operators }),
            _ => Ok(()),
        }
    }

    /// Prints or writes the results of some operators, which have names.
    ///
    /// # Errors
    ///
    /// [`Error::Print`], [`Error::Write`], [`Error::NoDescr`].
    pub fn put(&self, slices: &Slices, columns: &[(String, Results)], format: Format) -> Result<(), Error> {
        let (Some(path), [(name, results)]) = (&self.output, columns) else {
            return format.print_each(slices, columns);
        };
        let descr = results.descr().ok_or_else(|| Error::NoDescr { quantity: name.clone() })?;
        let write = || {
            let mut file = File::create(path)?;
            file.write_all(&npy::header(descr, slices.len(), results.width()))?;
            file.write_all(results.bytes())
        };
        write().map_err(|source| Error::Write { path: path.clone(), source })
    }
}

/// What is reduced each by itself.
pub struct Slices {
    /// What they are: `row`, `column`, or the name of the keys' column.
    pub name: String,
    bounds: Bounds,
}

enum Bounds {
    /// A row or a column of a matrix for each place of an axis, which is `kept` of the two.
    Matrix { shape: [usize; 2], kept: usize },
    /// Runs of equal keys; the rank of each, and the text of each rank.
    Keys { runs: Runs<u64>, ranks: Vec<u64>, texts: Vec<Vec<u8>> },
}

impl Slices {
    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.bounds {
            Bounds::Matrix { shape, kept } => shape[*kept],
            Bounds::Keys { ranks, .. } => ranks.len(),
        }
    }

    /// Whether what tells one from the others is a number, its index, and no key.
    pub fn are_numbered(&self) -> bool {
        matches!(self.bounds, Bounds::Matrix { .. })
    }

    /// What tells one from the others: its index or its key.
    pub fn label(&self, index: usize) -> Cow<'_, [u8]> {
        match &self.bounds {
            Bounds::Matrix { .. } => index.to_string().into_bytes().into(),
            Bounds::Keys { ranks, texts, .. } => texts[ranks[index] as usize][..].into(),
        }
    }

    /// Those of the numbers of the input.
    ///
    /// # Errors
    ///
    /// As [`Reduce::segments`](gpu_reduce::Reduce::segments).
    pub fn of<'a, T: Element>(
        &'a self,
        data: &'a View<'a, T>,
    ) -> Result<Segments<'a, View<'a, T>>, gpu_reduce::Error> {
        match &self.bounds {
            Bounds::Matrix { shape, kept } => data.shaped(shape)?.over(1 - kept),
            Bounds::Keys { runs, .. } => data.segments(runs),
        }
    }
}
