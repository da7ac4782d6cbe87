//! Exact sums of rows and segments: a block for each, or several.

use super::digits::Digits;
use super::thread::ThreadSum;
use crate::input::{Input, OneByOne};
use crate::op::exact::{Fixed, OfExactSum, Terms};
use crate::plan::ANY_BLOCK;
use crate::segments::Arguments;
use crate::slot;
use cuda_std::{intrinsics, shared_array, thread, warp};

/// If several blocks sum a segment, the number of items in each part but the last is a multiple of this.
const SHARE: u64 = 1024;

/// The most items that are added before carries are propagated. A digit has room for 2^31 additions; this is less, so that a test
/// can exceed it.
const MOST_ITEMS: u64 = 1 << 24;

/// Sums segments. [`Cut::weight`](crate::segments::Cut::weight) is the number of parts of a segment, and each part has a block. The block of
/// the last part adds up the sums of the others. If a segment is one part, a block sums one segment after another.
///
/// # Safety
///
/// As for [`Agent::sum_segments`](crate::agent::Agent::sum_segments).
#[inline(always)]
pub(crate) unsafe fn sum_segments<
    O: OfExactSum<P::Item, Accumulator = Fixed<W>>,
    P: Input<Item: Terms<N>>,
    const WIDTH: usize,
    const N: usize,
    const W: usize,
    const LOADS: usize,
    const TERMS: usize,
>(
    arguments: Arguments<P, O, O::Output>,
) {
    const { assert!(LOADS * WIDTH * N == TERMS, "terms of a tile") };
    let Arguments { input, shape: segments, cut, results, op, .. } = arguments;
    let digits = Digits::<W>(shared_array![u32; 4 * W + 1]);
    let is_first_warp = thread::thread_idx_x() < warp::WARP_SIZE;
    let words = slot::words::<Fixed<W>>();
    let (count, parts, block) = (segments.count(), cut.weight.max(1), thread::block_idx_x());
    let (first, part) = if parts > 1 { (block / parts, block % parts) } else { (block, 0) };
    let mut segment = u64::from(first);
    while segment < count {
        intrinsics::no_unroll();
        let (start, stop) = (segments.start(segment), segments.start(segment + 1));
        if !segments.is_valid(start, stop) {
            // All blocks of a segment see it, so that none waits for another.
            arguments.is_wrong(segment);
        } else {
            let (mut at, mut end) = (start, stop);
            if parts > 1 {
                let share = (stop - start).div_ceil(parts.into()).next_multiple_of(SHARE);
                at = stop.min(start + share * u64::from(part));
                end = stop.min(at + share);
            }
            let mut is_first = true;
            // SAFETY: all threads are here; the items lie in the array; each block has a slot.
            unsafe {
                loop {
                    intrinsics::no_unroll();
                    let items = (end - at).min(MOST_ITEMS) as u32;
                    let from = input.offset(at as usize);
                    let sum = ThreadSum::<P::Item, N, W, TERMS>::new(digits);
                    match from.head() {
                        Some(head) => {
                            sum.add_chunk::<P, ANY_BLOCK, WIDTH, LOADS>(from, head, items, (is_first, true))
                        }
                        None => sum.add_chunk::<OneByOne<P>, ANY_BLOCK, WIDTH, LOADS>(
                            OneByOne(from),
                            0,
                            items,
                            (is_first, true),
                        ),
                    }
                    thread::sync_threads();
                    at += u64::from(items);
                    if at == end {
                        break;
                    }
                    if is_first_warp {
                        digits.carry_over();
                    }
                    thread::sync_threads();
                    is_first = false;
                }
                if parts > 1 {
                    let slots = cut.partials.add(segment as usize * parts as usize * words);
                    if part + 1 < parts {
                        if is_first_warp {
                            digits.carry_over();
                            digits.put(slots.add(part as usize * words));
                        }
                        return;
                    }
                    digits.take::<ANY_BLOCK>(slots, part);
                    thread::sync_threads();
                }
                if is_first_warp {
                    digits.carry_over();
                    op.store_sum(digits, stop - start, results, segment as usize);
                }
            }
        }
        if parts > 1 {
            return;
        }
        thread::sync_threads();
        segment += u64::from(thread::grid_dim_x());
    }
}
