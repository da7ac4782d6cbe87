//! The heads of runs as bits: what the kernel of [`runs`](super::runs) tells the kernel of short segments.
//!
//! ```text
//! number of runs, shift
//! for each window of 1,024 positions: the number of heads before it, 32 words of bits
//! ```
//!
//! Position p is item p - shift. The first positions, up to 15, have no item, because the kernel of runs begins at an address
//! that is a multiple of 16.
//!
//! A run of one item has a bit here, where an offset has 32 or 64. Only runs of more than 32 items are among the offsets, too,
//! each by its start and by its end. So a reader who finds the head of a run in a word, and no next one in that word and in the
//! word after it, finds the end of the run among the offsets.

use crate::kernels::{Named, arguments};
use cuda_std::{intrinsics, thread, warp};

/// Positions of a word.
pub const WORD: u32 = u32::BITS;

/// Words of a window: one for each lane.
const WORDS: u64 = warp::WARP_SIZE as u64;

/// Words of 64 bits before the first window, and of a window.
const HEADER: usize = 2;
const STRIDE: usize = 1 + WORDS as usize / 2;

/// Returns whether a search for up to `most` runs of `len` keys on a stream keeps heads. Else it lists all offsets: few runs have a
/// block each, and longer ones of a long input gain nothing. Sums of `f32` by runs on an H200, µs:
///
/// | items | run | by offsets | by heads |
/// | --- | --- | --- | --- |
/// | 2^26 | 1 | 573 | 390 |
/// | 2^26 | 2 | 419 | 315 |
/// | 2^26 | 4 | 271 | 228 |
/// | 2^26 | 6 | 254 | 259 |
/// | 2^26 | 16 | 187 | 199 |
/// | 2^26 | 33 | 212 | 228 |
/// | 2^22 | 8 | 23.8 | 26.6 |
/// | 2^20 | 8 | 12.5 | 11.3 |
/// | 2^20 | 100 | 12.7 | 12.0 |
/// | 2^18 | 30 | 12.1 | 9.5 |
/// | 2^16 | 8 | 9.9 | 9.2 |
pub const fn are_kept(len: u64, most: u64) -> bool {
    most > 4096 && (len / most < 6 || len <= 1 << 20)
}

/// Returns the windows of `positions` positions.
pub const fn windows(positions: u64) -> u64 {
    positions.div_ceil(WORDS * WORD as u64)
}

/// Returns how many words of 64 bits the heads of `positions` positions take.
pub const fn words(positions: u64) -> usize {
    HEADER + windows(positions) as usize * STRIDE
}

/// Heads in the memory of a device: the address of the number of runs.
#[derive(Clone, Copy)]
pub struct Heads(pub *mut u64);

impl Heads {
    /// Returns where a word of bits is.
    #[inline(always)]
    pub fn word(self, word: u64) -> *mut u32 {
        let window = self.before(word / WORDS).wrapping_add(1).cast::<u32>();
        window.wrapping_add((word % WORDS) as usize)
    }

    /// Returns where the number of heads before a window is.
    #[inline(always)]
    pub fn before(self, window: u64) -> *mut u64 {
        self.0.wrapping_add(HEADER + window as usize * STRIDE)
    }

    /// Returns where the shift is.
    #[inline(always)]
    pub fn shift(self) -> *mut u64 {
        self.0.wrapping_add(1)
    }

    /// Returns the number of heads before a word, to all lanes.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together; there is such a word.
    #[inline(always)]
    pub unsafe fn before_word(self, word: u64) -> u64 {
        let lane = warp::lane_id();
        let first = word / WORDS * WORDS;
        let is_before = u64::from(lane) < word % WORDS;
        // SAFETY: as the caller promises; a window has all of its words.
        unsafe {
            let bits = if is_before { self.word(first + u64::from(lane)).read() } else { 0 };
            let mut sum = bits.count_ones();
            for lanes in [16, 8, 4, 2, 1] {
                sum += warp::warp_shuffle_xor(warp::ALL, sum, lanes, 32).0;
            }
            self.before(word / WORDS).read() + u64::from(sum)
        }
    }
}

/// Writes an offset of one word or two.
///
/// # Safety
///
/// There is room.
#[inline(always)]
pub(super) unsafe fn write_offset(offsets: *mut u32, words: u32, index: u64, offset: u64) {
    let at = offsets.wrapping_add(index as usize * words as usize);
    // SAFETY: as the caller promises.
    unsafe {
        at.write(offset as u32);
        if words > 1 {
            at.add(1).write((offset >> 32) as u32);
        }
    }
}

/// The arguments of the kernel that lists the offsets of all runs; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Listing {
    /// The heads.
    pub heads: *mut u64,
    /// Takes the start of each run, `words` words each. (The search for runs has written the end of the last one.)
    pub offsets: *mut u32,
    /// Words of an offset, 1 or 2.
    pub words: u32,
    /// Offsets that there is room for.
    pub room: u64,
    /// Keys.
    pub len: u64,
}

arguments! { [] Listing: heads offsets words room len }

/// The kernel that lists all offsets, as a type.
pub type List = Named<Lists, Listing>;

/// Names [`List`].
pub enum Lists {}

/// Lists the offsets of all runs.
///
/// # Safety
///
/// The launch has blocks of whole warps. The pointers are valid as [`Listing`] says, and nothing else writes to what they point
/// to meanwhile.
#[inline(always)]
pub unsafe fn list(arguments: Listing) {
    let Listing { heads, offsets, words, room, len } = arguments;
    let (heads, lane) = (Heads(heads), warp::lane_id());
    let mut window = u64::from(thread::index_1d() / warp::WARP_SIZE);
    // SAFETY: as the caller vouches; all lanes of a warp are here.
    unsafe {
        let shift = heads.shift().read();
        // A search for as many keys at another address may have left heads in the tile after these.
        while window < windows(shift + len) {
            intrinsics::no_unroll();
            let mut rank = heads.before(window).read();
            for word in window * WORDS..(window + 1) * WORDS {
                intrinsics::no_unroll();
                let bits = heads.word(word).read();
                let index = rank + u64::from((bits & ((1 << lane) - 1)).count_ones());
                if bits >> lane & 1 != 0 && index < room {
                    let position = word * u64::from(WORD) + u64::from(lane);
                    write_offset(offsets, words, index, position - shift);
                }
                rank += u64::from(bits.count_ones());
            }
            window += u64::from(thread::grid_dim_x() * thread::block_dim_x() / warp::WARP_SIZE);
        }
    }
}
