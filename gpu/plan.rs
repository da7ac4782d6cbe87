//! How an input is cut up: a function of its length, of the types of item and operator, and of BLOCK alone.
//! So the result's bits depend on nothing else.
//!
//! - A **row** is `BLOCK · WIDTH` elements: what a block reads in one instruction. WIDTH is the elements of a
//!   16-byte load; fewer if accumulators are large ([`op::width`](crate::op::width)).
//! - A **tile** is [`TILE_ROWS`] rows: the loads that a thread keeps in flight.
//! - A **chunk** is a whole number of rows, the same for all chunks but the last, which may be shorter.
//! - A chunk has a row of accumulators. Element i of each of its rows folds into accumulator i, row after
//!   row.
//! - The accumulators fold pairwise, neighbours first, into the chunk's partial result: a perfect binary
//!   tree.
//! - [`PARTIALS`] accumulators fold the partial results in the same way: partial i goes to accumulator i
//!   modulo 32. If there are more than [`MOST_PARTIALS`], each [`GROUP`] of neighbours folds pairwise first,
//!   and the groups' results take the place of the partial results.
//!
//! How many chunks there are:
//!
//! - An input of up to [`SINGLE_ROWS`] rows is one chunk.
//! - For longer inputs a chunk is a row at first, and grows with the input: slowly, so that every
//!   multiprocessor has a block, but not more blocks than the last one can wait for.
//! - When there are [`max_chunks`], chunks grow by tiles.
//! - Inputs of more than [`few_rows`] (2 GiB in loads of 16 bytes and with a BLOCK of 1,024) have chunks of
//!   [`chunk_rows`]: so many of them that no GPU waits long for the last ones, and that a thousand GPUs have some
//!   hundreds each.
//! - When there are [`MOST_CHUNKS`], chunks grow by tiles again.
//!
//! Missing elements are the operator's identity. The rounding error of a float sum is bounded by the longest
//! path of this tree, [`Plan::depth`]: 209 roundings for 2^30 `f32` and a BLOCK of 1,024, when a loop has
//! 2^30.
//!
//! The constants were measured on an H200 (132 multiprocessors of 2,048 threads), `f32` sums by graph
//! replays, BLOCK 512:
//!
//! | elements | rows | µs by number of chunks |
//! | --- | --- | --- |
//! | 2^14 | 8 | 1: 1.69, 8: 2.01 |
//! | 2^16 | 32 | 16: 2.32, 32: 1.83 |
//! | 2^18 | 128 | 32: 2.18, 64: 2.19, 128: 2.06 |
//! | 2^20 | 512 | 64: 2.72, 128: 2.41, 256: 2.55 |
//! | 2^21 | 1,024 | 64: 3.43, 128: 3.00, 256: 3.19, 512: 3.40 |
//! | 2^22 | 2,048 | 128: 6.62, 256: 6.17, 512: 6.26 |
//! | 2^28 | 131,072 | 256: 238.8, 512: 238.3, 1,024: 237.7 |

/// Rows in a tile.
pub const TILE_ROWS: u64 = 4;

/// Inputs of up to this many rows are one chunk: the exchange between blocks would cost more than a second
/// chunk saves.
pub const SINGLE_ROWS: u64 = 8;

/// Returns the least BLOCK whose row holds all `len` items if a thread folds `width` side by side; above 1024
/// if none does. All BLOCKs whose row holds them give the same bits, because the rest of a longer row is the
/// identity.
pub const fn least_block(len: u64, width: usize) -> u32 {
    match len.div_ceil(width as u64) {
        0..=32 => 32,
        threads @ 33..=1024 => (threads as u32).next_power_of_two(),
        _ => 2048,
    }
}

/// Accumulators of the partial results: one for each lane of the warp that folds them.
pub const PARTIALS: u32 = 32;

/// Partial results that fold without groups, at most: one warp folds them.
pub const MOST_PARTIALS: u32 = 2048;

/// Partial results of a group. A block folds them, one a thread.
pub const GROUP: u32 = 1024;

/// Returns the rows of a chunk of inputs with more than [`few_rows`]: 512 items a thread, or 64 rows of more than
/// 8 items a thread. One block reads 128 rows in some 16 µs, the time that all others may have to wait for the
/// last one. (With half as many, `sum` of `f32` is as fast, but `nanvar` takes 5% longer, because what a block
/// does at a chunk's end takes as long as some rows.)
pub const fn chunk_rows(width: usize) -> u64 {
    if width > 8 { 64 } else { 512 / width as u64 }
}

/// Chunks of an input, at most: their groups are as many as a group has chunks.
pub const MOST_CHUNKS: u64 = (GROUP * GROUP) as u64;

/// Returns the rows up to which an input has few chunks.
pub const fn few_rows(block: u32) -> u64 {
    512 * max_chunks(block)
}

/// Returns the most chunks of an input of up to [`few_rows`]: their threads are 2^17, half of what the largest
/// GPUs hold at a time.
/// At least 256, two for each multiprocessor; at most 2,048, because one warp folds the partial results.
pub const fn max_chunks(block: u32) -> u64 {
    match (1 << 17) / block as u64 {
        0..256 => 256,
        256..2048 => (1 << 17) / block as u64,
        _ => 2048,
    }
}

/// The BLOCKs.
pub const BLOCKS: [u32; 6] = [32, 64, 128, 256, 512, 1024];

/// Stands for all BLOCKs, for an entry point that serves any of them.
pub const ANY_BLOCK: u32 = 0;

/// The BLOCKs as literals: calls `$callback! { { ARGUMENTS } 32 64 … }`.
#[macro_export]
macro_rules! for_each_block {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! { { $($arguments)* } 32 64 128 256 512 1024 }
    };
}

/// Returns the number of groups of so many partial results; 0 if there are no more than [`MOST_PARTIALS`].
#[inline(always)]
pub const fn groups(partials: u32) -> u32 {
    if partials > MOST_PARTIALS { partials.div_ceil(GROUP) } else { 0 }
}

/// The plan of one reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Elements in the input.
    pub len: u64,
    /// Elements in a row.
    pub row: u64,
    /// Elements in each chunk but the last.
    pub chunk: u64,
    /// Chunks, 1 for an empty input.
    pub chunks: u32,
}

impl Plan {
    /// Returns the plan for `len` items and blocks of `block` threads. A thread folds `width` items side by
    /// side; [`op::width`](crate::op::width) returns how many.
    ///
    /// # Panics
    ///
    /// Unless `block` is a power of two from 32 to 1024, and `width` one from 1 to 16, the items of a 16-byte
    /// load.
    #[inline]
    pub const fn new(len: u64, width: usize, block: u32) -> Self {
        assert!(
            block.is_power_of_two() && 32 <= block && block <= 1024,
            "BLOCK must be a power of two from 32 to 1024"
        );
        assert!(width.is_power_of_two() && width <= 16, "a thread folds 1, 2, 4, 8 or 16 items side by side");
        Self::on_a_device(len, width, block, false)
    }

    /// As [`new`](Self::new), without the checks, for an input on one device. If the order does not matter,
    /// because the operator is [`EXACT`](crate::Op::EXACT), there are few chunks, however long the input is.
    #[inline(always)]
    pub const fn on_a_device(len: u64, width: usize, block: u32, is_exact: bool) -> Self {
        Self::cut(len, width, block, if is_exact { u64::MAX } else { few_rows(block) })
    }

    /// As [`new`](Self::new), without the checks, with few chunks for inputs of up to `few` rows.
    #[inline(always)]
    const fn cut(len: u64, width: usize, block: u32, few: u64) -> Self {
        let row = block as u64 * width as u64;
        // A row is a power of two, and a division takes longer than a short input.
        let rows = (len >> row.trailing_zeros()) + (len & (row - 1) != 0) as u64;
        let chunk_rows = if rows <= SINGLE_ROWS {
            SINGLE_ROWS
        } else if rows <= 32 * TILE_ROWS {
            rows.div_ceil(32)
        } else if rows <= 128 * TILE_ROWS {
            TILE_ROWS
        } else if rows <= max_chunks(block) * 2 * TILE_ROWS {
            2 * TILE_ROWS
        } else if rows <= few {
            rows.div_ceil(max_chunks(block)).next_multiple_of(TILE_ROWS)
        } else if rows <= MOST_CHUNKS * chunk_rows(width) {
            chunk_rows(width)
        } else {
            rows.div_ceil(MOST_CHUNKS).next_multiple_of(TILE_ROWS)
        };
        let chunk = chunk_rows * row;
        // SAFETY: `chunk_rows` and `row` are not 0, and their product is less than twice a length.
        unsafe { core::hint::assert_unchecked(chunk > 0) };
        let chunks = if len <= chunk { 1 } else { len.div_ceil(chunk) as u32 };
        Self { len, row, chunk, chunks }
    }

    /// Returns an upper bound of the chunks of every input of up to `len` items, which are at most [`few_rows`] rows. (Some
    /// inputs have more chunks than longer ones.)
    pub const fn most_chunks(len: u64, width: usize, block: u32) -> u64 {
        const { assert!(SINGLE_ROWS == 8) };
        let rows = len.div_ceil(block as u64 * width as u64);
        // Chunks of 1 to 4 rows, of 4, and of 8 and more.
        match rows {
            0..=SINGLE_ROWS => 1,
            9..=32 => rows,
            33..=128 => 32,
            129..=512 => rows.div_ceil(TILE_ROWS),
            513..=1024 => 128,
            _ if rows < max_chunks(block) * 2 * TILE_ROWS => rows.div_ceil(2 * TILE_ROWS),
            _ => max_chunks(block),
        }
    }

    /// Returns the elements of chunk `index`.
    pub const fn range(&self, index: u32) -> core::ops::Range<u64> {
        let start = index as u64 * self.chunk;
        let end = if self.chunk < self.len - start { start + self.chunk } else { self.len };
        start..end
    }

    /// Returns the elements of consecutive chunks.
    pub const fn elements(&self, chunks: core::ops::Range<u32>) -> core::ops::Range<u64> {
        self.start(chunks.start)..self.start(chunks.end)
    }

    /// Returns the start of chunk `index`, or the end of the last.
    const fn start(&self, index: u32) -> u64 {
        if index < self.chunks { self.range(index).start } else { self.len }
    }

    /// Returns the elements of part `index` of `parts`. A part is whole chunks; two parts differ by at most
    /// one chunk. If there are more parts than chunks, some are empty.
    ///
    /// # Panics
    ///
    /// Unless `index` is below `parts`.
    pub const fn part(&self, index: u32, parts: u32) -> core::ops::Range<u64> {
        assert!(index < parts, "a part has an index below the number of parts");
        let chunks = self.chunks as u64;
        let (start, end) = (chunks * index as u64 / parts as u64, chunks * (index as u64 + 1) / parts as u64);
        self.elements(start as u32..end as u32)
    }

    /// Returns the most operations between an element and the result. A float sum's error is at most this
    /// many roundings of the sum of magnitudes.
    pub const fn depth(&self) -> u64 {
        let rows = self.chunk.div_ceil(self.row);
        let groups = self.groups();
        let (of_group, partials) = if groups > 0 { (GROUP.ilog2(), groups) } else { (0, self.chunks) };
        let of_partials = partials.div_ceil(PARTIALS) + PARTIALS.ilog2();
        rows + self.row.ilog2() as u64 + (of_group + of_partials) as u64
    }

    /// Returns the number of groups of partial results; 0 if there are no more than [`MOST_PARTIALS`].
    pub const fn groups(&self) -> u32 {
        groups(self.chunks)
    }

    /// Cuts consecutive chunks into ranges whose partial results fold pairwise into one: as few as possible. A
    /// range is a group or a half, a quarter … of a group, and without groups it is a chunk.
    ///
    /// ```
    /// use gpu_reduce_kernels::Plan;
    ///
    /// // The chunks from 1,020 on, and all of the second group.
    /// let plan = Plan::new(1 << 31, 4, 1024);
    /// let trees: Vec<_> = plan.trees(1020..2048).collect();
    /// assert_eq!(trees, [1020..1024, 1024..2048]);
    /// ```
    pub fn trees(&self, chunks: core::ops::Range<u32>) -> impl Iterator<Item = core::ops::Range<u32>> {
        let most = if self.groups() > 0 { GROUP } else { 1 };
        let (mut start, end, all) = (chunks.start, chunks.end, self.chunks);
        core::iter::from_fn(move || {
            (start < end).then(|| {
                let mut size = most;
                // The last chunk ends its group: the missing ones are the identity.
                while !start.is_multiple_of(size) || start + size > if end < all { end } else { u32::MAX } {
                    size /= 2;
                }
                let tree = start..end.min(start + size);
                start = tree.end;
                tree
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic = "a thread folds 1, 2, 4, 8 or 16 items side by side"]
    fn rows_wider_than_a_load() {
        Plan::new(10, 1 << 53, 1024);
    }

    #[test]
    #[should_panic = "a thread folds 1, 2, 4, 8 or 16 items side by side"]
    fn rows_of_no_items() {
        Plan::new(10, 0, 1024);
    }

    #[test]
    fn no_shorter_input_has_more_chunks() {
        for (width, block) in [(1, 32), (4, 256), (16, 1024)] {
            let row = width as u64 * u64::from(block);
            let mut most = 0;
            for rows in 1..20_000 {
                for len in [rows * row - row + 1, rows * row] {
                    most = most.max(u64::from(Plan::new(len, width, block).chunks));
                    let bound = Plan::most_chunks(len, width, block);
                    assert!(most <= bound, "{len} items: {most} chunks, at most {bound}");
                }
            }
        }
    }

    #[test]
    fn the_longest_inputs_have_a_plan() {
        for width in [1, 2, 4, 8, 16] {
            for block in BLOCKS {
                let plan = Plan::new(u64::MAX, width, block);
                assert!(plan.chunks as u64 <= MOST_CHUNKS, "{plan:?}");
                assert_eq!(plan.range(plan.chunks - 1).end, u64::MAX, "{plan:?}");
            }
        }
    }
}
