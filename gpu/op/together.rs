//! Several operators in one pass.

use super::{Max, Mean, Min, Std, Sum, Var};
#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{self, Source};
use crate::kernels::Kernels;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::Folder;
use crate::op::{Op, Reducer, Room};
use bytemuck::{Pod, Zeroable};
use core::array::from_fn;
#[cfg(not(target_arch = "nvptx64"))]
use std::vec::Vec;

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
    const ROOM: Room<Self, I> = Room::of_both::<A, B>();

    #[inline(always)]
    fn begin(&self, first: I) -> Self {
        let Self(a, b) = *self;
        Self(a.begin(first), b.begin(first))
    }

    fn each_part(&self, each: &mut dyn FnMut(&'static str, &[u8])) {
        let Self(a, b) = *self;
        a.each_part(each);
        b.each_part(each);
    }

    fn without_value(&self) -> &'static str {
        let Self(a, b) = *self;
        if a.finish(a.identity(), 0).is_none() { a.without_value() } else { b.without_value() }
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
    fn fold_load<const WIDTH: usize>(
        &self,
        all: &mut [Self::Accumulator; WIDTH],
        items: [I; WIDTH],
        index: u64,
    ) {
        let Self(a, b) = *self;
        let (mut of_a, mut of_b) = (all.map(|Both(of_a, _)| of_a), all.map(|Both(_, of_b)| of_b));
        a.fold_load(&mut of_a, items, index);
        b.fold_load(&mut of_b, items, index);
        *all = from_fn(|place| Both(of_a[place], of_b[place]));
    }

    /// Each operator folds the chunk alone, which fits in a cache.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = I>>(&self, chunk: S, first: u64, row: usize) -> Self::Accumulator {
        let Self(a, b) = *self;
        Both(cpu::fold_by_table(&a, chunk, first, row), cpu::fold_by_table(&b, chunk, first, row))
    }

    #[inline(always)]
    fn by_parts<R: Reducer<I>>(&self, reducer: &R) -> Result<R::Outcome<Self::Output>, R::Error> {
        let Self(a, b) = *self;
        if reducer.has::<Self>()? {
            reducer.reduce(self)
        } else {
            Ok(R::join(a.by_parts(reducer)?, b.by_parts(reducer)?))
        }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn fold_by_parts<F: Folder<I>>(&self, folder: &F) -> Result<Vec<Self::Accumulator>, F::Error> {
        let Self(a, b) = *self;
        if folder.has::<Self>()? {
            return folder.fold(self);
        }
        let (of_a, of_b) = (a.fold_by_parts(folder)?, b.fold_by_parts(folder)?);
        Ok(of_a.into_iter().zip(of_b).map(|(of_a, of_b)| Both(of_a, of_b)).collect())
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
        impl<I: Copy + 'static, $($op: Op<I>),+> Op<I> for ($($op),+) {
            const NAME: &'static str = <nested!(type $($op)+) as Op<I>>::NAME;
            type Accumulator = <nested!(type $($op)+) as Op<I>>::Accumulator;
            type Output = ($($op::Output),+);
            const EXACT: bool = <nested!(type $($op)+) as Op<I>>::EXACT;
            const ROOM: Room<Self, I> = Room::same_as::<nested!(type $($op)+), I>();

            #[inline(always)]
            fn begin(&self, first: I) -> Self {
                let ($($op),+) = *self;
                ($($op.begin(first)),+)
            }

            fn each_part(&self, each: &mut dyn FnMut(&'static str, &[u8])) {
                let ($($op),+) = *self;
                $($op.each_part(each);)+
            }

            fn without_value(&self) -> &'static str {
                let ($($op),+) = *self;
                nested!(value $($op)+).without_value()
            }

            #[inline(always)]
            fn end(&self, all: Self::Accumulator, count: u64) -> Self::Accumulator {
                let ($($op),+) = *self;
                nested!(value $($op)+).end(all, count)
            }

            #[inline(always)]
            fn identity(&self) -> Self::Accumulator {
                let ($($op),+) = *self;
                nested!(value $($op)+).identity()
            }

            #[inline(always)]
            fn lift(&self, item: I, index: u64) -> Self::Accumulator {
                let ($($op),+) = *self;
                nested!(value $($op)+).lift(item, index)
            }

            #[inline(always)]
            fn by_parts<R: Reducer<I>>(&self, reducer: &R) -> Result<R::Outcome<Self::Output>, R::Error> {
                let ($($op),+) = *self;
                let outcome = nested!(value $($op)+).by_parts(reducer)?;
                Ok(R::map(outcome, |nested!(value $($op)+)| ($($op),+)))
            }

            /// As the nested pairs fold: their accumulators are the same.
            #[cfg(not(target_arch = "nvptx64"))]
            fn fold_by_parts<R: Folder<I>>(&self, folder: &R) -> Result<Vec<Self::Accumulator>, R::Error> {
                let ($($op),+) = *self;
                nested!(value $($op)+).fold_by_parts(folder)
            }

            #[inline(always)]
            fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator {
                let ($($op),+) = *self;
                nested!(value $($op)+).combine(a, b)
            }

            #[inline(always)]
            fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output> {
                let ($($op),+) = *self;
                let nested!(value $($op)+) = nested!(value $($op)+).finish(all, count)?;
                Some(($($op),+))
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
pub(crate) type SumMinMax = Both<Sum, Both<Min, Max>>;
pub(crate) type MeanVar = Both<Mean, Var>;
pub(crate) type MeanStd = Both<Mean, Std>;
