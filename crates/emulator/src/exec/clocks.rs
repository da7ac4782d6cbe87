//! What is ordered with what within a block.
//!
//! Each warp has a clock, which a barrier, a release, an acquire and a fence advance, and knows up to which time it is
//! ordered after each warp: a vector clock. Its own entry is the time up to which its lanes are ordered with each other,
//! which a block barrier and a warp barrier advance; what a warp barrier of some lanes orders is kept beside it.
//!
//! A simplification can hide a race and never invents one: what one lane of a warp releases or acquires, all its lanes do.

use std::collections::HashMap;

use super::lanes::{LANES, lanes};

/// Warps of a block, at most.
pub const WARPS: usize = 32;

/// For each warp a time: all of it before is ordered.
pub type Vector = [u32; WARPS];

/// One access, as later ones are compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The warp's clock.
    pub time: u32,
    /// The instruction.
    pub at: u32,
    /// The number of the execution of that instruction: lanes of one execution are no race by themselves.
    pub serial: u32,
    pub warp: u8,
    /// With [`IN_FLIGHT`] where it is a copy's that has not been waited for.
    pub lane: u8,
    pub kind: Kind,
}

/// Added to the lane of an access that nothing is ordered after yet, not even what its own lane does next.
pub const IN_FLIGHT: u8 = 0x80;

impl Moment {
    /// No access.
    pub const NONE: Moment = Moment { time: 0, at: u32::MAX, serial: 0, warp: 0, lane: 0, kind: Kind::Read };

    /// Whether there was one.
    pub fn is_some(&self) -> bool {
        self.at != u32::MAX
    }
}

/// What an access does, as races see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    AtomicRead,
    AtomicWrite,
}

impl Kind {
    pub fn is_atomic(self) -> bool {
        matches!(self, Kind::AtomicRead | Kind::AtomicWrite)
    }

    pub fn writes(self) -> bool {
        matches!(self, Kind::Write | Kind::AtomicWrite)
    }

    /// Whether two such accesses of one place need an order.
    pub fn conflicts(self, other: Kind) -> bool {
        (self.writes() || other.writes()) && !(self.is_atomic() && other.is_atomic())
    }
}

/// What a release leaves at its address.
#[derive(Clone, Debug)]
struct Released {
    vector: Vector,
    /// The lanes of each warp that released.
    lanes: Vector,
}

/// The clocks of a block.
#[derive(Clone, Debug)]
pub struct Clocks {
    pub time: Vector,
    pub known: Vec<Vector>,
    /// For each lane of a warp which had barriers of some lanes: the times up to which the other lanes are ordered before
    /// it by these.
    parts: HashMap<u8, Box<[[u32; LANES]; LANES]>>,
    released: HashMap<u64, Released>,
    /// What a warp's last fence orders before its later relaxed writes.
    fenced: HashMap<u8, Vector>,
    /// What a warp's relaxed reads have seen, to be ordered by its next fence.
    seen: HashMap<u8, Vector>,
}

impl Clocks {
    /// Those of a block of so many warps that starts.
    pub fn new(warps: u32) -> Clocks {
        Clocks {
            time: [1; WARPS],
            known: vec![[0; WARPS]; warps as usize],
            parts: HashMap::new(),
            released: HashMap::new(),
            fenced: HashMap::new(),
            seen: HashMap::new(),
        }
    }

    /// As when a block starts.
    pub fn clear(&mut self) {
        self.time.fill(1);
        self.known.as_flattened_mut().fill(0);
        self.parts.clear();
        self.released.clear();
        self.fenced.clear();
        self.seen.clear();
    }

    /// Whether an earlier access is ordered before one of this lane now.
    pub fn ordered(&self, before: &Moment, warp: usize, lane: u8) -> bool {
        before.warp as usize == warp && before.lane == lane
            || self.known[warp][before.warp as usize] > before.time
            || before.warp as usize == warp && !self.parts.is_empty() && self.met(before, lane)
    }

    /// Whether barriers of some lanes order an earlier access before one of this lane of the same warp.
    #[cold]
    fn met(&self, before: &Moment, lane: u8) -> bool {
        let parts = self.parts.get(&before.warp);
        let other = before.lane & !IN_FLIGHT;
        parts.is_some_and(|parts| parts[lane as usize][other as usize] > before.time)
    }

    /// What a warp knows, itself up to now.
    pub fn contribution(&mut self, warp: usize) -> Vector {
        self.time[warp] += 1;
        let mut vector = self.known[warp];
        vector[warp] = self.time[warp];
        vector
    }

    /// A warp learns what others contributed to a barrier that it has passed.
    pub fn learn(&mut self, warp: usize, vector: &Vector) {
        join(&mut self.known[warp], vector);
    }

    /// `bar.warp.sync`, of all lanes or of a part of them.
    pub fn warp_barrier(&mut self, warp: usize, part: Option<u32>) {
        self.time[warp] += 1;
        let now = self.time[warp];
        let Some(part) = part else {
            self.known[warp][warp] = now;
            return;
        };
        let parts = self.parts.entry(warp as u8).or_insert_with(|| Box::new([[0; LANES]; LANES]));
        let mut joint = [0; LANES];
        for lane in lanes(part) {
            join(&mut joint, &parts[lane]);
        }
        for lane in lanes(part) {
            joint[lane] = now;
        }
        for lane in lanes(part) {
            parts[lane] = joint;
        }
    }

    /// A release at an address.
    pub fn release(&mut self, warp: usize, lane: u8, address: u64) {
        let vector = self.contribution(warp);
        self.leave(warp, lane, address, &vector);
    }

    fn leave(&mut self, warp: usize, lane: u8, address: u64, vector: &Vector) {
        let released = self
            .released
            .entry(address)
            .or_insert_with(|| Released { vector: [0; WARPS], lanes: [0; WARPS] });
        join(&mut released.vector, vector);
        released.lanes[warp] |= 1 << lane;
    }

    /// An acquire at an address.
    pub fn acquire(&mut self, warp: usize, lane: u8, address: u64) {
        self.time[warp] += 1;
        if let Some(vector) = self.visible(warp, lane, address) {
            join(&mut self.known[warp], &vector);
        }
    }

    /// What a lane takes over from the releases at an address; not what it released itself.
    fn visible(&self, warp: usize, lane: u8, address: u64) -> Option<Vector> {
        let released = self.released.get(&address)?;
        let mut vector = released.vector;
        if released.lanes[warp] & !(1 << lane) == 0 {
            vector[warp] = 0;
        }
        Some(vector)
    }

    /// A relaxed write: releases what the last fence ordered before it.
    pub fn relaxed_write(&mut self, warp: usize, lane: u8, address: u64) {
        if let Some(vector) = self.fenced.get(&(warp as u8)).copied() {
            self.leave(warp, lane, address, &vector);
        }
    }

    /// A relaxed read: acquires at the next fence.
    pub fn relaxed_read(&mut self, warp: usize, lane: u8, address: u64) {
        if let Some(vector) = self.visible(warp, lane, address) {
            join(self.seen.entry(warp as u8).or_insert([0; WARPS]), &vector);
        }
    }

    /// Acquires what relaxed reads have seen.
    pub fn acquire_seen(&mut self, warp: usize) {
        if let Some(seen) = self.seen.remove(&(warp as u8)) {
            join(&mut self.known[warp], &seen);
        }
    }

    /// A fence.
    pub fn fence(&mut self, warp: usize) {
        self.acquire_seen(warp);
        let vector = self.contribution(warp);
        self.fenced.insert(warp as u8, vector);
    }
}

/// The later of each.
pub fn join(into: &mut Vector, from: &Vector) {
    for (into, &from) in into.iter_mut().zip(from) {
        *into = (*into).max(from);
    }
}
