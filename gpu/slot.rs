//! Slots: how a block hands a value to another block, or to the host, with no fence and no counter.
//!
//! A slot is a few words of 64 bits. Each holds 32 bits of a value, and says that it does. As one access moves both,
//! whoever sees that a word is full has what is in it: there is no second trip to memory, and nothing to order. Who takes a
//! value out of a slot leaves it empty, so that nothing is to be cleared between launches.

use bytemuck::Pod;

/// An empty word.
pub const EMPTY: u64 = 0;

/// Says that a word holds something.
const FULL: u64 = 1 << 32;

/// A full word of a slot that says that there is no value.
const NONE: u64 = 1 << 33;

/// Words of a slot for values of type `V`: at least one, which says that it is full.
pub const fn words<V>() -> usize {
    let words = size_of::<V>().div_ceil(4);
    if words == 0 { 1 } else { words }
}

/// What to store in word `index` of a value's slot.
#[inline(always)]
pub fn word<V: Pod>(value: &V, index: usize) -> u64 {
    let bytes = bytemuck::bytes_of(value);
    let start = (4 * index).min(bytes.len());
    let len = (bytes.len() - start).min(4);
    let mut part = [0; 4];
    part[..len].copy_from_slice(&bytes[start..start + len]);
    FULL | u64::from(u32::from_ne_bytes(part))
}

/// As [`word`], for a value that may not be there.
#[inline(always)]
pub fn word_of_option<V: Pod>(value: &Option<V>, index: usize) -> u64 {
    match value {
        Some(value) => word(value, index),
        None => NONE,
    }
}

/// The value that a slot's full words hold.
///
/// ```
/// use gpu_reduce_kernels::slot;
///
/// let words = [0, 1].map(|index| slot::word(&-1.5f64, index));
/// assert_eq!(slot::unpack::<f64>(|index| words[index]), -1.5);
/// assert_eq!(slot::unpack_option::<f64>(|index| words[index]), Some(-1.5));
/// assert_eq!(slot::words::<u8>(), 1);
/// ```
#[inline(always)]
pub fn unpack<V: Pod>(word: impl Fn(usize) -> u64) -> V {
    let mut value = V::zeroed();
    let bytes = bytemuck::bytes_of_mut(&mut value);
    let mut start = 0;
    while start < bytes.len() {
        let len = (bytes.len() - start).min(4);
        bytes[start..start + len].copy_from_slice(&(word(start / 4) as u32).to_ne_bytes()[..len]);
        start += 4;
    }
    value
}

/// As [`unpack`], for a value that may not be there.
pub fn unpack_option<V: Pod>(word: impl Fn(usize) -> u64) -> Option<V> {
    (word(0) & NONE == 0).then(|| unpack(word))
}
