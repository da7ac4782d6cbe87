//! What is folded on a CPU: items at indices.

use super::Folds;
use crate::op::Op;
use bytemuck::NoUninit;
use core::array;
use core::ops::Range;

/// What is folded on a CPU: items at indices.
pub trait Source: Copy + Send + Sync + sealed::Sealed {
    /// What is at an index.
    type Item: Copy + 'static;

    /// No items.
    #[doc(hidden)]
    fn none() -> Self;

    /// Items.
    fn len(self) -> usize;

    /// Whether there are no items.
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The items of a range.
    ///
    /// # Safety
    ///
    /// It lies within `0..len()`.
    unsafe fn part(self, range: Range<usize>) -> Self;

    /// The item at an index. Not checked: a loop with a way out is not vectorised.
    ///
    /// # Safety
    ///
    /// `index` is less than `len()`.
    unsafe fn get(self, index: usize) -> Self::Item;

    /// Asks for the cache lines of a range that is read soon, wherever it ends.
    fn prefetch(self, range: Range<usize>);

    /// Bytes of the boundary on which places for items lie: a cache line, or the items' alignment if that is more.
    #[doc(hidden)]
    const BOUNDARY: usize;

    /// Bytes of a place for so many items: a multiple of [`BOUNDARY`](Self::BOUNDARY).
    #[doc(hidden)]
    fn room(items: usize) -> usize;

    /// Copies columns to places, `pitch` bytes from one to the next: of each, so many items, each `stride` items after
    /// the one before. The first column's first item is that at `first`, and the columns lie side by side.
    ///
    /// # Safety
    ///
    /// The items are there, and the places have [`room`](Self::room) for them, on a [`BOUNDARY`](Self::BOUNDARY) each.
    #[doc(hidden)]
    unsafe fn gather(
        self,
        first: usize,
        stride: usize,
        items: usize,
        columns: usize,
        places: *mut u8,
        pitch: usize,
    );

    /// The items that have been copied to a place.
    ///
    /// # Safety
    ///
    /// By [`gather`](Self::gather), as many; and the place stays as long as this is used.
    #[doc(hidden)]
    unsafe fn gathered(place: *const u8, items: usize) -> Self;

    /// An operator's folds over such a source: those that its crate has compiled, if it has any for it.
    #[inline(always)]
    fn folds<O: Op<Self::Item>>() -> Folds {
        // Of a constant condition, the other branch is not compiled. (A pair is not plain, so that there is one source for items of a
        // type: the folds are for this one.)
        if const { O::ON_CPU.is_some() } {
            const { O::ON_CPU }.map_or_else(|| unreachable!(), |compiled| compiled.folds())
        } else {
            Folds::of::<O, Self>()
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

impl<T> sealed::Sealed for &[T] {}

impl<A: sealed::Sealed, B: sealed::Sealed> sealed::Sealed for (A, B) {}

impl<T: NoUninit + Send + Sync> Source for &[T] {
    type Item = T;

    fn none() -> Self {
        &[]
    }

    #[inline(always)]
    fn len(self) -> usize {
        <[T]>::len(self)
    }

    #[inline(always)]
    unsafe fn part(self, range: Range<usize>) -> Self {
        // SAFETY: the caller's promise.
        unsafe { self.get_unchecked(range) }
    }

    #[inline(always)]
    unsafe fn get(self, index: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { *self.get_unchecked(index) }
    }

    #[inline(always)]
    fn prefetch(self, range: Range<usize>) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..range.len() * size_of::<T>() / 64 {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = self.as_ptr().wrapping_add(range.start).wrapping_byte_add(64 * line);
            // SAFETY: a prefetch reads nothing, and may have any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = range; // Rust has no function for it.
    }

    const BOUNDARY: usize = if align_of::<T>() > LINE { align_of::<T>() } else { LINE };

    fn room(items: usize) -> usize {
        (items * size_of::<T>()).next_multiple_of(Self::BOUNDARY)
    }

    unsafe fn gather(
        self,
        first: usize,
        stride: usize,
        items: usize,
        columns: usize,
        places: *mut u8,
        pitch: usize,
    ) {
        let from = |item: usize, column: usize| self.as_ptr().wrapping_add(first + item * stride + column);
        let to =
            |item: usize, column: usize| places.wrapping_add(column * pitch).cast::<T>().wrapping_add(item);
        let (whole_items, whole_columns) = (items / TILE * TILE, columns / TILE * TILE);
        // SAFETY: as the caller vouches.
        unsafe {
            for item in (0..whole_items).step_by(TILE) {
                for column in (0..whole_columns).step_by(TILE) {
                    let rows: [[T; TILE]; TILE] =
                        array::from_fn(|row| from(item + row, column).cast::<[T; TILE]>().read());
                    for place in 0..TILE {
                        to(item, column + place).cast::<[T; TILE]>().write(rows.map(|row| row[place]));
                    }
                }
                for column in whole_columns..columns {
                    for item in item..item + TILE {
                        to(item, column).write(from(item, column).read());
                    }
                }
            }
            for item in whole_items..items {
                for column in 0..columns {
                    to(item, column).write(from(item, column).read());
                }
            }
        }
    }

    unsafe fn gathered(place: *const u8, items: usize) -> Self {
        // SAFETY: as the caller vouches.
        unsafe { core::slice::from_raw_parts(place.cast(), items) }
    }
}

/// Pairs of items, from two sources of the same length.
impl<A: Source, B: Source> Source for (A, B) {
    type Item = (A::Item, B::Item);

    fn none() -> Self {
        (A::none(), B::none())
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    unsafe fn part(self, range: Range<usize>) -> Self {
        // SAFETY: the caller's promise, for sources of the same length.
        unsafe { (self.0.part(range.clone()), self.1.part(range)) }
    }

    #[inline(always)]
    unsafe fn get(self, index: usize) -> Self::Item {
        // SAFETY: the caller's promise, for sources of the same length.
        unsafe { (self.0.get(index), self.1.get(index)) }
    }

    #[inline(always)]
    fn prefetch(self, range: Range<usize>) {
        self.0.prefetch(range.clone());
        self.1.prefetch(range);
    }

    const BOUNDARY: usize = if A::BOUNDARY > B::BOUNDARY { A::BOUNDARY } else { B::BOUNDARY };

    fn room(items: usize) -> usize {
        (second_at::<A, B>(items) + B::room(items)).next_multiple_of(Self::BOUNDARY)
    }

    unsafe fn gather(
        self,
        first: usize,
        stride: usize,
        items: usize,
        columns: usize,
        places: *mut u8,
        pitch: usize,
    ) {
        // SAFETY: as the caller vouches; each place has room for the items of both.
        unsafe {
            self.0.gather(first, stride, items, columns, places, pitch);
            self.1.gather(first, stride, items, columns, places.add(second_at::<A, B>(items)), pitch);
        }
    }

    unsafe fn gathered(place: *const u8, items: usize) -> Self {
        // SAFETY: as the caller vouches.
        unsafe { (A::gathered(place, items), B::gathered(place.add(second_at::<A, B>(items)), items)) }
    }
}

/// Where in a place for pairs the items of the second source begin, in bytes: after those of the first.
fn second_at<A: Source, B: Source>(items: usize) -> usize {
    A::room(items).next_multiple_of(B::BOUNDARY)
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Items of a column that are copied together with those of as many neighbours: of these the compiler makes SIMD. In
/// one thread columns of `f32` are copied at 16 GB/s and more; one by one, at 14, and at 5 where they lie a power of
/// two apart (Zen 5).
const TILE: usize = 4;
