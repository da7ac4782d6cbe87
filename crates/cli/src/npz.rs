//! NumPy's `.npz` archives: zip files of `.npy` files.

use std::io::{Cursor, Read, Seek};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use csv::ByteRecord;
use zip::ZipArchive;
use zip::result::ZipError;

use super::error::{Error, quoted};
use super::table::{find_named, which};

/// Whether the bytes are a zip archive, perhaps an empty one.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// The only file in an archive, and its name, if it is no `.npy` file.
///
/// # Errors
///
/// [`Error::Npz`] if the archive is malformed.
pub fn only_file<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
) -> Result<Option<(PathBuf, impl Read + use<'_, R>)>, Error> {
    let mut files = archive.file_names().filter(|name| !name.ends_with('/'));
    let Some(name) = files.next().filter(|name| !name.ends_with(".npy")).map(PathBuf::from) else {
        return Ok(None);
    };
    if files.next().is_some() {
        return Ok(None);
    }
    drop(files);
    let index = (0..archive.len()).find(|&index| archive.name_for_index(index).map(Path::new) == Some(&name));
    Ok(Some((name, archive.by_index(index.unwrap_or(0))?)))
}

/// Returns the `.npy` file of the array with the one wanted name or index, or of the only array; `None` if
/// the archive has no arrays.
///
/// # Errors
///
/// [`Error::Npz`] if the archive is malformed; an error if the array does not exist, or if several match.
pub fn array(bytes: &Bytes, wanted: &[String]) -> Result<Option<Bytes>, Error> {
    let mut archive = ZipArchive::new(Cursor::new(bytes))?;
    let members = (0..archive.len())
        .filter_map(|member| Some((member, archive.name_for_index(member)?.strip_suffix(".npy")?)));
    let (members, names): (Vec<usize>, Vec<&str>) = members.unzip();
    let names = ByteRecord::from(names);
    let index = match (wanted, members.len()) {
        (_, 0) => return Ok(None),
        ([wanted], _) => find_named(wanted, &names)?,
        ([], 1) => 0,
        ([], _) => return Err(which(&names)),
        (several, _) => return Err(Error::OneArray { arrays: quoted(several.iter().cloned()) }),
    };
    let mut array = Vec::new();
    archive.by_index(members[index])?.read_to_end(&mut array).map_err(ZipError::Io)?;
    Ok(Some(array.into()))
}
