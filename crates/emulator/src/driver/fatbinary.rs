//! Fat binaries: the container in which nvcc puts a module's PTX and machine code.
//!
//! NVIDIA does not document the layout; this is what `fatbinary` of CUDA 13.0 writes. A header is followed by
//! entries, each with a header of its own. All numbers are little-endian.
//!
//! | header, at byte | | entry, at byte | |
//! | --- | --- | --- | --- |
//! | 0 | `ba55ed50` | 0 | 1: PTX, 2: machine code |
//! | 6 | 2 bytes: the header's size | 4 | the header's size |
//! | 8 | 8 bytes: the size of all entries | 8 | 8 bytes: the size of the content |
//! | | | 28 | 90 for sm_90 |
//! | | | 56 | 8 bytes: the size of the content when unpacked, 0 if it is not compressed |

use super::device::CAPABILITY;

/// The first bytes.
pub const MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
/// The size of the header up to the size of all entries.
pub const HEADER: usize = 16;

const PTX: u16 = 1;

/// Why a fat binary has no PTX to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPtx {
    #[error("the fat binary ends too early or is damaged")]
    Damaged,
    #[error(
        "the fat binary has machine code only, but the emulator runs PTX: \
         compile with `nvcc -arch=compute_80 -code=compute_80`"
    )]
    MachineCode,
    #[error("the fat binary's PTX is compressed: compile with `nvcc --no-compress`")]
    Compressed,
}

/// Reads `N` bytes.
fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn read_size(bytes: &[u8], at: usize) -> Option<usize> {
    u64::from_le_bytes(read(bytes, at)?).try_into().ok()
}

/// Returns the size of a fat binary, of which `start` is the first [`HEADER`] bytes at least.
pub fn size(start: &[u8]) -> Option<usize> {
    let header = u16::from_le_bytes(read(start, 6)?);
    usize::from(header).checked_add(read_size(start, 8)?)
}

struct Entry<'a> {
    kind: u16,
    capability: u32,
    compressed: bool,
    content: &'a [u8],
}

/// Splits off the first entry.
fn entry(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let header = u32::from_le_bytes(read(bytes, 4)?) as usize;
    let (content, rest) = bytes.get(header..)?.split_at_checked(read_size(bytes, 8)?)?;
    let entry = Entry {
        kind: u16::from_le_bytes(read(bytes, 0)?),
        capability: u32::from_le_bytes(read(bytes, 28)?),
        compressed: read_size(bytes, 56)? != 0,
        content,
    };
    // A header of no bytes would be no progress.
    (header > 0).then_some((entry, rest))
}

/// Returns the PTX for the device: the one for the highest architecture that the device can run.
///
/// If all are for newer devices, returns one of them, so that compiling it tells so.
pub fn ptx(bytes: &[u8]) -> Result<&[u8], NoPtx> {
    let mut entries = size(bytes)
        .and_then(|size| bytes.get(usize::from(u16::from_le_bytes(read(bytes, 6)?))..size))
        .ok_or(NoPtx::Damaged)?;
    let mut best: Option<Entry<'_>> = None;
    // A newer architecture ranks below all that the device can run.
    let rank = |entry: &Entry<'_>| Some(entry.capability).filter(|&capability| capability <= CAPABILITY);
    while !entries.is_empty() {
        let (entry, rest) = entry(entries).ok_or(NoPtx::Damaged)?;
        entries = rest;
        if entry.kind == PTX && best.as_ref().is_none_or(|best| rank(best) < rank(&entry)) {
            best = Some(entry);
        }
    }
    let best = best.ok_or(NoPtx::MachineCode)?;
    if best.compressed {
        return Err(NoPtx::Compressed);
    }
    Ok(best.content)
}
