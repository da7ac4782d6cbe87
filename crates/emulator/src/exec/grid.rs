//! The state that all blocks of a launch share.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Instant,
};

use crate::{
    fault::{self, ASYNCHRONOUS, Place},
    memory::{Allocation, Memory},
    program::{
        Kernel, Program,
        code::{Code, Constant, LOCAL_WINDOW, Operation, Order, Scope, Special},
    },
};

use super::{
    Launch, Loaded, Settings,
    checks::races::Room,
    lanes::{ALL, LANES, Register, Registers, collect},
};

/// Bits of a thread's number in the address of its local window. [`WINDOW_BLOCKS`] masks the block's number.
const THREAD_BITS: u32 = 10;
const WINDOW_BLOCKS: u64 = (1 << 18) - 1;

pub struct Grid<'a> {
    pub kernel: &'a Kernel,
    pub code: &'a Code,
    pub launch: &'a Launch<'a>,
    pub settings: &'a Settings,
    /// The allocations that the launch may access, sorted by address.
    pub allocations: Vec<Arc<Allocation>>,
    /// Allocations of other devices that the launch may not access.
    pub forbidden: Vec<Arc<Allocation>>,
    /// The device that the launch runs on.
    pub device: u32,
    files: &'a [(u32, String)],
    /// Blocks that the device holds at a time.
    pub resident: u64,
    pub threads: u32,
    pub warps: u32,
    /// Bytes of shared memory that the kernel and the launch ask for.
    pub shared_bytes: usize,
    /// The shared memory that is reserved for the system, if the kernel asks where it is.
    pub reserved: Range<usize>,
    /// The size of the smallest access that can go to shared memory.
    pub granule: u32,
    /// Whether the kernel has fences: they make relaxed accesses order others.
    pub fences: bool,
    /// Whether the kernel reads a clock.
    pub reads_clock: bool,
    constants: Vec<(Register, u64)>,
    specials: Vec<(Register, Special)>,
    order: AtomicU64,
    pub room: Room,
    pub memory: &'a Memory,
    pub start: Instant,
}

/// Bytes of a block's shared memory that are reserved for the system (`%reserved_smem_offset_1`), and at
/// least as many before it, so that an access past the end of a kernel's own shared memory is still found.
const RESERVED: usize = 1024;

impl<'a> Grid<'a> {
    pub fn new(
        program: &'a Program,
        module: &Loaded,
        kernel: &'a Kernel,
        launch: &'a Launch<'a>,
        memory: &'a Memory,
        settings: &'a Settings,
    ) -> Grid<'a> {
        let (allocations, forbidden) = memory.snapshot();
        let threads = launch.block.iter().product::<u32>();
        // Dynamic shared memory starts after the static part, aligned for any access.
        let dynamic = kernel.shared_bytes.next_multiple_of(16);
        let shared_bytes = if launch.dynamic_shared == 0 {
            kernel.shared_bytes
        } else {
            dynamic + launch.dynamic_shared as usize
        };
        let (mut constants, mut specials) = (Vec::new(), Vec::new());
        for (register, constant) in &kernel.code.constants {
            match constant {
                Constant::Bits(bits) | Constant::Shared { bits, .. } => constants.push((*register, *bits)),
                Constant::Special(special) => specials.push((*register, *special)),
                Constant::Address(name, offset) => {
                    let address = module.address(name).map_or(0, |(address, _)| address);
                    constants.push((*register, address.wrapping_add(*offset as u64)));
                }
                Constant::Dynamic(offset) => {
                    constants.push((*register, (dynamic as u64).wrapping_add(*offset as u64)));
                }
            }
        }
        let reserved = if specials.iter().any(|&(_, special)| special == Special::ReservedShared) {
            let start = (shared_bytes + RESERVED).next_multiple_of(RESERVED);
            start..start + RESERVED
        } else {
            shared_bytes..shared_bytes
        };
        let operations = || kernel.code.instructions.iter().map(|instruction| &instruction.operation);
        let granule = operations().filter_map(|operation| match operation {
            Operation::Load(load) => Some((load.address.space, load.size)),
            Operation::Store(store) => Some((store.address.space, store.size)),
            Operation::Atomic(atomic) => Some((atomic.address.space, atomic.size)),
            Operation::Copy(copy) => Some((copy.to.space, copy.size.min(8))),
            Operation::Matrix(collective) => {
                collective.kind.lines().map(|(lines, _)| (lines.address.space, lines.chunk().min(8) as u32))
            }
            _ => None,
        });
        use crate::program::code::Space;
        let granule = granule
            .filter(|(space, _)| matches!(space, Space::Shared | Space::Generic))
            .map(|(_, size)| size)
            .min();
        Grid {
            kernel,
            code: &kernel.code,
            launch,
            settings,
            allocations,
            forbidden,
            device: memory.owner().device,
            files: &program.files,
            resident: launch.resident.max(1),
            threads,
            warps: threads.div_ceil(LANES as u32),
            shared_bytes,
            reserved,
            granule: granule.unwrap_or(8),
            fences: operations().any(|operation| matches!(operation, Operation::Fence(_))),
            reads_clock: operations().any(|operation| matches!(operation, Operation::Clock(_))),
            constants,
            specials,
            order: AtomicU64::new(0),
            room: Room::new(settings.race_log_bytes),
            memory,
            start: Instant::now(),
        }
    }

    /// The number of blocks.
    pub fn blocks(&self) -> u64 {
        self.launch.grid.iter().map(|&count| u64::from(count)).product()
    }

    /// Counts one more event or atomic operation, and returns the new count.
    pub fn next_order(&self) -> u64 {
        self.order.fetch_add(1, SeqCst) + 1
    }

    /// The number of events and atomic writes so far.
    pub fn order(&self) -> u64 {
        self.order.load(SeqCst)
    }

    /// The lanes of a warp that are threads of the block.
    pub fn lanes_of(&self, warp: u32) -> u32 {
        match self.threads - warp * LANES as u32 {
            32.. => ALL,
            count => (1 << count) - 1,
        }
    }

    /// The index of the block with this number; x varies fastest.
    pub fn block_index(&self, number: u64) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(u64::from);
        [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
    }

    /// A thread's index in its block.
    pub fn thread(&self, warp: u32, lane: u32) -> [u32; 3] {
        let [x, y, _] = self.launch.block;
        let number = warp * LANES as u32 + lane;
        [number % x, number / x % y, number / x / y]
    }

    /// The generic addresses at which the local memory of a warp's threads starts.
    pub fn local_windows(&self, warp: u32, block: u64) -> [u64; LANES] {
        std::array::from_fn(|lane| {
            let thread = u64::from(warp) * LANES as u64 + lane as u64;
            LOCAL_WINDOW + (((block & WINDOW_BLOCKS) << THREAD_BITS | thread) << 32)
        })
    }

    /// The block and thread whose local memory starts at `window`. See [`Self::local_windows`].
    ///
    /// Blocks that are 2^18 apart share windows: returns `block` if it is one of them, else the first.
    pub fn local_owner(&self, window: u64, block: u64) -> Option<([u32; 3], [u32; 3])> {
        let number = window.checked_sub(LOCAL_WINDOW)? >> 32;
        let (thread, bits) = ((number & ((1 << THREAD_BITS) - 1)) as u32, number >> THREAD_BITS);
        let block = if block & WINDOW_BLOCKS == bits { block } else { bits };
        (thread < self.threads && block < self.blocks())
            .then(|| (self.block_index(block), self.thread(thread / LANES as u32, thread % LANES as u32)))
    }

    /// The start and the bytes of the allocation that has an address in global memory.
    pub fn allocation_at(&self, memory: fault::Memory, address: u64) -> Option<(u64, u64)> {
        let has = |allocation: &&Arc<Allocation>| allocation.holds(address, 1);
        let found = self.allocations.iter().find(has).filter(|_| memory == fault::Memory::Global);
        found.map(|allocation| (allocation.base, allocation.bytes))
    }

    /// The name of an access that is no plain load or store, and its scope.
    pub fn name_of_access(&self, at: u32) -> (Option<&'static str>, Option<&'static str>) {
        let (order, scope, names) = match &self.code.instructions[at as usize].operation {
            Operation::Load(load) => {
                (load.order, load.scope, ["volatile load", "relaxed load", "acquire load"])
            }
            Operation::Store(store) => {
                (store.order, store.scope, ["volatile store", "relaxed store", "release store"])
            }
            Operation::Atomic(atomic) => (Order::Relaxed, atomic.scope, ["", "atomic operation", ""]),
            Operation::Copy(_) | Operation::Bulk(_) => return (Some(ASYNCHRONOUS), None),
            Operation::Mbarrier(mbarrier) => return (Some(mbarrier.kind.name()), None),
            Operation::Matrix(collective) => {
                let stores = collective.kind.lines().is_some_and(|(_, stores)| stores);
                return (Some(if stores { "matrix store" } else { "matrix load" }), None);
            }
            _ => return (None, None),
        };
        let scope = match scope {
            Scope::Block => ".cta",
            Scope::Device => ".gpu",
            Scope::System => ".sys",
        };
        match order {
            Order::Weak => (None, None),
            Order::Volatile => (Some(names[0]), None),
            Order::Relaxed => (Some(names[1]), Some(scope)),
            Order::Acquire | Order::Release | Order::AcqRel => (Some(names[2]), Some(scope)),
        }
    }

    /// The PTX line and the source lines of an instruction.
    pub fn place(&self, at: u32) -> Place {
        let (line, source) = self.code.places[at as usize];
        let named = |(index, line): (u32, u32)| {
            self.files.iter().find(|file| file.0 == index).map(|file| (file.1.clone(), line))
        };
        Place {
            line,
            source: source.and_then(|source| named(source.own)),
            author: source.and_then(|source| named(source.author?)),
        }
    }

    /// Creates a warp's registers, with constants and special registers set.
    pub fn registers(&self, warp: u32) -> Registers {
        let mut registers = Registers::new(&self.code.registers);
        for &(register, value) in &self.constants {
            registers.splat(register, value);
        }
        let [x, y, _] = self.launch.block;
        for &(register, special) in &self.specials {
            let values = std::array::from_fn(|lane| {
                let thread = warp * LANES as u32 + lane as u32;
                let value = match special {
                    Special::Tid(0) => thread % x,
                    Special::Tid(1) => thread / x % y,
                    Special::Tid(_) => thread / x / y,
                    Special::Ntid(axis) => self.launch.block[axis],
                    Special::Nctaid(axis) => self.launch.grid[axis],
                    Special::Lane => lane as u32,
                    Special::Warp => warp,
                    Special::Warps => 32,
                    Special::LanemaskEq => 1 << lane,
                    Special::LanemaskLe => collect(|other| other <= lane),
                    Special::LanemaskLt => collect(|other| other < lane),
                    Special::LanemaskGe => collect(|other| other >= lane),
                    Special::LanemaskGt => collect(|other| other > lane),
                    Special::DynamicShared => self.launch.dynamic_shared,
                    Special::TotalShared => self.shared_bytes as u32,
                    Special::ReservedShared => self.reserved.start as u32,
                    Special::Workspace => self.launch.workspace as u32,
                    Special::WorkspaceHigh => (self.launch.workspace >> 32) as u32,
                    Special::Nsmid | Special::One => 1,
                    Special::Smid | Special::Gridid | Special::Zero => 0,
                    // `enter_block` sets these.
                    Special::Ctaid(_) | Special::LocalWindow => 0,
                };
                u64::from(value)
            });
            registers.set_wide(register, &values, ALL);
        }
        registers
    }

    /// Sets the registers that differ from block to block.
    pub fn enter_block(&self, registers: &mut Registers, warp: u32, number: u64) {
        let index = self.block_index(number);
        for &(register, special) in &self.specials {
            match special {
                Special::Ctaid(axis) => registers.splat(register, u64::from(index[axis])),
                Special::LocalWindow => {
                    registers.set_wide(register, &self.local_windows(warp, number), ALL);
                }
                _ => {}
            }
        }
        for &register in &self.code.cleared {
            registers.splat(register, 0);
        }
    }
}
