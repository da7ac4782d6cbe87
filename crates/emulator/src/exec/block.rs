//! A block: schedules its warps.

use crate::fault::{Fault, FaultKind};

use super::{
    barrier::{BARRIERS, BarrierState},
    grid::Grid,
    hooks::{Done, Hooks, Installed},
    interpret::{POLLS, Stop},
    reports::Reports,
    site::Site,
    warp::{NONE, Warp},
};

/// Instructions that a warp issues before the next warp runs.
const TURN: u32 = 4096;

/// A block that runs. A CPU thread reuses it for one block after another.
pub struct Block<'g> {
    pub warps: Vec<Warp>,
    pub state: State<'g>,
    /// Whether it waited for other blocks when it last ran.
    has_waited: bool,
    /// The instructions it had issued when all its warps had waited at mbarriers, if they still do.
    pub stuck_since: Option<u64>,
}

/// Where a block is after [`Block::resume`].
pub enum Progress<'g> {
    /// With a fault that is reported unless a race in global memory turns out to be its cause.
    Ended(Box<Done<'g>>, Option<Box<Fault>>),
    /// It has run all its instructions of this turn.
    Goes,
    /// All its warps poll memory.
    Waits {
        /// Whether none has read another value than when it last waited.
        stuck: bool,
    },
}

/// The state of a block without its warps, so that both can be borrowed at once.
pub struct State<'g> {
    pub site: Site<'g>,
    pub hooks: Installed<'g>,
    pub barriers: [BarrierState; BARRIERS],
    /// Threads that have not exited.
    pub live: u32,
    pub random: Random,
}

/// Why a block does not run on.
enum Run {
    Ended,
    Goes,
    Waits,
}

impl<'g> Block<'g> {
    pub fn new(grid: &'g Grid<'g>) -> Self {
        let warps = (0..grid.warps).map(|index| {
            let mut warp = Warp::new(index, grid.registers(index), grid.kernel.local_bytes);
            warp.live = grid.lanes_of(index);
            warp
        });
        let state = State {
            site: Site::new(grid),
            hooks: Hooks::new(grid),
            barriers: [BarrierState::NONE; BARRIERS],
            live: 0,
            random: Random(0),
        };
        Block { warps: warps.collect(), state, has_waited: false, stuck_since: None }
    }

    /// Runs the block until it ends or waits for other blocks; with a seed, for `turn` instructions at most.
    pub fn resume(&mut self, turn: u64, reports: &mut Reports) -> Result<Progress<'g>, Box<Fault>> {
        std::mem::swap(&mut self.state.site.reports, reports);
        let progress = self.run(turn);
        std::mem::swap(&mut self.state.site.reports, reports);
        progress
    }

    fn run(&mut self, turn: u64) -> Result<Progress<'g>, Box<Fault>> {
        if std::mem::take(&mut self.has_waited) {
            self.warps.iter_mut().for_each(|warp| (warp.polls, warp.has_seen) = (0, false));
        }
        let ran = loop {
            let ran = match self.state.site.grid.settings.seed {
                None => self.run_in_order(),
                Some(_) => self.run_at_random(turn),
            };
            if !matches!(ran, Ok(Run::Waits)) || !self.waits_at_mbarriers() {
                break ran;
            }
            self.check_time()?;
            self.check_mbarriers()?;
        };
        match ran {
            Ok(Run::Goes) => return Ok(Progress::Goes),
            Ok(Run::Waits) => {
                self.check_time()?;
                self.has_waited = true;
                return Ok(Progress::Waits { stuck: !self.warps.iter().any(|warp| warp.has_seen) });
            }
            Ok(Run::Ended) | Err(_) => {}
        }
        let ran = ran.map_err(|mut fault| {
            if let FaultKind::Endless { waiting, .. } = &mut fault.kind {
                *waiting = self.waiting();
            }
            fault
        });
        let suspicion = self.state.site.suspicion.take();
        match (ran, suspicion) {
            (Err(fault), Some(suspicion)) if !matches!(fault.kind, FaultKind::Race { .. }) => Err(suspicion),
            (Err(fault), _) => Err(fault),
            (Ok(_), suspicion) => {
                let mut done = Box::<Done>::default();
                self.state.hooks.end_block(&mut done);
                Ok(Progress::Ended(done, suspicion))
            }
        }
    }

    pub fn number(&self) -> u64 {
        self.state.site.number
    }

    /// Starts the block of this number.
    pub fn start(&mut self, number: u64) {
        let grid = self.state.site.grid;
        let state = &mut self.state;
        state.site.start(number);
        state.barriers = [BarrierState::NONE; BARRIERS];
        state.live = grid.threads;
        state.random =
            Random::new(grid.settings.seed.unwrap_or(0) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (self.has_waited, self.stuck_since) = (false, None);
        state.hooks.begin_block(&state.site);
        for warp in &mut self.warps {
            grid.enter_block(&mut warp.registers, warp.index, number);
            warp.start(grid.lanes_of(warp.index));
        }
    }

    fn run_in_order(&mut self) -> Result<Run, Box<Fault>> {
        loop {
            let (mut moved, mut long) = (false, false);
            for index in 0..self.warps.len() {
                while self.warps[index].ready().next().is_some() {
                    moved = true;
                    self.warps[index].polls = 0;
                    let stop = self.state.run(&mut self.warps[index], TURN)?;
                    self.pass_barriers()?;
                    if stop == Stop::Turn {
                        long = true;
                        break;
                    }
                }
            }
            if !moved && self.ended()? {
                return Ok(Run::Ended);
            }
            if long {
                if self.waits() {
                    return Ok(Run::Waits);
                }
                self.check_time()?;
            }
        }
    }

    /// Like [`Self::run_in_order`], with a random warp for each instruction, and `turn` instructions at most.
    fn run_at_random(&mut self, turn: u64) -> Result<Run, Box<Fault>> {
        for step in 1u64.. {
            let ready = self.warps.iter().filter(|warp| warp.ready().next().is_some()).count();
            if ready == 0 {
                match self.ended()? {
                    true => return Ok(Run::Ended),
                    false => continue,
                }
            }
            let pick = self.state.random.below(ready);
            let mut choice = self.warps.iter_mut().filter(|warp| warp.ready().next().is_some());
            if let Some(warp) = choice.nth(pick) {
                self.state.run(warp, 1)?;
            }
            self.pass_barriers()?;
            if step.is_multiple_of(u64::from(POLLS)) && self.waits() {
                return Ok(Run::Waits);
            }
            let is_over = step >= turn;
            if is_over || step.is_multiple_of(u64::from(TURN)) {
                self.check_time()?;
            }
            if is_over {
                return Ok(Run::Goes);
            }
        }
        Ok(Run::Goes)
    }
}

/// A xorshift64* generator: a seed gives the same order on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let value = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((value * limit as u64) >> 32) as usize
    }
}

const _: () = assert!(NONE == crate::program::code::END);
