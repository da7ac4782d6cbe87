//! Bulk copies (`cp.async.bulk`). The bytes are copied at once.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    fault::{Fault, FaultKind},
    program::{
        bulk::{Bulk, Reduction, Way},
        code::Space,
    },
};

use super::{
    access::{Count, Kind, Request, addresses, weak_read},
    block::State,
    bytes::update_global,
    hooks::{Bulk as Of, Event, Hooks},
    lanes::{LANES, lanes},
    warp::Warp,
};

/// Addresses and sizes of bulk copies are multiples of this.
const UNIT: u64 = 16;
/// The most bytes that are checked at once: a sector.
const PIECE: u64 = 32;

/// A bulk copy by one lane.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub lane: usize,
    pub place: Place,
    /// What it does to global memory: it reads, writes or reduces. To shared memory it does the opposite.
    pub kind: Kind,
    pub at: u32,
}

/// Where a copy reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub shared: u64,
    pub global: u64,
    pub bytes: u64,
}

impl Place {
    /// Parts whose addresses are multiples of their sizes.
    pub fn pieces(self) -> impl Iterator<Item = Place> {
        let Place { shared, global, bytes } = self;
        let mut done = 0;
        std::iter::from_fn(move || {
            let (shared, global, left) = (shared.wrapping_add(done), global.wrapping_add(done), bytes - done);
            let fits = |bytes: &u64| *bytes <= left && (shared | global) % bytes == 0;
            let bytes = [PIECE, UNIT].into_iter().find(fits)?;
            done += bytes;
            Some(Place { shared, global, bytes })
        })
    }

    /// The sectors of its global memory.
    pub fn sectors(self) -> u64 {
        if self.bytes == 0 {
            0
        } else {
            (self.global.saturating_add(self.bytes) - 1) / 32 - self.global / 32 + 1
        }
    }
}

impl Transfer {
    /// Whether it copies to shared memory.
    pub fn to_shared(&self) -> bool {
        !self.kind.writes()
    }

    /// The access to a piece of global memory. Values that nothing wrote are no fault.
    pub fn in_global<'a>(&self, warp: &Warp, addresses: &'a [u64; LANES], piece: Place) -> Request<'a> {
        self.request(warp, (Space::Global, addresses), (piece, self.kind))
    }

    /// The access to a piece of shared memory.
    pub fn in_shared<'a>(&self, warp: &Warp, addresses: &'a [u64; LANES], piece: Place) -> Request<'a> {
        let kind = if self.to_shared() { Kind::Write } else { Kind::Read };
        self.request(warp, (Space::Shared, addresses), (piece, kind))
    }

    fn request<'a>(
        &self,
        warp: &Warp,
        (space, addresses): (Space, &'a [u64; LANES]),
        (piece, kind): (Place, Kind),
    ) -> Request<'a> {
        let size = (8, piece.bytes as u32 / 8);
        let request = weak_read(warp, (space, addresses, 1 << self.lane), size, self.at);
        Request { kind, reads: false, count: Count::Nothing, ..request }
    }
}

impl State<'_> {
    /// Runs a bulk copy by each lane.
    #[cold]
    pub fn bulk(&mut self, warp: &mut Warp, bulk: &Bulk, active: u32, at: u32) -> Result<(), Box<Fault>> {
        let (to, from) = (addresses(&warp.registers, &bulk.to), addresses(&warp.registers, &bulk.from));
        let sizes = warp.registers.wide(bulk.size);
        let mbarriers = match &bulk.way {
            Way::ToShared(address) => self.words(warp, address, (active, 8), at)?,
            Way::ToGlobal(_) => [0; LANES],
        };
        for lane in lanes(active) {
            let (to, from, bytes) = (to[lane], from[lane], sizes[lane]);
            if (to | from | bytes) % UNIT != 0 {
                let text = format!(
                    "`cp.async.bulk` of {bytes} bytes from address {from:#x} to {to:#x}; all must be \
                     multiples of {UNIT}"
                );
                return Err(self.site.fault(warp.index, at, 1 << lane, FaultKind::CopyOperand(text)));
            }
            match &bulk.way {
                Way::ToShared(_) => {
                    let place = Place { shared: to, global: from, bytes };
                    let transfer = Transfer { lane, place, kind: Kind::Read, at };
                    self.copy_in_bulk(warp, &transfer, mbarriers[lane])?;
                }
                Way::ToGlobal(reduction) => {
                    let place = Place { shared: from, global: to, bytes };
                    let kind = if reduction.is_some() { Kind::AtomicWrite } else { Kind::Write };
                    let transfer = Transfer { lane, place, kind, at };
                    self.copy_out_bulk(warp, &transfer, reduction.as_ref())?;
                }
            }
        }
        Ok(())
    }

    fn copy_in_bulk(
        &mut self,
        warp: &mut Warp,
        transfer: &Transfer,
        mbarrier: u64,
    ) -> Result<(), Box<Fault>> {
        self.tell_bulk(warp, Of::Begin(transfer))?;
        for piece in transfer.place.pieces() {
            self.check_piece(warp, transfer, piece)?;
            let Place { shared, global, bytes } = piece;
            for offset in (0..bytes).step_by(8) {
                // SAFETY: `check_piece` found the bytes aligned and inside an allocation that the launch
                // holds.
                let word = unsafe { AtomicU64::from_ptr((global + offset) as *mut u64) };
                let word = word.load(Ordering::Acquire).to_le_bytes();
                self.site.shared[(shared + offset) as usize..][..8].copy_from_slice(&word);
            }
        }
        self.complete(warp, mbarrier, transfer)
    }

    fn copy_out_bulk(
        &mut self,
        warp: &mut Warp,
        transfer: &Transfer,
        reduction: Option<&Reduction>,
    ) -> Result<(), Box<Fault>> {
        self.tell_bulk(warp, Of::Begin(transfer))?;
        for piece in transfer.place.pieces() {
            self.check_piece(warp, transfer, piece)?;
            let Place { shared, global, bytes } = piece;
            let size = reduction.map_or(8, |reduction| reduction.size);
            for offset in (0..bytes).step_by(size as usize) {
                let mut word = [0; 8];
                let from = (shared + offset) as usize;
                word[..size as usize].copy_from_slice(&self.site.shared[from..][..size as usize]);
                let value = u64::from_le_bytes(word);
                let update = |old| reduction.map_or(value, |reduction| (reduction.update)(old, value, value));
                // SAFETY: `check_piece` found the bytes aligned and inside an allocation that the launch
                // holds.
                unsafe { update_global(global + offset, size, update) };
            }
        }
        self.tell_bulk(warp, Of::End(transfer))
    }

    fn tell_bulk(&mut self, warp: &Warp, event: Of) -> Result<(), Box<Fault>> {
        self.tell(warp, &Event::Bulk(event))
    }

    /// Checks the read of a piece and then its write.
    fn check_piece(&mut self, warp: &Warp, transfer: &Transfer, piece: Place) -> Result<(), Box<Fault>> {
        let (global, shared) = ([piece.global; LANES], [piece.shared; LANES]);
        let global = transfer.in_global(warp, &global, piece);
        let shared = transfer.in_shared(warp, &shared, piece);
        self.hooks.begin(&global);
        let [first, second] = if transfer.to_shared() { [&global, &shared] } else { [&shared, &global] };
        for request in [first, second] {
            match request.space {
                Space::Global => self.site.check_global(request)?,
                _ => self.site.check_shared(request)?,
            }
            self.hooks.before(&mut self.site, warp, request, &[])?;
        }
        self.tell_bulk(warp, Of::Move(transfer, piece))
    }
}
