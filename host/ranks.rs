//! Reductions over the ranks of an MPI communicator.

mod messages;

use crate::buffer::zeroed;
use crate::partial::{finished, first_of, name, parameters, partials_of};
use crate::place::Place::{Cpu, Gpu};
use crate::{Error, Item, Op, Partial, Plan, Reduce, View};
use bytemuck::{Zeroable, bytes_of, bytes_of_mut, cast_slice, checked};
use messages::{Ranks, Terms};
use mpi::traits::Communicator;
use std::any::type_name;
use std::borrow::Cow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::slice;

/// Communicators of MPI, over whose ranks an array is spread: the ranks' elements, one rank's after another's, reduce as one array. With the feature
/// `mpi`, for intra-communicators of the crate `mpi`.
///
/// Each rank has any number of elements, in host memory or on a device of its own. All ranks call it, as a collective operation, and all get the result,
/// with the bits of [`Reduce::reduce`] with all elements in one slice: however many ranks there are, and however the elements are dealt out.
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
/// The ranks exchange what they reduce, and how many elements they have; a chunk of the whole's [`Plan`] that lies on several ranks goes to that
/// which has most of it; each rank folds its chunks; and the partial results, 2,048 at most, go to all, once.
///
/// # Errors
///
/// A rank that fails, of memory or by its device, is an error on all ranks, [`Error::Rank`]; so is one that reduces something else than rank 0,
/// [`Error::Disagree`]. (A rank that makes another call, or none, keeps the others waiting, as with any collective operation of MPI.) A rank that ends without
/// having called is for MPI to tell: by default, `mpirun` ends the others.
///
/// # Panics
///
/// Where an operator does; the other ranks then have [`Error::Rank`].
pub trait ReduceRanks<T: Item>: Communicator {
    /// Reduces the elements of all ranks, of which these are this one's.
    ///
    /// # Errors
    ///
    /// The same on all ranks: [`Error::Disagree`], [`Error::Rank`], and [`Error::EmptyInput`] where the operator has no value for no
    /// elements.
    fn reduce<'a, O: Op<T> + Default, const BLOCK: u32>(
        &self,
        local: &'a (impl Reduce<Item = T, Data<'a> = View<'a, T>> + ?Sized),
    ) -> Result<O::Output, Error> {
        self.by(O::default()).block::<BLOCK>().run()
    }

    /// As [`reduce`](Self::reduce), by an operator that has parameters, which are the same on all ranks.
    ///
    /// # Errors
    ///
    /// As there.
    fn reduce_by<'a, O: Op<T>, const BLOCK: u32>(
        &self,
        op: O,
        local: &'a (impl Reduce<Item = T, Data<'a> = View<'a, T>> + ?Sized),
    ) -> Result<O::Output, Error> {
        Local::<_, O, T> { ranks: Ranks(self), op, elements: local.data() }.reduce::<BLOCK>()
    }
}

impl<C: Communicator + ?Sized, T: Item> ReduceRanks<T> for C {}

/// A rank's elements, and what is done with them.
struct Local<'a, C: ?Sized, O, T: Item> {
    ranks: Ranks<'a, C>,
    op: O,
    elements: View<'a, T>,
}

impl<C: Communicator + ?Sized, O: Op<T>, T: Item> Local<'_, C, O, T> {
    fn reduce<const BLOCK: u32>(&self) -> Result<O::Output, Error> {
        const {
            assert!(size_of::<T>() > 0, "elements have bytes");
            assert!(size_of::<O::Accumulator>() <= 1 << 19, "an accumulator has up to 512 KiB");
        }
        let Some((first, lens)) = self.agree(BLOCK)? else {
            return finished(&self.op, T::zeroed(), 0, &[]);
        };
        let len = lens.iter().sum();
        let shares = Shares::new(Partial::<O, T, BLOCK>::plan(len), &lens);
        let border = self.exchange(&shares)?;
        let partials = catch_unwind(AssertUnwindSafe(|| self.partials(&shares, &border, first)));
        let (own, failed) = match &partials {
            Ok(Ok(partials)) => (&partials[..], None),
            Ok(Err(error)) => (&[][..], Some(error.to_string())),
            Err(_) => (&[][..], Some("it panicked".into())),
        };
        let size = size_of::<O::Accumulator>();
        let counts = shares.chunks.iter().map(|chunks| chunks.len() * size);
        let all = self.ranks.gather(&counts.collect::<Vec<_>>(), cast_slice(own), failed);
        if let Err(panic) = partials {
            // Now that the others know.
            resume_unwind(panic);
        }
        let all = all?;
        let partial = |chunk: usize| {
            let mut partial = O::Accumulator::zeroed();
            bytes_of_mut(&mut partial).copy_from_slice(&all[chunk * size..][..size]);
            partial
        };
        finished(&self.op, first, len, &(0..shares.plan.chunks as usize).map(partial).collect::<Vec<_>>())
    }

    /// The whole's first element, and how many each rank has; nothing if none has any.
    fn agree(&self, block: u32) -> Result<Option<(T, Vec<u64>)>, Error> {
        let terms: Terms = [
            ("operator", format!("{} ({})", name(&self.op), type_name::<O>())),
            ("operator's parameters", parameters(&self.op)),
            ("elements' type", type_name::<T>().into()),
            ("element's size", size_of::<T>().to_string()),
            ("accumulator's size", size_of::<O::Accumulator>().to_string()),
            ("BLOCK", block.to_string()),
        ];
        let first = if self.elements.is_empty() { Ok(T::zeroed()) } else { first_of(self.elements) };
        let own = first.as_ref().map(|first| bytes_of(first));
        let Some((rank, bytes, lens)) = self.ranks.agree(&terms, self.elements.len() as u64, own)? else {
            return Ok(None);
        };
        let first = checked::try_pod_read_unaligned(&bytes)
            .map_err(|why| Error::Rank { rank, reason: format!("its first element: {why}") })?;
        Ok(Some((first, lens)))
    }

    /// The chunks that this rank folds and that lie on others, too: their elements.
    fn exchange(&self, shares: &Shares) -> Result<Vec<(u32, Vec<T>)>, Error> {
        if shares.moves.is_empty() {
            return Ok(Vec::new());
        }
        let prepared = self.border(shares).and_then(|border| Ok((border, self.others(shares)?)));
        // Before any waits for another's elements.
        let (mut border, sent) = self.ranks.all(prepared)?;
        let sent: Vec<_> = sent.iter().map(|(to, elements)| (*to, cast_slice(elements))).collect();
        let mut received = Vec::new();
        for (chunk, elements) in &mut border {
            let mut at = shares.plan.range(*chunk).start;
            // SAFETY: the elements' bytes; what comes are bytes of elements, because all ranks have agreed on the type.
            let mut rest = unsafe {
                slice::from_raw_parts_mut(elements.as_mut_ptr().cast::<u8>(), size_of_val(&elements[..]))
            };
            for Move { from, range, .. } in shares.moves.iter().filter(|moved| moved.chunk == *chunk) {
                let [before, count] =
                    [range.start - at, range.end - range.start].map(|count| count as usize * size_of::<T>());
                let (place, others) = rest.split_at_mut(before).1.split_at_mut(count);
                received.push((*from, place));
                (rest, at) = (others, range.end);
            }
        }
        self.ranks.exchange(&sent, received);
        Ok(border)
    }

    /// The chunks that this rank folds and that lie on others, too: what it has of them itself.
    fn border(&self, shares: &Shares) -> Result<Vec<(u32, Vec<T>)>, Error> {
        let me = self.ranks.me();
        let mut border: Vec<(u32, Vec<T>)> = Vec::new();
        for Move { chunk, .. } in shares.moves.iter().filter(|moved| moved.to == me) {
            if border.last().is_none_or(|(last, _)| last != chunk) {
                let whole = shares.plan.range(*chunk);
                let mut elements = zeroed::<T>((whole.end - whole.start) as usize)?;
                let own = shares.on(me, &whole);
                let place = (own.start - whole.start) as usize..(own.end - whole.start) as usize;
                elements[place].copy_from_slice(&self.on_host(shares, &own)?);
                border.push((*chunk, elements));
            }
        }
        Ok(border)
    }

    /// What this rank has of chunks that others fold, and who these are.
    fn others(&self, shares: &Shares) -> Result<Vec<(usize, Cow<'_, [T]>)>, Error> {
        let moves = shares.moves.iter().filter(|moved| moved.from == self.ranks.me());
        moves.map(|moved| Ok((moved.to, self.on_host(shares, &moved.range)?))).collect()
    }

    /// This rank's elements of a range of the whole, where they lie.
    fn here(&self, shares: &Shares, range: &Range<u64>) -> Result<View<'_, T>, Error> {
        let start = shares.starts[self.ranks.me()];
        self.elements.slice((range.start - start) as usize..(range.end - start) as usize)
    }

    /// The same on the host.
    fn on_host(&self, shares: &Shares, range: &Range<u64>) -> Result<Cow<'_, [T]>, Error> {
        let here = self.here(shares, range)?;
        Ok(match here.0 {
            Cpu(elements) => Cow::Borrowed(elements),
            Gpu(_) => Cow::Owned(here.to_vec()?),
        })
    }

    /// The partial results of this rank's chunks.
    fn partials(
        &self,
        shares: &Shares,
        border: &[(u32, Vec<T>)],
        first: T,
    ) -> Result<Vec<O::Accumulator>, Error> {
        let Shares { plan, chunks, .. } = shares;
        let Range { start: mut next, end } = chunks[self.ranks.me()].clone();
        let mut partials = Vec::with_capacity((end - next) as usize);
        let of_border = border.iter().map(|(chunk, elements)| (*chunk, View::host(elements)));
        for (chunk, elements) in of_border.chain([(end, View::host(&[]))]) {
            if next < chunk {
                let here = self.here(shares, &plan.elements(next..chunk))?;
                partials.extend(partials_of(&self.op, here, plan, next..chunk, first)?);
            }
            if chunk < end {
                partials.extend(partials_of(&self.op, elements, plan, chunk..chunk + 1, first)?);
            }
            next = chunk + 1;
        }
        Ok(partials)
    }
}

/// Who folds which chunks.
struct Shares {
    plan: Plan,
    /// Where each rank's elements start in the whole, and where the last one's end.
    starts: Vec<u64>,
    /// Each rank's chunks. Those of a rank come after those of the one before.
    chunks: Vec<Range<u32>>,
    /// What is sent, in the order of chunks and ranks.
    moves: Vec<Move>,
}

/// Elements of a chunk that one rank has and another folds.
struct Move {
    chunk: u32,
    from: usize,
    to: usize,
    range: Range<u64>,
}

impl Shares {
    /// Those of ranks that have so many elements: a chunk is the rank's that has most of it, the first of several.
    fn new(plan: Plan, lens: &[u64]) -> Self {
        let mut starts = vec![0];
        for (rank, len) in lens.iter().enumerate() {
            starts.push(starts[rank] + len);
        }
        let mut shares = Self { plan, starts, chunks: vec![0..0; lens.len()], moves: Vec::new() };
        for chunk in 0..plan.chunks {
            let range = plan.range(chunk);
            // The last that starts there or before has elements.
            let first = shares.starts.partition_point(|&start| start <= range.start) - 1;
            let parts: Vec<_> = (first..lens.len())
                .take_while(|&rank| shares.starts[rank] < range.end)
                .map(|rank| (rank, shares.on(rank, &range)))
                .filter(|(_, part)| !part.is_empty())
                .collect();
            // Of equals, the last of those in reverse order.
            let most = parts.iter().rev().max_by_key(|(_, part)| part.end - part.start);
            let to = most.map_or(first, |&(rank, _)| rank);
            let chunks = &mut shares.chunks[to];
            if chunks.start == chunks.end {
                chunks.start = chunk;
            }
            chunks.end = chunk + 1;
            let others = parts.into_iter().filter(|&(from, _)| from != to);
            shares.moves.extend(others.map(|(from, range)| Move { chunk, from, to, range }));
        }
        shares
    }

    /// What a rank has of a range of the whole, with which it has elements in common, or is none itself.
    fn on(&self, rank: usize, range: &Range<u64>) -> Range<u64> {
        self.starts[rank].max(range.start)..self.starts[rank + 1].min(range.end)
    }
}
