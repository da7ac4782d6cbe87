//! Types of items that have one kernel: `u8` and `i8`, `f16` and `bf16`.
//!
//! A kernel of [`Twins<A, B, J>`] reduces items of type `I` by `A`, or items of type `J`, which have as many bytes, by `B`,
//! which is the same operator. A parameter of the launch, `member`, says which. Both are computed, and one of the two values
//! is chosen. The host writes the parameter into the PTX as a constant, so that the driver leaves out the other: the machine
//! code is that of a kernel for one type. A branch for each value left more of it.

use crate::agent::twins::ByTwin;
use crate::agent::{self, Agent};
use crate::op::shared::{Serves, Shared};
use crate::op::{Op, width};
use crate::{columns, segments};
use core::marker::PhantomData;
use core::mem::transmute_copy;

/// The bit of `member` that says that the items are of the second type.
pub const SECOND: u32 = 1 << 31;

/// Operator `A` for the kernel's items, and `B` for items of type `J` in their place.
#[derive(Clone, Copy, Debug)]
pub struct Twins<A, B, J> {
    pub(crate) first: A,
    pub(crate) second: B,
    pub(crate) is_second: bool,
    items: PhantomData<fn(J) -> J>,
}

impl<A: Copy, B: Copy, J: Copy + 'static> Twins<A, B, J> {
    /// The operators of a kernel whose operator is `op` and which is not shared.
    #[inline(always)]
    pub fn new<I: Copy + 'static>(op: A, member: u32) -> Self
    where
        A: Op<I>,
        B: Op<J>,
    {
        const {
            assert!(size_of::<A::Output>() == size_of::<B::Output>(), "the results' sizes");
            assert!(A::EXACT == B::EXACT, "whether the order matters");
            assert!(width::<A, I>(size_of::<I>()) == width::<B, J>(size_of::<J>()), "the widths");
            assert!(agent::folds_by_loads::<A, I>() == agent::folds_by_loads::<B, J>(), "how blocks fold");
            assert!(
                agent::summed_from::<A, I>().is_none() && agent::summed_from::<B, J>().is_none(),
                "exact sums"
            );
            assert!(segments::slots::<A, I>(1) == segments::slots::<B, J>(1), "the slots");
            assert!(columns::loads::<A, I>() == columns::loads::<B, J>(), "the loads of columns");
        }
        Self { first: op, second: recast(op), is_second: member & SECOND != 0, items: PhantomData }
    }
}

impl<A: Copy, B: Copy, J: Copy + 'static> Twins<Shared<A>, Shared<B>, J> {
    /// The operators of a kernel whose operator is `op`, and which other operators share.
    #[inline(always)]
    pub fn shared<I: Copy + 'static>(op: A, member: u32) -> Self
    where
        A: Serves<I>,
        B: Serves<J>,
    {
        let Twins { second, is_second, .. } = Twins::<A, B, J>::new(op, member);
        let (first, second) = (Shared::new(op, member), Shared::new(second, member));
        Self { first, second, is_second, items: PhantomData }
    }
}

impl<I: Copy + 'static, J: Copy + 'static, A: Op<I>, B: Op<J>> Op<I> for Twins<A, B, J> {
    const NAME: &'static str = A::NAME;
    type Accumulator = A::Accumulator;
    type Output = A::Output;
    const EXACT: bool = A::EXACT;

    fn agent() -> impl Agent<Self, I> {
        ByTwin
    }

    #[inline(always)]
    fn begin(&self, item: I) -> Self {
        Self { first: self.first.begin(item), second: self.second.begin(recast(item)), ..*self }
    }

    #[inline(always)]
    fn end(&self, all: A::Accumulator, count: u64) -> A::Accumulator {
        self.choose(self.first.end(all, count), self.second.end(recast(all), count))
    }

    fn parameters(&self) -> &[u8] {
        self.first.parameters()
    }

    #[inline(always)]
    fn identity(&self) -> A::Accumulator {
        self.choose(self.first.identity(), self.second.identity())
    }

    #[inline(always)]
    fn lift(&self, item: I, index: u64) -> A::Accumulator {
        self.choose(self.first.lift(item, index), self.second.lift(recast(item), index))
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, items: [I; N], index: u64) -> A::Accumulator {
        self.choose(
            self.first.lift_load(items, index),
            self.second.lift_load(recast::<[I; N], [J; N]>(items), index),
        )
    }

    #[inline(always)]
    fn combine(&self, a: A::Accumulator, b: A::Accumulator) -> A::Accumulator {
        self.choose(self.first.combine(a, b), self.second.combine(recast(a), recast(b)))
    }

    #[inline(always)]
    fn finish(&self, all: A::Accumulator, count: u64) -> Option<A::Output> {
        if self.is_second {
            self.second.finish(recast(all), count).map(recast)
        } else {
            self.first.finish(all, count)
        }
    }
}

impl<A, B, J> Twins<A, B, J> {
    /// Returns the value of the operator that is meant.
    #[inline(always)]
    pub(crate) fn choose<T: Copy, U: Copy>(&self, first: T, second: U) -> T {
        if self.is_second { recast(second) } else { first }
    }
}

/// Returns a value of one twin as that of the other, which has the same bytes.
#[inline(always)]
pub(crate) fn recast<T: Copy, U: Copy>(value: T) -> U {
    const { assert!(size_of::<T>() == size_of::<U>()) };
    // SAFETY: the sizes are the same, and twins are types of numbers, operators that have fields of such types, and their
    // accumulators and results, which are plain.
    unsafe { transmute_copy(&value) }
}
