//! Vector clocks: what is ordered before what within a block.
//!
//! Each warp has a clock, which barriers, releases, acquires and fences advance. It also knows for each warp
//! the time before which that warp's accesses are ordered before its own: a vector clock. Its own entry is
//! the time before which its lanes are ordered among each other; block barriers and full warp barriers
//! advance it. The effect of partial warp barriers is kept separately.
//!
//! Simplification: a release or an acquire by one lane counts for its whole warp. This can hide a race but
//! never invents one.

use std::collections::HashMap;

use crate::exec::{
    access::Kind,
    lanes::{LANES, lanes},
};

/// The most warps that a block can have.
pub const WARPS: usize = 32;

/// Stands for the asynchronous copies that an mbarrier or a thread waited for, as if one more warp made them.
pub const ENGINE: usize = WARPS;

/// A time for each warp and the [`ENGINE`]: its accesses before that time are ordered.
pub type Vector = [u32; WARPS + 1];

/// One access, as later accesses are compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The warp's clock.
    pub time: u32,
    pub at: u32,
    /// The serial number of the execution. Lanes of one execution do not race with each other here. If `warp`
    /// is the [`ENGINE`], the warp that copied.
    pub serial: u32,
    pub warp: u8,
    /// The lane, with [`IN_FLIGHT`] set for an asynchronous copy that has not been waited for.
    pub lane: u8,
    pub kind: Kind,
    /// Bytes of one element.
    pub size: u8,
}

/// The flag of an access that is not yet ordered before anything, not even before its own lane's next access.
pub const IN_FLIGHT: u8 = 0x80;

impl Moment {
    /// No access.
    pub const NONE: Moment =
        Moment { time: 0, at: u32::MAX, serial: 0, warp: 0, lane: 0, kind: Kind::Read, size: 0 };

    pub fn is_some(&self) -> bool {
        self.at != u32::MAX
    }

    /// Whether only those that wait for the asynchronous copy come after it.
    pub fn is_in_flight(&self) -> bool {
        self.lane & IN_FLIGHT != 0 || self.warp == ENGINE as u8
    }

    /// The warp, the lane and the instruction.
    pub fn thread(&self) -> (u32, u32, u32) {
        let warp = if self.warp == ENGINE as u8 { self.serial } else { self.warp.into() };
        (warp, (self.lane & !IN_FLIGHT).into(), self.at)
    }

    /// Whether two accesses of one place need to be ordered. Atomic accesses of different sizes are not
    /// atomic to each other. (PTX ISA, "Morally strong operations".)
    pub fn conflicts(&self, other: &Moment) -> bool {
        (self.kind.writes() || other.kind.writes())
            && !(self.kind.is_atomic() && other.kind.is_atomic() && self.size == other.size)
    }
}

/// The releases so far at an address.
#[derive(Clone, Debug)]
struct Released {
    vector: Vector,
    /// The lanes of each warp that released there.
    lanes: Vector,
}

/// The clocks of a block.
#[derive(Clone, Debug)]
pub struct Clocks {
    pub time: Vector,
    pub known: Vec<Vector>,
    /// For each warp that ran partial barriers: per lane, the times before which the other lanes are ordered
    /// before it.
    parts: HashMap<u8, Box<[[u32; LANES]; LANES]>>,
    released: HashMap<u64, Released>,
    /// What each warp's last fence orders before its later relaxed writes.
    fenced: HashMap<u8, Vector>,
    /// What each warp's relaxed reads saw. Its next fence acquires it.
    seen: HashMap<u8, Vector>,
}

impl Clocks {
    pub fn new(warps: u32) -> Clocks {
        Clocks {
            time: [1; WARPS + 1],
            known: vec![[0; WARPS + 1]; warps as usize],
            parts: HashMap::new(),
            released: HashMap::new(),
            fenced: HashMap::new(),
            seen: HashMap::new(),
        }
    }

    /// Resets the clocks for a new block.
    pub fn clear(&mut self) {
        self.time.fill(1);
        self.known.as_flattened_mut().fill(0);
        self.parts.clear();
        self.released.clear();
        self.fenced.clear();
        self.seen.clear();
    }

    /// Whether an earlier access is ordered before an access of this lane now.
    pub fn ordered(&self, before: &Moment, warp: usize, lane: u8) -> bool {
        before.warp as usize == warp && before.lane == lane
            || self.known[warp][before.warp as usize] > before.time
            || before.warp as usize == warp && !self.parts.is_empty() && self.met(before, lane)
    }

    /// Whether partial barriers order an earlier access of the same warp before an access of this lane.
    #[cold]
    fn met(&self, before: &Moment, lane: u8) -> bool {
        let parts = self.parts.get(&before.warp);
        let other = before.lane & !IN_FLIGHT;
        parts.is_some_and(|parts| parts[lane as usize][other as usize] > before.time)
    }

    /// Advances the warp's clock and returns its vector up to now.
    pub fn contribution(&mut self, warp: usize) -> Vector {
        self.time[warp] += 1;
        let mut vector = self.known[warp];
        vector[warp] = self.time[warp];
        vector
    }

    /// Lets a warp acquire what others contributed to a barrier.
    pub fn learn(&mut self, warp: usize, vector: &Vector) {
        join(&mut self.known[warp], vector);
    }

    /// `bar.warp.sync` of all lanes, or of the lanes in `part`.
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
            .or_insert_with(|| Released { vector: [0; WARPS + 1], lanes: [0; WARPS + 1] });
        join(&mut released.vector, vector);
        released.lanes[warp] |= 1 << lane;
    }

    pub fn acquire(&mut self, warp: usize, lane: u8, address: u64) {
        self.time[warp] += 1;
        if let Some(vector) = self.visible(warp, lane, address) {
            join(&mut self.known[warp], &vector);
        }
    }

    /// What a lane acquires from the releases at an address, without its own.
    fn visible(&self, warp: usize, lane: u8, address: u64) -> Option<Vector> {
        let released = self.released.get(&address)?;
        let mut vector = released.vector;
        if released.lanes[warp] & !(1 << lane) == 0 {
            vector[warp] = 0;
        }
        Some(vector)
    }

    /// A relaxed write: releases what the warp's last fence ordered.
    pub fn relaxed_write(&mut self, warp: usize, lane: u8, address: u64) {
        if let Some(vector) = self.fenced.get(&(warp as u8)).copied() {
            self.leave(warp, lane, address, &vector);
        }
    }

    /// A relaxed read: its acquire takes effect at the warp's next fence.
    pub fn relaxed_read(&mut self, warp: usize, lane: u8, address: u64) {
        if let Some(vector) = self.visible(warp, lane, address) {
            self.see(warp, &vector);
        }
    }

    /// What the warp's last fence orders before its later relaxed writes.
    pub fn fenced(&self, warp: usize) -> Option<&Vector> {
        self.fenced.get(&(warp as u8))
    }

    /// Keeps what a relaxed read saw. The warp's next fence acquires it.
    pub fn see(&mut self, warp: usize, vector: &Vector) {
        join(self.seen.entry(warp as u8).or_insert([0; WARPS + 1]), vector);
    }

    /// Acquires what the relaxed reads saw.
    pub fn acquire_seen(&mut self, warp: usize) {
        if let Some(seen) = self.seen.remove(&(warp as u8)) {
            join(&mut self.known[warp], &seen);
        }
    }

    pub fn fence(&mut self, warp: usize) {
        self.acquire_seen(warp);
        let vector = self.contribution(warp);
        self.fenced.insert(warp as u8, vector);
    }
}

/// Takes the elementwise maximum.
pub fn join<const N: usize>(into: &mut [u32; N], from: &[u32; N]) {
    for (into, &from) in into.iter_mut().zip(from) {
        *into = (*into).max(from);
    }
}
