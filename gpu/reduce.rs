//! The production kernel: one launch a reduction.
//!
//! ```text
//! block b:  fold chunk b into BLOCK · WIDTH accumulators, 16-byte loads, TILE_ROWS of them in flight a thread
//!           fold them pairwise: within a thread, across lanes by shuffles, across warps through shared memory
//!           thread 0 puts the partial result into slot b
//! the last block, when it has done that:
//!           takes the partial results from the slots as they come, folds them the same way, stores the result
//! ```

use crate::element::Lanes;
use crate::plan::TILE_ROWS;
use crate::{Element, Op, slot};
use core::array::from_fn;
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU64, SystemAtomicU64};
use cuda_std::{intrinsics, mem, shared_array, thread, warp};

/// What a launch is given; a kernel's arguments in this order.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Arguments<T> {
    /// `len` elements, aligned to their size.
    pub input: *const T,
    /// Elements in the input.
    pub len: u64,
    /// Elements in a chunk.
    pub chunk: u64,
    /// A [`slot`] for each block, empty before the launch and after it.
    pub slots: *mut u64,
    /// A slot for the result, on the device or in host memory that the device writes to.
    pub result: *mut u64,
}

/// The kernel: reduces `arguments.input`, one block a chunk.
///
/// # Safety
///
/// The launch has BLOCK threads a block and a block for each chunk of the input's [`Plan`](crate::Plan); the pointers
/// are valid as [`Arguments`] says, and nothing else uses what they point to meanwhile.
#[inline(always)]
pub unsafe fn reduce<O: Op<T>, T: Element, const BLOCK: u32>(arguments: Arguments<T>) {
    let Arguments { input, len, chunk, slots, result } = arguments;
    let (block, blocks, thread) = (thread::block_idx_x(), thread::grid_dim_x(), thread::thread_idx_x());
    let start = u64::from(block) * chunk;
    // SAFETY: the chunk lies in the input; every thread of the block is here.
    let partial = unsafe {
        let accumulators =
            fold_rows::<O, T, BLOCK>(input.add(start as usize), (len - start).min(chunk) as u32);
        fold_block::<O, T, BLOCK>(fold_pairs::<O, T>(accumulators))
    };
    if blocks == 1 {
        if thread == 0 {
            // SAFETY: as the caller vouches.
            unsafe { store_result::<O, T>(result, partial) };
        }
        return;
    }
    // These are branches, not one condition, so that ptxas keeps the block's number in uniform registers: on an H200 that
    // took 2% less time in the mean of 108 cases.
    let last = block == blocks - 1;
    if thread == 0 {
        let words = slot::words::<O::Accumulator>();
        for (index, word) in slot::pack(partial).into_iter().enumerate().take(words) {
            // SAFETY: the slot is this block's.
            let place = unsafe { AtomicU64::from_ptr(slots.add(block as usize * words + index)) };
            place.store(word, Ordering::Relaxed);
        }
        if !last {
            return;
        }
    } else if !last || thread >= warp::WARP_SIZE {
        return;
    }
    // SAFETY: each block puts something into its slot; this is one warp, and all of it.
    let accumulator = unsafe { fold_warp::<O, T>(take_all::<O, T>(slots, blocks), warp::WARP_SIZE) };
    if thread == 0 {
        // SAFETY: as the caller vouches.
        unsafe { store_result::<O, T>(result, accumulator) };
    }
}

/// Stores the result of all elements' accumulator in its slot.
///
/// # Safety
///
/// The slot is valid as [`Arguments`] says.
#[inline(always)]
unsafe fn store_result<O: Op<T>, T: Element>(result: *mut u64, accumulator: O::Accumulator) {
    let words = slot::words::<O::Output>();
    for (index, word) in slot::pack(O::finish(accumulator)).into_iter().enumerate().take(words) {
        // SAFETY: as the caller vouches.
        unsafe { SystemAtomicU64::from_ptr(result.add(index)) }.store(word, Ordering::Relaxed);
    }
}

/// Takes the partial results out of the slots as they come, and leaves the slots empty; lane l folds those of blocks l,
/// l + 32, and so on. One warp does it, with several loads in flight a lane: on an H200 that took 0.4 µs less than all
/// warps with one load a thread and a barrier.
///
/// The last block waits for the others, which wait for nobody: a device that holds two blocks at a time gets them all
/// done. (CUB's decoupled look-back waits in this way too: D. Merrill, M. Garland, "Single-pass Parallel Prefix Scan with
/// Decoupled Look-back", 2016.)
///
/// # Safety
///
/// Each of the blocks puts something into its slot, and one warp alone takes it.
#[inline(always)]
unsafe fn take_all<O: Op<T>, T: Element>(slots: *mut u64, blocks: u32) -> O::Accumulator {
    // SAFETY: as the caller vouches.
    unsafe {
        match slot::words::<O::Accumulator>() {
            1 => take_batches::<O, T, 1, LOADS>(slots, blocks),
            _ => take_batches::<O, T, 2, { LOADS / 2 }>(slots, blocks),
        }
    }
}

/// Loads that a lane keeps in flight in [`take_all`].
const LOADS: usize = 8;

/// As [`take_all`], BATCH slots of WORDS words a lane at a time.
#[inline(always)]
unsafe fn take_batches<O: Op<T>, T: Element, const WORDS: usize, const BATCH: usize>(
    slots: *mut u64,
    blocks: u32,
) -> O::Accumulator {
    let mut accumulator = O::IDENTITY;
    let mut first = thread::thread_idx_x();
    while first < blocks {
        let block = |slot: usize| first + slot as u32 * warp::WARP_SIZE;
        let word = |slot: usize, word: usize| {
            // SAFETY: called for slots of blocks only.
            unsafe { AtomicU64::from_ptr(slots.add(block(slot) as usize * WORDS + word)) }
        };
        // Slots beyond the last count as full.
        let mut values =
            from_fn(|slot| [if block(slot) < blocks { slot::EMPTY } else { !slot::EMPTY }; WORDS]);
        let mut full = false;
        while !full {
            values = from_fn::<_, BATCH, _>(|slot| {
                from_fn(|index| match values[slot][index] {
                    slot::EMPTY => word(slot, index).load(Ordering::Relaxed),
                    value => value,
                })
            });
            full = values.as_flattened().iter().fold(true, |full, &value| full & (value != slot::EMPTY));
        }
        for (slot, value) in values.iter().enumerate() {
            if block(slot) < blocks {
                let mut full = [slot::EMPTY; slot::MAX_WORDS];
                for (index, &value) in value.iter().enumerate() {
                    full[index] = value;
                    word(slot, index).store(slot::EMPTY, Ordering::Relaxed);
                }
                accumulator = O::combine(accumulator, slot::unpack(full));
            }
        }
        first += BATCH as u32 * warp::WARP_SIZE;
    }
    accumulator
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
    len: u32,
) -> T::Lanes<O::Accumulator> {
    let width = T::WIDTH as u32;
    let row = BLOCK * width;
    let first = thread::thread_idx_x() * width;
    let head = (chunk.addr().wrapping_neg() as u32 % 128) / size_of::<T>() as u32;
    let mut accumulators = T::Lanes::splat(O::IDENTITY);

    if first + width + head > row {
        for lane in 0..width {
            let element = (first + lane + head).wrapping_sub(row);
            if element < head.min(len) {
                // SAFETY: in the chunk.
                let element = unsafe { chunk.add(element as usize).read() };
                fold_element::<O, T>(&mut accumulators, lane as usize, element);
            }
        }
    }
    // SAFETY: at most one past the chunk's end, and never read there.
    let mut at = unsafe { chunk.add(head.min(len) as usize) }.wrapping_add(first as usize);
    let mut left = len.saturating_sub(head);

    // The chunk is aligned from here on.
    while left >= TILE_ROWS as u32 * row {
        intrinsics::no_unroll();
        // SAFETY: these rows lie in the chunk.
        unsafe { fold_loads::<O, T>(&mut accumulators, at, row, |_| true) };
        at = at.wrapping_add(TILE_ROWS as usize * row as usize);
        left -= TILE_ROWS as u32 * row;
    }
    let rest_rows = rest_rows::<T>();
    while left >= rest_rows * row {
        intrinsics::no_unroll();
        // SAFETY: as above.
        unsafe { fold_loads::<O, T>(&mut accumulators, at, row, |index| index < rest_rows) };
        at = at.wrapping_add((rest_rows * row) as usize);
        left -= rest_rows * row;
    }
    if left > 0 {
        // SAFETY: the thread's elements of these rows start at `at`.
        unsafe { fold_rest::<O, T>(&mut accumulators, at, row, left as i32 - first as i32) };
    }

    if head != 0 && !O::EXACT {
        // SAFETY: `head` is the same for the whole block, so every thread is here.
        unsafe { rotate::<O, T, BLOCK>(&mut accumulators, head) };
    }
    accumulators
}

/// Folds a load of each of a tile's rows that `whole` is true for; all are on their way before the first is folded.
///
/// # Safety
///
/// The thread's first load lies at `at`, aligned to 16 bytes, and each that `whole` is true for lies in the chunk.
#[inline(always)]
unsafe fn fold_loads<O: Op<T>, T: Element>(
    accumulators: &mut T::Lanes<O::Accumulator>,
    at: *const T,
    row: u32,
    whole: impl Fn(u32) -> bool,
) {
    let loads: [T::Lanes<T>; TILE_ROWS as usize] = from_fn(|index| {
        if whole(index as u32) {
            // SAFETY: as the caller vouches.
            unsafe { mem::load_16_bytes(at.add(index * row as usize).cast()) }
        } else {
            T::Lanes::splat(T::zeroed())
        }
    });
    for (index, &load) in (0..).zip(&loads) {
        if whole(index) {
            fold_load::<O, T>(accumulators, load);
        }
    }
}

/// The rows that the end of a chunk, after its last whole tile, is folded by: as many as there are registers and predicates
/// for, when each load and each element after them has a condition. Narrow types have more elements, and one row.
const fn rest_rows<T: Element>() -> u32 {
    if T::WIDTH <= 4 { TILE_ROWS as u32 - 1 } else { 1 }
}

/// Folds the end of a chunk, less than [`rest_rows`]: whole loads, and the load that the end cuts.
///
/// # Safety
///
/// Of the chunk, `left` elements lie from `at` on, which is aligned to 16 bytes; none if it is negative.
#[inline(always)]
unsafe fn fold_rest<O: Op<T>, T: Element>(
    accumulators: &mut T::Lanes<O::Accumulator>,
    at: *const T,
    row: u32,
    left: i32,
) {
    let width = T::WIDTH as u32;
    let whole = |index| index < rest_rows::<T>() && (index * row + width) as i32 <= left;
    // SAFETY: whole loads before the end lie in the chunk.
    unsafe { fold_loads::<O, T>(accumulators, at, row, whole) };
    // A thread whose load the end cuts has less than a load in the last row (a row is a power of two, so that the remainder
    // is right for a negative `left` as well: a load or more).
    let last_row = left as u32 % row;
    let cut = if last_row < width { last_row } else { 0 };
    let at = at.wrapping_add((left as u32 - cut) as usize);
    for lane in 0..T::WIDTH {
        if (lane as u32) < cut {
            // SAFETY: one of the chunk's last elements.
            fold_element::<O, T>(accumulators, lane, unsafe { at.wrapping_add(lane).read() });
        }
    }
}

/// Folds the elements of one load, each into its accumulator. Where every order gives the same bits, all go into the
/// first one: 16 accumulators of 64 bits would be half of a thread's registers.
#[inline(always)]
fn fold_load<O: Op<T>, T: Element>(accumulators: &mut T::Lanes<O::Accumulator>, load: T::Lanes<T>) {
    if O::EXACT {
        let accumulator = &mut accumulators.as_mut()[0];
        *accumulator = O::combine(*accumulator, O::lift_load(load));
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
    head: u32,
) {
    let places = shared_array![O::Accumulator; BLOCK as usize * T::WIDTH];
    let first = thread::thread_idx_x() * T::WIDTH as u32;
    for (lane, &value) in (first + head..).zip(accumulators.as_ref()) {
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
