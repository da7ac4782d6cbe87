//! The form that instructions run in.

use std::fmt;

use crate::exec::lanes::{Lanes, Operands, Register};

/// Where generic addresses of the memories that are no device memory start. No host address is near.
pub const SHARED_WINDOW: u64 = 1 << 60;
/// As [`SHARED_WINDOW`].
pub const LOCAL_WINDOW: u64 = 2 << 60;
/// As [`SHARED_WINDOW`].
pub const PARAM_WINDOW: u64 = 3 << 60;
/// What a window holds: addresses of 32 bits.
pub const WINDOW: u64 = 1 << 32;

/// No instruction: where a join is looked for, the thread's end.
pub const END: u32 = u32::MAX;

/// A kernel's instructions.
#[derive(Debug)]
pub struct Code {
    pub instructions: Vec<Instruction>,
    /// Where each was written.
    pub places: Vec<(u32, Option<(u32, u32)>)>,
    /// How many registers there are, those that hold constants included.
    pub registers: crate::exec::lanes::Counts,
    /// Registers that hold the same value all the time.
    pub constants: Vec<(Register, Constant)>,
    /// Registers that may be read before they are written: 0 when a block starts, so that runs repeat.
    pub cleared: Vec<Register>,
}

/// A value that is known before the first instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    Bits(u64),
    Special(Special),
    /// The address of a module's variable, plus an offset.
    Address(String, i64),
    /// The address of dynamic shared memory, plus an offset.
    Dynamic(i64),
}

/// A special register that keeps its value while a block runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    Lane,
    Warp,
    Warps,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    DynamicShared,
    TotalShared,
    Smid,
    Nsmid,
    Gridid,
}

/// One instruction.
#[derive(Debug)]
pub struct Instruction {
    pub guard: Guard,
    pub operation: Operation,
}

/// Which lanes take part: those where the predicate differs from `negated`, all where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    pub predicate: u32,
    /// All ones where the guard is negated.
    pub negated: u32,
}

impl Guard {
    /// No guard.
    pub const NONE: Guard = Guard { predicate: u32::MAX, negated: 0 };
}

/// What an instruction does.
#[derive(Debug)]
pub enum Operation {
    Lanes(Lanes, Operands),
    /// Where the warp goes, and where paths that part here meet again.
    Branch {
        target: u32,
        join: u32,
    },
    Switch {
        index: Register,
        targets: Vec<u32>,
        join: u32,
    },
    Exit,
    Trap(&'static str),
    Load(Box<Load>),
    Store(Box<Store>),
    Atomic(Box<Atomic>),
    Barrier(Box<Barrier>),
    Collective(Box<Collective>),
    /// `activemask`.
    Active(Register),
    /// `clock`, `globaltimer`: instructions that the block has issued.
    Clock(Register),
    Fence(Scope),
    Nothing,
}

/// A memory that an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
}

/// `[base+offset]`.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub space: Space,
    pub base: Option<Register>,
    pub offset: u64,
}

/// How an access is ordered with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Weak,
    Volatile,
    Relaxed,
    Acquire,
    Release,
    AcqRel,
}

impl Order {
    pub fn acquires(self) -> bool {
        matches!(self, Order::Acquire | Order::AcqRel)
    }

    pub fn releases(self) -> bool {
        matches!(self, Order::Release | Order::AcqRel)
    }
}

/// The threads that an order holds among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Block,
    Device,
    /// All devices, and the host.
    System,
}

#[derive(Debug)]
pub struct Load {
    pub address: Address,
    pub order: Order,
    pub scope: Scope,
    /// Bytes of one value: 1, 2, 4 or 8.
    pub size: u32,
    pub signed: bool,
    /// A value each, one after another in memory.
    pub targets: Vec<Register>,
}

#[derive(Debug)]
pub struct Store {
    pub address: Address,
    pub order: Order,
    pub scope: Scope,
    pub size: u32,
    pub sources: Vec<Register>,
}

/// A new value from the old one and the operands, all zero-extended.
pub type Update = Box<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>;

/// `atom` and `red`.
pub struct Atomic {
    pub address: Address,
    pub order: Order,
    pub scope: Scope,
    pub size: u32,
    pub update: Update,
    /// What it is in global memory, where that differs.
    pub update_global: Option<Update>,
    pub target: Option<Register>,
    pub b: Register,
    pub c: Register,
}

impl fmt::Debug for Atomic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Atomic").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A block barrier.
#[derive(Debug)]
pub struct Barrier {
    /// `sync` and `red` wait, `arrive` does not.
    pub waits: bool,
    /// All lanes of a warp come at once.
    pub aligned: bool,
    pub index: Register,
    /// The threads that it takes; all of the block if `None`.
    pub threads: Option<Register>,
    pub reduction: Option<Reduction>,
}

/// `bar.red`.
#[derive(Debug)]
pub struct Reduction {
    pub kind: Reduce,
    pub target: Register,
    pub source: Register,
    pub negated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    Popc,
    And,
    Or,
}

/// An instruction that lanes of a warp do together.
#[derive(Debug)]
pub struct Collective {
    pub kind: CollectiveKind,
    /// The register that holds the mask of the lanes that take part.
    pub mask: Register,
    pub target: Register,
    /// A second destination, a predicate.
    pub flag: Register,
    pub source: Register,
    /// Takes the predicate's opposite.
    pub negated: bool,
    /// `shfl`: b and c.
    pub control: [Register; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    Barrier,
    Shuffle(Shuffle),
    VoteAll,
    VoteAny,
    VoteUniform,
    Ballot,
    MatchAny,
    MatchAll,
    Elect,
    Reduce(WarpReduce),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// `redux.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarpReduce {
    Add,
    MinUnsigned,
    MaxUnsigned,
    MinSigned,
    MaxSigned,
    And,
    Or,
    Xor,
}
