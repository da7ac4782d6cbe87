//! Types of items that have one kernel: `u8` and `i8`, `f16` and `bf16`.
//!
//! A kernel of [`Twins<A, B, J>`] reduces items of type `I` by `A`, or items of type `J`, which have as many bytes, by `B`,
//! which is the same operator. A parameter of the launch, `member`, says which of the two types the items have. The kernel computes
//! the values for both types, and chooses one. The host writes the parameter into the PTX as a constant, so that the driver
//! leaves out the code for the other type. The kernel then has nearly as few instructions as a kernel for one type. With a branch in
//! place of the choice, it had twice as many.
//!
//! A kernel of [`Either<O>`] does the same with less text, for an operator that reduces items [by value](ByValue): it chooses what is
//! taken of an item, and computes the rest once.

use crate::agent::twins::{ByEither, ByTwin};
use crate::agent::{self, Agent};
use crate::element::Element;
use crate::op::by_value::ByValue;
use crate::op::shared::{Member, SECOND, Serves, store_result};
use crate::op::together::Both;
use crate::op::{
    Cosine, CountWhere, DistanceL1, DistanceSquared, Dot, LogSumExp, Mean, NanVar, NormL1, NormL2, NormMax,
    Op, Prod, Skewness, Std, Sum, SumSq, SumWhere, Var, WeightedMean, width,
};
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

/// Operator `O` for items of a kernel's type, or of the type that shares the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Either<O> {
    pub(crate) op: O,
    is_second: bool,
}

/// An operator that reduces items of two types by value.
pub trait InKernel: Copy {
    /// The operator that its kernels fold by.
    type Either;

    /// Returns that operator for the type of items that `member` says.
    fn of_either(self, member: u32) -> Self::Either;
}

macro_rules! in_kernels {
    ($($op:ty $(, $type:ident)?;)*) => {$(
        impl$(<$type: Element>)? InKernel for $op {
            type Either = Either<Self>;

            #[inline(always)]
            fn of_either(self, member: u32) -> Either<Self> {
                Either { op: self, is_second: member & SECOND != 0 }
            }
        }
    )*};
}

in_kernels! {
    Sum;
    Prod;
    SumSq;
    Mean;
    Var;
    NanVar;
    Skewness;
    NormL1;
    NormL2;
    NormMax;
    CountWhere<T>, T;
    SumWhere<T>, T;
    Dot;
    DistanceSquared;
    DistanceL1;
    WeightedMean;
    Cosine;
}

impl<A: InKernel, B: InKernel> InKernel for Both<A, B> {
    type Either = Both<A::Either, B::Either>;

    #[inline(always)]
    fn of_either(self, member: u32) -> Self::Either {
        let Self(a, b) = self;
        Both(a.of_either(member), b.of_either(member))
    }
}

/// What takes a value of an item knows of which type the item is.
impl InKernel for LogSumExp {
    type Either = Self;

    #[inline(always)]
    fn of_either(self, member: u32) -> Self {
        self.of_twin(member & SECOND != 0)
    }
}

impl<I: Copy + 'static, O: ByValue<I>> Op<I> for Either<O> {
    const NAME: &'static str = O::NAME;
    type Accumulator = O::Accumulator;
    type Output = O::Output;
    const EXACT: bool = O::EXACT;

    fn agent() -> impl Agent<Self, I> {
        ByEither
    }

    #[inline(always)]
    fn begin(&self, first: I) -> Self {
        Self { op: self.op.begin_twin(first, self.is_second), ..*self }
    }

    #[inline(always)]
    fn end(&self, all: O::Accumulator, count: u64) -> O::Accumulator {
        self.op.end(all, count)
    }

    fn parameters(&self) -> &[u8] {
        self.op.parameters()
    }

    #[inline(always)]
    fn identity(&self) -> O::Accumulator {
        self.op.identity()
    }

    #[inline(always)]
    fn lift(&self, item: I, index: u64) -> O::Accumulator {
        self.op.lift_twin(item, index, self.is_second)
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, items: [I; N], index: u64) -> O::Accumulator {
        self.op.lift_load_twin(items, index, self.is_second)
    }

    #[inline(always)]
    fn combine(&self, a: O::Accumulator, b: O::Accumulator) -> O::Accumulator {
        self.op.combine(a, b)
    }

    #[inline(always)]
    fn finish(&self, all: O::Accumulator, count: u64) -> Option<O::Output> {
        self.op.finish_twin(all, count, self.is_second)
    }
}

impl<I: Copy + 'static, O: ByValue<I> + Serves<I>> Serves<I> for Either<O> {
    #[inline(always)]
    unsafe fn store(
        &self,
        member: u32,
        all: O::Accumulator,
        count: u64,
        results: *mut O::Output,
        index: usize,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { self.op.store(member, all, count, results, index) };
    }
}

impl<T: Element, A: Op<T>> Serves<T> for Both<A, Either<Var>> {
    #[inline(always)]
    unsafe fn store(
        &self,
        member: u32,
        all: <Self as Op<T>>::Accumulator,
        count: u64,
        results: *mut <Self as Op<T>>::Output,
        index: usize,
    ) {
        let Self(a, var) = *self;
        // SAFETY: as the caller vouches.
        unsafe {
            match member {
                Std::MEMBER => {
                    store_result::<_, T>(&Both(a, var.op.root()), all, count, results.cast(), index)
                }
                _ => store_result::<_, T>(self, all, count, results, index),
            };
        }
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
    use crate::op::shared::Shared;
    use crate::op::{ArgMin, Comparison, Max, Min, Moments};
    use crate::{bf16, f16};
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

    /// Checks the kernel of a comparison, whose scalar has the items' type.
    fn check_comparison<A, B, I, J>(first: A, second: B, items: &[J; 8])
    where
        I: Copy + 'static,
        J: Copy + 'static,
        A: InKernel<Either: Op<I>> + Op<I, Output: Pod>,
        B: Op<J, Output: Pod>,
    {
        check_kernel::<I, _, _, _>(recast::<B, A>(second).of_either(SECOND), second, items);
        check_kernel::<I, _, _, _>(first.of_either(0), first, &items.map(recast::<J, I>));
    }

    fn check_all<I, J>(items: &[J; 8])
    where
        I: Element<Wide: Pod, Real: Pod>,
        J: Element<Wide: Pod, Real: Pod>,
    {
        check_both::<Max, Max, I, J>(Max, items);
        check_both::<Min, Min, I, J>(Min, items);
        check_both::<ArgMin, ArgMin, I, J>(ArgMin, items);
        check_either::<I, _, _, _>(Sum, Sum, items);
        check_either::<I, _, _, _>(Prod, Prod, items);
        check_either::<I, _, _, _>(SumSq, SumSq, items);
        check_either::<I, _, _, _>(NormL1, NormL1, items);
        check_either::<I, _, _, _>(NormL2, NormL2, items);
        check_either::<I, _, _, _>(NormMax, NormMax, items);
        let pairs: [(J, J); 8] = core::array::from_fn(|index| (items[index], items[(index + 3) % 8]));
        check_either::<(I, I), _, _, _>(Dot, Dot, &pairs);
        check_either::<(I, I), _, _, _>(DistanceSquared, DistanceSquared, &pairs);
        check_either::<(I, I), _, _, _>(DistanceL1, DistanceL1, &pairs);
        check_either::<(I, I), _, _, _>(WeightedMean, WeightedMean, &pairs);
        check_either::<(I, I), _, _, _>(Cosine, Cosine, &pairs);
        check_either::<I, _, _, _>(Mean, Mean, items);
        check_either::<I, _, _, _>(Var::new(1), Var::new(1), items);
        check_either::<I, _, _, _>(NanVar::new(1), NanVar::new(1), items);
        check_either::<I, _, _, _>(Skewness, Skewness, items);
        check_either::<I, _, _, _>(LogSumExp, LogSumExp, items);
        use Comparison::*;
        for (index, scalar) in items.iter().enumerate() {
            let of_first = items.map(recast::<J, I>);
            macro_rules! comparisons {
                ($($comparison:ident)*) => {$(
                    let (first, second) = ($comparison(of_first[index]), $comparison(*scalar));
                    check_comparison::<CountWhere<I>, CountWhere<J>, I, J>(CountWhere::new(first), CountWhere::new(second), items);
                    check_comparison::<SumWhere<I>, SumWhere<J>, I, J>(SumWhere::new(first), SumWhere::new(second), items);
                )*};
            }
            comparisons! { Less LessEqual Greater GreaterEqual Equal NotEqual }
        }
        check_shared::<I, _, _, _>(Var::new(1), Std::new(1), items);
        check_shared::<I, _, _, _>(Skewness, Moments, items);
    }

    /// Checks that a kernel of `kernel` stores the results of `alone` for items of type `Q`.
    fn check_kernel<I, K, O, Q>(kernel: K, alone: O, items: &[Q])
    where
        I: Copy + 'static,
        K: Op<I>,
        O: Op<Q, Output: Pod>,
        Q: Copy + 'static,
    {
        let (kernel, alone) = (kernel.begin(recast(items[0])), alone.begin(items[0]));
        // Half of the items each in two accumulators, and if the order does not matter, once more at a time.
        let (mut of_kernel, mut of_alone) = ([kernel.identity(); 2], [alone.identity(); 2]);
        let fold = |all: &mut [O::Accumulator; 2], index: usize| {
            O::agent().fold_item(&alone, &mut all[index % 2], items[index], index as u64);
        };
        for index in 0..items.len() {
            K::agent().fold_item(&kernel, &mut of_kernel[index % 2], recast(items[index]), index as u64);
            fold(&mut of_alone, index);
        }
        // Products of a load are computed by an instruction that only a GPU has.
        if K::EXACT && K::NAME != "prod" {
            let load: [I; 4] = core::array::from_fn(|index| recast(items[index]));
            K::agent().fold_load(&kernel, &mut of_kernel, [load[0], load[1]], 0);
            K::agent().fold_load(&kernel, &mut of_kernel, [load[2], load[3]], 2);
            (0..4).for_each(|index| fold(&mut of_alone, index));
        }
        let count = items.len() as u64;
        let (of_kernel, of_alone) =
            (kernel.combine(of_kernel[0], of_kernel[1]), alone.combine(of_alone[0], of_alone[1]));
        let (of_kernel, of_alone) = (kernel.end(of_kernel, count), alone.end(of_alone, count));
        let (expected, mut stored) = (alone.finish(of_alone, count).unwrap(), O::Output::zeroed());
        // SAFETY: there is a place for a result.
        assert!(unsafe { K::agent().store(&kernel, (of_kernel, count), (&raw mut stored).cast(), 0) });
        assert_eq!(bytes_of(&stored), bytes_of(&expected), "{} {}", O::NAME, core::any::type_name::<Q>());
    }

    /// Checks the kernel of an operator for both of two types.
    fn check_either<I, A, B, J>(op: A, of_second: B, items: &[J])
    where
        I: Copy + 'static,
        J: Copy + 'static,
        A: InKernel<Either: Op<I>> + Op<I, Output: Pod>,
        B: Op<J, Output: Pod>,
    {
        check_kernel::<I, _, _, _>(op.of_either(SECOND), of_second, items);
        let items: std::vec::Vec<I> = items.iter().map(|&item| recast(item)).collect();
        check_kernel::<I, _, _, _>(op.of_either(0), op, &items);
    }

    /// Checks the kernel that `A` shares with `M`.
    fn check_shared<I, A, M, J>(op: A, alone: M, items: &[J])
    where
        I: Copy + 'static,
        J: Copy + 'static,
        A: InKernel<Either: Serves<I>>,
        M: Op<J, Output: Pod>,
    {
        let member = const { member::<M, J>() };
        assert_eq!(member & SECOND, SECOND);
        check_kernel::<I, _, _, _>(Shared::new(op.of_either(member), member), alone, items);
    }

    #[test]
    fn each_twin_has_its_own_results() {
        check_all::<u8, i8>(&[-3, 7, 100, -128, 0, 127, -1, 5]);
        check_all::<u16, i16>(&[-3, 7, 100, i16::MIN, 0, i16::MAX, -1, 5]);
        check_all::<u32, i32>(&[-3, 7, 100, i32::MIN, 0, i32::MAX, -1, 5]);
        check_all::<u64, i64>(&[-3, 7, 100, i64::MIN, 0, i64::MAX, -1, 5]);
        check_all::<f16, bf16>(&[-3.0, 7.5, 1e30, -0.0, 0.0, 2.0, -1.0, 5.0].map(bf16::from_f32));
    }
}
