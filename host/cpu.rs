//! The CPU backend: the same plan as the kernel's, chunks over threads.

use crate::{Op, Plan};
use gpu_reduce_kernels::cpu::fold_chunk;
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
    let plan = Plan::new(len as u64, width::<O, S::Item>(P::BYTES), block);
    let row = plan.row as usize;
    if plan.chunks == 1 {
        return op.finish(fold_chunk(op, items, 0, row), len as u64);
    }
    let fold = |index: usize| {
        let range = plan.range(index as u32);
        fold_chunk(op, items.slice(range.start as usize..range.end as usize), range.start, row)
    };
    let mut partials = [op.identity(); PARTIALS as usize];
    let mut add = |index: usize, partial| {
        let accumulator = &mut partials[index % PARTIALS as usize];
        *accumulator = op.combine(*accumulator, partial);
    };
    let chunks = 0..plan.chunks as usize;
    if len * size_of::<S::Item>() < PARALLEL_BYTES {
        chunks.for_each(|index| add(index, fold(index)));
    } else {
        let all: Vec<_> = chunks.into_par_iter().map(fold).collect();
        all.into_iter().enumerate().for_each(|(index, partial)| add(index, partial));
    }
    let mut len_left = partials.len();
    while len_left > 1 {
        len_left /= 2;
        for index in 0..len_left {
            partials[index] = op.combine(partials[2 * index], partials[2 * index + 1]);
        }
    }
    op.finish(partials[0], len as u64)
}
