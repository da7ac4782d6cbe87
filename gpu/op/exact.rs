//! Sums without rounding, which the exact operators share. `docs/exact.md` has the proofs and the figures.
//!
//! A sum of floats is an integer with so many words that no bit of any item is lost: its lowest bit is worth
//! the type's smallest subnormal, 2^LOW, and there is room for 2^64 of the largest items (`state.rs`). Such
//! sums add as integers do, in any order and grouping. They are rounded once, in the end (`round.rs`).
//!
//! To add items to that integer one by one, **bit by bit**, is slow. Most are first summed in **windows**, by
//! float arithmetic that is exact (S. M. Rump, T. Ogita, S. Oishi, "Accurate floating-point summation part
//! I", SIAM J. Sci. Comput. 31, 2008, `ExtractVector`). A window is an accumulator that begins as A = 1.5 ·
//! 2^P, in the middle of the binade from 2^P to 2^(P + 1). While it stays in this binade, an `f64` window is
//! a multiple of 2^(P − 52). So adding an item x rounds x to such a multiple, and leaves an exact
//! **remainder** for the next window, which is smaller by 2^45:
//!
//! ```text
//! for each item x, |x| < 2^(P − 7):
//!     for each window A:
//!         t = A + x           rounded to a multiple of 2^(P − 52)
//!         x = x − (t − A)     exact; at most 2^(P − 53)
//!         A = t
//!     if x ≠ 0: a remainder is left, so there are too few windows
//! the windows' sum is the sum of (A − 1.5 · 2^P), an integer multiple of 2^(P − 52) each
//! ```
//!
//! Each item moves a window by at most 2^(P − 7). So 2^5 items move it by at most 2^(P − 2), and it stays in
//! its binade. Then what it was moved by is added to the integer, and it begins anew.
//!
//! `host_simd::exact` does so with SIMD lanes on a CPU, `agent::exact` with the threads of a block.

/// An operator that sums exactly, and what it makes of the sum of `count` items.
macro_rules! exact_operator {
    (
        $(#[$doc:meta])* $op:ident $name:literal over $item:ty, $T:ident: $element:ident, $sums:ident;
        $output:ty, |$sum:ident, $count:ident| $finish:expr
        $(, tally counts $counts:literal, |$of_tally:ident, $low:ident, $items:ident| $tally:expr)?
        $(, by index $by_index:ident)?
    ) => {
        use crate::agent::Agent;
        use crate::agent::exact::Sums;
        use crate::op::Op;
        use crate::op::exact::{Exact, $element, OfExactSum, Summing};
        use bytemuck::{Pod, Zeroable};
        use core::marker::PhantomData;

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $op;

        type State<$T> = <<$T as $element>::$sums as Summing<$item>>::State;

        impl<$T: $element> Op<$item> for $op {
            const NAME: &'static str = $name;
            type Accumulator = State<$T>;
            type Output = $output;
            const EXACT: bool = true;

            fn agent() -> impl Agent<Self, $item> {
                Sums::<$T::$sums>(PhantomData)
            }

            #[inline(always)]
            fn identity(&self) -> State<$T> {
                $T::$sums::ZERO
            }

            #[inline(always)]
            fn lift(&self, item: $item, _: u64) -> State<$T> {
                $T::$sums::alone(item)
            }

            #[inline(always)]
            fn combine(&self, a: State<$T>, b: State<$T>) -> State<$T> {
                $T::$sums::plus(a, b)
            }

            #[inline(always)]
            fn finish(&self, sum: State<$T>, count: u64) -> Option<$output> {
                Some(OfExactSum::<$item>::of_sum(self, sum, count))
            }
        }

        impl<$T: $element> OfExactSum<$item> for $op {
            #[inline(always)]
            fn of_sum(&self, $sum: impl Exact, $count: u64) -> $output {
                $finish
            }

            $(
                #[cfg(not(target_arch = "nvptx64"))]
                fn by_index<S: crate::agent::Scatter<$item, $output>>(&self, scatter: S) -> S::Outcome {
                    const { assert!(<Self as crate::op::tally::OfTally<$item>>::COUNTS == $counts) };
                    scatter.tally(self)
                }
            )?

            $(
                #[cfg(not(target_arch = "nvptx64"))]
                fn by_index<S: crate::agent::Scatter<$item, $output>>(&self, scatter: S) -> S::Outcome {
                    $T::$by_index(self, scatter)
                }
            )?
        }

        $(
            impl<$T: $element> crate::op::tally::OfTally<$item> for $op {
                const COUNTS: bool = $counts;

                #[inline(always)]
                fn of_tally($of_tally: &impl Exact, $low: i32, $items: u64) -> $output {
                    $tally
                }
            }
        )?
    };
}

mod element;
mod round;
mod state;

use crate::exchange::slot;
use crate::op::Op;
use crate::op::tally::OfTally;
use cuda_std::warp;
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use element::Integer;
pub use element::{ExactElement, ExactFactor};
pub(crate) use element::{Summing, Terms};
pub use round::{Exact, Leading};
pub(crate) use round::{center_of, mean_of, sum_of};
pub use state::Fixed;
pub(crate) use state::{INFINITE, MINUS_INFINITE, NAN, NOT_MINUS_ZERO, Sum, each_of};

/// The sum of `f64`, rounded once to an `f32`: what is made of the products of smaller floats.
#[derive(Clone, Copy, Debug)]
pub struct Narrow;

impl Op<f64> for Narrow {
    const NAME: &'static str = "narrow";
    type Accumulator = f64;
    type Output = f32;
    const EXACT: bool = false;

    accumulators_add_up! { f64 }

    #[inline(always)]
    fn lift(&self, element: f64, _: u64) -> f64 {
        element
    }

    #[inline(always)]
    fn finish(&self, all: f64, _: u64) -> Option<f32> {
        Some((all + 0.0) as f32)
    }
}

impl OfTally<f64> for Narrow {
    const COUNTS: bool = false;

    #[inline(always)]
    fn of_tally(sum: &impl Exact, low: i32, _: u64) -> f32 {
        sum_of::<false>(sum, low) as f32
    }
}

/// Operators that make something of an exact sum, wherever it is held.
#[doc(hidden)]
pub trait OfExactSum<I: Copy + 'static>: Op<I> {
    /// The result of `count` items.
    fn of_sum(&self, sum: impl Exact, count: u64) -> Self::Output;

    /// Stores the result of `count` items, made by every lane of a warp, as the result with this index.
    ///
    /// # Safety
    ///
    /// The whole of one warp is here. There is a place for this result, and nothing else accesses it.
    #[inline(always)]
    unsafe fn store_sum(&self, sum: impl Exact, count: u64, results: *mut Self::Output, index: usize) {
        let result = self.of_sum(sum, count);
        if warp::lane_id() == 0 {
            // SAFETY: as the caller vouches.
            unsafe { slot::store(results.add(index), result) };
        }
    }

    /// As [`Agent::by_index`](crate::agent::Agent::by_index).
    #[cfg(not(target_arch = "nvptx64"))]
    fn by_index<S: crate::agent::Scatter<I, Self::Output>>(&self, scatter: S) -> S::Outcome {
        scatter.in_order(self)
    }
}
