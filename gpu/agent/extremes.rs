//! Extremes, their first indices, quantifiers, bits and counts, which reduce by index to words. The first
//! three have SIMD on a CPU, and one comparison a load on a GPU.

use super::{Agent, of_row};
use crate::element::Element;
use crate::op::Op;
use crate::op::counts::Predicate;
use crate::op::place::Place;
use crate::table::Row;
#[cfg(not(target_arch = "nvptx64"))]
use {
    crate::element::Dtype,
    crate::host_simd::extremes::{LANES, extreme_of_floats, first_extremes},
    crate::host_simd::{Source, fold_in_turn, for_each_block},
    crate::op::extremes::Extreme,
    crate::op::quantifiers::is_nonzero,
    crate::words::Words,
    num_traits::Bounded,
};

/// Folds by [`Extreme<LEAST>`](crate::op::extremes::Extreme), or by
/// [`NanExtreme<LEAST>`](crate::op::extremes::NanExtreme) if it skips NaN.
#[derive(Clone, Copy)]
pub(crate) struct OneExtreme<const LEAST: bool, const SKIPS_NAN: bool>;

impl<I, O, const LEAST: bool, const SKIPS_NAN: bool> Agent<O, I> for OneExtreme<LEAST, SKIPS_NAN>
where
    I: Element,
    O: Op<I, Accumulator = I::Key, Output = I> + Row,
{
    of_row! {}

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = I>>(self, op: &O, items: S, first: u64) -> I::Key {
        let is_float = const { !SKIPS_NAN && matches!(I::DTYPE, Dtype::F32 | Dtype::F64) };
        if is_float && items.len() >= LANES {
            extreme_of_floats::<I, S, LEAST>(items)
        } else {
            fold_in_turn::<true, _, _>(op, items, first)
        }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn words(self, _: &O) -> Option<Words<I>> {
        Some(Words::extreme(LEAST, SKIPS_NAN))
    }
}

/// Folds by both extremes.
#[derive(Clone, Copy)]
pub(crate) struct BothExtremes;

impl<I: Element, O: Op<I, Accumulator = [I::Key; 2], Output = [I; 2]> + Row> Agent<O, I> for BothExtremes {
    of_row! {}

    /// Two variables become SIMD; an array of two does not.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = I>>(self, _: &O, items: S, _: u64) -> [I::Key; 2] {
        let (mut least, mut greatest) = (I::Key::max_value(), I::Key::min_value());
        for i in 0..items.len() {
            // SAFETY: `i` is in bounds.
            let item = unsafe { items.get(i) };
            least = least.min(item.key(I::Key::min_value()));
            greatest = greatest.max(item.key(I::Key::max_value()));
        }
        [least, greatest]
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn words(self, _: &O) -> Option<Words<[I; 2]>> {
        Some(Words::extremes())
    }
}

/// Folds by [`FirstExtreme<LEAST, SKIPS_NAN>`](crate::op::place::FirstExtreme).
#[derive(Clone, Copy)]
pub(crate) struct FirstPlace<const LEAST: bool, const SKIPS_NAN: bool>;

impl<I, O, const LEAST: bool, const SKIPS_NAN: bool> Agent<O, I> for FirstPlace<LEAST, SKIPS_NAN>
where
    I: Element,
    O: Op<I, Accumulator = Place, Output = u64> + Row,
{
    of_row! {}

    #[cfg(not(target_arch = "nvptx64"))]
    const IN_ANY_ORDER: bool = false;

    /// Loads come in the order of their indices: if a later load has an equal key, the earlier place stays.
    #[inline(always)]
    fn fold_load<const WIDTH: usize>(self, op: &O, all: &mut [Place; WIDTH], items: [I; WIDTH], index: u64) {
        let place = op.lift_load(items, index);
        // The place of no item may have the same key, too.
        let is_first = size_of::<I>() == 8 && all[0].index == Place::NONE.index;
        all[0] = if place.key < all[0].key || is_first { place } else { all[0] };
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = I>>(self, _: &O, items: S, first: u64) -> Place {
        let nan = if SKIPS_NAN { Extreme::<LEAST>::worst() } else { Extreme::<LEAST>::best() };
        if LEAST {
            first_extremes::<I, S, true, false>(items, first, [nan; 2])[0]
        } else {
            first_extremes::<I, S, false, true>(items, first, [nan; 2])[1]
        }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn moved(self, all: Place, by: u64) -> Place {
        all.moved(by)
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn words(self, _: &O) -> Option<Words<u64>> {
        Some(Words::place::<I>(LEAST, SKIPS_NAN))
    }
}

/// Folds by the first places of both extremes.
#[derive(Clone, Copy)]
pub(crate) struct BothPlaces;

impl<I: Element, O: Op<I, Accumulator = [Place; 2], Output = [u64; 2]> + Row> Agent<O, I> for BothPlaces {
    of_row! {}

    #[cfg(not(target_arch = "nvptx64"))]
    const IN_ANY_ORDER: bool = false;

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = I>>(self, _: &O, items: S, first: u64) -> [Place; 2] {
        first_extremes::<I, S, true, true>(items, first, [I::Key::min_value(), I::Key::max_value()])
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn moved(self, all: [Place; 2], by: u64) -> [Place; 2] {
        all.map(|place| place.moved(by))
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn words(self, _: &O) -> Option<Words<[u64; 2]>> {
        Some(Words::places::<I>())
    }
}

/// Folds by whether all items are nonzero if `ALL`, else by whether any is.
#[derive(Clone, Copy)]
pub(crate) struct Decided<const ALL: bool>;

impl<I: Element, O: Op<I, Accumulator = u32, Output = bool> + Row, const ALL: bool> Agent<O, I>
    for Decided<ALL>
{
    of_row! {}

    /// Stops after the first block that decides the result.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = I>>(self, _: &O, items: S, _: u64) -> u32 {
        let mut all = ALL;
        for_each_block::<1024, S>(items, |block, _| {
            for i in 0..block.len() {
                // SAFETY: `i` is in bounds.
                let is_nonzero = is_nonzero(unsafe { block.get(i) });
                all = if ALL { all & is_nonzero } else { all | is_nonzero };
            }
            all == ALL
        });
        all.into()
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn words(self, _: &O) -> Option<Words<bool>> {
        Some(if ALL { Words::all::<I>() } else { Words::any::<I>() })
    }
}

/// Folds by [`Bits<OPERATION>`](crate::op::bits::Bits).
#[derive(Clone, Copy)]
pub(crate) struct Bitwise<const OPERATION: char>;

impl<I: Element, O: Op<I, Output = I> + Row, const OPERATION: char> Agent<O, I> for Bitwise<OPERATION> {
    of_row! {}

    #[cfg(not(target_arch = "nvptx64"))]
    fn words(self, _: &O) -> Option<Words<I>> {
        Some(Words::bits(OPERATION))
    }
}

/// Folds by [`Count`](crate::op::counts::Count).
#[derive(Clone, Copy)]
pub(crate) struct Counting;

impl<I: Element, O: Op<I, Output = u64> + Row + Predicate<I>> Agent<O, I> for Counting {
    of_row! {}

    #[cfg(not(target_arch = "nvptx64"))]
    fn words(self, op: &O) -> Option<Words<u64>> {
        Some(Words::count(op.range()))
    }
}
