//! A part of a reduction as bytes: writing and reading.

use super::{Partial, hex, name, name_of_type, parameters, parameters_of, same};
use crate::{Block, Error, Item, Op, Plan, Threads};
use bytemuck::{bytes_of, bytes_of_mut, checked};
use gpu_reduce_kernels::element::Accumulator;
use std::borrow::Cow;
use std::ops::Range;

const MAGIC: &[u8; 8] = b"gpu_part";
const VERSION: u32 = 1;

/// The field with the number of all bytes.
const LENGTH: Range<usize> = 12..20;

/// Bytes of the checksum at the end.
const CHECKSUM: usize = 8;

impl<O: Op<T>, T: Item, const BLOCK: u32> Partial<O, T, BLOCK>
where
    Threads<BLOCK>: Block,
{
    /// Returns the part as bytes, to be sent to where it is merged.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { op, plan, first, chunks } = self;
        let mut bytes =
            begun(MAGIC, [name(op).as_bytes(), &parameters_of(op), name_of_type::<T>().as_bytes()]);
        bytes.extend(BLOCK.to_le_bytes());
        for number in [plan.len, plan.row, plan.chunk] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend((size_of::<T>() as u32).to_le_bytes());
        bytes.extend(bytes_of(first));
        for number in [size_of::<O::Accumulator>(), chunks.len()] {
            bytes.extend((number as u32).to_le_bytes());
        }
        chunks.iter().for_each(|(chunk, _)| bytes.extend(chunk.to_le_bytes()));
        chunks.iter().for_each(|(_, partial)| bytes.extend(bytes_of(partial)));
        closed(bytes)
    }

    /// Reads the bytes that [`to_bytes`](Self::to_bytes) returned, of a reduction by the same operator.
    ///
    /// # Errors
    ///
    /// [`Error::BadPartial`] if the bytes do not have this form, were cut off, or changed on their way;
    /// [`Error::ReductionMismatch`] if they are of another operator or other parameters, another element
    /// type, another BLOCK or another plan.
    pub fn from_bytes(op: O, bytes: &[u8]) -> Result<Self, Error> {
        let mut rest = Rest(checked_content(MAGIC, bytes)?);
        same("operator", &rest.text()?, &name(&op))?;
        same("operator's parameters", &hex(rest.field()?), &parameters(&op))?;
        same("elements' type", &rest.text()?, &name_of_type::<T>())?;
        same("BLOCK", &rest.u32()?.to_string(), &BLOCK.to_string())?;
        let len = rest.u64()?;
        let plan = Self::plan(len);
        let described = |row, chunk| format!("of rows of {row} elements and chunks of {chunk}");
        same("plan", &described(rest.u64()?, rest.u64()?), &described(plan.row, plan.chunk))?;
        let first = rest.field()?;
        same("element's size", &first.len().to_string(), &size_of::<T>().to_string())?;
        let first = checked::try_pod_read_unaligned(first)
            .map_err(|_| bad(format!("their first element, {}, is none of its type", hex(first))))?;
        if len == 0 && bytes_of(&first) != bytes_of(&T::zeroed()) {
            return Err(bad("they have a first element of none".into()));
        }
        let size = rest.u32()?.to_string();
        same("accumulator's size", &size, &size_of::<O::Accumulator>().to_string())?;
        let chunks = rest.chunks(&plan)?;
        Ok(Self { op, plan, first, chunks })
    }
}

/// Returns bytes that begin with `magic`, and have these fields.
pub(crate) fn begun<const N: usize>(magic: &[u8; 8], fields: [&[u8]; N]) -> Vec<u8> {
    let mut bytes = [magic, &VERSION.to_le_bytes()[..], &[0; 8]].concat();
    for field in fields {
        bytes.extend((field.len() as u32).to_le_bytes());
        bytes.extend(field);
    }
    bytes
}

/// Returns bytes that have [begun](begun), with their number and the checksum.
pub(crate) fn closed(mut bytes: Vec<u8>) -> Vec<u8> {
    let all = (bytes.len() + CHECKSUM) as u64;
    bytes[LENGTH].copy_from_slice(&all.to_le_bytes());
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// Checks the number of bytes and the checksum, and returns the bytes between them.
pub(crate) fn checked_content<'a>(magic: &[u8; 8], bytes: &'a [u8]) -> Result<&'a [u8], Error> {
    let mut rest = Rest(bytes);
    if rest.take(magic.len() as u64).ok() != Some(magic) {
        return Err(bad(format!("they do not begin with `{}`", magic.escape_ascii())));
    }
    let version = rest.u32()?;
    if version != VERSION {
        return Err(bad(format!(
            "they are of version {version} of the form, and this library reads {VERSION}"
        )));
    }
    let (len, all) = (bytes.len() as u64, rest.u64()?);
    if len != all {
        return Err(bad(format!("they are {len}, and say that they are {all}")));
    }
    let Some((before, sum)) = bytes.split_last_chunk::<CHECKSUM>() else { return Err(cut_off()) };
    if checksum(before) != u64::from_le_bytes(*sum) {
        return Err(bad("their checksum is wrong: they were changed on their way".into()));
    }
    before.get(LENGTH.end..).ok_or_else(cut_off)
}

/// Returns the FNV-1a hash (G. Fowler, L. C. Noll, K.-P. Vo: <http://www.isthe.com/chongo/tech/comp/fnv/>).
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Bytes that have not been read.
pub(crate) struct Rest<'a>(pub &'a [u8]);

impl<'a> Rest<'a> {
    pub fn take(&mut self, count: u64) -> Result<&'a [u8], Error> {
        let (taken, rest) = usize::try_from(count)
            .ok()
            .and_then(|count| self.0.split_at_checked(count))
            .ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u32(&mut self) -> Result<u32, Error> {
        let mut number = 0u32;
        bytes_of_mut(&mut number).copy_from_slice(self.take(4)?);
        Ok(number)
    }

    pub fn u64(&mut self) -> Result<u64, Error> {
        let mut number = 0u64;
        bytes_of_mut(&mut number).copy_from_slice(self.take(8)?);
        Ok(number)
    }

    /// Reads a length and as many bytes.
    pub fn field(&mut self) -> Result<&'a [u8], Error> {
        let count = self.u32()?;
        self.take(count.into())
    }

    pub fn text(&mut self) -> Result<Cow<'a, str>, Error> {
        self.field().map(String::from_utf8_lossy)
    }

    /// Reads the chunks, after which nothing may follow.
    fn chunks<A: Accumulator>(mut self, plan: &Plan) -> Result<Vec<(u32, A)>, Error> {
        let count = self.u32()?;
        let most = if plan.len == 0 { 0 } else { plan.chunks };
        if count > most {
            return Err(bad(format!("they have {count} chunks of {most}")));
        }
        let numbers = self.take(4 * u64::from(count))?;
        let mut partials = Rest(self.take(u64::from(count) * size_of::<A>() as u64)?);
        if !self.0.is_empty() {
            return Err(bad(format!("{} are left after the last chunk", self.0.len())));
        }
        let mut numbers = Rest(numbers);
        let mut chunks = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let chunk = numbers.u32()?;
            let least = chunks.last().map_or(0, |&(before, _)| before + 1);
            if !(least..most).contains(&chunk) {
                return Err(bad(format!(
                    "a chunk of theirs is {chunk}, which has to be from {least} to below {most}"
                )));
            }
            let mut partial = A::zeroed();
            bytes_of_mut(&mut partial).copy_from_slice(partials.take(size_of::<A>() as u64)?);
            chunks.push((chunk, partial));
        }
        Ok(chunks)
    }
}

pub(crate) fn bad(why: String) -> Error {
    Error::BadPartial(why)
}

pub(crate) fn cut_off() -> Error {
    bad("they are cut off".into())
}
