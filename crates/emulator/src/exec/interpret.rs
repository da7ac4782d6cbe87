//! Runs the instructions of a warp.

use crate::{
    fault::{Fault, FaultKind},
    program::{
        call::Miscall,
        code::{Guard, Instruction, Operation},
    },
};

use super::{
    block::State,
    hooks::{Bulk, Event, Hooks},
    lanes::{ALL, LANES, Register, lanes},
    warp::{Path, State as Waits, Warp},
};

/// Polls in a row that saw no new value before a warp's turn ends and it counts as waiting.
pub const POLLS: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its turn is over.
    Turn,
    /// All its paths wait, or the warp has ended.
    Blocked,
}

impl State<'_> {
    /// Runs a warp for at most `turn` instructions.
    pub fn run(&mut self, warp: &mut Warp, turn: u32) -> Result<Stop, Box<Fault>> {
        let mut left = turn;
        let stop = loop {
            if left == 0 {
                warp.had_turn(turn);
                break Stop::Turn;
            }
            let ready = match self.site.grid.settings.seed {
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
            self.hooks.resume(&self.site, warp);
            match self.hooks.follows() {
                true => self.run_path::<true>(warp, path, &mut left)?,
                false => self.run_path::<false>(warp, path, &mut left)?,
            }
            if warp.polls >= POLLS && left > 0 {
                warp.had_turn(turn - left);
                break Stop::Turn;
            }
        };
        if self.site.issued > self.site.limit {
            let limit = self.site.limit;
            let path = warp.paths.first().map_or((0, 0), |path| (path.at, path.mask));
            let waiting = String::new(); // the block says, which has all warps
            return Err(self.site.fault(warp.index, path.0, path.1, FaultKind::Endless { limit, waiting }));
        }
        Ok(stop)
    }

    /// Runs a path until it ends, diverges, waits, or uses up its turn. `FOLLOWS` says whether to
    /// tell the hooks of each instruction.
    fn run_path<const FOLLOWS: bool>(
        &mut self,
        warp: &mut Warp,
        path: usize,
        left: &mut u32,
    ) -> Result<(), Box<Fault>> {
        let instructions = self.site.grid.code.instructions.as_slice();
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
            let active = if *guard == Guard::NONE {
                mask
            } else {
                mask & (warp.registers.predicate[guard.predicate as usize] ^ guard.negated)
            };
            active_lanes += u64::from(active.count_ones());
            if FOLLOWS && let Err(fault) = self.hooks.instruction(&mut self.site, warp, [mask, active], at) {
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
                    self.hooks.branched(active != mask && active != 0);
                    if active == mask {
                        at = *target;
                    } else if active == 0 {
                        at += 1;
                    } else {
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
                    at += 1;
                    // Hooks may follow the block from here on.
                    if !FOLLOWS && self.hooks.follows() {
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
                    let event = Bulk::Group { group: *group, lanes: active, at };
                    if active != 0
                        && let Err(fault) = self.tell(warp, &Event::Bulk(event))
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
                    let now = self.site.issued + u64::from(start - *left);
                    warp.registers.set_wide(*target, &[now; LANES], active);
                    at += 1;
                }
                Operation::Fence(scope) => {
                    if active != 0
                        && let Err(fault) = self.tell(warp, &Event::Fence(*scope))
                    {
                        break Err(fault);
                    }
                    at += 1;
                }
                Operation::Exit => {
                    if active != 0
                        && let Err(fault) = self.tell(warp, &Event::Exit { lanes: active, at })
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
                        break Err(self.site.fault(warp.index, at, active, FaultKind::Trap(name)));
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
                    if let Err(fault) = self.tell(warp, &Event::Commit { lanes: active }) {
                        break Err(fault);
                    }
                    at += 1;
                }
                Operation::Wait(groups) => {
                    let event = Event::Wait { groups: *groups, lanes: active };
                    if let Err(fault) = self.tell(warp, &event) {
                        break Err(fault);
                    }
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
                        Ok(true) if !FOLLOWS && self.hooks.follows() => {
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
        self.site.issued += issued;
        self.hooks.issued(issued, active_lanes);
        result
    }

    /// Tells the hooks of an event. Not inlined, to keep the loop over instructions small.
    #[inline(never)]
    pub fn tell(&mut self, warp: &Warp, event: &Event) -> Result<(), Box<Fault>> {
        self.hooks.order(&mut self.site, warp, event)
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
        self.site.fault(warp.index, at, 1 << lane, FaultKind::Call(text))
    }

    fn switch(
        &mut self,
        warp: &mut Warp,
        path: usize,
        active: u32,
        (index, targets, join): (Register, &[u32], u32),
    ) -> Result<(), Box<Fault>> {
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
                    return Err(self.site.fault(warp.index, at, 1 << lane, FaultKind::Launch(text)));
                }
            }
        }
        self.hooks.branched(groups.len() > 1);
        if let [(target, _)] = groups[..] {
            warp.paths[path].at = target;
            return Ok(());
        }
        // Each step splits one group off from the rest.
        for pair in groups.windows(2) {
            let ((target, lanes), next) = (pair[0], pair[1].0);
            warp.diverge(path, lanes, target, next, join);
        }
        Ok(())
    }
}
