//! Groups in parts as bytes: writing and reading.

use super::keys::KeyList;
use super::sums::{Layout, Sums, significant};
use super::{Accumulators, GroupKey, PartialGroups, Run};
use crate::partial::form::{Rest, bad, begun, checked_content, closed, cut_off};
use crate::partial::{hex, name, name_of_type, parameters_of, same};
use crate::{Error, Op};
use bytemuck::{bytes_of, bytes_of_mut};
use gpu_reduce_kernels::element::Accumulator;

const MAGIC: &[u8; 8] = b"gpu_grps";

/// Flags of a sum that there may be.
const FLAGS: u64 = 32;

impl<O: Op<T>, K: GroupKey, T: Copy + 'static> PartialGroups<O, K, T> {
    /// Returns the part as bytes, to be sent to where it is merged. Equal groups have equal bytes, in
    /// whatever order they were made and merged.
    pub fn to_bytes(&self) -> Vec<u8> {
        written(&self.all(), &self.described(), self.layout())
    }

    /// Reads the bytes that [`to_bytes`](Self::to_bytes) returned, of groups by the same operator.
    ///
    /// # Errors
    ///
    /// [`Error::BadPartial`] if the bytes do not have this form, were cut off, or changed on their way;
    /// [`Error::ReductionMismatch`] if they are of another operator or other parameters, another type of
    /// items or keys.
    pub fn from_bytes(op: O, bytes: &[u8]) -> Result<Self, Error> {
        let mut part = Self::new(op);
        part.runs = read(bytes, &part.described(), part.layout())?;
        Ok(part)
    }

    fn described(&self) -> Described {
        Described {
            operator: name(&self.op),
            parameters: parameters_of(&self.op),
            of_items: name_of_type::<T>(),
            of_keys: name_of_type::<K>(),
            accumulator: if self.layout().is_some() { 0 } else { size_of::<O::Accumulator>() as u32 },
        }
    }
}

// What reads and writes is compiled for each type of accumulators and keys, not for each operator.

/// Returns groups as bytes.
#[inline(never)]
fn written<A: Accumulator, K: GroupKey>(
    all: &Run<A, K>,
    described: &Described,
    layout: Option<Layout>,
) -> Vec<u8> {
    let mut bytes = described.begun();
    put_keys(&mut bytes, &all.keys);
    match &all.accumulators {
        Accumulators::Sums(sums) => {
            put_sums(&mut bytes, layout.is_some_and(|layout| layout.is_counted), sums);
        }
        Accumulators::Each(each) => put_each(&mut bytes, each),
    }
    closed(bytes)
}

/// Returns the groups that bytes hold, if there are some.
#[inline(never)]
fn read<A: Accumulator, K: GroupKey>(
    bytes: &[u8],
    described: &Described,
    layout: Option<Layout>,
) -> Result<Vec<Run<A, K>>, Error> {
    let mut rest = described.checked(bytes)?;
    let keys = take_keys(&mut rest)?;
    let count = keys.len();
    let accumulators = match layout {
        Some(layout) => Accumulators::Sums(take_sums(&mut rest, layout, count)?),
        None => Accumulators::Each(take_each(&mut rest, count)?),
    };
    if !rest.0.is_empty() {
        return Err(bad(format!("{} are left after the last group", rest.0.len())));
    }
    let run = Run { keys, accumulators };
    Ok((count > 0).then_some(run).into_iter().collect())
}

/// What the bytes say first.
struct Described {
    operator: String,
    parameters: Vec<u8>,
    of_items: String,
    of_keys: String,
    /// Bytes of an accumulator; 0 for exact sums, which have any number.
    accumulator: u32,
}

impl Described {
    fn begun(&self) -> Vec<u8> {
        let Self { operator, parameters, of_items, of_keys, accumulator } = self;
        let mut bytes =
            begun(MAGIC, [operator.as_bytes(), parameters, of_items.as_bytes(), of_keys.as_bytes()]);
        bytes.extend(accumulator.to_le_bytes());
        bytes
    }

    /// Checks that the bytes are of the same, and returns what follows.
    fn checked<'a>(&self, bytes: &'a [u8]) -> Result<Rest<'a>, Error> {
        let mut rest = Rest(checked_content(MAGIC, bytes)?);
        same("operator", &rest.text()?, &self.operator)?;
        same("operator's parameters", &hex(rest.field()?), &hex(&self.parameters))?;
        same("elements' type", &rest.text()?, &self.of_items)?;
        same("keys' type", &rest.text()?, &self.of_keys)?;
        same("accumulator's size", &rest.u32()?.to_string(), &self.accumulator.to_string())?;
        Ok(rest)
    }
}

/// Writes the number of keys, and the keys.
fn put_keys<K: GroupKey>(bytes: &mut Vec<u8>, keys: &KeyList<K>) {
    bytes.extend((keys.len() as u64).to_le_bytes());
    let mut least = 0;
    for key in keys.iter() {
        put(bytes, key - least);
        // (The greatest key has no next one.)
        least = key.wrapping_add(1);
    }
}

fn take_keys<K: GroupKey>(rest: &mut Rest) -> Result<KeyList<K>, Error> {
    let count = rest.u64()?;
    // A group has a byte or more, so that as many groups are no more than the bytes.
    let count = usize::try_from(count).ok().filter(|&count| count <= rest.0.len()).ok_or_else(cut_off)?;
    let mut keys = KeyList::with_capacity(count);
    let mut least = 0u128;
    for group in 0..count {
        let above = take(rest)?;
        let key = least.checked_add(above).filter(|&key| K::has(key));
        let Some(key) = key else {
            return Err(bad(format!("the key of group {group} is none of its type")));
        };
        keys.push(key);
        match key.checked_add(1) {
            Some(next) => least = next,
            None if group + 1 == count => {}
            None => return Err(bad(format!("after the key of group {group} there is no greater one"))),
        }
    }
    Ok(keys)
}

/// Writes the numbers of items, and accumulators.
fn put_each<A: Accumulator>(bytes: &mut Vec<u8>, each: &[(A, u64)]) {
    each.iter().for_each(|&(_, count)| put(bytes, count.into()));
    each.iter().for_each(|(all, _)| bytes.extend(bytes_of(all)));
}

/// Writes sums.
fn put_sums(bytes: &mut Vec<u8>, is_counted: bool, sums: &Sums) {
    for sum in sums.iter() {
        if is_counted {
            put(bytes, sum.count.into());
        }
        let words: &[u8] = bytemuck::cast_slice(sum.words);
        let range = significant(words);
        put(bytes, range.len() as u128 * u128::from(FLAGS) + u128::from(sum.flags));
        if !range.is_empty() {
            put(bytes, 8 * u128::from(sum.first) + range.start as u128);
            bytes.extend(&words[range]);
        }
    }
}

fn take_sums(rest: &mut Rest, layout: Layout, count: usize) -> Result<Sums, Error> {
    let mut sums = Sums::default();
    for group in 0..count {
        let of_group = if layout.is_counted { take_u64(rest)? } else { 0 };
        let described = take_u64(rest)?;
        let (len, flags) = (described / FLAGS, (described % FLAGS) as u8);
        let first = if len > 0 { take_u64(rest)? } else { 0 };
        let bytes = rest.take(len)?;
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        if !sums.push_bytes(layout, (of_group, flags), first, bytes) {
            return Err(bad(format!("the sum of group {group} is none of its type")));
        }
    }
    Ok(sums)
}

fn take_each<A: Accumulator>(rest: &mut Rest, count: usize) -> Result<Vec<(A, u64)>, Error> {
    let mut counts = Vec::with_capacity(count);
    for _ in 0..count {
        counts.push(take_u64(rest)?);
    }
    let bytes = rest.take(count as u64 * size_of::<A>() as u64)?;
    let mut all = Vec::with_capacity(count);
    let mut bytes = Rest(bytes);
    for count in counts {
        let mut accumulator = A::zeroed();
        bytes_of_mut(&mut accumulator).copy_from_slice(bytes.take(size_of::<A>() as u64)?);
        all.push((accumulator, count));
    }
    Ok(all)
}

/// Writes an integer, 7 bits a byte, the lowest first; all bytes but the last have the highest bit.
fn put(bytes: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads an integer.
fn take(rest: &mut Rest) -> Result<u128, Error> {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let byte = rest.take(1)?[0];
        let bits = u128::from(byte & 0x7f);
        if shift >= 128 || bits << shift >> shift != bits {
            return Err(bad("one of their integers has more than 128 bits".into()));
        }
        number |= bits << shift;
        if byte < 0x80 {
            break;
        }
    }
    Ok(number)
}

/// Reads an integer of up to 64 bits.
fn take_u64(rest: &mut Rest) -> Result<u64, Error> {
    u64::try_from(take(rest)?).map_err(|_| bad("one of their integers has more than 64 bits".into()))
}
