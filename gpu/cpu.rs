//! The fold of a chunk on a CPU: SIMD lanes take the place of a block's threads.
//!
//! A **strip** is as many neighbouring accumulators of a row as stay close: in eight registers where there is AVX-512 and they are
//! of 4 or 8 bytes, else in 4 or 8 KiB of memory. All rows of a chunk fold into a strip, and the strip folds pairwise, to one accumulator
//! or to a few, its **heads**, before the next one begins: nothing but the chunk is read from memory. The heads of all strips are the
//! upper part of the tree.
//!
//! Where an operator is exact, the order is of no account: [`Op::fold_items`] folds the items.
//!
//! Every operator and type is compiled here several times over, so loops are written to become little code. What is without SIMD is kept
//! from being unrolled.
//!
//! The loops are written for the compiler's vectoriser, which is exact: float operations keep their order. They have counts
//! that it knows, of 64 and more, and indices: what is shorter it unrolls before it looks for vectors, and then finds poor
//! ones (`f64` sums took twice the time with iterators).
#![allow(clippy::needless_range_loop)]

use crate::op::Op;
use crate::plan::PARTIALS;
use bytemuck::NoUninit;
use core::array;
use core::mem::MaybeUninit;
use core::ops::Range;
#[cfg(target_arch = "x86_64")]
use std::is_x86_feature_detected;

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

/// Bytes of the longest row of accumulators that folds in registers: that of one operator whose accumulators have up to
/// 8 bytes, where the order counts.
const LONGEST_ROW_BYTES: usize = 32 << 10;

/// A chunk of more bytes than a level 2 cache holds is read four rows at a time, each as it lies, and not by strips: of those
/// processors foresee what they read next, and look for fewer pages.
const LEVEL_2: usize = 1 << 20;

/// Calls `each` with blocks of `N` items, the last of which may be short, and with the index of their first, until one returns
/// false.
#[inline(always)]
pub(crate) fn for_each_block<const N: usize, S: Source>(items: S, mut each: impl FnMut(S, usize) -> bool) {
    let mut start = 0;
    while start < items.len() {
        let end = items.len().min(start + N);
        // SAFETY: it lies within the items.
        if !each(unsafe { items.part(start..end) }, start) {
            return;
        }
        start = end;
    }
}

/// Strips of eight registers in the longest row.
const MOST_STRIPS: usize = LONGEST_ROW_BYTES / 512;

/// Items that are folded without SIMD sooner than it begins, and that are lifted together at a chunk's end; fewer than any row
/// has.
const FEW: usize = 16;

/// A chunk of more bytes than a level 1 cache holds is asked for a strip ahead: it is read a piece of each row in turn,
/// which processors do not foresee. With it the sum of 10^7 `f32` took 0.73 ms and without 0.94. (A first row is asked for in
/// any case, two strips ahead: where chunks are a row, as of 10^4 `f64`, a sum took 1.21 µs and without 1.38, Xeon.)
const PREFETCHED: usize = 48 << 10;

/// Folds a chunk whose rows have `row` items, a power of two from 32 to 16384, into its partial result; `first` is the
/// index of its first item in the whole input. Of an exact operator a chunk may be anything, the whole input even.
///
/// Compiled once for each instruction set, and once more without vectors, for a few items and for old processors. On a processor
/// that has all three (Zen 5), the sum of 10^4 `f32` took 0.11 µs with AVX-512, 0.36 with AVX2, 0.49 with SSE2; the least of
/// 10^4 `f64` 0.60, 1.49, 10.4.
#[inline(always)]
pub(crate) fn fold_chunk<O: Op<S::Item>, S: Source>(
    op: &O,
    chunk: S,
    first: u64,
    row: usize,
) -> O::Accumulator {
    let fold = Fold { op, chunk, first, row, above: None };
    if chunk.len() <= FEW {
        return fold.few();
    }
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx512() {
            if fold.fits_registers() && row >= 128 && chunk.len() * size_of::<S::Item>() > LEVEL_2 {
                // SAFETY: the processor has what it is compiled for.
                return unsafe { O::avx512_by_rows(fold) };
            }
            // SAFETY: the processor has what it is compiled for.
            return unsafe { O::avx512(&fold) };
        }
        if has_avx2() {
            // SAFETY: the processor has what it is compiled for.
            return unsafe { O::avx2(&fold) };
        }
        O::sse2(&fold)
    }
    #[cfg(not(target_arch = "x86_64"))]
    fold.anywhere::<true>()
}

/// As [`fold_chunk`], by the folds that the operator's crate has compiled.
#[inline(always)]
pub(crate) fn fold_by_table<O: Op<S::Item>, S: Source>(
    op: &O,
    chunk: S,
    first: u64,
    row: usize,
) -> O::Accumulator {
    let mut all = MaybeUninit::<O::Accumulator>::uninit();
    // SAFETY: the folds are for these types, and they write the accumulator.
    unsafe {
        (S::folds::<O>().chunk)(
            (&raw const *op).cast(),
            (&raw const chunk).cast(),
            0..chunk.len(),
            first,
            row,
            all.as_mut_ptr().cast(),
        );
        all.assume_init()
    }
}

/// What is compiled for an operator and a source. The methods are the operator's, because a crate is compiled by the modules of
/// its types, several at a time: functions of this module would all be compiled one after another.
trait Compiled<S: Source>: Op<S::Item> {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512(fold: &Fold<'_, Self, S>) -> Self::Accumulator {
        if !fold.fits_registers() {
            return fold.anywhere::<true>();
        }
        match const { size_of::<Self::Accumulator>() } {
            4 => fold.in_registers::<128, 16>(
                |strip| avx512::fold_strip(fold.op, strip),
                |first, others| avx512::fold_heads(fold.op, first, others),
                |vector, by| avx512::shift(fold.op, vector, by),
            ),
            8 => fold.in_registers::<64, 8>(
                |strip| avx512::fold_strip(fold.op, strip),
                |first, others| avx512::fold_heads(fold.op, first, others),
                |vector, by| avx512::shift(fold.op, vector, by),
            ),
            _ => unreachable!("of 4 or 8 bytes"),
        }
    }

    /// Whole rows first, as they lie in memory, into accumulators in a level 1 cache.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512_by_rows(mut fold: Fold<'_, Self, S>) -> Self::Accumulator {
        let mut above = Strip::<[u8; 64], { LONGEST_ROW_BYTES / 64 }>::new();
        let above = above.0.0.as_mut_ptr().cast::<Self::Accumulator>();
        let row = fold.row;
        assert!(
            128 <= row
                && row * size_of::<Self::Accumulator>() <= LONGEST_ROW_BYTES
                && row <= fold.chunk.len()
        );
        for i in 0..row {
            // SAFETY: a row has so many items, and there is room for so many accumulators.
            unsafe { above.add(i).write(fold.lift(i)) };
        }
        let mut at = row;
        while at + 4 * row <= fold.chunk.len() {
            for i in 0..row {
                // SAFETY: as above, and these are four more whole rows.
                unsafe {
                    let mut all = above.add(i).read();
                    for row in [at, at + row, at + 2 * row, at + 3 * row] {
                        all = fold.op.combine(all, fold.lift(row + i));
                    }
                    above.add(i).write(all);
                }
            }
            at += 4 * row;
        }
        // SAFETY: written above.
        fold.above = Some((unsafe { core::slice::from_raw_parts(above, row) }, at));
        // SAFETY: as the caller vouches.
        unsafe { Self::avx512(&fold) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(fold: &Fold<'_, Self, S>) -> Self::Accumulator {
        fold.anywhere::<true>()
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(never)]
    fn sse2(fold: &Fold<'_, Self, S>) -> Self::Accumulator {
        fold.anywhere::<false>()
    }

    /// As [`Folds::chunk`].
    unsafe fn chunk(
        op: *const (),
        source: *const (),
        range: Range<usize>,
        first: u64,
        row: usize,
        place: *mut (),
    ) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (op, source) = (&*op.cast::<Self>(), *source.cast::<S>());
            place.cast::<Self::Accumulator>().write(op.fold_chunk(source.part(range), first, row));
        }
    }

    /// As [`Folds::partials`].
    unsafe fn partials(op: *const (), partials: *const (), count: usize, place: *mut ()) {
        // SAFETY: as the caller vouches.
        let (op, partials) = unsafe {
            (&*op.cast::<Self>(), core::slice::from_raw_parts(partials.cast::<Self::Accumulator>(), count))
        };
        if Self::EXACT {
            let mut all = op.identity();
            for partial in 0..count {
                all = op.combine(all, partials[scalar(partial)]);
            }
            // SAFETY: as the caller vouches.
            return unsafe { place.cast::<Self::Accumulator>().write(all) };
        }
        let mut tree = Pairwise::new();
        for lane in 0..count.min(PARTIALS as usize) {
            let mut all = op.identity();
            for partial in (lane..count).step_by(PARTIALS as usize) {
                all = op.combine(all, partials[scalar(partial)]);
            }
            tree.push(op, all);
        }
        // SAFETY: as the caller vouches.
        unsafe { place.cast::<Self::Accumulator>().write(tree.finish(op)) };
    }
}

impl<O: Op<S::Item>, S: Source> Compiled<S> for O {}

/// The instruction set that `fold_chunk` uses here.
pub fn simd() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        return "AVX-512";
    } else if has_avx2() {
        return "AVX2";
    }
    if cfg!(target_arch = "x86_64") {
        "SSE2"
    } else if cfg!(target_arch = "aarch64") {
        "NEON"
    } else {
        "no SIMD"
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// The arguments of `fold_chunk`.
struct Fold<'a, O: Op<S::Item>, S: Source> {
    op: &'a O,
    chunk: S,
    first: u64,
    row: usize,
    /// The accumulators of a row into which so many items have been folded already, if any have.
    above: Option<(&'a [O::Accumulator], usize)>,
}

impl<O: Op<S::Item>, S: Source> Fold<'_, O, S> {
    /// Whether accumulators have the size that AVX-512 registers are used for, and a row of them no more than
    /// [`LONGEST_ROW_BYTES`]. A row of two operators over `f16` may have twice that: 8,192 accumulators of two `f32` each.
    #[inline(always)]
    fn fits_registers(&self) -> bool {
        let bytes = const { size_of::<O::Accumulator>() };
        if const { O::EXACT || !matches!(size_of::<O::Accumulator>(), 4 | 8) } {
            return false;
        }
        // One operator's longest row always fits: then nothing else is compiled.
        let always = const { O::ROOM.least * 1024 * size_of::<O::Accumulator>() <= LONGEST_ROW_BYTES };
        always || self.row * bytes <= LONGEST_ROW_BYTES
    }

    /// What needs no instruction set. Where not `VECTORS`, the loops are left as they are written.
    #[inline(always)]
    fn anywhere<const VECTORS: bool>(&self) -> O::Accumulator {
        if O::EXACT {
            return if VECTORS {
                self.op.fold_items(self.chunk, self.first)
            } else {
                fold_in_turn::<false, _, _>(self.op, self.chunk, self.first)
            };
        }
        // Strips of 4 KiB, and 8 of large accumulators: a strip ends in steps that are not SIMD (`var` of 10^5 `f32` took 60 µs with
        // strips of 128 and 40 with 256).
        match const { size_of::<O::Accumulator>() } {
            0..=4 => self.in_strips::<1024, VECTORS>(),
            5..=8 => self.in_strips::<512, VECTORS>(),
            9..=16 => self.in_strips::<256, VECTORS>(),
            17..=32 => self.in_strips::<256, VECTORS>(),
            _ => self.in_strips::<64, VECTORS>(),
        }
    }

    /// Folds [`FEW`] items or fewer, which are no more than a row.
    #[inline(always)]
    fn few(&self) -> O::Accumulator {
        if O::EXACT {
            return fold_in_turn::<false, _, _>(self.op, self.chunk, self.first);
        }
        if size_of::<O::Accumulator>() > 8 {
            let mut tree = Pairwise::new();
            for i in 0..self.chunk.len() {
                // SAFETY: `i` is in bounds.
                tree.push(self.op, unsafe { self.lift(scalar(i)) });
            }
            return tree.finish(self.op);
        }
        // A whole tree for each bit of their number.
        let mut all = self.op.identity();
        let mut rest = self.chunk.len();
        macro_rules! trees {
            ($($items:literal)*) => {$(
                if rest & $items != 0 {
                    rest -= $items;
                    // SAFETY: these items, and those before them, have not been folded yet.
                    let lifted: [_; $items] = array::from_fn(|i| unsafe { self.lift(rest + i) });
                    all = self.op.combine(fold_neighbours(self.op, lifted), all);
                }
            )*};
        }
        trees! { 1 2 4 8 16 }
        all
    }

    /// In the plan's order, by strips of `N` accumulators in memory. Their words lie apart, those of a place side by side, where
    /// accumulators have several: so the vectoriser has them in registers of their own.
    #[inline(always)]
    fn in_strips<const N: usize, const VECTORS: bool>(&self) -> O::Accumulator {
        let place = |i| if VECTORS { i } else { scalar(i) };
        let mut held = Strip::<O::Accumulator, N>::new();
        let mut pairs = Strip::<O::Accumulator, N>::new();
        let mut tree = Pairwise::new();
        let len = self.chunk.len();
        let columns = self.row.min(len);
        for start in (0..columns).step_by(N) {
            let mut count = N.min(columns - start);
            for i in 0..count {
                // SAFETY: both are in bounds.
                unsafe { held.set(place(i), self.lift(start + i)) };
            }
            let mut at = start + self.row;
            // Four rows at a time, so that accumulators stay in registers.
            while VECTORS && count == N && at + 3 * self.row + N <= len {
                for i in 0..N {
                    // SAFETY: all are in bounds, and the place has been written above.
                    unsafe {
                        let mut all = held.get(i);
                        for row in 0..4 {
                            all = self.op.combine(all, self.lift(at + row * self.row + i));
                        }
                        held.set(i, all);
                    }
                }
                at += 4 * self.row;
            }
            for at in (at..len).step_by(self.row) {
                for i in 0..count.min(len - at) {
                    // SAFETY: both are in bounds, and the place has been written above.
                    unsafe { held.set(place(i), self.op.combine(held.get(i), self.lift(at + i))) };
                }
            }
            // Two levels of the tree, to the other strip and back, though the second may have nothing left to do.
            while count > 1 {
                count = self.fold_pairs::<N, VECTORS>(&mut held, &mut pairs, count);
                count = self.fold_pairs::<N, VECTORS>(&mut pairs, &mut held, count);
            }
            // SAFETY: written, as no strip is empty.
            tree.push(self.op, unsafe { held.get(0) });
        }
        tree.finish(self.op)
    }

    /// Folds so many accumulators with their neighbours into another strip; what has no neighbour stays as it is. Returns how many are left.
    #[inline(always)]
    fn fold_pairs<const N: usize, const VECTORS: bool>(
        &self,
        from: &mut Strip<O::Accumulator, N>,
        to: &mut Strip<O::Accumulator, N>,
        count: usize,
    ) -> usize {
        if count % 2 == 1 {
            // SAFETY: a place below `N`, of which there is an even number, and above those written.
            unsafe { from.set(count, self.op.identity()) };
        }
        let pairs = count.div_ceil(2);
        for i in 0..pairs {
            let place = if VECTORS { i } else { scalar(i) };
            // SAFETY: these places have been written.
            unsafe { to.set(place, self.op.combine(from.get(2 * i), from.get(2 * i + 1))) };
        }
        pairs
    }

    /// The accumulator of the item at an index.
    ///
    /// # Safety
    ///
    /// `index` is less than the chunk's length.
    #[inline(always)]
    unsafe fn lift(&self, index: usize) -> O::Accumulator {
        // SAFETY: as the caller vouches.
        self.op.lift(unsafe { self.chunk.get(index) }, self.first + index as u64)
    }

    /// The accumulators of `W` neighbouring items.
    ///
    /// # Safety
    ///
    /// There are so many from `first` on.
    #[inline(always)]
    unsafe fn lift_vector<const W: usize>(&self, first: usize) -> [O::Accumulator; W] {
        let mut lifted = [self.op.identity(); W];
        for i in 0..W {
            // SAFETY: as the caller vouches.
            lifted[i] = unsafe { self.lift(first + i) };
        }
        lifted
    }

    /// In the plan's order, by strips of `N` with `W` heads each: `fold_strip` folds pairwise, neighbours first, and so does
    /// `fold_heads` the heads of the last strip, or of the last four. Each is called at one place, and so inlined, however long
    /// it is.
    #[inline(always)]
    fn in_registers<const N: usize, const W: usize>(
        &self,
        fold_strip: impl Fn(&[O::Accumulator; N]) -> [O::Accumulator; W],
        fold_heads: impl Fn(&[O::Accumulator; W], Option<&[[O::Accumulator; W]; 3]>) -> O::Accumulator,
        shift: impl Fn(&[O::Accumulator; W], usize) -> [O::Accumulator; W],
    ) -> O::Accumulator {
        let prefetched = self.chunk.len() * size_of::<S::Item>() > PREFETCHED;
        let mut heads = Aligned([[const { MaybeUninit::uninit() }; W]; MOST_STRIPS + 8]);
        let heads = &mut heads.0;
        let mut strips = self.row.min(self.chunk.len()).div_ceil(N);
        let mut of_heads = false;
        loop {
            for strip in 0..strips {
                let held = if of_heads {
                    // SAFETY: so many strips of heads have been written, the last with identities for what it lacks.
                    unsafe { heads.as_ptr().cast::<[O::Accumulator; N]>().add(strip).read() }
                } else {
                    self.fold_rows::<N, W>(strip * N, self.row, prefetched, &shift)
                };
                heads[strip] = fold_strip(&held).map(MaybeUninit::new);
            }
            let mut others = None;
            if strips > 1 {
                heads[strips..strips + 8].as_flattened_mut().fill(MaybeUninit::new(self.op.identity()));
                // SAFETY: written above.
                others = Some(unsafe { &*heads[1..].as_ptr().cast() });
            }
            if strips <= 4 {
                // SAFETY: written above.
                return fold_heads(unsafe { &*heads.as_ptr().cast() }, others);
            }
            strips = strips.div_ceil(8);
            of_heads = true;
        }
    }

    /// The accumulators `start..start + N` of rows of `row` items, or of all there are in a row. Where there are no items
    /// they are identities.
    ///
    /// The last items, which fill no strip, are folded a vector at a time, and what fills no vector is read with the items before
    /// it, which are shifted out. So no load reaches beyond the chunk: a masked one from a page that is not mapped took up to 1 µs
    /// (Zen 5), though all of it was masked, and by way of a copy in memory 1,000 `f32` took 73 ns where they take 56.
    #[inline(always)]
    fn fold_rows<const N: usize, const W: usize>(
        &self,
        start: usize,
        row: usize,
        prefetched: bool,
        shift: &impl Fn(&[O::Accumulator; W], usize) -> [O::Accumulator; W],
    ) -> [O::Accumulator; N] {
        let len = self.chunk.len();
        let mut held = [self.op.identity(); N];
        let mut at = start;
        if let Some((above, items)) = self.above {
            for i in 0..N {
                // SAFETY: a row has a whole number of such strips.
                held[i] = unsafe { *above.get_unchecked(start + i) };
            }
            at += items;
        } else if N <= row && at + N <= len {
            for i in 0..N {
                // SAFETY: as the condition says.
                held[i] = unsafe { self.lift(at + i) };
            }
            self.chunk.prefetch(at + 2 * N..at + 3 * N);
            at += row;
        }
        while N <= row && at + N <= len {
            for i in 0..N {
                // SAFETY: as the condition says.
                held[i] = self.op.combine(held[i], unsafe { self.lift(at + i) });
            }
            if prefetched {
                self.chunk.prefetch(at + 2 * N..at + 3 * N);
            }
            at += row;
        }
        while at < len {
            let items = row.min(len - at);
            const { assert!(N == 8 * W && W <= FEW) };
            // SAFETY: a chunk has more than FEW items, and a row has, too.
            let last = shift(&unsafe { self.lift_vector(at + items - W) }, items.wrapping_neg() % W);
            macro_rules! vectors {
                ($($vector:literal)*) => {$(
                    let from = $vector * W;
                    if from < items {
                        let whole = from + W <= items;
                        // SAFETY: as the condition says.
                        let lifted = if whole { unsafe { self.lift_vector(at + from) } } else { last };
                        for i in 0..W {
                            held[from + i] = self.op.combine(held[from + i], lifted[i]);
                        }
                    }
                )*};
            }
            vectors! { 0 1 2 3 4 5 6 7 }
            at += row;
        }
        held
    }
}

/// Folds one item after another, the first of which has the index given. Where not `VECTORS`, the loop is left as it is written.
#[inline(always)]
pub(crate) fn fold_in_turn<const VECTORS: bool, O: Op<S::Item>, S: Source>(
    op: &O,
    items: S,
    first: u64,
) -> O::Accumulator {
    let mut all = op.identity();
    for i in 0..items.len() {
        let i = if VECTORS { i } else { scalar(i) };
        // SAFETY: `i` is in bounds.
        all = op.combine(all, op.lift(unsafe { items.get(i) }, first + i as u64));
    }
    all
}

/// A loop's variable of which the compiler knows nothing: it leaves a loop with one as it is.
#[inline(always)]
fn scalar(#[allow(unused_mut)] mut i: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no instructions.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) i, options(pure, nomem, nostack, preserves_flags));
    }
    i
}

/// A tree of accumulators that come one after another, pairwise, neighbours first; what is missing of it are identities.
#[derive(Clone, Debug)]
pub struct Pairwise<A: Copy> {
    /// The trees that wait for their neighbours: the longest first, one for each bit of their number.
    waiting: [MaybeUninit<A>; 32],
    depth: usize,
    count: usize,
}

impl<A: Copy> Pairwise<A> {
    /// One of none.
    #[inline(always)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { waiting: [const { MaybeUninit::uninit() }; 32], depth: 0, count: 0 }
    }

    /// Adds the next, of which there are fewer than 2^32.
    #[inline(always)]
    pub fn push<O: Op<I, Accumulator = A>, I: Copy + 'static>(&mut self, op: &O, mut tree: A) {
        let mut pairs = self.count;
        while pairs % 2 == 1 {
            self.depth -= 1;
            // SAFETY: below the depth all have been written.
            tree = op.combine(unsafe { self.waiting[self.depth].assume_init() }, tree);
            pairs /= 2;
        }
        self.waiting[self.depth].write(tree);
        self.depth += 1;
        self.count += 1;
    }

    /// The accumulator of all.
    #[inline(always)]
    pub fn finish<O: Op<I, Accumulator = A>, I: Copy + 'static>(mut self, op: &O) -> A {
        let mut all = op.identity();
        while self.depth > 0 {
            self.depth -= 1;
            // SAFETY: below the depth all have been written.
            all = op.combine(unsafe { self.waiting[self.depth].assume_init() }, all);
        }
        all
    }
}

/// Accumulators in memory. Those of two to eight words of 8 bytes lie by words: the first words of all, the second ones, and so on.
struct Strip<A, const N: usize>(Aligned<[MaybeUninit<A>; N]>);

impl<A: Copy, const N: usize> Strip<A, N> {
    const WORDS: usize = match size_of::<A>() {
        bytes @ 16..=64 if bytes % 8 == 0 => bytes / 8,
        _ => 0,
    };

    #[inline(always)]
    const fn new() -> Self {
        Self(Aligned([const { MaybeUninit::uninit() }; N]))
    }

    /// # Safety
    ///
    /// `i` is less than `N`, and has been set.
    #[inline(always)]
    unsafe fn get(&self, i: usize) -> A {
        let places = self.0.0.as_ptr();
        let mut value = MaybeUninit::<A>::uninit();
        if Self::WORDS == 0 {
            // SAFETY: as the caller vouches.
            return unsafe { places.add(i).cast::<A>().read() };
        }
        for word in 0..Self::WORDS {
            // SAFETY: there are N places of so many words here, and so many words in a value.
            unsafe {
                let word_of_place = places.cast::<MaybeUninit<u64>>().add(word * N + i).read();
                value.as_mut_ptr().cast::<MaybeUninit<u64>>().add(word).write_unaligned(word_of_place);
            }
        }
        // SAFETY: each of its words has been written by `set`.
        unsafe { value.assume_init() }
    }

    /// # Safety
    ///
    /// `i` is less than `N`.
    #[inline(always)]
    unsafe fn set(&mut self, i: usize, value: A) {
        let places = self.0.0.as_mut_ptr();
        if Self::WORDS == 0 {
            // SAFETY: as the caller vouches.
            return unsafe { places.add(i).cast::<A>().write(value) };
        }
        for word in 0..Self::WORDS {
            // SAFETY: there are N places of so many words here, and so many words in a value.
            unsafe {
                let word_of_value = (&raw const value).cast::<MaybeUninit<u64>>().add(word).read_unaligned();
                places.cast::<MaybeUninit<u64>>().add(word * N + i).write(word_of_value);
            }
        }
    }
}

/// An operator's folds over a source, by places in memory that are of their types: so that who cuts up an input, and hands it to
/// threads, need not be compiled for each of them.
#[derive(Clone, Copy, Debug)]
pub struct Folds {
    /// `fold_chunk`: by the operator, of a range of the source, the first of which has the index given, in rows of so
    /// many items, to a place for the partial result.
    ///
    /// # Safety
    ///
    /// They are of the operator's and the source's types, the range lies within the source, and the place may be written.
    pub chunk: unsafe fn(*const (), *const (), Range<usize>, u64, usize, *mut ()),

    /// By the operator, of so many partial results, to a place for the accumulator of all: result i goes into the accumulator i
    /// modulo [`PARTIALS`], and these fold pairwise.
    ///
    /// # Safety
    ///
    /// They are of the operator's types, there are so many, and the place may be written.
    pub partials: unsafe fn(*const (), *const (), usize, *mut ()),
}

impl Folds {
    /// Those of an operator and a source.
    pub const fn of<O: Op<S::Item>, S: Source>() -> Self {
        Self { chunk: <O as Compiled<S>>::chunk, partials: <O as Compiled<S>>::partials }
    }
}

/// Folds accumulators, a power of two of them, pairwise, neighbours first.
#[inline(always)]
fn fold_neighbours<O: Op<I>, I: Copy + 'static, const N: usize>(
    op: &O,
    mut accumulators: [O::Accumulator; N],
) -> O::Accumulator {
    let mut len = N / 2;
    while len > 0 {
        for i in 0..len {
            accumulators[i] = op.combine(accumulators[2 * i], accumulators[2 * i + 1]);
        }
        len /= 2;
    }
    accumulators[0]
}

/// On a boundary of cache lines, which loads and stores then do not cross.
#[repr(align(64))]
struct Aligned<T>(T);

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use crate::op::Op;
    use core::arch::asm;
    use core::arch::x86_64::*;
    use core::mem::transmute_copy;

    /// Folds eight vectors of `W` accumulators, of 4 or 8 bytes each, pairwise, neighbours first, to one.
    ///
    /// By intrinsics, which only move accumulators. The vectoriser's own shuffles took two to three times as long: it has
    /// every level in order, by permutations through whole vectors, and takes short levels apart.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub fn fold_strip<O: Op<I>, I: Copy + 'static, const N: usize, const W: usize>(
        op: &O,
        strip: &[O::Accumulator; N],
    ) -> [O::Accumulator; W] {
        assert!(size_of::<[O::Accumulator; W]>() == 64 && N == 8 * W);
        // SAFETY: both are 512 bytes, of any value.
        let [a, b, c, d, e, f, g, h]: [__m512d; 8] = unsafe { transmute_copy(strip) };
        let within = |a, b| fold_pairs::<O, I, W, true>(op, a, b);
        let across = |a, b| fold_pairs::<O, I, W, false>(op, a, b);
        let (ab, cd, ef, gh) = (within(a, b), within(c, d), within(e, f), within(g, h));
        let mut all;
        if W == 16 {
            all = across(within(ab, cd), within(ef, gh));
            let order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
            all = _mm512_castps_pd(_mm512_permutexvar_ps(order, _mm512_castpd_ps(all)));
        } else {
            all = across(across(ab, cd), across(ef, gh));
        }
        // SAFETY: both are 64 bytes, of any value.
        unsafe { transmute_copy(&all) }
    }

    /// Folds a vector, or four, pairwise, neighbours first. What is below four vectors' tree is the same for each, so that they
    /// share it, side by side.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub fn fold_heads<O: Op<I>, I: Copy + 'static, const W: usize>(
        op: &O,
        first: &[O::Accumulator; W],
        others: Option<&[[O::Accumulator; W]; 3]>,
    ) -> O::Accumulator {
        assert!(size_of::<[O::Accumulator; W]>() == 64);
        let within = |a, b| fold_pairs::<O, I, W, true>(op, a, b);
        let across = |a, b| fold_pairs::<O, I, W, false>(op, a, b);
        // SAFETY: both are 64 bytes, of any value.
        let a: __m512d = unsafe { transmute_copy(first) };
        let mut all = a;
        if let Some(others) = others {
            // SAFETY: both are 192 bytes, of any value.
            let [b, c, d]: [__m512d; 3] = unsafe { transmute_copy(others) };
            let (ab, cd) = (within(a, b), within(c, d));
            if W == 16 {
                all = within(ab, cd);
                all = across(all, all);
            } else {
                all = across(ab, cd);
            }
            all = across(all, all);
            all = within(all, all);
            all = if W == 16 { within(all, all) } else { across(all, all) };
        } else {
            all = within(all, all);
            if W == 16 {
                all = within(all, all);
            }
            all = across(all, all);
            all = across(all, all);
        }
        // SAFETY: an accumulator has any value, and is smaller.
        unsafe { transmute_copy(&all) }
    }

    /// The accumulators of a vector from place `by` on, and identities after them.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub fn shift<O: Op<I>, I: Copy + 'static, const W: usize>(
        op: &O,
        vector: &[O::Accumulator; W],
        by: usize,
    ) -> [O::Accumulator; W] {
        assert!(size_of::<[O::Accumulator; W]>() == 64);
        // SAFETY: all are 64 bytes, of any value.
        let (vector, identities) = unsafe { (transmute_copy(vector), transmute_copy(&[op.identity(); W])) };
        let words = by * (16 / W);
        let places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let from = _mm512_add_epi32(places, _mm512_set1_epi32(words as i32));
        let shifted = _mm512_mask_permutexvar_epi32(identities, u16::MAX >> words, from, vector);
        // SAFETY: both are 64 bytes, of any value.
        unsafe { transmute_copy(&shifted) }
    }

    /// Combines the even places of two vectors with the odd ones: those within lanes of 16 bytes, which leaves results of both
    /// in each lane, or the even lanes with the odd ones.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn fold_pairs<O: Op<I>, I: Copy + 'static, const W: usize, const WITHIN: bool>(
        op: &O,
        a: __m512d,
        b: __m512d,
    ) -> __m512d {
        let (even, odd) = match (W, WITHIN) {
            (16, true) => {
                let (a, b) = (_mm512_castpd_ps(a), _mm512_castpd_ps(b));
                let (even, odd) = (_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b));
                (_mm512_castps_pd(even), _mm512_castps_pd(odd))
            }
            (_, true) => (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b)),
            (_, false) => (_mm512_shuffle_f64x2::<0x88>(a, b), _mm512_shuffle_f64x2::<0xdd>(a, b)),
        };
        // SAFETY: both are 64 bytes, of any value.
        let even: [O::Accumulator; W] = unsafe { transmute_copy(&opaque(even)) };
        // SAFETY: as above.
        let mut odd: [O::Accumulator; W] = unsafe { transmute_copy(&opaque(odd)) };
        for (even, odd) in even.into_iter().zip(&mut odd) {
            *odd = op.combine(even, *odd);
        }
        // SAFETY: as above.
        unsafe { transmute_copy(&odd) }
    }

    /// The same vector, of which the compiler knows nothing: it would see through the shuffle, and shuffle 16 bytes at a
    /// time instead.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn opaque(mut vector: __m512d) -> __m512d {
        // SAFETY: no instructions.
        unsafe { asm!("/* {} */", inout(zmm_reg) vector, options(pure, nomem, nostack, preserves_flags)) };
        vector
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::*;
    use bytemuck::bytes_of;
    use std::vec::Vec;

    /// The accumulator of a chunk by the plan's description.
    fn planned<O: Op<T>, T: Element>(op: &O, chunk: &[T], first: u64, row: usize) -> O::Accumulator {
        fn tree<O: Op<T>, T: Element>(op: &O, columns: &[O::Accumulator]) -> O::Accumulator {
            match columns {
                [one] => *one,
                _ => {
                    let (a, b) = columns.split_at(columns.len() / 2);
                    op.combine(tree(op, a), tree(op, b))
                }
            }
        }
        let column = |column: usize| {
            (column..chunk.len())
                .step_by(row)
                .fold(op.identity(), |all, i| op.combine(all, op.lift(chunk[i], first + i as u64)))
        };
        tree(op, &(0..row).map(column).collect::<Vec<_>>())
    }

    /// Every instruction set that the processor has.
    fn check<O: Op<T> + Default, T: Element>(from: impl Fn(usize) -> T) {
        let op = &O::default();
        let items = (0..9000).map(from).collect::<Vec<_>>();
        for row in [32, 64, 128, 256, 512, 2048] {
            for len in [1, 2, 10, 16, 17, 31, 33, 63, 100, 127, 129, 500, 1000, 1025, 2050, 3333, 8192, 8999]
            {
                // Of longer rows an operator with large accumulators has none.
                if !O::EXACT && size_of::<O::Accumulator>() > 8 && row > 1024 {
                    continue;
                }
                let (first, chunk) = (7, &items[9000 - len..]);
                let expected = planned(op, chunk, first, row);
                let same = |what: &str, all: O::Accumulator| {
                    assert_eq!(
                        bytes_of(&all),
                        bytes_of(&expected),
                        "{} {} {what} {len} {row}",
                        O::NAME,
                        T::NAME
                    );
                };
                same("any", fold_chunk(op, chunk, first, row));
                #[cfg(target_arch = "x86_64")]
                {
                    let fold = || Fold { op, chunk, first, row, above: None };
                    same("SSE2", O::sse2(&fold()));
                    if has_avx2() {
                        // SAFETY: the processor has it.
                        same("AVX2", unsafe { O::avx2(&fold()) });
                    }
                    if has_avx512() && len > FEW {
                        // SAFETY: the processor has it.
                        same("AVX-512", unsafe { O::avx512(&fold()) });
                    }
                    if has_avx512()
                        && !O::EXACT
                        && matches!(size_of::<O::Accumulator>(), 4 | 8)
                        && 128 <= row
                        && row <= len
                    {
                        // SAFETY: the processor has it.
                        same("rows", unsafe { O::avx512_by_rows(fold()) });
                    }
                }
            }
        }
    }

    #[test]
    fn instruction_sets_agree() {
        macro_rules! operators {
            ({} $($(#[$doc:meta])* $name:ident: $op:ident $blocks:ident;)*) => {$(
                let scrambled = |i: usize| (i as u32).wrapping_mul(0x9e37_79b9);
                check::<$op, f64>(|i| f64::from(scrambled(i)) * 2f64.powi(-31) - 1.0);
                check::<$op, f32>(|i| (scrambled(i) >> 8) as f32 * 2f32.powi(-23) - 1.0);
                check::<$op, bf16>(|i| bf16::from_bits((scrambled(i) >> 16) as u16 & 0xbfff));
                check::<$op, i8>(|i| (scrambled(i) >> 24) as i8);
                check::<$op, u64>(|i| u64::from(scrambled(i)).pow(2));
            )*};
        }
        for_each_operator! { operators! {} }
    }
}
