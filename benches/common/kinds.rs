//! Kinds of random floats.
//!
//! `uniform` in ±1, `normal` deviates, `spread` over magnitudes of 2^±60, and `all`: any bits of a finite
//! float.
#![allow(dead_code, reason = "not all benches use all of it")]

/// A kind's name, and the function that makes an element from a hash.
pub type Kind = (&'static str, fn(u64) -> f64);

/// All kinds.
pub fn kinds() -> [Kind; 4] {
    let uniform = |hash: u64| (hash >> 11) as f64 * 2f64.powi(-52) - 1.0;
    [
        ("uniform", uniform),
        ("normal", |hash| {
            // G. E. P. Box and M. E. Muller, 1958
            let (a, b) = ((hash >> 32) as f64 + 1.0, (hash as u32) as f64);
            (-2.0 * (a * 2f64.powi(-32)).ln()).sqrt() * (b * 2f64.powi(-32) * std::f64::consts::TAU).cos()
        }),
        ("spread", |hash| {
            let exponent = 1023 - 60 + (hash >> 52) % 121;
            f64::from_bits(hash & (1 << 63 | ((1 << 52) - 1)) | exponent << 52)
        }),
        ("all", |hash| f64::from_bits(if hash >> 52 & 0x7ff == 0x7ff { hash ^ 1 << 62 } else { hash })),
    ]
}

/// The nearest `f32`; for the kind `all`, an `f32` of random bits.
pub fn single(kind: &str, x: f64) -> f32 {
    match kind {
        "all" => {
            let bits = (x.to_bits() >> 20) as u32;
            f32::from_bits(if bits >> 23 & 0xff == 0xff { bits ^ 1 << 30 } else { bits })
        }
        _ => x as f32,
    }
}

/// A hash of an index, as in SplitMix64.
pub fn hash(index: u64) -> u64 {
    let mut h = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}
