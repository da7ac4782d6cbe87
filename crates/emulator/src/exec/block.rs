//! A block: schedules its warps.

use std::collections::HashMap;

use crate::{
    counters::Counters,
    fault::{Fault, FaultKind},
    program::undefined::{Carries, Tracked},
};

use super::{
    barrier::{BARRIERS, BarrierState},
    clocks::{Clocks, Vector, WARPS},
    grid::Grid,
    interpret::{POLLS, Stop},
    log::Log,
    mbarrier::Objects,
    reports::Reports,
    shadow::Shadow,
    site::Site,
    undefined::{Origin, Undefined},
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
    Ended(Box<Done<'g>>),
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
    pub counters: Counters,
    pub checks: Option<Checks<'g>>,
    pub barriers: [BarrierState; BARRIERS],
    /// Threads that have not exited.
    pub live: u32,
    /// The registers that are tracked, and what instructions do with them, if nearly all may be undefined.
    pub wide: Option<(&'g Tracked, &'g Carries)>,
    /// The origins of undefined values that were stored to shared memory, by address.
    pub stored_undefined: HashMap<usize, Origin>,
    pub random: Random,
}

/// The results of a block that has ended.
pub struct Done<'g> {
    /// The accesses and events for the search for races.
    pub log: Option<Log<'g>>,
    /// A fault that is reported unless a race in global memory turns out to be its cause.
    pub suspicion: Option<Box<Fault>>,
}

/// The state of a block's checks.
pub struct Checks<'g> {
    pub clocks: Clocks,
    pub shadow: Shadow,
    pub log: Log<'g>,
    pub mbarriers: Objects,
    /// What was written before a `fence.proxy.async`.
    pub proxy: Vector,
    /// Instructions executed so far.
    pub serial: u32,
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
        let checks = grid.settings.checks.then(|| Checks {
            clocks: Clocks::new(grid.warps),
            shadow: Shadow::new(grid.reserved.end, grid.granule),
            log: Log::new(0, &grid.room),
            mbarriers: Objects::new(),
            proxy: [0; WARPS + 1],
            serial: 0,
        });
        let state = State {
            site: Site::new(grid),
            counters: Counters::default(),
            checks,
            barriers: [BarrierState::NONE; BARRIERS],
            live: 0,
            wide: None,
            stored_undefined: HashMap::new(),
            random: Random(0),
        };
        Block { warps: warps.collect(), state, has_waited: false, stuck_since: None }
    }

    /// Returns and resets the counters.
    pub fn take_counters(&mut self) -> Counters {
        std::mem::take(&mut self.state.counters)
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
                let next = Log::new(0, &self.state.site.grid.room);
                let log = self.state.checks.as_mut().map(|checks| std::mem::replace(&mut checks.log, next));
                Ok(Progress::Ended(Box::new(Done { log: log.and_then(Log::finish), suspicion })))
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
        state.counters.blocks += 1;
        state.counters.warps += u64::from(grid.warps);
        state.wide = None;
        state.stored_undefined.clear();
        if let Some(checks) = &mut state.checks {
            checks.clocks.clear();
            checks.shadow.clear();
            // Cooperative groups take their part of it by atomic operations, each warp its bits.
            checks.shadow.mark_written(grid.reserved.start, grid.reserved.len());
            checks.log = Log::new(number, &grid.room);
            checks.mbarriers.clear();
            checks.proxy.fill(0);
        }
        for warp in &mut self.warps {
            grid.enter_block(&mut warp.registers, warp.index, number);
            warp.start(grid.lanes_of(warp.index));
            if state.checks.is_some() {
                warp.undefined.clear();
                warp.undefined.extend(grid.code.tracked.lanes.iter().map(|&lanes| Undefined::new(lanes)));
            }
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
