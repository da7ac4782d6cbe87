//! The input file, and its division into pieces.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use gpu_reduce::Element;
use rayon::prelude::*;

use super::error::Error;

#[cfg(target_endian = "big")]
compile_error!("this example reinterprets little-endian input in memory, so it needs a little-endian target");

/// Bytes that a thread reads at a time: few enough that threads finish together, many enough that system
/// calls cost little.
const PART: usize = 512 << 10;

/// A file of numbers.
pub struct Input {
    path: PathBuf,
    file: File,
    bytes: u64,
}

/// The division of a file into pieces.
#[derive(Clone, Copy)]
pub struct Cut {
    /// The number of elements in the file.
    pub elements: u64,
    /// Elements per row; the last row may be shorter.
    pub row: usize,
    /// Elements per piece, a whole number of rows; the last piece may be shorter.
    pub piece: usize,
}

impl Cut {
    /// Pieces of at most `bytes` bytes, rounded down to whole rows, but at least one row.
    pub fn new<T>(elements: u64, row: usize, bytes: usize) -> Self {
        let rows = (bytes / size_of::<T>() / row).max(1);
        // At most the whole file.
        let piece = (rows.saturating_mul(row) as u64).min(elements) as usize;
        Self { elements, row, piece }
    }

    /// The number of pieces.
    pub fn pieces(&self) -> usize {
        self.elements.div_ceil(self.piece as u64) as usize
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.elements.div_ceil(self.row as u64)
    }

    /// The index of a piece's first element.
    pub fn start(&self, piece: usize) -> u64 {
        piece as u64 * self.piece as u64
    }

    /// The number of elements in a piece.
    pub fn len(&self, piece: usize) -> usize {
        (self.elements - self.start(piece)).min(self.piece as u64) as usize
    }

    /// Only the first pieces, with at least this many elements, or all.
    pub fn up_to(&self, elements: u64) -> Self {
        let elements = elements.next_multiple_of(self.piece as u64).min(self.elements);
        Self { elements, ..*self }
    }
}

impl Input {
    /// Opens a file with at least one number.
    pub fn open<T: Element>(path: &Path) -> Result<Self, Error> {
        let read = |source| Error::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read)?;
        let bytes = file.metadata().map_err(read)?.len();
        if bytes == 0 {
            return Err(Error::Empty { path: path.to_owned() });
        }
        let size = size_of::<T>();
        if !bytes.is_multiple_of(size as u64) {
            return Err(Error::Partial { path: path.to_owned(), bytes, dtype: T::NAME, size });
        }
        Ok(Self { path: path.to_owned(), file, bytes })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `path` is the same file.
    pub fn is(&self, path: &Path) -> bool {
        let [own, other] = [&self.path, path].map(|path| path.canonicalize());
        own.is_ok_and(|own| other.is_ok_and(|other| own == other))
    }

    /// Reads the elements from index `start` on, with all threads.
    pub fn read<T: Element>(&self, start: u64, elements: &mut [T]) -> Result<(), Error> {
        let start = start * size_of::<T>() as u64;
        let parts = bytemuck::cast_slice_mut(elements).par_chunks_mut(PART).enumerate();
        parts
            .with_max_len(1)
            .try_for_each(|(index, part)| read_at(&self.file, part, start + (index * PART) as u64))
            .map_err(|source| Error::Read { path: self.path.clone(), source })
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes = &mut bytes[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}
