//! The block whose instructions run: what the interpreter and the hooks share.

use std::ops::Range;

use crate::fault::{Access, Fault};

use super::{
    block::Random,
    grid::Grid,
    reports::{Conflict, Pair, Reports},
};

/// Instructions that a block may still run after a read of unwritten memory: garbage can make it loop
/// forever.
const AFTERMATH: u64 = 1 << 22;

/// A block's place in its grid, its shared memory, and what is found in it.
pub struct Site<'g> {
    pub grid: &'g Grid<'g>,
    pub number: u64,
    pub index: [u32; 3],
    pub shared: Vec<u8>,
    /// The index of the allocation of the last access.
    pub recent: usize,
    /// Instructions that the block issued before the current turn.
    pub issued: u64,
    /// The most instructions that the block may issue.
    pub limit: u64,
    /// A fault that is reported unless a race turns out to be its cause.
    pub suspicion: Option<Box<Fault>>,
    /// Races of stores to shared memory. A race becomes a fault when something uses the value that it left.
    pub clashes: Vec<(Pair, Box<Fault>)>,
    /// The bytes that the current store leaves unspecified, each with the index of its clash; without one, if
    /// they were so before.
    pub unsettled: Vec<(Range<usize>, Option<usize>)>,
    /// The notes of the CPU thread that runs the block, while it runs.
    pub reports: Reports,
}

impl<'g> Site<'g> {
    pub fn new(grid: &'g Grid<'g>) -> Self {
        Site {
            grid,
            number: 0,
            index: [0; 3],
            shared: vec![0; grid.reserved.end],
            recent: 0,
            issued: 0,
            limit: 0,
            suspicion: None,
            clashes: Vec::new(),
            unsettled: Vec::new(),
            reports: Reports::default(),
        }
    }

    /// Starts the block of this number.
    pub fn start(&mut self, number: u64) {
        self.number = number;
        self.index = self.grid.block_index(number);
        self.issued = 0;
        self.clashes.clear();
        self.unsettled.clear();
        self.limit = self.grid.settings.instruction_limit;
        let Some(seed) = self.grid.settings.seed else { return self.shared.fill(0) };
        // What depends on bytes that nothing wrote differs from seed to seed.
        let mut random = Random::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
        let (open, reserved) = self.shared.split_at_mut(self.grid.reserved.start);
        open.fill_with(|| random.below(256) as u8);
        reserved.fill(0);
    }

    /// Records that two stores race and leave these bytes of shared memory unspecified. The two instructions
    /// have a note.
    #[cold]
    pub fn clash(
        &mut self,
        bytes: Range<usize>,
        [first, second]: [Box<Access>; 2],
        who: (u32, u8),
        at: [u32; 2],
    ) -> Result<(), Box<Fault>> {
        let pair = (Some(Conflict::Clash), at[0], at[1]);
        let known = self.clashes.iter().position(|(known, _)| *known == pair);
        let index = match known {
            Some(index) => index,
            // An author has allowed it.
            None if self.reports.is_settled((Some(Conflict::Race), at[0], at[1])) => return Ok(()),
            None => {
                let fault =
                    self.fault(who.0, at[1], 1 << who.1, Conflict::Race.kind(first.clone(), second.clone()));
                if self.grid.settings.allows(&fault) {
                    return self.reports.settle(self.grid, (Some(Conflict::Race), at[0], at[1]), fault);
                }
                let note = self.fault(who.0, at[1], 1 << who.1, Conflict::Clash.kind(first, second));
                self.reports.settle(self.grid, pair, note)?;
                self.clashes.push((pair, fault));
                self.clashes.len() - 1
            }
        };
        self.unsettled.push((bytes, Some(index)));
        Ok(())
    }

    /// Records a fault that is reported unless there is a race. The first one counts.
    pub fn suspect(&mut self, fault: Box<Fault>) {
        if self.suspicion.is_none() && !self.grid.settings.allows(&fault) {
            self.suspicion = Some(fault);
            self.limit = self.limit.min(self.issued + AFTERMATH);
        }
    }
}
