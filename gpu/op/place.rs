//! What the operators that give indices have in common.

use bytemuck::{Pod, Zeroable};

/// A key and where it is.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Place {
    pub(super) key: i64,
    pub(super) index: u64,
}

impl Place {
    /// Behind every place.
    pub(super) const NONE: Self = Self { key: i64::MAX, index: u64::MAX };

    /// That of the lesser key; of equal ones, that which comes first.
    #[inline(always)]
    pub(super) fn first(self, other: Self) -> Self {
        let before = other.key < self.key || (other.key == self.key && other.index < self.index);
        if before { other } else { self }
    }
}
