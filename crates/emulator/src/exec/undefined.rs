//! Tracks undefined register values while instructions run, until one is used. (See `program::undefined`.)

use crate::{
    fault::{Action, Fault, FaultKind, Memory as Where},
    program::{
        code::{Load, Operation},
        undefined::{Carry, Number, Rule},
    },
};

use super::{block::State, warp::Warp};

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
struct Origin {
    at: u32,
    /// The offset and size, if it read local memory.
    local: Option<(u64, u32)>,
    /// Whether the value was used in a computation since, not only copied.
    computed: bool,
}

/// The undefined lanes of one value of the current load or store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Void {
    pub lanes: u32,
    /// The local offset that the first of these lanes loaded from.
    pub offset: u64,
}

impl Undefined {
    /// A register that nothing has written in these lanes.
    pub fn new(lanes: u32) -> Undefined {
        Undefined { lanes, origin: None }
    }

    fn origin(&self, at: u32) -> Origin {
        self.origin.unwrap_or(Origin { at, local: None, computed: false })
    }
}

impl Warp {
    fn lanes_of(&self, number: Number) -> u32 {
        number.map_or(0, |number| self.undefined[number as usize].lanes)
    }

    /// Sets whether the lanes of the mask are undefined.
    fn set_undefined(&mut self, number: Number, lanes: u32, mask: u32, origin: Option<Origin>) {
        if let Some(number) = number {
            let register = &mut self.undefined[number as usize];
            register.lanes = register.lanes & !mask | lanes & mask;
            if lanes & mask != 0 {
                register.origin = origin;
            }
        }
    }

    /// Records which lanes of a load's targets are undefined.
    pub fn carry_loaded(&mut self, carry: &Carry, load: &Load, at: u32) {
        let void = std::mem::take(&mut self.void);
        for (&target, Void { lanes, offset }) in carry.targets.iter().zip(void) {
            let origin = Origin { at, local: Some((offset, load.size)), computed: false };
            self.set_undefined(target, lanes, lanes, Some(origin));
        }
    }
}

impl State<'_> {
    /// Runs before an instruction. Checks that the values it uses are defined, and records which of its
    /// results are undefined.
    ///
    /// `mask` are the path's lanes, `active` those that the guard selects.
    pub fn carry(
        &mut self,
        warp: &mut Warp,
        carry: &Carry,
        [mask, active]: [u32; 2],
        at: u32,
    ) -> Result<(), Box<Fault>> {
        let operation = &self.grid.code.instructions[at as usize].operation;
        let unsure = warp.lanes_of(carry.guard) & mask;
        if unsure != 0 && !matches!(operation, Operation::Lanes(..)) {
            let what = match operation {
                Operation::Branch { .. } => "the branch",
                _ => "whether to run the instruction",
            };
            return Err(self.undefined(warp, carry.guard, unsure, (at, what)));
        }
        for &number in &carry.used {
            let lanes = warp.lanes_of(Some(number)) & active;
            if lanes != 0 {
                let what = match operation {
                    Operation::Load(_) | Operation::Store(_) => "the address",
                    Operation::Atomic(_) => "the address or an operand",
                    _ => "an operand",
                };
                return Err(self.undefined(warp, Some(number), lanes, (at, what)));
            }
        }
        for (void, &stored) in warp.void.iter_mut().zip(&carry.stored) {
            void.lanes = stored.map_or(0, |number| warp.undefined[number as usize].lanes) & active;
        }
        let lanes = |source: &Number| warp.lanes_of(*source);
        let undefined = match (carry.rule, carry.sources.as_slice()) {
            (_, []) => 0,
            (Rule::Select, [a, b, ..]) => {
                let Operation::Lanes(_, operands) = operation else { return Ok(()) };
                let first = warp.registers.predicate[operands[3] as usize];
                lanes(a) & first | lanes(b) & !first
            }
            (Rule::Any, sources) => sources.iter().fold(0, |all, source| all | lanes(source)),
            (Rule::Together, [source, ..]) if active & !lanes(source) != 0 => 0,
            (_, sources) => sources.iter().fold(u32::MAX, |all, source| all & lanes(source)),
        };
        let undefined = undefined & active | unsure;
        let from = carry.sources.iter().chain([&carry.guard]).find(|from| lanes(from) & undefined != 0);
        if let Some(from) = from.copied().flatten() {
            let mut origin = warp.undefined[from as usize].origin(at);
            origin.computed |= carry.rule == Rule::Any;
            for &target in &carry.targets {
                warp.set_undefined(target, undefined, active | unsure, Some(origin));
            }
        } else {
            carry.targets.iter().for_each(|&target| warp.set_undefined(target, 0, active, None));
        }
        for &defined in &carry.defined {
            warp.set_undefined(Some(defined), 0, active, None);
        }
        Ok(())
    }

    /// Checks that a store to global memory stores defined values.
    ///
    /// Copies of undefined values are allowed in general: an enum's other variant or a struct's padding. They
    /// are a fault if they are the only value stored, have at least 4 bytes, and came from local memory or a
    /// register that no instruction ever writes.
    pub fn check_defined(&self, warp: &Warp, size: u32, mask: u32, at: u32) -> Result<(), Box<Fault>> {
        let Some(carry) = &self.grid.code.instructions[at as usize].carry else { return Ok(()) };
        let alone = carry.stored.len() == 1 && size >= 4;
        for (number, void) in carry.stored.iter().zip(&warp.void) {
            let lanes = void.lanes & mask;
            let Some(register) = number.filter(|_| lanes != 0) else { continue };
            let wrong = match warp.undefined[register as usize].origin {
                Some(origin) => origin.computed || origin.local.is_some() && alone,
                None => self.grid.code.unwritten.contains(&register) && alone,
            };
            if wrong {
                return Err(self.undefined(warp, *number, lanes, (at, "what is stored")));
            }
        }
        Ok(())
    }

    fn undefined(
        &self,
        warp: &Warp,
        number: Number,
        mask: u32,
        (at, what): (u32, &'static str),
    ) -> Box<Fault> {
        let register = number.map_or(Undefined::new(0), |number| warp.undefined[number as usize]);
        let origin = register.origin(at);
        let kind = match origin.local {
            None => FaultKind::Register { what, used: self.grid.place(at) },
            Some(place) => {
                let who = (warp.index, mask.trailing_zeros(), origin.at);
                FaultKind::Unwritten(self.describe(Action::Read, Where::Local, place, who))
            }
        };
        self.fault(warp.index, origin.at, mask, kind)
    }
}
