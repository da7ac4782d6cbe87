//! Operators that differ in their last step alone, and so have one kernel.
//!
//! A kernel of [`Shared<O>`] serves `O` and the operators that `O` [`Serves`]. They have the fields of `O`, its
//! accumulators, and its methods except [`finish`](Op::finish). A parameter of the launch, `member`, says which
//! operator it is.

use crate::agent::Agent;
use crate::agent::shared::ByOwner;
use crate::exchange::slot;
use crate::input::Input;
use crate::op::Op;
use crate::reduce::{self, Arguments};
use crate::segments::Arguments as SegmentArguments;

/// An operator whose kernels serve other operators, too.
///
/// All of them have a value for any number of items. The result of `Self` has no more bytes than the others',
/// because kernels take that many of the value for no items.
pub trait Serves<I: Copy + 'static>: Op<I> {
    /// Stores the result of `count` items by the [`Member`] with this number; by `Self` for other numbers.
    ///
    /// # Safety
    ///
    /// `results` is an array of that operator's results with a place for this index, and nothing else accesses the
    /// place.
    unsafe fn store(
        &self,
        member: u32,
        all: Self::Accumulator,
        count: u64,
        results: *mut Self::Output,
        index: usize,
    );

    /// As [`Agent::reduce_on_gpu`], for all members.
    ///
    /// # Safety
    ///
    /// As for [`Agent::reduce_on_gpu`].
    #[inline(always)]
    unsafe fn reduce_on_gpu<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize>(
        arguments: Arguments<P, Shared<Self>, Self::Output>,
        is_row: bool,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { reduce::by_tree::<Shared<Self>, P, BLOCK, WIDTH>(arguments, is_row) }
    }

    /// As [`Agent::sum_segments`], for all members.
    ///
    /// # Safety
    ///
    /// As for [`Agent::sum_segments`].
    #[inline(always)]
    unsafe fn sum_segments<P: Input<Item = I>, const WIDTH: usize>(
        _: SegmentArguments<P, Shared<Self>, Self::Output>,
    ) {
    }
}

/// The bit of `member` that says that the items are of the second of two types that share a kernel (`op/twins.rs`).
pub(crate) const SECOND: u32 = 1 << 31;

/// An operator that runs the kernels of another.
pub trait Member {
    /// Its number among the operators that share these kernels, not 0.
    const MEMBER: u32;
}

macro_rules! members {
    ($($op:ident: $number:literal;)*) => {$(
        impl Member for crate::op::$op {
            const MEMBER: u32 = $number;
        }
    )*};
}

members! {
    Std: 1;
    NanStd: 1;
    Kurtosis: 1;
    Moments: 2;
    ExactSum: 1;
    ExactSumTwofold: 2;
    ExactMean: 3;
}

/// Implements [`Serves`] for elements: `serves! { OWNER: |op| MEMBER = VALUE, …; OTHER METHODS }`.
macro_rules! serves {
    ($owner:ty $(, $bound:path)?: |$op:ident| $($member:ident = $value:expr),+ $(; $($methods:tt)*)?) => {
        impl<T: crate::Element $(+ $bound)?> crate::op::shared::Serves<T> for $owner {
            #[inline(always)]
            unsafe fn store(
                &self,
                member: u32,
                all: <Self as crate::Op<T>>::Accumulator,
                count: u64,
                results: *mut <Self as crate::Op<T>>::Output,
                index: usize,
            ) {
                use crate::op::shared::{Member, store_result};
                let $op = self;
                // SAFETY: as the caller vouches.
                unsafe {
                    match member {
                        $(
                            <$member as Member>::MEMBER => {
                                store_result::<$member, T>(&$value, all, count, results.cast(), index)
                            }
                        )+
                        _ => store_result::<Self, T>($op, all, count, results, index),
                    };
                }
            }

            $( $($methods)* )?
        }
    };
}

/// Stores a result.
///
/// # Safety
///
/// There is a place for a result with this index, and nothing else accesses it.
#[inline(always)]
pub(crate) unsafe fn store_result<O: Op<I>, I: Copy + 'static>(
    op: &O,
    all: O::Accumulator,
    count: u64,
    results: *mut O::Output,
    index: usize,
) -> bool {
    match op.finish(all, count) {
        Some(result) => {
            // SAFETY: as the caller vouches.
            unsafe { slot::store(results.add(index), result) };
            true
        }
        None => false,
    }
}

/// The operator of a kernel that `O` shares with others.
#[derive(Clone, Copy, Debug)]
pub struct Shared<O> {
    pub(crate) op: O,
    pub(crate) member: u32,
}

impl<O> Shared<O> {
    /// The operator with this number, which has the fields of `op`.
    #[inline(always)]
    pub fn new(op: O, member: u32) -> Self {
        Self { op, member: member & !SECOND }
    }
}

/// The output of `Shared<O>` is that of `O`. Kernels do not use it: they store results by [`Serves::store`], which
/// stores the output of another member if the launch says so.
impl<I: Copy + 'static, O: Serves<I>> Op<I> for Shared<O> {
    const NAME: &'static str = O::NAME;
    type Accumulator = O::Accumulator;
    type Output = O::Output;
    const EXACT: bool = O::EXACT;

    fn agent() -> impl Agent<Self, I> {
        ByOwner
    }

    #[inline(always)]
    fn begin(&self, first: I) -> Self {
        Self { op: self.op.begin(first), ..*self }
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
        self.op.lift(item, index)
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, items: [I; N], index: u64) -> O::Accumulator {
        self.op.lift_load(items, index)
    }

    #[inline(always)]
    fn combine(&self, a: O::Accumulator, b: O::Accumulator) -> O::Accumulator {
        self.op.combine(a, b)
    }

    #[inline(always)]
    fn finish(&self, all: O::Accumulator, count: u64) -> Option<O::Output> {
        self.op.finish(all, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::member;
    use crate::op::exact::{ExactElement, Summing};
    use crate::op::{
        ExactMean, ExactSum, ExactSumTwofold, Kurtosis, Mean, Moments, NanStd, NanVar, Skewness, Std, Var,
    };
    use crate::{Element, bf16, f16};
    use bytemuck::{Pod, Zeroable, bytes_of, cast};
    use std::format;

    /// Checks that a kernel of `O` stores the results of `M`: it has the bytes of an `M` for its operator.
    fn check<O, M, T>(op: M, items: &[T])
    where
        T: Element,
        O: Serves<T> + Pod,
        M: Op<T, Accumulator = O::Accumulator, Output: Pod> + Pod,
    {
        assert!(size_of::<O::Output>() <= size_of::<M::Output>(), "the value for no items is too short");
        let fold = |len: usize| {
            let shared = Shared::new(cast::<M, O>(op), member::<M, T>()).begin(items[0]);
            let alone = op.begin(items[0]);
            let (mut of_shared, mut of_alone) = (shared.identity(), alone.identity());
            for (&item, index) in items[..len].iter().zip(0..) {
                ByOwner.fold_item(&shared, &mut of_shared, item, index);
                of_alone = alone.combine(of_alone, alone.lift(item, index));
            }
            let count = len as u64;
            if len > 0 {
                (of_shared, of_alone) = (shared.end(of_shared, count), alone.end(of_alone, count));
            }
            let mut results = [M::Output::zeroed(); 3];
            // SAFETY: there are three places for results of `M`.
            let is_stored =
                unsafe { ByOwner.store(&shared, (of_shared, count), results.as_mut_ptr().cast(), 1) };
            assert!(is_stored);
            let expected = op.finish(of_alone, count).unwrap();
            let zeroed = M::Output::zeroed();
            let case = format!("{} of {len} {}", M::NAME, T::NAME);
            for (result, expected) in results.iter().zip([zeroed, expected, zeroed]) {
                assert_eq!(bytes_of(result), bytes_of(&expected), "{case}");
            }
        };
        (0..=items.len()).for_each(fold);
    }

    fn check_all<T: ExactElement<Rounded: Pod>>(items: &[T]) {
        check::<Var, Var, T>(Var::new(1), items);
        check::<Var, Std, T>(Std::new(1), items);
        check::<NanVar, NanVar, T>(NanVar::new(0), items);
        check::<NanVar, NanStd, T>(NanStd::new(0), items);
        check::<Skewness, Skewness, T>(Skewness, items);
        check::<Skewness, Kurtosis, T>(Kurtosis, items);
        check::<Skewness, Moments, T>(Moments, items);
        check::<ExactMean, ExactMean, T>(ExactMean, items);
        check::<ExactMean, ExactSum, T>(ExactSum, items);
        check::<ExactMean, ExactSumTwofold, T>(ExactSumTwofold, items);
    }

    /// Checks the operators of integers that the kernels of means serve.
    fn check_integers<T>(items: &[T])
    where
        T: ExactElement<Total = i128, Rounded = i128, Sums: Summing<T, State = i128>>,
    {
        check_all(items);
        check::<Mean, Mean, T>(Mean, items);
        check::<Mean, ExactMean, T>(ExactMean, items);
        check::<Mean, ExactSum, T>(ExactSum, items);
        check::<Mean, ExactSumTwofold, T>(ExactSumTwofold, items);
    }

    #[test]
    fn members_have_their_own_results() {
        check_integers(&[-3i8, 7, 100, -128]);
        check_integers(&[0u8, 3, 3, 255]);
        check_integers(&[-3i64, 7, i64::MAX, i64::MIN]);
        check_integers(&[1u64, u64::MAX, 3, 0]);
        check_all(&[0.5f32, -2.25, 1e30, 3.0]);
        check_all(&[0.5f64, -2.25, 1e300, f64::NAN]);
        check_all(&[0.5, -2.25, 1e4, 3.0].map(f16::from_f64));
        check_all(&[0.5, -2.25, f64::INFINITY, 3.0].map(bf16::from_f64));
    }
}
