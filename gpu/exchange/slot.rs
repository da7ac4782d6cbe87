//! Slots: how a block hands a value to another block, or to the host, with no fence and no counter.
//!
//! A slot is a few words of 64 bits. Each holds 32 bits of a value, and says that it does. As one access moves both,
//! whoever sees that a word is full has what is in it: there is no second trip to memory, and nothing to order. Who takes a
//! value out of a slot leaves it empty, so that nothing is to be cleared between launches.

use bytemuck::Pod;
use cuda_std::intrinsics;

/// An empty word.
pub const EMPTY: u64 = 0;

/// Says that a word holds something.
const FULL: u64 = 1 << 32;

/// Words of a slot for values of type `V`: at least one, which says that it is full.
pub const fn words<V>() -> usize {
    let words = size_of::<V>().div_ceil(4);
    if words == 0 { 1 } else { words }
}

/// The bytes of a value that are in word `index` of its slot.
#[inline(always)]
fn part(bytes: usize, index: usize) -> core::ops::Range<usize> {
    (4 * index).min(bytes)..(4 * index + 4).min(bytes)
}

/// What to store in word `index` of a value's slot.
#[inline(always)]
pub fn word<V: Pod>(value: &V, index: usize) -> u64 {
    let of_value = part(size_of::<V>(), index);
    let mut bytes = [0; 4];
    bytes[..of_value.len()].copy_from_slice(&bytemuck::bytes_of(value)[of_value]);
    FULL | u64::from(u32::from_ne_bytes(bytes))
}

/// Sets the bytes of a value that are in word `index` of its slot.
#[inline(always)]
pub fn set_word<V: Pod>(value: &mut V, index: usize, word: u32) {
    let of_value = part(size_of::<V>(), index);
    let bytes = &word.to_ne_bytes()[..of_value.len()];
    bytemuck::bytes_of_mut(value)[of_value].copy_from_slice(bytes);
}

/// The value that a slot's full words hold.
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

/// As [`unpack`], where all words are full.
pub fn full<V: Pod>(word: impl Fn(usize) -> u64) -> Option<V> {
    (0..words::<V>()).all(|index| word(index) != EMPTY).then(|| unpack(word))
}

/// As [`unpack`], for all types the same code: sets the bytes of the value.
pub fn unpack_bytes(value: &mut [u8], word: impl Fn(usize) -> u64) {
    for (index, part) in value.chunks_mut(4).enumerate() {
        part.copy_from_slice(&(word(index) as u32).to_ne_bytes()[..part.len()]);
    }
}

/// Stores a value on the device. One without alignment goes there by bytes, each of which an instruction of integers has made: where the lowest byte of a
/// register is stored that has a float, `st.b8`, ptxas 13.0 stores the number, as an integer of 8 bits.
///
/// # Safety
///
/// The place is one for it, and nothing else uses it meanwhile.
#[inline(always)]
pub unsafe fn store<V: Copy>(place: *mut V, value: V) {
    let bytes = size_of::<V>();
    if align_of::<V>() > 1 || bytes == 1 {
        // SAFETY: as the caller vouches.
        return unsafe { place.write(value) };
    }
    let (from, to) = ((&raw const value).cast::<u8>(), place.cast::<u8>());
    for index in 0..bytes.div_ceil(4) {
        let part = part(bytes, index);
        let mut word = [0; 4];
        // SAFETY: what has no alignment has no padding.
        unsafe { from.add(part.start).copy_to(word.as_mut_ptr(), part.len()) };
        let word = u32::from_ne_bytes(word);
        for (byte, at) in part.enumerate() {
            // SAFETY: as the caller vouches.
            unsafe { to.add(at).write(intrinsics::byte_of(word, 8 * byte as u32) as u8) };
        }
    }
}
