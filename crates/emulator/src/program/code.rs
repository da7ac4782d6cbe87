//! Decoded instructions.

use std::fmt;

use crate::alu::Arithmetic;
use crate::exec::lanes::{LANES, Lanes, Operands, Register};

use super::arrays::Arrays;
use super::bulk::{Bulk, Group};
use super::call::Miscall;
use super::lines::Source;
use super::mbarrier::Mbarrier;
use super::undefined::{Carry, Tracked, Wide};

/// The start of the window of generic addresses for shared memory. No host address comes near.
pub const SHARED_WINDOW: u64 = 1 << 60;
/// The start of the windows for local memory. Each thread has its own, so an address tells whose it is.
pub const LOCAL_WINDOW: u64 = 2 << 60;
/// The bytes of all threads' local windows.
pub const LOCAL_WINDOWS: u64 = 1 << 60;
/// The start of the window for parameters.
pub const PARAM_WINDOW: u64 = 3 << 60;
/// The start of the addresses of functions, at which no memory is.
pub const CODE_WINDOW: u64 = 4 << 60;
/// The bytes of one window: 32-bit addresses.
pub const WINDOW: u64 = 1 << 32;

/// No instruction: the thread's end, as a join.
pub const END: u32 = u32::MAX;

/// A kernel's instructions.
#[derive(Debug, Default)]
pub struct Code {
    pub instructions: Vec<Instruction>,
    /// The PTX line of each, and its source file and line.
    pub places: Vec<(u32, Option<Source>)>,
    /// The number of registers, including those for constants.
    pub registers: crate::exec::lanes::Counts,
    /// Registers with a constant value.
    pub constants: Vec<(Register, Constant)>,
    /// Registers that may be read before they are written. They are set to 0 when a block starts, so that
    /// runs repeat.
    pub cleared: Vec<Register>,
    /// The registers that may be undefined. What each instruction does with them is in its `carry`.
    pub tracked: Tracked,
    /// The same if shared memory that nothing wrote is read too, or a lane that has ended; most kernels never
    /// do.
    pub wide: Option<Wide>,
    /// The shared arrays, and the accesses to each.
    pub arrays: Arrays,
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
    /// The address of a shared array, by number, plus an offset.
    Shared {
        array: u32,
        bits: u64,
    },
}

/// A special register whose value is constant while a block runs.
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
    /// Where shared memory begins that is reserved for the system, as for cooperative groups of several
    /// warps.
    ReservedShared,
    /// The start of the thread's local window.
    LocalWindow,
    /// The lower and the upper half of [`Launch::workspace`](crate::exec::Launch::workspace).
    Workspace,
    WorkspaceHigh,
    Smid,
    Nsmid,
    Gridid,
    /// 0, for values that a driver or a cluster would set.
    Zero,
    One,
}

/// One instruction.
#[derive(Debug)]
pub struct Instruction {
    pub guard: Guard,
    pub operation: Operation,
    /// How the instruction treats undefined values, if it can see any.
    pub carry: Option<Box<Carry>>,
}

/// The lanes that take part: those whose predicate differs from `negated`. All lanes if there is no
/// predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    pub predicate: u32,
    /// All ones if the guard is negated.
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
    /// The branch target, and the instruction where diverged paths meet again.
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
    /// A collective of [`CollectiveKind::Matrix`], which needs all lanes of a warp.
    Matrix(Box<Collective>),
    /// `activemask`.
    Active(Register),
    /// `clock` and `globaltimer`: the number of instructions that the block has issued.
    Clock(Register),
    Fence(Scope),
    Copy(Box<AsyncCopy>),
    /// `cp.async.commit_group`.
    Commit,
    /// `cp.async.wait_group`, for all but the last n groups, or `cp.async.wait_all`.
    Wait(Option<u32>),
    Mbarrier(Box<Mbarrier>),
    Bulk(Box<Bulk>),
    Group(Group),
    Print(Box<Print>),
    Assert(Box<Assert>),
    /// The end of a call through a register, if no function was at the address.
    Miscall(Box<Miscall>),
    Nothing,
}

/// The memory that an address is in.
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

/// The memory order of an access.
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

/// The threads among which an order holds.
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
    /// `.nc`: the program promises that nothing writes this memory while the kernel runs.
    pub constant: bool,
    /// Whether the value is a flag (see [`flags`](super::flags)).
    pub reads_flag: bool,
    /// Whether it is the first read of a compare-and-swap loop (see [`swaps`](super::swaps)).
    pub starts_swap: bool,
    /// One register per value; the values are consecutive in memory.
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

/// Computes the new value from the old one and the operands, all zero-extended.
pub type Update = Box<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>;

/// `atom` and `red`.
pub struct Atomic {
    pub address: Address,
    pub order: Order,
    pub scope: Scope,
    /// Bytes of one value.
    pub size: u32,
    pub update: Update,
    /// The update in global memory, if it differs.
    pub update_global: Option<Update>,
    /// Whether it is `cas`: `b` is compared, and `c` is the new value.
    pub is_swap: bool,
    /// The old values, for `atom`.
    pub targets: Vec<Register>,
    /// One register per value; the values are consecutive in memory.
    pub b: Vec<Register>,
    pub c: Register,
}

impl fmt::Debug for Atomic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Atomic").field("address", &self.address).finish_non_exhaustive()
    }
}

/// `cp.async`: from global to shared memory.
#[derive(Debug)]
pub struct AsyncCopy {
    pub to: Address,
    pub from: Address,
    /// Bytes: 4, 8 or 16.
    pub size: u32,
    /// The number of bytes to read; the others are zero.
    pub reads: Option<Register>,
    /// A predicate that, if true (or false, if negated), makes the copy read nothing.
    pub ignores: Option<(Register, bool)>,
}

/// `vprintf`, which `printf` calls.
#[derive(Debug)]
pub struct Print {
    /// The addresses of the format and of the arguments.
    pub format: Register,
    pub arguments: Register,
    /// The number of arguments.
    pub result: Register,
}

/// `__assertfail`, which `assert` calls.
#[derive(Debug)]
pub struct Assert {
    /// The addresses of the texts.
    pub message: Register,
    pub file: Register,
    pub function: Register,
    pub line: Register,
    /// The device functions that called it, outermost first, without the kernel.
    pub callers: Vec<String>,
}

/// A block barrier.
#[derive(Debug)]
pub struct Barrier {
    /// True for `sync` and `red`, false for `arrive`.
    pub waits: bool,
    /// Whether all lanes of a warp must arrive together.
    pub aligned: bool,
    pub index: Register,
    /// The number of threads; the whole block if `None`.
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

/// An instruction that lanes of a warp run together.
#[derive(Debug)]
pub struct Collective {
    pub kind: CollectiveKind,
    /// The register with the mask of the lanes that take part.
    pub mask: Register,
    pub target: Register,
    /// A second destination, a predicate.
    pub flag: Register,
    pub source: Register,
    /// Whether the source predicate is negated.
    pub negated: bool,
    /// Operands b and c of `shfl`.
    pub control: [Register; 2],
}

#[derive(Debug)]
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
    Matrix(Box<Matrix>),
}

impl CollectiveKind {
    pub fn is_barrier(&self) -> bool {
        matches!(self, CollectiveKind::Barrier)
    }

    /// What a matrix instruction accesses in memory, and whether it stores.
    pub fn lines(&self) -> Option<(&Lines, bool)> {
        match self {
            CollectiveKind::Matrix(matrix) => match &**matrix {
                Matrix::Load(lines) => Some((lines, false)),
                Matrix::Store(lines) => Some((lines, true)),
                Matrix::Multiply(_) | Matrix::Move { .. } => None,
            },
            _ => None,
        }
    }
}

/// A matrix instruction.
#[derive(Debug)]
pub enum Matrix {
    Multiply(Box<Multiply>),
    Load(Lines),
    Store(Lines),
    /// `movmatrix`: the target's elements are the source's, at other places.
    Move {
        target: Fragment,
        source: Fragment,
    },
}

/// A matrix that is spread over registers of all lanes. What numbers its elements is up to the instruction.
#[derive(Debug)]
pub struct Fragment {
    pub registers: Vec<Register>,
    /// Bits of an element. Registers of 32 bits may have several elements, the first in the lowest bits.
    pub bits: u32,
    /// The number of elements.
    pub count: usize,
    /// The number of each element, by register and place in it, then by lane.
    pub places: Vec<[u16; LANES]>,
}

/// `mma` and `wmma.mma`: `d = a · b + c`.
#[derive(Debug)]
pub struct Multiply {
    pub arithmetic: Arithmetic,
    /// The columns of a.
    pub k: usize,
    /// The columns of d.
    pub columns: usize,
    /// Numbered by rows, b by columns.
    pub a: Fragment,
    pub b: Fragment,
    pub c: Fragment,
    pub d: Fragment,
}

/// A matrix in memory: lines of consecutive elements, which are rows or columns. Elements are numbered by
/// lines.
#[derive(Debug)]
pub struct Lines {
    pub fragment: Fragment,
    pub address: Address,
    pub count: usize,
    /// Elements of a line.
    pub length: usize,
    /// For `wmma`: from line to line, in elements; the address is that of the first line. Otherwise each lane
    /// has the address of one line.
    pub stride: Option<Register>,
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
