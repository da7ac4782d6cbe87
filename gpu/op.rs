//! The operators.

use crate::element::{Accumulator, Element, Key, Wide};
use bytemuck::Pod;
use core::fmt::{Debug, Display};

/// A reduction operator over elements of type `T`: lift each element into an accumulator, combine accumulators, finish
/// the last one.
///
/// The order in which accumulators combine is fixed by the [plan](crate::plan), but it is not that of the elements, so
/// [`combine`](Op::combine) must be commutative and associative up to rounding.
pub trait Op<T: Element>: 'static {
    /// The operator's name in kernels and errors, as `sum`.
    const NAME: &'static str;

    /// What partial results are.
    type Accumulator: Accumulator;

    /// What a reduction returns.
    type Output: Pod + Send + PartialEq + Display + Debug;

    /// Combined with any accumulator it leaves that one's bits.
    const IDENTITY: Self::Accumulator;

    /// Whether every order of combining gives the same bits. Backends then need not keep the plan's.
    const EXACT: bool;

    /// What reducing no elements returns; `None` makes an empty input an error.
    const EMPTY: Option<Self::Output>;

    /// The accumulator of one element.
    fn lift(element: T) -> Self::Accumulator;

    /// The accumulator of all elements of a load, on a GPU. Called only where the operator is [`EXACT`](Op::EXACT); worth
    /// writing where the GPU has instructions for several elements at once.
    #[inline(always)]
    fn lift_load(load: T::Lanes<T>) -> Self::Accumulator {
        load.as_ref().iter().fold(Self::IDENTITY, |all, &element| Self::combine(all, Self::lift(element)))
    }

    /// Two accumulators made one.
    fn combine(a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;

    /// The result. A float's NaN is made canonical here.
    fn finish(accumulator: Self::Accumulator) -> Self::Output;
}

/// The sum. Integers up to 32 bits sum in 64 and return them; 64-bit integers wrap; `f16` and `bf16` sum in `f32` and
/// return it. An empty sum is 0.
#[derive(Clone, Copy, Debug)]
pub enum Sum {}

impl<T: Element> Op<T> for Sum {
    const NAME: &'static str = "sum";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const IDENTITY: T::Wide = T::Wide::NOTHING;
    const EXACT: bool = T::Wide::EXACT;
    const EMPTY: Option<T::Wide> = Some(T::Wide::ZERO);

    #[inline(always)]
    fn lift(element: T) -> T::Wide {
        element.widen()
    }

    #[inline(always)]
    fn lift_load(load: T::Lanes<T>) -> T::Wide {
        T::sum_of_load(load)
    }

    #[inline(always)]
    fn combine(a: T::Wide, b: T::Wide) -> T::Wide {
        a.plus(b)
    }

    #[inline(always)]
    fn finish(accumulator: T::Wide) -> T::Wide {
        accumulator.canonical()
    }
}

/// The product, in the same types as [`Sum`]. An empty product is 1.
#[derive(Clone, Copy, Debug)]
pub enum Prod {}

impl<T: Element> Op<T> for Prod {
    const NAME: &'static str = "prod";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const IDENTITY: T::Wide = T::Wide::ONE;
    const EXACT: bool = T::Wide::EXACT;
    const EMPTY: Option<T::Wide> = Some(T::Wide::ONE);

    #[inline(always)]
    fn lift(element: T) -> T::Wide {
        element.widen()
    }

    #[inline(always)]
    fn lift_load(load: T::Lanes<T>) -> T::Wide {
        T::product_of_load(load)
    }

    #[inline(always)]
    fn combine(a: T::Wide, b: T::Wide) -> T::Wide {
        a.times(b)
    }

    #[inline(always)]
    fn finish(accumulator: T::Wide) -> T::Wide {
        accumulator.canonical()
    }
}

/// The smallest element. A NaN makes the result NaN, as in NumPy and PyTorch; −0.0 is below +0.0 (IEEE 754-2019,
/// `minimum`). Empty input is an error.
#[derive(Clone, Copy, Debug)]
pub enum Min {}

impl<T: Element> Op<T> for Min {
    const NAME: &'static str = "min";
    type Accumulator = T::Key;
    type Output = T;
    const IDENTITY: T::Key = T::Key::GREATEST;
    const EXACT: bool = true;
    const EMPTY: Option<T> = None;

    #[inline(always)]
    fn lift(element: T) -> T::Key {
        element.key(T::Key::LEAST)
    }

    #[inline(always)]
    fn lift_load(load: T::Lanes<T>) -> T::Key {
        T::least_of_load(load)
    }

    #[inline(always)]
    fn combine(a: T::Key, b: T::Key) -> T::Key {
        a.min(b)
    }

    #[inline(always)]
    fn finish(accumulator: T::Key) -> T {
        T::from_key(accumulator)
    }
}

/// The largest element; otherwise as [`Min`].
#[derive(Clone, Copy, Debug)]
pub enum Max {}

impl<T: Element> Op<T> for Max {
    const NAME: &'static str = "max";
    type Accumulator = T::Key;
    type Output = T;
    const IDENTITY: T::Key = T::Key::LEAST;
    const EXACT: bool = true;
    const EMPTY: Option<T> = None;

    #[inline(always)]
    fn lift(element: T) -> T::Key {
        element.key(T::Key::GREATEST)
    }

    #[inline(always)]
    fn lift_load(load: T::Lanes<T>) -> T::Key {
        T::greatest_of_load(load)
    }

    #[inline(always)]
    fn combine(a: T::Key, b: T::Key) -> T::Key {
        a.max(b)
    }

    #[inline(always)]
    fn finish(accumulator: T::Key) -> T {
        T::from_key(accumulator)
    }
}
