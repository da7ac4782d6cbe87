//! Extremes and their first indices.

use super::{Source, for_each_block};
use crate::element::{Dtype, Element, Summand, Wide};
use crate::op::extremes::Extreme;
use crate::op::place::Place;
use num_traits::{Bounded, ConstZero};

/// The number of lanes that floats are folded into: eight registers of `f64` with AVX-512.
pub(crate) const LANES: usize = 64;

/// Returns the key of the extreme of [`LANES`] floats or more, on a CPU.
///
/// Floats compare as they are, by one instruction, and only the lanes become keys: the least of 10^4 `f32`
/// took 0.36 µs by keys and takes 0.21 (Zen 5). The comparison drops NaNs, so a flag records them. It may keep
/// the wrong zero, because −0.0 equals +0.0, so another flag records whether any item is as extreme as the
/// right zero. The last round repeats earlier items to fill its lanes.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "for the vectoriser, see the loops")]
pub(crate) fn extreme_of_floats<T: Element, S: Source<Item = T>, const LEAST: bool>(items: S) -> T::Key {
    let pick = Extreme::<LEAST>::pick::<T::Key>;
    let key = |value| T::narrow(value).key_of_number();
    let zero = pick(key(<T::Wide as Summand>::NOTHING), key(T::Wide::ZERO));
    let last = items.len() - LANES;
    // SAFETY: there are items.
    let mut lanes = [unsafe { items.get(0) }.widen(); LANES];
    let mut reaches_zero = false;
    let mut start = 0;
    loop {
        // Flags for these items alone: flags for all items would make each round wait for the last.
        let (mut has_nan, mut reaches) = (false, false);
        // Separate loops, by indices, to read items, for flags and for lanes: else the compiler keeps lanes
        // in memory (`argmin` of 10^5 `f32` took 13 µs and takes 2.6, Zen 5), or runs out of registers.
        let mut values = lanes;
        for i in 0..LANES {
            // SAFETY: `start` is at most `last`.
            values[i] = unsafe { items.get(start + i) }.widen();
        }
        for i in 0..LANES {
            has_nan |= values[i].is_nan();
            reaches |= pick(key(values[i]), zero) == key(values[i]);
        }
        for i in 0..LANES {
            let wins = if LEAST { values[i] < lanes[i] } else { values[i] > lanes[i] };
            lanes[i] = if wins { values[i] } else { lanes[i] };
        }
        if has_nan {
            return Extreme::<LEAST>::best();
        }
        reaches_zero |= reaches;
        if start == last {
            break;
        }
        start = (start + LANES).min(last);
    }
    let mut all = key(lanes[0]);
    for lane in lanes {
        all = pick(all, key(lane));
    }
    if reaches_zero { pick(all, zero) } else { all }
}

/// Returns the first places of the least and of the greatest key, on a CPU. NaNs have the keys that are
/// given.
///
/// Finds the extremes of blocks first, without indices, then each index in the first block that has the
/// extreme of all: so both steps are SIMD. An extreme whose const parameter is false is not looked for.
#[inline(always)]
pub(crate) fn first_extremes<T: Element, S: Source<Item = T>, const LEAST: bool, const GREATEST: bool>(
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
const BLOCK: usize = 1024;

/// Floats in a block: `argmin` of 10^7 `f32` took 1.54 ms with 1024 and takes 1.32 (Zen 5).
const FLOATS: usize = 2048;
