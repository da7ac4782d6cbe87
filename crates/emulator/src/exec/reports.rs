//! Findings after which a launch can go on: faults end it, notes are kept, and what the settings allow is
//! dropped.

use std::collections::HashSet;

use crate::fault::{Access, Action, Fault, FaultKind, Level, Memory as Where};

use super::{
    access::Request,
    grid::Grid,
    lanes::{LANES, lanes},
    site::Site,
    warp::Warp,
};

/// Why two accesses conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conflict {
    Race,
    SameValue,
    SwapRead,
    Overwrite,
    Clash,
    Rounding,
    Unfinished,
    MbarrierWord,
    Constant,
    ConstantFirst,
}

impl Conflict {
    pub fn kind(self, first: Box<Access>, second: Box<Access>) -> FaultKind {
        match self {
            Conflict::Race => FaultKind::Race { first, second },
            Conflict::SameValue => FaultKind::SameValue { first, second },
            Conflict::SwapRead => FaultKind::SwapRead { first, second },
            Conflict::Overwrite => FaultKind::Overwrite { first, second },
            Conflict::Clash => FaultKind::Clash { first, second },
            Conflict::Rounding => FaultKind::Rounding { first, second },
            Conflict::Unfinished => FaultKind::Unfinished { first, second },
            Conflict::MbarrierWord => FaultKind::MbarrierWord { first, second },
            Conflict::Constant => FaultKind::Constant { first, second },
            Conflict::ConstantFirst => FaultKind::ConstantFirst { first, second },
        }
    }
}

/// A conflict between two instructions; without a conflict, an unwritten value that one reads and the other
/// branches on.
pub type Pair = (Option<Conflict>, u32, u32);

/// The notes so far, one for each pair of instructions.
#[derive(Debug, Default)]
pub struct Reports {
    notes: Vec<(Pair, Box<Fault>)>,
    /// The pairs that have been noted, or that the settings allow.
    settled: HashSet<Pair>,
}

impl Reports {
    /// Whether [`settle`](Self::settle) has succeeded for this pair.
    pub fn is_settled(&self, pair: Pair) -> bool {
        self.settled.contains(&pair)
    }

    /// Keeps a note, or drops what the settings allow. Any other fault is the error.
    pub fn settle(&mut self, grid: &Grid, pair: Pair, fault: Box<Fault>) -> Result<(), Box<Fault>> {
        let is_allowed = grid.settings.allows(&fault);
        if !is_allowed && fault.level() == Level::Fault {
            return Err(fault);
        }
        if self.settled.insert(pair) && !is_allowed {
            self.notes.push((pair, fault));
        }
        Ok(())
    }

    /// Adds what another CPU thread has found.
    pub fn join(&mut self, mut other: Reports) {
        other.notes.retain(|(pair, _)| !self.settled.contains(pair));
        self.notes.append(&mut other.notes);
        self.settled.extend(other.settled);
    }

    pub fn into_notes(self) -> Vec<Fault> {
        self.notes.into_iter().map(|(_, note)| *note).collect()
    }
}

impl Site<'_> {
    /// Describes the access of the first lane of a mask, for a fault.
    pub fn access(&self, request: &Request, mask: u32) -> Box<Access> {
        let lane = mask.trailing_zeros();
        let place = (request.addresses[lane as usize], request.bytes);
        self.describe(request.action(), request.memory(), place, (request.warp, lane, request.at))
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

    /// The fault of a lane that uses what is no mbarrier.
    pub fn no_mbarrier(&self, warp: u32, (lane, address): (usize, u64), at: u32) -> Box<Fault> {
        let text = format!(
            "nothing initialised the mbarrier at shared address {address:#x} (`mbarrier.init`), or it is no \
             longer valid"
        );
        self.fault(warp, at, 1 << lane, FaultKind::Mbarrier(text))
    }

    pub fn read_only(&self, request: &Request, mask: u32) -> Box<Fault> {
        let access = self.access(request, mask);
        self.fault(request.warp, request.at, mask, FaultKind::ReadOnly(access))
    }

    pub fn out_of_bounds(&self, request: &Request, mask: u32, near: String) -> Box<Fault> {
        let access = self.access(request, mask);
        self.fault(request.warp, request.at, mask, FaultKind::OutOfBounds { access, near })
    }

    /// Describes where the lanes are that miss an instruction which needs them.
    pub fn apart(&self, warp: &Warp, path: usize, [here, missing]: [u32; 2]) -> String {
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
