//! Several operators in one: [`Both`] and tuples.

use super::{Agent, Room, folds_by_loads, member, room};
use crate::op::{Both, Op};
use core::array::from_fn;
#[cfg(not(target_arch = "nvptx64"))]
use {
    super::{in_any_order, in_parts},
    crate::host_simd::{self, Source},
    std::vec::Vec,
};

/// A way to reduce some items by any operator: [`Agent::by_parts`] calls it.
pub trait Reducer<I: Copy + 'static> {
    /// The error of a reduction.
    type Error;

    /// What a reduction returns: its result, or a result that is pending.
    type Outcome<V: Copy + Send + 'static>;

    /// Whether it can reduce by the operator at once: on a GPU, whether there is a kernel for it.
    ///
    /// # Errors
    ///
    /// The kernel could not be found or loaded.
    fn has<O: Op<I>>(&self) -> Result<bool, Self::Error>;

    /// Reduces the items.
    ///
    /// # Errors
    ///
    /// The reduction failed.
    fn reduce<O: Op<I>>(&self, op: &O) -> Result<Self::Outcome<O::Output>, Self::Error>;

    /// Joins two outcomes.
    fn join<A: Copy + Send + 'static, B: Copy + Send + 'static>(
        a: Self::Outcome<A>,
        b: Self::Outcome<B>,
    ) -> Self::Outcome<Both<A, B>>;

    /// Converts an outcome.
    fn map<A: Copy + Send + 'static, B: Copy + Send + 'static>(
        a: Self::Outcome<A>,
        map: fn(A) -> B,
    ) -> Self::Outcome<B>;
}

/// A way to fold chunks into partial results, whatever the operator: [`Agent::fold_by_parts`] calls it.
#[cfg(not(target_arch = "nvptx64"))]
pub trait Folder<I: Copy + 'static> {
    /// The error of a fold.
    type Error;

    /// Whether it can fold by the operator where the items lie: on a GPU, whether there is a kernel for it.
    ///
    /// # Errors
    ///
    /// The kernel could not be found or loaded.
    fn has<O: Op<I>>(&self) -> Result<bool, Self::Error>;

    /// Returns the partial result of each chunk.
    ///
    /// # Errors
    ///
    /// The fold failed.
    fn fold<O: Op<I>>(&self, op: &O) -> Result<Vec<O::Accumulator>, Self::Error>;
}

/// Folds by two operators side by side.
#[derive(Clone, Copy)]
pub(crate) struct Pair;

impl<I: Copy + 'static, A: Op<I>, B: Op<I>> Agent<Both<A, B>, I> for Pair {
    const ROOM: Room = Room::of_both(room::<A, I>(), room::<B, I>());

    /// The library's pairs of operators that share kernels differ in the second operator.
    const MEMBER: u32 = member::<B, I>();

    #[cfg(not(target_arch = "nvptx64"))]
    const IN_PARTS: bool = in_parts::<A, I>() && in_parts::<B, I>();

    #[cfg(not(target_arch = "nvptx64"))]
    const IN_ANY_ORDER: bool =
        <Self as Agent<Both<A, B>, I>>::IN_PARTS && in_any_order::<A, I>() && in_any_order::<B, I>();

    #[cfg(not(target_arch = "nvptx64"))]
    fn moved(
        self,
        Both(of_a, of_b): Both<A::Accumulator, B::Accumulator>,
        by: u64,
    ) -> Both<A::Accumulator, B::Accumulator> {
        Both(A::agent().moved(of_a, by), B::agent().moved(of_b, by))
    }

    #[inline(always)]
    fn fold_load<const WIDTH: usize>(
        self,
        op: &Both<A, B>,
        all: &mut [Both<A::Accumulator, B::Accumulator>; WIDTH],
        items: [I; WIDTH],
        index: u64,
    ) {
        let Both(a, b) = *op;
        let (mut of_a, mut of_b) = (all.map(|Both(of_a, _)| of_a), all.map(|Both(_, of_b)| of_b));
        A::agent().fold_load(&a, &mut of_a, items, index);
        B::agent().fold_load(&b, &mut of_b, items, index);
        *all = from_fn(|place| Both(of_a[place], of_b[place]));
    }

    /// Each operator folds the chunk alone, which fits in a cache.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = I>>(
        self,
        op: &Both<A, B>,
        chunk: S,
        first: u64,
        row: usize,
    ) -> Both<A::Accumulator, B::Accumulator> {
        let Both(a, b) = *op;
        Both(host_simd::fold_by_table(&a, chunk, first, row), host_simd::fold_by_table(&b, chunk, first, row))
    }

    fn each_part(self, op: &Both<A, B>, each: &mut dyn FnMut(&'static str, &[u8])) {
        let Both(a, b) = *op;
        A::agent().each_part(&a, each);
        B::agent().each_part(&b, each);
    }

    fn without_value(self, op: &Both<A, B>) -> &'static str {
        let Both(a, b) = *op;
        if a.finish(a.identity(), 0).is_none() {
            A::agent().without_value(&a)
        } else {
            B::agent().without_value(&b)
        }
    }

    #[inline(always)]
    fn by_parts<R: Reducer<I>>(
        self,
        op: &Both<A, B>,
        reducer: &R,
    ) -> Result<R::Outcome<Both<A::Output, B::Output>>, R::Error> {
        if reducer.has::<Both<A, B>>()? {
            return reducer.reduce(op);
        }
        let Both(a, b) = *op;
        Ok(R::join(A::agent().by_parts(&a, reducer)?, B::agent().by_parts(&b, reducer)?))
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn fold_by_parts<F: Folder<I>>(
        self,
        op: &Both<A, B>,
        folder: &F,
    ) -> Result<Vec<Both<A::Accumulator, B::Accumulator>>, F::Error> {
        if folder.has::<Both<A, B>>()? {
            return folder.fold(op);
        }
        let Both(a, b) = *op;
        let of_a = A::agent().fold_by_parts(&a, folder)?;
        let of_b = B::agent().fold_by_parts(&b, folder)?;
        Ok(of_a.into_iter().zip(of_b).map(|(of_a, of_b)| Both(of_a, of_b)).collect())
    }
}

/// A tuple of operators, which folds as the nested pairs `N`.
pub trait Nested<I: Copy + 'static, N: Op<I>>: Op<I, Accumulator = N::Accumulator> {
    /// Returns the nested pairs.
    fn nested(&self) -> N;

    /// Returns the tuple of results.
    fn flat(output: N::Output) -> Self::Output;
}

/// Folds by nested pairs instead of a tuple.
pub(crate) struct As<N>(pub core::marker::PhantomData<fn() -> N>);

impl<N> Clone for As<N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N> Copy for As<N> {}

impl<I: Copy + 'static, N: Op<I>, O: Nested<I, N>> Agent<O, I> for As<N> {
    const ROOM: Room = room::<N, I>();
    const FOLDS_BY_LOADS: bool = folds_by_loads::<N, I>();

    const MEMBER: u32 = member::<N, I>();

    #[cfg(not(target_arch = "nvptx64"))]
    const IN_PARTS: bool = in_parts::<N, I>();

    #[cfg(not(target_arch = "nvptx64"))]
    const IN_ANY_ORDER: bool = in_any_order::<N, I>();

    #[cfg(not(target_arch = "nvptx64"))]
    fn moved(self, all: O::Accumulator, by: u64) -> O::Accumulator {
        N::agent().moved(all, by)
    }

    fn each_part(self, op: &O, each: &mut dyn FnMut(&'static str, &[u8])) {
        N::agent().each_part(&op.nested(), each);
    }

    fn without_value(self, op: &O) -> &'static str {
        N::agent().without_value(&op.nested())
    }

    #[inline(always)]
    fn by_parts<R: Reducer<I>>(self, op: &O, reducer: &R) -> Result<R::Outcome<O::Output>, R::Error> {
        Ok(R::map(N::agent().by_parts(&op.nested(), reducer)?, O::flat))
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn fold_by_parts<F: Folder<I>>(self, op: &O, folder: &F) -> Result<Vec<O::Accumulator>, F::Error> {
        N::agent().fold_by_parts(&op.nested(), folder)
    }
}
