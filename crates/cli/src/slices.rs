//! Slices that are reduced separately: rows, columns, and groups or runs of rows of equal keys.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use gpu_reduce::Device;

use super::division::Division;
use super::error::Error;
use super::input::{Axis, Files, Input, Series};
use super::keys::{Groups, Labels};
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
    /// Returns the slices that the options ask for, if they do: the `groups` of the input's rows, or with
    /// --runs their runs, found on `device`; else rows or columns.
    ///
    /// # Errors
    ///
    /// The errors of [`Input::matrix`] and [`Division::of`].
    pub fn of(
        &self,
        input: &Input,
        groups: Option<Groups>,
        device: &Device,
    ) -> Result<Option<Slices>, Error> {
        if let Some(Groups { columns, of_rows, count }) = groups {
            let (of_rows, of_runs) = if self.runs { numbered(&of_rows) } else { (of_rows, None) };
            let count = of_runs.as_ref().map_or(count, Vec::len);
            let division = Division::of(of_rows, count, self.runs, device)?;
            return Ok(Some(Slices { labels: By::Keys { columns, of_runs }, division }));
        }
        let Some((axis, number)) = self.axis() else { return Ok(None) };
        let len = input.columns.iter().map(Series::len).sum();
        let (shape, kept) = input.matrix(axis, number, len)?;
        Ok(Some(Slices { labels: By::Index(axis), division: Division::Matrix { shape, kept } }))
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
    /// [`Error::Print`], [`Error::Write`], [`Error::NoDescr`], [`Error::OneColumn`].
    pub fn put(&self, slices: &Slices, columns: &[(String, Results)], format: Format) -> Result<(), Error> {
        let Some(path) = &self.output else { return format.print_each(slices, columns) };
        let [(name, results)] = columns else {
            return Err(Error::OneColumn { option: "output", columns: columns.len() });
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

/// The number of each row's run of equal groups, and the group of each run.
fn numbered(of_rows: &[u32]) -> (Vec<u32>, Option<Vec<u32>>) {
    let mut of_runs = Vec::new();
    let number = |&group: &u32| {
        if of_runs.last() != Some(&group) {
            of_runs.push(group);
        }
        of_runs.len() as u32 - 1
    };
    (of_rows.iter().map(number).collect(), Some(of_runs))
}

/// The slices to reduce.
pub struct Slices {
    labels: By,
    /// How a column with a value in each row is divided.
    pub division: Division,
}

/// What identifies the slices.
enum By {
    /// Indices of rows or columns.
    Index(Axis),
    /// Keys of groups. For runs, `of_runs` has the group of each run, whose keys label the run.
    Keys { columns: Vec<Labels>, of_runs: Option<Vec<u32>> },
}

impl Slices {
    /// The number of slices.
    pub fn len(&self) -> usize {
        self.division.len()
    }

    /// Whether the labels are indices, not keys.
    pub fn are_numbered(&self) -> bool {
        matches!(self.labels, By::Index(_))
    }

    /// The names of the labels: `row`, `column`, or the keys' columns.
    pub fn names(&self) -> Vec<String> {
        match &self.labels {
            By::Index(axis) => vec![axis.to_string()],
            By::Keys { columns, .. } => columns.iter().map(|labels| labels.name.clone()).collect(),
        }
    }

    /// The labels of a slice: its index or its keys.
    pub fn labels(&self, index: usize) -> Vec<Cow<'_, [u8]>> {
        match &self.labels {
            By::Index(_) => vec![index.to_string().into_bytes().into()],
            By::Keys { columns, of_runs } => {
                let group = of_runs.as_ref().map_or(index, |of_runs| of_runs[index] as usize);
                columns.iter().map(|labels| labels.get(group)).collect()
            }
        }
    }
}
