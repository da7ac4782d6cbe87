//! How an input is cut up: a function of its length, element type and BLOCK alone, so that the result's bits are too.
//!
//! - A **row** is `BLOCK · WIDTH` elements, WIDTH those of a 16-byte load: what a block reads in one instruction.
//! - A **tile** is [`TILE_ROWS`] rows: the loads that a thread keeps in flight.
//! - A **chunk** is a whole number of tiles, the same for all chunks but the last, which may be short. Their number is
//!   limited (see [`max_chunks`]), so a chunk grows with the input. An input of up to [`SINGLE_ROWS`] rows is one chunk.
//! - A chunk has a row of accumulators, and element i of each of its rows folds into accumulator i, row after row.
//! - The accumulators fold pairwise, neighbours first, into the chunk's partial result: a perfect binary tree.
//! - BLOCK accumulators fold the partial results in the same way, partial i into accumulator i modulo BLOCK.
//!
//! Missing elements are the operator's identity. The rounding error of a float sum is bounded by the longest path of
//! this tree, [`Plan::depth`]: for 2^30 `f32` and a BLOCK of 512 that is 533 roundings, where a loop has 2^30.
//!
//! The constants were measured on an H200 (132 multiprocessors of 2,048 threads), `f32` sums by graph replays: four loads
//! in flight ran within 1% of eight and up to 3% faster than two; 2^24 elements took 18.2 µs in 512 chunks of 512 threads,
//! 19.0 in 1,024 and 19.5 in 2,048, while 2^28 and 2^30 differed by less than 0.5%; 2^14 elements took 1.85 µs in one chunk
//! and 2.6 to 2.8 in two to eight.

use crate::Element;

/// Rows in a tile.
pub const TILE_ROWS: u64 = 4;

/// Inputs of up to this many rows are one chunk: a second one costs more, in the exchange between blocks, than it saves.
pub const SINGLE_ROWS: u64 = 8;

/// The most chunks an input is cut into: so many that their threads are 2^18, which is what the largest GPUs hold at a
/// time, and 2,048 for small blocks, because one block folds the partial results.
pub const fn max_chunks(block: u32) -> u64 {
    let chunks = (1 << 18) / block as u64;
    if chunks < 2048 { chunks } else { 2048 }
}

/// Fails to compile, from a `const` block, unless `block` is a power of two from 32 to 1024.
pub const fn assert_block(block: u32) {
    assert!(
        block.is_power_of_two() && 32 <= block && block <= 1024,
        "BLOCK must be a power of two from 32 to 1024"
    );
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
    /// The plan for `len` elements of type `T` and blocks of `BLOCK` threads, a power of two from 32 to 1024; another
    /// BLOCK is an error when the program compiles:
    ///
    /// ```compile_fail
    /// gpu_reduce_kernels::Plan::new::<f32, 48>(1);
    /// ```
    pub const fn new<T: Element, const BLOCK: u32>(len: u64) -> Self {
        const { assert_block(BLOCK) };
        let row = BLOCK as u64 * T::WIDTH as u64;
        let chunk = if len <= SINGLE_ROWS * row {
            SINGLE_ROWS * row
        } else {
            len.div_ceil(max_chunks(BLOCK)).next_multiple_of(TILE_ROWS * row)
        };
        let chunks = if len == 0 { 1 } else { len.div_ceil(chunk) as u32 };
        Self { len, row, chunk, chunks }
    }

    /// Where chunk `index` lies.
    pub const fn range(&self, index: u32) -> core::ops::Range<u64> {
        let start = index as u64 * self.chunk;
        let end = if self.chunk < self.len - start { start + self.chunk } else { self.len };
        start..end
    }

    /// The most operations between an element and the result: a float sum's error is at most this many roundings of
    /// the sum of magnitudes.
    pub const fn depth(&self, block: u32) -> u64 {
        let rows = self.chunk.div_ceil(self.row);
        let partials = self.chunks.div_ceil(block) as u64;
        rows + self.row.ilog2() as u64 + partials + block.ilog2() as u64
    }
}
