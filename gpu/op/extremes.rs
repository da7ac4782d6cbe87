//! The minimum and the maximum.

use crate::element::{Dtype, Element, Wide};
use crate::op::Op;
use bytemuck::{Pod, cast};
use core::ops::{Shl, Shr};
use num_traits::{Bounded, ConstZero};

/// The least element if `LEAST`, else the greatest. A NaN has the key that wins against all others.
#[derive(Clone, Copy, Debug)]
pub struct Extreme<const LEAST: bool>;

impl<const LEAST: bool> Extreme<LEAST> {
    /// Returns the key that wins against all others; of floats, a NaN's.
    #[inline(always)]
    pub(crate) fn best<K: Bounded>() -> K {
        if LEAST { K::min_value() } else { K::max_value() }
    }

    /// Returns the key that loses against all others.
    #[inline(always)]
    pub(crate) fn worst<K: Bounded>() -> K {
        if LEAST { K::max_value() } else { K::min_value() }
    }

    /// Returns the key that wins.
    #[inline(always)]
    pub(crate) fn pick<K: Ord>(a: K, b: K) -> K {
        if LEAST { a.min(b) } else { a.max(b) }
    }

    /// Returns the value that wins; NaN only if both are.
    #[inline(always)]
    pub(crate) fn pick_wide<W: Wide>(a: W, b: W) -> W {
        if LEAST { a.lesser(b) } else { a.greater(b) }
    }
}

impl<T: Element, const LEAST: bool> Op<T> for Extreme<LEAST> {
    const NAME: &'static str = if LEAST { "min" } else { "max" };
    type Accumulator = T::Key;
    type Output = T;
    const EXACT: bool = true;

    #[inline(always)]
    fn identity(&self) -> T::Key {
        Self::worst()
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Key {
        element.key(Self::best())
    }

    /// Floats compare in the wide type, for which there are instructions; only the result becomes a key.
    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> T::Key {
        match T::DTYPE {
            Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64 => {
                let wide = load.map(T::widen);
                let has_nan = wide.iter().fold(false, |has, value| has | value.is_nan());
                let extreme = wide.into_iter().reduce(Self::pick_wide).unwrap_or(T::Wide::ZERO);
                if has_nan { Self::best() } else { T::narrow(extreme).key_of_number() }
            }
            Dtype::I8 | Dtype::I16 if size_of::<[T; N]>() == 16 => {
                extreme_of_words::<i32, T>(cast(load), Self::pick)
            }
            Dtype::U8 | Dtype::U16 if size_of::<[T; N]>() == 16 => {
                extreme_of_words::<u32, T>(cast(load), Self::pick)
            }
            _ => load
                .into_iter()
                .fold(Self::worst(), |all, element| Self::pick(all, element.key(Self::best()))),
        }
    }

    #[inline(always)]
    fn combine(&self, a: T::Key, b: T::Key) -> T::Key {
        Self::pick(a, b)
    }

    #[inline(always)]
    fn finish(&self, all: T::Key, count: u64) -> Option<T> {
        (count > 0).then(|| T::from_key(all))
    }
}

/// As [`Extreme`], but a NaN has the key that loses against all others.
#[derive(Clone, Copy, Debug)]
pub struct NanExtreme<const LEAST: bool>;

impl<T: Element, const LEAST: bool> Op<T> for NanExtreme<LEAST> {
    const NAME: &'static str = if LEAST { "nanmin" } else { "nanmax" };
    type Accumulator = T::Key;
    type Output = T;
    const EXACT: bool = true;

    #[inline(always)]
    fn identity(&self) -> T::Key {
        Extreme::<LEAST>::worst()
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Key {
        element.key(Extreme::<LEAST>::worst())
    }

    #[inline(always)]
    fn combine(&self, a: T::Key, b: T::Key) -> T::Key {
        Extreme::<LEAST>::pick(a, b)
    }

    #[inline(always)]
    fn finish(&self, all: T::Key, count: u64) -> Option<T> {
        (count > 0).then(|| T::from_key(all))
    }
}

/// Returns the key of the extreme of a load with two or four integers a word. Compares whole words: an
/// integer shifted to the upper end of its word orders as before, whatever the lower bits are.
#[inline(always)]
pub(crate) fn extreme_of_words<W, T>(words: [W; 4], pick: impl Fn(W, W) -> W) -> T::Key
where
    W: Pod + Shl<usize, Output = W> + Shr<usize, Output = W>,
    T: Element,
{
    let bits = 8 * size_of::<T>();
    let mut extremes = words;
    let mut shift = bits;
    while shift < 32 {
        extremes = core::array::from_fn(|word| pick(extremes[word], words[word] << shift));
        shift += bits;
    }
    let [a, b, c, d] = extremes;
    // The key of an integer is the integer itself.
    let extreme = pick(pick(a, b), pick(c, d)) >> ((32 - bits.min(32)) % 32);
    bytemuck::pod_read_unaligned(&bytemuck::bytes_of(&extreme)[..size_of::<T::Key>().min(4)])
}
