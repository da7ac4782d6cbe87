//! Neighbouring columns as one: a thread folds V of them, whose items it loads together, as 4 bytes or as 16.
//!
//! [`Words`] is the input whose items are V items that lie side by side. [`Each`] is the operator of these, which
//! reduces each of the V columns by itself, and so gives the bits of one column alone.

use super::columns::loads;
use crate::agent::{Agent, folds_by_loads, takes_long};
use crate::exchange::slot;
use crate::input::{Input, leaves_of_items};
use crate::kernels::Parameters;
use crate::op::Op;
use crate::tree::unrolled;
use core::array::from_fn;

/// Returns how many neighbouring columns a thread folds whose items it loads as at most `bytes` bytes; 1 if an item has
/// more than half of these, or if `most` bytes are not enough for more accumulators.
const fn columns<O: Op<P::Item>, P: Input>(bytes: usize, most: usize) -> usize {
    let mut columns = 16;
    while columns > 1 && (columns * P::BYTES > bytes || columns * size_of::<O::Accumulator>() > most) {
        columns /= 2;
    }
    columns
}

/// Returns how many neighbouring columns a thread folds if items lie at multiples of as many bytes as it loads at once: those
/// of 4 bytes, or [pairs](is_pair).
pub const fn of_word<O: Op<P::Item>, P: Input>() -> usize {
    // If columns are few, half of a thread's loads have accumulators of their own: 128 bytes of registers at most.
    match is_pair(P::BYTES) {
        true => columns::<O, P>(8, if O::EXACT { 32 } else { 16 }),
        false => columns::<O, P>(4, if O::EXACT { 32 } else { 256 / loads::<O, P::Item>() }),
    }
}

/// Returns whether a thread loads two neighbouring items of `bytes` bytes at once, where there are many columns and each has
/// at most a row of items.
pub const fn is_pair(bytes: usize) -> bool {
    bytes == 4
}

/// Returns how many neighbouring columns a thread folds if items lie at multiples of 16 bytes and columns are short.
pub const fn of_line<O: Op<P::Item>, P: Input>() -> usize {
    columns::<O, P>(16, 32)
}

/// An input whose items are V neighbouring items of `P`.
#[derive(Clone, Copy)]
pub struct Words<P, const V: usize>(pub P);

impl<P: Input, const V: usize> Input for Words<P, V> {
    type Item = [P::Item; V];
    leaves_of_items! {}

    const BYTES: usize = V * P::BYTES;
    const IS_NARROW: bool = false;

    fn parameters(&self, parameters: &mut Parameters) {
        self.0.parameters(parameters);
    }

    fn arrays(&self, each: &mut dyn FnMut(u64, usize)) {
        self.0.arrays(each);
    }

    fn at(place: &mut dyn FnMut(usize) -> usize) -> Self {
        Self(P::at(place))
    }

    #[inline(always)]
    fn zeroed() -> Self::Item {
        [P::zeroed(); V]
    }

    #[inline(always)]
    fn offset(self, count: usize) -> Self {
        Self(self.0.offset(count * V))
    }

    #[inline(always)]
    fn head(self) -> Option<u32> {
        Some(0)
    }

    #[inline(always)]
    unsafe fn read(self) -> Self::Item {
        // SAFETY: as the caller promises; V items lie at a multiple of their size.
        P::items(unsafe { self.0.load::<V>() })
    }

    #[inline(always)]
    unsafe fn load<const WIDTH: usize>(self) -> [Self::Item; WIDTH] {
        // SAFETY: as the caller promises.
        unsafe { self.load_each() }
    }
}

/// The operator `O` for each of V columns, with the result of a column without a value.
#[derive(Clone, Copy)]
pub struct Each<O, R, const V: usize> {
    ops: [O; V],
    default: R,
}

impl<O: Copy, R, const V: usize> Each<O, R, V> {
    #[inline(always)]
    pub fn new(op: O, default: R) -> Self {
        Self { ops: [op; V], default }
    }
}

impl<I: Copy + 'static, O: Op<I>, const V: usize> Op<[I; V]> for Each<O, O::Output, V> {
    const NAME: &'static str = O::NAME;
    type Accumulator = [O::Accumulator; V];
    type Output = [O::Output; V];
    const EXACT: bool = O::EXACT;

    fn agent() -> impl Agent<Self, [I; V]> {
        EachColumn
    }

    #[inline(always)]
    fn begin(&self, first: [I; V]) -> Self {
        Self { ops: from_fn(|column| self.ops[column].begin(first[column])), ..*self }
    }

    #[inline(always)]
    fn end(&self, all: Self::Accumulator, count: u64) -> Self::Accumulator {
        from_fn(|column| self.ops[column].end(all[column], count))
    }

    fn parameters(&self) -> &[u8] {
        self.ops[0].parameters()
    }

    #[inline(always)]
    fn identity(&self) -> Self::Accumulator {
        from_fn(|column| self.ops[column].identity())
    }

    #[inline(always)]
    fn lift(&self, items: [I; V], index: u64) -> Self::Accumulator {
        from_fn(|column| self.ops[column].lift(items[column], index))
    }

    #[inline(always)]
    fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator {
        from_fn(|column| self.ops[column].combine(a[column], b[column]))
    }

    fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output> {
        Some(from_fn(|column| self.ops[column].finish(all[column], count).unwrap_or(self.default)))
    }
}

/// Folds each column as the operator's own agent does.
#[derive(Clone, Copy)]
pub(crate) struct EachColumn;

impl<I: Copy + 'static, O: Op<I>, const V: usize> Agent<Each<O, O::Output, V>, [I; V]> for EachColumn {
    const COLUMNS: usize = V;
    const FOLDS_BY_LOADS: bool = folds_by_loads::<O, I>();
    const TAKES_LONG: bool = takes_long::<O, I>();

    #[inline(always)]
    fn fold_item(
        self,
        each: &Each<O, O::Output, V>,
        all: &mut [O::Accumulator; V],
        items: [I; V],
        index: u64,
    ) {
        unrolled::<V>(|column| {
            O::agent().fold_item(&each.ops[column], &mut all[column], items[column], index);
        });
    }

    #[inline(always)]
    fn fold_load<const WIDTH: usize>(
        self,
        each: &Each<O, O::Output, V>,
        all: &mut [[O::Accumulator; V]; WIDTH],
        items: [[I; V]; WIDTH],
        index: u64,
    ) {
        unrolled::<V>(|column| {
            let op = &each.ops[column];
            if O::EXACT {
                let mut of_column = [op.identity(); WIDTH];
                of_column[0] = all[0][column];
                O::agent().fold_load::<WIDTH>(op, &mut of_column, items.map(|items| items[column]), index);
                all[0][column] = of_column[0];
            } else {
                unrolled::<WIDTH>(|load| {
                    let index = index + load as u64;
                    O::agent().fold_item(op, &mut all[load][column], items[load][column], index);
                });
            }
        });
    }

    #[inline(always)]
    unsafe fn store(
        self,
        each: &Each<O, O::Output, V>,
        (all, count): ([O::Accumulator; V], u64),
        results: *mut [O::Output; V],
        index: usize,
    ) -> bool {
        let results = results.cast::<O::Output>();
        unrolled::<V>(|column| {
            let index = V * index + column;
            // SAFETY: as the caller vouches; there are V results for each index.
            unsafe {
                if !O::agent().store(&each.ops[column], (all[column], count), results, index) {
                    slot::store(results.add(index), each.default);
                }
            }
        });
        true
    }
}
