//! The operators: the trait [`Op`], and a file for each operator of the library.

/// Declares an operator without parameters: `NAME: MODULE::GENERIC<ARGUMENTS>, AGENT`, by [`forward!`].
macro_rules! operator {
    (
        $(#[$doc:meta])* $op:ident $name:literal $(, $bound:path)?:
        $module:ident::$generic:ident<$($argument:literal),+>, $agent:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C)]
        pub struct $op;

        forward! {
            $op, $name $(, $bound)?: |_op| crate::op::$module::$generic<$($argument),+>
                = crate::op::$module::$generic::<$($argument),+>,
            agent $agent
        }
    };
}

/// Implements [`Op`] for elements by forwarding to a generic operator. `begin` is given if the operator
/// depends on the first element.
macro_rules! forward {
    ($op:ty, $name:literal $(, $bound:path)?: |$this:ident| $generic:ty = $value:expr
     $(, begin |$first:ident| $begun:expr)?, agent $agent:expr) => {
        impl<T: crate::Element $(+ $bound)?> crate::op::Op<T> for $op {
            const NAME: &'static str = $name;
            type Accumulator = <$generic as crate::op::Op<T>>::Accumulator;
            type Output = <$generic as crate::op::Op<T>>::Output;
            const EXACT: bool = <$generic as crate::op::Op<T>>::EXACT;

            fn agent() -> impl crate::agent::Agent<Self, T> {
                $agent
            }

            fn parameters(&self) -> &[u8] {
                bytemuck::bytes_of(self)
            }

            $(
                #[allow(unused_variables, reason = "the operator, if it has no field but the first element")]
                #[inline(always)]
                fn begin(&self, $first: T) -> Self {
                    let $this = self;
                    $begun
                }

                #[inline(always)]
                fn end(&self, all: Self::Accumulator, count: u64) -> Self::Accumulator {
                    let $this = self;
                    crate::op::Op::<T>::end(&$value, all, count)
                }
            )?

            #[inline(always)]
            fn identity(&self) -> Self::Accumulator {
                let $this = self;
                crate::op::Op::<T>::identity(&$value)
            }

            #[inline(always)]
            fn lift(&self, element: T, index: u64) -> Self::Accumulator {
                let $this = self;
                $value.lift(element, index)
            }

            #[inline(always)]
            fn lift_load<const N: usize>(&self, load: [T; N], index: u64) -> Self::Accumulator {
                let $this = self;
                $value.lift_load(load, index)
            }

            #[inline(always)]
            fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator {
                let $this = self;
                crate::op::Op::<T>::combine(&$value, a, b)
            }

            #[inline(always)]
            fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output> {
                let $this = self;
                crate::op::Op::<T>::finish(&$value, all, count)
            }
        }
    };
}

/// Declares the value of an operator with private fields, which has the name of its type, as those without fields have:
/// `(Sum, Skewness)` is a tuple of operators.
macro_rules! by_name {
    ($op:ident { $($field:ident: $value:expr),+ }) => {
        /// The operator with the parameters of its [`Default`].
        #[allow(non_upper_case_globals)]
        pub const $op: $op = $op { $($field: $value),+ };
    };
}

/// The methods of an [`Op`] whose accumulators are [`Summand`](crate::element::Summand)s.
macro_rules! accumulators_add_up {
    ($accumulator:ty) => {
        #[inline(always)]
        fn identity(&self) -> $accumulator {
            <$accumulator as crate::element::Summand>::NOTHING
        }

        #[inline(always)]
        fn combine(&self, a: $accumulator, b: $accumulator) -> $accumulator {
            crate::element::Summand::plus(a, b)
        }
    };
}

mod bits;
pub(crate) mod by_value;
pub mod center;
pub(crate) mod counts;
#[macro_use]
pub mod exact;
pub(crate) mod extremes;
pub(crate) mod place;
mod powers;
pub(crate) mod quantifiers;
#[macro_use]
pub mod shared;
#[macro_use]
mod spread;
#[cfg(any(test, target_arch = "nvptx64"))]
#[cfg_attr(target_arch = "nvptx64", allow(dead_code))] // kernels by index are of one type
pub(crate) mod twins;

macro_rules! operators {
    ({ $of:ident } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
        $(pub(crate) mod $name;)*

        mod $of {
            $(pub use super::$name::$op;)*
        }
    };
}

crate::for_each_operator! { operators! { elements } }
crate::for_each_integer_operator! { operators! { integers } }
crate::for_each_pair_operator! { operators! { pairs } }
crate::for_each_comparison! { operators! { comparisons } }

/// What most operators' files use.
mod prelude {
    pub use crate::agent::{Agent, Listed, Tally};
    pub use crate::element::{Element, Summand, Total, Wide};
    pub use crate::op::Op;
    pub use bytemuck::{Pod, Zeroable};
    pub use num_traits::{ConstOne, ConstZero};
}

/// The operators of the library's tables.
pub mod every {
    pub use super::comparison::Comparison;
    pub use super::{comparisons::*, elements::*, integers::*, pairs::*};
}

pub(crate) mod comparison;
pub(crate) mod exponential;
pub(crate) mod squares;
pub mod tally;
pub(crate) mod together;

/// Returns the correctly rounded square root.
#[inline(always)]
fn sqrt(value: f64) -> f64 {
    #[cfg(target_arch = "nvptx64")]
    {
        cuda_std::intrinsics::sqrt_f64(value)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        value.sqrt()
    }
}

/// Returns `a + b` and the error of its rounding: D. E. Knuth, "The Art of Computer Programming", volume 2,
/// 4.2.2, theorem B.
#[inline(always)]
pub(crate) fn two_sum(a: f64, b: f64) -> [f64; 2] {
    let sum = a + b;
    let of_b = sum - a;
    let of_a = sum - of_b;
    [sum, (a - of_a) + (b - of_b)]
}

/// Returns `a · b + c`, rounded once.
#[inline(always)]
fn fma(a: f64, b: f64, c: f64) -> f64 {
    #[cfg(target_arch = "nvptx64")]
    {
        cuda_std::intrinsics::fma_f64(a, b, c)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        a.mul_add(b, c)
    }
}

pub use crate::agent::{default_block, width};
pub(crate) use center::Centers;
pub(crate) use compensated_sum::{Compensated, Twofold};
pub use every::*;
pub(crate) use exact::Narrow;
pub(crate) use nanmean::{Counted, SumAndCount};
pub(crate) use spread::{Distances, Spread, SpreadOfNumbers};
pub(crate) use squares::{Scaled, Squares};
pub use together::Both;

use crate::agent::{Agent, Fold};
use crate::element::Accumulator;
use crate::kernels::Kernels;
use core::fmt::Debug;

/// A reduction operator over items of type `I`.
///
/// A reduction lifts each item into an accumulator, combines accumulators in pairs, and finishes the last
/// one. An item is an element, any other plain value (`#[repr(C)]`, [`Pod`](bytemuck::Pod)), or a pair of
/// them if two arrays are reduced together.
///
/// An operator is a value; its fields are parameters of the reduction. A GPU gets it as a kernel argument,
/// for which it must be plain, too.
///
/// A tuple of two to six operators is an operator: it computes all results in one pass over memory, with the
/// bits that each has alone. On a GPU this needs a compiled kernel; the library has those of
/// `(Sum, Min, Max)`, `(Mean, Var)` and `(Mean, Std)`. Without one, the operators run one after another. See
/// [`Both`].
///
/// The [plan](crate::plan) fixes the order in which accumulators combine. It is not the order of the items,
/// so [`combine`](Op::combine) must be commutative, and associative up to rounding. If it is not, results are wrong
/// and no error says so: have `gpu_reduce::check_op(&op, &samples)` in the operator's tests.
///
/// Use the functions of [`math`](crate::math) for square roots, exponentials and so on: `x.exp()` of `std` or of
/// `num_traits::Float` has other bits on a CPU than on a GPU.
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use gpu_reduce_kernels::Op;
///
/// /// Counts the elements above a threshold.
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct Above(f32);
///
/// impl Op<f32> for Above {
///     const NAME: &'static str = "above";
///     type Accumulator = u64;
///     type Output = u64;
///     const EXACT: bool = true;
///
///     fn parameters(&self) -> &[u8] {
///         bytemuck::bytes_of(self)
///     }
///     fn identity(&self) -> u64 {
///         0
///     }
///     fn lift(&self, item: f32, _: u64) -> u64 {
///         (item > self.0).into()
///     }
///     fn combine(&self, a: u64, b: u64) -> u64 {
///         a + b
///     }
///     fn finish(&self, all: u64, _: u64) -> Option<u64> {
///         Some(all)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the operator `{Self}` does not reduce items of type `{I}`",
    note = "what reduces is any plain value, by an operator of your own: `impl Op<{I}> for …`"
)]
pub trait Op<I: Copy + 'static>: Copy + Send + Sync + 'static {
    /// The operator's name in errors, as `sum`.
    const NAME: &'static str;

    /// The type of partial results: any plain value of up to 1,536 bytes, so that 32 of them fit in a block's shared
    /// memory. Numbers are plain, and arrays of them, and structs with `#[repr(C)]` and
    /// `#[derive(Clone, Copy, Pod, Zeroable)]`; an `Option` is a value and a flag, for example a `u32`.
    type Accumulator: Accumulator;

    /// The type of results. It must be plain for results that stay on a device.
    type Output: Copy + PartialEq + Debug + Send + Sync + 'static;

    /// Whether every order of combining gives the same bits. If so, backends may ignore the plan's order.
    const EXACT: bool;

    /// The kernels that the operator's crate has compiled for it with `gpu_reduce_kernels::kernels!`. An
    /// operator without kernels reduces on the CPU only; on a GPU it is an error.
    const KERNELS: Kernels = Kernels::NONE;

    /// Returns how the library folds by the operator. Operators of other crates leave this method as it is:
    /// their agent folds by the methods below. Only the library can make other agents.
    #[inline(always)]
    fn agent() -> impl Agent<Self, I> {
        Fold
    }

    /// Returns the operator that reduces items of which `first` is the first. Called once, before any item is
    /// lifted. For operators that fold the distances of items from one of them.
    #[inline(always)]
    #[must_use]
    fn begin(&self, _first: I) -> Self {
        *self
    }

    /// Removes from the accumulator of all `count` items what depends on the first item. Called once, after
    /// the last combine, on the operator that [`begin`](Op::begin) returned. [`finish`](Op::finish) may be
    /// called on the original operator.
    #[inline(always)]
    fn end(&self, all: Self::Accumulator, _count: u64) -> Self::Accumulator {
        all
    }

    /// Returns the operator's parameters as bytes. Partial reductions of one whole compare them. An operator
    /// with fields must implement it, as `bytemuck::bytes_of(self)`; else programs that call it do not
    /// compile.
    fn parameters(&self) -> &[u8] {
        const { assert!(size_of::<Self>() == 0, "an operator with fields must implement Op::parameters") };
        &[]
    }

    /// Returns the accumulator of no items. Combining it with another leaves the other's bits.
    fn identity(&self) -> Self::Accumulator;

    /// Returns the accumulator of one item. Indices count from the first item of the reduction.
    fn lift(&self, item: I, index: u64) -> Self::Accumulator;

    /// Returns the accumulator of N neighbouring items, the first of which has index `index`. Called on a
    /// GPU, and only if the operator is [`EXACT`](Op::EXACT). Worth writing if there are instructions for
    /// several items at once.
    #[inline(always)]
    fn lift_load<const N: usize>(&self, items: [I; N], index: u64) -> Self::Accumulator {
        (index..)
            .zip(items)
            .fold(self.identity(), |all, (index, item)| self.combine(all, self.lift(item, index)))
    }

    /// Combines two accumulators.
    fn combine(&self, a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;

    /// Returns the result of `count` items, or `None` if they have none, as the minimum of no items. Make a
    /// NaN canonical here, so that all devices agree on its bits.
    fn finish(&self, all: Self::Accumulator, count: u64) -> Option<Self::Output>;
}
