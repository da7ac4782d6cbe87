//! Types of items that have one kernel: `u8` and `i8`, `f16` and `bf16`.
//!
//! A kernel of [`Twins<A, B, J>`] reduces items of type `I` by `A`, or items of type `J`, which have as many bytes, by `B`,
//! which is the same operator. A parameter of the launch, `member`, says which of the two types the items have. The kernel computes
//! the values for both types, and chooses one. The host writes the parameter into the PTX as a constant, so that the driver
//! leaves out the code for the other type. The kernel then has nearly as few instructions as a kernel for one type. With a branch in
//! place of the choice, it had twice as many.

use crate::agent::twins::ByTwin;
use crate::agent::{self, Agent};
use crate::op::shared::{SECOND, Serves, Shared};
use crate::op::{Op, width};
use crate::{columns, segments};
use core::marker::PhantomData;
use core::mem::transmute_copy;

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

/// Returns the bytes of a value of one type as a value of the other.
#[inline(always)]
pub(crate) fn recast<T: Copy, U: Copy>(value: T) -> U {
    const { assert!(size_of::<T>() == size_of::<U>()) };
    // SAFETY: the sizes are the same, and twins are types of numbers, operators that have fields of such types, and their
    // accumulators and results, which are plain.
    unsafe { transmute_copy(&value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::member;
    use crate::op::{ArgMin, CountWhere, Max, NormMax, Std, Sum, Var};
    use crate::{Comparison, Element, bf16, f16};
    use bytemuck::{Pod, Zeroable, bytes_of};

    /// Folds items of type `Q` by `Twins` and by `alone`, the operator for `Q`, and compares the bytes of the results.
    fn check<A, B, I, J, O, Q>(op: A, member: u32, alone: O, items: &[Q])
    where
        A: Op<I, Output: Pod>,
        B: Op<J>,
        O: Op<Q, Output: Pod>,
        I: Copy + 'static,
        J: Copy + 'static,
        Q: Copy + 'static,
    {
        let twins = Twins::<A, B, J>::new::<I>(op, member).begin(recast(items[0]));
        let alone = alone.begin(items[0]);
        // Half of the items each in two accumulators. (Several at once are folded by instructions that only a GPU has.)
        let (mut of_twins, mut of_alone) = ([twins.identity(); 2], [alone.identity(); 2]);
        for (index, &item) in items.iter().enumerate() {
            ByTwin.fold_item(&twins, &mut of_twins[index % 2], recast(item), index as u64);
            O::agent().fold_item(&alone, &mut of_alone[index % 2], item, index as u64);
        }
        let of_twins = twins.combine(of_twins[0], of_twins[1]);
        let of_alone = alone.combine(of_alone[0], of_alone[1]);
        let count = items.len() as u64;
        let (a, b) = (twins.end(of_twins, count), alone.end(of_alone, count));
        let (result, expected) = (twins.finish(a, count).unwrap(), alone.finish(b, count).unwrap());
        assert_eq!(bytes_of(&result), bytes_of(&expected), "{} {}", A::NAME, core::any::type_name::<Q>());
        let mut stored = [expected; 2];
        // SAFETY: there are two places for results.
        assert!(unsafe { ByTwin.store(&twins, (a, count), (&raw mut stored).cast(), 1) });
        assert_eq!(bytes_of(&stored[1]), bytes_of(&expected));
    }

    /// Checks an operator for both of two types.
    fn check_both<A, B, I, J>(op: A, items: &[J])
    where
        A: Op<I, Output: Pod>,
        B: Op<J, Output: Pod>,
        I: Copy + 'static,
        J: Copy + 'static,
    {
        check::<A, B, I, J, B, J>(op, SECOND, recast(op), items);
        let items: std::vec::Vec<I> = items.iter().map(|&item| recast(item)).collect();
        check::<A, B, I, J, A, I>(op, 0, op, &items);
    }

    fn check_all<I, J>(items: &[J], scalar: I)
    where
        I: Element<Wide: Pod, Real: Pod>,
        J: Element<Wide: Pod, Real: Pod>,
    {
        check_both::<Sum, Sum, I, J>(Sum, items);
        check_both::<Max, Max, I, J>(Max, items);
        check_both::<ArgMin, ArgMin, I, J>(ArgMin, items);
        check_both::<NormMax, NormMax, I, J>(NormMax, items);
        check_both::<Var, Var, I, J>(Var::new(1), items);
        let greater = CountWhere::new(Comparison::Greater(scalar));
        check_both::<CountWhere<I>, CountWhere<J>, I, J>(greater, items);
        check_shared::<Var, Var, Std, I, J>(Var::new(1), Std::new(1), items);
    }

    /// Checks that a shared kernel stores the results of `M` for items of the second type.
    fn check_shared<A, B, M, I, J>(op: A, alone: M, items: &[J])
    where
        A: Serves<I>,
        B: Serves<J>,
        M: Op<J, Output: Pod>,
        I: Copy + 'static,
        J: Copy + 'static,
    {
        let member = const { member::<M, J>() };
        assert_eq!(member & SECOND, SECOND);
        let twins = Twins::<Shared<A>, Shared<B>, J>::shared::<I>(op, member).begin(recast(items[0]));
        let alone = alone.begin(items[0]);
        let (mut of_twins, mut of_alone) = (twins.identity(), alone.identity());
        for (&item, index) in items.iter().zip(0..) {
            ByTwin.fold_item(&twins, &mut of_twins, recast(item), index);
            of_alone = alone.combine(of_alone, alone.lift(item, index));
        }
        let count = items.len() as u64;
        let (of_twins, of_alone) = (twins.end(of_twins, count), alone.end(of_alone, count));
        let (expected, mut stored) = (alone.finish(of_alone, count).unwrap(), M::Output::zeroed());
        // SAFETY: there is a place for a result.
        assert!(unsafe { ByTwin.store(&twins, (of_twins, count), (&raw mut stored).cast(), 0) });
        assert_eq!(bytes_of(&stored), bytes_of(&expected), "{}", M::NAME);
    }

    #[test]
    fn each_twin_has_its_own_results() {
        check_all::<u8, i8>(&[-3, 7, 100, -128, 0, 127, -1, 5], 100);
        check_all::<u16, i16>(&[-3, 7, 100, i16::MIN, 0, i16::MAX, -1, 5], 100);
        check_all::<u32, i32>(&[-3, 7, 100, i32::MIN, 0, i32::MAX, -1, 5], 100);
        check_all::<u64, i64>(&[-3, 7, 100, i64::MIN, 0, i64::MAX, -1, 5], 100);
        check_all::<f16, bf16>(&[-3.0, 7.5, 1e30, -0.0, 0.0, 2.0, -1.0, 5.0].map(bf16::from_f32), f16::ONE);
    }
}
