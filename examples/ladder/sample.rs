//! Input data whose sums are exact.

use gpu_reduce::LadderElement;
use rayon::prelude::*;

/// Returns `len` elements.
pub fn samples<T: Sample>(len: usize) -> Vec<T> {
    (0..len as u64).into_par_iter().map(|index| T::sample(hash(index), len as u64)).collect()
}

/// A type with input data.
pub trait Sample: LadderElement {
    /// Returns one of `len` elements. Integers cover their whole range. Floats are whole numbers, and the sum
    /// of their magnitudes is exact in the type. So sums are exact in every order, and a single lost element
    /// shows.
    fn sample(hash: u64, len: u64) -> Self;
}

impl Sample for i32 {
    fn sample(hash: u64, _: u64) -> Self {
        hash as i32
    }
}

impl Sample for i64 {
    fn sample(hash: u64, _: u64) -> Self {
        hash as i64
    }
}

impl Sample for f32 {
    fn sample(hash: u64, len: u64) -> Self {
        whole(hash, len, f32::MANTISSA_DIGITS) as f32
    }
}

impl Sample for f64 {
    fn sample(hash: u64, len: u64) -> Self {
        whole(hash, len, f64::MANTISSA_DIGITS) as f64
    }
}

/// A whole number; the magnitudes of `len` of them add up to at most 2^digits.
fn whole(hash: u64, len: u64, digits: u32) -> i64 {
    let most = (1 << digits) / len;
    if most > 0 {
        return (hash % (2 * most + 1)) as i64 - most as i64;
    }
    // Most are 0. The others are half as many as would fit, because their number is random.
    let one_in = 2 * len.div_ceil(1 << digits);
    match (hash.is_multiple_of(one_in), hash >> 63) {
        (false, _) => 0,
        (true, 0) => 1,
        (true, _) => -1,
    }
}

/// A hash of an index (a multiply-xorshift mixer, as in SplitMix64).
fn hash(index: u64) -> u64 {
    let mut h = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}
