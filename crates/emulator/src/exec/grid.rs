//! What all blocks of a launch share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use crate::{
    fault::Place,
    memory::{Allocation, Memory},
    program::{
        Kernel, Program,
        code::{Code, Constant, Operation, Special},
    },
};

use super::{
    Launch, Loaded, Settings,
    lanes::{ALL, LANES, Register, Registers, collect},
    log::Room,
};

/// A launch.
pub struct Grid<'a> {
    pub kernel: &'a Kernel,
    pub code: &'a Code,
    pub launch: &'a Launch<'a>,
    pub settings: &'a Settings,
    /// What the launch may access, in the order of their addresses.
    pub allocations: Vec<Arc<Allocation>>,
    /// What is other devices', and it may not.
    pub forbidden: Vec<Arc<Allocation>>,
    /// The device that it runs on.
    pub device: u32,
    files: &'a [(u32, String)],
    pub threads: u32,
    pub warps: u32,
    pub shared_bytes: usize,
    /// Bytes of the smallest access that can be to shared memory.
    pub granule: u32,
    /// Whether there are fences, which make relaxed accesses order others.
    pub fences: bool,
    constants: Vec<(Register, u64)>,
    specials: Vec<(Register, Special)>,
    order: AtomicU64,
    pub room: Room,
}

impl<'a> Grid<'a> {
    pub fn new(
        program: &'a Program,
        module: &Loaded,
        kernel: &'a Kernel,
        launch: &'a Launch<'a>,
        memory: &Memory,
        settings: &'a Settings,
    ) -> Grid<'a> {
        let (allocations, forbidden) = memory.snapshot();
        let threads = launch.block.iter().product::<u32>();
        // Dynamic shared memory starts behind the static one, aligned for any access.
        let dynamic = kernel.shared_bytes.next_multiple_of(16);
        let shared_bytes = if launch.dynamic_shared == 0 {
            kernel.shared_bytes
        } else {
            dynamic + launch.dynamic_shared as usize
        };
        let (mut constants, mut specials) = (Vec::new(), Vec::new());
        for (register, constant) in &kernel.code.constants {
            match constant {
                Constant::Bits(bits) => constants.push((*register, *bits)),
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
        let operations = || kernel.code.instructions.iter().map(|instruction| &instruction.operation);
        let granule = operations().filter_map(|operation| match operation {
            Operation::Load(load) => Some((load.address.space, load.size)),
            Operation::Store(store) => Some((store.address.space, store.size)),
            Operation::Atomic(atomic) => Some((atomic.address.space, atomic.size)),
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
            threads,
            warps: threads.div_ceil(LANES as u32),
            shared_bytes,
            granule: granule.unwrap_or(8),
            fences: operations().any(|operation| matches!(operation, Operation::Fence(_))),
            constants,
            specials,
            order: AtomicU64::new(0),
            room: Room::new(settings.race_log_bytes),
        }
    }

    /// A number greater than all before.
    pub fn next_order(&self) -> u64 {
        self.order.fetch_add(1, SeqCst) + 1
    }

    /// The greatest number so far.
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

    /// The block of this number: x runs fastest.
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

    /// Where an instruction was written.
    pub fn place(&self, at: u32) -> Place {
        let (line, source) = self.code.places[at as usize];
        let file = |index| self.files.iter().find(|file| file.0 == index).map(|file| file.1.clone());
        Place { line, source: source.and_then(|(index, line)| Some((file(index)?, line))) }
    }

    /// A warp's registers, its constants set.
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
                    Special::Nsmid => 1,
                    Special::Smid | Special::Gridid | Special::Ctaid(_) => 0,
                };
                u64::from(value)
            });
            registers.set_wide(register, &values, ALL);
        }
        registers
    }

    /// Sets what differs from block to block.
    pub fn enter_block(&self, registers: &mut Registers, index: [u32; 3]) {
        for &(register, special) in &self.specials {
            if let Special::Ctaid(axis) = special {
                registers.splat(register, u64::from(index[axis]));
            }
        }
        for &register in &self.code.cleared {
            registers.splat(register, 0);
        }
    }
}
