//! Warp-wide operations: barriers, votes, shuffles.
//!
//! A shuffle moves any plain value, 32 bits at a time. `mask` names the participating lanes, bit i for lane
//! i; [`ALL`] is the whole warp.

use crate::on_device;
use bytemuck::Pod;
#[cfg(target_arch = "nvptx64")]
use bytemuck::{bytes_of, bytes_of_mut, cast};
#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Lanes in a warp, on every NVIDIA GPU so far.
pub const WARP_SIZE: u32 = 32;

/// The mask of all 32 lanes.
pub const ALL: u32 = u32::MAX;

// Intrinsics, not `asm!`: LLVM knows that they are convergent and never moves them under a branch.
#[cfg(target_arch = "nvptx64")]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    fn shfl_sync_down(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    fn shfl_sync_up(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_sync_bfly(mask: u32, value: u32, lanes: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_sync_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot_sync(mask: u32, predicate: bool) -> u32;
}

/// The thread's lane in its warp, 0 to 31.
#[inline(always)]
pub fn lane_id() -> u32 {
    on_device! {
        let lane;
        // SAFETY: reads a special register.
        unsafe { asm!("mov.u32 {}, %laneid;", out(reg32) lane, options(pure, nomem, nostack, preserves_flags)) };
        lane
    }
}

/// The lanes that execute this instruction together; says nothing about the next instruction.
///
/// Needs PTX 6.2, and so an architecture of at least `Compute75` in `cuda_builder`.
#[inline(always)]
pub fn activemask() -> u32 {
    on_device! {
        let mask;
        // SAFETY: reads which lanes are active.
        unsafe { asm!("activemask.b32 {};", out(reg32) mask, options(nomem, nostack, preserves_flags)) };
        mask
    }
}

/// Waits for every lane in `mask`. Then each sees what the others wrote to memory before.
///
/// # Safety
///
/// The calling lane is in `mask`, and no lane in it has exited.
#[inline(always)]
pub unsafe fn sync_warp(mask: u32) {
    // SAFETY: as the caller vouches.
    on_device!(unsafe { bar_warp_sync(mask) })
}

/// Returns the lanes' predicates as bits, bit i for lane i; 0 for lanes outside `mask`.
///
/// # Safety
///
/// The calling lane is in `mask`, no lane in `mask` has exited, and all lanes in it call with the same mask.
#[inline(always)]
pub unsafe fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    // SAFETY: as the caller vouches.
    on_device!(unsafe { vote_ballot_sync(mask, predicate) })
}

/// Whether `predicate` holds in every lane of `mask`.
///
/// # Safety
///
/// As for [`warp_vote_ballot`].
#[inline(always)]
pub unsafe fn warp_vote_all(mask: u32, predicate: bool) -> bool {
    // SAFETY: as the caller vouches.
    unsafe { warp_vote_ballot(mask, predicate) == mask }
}

/// Whether `predicate` holds in at least one lane of `mask`.
///
/// # Safety
///
/// As for [`warp_vote_ballot`].
#[inline(always)]
pub unsafe fn warp_vote_any(mask: u32, predicate: bool) -> bool {
    // SAFETY: as the caller vouches.
    unsafe { warp_vote_ballot(mask, predicate) != 0 }
}

/// Applies `move_word` to each 32-bit word of `value`; the last word may be incomplete.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn map_words<T: Pod>(value: T, move_word: impl Fn(u32) -> u32) -> T {
    /// Treats the value as an array of `$words` words, which the compiler keeps in registers. A loop over
    /// slices of the value would store it to memory, which cost an H200 0.2 µs per word and shuffle.
    macro_rules! by_words {
        ($($words:literal)*) => {
            match size_of::<T>() {
                1 => cast(move_word(cast::<T, u8>(value).into()) as u8),
                2 => cast(move_word(cast::<T, u16>(value).into()) as u16),
                4 => cast(move_word(cast(value))),
                8 => {
                    let words: u64 = cast(value);
                    cast(u64::from(move_word(words as u32)) | u64::from(move_word((words >> 32) as u32)) << 32)
                }
                $(size if size.div_ceil(4) == $words => {
                    let mut words = [0; $words];
                    bytes_of_mut(&mut words)[..size].copy_from_slice(bytes_of(&value));
                    let words = core::array::from_fn::<u32, $words, _>(|index| move_word(words[index]));
                    let mut moved = value;
                    bytes_of_mut(&mut moved).copy_from_slice(&bytes_of(&words)[..size]);
                    moved
                })*
                size => {
                    // A real loop: unrolled, it would be as much code as the words, at each shuffle.
                    let mut moved = value;
                    let (from, to) = ((&raw const value).cast::<u8>(), (&raw mut moved).cast::<u8>());
                    let words = crate::intrinsics::opaque(size as u32 / 4) as usize;
                    let mut index = 0;
                    while index < words {
                        crate::intrinsics::no_unroll();
                        // SAFETY: the value has more than `index` words.
                        unsafe {
                            let word = from.add(4 * index).cast::<u32>().read_unaligned();
                            to.add(4 * index).cast::<u32>().write_unaligned(move_word(word));
                        }
                        index += 1;
                    }
                    if size % 4 != 0 {
                        let mut word = [0; 4];
                        word[..size % 4].copy_from_slice(&bytes_of(&value)[size - size % 4..]);
                        let word = move_word(u32::from_le_bytes(word)).to_le_bytes();
                        bytes_of_mut(&mut moved)[size - size % 4..].copy_from_slice(&word[..size % 4]);
                    }
                    moved
                }
            }
        };
    }
    by_words! { 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 }
}

/// The `c` operand of `shfl`: segments of `width` lanes, and the highest source lane in a segment. (PTX ISA,
/// section "shfl.sync".)
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn segments(width: u32, highest: u32) -> u32 {
    (WARP_SIZE - width) << 8 | highest
}

/// Returns the value of the lane `delta` above, and whether that lane is in the segment.
///
/// A segment is `width` lanes, a power of two up to 32. If the lane is outside, the value is the calling
/// lane's own.
///
/// # Safety
///
/// The calling lane and the lane that it reads are in `mask`, no lane in `mask` has exited, and all lanes in
/// it call with the same mask.
#[inline(always)]
pub unsafe fn warp_shuffle_down<T: Pod>(mask: u32, value: T, delta: u32, width: u32) -> (T, bool) {
    on_device! {
        // SAFETY: as the caller vouches.
        let moved = map_words(value, |word| unsafe { shfl_sync_down(mask, word, delta, segments(width, 31)) });
        (moved, lane_id() % width + delta < width)
    }
}

/// As [`warp_shuffle_down`], but from the lane `delta` below.
///
/// # Safety
///
/// As for [`warp_shuffle_down`].
#[inline(always)]
pub unsafe fn warp_shuffle_up<T: Pod>(mask: u32, value: T, delta: u32, width: u32) -> (T, bool) {
    on_device! {
        // SAFETY: as the caller vouches.
        let moved = map_words(value, |word| unsafe { shfl_sync_up(mask, word, delta, segments(width, 0)) });
        (moved, lane_id() % width >= delta)
    }
}

/// As [`warp_shuffle_down`], but from the lane whose number is the calling lane's exclusive or `lanes`.
///
/// # Safety
///
/// As for [`warp_shuffle_down`].
#[inline(always)]
pub unsafe fn warp_shuffle_xor<T: Pod>(mask: u32, value: T, lanes: u32, width: u32) -> (T, bool) {
    on_device! {
        // SAFETY: as the caller vouches.
        let moved = map_words(value, |word| unsafe { shfl_sync_bfly(mask, word, lanes, segments(width, 31)) });
        (moved, (lane_id() ^ lanes) / width <= lane_id() / width)
    }
}

/// Returns the value of lane `lane` modulo `width` in the segment of `width` lanes, and `true`.
///
/// # Safety
///
/// As for [`warp_shuffle_down`].
#[inline(always)]
pub unsafe fn warp_shuffle_idx<T: Pod>(mask: u32, value: T, lane: u32, width: u32) -> (T, bool) {
    on_device! {
        // SAFETY: as the caller vouches.
        let moved = map_words(value, |word| unsafe { shfl_sync_idx(mask, word, lane, segments(width, 31)) });
        (moved, true)
    }
}
