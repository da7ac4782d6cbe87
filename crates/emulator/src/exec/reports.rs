//! Findings after which a launch can go on: faults end it, notes are kept, and what the settings allow is
//! dropped.

use std::collections::HashSet;

use crate::fault::{Access, Fault, FaultKind, Level};

use super::grid::Grid;

/// Why two accesses conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Conflict {
    Race,
    SameValue,
    SwapRead,
    Unfinished,
    MbarrierWord,
    Constant,
}

impl Conflict {
    pub fn kind(self, first: Box<Access>, second: Box<Access>) -> FaultKind {
        match self {
            Conflict::Race => FaultKind::Race { first, second },
            Conflict::SameValue => FaultKind::SameValue { first, second },
            Conflict::SwapRead => FaultKind::SwapRead { first, second },
            Conflict::Unfinished => FaultKind::Unfinished { first, second },
            Conflict::MbarrierWord => FaultKind::MbarrierWord { first, second },
            Conflict::Constant => FaultKind::Constant { first, second },
        }
    }
}

/// A conflict between two instructions.
pub type Pair = (Conflict, u32, u32);

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
