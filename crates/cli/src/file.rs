//! Reads a file or standard input, and decompresses it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use memmap2::Mmap;

use super::error::Error;
use super::foreign;
use super::memory;
use super::progress::Progress;

/// The name of standard input on the command line.
pub const STANDARD_INPUT: &str = "-";

/// Returns the bytes of the file at `path`, or of standard input. Regular files are mapped; pipes, devices
/// and files of unknown length are read.
///
/// # Errors
///
/// [`Error::Read`].
pub fn read(path: &Path) -> Result<Bytes, Error> {
    let read = || {
        if path == Path::new(STANDARD_INPUT) {
            return whole(io::stdin().lock(), &Progress::endless("reading"));
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_file() && metadata.len() > 0 {
            // SAFETY: the map is only read. The file must not change meanwhile. No system that this runs on
            // can prevent that, so the help asks it of the user.
            return Ok(Bytes::from_owner(unsafe { Mmap::map(&file)? }));
        }
        whole(file, &Progress::endless("reading"))
    };
    read().map_err(|source| Error::Read { path: path.into(), source })
}

/// Decompresses gzip and Zstandard data, and removes `.gz` or `.zst` from the path. Returns other data
/// unchanged.
///
/// # Errors
///
/// [`Error::Compressed`].
pub fn decompressed(path: &Path, bytes: Bytes) -> Result<(PathBuf, Bytes), Error> {
    const GZIP: &[u8] = b"\x1f\x8b\x08";
    const ZSTANDARD: &[u8] = b"\x28\xb5\x2f\xfd";

    let inner = if foreign::is_named(path, &["gz", "zst"]) { path.with_extension("") } else { path.into() };
    let unpack = |decoder: &mut dyn Read| whole(decoder, &Progress::endless("decompressing"));
    let (format, unpacked) = if bytes.starts_with(GZIP) {
        ("gzip", unpack(&mut MultiGzDecoder::new(&bytes[..])))
    } else if bytes.starts_with(ZSTANDARD) {
        ("Zstandard", zstd::Decoder::new(&bytes[..]).and_then(|mut decoder| unpack(&mut decoder)))
    } else {
        return Ok((inner, bytes));
    };
    match unpacked {
        Ok(bytes) => Ok((inner, bytes)),
        Err(source) => Err(Error::Compressed { format, source }),
    }
}

/// Reads to the end, or until little memory is left.
fn whole(mut from: impl Read, progress: &Progress) -> io::Result<Bytes> {
    const PIECE: usize = 1 << 20;
    let mut bytes = Vec::new();
    loop {
        if bytes.capacity() - bytes.len() < PIECE && !memory::double(&mut bytes, PIECE) {
            let read = bytes.len() >> 20;
            let why = format!("it does not fit in memory, which is full after {read} MiB");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
        }
        if from.by_ref().take(PIECE as u64).read_to_end(&mut bytes)? == 0 {
            return Ok(bytes.into());
        }
        progress.set(bytes.len());
    }
}
