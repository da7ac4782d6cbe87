//! What went wrong in a launch, or in the replay of a graph.

use std::fmt;

/// Where an instruction stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line in the PTX text.
    pub line: u32,
    /// The source file and line that it was compiled from, where the PTX has debug information (`.loc`).
    pub source: Option<(String, u32)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}", self.line)?;
        match &self.source {
            Some((file, line)) => write!(f, " ({file}:{line})"),
            None => Ok(()),
        }
    }
}

/// A memory that threads address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Device memory, and host memory that is pinned or registered.
    Global,
    /// A block's own.
    Shared,
    /// A thread's own.
    Local,
    /// The kernel's arguments.
    Param,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Memory::Global => "global",
            Memory::Shared => "shared",
            Memory::Local => "local",
            Memory::Param => "parameter",
        })
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A load.
    Read,
    /// A store.
    Write,
    /// `atom`, `red`, and loads and stores that are relaxed, acquire or release.
    Atomic,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Read => "read",
            Action::Write => "write",
            Action::Atomic => "atomic access",
        })
    }
}

/// One access of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// What it does.
    pub action: Action,
    /// The memory.
    pub memory: Memory,
    /// The address: in global memory as a pointer holds it, otherwise the offset from that memory's start.
    pub address: u64,
    /// Bytes.
    pub bytes: u32,
    /// The block's index in the grid.
    pub block: [u32; 3],
    /// The thread's index in its block.
    pub thread: [u32; 3],
    /// The instruction.
    pub place: Place,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Access { action, memory, address, bytes, block, thread, place } = self;
        write!(
            f,
            "{action} of {bytes} bytes at {memory} address {address:#x} by thread {thread:?} of block {block:?}, {place}"
        )
    }
}

/// Work that a stream runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A launch of the kernel of this name.
    Kernel(String),
    /// A copy.
    Copy,
    /// A memset.
    Memset,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Kernel(name) => write!(f, "kernel {name}"),
            Work::Copy => f.write_str("a copy"),
            Work::Memset => f.write_str("a memset"),
        }
    }
}

/// What the work of a device did to a range of global memory, all threads together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAccess {
    /// What it did.
    pub action: Action,
    /// The first byte's address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// The work.
    pub work: Work,
    /// The device.
    pub device: u32,
    /// The instruction, of a kernel.
    pub place: Option<Place>,
}

impl fmt::Display for DeviceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceAccess { action, address, bytes, work, device, place } = self;
        write!(f, "{action} of {bytes} bytes at address {address:#x} by {work} of device {device}")?;
        place.iter().try_for_each(|place| write!(f, ", {place}"))
    }
}

/// The kind of a fault, with what is particular to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// Two threads use one place with no order between them, and one of them writes.
    #[error("data race: {first}; and {second}. Put a barrier or a release and an acquire between them")]
    Race {
        /// The access that ran first.
        first: Box<Access>,
        /// The access that ran second.
        second: Box<Access>,
    },
    /// Work of two devices uses the same bytes with no order between the two, and one of them writes.
    #[error(
        "data race across devices: {first}; and {second}. Have the second one's stream wait for an event that is recorded \
         after the first, or the host for the first before it asks for the second"
    )]
    DeviceRace {
        /// The access that ran first.
        first: Box<DeviceAccess>,
        /// The access that ran second.
        second: Box<DeviceAccess>,
    },
    /// A read of memory that nothing wrote.
    #[error("read of unwritten memory: {0}. Initialise it first")]
    Unwritten(Box<Access>),
    /// An access outside every allocation, or past the end of one.
    #[error("out of bounds: {access}; {near}")]
    OutOfBounds {
        /// The access.
        access: Box<Access>,
        /// What lies there instead.
        near: String,
    },
    /// An access to the memory of another device, to which the kernel's context has no peer access.
    #[error(
        "no peer access: {access}; the address is in the memory of device {owner}, to which there is no peer access from \
         device {device}. Enable it with cuCtxEnablePeerAccess, or copy the memory first"
    )]
    PeerAccess {
        /// The access.
        access: Box<Access>,
        /// The device that the kernel runs on.
        device: u32,
        /// The device whose memory it is.
        owner: u32,
    },
    /// An address that is no multiple of the access's size.
    #[error("misaligned: {0}. Its address must be a multiple of its size")]
    Misaligned(Box<Access>),
    /// A barrier that only part of a warp or block reaches.
    #[error("a barrier that part of the block never reaches: {0}")]
    Barrier(String),
    /// No warp of a block can go on.
    #[error("deadlock: {0}")]
    Deadlock(String),
    /// A block ran more instructions than the settings allow.
    #[error(
        "no end after {limit} warp instructions in one block: a loop without an end, or a limit that is too low"
    )]
    Endless {
        /// The limit.
        limit: u64,
    },
    /// `trap` or `brkpt`.
    #[error("the kernel stopped itself with `{0}`")]
    Trap(&'static str),
    /// The launch itself is not possible.
    #[error("the launch is not possible: {0}")]
    Launch(String),
    /// A copy or memset in the replay of a graph, which was possible when it was captured.
    #[error("{0} is not possible any more: the memory that it was captured with is gone")]
    Replay(String),
}

/// What went wrong in a launch, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel; empty where a copy or a memset is at fault.
    pub kernel: String,
    /// The instruction, where one is to blame.
    pub place: Option<Place>,
    /// The block's index in the grid; zeros where no block is to blame.
    pub block: [u32; 3],
    /// The threads' indices in the block, those of one warp, where threads are to blame.
    pub threads: Vec<[u32; 3]>,
    /// What went wrong.
    pub kind: FaultKind,
}

impl Fault {
    /// The driver's error number: 700 for an illegal address, also of a copy in a replay, 716 for a misaligned one, 702 for a launch without end,
    /// 701 for a launch that is not possible, and 719, a failed launch, for all else.
    pub fn code(&self) -> u32 {
        match self.kind {
            FaultKind::OutOfBounds { .. } | FaultKind::PeerAccess { .. } | FaultKind::Replay(_) => 700,
            FaultKind::Misaligned(_) => 716,
            FaultKind::Endless { .. } => 702,
            FaultKind::Launch(_) => 701,
            _ => 719,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FaultKind::Replay(_) => return write!(f, "replay of a graph: {}", self.kind),
            // It names both.
            FaultKind::DeviceRace { .. } => return write!(f, "{}", self.kind),
            _ => {}
        }
        write!(f, "kernel {}, block {:?}", self.kernel, self.block)?;
        match self.threads.as_slice() {
            [] => {}
            [thread] => write!(f, ", thread {thread:?}")?,
            [first, .., last] => write!(f, ", {} threads from {first:?} to {last:?}", self.threads.len())?,
        }
        if let Some(place) = &self.place {
            write!(f, ", {place}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for Fault {}
