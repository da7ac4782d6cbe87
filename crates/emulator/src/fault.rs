//! Faults: errors found in a launch or in the replay of a graph.

use std::{fmt, ops::Range, time::Duration};

/// The source position of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line in the PTX text.
    pub line: u32,
    /// The source file and line that it was compiled from, if the PTX has debug information (`.loc`).
    pub source: Option<(String, u32)>,
    /// The file and line of the kernel's author, if `source` is a library's that was inlined or called there:
    /// in the folder of the package that has the kernel. Where the PTX does not say what was inlined where
    /// (`inlined_at`), it is the author's last line before the instruction.
    pub author: Option<(String, u32)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}", self.line)?;
        match (&self.source, &self.author) {
            (Some((file, line)), None) => write!(f, " ({file}:{line})"),
            (Some((file, line)), Some((authors, at))) => write!(f, " ({authors}:{at}, in {file}:{line})"),
            (None, _) => Ok(()),
        }
    }
}

/// A memory space that threads address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Device memory, and pinned or registered host memory.
    Global,
    /// Shared by the threads of a block.
    Shared,
    /// Private to a thread.
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

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A load.
    Read,
    /// A store.
    Write,
    /// `atom`, `red`, and relaxed, acquire or release loads and stores.
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
    /// Read, write or atomic.
    pub action: Action,
    /// Its name if it is no plain load or store, such as `volatile load` or `atomic operation`.
    pub name: Option<&'static str>,
    /// The scope of a relaxed, acquire or release access, or of an atomic operation: `.cta`, `.gpu` or
    /// `.sys`.
    pub scope: Option<&'static str>,
    /// The memory space.
    pub memory: Memory,
    /// The address: a pointer value in global memory, otherwise the offset from the start of the memory.
    pub address: u64,
    /// In global memory, the start and the bytes of the allocation that has the address, if one has it.
    pub allocation: Option<(u64, u64)>,
    /// Its size in bytes.
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
        let Access { action, name, scope, memory, address, allocation, bytes, block, thread, place } = self;
        match name {
            Some(name) => f.write_str(name)?,
            None => action.fmt(f)?,
        }
        if let Some(scope) = scope {
            write!(f, " with scope `{scope}`")?;
        }
        write!(f, " of {bytes} bytes at {memory} address {address:#x}")?;
        if let Some((start, all)) = allocation {
            write!(f, ", byte {} of an allocation of {all},", address - start)?;
        }
        write!(f, " by thread {thread:?} of block {block:?}, {place}")
    }
}

/// A piece of work in a stream.
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

/// The access of a device's work to a range of global memory, all threads taken together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAccess {
    /// Read, write or atomic.
    pub action: Action,
    /// The address of the first byte.
    pub address: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The work.
    pub work: Work,
    /// The device.
    pub device: u32,
    /// The instruction, if the work is a kernel.
    pub place: Option<Place>,
}

impl fmt::Display for DeviceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceAccess { action, address, bytes, work, device, place } = self;
        write!(f, "{action} of {bytes} bytes at address {address:#x} by {work} of device {device}")?;
        place.iter().try_for_each(|place| write!(f, ", {place}"))
    }
}

/// How serious a [`Fault`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// An error, which stops the context. [`take_faults`](crate::take_faults) returns it.
    Fault,
    /// A race by the letter of the PTX ISA, or a branch on an unwritten value, that libraries rely on. The
    /// launch goes on, and [`take_notes`](crate::take_notes) returns the note.
    Note,
}

/// The kind of a fault and its details.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// Two threads access the same bytes with no order between them, and one of them writes.
    #[error("data race: {first}; and {second}. {}", advice(first, second))]
    Race {
        /// The access that ran first.
        first: Box<Access>,
        /// The access that ran second.
        second: Box<Access>,
    },
    /// A note: two threads store the same bytes to the same place, with no order between them.
    #[error(
        "a race of stores of the same value: {first}; and {second}. The order does not change the result. \
         Relaxed stores (`st.relaxed`) do not race"
    )]
    SameValue {
        /// The store that ran first.
        first: Box<Access>,
        /// The store that ran second.
        second: Box<Access>,
    },
    /// A note: the plain first read of a compare-and-swap loop races with another thread's atomic operation.
    #[error(
        "a race of the first read of a compare-and-swap loop: {first}; and {second}. The compare-and-swap \
         rejects an old value. A relaxed load (`ld.relaxed`) does not race"
    )]
    SwapRead {
        /// The access that ran first.
        first: Box<Access>,
        /// The access that ran second.
        second: Box<Access>,
    },
    /// A note: a read, and a write by another block that only relaxed accesses order after it.
    #[error(
        "only relaxed accesses order a write after a read: {first}; and {second}. The read gets the old \
         value if what the relaxed accesses pass on depends on it, as in a compaction in place; if not, it \
         may get the new one. A release and an acquire order the two"
    )]
    Overwrite {
        /// The read.
        first: Box<Access>,
        /// The write.
        second: Box<Access>,
    },
    /// A note: two threads store different values to the same place in shared memory, with no order between
    /// them. If something uses the value that they left there, the use is a [`Race`](FaultKind::Race).
    #[error(
        "a race of stores, which is right only if nothing uses what they leave: {first}; and {second}. \
         Which of the two values stays is unspecified"
    )]
    Clash {
        /// The store that ran first.
        first: Box<Access>,
        /// The store that ran second.
        second: Box<Access>,
    },
    /// A note: two lanes of one store write floats to the same place that differ in their last bits only.
    #[error(
        "a race of stores whose values differ by rounding: {first}; and {second}. Which of the two stays is \
         unspecified, so that results may differ in their last bits"
    )]
    Rounding {
        /// The store of one lane.
        first: Box<Access>,
        /// The store of the other lane.
        second: Box<Access>,
    },
    /// An access to shared memory that an asynchronous copy (`cp.async`, `cp.async.bulk`) is still writing or
    /// reading.
    #[error(
        "shared memory used before an asynchronous copy has finished: {first}; and {second}. Wait in the \
         thread that copies (`cp.async.wait_group`, `cp.async.bulk.wait_group`), then at a barrier if other \
         threads use the data; if the copy has an mbarrier, wait there in each thread that uses the data"
    )]
    Unfinished {
        /// The copy's access.
        first: Box<Access>,
        /// The other access.
        second: Box<Access>,
    },
    /// A wrong use of an mbarrier, such as an arrival before it is initialised.
    #[error("a wrong use of an mbarrier: {0}")]
    Mbarrier(String),
    /// A bulk copy of shared memory that was stored to without a `fence.proxy.async` since.
    #[error(
        "a bulk copy may not see what was stored before: {first}; and {second}. Run `fence.proxy.async` \
         between the two, in the thread that stores, before the barrier"
    )]
    Proxy {
        /// The store.
        first: Box<Access>,
        /// The copy's read.
        second: Box<Access>,
    },
    /// An access to the memory of an mbarrier by another instruction than `mbarrier`.
    #[error(
        "access to the memory of an mbarrier: {second}; {first} made it one. Only `mbarrier` instructions \
         may use it before `mbarrier.inval`"
    )]
    MbarrierWord {
        /// The initialisation.
        first: Box<Access>,
        /// The access.
        second: Box<Access>,
    },
    /// `ld.global.nc` of memory that the kernel writes before, or with no order between the two: such a load
    /// may see any older value.
    #[error(
        "a read-only load (`ld.global.nc`) of memory that the kernel writes: {first}; and {second}. \
         Load it without `.nc`"
    )]
    Constant {
        /// The access that ran first.
        first: Box<Access>,
        /// The access that ran second.
        second: Box<Access>,
    },
    /// A note: `ld.global.nc` of memory that the kernel writes later.
    #[error(
        "a read-only load (`ld.global.nc`) of memory that the kernel writes after it: {first}; and {second}. \
         The PTX ISA forbids it, though the load comes first. Load it without `.nc`"
    )]
    ConstantFirst {
        /// The load.
        first: Box<Access>,
        /// The write.
        second: Box<Access>,
    },
    /// Work of two devices accesses the same bytes with no order between the two, and one of them writes.
    #[error(
        "data race across devices: {first}; and {second}. Make the second stream wait for an event recorded \
         after the first access, or wait for the first on the host before enqueueing the second"
    )]
    DeviceRace {
        /// The access that ran first.
        first: Box<DeviceAccess>,
        /// The access that ran second.
        second: Box<DeviceAccess>,
    },
    /// Work of two streams of a device accesses the same bytes with no order between the two, and one of them
    /// writes.
    #[error(
        "data race between streams: {first}; and {second}. Make the second stream wait for an event recorded \
         after the first access, or wait for the first on the host before enqueueing the second"
    )]
    StreamRace {
        /// The access that ran first.
        first: Box<DeviceAccess>,
        /// The access that ran second.
        second: Box<DeviceAccess>,
    },
    /// A copy to the host of memory of which nothing wrote any byte.
    #[error(
        "a copy to the host of memory that nothing wrote: {bytes} bytes at {address:#x}, in an allocation \
         of {} bytes at {:#x}. Initialise it first",
        allocation.1, allocation.0
    )]
    UnwrittenCopy {
        /// The address of the first byte.
        address: u64,
        /// The length in bytes.
        bytes: u64,
        /// The start and the bytes of the allocation.
        allocation: (u64, u64),
    },
    /// An instruction depends on a register that nothing wrote.
    #[error("read of a register that nothing wrote: {what} at {used} depends on it. Initialise it first")]
    Register {
        /// What depends on it, such as an address.
        what: &'static str,
        /// The instruction that uses it.
        used: Place,
    },
    /// An instruction depends on a value that a shuffle took from a lane that did not take part.
    #[error(
        "a shuffle from lanes that have ended or do not take part: {what} at {used} depends on its value. Shuffle among lanes that \
         are all there, or drop the value by a condition on the lane"
    )]
    Shuffle {
        /// What depends on it, such as an address.
        what: &'static str,
        /// The instruction that uses it.
        used: Place,
    },
    /// A read of memory that nothing wrote; in local and shared memory, only if an instruction depends on the
    /// value.
    #[error("read of unwritten memory: {0}. Initialise it first")]
    Unwritten(Box<Access>),
    /// A note: a branch on a value in shared memory that nothing wrote, whose two ways only compute until
    /// they meet.
    #[error(
        "a branch depends on unwritten memory: {access}; the branch is at {used}. That is right if what the \
         two ways compute is dropped. Each seed puts other bytes there, so that results which depend on them \
         differ"
    )]
    UnwrittenBranch {
        /// The read.
        access: Box<Access>,
        /// The branch.
        used: Place,
    },
    /// A write to a `.const` variable, which kernels can only read.
    #[error(
        "write to constant memory (`.const`): {0}. Only the host can write there; declare variables that \
         kernels write `.global`"
    )]
    ReadOnly(Box<Access>),
    /// An access to another thread's local memory.
    #[error(
        "local memory of another thread: {access}; the address belongs to thread {thread:?} of block \
         {block:?}, and no other thread can reach it. Pass the value, or put it in shared or global memory"
    )]
    OtherThread {
        /// The access; its address is the offset in the owner's local memory.
        access: Box<Access>,
        /// The owner's block. In grids of more than 2^18 blocks, the true block may be a multiple of 2^18
        /// further.
        block: [u32; 3],
        /// The thread's index in its block.
        thread: [u32; 3],
    },
    /// An access outside every allocation, or past the end of one.
    #[error("out of bounds: {access}; {near}")]
    OutOfBounds {
        /// The access.
        access: Box<Access>,
        /// What lies near the address.
        near: String,
    },
    /// An access whose address comes from one array in shared memory, and is outside of it.
    #[error(
        "out of bounds of a shared array: {access}; the address comes from `{array}`, which has {} bytes \
         at {:#x}; {near}",
        bytes.end - bytes.start,
        bytes.start
    )]
    OutOfArray {
        /// The access.
        access: Box<Access>,
        /// The array's name.
        array: String,
        /// Its bytes in the block's shared memory.
        bytes: Range<u64>,
        /// What lies at the address.
        near: String,
    },
    /// An access to the memory of another device without peer access from the kernel's context.
    #[error(
        "no peer access: {access}; the address is in the memory of device {owner}, to which device {device} \
         has no peer access. Enable it with cuCtxEnablePeerAccess, or copy the memory first"
    )]
    PeerAccess {
        /// The access.
        access: Box<Access>,
        /// The device that the kernel runs on.
        device: u32,
        /// The device that owns the memory.
        owner: u32,
    },
    /// An address that is not a multiple of the access's size.
    #[error("misaligned: {0}. Its address must be a multiple of its size")]
    Misaligned(Box<Access>),
    /// A barrier that only part of a warp or block reaches.
    #[error("a barrier that part of the block never reaches: {0}")]
    Barrier(String),
    /// An instruction with `.aligned` that is not a barrier, such as a matrix instruction, in only some lanes
    /// of a warp.
    #[error("an instruction that a whole warp must run together: {0}. Let all 32 lanes reach it")]
    Aligned(String),
    /// A barrier number that does not exist, or an impossible number of threads.
    #[error("a barrier with a wrong operand: {0}")]
    BarrierOperand(String),
    /// A `cp.async` whose source size is more than the bytes that it copies, or a `cp.async.bulk` whose size
    /// or addresses are no multiples of 16.
    #[error("an asynchronous copy with a wrong operand: {0}")]
    CopyOperand(String),
    /// A warp instruction (`*.sync`) whose mask does not match the lanes that run it.
    #[error("a wrong lane mask: {0}. Pass each lane the mask of all lanes that run the instruction together")]
    Mask(String),
    /// No warp of a block can continue.
    #[error("deadlock: {0}")]
    Deadlock(String),
    /// A block ran more instructions than the settings allow.
    #[error(
        "no end after {limit} warp instructions in one block: {waiting}. This is an endless loop, or the limit is too low"
    )]
    Endless {
        /// The limit.
        limit: u64,
        /// Where the threads of the block were, and what they waited for.
        waiting: String,
    },
    /// The launch ran longer than the settings allow.
    #[error(
        "no end after {limit:?}: {waiting}. Blocks may wait for each other, or the time limit is too low"
    )]
    Timeout {
        /// The limit.
        limit: Duration,
        /// Where the threads of the block were, and what they waited for.
        waiting: String,
    },
    /// Blocks that wait for blocks that never start, because the device has no room for them.
    #[error(
        "the grid has {blocks} blocks, but the device holds only {resident} of this kernel at a time, which wait for others: \
         {waiting}. Launch at most {resident} blocks (cuOccupancyMaxActiveBlocksPerMultiprocessor)"
    )]
    Resident {
        /// Blocks that the device holds at a time.
        resident: u64,
        /// Blocks of the grid.
        blocks: u64,
        /// Where the threads of the first block were, and what they waited for.
        waiting: String,
    },
    /// A call through a pointer that points to no function, or to one that the call cannot call.
    #[error("a call through a pointer that cannot be called: {0}")]
    Call(String),
    /// `trap` or `brkpt`.
    #[error("the kernel stopped itself with `{0}`")]
    Trap(&'static str),
    /// A failed `assert`, with its place in the source.
    #[error("{0}")]
    Assert(String),
    /// The kernel contains PTX that the emulator does not know, and did not run.
    #[error("the kernel cannot run in the emulator: {0}")]
    Unknown(String),
    /// An invalid launch.
    #[error("invalid launch: {0}")]
    Launch(String),
    /// A copy or memset that was valid when a graph captured it, and is not when the graph runs.
    #[error("{0} is no longer possible: its memory has been freed since the capture")]
    Replay(String),
}

/// The name of a `cp.async`.
pub(crate) const ASYNCHRONOUS: &str = "asynchronous copy";

/// What orders two accesses that race.
fn advice(first: &Access, second: &Access) -> &'static str {
    let of_block = |access: &Access| access.scope == Some(".cta");
    let copies = |access: &Access| access.name == Some(ASYNCHRONOUS) && access.memory == Memory::Shared;
    if copies(second) && first.action == Action::Read {
        return "The `cp.async` overwrites what another thread may still have to read: put a block barrier between that read \
                and the copy (in CUDA C++, `__syncthreads()`)";
    }
    if copies(first) {
        return "Only the thread that copies sees the bytes after `cp.async.wait_group`: put a block barrier between its wait \
                and this access (in CUDA C++, `__syncthreads()`)";
    }
    if first.name == Some(ASYNCHRONOUS) && first.memory == Memory::Global {
        return "A `cp.async` may read its source until its wait: wait before the source is overwritten \
                (`cp.async.wait_group`), and then at a barrier if another thread writes";
    }
    if first.block != second.block && (of_block(first) || of_block(second)) {
        "The scope `.cta` holds within a block, and these are two: use `.gpu` (in CUDA C++, `thread_scope_device`)"
    } else if first.action == Action::Atomic && second.action == Action::Atomic {
        "Atomic accesses of different sizes are not atomic to each other: use one size for the place"
    } else {
        "Put a barrier or a release and an acquire between them"
    }
}

/// An error in a launch or a replay, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel; empty if a copy or a memset is at fault.
    pub kernel: String,
    /// The instruction at fault, if there is one.
    pub place: Option<Place>,
    /// The index of the block at fault in the grid; zeros if there is none.
    pub block: [u32; 3],
    /// The indices of the threads at fault in the block, all of one warp; empty if there are none.
    pub threads: Vec<[u32; 3]>,
    /// The [seed](crate::Settings::seed) of the launch, if it had one: with it, the same order of execution
    /// comes again.
    pub seed: Option<u64>,
    /// What went wrong.
    pub kind: FaultKind,
}

impl Fault {
    /// Returns whether this is a fault or a note.
    pub fn level(&self) -> Level {
        match self.kind {
            FaultKind::SameValue { .. }
            | FaultKind::SwapRead { .. }
            | FaultKind::Overwrite { .. }
            | FaultKind::Clash { .. }
            | FaultKind::Rounding { .. }
            | FaultKind::ConstantFirst { .. }
            | FaultKind::UnwrittenBranch { .. } => Level::Note,
            _ => Level::Fault,
        }
    }

    /// Whether this and another note are of the same kind, at the same instructions.
    pub(crate) fn is_at_lines_of(&self, other: &Fault) -> bool {
        use FaultKind::{Clash, ConstantFirst, Overwrite, Rounding, SameValue, SwapRead, UnwrittenBranch};
        match (&self.kind, &other.kind) {
            (SameValue { first, second }, SameValue { first: one, second: two })
            | (SwapRead { first, second }, SwapRead { first: one, second: two })
            | (Overwrite { first, second }, Overwrite { first: one, second: two })
            | (Clash { first, second }, Clash { first: one, second: two })
            | (Rounding { first, second }, Rounding { first: one, second: two })
            | (ConstantFirst { first, second }, ConstantFirst { first: one, second: two }) => {
                first.place == one.place && second.place == two.place
            }
            (UnwrittenBranch { access, used }, UnwrittenBranch { access: other, used: branch }) => {
                access.place == other.place && used == branch
            }
            _ => false,
        }
    }

    /// Returns the driver's error number; 0 for a note.
    ///
    /// - 700, illegal address: also for a copy in a replay
    /// - 701, launch out of resources: an invalid launch
    /// - 702, launch timeout: a launch that does not end
    /// - 710, assert
    /// - 715, illegal instruction: a kernel with unknown PTX
    /// - 716, misaligned address
    /// - 719, launch failed: all else
    pub fn code(&self) -> u32 {
        match self.kind {
            _ if self.level() == Level::Note => 0,
            FaultKind::OutOfBounds { .. }
            | FaultKind::PeerAccess { .. }
            | FaultKind::ReadOnly(_)
            | FaultKind::OtherThread { .. }
            | FaultKind::Replay(_) => 700,
            FaultKind::Misaligned(_) => 716,
            FaultKind::Endless { .. } | FaultKind::Timeout { .. } | FaultKind::Resident { .. } => 702,
            FaultKind::Launch(_) => 701,
            FaultKind::Assert(_) => 710,
            FaultKind::Unknown(_) => 715,
            _ => 719,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.level() == Level::Note {
            f.write_str("note: ")?;
        }
        match self.kind {
            FaultKind::Replay(_) => return write!(f, "replay of a graph: {}", self.kind),
            // The message names the kernels itself.
            FaultKind::DeviceRace { .. } | FaultKind::StreamRace { .. } | FaultKind::UnwrittenCopy { .. } => {
                return write!(f, "{}", self.kind);
            }
            _ => {}
        }
        match readable(&self.kernel) {
            Some(name) => write!(f, "kernel {name} ({}), block {:?}", self.kernel, self.block)?,
            None => write!(f, "kernel {}, block {:?}", self.kernel, self.block)?,
        }
        match self.threads.as_slice() {
            [] => {}
            [thread] => write!(f, ", thread {thread:?}")?,
            [first, .., last] => write!(f, ", {} threads from {first:?} to {last:?}", self.threads.len())?,
        }
        if let Some(place) = &self.place {
            write!(f, ", {place}")?;
        }
        if let Some(seed) = self.seed {
            write!(f, ", in the order of seed {seed}")?;
        }
        write!(f, ": {}", self.kind)
    }
}

impl std::error::Error for Fault {}

/// A mangled name of Rust or C++ as its author wrote it.
pub(crate) fn readable(name: &str) -> Option<String> {
    if let Ok(name) = rustc_demangle::try_demangle(name) {
        return Some(format!("{name:#}"));
    }
    let symbol = cpp_demangle::Symbol::new(name).ok().filter(|_| name.starts_with("_Z"))?;
    symbol.demangle().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_are_readable() {
        for (name, shown) in [
            ("_Z5scaleIfEvPT_S0_i", Some("void scale<float>(float*, float, int)")),
            (
                "_ZN6thrust8cuda_cub4core6detail13_kernel_agentEv",
                Some("thrust::cuda_cub::core::detail::_kernel_agent()"),
            ),
            ("_ZN4core9panicking9panic_fmt17h0123456789abcdefE", Some("core::panicking::panic_fmt")),
            ("_RNvCs1234_7kernels5scale", Some("kernels::scale")),
            ("scale", None),
            ("_Z", None),
            ("_ZZZZ", None),
            ("", None),
        ] {
            assert_eq!(readable(name).as_deref(), shown, "{name}");
        }
        let fault = Fault {
            kernel: "_Z5scalePfi".to_owned(),
            place: None,
            block: [0; 3],
            threads: Vec::new(),
            seed: None,
            kind: FaultKind::Launch("no blocks".to_owned()),
        };
        assert!(
            fault.to_string().starts_with("kernel scale(float*, int) (_Z5scalePfi), block [0, 0, 0]"),
            "{fault}"
        );
    }
}
