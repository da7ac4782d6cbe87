//! The production kernel: one launch a reduction.
//!
//! ```text
//! block b:  fold chunk b into BLOCK · WIDTH accumulators, 16-byte loads, TILE_ROWS of them in flight a thread
//!           fold them pairwise: within a thread, across lanes by shuffles, across warps through shared memory
//!           thread 0 stores the partial result and takes a ticket
//! the block with the last ticket:
//!           folds the partial results the same way and stores the result
//! ```

use crate::element::Lanes;
use crate::plan::TILE_ROWS;
use crate::{Element, Op};
use core::sync::atomic::Ordering;
use cuda_std::atomic::AtomicU32;
use cuda_std::{mem, shared_array, thread, warp};

/// What a launch is given; a kernel's arguments in this order.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Arguments<T, A, R> {
    /// `len` elements, aligned to their size.
    pub input: *const T,
    /// Elements in the input.
    pub len: u64,
    /// Elements in a chunk.
    pub chunk: u64,
    /// Room for a partial result from each block.
    pub partials: *mut A,
    /// 0 before the launch, and after it.
    pub tickets: *mut u32,
    /// Where the result goes.
    pub result: *mut R,
}

/// The kernel: reduces `arguments.input`, one block a chunk.
///
/// # Safety
///
/// The launch has BLOCK threads a block and a block for each chunk of the input's [`Plan`](crate::Plan); the pointers
/// are valid as [`Arguments`] says, and nothing else uses what they point to meanwhile.
#[inline(always)]
pub unsafe fn reduce<O: Op<T>, T: Element, const BLOCK: u32>(
    arguments: Arguments<T, O::Accumulator, O::Output>,
) {
    let Arguments { input, len, chunk, partials, tickets, result } = arguments;
    let (block, blocks) = (thread::block_idx_x(), thread::grid_dim_x());
    let start = u64::from(block) * chunk;
    // SAFETY: the chunk lies in the input; every thread of the block calls each function.
    let partial = unsafe {
        let accumulators =
            fold_rows::<O, T, BLOCK>(input.add(start as usize), (len - start).min(chunk) as usize);
        fold_block::<O, T, BLOCK>(fold_pairs::<O, T>(accumulators))
    };
    let first = thread::thread_idx_x() == 0;
    if blocks == 1 {
        if first {
            // SAFETY: as the caller vouches.
            unsafe { result.write(O::finish(partial)) };
        }
        return;
    }

    let is_last = shared_array![u32; 1];
    if first {
        // SAFETY: each block has a partial of its own. The ticket's release makes it visible to the block that takes the
        // last one, whose acquire orders its reads after all releases; the barrier below passes that on to its threads.
        let ticket = unsafe {
            partials.add(block as usize).write(partial);
            AtomicU32::from_ptr(tickets).fetch_inc(blocks - 1, Ordering::AcqRel)
        };
        // SAFETY: only this thread writes it, before the barrier.
        unsafe { is_last.write(0, u32::from(ticket == blocks - 1)) };
    }
    thread::sync_threads();
    // SAFETY: written before the barrier.
    if unsafe { is_last.read(0) } == 0 {
        return;
    }
    let mut accumulator = O::IDENTITY;
    let mut index = thread::thread_idx_x();
    while index < blocks {
        // SAFETY: every block has written its partial, as the ticket says.
        accumulator = O::combine(accumulator, unsafe { partials.add(index as usize).read() });
        index += BLOCK;
    }
    // SAFETY: every thread of this block is here.
    let total = unsafe { fold_block::<O, T, BLOCK>(accumulator) };
    if first {
        // SAFETY: as the caller vouches.
        unsafe { result.write(O::finish(total)) };
    }
}

/// Folds a chunk row by row; returns the thread's WIDTH accumulators, those of elements `WIDTH · thread ..` of each row.
///
/// Loads are aligned whatever the input is. Where its first `head` elements precede a 128-byte boundary (a cache line, so
/// that a warp reads four lines and not parts of five), rows are read from that boundary on, and thread t folds elements
/// `head + WIDTH · t ..`. The accumulators at the end of that row are those of the head, folded first. One exchange at the
/// end brings each accumulator to its thread.
///
/// # Safety
///
/// Every thread of the block calls it, with the same `len` elements at `chunk`.
#[inline(always)]
unsafe fn fold_rows<O: Op<T>, T: Element, const BLOCK: u32>(
    chunk: *const T,
    len: usize,
) -> T::Lanes<O::Accumulator> {
    let row = BLOCK as usize * T::WIDTH;
    let tile = row * TILE_ROWS as usize;
    let first = thread::thread_idx_x() as usize * T::WIDTH;
    let head = (chunk.addr().wrapping_neg() % 128) / size_of::<T>();
    let mut accumulators = T::Lanes::splat(O::IDENTITY);

    if first + T::WIDTH + head > row {
        for lane in 0..T::WIDTH {
            let element = (first + lane + head).wrapping_sub(row);
            if element < head && element < len {
                // SAFETY: in the chunk.
                fold_element::<O, T>(&mut accumulators, lane, unsafe { chunk.add(element).read() });
            }
        }
    }
    // SAFETY: at most one past the chunk's end.
    let chunk = unsafe { chunk.add(head.min(len)) };
    let len = len.saturating_sub(head);

    let mut at = 0;
    while at + tile <= len {
        let loads: [T::Lanes<T>; TILE_ROWS as usize] = core::array::from_fn(|row_of_tile| {
            // SAFETY: the whole tile lies in the chunk, which is aligned from here on.
            unsafe { mem::load_16_bytes(chunk.add(at + row_of_tile * row + first).cast()) }
        });
        for load in loads {
            fold_load::<O, T>(&mut accumulators, load);
        }
        at += tile;
    }
    // What is left is less than a tile: whole loads, then the load that the chunk's end cuts.
    let mut at = at + first;
    while at + T::WIDTH <= len {
        // SAFETY: these WIDTH elements lie in the chunk.
        fold_load::<O, T>(&mut accumulators, unsafe { mem::load_16_bytes(chunk.add(at).cast()) });
        at += row;
    }
    for lane in 0..T::WIDTH {
        if at + lane < len {
            // SAFETY: in the chunk.
            fold_element::<O, T>(&mut accumulators, lane, unsafe { chunk.add(at + lane).read() });
        }
    }

    if head != 0 && !O::EXACT {
        // SAFETY: `head` is the same for the whole block, so every thread is here.
        unsafe { rotate::<O, T, BLOCK>(&mut accumulators, head) };
    }
    accumulators
}

/// Folds the elements of one load, each into its accumulator. Where every order gives the same bits, all go into the
/// first one: 16 accumulators of 64 bits would be half of a thread's registers.
#[inline(always)]
fn fold_load<O: Op<T>, T: Element>(accumulators: &mut T::Lanes<O::Accumulator>, load: T::Lanes<T>) {
    if O::EXACT {
        let mut lifted = T::Lanes::splat(O::IDENTITY);
        for (lane, &element) in load.as_ref().iter().enumerate() {
            lifted.as_mut()[lane] = O::lift(element);
        }
        let accumulator = &mut accumulators.as_mut()[0];
        *accumulator = O::combine(*accumulator, fold_pairs::<O, T>(lifted));
    } else {
        for (lane, &element) in load.as_ref().iter().enumerate() {
            fold_element::<O, T>(accumulators, lane, element);
        }
    }
}

/// Folds one element into accumulator `lane`; as [`fold_load`].
#[inline(always)]
fn fold_element<O: Op<T>, T: Element>(accumulators: &mut T::Lanes<O::Accumulator>, lane: usize, element: T) {
    let accumulator = &mut accumulators.as_mut()[if O::EXACT { 0 } else { lane }];
    *accumulator = O::combine(*accumulator, O::lift(element));
}

/// Gives each thread the accumulators of elements `WIDTH · thread ..` of the rows; it holds those of `WIDTH · thread +
/// head ..`, counted around the row.
///
/// # Safety
///
/// Every thread of the block calls it.
#[inline(always)]
unsafe fn rotate<O: Op<T>, T: Element, const BLOCK: u32>(
    accumulators: &mut T::Lanes<O::Accumulator>,
    head: usize,
) {
    let places = shared_array![O::Accumulator; BLOCK as usize * T::WIDTH];
    let first = thread::thread_idx_x() * T::WIDTH as u32;
    for (lane, &value) in (first + head as u32..).zip(accumulators.as_ref()) {
        // SAFETY: no two threads have a place in common.
        unsafe { places.write(lane % (BLOCK * T::WIDTH as u32), value) };
    }
    thread::sync_threads();
    for (lane, value) in (first..).zip(accumulators.as_mut()) {
        // SAFETY: written before the barrier.
        *value = unsafe { places.read(lane) };
    }
}

/// Folds a thread's accumulators pairwise, neighbours first.
#[inline(always)]
fn fold_pairs<O: Op<T>, T: Element>(mut accumulators: T::Lanes<O::Accumulator>) -> O::Accumulator {
    let values = accumulators.as_mut();
    let mut stride = 1;
    while stride < T::WIDTH {
        let mut lane = 0;
        while lane < T::WIDTH {
            values[lane] = O::combine(values[lane], values[lane + stride]);
            lane += 2 * stride;
        }
        stride *= 2;
    }
    values[0]
}

/// Folds one value a thread pairwise, neighbours first: across the lanes of each warp by shuffles, then across warps
/// through shared memory, again by shuffles. Thread 0 gets the result, the others something of no use.
///
/// # Safety
///
/// Every thread of the block calls it.
#[inline(always)]
pub(crate) unsafe fn fold_block<O: Op<T>, T: Element, const BLOCK: u32>(
    value: O::Accumulator,
) -> O::Accumulator {
    // SAFETY: all lanes of the warp are here.
    let value = unsafe { fold_warp::<O, T>(value, warp::WARP_SIZE) };
    let warps = BLOCK / warp::WARP_SIZE;
    if warps == 1 {
        return value;
    }
    let partials = shared_array![O::Accumulator; 32];
    let thread = thread::thread_idx_x();
    if thread.is_multiple_of(warp::WARP_SIZE) {
        // SAFETY: each warp has a place of its own.
        unsafe { partials.write(thread / warp::WARP_SIZE, value) };
    }
    thread::sync_threads();
    if thread >= warp::WARP_SIZE {
        return value;
    }
    // SAFETY: written before the barrier, and all lanes of the first warp are here.
    unsafe {
        let value = if thread < warps { partials.read(thread) } else { O::IDENTITY };
        fold_warp::<O, T>(value, warps)
    }
}

/// Folds the first `lanes` lanes of a warp pairwise, neighbours first; lane 0 gets the result.
///
/// # Safety
///
/// All 32 lanes call it together.
#[inline(always)]
unsafe fn fold_warp<O: Op<T>, T: Element>(mut value: O::Accumulator, lanes: u32) -> O::Accumulator {
    let mut stride = 1;
    while stride < lanes {
        // SAFETY: as the caller vouches.
        let (above, _) = unsafe { warp::warp_shuffle_down(warp::ALL, value, stride, warp::WARP_SIZE) };
        value = O::combine(value, above);
        stride *= 2;
    }
    value
}
