//! From chunks to the result: fold each chunk into its partial result, merge the partial results, finish.
//!
//! [`Partial`](crate::Partial), [`Reducer`](crate::Reducer), ranks and sharded data stand on these steps.

use crate::cpu::{self, Source};
use crate::cuda::Gpu;
use crate::data::Data;
use crate::place::Place::{Cpu, Gpu as OnGpu};
use crate::request::Types;
use crate::sharded::{GpuShard, ShardsCall, SlotsOfChunks};
use crate::shares::Shares;
use crate::{BLOCKS, Error, Item, Op, Plan, View};
use gpu_reduce_kernels::agent::Agent;
use gpu_reduce_kernels::agent::several::Folder;
use gpu_reduce_kernels::slot;
#[cfg(any(test, feature = "mpi"))]
use gpu_reduce_kernels::{cpu::fold_pairwise, plan::GROUP};
use std::ops::Range;

/// Folds consecutive chunks, whose items are `elements`, into their partial results. The whole begins with
/// `first`.
pub fn fold<O: Op<T>, T: Item>(
    op: &O,
    elements: View<T>,
    plan: &Plan,
    chunks: Range<u32>,
    first: T,
) -> Result<Vec<O::Accumulator>, Error> {
    O::agent().fold_by_parts(op, &Chunks { elements, plan, chunks, first })
}

/// Merges the partial results of all chunks, by an operator that has [begun](Op::begin).
pub fn merge<O: Op<S::Item>, S: Source>(op: &O, partials: &[O::Accumulator]) -> O::Accumulator {
    match *partials {
        [all] => all,
        _ => cpu::merge::<O, S>(op, partials),
    }
}

/// Returns the result of `len` items from the partial results of all chunks, by an operator that has
/// [begun](Op::begin).
pub fn finish<O: Op<S::Item>, S: Source>(op: &O, partials: &[O::Accumulator], len: u64) -> Option<O::Output> {
    op.finish(op.end(merge::<O, S>(op, partials), len), len)
}

/// Folds the partial results of one of the plan's [trees](Plan::trees), by an operator that has begun.
#[cfg(any(test, feature = "mpi"))]
pub fn fold_tree<O: Op<I>, I: Copy + 'static>(op: &O, partials: &[O::Accumulator]) -> O::Accumulator {
    match *partials {
        [one] => one,
        _ => fold_pairwise(op, partials),
    }
}

/// Joins the results of the plan's [trees](Plan::trees), in order and without gaps, to those of groups, or of
/// chunks if there are no groups.
#[cfg(any(test, feature = "mpi"))]
pub fn join_trees<O: Op<I>, I: Copy + 'static>(
    op: &O,
    plan: &Plan,
    trees: impl Iterator<Item = (Range<u32>, O::Accumulator)>,
) -> Vec<O::Accumulator> {
    let most = if plan.groups() > 0 { GROUP } else { 1 };
    let mut joined = Vec::<(Range<u32>, O::Accumulator)>::new();
    for (mut tree, mut result) in trees {
        // The left half of a tree whose right half this is. The last chunk ends all trees that it lies in.
        let is_whole = |tree: &Range<u32>, size| tree.len() as u32 == size || tree.end == plan.chunks;
        while let Some((left, of_left)) = joined.pop_if(|(left, _)| {
            let size = left.len() as u32;
            size < most && left.start.is_multiple_of(2 * size) && is_whole(&tree, size)
        }) {
            tree = left.start..tree.end;
            result = op.combine(of_left, result);
        }
        joined.push((tree, result));
    }
    joined.into_iter().map(|(_, result)| result).collect()
}

/// Combines the accumulators of parts that have reduced as arrays of their own, each with the index of its
/// first item in the whole.
pub fn join<O: Op<I>, I: Copy + 'static>(
    op: &O,
    parts: impl Iterator<Item = (u64, O::Accumulator)>,
) -> O::Accumulator {
    parts.fold(op.identity(), |all, (start, part)| op.combine(all, O::agent().moved(part, start)))
}

/// Returns the partial result in the words of a chunk's slot; `None` if the slot is not full.
pub fn of_slot<O: Op<I>, I: Copy + 'static>(_: &O, word: &dyn Fn(usize) -> u64) -> Option<O::Accumulator> {
    O::agent().of_slot(word)
}

/// Reads the partial results of consecutive chunks from their slots.
pub fn from_slots<O: Op<I>, I: Copy + 'static>(
    op: &O,
    slots: &[SlotsOfChunks],
    chunks: Range<u32>,
    of_slot: impl Fn(&O, &dyn Fn(usize) -> u64) -> Option<O::Accumulator>,
) -> Result<Vec<O::Accumulator>, Error> {
    let words = const { slot::words::<O::Accumulator>() };
    let mut partials = vec![op.identity(); chunks.len()];
    for SlotsOfChunks { chunks: of_slots, words: all } in slots {
        for (index, chunk) in of_slots.iter().cloned().flatten().enumerate() {
            let slot = &all[index * words..][..words];
            let partial = of_slot(op, &|index| slot[index]).ok_or_else(|| Error::Launch {
                kernel: O::NAME.to_owned(),
                device: "one of several devices".to_owned(),
                reason: "it has left no result".to_owned(),
            });
            partials[(chunk - chunks.start) as usize] = partial?;
        }
    }
    Ok(partials)
}

/// Returns the first of some elements.
pub fn first_of<T: Item>(elements: View<T>) -> Result<T, Error> {
    Ok(match elements.0 {
        Cpu(elements) => elements[0],
        OnGpu(_) => elements.slice(..1)?.to_vec()?[0],
    })
}

/// Consecutive chunks of a whole that begins with `first`, and their items.
struct Chunks<'a, T: Item> {
    elements: View<'a, T>,
    plan: &'a Plan,
    chunks: Range<u32>,
    first: T,
}

impl<T: Item> Folder<T> for Chunks<'_, T> {
    type Error = Error;

    fn has<O: Op<T>>(&self) -> Result<bool, Error> {
        match self.elements.place()? {
            Cpu(_) => Ok(true),
            OnGpu((gpu, _)) => Ok(self.block::<O>(gpu).is_some()),
        }
    }

    fn fold<O: Op<T>>(&self, op: &O) -> Result<Vec<O::Accumulator>, Error> {
        let Self { elements, plan, ref chunks, first } = *self;
        let (gpu, pointer) = match elements.place()? {
            Cpu(elements) => return Ok(cpu::partials(&op.begin(first), elements, plan, chunks.clone())),
            OnGpu(place) => place,
        };
        match self.block::<O>(gpu) {
            Some(block) => self.fold_on_gpu(op, gpu, pointer, block),
            None => self.fold_copies(&op.begin(first)),
        }
    }
}

impl<T: Item> Chunks<'_, T> {
    /// Returns the BLOCK by which a kernel folds rows of the plan, if there is such a kernel.
    fn block<O: Op<T>>(&self, gpu: &Gpu) -> Option<u32> {
        let types = Types::of::<O, *const T>();
        let block = (self.plan.row / types.width as u64) as u32;
        (BLOCKS.contains(&block) && gpu.has_kernel(types, block)).then_some(block)
    }

    fn fold_on_gpu<O: Op<T>>(
        &self,
        op: &O,
        gpu: &'static Gpu,
        pointer: *const T,
        block: u32,
    ) -> Result<Vec<O::Accumulator>, Error> {
        let Self { elements, plan, ref chunks, ref first } = *self;
        let (len, array) = (elements.len() as u64, (pointer.addr() as u64, size_of::<T>()));
        let call = ShardsCall {
            of: Types::of::<O, *const T>(),
            shards: &[GpuShard { gpu, len, arrays: vec![array], head: None }],
            shares: &Shares::new(plan.elements(chunks.clone()).start, [len]),
            first: &[((&raw const *first).addr() as u64, size_of::<T>())],
            first_gpu: None,
            plan: *plan,
            in_parts: false,
            block,
            op: (&raw const *op).cast(),
        };
        let mut partials = Ok(Vec::new());
        // SAFETY: the elements are borrowed, and the types are the call's.
        unsafe {
            gpu.reduce_shards(&call, &mut |slots, _| {
                partials = from_slots::<O, T>(op, slots, chunks.clone(), of_slot);
            })?;
        }
        partials
    }

    /// Folds on the CPU, from a copy of one chunk at a time, by an operator that has begun.
    fn fold_copies<O: Op<T>>(&self, op: &O) -> Result<Vec<O::Accumulator>, Error> {
        let Self { elements, plan, ref chunks, .. } = *self;
        let start = plan.elements(chunks.clone()).start;
        let mut partials = Vec::with_capacity(chunks.len());
        for chunk in chunks.clone() {
            let items = plan.range(chunk);
            let items = elements.slice((items.start - start) as usize..(items.end - start) as usize)?;
            partials.extend(cpu::partials(op, &items.to_vec()?[..], plan, chunk..chunk + 1));
        }
        Ok(partials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kernels, Partial, Reduce, Sum, width};

    const BLOCK: u32 = 32;

    /// Parts of any chunks send one result for each tree, and these join to the bits of all chunks.
    #[test]
    fn trees_join_to_the_whole() {
        let mut seed = 1u64;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u32 % below
        };
        for (len, chunks) in [(1000 * 128, 125), ((1 << 27) + 128, 8193), (2147 * 8192 * 8 + 1, 8589)] {
            let plan = Plan::new(len, 4, 32);
            assert_eq!(plan.chunks, chunks);
            let partials: Vec<f32> =
                (0..chunks).map(|chunk| (chunk as f32 * 0.37).sin() * 1e3 + chunk as f32).collect();
            let expected = merge::<Sum, &[f32]>(&Sum, &partials);
            for parts in [1, 2, 3, 64, 1000] {
                let mut bounds: Vec<u32> = (1..parts).map(|_| random(chunks + 1)).collect();
                bounds.extend([0, chunks]);
                bounds.sort_unstable();
                let trees = bounds.windows(2).flat_map(|part| plan.trees(part[0]..part[1]));
                let results = trees.map(|tree| {
                    let of_tree = &partials[tree.start as usize..tree.end as usize];
                    (tree, fold_tree::<Sum, f32>(&Sum, of_tree))
                });
                let joined = join_trees::<Sum, f32>(&Sum, &plan, results);
                assert_eq!(joined.len() as u32, if plan.groups() > 0 { plan.groups() } else { chunks });
                assert_eq!(
                    merge::<Sum, &[f32]>(&Sum, &joined).to_bits(),
                    expected.to_bits(),
                    "{parts} parts"
                );
            }
        }
    }

    /// Its accumulator is a hash of the whole tree that made it. It is so large that a thread folds one item
    /// at a time.
    #[derive(Clone, Copy, Default)]
    struct Tree;

    impl Tree {
        const NONE: [u64; 8] = [0; 8];
    }

    impl Op<u8> for Tree {
        type Accumulator = [u64; 8];
        type Output = u64;
        const NAME: &'static str = "tree";
        const EXACT: bool = false;
        const KERNELS: Kernels = Kernels::NONE;

        fn identity(&self) -> [u64; 8] {
            Self::NONE
        }

        fn lift(&self, item: u8, index: u64) -> [u64; 8] {
            let mut leaf = Self::NONE;
            leaf[0] = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(item);
            leaf
        }

        fn combine(&self, a: [u64; 8], b: [u64; 8]) -> [u64; 8] {
            match (a[0], b[0]) {
                (0, _) => b,
                (_, 0) => a,
                (left, right) => {
                    let mut tree = Self::NONE;
                    tree[0] = left.wrapping_mul(31).rotate_left(7) ^ right | 1;
                    tree
                }
            }
        }

        fn finish(&self, all: [u64; 8], _: u64) -> Option<u64> {
            Some(all[0])
        }
    }

    /// The tree of the plan's description.
    fn described(items: &[u8]) -> u64 {
        let plan = Plan::new(items.len() as u64, 1, BLOCK);
        let leaf = |index: usize| Tree.lift(items[index], index as u64);
        fn pairwise(values: &mut [[u64; 8]]) -> [u64; 8] {
            let mut stride = 1;
            while stride < values.len() {
                for left in (0..values.len() - stride).step_by(2 * stride) {
                    values[left] = Tree.combine(values[left], values[left + stride]);
                }
                stride *= 2;
            }
            values[0]
        }
        let chunk = |chunk: u32| {
            let range = plan.range(chunk);
            let mut row = [Tree::NONE; BLOCK as usize];
            for index in range.start as usize..range.end as usize {
                let place = (index - range.start as usize) % BLOCK as usize;
                row[place] = Tree.combine(row[place], leaf(index));
            }
            pairwise(&mut row)
        };
        let chunks: Vec<_> = (0..plan.chunks).map(chunk).collect();
        let mut row = [Tree::NONE; 32];
        for (index, group) in chunks.chunks(1024).enumerate() {
            row[index % 32] = Tree.combine(row[index % 32], pairwise(&mut group.to_vec()));
        }
        pairwise(&mut row)[0]
    }

    #[test]
    fn cpus_follow_the_plan() {
        const LEN: usize = (1 << 25) + (1 << 23) + 12_345;
        assert_eq!(width::<Tree, u8>(1), 1);
        let items: Vec<u8> = (0..LEN).map(|index| (index * 7 + index / 1000) as u8).collect();
        let expected = described(&items);
        assert_eq!(items.by(Tree).block::<BLOCK>().run(), Ok(expected));
        // The same in parts, which come in any order.
        let plan = Partial::<Tree, u8, BLOCK>::plan(LEN as u64);
        assert_eq!(plan.groups(), 3);
        for parts in [2, 3, 64, 1000] {
            let mut cuts: Vec<u32> = (1..parts).map(|part| part * 7919 % plan.chunks).collect();
            cuts.extend([0, plan.chunks]);
            cuts.sort_unstable();
            let mut all = Partial::<_, _, BLOCK>::new(Tree, LEN as u64, items[0]);
            for chunks in cuts.windows(2).rev() {
                let range = plan.elements(chunks[0]..chunks[1]);
                all.add(range.start, &items[range.start as usize..range.end as usize]).unwrap();
            }
            assert_eq!(all.finish(), Ok(expected), "{parts} parts");
        }
    }
}
