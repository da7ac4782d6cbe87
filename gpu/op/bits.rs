//! The bitwise operators.

use crate::element::Element;
use crate::op::Op;
use bytemuck::{bytes_of, cast, pod_read_unaligned};
use num_traits::PrimInt;

/// Combines the elements by the bitwise operation `&`, `|` or `^`.
#[derive(Clone, Copy, Debug)]
pub struct Bits<const OPERATION: char>;

impl<const OPERATION: char> Bits<OPERATION> {
    #[inline(always)]
    fn of<V: PrimInt>(a: V, b: V) -> V {
        match OPERATION {
            '&' => a & b,
            '|' => a | b,
            _ => a ^ b,
        }
    }
}

impl<T: Element + PrimInt, const OPERATION: char> Op<T> for Bits<OPERATION> {
    const NAME: &'static str = "bits";
    type Accumulator = T;
    type Output = T;
    const EXACT: bool = true;

    #[inline(always)]
    fn identity(&self) -> T {
        if OPERATION == '&' { !T::zero() } else { T::zero() }
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T {
        element
    }

    /// Combines four one-byte elements in one instruction, or two two-byte elements.
    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> T {
        if size_of::<[T; N]>() != 16 || size_of::<T>() >= 4 {
            return load.into_iter().fold(Op::<T>::identity(self), Self::of);
        }
        let [a, b, c, d]: [u32; 4] = cast(load);
        let mut word = Self::of(Self::of(a, b), Self::of(c, d));
        word = Self::of(word, word >> 16);
        if size_of::<T>() == 1 {
            word = Self::of(word, word >> 8);
        }
        pod_read_unaligned(&bytes_of(&word)[..size_of::<T>().min(4)])
    }

    #[inline(always)]
    fn combine(&self, a: T, b: T) -> T {
        Self::of(a, b)
    }

    #[inline(always)]
    fn finish(&self, all: T, _: u64) -> Option<T> {
        Some(all)
    }
}
