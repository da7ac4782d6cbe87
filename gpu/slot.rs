//! Slots: how a block hands a value to another block, or to the host, with no fence and no counter.
//!
//! A slot is a few words of 64 bits. Each holds 32 bits of a value, and says that it does. As one access moves both,
//! whoever sees that a word is full has what is in it: there is no second trip to memory, and nothing to order.

use bytemuck::Pod;

/// The most words of a slot.
pub const MAX_WORDS: usize = 2;

/// An empty word.
pub const EMPTY: u64 = 0;

/// Says that a word holds something.
const FULL: u64 = 1 << 32;

/// Words of a slot for values of type `V`, which have 8 bytes at most; longer ones are an error when the program compiles.
pub const fn words<V>() -> usize {
    const { assert!(size_of::<V>() <= MAX_WORDS * 4, "a slot takes 8 bytes at most") };
    size_of::<V>().div_ceil(4)
}

/// What to store in a slot's words: the first [`words`] of these.
#[inline(always)]
pub fn pack<V: Pod>(value: V) -> [u64; MAX_WORDS] {
    let mut parts = [0u32; MAX_WORDS];
    bytemuck::bytes_of_mut(&mut parts)[..size_of::<V>()].copy_from_slice(bytemuck::bytes_of(&value));
    parts.map(|part| FULL | u64::from(part))
}

/// The value that a slot's full words hold.
///
/// ```
/// use gpu_reduce_kernels::slot;
///
/// assert_eq!(slot::unpack::<f64>(slot::pack(-1.5f64)), -1.5);
/// assert_eq!(slot::words::<u8>(), 1);
/// ```
#[inline(always)]
pub fn unpack<V: Pod>(words: [u64; MAX_WORDS]) -> V {
    let parts = words.map(|word| word as u32);
    bytemuck::pod_read_unaligned(&bytemuck::bytes_of(&parts)[..size_of::<V>()])
}
