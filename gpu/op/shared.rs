//! Operators that differ in their last step alone, and so have one kernel.
//!
//! A kernel of [`Shared<O>`] serves `O` and the operators that `O` [`Serves`]. They have the fields of `O`, its accumulators and
//! its methods but [`finish`](Op::finish). A parameter of the launch, `member`, says which operator it is.

use crate::agent::Agent;
use crate::agent::shared::ByOwner;
use crate::exchange::slot;
use crate::input::Input;
use crate::op::Op;
use crate::reduce::{self, Arguments};

/// An operator whose kernels serve other operators, too.
///
/// All of them have a value for any number of items. The result of `Self` has no more bytes than the others', because
/// kernels take that many of the value for no items.
pub trait Serves<I: Copy + 'static>: Op<I> {
    /// Stores the result of `count` items by the operator that has this number, 0 for `Self`.
    ///
    /// # Safety
    ///
    /// `results` are results of that operator. There is a place for one with this index, and nothing else accesses it.
    unsafe fn store(&self, member: u32, all: Self::Accumulator, count: u64, results: *mut Self::Output, index: usize);

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
}

/// An operator that another one serves.
pub(crate) trait Member {
    /// Its number among the operators that share a kernel, not 0.
    const MEMBER: u32;
}

/// Implements [`Serves`] for elements: `serves! { OWNER: |op| NUMBER MEMBER = VALUE, …; OTHER METHODS }`.
macro_rules! serves {
    (
        $owner:ty $(, $bound:path)?: |$op:ident| $($number:literal $member:ident = $value:expr),+
        $(; $($methods:tt)*)?
    ) => {
        $(
            impl crate::op::shared::Member for $member {
                const MEMBER: u32 = $number;
            }
        )+

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
                use crate::op::shared::store_result;
                let $op = self;
                // SAFETY: as the caller vouches.
                unsafe {
                    match member {
                        $( $number => store_result::<$member, T>(&$value, all, count, results.cast(), index), )+
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
        Self { op, member }
    }
}

/// The results that its type says are those of `O`; kernels store results by [`Serves::store`].
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
