//! What the operators that give indices have in common.

#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{Source, for_each_block};
#[cfg(not(target_arch = "nvptx64"))]
use crate::element::{Element, Key};
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
        let before = (other.key < self.key) | ((other.key == self.key) & (other.index < self.index));
        if before { other } else { self }
    }
}

/// The least and the greatest key of items, as they are, and the first places that have them, on a CPU: extremes are found by
/// blocks first, without regard to places, and each place once, in the first block that has the extreme of all. So all of it is
/// SIMD. What is not asked for is not compiled.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
pub(super) fn first_extremes<T: Element, S: Source<Item = T>, const LEAST: bool, const GREATEST: bool>(
    items: S,
    first: u64,
) -> [Place; 2] {
    // A NaN is the least of all keys, or the greatest.
    let ([of_least, of_greatest], mut extremes) =
        ([T::Key::LEAST, T::Key::GREATEST], [T::Key::GREATEST, T::Key::LEAST]);
    let mut starts = [0; 2];
    for_each_block::<BLOCK, S>(items, |block, start| {
        let (mut least, mut greatest) = (T::Key::GREATEST, T::Key::LEAST);
        for i in 0..block.len() {
            // SAFETY: `i` is in bounds.
            let item = unsafe { block.get(i) };
            if LEAST {
                least = least.min(item.key(of_least));
            }
            if GREATEST {
                greatest = greatest.max(item.key(of_greatest));
            }
        }
        if LEAST && least < extremes[0] {
            (extremes[0], starts[0]) = (least, start);
        }
        if GREATEST && greatest > extremes[1] {
            (extremes[1], starts[1]) = (greatest, start);
        }
        true
    });
    let index = |start: usize, nan, extreme| {
        let mut place = u32::MAX;
        for i in 0..BLOCK.min(items.len() - start) {
            // SAFETY: in bounds.
            let found = unsafe { items.get(start + i) }.key(nan) == extreme;
            place = place.min(if found { i as u32 } else { u32::MAX });
        }
        first + start as u64 + u64::from(place)
    };
    let [mut least, mut greatest] = [Place::NONE; 2];
    if LEAST {
        least = Place { key: extremes[0].wide(), index: index(starts[0], of_least, extremes[0]) };
    }
    if GREATEST {
        greatest = Place { key: !extremes[1].wide(), index: index(starts[1], of_greatest, extremes[1]) };
    }
    [least, greatest]
}

/// Items of a block: of fewer the extreme's last steps, which are not SIMD, count, and of more the search for the place.
#[cfg(not(target_arch = "nvptx64"))]
const BLOCK: usize = 1024;
