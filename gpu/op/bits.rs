//! The bitwise operators.

use crate::element::Element;
use crate::op::Op;
use bytemuck::{bytes_of, cast, pod_read_unaligned};
use num_traits::PrimInt;

/// A bitwise operation of two integers.
pub trait Bitwise: Copy + Send + Sync + 'static {
    /// A byte that leaves the other operand as it is.
    const NOTHING: u8;

    /// Combines two integers.
    fn of<V: PrimInt>(a: V, b: V) -> V;
}

/// Combines the elements by a bitwise operation.
#[derive(Clone, Copy)]
pub struct Bits<B>(pub B);

impl<T: Element + PrimInt, B: Bitwise> Op<T> for Bits<B> {
    const NAME: &'static str = "bits";
    type Accumulator = T;
    type Output = T;
    const EXACT: bool = true;

    #[inline(always)]
    fn identity(&self) -> T {
        pod_read_unaligned(&bytes_of(&[B::NOTHING; 8])[..size_of::<T>()])
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T {
        element
    }

    /// Combines four one-byte elements in one instruction, or two two-byte elements.
    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> T {
        if size_of::<[T; N]>() != 16 || size_of::<T>() >= 4 {
            return load.into_iter().fold(Op::<T>::identity(self), B::of);
        }
        let [a, b, c, d]: [u32; 4] = cast(load);
        let mut word = B::of(B::of(a, b), B::of(c, d));
        word = B::of(word, word >> 16);
        if size_of::<T>() == 1 {
            word = B::of(word, word >> 8);
        }
        pod_read_unaligned(&bytes_of(&word)[..size_of::<T>().min(4)])
    }

    #[inline(always)]
    fn combine(&self, a: T, b: T) -> T {
        B::of(a, b)
    }

    #[inline(always)]
    fn finish(&self, all: T, _: u64) -> Option<T> {
        Some(all)
    }
}
