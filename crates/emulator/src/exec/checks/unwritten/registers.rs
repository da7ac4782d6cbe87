//! Tracks undefined register values while instructions run, until one is used. (See `program::undefined`.)

use std::collections::HashMap;

use crate::{
    exec::{access::Request, collective::shuffled, grid::Grid, lanes::collect, site::Site, warp::Warp},
    fault::{Action, Fault, FaultKind, Level, Memory as Where},
    program::{
        code::{Load, Operation},
        flow::only_computes,
        undefined::{Carry, Number, Rule, Tracked},
    },
};

use super::Unwritten;

/// The undefined values of a warp.
#[derive(Clone, Debug)]
pub struct Track {
    /// The state of each register that may be undefined, by number.
    registers: Vec<Undefined>,
    /// Whether these are the registers of [`Unwritten::wide`].
    is_wide: bool,
    /// The undefined lanes of each value of the current load or store.
    pub void: [Void; 8],
    /// Whether each byte of local memory is defined, lane by lane.
    pub local: Vec<bool>,
}

/// A register that may be undefined.
#[derive(Clone, Copy, Debug)]
pub struct Undefined {
    /// The lanes in which it is undefined.
    lanes: u32,
    /// The origin of the value. `None` if no instruction wrote the register.
    origin: Option<Origin>,
}

/// The instruction that read an undefined value.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    at: u32,
    cause: Cause,
    /// Whether the value was used in a computation since, not only copied.
    computed: bool,
}

/// What an instruction read that is undefined.
#[derive(Clone, Copy, Debug)]
enum Cause {
    Register,
    /// Memory, at an offset, and the size.
    Memory(Where, u64, u32),
    /// The value of a lane that did not take part in the shuffle.
    Shuffle,
    /// What racing stores left: one of [`Site::clashes`].
    Clash(usize),
}

/// The undefined lanes of one value of the current load or store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Void {
    pub lanes: u32,
    /// Where the first of these lanes loaded from.
    pub from: Option<(Where, u64)>,
    /// The origin of what the first of these lanes loaded, if it was stored to shared memory undefined.
    pub origin: Option<Origin>,
}

impl Origin {
    /// What racing stores have left in shared memory, the last of them at `at`.
    pub fn of_clash(at: u32, clash: usize) -> Origin {
        Origin { at, cause: Cause::Clash(clash), computed: false }
    }

    pub fn is_clash(&self) -> bool {
        matches!(self.cause, Cause::Clash(_))
    }

    /// The same after a computation.
    pub fn computed(self) -> Origin {
        Origin { computed: true, ..self }
    }
}

impl Undefined {
    /// A register that nothing has written in these lanes.
    pub fn new(lanes: u32) -> Undefined {
        Undefined { lanes, origin: None }
    }

    fn origin(&self, at: u32) -> Origin {
        self.origin.unwrap_or(Origin { at, cause: Cause::Register, computed: false })
    }
}

impl Track {
    pub fn new(local_bytes: usize) -> Track {
        let local = vec![false; local_bytes];
        Track { registers: Vec::new(), is_wide: false, void: [Void::default(); 8], local }
    }

    /// Starts a block.
    pub fn start(&mut self, tracked: &Tracked) {
        self.registers.clear();
        self.registers.extend(tracked.lanes.iter().map(|&lanes| Undefined::new(lanes)));
        self.is_wide = false;
        self.void = [Void::default(); 8];
        self.local.fill(false);
    }

    pub fn lanes_of(&self, number: Number) -> u32 {
        number.map_or(0, |number| self.registers[number as usize].lanes)
    }

    /// Sets whether the lanes of the mask are undefined.
    pub fn set_undefined(&mut self, number: Number, lanes: u32, mask: u32, origin: Option<Origin>) {
        if let Some(number) = number {
            let register = &mut self.registers[number as usize];
            register.lanes = register.lanes & !mask | lanes & mask;
            if lanes & mask != 0 {
                register.origin = origin;
            }
        }
    }

    /// Records which lanes of a load's targets are undefined.
    pub fn carry_loaded(&mut self, carry: &Carry, load: &Load, at: u32) {
        let void = std::mem::take(&mut self.void);
        for (&target, Void { lanes, from, origin }) in carry.targets.iter().zip(void) {
            let cause =
                from.map_or(Cause::Register, |(memory, offset)| Cause::Memory(memory, offset, load.size));
            let origin = origin.unwrap_or(Origin { at, cause, computed: false });
            self.set_undefined(target, lanes, lanes, Some(origin));
        }
    }

    /// Returns the undefined lanes of each value of a load, and the origin of the first, for matrices.
    pub fn take_void(&mut self, at: u32, size: u32) -> ([u32; 8], Option<Origin>) {
        let void = std::mem::take(&mut self.void);
        let origin = void.iter().find(|void| void.lanes != 0).map(|void| {
            let cause =
                void.from.map_or(Cause::Register, |(memory, offset)| Cause::Memory(memory, offset, size));
            void.origin.unwrap_or(Origin { at, cause, computed: false })
        });
        (void.map(|void| void.lanes), origin)
    }

    /// Sets the undefined lanes of each value of a store, for matrices.
    pub fn set_void(&mut self, lanes: [u32; 8], origin: Option<Origin>) {
        self.void = lanes.map(|lanes| Void { lanes, from: None, origin });
    }

    /// The origin of a register's value.
    pub fn origin(&self, register: u32, at: u32) -> Origin {
        self.registers[register as usize].origin(at)
    }

    /// The origin of the value that a store stores to this element.
    pub fn origin_of_stored(&self, carry: &Carry, element: usize) -> Option<Origin> {
        let number = carry.stored.get(element).copied().flatten();
        number.and_then(|number| self.registers[number as usize].origin)
    }

    /// Tracks other registers from now on, among which are those that it tracked before.
    fn track(&mut self, before: &Tracked, now: &Tracked) {
        let so_far: HashMap<_, _> = before.registers.iter().zip(self.registers.drain(..)).collect();
        let state = |register| so_far.get(register).copied().unwrap_or(Undefined::new(0));
        self.registers = now.registers.iter().map(state).collect();
        self.is_wide = true;
    }
}

impl<'g> Unwritten<'g> {
    /// How an instruction treats values that may be undefined.
    pub fn carry_of(&self, grid: &'g Grid<'g>, at: u32) -> Option<&'g Carry> {
        match self.wide {
            Some((_, carries)) => carries[at as usize].as_deref(),
            None => grid.code.instructions[at as usize].carry.as_deref(),
        }
    }

    /// Tracks nearly all registers of the block from now on, as the block has read shared memory that nothing
    /// wrote, or a lane that has ended. Returns `false` if that cannot be.
    #[cold]
    pub fn widen(&mut self, grid: &'g Grid<'g>) -> bool {
        let code = grid.code;
        if self.wide.is_none()
            && let Some(wide) = &code.wide
        {
            let (tracked, carries) = wide.get(&code.instructions);
            self.wide = Some((tracked, carries));
            self.follows = true;
        }
        self.wide.is_some()
    }

    /// Makes a warp track what the block does.
    pub fn follow(&mut self, grid: &Grid, warp: &Warp) {
        if let Some((tracked, _)) = self.wide
            && !self.track(warp).is_wide
        {
            self.track(warp).track(&grid.code.tracked, tracked);
        }
    }

    /// Records the lanes whose shuffle has read a lane that does not take part.
    #[cold]
    pub fn carry_shuffled(&mut self, grid: &'g Grid<'g>, warp: &Warp, lanes: u32, at: u32) {
        if !self.widen(grid) {
            return;
        }
        self.follow(grid, warp);
        let Some(carry) = self.carry_of(grid, at) else { return };
        let origin = Origin { at, cause: Cause::Shuffle, computed: false };
        for &target in &carry.targets {
            self.track(warp).set_undefined(target, lanes, lanes, Some(origin));
        }
    }

    /// Runs before an instruction. Checks that the values it uses are defined, and records which of its
    /// results are undefined.
    ///
    /// `mask` are the path's lanes, `active` those that the guard selects.
    pub fn carry(
        &mut self,
        site: &mut Site,
        warp: &Warp,
        carry: &Carry,
        [mask, active]: [u32; 2],
        at: u32,
    ) -> Result<(), Box<Fault>> {
        let track = &mut self.warps[warp.index as usize];
        let operation = &site.grid.code.instructions[at as usize].operation;
        let mut unsure = track.lanes_of(carry.guard) & mask;
        if unsure != 0 && !matches!(operation, Operation::Lanes(..)) {
            let what = match operation {
                Operation::Branch { .. } => "the branch",
                _ => "whether to run the instruction",
            };
            track.used(site, warp, (carry.guard, unsure), (at, what))?;
            unsure = 0;
        }
        for &number in &carry.used {
            let lanes = track.lanes_of(Some(number)) & active;
            if lanes != 0 {
                let what = match operation {
                    Operation::Load(_) | Operation::Store(_) | Operation::Matrix(_) => "the address",
                    Operation::Atomic(_) => "the address or an operand",
                    _ => "an operand",
                };
                track.used(site, warp, (Some(number), lanes), (at, what))?;
            }
        }
        if matches!(operation, Operation::Matrix(_)) {
            return Ok(());
        }
        for (place, &stored) in carry.stored.iter().enumerate() {
            track.void[place].lanes = track.lanes_of(stored) & active;
        }
        let lanes = |source: &Number| track.lanes_of(*source);
        let undefined = match (carry.rule, carry.sources.as_slice()) {
            (_, []) => 0,
            (Rule::Select, [a, b, ..]) => {
                let Operation::Lanes(_, operands) = operation else { return Ok(()) };
                let first = warp.registers.predicate[operands[3] as usize];
                lanes(a) & first | lanes(b) & !first
            }
            (Rule::Together, [source, ..])
                if let Operation::Collective(collective) = operation
                    && let Some(from) = shuffled(&warp.registers, collective) =>
            {
                let undefined = lanes(source);
                collect(|lane| undefined >> from[lane].0 & 1 != 0)
            }
            (Rule::Any, sources) => sources.iter().fold(0, |all, source| all | lanes(source)),
            (Rule::Together, [source, ..]) if active & !lanes(source) != 0 => 0,
            (_, sources) => sources.iter().fold(u32::MAX, |all, source| all & lanes(source)),
        };
        let undefined = undefined & active | unsure;
        let from = carry.sources.iter().chain([&carry.guard]).find(|from| lanes(from) & undefined != 0);
        if let Some(from) = from.copied().flatten() {
            let mut origin = track.origin(from, at);
            origin.computed |= carry.rule == Rule::Any;
            for &target in &carry.targets {
                track.set_undefined(target, undefined, active | unsure, Some(origin));
            }
        } else {
            carry.targets.iter().for_each(|&target| track.set_undefined(target, 0, active, None));
        }
        for &defined in &carry.defined {
            track.set_undefined(Some(defined), 0, active, None);
        }
        Ok(())
    }

    /// Checks that a store to global memory stores defined values.
    ///
    /// Copies of undefined values are allowed in general: an enum's other variant or a struct's padding. They
    /// are a fault if they are the only value stored, have at least 4 bytes or came from shared memory, and
    /// came from memory or a register that no instruction ever writes; or if they were computed with.
    pub fn check_defined(
        &mut self,
        site: &mut Site<'g>,
        warp: &Warp,
        request: &Request,
    ) -> Result<(), Box<Fault>> {
        let Request { size, mask, at, .. } = *request;
        let Some(carry) = self.carry_of(site.grid, at) else { return Ok(()) };
        let tracked = self.wide.map_or(&site.grid.code.tracked, |(tracked, _)| tracked);
        let track = self.track(warp);
        let is_alone = carry.stored.len() == 1;
        for (place, &number) in carry.stored.iter().enumerate() {
            let lanes = track.void[place].lanes & mask;
            let Some(register) = number.filter(|_| lanes != 0) else { continue };
            let is_wrong = match track.registers[register as usize].origin {
                Some(Origin { computed: true, .. } | Origin { cause: Cause::Clash(_), .. }) => true,
                Some(Origin { cause: Cause::Memory(Where::Shared, ..) | Cause::Shuffle, .. }) => is_alone,
                Some(Origin { cause: Cause::Memory(..), .. }) => is_alone && size >= 4,
                Some(Origin { cause: Cause::Register, .. }) => false,
                None => tracked.unwritten.contains(&register) && is_alone && size >= 4,
            };
            if is_wrong {
                track.used(site, warp, (number, lanes), (at, "what is stored"))?;
            }
        }
        Ok(())
    }
}

impl Track {
    /// An instruction depends on a register in lanes in which it is undefined.
    ///
    /// If it came from shared or global memory, the block runs on: if another thread wrote there without
    /// synchronisation, the race is the real fault. A branch on a value from shared memory is a note if its
    /// ways only compute: merges go on past the last item, and drop what they find there.
    pub fn used(
        &mut self,
        site: &mut Site,
        warp: &Warp,
        (number, mask): (Number, u32),
        (at, what): (u32, &'static str),
    ) -> Result<(), Box<Fault>> {
        let register = number.map_or(Undefined::new(0), |number| self.registers[number as usize]);
        let origin = register.origin(at);
        let pair = (None, origin.at, at);
        if site.reports.is_settled(pair) {
            self.set_undefined(number, 0, mask, None);
            return Ok(());
        }
        let used = site.grid.place(at);
        let kind = match origin.cause {
            Cause::Register => FaultKind::Register { what, used },
            Cause::Shuffle => FaultKind::Shuffle { what, used },
            Cause::Clash(clash) => return Err(site.clashes[clash].1.clone()),
            Cause::Memory(memory, offset, size) => {
                let who = (warp.index, mask.trailing_zeros(), origin.at);
                let access = site.describe(Action::Read, memory, (offset, size), who);
                match memory {
                    Where::Shared if only_computes(&site.grid.code.instructions, at) => {
                        FaultKind::UnwrittenBranch { access, used }
                    }
                    _ => FaultKind::Unwritten(access),
                }
            }
        };
        let fault = site.fault(warp.index, origin.at, mask, kind);
        if fault.level() == Level::Note {
            self.set_undefined(number, 0, mask, None);
            return site.reports.settle(site.grid, pair, fault);
        }
        if site.grid.settings.allows(&fault) {
            self.set_undefined(number, 0, mask, None);
            return Ok(());
        }
        if !matches!(origin.cause, Cause::Memory(Where::Shared | Where::Global, ..)) {
            return Err(fault);
        }
        site.suspect(fault);
        self.set_undefined(number, 0, mask, None);
        Ok(())
    }
}
