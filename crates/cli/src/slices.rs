//! Slices that are reduced separately: rows, columns, and groups or runs of rows of equal keys.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use gpu_reduce::{Buffer, Device, Element, Reduce as _, Runs, View};

use super::error::Error;
use super::input::{Axis, Files, Input};
use super::keys::Groups;
use super::numbers::Target;
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

    /// With --by, print a result for each run of consecutive rows of one key, in the order of the file: a key
    /// with several runs has several results. They have the bits of reducing the run alone.
    #[arg(long, requires = "by")]
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
    /// Returns the slices that the options ask for, if they do, of an input of `len` numbers: its `groups`, or
    /// with --runs their runs, found on `device`; else rows or columns.
    ///
    /// # Errors
    ///
    /// The errors of [`Input::matrix`], [`Device::upload`] and [`Reduce::runs`](gpu_reduce::Reduce::runs).
    pub fn of(
        &self,
        input: &Input,
        len: usize,
        groups: Option<Groups>,
        device: &Device,
    ) -> Result<Option<Slices>, Error> {
        if let Some(groups) = groups {
            let indices = if device.is_cpu() { None } else { Some(device.upload(&groups.of_rows)?) };
            if !self.runs {
                return Ok(Some(Slices::Groups { groups, indices }));
            }
            let runs = match &indices {
                None => groups.of_rows.runs()?,
                Some(indices) => indices.runs()?,
            };
            let of_runs = runs.keys().to_vec()?;
            return Ok(Some(Slices::Runs { runs, of_runs, groups }));
        }
        let Some((axis, number)) = self.axis() else { return Ok(None) };
        let (shape, kept) = input.matrix(axis, number, len)?;
        Ok(Some(Slices::Matrix { axis, shape, kept }))
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
pub enum Slices {
    /// The rows or columns of a matrix: one slice for each index of the axis `kept`, 0 or 1.
    Matrix { axis: Axis, shape: [usize; 2], kept: usize },
    /// Groups of rows of equal keys; with their indices on the device, if that is a GPU.
    Groups { groups: Groups, indices: Option<Buffer<u32>> },
    /// Runs of rows of equal keys, and the group of each run.
    Runs { runs: Runs<u32>, of_runs: Vec<u32>, groups: Groups },
}

impl Slices {
    /// The number of slices.
    pub fn len(&self) -> usize {
        match self {
            Slices::Matrix { shape, kept, .. } => shape[*kept],
            Slices::Groups { groups, .. } => groups.len(),
            Slices::Runs { of_runs, .. } => of_runs.len(),
        }
    }

    /// Whether the labels are indices, not keys.
    pub fn are_numbered(&self) -> bool {
        matches!(self, Slices::Matrix { .. })
    }

    /// The names of the labels: `row`, `column`, or the keys' columns.
    pub fn names(&self) -> Vec<String> {
        match self {
            Slices::Matrix { axis, .. } => vec![axis.to_string()],
            Slices::Groups { groups, .. } | Slices::Runs { groups, .. } => {
                groups.columns.iter().map(|labels| labels.name.clone()).collect()
            }
        }
    }

    /// The labels of a slice: its index or its keys.
    pub fn labels(&self, index: usize) -> Vec<Cow<'_, [u8]>> {
        let (groups, group) = match self {
            Slices::Matrix { .. } => return vec![index.to_string().into_bytes().into()],
            Slices::Groups { groups, .. } => (groups, index),
            Slices::Runs { groups, of_runs, .. } => (groups, of_runs[index] as usize),
        };
        groups.columns.iter().map(|labels| labels.get(group)).collect()
    }

    /// Divides `data` into the slices.
    ///
    /// # Errors
    ///
    /// The errors of [`Reduce::segments`](gpu_reduce::Reduce::segments) and
    /// [`Reduce::by_index`](gpu_reduce::Reduce::by_index).
    pub fn of<'a, T: Element>(&'a self, data: &'a View<'a, T>) -> Result<Target<'a, T>, gpu_reduce::Error> {
        Ok(match self {
            Slices::Matrix { shape, kept, .. } => Target::Each(data.reshape(shape)?.axis(1 - kept)?),
            Slices::Runs { runs, .. } => Target::Each(data.segments(runs)?),
            Slices::Groups { groups, indices: None } => {
                Target::ByIndex(data.by_index(&groups.of_rows, groups.len())?)
            }
            Slices::Groups { groups, indices: Some(indices) } => {
                Target::ByIndex(data.by_index(indices, groups.len())?)
            }
        })
    }
}
