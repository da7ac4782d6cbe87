//! mbarriers: their words in shared memory.
//!
//! The word's layout is the emulator's own; the PTX ISA calls it opaque. Asynchronous copies transfer their
//! bytes at once, and so a phase completes as early as it can.

use crate::{
    fault::{Fault, FaultKind},
    program::mbarrier::{COUNT, Kind, Mbarrier},
};

use super::{
    block::State,
    bulk::Transfer,
    hooks::{Event, Mbarrier as At},
    lanes::{LANES, lanes},
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
        (addresses, lanes): (&[u64; LANES], u32),
        at: u32,
    ) -> Result<(), Box<Fault>> {
        self.at_mbarrier(warp, At::Init { addresses, lanes, at })?;
        self.write_words(warp, (addresses, lanes), at)?;
        self.at_mbarrier(warp, At::Begin { addresses, lanes })
    }

    fn at_mbarrier(&mut self, warp: &Warp, event: At) -> Result<(), Box<Fault>> {
        self.tell(warp, &Event::Mbarrier(event))
    }

    /// Runs an operation by one lane. Returns the state or the predicate.
    fn operate(
        &mut self,
        warp: &mut Warp,
        mbarrier: &Mbarrier,
        (lane, address, operand): (usize, u64, u64),
        at: u32,
    ) -> Result<u64, Box<Fault>> {
        let index = warp.index;
        let wrong = |state: &Self, text| state.site.fault(index, at, 1 << lane, FaultKind::Mbarrier(text));
        let (kind, order) = (mbarrier.kind, mbarrier.order);
        if kind == Kind::Init {
            let word = Word::new(operand).map_err(|text| wrong(self, text))?;
            self.set_word(address, word.pack());
            return Ok(0);
        }
        let mut word = self.mbarrier_at(warp, (lane, address), at)?;
        let before = word;
        match kind {
            Kind::Invalidate => {
                // It is ordinary memory again, which nothing has written.
                self.set_word(address, 0);
                self.at_mbarrier(warp, At::Invalidate { lane, address, at })?;
                return Ok(0);
            }
            Kind::Wait { parity } => {
                let wanted = if parity { operand & 1 != 0 } else { operand >> 63 != 0 };
                let is_done = word.parity != wanted;
                if is_done {
                    self.at_mbarrier(warp, At::Seen { lane, address, order })?;
                }
                return Ok(is_done.into());
            }
            Kind::Copies { .. } => self.at_mbarrier(warp, At::Attach { lane, address })?,
            _ => {}
        }
        word.change(kind, operand).map_err(|text| wrong(self, text))?;
        if let Kind::Arrive { .. } = kind {
            self.at_mbarrier(warp, At::Arrive { lane, address, order })?;
        }
        self.finish(warp, address, word)?;
        Ok(before.pack())
    }

    /// Stores a word, and begins the next phase if the current one is complete.
    fn finish(&mut self, warp: &Warp, address: u64, mut word: Word) -> Result<(), Box<Fault>> {
        if word.turn() {
            self.at_mbarrier(warp, At::Turn { address })?;
        }
        self.set_word(address, word.pack());
        Ok(())
    }

    /// The contents of an mbarrier. A fault if there is none at the address.
    fn mbarrier_at(
        &mut self,
        warp: &Warp,
        (lane, address): (usize, u64),
        at: u32,
    ) -> Result<Word, Box<Fault>> {
        let Some(word) = Word::unpack(self.word(address)) else {
            return Err(self.site.no_mbarrier(warp.index, (lane, address), at));
        };
        self.at_mbarrier(warp, At::Use { lane, address, at })?;
        Ok(word)
    }

    /// Ends a bulk copy: its bytes have arrived, and the mbarrier's phase waits for them no longer.
    pub fn complete(&mut self, warp: &Warp, address: u64, transfer: &Transfer) -> Result<(), Box<Fault>> {
        let Transfer { lane, at, ref place, .. } = *transfer;
        let mut word = self.mbarrier_at(warp, (lane, address), at)?;
        if let Err(text) = word.expect(-(place.bytes as i64)) {
            return Err(self.site.fault(warp.index, at, 1 << lane, FaultKind::Mbarrier(text)));
        }
        self.at_mbarrier(warp, At::Land { address, transfer })?;
        self.finish(warp, address, word)
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
