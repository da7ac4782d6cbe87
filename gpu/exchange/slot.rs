//! Slots: how a block hands a value to another block, or to the host, with no fence and no counter.
//!
//! A slot is one or more words of 64 bits. Each word holds 32 bits of the value and a flag that says that it
//! is full. One access moves both, so a reader that sees the flag has the bits too: it needs no second access
//! and no ordering. The reader leaves the slot empty, so that nothing has to be cleared between launches.

use bytemuck::Pod;
use cuda_std::intrinsics;

/// An empty word.
pub const EMPTY: u64 = 0;

/// The flag of a full word.
const FULL: u64 = 1 << 32;

/// Returns the words of a slot for values of type `V`: at least one, because an empty value has a flag too.
pub const fn words<V>() -> usize {
    let words = size_of::<V>().div_ceil(4);
    if words == 0 { 1 } else { words }
}

/// Returns the range of a value's bytes that word `index` of its slot holds.
#[inline(always)]
fn part(bytes: usize, index: usize) -> core::ops::Range<usize> {
    (4 * index).min(bytes)..(4 * index + 4).min(bytes)
}

/// Returns how many aligned words a value consists of; 0 if it does not. (Large values lie in memory, which is read by whole words
/// then.)
const fn aligned<V>() -> usize {
    if align_of::<V>() >= 4 { size_of::<V>() / 4 } else { 0 }
}

/// Returns word `index` of a value's slot.
#[inline(always)]
pub fn word<V: Pod>(value: &V, index: usize) -> u64 {
    if index < const { aligned::<V>() } {
        // SAFETY: the value has that word, and any bits are a word.
        return FULL | u64::from(unsafe { (&raw const *value).cast::<u32>().add(index).read() });
    }
    let of_value = part(size_of::<V>(), index);
    let mut bytes = [0; 4];
    bytes[..of_value.len()].copy_from_slice(&bytemuck::bytes_of(value)[of_value]);
    FULL | u64::from(u32::from_ne_bytes(bytes))
}

/// Sets the bytes of a value that word `index` of its slot holds.
#[inline(always)]
pub fn set_word<V: Pod>(value: &mut V, index: usize, word: u32) {
    if index < const { aligned::<V>() } {
        // SAFETY: the value has that word, and any bits are a value.
        return unsafe { (&raw mut *value).cast::<u32>().add(index).write(word) };
    }
    let of_value = part(size_of::<V>(), index);
    let bytes = &word.to_ne_bytes()[..of_value.len()];
    bytemuck::bytes_of_mut(value)[of_value].copy_from_slice(bytes);
}

/// Returns the value that a slot's full words hold.
///
/// ```
/// use gpu_reduce_kernels::slot;
///
/// let words = [0, 1].map(|index| slot::word(&-1.5f64, index));
/// assert_eq!(slot::unpack::<f64>(|index| words[index]), -1.5);
/// assert_eq!(slot::words::<u8>(), 1);
/// ```
#[inline(always)]
pub fn unpack<V: Pod>(word: impl Fn(usize) -> u64) -> V {
    let mut value = V::zeroed();
    for index in 0..size_of::<V>().div_ceil(4) {
        set_word(&mut value, index, word(index) as u32);
    }
    value
}

/// Returns the value of a slot if all of its words are full.
pub fn full<V: Pod>(word: impl Fn(usize) -> u64) -> Option<V> {
    (0..words::<V>()).all(|index| word(index) != EMPTY).then(|| unpack(word))
}

/// As [`unpack`], with the same code for all types: sets the bytes of the value.
pub fn unpack_bytes(value: &mut [u8], word: impl Fn(usize) -> u64) {
    for (index, part) in value.chunks_mut(4).enumerate() {
        part.copy_from_slice(&(word(index) as u32).to_ne_bytes()[..part.len()]);
    }
}

/// Stores a value on the device. A value of several bytes whose type has alignment 1 is stored byte by byte,
/// and an integer instruction makes each byte: if the register holds a float, ptxas 13.0 compiles `st.b8` of
/// its lowest byte as a conversion of the number to an 8-bit integer.
///
/// # Safety
///
/// `address` is valid for a write, and nothing else accesses it meanwhile.
#[inline(always)]
pub unsafe fn store<V: Copy>(address: *mut V, value: V) {
    let bytes = size_of::<V>();
    if align_of::<V>() > 1 || bytes == 1 {
        // SAFETY: as the caller promises.
        return unsafe { address.write(value) };
    }
    let (from, to) = ((&raw const value).cast::<u8>(), address.cast::<u8>());
    for index in 0..bytes.div_ceil(4) {
        let part = part(bytes, index);
        let mut word = [0; 4];
        // SAFETY: a type with alignment 1 has no padding.
        unsafe { from.add(part.start).copy_to(word.as_mut_ptr(), part.len()) };
        let word = u32::from_ne_bytes(word);
        for (byte, at) in part.enumerate() {
            // SAFETY: as the caller promises.
            unsafe { to.add(at).write(intrinsics::byte_of(word, 8 * byte as u32) as u8) };
        }
    }
}
