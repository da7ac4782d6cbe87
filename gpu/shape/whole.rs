//! The production kernel: one launch a reduction.
//!
//! ```text
//! block b:  fold chunk b into BLOCK · WIDTH accumulators, 16-byte loads, TILE_ROWS of them in flight a thread
//!           fold them pairwise: within a thread, across lanes by shuffles, across warps through shared memory
//!           thread 0 puts the partial result into slot b
//! the last block, when it has done that:
//!           takes the partial results from the slots as they come, folds them the same way, stores the result
//! ```

use super::chunk;
use crate::Op;
use crate::exchange::{partials, slot};
use crate::input::Input;
use crate::kernels::{self, Parameters};
use bytemuck::Pod;
use core::ffi::c_void;
use core::hint::assert_unchecked;
use core::marker::PhantomData;
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::Ordering;
use cuda_std::atomic::SystemAtomicU64;
use cuda_std::intrinsics::apart;
use cuda_std::{thread, warp};

/// What a launch is given. The kernel's arguments are the fields in this order, the input's pointers one by one; those of an
/// operator without parameters end before it.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<P, O, V> {
    /// The items of the launch's chunks, aligned to their type: of all, or of those that lie on a device.
    pub input: P,
    /// Items in a chunk.
    pub chunk: u32,
    /// Chunks before those of the launch.
    pub before: u32,
    /// Items in the input; where there are none, those of all.
    pub len: u64,
    /// A [`slot`] for each block's partial result, empty before the launch, and before these the slots of the chunks before.
    pub slots: *mut u64,
    /// Where the result goes. If somewhere, the last block takes all partial results, those of the chunks before too, and leaves the slots empty.
    pub result: Target<V>,
    /// The first item of all.
    pub first: P,
    /// The operator.
    pub op: O,
}

/// Where a result goes: to a place on the device; or its accumulator to an empty slot in host memory; or nowhere, and partial results stay in
/// their slots. It is an address, whose two uppermost bits, which no address has, say which. (In two arguments, the second of which the kernel's end had to wait for,
/// an H200 took 50 ns longer.)
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Target<V>(u64, PhantomData<*mut V>);

impl<V> Target<V> {
    const HOST: u64 = 1 << 63;
    const NONE: u64 = 1 << 62;

    /// A place on the device.
    pub fn device(place: *mut V) -> Self {
        Self(place.addr() as u64, PhantomData)
    }

    /// Nowhere.
    pub const fn none() -> Self {
        Self(Self::HOST | Self::NONE, PhantomData)
    }

    #[inline(always)]
    pub(crate) fn is_none(&self) -> bool {
        self.0 & Self::NONE != 0
    }

    /// The place on the device; or the slot in host memory.
    #[inline(always)]
    pub(crate) fn place(self) -> Result<*mut V, *mut u64> {
        let address = self.0 & !Self::HOST;
        if address == self.0 {
            Ok(with_exposed_provenance_mut(address as usize))
        } else {
            Err(with_exposed_provenance_mut(address as usize))
        }
    }

    /// A [`slot`] in host memory.
    pub fn host(slot: *mut u64) -> Self {
        Self(slot.addr() as u64 | Self::HOST, PhantomData)
    }
}

impl<P: Input, O: Copy, V: Copy> kernels::Arguments for Arguments<P, O, V> {
    fn parameters(&self, parameters: &mut Parameters) {
        let Self { input, chunk, before, len, slots, result, first, op } = self;
        input.parameters(parameters);
        let mut of_first = Parameters::NONE;
        first.parameters(&mut of_first);
        push_rest(parameters, (chunk, before, len, slots), result, &of_first, (&raw const *op).cast());
    }
}

/// Adds the parameters that follow the input's, those of the first item among them: for a host that knows of the result's type nothing, and of the operator no more
/// than where it lies, so that one code launches all.
pub fn push_rest<V: Copy>(
    parameters: &mut Parameters,
    (chunk, before, len, slots): (&u32, &u32, &u64, &*mut u64),
    result: &Target<V>,
    first: &Parameters,
    op: *const c_void,
) {
    parameters.push(chunk);
    parameters.push(before);
    parameters.push(len);
    parameters.push(slots);
    parameters.push(result);
    first.as_slice().iter().for_each(|&pointer| parameters.push_address(pointer));
    parameters.push_address(op);
}

/// The kernel as a type.
pub struct Kernel<O, P>(PhantomData<(O, P)>);

/// The kernel for a row at most, as a type.
pub struct RowKernel<O, P>(PhantomData<(O, P)>);

impl<O: Op<P::Item> + Pod, P: Input> kernels::Kernel for Kernel<O, P> {
    type Arguments = Arguments<P, O, O::Output>;
}

impl<O: Op<P::Item> + Pod, P: Input> kernels::Kernel for RowKernel<O, P> {
    type Arguments = Arguments<P, O, O::Output>;
}

/// The kernel: reduces `arguments.input`, a block each chunk.
///
/// # Safety
///
/// The launch has BLOCK threads a block (or any number of them that is a BLOCK, where BLOCK is
/// [`ANY_BLOCK`](crate::plan::ANY_BLOCK)) and a block for each chunk of the input by the [`Plan`](crate::Plan) of all items, with the
/// [`width`](crate::op::width) that WIDTH is, or two for no items; the pointers are valid as [`Arguments`] says, and nothing else uses what they
/// point to meanwhile, but for the slots, to which others bring their partial results. Where it takes these, the others have been launched.
#[inline(always)]
pub unsafe fn reduce<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    // SAFETY: as the caller vouches.
    unsafe { O::reduce_on_gpu::<P, BLOCK, WIDTH>(arguments, false) }
}

/// What both kernels do by an operator that has no way of its own.
///
/// # Safety
///
/// As for [`reduce`], or where it `is_row`, for [`reduce_row`].
#[inline(always)]
pub(crate) unsafe fn by_tree<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
    is_row: bool,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        if is_row {
            row_by_tree::<O, P, BLOCK, WIDTH>(arguments);
        } else {
            chunks_by_tree::<O, P, BLOCK, WIDTH>(arguments);
        }
    }
}

/// What the kernel does.
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
    // SAFETY: there is an item.
    let op = op.begin(unsafe { first.read() });
    // SAFETY: the chunk lies in the input; every thread of the block is here.
    let partial = unsafe {
        let len = (len - start).min(chunk.into()) as u32;
        op.fold_on_gpu::<P, BLOCK, WIDTH>(input.offset(start as usize), len, index)
    };
    if blocks == 1 {
        if thread == 0 {
            // SAFETY: as the caller vouches; this is one thread of the block.
            unsafe { deliver::<O, P::Item>(&op, partial, len, result, Some(slots)) };
        }
        return;
    }
    // These are branches, not one condition, so that ptxas keeps the block's number in uniform registers: on an H200 that
    // took 2% less time in the mean of 108 cases.
    let last = block == blocks - 1;
    if thread == 0 {
        // SAFETY: this is one thread of the block.
        unsafe { partials::put(slots, block, partial) };
        if !last {
            return;
        }
    } else if !last || thread >= warp::WARP_SIZE {
        return;
    }
    // Asked by who is left, not by all.
    if apart(|| result.is_none()) {
        return;
    }
    // SAFETY: something comes to each slot; this is one warp, and all of it.
    let accumulator = unsafe {
        let slots = slots.sub(before as usize * slot::words::<O::Accumulator>());
        partials::take_all::<O, P::Item>(&op, slots, before + blocks)
    };
    // By the lane's number, which is the thread's here: of that, the compiler knows in which lane it is since the branch above,
    // and makes a copy of all between for it.
    if warp::lane_id() == 0 {
        // SAFETY: as the caller vouches.
        unsafe { deliver::<O, P::Item>(&op, accumulator, len, result, None) };
    }
}

/// The kernel for an input that is no longer than a row, whatever BLOCK is: missing items are the identity, which leaves all bits
/// as they are, so that rows of all lengths are one tree. It is a launch, a load and the tree, and has not an instruction more: a
/// GPU fetches instructions from memory, and for 1,000 `f32` a kernel of both cost an H200 30 ns more here and there.
///
/// # Safety
///
/// The launch is one block of BLOCK threads, with one for each WIDTH items; the input is aligned for loads; and as [`reduce`]
/// asks.
#[inline(always)]
pub unsafe fn reduce_row<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    // SAFETY: as the caller vouches.
    unsafe { O::reduce_on_gpu::<P, BLOCK, WIDTH>(arguments, true) }
}

/// What the kernel for a row does.
///
/// # Safety
///
/// As for [`reduce_row`].
#[inline(always)]
unsafe fn row_by_tree<O: Op<P::Item>, P: Input, const BLOCK: u32, const WIDTH: usize>(
    arguments: Arguments<P, O, O::Output>,
) {
    let Arguments { input, len, result, op, .. } = arguments;
    // SAFETY: as the caller vouches.
    unsafe {
        let op = op.begin(input.read());
        let all = chunk::fold_row::<O, P, BLOCK, WIDTH>(&op, input, len as u32);
        if thread::thread_idx_x() == 0 {
            deliver::<O, P::Item>(&op, all, len, result, None);
        }
    }
}

/// Stores the result of all items' accumulator on the device, zeros where there is no value; or that accumulator in the host's
/// slot, and the host makes the result of it; or, for a result that goes nowhere, puts it into the block's slot.
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
    // SAFETY: as the field says.
    unsafe { assert_unchecked(len > 0) };
    let (partial, all) = (all, op.end(all, len));
    // SAFETY: as the caller vouches.
    unsafe {
        match (result.place(), slot) {
            (Ok(place), _) => match op.finish(all, len) {
                Some(output) => slot::store(place, output),
                None => place.write_bytes(0, 1),
            },
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
