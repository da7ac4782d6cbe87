//! Files that must not be read as raw numbers: unsupported formats, and text.

use std::path::Path;

use bytes::Bytes;

/// A format that this program does not read.
struct Foreign {
    name: &'static str,
    extensions: &'static [&'static str],
    /// The offset and the value of the bytes that identify the format.
    magic: Option<(usize, &'static [u8])>,
}

macro_rules! formats {
    ($($name:literal: $extensions:expr, $magic:expr;)*) => {
        &[$(Foreign { name: $name, extensions: &$extensions, magic: $magic },)*]
    };
}

const FORMATS: &[Foreign] = formats! {
    "a zip archive (as .xlsx files are) that is no .npz file and has not one file":
        ["zip", "npz", "xlsx", "ods", "pt", "pth"], Some((0, b"PK\x03\x04"));
    "a tar archive compressed by gzip": ["tgz"], None;
    "a tar archive compressed by bzip2": ["tbz2"], None;
    "a tar archive compressed by xz": ["txz"], None;
    "compressed by LZMA without xz": ["lzma"], None;
    "a tar archive compressed by Zstandard": ["tzst"], None;
    "compressed by Brotli": ["br"], None;
    "a 7z archive": ["7z"], Some((0, b"7z\xbc\xaf\x27\x1c"));
    "a RAR archive": ["rar"], Some((0, b"Rar!\x1a\x07"));
    "a tar archive": ["tar"], Some((257, b"ustar"));
    "a Feather file of version 1": [], Some((0, b"FEA1"));
    "an ORC file": ["orc"], None;
    "an Avro file": ["avro"], Some((0, b"Obj\x01"));
    "an HDF5 file": ["h5", "hdf5", "hdf"], Some((0, b"\x89HDF\r\n\x1a\n"));
    "a NetCDF file": ["nc"], Some((0, b"CDF\x01"));
    "a MATLAB file": ["mat"], Some((0, b"MATLAB 5.0 MAT-file"));
    "an Excel file": ["xls"], Some((0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"));
    "a Python pickle": ["pkl", "pickle"], Some((0, b"\x80\x04\x95"));
    "a safetensors file": ["safetensors"], None;
    "an SQLite database": ["sqlite", "sqlite3", "db"], Some((0, b"SQLite format 3\0"));
    "a FITS file": ["fits"], Some((0, b"SIMPLE  ="));
};

/// Extensions of text files that hold tables.
pub const TABLES: &[&str] = &["csv", "tsv", "tab", "txt"];

/// Extensions of other text files.
const TEXTS: &[&str] = &[
    "text", "json", "jsonl", "ndjson", "geojson", "xml", "html", "htm", "yaml", "yml", "toml", "md", "log",
    "asc", "prn",
];

/// Recognises an unsupported format by the file's bytes.
pub fn by_magic(bytes: &[u8]) -> Option<&'static str> {
    let has_magic = |format: &&Foreign| {
        format
            .magic
            .is_some_and(|(offset, magic)| bytes.get(offset..).is_some_and(|bytes| bytes.starts_with(magic)))
    };
    FORMATS.iter().find(has_magic).map(|format| format.name)
}

/// Recognises an unsupported format by the file's extension.
pub fn by_name(path: &Path) -> Option<&'static str> {
    FORMATS.iter().find(|format| is_named(path, format.extensions)).map(|format| format.name)
}

/// Whether files with this extension hold text without tables.
pub fn is_named_text(path: &Path) -> bool {
    is_named(path, TEXTS)
}

/// Whether the bytes start with at least one line of printable text, and a number in the first 1024 bytes.
pub fn is_text(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(1024)];
    let start = match str::from_utf8(start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start)) {
        Ok(start) => start,
        // The 1024 bytes end within a character.
        Err(error) if error.error_len().is_none() => return is_text(&bytes[..error.valid_up_to()]),
        Err(_) => return false,
    };
    start.contains('\n')
        && start.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\r' | '\n'))
        && start.split([' ', '\t', '\r', '\n', ',', ';', '|', '"']).any(|word| word.parse::<f64>().is_ok())
}

/// UTF-16 text that starts with a byte order mark, as UTF-8; `None` for other bytes.
pub fn of_utf16(bytes: &[u8]) -> Option<Bytes> {
    let (mark, units) = bytes.split_first_chunk()?;
    let unit = match mark {
        b"\xff\xfe" => u16::from_le_bytes,
        b"\xfe\xff" => u16::from_be_bytes,
        _ => return None,
    };
    let (units, rest) = units.as_chunks();
    let text: String =
        char::decode_utf16(units.iter().map(|&bytes| unit(bytes))).collect::<Result<_, _>>().ok()?;
    rest.is_empty().then(|| text.into_bytes().into())
}

/// Whether one of the first 1024 bytes is NUL, as in UTF-16 and binary files but not in UTF-8 text.
pub fn has_nul(bytes: &[u8]) -> bool {
    bytes.iter().take(1024).any(|&byte| byte == 0)
}

/// Whether the file's extension is one of `extensions`, ignoring case.
pub fn is_named(path: &Path, extensions: &[&str]) -> bool {
    path.extension()
        .is_some_and(|of_path| extensions.iter().any(|extension| of_path.eq_ignore_ascii_case(extension)))
}
