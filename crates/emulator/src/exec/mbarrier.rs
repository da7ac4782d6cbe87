//! mbarriers: their words in shared memory, and what they order.
//!
//! The word's layout is the emulator's own; the PTX ISA calls it opaque. Asynchronous copies transfer their
//! bytes at once, and so a phase completes as early as it can. The checks still take the bytes as in flight
//! until a thread has waited for the phase.

use std::{collections::HashMap, ops::RangeInclusive};

use crate::{
    fault::{Fault, FaultKind, Memory as Where},
    program::{
        code::Order,
        mbarrier::{COUNT, Kind, Mbarrier},
    },
};

use super::{
    block::State,
    clocks::{self, Clocks, ENGINE, Moment, Vector, WARPS},
    lanes::{LANES, lanes},
    shadow::Shadow,
    warp::Warp,
};

/// The contents of an mbarrier's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The parity of the current phase.
    pub parity: bool,
    /// The arrivals that the current phase still waits for, and those that each phase expects.
    pub pending: u64,
    pub expected: u64,
    /// The bytes that the current phase still waits for.
    pub bytes: i64,
}

impl Word {
    /// The bit that is set in the word of every mbarrier.
    const LIVE: u64 = 1 << 62;

    /// `None` if the word is that of no mbarrier.
    pub fn unpack(word: u64) -> Option<Word> {
        (word & Word::LIVE != 0).then_some(Word {
            parity: word >> 63 != 0,
            pending: word & COUNT,
            expected: word >> 20 & COUNT,
            // 21 bits with a sign, from bit 40.
            bytes: ((word << 3) as i64) >> 43,
        })
    }

    pub fn pack(self) -> u64 {
        let bytes = self.bytes as u64 & ((1 << 21) - 1);
        u64::from(self.parity) << 63 | Word::LIVE | bytes << 40 | self.expected << 20 | self.pending
    }

    /// The word of a new mbarrier.
    fn new(arrivals: u64) -> Result<Word, String> {
        if !(1..=COUNT).contains(&arrivals) {
            return Err(format!("an mbarrier for {arrivals} arrivals; it takes 1 to {COUNT}"));
        }
        Ok(Word { parity: false, pending: arrivals, expected: arrivals, bytes: 0 })
    }

    /// Counts what an operation changes, within the phase.
    fn change(&mut self, kind: Kind, operand: u64) -> Result<(), String> {
        match kind {
            Kind::Init | Kind::Invalidate | Kind::Wait { .. } | Kind::Copies { counts: false } => Ok(()),
            Kind::Expect => self.expect(operand as i64),
            Kind::Complete => self.expect(-(operand as i64)),
            Kind::Copies { counts: true } => self.arrive(1),
            Kind::Arrive { drops, expects, completes } => {
                let count = if expects { 1 } else { operand };
                self.expect(if expects { operand as i64 } else { 0 })?;
                self.arrive(count)?;
                if drops {
                    self.expected = self.expected.saturating_sub(count);
                }
                if !completes && self.pending == 0 {
                    return Err("an arrival with `.noComplete` completes the phase".to_owned());
                }
                Ok(())
            }
        }
    }

    /// Counts down the arrivals that are missing.
    fn arrive(&mut self, count: u64) -> Result<(), String> {
        let Word { pending, .. } = *self;
        self.pending = pending
            .checked_sub(count)
            .filter(|_| count > 0)
            .ok_or_else(|| format!("{count} arrivals at an mbarrier whose phase waits for {pending}"))?;
        Ok(())
    }

    /// Adds bytes to wait for.
    fn expect(&mut self, bytes: i64) -> Result<(), String> {
        self.bytes += bytes;
        if self.bytes.unsigned_abs() > COUNT {
            return Err(format!("an mbarrier waits for {} bytes; the most is {COUNT}", self.bytes));
        }
        Ok(())
    }

    /// Begins the next phase if this one is complete. Returns whether it was.
    fn turn(&mut self) -> bool {
        let is_complete = self.pending == 0 && self.bytes == 0;
        if is_complete {
            (self.parity, self.pending) = (!self.parity, self.expected);
        }
        is_complete
    }
}

/// What the checks know of an mbarrier.
#[derive(Debug)]
pub struct Object {
    init: Moment,
    /// What the arrivals so far release, and what those of complete phases did.
    open: Released,
    done: Released,
    /// The copies that the current phase waits for, and those of complete phases for which no thread has
    /// waited.
    flying: Vec<Landing>,
    landed: Vec<Landing>,
}

/// The mbarriers of a block by their addresses.
pub type Objects = HashMap<u64, Object>;

/// An asynchronous copy to shared memory: its place, and the serial numbers of its writes.
#[derive(Clone, Debug)]
pub struct Landing {
    pub to: usize,
    pub bytes: usize,
    pub serials: RangeInclusive<u32>,
}

/// What arrivals release.
#[derive(Clone, Debug)]
struct Released {
    /// What the arriving warps knew.
    vector: Vector,
    /// The times of the warps' own arrivals, and the lanes that arrived.
    own: Vector,
    lanes: [u32; WARPS],
}

impl Released {
    const NOTHING: Released = Released { vector: [0; WARPS + 1], own: [0; WARPS + 1], lanes: [0; WARPS] };

    fn arrive(&mut self, clocks: &mut Clocks, (warp, lane): (usize, usize), order: Order) {
        let own = match order {
            Order::Relaxed => {
                let Some(fenced) = clocks.fenced(warp) else { return };
                clocks::join(&mut self.vector, &without(fenced, warp));
                fenced[warp]
            }
            _ => {
                let own = clocks.contribution(warp)[warp];
                clocks::join(&mut self.vector, &clocks.known[warp]);
                own
            }
        };
        self.own[warp] = self.own[warp].max(own);
        self.lanes[warp] |= 1 << lane;
    }

    /// What a lane acquires: all but its own arrivals, which do not order the other lanes of its warp.
    fn seen_by(&self, (warp, lane): (usize, usize)) -> Vector {
        let mut vector = self.vector;
        let own = if self.lanes[warp] & !(1 << lane) == 0 { without(&self.own, warp) } else { self.own };
        clocks::join(&mut vector, &own);
        vector
    }
}

fn without(vector: &Vector, warp: usize) -> Vector {
    let mut vector = *vector;
    vector[warp] = 0;
    vector
}

impl Object {
    fn turn(&mut self) {
        self.done = self.open.clone();
        self.landed.append(&mut self.flying);
    }

    /// A lane has seen that a phase is complete.
    fn wait(
        &mut self,
        (clocks, shadow): (&mut Clocks, &mut Shadow),
        (warp, lane): (usize, usize),
        order: Order,
    ) {
        if !self.landed.is_empty() {
            let time = clocks.time[ENGINE];
            clocks.time[ENGINE] += 1;
            for copy in self.landed.drain(..) {
                shadow.land(time, (copy.to, copy.bytes), &copy.serials);
            }
            for released in [&mut self.open, &mut self.done] {
                released.vector[ENGINE] = clocks.time[ENGINE];
            }
        }
        let vector = self.done.seen_by((warp, lane));
        if order == Order::Relaxed {
            clocks.see(warp, &vector);
        } else {
            clocks.time[warp] += 1;
            clocks.learn(warp, &vector);
        }
    }
}

impl State<'_> {
    /// Runs an operation on mbarriers.
    #[cold]
    pub fn mbarrier(
        &mut self,
        warp: &mut Warp,
        mbarrier: &Mbarrier,
        active: u32,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        let addresses = self.words(warp, &mbarrier.address, (active, 8), at)?;
        let operands = mbarrier.operand.map_or([1; LANES], |register| warp.registers.wide(register));
        if mbarrier.kind == Kind::Init {
            self.begin_mbarriers(warp, (&addresses, active), at)?;
        }
        let mut results = [0; LANES];
        for lane in lanes(active) {
            let address = addresses[lane];
            results[lane] = self.operate(warp, mbarrier, (lane, address, operands[lane]), at)?;
        }
        if matches!(mbarrier.kind, Kind::Wait { .. }) {
            let first = active.trailing_zeros() as usize;
            warp.poll(at, addresses[first], self.word(addresses[first]));
        }
        if let Some(target) = mbarrier.target {
            warp.registers.set_wide(target, &results, active);
        }
        Ok(())
    }

    /// The word at an address of shared memory, which is in bounds.
    pub fn word(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.site.shared[address as usize..][..8]);
        u64::from_le_bytes(bytes)
    }

    /// Describes what the mbarrier at an address waits for.
    pub fn missing(&self, address: u64) -> String {
        let is_inside = address.checked_add(8).is_some_and(|end| end <= self.site.shared.len() as u64);
        match Word::unpack(if is_inside { self.word(address) } else { 0 }) {
            Some(Word { pending, expected, bytes, .. }) => {
                format!(", which lacks {pending} of {expected} arrivals and {bytes} bytes")
            }
            None => String::new(),
        }
    }

    fn set_word(&mut self, address: u64, word: u64) {
        self.site.shared[address as usize..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// Makes the words at these addresses those of new mbarriers: no other instruction may use them.
    fn begin_mbarriers(
        &mut self,
        warp: &Warp,
        (addresses, active): (&[u64; LANES], u32),
        at: u32,
    ) -> Result<(), Box<Fault>> {
        let known = |lane: &usize| {
            self.checks.as_ref().is_some_and(|checks| checks.mbarriers.contains_key(&addresses[*lane]))
        };
        if let Some(lane) = lanes(active).find(known) {
            let text = "an mbarrier is initialised twice, without `mbarrier.inval` in between".to_owned();
            return Err(self.site.fault(warp.index, at, 1 << lane, FaultKind::Mbarrier(text)));
        }
        self.write_words(warp, (addresses, active), at)?;
        let Some(checks) = &mut self.checks else { return Ok(()) };
        for lane in lanes(active) {
            let address = addresses[lane] as usize;
            let Some(init) = checks.shadow.writes(address, 8).next() else { continue };
            checks.shadow.suspend(address, 8);
            let (open, done) = (Released::NOTHING, Released::NOTHING);
            let object = Object { init, open, done, flying: Vec::new(), landed: Vec::new() };
            checks.mbarriers.insert(addresses[lane], object);
        }
        Ok(())
    }

    /// Runs an operation by one lane. Returns the state or the predicate.
    fn operate(
        &mut self,
        warp: &mut Warp,
        mbarrier: &Mbarrier,
        (lane, address, operand): (usize, u64, u64),
        at: u32,
    ) -> Result<u64, Box<Fault>> {
        let (index, who) = (warp.index, (warp.index as usize, lane));
        let wrong = |state: &Self, text| state.site.fault(index, at, 1 << lane, FaultKind::Mbarrier(text));
        let kind = mbarrier.kind;
        if kind == Kind::Init {
            let word = Word::new(operand).map_err(|text| wrong(self, text))?;
            self.set_word(address, word.pack());
            return Ok(0);
        }
        let mut word = self.mbarrier_at((index, lane), address, at)?;
        let before = word;
        match kind {
            Kind::Invalidate => {
                self.invalidate(who, address, at);
                return Ok(0);
            }
            Kind::Wait { parity } => {
                let wanted = if parity { operand & 1 != 0 } else { operand >> 63 != 0 };
                let is_done = word.parity != wanted;
                if is_done {
                    self.has_waited(who, address, mbarrier.order);
                }
                return Ok(is_done.into());
            }
            Kind::Copies { .. } => self.attach(warp, lane, address),
            _ => {}
        }
        word.change(kind, operand).map_err(|text| wrong(self, text))?;
        if let (Kind::Arrive { .. }, Some(checks)) = (kind, &mut self.checks) {
            if let Some(object) = checks.mbarriers.get_mut(&address) {
                object.open.arrive(&mut checks.clocks, who, mbarrier.order);
            }
            checks.log.interrupt(who.0);
        }
        self.finish(address, word);
        Ok(before.pack())
    }

    /// Makes a word ordinary memory again, which nothing has written.
    fn invalidate(&mut self, (warp, lane): (usize, usize), address: u64, at: u32) {
        self.set_word(address, 0);
        let Some(checks) = &mut self.checks else { return };
        checks.mbarriers.remove(&address);
        checks.serial += 1;
        let (time, serial) = (checks.clocks.time[warp], checks.serial);
        let kind = clocks::Kind::Write;
        let now = Moment { time, at, serial, warp: warp as u8, lane: lane as u8, kind, size: 8 };
        checks.shadow.replace(now, address as usize, 8);
        checks.shadow.mark_unwritten(address as usize, 8);
    }

    /// Orders what a lane does after it has seen that a phase is complete.
    fn has_waited(&mut self, who: (usize, usize), address: u64, order: Order) {
        let Some(checks) = &mut self.checks else { return };
        if let Some(object) = checks.mbarriers.get_mut(&address) {
            object.wait((&mut checks.clocks, &mut checks.shadow), who, order);
        }
        checks.log.interrupt(who.0);
    }

    /// Stores a word, and begins the next phase if the current one is complete.
    fn finish(&mut self, address: u64, mut word: Word) {
        if word.turn()
            && let Some(checks) = &mut self.checks
            && let Some(object) = checks.mbarriers.get_mut(&address)
        {
            object.turn();
        }
        self.set_word(address, word.pack());
    }

    /// The contents of an mbarrier. A fault if there is none at the address, or if its initialisation is not
    /// ordered before.
    fn mbarrier_at(&self, (warp, lane): (u32, usize), address: u64, at: u32) -> Result<Word, Box<Fault>> {
        let word = Word::unpack(self.word(address));
        let init = match &self.checks {
            Some(checks) => checks.mbarriers.get(&address).map(|object| Some(object.init)),
            None => Some(None),
        };
        let (Some(word), Some(init)) = (word, init) else {
            let text = format!(
                "nothing initialised the mbarrier at shared address {address:#x} (`mbarrier.init`), or it is \
                 no longer valid"
            );
            return Err(self.site.fault(warp, at, 1 << lane, FaultKind::Mbarrier(text)));
        };
        if let (Some(init), Some(checks)) = (init, &self.checks)
            && !checks.clocks.ordered(&init, warp as usize, lane as u8)
        {
            let place = (address, 8);
            let describe = |who| self.site.describe(crate::fault::Action::Atomic, Where::Shared, place, who);
            let first = describe(init.thread());
            let second = describe((warp, lane as u32, at));
            return Err(self.site.fault(warp, at, 1 << lane, FaultKind::Race { first, second }));
        }
        Ok(word)
    }

    /// Makes the current phase of an mbarrier wait for the copies (`cp.async`) that a lane began.
    fn attach(&mut self, warp: &mut Warp, lane: usize, address: u64) {
        let Some(checks) = &mut self.checks else { return };
        let Some(object) = checks.mbarriers.get_mut(&address) else { return };
        let (shadow, time) = (&checks.shadow, checks.clocks.time[warp.index as usize]);
        for copy in warp.copies.iter_mut().filter(|copy| copy.lanes >> lane & 1 != 0) {
            let to = copy.to[lane] as usize;
            if shadow.flies(to, copy.serial) {
                let serials = copy.serial..=copy.serial;
                object.flying.push(Landing { to, bytes: copy.bytes as usize, serials });
                // Any thread may wait there, and overwrite the source then. So the check of the source ends
                // here.
                checks.log.settle(&copy.records, time + 1);
            } else {
                copy.lanes &= !(1 << lane);
            }
        }
        warp.copies.retain(|copy| copy.lanes != 0);
    }

    /// Ends a bulk copy: its bytes have arrived, and the mbarrier's phase waits for them no longer.
    pub fn complete(
        &mut self,
        (warp, lane): (u32, usize),
        address: u64,
        copy: Landing,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        let mut word = self.mbarrier_at((warp, lane), address, at)?;
        if let Err(text) = word.expect(-(copy.bytes as i64)) {
            return Err(self.site.fault(warp, at, 1 << lane, FaultKind::Mbarrier(text)));
        }
        if copy.bytes > 0
            && let Some(checks) = &mut self.checks
            && let Some(object) = checks.mbarriers.get_mut(&address)
        {
            object.flying.push(copy);
        }
        self.finish(address, word);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_packed_without_loss() {
        for bytes in [0, 1, -1, COUNT as i64, -(COUNT as i64)] {
            for (parity, pending, expected) in [(false, 1, COUNT), (true, COUNT, 1), (true, 0, 0)] {
                let word = Word { parity, pending, expected, bytes };
                assert_eq!(Word::unpack(word.pack()), Some(word));
            }
        }
        assert_eq!(Word::unpack(0), None);
    }
}
