//! Reads a file or standard input, and decompresses it.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use lzma_rust2::XzReader;
use memmap2::Mmap;
use zip::ZipArchive;

use super::error::Error;
use super::progress::Progress;
use super::{foreign, memory, npz};

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

/// Decompresses gzip, Zstandard, bzip2, xz and LZ4 data, and removes `.gz` and the like from the path; of a
/// zip archive with one file, returns that. Returns other data unchanged.
///
/// # Errors
///
/// [`Error::Compressed`].
pub fn decompressed(path: &Path, bytes: Bytes) -> Result<(PathBuf, Bytes), Error> {
    const GZIP: &[u8] = b"\x1f\x8b\x08";
    const ZSTANDARD: &[u8] = b"\x28\xb5\x2f\xfd";
    const BZIP2: &[u8] = b"BZh";
    const XZ: &[u8] = b"\xfd7zXZ\0";
    const LZ4: &[u8] = b"\x04\x22\x4d\x18";
    // The first block of compressed bytes, or the end of none.
    let is_bzip2_block = |rest: &[u8]| rest.starts_with(b"1AY&SY") || rest.starts_with(b"\x17rE8P\x90");

    let is_packed = foreign::is_named(path, &["gz", "zst", "bz2", "xz", "lz4"]);
    let inner = if is_packed { path.with_extension("") } else { path.into() };
    let packed = &bytes[..];
    let unpack = |decoder: &mut dyn Read| whole(decoder, &Progress::endless("decompressing"));
    let (format, unpacked) = if packed.starts_with(GZIP) {
        ("gzip", unpack(&mut MultiGzDecoder::new(packed)))
    } else if packed.starts_with(ZSTANDARD) {
        ("Zstandard", zstd::Decoder::new(packed).and_then(|mut decoder| unpack(&mut decoder)))
    } else if packed.starts_with(BZIP2) && packed.get(BZIP2.len() + 1..).is_some_and(is_bzip2_block) {
        ("bzip2", unpack(&mut MultiBzDecoder::new(packed)))
    } else if packed.starts_with(XZ) {
        ("xz", unpack(&mut XzReader::new(packed, true)))
    } else if packed.starts_with(LZ4) {
        ("LZ4", unpack(&mut FrameDecoder::new(packed)))
    } else if npz::is_archive(packed)
        && let Some((name, mut member)) = npz::only_file(&mut ZipArchive::new(Cursor::new(packed))?)?
    {
        return match unpack(&mut member) {
            Ok(bytes) => Ok((name, bytes)),
            Err(source) => Err(Error::Compressed { format: "zip", source }),
        };
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
