//! The rules of the library's operators.

use super::{Kind, Offer, Rule};
use crate::deal::Move;
use crate::element::{Element, Summand};
use crate::op::comparison::{Comparison, Range};
use bytemuck::{NoUninit, cast};
use core::any::TypeId;
use core::marker::PhantomData;

/// How items are reduced by index to results of type `V`, which have one part or two.
#[derive(Clone, Copy, Debug)]
pub struct Words<V>(Rules, PhantomData<fn() -> V>);

/// As [`Words`], whatever the type of results is.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The rule of each part.
    rules: [Rule; 2],
    parts: usize,
    /// The kernel that offers.
    pub offer: TypeId,
    /// The kernel that deals items.
    pub moving: TypeId,
    /// Bytes of an item.
    pub item_bytes: usize,
    /// Whether items have 8 bytes.
    pub is_long: bool,
}

impl Rules {
    fn new<T: Element>(rules: &[Rule]) -> Self {
        let item_bytes = size_of::<T>();
        let (offer, moving) = match item_bytes {
            1 => (TypeId::of::<Offer<u8>>(), TypeId::of::<Move<u8>>()),
            2 => (TypeId::of::<Offer<u16>>(), TypeId::of::<Move<u16>>()),
            4 => (TypeId::of::<Offer<u32>>(), TypeId::of::<Move<u32>>()),
            _ => (TypeId::of::<Offer<u64>>(), TypeId::of::<Move<u64>>()),
        };
        let last = rules[rules.len() - 1];
        Self {
            rules: [rules[0], last],
            parts: rules.len(),
            offer,
            moving,
            item_bytes,
            is_long: item_bytes == 8,
        }
    }

    /// Returns the rule of each part of a result.
    pub fn parts(&self) -> &[Rule] {
        &self.rules[..self.parts]
    }
}

impl<V> Words<V> {
    /// Returns the rules. The result of each has a part of the bytes of a `V`.
    pub fn rules(&self) -> &Rules {
        &self.0
    }

    fn of<T: Element>(rules: &[Rule]) -> Self {
        Self(Rules::new::<T>(rules), PhantomData)
    }
}

impl<T: Element> Words<T> {
    pub(crate) fn extreme(is_least: bool, skips_nan: bool) -> Self {
        Self::of::<T>(&[Rule::extreme::<T>(is_least, skips_nan)])
    }

    /// `operation` is `&`, `|` or `^`; the items are integers.
    pub(crate) fn bits(operation: char) -> Self {
        let (kind, flip) = match operation {
            '&' => (Kind::Or, all::<T>()),
            '|' => (Kind::Or, 0),
            _ => (Kind::Xor, 0),
        };
        Self::of::<T>(&[Rule { flip, ..Rule::plain(kind) }])
    }
}

impl<T: Element> Words<[T; 2]> {
    pub(crate) fn extremes() -> Self {
        Self::of::<T>(&[true, false].map(|is_least| Rule::extreme::<T>(is_least, false)))
    }
}

impl Words<u64> {
    pub(crate) fn place<T: Element>(is_least: bool, skips_nan: bool) -> Self {
        Self::of::<T>(&[Rule::place::<T>(is_least, skips_nan)])
    }

    pub(crate) fn count<T: Element>(range: Range<T>) -> Self {
        Self::of::<T>(&[Rule::test(range, Kind::Count)])
    }
}

impl Words<[u64; 2]> {
    pub(crate) fn places<T: Element>() -> Self {
        Self::of::<T>(&[true, false].map(|is_least| Rule::place::<T>(is_least, false)))
    }
}

impl Words<bool> {
    pub(crate) fn any<T: Element>() -> Self {
        Self::of::<T>(&[Rule::test(Range::new(Comparison::NotEqual(T::zero())), Kind::Any)])
    }

    pub(crate) fn all<T: Element>() -> Self {
        Self::of::<T>(&[Rule::test(Range::new(Comparison::Equal(T::zero())), Kind::None)])
    }
}

impl<V> Words<V> {
    /// Returns these rules of `u8` for items of type `bool`, whose bytes are 0 or 1. Of such bytes the rules make
    /// results that have the bits of a `W`.
    pub(crate) fn of_bools<W>(self) -> Words<W> {
        Words(self.0, PhantomData)
    }
}

impl<T: Element> Range<T> {
    /// Returns the rule whose test an item passes if the comparison holds for it.
    pub fn rule(self) -> Rule {
        Rule::test(self, Kind::Count)
    }

    /// Returns the bits of −0.0; of integers 0.
    pub fn minus_zero(self) -> u64 {
        let all = all::<T>();
        if T::Wide::EXACT { 0 } else { all ^ all >> 1 }
    }
}

impl Rule {
    /// The items are integers, and ranks have their bits.
    fn plain(kind: Kind) -> Self {
        let range = [0; 2];
        Self { magnitude: 0, infinity: 0, nan: 0, canonical: 0, flip: 0, range, is_outside: 0, kind }
    }

    /// Ranks order as the items do.
    fn ordered<T: Element>(kind: Kind) -> Self {
        let all = all::<T>();
        let flip = if T::min_value() < T::zero() { all ^ all >> 1 } else { 0 };
        let rule = Self { flip, ..Self::plain(kind) };
        if T::Wide::EXACT {
            return rule;
        }
        // Infinity comes after the greatest number.
        let infinity = bits_of(T::max_value()) + 1;
        let canonical = bits_of(T::from_key(num_traits::Bounded::max_value()));
        Self { magnitude: all >> 1, infinity, canonical, ..rule }
    }

    fn extreme<T: Element>(is_least: bool, skips_nan: bool) -> Self {
        let rule = Self::ordered::<T>(Kind::Greatest);
        let flip = rule.flip ^ if is_least { all::<T>() } else { 0 };
        Self { flip, nan: if skips_nan { 0 } else { all::<T>() }, ..rule }
    }

    fn place<T: Element>(is_least: bool, skips_nan: bool) -> Self {
        Self { kind: Kind::Place, ..Self::extreme::<T>(is_least, skips_nan) }
    }

    fn test<T: Element>(range: Range<T>, kind: Kind) -> Self {
        let rule = Self::ordered::<T>(kind);
        let ([low, high, nan], is_outside) = range.keys();
        let rank = |key: T::Key| bits_of(key) ^ rule.flip;
        Self { range: [rank(low), rank(high)], nan: rank(nan), is_outside: is_outside.into(), ..rule }
    }

    /// Returns the rule for `len` items: a place is packed if it fits. The rule of other places has two
    /// passes.
    pub fn for_len(self, is_long: bool, len: u64) -> Self {
        match self.kind {
            // The complement of a place is not 0.
            Kind::Place if !is_long && len <= u32::MAX.into() => Self { kind: Kind::Packed, ..self },
            _ => self,
        }
    }

    /// Whether the item of the least rank has the word of no items.
    pub fn needs_bits(&self, is_long: bool) -> bool {
        is_long && self.kind == Kind::Greatest
    }

    /// Whether each item that passes changes the word.
    pub fn adds_up(&self) -> bool {
        matches!(self.kind, Kind::Xor | Kind::Count)
    }
}

/// All bits of a type.
fn all<T>() -> u64 {
    u64::MAX >> (64 - 8 * size_of::<T>())
}

/// Returns the bits of a value of 1, 2, 4 or 8 bytes.
///
/// # Panics
///
/// If it has another size.
#[inline(always)]
pub fn bits_of<V: NoUninit>(value: V) -> u64 {
    match size_of::<V>() {
        1 => cast::<V, u8>(value).into(),
        2 => cast::<V, u16>(value).into(),
        4 => cast::<V, u32>(value).into(),
        _ => cast::<V, u64>(value),
    }
}
