//! Slices that are reduced separately: rows, columns, and runs of equal keys.

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

/// The options that ask for a result of each slice, and that say where the results go.
#[derive(clap::Args)]
pub struct SlicesArgs {
    /// Print a result for each row of a matrix of N rows, as CSV: the matrix is a raw file in row-major
    /// order, or a .npy file; several files are stacked, one below the other.
    ///
    /// A .npy file of two axes, in C or Fortran order, has its own number of rows: leave N out, at the end or
    /// before another option. Indices, such as those of argmax, count from the start of the row.
    #[arg(long, value_name = "N", num_args = 0..=1, value_parser = number, group = "slices")]
    rows: Option<Option<usize>>,

    /// Print a result for each column of a matrix of N columns, as CSV; otherwise as --rows.
    #[arg(long, value_name = "N", num_args = 0..=1, value_parser = number, group = "slices")]
    columns: Option<Option<usize>>,

    /// With --by, sort the rows by key first, which gives one result for each key, in ascending order. The
    /// rows of one key keep their order.
    ///
    /// Numbers are sorted by value, then NaN, then empty keys; text is sorted by its bytes.
    #[arg(long, requires = "by")]
    sort: bool,

    /// With --by, print a result for each run of consecutive rows of one key: a key with several runs has
    /// several results.
    #[arg(long, requires = "by", conflicts_with = "sort")]
    runs: bool,

    /// Write the results of one operator to a NumPy .npy file, without keys, instead of printing CSV.
    ///
    /// The array has one axis; for minmax and moments, whose results are several numbers, it has two.
    #[arg(long, value_name = "FILE.npy", requires = "slices")]
    output: Option<PathBuf>,
}

fn number(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "not a number; to leave the number out, put the file before the option")
}

impl SlicesArgs {
    /// Returns the slices that the options ask for, if they do, of an input of `len` numbers: runs of equal
    /// keys, found on `device`, if there are `keys`; else rows or columns.
    ///
    /// # Errors
    ///
    /// [`Error::KeyComesBack`] if a key has several runs, without --runs; those of [`Input::matrix`] and
    /// [`Reduce::runs`](gpu_reduce::Reduce::runs).
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

    /// Whether to sort the keys.
    pub fn sort(&self) -> bool {
        self.sort
    }

    /// The axis of `--rows` or `--columns`, and the number N if given.
    fn axis(&self) -> Option<(Axis, Option<usize>)> {
        let rows = self.rows.map(|number| (Axis::Row, number));
        rows.or(self.columns.map(|number| (Axis::Column, number)))
    }

    /// Checks that the files can have these slices, and that `--output` can hold the results of this number
    /// of operators.
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

    /// Prints the results, or writes them to the file of `--output`; `columns` are the quantities with their
    /// names.
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

/// The slices to reduce.
pub struct Slices {
    /// The name of their labels: `row`, `column`, or the keys' column.
    pub name: String,
    bounds: Bounds,
}

enum Bounds {
    /// The rows or columns of a matrix: one slice for each index of the axis `kept`, 0 or 1.
    Matrix { shape: [usize; 2], kept: usize },
    /// Runs of equal keys: the rank of each run's key, and the text of each rank.
    Keys { runs: Runs<u64>, ranks: Vec<u64>, texts: Vec<Vec<u8>> },
}

impl Slices {
    /// The number of slices.
    pub fn len(&self) -> usize {
        match &self.bounds {
            Bounds::Matrix { shape, kept } => shape[*kept],
            Bounds::Keys { ranks, .. } => ranks.len(),
        }
    }

    /// Whether the labels are indices, not keys.
    pub fn are_numbered(&self) -> bool {
        matches!(self.bounds, Bounds::Matrix { .. })
    }

    /// The index or the key of a slice.
    pub fn label(&self, index: usize) -> Cow<'_, [u8]> {
        match &self.bounds {
            Bounds::Matrix { .. } => index.to_string().into_bytes().into(),
            Bounds::Keys { ranks, texts, .. } => texts[ranks[index] as usize][..].into(),
        }
    }

    /// Divides `data` into the slices.
    ///
    /// # Errors
    ///
    /// Those of [`Reduce::segments`](gpu_reduce::Reduce::segments).
    pub fn of<'a, T: Element>(
        &'a self,
        data: &'a View<'a, T>,
    ) -> Result<Segments<'a, View<'a, T>>, gpu_reduce::Error> {
        match &self.bounds {
            Bounds::Matrix { shape, kept } => data.reshape(shape)?.axis(1 - kept),
            Bounds::Keys { runs, .. } => data.segments(runs),
        }
    }
}
