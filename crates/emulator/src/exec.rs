//! Launches: blocks over CPU threads, warps by turns, an instruction of a warp at a time.

mod access;
mod block;
mod clocks;
mod collective;
mod counting;
mod grid;
pub(crate) mod lanes;
mod log;
mod race;
mod shadow;
#[cfg(test)]
mod tests;
mod warp;

use std::collections::HashMap;
use std::sync::{
    Once,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    counters::Counters,
    fault::{Fault, FaultKind},
    history::Touch,
    memory::Memory,
    program::{Kernel, Program},
};

pub(crate) use self::clocks::Kind;
use self::{block::Block, grid::Grid};

/// The message that a check covers part of a launch.
static PART: Once = Once::new();

/// Bytes of shared memory a block may have: those of an H200.
const SHARED_LIMIT: u64 = 227 * 1024;

/// What a kernel is launched with.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory a block, besides the kernel's static ones.
    pub dynamic_shared: u32,
    /// The parameters, laid out as [`Kernel::params`] says: [`Kernel::param_bytes`] bytes.
    pub params: &'a [u8],
}

/// How launches run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Look for races, reads of unwritten memory and the like. Accesses out of bounds are always faults.
    pub checks: bool,
    /// Interleave warps, and a warp's diverged paths, at random from this seed, an instruction at a time. Otherwise a warp
    /// runs until it must wait, then the next.
    pub seed: Option<u64>,
    /// CPU threads to run blocks on, at least 1.
    pub threads: usize,
    /// The most instructions that the warps of one block may issue before the launch counts as one without end.
    pub instruction_limit: u64,
    /// Bytes for what the checks note of accesses to global memory, in which races are looked for after a launch. When
    /// they are spent, the accesses that follow are not looked at for races, and a message says so once. A sum of f32
    /// takes a sixth of its input's bytes.
    pub race_log_bytes: u64,
    /// Devices that there are, 1 to 64; other numbers count as the nearest of these. `cuInit` reads it, and later
    /// changes of it change nothing.
    pub devices: u32,
    /// Whether devices can access each other's memory, once `cuCtxEnablePeerAccess` has enabled it. Without, memory goes
    /// from one to another by copies alone. `cuInit` reads it, as it reads [`devices`](Self::devices).
    pub peer_access: bool,
}

impl Default for Settings {
    /// Checks, warps in order, one CPU thread, 2^32 instructions, 1 GiB of accesses, one device; others, where there are
    /// such, have peer access.
    fn default() -> Self {
        Settings {
            checks: true,
            seed: None,
            threads: 1,
            instruction_limit: 1 << 32,
            race_log_bytes: 1 << 30,
            devices: 1,
            peer_access: true,
        }
    }
}

/// A program whose variables have addresses.
#[derive(Debug)]
pub struct Loaded {
    /// Address and size of each of [`Program::variables`].
    addresses: HashMap<String, (u64, u64)>,
}

impl Loaded {
    /// Gives each variable memory, and its initial value. `None` where the memory does not suffice.
    pub fn new(program: &Program, memory: &Memory) -> Option<Loaded> {
        let mut loaded = Loaded { addresses: HashMap::new() };
        for variable in program.variables() {
            // An allocation's alignment is more than a variable's can be.
            let Some(address) = memory.allocate(variable.size) else {
                loaded.unload(memory);
                return None;
            };
            loaded.addresses.insert(variable.name.clone(), (address, variable.size));
            let filled = memory.fill(address, &[0], variable.size);
            let written = memory.write(address, &variable.initial);
            if filled.is_err() || written.is_err() {
                loaded.unload(memory);
                return None;
            }
        }
        for variable in program.variables() {
            for relocation in &variable.relocations {
                let (base, _) = loaded.address(&variable.name)?;
                let Some((target, _)) = loaded.address(&relocation.name) else { continue };
                let value = target.wrapping_add(relocation.addend as u64).to_le_bytes();
                memory.write(base + relocation.at as u64, &value[..relocation.size.min(8)]).ok()?;
            }
        }
        Some(loaded)
    }

    /// The address and size of the variable of this name.
    pub fn address(&self, name: &str) -> Option<(u64, u64)> {
        self.addresses.get(name).copied()
    }

    /// Frees the variables' memory.
    pub fn unload(self, memory: &Memory) {
        for (address, _) in self.addresses.into_values() {
            memory.free(address);
        }
    }
}

/// Runs a kernel, and returns when all its blocks have ended.
///
/// # Errors
///
/// What the kernel did wrong: of several faults, one of the first block that has one; races in global memory only if there
/// is no other. Memory is then as far written as the kernel came.
pub fn launch(
    program: &Program,
    module: &Loaded,
    kernel: &Kernel,
    launch: &Launch<'_>,
    memory: &Memory,
    settings: &Settings,
) -> Result<Counters, Box<Fault>> {
    run(program, module, kernel, launch, memory, settings, None)
}

/// [`launch`], which also says what the launch did to memory, where it is asked and the checks are on.
pub(crate) fn run(
    program: &Program,
    module: &Loaded,
    kernel: &Kernel,
    launch: &Launch<'_>,
    memory: &Memory,
    settings: &Settings,
    touches: Option<&mut Vec<Touch>>,
) -> Result<Counters, Box<Fault>> {
    if let Err(message) = check(kernel, launch) {
        return Err(Box::new(Fault {
            kernel: kernel.name.clone(),
            place: None,
            block: [0; 3],
            threads: Vec::new(),
            kind: FaultKind::Launch(message),
        }));
    }
    let grid = Grid::new(program, module, kernel, launch, memory, settings);
    let blocks = launch.grid.iter().map(|&count| u64::from(count)).product::<u64>();
    let next = AtomicU64::new(0);
    // The lowest block with a fault so far: those after it need not run.
    let failed = AtomicU64::new(u64::MAX);
    let work = || {
        let mut block = Block::new(&grid);
        let (mut logs, mut fault, mut suspicion) = (Vec::new(), None, None);
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= blocks.min(failed.load(Relaxed)) {
                return (block.counters(), logs, fault, suspicion);
            }
            match block.run(number) {
                Ok(done) => {
                    logs.extend(done.log);
                    suspicion = suspicion.or(done.suspicion.map(|suspicion| (number, suspicion)));
                }
                Err(found) => {
                    failed.fetch_min(number, Relaxed);
                    fault = Some((number, found));
                }
            }
        }
    };
    let workers = settings.threads.clamp(1, 1024).min(usize::try_from(blocks).unwrap_or(usize::MAX));
    let results: Vec<_> = if workers == 1 {
        vec![work()]
    } else {
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let results = running.into_iter().map(|worker| worker.join());
            results.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    };
    let mut counters = Counters::default();
    let (mut logs, mut faults, mut suspicions) = (Vec::new(), Vec::new(), Vec::new());
    for (counted, more, fault, suspicion) in results {
        counters += counted;
        logs.extend(more);
        faults.extend(fault);
        suspicions.extend(suspicion);
    }
    let first = |faults: Vec<(u64, Box<Fault>)>| faults.into_iter().min_by_key(|fault| fault.0);
    match (first(faults), first(suspicions)) {
        (Some((block, _)), Some((earlier, suspicion))) if earlier < block => Err(suspicion),
        (Some((_, fault)), _) => Err(fault),
        (None, suspicion) => {
            if settings.checks && grid.room.is_spent() {
                let (name, bytes) = (&kernel.name, settings.race_log_bytes);
                PART.call_once(|| {
                    eprintln!(
                        "kernel {name}: its accesses to global memory do not fit in Settings::race_log_bytes, \
                         {bytes}: races are looked for only among the first ones"
                    )
                });
            }
            race::find(&grid, &mut logs)?;
            if let Some((_, fault)) = suspicion {
                return Err(fault);
            }
            if let Some(touches) = touches {
                *touches = race::touches(&grid, &logs);
            }
            Ok(counters)
        }
    }
}

/// What makes a launch impossible.
fn check(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), String> {
    let threads = launch.block.iter().try_fold(1u32, |product, &count| product.checked_mul(count));
    let max = kernel.max_threads;
    if threads.is_none_or(|threads| threads == 0 || threads > max) {
        return Err(format!("blocks of {:?} threads; the kernel takes 1 to {max}", launch.block));
    }
    if launch.grid.iter().try_fold(1u64, |product, &count| product.checked_mul(count.into())).unwrap_or(0)
        == 0
    {
        return Err(format!("a grid of {:?} blocks", launch.grid));
    }
    let shared = kernel.shared_bytes as u64 + u64::from(launch.dynamic_shared);
    if shared > SHARED_LIMIT {
        return Err(format!("{shared} bytes of shared memory a block; there are {SHARED_LIMIT}"));
    }
    if launch.params.len() != kernel.param_bytes {
        let given = launch.params.len();
        return Err(format!("{given} bytes of parameters; the kernel has {}", kernel.param_bytes));
    }
    Ok(())
}
