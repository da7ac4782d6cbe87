//! Values that nothing defines, carried on while instructions run, until one is used. (See `program::undefined`.)

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
    /// The lanes where it is.
    lanes: u32,
    /// How it came to be: no instruction wrote it, or one did from what is not defined.
    origin: Option<Origin>,
}

/// The instruction that read what nothing wrote.
#[derive(Clone, Copy, Debug)]
struct Origin {
    at: u32,
    /// What it read, of local memory: the offset and bytes.
    local: Option<(u64, u32)>,
    /// Whether the value has been computed with since, or only copied.
    computed: bool,
}

/// What is not defined of a value of the load or store that runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Void {
    pub lanes: u32,
    /// Where the first of them loads it from local memory.
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

    /// Sets the lanes of the mask.
    fn set_undefined(&mut self, number: Number, lanes: u32, mask: u32, origin: Option<Origin>) {
        if let Some(number) = number {
            let register = &mut self.undefined[number as usize];
            register.lanes = register.lanes & !mask | lanes & mask;
            if lanes & mask != 0 {
                register.origin = origin;
            }
        }
    }

    /// Notes what a load has given that is not defined.
    pub fn carry_loaded(&mut self, carry: &Carry, load: &Load, at: u32) {
        let void = std::mem::take(&mut self.void);
        for (&target, Void { lanes, offset }) in carry.targets.iter().zip(void) {
            let origin = Origin { at, local: Some((offset, load.size)), computed: false };
            self.set_undefined(target, lanes, lanes, Some(origin));
        }
    }
}

impl State<'_> {
    /// Before an instruction runs for the active lanes of a path's: that what it uses is defined; and which of its results
    /// will not be.
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

    /// That what a store writes to global memory in these lanes is defined. Copies of what nothing wrote may be: a variant's
    /// value where there is another variant, or bytes between fields. They are at fault only where it is all that is stored,
    /// and no byte or two of a structure, and came from local memory or from a register that no instruction ever writes.
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

    /// The fault of lanes that use a register which is not defined.
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
