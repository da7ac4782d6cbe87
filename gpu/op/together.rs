//! Several operators in one pass.

use super::{Max, Mean, Min, Sum, Var};
use crate::agent::Agent;
use crate::agent::several::{As, Nested, Pair};
use crate::kernels::Kernels;
use crate::op::Op;
use bytemuck::{Pod, Zeroable};
use core::marker::PhantomData;

/// Two operators in one pass, or their two results.
///
/// In kernels it stands for `(A, B)`; `Both<A, Both<B, C>>` stands for `(A, B, C)`.
///
/// Each result has the bits that its operator has alone. So operators that are not [`EXACT`](Op::EXACT) must
/// fold equally many items side by side; if they do not, or if no such kernel is compiled, they run one after
/// another.
///
/// [`kernels!`](crate::kernels!) compiles kernels for your own operators, as `NAME: Both<MyOp, Sum>, f32;`,
/// in the crate of the first operator that has kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C, packed)]
pub struct Both<A, B>(pub A, pub B);

impl<I: Copy + 'static, A: Op<I>, B: Op<I>> Op<I> for Both<A, B> {
    const NAME: &'static str = "several operators";
    type Accumulator = Both<A::Accumulator, B::Accumulator>;
    type Output = Both<A::Output, B::Output>;
    const EXACT: bool = A::EXACT && B::EXACT;
    const KERNELS: Kernels = if A::KERNELS.is_none() { B::KERNELS } else { A::KERNELS };

    fn agent() -> impl Agent<Self, I> {
        Pair
    }

    #[inline(always)]
    fn begin(&self, first: I) -> Self {
        let Self(a, b) = *self;
        Self(a.begin(first), b.begin(first))
    }

    #[inline(always)]
    fn end(&self, all: Self::Accumulator, count: u64) -> Self::Accumulator {
        let (Self(a, b), Both(of_a, of_b)) = (*self, all);
        Both(a.end(of_a, count), b.end(of_b, count))
    }

    #[inline(always)]
    fn identity(&self) -> Self::Accumulator {
        let Self(a, b) = *self;
        Both(a.identity(), b.identity())
    }

    #[inline(always)]
    fn lift(&self, item: I, index: u64) -> Self::Accumulator {
        let Self(a, b) = *self;
        Both(a.lift(item, index), b.lift(item, index))
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, items: [I; N], index: u64) -> Self::Accumulator {
        let Self(a, b) = *self;
        Both(a.lift_load(items, index), b.lift_load(items, index))
    }

    #[inline(always)]
    fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator {
        let (Self(op, other), Both(a, of_a), Both(b, of_b)) = (*self, a, b);
        Both(op.combine(a, b), other.combine(of_a, of_b))
    }

    #[inline(always)]
    fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output> {
        let (Self(a, b), Both(of_a, of_b)) = (*self, all);
        Some(Both(a.finish(of_a, count)?, b.finish(of_b, count)?))
    }
}

/// A tuple as nested pairs: its type, or its value, which is also the pattern of its results.
macro_rules! nested {
    (type $last:ident) => { $last };
    (type $first:ident $($rest:ident)+) => { Both<$first, nested!(type $($rest)+)> };
    (value $last:ident) => { $last };
    (value $first:ident $($rest:ident)+) => { Both($first, nested!(value $($rest)+)) };
}

macro_rules! tuples {
    ($($($op:ident)+;)*) => {$(
        #[allow(non_snake_case)]
        impl<I: Copy + 'static, $($op: Op<I>),+> Nested<I, nested!(type $($op)+)> for ($($op),+) {
            #[inline(always)]
            fn nested(&self) -> nested!(type $($op)+) {
                let ($($op),+) = *self;
                nested!(value $($op)+)
            }

            fn flat(nested!(value $($op)+): <nested!(type $($op)+) as Op<I>>::Output) -> Self::Output {
                ($($op),+)
            }
        }

        #[allow(non_snake_case)]
        impl<I: Copy + 'static, $($op: Op<I>),+> Op<I> for ($($op),+) {
            const NAME: &'static str = <nested!(type $($op)+) as Op<I>>::NAME;
            type Accumulator = <nested!(type $($op)+) as Op<I>>::Accumulator;
            type Output = ($($op::Output),+);
            const EXACT: bool = <nested!(type $($op)+) as Op<I>>::EXACT;

            fn agent() -> impl Agent<Self, I> {
                As::<nested!(type $($op)+)>(PhantomData)
            }

            #[inline(always)]
            fn begin(&self, first: I) -> Self {
                let ($($op),+) = *self;
                ($($op.begin(first)),+)
            }

            #[inline(always)]
            fn end(&self, all: Self::Accumulator, count: u64) -> Self::Accumulator {
                self.nested().end(all, count)
            }

            #[inline(always)]
            fn identity(&self) -> Self::Accumulator {
                self.nested().identity()
            }

            #[inline(always)]
            fn lift(&self, item: I, index: u64) -> Self::Accumulator {
                self.nested().lift(item, index)
            }

            #[inline(always)]
            fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator {
                self.nested().combine(a, b)
            }

            #[inline(always)]
            fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output> {
                self.nested().finish(all, count).map(<Self as Nested<I, nested!(type $($op)+)>>::flat)
            }
        }
    )*};
}

tuples! {
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}

// The library compiles kernels for these.
#[allow(dead_code)] // in a build for CPUs alone, as the others below
pub(crate) type SumMinMax = Both<Sum, Both<Min, Max>>;
#[allow(dead_code)]
pub(crate) type MeanVar = Both<Mean, Var>;
#[cfg(not(target_arch = "nvptx64"))]
#[allow(dead_code)]
pub(crate) type MeanStd = Both<Mean, super::Std>;
