//! The block whose instructions run: what the interpreter and the hooks share.

use crate::fault::Fault;

use super::{block::Random, grid::Grid, reports::Reports};

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
            reports: Reports::default(),
        }
    }

    /// Starts the block of this number.
    pub fn start(&mut self, number: u64) {
        self.number = number;
        self.index = self.grid.block_index(number);
        self.issued = 0;
        self.limit = self.grid.settings.instruction_limit;
        let Some(seed) = self.grid.settings.seed else { return self.shared.fill(0) };
        // What depends on bytes that nothing wrote differs from seed to seed.
        let mut random = Random::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
        let (open, reserved) = self.shared.split_at_mut(self.grid.reserved.start);
        open.fill_with(|| random.below(256) as u8);
        reserved.fill(0);
    }

    /// Records a fault that is reported unless there is a race. The first one counts.
    pub fn suspect(&mut self, fault: Box<Fault>) {
        if self.suspicion.is_none() && !self.grid.settings.allows(&fault) {
            self.suspicion = Some(fault);
            self.limit = self.limit.min(self.issued + AFTERMATH);
        }
    }
}
