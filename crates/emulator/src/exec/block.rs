//! A block: its warps by turns, its barriers, its shared memory.

use crate::{
    counters::Counters,
    fault::{Access, Action, Fault, FaultKind, Memory as Where},
    program::code::{
        Barrier, Collective, CollectiveKind, Guard, Instruction, Operation, Reduce, Reduction, Scope,
    },
};

use super::{
    clocks::{Clocks, Vector},
    grid::Grid,
    lanes::{ALL, LANES, Register, lanes},
    log::Log,
    shadow::Shadow,
    warp::{NONE, Path, State as Waits, Warp},
};

/// Instructions that a warp issues before the next has its turn.
const TURN: u32 = 4096;
/// Barriers of a block.
const BARRIERS: usize = 16;

/// What a CPU thread runs blocks with, one after another.
pub struct Block<'g> {
    warps: Vec<Warp>,
    state: State<'g>,
}

/// All of a block but its warps.
pub struct State<'g> {
    pub grid: &'g Grid<'g>,
    pub index: [u32; 3],
    pub shared: Vec<u8>,
    pub counters: Counters,
    pub checks: Option<Checks<'g>>,
    /// The allocation that the last access was in.
    pub recent: usize,
    barriers: [BarrierState; BARRIERS],
    /// Threads that have not ended.
    live: u32,
    issued: u64,
    /// Instructions that it may issue.
    pub limit: u64,
    /// A fault, if no race turns out to be behind it.
    pub suspicion: Option<Box<Fault>>,
    random: Random,
}

/// What a block leaves behind that has run to its end.
pub struct Done<'g> {
    /// What races need of it.
    pub log: Option<Log<'g>>,
    /// A fault, if no race in global memory turns out to be behind it.
    pub suspicion: Option<Box<Fault>>,
}

/// What the checks know of a block.
pub struct Checks<'g> {
    pub clocks: Clocks,
    pub shadow: Shadow,
    pub log: Log<'g>,
    /// Executions of instructions so far.
    pub serial: u32,
}

/// A barrier that threads have come to.
#[derive(Clone, Copy, Debug, Default)]
struct BarrierState {
    arrived: u32,
    /// How many it takes, where they said.
    threads: Option<u32>,
    popc: u32,
    all: bool,
    any: bool,
    vector: Vector,
}

/// Why a warp stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It has had its turn.
    Turn,
    /// All its paths wait, or it has ended.
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
            shadow: Shadow::new(grid.shared_bytes, grid.granule),
            log: Log::new(0, &grid.room),
            serial: 0,
        });
        let state = State {
            grid,
            index: [0; 3],
            shared: vec![0; grid.shared_bytes],
            counters: Counters::default(),
            checks,
            recent: 0,
            barriers: [BarrierState::default(); BARRIERS],
            live: 0,
            issued: 0,
            limit: 0,
            suspicion: None,
            random: Random(0),
        };
        Block { warps: warps.collect(), state }
    }

    /// What the blocks have counted so far.
    pub fn counters(&self) -> Counters {
        self.state.counters
    }

    /// Runs the block of this number.
    pub fn run(&mut self, number: u64) -> Result<Done<'g>, Box<Fault>> {
        self.start(number);
        let ran = match self.state.grid.settings.seed {
            None => self.run_in_order(),
            Some(_) => self.run_at_random(),
        };
        let suspicion = self.state.suspicion.take();
        match (ran, suspicion) {
            (Err(fault), Some(suspicion)) if !matches!(fault.kind, FaultKind::Race { .. }) => Err(suspicion),
            (Err(fault), _) => Err(fault),
            (Ok(()), suspicion) => {
                let next = Log::new(0, &self.state.grid.room);
                let log = self.state.checks.as_mut().map(|checks| std::mem::replace(&mut checks.log, next));
                Ok(Done { log: log.and_then(Log::finish), suspicion })
            }
        }
    }

    fn start(&mut self, number: u64) {
        let grid = self.state.grid;
        let state = &mut self.state;
        state.index = grid.block_index(number);
        state.barriers = [BarrierState::default(); BARRIERS];
        state.live = grid.threads;
        state.issued = 0;
        state.limit = grid.settings.instruction_limit;
        state.random =
            Random::new(grid.settings.seed.unwrap_or(0) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        state.counters.blocks += 1;
        state.counters.warps += u64::from(grid.warps);
        state.shared.fill(0);
        if let Some(checks) = &mut state.checks {
            checks.clocks.clear();
            checks.shadow.clear();
            checks.log = Log::new(number, &grid.room);
        }
        for warp in &mut self.warps {
            grid.enter_block(&mut warp.registers, state.index);
            warp.start(grid.lanes_of(warp.index));
        }
    }

    fn run_in_order(&mut self) -> Result<(), Box<Fault>> {
        loop {
            let mut moved = false;
            for index in 0..self.warps.len() {
                while self.warps[index].ready().next().is_some() {
                    moved = true;
                    let stop = self.state.run(&mut self.warps[index], TURN)?;
                    self.pass_barriers()?;
                    if stop == Stop::Turn {
                        break;
                    }
                }
            }
            if !moved {
                return self.ended();
            }
        }
    }

    fn run_at_random(&mut self) -> Result<(), Box<Fault>> {
        loop {
            let ready = self.warps.iter().filter(|warp| warp.ready().next().is_some()).count();
            if ready == 0 {
                return self.ended();
            }
            let pick = self.state.random.below(ready);
            let mut choice = self.warps.iter_mut().filter(|warp| warp.ready().next().is_some());
            if let Some(warp) = choice.nth(pick) {
                self.state.run(warp, 1)?;
            }
            self.pass_barriers()?;
        }
    }

    /// Lets go on who waits at a barrier that all have come to.
    fn pass_barriers(&mut self) -> Result<(), Box<Fault>> {
        for index in 0..BARRIERS {
            let barrier = self.state.barriers[index];
            let needed = barrier.threads.unwrap_or(self.state.live);
            if barrier.arrived == 0 || barrier.arrived < needed {
                continue;
            }
            self.state.counters.barriers += 1;
            self.state.barriers[index] = BarrierState::default();
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
                if passes && let Some(checks) = &mut self.state.checks {
                    checks.clocks.learn(warp.index as usize, &barrier.vector);
                }
            }
        }
        Ok(())
    }

    /// Nothing is ready: either all have ended, or this is a deadlock.
    fn ended(&self) -> Result<(), Box<Fault>> {
        let Some((warp, path)) =
            self.warps.iter().find_map(|warp| warp.paths.first().map(|path| (warp, path)))
        else {
            return Ok(());
        };
        let mut groups: Vec<(u32, Waits, u32)> = Vec::new();
        for path in self.warps.iter().flat_map(|warp| &warp.paths) {
            match groups.iter_mut().find(|group| (group.0, group.1) == (path.at, path.state)) {
                Some(group) => group.2 += path.mask.count_ones(),
                None => groups.push((path.at, path.state, path.mask.count_ones())),
            }
        }
        let mut parts = Vec::new();
        for (at, state, count) in groups {
            let what = match state {
                Waits::Barrier(index) => format!("barrier {index}"),
                Waits::Collective(mask) => format!("the lanes of mask {mask:#010x}"),
                Waits::Ready => "nothing".to_owned(),
            };
            parts.push(format!("{count} threads wait for {what} at {}", self.state.grid.place(at)));
        }
        for (index, barrier) in
            self.state.barriers.iter().enumerate().filter(|(_, barrier)| barrier.arrived > 0)
        {
            let needed = barrier.threads.unwrap_or(self.state.live);
            parts.push(format!("barrier {index} has {} of {needed} threads", barrier.arrived));
        }
        let text = parts.join("; ");
        let barrier = matches!(path.state, Waits::Barrier(_));
        let kind = if barrier { FaultKind::Barrier(text) } else { FaultKind::Deadlock(text) };
        Err(self.state.fault(warp.index, path.at, path.mask, kind))
    }
}

impl BarrierState {
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
    /// Runs a warp for at most so many instructions.
    fn run(&mut self, warp: &mut Warp, turn: u32) -> Result<Stop, Box<Fault>> {
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
            let Some(path) = ready else { break Stop::Blocked };
            self.run_path(warp, path, &mut left)?;
        };
        if self.issued > self.limit {
            let limit = self.limit;
            let path = warp.paths.first().map_or((0, 0), |path| (path.at, path.mask));
            return Err(self.fault(warp.index, path.0, path.1, FaultKind::Endless { limit }));
        }
        Ok(stop)
    }

    /// Runs a path until it ends, parts, waits, or its turn is over.
    fn run_path(&mut self, warp: &mut Warp, path: usize, left: &mut u32) -> Result<(), Box<Fault>> {
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
            let Instruction { guard, operation } = &instructions[at as usize];
            let active = if *guard == Guard::NONE {
                mask
            } else {
                mask & (warp.registers.predicate[guard.predicate as usize] ^ guard.negated)
            };
            active_lanes += u64::from(active.count_ones());
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
                        warp.part(path, active, *target, at + 1, *join);
                        break Ok(());
                    }
                }
                Operation::Load(load) => {
                    if active != 0
                        && let Err(fault) = self.load(warp, load, active, at)
                    {
                        break Err(fault);
                    }
                    at += 1;
                }
                Operation::Store(store) => {
                    if active != 0
                        && let Err(fault) = self.store(warp, store, active, at)
                    {
                        break Err(fault);
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
                    self.live -= active.count_ones();
                    warp.paths[path].at = at + 1;
                    if active != 0 {
                        warp.exit(path, active);
                    }
                    self.release_collectives(warp);
                    break Ok(());
                }
                Operation::Trap(name) => {
                    if active != 0 {
                        break Err(self.fault(warp.index, at, active, FaultKind::Trap(name)));
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
                Operation::Collective(collective) => {
                    if active == 0 {
                        at += 1;
                        continue;
                    }
                    warp.paths[path].at = at;
                    match self.collective(warp, path, active, collective) {
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
                    let text = format!("`brx.idx` to index {} of {} targets", indices[lane], targets.len());
                    return Err(self.fault(warp.index, at, 1 << lane, FaultKind::Launch(text)));
                }
            }
        }
        if let [(target, _)] = groups[..] {
            warp.paths[path].at = target;
            return Ok(());
        }
        self.counters.divergent_branches += 1;
        // One group after another leaves those that are left.
        for pair in groups.windows(2) {
            let ((target, lanes), next) = (pair[0], pair[1].0);
            warp.part(path, lanes, target, next, join);
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
        let fault = |text: String| Err(self.fault(warp.index, at, active, FaultKind::Barrier(text)));
        if barrier.aligned && active != warp.live && !warp.torn {
            let missing = warp.live & !active;
            return fault(format!(
                "lanes {} of the warp are here, lanes {} are not",
                shown(active),
                shown(missing)
            ));
        }
        let first = active.trailing_zeros() as usize;
        let index = warp.registers.wide(barrier.index)[first];
        if index >= BARRIERS as u64 {
            return fault(format!("there is no barrier {index}: they are 0 to 15"));
        }
        let threads = match barrier.threads {
            None => None,
            Some(register) => {
                let threads = warp.registers.wide(register)[first] as u32;
                if threads == 0 || !threads.is_multiple_of(LANES as u32) {
                    return fault(format!("a barrier for {threads} threads: a multiple of 32 is needed"));
                }
                Some(threads)
            }
        };
        let state = &mut self.barriers[index as usize];
        if state.arrived == 0 {
            *state = BarrierState { threads, all: true, ..BarrierState::default() };
        } else if state.threads != threads {
            let text = format!("barrier {index} is used with different numbers of threads at a time");
            return Err(self.fault(warp.index, at, active, FaultKind::Barrier(text)));
        }
        // A warp counts whole where the number of threads is given.
        state.arrived += match threads {
            Some(_) if barrier.aligned && !warp.torn => LANES as u32,
            _ => active.count_ones(),
        };
        if let Some(reduction) = &barrier.reduction {
            let negated = if reduction.negated { ALL } else { 0 };
            let bits = (warp.registers.predicate[reduction.source.index as usize] ^ negated) & active;
            state.popc += bits.count_ones();
            state.all &= bits == active;
            state.any |= bits != 0;
        }
        if let Some(checks) = &mut self.checks {
            let vector = checks.clocks.contribution(warp.index as usize);
            checks.log.interrupt(warp.index as usize);
            super::clocks::join(&mut state.vector, &vector);
        }
        if active != mask {
            // Lanes that the guard leaves out wait behind the barrier.
            warp.part(path, active, at, at + 1, at + 1);
            let waiting = warp.paths.len() - 1;
            if barrier.waits {
                warp.paths[waiting].state = Waits::Barrier(index as u32);
            } else {
                warp.paths[waiting].at += 1;
            }
        } else if barrier.waits {
            warp.paths[path].state = Waits::Barrier(index as u32);
        } else {
            warp.paths[path].at += 1;
        }
        Ok(())
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

    /// A collective. True where it is done, and false where the path waits for lanes on others, or where others' waiting
    /// ended so that the path is to be looked up anew.
    fn collective(
        &mut self,
        warp: &mut Warp,
        path: usize,
        active: u32,
        collective: &Collective,
    ) -> Result<bool, Box<Fault>> {
        let Path { at, mask, .. } = warp.paths[path];
        let first = active.trailing_zeros() as usize;
        let named = warp.registers.wide(collective.mask)[first] as u32;
        if named & active != active {
            let text =
                format!("lanes {} are not in the mask {named:#010x} that they pass", shown(active & !named));
            return Err(self.fault(warp.index, at, active & !named, FaultKind::Barrier(text)));
        }
        let missing = named & warp.live & !active;
        if missing == 0 {
            self.together(warp, active, collective);
            return Ok(true);
        }
        if missing & mask != 0 {
            let text =
                format!("lanes {} are in the mask, but their guard leaves them out", shown(missing & mask));
            return Err(self.fault(warp.index, at, active, FaultKind::Barrier(text)));
        }
        warp.paths[path].state = Waits::Collective(named);
        self.release_collectives(warp);
        Ok(false)
    }

    /// Lets go on those who wait for lanes of other paths, where all have come.
    fn release_collectives(&mut self, warp: &mut Warp) {
        for path in 0..warp.paths.len() {
            let Path { at, state: Waits::Collective(named), .. } = warp.paths[path] else { continue };
            let instructions = self.grid.code.instructions.as_slice();
            let collective = |at: u32| match &instructions[at as usize].operation {
                Operation::Collective(collective) => Some(collective),
                _ => None,
            };
            let Some(own) = collective(at) else { continue };
            let is_barrier = own.kind == CollectiveKind::Barrier;
            let meets = |other: &Path| {
                other.state == Waits::Collective(named)
                    && (other.at == at
                        || is_barrier
                            && collective(other.at)
                                .is_some_and(|other| other.kind == CollectiveKind::Barrier))
            };
            let here = warp.paths.iter().filter(|path| meets(path)).fold(0, |mask, path| mask | path.mask);
            // Lanes that a guard left out do not take part.
            if named & warp.live & !here != 0 {
                continue;
            }
            let active = here & named;
            self.together(warp, active, own);
            for path in 0..warp.paths.len() {
                if meets(&warp.paths[path]) {
                    warp.paths[path].at += 1;
                    warp.paths[path].state = Waits::Ready;
                }
            }
        }
    }

    /// What lanes of a warp do together.
    fn together(&mut self, warp: &mut Warp, active: u32, collective: &Collective) {
        if collective.kind == CollectiveKind::Barrier {
            if let Some(checks) = &mut self.checks {
                checks.clocks.warp_barrier(warp.index as usize);
                checks.log.interrupt(warp.index as usize);
            }
        } else {
            super::collective::run(&mut warp.registers, collective, active);
        }
    }

    /// Instructions that the block has issued before this turn.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    // What went wrong.

    pub fn fault(&self, warp: u32, at: u32, mask: u32, kind: FaultKind) -> Box<Fault> {
        Box::new(Fault {
            kernel: self.grid.kernel.name.clone(),
            place: Some(self.grid.place(at)),
            block: self.index,
            threads: lanes(mask).map(|lane| self.grid.thread(warp, lane as u32)).collect(),
            kind,
        })
    }

    /// An access, as a fault shows it.
    pub fn describe(
        &self,
        action: Action,
        memory: Where,
        (address, bytes): (u64, u32),
        (warp, lane, at): (u32, u32, u32),
    ) -> Box<Access> {
        let thread = self.grid.thread(warp, lane);
        Box::new(Access {
            action,
            memory,
            address,
            bytes,
            block: self.index,
            thread,
            place: self.grid.place(at),
        })
    }
}

/// Lanes as a message shows them: `0-15,17`.
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

/// A small generator (xorshift64*), so that a seed gives one order on all machines.
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    /// A number below `limit`, 0 for a limit of 0.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let value = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((value * limit as u64) >> 32) as usize
    }
}

const _: () = assert!(NONE == crate::program::code::END);
