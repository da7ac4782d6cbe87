//! Values in shared memory as words of 4 bytes. Word w of value i is word `count` · w + i of an array, so that neighbouring threads
//! access neighbouring words.

use super::slot;
use bytemuck::Pod;
use cuda_std::shared::Shared;

/// Writes the words of value `index` of `count`.
///
/// # Safety
///
/// The array has room for `count` values, and nothing else accesses this one meanwhile.
#[inline(always)]
pub(crate) unsafe fn write<A: Pod>(shared: Shared<u32>, count: u32, index: u32, value: &A) {
    for word in 0..size_of::<A>().div_ceil(4) {
        // SAFETY: as the caller promises.
        unsafe { shared.write(word as u32 * count + index, slot::word(value, word) as u32) };
    }
}

/// Returns value `index` of `count`.
///
/// # Safety
///
/// As for [`write`]; the value was written before a barrier.
#[inline(always)]
pub(crate) unsafe fn read<A: Pod>(shared: Shared<u32>, count: u32, index: u32) -> A {
    let mut value = A::zeroed();
    for word in 0..size_of::<A>().div_ceil(4) {
        // SAFETY: as the caller promises.
        slot::set_word(&mut value, word, unsafe { shared.read(word as u32 * count + index) });
    }
    value
}
