//! Comparisons of elements with a scalar.

use crate::element::{Element, Key, Wide};
use bytemuck::{Pod, Zeroable, bytes_of_mut};

/// How an element compares with a scalar, by IEEE 754: −0.0 equals +0.0, and a NaN, on either side, is [`NotEqual`](Self::NotEqual) to
/// everything, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comparison<T> {
    /// Elements below it.
    Less(T),
    /// Elements below it, or equal.
    LessEqual(T),
    /// Elements above it.
    Greater(T),
    /// Elements above it, or equal.
    GreaterEqual(T),
    /// Elements equal to it.
    Equal(T),
    /// Elements that are not equal to it.
    NotEqual(T),
}

/// A comparison as a range of [keys](Key): an element's key lies within or without.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub struct Range<T: Element>([T::Key; 4]);

// SAFETY: it is an array of plain values.
unsafe impl<T: Element> Zeroable for Range<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Pod for Range<T> {}

impl<T: Element> Range<T> {
    pub(super) fn new(comparison: Comparison<T>) -> Self {
        use Comparison::*;
        let (Less(scalar) | LessEqual(scalar) | Greater(scalar) | GreaterEqual(scalar) | Equal(scalar)
        | NotEqual(scalar)) = comparison;
        let (least, greatest) = (T::Key::LEAST, T::Key::GREATEST);
        let (within, without) = (least, greatest);
        let (mut low, mut high) = (scalar.key_of_number(), scalar.key_of_number());
        if scalar.widen() == T::Wide::ZERO && !T::Wide::EXACT {
            // A float's zeros, which differ in the uppermost bit.
            let mut negative = T::zeroed();
            bytes_of_mut(&mut negative)
                [if cfg!(target_endian = "little") { size_of::<T>() - 1 } else { 0 }] = 0x80;
            (low, high) = (negative.key_of_number(), T::zeroed().key_of_number());
        }
        let is_number = !scalar.widen().is_nan();
        // The third is a NaN's key, where the comparison is false but for the last.
        Self(match comparison {
            Less(_) if is_number => [low, greatest, greatest, without],
            LessEqual(_) if is_number => [least, high, greatest, within],
            Greater(_) if is_number => [least, high, least, without],
            GreaterEqual(_) if is_number => [low, greatest, least, within],
            Equal(_) if is_number => [low, high, greatest, within],
            NotEqual(_) if is_number => [low, high, greatest, without],
            // No key is as great as the greatest and as small as the least.
            NotEqual(_) => [greatest, least, greatest, without],
            _ => [greatest, least, greatest, within],
        })
    }

    /// Whether the comparison is true for an element.
    #[inline(always)]
    pub(super) fn has(self, element: T) -> bool {
        let [low, high, nan, side] = self.0;
        let key = element.key(nan);
        ((low <= key) & (key <= high)) != (side == T::Key::GREATEST)
    }
}

macro_rules! comparison {
    ($(#[$doc:meta])* $op:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(transparent)]
        pub struct $op<T: Element>(Range<T>);

        // SAFETY: it is a plain value.
        unsafe impl<T: Element> Zeroable for $op<T> {}
        // SAFETY: as above.
        unsafe impl<T: Element> Pod for $op<T> {}

        impl<T: Element> $op<T> {
            /// Of the elements for which the comparison is true.
            pub fn new(comparison: Comparison<T>) -> Self {
                Self(Range::new(comparison))
            }
        }
    };
}
pub(super) use comparison;
