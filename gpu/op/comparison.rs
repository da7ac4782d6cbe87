//! Comparisons of elements with a scalar.
#![allow(clippy::multiple_bound_locations, reason = "in what `derive(Pod)` makes")]

use crate::element::{Element, Key, Summand, Wide};
use crate::op::by_value::{KeyOr, taken};
use bytemuck::{Pod, Zeroable, bytes_of_mut};
use num_traits::{Bounded, ConstZero};

/// A comparison of elements with a scalar.
///
/// By IEEE 754: −0.0 equals +0.0. If the element or the scalar is a NaN, only [`NotEqual`](Self::NotEqual)
/// holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comparison<T> {
    /// Elements below the scalar.
    Less(T),
    /// Elements below or equal to the scalar.
    LessEqual(T),
    /// Elements above the scalar.
    Greater(T),
    /// Elements above or equal to the scalar.
    GreaterEqual(T),
    /// Elements equal to the scalar.
    Equal(T),
    /// Elements not equal to the scalar.
    NotEqual(T),
}

/// A comparison as a range of [keys](crate::element::Key): it holds for keys inside the range, or for those
/// outside.
///
/// The four keys are the least and the greatest of the range, the key that a NaN gets, and 0 if it holds for keys inside.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Range<T: Element>([T::Key; 4]);

impl<T: Element> Range<T> {
    pub(crate) fn new(comparison: Comparison<T>) -> Self {
        use Comparison::*;
        let (Less(scalar) | LessEqual(scalar) | Greater(scalar) | GreaterEqual(scalar) | Equal(scalar)
        | NotEqual(scalar)) = comparison;
        let (least, greatest) = (T::Key::min_value(), T::Key::max_value());
        let (within, without) = (T::Key::zeroed(), greatest);
        let (mut low, mut high) = (scalar.key_of_number(), scalar.key_of_number());
        if scalar.widen() == T::Wide::ZERO && !T::Wide::EXACT {
            // From −0.0, which has the uppermost bit set, to +0.0.
            let mut negative = T::zeroed();
            bytes_of_mut(&mut negative)
                [if cfg!(target_endian = "little") { size_of::<T>() - 1 } else { 0 }] = 0x80;
            (low, high) = (negative.key_of_number(), T::zeroed().key_of_number());
        }
        let is_number = !scalar.widen().is_nan();
        // The third key keeps NaNs on the side where the comparison is false, except for `NotEqual`.
        Self(match comparison {
            Less(_) if is_number => [low, greatest, greatest, without],
            LessEqual(_) if is_number => [least, high, greatest, within],
            Greater(_) if is_number => [least, high, least, without],
            GreaterEqual(_) if is_number => [low, greatest, least, within],
            Equal(_) if is_number => [low, high, greatest, within],
            NotEqual(_) if is_number => [low, high, greatest, without],
            // An empty range: the scalar is a NaN.
            NotEqual(_) => [greatest, least, greatest, without],
            _ => [greatest, least, greatest, within],
        })
    }

    /// Returns the range that holds for NaNs alone.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn of_nan() -> Self {
        let (least, greatest) = (T::Key::min_value(), T::Key::max_value());
        // Of integers the range is empty.
        let high = if T::Wide::EXACT { least } else { greatest };
        Self([greatest, high, greatest, T::Key::zeroed()])
    }

    /// Returns the range that holds for all elements but NaNs.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn of_numbers() -> Self {
        let Self([low, high, nan, _]) = Self::of_nan();
        Self([low, high, nan, T::Key::max_value()])
    }

    /// Whether the elements are integers, and the comparison holds for all of them.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn holds_for_integers(self) -> bool {
        let ([low, high, _], is_outside) = self.keys();
        let (least, greatest) = (T::Key::min_value(), T::Key::max_value());
        T::Wide::EXACT && if is_outside { low > high } else { (low, high) == (least, greatest) }
    }

    /// Whether the comparison holds for an element.
    #[inline(always)]
    pub fn holds(self, element: T) -> bool {
        let [low, high, nan, side] = self.0;
        let key = element.key(nan);
        ((low <= key) & (key <= high)) != (side != T::Key::zeroed())
    }

    /// As [`holds`](Self::holds), in a kernel; if `is_second`, for an element of the second of two types. Whether the key of an integer lies in
    /// the range follows from its distance from the range's least key, modulo 2^bits. This distance is the same for signed and for
    /// unsigned keys, so the test is, too. (No range of integers is empty: kernels do not get [`of_nan`](Self::of_nan).)
    #[inline(always)]
    pub(crate) fn holds_twin(self, element: T, is_second: bool) -> bool {
        let [low, high, nan, side] = self.0;
        let key = taken(KeyOr(nan), element, is_second);
        let is_inside = if T::Wide::EXACT {
            let from_low =
                |key: T::Key| (key.wide().wrapping_sub(low.wide()) as u64) << (64 - 8 * size_of::<T>());
            from_low(key) <= from_low(high)
        } else {
            (low <= key) & (key <= high)
        };
        is_inside != (side != T::Key::zeroed())
    }

    /// Returns the least and the greatest key of the range, the key of a NaN, and whether it holds for those outside.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn keys(self) -> ([T::Key; 3], bool) {
        let [low, high, nan, side] = self.0;
        ([low, high, nan], side != T::Key::zeroed())
    }
}
