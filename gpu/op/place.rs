//! The operators that return indices.

use crate::element::{Element, Key, Summand, Wide};
use crate::op::Op;
use crate::op::extremes::Extreme;
use bytemuck::{Pod, Zeroable, cast};
use num_traits::{Bounded, ConstZero};

/// The index of the first least element if `LEAST`, else of the first greatest. The first NaN wins against
/// all other elements, or if `SKIPS_NAN` loses.
#[derive(Clone, Copy, Debug)]
pub struct FirstExtreme<const LEAST: bool, const SKIPS_NAN: bool>;

impl<const LEAST: bool, const SKIPS_NAN: bool> FirstExtreme<LEAST, SKIPS_NAN> {
    /// Returns the key of a NaN.
    #[inline(always)]
    fn nan<K: Bounded>() -> K {
        if SKIPS_NAN { Extreme::<LEAST>::worst() } else { Extreme::<LEAST>::best() }
    }
}

impl<T: Element, const LEAST: bool, const SKIPS_NAN: bool> Op<T> for FirstExtreme<LEAST, SKIPS_NAN> {
    const NAME: &'static str = if LEAST { "argmin" } else { "argmax" };
    type Accumulator = Place;
    type Output = u64;
    const EXACT: bool = true;

    #[inline(always)]
    fn identity(&self) -> Place {
        Place::NONE
    }

    #[inline(always)]
    fn lift(&self, element: T, index: u64) -> Place {
        Place::of::<_, LEAST>(element.key(Self::nan()), index)
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], index: u64) -> Place {
        let (best, at) = best_of_load::<T, N, LEAST>(load, Self::nan());
        Place::of::<_, LEAST>(best, index + at)
    }

    #[inline(always)]
    fn combine(&self, a: Place, b: Place) -> Place {
        a.first(b)
    }

    #[inline(always)]
    fn finish(&self, all: Place, count: u64) -> Option<u64> {
        (count > 0).then_some(all.index)
    }
}

/// A key and its index. Places with lesser keys come first.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Place {
    pub(crate) key: i64,
    pub(crate) index: u64,
}

impl Place {
    /// The place of no element, which comes after every other.
    pub(crate) const NONE: Self = Self { key: i64::MAX, index: u64::MAX };

    /// Returns the place of a key, the least of which comes first if `LEAST`, else the greatest.
    #[inline(always)]
    pub(crate) fn of<K: Key, const LEAST: bool>(key: K, index: u64) -> Self {
        if LEAST { Self { key: key.wide(), index } } else { Self { key: !key.wide(), index } }
    }

    /// Returns the place with an index that is greater by `by`.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn moved(self, by: u64) -> Self {
        let index = if self.index == Self::NONE.index { self.index } else { self.index + by };
        Self { index, ..self }
    }

    /// Returns the place with the lesser key; of equal keys, the one with the lesser index.
    #[inline(always)]
    pub(crate) fn first(self, other: Self) -> Self {
        let before = (other.key < self.key) | ((other.key == self.key) & (other.index < self.index));
        if before { other } else { self }
    }
}

/// Returns the best key of a load, and the first index in the load that has it. Floats compare in the wide
/// type, for which there are instructions that ignore NaNs; only the result becomes a key.
#[inline(always)]
pub(crate) fn best_of_load<T: Element, const N: usize, const LEAST: bool>(
    load: [T; N],
    nan: T::Key,
) -> (T::Key, u64) {
    let worst = Extreme::<LEAST>::worst();
    if T::Wide::EXACT {
        let keys = load.map(|element| element.key(nan));
        let best = keys.into_iter().fold(worst, Extreme::<LEAST>::pick);
        return (best, first_of::<N>(|place| keys[place] == best));
    }
    let wide = load.map(T::widen);
    if nan != worst && wide.iter().fold(false, |has, value| has | value.is_nan()) {
        return (nan, first_of::<N>(|place| wide[place].is_nan()));
    }
    let best = wide.into_iter().reduce(Extreme::<LEAST>::pick_wide).unwrap_or(T::Wide::ZERO);
    // Compares bits, because −0.0 and 0.0 have different keys.
    let bits = |wide: T::Wide| {
        if size_of::<T::Wide>() == 4 { cast::<_, u32>(wide).into() } else { cast::<_, u64>(wide) }
    };
    (T::narrow(best).key(nan), first_of::<N>(|place| bits(wide[place]) == bits(best)))
}

/// Returns the first of N indices for which the predicate holds, or 0 if there is none.
#[inline(always)]
fn first_of<const N: usize>(is_it: impl Fn(usize) -> bool) -> u64 {
    let mut first = 0;
    for place in (0..N).rev() {
        first = if is_it(place) { place as u32 } else { first };
    }
    first.into()
}
