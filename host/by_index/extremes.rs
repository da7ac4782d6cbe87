//! Extremes by index on the CPU: all threads offer their items to one table, as on a GPU.

use super::indices::Index;
use crate::cpu::Source;
use crate::{Element, threads};
use gpu_reduce_kernels::extremes::{bits, is_long, key, word};
use rayon::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Items for which it is worth waking threads.
const PARALLEL: usize = 1 << 16;

/// Returns the key of the extreme of the items of each index, which have been checked.
pub fn extremes<T, S, X, const LEAST: bool, const SKIPS_NAN: bool>(
    values: S,
    indices: &[X],
    count: usize,
) -> Vec<Option<T::Key>>
where
    T: Element,
    S: Source<Item = T>,
    X: Index,
{
    let words: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
    let zeros: Vec<_> = (0..bits::<T>(count)).map(|_| AtomicU32::new(0)).collect();
    let offer = |(place, index): (usize, &X)| {
        let index = index.get() as usize;
        // SAFETY: there are as many values as indices.
        let word = word::<T, LEAST, SKIPS_NAN>(unsafe { values.get(place) });
        // Most items do not win.
        if words[index].load(Relaxed) < word {
            words[index].fetch_max(word, Relaxed);
        }
        if is_long::<T>() && word == 0 {
            zeros[index / 32].fetch_or(1 << (index % 32), Relaxed);
        }
    };
    let result = |(index, word): (usize, &AtomicU64)| {
        let word = word.load(Relaxed);
        let has_zero = is_long::<T>() && zeros[index / 32].load(Relaxed) >> (index % 32) & 1 != 0;
        (word != 0 || has_zero).then(|| key::<T, LEAST>(word))
    };
    if indices.len() < PARALLEL || threads::count() == 1 {
        indices.iter().enumerate().for_each(offer);
        return words.iter().enumerate().map(result).collect();
    }
    threads::install(|| {
        indices.par_iter().enumerate().with_min_len(PARALLEL / 4).for_each(offer);
        words.par_iter().enumerate().with_min_len(PARALLEL / 4).map(result).collect()
    })
}
