//! The operators that return indices.

#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{Source, for_each_block};
#[cfg(not(target_arch = "nvptx64"))]
use crate::element::Dtype;
use crate::element::{Element, Key, Summand, Wide};
use crate::op::Op;
use crate::op::extremes::Extreme;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::extremes::{LANES, extreme_of_floats};
use bytemuck::{Pod, Zeroable, cast};
use num_traits::{Bounded, ConstZero};

/// The index of the first least element if `LEAST`, else of the first greatest. The first NaN wins against
/// all other elements, or if `SKIPS_NAN` loses.
#[derive(Clone, Copy)]
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

    /// A load follows those before it, so that of equal keys the earlier place stays.
    #[inline(always)]
    fn fold_load<const WIDTH: usize>(&self, all: &mut [Place; WIDTH], items: [T; WIDTH], index: u64) {
        let place = self.lift_load(items, index);
        // The place of no item may have the same key, too.
        let is_first = size_of::<T>() == 8 && all[0].index == Place::NONE.index;
        all[0] = if place.key < all[0].key || is_first { place } else { all[0] };
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = T>>(&self, items: S, first: u64) -> Place {
        if LEAST {
            first_extremes::<T, S, true, false>(items, first, [Self::nan(); 2])[0]
        } else {
            first_extremes::<T, S, false, true>(items, first, [Self::nan(); 2])[1]
        }
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
    pub(super) key: i64,
    pub(super) index: u64,
}

impl Place {
    /// The place of no element, which comes after every other.
    pub(super) const NONE: Self = Self { key: i64::MAX, index: u64::MAX };

    /// Returns the place of a key, the least of which comes first if `LEAST`, else the greatest.
    #[inline(always)]
    pub(super) fn of<K: Key, const LEAST: bool>(key: K, index: u64) -> Self {
        if LEAST { Self { key: key.wide(), index } } else { Self { key: !key.wide(), index } }
    }

    /// Returns the place with the lesser key; of equal keys, the one with the lesser index.
    #[inline(always)]
    pub(super) fn first(self, other: Self) -> Self {
        let before = (other.key < self.key) | ((other.key == self.key) & (other.index < self.index));
        if before { other } else { self }
    }
}

/// Returns the best key of a load, and the first index in the load that has it. Floats compare in the wide
/// type, for which there are instructions that ignore NaNs; only the result becomes a key.
#[inline(always)]
pub(super) fn best_of_load<T: Element, const N: usize, const LEAST: bool>(
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

/// Returns the first places of the least and of the greatest key, on a CPU. NaNs have the keys that are
/// given.
///
/// Finds the extremes of blocks first, without indices, then each index in the first block that has the
/// extreme of all: so both steps are SIMD. An extreme whose const parameter is false is not looked for.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(super) fn first_extremes<T: Element, S: Source<Item = T>, const LEAST: bool, const GREATEST: bool>(
    items: S,
    first: u64,
    [of_least, of_greatest]: [T::Key; 2],
) -> [Place; 2] {
    // For one extreme of floats, in which NaNs win, `extreme_of_floats` is faster.
    let of_floats = const { LEAST != GREATEST && matches!(T::DTYPE, Dtype::F32 | Dtype::F64) };
    if of_floats
        && items.len() >= LANES
        && if LEAST { of_least == T::Key::min_value() } else { of_greatest == T::Key::max_value() }
    {
        return first_extreme_of_floats::<T, S, LEAST>(items, first);
    }
    let mut extremes = [T::Key::max_value(), T::Key::min_value()];
    let mut starts = [0; 2];
    for_each_block::<BLOCK, S>(items, |block, start| {
        let (mut least, mut greatest) = (T::Key::max_value(), T::Key::min_value());
        for i in 0..block.len() {
            // SAFETY: `i` is in bounds.
            let item = unsafe { block.get(i) };
            if LEAST {
                least = least.min(item.key(of_least));
            }
            if GREATEST {
                greatest = greatest.max(item.key(of_greatest));
            }
        }
        if LEAST && least < extremes[0] {
            (extremes[0], starts[0]) = (least, start);
        }
        if GREATEST && greatest > extremes[1] {
            (extremes[1], starts[1]) = (greatest, start);
        }
        true
    });
    let index = |start: usize, nan, extreme| {
        // SAFETY: `start` is the index of an item.
        let block = unsafe { items.part(start..items.len().min(start + BLOCK)) };
        first + start as u64 + first_place(block, nan, extreme)
    };
    let [mut least, mut greatest] = [Place::NONE; 2];
    if LEAST {
        least = Place::of::<_, true>(extremes[0], index(starts[0], of_least, extremes[0]));
    }
    if GREATEST {
        greatest = Place::of::<_, false>(extremes[1], index(starts[1], of_greatest, extremes[1]));
    }
    [least, greatest]
}

/// Returns the first index in a block that has the key, which must be in the block.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn first_place<T: Element, S: Source<Item = T>>(block: S, nan: T::Key, key: T::Key) -> u64 {
    let mut place = u32::MAX;
    for i in 0..block.len() {
        // SAFETY: `i` is in bounds.
        let found = unsafe { block.get(i) }.key(nan) == key;
        place = place.min(if found { i as u32 } else { u32::MAX });
    }
    place.into()
}

/// Returns the first place of the extreme of [`LANES`] floats or more, as [`first_extremes`]. The last block
/// starts early enough to have [`LANES`] items; items in two blocks count for the first.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
fn first_extreme_of_floats<T: Element, S: Source<Item = T>, const LEAST: bool>(
    items: S,
    first: u64,
) -> [Place; 2] {
    let nan = Extreme::<LEAST>::best();
    let mut best = Extreme::<LEAST>::worst();
    let mut best_block = 0..0;
    let mut start = 0;
    while start < items.len() && best != nan {
        let block = start.min(items.len() - LANES)..items.len().min(start + FLOATS);
        // SAFETY: the block lies within the items.
        let part = unsafe { items.part(block.clone()) };
        let extreme = extreme_of_floats::<T, S, LEAST>(part);
        if if LEAST { extreme < best } else { extreme > best } {
            (best, best_block) = (extreme, block);
        }
        start += FLOATS;
    }
    // SAFETY: as above.
    let index = first + best_block.start as u64 + first_place(unsafe { items.part(best_block) }, nan, best);
    let place = Place::of::<_, LEAST>(best, index);
    if LEAST { [place, Place::NONE] } else { [Place::NONE, place] }
}

/// Items in a block. With fewer, the last steps of each extreme, which are not SIMD, take longer; with more,
/// the search for the index does.
#[cfg(not(target_arch = "nvptx64"))]
const BLOCK: usize = 1024;

/// Floats in a block: `argmin` of 10^7 `f32` took 1.54 ms with 1024 and takes 1.32 (Zen 5).
#[cfg(not(target_arch = "nvptx64"))]
const FLOATS: usize = 2048;
