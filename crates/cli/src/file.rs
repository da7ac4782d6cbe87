//! The bytes of a file, or of standard input, without the compression that is around them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use memmap2::Mmap;

use super::error::Error;
use super::foreign;
use super::progress::Progress;

/// What standard input is called.
const STANDARD_INPUT: &str = "-";

/// The bytes of the file at `path`, or of standard input: mapped, unless it is a pipe, a device or another file of unknown length.
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
            // SAFETY: the map is only read. As with any map of a file, nobody may change the file meanwhile, which the
            // help asks of the user: no system that this runs on has a way to rule it out.
            return Ok(Bytes::from_owner(unsafe { Mmap::map(&file)? }));
        }
        whole(file, &Progress::endless("reading"))
    };
    read().map_err(|source| Error::Read { path: path.into(), source })
}

/// What is left where gzip or Zstandard compressed these bytes, and the file's name without the ending that says so; else both as they are.
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

/// All that there is to read.
fn whole(mut from: impl Read, progress: &Progress) -> io::Result<Bytes> {
    const PIECE: u64 = 1 << 20;
    let mut bytes = Vec::new();
    while from.by_ref().take(PIECE).read_to_end(&mut bytes)? > 0 {
        progress.set(bytes.len());
    }
    Ok(bytes.into())
}
