//! The CPU backend: the same plan as the kernel's, chunks over threads.

use crate::{Op, Plan};
use gpu_reduce_kernels::cpu::fold_neighbours;
pub use gpu_reduce_kernels::cpu::{Source, simd};
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::width;
use gpu_reduce_kernels::plan::PARTIALS;
use rayon::prelude::*;

/// Below this many bytes one thread reduces sooner than others wake up.
const PARALLEL_BYTES: usize = 1 << 20;

/// Reduces items, of which there are some, and which on a GPU would be read through `P`.
pub fn reduce<O: Op<S::Item>, S: Source, P: Input<Item = S::Item>>(
    op: &O,
    items: S,
    block: u32,
) -> Option<O::Output> {
    let len = items.len();
    let plan = Plan::new(len as u64, const { width::<O, S::Item>(P::BYTES) }, block);
    let row = plan.row as usize;
    let parallel = len.saturating_mul(size_of::<S::Item>()) >= PARALLEL_BYTES;
    if plan.chunks == 1 || (O::EXACT && !parallel) {
        return op.finish(items.fold(op, 0, row), len as u64);
    }
    let fold = |index: usize| {
        let range = plan.range(index as u32);
        items.slice(range.start as usize..range.end as usize).fold(op, range.start, row)
    };
    let mut lanes = [op.identity(); PARTIALS as usize];
    let mut add = |index: usize, partial| {
        let lane = &mut lanes[index % PARTIALS as usize];
        *lane = op.combine(*lane, partial);
    };
    let chunks = plan.chunks as usize;
    if parallel {
        let mut partials = vec![op.identity(); chunks];
        let places = Places(partials.as_mut_ptr());
        // SAFETY: each index is one of the partials', and called with once.
        in_parallel(chunks, &|index| unsafe { places.at(index).write(fold(index)) });
        partials.into_iter().enumerate().for_each(|(index, partial)| add(index, partial));
    } else {
        (0..chunks).for_each(|index| add(index, fold(index)));
    }
    op.finish(fold_neighbours(op, lanes), len as u64)
}

/// Places that several threads write, each of its own.
struct Places<A>(*mut A);

// SAFETY: whoever writes sees to it that no two threads have one in common.
unsafe impl<A: Send> Sync for Places<A> {}

impl<A> Places<A> {
    /// Place `index`, which is in bounds.
    unsafe fn at(&self, index: usize) -> *mut A {
        // SAFETY: as the caller vouches.
        unsafe { self.0.add(index) }
    }
}

/// Calls `work` with each index below `count`, on rayon's threads. Not generic, so that it is compiled once.
fn in_parallel(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(work);
}
