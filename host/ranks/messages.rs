//! The messages of ranks to each other, in bytes.

use crate::Error;
use crate::partial::form::checksum;
use bytemuck::{cast_slice, cast_slice_mut};
use mpi::Count;
use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::request::{LocalScope, Request, scope};
use mpi::topology::Rank;
use mpi::traits::*;

/// What all ranks have to agree on: what it is, and the value as text.
pub type Terms = [(&'static str, String); 6];

/// The message of a rank to all others: hashes of its terms, the number of its elements, whether it failed,
/// and the bytes of its first element or of its accumulator, if they fit.
type Header = [u64; 16];

/// Words of a header.
const LEN: usize = 6;
const FAILED: usize = 7;
const FIRST: usize = 8;

/// Bytes of a message: MPI counts up to 2^31.
const PIECE: usize = 1 << 30;

/// What all ranks have said.
pub struct Agreed(Vec<Header>);

impl Agreed {
    /// Returns the number of each rank's elements.
    pub fn lens(&self) -> Vec<u64> {
        self.0.iter().map(|header| header[LEN]).collect()
    }

    /// Returns a rank's bytes, if they fit in the message.
    pub fn bytes_of(&self, rank: usize, len: usize) -> Option<Vec<u8>> {
        Some(cast_slice(&self.0[rank][FIRST..]).get(..len)?.to_vec())
    }
}

/// The ranks of a communicator; all of them make the same calls.
pub struct Ranks<'a, C: ?Sized>(pub &'a C);

impl<C: Communicator + ?Sized> Ranks<'_, C> {
    /// Returns the number of this rank.
    pub fn me(&self) -> usize {
        self.0.rank() as usize
    }

    /// Broadcasts a rank's bytes to all.
    pub fn told(&self, rank: usize, mut own: Vec<u8>) -> Vec<u8> {
        let rank = self.0.process_at_rank(rank as Rank);
        let mut len = own.len() as u64;
        rank.broadcast_into(&mut len);
        own.resize(len as usize, 0);
        own.chunks_mut(PIECE).for_each(|piece| rank.broadcast_into(piece));
        own
    }

    /// Broadcasts a rank's text to all.
    fn told_text(&self, rank: usize, own: String) -> String {
        String::from_utf8_lossy(&self.told(rank, own.into_bytes())).into_owned()
    }

    /// Broadcasts a rank's error, and returns it.
    fn failed<E: ToString>(&self, rank: usize, own: Option<E>) -> Error {
        Error::Rank {
            rank,
            reason: self.told_text(rank, own.map_or(String::new(), |error| error.to_string())),
        }
    }

    /// Checks that no rank has failed, and that all agree on the terms.
    pub fn agree<E: ToString>(
        &self,
        terms: &Terms,
        len: u64,
        own: Result<&[u8], E>,
    ) -> Result<Agreed, Error> {
        let (own, failed) = match own {
            Ok(own) => (own, None),
            Err(error) => (&[][..], Some(error)),
        };
        let mut header: Header = [0; 16];
        for (hash, (_, term)) in header.iter_mut().zip(terms) {
            *hash = checksum(term.as_bytes());
        }
        header[LEN] = len;
        header[FAILED] = failed.is_some().into();
        if let Some(place) = cast_slice_mut(&mut header[FIRST..]).get_mut(..own.len()) {
            place.copy_from_slice(own);
        }
        let mut headers = vec![[0; 16]; self.0.size() as usize];
        self.0.all_gather_into(&header[..], headers.as_flattened_mut());

        if let Some(rank) = headers.iter().position(|header| header[FAILED] != 0) {
            return Err(self.failed(rank, failed));
        }
        for (rank, header) in headers.iter().enumerate() {
            if let Some(term) = (0..terms.len()).find(|&term| header[term] != headers[0][term]) {
                let (what, own) = &terms[term];
                let [expected, found] = [0, rank].map(|rank| self.told_text(rank, own.clone()));
                return Err(Error::Disagree { what, rank, found, expected });
            }
        }
        Ok(Agreed(headers))
    }

    /// Returns the bytes of a rank, of which each has as many.
    pub fn bytes_of(&self, agreed: &Agreed, rank: usize, own: &[u8]) -> Vec<u8> {
        agreed.bytes_of(rank, own.len()).unwrap_or_else(|| {
            let mut bytes = own.to_vec();
            self.0.process_at_rank(rank as Rank).broadcast_into(&mut bytes[..]);
            bytes
        })
    }

    /// Returns this rank's value if all ranks have one, else the first rank's error.
    pub fn all<V>(&self, own: Result<V, Error>) -> Result<V, Error> {
        let failed = if own.is_ok() { Rank::MAX } else { self.0.rank() };
        let mut first = Rank::MAX;
        self.0.all_reduce_into(&failed, &mut first, SystemOperation::min());
        match own {
            own if first != Rank::MAX => Err(self.failed(first as usize, own.err())),
            own => own,
        }
    }

    /// Sends to some ranks and receives from others: at most one message between any two.
    pub fn exchange(&self, sent: &[(usize, &[u8])], received: Vec<(usize, &mut [u8])>) {
        // Keeps the caller's messages apart from these.
        Ranks(&self.0.duplicate()).transfer(sent, received);
    }

    /// As [`exchange`](Self::exchange), among these ranks alone, on a communicator without other messages.
    fn transfer(&self, sent: &[(usize, &[u8])], received: Vec<(usize, &mut [u8])>) {
        let comm = self.0;
        scope(|scope| {
            let mut requests: Vec<Request<[u8], &LocalScope>> = Vec::new();
            for (from, place) in received {
                let from = comm.process_at_rank(from as Rank);
                for piece in place.chunks_mut(PIECE) {
                    requests.push(from.immediate_receive_into(scope, piece));
                }
            }
            for &(to, bytes) in sent {
                let to = comm.process_at_rank(to as Rank);
                requests.extend(bytes.chunks(PIECE).map(|piece| to.immediate_send(scope, piece)));
            }
            requests.into_iter().for_each(Request::wait_without_status);
        });
    }

    /// Sends bytes to a rank, which [receives](Self::receive) them, on a communicator without other messages.
    pub fn send(&self, to: usize, bytes: &[u8]) {
        self.transfer(&[(to, &(bytes.len() as u64).to_le_bytes())], Vec::new());
        self.transfer(&[(to, bytes)], Vec::new());
    }

    /// Receives bytes from a rank.
    pub fn receive(&self, from: usize) -> Vec<u8> {
        let mut len = [0; 8];
        self.transfer(&[], vec![(from, &mut len)]);
        let mut bytes = vec![0; u64::from_le_bytes(len) as usize];
        self.transfer(&[], vec![(from, &mut bytes)]);
        bytes
    }

    /// Gathers the bytes of all ranks, `counts` of each, in the order of the ranks. A rank that failed says
    /// why.
    pub fn gather(&self, counts: &[usize], own: &[u8], failed: Option<String>) -> Result<Vec<u8>, Error> {
        // The first byte says whether the rank failed.
        let mut sent = vec![u8::from(failed.is_some())];
        sent.extend(own);
        sent.resize(1 + counts[self.me()], 0);
        let mut starts = vec![0];
        for (rank, count) in counts.iter().enumerate() {
            starts.push(starts[rank] + 1 + count);
        }
        let mut all = vec![0; starts[counts.len()]];
        let places: Vec<_> = starts[..counts.len()].iter().map(|&start| start as Count).collect();
        let counts: Vec<_> = counts.iter().map(|&count| 1 + count as Count).collect();
        self.0.all_gather_varcount_into(&sent[..], &mut PartitionMut::new(&mut all[..], counts, places));

        if let Some(rank) = starts[..starts.len() - 1].iter().position(|&start| all[start] != 0) {
            return Err(self.failed(rank, failed));
        }
        Ok(starts.windows(2).flat_map(|ends| &all[ends[0] + 1..ends[1]]).copied().collect())
    }
}
