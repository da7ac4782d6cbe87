//! Launches: distributes blocks over CPU threads, and interprets one warp instruction at a time.
//!
//! `order` chooses which block runs, `block` which of its warps, and `interpret` runs the warp.
//! `access`, `barrier`, `collective` and others run one kind of instruction each. They find what no GPU
//! could run, such as accesses out of `bounds`, and tell `hooks` of the rest: `counting` counts, and
//! `checks` look for races and unwritten memory.

mod access;
mod barrier;
mod block;
mod bounds;
mod bulk;
mod bytes;
mod checks;
mod collective;
mod copy;
mod counting;
mod grid;
mod hooks;
mod interpret;
pub(crate) mod lanes;
mod matrix;
mod mbarrier;
mod order;
mod print;
mod reports;
mod site;
#[cfg(test)]
mod tests;
mod waiting;
mod warp;

use std::collections::HashMap;
use std::time::Duration;

use crate::{
    allow::Allow,
    counters::Counters,
    fault::{Fault, FaultKind, Place},
    history::Touch,
    memory::Memory,
    program::{Kernel, Program},
    ptx::ast::Space,
};

pub(crate) use self::access::Kind;
use self::grid::Grid;
use self::hooks::{Hooks, Installed, Left};
use self::reports::Reports;

/// The most blocks that an H200 holds at a time.
pub const MOST_RESIDENT: u64 = 132 * 32;

/// The most bytes of shared memory per block, that of an H200.
const SHARED_LIMIT: u64 = 227 * 1024;

/// The arguments of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory per block.
    pub dynamic_shared: u32,
    /// Blocks that the device holds at a time; the others start when these have ended.
    pub resident: u64,
    /// The address of the memory by which the blocks of a cooperative launch wait for each other; 0 of other
    /// launches.
    pub workspace: u64,
    /// The parameters, laid out as in [`Kernel::params`].
    ///
    /// At most [`Kernel::param_bytes`] bytes. If there are fewer, a kernel that reads past them is at fault.
    pub params: &'a [u8],
}

/// How launches run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether to look for races, reads of unwritten memory and other faults.
    ///
    /// Accesses out of bounds are always faults.
    pub checks: bool,
    /// The seed of a random order of execution.
    ///
    /// With a seed, the warps of a block and the diverged paths of a warp interleave at random, one
    /// instruction at a time. So do 2 to 128 blocks, some instructions at a time; the seed draws how many.
    /// One CPU thread runs all blocks then, whatever [`threads`](Self::threads) is, so that the same seed
    /// gives the same order each time. A fault names its seed. Without a seed, a block runs until it must
    /// wait, and so does a warp; then the next one runs.
    pub seed: Option<u64>,
    /// The number of CPU threads that run blocks, at least 1.
    pub threads: usize,
    /// The most instructions that the warps of one block may issue; a launch with more counts as endless.
    pub instruction_limit: u64,
    /// The longest wall time that a launch may run.
    ///
    /// The fault of a launch that runs longer says which threads waited, where and for what.
    pub time_limit: Duration,
    /// The most bytes for the log of accesses to global memory, in which races are looked for after a launch.
    ///
    /// When the log is full, later accesses are not checked for races, and a message says so once. A sum of
    /// f32 logs a sixth of its input's bytes.
    pub race_log_bytes: u64,
    /// The number of devices, clamped to 1 to 64.
    ///
    /// `cuInit` reads it; later changes have no effect.
    pub devices: u32,
    /// Whether devices can access each other's memory after `cuCtxEnablePeerAccess`.
    ///
    /// If not, data must be copied between devices. `cuInit` reads it; later changes have no effect.
    pub peer_access: bool,
    /// Lines and kernels whose findings are not reported, because their author has decided so.
    pub allow: Vec<Allow>,
}

impl Settings {
    /// Whether the author has decided that this is no fault.
    pub(crate) fn allows(&self, fault: &Fault) -> bool {
        self.allow.iter().any(|allow| allow.covers(fault))
    }
}

impl Default for Settings {
    /// Returns the defaults.
    ///
    /// Checks on, warps in order, one CPU thread, 2^32 instructions, a minute, 1 GiB of accesses, one device,
    /// peer access on, nothing allowed.
    fn default() -> Self {
        Settings {
            checks: true,
            seed: None,
            threads: 1,
            instruction_limit: 1 << 32,
            time_limit: Duration::from_secs(60),
            race_log_bytes: 1 << 30,
            devices: 1,
            peer_access: true,
            allow: Vec::new(),
        }
    }
}

/// The memory of a program's variables.
#[derive(Debug)]
pub struct Loaded {
    /// Address and size of each of [`Program::variables`].
    addresses: HashMap<String, (u64, u64)>,
}

impl Loaded {
    /// Allocates and initialises each variable. Returns `None` if there is not enough memory.
    pub fn new(program: &Program, memory: &Memory) -> Option<Loaded> {
        let mut loaded = Loaded { addresses: HashMap::new() };
        for variable in program.variables() {
            // No variable needs more alignment than an allocation has.
            let address = match variable.space {
                Space::Const => memory.allocate_constant(variable.size),
                _ => memory.allocate(variable.size),
            };
            let Some(address) = address else {
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

    /// Returns the address and size of the variable with this name.
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

/// Runs a kernel and returns when all its blocks have ended.
///
/// # Errors
///
/// A fault of the kernel. If several blocks have faults, one of the first such block; races in global memory
/// only if there is no other fault. Memory then contains whatever the kernel has written.
pub fn launch(
    program: &Program,
    module: &Loaded,
    kernel: &Kernel,
    launch: &Launch<'_>,
    memory: &Memory,
    settings: &Settings,
) -> Result<Counters, Box<Fault>> {
    run(program, module, kernel, launch, memory, settings, &mut Findings::default())
}

/// What [`run`] finds besides a fault.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// One for each pair of instructions.
    pub notes: Vec<Fault>,
    /// The memory that the launch accessed, if that is wanted, the checks are on, and there is no fault.
    pub touches: Option<Vec<Touch>>,
}

/// Runs [`launch`], with `findings`.
pub(crate) fn run(
    program: &Program,
    module: &Loaded,
    kernel: &Kernel,
    launch: &Launch<'_>,
    memory: &Memory,
    settings: &Settings,
    findings: &mut Findings,
) -> Result<Counters, Box<Fault>> {
    let refused = |place, kind| {
        let (kernel, block) = (kernel.name.clone(), [0; 3]);
        Err(Box::new(Fault { kernel, place, block, threads: Vec::new(), seed: None, kind }))
    };
    if let Some(unknown) = &kernel.unknown {
        let place = Place { line: unknown.line, source: None, author: None };
        return refused(Some(place), FaultKind::Unknown(unknown.message.clone()));
    }
    if let Err(message) = check(kernel, launch) {
        return refused(None, FaultKind::Launch(message));
    }
    let grid = Grid::new(program, module, kernel, launch, memory, settings);
    let results = order::run(&grid);
    let mut counters = Counters::default();
    let (mut logs, mut faults, mut suspicions) = (Vec::new(), Vec::new(), Vec::new());
    let mut reports = Reports::default();
    for found in results {
        counters += found.counters;
        reports.join(found.reports);
        logs.extend(found.logs);
        faults.extend(found.fault);
        suspicions.extend(found.suspicion);
    }
    let first = |faults: Vec<(u64, Box<Fault>)>| faults.into_iter().min_by_key(|fault| fault.0);
    let ended = match (first(faults), first(suspicions)) {
        (Some((block, _)), Some((earlier, suspicion))) if earlier < block => Err(suspicion),
        (Some((_, fault)), _) => Err(fault),
        (None, suspicion) => {
            let touches = findings.touches.as_mut().filter(|_| suspicion.is_none());
            let mut left = Left { logs, reports: &mut reports, touches };
            let searched = Installed::end_launch(&grid, &mut left);
            searched.and_then(|()| suspicion.map_or(Ok(counters), |(_, fault)| Err(fault)))
        }
    };
    findings.notes = reports.into_notes();
    ended
}

/// Fails with the reason if a launch is invalid.
fn check(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), String> {
    let threads = launch.block.iter().try_fold(1u32, |product, &count| product.checked_mul(count));
    let max = kernel.max_threads;
    if threads.is_none_or(|threads| threads == 0 || threads > max) {
        return Err(format!("blocks of {:?} threads; the kernel allows 1 to {max}", launch.block));
    }
    if let Some(required) = kernel.required_threads.filter(|required| *required != launch.block) {
        return Err(format!(
            "blocks of {:?} threads; the kernel's `.reqntid` requires {required:?}",
            launch.block
        ));
    }
    if launch.grid.iter().try_fold(1u64, |product, &count| product.checked_mul(count.into())).unwrap_or(0)
        == 0
    {
        return Err(format!("a grid of {:?} blocks, which is empty or too large", launch.grid));
    }
    let shared = kernel.shared_bytes as u64 + u64::from(launch.dynamic_shared);
    if shared > SHARED_LIMIT {
        return Err(format!("{shared} bytes of shared memory per block; the limit is {SHARED_LIMIT}"));
    }
    if launch.params.len() > kernel.param_bytes {
        let given = launch.params.len();
        return Err(format!("{given} bytes of parameters; the kernel has {}", kernel.param_bytes));
    }
    Ok(())
}
