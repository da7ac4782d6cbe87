//! The input file, and each rank's part of it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bytemuck::{allocation, cast_slice_mut};
use clap::ValueEnum;
use gpu_reduce::Element;

use super::error::Error;
use super::npy;

#[cfg(target_endian = "big")]
compile_error!("this example reinterprets little-endian input in memory, so it needs a little-endian target");

/// The longest header of a `.npy` file, in bytes.
const HEADER: u64 = 1 << 20;

/// The type of the numbers.
#[expect(non_camel_case_types, reason = "each variant has the name of its Rust type")]
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Dtype {
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    f16,
    bf16,
    f32,
    f64,
}

/// The file, and the type of its numbers.
#[derive(clap::Args)]
pub struct InputArgs {
    /// The type of a raw file's numbers; the type that a .npy file must have.
    #[arg(long)]
    dtype: Option<Dtype>,

    /// A NumPy .npy file, or raw little-endian numbers (with --dtype), which all ranks can read.
    file: PathBuf,
}

/// An open file of numbers of a known type.
pub struct Input {
    path: PathBuf,
    file: File,
    dtype: Dtype,
    /// The offset of the numbers, and their size in bytes.
    start: u64,
    bytes: u64,
    /// The number of elements that a `.npy` file states.
    count: Option<usize>,
}

impl Input {
    /// Opens the file: as a `.npy` file if it starts like one, else as raw numbers.
    pub fn open(args: &InputArgs) -> Result<Input, Error> {
        let InputArgs { dtype, file: path } = args;
        let read = || {
            let file = File::open(path)?;
            let mut head = Vec::new();
            (&file).take(HEADER).read_to_end(&mut head)?;
            let bytes = file.metadata()?.len();
            Ok((file, head, bytes))
        };
        let (file, head, bytes) = read().map_err(|source| Error::Read { path: path.clone(), source })?;
        let path = path.clone();
        if !head.starts_with(npy::MAGIC) {
            let dtype = dtype.ok_or(Error::NoDtype)?;
            return Ok(Input { path, file, dtype, start: 0, bytes, count: None });
        }
        let npy::Header { descr, count, start, .. } = npy::Header::parse(&head)?;
        let of_file = match descr.as_str() {
            "|i1" => Dtype::i8,
            "<i2" => Dtype::i16,
            "<i4" => Dtype::i32,
            "<i8" => Dtype::i64,
            "|u1" => Dtype::u8,
            "<u2" => Dtype::u16,
            "<u4" => Dtype::u32,
            "<u8" => Dtype::u64,
            "<f2" => Dtype::f16,
            "<f4" => Dtype::f32,
            "<f8" => Dtype::f64,
            _ => return Err(Error::Descr { descr }),
        };
        if let Some(dtype) = dtype.filter(|&dtype| dtype != of_file) {
            return Err(Error::OtherDtype { descr, dtype });
        }
        let start = start as u64;
        Ok(Input {
            path,
            file,
            dtype: of_file,
            start,
            bytes: bytes.saturating_sub(start),
            count: Some(count),
        })
    }

    /// The type of the numbers.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The size of the numbers in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the rank's part of the numbers, in proportion to its weight.
    pub fn part<T: Element>(
        &self,
        rank: usize,
        ranks: usize,
        weights: Option<&[u32]>,
    ) -> Result<Vec<T>, Error> {
        let size = size_of::<T>();
        let count = self.count.map_or(self.bytes / size as u64, |count| count as u64);
        if count.checked_mul(size as u64) != Some(self.bytes) {
            return Err(Error::Length {
                bytes: self.bytes,
                expected: count.saturating_mul(size as u64),
                size,
            });
        }
        let equal = vec![1; ranks];
        let weights = weights.unwrap_or(&equal);
        let sum = |weights: &[u32]| weights.iter().map(|&weight| u128::from(weight)).sum::<u128>();
        let total = sum(weights);
        if weights.len() != ranks || total == 0 {
            return Err(Error::Split { weights: weights.len(), ranks });
        }
        let [start, end] =
            [rank, rank + 1].map(|before| (u128::from(count) * sum(&weights[..before]) / total) as u64);
        let mut part = allocation::try_zeroed_vec((end - start) as usize)
            .map_err(|()| Error::OutOfMemory { bytes: (end - start) * size as u64 })?;
        self.read(start * size as u64, cast_slice_mut(&mut part))
            .map_err(|source| Error::Read { path: self.path.clone(), source })?;
        Ok(part)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, self.start + offset)
    }
}
