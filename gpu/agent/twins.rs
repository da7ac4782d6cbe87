//! How kernels fold that two types of items share: as the operator for the type that is meant.

use super::{Agent, Room, folds_by_loads, room, summed_from, takes_long};
use crate::op::Op;
use crate::op::by_value::ByValue;
use crate::op::twins::{Either, Twins, recast};
use core::array::from_fn;

/// Folds by the operators for both types, and takes the value of the one for the type of the items.
#[derive(Clone, Copy)]
pub(crate) struct ByTwin;

impl<I: Copy + 'static, J: Copy + 'static, A: Op<I>, B: Op<J>> Agent<Twins<A, B, J>, I> for ByTwin {
    const ROOM: Room = room::<A, I>();
    const FOLDS_BY_LOADS: bool = folds_by_loads::<A, I>();
    const TAKES_LONG: bool = takes_long::<A, I>();

    #[inline(always)]
    fn fold_item(self, twins: &Twins<A, B, J>, all: &mut A::Accumulator, item: I, index: u64) {
        let mut second: B::Accumulator = recast(*all);
        A::agent().fold_item(&twins.first, all, item, index);
        B::agent().fold_item(&twins.second, &mut second, recast(item), index);
        *all = twins.choose(*all, second);
    }

    #[inline(always)]
    fn fold_load<const WIDTH: usize>(
        self,
        twins: &Twins<A, B, J>,
        all: &mut [A::Accumulator; WIDTH],
        items: [I; WIDTH],
        index: u64,
    ) {
        let mut second: [B::Accumulator; WIDTH] = from_fn(|place| recast(all[place]));
        A::agent().fold_load(&twins.first, all, items, index);
        B::agent().fold_load(&twins.second, &mut second, recast::<[I; WIDTH], [J; WIDTH]>(items), index);
        if A::EXACT {
            all[0] = twins.choose(all[0], second[0]);
        } else {
            *all = from_fn(|place| twins.choose(all[place], second[place]));
        }
    }

    #[inline(always)]
    unsafe fn store(
        self,
        twins: &Twins<A, B, J>,
        (all, count): (A::Accumulator, u64),
        results: *mut A::Output,
        index: usize,
    ) -> bool {
        // SAFETY: as the caller vouches; results of both operators have the same size.
        unsafe {
            if twins.is_second {
                B::agent().store(&twins.second, (recast(all), count), results.cast(), index)
            } else {
                A::agent().store(&twins.first, (all, count), results, index)
            }
        }
    }
}

/// Folds by the operator's own methods.
#[derive(Clone, Copy)]
pub(crate) struct ByEither;

impl<I: Copy + 'static, O: ByValue<I>> Agent<Either<O>, I> for ByEither {
    const ROOM: Room = room::<O, I>();
    const FOLDS_BY_LOADS: bool = folds_by_loads::<O, I>();
    const TAKES_LONG: bool = {
        assert!(summed_from::<O, I>().is_none(), "exact sums");
        takes_long::<O, I>()
    };
}
