//! What a CPU folds: slices, and pairs of slices.

use bytemuck::NoUninit;
use core::array;
use core::ops::Range;

/// What a CPU folds: items at indices.
pub trait Source: Copy + Send + Sync + sealed::Sealed {
    /// The type of the items.
    type Item: Copy + 'static;

    /// No items.
    #[doc(hidden)]
    fn none() -> Self;

    /// The number of items.
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

    /// The item at an index. It is not checked: a loop that may panic is not vectorised.
    ///
    /// # Safety
    ///
    /// `index` is less than `len()`.
    unsafe fn get(self, index: usize) -> Self::Item;

    /// Prefetches the cache lines of a range, which may end beyond the items.
    fn prefetch(self, range: Range<usize>);

    /// The alignment of memory for gathered items: a cache line, or the items' alignment if that is more.
    #[doc(hidden)]
    const BOUNDARY: usize;

    /// Bytes of memory for gathered items, a multiple of [`BOUNDARY`](Self::BOUNDARY).
    #[doc(hidden)]
    fn room(items: usize) -> usize;

    /// Copies neighbouring columns, `rows` items of each, to memory: column c to `to` + c · `pitch` bytes.
    /// The first column begins at index `at`; a column's items are `stride` items apart.
    ///
    /// # Safety
    ///
    /// The items exist. Each column has [`room`](Self::room) for its items, aligned to
    /// [`BOUNDARY`](Self::BOUNDARY).
    #[doc(hidden)]
    unsafe fn gather(self, at: usize, stride: usize, rows: usize, columns: usize, to: *mut u8, pitch: usize);

    /// The items of a column that was [gathered](Self::gather).
    ///
    /// # Safety
    ///
    /// As many items were gathered to `place`, which outlives their use.
    #[doc(hidden)]
    unsafe fn gathered(place: *const u8, items: usize) -> Self;
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

    unsafe fn gather(self, at: usize, stride: usize, rows: usize, columns: usize, to: *mut u8, pitch: usize) {
        let source = |row: usize, column: usize| self.as_ptr().wrapping_add(at + row * stride + column);
        let place = |row: usize, column: usize| to.wrapping_add(column * pitch).cast::<T>().wrapping_add(row);
        let (whole_rows, whole_columns) = (rows / TILE * TILE, columns / TILE * TILE);
        // SAFETY: as the caller vouches.
        unsafe {
            for row in (0..whole_rows).step_by(TILE) {
                for column in (0..whole_columns).step_by(TILE) {
                    let tile: [[T; TILE]; TILE] =
                        array::from_fn(|next| source(row + next, column).cast::<[T; TILE]>().read());
                    for next in 0..TILE {
                        place(row, column + next).cast::<[T; TILE]>().write(tile.map(|row| row[next]));
                    }
                }
                for column in whole_columns..columns {
                    for row in row..row + TILE {
                        place(row, column).write(source(row, column).read());
                    }
                }
            }
            for row in whole_rows..rows {
                for column in 0..columns {
                    place(row, column).write(source(row, column).read());
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

    unsafe fn gather(self, at: usize, stride: usize, rows: usize, columns: usize, to: *mut u8, pitch: usize) {
        // SAFETY: as the caller vouches; each column has room for the items of both.
        unsafe {
            self.0.gather(at, stride, rows, columns, to, pitch);
            self.1.gather(at, stride, rows, columns, to.add(second_at::<A, B>(rows)), pitch);
        }
    }

    unsafe fn gathered(place: *const u8, items: usize) -> Self {
        // SAFETY: as the caller vouches.
        unsafe { (A::gathered(place, items), B::gathered(place.add(second_at::<A, B>(items)), items)) }
    }
}

/// The byte at which the second source's items begin in memory for gathered pairs.
fn second_at<A: Source, B: Source>(items: usize) -> usize {
    A::room(items).next_multiple_of(B::BOUNDARY)
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Columns are gathered by squares of TILE × TILE items, which become SIMD. One thread copies columns of
/// `f32` at 16 GB/s and more; one by one at 14, and at 5 if they are a power of two apart (Zen 5).
const TILE: usize = 4;
