//! Pairwise folds of accumulators in AVX-512 registers, neighbours first. `W` accumulators of 4 or 8 bytes
//! are a vector.
//!
//! Intrinsics only move accumulators. The vectoriser's own shuffles took two to three times as long: it keeps
//! every level of the tree in order, by permutations across whole vectors, and splits short levels. Here a
//! level leaves results in any order that pairs the right neighbours in the next one.

use crate::op::Op;
use core::arch::asm;
use core::arch::x86_64::*;
use core::mem::transmute_copy;

/// Folds eight vectors to one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub fn fold_strip<O: Op<I>, I: Copy + 'static, const N: usize, const W: usize>(
    op: &O,
    strip: &[O::Accumulator; N],
) -> [O::Accumulator; W] {
    assert!(size_of::<[O::Accumulator; W]>() == 64 && N == 8 * W);
    // SAFETY: both are 512 bytes, of any value.
    let [a, b, c, d, e, f, g, h]: [__m512d; 8] = unsafe { transmute_copy(strip) };
    let within = |a, b| fold_pairs::<O, I, W, true>(op, a, b);
    let across = |a, b| fold_pairs::<O, I, W, false>(op, a, b);
    let (ab, cd, ef, gh) = (within(a, b), within(c, d), within(e, f), within(g, h));
    let mut all;
    if W == 16 {
        all = across(within(ab, cd), within(ef, gh));
        let order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
        all = _mm512_castps_pd(_mm512_permutexvar_ps(order, _mm512_castpd_ps(all)));
    } else {
        all = across(across(ab, cd), across(ef, gh));
    }
    // SAFETY: both are 64 bytes, of any value.
    unsafe { transmute_copy(&all) }
}

/// Folds a vector, or four, to one accumulator.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub fn fold_heads<O: Op<I>, I: Copy + 'static, const W: usize>(
    op: &O,
    first: &[O::Accumulator; W],
    others: Option<&[[O::Accumulator; W]; 3]>,
) -> O::Accumulator {
    assert!(size_of::<[O::Accumulator; W]>() == 64);
    let within = |a, b| fold_pairs::<O, I, W, true>(op, a, b);
    let across = |a, b| fold_pairs::<O, I, W, false>(op, a, b);
    // SAFETY: both are 64 bytes, of any value.
    let a: __m512d = unsafe { transmute_copy(first) };
    let mut all = a;
    if let Some(others) = others {
        // SAFETY: both are 192 bytes, of any value.
        let [b, c, d]: [__m512d; 3] = unsafe { transmute_copy(others) };
        let (ab, cd) = (within(a, b), within(c, d));
        if W == 16 {
            all = within(ab, cd);
            all = across(all, all);
        } else {
            all = across(ab, cd);
        }
        all = across(all, all);
        all = within(all, all);
        all = if W == 16 { within(all, all) } else { across(all, all) };
    } else {
        all = within(all, all);
        if W == 16 {
            all = within(all, all);
        }
        all = across(all, all);
        all = across(all, all);
    }
    // SAFETY: an accumulator has any value, and is smaller.
    unsafe { transmute_copy(&all) }
}

/// The accumulators of a vector from index `by` on, followed by identities.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub fn shift<O: Op<I>, I: Copy + 'static, const W: usize>(
    op: &O,
    vector: &[O::Accumulator; W],
    by: usize,
) -> [O::Accumulator; W] {
    assert!(size_of::<[O::Accumulator; W]>() == 64);
    // SAFETY: all are 64 bytes, of any value.
    let (vector, identities) = unsafe { (transmute_copy(vector), transmute_copy(&[op.identity(); W])) };
    let words = by * (16 / W);
    let places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let from = _mm512_add_epi32(places, _mm512_set1_epi32(words as i32));
    let shifted = _mm512_mask_permutexvar_epi32(identities, u16::MAX >> words, from, vector);
    // SAFETY: both are 64 bytes, of any value.
    unsafe { transmute_copy(&shifted) }
}

/// Combines neighbours of two vectors. WITHIN: the even accumulators with the odd ones of each 16-byte lane,
/// which then has results of both vectors. Else: the even lanes with the odd ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn fold_pairs<O: Op<I>, I: Copy + 'static, const W: usize, const WITHIN: bool>(
    op: &O,
    a: __m512d,
    b: __m512d,
) -> __m512d {
    let (even, odd) = match (W, WITHIN) {
        (16, true) => {
            let (a, b) = (_mm512_castpd_ps(a), _mm512_castpd_ps(b));
            let (even, odd) = (_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b));
            (_mm512_castps_pd(even), _mm512_castps_pd(odd))
        }
        (_, true) => (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b)),
        (_, false) => (_mm512_shuffle_f64x2::<0x88>(a, b), _mm512_shuffle_f64x2::<0xdd>(a, b)),
    };
    // SAFETY: both are 64 bytes, of any value.
    let even: [O::Accumulator; W] = unsafe { transmute_copy(&opaque(even)) };
    // SAFETY: as above.
    let mut odd: [O::Accumulator; W] = unsafe { transmute_copy(&opaque(odd)) };
    for (even, odd) in even.into_iter().zip(&mut odd) {
        *odd = op.combine(even, *odd);
    }
    // SAFETY: as above.
    unsafe { transmute_copy(&odd) }
}

/// The vector, hidden from the compiler, which would else replace the shuffle by shuffles of 16 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn opaque(mut vector: __m512d) -> __m512d {
    // SAFETY: no instructions.
    unsafe { asm!("/* {} */", inout(zmm_reg) vector, options(pure, nomem, nostack, preserves_flags)) };
    vector
}
