//! A block: schedules its warps, and holds its barriers and shared memory.

use std::collections::{BTreeMap, HashMap};

use crate::{
    counters::Counters,
    fault::{Access, Action, Fault, FaultKind, Memory as Where},
    program::{
        call::Miscall,
        code::{
            Barrier, Collective, CollectiveKind, Guard, Instruction, Operation, Reduce, Reduction, Scope,
            Shuffle,
        },
        flow,
        undefined::{Carries, Tracked},
    },
};

use super::{
    clocks::{Clocks, Vector, WARPS},
    grid::Grid,
    lanes::{ALL, LANES, Register, collect, lanes},
    log::Log,
    mbarrier::Objects,
    reports::Reports,
    shadow::Shadow,
    undefined::{Origin, Undefined},
    warp::{NONE, Path, State as Waits, Warp},
};

/// Instructions that a warp issues before the next warp runs.
const TURN: u32 = 4096;
/// Polls in a row that saw no new value before a warp's turn ends and it counts as waiting.
const POLLS: u32 = 64;
/// Instructions of a block whose warps all wait at mbarriers, after which this is a deadlock. A kernel that
/// reads a clock may limit its waits by time, so that it has longer.
const STUCK: u64 = 1 << 20;
const STUCK_WITH_CLOCK: u64 = 1 << 24;
/// Barriers per block.
const BARRIERS: usize = 16;

/// A block that runs. A CPU thread reuses it for one block after another.
pub struct Block<'g> {
    warps: Vec<Warp>,
    state: State<'g>,
    /// Whether it waited for other blocks when it last ran.
    has_waited: bool,
    /// The instructions it had issued when all its warps had waited at mbarriers, if they still do.
    stuck_since: Option<u64>,
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
    pub grid: &'g Grid<'g>,
    pub number: u64,
    pub index: [u32; 3],
    pub shared: Vec<u8>,
    pub counters: Counters,
    pub checks: Option<Checks<'g>>,
    /// The index of the allocation of the last access.
    pub recent: usize,
    barriers: [BarrierState; BARRIERS],
    /// Threads that have not exited.
    live: u32,
    issued: u64,
    /// The most instructions that the block may issue.
    pub limit: u64,
    /// A fault that is reported unless a race turns out to be its cause.
    pub suspicion: Option<Box<Fault>>,
    /// The notes of the CPU thread that runs the block, while it runs.
    pub reports: Reports,
    /// The registers that are tracked, and what instructions do with them, if nearly all may be undefined.
    pub wide: Option<(&'g Tracked, &'g Carries)>,
    /// The origins of undefined values that were stored to shared memory, by address.
    pub stored_undefined: HashMap<usize, Origin>,
    random: Random,
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

/// The state of a barrier that threads have reached.
#[derive(Clone, Copy, Debug)]
struct BarrierState {
    arrived: u32,
    /// The number of threads that the barrier instruction names, if any.
    threads: Option<u32>,
    popc: u32,
    all: bool,
    any: bool,
    vector: Vector,
}

/// Why a block does not run on.
enum Run {
    Ended,
    Goes,
    Waits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Its turn is over.
    Turn,
    /// All its paths wait, or the warp has ended.
    Blocked,
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
            grid,
            number: 0,
            index: [0; 3],
            shared: vec![0; grid.reserved.end],
            counters: Counters::default(),
            checks,
            recent: 0,
            barriers: [BarrierState::NONE; BARRIERS],
            live: 0,
            issued: 0,
            limit: 0,
            suspicion: None,
            reports: Reports::default(),
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
        std::mem::swap(&mut self.state.reports, reports);
        let progress = self.run(turn);
        std::mem::swap(&mut self.state.reports, reports);
        progress
    }

    fn run(&mut self, turn: u64) -> Result<Progress<'g>, Box<Fault>> {
        if std::mem::take(&mut self.has_waited) {
            self.warps.iter_mut().for_each(|warp| (warp.polls, warp.has_seen) = (0, false));
        }
        let ran = loop {
            let ran = match self.state.grid.settings.seed {
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
        let suspicion = self.state.suspicion.take();
        match (ran, suspicion) {
            (Err(fault), Some(suspicion)) if !matches!(fault.kind, FaultKind::Race { .. }) => Err(suspicion),
            (Err(fault), _) => Err(fault),
            (Ok(_), suspicion) => {
                let next = Log::new(0, &self.state.grid.room);
                let log = self.state.checks.as_mut().map(|checks| std::mem::replace(&mut checks.log, next));
                Ok(Progress::Ended(Box::new(Done { log: log.and_then(Log::finish), suspicion })))
            }
        }
    }

    /// Whether only other blocks can let this one continue: all its ready warps poll memory.
    fn waits(&self) -> bool {
        let mut ready = self.warps.iter().filter(|warp| warp.ready().next().is_some()).peekable();
        ready.peek().is_some() && ready.all(|warp| warp.polls >= POLLS)
    }

    fn is_mbarrier(&self, at: u32) -> bool {
        let instruction = &self.state.grid.code.instructions[at as usize];
        matches!(instruction.operation, Operation::Mbarrier(_))
    }

    /// Whether all warps that are ready wait at mbarriers, so that no other block can let this one continue.
    #[cold]
    fn waits_at_mbarriers(&self) -> bool {
        let mut ready = self.warps.iter().filter(|warp| warp.ready().next().is_some());
        ready.all(|warp| warp.watched.is_some_and(|(at, ..)| self.is_mbarrier(at)))
    }

    /// Called if all warps wait at mbarriers. Returns a fault if they have done so for long.
    fn check_mbarriers(&mut self) -> Result<(), Box<Fault>> {
        let issued = self.state.issued;
        let patience = if self.state.grid.reads_clock { STUCK_WITH_CLOCK } else { STUCK };
        if self.warps.iter().any(|warp| warp.has_seen) {
            self.stuck_since = None;
        } else if issued - *self.stuck_since.get_or_insert(issued) >= patience {
            return Err(self.fault_of_waiting(FaultKind::Deadlock(self.waiting())));
        }
        self.warps.iter_mut().for_each(|warp| (warp.polls, warp.has_seen) = (0, false));
        Ok(())
    }

    /// Returns a fault if the launch's time limit has passed.
    fn check_time(&self) -> Result<(), Box<Fault>> {
        let grid = self.state.grid;
        if grid.start.elapsed() < grid.settings.time_limit {
            return Ok(());
        }
        let limit = grid.settings.time_limit;
        Err(self.fault_of_waiting(FaultKind::Timeout { limit, waiting: self.waiting() }))
    }

    /// Returns the fault of a grid whose first blocks wait for blocks that never start.
    pub fn never_resident(&self) -> Box<Fault> {
        let (resident, blocks) = (self.state.grid.resident, self.state.grid.blocks());
        self.fault_of_waiting(FaultKind::Resident { resident, blocks, waiting: self.waiting() })
    }

    /// Returns a fault where the block waits.
    fn fault_of_waiting(&self, kind: FaultKind) -> Box<Fault> {
        let ready = |path: &&Path| path.state == Waits::Ready;
        let warp = self.warps.iter().find(|warp| warp.paths.iter().any(|path| ready(&path)));
        let warp = warp.or(self.warps.first());
        let path = warp.and_then(|warp| warp.paths.iter().find(ready).or(warp.paths.first()));
        let (at, mask) = path.map_or((0, 0), |path| (path.at, path.mask));
        let warp = warp.map_or(0, |warp| warp.index);
        self.state.fault(warp, at, mask, kind)
    }

    pub fn number(&self) -> u64 {
        self.state.number
    }

    /// Starts the block of this number.
    pub fn start(&mut self, number: u64) {
        let grid = self.state.grid;
        let state = &mut self.state;
        state.number = number;
        state.index = grid.block_index(number);
        state.barriers = [BarrierState::NONE; BARRIERS];
        state.live = grid.threads;
        state.issued = 0;
        state.limit = grid.settings.instruction_limit;
        state.random =
            Random::new(grid.settings.seed.unwrap_or(0) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (self.has_waited, self.stuck_since) = (false, None);
        state.counters.blocks += 1;
        state.counters.warps += u64::from(grid.warps);
        state.wide = None;
        state.stored_undefined.clear();
        state.shared.fill(0);
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

    /// Releases the threads that wait at complete barriers.
    fn pass_barriers(&mut self) -> Result<(), Box<Fault>> {
        for index in 0..BARRIERS {
            let barrier = &self.state.barriers[index];
            let needed = barrier.threads.unwrap_or(self.state.live);
            if barrier.arrived == 0 || barrier.arrived < needed {
                continue;
            }
            let barrier = *barrier;
            self.state.counters.barriers += 1;
            self.state.barriers[index] = BarrierState::NONE;
            for warp in &mut self.warps {
                let mut passes = false;
                for path in 0..warp.paths.len() {
                    let Path { at, mask, state, .. } = warp.paths[path];
                    if state != Waits::Barrier(index as u32) {
                        continue;
                    }
                    passes = true;
                    if let Operation::Barrier(instruction) =
                        &self.state.grid.code.instructions[at as usize].operation
                        && let Some(reduction) = &instruction.reduction
                    {
                        barrier.deliver(reduction, warp, mask);
                    }
                    warp.paths[path].at += 1;
                    warp.paths[path].state = Waits::Ready;
                }
                if warp.torn {
                    warp.meet();
                }
                if passes && let Some(checks) = &mut self.state.checks {
                    checks.clocks.learn(warp.index as usize, &barrier.vector);
                }
            }
        }
        Ok(())
    }

    /// Describes where the threads are and what they wait for.
    fn waiting(&self) -> String {
        let mut groups: Vec<(u32, Waits, Option<u64>, u32)> = Vec::new();
        for warp in &self.warps {
            for path in &warp.paths {
                // Show a polling path at the load that it polls with.
                let polled = warp.watched.filter(|_| path.state == Waits::Ready && warp.polls > 0);
                let (at, address) = polled.map_or((path.at, None), |(at, address, _)| (at, Some(address)));
                match groups.iter_mut().find(|group| (group.0, group.1, group.2) == (at, path.state, address))
                {
                    Some(group) => group.3 += path.mask.count_ones(),
                    None => groups.push((at, path.state, address, path.mask.count_ones())),
                }
            }
        }
        let mut parts = Vec::new();
        let mut meeting: BTreeMap<u32, u32> = BTreeMap::new();
        for (at, mask) in self.warps.iter().flat_map(Warp::meeting) {
            *meeting.entry(at).or_default() += mask.count_ones();
        }
        for (at, count) in meeting {
            let place = self.state.grid.place(at);
            parts.push(format!("{count} threads wait at {place} for others of their warps"));
        }
        for (at, state, address, count) in groups {
            let place = self.state.grid.place(at);
            parts.push(match (state, address) {
                (Waits::Barrier(index), _) => format!("{count} threads wait for barrier {index} at {place}"),
                (Waits::Collective(mask), _) => {
                    format!("{count} threads wait for the lanes of mask {mask:#010x} at {place}")
                }
                (Waits::Ready, Some(address)) if self.is_mbarrier(at) => {
                    let missing = self.state.missing(address);
                    let which = format!("the mbarrier at shared address {address:#x}{missing}");
                    format!("{count} threads wait at {place} for {which}")
                }
                (Waits::Ready, Some(address)) => {
                    format!("{count} threads wait for a change at address {address:#x} at {place}")
                }
                (Waits::Ready, None) => format!("{count} threads run at {place}"),
            });
        }
        for (index, barrier) in
            self.state.barriers.iter().enumerate().filter(|(_, barrier)| barrier.arrived > 0)
        {
            let needed = barrier.threads.unwrap_or(self.state.live);
            parts.push(format!("barrier {index} has {} of {needed} threads", barrier.arrived));
        }
        parts.join("; ")
    }

    /// Called if no warp is ready. Returns `true` if all have ended, and `false` after it released lanes that
    /// waited for others of their warp. Otherwise this is a deadlock.
    fn ended(&mut self) -> Result<bool, Box<Fault>> {
        let mut any = false;
        for warp in &mut self.warps {
            any |= warp.go_on();
        }
        if any {
            return Ok(false);
        }
        let Some((warp, path)) =
            self.warps.iter().find_map(|warp| warp.paths.first().map(|path| (warp, path)))
        else {
            return Ok(true);
        };
        let text = self.waiting();
        let barrier = matches!(path.state, Waits::Barrier(_));
        let kind = if barrier { FaultKind::Barrier(text) } else { FaultKind::Deadlock(text) };
        Err(self.state.fault(warp.index, path.at, path.mask, kind))
    }
}

impl BarrierState {
    const NONE: BarrierState =
        BarrierState { arrived: 0, threads: None, popc: 0, all: false, any: false, vector: [0; WARPS + 1] };

    fn deliver(&self, reduction: &Reduction, warp: &mut Warp, mask: u32) {
        let value = match reduction.kind {
            Reduce::Popc => u64::from(self.popc),
            Reduce::And => u64::from(self.all),
            Reduce::Or => u64::from(self.any),
        };
        warp.registers.set_wide(reduction.target, &[value; LANES], mask);
    }
}

impl<'g> State<'g> {
    /// Runs a warp for at most `turn` instructions.
    fn run(&mut self, warp: &mut Warp, turn: u32) -> Result<Stop, Box<Fault>> {
        let may_be_undefined = !self.grid.code.tracked.lanes.is_empty();
        let mut left = turn;
        let stop = loop {
            if left == 0 {
                warp.had_turn(turn);
                break Stop::Turn;
            }
            let ready = match self.grid.settings.seed {
                None => warp.ready().next_back(),
                Some(_) => {
                    let pick = self.random.below(warp.ready().count());
                    warp.ready().nth(pick)
                }
            };
            let Some(path) = ready else {
                let waits = |path: &Path| matches!(path.state, Waits::Collective(_));
                if warp.paths.iter().any(waits) && warp.go_on() {
                    continue;
                }
                break Stop::Blocked;
            };
            self.follow(warp);
            match self.checks.is_some() && (may_be_undefined || self.wide.is_some()) {
                true => self.run_path::<true>(warp, path, &mut left)?,
                false => self.run_path::<false>(warp, path, &mut left)?,
            }
            if warp.polls >= POLLS && left > 0 {
                warp.had_turn(turn - left);
                break Stop::Turn;
            }
        };
        if self.issued > self.limit {
            let limit = self.limit;
            let path = warp.paths.first().map_or((0, 0), |path| (path.at, path.mask));
            let waiting = String::new(); // the block says, which has all warps
            return Err(self.fault(warp.index, path.0, path.1, FaultKind::Endless { limit, waiting }));
        }
        Ok(stop)
    }

    /// Runs a path until it ends, diverges, waits, or uses up its turn. `CARRIES` says whether to track
    /// undefined registers.
    fn run_path<const CARRIES: bool>(
        &mut self,
        warp: &mut Warp,
        path: usize,
        left: &mut u32,
    ) -> Result<(), Box<Fault>> {
        let instructions = self.grid.code.instructions.as_slice();
        let Path { mut at, mask, .. } = warp.paths[path];
        let meet = warp.join_of(path);
        let start = *left;
        let mut active_lanes = 0u64;
        let result = loop {
            if at == meet {
                warp.arrive(path);
                break Ok(());
            }
            if *left == 0 {
                warp.paths[path].at = at;
                warp.rotate(path);
                break Ok(());
            }
            *left -= 1;
            let Instruction { guard, operation, .. } = &instructions[at as usize];
            let carry = if CARRIES { self.carry_of(at) } else { None };
            let active = if *guard == Guard::NONE {
                mask
            } else {
                mask & (warp.registers.predicate[guard.predicate as usize] ^ guard.negated)
            };
            active_lanes += u64::from(active.count_ones());
            if CARRIES
                && let Some(carry) = carry
                && let Err(fault) = self.carry(warp, carry, [mask, active], at)
            {
                break Err(fault);
            }
            match operation {
                Operation::Lanes(lanes, operands) => {
                    if active != 0 {
                        lanes.run.run(&mut warp.registers, operands, active);
                    }
                    at += 1;
                }
                Operation::Branch { target, join } => {
                    self.counters.branches += 1;
                    if active == mask {
                        at = *target;
                    } else if active == 0 {
                        at += 1;
                    } else {
                        self.counters.divergent_branches += 1;
                        warp.diverge(path, active, *target, at + 1, *join);
                        break Ok(());
                    }
                }
                Operation::Load(load) => {
                    if active != 0
                        && let Err(fault) = self.load(warp, load, active, at)
                    {
                        break Err(fault);
                    }
                    // (The block may have begun to track more registers just now.)
                    let widens = !CARRIES && self.wide.is_some();
                    if (CARRIES || widens)
                        && let Some(carry) = self.carry_of(at)
                    {
                        warp.carry_loaded(carry, load, at);
                    }
                    at += 1;
                    if widens {
                        warp.paths[path].at = at;
                        break Ok(());
                    }
                    if warp.polls >= POLLS {
                        warp.rest(path, at);
                        break Ok(());
                    }
                }
                Operation::Store(store) => {
                    if active != 0
                        && let Err(fault) = self.store(warp, store, active, at)
                    {
                        break Err(fault);
                    }
                    if CARRIES && carry.is_some() {
                        warp.void = Default::default();
                    }
                    at += 1;
                }
                Operation::Atomic(atomic) => {
                    if active != 0
                        && let Err(fault) = self.atomic(warp, atomic, active, at)
                    {
                        break Err(fault);
                    }
                    at += 1;
                    if warp.polls >= POLLS {
                        warp.rest(path, at);
                        break Ok(());
                    }
                }
                Operation::Mbarrier(mbarrier) => {
                    if active != 0
                        && let Err(fault) = self.mbarrier(warp, mbarrier, active, at)
                    {
                        break Err(fault);
                    }
                    at += 1;
                    if warp.polls >= POLLS {
                        warp.rest(path, at);
                        break Ok(());
                    }
                }
                Operation::Bulk(bulk) => {
                    if active != 0
                        && let Err(fault) = self.bulk(warp, bulk, active, at)
                    {
                        break Err(fault);
                    }
                    at += 1;
                }
                Operation::Group(group) => {
                    if active != 0
                        && let Err(fault) = self.group(warp, *group, active, at)
                    {
                        break Err(fault);
                    }
                    at += 1;
                }
                Operation::Nothing => at += 1,
                Operation::Active(target) => {
                    warp.registers.set_wide(*target, &[u64::from(active); LANES], active);
                    at += 1;
                }
                Operation::Clock(target) => {
                    let now = self.issued + u64::from(start - *left);
                    warp.registers.set_wide(*target, &[now; LANES], active);
                    at += 1;
                }
                Operation::Fence(scope) => {
                    if active != 0 {
                        self.fence(warp.index as usize, *scope);
                    }
                    at += 1;
                }
                Operation::Exit => {
                    if !warp.bulk.is_empty()
                        && let Err(fault) = self.exit_with_bulk(warp, active, at)
                    {
                        break Err(fault);
                    }
                    self.live -= active.count_ones();
                    warp.paths[path].at = at + 1;
                    if active != 0 {
                        warp.exit(path, active);
                    }
                    break self.release_collectives(warp);
                }
                Operation::Trap(name) => {
                    if active != 0 {
                        break Err(self.fault(warp.index, at, active, FaultKind::Trap(name)));
                    }
                    at += 1;
                }
                Operation::Copy(copy) => {
                    if active != 0
                        && let Err(fault) = self.copy(warp, copy, active, at)
                    {
                        break Err(fault);
                    }
                    at += 1;
                }
                Operation::Commit => {
                    self.commit(warp, active);
                    at += 1;
                }
                Operation::Wait(groups) => {
                    self.wait(warp, *groups, active);
                    at += 1;
                }
                Operation::Print(print) => {
                    if active != 0
                        && let Err(fault) = self.print(warp, print, active, at)
                    {
                        break Err(fault);
                    }
                    at += 1;
                }
                Operation::Assert(assert) => {
                    if active != 0 {
                        break Err(self.assert(warp, assert, active, at));
                    }
                    at += 1;
                }
                Operation::Miscall(miscall) => {
                    if active != 0 {
                        break Err(self.miscall(warp, miscall, active, at));
                    }
                    at += 1;
                }
                Operation::Switch { index, targets, join } => {
                    warp.paths[path].at = at;
                    if let Err(fault) = self.switch(warp, path, active, (*index, targets, *join)) {
                        break Err(fault);
                    }
                    break Ok(());
                }
                Operation::Barrier(barrier) => {
                    warp.paths[path].at = at;
                    if active == 0 {
                        at += 1;
                        continue;
                    }
                    break self.barrier(warp, path, active, barrier);
                }
                Operation::Collective(collective) | Operation::Matrix(collective) => {
                    if active == 0 {
                        at += 1;
                        continue;
                    }
                    warp.paths[path].at = at;
                    if active != ALL
                        && matches!(operation, Operation::Matrix(_))
                        && let Err(fault) = self.check_whole(warp, path, active)
                    {
                        break Err(fault);
                    }
                    match self.collective(warp, path, active, collective) {
                        Ok(true) if !CARRIES && self.wide.is_some() => {
                            warp.paths[path].at = at + 1;
                            break Ok(());
                        }
                        Ok(true) => at += 1,
                        Ok(false) => break Ok(()),
                        Err(fault) => break Err(fault),
                    }
                }
            }
        };
        let issued = u64::from(start - *left);
        self.issued += issued;
        self.counters.warp_instructions += issued;
        self.counters.lane_instructions += active_lanes;
        result
    }

    /// The fault of a call of an address at which there is no function.
    #[cold]
    fn miscall(&self, warp: &Warp, miscall: &Miscall, active: u32, at: u32) -> Box<Fault> {
        let lane = active.trailing_zeros();
        let address = warp.registers.wide(miscall.pointer)[lane as usize];
        let text = match miscall.others.iter().find(|other| other.0 == address) {
            Some((_, why_not)) => why_not.clone(),
            None if address == 0 => "the pointer is null".to_owned(),
            None => format!("no function is at address {address:#x}"),
        };
        self.fault(warp.index, at, 1 << lane, FaultKind::Call(text))
    }

    fn switch(
        &mut self,
        warp: &mut Warp,
        path: usize,
        active: u32,
        (index, targets, join): (Register, &[u32], u32),
    ) -> Result<(), Box<Fault>> {
        self.counters.branches += 1;
        let Path { at, mask, .. } = warp.paths[path];
        let indices = warp.registers.wide(index);
        let mut groups: Vec<(u32, u32)> = Vec::new();
        let mut add = |target: u32, lanes: u32| match groups.iter_mut().find(|group| group.0 == target) {
            Some(group) => group.1 |= lanes,
            None => groups.push((target, lanes)),
        };
        if mask & !active != 0 {
            add(at + 1, mask & !active);
        }
        for lane in lanes(active) {
            match targets.get(indices[lane] as usize) {
                Some(&target) => add(target, 1 << lane),
                None => {
                    let text =
                        format!("`brx.idx` has index {} but only {} targets", indices[lane], targets.len());
                    return Err(self.fault(warp.index, at, 1 << lane, FaultKind::Launch(text)));
                }
            }
        }
        if let [(target, _)] = groups[..] {
            warp.paths[path].at = target;
            return Ok(());
        }
        self.counters.divergent_branches += 1;
        // Each step splits one group off from the rest.
        for pair in groups.windows(2) {
            let ((target, lanes), next) = (pair[0], pair[1].0);
            warp.diverge(path, lanes, target, next, join);
        }
        Ok(())
    }

    fn barrier(
        &mut self,
        warp: &mut Warp,
        path: usize,
        active: u32,
        barrier: &Barrier,
    ) -> Result<(), Box<Fault>> {
        let Path { at, mask, .. } = warp.paths[path];
        let fault = |kind: FaultKind| Err(self.fault(warp.index, at, active, kind));
        let mut leaving = 0;
        if barrier.aligned && active != warp.live && !warp.torn {
            let instructions = self.grid.code.instructions.as_slice();
            leaving = (warp.others(path).filter(|&(from, _)| flow::leaves(instructions, from, at)))
                .fold(0, |mask, (_, lanes)| mask | lanes);
        }
        let missing = warp.live & !active & !leaving;
        if barrier.aligned && missing != 0 && !warp.torn {
            return fault(FaultKind::Barrier(self.apart(warp, path, [active, missing])));
        }
        let first = active.trailing_zeros() as usize;
        let index = warp.registers.wide(barrier.index)[first];
        if index >= BARRIERS as u64 {
            return fault(FaultKind::BarrierOperand(format!(
                "there is no barrier {index}: the indices are 0 to 15"
            )));
        }
        let threads = match barrier.threads {
            None => None,
            Some(register) => {
                let threads = warp.registers.wide(register)[first] as u32;
                if threads == 0 || !threads.is_multiple_of(LANES as u32) {
                    let text = format!(
                        "a barrier for {threads} threads: the number must be a multiple of 32 above 0"
                    );
                    return fault(FaultKind::BarrierOperand(text));
                }
                Some(threads)
            }
        };
        let state = &mut self.barriers[index as usize];
        if state.arrived == 0 {
            *state = BarrierState { threads, all: true, ..BarrierState::NONE };
        } else if state.threads != threads {
            let text = format!("barrier {index} is in use for another number of threads");
            return Err(self.fault(warp.index, at, active, FaultKind::BarrierOperand(text)));
        }
        // A barrier with a thread count counts whole warps, including lanes that have exited or are about to.
        let waits = Waits::Barrier(index as u32);
        state.arrived += match threads {
            Some(_) => {
                let waiting = warp.paths.iter().filter(|path| path.state == waits);
                let here = waiting.fold(active, |mask, path| mask | path.mask);
                let gone = !warp.live | leaving;
                if here | gone == ALL { (active | gone).count_ones() } else { active.count_ones() }
            }
            None => active.count_ones(),
        };
        if let Some(reduction) = &barrier.reduction {
            let negated = if reduction.negated { ALL } else { 0 };
            let bits = (warp.registers.predicate[reduction.source.index as usize] ^ negated) & active;
            state.popc += bits.count_ones();
            state.all &= bits == active;
            state.any |= bits != 0;
        }
        if let Some(checks) = &mut self.checks {
            // GPUs order relaxed reads at a barrier as by a fence. CUDA's samples rely on it: they find the
            // last block with `atomicInc` and `__syncthreads`.
            if self.grid.fences {
                checks.clocks.acquire_seen(warp.index as usize);
                checks.log.acquire_seen(&checks.clocks, warp.index as usize);
            }
            let vector = checks.clocks.contribution(warp.index as usize);
            checks.log.interrupt(warp.index as usize);
            super::clocks::join(&mut state.vector, &vector);
        }
        if active != mask {
            // Lanes that the guard excludes wait behind the barrier.
            warp.diverge(path, active, at, at + 1, at + 1);
            let waiting = warp.paths.len() - 1;
            if barrier.waits {
                warp.paths[waiting].state = waits;
            } else {
                warp.paths[waiting].at += 1;
            }
        } else if barrier.waits {
            warp.paths[path].state = waits;
        } else {
            warp.paths[path].at += 1;
        }
        Ok(())
    }

    /// Describes where the lanes are that miss an instruction which needs them.
    fn apart(&self, warp: &Warp, path: usize, [here, missing]: [u32; 2]) -> String {
        let mut text =
            format!("lanes {} of the warp are here, lanes {} are not", shown(here), shown(missing));
        for (other, lanes) in warp.others(path).filter(|(_, lanes)| lanes & missing != 0) {
            text += &format!("; lanes {} are at {}", shown(lanes & missing), self.grid.place(other));
        }
        if missing & !warp.live != 0 {
            text += &format!("; lanes {} have ended or are not in the block", shown(missing & !warp.live));
        }
        text
    }

    /// Checks that an instruction for a whole warp has all its lanes. If lanes have left a join early, the
    /// others may still come.
    #[cold]
    fn check_whole(&self, warp: &Warp, path: usize, active: u32) -> Result<(), Box<Fault>> {
        let at = warp.paths[path].at;
        if warp.torn && warp.live == ALL {
            return Ok(());
        }
        let text = self.apart(warp, path, [active, !active]);
        Err(self.fault(warp.index, at, active, FaultKind::Aligned(text)))
    }

    fn fence(&mut self, warp: usize, scope: Scope) {
        if let Some(checks) = &mut self.checks {
            checks.clocks.fence(warp);
            checks.log.interrupt(warp);
            if scope != Scope::Block {
                checks.log.fence(&checks.clocks, warp);
            }
            checks.clocks.time[warp] += 1;
        }
    }

    /// Runs a collective instruction. Returns `true` if it is done. Returns `false` if the path waits for
    /// lanes of other paths, or if paths have changed so that the caller must look its path up again.
    fn collective(
        &mut self,
        warp: &mut Warp,
        path: usize,
        active: u32,
        collective: &Collective,
    ) -> Result<bool, Box<Fault>> {
        let Path { at, mask, .. } = warp.paths[path];
        let names = warp.registers.wide(collective.mask);
        let mut waiting = 0;
        let mut left = active;
        // Lanes that pass the same mask are a group. Diverged lanes may form several groups.
        while left != 0 {
            let named = names[left.trailing_zeros() as usize] as u32;
            let group = collect(|lane| names[lane] as u32 == named) & left;
            left &= !group;
            if named & group != group {
                let text = format!(
                    "lanes {} are not in the mask {named:#010x} that they pass",
                    shown(group & !named)
                );
                return Err(self.fault(warp.index, at, group & !named, FaultKind::Mask(text)));
            }
            let missing = named & warp.live & !group;
            if missing & mask & !active != 0 {
                let text = format!(
                    "lanes {} are in the mask {named:#010x}, but their guard leaves them out",
                    shown(missing & mask & !active)
                );
                return Err(self.fault(warp.index, at, group, FaultKind::Mask(text)));
            }
            if missing == 0 {
                self.together(warp, group, collective, at)?;
            } else {
                waiting |= group;
            }
        }
        if waiting == 0 {
            return Ok(true);
        }
        // Lanes that are done and lanes that the guard excludes wait behind the instruction.
        let mut left = waiting;
        while left != 0 {
            let named = names[left.trailing_zeros() as usize] as u32;
            let group = collect(|lane| names[lane] as u32 == named) & left;
            left &= !group;
            if group != warp.paths[path].mask {
                warp.diverge(path, group, at, at + 1, at + 1);
                // The group is now the last path. The remaining lanes stay at the instruction if they wait
                // too.
                let last = warp.paths.len() - 1;
                warp.paths[last].state = Waits::Collective(named);
                if left != 0 {
                    warp.paths[path].at = at;
                }
            } else {
                warp.paths[path].state = Waits::Collective(named);
            }
        }
        self.release_collectives(warp)?;
        Ok(false)
    }

    /// Releases the paths whose collective has all its lanes.
    fn release_collectives(&mut self, warp: &mut Warp) -> Result<(), Box<Fault>> {
        for path in 0..warp.paths.len() {
            let Some(&Path { at, state: Waits::Collective(named), .. }) = warp.paths.get(path) else {
                continue;
            };
            let instructions = self.grid.code.instructions.as_slice();
            let collective = |at: u32| match &instructions[at as usize].operation {
                Operation::Collective(collective) | Operation::Matrix(collective) => Some(collective),
                _ => None,
            };
            let Some(own) = collective(at) else { continue };
            let is_barrier = own.kind.is_barrier();
            let meets = |other: &Path| {
                other.state == Waits::Collective(named)
                    && (other.at == at
                        || is_barrier && collective(other.at).is_some_and(|other| other.kind.is_barrier()))
            };
            let here = warp.paths.iter().filter(|path| meets(path)).fold(0, |mask, path| mask | path.mask);
            if named & warp.live & !here != 0 {
                continue;
            }
            self.together(warp, here, own, at)?;
            for path in 0..warp.paths.len() {
                if meets(&warp.paths[path]) {
                    warp.paths[path].at += 1;
                    warp.paths[path].state = Waits::Ready;
                }
            }
        }
        warp.meet();
        Ok(())
    }

    /// Runs a collective for lanes that have all arrived.
    fn together(
        &mut self,
        warp: &mut Warp,
        active: u32,
        collective: &Collective,
        at: u32,
    ) -> Result<(), Box<Fault>> {
        if collective.kind.is_barrier() {
            if let Some(checks) = &mut self.checks {
                let part = (active != warp.live).then_some(active);
                checks.clocks.warp_barrier(warp.index as usize, part);
                checks.log.interrupt(warp.index as usize);
                if let Some(part) = part {
                    checks.log.warp_barrier(&checks.clocks, warp.index as usize, part);
                }
            }
            return Ok(());
        }
        if let CollectiveKind::Matrix(matrix) = &collective.kind {
            return self.matrix(warp, matrix, active, at);
        }
        let outside = super::collective::run(&mut warp.registers, collective, active);
        if outside == 0 || self.checks.is_none() {
            return Ok(());
        }
        if !matches!(collective.kind, CollectiveKind::Shuffle(Shuffle::Up | Shuffle::Down)) {
            let text = format!("lanes {} shuffle from lanes that do not take part", shown(outside));
            return Err(self.fault(warp.index, at, outside, FaultKind::Mask(text)));
        }
        // Scans and sums over part of a warp read past its end, and drop the value.
        self.carry_shuffled(warp, outside, at);
        Ok(())
    }

    /// Instructions that the block issued before the current turn.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    pub fn fault(&self, warp: u32, at: u32, mask: u32, kind: FaultKind) -> Box<Fault> {
        Box::new(Fault {
            kernel: self.grid.kernel.name.clone(),
            place: Some(self.grid.place(at)),
            block: self.index,
            threads: lanes(mask).map(|lane| self.grid.thread(warp, lane as u32)).collect(),
            seed: self.grid.settings.seed,
            kind,
        })
    }

    /// Describes an access for a fault.
    pub fn describe(
        &self,
        action: Action,
        memory: Where,
        (address, bytes): (u64, u32),
        (warp, lane, at): (u32, u32, u32),
    ) -> Box<Access> {
        let thread = self.grid.thread(warp, lane);
        let (name, scope) = self.grid.name_of_access(at);
        Box::new(Access {
            action,
            name,
            scope,
            memory,
            address,
            allocation: self.grid.allocation_at(memory, address),
            bytes,
            block: self.index,
            thread,
            place: self.grid.place(at),
        })
    }
}

/// Formats a lane mask for a message: `0-15,17`.
pub fn shown(mask: u32) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut lane = 0;
    while lane < LANES as u32 {
        if mask >> lane & 1 == 0 {
            lane += 1;
            continue;
        }
        let run = (!(mask >> lane)).trailing_zeros().min(LANES as u32 - lane);
        parts.push(if run == 1 { lane.to_string() } else { format!("{lane}-{}", lane + run - 1) });
        lane += run;
    }
    parts.join(",")
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
