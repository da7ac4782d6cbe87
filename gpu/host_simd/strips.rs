//! The fold of a chunk by strips, in memory or in registers.

use super::{FEW, Pairwise, Source, fold_in_turn, scalar};
use crate::agent::{Agent, room};
use crate::op::Op;
use core::array;
use core::mem::MaybeUninit;

/// Bytes of the longest row of accumulators that folds in registers. It is the longest row of an operator
/// that is not exact and has accumulators of up to 8 bytes.
pub(super) const LONGEST_ROW_BYTES: usize = 32 << 10;

/// Strips of eight registers in the longest row.
const MOST_STRIPS: usize = LONGEST_ROW_BYTES / 512;

/// Bytes of a level 1 cache. Larger chunks are prefetched two strips ahead, because processors do not foresee
/// reads that go from row to row: the sum of 10^7 `f32` took 0.73 ms with it and 0.94 without. The first row
/// is always prefetched: the sum of 10^4 `f64`, a row a chunk, took 1.21 µs with it and 1.38 without (Xeon).
const PREFETCHED: usize = 48 << 10;

/// The arguments of [`fold_chunk`](super::fold_chunk).
pub(super) struct Fold<'a, O: Op<S::Item>, S: Source> {
    pub(super) op: &'a O,
    pub(super) chunk: S,
    pub(super) first: u64,
    pub(super) row: usize,
    /// A row of accumulators into which the chunk's first items have been folded already, and the number of
    /// these items.
    pub(super) above: Option<(&'a [O::Accumulator], usize)>,
}

impl<O: Op<S::Item>, S: Source> Fold<'_, O, S> {
    /// Whether the row folds in AVX-512 registers: accumulators have 4 or 8 bytes, and a row of them at most
    /// [`LONGEST_ROW_BYTES`]. A row of two operators over `f16` may be longer: 8,192 accumulators of two
    /// `f32` each.
    #[inline(always)]
    pub(super) fn fits_registers(&self) -> bool {
        let bytes = const { size_of::<O::Accumulator>() };
        if const { O::EXACT || !matches!(size_of::<O::Accumulator>(), 4 | 8) } {
            return false;
        }
        // The longest row of a single operator always fits, so the strips in memory are not compiled for it.
        let always =
            const { room::<O, S::Item>().least * 1024 * size_of::<O::Accumulator>() <= LONGEST_ROW_BYTES };
        always || self.row * bytes <= LONGEST_ROW_BYTES
    }

    /// Folds the chunk without intrinsics. Without `VECTORS` the loops are compiled as written.
    #[inline(always)]
    pub(super) fn anywhere<const VECTORS: bool>(&self) -> O::Accumulator {
        if O::EXACT {
            return if VECTORS {
                O::agent().fold_items(self.op, self.chunk, self.first)
            } else {
                fold_in_turn::<false, _, _>(self.op, self.chunk, self.first)
            };
        }
        // Strips of 4 KiB, and of 8 for large accumulators: the last levels of a strip's tree are not SIMD
        // (`var` of 10^5 `f32` took 60 µs with strips of 128 and 40 with 256).
        match const { size_of::<O::Accumulator>() } {
            0..=4 => self.in_strips::<1024, VECTORS>(),
            5..=8 => self.in_strips::<512, VECTORS>(),
            9..=16 => self.in_strips::<256, VECTORS>(),
            17..=32 => self.in_strips::<256, VECTORS>(),
            _ => self.in_strips::<64, VECTORS>(),
        }
    }

    /// Folds a chunk of at most [`FEW`] items, which is at most a row.
    #[inline(always)]
    pub(super) fn few(&self) -> O::Accumulator {
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
        // A whole tree for each bit of the number of items.
        let mut all = self.op.identity();
        let mut rest = self.chunk.len();
        macro_rules! trees {
            ($($items:literal)*) => {$(
                if rest & $items != 0 {
                    rest -= $items;
                    // SAFETY: `rest` items have not been folded yet, and these follow them.
                    let lifted: [_; $items] = array::from_fn(|i| unsafe { self.lift(rest + i) });
                    all = self.op.combine(fold_neighbours(self.op, lifted), all);
                }
            )*};
        }
        trees! { 1 2 4 8 16 }
        all
    }

    /// Folds the chunk in the plan's order, by strips of `N` accumulators in memory.
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
            // Two levels of the tree, to the other strip and back. The second may have nothing left to fold.
            while count > 1 {
                count = self.fold_pairs::<N, VECTORS>(&mut held, &mut pairs, count);
                count = self.fold_pairs::<N, VECTORS>(&mut pairs, &mut held, count);
            }
            // SAFETY: written, as no strip is empty.
            tree.push(self.op, unsafe { held.get(0) });
        }
        tree.finish(self.op)
    }

    /// Folds `count` accumulators with their neighbours into another strip, a last one without neighbour with
    /// the identity. Returns the number of results.
    #[inline(always)]
    fn fold_pairs<const N: usize, const VECTORS: bool>(
        &self,
        from: &mut Strip<O::Accumulator, N>,
        to: &mut Strip<O::Accumulator, N>,
        count: usize,
    ) -> usize {
        if count % 2 == 1 {
            // SAFETY: `count` is odd and `N` is even, so it is below `N`.
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

    /// Lifts the item at an index of the chunk.
    ///
    /// # Safety
    ///
    /// `index` is less than the chunk's length.
    #[inline(always)]
    pub(super) unsafe fn lift(&self, index: usize) -> O::Accumulator {
        // SAFETY: as the caller vouches.
        self.op.lift(unsafe { self.chunk.get(index) }, self.first + index as u64)
    }

    /// Lifts `W` neighbouring items.
    ///
    /// # Safety
    ///
    /// The chunk has `W` items from `first` on.
    #[inline(always)]
    unsafe fn lift_vector<const W: usize>(&self, first: usize) -> [O::Accumulator; W] {
        let mut lifted = [self.op.identity(); W];
        for i in 0..W {
            // SAFETY: as the caller vouches.
            lifted[i] = unsafe { self.lift(first + i) };
        }
        lifted
    }

    /// Folds the chunk in the plan's order, by strips of `N` accumulators in registers, with `W` heads each.
    ///
    /// `fold_strip` folds a strip to its heads, `fold_heads` the heads of the last one to four strips to one
    /// accumulator, both pairwise, neighbours first. Each is called in one place, so it is inlined, however
    /// long it is.
    #[inline(always)]
    pub(super) fn in_registers<const N: usize, const W: usize>(
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
                    // SAFETY: the heads of this strip have been written; identities follow the last ones.
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

    /// Folds columns `start..start + N` of the chunk's rows. Accumulators of columns without items are
    /// identities.
    ///
    /// Items of the last row that fill no strip are folded a vector at a time. The last vector ends at the
    /// last item, and the items that it shares with the one before are shifted out. So no load reaches beyond
    /// the chunk: a masked load from a page that is not mapped took up to 1 µs (Zen 5), and by a copy in
    /// memory 1,000 `f32` took 73 ns, not 56.
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
                // SAFETY: a row is a whole number of strips.
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
            // SAFETY: the chunk and a row have more than FEW items, and so at least `W`.
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

/// A strip in memory. Accumulators of two to eight words of 8 bytes are stored by words, first all first
/// words, then all second ones, and so on: the vectoriser then has each word in registers of its own.
pub(super) struct Strip<A, const N: usize>(pub(super) Aligned<[MaybeUninit<A>; N]>);

impl<A: Copy, const N: usize> Strip<A, N> {
    const WORDS: usize = match size_of::<A>() {
        bytes @ 16..=64 if bytes % 8 == 0 => bytes / 8,
        _ => 0,
    };

    #[inline(always)]
    pub(super) const fn new() -> Self {
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
            // SAFETY: the strip has `WORDS` words for each of `N` accumulators, and a value has as many.
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
            // SAFETY: the strip has `WORDS` words for each of `N` accumulators, and a value has as many.
            unsafe {
                let word_of_value = (&raw const value).cast::<MaybeUninit<u64>>().add(word).read_unaligned();
                places.cast::<MaybeUninit<u64>>().add(word * N + i).write(word_of_value);
            }
        }
    }
}

/// Folds `N` accumulators pairwise, neighbours first; `N` is a power of two.
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

/// Aligned to a cache line, so that no load or store crosses one.
#[repr(align(64))]
pub(super) struct Aligned<T>(pub(super) T);
