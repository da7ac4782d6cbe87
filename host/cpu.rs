//! The CPU backend: the same plan as the kernel's, chunks over threads, rows over SIMD lanes.

use crate::{Element, Op, Plan};
use gpu_reduce_kernels::plan::PARTIALS;
use rayon::prelude::*;

/// Below this many bytes one thread reduces sooner than others wake up.
const PARALLEL_BYTES: usize = 1 << 20;

/// Rows that a strip of accumulators folds in registers before they go back to memory.
const STRIP_ROWS: usize = 16;

/// Bytes of accumulators in a strip: eight AVX2 registers, half of them all.
const STRIP_BYTES: usize = 256;

/// Reduces `data`, which is not empty.
pub fn reduce<O: Op<T>, T: Element, const BLOCK: u32>(data: &[T]) -> O::Output {
    let plan = Plan::new::<T, BLOCK>(data.len() as u64);
    // Where every order gives the same bits, one strip of accumulators does, and stays in registers.
    let row = if O::EXACT { STRIP_BYTES / size_of::<O::Accumulator>() } else { plan.row as usize };
    let mut accumulators = Vec::new();
    if plan.chunks == 1 {
        return O::finish(fold_chunk::<O, T>(&mut accumulators, row, data));
    }

    let chunk = plan.chunk as usize;
    let partials: Vec<_> = if size_of_val(data) < PARALLEL_BYTES {
        data.chunks(chunk).map(|chunk| fold_chunk::<O, T>(&mut accumulators, row, chunk)).collect()
    } else {
        data.par_chunks(chunk)
            .map_init(Vec::new, |accumulators, chunk| fold_chunk::<O, T>(accumulators, row, chunk))
            .collect()
    };
    accumulators.clear();
    accumulators.resize(PARTIALS as usize, O::IDENTITY);
    for partials in partials.chunks(PARTIALS as usize) {
        for (accumulator, &partial) in accumulators.iter_mut().zip(partials) {
            *accumulator = O::combine(*accumulator, partial);
        }
    }
    O::finish(fold_pairs::<O, T>(&mut accumulators))
}

/// The instruction set that [`fold_chunk`] uses here.
pub fn simd() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        return "AVX-512";
    } else if is_x86_feature_detected!("avx2") {
        return "AVX2";
    }
    if cfg!(target_arch = "x86_64") {
        "SSE2"
    } else if cfg!(target_arch = "aarch64") {
        "NEON"
    } else {
        "no SIMD"
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// Folds a chunk whose rows have `row` elements into its partial result. `accumulators` is room to work in.
///
/// The loops below are written for the compiler's vectoriser, which is exact: float operations keep their order. Here
/// they are compiled once for each instruction set.
fn fold_chunk<O: Op<T>, T: Element>(
    accumulators: &mut Vec<O::Accumulator>,
    row: usize,
    chunk: &[T],
) -> O::Accumulator {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512<O: Op<T>, T: Element>(
            room: &mut Vec<O::Accumulator>,
            row: usize,
            chunk: &[T],
        ) -> O::Accumulator {
            fold_chunk_anywhere::<O, T>(room, row, chunk)
        }
        #[target_feature(enable = "avx2")]
        fn avx2<O: Op<T>, T: Element>(
            room: &mut Vec<O::Accumulator>,
            row: usize,
            chunk: &[T],
        ) -> O::Accumulator {
            fold_chunk_anywhere::<O, T>(room, row, chunk)
        }
        if has_avx512() {
            // SAFETY: the processor has what it is compiled for.
            return unsafe { avx512::<O, T>(accumulators, row, chunk) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what it is compiled for.
            return unsafe { avx2::<O, T>(accumulators, row, chunk) };
        }
    }
    fold_chunk_anywhere::<O, T>(accumulators, row, chunk)
}

#[inline(always)]
fn fold_chunk_anywhere<O: Op<T>, T: Element>(
    accumulators: &mut Vec<O::Accumulator>,
    row: usize,
    chunk: &[T],
) -> O::Accumulator {
    accumulators.clear();
    if chunk.len() <= row {
        // Accumulators that no element falls to are identities, and so is all that they fold into.
        accumulators.extend(chunk.iter().map(|&element| O::lift(element)));
        accumulators.resize(chunk.len().next_power_of_two(), O::IDENTITY);
        return fold_pairs::<O, T>(accumulators);
    }
    accumulators.resize(row, O::IDENTITY);
    match STRIP_BYTES / size_of::<O::Accumulator>() {
        32 => fold_rows::<O, T, 32>(accumulators, chunk),
        64 => fold_rows::<O, T, 64>(accumulators, chunk),
        128 => fold_rows::<O, T, 128>(accumulators, chunk),
        _ => fold_rows::<O, T, 256>(accumulators, chunk),
    }
    fold_pairs::<O, T>(accumulators)
}

/// Folds element i of each row into accumulator i, row after row: `STRIP` accumulators at a time, held in registers
/// while [`STRIP_ROWS`] rows go by.
#[inline(always)]
fn fold_rows<O: Op<T>, T: Element, const STRIP: usize>(accumulators: &mut [O::Accumulator], chunk: &[T]) {
    let row = accumulators.len();
    for rows in chunk.chunks(row * STRIP_ROWS) {
        let whole = rows.len() / row;
        let (strips, rest) = accumulators.as_chunks_mut::<STRIP>();
        // A row of few elements with small accumulators is less than a strip.
        let rest_start = row - rest.len();
        if !rest.is_empty() {
            for row in rows.chunks_exact(row) {
                fold_into::<O, T>(rest, &row[rest_start..]);
            }
        }
        for (strip, accumulators) in strips.iter_mut().enumerate() {
            let mut held = *accumulators;
            for index in 0..whole {
                let start = index * row + strip * STRIP;
                fold_into::<O, T>(&mut held, &rows[start..start + STRIP]);
            }
            *accumulators = held;
        }
        fold_into::<O, T>(accumulators, &rows[whole * row..]);
    }
}

/// Folds each element into the accumulator at its place.
#[inline(always)]
fn fold_into<O: Op<T>, T: Element>(accumulators: &mut [O::Accumulator], elements: &[T]) {
    for (accumulator, &element) in accumulators.iter_mut().zip(elements) {
        *accumulator = O::combine(*accumulator, O::lift(element));
    }
}

/// Folds accumulators, a power of two of them, pairwise, neighbours first.
#[inline(always)]
fn fold_pairs<O: Op<T>, T: Element>(accumulators: &mut [O::Accumulator]) -> O::Accumulator {
    const PAIRS: usize = 16;
    let mut len = accumulators.len() / 2;
    while len >= PAIRS {
        for start in (0..len).step_by(PAIRS) {
            // Through an array, so that the vectoriser sees that what is read and what is written do not overlap.
            let mut folded = [O::IDENTITY; PAIRS];
            let (pairs, _) = accumulators[2 * start..2 * (start + PAIRS)].as_chunks::<2>();
            for (folded, &[a, b]) in folded.iter_mut().zip(pairs) {
                *folded = O::combine(a, b);
            }
            accumulators[start..start + PAIRS].copy_from_slice(&folded);
        }
        len /= 2;
    }
    while len > 0 {
        for index in 0..len {
            accumulators[index] = O::combine(accumulators[2 * index], accumulators[2 * index + 1]);
        }
        len /= 2;
    }
    accumulators[0]
}
