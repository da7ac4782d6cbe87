//! The kernel of rows whose chunks have up to four lines. (A **line** is a row of the plan.) A block folds [`LOADS`] lines: one
//! chunk of each of four rows, of two, or of one. All of its loads are in flight at once.
//!
//! ```text
//! load the lines, one leaf each a thread
//! fold each chunk's lines in a thread, then over the lanes of a warp, then over the warps
//! deliver the results of rows of one chunk; put partial results into their slots
//! the last chunks: take the partial results of their rows or of earlier ones, fold them, deliver
//! ```
//!
//! The blocks of a row's chunks follow one another. As in the kernel of [`chunks`](super::chunks), the blocks with the last chunks
//! take the partial results of earlier rows if there are further blocks, so that they do not wait for those of their own.
//!
//! Of all its rows, a block has the same chunk. So a thread computes the place of its first leaf, and a difference for each of
//! the others. (When it computed four places, a warp had 430 to 650 instructions for its four loads, and rows of 32,768 `f16`
//! were limited by them.)

use super::chunks::{deliver_row, is_small};
use super::segments::{Arguments, beside, fold_leaf, load_leaf};
pub use super::segments::{Cut, SegmentBounds};
use crate::Op;
use crate::agent::{Agent, folds_by_loads};
use crate::exchange::{partials, slot};
use crate::input::Input;
use crate::tree::{fold_lanes, fold_slots, of_thread, unrolled};
use core::array::from_fn;
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, shared_array, thread, warp};

/// Lines of a block: a thread has a load of each in flight.
pub const LOADS: usize = 4;

/// Returns whether a block can fold several chunks: a thread has registers for their accumulators, and needs no other way
/// to fold than by loads.
pub const fn folds_several<O: Op<I>, I: Copy + 'static>() -> bool {
    is_small::<O, I>() && folds_by_loads::<O, I>()
}

/// Returns how many of a block's lines a chunk of `lines` lines takes, as a logarithm; none if it has more than a block.
pub const fn of_chunk(lines: u64) -> Option<u32> {
    match lines {
        0 | 1 => Some(0),
        2 => Some(1),
        3 | 4 => Some(2),
        _ => None,
    }
}

/// Returns the rows of which a block has chunks.
pub const fn of_block(of_chunk: u32) -> u32 {
    LOADS as u32 >> of_chunk
}

/// Reduces rows of `arguments.input`.
///
/// # Safety
///
/// The launch has [`Cut::block`] threads a block. [`Cut::share`] is the items of a chunk, a whole number of lines,
/// [`Cut::weight`] the chunks of a row, and [`Cut::ways`] has what [`of_chunk`] returns for a chunk's lines. The operator
/// [folds several](folds_several). A plan has no [groups](crate::Plan::groups). For each [`of_block`] rows there is a block for each
/// chunk. If rows have several chunks, there may be further blocks, one for each `of_block` rows at most.
///
/// At [`Cut::partials`] are empty slots, one for each chunk of rows of several. Otherwise as for
/// [`reduce_segments`](super::segments::reduce_segments), without offsets or lists.
#[inline(always)]
pub unsafe fn reduce_lines<O: Op<P::Item>, P: Input, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    if const { folds_several::<O, P::Item>() } {
        // SAFETY: as the caller promises.
        unsafe { Lines::<O, P, WIDTH>::new(arguments).fold() }
    }
}

/// What a thread knows of its block's lines.
struct Lines<O: Op<P::Item>, P: Input, const WIDTH: usize> {
    arguments: Arguments<P, O, O::Output>,
    /// For each slot, that is a line of the block, the values of warps.
    of_warps: Shared<O::Accumulator>,
    /// Which of their rows' chunks the block has.
    chunk: u32,
    /// The first of these rows, and how many there are.
    first: u32,
    rows: u32,
    /// The rows between these and those whose results the block delivers.
    earlier: u32,
    /// The thread's first leaf.
    leaf: P,
    /// The index of its first item in the row, and the items from there to the chunk's end.
    item: u32,
    left: u32,
}

impl<O: Op<P::Item>, P: Input, const WIDTH: usize> Lines<O, P, WIDTH> {
    #[inline(always)]
    fn new(arguments: Arguments<P, O, O::Output>) -> Self {
        let Arguments { input, shape: segments, cut, .. } = arguments;
        let (block, count, len) = (thread::block_idx_x(), segments.count as u32, segments.size as u32);
        let rows = of_block(cut.of_chunk());
        let (mut number, mut chunk, mut earlier) = (block, 0, 0);
        if cut.weight > 1 {
            let numbers = (count + rows - 1) >> (LOADS.trailing_zeros() - cut.of_chunk());
            // (A division by 0 would be a call.)
            number = block / cut.weight.max(1);
            chunk = block - number * cut.weight;
            if number >= numbers {
                // A further block has the last chunks of rows that are not there.
                (number, chunk) = (block - numbers * (cut.weight - 1), cut.weight - 1);
            }
            earlier = (thread::grid_dim_x() - numbers * cut.weight) * rows;
        }
        let (first, start) = (number * rows, chunk * cut.share);
        let item = start + thread::thread_idx_x() * WIDTH as u32;
        let end = if len - start < cut.share { len } else { start + cut.share };
        Self {
            arguments,
            of_warps: shared_array![O::Accumulator; if folds_several::<O, P::Item>() { LOADS * 32 } else { 1 }],
            chunk,
            first,
            rows: count.saturating_sub(first).min(rows),
            earlier,
            leaf: input.offset(first as usize * len as usize + item as usize),
            item,
            left: end.saturating_sub(item),
        }
    }

    /// Returns which of the block's rows a slot has a line of.
    #[inline(always)]
    fn row(&self, slot: usize) -> u32 {
        slot as u32 >> self.arguments.cut.of_chunk()
    }

    /// Returns whether a slot has its chunk's last line.
    #[inline(always)]
    fn is_last(&self, slot: usize) -> bool {
        let mask = (1 << self.arguments.cut.of_chunk()) - 1;
        slot as u32 & mask == mask
    }

    /// Returns the items between the first items of a chunk and of a slot's line.
    #[inline(always)]
    fn ahead(&self, slot: usize) -> u32 {
        let cut = &self.arguments.cut;
        (slot as u32 & ((1 << cut.of_chunk()) - 1)) * (cut.block * WIDTH as u32)
    }

    /// Returns where a slot's row begins.
    #[inline(always)]
    fn row_of(&self, slot: usize) -> P {
        let Arguments { input, shape: segments, .. } = self.arguments;
        input.offset((self.first + self.row(slot)) as usize * segments.size as usize)
    }

    /// Returns where the thread's leaf of a slot's line lies.
    #[inline(always)]
    fn at(&self, slot: usize) -> P {
        self.leaf.offset((self.row(slot) * self.arguments.shape.size as u32 + self.ahead(slot)) as usize)
    }

    /// Returns the index in the row of the first item of the thread's leaf of a slot's line.
    #[inline(always)]
    fn index(&self, slot: usize) -> u64 {
        (self.item + self.ahead(slot)).into()
    }

    /// Returns the operator that has seen the first item of a slot's row.
    ///
    /// # Safety
    ///
    /// There is such a row.
    #[inline(always)]
    unsafe fn op_of(&self, slot: usize) -> O {
        // SAFETY: as the caller promises; rows have items.
        self.arguments.op.begin(unsafe { self.row_of(slot).read() })
    }

    /// Returns whether narrow items can be loaded by words wherever a row has an item: there are items before the block's rows and
    /// a row after them.
    #[inline(always)]
    fn is_inside(&self) -> bool {
        (self.first > 0 || self.chunk > 0) && u64::from(self.first + self.rows) < self.arguments.shape.count
    }

    /// Folds the block's chunks. The block of the last chunks delivers results of rows of several.
    ///
    /// # Safety
    ///
    /// As for [`reduce_lines`].
    #[inline(always)]
    unsafe fn fold(&self) {
        let Arguments { shape: segments, cut, .. } = self.arguments;
        // SAFETY: as the caller promises.
        unsafe {
            if self.rows > 0 {
                self.fold_chunks();
            }
            if cut.weight <= 1
                || self.chunk + 1 < cut.weight
                || thread::thread_idx_x() >= warp::WARP_SIZE
                || self.first < self.earlier
            {
                return;
            }
            let (mut row, mut left) = (self.first - self.earlier, of_block(cut.of_chunk()));
            while left > 0 && u64::from(row) < segments.count {
                intrinsics::no_unroll();
                deliver_row(&self.arguments, row);
                row += 1;
                left -= 1;
            }
        }
    }

    /// Folds the block's chunks. Delivers the results of rows of one chunk, and puts partial results into their slots.
    ///
    /// # Safety
    ///
    /// As for [`reduce_lines`]. The block has rows.
    #[inline(always)]
    unsafe fn fold_chunks(&self) {
        let Arguments { shape: segments, cut, op, .. } = self.arguments;
        let lefts: [u32; LOADS] =
            from_fn(
                |slot| {
                    if self.row(slot) < self.rows { self.left.saturating_sub(self.ahead(slot)) } else { 0 }
                },
            );
        let mut ops = [op; LOADS];
        let is_aligned = cut.has(Cut::ALIGNED);
        // SAFETY: the rows have these items. All lanes of each warp are here.
        unsafe {
            // (A thread without items of a row combines those of its neighbours.)
            unrolled::<LOADS>(|slot| {
                if self.row(slot) < self.rows {
                    ops[slot] = self.op_of(slot);
                }
            });
            let load_by = |load: fn(P) -> P::Leaf<WIDTH>| -> [P::Leaf<WIDTH>; LOADS] {
                intrinsics::together(|| {
                    from_fn(|slot| if lefts[slot] > 0 { load(self.at(slot)) } else { P::no_leaf() })
                })
            };
            let fold_whole = |loads: [P::Leaf<WIDTH>; LOADS]| {
                self.fold_each(&ops, |slot, all| {
                    if lefts[slot] > 0 {
                        O::agent().fold_load(&ops[slot], all, P::items(loads[slot]), self.index(slot));
                    }
                })
            };
            // Kernels with small accumulators need fewer registers if each way to load has code of its own that folds. (Of the ways of
            // aligned and of other leaves, the driver compiles one.)
            let is_small = const { size_of::<O::Accumulator>() <= 4 };
            let values = if is_aligned && O::EXACT {
                fold_whole(load_by(|leaf| leaf.load()))
            } else if O::EXACT {
                // As the order does not matter, the leaves of narrow items begin where they are one access. (Other items gain nothing: sums of
                // rows of 100,001 `i32` took 68 µs so on an H200, and take 63.) Of each row's items before the first leaf and after the
                // last one, a thread has one.
                let (thread, width, len) = (thread::thread_idx_x(), WIDTH as u32, segments.size as u32);
                let is_end = self.chunk + 1 >= cut.weight;
                let mut are_aligned = P::IS_NARROW;
                unrolled::<LOADS>(|slot| are_aligned &= self.row_of(slot).head().is_some());
                let heads: [u32; LOADS] = from_fn(|slot| match self.row_of(slot).head() {
                    Some(head) if are_aligned => (head % width).min(len),
                    _ => 0,
                });
                let item = |slot: usize| beside(thread, heads[slot], [len, width]);
                let has_item = |slot: usize| {
                    is_end && self.is_last(slot) && self.row(slot) < self.rows && item(slot) < len
                };
                let is_whole = |slot: usize| {
                    if P::IS_NARROW {
                        lefts[slot] > 0 && self.item + self.ahead(slot) + heads[slot] + width <= len
                    } else {
                        lefts[slot] >= width
                    }
                };
                let has_words = P::IS_NARROW && self.is_inside();
                let (loads, items): ([P::Leaf<WIDTH>; LOADS], [P::Item; LOADS]) =
                    intrinsics::together(|| {
                        let items = from_fn(|slot| {
                            if has_item(slot) {
                                self.row_of(slot).offset(item(slot) as usize).read()
                            } else {
                                P::zeroed()
                            }
                        });
                        let load = |slot: usize| {
                            let leaf = self.at(slot).offset(heads[slot] as usize);
                            if !is_whole(slot) {
                                P::no_leaf()
                            } else if are_aligned {
                                leaf.load()
                            } else if has_words {
                                leaf.load_anywhere()
                            } else {
                                leaf.load_each()
                            }
                        };
                        // Not by a loop, which the compiler may keep: then leaves and lengths lie in memory.
                        ([load(0), load(1), load(2), load(3)], items)
                    });
                self.fold_each(&ops, |slot, all| {
                    if is_whole(slot) {
                        let index = self.index(slot) + u64::from(heads[slot]);
                        O::agent().fold_load(&ops[slot], all, P::items(loads[slot]), index);
                    }
                    if has_item(slot) {
                        O::agent().fold_item(&ops[slot], &mut all[0], items[slot], item(slot).into());
                    }
                })
            } else {
                let are_whole =
                    lefts.iter().fold(true, |all, &left| all & (left == 0 || left >= WIDTH as u32));
                let are_whole = is_aligned || warp::warp_vote_all(warp::ALL, are_whole);
                // Whether all leaves of the warp can be loaded wherever they begin.
                let is_anywhere = if P::IS_NARROW { self.is_inside() } else { are_whole };
                if is_small && are_whole && (is_aligned || is_anywhere) {
                    fold_whole(if is_aligned {
                        load_by(|leaf| leaf.load())
                    } else {
                        load_by(|leaf| leaf.load_anywhere())
                    })
                } else {
                    let loads = if is_aligned {
                        load_by(|leaf| leaf.load())
                    } else if is_anywhere {
                        load_by(|leaf| leaf.load_anywhere())
                    } else {
                        intrinsics::together(|| {
                            from_fn(|slot| load_leaf::<O, P, WIDTH>(self.at(slot), lefts[slot]))
                        })
                    };
                    if !is_small && are_whole {
                        fold_whole(loads)
                    } else {
                        // Opaque: otherwise all warps compare these lengths with each item's number before they load, also
                        // warps whose leaves are whole.
                        let lefts = lefts.map(intrinsics::opaque);
                        self.fold_each(&ops, |slot, all| {
                            let (at, left) = (self.at(slot), lefts[slot]);
                            fold_leaf::<O, P, WIDTH>(
                                &ops[slot],
                                all,
                                loads[slot],
                                at,
                                left,
                                self.index(slot),
                            );
                        })
                    }
                }
            };
            self.settle(ops, values)
        }
    }

    /// Returns a thread's value of each slot; that of a chunk's last one is the chunk's. `fold` folds a slot's leaf.
    #[inline(always)]
    fn fold_each(
        &self,
        ops: &[O; LOADS],
        fold: impl Fn(usize, &mut [O::Accumulator; WIDTH]),
    ) -> [O::Accumulator; LOADS] {
        let identity = ops[0].identity();
        let (mut all, mut values) = ([identity; WIDTH], [identity; LOADS]);
        unrolled::<LOADS>(|slot| {
            fold(slot, &mut all);
            values[slot] = self.end_line(slot, &ops[slot], &mut all);
        });
        values
    }

    /// Returns a thread's value of a chunk's lines up to that of a slot. After the last one, the accumulators begin anew.
    #[inline(always)]
    fn end_line(&self, slot: usize, op: &O, all: &mut [O::Accumulator; WIDTH]) -> O::Accumulator {
        let value = of_thread::<O, P::Item, WIDTH>(op, *all);
        if self.is_last(slot) {
            *all = [op.identity(); WIDTH];
        }
        value
    }

    /// Folds the threads' values of each slot. A chunk's result is in its last slot. As [`fold_chunks`](Self::fold_chunks).
    ///
    /// # Safety
    ///
    /// Every thread of the block calls it.
    #[inline(always)]
    unsafe fn settle(&self, ops: [O; LOADS], values: [O::Accumulator; LOADS]) {
        let Arguments { cut, shape: segments, op, .. } = self.arguments;
        let (thread, threads, lane) = (thread::thread_idx_x(), thread::block_dim_x(), warp::lane_id());
        let log = threads.trailing_zeros() - 5;
        let words = slot::words::<O::Accumulator>();
        // SAFETY: as the caller promises; each warp writes elements of its own, which are read after the barrier.
        unsafe {
            let value = fold_slots::<O, P::Item>(ops, values, 5).1;
            if lane < LOADS as u32 {
                self.of_warps.write((lane << log) + thread / warp::WARP_SIZE, value);
            }
            thread::sync_threads();
            if thread / warp::WARP_SIZE < (LOADS << log).div_ceil(32) as u32 {
                let slot = (thread >> log).min(LOADS as u32 - 1) as usize;
                let row = self.row(slot);
                let op = if row < self.rows { self.op_of(slot) } else { op };
                let mut value = self.of_warps.read(thread.min((LOADS << log) as u32 - 1));
                value = fold_lanes::<O, P::Item>(&op, value, log);
                let is_first = thread & ((1 << log) - 1) == 0 && thread >> log < LOADS as u32;
                if is_first && self.is_last(slot) && row < self.rows {
                    if cut.weight <= 1 {
                        self.arguments.deliver(&op, (self.first + row).into(), value, segments.size);
                    } else {
                        let slots = (self.first + row) as usize * cut.weight as usize * words;
                        partials::put(cut.partials.wrapping_add(slots), self.chunk, value);
                    }
                }
            }
        }
    }
}
