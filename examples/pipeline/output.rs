//! The output file with the sums of the rows.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use bytemuck::NoUninit;

use super::error::Error;
use super::input::Input;

/// A file of raw numbers.
pub struct Output {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Output {
    /// Creates the file, or empties it; refuses the input file.
    pub fn create(path: &Path, input: &Input) -> Result<Self, Error> {
        if input.is(path) {
            return Err(Error::SameFile { path: path.to_owned() });
        }
        let file = File::create(path).map_err(|source| Error::Write { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file) })
    }

    pub fn write<V: NoUninit>(&mut self, numbers: &[V]) -> Result<(), Error> {
        let written = self.file.write_all(bytemuck::cast_slice(numbers));
        written.map_err(|source| self.failed(source))
    }

    /// Flushes the file.
    pub fn end(mut self) -> Result<(), Error> {
        self.file.flush().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Write { path: self.path.clone(), source }
    }
}
