//! Reductions over the ranks of an MPI communicator.

mod messages;

use crate::buffer::zeroed;
use crate::partial::{finish, name, parameters};
use crate::place::Place::{Cpu, Gpu};
use crate::shares::{Assignment, Shares};
use crate::{
    Block, Error, GroupKey, Item, Op, Parameterless, Partial, PartialGroups, Plan, Reduce, Threads, View,
    parts,
};
use bytemuck::{Zeroable, bytes_of, bytes_of_mut, cast_slice, checked, pod_read_unaligned};
use gpu_reduce_kernels::agent::in_parts;
use messages::{Ranks, Terms};
use mpi::traits::Communicator;
use std::any::type_name;
use std::borrow::Cow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::slice;

/// Reductions of an array that lies on the ranks of an MPI communicator.
///
/// The elements of the ranks, in the order of the ranks, reduce as one array. With the feature `mpi`, for
/// intra-communicators of the crate `mpi`.
///
/// Each rank has any number of elements, in host memory or on a device of its own. All ranks make the call,
/// as a collective operation, and all get the result. It has the bits of [`Reduce::reduce`] with all elements
/// in one slice, whatever the number of ranks and however the elements are distributed.
///
/// ```no_run
/// use gpu_reduce::{ReduceRanks, Sum};
/// use mpi::traits::*;
///
/// let universe = mpi::initialize().expect("MPI has not been initialised before");
/// let world = universe.world();
/// let local = vec![world.rank() as f32; 1000];
/// let sum = world.reduce::<Sum, 256>(&local)?;
/// println!("rank {} has {sum}", world.rank());
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # What is sent
///
/// The ranks exchange what they reduce, and the number of their elements. If a chunk of the whole array's
/// [`Plan`] lies on several ranks, they send it to the one with most of it. Each rank folds its chunks, and
/// sends the partial results to all ranks, once: 2,048 at most in all, or, of an array with more chunks,
/// those of whole groups of chunks, and of halves, quarters … of the groups that lie on several ranks. Where
/// the order does not matter (integers, extremes, counts, exact sums), each rank reduces its own elements and
/// sends one accumulator, with the first message if it has 64 bytes at most.
///
/// # Errors
///
/// If a rank fails, of memory or by its device, all ranks get [`Error::Rank`]. If a rank reduces something
/// else than rank 0, all get [`Error::Disagree`]. (A rank that makes another call, or none, keeps the others
/// waiting, as with any collective operation of MPI. MPI has to report a rank that ends without the call: by
/// default, `mpirun` ends the others.)
///
/// # Panics
///
/// If an operator panics on a rank, that rank does; the others get [`Error::Rank`].
pub trait ReduceRanks<T: Item>: Communicator {
    /// Reduces the elements of all ranks; `local` are those of this rank.
    ///
    /// # Errors
    ///
    /// The same on all ranks: [`Error::Disagree`], [`Error::Rank`], and [`Error::EmptyInput`] if there are no
    /// elements and the operator has no value for none.
    fn reduce<'a, O: Op<T> + Parameterless, const BLOCK: u32>(
        &self,
        local: &'a (impl Reduce<Item = T, Data<'a> = View<'a, T>> + ?Sized),
    ) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        self.reduce_by::<O, BLOCK>(O::default(), local)
    }

    /// As [`reduce`](Self::reduce), by an operator with parameters, the same ones on all ranks.
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce).
    fn reduce_by<'a, O: Op<T>, const BLOCK: u32>(
        &self,
        op: O,
        local: &'a (impl Reduce<Item = T, Data<'a> = View<'a, T>> + ?Sized),
    ) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        Local::<_, O, T> { ranks: Ranks(self), op, elements: local.data() }.reduce::<BLOCK>()
    }
}

/// Groups by key whose items lie on the ranks of an MPI communicator.
///
/// With the feature `mpi`, for intra-communicators of the crate `mpi`.
///
/// Each rank makes a part of its items, in pieces of any lengths, in host memory or on devices of its own.
/// All ranks make the call, as a collective operation, and all get the merged part. Its results have the bits
/// of [`group_by`](Reduce::group_by) with all items at once.
///
/// ```no_run
/// use gpu_reduce::{MergeRanks, PartialGroups, Sum};
/// use mpi::traits::*;
///
/// let universe = mpi::initialize().expect("MPI has not been initialised before");
/// let world = universe.world();
/// let mut part = PartialGroups::new(Sum);
/// part.add(&[7i64, world.rank().into()], &[0.1f32, 1.0])?;
/// let (keys, sums) = world.merge_groups(&part)?.finish()?;
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # What is sent
///
/// The ranks exchange what their parts are of. Then half of the ranks send their parts, as
/// [bytes](PartialGroups::to_bytes), to the other half, which merges them, and so on, until rank 0 has all
/// and sends them to all ranks.
pub trait MergeRanks: Communicator {
    /// Merges the parts of all ranks.
    ///
    /// # Errors
    ///
    /// The same on all ranks: [`Error::Disagree`] if a rank's part is of another operator, or of other types,
    /// than that of rank 0; [`Error::Rank`] if a rank fails.
    fn merge_groups<O: Op<T>, K: GroupKey, T: Copy + 'static>(
        &self,
        own: &PartialGroups<O, K, T>,
    ) -> Result<PartialGroups<O, K, T>, Error> {
        // Keeps the caller's messages apart from these.
        let (op, comm) = (own.op(), self.duplicate());
        let ranks = Ranks(&comm);
        let terms = [
            ("operator", format!("{} ({})", name(&op), type_name::<O>())),
            ("operator's parameters", parameters(&op)),
            ("elements' type", type_name::<T>().into()),
            ("keys' type", type_name::<K>().into()),
            ("element's size", size_of::<T>().to_string()),
            ("accumulator's size", size_of::<O::Accumulator>().to_string()),
        ];
        ranks.agree(&terms, 0, Ok::<_, Error>(&[]))?;
        let (me, count) = (ranks.me(), self.size() as usize);
        let mut merged = Ok(Cow::Borrowed(own));
        let mut step = 1;
        while step < count && me.is_multiple_of(step) {
            let other = me ^ step;
            if me < other && other < count {
                let bytes = ranks.receive(other);
                merged = merged.and_then(|mut all: Cow<PartialGroups<O, K, T>>| {
                    all.to_mut().merge(PartialGroups::from_bytes(op, &bytes)?)?;
                    Ok(all)
                });
            } else if me > other {
                // Of a rank that has failed, nothing is merged; it says so below.
                ranks.send(other, &merged.as_ref().map_or(Vec::new(), |all| all.to_bytes()));
                break;
            }
            step *= 2;
        }
        let all = ranks.all(merged)?;
        let bytes = ranks.told(0, if me == 0 { all.to_bytes() } else { Vec::new() });
        ranks.all(PartialGroups::from_bytes(op, &bytes))
    }
}

impl<C: Communicator + ?Sized> MergeRanks for C {}

impl<C: Communicator + ?Sized, T: Item> ReduceRanks<T> for C {}

/// The elements of this rank, and how they are reduced.
struct Local<'a, C: ?Sized, O, T: Item> {
    ranks: Ranks<'a, C>,
    op: O,
    elements: View<'a, T>,
}

/// The plan of the whole array, the elements of each rank, and which rank folds which chunks.
struct Deal {
    plan: Plan,
    shares: Shares,
    assigned: Vec<Assignment>,
}

impl Deal {
    /// Returns the chunks that a rank folds, which are consecutive.
    fn chunks_of(&self, rank: usize) -> Range<u32> {
        let mut of_rank = self.assigned.iter().filter(|assigned| assigned.share == rank);
        let first = of_rank.next().map_or(0..0, |assigned| assigned.chunks.clone());
        first.start..of_rank.next_back().map_or(first.end, |assigned| assigned.chunks.end)
    }
}

/// A chunk that this rank folds and that others have elements of, gathered from all of them.
type SplitChunk<T> = (u32, Vec<T>);

impl<C: Communicator + ?Sized, O: Op<T>, T: Item> Local<'_, C, O, T> {
    fn reduce<const BLOCK: u32>(&self) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        const {
            assert!(size_of::<T>() > 0, "elements have bytes");
            assert!(size_of::<O::Accumulator>() <= 1 << 19, "an accumulator has up to 512 KiB");
        }
        if const { in_parts::<O, T>() } {
            return self.reduce_in_parts::<BLOCK>();
        }
        let Some((first, lens)) = self.agree(BLOCK)? else {
            return finish(&self.op, T::zeroed(), 0, &[]);
        };
        let shares = Shares::new(0, lens.iter().copied());
        let plan = Partial::<O, T, BLOCK>::plan(shares.len());
        let deal = Deal { assigned: shares.assign(&plan), plan, shares };
        let split = self.exchange(&deal)?;
        let trees_of = |rank| deal.plan.trees(deal.chunks_of(rank));
        let counts: Vec<_> = (0..lens.len()).map(|rank| trees_of(rank).count()).collect();
        let op = self.op.begin(first);
        let own = || {
            let partials = self.partials(&deal, &split, first)?;
            let start = deal.chunks_of(self.ranks.me()).start;
            let index = |chunk: u32| (chunk - start) as usize;
            let of_tree = |tree: Range<u32>| &partials[index(tree.start)..index(tree.end)];
            Ok(trees_of(self.ranks.me()).map(|tree| parts::fold_tree(&op, of_tree(tree))).collect())
        };
        let all = self.gather(&counts, own)?;
        let partials = parts::join_trees(&op, &deal.plan, (0..lens.len()).flat_map(trees_of).zip(all));
        finish(&self.op, first, deal.plan.len, &partials)
    }

    /// Reduces each rank's elements as an array of their own, and joins the ranks' accumulators. The first
    /// message has the accumulator; a second one follows only for large accumulators.
    fn reduce_in_parts<const BLOCK: u32>(&self) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        let own = || {
            let plan = Partial::<O, T, BLOCK>::plan(self.elements.len() as u64);
            if plan.len == 0 {
                return Ok::<_, Error>(self.op.identity());
            }
            // The operator does not look at the first element.
            let partials = parts::fold(&self.op, self.elements, &plan, 0..plan.chunks, T::zeroed())?;
            Ok(parts::merge::<O, &[T]>(&self.op, &partials))
        };
        let own = catch_unwind(AssertUnwindSafe(own));
        let said = match &own {
            Ok(Ok(own)) => Ok(bytes_of(own)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it panicked".into()),
        };
        let agreed = self.ranks.agree(&self.terms(BLOCK), self.elements.len() as u64, said);
        let own = own.unwrap_or_else(|panic| resume_unwind(panic));
        let (agreed, own) = (agreed?, own?);
        let lens = agreed.lens();
        let of_rank = |rank| agreed.bytes_of(rank, size_of::<O::Accumulator>());
        let all = match (0..lens.len()).map(of_rank).collect::<Option<Vec<_>>>() {
            Some(all) => all.iter().map(|bytes| pod_read_unaligned(bytes)).collect(),
            None => self.gather(&vec![1; lens.len()], || Ok(vec![own]))?,
        };
        let shares = Shares::new(0, lens.iter().copied());
        let starts = (0..lens.len()).map(|rank| shares.range(rank).start);
        let of_ranks = lens.iter().zip(starts.zip(all)).filter(|&(&len, _)| len > 0);
        let all = parts::join(&self.op, of_ranks.map(|(_, of_rank)| of_rank));
        self.op.finish(all, shares.len()).ok_or_else(|| Error::empty(&self.op))
    }

    /// Returns the accumulators of all ranks, of which each has `counts`, in the order of the ranks. Fails on
    /// all ranks if one fails; if `own` panics, the panic continues when the other ranks know.
    fn gather(
        &self,
        counts: &[usize],
        own: impl FnOnce() -> Result<Vec<O::Accumulator>, Error>,
    ) -> Result<Vec<O::Accumulator>, Error> {
        let size = size_of::<O::Accumulator>();
        let bytes: Vec<_> = counts.iter().map(|count| count * size).collect();
        let own = catch_unwind(AssertUnwindSafe(own));
        let (sent, failed) = match &own {
            Ok(Ok(own)) => (&own[..], None),
            Ok(Err(error)) => (&[][..], Some(error.to_string())),
            Err(_) => (&[][..], Some("it panicked".into())),
        };
        let all = self.ranks.gather(&bytes, cast_slice(sent), failed);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        let all = all?;
        let accumulator = |index: usize| {
            let mut accumulator = O::Accumulator::zeroed();
            bytes_of_mut(&mut accumulator).copy_from_slice(&all[index * size..][..size]);
            accumulator
        };
        Ok((0..counts.iter().sum()).map(accumulator).collect())
    }

    /// Returns the first element of the whole array, and the number of each rank's elements; `None` if there
    /// are none.
    fn agree(&self, block: u32) -> Result<Option<(T, Vec<u64>)>, Error> {
        let first = if self.elements.is_empty() { Ok(T::zeroed()) } else { parts::first_of(self.elements) };
        let said = first.as_ref().map(|first| bytes_of(first));
        let agreed = self.ranks.agree(&self.terms(block), self.elements.len() as u64, said)?;
        let lens = agreed.lens();
        let Some(rank) = lens.iter().position(|&len| len > 0) else { return Ok(None) };
        let bytes = self.ranks.bytes_of(&agreed, rank, bytes_of(&first?));
        let first = checked::try_pod_read_unaligned(&bytes)
            .map_err(|why| Error::Rank { rank, reason: format!("its first element: {why}") })?;
        Ok(Some((first, lens)))
    }

    /// Returns what all ranks have to agree on.
    fn terms(&self, block: u32) -> Terms {
        [
            ("operator", format!("{} ({})", name(&self.op), type_name::<O>())),
            ("operator's parameters", parameters(&self.op)),
            ("elements' type", type_name::<T>().into()),
            ("element's size", size_of::<T>().to_string()),
            ("accumulator's size", size_of::<O::Accumulator>().to_string()),
            ("BLOCK", block.to_string()),
        ]
    }

    /// Sends this rank's elements of split chunks to the ranks that fold them, and returns the split chunks
    /// of this rank.
    fn exchange(&self, deal: &Deal) -> Result<Vec<SplitChunk<T>>, Error> {
        if !deal.assigned.iter().any(|assigned| assigned.is_split) {
            return Ok(Vec::new());
        }
        let prepared = self.prepare(deal);
        // If a rank fails here, no other rank waits for its elements.
        let (mut own, sent) = self.ranks.all(prepared)?;
        let sent: Vec<_> = sent.iter().map(|(to, elements)| (*to, cast_slice(elements))).collect();
        let mut received = Vec::new();
        for (chunk, elements) in &mut own {
            // SAFETY: the elements' bytes; bytes of elements come, because all ranks have agreed on the type.
            let mut rest = unsafe {
                slice::from_raw_parts_mut(elements.as_mut_ptr().cast::<u8>(), size_of_val(&elements[..]))
            };
            for (from, part) in deal.shares.parts(deal.plan.range(*chunk)) {
                let (place, others) = rest.split_at_mut((part.end - part.start) as usize * size_of::<T>());
                if from != self.ranks.me() {
                    received.push((from, place));
                }
                rest = others;
            }
        }
        self.ranks.exchange(&sent, received);
        Ok(own)
    }

    /// Returns the split chunks that this rank folds, with zeros in place of others' elements, and this
    /// rank's elements of other split chunks, each with the rank that folds it.
    #[expect(clippy::type_complexity, reason = "two lists, once")]
    fn prepare(&self, deal: &Deal) -> Result<(Vec<SplitChunk<T>>, Vec<(usize, Cow<'_, [T]>)>), Error> {
        let me = self.ranks.me();
        let (mut own, mut sent) = (Vec::new(), Vec::new());
        for Assignment { share, chunks, .. } in deal.assigned.iter().filter(|assigned| assigned.is_split) {
            let whole = deal.plan.elements(chunks.clone());
            let mut parts = deal.shares.parts(whole.clone());
            let Some((_, part)) = parts.find(|&(rank, _)| rank == me) else { continue };
            let here = self.on_host(deal, part.clone())?;
            if *share == me {
                let mut elements = zeroed::<T>((whole.end - whole.start) as usize)?;
                elements[(part.start - whole.start) as usize..][..here.len()].copy_from_slice(&here);
                own.push((chunks.start, elements));
            } else {
                sent.push((*share, here));
            }
        }
        Ok((own, sent))
    }

    /// Returns this rank's elements of a range of the whole array, where they lie.
    fn here(&self, deal: &Deal, range: Range<u64>) -> Result<View<'_, T>, Error> {
        let start = deal.shares.range(self.ranks.me()).start;
        self.elements.slice((range.start - start) as usize..(range.end - start) as usize)
    }

    /// As [`here`](Self::here), in host memory.
    fn on_host(&self, deal: &Deal, range: Range<u64>) -> Result<Cow<'_, [T]>, Error> {
        let here = self.here(deal, range)?;
        Ok(match here.0 {
            Cpu(elements) => Cow::Borrowed(elements),
            Gpu(_) => Cow::Owned(here.to_vec()?),
        })
    }

    /// Folds this rank's chunks.
    fn partials(&self, deal: &Deal, split: &[SplitChunk<T>], first: T) -> Result<Vec<O::Accumulator>, Error> {
        let mut partials = Vec::new();
        for Assignment { chunks, .. } in
            deal.assigned.iter().filter(|assigned| assigned.share == self.ranks.me())
        {
            let elements = match split.iter().find(|(chunk, _)| *chunk == chunks.start) {
                Some((_, elements)) => View::host(elements),
                None => self.here(deal, deal.plan.elements(chunks.clone()))?,
            };
            partials.extend(parts::fold(&self.op, elements, &deal.plan, chunks.clone(), first)?);
        }
        Ok(partials)
    }
}
