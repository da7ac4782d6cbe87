//! Block barriers.

use crate::{
    fault::{Fault, FaultKind},
    program::{
        code::{Barrier, Operation, Reduce, Reduction},
        flow,
    },
};

use super::{
    block::{Block, State},
    hooks::{Event, Hooks},
    lanes::{ALL, LANES},
    warp::{Path, State as Waits, Warp},
};

/// Barriers per block.
pub const BARRIERS: usize = 16;

/// The state of a barrier that threads have reached.
#[derive(Clone, Copy, Debug)]
pub struct BarrierState {
    pub arrived: u32,
    /// The number of threads that the barrier instruction names, if any.
    pub threads: Option<u32>,
    popc: u32,
    all: bool,
    any: bool,
}

impl BarrierState {
    pub const NONE: BarrierState =
        BarrierState { arrived: 0, threads: None, popc: 0, all: false, any: false };

    fn deliver(&self, reduction: &Reduction, warp: &mut Warp, mask: u32) {
        let value = match reduction.kind {
            Reduce::Popc => u64::from(self.popc),
            Reduce::And => u64::from(self.all),
            Reduce::Or => u64::from(self.any),
        };
        warp.registers.set_wide(reduction.target, &[value; LANES], mask);
    }
}

impl Block<'_> {
    /// Releases the threads that wait at complete barriers.
    pub fn pass_barriers(&mut self) -> Result<(), Box<Fault>> {
        for index in 0..BARRIERS {
            let barrier = &self.state.barriers[index];
            let needed = barrier.threads.unwrap_or(self.state.live);
            if barrier.arrived == 0 || barrier.arrived < needed {
                continue;
            }
            let barrier = *barrier;
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
                        &self.state.site.grid.code.instructions[at as usize].operation
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
                if passes {
                    let State { hooks, site, .. } = &mut self.state;
                    hooks.order(site, warp, &Event::Pass { barrier: index })?;
                }
            }
            self.state.hooks.complete(index);
        }
        Ok(())
    }
}

impl State<'_> {
    pub fn barrier(
        &mut self,
        warp: &mut Warp,
        path: usize,
        active: u32,
        barrier: &Barrier,
    ) -> Result<(), Box<Fault>> {
        let Path { at, mask, .. } = warp.paths[path];
        let fault = |kind: FaultKind| Err(self.site.fault(warp.index, at, active, kind));
        let mut leaving = 0;
        if barrier.aligned && active != warp.live && !warp.torn {
            let instructions = self.site.grid.code.instructions.as_slice();
            leaving = (warp.others(path).filter(|&(from, _)| flow::leaves(instructions, from, at)))
                .fold(0, |mask, (_, lanes)| mask | lanes);
        }
        let missing = warp.live & !active & !leaving;
        if barrier.aligned && missing != 0 && !warp.torn {
            return fault(FaultKind::Barrier(self.site.apart(warp, path, [active, missing])));
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
            return Err(self.site.fault(warp.index, at, active, FaultKind::BarrierOperand(text)));
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
        self.tell(warp, &Event::Arrive { barrier: index as usize })?;
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
}
