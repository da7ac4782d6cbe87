//! The kernel that reduces a whole input in one launch, or in two if there are
//! [groups](crate::Plan::groups) of partial results.
//!
//! ```text
//! block b:  fold chunk b into BLOCK · WIDTH accumulators by 16-byte loads, TILE_ROWS in flight a thread
//!           fold them pairwise: in a thread, across lanes by shuffles, across warps through shared memory
//!           thread 0 puts the partial result into slot b
//! the last block, when it has done that:
//!           takes the partial results from the slots as they come, folds them in the same way
//!           stores the result
//! ```
//!
//! If there are groups, the blocks leave the partial results in their slots. The second launch has a block for
//! each group, which folds that group's slots pairwise; then it goes on as above.

use super::chunk;
use crate::Op;
use crate::agent::Agent;
use crate::exchange::{partials, slot};
use crate::input::Input;
use crate::kernels::{self, Named, Operator, Parameters};
use crate::plan::GROUP;
use core::hint::assert_unchecked;
use core::marker::PhantomData;
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::Ordering;
use cuda_std::atomic::SystemAtomicU64;
use cuda_std::intrinsics::apart;
use cuda_std::{thread, warp};

/// The arguments of a launch. The kernel's parameters are the fields in this order, the input's pointers one
/// by one. For an operator of size 0 they end before it.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<P, O, V> {
    /// The items of the launch's chunks, aligned to their type: the whole input, or the part on one device.
    pub input: P,
    /// Items in a chunk.
    pub chunk: u32,
    /// Chunks of the whole input before the first chunk of the launch; or all chunks, if it folds groups.
    pub before: u32,
    /// Items in the input of the launch; if it has none, the items of the whole input.
    pub len: u64,
    /// A [`slot`] for each block's partial result, empty before the launch. The slots of the chunks before
    /// lie before them.
    pub slots: *mut u64,
    /// Where the result goes. If it goes anywhere, the last block takes the partial results of all chunks,
    /// including those before the launch's, and leaves the slots empty.
    pub result: Target<V>,
    /// The first item of the whole input.
    pub first: P,
    /// The operator.
    pub op: O,
}

/// Where a result goes: to an address on the device; or its accumulator to an empty slot in host memory; or
/// nowhere, and partial results stay in their slots.
///
/// It is an address whose two highest bits, which no address uses, say which. (With two arguments, the
/// kernel's end had to wait for the second: 50 ns more on an H200.)
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Target<V>(u64, PhantomData<*mut V>);

impl<V> Target<V> {
    const HOST: u64 = 1 << 63;
    const NONE: u64 = 1 << 62;

    /// The result goes to this address on the device.
    pub fn device(address: *mut V) -> Self {
        Self(address.addr() as u64, PhantomData)
    }

    /// The result goes nowhere.
    pub const fn none() -> Self {
        Self(Self::HOST | Self::NONE, PhantomData)
    }

    #[inline(always)]
    pub(crate) fn is_none(&self) -> bool {
        self.0 & Self::NONE != 0
    }

    /// Returns the address on the device, or the slot in host memory as an error.
    #[inline(always)]
    pub(crate) fn place(self) -> Result<*mut V, *mut u64> {
        let address = self.0 & !Self::HOST;
        if address == self.0 {
            Ok(with_exposed_provenance_mut(address as usize))
        } else {
            Err(with_exposed_provenance_mut(address as usize))
        }
    }

    /// The accumulator goes to this [`slot`] in host memory.
    pub fn host(slot: *mut u64) -> Self {
        Self(slot.addr() as u64 | Self::HOST, PhantomData)
    }
}

impl<P: Input, O: Op<P::Item>, V: Copy> kernels::Arguments for Arguments<P, O, V> {
    fn parameters(&self, parameters: &mut Parameters) {
        let Self { input, chunk, before, len, slots, result, first, op } = self;
        input.parameters(parameters);
        let mut of_first = Parameters::NONE;
        first.parameters(&mut of_first);
        push_rest(parameters, (chunk, before, len, slots), result, &of_first, Operator::of(op));
    }
}

/// Adds the parameters that follow the input's pointers. It needs neither the result's type nor the
/// operator's, so that the host has one launch function for all of them.
pub fn push_rest<V: Copy>(
    parameters: &mut Parameters,
    (chunk, before, len, slots): (&u32, &u32, &u64, &*mut u64),
    result: &Target<V>,
    first: &Parameters,
    op: Operator,
) {
    parameters.push(chunk);
    parameters.push(before);
    parameters.push(len);
    parameters.push(slots);
    parameters.push(result);
    first.as_slice().iter().for_each(|&pointer| parameters.push_address(pointer));
    parameters.push_operator(op);
}

/// The kernel as a type.
pub type Kernel<O, P> = Named<Whole, Arguments<P, O, <O as Op<<P as Input>::Item>>::Output>>;

/// The kernel for inputs of a row at most, as a type.
pub type RowKernel<O, P> = Named<Row, Arguments<P, O, <O as Op<<P as Input>::Item>>::Output>>;

/// The kernel that folds groups of partial results, as a type.
pub type GroupsKernel<O, P> = Named<Groups, Arguments<P, O, <O as Op<<P as Input>::Item>>::Output>>;

/// Names [`Kernel`].
pub enum Whole {}

/// Names [`RowKernel`].
pub enum Row {}

/// Names [`GroupsKernel`].
pub enum Groups {}

/// Reduces `arguments.input`: a block folds a chunk.
///
/// # Safety
///
/// - The launch has BLOCK threads a block; or any valid BLOCK of them, if BLOCK is
///   [`ANY_BLOCK`](crate::plan::ANY_BLOCK).
/// - It has a block for each of its chunks by the [`Plan`](crate::Plan) of all items, or two blocks for no
///   items. WIDTH is the operator's [`width`](crate::op::width).
/// - The pointers are valid as [`Arguments`] says. Nothing else accesses what they point to meanwhile, but
///   for the slots, into which other launches put their partial results. If this launch takes those, the
///   other launches have been enqueued.
#[inline(always)]
pub unsafe fn reduce<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    // SAFETY: as the caller promises.
    unsafe { O::agent().reduce_on_gpu::<P, BLOCK, WIDTH>(arguments, false) }
}

/// What both kernels do for an operator whose agent does not replace [`Agent::reduce_on_gpu`].
///
/// # Safety
///
/// As for [`reduce`]; or as for [`reduce_row`] if `is_row`.
#[inline(always)]
pub(crate) unsafe fn by_tree<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
    is_row: bool,
) {
    // SAFETY: as the caller promises.
    unsafe {
        if is_row {
            row_by_tree::<O, P, BLOCK, WIDTH>(arguments);
        } else {
            chunks_by_tree::<O, P, BLOCK, WIDTH>(arguments);
        }
    }
}

/// Folds a chunk a block; the last block folds the partial results.
///
/// # Safety
///
/// As for [`reduce`].
#[inline(always)]
unsafe fn chunks_by_tree<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    let Arguments { input, chunk, before, len, slots, result, first, op } = arguments;
    let (block, blocks, thread) = (thread::block_idx_x(), thread::grid_dim_x(), thread::thread_idx_x());
    let (start, index) = (u64::from(block) * u64::from(chunk), u64::from(before + block) * u64::from(chunk));
    // SAFETY: the input has an item.
    let op = op.begin(unsafe { first.read() });
    // SAFETY: the chunk lies in the input, and every thread of the block is here.
    let partial = unsafe {
        let len = (len - start).min(chunk.into()) as u32;
        O::agent().fold_on_gpu::<P, BLOCK, WIDTH>(&op, input.offset(start as usize), len, index)
    };
    if blocks == 1 {
        if thread == 0 {
            // SAFETY: as the caller promises; one thread of the block calls it.
            unsafe { deliver::<O, P::Item>(&op, partial, len, result, Some(slots)) };
        }
        return;
    }
    // Branches and not one condition, so that ptxas keeps the block's number in uniform registers: 2% less
    // time on an H200 in the mean of 108 cases.
    let last = block == blocks - 1;
    if thread == 0 {
        // SAFETY: one thread of the block calls it.
        unsafe { partials::put(slots, block, partial) };
        if !last {
            return;
        }
    } else if !last || thread >= warp::WARP_SIZE {
        return;
    }
    // Only the last block's first warp asks.
    if apart(|| result.is_none()) {
        return;
    }
    // SAFETY: each slot gets a value, and the whole of one warp is here.
    let accumulator = unsafe {
        let slots = slots.sub(before as usize * slot::words::<O::Accumulator>());
        partials::take_all::<O, P::Item>(&op, slots, before + blocks)
    };
    // The lane's number equals the thread's here. But of the thread's number, the compiler knows since the
    // branch above whether it is 0, and would copy all code between for that case.
    if warp::lane_id() == 0 {
        // SAFETY: as the caller promises.
        unsafe { deliver::<O, P::Item>(&op, accumulator, len, result, None) };
    }
}

/// Folds the groups of partial results that earlier launches have left in the slots before the launch's own: a
/// block folds a group. The last block folds the groups' results.
///
/// # Safety
///
/// The launch has a block of [`GROUP`] threads for each group, and there are several; otherwise as for
/// [`reduce`].
#[inline(always)]
pub unsafe fn reduce_groups<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    const { assert!(BLOCK == GROUP, "a thread for each partial result") };
    // The order does not matter, so there are no groups.
    if const { O::EXACT } {
        return;
    }
    let Arguments { before, len, slots, result, first, op, .. } = arguments;
    let (block, blocks, thread) = (thread::block_idx_x(), thread::grid_dim_x(), thread::thread_idx_x());
    // SAFETY: as the caller promises; every thread of the block is here, and each block puts a value into its
    // slot.
    unsafe {
        let op = op.begin(first.read());
        let of_group = partials::fold_group::<O, P::Item>(&op, slots, before);
        // Branches as in `chunks_by_tree`, so that the first warp stays together.
        let last = block == blocks - 1;
        if thread == 0 {
            partials::put(slots, block, of_group);
            if !last {
                return;
            }
        } else if !last || thread >= warp::WARP_SIZE {
            return;
        }
        if apart(|| result.is_none()) {
            return;
        }
        let accumulator = partials::take_all::<O, P::Item>(&op, slots, blocks);
        if warp::lane_id() == 0 {
            deliver::<O, P::Item>(&op, accumulator, len, result, None);
        }
    }
}

/// Reduces an input that is no longer than a row, for any BLOCK. Missing items are the identity, which
/// changes no bits, so that rows of all lengths have the same tree.
///
/// The kernel is a launch, a load and the tree, without one instruction more: a GPU fetches instructions from
/// memory. A kernel of both functions cost an H200 up to 30 ns more for 1,000 `f32`.
///
/// # Safety
///
/// The launch is one block of BLOCK threads, one for each WIDTH items or more; the input is aligned for
/// loads; otherwise as for [`reduce`].
#[inline(always)]
pub unsafe fn reduce_row<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    // SAFETY: as the caller promises.
    unsafe { O::agent().reduce_on_gpu::<P, BLOCK, WIDTH>(arguments, true) }
}

/// Folds the row and delivers its result.
///
/// # Safety
///
/// As for [`reduce_row`].
#[inline(always)]
unsafe fn row_by_tree<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    let Arguments { input, len, result, op, .. } = arguments;
    // SAFETY: as the caller promises.
    unsafe {
        let op = op.begin(input.read());
        let all = chunk::fold_row::<O, P, BLOCK, WIDTH>(&op, input, len as u32);
        if thread::thread_idx_x() == 0 {
            deliver::<O, P::Item>(&op, all, len, result, None);
        }
    }
}

/// Delivers the accumulator of all items to the target:
///
/// - on the device, stores the result, or zeros if there is no value;
/// - in host memory, puts the accumulator into the slot, and the host makes the result of it;
/// - nowhere: puts the partial result into the block's `slot`.
///
/// # Safety
///
/// The target is valid as [`Arguments`] says, and one thread of a block calls it.
#[inline(always)]
unsafe fn deliver<O: Op<I>, I: Copy + 'static>(
    op: &O,
    all: O::Accumulator,
    len: u64,
    result: Target<O::Output>,
    slot: Option<*mut u64>,
) {
    // SAFETY: `Arguments::len` is not 0: if the launch has no items, it counts those of the whole input.
    unsafe { assert_unchecked(len > 0) };
    let (partial, all) = (all, op.end(all, len));
    // SAFETY: as the caller promises.
    unsafe {
        match (result.place(), slot) {
            (Ok(address), _) => {
                if !O::agent().store(op, (all, len), address, 0) {
                    address.write_bytes(0, 1);
                }
            }
            (Err(_), Some(slot)) if result.is_none() => partials::put(slot, 0, partial),
            (Err(slot), _) => {
                for index in 0..slot::words::<O::Accumulator>() {
                    let word = SystemAtomicU64::from_ptr(slot.add(index));
                    word.store(slot::word(&all, index), Ordering::Relaxed);
                }
            }
        }
    }
}
