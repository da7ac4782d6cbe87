//! Reductions over the ranks of an MPI communicator.

use crate::buffer::zeroed;
use crate::partial::{checksum, finished, first_of, name, parameters, partials_of};
use crate::place::Place::{Cpu, Gpu};
use crate::{Error, Item, Op, Partial, Plan, Reduce, View};
use bytemuck::{Zeroable, bytes_of, bytes_of_mut, cast_slice, checked};
use mpi::Count;
use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::request::{LocalScope, Request, scope};
use mpi::topology::Rank;
use mpi::traits::*;

use std::any::type_name;
use std::borrow::Cow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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
        self.reduce_by::<O, BLOCK>(O::default(), local)
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
        Local::<_, O, T> { comm: self, op, elements: local.data() }.reduce::<BLOCK>()
    }
}

impl<C: Communicator + ?Sized, T: Item> ReduceRanks<T> for C {}

/// What every rank tells all others: hashes of its [`Terms`], how many elements it has, whether it could not read the first of them, and, in the words that are left,
/// that element's bytes. Where they are more, only the whole's first is sent.
type Header = [u64; 16];

/// What ranks have to agree on, in words.
type Terms = [(&'static str, String); 6];

/// Where in a header these are.
const LEN: usize = 6;
const FAILED: usize = 7;
const FIRST: usize = 8;

/// Bytes that are sent at a time: MPI counts up to 2^31.
const PIECE: usize = 1 << 30;

/// A rank's elements, and what is done with them.
struct Local<'a, C: ?Sized, O, T: Item> {
    comm: &'a C,
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
        let all = self.gather(&shares, own, failed);
        match partials {
            Ok(_) => finished(&self.op, first, len, &all?),
            // Now that the others know.
            Err(panic) => resume_unwind(panic),
        }
    }

    fn me(&self) -> usize {
        self.comm.rank() as usize
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
        let (own_first, error) = match &first {
            Ok(first) => (bytes_of(first), String::new()),
            Err(error) => (&[][..], error.to_string()),
        };
        let mut header: Header = [0; 16];
        for (hash, (_, term)) in header.iter_mut().zip(&terms) {
            *hash = checksum(term.as_bytes());
        }
        header[LEN] = self.elements.len() as u64;
        header[FAILED] = first.is_err().into();
        let room: &mut [u8] = bytemuck::cast_slice_mut(&mut header[FIRST..]);
        let fits = size_of::<T>() <= room.len();
        if fits {
            room[..own_first.len()].copy_from_slice(own_first);
        }
        let mut headers = vec![[0; 16]; self.comm.size() as usize];
        self.comm.all_gather_into(&header[..], headers.as_flattened_mut());

        if let Some(rank) = headers.iter().position(|header| header[FAILED] != 0) {
            return Err(Error::Rank { rank, reason: self.told(rank, error) });
        }
        for (rank, header) in headers.iter().enumerate() {
            if let Some(term) = (0..terms.len()).find(|&term| header[term] != headers[0][term]) {
                let (what, own) = &terms[term];
                let [expected, found] = [0, rank].map(|rank| self.told(rank, own.clone()));
                return Err(Error::Disagree { what, rank, found, expected });
            }
        }
        let Some(rank) = headers.iter().position(|header| header[LEN] > 0) else { return Ok(None) };
        let mut bytes = cast_slice(&headers[rank][FIRST..]).to_vec();
        if !fits {
            bytes = own_first.to_vec();
            self.comm.process_at_rank(rank as Rank).broadcast_into(&mut bytes[..]);
        }
        let first = checked::try_pod_read_unaligned(&bytes[..size_of::<T>()])
            .map_err(|why| Error::Rank { rank, reason: format!("its first element: {why}") })?;
        Ok(Some((first, headers.iter().map(|header| header[LEN]).collect())))
    }

    /// What a rank says to all.
    fn told(&self, rank: usize, own: String) -> String {
        let rank = self.comm.process_at_rank(rank as Rank);
        let mut len = own.len() as u64;
        rank.broadcast_into(&mut len);
        let mut bytes = own.into_bytes();
        bytes.resize(len as usize, 0);
        rank.broadcast_into(&mut bytes[..]);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The chunks that this rank folds and that lie on others, too: their elements.
    fn exchange(&self, shares: &Shares) -> Result<Vec<(u32, Vec<T>)>, Error> {
        if shares.moves.is_empty() {
            return Ok(Vec::new());
        }
        // Before any waits for another's elements.
        let prepared = self.prepare(shares);
        let failed = if prepared.is_ok() { Rank::MAX } else { self.comm.rank() };
        let mut first_failed = 0;
        self.comm.all_reduce_into(&failed, &mut first_failed, SystemOperation::min());
        if first_failed != Rank::MAX {
            let error = prepared.err().map_or(String::new(), |error| error.to_string());
            let rank = first_failed as usize;
            return Err(Error::Rank { rank, reason: self.told(rank, error) });
        }
        let (to_send, mut border) = prepared?;
        // The caller's messages are none of these.
        let comm = self.comm.duplicate();
        scope(|scope| {
            let mut requests: Vec<Request<[u8], &LocalScope>> = Vec::new();
            for (chunk, elements) in &mut border {
                let mut at = shares.plan.range(*chunk).start;
                let mut rest = &mut elements[..];
                for Move { from, range, .. } in shares.moves.iter().filter(|moved| moved.chunk == *chunk) {
                    let place = rest.split_off_mut((range.start - at) as usize..);
                    rest = place.unwrap_or_default();
                    let place = rest.split_off_mut(..(range.end - range.start) as usize).unwrap_or_default();
                    at = range.end;
                    // SAFETY: their bytes; what comes are an element's, because all ranks have agreed on the type.
                    let bytes = unsafe {
                        std::slice::from_raw_parts_mut(place.as_mut_ptr().cast::<u8>(), size_of_val(place))
                    };
                    let from = comm.process_at_rank(*from as Rank);
                    for piece in bytes.chunks_mut(PIECE) {
                        requests.push(from.immediate_receive_into(scope, piece));
                    }
                }
            }
            for (to, elements) in &to_send {
                let to = comm.process_at_rank(*to as Rank);
                for piece in cast_slice::<T, u8>(elements).chunks(PIECE) {
                    requests.push(to.immediate_send(scope, piece));
                }
            }
            requests.into_iter().for_each(Request::wait_without_status);
        });
        Ok(border)
    }

    /// What this rank sends to others, and the chunks that others send it something of, with what it has of them itself.
    #[expect(clippy::type_complexity, reason = "two lists")]
    fn prepare(&self, shares: &Shares) -> Result<(Vec<(usize, Cow<'_, [T]>)>, Vec<(u32, Vec<T>)>), Error> {
        let mut to_send = Vec::new();
        let mut border: Vec<(u32, Vec<T>)> = Vec::new();
        for Move { chunk, from, to, range } in &shares.moves {
            if *from == self.me() {
                to_send.push((*to, self.on_host(shares, range)?));
            } else if *to == self.me() && border.last().is_none_or(|(last, _)| last != chunk) {
                let whole = shares.plan.range(*chunk);
                let mut elements = zeroed::<T>((whole.end - whole.start) as usize)?;
                let own = shares.on(self.me(), &whole);
                let place = (own.start - whole.start) as usize..(own.end - whole.start) as usize;
                elements[place].copy_from_slice(&self.on_host(shares, &own)?);
                border.push((*chunk, elements));
            }
        }
        Ok((to_send, border))
    }

    /// This rank's elements of a range of the whole, where they lie.
    fn here(&self, shares: &Shares, range: &Range<u64>) -> Result<View<'_, T>, Error> {
        let start = shares.starts[self.me()];
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
        let Range { start: mut next, end } = chunks[self.me()].clone();
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

    /// The partial results of all, unless a rank has none, and says why.
    fn gather(
        &self,
        shares: &Shares,
        own: &[O::Accumulator],
        failed: Option<String>,
    ) -> Result<Vec<O::Accumulator>, Error> {
        // Of each rank a byte that says whether it failed, and its accumulators.
        let size = size_of::<O::Accumulator>();
        let counts: Vec<_> = shares.chunks.iter().map(|chunks| (1 + chunks.len() * size) as Count).collect();
        let places: Vec<_> = counts
            .iter()
            .scan(0, |next, count| {
                *next += count;
                Some(*next - count)
            })
            .collect();
        let mut sent = vec![u8::from(failed.is_some())];
        sent.extend(cast_slice::<_, u8>(own));
        sent.resize(counts[self.me()] as usize, 0);
        let mut all = vec![0; counts.iter().sum::<Count>() as usize];
        self.comm
            .all_gather_varcount_into(&sent[..], &mut PartitionMut::new(&mut all[..], counts, &places[..]));

        if let Some(rank) = places.iter().position(|&place| all[place as usize] != 0) {
            return Err(Error::Rank { rank, reason: self.told(rank, failed.unwrap_or_default()) });
        }
        let mut partials = Vec::with_capacity(shares.plan.chunks as usize);
        for (&place, chunks) in places.iter().zip(&shares.chunks) {
            let bytes = &all[place as usize + 1..];
            partials.extend((0..chunks.len()).map(|index| {
                let mut partial = O::Accumulator::zeroed();
                bytes_of_mut(&mut partial).copy_from_slice(&bytes[index * size..][..size]);
                partial
            }));
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
