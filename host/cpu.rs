//! The CPU backend: the same plan as the kernel's, chunks over threads.

use crate::{Op, Plan};
use gpu_reduce_kernels::cpu::Folds;
pub use gpu_reduce_kernels::cpu::{Source, simd};
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::width;
use rayon::prelude::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Below this many bytes one thread reduces sooner than others wake up.
const PARALLEL_BYTES: usize = 1 << 20;

/// Reduces items, of which there are some, and which on a GPU would be read through `P`.
pub fn reduce<O: Op<S::Item>, S: Source, P: Input<Item = S::Item>>(
    op: &O,
    items: S,
    block: u32,
) -> Option<O::Output> {
    const {
        assert!(
            align_of::<O::Accumulator>() <= align_of::<Unit>(),
            "an accumulator has an alignment of up to 64"
        )
    };
    let len = items.len();
    // SAFETY: there are some items.
    let op = &op.begin(unsafe { items.get(0) });
    let mut all = MaybeUninit::<O::Accumulator>::uninit();
    let fold = Erased {
        folds: S::folds::<O>(),
        op: (&raw const *op).cast(),
        items: (&raw const items).cast(),
        exact: O::EXACT,
        accumulator: size_of::<O::Accumulator>(),
    };
    let parallel = len.saturating_mul(size_of::<S::Item>()) >= PARALLEL_BYTES;
    let plan = Plan::new(len as u64, const { width::<O, S::Item>(P::BYTES) }, block);
    // SAFETY: the folds are for these types.
    let all = unsafe {
        fold.all(&plan, parallel, all.as_mut_ptr().cast());
        all.assume_init()
    };
    op.finish(op.end(all, len as u64), len as u64)
}

/// An operator and items, whatever their types: what follows is compiled once.
struct Erased {
    folds: Folds,
    op: *const (),
    items: *const (),
    exact: bool,
    /// Bytes of an accumulator.
    accumulator: usize,
}

// SAFETY: operators are sent to threads, as sources are.
unsafe impl Sync for Erased {}

impl Erased {
    /// Folds all items into a place for their accumulator.
    ///
    /// # Safety
    ///
    /// The folds are for the operator and the items, of which there are as many as in the plan, and the place may be written.
    unsafe fn all(&self, plan: &Plan, parallel: bool, place: *mut ()) {
        if plan.chunks == 1 || (self.exact && !parallel) {
            // SAFETY: as the caller vouches.
            return unsafe { self.chunk(0..plan.len, plan.row, place) };
        }
        let chunks = plan.chunks as usize;
        // On the stack where there are few of them.
        let mut few = [const { MaybeUninit::<Unit>::uninit() }; 64];
        let mut many = Vec::new();
        let units = (chunks * self.accumulator).div_ceil(size_of::<Unit>());
        let partials = if units <= few.len() {
            few.as_mut_ptr()
        } else {
            many.reserve_exact(units);
            many.as_mut_ptr()
        };
        let partials = Places { first: partials.cast(), bytes: self.accumulator };
        let fold = |index: usize| {
            let range = plan.range(index as u32);
            // SAFETY: as the caller vouches; each index is one of the partials', and called with once.
            unsafe { self.chunk(range, plan.row, partials.at(index)) };
        };
        if parallel {
            in_parallel(chunks, &fold);
        } else {
            (0..chunks).for_each(fold);
        }
        // SAFETY: as the caller vouches; the partial results have been written.
        unsafe { (self.folds.partials)(self.op, partials.first.cast_const(), chunks, place) };
    }

    /// # Safety
    ///
    /// As of [`all`](Self::all), and the range lies within the items.
    unsafe fn chunk(&self, range: Range<u64>, row: u64, place: *mut ()) {
        let range = range.start as usize..range.end as usize;
        // SAFETY: as the caller vouches.
        unsafe { (self.folds.chunk)(self.op, self.items, range, row as usize, place) };
    }
}

/// Room for accumulators, of which none has a greater alignment.
#[repr(C, align(64))]
struct Unit([u8; 64]);

/// Places that several threads write, each of its own.
struct Places {
    first: *mut (),
    bytes: usize,
}

// SAFETY: whoever writes sees to it that no two threads have one in common.
unsafe impl Sync for Places {}

impl Places {
    /// Place `index`, which is in bounds.
    unsafe fn at(&self, index: usize) -> *mut () {
        // SAFETY: as the caller vouches.
        unsafe { self.first.byte_add(index * self.bytes) }
    }
}

/// Calls `work` with each index below `count`, on rayon's threads.
fn in_parallel(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(work);
}
